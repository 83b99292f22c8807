"""One large fit of `RVR` and some small ones, in a process of their own.

``large_fit.py LARGE SMALL REPEATS`` prints JSON. The large fit comes first, so that the peak of the resident
set is its own.
"""

import json
import sys

from peers import OUR_RVR, n_functions, surface
from runs import peak_memory, seconds, warm_up


def main():
    large, small, repeats = map(int, sys.argv[1:])
    data = surface(large)
    warm_up(OUR_RVR, data)
    before = peak_memory()
    took, model = seconds(OUR_RVR, data)
    after = peak_memory()
    small_data = surface(small)
    report = {
        "large": large,
        "small": small,
        "large_seconds": took,
        "small_seconds": [seconds(OUR_RVR, small_data)[0] for _ in range(repeats)],
        "extra_bytes": None if after is None else after - before,
        "functions": n_functions(model),
        "status": model.status_,
    }
    sys.stdout.write(json.dumps(report))


if __name__ == "__main__":
    main()
