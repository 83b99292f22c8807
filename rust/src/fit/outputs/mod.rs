//! Several Gaussian outputs of one model, which share functions and alphas; each output has its own weights and noise.
//!
//! `t_c = Phi w_c + noise of precision beta_c`, `w_jc ~ Normal(0, 1/alpha_j)` for every output c. The log evidence is the
//! sum over the outputs; with one noise level for all this is the multiple-measurement-vector model. As a function of one alpha
//! it is treated in [`shared_evidence`](crate::fit::shared_evidence); the algorithm is that of Tipping & Faul (2003), section 4,
//! over the whole dictionary.

pub(crate) mod candidates;
mod evidence;
mod greedy;
pub(crate) mod model;
mod newton;
pub(crate) mod noise;
pub(crate) mod refine;

pub use noise::OutputNoise;

use crate::Result;
use crate::data::OutputObservations;
use crate::fit::Status;
use crate::fit::outputs::model::OutputState;
use crate::fit::outputs::noise::NoiseLevels;
use crate::fit::record::{Recorder, StepCallback, Stop};
use crate::fit::settings::{Rules, check_noise_scale, check_scale};
use crate::model::OutputPosterior;

/// Fits several outputs that share their functions and prior precisions, from an empty model.
///
/// `noise` replaces the noise of the settings. `watch` sees each step and may end the fit; the noise precision in a step is the
/// inverse of the mean noise variance.
///
/// # Errors
/// As [`fit`](crate::fit::fit()), and [`Error::Shape`](crate::Error::Shape) if there is not one noise level for each output.
pub fn fit_outputs(
    stats: &mut OutputObservations<'_>,
    rules: &Rules,
    noise: &OutputNoise,
    watch: &mut StepCallback<'_>,
) -> Result<OutputPosterior> {
    let given = noise.levels(stats.n_outputs())?;
    let scale = stats.facts().target_scale;
    check_scale(scale)?;
    given
        .iter()
        .try_for_each(|&noise| check_noise_scale(scale, noise))?;
    // The unit of the targets is the root of their mean variance.
    let levels = match noise {
        OutputNoise::Shared(_) => NoiseLevels::new(given, &[1.0]),
        OutputNoise::Own(_) => NoiseLevels::new(given, stats.variances()),
    };
    let empty = nalgebra::DMatrix::zeros(0, stats.n_outputs());
    let squares = stats.active_residuals(&[], &empty)?.squares;
    let mut state =
        OutputState::empty(&levels.initial(given, scale), &squares, stats.facts().n_obs);
    let mut recorder = Recorder::new(&state, rules.max_iter, scale, watch);
    let status = match greedy::fit(stats, &mut state, rules, &levels, &mut recorder) {
        Ok(Status::Converged) if state.at_alpha_floor() => Status::AlphaFloor,
        Ok(status) => status,
        Err(Stop::MaxIterations) => Status::MaxIterations,
        Err(Stop::Stopped) => Status::Stopped,
        Err(Stop::Failed(error)) => return Err(error),
    };
    let at_floor = (0..given.len())
        .map(|l| levels.at_floor(&state, l))
        .collect();
    let units = (stats.facts().norms.as_slice(), scale);
    OutputPosterior::publish(&state, recorder.trace, status, at_floor, units).checked()
}
