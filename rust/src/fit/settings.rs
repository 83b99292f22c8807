//! Settings of the caller, their checks, the checked rules of a fit, and noise levels with their ranges.

use crate::data::Facts;
use crate::fit::tuning::Tuning;
use crate::{Error, Result};

/// The noise variance of a Gaussian likelihood.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Noise {
    /// Estimated by maximizing the marginal likelihood.
    #[default]
    Estimated,
    /// Fixed at this variance, in the squared units of the targets.
    Fixed(f64),
}

/// Settings of a fit, unchecked.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Noise variance of a Gaussian likelihood; others ignore it.
    pub noise: Noise,
    /// Largest |change in ln alpha| and |change in ln beta| at convergence: Tipping & Faul (2003), section 4.4.
    pub tol: f64,
    /// Largest number of steps.
    pub max_iter: usize,
    /// How the precisions are estimated.
    pub scheme: Scheme,
    /// Shape a and rate b of the Gamma prior of each alpha; zeros: uniform in ln alpha.
    pub alpha_prior: [f64; 2],
    /// Shape c and rate d of the Gamma prior of beta.
    pub noise_prior: [f64; 2],
    /// The search for a better optimum after the sequential scheme.
    pub search: Search,
    /// Functions of the dictionary that have a flat prior, ascending: alpha = 0, always in the model. Mostly 0, the intercept. Of a
    /// softmax not those of all classes: the same constant added to all logits changes no probability.
    pub unpenalized: Vec<usize>,
    /// The prior on the complexity of the model.
    pub complexity: Complexity,
}

/// The weight c of the prior exp(-c tr S), where S maps targets to fitted values: Schmolck & Everson (2007).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Complexity {
    /// This weight; 0 is the model of Tipping (2001), 1 corresponds to Akaike's criterion.
    Weight(f64),
    /// (ln N) / 2 for rows of total weight N: Schwarz's criterion.
    Bic,
    /// (ln N + (ln p) / C) / 2 for p functions in the dictionary of C outputs, which share a choice: the extended criterion of Chen & Chen
    /// (2008) with gamma = 1/2.
    Ebic,
}

impl Complexity {
    /// c for these data.
    pub(crate) fn weight(self, facts: &Facts, n_outputs: usize) -> f64 {
        let half_log = |n: f64| 0.5 * n.max(1.0).ln();
        match self {
            Self::Weight(c) => c,
            Self::Bic => half_log(facts.n_obs),
            Self::Ebic => {
                let p = facts.n_basis() / facts.n_predictors.max(1);
                half_log(facts.n_obs) + half_log(p as f64) / n_outputs as f64
            }
        }
    }
}

impl Default for Complexity {
    fn default() -> Self {
        Self::Weight(0.0)
    }
}

/// How the precisions are estimated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scheme {
    /// Tipping & Faul (2003): functions are added and deleted one at a time.
    #[default]
    Sequential,
    /// Tipping (2001), section 2.3: MacKay's updates from the full basis, with pruning.
    MacKay,
    /// Tipping (2001), appendix A: expectation-maximisation from the full basis.
    Em,
    /// Bishop & Tipping (2000): a factorised posterior over weights and precisions, from the full basis.
    Variational,
}

/// The search for a better optimum after the sequential scheme.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Search {
    /// None, except a few exchanges after a Laplace fit with at most 20 functions.
    #[default]
    Greedy,
    /// Exchanges of one function for another, merges of two functions, and splits of one.
    Exchange,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            noise: Noise::Estimated,
            tol: 1e-6,
            max_iter: 100_000,
            scheme: Scheme::Sequential,
            alpha_prior: [0.0; 2],
            noise_prior: [0.0; 2],
            search: Search::Greedy,
            unpenalized: Vec::new(),
            complexity: Complexity::default(),
        }
    }
}

/// Checked settings.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Rules {
    settings: Settings,
}

impl Settings {
    /// Checks every setting.
    ///
    /// # Errors
    /// [`Error::Invalid`] naming the setting, its value and the remedy.
    pub fn check(self) -> Result<Rules> {
        if !(self.tol.is_finite() && self.tol > 0.0) {
            return invalid(format!("tol must be a positive number, got {}", self.tol));
        }
        if self.max_iter == 0 {
            return invalid("max_iter must be at least 1, got 0");
        }
        check_noise(self.noise)?;
        check_prior("alpha_prior", self.alpha_prior)?;
        check_prior("noise_prior", self.noise_prior)?;
        if self.alpha_prior[0] > 0.0 && self.alpha_prior[1] == 0.0 {
            let what = "alpha_prior must have a positive rate if it has a positive shape: without one it asks for \
                        infinite precisions; got a rate of 0";
            return invalid(what);
        }
        if let Complexity::Weight(c) = self.complexity
            && !(0.0..=Tuning::MAX_COMPLEXITY).contains(&c)
        {
            let most = Tuning::MAX_COMPLEXITY;
            return invalid(format!(
                "complexity must be between 0 and {most:e}, got {c}"
            ));
        }
        if self.complexity != Complexity::default() && self.scheme != Scheme::Sequential {
            return invalid("complexity other than 'none' needs the sequential scheme");
        }
        if !self.unpenalized.is_empty() && self.scheme == Scheme::Variational {
            return invalid("unpenalized needs a scheme other than 'variational'");
        }
        if self.search != Search::Greedy && self.scheme != Scheme::Sequential {
            return invalid("search other than 'greedy' needs the sequential scheme");
        }
        Ok(Rules { settings: self })
    }
}

fn invalid<T>(what: impl Into<String>) -> Result<T> {
    let what = what.into();
    Err(Error::Invalid { what })
}

/// Checks a fixed noise variance.
pub(crate) fn check_noise(noise: Noise) -> Result<()> {
    match noise {
        Noise::Fixed(variance) if !(variance.is_finite() && variance > 0.0) => {
            let what = format!(
                "noise_variance must be a positive number, got {variance}; leave it out to estimate it"
            );
            invalid(what)
        }
        _ => Ok(()),
    }
}

fn check_prior(name: &str, [shape, rate]: [f64; 2]) -> Result<()> {
    if [shape, rate]
        .iter()
        .all(|v| (0.0..=Tuning::MAX_PRECISION).contains(v))
    {
        return Ok(());
    }
    let what = format!(
        "{name} must be a shape and a rate between 0 and {:e}, got ({shape}, {rate}); (0, 0) is uniform in the \
         logarithm",
        Tuning::MAX_PRECISION
    );
    invalid(what)
}

impl Rules {
    /// Whether the prior of each alpha is flat.
    pub(crate) fn has_flat_alphas(&self) -> bool {
        self.alpha_prior.iter().all(|&v| v == 0.0)
    }

    /// These rules with a looser tolerance, for all but the last of several fits.
    pub(crate) fn loosened(&self) -> Self {
        let mut rules = self.clone();
        rules.settings.tol = self.tol.max(Tuning::LOOSE_TOL);
        rules
    }

    /// These rules for a dictionary of the functions `members` only, which ascend and include those with a flat prior.
    pub(crate) fn among(&self, members: &[usize]) -> Self {
        let mut rules = self.clone();
        for j in &mut rules.settings.unpenalized {
            *j = members.partition_point(|member| member < j);
        }
        rules
    }
}

impl std::ops::Deref for Rules {
    type Target = Settings;

    fn deref(&self) -> &Settings {
        &self.settings
    }
}

/// The noise levels of several outputs.
#[derive(Debug, Clone, PartialEq)]
pub enum OutputNoise {
    /// One level for all outputs.
    Shared(Noise),
    /// One level for each output.
    Own(Vec<Noise>),
}

/// A noise precision in the units of the fit, with its range.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct NoisePrecision {
    pub(crate) beta: f64,
    /// The precision from which an estimate starts.
    pub(crate) start: f64,
    /// Smallest estimate, so that variances do not overflow, and largest, the noise floor; `None` if the precision is given.
    range: Option<[f64; 2]>,
}

impl NoisePrecision {
    /// The precision of targets of this variance; `scale` is the unit of the targets.
    pub(crate) fn new(noise: Noise, variance: f64, scale: f64) -> Self {
        let start = 1.0 / (Tuning::INITIAL_NOISE * variance);
        match noise {
            Noise::Fixed(given) => Self {
                beta: scale * scale / given,
                start,
                range: None,
            },
            Noise::Estimated => Self {
                beta: start,
                start,
                range: Some([
                    f64::MIN_POSITIVE.sqrt() / variance,
                    1.0 / (Tuning::NOISE_FLOOR * variance),
                ]),
            },
        }
    }

    /// This precision for targets of which only a part of this variance is to be explained.
    pub(crate) fn of_rest(self, variance: f64) -> Self {
        let start = self.start;
        // Below, the rest is round-off of the targets.
        let least = Tuning::ROUNDING / (Tuning::INITIAL_NOISE * start);
        let share = Tuning::INITIAL_NOISE * start * variance.max(least);
        let range = self.range.map(|ends| ends.map(|end| end / share));
        let start = start / share;
        Self {
            beta: range.map_or(self.beta, |_| start),
            start,
            range,
        }
    }

    /// A given precision.
    pub(crate) fn fixed(beta: f64) -> Self {
        Self {
            beta,
            start: beta,
            range: None,
        }
    }

    pub(crate) fn is_estimated(self) -> bool {
        self.range.is_some()
    }

    /// Whether the precision is estimated and at the noise floor.
    pub(crate) fn at_floor(self) -> bool {
        self.range.is_some_and(|[_, max]| self.beta >= max)
    }

    /// `beta` limited to the range. A value below the end only by round-off becomes the end, so that it counts as at the floor.
    pub(crate) fn limited(self, beta: f64) -> f64 {
        match self.range {
            Some([_, max]) if beta > (1.0 - Tuning::ROUNDING) * max => max,
            Some([min, _]) => beta.max(min),
            None => beta,
        }
    }

    /// The estimate `next` limited to the range; the present precision if it is given.
    pub(crate) fn moved(self, next: impl FnOnce() -> f64) -> f64 {
        self.range
            .map_or(self.beta, |[min, max]| next().min(max).max(min))
    }

    /// A fraction of a sum of squares as precision; the noise floor where that is zero.
    pub(crate) fn ratio(self, degrees: f64, residual: f64) -> f64 {
        match self.range {
            Some([_, max]) if residual * max <= degrees => max,
            Some([min, _]) => (degrees / residual).max(min),
            None => degrees / residual,
        }
    }

    /// Precisions of a restart, in order. Estimated ones are held at their starts. Given ones rise from those to their values in stages,
    /// whose noise variances are powers of [`Tuning::INITIAL_NOISE`]: with little noise from the start, the first function added would
    /// have to explain all of the data.
    pub(crate) fn stages(levels: &[Self]) -> Vec<Vec<f64>> {
        let end = |noise: Self| {
            if noise.is_estimated() {
                noise.start
            } else {
                noise.beta
            }
        };
        let ratios = levels.iter().map(|&noise| end(noise) / noise.start);
        let largest = ratios.fold(1.0, f64::max);
        let stage = |ratio: f64| {
            let limited = |&noise: &Self| end(noise).min(ratio * noise.start);
            levels.iter().map(limited).collect()
        };
        let ratios = std::iter::successors(Some(1.0), |ratio| Some(ratio / Tuning::INITIAL_NOISE));
        let rising = ratios.take_while(|&ratio| ratio < largest);
        rising.chain([f64::INFINITY]).map(stage).collect()
    }
}

/// Sizes of a fit that reads the dictionary in blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blocks {
    /// Functions in the first working set.
    pub sample: usize,
    /// Functions in later working sets besides active functions and entrants.
    pub working: usize,
    /// Candidates added to the working set after a pass over the dictionary.
    pub entrants: usize,
    /// Candidates evaluated together in a pass.
    pub block: usize,
    /// Rounds after the first in which a search is made.
    pub searches: usize,
}

impl Default for Blocks {
    fn default() -> Self {
        Self {
            sample: 2048,
            working: 2048,
            entrants: 384,
            block: 4096,
            searches: 3,
        }
    }
}

impl Blocks {
    /// Checks that no size is zero, except those that may be.
    pub(crate) fn check(&self) -> Result<()> {
        if [self.sample, self.entrants, self.block].contains(&0) {
            let what = "a fit in blocks needs a sample, entrants and a block of at least one function each";
            return invalid(what);
        }
        Ok(())
    }
}

/// Checks the scale of the targets, a fixed noise variance, and priors in the units of the fit.
pub(crate) fn check_units(scale: f64, norms: &[f64], rules: &Rules, linear: bool) -> Result<()> {
    check_scale(scale)?;
    let square = scale * scale;
    if linear {
        check_noise_scale(scale, rules.noise)?;
        check_rate("noise_prior", rules.noise_prior[1] / square)?;
    }
    let longest = norms.iter().copied().fold(0.0, f64::max);
    check_rate(
        "alpha_prior",
        rules.alpha_prior[1] * (longest / scale).powi(2),
    )
}

/// Checks that the square of the standard deviation of the targets has an inverse.
pub(crate) fn check_scale(scale: f64) -> Result<()> {
    let square = scale * scale;
    if square.is_normal() && square.recip().is_normal() {
        return Ok(());
    }
    invalid(format!(
        "y has the standard deviation {scale:e}, whose square is out of range; rescale y to one between 1e-150 and 1e150"
    ))
}

/// Checks a fixed noise variance against the variance of the targets.
pub(crate) fn check_noise_scale(scale: f64, noise: Noise) -> Result<()> {
    let Noise::Fixed(variance) = noise else {
        return Ok(());
    };
    let precision = scale / variance * scale;
    if (Tuning::MAX_PRECISION.recip()..=Tuning::MIN_NOISE.recip()).contains(&precision) {
        return Ok(());
    }
    let what = format!(
        "noise_variance is {variance:e} and the variance of y is {:e}: double precision cannot resolve both; choose another \
         noise_variance, or leave it out to estimate it",
        scale * scale
    );
    invalid(what)
}

fn check_rate(name: &str, rate: f64) -> Result<()> {
    if rate <= Tuning::MAX_PRECISION {
        return Ok(());
    }
    let what = format!(
        "{name} has a rate above {:e} in units of the standard deviation of y and the norms of the columns; \
         choose a smaller rate",
        Tuning::MAX_PRECISION
    );
    invalid(what)
}
