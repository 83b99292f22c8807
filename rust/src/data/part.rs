//! Statistics of a part of a dictionary that is too large for passes over all of it.

use std::ops::Range;
use std::sync::Arc;

use crate::Result;
use crate::data::column_cache::{
    ROW_BLOCK, add_squares, add_weighted_gram, lengths, over_blocks, unit_columns,
};
use crate::data::design::{Family, SubsetDesign};
use crate::data::low_rank::bounds::{
    BoundSample, FamilyBasis, GAP, STRIP, ScreeningBounds, is_worth_it,
};
use crate::data::low_rank::pivoted_cholesky::{MAX_LANDMARKS, PivotedCholesky, sample};
use crate::data::rows::Observations;
use crate::data::{Facts, GramAndGradient, Statistics, Sweep};
use crate::linalg::Matrix;
use crate::linalg::columns::stride;
use crate::linalg::gemm::{TallMatrix, add_transpose_product};
use crate::linalg::vector::{axpy, mirror, weighted_square};
use crate::parallel::{map_pieces, pieces};

/// The methods of [`Statistics`](crate::Statistics) that go over all K functions are not called beside these. The norm of a function is
/// computed when it is first asked for.
impl Observations<'_> {
    /// [`Statistics::sweep`](crate::Statistics::sweep) of these functions only; `active` and `wanted` need not be among them.
    pub(crate) fn sweep_of(
        &mut self,
        functions: &[usize],
        active: &[usize],
        mu: &[f64],
        wanted: &[usize],
    ) -> Result<Sweep> {
        let deviances = self.move_to(active, mu)?;
        let columns = self
            .columns
            .columns(&*self.design, &self.facts.norms, wanted);
        let design = SubsetDesign {
            design: &*self.design,
            columns: functions,
        };
        // Squares under W where W varies, then products with W times the wanted columns, then with the residuals.
        let varies = !self.facts.is_linear;
        let n_right = wanted.len() + 1;
        let n_products = n_right + usize::from(varies);
        let check = || self.facts.check_cancelled();
        let mut sums = over_blocks(&design, n_products, check, |block, squares, products| {
            let (rows, width) = (&block.rows, squares.len());
            add_squares(block, self.weights.as_deref(), squares);
            let (under_w, products) = products.split_at_mut((n_products - n_right) * width);
            for (c, square) in under_w.iter_mut().enumerate() {
                let column = block.values.column(c, rows.len());
                *square += weighted_square(column, &self.working[rows.clone()]);
            }
            let right = self.right(&columns, rows);
            let right = TallMatrix::new(&right, stride(rows.len()), n_right);
            block.add_products(right, products, width);
        })?;
        let mut norms = lengths(&sums.diag)?;
        if varies {
            sums.diag = sums.products.remove(0);
        }
        for (&j, norm) in functions.iter().zip(&mut norms) {
            let known = &mut self.facts.norms[j];
            if known.is_nan() {
                *known = *norm;
            }
            *norm = *known;
        }
        let fixed = !varies && !self.inexact_norms;
        Ok(unit_columns(sums, &norms, fixed, deviances))
    }

    /// The length of each of these columns.
    pub(crate) fn lengths_of(&mut self, functions: &[usize]) -> Result<Vec<f64>> {
        if functions.iter().any(|&j| self.facts.norms[j].is_nan()) {
            self.sweep_of(functions, &[], &[], &[])?;
        }
        Ok(functions.iter().map(|&j| self.facts.norms[j]).collect())
    }

    /// Bounds on the sums of some of the functions, where bounds for `n_candidates` candidates cost less than the sums; none where there
    /// are no such bounds.
    pub(crate) fn screening_bounds(
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
        let mut bounds = Vec::new();
        for (index, family) in families.iter().enumerate() {
            let n = family.points.n_points();
            if let Some(newton) = self.newton_basis(index, family)
                && is_worth_it(newton.len(), n, active.len(), n_candidates)
            {
                bounds.push(self.family_bounds(index, family, newton, active)?);
            }
        }
        Ok(bounds)
    }

    /// The bounds for these functions, all of which must belong to `bounds`.
    pub(crate) fn bound_samples(
        &self,
        bounds: &ScreeningBounds,
        functions: &[usize],
    ) -> Result<Vec<BoundSample>> {
        let families = self.design.families();
        let family = &families[bounds.family];
        let parts = map_pieces(functions.len(), STRIP, |range| {
            self.facts.check_cancelled()?;
            Ok(bounds.samples(family, &functions[range]))
        });
        let parts: Result<Vec<_>> = parts.into_iter().collect();
        Ok(parts?.concat())
    }
}

impl Observations<'_> {
    /// The Newton basis of a family, chosen at the first call; `None` if it needs too many landmarks.
    pub(crate) fn newton_basis(
        &mut self,
        index: usize,
        family: &Family<'_>,
    ) -> Option<Arc<PivotedCholesky>> {
        /// Error of Q, which is about N P^2 sqrt(beta); candidates that nearly gain have a Q of about 1.
        const Q_ERROR: f64 = 1e-4;
        /// Rows, and centres, among which landmarks are chosen.
        const SAMPLE: usize = 4096;
        if self.bases.len() <= index {
            let tol = (Q_ERROR / family.points.n_points() as f64).clamp(1e-12, 1e-7);
            let sample = sample(family, SAMPLE);
            let chosen = PivotedCholesky::choose(family, &sample, tol, MAX_LANDMARKS);
            self.bases.push(FamilyBasis {
                newton: chosen.map(Arc::new),
                gram: None,
            });
        }
        self.bases[index].newton.clone()
    }

    /// The bounds for one family at the latest `mu`.
    pub(crate) fn family_bounds(
        &mut self,
        index: usize,
        family: &Family<'_>,
        newton: Arc<PivotedCholesky>,
        active: &[usize],
    ) -> Result<ScreeningBounds> {
        /// Pieces of rows whose sums are held at a time.
        const PIECES: usize = 8;
        let l = newton.len();
        let known = self.bases[index].gram.clone();
        let mut sum = PieceSums::zeros(l, active.len(), known.is_none());
        for batch in pieces(family.points.n_points(), PIECES * ROW_BLOCK) {
            self.facts.check_cancelled()?;
            let parts = map_pieces(batch.len(), ROW_BLOCK, |rows| {
                let rows = batch.start + rows.start..batch.start + rows.end;
                self.piece_sums(family, &newton, active, rows, known.is_none())
            });
            for part in parts {
                let part = part?;
                axpy(1.0, &part.gram, &mut sum.gram);
                axpy(1.0, &part.cross, &mut sum.cross);
                axpy(1.0, &part.errors, &mut sum.errors);
            }
        }
        let gram = known.unwrap_or_else(|| {
            let mut gram = Matrix::from_vec(l, l, sum.gram);
            mirror(&mut gram);
            Arc::new(gram)
        });
        if self.facts.is_linear {
            self.bases[index].gram = Some(gram.clone());
        }
        let [square, gradient, size] = sum.errors;
        Ok(ScreeningBounds {
            functions: family.columns(),
            family: index,
            newton,
            gram,
            cross: sum.cross,
            errors: [square.sqrt(), gradient],
            size,
        })
    }

    fn piece_sums(
        &self,
        family: &Family<'_>,
        newton: &PivotedCholesky,
        active: &[usize],
        rows: Range<usize>,
        with_gram: bool,
    ) -> Result<PieceSums> {
        let l = newton.len();
        let columns = self
            .columns
            .columns(&*self.design, &self.facts.norms, active);
        let mut sums = PieceSums::zeros(l, active.len(), with_gram);
        let mut u = Vec::new();
        for strip in pieces(rows.len(), STRIP) {
            self.facts.check_cancelled()?;
            let strip = rows.start + strip.start..rows.start + strip.end;
            let (height, apart) = (strip.len(), strip.len() + GAP);
            let power = newton.at(family.points, strip.clone(), apart, &mut u);
            let right = self.right(&columns, &strip);
            let (working, gradient) = (&self.working[strip.clone()], &self.residual[strip.clone()]);
            for ((p, w), g) in power.iter().zip(working).zip(gradient) {
                sums.errors[0] += w * p * p;
                sums.errors[1] += g.abs() * p;
                sums.errors[2] += g.abs();
            }
            let tall = TallMatrix::new(&u, apart, l);
            let right = TallMatrix::new(&right, stride(height), columns.len() + 1);
            add_transpose_product(tall, right, height, &mut sums.cross, l);
            if with_gram {
                let cancel = self.facts.cancel.as_deref();
                add_weighted_gram(
                    &tall.columns(&(0..height)),
                    Some(working),
                    cancel,
                    &mut sums.gram,
                );
            }
        }
        Ok(sums)
    }
}

/// [`Statistics`] whose dictionary is a subset of the functions of a provider; indices are positions in the subset.
pub(crate) struct Subset<'a, 'd> {
    stats: &'a mut Observations<'d>,
    functions: Vec<usize>,
    facts: Facts,
}

impl<'a, 'd> Subset<'a, 'd> {
    /// Without the lengths of the functions: the norms are NaN.
    pub(crate) fn unmeasured(stats: &'a mut Observations<'d>, functions: Vec<usize>) -> Self {
        let facts = stats.facts().with_norms(vec![f64::NAN; functions.len()]);
        Self {
            stats,
            functions,
            facts,
        }
    }

    /// With the lengths of the functions.
    pub(crate) fn measured(stats: &'a mut Observations<'d>, functions: Vec<usize>) -> Result<Self> {
        let norms = stats.lengths_of(&functions)?;
        let facts = stats.facts().with_norms(norms);
        Ok(Self {
            stats,
            functions,
            facts,
        })
    }

    /// The functions at these positions.
    fn at(&self, positions: &[usize]) -> Vec<usize> {
        positions.iter().map(|&i| self.functions[i]).collect()
    }
}

impl Statistics for Subset<'_, '_> {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn deviance(&mut self, active: &[usize], mu: &[f64]) -> Result<f64> {
        self.stats.deviance(&self.at(active), mu)
    }

    fn local(&mut self, active: &[usize], mu: &[f64]) -> Result<(f64, GramAndGradient)> {
        self.stats.local(&self.at(active), mu)
    }

    fn gradient(&mut self, active: &[usize], mu: &[f64], gradient: &mut [f64]) -> Result<Vec<f64>> {
        self.stats.gradient(&self.at(active), mu, gradient)
    }

    fn variance_drift(&mut self, active: &[usize], mu: &[f64], sigma: &Matrix) -> Result<Matrix> {
        self.stats.variance_drift(&self.at(active), mu, sigma)
    }

    fn sweep(&mut self, active: &[usize], mu: &[f64], wanted: &[usize]) -> Result<Sweep> {
        let (active, wanted) = (self.at(active), self.at(wanted));
        self.stats.sweep_of(&self.functions, &active, mu, &wanted)
    }

    fn among(&mut self, active: &[usize], mu: &[f64], js: &[usize]) -> Result<GramAndGradient> {
        self.stats.among(&self.at(active), mu, &self.at(js))
    }
}

/// The sums of one piece of rows.
struct PieceSums {
    gram: Vec<f64>,
    cross: Vec<f64>,
    /// sum w P^2, sum |g| P, sum |g|.
    errors: [f64; 3],
}

impl PieceSums {
    fn zeros(l: usize, m: usize, with_gram: bool) -> Self {
        Self {
            gram: vec![0.0; if with_gram { l * l } else { 0 }],
            cross: vec![0.0; l * (m + 1)],
            errors: [0.0; 3],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::low_rank::gaussian;
    use crate::data::tests::{all_sums, assert_near};
    use crate::{DenseDesign, Kernel, KernelDesign, Likelihood};

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

    #[test]
    fn sums_lie_within_their_bounds() {
        let kernels = [
            gaussian(0.02),
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
        let bounds = stats.screening_bounds(active, mu, 1 << 20).unwrap();
        assert_eq!(bounds[0].functions, 1..N + 1);
        let functions: Vec<usize> = (1..=N).collect();
        let samples = stats.bound_samples(&bounds[0], &functions).unwrap();
        let exact = stats.sweep_of(&functions, active, mu, active).unwrap();
        for (c, sample) in samples.iter().enumerate() {
            let norm = stats.facts.norms[functions[c]];
            let length = exact.diag[c].sqrt() * norm;
            let slack = sample.rest + 1e-12 * length;
            assert!((length - sample.diag.sqrt()).abs() <= slack);
            assert!(sample.rest < 1e-3 * length);
            let gradient = exact.gradient[c] * norm;
            assert!((gradient - sample.gradient).abs() <= sample.gradient_rest);
            for (j, product) in sample.products.iter().enumerate() {
                // Active columns have unit length under the sample weights, which are at least W.
                assert!((exact.gram[j][c] * norm - product).abs() <= slack);
            }
        }
    }

    #[test]
    fn rough_and_indefinite_kernels_have_no_bounds() {
        for kernel in [
            gaussian(1e4),
            Kernel::Sigmoid {
                gamma: 0.1,
                coef0: 0.0,
            },
        ] {
            let design = design(kernel);
            let mut stats = observations(&design, Likelihood::Gaussian);
            let bounds = stats.screening_bounds(&[], &[], 1 << 20).unwrap();
            assert!(bounds.is_empty());
        }
    }

    #[test]
    fn a_subset_has_the_sums_of_a_design_of_its_columns() {
        let values: Vec<f64> = (0..90).map(|i| (f64::from(i) * 1.3).sin() + 0.1).collect();
        // Not in order, and some adjacent.
        let functions = vec![7, 2, 3, 4, 9];
        let own = functions.iter().flat_map(|j| &values[9 * j..9 * j + 9]);
        let own = DenseDesign::new(own.copied().collect::<Vec<_>>(), 9, 5).unwrap();
        let design = DenseDesign::new(values, 9, 10).unwrap();
        let target: Vec<f64> = (0..9).map(|i| f64::from(i % 2)).collect();
        let weights = Some((1..10).map(f64::from).collect());
        for likelihood in [Likelihood::Gaussian, Likelihood::Bernoulli] {
            let (target, weights) = (|| target.clone(), || weights.clone());
            let mut whole = Observations::new(&own, likelihood, target(), weights()).unwrap();
            let mut part = Observations::in_part(&design, likelihood, target(), weights()).unwrap();
            let mut subset = Subset::measured(&mut part, functions.clone()).unwrap();
            assert_near(&subset.facts.norms, &whole.facts.norms, 1e-13);
            let sums = |stats: &mut dyn Statistics| all_sums(stats, &[2, 0], &[0.3, -0.2], &[0, 1]);
            assert_near(&sums(&mut subset), &sums(&mut whole), 1e-13);
        }
    }
}
