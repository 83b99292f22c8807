"""Classifications of rows in chunks give the models of rows in memory, for any chunks."""

import subprocess
import sys

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler

from sparsebayes import RVC, SparseBayesClassifier
from sparsebayes.inspection import certificate
from test_providers import same_bits

KINDS = {
    "columns": lambda **o: SparseBayesClassifier(fit_intercept=True, **o),
    "number": lambda **o: RVC(gamma=0.7, candidates=30, random_state=2, **o),
    "given": lambda **o: RVC(gamma=0.7, candidates=np.random.default_rng(1).normal(size=(25, 3)), **o),
    "beside": lambda **o: RVC(gamma=0.7, candidates=20, random_state=1, extra_basis="linear", **o),
    "python": lambda **o: RVC(lambda X, Z: np.tanh(X @ Z.T), candidates=20, random_state=1, **o),
}


def problem(seed, n=240, n_classes=2):
    """Return rows, labels, and weights, some of them zero."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    score = X[:, 0] * X[:, 1] + X[:, 0] + 0.5 * rng.normal(size=n)
    edges = np.quantile(score, np.arange(1, n_classes) / n_classes)
    labels = np.array(["ant", "bee", "cat"])[np.digitize(score, edges)]
    return X, labels, rng.choice([0.0, 1.0, 2.0], size=n, p=[0.2, 0.6, 0.2])


def in_chunks(seed, *arrays):
    """Return the rows in chunks of random sizes, of which one is empty."""
    n = len(arrays[0])
    cuts = np.sort(np.random.default_rng(seed).choice(np.arange(1, n), 4, replace=False))
    chunks = list(zip(*(np.split(array, [*cuts[:2], cuts[1], *cuts[2:]]) for array in arrays), strict=True))
    assert min(len(chunk[0]) for chunk in chunks) == 0
    return chunks


def assert_same_model(a, b, rtol=1e-8):
    np.testing.assert_array_equal(a.classes_, b.classes_)
    np.testing.assert_array_equal(a.active_, b.active_)
    np.testing.assert_allclose(a.alpha_, b.alpha_, rtol=rtol)
    np.testing.assert_allclose(a.mu_, b.mu_, rtol=rtol, atol=rtol * np.abs(b.mu_).max())
    np.testing.assert_allclose(a.log_marginal_likelihood_, b.log_marginal_likelihood_, rtol=rtol)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_chunks_give_the_model_of_rows_in_memory(kind, n_classes):
    X, y, weights = problem(3, n_classes=n_classes)
    reference = KINDS[kind]().fit(X, y, weights)
    model = KINDS[kind]().fit(in_chunks(7, X, y, weights))
    assert model.status_ == "converged"
    assert_same_model(model, reference)
    np.testing.assert_allclose(model.predict_proba(X), reference.predict_proba(X), rtol=1e-7)
    assert certificate(model, X, y, weights).max_log_alpha_change < 1e-5
    for name in ("candidates_", "candidate_rows_", "relevance_", "relevance_vectors_"):
        if hasattr(reference, name):
            np.testing.assert_array_equal(getattr(model, name), getattr(reference, name))
    # Other chunks give the same bits.
    assert same_bits(model, KINDS[kind]().fit(in_chunks(8, X, y, weights)))


@pytest.mark.parametrize("kind", ["columns", "given"])
def test_mapped_arrays_may_exceed_the_memory_limit(tmp_path, kind):
    X, y, weights = problem(4, n=20_000)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    reference = KINDS[kind]().fit(X, y, weights)
    seen = []
    model = KINDS[kind](memory_limit="1.5 MB", callback=seen.append).fit(mapped, y, weights)
    assert_same_model(model, reference)
    assert seen[0].action == "read"
    assert seen[0].progress.what == "looking at classes"
    # The limit decides whether rows are kept in memory, which does not change a bit.
    assert same_bits(model, KINDS[kind]().fit(lambda: in_chunks(3, X, y, weights)))


def test_rows_may_be_in_a_parquet_file(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    X, y, weights = problem(5)
    columns = {"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "label": y, "weight": weights}
    parquet.write_table(pa.table(columns), tmp_path / "rows.parquet", row_group_size=50)
    model = KINDS["number"]().fit(str(tmp_path / "rows.parquet"), "label", "weight")
    assert_same_model(model, KINDS["number"]().fit(X, y, weights))
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    del columns["label"]
    with pytest.raises(ValueError, match=r"chunk 0 .*y: Unknown label type: continuous"):
        SparseBayesClassifier().fit(pa.table(columns), "c")


def test_fits_of_chunks_refuse_what_needs_rows_in_memory():
    X, y, weights = problem(7, n_classes=3)
    chunks = in_chunks(1, X, y, weights)
    for model, message in [
        (RVC(gamma="scale"), "candidates must be an integer or an array"),
        (RVC("precomputed"), "kernel='precomputed'"),
        (RVC("linear", candidates=5, optimize_kernel=True), "optimize_kernel=True needs a kernel with"),
        (
            RVC(candidates=5, multi_class="softmax", gamma="scale"),
            "multi_class='softmax' needs the rows in memory",
        ),
        (
            RVC(candidates=5, scheme="variational", gamma="scale"),
            "scheme='variational' needs the rows in memory",
        ),
        (RVC(candidates=5, extra_basis=StandardScaler(), gamma="scale"), "extra_basis must be"),
        (
            RVC(candidates=5, checkpoint="state", gamma="scale"),
            "checkpoint must be None for a classification",
        ),
    ]:
        with pytest.raises(ValueError, match=message):
            model.fit(chunks)
    bad = X.copy()
    bad[130, 1] = np.nan
    columns, small = SparseBayesClassifier(), SparseBayesClassifier(memory_limit=1000)
    for model, rows, message in [
        (columns, iter(chunks), "X can be read only once, and a classification takes more"),
        (columns, [(X[y == "ant"], y[y == "ant"])], "one class only"),
        (columns, [(X, y, np.zeros(len(X)))], "sample_weight is zero in every row"),
        (columns, in_chunks(1, bad, y, weights), r"chunk \d.*X"),
        (columns, [(X, X[:, 0])], "y: Unknown label type: continuous"),
        (small, chunks, r"memory_limit of 1e\+03 B is too small: a block of rows"),
    ]:
        with pytest.raises(ValueError, match=message):
            model.fit(rows)


def test_a_fit_of_chunks_can_be_watched_and_stopped():
    X, y, weights = problem(8)
    chunks = in_chunks(1, X, y, weights)
    steps = []
    model = SparseBayesClassifier(
        fit_intercept=False, callback=lambda step: steps.append(step) or step.iteration == 3
    ).fit(chunks)
    assert model.status_ == "stopped"
    assert [step.iteration for step in steps if step.action != "read"] == [1, 2, 3]


SCRIPT = """
import sys
import numpy as np
from sparsebayes import RVC, SparseBayesClassifier

path, kind = sys.argv[1:]
N, d, limit = 120_000, 100, 32_000_000
file = np.memmap(path, "f8", "w+", shape=(N, d))
rng = np.random.default_rng(0)
y = np.empty(N, bool)
for start in range(0, N, 4000):
    part = rng.normal(size=(4000, d))
    file[start : start + 4000] = part
    y[start : start + 4000] = part[:, 3] + rng.logistic(size=4000) > 0
    file._mmap.madvise(4)  # MADV_DONTNEED
X = np.memmap(path, "f8", "r", shape=(N, d))
options = {"memory_limit": limit, "n_jobs": 1}  # what two threads hold at once depends on their turns
if kind == "RVC":
    model = RVC("linear", candidates=np.eye(d)[:8], **options)
else:
    model = SparseBayesClassifier(**options)
model.fit([(X[:4000], y[:4000])])  # libraries and threads take memory once


def status(field):
    lines = open("/proc/self/status").read().splitlines()
    return [int(line.split()[1]) * 1024 for line in lines if line.startswith(field)][0]


open("/proc/self/clear_refs", "w").write("5")  # the peak begins anew
before = status("VmRSS")
model.fit(X, y)
print(status("VmHWM") - before, X.nbytes, limit, 3 in model.active_)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts pages as Linux does")
@pytest.mark.parametrize("kind", ["RVC", "SparseBayesClassifier"])
def test_memory_stays_below_the_limit(kind, tmp_path):
    """96 MB of rows, a limit of 32 MB, and the whole process measured."""
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "X"), kind]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    fitted, size, limit, found = done.stdout.split()
    assert int(size) >= 3 * int(limit)
    assert int(fitted) < int(limit)
    assert found == "True"
