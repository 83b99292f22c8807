//! Newton's method with constraints, for where it has to go far: from one of two functions much alike to the other.
//!
//! The fixed-point conditions are a complementarity problem in the prior variances v = 1 / alpha: R = 0 where v > 0,
//! R >= 0 where v = 0. Its linearisation is solved as such (Josephy 1979), rather than with the functions of the moment.

use std::collections::BTreeSet;

use nalgebra::DMatrix;

use crate::Result;
use crate::data::Statistics;
use crate::fit::laplace::fixed_point::{LENGTHS, Residual, advance, bounded, jacobian, solve};
use crate::fit::laplace::mode::find_mode;
use crate::fit::model::State;

/// Leaps tried, and systems of equations solved to find them, with up to a hundred alphas. A trial costs their number
/// squared or more, a solution its cube, and models of hundreds have fewer of them.
const MOST_LEAPS: usize = 32;
const MOST_SOLUTIONS: usize = 2000;
const MANY: usize = 100;

/// Takes the first leap that brings R closer to zero, at once or with a few of Newton's steps from where it ends.
pub(crate) fn leap_closer(
    stats: &mut dyn Statistics,
    state: &mut State,
    jacobian_here: &DMatrix<f64>,
    here: &Residual,
) -> Result<bool> {
    const STEPS: usize = 5;
    /// Closer than this no other choice of functions is any nearer, and what is in the way is rounding.
    const NEAR: f64 = 1e-3;
    let most = if here.norm() < NEAR {
        1
    } else {
        at_the_cost_of_many(MOST_LEAPS, state.len(), 2)
    };
    let before = state.clone();
    for step in leaps(jacobian_here, here).take(most) {
        let alphas: Vec<f64> = (0..before.len())
            .map(|k| {
                let alpha = before.alpha[k] / (1.0 - step[k]).max(0.0);
                bounded(alpha, before.sparsity(k))
            })
            .collect();
        if state.set_alphas(&alphas).is_ok() {
            find_mode(stats, state)?;
            for _ in 0..STEPS {
                let there = Residual::of(state);
                if there.norm() < 0.9 * here.norm() {
                    return Ok(true);
                }
                let jacobian = there.hold(jacobian(stats, state)?);
                if !advance(stats, state, &jacobian, &there, LENGTHS)? {
                    break;
                }
            }
        }
        state.clone_from(&before);
    }
    // The provider's weights belong to the last mode tried; bring them back.
    find_mode(stats, state)?;
    Ok(false)
}

/// Steps that solve the linearised problem with its constraints: prior variances 1 / alpha that would turn negative
/// become zero instead, and such functions must want no more. Found by guessing which those are, and correcting the
/// guess; there may be several, and which is found first depends on the guess.
///
/// Steps are relative, in the prior variance: `1/alpha (1 - d)`. Where one function is about to take the place of
/// another much like it, R says little until the other is gone, but is all but linear in the prior variances.
fn leaps<'a>(
    jacobian: &'a DMatrix<f64>,
    here: &'a Residual,
) -> impl Iterator<Item = Vec<f64>> + 'a {
    let staying = here.staying();
    let mut guessing = Guessing {
        jacobian,
        r: &here.values,
        seen: BTreeSet::new(),
        solutions_left: at_the_cost_of_many(MOST_SOLUTIONS, staying.len(), 3),
    };
    let guesses = std::iter::once(staying.clone()).chain((0..staying.len()).map(move |k| {
        let mut guess = staying.clone();
        guess[k] = false;
        guess
    }));
    guesses.filter_map(move |guess| guessing.leap(guess))
}

/// So many with [`MANY`] alphas and fewer, and beyond as many as cost the same, going with this power of their number.
fn at_the_cost_of_many(most: usize, n_alphas: usize, power: u32) -> usize {
    let share = most * MANY.pow(power) / n_alphas.max(MANY).saturating_pow(power);
    share.max(1)
}

/// The search for leaps.
struct Guessing<'a> {
    jacobian: &'a DMatrix<f64>,
    r: &'a [f64],
    /// Guesses made. What follows from one is the same each time: no leap, or one that was found before.
    seen: BTreeSet<Vec<bool>>,
    solutions_left: usize,
}

impl Guessing<'_> {
    /// The leap that one guess of the functions that stay leads to, if it is new.
    fn leap(&mut self, mut free: Vec<bool>) -> Option<Vec<f64>> {
        const CORRECTIONS: usize = 20;
        for _ in 0..CORRECTIONS {
            if self.solutions_left == 0 || !self.seen.insert(free.clone()) {
                return None;
            }
            self.solutions_left -= 1;
            let step = solve(self.jacobian, self.r, &free, 1.0)?;
            let wanted = self.wanted(&free, &step);
            if wanted == free {
                return Some(step);
            }
            free = wanted;
        }
        None
    }

    /// Which functions should have been free, for the step that these being free leads to.
    fn wanted(&self, free: &[bool], step: &[f64]) -> Vec<bool> {
        let n = self.r.len();
        let wanted = |k: usize| {
            if free[k] {
                return step[k] < 1.0;
            }
            let moved: f64 = (0..n).map(|i| self.jacobian[(k, i)] * step[i]).sum();
            self.r[k] + moved < 0.0
        };
        (0..n).map(wanted).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_of_hundreds_get_as_much_as_costs_the_same() {
        let solutions = [1, 100, 200, 400, 100_000].map(|n| at_the_cost_of_many(2000, n, 3));
        assert_eq!(solutions, [2000, 2000, 250, 31, 1]);
        assert_eq!(at_the_cost_of_many(32, 400, 2), 2);
    }

    #[test]
    fn no_guess_is_followed_twice_and_a_leap_solves_the_linearised_problem() {
        // With both there is a leap; to it the other guesses lead, and it is found once.
        let jacobian = DMatrix::from_row_slice(2, 2, &[-1.0, 3.0, -3.0, -1.0]);
        let r = [0.5, 0.5];
        let mut guessing = Guessing {
            jacobian: &jacobian,
            r: &r,
            seen: BTreeSet::new(),
            solutions_left: 100,
        };
        let step = guessing.leap(vec![true, true]).unwrap();
        for k in 0..2 {
            let left = r[k] + (0..2).map(|i| jacobian[(k, i)] * step[i]).sum::<f64>();
            assert!(step[k] < 1.0 && left.abs() < 1e-12);
        }
        for guess in [[true, true], [true, false], [false, true], [false, false]] {
            assert!(guessing.leap(guess.to_vec()).is_none());
        }
        assert_eq!(guessing.solutions_left, 96);
    }
}
