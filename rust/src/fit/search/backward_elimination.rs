//! The other way in: from a model of all functions of a pool, which are taken out one after another.
//!
//! Where a model has nearly as many functions as there are rows, additions have gone astray early on and exchanges do not
//! lead back: on compressed sensing near its limits such models end 100 nats below what is found from the full basis.
//!
//! MacKay's update goes to `alpha' = gamma / mu^2`; its geometric mean with alpha is the update of Wipf & Nagarajan (2010),
//! which maximises a bound on the evidence (ln|C| is concave in the variances 1 / alpha, so its tangent lies above it), never
//! lowers it, and loses fewer of the good optima than MacKay's own.

use nalgebra::DMatrix;

use crate::Error;
use crate::data::Statistics;
use crate::fit::evidence::ALPHA_FLOOR;
use crate::fit::full_basis::new_alpha;
use crate::fit::greedy::maximize;
use crate::fit::model::State;
use crate::fit::newton::NoiseRange;
use crate::fit::record::{Recorder, Stop};
use crate::fit::settings::Scheme;
use crate::fit::tuning::Tuning;
use crate::fit::working_set::WorkingSet;

/// Replaces `state` by the model found from all functions of the pool if that is better; returns whether it is.
pub(crate) fn descend(
    pool: &WorkingSet,
    state: &mut State,
    noise: Option<NoiseRange>,
) -> Result<bool, Stop> {
    let attempt = || {
        let mut other = from_everything(pool, state)?;
        maximize(
            pool,
            &mut other,
            noise,
            Tuning::COARSE_EFFORT,
            &mut Recorder::silent(),
        )?;
        maximize(
            pool,
            &mut other,
            noise,
            Tuning::TRIAL_EFFORT,
            &mut Recorder::silent(),
        )?;
        Ok(other)
    };
    match attempt() {
        Ok(other) if other.log_posterior() > state.log_posterior() + Tuning::MIN_EXCHANGE_GAIN => {
            *state = other;
            Ok(true)
        }
        Ok(_) | Err(Stop::Failed(Error::NotPositiveDefinite(_))) => {
            pool.check_cancel()?;
            Ok(false)
        }
        Err(halt) => Err(halt),
    }
}

/// What is left of a model of the whole pool at the noise level of `best`.
fn from_everything(pool: &WorkingSet, best: &State) -> Result<State, Stop> {
    const MOST_UPDATES: usize = 200;
    /// Single steps are faster once no ln alpha moves by more.
    const NEAR: f64 = 0.1;
    let everything: Vec<usize> = (0..pool.len()).collect();
    let mut state = of(
        pool,
        best,
        &everything,
        &vec![Tuning::INITIAL_ALPHA; everything.len()],
    )?;
    for _ in 0..MOST_UPDATES {
        pool.check_cancel()?;
        let next: Vec<f64> = (0..state.len()).map(|k| updated(&state, k)).collect();
        let stays: Vec<usize> = (0..next.len())
            .filter(|&k| !goes(&state, k, next[k]))
            .collect();
        let moved = |&k: &usize| (next[k] / state.alpha[k]).ln().abs();
        let most = stays.iter().map(moved).fold(0.0, f64::max);
        let settled = most <= NEAR && stays.len() == state.len();
        let names: Vec<usize> = stays.iter().map(|&k| state.active[k]).collect();
        let alpha: Vec<f64> = stays.iter().map(|&k| next[k]).collect();
        state = of(pool, best, &names, &alpha)?;
        if settled {
            break;
        }
    }
    Ok(state)
}

/// A model of these functions.
fn of(pool: &WorkingSet, best: &State, functions: &[usize], alpha: &[f64]) -> Result<State, Stop> {
    let mut state = State::empty(best.beta, best.noise_prior, pool.target_sq, pool.n_obs);
    state.fill(
        functions,
        Tuning::INITIAL_ALPHA,
        &pool.priors,
        pool.cancel_flag(),
    );
    state.alpha.copy_from_slice(alpha);
    let size = functions.len();
    let gram = DMatrix::from_fn(size, size, |a, b| pool.gram[(functions[a], functions[b])]);
    let projections: Vec<f64> = functions.iter().map(|&i| pool.projections[i]).collect();
    state.set_data(&vec![0.0; size], &projections, pool.target_sq, Some(&gram))?;
    state.recentre(&mut &*pool)?;
    Ok(state)
}

/// The next precision of active function `k`.
fn updated(state: &State, k: usize) -> f64 {
    let (old, next) = (state.alpha[k], new_alpha(state, k, Scheme::MacKay));
    // With a prior it is that mean already.
    let next = if state.priors[k].is_flat() {
        (next * old).sqrt()
    } else {
        next
    };
    next.clamp(ALPHA_FLOOR, Tuning::MAX_ALPHA_GROWTH * old)
}

/// Whether active function `k` is so far on its way out at this precision that nothing is lost by its going.
fn goes(state: &State, k: usize, alpha: f64) -> bool {
    let factors = state.factors(k);
    alpha >= Tuning::PRUNE_RATIO * factors.s && factors.optimal_alpha().is_none()
}
