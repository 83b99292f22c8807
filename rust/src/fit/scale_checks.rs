//! Which numbers a fit can be about: in the units of the loop, and back in those of the caller, whatever is squared on the way
//! stays a number. What is outside is refused with a word on the remedy.

use crate::fit::settings::{Noise, Rules};
use crate::{Error, Result};

/// Spreads of targets between the inverse of this and this have squares, and these have inverses.
const LARGEST_SPREAD: f64 = 1e152;
/// Least noise variance as a fraction of that of the targets: their own rounding makes a part in 1e32, and differences of sums
/// of their squares one in 1e16.
const LEAST_NOISE: f64 = 1e-24;
/// Precisions in the units of the loop, and rates of their priors, lie between the inverse of this and this.
const LARGEST_PRECISION: f64 = 1e100;

/// Checks the unit of the targets, noise that is given, and priors in the units of the loop.
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

/// Checks the unit of the targets.
pub(crate) fn check_scale(scale: f64) -> Result<()> {
    if (LARGEST_SPREAD.recip()..=LARGEST_SPREAD).contains(&scale) {
        return Ok(());
    }
    let what = format!(
        "y has a spread of {scale:e}, whose square is out of range; rescale y to a spread between {:e} and {:e}",
        LARGEST_SPREAD.recip(),
        LARGEST_SPREAD
    );
    Err(Error::Invalid { what })
}

/// Checks noise that is given against the unit of the targets.
pub(crate) fn check_noise(scale: f64, noise: Noise) -> Result<()> {
    let Noise::Fixed(variance) = noise else {
        return Ok(());
    };
    let precision = scale / variance * scale;
    if (LARGEST_PRECISION.recip()..=LEAST_NOISE.recip()).contains(&precision) {
        return Ok(());
    }
    let what = format!(
        "noise_variance is {variance:e} beside a variance of y of {:e}: no arithmetic resolves one beside the other; \
         give another, or none",
        scale * scale
    );
    Err(Error::Invalid { what })
}

fn check_rate(name: &str, rate: f64) -> Result<()> {
    if rate <= LARGEST_PRECISION {
        return Ok(());
    }
    let what = format!(
        "{name} has a rate beyond {LARGEST_PRECISION:e} in units of the spread of y and the lengths of the columns; \
         give a smaller one"
    );
    Err(Error::Invalid { what })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fit::Settings;

    #[test]
    fn sizes_without_squares_are_refused_and_others_are_not() {
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
