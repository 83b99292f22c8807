//! Fits that Python drives step by step: the M-steps of the multinomial probit machines.

use std::sync::{Mutex, MutexGuard, PoisonError};

use numpy::{IntoPyArray, PyArray1, PyArray2, PyReadonlyArray1, PyReadonlyArray2, ToPyArray};
use pyo3::prelude::*;
use sparsebayes::internal::{Ascent, MStep, OutputObservations, RetargetedFit, TopDownFit};
use sparsebayes::{DenseDesign, Error, Status};

use crate::arrays::{class_numbers, columns, vector};
use crate::errors::{invalid, to_python};
use crate::outputs::PyOutputPosterior;
use crate::probit::{probit, table};
use crate::room::{check_output_fit, reserve, square};
use crate::watcher::run;

type Matrix<'py> = Bound<'py, PyArray2<f64>>;

/// How an M-step ended, the evidence at its start and after each update, and likewise the number of functions.
type Trace<'py> = (
    &'static str,
    Bound<'py, PyArray1<f64>>,
    Bound<'py, PyArray1<i64>>,
);

/// A poisoned fit was left by a panic on its way out as an exception; what it holds is still a model.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Places in an array of indices.
fn places(name: &str, indices: &PyReadonlyArray1<'_, i64>) -> PyResult<Vec<usize>> {
    let place = |&i: &i64| {
        usize::try_from(i).map_err(|_| invalid(format!("{name} must not be negative, got {i}")))
    };
    indices.as_array().iter().map(place).collect()
}

/// Asks for room for copies of a design and what a fit of it takes beside them.
fn check_room(parts: &[usize]) -> PyResult<()> {
    reserve(parts, "the fit", "fewer candidates or rows take less")
        .map_err(|error| to_python(&error))
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
    /// Begins with the functions `active`, prior precisions `alpha`, of the columns of `Phi`.
    #[new]
    #[pyo3(signature = (Phi, targets, weights=None, *, active, alpha, n_threads=None))]
    #[allow(
        non_snake_case,
        clippy::too_many_arguments,
        clippy::needless_pass_by_value
    )] // the Python signature
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
        check_room(&[values.len()])?;
        let values = values.to_vec();
        check_output_fit([n_rows, n_basis], n_outputs).map_err(|error| to_python(&error))?;
        let target_values = columns("targets", &targets)?.to_vec();
        let weights = weights
            .as_ref()
            .map(|w| vector("weights", w))
            .transpose()?
            .map(<[f64]>::to_vec);
        let active = places("active", &active)?;
        let alpha = vector("alpha", &alpha)?.to_vec();
        let fit = run(py, n_threads, None, |line| {
            let design = DenseDesign::new(values, n_rows, n_basis)?;
            let stats = OutputObservations::unscaled(design, target_values, n_outputs, weights)?
                .cancelled_by(line.cancel.clone());
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

    /// The M-step: maximises the evidence of `targets` until no function gains `gain` nats and no ln alpha is further than `tol`
    /// from its best. Returns how it ended, and evidence and number of functions at its start and after each update.
    #[pyo3(signature = (targets, *, gain, tol, max_iter, callback=None))]
    #[allow(clippy::needless_pass_by_value)] // the Python signature
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
            |line| -> Result<MStep, Error> {
                let (fit, last) = &mut *lock(&self.fit);
                fit.set_cancel(line.cancel.clone());
                fit.set_targets(targets)?;
                let step = fit.maximise(gain, tol, max_iter, &mut |step| line.watch(step))?;
                *last = step.clone();
                Ok(step)
            },
        )?;
        // Counts of columns held in memory, far fewer than 2^63.
        let count = |&m: &usize| i64::try_from(m).unwrap_or(i64::MAX);
        let n_active: Vec<i64> = step.n_active.iter().map(count).collect();
        Ok((
            step.status.name(),
            step.trace.to_pyarray(py),
            n_active.into_pyarray(py),
        ))
    }

    /// Moves weights and precisions together up the variational bound for rows of these classes, until a step gains less than
    /// `gain` or a function is on its way out, the first trust region having this radius; returns the targets of the
    /// E-step at the end, (N, C).
    #[pyo3(signature = (labels, *, gain, radius, n_nodes=None))]
    #[allow(clippy::needless_pass_by_value)] // the Python signature
    fn climb<'py>(
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
        let values = run(py, self.n_threads, None, |line| {
            let probit = probit(n_nodes, self.n_outputs)?;
            let (fit, _) = &mut *lock(&self.fit);
            fit.set_cancel(line.cancel.clone());
            fit.climb(&probit, &labels, ascent)
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

    /// The log Occam factor of all outputs together.
    fn log_occam_factor(&self) -> f64 {
        lock(&self.fit).0.log_occam_factor()
    }

    /// The model as it stands.
    fn posterior(&self) -> PyOutputPosterior {
        let (fit, last) = &*lock(&self.fit);
        PyOutputPosterior(fit.posterior(last))
    }
}

/// Penalised least squares of several outputs, each weight with its own precision, over functions that are dropped one after
/// the other.
#[pyclass(frozen, name = "TopDownFit", module = "sparsebayes._core")]
pub(crate) struct PyTopDownFit {
    fit: Mutex<TopDownFit>,
    n_rows: usize,
    n_threads: Option<usize>,
}

#[pymethods]
impl PyTopDownFit {
    /// Begins with all columns of `Phi`.
    #[new]
    #[pyo3(signature = (Phi, weights=None, *, n_threads=None))]
    #[allow(non_snake_case, clippy::needless_pass_by_value)] // the Python signature
    fn new(
        py: Python<'_>,
        Phi: PyReadonlyArray2<'_, f64>,
        weights: Option<PyReadonlyArray1<'_, f64>>,
        n_threads: Option<usize>,
    ) -> PyResult<Self> {
        let [n_rows, n_basis]: [usize; 2] = Phi.as_array().dim().into();
        let values = columns("Phi", &Phi)?;
        // The columns twice, one of them times the sample weights, and two of their Gram matrix: pieces, and those put together.
        check_room(&[2 * values.len(), 2 * square(n_basis)])?;
        let values = values.to_vec();
        let weights = weights
            .as_ref()
            .map(|w| vector("weights", w))
            .transpose()?
            .map(<[f64]>::to_vec);
        let fit = run(py, n_threads, None, |line| {
            TopDownFit::new(values, n_rows, n_basis, weights, line.cancel.clone())
        })?;
        Ok(Self {
            fit: Mutex::new(fit),
            n_rows,
            n_threads,
        })
    }

    /// The weights for these targets (N, C) and precisions (m, C), and Phi times them (N, C).
    #[allow(clippy::needless_pass_by_value)] // the Python signature
    fn solve<'py>(
        &self,
        py: Python<'py>,
        targets: PyReadonlyArray2<'_, f64>,
        alpha: PyReadonlyArray2<'_, f64>,
    ) -> PyResult<(Matrix<'py>, Matrix<'py>)> {
        let [n_basis, n_outputs]: [usize; 2] = alpha.as_array().dim().into();
        let (targets, alpha) = (columns("targets", &targets)?, columns("alpha", &alpha)?);
        // A factor for each output, at the same time on as many threads, and what is solved for.
        check_room(&[
            n_outputs * square(n_basis),
            4 * (targets.len() + alpha.len()),
        ])?;
        let (weights, predictions) = run(py, self.n_threads, None, |line| -> Result<_, Error> {
            let mut fit = lock(&self.fit);
            fit.set_cancel(line.cancel.clone());
            let weights = fit.solve(targets, alpha)?;
            let predictions = fit.predictions(&weights, n_outputs)?;
            Ok((weights, predictions))
        })?;
        Ok((
            table(py, weights, [n_basis, n_outputs])?,
            table(py, predictions, [self.n_rows, n_outputs])?,
        ))
    }

    /// Drops all functions but those at these places, which ascend.
    #[allow(clippy::needless_pass_by_value)] // the Python signature
    fn keep(&self, py: Python<'_>, places: PyReadonlyArray1<'_, i64>) -> PyResult<()> {
        let places = self::places("places", &places)?;
        check_room(&[places.len() * self.n_rows, square(places.len())])?;
        run(py, self.n_threads, None, |_| lock(&self.fit).keep(&places))
    }
}
