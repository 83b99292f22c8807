//! Statistics of a few functions, held whole: what a fit may consult without touching the data.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nalgebra::DMatrix;

use crate::Result;
use crate::data::{Statistics, Sweep, check_flag};
use crate::fit::model::{Entrant, State};
use crate::fit::prior::Priors;
use crate::fit::record::{Recorder, Stop};
use crate::linalg::symmetric::SymmetricMatrix;
use crate::linalg::vector::{axpy, dot};

/// Gram matrix, projections and target square of a subset of the dictionary, for a Gaussian likelihood.
///
/// Inside a pool functions go by their place in it: [`WorkingSet::within`] takes a state there and back.
pub(crate) struct WorkingSet {
    /// Which functions of the dictionary these are, ascending.
    members: Vec<usize>,
    pub(crate) gram: SymmetricMatrix,
    /// phi_i^T W t.
    pub(crate) projections: Vec<f64>,
    /// t^T W t.
    pub(crate) target_sq: f64,
    pub(crate) n_obs: f64,
    /// Those of the members.
    pub(crate) priors: Priors,
    /// Ones: members are in the units of the fit.
    norms: Vec<f64>,
    /// Whether it is of a likelihood close to that of the rows, and not the same.
    is_near: bool,
    cancel: Option<Arc<AtomicBool>>,
}

impl WorkingSet {
    /// The statistics of the active functions and `others`, about the state's reference.
    ///
    /// For a Gaussian that is first brought to the mean. For other likelihoods the state has to be at a mode just found:
    /// what the pool then holds is the Laplace approximation about it.
    pub(crate) fn about(
        stats: &mut dyn Statistics,
        state: &mut State,
        priors: &Priors,
        others: &[usize],
    ) -> Result<Self> {
        Self::gathered(stats, state, priors, others, false)
    }

    /// The same, to the digits that it takes to choose functions by.
    pub(crate) fn nearly_about(
        stats: &mut dyn Statistics,
        state: &mut State,
        priors: &Priors,
        others: &[usize],
    ) -> Result<Self> {
        Self::gathered(stats, state, priors, others, true)
    }

    fn gathered(
        stats: &mut dyn Statistics,
        state: &mut State,
        priors: &Priors,
        others: &[usize],
        nearly: bool,
    ) -> Result<Self> {
        if stats.is_linear() {
            state.centre(stats)?;
        } else {
            // The search for the mode may have ended on a look elsewhere.
            stats.deviance(&state.active, state.reference())?;
        }
        let mut members = [others, &state.active].concat();
        members.sort_unstable();
        members.dedup();
        let nearly = if nearly {
            stats.approximate_among(&members)?
        } else {
            None
        };
        let is_near = nearly.is_some();
        let (gram, gradient) = match nearly {
            Some(nearly) => nearly,
            None => stats.lower_among(&members)?,
        };
        let gram = SymmetricMatrix::from_lower(&gram);
        let mut pool = Self {
            gram,
            projections: gradient.clone(),
            target_sq: state.deviance_at_reference(),
            n_obs: state.n_noise(),
            priors: priors.among(&members),
            norms: vec![1.0; members.len()],
            is_near,
            cancel: stats.cancel_flag(),
            members,
        };
        // The residual holds what the model leaves; adding the model back gives the targets.
        for (&j, &r) in state.active.iter().zip(state.reference()) {
            axpy(r, pool.gram.column(pool.place(j)), &mut pool.projections);
        }
        for (&j, &r) in state.active.iter().zip(state.reference()) {
            let i = pool.place(j);
            pool.target_sq += r * (gradient[i] + pool.projections[i]);
        }
        Ok(pool)
    }

    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// Brings a state within to what the pool says of its functions. A [`WorkingSet::nearly_about`] is that of a likelihood close to the
    /// one of the rows; between the two the gradient of one could promise what the Gram matrix of the other does not bound.
    pub(crate) fn take_up(&self, state: &mut State) -> Result<()> {
        if !self.is_near {
            return Ok(());
        }
        let (size, reference) = (state.len(), state.reference().to_vec());
        let (mut gram, mut gradient) = (DMatrix::zeros(size, size), vec![0.0; size]);
        let deviance = (&mut &*self).local(&state.active, &reference, &mut gram, &mut gradient)?;
        state.set_data(&reference, &gradient, deviance, Some(&gram))
    }

    /// Each member with its product with member `j`, all by their own names.
    pub(crate) fn products_with(&self, j: usize) -> impl Iterator<Item = (usize, f64)> {
        let column = self.gram.column(self.place(j));
        self.members.iter().copied().zip(column.iter().copied())
    }

    /// Where function `j` is in it.
    pub(crate) fn place(&self, j: usize) -> usize {
        self.members.partition_point(|&m| m < j)
    }

    /// Runs `f` with the state's functions named by their place here, and its steps recorded by their own names.
    pub(crate) fn within<'w, T>(
        &self,
        state: &mut State,
        recorder: &mut Recorder<'w>,
        f: impl FnOnce(&mut State, &mut Recorder<'w>) -> Result<T, Stop>,
    ) -> Result<T, Stop> {
        for j in &mut state.active {
            *j = self.place(*j);
        }
        recorder.members = Some(self.members.clone());
        let result = f(state, recorder);
        recorder.members = None;
        for j in &mut state.active {
            *j = self.members[*j];
        }
        result
    }

    /// Member `i` with its data terms about the reference of the state.
    pub(crate) fn entrant<'g>(
        &self,
        i: usize,
        state: &State,
        gram: &'g mut Vec<f64>,
    ) -> Entrant<'g> {
        let column = self.gram.column(i);
        gram.clear();
        gram.extend(state.active.iter().map(|&j| column[j]));
        Entrant {
            index: i,
            gram_self: column[i],
            gradient: self.projections[i] - dot(gram, state.reference()),
            prior: self.priors.of(i),
            gram,
        }
    }

    /// [`crate::Error::Interrupted`] once the caller has asked for the end.
    pub(crate) fn check_cancel(&self) -> Result<()> {
        check_flag(self.cancel.as_deref())
    }

    fn product(&self, i: usize, active: &[usize], mu: &[f64]) -> f64 {
        let column = self.gram.column(i);
        active.iter().zip(mu).map(|(&j, m)| m * column[j]).sum()
    }
}

/// By reference, so that several fits can share a pool.
impl Statistics for &WorkingSet {
    fn n_obs(&self) -> f64 {
        self.n_obs
    }

    fn n_basis(&self) -> usize {
        self.len()
    }

    fn is_linear(&self) -> bool {
        true
    }

    fn norms(&self) -> &[f64] {
        &self.norms
    }

    fn target_scale(&self) -> f64 {
        1.0
    }

    fn deviance(&mut self, active: &[usize], mu: &[f64]) -> Result<f64> {
        let mut gradient = vec![0.0; active.len()];
        self.gradient(active, mu, &mut gradient)
    }

    fn local(
        &mut self,
        active: &[usize],
        mu: &[f64],
        gram: &mut DMatrix<f64>,
        gradient: &mut [f64],
    ) -> Result<f64> {
        for (a, &i) in active.iter().enumerate() {
            for (b, &j) in active.iter().enumerate() {
                gram[(a, b)] = self.gram[(i, j)];
            }
        }
        self.gradient(active, mu, gradient)
    }

    fn gradient(&mut self, active: &[usize], mu: &[f64], gradient: &mut [f64]) -> Result<f64> {
        for (g, &i) in gradient.iter_mut().zip(active) {
            *g = self.projections[i] - self.product(i, active, mu);
        }
        // ||t - Phi mu||^2 = t^T t - b^T mu - gradient^T mu
        let b: Vec<f64> = active.iter().map(|&i| self.projections[i]).collect();
        Ok(self.target_sq - dot(&b, mu) - dot(gradient, mu))
    }

    fn variance_drift(&mut self, active: &[usize], _sigma: &DMatrix<f64>) -> Result<DMatrix<f64>> {
        // Gaussian weights do not move.
        Ok(DMatrix::zeros(active.len(), active.len()))
    }

    fn sweep(&mut self, active: &[usize], mu: &[f64], wanted: &[usize]) -> Result<Sweep> {
        let gradient = (0..self.len())
            .map(|i| self.projections[i] - self.product(i, active, mu))
            .collect();
        Ok(Sweep {
            diag: self.gram.diagonal().to_vec(),
            gradient,
            gram: wanted
                .iter()
                .map(|&j| self.gram.column(j).to_vec())
                .collect(),
            deviance: self.deviance(active, mu)?,
        })
    }

    fn among(&mut self, js: &[usize]) -> Result<(DMatrix<f64>, Vec<f64>)> {
        let gram = DMatrix::from_fn(js.len(), js.len(), |a, b| self.gram[(js[a], js[b])]);
        Ok((gram, js.iter().map(|&j| self.projections[j]).collect()))
    }
}
