//! What may be asked of a model, checked, cut into parts for threads and these into rows side by side.

use crate::predictor::Predictor;
use crate::predictor::link::Link;
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
pub(crate) enum Answers<'a> {
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

    pub(crate) fn width(&self, with_spread: bool) -> usize {
        if with_spread {
            self.spread.width(self.n_outputs())
        } else {
            0
        }
    }
}
