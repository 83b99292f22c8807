"""The best model of all there are: every subset of a few functions, the precisions of each at their best."""

import numpy as np

#: Cycles over all functions, and the change of a prior variance that ends them.
CYCLES = 400
CLOSE = 1e-7
KINDS = ("three factors, weak", "three factors, strong", "bumps")


def best_of_all(Phi, t, beta):
    """Return the highest log evidence over all subsets of the columns of Phi, at this noise precision.

    The precisions of each subset go to their maxima one at a time (Tipping & Faul 2003, equations 20 and
    21), over and over: all subsets side by side, in prior variances, of which 0 is the function left out.
    """
    n_basis = Phi.shape[1]
    inside = (np.arange(2**n_basis)[:, None] >> np.arange(n_basis)) & 1 == 1
    gram, moments = beta * Phi.T @ Phi, beta * Phi.T @ t
    variance = np.where(inside, np.var(t) / np.mean(Phi**2) / n_basis, 0.0)
    moving = np.arange(len(inside))
    for _ in range(CYCLES):
        variance[moving], change = one_cycle(variance[moving], inside[moving], gram, moments)
        moving = moving[change > CLOSE]
        if len(moving) == 0:
            break
    return float(log_evidences(variance, gram, moments, t, beta).max())


def one_cycle(variance, inside, gram, moments):
    """Move the variance of each function in turn; return all, and the largest relative change by model."""
    variance, change = variance.copy(), np.zeros(len(variance))
    sigma = covariances(variance, gram)
    for k in range(len(gram)):
        with_k = sigma @ gram[:, k]
        S = gram[k, k] - with_k @ gram[:, k]
        Q = moments[k] - with_k @ moments
        # TF 23, in variances.
        left = 1.0 - variance[:, k] * S
        s, q = S / left, Q / left
        new = np.where(inside[:, k] & (q**2 > s), (q**2 - s) / s**2, 0.0)
        moved = new - variance[:, k]
        column = -with_k
        column[:, k] += 1.0
        factor = moved / (1.0 + moved * S)
        sigma += factor[:, None, None] * column[:, :, None] * column[:, None, :]
        change = np.maximum(change, np.abs(moved) / (new + variance[:, k] + 1e-12))
        variance[:, k] = new
    return variance, change


def covariances(variance, gram):
    """Return (V^-1 + beta Phi^T Phi)^-1 of each row of variances, zeros among them."""
    root = np.sqrt(variance)
    inner = np.eye(len(gram)) + root[:, :, None] * gram * root[:, None, :]
    return root[:, :, None] * np.linalg.inv(inner) * root[:, None, :]


def log_evidences(variance, gram, moments, t, beta):
    """Return the log evidence of each row of variances (TF 7)."""
    root = np.sqrt(variance)
    inner = np.eye(len(gram)) + root[:, :, None] * gram * root[:, None, :]
    explained = np.linalg.solve(inner, (root * moments)[:, :, None])[:, :, 0]
    energy = beta * t @ t - np.sum(root * moments * explained, axis=1)
    return -0.5 * (len(t) * np.log(2 * np.pi / beta) + np.linalg.slogdet(inner)[1] + energy)


def problem(kind, n_basis, seed):
    """Return Phi, t and the noise variance of a problem whose functions resemble one another."""
    rng = np.random.default_rng(seed)
    n_rows = 2 * n_basis
    if kind == "bumps":
        x, centres = np.sort(rng.uniform(-1, 1, n_rows)), np.linspace(-1, 1, n_basis)
        t = np.sin(5 * x) * np.exp(x) + 0.3 * rng.normal(size=n_rows)
        return np.exp(-(((x[:, None] - centres) / 0.3) ** 2)), t, 0.09
    share = 0.97 if kind.endswith("strong") else 0.9
    factors, loadings = rng.normal(size=(n_rows, 3)), rng.normal(size=(3, n_basis)) / np.sqrt(3)
    own = rng.normal(size=(n_rows, n_basis))
    Phi = np.sqrt(1 - share**2) * own + share * factors @ loadings
    weights = np.zeros(n_basis)
    weights[rng.choice(n_basis, 5, replace=False)] = rng.normal(size=5)
    signal = Phi @ weights
    noise = 0.25 * signal.std()
    return Phi, signal + noise * rng.normal(size=n_rows), noise**2
