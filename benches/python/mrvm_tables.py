"""The tables of Psorakis et al. (2010) beside ours, from the cross-validations of ``mrvm_folds``."""

import numpy as np
from mrvm_folds import DENSE, MACHINES, PEERS
from report import Table, number

#: The convergence rules of the goals, by machine, and what these allow: per cent below, vectors above.
JUDGED = {"mRVM1": "conv2", "mRVM2": "convN"}
LESS_ACCURATE, MORE_VECTORS = 1.0, 2.0
RULES_OF = {"mRVM1": ("conv1", "conv2"), "mRVM2": ("convA", "convN")}
#: The paper's tables of accuracies and of vectors.
NUMBERS = {"mRVM1": ("II", "III"), "mRVM2": ("IV", "V")}


class Folds:
    """Results by set and method, the seeds of the folds put together."""

    def __init__(self, results):
        self.results = results

    def values(self, data, method, what, seeds=None):
        """All folds of these seeds; None where any is missing."""
        found = [
            value
            for task, result in self.results.items()
            if task.set_name == data.name and task.method == method and (seeds is None or task.seed in seeds)
            for value in result[what]
        ]
        return found or None

    def seeds(self, data, method):
        return {task.seed for task in self.results if (task.set_name, task.method) == (data.name, method)}

    def mean(self, data, method, what):
        return float(np.mean(self.values(data, method, what)))


def spread(values, digits=2):
    """Mean and standard deviation over the folds."""
    if values is None:
        return ""
    deviation = np.std(values, ddof=1) if len(values) > 1 else 0.0
    return f"{np.mean(values):.{digits}f} ± {deviation:.{digits}f}"


def of_paper(cell, digits=2):
    return f"{cell.mean:.{digits}f} ± {cell.deviation:.{digits}f}"


def accuracy_met(folds, data, rule):
    return folds.mean(data, rule, "accuracies") >= data.accuracy[rule].mean - LESS_ACCURATE


def vectors_met(folds, data, rule):
    return folds.mean(data, rule, "vectors") <= data.vectors[rule].mean + MORE_VECTORS


def machine_tables(folds, sets, machine):
    """The accuracies and the vectors of a machine at both of its rules."""
    first, second = RULES_OF[machine]
    judged, (accuracies, vectors) = JUDGED[machine], NUMBERS[machine]
    columns = (f" {first}, paper", " ours", f" {second}, paper", " ours", "met")
    rows = [[], []]
    for data in sets:
        met = accuracy_met(folds, data, judged), vectors_met(folds, data, judged)
        n_train = number(folds.mean(data, judged, "rows"))
        for k, (what, digits) in enumerate((("accuracies", 2), ("vectors", 1))):
            paper = (data.accuracy, data.vectors)[k]
            shown = [
                text
                for rule in (first, second)
                for text in (
                    of_paper(paper[rule], 2 - 2 * k),
                    spread(folds.values(data, rule, what), digits),
                )
            ]
            opening = (data.name, data.kernel) if k == 0 else (data.name, n_train)
            rows[k].append((*opening, *shown, "yes" if met[k] else "NO"))
    return [
        Table(f"Table {accuracies}: accuracy of {machine}, %", ("set", "kernel", *columns), rows[0]),
        Table(f"Table {vectors}: vectors of {machine}", ("set", " N train", *columns), rows[1]),
    ]


def peer_tables(folds, sets):
    """Ours at the rules of the goals beside the peers, all on the folds that the peers saw."""
    methods = (*JUDGED.values(), *PEERS)
    headings = ("set", *(f" {name} {rule}" for name, rule in JUDGED.items()), " KNN", " SVC", " RVC")
    rows = [[], []]
    for data in sets:
        seeds = folds.seeds(data, PEERS[0])
        for k, (what, digits) in enumerate((("accuracies", 2), ("vectors", 1))):
            rows[k].append(
                (data.name, *(spread(folds.values(data, m, what, seeds), digits) for m in methods))
            )
    rows[0].append(("mean over sets", *(mean_over_sets(folds, sets, m) for m in methods)))
    return [
        Table("Beside other classifiers: accuracy, %", headings, rows[0]),
        Table("Training rows that predictions consult", headings, rows[1]),
    ]


def mean_over_sets(folds, sets, method):
    """Of the accuracies on the folds that the peers saw."""
    means = [np.mean(folds.values(d, method, "accuracies", folds.seeds(d, PEERS[0]))) for d in sets]
    return f"{np.mean(means):.2f}"


def dense_table(folds, sets):
    """Table VI: the E-M model, which prunes nothing, beside mRVM2 on the same folds."""
    headings = ("set", " N train", " E-M, paper", " ours", " mRVM2 convA, ours", " vectors")
    rows = []
    for data in sets:
        seeds = folds.seeds(data, DENSE)
        if not seeds:
            continue
        rows.append(
            (
                data.name,
                number(folds.mean(data, DENSE, "rows")),
                of_paper(data.dense),
                spread(folds.values(data, DENSE, "accuracies", seeds)),
                spread(folds.values(data, "convA", "accuracies", seeds)),
                spread(folds.values(data, "convA", "vectors", seeds), 1),
            )
        )
    return Table("Table VI: the E-M model, without pruning: accuracy, %", headings, rows)


def summary(folds, sets):
    """On how many sets the goals are met, and which fits did not converge."""
    for machine, rule in JUDGED.items():
        short = [data.name for data in sets if not accuracy_met(folds, data, rule)]
        wide = [data.name for data in sets if not vectors_met(folds, data, rule)]
        yield (
            f"{machine} ({rule}): accuracy at least the paper's less {LESS_ACCURATE:g} on "
            f"{len(sets) - len(short)} of {len(sets)} sets{named(short)}, vectors at most the paper's and "
            f"{MORE_VECTORS:g} more on {len(sets) - len(wide)}{named(wide)}."
        )
    for method in (*MACHINES, DENSE, "RVC"):
        ends = [
            status
            for task, result in folds.results.items()
            if task.method == method
            for status in result["statuses"]
        ]
        others = {status: ends.count(status) for status in sorted(set(ends)) if status != "converged"}
        if others:
            counts = ", ".join(f"{count} {status}" for status, count in others.items())
            yield f"{method}: of {len(ends)} fits {counts}, the others converged."


def named(names):
    return f" (not {', '.join(names)})" if names else ""
