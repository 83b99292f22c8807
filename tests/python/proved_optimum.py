r"""Proofs, in ball arithmetic, that a fitted regression is a maximum of its objective.

The data of a proof are the numbers that the certificate works with, taken as exact: design matrix, targets,
row weights, precisions and noise in double precision. All that follows is computed in balls of Arb (Johansson
2017), which contain the true numbers. Imports nothing of the package.

Products of columns are :math:`a^T W (1 - F (F^T W F)^{-1} F^T W) b`, with the row weights W and the columns F
that have a flat prior: they leave out what F explains (docs/theory/flat-intercept.md). For the M active
functions, in units of their prior deviations, let

.. math:: H = 1 + \beta A^{-1/2} \Phi^T W \Phi A^{-1/2}, \qquad Z = H^{-1}, \qquad V = Z - Z^2, \qquad
    \nu = A^{1/2} \mu .

The objective is the log evidence minus :math:`c \sum_j (1 - Z_{jj})` (docs/theory/complexity.md). With
:math:`N = \sum_n w_n - \dim F` and :math:`\chi = \beta \| t - \Phi \mu \|_W^2`, its gradient in the
logarithms of alpha and beta is

.. math:: g_j = \tfrac12 (1 - Z_{jj} - \nu_j^2) + c V_{jj}, \qquad
    g_\beta = \tfrac12 (N - \chi - \sum_j (1 - Z_{jj})) - c\, \mathrm{tr}\, V .

References
----------
F. Johansson (2017). Arb: efficient arbitrary-precision midpoint-radius interval arithmetic. IEEE Transactions
on Computers 66.
R. Krawczyk (1969). Newton-Algorithmen zur Bestimmung von Nullstellen mit Fehlerschranken. Computing 4.
"""

from typing import NamedTuple

import numpy as np
from flint import arb, arb_mat, ctx

#: Bits of the midpoints. Columns that depend on one another cost digits, for which 53 bits are too few.
PRECISION = 320
#: What the certificate states of a converged fit: changes of ln alpha and ln beta, and nats.
MAX_CHANGE, MAX_GAIN = 1e-5, 1e-6
#: Radii that are tried, in this order: enclosures are tighter in a smaller ball.
RADII = (1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10)
#: Newton steps to another centre of the balls, if the model itself is none.
STEPS = 2


class Proof(NamedTuple):
    """What was proved of a model: upper bounds, which are inf where nothing was proved."""

    #: Distance of the centre of the ball from the model: 0, or that of Newton steps, where a ball around the
    #: model is too large.
    shift: float
    #: In the ball of this radius, in the logarithms of alpha and beta, there is exactly one stationary point.
    radius: float
    #: Its distance from the centre: the largest difference of a logarithm.
    distance: float
    #: Whether the Hessian is negative definite in the ball, so that the stationary point is a maximum.
    is_maximum: bool
    #: Nats gained by re-estimating or deleting an active function, at any point of the ball.
    gain_inside: float
    #: Nats gained by adding an inactive function, at any point of the ball.
    gain_outside: float
    #: False if the noise is at its lower bound and the objective does not increase towards less noise.
    noise_holds: bool

    @property
    def holds(self) -> bool:
        """Whether the model is a maximum with the tolerances of the certificate."""
        gain = max(self.gain_inside, self.gain_outside)
        near = self.shift + self.radius <= MAX_CHANGE
        return near and self.is_maximum and gain <= MAX_GAIN and self.noise_holds


class Fit(NamedTuple):
    """A fit at its published hyperparameters, all numbers balls; K functions, M of them active."""

    #: Functions in the model, those with a flat prior among them.
    given: list[int]
    #: Number of rows less that of flat columns; weight c of the prior on complexity.
    n_rows: arb
    complexity: arb
    #: Z (M x M), nu (length M), chi, and t^T C^-1 t.
    Z: arb_mat
    nu: list[arb]
    chi: arb
    power: arb
    #: Of all K functions: S and Q (Tipping & Faul 2003, equation 22), and R = phi^T C^-1 B^-1 C^-1 phi.
    S: list[arb]
    Q: list[arb]
    R: list[arb]


class Enclosure(NamedTuple):
    """Z, V (M x M), nu (length M) and chi, at all points of a ball."""

    Z: arb_mat
    V: arb_mat
    nu: list[arb]
    chi: arb


# --- balls ----------------------------------------------------------------------------------------


def between(low, high):
    """Return a ball that contains both numbers."""
    return arb(low).union(arb(high))


def upper(number):
    """Return a double that is not below any number of the ball."""
    return float(np.nextafter(float(number.upper()), np.inf)) if number.is_finite() else np.inf


def square(number):
    """Return the square of a ball. A power of a ball with midpoint 0 is NaN."""
    return number * number


def total(numbers):
    """Return the sum of balls."""
    return sum(numbers, arb(0))


def column(numbers):
    """Return the matrix of one column."""
    numbers = list(numbers)
    return arb_mat(len(numbers), 1, numbers)


def matrix_of(array):
    """Return an array of doubles as a matrix, exactly."""
    return arb_mat(*array.shape, array.ravel().tolist())


def submatrix(matrix, rows, columns):
    """Return the elements at some rows and columns."""
    return arb_mat(len(rows), len(columns), [matrix[i, j] for i in rows for j in columns])


def diagonal_matrix(numbers):
    """Return the matrix with these numbers on the diagonal."""
    matrix = arb_mat(len(numbers), len(numbers))
    for j, number in enumerate(numbers):
        matrix[j, j] = number
    return matrix


# --- the fit --------------------------------------------------------------------------------------


def products(problem):
    """Return the products of all columns and the targets, (K + 1) x (K + 1); flat columns are projected out.

    Parameters
    ----------
    problem
        Phi (N x K), target (N), weights (N, or None), active, and alpha, which is 0 for a flat prior.
    """
    rows = np.column_stack([problem.Phi, problem.target]).tolist()
    weights = [1.0] * len(rows) if problem.weights is None else problem.weights.tolist()
    weighted = [[arb(w) * arb(value) for value in row] for w, row in zip(weights, rows, strict=True)]
    gram = arb_mat(rows).transpose() * arb_mat(weighted)
    flat = problem.active[problem.alpha == 0.0].tolist()
    if flat:
        beside = submatrix(gram, flat, range(gram.ncols()))
        gram = gram - beside.transpose() * submatrix(gram, flat, flat).solve(beside)
    return gram


def prior_variances(problem, moves=None):
    """Return the prior variance of the weight of each active function that is no multiple of one before it.

    The objective depends on the sum of the variances of multiples of one column, in units of that column. It
    has no isolated maximum in the precisions of each. See `fit_of` for ``moves``.
    """
    variances = {}
    for j, alpha in zip(problem.active.tolist(), problem.alpha.tolist(), strict=True):
        if alpha == 0.0:
            continue
        own = problem.Phi[:, j]
        at = int(np.argmax(np.abs(own)))
        for k in variances:
            other = problem.Phi[:, k]
            # At this precision products of doubles are exact. A quick test in doubles comes first.
            if np.allclose(own * other[at], other * own[at], rtol=1e-12, atol=0.0) and all(
                arb(a) * arb(other[at]) == arb(b) * arb(own[at]) for a, b in zip(own, other, strict=True)
            ):
                variances[k] += square(arb(own[at]) / arb(other[at])) / arb(alpha)
                break
        else:
            variances[j] = 1 / arb(alpha)
    if moves is not None:
        variances = {j: value * arb(-moves[k]).exp() for k, (j, value) in enumerate(variances.items())}
    return variances


def fit_of(problem, moves=None):
    """Return one fit with a Gaussian likelihood at its hyperparameters.

    Parameters
    ----------
    problem
        See `products`; and beta and complexity.
    moves : ndarray of shape (M,) or (M + 1,), optional
        Added to ln alpha of the functions of `prior_variances`, and to ln beta.
    """
    assert problem.likelihood == "gaussian", problem.likelihood
    assert problem.alpha_prior == problem.noise_prior == (0.0, 0.0)
    assert problem.groups is None
    variances = prior_variances(problem, moves)
    gram, beta = products(problem), arb(problem.beta)
    if moves is not None and len(moves) > len(variances):
        beta *= arb(moves[-1]).exp()
    n_basis, n_flat = gram.ncols() - 1, int(np.sum(problem.alpha == 0.0))
    proper = list(variances)
    weights = [1.0] * len(problem.target) if problem.weights is None else problem.weights.tolist()
    # A^-1/2 Phi^T W (Phi, t), times beta.
    roots = [variance.sqrt() for variance in variances.values()]
    cross = diagonal_matrix([beta * root for root in roots]) * submatrix(gram, proper, range(n_basis + 1))
    M = submatrix(cross, range(len(proper)), proper) * diagonal_matrix(roots)
    Z = (diagonal_matrix([arb(1)] * len(proper)) + M).inv()
    covariances = Z * cross  # A^1/2 Sigma beta Phi^T W (Phi, t)
    nu = [covariances[j, n_basis] for j in range(len(proper))]
    S, Q, R = [], [], []
    for i in range(n_basis + 1):
        a, b = ([matrix[j, i] for j in range(len(proper))] for matrix in (cross, covariances))
        S.append(beta * gram[i, i] - total(x * y for x, y in zip(a, b, strict=True)))
        Q.append(beta * gram[i, n_basis] - total(x * y for x, y in zip(a, nu, strict=True)))
        R.append(S[-1] - total(y * y for y in b))
    power, chi = S.pop(), R.pop()
    given = problem.active[problem.alpha == 0.0].tolist() + proper
    n_rows = total(map(arb, weights)) - n_flat
    return Fit(given, n_rows, arb(problem.complexity), Z, nu, chi, power, S, Q[:-1], R)


# --- the ball around the model --------------------------------------------------------------------


def enclosure(fit, r, free):
    r"""Return Z, V, nu and chi at all points whose logarithms differ by at most r from the model's.

    At the differences x of ln alpha and b of ln beta, with :math:`D = e^{x - b} - 1` and X = (H + D)^-1,

    .. math:: Z(x, b) = e^{-b} e^{x / 2} X e^{x / 2}, \quad \nu(x, b) = e^{x / 2} (\nu - X D \nu), \quad
        \chi(x, b) = e^b (\chi + 2 \nu^T X D \nu + d^T (H - 1) d), \quad d = X D \nu .

    Let |D| <= e. Then X <= 1 / (1 - e), as H >= 1, and :math:`X = Z - Z D Z + Z D X D Z`, whose last term has
    elements of at most :math:`e^2 / (1 - e)` times the lengths of two columns of Z. These bounds do not grow
    with the condition number of H.

    Parameters
    ----------
    fit : Fit
    r : arb
    free : bool
        Whether beta differs, too.
    """
    Z, nu, M = fit.Z, column(fit.nu), len(fit.nu)
    e = (2 * r if free else r).expm1()
    D = diagonal_matrix([between(-e, e)] * M)
    lengths = [total(square(Z[i, j]) for i in range(M)).sqrt() for j in range(M)]
    rest = e * e / (1 - e)
    last = [[between(-rest, rest) * a * b for b in lengths] for a in lengths]
    X = Z - Z * D * Z + (arb_mat(last) if M else Z)
    length = total(map(square, fit.nu)).sqrt()
    change = Z * D * nu + column([between(-rest, rest) * a * length for a in lengths])
    # Element jk of Z(x, b) is that of X times e^((x_j + x_k) / 2 - b): one ball of factors for all x and b.
    b = between(-r, r).exp() if free else arb(1)
    half = (between(-r, r) / 2).exp()
    Z_inside = X * (half * half / b)
    linear = total(value * d for value, d in zip(fit.nu, change.entries(), strict=True))
    quadratic = between(0, square(e * length / (1 - e)))
    return Enclosure(
        Z_inside,
        Z_inside - Z_inside * Z_inside,
        [half * value for value in (nu - change).entries()],
        b * (fit.chi + 2 * linear + quadratic),
    )


def gradient(fit, at, free):
    """Return the gradient in the logarithms of alpha, and of beta if it is free (see the top)."""
    M, c = len(at.nu), fit.complexity
    g = [(1 - at.Z[j, j] - square(at.nu[j])) / 2 + c * at.V[j, j] for j in range(M)]
    if free:
        g.append((fit.n_rows - at.chi - M + at.Z.trace()) / 2 - c * at.V.trace())
    return g


def hessian(fit, at, free):
    r"""Return the second derivatives of the objective in the logarithms of alpha, and of beta if it is free.

    They follow from

    .. math:: \frac{\partial Z}{\partial \ln \alpha_k} = \tfrac12 (e_k e_k^T Z + Z e_k e_k^T) - Z e_k e_k^T Z,
        \quad \frac{\partial \nu_j}{\partial \ln \alpha_k} = \tfrac12 \delta_{jk} \nu_j - Z_{jk} \nu_k, \quad
        \frac{\partial Z}{\partial \ln \beta} = -V, \quad \frac{\partial \nu}{\partial \ln \beta} = Z \nu .
    """
    M, c, Z, V, nu = len(at.nu), fit.complexity, at.Z, at.V, at.nu
    K = arb_mat(M + free, M + free)
    for j in range(M):
        for k in range(M):
            K[j, k] = Z[j, k] * (Z[j, k] / 2 + nu[j] * nu[k] - 2 * c * V[j, k])
        K[j, j] += c * V[j, j] - (Z[j, j] + square(nu[j])) / 2
    if free:
        Z_nu, ZV = (Z * column(nu)).entries(), Z * V
        for j in range(M):
            K[j, M] = K[M, j] = V[j, j] / 2 - nu[j] * Z_nu[j] + c * (2 * ZV[j, j] - V[j, j])
        twice = total(a * b for a, b in zip(nu, Z_nu, strict=True))
        K[M, M] = (2 * twice - at.chi - V.trace()) / 2 + c * (V.trace() - 2 * ZV.trace())
    return K


def middle(matrix):
    """Return the midpoints in double precision."""
    values = [float(value.mid()) for value in matrix.entries()]
    return np.array(values).reshape(matrix.nrows(), matrix.ncols())


def inverse_of(matrix):
    """Return an exact matrix near the inverse."""
    return matrix_of(np.linalg.inv(middle(matrix)))


def root_of_inverse(matrix):
    """Return an exact T with T^T T near the inverse of a symmetric matrix; None if that is not definite."""
    try:
        return matrix_of(np.linalg.inv(np.linalg.cholesky(middle(matrix))))
    except np.linalg.LinAlgError:
        return None


def stationary_point(slopes, C, T, jacobian, K, r):
    r"""Look whether the Krawczyk operator proves exactly one stationary point in a ball around the model.

    With C near the inverse of the Jacobian J of the gradient g the operator maps x to :math:`x_0 - C g(x_0)
    + (1 - C J)(x - x_0)`. If the image of the ball is in its interior, g has exactly one zero there.

    Parameters
    ----------
    slopes : list of arb
        g at the model, length n.
    C, T : arb_mat
        Exact matrices (n x n): see above; and with T^T T near the inverse of -K, or None.
    jacobian, K : arb_mat
        Enclosures in the ball of the Jacobian of g, and of the Hessian of the objective.
    r : arb
        Radius of the ball.

    Returns
    -------
    distance : float
        Bound of the distance of the stationary point from the model; inf if nothing was proved.
    is_maximum : bool
        Whether K is negative definite in the ball: T (-K) T^T is diagonally dominant.
    """
    n = len(slopes)
    rest = (diagonal_matrix([arb(1)] * n) - C * jacobian) * column([between(-r, r)] * n)
    image = [abs(b - a).upper() for a, b in zip((C * column(slopes)).entries(), rest.entries(), strict=True)]
    if not all(value < r for value in image):
        return np.inf, False
    return max(map(upper, image), default=0.0), T is not None and is_dominant(T * -K * T.transpose())


def is_dominant(matrix):
    """Return whether all diagonals surely exceed the sum of the sizes of the other elements of their row."""
    rows = range(matrix.nrows())
    return all(matrix[j, j] > total(abs(matrix[j, k]) for k in rows if k != j) for j in rows)


# --- gains of single changes ----------------------------------------------------------------------


def gain_of_ratio(y):
    """Return a bound of (y - 1 - ln y) / 2, which is convex and 0 at 1."""
    return max(((end - 1 - end.log()) / 2).upper() for end in (y.lower(), y.upper()))


def gain_inside(at, c):
    r"""Return a bound of the gain of re-estimating or deleting an active function.

    With :math:`y = (\nu_j^2 - 2 c V_{jj}) / (1 - Z_{jj})` re-estimation gains (y - 1 - ln y) / 2 (Tipping &
    Faul 2003, equation 32), and more than deletion, if :math:`y > Z_{jj}` (equation 20: q^2 > s + 2 c rho).
    """
    largest = 0.0
    for j, nu in enumerate(at.nu):
        determined = 1 - at.Z[j, j]
        y = (square(nu) - 2 * c * at.V[j, j]) / determined
        if not (determined > 0 and y > at.Z[j, j] and y > 0):
            return np.inf
        largest = max(largest, upper(gain_of_ratio(y)))
    return largest


def changes_of_quality(fit, r):
    r"""Return bounds of the change of Q of each function of a regression in a ball, in units of its root of
    S.

    With C as in `gain_outside`, the slope of Q along a straight path is :math:`-\phi^T C^{-1} \dot C C^{-1}
    t`, at most :math:`r (S\, t^T C^{-1} t)^{1/2}`.
    """
    return [r * r.exp() * fit.power.sqrt()] * len(fit.S)


def gain_outside(fit, r, changes):
    r"""Return a bound of the gain of adding a function (equation 27), at any point of a ball.

    No logarithm of a precision or noise variance differs by more than r from the model's. So C, the
    covariance of the targets, and S are between :math:`e^{-r}` and :math:`e^r` times those at the model.
    Along a straight path :math:`-r C \le \dot C \le r C`, and :math:`R = \phi^T C^{-1} B^{-1} C^{-1} \phi
    \le S` has a slope of at most :math:`r (2 (S R)^{1/2} + R)`; so :math:`|R - R_0| \le 3 r e^r S_0`. With
    flat columns the same holds for the part of :math:`C^{-1}` that is orthogonal to them.

    Parameters
    ----------
    fit
        S, Q and R of all functions at the model, those that are ``given``, and complexity.
    r : arb
    changes : list of arb
        Bound of :math:`|Q - Q_0| / S_0^{1/2}` for each function.
    """
    largest, scale, rest = 0.0, between((-r).exp(), r.exp()), 3 * r * r.exp()
    for i in set(range(len(fit.S))) - set(fit.given):
        S, Q, R = fit.S[i], fit.Q[i], fit.R[i]
        if S == 0 and Q == 0:  # a column of zeros
            continue
        if not S > 0:
            return np.inf
        q = Q / S.sqrt() + between(-changes[i], changes[i])
        rho = R / S + between(-rest, rest)
        ratio = ((square(q) - 2 * fit.complexity * rho) * scale).upper()
        if not ratio <= 1:
            largest = max(largest, upper(gain_of_ratio(ratio)))
    return largest


# --- the proof ------------------------------------------------------------------------------------


def prove_near(centre_at):
    """Return a proof in a ball around the model, or one around a point next to it; else what was proved last.

    Parameters
    ----------
    centre_at : callable
        Returns, for moves of the logarithms from the model or None, the gradient there (length n) and a
        callable ``around`` (see `prove_in_balls`).
    """
    moves = None
    for _ in range(STEPS + 1):
        slopes, around = centre_at(moves)
        shift = 0.0 if moves is None else float(np.abs(moves).max())
        proof, step = prove_in_balls(slopes, around, shift)
        moves = step if moves is None else moves + step
        # Also where a step is NaN.
        if proof.holds or not np.abs(moves).max(initial=0.0) < MAX_CHANGE:
            break
    return proof


def prove_in_balls(slopes, around, shift):
    """Return the proof in the largest ball in which there is one, else what the smallest proves; and a step.

    Parameters
    ----------
    slopes : list of arb
        The gradient at the centre, length n.
    around : callable
        Returns for a radius the enclosures in the ball of the Jacobian of the gradient and of the Hessian of
        the objective (n x n), which differ for a posterior mode; and a callable that returns gain_inside,
        gain_outside and noise_holds of `Proof`. None if the ball is too large for an enclosure.
    shift : float
        See `Proof`.

    Returns
    -------
    proof : Proof
    step : ndarray of shape (n,)
        Newton's step from the centre.
    """
    proof = Proof(shift, np.inf, np.inf, False, np.inf, np.inf, False)
    centre = around(arb(0))
    if centre is None:
        return proof, np.full(len(slopes), np.nan)
    C, T = inverse_of(centre[0]), root_of_inverse(-centre[1])
    for radius in RADII:
        inside = around(arb(radius))
        if inside is None:
            continue
        jacobian, K, rest = inside
        distance, is_maximum = stationary_point(slopes, C, T, jacobian, K, arb(radius))
        proof = Proof(shift, radius if distance < np.inf else np.inf, distance, is_maximum, *rest())
        if proof.holds:
            break
    return proof, -middle(C * column(slopes)).ravel()


def prove(problem):
    """Try to prove that one fit with a Gaussian likelihood ended at a maximum of its objective.

    Parameters
    ----------
    problem
        Dense arrays of the fit: see `products` and `fit_of`; noise is "estimated", "fixed" or "floor".

    Returns
    -------
    Proof
    """
    bits, ctx.prec = ctx.prec, PRECISION
    try:
        free = problem.noise == "estimated"

        def centre_at(moves):
            fit = fit_of(problem, moves)

            def around(r):
                at = enclosure(fit, r, free)
                K = hessian(fit, at, free)

                def rest():
                    outside = gain_outside(fit, r, changes_of_quality(fit, r))
                    noise_holds = problem.noise != "floor" or gradient(fit, at, True)[-1] > 0
                    return gain_inside(at, fit.complexity), outside, noise_holds

                return K, K, rest

            return gradient(fit, enclosure(fit, arb(0), free), free), around

        return prove_near(centre_at)
    finally:
        ctx.prec = bits
