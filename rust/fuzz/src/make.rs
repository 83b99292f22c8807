//! Arbitrary small problems: which kind, which way to the rows, which settings.

use sparsebayes::Search;

use crate::numbers::{kernels, targets, values, weights};
use crate::problem::{Kind, Problem, Way};
use crate::random::Random;

/// In how many ways a sketch is spoilt.
const SPOILT: usize = 16;

impl Problem {
    pub(crate) fn make(random: &mut Random) -> Self {
        let mut this = Self::any(random);
        if matches!(this.way, Way::Blocks { .. }) && !random.one_in(20) {
            // All else is refused.
            (this.scheme, this.search) = (0, Search::Greedy);
        }
        if matches!(this.kind, Kind::TopDown | Kind::BottomUp) {
            // Where rounding keeps them from their tolerance the machines take all steps that they are given.
            this.max_iter = this.max_iter.min(1000);
        }
        this
    }

    fn any(random: &mut Random) -> Self {
        let kind = some_kind(random);
        let n_rows = some_rows(random);
        let with_kernels = takes_kernels(kind) && random.one_in(3);
        let n_columns = some_columns(kind, with_kernels, random);
        let values = values(n_rows, n_columns, with_kernels, random);
        let several = matches!(kind, Kind::Outputs { .. });
        let n_outputs = if several { 1 + random.below(3) } else { 1 };
        let sequential = random.one_in(2);
        let scheme = if sequential { 0 } else { random.byte() % 4 };
        // The most is what users have who do not say.
        let most = if random.one_in(20) { 100_000 } else { 1000 };
        Self {
            kind,
            way: some_way(kind, n_columns, random),
            n_rows,
            n_columns,
            kernels: if with_kernels {
                kernels(n_columns, random)
            } else {
                Vec::new()
            },
            n_centres: if random.one_in(4) {
                random.below(n_rows + 1)
            } else {
                0
            },
            n_outputs,
            targets: (0..n_outputs)
                .flat_map(|_| targets(kind, n_rows, &values, random))
                .collect(),
            values,
            weights: sometimes(random, |random| weights(n_rows, random)),
            scheme,
            search: some_search(scheme, random),
            seed: if random.one_in(2) { 0 } else { random.next() },
            noise: sometimes(random, |random| {
                let n = if several { 1 + random.below(3) } else { 1 };
                (0..n).map(|_| some_noise(random)).collect()
            }),
            priors: some_priors(random),
            tol: vec![if random.one_in(50) {
                random.wild()
            } else {
                random.magnitude(-9.0, -1.0)
            }],
            max_iter: *random.pick(&[1, 3, 50, 300, most, most]),
            stop_after: if random.one_in(12) {
                1 + random.below(30)
            } else {
                0
            },
            by_flag: random.one_in(2),
        }
    }
}

fn some_kind(random: &mut Random) -> Kind {
    *random.pick(&[
        Kind::Gaussian,
        Kind::Gaussian,
        Kind::Gaussian,
        Kind::Bernoulli,
        Kind::Bernoulli,
        Kind::Bernoulli,
        Kind::Poisson,
        Kind::Poisson,
        Kind::Classes,
        Kind::Classes,
        Kind::Outputs { shared: false },
        Kind::Outputs { shared: true },
        Kind::Sums,
        Kind::BottomUp,
        Kind::TopDown,
        Kind::Scores,
    ])
}

fn takes_kernels(kind: Kind) -> bool {
    !matches!(kind, Kind::Sums | Kind::TopDown | Kind::Scores)
}

fn some_columns(kind: Kind, with_kernels: bool, random: &mut Random) -> usize {
    match random.below(100) {
        0 => 0,
        1 => 40,
        _ if with_kernels => 1 + random.below(3),
        // Scores of classes.
        _ if kind == Kind::Scores => 1 + random.below(6),
        _ => 1 + random.below(8),
    }
}

fn some_way(kind: Kind, n_columns: usize, random: &mut Random) -> Way {
    let one_predictor = matches!(kind, Kind::Gaussian | Kind::Bernoulli | Kind::Poisson);
    match random.below(8) {
        0 | 1 if one_predictor => some_blocks(random),
        2 if one_predictor || kind == Kind::Sums => Way::Parts(1 + random.below(4)),
        3 => Way::Rows,
        4 => Way::Joined(random.below(n_columns + 1)),
        // Nothing else takes blocks.
        5 if random.one_in(50) => some_blocks(random),
        _ => Way::Whole,
    }
}

fn some_blocks(random: &mut Random) -> Way {
    let size = |random: &mut Random| {
        if random.one_in(50) {
            0
        } else {
            1 + random.below(6)
        }
    };
    Way::Blocks {
        sizes: std::array::from_fn(|_| size(random)),
        resume: random.below(12),
        spoilt: if random.one_in(3) {
            random.byte() % u8::try_from(SPOILT).unwrap_or(1)
        } else {
            0
        },
    }
}

fn some_search(scheme: u8, random: &mut Random) -> Search {
    // Elsewhere it is refused.
    if scheme != 0 && !random.one_in(50) {
        return Search::Greedy;
    }
    *random.pick(&[Search::Greedy, Search::Greedy, Search::Exchange])
}

fn some_rows(random: &mut Random) -> usize {
    let none = random.one_in(200);
    if none { 0 } else { 1 + random.below(12) }
}

/// Numbers one time in three, none of them otherwise.
fn sometimes(random: &mut Random, some: impl Fn(&mut Random) -> Vec<f64>) -> Vec<f64> {
    if random.one_in(3) {
        some(random)
    } else {
        Vec::new()
    }
}

fn some_noise(random: &mut Random) -> f64 {
    if random.one_in(20) {
        random.wild()
    } else {
        random.magnitude(-8.0, 4.0)
    }
}

fn some_priors(random: &mut Random) -> Vec<f64> {
    if !random.one_in(6) {
        return Vec::new();
    }
    let one = |random: &mut Random| match random.below(8) {
        0 => random.wild(),
        1..=3 => 0.0,
        _ => random.magnitude(-8.0, 3.0),
    };
    (0..4).map(|_| one(random)).collect()
}
