//! Where the bounds of Jaakkola & Jordan (2000) touch, to convergence.
//!
//! Given the E\[alpha\], the lower bound is concave in the mean and the Cholesky factor of Sigma: `ln cosh` of half the norm
//! `(<eta_n^2>)^1/2` is convex in them. It has one maximum, which the updates of xi and q(w) in turns climb to, gaining one
//! digit in 20 to 100 rounds. Between rounds they are therefore extrapolated by squared steps (SQUAREM: Varadhan & Roland
//! 2008) in that mean and factor: any values of these are moments of some q(w) and make a valid bound, kept if it is higher.

use nalgebra::DMatrix;

use crate::Result;
use crate::data::Statistics;
use crate::fit::full_basis::delete_where;
use crate::fit::model::State;
use crate::fit::record::{Action, Recorder, Stop};
use crate::fit::refine;
use crate::fit::refine::{Plateau, Refined};
use crate::fit::tuning::Effort;
use crate::linalg::Cholesky;

/// Cycles of two rounds and an extrapolation that may bring the end no nearer.
const PATIENCE: usize = 100;

/// How the longest stride is remembered from one cycle to the next.
const FADING: f64 = 0.8;

/// What is left to go has to be so much below the tolerance; and within a round that much again.
const SAFETY: f64 = 0.1;

/// Makes the bound tightest for the state's q(w), and brings q(w) to that. `gram`: room for the Gram matrix.
///
/// A Gaussian likelihood is left alone.
pub(crate) fn touch(
    stats: &mut dyn Statistics,
    state: &mut State,
    gram: &mut DMatrix<f64>,
) -> Result<()> {
    stats.bound(&state.active, &state.mu, &state.sigma)?;
    if stats.is_linear() {
        return Ok(());
    }
    look(stats, state, gram)
}

/// The quadratic model of the bound where it now touches.
fn look(stats: &mut dyn Statistics, state: &mut State, gram: &mut DMatrix<f64>) -> Result<()> {
    let mu = state.mu.clone();
    let mut gradient = vec![0.0; mu.len()];
    let deviance = stats.local(&state.active, &mu, gram, &mut gradient)?;
    state.set_data(&mu, &gradient, deviance, Some(gram))
}

/// Brings the E\[alpha\] of the active set and the bound to the maximum of both together.
///
/// Functions that have next to nothing to gain by staying are not stayed for.
pub(crate) fn settle(
    stats: &mut dyn Statistics,
    state: &mut State,
    effort: Effort,
    recorder: &mut Recorder<'_>,
) -> std::result::Result<Refined, Stop> {
    loop {
        let settled = settle_all(stats, state, effort, recorder)?;
        if !drop_faint(state, recorder)? {
            return Ok(settled);
        }
    }
}

/// Takes out functions whose E\[alpha\] rounding cannot tell: q^2 / s - 1 is s / alpha at the maximum, the difference of two
/// numbers of which alpha / s times as many digits are lost. What they gain is (s / alpha)^2 / 4 nats.
fn drop_faint(state: &mut State, recorder: &mut Recorder<'_>) -> std::result::Result<bool, Stop> {
    const FAINT: f64 = 1e4;
    const WORTHLESS: f64 = 1e-8;
    delete_where(state, recorder, |factors, alpha, gain| {
        alpha >= FAINT * factors.s && gain >= -WORTHLESS
    })
}

/// [`settle`] for all that are there.
fn settle_all(
    stats: &mut dyn Statistics,
    state: &mut State,
    effort: Effort,
    recorder: &mut Recorder<'_>,
) -> std::result::Result<Refined, Stop> {
    let mut gram = DMatrix::zeros(state.len(), state.len());
    let fine = Effort {
        tol: SAFETY * SAFETY * effort.tol,
        ..effort
    };
    refine::converge(stats, state, None, fine, recorder)?;
    let (mut nearest, mut since, mut slow) = (f64::INFINITY, 0, 1.0_f64);
    let (mut plateau, mut at_rest) = (Plateau::new(), true);
    let mut in_circles = false;
    while since < PATIENCE {
        let Some((path, change)) = two_rounds(stats, state, fine, &mut gram, recorder)? else {
            continue;
        };
        let squared = Squared::of(&path);
        // A squared step may hide the slowest direction from the next.
        slow = squared.stride.max(FADING * slow);
        let distance = slow * change.max(squared.last_change);
        if distance <= SAFETY * effort.tol {
            break;
        }
        // At the level of rounding strides are noise, and so is the distance made of them.
        if plateau.length_at(state.log_posterior()) >= PATIENCE {
            at_rest = change <= SAFETY * effort.tol;
            break;
        }
        since = if distance < nearest { 0 } else { since + 1 };
        nearest = nearest.min(distance);
        // Where rounding led one extrapolation in circles it would lead the next, and each takes long to end.
        if squared.stride > 1.0 && !in_circles {
            let moments = squared.end(&path);
            in_circles = !extrapolate(stats, state, &moments, fine, &mut gram, recorder)?;
        }
    }
    let ended = since < PATIENCE && at_rest;
    let converged = ended && refine::residual(state, None) <= effort.tol;
    Ok(if converged {
        Refined::Converged
    } else {
        Refined::Stalled
    })
}

/// The moments at the state, and after each of two rounds of bound and alphas, with the largest change that the last made
/// to an ln E\[alpha\]. `None` if a function left on the way: the moments before are then those of another model.
fn two_rounds(
    stats: &mut dyn Statistics,
    state: &mut State,
    effort: Effort,
    gram: &mut DMatrix<f64>,
    recorder: &mut Recorder<'_>,
) -> std::result::Result<Option<([Moments; 3], f64)>, Stop> {
    let size = state.len();
    let start = Moments::of(state)?;
    let mut once = None;
    loop {
        let alpha = state.alpha.clone();
        touch(stats, state, gram)?;
        recorder.step(Action::Joint, None, state)?;
        refine::converge(stats, state, None, effort, recorder)?;
        if state.len() < size {
            return Ok(None);
        }
        let now = Moments::of(state)?;
        match once {
            None => once = Some(now),
            Some(once) => return Ok(Some(([start, once, now], furthest(&alpha, &state.alpha)))),
        }
    }
}

/// Largest change of a logarithm.
fn furthest(before: &[f64], after: &[f64]) -> f64 {
    let changes = before.iter().zip(after).map(|(b, a)| (a / b).ln().abs());
    changes.fold(0.0, f64::max)
}

/// Takes the state to where the bound is tightest for these moments, if it is higher there; `false` if alphas found no end
/// under that bound.
fn extrapolate(
    stats: &mut dyn Statistics,
    state: &mut State,
    moments: &Moments,
    effort: Effort,
    gram: &mut DMatrix<f64>,
    recorder: &mut Recorder<'_>,
) -> std::result::Result<bool, Stop> {
    let before = state.clone();
    let sigma = moments.covariance();
    stats.bound(&state.active, &moments.mu, &sigma)?;
    let mut silent = Recorder::silent();
    let outcome = look(stats, state, gram)
        .map_err(Stop::from)
        .and_then(|()| refine::converge(stats, state, None, effort, &mut silent));
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
    /// Those of q(w).
    fn of(state: &State) -> Result<Self> {
        let m = state.len();
        let mut chol = Cholesky::with_capacity(m.max(1));
        chol.refactor(m, |i, j| state.sigma[(i, j)])?;
        let rows = (0..m).flat_map(|i| (0..=i).map(move |j| (i, j)));
        Ok(Self {
            mu: state.mu.clone(),
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

    /// All numbers in units of the deviations of `unit`: mean and row i of the factor over the length of its row i.
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
/// differences of three points and s = -|r| / |v|, in units of the deviations at the first.
struct Squared {
    /// -s, at least 1: about 1 / (1 - rate of convergence), by which what is left exceeds the last change.
    stride: f64,
    /// Largest change between the last two points.
    last_change: f64,
}

impl Squared {
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

    /// x0 + 2 k (x1 - x0) + k^2 (x2 - 2 x1 + x0), k being the stride.
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

    /// Moments of two weights whose numbers are `end + rate^k` times 1, -2, 3, ...
    fn at(k: i32, rate: f64) -> Moments {
        let ends = [1.0, -2.0, 3.0, 0.5, 2.0];
        let value = |i: usize| ends[i] + rate.powi(k) * ends[(i + 2) % 5];
        Moments {
            mu: vec![value(0), value(1)],
            factor: vec![value(2), value(3), value(4)],
        }
    }

    #[test]
    fn a_squared_step_ends_where_one_slow_direction_leads() {
        for rate in [0.5, 0.9, 0.99] {
            let path = [at(0, rate), at(1, rate), at(2, rate)];
            let squared = Squared::of(&path);
            assert!((squared.stride * (1.0 - rate) - 1.0).abs() < 1e-9, "{rate}");
            let (found, end) = (squared.end(&path), at(i32::MAX, rate));
            let pairs = found.mu.iter().zip(&end.mu);
            for (a, b) in pairs.chain(found.factor.iter().zip(&end.factor)) {
                assert!((a - b).abs() < 1e-9, "{rate}: {a} {b}");
            }
        }
    }

    #[test]
    fn moments_that_stay_are_at_their_end() {
        let path = [at(3, 1.0), at(4, 1.0), at(5, 1.0)];
        let squared = Squared::of(&path);
        assert!((squared.stride - 1.0).abs() < 1e-15 && squared.last_change == 0.0);
    }

    #[test]
    fn a_covariance_comes_back_from_its_factor() {
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
