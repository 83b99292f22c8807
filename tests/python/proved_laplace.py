r"""Proofs, in ball arithmetic, that a model of classes or counts is the fixed point that its fit claims.

As `proved_optimum`, for Bernoulli and Poisson likelihoods with the Laplace approximation: the precisions
are a maximum of the evidence of the problem linearised at their posterior mode (docs/theory/laplace.md).
With the working weights B at the mode, times the sample weights, Z, V and nu are those of a regression with
unit noise and row weights B.

Let :math:`\|d\| = (d^T H_0 d)^{1/2}` be the length of a change of the weights in posterior standard
deviations, with the Hessian :math:`H_0` at weights :math:`w_0`. A linear predictor eta changes by at most
:math:`\|d\|` times its posterior standard deviation. For both likelihoods :math:`|b'| \le b` and
:math:`|b''| \le b`, so if eta changes by at most s, ln b does too, and b' changes by at most :math:`(e^s -
1) b`.
"""

from typing import NamedTuple

from flint import arb, arb_mat, ctx

from proved_optimum import (
    PRECISION,
    between,
    column,
    diagonal_matrix,
    gain_inside,
    gain_outside,
    gradient,
    hessian,
    prior_variances,
    prove_near,
    square,
    submatrix,
    total,
)

#: Newton steps from the weights of the fit, each of which doubles the number of digits.
STEPS = 8


class LaplaceFit(NamedTuple):
    """A fit at its precisions and at weights next to the mode; K functions, M of them active and F flat.

    The F flat columns come before the M active functions. Weights of the latter are in units of their prior
    deviations.
    """

    given: list[int]
    complexity: arb
    n_flat: int
    #: H^-1, (F + M) x (F + M); the weights; posterior covariances of predictors and weights, N x (F + M).
    inverse: arb_mat
    weights: list[arb]
    covariances: arb_mat
    #: Posterior standard deviation of the predictor of each row; b and its derivative.
    deviations: list[arb]
    b: list[arb]
    slopes: list[arb]
    #: Length of the Newton step at these weights, in posterior deviations.
    error: arb
    #: Of all K functions as in a regression; and phi^T B phi.
    S: list[arb]
    Q: list[arb]
    R: list[arb]
    squares: list[arb]


class AroundMode(NamedTuple):
    """Enclosures for all precisions of a ball, at their modes."""

    #: Bound of the changes of ln alpha and of ln b.
    spread: arb
    #: Z, V (M x M) and nu (length M); see `proved_optimum`.
    Z: arb_mat
    V: arb_mat
    nu: list[arb]
    #: Posterior covariances of predictors and weights, N x M; and the derivative of b, length N.
    t: arb_mat
    slopes: list[arb]
    #: Bound of the change of Q of each function of the dictionary, in units of its root of S.
    changes: list[arb]


def derivatives(likelihood, eta, target):
    """Return the slope of the log likelihood of a row, b, and the derivative of b."""
    if likelihood == "bernoulli":
        p, other = 1 / (1 + (-eta).exp()), 1 / (1 + eta.exp())
        return target * other - (1 - target) * p, p * other, p * other * (other - p)
    assert likelihood == "poisson", likelihood
    mean = eta.exp()
    return target - mean, mean, mean


def fit_of(problem, moves=None):
    """Return the fit at the mode that Newton's method finds from the published weights.

    Parameters
    ----------
    problem
        As of `proved_optimum.fit_of`, with the published weights mu and a likelihood with a mode.
    moves : ndarray of shape (M,), optional
        See there.
    """
    assert problem.offset is None
    assert problem.groups is None
    assert problem.alpha_prior == (0.0, 0.0)
    Phi, targets = problem.Phi.tolist(), [arb(value) for value in problem.target.tolist()]
    counts = (
        [arb(1)] * len(targets) if problem.weights is None else [arb(w) for w in problem.weights.tolist()]
    )
    variances, flat = prior_variances(problem, moves), problem.active[problem.alpha == 0.0].tolist()
    given, m = flat + list(variances), len(flat) + len(variances)
    scale = [arb(1)] * len(flat) + [variance.sqrt() for variance in variances.values()]
    prior = [arb(0)] * len(flat) + [arb(1)] * len(variances)
    psi = submatrix(arb_mat(Phi), range(len(Phi)), given) * diagonal_matrix(scale)
    published = dict(zip(problem.active.tolist(), problem.mu.tolist(), strict=True))
    weights = column(arb(published[j]) / unit for j, unit in zip(given, scale, strict=True))
    for step in range(STEPS + 1):
        eta = (psi * weights).entries()
        rows = [derivatives(problem.likelihood, x, y) for x, y in zip(eta, targets, strict=True)]
        e, b, slopes = ([w * row[k] for w, row in zip(counts, rows, strict=True)] for k in range(3))
        B_psi = arb_mat(len(b), m, [w * psi[n, j] for n, w in enumerate(b) for j in range(m)])
        inverse = (diagonal_matrix(prior) + psi.transpose() * B_psi).inv()
        pull = (psi.transpose() * column(e)).entries()
        uphill = column(g - p * w for g, p, w in zip(pull, prior, weights.entries(), strict=True))
        change = inverse * uphill
        if step < STEPS:
            weights = column(value.mid() for value in (weights + change).entries())
    error = total(g * d for g, d in zip(uphill.entries(), change.entries(), strict=True))
    covariances = psi * inverse
    deviations = [total(psi[n, j] * covariances[n, j] for j in range(m)) for n in range(len(b))]
    cross = B_psi.transpose() * arb_mat(Phi)
    solved = inverse * cross
    squares = [arb(0)] * len(Phi[0])
    for row, w in zip(Phi, b, strict=True):
        squares = [value + w * square(arb(phi)) for value, phi in zip(squares, row, strict=True)]
    Q = (arb_mat(Phi).transpose() * column(e)).entries()
    S = [value - total(cross[j, i] * solved[j, i] for j in range(m)) for i, value in enumerate(squares)]
    R = [value - total(prior[j] * square(solved[j, i]) for j in range(m)) for i, value in enumerate(S)]
    return LaplaceFit(
        given,
        arb(problem.complexity),
        len(flat),
        inverse,
        weights.entries(),
        covariances,
        [value.upper().sqrt() for value in deviations],
        b,
        slopes,
        abs(error).upper().sqrt(),
        S,
        Q,
        R,
        squares,
    )


def around_mode(fit, r):
    r"""Return the enclosures for all precisions whose logarithms differ by at most r from the model's.

    With the other precisions the Newton step from :math:`w_0` by :math:`H_0` has a length of at most e +
    (e^r - 1) |nu|, e being its length with those of the model. Within twice that length, k, the Hessian H
    is between :math:`e^{-s} H_0` and :math:`e^s H_0`, s being the larger of r and the changes of ln b. If
    :math:`e^{-s} \ge 1/2`, the log posterior, which is concave, falls across the border of that region, so
    the mode is inside. The elements j, k of the inverses of H and :math:`H_0`, X, differ by at most (e^s -
    1) (X_jj X_kk)^1/2.

    Returns
    -------
    AroundMode or None
        None if the mode was not enclosed.
    """
    F, X, m = fit.n_flat, fit.inverse, len(fit.weights)
    length = total(map(square, fit.weights[F:])).sqrt()
    k = 2 * (fit.error + r.expm1() * length)
    s = max(r, *((k * value).upper() for value in fit.deviations))
    if not (-s).exp() >= arb(0.5):
        return None
    d, half = s.expm1(), (between(-r, r) / 2).exp()
    roots = [X[j, j].sqrt() for j in range(F, m)]
    nu = [half * (w + between(-k, k) * root) for w, root in zip(fit.weights[F:], roots, strict=True)]
    Z, t = submatrix(X, range(F, m), range(F, m)), submatrix(fit.covariances, range(len(fit.b)), range(F, m))
    for j, root in enumerate(roots):
        for i, other in enumerate(roots):
            Z[i, j] = half * half * (Z[i, j] + between(-d, d) * root * other)
        for n, deviation in enumerate(fit.deviations):
            t[n, j] = half * (t[n, j] + between(-d, d) * root * deviation)
    slopes = [value + between(-d, d) * b for value, b in zip(fit.slopes, fit.b, strict=True)]
    # The slope of Q along a path is phi^T C^-1 Phi diag(change of ln alpha) mu. And Q at w_0 is not at the
    # mode.
    along, apart = r * (r + s / 2).exp() * (length + k), 2 * fit.error * s.exp()
    changes = [
        along + apart * (square / S).sqrt() if S > 0 else arb(0)
        for square, S in zip(fit.squares, fit.S, strict=True)
    ]
    return AroundMode(s, Z, Z - Z * Z, nu, t, slopes, changes)


def jacobian(fit, at):
    r"""Return the derivative of the gradient at the mode, where B changes, too (docs/theory/laplace.md).

    .. math:: K_{jk} + \nu_k (c - \tfrac12) D_{jk} - 2 c\, \nu_k E_{jk}, \qquad
        D_{jk} = \sum_n b'_n t_{nj}^2 t_{nk}, \quad E_{jk} = \sum_n b'_n t_{nj} u_{nj} t_{nk}

    with the Hessian K at constant B and u = t Z.
    """
    K, c, M, t, u = hessian(fit, at, False), fit.complexity, len(at.nu), at.t, at.t * at.Z
    rows = range(t.nrows())
    for j in range(M):
        weights = [at.slopes[n] * t[n, j] * ((c - arb(0.5)) * t[n, j] - 2 * c * u[n, j]) for n in rows]
        for k in range(M):
            K[j, k] += at.nu[k] * total(weights[n] * t[n, k] for n in rows)
    return K


def prove(problem):
    """Try to prove that a fit of classes or counts ended at its fixed point.

    Parameters
    ----------
    problem
        See `fit_of`.

    Returns
    -------
    Proof
        With ``is_maximum`` of the problem linearised at the mode.
    """
    bits, ctx.prec = ctx.prec, PRECISION
    try:

        def centre_at(moves):
            fit = fit_of(problem, moves)
            centre = around_mode(fit, arb(0))

            def around(r):
                at = around_mode(fit, r)
                if at is None:
                    return None

                def rest():
                    outside = gain_outside(fit, at.spread, at.changes)
                    return gain_inside(at, fit.complexity), outside, True

                return jacobian(fit, at), hessian(fit, at, False), rest

            slopes = [arb("nan")] if centre is None else gradient(fit, centre, False)
            return slopes, around

        return prove_near(centre_at)
    finally:
        ctx.prec = bits
