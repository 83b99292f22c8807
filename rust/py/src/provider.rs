//! Python objects as row providers: calls their methods, checks the returned shapes and passes exceptions on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use numpy::{PyArray1, PyArray2, PyArrayDyn, PyArrayMethods, PyUntypedArrayMethods, ToPyArray};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use sparsebayes::internal::{CandidateProducts, CentredProvider, ProviderStatistics, RowProvider};
use sparsebayes::{Error, Likelihood, Posterior, Rules, Sweep, fit};

use crate::arrays::index_array;
use crate::errors::invalid;
use crate::fit::{rules, scalar_likelihood};
use crate::memory::check_fit;
use crate::posterior::PyPosterior;
use crate::runner::{Reporter, run};

/// A Python object as a [`RowProvider`]. Its exceptions become [`Error::Provider`].
struct Provider<'a> {
    object: &'a Py<PyAny>,
    n_basis: usize,
    likelihood: Likelihood,
    cancel: Arc<AtomicBool>,
}

impl Provider<'_> {
    /// Calls a method with the interpreter held, and converts its result.
    fn call<T>(
        &self,
        method: &'static str,
        arguments: impl for<'py> FnOnce(Python<'py>) -> PyResult<Bound<'py, PyTuple>>,
        convert: impl for<'py> FnOnce(&Returned<'py>) -> PyResult<T>,
    ) -> Result<T, Error> {
        if self.cancel.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        Python::attach(|py| {
            let value = self.object.bind(py).call_method1(method, arguments(py)?)?;
            convert(&Returned { method, value })
        })
        .map_err(|error: PyErr| Error::Provider(Box::new(error)))
    }
}

/// The result of a method.
struct Returned<'py> {
    method: &'static str,
    value: Bound<'py, PyAny>,
}

impl<'py> Returned<'py> {
    /// The `N` elements of a sequence; `what` names them.
    fn parts<const N: usize>(&self, what: &str) -> PyResult<[Bound<'py, PyAny>; N]> {
        let parts = match self.value.try_iter() {
            Ok(iter) => iter.collect::<PyResult<Vec<_>>>()?,
            Err(_) => Vec::new(),
        };
        let n = parts.len();
        <[_; N]>::try_from(parts).map_err(|_| {
            let kind = self.value.get_type();
            invalid(format!(
                "{} of the provider must return {what}, got {n} of these in {kind}",
                self.method
            ))
        })
    }

    /// The row-major numbers of an array of this shape; `what` names it.
    fn numbers(
        &self,
        what: &str,
        value: &Bound<'py, PyAny>,
        shape: &[usize],
    ) -> PyResult<Vec<f64>> {
        let py = value.py();
        let options = PyDict::new(py);
        options.set_item("dtype", "float64")?;
        let numpy = py.import("numpy")?;
        let array = numpy
            .call_method("asarray", (value,), Some(&options))
            .map_err(|error| self.not_numbers(what, &error, py))?;
        let array = array.cast_into::<PyArrayDyn<f64>>()?;
        if array.shape() != shape {
            return Err(invalid(format!(
                "{what} of the provider's {} must have the shape {shape:?}, got {:?}",
                self.method,
                array.shape()
            )));
        }
        Ok(array.readonly().as_array().iter().copied().collect())
    }

    /// Adds the method to NumPy's conversion errors; exceptions of the result itself stay unchanged.
    fn not_numbers(&self, what: &str, error: &PyErr, py: Python<'_>) -> PyErr {
        let is_about_numbers =
            error.is_instance_of::<PyTypeError>(py) || error.is_instance_of::<PyValueError>(py);
        if !is_about_numbers {
            return error.clone_ref(py);
        }
        let said = error.value(py);
        invalid(format!(
            "{what} of the provider's {} must be numbers: {said}",
            self.method
        ))
    }

    fn number(&self, what: &str, value: &Bound<'py, PyAny>) -> PyResult<f64> {
        Ok(self.numbers(what, value, &[])?[0])
    }
}

/// The transpose of an m x m matrix.
fn transposed(m: usize, values: &[f64]) -> Vec<f64> {
    (0..m * m).map(|k| values[(k % m) * m + k / m]).collect()
}

impl RowProvider for Provider<'_> {
    fn n_basis(&self) -> usize {
        self.n_basis
    }

    fn likelihood(&self) -> Likelihood {
        self.likelihood
    }

    fn target_moments(&mut self, centre: f64) -> Result<[f64; 3], Error> {
        self.call(
            "target_moments",
            |py| (centre,).into_pyobject(py),
            |answer| {
                let moments = answer.numbers("the answer", &answer.value, &[3])?;
                Ok([moments[0], moments[1], moments[2]])
            },
        )
    }

    fn deviance(&mut self, active: &[usize], mu: &[f64]) -> Result<f64, Error> {
        self.call(
            "deviance",
            |py| (index_array(py, active), mu.to_pyarray(py)).into_pyobject(py),
            |answer| answer.number("the answer", &answer.value),
        )
    }

    fn gradient(&mut self, active: &[usize], mu: &[f64]) -> Result<(f64, Vec<f64>), Error> {
        self.call(
            "gradient",
            |py| (index_array(py, active), mu.to_pyarray(py)).into_pyobject(py),
            |answer| {
                let [deviance, gradient] = answer.parts("(deviance, gradient)")?;
                Ok((
                    answer.number("deviance", &deviance)?,
                    answer.numbers("gradient", &gradient, &[active.len()])?,
                ))
            },
        )
    }

    fn among(
        &mut self,
        active: &[usize],
        mu: &[f64],
        js: &[usize],
    ) -> Result<CandidateProducts, Error> {
        let m = js.len();
        self.call(
            "among",
            |py| {
                let (active, js) = (index_array(py, active), index_array(py, js));
                (active, mu.to_pyarray(py), js).into_pyobject(py)
            },
            |answer| {
                let [deviance, gradient, gram] = answer.parts("(deviance, gradient, gram)")?;
                let gram = answer.numbers("gram", &gram, &[m, m])?;
                Ok(CandidateProducts {
                    deviance: answer.number("deviance", &deviance)?,
                    gradient: answer.numbers("gradient", &gradient, &[m])?,
                    gram: transposed(m, &gram),
                })
            },
        )
    }

    fn sweep(&mut self, active: &[usize], mu: &[f64], wanted: &[usize]) -> Result<Sweep, Error> {
        let (k, w) = (self.n_basis, wanted.len());
        self.call(
            "sweep",
            |py| {
                let (active, wanted) = (index_array(py, active), index_array(py, wanted));
                (active, mu.to_pyarray(py), wanted).into_pyobject(py)
            },
            |answer| {
                let [deviance, gradient, diag, gram] =
                    answer.parts("(deviance, gradient, diag, gram)")?;
                let gram = answer.numbers("gram", &gram, &[k, w])?;
                let column = |j: usize| gram.iter().skip(j).step_by(w).copied().collect();
                Ok(Sweep {
                    deviances: vec![answer.number("deviance", &deviance)?],
                    gradient: answer.numbers("gradient", &gradient, &[k])?,
                    diag: answer.numbers("diag", &diag, &[k])?,
                    gram: (0..w).map(column).collect(),
                })
            },
        )
    }

    fn variance_drift(
        &mut self,
        active: &[usize],
        mu: &[f64],
        sigma: &[f64],
    ) -> Result<Vec<f64>, Error> {
        let m = active.len();
        self.call(
            "variance_drift",
            |py| {
                let sigma: Bound<'_, PyArray2<f64>> =
                    PyArray1::from_vec(py, transposed(m, sigma)).reshape([m, m])?;
                (index_array(py, active), mu.to_pyarray(py), sigma).into_pyobject(py)
            },
            |answer| {
                Ok(transposed(
                    m,
                    &answer.numbers("the answer", &answer.value, &[m, m])?,
                ))
            },
        )
    }
}

/// Tells whether a running fit was cancelled, for example by Ctrl-C.
#[pyclass(frozen, name = "Cancelled", module = "sparsebayes._core")]
pub(crate) struct PyCancelled {
    pub(crate) flag: Arc<AtomicBool>,
    /// Alive as long as the fit.
    pub(crate) running: Weak<()>,
}

#[pymethods]
impl PyCancelled {
    /// Whether the fit runs and was cancelled.
    fn __call__(&self) -> bool {
        self.running.strong_count() > 0 && self.flag.load(Ordering::Relaxed)
    }
}

/// Passes the cancellation flag to a provider that has a method `listen`.
fn pass_cancellation(provider: &Py<PyAny>, reporter: &Reporter) -> Result<(), Error> {
    Python::attach(|py| {
        let provider = provider.bind(py);
        if provider.hasattr("listen")? {
            let cancelled = PyCancelled {
                flag: Arc::clone(&reporter.cancel),
                running: Arc::downgrade(&reporter.running),
            };
            provider.call_method1("listen", (cancelled,))?;
        }
        Ok(())
    })
    .map_err(|error: PyErr| Error::Provider(Box::new(error)))
}

/// Fits a model to the rows of `provider`, an object with the attributes and methods of
/// `sparsebayes.providers.PyStatistics`. Its last `n_centred` columns are centred; column 0 is then a constant.
#[pyfunction]
#[pyo3(signature = (provider, *, n_centred=0, n_threads=None, callback=None, **settings))]
#[allow(clippy::needless_pass_by_value)] // the Python signature
pub(crate) fn fit_provider(
    py: Python<'_>,
    provider: Py<PyAny>,
    n_centred: usize,
    n_threads: Option<usize>,
    callback: Option<Bound<'_, PyAny>>,
    settings: Option<Bound<'_, PyDict>>,
) -> PyResult<PyPosterior> {
    let rules = rules(settings.as_ref())?;
    let n_basis = provider.bind(py).getattr("n_basis")?.extract()?;
    let name: String = provider.bind(py).getattr("likelihood")?.extract()?;
    let likelihood = scalar_likelihood(&name)?;
    let posterior = run(py, n_threads, callback.as_ref(), |reporter| {
        check_fit([n_basis, n_basis], 1, rules.scheme)?;
        pass_cancellation(&provider, reporter)?;
        let rows = Provider {
            object: &provider,
            n_basis,
            likelihood,
            cancel: Arc::clone(&reporter.cancel),
        };
        if n_centred == 0 {
            return Ok(solve(rows, &rules, reporter)?.into());
        }
        let rows = CentredProvider::new(rows, n_basis.saturating_sub(n_centred).max(1)..n_basis)?;
        let means = rows.means()[n_basis.saturating_sub(n_centred)..].to_vec();
        let posterior = solve(rows, &rules, reporter)?;
        Ok(PyPosterior { posterior, means })
    })?;
    Ok(posterior)
}

fn solve(rows: impl RowProvider, rules: &Rules, reporter: &Reporter) -> Result<Posterior, Error> {
    let mut stats = ProviderStatistics::new(rows)?.cancelled_by(Arc::clone(&reporter.cancel));
    fit(&mut stats, rules, &mut |step| reporter.step(step))
}
