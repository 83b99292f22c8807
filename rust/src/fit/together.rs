//! Weights that share an alpha: those of all classes on one basis function.
//!
//! A state with `sharing` = n holds its functions in groups of n neighbours, one for each class in the order of the
//! classes, and all of a group have the same alpha. n = 1 is the ordinary model, each function with its own.
//!
//! A group left out of the model has a C x C matrix s and a C-vector q for sparsity and quality factors, and
//! `F(alpha) = 1/2 [C ln alpha - ln|alpha I + s| + q^T (alpha I + s)^-1 q]`: equation (18) of Tipping & Faul (2003) for
//! several functions at once. In the eigenvectors of s it is a sum of one-dimensional terms, a [`Shared`]. Logits that rise
//! together change nothing, so s and q vanish along (1, ..., 1), and with one prior for all classes the weights do too:
//! only C - 1 [`contrasts`] of the classes count.

use std::ops::Range;

use nalgebra::{DMatrix, DVector, SymmetricEigen};

use super::action::{Factors, LEAST_DETERMINED};
use super::inner::Proposal;
use super::prior::Gamma;
use super::shared::{Shared, Term};
use super::state::State;
use crate::Result;

/// What the weights with one alpha say of it.
pub(super) struct Together {
    pub(super) alpha: f64,
    /// Sum of the sparsity factors.
    pub(super) s: f64,
    /// Sum of s / (alpha + s): free of the cancellation in 1 - alpha Sigma.
    pub(super) gamma: f64,
    /// Length of the vector of posterior means.
    pub(super) mu: f64,
}

/// An orthonormal basis of the vectors of n numbers whose sum is zero, n x (n - 1): Helmert's.
pub(super) fn contrasts(n: usize) -> DMatrix<f64> {
    DMatrix::from_fn(n, n - 1, |row, column| {
        let k = (column + 1) as f64;
        let length = (k * (k + 1.0)).sqrt();
        match row.cmp(&(column + 1)) {
            std::cmp::Ordering::Less => 1.0 / length,
            std::cmp::Ordering::Equal => -k / length,
            std::cmp::Ordering::Greater => 0.0,
        }
    })
}

/// Eigenvalues of a symmetric C x C matrix on the contrasts, and the components of a vector along its eigenvectors.
pub(super) fn components(
    matrix: &DMatrix<f64>,
    vector: &DVector<f64>,
    contrasts: &DMatrix<f64>,
) -> Vec<(f64, f64)> {
    let eigen = SymmetricEigen::new(contrasts.tr_mul(matrix) * contrasts);
    let along = eigen.eigenvectors.tr_mul(&contrasts.tr_mul(vector));
    eigen
        .eigenvalues
        .iter()
        .copied()
        .zip(along.iter().copied())
        .collect()
}

/// One output of those that share an alpha.
fn term(Factors { s, q, .. }: Factors) -> Term {
    Term {
        n: 1.0,
        s: s.max(f64::MIN_POSITIVE),
        power: q * q,
    }
}

impl State {
    /// Alphas that can move on their own.
    pub(super) fn n_alphas(&self) -> usize {
        self.len() / self.sharing
    }

    /// Positions of the functions that have alpha `k`.
    pub(super) fn members(&self, k: usize) -> Range<usize> {
        k * self.sharing..(k + 1) * self.sharing
    }

    pub(super) fn own_alpha(&self, k: usize) -> f64 {
        self.alpha[k * self.sharing]
    }

    /// Sets all alphas at once and recomputes.
    pub(super) fn set_alphas(&mut self, alphas: &[f64]) -> Result<()> {
        let spread = |&alpha: &f64| std::iter::repeat_n(alpha, self.sharing);
        let alpha: Vec<f64> = alphas.iter().flat_map(spread).collect();
        self.set_hyperparameters(&alpha, self.beta)
    }

    pub(super) fn together(&self, k: usize) -> Together {
        let alpha = self.own_alpha(k);
        if self.sharing == 1 {
            let (s, mu) = (self.factors(k).s.max(f64::MIN_POSITIVE), self.mu[k].abs());
            let gamma = s / (alpha + s);
            return Together {
                alpha,
                s,
                gamma,
                mu: mu.max(f64::MIN_POSITIVE),
            };
        }
        let terms = self.terms(k);
        let square: f64 = self.members(k).map(|i| self.mu[i] * self.mu[i]).sum();
        Together {
            alpha,
            s: terms.iter().map(|t| t.s).sum(),
            gamma: terms.iter().map(|t| t.s / (alpha + t.s)).sum(),
            mu: square.sqrt().max(f64::MIN_POSITIVE),
        }
    }

    /// Sparsity and quality of group `k`, were it left out.
    ///
    /// Its block of Sigma is (alpha I + s)^-1, and its means are that times q: equation (23) for several functions.
    pub(super) fn terms(&self, k: usize) -> Vec<Term> {
        let (alpha, members) = (self.own_alpha(k), self.members(k));
        let (first, n) = (members.start, members.len());
        let block = self.sigma.view((first, first), (n, n)).clone_owned();
        let mean = DVector::from_column_slice(&self.mu[members]);
        let along = components(&block, &mean, &contrasts(n));
        let is_determined = |(variance, _): &(f64, f64)| 1.0 - alpha * variance >= LEAST_DETERMINED;
        if !along.iter().all(is_determined) {
            return self.terms_by_totals(k, &block, &mean);
        }
        let of = |(variance, mean)| Factors::from_posterior(alpha, variance, mean, Gamma::FLAT);
        along.into_iter().map(of).map(term).collect()
    }

    /// The same where the posterior is next to the prior in some direction: S and Q of all, equations (24) and (25), have the
    /// eigenvectors of Sigma, and S is alpha gamma.
    #[cold]
    fn terms_by_totals(&self, k: usize, sigma: &DMatrix<f64>, mean: &DVector<f64>) -> Vec<Term> {
        let (alpha, members) = (self.own_alpha(k), self.members(k));
        let contrasts = contrasts(members.len());
        let (sparsity, quality) = self.totals(members);
        let eigen = SymmetricEigen::new(contrasts.tr_mul(&sparsity) * &contrasts);
        let along = |(direction, &sparsity): (_, &f64)| {
            let direction: DVector<f64> = &contrasts * direction;
            let factors = if sparsity < 0.5 * alpha {
                let total = Factors {
                    s: sparsity,
                    q: direction.dot(&quality),
                    prior: Gamma::FLAT,
                };
                total.left_out(alpha)
            } else {
                let variance = direction.dot(&(sigma * &direction));
                Factors::from_posterior(alpha, variance, direction.dot(mean), Gamma::FLAT)
            };
            term(factors)
        };
        let directions = eigen.eigenvectors.column_iter();
        directions.zip(&eigen.eigenvalues).map(along).collect()
    }

    /// |change in ln alpha| that re-estimation of alpha `k` would make; infinite where its functions should leave.
    pub(super) fn change_of(&self, k: usize) -> f64 {
        let alpha = self.own_alpha(k);
        if self.sharing == 1 {
            self.factors(k).change_from(alpha)
        } else {
            Shared(&self.terms(k)).change_from(alpha)
        }
    }

    /// Whether the functions of alpha `k`, which may have a maximum of their own, are better left out.
    pub(super) fn better_without(&self, k: usize) -> bool {
        if self.sharing > 1 {
            return Shared(&self.terms(k)).best().is_none();
        }
        // Under a prior a stationary point may be worth less than nothing.
        let factors = self.factors(k);
        !factors.prior.is_flat()
            && self.own_alpha(k) >= factors.s
            && factors.optimal_alpha().is_none()
    }

    /// The gain of taking out the functions of alpha `k`.
    pub(super) fn gain_of_leaving(&self, k: usize) -> f64 {
        let alpha = self.own_alpha(k);
        if self.sharing == 1 {
            self.factors(k).gain_of_deleting(alpha)
        } else {
            Shared(&self.terms(k)).gain_of_deleting(alpha)
        }
    }

    /// Takes out the functions of alpha `k`.
    pub(super) fn delete_together(&mut self, k: usize) {
        self.members(k).rev().for_each(|i| self.delete(i));
    }

    /// Moves alpha `k`.
    pub(super) fn reestimate_together(&mut self, k: usize, alpha: f64) -> Result<()> {
        self.members(k).try_for_each(|i| self.reestimate(i, alpha))
    }

    /// What re-estimation would do to alpha `k` of a state whose functions share theirs.
    pub(super) fn proposal(&self, k: usize) -> Proposal {
        let (terms, old) = (self.terms(k), self.own_alpha(k));
        let shared = Shared(&terms);
        match shared.goal_from(old) {
            Some(alpha) => Proposal {
                k,
                alpha,
                gain: shared.gain_of_moving(old, alpha),
            },
            None => Proposal {
                k,
                alpha: f64::INFINITY,
                gain: shared.gain_of_deleting(old),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::mode::find_mode;
    use super::super::prior::Priors;
    use super::super::stationary::{Residual, jacobian};
    use super::*;
    use crate::stats::{DenseDesign, Multinomial, Statistics};

    const N: usize = 60;
    const K: usize = 4;
    const CLASSES: usize = 3;

    fn wave(i: usize, frequency: f64) -> f64 {
        (frequency * (i as f64 + 0.5)).sin()
    }

    /// Columns 0, 2 and 3 of four on rows of three classes, at the mode that belongs to these alphas.
    fn at(stats: &mut Multinomial<'_>, alphas: &[f64]) -> State {
        let deviance = stats.deviance(&[], &[]).unwrap();
        let mut state = State::empty(1.0, Gamma::FLAT, deviance, 0.0);
        let active: Vec<usize> = [0, 2, 3]
            .iter()
            .flat_map(|j| (0..CLASSES).map(move |c| c * K + j))
            .collect();
        state.sharing = CLASSES;
        state.fill(&active, 1.0, &Priors::default(), None);
        find_mode(stats, &mut state).unwrap();
        state.set_alphas(alphas).unwrap();
        find_mode(stats, &mut state).unwrap();
        state
    }

    fn with_stats(check: impl FnOnce(&mut Multinomial<'_>)) {
        let values = (0..N * K).map(|i| wave(i, 0.37) + 0.3 * wave(i * i, 0.11));
        let design = DenseDesign::new(values.collect::<Vec<f64>>(), N, K).unwrap();
        let target: Vec<f64> = (0..N).map(|i| ((i * i + i / 7) % CLASSES) as f64).collect();
        check(&mut Multinomial::new(&design, &target, None).unwrap());
    }

    #[test]
    fn contrasts_are_orthonormal_and_sum_to_zero() {
        for n in 1..7 {
            let basis = contrasts(n);
            let products = basis.tr_mul(&basis) - DMatrix::identity(n - 1, n - 1);
            assert!(products.iter().all(|v| v.abs() < 1e-14));
            assert!(basis.row_sum().iter().all(|v| v.abs() < 1e-14));
        }
    }

    #[test]
    fn moving_and_deleting_gain_what_the_terms_say() {
        with_stats(|stats| {
            let state = at(stats, &[0.5, 2.0, 8.0]);
            for k in 0..state.n_alphas() {
                let terms = state.terms(k);
                assert_eq!(terms.len(), CLASSES - 1);
                let mut moved = state.clone();
                moved.reestimate_together(k, 3.0).unwrap();
                let gain = Shared(&terms).gain_of_moving(state.own_alpha(k), 3.0);
                assert!((moved.log_evidence() - state.log_evidence() - gain).abs() < 1e-9);
                let mut without = state.clone();
                without.delete_together(k);
                let gain = state.gain_of_leaving(k);
                assert!((without.log_evidence() - state.log_evidence() - gain).abs() < 1e-9);
            }
        });
    }

    #[test]
    fn terms_do_not_go_with_the_alpha_of_their_functions() {
        with_stats(|stats| {
            let mut state = at(stats, &[0.5, 2.0, 8.0]);
            let ascending = |state: &State| {
                let mut terms = state.terms(1);
                terms.sort_by(|a, b| a.s.total_cmp(&b.s));
                terms
            };
            let expected = ascending(&state);
            for exponent in -3..=20 {
                state
                    .set_alphas(&[0.5, 10_f64.powi(exponent), 8.0])
                    .unwrap();
                for (found, expected) in ascending(&state).iter().zip(&expected) {
                    assert!((found.s / expected.s - 1.0).abs() < 1e-7, "1e{exponent}");
                    assert!(
                        (found.power / expected.power - 1.0).abs() < 1e-7,
                        "1e{exponent}"
                    );
                }
            }
        });
    }

    #[test]
    fn the_jacobian_is_how_the_residual_answers_to_ln_alpha() {
        with_stats(|stats| {
            let alphas = [0.5, 2.0, 8.0];
            let state = at(stats, &alphas);
            let expected = jacobian(stats, &state).unwrap();
            let h: f64 = 1e-4;
            for b in 0..3 {
                let moved = |stats: &mut Multinomial<'_>, factor: f64| {
                    let mut there = alphas;
                    there[b] *= factor;
                    Residual::of(&at(stats, &there)).values
                };
                let (up, down) = (moved(stats, h.exp()), moved(stats, (-h).exp()));
                for a in 0..3 {
                    let slope = (up[a] - down[a]) / (2.0 * h);
                    assert!(
                        (expected[(a, b)] - slope).abs() < 1e-5 * (1.0 + slope.abs()),
                        "{a} {b}: {} {slope}",
                        expected[(a, b)]
                    );
                }
            }
        });
    }
}
