//! Predictors from posteriors.

use std::collections::BTreeMap;

use crate::data::KernelDesign;
use crate::likelihood::Likelihood;
use crate::model::Posterior;
use crate::predictor::{BlockHeader, Classes, Header, Link, Parts, Predictor, Table, Uncertainty};
use crate::{Error, Result};

impl Posterior {
    /// The predictor of a fit to kernel functions, which does not need the rows.
    ///
    /// Targets of a Bernoulli likelihood become the classes 0 and 1.
    ///
    /// ```
    /// use sparsebayes::{Kernel, KernelDesign, Likelihood, Observations, Settings, fit};
    /// use std::ops::ControlFlow;
    ///
    /// let x: Vec<f64> = (0..40).map(|i| f64::from(i) * 0.25 - 5.0).collect();
    /// let target: Vec<f64> = x.iter().map(|x| x.sin()).collect();
    /// let kernel = Kernel::Gaussian { inverse_square_widths: vec![0.25] };
    /// let design = KernelDesign::new(&x, &x, 1, vec![kernel], true)?;
    /// let settings = Settings { noise: sparsebayes::Noise::Fixed(1e-4), ..Settings::default() }.check()?;
    /// let mut rows = Observations::new(&design, Likelihood::Gaussian, target, None)?;
    /// let posterior = fit(&mut rows, &settings, &mut |_| ControlFlow::Continue(()))?;
    ///
    /// let model = posterior.predictor(&design, Likelihood::Gaussian)?;
    /// assert!((model.predict_one(&[1.1])? - 1.1_f64.sin()).abs() < 0.01);
    /// # Ok::<(), sparsebayes::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Shape`] if the design has fewer functions than the fit.
    pub fn predictor(&self, design: &KernelDesign, likelihood: Likelihood) -> Result<Predictor> {
        let (bias, n, d) = (
            usize::from(design.bias),
            design.n_centres,
            design.n_features(),
        );
        self.check_functions("functions of the design", bias + n * design.kernels.len())?;
        let mut blocks = Vec::new();
        let mut tables = BTreeMap::new();
        if bias > 0 && self.active.first() == Some(&0) {
            blocks.push(BlockHeader::Constant);
        }
        for (p, kernel) in design.kernels.iter().enumerate() {
            let of_kernel = bias + p * n..bias + (p + 1) * n;
            let active = self.active.iter().filter(|j| of_kernel.contains(j));
            let centres: Vec<f64> = active
                .flat_map(|j| &design.centres[(j - of_kernel.start) * d..][..d])
                .copied()
                .collect();
            if !centres.is_empty() {
                let table = Table {
                    shape: vec![centres.len() / d, d],
                    values: centres,
                };
                tables.insert(format!("points.{}", blocks.len()), table);
                blocks.push(BlockHeader::Centres(kernel.clone()));
            }
        }
        self.build_predictor(d, blocks, tables, likelihood)
    }

    /// The predictor of a fit to a stored matrix: a row of X holds the values of all basis functions.
    ///
    /// # Errors
    /// [`Error::Shape`] if there are fewer columns than the fit had functions.
    pub fn predictor_of_columns(
        &self,
        n_columns: usize,
        likelihood: Likelihood,
    ) -> Result<Predictor> {
        self.check_functions("columns", n_columns)?;
        let blocks = vec![BlockHeader::Columns(self.active.clone())];
        self.build_predictor(n_columns, blocks, BTreeMap::new(), likelihood)
    }

    fn check_functions(&self, what: &'static str, got: usize) -> Result<()> {
        let needed = self.active.last().map_or(0, |last| last + 1);
        Error::check_len(what, needed.max(got), got)
    }

    fn build_predictor(
        &self,
        n_features: usize,
        blocks: Vec<BlockHeader>,
        mut tables: BTreeMap<String, Table>,
        likelihood: Likelihood,
    ) -> Result<Predictor> {
        let m = self.active.len();
        let mut table = |name: &str, shape: &[usize], values: Vec<f64>| {
            let shape = shape.to_vec();
            tables.insert(name.into(), Table { shape, values });
        };
        table("weights.0", &[m], self.mu.clone());
        // Exactly symmetric, so the storage order does not matter.
        table("covariance.0", &[m, m], self.sigma.as_slice().to_vec());
        let link = likelihood.link();
        let noise = match likelihood {
            Likelihood::Gaussian => Some(1.0 / self.beta),
            Likelihood::NegativeBinomial(dispersion) | Likelihood::Gamma(dispersion) => {
                Some(dispersion)
            }
            Likelihood::Bernoulli | Likelihood::Poisson => None,
        };
        if let Some(noise) = noise {
            table("noise_variance", &[1], vec![noise]);
        }
        let classes = (link == Link::Logistic).then(|| Classes {
            dtype: "<i8".into(),
            values: vec![0.into(), 1.into()],
        });
        let header = Header {
            format_version: 1,
            library_version: env!("CARGO_PKG_VERSION").into(),
            estimator: "Posterior".into(),
            n_features,
            feature_names: None,
            classes,
            flat: true,
            blocks,
            outputs: vec![None],
            link,
            uncertainty: Uncertainty::Shared,
            n_quadrature: None,
            growths: vec![],
        };
        Predictor::from_parts(Parts { header, tables })
    }
}
