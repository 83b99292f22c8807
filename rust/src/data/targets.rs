//! Targets and sample weights: checks, and the unit of the targets.

use crate::{Error, Result};

/// Checks the targets and the weights of `n` rows, at least one; weights must be positive.
pub(crate) fn check_rows(n: usize, target: &[f64], weights: Option<&[f64]>) -> Result<()> {
    if n == 0 {
        return Err(Error::Invalid {
            what: "X has no rows; at least one is needed".into(),
        });
    }
    check_values(n, target, weights, false)
}

/// Checks the targets and the weights of `n` rows; 0 is a weight if `zero_weights`.
pub(crate) fn check_values(
    n: usize,
    target: &[f64],
    weights: Option<&[f64]>,
    zero_weights: bool,
) -> Result<()> {
    /// Sums of larger weights, or of their products with squares, could overflow, and those of weights below its reciprocal underflow.
    const MAX_WEIGHT: f64 = 1e100;
    const MIN_WEIGHT: f64 = 1.0 / MAX_WEIGHT;
    Error::check_len("y", n, target.len())?;
    Error::check_finite("y", target)?;
    let Some(weights) = weights else {
        return Ok(());
    };
    Error::check_len("sample_weight", n, weights.len())?;
    Error::check_finite("sample_weight", weights)?;
    let what = if weights.iter().any(|&w| w < 0.0) && zero_weights {
        "sample_weight must not be negative; weight 0 leaves a row out".into()
    } else if weights.iter().any(|&w| w <= 0.0) && !zero_weights {
        "sample_weight must be positive here; leave out the rows with weight 0".into()
    } else if (weights.iter()).all(|&w| w == 0.0 || (MIN_WEIGHT..=MAX_WEIGHT).contains(&w)) {
        return Ok(());
    } else {
        format!("sample_weight must lie between {MIN_WEIGHT:e} and {MAX_WEIGHT:e}; rescale it")
    };
    Err(Error::Invalid { what })
}

/// Sum of the sample weights; `n` without them.
pub(crate) fn total_weight(n: usize, weights: Option<&[f64]>) -> f64 {
    weights.map_or(n as f64, |w| w.iter().sum())
}

/// The unit of the targets: their weighted standard deviation; for constant targets their size; for zeros 1.
fn target_scale(target: &[f64], weight: impl Fn(usize) -> f64) -> f64 {
    let size = target.iter().fold(0.0_f64, |m, t| m.max(t.abs()));
    if size == 0.0 {
        return 1.0;
    }
    let total: f64 = (0..target.len()).map(&weight).sum();
    // Targets are divided by the size first, so that no square over- or underflows.
    let average = |f: &dyn Fn(f64) -> f64| {
        let terms = target.iter().enumerate();
        terms.map(|(n, t)| weight(n) * f(t / size)).sum::<f64>() / total
    };
    let mean = average(&|t| t);
    let variance = average(&|t| (t - mean).powi(2));
    size * deviation_or_size(variance, 1.0)
}

/// The root mean variance of the outputs that are not zero everywhere, and the variance of each output in that unit.
pub(crate) fn common_scale<'t>(
    targets: impl Iterator<Item = &'t [f64]>,
    weight: impl Fn(usize) -> f64,
) -> (f64, Vec<f64>) {
    let scale_or_zero = |target: &[f64]| {
        let zero = target.iter().all(|&t| t == 0.0);
        if zero {
            0.0
        } else {
            target_scale(target, &weight)
        }
    };
    let scales: Vec<f64> = targets.map(scale_or_zero).collect();
    let largest = scales.iter().copied().fold(0.0, f64::max);
    if largest == 0.0 {
        return (1.0, vec![1.0; scales.len()]);
    }
    let count = scales.iter().filter(|&&s| s > 0.0).count();
    // Divided by the largest first, so that no square over- or underflows.
    let mean = scales.iter().map(|s| (s / largest).powi(2)).sum::<f64>() / count as f64;
    let scale = largest * mean.sqrt();
    let variance = |&s: &f64| if s > 0.0 { (s / scale).powi(2) } else { 1.0 };
    (scale, scales.iter().map(variance).collect())
}

/// The unit of targets with this variance and this largest absolute value.
pub(crate) fn deviation_or_size(variance: f64, size: f64) -> f64 {
    /// A standard deviation below this fraction of the size is a rounding error of constant targets.
    const CONSTANT: f64 = 1e-13;
    let deviation = variance.max(0.0).sqrt();
    if deviation > CONSTANT * size {
        deviation
    } else {
        size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_has_the_unit_of_the_targets() {
        let t = [1.0, 2.0, 4.0];
        let plain = target_scale(&t, |_| 1.0);
        for c in [1e-200, 1e-8, 1e8, 1e200] {
            let scaled: Vec<f64> = t.iter().map(|t| c * t).collect();
            assert!((target_scale(&scaled, |_| 1.0) / (c * plain) - 1.0).abs() < 1e-14);
        }
        let weighted = target_scale(&t, |n| [2.0, 1.0, 0.5][n]);
        let repeated = target_scale(&[1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 4.0], |_| 1.0);
        assert!((weighted - repeated).abs() < 1e-14);
    }

    #[test]
    fn constants_have_their_size_and_zeros_one() {
        assert!((target_scale(&[-3.0, -3.0], |_| 1.0) - 3.0).abs() < 1e-15);
        assert!((target_scale(&[0.0, 0.0], |_| 1.0) - 1.0).abs() < 1e-15);
    }
}
