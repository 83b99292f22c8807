//! Sums over rows of Newton functions, from which come bounds on those of any function of a family.
//!
//! By `newton.rs` phi_z = U u(z) + e with |e_n| <= P(x_n) P(z), U having the Newton functions at the rows. So
//! * phi_z^T g is u(z)^T U^T g but for at most P(z) sum_n P(x_n) |g_n|;
//! * |phi_z - U u(z)| in the norm of W is at most P(z) sqrt(sum_n w_n P(x_n)^2).
//!
//! The sums take N L^2 operations, once for fixed weights; each candidate then takes L^2 in place of N m.

use std::ops::Range;
use std::sync::Arc;

use crate::data::Statistics;
use crate::data::design::Family;
use crate::data::low_rank::pivoted_cholesky::{MOST, PivotedCholesky, sample};
use crate::data::observations::Observations;
use crate::data::row_blocks::ROW_BLOCK;
use crate::linalg::aligned_columns;
use crate::linalg::gemm::{TallMatrix, add_lower_transpose_product, add_transpose_product};
use crate::linalg::vector::{axpy, dot};
use crate::parallel::{map_pieces, pieces};
use crate::{Points, Result};

/// Rows, or candidates, whose Newton functions are held at a time by one thread.
const STRIP: usize = 256;
/// Places between columns: at a distance of a power of two all would share their places in the cache.
const GAP: usize = 8;
/// Rows, and centres, among which landmarks are chosen.
const SAMPLE: usize = 4096;
/// Pieces of rows whose sums are held at a time.
const PIECES: usize = 8;
/// Columns of the Gram matrix at a time.
const COLUMNS: usize = 64;

/// Newton functions of a family, and once they are known their products under weights that stay put.
#[derive(Debug, Default)]
pub(crate) struct Prepared {
    /// `None` where there are too many.
    newton: Option<Arc<PivotedCholesky>>,
    gram: Option<Arc<Vec<f64>>>,
}

/// Sums over rows of the Newton functions of one family, at a model.
#[derive(Debug)]
pub struct ScreeningBounds {
    /// The functions it speaks of.
    pub(crate) functions: Range<usize>,
    family: usize,
    newton: Arc<PivotedCholesky>,
    /// U^T W U, all of it.
    gram: Arc<Vec<f64>>,
    /// U^T W Phi_A and U^T g side by side.
    cross: Vec<f64>,
    /// sqrt(sum w P^2), and sum |g| P.
    rest: [f64; 2],
    /// sum |g|.
    size: f64,
}

/// What a screen shows of one candidate, in the units of its own column.
#[derive(Debug, Clone)]
pub struct BoundSample {
    /// phi^T W phi, but for the rest.
    pub diag: f64,
    /// phi^T g, but for `gradient_rest` at most.
    pub gradient: f64,
    /// phi^T W phi_j for each function in the model, but for the rest.
    pub products: Vec<f64>,
    /// At most the length, in the norm of W, of the part of phi that the rest leaves out.
    pub rest: f64,
    /// As it says.
    pub gradient_rest: f64,
}

/// What one piece of rows adds.
struct Part {
    gram: Vec<f64>,
    cross: Vec<f64>,
    /// sum w P^2, sum |g| P, sum |g|.
    sums: [f64; 3],
}

impl Observations<'_> {
    /// Screens for `n_candidates` candidates where they take less work than to look at these.
    pub(crate) fn screens_at(
        &mut self,
        active: &[usize],
        mu: &[f64],
        n_candidates: usize,
    ) -> Result<Vec<ScreeningBounds>> {
        let design = Arc::clone(&self.design);
        let families = design.families();
        if families.is_empty() {
            return Ok(Vec::new());
        }
        self.move_to(active, mu)?;
        let mut screens = Vec::new();
        for (index, family) in families.iter().enumerate() {
            if let Some(newton) = self.newton_of(index, family)
                && is_worth_it(
                    newton.len(),
                    family.points.n_points(),
                    active.len(),
                    n_candidates,
                )
            {
                screens.push(self.screen(index, family, newton, active)?);
            }
        }
        Ok(screens)
    }

    fn newton_of(&mut self, index: usize, family: &Family<'_>) -> Option<Arc<PivotedCholesky>> {
        /// What is left of Q is about N P^2 sqrt(beta), and Q about 1 where a candidate comes close to gaining.
        const LITTLE: f64 = 1e-4;
        if self.prepared.len() <= index {
            // No number of rows is beyond a float.
            #[allow(clippy::cast_precision_loss)]
            let tol = (LITTLE / family.points.n_points() as f64).clamp(1e-12, 1e-7);
            self.prepared.push(Prepared {
                newton: PivotedCholesky::choose(family, &sample(family, SAMPLE), tol, MOST)
                    .map(|(newton, _)| Arc::new(newton)),
                gram: None,
            });
        }
        self.prepared[index].newton.clone()
    }

    fn screen(
        &mut self,
        index: usize,
        family: &Family<'_>,
        newton: Arc<PivotedCholesky>,
        active: &[usize],
    ) -> Result<ScreeningBounds> {
        let (l, m) = (newton.len(), active.len());
        let known = self.prepared[index].gram.clone();
        let mut sum = Part::new(l, m, known.is_none());
        let n = family.points.n_points();
        for batch in pieces(n, PIECES * ROW_BLOCK) {
            self.check_cancel()?;
            let parts = map_pieces(batch.len(), ROW_BLOCK, |rows| {
                let rows = batch.start + rows.start..batch.start + rows.end;
                self.part(family, &newton, active, rows, known.is_none())
            });
            for part in parts {
                sum.add(&part?);
            }
        }
        let gram = known.unwrap_or_else(|| Arc::new(whole(sum.gram, l)));
        if self.is_linear() {
            self.prepared[index].gram = Some(gram.clone());
        }
        let [square, gradient, size] = sum.sums;
        Ok(ScreeningBounds {
            functions: family.first
                ..family.first + family.centres.len() / family.points.n_features(),
            family: index,
            newton,
            gram,
            cross: sum.cross,
            rest: [square.sqrt(), gradient],
            size,
        })
    }

    fn part(
        &self,
        family: &Family<'_>,
        newton: &PivotedCholesky,
        active: &[usize],
        rows: Range<usize>,
        with_gram: bool,
    ) -> Result<Part> {
        let l = newton.len();
        let columns = self.packed.columns(&*self.design, &self.norms, active);
        let mut part = Part::new(l, active.len(), with_gram);
        let mut u = Vec::new();
        for strip in pieces(rows.len(), STRIP) {
            self.check_cancel()?;
            let strip = rows.start + strip.start..rows.start + strip.end;
            let (height, stride) = (strip.len(), strip.len() + GAP);
            let power = newton.at(family.points, strip.clone(), stride, &mut u);
            let right = self.right(&columns, &strip);
            let (working, gradient) = (&self.working[strip.clone()], &self.residual[strip.clone()]);
            for ((p, w), g) in power.iter().zip(working).zip(gradient) {
                part.sums[0] += w * p * p;
                part.sums[1] += g.abs() * p;
                part.sums[2] += g.abs();
            }
            let tall = TallMatrix::new(&u, stride, l);
            let right = TallMatrix::new(&right, aligned_columns::stride(height), columns.len() + 1);
            add_transpose_product(tall, right, height, &mut part.cross, l);
            if with_gram {
                self.add_newton_gram(&u, stride, &strip, &mut part.gram, l);
            }
        }
        Ok(part)
    }

    /// Adds some rows to the lower triangle of U^T W U.
    fn add_newton_gram(
        &self,
        u: &[f64],
        stride: usize,
        rows: &Range<usize>,
        out: &mut [f64],
        l: usize,
    ) {
        for columns in pieces(l, COLUMNS) {
            let first = columns.start;
            let part = &u[first * stride..];
            let listed: Vec<&[f64]> = part
                .chunks(stride)
                .take(columns.len())
                .map(|column| &column[..rows.len()])
                .collect();
            let weighted = self.weighted(&listed, rows);
            let right = TallMatrix::new(
                &weighted,
                aligned_columns::stride(rows.len()),
                columns.len(),
            );
            let below = TallMatrix::new(part, stride, l - first);
            add_lower_transpose_product(below, right, rows.len(), &mut out[first * l + first..], l);
        }
    }

    /// What a screen shows of these functions, all of them its own.
    pub(crate) fn glances(
        &self,
        screen: &ScreeningBounds,
        functions: &[usize],
    ) -> Result<Vec<BoundSample>> {
        let families = self.design.families();
        let family = &families[screen.family];
        let parts = map_pieces(functions.len(), STRIP, |range| {
            self.check_cancel()?;
            Ok(screen.show(family, &functions[range]))
        });
        let parts: Result<Vec<_>> = parts.into_iter().collect();
        Ok(parts?.concat())
    }
}

impl Part {
    fn new(l: usize, m: usize, with_gram: bool) -> Self {
        Self {
            gram: vec![0.0; if with_gram { l * l } else { 0 }],
            cross: vec![0.0; l * (m + 1)],
            sums: [0.0; 3],
        }
    }

    fn add(&mut self, other: &Self) {
        axpy(1.0, &other.gram, &mut self.gram);
        axpy(1.0, &other.cross, &mut self.cross);
        axpy(1.0, &other.sums, &mut self.sums);
    }
}

impl ScreeningBounds {
    fn show(&self, family: &Family<'_>, functions: &[usize]) -> Vec<BoundSample> {
        /// Rounding of a sum of many products, relative to the sum of their sizes.
        const ROUNDING: f64 = 1e-13;
        let (d, l, n) = (
            family.points.n_features(),
            self.newton.len(),
            functions.len(),
        );
        let mut rows = Vec::with_capacity(n * d);
        for j in functions {
            let centre = j - family.first;
            rows.extend_from_slice(&family.centres[centre * d..(centre + 1) * d]);
        }
        let points = Points::from_rows(&rows, n, d);
        let mut u = Vec::new();
        let power = self.newton.at(&points, 0..n, n + GAP, &mut u);
        // Candidate after candidate, so that products are with runs of memory.
        let mut turned = vec![0.0; n * l];
        for (k, u) in u.chunks_exact(n + GAP).enumerate() {
            for (c, u) in u[..n].iter().enumerate() {
                turned[c * l + k] = *u;
            }
        }
        let tall = TallMatrix::new(&turned, l, n);
        let mut squares = vec![0.0; n * l];
        add_transpose_product(TallMatrix::new(&self.gram, l, l), tall, l, &mut squares, l);
        let width = self.cross.len() / l.max(1);
        let mut products = vec![0.0; n * width];
        add_transpose_product(
            TallMatrix::new(&self.cross, l, width),
            tall,
            l,
            &mut products,
            width,
        );
        let glance = |c: usize| {
            let own = &turned[c * l..(c + 1) * l];
            let products = &products[c * width..(c + 1) * width];
            let value = (dot(own, own)).sqrt() + power[c];
            BoundSample {
                diag: dot(own, &squares[c * l..(c + 1) * l]),
                gradient: products[width - 1],
                products: products[..width - 1].to_vec(),
                rest: power[c] * self.rest[0],
                gradient_rest: power[c] * self.rest[1] + ROUNDING * value * self.size,
            }
        };
        (0..n).map(glance).collect()
    }
}

/// Both triangles.
fn whole(mut lower: Vec<f64>, l: usize) -> Vec<f64> {
    for j in 0..l {
        for i in 0..j {
            lower[j * l + i] = lower[i * l + j];
        }
    }
    lower
}

/// Whether the sums and a look at each candidate through them take less than half the work of looking at all rows.
fn is_worth_it(l: usize, n: usize, m: usize, n_candidates: usize) -> bool {
    /// A kernel value costs as much as so many multiplications.
    const VALUE: f64 = 8.0;
    // No number of rows or candidates is beyond a float.
    #[allow(clippy::cast_precision_loss)]
    let [l, n, m, k] = [l, n, m, n_candidates].map(|v| v as f64);
    let screened = n * l * (l + m + VALUE) + k * l * (1.5 * l + m + VALUE);
    screened < 0.5 * n * k * (m + VALUE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::DictionaryPart;
    use crate::{Kernel, KernelDesign, Likelihood};

    const N: usize = 700;

    fn design(kernel: Kernel) -> KernelDesign {
        let rows: Vec<f64> = (0..2 * N).map(|i| 6.0 * (i as f64 * 1.37).sin()).collect();
        let centres: Vec<f64> = (0..2 * N).map(|i| 7.0 * (i as f64 * 0.73).cos()).collect();
        KernelDesign::new(&rows, &centres, 2, vec![kernel], true).unwrap()
    }

    fn observations(design: &KernelDesign, likelihood: Likelihood) -> Observations<'_> {
        let wave = |i: usize| (i as f64 * 0.9).sin();
        let target = (0..N).map(|i| match likelihood {
            Likelihood::Gaussian => wave(i),
            _ => f64::from(u8::from(wave(i) > 0.2)),
        });
        let weights = (0..N).map(|i| 1.0 + 0.5 * wave(3 * i)).collect();
        Observations::in_part(design, likelihood, target.collect(), Some(weights)).unwrap()
    }

    /// Each sum over rows lies within the bounds, and far landmarks make these narrow.
    #[test]
    fn sums_lie_within_their_bounds() {
        let kernels = [
            Kernel::Gaussian {
                inverse_square_widths: vec![0.02],
            },
            Kernel::Polynomial {
                degree: 3,
                gamma: 0.02,
                coef0: 1.0,
            },
        ];
        for kernel in kernels {
            for likelihood in [Likelihood::Gaussian, Likelihood::Bernoulli] {
                let design = design(kernel.clone());
                let mut stats = observations(&design, likelihood);
                let (active, mu) = ([5, 60, 300], [0.3, -2.0, 1.0]);
                stats.lengths_of(&active).unwrap();
                for _ in 0..2 {
                    check(&mut stats, &active, &mu);
                }
            }
        }
    }

    fn check(stats: &mut Observations<'_>, active: &[usize], mu: &[f64]) {
        let screens = stats.screens(active, mu, 1 << 20).unwrap();
        assert_eq!(screens[0].functions, 1..N + 1);
        let functions: Vec<usize> = (1..=N).collect();
        let glances = stats.glances(&screens[0], &functions).unwrap();
        let exact = stats.sweep_of(&functions, active, mu, active).unwrap();
        for (c, glance) in glances.iter().enumerate() {
            let norm = stats.norms[functions[c]];
            let length = exact.diag[c].sqrt() * norm;
            let slack = glance.rest + 1e-12 * length;
            assert!((length - glance.diag.sqrt()).abs() <= slack);
            assert!(glance.rest < 1e-3 * length);
            let gradient = exact.gradient[c] * norm;
            assert!((gradient - glance.gradient).abs() <= glance.gradient_rest);
            for (j, product) in glance.products.iter().enumerate() {
                // Columns of the model have unit length under the sample weights, which are no less than W.
                assert!((exact.gram[j][c] * norm - product).abs() <= slack);
            }
        }
    }

    #[test]
    fn rough_kernels_and_those_that_are_not_positive_definite_have_no_screen() {
        for kernel in [
            Kernel::Gaussian {
                inverse_square_widths: vec![1e4],
            },
            Kernel::Sigmoid {
                gamma: 0.1,
                coef0: 0.0,
            },
        ] {
            let design = design(kernel);
            let mut stats = observations(&design, Likelihood::Gaussian);
            assert!(stats.screens(&[], &[], 1 << 20).unwrap().is_empty());
        }
    }

    #[test]
    fn screens_are_for_many_candidates() {
        assert!(is_worth_it(600, 50_000, 50, 50_000));
        assert!(!is_worth_it(600, 50_000, 50, 100));
        assert!(!is_worth_it(1000, 1000, 50, 1000));
    }
}
