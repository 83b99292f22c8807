//! Sums over rows under a softmax: Gram matrices by pairs of classes, and passes over the design.

use std::ops::Range;

use crate::Result;
use crate::data::class_index::ByClass;
use crate::data::design::Design;
use crate::data::observations::GRAM_COLUMNS;
use crate::data::row_blocks::over_blocks;
use crate::data::softmax_rows::Rows;
use crate::linalg::gemm::{TallMatrix, add_lower_transpose_product, add_transpose_product};
use crate::parallel::fill_pieces_of;

/// Sums of a pass over the design, over original columns.
pub(crate) struct Pass {
    /// Squares, one vector of length K for each set of weights.
    pub(crate) diag: Vec<Vec<f64>>,
    /// Residuals, class after class: length K C.
    pub(crate) gradient: Vec<f64>,
    /// For each column on the right, of length K.
    pub(crate) products: Vec<Vec<f64>>,
}

impl Rows {
    /// Adds the share of some rows to the lower triangle of the Gram matrix, in the order of `groups`; `columns` holds
    /// these rows alone.
    pub(crate) fn add_gram(
        &self,
        columns: &[f64],
        stride: usize,
        rows: &Range<usize>,
        groups: &ByClass,
        out: &mut [f64],
    ) {
        let (m, height) = (groups.len(), rows.len());
        let column = |k: usize| &columns[k * stride..k * stride + height];
        let mut left = Vec::with_capacity(m * height);
        for c in 0..self.n_classes() {
            let p = &self.p(c)[rows.clone()];
            groups
                .of(c)
                .for_each(|k| extend_product(&mut left, column(k), p, 1.0));
        }
        fill_pieces_of(m * m * height, out, GRAM_COLUMNS * m, |start, out| {
            let mine = start / m..(start + out.len()) / m;
            for c in 0..self.n_classes() {
                let Range { start: first, end } = groups.of(c);
                let here = first.max(mine.start)..end.min(mine.end);
                if here.is_empty() {
                    continue;
                }
                let out = &mut out[(here.start - mine.start) * m..];
                let mut right = Vec::with_capacity(here.len() * height);
                // Within a class: w p (1 - p).
                let own = &self.own(c)[rows.clone()];
                here.clone()
                    .for_each(|k| extend_product(&mut right, column(k), own, 1.0));
                let below =
                    TallMatrix::new(&columns[here.start * stride..], stride, end - here.start);
                let tall = TallMatrix::new(&right, height, here.len());
                add_lower_transpose_product(below, tall, height, &mut out[here.start..], m);
                if end == m {
                    continue;
                }
                // Between two: -p w p.
                right.clear();
                let other = &self.weighted(c)[rows.clone()];
                here.clone()
                    .for_each(|k| extend_product(&mut right, column(k), other, -1.0));
                let below = TallMatrix::new(&left[end * height..], height, m - end);
                let tall = TallMatrix::new(&right, height, here.len());
                add_transpose_product(below, tall, height, &mut out[end..], m);
            }
        });
    }

    /// `W_cd phi_d` of every function of `groups`, one after another, for one class c and all rows.
    pub(crate) fn spread_over(
        &self,
        c: usize,
        columns: &[f64],
        groups: &ByClass,
        out: &mut Vec<f64>,
    ) {
        let n = self.n();
        let mut cross = vec![0.0; n];
        for d in 0..self.n_classes() {
            for (cross, (p, w)) in cross.iter_mut().zip(self.p(c).iter().zip(self.weighted(d))) {
                *cross = -p * w;
            }
            let weights = if c == d { self.own(c) } else { &cross };
            groups
                .of(d)
                .for_each(|k| extend_product(out, &columns[k * n..(k + 1) * n], weights, 1.0));
        }
    }

    /// One pass: squares under each of `n_weights` sets of weights, residuals, and products with columns on the `right`.
    pub(crate) fn pass(
        &self,
        design: &dyn Design,
        check: impl Fn() -> Result<()> + Sync,
        (weights, n_weights): (&[f64], usize),
        right: &[f64],
    ) -> Result<Pass> {
        let n = self.n();
        let n_right = right.len() / n;
        let residuals: Vec<&[f64]> = (0..self.n_classes()).map(|c| self.residual(c)).collect();
        let residuals = residuals.concat();
        let n_products = n_weights + self.n_classes() + n_right;
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
                (values, &residuals[..], self.n_classes()),
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
        let mut diag = sums.products;
        let mut gradient = diag.split_off(n_weights);
        let products = gradient.split_off(self.n_classes());
        Ok(Pass {
            diag,
            gradient: gradient.concat(),
            products,
        })
    }
}

/// Appends `c a b`, element by element.
fn extend_product(out: &mut Vec<f64>, a: &[f64], b: &[f64], c: f64) {
    out.extend(a.iter().zip(b).map(|(a, b)| c * a * b));
}
