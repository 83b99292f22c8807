//! Columns nearly at right angles: what gains comes in together.
//!
//! One function's gain says next to nothing of another's then, so that the order in which they come in hardly matters, and S and Q
//! of all members need not be brought up to date after each. A function still enters with the alpha that is best for it beside all
//! that have, and gains what is recorded for it; only which ones are asked is decided by S and Q from before the first of them. What
//! these are after the last is found at once, in a time that a few steps one by one would take.

use super::outside::Outside;
use super::pool::Pool;
use super::record::{Halt, Recorder};
use super::settings::Effort;
use super::state::State;
use crate::Error;
use crate::linalg::symmetric::Symmetric;

/// Members of a pool from which it matters.
const LEAST_MEMBERS: usize = 128;

/// Squared cosine of two functions of which the one could do part of what the other does.
pub(super) const ALIKE: f64 = 0.04;

/// Functions that gain less than this part of what the best one does wait for the next round: beside that one's share in the
/// targets, theirs may be chance.
const LEAST_SHARE: f64 = 0.03;

/// Whether there are many functions and no two of them are alike.
pub(super) fn is_spread(gram: &Symmetric, size: usize) -> bool {
    let diagonal = gram.diagonal();
    let is_apart = |j: usize| {
        let mut pairs = gram.column(j)[..j].iter().zip(diagonal);
        pairs.all(|(g, d)| g * g <= ALIKE * d * diagonal[j])
    };
    size >= LEAST_MEMBERS && (0..size).all(is_apart)
}

/// Adds what gains at least `effort.gain`; how many there were. S and Q are those from before, until [`Outside::refresh`]. None where
/// rounding takes the definiteness of the posterior precision on the way: all is as it was `before`, then, and there are other ways.
pub(super) fn add_all(
    pool: &Pool,
    state: &mut State,
    outside: &mut Outside,
    effort: Effort,
    before: &State,
    recorder: &mut Recorder<'_>,
) -> Result<Option<usize>, Halt> {
    let list = outside.best_additions(state, effort.gain, LEAST_SHARE);
    state.reserve(state.len() + list.len());
    let mut added = 0;
    for i in list {
        pool.check_cancel()?;
        match outside.add_unpriced(pool, state, (i, effort.gain), recorder) {
            Err(Halt::Failed(Error::NotPositiveDefinite(_))) => {
                pool.check_cancel()?;
                state.clone_from(before);
                outside.refresh(pool, state);
                return Ok(None);
            }
            outcome => added += usize::from(outcome?),
        }
    }
    Ok(Some(added))
}

#[cfg(test)]
mod tests {
    use nalgebra::DMatrix;

    use super::super::search::tests::{COLUMNS, model_of};
    use super::super::settings::FREE;
    use super::*;
    use crate::linalg::Lower;

    #[test]
    fn columns_are_spread_if_they_are_many_and_no_two_have_much_in_common() {
        let spread = |size: usize, cosine: f64| {
            let gram = DMatrix::from_fn(size, size, |i, j| match (i, j) {
                _ if i == j => 1.0,
                (100, 7) => cosine,
                _ => 0.19,
            });
            is_spread(&Symmetric::from_lower(&Lower::of(&gram)), size)
        };
        assert!(spread(128, 0.19) && spread(200, -0.199));
        assert!(!spread(127, 0.19) && !spread(128, 0.201) && !spread(128, -0.3));
    }

    #[test]
    fn what_has_something_to_gain_comes_in_and_gains_what_was_promised() {
        // The fourth goes with the first two, and has nothing to gain beside them.
        let (pool, model) = model_of(&COLUMNS, [3.0, -3.0, 2.0, 0.1], 0);
        let (mut state, mut outside) = (model.state, model.outside);
        let before = state.clone();
        let mut steps = Vec::new();
        let recorder = &mut Recorder::silent();
        for i in outside.best_additions(&state, FREE.gain, LEAST_SHARE) {
            let gain = state.factors_outside(&pool.entrant(i, &state, &mut Vec::new()));
            let evidence = state.log_posterior();
            let entered = outside
                .add_unpriced(&pool, &mut state, (i, FREE.gain), recorder)
                .unwrap();
            let expected = if entered { gain.gain_of_adding() } else { 0.0 };
            assert!((state.log_posterior() - evidence - expected).abs() < 1e-9);
            steps.push((i, entered));
        }
        assert_eq!(steps, [(0, true), (1, true), (2, true), (3, false)]);
        let mut other = before.clone();
        outside.refresh(&pool, &other);
        let added = add_all(&pool, &mut other, &mut outside, FREE, &before, recorder).unwrap();
        assert_eq!(added, Some(3));
        assert_eq!(other.active, state.active);
        outside.refresh(&pool, &other);
        assert!((0..4).all(|i| other.active.contains(&i) || outside.gain(i) < FREE.gain));
    }
}
