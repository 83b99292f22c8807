//! The noise levels of several outputs.

use crate::fit::newton::NoiseRange;
use crate::fit::outputs::model::OutputState;
use crate::fit::settings::{Noise, check_noise};
use crate::fit::tuning::Tuning;
use crate::{Error, Result};

/// The noise levels of several outputs.
#[derive(Debug, Clone, PartialEq)]
pub enum OutputNoise {
    /// One level for all outputs.
    Shared(Noise),
    /// One level for each output.
    Own(Vec<Noise>),
}

impl OutputNoise {
    /// The checked levels of `n_outputs` outputs.
    pub(super) fn levels(&self, n_outputs: usize) -> Result<&[Noise]> {
        let levels = match self {
            Self::Shared(noise) => std::slice::from_ref(noise),
            Self::Own(levels) => {
                Error::check_len("noise_variance", n_outputs, levels.len())?;
                levels
            }
        };
        levels.iter().try_for_each(|&noise| check_noise(noise))?;
        Ok(levels)
    }
}

/// Initial precisions and upper bounds of the noise levels.
#[derive(Debug, Clone)]
pub(crate) struct NoiseLevels {
    /// For each level the largest precision, given by the noise floor; `None` if the level is fixed.
    maxima: Vec<Option<f64>>,
    /// For each level the initial precision of an estimated level.
    starts: Vec<f64>,
}

impl NoiseLevels {
    /// The levels of targets with these variances, in units of the mean variance.
    pub(super) fn new(levels: &[Noise], variances: &[f64]) -> Self {
        let maximum = |(noise, variance): (&Noise, &f64)| match noise {
            Noise::Fixed(_) => None,
            Noise::Estimated => Some(1.0 / (Tuning::NOISE_FLOOR * variance)),
        };
        let start = |variance: &f64| 1.0 / (Tuning::INITIAL_NOISE * variance);
        Self {
            maxima: levels.iter().zip(variances).map(maximum).collect(),
            starts: variances.iter().map(start).collect(),
        }
    }

    /// A single fixed level for all outputs.
    pub(crate) fn fixed(beta: f64) -> Self {
        Self {
            maxima: vec![None],
            starts: vec![beta],
        }
    }

    /// These levels, all fixed.
    pub(super) fn all_fixed(&self) -> Self {
        Self {
            maxima: vec![None; self.maxima.len()],
            starts: self.starts.clone(),
        }
    }

    /// For each level the fixed precision, or the initial one.
    pub(super) fn initial(&self, levels: &[Noise], scale: f64) -> Vec<f64> {
        let initial = |(noise, &start): (&Noise, &f64)| match noise {
            Noise::Fixed(variance) => scale * scale / variance,
            Noise::Estimated => start,
        };
        levels.iter().zip(&self.starts).map(initial).collect()
    }

    /// Precisions that rise by factors of `1 / INITIAL_NOISE` from the initial ones to `betas`, which are the last stage. There is only that
    /// stage if none of them is above its initial one.
    pub(super) fn stages(&self, betas: &[f64]) -> Vec<Vec<f64>> {
        let ratios = betas.iter().zip(&self.starts).map(|(b, s)| b / s);
        let largest = ratios.fold(1.0, f64::max);
        let mut stages: Vec<Vec<f64>> =
            std::iter::successors(Some(1.0), |ratio| Some(ratio / Tuning::INITIAL_NOISE))
                .take_while(|&ratio| ratio < largest)
                .map(|ratio| {
                    let pairs = betas.iter().zip(&self.starts);
                    pairs.map(|(&b, s)| b.min(ratio * s)).collect()
                })
                .collect();
        stages.push(betas.to_vec());
        stages
    }

    /// The largest precision of level `l`.
    fn beta_max(&self, l: usize) -> f64 {
        self.maxima[l].unwrap_or(f64::INFINITY)
    }

    /// A precision of level `l`, limited to its range.
    pub(super) fn snapped(&self, l: usize, beta: f64) -> f64 {
        let beta_max = self.beta_max(l);
        NoiseRange { beta_max }.snapped(beta)
    }

    /// Whether any level is estimated.
    pub(super) fn is_estimated(&self) -> bool {
        self.maxima.iter().any(Option::is_some)
    }

    /// Whether level `l` is estimated and not held at its floor.
    pub(super) fn is_free(&self, state: &OutputState, l: usize) -> bool {
        let held = self.at_floor(state, l) && state.noise_gradient(l) >= 0.0;
        self.maxima[l].is_some() && !held
    }

    /// Whether level `l` is estimated and at its floor.
    pub(super) fn at_floor(&self, state: &OutputState, l: usize) -> bool {
        self.maxima[l].is_some_and(|beta_max| state.levels[l].beta >= beta_max)
    }

    /// ln of the factor by which re-estimation (Tipping & Faul 2003, section 4, step 9) multiplies the precision of level `l`:
    /// (N - sum gamma) / ||t - Phi mu||^2, summed over its outputs, within its range.
    pub(super) fn change(&self, state: &OutputState, l: usize) -> f64 {
        if !self.is_free(state, l) {
            return 0.0;
        }
        let determined = state.outputs_of(l).len() as f64 * state.determined(l);
        let degrees = (state.n_targets(l) - determined).max(f64::MIN_POSITIVE);
        let residual = state.level_deviance(l).max(0.0);
        // A residual of zero gives the floor, not infinity.
        let beta_max = self.beta_max(l);
        let beta = if residual * beta_max <= degrees {
            beta_max
        } else {
            degrees / residual
        };
        (beta / state.levels[l].beta).ln()
    }
}
