//! Low-rank features of smooth kernels: a pivoted Cholesky factor of the dictionary, and bounds on its error.

pub(crate) mod bounds;
pub(crate) mod features;
pub(crate) mod pivoted_cholesky;
pub(crate) mod statistics;

#[cfg(test)]
pub(crate) fn gaussian(gamma: f64) -> crate::Kernel {
    crate::Kernel::Gaussian {
        inverse_square_widths: vec![gamma],
    }
}

/// Points with two features, row by row.
#[cfg(test)]
pub(crate) fn points(n: usize, scale: f64) -> Vec<f64> {
    (0..2 * n)
        .map(|i| scale * (i as f64 * 1.37).sin())
        .collect()
}
