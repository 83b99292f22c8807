//! The sequential algorithm of Tipping & Faul (2003) for several outputs, over the whole dictionary.
//!
//! Each step makes the change with the largest gain, and updates S and Q of all candidates by the formulae of the appendix.
//! Once single changes gain little, the active set is refined by joint steps, and further candidates are added.

use crate::Error;
use crate::data::{OutputStatistics, check_flag};
use crate::fit::Status;
use crate::fit::outputs::candidates::Candidates;
use crate::fit::outputs::model::OutputState;
use crate::fit::outputs::noise::NoiseLevels;
use crate::fit::outputs::refine::{Fit, best_step};
use crate::fit::record::{Action, Recorder, Stop};
use crate::fit::refine::Refined;
use crate::fit::rollback::roll_back_if_indefinite;
use crate::fit::settings::Rules;
use crate::fit::tuning::{Effort, Tuning};

/// Fits from `state`, an empty model, to convergence. If round-off makes a posterior precision indefinite, restores the last
/// converged model.
pub(crate) fn fit(
    stats: &mut dyn OutputStatistics,
    state: &mut OutputState,
    rules: &Rules,
    noise: &NoiseLevels,
    recorder: &mut Recorder<'_>,
) -> Result<Status, Stop> {
    let mut good = state.clone();
    let fixed = noise.all_fixed();
    let mut fit = Fit {
        stats,
        state,
        noise: &fixed,
        recorder,
    };
    let outcome = fit.run(&mut good, rules, noise);
    let cancel = stats.cancel_flag();
    roll_back_if_indefinite(
        outcome,
        state,
        &good,
        Action::Joint,
        cancel.as_deref(),
        recorder,
    )
}

/// `None` for a trial that failed by round-off.
fn discard_failed<T>(trial: Result<Option<T>, Stop>) -> Result<Option<T>, Stop> {
    match trial {
        Err(Stop::Failed(Error::NotPositiveDefinite(_)) | Stop::MaxIterations) => Ok(None),
        other => other,
    }
}

impl<'a> Fit<'a, '_> {
    /// [`fit`] without rollback. `good` receives each converged model.
    ///
    /// As for one output, estimated noise levels keep their initial values until no candidate gains much.
    fn run(
        &mut self,
        good: &mut OutputState,
        rules: &Rules,
        noise: &'a NoiseLevels,
    ) -> Result<Status, Stop> {
        let empty = self.state.clone();
        let mut candidates = Candidates::new(self.stats, self.state)?;
        if noise.is_estimated() {
            self.maximize(&mut candidates, Tuning::HELD_NOISE_EFFORT)?;
        }
        self.noise = noise;
        good.clone_from(self.state);
        self.maximize(&mut candidates, Tuning::COARSE_EFFORT)?;
        if let Some((better, its_candidates)) =
            discard_failed(fit_in_stages(self.stats, empty, noise))?
            && better.log_evidence() > self.state.log_evidence() + Tuning::MIN_SEARCH_GAIN
        {
            *self.state = better;
            candidates = its_candidates;
            self.record(Action::Search, None)?;
        }
        let mut effort = Effort {
            tol: Tuning::LOOSE_TOL.max(rules.tol),
            ..Tuning::FINE_EFFORT
        };
        loop {
            self.maximize(&mut candidates, effort)?;
            candidates.refresh(self.stats, self.state)?;
            let refined = self.converge(effort)?;
            good.clone_from(self.state);
            candidates.update_factors(self.state);
            if candidates
                .best_addition(self.state, Tuning::MIN_GAIN)
                .is_some()
            {
                continue;
            }
            if effort.tol > rules.tol {
                effort.tol = rules.tol;
                continue;
            }
            let at_floor = (0..self.state.levels.len()).any(|l| noise.at_floor(self.state, l));
            return Ok(match refined {
                _ if candidates.excludes_gain(self.state) => Status::Stalled,
                Refined::Stalled => Status::Stalled,
                Refined::Converged if at_floor => Status::NoiseFloor,
                Refined::Converged => Status::Converged,
            });
        }
    }

    /// Adds, re-estimates and deletes until no candidate gains more than `effort.gain`.
    pub(crate) fn maximize(
        &mut self,
        candidates: &mut Candidates,
        effort: Effort,
    ) -> Result<(), Stop> {
        loop {
            self.step_greedily(candidates, effort)?;
            let before = (self.state.alpha.clone(), self.state.betas());
            self.converge(effort)?;
            if (&self.state.alpha, &self.state.betas()) != (&before.0, &before.1) {
                candidates.update_factors(self.state);
            }
            if self.add_several(candidates, effort)? == 0 {
                return Ok(());
            }
        }
    }

    /// One change at a time, largest gain first: section 4, steps 4 to 8 and 10.
    ///
    /// Candidates that gain less than `effort.step` are left for later: beside a function that has not converged, a near
    /// duplicate of it would be added instead.
    fn step_greedily(&mut self, candidates: &mut Candidates, effort: Effort) -> Result<(), Stop> {
        let cancel = self.stats.cancel_flag();
        let least = effort.gain.max(effort.step);
        for steps in 1.. {
            check_flag(cancel.as_deref())?;
            let step = best_step(self.state, effort.step)?;
            let addition = candidates.best_addition(self.state, least);
            // A duplicate of an active function gains what its re-estimation gains, up to round-off. Prefer the re-estimation.
            let better = addition.is_none_or(|(_, gain)| {
                step.is_some_and(|step| step.gain >= gain * (1.0 - Tuning::TIE))
            });
            if let Some(step) = step.filter(|_| better) {
                let j = self.state.active[step.k];
                let action = if step.alpha.is_finite() {
                    candidates.reestimate(self.state, step.k, step.alpha)?;
                    Action::Reestimate(j)
                } else {
                    candidates.delete(self.state, step.k);
                    Action::Delete(j)
                };
                self.state.recentre(self.stats)?;
                self.record(action, Some(step.gain))?;
            } else if let Some((i, _)) = addition {
                self.add(candidates, i)?;
            } else {
                break;
            }
            // Rank-one updates accumulate round-off; a recomputation removes it.
            if steps % (2 * self.state.len() + 20) == 0 {
                self.state.recompute()?;
                candidates.update_factors(self.state);
            }
        }
        Ok(())
    }

    /// Adds the candidate with the largest gain, and those whose gain after that is still a good part of it; returns their number.
    fn add_several(&mut self, candidates: &mut Candidates, effort: Effort) -> Result<usize, Stop> {
        let mut least = effort.gain;
        for added in 0..Tuning::MAX_BLOCK_ADDITIONS {
            let Some((i, gain)) = candidates.best_addition(self.state, least) else {
                return Ok(added);
            };
            least = least.max(Tuning::BLOCK_GAIN_RATIO * gain);
            self.add(candidates, i)?;
        }
        Ok(Tuning::MAX_BLOCK_ADDITIONS)
    }

    fn add(&mut self, candidates: &mut Candidates, i: usize) -> Result<(), Stop> {
        if let Some(gain) = candidates.add(self.stats, self.state, i)? {
            self.state.recentre(self.stats)?;
            self.record(Action::Add(i), Some(gain))?;
        }
        Ok(())
    }
}

/// The model found when fixed noise levels below the usual initial ones are approached in stages: with little noise from the
/// start, the first function added would have to explain all of the data. `None` if no level is that low.
fn fit_in_stages(
    stats: &mut dyn OutputStatistics,
    mut state: OutputState,
    noise: &NoiseLevels,
) -> Result<Option<(OutputState, Candidates)>, Stop> {
    let stages = noise.stages(&state.betas());
    if stages.len() == 1 {
        return Ok(None);
    }
    let (held, last) = (noise.all_fixed(), stages.len() - 1);
    state.set_hyperparameters(&[], &stages[0])?;
    let mut candidates = Candidates::new(stats, &mut state)?;
    let mut fit = Fit {
        stats,
        state: &mut state,
        noise: &held,
        recorder: &mut Recorder::silent(),
    };
    for (k, betas) in stages.iter().enumerate() {
        let alpha = fit.state.alpha.clone();
        fit.state.set_hyperparameters(&alpha, betas)?;
        candidates.update_factors(fit.state);
        if k < last {
            fit.maximize(&mut candidates, Tuning::HELD_NOISE_EFFORT)?;
        } else {
            fit.noise = noise;
            fit.maximize(&mut candidates, Tuning::COARSE_EFFORT)?;
        }
    }
    Ok(Some((state, candidates)))
}
