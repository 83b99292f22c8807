//! Predictions into the caller's arrays.

use sparsebayes::{Error, Predictor};

use crate::borrow::{disjoint, output, place, reference, size, slice};
use crate::model::Model;
use crate::status::{Failure, Status, guard};

/// Predicts `n_rows` rows: the means of a regression, or the probability of each class.
///
/// `x`: `n_rows * n_features` numbers. `out`: `n_out` numbers, which must be `n_rows * sb_n_predicted(model)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sb_predict(
    model: *const Model,
    x: *const f64,
    n_rows: usize,
    n_features: usize,
    out: *mut f64,
    n_out: usize,
) -> Status {
    let input = Input::new(x, n_rows, n_features, Predictor::n_predicted);
    // SAFETY: the caller guarantees the conditions of `fill`.
    guard(|| unsafe { input.fill(model, out, n_out, Predictor::predict_into) })
}

/// Predicts means and standard deviations of a regression, noise included, at `n_rows` rows.
///
/// `x`: `n_rows * n_features` numbers. `mean` and `std`: `n_out` numbers each, which must be
/// `n_rows * sb_n_outputs(model)`. `SB_STATUS_INVALID` for a classifier.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sb_predict_std(
    model: *const Model,
    x: *const f64,
    n_rows: usize,
    n_features: usize,
    mean: *mut f64,
    std: *mut f64,
    n_out: usize,
) -> Status {
    let input = Input::new(x, n_rows, n_features, Predictor::n_outputs);
    let fill = |model: &Predictor, x: &[f64], mean: &mut [f64]| {
        disjoint(("mean", mean.as_ptr(), n_out), ("std", std, n_out))?;
        disjoint(("x", x.as_ptr(), x.len()), ("std", std, n_out))?;
        // SAFETY: the caller guarantees `n_out` numbers; they overlap no other array.
        let std = unsafe { output("std", std, n_out) }?;
        Ok::<(), Failure>(model.predict_std_into(x, mean, std)?)
    };
    // SAFETY: the caller guarantees the conditions of `fill`.
    guard(|| unsafe { input.fill(model, mean, n_out, fill) })
}

/// Predicts the probability of each class at `n_rows` rows; each row sums to 1.
///
/// `x`: `n_rows * n_features` numbers. `out`: `n_out` numbers, which must be `n_rows * sb_n_classes(model)`.
/// `SB_STATUS_INVALID` for a regression.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sb_predict_proba(
    model: *const Model,
    x: *const f64,
    n_rows: usize,
    n_features: usize,
    out: *mut f64,
    n_out: usize,
) -> Status {
    let input = Input::new(x, n_rows, n_features, Predictor::n_predicted);
    // SAFETY: the caller guarantees the conditions of `fill`.
    guard(|| unsafe { input.fill(model, out, n_out, Predictor::predict_proba_into) })
}

/// Computes the linear predictors at `n_rows` rows: log odds, logits or scores of a classifier.
///
/// `x`: `n_rows * n_features` numbers. `out`: `n_out` numbers, which must be `n_rows * sb_n_decisions(model)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sb_decision(
    model: *const Model,
    x: *const f64,
    n_rows: usize,
    n_features: usize,
    out: *mut f64,
    n_out: usize,
) -> Status {
    let input = Input::new(x, n_rows, n_features, Predictor::n_decisions);
    // SAFETY: the caller guarantees the conditions of `fill`.
    guard(|| unsafe { input.fill(model, out, n_out, Predictor::decision_into) })
}

/// Finds the most probable class at `n_rows` rows, counted from 0: see `sb_class_label`.
///
/// `x`: `n_rows * n_features` numbers. `out`: `n_out` numbers, which must be `n_rows`. `SB_STATUS_INVALID` for a
/// regression.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sb_classify(
    model: *const Model,
    x: *const f64,
    n_rows: usize,
    n_features: usize,
    out: *mut usize,
    n_out: usize,
) -> Status {
    let input = Input::new(x, n_rows, n_features, |_| 1);
    // SAFETY: the caller guarantees the conditions of `fill`.
    guard(|| unsafe { input.fill(model, out, n_out, Predictor::classify_into) })
}

/// Predicts one number for one row: the mean, or the probability of the second of two classes.
///
/// `x`: `n_features` numbers. `SB_STATUS_INVALID` for models that predict several numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sb_predict_one(
    model: *const Model,
    x: *const f64,
    n_features: usize,
    out: *mut f64,
) -> Status {
    guard(|| {
        // SAFETY: the caller guarantees that it is NULL or a model.
        let model = unsafe { reference("model", model) }?;
        // SAFETY: the caller guarantees this number of elements.
        let x = unsafe { slice("x", x, n_features) }?;
        let value = model.0.predict_one(x)?;
        // SAFETY: the caller guarantees that it points to a number. The slice is not used any more.
        *unsafe { place("out", out) }? = value;
        Ok(())
    })
}

/// The input x, and the number of results per row.
struct Input<W> {
    x: *const f64,
    n_rows: usize,
    n_features: usize,
    width: W,
}

impl<W: FnOnce(&Predictor) -> usize> Input<W> {
    fn new(x: *const f64, n_rows: usize, n_features: usize, width: W) -> Self {
        Self {
            x,
            n_rows,
            n_features,
            width,
        }
    }

    /// Checks all lengths, then calls `write`.
    ///
    /// # Safety
    /// Each pointer is NULL, or points to as many elements as the length beside it says. Output arrays are not accessed
    /// meanwhile, and inputs do not change.
    unsafe fn fill<T: Copy, E: Into<Failure>>(
        self,
        model: *const Model,
        out: *mut T,
        n_out: usize,
        write: impl FnOnce(&Predictor, &[f64], &mut [T]) -> Result<(), E>,
    ) -> Result<(), Failure> {
        // SAFETY: the caller guarantees it.
        let model = &unsafe { reference("model", model) }?.0;
        check_len("n_features", model.n_features(), self.n_features)?;
        let n_x = size("x", self.n_rows, self.n_features)?;
        check_len(
            "n_out",
            size("out", self.n_rows, (self.width)(model))?,
            n_out,
        )?;
        // SAFETY: the caller guarantees it.
        let x = unsafe { slice("x", self.x, n_x) }?;
        disjoint(("x", self.x, n_x), ("out", out, n_out))?;
        // SAFETY: the caller guarantees it; it does not overlap x.
        let out = unsafe { output("out", out, n_out) }?;
        write(model, x, out).map_err(Into::into)
    }
}

fn check_len(what: &'static str, expected: usize, got: usize) -> Result<(), Failure> {
    if expected == got {
        return Ok(());
    }
    let error = Error::Shape {
        what,
        expected,
        got,
    };
    Err(error.into())
}
