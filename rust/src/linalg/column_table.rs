//! Tables of aligned columns, for fast products.

use std::ops::Range;

use nalgebra::DMatrix;

use crate::linalg::aligned_columns::{AlignedColumns, stride};
use crate::linalg::column_combination::add_product;
use crate::linalg::gemm::TallMatrix;
use crate::linalg::vector::dot;
use crate::parallel::{fill_pieces, pieces};

/// Columns of a symmetric product computed at a time: products with earlier columns are known.
pub(crate) const COLUMNS: usize = 24;

/// A matrix stored as aligned columns.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    pub(crate) height: usize,
    pub(crate) width: usize,
    /// Columns begin a [`stride`] apart.
    values: AlignedColumns,
}

impl Table {
    pub(crate) fn new(height: usize) -> Self {
        Self::with_room(height, 0)
    }

    /// An empty table with memory for `width` columns. Growing beyond it moves all columns.
    pub(crate) fn with_room(height: usize, width: usize) -> Self {
        Self {
            height,
            width: 0,
            values: AlignedColumns::with_room(stride(height) * width),
        }
    }

    pub(crate) fn of(matrix: &DMatrix<f64>) -> Self {
        let mut this = Self::with_room(matrix.nrows(), matrix.ncols());
        for column in matrix.column_iter() {
            this.push(column.as_slice());
        }
        this
    }

    /// A table filled in parallel, `size` columns at a time: `fill` gets the index of the first and the zeros to overwrite, columns a
    /// [`stride`] apart.
    pub(crate) fn filled(
        height: usize,
        width: usize,
        size: usize,
        fill: impl Fn(usize, &mut [f64]) + Sync + Send,
    ) -> Self {
        let apart = stride(height);
        let mut values = AlignedColumns::zeros(width * apart);
        fill_pieces(&mut values, size * apart.max(1), |start, out| {
            fill(start / apart, out);
        });
        Self {
            height,
            width,
            values,
        }
    }

    /// Appends a column given in pieces.
    pub(crate) fn push_pieces<'p>(&mut self, pieces: impl Iterator<Item = &'p [f64]>) {
        let mut rest = self.values.grow(stride(self.height));
        for piece in pieces {
            let out;
            (out, rest) = rest.split_at_mut(piece.len());
            out.copy_from_slice(piece);
        }
        self.width += 1;
    }

    pub(crate) fn push(&mut self, column: &[f64]) {
        self.push_pieces(std::iter::once(column));
    }

    pub(crate) fn extend(&mut self, other: Self) {
        if self.width == 0 {
            *self = other;
        } else {
            self.values.append(&other.values);
            self.width += other.width;
        }
    }

    pub(crate) fn column(&self, k: usize) -> &[f64] {
        &self.values[k * stride(self.height)..][..self.height]
    }

    /// The inner product of each column with `right`.
    pub(crate) fn products(&self, right: &[f64]) -> Vec<f64> {
        let columns = (0..self.width).map(|k| self.column(k));
        columns.map(|column| dot(column, right)).collect()
    }

    /// The values from this row and column on, and the stride between columns.
    pub(crate) fn corner(&self, row: usize, column: usize) -> (&[f64], usize) {
        let stride = stride(self.height);
        (&self.values[column * stride + row..], stride)
    }

    /// Some columns, from row `first` on.
    pub(crate) fn tall(&self, columns: &Range<usize>, first: usize) -> TallMatrix<'_> {
        let (values, stride) = self.corner(first, columns.start);
        TallMatrix::new(values, stride, columns.len())
    }

    /// Adds c^T G c for some rows c of some columns; G is symmetric, with columns `stride` apart.
    pub(crate) fn add_squares(
        &self,
        columns: &Range<usize>,
        rows: &Range<usize>,
        (gram, stride): (&[f64], usize),
        squares: &mut [f64],
    ) {
        let n = rows.len();
        let mut products = vec![0.0; n * COLUMNS];
        for block in pieces(columns.len(), COLUMNS) {
            let before = columns.start..columns.start + block.end;
            // Elements above the diagonal are doubled, and elements below it left out.
            let mut corner: Vec<f64> = Vec::with_capacity(block.len() * block.end);
            for j in block.clone() {
                let column = &gram[j * stride..];
                corner.extend(column[..j].iter().map(|g| 2.0 * g));
                corner.push(column[j]);
                corner.resize(corner.len() + block.end - j - 1, 0.0);
            }
            let products = &mut products[..n * block.len()];
            products.fill(0.0);
            let tall = self.tall(&before, rows.start);
            add_product(tall, (&corner, block.end), n, (products, n), block.len());
            for (product, k) in products.chunks_exact(n).zip(block) {
                let own = &self.column(columns.start + k)[rows.clone()];
                for ((square, p), c) in squares.iter_mut().zip(product).zip(own) {
                    *square += p * c;
                }
            }
        }
    }
}
