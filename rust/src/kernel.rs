//! Kernels, over points stored feature by feature.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::linalg::simd::{Simd, WithSimd, dispatch, exp, is_fused};

/// Points whose values of one feature lie side by side, so that a loop over points is a loop over memory.
#[derive(Debug, Clone, Default)]
pub struct Points {
    len: usize,
    n_features: usize,
    values: Vec<f64>,
}

impl Points {
    /// From a row-major table of `n_points` x `n_features` values.
    ///
    /// # Panics
    /// If `rows` is shorter than that.
    #[must_use]
    pub fn from_rows(rows: &[f64], n_points: usize, n_features: usize) -> Self {
        let mut points = Self::default();
        points.refill(rows, n_points, n_features);
        points
    }

    /// Puts other points in the place of these, as [`Points::from_rows`]; takes no memory where they need no more.
    pub(crate) fn refill(&mut self, rows: &[f64], n_points: usize, n_features: usize) {
        self.len = n_points;
        self.n_features = n_features;
        self.values.resize(n_points * n_features, 0.0);
        let rows = &rows[..self.values.len()];
        // Some points at a time, which stay in the cache while one feature after the other is read.
        for start in (0..n_points).step_by(CHUNK / NARROW) {
            let end = (start + CHUNK / NARROW).min(n_points);
            for (d, feature) in self.values.chunks_exact_mut(n_points).enumerate() {
                let (strips, rest) = feature[start..end].as_chunks_mut::<NARROW>();
                let mut at = start * n_features + d;
                for strip in strips {
                    let rows = &rows[at..];
                    for (k, to) in strip.iter_mut().enumerate() {
                        *to = rows[k * n_features];
                    }
                    at += NARROW * n_features;
                }
                for (k, to) in rest.iter_mut().enumerate() {
                    *to = rows[at + k * n_features];
                }
            }
        }
    }

    /// Number of points.
    #[must_use]
    pub fn n_points(&self) -> usize {
        self.len
    }

    /// Number of features.
    #[must_use]
    pub fn n_features(&self) -> usize {
        self.n_features
    }

    /// The values of feature `d`.
    pub(crate) fn feature(&self, d: usize) -> &[f64] {
        &self.values[d * self.len..][..self.len]
    }
}

/// A kernel k(x, z). A closed set: what the loop evaluates lazily and a predictor without Python has to know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Kernel {
    /// `exp(-sum_d w_d (x_d - z_d)^2)`, w being one weight for all inputs or one for each.
    Gaussian {
        /// Inverse squared widths.
        inverse_square_widths: Vec<f64>,
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
    /// Another kernel on some of the features, which may repeat; it holds no `OnColumns` itself.
    OnColumns {
        /// Positions of the features.
        columns: Vec<usize>,
        /// The kernel that sees these alone.
        kernel: Box<Kernel>,
    },
}

/// Points evaluated at a time: their partial sums stay in the first-level cache.
const CHUNK: usize = 512;
/// Points whose sums are in registers together: four of the widest vectors, which hides how long an addition takes, or one.
const WIDE: usize = 32;
const NARROW: usize = 8;

/// A run of points: the values of feature d are `values[d * stride + start..][..len]`.
#[derive(Clone, Copy)]
struct Run<'a> {
    values: &'a [f64],
    stride: usize,
    start: usize,
    len: usize,
}

/// The other point, and which of its features and of those of the run are seen: all of them, if it says nothing.
#[derive(Clone, Copy)]
struct Centre<'a> {
    values: &'a [f64],
    columns: Option<&'a [usize]>,
}

impl Centre<'_> {
    fn len(self) -> usize {
        self.columns.map_or(self.values.len(), <[usize]>::len)
    }

    /// The feature that is seen as the d-th, and its value.
    fn at(self, d: usize) -> (usize, f64) {
        let feature = self.columns.map_or(d, |columns| columns[d]);
        (feature, self.values[feature])
    }
}

impl<'a> Run<'a> {
    fn feature(&self, d: usize) -> &'a [f64] {
        &self.values[d * self.stride + self.start..][..self.len]
    }
}

impl Kernel {
    /// Checks the parameters against the number of inputs; the message names the parameter and the remedy.
    ///
    /// # Errors
    /// The message.
    pub fn validate(&self, n_features: usize) -> Result<(), String> {
        let finite = |name: &str, value: f64| {
            if value.is_finite() {
                Ok(())
            } else {
                Err(format!(
                    "kernel parameter {name} must be finite, got {value}"
                ))
            }
        };
        match self {
            Self::Gaussian {
                inverse_square_widths: w,
            } => {
                if w.len() != 1 && w.len() != n_features {
                    let got = w.len();
                    return Err(format!(
                        "kernel width must be one number or one for each of {n_features} inputs, got {got}"
                    ));
                }
                if w.iter().any(|w| !w.is_finite() || *w < 0.0) {
                    return Err(
                        "kernel width must be positive, and not so small that its square vanishes"
                            .into(),
                    );
                }
                Ok(())
            }
            Self::Laplacian { gamma } if *gamma < 0.0 => Err(format!(
                "kernel parameter gamma must not be negative, got {gamma}"
            )),
            Self::Laplacian { gamma } => finite("gamma", *gamma),
            Self::Polynomial { gamma, coef0, .. } | Self::Sigmoid { gamma, coef0 } => {
                finite("gamma", *gamma)?;
                finite("coef0", *coef0)
            }
            Self::Linear | Self::LinearSpline => Ok(()),
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

    /// Whether every matrix k(x_i, x_j) is positive semidefinite, as far as parameters alone can tell. (A linear spline is
    /// for inputs that are not negative.)
    #[must_use]
    pub fn is_positive_definite(&self) -> bool {
        match self {
            Self::Gaussian { .. } | Self::Laplacian { .. } | Self::Linear => true,
            Self::Polynomial { gamma, coef0, .. } => *gamma >= 0.0 && *coef0 >= 0.0,
            Self::Sigmoid { .. } | Self::LinearSpline => false,
            Self::Sum(parts) | Self::Product(parts) => parts.iter().all(Self::is_positive_definite),
            Self::OnColumns { kernel, .. } => kernel.is_positive_definite(),
        }
    }

    /// Whether there is an [`Kernel::OnColumns`] in it.
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
        let x = Run {
            values: x,
            stride: 1,
            start: 0,
            len: 1,
        };
        dispatch(Fill {
            kernel: self,
            x,
            z: Centre {
                values: z,
                columns: None,
            },
            out: &mut out,
        });
        out[0]
    }

    /// `k(x_n, centre)` for the points in `rows`; to the bit what [`Kernel::eval`] gives for each.
    ///
    /// # Panics
    /// If `rows` reaches beyond the points, `centre` has not as many features as they, or `out` is shorter than `rows`.
    pub fn column_into(
        &self,
        points: &Points,
        centre: &[f64],
        rows: Range<usize>,
        out: &mut [f64],
    ) {
        assert!(rows.end <= points.len, "rows {rows:?} of {}", points.len);
        assert_eq!(centre.len(), points.n_features, "features of the centre");
        let chunks = rows
            .clone()
            .step_by(CHUNK)
            .zip(out[..rows.len()].chunks_mut(CHUNK));
        for (start, out) in chunks {
            let run = Run {
                values: &points.values,
                stride: points.len,
                start,
                len: out.len(),
            };
            dispatch(Fill {
                kernel: self,
                x: run,
                z: Centre {
                    values: centre,
                    columns: None,
                },
                out,
            });
        }
    }

    /// At most `CHUNK` values.
    #[inline(always)]
    #[allow(clippy::inline_always)] // so that it is compiled for the instruction set of its caller
    fn fill<const FUSED: bool>(&self, x: Run<'_>, z: Centre<'_>, out: &mut [f64]) {
        match self {
            Self::Gaussian {
                inverse_square_widths: w,
            } => {
                if let [scale] = w[..] {
                    let square = |_, x: f64, z: f64| (x - z) * (x - z);
                    accumulate(x, z, out, square, |v| exp::<FUSED>(-scale * v));
                } else {
                    let square = |d: usize, x: f64, z: f64| w[d] * ((x - z) * (x - z));
                    accumulate(x, z, out, square, |v| exp::<FUSED>(-v));
                }
            }
            Self::Laplacian { gamma } => {
                let distance = |_, x: f64, z: f64| (x - z).abs();
                accumulate(x, z, out, distance, |v| exp::<FUSED>(-gamma * v));
            }
            Self::Linear => accumulate(x, z, out, |_, x, z| x * z, |v| v),
            Self::Polynomial {
                degree,
                gamma,
                coef0,
            } => accumulate(
                x,
                z,
                out,
                |_, x, z| x * z,
                |v| power(gamma * v + coef0, *degree),
            ),
            Self::Sigmoid { gamma, coef0 } => {
                accumulate(x, z, out, |_, x, z| x * z, |v| (gamma * v + coef0).tanh());
            }
            Self::LinearSpline => {
                out.fill(1.0);
                for d in 0..z.len() {
                    let (feature, z) = z.at(d);
                    out.iter_mut()
                        .zip(x.feature(feature))
                        .for_each(|(v, &x)| *v *= spline(x, z));
                }
            }
            Self::Sum(parts) => combine(parts, x, z, out, |v, part| *v += part),
            Self::Product(parts) => combine(parts, x, z, out, |v, part| *v *= part),
            Self::OnColumns { columns, kernel } => {
                let z = Centre {
                    columns: Some(columns),
                    ..z
                };
                dispatch(Fill { kernel, x, z, out });
            }
        }
    }
}

/// [`Kernel::fill`] as work for [`dispatch`].
struct Fill<'a> {
    kernel: &'a Kernel,
    x: Run<'a>,
    z: Centre<'a>,
    out: &'a mut [f64],
}

impl WithSimd for Fill<'_> {
    type Output = ();

    #[inline(always)]
    #[allow(clippy::inline_always)] // as `fill`
    fn with_simd<S: Simd>(self, simd: S) {
        if is_fused(simd) {
            self.kernel.fill::<true>(self.x, self.z, self.out);
        } else {
            self.kernel.fill::<false>(self.x, self.z, self.out);
        }
    }
}

/// `out_n = finish(sum_d term(d, x_nd, z_d))`.
///
/// Strip by strip, whose sums stay in registers. The last strip may go over points of the one before again, which does no
/// harm: a point's value does not depend on its place.
#[inline(always)]
#[allow(clippy::inline_always)] // as `fill`
fn accumulate(
    x: Run<'_>,
    z: Centre<'_>,
    out: &mut [f64],
    term: impl Fn(usize, f64, f64) -> f64 + Copy,
    finish: impl Fn(f64) -> f64 + Copy,
) {
    let mut at = 0;
    while at + WIDE <= out.len() {
        strip::<WIDE>(x, z, &mut out[at..], at, term, finish);
        at += WIDE;
    }
    while at + NARROW <= out.len() {
        strip::<NARROW>(x, z, &mut out[at..], at, term, finish);
        at += NARROW;
    }
    if at < out.len() && out.len() >= NARROW {
        at = out.len() - NARROW;
        strip::<NARROW>(x, z, &mut out[at..], at, term, finish);
    } else {
        for at in at..out.len() {
            strip::<1>(x, z, &mut out[at..], at, term, finish);
        }
    }
}

/// The first `N` of `out`, for the points from `at` on.
#[inline(always)]
#[allow(clippy::inline_always)] // as `fill`
fn strip<const N: usize>(
    x: Run<'_>,
    z: Centre<'_>,
    out: &mut [f64],
    at: usize,
    term: impl Fn(usize, f64, f64) -> f64,
    finish: impl Fn(f64) -> f64,
) {
    let mut sums = [0.0; N];
    for d in 0..z.len() {
        let (feature, z) = z.at(d);
        let x = &x.feature(feature)[at..][..N];
        for (v, &x) in sums.iter_mut().zip(x) {
            *v += term(d, x, z);
        }
    }
    for (out, v) in out[..N].iter_mut().zip(sums) {
        *out = finish(v);
    }
}

/// Joins the values of several kernels. Not inlined: it calls `fill` on its parts.
fn combine(
    parts: &[Kernel],
    x: Run<'_>,
    z: Centre<'_>,
    out: &mut [f64],
    join: impl Fn(&mut f64, f64),
) {
    let Some((first, rest)) = parts.split_first() else {
        return;
    };
    dispatch(Fill {
        kernel: first,
        x,
        z,
        out,
    });
    let mut buffer = [0.0; CHUNK];
    for part in rest {
        let values = &mut buffer[..out.len()];
        dispatch(Fill {
            kernel: part,
            x,
            z,
            out: values,
        });
        out.iter_mut()
            .zip(values.iter())
            .for_each(|(v, &part)| join(v, part));
    }
}

/// One factor of the linear spline kernel.
#[inline(always)]
#[allow(clippy::inline_always)] // as `fill`
fn spline(x: f64, z: f64) -> f64 {
    let m = if x < z { x } else { z };
    1.0 + x * z + x * z * m - 0.5 * (x + z) * (m * m) + m * m * m / 3.0
}

/// base^degree by repeated squaring.
#[inline(always)]
#[allow(clippy::inline_always)] // as `fill`
fn power(mut base: f64, mut degree: u32) -> f64 {
    let mut result = 1.0;
    while degree > 0 {
        if degree & 1 == 1 {
            result *= base;
        }
        base *= base;
        degree >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernels() -> Vec<Kernel> {
        let gaussian = Kernel::Gaussian {
            inverse_square_widths: vec![0.3],
        };
        let spline = Kernel::LinearSpline;
        vec![
            gaussian.clone(),
            Kernel::Gaussian {
                inverse_square_widths: vec![0.3, 0.1, 2.0],
            },
            Kernel::Laplacian { gamma: 0.7 },
            Kernel::Polynomial {
                degree: 3,
                gamma: 0.5,
                coef0: 1.0,
            },
            Kernel::Linear,
            Kernel::Sigmoid {
                gamma: 0.2,
                coef0: -0.3,
            },
            spline.clone(),
            Kernel::Sum(vec![gaussian.clone(), Kernel::Linear]),
            Kernel::Product(vec![
                gaussian.clone(),
                Kernel::Sum(vec![Kernel::Linear, spline]),
            ]),
            on_columns(
                &[2, 0],
                Kernel::Gaussian {
                    inverse_square_widths: vec![0.3, 2.0],
                },
            ),
            on_columns(
                &[1],
                Kernel::Sum(vec![Kernel::LinearSpline, Kernel::Linear]),
            ),
        ]
    }

    fn on_columns(columns: &[usize], kernel: Kernel) -> Kernel {
        Kernel::OnColumns {
            columns: columns.to_vec(),
            kernel: Box::new(kernel),
        }
    }

    fn naive(kernel: &Kernel, x: &[f64], z: &[f64]) -> f64 {
        let pairs = || x.iter().copied().zip(z.iter().copied());
        let inner: f64 = pairs().map(|(x, z)| x * z).sum();
        match kernel {
            Kernel::Gaussian {
                inverse_square_widths: w,
            } => {
                let weighted = pairs()
                    .enumerate()
                    .map(|(d, (x, z))| w[d.min(w.len() - 1)] * (x - z).powi(2));
                (-weighted.sum::<f64>()).exp()
            }
            Kernel::Laplacian { gamma } => {
                (-gamma * pairs().map(|(x, z)| (x - z).abs()).sum::<f64>()).exp()
            }
            Kernel::Polynomial {
                degree,
                gamma,
                coef0,
            } => (gamma * inner + coef0).powi((*degree).try_into().unwrap()),
            Kernel::Linear => inner,
            Kernel::Sigmoid { gamma, coef0 } => (gamma * inner + coef0).tanh(),
            Kernel::LinearSpline => pairs()
                .map(|(x, z)| {
                    let m = x.min(z);
                    1.0 + x * z + x * z * m - 0.5 * (x + z) * m.powi(2) + m.powi(3) / 3.0
                })
                .product(),
            Kernel::Sum(parts) => parts.iter().map(|k| naive(k, x, z)).sum(),
            Kernel::Product(parts) => parts.iter().map(|k| naive(k, x, z)).product(),
            Kernel::OnColumns { columns, kernel } => {
                let select = |x: &[f64]| columns.iter().map(|&d| x[d]).collect::<Vec<_>>();
                naive(kernel, &select(x), &select(z))
            }
        }
    }

    fn points(n: usize) -> Vec<f64> {
        (0..n * 3)
            .map(|i| (f64::from(u32::try_from(i).unwrap()) * 0.7).sin() * 2.0)
            .collect()
    }

    #[test]
    fn every_kernel_agrees_with_its_formula_and_is_symmetric() {
        let x = points(20);
        for kernel in kernels() {
            for pair in x.chunks_exact(6) {
                let (a, b) = pair.split_at(3);
                let expected = naive(&kernel, a, b);
                assert!(
                    (kernel.eval(a, b) - expected).abs() <= 1e-13 * (1.0 + expected.abs()),
                    "{kernel:?}"
                );
                assert!(
                    (kernel.eval(b, a) - expected).abs() <= 1e-13 * (1.0 + expected.abs()),
                    "{kernel:?}"
                );
            }
        }
    }

    #[test]
    fn columns_agree_with_single_pairs_to_the_bit_in_any_range() {
        let n = 1100;
        let rows = points(n);
        let stored = Points::from_rows(&rows, n, 3);
        let centre = [0.3, -0.2, 1.1];
        for kernel in kernels() {
            for range in [0..n, 3..n - 2, 511..514, 7..7] {
                let mut out = vec![f64::NAN; range.len()];
                kernel.column_into(&stored, &centre, range.clone(), &mut out);
                for (i, value) in range.zip(out) {
                    assert_eq!(
                        value.to_bits(),
                        kernel.eval(&rows[i * 3..i * 3 + 3], &centre).to_bits(),
                        "{kernel:?} {i}"
                    );
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "rows 1..6 of 5")]
    fn rows_beyond_the_points_are_not_read() {
        Kernel::Linear.column_into(
            &Points::from_rows(&points(5), 5, 3),
            &[0.0; 3],
            1..6,
            &mut [0.0; 5],
        );
    }

    #[test]
    #[should_panic(expected = "features of the centre")]
    fn a_centre_with_other_features_is_refused() {
        Kernel::Linear.column_into(
            &Points::from_rows(&points(5), 5, 3),
            &[0.0; 2],
            0..5,
            &mut [0.0; 5],
        );
    }

    #[test]
    fn parameters_out_of_range_are_refused() {
        for kernel in [
            Kernel::Gaussian {
                inverse_square_widths: vec![1.0, 2.0],
            },
            Kernel::Gaussian {
                inverse_square_widths: vec![-1.0],
            },
            Kernel::Laplacian { gamma: -1.0 },
            Kernel::Polynomial {
                degree: 2,
                gamma: f64::NAN,
                coef0: 0.0,
            },
            Kernel::Sum(vec![]),
            Kernel::Product(vec![Kernel::Laplacian {
                gamma: f64::INFINITY,
            }]),
            on_columns(&[], Kernel::Linear),
            on_columns(&[0, 3], Kernel::Linear),
            on_columns(
                &[0],
                Kernel::Gaussian {
                    inverse_square_widths: vec![1.0, 2.0],
                },
            ),
            on_columns(&[0], Kernel::Sum(vec![on_columns(&[0], Kernel::Linear)])),
        ] {
            assert!(kernel.validate(3).is_err(), "{kernel:?}");
        }
        for kernel in kernels() {
            assert_eq!(kernel.validate(3), Ok(()));
        }
    }
}
