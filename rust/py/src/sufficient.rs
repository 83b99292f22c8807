//! Sums over rows as Python objects: update, merge and fit.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use numpy::{PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2, ToPyArray};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use sparsebayes::{
    DenseDesign, Design, Error, SufficientStatistics, SumStatistics, fit, with_threads,
};

use crate::arrays;
use crate::arrays::{BasisValues, vector};
use crate::dictionary::KernelDictionary;
use crate::errors::to_python;
use crate::fit::rules;
use crate::kernel::PyKernel;
use crate::memory::{check_fit, reserve, square};
use crate::posterior::PyPosterior;
use crate::runner::run;

/// Most multiplications of an update that runs on the calling thread; longer ones use several threads and heed Ctrl-C.
const MAX_SHORT_MULTIPLICATIONS: usize = 100_000_000;

/// Most rows in the work memory of an update.
const MAX_ROWS: usize = 512;

/// Sums over rows, safe to use from many threads.
///
/// Copy on write: a change during a fit does not affect the fit.
#[pyclass(frozen, name = "SufficientStatistics", module = "sparsebayes._core")]
pub(crate) struct PySufficientStatistics {
    sums: Mutex<Arc<SufficientStatistics>>,
    n_basis: usize,
}

impl PySufficientStatistics {
    fn from_sums(sums: SufficientStatistics) -> Self {
        Self {
            n_basis: sums.n_basis(),
            sums: Mutex::new(Arc::new(sums)),
        }
    }

    /// Ignores poisoning, because changes are atomic.
    fn lock(&self) -> MutexGuard<'_, Arc<SufficientStatistics>> {
        self.sums.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The current sums.
    fn current(&self) -> Arc<SufficientStatistics> {
        Arc::clone(&self.lock())
    }

    fn add(
        &self,
        py: Python<'_>,
        source: Source<'_>,
        target: &[f64],
        weights: Option<&[f64]>,
        n_threads: Option<usize>,
    ) -> PyResult<()> {
        let work = target.len().saturating_mul(self.n_basis * self.n_basis);
        if work <= MAX_SHORT_MULTIPLICATIONS {
            return self.change(py, Some(1), |sums| {
                source.with_design(|design| sums.update(design, target, weights))
            });
        }
        // The two parts of the sums of these rows, and three copies of some rows.
        let rows = target.len().min(MAX_ROWS).saturating_mul(3 * self.n_basis);
        let parts = [rows, square(self.n_basis).saturating_mul(2)];
        reserve(&parts, "adding rows", "fewer basis functions take less").map_err(to_python)?;
        let chunk = run(py, n_threads, None, |reporter| {
            source.with_design(|design| {
                SufficientStatistics::of(design, target, weights, Some(&reporter.cancel))
            })
        })?;
        // The merge cannot be interrupted, so that rows are added completely or not at all.
        self.change(py, n_threads, |sums| sums.merge(&chunk))
    }

    fn change(
        &self,
        py: Python<'_>,
        n_threads: Option<usize>,
        change: impl FnOnce(&mut SufficientStatistics) -> Result<(), Error> + Send,
    ) -> PyResult<()> {
        let changed = || {
            let mut sums = self.lock();
            if Arc::get_mut(&mut sums).is_none() {
                // `make_mut` copies the sums, which have two parts.
                self.reserve(2, "a copy of the sums")?;
            }
            change(Arc::make_mut(&mut sums))
        };
        py.detach(|| with_threads(n_threads, changed)?)
            .map_err(to_python)
    }

    /// Checks the memory of square matrices of the functions, the constant and the targets.
    fn reserve(&self, n_squares: usize, what: &str) -> Result<(), Error> {
        let all = square(self.n_basis.saturating_add(2)).saturating_mul(n_squares);
        reserve(&[all], what, "fewer basis functions take less")
    }
}

/// The source of the values of the basis functions.
enum Source<'a> {
    Dense(DenseDesign<'a>),
    Kernels(KernelDictionary<'a>),
}

impl Source<'_> {
    /// Calls `f` with the design; kernel values are not stored.
    fn with_design<T>(self, f: impl FnOnce(&dyn Design) -> Result<T, Error>) -> Result<T, Error> {
        match self {
            Self::Dense(design) => f(&design),
            Self::Kernels(dictionary) => dictionary.solve(Some(true), None, f),
        }
    }
}

#[pymethods]
impl PySufficientStatistics {
    /// Empty sums.
    #[new]
    fn new(n_basis: usize) -> PyResult<Self> {
        let sums = SufficientStatistics::new(n_basis);
        sums.map(Self::from_sums).map_err(to_python)
    }

    /// Adds rows of `Phi`, in C or Fortran order.
    #[pyo3(signature = (Phi, target, weights=None, *, n_threads=None))]
    #[allow(non_snake_case, clippy::needless_pass_by_value)] // the Python signature
    fn update(
        &self,
        py: Python<'_>,
        Phi: PyReadonlyArray2<'_, f64>,
        target: PyReadonlyArray1<'_, f64>,
        weights: Option<PyReadonlyArray1<'_, f64>>,
        n_threads: Option<usize>,
    ) -> PyResult<()> {
        let target = vector("target", &target)?;
        let weights = arrays::weights(weights.as_ref())?;
        let design = BasisValues::new("Phi", &Phi)?.design();
        let source = design.map(Source::Dense).map_err(to_python)?;
        self.add(py, source, target, weights, n_threads)
    }

    /// Adds rows of kernel functions at `centres` and of the columns of `extra`.
    #[pyo3(signature = (X, centres, kernels, target, weights=None, *, extra=None, n_threads=None))]
    #[allow(
        non_snake_case,
        clippy::too_many_arguments,
        clippy::needless_pass_by_value
    )] // the Python signature
    fn update_kernel(
        &self,
        py: Python<'_>,
        X: PyReadonlyArray2<'_, f64>,
        centres: PyReadonlyArray2<'_, f64>,
        kernels: Vec<PyRef<'_, PyKernel>>,
        target: PyReadonlyArray1<'_, f64>,
        weights: Option<PyReadonlyArray1<'_, f64>>,
        extra: Option<PyReadonlyArray2<'_, f64>>,
        n_threads: Option<usize>,
    ) -> PyResult<()> {
        // Sums include a constant.
        let dictionary = KernelDictionary::new(&X, &centres, &kernels, false, extra.as_ref())?;
        let target = vector("target", &target)?;
        let weights = arrays::weights(weights.as_ref())?;
        self.add(py, Source::Kernels(dictionary), target, weights, n_threads)
    }

    /// Adds the rows of `other`.
    #[pyo3(signature = (other, *, n_threads=None))]
    fn merge(&self, py: Python<'_>, other: &Self, n_threads: Option<usize>) -> PyResult<()> {
        // Never both locked at once: two objects merging each other would deadlock.
        let other = other.current();
        let is_small = self.n_basis < 500;
        let n_threads = if is_small { Some(1) } else { n_threads };
        self.change(py, n_threads, |sums| sums.merge(&other))
    }

    /// The current sums, unaffected by later changes; copied only when one happens.
    fn snapshot(&self) -> Self {
        Self {
            n_basis: self.n_basis,
            sums: Mutex::new(self.current()),
        }
    }

    /// Number of basis functions.
    #[getter]
    fn n_basis(&self) -> usize {
        self.n_basis
    }

    /// Number of rows.
    #[getter]
    fn n_rows(&self) -> usize {
        self.current().n_rows()
    }

    /// Sum of the weights.
    #[getter]
    fn weight(&self) -> f64 {
        self.current().weight()
    }

    /// Phi^T W Phi.
    fn gram<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray2<f64>>> {
        self.reserve(1, "the Gram matrix").map_err(to_python)?;
        let (sums, k) = (self.current(), self.n_basis);
        let values: Vec<f64> = py.detach(|| {
            let places = (0..k).flat_map(|i| (0..k).map(move |j| (i, j)));
            places.map(|(i, j)| sums.gram(i, j)).collect()
        });
        PyArray1::from_vec(py, values).reshape([k, k])
    }

    /// Phi^T W t.
    fn projections<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f64>> {
        let sums = self.current();
        let values: Vec<f64> = (0..self.n_basis).map(|i| sums.projection(i)).collect();
        values.to_pyarray(py)
    }

    /// t^T W t.
    fn target_square(&self) -> f64 {
        self.current().target_square()
    }

    /// The number of rows, and everything else as an array.
    fn parts<'py>(&self, py: Python<'py>) -> PyResult<(usize, Bound<'py, PyArray1<f64>>)> {
        self.reserve(2, "a copy of the sums").map_err(to_python)?;
        let sums = self.current();
        let parts = py.detach(|| sums.parts());
        Ok((sums.n_rows(), PyArray1::from_vec(py, parts)))
    }

    /// The exact inverse of `parts`.
    #[staticmethod]
    #[allow(clippy::needless_pass_by_value)] // the Python signature
    fn from_parts(
        n_basis: usize,
        n_rows: usize,
        parts: PyReadonlyArray1<'_, f64>,
    ) -> PyResult<Self> {
        let sums = SufficientStatistics::from_parts(n_basis, n_rows, vector("parts", &parts)?);
        sums.map(Self::from_sums).map_err(to_python)
    }

    /// Fits a model to the current rows, with a constant first if `bias`, and the last `n_centred` functions centred.
    #[pyo3(signature = (*, bias=false, n_centred=0, n_threads=None, callback=None, **settings))]
    #[allow(clippy::needless_pass_by_value)] // the Python signature
    fn fit(
        &self,
        py: Python<'_>,
        bias: bool,
        n_centred: usize,
        n_threads: Option<usize>,
        callback: Option<Bound<'_, PyAny>>,
        settings: Option<Bound<'_, PyDict>>,
    ) -> PyResult<PyPosterior> {
        let rules = rules(settings.as_ref())?;
        let sums = self.current();
        let posterior = run(py, n_threads, callback.as_ref(), |reporter| {
            check_fit([self.n_basis, self.n_basis], 1, rules.scheme)?;
            let summary = SumStatistics::new(&sums, bias, n_centred)?;
            let means = summary.means();
            let mut stats = summary.cancelled_by(Arc::clone(&reporter.cancel));
            let posterior = fit(&mut stats, &rules, &mut |step| reporter.step(step))?;
            Ok(PyPosterior { posterior, means })
        })?;
        Ok(posterior)
    }
}
