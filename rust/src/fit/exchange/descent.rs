//! The other way in: from a model of all functions of a pool, which are taken out one after another.
//!
//! Where a model has nearly as many functions as there are rows, additions have gone astray early on and exchanges do not
//! lead back: on compressed sensing near its limits such models end 100 nats below what is found from the full basis.
//!
//! MacKay's update goes to `alpha' = gamma / mu^2`; its geometric mean with alpha is the update of Wipf & Nagarajan (2010),
//! which maximises a bound on the evidence (ln|C| is concave in the variances 1 / alpha, so its tangent lies above it), never
//! lowers it, and loses fewer of the good optima than MacKay's own.

use super::super::action::ALPHA_FLOOR;
use super::super::fixed_point::{MOST_GROWTH, START_ALPHA, new_alpha, prune};
use super::super::pool::Pool;
use super::super::record::{Halt, Recorder};
use super::super::settings::Scheme;
use super::super::state::State;
use crate::stats::Statistics;

/// What is left of a model of the whole pool at the noise level of `best`.
pub(super) fn from_everything(pool: &Pool, best: &State) -> Result<State, Halt> {
    const MOST_UPDATES: usize = 200;
    /// Single steps are faster once no ln alpha moves by more.
    const NEAR: f64 = 0.05;
    let mut stats = pool;
    let mut state = State::empty(best.beta, best.noise_prior, pool.target_sq, pool.n_obs);
    let everything: Vec<usize> = (0..pool.len()).collect();
    state.fill(&everything, START_ALPHA, &pool.priors, stats.cancel_flag());
    let mu = vec![0.0; pool.len()];
    let deviance = pool.target_sq;
    state.set_data(&mu, &pool.projections, deviance, Some(&pool.gram))?;
    for _ in 0..MOST_UPDATES {
        pool.check_cancel()?;
        state.recentre(&mut stats)?;
        let moved = update(&mut state)?;
        let pruned = prune(&mut state, moved, &mut Recorder::silent())?;
        if moved <= NEAR && !pruned {
            break;
        }
    }
    Ok(state)
}

/// One update of all alphas; the largest change in their logarithms.
fn update(state: &mut State) -> Result<f64, Halt> {
    let bounded = |k: usize| {
        let (old, next) = (state.alpha[k], new_alpha(state, k, Scheme::MacKay));
        // With a prior it is that mean already.
        let next = if state.priors[k].is_flat() {
            (next * old).sqrt()
        } else {
            next
        };
        next.clamp(ALPHA_FLOOR, MOST_GROWTH * old)
    };
    let alpha: Vec<f64> = (0..state.len()).map(bounded).collect();
    let change = |(a, b): (&f64, &f64)| (a / b).ln().abs();
    let moved = alpha
        .iter()
        .zip(&state.alpha)
        .map(change)
        .fold(0.0, f64::max);
    state.set_hyperparameters(&alpha, state.beta)?;
    Ok(moved)
}
