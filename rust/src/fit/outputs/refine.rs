//! Alphas and noise levels of the active set of several outputs, to convergence. The dictionary is not touched.

use crate::data::OutputStatistics;
use crate::fit::newton::{Coordinates, NoiseRange};
use crate::fit::outputs::model::OutputState;
use crate::fit::outputs::newton;
use crate::fit::record::{Action, Recorder, Stop};
use crate::fit::refine::{Plateau, Refined};
use crate::fit::shared_evidence::{SharedFactors, Term};
use crate::fit::tuning::{Effort, Tuning};
use crate::linalg::NotPositiveDefinite;

/// Which noise levels may move, and how far.
#[derive(Debug, Clone)]
pub(crate) struct Noise {
    /// For each level the largest precision, its floor of the noise; `None` where it is given.
    ranges: Vec<Option<f64>>,
    /// For each level the precision that suits an empty model.
    starts: Vec<f64>,
}

impl Noise {
    pub(crate) fn new(ranges: Vec<Option<f64>>, starts: Vec<f64>) -> Self {
        Self { ranges, starts }
    }

    /// The same levels, none of which may move.
    pub(crate) fn held(&self) -> Self {
        Self::new(vec![None; self.ranges.len()], self.starts.clone())
    }

    /// Precisions that rise from the starts to these, all of which are reached in the last stage; there is but that one where
    /// none is above its start.
    pub(crate) fn stages(&self, betas: &[f64]) -> Vec<Vec<f64>> {
        const STAGE: f64 = 10.0;
        let rise = betas.iter().zip(&self.starts).map(|(b, s)| b / s);
        let most = rise.fold(1.0, f64::max);
        let mut stages: Vec<Vec<f64>> = std::iter::successors(Some(1.0), |rise| Some(rise * STAGE))
            .take_while(|&rise| rise < most)
            .map(|rise| {
                let pairs = betas.iter().zip(&self.starts);
                pairs.map(|(&b, s)| b.min(rise * s)).collect()
            })
            .collect();
        stages.push(betas.to_vec());
        stages
    }

    /// The largest precision of level `l`.
    pub(crate) fn beta_max(&self, l: usize) -> f64 {
        self.ranges[l].unwrap_or(f64::INFINITY)
    }

    /// A precision of level `l` brought within its range.
    pub(crate) fn snapped(&self, l: usize, beta: f64) -> f64 {
        let beta_max = self.beta_max(l);
        NoiseRange { beta_max }.snapped(beta)
    }

    /// Whether any level may move.
    pub(crate) fn is_estimated(&self) -> bool {
        self.ranges.iter().any(Option::is_some)
    }

    /// Whether level `l` may move from where it is.
    pub(crate) fn is_free(&self, state: &OutputState, l: usize) -> bool {
        self.ranges[l].is_some() && !self.held_at_floor(state, l)
    }

    /// Whether level `l` is estimated and sits at its floor.
    pub(crate) fn at_floor(&self, state: &OutputState, l: usize) -> bool {
        self.ranges[l].is_some_and(|beta_max| state.levels[l].beta >= beta_max)
    }

    /// Whether it sits there and the evidence would push it further down.
    fn held_at_floor(&self, state: &OutputState, l: usize) -> bool {
        self.at_floor(state, l) && newton::noise_gradient(state, l) >= 0.0
    }

    /// ln of what re-estimation (Tipping & Faul 2003, section 4, step 9) would multiply the precision of level `l` by:
    /// (N - sum gamma) / ||t - Phi mu||^2, added up over its outputs, within range.
    fn change(&self, state: &OutputState, l: usize) -> f64 {
        if !self.is_free(state, l) {
            return 0.0;
        }
        let determined = state.outputs_of(l).len() as f64 * state.determined(l);
        let degrees = (state.n_targets(l) - determined).max(f64::MIN_POSITIVE);
        let residual = state.level_deviance(l).max(0.0);
        // Written so that a residual of zero gives the floor of the noise, not infinity.
        let beta_max = self.beta_max(l);
        let beta = if residual * beta_max <= degrees {
            beta_max
        } else {
            degrees / residual
        };
        (beta / state.levels[l].beta).ln()
    }
}

/// A step on one function.
#[derive(Clone, Copy)]
pub(crate) struct Proposal {
    /// Position in the active set.
    pub(crate) k: usize,
    /// New alpha; infinite for a deletion.
    pub(crate) alpha: f64,
    pub(crate) gain: f64,
}

impl Proposal {
    /// What re-estimation would do to active function `k`.
    fn about(state: &OutputState, k: usize, terms: &mut Vec<Term>) -> Self {
        state.factors(k, terms);
        let (shared, old) = (SharedFactors(terms), state.alpha[k]);
        match shared.reestimated(old) {
            Some(alpha) => Self {
                k,
                alpha,
                gain: shared.gain_of_moving(old, alpha),
            },
            None => Self {
                k,
                alpha: f64::INFINITY,
                gain: shared.gain_of_deleting(old),
            },
        }
    }
}

/// The step on one active function that gains most: a move only if it gains `least`, a deletion always.
///
/// An error where rounding has left some function without a variance: what it were worth could be anything.
pub(crate) fn best_step(
    state: &OutputState,
    least: f64,
) -> Result<Option<Proposal>, NotPositiveDefinite> {
    state.check_variances()?;
    let mut terms = Vec::with_capacity(state.levels.len());
    let steps = (0..state.len()).map(|k| Proposal::about(state, k, &mut terms));
    Ok(steps
        .filter(|step| step.alpha.is_infinite() || step.gain >= least)
        .fold(None, |best: Option<Proposal>, step| match best {
            Some(best) if best.gain >= step.gain => Some(best),
            _ => Some(step),
        }))
}

/// Brings the active set to a maximum: one function at a time while that pays, all together near the end.
///
/// Every step raises the evidence.
pub(crate) fn converge(
    stats: &mut dyn OutputStatistics,
    state: &mut OutputState,
    noise: &Noise,
    effort: Effort,
    recorder: &mut Recorder<'_>,
) -> Result<Refined, Stop> {
    let mut damping = Coordinates::Inverses.damping();
    let (mut failures, mut plateau) = (0, Plateau::new());
    loop {
        climb(stats, state, effort, recorder)?;
        move_noise(stats, state, noise, recorder)?;
        if best_step(state, f64::INFINITY)?.is_some() {
            continue;
        }
        if residual(state, noise) <= effort.tol {
            return Ok(Refined::Converged);
        }
        // Where rounding leaves more of the residual than is asked for, steps could go on for ever.
        if plateau.length_at(state.log_evidence()) >= Tuning::MAX_PLATEAU {
            return Ok(Refined::Stalled);
        }
        if newton::step(stats, state, noise, &mut damping)? {
            recorder.step(Action::Joint, None, state)?;
            failures = 0;
        } else if failures < 3 && state.len() > 0 {
            failures += 1;
            sweep_once(stats, state, effort.tol, recorder)?;
        } else {
            return Ok(Refined::Stalled);
        }
    }
}

/// Largest distance of a hyperparameter from its maximum, in logs.
fn residual(state: &OutputState, noise: &Noise) -> f64 {
    let mut terms = Vec::with_capacity(state.levels.len());
    let mut residual = 0.0_f64;
    for k in 0..state.len() {
        state.factors(k, &mut terms);
        residual = residual.max(SharedFactors(&terms).change_from(state.alpha[k]));
    }
    for l in 0..state.levels.len() {
        residual = residual.max(noise.change(state, l).abs());
    }
    residual
}

/// Single-function steps, greatest gain first, while they gain much or delete.
fn climb(
    stats: &mut dyn OutputStatistics,
    state: &mut OutputState,
    effort: Effort,
    recorder: &mut Recorder<'_>,
) -> Result<(), Stop> {
    // Rank-one updates drift; each recomputation starts afresh.
    let refresh_after = 2 * state.len() + 20;
    let mut steps = 0;
    while let Some(proposal) = best_step(state, effort.step)? {
        apply(stats, state, proposal, recorder)?;
        steps += 1;
        if steps % refresh_after == 0 {
            state.recompute()?;
        }
    }
    Ok(())
}

/// One step on each function that is further from its maximum than `tol`.
pub(crate) fn sweep_once(
    stats: &mut dyn OutputStatistics,
    state: &mut OutputState,
    tol: f64,
    recorder: &mut Recorder<'_>,
) -> Result<(), Stop> {
    let mut terms = Vec::with_capacity(state.levels.len());
    for k in 0..state.len() {
        let proposal = Proposal::about(state, k, &mut terms);
        if proposal.alpha.is_finite() && (proposal.alpha / state.alpha[k]).ln().abs() > tol {
            apply(stats, state, proposal, recorder)?;
        }
    }
    state.recompute()?;
    Ok(())
}

fn apply(
    stats: &mut dyn OutputStatistics,
    state: &mut OutputState,
    proposal: Proposal,
    recorder: &mut Recorder<'_>,
) -> Result<(), Stop> {
    let Proposal { k, alpha, gain } = proposal;
    let j = state.active[k];
    let action = if alpha.is_finite() {
        state.reestimate(k, alpha)?;
        Action::Reestimate(j)
    } else {
        state.delete(k);
        Action::Delete(j)
    };
    state.recentre(stats)?;
    recorder.step(action, Some(gain), state)
}

/// Moves the noise levels towards their fixed points, shortening the move until the evidence rises.
fn move_noise(
    stats: &mut dyn OutputStatistics,
    state: &mut OutputState,
    noise: &Noise,
    recorder: &mut Recorder<'_>,
) -> Result<(), Stop> {
    // Small moves are left to the joint steps; in an empty model this is the whole optimum.
    let worthwhile = if state.len() > 0 { 0.1 } else { 1e-12 };
    let mut changes: Vec<f64> = (0..state.levels.len())
        .map(|l| noise.change(state, l))
        .collect();
    if changes.iter().all(|change| change.abs() < worthwhile) {
        return Ok(());
    }
    let (alpha, betas, evidence) = (state.alpha.clone(), state.betas(), state.log_evidence());
    for _ in 0..20 {
        let moved: Vec<f64> = (0..betas.len())
            .map(|l| noise.snapped(l, betas[l] * changes[l].exp()))
            .collect();
        state.set_hyperparameters(&alpha, &moved)?;
        state.recentre(stats)?;
        if state.log_evidence() > evidence {
            return recorder.step(Action::Noise, None, state);
        }
        for change in &mut changes {
            *change *= 0.5;
        }
    }
    state.set_hyperparameters(&alpha, &betas)?;
    Ok(())
}
