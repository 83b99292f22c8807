//! The prediction methods: validation, tasks for threads, and batches of rows.

use crate::predictor::Predictor;
use crate::predictor::link::Link;
use crate::{Error, Result};

/// Fewer rows than this are predicted one by one, because they would leave most vector lanes empty.
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

impl Request<'_> {
    /// Splits the arrays into the first `row` rows and the others.
    fn split(self, n_rows: usize, row: usize) -> (Self, Self) {
        fn split<T>(all: &mut [T], n_rows: usize, row: usize) -> (&mut [T], &mut [T]) {
            all.split_at_mut(all.len() / n_rows * row)
        }
        match self {
            Self::Predicted(all) => {
                let (a, b) = split(all, n_rows, row);
                (Self::Predicted(a), Self::Predicted(b))
            }
            Self::WithStd(mean, std) => {
                let ((a, b), (c, d)) = (split(mean, n_rows, row), split(std, n_rows, row));
                (Self::WithStd(a, c), Self::WithStd(b, d))
            }
            Self::Decisions(all) => {
                let (a, b) = split(all, n_rows, row);
                (Self::Decisions(a), Self::Decisions(b))
            }
            Self::Classes(all) => {
                let (a, b) = split(all, n_rows, row);
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
        Error::check_len("out", rows * self.n_predicted(), out.len())?;
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
        Error::check_len("mean", rows * self.n_outputs(), mean.len())?;
        Error::check_len("std", rows * self.n_outputs(), std.len())?;
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
        Error::check_len("out", rows * self.n_decisions(), out.len())?;
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
        Error::check_len("x", rows.max(1) * self.n_features(), x.len()).or_else(|error| {
            // An empty x is valid.
            if x.is_empty() { Ok(()) } else { Err(error) }
        })?;
        Ok(rows)
    }

    /// Divides the rows into tasks for threads.
    fn predict(&self, x: &[f64], rows: usize, request: Request<'_>) -> Result<()> {
        let terms = (self.n_functions * self.n_features()).max(1);
        self.divide(
            x,
            rows,
            request,
            (MIN_TASK_TERMS / terms).max(MAX_BATCH_ROWS),
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
        if rows < MIN_BATCH_ROWS {
            for row in 0..rows {
                let x = &x[row * self.n_features()..][..self.n_features()];
                self.predict_row(x, with_variance, row, &mut request)?;
            }
            return Ok(());
        }
        let numbers = self.n_functions + self.n_outputs() + self.n_variances(with_variance) + 1;
        let height = (MAX_BATCH_FEATURES / self.n_features()).min(MAX_BATCH_ROWS) / BATCH_MULTIPLE
            * BATCH_MULTIPLE;
        let height = height
            .max(BATCH_MULTIPLE)
            .min(MAX_BATCH_NUMBERS / numbers)
            .max(1);
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
}
