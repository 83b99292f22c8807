#include "check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures = 0;

void check(int holds, const char *condition, const char *file, int line) {
    if (!holds) {
        failures++;
        fprintf(stderr, "%s:%d: does not hold: %s (last error: %s)\n", file, line, condition, sb_last_error());
    }
}

void check_failure(sb_status expected, sb_status got, const char *call, const char *file, int line) {
    if (got != expected) {
        failures++;
        fprintf(stderr, "%s:%d: status %d instead of %d: %s\n", file, line, (int)got, (int)expected, call);
    }
    check(strlen(sb_last_error()) > 10, "the message says something", file, line);
}

void check_close(const char *what, const double *expected, const double *got, size_t n) {
    for (size_t i = 0; i < n; i++) {
        /* So that a NaN is a failure. */
        if (!(fabs(expected[i] - got[i]) <= 1e-11 * (1.0 + fabs(expected[i])))) {
            failures++;
            fprintf(stderr, "%s: number %zu is %.17g instead of %.17g\n", what, i, got[i], expected[i]);
        }
    }
}

int n_failures(void) {
    return failures;
}

static void give_up(const char *why, const char *path) {
    fprintf(stderr, "%s: %s\n", path, why);
    exit(2);
}

static table *place_of(golden *model, const char *name) {
    const char *names[] = {"x", "predicted", "std", "decision", "class"};
    table *tables[] = {&model->x, &model->predicted, &model->std, &model->decision, &model->classes};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(names[i], name) == 0) {
            return tables[i];
        }
    }
    return NULL;
}

golden read_golden(const char *folder, const char *name) {
    golden model;
    memset(&model, 0, sizeof model);
    snprintf(model.path, sizeof model.path, "%s/%s.txt", folder, name);
    FILE *file = fopen(model.path, "r");
    if (file == NULL || fscanf(file, "labels %zu", &model.n_labels) != 1 || model.n_labels > 8) {
        give_up("no golden text", model.path);
    }
    for (size_t k = 0; k < model.n_labels; k++) {
        if (fscanf(file, "%31s", model.labels[k]) != 1) {
            give_up("a label is missing", model.path);
        }
    }
    char title[32];
    size_t n_rows, n_columns;
    while (fscanf(file, "%31s %zu %zu", title, &n_rows, &n_columns) == 3) {
        table *to = place_of(&model, title);
        if (to == NULL) {
            give_up("an unknown table", model.path);
        }
        to->n_rows = n_rows;
        to->n_columns = n_columns;
        to->values = malloc(n_rows * n_columns * sizeof(double));
        for (size_t i = 0; i < n_rows * n_columns; i++) {
            if (fscanf(file, "%lf", &to->values[i]) != 1) {
                give_up("a number is missing", model.path);
            }
        }
    }
    fclose(file);
    if (model.x.values == NULL || model.predicted.values == NULL) {
        give_up("x or predictions are missing", model.path);
    }
    snprintf(model.path, sizeof model.path, "%s/%s.safetensors", folder, name);
    return model;
}

void free_golden(golden *model) {
    free(model->x.values);
    free(model->predicted.values);
    free(model->std.values);
    free(model->decision.values);
    free(model->classes.values);
}
