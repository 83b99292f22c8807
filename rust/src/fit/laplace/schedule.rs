//! Likelihoods other than the Gaussian, by the Laplace approximation: Tipping & Faul (2003), section 2.2.
//!
//! The likelihood is linearised at the posterior mode, the alphas maximise the evidence of the resulting Gaussian model,
//! and both are repeated until neither changes. The certificate at the end is for this fixed point, which treats the
//! working weights B as constants in alpha. It is close to, but not exactly, a stationary point of the Laplace evidence,
//! and that evidence may fall when the mode is recomputed.
//!
//! The alternation gets near the fixed point fast but need not reach it: a function may be added under one linearisation
//! and deleted under the next, for ever. The end is therefore left to Newton's method on the fixed-point equations, whose
//! Jacobian includes the change of the mode and of B.

use crate::fit::Status;
use crate::fit::dictionary::Dictionary;
use crate::fit::laplace::Fit;
use crate::fit::laplace::residual::Residual;
use crate::fit::laplace::working_sets::WorkingSetRounds;
use crate::fit::model::State;
use crate::fit::prior::Priors;
use crate::fit::record::{Action, Stop};
use crate::fit::refine;
use crate::fit::refine::Refined;
use crate::fit::rollback::roll_back_if_indefinite;
use crate::fit::tuning::{Effort, Tuning};

impl Fit<'_, '_> {
    /// Fits from `state`, an empty model, to convergence.
    ///
    /// Some active sets have no fixed point: one function has a gain in the linearisation without it, but not in the one with
    /// it. If working sets lead to such a set, the fit restarts without working sets, unless it stalled at round-off.
    pub(crate) fn run_from_empty(&mut self, priors: &Priors) -> Result<Status, Stop> {
        let empty = self.state.clone();
        let mut dictionary = Dictionary::new(self.stats.facts().n_basis(), priors.clone());
        dictionary.refresh(self.stats, self.state)?;
        self.first_model(&dictionary)?;
        let status = self.complete(&mut dictionary, Tuning::MAX_WORKING_SETS)?;
        if status == Status::Converged || Residual::of(self.state).is_rounding(self.state) {
            return Ok(status);
        }
        let stalled = self.state.clone();
        self.state.clone_from(&empty);
        let mut dictionary = Dictionary::new(self.stats.facts().n_basis(), priors.clone());
        let status = self.complete(&mut dictionary, 0)?;
        if status != Status::Converged && stalled.log_posterior() > self.state.log_posterior() {
            self.state.clone_from(&stalled);
            self.record(Action::Mode, None)?;
        }
        Ok(status)
    }

    /// Continues from a model that converged on a smaller dictionary.
    pub(crate) fn resume(&mut self, dictionary: &mut Dictionary) -> Result<Status, Stop> {
        let status = self.complete(dictionary, Tuning::MAX_WORKING_SETS)?;
        if status == Status::Converged || Residual::of(self.state).is_rounding(self.state) {
            return Ok(status);
        }
        self.complete(dictionary, 0)
    }

    /// [`Self::run`] with rollback: if round-off makes the posterior precision indefinite, restores the last model at its mode.
    pub(crate) fn complete(
        &mut self,
        dictionary: &mut Dictionary,
        max_working_sets: usize,
    ) -> Result<Status, Stop> {
        let mut good = self.state.clone();
        let outcome = self.run(&mut good, dictionary, max_working_sets);
        roll_back_if_indefinite(outcome, self.state, &good, Action::Mode, self.recorder)
    }

    /// Fits from the given state to convergence, with at most `max_working_sets` working sets. `good` receives each model at
    /// its mode.
    pub(crate) fn run(
        &mut self,
        good: &mut State,
        dictionary: &mut Dictionary,
        max_working_sets: usize,
    ) -> Result<Status, Stop> {
        let mut rounds = WorkingSetRounds::at_most(max_working_sets);
        let mut fine = false;
        loop {
            let refined = if fine {
                Some(self.converge(self.rules.tol)?)
            } else {
                self.approach(rounds.have_begun())?
            };
            let in_rounds = !fine && rounds.are_left();
            let exchanging = in_rounds && rounds.may_exchange(self.state);
            dictionary.refresh(self.stats, self.state)?;
            let gains = dictionary.has_gain(self.state);
            self.record(Action::Mode, None)?;
            good.clone_from(self.state);
            if in_rounds && (gains || exchanging) {
                fine = rounds.next(self, dictionary, gains, exchanging)?;
                continue;
            }
            if dictionary.add(
                Tuning::MAX_BLOCK_ADDITIONS,
                self.stats,
                self.state,
                self.recorder,
            )? > 0
            {
                fine |= dictionary.has_reentries();
                continue;
            }
            match refined {
                None => fine = true,
                Some(Refined::Converged) if !dictionary.excludes_gain(self.state) => {
                    self.refine_to_rounding()?;
                    return Ok(Status::Converged);
                }
                Some(_) => return Ok(Status::Stalled),
            }
        }
    }

    /// Brings the active set near its fixed point, and the state to its mode. With `try_newton`, tries Newton's method too;
    /// returns [`Refined::Converged`] if that succeeds.
    fn approach(&mut self, try_newton: bool) -> Result<Option<Refined>, Stop> {
        self.alternate(Tuning::LOOSE_TOL.max(self.rules.tol))?;
        if !try_newton {
            return Ok(None);
        }
        // Cheaper than a pass over the dictionary, which at worst finds a function to add after all.
        let refined = self.newton(self.rules.tol)?;
        self.record_mode()?;
        Ok((refined == Refined::Converged).then_some(refined))
    }

    /// Alternates between mode and alphas of the active set until the alphas converge to `tol`, or a few times. Ends at a mode.
    fn alternate(&mut self, tol: f64) -> Result<(), Stop> {
        for round in 0.. {
            self.record_mode()?;
            let distance = refine::residual(self.state, Tuning::COARSE_EFFORT);
            if distance <= tol || round >= Tuning::MAX_ALTERNATIONS {
                break;
            }
            let effort = Effort {
                gain: 0.0,
                step: Tuning::COARSE_EFFORT.step,
                tol: tol.min(0.1 * distance),
                moves_noise: false,
            };
            refine::converge(self.stats, self.state, effort, self.recorder)?;
        }
        Ok(())
    }
}
