//! Gamma priors over the precisions: Tipping (2001), section 2.
//!
//! The objective is the density over ln alpha, to which a Gamma prior of shape a and rate b contributes
//! `a ln alpha - b alpha` (appendix A of the paper). It is taken relative to its peak at alpha = a / b, so that an active
//! function never gains by its prior, whatever the units; a = b = 0 is the flat limit.

use std::sync::Arc;

/// The prior of one precision, in units of unit-norm columns and targets of unit variance.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Gamma {
    pub(crate) shape: f64,
    pub(crate) rate: f64,
}

impl Gamma {
    /// Uniform in the logarithm.
    pub(crate) const FLAT: Self = Self {
        shape: 0.0,
        rate: 0.0,
    };

    pub(crate) fn is_flat(self) -> bool {
        self == Self::FLAT
    }

    /// ln density of ln alpha relative to its peak; never positive.
    pub(crate) fn log_density(self, alpha: f64) -> f64 {
        let Self { shape, rate } = self;
        if shape > 0.0 {
            shape * ((alpha * rate / shape).ln() + 1.0) - rate * alpha
        } else {
            -rate * alpha
        }
    }

    /// Derivative of the log density in ln alpha; the second derivative is `-rate alpha`.
    pub(crate) fn slope(self, alpha: f64) -> f64 {
        self.shape - self.rate * alpha
    }
}

/// The priors of all functions of a dictionary or working set: a common shape, and rates in the units of each column.
#[derive(Debug, Clone, Default)]
pub(crate) struct Priors {
    shape: f64,
    /// Empty if all priors are flat.
    rates: Arc<[f64]>,
}

impl Priors {
    /// `[shape, rate]` is in the units of the caller; `target_scale / norm` is the unit of a weight.
    pub(crate) fn new([shape, rate]: [f64; 2], norms: &[f64], target_scale: f64) -> Self {
        if shape == 0.0 && rate == 0.0 {
            return Self::default();
        }
        let in_units = |norm: &f64| rate * (norm / target_scale).powi(2);
        Self {
            shape,
            rates: norms.iter().map(in_units).collect(),
        }
    }

    pub(crate) fn are_flat(&self) -> bool {
        self.rates.is_empty()
    }

    /// The prior of function `i`.
    pub(crate) fn of(&self, i: usize) -> Gamma {
        self.rates.get(i).map_or(Gamma::FLAT, |&rate| Gamma {
            shape: self.shape,
            rate,
        })
    }

    /// The priors of `members`, indexed by position.
    pub(crate) fn among(&self, members: &[usize]) -> Self {
        let rates = members.iter().filter_map(|&i| self.rates.get(i).copied());
        Self {
            shape: self.shape,
            rates: rates.collect(),
        }
    }
}
