//! A Newton step with the constraint 1 / alpha >= 0 (Josephy 1979), for starts far from the solution, such as where one
//! of two nearly equal functions replaces the other.
//!
//! The fixed-point conditions are a complementarity problem in the prior variances v = 1 / alpha: R = 0 where v > 0,
//! R >= 0 where v = 0. Each step solves the linearised complementarity problem.

use std::collections::BTreeSet;

use nalgebra::DMatrix;

use crate::Result;
use crate::fit::context::Fit;
use crate::fit::laplace::fixed_point::{Residual, bounded, jacobian, solve};
use crate::fit::tuning::Tuning;

impl Fit<'_, '_> {
    /// Takes the first solution of the linearised problem that reduces R, by itself or with a few Newton steps from its end.
    /// Returns `false`, with the model restored, if none does.
    pub(crate) fn josephy_newton_step(
        &mut self,
        jacobian_here: &DMatrix<f64>,
        here: &Residual,
    ) -> Result<bool> {
        // With a smaller R only round-off prevents progress, and other choices of functions do not help.
        let n_trials = if here.norm() < Tuning::LOOSE_TOL {
            1
        } else {
            scaled_budget(Tuning::JOSEPHY_TRIALS, self.model.len(), 2)
        };
        let before = self.model.clone();
        for step in complementary_steps(jacobian_here, here).take(n_trials) {
            let alpha = |k: usize| {
                let alpha = before.alpha[k] / (1.0 - step[k]).max(0.0);
                bounded(alpha, before.sparsity(k))
            };
            let alphas: Vec<f64> = (0..before.len()).map(alpha).collect();
            if self.model.set_alphas(&alphas).is_ok() {
                self.find_mode()?;
                for _ in 0..Tuning::MAX_HALVINGS {
                    let there = Residual::of(self.model);
                    if there.norm() < 0.9 * here.norm() {
                        return Ok(true);
                    }
                    let jacobian = there.hold(jacobian(self.stats, self.model)?);
                    if !self.damped_step(&jacobian, &there, Tuning::MAX_HALVINGS)? {
                        break;
                    }
                }
            }
            self.model.clone_from(&before);
        }
        Ok(false)
    }
}

/// Solutions of the linearised complementarity problem, found by guessing the set of positive variances and correcting
/// the guess. There may be several solutions; the guess decides which one is found.
///
/// A step d is relative and in the prior variance, `1/alpha (1 - d)`: where one function is about to replace a nearly
/// equal one, R is far from linear in ln alpha, but almost linear in the variances.
fn complementary_steps<'a>(
    jacobian: &'a DMatrix<f64>,
    here: &'a Residual,
) -> impl Iterator<Item = Vec<f64>> + 'a {
    let retained = here.retained();
    let mut search = ActiveSetSearch {
        jacobian,
        r: &here.values,
        seen: BTreeSet::new(),
        systems_left: scaled_budget(64 * Tuning::JOSEPHY_TRIALS, retained.len(), 3),
    };
    let guesses = std::iter::once(retained.clone()).chain((0..retained.len()).map(move |k| {
        let mut guess = retained.clone();
        guess[k] = false;
        guess
    }));
    guesses.filter_map(move |guess| search.solve_from(guess))
}

/// `budget` for models of up to 100 functions; for larger ones the share with the same cost, where the cost of one item grows
/// with this power of the number of functions. At least 1.
fn scaled_budget(budget: usize, n_alphas: usize, power: u32) -> usize {
    let share = budget * 100_usize.pow(power) / n_alphas.max(100).saturating_pow(power);
    share.max(1)
}

/// The search for sets of positive variances that solve the linearised problem.
struct ActiveSetSearch<'a> {
    jacobian: &'a DMatrix<f64>,
    r: &'a [f64],
    /// Sets that were tried: from one of them the same corrections would follow.
    seen: BTreeSet<Vec<bool>>,
    systems_left: usize,
}

impl ActiveSetSearch<'_> {
    /// The solution that follows from one guess, unless it was found before.
    fn solve_from(&mut self, mut free: Vec<bool>) -> Option<Vec<f64>> {
        loop {
            if self.systems_left == 0 || !self.seen.insert(free.clone()) {
                return None;
            }
            self.systems_left -= 1;
            let step = solve(self.jacobian, self.r, &free, 1.0)?;
            let corrected = self.corrected(&free, &step);
            if corrected == free {
                return Some(step);
            }
            free = corrected;
        }
    }

    /// The set of positive variances that is consistent with `step`, the solution for `free`.
    fn corrected(&self, free: &[bool], step: &[f64]) -> Vec<bool> {
        let n = self.r.len();
        let is_free = |k: usize| {
            if free[k] {
                return step[k] < 1.0;
            }
            let change: f64 = (0..n).map(|i| self.jacobian[(k, i)] * step[i]).sum();
            self.r[k] + change < 0.0
        };
        (0..n).map(is_free).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_shrink_with_the_cost_of_large_models() {
        let solutions = [1, 100, 200, 400, 100_000].map(|n| scaled_budget(2000, n, 3));
        assert_eq!(solutions, [2000, 2000, 250, 31, 1]);
        assert_eq!(scaled_budget(32, 400, 2), 2);
    }

    #[test]
    fn each_guess_is_tried_once_and_a_step_solves_the_linearised_problem() {
        // The only solution has both free. All guesses lead to it, and it is returned once.
        let jacobian = DMatrix::from_row_slice(2, 2, &[-1.0, 3.0, -3.0, -1.0]);
        let r = [0.5, 0.5];
        let mut search = ActiveSetSearch {
            jacobian: &jacobian,
            r: &r,
            seen: BTreeSet::new(),
            systems_left: 100,
        };
        let step = search.solve_from(vec![true, true]).unwrap();
        for k in 0..2 {
            let left = r[k] + (0..2).map(|i| jacobian[(k, i)] * step[i]).sum::<f64>();
            assert!(step[k] < 1.0 && left.abs() < 1e-12);
        }
        for guess in [[true, true], [true, false], [false, true], [false, false]] {
            assert!(search.solve_from(guess.to_vec()).is_none());
        }
        assert_eq!(search.systems_left, 96);
    }
}
