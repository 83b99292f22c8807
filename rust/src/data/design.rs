//! The design matrix Phi (N rows, K basis functions), read block by block: stored, evaluated when asked, or made of other designs.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ops::Range;
use std::sync::atomic::AtomicBool;

use crate::error::check_flag;
use crate::linalg::columns::transpose;
use crate::linalg::columns::{room, stride};
use crate::parallel::{fill_pieces, map_pieces, pieces};
use crate::{Error, Kernel, Points, Result};

/// A block of a design matrix. Each column is a contiguous slice; columns begin `stride` values apart.
#[derive(Debug, Clone, Copy)]
pub struct Block<'a> {
    /// The values, column-major.
    pub data: &'a [f64],
    /// Distance between the starts of two columns.
    pub stride: usize,
}

impl<'a> Block<'a> {
    /// Column `c` of the block, `n_rows` long.
    #[must_use]
    pub fn column(&self, c: usize, n_rows: usize) -> &'a [f64] {
        &self.data[c * self.stride..c * self.stride + n_rows]
    }
}

/// Adjacent columns of a design that are functions k(., z_i) of one positive definite kernel.
#[derive(Debug, Clone, Copy)]
pub struct Family<'a> {
    /// The first of these columns.
    pub first: usize,
    /// The kernel.
    pub kernel: &'a Kernel,
    /// The centres z_i, row by row.
    pub centres: &'a [f64],
    /// The rows of the design.
    pub points: &'a Points,
}

impl Family<'_> {
    /// Number of functions.
    pub(crate) fn len(&self) -> usize {
        self.centres.len() / self.points.n_features().max(1)
    }

    /// The columns of the design.
    pub(crate) fn columns(&self) -> Range<usize> {
        self.first..self.first + self.len()
    }

    /// Whether the centres are the rows of the design, in the same order.
    pub(crate) fn is_about_its_rows(&self) -> bool {
        let (n, d) = (self.points.n_points(), self.points.n_features());
        // Bits are compared because NaN is not equal to itself.
        let same = |f: usize| {
            let centres = self.centres[f..].iter().step_by(d);
            let values = self.points.feature(f).iter().zip(centres);
            values.take(n).all(|(x, z)| x.to_bits() == z.to_bits())
        };
        self.len() == n && (0..d).all(same)
    }
}

/// A design matrix that returns any block of itself.
///
/// A stored design returns a reference to its memory; a lazy one evaluates the block into `buffer`. All arithmetic is done by the
/// caller, so two designs with the same values give the same model to the bit.
pub trait Design: Sync {
    /// N.
    fn n_rows(&self) -> usize;

    /// K.
    fn n_basis(&self) -> usize;

    /// The block `rows` x `columns`.
    fn block<'s>(
        &'s self,
        rows: Range<usize>,
        columns: Range<usize>,
        buffer: &'s mut Vec<f64>,
    ) -> Block<'s>;

    /// The columns known to be functions of positive definite kernels.
    fn families(&self) -> Vec<Family<'_>> {
        Vec::new()
    }
}

impl<D: Design + ?Sized> Design for &D {
    fn n_rows(&self) -> usize {
        (**self).n_rows()
    }

    fn n_basis(&self) -> usize {
        (**self).n_basis()
    }

    fn block<'s>(
        &'s self,
        rows: Range<usize>,
        columns: Range<usize>,
        buffer: &'s mut Vec<f64>,
    ) -> Block<'s> {
        (**self).block(rows, columns, buffer)
    }

    fn families(&self) -> Vec<Family<'_>> {
        (**self).families()
    }
}

/// Columns of a block of the design, handled by one thread.
pub(crate) const COLUMN_BLOCK: usize = 64;

thread_local! {
    /// Memory into which lazy designs evaluate their blocks.
    pub(crate) static BLOCK_BUFFER: RefCell<Vec<f64>> = const { RefCell::new(Vec::new()) };
}

/// All N x K values of a design, column-major. An error of `check`, called regularly, ends the evaluation; once `check` fails, it must
/// keep failing.
pub(crate) fn values_of(
    design: &dyn Design,
    check: impl Fn() -> Result<()> + Sync + Send,
) -> Result<Vec<f64>> {
    let (n, k) = (design.n_rows(), design.n_basis());
    let mut values = Vec::new();
    values
        .try_reserve_exact(n * k)
        .map_err(|_| Error::no_memory_for("the dictionary", n * k))?;
    values.resize(n * k, 0.0);
    fill_pieces(&mut values, COLUMN_BLOCK * n, |start, out| {
        let first = start / n;
        evaluate(design, first..first + out.len() / n, &check, out);
    });
    check()?;
    Ok(values)
}

/// All rows of some columns, until `check` fails.
fn evaluate(
    design: &dyn Design,
    columns: Range<usize>,
    check: impl Fn() -> Result<()>,
    out: &mut [f64],
) {
    /// Rows and columns between two checks: a fraction of a second for kernels of ten thousand inputs.
    const ROWS: usize = 1 << 10;
    const COLUMNS: usize = 8;
    let n = design.n_rows();
    for part in pieces(columns.len(), COLUMNS) {
        let out = &mut out[part.start * n..];
        let part = columns.start + part.start..columns.start + part.end;
        for rows in pieces(n, ROWS) {
            if check().is_err() {
                return;
            }
            BLOCK_BUFFER.with_borrow_mut(|buffer| {
                let block = design.block(rows.clone(), part.clone(), buffer);
                for c in 0..part.len() {
                    out[c * n + rows.start..][..rows.len()]
                        .copy_from_slice(block.column(c, rows.len()));
                }
            });
        }
    }
}

/// Phi as N x K values: borrowed from the caller, or owned.
#[derive(Debug, Clone)]
pub struct DenseDesign<'a> {
    values: Cow<'a, [f64]>,
    n_rows: usize,
    n_basis: usize,
}

impl<'a> DenseDesign<'a> {
    /// Wraps `values`, N x K column-major.
    ///
    /// # Errors
    /// [`Error::Shape`] when the length is not `n_rows * n_basis`; [`Error::NonFinite`] for NaN or infinity.
    pub fn new(values: impl Into<Cow<'a, [f64]>>, n_rows: usize, n_basis: usize) -> Result<Self> {
        /// Values that one thread checks: the check takes longer than it takes to start the thread.
        const PIECE: usize = 1 << 17;
        let values = values.into();
        Error::check_len("Phi", n_rows * n_basis, values.len())?;
        let check = |piece| Error::check_finite("Phi", &values[piece]);
        let checks = map_pieces(values.len(), PIECE, check);
        checks.into_iter().collect::<Result<()>>()?;
        Ok(Self {
            values,
            n_rows,
            n_basis,
        })
    }
}

impl DenseDesign<'static> {
    /// The values of another design, finite or not. An error of `check` ends the evaluation: see [`values_of`].
    pub(crate) fn evaluated(
        design: &dyn Design,
        check: impl Fn() -> Result<()> + Sync + Send,
    ) -> Result<Self> {
        Ok(Self {
            values: values_of(design, check)?.into(),
            n_rows: design.n_rows(),
            n_basis: design.n_basis(),
        })
    }

    /// Copies `rows`, N x K row-major, in parallel.
    ///
    /// # Errors
    /// As [`DenseDesign::new`]; [`Error::Memory`].
    pub fn from_rows(rows: &[f64], n_rows: usize, n_basis: usize) -> Result<Self> {
        Error::check_len("Phi", n_rows * n_basis, rows.len())?;
        let mut values = Vec::new();
        values
            .try_reserve_exact(rows.len())
            .map_err(|_| Error::no_memory_for("the dictionary", rows.len()))?;
        values.resize(rows.len(), 0.0);
        transpose(rows, n_rows, &mut values);
        Self::new(values, n_rows, n_basis)
    }
}

impl Design for DenseDesign<'_> {
    fn n_rows(&self) -> usize {
        self.n_rows
    }

    fn n_basis(&self) -> usize {
        self.n_basis
    }

    fn block<'s>(
        &'s self,
        rows: Range<usize>,
        columns: Range<usize>,
        _: &'s mut Vec<f64>,
    ) -> Block<'s> {
        let start = columns.start * self.n_rows + rows.start;
        let end = (columns.end.max(1) - 1) * self.n_rows + rows.end;
        let none = columns.is_empty();
        Block {
            data: if none { &[] } else { &self.values[start..end] },
            stride: self.n_rows,
        }
    }
}

/// phi_i(x) = k_p(x, z_c) for each kernel p and centre c, after an optional constant function.
///
/// Column order: the constant if there is one, then all centres of the first kernel, of the second, and so on.
#[derive(Debug, Clone)]
pub struct KernelDesign {
    points: Points,
    pub(crate) centres: Vec<f64>,
    /// Number of centres of each kernel.
    pub(crate) n_centres: usize,
    pub(crate) kernels: Vec<Kernel>,
    /// Whether the first function is constant.
    pub(crate) bias: bool,
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

/// Appends a block of `design` to `out`, column after column.
fn append_block(
    design: &dyn Design,
    rows: &Range<usize>,
    columns: Range<usize>,
    buffer: &mut Vec<f64>,
    out: &mut Vec<f64>,
) {
    let n_columns = columns.len();
    let block = design.block(rows.clone(), columns, buffer);
    for c in 0..n_columns {
        out.extend_from_slice(block.column(c, rows.len()));
    }
}

/// The basis functions of one design followed by those of another, over the same rows.
///
/// Only blocks with columns of both designs are copied, so kernels remain lazy beside stored columns.
pub struct JoinedDesign<'a> {
    left: &'a dyn Design,
    right: &'a dyn Design,
}

impl<'a> JoinedDesign<'a> {
    /// Appends the columns of `right` to those of `left`.
    ///
    /// # Errors
    /// [`Error::Shape`] when they do not have the same number of rows.
    pub fn new(left: &'a dyn Design, right: &'a dyn Design) -> Result<Self> {
        Error::check_len("rows of the extra columns", left.n_rows(), right.n_rows())?;
        Ok(Self { left, right })
    }
}

impl Design for JoinedDesign<'_> {
    fn n_rows(&self) -> usize {
        self.left.n_rows()
    }

    fn n_basis(&self) -> usize {
        self.left.n_basis() + self.right.n_basis()
    }

    fn block<'s>(
        &'s self,
        rows: Range<usize>,
        columns: Range<usize>,
        buffer: &'s mut Vec<f64>,
    ) -> Block<'s> {
        let border = self.left.n_basis();
        if columns.end <= border {
            return self.left.block(rows, columns, buffer);
        }
        if columns.start >= border {
            let columns = columns.start - border..columns.end - border;
            return self.right.block(rows, columns, buffer);
        }
        let mut own = Vec::new();
        buffer.clear();
        append_block(self.left, &rows, columns.start..border, &mut own, buffer);
        append_block(self.right, &rows, 0..columns.end - border, &mut own, buffer);
        Block {
            data: buffer,
            stride: rows.len(),
        }
    }

    fn families(&self) -> Vec<Family<'_>> {
        let border = self.left.n_basis();
        let mut families = self.left.families();
        families.extend(self.right.families().into_iter().map(|family| Family {
            first: family.first + border,
            ..family
        }));
        families
    }
}

/// Some columns of a design, in the order given.
pub(crate) struct SubsetDesign<'a> {
    pub(crate) design: &'a dyn Design,
    pub(crate) columns: &'a [usize],
}

impl Design for SubsetDesign<'_> {
    fn n_rows(&self) -> usize {
        self.design.n_rows()
    }

    fn n_basis(&self) -> usize {
        self.columns.len()
    }

    fn block<'s>(
        &'s self,
        rows: Range<usize>,
        columns: Range<usize>,
        buffer: &'s mut Vec<f64>,
    ) -> Block<'s> {
        let mut own = Vec::new();
        buffer.clear();
        for run in self.columns[columns].chunk_by(|a, b| a + 1 == *b) {
            let adjacent = run[0]..run[0] + run.len();
            append_block(self.design, &rows, adjacent, &mut own, buffer);
        }
        Block {
            data: buffer,
            stride: rows.len(),
        }
    }
}
