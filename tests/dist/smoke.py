"""Try an installed package as a user would: fit, certify, save, load; and run the examples of the README.

Needs nothing but the package and what it depends on. `run.sh` calls it in a clean environment, from a folder without the
sources.
"""

import pickle
import re
import sys
import tempfile
from pathlib import Path

import numpy as np
import sparsebayes
from sparsebayes import MRVM1, RVC, RVR
from sparsebayes.inspection import certificate

#: Blocks for readers, and what pages do before them unseen.
CODE = re.compile(r"^(?:```python|<!-- setup)\n(.*?)^(?:```|-->)", re.MULTILINE | re.DOTALL)


def check_fits() -> None:
    """Fit, certify, pickle and serve one model of each kind."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (120, 2))
    wave = np.sin(X[:, 0]) + 0.1 * rng.normal(size=120)
    model = RVR().fit(X, wave)
    found = certificate(model, X, wave)
    if model.status_ != "converged" or found.max_gain_outside > 1e-6:
        raise SystemExit(f"the fit is not certified: {model.status_}, {found}")
    same = pickle.loads(pickle.dumps(model))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        model.save(path)
        served = sparsebayes.load(path)
    for other in (same, served):
        np.testing.assert_allclose(other.predict(X), model.predict(X), rtol=1e-12, atol=1e-12)
    classes = np.digitize(X[:, 0], [-1.0, 1.0])
    for classifier in (RVC(), MRVM1()):
        accuracy = classifier.fit(X, classes).score(X, classes)
        if accuracy < 0.9:
            raise SystemExit(f"{classifier} is right on {accuracy:.0%} of its own rows")


def run_blocks(page: Path) -> int:
    """Run the Python examples of a page one after another, in this folder; return how many there are."""
    blocks = CODE.findall(page.read_text(encoding="utf-8"))
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(page), "exec"), names)  # noqa: S102
    return len(blocks)


def main() -> None:
    """Check the fits and the pages named."""
    check_fits()
    n_blocks = sum(run_blocks(Path(name)) for name in sys.argv[1:])
    where = Path(sparsebayes.__file__).parent
    sys.stdout.write(f"sparsebayes {sparsebayes.__version__} in {where}: fits, and {n_blocks} examples\n")


if __name__ == "__main__":
    main()
