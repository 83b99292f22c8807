//! Whether a fitted model is one in numbers: no such thing as a converged fit with an infinite weight is ever handed out.

use crate::{Error, Result};

/// The log evidence has no unit that could take it out of range: the arithmetic did.
pub(crate) fn check_sound(trace: &[f64], log_evidence: &[f64]) -> Result<()> {
    if trace.iter().chain(log_evidence).all(|v| v.is_finite()) {
        return Ok(());
    }
    let what = "the log evidence";
    Err(Error::Breakdown { what })
}

pub(crate) fn check_precisions(alpha: &[f64], beta: &[f64]) -> Result<()> {
    check("a prior precision", alpha, |v| v > 0.0)?;
    // The noise variance is its inverse.
    check("the noise precision", beta, |v| {
        v > 0.0 && v.recip().is_finite()
    })
}

pub(crate) fn check_weights(mu: &[f64], sigma: &[f64]) -> Result<()> {
    check("a weight", mu, |_| true)?;
    check("the variance of a weight", sigma, |_| true)
}

/// What is infinite or has vanished has done so in the caller's units; what is no number at all never was one.
fn check(what: &'static str, values: &[f64], fits: impl Fn(f64) -> bool) -> Result<()> {
    if values.iter().any(|v| v.is_nan()) {
        return Err(Error::Breakdown { what });
    }
    if values.iter().all(|&v| v.is_finite() && fits(v)) {
        return Ok(());
    }
    let what = format!(
        "{what} is out of the range of numbers in the units of X and y; rescale the columns of X, the kernel or y"
    );
    Err(Error::Invalid { what })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_is_never_handed_out() {
        assert!(check_sound(&[0.0, -1e300], &[1.0]).is_ok());
        assert!(check_precisions(&[1e-300], &[1e300]).is_ok());
        assert!(check_weights(&[0.0, -1.0], &[0.0]).is_ok());
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert!(check_sound(&[bad], &[]).is_err());
            assert!(check_sound(&[], &[bad]).is_err());
            assert!(check_precisions(&[1.0, bad], &[1.0]).is_err());
            assert!(check_weights(&[1.0], &[bad]).is_err());
        }
        let units = check_precisions(&[0.0], &[1.0]).err().unwrap();
        assert!(units.is_invalid_input() && units.to_string().contains("rescale"));
        assert!(
            !check_weights(&[f64::NAN], &[])
                .err()
                .unwrap()
                .is_invalid_input()
        );
    }
}
