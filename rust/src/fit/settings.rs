//! What a caller may set (`Settings`) and what a fit may rely on (`Rules`).

use crate::fit::newton::NoiseRange;
use crate::{Error, Result};

/// How the noise variance of a Gaussian likelihood is found.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Noise {
    /// By maximising the marginal likelihood.
    #[default]
    Estimated,
    /// Given: the variance, in the squared units of the targets.
    Fixed(f64),
}

/// Settings of a fit, unchecked.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// Noise variance; used by the Gaussian likelihood alone.
    pub noise: Noise,
    /// Largest |change in ln alpha| and |change in ln beta| at convergence: Tipping & Faul (2003), section 4.4.
    pub tol: f64,
    /// Largest number of steps.
    pub max_iter: usize,
    /// How the precisions are found.
    pub scheme: Scheme,
    /// Shape a and rate b of the Gamma prior of each alpha; zeros: uniform in ln alpha.
    pub alpha_prior: [f64; 2],
    /// Shape c and rate d of the Gamma prior of beta.
    pub noise_prior: [f64; 2],
    /// What is tried once the sequential scheme has come to an optimum.
    pub search: Search,
}

/// How the precisions are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scheme {
    /// Tipping & Faul (2003): functions enter and leave one at a time.
    #[default]
    Sequential,
    /// Tipping (2001), section 2.3: MacKay's updates from the full basis, functions being pruned.
    MacKay,
    /// Tipping (2001), appendix A: expectation-maximisation from the full basis.
    Em,
    /// Bishop & Tipping (2000): a factorised posterior over weights and precisions, from the full basis.
    Variational,
}

/// What is tried once the sequential scheme has come to an optimum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Search {
    /// Nothing, but for a few exchanges where a fit through the Laplace approximation has at most 20 functions.
    #[default]
    Greedy,
    /// Exchanges of a function for another, merges of two into one, splits of one into two.
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
        }
    }
}

/// Settings that passed their checks; the only kind a fit accepts.
#[derive(Debug, Clone, Copy, PartialEq)]
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
            return Err(Error::Invalid {
                what: format!("tol must be a positive number, got {}", self.tol),
            });
        }
        if self.max_iter == 0 {
            return Err(Error::Invalid {
                what: "max_iter must be at least 1, got 0".into(),
            });
        }
        check_noise(self.noise)?;
        check_prior("alpha_prior", self.alpha_prior)?;
        check_prior("noise_prior", self.noise_prior)?;
        if self.alpha_prior[0] > 0.0 && self.alpha_prior[1] == 0.0 {
            let what = "alpha_prior must have a positive rate if it has a positive shape: without one it asks for \
                        infinite precisions; got a rate of 0";
            return Err(Error::Invalid { what: what.into() });
        }
        check_search(&self)?;
        Ok(Rules { settings: self })
    }
}

fn check_search(settings: &Settings) -> Result<()> {
    if settings.search != Search::Greedy && settings.scheme != Scheme::Sequential {
        let what = "search other than 'greedy' needs the sequential scheme";
        return Err(Error::Invalid { what: what.into() });
    }
    Ok(())
}

/// Checks that a noise variance that is given makes sense.
pub(crate) fn check_noise(noise: Noise) -> Result<()> {
    match noise {
        Noise::Fixed(variance) if !(variance.is_finite() && variance > 0.0) => {
            let what = format!(
                "noise_variance must be a positive number, got {variance}; leave it out to estimate it"
            );
            Err(Error::Invalid { what })
        }
        _ => Ok(()),
    }
}

fn check_prior(name: &str, [shape, rate]: [f64; 2]) -> Result<()> {
    const LARGEST: f64 = 1e100;
    if [shape, rate].iter().all(|v| (0.0..=LARGEST).contains(v)) {
        return Ok(());
    }
    let what = format!(
        "{name} must be a shape and a rate, neither negative nor beyond {LARGEST:e}, got ({shape}, {rate}); (0, 0) is uniform \
         in the logarithm"
    );
    Err(Error::Invalid { what })
}

impl Rules {
    /// Whether the prior of each alpha is flat.
    pub(crate) fn has_flat_alphas(&self) -> bool {
        self.alpha_prior.iter().all(|&v| v == 0.0)
    }

    /// Likewise, but to be met less closely: for all but the last of several fits.
    pub(crate) fn loosened(&self) -> Self {
        let tol = self.tol.max(LOOSE_TOL);
        let settings = Settings {
            tol,
            ..self.settings
        };
        Self { settings }
    }

    /// The range of the noise, if it is estimated.
    pub(crate) fn free_noise(&self, range: NoiseRange) -> Option<NoiseRange> {
        (self.noise == Noise::Estimated).then_some(range)
    }
}

impl std::ops::Deref for Rules {
    type Target = Settings;

    fn deref(&self) -> &Settings {
        &self.settings
    }
}

/// Sizes of a fit in blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blocks {
    /// Functions of the first working set.
    pub sample: usize,
    /// Functions of later ones, but for those in the model and those that come in.
    pub working: usize,
    /// Candidates let into the working set after a sweep.
    pub entrants: usize,
    /// Candidates looked at together in a sweep.
    pub block: usize,
    /// Rounds after the first that search for a better model.
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
    /// Checks that there is something in each.
    pub(crate) fn check(&self) -> Result<()> {
        if [self.sample, self.entrants, self.block].contains(&0) {
            let what = "a fit in blocks needs a sample, entrants and a block of at least one function each";
            return Err(Error::Invalid { what: what.into() });
        }
        Ok(())
    }
}

/// Noise variance at the start, as a fraction of the variance of the targets: Tipping & Faul (2003), section 4, step 1.
pub(crate) const START_NOISE: f64 = 0.1;

/// Least estimate of the noise variance, as a fraction of the variance of the targets. Noise-free data have no optimum
/// short of zero; this is where we stop and say so.
pub(crate) const NOISE_FLOOR: f64 = 1e-6;

/// A function outside with less to gain than this many nats counts as having none.
pub(crate) const LEAST_GAIN: f64 = 1e-7;

/// Candidates compared with one another before a block is added.
pub(crate) const SHORTLIST: usize = 32;

/// How far a loop goes before it calls itself done.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    /// Functions with less to gain than this many nats are not added.
    pub(crate) gain: f64,
    /// Re-estimations of a single alpha that gain less than this are left undone.
    pub(crate) step: f64,
    /// Steps on all hyperparameters together go on until each is this close to its maximum; infinite: there are none.
    pub(crate) tol: f64,
}

/// While the noise is held.
pub(crate) const HELD: Effort = Effort {
    gain: 1.0,
    step: 0.3,
    tol: f64::INFINITY,
};

/// Once it is free, until the dictionary has little to offer.
pub(crate) const FREE: Effort = Effort {
    gain: 0.1,
    step: COARSE_GAIN,
    tol: f64::INFINITY,
};

/// For a trial of a search that is worth it.
pub(crate) const TRIAL: Effort = Effort {
    gain: 0.01,
    step: FINE_STEP,
    tol: f64::INFINITY,
};

/// Candidates of a first model in a dictionary too large to take whole, and those let in together later.
pub(crate) const SAMPLE: usize = 256;

/// The same where the Gram matrix is made anew at each mode.
pub(crate) const SMALL_SAMPLE: usize = 128;

/// Candidates that come closest to gaining, kept at hand for when the others have moved.
pub(crate) const CONTENDERS: usize = 192;

/// Searches, each on a pool filled anew about the model that the last one found.
pub(crate) const SEARCHES: usize = 2;

/// Searches of a fit of `n` rows: where a pass over them takes less than a search, the second would be a large part of the fit.
pub(crate) fn searches(n: f64) -> usize {
    const FEW_ROWS: f64 = 1280.0;
    if n < FEW_ROWS { 1 } else { SEARCHES }
}

/// Neighbourhoods that a search of `n` rows tries: its cost stays a fraction of that of a pass over the dictionary.
pub(crate) fn trials(n: f64) -> usize {
    const PER_ROW: f64 = 0.04;
    // Between 30 and 48, so the conversion is exact.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let trials = (PER_ROW * n).clamp(30.0, 48.0) as usize;
    trials
}

/// Neighbourhoods tried in a row, none of which led to a better model, after which a search is over: they begin where a model is
/// loosest.
pub(crate) const MOST_IN_VAIN: usize = 16;

/// Neighbourhoods tried at a time, each from the same model.
pub(crate) const TRIALS_AT_A_TIME: usize = 4;

/// A trial that ends this many nats below the best is not worth settling.
pub(crate) const HOPELESS: f64 = 3.0;

/// Functions that a search takes out together. On 36 sinc problems (K <= 251) one round with 4 raised the evidence by 0.9
/// nats in the mean and the worst case (against SparseBayes V2's optimum) by 3.2; 1, 2, 3, 6 and 8 did less.
pub(crate) const NEIGHBOURHOOD: usize = 4;

/// Up to this size a dictionary is taken whole, into one pool.
pub(crate) const WHOLE: usize = 512;

/// Beyond it, a search considers this many candidates for the place of each active function. On the 2-D sinc at N = 1000 to 4000
/// 12 end a nat or so above 8 and 6 in the mean and in the worst of 28 problems.
pub(crate) const STAND_INS: usize = 12;

/// A search has to raise the evidence by this many nats to count.
pub(crate) const LEAST_IMPROVEMENT: f64 = 0.01;

/// An exchange of functions that gains less than this many nats counts as gaining nothing.
pub(crate) const LEAST_EXCHANGE: f64 = 1e-3;

/// Functions added between two passes over the dictionary where pools have failed.
pub(crate) const BLOCK: usize = 8;

/// A member of a block has at least this fraction of the gain of its first; others wait for the next pass.
pub(crate) const BLOCK_RATIO: f64 = 0.1;

/// Candidates whose part outside the span of the model is below this (squared, relative) are nothing but rounding.
pub(crate) const ALIGNED: f64 = 1e-11;

/// Between passes the active set is settled to this; to `tol` once the dictionary has nothing to offer.
pub(crate) const LOOSE_TOL: f64 = 1e-2;

/// One function at a time while a step gains more nats than this; then all of them together.
pub(crate) const COARSE_GAIN: f64 = 0.05;

/// The same where functions on their way out are to leave by single steps, which take them all the way.
pub(crate) const FINE_STEP: f64 = 0.003;

/// Times a function may enter for less than a thousandth of a nat before it is kept out.
pub(crate) const LEAST_ENTRIES: u8 = 8;

/// Times a function may enter at all.
pub(crate) const MOST_ENTRIES: u8 = 40;
