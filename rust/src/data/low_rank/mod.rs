//! Low-rank features of smooth kernels: a pivoted Cholesky factor of the dictionary, and bounds on its error.

pub(crate) mod basis;
pub(crate) mod bounds;
pub(crate) mod features;
pub(crate) mod pivoted_cholesky;
pub(crate) mod policy;
pub(crate) mod statistics;

#[cfg(test)]
fn gaussian(gamma: f64) -> crate::Kernel {
    crate::Kernel::Gaussian {
        inverse_square_widths: vec![gamma],
    }
}
