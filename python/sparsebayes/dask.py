"""`DaskRVR` and `DaskRVC`: relevance vector machines whose rows are in Dask arrays or data frames.

The estimators of `sparsebayes` for rows that are spread over processes or machines. Sums over rows come back
from the workers, never rows or anything as long as they are many. Needs ``pip install sparsebayes[dask]``.
"""

from __future__ import annotations

try:
    import dask.array  # noqa: F401 # the extra installs both
    import distributed  # noqa: F401 # as above
except ImportError as error:
    raise ImportError(
        "sparsebayes.dask needs Dask, which is not installed: pip install 'sparsebayes[dask]'"
    ) from error

from ._dask.classification import DaskRVC
from ._dask.regression import DaskRVR

__all__ = ["DaskRVC", "DaskRVR"]
