//! What a caller may set (`Settings`) and what a fit may rely on (`Rules`).

use crate::fit::newton::NoiseRange;
use crate::fit::tuning::Tuning;
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
        let tol = self.tol.max(Tuning::LOOSE_TOL);
        let settings = Settings {
            tol,
            ..self.settings
        };
        Self { settings }
    }

    /// The range of the noise, if it is estimated.
    pub(crate) fn noise_range(&self) -> Option<NoiseRange> {
        (self.noise == Noise::Estimated).then(NoiseRange::standard)
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
