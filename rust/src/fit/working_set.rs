//! Working sets: the exact statistics of part of the dictionary, on which a fit continues without the data.

use nalgebra::DMatrix;

use crate::Result;
use crate::data::{Facts, Statistics, Sweep};
use crate::fit::model::{Candidate, State};
use crate::fit::prior::Priors;
use crate::fit::record::{Recorder, Stop};
use crate::linalg::LowerTriangle;
use crate::linalg::symmetric::SymmetricMatrix;
use crate::linalg::vector::{axpy, dot};

/// Gram matrix, projections and target square of a subset of the dictionary, for a Gaussian likelihood.
///
/// Functions are indexed by position in the working set: [`WorkingSet::within`] translates a state.
pub(crate) struct WorkingSet {
    /// Indices in the dictionary, ascending.
    members: Vec<usize>,
    pub(crate) gram: SymmetricMatrix,
    /// phi_i^T W t.
    pub(crate) projections: Vec<f64>,
    /// t^T W t.
    pub(crate) target_sq: f64,
    /// The norms are ones: columns are in the units of the fit.
    pub(crate) facts: Facts,
    pub(crate) priors: Priors,
    /// Whether the statistics are approximations of those of the rows.
    is_approximate: bool,
}

impl WorkingSet {
    /// The statistics of the active functions and `others`, about the state's reference.
    ///
    /// For a Gaussian likelihood the reference is first moved to the posterior mean. For other likelihoods the state has to be
    /// at its mode: the working set is the Laplace approximation about it.
    pub(crate) fn about(
        stats: &mut dyn Statistics,
        state: &mut State,
        priors: &Priors,
        others: &[usize],
    ) -> Result<Self> {
        Self::new(stats, state, priors, others, false)
    }

    /// [`WorkingSet::about`] from approximate statistics, if the provider has any: accurate enough to choose functions.
    pub(crate) fn approximate_about(
        stats: &mut dyn Statistics,
        state: &mut State,
        priors: &Priors,
        others: &[usize],
    ) -> Result<Self> {
        Self::new(stats, state, priors, others, true)
    }

    fn new(
        stats: &mut dyn Statistics,
        state: &mut State,
        priors: &Priors,
        others: &[usize],
        approximate: bool,
    ) -> Result<Self> {
        if stats.facts().is_linear {
            state.centre(stats)?;
        } else {
            // The last evaluation of the likelihood may have been at other weights.
            stats.deviance(&state.active, state.reference())?;
        }
        let mut members = [others, &state.active].concat();
        members.sort_unstable();
        members.dedup();
        let approximation = if approximate {
            stats.approximate_among(&members)?
        } else {
            None
        };
        let is_approximate = approximation.is_some();
        let (gram, gradient) = match approximation {
            Some(approximation) => approximation,
            None => stats.among(&members)?,
        };
        let gram = SymmetricMatrix::from_lower(&gram);
        let mut set = Self {
            gram,
            projections: gradient.clone(),
            target_sq: state.deviance_at_reference(),
            facts: Facts {
                n_obs: state.n_noise(),
                n_predictors: 1,
                is_linear: true,
                norms: vec![1.0; members.len()],
                target_scale: 1.0,
                cancel: stats.facts().cancel.clone(),
            },
            priors: priors.among(&members),
            is_approximate,
            members,
        };
        // `gradient` and the deviance belong to the residual; adding the fit gives those of the targets.
        for (&j, &r) in state.active.iter().zip(state.reference()) {
            axpy(r, set.gram.column(set.place(j)), &mut set.projections);
        }
        for (&j, &r) in state.active.iter().zip(state.reference()) {
            let i = set.place(j);
            set.target_sq += r * (gradient[i] + set.projections[i]);
        }
        Ok(set)
    }

    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// Replaces the data terms of a state by those of an approximate working set. Otherwise its gradient would come from one
    /// likelihood and its Gram matrix from another, and steps might not raise the evidence of either.
    pub(crate) fn adopt_data(&self, state: &mut State) -> Result<()> {
        if !self.is_approximate {
            return Ok(());
        }
        let (size, reference) = (state.len(), state.reference().to_vec());
        let (mut gram, mut gradient) = (DMatrix::zeros(size, size), vec![0.0; size]);
        let deviance = (&mut &*self).local(&state.active, &reference, &mut gram, &mut gradient)?;
        state.set_data(&reference, &gradient, deviance, Some(&gram))
    }

    /// Each member, by its index in the dictionary, with its product with member `j`.
    pub(crate) fn products_with(&self, j: usize) -> impl Iterator<Item = (usize, f64)> {
        let column = self.gram.column(self.place(j));
        self.members.iter().copied().zip(column.iter().copied())
    }

    /// Position of function `j` of the dictionary.
    pub(crate) fn place(&self, j: usize) -> usize {
        self.members.partition_point(|&m| m < j)
    }

    /// Runs `f` on the state with functions indexed by position; the recorder translates them back.
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

    /// Member `i` with its data terms at the reference of the state.
    pub(crate) fn candidate<'g>(
        &self,
        i: usize,
        state: &State,
        gram: &'g mut Vec<f64>,
    ) -> Candidate<'g> {
        let column = self.gram.column(i);
        gram.clear();
        gram.extend(state.active.iter().map(|&j| column[j]));
        Candidate {
            index: i,
            gram_self: column[i],
            gradient: self.projections[i] - dot(gram, state.reference()),
            prior: self.priors.of(i),
            gram,
        }
    }

    /// [`crate::Error::Interrupted`] once the caller has cancelled the fit.
    pub(crate) fn check_cancel(&self) -> Result<()> {
        self.facts.check_cancelled()
    }

    fn product(&self, i: usize, active: &[usize], mu: &[f64]) -> f64 {
        let column = self.gram.column(i);
        active.iter().zip(mu).map(|(&j, m)| m * column[j]).sum()
    }
}

/// Implemented for a reference, so that several fits can share a working set.
impl Statistics for &WorkingSet {
    fn facts(&self) -> &Facts {
        &self.facts
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

    fn among(&mut self, js: &[usize]) -> Result<(LowerTriangle, Vec<f64>)> {
        let gram = DMatrix::from_fn(js.len(), js.len(), |a, b| self.gram[(js[a], js[b])]);
        Ok((
            LowerTriangle::of(&gram),
            js.iter().map(|&j| self.projections[j]).collect(),
        ))
    }
}
