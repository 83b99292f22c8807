"""Log evidence of what the peers found, computed densely with code that is neither theirs nor ours."""

import numpy as np
from peers import fastrvm, kept_by_ard
from scipy.special import expit
from sklearn.metrics.pairwise import rbf_kernel

NEWTON_STEPS = 200
#: Twice the nats a Newton step has to gain to be worth another.
CLOSE = 1e-12


def gaussian_log_evidence(Phi, t, alpha, beta):
    """Tipping & Faul (2003), equation 7, at these precisions of weights and noise."""
    # With weights in units of their prior deviation |H| / prod(alpha) is one determinant.
    scaled = Phi / np.sqrt(alpha)
    H = np.eye(len(alpha)) + beta * scaled.T @ scaled
    v = beta * np.linalg.solve(H, scaled.T @ t)
    energy = beta * np.sum((t - scaled @ v) ** 2) + v @ v
    return 0.5 * (len(t) * np.log(beta / (2 * np.pi)) - np.linalg.slogdet(H)[1] - energy)


def laplace_log_evidence(Phi, t, alpha):
    """log p(t|w) - w^T A w / 2 + ln|A| / 2 - ln|Phi^T B Phi + A| / 2 at the mode w; t is 0 or 1."""
    scaled = Phi / np.sqrt(alpha)
    v = mode(scaled, t)
    p = expit(scaled @ v)
    H = hessian(scaled, p)
    return log_posterior(scaled, t, v) - 0.5 * np.linalg.slogdet(H)[1]


def log_posterior(scaled, t, v):
    eta = scaled @ v
    return t @ eta - np.logaddexp(0.0, eta).sum() - 0.5 * v @ v


def hessian(scaled, p):
    return np.eye(scaled.shape[1]) + (scaled * (p * (1 - p))[:, None]).T @ scaled


def mode(scaled, t):
    """Newton's method from zero, halving the steps that overshoot."""
    v = np.zeros(scaled.shape[1])
    for _ in range(NEWTON_STEPS):
        p = expit(scaled @ v)
        slope = scaled.T @ (t - p) - v
        step = np.linalg.solve(hessian(scaled, p), slope)
        if slope @ step < CLOSE:
            return v + step
        here = log_posterior(scaled, t, v)
        while not log_posterior(scaled, t, v + step) >= here:
            step = step / 2
        v = v + step
    raise ArithmeticError("Newton's method found no mode")


def evidence_of_ard(model, data):
    """Log evidence of `ARDRegression`, whose lambda_ is our alpha and whose alpha_ is our beta."""
    kept = kept_by_ard(model)
    return gaussian_log_evidence(data.X[:, kept], data.y, model.lambda_[kept], float(model.alpha_))


def evidence_of_fastrvm(model, data):
    """Log evidence of a fitted fastrvm estimator without a bias, its default."""
    Phi = rbf_kernel(data.X, model.relevance_vectors_, gamma=model.gamma)
    return at_alphas_of_fastrvm(Phi, data.y, model.alpha_, getattr(model, "beta_", None))


def evidence_of_fastrvm_with_bias(model, data):
    """Of its solver on our dictionary: a bias that is a function like any other, and then the kernels."""
    bindings = fastrvm._sparsebayes_bindings
    regression = hasattr(model, "beta_")
    likelihood = bindings.Likelihood.Gaussian if regression else bindings.Likelihood.Bernoulli
    kernels = rbf_kernel(data.X, gamma=model.gamma)
    Phi = np.asfortranarray(np.column_stack([np.ones(len(data.X)), kernels]))
    solver = bindings.SparseBayes(likelihood, iterations=model.max_iter)
    found = solver.inference(Phi, data.y.astype(float))
    active = np.ravel(found["relevant_idx"]).astype(int)
    return at_alphas_of_fastrvm(Phi[:, active], data.y, found["alpha"], found["beta"] if regression else None)


def at_alphas_of_fastrvm(Phi, t, returned, beta):
    # Its alphas, of either likelihood, belong to columns of unit length, divided by the squared length where
    # that should multiply. So corrected, they have its weights for their posterior mean or mode.
    alpha = np.ravel(returned) * np.sum(Phi**2, axis=0) ** 2
    if beta is None:
        return laplace_log_evidence(Phi, t, alpha)
    return gaussian_log_evidence(Phi, t, alpha, float(np.ravel(beta)[0]))
