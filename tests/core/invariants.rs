//! What must hold of every fit, on random problems. These run with debug assertions, which compare the gain predicted for
//! each step with the gain achieved.

use proptest::prelude::*;
use sparsebayes::{Action, Likelihood, Settings, Step};

use crate::cases::cases;
use crate::problems::{Problem, columns, counts, fit_design, fixed, labels};

fn assert_close(a: &[f64], b: &[f64], tolerance: f64) {
    assert_eq!(a.len(), b.len());
    for (a, b) in a.iter().zip(b) {
        assert!((a - b).abs() <= tolerance * (a.abs() + b.abs()), "{a} {b}");
    }
}

fn gains_are_kept(trace: &[f64], steps: &[Step]) {
    for (before, step) in trace.iter().zip(steps) {
        if matches!(
            step.action,
            Action::Add(_) | Action::Delete(_) | Action::Reestimate(_)
        ) {
            let achieved = step.log_evidence - before;
            // For nearly dependent functions; debug assertions allow as much only where a pivot of the factor is small.
            let slack = 1e-8 * step.gain.abs().max(1.0) + 1e-7 * before.abs();
            assert!(
                (achieved - step.gain).abs() <= slack,
                "{step:?} achieved {achieved}"
            );
        }
    }
}

/// Joint steps take the alpha of a function on its way out to 6e16, where 1 / Sigma - alpha is nothing but rounding.
#[test]
fn a_function_next_to_its_prior_is_judged_by_the_data() {
    let (posterior, steps) =
        columns(12, 27, 15_513_499_846_284_831_746).fit(fixed(0.015_696_645_783_848_73));
    for pair in posterior.trace.windows(2) {
        assert!(pair[1] >= pair[0] - 1e-9, "{pair:?}");
    }
    gains_are_kept(&posterior.trace, &steps);
}

#[test]
fn gains_of_nearly_dependent_functions_are_achieved_to_their_digits() {
    let (posterior, steps) = counts(5, 9, 8_280_889_448_001_062_670).fit(Settings::default());
    gains_are_kept(&posterior.trace, &steps);
}

/// The alpha of a function rises by a factor of 1e7 and falls again: its variance is then a small part of what it was.
#[test]
fn a_function_that_returns_from_its_prior_keeps_its_digits() {
    let (posterior, steps) = counts(20, 12, 14_118_394_490_576_843_985).fit(Settings::default());
    gains_are_kept(&posterior.trace, &steps);
}

proptest! {
    #![proptest_config(cases(48))]

    #[test]
    fn the_evidence_never_falls_at_fixed_noise(
        n in 5_usize..60, k in 1_usize..50, seed in any::<u64>(), variance in 1e-3..1.0_f64
    ) {
        let (posterior, steps) = columns(n, k, seed).fit(fixed(variance));
        for pair in posterior.trace.windows(2) {
            prop_assert!(pair[1] >= pair[0] - 1e-9 * (1.0 + pair[0].abs()), "{pair:?}");
        }
        gains_are_kept(&posterior.trace, &steps);
    }

    #[test]
    fn predicted_gains_are_achieved_under_every_likelihood(
        n in 5_usize..60, k in 1_usize..30, seed in any::<u64>()
    ) {
        for problem in [columns(n, k, seed), labels(n, k, seed), counts(n, k, seed)] {
            let (posterior, steps) = problem.fit(Settings::default());
            gains_are_kept(&posterior.trace, &steps);
            prop_assert!(posterior.alpha.iter().all(|&a| a.is_finite() && a > 0.0));
            prop_assert!(posterior.mu.iter().all(|m| m.is_finite()));
        }
    }

    #[test]
    fn weights_follow_the_scale_of_their_columns(seed in any::<u64>(), exponent in -6..=6_i32) {
        let c = 10.0_f64.powi(exponent);
        for problem in [columns(40, 6, seed), labels(80, 6, seed), counts(40, 6, seed)] {
            let mut scaled = problem.clone();
            scaled.phi.iter_mut().for_each(|p| *p *= c);
            let (plain, _) = problem.fit(Settings::default());
            let (scaled, _) = scaled.fit(Settings::default());
            prop_assert_eq!(&plain.active, &scaled.active);
            let mu: Vec<f64> = scaled.mu.iter().map(|m| m * c).collect();
            let alpha: Vec<f64> = scaled.alpha.iter().map(|a| a / (c * c)).collect();
            assert_close(&plain.mu, &mu, 1e-6);
            assert_close(&plain.alpha, &alpha, 1e-5);
        }
    }

    #[test]
    fn whole_weights_count_rows(seed in any::<u64>()) {
        let problem = columns(30, 8, seed);
        let weights: Vec<f64> = (0..30_u8).map(|i| f64::from(1 + i % 3)).collect();
        let rows: Vec<usize> = (0..30).flat_map(|i| std::iter::repeat_n(i, 1 + i % 3)).collect();
        let repeated = Problem {
            phi: (0..8).flat_map(|j| rows.iter().map(move |&i| (i, j)))
                .map(|(i, j)| problem.column(j)[i]).collect(),
            n: rows.len(),
            t: rows.iter().map(|&i| problem.t[i]).collect(),
            ..problem.clone()
        };
        let (design, settings) = (problem.design(), Settings::default());
        let (weighted, _) =
            fit_design(&design, Likelihood::Gaussian, &problem.t, Some(weights), settings.clone());
        let (repeated, _) = repeated.fit(settings);
        prop_assert_eq!(&weighted.active, &repeated.active);
        // Beside the largest: the weight of a function that barely gains has few digits of its own.
        let largest = weighted.mu.iter().fold(0.0, |largest: f64, m| largest.max(m.abs()));
        for (a, b) in weighted.mu.iter().zip(&repeated.mu) {
            prop_assert!((a - b).abs() <= 1e-6 * largest, "{a} {b}");
        }
        assert_close(&[weighted.beta], &[repeated.beta], 1e-6);
        assert_close(&weighted.trace[weighted.trace.len() - 1..], &repeated.trace[repeated.trace.len() - 1..], 1e-8);
    }
}
