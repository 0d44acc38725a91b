"""What the papers look at besides scores.

*Error cells* (Fornaciari et al. 2021, section 5.2 and Table 3): items by whether two models, one with and one without
the soft-label task, are right; in each cell the mean kurtosis of the soft labels, Σ_k (P_k − 1/K)⁴ / K over the square
of Σ_k (P_k − 1/K)² / K, minus 3. That is SciPy's default, and theirs: on `gimpel_pos` the softmax labels have a mean of
6.43 by it, inside the 5.7 to 6.6 of Table 3; without the −3 it is 9.43, and of normalised votes 5.45. It says how far
the votes are on one class: 7.09 for one class of twelve. Two classes always have −2 and an even split has none.

*Label density and class distributions* (the figures of UoR at SemEval-2021 task 12): how many labels annotators gave,
as a kernel density, and how often each class was given and is true. `dissensus.report.figures` draws them.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from dissensus.common.types import FloatArray, IntArray, Names
from dissensus.evaluation import Test, mann_whitney
from dissensus.exceptions import DataError, DataWarning
from dissensus.models.base import check_gold
from dissensus.table.annotations import Annotations

EVEN = 1e-12  # variance of a soft label below which no class stands out
DIGITS = 9  # of a kurtosis: labels that are alike but for the order of classes must be tied in a test of ranks
WORDS = ("right", "wrong")
POINTS = 256  # of a density


@dataclass(frozen=True, eq=False)
class ErrorCells:
    """Items by whether two models are right: axis 0 the single-task model (right, wrong), axis 1 the multi-task one."""

    count: IntArray  # (2, 2) items
    kurtosis: FloatArray  # (2, 2) mean over the soft labels that have one; NaN where there is none
    test: Test | None  # only the multi-task model right against only the single-task one; None where a cell is empty

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        cells = [
            {"stl": stl, "mtl": mtl, "items": int(self.count[a, b]), "kurtosis": float(self.kurtosis[a, b])}
            for a, stl in enumerate(WORDS)
            for b, mtl in enumerate(WORDS)
        ]
        test = None if self.test is None else {"statistic": self.test.statistic, "p_value": self.test.p_value}
        return {"cells": cells, "mann_whitney": test}

    def to_frame(self) -> Any:
        """One row per cell, as an Arrow table: stl, mtl, items, kurtosis."""
        import pyarrow as pa

        return pa.Table.from_pylist(self.to_dict()["cells"])


def error_cells(stl: Any, mtl: Any, truth: Any, soft: Any) -> ErrorCells:
    """Where two models err, and how much annotators agreed there.

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
        mann_whitney(only_mtl, only_stl) if only_mtl.size and only_stl.size else None,
    )


def kurtosis(soft: FloatArray) -> FloatArray:
    """(I,) excess kurtosis of the K entries of each soft label; NaN where they are all alike."""
    apart = soft - soft.mean(axis=1, keepdims=True)
    variance = (apart**2).mean(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        found = (apart**4).mean(axis=1) / variance**2 - 3
    return np.where(variance > EVEN, np.round(found, DIGITS), np.nan)


@dataclass(frozen=True, eq=False)
class LabelDensity:
    """How many labels annotators gave."""

    labels: IntArray  # (n,) of each annotator who gave any, the most first
    x: FloatArray  # (points,) numbers of labels
    density: FloatArray  # (points,) integrates to one over all numbers


def label_density(table: Annotations, *, points: int = POINTS) -> LabelDensity:
    """Kernel density of the number of labels per annotator: Gaussian, Scott's bandwidth, through SciPy."""
    from scipy.stats import gaussian_kde

    labels = np.diff(table.annotator_ptr)
    labels = np.sort(labels[labels > 0])[::-1]
    if np.unique(labels).size < 2:
        each = f"all gave {labels[0]:,}" if labels.size else "nobody gave any"
        raise DataError(f"a density needs annotators with different numbers of labels; here {each}.")
    estimate = gaussian_kde(labels)
    reach = 3 * float(np.sqrt(estimate.covariance[0, 0]))
    x = np.linspace(labels.min() - reach, labels.max() + reach, points)
    return LabelDensity(labels, x, np.asarray(estimate(x)))


@dataclass(frozen=True, eq=False)
class ClassDistributions:
    """How often each class is given, and is true."""

    classes: Names  # (K,)
    labels: FloatArray  # (K,) shares of the labels given
    gold: FloatArray | None  # (K,) shares of the items whose class is known; None without any

    def to_frame(self) -> Any:
        """One row per class, as an Arrow table: class, labels and, where it is known, gold."""
        import pyarrow as pa

        return pa.table(
            {"class": self.classes, "labels": self.labels} | ({} if self.gold is None else {"gold": self.gold})
        )


def class_distributions(table: Annotations, gold: IntArray | None = None) -> ClassDistributions:
    """Shares of the classes among the labels (as they weigh) and among the items with known class."""
    gold = check_gold(gold, table)
    votes = table.votes().sum(axis=0)
    known = None if gold is None or not (gold >= 0).any() else np.bincount(gold[gold >= 0], minlength=table.n_classes)
    return ClassDistributions(
        table.classes, votes / max(float(votes.sum()), 1e-300), None if known is None else known / known.sum()
    )
