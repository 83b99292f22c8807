/*
 * sparsebayes: fitted models that predict. MIT OR Apache-2.0.
 *
 * Written by `make header` from rust/c/src; do not edit.
 *
 * Pointers: each is NULL, which is answered with SB_STATUS_NULL_POINTER, or points to as much as is said beside the
 * function; arrays of no elements may be NULL. Arrays are written to only where they are not const, and must not overlap.
 * Tables lie row after row. Unless SB_STATUS_OK is returned, what was to be written to holds nothing to be read.
 *
 * Threads: a model never changes. Any number of threads may use one at once, until one of them frees it.
 */


#ifndef SPARSEBAYES_H
#define SPARSEBAYES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * How a call ended.
 */
typedef enum {
  /**
   * As it should.
   */
  SB_STATUS_OK = 0,
  /**
   * A pointer is NULL that must not be.
   */
  SB_STATUS_NULL_POINTER = 1,
  /**
   * A length does not fit the model, or another length.
   */
  SB_STATUS_BAD_LENGTH = 2,
  /**
   * A number is NaN or infinite.
   */
  SB_STATUS_NOT_FINITE = 3,
  /**
   * An argument is outside its domain, or the question is not one for this model.
   */
  SB_STATUS_INVALID = 4,
  /**
   * The file or the bytes hold no sound model of a version known to this library.
   */
  SB_STATUS_FORMAT = 5,
  /**
   * The file could not be read.
   */
  SB_STATUS_IO = 6,
  /**
   * A fault of the library; please report it.
   */
  SB_STATUS_INTERNAL = 7,
} sb_status;

/**
 * A fitted model. It never changes.
 */
typedef struct sb_predictor sb_predictor;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Reads a model file, as `save` of a fitted estimator writes it.
 *
 * `path` ends with a zero byte: the bytes that the system knows the file by, on Windows UTF-8.
 * `*model` becomes the model, to be given to `sb_free` in the end, or NULL if there is none.
 */
sb_status sb_load(const char *path, sb_predictor **model);

/**
 * Makes a model of the `n_bytes` bytes of a model file, which need not stay.
 *
 * `*model` becomes the model, to be given to `sb_free` in the end, or NULL if there is none.
 */
sb_status sb_load_bytes(const uint8_t *bytes, size_t n_bytes, sb_predictor **model);

/**
 * Frees a model, once, when no thread uses it any more. NULL is no model, and nothing happens.
 */
void sb_free(sb_predictor *model);

/**
 * Numbers in a row of x; 0 for NULL.
 */
size_t sb_n_features(const sb_predictor *model);

/**
 * Outputs of a regression, linear predictors of a classifier; 0 for NULL.
 */
size_t sb_n_outputs(const sb_predictor *model);

/**
 * Number of classes; 0 for a regression and for NULL.
 */
size_t sb_n_classes(const sb_predictor *model);

/**
 * Numbers that `sb_predict` makes of a row: one for each output, or for each class; 0 for NULL.
 */
size_t sb_n_predicted(const sb_predictor *model);

/**
 * Numbers that `sb_decision` makes of a row; 0 for NULL.
 */
size_t sb_n_decisions(const sb_predictor *model);

/**
 * Whether the model predicts classes; false for NULL.
 */
bool sb_is_classifier(const sb_predictor *model);

/**
 * Version of the form of the file that the model came from; 0 for NULL.
 */
uint32_t sb_format_version(const sb_predictor *model);

/**
 * Version of the library, "1.2.3" for instance. The text is always there.
 */
const char *sb_version(void);

/**
 * Writes the label of a class, counted from 0, as UTF-8 text with a zero byte at the end into `size` bytes at `text`.
 *
 * Labels that are strings are copied as they are, others written as JSON has them: `1`, `0.5`, `true`; dates as the
 * whole number that NumPy keeps for them. `*needed`, unless `needed` is NULL, becomes the number of bytes that it takes
 * with the zero byte. With `size` 0 nothing is written and `text` may be NULL, which is the way to ask for that number;
 * any other `size` that is too small is `SB_STATUS_BAD_LENGTH`.
 */
sb_status sb_class_label(const sb_predictor *model,
                         size_t class_index,
                         char *text,
                         size_t size,
                         size_t *needed);

/**
 * Predicts `n_rows` rows: the means of a regression, or the probability of each class.
 *
 * `x`: `n_rows * n_features` numbers. `out`: `n_out` numbers, which must be `n_rows * sb_n_predicted(model)`.
 */
sb_status sb_predict(const sb_predictor *model,
                     const double *x,
                     size_t n_rows,
                     size_t n_features,
                     double *out,
                     size_t n_out);

/**
 * Predicts means and standard deviations of a regression, noise included, at `n_rows` rows.
 *
 * `x`: `n_rows * n_features` numbers. `mean` and `std`: `n_out` numbers each, which must be
 * `n_rows * sb_n_outputs(model)`. `SB_STATUS_INVALID` for classes, which have probabilities.
 */
sb_status sb_predict_std(const sb_predictor *model,
                         const double *x,
                         size_t n_rows,
                         size_t n_features,
                         double *mean,
                         double *std,
                         size_t n_out);

/**
 * Predicts the probability of each class at `n_rows` rows; each row sums to 1.
 *
 * `x`: `n_rows * n_features` numbers. `out`: `n_out` numbers, which must be `n_rows * sb_n_classes(model)`.
 * `SB_STATUS_INVALID` for a regression.
 */
sb_status sb_predict_proba(const sb_predictor *model,
                           const double *x,
                           size_t n_rows,
                           size_t n_features,
                           double *out,
                           size_t n_out);

/**
 * Computes the linear predictors at `n_rows` rows: log odds, logits or scores of a classifier.
 *
 * `x`: `n_rows * n_features` numbers. `out`: `n_out` numbers, which must be `n_rows * sb_n_decisions(model)`.
 */
sb_status sb_decision(const sb_predictor *model,
                      const double *x,
                      size_t n_rows,
                      size_t n_features,
                      double *out,
                      size_t n_out);

/**
 * Finds the most probable class at `n_rows` rows, counted from 0: see `sb_class_label`.
 *
 * `x`: `n_rows * n_features` numbers. `out`: `n_out` numbers, which must be `n_rows`. `SB_STATUS_INVALID` for a
 * regression.
 */
sb_status sb_classify(const sb_predictor *model,
                      const double *x,
                      size_t n_rows,
                      size_t n_features,
                      size_t *out,
                      size_t n_out);

/**
 * Predicts one number for one row: the mean, or of two classes the probability of the second.
 *
 * `x`: `n_features` numbers. `SB_STATUS_INVALID` for models that predict several numbers.
 */
sb_status sb_predict_one(const sb_predictor *model, const double *x, size_t n_features, double *out);

/**
 * Says in one sentence why the last call that failed on this thread did; "" if none has.
 *
 * Never NULL. The text belongs to the library and lasts until the next call on this thread that fails, or the end of
 * the thread. Where functions move between threads, in Go for instance, hold on to one from the call to the message.
 */
const char *sb_last_error(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* SPARSEBAYES_H */
