//! A fit of several outputs whose targets move: the M-step of a model with auxiliary targets.
//!
//! mRVM1 (Psorakis et al. 2010, section III) regresses on the expectations of auxiliary variables, with shared alphas and
//! noise precision 1: equations (6) to (21) are those of this module with `n_l = C`. The expectations change from one M-step to
//! the next; functions, alphas and Gram columns stay.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::super::Status;
use super::super::record::{Halt, Recorder, Watch};
use super::super::settings::{Effort, FINE_STEP};
use super::bound::{Together, Unpacked};
use super::candidates::Candidates;
use super::inner::{Noise, sweep_once};
use super::sequential::climb;
use super::state::OutputState;
use crate::model::OutputPosterior;
use crate::probit::Probit;
use crate::stats::{OutputObservations, OutputStatistics, check_flag};
use crate::{Error, Result};

/// How an M-step ended, and the evidence of the targets at its start and after each update of an alpha.
#[derive(Debug, Clone)]
pub struct MStep {
    /// [`Status::Converged`] to what was asked for, or why not.
    pub status: Status,
    /// Log evidence of all outputs together; it never falls.
    pub trace: Vec<f64>,
    /// Functions in the model, likewise.
    pub n_active: Vec<usize>,
}

/// Several outputs with shared alphas and the given noise precision, whose targets may be replaced between M-steps.
pub struct RetargetedFit<'a> {
    stats: OutputObservations<'a>,
    state: OutputState,
    candidates: Candidates,
    noise: Noise,
    /// Weights and alphas being moved together, between [`RetargetedFit::begin_together`] and
    /// [`RetargetedFit::end_together`].
    together: Option<Together>,
}

impl<'a> RetargetedFit<'a> {
    /// Begins with the functions `active`, their weights having prior precisions `alpha` (for columns as they are given).
    ///
    /// # Errors
    /// [`Error::Shape`] or [`Error::Invalid`] for a start that is none, and whatever the provider meets.
    pub fn new(
        mut stats: OutputObservations<'a>,
        beta: f64,
        active: &[usize],
        alpha: &[f64],
    ) -> Result<Self> {
        Error::check_len("alpha", active.len(), alpha.len())?;
        let empty = nalgebra::DMatrix::zeros(0, stats.n_outputs());
        let squares = stats.active_residuals(&[], &empty)?.squares;
        let mut state = OutputState::empty(&[beta], &squares, stats.n_obs());
        let mut candidates = Candidates::new(&mut stats, &mut state)?;
        for (&i, &alpha) in active.iter().zip(alpha) {
            let norm = stats.norms().get(i).copied().unwrap_or(0.0);
            if norm == 0.0 || alpha.is_nan() || alpha <= 0.0 || state.active.contains(&i) {
                let what = format!("function {i} with precision {alpha} is no start");
                return Err(Error::Invalid { what });
            }
            candidates.enter(&mut stats, &mut state, i, alpha / (norm * norm))?;
        }
        Ok(Self {
            noise: Noise::new(vec![None], vec![beta]),
            stats,
            state,
            candidates,
            together: None,
        })
    }

    /// Heeds another flag from now on.
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

    /// Begins to move all weights and alphas together; returns the vector that stands for where they are.
    ///
    /// Its entries are whitened: a unit change of any is about as much as the bound can tell.
    pub fn begin_together(&mut self) -> Vec<f64> {
        let together = Together::new(&mut self.stats, &self.state);
        let start = together.start(&self.state);
        self.together = Some(together);
        start
    }

    /// The variational bound and its gradient at `x`, a vector like that of [`RetargetedFit::begin_together`].
    ///
    /// # Errors
    /// [`Error::Shape`] and [`Error::NonFinite`]; [`Error::NotPositiveDefinite`] where rounding leaves no posterior;
    /// [`Error::Interrupted`].
    pub fn bound(
        &mut self,
        x: &[f64],
        probit: &Probit,
        labels: &[usize],
    ) -> Result<(f64, Vec<f64>)> {
        check_flag(self.stats.cancel_flag().as_deref())?;
        let (state, stats) = (&self.state, &self.stats);
        let together = Self::begun(&mut self.together)?;
        Error::check_len("x", state.len() * (state.outputs.len() + 1), x.len())?;
        Error::check_finite("x", x)?;
        let gram = |i: usize, j: usize| state.gram(i, j);
        together.bound(x, probit, labels, stats.row_weights(), gram)
    }

    /// Takes the alphas at `x`; returns Phi W there, N x C column after column, for the next E-step.
    ///
    /// # Errors
    /// As [`RetargetedFit::bound`].
    pub fn end_together(&mut self, x: &[f64]) -> Result<Vec<f64>> {
        Error::check_len(
            "x",
            self.state.len() * (self.state.outputs.len() + 1),
            x.len(),
        )?;
        Error::check_finite("x", x)?;
        let together = Self::begun(&mut self.together)?;
        let Unpacked { weights, alpha } = together.unpack(x);
        let predictions = together.predictions(&weights);
        let betas = self.state.betas();
        self.state.set_hyperparameters(&alpha, &betas)?;
        self.together = None;
        Ok(predictions)
    }

    fn begun(together: &mut Option<Together>) -> Result<&mut Together> {
        together.as_mut().ok_or_else(|| Error::Invalid {
            what: "begin_together has to come first".into(),
        })
    }

    /// Maximises the evidence of the targets over functions and alphas, until nothing in the dictionary gains `gain` nats and no
    /// ln alpha is further than `tol` from its best. Where nothing is left to do, each alpha is re-estimated once.
    ///
    /// # Errors
    /// Whatever the provider meets.
    pub fn maximise(
        &mut self,
        gain: f64,
        tol: f64,
        max_iter: usize,
        watch: &mut Watch<'_>,
    ) -> Result<MStep> {
        let effort = Effort {
            gain,
            step: FINE_STEP,
            tol,
        };
        self.together = None;
        self.candidates.refresh(&mut self.stats, &mut self.state)?;
        self.candidates.forget_entries();
        let good = self.state.clone();
        let mut n_active = vec![self.state.len()];
        let mut watch = |step: &super::super::Step| {
            n_active.push(step.n_active);
            watch(step)
        };
        let mut recorder = Recorder::new(&self.state, max_iter, 1.0, &mut watch);
        let outcome = self.climb(effort, &mut recorder);
        let mut trace = std::mem::take(&mut recorder.trace);
        let status = match outcome {
            Ok(()) if self.state.at_alpha_floor() => Status::AlphaFloor,
            Ok(()) => Status::Converged,
            Err(Halt::MaxIterations) => Status::MaxIterations,
            Err(Halt::Stopped) => Status::Stopped,
            Err(Halt::Failed(Error::NotPositiveDefinite(_))) => {
                self.state = good;
                trace.truncate(1);
                n_active.truncate(1);
                Status::Stalled
            }
            Err(Halt::Failed(error)) => return Err(error),
        };
        Ok(MStep {
            status,
            trace,
            n_active,
        })
    }

    fn climb(
        &mut self,
        effort: Effort,
        recorder: &mut Recorder<'_>,
    ) -> std::result::Result<(), Halt> {
        let Self {
            stats,
            state,
            candidates,
            noise,
            together: _,
        } = self;
        climb(stats, state, candidates, noise, effort, recorder)?;
        if recorder.n_iter() == 0 {
            sweep_once(stats, state, -1.0, recorder)?;
        }
        Ok(())
    }

    /// Phi mu at every row, N x C column after column.
    pub fn predictions(&mut self) -> Vec<f64> {
        let means = self.state.means();
        self.stats.predictions(&self.state.active, &means)
    }

    /// `C/2 (ln|A| - ln|Phi^T W Phi + A|) - 1/2 sum_c mu_c^T A mu_c`: with the log-likelihood of the classes at the posterior mean this
    /// is the variational bound that M- and E-steps raise in turn.
    #[must_use]
    pub fn log_occam_factor(&self) -> f64 {
        self.state.log_occam_factor()
    }

    /// The model as it stands, for columns as they were given.
    #[must_use]
    pub fn posterior(&self, step: &MStep) -> OutputPosterior {
        let scale = (self.stats.norms(), self.stats.target_scale());
        OutputPosterior::publish(
            &self.state,
            step.trace.clone(),
            step.status,
            vec![false],
            scale,
        )
    }
}
