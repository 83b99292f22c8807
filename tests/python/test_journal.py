"""Answers kept in a file: a fit that was killed goes on, bit for bit."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from provider_reference import NumpyRows
from sparsebayes import RVC, SparseBayesClassifier, SparseBayesRegressor
from sparsebayes.providers import JournalledStatistics, RowPart
from test_providers import columns, same_bits


def rows(likelihood="bernoulli", seed=1):
    Phi, t, weights = columns(seed, likelihood)
    return NumpyRows(Phi, t, weights, likelihood)


def fitted(provider, **options):
    return SparseBayesClassifier(**options).fit_provider(provider, classes=[0, 1])


def test_a_journal_does_not_change_the_model(tmp_path):
    reference, path = fitted(rows()), tmp_path / "journal"
    journal = JournalledStatistics(rows(), path)
    assert same_bits(fitted(journal), reference)
    silent = rows()
    assert same_bits(fitted(JournalledStatistics(silent, path)), reference)
    assert silent.asked == []
    journal.remove()
    assert not path.exists()


@pytest.mark.parametrize("likelihood", ["gaussian", "bernoulli"])
def test_a_journal_cut_anywhere_leads_to_the_same_model(tmp_path, likelihood):
    kind = SparseBayesRegressor if likelihood == "gaussian" else SparseBayesClassifier
    options = {} if likelihood == "gaussian" else {"classes": [0, 1]}
    path = tmp_path / "journal"
    reference = kind().fit_provider(JournalledStatistics(rows(likelihood), path), **options)
    whole = path.read_bytes()
    for size in [0, 5, *np.random.default_rng(0).integers(0, len(whole), 8), len(whole) - 1]:
        path.write_bytes(whole[:size])
        provider = rows(likelihood)
        model = kind().fit_provider(JournalledStatistics(provider, path), **options)
        assert same_bits(model, reference)
        assert path.read_bytes() == whole
        assert size == 0 or provider.asked
    # Damage in the middle: what follows does not count.
    for place in (len(whole) // 2, len(whole) - 40):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        path.write_bytes(damaged)
        model = kind().fit_provider(JournalledStatistics(rows(likelihood), path), **options)
        assert same_bits(model, reference)
        assert path.read_bytes() == whole


def test_journals_of_something_else_are_refused(tmp_path):
    path = tmp_path / "journal"
    fitted(JournalledStatistics(rows(), path, identity="first"))
    with pytest.raises(ValueError, match="belongs to another fit: other data"):
        JournalledStatistics(rows(), path, identity="second")
    with pytest.raises(ValueError, match="belongs to another fit: other data"):
        JournalledStatistics(rows("gaussian"), path, identity="first")
    journal = JournalledStatistics(rows(), path, identity="first")
    with pytest.raises(ValueError, match="answers to other questions"):
        fitted(journal, alpha_prior=(0.0, 1.0), scheme="mackay")
    (tmp_path / "text").write_text("a letter to a friend, longer than any header would be\n" * 20)
    with pytest.raises(ValueError, match="is no journal"):
        JournalledStatistics(rows(), tmp_path / "text")
    assert (tmp_path / "text").read_text().startswith("a letter")
    with pytest.raises(TypeError, match="path must be a path"):
        JournalledStatistics(rows(), 3)
    with pytest.raises(TypeError, match="identity must be a text"):
        JournalledStatistics(rows(), path, identity=3)
    with pytest.raises(FileNotFoundError):
        JournalledStatistics(rows(), tmp_path / "none" / "journal")


def test_an_exception_keeps_what_was_answered(tmp_path):
    reference, path = fitted(rows()), tmp_path / "journal"

    class LostError(Exception):
        pass

    n_answers = 0
    while True:
        provider, asked = rows(), []
        among = provider.among

        def lose(*question, among=among, asked=asked):
            asked.append(1)
            if len(asked) > 6:
                raise LostError
            return among(*question)

        provider.among = lose
        try:
            model = fitted(JournalledStatistics(provider, path))
        except LostError:
            n_answers += 1
            continue
        break
    assert n_answers > 2
    assert same_bits(model, reference)


@pytest.mark.parametrize("raising", [False, True])
def test_a_stop_keeps_nothing_that_a_fit_that_goes_on_would_not_ask(tmp_path, raising):
    reference, path = fitted(rows()), tmp_path / "journal"

    class StopError(Exception):
        pass

    for at in [5, 3, 1, 2, 4, *range(6, reference.n_iter_)]:  # also before the end of what is in the file

        def stop(step, at=at):
            if raising and step.iteration >= at:
                raise StopError
            return step.iteration >= at

        try:
            model = fitted(JournalledStatistics(rows(), path), callback=stop)
            assert model.status_ == "stopped"
        except StopError:
            assert raising
    assert same_bits(fitted(JournalledStatistics(rows(), path)), reference)


SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
from test_journal import fit_mortally
fit_mortally(*sys.argv[2:])
"""
KILLED = 99


def two_classes(n=300):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n, 2))
    return X, np.digitize(X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=n), [-0.4, 0.4])


class Mortal:
    """Looks at an object, and ends the process at the look of this number; 0: at none."""

    def __init__(self, looked_at, last):
        self._looked_at, self._left = looked_at, last
        self.n_basis = getattr(looked_at, "n_basis", None)
        self.likelihood = getattr(looked_at, "likelihood", None)

    def look(self):
        self._left -= 1
        if self._left == 0:
            os._exit(KILLED)

    def __getattr__(self, name):
        self.look()
        return getattr(self._looked_at, name)


def model_of_chunks(checkpoint, last=0):
    X, y = two_classes()
    reader = Mortal(None, last)

    def chunks():
        for start in range(0, len(X), 100):
            reader.look()
            yield X[start : start + 100], y[start : start + 100]

    return RVC(gamma=0.5, candidates=20, random_state=0, checkpoint=checkpoint).fit(chunks)


def part():
    """Return rows that answer with the same bits in each process."""
    Phi, t, weights = columns(1, "bernoulli")
    return RowPart(Phi, t, weights, likelihood="bernoulli")


def fit_mortally(kind, path, result, last):
    """Fit in a process that ends in the middle."""
    if kind == "journal":
        model = fitted(JournalledStatistics(Mortal(part(), int(last)), path))
    else:
        model = model_of_chunks(path, int(last))
    names = ("active_", "alpha_", "mu_", "sigma_", "log_marginal_likelihood_path_")
    np.savez(result, **{name: getattr(model, name) for name in names})


@pytest.mark.parametrize("kind", ["journal", "chunks"])
def test_a_process_killed_again_and_again_ends_at_the_same_model(tmp_path, kind):
    reference = fitted(part()) if kind == "journal" else model_of_chunks(None)
    path, result = tmp_path / "journal", tmp_path / "result.npz"
    for last in (14, 11, 0):
        arguments = [str(Path(__file__).parent), kind, str(path), str(result), str(last)]
        done = subprocess.run([sys.executable, "-c", SCRIPT, *arguments], check=False)
        assert done.returncode == (KILLED if last else 0)
        assert path.exists() or not last
    with np.load(result) as found:
        for name in found.files:
            assert found[name].tobytes() == np.asarray(getattr(reference, name)).tobytes()
    assert path.exists() == (kind == "journal")
