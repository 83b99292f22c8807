/* One handle in several threads at once: everyone gets the right numbers and messages of their own. */
#define _POSIX_C_SOURCE 200809L

#include "check.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_THREADS = 4, N_ROUNDS = 200 };

typedef struct {
    const sb_predictor *model;
    const golden *expected;
    /* Predictions of one thread, which all must find to the bit. */
    const double *wanted;
    size_t number, n_wrong;
} task;

static void *work(void *argument) {
    task *own = argument;
    size_t n = own->expected->x.n_rows, n_features = own->expected->x.n_columns;
    size_t n_out = n * sb_n_predicted(own->model);
    double *out = malloc(n_out * sizeof *out);
    char ending[64];
    snprintf(ending, sizeof ending, "got %zu", n_features + own->number + 1);
    for (int i = 0; i < N_ROUNDS; i++) {
        memset(out, 0, n_out * sizeof *out);
        sb_status status = sb_predict(own->model, own->expected->x.values, n, n_features, out, n_out);
        own->n_wrong += status != SB_STATUS_OK || memcmp(out, own->wanted, n_out * sizeof *out) != 0;
        /* A failure with a message that is this thread's alone. */
        status = sb_predict(own->model, out, 0, n_features + own->number + 1, NULL, 0);
        own->n_wrong += status != SB_STATUS_BAD_LENGTH || strstr(sb_last_error(), ending) == NULL;
    }
    free(out);
    return NULL;
}

static void shares(const char *folder, const char *name) {
    golden expected = read_golden(folder, name);
    sb_predictor *model = NULL;
    CHECK(sb_load(expected.path, &model) == SB_STATUS_OK);
    size_t n = expected.x.n_rows, n_out = n * sb_n_predicted(model);
    double *wanted = calloc(n_out, sizeof *wanted);
    CHECK(sb_predict(model, expected.x.values, n, expected.x.n_columns, wanted, n_out) == SB_STATUS_OK);
    pthread_t threads[N_THREADS];
    task tasks[N_THREADS];
    for (size_t t = 0; t < N_THREADS; t++) {
        tasks[t] = (task){model, &expected, wanted, t, 0};
        CHECK(pthread_create(&threads[t], NULL, work, &tasks[t]) == 0);
    }
    for (size_t t = 0; t < N_THREADS; t++) {
        CHECK(pthread_join(threads[t], NULL) == 0);
        CHECK(tasks[t].n_wrong == 0);
    }
    free(wanted);
    sb_free(model);
    free_golden(&expected);
}

void test_threads(const char *folder) {
    shares(folder, "regression");
    shares(folder, "softmax");
    shares(folder, "probit");
}
