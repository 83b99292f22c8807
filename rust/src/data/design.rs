//! The design matrix Phi (N rows, K basis functions), read block by block.

use std::ops::Range;

use crate::{Kernel, Points};

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
    #[must_use]
    pub fn len(&self) -> usize {
        self.centres.len() / self.points.n_features().max(1)
    }

    /// Whether there are no functions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The columns of the design.
    pub(crate) fn columns(&self) -> Range<usize> {
        self.first..self.first + self.len()
    }

    /// Whether the centres are the rows of the design, in the same order.
    #[must_use]
    pub fn is_about_its_rows(&self) -> bool {
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
