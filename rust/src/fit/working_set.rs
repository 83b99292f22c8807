//! Working sets: the exact statistics of part of the dictionary, on which a fit continues without the data.

use crate::Result;
use crate::data::{Facts, GramAndGradient, Statistics, Sweep};
use crate::fit::evidence::Priors;
use crate::fit::model::{Candidate, Model};
use crate::linalg::Matrix;
use crate::linalg::columns::SymmetricMatrix;
use crate::linalg::vector::{axpy, dot};

/// Gram matrix, projections and target square of a subset of the dictionary, for a Gaussian likelihood.
///
/// Functions are indexed by position in the working set: [`Fit::on`](crate::fit::context::Fit::on) translates a model.
pub(crate) struct WorkingSet {
    /// Indices in the dictionary, ascending.
    pub(crate) members: Vec<usize>,
    pub(crate) gram: SymmetricMatrix,
    /// phi_i^T W t of every member, for one output after the other.
    projections: Vec<f64>,
    /// t^T W t of each output.
    target_sq: Vec<f64>,
    /// The norms are ones: columns are in the units of the fit.
    pub(crate) facts: Facts,
    pub(crate) priors: Priors,
}

impl WorkingSet {
    /// The statistics of the active functions and `others`, about the model's reference.
    ///
    /// For a Gaussian likelihood the reference is first moved to the posterior mean. For other likelihoods the model has to be
    /// at its mode: the working set is the Laplace approximation about it.
    pub(crate) fn about(
        stats: &mut dyn Statistics,
        model: &mut Model,
        priors: &Priors,
        others: &[usize],
    ) -> Result<Self> {
        if stats.facts().is_linear {
            model.centre(stats)?;
        }
        let mut members = [others, &model.active].concat();
        members.sort_unstable();
        members.dedup();
        let reference: Vec<f64> = model.references().flatten().copied().collect();
        let (gram, gradient) = stats.among(&model.active, &reference, &members)?;
        let mut set = Self {
            gram: SymmetricMatrix::from_lower(gram),
            projections: Vec::new(),
            target_sq: Vec::new(),
            facts: Facts {
                n_obs: model.n_targets_of_output(),
                n_predictors: 1,
                is_linear: true,
                norms: vec![1.0; members.len()],
                target_scale: 1.0,
                cancel: stats.facts().cancel.clone(),
            },
            priors: priors.among(&members),
            members,
        };
        set.set_targets(&gradient, model);
        Ok(set)
    }

    /// Sets the targets, given the products of the members with the residual at the reference of the model.
    pub(crate) fn set_targets(&mut self, gradient: &[f64], model: &Model) {
        let p = self.len();
        let places: Vec<usize> = model.active.iter().map(|&j| self.place(j)).collect();
        self.projections = gradient.to_vec();
        self.target_sq = model.outputs.iter().map(|output| output.deviance).collect();
        // Adding the fit at the reference to the residual gives the targets.
        for (c, reference) in model.references().enumerate() {
            let projections = &mut self.projections[c * p..][..p];
            for (&i, &r) in places.iter().zip(reference) {
                axpy(r, self.gram.column(i), projections);
            }
            for (&i, &r) in places.iter().zip(reference) {
                self.target_sq[c] += r * (gradient[c * p + i] + projections[i]);
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// The products of all members with each of these members.
    pub(crate) fn columns(&self, places: &[usize]) -> Vec<&[f64]> {
        places.iter().map(|&i| self.gram.column(i)).collect()
    }

    /// Position of function `j` of the dictionary.
    pub(crate) fn place(&self, j: usize) -> usize {
        self.members.partition_point(|&m| m < j)
    }

    /// phi_i^T W t of every member, for output `c`.
    pub(crate) fn projections_of(&self, c: usize) -> &[f64] {
        &self.projections[c * self.len()..][..self.len()]
    }

    /// The model of these functions with these precisions and the noise levels of `model`, whose functions are numbered as in this set.
    pub(crate) fn model_of(
        &self,
        functions: &[usize],
        alpha: &[f64],
        model: &Model,
    ) -> Result<Model> {
        let noise: Vec<_> = model.levels.iter().map(|level| level.noise).collect();
        let mut found = Model::empty(&noise, model.noise_prior, &self.target_sq, self.facts.n_obs);
        (found.complexity, found.ln_volume) = (model.complexity, model.ln_volume);
        found.start(&mut &*self, functions, alpha, &self.priors)?;
        found.recentre(&mut &*self)?;
        Ok(found)
    }

    /// Member `i` with its data terms at the reference of the model.
    pub(crate) fn candidate(&self, i: usize, model: &Model) -> Candidate {
        let column = self.gram.column(i);
        let gram: Vec<f64> = model.active.iter().map(|&j| column[j]).collect();
        let references = model.references().enumerate();
        let gradient = references.map(|(c, r)| self.projections_of(c)[i] - dot(&gram, r));
        Candidate {
            index: i,
            gradient: gradient.collect(),
            gram_self: column[i],
            prior: self.priors.of(i),
            gram,
        }
    }

    /// phi_j^T W (t - Phi mu) of members `js`, one output after the other.
    fn residual_products(&self, js: &[usize], active: &[usize], mu: &[f64]) -> Vec<f64> {
        let (n, m) = (js.len(), active.len());
        let mut found = vec![0.0; n * self.target_sq.len()];
        let mut products = Vec::with_capacity(m);
        for (k, &j) in js.iter().enumerate() {
            let column = self.gram.column(j);
            products.clear();
            products.extend(active.iter().map(|&i| column[i]));
            for (c, found) in found.chunks_exact_mut(n).enumerate() {
                found[k] = self.projections_of(c)[j] - dot(&products, &mu[c * m..][..m]);
            }
        }
        found
    }
}

/// Implemented for a reference, so that several fits can share a working set.
impl Statistics for &WorkingSet {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn deviance(&mut self, active: &[usize], mu: &[f64]) -> Result<f64> {
        let mut gradient = vec![0.0; mu.len()];
        Ok(self.gradient(active, mu, &mut gradient)?.iter().sum())
    }

    fn gradient(&mut self, active: &[usize], mu: &[f64], gradient: &mut [f64]) -> Result<Vec<f64>> {
        let m = active.len();
        gradient.copy_from_slice(&self.residual_products(active, active, mu));
        let of_output = |c: usize| {
            let (mu, gradient) = (&mu[c * m..][..m], &gradient[c * m..][..m]);
            // ||t - Phi mu||^2 = t^T t - b^T mu - gradient^T mu
            let b: Vec<f64> = active.iter().map(|&i| self.projections_of(c)[i]).collect();
            self.target_sq[c] - dot(&b, mu) - dot(gradient, mu)
        };
        Ok((0..self.target_sq.len()).map(of_output).collect())
    }

    fn sweep(&mut self, active: &[usize], mu: &[f64], wanted: &[usize]) -> Result<Sweep> {
        let all: Vec<usize> = (0..self.len()).collect();
        let columns = wanted.iter().map(|&j| self.gram.column(j).to_vec());
        Ok(Sweep {
            diag: self.gram.diagonal().to_vec(),
            gradient: self.residual_products(&all, active, mu),
            gram: columns.collect(),
            deviances: self.gradient(active, mu, &mut vec![0.0; mu.len()])?,
        })
    }

    fn among(&mut self, active: &[usize], mu: &[f64], js: &[usize]) -> Result<GramAndGradient> {
        let gram = Matrix::from_fn(js.len(), js.len(), |a, b| self.gram.column(js[b])[js[a]]);
        Ok((gram, self.residual_products(js, active, mu)))
    }
}
