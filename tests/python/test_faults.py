"""Fits under signals, full disks, bad callables, little memory and forks."""

import multiprocessing
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

from problems import named
from sparsebayes import RVC, RVR, SparseBayesRegressor, load
from sparsebayes._data.chunks import Checkpoint
from sparsebayes.kernels import Gaussian

resource = pytest.importorskip("resource")  # the tests need POSIX
FAULTS = Path(__file__).parents[1] / "faults"


def run_fault(name, *arguments):
    """Run one of the scripts of `make faults`; return the lines it printed."""
    command = [sys.executable, str(FAULTS / name), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_signals_to_fits_saves_and_checkpoints_lose_no_file():
    lines = run_fault("run.py", "--times=6", "--patience=inf")
    assert len(lines) == 9
    told = "".join(lines)
    assert "killed" in told
    assert "interrupted" in told


def test_repeated_fits_keep_bits_and_memory_and_threads_agree():
    lines = run_fault("endure.py", "--repeats=3", "--cycles=600", "--threads=32", "--seconds=2")
    assert len(lines) == 3


@contextmanager
def small_files():
    """Limit files to 300 bytes, as on a disk that is nearly full."""
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300, hard))
    try:
        yield
    finally:
        # pytest may write the outcome of the test to a file.
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_keeps_the_earlier_model_and_state(surface, tmp_path):
    model, state = RVR(gamma="scale").fit(*surface), Checkpoint(tmp_path / "state", "p")
    model.save(tmp_path / "model")
    state.save(a=np.arange(3))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with small_files():
        for save in (
            lambda: model.save(tmp_path / "model"),
            lambda: model.save(tmp_path / "other"),
            lambda: state.save(a=np.arange(300)),
        ):
            with pytest.raises(OSError, match=r"(?i)file"):
                save()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert load(tmp_path / "model").to_bytes() == model.to_predictor().to_bytes()


def test_a_file_that_cannot_be_written_raises_oserror(surface, tmp_path):
    model = RVR(gamma="scale").fit(*surface)
    folder = tmp_path / "closed"
    folder.mkdir()
    model.save(folder / "model")
    before = (folder / "model").read_bytes()
    folder.chmod(0o500)
    try:
        # The superuser may write to any folder except /proc.
        target = folder / "model" if os.geteuid() else Path("/proc/model")
        with pytest.raises(OSError, match=r"(?i)model|denied|no such|not found|permitted"):
            model.save(target)
    finally:
        folder.chmod(0o700)
    assert (folder / "model").read_bytes() == before
    assert os.listdir(folder) == ["model"]


@pytest.mark.parametrize(
    "answer", [None, 0, "", "go on", [], np.array([]), np.array([0, 1]), float("nan"), object()], ids=named
)
@pytest.mark.filterwarnings("ignore:The truth value of an empty array")  # false, to older versions of NumPy
def test_a_callback_may_return_anything(surface, answer):
    model = RVR(callback=lambda record: answer, gamma="scale")
    try:
        model.fit(*surface)
    except (TypeError, ValueError) as error:
        message = str(error)
        assert re.search("truth value|callback", message)  # an array is neither true nor false
        assert not hasattr(model, "mu_")
        return
    assert model.status_ in {"converged", "stopped"}


def test_a_callback_may_fit_and_predict(surface):
    X, y = surface
    expected, inner, depth = RVR(gamma="scale").fit(X, y), [], []

    def reenter(record):
        if len(inner) < 3:
            inner.append(RVR(gamma="scale").fit(X, y).mu_)
            expected.predict(X)

    model = RVR(callback=reenter, gamma="scale").fit(X, y)
    for mu in [model.mu_, *inner]:
        np.testing.assert_array_equal(mu, expected.mu_)

    def refit(record):
        if len(depth) < 5:
            depth.append(record.iteration)
            own.fit(X, y)

    own = RVR(callback=refit, gamma="scale")
    np.testing.assert_array_equal(own.fit(X, y).mu_, expected.mu_)


@pytest.mark.parametrize("make", [RVR, SparseBayesRegressor], ids=["kernel", "columns"])
def test_changing_the_data_during_a_fit_affects_at_most_that_fit(make, surface):
    X, y = (np.array(part) for part in surface)

    def scribble(record):
        X[:] = np.nan
        y[:] = np.inf

    try:
        model = make(callback=scribble).fit(X, y)
    except (ValueError, ArithmeticError):
        return
    # A fit copies the rows it needs, but relevance vectors may be the changed rows.
    assert np.all(np.isfinite(model.mu_))
    try:
        assert np.all(np.isfinite(model.predict(surface[0])))
    except ValueError as error:
        message = str(error)
        assert "finite" in message


@pytest.mark.parametrize("make", [RVR, RVC])
def test_a_kernel_may_raise_and_may_fit(make, surface):
    X, y = surface
    y = y > np.median(y) if make is RVC else y

    def raises(A, B):
        raise RuntimeError("the kernel is out of order")

    def fits(A, B):
        RVR(gamma="scale").fit(np.arange(8.0)[:, None], np.arange(8.0))
        return Gaussian(1.0)(A, B)

    model = make(raises)
    with pytest.raises(RuntimeError, match="out of order"):
        model.fit(X, y)
    assert not hasattr(model, "mu_")
    assert not hasattr(model, "status_")
    expected = make(lambda A, B: Gaussian(1.0)(A, B)).fit(X, y)
    np.testing.assert_array_equal(make(fits).fit(X, y).mu_, expected.mu_)


CASES = "kernel columns classes softmax em outputs provider sums chunks probit top_down eigen"


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs the memory of a process in /proc")
@pytest.mark.parametrize("what", CASES.split())
def test_little_memory_raises_memory_error(what):
    (line,) = run_fault("little.py", "--cases", what, "--mebibytes", "10", "100")
    # No fit succeeds with 10 MiB.
    assert "MemoryError" in line


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs the memory of a process in /proc")
def test_calls_of_blas_run_side_by_side_only_with_ample_memory():
    # OpenBLAS would end the process if it got no buffer for a second call.
    code = """
        import resource
        from pathlib import Path
        from sparsebayes._cancellable import blas_workers

        def n_workers():
            with blas_workers(3) as pool:
                return pool._max_workers

        before = n_workers()
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (100 << 20),) * 2)
        print(before, n_workers())
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["3", "1"]


MORE_THAN_THERE_IS = {
    "sums": """
        from sparsebayes import SufficientStatistics
        SufficientStatistics(n)
    """,
    "em": """
        import numpy as np
        from sparsebayes import SparseBayesRegressor
        X = np.random.default_rng(0).normal(size=(3, n))
        SparseBayesRegressor(fit_intercept=False, scheme="em").fit(X, [1.0, 2.0, 3.5])
    """,
}


def memory_of_the_machine():
    """Return the bytes of memory and swap, or None where the system overcommits or hides it."""
    try:
        if Path("/proc/sys/vm/overcommit_memory").read_text().strip() == "1":
            return None
        told = Path("/proc/meminfo").read_text()
    except OSError:
        return None
    return 1024 * sum(int(re.search(rf"{name}:\s+(\d+) kB", told)[1]) for name in ("MemTotal", "SwapTotal"))


@pytest.mark.skipif(not memory_of_the_machine(), reason="this system does not refuse more memory than it has")
@pytest.mark.parametrize("what", MORE_THAN_THERE_IS)
def test_more_memory_than_there_is_is_refused_before_any_of_it_is_written(what):
    n = int((memory_of_the_machine() / 4) ** 0.5)  # n^2 numbers take twice what there is
    script = f"n = {n}\n{textwrap.dedent(MORE_THAN_THERE_IS[what])}"
    with subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True) as child:
        resident = 0
        while child.poll() is None and resident < 2**30:
            with suppress(OSError, IndexError):
                pages = int(Path(f"/proc/{child.pid}/statm").read_text().split()[1])
                resident = pages * resource.getpagesize()
            time.sleep(0.005)
        child.kill()
        said = child.stderr.read()
    assert resident < 2**30
    assert "MemoryError" in said, said


def fitted_in_child(X, y, queue):
    queue.put(RVR(n_jobs=2, gamma="scale").fit(X, y).predict(X[:5]))


@pytest.mark.skipif(sys.platform != "linux", reason="forks of processes with threads")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_after_use_fits_and_predicts(surface):
    X, y = surface
    model = RVR(n_jobs=2, gamma="scale").fit(X, y)
    model.predict(np.tile(X, (50, 1)))
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=fitted_in_child, args=(X, y, queue), daemon=True)
    child.start()
    child.join()
    np.testing.assert_array_equal(queue.get(), model.predict(X[:5]))


@pytest.mark.skipif(sys.platform != "linux", reason="the system's list of threads")
def test_threads_wait_for_the_next_fit_and_are_few(surface):
    X, y = surface
    tasks = Path("/proc/self/task")
    model = RVR(n_jobs=2, gamma="scale").fit(X, y)
    before = {task.name for task in tasks.iterdir()}
    for _ in range(5):
        model.fit(X, y)
    # Threads of abandoned pools may still be ending.
    assert {task.name for task in tasks.iterdir()} <= before


def test_workers_of_loky_fit_after_their_parent_did(surface):
    from joblib import Parallel, delayed, parallel_config

    X, y = surface
    model = RVR(Gaussian(1.0), n_jobs=2).fit(X, y)
    with parallel_config(backend="loky", inner_max_num_threads=1):
        found = Parallel(n_jobs=2)(delayed(clone(model).fit)(X, y) for _ in range(2))
    for other in found:
        np.testing.assert_array_equal(other.mu_, model.mu_)
        np.testing.assert_array_equal(other.predict(X), model.predict(X))
