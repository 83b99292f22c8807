//! A design of kernel functions, evaluated block by block.

use std::ops::Range;
use std::sync::atomic::AtomicBool;

use crate::data::check_flag;
use crate::data::dense_design::DenseDesign;
use crate::data::design::{Block, Design, Family};
use crate::data::row_blocks::values_of;
use crate::linalg::aligned_columns::{room, stride};
use crate::{Error, Kernel, Points, Result};

/// phi_i(x) = k_p(x, z_c) for each kernel p and centre c, after an optional constant function.
///
/// Column order: the constant if there is one, then all centres of the first kernel, of the second, and so on.
#[derive(Debug, Clone)]
pub struct KernelDesign {
    points: Points,
    centres: Vec<f64>,
    n_centres: usize,
    kernels: Vec<Kernel>,
    bias: bool,
}

impl KernelDesign {
    /// `x` (n x d) and `centres` (m x d) are row-major.
    ///
    /// # Errors
    /// [`Error::Shape`], [`Error::NonFinite`], or [`Error::Invalid`] for a kernel that does not fit `d` inputs.
    pub fn new(
        x: &[f64],
        centres: &[f64],
        n_features: usize,
        kernels: Vec<Kernel>,
        bias: bool,
    ) -> Result<Self> {
        let n = x.len().checked_div(n_features).unwrap_or(0);
        let n_centres = centres.len().checked_div(n_features).unwrap_or(0);
        Error::check_len("X", n * n_features, x.len())?;
        Error::check_len("centres", n_centres * n_features, centres.len())?;
        Error::check_finite("X", x)?;
        Error::check_finite("centres", centres)?;
        for kernel in &kernels {
            kernel
                .validate(n_features)
                .map_err(|what| Error::Invalid { what })?;
        }
        Ok(Self {
            points: Points::from_rows(x, n, n_features),
            centres: centres.to_vec(),
            n_centres,
            kernels,
            bias,
        })
    }

    /// Number of features of a row.
    #[must_use]
    pub fn n_features(&self) -> usize {
        self.points.n_features()
    }

    /// Number of centres of each kernel.
    #[must_use]
    pub fn n_centres(&self) -> usize {
        self.n_centres
    }

    /// The kernels.
    #[must_use]
    pub fn kernels(&self) -> &[Kernel] {
        &self.kernels
    }

    /// Whether the first function is constant.
    #[must_use]
    pub fn has_bias(&self) -> bool {
        self.bias
    }

    /// Centre number `c`.
    #[must_use]
    pub fn centre(&self, c: usize) -> &[f64] {
        let d = self.n_features();
        &self.centres[c * d..][..d]
    }

    /// Evaluates all values once: faster where there are many features and N x K values fit in memory. The model is the same to the bit,
    /// unless the fit uses [`families`](Design::families), which stored designs do not have. The evaluation can take longer than the fit,
    /// and ends once `stop` is raised.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a kernel value that is not finite; [`Error::Memory`]; [`Error::Interrupted`].
    pub fn materialise(&self, stop: Option<&AtomicBool>) -> Result<DenseDesign<'static>> {
        let values = values_of(self, || check_flag(stop))?;
        DenseDesign::new(values, self.n_rows(), self.n_basis()).map_err(|error| match error {
            Error::NonFinite { .. } => {
                let what = "a kernel value is not finite; rescale X or the kernel".into();
                Error::Invalid { what }
            }
            other => other,
        })
    }

    /// All N x K values, column-major.
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub fn values(&self) -> Result<Vec<f64>> {
        values_of(self, || Ok(()))
    }

    /// Evaluates a block; columns in `out` begin `stride` values apart.
    fn fill(&self, rows: &Range<usize>, columns: Range<usize>, out: &mut [f64], stride: usize) {
        let d = self.points.n_features();
        for (j, out) in columns.zip(out.chunks_exact_mut(stride.max(1))) {
            let out = &mut out[..rows.len()];
            let Some(function) = j.checked_sub(usize::from(self.bias)) else {
                out.fill(1.0);
                continue;
            };
            let (kernel, centre) = (function / self.n_centres, function % self.n_centres);
            let centre = &self.centres[centre * d..(centre + 1) * d];
            self.kernels[kernel].column_into(&self.points, centre, rows.clone(), out);
        }
    }
}

impl Design for KernelDesign {
    fn n_rows(&self) -> usize {
        self.points.n_points()
    }

    fn n_basis(&self) -> usize {
        usize::from(self.bias) + self.kernels.len() * self.n_centres
    }

    fn block<'s>(
        &'s self,
        rows: Range<usize>,
        columns: Range<usize>,
        buffer: &'s mut Vec<f64>,
    ) -> Block<'s> {
        let stride = stride(rows.len());
        let data = room(buffer, stride * columns.len());
        self.fill(&rows, columns, data, stride);
        Block { data, stride }
    }

    fn families(&self) -> Vec<Family<'_>> {
        let family = |(p, kernel)| Family {
            first: usize::from(self.bias) + p * self.n_centres,
            kernel,
            centres: &self.centres,
            points: &self.points,
        };
        let kernels = self.kernels.iter().enumerate();
        kernels
            .filter(|(_, kernel)| kernel.is_positive_definite() && self.n_features() > 0)
            .map(family)
            .collect()
    }
}
