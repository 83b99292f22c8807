//! A dictionary that is no more than so many functions, to rounding: Phi = F C^T with F of N x r and C of K x r.
//!
//! Smooth kernels, wide beside the data, have matrices of low rank but for rounding. Their Newton basis (`newton.rs`) at the
//! rows is F and at the centres C, and what is left of Phi is bounded: |Phi_ni - (F C^T)_ni| <= P(x_n) P(z_i). Where that is no
//! more than rounding makes of a pass over the rows, every sum over rows of the dictionary comes out of the r x r matrix
//! F^T W F: `(N + K) r^2 / 2` operations in place of N K kernel values, N K m products and N K squares.

use std::ops::Range;

use crate::data::column_table::{COLUMNS, Table};
use crate::data::design::{Design, Family};
use crate::data::low_rank::basis::BasisValues;
use crate::data::low_rank::policy::LowRankPolicy;
use crate::data::row_blocks::{Sums, sum_over_rows};
use crate::linalg::LowerTriangle;
use crate::linalg::aligned_columns::{AlignedColumns, stride};
use crate::linalg::column_combination::add_product;
use crate::linalg::gemm::{TallMatrix, add_lower_transpose_product, add_transpose_product};
use crate::linalg::vector::{axpy, dot, mirror, multiply_into, weighted_square};
use crate::parallel::{map_pieces, pieces};

/// What is left of a kernel value, relative to the largest, in a pool at a mode, which is done with when the mode is found anew.
const NEAR: f64 = 1e-6;
/// What is left of a column, relative to its length, where it counts as rounding.
const REST: f64 = 1e-11;
/// Functions outside families at most; each is a feature of its own.
pub(crate) const MOST_OTHERS: usize = 4;
/// Rows, or functions, at a time: their features stay in the second-level cache.
const STRIP: usize = 256;

/// F and C.
#[derive(Debug)]
pub(crate) struct LowRankFeatures {
    features: Table,
    parts: Vec<Part>,
}

/// Functions side by side that have features of their own.
#[derive(Debug)]
struct Part {
    functions: Range<usize>,
    features: Range<usize>,
    /// The rows of C in these features; `None`: those of F.
    coordinates: Option<Table>,
    /// What is left of each column is at most `rest` times this.
    powers: Vec<f64>,
    /// sqrt(sum w P(x)^2).
    rest: f64,
    /// P^2 at each landmark before it was one, relative to the largest kernel value.
    pivots: Vec<f64>,
}

impl LowRankFeatures {
    /// The factor of a design, if it has one of this grade.
    pub(crate) fn of(
        design: &dyn Design,
        weights: Option<&[f64]>,
        grade: LowRankPolicy,
    ) -> Option<Self> {
        let (n, k) = (design.n_rows(), design.n_basis());
        let families = design.families();
        let members: usize = families.iter().map(Family::len).sum();
        if families.is_empty() || k - members > MOST_OTHERS {
            return None;
        }
        let mut this = Self {
            features: Table::new(n),
            parts: Vec::new(),
        };
        for family in &families {
            this.add_family(family, weights, grade)?;
        }
        let covered = |j: &usize| this.parts.iter().any(|part| part.functions.contains(j));
        let others: Vec<usize> = (0..k).filter(|j| !covered(j)).collect();
        for j in others {
            this.add_function(design, j);
        }
        this.parts.sort_by_key(|part| part.functions.start);
        Some(this)
    }

    fn add_family(
        &mut self,
        family: &Family<'_>,
        weights: Option<&[f64]>,
        grade: LowRankPolicy,
    ) -> Option<()> {
        let most = grade.most.checked_sub(self.rank())?;
        let grade = LowRankPolicy { most, ..grade };
        let (newton, seen, grade) = grade.landmarks(family)?;
        let BasisValues {
            newton,
            rows,
            centres,
        } = BasisValues::of(family, newton, seen, grade)?;
        let rest = match weights {
            None => dot(&rows.powers, &rows.powers),
            Some(w) => weighted_square(&rows.powers, w),
        };
        let first = self.rank();
        self.features.extend(rows.values);
        let (coordinates, powers) = match centres {
            None => (None, rows.powers),
            Some(centres) => (Some(centres.values), centres.powers),
        };
        self.parts.push(Part {
            functions: family.first..family.first + family.len(),
            features: first..self.rank(),
            coordinates,
            powers,
            rest: rest.sqrt(),
            pivots: newton.pivots(),
        });
        Some(())
    }

    /// A function that is a feature of its own.
    fn add_function(&mut self, design: &dyn Design, j: usize) {
        let (n, first) = (design.n_rows(), self.rank());
        let mut buffer = Vec::new();
        let block = design.block(0..n, j..j + 1, &mut buffer);
        self.features.push(block.column(0, n));
        let mut one = Table::new(1);
        one.push(&[1.0]);
        self.parts.push(Part {
            functions: j..j + 1,
            features: first..first + 1,
            coordinates: Some(one),
            powers: vec![0.0],
            rest: 0.0,
            pivots: vec![f64::INFINITY],
        });
    }

    /// The same with the leading features alone, which leave no more than [`NEAR`] of a kernel value; `None` where that is most of
    /// them.
    pub(crate) fn leading(&self) -> Option<Self> {
        /// Of all features: beyond, passes take two thirds of the time or more.
        const MOST: f64 = 0.8;
        // Points that were found to be far later on have landmarks further back.
        let lead = |part: &Part| {
            let last = part.pivots.iter().rposition(|&pivot| pivot > NEAR);
            last.map_or(0, |last| last + 1)
        };
        let width: usize = self.parts.iter().map(lead).sum();
        // No number of features is beyond a float.
        #[allow(clippy::cast_precision_loss)]
        if width as f64 > MOST * self.rank() as f64 {
            return None;
        }
        let mut features = Table::new(self.features.height);
        let parts = self.parts.iter().map(|part| {
            let first = features.width;
            let Range { start, .. } = part.features;
            features.extend(self.features.leading(start..start + lead(part)));
            Part {
                functions: part.functions.clone(),
                features: first..features.width,
                coordinates: part
                    .coordinates
                    .as_ref()
                    .map(|own| own.leading(0..lead(part))),
                // What is left is more than was asked for.
                powers: vec![f64::INFINITY; part.powers.len()],
                rest: part.rest,
                pivots: part.pivots[..lead(part)].to_vec(),
            }
        });
        let parts = parts.collect();
        Some(Self { features, parts })
    }

    /// r.
    pub(crate) fn rank(&self) -> usize {
        self.features.width
    }

    /// Whether all that is left of each column of these lengths is rounding.
    pub(crate) fn is_close(&self, norms: &[f64]) -> bool {
        self.leaves(REST, norms)
    }

    /// Whether what is left of each column of these lengths is no more than this share of it.
    pub(crate) fn leaves(&self, share: f64, norms: &[f64]) -> bool {
        self.parts.iter().all(|part| {
            let norms = &norms[part.functions.clone()];
            let mut functions = part.powers.iter().zip(norms);
            functions.all(|(power, norm)| power * part.rest <= share * norm)
        })
    }

    /// F^T W F.
    pub(crate) fn gram(&self, weights: &[f64]) -> Table {
        let (n, r) = (self.features.height, self.rank());
        let mut sum = sum_over_rows(n, 2 * STRIP, r, |rows, out| {
            let (height, apart) = (rows.len(), stride(rows.len()));
            let weights = &weights[rows.clone()];
            // A few at a time, so that they are still in the cache when they are read.
            let mut weighted = AlignedColumns::zeros(COLUMNS.min(r) * apart);
            for columns in pieces(r, COLUMNS) {
                for (k, out) in columns.clone().zip(weighted.chunks_exact_mut(apart)) {
                    multiply_into(&self.features.column(k)[rows.clone()], weights, out);
                }
                let below = self.features.tall(&(columns.start..r), rows.start);
                let right = TallMatrix::new(&weighted, apart, columns.len());
                let out = &mut out[columns.start * (r + 1)..];
                add_lower_transpose_product(below, right, height, out, r);
            }
        });
        mirror(&mut sum);
        Table::of(&sum)
    }

    /// F^T of one value for each row.
    pub(crate) fn project(&self, values: &[f64]) -> Vec<f64> {
        self.features.products(values)
    }

    /// Where row after row of C stands, in the features of a part.
    fn coordinates<'s>(&'s self, part: &'s Part) -> (&'s Table, Range<usize>) {
        match &part.coordinates {
            Some(table) => (table, 0..table.width),
            None => (&self.features, part.features.clone()),
        }
    }

    /// Some rows of C, divided by these lengths: the columns of a table.
    fn rows_of(&self, js: &[usize], norms: &[f64]) -> Table {
        /// Rows that one thread gathers at a time, and columns that it reads side by side.
        const ROWS: usize = 64;
        const SIDE: usize = 8;
        let r = self.rank();
        Table::filled(r, js.len(), ROWS, |first, all| {
            let js = &js[first..];
            for part in &self.parts {
                let (table, columns) = self.coordinates(part);
                for side in pieces(columns.len(), SIDE) {
                    let rows = all.chunks_exact_mut(stride(r)).zip(js);
                    for (row, &j) in rows.filter(|(_, j)| part.functions.contains(j)) {
                        let (place, scale) = (j - part.functions.start, 1.0 / norms[j]);
                        for k in side.clone() {
                            let value = table.column(columns.start + k)[place];
                            row[part.features.start + k] = scale * value;
                        }
                    }
                }
            }
        })
    }

    /// The sums of a pass, in the units of the columns given: phi_i^T W phi_i for every i if asked for, phi_i^T W phi_j for each j wanted, in
    /// units of these lengths, and phi_i^T g. `gram` is F^T W F and `right` F^T g.
    pub(crate) fn sums(
        &self,
        gram: &Table,
        right: &[f64],
        (wanted, norms): (&[usize], &[f64]),
        with_squares: bool,
    ) -> Sums {
        let q = wanted.len() + 1;
        let mut all = times(gram, &self.rows_of(wanted, norms));
        all.push(right);
        let mut sums = Sums {
            diag: Vec::new(),
            products: vec![Vec::new(); q],
        };
        for part in &self.parts {
            let (table, columns) = self.coordinates(part);
            let own = part.features.start;
            let blocks = map_pieces(part.functions.len(), STRIP, |functions| {
                let n = functions.len();
                let tall = table.tall(&columns, functions.start);
                let mut products = vec![0.0; n * q];
                add_product(tall, all.corner(own, 0), n, (&mut products, n), q);
                let mut squares = vec![0.0; n];
                if with_squares {
                    table.add_squares(&columns, &functions, gram.corner(own, own), &mut squares);
                }
                (squares, products)
            });
            for (diag, products) in blocks {
                let products = products.chunks_exact(diag.len());
                for (sum, part) in sums.products.iter_mut().zip(products) {
                    sum.extend_from_slice(part);
                }
                sums.diag.extend(diag);
            }
        }
        sums
    }

    /// What weights of functions, in units of these lengths, come to in features.
    pub(crate) fn combine(&self, js: &[usize], norms: &[f64], weights: &[f64]) -> Vec<f64> {
        let mut sum = vec![0.0; self.rank()];
        let rows = self.rows_of(js, norms);
        for (k, &w) in weights.iter().enumerate() {
            axpy(w, rows.column(k), &mut sum);
        }
        sum
    }

    /// phi_i^T W phi_j for each two of `js` in units of these lengths, of which what is above the diagonal does not count, and
    /// phi_i^T g; `gram` is F^T W F and `right` F^T g.
    pub(crate) fn lower_among(
        &self,
        gram: &Table,
        right: &[f64],
        js: &[usize],
        norms: &[f64],
    ) -> (LowerTriangle, Vec<f64>) {
        let rows = self.rows_of(js, norms);
        (self.products(gram, &rows), rows.products(right))
    }

    /// c^T G d for each two of these rows, from the diagonal down.
    fn products(&self, gram: &Table, rows: &Table) -> LowerTriangle {
        let (p, rank) = (rows.width, self.rank());
        let turned = times(gram, rows);
        let mut out = LowerTriangle::zeros(p);
        out.add(p * p * rank, |columns, out| {
            let first = columns.start;
            let below = rows.tall(&(first..p), 0);
            add_lower_transpose_product(below, turned.tall(&columns, 0), rank, out, p - first);
        });
        out
    }

    /// phi_i^T g for each of `js` in units of these lengths, `right` being F^T g.
    pub(crate) fn projections(&self, right: &[f64], js: &[usize], norms: &[f64]) -> Vec<f64> {
        self.rows_of(js, norms).products(right)
    }
}

/// G B for a symmetric G.
fn times(gram: &Table, right: &Table) -> Table {
    let r = gram.height;
    Table::filled(r, right.width, COLUMNS, |first, out| {
        let width = out.len() / stride(r);
        let right = right.tall(&(first..first + width), 0);
        add_transpose_product(gram.tall(&(0..r), 0), right, r, out, stride(r));
    })
}

#[cfg(test)]
mod tests {
    use nalgebra::DMatrix;

    use super::*;
    use crate::data::low_rank::policy::EXACT;
    use crate::data::{DenseDesign, completed};
    use crate::{Kernel, KernelDesign};

    const CLOSE: LowRankPolicy = LowRankPolicy {
        tol: EXACT,
        most: 300,
    };

    fn gaussian(gamma: f64) -> Kernel {
        Kernel::Gaussian {
            inverse_square_widths: vec![gamma],
        }
    }

    fn points(n: usize, stretch: f64) -> Vec<f64> {
        (0..2 * n)
            .map(|i| stretch * (i as f64 * 1.37).sin())
            .collect()
    }

    fn values(design: &dyn Design) -> Vec<f64> {
        let mut buffer = Vec::new();
        let (n, k) = (design.n_rows(), design.n_basis());
        let block = design.block(0..n, 0..k, &mut buffer);
        (0..k).flat_map(|c| block.column(c, n).to_vec()).collect()
    }

    /// Among `js` out of `k` functions, as they are given.
    fn gram_among(
        factor: &LowRankFeatures,
        weights: &[f64],
        js: &[usize],
        k: usize,
    ) -> DMatrix<f64> {
        let right = vec![0.0; factor.rank()];
        let gram = factor.gram(weights);
        completed(factor.lower_among(&gram, &right, js, &vec![1.0; k])).0
    }

    fn weighted(a: &[f64], b: &[f64], w: &[f64]) -> f64 {
        let terms = a.iter().zip(b).zip(w);
        terms.map(|((a, b), w)| a * b * w).sum()
    }

    /// Every sum that comes out of the factor of a design is that over its rows.
    fn check(design: &KernelDesign) {
        let (n, k) = (design.n_rows(), design.n_basis());
        let factor = LowRankFeatures::of(design, None, CLOSE).unwrap();
        assert!(factor.rank() < n / 3);
        let all = values(design);
        let column = |i: usize| &all[i * n..(i + 1) * n];
        let weights: Vec<f64> = (0..n).map(|i| 1.0 + 0.5 * (i as f64).cos()).collect();
        let target: Vec<f64> = (0..n).map(|i| (0.3 * i as f64).sin()).collect();
        let ones = vec![1.0; n];
        let norms: Vec<f64> = (0..k)
            .map(|i| weighted(column(i), column(i), &ones).sqrt())
            .collect();
        assert!(factor.is_close(&norms));
        let (gram, right) = (factor.gram(&weights), factor.project(&target));
        let wanted = [k - 1, 0, k / 2];
        let sums = factor.sums(&gram, &right, (&wanted, &norms), true);
        let close = |a: f64, b: f64, scale: f64| assert!((a - b).abs() < 1e-10 * scale, "{a} {b}");
        for i in 0..k {
            close(
                sums.diag[i],
                weighted(column(i), column(i), &weights),
                norms[i].powi(2),
            );
            for (products, &j) in sums.products.iter().zip(&wanted) {
                let product = weighted(column(i), column(j), &weights) / norms[j];
                close(products[i], product, norms[i]);
            }
            close(
                sums.products[3][i],
                weighted(column(i), &target, &ones),
                norms[i] * norms[0],
            );
        }
        let (among, gradient) = completed(factor.lower_among(&gram, &right, &wanted, &norms));
        let projections = factor.projections(&right, &wanted, &norms);
        for (a, &i) in wanted.iter().enumerate() {
            for (b, &j) in wanted.iter().enumerate() {
                let product = weighted(column(i), column(j), &weights) / (norms[i] * norms[j]);
                close(among[(a, b)], product, 1.0);
            }
            let projection = weighted(column(i), &target, &ones) / norms[i];
            close(gradient[a], projection, norms[0]);
            close(projections[a], projection, norms[0]);
        }
    }

    #[test]
    fn sums_are_those_over_the_rows() {
        let rows = points(700, 1.0);
        let others = points(400, 1.3);
        for (centres, kernels, bias) in [
            (&rows, vec![gaussian(0.5)], true),
            (&others, vec![gaussian(0.5)], false),
            (&others, vec![gaussian(0.3), gaussian(0.7)], true),
        ] {
            check(&KernelDesign::new(&rows, centres, 2, kernels, bias).unwrap());
        }
    }

    #[test]
    fn leading_features_say_nearly_the_same() {
        let rows: Vec<f64> = (0..1400)
            .map(|i| (f64::from(i) * f64::from(i) * 0.37).sin())
            .collect();
        let centres = &rows[..900];
        let kernels = vec![gaussian(0.3), gaussian(0.7)];
        let design = KernelDesign::new(&rows, centres, 2, kernels, true).unwrap();
        let factor = LowRankFeatures::of(&design, None, CLOSE).unwrap();
        let leading = factor.leading().unwrap();
        assert!(leading.rank() < factor.rank() && !leading.is_close(&vec![1.0; 901]));
        let weights: Vec<f64> = (0..700).map(|i| 1.0 + 0.5 * f64::from(i).cos()).collect();
        let js = [0, 1, 449, 451, 900];
        let among = |factor: &LowRankFeatures| gram_among(factor, &weights, &js, 901);
        let (nearly, exactly) = (among(&leading), among(&factor));
        assert!((nearly - &exactly).amax() < 1e-5 * exactly.amax());
    }

    #[test]
    fn an_outlier_has_leading_features_too() {
        let mut rows: Vec<f64> = (0..2800)
            .map(|i| (f64::from(i) * f64::from(i) * 0.37).sin())
            .collect();
        // Not among the points that landmarks are first chosen from.
        rows[6..8].copy_from_slice(&[3.0, -3.5]);
        let design = KernelDesign::new(&rows, &rows, 2, vec![gaussian(0.5)], true).unwrap();
        let factor = LowRankFeatures::of(&design, None, CLOSE).unwrap();
        let own = |factor: &LowRankFeatures| gram_among(factor, &[1.0; 1400], &[4], 1401)[(0, 0)];
        let all = own(&factor);
        assert!(all > 0.9);
        if let Some(leading) = factor.leading() {
            assert!((own(&leading) - all).abs() < 1e-5 * all);
        }
    }

    #[test]
    fn no_row_is_too_far_from_the_landmarks() {
        // The outlier is not among those that landmarks are first chosen from.
        let mut rows = points(3000, 1.0);
        rows[2..4].copy_from_slice(&[3.0, -3.5]);
        check(&KernelDesign::new(&rows, &rows[..800], 2, vec![gaussian(0.2)], true).unwrap());
    }

    #[test]
    fn rough_kernels_other_functions_and_columns_that_all_but_vanish_have_no_factor() {
        let rows = points(700, 1.0);
        let design = |kernel, centres: &[f64]| {
            KernelDesign::new(&rows, centres, 2, vec![kernel], false).unwrap()
        };
        for kernel in [
            gaussian(1e4),
            Kernel::Laplacian { gamma: 1.0 },
            Kernel::Sigmoid {
                gamma: 0.1,
                coef0: 0.0,
            },
        ] {
            assert!(LowRankFeatures::of(&design(kernel, &rows), None, CLOSE).is_none());
        }
        let dense = DenseDesign::new(&rows, 700, 2).unwrap();
        assert!(LowRankFeatures::of(&dense, None, CLOSE).is_none());
        // exp(-0.5 (6 - 1)^2) and less: the rest of such a column is no rounding.
        let far: Vec<f64> = rows.iter().map(|v| v + 7.0).collect();
        let design = design(gaussian(0.5), &far);
        let factor = LowRankFeatures::of(&design, None, CLOSE).unwrap();
        let all = values(&design);
        let norms: Vec<f64> = all.chunks(700).map(|c| dot(c, c).sqrt()).collect();
        assert!(!factor.is_close(&norms));
    }

    #[test]
    fn a_coarse_factor_stands_for_large_designs_of_smooth_kernels_alone() {
        let rows = points(1400, 1.0);
        let design = |n: usize, gamma| {
            let rows = &rows[..2 * n];
            KernelDesign::new(rows, rows, 2, vec![gaussian(gamma)], true).unwrap()
        };
        let rank = |design: &KernelDesign| {
            let grade = LowRankPolicy::coarse(design)?;
            LowRankFeatures::of(design, None, grade).map(|factor| factor.rank())
        };
        assert!(rank(&design(1400, 20.0)).unwrap() > rank(&design(1400, 0.5)).unwrap());
        assert!(rank(&design(1400, 1e4)).is_none());
        assert!(LowRankPolicy::coarse(&design(700, 0.5)).is_none());
        assert!(LowRankPolicy::exact(&design(700, 0.5)).is_none());
        assert!(LowRankPolicy::exact(&design(1400, 0.5)).is_some());
    }
}
