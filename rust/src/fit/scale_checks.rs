//! Ranges of targets, noise and priors in which no square overflows or underflows, in the units of the fit or of the caller.

use crate::fit::settings::{Noise, Rules};
use crate::{Error, Result};

/// Standard deviations of the targets lie between the inverse of this and this, so that their squares have inverses.
const MAX_STD: f64 = 1e152;
/// Least fixed noise variance as a fraction of the variance of the targets: their own round-off is 1e-32 of it, and that of
/// differences of sums of squares 1e-16.
const MIN_NOISE: f64 = 1e-24;
/// Precisions in the units of the fit, and rates of their priors, lie between the inverse of this and this.
const MAX_PRECISION: f64 = 1e100;

/// Checks the scale of the targets, a fixed noise variance, and priors in the units of the fit.
pub(crate) fn check(scale: f64, norms: &[f64], rules: &Rules, linear: bool) -> Result<()> {
    check_scale(scale)?;
    let square = scale * scale;
    if linear {
        check_noise(scale, rules.noise)?;
        check_rate("noise_prior", rules.noise_prior[1] / square)?;
    }
    let longest = norms.iter().copied().fold(0.0, f64::max);
    check_rate(
        "alpha_prior",
        rules.alpha_prior[1] * (longest / scale).powi(2),
    )
}

/// Checks the standard deviation of the targets.
pub(crate) fn check_scale(scale: f64) -> Result<()> {
    if (MAX_STD.recip()..=MAX_STD).contains(&scale) {
        return Ok(());
    }
    let what = format!(
        "y has the standard deviation {scale:e}, whose square is out of range; rescale y to one between {:e} and {:e}",
        MAX_STD.recip(),
        MAX_STD
    );
    Err(Error::Invalid { what })
}

/// Checks a fixed noise variance against the variance of the targets.
pub(crate) fn check_noise(scale: f64, noise: Noise) -> Result<()> {
    let Noise::Fixed(variance) = noise else {
        return Ok(());
    };
    let precision = scale / variance * scale;
    if (MAX_PRECISION.recip()..=MIN_NOISE.recip()).contains(&precision) {
        return Ok(());
    }
    let what = format!(
        "noise_variance is {variance:e} and the variance of y is {:e}: double precision cannot resolve both; choose another \
         noise_variance, or leave it out to estimate it",
        scale * scale
    );
    Err(Error::Invalid { what })
}

fn check_rate(name: &str, rate: f64) -> Result<()> {
    if rate <= MAX_PRECISION {
        return Ok(());
    }
    let what = format!(
        "{name} has a rate above {MAX_PRECISION:e} in units of the standard deviation of y and the norms of the columns; \
         choose a smaller rate"
    );
    Err(Error::Invalid { what })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fit::Settings;

    #[test]
    fn scales_whose_squares_overflow_are_refused() {
        let rules = Settings::default().check().unwrap();
        for scale in [1e-150, 1.0, 1e150] {
            assert!(check(scale, &[1.0], &rules, true).is_ok());
        }
        for scale in [0.0, 1e-160, 1e160, f64::INFINITY, f64::NAN] {
            let error = check(scale, &[1.0], &rules, true).err().unwrap();
            assert!(error.is_invalid_input() && error.to_string().contains("rescale y"));
        }
        assert!(check_noise(1.0, Noise::Fixed(1e-20)).is_ok());
        assert!(check_noise(1e80, Noise::Fixed(1e150)).is_ok());
        for (scale, variance) in [(1.0, 1e-308), (1e-100, 1.0), (1e150, 1e-150)] {
            assert!(check_noise(scale, Noise::Fixed(variance)).is_err());
        }
        let informative = Settings {
            alpha_prior: [1.0, 1.0],
            ..Settings::default()
        };
        let informative = informative.check().unwrap();
        assert!(check(1.0, &[1e3, 0.0], &informative, false).is_ok());
        assert!(check(1.0, &[0.0, 1e60], &informative, false).is_err());
    }
}
