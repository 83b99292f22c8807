//! Arbitrary small problems: designs, targets, weights and settings, sound and unsound.

use serde::{Deserialize, Serialize};
use sparsebayes::{Kernel, Noise, Scheme, Settings};

use crate::random::Random;

/// What is made of the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    Gaussian,
    Bernoulli,
    Poisson,
    /// Several classes with a softmax.
    Classes,
    /// Several Gaussian outputs, with a noise level each or one for all.
    Outputs {
        shared: bool,
    },
    /// A Gaussian likelihood by way of sums over the rows.
    Sums,
}

/// A problem as it stands in a file: numbers as their bits, for JSON has no NaN.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Problem {
    pub(crate) kind: Kind,
    pub(crate) n_rows: usize,
    /// Columns of the design, or features of the points.
    pub(crate) n_columns: usize,
    /// The design column after column, or points row after row.
    #[serde(with = "bits")]
    pub(crate) values: Vec<f64>,
    /// With these the values are points, and each is a centre; with none they are the design.
    pub(crate) kernels: Vec<Kernel>,
    pub(crate) n_outputs: usize,
    #[serde(with = "bits")]
    pub(crate) targets: Vec<f64>,
    /// None of them: rows count alike.
    #[serde(with = "bits")]
    pub(crate) weights: Vec<f64>,
    scheme: u8,
    /// None of them: the noise is estimated.
    #[serde(with = "bits")]
    noise: Vec<f64>,
    #[serde(with = "bits")]
    priors: Vec<f64>,
    #[serde(with = "bits")]
    tol: Vec<f64>,
    max_iter: usize,
    share_alpha: bool,
}

mod bits {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(values: &[f64], to: S) -> Result<S::Ok, S::Error> {
        let bits: Vec<u64> = values.iter().map(|v| v.to_bits()).collect();
        bits.serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<f64>, D::Error> {
        let bits = Vec::<u64>::deserialize(from)?;
        Ok(bits.into_iter().map(f64::from_bits).collect())
    }
}

impl Problem {
    pub(crate) fn make(random: &mut Random) -> Self {
        let kind = some_kind(random);
        let n_rows = some_rows(random);
        let with_kernels = kind != Kind::Sums && random.one_in(3);
        let n_columns = match random.below(100) {
            0 => 0,
            1 => 40,
            _ if with_kernels => 1 + random.below(3),
            _ => 1 + random.below(8),
        };
        let kernels = if with_kernels {
            kernels(n_columns, random)
        } else {
            Vec::new()
        };
        let values = values(n_rows, n_columns, with_kernels, random);
        let several = matches!(kind, Kind::Outputs { .. });
        let n_outputs = if several { 1 + random.below(3) } else { 1 };
        let targets = (0..n_outputs)
            .flat_map(|_| targets(kind, n_rows, &values, random))
            .collect();
        let weights = sometimes(random, |random| weights(n_rows, random));
        // The most is what users have who do not say.
        let most = if random.one_in(20) { 100_000 } else { 1000 };
        let max_iter = *random.pick(&[1, 3, 50, 300, most]);
        let sequential = random.one_in(2);
        let scheme = if sequential { 0 } else { random.byte() % 4 };
        let share_alpha = kind == Kind::Classes && scheme == 0 && random.one_in(2);
        Self {
            kind,
            n_rows,
            n_columns,
            values,
            kernels,
            n_outputs,
            targets,
            weights,
            scheme,
            noise: sometimes(random, |random| vec![some_noise(random)]),
            priors: some_priors(share_alpha, random),
            tol: vec![if random.one_in(50) {
                random.wild()
            } else {
                random.magnitude(-9.0, -1.0)
            }],
            max_iter,
            share_alpha,
        }
    }

    pub(crate) fn settings(&self) -> Settings {
        let schemes = [
            Scheme::Sequential,
            Scheme::MacKay,
            Scheme::Em,
            Scheme::Variational,
        ];
        let prior = |i: usize| self.priors.get(i).copied().unwrap_or(0.0);
        Settings {
            noise: self
                .noise
                .first()
                .map_or(Noise::Estimated, |&v| Noise::Fixed(v)),
            tol: self.tol.first().copied().unwrap_or(1e-6),
            max_iter: self.max_iter,
            scheme: schemes[usize::from(self.scheme) % 4],
            alpha_prior: [prior(0), prior(1)],
            noise_prior: [prior(2), prior(3)],
            share_alpha: self.share_alpha,
            ..Settings::default()
        }
    }
}

fn some_kind(random: &mut Random) -> Kind {
    *random.pick(&[
        Kind::Gaussian,
        Kind::Gaussian,
        Kind::Bernoulli,
        Kind::Bernoulli,
        Kind::Poisson,
        Kind::Classes,
        Kind::Outputs { shared: false },
        Kind::Outputs { shared: true },
        Kind::Sums,
    ])
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

fn some_priors(share_alpha: bool, random: &mut Random) -> Vec<f64> {
    if share_alpha || !random.one_in(6) {
        return Vec::new();
    }
    let one = |random: &mut Random| match random.below(8) {
        0 => random.wild(),
        1..=3 => 0.0,
        _ => random.magnitude(-8.0, 3.0),
    };
    (0..4).map(|_| one(random)).collect()
}

fn kernels(d: usize, random: &mut Random) -> Vec<Kernel> {
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
fn values(n: usize, k: usize, points: bool, random: &mut Random) -> Vec<f64> {
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

fn targets(kind: Kind, n: usize, values: &[f64], random: &mut Random) -> Vec<f64> {
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
        Kind::Classes => {
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

fn weights(n: usize, random: &mut Random) -> Vec<f64> {
    let (low, high) = *random.pick(&[(-0.5, 0.5), (-12.0, 12.0), (-300.0, 300.0), (0.0, 0.0)]);
    let mut weights: Vec<f64> = (0..n).map(|_| random.magnitude(low, high)).collect();
    if random.one_in(6) {
        spoil(&mut weights, random);
    }
    weights
}
