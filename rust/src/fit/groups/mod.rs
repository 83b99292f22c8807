//! Fits of columns in groups that share a precision: the steps of Tipping & Faul (2003) for blocks. See `docs/theory/groups.md`.
//!
//! A group has a matrix as sparsity factor, so these fits have a loop of their own. Products of the columns are computed once for each group
//! that enters the model, and the posterior anew in each step.

mod gains;
mod posterior;

use std::cmp::Ordering;
use std::sync::atomic::AtomicBool;

use crate::Result;
use crate::fit::groups::gains::{Terms, eigen};
use crate::fit::groups::posterior::{Data, Posterior};
use crate::fit::record::{Action, Step, StepCallback, Stop, unless_indefinite};
use crate::fit::tuning::Tuning;
use crate::linalg::Matrix;
use crate::model::Status;

/// Targets and columns in groups. Rows are multiplied by the roots of their weights, and columns with a flat prior are projected out.
pub struct GroupProblem<'a> {
    /// The columns, one after another.
    pub columns: &'a [f64],
    /// The targets, one output after another, of variance near 1.
    pub targets: &'a [f64],
    /// Rows of both.
    pub n_rows: usize,
    /// The columns of each group.
    pub groups: Vec<Vec<usize>>,
    /// Weight of each of these columns in the prior on complexity, in units of that of a single column.
    pub shares: &'a [f64],
    /// Sum of the weights of the rows less the number of columns with a flat prior.
    pub n_contrasts: f64,
    /// Columns with a flat prior, which steps count.
    pub n_flat: usize,
    /// Noise precision; `None`: estimated, if there are contrasts that tell it.
    pub beta: Option<f64>,
    /// Weight of the prior on complexity for a single column.
    pub complexity: f64,
    /// The caller's targets are these times this number; steps report the noise of the caller's.
    pub unit: f64,
    /// Subtracted from the log evidence, which is then that of the caller's targets.
    pub offset: f64,
    /// Tolerance on the logs of precisions.
    pub tol: f64,
    /// Most steps.
    pub max_iter: usize,
}

/// Groups in a model, with the posterior of their weights in the units of the problem.
pub struct GroupPosterior {
    /// Indices of the groups.
    pub active: Vec<usize>,
    /// Precision of each group.
    pub alpha: Vec<f64>,
    /// Noise precision.
    pub beta: f64,
    /// Means of the weights, for each column and output.
    pub mu: Matrix,
    /// Covariance of the weights.
    pub sigma: Matrix,
    /// Log evidence at the start and after each step; the last is that of the model.
    pub trace: Vec<f64>,
    /// How the fit ended.
    pub status: Status,
}

/// Fits a sparse Bayesian model of groups of columns.
///
/// # Errors
/// [`Error::Interrupted`](crate::Error::Interrupted), and
/// [`Error::NotPositiveDefinite`](crate::Error::NotPositiveDefinite) if round-off makes the precision of the first model indefinite.
///
/// # Panics
/// If a column or a slice is shorter than the problem says.
pub fn fit_groups(
    problem: &GroupProblem<'_>,
    cancel: Option<&AtomicBool>,
    watch: &mut StepCallback<'_>,
) -> Result<GroupPosterior> {
    let mut fit = GroupFit {
        problem,
        data: Data::new(problem, cancel),
        watch,
        state: State {
            active: Vec::new(),
            x: Vec::new(),
            beta: problem.beta.unwrap_or(1.0 / Tuning::INITIAL_NOISE),
        },
        refused: Vec::new(),
        trace: Vec::new(),
    };
    let now = fit.now()?;
    fit.trace.push(now.log_evidence);
    let status = match fit.maximise() {
        Ok(status) => status,
        Err(Stop::MaxIterations) => Status::MaxIterations,
        Err(Stop::Stopped) => Status::Stopped,
        Err(Stop::Failed(error)) => return Err(error),
    };
    let now = fit.now()?;
    Ok(GroupPosterior {
        alpha: fit.state.x.iter().map(|x| x.exp()).collect(),
        active: fit.state.active,
        beta: fit.state.beta,
        mu: now.mu,
        sigma: now.sigma,
        trace: fit.trace,
        status,
    })
}

/// The groups in the model, the logs of their precisions, and the noise precision.
#[derive(Clone)]
struct State {
    active: Vec<usize>,
    x: Vec<f64>,
    beta: f64,
}

/// A change of the precision of a group, infinite if it is deleted.
struct Change {
    gain: f64,
    group: usize,
    alpha: f64,
}

impl Change {
    /// The one of larger gain.
    fn or(self, other: Self) -> Self {
        if largest_first((other.gain, other.group), (self.gain, self.group)).is_lt() {
            other
        } else {
            self
        }
    }
}

struct GroupFit<'a, 'w> {
    problem: &'a GroupProblem<'a>,
    data: Data<'a>,
    watch: &'w mut StepCallback<'w>,
    state: State,
    /// Groups whose steps were refused, as round-off hides the gain.
    refused: Vec<usize>,
    trace: Vec<f64>,
}

/// The steps.
impl GroupFit<'_, '_> {
    fn now(&self) -> Result<Posterior> {
        self.data.posterior(&self.state)
    }

    fn estimates_noise(&self) -> bool {
        self.problem.beta.is_none() && self.problem.n_contrasts > 0.0
    }

    /// The posterior of another state, or `None` where round-off makes its precision indefinite.
    fn posterior_or_none(&self, state: &State) -> Result<Option<Posterior>, Stop> {
        unless_indefinite(self.data.posterior(state).map_err(Stop::from))
    }

    /// Maximises the objective, then again from an optimum with less weight of the prior on complexity.
    ///
    /// Where many groups explain equal parts of the targets none of them gains enough alone: as for single columns. The mean of the gains
    /// in several outputs hardly exceeds 1 by chance.
    fn maximise(&mut self) -> Result<Status, Stop> {
        let (status, full) = (self.ascend()?, self.data.complexity);
        let (rows, n_groups) = (
            self.problem.n_contrasts.max(1.0),
            self.problem.groups.len() as f64,
        );
        let least = (0.5 * rows.ln()).max((4.0 * n_groups / rows).ln());
        let less = (1.0 + (least - 1.0) / self.data.n_outputs).max(0.5 * full);
        if !self.estimates_noise() || less >= full || 2.0 * full * n_groups <= rows {
            return Ok(status);
        }
        let before = self.state.clone();
        let best = self.now()?.objective;
        self.data.complexity = less;
        let mut again = self.ascend();
        self.data.complexity = full;
        if again.is_ok() {
            again = self.ascend();
        }
        if let Err(Stop::Failed(error)) = again {
            return Err(error.into());
        }
        let now = self.now()?;
        if now.objective > best + Tuning::MIN_GAIN {
            return again;
        }
        self.state = before;
        let now = self.now()?;
        self.record(Action::Search, None, &now)?;
        again.map(|_| status)
    }

    /// Adds, re-estimates and deletes groups, and moves all precisions and the noise, until nothing gains.
    fn ascend(&mut self) -> Result<Status, Stop> {
        if self.estimates_noise() && self.state.active.is_empty() {
            self.step_greedily(Tuning::COARSE_GROUP_GAIN, Tuning::FIRST_GROUP_PASSES)?;
        }
        let (mut highest, mut idle) = (f64::NEG_INFINITY, 0);
        let converged = loop {
            let converged = self.refine()?;
            let now = self.now()?.objective;
            let rises = now > highest + Tuning::MIN_GAIN * (1.0 + now.abs());
            idle = if rises { 0 } else { idle + 1 };
            highest = highest.max(now);
            if idle > Tuning::MAX_IDLE_PASSES {
                return Ok(Status::Stalled);
            }
            if !self.step_greedily(Tuning::MIN_GAIN, usize::MAX)? {
                break converged;
            }
        };
        let at_floor = self.state.beta >= (1.0 - 1e-9) / Tuning::NOISE_FLOOR;
        Ok(if self.estimates_noise() && at_floor {
            Status::NoiseFloor
        } else if converged && self.refused.is_empty() {
            Status::Converged
        } else {
            Status::Stalled
        })
    }

    /// Passes over all groups at fixed noise, each followed by steps among those of the largest gains; tells if there was a step.
    ///
    /// Small gains, down to `least`, have to wait until all precisions are best for the groups with larger ones.
    fn step_greedily(&mut self, least: f64, n_passes: usize) -> Result<bool, Stop> {
        let mut changed = false;
        for _ in 0..n_passes {
            let now = self.now()?;
            let best = self.best_outside(&now, least)?;
            let Some((largest, _)) = best.first() else {
                self.refused.clear();
                return Ok(changed);
            };
            let is_small = *largest <= Tuning::COARSE_GROUP_GAIN;
            if changed && is_small {
                return Ok(true);
            }
            let end = if is_small {
                least
            } else {
                Tuning::COARSE_GROUP_GAIN
            };
            let end = end.max(Tuning::GROUP_GAIN_RATIO * largest);
            let members: Vec<usize> = best.iter().map(|(_, g)| *g).collect();
            if !self.step_among(&members, end, now)? {
                return Ok(changed);
            }
            changed = true;
            if is_small {
                break;
            }
        }
        Ok(changed)
    }

    /// The groups outside the model with the largest gains above `least`, the largest first.
    fn best_outside(&self, now: &Posterior, least: f64) -> Result<Vec<(f64, usize)>> {
        let is_outside = |g: &usize| !self.state.active.contains(g);
        let outside: Vec<usize> = (0..self.problem.groups.len()).filter(is_outside).collect();
        let mut best: Vec<(f64, usize)> = Vec::new();
        for (bound, g, terms) in self.largest_bounds(now, &outside, least)? {
            if best.len() == Tuning::GROUP_WORKING_SET && bound <= best[best.len() - 1].0 {
                break;
            }
            let found = (terms.gain(), g);
            if found.0 > least {
                let at = best.partition_point(|other| largest_first(*other, found).is_lt());
                best.insert(at, found);
                best.truncate(Tuning::GROUP_WORKING_SET);
            }
        }
        Ok(best)
    }

    /// Steps among these groups and the active ones until no gain exceeds `least`; tells if there was a step.
    ///
    /// A group whose step does not raise the objective, by round-off, is left as it is.
    fn step_among(
        &mut self,
        members: &[usize],
        least: f64,
        mut now: Posterior,
    ) -> Result<bool, Stop> {
        let mut changed = false;
        self.refused.clear();
        loop {
            let Some(change) = self.best_change(members, least, &now)? else {
                return Ok(changed);
            };
            let (action, state) = self.changed(&change);
            let after = self.posterior_or_none(&state)?;
            match after {
                Some(after) if after.objective - now.objective > 0.5 * least.min(change.gain) => {
                    self.state = state;
                    self.record(action, Some(change.gain), &after)?;
                    (changed, now) = (true, after);
                }
                _ => self.refused.push(change.group),
            }
        }
    }

    /// The change of the largest gain above `least`, if any.
    fn best_change(
        &self,
        members: &[usize],
        least: f64,
        now: &Posterior,
    ) -> Result<Option<Change>> {
        let mut best = Change {
            gain: least,
            group: usize::MAX,
            alpha: f64::INFINITY,
        };
        let active = self.data.best_of_active(&self.state, now);
        for (&group, (alpha, gain, present)) in self.state.active.iter().zip(active) {
            let gain = gain - present;
            // Smaller gains of a single precision are left to the joint steps.
            let is_worthwhile = alpha.is_infinite() || gain > Tuning::COARSE_GROUP_GAIN;
            if is_worthwhile && !self.refused.contains(&group) {
                best = best.or(Change { gain, group, alpha });
            }
        }
        let is_open = |g: &usize| !self.state.active.contains(g) && !self.refused.contains(g);
        let open: Vec<usize> = members.iter().copied().filter(is_open).collect();
        for (bound, group, terms) in self.largest_bounds(now, &open, least)? {
            if bound <= best.gain {
                break;
            }
            let (alpha, gain) = terms.best();
            best = best.or(Change { gain, group, alpha });
        }
        Ok((best.group != usize::MAX).then_some(best))
    }

    /// Groups outside the model that may gain more than `least`: a bound of the gain, the group and its terms, the largest bound first.
    fn largest_bounds(
        &self,
        now: &Posterior,
        groups: &[usize],
        least: f64,
    ) -> Result<Vec<(f64, usize, Terms)>> {
        let terms = self.data.terms(&self.state, now, groups)?.into_iter();
        let bounds = terms
            .zip(groups)
            .map(|(terms, g)| (terms.bound(), *g, terms));
        let mut bounds: Vec<_> = bounds.filter(|(bound, ..)| *bound > least).collect();
        bounds.sort_by(|a, b| largest_first((a.0, a.1), (b.0, b.1)));
        Ok(bounds)
    }

    /// The state after a change, and the name of the step.
    fn changed(&mut self, change: &Change) -> (Action, State) {
        let (mut state, column) = (self.state.clone(), self.problem.groups[change.group][0]);
        let action = match state.active.iter().position(|g| *g == change.group) {
            None => {
                self.data.store(change.group);
                state.active.push(change.group);
                state.x.push(change.alpha.ln());
                Action::Add(column)
            }
            Some(k) if change.alpha.is_finite() => {
                state.x[k] = change.alpha.ln();
                Action::Reestimate(column)
            }
            Some(k) => {
                state.active.remove(k);
                state.x.remove(k);
                Action::Delete(column)
            }
        };
        (action, state)
    }

    /// Records a step with its predicted gain; `None`: that in log evidence.
    fn record(&mut self, action: Action, gain: Option<f64>, now: &Posterior) -> Result<(), Stop> {
        let before = self.trace[self.trace.len() - 1];
        self.trace.push(now.log_evidence);
        let step = Step {
            iteration: self.trace.len() - 1,
            action,
            gain: gain.unwrap_or(now.log_evidence - before),
            log_evidence: now.log_evidence,
            n_active: now.rows.len() + self.problem.n_flat,
            beta: self.state.beta / self.problem.unit.powi(2),
        };
        if (self.watch)(&step).is_break() {
            return Err(Stop::Stopped);
        }
        if self.trace.len() > self.problem.max_iter {
            return Err(Stop::MaxIterations);
        }
        Ok(())
    }
}

/// All precisions and the noise together.
impl GroupFit<'_, '_> {
    /// Maximises over the precisions of the active groups and the noise; tells whether it converged.
    fn refine(&mut self) -> Result<bool, Stop> {
        let floor = -Tuning::NOISE_FLOOR.ln();
        let (mut last, mut now) = (f64::INFINITY, self.now()?);
        loop {
            now = self.delete_useless(now)?;
            let m = self.state.x.len();
            if m == 0 && !self.estimates_noise() {
                return Ok(true);
            }
            let (slope, curvature) = self.derivatives(&now);
            let ln_beta = self.state.beta.ln();
            let is_at_floor = ln_beta >= floor - 1e-12 && slope[m] > 0.0;
            let n_free = if self.estimates_noise() && !is_at_floor {
                m + 1
            } else {
                m
            };
            let mut step = newton_step(&slope[..n_free], &curvature);
            if !step.iter().all(|x| x.is_finite()) {
                return Ok(false);
            }
            let length = step.iter().fold(0.0, |a: f64, b| a.max(b.abs()));
            let shorter = (Tuning::MAX_GROUP_STEP / length).min(1.0);
            for x in &mut step {
                *x *= shorter;
            }
            step.resize(m + 1, 0.0);
            // So close to the maximum that round-off hides the rise, steps have to become shorter.
            let is_close = length < Tuning::CLOSE_GROUP_STEP;
            if length <= 0.1 * self.problem.tol || (is_close && length > 0.5 * last) {
                return Ok(length <= self.problem.tol);
            }
            last = length;
            let mut found = None;
            for _ in 0..if is_close {
                1
            } else {
                Tuning::MAX_GROUP_HALVINGS
            } {
                let mut state = self.state.clone();
                for (x, step) in state.x.iter_mut().zip(&step) {
                    *x += step;
                }
                if step[m] != 0.0 {
                    state.beta = (ln_beta + step[m]).min(floor).exp();
                }
                if let Some(after) = self.posterior_or_none(&state)?
                    && (is_close || after.objective > now.objective)
                {
                    found = Some((state, after));
                    break;
                }
                for x in &mut step {
                    *x *= 0.5;
                }
            }
            let Some((state, after)) = found else {
                return Ok(false);
            };
            (self.state, now) = (state, after);
            self.record(Action::Joint, None, &now)?;
        }
    }

    /// Deletes groups whose best precision is infinite, the least useful first; returns the posterior.
    fn delete_useless(&mut self, mut now: Posterior) -> Result<Posterior, Stop> {
        loop {
            let best = self.data.best_of_active(&self.state, &now);
            let useless = best
                .iter()
                .enumerate()
                .filter(|(_, (alpha, ..))| alpha.is_infinite());
            let Some((k, (.., present))) = useless.min_by(|a, b| a.1.2.total_cmp(&b.1.2)) else {
                return Ok(now);
            };
            let (action, state) = self.changed(&Change {
                gain: -present,
                group: self.state.active[k],
                alpha: f64::INFINITY,
            });
            self.state = state;
            now = self.now()?;
            self.record(action, Some(-present), &now)?;
        }
    }

    /// Slope and curvature of the objective in the logs of precisions and of beta.
    ///
    /// With theta_g = ln alpha_g and A_g the part of A of group g: dSigma = -Sigma A_g Sigma and dmu = -Sigma A_g mu; for ln beta,
    /// dSigma = -K and dmu = Sigma A mu, with K = Sigma - Sigma A Sigma.
    fn derivatives(&self, now: &Posterior) -> (Vec<f64>, Matrix) {
        let (n, beta, size) = (self.data.n_outputs, self.state.beta, now.rows.len());
        let (sigma, alpha, c) = (&now.sigma, &now.alpha, &now.weight);
        let times = |scale: &dyn Fn(usize) -> f64, matrix: &Matrix| {
            Matrix::from_fn(matrix.nrows(), matrix.ncols(), |i, j| {
                scale(i) * matrix[(i, j)]
            })
        };
        // Sigma A mu, K, and M = Sigma A_c Sigma.
        let a_mu = times(&|i| alpha[i], &now.mu);
        let shrunk = sigma * &a_mu;
        let of_means = &a_mu * a_mu.transpose();
        let k = sigma - sigma * times(&|i| alpha[i], sigma);
        let m = if self.data.complexity > 0.0 {
            sigma * times(&|i| c[i] * alpha[i], sigma)
        } else {
            Matrix::zeros(size, size)
        };
        let last = self.state.x.len();
        let (mut slope, mut curvature) = (vec![0.0; last + 1], Matrix::zeros(last + 1, last + 1));
        let (mut of_noise, mut bend) = (self.problem.n_contrasts, 0.0);
        for j in 0..size {
            let (g, aj) = (now.position[j], alpha[j]);
            let (a_sigma, a_k, a_m) = (aj * sigma[(j, j)], aj * k[(j, j)], aj * m[(j, j)]);
            let of_mu = a_mu.row(j).dot(&now.mu.row(j));
            let of_shrunk = a_mu.row(j).dot(&shrunk.row(j));
            slope[g] += 0.5 * (n * (1.0 - a_sigma) - of_mu) + n * (c[j] * a_sigma - a_m);
            curvature[(g, g)] -= 0.5 * (n * a_sigma + of_mu) + n * (a_m - c[j] * a_sigma);
            let (mut of_a, mut of_ca) = (0.0, 0.0);
            for i in 0..size {
                let product = alpha[i] * sigma[(i, j)] * aj;
                let of_prior = 2.0 * m[(i, j)] - (c[i] + c[j]) * sigma[(i, j)];
                curvature[(now.position[i], g)] += product
                    * (0.5 * n * sigma[(i, j)] + n * of_prior)
                    + of_means[(i, j)] * sigma[(i, j)];
                let of_k = k[(i, j)] * alpha[i] * sigma[(i, j)];
                of_a += of_k;
                of_ca += c[i] * of_k;
            }
            let cross = 0.5 * n * a_k - of_shrunk - n * (c[j] * a_k - 2.0 * aj * of_ca);
            curvature[(last, g)] += cross;
            curvature[(g, last)] += cross;
            of_noise -= 1.0 - a_sigma + 2.0 * c[j] * a_k;
            bend += of_shrunk - 0.5 * n * a_k + n * c[j] * (a_k - 2.0 * aj * of_a);
        }
        slope[last] = 0.5 * (n * of_noise - beta * now.residual);
        curvature[(last, last)] = bend - 0.5 * beta * now.residual;
        (slope, curvature)
    }
}

/// Newton's step to a maximum for the first coordinates, uphill where the curvature is positive.
fn newton_step(slope: &[f64], curvature: &Matrix) -> Vec<f64> {
    let m = slope.len();
    let slope = nalgebra::DVector::from_column_slice(slope);
    let curvature = curvature.view((0, 0), (m, m)).into_owned();
    if let Some(chol) = (-&curvature).cholesky() {
        return chol.solve(&slope).as_slice().to_vec();
    }
    let (mut values, mut vectors) = (curvature, Matrix::zeros(m, m));
    eigen(&mut values, &mut vectors);
    let values = values.diagonal();
    let largest = values.amax().max(1e-12);
    let mut along = vectors.transpose() * slope;
    for (along, value) in along.iter_mut().zip(&values) {
        *along /= value.abs().max(1e-12 * largest);
    }
    (vectors * along).as_slice().to_vec()
}

/// The order of gains with their groups: the largest gain first, then the first group.
fn largest_first(a: (f64, usize), b: (f64, usize)) -> Ordering {
    b.0.total_cmp(&a.0).then(a.1.cmp(&b.1))
}
