//! The prediction methods: validation, tasks for threads, batches of rows, and the requested predictions.
//!
//! A row is evaluated by the same operations in the same order in any batch, so that its bits do not depend on other rows.

use std::cell::Cell;
use std::ops::Range;

use crate::kernel::Points;
use crate::likelihood::link::{Link, logistic, softmax};
use crate::likelihood::probit::Workspace;
use crate::predictor::variance::{Functions, combine};
use crate::predictor::{Block, Growth, Output, Predictor};
use crate::{Error, Result};

/// Fewer rows than this are batches of one row, because together they would leave most vector lanes empty.
const MIN_BATCH_ROWS: usize = 8;
/// Most rows of a batch.
const MAX_BATCH_ROWS: usize = 512;
/// Most numbers of a batch: they stay in the second-level cache.
const MAX_BATCH_NUMBERS: usize = 1 << 15;
/// Most feature values of a batch: they stay in the first-level cache while all centres are evaluated.
const MAX_BATCH_FEATURES: usize = 1 << 11;
/// The rows of a batch are a multiple of this: the points that a kernel evaluates together.
const BATCH_MULTIPLE: usize = 32;
/// Fewest kernel terms per task of a thread.
const MIN_TASK_TERMS: usize = 1 << 18;

/// The requested predictions and the row-major arrays for them.
pub(crate) enum Request<'a> {
    /// Means of regression, or probabilities.
    Predicted(&'a mut [f64]),
    /// Means of regression and their standard deviations.
    WithStd(&'a mut [f64], &'a mut [f64]),
    /// Linear predictors; for a probit with two classes their difference.
    Decisions(&'a mut [f64]),
    /// Indices of the most probable classes.
    Classes(&'a mut [usize]),
}

impl<'a> Request<'a> {
    /// Splits the arrays into the first `row` rows and the others.
    fn split(self, n_rows: usize, row: usize) -> (Self, Self) {
        fn halves<T>(all: &mut [T], n_rows: usize, row: usize) -> (&mut [T], &mut [T]) {
            all.split_at_mut(all.len() / n_rows * row)
        }
        let both = |all: &'a mut [f64], of: fn(&'a mut [f64]) -> Self| {
            let (first, second) = halves(all, n_rows, row);
            (of(first), of(second))
        };
        match self {
            Self::Predicted(all) => both(all, Self::Predicted),
            Self::Decisions(all) => both(all, Self::Decisions),
            Self::WithStd(mean, std) => {
                let ((a, b), (c, d)) = (halves(mean, n_rows, row), halves(std, n_rows, row));
                (Self::WithStd(a, c), Self::WithStd(b, d))
            }
            Self::Classes(all) => {
                let (a, b) = halves(all, n_rows, row);
                (Self::Classes(a), Self::Classes(b))
            }
        }
    }
}

impl Predictor {
    /// The prediction for one row by a model that predicts one number: the mean, or the probability of the second of two
    /// classes.
    ///
    /// # Errors
    /// [`Error::Shape`] unless x has `n_features` numbers, [`Error::NonFinite`] if one is NaN or infinite,
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
    /// [`Error::Shape`] unless `x` holds whole rows and `out` has [`n_predicted`](Predictor::n_predicted) numbers for each;
    /// [`Error::NonFinite`] if a number in `x` is NaN or infinite. Parts of `out` may then have been written.
    pub fn predict_into(&self, x: &[f64], out: &mut [f64]) -> Result<()> {
        let rows = self.check_rows(x)?;
        Error::check_len("out", rows.saturating_mul(self.n_predicted()), out.len())?;
        self.predict(x, rows, Request::Predicted(out))
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
        Error::check_len("mean", rows.saturating_mul(self.n_outputs()), mean.len())?;
        Error::check_len("std", rows.saturating_mul(self.n_outputs()), std.len())?;
        self.predict(x, rows, Request::WithStd(mean, std))
    }

    /// The probability of each class at each row.
    ///
    /// # Errors
    /// As [`predict_into`](Predictor::predict_into), and [`Error::Invalid`] for regression.
    pub fn predict_proba_into(&self, x: &[f64], out: &mut [f64]) -> Result<()> {
        self.check_classes()?;
        self.predict_into(x, out)
    }

    /// Linear predictors at each row, a number for each output; for a probit with two classes only their difference.
    ///
    /// # Errors
    /// As [`predict_into`](Predictor::predict_into), with [`n_decisions`](Predictor::n_decisions) numbers for each row.
    pub fn decision_into(&self, x: &[f64], out: &mut [f64]) -> Result<()> {
        let rows = self.check_rows(x)?;
        Error::check_len("out", rows.saturating_mul(self.n_decisions()), out.len())?;
        self.predict(x, rows, Request::Decisions(out))
    }

    /// The index of the most probable class at each row.
    ///
    /// # Errors
    /// As [`predict_into`](Predictor::predict_into), and [`Error::Invalid`] for regression.
    pub fn classify_into(&self, x: &[f64], out: &mut [usize]) -> Result<()> {
        self.check_classes()?;
        let rows = self.check_rows(x)?;
        Error::check_len("out", rows, out.len())?;
        self.predict(x, rows, Request::Classes(out))
    }

    /// Numbers in a row of [`Predictor::decision_into`].
    #[must_use]
    pub fn n_decisions(&self) -> usize {
        if self.is_pair() { 1 } else { self.n_outputs() }
    }

    /// Whether it has two scores, of which only the difference matters.
    pub(crate) fn is_pair(&self) -> bool {
        self.link() == Link::Probit && self.n_outputs() == 2
    }

    pub(crate) fn link(&self) -> Link {
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
        if !x.is_empty() {
            Error::check_len("x", rows.max(1) * self.n_features(), x.len())?;
        }
        Ok(rows)
    }

    /// Divides the rows into tasks for threads.
    fn predict(&self, x: &[f64], rows: usize, request: Request<'_>) -> Result<()> {
        let n_landmarks = self.n_landmarks(self.needs_variance(&request));
        let terms = (self.n_functions + n_landmarks).saturating_mul(self.n_features());
        self.divide(
            x,
            rows,
            request,
            (MIN_TASK_TERMS / terms.max(1)).max(MAX_BATCH_ROWS),
        )
    }

    fn divide(&self, x: &[f64], rows: usize, request: Request<'_>, piece: usize) -> Result<()> {
        if rows <= piece {
            return self.predict_task(x, rows, request);
        }
        let row = rows.div_ceil(piece) / 2 * piece;
        let (first, second) = x.split_at(row * self.n_features());
        let (to_first, to_second) = request.split(rows, row);
        let one = || self.divide(first, row, to_first, piece);
        let other = || self.divide(second, rows - row, to_second, piece);
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

    fn predict_task(&self, x: &[f64], rows: usize, mut request: Request<'_>) -> Result<()> {
        // Checked per task, so that the rows stay in the cache for the prediction.
        Error::check_finite("x", x)?;
        let with_variance = self.needs_variance(&request);
        let numbers = self.n_functions + self.n_outputs() + self.n_variances(with_variance) + 1;
        let numbers = numbers + self.n_landmarks(with_variance);
        let height = (MAX_BATCH_FEATURES / self.n_features()).min(MAX_BATCH_ROWS) / BATCH_MULTIPLE
            * BATCH_MULTIPLE;
        let height = if rows < MIN_BATCH_ROWS {
            1
        } else {
            height
                .max(BATCH_MULTIPLE)
                .min(MAX_BATCH_NUMBERS / numbers)
                .max(1)
        };
        for start in (0..rows).step_by(height) {
            let range = start..(start + height).min(rows);
            self.predict_batch(x, range, with_variance, &mut request)?;
        }
        Ok(())
    }

    /// Whether these predictions depend on variances.
    fn needs_variance(&self, request: &Request<'_>) -> bool {
        match request {
            Request::Predicted(_) => self.is_classifier(),
            Request::WithStd(..) => true,
            Request::Decisions(_) => false,
            // With two classes the sign of the linear predictor determines the class, whatever the variance.
            Request::Classes(_) => self.n_classes() > 2 && !self.covariance.is_none(),
        }
    }

    pub(crate) fn n_variances(&self, with_variance: bool) -> usize {
        if with_variance {
            self.covariance.width(self.n_outputs())
        } else {
            0
        }
    }

    /// Most landmarks of a growth.
    fn n_landmarks(&self, with_variance: bool) -> usize {
        let sizes = self.growths.iter().map(|growth| growth.factor.len());
        if with_variance {
            sizes.max().unwrap_or(0)
        } else {
            0
        }
    }
}

impl Predictor {
    /// Predicts a batch of rows.
    fn predict_batch(
        &self,
        x: &[f64],
        range: Range<usize>,
        with_variance: bool,
        to: &mut Request<'_>,
    ) -> Result<()> {
        let (m, n, rows) = (self.n_functions, self.n_outputs(), range.len());
        let width = self.n_variances(with_variance);
        let n_scratch = self.n_scratch(rows, width);
        let n_work = (rows * (1 + self.n_landmarks(with_variance))).max(m);
        with_scratch(
            rows * (m + n + width) + n_scratch + n_work,
            |Scratch {
                 values,
                 points,
                 workspace,
             }| {
                let (phi, rest) = values.split_at_mut(rows * m);
                let (eta, rest) = rest.split_at_mut(rows * n);
                let (variances, rest) = rest.split_at_mut(rows * width);
                let (numbers, work) = rest.split_at_mut(n_scratch);
                let d = self.n_features();
                let x = &x[range.start * d..range.end * d];
                points.refill(x, rows, d);
                let mut rest = &mut *phi;
                for block in &self.blocks {
                    let (to, after) = rest.split_at_mut(rows * block.len());
                    self.functions_at(block, x, points, to);
                    rest = after;
                }
                for (eta, output) in eta.chunks_exact_mut(rows).zip(&self.outputs) {
                    let phi = output.of(phi, rows);
                    let terms = output.weights.iter().enumerate();
                    combine(terms.map(|(k, &w)| (w, phi.column(k))), eta);
                }
                if width > 0 {
                    let of = |c: usize| self.outputs[c].of(phi, rows);
                    self.covariance.at_rows(rows, of, work, variances);
                    for growth in &self.growths {
                        self.add_growth(growth, x, points, work, variances);
                    }
                }
                let at = LinearPredictors {
                    rows,
                    eta,
                    variances,
                };
                self.finish(at, Scratchpad { numbers, workspace }, range, to)
            },
        )
    }

    /// Adds a growth to the variances.
    fn add_growth(
        &self,
        growth: &Growth,
        x: &[f64],
        points: &Points,
        work: &mut [f64],
        variances: &mut [f64],
    ) {
        let rows = points.n_points();
        let (rest, values) = work.split_at_mut(rows);
        let values = &mut values[..rows * growth.factor.len()];
        self.functions_at(&growth.landmarks, x, points, values);
        for (rest, x) in rest.iter_mut().zip(x.chunks_exact(self.n_features())) {
            *rest = (1.0 - growth.kernel.rounding()) * growth.kernel.eval(x, x);
        }
        growth.factor.subtract_squares(values, rest);
        for (variances, scale) in variances.chunks_exact_mut(rows).zip(&growth.scale) {
            for (v, rest) in variances.iter_mut().zip(&*rest) {
                *v += scale * rest.max(0.0);
            }
        }
    }

    /// Evaluates a block at rows given row by row and feature by feature.
    fn functions_at(&self, block: &Block, by_row: &[f64], x: &Points, out: &mut [f64]) {
        let rows = x.n_points();
        match block {
            Block::Constant => out.fill(1.0),
            Block::Columns { columns, offsets } => {
                let of = columns.iter().zip(offsets);
                for (out, (&j, offset)) in out.chunks_exact_mut(rows).zip(of) {
                    let values = out.iter_mut().zip(x.feature(j));
                    values.for_each(|(v, x)| *v = x - offset);
                }
            }
            // Kernels are exactly symmetric: of a single row, a loop over the centres.
            Block::Centres { kernel, points, .. } if rows == 1 => {
                kernel.column_into(points, by_row, 0..points.n_points(), out);
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
}

impl Block {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Constant => 1,
            Self::Columns { columns, .. } => columns.len(),
            Self::Centres { points, .. } => points.n_points(),
        }
    }
}

impl Output {
    fn of<'a>(&'a self, phi: &'a [f64], rows: usize) -> Functions<'a> {
        Functions {
            values: phi,
            rows,
            chosen: self.functions.as_deref(),
        }
    }
}

/// Memory that a thread keeps between predictions.
#[derive(Debug, Default)]
struct Scratch {
    /// Unspecified values.
    values: Vec<f64>,
    points: Points,
    workspace: Workspace,
}

/// Largest length of `values` that a thread keeps; larger ones are freed after the prediction.
const MAX_KEPT_VALUES: usize = 1 << 18;

thread_local! {
    static SCRATCH: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
}

/// Calls `f` with at least `len` values.
fn with_scratch<T>(len: usize, f: impl FnOnce(&mut Scratch) -> T) -> T {
    // Taken out, so that a nested call allocates its own.
    let mut scratch = SCRATCH.take().unwrap_or_default();
    if scratch.values.len() < len {
        scratch.values.resize(len, 0.0);
    }
    let result = f(&mut scratch);
    if scratch.values.len() <= MAX_KEPT_VALUES {
        SCRATCH.set(Some(scratch));
    }
    result
}

/// Linear predictors and their variances at some rows, output after output.
#[derive(Clone, Copy)]
pub(crate) struct LinearPredictors<'a> {
    pub(crate) rows: usize,
    pub(crate) eta: &'a [f64],
    pub(crate) variances: &'a [f64],
}

/// Memory for intermediate results.
pub(crate) struct Scratchpad<'a> {
    pub(crate) numbers: &'a mut [f64],
    pub(crate) workspace: &'a mut Workspace,
}

impl Predictor {
    /// Length of the `numbers` that [`Predictor::finish`] needs.
    pub(crate) fn n_scratch(&self, rows: usize, width: usize) -> usize {
        match self.link() {
            Link::Identity | Link::Log | Link::LogContinuous => 0,
            Link::Logistic | Link::Softmax => self.n_outputs() + width + self.n_classes(),
            Link::Probit => (rows + 1) * self.n_classes(),
        }
    }

    /// Writes the predictions for the rows in `range`.
    pub(crate) fn finish(
        &self,
        at: LinearPredictors<'_>,
        scratch: Scratchpad<'_>,
        range: Range<usize>,
        to: &mut Request<'_>,
    ) -> Result<()> {
        let (rows, eta, variances) = (at.rows, at.eta, at.variances);
        let (n, link) = (self.n_outputs(), self.link());
        let copy = |out: &mut [f64], of: &dyn Fn(f64) -> f64| {
            for (r, out) in out.chunks_exact_mut(n).enumerate() {
                let row = out.iter_mut().enumerate();
                row.for_each(|(c, out)| *out = of(eta[c * rows + r]));
            }
        };
        match to {
            Request::Predicted(out) if self.is_classifier() => {
                let n = self.n_classes();
                let out = &mut out[range.start * n..range.end * n];
                return self.probabilities(at, scratch, |r, p| {
                    out[r * n..][..n].copy_from_slice(p);
                });
            }
            Request::Predicted(out) => {
                let out = &mut out[range.start * n..range.end * n];
                copy(out, &|eta| link.mean(eta));
            }
            Request::WithStd(means, stds) => {
                let range = range.start * n..range.end * n;
                copy(&mut means[range.clone()], &|eta| link.mean(eta));
                for (r, stds) in stds[range].chunks_exact_mut(n).enumerate() {
                    for (c, std) in stds.iter_mut().enumerate() {
                        let variance = variances.get(c * rows + r).copied().unwrap_or(0.0);
                        *std = link.std(eta[c * rows + r], variance, self.noise[c]);
                    }
                }
            }
            Request::Decisions(out) if self.is_pair() => {
                for (r, out) in out[range].iter_mut().enumerate() {
                    *out = eta[rows + r] - eta[r];
                }
            }
            Request::Decisions(out) => {
                copy(&mut out[range.start * n..range.end * n], &|eta| eta);
            }
            Request::Classes(out) => return self.most_probable(at, scratch, &mut out[range]),
        }
        Ok(())
    }

    /// Calls `take` with each row and the probabilities of its classes.
    fn probabilities(
        &self,
        at: LinearPredictors<'_>,
        Scratchpad { numbers, workspace }: Scratchpad<'_>,
        mut take: impl FnMut(usize, &[f64]),
    ) -> Result<()> {
        let (rows, eta, variances) = (at.rows, at.eta, at.variances);
        if self.link() == Link::Probit {
            let (all, p) = numbers.split_at_mut(rows * self.n_classes());
            let n_classes = self.n_classes();
            self.probit
                .probabilities_into(eta, n_classes, workspace, all)?;
            for r in 0..rows {
                p.iter_mut()
                    .enumerate()
                    .for_each(|(c, p)| *p = all[c * rows + r]);
                take(r, p);
            }
            return Ok(());
        }
        let (own_eta, rest) = numbers.split_at_mut(self.n_outputs());
        let (own_variances, p) = rest.split_at_mut(variances.len() / rows);
        let is_softmax = self.link() == Link::Softmax;
        let finish = if is_softmax { softmax } else { logistic };
        for r in 0..rows {
            for (own, all) in [(&mut *own_eta, eta), (&mut *own_variances, variances)] {
                let own = own.iter_mut().enumerate();
                own.for_each(|(c, v)| *v = all[c * rows + r]);
            }
            finish(own_eta, own_variances, p);
            take(r, p);
        }
        Ok(())
    }

    /// The most probable class of each row, the first among equals.
    fn most_probable(
        &self,
        at: LinearPredictors<'_>,
        scratch: Scratchpad<'_>,
        out: &mut [usize],
    ) -> Result<()> {
        let (rows, eta, n) = (at.rows, at.eta, self.n_outputs());
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
        if at.variances.is_empty() {
            return Ok(());
        }
        // Variances moderate the probabilities and can change their order.
        self.probabilities(at, scratch, |r, p| out[r] = largest(&|c| p[c]))
    }
}
