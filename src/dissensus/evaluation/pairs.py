"""Who agrees with whom: Cohen's κ of pairs of annotators over the items that both have labelled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from dissensus.common.parameters import check_argument
from dissensus.common.types import FloatArray, IntArray, Names
from dissensus.evaluation.intervals import score_interval
from dissensus.evaluation.ratings import LabelPairs, Ratings, label_pairs, places, ratio
from dissensus.exceptions import DataError
from dissensus.table.annotations import Annotations

Weights = Literal["none", "linear", "quadratic"]
Z = 1.959963984540054  # 97.5 % of a standard normal distribution lie below


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of annotators that share enough items, sorted by name; one entry per pair in every array."""

    first: Names  # (P,) annotator
    second: Names  # (P,) annotator
    shared: IntArray  # (P,) items that both have labelled
    agreement: FloatArray  # (P,) share of those on which they agree
    kappa: FloatArray  # (P,) NaN where both gave one and the same class throughout
    low: FloatArray  # (P,) 95 % interval of kappa
    high: FloatArray  # (P,)

    def __len__(self) -> int:
        return int(self.first.size)


def cohen_kappas(table: Annotations, *, least: int = 20, weights: Weights = "none", values: Any = None) -> Pairs:
    """Cohen's κ of all pairs of annotators that share at least `least` items.

    κ = 1 − D / E (Cohen 1960; with weights Cohen 1968): D the mean disagreement over shared items, E what it would be
    if each annotator kept their own shares of the classes but labelled at random. Disagreement is 0 or 1, or with
    weights the distance of the classes or its square.

    The interval is Wilson's (1927) for the agreement 1 − D, carried over to κ at the E that was found. It needs no
    resampling, however many pairs there are, and unlike a bootstrap it is not of width zero for two annotators who
    agreed on all of twenty items.

    Parameters
    ----------
    least : int
        Items that a pair must share.
    weights : "none", "linear" or "quadratic"
    values : (K,), optional
        Where the classes lie, for weights; left out, 0, 1, …, K − 1.

    >>> from dissensus.table.simulate import simulate
    >>> pairs = cohen_kappas(simulate(200, 12, 3, seed=1).annotations, least=30)
    >>> pairs.first[:2], pairs.second[:2], pairs.shared[:2]
    (array([0, 0]), array([2, 4]), array([46, 48]))
    """
    check_argument("weights", weights, Weights)
    K = table.n_classes
    place = places(table, "ordinal", values)  # from end to end 1
    power = {"none": 0, "linear": 1, "quadratic": 2}[weights]
    distance = np.abs(place[:, None] - place[None, :]) ** power * (1 - np.eye(K))  # (K, K) from 0 to 1

    def sums(found: LabelPairs) -> Iterator[FloatArray]:
        apart = distance[found.mine, found.theirs]
        yield from map(found.sums, (apart, apart**2))
        votes = (
            np.bincount(found.pair * K + one, found.weight, found.first.size * K) for one in (found.mine, found.theirs)
        )
        mine, theirs = (one.reshape(-1, K) for one in votes)
        yield (mine @ distance * theirs).sum(axis=1) / found.shared  # if each dealt out their labels at random

    made, shared, (apart, squares, chance) = _of_pairs(table, least, sums)
    low, high = wilson(1 - apart / shared, squares / shared - (apart / shared) ** 2, shared)
    low, high = np.maximum(1 - ratio((1 - low) * shared, chance), -1.0), 1 - ratio((1 - high) * shared, chance)
    return made(1 - ratio(apart, chance), low, high)


def concordances(table: Annotations, *, least: int = 20) -> Pairs:
    """Lin's concordance of all pairs of annotators that share at least `least` items, of numbers; `kappa` holds it.

    ρ = 2 cov / (var_x + var_y + (mean_x − mean_y)²) (Lin 1989), which is κ with quadratic weights, without a table of
    labels × labels. The interval is Fisher's on atanh ρ.

    >>> from dissensus.table.simulate import simulate_kind
    >>> concordances(simulate_kind("numbers", 60, 6, seed=1).annotations).kappa[:2].round(3)
    array([0.629, 0.663])
    """
    place = places(table, "interval", table.values)

    def sums(found: LabelPairs) -> Iterator[FloatArray]:
        x, y = place[found.mine], place[found.theirs]
        yield from map(found.sums, (x, y, (x - y) ** 2, x**2 + y**2))

    made, shared, found = _of_pairs(table, least, sums)
    x, y, apart, squares = (one / shared for one in found)
    rho = 1 - ratio(apart, squares - 2 * x * y)
    half = Z / np.sqrt(np.maximum(shared - 3, 1))
    with np.errstate(divide="ignore"):
        low, high = (np.tanh(np.arctanh(np.clip(rho, -1, 1)) + side * half) for side in (-1, 1))
    return made(rho, low, high)


def _of_pairs(
    table: Annotations, least: int, sums: Callable[[LabelPairs], Iterable[FloatArray]]
) -> tuple[Callable[..., Pairs], FloatArray, list[FloatArray]]:
    """What makes `Pairs` of kappa, low and high; the items that each pair shares; what `sums` makes of their labels."""
    check_argument("least", least, int, low=1)
    if table.n_annotators < 2:
        raise DataError("the table has fewer than two annotators; who agrees with whom cannot be said.")
    parts = [
        (found.first, found.second, found.shared, found.sums(found.mine == found.theirs), *sums(found))
        for found in label_pairs(Ratings.of(table), table.n_annotators, table.n_classes, least)
    ]
    first, second, shared, same, *others = map(np.concatenate, zip(*parts, strict=True))
    people = table.annotators[first], table.annotators[second]
    return partial(Pairs, *people, shared.astype(np.int64), same / shared), shared, others


def wilson(mean: FloatArray, variance: FloatArray, n: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Bounds of the mean of n values from 0 to 1, by Wilson's interval (1927) of a share with the same variance.

    The number of trials of that share is n m (1 − m) / variance: n itself where the values are 0 and 1.
    """
    spread = mean * (1 - mean)
    varies = variance > 1e-9
    trials = n * np.where(varies, np.maximum(spread / np.where(varies, variance, 1), 1), 1)
    return score_interval(mean, trials, Z)
