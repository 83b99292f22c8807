//! Columns of numbers, kept so that products of them are fast.

use std::ops::Range;

use nalgebra::DMatrix;

use crate::linalg::aligned_columns::{AlignedColumns, stride};
use crate::linalg::column_combination::add_product;
use crate::linalg::gemm::TallMatrix;
use crate::linalg::vector::dot;
use crate::parallel::{fill_pieces, pieces};

/// Columns of a symmetric product at a time, where only those after them count.
pub(crate) const COLUMNS: usize = 24;

/// Columns of numbers.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) height: usize,
    pub(crate) width: usize,
    /// Columns are a [`stride`] apart.
    values: AlignedColumns,
}

impl Table {
    pub(crate) fn new(height: usize) -> Self {
        Self {
            height,
            width: 0,
            values: AlignedColumns::default(),
        }
    }

    /// None as yet, with room for so many: each that comes later would have all of them move.
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

    /// Columns of zeros, brought to what `fill` makes of a few of them: it has the first one's place and their values, a [`stride`]
    /// apart.
    pub(crate) fn filled(
        height: usize,
        width: usize,
        at_a_time: usize,
        fill: impl Fn(usize, &mut [f64]) + Sync + Send,
    ) -> Self {
        let apart = stride(height);
        let mut values = AlignedColumns::zeros(width * apart);
        fill_pieces(&mut values, at_a_time * apart.max(1), |start, out| {
            fill(start / apart, out);
        });
        Self {
            height,
            width,
            values,
        }
    }

    /// One more column, in pieces.
    pub(crate) fn push_pieces<'p>(&mut self, pieces: impl Iterator<Item = &'p [f64]>) {
        let mut rest = self.values.grow(stride(self.height));
        for piece in pieces {
            let here;
            (here, rest) = rest.split_at_mut(piece.len());
            here.copy_from_slice(piece);
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

    /// Some columns.
    pub(crate) fn leading(&self, columns: Range<usize>) -> Self {
        let stride = stride(self.height);
        let mut values = AlignedColumns::with_room(columns.len() * stride);
        values.append(&self.values[columns.start * stride..columns.end * stride]);
        Self {
            height: self.height,
            width: columns.len(),
            values,
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

    /// From this row and column on, with how far apart columns begin.
    pub(crate) fn corner(&self, row: usize, column: usize) -> (&[f64], usize) {
        let stride = stride(self.height);
        (&self.values[column * stride + row..], stride)
    }

    /// Some columns from row `first` on.
    pub(crate) fn tall(&self, columns: &Range<usize>, first: usize) -> TallMatrix<'_> {
        let (values, stride) = self.corner(first, columns.start);
        TallMatrix::new(values, stride, columns.len())
    }

    /// Adds c^T G c for some rows c of some columns; G is symmetric, its columns `stride` apart.
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
            // What is above the diagonal counts for what is below it too.
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
