//! A symmetric matrix that is read by columns again and again.

use std::ops::Index;

use nalgebra::DMatrix;

use super::aligned::{Aligned, stride};
use super::parallel::{fill_pieces, pieces};

/// Columns that one thread fills at a time.
const COLUMNS: usize = 32;
/// Rows and columns of a tile above the diagonal: what is read, and written, are lines of the cache.
const SIDE: usize = 8;

/// A symmetric matrix with all its elements, its columns beginning with lines of the cache.
pub(crate) struct Symmetric {
    size: usize,
    stride: usize,
    values: Aligned,
}

impl Symmetric {
    /// From the lower triangle of a matrix; what is above its diagonal does not count.
    pub(crate) fn from_lower(lower: &DMatrix<f64>) -> Self {
        let (size, stride) = (lower.nrows(), stride(lower.nrows()));
        let below = lower.as_slice();
        let mut values = Aligned::zeros(size * stride);
        fill_pieces(&mut values, COLUMNS * stride.max(1), |start, out| {
            let first = start / stride;
            let width = out.len() / stride;
            for start in (0..first).step_by(SIDE) {
                for columns in pieces(width, SIDE) {
                    // `first` is a multiple of the side.
                    let mut tile = [[0.0; SIDE]; SIDE];
                    for (i, row) in tile.iter_mut().enumerate() {
                        let place = (start + i) * size + first;
                        row[..columns.len()].copy_from_slice(&below[place..][columns.clone()]);
                    }
                    for (k, j) in columns.enumerate() {
                        let out = &mut out[j * stride + start..][..SIDE];
                        let column: [f64; SIDE] = std::array::from_fn(|i| tile[i][k]);
                        out.copy_from_slice(&column);
                    }
                }
            }
            for j in 0..width {
                let column = &below[(first + j) * size..][..size];
                let whole = first + j;
                out[j * stride..][whole..size].copy_from_slice(&column[whole..]);
                // Within the piece.
                for i in first..whole {
                    out[j * stride + i] = below[i * size + whole];
                }
            }
        });
        Self {
            size,
            stride,
            values,
        }
    }

    pub(crate) fn column(&self, j: usize) -> &[f64] {
        &self.values[j * self.stride..][..self.size]
    }

    pub(crate) fn diagonal(&self) -> Vec<f64> {
        (0..self.size).map(|i| self[(i, i)]).collect()
    }
}

impl Index<(usize, usize)> for Symmetric {
    type Output = f64;

    fn index(&self, (i, j): (usize, usize)) -> &f64 {
        &self.column(j)[i]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_those_of_the_lower_triangle() {
        for size in [0, 1, 7, 8, 31, 32, 33, 101] {
            let lower = DMatrix::from_fn(size, size, |i, j| {
                if i < j {
                    f64::NAN
                } else {
                    (i * size + j) as f64
                }
            });
            let whole = Symmetric::from_lower(&lower);
            for i in 0..size {
                for j in 0..size {
                    assert_eq!(
                        whole[(i, j)].to_bits(),
                        lower[(i.max(j), i.min(j))].to_bits()
                    );
                }
            }
            assert_eq!(whole.diagonal(), lower.diagonal().as_slice());
        }
    }
}
