//! Quadratic bounds on the log-likelihood of rows in memory: where they are tightest, given a Gaussian over the weights.

use std::sync::atomic::AtomicBool;

use nalgebra::{DMatrix, DVector};

use crate::data::check_flag;
use crate::parallel::map_pieces;
use crate::{Error, Result};

/// Rows at a time: the flag is looked at between.
const ROWS: usize = 64;

/// The root of `E[eta_n^2]` for each of `n` rows, given the columns of their design (Jaakkola & Jordan 2000).
pub(crate) fn tightest(
    design: &[&[f64]],
    n: usize,
    mu: &[f64],
    sigma: &DMatrix<f64>,
    cancel: Option<&AtomicBool>,
) -> Result<Vec<f64>> {
    let m = mu.len();
    let (mu, sigma) = (DVector::from_column_slice(mu), sigma.view((0, 0), (m, m)));
    let parts = map_pieces(n, ROWS, |rows| -> Result<Vec<f64>> {
        check_flag(cancel)?;
        let columns = DMatrix::from_fn(rows.len(), m, |i, k| design[k][rows.start + i]);
        let variances = (&columns * sigma).component_mul(&columns).column_sum();
        let eta = &columns * &mu;
        let moments = variances.iter().zip(eta.iter());
        Ok(moments
            .map(|(v, eta)| (v.max(0.0) + eta * eta).sqrt())
            .collect())
    });
    Ok(parts.into_iter().collect::<Result<Vec<_>>>()?.concat())
}

/// For a likelihood that has no bound.
pub(crate) fn no_bound() -> Error {
    Error::Invalid {
        what:
            "scheme must not be 'variational' for this likelihood: it has no quadratic lower bound"
                .into(),
    }
}
