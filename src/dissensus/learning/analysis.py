"""Label density and class distributions, the figures of UoR at SemEval-2021 task 12.

How many labels annotators gave, as a kernel density, and how often each class was given and is true.
`dissensus.report.figures` draws both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dissensus.common.types import FloatArray, IntArray, Names
from dissensus.exceptions import DataError
from dissensus.models.base import check_gold
from dissensus.table.annotations import Annotations


@dataclass(frozen=True, eq=False)
class LabelDensity:
    """How many labels annotators gave."""

    labels: IntArray  # (n,) of each annotator who gave any, the most first
    x: FloatArray  # (points,) numbers of labels
    density: FloatArray  # (points,) integrates to one over all numbers


def label_density(table: Annotations, *, points: int = 256) -> LabelDensity:
    """Estimate the density of labels per annotator: Gaussian kernels, Scott's bandwidth."""
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
        """Return an Arrow table, one row per class: class, labels and, where it is known, gold."""
        import pyarrow as pa

        return pa.table(
            {"class": self.classes, "labels": self.labels} | ({} if self.gold is None else {"gold": self.gold})
        )


def class_distributions(table: Annotations, gold: IntArray | None = None) -> ClassDistributions:
    """Compute the share of each class among the labels (as they weigh) and among the items with known class."""
    gold = check_gold(gold, table)
    votes = table.votes().sum(axis=0)
    known = None if gold is None or not (gold >= 0).any() else np.bincount(gold[gold >= 0], minlength=table.n_classes)
    return ClassDistributions(
        table.classes, votes / max(float(votes.sum()), 1e-300), None if known is None else known / known.sum()
    )
