//! A quadrature rule for products of normal distribution functions, placed anew for each row.
//!
//! The integrand exp(g(u)), g(u) = -u^2 / 2 + sum_j ln Phi(u + d_j), is log-concave. About its mode it is close to a
//! Gaussian that leans to the right, because the curvature of each ln Phi falls from 1 to 0. With s the width at the
//! mode and z the new variable, u = mode + s (e^{cz} - 1) / c makes a near-Gaussian of it for the right lean c, and the
//! trapezoidal rule in z converges as it does for a Gaussian.

use crate::linalg::simd::exp;
use crate::special::{DENSITY_AT_ZERO, cdf, left_cdf};

/// Rows whose modes are sought side by side, and nodes evaluated side by side.
pub(crate) const LANES: usize = 8;
/// One number for each of these.
pub(crate) type Lanes = [f64; LANES];

/// From here on Phi is 1 and phi is 0, to rounding.
const CERTAIN: f64 = 8.5;
/// The difference that stands for the class of the row itself: its factor is 1.
pub(crate) const ABSENT: f64 = 1e3;
/// A mode is found when the last step was this fraction of the width; the error left is of the order of its square.
const MODE_TOLERANCE: f64 = 0.02;
/// Steps to a mode that are ever taken; five are the rule.
const MAX_STEPS: usize = 60;
/// From here to the left ln Phi is a parabola, and hazard + x nothing but rounding.
const PARABOLIC: f64 = -1e3;
/// How many widths left of the mode the lean is taken from.
const AWAY: f64 = 2.0;
/// The least lean: below it the new variable loses digits and gains nothing.
const LEAST_LEAN: f64 = 1e-5;
/// Classes whose factors are multiplied before the product is brought back to about 1: (1e12)^-16 is still a number.
const RESCALE_EVERY: usize = 16;

/// Nodes in the new variable: evenly spaced about 0.
#[derive(Debug, Clone)]
pub(crate) struct Nodes {
    /// A multiple of [`LANES`]; those beyond the number asked for lie at 0 and count nothing.
    z: Vec<f64>,
    counts: Vec<f64>,
    /// Index of the outermost node to the right.
    last: usize,
    spacing: f64,
}

impl Nodes {
    /// With more nodes the rule reaches farther out and becomes finer, both by the root of their number. The factor
    /// is where both errors, measured over rows of all kinds, are about the same.
    pub(crate) fn new(n: usize) -> Self {
        const SQUARE_SPACING: f64 = 8.4;
        let spacing = (SQUARE_SPACING / n as f64).sqrt();
        let centre = 0.5 * (n as f64 - 1.0);
        let mut z: Vec<f64> = (0..n).map(|k| spacing * (k as f64 - centre)).collect();
        let mut counts = vec![1.0; n];
        z.resize(n.next_multiple_of(LANES), 0.0);
        counts.resize(z.len(), 0.0);
        Self {
            z,
            counts,
            last: n - 1,
            spacing,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.z.len()
    }
}

/// Where the integrands of some rows have their modes, and their shape there.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Modes {
    pub(crate) at: Lanes,
    /// The root of minus the inverse second derivative of g; at most 1.
    width: Lanes,
    /// How the integrand leans to the right: c of the new variable.
    lean: Lanes,
}

impl Modes {
    /// Of rows given by their differences, class after class.
    ///
    /// g' is convex and falls, so Newton's method from a point left of its root climbs to it and never passes it.
    #[inline(always)]
    #[allow(clippy::inline_always)] // so that it is compiled for the instruction set of its caller
    pub(crate) fn find<const FUSED: bool>(differences: &[Lanes]) -> Self {
        let mut at = left_of_modes(differences);
        let mut width = [1.0; LANES];
        let mut moving = [true; LANES];
        for _ in 0..MAX_STEPS {
            let (slope, curvature) = derivatives::<FUSED>(differences, &at);
            for l in 0..LANES {
                // A row at rest stays as it is, whatever the rows beside it need.
                let step = if moving[l] {
                    slope[l] / curvature[l]
                } else {
                    0.0
                };
                width[l] = if moving[l] {
                    1.0 / curvature[l].sqrt()
                } else {
                    width[l]
                };
                at[l] += step;
                moving[l] = step.abs() > MODE_TOLERANCE * width[l];
            }
            if !moving.contains(&true) {
                break;
            }
        }
        let lean = leans::<FUSED>(differences, &at, &width);
        Self { at, width, lean }
    }
}

/// The lean that gives the slope of g [`AWAY`] widths left of the mode, where a Gaussian has [`AWAY`] / width.
///
/// To first order in c the slope there is 1 + 1.5 [`AWAY`] c times that; the next order is fitted. The third derivative at
/// the mode would say the same for small c, but it does not see a shoulder farther out, which many classes with the same
/// score make.
#[inline(always)]
#[allow(clippy::inline_always)] // as `Modes::find`
fn leans<const FUSED: bool>(differences: &[Lanes], at: &Lanes, width: &Lanes) -> Lanes {
    let mut lean = [0.0; LANES];
    for l in 0..LANES {
        lean[l] = at[l] - AWAY * width[l];
    }
    let (slope, _) = derivatives::<FUSED>(differences, &lean);
    for l in 0..LANES {
        let excess = (slope[l] * width[l] / AWAY - 1.0).max(0.0);
        lean[l] = (excess / (3.0 + 2.2 * excess)).max(LEAST_LEAN);
    }
    lean
}

/// Points where g' is not negative: the hazard exceeds max(-x, 0), and with that in its place two of Newton's steps from
/// the mode that the farthest class alone would give do not pass the root.
#[inline(always)]
#[allow(clippy::inline_always)] // as `Modes::find`
fn left_of_modes(differences: &[Lanes]) -> Lanes {
    let mut at = [0.0; LANES];
    for d in differences {
        for l in 0..LANES {
            at[l] = f64::max(at[l], -0.5 * d[l]);
        }
    }
    for _ in 0..2 {
        let (mut slope, mut curvature) = (at.map(|u| -u), [1.0; LANES]);
        for d in differences {
            for l in 0..LANES {
                let x = at[l] + d[l];
                slope[l] -= x.min(0.0);
                curvature[l] += if x < 0.0 { 1.0 } else { 0.0 };
            }
        }
        for l in 0..LANES {
            at[l] += slope[l].max(0.0) / curvature[l];
        }
    }
    at
}

/// g' and -g''.
#[inline(always)]
#[allow(clippy::inline_always)] // as `Modes::find`
fn derivatives<const FUSED: bool>(differences: &[Lanes], at: &Lanes) -> (Lanes, Lanes) {
    let (mut slope, mut curvature) = (at.map(|u| -u), [1.0; LANES]);
    for d in differences {
        for l in 0..LANES {
            let x = at[l] + d[l];
            let hazard = cdf::<FUSED>(x).hazard;
            slope[l] += hazard;
            curvature[l] += crate::likelihood::probit::quadrature::curvature(hazard, x);
        }
    }
    (slope, curvature)
}

/// Minus the second derivative of ln Phi at x, where the hazard is given.
#[inline(always)]
#[allow(clippy::inline_always)] // as `Modes::find`
pub(crate) fn curvature(hazard: f64, x: f64) -> f64 {
    if x < PARABOLIC {
        1.0
    } else {
        hazard * (hazard + x)
    }
}

/// The integral of one row at the nodes; reused from row to row.
#[derive(Debug, Default)]
pub(crate) struct Integral {
    /// Nodes relative to the mode.
    pub(crate) offset: Vec<f64>,
    /// Products of the scaled Phi; in the end the weights of the nodes, which sum to 1.
    pub(crate) product: Vec<f64>,
    /// What belongs in the exponent, relative to that at the mode.
    exponent: Vec<f64>,
    /// The hazards, class after class, of the classes seen.
    pub(crate) hazard: Vec<f64>,
    /// How they differ from their means: for each group of classes, node after node.
    pub(crate) centred: Vec<Lanes>,
    /// Whether the factor of a class differs from 1 at any node.
    pub(crate) seen: Vec<bool>,
}

impl Integral {
    /// Makes room for so many classes and nodes.
    pub(crate) fn fit(&mut self, n_classes: usize, nodes: &Nodes) {
        for values in [&mut self.offset, &mut self.product, &mut self.exponent] {
            values.resize(nodes.len(), 0.0);
        }
        self.hazard.resize(n_classes * nodes.len(), 0.0);
        let centred = n_classes.div_ceil(LANES) * nodes.len();
        self.centred.resize(centred, [0.0; LANES]);
        self.seen.resize(n_classes, false);
    }

    /// ln E_u[prod_j Phi(u + d_j)] for row `l` of those whose modes are given.
    #[inline(always)]
    #[allow(clippy::inline_always)] // as `Modes::find`
    pub(crate) fn take<const FUSED: bool>(
        &mut self,
        nodes: &Nodes,
        modes: &Modes,
        l: usize,
        differences: &[Lanes],
    ) -> f64 {
        let (at, width, lean) = (modes.at[l], modes.width[l], modes.lean[l]);
        self.place::<FUSED>(nodes, width, lean);
        let (least, most) = (self.offset[0], self.offset[nodes.last]);
        // g at the mode less the logarithms of the scaled Phi; slope and curvature of those parts that are parabolas.
        let (mut log, mut slope, mut parabolas) = (-0.5 * at * at, -at, 1.0);
        let mut n_factors = 0;
        for (j, d) in differences.iter().enumerate() {
            let x = at + d[l];
            self.seen[j] = x + least <= CERTAIN;
            if !self.seen[j] {
                continue;
            }
            log -= 0.5 * x.min(0.0).powi(2);
            if x + most < 0.0 {
                slope -= x;
                parabolas += 1.0;
                self.multiply_left::<FUSED>(x, j);
            } else {
                self.multiply::<FUSED>(x, j);
            }
            n_factors += 1;
            if n_factors % RESCALE_EVERY == 0 {
                log += self.rescale();
            }
        }
        let total = self.weigh::<FUSED>(nodes, lean, slope, parabolas);
        log + (DENSITY_AT_ZERO * width * nodes.spacing * total).ln()
    }

    /// The mean of phi / Phi at u + d_j under the integrand: minus the derivative of ln P in the score of class `j`.
    #[inline(always)]
    #[allow(clippy::inline_always)] // as `Modes::find`
    pub(crate) fn mean_hazard(&self, j: usize) -> f64 {
        if self.seen[j] {
            dot(
                &self.product,
                &self.hazard[j * self.offset.len()..][..self.offset.len()],
            )
        } else {
            0.0
        }
    }

    /// Makes [`Integral::mean_hazard`] of the other classes their probabilities relative to that of the row's own.
    ///
    /// In the noisy copy y of the own score all classes share one integrand but for a factor: the density that y is
    /// the largest copy and of class j is `prod_k Phi(y - f_k)` times the hazard of y - f_j.
    #[inline(always)]
    #[allow(clippy::inline_always)] // as `Modes::find`
    pub(crate) fn divide_by_own_hazard<const FUSED: bool>(&mut self, modes: &Modes, l: usize) {
        for (product, offset) in self.product.iter_mut().zip(&self.offset) {
            // Where the hazard is 0 the weight is 0 as well.
            *product /= cdf::<FUSED>(modes.at[l] + offset)
                .hazard
                .max(f64::MIN_POSITIVE);
        }
    }

    /// Puts the nodes about the mode.
    #[inline(always)]
    #[allow(clippy::inline_always)] // as `Modes::find`
    fn place<const FUSED: bool>(&mut self, nodes: &Nodes, width: f64, lean: f64) {
        for (to, z) in self.offset.iter_mut().zip(&nodes.z) {
            *to = width / lean * (exp::<FUSED>(lean * z) - 1.0);
        }
        self.product.fill(1.0);
        self.exponent.fill(0.0);
    }

    /// Takes in the factor Phi(x + offset) of class `j`, where x + offset < 0 at all nodes; without its parabola.
    #[inline(always)]
    #[allow(clippy::inline_always)] // as `Modes::find`
    fn multiply_left<const FUSED: bool>(&mut self, x: f64, j: usize) {
        let n = self.offset.len();
        let to = self.product.iter_mut().zip(&mut self.hazard[j * n..][..n]);
        for ((product, hazard), offset) in to.zip(&self.offset) {
            let cdf = left_cdf::<FUSED>(x + offset);
            *product *= cdf.scaled;
            *hazard = cdf.hazard;
        }
    }

    /// Takes in the factor Phi(x + offset) of class `j`.
    #[inline(always)]
    #[allow(clippy::inline_always)] // as `Modes::find`
    fn multiply<const FUSED: bool>(&mut self, x: f64, j: usize) {
        let n = self.offset.len();
        let to = self.product.iter_mut().zip(&mut self.exponent);
        let to = to.zip(&mut self.hazard[j * n..][..n]);
        let at_mode = 0.5 * x.min(0.0).powi(2);
        for (((product, exponent), hazard), offset) in to.zip(&self.offset) {
            let x = x + offset;
            let cdf = cdf::<FUSED>(x);
            let left = x.min(0.0);
            *exponent += at_mode - 0.5 * left * left;
            *product *= cdf.scaled;
            *hazard = cdf.hazard;
        }
    }

    /// Brings the products back to about 1; returns the logarithm of what was taken out.
    fn rescale(&mut self) -> f64 {
        let middle = self.product[self.product.len() / 2];
        self.product.iter_mut().for_each(|p| *p /= middle);
        middle.ln()
    }

    /// Makes the products the weights of the nodes; returns what they summed to.
    #[inline(always)]
    #[allow(clippy::inline_always)] // as `Modes::find`
    fn weigh<const FUSED: bool>(
        &mut self,
        nodes: &Nodes,
        lean: f64,
        slope: f64,
        parabolas: f64,
    ) -> f64 {
        let from = self.offset.iter().zip(&self.exponent).zip(&nodes.z);
        for (product, ((offset, exponent), z)) in self.product.iter_mut().zip(from) {
            let parabola = offset * (slope - 0.5 * parabolas * offset);
            *product *= exp::<FUSED>(parabola + exponent + lean * z);
        }
        let total = dot(&self.product, &nodes.counts);
        for (product, counts) in self.product.iter_mut().zip(&nodes.counts) {
            *product *= counts / total;
        }
        total
    }
}

/// The inner product of two vectors of a multiple of [`LANES`] elements.
#[inline(always)]
#[allow(clippy::inline_always)] // as `Modes::find`
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; LANES];
    for (a, b) in a.chunks_exact(LANES).zip(b.chunks_exact(LANES)) {
        for l in 0..LANES {
            sums[l] += a[l] * b[l];
        }
    }
    sums.iter().sum()
}
