//! What a caller may set (`Settings`) and what a fit may rely on (`Rules`).

use crate::fit::newton::NoiseRange;
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
#[derive(Debug, Clone, Copy, PartialEq)]
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
        }
    }
}

/// Checked settings.
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

/// Checks a fixed noise variance.
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
    const MAX: f64 = 1e100;
    if [shape, rate].iter().all(|v| (0.0..=MAX).contains(v)) {
        return Ok(());
    }
    let what = format!(
        "{name} must be a shape and a rate between 0 and {MAX:e}, got ({shape}, {rate}); (0, 0) is uniform in the \
         logarithm"
    );
    Err(Error::Invalid { what })
}

impl Rules {
    /// Whether the prior of each alpha is flat.
    pub(crate) fn has_flat_alphas(&self) -> bool {
        self.alpha_prior.iter().all(|&v| v == 0.0)
    }

    /// The same rules with a looser tolerance, for all but the last of several fits.
    pub(crate) fn loosened(&self) -> Self {
        let tol = self.tol.max(Tuning::LOOSE_TOL);
        let settings = Settings {
            tol,
            ..self.settings
        };
        Self { settings }
    }

    /// The range of the noise precision if it is estimated.
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
            return Err(Error::Invalid { what: what.into() });
        }
        Ok(())
    }
}
