"""Prove the optima of the certificate's problems, and print what was proved of each.

``make proofs`` runs this. It fails if fewer than 95 % of the fits are proved.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Iterator
from typing import Any

from sklearn.exceptions import ConvergenceWarning

import proved_laplace
import proved_optimum
from problems import PROBLEMS
from proved_optimum import Proof

#: The papers' model, which the problems have, and the default one.
OBJECTIVES: dict[str, dict[str, Any]] = {
    "papers": {},
    "default": {"penalize_intercept": False, "complexity": "auto"},
}
#: Share of the problems that must be proved.
SHARE = 0.95


def fits(objective: str, max_functions: float = float("inf")) -> Iterator[tuple[str, Any]]:
    """Fit each problem; yield the name and the dense arrays of each fit of so many functions at most.

    The intercept is not counted.
    """
    for name, problem in PROBLEMS.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = problem.fitted(**OBJECTIVES[objective])
        for fit in model._problems(problem.X, problem.y, problem.sample_weight):
            if fit.Phi.shape[1] - 1 <= max_functions:
                yield name, fit


def prove(fit: Any) -> Proof:
    """Try to prove the optimum of a fit."""
    return (proved_optimum if fit.likelihood == "gaussian" else proved_laplace).prove(fit)


def line(name: str, fit: Any, proof: Proof, seconds: float) -> str:
    """Return what was proved, as a line of a table."""
    holds = "proved    " if proof.holds else "not proved"
    sizes = f"{fit.Phi.shape[1]:5} {len(fit.alpha):4}"
    distances = f"{proof.shift:7.0e} {proof.radius:7.0e} {proof.distance:8.1e}"
    gains = f"{proof.gain_inside:8.1e} {proof.gain_outside:8.1e}"
    return f"{name:28} {holds} {sizes} {distances} {gains} {seconds:6.2f}"


def main() -> int:
    """Print a table for each objective; return 1 if too few problems were proved."""
    enough = True
    for objective in OBJECTIVES:
        print(f"{objective:39} basis size   shift  radius distance   inside  outside      s")
        proofs = []
        for name, fit in fits(objective):
            start = time.perf_counter()
            proofs.append(prove(fit))
            print(line(name, fit, proofs[-1], time.perf_counter() - start), flush=True)
        n_proved = sum(proof.holds for proof in proofs)
        print(f"{n_proved} of {len(proofs)} proved\n")
        enough = enough and n_proved >= SHARE * len(proofs)
    return 0 if enough else 1


if __name__ == "__main__":
    sys.exit(main())
