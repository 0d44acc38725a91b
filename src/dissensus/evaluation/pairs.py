"""Cohen's κ of every pair of annotators over the items that both have labelled.

scikit-learn's `cohen_kappa_score` takes one pair at a time and does not accept repeated or probabilistic labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from dissensus.common.parameters import check_argument
from dissensus.common.types import FloatArray, IntArray, Names
from dissensus.evaluation.exceptions import TooFewAnnotators
from dissensus.evaluation.intervals import wilson_interval
from dissensus.evaluation.ratings import LabelPairs, Ratings, class_positions_on_scale, iterate_label_pairs, safe_ratio
from dissensus.table.annotations import Annotations

WeightScheme = Literal["none", "linear", "quadratic"]
Z_95 = 1.959963984540054  # 97.5 % quantile of the standard normal distribution


@dataclass(frozen=True, eq=False)
class PairAgreement:
    """Agreement of the pairs of annotators that share enough items, sorted by name."""

    first_annotator: Names  # (P,) annotator
    second_annotator: Names  # (P,) annotator
    shared: IntArray  # (P,) items that both have labelled
    agreement: FloatArray  # (P,) share of the shared items on which they agree
    kappa: FloatArray  # (P,) NaN if both annotators gave a single class to all items
    low: FloatArray  # (P,) 95 % interval of kappa
    high: FloatArray  # (P,)

    def __len__(self) -> int:
        return int(self.first_annotator.size)


def cohen_kappas(
    table: Annotations, *, min_shared: int = 20, weights: WeightScheme = "none", values: Any = None
) -> PairAgreement:
    """Return Cohen's κ of all pairs of annotators that share at least `min_shared` items.

    κ = 1 − D / E (Cohen 1960; with weights, Cohen 1968). D is the mean disagreement over shared items, and E is its
    expected value if both annotators labelled at random with their own class shares. The disagreement of two labels is
    0 or 1; with weights, it is the distance of their classes (linear) or its square (quadratic).

    The interval is Wilson's (1927) for the agreement 1 − D, transformed to κ with E fixed. It needs no resampling, and
    unlike a bootstrap interval it has a positive width if two annotators agree on all their shared items.

    Parameters
    ----------
    min_shared : int
        Minimum number of items that a pair shares.
    weights : "none", "linear" or "quadratic"
    values : (K,), optional
        Positions of the classes for weights; by default, 0, 1, …, K − 1.

    >>> from dissensus.table.simulate import simulate
    >>> pairs = cohen_kappas(simulate(200, 12, 3, seed=1).annotations, min_shared=30)
    >>> pairs.first_annotator[:2], pairs.second_annotator[:2], pairs.shared[:2]
    (array([0, 0]), array([2, 4]), array([46, 48]))
    """
    check_argument("weights", weights, WeightScheme)
    K = table.n_classes
    place = class_positions_on_scale(table, "ordinal", values)  # The range of the positions is 1.
    power = {"none": 0, "linear": 1, "quadratic": 2}[weights]
    distance = np.abs(place[:, None] - place[None, :]) ** power * (1 - np.eye(K))  # (K, K) from 0 to 1

    def sums(found: LabelPairs) -> Iterator[FloatArray]:
        apart = distance[found.mine, found.theirs]
        yield from map(found.weighted_sums, (apart, apart**2))
        votes = (
            np.bincount(found.pair * K + one, found.weight, found.first_annotator.size * K)
            for one in (found.mine, found.theirs)
        )
        mine, theirs = (one.reshape(-1, K) for one in votes)
        yield (mine @ distance * theirs).sum(axis=1) / found.shared  # E: random labels with the same shares

    make, shared, (apart, squares, chance) = _make_pair_agreement_builder(table, min_shared, sums)
    low, high = wilson_interval_of_mean(1 - apart / shared, squares / shared - (apart / shared) ** 2, shared)
    low, high = (
        np.maximum(1 - safe_ratio((1 - low) * shared, chance), -1.0),
        1 - safe_ratio((1 - high) * shared, chance),
    )
    return make(1 - safe_ratio(apart, chance), low, high)


def concordances(table: Annotations, *, min_shared: int = 20) -> PairAgreement:
    """Return Lin's concordance of all pairs of annotators of numbers that share at least `min_shared` items.

    The concordance ρ = 2 cov / (var_x + var_y + (mean_x − mean_y)²) (Lin 1989) is stored as `kappa`, because it equals
    κ with quadratic weights; it needs no matrix of labels × labels. The interval is Fisher's on atanh ρ.

    >>> from dissensus.table.simulate import simulate_kind
    >>> concordances(simulate_kind("numbers", 60, 6, seed=1).annotations).kappa[:2].round(3)
    array([0.629, 0.663])
    """
    place = class_positions_on_scale(table, "interval", table.values)

    def sums(found: LabelPairs) -> Iterator[FloatArray]:
        x, y = place[found.mine], place[found.theirs]
        yield from map(found.weighted_sums, (x, y, (x - y) ** 2, x**2 + y**2))

    make, shared, totals = _make_pair_agreement_builder(table, min_shared, sums)
    x, y, apart, squares = (total / shared for total in totals)
    rho = 1 - safe_ratio(apart, squares - 2 * x * y)
    half = Z_95 / np.sqrt(np.maximum(shared - 3, 1))
    with np.errstate(divide="ignore"):
        low, high = (np.tanh(np.arctanh(np.clip(rho, -1, 1)) + side * half) for side in (-1, 1))
    return make(rho, low, high)


def _make_pair_agreement_builder(
    table: Annotations, min_shared: int, sums: Callable[[LabelPairs], Iterable[FloatArray]]
) -> tuple[Callable[..., PairAgreement], FloatArray, list[FloatArray]]:
    """Return a function that builds `PairAgreement` from kappa, low and high; also shared items and the sums."""
    check_argument("min_shared", min_shared, int, low=1)
    if table.n_annotators < 2:
        raise TooFewAnnotators(annotators=table.n_annotators)
    parts = [
        (
            found.first_annotator,
            found.second_annotator,
            found.shared,
            found.weighted_sums(found.mine == found.theirs),
            *sums(found),
        )
        for found in iterate_label_pairs(Ratings.from_table(table), table.n_annotators, table.n_classes, min_shared)
    ]
    first, second, shared, same, *others = map(np.concatenate, zip(*parts, strict=True))
    names = table.annotators[first], table.annotators[second]
    return partial(PairAgreement, *names, shared.astype(np.int64), same / shared), shared, others


def wilson_interval_of_mean(mean: FloatArray, variance: FloatArray, n: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the bounds of the mean of n values between 0 and 1, as Wilson's bounds of a share with the same variance.

    The share of mean m has n m (1 − m) / variance trials, which is n if all values are 0 or 1 (Wilson 1927).
    """
    spread = mean * (1 - mean)
    varies = variance > 1e-9
    trials = n * np.where(varies, np.maximum(spread / np.where(varies, variance, 1), 1), 1)
    return wilson_interval(mean, trials, Z_95)
