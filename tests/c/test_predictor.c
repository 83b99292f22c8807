/* The C interface from C: what models predict, what is refused, and many threads on one handle.
 *
 * `make test-c` compiles it with the shared and with the static library and runs it, under valgrind too. Its argument is
 * the folder of golden models. */
#include "check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* All bytes of a file; the caller frees them. */
static unsigned char *slurp(const char *path, size_t *n_bytes) {
    FILE *file = fopen(path, "rb");
    CHECK(file != NULL);
    unsigned char *bytes = malloc(1 << 20);
    *n_bytes = fread(bytes, 1, 1 << 20, file);
    fclose(file);
    return bytes;
}

static void check_labels(const golden *expected, const sb_predictor *model) {
    CHECK(sb_n_classes(model) == expected->n_labels);
    for (size_t k = 0; k < expected->n_labels; k++) {
        char text[32];
        size_t needed = 0;
        CHECK(sb_class_label(model, k, NULL, 0, &needed) == SB_STATUS_OK);
        CHECK(needed == strlen(expected->labels[k]) + 1);
        memset(text, '?', sizeof text);
        CHECK(sb_class_label(model, k, text, needed, NULL) == SB_STATUS_OK);
        CHECK(strcmp(text, expected->labels[k]) == 0);
        CHECK(text[needed] == '?');
        FAILS(SB_STATUS_BAD_LENGTH, sb_class_label(model, k, text, needed - 1, &needed));
    }
    FAILS(SB_STATUS_INVALID, sb_class_label(model, expected->n_labels, NULL, 0, NULL));
}

static void check_regression(const golden *expected, const sb_predictor *model) {
    size_t n = expected->x.n_rows, n_features = expected->x.n_columns, n_out = n * sb_n_outputs(model);
    double *mean = calloc(n_out, sizeof *mean), *std = calloc(n_out, sizeof *std);
    CHECK(!sb_is_classifier(model) && sb_n_outputs(model) == expected->predicted.n_columns);
    CHECK(sb_predict_std(model, expected->x.values, n, n_features, mean, std, n_out) == SB_STATUS_OK);
    check_close("mean", expected->predicted.values, mean, n_out);
    check_close("std", expected->std.values, std, n_out);
    free(mean);
    free(std);
}

static void check_classifier(const golden *expected, const sb_predictor *model) {
    size_t n = expected->x.n_rows, n_features = expected->x.n_columns;
    size_t n_out = n * sb_n_classes(model), n_scores = n * sb_n_decisions(model);
    double *proba = calloc(n_out, sizeof *proba), *scores = calloc(n_scores, sizeof *scores);
    size_t *number = calloc(n, sizeof *number);
    CHECK(sb_is_classifier(model) && n_scores == n * expected->decision.n_columns);
    CHECK(sb_predict_proba(model, expected->x.values, n, n_features, proba, n_out) == SB_STATUS_OK);
    check_close("probabilities", expected->predicted.values, proba, n_out);
    CHECK(sb_decision(model, expected->x.values, n, n_features, scores, n_scores) == SB_STATUS_OK);
    check_close("decision", expected->decision.values, scores, n_scores);
    CHECK(sb_classify(model, expected->x.values, n, n_features, number, n) == SB_STATUS_OK);
    for (size_t i = 0; i < n; i++) {
        CHECK((double)number[i] == expected->classes.values[i]);
    }
    free(proba);
    free(scores);
    free(number);
}

/* One row at a time, as in company: the same to the bit. */
static void check_rows(const golden *expected, const sb_predictor *model) {
    size_t n = expected->x.n_rows, n_features = expected->x.n_columns, width = sb_n_predicted(model);
    double *all = calloc(n * width, sizeof *all), *alone = calloc(width, sizeof *alone), one = 0.0;
    CHECK(sb_predict(model, expected->x.values, n, n_features, all, n * width) == SB_STATUS_OK);
    check_close("predicted", expected->predicted.values, all, n * width);
    for (size_t i = 0; i < n; i++) {
        const double *x = expected->x.values + i * n_features;
        CHECK(sb_predict(model, x, 1, n_features, alone, width) == SB_STATUS_OK);
        CHECK(memcmp(alone, all + i * width, width * sizeof *alone) == 0);
        if (width == 1 || sb_n_classes(model) == 2) {
            CHECK(sb_predict_one(model, x, n_features, &one) == SB_STATUS_OK);
            CHECK(one == alone[width - 1]);
        } else {
            FAILS(SB_STATUS_INVALID, sb_predict_one(model, x, n_features, &one));
        }
    }
    free(all);
    free(alone);
}

static void check_model(const golden *expected, const sb_predictor *model) {
    CHECK(sb_n_features(model) == expected->x.n_columns);
    CHECK(sb_n_predicted(model) == expected->predicted.n_columns);
    CHECK(sb_format_version(model) == 1);
    check_labels(expected, model);
    check_rows(expected, model);
    if (expected->n_labels > 0) {
        check_classifier(expected, model);
    } else {
        check_regression(expected, model);
    }
}

void test_golden(const char *folder) {
    const char *names[] = {"regression", "outputs", "two_classes", "softmax", "probit"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        golden expected = read_golden(folder, names[i]);
        sb_predictor *model = NULL;
        CHECK(sb_load(expected.path, &model) == SB_STATUS_OK);
        check_model(&expected, model);
        sb_free(model);

        size_t n_bytes = 0;
        unsigned char *bytes = slurp(expected.path, &n_bytes);
        CHECK(sb_load_bytes(bytes, n_bytes, &model) == SB_STATUS_OK);
        free(bytes);
        check_model(&expected, model);
        sb_free(model);
        free_golden(&expected);
    }
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: %s FOLDER_OF_GOLDEN_MODELS\n", argv[0]);
        return 2;
    }
    CHECK(strlen(sb_version()) >= 5 && strcmp(sb_last_error(), "") == 0);
    test_golden(argv[1]);
    test_refusals(argv[1]);
    test_threads(argv[1]);
    if (n_failures() > 0) {
        fprintf(stderr, "%d failures\n", n_failures());
        return 1;
    }
    return 0;
}
