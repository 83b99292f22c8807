//! Targets and sample weights: what they have to be, and the unit of the targets.

use crate::{Error, Result};

/// The rules a set of rows has to meet before anything is computed from it.
pub(crate) fn check_rows(n: usize, target: &[f64], weights: Option<&[f64]>) -> Result<()> {
    if n == 0 {
        return Err(Error::Invalid {
            what: "X has no rows; at least one is needed".into(),
        });
    }
    Error::check_len("y", n, target.len())?;
    Error::check_finite("y", target)?;
    if let Some(w) = weights {
        Error::check_len("sample_weight", n, w.len())?;
        Error::check_finite("sample_weight", w)?;
        if w.iter().any(|&w| w <= 0.0) {
            return Err(Error::Invalid {
                what: "sample_weight must be positive here; leave out the rows that weigh nothing"
                    .into(),
            });
        }
        check_weights(w)?;
    }
    Ok(())
}

/// Refuses weights whose sums and products with squares leave the range of numbers; 0 is none of these.
pub(crate) fn check_weights(weights: &[f64]) -> Result<()> {
    const HEAVIEST: f64 = 1e100;
    let sensible = |&w: &f64| w == 0.0 || (HEAVIEST.recip()..=HEAVIEST).contains(&w);
    if weights.iter().all(sensible) {
        return Ok(());
    }
    let what = format!(
        "sample_weight must lie between {:e} and {HEAVIEST:e}; rescale it",
        HEAVIEST.recip()
    );
    Err(Error::Invalid { what })
}

/// The unit of the targets: their weighted standard deviation; for constant targets their size; for zeros 1.
pub(crate) fn spread(target: &[f64], weight: impl Fn(usize) -> f64) -> f64 {
    // Spreads below this fraction of the size are rounding errors of a constant.
    const CONSTANT: f64 = 1e-13;
    let size = target.iter().fold(0.0_f64, |m, t| m.max(t.abs()));
    if size == 0.0 {
        return 1.0;
    }
    let total: f64 = (0..target.len()).map(&weight).sum();
    // Divided by the size first, so that no square over- or underflows.
    let mean = target
        .iter()
        .enumerate()
        .map(|(n, t)| weight(n) * (t / size))
        .sum::<f64>()
        / total;
    let variance = target
        .iter()
        .enumerate()
        .map(|(n, t)| weight(n) * (t / size - mean).powi(2))
        .sum::<f64>()
        / total;
    let deviation = variance.sqrt();
    if deviation > CONSTANT {
        size * deviation
    } else {
        size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_has_the_unit_of_the_targets() {
        let t = [1.0, 2.0, 4.0];
        let plain = spread(&t, |_| 1.0);
        for c in [1e-200, 1e-8, 1e8, 1e200] {
            let scaled: Vec<f64> = t.iter().map(|t| c * t).collect();
            assert!((spread(&scaled, |_| 1.0) / (c * plain) - 1.0).abs() < 1e-14);
        }
        assert!((spread(&t, |n| [2.0, 1.0, 0.5][n]) - spread_of_rows()).abs() < 1e-14);
    }

    /// The weights above as rows, twice over: 1, 1, 1, 1, 2, 2, 4.
    fn spread_of_rows() -> f64 {
        spread(&[1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 4.0], |_| 1.0)
    }

    #[test]
    fn constants_have_their_size_and_zeros_one() {
        assert!((spread(&[-3.0, -3.0], |_| 1.0) - 3.0).abs() < 1e-15);
        assert!((spread(&[0.0, 0.0], |_| 1.0) - 1.0).abs() < 1e-15);
    }
}
