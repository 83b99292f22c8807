/*
 * sparsebayes: prediction with fitted models. MIT OR Apache-2.0.
 *
 * Written by `make header` from rust/c/src; do not edit.
 *
 * Pointers: a NULL pointer gives SB_STATUS_NULL_POINTER; any other must point to as many elements as the function's
 * comment says. Arrays without elements may be NULL. Arrays must not overlap. Matrices are row-major. Unless a call
 * returns SB_STATUS_OK, the contents of its output arrays are unspecified.
 *
 * Threads: a model never changes. Any number of threads may use it at the same time, until one of them frees it.
 */


#ifndef SPARSEBAYES_H
#define SPARSEBAYES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * The result of a call.
 */
typedef enum {
  /**
   * Success.
   */
  SB_STATUS_OK = 0,
  /**
   * A pointer must not be NULL.
   */
  SB_STATUS_NULL_POINTER = 1,
  /**
   * A length does not match the model or another length.
   */
  SB_STATUS_BAD_LENGTH = 2,
  /**
   * A number is NaN or infinite.
   */
  SB_STATUS_NOT_FINITE = 3,
  /**
   * An argument is outside its domain, or the model does not support the call.
   */
  SB_STATUS_INVALID = 4,
  /**
   * The file or the bytes do not hold a valid model of a supported version.
   */
  SB_STATUS_FORMAT = 5,
  /**
   * The file could not be read.
   */
  SB_STATUS_IO = 6,
  /**
   * A bug in the library; please report it.
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
 * `path` is a zero-terminated string in the encoding of the file system, on Windows UTF-8.
 * `*model` becomes the model, which `sb_free` frees, or NULL after a failure.
 */
sb_status sb_load(const char *path, sb_predictor **model);

/**
 * Reads a model from the `n_bytes` bytes of a model file, which are not needed afterwards.
 *
 * `*model` becomes the model, which `sb_free` frees, or NULL after a failure.
 */
sb_status sb_load_bytes(const uint8_t *bytes, size_t n_bytes, sb_predictor **model);

/**
 * Frees a model that no thread uses any more. Does nothing for NULL.
 */
void sb_free(sb_predictor *model);

/**
 * Number of features; 0 for NULL.
 */
size_t sb_n_features(const sb_predictor *model);

/**
 * Number of outputs of a regression or linear predictors of a classifier; 0 for NULL.
 */
size_t sb_n_outputs(const sb_predictor *model);

/**
 * Number of classes; 0 for a regression and for NULL.
 */
size_t sb_n_classes(const sb_predictor *model);

/**
 * Numbers per row of `sb_predict`: one for each output or class; 0 for NULL.
 */
size_t sb_n_predicted(const sb_predictor *model);

/**
 * Numbers per row of `sb_decision`; 0 for NULL.
 */
size_t sb_n_decisions(const sb_predictor *model);

/**
 * Whether the model predicts classes; false for NULL.
 */
bool sb_is_classifier(const sb_predictor *model);

/**
 * Format version of the model file; 0 for NULL.
 */
uint32_t sb_format_version(const sb_predictor *model);

/**
 * Version of the library, for example "1.2.3". The text is always valid.
 */
const char *sb_version(void);

/**
 * Writes the label of a class, counted from 0, as zero-terminated UTF-8 text into `size` bytes at `text`.
 *
 * Strings are copied unchanged, other labels are written as in JSON: `1`, `0.5`, `true`; dates as the integer that NumPy
 * stores. Unless `needed` is NULL, `*needed` becomes the number of bytes including the zero byte. With `size` 0 nothing is
 * written and `text` may be NULL, which is how to query that number; any other `size` that is too small gives
 * `SB_STATUS_BAD_LENGTH`.
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
 * `n_rows * sb_n_outputs(model)`. `SB_STATUS_INVALID` for a classifier.
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
 * Predicts one number for one row: the mean, or the probability of the second of two classes.
 *
 * `x`: `n_features` numbers. `SB_STATUS_INVALID` for models that predict several numbers.
 */
sb_status sb_predict_one(const sb_predictor *model, const double *x, size_t n_features, double *out);

/**
 * Returns a one-sentence message about the last call that failed on this thread; "" if none has failed.
 *
 * Never NULL. The text belongs to the library and is valid until the next failing call on this thread or the end of the
 * thread. Languages that move functions between threads, for example Go, must lock the thread from the call to the
 * message.
 */
const char *sb_last_error(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* SPARSEBAYES_H */
