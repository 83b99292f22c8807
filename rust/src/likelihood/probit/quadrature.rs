//! Quadrature of products of normal cdfs, with nodes adapted to each row.
//!
//! The integrand exp(g(u)), g(u) = -u^2 / 2 + sum_j ln Phi(u + d_j), is log-concave. Near its mode it is close to a
//! Gaussian skewed to the right, because the curvature of each ln Phi falls from 1 to 0. With s the width at the mode and
//! z a new variable, u = mode + s (e^{cz} - 1) / c makes it nearly Gaussian for a suitable skew c, and the trapezoidal
//! rule in z converges as it does for a Gaussian.

use crate::linalg::simd::exp;
use crate::special::{DENSITY_AT_ZERO, cdf, left_cdf};

/// Rows whose modes are found together, and nodes that are evaluated together.
pub(crate) const LANES: usize = 8;
/// One number per lane.
pub(crate) type Lanes = [f64; LANES];

/// Above this Phi is 1 and phi is 0 up to rounding.
const CERTAIN_ABOVE: f64 = 8.5;
/// The difference used for the row's own class: its factor Phi is 1.
pub(crate) const ABSENT: f64 = 1e3;
/// Newton's method for the mode ends after a step below this fraction of the width; the error is of the order of its
/// square.
const MODE_TOLERANCE: f64 = 0.02;
/// Most Newton steps to a mode; about five are needed.
const MAX_STEPS: usize = 60;
/// Below this ln Phi is a parabola, and hazard + x is only rounding.
const PARABOLIC_BELOW: f64 = -1e3;
/// Distance left of the mode, in widths, at which the skew is fitted.
const SKEW_DISTANCE: f64 = 2.0;
/// Smallest skew: with a smaller one (e^{cz} - 1) / c loses digits.
const MIN_SKEW: f64 = 1e-5;
/// Factors multiplied between two rescalings of the product: (1e12)^-16 does not underflow.
const RESCALE_EVERY: usize = 16;

/// Nodes in the new variable, evenly spaced about 0.
#[derive(Debug, Clone)]
pub(crate) struct Nodes {
    /// Padded to a multiple of [`LANES`] with nodes of weight 0.
    z: Vec<f64>,
    counts: Vec<f64>,
    /// Index of the rightmost node.
    last: usize,
    spacing: f64,
}

impl Nodes {
    /// With more nodes the range grows and the spacing falls, both with the root of their number. The factor balances the
    /// truncation and the discretisation error.
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

/// Mode, width and skew of the integrands of some rows.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Modes {
    pub(crate) at: Lanes,
    /// The root of minus the inverse second derivative of g; at most 1.
    width: Lanes,
    /// The skew c of the new variable.
    skew: Lanes,
}

impl Modes {
    /// Finds the modes, given the score differences for each class.
    ///
    /// g' is convex and decreasing, so Newton's method from a point left of its root converges monotonically.
    #[inline(always)]
    pub(crate) fn find<const FUSED: bool>(differences: &[Lanes]) -> Self {
        let mut at = left_of_modes(differences);
        let mut width = [1.0; LANES];
        let mut moving = [true; LANES];
        for _ in 0..MAX_STEPS {
            let (slope, curvature) = derivatives::<FUSED>(differences, &at);
            for l in 0..LANES {
                // A converged row does not change while other rows iterate.
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
        let skew = fit_skew::<FUSED>(differences, &at, &width);
        Self { at, width, skew }
    }
}

/// The skew that matches the slope of g [`SKEW_DISTANCE`] widths left of the mode, which is [`SKEW_DISTANCE`] / width for a Gaussian.
///
/// To first order in c the slope is 1 + 1.5 [`SKEW_DISTANCE`] c times that; the next order is fitted. The third derivative at the
/// mode agrees for small c but misses the shoulder that many classes with equal scores produce farther from the mode.
#[inline(always)]
fn fit_skew<const FUSED: bool>(differences: &[Lanes], at: &Lanes, width: &Lanes) -> Lanes {
    let mut skew = [0.0; LANES];
    for l in 0..LANES {
        skew[l] = at[l] - SKEW_DISTANCE * width[l];
    }
    let (slope, _) = derivatives::<FUSED>(differences, &skew);
    for l in 0..LANES {
        let excess = (slope[l] * width[l] / SKEW_DISTANCE - 1.0).max(0.0);
        skew[l] = (excess / (3.0 + 2.2 * excess)).max(MIN_SKEW);
    }
    skew
}

/// Points where g' >= 0: two Newton steps from the mode of the class with the most negative difference alone, with the
/// hazard replaced by its lower bound max(-x, 0).
#[inline(always)]
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
fn derivatives<const FUSED: bool>(differences: &[Lanes], at: &Lanes) -> (Lanes, Lanes) {
    let (mut slope, mut curvature) = (at.map(|u| -u), [1.0; LANES]);
    for d in differences {
        for l in 0..LANES {
            let x = at[l] + d[l];
            let hazard = cdf::<FUSED>(x).hazard;
            slope[l] += hazard;
            curvature[l] += log_cdf_curvature(hazard, x);
        }
    }
    (slope, curvature)
}

/// Minus the second derivative of ln Phi at x, where the hazard is given.
#[inline(always)]
pub(crate) fn log_cdf_curvature(hazard: f64, x: f64) -> f64 {
    if x < PARABOLIC_BELOW {
        1.0
    } else {
        hazard * (hazard + x)
    }
}

/// The integrand of one row at the nodes.
#[derive(Debug, Default)]
pub(crate) struct Integral {
    /// Nodes relative to the mode.
    pub(crate) offset: Vec<f64>,
    /// Products of the scaled Phi; finally the weights of the nodes, which sum to 1.
    pub(crate) product: Vec<f64>,
    /// The exponent relative to its value at the mode.
    exponent: Vec<f64>,
    /// The hazards at the nodes, class after class; unset where `seen` is false.
    pub(crate) hazard: Vec<f64>,
    /// The hazards minus their means: for each group of [`LANES`] classes, node after node.
    pub(crate) centred: Vec<Lanes>,
    /// Whether the factor of a class differs from 1 at any node.
    pub(crate) seen: Vec<bool>,
}

impl Integral {
    /// Allocates for this number of classes and nodes.
    pub(crate) fn fit(&mut self, n_classes: usize, nodes: &Nodes) {
        for values in [&mut self.offset, &mut self.product, &mut self.exponent] {
            values.resize(nodes.len(), 0.0);
        }
        self.hazard.resize(n_classes * nodes.len(), 0.0);
        let centred = n_classes.div_ceil(LANES) * nodes.len();
        self.centred.resize(centred, [0.0; LANES]);
        self.seen.resize(n_classes, false);
    }

    /// ln E_u[prod_j Phi(u + d_j)] for row `l` of the group with these modes.
    #[inline(always)]
    pub(crate) fn evaluate<const FUSED: bool>(
        &mut self,
        nodes: &Nodes,
        modes: &Modes,
        l: usize,
        differences: &[Lanes],
    ) -> f64 {
        let (at, width, skew) = (modes.at[l], modes.width[l], modes.skew[l]);
        self.place::<FUSED>(nodes, width, skew);
        let (least, most) = (self.offset[0], self.offset[nodes.last]);
        // g at the mode without the logarithms of the scaled Phi; slope and curvature of the quadratic factors.
        let (mut log, mut slope, mut parabolas) = (-0.5 * at * at, -at, 1.0);
        let mut n_factors = 0;
        for (j, d) in differences.iter().enumerate() {
            let x = at + d[l];
            self.seen[j] = x + least <= CERTAIN_ABOVE;
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
        let total = self.weigh::<FUSED>(nodes, skew, slope, parabolas);
        log + (DENSITY_AT_ZERO * width * nodes.spacing * total).ln()
    }

    /// The mean of phi / Phi at u + d_j under the integrand, which is minus the derivative of ln P in the score of `j`.
    #[inline(always)]
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

    /// After this, [`Integral::mean_hazard`] is the probability of a class relative to that of the row's own class.
    ///
    /// The integrands of all classes differ by a factor only: the density that the largest copy is y and belongs to class
    /// j is `prod_k Phi(y - f_k)` times the hazard of y - f_j.
    #[inline(always)]
    pub(crate) fn divide_by_own_hazard<const FUSED: bool>(&mut self, modes: &Modes, l: usize) {
        for (product, offset) in self.product.iter_mut().zip(&self.offset) {
            // Where the hazard is 0 the weight is also 0.
            *product /= cdf::<FUSED>(modes.at[l] + offset)
                .hazard
                .max(f64::MIN_POSITIVE);
        }
    }

    /// Places the nodes around the mode.
    #[inline(always)]
    fn place<const FUSED: bool>(&mut self, nodes: &Nodes, width: f64, skew: f64) {
        for (to, z) in self.offset.iter_mut().zip(&nodes.z) {
            *to = width / skew * (exp::<FUSED>(skew * z) - 1.0);
        }
        self.product.fill(1.0);
        self.exponent.fill(0.0);
    }

    /// Multiplies by the factor Phi(x + offset) of class `j` without its parabola, where x + offset < 0 at all nodes.
    #[inline(always)]
    fn multiply_left<const FUSED: bool>(&mut self, x: f64, j: usize) {
        let n = self.offset.len();
        let to = self.product.iter_mut().zip(&mut self.hazard[j * n..][..n]);
        for ((product, hazard), offset) in to.zip(&self.offset) {
            let cdf = left_cdf::<FUSED>(x + offset);
            *product *= cdf.scaled;
            *hazard = cdf.hazard;
        }
    }

    /// Multiplies by the factor Phi(x + offset) of class `j`.
    #[inline(always)]
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

    /// Centres the hazard of class `j` by its mean; returns the mean of minus the second derivative of ln Phi at u + d_j,
    /// which is hazard (hazard + u + d_j). `at` is u + d_j at the mode.
    #[inline(always)]
    pub(crate) fn centre(&mut self, j: usize, mean: f64, at: f64) -> f64 {
        let n = self.offset.len();
        let centred = self.centred[j / LANES * n..][..n].iter_mut();
        let centred = centred.map(|lanes| &mut lanes[j % LANES]);
        if !self.seen[j] {
            centred.for_each(|to| *to = 0.0);
            return 0.0;
        }
        let hazards = &self.hazard[j * n..][..n];
        for (to, hazard) in centred.zip(hazards) {
            *to = hazard - mean;
        }
        let mut sums = [0.0; LANES];
        let nodes = self.product.chunks_exact(LANES);
        let nodes = nodes.zip(self.offset.chunks_exact(LANES));
        for (hazards, (product, offset)) in hazards.chunks_exact(LANES).zip(nodes) {
            for l in 0..LANES {
                sums[l] += product[l] * log_cdf_curvature(hazards[l], at + offset[l]);
            }
        }
        sums.iter().sum()
    }

    /// The covariances of the centred hazard of class `c` with those of the [`LANES`] classes from `LANES * group` on.
    #[inline(always)]
    pub(crate) fn covariances(&self, c: usize, group: usize) -> Lanes {
        let n = self.offset.len();
        let own = &self.centred[c / LANES * n..][..n];
        let others = &self.centred[group * n..][..n];
        let mut sums = [0.0; LANES];
        for (product, (own, others)) in self.product.iter().zip(own.iter().zip(others)) {
            let weight = product * own[c % LANES];
            for l in 0..LANES {
                sums[l] += weight * others[l];
            }
        }
        sums
    }

    /// Divides the products by a common factor and returns its logarithm.
    fn rescale(&mut self) -> f64 {
        let middle = self.product[self.product.len() / 2];
        self.product.iter_mut().for_each(|p| *p /= middle);
        middle.ln()
    }

    /// Turns the products into normalised weights of the nodes; returns their sum.
    #[inline(always)]
    fn weigh<const FUSED: bool>(
        &mut self,
        nodes: &Nodes,
        skew: f64,
        slope: f64,
        parabolas: f64,
    ) -> f64 {
        let from = self.offset.iter().zip(&self.exponent).zip(&nodes.z);
        for (product, ((offset, exponent), z)) in self.product.iter_mut().zip(from) {
            let parabola = offset * (slope - 0.5 * parabolas * offset);
            *product *= exp::<FUSED>(parabola + exponent + skew * z);
        }
        let total = dot(&self.product, &nodes.counts);
        for (product, counts) in self.product.iter_mut().zip(&nodes.counts) {
            *product *= counts / total;
        }
        total
    }
}

/// The inner product of two vectors whose length is a multiple of [`LANES`].
#[inline(always)]
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; LANES];
    for (a, b) in a.chunks_exact(LANES).zip(b.chunks_exact(LANES)) {
        for l in 0..LANES {
            sums[l] += a[l] * b[l];
        }
    }
    sums.iter().sum()
}
