"""Measures the rows and sets them in tables; each function returns a table and its raw numbers."""

import math

import numpy as np
from peers import is_installed, n_functions
from report import Table, milliseconds, n_cores, number
from rows import DICTIONARIES
from runs import duel, in_own_process, progress, seconds

TIME_HEADINGS = (
    "row",
    "ours / peer",
    " N",
    " ratio",
    " min..max",
    " ours, ms",
    " peer, ms",
    " functions",
    " of peer",
    " nats ahead",
    " target",
    "met",
)
LARGE_HEADINGS = ("row", "what", " value", " target", "met")
EVIDENCE_HEADINGS = (
    "row",
    "ours less peer",
    " N",
    " seeds",
    " worst, nats",
    " target",
    "met",
    " mean, nats",
    " target",
    "met",
)
GIB = 2**30


def pick(row, options):
    """The sizes of a row under these options."""
    sizes = row.quick_sizes if options.quick else row.sizes
    if options.full and not options.quick:
        sizes = getattr(row, "full_sizes", sizes)
    return [size // options.scale for size in sizes]


def verdict(target, value, ahead=None):
    """Texts of a target and of whether it is met."""
    if target is None:
        return "", ""
    return str(target), "yes" if target.met(value, ahead) else "NO"


def times(rows, options):
    """Rows 1 to 5 and 7: ratios of times."""
    cells, raw = [], []
    for row in rows:
        if not is_installed(row.peer):
            progress("row", row.number, "left out:", row.peer.name, "is not installed")
            continue
        if row.number == 7 and n_cores() < 2:
            progress("row 7 left out: it takes two cores")
            continue
        measured = [measure_time(row, n, options.repeats) for n in pick(row, options)]
        raw += measured
        cells += [time_cells(row, one) for one in measured]
        if row.goal is not None:
            cells.append(goal_cells(row, measured))
    title = f"Time of fit: median of {options.repeats} ratios, runs in turns"
    return Table(title, TIME_HEADINGS, cells), raw


def measure_time(row, n, repeats):
    progress("row", row.number, row.ours.name, "/", row.peer.name, "N =", n)
    data = row.problem(n)
    result = duel(row.ours, row.peer, data, repeats)
    ahead = None
    if row.evidence_of_peer is not None:
        ahead = result.our_model.log_marginal_likelihood_ - row.evidence_of_peer(result.peer_model, data)
    return {
        "row": row.number,
        "ours": row.ours.name,
        "peer": row.peer.name,
        "n": n,
        "ratio": float(np.median(result.ratios)),
        "ratios": result.ratios.tolist(),
        "our_seconds": result.ours,
        "peer_seconds": result.peer,
        "our_functions": n_functions(result.our_model),
        "peer_functions": n_functions(result.peer_model),
        "nats_ahead": ahead,
        "status": result.our_model.status_,
    }


def time_cells(row, measured):
    status = "" if measured["status"] == "converged" else f" ({measured['status']})"
    return (
        str(row.number),
        f"{row.ours.name} / {row.peer.name}{status}",
        str(measured["n"]),
        number(measured["ratio"]),
        f"{number(min(measured['ratios']))}..{number(max(measured['ratios']))}",
        milliseconds(np.median(measured["our_seconds"])),
        milliseconds(np.median(measured["peer_seconds"])),
        str(measured["our_functions"]),
        str(measured["peer_functions"]),
        "" if measured["nats_ahead"] is None else f"{measured['nats_ahead']:.2f}",
        *verdict(row.targets.get(measured["n"]), measured["ratio"], measured["nats_ahead"]),
    )


def goal_cells(row, measured):
    """The geometric mean over all sizes; it is held to the goal only where each size has a target."""
    mean = math.exp(np.mean([math.log(one["ratio"]) for one in measured]))
    complete = {one["n"] for one in measured} == set(row.targets)
    name = f"{row.ours.name} / {row.peer.name}"
    blank = ("",) * 6
    ends = verdict(row.goal if complete else None, mean)
    return (str(row.number), name, "geometric mean", number(mean), *blank, *ends)


def large(row, options):
    """Row 6: memory and growth."""
    small, most = pick(row, options)
    progress("row 6, N =", small, "and", most)
    measured = in_own_process("large_fit.py", most, small, options.repeats)
    growth = measured["large_seconds"] / np.median(measured["small_seconds"])
    measured["exponent"] = math.log(growth) / math.log(most / small)
    return Table("One large fit of RVR", LARGE_HEADINGS, large_cells(row, measured)), measured


def large_cells(row, measured):
    small, most = measured["small"], measured["large"]
    judged = most == row.sizes[1]
    extra = measured["extra_bytes"]
    gib = None if extra is None else extra / GIB
    memory = verdict(row.memory if judged and extra is not None else None, gib)
    exponent = verdict(row.exponent if judged else None, measured["exponent"])
    seconds_small = np.median(measured["small_seconds"])
    return [
        ("6", f"status at N = {most}", measured["status"], "", ""),
        ("6", f"functions at N = {most}", str(measured["functions"]), "", ""),
        ("6", "peak extra memory, GiB", "not measured" if gib is None else number(gib), *memory),
        ("6", f"time at N = {small}, ms", milliseconds(seconds_small), "", ""),
        ("6", f"time at N = {most}, ms", milliseconds(measured["large_seconds"]), "", ""),
        ("6", f"exponent of N from {small} to {most}", number(measured["exponent"]), *exponent),
    ]


def evidences(rows, options):
    """Row 8: our evidence less that of fastrvm."""
    cells, raw = [], []
    for row in rows:
        if not is_installed(row.peer):
            progress("row 8 left out:", row.peer.name, "is not installed")
            continue
        for n in pick(row, options):
            measured = measure_evidence(row, n, row.quick_seeds if options.quick else row.seeds)
            raw.append(measured)
            cells += [evidence_cells(row, n, *found) for found in measured["differences"].items()]
    return Table("Log evidence beside fastrvm", EVIDENCE_HEADINGS, cells), raw


def measure_evidence(row, n, seeds):
    differences = {dictionary: [] for dictionary in DICTIONARIES}
    for seed in range(seeds):
        progress("row 8", row.ours.name, "N =", n, "seed", seed)
        data = row.problem(n, seed)
        _, ours = seconds(row.ours, data)
        _, peer = seconds(row.peer, data)
        for dictionary, evidence_of_peer in DICTIONARIES.items():
            ahead = ours.log_marginal_likelihood_ - evidence_of_peer(peer, data)
            differences[dictionary].append(float(ahead))
    return {"ours": row.ours.name, "peer": row.peer.name, "n": n, "differences": differences}


def evidence_cells(row, n, dictionary, differences):
    worst, mean = min(differences), float(np.mean(differences))
    judged = n in row.full_sizes
    return (
        "8",
        f"{row.ours.name} - {row.peer.name} {dictionary}",
        str(n),
        str(len(differences)),
        f"{worst:.2f}",
        *verdict(row.worst if judged else None, worst),
        f"{mean:.2f}",
        *verdict(row.mean if judged else None, mean),
    )
