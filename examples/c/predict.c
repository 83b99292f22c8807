/* cc -std=c99 -Irust/c/include examples/c/predict.c -Ltarget/release -lsparsebayes -Wl,-rpath,"$PWD/target/release" -o predict
 *
 * Predicts one row: `./predict MODEL NUMBER...`, with as many numbers as the model has inputs. The library comes from
 * `cargo build --release -p sparsebayes-c`; a fitted estimator writes the model with `save`. */
#include <stdio.h>
#include <stdlib.h>

#include "sparsebayes.h"

static int failed(sb_predictor *model) {
    fprintf(stderr, "%s\n", sb_last_error());
    sb_free(model);
    return 1;
}

static int regression(sb_predictor *model, const double *x, size_t n_features) {
    size_t n = sb_n_outputs(model);
    double *mean = malloc(2 * n * sizeof *mean);
    if (mean == NULL) {
        return 1;
    }
    sb_status status = sb_predict_std(model, x, 1, n_features, mean, mean + n, n);
    for (size_t i = 0; status == SB_STATUS_OK && i < n; i++) {
        printf("%.6g +- %.6g\n", mean[i], mean[n + i]);
    }
    free(mean);
    return status == SB_STATUS_OK ? 0 : 1;
}

static int classes(sb_predictor *model, const double *x, size_t n_features) {
    size_t n = sb_n_classes(model);
    double *probability = malloc(n * sizeof *probability);
    if (probability == NULL) {
        return 1;
    }
    sb_status status = sb_predict_proba(model, x, 1, n_features, probability, n);
    for (size_t k = 0; status == SB_STATUS_OK && k < n; k++) {
        char label[64];
        status = sb_class_label(model, k, label, sizeof label, NULL);
        if (status == SB_STATUS_OK) {
            printf("%s: %.6f\n", label, probability[k]);
        }
    }
    free(probability);
    return status == SB_STATUS_OK ? 0 : 1;
}

int main(int argc, char **argv) {
    sb_predictor *model = NULL;
    if (argc < 3) {
        fprintf(stderr, "usage: %s MODEL NUMBER...\n", argv[0]);
        return 2;
    }
    if (sb_load(argv[1], &model) != SB_STATUS_OK) {
        return failed(model);
    }
    size_t n_features = (size_t)(argc - 2);
    double *x = malloc(n_features * sizeof *x);
    if (x == NULL) {
        sb_free(model);
        return 1;
    }
    for (size_t i = 0; i < n_features; i++) {
        x[i] = strtod(argv[i + 2], NULL);
    }
    int wrong = sb_is_classifier(model) ? classes(model, x, n_features) : regression(model, x, n_features);
    free(x);
    if (wrong) {
        return failed(model);
    }
    sb_free(model);
    return 0;
}
