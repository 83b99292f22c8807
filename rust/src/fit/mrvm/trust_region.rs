//! Newton's method on the weights and alphas of mRVM1 together, where alternating E- and M-steps converge slowly.
//!
//! Newton's equations are solved by conjugate gradients, preconditioned by the blocks of the Hessian that belong to one class
//! each, within a trust region in the norm of these blocks (Steihaug 1983, SIAM J. Numer. Anal. 20). Where the bound is not
//! concave, as in the alphas of functions that are about to be deleted, the step goes to the boundary of the region.

use std::sync::atomic::AtomicBool;

use crate::error::check_flag;
use crate::fit::mrvm::bound::{Bound, View};
use crate::fit::tuning::Tuning;
use crate::linalg::Cholesky;
use crate::linalg::vector::{axpy, dot};
use crate::{Error, Result};

/// Options of [`RetargetedFit::maximise_bound`](crate::fit::RetargetedFit::maximise_bound).
#[derive(Debug, Clone, Copy)]
pub struct Ascent {
    /// Ends after a step that gains less than this many nats, or that moves an alpha to its upper limit.
    pub least: f64,
    /// Radius of the first trust region. A step of length 1 gains about half a nat.
    pub radius: f64,
}

/// Maximises the bound from `x`; returns the maximum and the auxiliary targets that the E-step returns there.
///
/// # Errors
/// [`Error::Interrupted`], and [`Error::NotPositiveDefinite`] if the posterior precision at `x` is indefinite.
pub(crate) fn maximize(
    bound: &Bound<'_>,
    x: Vec<f64>,
    ascent: Ascent,
    cancel: Option<&AtomicBool>,
) -> Result<(Vec<f64>, Vec<f64>)> {
    let (lowest, limit) = (Tuning::ALPHA_FLOOR.ln(), Tuning::MAX_LN_CHANGE);
    let ln_alpha = &x[bound.len() * bound.n_classes..];
    let limits: Vec<_> = ln_alpha
        .iter()
        .map(|a| ((a - limit).max(lowest).min(*a), a + limit))
        .collect();
    let mut at = (bound.view(&x)?, x);
    let mut radius = ascent.radius;
    for _ in 0..Tuning::MAX_STEPS {
        let (x, view) = step(bound, &at, &limits, &mut radius, cancel)?;
        let Some(view) = view else {
            let targets = bound.targets(&x)?;
            return Ok((x, targets));
        };
        let gain = view.value - at.0.value;
        at = (view, x);
        // A vanishing function is left to the M-step, which deletes it at once.
        if gain < ascent.least || has_vanishing(&at.1, &limits) {
            break;
        }
    }
    let (View { targets, .. }, x) = at;
    Ok((x, targets))
}

/// Whether an alpha has reached its upper limit.
fn has_vanishing(x: &[f64], limits: &[(f64, f64)]) -> bool {
    let ln_alpha = &x[x.len() - limits.len()..];
    let mut pairs = ln_alpha.iter().zip(limits);
    pairs.any(|(a, (_, high))| *a >= high - Tuning::ROUNDING)
}

/// Takes a step that raises the bound, in a trust region that shrinks until there is one. Returns where it leads, and the bound there;
/// `None` if no step is left but round-off.
fn step(
    bound: &Bound<'_>,
    (view, x): &(View, Vec<f64>),
    limits: &[(f64, f64)],
    radius: &mut f64,
    cancel: Option<&AtomicBool>,
) -> Result<(Vec<f64>, Option<View>)> {
    let problem = Problem::new(bound, view, x, limits)?;
    for _ in 0..Tuning::MAX_STEPS {
        check_flag(cancel)?;
        let step = problem.solve(*radius, cancel)?;
        let to = bound.moved(x, view, &step.by);
        if step.predicted.abs() <= Tuning::ROUNDING * (1.0 + view.value.abs()) {
            return Ok((to, None));
        }
        let found = match bound.view(&to) {
            Err(Error::Interrupted) => return Err(Error::Interrupted),
            // The step may be too long for floating-point arithmetic.
            found => found
                .ok()
                .filter(|f| f.value.is_finite() && step.predicted > 0.0),
        };
        let gain = found
            .as_ref()
            .map_or(f64::NEG_INFINITY, |f| f.value - view.value);
        let ratio = gain / step.predicted;
        if found.is_none() {
            *radius = 0.25 * step.length.min(*radius);
        } else if ratio < 0.25 {
            // The maximum of the parabola through slope, length and gain.
            let top = 0.5 * step.linear / (step.linear - gain);
            *radius = top.clamp(0.1, 0.5) * step.length.min(*radius);
        } else if ratio > 0.75 && step.at_boundary {
            *radius *= 2.0;
        }
        if let Some(found) = found.filter(|_| ratio > 0.0) {
            return Ok((to, Some(found)));
        }
    }
    Ok((x.clone(), None))
}

/// Newton's equations at one point, with some ln alpha held at their limits.
struct Problem<'a> {
    bound: &'a Bound<'a>,
    view: &'a View,
    /// The gradient; zero for a held ln alpha.
    slope: Vec<f64>,
    blocks: Vec<Cholesky>,
    scales: Vec<f64>,
    held: Vec<bool>,
    /// How far each ln alpha may decrease and increase.
    room: Vec<(f64, f64)>,
}

struct Step {
    by: Vec<f64>,
    /// The gain of the linear model.
    linear: f64,
    /// The gain of the quadratic model.
    predicted: f64,
    length: f64,
    at_boundary: bool,
}

impl<'a> Problem<'a> {
    fn new(bound: &'a Bound<'a>, view: &'a View, x: &[f64], limits: &[(f64, f64)]) -> Result<Self> {
        let at = bound.len() * bound.n_classes;
        let mut slope = view.slope.clone();
        let ln_alpha = x[at..].iter().zip(limits);
        let room: Vec<_> = ln_alpha
            .map(|(a, (low, high))| (low - a, high - a))
            .collect();
        let slopes = room.iter().zip(&slope[at..]);
        let held: Vec<bool> = slopes
            .map(|((down, up), g)| {
                (*up <= Tuning::ROUNDING && *g > 0.0) || (*down >= -Tuning::ROUNDING && *g < 0.0)
            })
            .collect();
        let blocks = bound.class_blocks(view)?;
        zero_held(&held, &mut slope);
        Ok(Self {
            bound,
            view,
            slope,
            scales: bound.alpha_scales(view, &blocks),
            blocks,
            held,
            room,
        })
    }

    /// Minus the Hessian times `v`.
    fn curve(&self, v: &[f64]) -> Vec<f64> {
        let mut out = self.bound.curve(self.view, v);
        zero_held(&self.held, &mut out);
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

    /// The step within `radius` by truncated conjugate gradients, with each ln alpha within its limits.
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
            step.linear = dot(&self.slope, &step.by);
            step.predicted = step.linear - 0.5 * dot(&step.by, &curved);
        }
        Ok(step)
    }

    fn steihaug(&self, radius: f64, cancel: Option<&AtomicBool>) -> Result<Step> {
        let mut by = vec![0.0; self.slope.len()];
        let mut residual = self.slope.clone();
        let mut z = self.precondition(&residual);
        let mut square = dot(&residual, &z);
        let first = square;
        // Superlinear convergence: the smaller the gradient, the more accurate the step.
        let tolerance = first * first.sqrt().clamp(1e-12, 0.25).min(0.1).powi(2);
        let mut p = z.clone();
        // Squared lengths of the step and of p, and their product, in the norm of the preconditioner.
        let (mut length, mut along, mut of_p) = (0.0_f64, 0.0, square);
        let mut predicted = 0.0;
        let mut at_boundary = false;
        for _ in 0..Tuning::MAX_STEPS {
            check_flag(cancel)?;
            if square <= tolerance || square == 0.0 {
                break;
            }
            let curved = self.curve(&p);
            let curvature = dot(&p, &curved);
            let mut stride = square / curvature;
            let leaves = length + stride * (2.0 * along + stride * of_p) >= radius * radius;
            if curvature <= 0.0 || leaves {
                let left = radius * radius - length;
                stride = left / (along + (along * along + of_p * left).sqrt());
                at_boundary = true;
            }
            predicted += stride * (dot(&residual, &p) - 0.5 * stride * curvature);
            axpy(stride, &p, &mut by);
            length += stride * (2.0 * along + stride * of_p);
            if at_boundary {
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
            linear: dot(&self.slope, &by),
            by,
            predicted,
            length: length.max(0.0).sqrt(),
            at_boundary,
        })
    }
}

/// Sets the entries of held ln alpha to zero.
fn zero_held(held: &[bool], v: &mut [f64]) {
    let at = v.len() - held.len();
    for (v, _) in v[at..].iter_mut().zip(held).filter(|(_, held)| **held) {
        *v = 0.0;
    }
}
