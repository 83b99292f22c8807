//! A small problem as it stands in a file: rows, what is made of them, and settings.

use serde::{Deserialize, Serialize};
use sparsebayes::internal::OutputNoise;
use sparsebayes::{Kernel, Noise, Scheme, Search, Settings};

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
    /// mRVM1: E- and M-steps of a multinomial probit from no function on.
    BottomUp,
    /// mRVM2: the same from all functions down.
    TopDown,
    /// The integrals of the probit alone, the values being scores.
    Scores,
}

/// How a fit gets at the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) enum Way {
    /// All of them in memory.
    #[default]
    Whole,
    /// The same, stored row after row.
    Rows,
    /// The functions as two designs side by side, of which the first has so many.
    Joined(usize),
    /// Rows in so many parts whose answers are added up; sums over so many parts.
    Parts(usize),
    /// A dictionary in blocks of these sizes, and a fit that goes on from the sketch of this number, spoilt in one of the
    /// ways of `Spoilt`.
    Blocks {
        sizes: [usize; 5],
        resume: usize,
        spoilt: u8,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Search")]
enum SearchName {
    Greedy,
    Exchange,
}

/// Numbers stand as their bits, for JSON has no NaN; what older files lack has its default.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Problem {
    pub(crate) kind: Kind,
    #[serde(default)]
    pub(crate) way: Way,
    pub(crate) n_rows: usize,
    /// Columns of the design, or features of the points.
    pub(crate) n_columns: usize,
    /// The design column after column, or points row after row.
    #[serde(with = "bits")]
    pub(crate) values: Vec<f64>,
    /// With these the values are points, of which the first few or each are centres; with none they are the design.
    pub(crate) kernels: Vec<Kernel>,
    /// 0: each point is one.
    #[serde(default)]
    pub(crate) n_centres: usize,
    pub(crate) n_outputs: usize,
    #[serde(with = "bits")]
    pub(crate) targets: Vec<f64>,
    /// None of them: rows count alike.
    #[serde(with = "bits")]
    pub(crate) weights: Vec<f64>,
    pub(crate) scheme: u8,
    #[serde(default, with = "SearchName")]
    pub(crate) search: Search,
    #[serde(default)]
    pub(crate) seed: u64,
    /// None of them: the noise is estimated. Of several outputs the first counts for all, or each for its own.
    #[serde(with = "bits")]
    pub(crate) noise: Vec<f64>,
    #[serde(with = "bits")]
    pub(crate) priors: Vec<f64>,
    #[serde(with = "bits")]
    pub(crate) tol: Vec<f64>,
    pub(crate) max_iter: usize,
    /// The watcher ends the fit at this step; 0: never.
    #[serde(default)]
    pub(crate) stop_after: usize,
    /// It does so by the flag that is for other threads.
    #[serde(default)]
    pub(crate) by_flag: bool,
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
    pub(crate) fn settings(&self) -> Settings {
        let schemes = [
            Scheme::Sequential,
            Scheme::MacKay,
            Scheme::Em,
            Scheme::Variational,
        ];
        let prior = |i: usize| self.priors.get(i).copied().unwrap_or(0.0);
        Settings {
            noise: self.noise_of(0),
            tol: self.tol.first().copied().unwrap_or(1e-6),
            max_iter: self.max_iter,
            scheme: schemes[usize::from(self.scheme) % 4],
            alpha_prior: [prior(0), prior(1)],
            noise_prior: [prior(2), prior(3)],
            search: self.search,
        }
    }

    fn noise_of(&self, output: usize) -> Noise {
        let given = if self.noise.len() == 1 {
            self.noise.first()
        } else {
            self.noise.get(output)
        };
        given.map_or(Noise::Estimated, |&v| Noise::Fixed(v))
    }

    /// The noise of several outputs.
    pub(crate) fn levels(&self, shared: bool) -> OutputNoise {
        if shared {
            return OutputNoise::Shared(self.noise_of(0));
        }
        OutputNoise::Own((0..self.n_outputs).map(|c| self.noise_of(c)).collect())
    }

    pub(crate) fn weights(&self) -> Option<Vec<f64>> {
        (!self.weights.is_empty()).then(|| self.weights.clone())
    }

    /// The centres of the kernels, row after row.
    pub(crate) fn centres(&self) -> &[f64] {
        let all = &self.values[..];
        if self.n_centres == 0 {
            return all;
        }
        &all[..all.len().min(self.n_centres * self.n_columns)]
    }

    /// The numbers of the classes and how many there are; none where the targets are no such numbers.
    pub(crate) fn classes(&self) -> Option<(Vec<usize>, usize)> {
        /// More than any problem has.
        const MANY: f64 = 100.0;
        let number = |&t: &f64| {
            let whole = t.fract() == 0.0 && (0.0..MANY).contains(&t);
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // it is one
            whole.then_some(t as usize)
        };
        let labels: Vec<usize> = self.targets.iter().map(number).collect::<Option<_>>()?;
        let n_classes = labels.iter().max().map_or(0, |most| most + 1);
        Some((labels, n_classes))
    }
}
