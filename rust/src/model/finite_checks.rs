//! Checks that all numbers of a fitted model are finite before it is returned.

use crate::{Error, Result};

/// The log evidence does not depend on units: a value that is not finite is an arithmetic breakdown.
pub(crate) fn check_evidence(trace: &[f64], log_evidence: &[f64]) -> Result<()> {
    if trace.iter().chain(log_evidence).all(|v| v.is_finite()) {
        return Ok(());
    }
    let what = "the log evidence";
    Err(Error::Breakdown { what })
}

pub(crate) fn check_precisions(alpha: &[f64], beta: &[f64]) -> Result<()> {
    check("a prior precision", alpha, |v| v > 0.0)?;
    // Its inverse, the noise variance, must also be finite.
    check("the noise precision", beta, |v| {
        v > 0.0 && v.recip().is_finite()
    })
}

pub(crate) fn check_weights(mu: &[f64], sigma: &[f64]) -> Result<()> {
    check("a weight", mu, |_| true)?;
    check("the variance of a weight", sigma, |_| true)
}

/// NaN is an arithmetic breakdown; overflow and underflow come from the caller's units.
fn check(what: &'static str, values: &[f64], is_valid: impl Fn(f64) -> bool) -> Result<()> {
    if values.iter().any(|v| v.is_nan()) {
        return Err(Error::Breakdown { what });
    }
    if values.iter().all(|&v| v.is_finite() && is_valid(v)) {
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
    fn values_that_are_not_finite_are_errors() {
        assert!(check_evidence(&[0.0, -1e300], &[1.0]).is_ok());
        assert!(check_precisions(&[1e-300], &[1e300]).is_ok());
        assert!(check_weights(&[0.0, -1.0], &[0.0]).is_ok());
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert!(check_evidence(&[bad], &[]).is_err());
            assert!(check_evidence(&[], &[bad]).is_err());
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
