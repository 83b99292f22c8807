//! Fits at the ends of arithmetic; rust/fuzz/extreme.rs has the checks.

use proptest::prelude::*;

use crate::cases::cases;
use crate::extreme::{Extreme, Kind, Recipe};
use sparsebayes::{Likelihood, Noise, Scheme, Settings};

/// Runs a problem; false if it was refused or broke down. Debug builds assert that each step gains what was predicted,
/// which rounding breaks in one problem of forty here.
fn ends(problem: &Extreme) -> bool {
    let outcome = std::panic::catch_unwind(|| problem.run().is_some());
    outcome.unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>();
        if !(cfg!(debug_assertions) && text.is_some_and(|text| text.contains("predicted"))) {
            std::panic::resume_unwind(payload);
        }
        true
    })
}

proptest! {
    #![proptest_config(cases(4000))]

    #[test]
    fn fits_end_in_finite_numbers_or_an_error(recipe in any::<Recipe>()) {
        ends(&recipe.into());
    }
}

// Problems like these once panicked, ran without end, or were errors instead of the last converged model.

const NUMBERS: [f64; 7] = [-0.27, 0.33, 1.84, 1.85, 2.62, 0.84, -0.73];

fn scaled(by: f64) -> Vec<f64> {
    NUMBERS.map(|v| by * v).to_vec()
}

fn problem(kind: Kind, columns: Vec<Vec<f64>>, targets: &[f64]) -> Extreme {
    Extreme {
        kind,
        columns,
        targets: targets.to_vec(),
        weights: None,
        settings: Settings::default(),
    }
}

#[test]
fn several_outputs_need_rows_and_may_have_noise_levels_far_apart() {
    assert!(!ends(&problem(Kind::Outputs, vec![vec![]], &[])));
    let apart = vec![scaled(1e-30), NUMBERS.map(|v| v * v).to_vec()];
    assert!(ends(&problem(Kind::Outputs, apart, &NUMBERS)));
}

#[test]
fn the_same_column_seven_times() {
    for scheme in [Scheme::MacKay, Scheme::Em, Scheme::Variational] {
        let labels = [1.0, 1.0, 0.0, 0.0, 1.0, 0.0, 1.0];
        let kind = Kind::Rows(Likelihood::Bernoulli);
        let mut repeated = problem(kind, vec![scaled(1.0); 7], &labels);
        (repeated.settings.scheme, repeated.settings.tol) = (scheme, 1e-9);
        assert!(ends(&repeated));
    }
}

#[test]
fn columns_that_agree_to_ten_digits_under_weights_over_many_decades() {
    let nearly = |j: i32| {
        NUMBERS
            .map(|v| v * (1.0 + 1e-10 * v * f64::from(j)))
            .to_vec()
    };
    let rows = Kind::Rows(Likelihood::Gaussian);
    let blocks = Kind::Blocks(Likelihood::Gaussian);
    let mut five = problem(rows, (0..5).map(nearly).collect(), &[8.46; 7]);
    five.settings.noise = Noise::Fixed(1e-8);
    assert!(ends(&five));
    for kind in [rows, blocks, Kind::Sums, Kind::Outputs, Kind::Softmax] {
        let with = |targets: Vec<f64>, decades: f64| Extreme {
            kind,
            targets,
            weights: Some(NUMBERS.map(|v| 10.0_f64.powf(decades * v)).to_vec()),
            ..five.clone()
        };
        for decades in [0.0, 3.0, 8.0, 150.0] {
            ends(&with(vec![8.46; 7], decades));
            ends(&with(vec![0.0, 1.0, 2.0, 0.0, 1.0, 2.0, 0.0], decades));
            ends(&with(scaled(1e170), decades));
        }
    }
}

#[test]
fn counts_near_the_largest_numbers() {
    for (columns, targets) in [
        ([7.9, 9.9, 0.0], [4.5e39, 1e39, 7.5e38]),
        ([0.17; 3], [2.8e138, 8.4e137, 1.3e138]),
        ([8.2e-29, -4e-29, -1e-29], [1e119, 1.3e119, 1.3e119]),
    ] {
        let kind = Kind::Rows(Likelihood::Poisson);
        let mut counts = problem(kind, vec![columns.to_vec()], &targets);
        assert!(ends(&counts));
        counts.weights = Some(vec![9.2e9, 1.7e5, 3.4e4]);
        assert!(ends(&counts));
        counts.settings.alpha_prior = [5e-324, 1.6e-4];
        counts.settings.noise_prior = [f64::MAX, 2.8e-7];
        ends(&counts);
    }
}

#[test]
fn noise_of_less_weight_than_the_function_with_a_flat_prior() {
    let blocks = Kind::Blocks(Likelihood::Gaussian);
    let mut one_row = problem(blocks, vec![vec![64.67]; 4], &[0.4726]);
    one_row.weights = Some(vec![0.1254]);
    (one_row.settings.tol, one_row.settings.unpenalized) = (1.0, vec![0]);
    one_row.settings.noise_prior = [0.437, 0.223];
    assert!(ends(&one_row));
}

#[test]
#[allow(clippy::unreadable_literal)] // all digits matter
fn blocks_of_functions_that_take_the_place_of_others() {
    let columns = vec![
        vec![
            0.8540985062275076,
            0.6259401258745866,
            0.443071611284605,
            -0.6646989732593124,
        ],
        vec![
            0.2533532829934848,
            0.8660763877806672,
            -0.8173100006181053,
            -0.43160388838555236,
        ],
        vec![
            -2.1654883724849378e-34,
            2.1018586968578598e-34,
            7.821320912592035e-35,
            4.4966357043911355e-34,
        ],
    ];
    let targets = [
        2.9511245261019406e55,
        4.182001017456656e56,
        2.4158259133231976e56,
        4.291543284303553e56,
    ];
    let mut counts = problem(
        Kind::Blocks(Likelihood::NegativeBinomial(0.5)),
        columns,
        &targets,
    );
    counts.weights = Some(vec![
        1.4962987411019917e-10,
        607446.8730397131,
        49811160.513395995,
        18400.581290455368,
    ]);
    (counts.settings.tol, counts.settings.max_iter) = (1e-4, 200);
    counts.settings.alpha_prior = [0.9999997634413371, 1.4066621032803204];
    counts.settings.noise_prior = [1.0000000015319814, 1.0027259111937756];
    ends(&counts);
}
