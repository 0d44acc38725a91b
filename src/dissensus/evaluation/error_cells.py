"""Error cells (Fornaciari et al. 2021, section 5.2 and Table 3).

Two models, one trained without and one with the soft-label task, divide the items into four cells, according to which
of them is right. Each cell reports the mean excess kurtosis of its soft labels: Σ_k (P_k − 1/K)⁴ / K, divided by the
square of Σ_k (P_k − 1/K)² / K, minus 3. SciPy and the paper use the same definition: on `gimpel_pos` the softmax labels
have a mean of 6.43, inside the range of 5.7 to 6.6 in Table 3; without the −3 it is 9.43, and for normalised votes
5.45. The kurtosis is high if the votes are concentrated on one class: 7.09 if all votes are for one of twelve classes.
It is −2 for any soft label of two classes and undefined for an even split.

As in the paper, annotators agree more on items that only the multi-task model predicts correctly than on items that
only the single-task model predicts correctly (`reproductions/results/fornaciari2021.md`).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import mannwhitneyu

from dissensus.common.notebook import make_html_table
from dissensus.common.types import FloatArray, IntArray
from dissensus.evaluation.exceptions import CellsOfUnequalLength, KurtosisOfTwoClasses, MixedNamesAndCodes

MIN_LABEL_VARIANCE = 1e-12  # Soft labels whose entries have a smaller variance count as even splits.
KURTOSIS_DIGITS = 9  # Rounding makes soft labels tie if they differ only in the order of classes.
OUTCOME_NAMES = ("right", "wrong")


@dataclass(frozen=True, eq=False)
class ErrorCells:
    """Items grouped by whether the single-task model (axis 0) and the multi-task model (axis 1) are right or wrong."""

    count: IntArray  # (2, 2) items
    kurtosis: FloatArray  # (2, 2) mean over soft labels with a defined kurtosis; NaN if there are none
    test: Any  # Mann-Whitney test of the cells in which only one model is right; None if one is empty

    def to_dict(self) -> dict[str, Any]:
        """Return the cells as plain values."""
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
        return make_html_table("Error cells", self.to_dict()["cells"], 4)

    def to_frame(self) -> Any:
        """Return an Arrow table with one row per cell and the columns stl, mtl, items and kurtosis."""
        import pyarrow as pa

        return pa.Table.from_pylist(self.to_dict()["cells"])


def error_cells(stl: Any, mtl: Any, truth: Any, soft: Any) -> ErrorCells:
    """Count the items that either model, both or none predict correctly, and measure agreement on them.

    Parameters
    ----------
    stl, mtl, truth : (I,)
        Predictions of the single-task and of the multi-task model, and the true classes. All three are names or all
        are codes; −1 stands for an unknown true class.
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
    """Return the excess kurtosis (I,) of the K entries of each soft label; NaN if all entries are equal."""
    deviation = soft - soft.mean(axis=1, keepdims=True)
    variance = (deviation**2).mean(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        excess = (deviation**4).mean(axis=1) / variance**2 - 3
    return np.where(variance > MIN_LABEL_VARIANCE, np.round(excess, KURTOSIS_DIGITS), np.nan)
