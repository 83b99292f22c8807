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
use crate::fit::outputs::refine::{best_step, converge};
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
    let outcome = run(stats, state, &mut good, rules, noise, recorder);
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

/// [`fit`] without rollback. `good` receives each converged model.
///
/// As for one output, estimated noise levels keep their initial values until no candidate gains much.
fn run(
    stats: &mut dyn OutputStatistics,
    state: &mut OutputState,
    good: &mut OutputState,
    rules: &Rules,
    noise: &NoiseLevels,
    recorder: &mut Recorder<'_>,
) -> Result<Status, Stop> {
    let empty = state.clone();
    let mut candidates = Candidates::new(stats, state)?;
    if noise.is_estimated() {
        maximize(
            stats,
            state,
            &mut candidates,
            &noise.all_fixed(),
            Tuning::HELD_NOISE_EFFORT,
            recorder,
        )?;
    }
    good.clone_from(state);
    maximize(
        stats,
        state,
        &mut candidates,
        noise,
        Tuning::COARSE_EFFORT,
        recorder,
    )?;
    if let Some((better, its_candidates)) = discard_failed(fit_in_stages(stats, empty, noise))?
        && better.log_evidence() > state.log_evidence() + Tuning::MIN_SEARCH_GAIN
    {
        *state = better;
        candidates = its_candidates;
        recorder.step(Action::Search, None, state)?;
    }
    let mut effort = Effort {
        gain: Tuning::MIN_GAIN,
        step: Tuning::FINE_STEP,
        tol: Tuning::LOOSE_TOL.max(rules.tol),
    };
    loop {
        maximize(stats, state, &mut candidates, noise, effort, recorder)?;
        candidates.refresh(stats, state)?;
        let refined = converge(stats, state, noise, effort, recorder)?;
        good.clone_from(state);
        candidates.update_factors(state);
        if candidates.best_addition(state, Tuning::MIN_GAIN).is_some() {
            continue;
        }
        if effort.tol > rules.tol {
            effort.tol = rules.tol;
            continue;
        }
        let at_floor = (0..state.levels.len()).any(|l| noise.at_floor(state, l));
        return Ok(match refined {
            _ if candidates.excludes_gain(state) => Status::Stalled,
            Refined::Stalled => Status::Stalled,
            Refined::Converged if at_floor => Status::NoiseFloor,
            Refined::Converged => Status::Converged,
        });
    }
}

/// `None` for a trial that failed by round-off.
fn discard_failed<T>(trial: Result<Option<T>, Stop>) -> Result<Option<T>, Stop> {
    match trial {
        Err(Stop::Failed(Error::NotPositiveDefinite(_)) | Stop::MaxIterations) => Ok(None),
        other => other,
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
    let mut recorder = Recorder::silent();
    let (held, last) = (noise.all_fixed(), stages.len() - 1);
    state.set_hyperparameters(&[], &stages[0])?;
    let mut candidates = Candidates::new(stats, &mut state)?;
    for (k, betas) in stages.iter().enumerate() {
        let alpha = state.alpha.clone();
        state.set_hyperparameters(&alpha, betas)?;
        candidates.update_factors(&state);
        let (noise, effort) = if k < last {
            (&held, Tuning::HELD_NOISE_EFFORT)
        } else {
            (noise, Tuning::COARSE_EFFORT)
        };
        maximize(
            stats,
            &mut state,
            &mut candidates,
            noise,
            effort,
            &mut recorder,
        )?;
    }
    Ok(Some((state, candidates)))
}

/// Adds, re-estimates and deletes until no candidate gains more than `effort.gain`.
pub(crate) fn maximize(
    stats: &mut dyn OutputStatistics,
    state: &mut OutputState,
    candidates: &mut Candidates,
    noise: &NoiseLevels,
    effort: Effort,
    recorder: &mut Recorder<'_>,
) -> Result<(), Stop> {
    loop {
        step_greedily(stats, state, candidates, effort, recorder)?;
        let before = (state.alpha.clone(), state.betas());
        converge(stats, state, noise, effort, recorder)?;
        if (&state.alpha, &state.betas()) != (&before.0, &before.1) {
            candidates.update_factors(state);
        }
        if add_several(stats, state, candidates, effort, recorder)? == 0 {
            return Ok(());
        }
    }
}

/// One change at a time, largest gain first: section 4, steps 4 to 8 and 10.
///
/// Candidates that gain less than `effort.step` are left for later: beside a function that has not converged, a near
/// duplicate of it would be added instead.
fn step_greedily(
    stats: &mut dyn OutputStatistics,
    state: &mut OutputState,
    candidates: &mut Candidates,
    effort: Effort,
    recorder: &mut Recorder<'_>,
) -> Result<(), Stop> {
    let cancel = stats.cancel_flag();
    let least = effort.gain.max(effort.step);
    for steps in 1.. {
        check_flag(cancel.as_deref())?;
        let step = best_step(state, effort.step)?;
        let addition = candidates.best_addition(state, least);
        // A duplicate of an active function gains what its re-estimation gains, up to round-off. Prefer the re-estimation.
        let better = addition.is_none_or(|(_, gain)| {
            step.is_some_and(|step| step.gain >= gain * (1.0 - Tuning::TIE))
        });
        if let Some(step) = step.filter(|_| better) {
            let j = state.active[step.k];
            let action = if step.alpha.is_finite() {
                candidates.reestimate(state, step.k, step.alpha)?;
                Action::Reestimate(j)
            } else {
                candidates.delete(state, step.k);
                Action::Delete(j)
            };
            state.recentre(stats)?;
            recorder.step(action, Some(step.gain), state)?;
        } else if let Some((i, _)) = addition {
            add(stats, state, candidates, i, recorder)?;
        } else {
            break;
        }
        // Rank-one updates accumulate round-off; a recomputation removes it.
        if steps % (2 * state.len() + 20) == 0 {
            state.recompute()?;
            candidates.update_factors(state);
        }
    }
    Ok(())
}

/// Adds the candidate with the largest gain, and those whose gain after that is still a good part of it; returns their number.
fn add_several(
    stats: &mut dyn OutputStatistics,
    state: &mut OutputState,
    candidates: &mut Candidates,
    effort: Effort,
    recorder: &mut Recorder<'_>,
) -> Result<usize, Stop> {
    let mut least = effort.gain;
    for added in 0..Tuning::MAX_BLOCK_ADDITIONS {
        let Some((i, gain)) = candidates.best_addition(state, least) else {
            return Ok(added);
        };
        least = least.max(Tuning::BLOCK_GAIN_RATIO * gain);
        add(stats, state, candidates, i, recorder)?;
    }
    Ok(Tuning::MAX_BLOCK_ADDITIONS)
}

fn add(
    stats: &mut dyn OutputStatistics,
    state: &mut OutputState,
    candidates: &mut Candidates,
    i: usize,
    recorder: &mut Recorder<'_>,
) -> Result<(), Stop> {
    if let Some(gain) = candidates.add(stats, state, i)? {
        state.recentre(stats)?;
        recorder.step(Action::Add(i), Some(gain), state)?;
    }
    Ok(())
}
