//! The dictionary of a kernel fit: kernel functions and extra columns.

use std::sync::atomic::AtomicBool;

use numpy::PyReadonlyArray2;
use pyo3::prelude::*;
use sparsebayes::internal::JoinedDesign;
use sparsebayes::{DenseDesign, Design, Error, Kernel, KernelDesign};

use crate::arrays::{Rows, columns, rows};
use crate::kernel::PyKernel;
use crate::memory::reserve;

/// Designs with more values are not stored but evaluated in each pass.
const MAX_STORED_VALUES: usize = 1 << 26;

/// Kernels of at most this many features are evaluated again faster than they are read from memory.
const MAX_CHEAP_FEATURES: usize = 8;

/// A constant if `bias`, kernels at `centres`, then the columns of `extra`.
pub(crate) struct KernelDictionary<'a> {
    x: Rows<'a>,
    centres: Rows<'a>,
    kernels: Vec<Kernel>,
    bias: bool,
    /// Column-major values, and their number of rows and columns.
    extra: Option<(&'a [f64], (usize, usize))>,
}

impl<'a> KernelDictionary<'a> {
    pub(crate) fn new(
        x: &'a PyReadonlyArray2<'_, f64>,
        centres: &'a PyReadonlyArray2<'_, f64>,
        kernels: &[PyRef<'_, PyKernel>],
        bias: bool,
        extra: Option<&'a PyReadonlyArray2<'_, f64>>,
    ) -> PyResult<Self> {
        let (x, centres) = (rows("X", x)?, rows("centres", centres)?);
        x.check_alike("centres", &centres)?;
        let extra = extra
            .map(|e| Ok::<_, PyErr>((columns("extra", e)?, e.as_array().dim())))
            .transpose()?;
        let kernels = kernels.iter().map(|k| k.0.clone()).collect();
        Ok(Self {
            x,
            centres,
            kernels,
            bias,
            extra,
        })
    }

    /// Whether all kernel values may be stored.
    pub(crate) fn can_store(&self) -> bool {
        let n_kernels = self.kernels.len().saturating_mul(self.centres.n_points);
        self.x.n_points.saturating_mul(n_kernels) <= MAX_STORED_VALUES
    }

    /// Calls `solve` with the design. Kernels are evaluated in each pass if `lazy`, else once (`None`: the faster way).
    /// Storing them ends early once `stop` is raised.
    pub(crate) fn solve<T>(
        self,
        lazy: Option<bool>,
        stop: Option<&AtomicBool>,
        solve: impl FnOnce(&dyn Design) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let (x, z, d) = (self.x.values, self.centres.values, self.x.n_features);
        let kernels = KernelDesign::new(x, z, d, self.kernels, self.bias)?;
        let large = kernels.n_rows().saturating_mul(kernels.n_basis()) > MAX_STORED_VALUES;
        let stored;
        let left: &dyn Design = if lazy.unwrap_or(d <= MAX_CHEAP_FEATURES || large) {
            &kernels
        } else {
            let values = kernels.n_rows().saturating_mul(kernels.n_basis());
            reserve(&[values], "the dictionary", "fewer candidates take less")?;
            stored = kernels.materialise(stop)?;
            &stored
        };
        let Some((values, (n_rows, n_columns))) = self.extra else {
            return solve(left);
        };
        let right = DenseDesign::new(values, n_rows, n_columns)?;
        solve(&JoinedDesign::new(left, &right)?)
    }
}
