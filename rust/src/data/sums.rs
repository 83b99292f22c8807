//! [`Statistics`] from sufficient statistics, without the rows.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nalgebra::DMatrix;

use crate::data::column_cache::{lengths, over_norm, unit_square};
use crate::data::sufficient_statistics::{SufficientStatistics, Targets};
use crate::data::targets::deviation_or_size;
use crate::data::{Facts, Statistics, Sweep};
use crate::linalg::LowerTriangle;
use crate::linalg::double_double::DoubleDouble;
use crate::parallel::map_pieces;
use crate::{Error, Result};

/// [`Statistics`] of the rows of a [`SufficientStatistics`], with a Gaussian likelihood.
///
/// Products with residuals are differences of sums, computed in double-double arithmetic: this is why the sums have more than 53 bits.
/// Products of centred columns are `phi_i^T W phi_j - s_i s_j / S`, with s_i the sum of column i and S the sum of the weights: an offset
/// of 10^6 standard deviations costs 12 of the 22 digits.
pub struct SumStatistics<'a> {
    sums: &'a SufficientStatistics,
    /// The column of the first function: 0 with a constant function, else 1.
    first: usize,
    /// Columns of the sums that are centred.
    centred: Range<usize>,
    /// Sum of the weights.
    weight: DoubleDouble,
    facts: Facts,
    /// The latest mu, as weights in the units of the columns and targets given.
    weights: Vec<(usize, DoubleDouble)>,
}

impl<'a> SumStatistics<'a> {
    /// With `bias`, a constant function precedes the others, and the last `n_centred` of these are centred by their weighted mean.
    ///
    /// # Errors
    /// [`Error::Invalid`] if no row has positive weight, or for targets too small to square.
    pub fn new(sums: &'a SufficientStatistics, bias: bool, n_centred: usize) -> Result<Self> {
        let (first, end) = (usize::from(!bias), sums.n_basis() + 1);
        let n_centred = if bias { n_centred.min(end - 1) } else { 0 };
        let mut this = Self {
            sums,
            first,
            centred: end - n_centred..end,
            weight: sums.gram.at(0, 0),
            facts: Facts {
                n_obs: sums.weight(),
                n_predictors: 1,
                is_linear: true,
                norms: Vec::new(),
                target_scale: target_scale(&sums.targets)?,
                cancel: None,
            },
            weights: Vec::new(),
        };
        let squares: Vec<f64> = (0..end - first).map(|i| this.square(i)).collect();
        this.facts.norms = lengths(&squares)?;
        Ok(this)
    }

    /// The squared length of function `i`; 0 where only rounding is left of a constant column after centring.
    fn square(&self, i: usize) -> f64 {
        /// Rounding error of the sums, relative to the squared length before centring.
        const ROUNDING: f64 = 1e-20;
        let (at, square) = (self.first + i, self.gram(i, i).value());
        if self.centred.contains(&at) && square <= ROUNDING * self.sums.gram.at(at, at).value() {
            return 0.0;
        }
        square
    }

    /// The weighted mean of each centred column.
    #[must_use]
    pub fn means(&self) -> Vec<f64> {
        let mean = |i| self.sums.gram.at(0, i).over(self.weight).value();
        self.centred.clone().map(mean).collect()
    }

    /// Makes every later call return [`Error::Interrupted`] once `flag` is raised.
    #[must_use]
    pub fn cancelled_by(mut self, flag: Arc<AtomicBool>) -> Self {
        self.facts.cancel = Some(flag);
        self
    }

    fn move_to(&mut self, active: &[usize], mu: &[f64]) -> Result<()> {
        self.facts.check_cancelled()?;
        let weight = |(&j, &mu): (&usize, &f64)| {
            let weight =
                DoubleDouble::product(mu, self.facts.target_scale).over(self.facts.norms[j].into());
            (j, weight)
        };
        self.weights = active.iter().zip(mu).map(weight).collect();
        Ok(())
    }

    fn gram(&self, i: usize, j: usize) -> DoubleDouble {
        self.product(self.first + i, self.first + j)
    }

    /// phi_i^T W t, in the units given.
    fn projection(&self, i: usize) -> DoubleDouble {
        self.product(self.first + i, self.sums.gram.size() - 1)
    }

    /// The product of two columns of the sums, minus the product of their means if either is centred.
    fn product(&self, i: usize, j: usize) -> DoubleDouble {
        let (gram, product) = (&self.sums.gram, self.sums.gram.at(i, j));
        if self.centred.contains(&i) || self.centred.contains(&j) {
            product.minus(gram.at(0, i).over(self.weight).times(gram.at(0, j)))
        } else {
            product
        }
    }

    /// phi_i^T W (t - Phi w) at the latest weights, in the units given.
    fn residual(&self, i: usize) -> DoubleDouble {
        let terms = self.weights.iter();
        terms.fold(self.projection(i), |sum, &(j, w)| {
            sum.minus(self.gram(i, j).times(w))
        })
    }

    /// [`SumStatistics::residual`] for a unit-norm column and scaled targets.
    fn unit_residual(&self, i: usize) -> f64 {
        over_norm(self.residual(i).value(), self.facts.norms[i]) / self.facts.target_scale
    }

    /// phi_i^T W phi_j of unit-norm columns.
    fn unit_gram(&self, i: usize, j: usize) -> f64 {
        over_norm(
            self.gram(i, j).value(),
            self.facts.norms[i] * self.facts.norms[j],
        )
    }

    /// ||t - Phi w||^2 = t^T t - w^T (b + r), with b = Phi^T t and r = Phi^T (t - Phi w).
    fn current_deviance(&self) -> f64 {
        let targets = self.sums.gram.size() - 1;
        let square = self.sums.gram.at(targets, targets);
        let terms = self.weights.iter();
        let left = terms.fold(square, |sum, &(j, w)| {
            sum.minus(w.times(self.projection(j).plus(self.residual(j))))
        });
        // Rounding can make a tiny sum of squares negative.
        (left.value() / self.facts.target_scale / self.facts.target_scale).max(0.0)
    }
}

impl Statistics for SumStatistics<'_> {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn deviance(&mut self, active: &[usize], mu: &[f64]) -> Result<f64> {
        self.move_to(active, mu)?;
        Ok(self.current_deviance())
    }

    fn gradient(&mut self, active: &[usize], mu: &[f64], gradient: &mut [f64]) -> Result<Vec<f64>> {
        self.move_to(active, mu)?;
        for (g, &i) in gradient.iter_mut().zip(active) {
            *g = self.unit_residual(i);
        }
        Ok(vec![self.current_deviance()])
    }

    fn sweep(&mut self, active: &[usize], mu: &[f64], wanted: &[usize]) -> Result<Sweep> {
        /// Functions that one thread handles.
        const PIECE: usize = 32;
        self.move_to(active, mu)?;
        let k = self.facts.n_basis();
        let column = |&j: &usize| (0..k).map(|i| self.unit_gram(i, j)).collect();
        let pieces = map_pieces(k, PIECE, |piece| -> Result<Vec<f64>> {
            self.facts.check_cancelled()?;
            Ok(piece.map(|i| self.unit_residual(i)).collect())
        });
        let gradient: Vec<Vec<f64>> = pieces.into_iter().collect::<Result<_>>()?;
        Ok(Sweep {
            diag: self
                .facts
                .norms
                .iter()
                .map(|&norm| unit_square(norm))
                .collect(),
            gradient: gradient.concat(),
            gram: wanted.iter().map(column).collect(),
            deviances: vec![self.current_deviance()],
        })
    }

    fn among(
        &mut self,
        active: &[usize],
        mu: &[f64],
        js: &[usize],
    ) -> Result<(LowerTriangle, Vec<f64>)> {
        self.move_to(active, mu)?;
        let gram = DMatrix::from_fn(js.len(), js.len(), |a, b| self.unit_gram(js[a], js[b]));
        Ok((
            LowerTriangle::of(&gram),
            js.iter().map(|&j| self.unit_residual(j)).collect(),
        ))
    }
}

/// The unit of the targets: their standard deviation; for constant targets their size; for zeros 1.
fn target_scale(targets: &Targets) -> Result<f64> {
    /// The square of anything smaller underflows.
    const MIN_SIZE: f64 = 1e-140;
    let weight = targets.weight.value();
    if weight <= 0.0 {
        let what = "the statistics hold no row of positive weight; update them first";
        return Err(Error::Invalid { what: what.into() });
    }
    if targets.size == 0.0 {
        return Ok(1.0);
    }
    if targets.size < MIN_SIZE {
        let what = format!("y holds nothing beyond {MIN_SIZE:e}, too small to square; rescale y");
        return Err(Error::Invalid { what });
    }
    let mean = targets.sum.over(targets.weight);
    let variance = targets.square.minus(mean.times(targets.sum)).value() / weight;
    Ok(deviation_or_size(variance, targets.size))
}
