//! Tipping & Faul's sequential scheme for several outputs, over the whole dictionary.
//!
//! The single change that gains most, again and again; S and Q of all candidates follow by the update formulae of the
//! appendix. Once single changes gain little the active set is settled as a whole, and the dictionary looked at again.

use crate::Error;
use crate::data::{OutputStatistics, check_flag};
use crate::fit::Status;
use crate::fit::outputs::candidates::Candidates;
use crate::fit::outputs::model::OutputState;
use crate::fit::outputs::refine::{Noise, best_step, converge};
use crate::fit::record::{Action, Recorder, Stop};
use crate::fit::refine::Refined;
use crate::fit::rollback::roll_back_if_indefinite;
use crate::fit::settings::Rules;
use crate::fit::tuning::{Effort, Tuning};

/// Runs from the state given to convergence.
///
/// Where rounding takes the definiteness of a posterior precision on the way, the last model that was settled stands.
pub(crate) fn maximise(
    stats: &mut dyn OutputStatistics,
    state: &mut OutputState,
    rules: &Rules,
    noise: &Noise,
    recorder: &mut Recorder<'_>,
) -> Result<Status, Stop> {
    let mut good = state.clone();
    let outcome = go_on(stats, state, &mut good, rules, noise, recorder);
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

/// [`maximise`]; `good` is kept at the last settled model.
///
/// Estimated noise levels are held at their start until the dictionary has little more to offer, as for one output.
fn go_on(
    stats: &mut dyn OutputStatistics,
    state: &mut OutputState,
    good: &mut OutputState,
    rules: &Rules,
    noise: &Noise,
    recorder: &mut Recorder<'_>,
) -> Result<Status, Stop> {
    let start = (state.len() == 0).then(|| state.clone());
    let mut candidates = Candidates::new(stats, state)?;
    if noise.is_estimated() {
        climb(
            stats,
            state,
            &mut candidates,
            &noise.held(),
            Tuning::HELD_NOISE_EFFORT,
            recorder,
        )?;
    }
    good.clone_from(state);
    climb(
        stats,
        state,
        &mut candidates,
        noise,
        Tuning::COARSE_EFFORT,
        recorder,
    )?;
    if let Some(start) = start
        && let Some((better, its_candidates)) = forgive(in_stages(stats, start, noise))?
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
        climb(stats, state, &mut candidates, noise, effort, recorder)?;
        candidates.refresh(stats, state)?;
        let settled = converge(stats, state, noise, effort, recorder)?;
        good.clone_from(state);
        candidates.reprice(state);
        if candidates.best_addition(state, Tuning::MIN_GAIN).is_some() {
            continue;
        }
        if effort.tol > rules.tol {
            effort.tol = rules.tol;
            continue;
        }
        let at_floor = (0..state.levels.len()).any(|l| noise.at_floor(state, l));
        return Ok(match settled {
            _ if candidates.refuses(state) => Status::Stalled,
            Refined::Stalled => Status::Stalled,
            Refined::Converged if at_floor => Status::NoiseFloor,
            Refined::Converged => Status::Converged,
        });
    }
}

/// A trial that lost its definiteness or its way to rounding has found nothing.
fn forgive<T>(trial: Result<Option<T>, Stop>) -> Result<Option<T>, Stop> {
    match trial {
        Err(Stop::Failed(Error::NotPositiveDefinite(_)) | Stop::MaxIterations) => Ok(None),
        other => other,
    }
}

/// The model found while noise levels given below the usual start fall to what they are in stages: with little noise
/// from the first function on, whatever enters first has to explain everything. `None` where none is given so low.
fn in_stages(
    stats: &mut dyn OutputStatistics,
    mut state: OutputState,
    noise: &Noise,
) -> Result<Option<(OutputState, Candidates)>, Stop> {
    let stages = noise.stages(&state.betas());
    if stages.len() == 1 {
        return Ok(None);
    }
    let mut recorder = Recorder::silent();
    let (held, last) = (noise.held(), stages.len() - 1);
    state.set_hyperparameters(&[], &stages[0])?;
    let mut candidates = Candidates::new(stats, &mut state)?;
    for (k, betas) in stages.iter().enumerate() {
        let alpha = state.alpha.clone();
        state.set_hyperparameters(&alpha, betas)?;
        candidates.reprice(&state);
        let (noise, effort) = if k < last {
            (&held, Tuning::HELD_NOISE_EFFORT)
        } else {
            (noise, Tuning::COARSE_EFFORT)
        };
        climb(
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

/// Brings the state to where nothing in the dictionary gains more than `effort` cares for.
pub(crate) fn climb(
    stats: &mut dyn OutputStatistics,
    state: &mut OutputState,
    candidates: &mut Candidates,
    noise: &Noise,
    effort: Effort,
    recorder: &mut Recorder<'_>,
) -> Result<(), Stop> {
    loop {
        step_greedily(stats, state, candidates, effort, recorder)?;
        let before = (state.alpha.clone(), state.betas());
        converge(stats, state, noise, effort, recorder)?;
        if (&state.alpha, &state.betas()) != (&before.0, &before.1) {
            candidates.reprice(state);
        }
        if add_several(stats, state, candidates, effort, recorder)? == 0 {
            return Ok(());
        }
    }
}

/// One change at a time, greatest gain first: the paper's section 4, steps 4 to 8 and 10.
///
/// Functions that gain less than single steps are worth here have to wait until the others are settled: next to one
/// that is not, its like would enter in its place.
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
        let inside = best_step(state, effort.step)?;
        let addition = candidates.best_addition(state, least);
        // The twin of an active function gains what re-estimating that one does, but for rounding: not an addition.
        let better = addition.is_none_or(|(_, gain)| {
            inside.is_some_and(|step| step.gain >= gain * (1.0 - Tuning::TIE))
        });
        if let Some(step) = inside.filter(|_| better) {
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
        // Rank-one updates drift; each recomputation starts afresh.
        if steps % (2 * state.len() + 20) == 0 {
            state.recompute()?;
            candidates.reprice(state);
        }
    }
    Ok(())
}

/// Adds the candidate with most to gain, and those that after it still have a good part of that; returns how many.
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
