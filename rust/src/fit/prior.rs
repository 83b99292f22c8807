//! Gamma priors over the precisions: Tipping (2001), section 2.
//!
//! What is maximised is the density over ln alpha, to which a Gamma of shape a and rate b contributes
//! `a ln alpha - b alpha` (the paper's appendix A). It is taken relative to its peak, at alpha = a / b: a function that
//! the data do not support then loses by staying, whatever the units, and a = b = 0 is the limit in which none does.

use std::sync::Arc;

/// The prior of one precision, in units of unit-norm columns and unit-spread targets.
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

    /// ln density of ln alpha, less that at its peak; never positive.
    pub(crate) fn log_density(self, alpha: f64) -> f64 {
        let Self { shape, rate } = self;
        if shape > 0.0 {
            shape * ((alpha * rate / shape).ln() + 1.0) - rate * alpha
        } else {
            -rate * alpha
        }
    }

    /// Its derivative in ln alpha; the second derivative is `-rate alpha`.
    pub(crate) fn slope(self, alpha: f64) -> f64 {
        self.shape - self.rate * alpha
    }
}

/// The priors of all functions of a dictionary or a pool: one shape, and rates that go with the length of the columns.
#[derive(Debug, Clone, Default)]
pub(crate) struct Priors {
    shape: f64,
    /// Empty where all are flat.
    rates: Arc<[f64]>,
}

impl Priors {
    /// From the shape and rate of the precisions in the caller's units; `target_scale / norm` is the unit of a weight.
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

    /// That of function `i`.
    pub(crate) fn of(&self, i: usize) -> Gamma {
        self.rates.get(i).map_or(Gamma::FLAT, |&rate| Gamma {
            shape: self.shape,
            rate,
        })
    }

    /// Those of these functions alone, by their place among them.
    pub(crate) fn among(&self, members: &[usize]) -> Self {
        let rates = members.iter().filter_map(|&i| self.rates.get(i).copied());
        Self {
            shape: self.shape,
            rates: rates.collect(),
        }
    }
}
