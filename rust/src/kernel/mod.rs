//! Kernels and their values.

mod eval;

use std::ops::Range;

use serde::{Deserialize, Serialize};

pub use crate::kernel::eval::Points;
use crate::kernel::eval::{CHUNK, Centre, Run};

/// A kernel k(x, z). The set is closed, so that fits and predictors can evaluate every kernel without Python.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Kernel {
    /// `exp(-sum_d w_d (x_d - z_d)^2)` with one weight w for all inputs or one for each.
    Gaussian {
        /// Inverse squared widths.
        inverse_square_widths: Vec<f64>,
    },
    /// Matern kernel of order 3/2: `(1 + r) exp(-r)`, `r^2 = 6 sum_d w_d (x_d - z_d)^2`.
    Matern32 {
        /// Inverse squared widths.
        inverse_square_widths: Vec<f64>,
    },
    /// Matern kernel of order 5/2: `(1 + r + r^2 / 3) exp(-r)`, `r^2 = 10 sum_d w_d (x_d - z_d)^2`.
    Matern52 {
        /// Inverse squared widths.
        inverse_square_widths: Vec<f64>,
    },
    /// `(1 + sum_d w_d (x_d - z_d)^2 / alpha)^-alpha`.
    RationalQuadratic {
        /// Inverse squared widths.
        inverse_square_widths: Vec<f64>,
        /// Exponent.
        alpha: f64,
    },
    /// `exp(-(period / (pi width))^2 sum_d sin^2(pi (x_d - z_d) / period))`.
    Periodic {
        /// Period of every input.
        period: f64,
        /// Width, as that of a Gaussian kernel if the period is long.
        width: f64,
    },
    /// `exp(-gamma sum_d |x_d - z_d|)`.
    Laplacian {
        /// Inverse width.
        gamma: f64,
    },
    /// `(gamma x.z + coef0)^degree`.
    Polynomial {
        /// Degree.
        degree: u32,
        /// Factor of the inner product.
        gamma: f64,
        /// Constant term.
        coef0: f64,
    },
    /// `x.z`.
    Linear,
    /// `(x - offset).(z - offset)`.
    CentredLinear {
        /// One number for each input.
        offset: Vec<f64>,
    },
    /// `tanh(gamma x.z + coef0)`.
    Sigmoid {
        /// Factor of the inner product.
        gamma: f64,
        /// Constant term.
        coef0: f64,
    },
    /// `prod_d [1 + xz + xz m - (x + z) m^2 / 2 + m^3 / 3]` with m = min(x, z): Tipping (2001), section 4.
    LinearSpline,
    /// The sum of kernels.
    Sum(Vec<Kernel>),
    /// The product of kernels.
    Product(Vec<Kernel>),
    /// A kernel of some features, which may repeat. It must not contain another `OnColumns`.
    OnColumns {
        /// Positions of the features.
        columns: Vec<usize>,
        /// The kernel of these features.
        kernel: Box<Kernel>,
    },
}

fn check(name: &str, value: f64, is_valid: bool, domain: &str) -> Result<(), String> {
    if is_valid && value.is_finite() {
        return Ok(());
    }
    Err(format!(
        "kernel parameter {name} must be {domain}, got {value}"
    ))
}

fn finite(name: &str, value: f64) -> Result<(), String> {
    check(name, value, true, "finite")
}

fn positive(name: &str, value: f64) -> Result<(), String> {
    check(name, value, value > 0.0, "positive and finite")
}

fn check_widths(inverse_squares: &[f64], n_features: usize) -> Result<(), String> {
    let got = inverse_squares.len();
    if got != 1 && got != n_features {
        return Err(format!(
            "kernel width must be one number or one for each of {n_features} inputs, got {got}"
        ));
    }
    if inverse_squares.iter().any(|w| !w.is_finite() || *w < 0.0) {
        return Err(
            "kernel width must be positive, and not so small that its square vanishes".into(),
        );
    }
    Ok(())
}

impl Kernel {
    /// Checks the parameters, given the number of inputs.
    ///
    /// # Errors
    /// A message that names the parameter and the remedy.
    pub fn validate(&self, n_features: usize) -> Result<(), String> {
        if let Some(w) = self.inverse_square_widths() {
            check_widths(w, n_features)?;
        }
        match self {
            Self::RationalQuadratic { alpha, .. } => positive("alpha", *alpha),
            Self::Periodic { period, width } => {
                positive("period", *period)?;
                positive("width", *width)
            }
            Self::Laplacian { gamma } if *gamma < 0.0 => Err(format!(
                "kernel parameter gamma must not be negative, got {gamma}"
            )),
            Self::Laplacian { gamma } => finite("gamma", *gamma),
            Self::Polynomial { gamma, coef0, .. } | Self::Sigmoid { gamma, coef0 } => {
                finite("gamma", *gamma)?;
                finite("coef0", *coef0)
            }
            Self::Gaussian { .. }
            | Self::Matern32 { .. }
            | Self::Matern52 { .. }
            | Self::Linear
            | Self::LinearSpline => Ok(()),
            Self::CentredLinear { offset } => {
                if offset.len() != n_features {
                    let got = offset.len();
                    return Err(format!(
                        "offset of a linear kernel must have one number for each of {n_features} inputs, got {got}"
                    ));
                }
                offset.iter().try_for_each(|&value| finite("offset", value))
            }
            Self::Sum(parts) | Self::Product(parts) => {
                if parts.is_empty() {
                    return Err("a sum or product of kernels needs at least one".into());
                }
                parts.iter().try_for_each(|part| part.validate(n_features))
            }
            Self::OnColumns { columns, kernel } => {
                if columns.is_empty() {
                    return Err("a kernel on columns needs at least one".into());
                }
                if let Some(column) = columns.iter().find(|&&column| column >= n_features) {
                    return Err(format!(
                        "a kernel takes column {column}, counted from 0, of {n_features}"
                    ));
                }
                if kernel.has_columns() {
                    return Err(
                        "a kernel on columns cannot hold another; give positions in x".into(),
                    );
                }
                kernel.validate(columns.len())
            }
        }
    }

    /// The inverse squared widths of a kernel of the weighted distance.
    fn inverse_square_widths(&self) -> Option<&[f64]> {
        match self {
            Self::Gaussian {
                inverse_square_widths: w,
            }
            | Self::Matern32 {
                inverse_square_widths: w,
            }
            | Self::Matern52 {
                inverse_square_widths: w,
            }
            | Self::RationalQuadratic {
                inverse_square_widths: w,
                ..
            } => Some(w),
            _ => None,
        }
    }

    /// Whether every matrix k(x_i, x_j) is known to be positive semidefinite from the parameters alone. (A linear spline
    /// is so only for non-negative inputs.)
    #[must_use]
    pub fn is_positive_definite(&self) -> bool {
        match self {
            Self::Gaussian { .. }
            | Self::Matern32 { .. }
            | Self::Matern52 { .. }
            | Self::RationalQuadratic { .. }
            | Self::Periodic { .. }
            | Self::Laplacian { .. }
            | Self::Linear
            | Self::CentredLinear { .. } => true,
            Self::Polynomial { gamma, coef0, .. } => *gamma >= 0.0 && *coef0 >= 0.0,
            Self::Sigmoid { .. } | Self::LinearSpline => false,
            Self::Sum(parts) | Self::Product(parts) => parts.iter().all(Self::is_positive_definite),
            Self::OnColumns { kernel, .. } => kernel.is_positive_definite(),
        }
    }

    /// The share of k(x, x) that may be rounding in what landmarks leave of it: see [`Header::growths`](crate::predictor::Header).
    /// Matrices of smooth kernels are nearly singular.
    pub(crate) fn rounding(&self) -> f64 {
        match self {
            Self::Matern32 { .. } | Self::Matern52 { .. } => 1e-9,
            Self::OnColumns { kernel, .. } => kernel.rounding(),
            _ => 1e-6,
        }
    }

    /// Whether it contains a [`Kernel::OnColumns`].
    fn has_columns(&self) -> bool {
        match self {
            Self::OnColumns { .. } => true,
            Self::Sum(parts) | Self::Product(parts) => parts.iter().any(Self::has_columns),
            _ => false,
        }
    }

    /// k(x, z) for one pair.
    ///
    /// # Panics
    /// If the two differ in length.
    #[must_use]
    pub fn eval(&self, x: &[f64], z: &[f64]) -> f64 {
        assert_eq!(x.len(), z.len(), "features of x and z");
        let mut out = [0.0];
        let (stride, len) = (1, 1);
        let x = Run {
            values: x,
            stride,
            len,
        };
        self.values_into(x, Centre::whole(z), &mut out);
        out[0]
    }

    /// `k(x_n, centre)` for the points in `rows`, with the same bits as [`Kernel::eval`].
    ///
    /// # Panics
    /// If `rows` exceeds the points, `centre` has another number of features, or `out` is shorter than `rows`.
    pub fn column_into(
        &self,
        points: &Points,
        centre: &[f64],
        rows: Range<usize>,
        out: &mut [f64],
    ) {
        let (n_points, n_features) = (points.n_points(), points.n_features());
        assert!(rows.end <= n_points, "rows {rows:?} of {n_points}");
        assert_eq!(centre.len(), n_features, "features of the centre");
        let (centre, out) = (Centre::whole(centre), &mut out[..rows.len()]);
        for (start, out) in rows.step_by(CHUNK).zip(out.chunks_mut(CHUNK)) {
            self.values_into(points.run(start, out.len()), centre, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gaussian(w: &[f64]) -> Kernel {
        Kernel::Gaussian {
            inverse_square_widths: w.to_vec(),
        }
    }

    fn matern52(w: &[f64]) -> Kernel {
        Kernel::Matern52 {
            inverse_square_widths: w.to_vec(),
        }
    }

    fn rational_quadratic(w: &[f64], alpha: f64) -> Kernel {
        Kernel::RationalQuadratic {
            inverse_square_widths: w.to_vec(),
            alpha,
        }
    }

    fn periodic(period: f64, width: f64) -> Kernel {
        Kernel::Periodic { period, width }
    }

    fn polynomial(degree: u32, gamma: f64, coef0: f64) -> Kernel {
        Kernel::Polynomial {
            degree,
            gamma,
            coef0,
        }
    }

    fn kernels() -> Vec<Kernel> {
        let sum = Kernel::Sum(vec![Kernel::Linear, Kernel::LinearSpline]);
        vec![
            gaussian(&[0.3]),
            gaussian(&[0.3, 0.1, 2.0]),
            Kernel::Matern32 {
                inverse_square_widths: vec![0.3],
            },
            matern52(&[0.3, 0.1, 2.0]),
            rational_quadratic(&[0.3, 0.1, 2.0], 0.8),
            periodic(0.3, 0.2),
            Kernel::Laplacian { gamma: 0.7 },
            polynomial(3, 0.5, 1.0),
            Kernel::Linear,
            Kernel::CentredLinear {
                offset: vec![0.5, -1.0, 2.0],
            },
            Kernel::Sigmoid {
                gamma: 0.2,
                coef0: -0.3,
            },
            Kernel::LinearSpline,
            Kernel::Product(vec![gaussian(&[0.3]), sum.clone()]),
            on_columns(&[2, 0], gaussian(&[0.3, 2.0])),
            on_columns(&[1], sum),
        ]
    }

    fn on_columns(columns: &[usize], kernel: Kernel) -> Kernel {
        Kernel::OnColumns {
            columns: columns.to_vec(),
            kernel: Box::new(kernel),
        }
    }

    fn points(n: usize) -> Vec<f64> {
        (0..n * 3)
            .map(|i| (f64::from(u32::try_from(i).unwrap()) * 0.7).sin() * 2.0)
            .collect()
    }

    #[test]
    fn kernels_are_symmetric_and_columns_have_the_same_bits_as_single_pairs() {
        let n = 1100;
        let rows = points(n);
        let stored = Points::from_rows(&rows, n, 3);
        let centre = [0.3, -0.2, 1.1];
        for kernel in kernels() {
            for range in [0..n, 3..n - 2, 511..514, 7..7] {
                let mut out = vec![f64::NAN; range.len()];
                kernel.column_into(&stored, &centre, range.clone(), &mut out);
                for (i, value) in range.zip(out) {
                    let row = &rows[i * 3..i * 3 + 3];
                    for pair in [kernel.eval(row, &centre), kernel.eval(&centre, row)] {
                        assert_eq!(value.to_bits(), pair.to_bits(), "{kernel:?} {i}");
                    }
                }
            }
        }
    }

    #[test]
    fn kernels_of_the_distance_vanish_far_away() {
        for kernel in kernels() {
            if kernel.inverse_square_widths().is_some() {
                let value = kernel.eval(&[1e200, 0.0, 0.0], &[0.0; 3]);
                assert!(value == 0.0, "{kernel:?}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "rows 1..6 of 5")]
    fn rows_after_the_last_point_panic() {
        Kernel::Linear.column_into(
            &Points::from_rows(&points(5), 5, 3),
            &[0.0; 3],
            1..6,
            &mut [0.0; 5],
        );
    }

    #[test]
    #[should_panic(expected = "features of the centre")]
    fn a_centre_with_other_features_panics() {
        Kernel::Linear.column_into(
            &Points::from_rows(&points(5), 5, 3),
            &[0.0; 2],
            0..5,
            &mut [0.0; 5],
        );
    }

    #[test]
    fn invalid_parameters_are_rejected() {
        for kernel in [
            gaussian(&[1.0, 2.0]),
            gaussian(&[-1.0]),
            matern52(&[1.0, 2.0]),
            rational_quadratic(&[1.0], 0.0),
            periodic(f64::INFINITY, 1.0),
            periodic(1.0, -1.0),
            Kernel::Laplacian { gamma: -1.0 },
            polynomial(2, f64::NAN, 0.0),
            Kernel::Sum(vec![]),
            Kernel::Product(vec![polynomial(2, 1.0, f64::INFINITY)]),
            on_columns(&[], Kernel::Linear),
            on_columns(&[0, 3], Kernel::Linear),
            on_columns(&[0], gaussian(&[1.0, 2.0])),
            on_columns(&[0], Kernel::Sum(vec![on_columns(&[0], Kernel::Linear)])),
        ] {
            assert!(kernel.validate(3).is_err(), "{kernel:?}");
        }
        for kernel in kernels() {
            assert_eq!(kernel.validate(3), Ok(()));
        }
    }
}
