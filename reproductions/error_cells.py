"""Error cells (Fornaciari et al. 2021, section 5.2 and Table 3).

Items are sorted by whether two models, one with and one without the soft-label task, are right; each cell has the mean
kurtosis of the soft labels, Σ_k (P_k − 1/K)⁴ / K over the square of Σ_k (P_k − 1/K)² / K, minus 3. That is SciPy's
default, and theirs: on `gimpel_pos` the softmax labels have a mean of 6.43 by it, inside the 5.7 to 6.6 of Table 3;
without the −3 it is 9.43, and of normalised votes 5.45. It says how far the votes are on one class: 7.09 for one class
of twelve. Two classes always have −2 and an even split has none.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import mannwhitneyu

from dissensus.common.types import FloatArray, IntArray
from dissensus.exceptions import DataError, DataWarning

MIN_VARIANCE = 1e-12  # of a soft label; below it no class stands out
KURTOSIS_DIGITS = 9  # labels that are alike but for the order of classes must be tied in a test of ranks
WORDS = ("right", "wrong")


@dataclass(frozen=True, eq=False)
class ErrorCells:
    """Items by whether two models are right: axis 0 the single-task model (right, wrong), axis 1 the multi-task one."""

    count: IntArray  # (2, 2) items
    kurtosis: FloatArray  # (2, 2) mean over the soft labels that have one; NaN where there is none
    test: Any  # Mann-Whitney's: only the multi-task model right, against only the other; None where a cell is empty

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        cells = [
            {"stl": stl, "mtl": mtl, "items": int(self.count[a, b]), "kurtosis": float(self.kurtosis[a, b])}
            for a, stl in enumerate(WORDS)
            for b, mtl in enumerate(WORDS)
        ]
        test = (
            None if self.test is None else {"statistic": float(self.test.statistic), "p_value": float(self.test.pvalue)}
        )
        return {"cells": cells, "mann_whitney": test}

    def to_frame(self) -> Any:
        """Return an Arrow table, one row per cell: stl, mtl, items, kurtosis."""
        import pyarrow as pa

        return pa.Table.from_pylist(self.to_dict()["cells"])


def error_cells(stl: Any, mtl: Any, truth: Any, soft: Any) -> ErrorCells:
    """Count where two models err, and measure how much annotators agreed there.

    Parameters
    ----------
    stl, mtl, truth : (I,)
        What the single-task and the multi-task model say and what is true: all names, or all codes (−1 unknown truth).
    soft : (I, K)
        Soft labels, such as `table.soft_labels("softmax")`.
    """
    stl, mtl, truth, soft = np.asarray(stl), np.asarray(mtl), np.asarray(truth), np.asarray(soft, np.float64)
    if not stl.shape == mtl.shape == truth.shape == soft.shape[:1] or soft.ndim != 2:
        raise DataError(
            f"stl, mtl and truth must be (I,) and soft (I, K), got {stl.shape}, {mtl.shape}, {truth.shape} and "
            f"{soft.shape}."
        )
    codes = [array.dtype.kind in "iu" for array in (stl, mtl, truth)]
    if any(codes) and not all(codes):
        raise DataError("stl, mtl and truth must all be names or all be codes; here some are integers and some not.")
    known = truth >= 0 if all(codes) else np.ones(truth.size, np.bool_)
    if soft.shape[1] == 2:
        warnings.warn(
            "soft labels of two classes all have the kurtosis −2: the cells' kurtosis says nothing here.",
            DataWarning,
            stacklevel=2,
        )
    values = kurtosis(soft)
    cells = [[known & (a == (stl == truth)) & (b == (mtl == truth)) for b in (True, False)] for a in (True, False)]
    some = [[values[cell & ~np.isnan(values)] for cell in row] for row in cells]
    only_mtl, only_stl = some[1][0], some[0][1]
    return ErrorCells(
        np.array([[cell.sum() for cell in row] for row in cells]),
        np.array([[cell.mean() if cell.size else np.nan for cell in row] for row in some]),
        mannwhitneyu(only_mtl, only_stl) if only_mtl.size and only_stl.size else None,
    )


def kurtosis(soft: FloatArray) -> FloatArray:
    """(I,) excess kurtosis of the K entries of each soft label; NaN where they are all alike."""
    apart = soft - soft.mean(axis=1, keepdims=True)
    variance = (apart**2).mean(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        found = (apart**4).mean(axis=1) / variance**2 - 3
    return np.where(variance > MIN_VARIANCE, np.round(found, KURTOSIS_DIGITS), np.nan)
