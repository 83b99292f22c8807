"""A kernel and a function for the tests of Dask estimators, in a module that workers can import."""

import os
import signal
import uuid
from pathlib import Path

import numpy as np


class MarkedGaussian:
    """The kernel exp(-|x - z|^2), which leaves a file named by its process for each call.

    The worker of call number ``fatal`` kills itself; no other does.
    """

    def __init__(self, folder, fatal):
        self.folder, self.fatal, self.owner = str(folder), fatal, os.getpid()

    def __call__(self, X, Z):
        Path(self.folder, f"{os.getpid()}-{uuid.uuid4().hex}").touch()
        if len(self.calls()) >= self.fatal and os.getpid() != self.owner:
            try:
                Path(self.folder, "victim").touch(exist_ok=False)
            except FileExistsError:
                pass
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        return np.exp(-((X[:, np.newaxis] - Z) ** 2).sum(axis=-1))

    def calls(self):
        """Return the process of each call so far."""
        return [int(path.name.split("-")[0]) for path in Path(self.folder).glob("*-*")]


def forbidden(*blocks):
    """Fail: this block must not be computed."""
    raise AssertionError("this block was computed")
