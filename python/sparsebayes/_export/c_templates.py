"""Templates of the C functions that compute basis functions, linear predictors, and predictions."""

from __future__ import annotations

HEADER = """\
/*
$about
 */
#ifndef SPARSEBAYES_${NAME}_H
#define SPARSEBAYES_${NAME}_H

#include <math.h>
#include <stddef.h>

#define ${MACRO}_N_FEATURES $features
#define ${MACRO}_N_$what $results

typedef $type $REAL;

$tables
$definitions
#endif
"""

CENTRES = """\
static inline void $name(const $REAL *x, $REAL *phi)
{
    for (size_t j = 0; j < $n; j++) {
        const $type *z = $points + $width * j;
        phi[j] = $value;
    }
}
"""

LEAF = """\
static inline $REAL $name(const $REAL *x, const $type *z)
{
    $REAL s = $start;
    for (size_t d = 0; d < $n; d++) {
        const $REAL a = $a, b = $b;
$inside        s $sign= $term;
    }
$after    return $value;
}
"""

FUNCTIONS = """\
/* The basis functions at x. */
static inline void ${NAME}_functions_(const $REAL *x, $REAL *phi)
{
$body}
"""

#: ``$starts`` and ``$index`` are for outputs with all functions (n * c and j - starts(c)), or from tables.
ETA = """\
/* Position of the first weight of output c. */
static inline size_t ${NAME}_starts_(size_t c)
{
    return $starts;
}

/* The basis functions, and the linear predictors eta_c = sum_j w_cj phi_j. */
static inline void ${NAME}_eta_(const $REAL *x, $REAL *phi, $REAL *eta)
{
    ${NAME}_functions_(x, phi);
    for (size_t c = 0; c < $outputs; c++) {
        eta[c] = 0.0$f;
        for (size_t j = ${NAME}_starts_(c); j < ${NAME}_starts_(c + 1); j++)
            eta[c] += $weights[j] * phi[$index];
    }
}
"""

#: With Sigma = R^T R the variance is |R phi|^2, which is never negative. In single precision its error is
#: 1e-7 of |R phi|, while the error of phi^T Sigma phi is 1e-7 of the largest terms, which cancel. R takes
#: half the memory of Sigma.
VARIANCES = """\
/* Variances |R phi|^2 of the linear predictors, with R upper triangular, stored by rows. */
static inline void ${NAME}_variances_(const $REAL *phi, $REAL *v)
{
    const $type *r = $factors;
    for (size_t c = 0; c < $matrices; c++) {
        v[c] = 0.0$f;
        for (size_t i = 0; i < $rows; i++) {
            $REAL s = 0.0$f;
            for (size_t j = ${NAME}_starts_(c) + i; j < ${NAME}_starts_(c + 1); j++)
                s += *r++ * phi[$index];
            v[c] += s * s;
        }
    }
    for (size_t c = $matrices; c < $outputs; c++)
        v[c] = v[0];
}
"""

#: ``$own`` is k(x, z) of z = x.
GROWTH = """\
/* Adds the variance of the prior given its values at landmarks Z, scale_c (k(x, x) - |L^-1 k(Z, x)|^2). */
static inline void $name(const $REAL *x, $REAL *v)
{
    const $type *l = $factor;
    $REAL z[$width], k[$n], rest;
    for (size_t d = 0; d < $width; d++)
        z[d] = x[$column];
    rest = $most * $own; /* the rest of k(x, x) may be rounding */
    $centres(x, k);
    for (size_t i = 0; i < $n; i++) {
        for (size_t j = 0; j < i; j++)
            k[i] -= *l++ * k[j];
        k[i] *= *l++; /* the inverse of the diagonal of L */
        rest -= k[i] * k[i];
    }
    if (rest > 0.0$f)
        for (size_t c = 0; c < $outputs; c++)
            v[c] += $scales[c] * rest;
}
"""

JOINT_VARIANCES = """\
/* Variances of eta_c - eta_d at v[c * $outputs + d]. */
static inline void ${NAME}_variances_(const $REAL *phi, $REAL *v)
{
    const $type *r = $factors;
    size_t first = 0;
    for (size_t k = 0; k < $variances; k++)
        v[k] = 0.0$f;
    for (size_t i = 0; i < ${NAME}_starts_($outputs); i++) {
        $REAL part[$outputs];
        while (i >= ${NAME}_starts_(first + 1))
            first++;
        for (size_t c = 0; c < $outputs; c++) {
            size_t j = c == first ? i : ${NAME}_starts_(c);
            part[c] = 0.0$f;
            for (; c >= first && j < ${NAME}_starts_(c + 1); j++)
                part[c] += *r++ * phi[$index];
        }
        for (size_t k = 0; k < $variances; k++) {
            const $REAL t = part[k / $outputs] - part[k % $outputs];
            v[k] += t * t;
        }
    }
}
"""

MEAN = """\
/* Returns the mean. */
static inline $REAL ${NAME}_predict(const $REAL *x)
{
    $REAL phi[$functions], eta[1];
    ${NAME}_eta_(x, phi, eta);
    return $mean;
}
"""

MEANS = """\
/* Writes the ${MACRO}_N_OUTPUTS means. */
static inline void ${NAME}_predict(const $REAL *x, $REAL *mean)
{
    $REAL phi[$functions];
    ${NAME}_eta_(x, phi, mean);
}
"""

STD = """\
/* Writes means and standard deviations, ${MACRO}_N_OUTPUTS of each. */
static inline void ${NAME}_predict_std(const $REAL *x, $REAL *mean, $REAL *sd)
{
    $REAL phi[$functions], v[$variances];
    ${NAME}_eta_(x, phi, mean);
    ${NAME}_variances_(phi, v);
$growths    for (size_t c = 0; c < $outputs; c++)
        sd[c] = $sqrt($noise[c] + v[c]);
}
"""

#: sqrt(a^2 + b^2) with, for counts, a^2 = exp(eta + v/2), and b^2 = (e^v - 1 + d e^v) exp(2 eta + v) = (1 -
#: e^-v + d) exp(2 eta + 2 v); a and b may be finite where their squares overflow.
LOG_STD = """\
/* Writes mean and standard deviation of the target. */
static inline void ${NAME}_predict_std(const $REAL *x, $REAL *mean, $REAL *sd)
{
    $REAL phi[$functions], v[1], eta[1], part;
    ${NAME}_eta_(x, phi, eta);
    ${NAME}_variances_(phi, v);
$growths    mean[0] = $exp(eta[0]);
    part = $dispersion - $expm1(-v[0]);
    sd[0] = part > 0.0$f ? $exp(eta[0] + v[0]) * $sqrt(part) : 0.0$f;
$counts}
"""

COUNT_PART = """\
    sd[0] = $hypot(sd[0], $exp(eta[0] / 2.0$f + v[0] / 4.0$f));
"""

#: The scores are eta, unless ``$moderation`` divides them by a function of their variances.
SCORES = """\
static inline void ${NAME}_scores_(const $REAL *x, $REAL *score)
{
    $REAL phi[$functions];
    ${NAME}_eta_(x, phi, score);
$moderation}
"""

#: pi / 8 = 0.39...
MODERATION = """\
    /* z_c = eta_c / sqrt(1 + pi v_c / 8) */
    $REAL v[$variances];
    ${NAME}_variances_(phi, v);
    for (size_t c = 0; c < $outputs; c++)
        score[c] /= $sqrt(1.0$f + 0.39269908169872414$f * v[c]);
"""

SOFTMAX_SCORES = """\
/* -ln sum_d exp(-k_cd (eta_c - eta_d)), k_cd = (1 + pi v_cd / 8)^(-1/2), v_cd = Var(eta_c - eta_d). */
static inline void ${NAME}_scores_(const $REAL *x, $REAL *log_p)
{
    $REAL phi[$functions], eta[$outputs], v[$variances];
    ${NAME}_eta_(x, phi, eta);
    ${NAME}_variances_(phi, v);
    for (size_t c = 0; c < $outputs; c++) {
        $REAL *t = v + c * $outputs, largest = 0.0$f, sum = 0.0$f;
        for (size_t d = 0; d < $outputs; d++) {
            t[d] = (eta[d] - eta[c]) / $sqrt(1.0$f + 0.39269908169872414$f * t[d]);
            largest = t[d] > largest ? t[d] : largest;
        }
        for (size_t d = 0; d < $outputs; d++)
            sum += $exp(t[d] - largest);
        log_p[c] = -largest - $log(sum);
    }
}
"""

CLASS = """\
/* Returns the index of the most probable class; of equal ones, the first. */
static inline int ${NAME}_predict_class(const $REAL *x)
{
    $REAL score[$outputs];
    int top = 0;
    ${NAME}_scores_(x, score);
    for (int c = 1; c < $outputs; c++)
        if (score[c] > score[top])
            top = c;
    return top;
}
"""

#: The score has the sign of eta, so the variances are not needed.
CLASS_OF_TWO = """\
/* Returns the index of the most probable class, 0 or 1. */
static inline int ${NAME}_predict_class(const $REAL *x)
{
    $REAL phi[$functions], eta[1];
    ${NAME}_eta_(x, phi, eta);
    return eta[0] > 0.0$f;
}
"""

#: ``$prepare`` may replace the scores; ``$weigh`` computes numbers proportional to the probabilities.
PROBABILITIES = """\
/* Writes the ${MACRO}_N_CLASSES probabilities. */
static inline void ${NAME}_predict_proba(const $REAL *x, $REAL *p)
{
    $REAL largest, sum = 0.0$f;
    ${NAME}_scores_(x, p);
${prepare}    largest = p[0];
    for (size_t c = 1; c < $results; c++)
        largest = p[c] > largest ? p[c] : largest;
$weigh
    for (size_t c = 0; c < $results; c++)
        sum += p[c];
    for (size_t c = 0; c < $results; c++)
        p[c] /= sum;
}
"""

#: From logarithms, because every probability may underflow.
EXPONENTIALS = """\
    for (size_t c = 0; c < $results; c++)
        p[c] = $exp(p[c] - largest);"""

LOG_ODDS = """\
    p[1] = p[0];
    p[0] = 0.0$f;
"""

PROBIT_OF_TWO = """\
/* Writes the probabilities of both classes, Phi((eta_c - eta_d) / sqrt 2). */
static inline void ${NAME}_predict_proba(const $REAL *x, $REAL *p)
{
    $REAL half;
    ${NAME}_scores_(x, p);
    half = (p[1] - p[0]) / 2.0$f;
    p[0] = $erfc(half) / 2.0$f;
    p[1] = $erfc(-half) / 2.0$f;
}
"""

PROBIT = """\
    /* With d_c = max eta - eta_c, P(c) = integral of phi(u + d_c) prod_(k != c) Phi(u + d_k) du,
     * by the trapezoidal rule. */
    $REAL d[$outputs], cdf[$outputs], u = -7.5$f;
    for (size_t c = 0; c < $outputs; c++) {
        d[c] = largest - p[c];
        p[c] = 0.0$f;
    }
    for (int k = 0; k < $nodes; k++, u += $step$f) {
        $REAL all = 1.0$f;
        for (size_t c = 0; c < $outputs; c++) {
            cdf[c] = $erfc(-0.70710678118654752$f * (u + d[c])) / 2.0$f;
            all *= cdf[c];
        }
        for (size_t c = 0; c < $outputs; c++)
            p[c] += all / cdf[c] * $exp((u + d[c]) * (u + d[c]) / -2.0$f);
    }"""

CLASS_NAME = """\
/* Returns the label of class c as text. */
static inline const char *${NAME}_class_name(int c)
{
    static const char *const names[$results] = {
        $names
    };
    return names[c];
}
"""
