//! A function outside for one of the model, at once.
//!
//! A function that has next to nothing to gain beside the model may have a hundred times that in the place of one much like it. Added,
//! it gets there too: the evidence rises all the way along a ridge on which the one alpha grows beyond all bounds as the other falls.
//! But that ridge bends, and Newton's method follows it by a third of a logarithm at a time. On the 2-D sinc exchanges halve
//! the Newton steps of a fit, at N = 500 and 2000 alike.

use super::exchange::Leaving;
use super::outside::Outside;
use super::pool::Pool;
use super::record::{Action, Halt, Recorder};
use super::settings::LEAST_GAIN;
use super::state::State;

/// Functions that take a lesser part of S, the squared cosine of what the rest of the model leaves of the two, are not in the way of
/// one that enters; nor, as a rule, is any in the way of one that goes with none at all.
const LEAST_PART: f64 = 0.03;

/// Exchanges an active function for member `i` if that gains more than adding it; whether it did.
pub(super) fn instead_of_adding(
    outside: &mut Outside,
    pool: &Pool,
    state: &mut State,
    i: usize,
    recorder: &mut Recorder<'_>,
) -> Result<bool, Halt> {
    // The pool of another likelihood is of a mode, and an exchange may lead far from it: on the mixture of Ripley exchanges
    // save a twentieth of a fit, and cost 0.03 nats in the mean and 0.3 on one problem of nine.
    let is_gaussian = state.n_noise() > 0.0;
    if !is_gaussian || !pool.has_like(i, &state.active, LEAST_PART) {
        return Ok(false);
    }
    let Some((k, _)) = best_exchange(outside, pool, state, i) else {
        return Ok(false);
    };
    let before = (state.clone(), outside.clone(), state.log_posterior());
    outside.delete(pool, state, k);
    outside.add(pool, state, i, &mut Recorder::silent())?;
    if state.log_posterior() <= before.2 {
        // Rounding denies what the factors promised.
        (*state, *outside) = (before.0, before.1);
        return Ok(false);
    }
    recorder.step(Action::Search, None, state)?;
    Ok(true)
}

/// Where the function is in the active set that member `i` had best replace, and what that gains; none if the addition of it gains
/// as much.
fn best_exchange(outside: &Outside, pool: &Pool, state: &State, i: usize) -> Option<(usize, f64)> {
    let factors = outside.factors_of(i);
    let mut products = Vec::with_capacity(state.len());
    let shares = state.shares_in(&pool.entrant(i, state, &mut products));
    let mut best = None;
    let mut most = outside.gain(i) + LEAST_GAIN;
    for (k, share) in shares.into_iter().enumerate() {
        let part = share * share / state.sigma[(k, k)];
        if part < LEAST_PART * (factors.s + part) {
            continue;
        }
        let Ok(leaving) = Leaving::new(state, &[k]) else {
            continue;
        };
        let after = leaving.factors_after(factors, &mut [share]);
        let gain = leaving.gain + after.gain_of_adding();
        if gain > most {
            most = gain;
            best = Some((k, gain));
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fit::search::tests::{ROWS, model_of};

    const TARGET: [f64; ROWS] = [3.0, 1.0, 2.0, 0.1];

    #[test]
    fn an_exchange_for_a_better_function_gains_what_it_says() {
        let columns = [
            [1.0, 0.0, 0.0, 0.0],
            [0.0, 0.0, 1.0, 0.0],
            [3.0, 1.0, 0.0, 0.0],
        ];
        let (pool, model) = model_of(&columns, TARGET, 2);
        let (mut state, mut outside) = (model.state, model.outside);
        let (k, gain) = best_exchange(&outside, &pool, &state, 2).unwrap();
        assert_eq!(state.active[k], 0);
        let silent = &mut Recorder::silent();
        assert!(instead_of_adding(&mut outside, &pool, &mut state, 2, silent).unwrap());
        let mut active = state.active.clone();
        active.sort_unstable();
        assert_eq!(active, [1, 2]);
        state.recompute().unwrap();
        assert!((state.log_posterior() - model.evidence - gain).abs() < 1e-10);
    }

    #[test]
    fn functions_at_right_angles_to_it_are_not_in_its_way() {
        let columns = [
            [1.0, 0.0, 0.0, 0.0],
            [0.0, 0.0, 1.0, 0.0],
            [0.0, 1.0, 0.0, 0.0],
        ];
        let (pool, model) = model_of(&columns, TARGET, 2);
        assert!(model.outside.gain(2) > 0.0);
        assert!(best_exchange(&model.outside, &pool, &model.state, 2).is_none());
    }
}
