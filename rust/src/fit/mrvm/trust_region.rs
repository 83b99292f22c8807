//! Weights and alphas of the multinomial probit machine together, where E- and M-steps in turn would creep: Newton's method.
//!
//! The equations of each step are solved by conjugate gradients, preconditioned by the blocks that belong to one class each, and
//! within a trust region in the norm of these blocks (Steihaug 1983, SIAM J. Numer. Anal. 20): where the bound is not concave,
//! as it is not in the alphas of functions on their way out, the step goes to the border.

use std::sync::atomic::AtomicBool;

use crate::data::check_flag;
use crate::fit::evidence::ALPHA_FLOOR;
use crate::fit::mrvm::bound::{Bound, View};
use crate::linalg::Cholesky;
use crate::linalg::vector::{axpy, dot};
use crate::{Error, Result};

/// No ln alpha is moved further than this.
const BOX: f64 = 4.0;
/// A ln alpha as close as this to where it may go no further is there.
const CLOSE: f64 = 1e-9;
/// Newton steps at most.
const MOST_STEPS: usize = 200;
/// Trust regions at most for each.
const MOST_TRIALS: usize = 60;
/// Conjugate gradients at most for each of these.
const MOST_GRADIENTS: usize = 250;
/// A step that gains less than this part of what its quadratic model says is not taken.
const LEAST_SHARE: f64 = 1e-3;
/// A promise below this part of the bound cannot be told from rounding.
const ROUNDING: f64 = 1e-14;

/// How far to climb.
#[derive(Debug, Clone, Copy)]
pub struct Ascent {
    /// It ends with a step that gains less, in nats, or takes an alpha as far up as it may go.
    pub least: f64,
    /// The radius of the first trust region: a step as long as 1 gains about half a nat.
    pub radius: f64,
}

/// Where a climb leads.
pub(crate) struct Top {
    pub(crate) x: Vec<f64>,
    /// Those of the E-step there.
    pub(crate) targets: Vec<f64>,
}

/// Climbs from `x`.
///
/// # Errors
/// [`Error::Interrupted`], and [`Error::NotPositiveDefinite`] where there is no posterior to begin with.
pub(crate) fn climb(
    bound: &Bound<'_>,
    x: Vec<f64>,
    ascent: Ascent,
    cancel: Option<&AtomicBool>,
) -> Result<Top> {
    let lowest = ALPHA_FLOOR.ln();
    let ln_alpha = &x[bound.len() * bound.n_classes..];
    let limits: Vec<_> = ln_alpha
        .iter()
        .map(|a| ((a - BOX).max(lowest).min(*a), a + BOX))
        .collect();
    let mut at = (bound.view(&x)?, x);
    let mut radius = ascent.radius;
    for _ in 0..MOST_STEPS {
        match step(bound, &at, &limits, &mut radius, cancel)? {
            Move::Last(x) => {
                return Ok(Top {
                    targets: bound.targets(&x)?,
                    x,
                });
            }
            Move::To(view, x) => {
                let gain = view.value - at.0.value;
                at = (*view, x);
                // A function on its way out is for the M-step, which drops it at once.
                if gain < ascent.least || has_leaving(&at.1, &limits) {
                    break;
                }
            }
        }
    }
    let (View { targets, .. }, x) = at;
    Ok(Top { x, targets })
}

/// Whether an alpha has gone as far up as it may.
fn has_leaving(x: &[f64], limits: &[(f64, f64)]) -> bool {
    let ln_alpha = &x[x.len() - limits.len()..];
    let mut pairs = ln_alpha.iter().zip(limits);
    pairs.any(|(a, (_, high))| *a >= high - CLOSE)
}

enum Move {
    To(Box<View>, Vec<f64>),
    /// What there is to gain from here on is rounding.
    Last(Vec<f64>),
}

/// A step that raises the bound, in a region that shrinks until there is one.
fn step(
    bound: &Bound<'_>,
    (view, x): &(View, Vec<f64>),
    limits: &[(f64, f64)],
    radius: &mut f64,
    cancel: Option<&AtomicBool>,
) -> Result<Move> {
    let problem = Problem::new(bound, view, x, limits)?;
    for _ in 0..MOST_TRIALS {
        check_flag(cancel)?;
        let step = problem.solve(*radius, cancel)?;
        let to = bound.moved(x, view, &step.by);
        if step.promise.abs() <= ROUNDING * (1.0 + view.value.abs()) {
            return Ok(Move::Last(to));
        }
        let found = match bound.view(&to) {
            Err(Error::Interrupted) => return Err(Error::Interrupted),
            // Too far for the arithmetic.
            found => found
                .ok()
                .filter(|f| f.value.is_finite() && step.promise > 0.0),
        };
        let gain = found
            .as_ref()
            .map_or(f64::NEG_INFINITY, |f| f.value - view.value);
        let share = gain / step.promise;
        if found.is_none() {
            *radius = 0.25 * step.length.min(*radius);
        } else if share < 0.25 {
            // Where the parabola through slope, length and gain has its top.
            let top = 0.5 * step.rise / (step.rise - gain);
            *radius = top.clamp(0.1, 0.5) * step.length.min(*radius);
        } else if share > 0.75 && step.at_border {
            *radius *= 2.0;
        }
        if let Some(found) = found.filter(|_| share > LEAST_SHARE) {
            return Ok(Move::To(Box::new(found), to));
        }
    }
    Ok(Move::Last(x.clone()))
}

/// Newton's equations about a place, with some ln alpha held at their limits.
struct Problem<'a> {
    bound: &'a Bound<'a>,
    view: &'a View,
    /// Zero for what is held.
    slope: Vec<f64>,
    blocks: Vec<Cholesky>,
    scales: Vec<f64>,
    held: Vec<bool>,
    /// How far each ln alpha may move down and up.
    room: Vec<(f64, f64)>,
}

struct Step {
    by: Vec<f64>,
    /// What a model without curvature gains.
    rise: f64,
    /// What the quadratic model gains.
    promise: f64,
    length: f64,
    at_border: bool,
}

impl<'a> Problem<'a> {
    fn new(bound: &'a Bound<'a>, view: &'a View, x: &[f64], limits: &[(f64, f64)]) -> Result<Self> {
        let at = bound.len() * bound.n_classes;
        let mut slope = view.slope.clone();
        let ln_alpha = x[at..].iter().zip(limits);
        let room: Vec<_> = ln_alpha
            .map(|(a, (low, high))| (low - a, high - a))
            .collect();
        let pushed = room.iter().zip(&slope[at..]);
        let held: Vec<bool> = pushed
            .map(|((down, up), g)| (*up <= CLOSE && *g > 0.0) || (*down >= -CLOSE && *g < 0.0))
            .collect();
        let blocks = bound.class_blocks(view)?;
        let mut this = Self {
            bound,
            view,
            slope: Vec::new(),
            scales: bound.alpha_scales(view, &blocks),
            blocks,
            held,
            room,
        };
        this.hold(&mut slope);
        this.slope = slope;
        Ok(this)
    }

    /// Forgets what a vector says of the ln alpha that are held.
    fn hold(&self, v: &mut [f64]) {
        let at = v.len() - self.held.len();
        let entries = v[at..].iter_mut().zip(&self.held);
        entries
            .filter(|(_, held)| **held)
            .for_each(|(v, _)| *v = 0.0);
    }

    /// Minus the Hessian times `v`.
    fn curve(&self, v: &[f64]) -> Vec<f64> {
        let mut out = self.bound.curve(self.view, v);
        self.hold(&mut out);
        out
    }

    fn precondition(&self, r: &[f64]) -> Vec<f64> {
        let m = self.bound.len();
        let mut z = r.to_vec();
        let (weights, moves) = z.split_at_mut(m * self.blocks.len());
        for (block, z) in self.blocks.iter().zip(weights.chunks_exact_mut(m)) {
            block.solve_in_place(z);
        }
        moves
            .iter_mut()
            .zip(&self.scales)
            .for_each(|(z, s)| *z /= s);
        z
    }

    /// The step within `radius` by truncated conjugate gradients, no ln alpha beyond its limits.
    fn solve(&self, radius: f64, cancel: Option<&AtomicBool>) -> Result<Step> {
        let mut step = self.steihaug(radius, cancel)?;
        let at = step.by.len() - self.room.len();
        let mut clipped = false;
        for (v, (down, up)) in step.by[at..].iter_mut().zip(&self.room) {
            clipped |= *v < *down || *v > *up;
            *v = v.clamp(*down, *up);
        }
        if clipped {
            let curved = self.curve(&step.by);
            step.rise = dot(&self.slope, &step.by);
            step.promise = step.rise - 0.5 * dot(&step.by, &curved);
        }
        Ok(step)
    }

    fn steihaug(&self, radius: f64, cancel: Option<&AtomicBool>) -> Result<Step> {
        let mut by = vec![0.0; self.slope.len()];
        let mut residual = self.slope.clone();
        let mut z = self.precondition(&residual);
        let mut square = dot(&residual, &z);
        let first = square;
        // The closer to the top, the more digits of the step are worth having.
        let enough = first * first.sqrt().clamp(1e-12, 0.25).min(0.1).powi(2);
        let mut p = z.clone();
        // Squared lengths of the step and of p, and their product, in the norm of the preconditioner.
        let (mut length, mut along, mut of_p) = (0.0_f64, 0.0, square);
        let mut promise = 0.0;
        let mut at_border = false;
        for _ in 0..MOST_GRADIENTS {
            check_flag(cancel)?;
            if square <= enough || square == 0.0 {
                break;
            }
            let curved = self.curve(&p);
            let bend = dot(&p, &curved);
            let mut stride = square / bend;
            let beyond = length + stride * (2.0 * along + stride * of_p) >= radius * radius;
            if bend <= 0.0 || beyond {
                let left = radius * radius - length;
                stride = left / (along + (along * along + of_p * left).sqrt());
                at_border = true;
            }
            promise += stride * (dot(&residual, &p) - 0.5 * stride * bend);
            axpy(stride, &p, &mut by);
            length += stride * (2.0 * along + stride * of_p);
            if at_border {
                break;
            }
            axpy(-stride, &curved, &mut residual);
            z = self.precondition(&residual);
            let next = dot(&residual, &z);
            let ratio = next / square;
            along = ratio * (along + stride * of_p);
            of_p = next + ratio * ratio * of_p;
            square = next;
            p.iter_mut().zip(&z).for_each(|(p, z)| *p = z + ratio * *p);
        }
        Ok(Step {
            rise: dot(&self.slope, &by),
            by,
            promise,
            length: length.max(0.0).sqrt(),
            at_border,
        })
    }
}
