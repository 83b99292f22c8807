"""What is tried once the sequential scheme has come to an optimum: the arguments ``search`` and its seed."""

from __future__ import annotations

from typing import Any, cast, get_args

from sklearn.utils import check_random_state

from .._checks.targets import naming
from .._data.first_pass import seed_of
from .._types import Scheme, Search


def check_search(estimator: Any, scheme: Scheme) -> Search:
    """Return ``search``; ValueError if it is none, or the other arguments have no such thing."""
    search = getattr(estimator, "search", "greedy")
    if not isinstance(search, str) or search not in get_args(Search):
        raise ValueError(f"search must be 'greedy', 'exchange' or 'thorough', got {search!r}")
    if search != "greedy" and scheme != "sequential":
        raise ValueError(f"search={search!r} needs scheme='sequential'; or take search='greedy'")
    return cast(Search, search)


def seed_for(estimator: Any, search: Search) -> int:
    """Return the seed of the restarts of a fit, 0 where there are none."""
    if search != "thorough":
        return 0
    with naming("random_state"):
        return seed_of(check_random_state(getattr(estimator, "random_state", None)))
