//! Rollback: if round-off prevents convergence, the last converged model is restored and the fit ends as stalled.

use crate::fit::context::Fit;
use crate::fit::model::Model;
use crate::fit::record::{Action, Stop, unless_indefinite};
use crate::fit::tuning::Tuning;
use crate::model::Status;

impl Fit<'_, '_> {
    /// Runs `work` with a copy of the model, which `work` replaces by each converged model. If round-off makes the posterior precision
    /// indefinite or lowers the evidence, restores that copy and records it as `action`: the fit ends as stalled.
    pub(crate) fn or_roll_back(
        &mut self,
        action: Action,
        work: impl FnOnce(&mut Self, &mut Model) -> Result<Option<Status>, Stop>,
    ) -> Result<Status, Stop> {
        let mut good = self.model.clone();
        let outcome = work(self, &mut good);
        if let Some(Some(status)) = unless_indefinite(outcome)? {
            return Ok(status);
        }
        self.model.clone_from(&good);
        self.record(action, None)?;
        Ok(Status::Stalled)
    }

    /// Whether the evidence is below that of `good`. Every step raises it, so this is an effect of round-off.
    pub(crate) fn has_fallen_below(&self, good: &Model) -> bool {
        let (now, then) = (self.model.log_posterior(), good.log_posterior());
        now < then - 10.0 * Tuning::MIN_GAIN * (1.0 + then.abs())
    }
}
