//! The noise levels of a model: their ranges, their re-estimation, and stages towards little noise.

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

/// A noise precision in the units of the fit, with its range.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct NoisePrecision {
    pub(crate) beta: f64,
    /// The precision from which an estimate starts.
    start: f64,
    /// Largest estimate, the noise floor; `None` if the precision is given.
    max: Option<f64>,
}

impl NoisePrecision {
    /// The precision of targets of this variance; `scale` is the unit of the targets.
    pub(crate) fn new(noise: Noise, variance: f64, scale: f64) -> Self {
        let start = 1.0 / (Tuning::INITIAL_NOISE * variance);
        match noise {
            Noise::Fixed(given) => Self {
                beta: scale * scale / given,
                start,
                max: None,
            },
            Noise::Estimated => Self {
                beta: start,
                start,
                max: Some(1.0 / (Tuning::NOISE_FLOOR * variance)),
            },
        }
    }

    /// A given precision.
    pub(crate) fn fixed(beta: f64) -> Self {
        Self {
            beta,
            start: beta,
            max: None,
        }
    }

    pub(crate) fn is_estimated(self) -> bool {
        self.max.is_some()
    }

    /// Whether the precision is estimated and at the noise floor.
    pub(crate) fn at_floor(self) -> bool {
        self.max.is_some_and(|max| self.beta >= max)
    }

    /// `beta` limited to the range. A value below the end only by round-off becomes the end, so that it counts as at the floor.
    pub(crate) fn limited(self, beta: f64) -> f64 {
        match self.max {
            Some(max) if beta > (1.0 - Tuning::ROUNDING) * max => max,
            _ => beta,
        }
    }

    /// The estimate `next` limited to the range; the present precision if it is given.
    pub(crate) fn moved(self, next: impl FnOnce() -> f64) -> f64 {
        self.max.map_or(self.beta, |max| next().min(max))
    }

    /// A fraction of a sum of squares as precision; the noise floor where that is zero.
    pub(crate) fn ratio(self, degrees: f64, residual: f64) -> f64 {
        match self.max {
            Some(max) if residual * max <= degrees => max,
            _ => degrees / residual,
        }
    }

    /// Precisions of a restart, in order. Estimated ones are held at their starts. Given ones rise from those to their values in stages,
    /// whose noise variances are powers of [`Tuning::INITIAL_NOISE`]: with little noise from the start, the first function added would
    /// have to explain all of the data.
    pub(crate) fn stages(levels: &[Self]) -> Vec<Vec<f64>> {
        let end = |noise: Self| {
            if noise.is_estimated() {
                noise.start
            } else {
                noise.beta
            }
        };
        let ratios = levels.iter().map(|&noise| end(noise) / noise.start);
        let largest = ratios.fold(1.0, f64::max);
        let stage = |ratio: f64| {
            let limited = |&noise: &Self| end(noise).min(ratio * noise.start);
            levels.iter().map(limited).collect()
        };
        let ratios = std::iter::successors(Some(1.0), |ratio| Some(ratio / Tuning::INITIAL_NOISE));
        let rising = ratios.take_while(|&ratio| ratio < largest);
        rising.chain([f64::INFINITY]).map(stage).collect()
    }
}
