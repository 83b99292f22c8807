"""Measurements task by task, in processes of one thread each; what is finished is kept for a later run.

A task is a frozen dataclass of numbers and text, its result a dictionary with the same and ``seconds``: one
line of JSON, with a checksum of the package. Results of another build do not count.
"""

import json
import zlib
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, fields
from multiprocessing import get_context
from pathlib import Path

import report
from runs import progress

import sparsebayes


def measure_all(tasks, measure, path, processes):
    """Results by task; those in the file, if one is given, are taken from there, new ones added to it."""
    package = checksum()
    results = read(path, package, type(tasks[0]))
    left = [task for task in tasks if task not in results]
    progress(f"{len(left)} measurements to do, {len(tasks) - len(left)} kept from earlier")
    # One thread each, and no thread of ours inherited.
    with ProcessPoolExecutor(processes or report.n_cores(), mp_context=get_context("spawn")) as pool:
        waiting = {pool.submit(measure, task): task for task in left}
        for n, future in enumerate(as_completed(waiting), 1):
            task, result = waiting[future], future.result()
            results[task] = result
            if path:
                with path.open("a") as lines:
                    lines.write(json.dumps({"package": package, **result}) + "\n")
            progress(f"{n}/{len(left)}", *asdict(task).values(), f"{result['seconds']:.1f} s")
    return {task: results[task] for task in tasks}


def read(path, package, kind):
    """Results of this build by task, a dataclass of this kind."""
    if not path or not path.exists():
        return {}
    results = {}
    for line in path.read_text().splitlines():
        result = json.loads(line)
        if result.pop("package") == package:
            results[kind(*(result[field.name] for field in fields(kind)))] = result
    return results


def checksum():
    """Of the package's files, the compiled one among them."""
    total = 0
    for path in sorted(Path(sparsebayes.__file__).parent.iterdir()):
        if path.suffix in (".py", ".so", ".pyd"):
            total = zlib.crc32(path.read_bytes(), total)
    return total
