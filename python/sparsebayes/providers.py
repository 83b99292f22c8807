"""Fits of rows that are somewhere else: on other machines or devices, in files, in other engines.

A fit asks for sums over rows and for nothing else. `PyStatistics` says which; an object that answers is given
to ``fit_provider`` of an estimator. `RowPart` answers for rows in memory, and `SummedStatistics` for many
parts together.
"""

from __future__ import annotations

from ._data.provider import PyStatistics
from ._data.provider_sum import SummedStatistics
from ._data.row_part import RowPart

__all__ = ["PyStatistics", "RowPart", "SummedStatistics"]
