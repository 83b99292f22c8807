//! Sums over rows under a softmax: Gram matrices by pairs of classes, and passes over the design.

use std::borrow::Cow;
use std::ops::Range;

use nalgebra::DMatrix;

use crate::Result;
use crate::data::design::Design;
use crate::data::observations::GRAM_COLUMNS;
use crate::data::row_blocks::over_blocks;
use crate::data::softmax_rows::SoftmaxRows;
use crate::linalg::gemm::{TallMatrix, add_lower_transpose_product, add_transpose_product};
use crate::linalg::vector::mirror;
use crate::parallel::fill_pieces_of;

/// A list of expanded functions (`c * n_basis + j` adds function j to the logit of class c), sorted by class.
///
/// Invariant: `places` are positions in the list and `functions` the j of each; those of class c are at `bounds[c]..bounds[c + 1]` of
/// both.
#[derive(Debug, Default)]
pub(crate) struct ByClass {
    pub(crate) places: Vec<usize>,
    pub(crate) functions: Vec<usize>,
    bounds: Vec<usize>,
}

impl ByClass {
    pub(crate) fn new(list: &[usize], n_basis: usize, n_classes: usize) -> Self {
        let mut places: Vec<usize> = (0..list.len()).collect();
        places.sort_by_key(|&k| list[k] / n_basis);
        let bound = |c| places.partition_point(|&k| list[k] / n_basis < c);
        Self {
            functions: places.iter().map(|&k| list[k] % n_basis).collect(),
            bounds: (0..=n_classes).map(bound).collect(),
            places,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// The sorted positions of a class.
    pub(crate) fn of(&self, class: usize) -> Range<usize> {
        self.bounds[class]..self.bounds[class + 1]
    }

    /// A symmetric matrix in the order of the list, from its lower triangle in sorted order.
    pub(crate) fn unsorted(&self, mut sorted: DMatrix<f64>) -> DMatrix<f64> {
        mirror(&mut sorted);
        let m = self.len();
        let mut out = DMatrix::zeros(m, m);
        for (b, &to) in self.places.iter().enumerate() {
            for (a, &from) in self.places.iter().enumerate() {
                out[(from, to)] = sorted[(a, b)];
            }
        }
        out
    }
}

impl SoftmaxRows {
    /// Adds the contribution of some rows to the lower triangle of the Gram matrix, in the order of `groups`; `columns` hold these rows
    /// only.
    pub(crate) fn add_gram(
        &self,
        columns: &[&[f64]],
        rows: &Range<usize>,
        groups: &ByClass,
        out: &mut [f64],
    ) {
        let (m, height) = (groups.len(), rows.len());
        // Some columns times the weights of the rows, and a sign.
        let weighted = |these: Range<usize>, weights: &[f64], sign: f64| {
            let mut out = Vec::with_capacity(these.len() * height);
            for column in &columns[these] {
                extend_product(&mut out, column, &weights[rows.clone()], sign);
            }
            out
        };
        let left = (0..self.p.len()).map(|c| weighted(groups.of(c), &self.p[c], 1.0));
        let left: Vec<f64> = left.collect::<Vec<_>>().concat();
        fill_pieces_of(m * m * height, out, GRAM_COLUMNS * m, |start, out| {
            let mine = start / m..(start + out.len()) / m;
            for c in 0..self.p.len() {
                let Range { start: first, end } = groups.of(c);
                let here = first.max(mine.start)..end.min(mine.end);
                if here.is_empty() {
                    continue;
                }
                let out = &mut out[(here.start - mine.start) * m..];
                // Within a class: w p (1 - p).
                let right = weighted(here.clone(), &self.own[c], 1.0);
                let right = TallMatrix::new(&right, height, here.len());
                let below = TallMatrix::listed(&columns[here.start..end]);
                add_lower_transpose_product(below, right, height, &mut out[here.start..], m);
                if end == m {
                    continue;
                }
                // Between two classes: -p w p.
                let right = weighted(here.clone(), &self.weighted[c], -1.0);
                let right = TallMatrix::new(&right, height, here.len());
                let below = TallMatrix::new(&left[end * height..], height, m - end);
                add_transpose_product(below, right, height, &mut out[end..], m);
            }
        });
    }

    /// Appends `W_cd phi_d` of every function of `groups`, at all rows, for one class c.
    pub(crate) fn extend_weighted(
        &self,
        c: usize,
        columns: &[Cow<'_, [f64]>],
        groups: &ByClass,
        out: &mut Vec<f64>,
    ) {
        for d in 0..self.p.len() {
            let pairs = self.p[c].iter().zip(&self.weighted[d]);
            let cross: Vec<f64> = pairs.map(|(p, w)| -p * w).collect();
            let weights = if c == d { &self.own[c] } else { &cross };
            for column in &columns[groups.of(d)] {
                extend_product(out, column, weights, 1.0);
            }
        }
    }

    /// One pass over original columns. Returns vectors of length K: squares under each of `n_weights` sets of weights, products with the
    /// residuals of each class, and products with each column on the `right`.
    pub(crate) fn pass(
        &self,
        design: &dyn Design,
        check: impl Fn() -> Result<()> + Sync,
        (weights, n_weights): (&[f64], usize),
        right: &[f64],
    ) -> Result<Vec<Vec<f64>>> {
        let n = self.p[0].len();
        let n_right = right.len() / n;
        let residuals = self.residual.concat();
        let n_products = n_weights + self.p.len() + n_right;
        let sums = over_blocks(design, n_products, check, |block, diag, products| {
            let (rows, width) = (&block.rows, diag.len());
            let mut squares = Vec::with_capacity(width * rows.len());
            for c in 0..width {
                squares.extend(block.values.column(c, rows.len()).iter().map(|v| v * v));
            }
            let squares = TallMatrix::new(&squares, rows.len(), width);
            let values = TallMatrix::new(block.values.data, block.values.stride, width);
            let mut products = products;
            for (left, right, count) in [
                (squares, weights, n_weights),
                (values, &residuals[..], self.p.len()),
                (values, right, n_right),
            ] {
                let (out, rest) = products.split_at_mut(count * width);
                if count > 0 {
                    let right = TallMatrix::new(&right[rows.start..], n, count);
                    add_transpose_product(left, right, rows.len(), out, width);
                }
                products = rest;
            }
        })?;
        Ok(sums.products)
    }
}

/// Appends `c a b`, element by element.
fn extend_product(out: &mut Vec<f64>, a: &[f64], b: &[f64], c: f64) {
    out.extend(a.iter().zip(b).map(|(a, b)| c * a * b));
}
