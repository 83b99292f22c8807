"""Templates of the C functions that compute linear predictors and predictions."""

from __future__ import annotations

#: Linear predictors if each output has its own functions.
SPARSE_ETA = """\
static inline size_t ${NAME}_starts_(size_t c)
{
    return $starts[c];
}

/* The linear predictors, eta_c = sum_j w_cj phi_j. */
static inline void ${NAME}_eta_(const $REAL *phi, $REAL *eta)
{
    for (size_t c = 0; c < $outputs; c++) {
        eta[c] = 0.0$f;
        for (size_t j = ${NAME}_starts_(c); j < ${NAME}_starts_(c + 1); j++)
            eta[c] += $weights[j] * phi[$at[j]];
    }
}
"""

#: Linear predictors if each output has all functions.
DENSE_ETA = """\
static inline size_t ${NAME}_starts_(size_t c)
{
    return $n * c;
}

/* The linear predictors, eta_c = sum_j w_cj phi_j. */
static inline void ${NAME}_eta_(const $REAL *phi, $REAL *eta)
{
    for (size_t c = 0; c < $outputs; c++) {
        eta[c] = 0.0$f;
        for (size_t j = 0; j < $n; j++)
            eta[c] += $weights[${NAME}_starts_(c) + j] * phi[j];
    }
}
"""

#: Linear predictors of a model without functions.
EMPTY_ETA = """\
static inline void ${NAME}_eta_(const $REAL *phi, $REAL *eta)
{
    (void)phi;
    for (size_t c = 0; c < $outputs; c++)
        eta[c] = 0.0$f;
}
"""

MEAN = """\
/* Returns the mean. */
static inline $REAL ${NAME}_predict(const $REAL *x)
{
    $REAL phi[$functions], eta[1];
    ${NAME}_functions_(x, phi);
    ${NAME}_eta_(phi, eta);
    return $mean;
}
"""

MEANS = """\
/* Writes the ${MACRO}_N_OUTPUTS means. */
static inline void ${NAME}_predict(const $REAL *x, $REAL *mean)
{
    $REAL phi[$functions];
    ${NAME}_functions_(x, phi);
    ${NAME}_eta_(phi, mean);
}
"""

STD = """\
/* Writes means and standard deviations, ${MACRO}_N_OUTPUTS of each. */
static inline void ${NAME}_predict_std(const $REAL *x, $REAL *mean, $REAL *sd)
{
    $REAL phi[$functions], v[$variances];
    ${NAME}_functions_(x, phi);
    ${NAME}_eta_(phi, mean);
    ${NAME}_variances_(phi, v);
    for (size_t c = 0; c < $outputs; c++)
        sd[c] = $unit$sqrt($noise + v[c]);
}
"""

#: sqrt(a^2 + b^2) with a^2 = exp(eta + v/2) and b^2 = (e^v - 1) exp(2 eta + v) = (1 - e^-v) exp(2 eta + 2 v);
#: a and b may be finite where their squares overflow.
COUNT_STD = """\
/* Writes mean and standard deviation of the count. */
static inline void ${NAME}_predict_std(const $REAL *x, $REAL *mean, $REAL *sd)
{
    $REAL phi[$functions], v[1], eta;
    ${NAME}_functions_(x, phi);
    ${NAME}_eta_(phi, mean);
    ${NAME}_variances_(phi, v);
    eta = mean[0];
    mean[0] = $exp(eta);
    sd[0] = $exp(eta / 2.0$f + v[0] / 4.0$f);
    if (v[0] > 0.0$f)
        sd[0] = $hypot(sd[0], $exp(eta + v[0]) * $sqrt(-$expm1(-v[0])));
}
"""

PLAIN_SCORES = """\
static inline void ${NAME}_scores_(const $REAL *x, $REAL *eta)
{
    $REAL phi[$functions];
    ${NAME}_functions_(x, phi);
    ${NAME}_eta_(phi, eta);
}
"""

#: pi / 8 = 0.39...
MODERATED_SCORES = """\
/* eta_c / sqrt(1 + pi v_c / 8) */
static inline void ${NAME}_scores_(const $REAL *x, $REAL *z)
{
    $REAL phi[$functions], v[$variances];
    ${NAME}_functions_(x, phi);
    ${NAME}_eta_(phi, z);
    ${NAME}_variances_(phi, v);
    for (size_t c = 0; c < $outputs; c++)
        z[c] /= $sqrt(1.0$f + 0.39269908169872414$f * v[c]);
}
"""

MODERATED_SOFTMAX_SCORES = """\
/* -ln sum_d exp(-k_cd (eta_c - eta_d)), k_cd = (1 + pi v_cd / 8)^(-1/2), v_cd = Var(eta_c - eta_d). */
static inline void ${NAME}_scores_(const $REAL *x, $REAL *log_p)
{
    $REAL phi[$functions], eta[$outputs], v[$variances];
    ${NAME}_functions_(x, phi);
    ${NAME}_eta_(phi, eta);
    ${NAME}_variances_(phi, v);
    for (size_t k = 0; k < $variances; k++)
        v[k] = 1.0$f / $sqrt(1.0$f + 0.39269908169872414$f * v[k]);
    for (size_t c = 0; c < $outputs; c++) {
        $REAL largest = 0.0$f, sum = 0.0$f;
        for (size_t d = 0; d < $outputs; d++) {
            const $REAL t = ${NAME}_gap_(eta, v, c, d);
            largest = t > largest ? t : largest;
        }
        for (size_t d = 0; d < $outputs; d++)
            sum += $exp(${NAME}_gap_(eta, v, c, d) - largest);
        log_p[c] = -largest - $log(sum);
    }
}
"""

GAP = """\
/* k_cd (eta_d - eta_c) */
static inline $REAL ${NAME}_gap_(const $REAL *eta, const $REAL *k, size_t c, size_t d)
{
    if (c == d)
        return 0.0$f;
    return (eta[d] - eta[c]) * (d < c ? k[c * (c - 1) / 2 + d] : k[d * (d - 1) / 2 + c]);
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

#: z has the sign of eta, so the variances are not needed.
CLASS_OF_TWO = """\
/* Returns the index of the most probable class, 0 or 1. */
static inline int ${NAME}_predict_class(const $REAL *x)
{
    $REAL phi[$functions], eta[1];
    ${NAME}_functions_(x, phi);
    ${NAME}_eta_(phi, eta);
    return eta[0] > 0.0$f;
}
"""

LOGISTIC_OF_TWO = """\
/* Writes the probabilities of both classes. */
static inline void ${NAME}_predict_proba(const $REAL *x, $REAL *p)
{
    $REAL z[1], e;
    ${NAME}_scores_(x, z);
    e = $exp(-$fabs(z[0]));
    p[0] = (z[0] > 0.0$f ? e : 1.0$f) / (1.0$f + e);
    p[1] = (z[0] > 0.0$f ? 1.0$f : e) / (1.0$f + e);
}
"""

#: Computed from logarithms, because every sigmoid may underflow.
NORMALISED = """\
/* Writes the ${MACRO}_N_CLASSES probabilities. */
static inline void ${NAME}_predict_proba(const $REAL *x, $REAL *p)
{
    $REAL largest, sum = 0.0$f;
    ${NAME}_scores_(x, p);
${log_p}    largest = p[0];
    for (size_t c = 1; c < $outputs; c++)
        largest = p[c] > largest ? p[c] : largest;
    for (size_t c = 0; c < $outputs; c++) {
        p[c] = $exp(p[c] - largest);
        sum += p[c];
    }
    for (size_t c = 0; c < $outputs; c++)
        p[c] /= sum;
}
"""

LOG_SIGMOID = """\
    for (size_t c = 0; c < $outputs; c++)
        p[c] = (p[c] < 0.0$f ? p[c] : 0.0$f) - $log1p($exp(-$fabs(p[c])));
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
/* Writes the ${MACRO}_N_CLASSES probabilities: with d_c = max eta - eta_c,
 * P(c) = integral of phi(u + d_c) prod_(k != c) Phi(u + d_k) du, by the trapezoidal rule. */
static inline void ${NAME}_predict_proba(const $REAL *x, $REAL *p)
{
    $REAL d[$outputs], cdf[$outputs], largest, sum = 0.0$f, u = -7.5$f;
    ${NAME}_scores_(x, d);
    largest = d[0];
    for (size_t c = 1; c < $outputs; c++)
        largest = d[c] > largest ? d[c] : largest;
    for (size_t c = 0; c < $outputs; c++) {
        d[c] = largest - d[c];
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
    }
    for (size_t c = 0; c < $outputs; c++)
        sum += p[c];
    for (size_t c = 0; c < $outputs; c++)
        p[c] /= sum;
}
"""

CLASS_NAME = """\
/* Returns the label of class c as text. */
static inline const char *${NAME}_class_name(int c)
{
    static const char *const names[$classes] = {
        $names
    };
    return names[c];
}
"""
