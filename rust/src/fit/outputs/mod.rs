//! Several Gaussian outputs of one model: alphas and functions are shared, weights and noise are each output's own.
//!
//! `t_c = Phi w_c + noise of precision beta_c`, `w_jc ~ Normal(0, 1/alpha_j)` for every output c. The log evidence is the
//! sum of those of the outputs; with one noise level for all this is the multiple-measurement-vector model. Seen one alpha at
//! a time it is the function of [`shared`](crate::fit::shared_evidence); the rest is Tipping & Faul (2003), section 4, as for one
//! output, over the whole dictionary.

pub(crate) mod candidates;
pub(crate) mod evidence;
pub(crate) mod greedy;
pub(crate) mod model;
pub(crate) mod newton;
pub(crate) mod refine;

use crate::data::OutputStatistics;
use crate::fit::Status;
use crate::fit::outputs::model::OutputState;
use crate::fit::record::{Recorder, Stop, Watch};
use crate::fit::scale_checks;
use crate::fit::settings::{Noise, Rules, check_noise};
use crate::fit::tuning::Tuning;
use crate::model::OutputPosterior;
use crate::{Error, Result};

/// The noise levels of several outputs, each found as [`Noise`] says.
#[derive(Debug, Clone, PartialEq)]
pub enum OutputNoise {
    /// One level for all.
    Shared(Noise),
    /// One for each.
    Own(Vec<Noise>),
}

impl OutputNoise {
    /// One entry for each level of `n_outputs` outputs.
    fn levels(&self, n_outputs: usize) -> Result<&[Noise]> {
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

/// Fits several outputs that share their functions and prior precisions, from an empty model.
///
/// `noise` takes the place of that of the settings. `watch` sees each step and may end the fit; the noise precision it is shown
/// is the inverse of the mean noise variance.
///
/// # Errors
/// As [`fit`](crate::fit::fit()), and [`Error::Shape`] if there is not a noise level for each output.
pub fn fit_outputs(
    stats: &mut dyn OutputStatistics,
    rules: &Rules,
    noise: &OutputNoise,
    watch: &mut Watch<'_>,
) -> Result<OutputPosterior> {
    let levels = noise.levels(stats.n_outputs())?;
    let scale = stats.target_scale();
    scale_checks::check_scale(scale)?;
    levels
        .iter()
        .try_for_each(|&noise| scale_checks::check_noise(scale, noise))?;
    // The unit of the targets is the root of their mean variance.
    let spread: Vec<f64> = match noise {
        OutputNoise::Shared(_) => vec![1.0],
        OutputNoise::Own(_) => stats.variances().to_vec(),
    };
    let start = |(noise, spread): (&Noise, &f64)| match noise {
        Noise::Fixed(variance) => scale * scale / variance,
        Noise::Estimated => 1.0 / (Tuning::INITIAL_NOISE * spread),
    };
    let range = |(noise, spread): (&Noise, &f64)| match noise {
        Noise::Fixed(_) => None,
        Noise::Estimated => Some(1.0 / (Tuning::NOISE_FLOOR * spread)),
    };
    let betas: Vec<f64> = levels.iter().zip(&spread).map(start).collect();
    let starts = spread
        .iter()
        .map(|s| 1.0 / (Tuning::INITIAL_NOISE * s))
        .collect();
    let range = refine::Noise::new(levels.iter().zip(&spread).map(range).collect(), starts);
    let empty = nalgebra::DMatrix::zeros(0, stats.n_outputs());
    let squares = stats.active_residuals(&[], &empty)?.squares;
    let mut state = OutputState::empty(&betas, &squares, stats.n_obs());
    let mut recorder = Recorder::new(&state, rules.max_iter, scale, watch);
    let status = match greedy::maximise(stats, &mut state, rules, &range, &mut recorder) {
        Ok(Status::Converged) if state.at_alpha_floor() => Status::AlphaFloor,
        Ok(status) => status,
        Err(Stop::MaxIterations) => Status::MaxIterations,
        Err(Stop::Stopped) => Status::Stopped,
        Err(Stop::Failed(error)) => return Err(error),
    };
    let at_floor = (0..levels.len())
        .map(|l| range.at_floor(&state, l))
        .collect();
    OutputPosterior::publish(
        &state,
        recorder.trace,
        status,
        at_floor,
        (stats.norms(), scale),
    )
    .checked()
}
