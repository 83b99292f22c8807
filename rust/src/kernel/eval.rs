//! Kernel values between a run of points and a centre, compiled for each instruction set.

use crate::kernel::Kernel;
use crate::linalg::simd::{Simd, WithSimd, dispatch, exp, is_fused};

/// Most points per call: their partial sums stay in the first-level cache.
pub(crate) const CHUNK: usize = 512;
/// Points whose sums are in registers together: four of the widest vectors, to hide the latency of additions, or one.
const WIDE: usize = 32;
pub(crate) const NARROW: usize = 8;

/// A run of points: the values of feature d are `values[d * stride + start..][..len]`.
#[derive(Clone, Copy)]
pub(crate) struct Run<'a> {
    pub(crate) values: &'a [f64],
    pub(crate) stride: usize,
    pub(crate) start: usize,
    pub(crate) len: usize,
}

/// The centre, and the features of the points and the centre that the kernel uses; `None`: all of them.
#[derive(Clone, Copy)]
struct Centre<'a> {
    values: &'a [f64],
    columns: Option<&'a [usize]>,
}

impl Centre<'_> {
    fn len(self) -> usize {
        self.columns.map_or(self.values.len(), <[usize]>::len)
    }

    /// The index and the value of the d-th feature that the kernel uses.
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
    /// `k(x_n, z)` for the points of a run, at most `CHUNK` of them.
    pub(crate) fn values_into(&self, x: Run<'_>, z: &[f64], out: &mut [f64]) {
        let z = Centre {
            values: z,
            columns: None,
        };
        dispatch(Fill {
            kernel: self,
            x,
            z,
            out,
        });
    }

    #[inline(always)]
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
            Self::CentredLinear { offset } => {
                let product = |d: usize, x: f64, z: f64| (x - offset[d]) * (z - offset[d]);
                accumulate(x, z, out, product, |v| v);
            }
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

/// [`Kernel::fill`] as an operation for [`dispatch`].
struct Fill<'a> {
    kernel: &'a Kernel,
    x: Run<'a>,
    z: Centre<'a>,
    out: &'a mut [f64],
}

impl WithSimd for Fill<'_> {
    type Output = ();

    #[inline(always)]
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
/// The sums of a strip of points stay in registers. The last strip may repeat points of the one before: the value of a
/// point does not depend on its position.
#[inline(always)]
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

/// Writes the first `N` values of `out`, for the points from `at` on.
#[inline(always)]
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

/// Combines the values of several kernels. Not inlined, because it calls `fill` on its parts.
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
fn spline(x: f64, z: f64) -> f64 {
    let m = if x < z { x } else { z };
    1.0 + x * z + x * z * m - 0.5 * (x + z) * (m * m) + m * m * m / 3.0
}

/// base^degree by repeated squaring.
#[inline(always)]
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
