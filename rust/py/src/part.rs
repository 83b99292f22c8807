//! Rows in memory that Python may ask for their share of the sums.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use numpy::{
    IntoPyArray, PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2, ToPyArray,
};
use pyo3::prelude::*;
use sparsebayes::internal::{RowPart, RowProvider};
use sparsebayes::{DenseDesign, Design, Error, KernelDesign, Scheme, with_threads};

use crate::arrays::{functions, rows, vector};
use crate::errors::{invalid, to_python};
use crate::fit::one_predictor;
use crate::kernel::PyKernel;
use crate::provider::PyCancelled;
use crate::room::{check_fit, reserve};

type Columns<'py> = Bound<'py, PyArray1<f64>>;
type Matrix<'py> = Bound<'py, PyArray2<f64>>;

/// Some rows out of more, safe to ask from many threads, one after another.
#[pyclass(frozen, name = "RowPart", module = "sparsebayes._core")]
pub(crate) struct PyRowPart {
    held: Mutex<Held>,
    n_basis: usize,
    n_rows: usize,
    likelihood: String,
    n_threads: Option<usize>,
}

/// A part, and the fit that it listens to.
struct Held {
    part: RowPart<'static>,
    listening: Option<Weak<()>>,
}

impl Held {
    /// Stops listening to a fit that is over: what is asked next has to be answered.
    fn part(&mut self) -> &mut RowPart<'static> {
        if self
            .listening
            .take_if(|fit| fit.strong_count() == 0)
            .is_some()
        {
            self.part.cancelled_by(Arc::default());
        }
        &mut self.part
    }
}

impl PyRowPart {
    fn holding(
        design: Box<dyn Design + Send>,
        target: &[f64],
        weights: Option<&[f64]>,
        likelihood: &str,
        n_threads: Option<usize>,
    ) -> PyResult<Self> {
        let n_basis = design.n_basis();
        // A sequential fit asks for sums that take as much memory here.
        check_fit([design.n_rows(), n_basis], 1, Scheme::Sequential)
            .map_err(|error| to_python(&error))?;
        let weights = weights.map(<[f64]>::to_vec);
        let part = RowPart::new(design, one_predictor(likelihood)?, target.to_vec(), weights)
            .map_err(|error| to_python(&error))?;
        Ok(Self {
            n_rows: part.n_rows(),
            held: Mutex::new(Held {
                part,
                listening: None,
            }),
            n_basis,
            likelihood: likelihood.to_owned(),
            n_threads,
        })
    }

    /// What a question leaves behind is made anew by the next, so poison means nothing.
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks with the interpreter released.
    fn ask<T: Send>(
        &self,
        py: Python<'_>,
        ask: impl FnOnce(&mut RowPart<'static>) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        py.detach(|| with_threads(self.n_threads, || ask(self.held().part()))?)
            .map_err(|error| to_python(&error))
    }
}

/// The columns of these matrices side by side, after one of ones if `bias`, in memory of our own.
fn side_by_side(
    blocks: &[PyReadonlyArray2<'_, f64>],
    bias: bool,
    n_rows: usize,
) -> PyResult<DenseDesign<'static>> {
    let mut n_basis = usize::from(bias);
    for block in blocks {
        let [height, width] = block.as_array().dim().into();
        if height != n_rows {
            return Err(invalid(format!(
                "Phi must have a row for each of {n_rows} targets, got a block of {height}"
            )));
        }
        n_basis += width;
    }
    reserve(
        &[n_rows.saturating_mul(n_basis)],
        "a copy of Phi",
        "fewer rows or columns take less",
    )
    .map_err(|error| to_python(&error))?;
    let mut values = Vec::with_capacity(n_rows * n_basis);
    if bias {
        values.resize(n_rows, 1.0);
    }
    for block in blocks {
        for column in block.as_array().columns() {
            values.extend(column);
        }
    }
    DenseDesign::new(values, n_rows, n_basis).map_err(|error| to_python(&error))
}

/// A symmetric matrix, or one that was made column-major for this.
fn matrix(
    py: Python<'_>,
    values: Vec<f64>,
    n_rows: usize,
    n_columns: usize,
) -> PyResult<Matrix<'_>> {
    PyArray1::from_vec(py, values)
        .reshape([n_columns, n_rows])?
        .transpose()
}

#[pymethods]
#[allow(non_snake_case, clippy::needless_pass_by_value)] // the Python signatures
impl PyRowPart {
    /// Functions given by their values: the columns of matrices side by side, which are copied, after a constant if `bias`.
    #[staticmethod]
    #[pyo3(signature = (Phi, target, weights=None, *, bias=false, likelihood="gaussian", n_threads=None))]
    fn dense(
        Phi: Vec<PyReadonlyArray2<'_, f64>>,
        target: PyReadonlyArray1<'_, f64>,
        weights: Option<PyReadonlyArray1<'_, f64>>,
        bias: bool,
        likelihood: &str,
        n_threads: Option<usize>,
    ) -> PyResult<Self> {
        let target = vector("target", &target)?;
        let weights = weights.as_ref().map(|w| vector("weights", w)).transpose()?;
        let design = side_by_side(&Phi, bias, target.len())?;
        Self::holding(Box::new(design), target, weights, likelihood, n_threads)
    }

    /// Kernels about `centres`, after a constant if `bias`: evaluated at each question, or once if `stored`, unless
    /// `cancelled`.
    #[staticmethod]
    #[pyo3(signature = (X, centres, kernels, target, weights=None, *, bias=true, stored=false,
        likelihood="gaussian", n_threads=None, cancelled=None))]
    #[allow(clippy::too_many_arguments)] // the Python signature
    fn kernel(
        py: Python<'_>,
        X: PyReadonlyArray2<'_, f64>,
        centres: PyReadonlyArray2<'_, f64>,
        kernels: Vec<PyRef<'_, PyKernel>>,
        target: PyReadonlyArray1<'_, f64>,
        weights: Option<PyReadonlyArray1<'_, f64>>,
        bias: bool,
        stored: bool,
        likelihood: &str,
        n_threads: Option<usize>,
        cancelled: Option<PyRef<'_, PyCancelled>>,
    ) -> PyResult<Self> {
        let (x, z) = (rows("X", &X)?, rows("centres", &centres)?);
        x.check_alike("centres", &z)?;
        let kernels = kernels.iter().map(|k| k.kernel().clone()).collect();
        let (points, centres, d) = (x.values, z.values, x.n_features);
        let stop = cancelled.map(|cancelled| Arc::clone(cancelled.parts().0));
        let made = py.detach(|| -> Result<Box<dyn Design + Send>, Error> {
            let design = KernelDesign::new(points, centres, d, kernels, bias)?;
            if !stored {
                return Ok(Box::new(design));
            }
            Ok(Box::new(with_threads(n_threads, || {
                design.materialise(stop.as_deref())
            })??))
        });
        let design = made.map_err(|error| to_python(&error))?;
        let weights = weights.as_ref().map(|w| vector("weights", w)).transpose()?;
        let target = vector("target", &target)?;
        Self::holding(design, target, weights, likelihood, n_threads)
    }

    /// Number of basis functions.
    #[getter]
    fn n_basis(&self) -> usize {
        self.n_basis
    }

    /// Number of rows.
    #[getter]
    fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// Name of the likelihood.
    #[getter]
    fn likelihood(&self) -> &str {
        &self.likelihood
    }

    /// Ends questions early once the fit was given up.
    fn listen(&self, cancelled: &PyCancelled) {
        let (flag, fit) = cancelled.parts();
        let mut held = self.held();
        held.part.cancelled_by(Arc::clone(flag));
        held.listening = Some(Weak::clone(fit));
    }

    /// Sums of w, w (t - centre) and w (t - centre)^2.
    fn target_moments<'py>(&self, py: Python<'py>, centre: f64) -> PyResult<Columns<'py>> {
        let moments = self.ask(py, |part| part.target_moments(centre))?;
        Ok(moments.to_pyarray(py))
    }

    /// Minus twice the log-likelihood.
    fn deviance(
        &self,
        py: Python<'_>,
        active: PyReadonlyArray1<'_, i64>,
        mu: PyReadonlyArray1<'_, f64>,
    ) -> PyResult<f64> {
        let (active, mu) = (functions("active", &active)?, vector("mu", &mu)?);
        self.ask(py, |part| part.deviance(&active, mu))
    }

    /// The deviance, and the gradient of the active functions.
    fn gradient<'py>(
        &self,
        py: Python<'py>,
        active: PyReadonlyArray1<'py, i64>,
        mu: PyReadonlyArray1<'py, f64>,
    ) -> PyResult<(f64, Columns<'py>)> {
        let (active, mu) = (functions("active", &active)?, vector("mu", &mu)?);
        let (deviance, gradient) = self.ask(py, |part| part.gradient(&active, mu))?;
        Ok((deviance, gradient.into_pyarray(py)))
    }

    /// The deviance, and gradient and Gram matrix of the functions `js`.
    fn among<'py>(
        &self,
        py: Python<'py>,
        active: PyReadonlyArray1<'py, i64>,
        mu: PyReadonlyArray1<'py, f64>,
        js: PyReadonlyArray1<'py, i64>,
    ) -> PyResult<(f64, Columns<'py>, Matrix<'py>)> {
        let (active, mu, js) = (
            functions("active", &active)?,
            vector("mu", &mu)?,
            functions("js", &js)?,
        );
        let answer = self.ask(py, |part| part.among(&active, mu, &js))?;
        let gram = matrix(py, answer.gram, js.len(), js.len())?;
        Ok((answer.deviance, answer.gradient.into_pyarray(py), gram))
    }

    /// The deviance, and gradient, diagonal and wanted Gram columns of all functions.
    fn sweep<'py>(
        &self,
        py: Python<'py>,
        active: PyReadonlyArray1<'py, i64>,
        mu: PyReadonlyArray1<'py, f64>,
        wanted: PyReadonlyArray1<'py, i64>,
    ) -> PyResult<(f64, Columns<'py>, Columns<'py>, Matrix<'py>)> {
        let (active, mu, wanted) = (
            functions("active", &active)?,
            vector("mu", &mu)?,
            functions("wanted", &wanted)?,
        );
        let sweep = self.ask(py, |part| part.sweep(&active, mu, &wanted))?;
        Ok((
            sweep.deviance,
            sweep.gradient.into_pyarray(py),
            sweep.diag.into_pyarray(py),
            matrix(py, sweep.gram.concat(), self.n_basis, wanted.len())?,
        ))
    }

    /// How the posterior variances answer to moves of the mode through the weights: see `RowProvider::variance_drift`.
    fn variance_drift<'py>(
        &self,
        py: Python<'py>,
        active: PyReadonlyArray1<'py, i64>,
        mu: PyReadonlyArray1<'py, f64>,
        sigma: PyReadonlyArray2<'py, f64>,
    ) -> PyResult<Matrix<'py>> {
        let (active, mu) = (functions("active", &active)?, vector("mu", &mu)?);
        let m = active.len();
        // Column after column, whatever the order of the array.
        let sigma: Vec<f64> = sigma.as_array().t().iter().copied().collect();
        let drift = self.ask(py, |part| part.variance_drift(&active, mu, &sigma))?;
        matrix(py, drift, m, m)
    }
}
