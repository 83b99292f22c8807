"""The rows of the table: what is compared with what, at which sizes, and the target of each."""

import operator
from collections.abc import Callable
from dataclasses import dataclass, field

import evidence
import peers
from peers import Method

SIGNS = {"<": operator.lt, "<=": operator.le, ">=": operator.ge, ">": operator.gt}


@dataclass(frozen=True)
class Target:
    """A bound on a number; ``nats``: ours has to be ahead of the peer's evidence by at least as much."""

    sign: str
    limit: float
    text: str = ""
    nats: float | None = None

    def met(self, value, ahead=None):
        return SIGNS[self.sign](value, self.limit) and (self.nats is None or ahead >= self.nats)

    def __str__(self):
        bound = f"{self.sign} {self.text or f'{self.limit:g}'}"
        return bound if self.nats is None else f"{bound}, nats >= {self.nats:g}"


@dataclass(frozen=True)
class TimeRow:
    """A ratio of times of `fit`, ours over the peer's."""

    number: int
    ours: Method
    peer: Method
    problem: Callable
    sizes: tuple[int, ...]
    quick_sizes: tuple[int, ...]
    targets: dict[int, Target] = field(default_factory=dict)
    #: Of the geometric mean of the ratios at all sizes.
    goal: Target | None = None
    #: From the peer's model and the data to the exact evidence of what the peer found.
    evidence_of_peer: Callable | None = None


def at_most(limit, *sizes, **more):
    return dict.fromkeys(sizes, Target("<=", limit, **more))


TIME_ROWS = (
    TimeRow(
        1,
        peers.OUR_RVR,
        peers.LIBSVM_SVR,
        peers.surface,
        sizes=(500, 1000, 2000, 4000),
        quick_sizes=(500, 1000),
        targets=at_most(1.0, 500, 1000, 2000, 4000),
        goal=Target("<=", 0.5),
    ),
    TimeRow(
        2,
        peers.OUR_RVC,
        peers.CALIBRATED_SVC,
        peers.mixture,
        sizes=(1000, 2000, 4000),
        quick_sizes=(1000,),
        targets=at_most(0.3, 1000, 2000, 4000),
    ),
    TimeRow(
        3,
        peers.OUR_RVC,
        peers.LIBSVM_SVC,
        peers.mixture,
        sizes=(1000, 2000, 4000),
        quick_sizes=(1000,),
        targets=at_most(1.5, 1000) | at_most(1.0, 2000, 4000),
    ),
    TimeRow(
        4,
        peers.OUR_RVR,
        peers.FASTRVM_RVR,
        peers.surface,
        sizes=(4000,),
        quick_sizes=(1000,),
        targets=at_most(1 / 15, 4000, text="1/15"),
        evidence_of_peer=evidence.evidence_of_fastrvm,
    ),
    TimeRow(
        4,
        peers.OUR_RVC,
        peers.FASTRVM_RVC,
        peers.mixture,
        sizes=(4000,),
        quick_sizes=(1000,),
        targets=at_most(1 / 60, 4000, text="1/60"),
        evidence_of_peer=evidence.evidence_of_fastrvm,
    ),
    TimeRow(
        5,
        peers.OUR_COLUMNS,
        peers.ARD,
        peers.columns,
        sizes=(2000,),
        quick_sizes=(1000,),
        targets=at_most(0.1, 2000, nats=0.0),
        evidence_of_peer=evidence.evidence_of_ard,
    ),
    TimeRow(
        7,
        peers.ONE_THREAD,
        peers.TWO_THREADS,
        peers.surface,
        sizes=(4000,),
        quick_sizes=(2000,),
        targets={4000: Target(">=", 1.6)},
    ),
)


@dataclass(frozen=True)
class LargeRow:
    """Row 6: memory of one large fit, and how time grows from a small one to it."""

    sizes: tuple[int, int] = (2000, 20_000)
    quick_sizes: tuple[int, int] = (1000, 4000)
    #: The targets hold at the largest of ``sizes`` only.
    memory: Target = Target("<", 1.5, text="1.5 GiB")
    exponent: Target = Target("<=", 2.2)


@dataclass(frozen=True)
class EvidenceRow:
    """Row 8: our evidence less fastrvm's, over problems of different seeds."""

    ours: Method
    peer: Method
    problem: Callable
    sizes: tuple[int, ...] = (500, 1000, 2000)
    quick_sizes: tuple[int, ...] = (500,)
    full_sizes: tuple[int, ...] = (500, 1000, 2000, 4000)
    seeds: int = 10
    quick_seeds: int = 3
    worst: Target = Target(">=", -0.5)
    mean: Target = Target(">", 0.0)


LARGE_ROW = LargeRow()
EVIDENCE_ROWS = (
    EvidenceRow(peers.OUR_RVR, peers.FASTRVM_RVR, peers.surface),
    EvidenceRow(peers.OUR_RVC, peers.FASTRVM_RVC, peers.mixture),
)
#: The bias makes a difference to where fastrvm stops: held against both, lest we win by its accidents.
DICTIONARIES = {
    "without bias": evidence.evidence_of_fastrvm,
    "with bias": evidence.evidence_of_fastrvm_with_bias,
}
NUMBERS = tuple(range(1, 9))
