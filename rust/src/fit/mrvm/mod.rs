//! The M-step of mRVM1 (Psorakis et al. 2010, section III).
//!
//! It is a regression with several outputs on the expectations of auxiliary variables, with shared alphas and noise
//! precision 1: equations (6) to (21) are those of [`evidence`](crate::fit::evidence) with n = C. The expectations, which are
//! the targets, change from one M-step to the next; functions, alphas and Gram columns stay.

mod bound;
mod top_down;
mod trust_region;

pub use top_down::TopDownFit;
pub use trust_region::Ascent;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::data::{Observations, Statistics};
use crate::fit::context::Fit;
use crate::fit::dictionary::Dictionary;
use crate::fit::evidence::{Gamma, Priors};
use crate::fit::model::Model;
use crate::fit::mrvm::bound::Bound;
use crate::fit::record::{Recorder, Step, StepCallback, Stop, unless_indefinite};
use crate::fit::refine::reestimate_each;
use crate::fit::settings::{NoisePrecision, Rules};
use crate::fit::tuning::{Effort, Tuning};
use crate::fit::working_set::WorkingSet;
use crate::likelihood::probit::Probit;
use crate::linalg::Matrix;
use crate::model::{OutputPosterior, Status};
use crate::{Error, Result};

/// The result of an M-step.
#[derive(Debug, Clone)]
pub struct MStep {
    /// [`Status::Converged`], or why the step ended earlier.
    pub status: Status,
    /// Log evidence of all outputs together, at the start and after each update of an alpha. It never falls.
    pub trace: Vec<f64>,
    /// Number of active functions at the same points.
    pub n_active: Vec<usize>,
}

/// A regression with several outputs, shared alphas and a fixed noise precision, whose targets may be replaced between M-steps.
pub struct RetargetedFit<'a> {
    stats: Observations<'a>,
    model: Model,
    dictionary: Dictionary,
    /// The working set of the whole dictionary, if that is small enough. Its Gram matrix does not depend on the targets.
    whole: Option<WorkingSet>,
}

impl<'a> RetargetedFit<'a> {
    /// Starts with the functions `active`, with prior precisions `alpha` of their weights (for the columns as given).
    ///
    /// # Errors
    /// [`Error::Shape`] or [`Error::Invalid`] for an invalid start, and the errors of the provider.
    pub fn new(
        mut stats: Observations<'a>,
        beta: f64,
        active: &[usize],
        alpha: &[f64],
    ) -> Result<Self> {
        Error::check_len("alpha", active.len(), alpha.len())?;
        let range = Tuning::MAX_PRECISION.recip()..=Tuning::MAX_PRECISION;
        let mut precisions = Vec::with_capacity(alpha.len());
        for (k, (&i, &alpha)) in active.iter().zip(alpha).enumerate() {
            let norm = stats.facts().norms.get(i).copied().unwrap_or(0.0);
            let own = alpha / (norm * norm);
            if norm == 0.0 || !range.contains(&own) || active[..k].contains(&i) {
                let what = format!(
                    "cannot start with function {i} and precision {alpha}; functions must be distinct columns that are not \
                     zero, with positive precisions"
                );
                return Err(Error::Invalid { what });
            }
            precisions.push(own);
        }
        let squares = stats.gradient(&[], &[], &mut [])?;
        let noise = [NoisePrecision::fixed(beta)];
        let mut model = Model::empty(&noise, Gamma::FLAT, &squares, stats.facts().n_obs);
        if !active.is_empty() {
            model.start(&mut stats, active, &precisions, &Priors::default())?;
        }
        Ok(Self {
            dictionary: Dictionary::new(stats.facts().n_basis(), Priors::default()),
            whole: None,
            stats,
            model,
        })
    }

    /// Replaces the cancellation flag.
    pub fn set_cancel(&mut self, flag: Arc<AtomicBool>) {
        self.stats.set_cancel(flag);
    }

    /// Replaces the targets, N x C column after column.
    ///
    /// # Errors
    /// [`Error::Shape`] or [`Error::NonFinite`].
    pub fn set_targets(&mut self, targets: Vec<f64>) -> Result<()> {
        self.stats.set_targets(targets)
    }

    /// Maximises the variational bound for rows of these classes in all weights and alphas together. The fit keeps the alphas;
    /// the result is the targets that the E-step returns there, N x C column after column.
    ///
    /// # Errors
    /// [`Error::Shape`]; [`Error::NotPositiveDefinite`] if round-off makes the precision indefinite; [`Error::Interrupted`].
    pub fn maximise_bound(
        &mut self,
        probit: &Probit,
        labels: &[usize],
        ascent: Ascent,
    ) -> Result<Vec<f64>> {
        let (model, stats) = (&mut self.model, &mut self.stats);
        let (m, c, cancel) = (
            model.len(),
            model.outputs.len(),
            stats.facts().cancel.clone(),
        );
        let bound = Bound {
            columns: stats.active_columns(&model.active),
            gram: Matrix::from_fn(m, m, |i, j| model.gram(i, j)),
            labels,
            row_weights: stats.weights.as_deref(),
            probit,
            n_classes: c,
        };
        if m == 0 {
            return bound.targets(&[]);
        }
        let mut x = model.means();
        x.extend(model.alpha.iter().map(|a| a.ln()));
        let (x, targets) = trust_region::maximize(&bound, x, ascent, cancel.as_deref())?;
        let alpha: Vec<f64> = x[m * c..].iter().map(|a| a.exp()).collect();
        let betas = model.betas();
        model.set_hyperparameters(&alpha, &betas)?;
        Ok(targets)
    }

    /// Maximises the evidence of the targets over functions and alphas, until no candidate gains `gain` nats and each ln alpha is
    /// within `tol` of its maximum. If no step is needed, each alpha is re-estimated once.
    ///
    /// # Errors
    /// The errors of the provider.
    pub fn maximise(
        &mut self,
        gain: f64,
        tol: f64,
        max_iter: usize,
        watch: &mut StepCallback<'_>,
    ) -> Result<MStep> {
        let effort = Effort {
            gain,
            tol,
            moves_noise: false,
            ..Tuning::FINE_EFFORT
        };
        self.model.set_smallest_gain(gain);
        self.dictionary.refresh(&mut self.stats, &mut self.model)?;
        self.dictionary.reset_entries();
        self.update_whole()?;
        let good = self.model.clone();
        let mut n_active = vec![self.model.len()];
        let mut watch = |step: &Step| {
            n_active.push(step.n_active);
            watch(step)
        };
        let mut recorder = Recorder::new(&self.model, max_iter, 1.0, &mut watch);
        let mut fit = Fit {
            stats: &mut self.stats,
            model: &mut self.model,
            dictionary: &mut self.dictionary,
            rules: &Rules::default(),
            recorder: &mut recorder,
        };
        let outcome = fit.m_step(self.whole.as_ref(), effort);
        let status = match unless_indefinite(outcome.map(|()| Status::Converged)).transpose() {
            Some(outcome) => Some(fit.status(outcome)?),
            None => None,
        };
        let mut trace = std::mem::take(&mut recorder.trace);
        let status = status.unwrap_or_else(|| {
            self.model = good;
            trace.truncate(1);
            n_active.truncate(1);
            Status::Stalled
        });
        Ok(MStep {
            status,
            trace,
            n_active,
        })
    }

    /// Gives the working set of the whole dictionary the present targets.
    fn update_whole(&mut self) -> Result<()> {
        let (dictionary, model) = (&self.dictionary, &mut self.model);
        if let Some(set) = &mut self.whole {
            set.set_targets(&dictionary.gradient_of(&set.members), model);
        } else if dictionary.n_candidates() <= 4 * Tuning::MAX_WHOLE_DICTIONARY {
            let members = dictionary.sample(0, usize::MAX);
            let set = WorkingSet::about(&mut self.stats, model, dictionary.priors(), &members)?;
            self.whole = Some(set);
        }
        Ok(())
    }

    /// Phi mu at every row, N x C column after column.
    pub fn predictions(&mut self) -> Vec<f64> {
        self.stats
            .predictions(&self.model.active, &self.model.means())
    }

    /// `C/2 (ln|A| - ln|Phi^T W Phi + A|) - 1/2 sum_c mu_c^T A mu_c`. The sum of this and the log-likelihood of the classes at the
    /// posterior mean is the variational bound, which M- and E-steps raise.
    #[must_use]
    pub fn log_occam_factor(&self) -> f64 {
        self.model.log_occam_factor()
    }

    /// The present model, for the columns as given.
    #[must_use]
    pub fn posterior(&self, step: &MStep) -> OutputPosterior {
        let (trace, facts) = (step.trace.clone(), self.stats.facts());
        self.model.published(trace, step.status, facts)
    }
}

impl Fit<'_, '_> {
    /// Maximizes the evidence with greedy steps on working sets; re-estimates each alpha once if no step is needed.
    fn m_step(&mut self, whole: Option<&WorkingSet>, effort: Effort) -> Result<(), Stop> {
        loop {
            let next;
            let set = if let Some(whole) = whole {
                whole
            } else {
                next = self.next_working_set(None)?;
                &next
            };
            let steps = self.recorder.n_iter();
            self.maximize_on(set, effort)?;
            if whole.is_some() || self.recorder.n_iter() == steps {
                break;
            }
            self.refresh_or_update(None)?;
            if self.dictionary.largest_gain(self.model) <= effort.gain {
                break;
            }
        }
        if self.recorder.n_iter() == 0 {
            reestimate_each(self.stats, self.model, -1.0, self.recorder)?;
        }
        Ok(())
    }
}
