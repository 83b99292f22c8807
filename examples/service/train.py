"""Train the model that the service serves, and save it.

Disease progression of 442 patients from ten measurements: the data come with scikit-learn, as a pandas data
frame, whose column names the model keeps. A quarter of the rows is held out to check the error bars.
Run it as ``python train.py diabetes.safetensors``.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

from sparsebayes import RVR
from sparsebayes.kernels import Gaussian

#: Width of the kernel along each input, in standard deviations of that input.
WIDTH = 6.0


def main() -> None:
    """Fit the model, save it, and print its accuracy."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", type=Path, help="file to write")
    path = parser.parse_args().path
    X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    X, X_test, y, y_test = train_test_split(X, y, random_state=0)
    # With one width for each input a prediction needs only the file, and no scaler.
    model = RVR(kernel=Gaussian(WIDTH * X.std().to_numpy())).fit(X, y)
    model.save(path)
    mean, std = model.predict(X_test, return_std=True)
    inside = np.mean(np.abs(y_test - mean) <= 1.96 * std)
    print(f"{len(model.relevance_)} relevance vectors, {path.stat().st_size} bytes in {path}")
    print(
        f"{len(y_test)} new rows: R2 {model.score(X_test, y_test):.2f}, in their 95% error bars {inside:.0%}"
    )


if __name__ == "__main__":
    main()
