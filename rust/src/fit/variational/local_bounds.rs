//! The optimal parameters xi of the bounds of Jaakkola & Jordan (2000).
//!
//! Given the E\[alpha\], the lower bound is concave in the mean and the Cholesky factor of Sigma: `ln cosh` of half the norm
//! `(<eta_n^2>)^1/2` is convex in them. So it has one maximum, to which alternating updates of xi and q(w) converge, with one
//! more digit in 20 to 100 rounds. Between rounds the mean and the factor are therefore extrapolated by squared steps
//! (SQUAREM: Varadhan & Roland 2008): all values of these are moments of some q(w) and give a valid bound, which is kept if
//! it is higher.

use nalgebra::DMatrix;

use crate::Result;
use crate::data::Statistics;
use crate::fit::full_basis::delete_where;
use crate::fit::laplace::mode::expand_about;
use crate::fit::model::State;
use crate::fit::record::{Action, Recorder, Stop};
use crate::fit::refine;
use crate::fit::refine::{Plateau, Refined};
use crate::fit::tuning::{Effort, Tuning};
use crate::linalg::Cholesky;

/// Makes the bound tight at the state's q(w), and recomputes q(w).
///
/// For a Gaussian likelihood only the provider is informed.
pub(super) fn tighten(stats: &mut dyn Statistics, state: &mut State) -> Result<()> {
    stats.bound(&state.active, state.mu(), state.sigma())?;
    if stats.facts().is_linear {
        return Ok(());
    }
    let mu = state.mu().to_vec();
    expand_about(stats, state, &mu)
}

/// Converges to the joint maximum in the E\[alpha\] of the active set and xi. Deletes functions that gain almost nothing.
pub(super) fn converge(
    stats: &mut dyn Statistics,
    state: &mut State,
    effort: Effort,
    recorder: &mut Recorder<'_>,
) -> std::result::Result<Refined, Stop> {
    loop {
        let refined = converge_without_deletion(stats, state, effort, recorder)?;
        if !delete_negligible(state, recorder)? {
            return Ok(refined);
        }
    }
}

/// Deletes functions whose E\[alpha\] is lost in round-off: at the maximum q^2 / s - 1 is s / alpha, a difference that loses
/// alpha / s times its relative precision. Such a function gains (s / alpha)^2 / 4 nats.
fn delete_negligible(
    state: &mut State,
    recorder: &mut Recorder<'_>,
) -> std::result::Result<bool, Stop> {
    delete_where(state, recorder, |factors, alpha, gain| {
        alpha >= 5.0 * Tuning::MAX_ALPHA_RATIO * factors.first.s && gain >= -0.1 * Tuning::MIN_GAIN
    })
}

fn converge_without_deletion(
    stats: &mut dyn Statistics,
    state: &mut State,
    effort: Effort,
    recorder: &mut Recorder<'_>,
) -> std::result::Result<Refined, Stop> {
    let fine = Effort {
        tol: Tuning::SAFETY * Tuning::SAFETY * effort.tol,
        ..effort
    };
    refine::converge(stats, state, fine, recorder)?;
    let (mut nearest, mut cycles_without_progress, mut slow) = (f64::INFINITY, 0, 1.0_f64);
    let (mut plateau, mut at_rest) = (Plateau::new(), true);
    let mut extrapolates = true;
    while cycles_without_progress < 2 * Tuning::MAX_PLATEAU {
        let Some((path, change)) = two_rounds(stats, state, fine, recorder)? else {
            continue;
        };
        let squared = SquaredStep::of(&path);
        // A squared step may hide the slowest direction from the next one.
        slow = squared.stride.max(Tuning::STRIDE_DECAY * slow);
        let distance = slow * change.max(squared.last_change);
        if distance <= Tuning::SAFETY * effort.tol {
            break;
        }
        // At the level of round-off the strides are random, and so is `distance`.
        if plateau.length_at(state.log_posterior()) >= 2 * Tuning::MAX_PLATEAU {
            at_rest = change <= Tuning::SAFETY * effort.tol;
            break;
        }
        cycles_without_progress = if distance < nearest {
            0
        } else {
            cycles_without_progress + 1
        };
        nearest = nearest.min(distance);
        // An extrapolation that cycled at the level of round-off takes long, and so would the next.
        if squared.stride > 1.0 && extrapolates {
            let moments = squared.end(&path);
            extrapolates = extrapolate(stats, state, &moments, fine, recorder)?;
        }
    }
    let ended = cycles_without_progress < 2 * Tuning::MAX_PLATEAU && at_rest;
    let converged = ended && refine::residual(state, effort) <= effort.tol;
    Ok(if converged {
        Refined::Converged
    } else {
        Refined::Stalled
    })
}

/// The moments at the state, and after each of two rounds of xi and alphas, with the largest change of an ln E\[alpha\] in the
/// second. `None` if a function was deleted: the earlier moments then belong to another model.
fn two_rounds(
    stats: &mut dyn Statistics,
    state: &mut State,
    effort: Effort,
    recorder: &mut Recorder<'_>,
) -> std::result::Result<Option<([Moments; 3], f64)>, Stop> {
    let size = state.len();
    let start = Moments::of(state)?;
    let mut once = None;
    loop {
        let alpha = state.alpha.clone();
        tighten(stats, state)?;
        recorder.step(Action::Joint, None, state)?;
        refine::converge(stats, state, effort, recorder)?;
        if state.len() < size {
            return Ok(None);
        }
        let now = Moments::of(state)?;
        match once {
            None => once = Some(now),
            Some(once) => return Ok(Some(([start, once, now], max_change(&alpha, &state.alpha)))),
        }
    }
}

/// Largest change of a logarithm.
fn max_change(before: &[f64], after: &[f64]) -> f64 {
    let changes = before.iter().zip(after).map(|(b, a)| (a / b).ln().abs());
    changes.fold(0.0, f64::max)
}

/// Moves to the bound that is tight at these moments, if it is higher there. Returns `false` if the alphas cycled under that
/// bound.
fn extrapolate(
    stats: &mut dyn Statistics,
    state: &mut State,
    moments: &Moments,
    effort: Effort,
    recorder: &mut Recorder<'_>,
) -> std::result::Result<bool, Stop> {
    let before = state.clone();
    let sigma = moments.covariance();
    stats.bound(&state.active, &moments.mu, &sigma)?;
    let mu = state.mu().to_vec();
    let mut silent = Recorder::silent();
    let outcome = expand_about(stats, state, &mu)
        .map_err(Stop::from)
        .and_then(|()| refine::converge(stats, state, effort, &mut silent));
    match outcome {
        Ok(_) if state.log_posterior() > before.log_posterior() => {
            recorder.step(Action::Joint, None, state)?;
            Ok(true)
        }
        Err(Stop::Failed(crate::Error::Interrupted)) => {
            Err(Stop::Failed(crate::Error::Interrupted))
        }
        outcome => {
            state.clone_from(&before);
            Ok(!matches!(outcome, Err(Stop::MaxIterations)))
        }
    }
}

/// Mean and Cholesky factor of a covariance.
#[derive(Clone)]
struct Moments {
    mu: Vec<f64>,
    /// Lower triangle, row by row.
    factor: Vec<f64>,
}

impl Moments {
    /// The moments of q(w).
    fn of(state: &State) -> Result<Self> {
        let m = state.len();
        let mut chol = Cholesky::with_capacity(m.max(1));
        chol.refactor(m, |i, j| state.sigma()[(i, j)])?;
        let rows = (0..m).flat_map(|i| (0..=i).map(move |j| (i, j)));
        Ok(Self {
            mu: state.mu().to_vec(),
            factor: rows.map(|(i, j)| chol.get(i, j)).collect(),
        })
    }

    fn covariance(&self) -> DMatrix<f64> {
        let m = self.mu.len();
        let row = |i: usize| &self.factor[i * (i + 1) / 2..(i + 1) * (i + 2) / 2];
        DMatrix::from_fn(m, m, |i, j| {
            row(i).iter().zip(row(j)).map(|(a, b)| a * b).sum()
        })
    }

    /// All values in units of the standard deviations of `unit`: the mean and row i of the factor over the length of its row i.
    fn in_units_of<'a>(&'a self, unit: &'a Self) -> impl Iterator<Item = f64> + 'a {
        let row = |i: usize| i * (i + 1) / 2..(i + 1) * (i + 2) / 2;
        (0..self.mu.len()).flat_map(move |i| {
            let length: f64 = unit.factor[row(i)].iter().map(|l| l * l).sum();
            let length = length.sqrt();
            let entries = std::iter::once(self.mu[i]).chain(self.factor[row(i)].iter().copied());
            entries.map(move |value| value / length)
        })
    }

    fn combined(parts: [(&Self, f64); 3]) -> Self {
        let combine = |values: fn(&Self) -> &[f64]| {
            let n = values(parts[0].0).len();
            let at = |i: usize| parts.iter().map(|(p, c)| c * values(p)[i]).sum();
            (0..n).map(at).collect()
        };
        Self {
            mu: combine(|p| &p.mu),
            factor: combine(|p| &p.factor),
        }
    }
}

/// The squared step of Varadhan & Roland (2008), scheme S3: x - 2 s r + s^2 v, with r and v the first and second
/// differences of three points and s = -|r| / |v|, in units of the standard deviations at the first.
struct SquaredStep {
    /// -s, at least 1: about 1 / (1 - rate of convergence), the ratio of the remaining distance to the last change.
    stride: f64,
    /// Largest change between the last two points.
    last_change: f64,
}

impl SquaredStep {
    fn of([start, once, twice]: &[Moments; 3]) -> Self {
        let pairs = start.in_units_of(start).zip(once.in_units_of(start));
        let (mut first, mut second, mut last_change) = (0.0, 0.0, 0.0_f64);
        for ((x0, x1), x2) in pairs.zip(twice.in_units_of(start)) {
            let (r, v) = (x1 - x0, (x2 - x1) - (x1 - x0));
            first += r * r;
            second += v * v;
            last_change = last_change.max((x2 - x1).abs());
        }
        let ratio: f64 = first / second;
        let stride = if ratio.is_finite() {
            ratio.sqrt().max(1.0)
        } else {
            1.0
        };
        Self {
            stride,
            last_change,
        }
    }

    /// x0 + 2 k (x1 - x0) + k^2 (x2 - 2 x1 + x0), where k is the stride.
    fn end(&self, [start, once, twice]: &[Moments; 3]) -> Moments {
        let k = self.stride;
        Moments::combined([
            (start, (1.0 - k) * (1.0 - k)),
            (once, 2.0 * k * (1.0 - k)),
            (twice, k * k),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Moments of two weights with values `end + rate^k` times 1, -2, 3, ...
    fn at(k: i32, rate: f64) -> Moments {
        let ends = [1.0, -2.0, 3.0, 0.5, 2.0];
        let value = |i: usize| ends[i] + rate.powi(k) * ends[(i + 2) % 5];
        Moments {
            mu: vec![value(0), value(1)],
            factor: vec![value(2), value(3), value(4)],
        }
    }

    #[test]
    fn a_squared_step_reaches_the_limit_along_one_slow_direction() {
        for rate in [0.5, 0.9, 0.99] {
            let path = [at(0, rate), at(1, rate), at(2, rate)];
            let squared = SquaredStep::of(&path);
            assert!((squared.stride * (1.0 - rate) - 1.0).abs() < 1e-9, "{rate}");
            let (found, end) = (squared.end(&path), at(i32::MAX, rate));
            let pairs = found.mu.iter().zip(&end.mu);
            for (a, b) in pairs.chain(found.factor.iter().zip(&end.factor)) {
                assert!((a - b).abs() < 1e-9, "{rate}: {a} {b}");
            }
        }
    }

    #[test]
    fn constant_moments_have_no_stride() {
        let path = [at(3, 1.0), at(4, 1.0), at(5, 1.0)];
        let squared = SquaredStep::of(&path);
        assert!((squared.stride - 1.0).abs() < 1e-15 && squared.last_change == 0.0);
    }

    #[test]
    fn a_covariance_equals_the_product_of_its_factor() {
        let moments = at(0, 0.5);
        let sigma = moments.covariance();
        let l = DMatrix::from_row_slice(
            2,
            2,
            &[moments.factor[0], 0.0, moments.factor[1], moments.factor[2]],
        );
        assert!((sigma - &l * l.transpose()).amax() < 1e-14);
    }
}
