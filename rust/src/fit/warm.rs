//! Fits that set out from a model of the caller's: one of which the functions have moved, say.

use super::action::ALPHA_FLOOR;
use super::dictionary::Dictionary;
use super::fixed_point::fill;
use super::joint::NoiseRange;
use super::prior::Priors;
use super::record::{Halt, Recorder};
use super::sequential::{self, Start};
use super::settings::{Noise, Rules, Scheme};
use super::state::State;
use super::{Status, laplace};
use crate::stats::Statistics;
use crate::{Error, Result};

/// A model to set out from, in the units of the caller.
#[derive(Debug, Clone, PartialEq)]
pub struct Warm {
    /// Functions in the model, none of them twice.
    pub functions: Vec<usize>,
    /// The precision of each.
    pub alpha: Vec<f64>,
    /// Precision of the noise, where it is estimated.
    pub beta: f64,
}

impl Warm {
    /// Whether a fit by these rules can set out from this.
    pub(super) fn check(&self, stats: &dyn Statistics, rules: &Rules) -> Result<()> {
        let invalid = |what: &str| Err(Error::Invalid { what: what.into() });
        if rules.scheme != Scheme::Sequential || stats.n_predictors() > 1 {
            return invalid("start needs the sequential scheme, and one linear predictor");
        }
        if self.functions.len() != self.alpha.len() {
            return invalid("start must have a precision for each of its functions");
        }
        let mut sorted = self.functions.clone();
        sorted.sort_unstable();
        let twice = sorted.windows(2).any(|pair| pair[0] == pair[1]);
        if twice || sorted.last().is_some_and(|&j| j >= stats.n_basis()) {
            return invalid("start must name functions of the dictionary, each once");
        }
        let numbers = self.alpha.iter().chain(std::iter::once(&self.beta));
        if numbers.copied().any(|v| !(v.is_finite() && v > 0.0)) {
            return invalid("start must have positive finite precisions");
        }
        Ok(())
    }

    /// The model of a state, its functions having these lengths.
    pub(super) fn of(state: &State, norms: &[f64], scale: f64) -> Self {
        let unit = |(&j, alpha): (&usize, &f64)| alpha * (norms[j] / scale).powi(2);
        Self {
            functions: state.active.clone(),
            alpha: state.active.iter().zip(&state.alpha).map(unit).collect(),
            beta: state.beta / (scale * scale),
        }
    }

    /// Puts the model into an empty state; functions that vanish on all rows stay out.
    pub(super) fn enter(
        &self,
        stats: &mut dyn Statistics,
        state: &mut State,
        priors: &Priors,
        (rules, range): (&Rules, NoiseRange),
    ) -> Result<()> {
        let (scale, norms) = (stats.target_scale(), stats.norms());
        let pairs = self.functions.iter().zip(&self.alpha);
        let (functions, alpha): (Vec<usize>, Vec<f64>) = pairs
            .filter(|&(&j, _)| norms[j] > 0.0)
            .map(|(&j, alpha)| {
                let unit = scale / norms[j];
                (j, (alpha * unit * unit).clamp(ALPHA_FLOOR, f64::MAX))
            })
            .unzip();
        if stats.is_linear() && rules.noise == Noise::Estimated {
            state.beta = (self.beta * scale * scale).min(range.beta_max);
        }
        fill(stats, state, &functions, &alpha, priors)
    }
}

/// Takes the model to convergence over the whole dictionary, in which no step of a Gaussian likelihood lowers the evidence.
pub(super) fn maximise(
    warm: &Warm,
    stats: &mut dyn Statistics,
    state: &mut State,
    priors: &Priors,
    (rules, range): (&Rules, NoiseRange),
    recorder: &mut Recorder<'_>,
) -> std::result::Result<Status, Halt> {
    warm.enter(stats, state, priors, (rules, range))?;
    recorder.begin(state);
    let mut dictionary = Dictionary::new(stats.n_basis(), priors.clone());
    dictionary.refresh(stats, state)?;
    if stats.is_linear() {
        let start = Start::warm(0);
        sequential::complete(stats, state, &mut dictionary, start, rules, range, recorder)
    } else {
        laplace::resume(stats, state, &mut dictionary, rules, recorder)
    }
}
