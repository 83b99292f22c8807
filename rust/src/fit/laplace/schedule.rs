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

use crate::data::Statistics;
use crate::fit::Status;
use crate::fit::dictionary::Dictionary;
use crate::fit::laplace::fixed_point::{converge, newton, refine_to_rounding};
use crate::fit::laplace::mode::find_mode;
use crate::fit::laplace::residual::Residual;
use crate::fit::laplace::working_sets::{WorkingSetRounds, first_model};
use crate::fit::model::State;
use crate::fit::prior::Priors;
use crate::fit::record::{Action, Recorder, Stop};
use crate::fit::refine;
use crate::fit::refine::Refined;
use crate::fit::rollback::roll_back_if_indefinite;
use crate::fit::settings::Rules;
use crate::fit::tuning::{Effort, Tuning};

/// Alternations of mode and alphas between two passes over the dictionary.
const MAX_ALTERNATIONS: usize = 3;

/// Passes over the dictionary that are followed by a working set. Most fits need two or three.
const MAX_WORKING_SETS: usize = 12;

/// Fits from `state`, an empty model, to convergence.
///
/// Some active sets have no fixed point: one function has a gain in the linearisation without it, but not in the one with
/// it. If working sets lead to such a set, the fit restarts without working sets, unless it stalled at round-off.
pub(crate) fn fit(
    stats: &mut dyn Statistics,
    state: &mut State,
    priors: &Priors,
    rules: &Rules,
    recorder: &mut Recorder<'_>,
) -> Result<Status, Stop> {
    let empty = state.clone();
    let mut dictionary = Dictionary::new(stats.n_basis(), priors.clone());
    dictionary.refresh(stats, state)?;
    first_model(stats, state, &dictionary, recorder)?;
    let sets = MAX_WORKING_SETS;
    let status = complete(stats, state, &mut dictionary, sets, rules, recorder)?;
    if status == Status::Converged || Residual::of(state).is_rounding(state) {
        return Ok(status);
    }
    let stalled = state.clone();
    state.clone_from(&empty);
    let mut dictionary = Dictionary::new(stats.n_basis(), priors.clone());
    let status = complete(stats, state, &mut dictionary, 0, rules, recorder)?;
    if status != Status::Converged && stalled.log_posterior() > state.log_posterior() {
        state.clone_from(&stalled);
        recorder.step(Action::Mode, None, state)?;
    }
    Ok(status)
}

/// Continues from a model that converged on a smaller dictionary.
pub(crate) fn resume(
    stats: &mut dyn Statistics,
    state: &mut State,
    dictionary: &mut Dictionary,
    rules: &Rules,
    recorder: &mut Recorder<'_>,
) -> Result<Status, Stop> {
    let status = complete(stats, state, dictionary, MAX_WORKING_SETS, rules, recorder)?;
    if status == Status::Converged || Residual::of(state).is_rounding(state) {
        return Ok(status);
    }
    complete(stats, state, dictionary, 0, rules, recorder)
}

/// [`run`] with rollback: if round-off makes the posterior precision indefinite, restores the last model at its mode.
pub(crate) fn complete(
    stats: &mut dyn Statistics,
    state: &mut State,
    dictionary: &mut Dictionary,
    max_working_sets: usize,
    rules: &Rules,
    recorder: &mut Recorder<'_>,
) -> Result<Status, Stop> {
    let mut good = state.clone();
    let outcome = run(
        stats,
        state,
        &mut good,
        dictionary,
        max_working_sets,
        rules,
        recorder,
    );
    let cancel = stats.cancel_flag();
    roll_back_if_indefinite(
        outcome,
        state,
        &good,
        Action::Mode,
        cancel.as_deref(),
        recorder,
    )
}

/// Fits from the given state to convergence, with at most `max_working_sets` working sets. `good` receives each model at
/// its mode.
pub(crate) fn run(
    stats: &mut dyn Statistics,
    state: &mut State,
    good: &mut State,
    dictionary: &mut Dictionary,
    max_working_sets: usize,
    rules: &Rules,
    recorder: &mut Recorder<'_>,
) -> Result<Status, Stop> {
    let mut rounds = WorkingSetRounds::at_most(max_working_sets);
    let mut fine = false;
    loop {
        let refined = if fine {
            Some(converge(stats, state, rules.tol, recorder)?)
        } else {
            approach(stats, state, rounds.have_begun(), rules, recorder)?
        };
        let in_rounds = !fine && rounds.are_left();
        let exchanging = in_rounds && rounds.may_exchange(state);
        let gains = refresh(stats, state, dictionary, in_rounds, exchanging)?;
        recorder.step(Action::Mode, None, state)?;
        good.clone_from(state);
        if in_rounds && (gains || exchanging) {
            fine = rounds.next(stats, state, dictionary, (gains, exchanging), recorder)?;
            continue;
        }
        if dictionary.add(Tuning::MAX_BLOCK_ADDITIONS, stats, state, recorder)? > 0 {
            fine |= dictionary.has_reentries();
            continue;
        }
        match refined {
            None => fine = true,
            Some(Refined::Converged) if !dictionary.excludes_gain(state) => {
                refine_to_rounding(stats, state, recorder)?;
                return Ok(Status::Converged);
            }
            Some(_) => return Ok(Status::Stalled),
        }
    }
}

/// Brings the active set near its fixed point, and the state to its mode. With `try_newton`, tries Newton's method too;
/// returns [`Refined::Converged`] if that succeeds.
fn approach(
    stats: &mut dyn Statistics,
    state: &mut State,
    try_newton: bool,
    rules: &Rules,
    recorder: &mut Recorder<'_>,
) -> Result<Option<Refined>, Stop> {
    alternate(stats, state, Tuning::LOOSE_TOL.max(rules.tol), recorder)?;
    if !try_newton {
        return Ok(None);
    }
    // Cheaper than a pass over the dictionary, which at worst finds a function to add after all.
    let refined = newton(stats, state, rules.tol, recorder)?;
    find_mode(stats, state)?;
    recorder.step(Action::Mode, None, state)?;
    Ok((refined == Refined::Converged).then_some(refined))
}

/// A pass over the dictionary; returns whether an inactive candidate gains. Approximate factors are enough to choose a
/// working set, but not to conclude that none is needed.
fn refresh(
    stats: &mut dyn Statistics,
    state: &mut State,
    dictionary: &mut Dictionary,
    in_rounds: bool,
    exchanging: bool,
) -> Result<bool, Stop> {
    if in_rounds {
        dictionary.refresh_approximately(stats, state)?;
        let gains = dictionary.has_gain(state);
        if gains || exchanging {
            return Ok(gains);
        }
    }
    dictionary.refresh(stats, state)?;
    Ok(dictionary.has_gain(state))
}

/// Alternates between mode and alphas of the active set until the alphas converge to `tol`, or a few times. Ends at a mode.
fn alternate(
    stats: &mut dyn Statistics,
    state: &mut State,
    tol: f64,
    recorder: &mut Recorder<'_>,
) -> Result<(), Stop> {
    for round in 0.. {
        find_mode(stats, state)?;
        recorder.step(Action::Mode, None, state)?;
        let distance = refine::residual(state, None);
        if distance <= tol || round >= MAX_ALTERNATIONS {
            break;
        }
        let effort = Effort {
            gain: 0.0,
            step: Tuning::COARSE_STEP,
            tol: tol.min(0.1 * distance),
        };
        refine::converge(stats, state, None, effort, recorder)?;
    }
    Ok(())
}
