//! A quadrature rule for products of normal distribution functions, placed anew for each row.
//!
//! The integrand exp(g(u)), g(u) = -u^2 / 2 + sum_j ln Phi(u + d_j), is log-concave. About its mode it is close to a
//! Gaussian that leans to the right, because the curvature of each ln Phi falls from 1 to 0. With s the width at the
//! mode and z the new variable, u = mode + s (e^{cz} - 1) / c has no cubic term left for the right c, and the
//! trapezoidal rule in z converges as it does for a Gaussian: geometrically.

use crate::linalg::simd::exp;
use crate::normal::{DENSITY_AT_ZERO, cdf, left_cdf};

/// Rows whose modes are sought side by side, and nodes evaluated side by side.
pub(super) const LANES: usize = 8;
/// One number for each of these.
pub(super) type Lanes = [f64; LANES];

/// From here on Phi is 1 and phi is 0, to rounding.
const CERTAIN: f64 = 8.5;
/// The difference that stands for the class of the row itself: its factor is 1.
pub(super) const ABSENT: f64 = 1e3;
/// A mode is found when the last step was this fraction of the width; the error left is of the order of its square.
const MODE_TOLERANCE: f64 = 0.02;
/// Steps to a mode that are ever taken; five are the rule.
const MAX_STEPS: usize = 60;
/// From here to the left ln Phi is a parabola, and its third derivative nothing but rounding.
const PARABOLIC: f64 = -1e3;
/// The least lean: below it the new variable loses digits and gains nothing.
const LEAST_LEAN: f64 = 1e-5;
/// Classes whose factors are multiplied before the product is brought back to about 1: (1e12)^-16 is still a number.
const RESCALE_EVERY: usize = 16;

/// Nodes in the new variable: evenly spaced about 0.
#[derive(Debug, Clone)]
pub(super) struct Nodes {
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
    pub(super) fn new(n: usize) -> Self {
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

    pub(super) fn len(&self) -> usize {
        self.z.len()
    }
}

/// Where the integrands of some rows have their modes, and their shape there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Modes {
    at: Lanes,
    /// Minus the second derivative of g; never below 1.
    curvature: Lanes,
    /// The third derivative of g.
    third: Lanes,
}

impl Modes {
    /// Of rows given by their differences, class after class.
    ///
    /// g' is convex and falls, so Newton's method from a point left of its root climbs to it and never passes it.
    #[inline(always)]
    #[allow(clippy::inline_always)] // so that it is compiled for the instruction set of its caller
    pub(super) fn find<const FUSED: bool>(differences: &[Lanes]) -> Self {
        let mut modes = Self {
            at: left_of_modes(differences),
            curvature: [1.0; LANES],
            third: [0.0; LANES],
        };
        let mut moving = [true; LANES];
        for _ in 0..MAX_STEPS {
            let (slope, curvature, third) = derivatives::<FUSED>(differences, &modes.at);
            for l in 0..LANES {
                // A row at rest stays as it is, whatever the rows beside it need.
                if moving[l] {
                    let step = slope[l] / curvature[l];
                    modes.at[l] += step;
                    modes.curvature[l] = (curvature[l] - third[l] * step).max(1.0);
                    modes.third[l] = third[l];
                    moving[l] = step * step * curvature[l] > MODE_TOLERANCE * MODE_TOLERANCE;
                }
            }
            if !moving.contains(&true) {
                break;
            }
        }
        modes
    }
}

/// Points where g' is not negative: the hazard exceeds max(-x, 0), and with that in its place two of Newton's steps from
/// the mode that the farthest class alone would give do not pass the root.
#[inline(always)]
#[allow(clippy::inline_always)] // as `find`
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

/// g', -g'' and g'''.
#[inline(always)]
#[allow(clippy::inline_always)] // as `find`
fn derivatives<const FUSED: bool>(differences: &[Lanes], at: &Lanes) -> (Lanes, Lanes, Lanes) {
    let (mut slope, mut curvature, mut third) = (at.map(|u| -u), [1.0; LANES], [0.0; LANES]);
    for d in differences {
        for l in 0..LANES {
            let x = at[l] + d[l];
            let hazard = cdf::<FUSED>(x).hazard;
            let sum = hazard + x;
            let parabolic = x < PARABOLIC;
            slope[l] += hazard;
            curvature[l] += if parabolic { 1.0 } else { hazard * sum };
            third[l] += if parabolic {
                0.0
            } else {
                hazard * (sum * (hazard + sum) - 1.0)
            };
        }
    }
    (slope, curvature, third)
}

/// What the integrals of one row need at the nodes; reused from row to row.
#[derive(Debug)]
pub(super) struct Workspace {
    /// Nodes relative to the mode.
    offset: Vec<f64>,
    /// Products of the scaled Phi, and in the end the weights of the nodes.
    product: Vec<f64>,
    /// What belongs in the exponent, relative to that at the mode.
    exponent: Vec<f64>,
    /// The hazards, class after class.
    hazard: Vec<f64>,
}

impl Workspace {
    pub(super) fn new(n_classes: usize, nodes: &Nodes) -> Self {
        let zeros = vec![0.0; nodes.len()];
        Self {
            offset: zeros.clone(),
            product: zeros.clone(),
            exponent: zeros,
            hazard: vec![0.0; n_classes * nodes.len()],
        }
    }
}

/// ln E_u[prod_j Phi(u + d_j)] for row `l` of those whose modes are given; `corrections[j]` becomes the mean of the
/// hazard of u + d_j under the integrand.
#[inline(always)]
#[allow(clippy::inline_always)] // as `find`
pub(super) fn integrate<const FUSED: bool>(
    nodes: &Nodes,
    modes: &Modes,
    l: usize,
    differences: &[Lanes],
    work: &mut Workspace,
    corrections: &mut [f64],
) -> f64 {
    let n = nodes.len();
    let (at, curvature) = (modes.at[l], modes.curvature[l]);
    let scale = 1.0 / curvature.sqrt();
    let lean = (modes.third[l] * scale * scale * scale / 3.0).max(LEAST_LEAN);
    work.place::<FUSED>(nodes, scale, lean);
    let (least, most) = (work.offset[0], work.offset[nodes.last]);
    // The part of g that is made of parabolas: its value at the mode, slope and curvature there.
    let (mut log, mut slope, mut parabolas) = (-0.5 * at * at, -at, 1.0);
    let mut n_factors = 0;
    for (j, d) in differences.iter().enumerate() {
        let x = at + d[l];
        if x + least > CERTAIN {
            continue;
        }
        if x + most < 0.0 {
            log -= 0.5 * x * x;
            slope -= x;
            parabolas += 1.0;
            work.multiply_left::<FUSED>(x, j);
        } else {
            work.multiply::<FUSED>(x, j);
        }
        n_factors += 1;
        if n_factors % RESCALE_EVERY == 0 {
            log += work.rescale();
        }
    }
    let total = work.weigh::<FUSED>(nodes, lean, slope, parabolas);
    for (j, (d, correction)) in differences.iter().zip(corrections).enumerate() {
        let seen = at + d[l] + least <= CERTAIN;
        *correction = if seen {
            dot(&work.product, &work.hazard[j * n..][..n]) / total
        } else {
            0.0
        };
    }
    log + (DENSITY_AT_ZERO * scale * nodes.spacing * total).ln()
}

impl Workspace {
    /// Puts the nodes about the mode.
    #[inline(always)]
    #[allow(clippy::inline_always)] // as `find`
    fn place<const FUSED: bool>(&mut self, nodes: &Nodes, scale: f64, lean: f64) {
        for (to, z) in self.offset.iter_mut().zip(&nodes.z) {
            *to = scale / lean * (exp::<FUSED>(lean * z) - 1.0);
        }
        self.product.fill(1.0);
        self.exponent.fill(0.0);
    }

    /// Takes in the factor Phi(x + offset) of class `j`, where x + offset < 0 at all nodes; without its parabola.
    #[inline(always)]
    #[allow(clippy::inline_always)] // as `find`
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
    #[allow(clippy::inline_always)] // as `find`
    fn multiply<const FUSED: bool>(&mut self, x: f64, j: usize) {
        let n = self.offset.len();
        let to = self.product.iter_mut().zip(&mut self.exponent);
        let to = to.zip(&mut self.hazard[j * n..][..n]);
        for (((product, exponent), hazard), offset) in to.zip(&self.offset) {
            let x = x + offset;
            let cdf = cdf::<FUSED>(x);
            let left = x.min(0.0);
            *exponent -= 0.5 * left * left;
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

    /// Makes the products the weights of the nodes; returns their sum.
    #[inline(always)]
    #[allow(clippy::inline_always)] // as `find`
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
        for (product, counts) in self.product.iter_mut().zip(&nodes.counts) {
            *product *= counts;
        }
        dot(&self.product, &nodes.counts)
    }
}

/// The inner product of two vectors of a multiple of [`LANES`] elements.
#[inline(always)]
#[allow(clippy::inline_always)] // as `find`
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; LANES];
    for (a, b) in a.chunks_exact(LANES).zip(b.chunks_exact(LANES)) {
        for l in 0..LANES {
            sums[l] += a[l] * b[l];
        }
    }
    sums.iter().sum()
}
