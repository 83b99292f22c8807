//! Columns aligned to cache lines, and matrices stored as such columns.
//!
//! Loading a 64-byte vector that crosses a cache line takes two reads.

use std::ops::{Deref, DerefMut, Range};

use crate::linalg::Matrix;
use crate::linalg::gemm::{TallMatrix, add_combination};
use crate::linalg::vector::{dot, mirrored};
use crate::parallel::{fill_pieces, pieces};

/// Numbers per cache line.
const LINE: usize = 8;

/// Distance between the starts of columns of `n` numbers: a whole number of cache lines, and no large power of two, for
/// which all columns would compete for the same cache sets.
pub(crate) fn stride(n: usize) -> usize {
    const SHARED: usize = 512;
    let lines = n.next_multiple_of(LINE);
    if n > 0 && lines.is_multiple_of(SHARED) {
        lines + LINE
    } else {
        lines
    }
}

/// Index of the first element that begins a cache line.
fn first_line(memory: &[f64]) -> usize {
    memory.as_ptr().align_offset(LINE * size_of::<f64>()) % LINE
}

/// `len` numbers of a buffer from its first cache line on. Their values are unspecified.
pub(crate) fn room(buffer: &mut Vec<f64>, len: usize) -> &mut [f64] {
    // Old values are not cleared, because the caller overwrites them.
    buffer.resize(len + LINE - 1, 0.0);
    let start = first_line(buffer);
    &mut buffer[start..start + len]
}

/// A vector of numbers whose first element begins a cache line.
///
/// Invariant: the cache line begins at `start` of `values`, which never grow beyond their capacity.
#[derive(Debug, Default)]
pub(crate) struct AlignedColumns {
    values: Vec<f64>,
    start: usize,
}

impl AlignedColumns {
    /// An empty vector with this capacity.
    pub(crate) fn with_room(len: usize) -> Self {
        let mut values = Vec::with_capacity(len + LINE - 1);
        values.resize(LINE - 1, 0.0);
        let start = first_line(&values);
        values.truncate(start);
        Self { values, start }
    }

    pub(crate) fn zeros(len: usize) -> Self {
        let mut this = Self::with_room(len);
        this.resize(len);
        this
    }

    /// Truncates, or appends zeros.
    pub(crate) fn resize(&mut self, len: usize) {
        self.reserve(len);
        self.values.resize(self.start + len, 0.0);
    }

    /// Appends `n` zeros and returns them.
    pub(crate) fn grow(&mut self, more: usize) -> &mut [f64] {
        let len = self.len();
        self.resize(len + more);
        &mut self[len..]
    }

    pub(crate) fn append(&mut self, more: &[f64]) {
        self.reserve(self.len() + more.len());
        self.values.extend_from_slice(more);
    }

    fn reserve(&mut self, len: usize) {
        if self.start + len > self.values.capacity() {
            let mut moved = Self::with_room(len.max(2 * self.len()));
            moved.values.extend_from_slice(self);
            *self = moved;
        }
    }
}

impl Deref for AlignedColumns {
    type Target = [f64];

    fn deref(&self) -> &[f64] {
        &self.values[self.start..]
    }
}

impl DerefMut for AlignedColumns {
    fn deref_mut(&mut self) -> &mut [f64] {
        &mut self.values[self.start..]
    }
}

impl Clone for AlignedColumns {
    fn clone(&self) -> Self {
        let mut copy = Self::with_room(self.len());
        copy.append(self);
        copy
    }
}

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

    pub(crate) fn of(matrix: &Matrix) -> Self {
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
        let all = self.tall(columns, rows.start).columns(&(0..rows.len()));
        for (j, own) in all.iter().enumerate() {
            // Elements above the diagonal are doubled, and elements below it left out.
            let column = &gram[j * stride..][..=j];
            let mut weights: Vec<f64> = column.iter().map(|g| 2.0 * g).collect();
            weights[j] = column[j];
            let mut product = vec![0.0; rows.len()];
            add_combination(&all, &weights, &mut product);
            for ((square, p), c) in squares.iter_mut().zip(&product).zip(*own) {
                *square += p * c;
            }
        }
    }
}

/// Writes a row-major matrix with `n_rows` rows in column-major order.
pub(crate) fn transpose(rows: &[f64], n_rows: usize, out: &mut [f64]) {
    /// Rows and columns of a tile: one cache line.
    const SIDE: usize = 8;
    let Some(width) = out.len().checked_div(n_rows) else {
        return;
    };
    fill_pieces(out, SIDE * n_rows, |start, out| {
        let first = start / n_rows;
        for tile in pieces(n_rows, SIDE) {
            for (j, column) in out.chunks_exact_mut(n_rows).enumerate() {
                for i in tile.clone() {
                    column[i] = rows[i * width + first + j];
                }
            }
        }
    });
}

/// A symmetric matrix with columns aligned to cache lines.
pub(crate) struct SymmetricMatrix {
    columns: Table,
    /// A contiguous copy.
    diagonal: Vec<f64>,
}

impl SymmetricMatrix {
    /// From the lower triangle of a square matrix.
    pub(crate) fn from_lower(lower: Matrix) -> Self {
        let diagonal = lower.diagonal().as_slice().to_vec();
        Self {
            columns: Table::of(&mirrored(lower)),
            diagonal,
        }
    }

    pub(crate) fn column(&self, j: usize) -> &[f64] {
        self.columns.column(j)
    }

    pub(crate) fn diagonal(&self) -> &[f64] {
        &self.diagonal
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begins_a_line(values: &[f64]) -> bool {
        (values.as_ptr() as usize).is_multiple_of(64)
    }

    #[test]
    fn growing_and_cloning_keep_the_alignment() {
        let mut values = AlignedColumns::default();
        for n in 0..300 {
            values.append(&[f64::from(n); 3]);
            assert!(begins_a_line(&values) && begins_a_line(&values.clone()));
        }
        let expected: Vec<f64> = (0..300).flat_map(|n| [f64::from(n); 3]).collect();
        assert_eq!(values[..], expected);
        assert_eq!(values.clone()[..], expected);
        values.resize(2);
        values.resize(5000);
        assert!(begins_a_line(&values));
        assert_eq!(values[..3], [0.0, 0.0, 0.0]);
        assert_eq!(AlignedColumns::zeros(7)[..], [0.0; 7]);
    }

    #[test]
    fn buffers_are_aligned() {
        let mut buffer = Vec::new();
        for len in [0, 1, 63, 64, 5, 10_000] {
            let room = room(&mut buffer, len);
            assert!(len == 0 || begins_a_line(room));
            assert_eq!(room.len(), len);
        }
    }

    #[test]
    fn strides_are_whole_lines_and_no_power_of_two() {
        for n in 0..2100 {
            let apart = stride(n);
            assert!(apart >= n && apart < n + 2 * LINE && apart.is_multiple_of(LINE));
            assert!(n == 0 || !apart.is_multiple_of(512));
        }
    }

    fn value(i: usize, j: usize) -> f64 {
        ((3 * i + 5 * j) as f64).sin()
    }

    #[test]
    fn tables_hold_their_columns() {
        for (height, width) in [(1, 1), (5, 3), (9, 50), (600, 4), (0, 2)] {
            let matrix = Matrix::from_fn(height, width, value);
            let apart = stride(height);
            let mut pushed = Table::new(height);
            for j in 0..width {
                let column: Vec<f64> = (0..height).map(|i| value(i, j)).collect();
                pushed.push_pieces(column.chunks(4));
            }
            let filled = Table::filled(height, width, 3, |first, out| {
                for (k, out) in out.chunks_exact_mut(apart.max(1)).enumerate() {
                    (0..height).for_each(|i| out[i] = value(i, first + k));
                }
            });
            let mut extended = Table::new(height);
            extended.extend(Table::of(&matrix.columns(0, 1).into_owned()));
            extended.extend(Table::of(&matrix.columns(1, width - 1).into_owned()));
            for table in [Table::of(&matrix), pushed, filled, extended] {
                assert_eq!((table.height, table.width), (height, width));
                for (j, column) in matrix.column_iter().enumerate() {
                    assert_eq!(table.column(j), column.as_slice());
                    assert!(height == 0 || begins_a_line(table.column(j)));
                }
                let right: Vec<f64> = (0..height).map(|i| value(i, 99)).collect();
                let products = matrix.tr_mul(&Matrix::from_column_slice(height, 1, &right));
                let found = table.products(&right);
                assert!(
                    found
                        .iter()
                        .zip(&products)
                        .all(|(a, b)| (a - b).abs() < 1e-12)
                );
            }
        }
    }

    #[test]
    fn columns_and_diagonal_come_from_the_lower_triangle() {
        let value = |i: usize, j: usize| (10 * i.max(j) + i.min(j)) as f64;
        for n in [1, 3, 20] {
            let lower = Matrix::from_fn(n, n, |i, j| if i < j { f64::NAN } else { value(i, j) });
            let matrix = SymmetricMatrix::from_lower(lower);
            assert_eq!(matrix.diagonal().len(), n);
            for j in 0..n {
                let column: Vec<f64> = (0..n).map(|i| value(i, j)).collect();
                assert_eq!(matrix.column(j)[..n], column);
                assert!(value(j, j).total_cmp(&matrix.diagonal()[j]).is_eq());
            }
        }
    }
}
