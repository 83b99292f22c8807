/* What the tests share: counting failures, and the texts beside the golden models. */
#ifndef CHECK_H
#define CHECK_H

#include <stddef.h>

#include "sparsebayes.h"

/* Says where a condition does not hold, and counts it. */
#define CHECK(condition) check((condition), #condition, __FILE__, __LINE__)
/* Checks that a call ends with this status, and fails with a message. */
#define FAILS(status, call) check_failure((status), (call), #call, __FILE__, __LINE__)

void check(int holds, const char *condition, const char *file, int line);
void check_failure(sb_status expected, sb_status got, const char *call, const char *file, int line);
/* Checks that numbers agree but for rounding. */
void check_close(const char *what, const double *expected, const double *got, size_t n);
int n_failures(void);

/* A table of a golden text; no values where it has no such table. */
typedef struct {
    size_t n_rows, n_columns;
    double *values;
} table;

/* FOLDER/NAME.safetensors, and the text beside it. */
typedef struct {
    char path[4096];
    size_t n_labels;
    char labels[8][32];
    table x, predicted, std, decision, classes;
} golden;

/* Ends the program where there is no such text. */
golden read_golden(const char *folder, const char *name);
void free_golden(golden *model);

/* The parts of the test. */
void test_golden(const char *folder);
void test_refusals(const char *folder);
void test_threads(const char *folder);

#endif
