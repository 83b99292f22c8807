//! Fits that Python drives step by step: the M-steps of the multinomial probit models.

// Python signatures.
#![allow(
    non_snake_case,
    clippy::too_many_arguments,
    clippy::needless_pass_by_value
)]

use std::sync::{Mutex, MutexGuard, PoisonError};

use numpy::{PyArray1, PyArray2, PyReadonlyArray1, PyReadonlyArray2, ToPyArray};
use pyo3::prelude::*;
use sparsebayes::internal::{Ascent, MStep, RetargetedFit, TopDownFit};
use sparsebayes::{DenseDesign, Error, Observations, Status};

use crate::arrays;
use crate::arrays::{class_numbers, columns, functions, index_array, vector};
use crate::errors::to_python;
use crate::memory::{check_output_fit, reserve, square};
use crate::outputs::PyOutputPosterior;
use crate::probit::{probit, table};
use crate::runner::run;

type Matrix<'py> = Bound<'py, PyArray2<f64>>;

/// How an M-step ended, and the evidence and the number of functions at its start and after each update.
type Trace<'py> = (
    &'static str,
    Bound<'py, PyArray1<f64>>,
    Bound<'py, PyArray1<i64>>,
);

/// Ignores poisoning: after a panic, which became an exception, the fit still holds a model.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Checks that there is memory for copies of a design and for its fit.
fn check_memory(parts: &[usize]) -> PyResult<()> {
    reserve(parts, "the fit", "fewer candidates or rows take less").map_err(to_python)
}

/// Several outputs with shared alphas and noise precision 1, whose targets may be replaced between M-steps.
#[pyclass(frozen, name = "RetargetedFit", module = "sparsebayes._core")]
pub(crate) struct PyRetargetedFit {
    fit: Mutex<(RetargetedFit<'static>, MStep)>,
    n_rows: usize,
    n_outputs: usize,
    n_threads: Option<usize>,
}

#[pymethods]
impl PyRetargetedFit {
    /// Starts with the columns `active` of `Phi` and their prior precisions `alpha`.
    #[new]
    #[pyo3(signature = (Phi, targets, weights=None, *, active, alpha, n_threads=None))]
    fn new(
        py: Python<'_>,
        Phi: PyReadonlyArray2<'_, f64>,
        targets: PyReadonlyArray2<'_, f64>,
        weights: Option<PyReadonlyArray1<'_, f64>>,
        active: PyReadonlyArray1<'_, i64>,
        alpha: PyReadonlyArray1<'_, f64>,
        n_threads: Option<usize>,
    ) -> PyResult<Self> {
        let [n_rows, n_basis]: [usize; 2] = Phi.as_array().dim().into();
        let [_, n_outputs]: [usize; 2] = targets.as_array().dim().into();
        let values = columns("Phi", &Phi)?;
        check_memory(&[values.len()])?;
        let values = values.to_vec();
        check_output_fit([n_rows, n_basis], n_outputs).map_err(to_python)?;
        let target_values = columns("targets", &targets)?.to_vec();
        let weights = arrays::weights(weights.as_ref())?.map(<[f64]>::to_vec);
        let active = functions("active", &active)?;
        let alpha = vector("alpha", &alpha)?.to_vec();
        let fit = run(py, n_threads, None, |reporter| {
            let design = DenseDesign::new(values, n_rows, n_basis)?;
            let stats = Observations::unscaled_outputs(design, target_values, n_outputs, weights)?
                .cancelled_by(reporter.cancel.clone());
            RetargetedFit::new(stats, 1.0, &active, &alpha)
        })?;
        let none = MStep {
            status: Status::Stopped,
            trace: Vec::new(),
            n_active: Vec::new(),
        };
        Ok(Self {
            fit: Mutex::new((fit, none)),
            n_rows,
            n_outputs,
            n_threads,
        })
    }

    /// The M-step: maximises the evidence of `targets` until no change gains `gain` nats and each ln alpha is within `tol`
    /// of its optimum. Returns the status, and the evidence and the number of functions at the start and after each update.
    #[pyo3(signature = (targets, *, gain, tol, max_iter, callback=None))]
    fn maximise<'py>(
        &self,
        py: Python<'py>,
        targets: PyReadonlyArray2<'_, f64>,
        gain: f64,
        tol: f64,
        max_iter: usize,
        callback: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Trace<'py>> {
        let targets = columns("targets", &targets)?.to_vec();
        let step = run(
            py,
            self.n_threads,
            callback.as_ref(),
            |reporter| -> Result<MStep, Error> {
                let (fit, last) = &mut *lock(&self.fit);
                fit.set_cancel(reporter.cancel.clone());
                fit.set_targets(targets)?;
                let step = fit.maximise(gain, tol, max_iter, &mut |step| reporter.step(step))?;
                *last = step.clone();
                Ok(step)
            },
        )?;

        Ok((
            step.status.name(),
            step.trace.to_pyarray(py),
            index_array(py, &step.n_active),
        ))
    }

    /// Maximises the variational bound for rows of these classes jointly in weights and precisions by trust-region steps
    /// with this first radius, until a step gains less than `gain` or a function is about to be deleted. Returns the
    /// targets of the final E-step, (N, C).
    #[pyo3(signature = (labels, *, gain, radius, n_nodes=None))]
    fn maximise_bound<'py>(
        &self,
        py: Python<'py>,
        labels: PyReadonlyArray1<'_, i64>,
        gain: f64,
        radius: f64,
        n_nodes: Option<usize>,
    ) -> PyResult<Bound<'py, PyArray2<f64>>> {
        let ascent = Ascent {
            least: gain,
            radius,
        };
        let labels = class_numbers("labels", &labels, self.n_rows)?;
        let values = run(py, self.n_threads, None, |reporter| {
            let probit = probit(n_nodes, self.n_outputs)?;
            let (fit, _) = &mut *lock(&self.fit);
            fit.set_cancel(reporter.cancel.clone());
            fit.maximise_bound(&probit, &labels, ascent)
        })?;
        table(py, values, [self.n_rows, self.n_outputs])
    }

    /// Phi mu at every row, (N, C).
    fn predictions<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray2<f64>>> {
        let values = run(py, self.n_threads, None, |_| {
            Ok(lock(&self.fit).0.predictions())
        })?;
        table(py, values, [self.n_rows, self.n_outputs])
    }

    /// The joint log Occam factor of all outputs.
    fn log_occam_factor(&self) -> f64 {
        lock(&self.fit).0.log_occam_factor()
    }

    /// The current model.
    fn posterior(&self) -> PyOutputPosterior {
        let (fit, last) = &*lock(&self.fit);
        PyOutputPosterior(fit.posterior(last))
    }
}

/// Penalised least squares of several outputs with a precision for each weight, while functions are deleted.
#[pyclass(frozen, name = "TopDownFit", module = "sparsebayes._core")]
pub(crate) struct PyTopDownFit {
    fit: Mutex<TopDownFit>,
    n_rows: usize,
    n_threads: Option<usize>,
}

#[pymethods]
impl PyTopDownFit {
    /// Starts with all columns of `Phi`.
    #[new]
    #[pyo3(signature = (Phi, weights=None, *, n_threads=None))]
    fn new(
        py: Python<'_>,
        Phi: PyReadonlyArray2<'_, f64>,
        weights: Option<PyReadonlyArray1<'_, f64>>,
        n_threads: Option<usize>,
    ) -> PyResult<Self> {
        let [n_rows, n_basis]: [usize; 2] = Phi.as_array().dim().into();
        let values = columns("Phi", &Phi)?;
        // The columns and their products with the sample weights; the Gram matrix and the pieces it is assembled from.
        check_memory(&[2 * values.len(), 2 * square(n_basis)])?;
        let values = values.to_vec();
        let weights = arrays::weights(weights.as_ref())?.map(<[f64]>::to_vec);
        let fit = run(py, n_threads, None, |reporter| {
            TopDownFit::new(values, n_rows, n_basis, weights, reporter.cancel.clone())
        })?;
        Ok(Self {
            fit: Mutex::new(fit),
            n_rows,
            n_threads,
        })
    }

    /// The weights for these targets (N, C) and precisions (m, C), and Phi times them (N, C).
    fn solve<'py>(
        &self,
        py: Python<'py>,
        targets: PyReadonlyArray2<'_, f64>,
        alpha: PyReadonlyArray2<'_, f64>,
    ) -> PyResult<(Matrix<'py>, Matrix<'py>)> {
        let [n_basis, n_outputs]: [usize; 2] = alpha.as_array().dim().into();
        let (targets, alpha) = (columns("targets", &targets)?, columns("alpha", &alpha)?);
        // A factor for each output, because outputs are solved in parallel; and the solutions.
        check_memory(&[
            n_outputs * square(n_basis),
            4 * (targets.len() + alpha.len()),
        ])?;
        let (weights, predictions) =
            run(py, self.n_threads, None, |reporter| -> Result<_, Error> {
                let mut fit = lock(&self.fit);
                fit.set_cancel(reporter.cancel.clone());
                let weights = fit.solve(targets, alpha)?;
                let predictions = fit.predictions(&weights, n_outputs)?;
                Ok((weights, predictions))
            })?;
        Ok((
            table(py, weights, [n_basis, n_outputs])?,
            table(py, predictions, [self.n_rows, n_outputs])?,
        ))
    }

    /// Deletes all functions except those at these ascending positions.
    fn keep(&self, py: Python<'_>, places: PyReadonlyArray1<'_, i64>) -> PyResult<()> {
        let places = functions("places", &places)?;
        check_memory(&[places.len() * self.n_rows, square(places.len())])?;
        run(py, self.n_threads, None, |_| lock(&self.fit).keep(&places))
    }
}
