/* Everything a caller can get wrong has a code and a message, and is not answered. */
#include "check.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void refuses_broken_files(const char *folder) {
    golden text = read_golden(folder, "regression");
    sb_predictor *model = (sb_predictor *)folder; /* anything but NULL */
    FAILS(SB_STATUS_IO, sb_load("no such file", &model));
    CHECK(model == NULL);
    FAILS(SB_STATUS_FORMAT, sb_load(folder, &model));
    FAILS(SB_STATUS_NULL_POINTER, sb_load(NULL, &model));
    FAILS(SB_STATUS_NULL_POINTER, sb_load(text.path, NULL));
    FAILS(SB_STATUS_NULL_POINTER, sb_load_bytes(NULL, 8, &model));
    FAILS(SB_STATUS_FORMAT, sb_load_bytes(NULL, 0, &model));
    FAILS(SB_STATUS_BAD_LENGTH, sb_load_bytes((const uint8_t *)folder, SIZE_MAX, &model));

    /* Cut off anywhere, it is no model any more; with a byte changed it is one or none, and nothing worse. */
    FILE *file = fopen(text.path, "rb");
    unsigned char bytes[8192];
    size_t n = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    CHECK(n > 500 && n < sizeof bytes);
    for (size_t end = 0; end < n; end += 7) {
        /* A copy of that length, so that valgrind sees a read beyond it. */
        unsigned char *part = malloc(end + 1);
        memcpy(part, bytes, end);
        FAILS(SB_STATUS_FORMAT, sb_load_bytes(part, end, &model));
        free(part);
    }
    for (size_t at = 0; at < n; at += 3) {
        bytes[at] ^= 0x24;
        sb_status status = sb_load_bytes(bytes, n, &model);
        CHECK((status == SB_STATUS_OK) == (model != NULL));
        CHECK(status == SB_STATUS_OK || status == SB_STATUS_FORMAT);
        sb_free(model);
        bytes[at] ^= 0x24;
    }
    free_golden(&text);
}

static void refuses_wrong_lengths(const sb_predictor *model) {
    double x[6] = {0.0}, out[8], std[8];
    size_t number[8], d = sb_n_features(model);
    CHECK(d == 2 && sb_n_predicted(model) == 1);
    FAILS(SB_STATUS_BAD_LENGTH, sb_predict(model, x, 3, d, out, 2));
    FAILS(SB_STATUS_BAD_LENGTH, sb_predict(model, x, 3, d, out, 4));
    FAILS(SB_STATUS_BAD_LENGTH, sb_predict(model, x, 2, 3, out, 2));
    FAILS(SB_STATUS_BAD_LENGTH, sb_predict(model, x, 6, 0, out, 6));
    FAILS(SB_STATUS_BAD_LENGTH, sb_predict_std(model, x, 3, d, out, std, 2));
    FAILS(SB_STATUS_BAD_LENGTH, sb_decision(model, x, 3, d, out, 2));
    FAILS(SB_STATUS_BAD_LENGTH, sb_predict_one(model, x, 3, out));
    FAILS(SB_STATUS_BAD_LENGTH, sb_predict_one(model, NULL, 0, out));
    /* Products that wrap round to small numbers, and sums of addresses that would. */
    FAILS(SB_STATUS_BAD_LENGTH, sb_predict(model, x, SIZE_MAX / 2 + 2, d, out, 2));
    FAILS(SB_STATUS_BAD_LENGTH, sb_predict(model, x, SIZE_MAX / 2 + 1, d, out, SIZE_MAX / 2 + 1));
    FAILS(SB_STATUS_BAD_LENGTH, sb_predict(model, x, SIZE_MAX / 16, d, out, SIZE_MAX / 16));
    FAILS(SB_STATUS_INVALID, sb_predict_proba(model, x, 3, d, out, 3));
    FAILS(SB_STATUS_INVALID, sb_classify(model, x, 3, d, number, 3));
    /* No rows are a fair question. */
    CHECK(sb_predict(model, NULL, 0, d, NULL, 0) == SB_STATUS_OK);
    CHECK(sb_predict_std(model, NULL, 0, d, NULL, NULL, 0) == SB_STATUS_OK);
}

static void refuses_null_and_nan(const sb_predictor *model) {
    double x[4] = {0.0, 1.0, 2.0, 3.0}, out[2] = {7.0, 7.0}, std[2] = {7.0, 7.0};
    FAILS(SB_STATUS_NULL_POINTER, sb_predict(NULL, x, 2, 2, out, 2));
    FAILS(SB_STATUS_NULL_POINTER, sb_predict(model, NULL, 2, 2, out, 2));
    FAILS(SB_STATUS_NULL_POINTER, sb_predict(model, x, 2, 2, NULL, 2));
    FAILS(SB_STATUS_NULL_POINTER, sb_predict_std(model, x, 2, 2, NULL, std, 2));
    FAILS(SB_STATUS_NULL_POINTER, sb_predict_std(model, x, 2, 2, out, NULL, 2));
    FAILS(SB_STATUS_NULL_POINTER, sb_predict_one(NULL, x, 2, out));
    FAILS(SB_STATUS_NULL_POINTER, sb_predict_one(model, NULL, 2, out));
    FAILS(SB_STATUS_NULL_POINTER, sb_predict_one(model, x, 2, NULL));
    FAILS(SB_STATUS_NULL_POINTER, sb_class_label(NULL, 0, NULL, 0, NULL));
    FAILS(SB_STATUS_INVALID, sb_class_label(model, 0, NULL, 0, NULL));
    /* Arrays that share memory, and one between two multiples of eight. */
    FAILS(SB_STATUS_INVALID, sb_predict(model, x, 2, 2, x + 3, 2));
    FAILS(SB_STATUS_INVALID, sb_predict_std(model, x, 2, 2, out, out, 2));
    FAILS(SB_STATUS_INVALID, sb_predict_std(model, x, 2, 2, out, x, 2));
    FAILS(SB_STATUS_INVALID, sb_predict(model, (const double *)((uintptr_t)x + 4), 1, 2, out, 1));
    x[3] = NAN;
    FAILS(SB_STATUS_NOT_FINITE, sb_predict(model, x, 2, 2, out, 2));
    x[3] = -INFINITY;
    FAILS(SB_STATUS_NOT_FINITE, sb_predict_std(model, x, 2, 2, out, std, 2));
    CHECK(out[0] == 7.0 && out[1] == 7.0 && std[0] == 7.0 && std[1] == 7.0);
    CHECK(sb_n_features(NULL) == 0 && sb_n_outputs(NULL) == 0 && sb_n_classes(NULL) == 0);
    CHECK(sb_n_predicted(NULL) == 0 && sb_n_decisions(NULL) == 0 && sb_format_version(NULL) == 0);
    CHECK(!sb_is_classifier(NULL));
    sb_free(NULL);
}

static void refuses_regression_on_classes(const char *folder) {
    golden text = read_golden(folder, "softmax");
    sb_predictor *model = NULL;
    double x[2] = {0.0, 0.0}, mean[3], std[3];
    size_t number[3];
    char label[2];
    CHECK(sb_load(text.path, &model) == SB_STATUS_OK);
    FAILS(SB_STATUS_INVALID, sb_predict_std(model, x, 1, 2, mean, std, 3));
    FAILS(SB_STATUS_BAD_LENGTH, sb_predict_proba(model, x, 1, 2, mean, 2));
    FAILS(SB_STATUS_BAD_LENGTH, sb_classify(model, x, 1, 2, number, 3));
    FAILS(SB_STATUS_NULL_POINTER, sb_classify(model, x, 1, 2, NULL, 1));
    FAILS(SB_STATUS_BAD_LENGTH, sb_class_label(model, 0, label, sizeof label, NULL));
    FAILS(SB_STATUS_NULL_POINTER, sb_class_label(model, 0, NULL, 10, NULL));
    sb_free(model);
    free_golden(&text);
}

void test_refusals(const char *folder) {
    golden text = read_golden(folder, "regression");
    sb_predictor *model = NULL;
    CHECK(sb_load(text.path, &model) == SB_STATUS_OK);
    refuses_broken_files(folder);
    refuses_wrong_lengths(model);
    refuses_null_and_nan(model);
    refuses_regression_on_classes(folder);
    sb_free(model);
    free_golden(&text);
}
