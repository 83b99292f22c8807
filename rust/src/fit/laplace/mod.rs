//! Likelihoods other than the Gaussian, by the Laplace approximation.

mod complementarity;
mod fixed_point;
pub(crate) mod mode;
mod residual;
mod schedule;
mod working_sets;

use crate::data::Statistics;
use crate::fit::laplace::mode::find_mode;
use crate::fit::model::State;
use crate::fit::record::{Action, Recorder, Stop};
use crate::fit::settings::Rules;

/// What the functions of a fit by the Laplace approximation share. The entry points are in `schedule`.
pub(crate) struct Fit<'a, 'w> {
    pub(crate) stats: &'a mut dyn Statistics,
    pub(crate) state: &'a mut State,
    pub(crate) rules: &'a Rules,
    pub(crate) recorder: &'a mut Recorder<'w>,
}

impl Fit<'_, '_> {
    /// Records a step with its predicted gain.
    fn record(&mut self, action: Action, gain: Option<f64>) -> Result<(), Stop> {
        self.recorder.step(action, gain, self.state)
    }

    /// Finds the mode and records it.
    fn record_mode(&mut self) -> Result<(), Stop> {
        find_mode(self.stats, self.state)?;
        self.record(Action::Mode, None)
    }
}
