"""Label density and class distributions, the figures of UoR at SemEval-2021 task 12.

How many labels annotators gave, as a kernel density, and how often each class was given and is true.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dissensus.common.types import FloatArray, IntArray
from dissensus.exceptions import DataError
from dissensus.models.base import check_gold
from dissensus.report import charts
from dissensus.table.annotations import Annotations
from reproductions.figures import SIZE, _write

POINTS = 256  # Points at which a density is drawn.


@dataclass(frozen=True, eq=False)
class LabelDensity:
    """Density of the number of labels per annotator."""

    labels: IntArray  # (n,) of each annotator who gave any, the most first
    x: FloatArray  # (points,) numbers of labels
    density: FloatArray  # (points,) integrates to one over all numbers


def label_density(table: Annotations) -> LabelDensity:
    """Estimate the density of labels per annotator: Gaussian kernels, Scott's bandwidth."""
    from scipy.stats import gaussian_kde

    labels = np.diff(table.annotator_ptr)
    labels = np.sort(labels[labels > 0])[::-1]
    if np.unique(labels).size < 2:
        each = f"all gave {labels[0]:,}" if labels.size else "no annotator gave any"
        raise DataError(f"a density needs annotators with different numbers of labels; here {each}.")
    estimate = gaussian_kde(labels)
    reach = 3 * float(np.sqrt(estimate.covariance[0, 0]))
    x = np.linspace(labels.min() - reach, labels.max() + reach, POINTS)
    return LabelDensity(labels, x, np.asarray(estimate(x)))


def class_distributions(table: Annotations, gold: IntArray | None = None) -> dict[str, Any]:
    """Compute the share of each class among the labels (as they weigh) and among the items with known class.

    Returns columns of K entries: `class`, `labels` and, where some class is known, `gold`.
    """
    gold, votes = check_gold(gold, table), table.votes().sum(axis=0)
    found = {"class": table.classes, "labels": votes / max(float(votes.sum()), 1e-300)}
    if gold is not None:
        known = np.bincount(gold[gold >= 0], minlength=table.n_classes)
        found["gold"] = known / known.sum()
    return found


def plot_label_density(table: Annotations, path: str | Path) -> Path:
    """Draw how many labels annotators gave, as a kernel density with a mark per annotator; .svg, .png or .html."""
    found = label_density(table)
    x = charts.make_quantity_axis("x", "labels given by an annotator", "~s")
    curve = charts.draw_marks(
        [{"x": x, "density": y} for x, y in zip(found.x.tolist(), found.density.tolist(), strict=True)],
        {"type": "area", "line": True, "opacity": 0.3},
        x=x,
        y=charts.make_quantity_axis("density", "density of annotators", "~g", ticks=4),
    )
    mark = {"type": "tick", "opacity": 0.4, "thickness": 1}
    ticks = charts.draw_marks([{"x": n} for n in found.labels.tolist()], mark, x=x, y={"value": SIZE[1] - 4})
    return _write(curve + ticks, path)
