//! Backward elimination: starts with all functions of a working set and prunes them.
//!
//! Where a model has almost as many functions as there are rows, early additions may have led the greedy algorithm far
//! from the best model, and exchanges do not lead back; in compressed sensing near its limits, for example.
//!
//! MacKay's update is `alpha' = gamma / mu^2`. Its geometric mean with alpha is the update of Wipf & Nagarajan (2010), which
//! maximises a bound on the evidence (ln|C| is concave in the variances 1 / alpha, so its tangent is an upper bound). It
//! never lowers the evidence.

use nalgebra::DMatrix;

use crate::fit::full_basis::new_alpha;
use crate::fit::model::State;
use crate::fit::record::Stop;
use crate::fit::search::{maximize_silently, unless_indefinite};
use crate::fit::settings::Scheme;
use crate::fit::tuning::Tuning;
use crate::fit::working_set::WorkingSet;

/// Replaces `state` by the model found from all functions of the working set if that is better; returns whether it is.
pub(crate) fn eliminate(set: &WorkingSet, state: &mut State) -> Result<bool, Stop> {
    let attempt = || {
        let mut other = prune_all(set, state)?;
        maximize_silently(set, &mut other, Tuning::COARSE_EFFORT)?;
        maximize_silently(set, &mut other, Tuning::TRIAL_EFFORT)?;
        Ok(other)
    };
    if let Some(other) = unless_indefinite(attempt())?
        && other.log_posterior() > state.log_posterior() + Tuning::MIN_EXCHANGE_GAIN
    {
        *state = other;
        return Ok(true);
    }
    set.check_cancel()?;
    Ok(false)
}

/// The model of the whole working set after pruning, at the noise level of `best`.
fn prune_all(set: &WorkingSet, best: &State) -> Result<State, Stop> {
    let all: Vec<usize> = (0..set.len()).collect();
    let mut state = model_of(set, best, &all, &vec![Tuning::INITIAL_ALPHA; all.len()])?;
    for _ in 0..Tuning::MAX_STEPS {
        set.check_cancel()?;
        let next: Vec<f64> = (0..state.len()).map(|k| updated(&state, k)).collect();
        let kept: Vec<usize> = (0..next.len())
            .filter(|&k| !is_prunable(&state, k, next[k]))
            .collect();
        let change = |&k: &usize| (next[k] / state.alpha[k]).ln().abs();
        let largest = kept.iter().map(change).fold(0.0, f64::max);
        let near = largest <= Tuning::COARSE_TOL && kept.len() == state.len();
        let functions: Vec<usize> = kept.iter().map(|&k| state.active[k]).collect();
        let alpha: Vec<f64> = kept.iter().map(|&k| next[k]).collect();
        state = model_of(set, best, &functions, &alpha)?;
        if near {
            break;
        }
    }
    Ok(state)
}

/// The posterior of a model of these functions and precisions.
fn model_of(
    set: &WorkingSet,
    best: &State,
    functions: &[usize],
    alpha: &[f64],
) -> Result<State, Stop> {
    let mut state = set.empty_model(best);
    state.fill(
        functions,
        Tuning::INITIAL_ALPHA,
        &set.priors,
        set.facts.cancel.as_ref(),
    );
    state.alpha.copy_from_slice(alpha);
    let size = functions.len();
    let gram = DMatrix::from_fn(size, size, |a, b| set.gram[(functions[a], functions[b])]);
    let outputs = 0..state.outputs.len();
    let projections: Vec<f64> = outputs
        .flat_map(|c| functions.iter().map(move |&i| set.projections_of(c)[i]))
        .collect();
    let start = vec![0.0; projections.len()];
    state.set_data(&start, &projections, set.target_squares(), Some(&gram))?;
    state.recentre(&mut &*set)?;
    Ok(state)
}

/// The next precision of active function `k`.
fn updated(state: &State, k: usize) -> f64 {
    let (old, next) = (state.alpha[k], new_alpha(state, k, Scheme::MacKay));
    // With a prior `new_alpha` returns that mean already.
    let next = if state.priors[k].is_flat() {
        (next * old).sqrt()
    } else {
        next
    };
    next.clamp(Tuning::ALPHA_FLOOR, Tuning::INFINITE_RATIO * old)
}

/// Whether active function `k` can be deleted at this precision without lowering the evidence.
fn is_prunable(state: &State, k: usize, alpha: f64) -> bool {
    let factors = state.factors(k);
    alpha >= Tuning::PRUNE_RATIO * factors.first.s && factors.optimal_alpha().is_none()
}
