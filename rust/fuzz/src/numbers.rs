//! The numbers of arbitrary problems, sound and unsound: kernels, designs, targets, weights.

use sparsebayes::Kernel;

use crate::problem::Kind;
use crate::random::Random;

pub(crate) fn kernels(d: usize, random: &mut Random) -> Vec<Kernel> {
    let number = |random: &mut Random| match random.below(10) {
        0 => random.wild_and_finite().abs(),
        1 => random.magnitude(-30.0, 30.0),
        _ => random.magnitude(-2.0, 1.0),
    };
    let one = |random: &mut Random| match random.below(6) {
        0 => Kernel::Gaussian {
            inverse_square_widths: vec![number(random); d.max(1)],
        },
        1 => Kernel::Laplacian {
            gamma: number(random),
        },
        2 => Kernel::Polynomial {
            degree: if random.one_in(20) {
                u32::MAX
            } else {
                1 + u32::from(random.byte() % 5)
            },
            gamma: number(random),
            coef0: random.normal(),
        },
        3 => Kernel::Sigmoid {
            gamma: number(random),
            coef0: number(random),
        },
        4 => Kernel::LinearSpline,
        _ => Kernel::Linear,
    };
    match random.below(4) {
        0 => vec![one(random), one(random)],
        1 => vec![Kernel::Sum(vec![
            one(random),
            Kernel::Product(vec![one(random), one(random)]),
        ])],
        _ => vec![one(random)],
    }
}

/// The size of numbers: mostly near one, sometimes anything.
fn size(random: &mut Random) -> f64 {
    match random.below(12) {
        0 => random.magnitude(-320.0, 308.0),
        1 => random.magnitude(-150.0, 150.0),
        2 => random.magnitude(-15.0, 15.0),
        _ => random.magnitude(-1.0, 1.0),
    }
}

/// A design column after column, or points row after row.
pub(crate) fn values(n: usize, k: usize, points: bool, random: &mut Random) -> Vec<f64> {
    let (outer, inner) = if points { (n, k) } else { (k, n) };
    let scale = size(random);
    let own_scales = random.one_in(8);
    let style = random.below(8);
    let mut values: Vec<f64> = Vec::with_capacity(n * k);
    for at in 0..outer {
        let scale = if own_scales { size(random) } else { scale };
        // Repeated, nearly repeated or summed vectors.
        if at > 0 && (style == 7 || random.one_in(6)) {
            let from = random.below(at) * inner;
            let factor = *random.pick(&[1.0, 1.0, -1.0, 2.0, 1.0 + 1e-15, 1.0 + 1e-9]);
            let noise = *random.pick(&[0.0, 0.0, 1e-16, 1e-8]) * scale;
            for i in 0..inner {
                values.push(values[from + i] * factor + noise * random.normal());
            }
            continue;
        }
        for _ in 0..inner {
            values.push(match style {
                0 => scale,
                1 => scale * (random.below(3) as f64),
                2 => random.magnitude(-320.0, 300.0),
                3 if random.one_in(2) => 0.0,
                _ => scale * random.normal(),
            });
        }
    }
    spoil(&mut values, random);
    values
}

/// Now and then something wild among the others.
fn spoil(values: &mut [f64], random: &mut Random) {
    if values.is_empty() {
        return;
    }
    if random.one_in(12) {
        let at = random.below(values.len());
        values[at] = random.wild_and_finite();
    }
    if random.one_in(60) {
        let at = random.below(values.len());
        values[at] = random.wild();
    }
}

pub(crate) fn targets(kind: Kind, n: usize, values: &[f64], random: &mut Random) -> Vec<f64> {
    let mut targets: Vec<f64> = match kind {
        Kind::Gaussian | Kind::Outputs { .. } | Kind::Sums => {
            let (scale, style) = (size(random), random.below(6));
            let noise = *random.pick(&[0.0, 1e-12, 0.1, 1.0]);
            let mut one = |i: usize| match style {
                0 => scale,
                1 => 0.0,
                // An exact multiple of what the design begins with.
                2 => values.get(i).map_or(0.0, |v| v * scale) + noise * random.normal(),
                _ => scale * random.normal(),
            };
            (0..n).map(&mut one).collect()
        }
        Kind::Bernoulli => {
            let style = random.below(4);
            (0..n)
                .map(|i| match style {
                    0 => 1.0,
                    1 => f64::from(values.get(i).is_some_and(|&v| v > 0.0)),
                    _ => random.below(2) as f64,
                })
                .collect()
        }
        Kind::Poisson => {
            let scale = if random.one_in(6) { size(random) } else { 5.0 };
            (0..n).map(|_| (scale * random.unit()).round()).collect()
        }
        Kind::Classes | Kind::BottomUp | Kind::TopDown | Kind::Scores => {
            let classes = 2 + random.below(3);
            let mut all: Vec<f64> = (0..n).map(|i| (i % classes) as f64).collect();
            if random.one_in(2) {
                all.sort_by(f64::total_cmp);
            }
            all
        }
    };
    if random.one_in(3) {
        spoil(&mut targets, random);
    }
    targets
}

pub(crate) fn weights(n: usize, random: &mut Random) -> Vec<f64> {
    let (low, high) = *random.pick(&[(-0.5, 0.5), (-12.0, 12.0), (-300.0, 300.0), (0.0, 0.0)]);
    let mut weights: Vec<f64> = (0..n).map(|_| random.magnitude(low, high)).collect();
    if random.one_in(6) {
        spoil(&mut weights, random);
    }
    weights
}
