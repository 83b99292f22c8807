//! Low-rank features of a dictionary: Phi = F C^T to rounding, with F of N x r and C of K x r.
//!
//! The matrix of a smooth kernel that is wide compared with the data has low rank, to rounding. Its Newton basis
//! (`pivoted_cholesky.rs`) is F at the rows and C at the centres, with the error bound |Phi_ni - (F C^T)_ni| <= P(x_n) P(z_i). Where this
//! is below the rounding error of a pass over the rows, every sum over rows follows from the r x r matrix F^T W F, in
//! `(N + K) r^2 / 2` operations instead of N K kernel values, N K m products and N K squares.

use std::ops::Range;

use crate::Points;
use crate::data::column_cache::{Sums, add_weighted_gram, sum_over_rows};
use crate::data::design::{Design, Family};
use crate::data::low_rank::pivoted_cholesky::{PivotedCholesky, sample};
use crate::linalg::Matrix;
use crate::linalg::columns::{COLUMNS, Table, stride};
use crate::linalg::gemm::{add_combination, add_lower_transpose_product, add_transpose_product};
use crate::linalg::vector::{axpy, dot, mirror, weighted_square};
use crate::parallel::{fill_pieces_of, map_pieces, pieces};

/// Error of a kernel value, relative to the largest, that counts as rounding.
pub(crate) const EXACT: f64 = 1e-12;
/// Error of a kernel value, relative to the largest, of features with which a fit chooses functions.
const COARSE: f64 = 1e-2;
/// Numbers in F: 32 MiB.
const MAX_NUMBERS: usize = 1 << 22;
/// Rows and centres among which the first landmarks are chosen.
const SAMPLE: usize = 1024;

/// Accuracy and number of the features of a design.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LowRankPolicy {
    /// Error of a kernel value, relative to the largest.
    pub(crate) tol: f64,
    /// Largest number of features.
    pub(crate) max_features: usize,
}

impl LowRankPolicy {
    fn new(tol: f64, max_features: usize) -> Option<Self> {
        /// Fewer features are not worth a policy.
        const MIN_FEATURES: usize = 9;
        (max_features >= MIN_FEATURES).then_some(Self { tol, max_features })
    }

    /// Features exact to rounding, where they make a pass over the dictionary cheaper than its kernel values.
    pub(crate) fn exact(design: &dyn Design) -> Option<Self> {
        /// Cost of a kernel value in multiplications, including its products with a few active functions.
        const KERNEL_VALUE: f64 = 10.0;
        /// Kernel values of a dictionary that is worth the choice of landmarks.
        const MIN_VALUES: usize = 1 << 19;
        let (n, k) = (design.n_rows(), design.n_basis());
        let (rows, functions) = (n as f64, k as f64);
        // Far below the largest integer.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let pays = (2.0 * KERNEL_VALUE * rows * functions / (rows + functions)).sqrt() as usize;
        let max_features = pays.min(max_in_memory(n, k));
        let enough = n.saturating_mul(k) >= MIN_VALUES;
        Self::new(EXACT, max_features).filter(|_| enough)
    }

    /// Features accurate enough to choose functions.
    pub(crate) fn coarse(design: &dyn Design) -> Option<Self> {
        /// A fit of fewer kernel values is faster than the choice of landmarks.
        const MIN_VALUES: usize = 3 << 19;
        /// Smallest ratio of rows, and of functions, to features.
        const MIN_RATIO: usize = 5;
        let (n, k) = (design.n_rows(), design.n_basis());
        let max_features = max_in_memory(n, k).min(n.min(k) / MIN_RATIO);
        let enough = n.saturating_mul(k) >= MIN_VALUES;
        Self::new(COARSE, max_features).filter(|_| enough)
    }

    pub(crate) fn is_coarse(self) -> bool {
        self.tol >= COARSE
    }

    /// Landmarks for a family, and the policy that they meet.
    ///
    /// If few landmarks suffice for a coarse policy, the kernel is very wide. Models are then differences of large terms, and need exact
    /// features.
    fn landmarks(self, family: &Family<'_>) -> Option<(PivotedCholesky, Self)> {
        /// Smallest number of landmarks with which coarse features suffice.
        const MIN_COARSE: usize = 64;
        /// Largest number of landmarks of exact features for a wide kernel.
        const MAX_WIDE: usize = 200;
        let sample = sample(family, SAMPLE);
        let choose = |policy: Self| {
            PivotedCholesky::choose(family, &sample, policy.tol, policy.max_features)
        };
        let newton = choose(self)?;
        if !self.is_coarse() || newton.len() >= MIN_COARSE {
            return Some((newton, self));
        }
        let wide = Self {
            tol: EXACT,
            max_features: self.max_features.min(MAX_WIDE),
        };
        Some((choose(wide)?, wide))
    }
}

fn max_in_memory(n: usize, k: usize) -> usize {
    MAX_NUMBERS / n.max(k).max(1)
}

/// Newton functions u and power function P at some points.
struct BasisTable {
    values: Table,
    powers: Vec<f64>,
}

impl BasisTable {
    fn evaluate(newton: &PivotedCholesky, points: &Points) -> Self {
        let parts = map_pieces(points.n_points(), STRIP, |rows| {
            let (mut out, height) = (Vec::new(), rows.len());
            let powers = newton.at(points, rows, height, &mut out);
            (out, powers)
        });
        // With memory for functions that are features of their own.
        let mut values = Table::with_room(points.n_points(), newton.len() + MAX_OTHERS);
        for k in 0..newton.len() {
            let pieces = parts.iter();
            values.push_pieces(
                pieces.map(|(part, powers)| &part[k * powers.len()..][..powers.len()]),
            );
        }
        let powers = parts.into_iter().flat_map(|(_, powers)| powers).collect();
        Self { values, powers }
    }

    /// Appends to `far` the points at which P^2 exceeds the tolerance, row by row.
    fn add_far(&self, newton: &PivotedCholesky, points: &Points, tol: f64, far: &mut Vec<f64>) {
        for (i, power) in self.powers.iter().enumerate() {
            // Landmarks cannot reduce the part of P^2 that allows for rounding.
            let square = power * power - newton.rounding * newton.largest;
            if square > tol * newton.largest {
                far.extend((0..points.n_features()).map(|f| points.feature(f)[i]));
            }
        }
    }
}

/// The Newton basis of a family at all rows, and at the centres if these are not the rows.
struct FamilyValues {
    rows: BasisTable,
    centres: Option<BasisTable>,
}

impl FamilyValues {
    /// Adds landmarks where the error at some point exceeds the tolerance. `None` if too many landmarks would be needed.
    fn of(family: &Family<'_>, mut newton: PivotedCholesky, policy: LowRankPolicy) -> Option<Self> {
        const MAX_ROUNDS: usize = 4;
        let d = family.points.n_features();
        let centres = (!family.is_about_its_rows())
            .then(|| Points::from_rows(family.centres, family.len(), d));
        for _ in 0..MAX_ROUNDS {
            let this = Self {
                rows: BasisTable::evaluate(&newton, family.points),
                centres: centres
                    .as_ref()
                    .map(|centres| BasisTable::evaluate(&newton, centres)),
            };
            let mut far = Vec::new();
            if !policy.is_coarse() {
                this.rows
                    .add_far(&newton, family.points, policy.tol, &mut far);
                if let (Some(points), Some(table)) = (&centres, &this.centres) {
                    table.add_far(&newton, points, policy.tol, &mut far);
                }
            }
            if far.is_empty() {
                return Some(this);
            }
            newton.grow(&far, policy.tol, policy.max_features)?;
        }
        None
    }
}

/// Error of a column, relative to its length, that counts as rounding.
pub(crate) const EXACT_COLUMN: f64 = 1e-11;
/// Largest number of functions outside families. Each is a feature of its own.
pub(crate) const MAX_OTHERS: usize = 4;
/// Rows, or functions, at a time: their features stay in the second-level cache.
const STRIP: usize = 256;

/// The factors F and C of a dictionary.
#[derive(Debug)]
pub(crate) struct LowRankFeatures {
    features: Table,
    parts: Vec<Part>,
}

/// Adjacent functions with features of their own.
#[derive(Debug)]
struct Part {
    functions: Range<usize>,
    features: Range<usize>,
    /// The rows of C in these features; `None` if these are the rows of F.
    coordinates: Option<Table>,
    /// P(z) of each function: the error of a column is at most `error * P(z)`.
    powers: Vec<f64>,
    /// sqrt(sum w P(x)^2).
    error: f64,
}

impl LowRankFeatures {
    /// The features of a design; `None` if no features within the policy exist.
    pub(crate) fn of(
        design: &dyn Design,
        weights: Option<&[f64]>,
        policy: LowRankPolicy,
    ) -> Option<Self> {
        let (n, k) = (design.n_rows(), design.n_basis());
        let families = design.families();
        let members: usize = families.iter().map(Family::len).sum();
        if families.is_empty() || k - members > MAX_OTHERS {
            return None;
        }
        let mut this = Self {
            features: Table::new(n),
            parts: Vec::new(),
        };
        for family in &families {
            this.add_family(family, weights, policy)?;
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
        policy: LowRankPolicy,
    ) -> Option<()> {
        let first = self.rank();
        let policy = LowRankPolicy {
            max_features: policy.max_features.checked_sub(first)?,
            ..policy
        };
        let (newton, policy) = policy.landmarks(family)?;
        let values = FamilyValues::of(family, newton, policy)?;
        let rows = values.rows;
        let square = match weights {
            None => dot(&rows.powers, &rows.powers),
            Some(w) => weighted_square(&rows.powers, w),
        };
        self.features.extend(rows.values);
        let (coordinates, powers) = match values.centres {
            None => (None, rows.powers),
            Some(centres) => (Some(centres.values), centres.powers),
        };
        self.parts.push(Part {
            functions: family.columns(),
            features: first..self.rank(),
            coordinates,
            powers,
            error: square.sqrt(),
        });
        Some(())
    }

    /// Adds a function as a feature of its own.
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
            error: 0.0,
        });
    }

    /// r.
    pub(crate) fn rank(&self) -> usize {
        self.features.width
    }

    /// Whether the error of each column is at most this fraction of its length.
    pub(crate) fn error_within(&self, fraction: f64, norms: &[f64]) -> bool {
        self.parts.iter().all(|part| {
            let norms = &norms[part.functions.clone()];
            let mut functions = part.powers.iter().zip(norms);
            functions.all(|(power, norm)| power * part.error <= fraction * norm)
        })
    }

    /// F^T W F.
    pub(crate) fn gram(&self, weights: &[f64]) -> Table {
        let (n, r) = (self.features.height, self.rank());
        let mut sum = sum_over_rows(n, 2 * STRIP, r, |rows, out| {
            let columns = self.features.tall(&(0..r), rows.start);
            let columns = columns.columns(&(0..rows.len()));
            add_weighted_gram(&columns, Some(&weights[rows]), None, out);
        });
        mirror(&mut sum);
        Table::of(&sum)
    }

    /// F^T times a vector with one value for each row.
    pub(crate) fn project(&self, values: &[f64]) -> Vec<f64> {
        self.features.products(values)
    }

    /// The table with the rows of C of a part, and its columns.
    fn coordinates<'s>(&'s self, part: &'s Part) -> (&'s Table, Range<usize>) {
        match &part.coordinates {
            Some(table) => (table, 0..table.width),
            None => (&self.features, part.features.clone()),
        }
    }

    /// Some rows of C, divided by the norms of their functions, as the columns of a table.
    fn rows_of(&self, js: &[usize], norms: &[f64]) -> Table {
        /// Rows that one thread gathers, and columns that it reads together.
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

    /// The sums of a pass, where `gram` is F^T W F and `right` F^T g: phi_i^T W phi_i for every i if `with_squares`, phi_i^T W phi_j for each
    /// j of `wanted` with phi_j divided by its norm, and phi_i^T g. The phi_i are original columns.
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
        let parts = self.parts.iter().flat_map(|part| {
            let (table, columns) = self.coordinates(part);
            let own = part.features.start;
            map_pieces(part.functions.len(), STRIP, |functions| {
                let n = functions.len();
                let coordinates = table.tall(&columns, functions.start).columns(&(0..n));
                let mut products = vec![0.0; n * q];
                for (k, products) in products.chunks_exact_mut(n).enumerate() {
                    add_combination(&coordinates, &all.column(k)[own..], products);
                }
                let mut squares = vec![0.0; n];
                if with_squares {
                    table.add_squares(&columns, &functions, gram.corner(own, own), &mut squares);
                }
                (squares, products)
            })
        });
        Sums::concat(parts.collect(), q)
    }

    /// The weights of the features that are equivalent to weights of functions divided by their norms.
    pub(crate) fn combine(&self, js: &[usize], norms: &[f64], weights: &[f64]) -> Vec<f64> {
        let mut sum = vec![0.0; self.rank()];
        let rows = self.rows_of(js, norms);
        for (k, &w) in weights.iter().enumerate() {
            axpy(w, rows.column(k), &mut sum);
        }
        sum
    }

    /// The lower triangle of phi_i^T W phi_j and phi_i^T g for the functions `js` divided by their norms; `gram` is F^T W F and `right`
    /// F^T g.
    pub(crate) fn lower_among(
        &self,
        gram: &Table,
        right: &[f64],
        js: &[usize],
        norms: &[f64],
    ) -> (Matrix, Vec<f64>) {
        let (p, rank, rows) = (js.len(), self.rank(), self.rows_of(js, norms));
        let products = times(gram, &rows);
        let mut out = Matrix::zeros(p, p);
        fill_pieces_of(
            p * p * rank,
            out.as_mut_slice(),
            COLUMNS * p,
            |start, out| {
                let (first, width) = (start / p, out.len() / p);
                let below = rows.tall(&(first..p), 0);
                let right = products.tall(&(first..first + width), 0);
                add_lower_transpose_product(below, right, rank, &mut out[first..], p);
            },
        );
        (out, rows.products(right))
    }

    /// phi_i^T g for the functions `js` divided by their norms; `right` is F^T g.
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
    use super::*;
    use crate::data::DenseDesign;
    use crate::data::low_rank::{gaussian, points};
    use crate::{Kernel, KernelDesign};

    const EXACT_POLICY: LowRankPolicy = LowRankPolicy {
        tol: EXACT,
        max_features: 300,
    };

    #[test]
    fn rough_kernels_other_functions_and_tiny_columns_have_no_exact_features() {
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
            assert!(LowRankFeatures::of(&design(kernel, &rows), None, EXACT_POLICY).is_none());
        }
        let dense = DenseDesign::new(&rows, 700, 2).unwrap();
        assert!(LowRankFeatures::of(&dense, None, EXACT_POLICY).is_none());
        // Values of exp(-0.5 (6 - 1)^2) and less: the error of such a column is larger than rounding.
        let far: Vec<f64> = rows.iter().map(|v| v + 7.0).collect();
        let design = design(gaussian(0.5), &far);
        let factor = LowRankFeatures::of(&design, None, EXACT_POLICY).unwrap();
        let all = design.values().unwrap();
        let norms: Vec<f64> = all.chunks(700).map(|c| dot(c, c).sqrt()).collect();
        assert!(!factor.error_within(EXACT_COLUMN, &norms));
    }

    #[test]
    fn only_large_designs_of_smooth_kernels_have_coarse_features() {
        let rows = points(1400, 1.0);
        let design = |n: usize, gamma| {
            let rows = &rows[..2 * n];
            KernelDesign::new(rows, rows, 2, vec![gaussian(gamma)], true).unwrap()
        };
        let rank = |design: &KernelDesign| {
            let policy = LowRankPolicy::coarse(design)?;
            LowRankFeatures::of(design, None, policy).map(|factor| factor.rank())
        };
        assert!(rank(&design(1400, 20.0)).unwrap() > rank(&design(1400, 0.5)).unwrap());
        assert!(rank(&design(1400, 1e4)).is_none());
        assert!(LowRankPolicy::coarse(&design(700, 0.5)).is_none());
        assert!(LowRankPolicy::exact(&design(700, 0.5)).is_none());
        assert!(LowRankPolicy::exact(&design(1400, 0.5)).is_some());
    }
}
