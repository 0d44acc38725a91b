"""Error cells (Fornaciari et al. 2021, section 5.2 and Table 3).

Items are grouped by whether two models, one without and one with the soft-label task, are right; each cell has the mean
kurtosis of the soft labels, Σ_k (P_k − 1/K)⁴ / K over the square of Σ_k (P_k − 1/K)² / K, minus 3. That is SciPy's
default, and the paper's: on `gimpel_pos` the softmax labels have a mean of 6.43, inside the 5.7 to 6.6 of Table 3;
without the −3 it is 9.43, and for normalised votes 5.45. It measures how far the votes are on one class: 7.09 for one
class of twelve. It is −2 for any soft label of two classes and undefined for an even split.

As in the paper, annotators agree more where only the multi-task model is right than where only the other is
(`reproductions/results/fornaciari2021.md`).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import mannwhitneyu

from dissensus.common.notebook import html_table
from dissensus.common.types import FloatArray, IntArray
from dissensus.evaluation.exceptions import CellsOfUnequalLength, KurtosisOfTwoClasses, MixedNamesAndCodes

MIN_VARIANCE = 1e-12  # Variance of the entries of a soft label below which the label counts as an even split.
KURTOSIS_DIGITS = 9  # soft labels that differ only in the order of classes must be tied in a test of ranks
OUTCOME_NAMES = ("right", "wrong")


@dataclass(frozen=True, eq=False)
class ErrorCells:
    """Items by whether two models are right: axis 0 the single-task model (right, wrong), axis 1 the multi-task one."""

    count: IntArray  # (2, 2) items
    kurtosis: FloatArray  # (2, 2) mean over the soft labels that have one; NaN if none has
    test: Any  # Mann-Whitney's: only the multi-task model right, against only the other; None if a cell is empty

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        cells = [
            {"stl": stl, "mtl": mtl, "items": int(self.count[a, b]), "kurtosis": float(self.kurtosis[a, b])}
            for a, stl in enumerate(OUTCOME_NAMES)
            for b, mtl in enumerate(OUTCOME_NAMES)
        ]
        if self.test is None:
            return {"cells": cells, "mann_whitney": None}
        return {
            "cells": cells,
            "mann_whitney": {"statistic": float(self.test.statistic), "p_value": float(self.test.pvalue)},
        }

    def _repr_html_(self) -> str:
        return html_table("Error cells", self.to_dict()["cells"], 4)

    def to_frame(self) -> Any:
        """Return an Arrow table, one row per cell: stl, mtl, items, kurtosis."""
        import pyarrow as pa

        return pa.Table.from_pylist(self.to_dict()["cells"])


def error_cells(stl: Any, mtl: Any, truth: Any, soft: Any) -> ErrorCells:
    """Count where two models err, and measure how much annotators agree there.

    Parameters
    ----------
    stl, mtl, truth : (I,)
        Predictions of the single-task and of the multi-task model, and the truth: all names, or all codes (−1 for an
        unknown truth).
    soft : (I, K)
        Soft labels, such as `table.soft_labels("softmax")`.

    >>> soft = [[1, 0, 0], [0.5, 0.5, 0], [0.4, 0.3, 0.3]]
    >>> error_cells([0, 1, 0], [0, 0, 0], truth=[0, 0, 1], soft=soft).count.tolist()
    [[1, 0], [1, 1]]
    """
    stl, mtl, truth, soft = np.asarray(stl), np.asarray(mtl), np.asarray(truth), np.asarray(soft, np.float64)
    if not stl.shape == mtl.shape == truth.shape == soft.shape[:1] or soft.ndim != 2:
        raise CellsOfUnequalLength(stl=stl.shape, mtl=mtl.shape, truth=truth.shape, soft=soft.shape)
    codes = [array.dtype.kind in "iu" for array in (stl, mtl, truth)]
    if any(codes) and not all(codes):
        raise MixedNamesAndCodes()
    known = truth >= 0 if all(codes) else np.ones(truth.size, np.bool_)
    if soft.shape[1] == 2:
        warnings.warn(KurtosisOfTwoClasses(), stacklevel=2)
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
    """(I,) excess kurtosis of the K entries of each soft label; NaN if they are all equal."""
    deviation = soft - soft.mean(axis=1, keepdims=True)
    variance = (deviation**2).mean(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        excess = (deviation**4).mean(axis=1) / variance**2 - 3
    return np.where(variance > MIN_VARIANCE, np.round(excess, KURTOSIS_DIGITS), np.nan)
