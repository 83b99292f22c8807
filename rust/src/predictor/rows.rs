//! Predictions at rows: one by one without taking memory, or many side by side.
//!
//! Alone or in company, a row goes through the same operations in the same order.

use std::ops::Range;

use super::link::{Link, logistic, softmax};
use super::scratch::with_scratch;
use super::spread::{Functions, axpy};
use super::{Block, Output, Predictor};
use crate::linalg::simd::{Simd, WithSimd, dispatch};
use crate::{Error, Result};

/// Fewer rows than this are predicted one by one: side by side they would leave most of a vector empty.
const FEW: usize = 8;
/// Rows side by side: all numbers for them are to stay in the second-level cache, and their features in the first, for
/// every centre passes over them.
const MOST_ROWS: usize = 512;
const CACHED: usize = 1 << 15;
const NEAR: usize = 1 << 11;
/// A multiple of the points that a kernel takes together.
const WHOLE: usize = 32;
/// Kernel terms that are worth a thread's while.
const WORTH_A_THREAD: usize = 1 << 18;

/// What is asked, and where the answers go: row after row.
enum Answers<'a> {
    /// Means of regression, or probabilities.
    Predicted(&'a mut [f64]),
    /// Means of regression and their standard deviations.
    WithStd(&'a mut [f64], &'a mut [f64]),
    /// Linear predictors; of a probit with two classes their difference.
    Decisions(&'a mut [f64]),
    /// Numbers of the most probable classes.
    Classes(&'a mut [usize]),
}

impl Answers<'_> {
    /// Those of the first rows and those of the others.
    fn split(self, n_rows: usize, row: usize) -> (Self, Self) {
        fn cut<T>(all: &mut [T], n_rows: usize, row: usize) -> (&mut [T], &mut [T]) {
            all.split_at_mut(all.len() / n_rows * row)
        }
        match self {
            Self::Predicted(all) => {
                let (a, b) = cut(all, n_rows, row);
                (Self::Predicted(a), Self::Predicted(b))
            }
            Self::WithStd(mean, std) => {
                let ((a, b), (c, d)) = (cut(mean, n_rows, row), cut(std, n_rows, row));
                (Self::WithStd(a, c), Self::WithStd(b, d))
            }
            Self::Decisions(all) => {
                let (a, b) = cut(all, n_rows, row);
                (Self::Decisions(a), Self::Decisions(b))
            }
            Self::Classes(all) => {
                let (a, b) = cut(all, n_rows, row);
                (Self::Classes(a), Self::Classes(b))
            }
        }
    }
}

impl Predictor {
    /// The prediction for one row, of a model that predicts one number: the mean, or of two classes the probability of
    /// the second.
    ///
    /// # Errors
    /// [`Error::Shape`] if x has not `n_features` numbers, [`Error::NonFinite`] if one is NaN or infinite,
    /// [`Error::Invalid`] if the model predicts several numbers.
    pub fn predict_one(&self, x: &[f64]) -> Result<f64> {
        let mut out = [0.0; 2];
        match self.n_predicted() {
            1 => self.predict_into(x, &mut out[..1]).map(|()| out[0]),
            2 if self.is_classifier() => self.predict_into(x, &mut out).map(|()| out[1]),
            n => Err(Error::Invalid {
                what: format!(
                    "predict_one is for models of one number, this one predicts {n}; use predict_into"
                ),
            }),
        }
    }

    /// The mean of the target at each row: one number for each output, or the probability of each class.
    ///
    /// # Errors
    /// [`Error::Shape`] if `x` is not a number of whole rows, or `out` has not
    /// [`n_predicted`](Predictor::n_predicted) numbers for each; [`Error::NonFinite`] if a number in `x` is NaN or
    /// infinite, and then some of `out` may have been written.
    pub fn predict_into(&self, x: &[f64], out: &mut [f64]) -> Result<()> {
        let rows = self.check_rows(x)?;
        Error::check_len("out", rows * self.n_predicted(), out.len())?;
        self.answer(x, rows, Answers::Predicted(out))
    }

    /// Mean and standard deviation of the target at each row, a number for each output.
    ///
    /// # Errors
    /// As [`predict_into`](Predictor::predict_into), and [`Error::Invalid`] for classes.
    pub fn predict_std_into(&self, x: &[f64], mean: &mut [f64], std: &mut [f64]) -> Result<()> {
        let rows = self.check_rows(x)?;
        if self.is_classifier() {
            let what = "standard deviations are for regression; classes have probabilities".into();
            return Err(Error::Invalid { what });
        }
        Error::check_len("mean", rows * self.n_outputs(), mean.len())?;
        Error::check_len("std", rows * self.n_outputs(), std.len())?;
        self.answer(x, rows, Answers::WithStd(mean, std))
    }

    /// The probability of each class at each row.
    ///
    /// # Errors
    /// As [`predict_into`](Predictor::predict_into), and [`Error::Invalid`] for regression.
    pub fn predict_proba_into(&self, x: &[f64], out: &mut [f64]) -> Result<()> {
        self.check_classes()?;
        self.predict_into(x, out)
    }

    /// Linear predictors at each row, a number for each output; of a probit with two classes their difference, a single
    /// number.
    ///
    /// # Errors
    /// As [`predict_into`](Predictor::predict_into), with [`n_decisions`](Predictor::n_decisions) numbers for each row.
    pub fn decision_into(&self, x: &[f64], out: &mut [f64]) -> Result<()> {
        let rows = self.check_rows(x)?;
        Error::check_len("out", rows * self.n_decisions(), out.len())?;
        self.answer(x, rows, Answers::Decisions(out))
    }

    /// The number of the most probable class at each row, counted from 0.
    ///
    /// # Errors
    /// As [`predict_into`](Predictor::predict_into), and [`Error::Invalid`] for regression.
    pub fn classify_into(&self, x: &[f64], out: &mut [usize]) -> Result<()> {
        self.check_classes()?;
        let rows = self.check_rows(x)?;
        Error::check_len("out", rows, out.len())?;
        self.answer(x, rows, Answers::Classes(out))
    }

    /// Numbers in a row of [`Predictor::decision_into`].
    #[must_use]
    pub fn n_decisions(&self) -> usize {
        if self.is_pair() { 1 } else { self.n_outputs() }
    }

    /// Whether it has two scores of which only the difference counts.
    fn is_pair(&self) -> bool {
        self.link() == Link::Probit && self.n_outputs() == 2
    }

    fn link(&self) -> Link {
        self.parts.header.link
    }

    fn check_classes(&self) -> Result<()> {
        if self.is_classifier() {
            return Ok(());
        }
        let what = "this model predicts numbers, not classes; use predict_into".into();
        Err(Error::Invalid { what })
    }

    fn check_rows(&self, x: &[f64]) -> Result<usize> {
        let rows = x.len() / self.n_features();
        Error::check_len("x", rows.max(1) * self.n_features(), x.len()).or_else(|error| {
            // No rows at all are a fair question.
            if x.is_empty() { Ok(()) } else { Err(error) }
        })?;
        Ok(rows)
    }

    /// Cuts the rows into parts that are worth a thread.
    fn answer(&self, x: &[f64], rows: usize, answers: Answers<'_>) -> Result<()> {
        let terms = (self.n_functions * self.n_features()).max(1);
        self.cut(x, rows, answers, (WORTH_A_THREAD / terms).max(MOST_ROWS))
    }

    fn cut(&self, x: &[f64], rows: usize, answers: Answers<'_>, piece: usize) -> Result<()> {
        if rows <= piece {
            return self.piece(x, rows, answers);
        }
        let row = rows.div_ceil(piece) / 2 * piece;
        let (first, second) = x.split_at(row * self.n_features());
        let (to_first, to_second) = answers.split(rows, row);
        let one = || self.cut(first, row, to_first, piece);
        let other = || self.cut(second, rows - row, to_second, piece);
        #[cfg(feature = "parallel")]
        let (one, other) = if rayon::current_thread_index().is_some() {
            rayon::join(one, other)
        } else {
            (one(), other())
        };
        #[cfg(not(feature = "parallel"))]
        let (one, other) = (one(), other());
        one.and(other)
    }

    fn piece(&self, x: &[f64], rows: usize, mut answers: Answers<'_>) -> Result<()> {
        // Here, where what is read stays in the cache until it is used.
        Error::check_finite("x", x)?;
        let with_spread = self.needs_spread(&answers);
        if rows < FEW {
            for row in 0..rows {
                let x = &x[row * self.n_features()..][..self.n_features()];
                self.one(x, with_spread, row, &mut answers)?;
            }
            return Ok(());
        }
        let numbers = self.n_functions + self.n_outputs() + self.width(with_spread) + 1;
        let height = (NEAR / self.n_features()).min(MOST_ROWS) / WHOLE * WHOLE;
        let height = height.max(WHOLE).min(CACHED / numbers).max(1);
        for start in (0..rows).step_by(height) {
            let range = start..(start + height).min(rows);
            self.some(x, range, with_spread, &mut answers)?;
        }
        Ok(())
    }

    /// Whether variances matter for these answers.
    fn needs_spread(&self, answers: &Answers<'_>) -> bool {
        match answers {
            Answers::Predicted(_) => self.is_classifier(),
            Answers::WithStd(..) => true,
            Answers::Decisions(_) => false,
            // Of two classes the more probable one is that of the sign, however uncertain.
            Answers::Classes(_) => self.n_classes() > 2 && !self.spread.is_none(),
        }
    }

    fn width(&self, with_spread: bool) -> usize {
        if with_spread {
            self.spread.width(self.n_outputs())
        } else {
            0
        }
    }

    /// One row: along the functions.
    fn one(&self, x: &[f64], with_spread: bool, row: usize, to: &mut Answers<'_>) -> Result<()> {
        let (m, n) = (self.n_functions, self.n_outputs());
        let n_weights = self.starts[n];
        let width = self.width(with_spread);
        let (n_psi, n_work) = if width > 0 {
            (n_weights, self.spread.work(n_weights))
        } else {
            (0, 0)
        };
        with_scratch(
            m + n + width + self.own(width) + n_psi + n_work,
            |room, _| {
                let (phi, room) = room.split_at_mut(m);
                let (eta, room) = room.split_at_mut(n);
                let (spread, room) = room.split_at_mut(width);
                let (own, room) = room.split_at_mut(self.own(width));
                let (psi, work) = room.split_at_mut(n_psi);
                self.functions_at_row(x, phi);
                for (eta, output) in eta.iter_mut().zip(&self.outputs) {
                    *eta = output.at_row(phi);
                }
                if width > 0 {
                    for (output, &start) in self.outputs.iter().zip(&self.starts) {
                        output.gather(phi, &mut psi[start..][..output.weights.len()]);
                    }
                    self.spread.at_row(psi, &self.starts, work, spread);
                }
                self.finish((1, eta, spread), own, row..row + 1, to)
            },
        )
    }

    fn functions_at_row(&self, x: &[f64], phi: &mut [f64]) {
        let mut rest = phi;
        for block in &self.blocks {
            let (to, after) = rest.split_at_mut(block.len());
            match block {
                Block::Constant => to[0] = 1.0,
                Block::Columns(columns) => {
                    to.iter_mut().zip(columns).for_each(|(v, &j)| *v = x[j]);
                }
                // Kernels are symmetric, to the bit.
                Block::Centres { kernel, points, .. } => {
                    kernel.column_into(points, x, 0..points.n_points(), to);
                }
            }
            rest = after;
        }
    }

    /// Some rows: along the rows.
    fn some(
        &self,
        x: &[f64],
        range: Range<usize>,
        with_spread: bool,
        to: &mut Answers<'_>,
    ) -> Result<()> {
        let (m, n, rows) = (self.n_functions, self.n_outputs(), range.len());
        let width = self.width(with_spread);
        with_scratch(
            rows * (m + n + width + 1) + self.own(width),
            |room, points| {
                let (phi, room) = room.split_at_mut(rows * m);
                let (eta, room) = room.split_at_mut(rows * n);
                let (spread, room) = room.split_at_mut(rows * width);
                let (own, work) = room.split_at_mut(self.own(width));
                let d = self.n_features();
                points.refill(&x[range.start * d..range.end * d], rows, d);
                let mut rest = &mut *phi;
                for block in &self.blocks {
                    let (to, after) = rest.split_at_mut(rows * block.len());
                    self.functions_at_rows(block, points, to);
                    rest = after;
                }
                for (eta, output) in eta.chunks_exact_mut(rows).zip(&self.outputs) {
                    dispatch(Weigh {
                        output,
                        phi: output.of(phi, rows),
                        eta,
                    });
                }
                if width > 0 {
                    let of = |c: usize| self.outputs[c].of(phi, rows);
                    self.spread.at_rows(rows, &self.starts, of, work, spread);
                }
                self.finish((rows, eta, spread), own, range, to)
            },
        )
    }

    fn functions_at_rows(&self, block: &Block, x: &crate::Points, out: &mut [f64]) {
        let rows = x.n_points();
        match block {
            Block::Constant => out.fill(1.0),
            Block::Columns(columns) => {
                for (out, &j) in out.chunks_exact_mut(rows).zip(columns) {
                    out.copy_from_slice(x.feature(j));
                }
            }
            Block::Centres { kernel, table, .. } => {
                let centres = self.parts.tables.get(table);
                let centres = centres.map_or(&[][..], |table| &table.values);
                let centres = centres.chunks_exact(self.n_features());
                for (out, centre) in out.chunks_exact_mut(rows).zip(centres) {
                    kernel.column_into(x, centre, 0..rows, out);
                }
            }
        }
    }

    /// Numbers that [`Predictor::finish`] needs for a row.
    fn own(&self, width: usize) -> usize {
        if self.is_classifier() {
            self.n_outputs() + width + self.n_classes()
        } else {
            0
        }
    }

    /// From linear predictors and their spread, output after output, to answers at these rows.
    fn finish(
        &self,
        found: (usize, &[f64], &[f64]),
        own: &mut [f64],
        range: Range<usize>,
        to: &mut Answers<'_>,
    ) -> Result<()> {
        let (rows, eta, spread) = found;
        let (n, link) = (self.n_outputs(), self.link());
        let copy = |out: &mut [f64], of: &dyn Fn(f64) -> f64| {
            for (r, out) in out.chunks_exact_mut(n).enumerate() {
                let row = out.iter_mut().enumerate();
                row.for_each(|(c, out)| *out = of(eta[c * rows + r]));
            }
        };
        match to {
            Answers::Predicted(out) if self.is_classifier() => {
                let n = self.n_classes();
                let out = &mut out[range.start * n..range.end * n];
                return self.probabilities(found, own, |r, p| {
                    out[r * n..][..n].copy_from_slice(p);
                });
            }
            Answers::Predicted(out) => {
                copy(&mut out[range.start * n..range.end * n], &|eta| {
                    link.mean(eta)
                });
            }
            Answers::WithStd(means, stds) => {
                let range = range.start * n..range.end * n;
                copy(&mut means[range.clone()], &|eta| link.mean(eta));
                for (r, stds) in stds[range].chunks_exact_mut(n).enumerate() {
                    for (c, std) in stds.iter_mut().enumerate() {
                        let variance = spread.get(c * rows + r).copied().unwrap_or(0.0);
                        *std = link.std(eta[c * rows + r], variance, self.noise[c]);
                    }
                }
            }
            Answers::Decisions(out) if self.is_pair() => {
                for (r, out) in out[range].iter_mut().enumerate() {
                    *out = eta[rows + r] - eta[r];
                }
            }
            Answers::Decisions(out) => {
                copy(&mut out[range.start * n..range.end * n], &|eta| eta);
            }
            Answers::Classes(out) => return self.winners(found, own, &mut out[range]),
        }
        Ok(())
    }

    /// Hands over the probabilities of the classes at each of these rows.
    fn probabilities(
        &self,
        (rows, eta, spread): (usize, &[f64], &[f64]),
        own: &mut [f64],
        mut take: impl FnMut(usize, &[f64]),
    ) -> Result<()> {
        let (own_eta, room) = own.split_at_mut(self.n_outputs());
        let (own_spread, p) = room.split_at_mut(spread.len() / rows);
        if self.link() == Link::Probit {
            let all = self.probit.probabilities(eta, self.n_classes())?;
            for r in 0..rows {
                p.iter_mut()
                    .enumerate()
                    .for_each(|(c, p)| *p = all[c * rows + r]);
                take(r, p);
            }
            return Ok(());
        }
        let finish = if self.link() == Link::Softmax {
            softmax
        } else {
            logistic
        };
        for r in 0..rows {
            for (own, all) in [(&mut *own_eta, eta), (&mut *own_spread, spread)] {
                let own = own.iter_mut().enumerate();
                own.for_each(|(c, v)| *v = all[c * rows + r]);
            }
            finish(own_eta, own_spread, p);
            take(r, p);
        }
        Ok(())
    }

    /// The most probable classes, the first of equals.
    fn winners(
        &self,
        found: (usize, &[f64], &[f64]),
        own: &mut [f64],
        out: &mut [usize],
    ) -> Result<()> {
        let ((rows, eta, spread), n) = (found, self.n_outputs());
        let largest = |value: &dyn Fn(usize) -> f64| {
            (1..n).fold(0, |best, c| if value(c) > value(best) { c } else { best })
        };
        for (r, out) in out.iter_mut().enumerate() {
            *out = if n == 1 {
                usize::from(eta[r] > 0.0)
            } else {
                largest(&|c| eta[c * rows + r])
            };
        }
        if spread.is_empty() {
            return Ok(());
        }
        // More uncertain scores count less.
        self.probabilities(found, own, |r, p| out[r] = largest(&|c| p[c]))
    }
}

impl Block {
    fn len(&self) -> usize {
        match self {
            Self::Constant => 1,
            Self::Columns(columns) => columns.len(),
            Self::Centres { points, .. } => points.n_points(),
        }
    }
}

impl Output {
    fn at_row(&self, phi: &[f64]) -> f64 {
        let add = |sum: f64, (w, v): (&f64, &f64)| sum + w * v;
        match &self.functions {
            None => self.weights.iter().zip(phi).fold(0.0, add),
            Some(functions) => {
                let phi = functions.iter().map(|&j| &phi[j]);
                self.weights.iter().zip(phi).fold(0.0, add)
            }
        }
    }

    /// Its functions side by side.
    fn gather(&self, phi: &[f64], psi: &mut [f64]) {
        match &self.functions {
            None => psi.copy_from_slice(phi),
            Some(functions) => {
                psi.iter_mut()
                    .zip(functions)
                    .for_each(|(v, &j)| *v = phi[j]);
            }
        }
    }

    fn of<'a>(&'a self, phi: &'a [f64], rows: usize) -> Functions<'a> {
        Functions {
            values: phi,
            rows,
            chosen: self.functions.as_deref(),
        }
    }
}

/// A linear predictor at rows side by side.
struct Weigh<'a> {
    output: &'a Output,
    phi: Functions<'a>,
    eta: &'a mut [f64],
}

impl WithSimd for Weigh<'_> {
    type Output = ();

    #[inline(always)]
    #[allow(clippy::inline_always)] // see `dispatch`
    fn with_simd<S: Simd>(self, _: S) {
        self.eta.fill(0.0);
        for (k, &w) in self.output.weights.iter().enumerate() {
            axpy(w, self.phi.column(k), self.eta);
        }
    }
}
