//! Points stored feature by feature, and kernel values between a run of them and a centre, compiled for each instruction set.

use std::f64::consts::PI;

use crate::kernel::Kernel;
use crate::linalg::simd::{Simd, WithSimd, dispatch, exp, is_fused, multiply_add};

/// Most points per call: their partial sums stay in the first-level cache.
pub(crate) const CHUNK: usize = 512;
/// Points whose sums are in registers together: four of the widest vectors, to hide the latency of additions, or one.
const WIDE: usize = 32;
pub(crate) const NARROW: usize = 8;

/// Points stored feature by feature, so that the values of one feature are contiguous.
#[derive(Debug, Clone, Default)]
pub struct Points {
    len: usize,
    n_features: usize,
    values: Vec<f64>,
}

impl Points {
    /// Copies a row-major table of `n_points` x `n_features` values.
    ///
    /// # Panics
    /// If `rows` is shorter.
    #[must_use]
    pub fn from_rows(rows: &[f64], n_points: usize, n_features: usize) -> Self {
        let mut points = Self::default();
        points.refill(rows, n_points, n_features);
        points
    }

    /// Replaces the points as [`Points::from_rows`] does, reusing their memory.
    pub(crate) fn refill(&mut self, rows: &[f64], n_points: usize, n_features: usize) {
        self.len = n_points;
        self.n_features = n_features;
        self.values.resize(n_points * n_features, 0.0);
        let rows = &rows[..self.values.len()];
        // Some points at a time, so that their rows stay in the cache for all features.
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

    /// `len` points from `start` on.
    pub(crate) fn run(&self, start: usize, len: usize) -> Run<'_> {
        Run {
            values: &self.values[start..],
            stride: self.len,
            len,
        }
    }
}

/// A run of points: the values of feature d are `values[d * stride..][..len]`.
#[derive(Clone, Copy)]
pub(crate) struct Run<'a> {
    pub(crate) values: &'a [f64],
    pub(crate) stride: usize,
    pub(crate) len: usize,
}

/// The centre, and the features of the points and the centre that the kernel uses; `None`: all of them.
#[derive(Clone, Copy)]
pub(crate) struct Centre<'a> {
    values: &'a [f64],
    columns: Option<&'a [usize]>,
}

impl<'a> Centre<'a> {
    /// A centre of which the kernel uses all features.
    pub(crate) fn whole(values: &'a [f64]) -> Self {
        let columns = None;
        Self { values, columns }
    }

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
        &self.values[d * self.stride..][..self.len]
    }
}

impl Kernel {
    /// `k(x_n, z)` for the points of a run, at most `CHUNK` of them.
    pub(crate) fn values_into(&self, x: Run<'_>, z: Centre<'_>, out: &mut [f64]) {
        let kernel = self;
        dispatch(Fill { kernel, x, z, out });
    }

    #[inline(always)]
    fn fill<const FUSED: bool>(&self, x: Run<'_>, z: Centre<'_>, out: &mut [f64]) {
        match self {
            Self::Gaussian {
                inverse_square_widths: w,
            } => radial(x, z, out, w, |v| exp::<FUSED>(-v)),
            Self::Matern32 {
                inverse_square_widths: w,
            } => radial(x, z, out, w, matern32::<FUSED>),
            Self::Matern52 {
                inverse_square_widths: w,
            } => radial(x, z, out, w, matern52::<FUSED>),
            Self::RationalQuadratic {
                inverse_square_widths: w,
                alpha,
            } => radial(x, z, out, w, |v| exp::<FUSED>(-alpha * (v / alpha).ln_1p())),
            Self::Periodic { period, width } => {
                let scale = (period / (PI * width)).powi(2);
                let square = |_, x: f64, z: f64| sin_pi::<FUSED>((x - z) / period).powi(2);
                accumulate(x, z, out, square, |v| exp::<FUSED>(-scale * v));
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
                    let factors = x.feature(feature).iter().map(|&x| spline(x, z));
                    out.iter_mut().zip(factors).for_each(|(v, f)| *v *= f);
                }
            }
            Self::Sum(parts) => combine(parts, x, z, out, |v, part| *v += part),
            Self::Product(parts) => combine(parts, x, z, out, |v, part| *v *= part),
            Self::OnColumns { columns, kernel } => {
                let (values, columns) = (z.values, Some(&columns[..]));
                kernel.values_into(x, Centre { values, columns }, out);
            }
        }
    }
}

impl Kernel {
    /// Adds the gradient of k(x, z) in x, times `factor`, to `out`; returns k(x, z). Where the gradient jumps it is that of one side.
    ///
    /// # Panics
    /// If x, z and `out` differ in length.
    pub fn add_gradient(&self, x: &[f64], z: &[f64], factor: f64, out: &mut [f64]) -> f64 {
        assert!(x.len() == z.len() && x.len() == out.len(), "features");
        let value = self.eval(x, z);
        match self {
            Self::Sum(parts) => {
                for part in parts {
                    part.add_gradient(x, z, factor, out);
                }
            }
            Self::Product(parts) => {
                for (i, part) in parts.iter().enumerate() {
                    let others = parts.iter().enumerate().filter(|(j, _)| *j != i);
                    let rest: f64 = others.map(|(_, other)| other.eval(x, z)).product();
                    part.add_gradient(x, z, factor * rest, out);
                }
            }
            Self::OnColumns { columns, kernel } => {
                let pick = |of: &[f64]| columns.iter().map(|&j| of[j]).collect::<Vec<_>>();
                let mut own = vec![0.0; columns.len()];
                kernel.add_gradient(&pick(x), &pick(z), factor, &mut own);
                for (&j, own) in columns.iter().zip(own) {
                    out[j] += own;
                }
            }
            _ => {
                let slope = self.slopes(x, z, value);
                for (d, out) in out.iter_mut().enumerate() {
                    *out += factor * slope(d);
                }
            }
        }
        value
    }

    /// The derivative in each x_d of an elementary kernel with this value.
    fn slopes<'a>(
        &'a self,
        x: &'a [f64],
        z: &'a [f64],
        value: f64,
    ) -> Box<dyn Fn(usize) -> f64 + 'a> {
        let product = || x.iter().zip(z).map(|(x, z)| x * z).sum::<f64>();
        match self {
            Self::Periodic { period, width } => {
                let scale = -value * (period / (PI * width)).powi(2) * PI / period;
                Box::new(move |d| scale * (2.0 * PI * (x[d] - z[d]) / period).sin())
            }
            Self::Laplacian { gamma } => {
                let sign = |d: usize| f64::from(x[d] < z[d]) - f64::from(x[d] > z[d]);
                Box::new(move |d| value * gamma * sign(d))
            }
            Self::Linear => Box::new(move |d| z[d]),
            Self::CentredLinear { offset } => Box::new(move |d| z[d] - offset[d]),
            Self::Polynomial {
                degree,
                gamma,
                coef0,
            } => {
                let slope = gamma * f64::from(*degree);
                let slope = slope * power(gamma * product() + coef0, degree - 1);
                Box::new(move |d| slope * z[d])
            }
            Self::Sigmoid { gamma, .. } => Box::new(move |d| gamma * (1.0 - value * value) * z[d]),
            Self::LinearSpline => Box::new(move |d| {
                let others = (0..x.len()).filter(|&j| j != d);
                let others: f64 = others.map(|j| spline(x[j], z[j])).product();
                others * spline_slope(x[d], z[d])
            }),
            _ => {
                let w = self.inverse_square_widths().unwrap_or(&[]);
                let w = move |d: usize| if w.len() == 1 { w[0] } else { w[d] };
                let square = |d: usize| (w(d) * (x[d] - z[d])) * (x[d] - z[d]);
                let slope = 2.0 * self.slope_in_square((0..x.len()).map(square).sum(), value);
                // An input of infinite width, w = 0, counts nothing; far away the difference may overflow.
                Box::new(move |d| {
                    if slope == 0.0 || w(d) == 0.0 {
                        0.0
                    } else {
                        slope * (w(d) * (x[d] - z[d]))
                    }
                })
            }
        }
    }

    /// The derivative in v, the weighted squared distance, of a kernel that is a function of v, with this value.
    #[must_use]
    pub fn slope_in_square(&self, v: f64, value: f64) -> f64 {
        match self {
            // With r^2 = 6 v, d/dv (1 + r) exp(-r) = -3 exp(-r).
            Self::Matern32 { .. } => -3.0 * value / (1.0 + at_most((6.0 * v).sqrt(), MAX_RADIUS)),
            // With r^2 = 10 v, d/dv (1 + r + r^2 / 3) exp(-r) = -(5 / 3) (1 + r) exp(-r).
            Self::Matern52 { .. } => {
                let r = at_most((10.0 * v).sqrt(), MAX_RADIUS);
                -5.0 / 3.0 * value * (1.0 + r) / (1.0 + r * (1.0 + r / 3.0))
            }
            Self::RationalQuadratic { alpha, .. } => -value / (1.0 + v / alpha),
            _ => -value,
        }
    }
}

/// The derivative in x of one factor of the linear spline kernel.
fn spline_slope(x: f64, z: f64) -> f64 {
    if x < z {
        z + x * z - 0.5 * x * x
    } else {
        z + 0.5 * z * z
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

/// `out_n = value(sum_d w_d (x_nd - z_d)^2)` with one weight w for all inputs or one for each.
#[inline(always)]
fn radial(
    x: Run<'_>,
    z: Centre<'_>,
    out: &mut [f64],
    w: &[f64],
    value: impl Fn(f64) -> f64 + Copy,
) {
    if let [scale] = *w {
        let square = |_, x: f64, z: f64| (x - z) * (x - z);
        accumulate(x, z, out, square, |v| value(scale * v));
    } else {
        // An input of infinite width, w = 0, counts nothing, even if its square overflows.
        let square = |d: usize, x: f64, z: f64| (w[d] * (x - z)) * (x - z);
        accumulate(x, z, out, square, value);
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
    first.values_into(x, z, out);
    let mut buffer = [0.0; CHUNK];
    for part in rest {
        let values = &mut buffer[..out.len()];
        part.values_into(x, z, values);
        out.iter_mut()
            .zip(values.iter())
            .for_each(|(v, &part)| join(v, part));
    }
}

/// [`exp`] of minus this distance is 0, so that polynomials times it may stop growing here and remain finite.
const MAX_RADIUS: f64 = 1e3;

/// The smaller number; NaN if `value` is.
#[inline(always)]
fn at_most(value: f64, most: f64) -> f64 {
    if value > most { most } else { value }
}

/// `(1 + r) exp(-r)` with `r^2 = 6 v`.
#[inline(always)]
fn matern32<const FUSED: bool>(v: f64) -> f64 {
    let r = (6.0 * v).sqrt();
    (1.0 + at_most(r, MAX_RADIUS)) * exp::<FUSED>(-r)
}

/// `(1 + r + r^2 / 3) exp(-r)` with `r^2 = 10 v`.
#[inline(always)]
fn matern52<const FUSED: bool>(v: f64) -> f64 {
    let r = (10.0 * v).sqrt();
    let near = at_most(r, MAX_RADIUS);
    (1.0 + near + near * near / 3.0) * exp::<FUSED>(-r)
}

/// sin(pi t) up to its sign, without branches so that a loop over it becomes vector code.
///
/// The error is below 1e-15 for |t| < 2^51.
#[inline(always)]
fn sin_pi<const FUSED: bool>(t: f64) -> f64 {
    // Adding 1.5 * 2^52 leaves the nearest integer n in the low bits. sin(pi n + x) is +-sin x: the sign is lost.
    const SHIFT: f64 = 6_755_399_441_055_744.0;
    /// (-1)^k pi^(2 k + 1) / (2 k + 1)!, highest power first; the first term left out is below 2e-18.
    const P: [f64; 11] = [
        5.392_664_662_608_129e-10,
        -2.294_842_899_726_987_3e-8,
        7.952_054_001_475_513e-7,
        -2.191_535_344_783_021_7e-5,
        0.000_466_302_805_767_612_55,
        -0.007_370_430_945_714_350_4,
        0.082_145_886_611_128_23,
        -0.599_264_529_320_792_1,
        2.550_164_039_877_345_5,
        -5.167_712_780_049_97,
        PI,
    ];
    let r = t - ((t + SHIFT) - SHIFT);
    let square = r * r;
    let mut p = P[0];
    for c in &P[1..] {
        p = multiply_add::<FUSED>(p, square, *c);
    }
    p * r
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
