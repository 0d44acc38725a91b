"""How far annotators agree, beyond chance: percent, Krippendorff's α, Fleiss' κ, Gwet's AC1, with intervals.

Any table will do: items with unequal numbers of labels, annotators who saw few items, repeated pairs, probabilistic
labels. A rating is what one annotator says about one item: labels that repeat an item and annotator share one rating,
so that nobody agrees with themselves; the votes of a table without annotator ids are a rating each. Everything is a
function of sums over items, which the bootstrap resamples (`intervals`): an item is drawn with all its labels.

Symbols: m_i ratings of item i, v_ic of them (in parts where shared) for class c; P_i the share of the pairs of ratings
of item i that agree; Σ_i over items with a rating, Σ'_i over those with two or more.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, Literal

import numpy as np
from scipy.sparse import csr_array

from dissensus.common.parameters import check_argument
from dissensus.common.types import FloatArray
from dissensus.evaluation.intervals import Estimate, bootstrap_sums
from dissensus.evaluation.ratings import FIXED, Ratings, Scale, places, ratio, statistics
from dissensus.exceptions import DataError
from dissensus.table.annotations import Annotations

RATED, PAIRED, AGREE, PAIRS, SHARE, APART = range(FIXED)  # columns of the statistics
MeanOver = Literal["pairs", "items"]


def agreement(
    table: Annotations, *, scale: Scale = "nominal", values: Any = None, **bootstrap: Any
) -> dict[str, Estimate]:
    """All coefficients from the same resamples: percent, krippendorff_alpha, fleiss_kappa, gwet_ac1.

    Parameters
    ----------
    scale : "nominal", "ordinal" or "interval"
        Of Krippendorff's α; the others take classes as names without order.
    values : (K,), optional
        Where the classes lie: numbers on an interval scale (left out, the class names themselves), and whatever sorts
        them on an ordinal one (left out, the order of `table.classes`).
    **bootstrap
        `level`, `resamples`, `seed` and `on_step` as in `bootstrap`. `resamples=0`: no intervals.

    Returns
    -------
    dict of Estimate
        NaN where undefined: a coefficient that corrects for chance is, where only one class was ever given.

    >>> from dissensus.table.simulate import simulate
    >>> for name, found in agreement(simulate(200, 12, 3, seed=1).annotations).items():
    ...     print(name, found)
    percent 0.581 (95 % interval 0.544 to 0.616)
    krippendorff_alpha 0.368 (95 % interval 0.311 to 0.419)
    fleiss_kappa 0.367 (95 % interval 0.310 to 0.418)
    gwet_ac1 0.374 (95 % interval 0.317 to 0.427)
    """
    names = ("percent", "krippendorff_alpha", "fleiss_kappa", "gwet_ac1")
    return _estimates(table, names, scale, values, **bootstrap)


def percent_agreement(table: Annotations, *, mean_over: MeanOver = "pairs", **bootstrap: Any) -> Estimate:
    """How often two ratings of one item agree.

    Over "pairs", all pairs of ratings count alike, so that an item with ten ratings has 45 times the weight of one with
    two; over "items", Σ'_i P_i / Σ'_i 1, all items count alike, as in Fleiss' κ and Gwet's AC1. The same where all
    items have equally many.

    >>> table = Annotations.from_arrays("aabb", "xyxy", [0, 1, 1, 1])
    >>> percent_agreement(table, resamples=0).value
    0.5
    """
    check_argument("mean_over", mean_over, MeanOver)
    name = "percent" if mean_over == "pairs" else "percent of items"
    return _estimates(table, [name], **bootstrap)[name]


def krippendorff_alpha(
    table: Annotations, *, scale: Scale = "nominal", values: Any = None, **bootstrap: Any
) -> Estimate:
    """Krippendorff's α = 1 − D_o / D_e, for any number of annotators and missing labels.

    With n_c = Σ'_i v_ic, n = Σ_c n_c and δ² the squared distance of two classes (whether they differ; of their midranks
    among all ratings; of their values):

    D_o = (1/n) Σ'_i Σ_{pairs of ratings of i, both orders} δ² / (m_i − 1),   D_e = Σ_{c,k} n_c n_k δ²_ck / (n (n − 1))

    (Krippendorff 2011, "Computing Krippendorff's alpha-reliability"). Items with one rating say nothing
    and are left out. In a resample everything is computed anew, expected disagreement and midranks too. The arguments
    are those of `agreement`.

    >>> table = Annotations.from_arrays("aabbccdd", "xyxyxyxy", [1, 2, 1, 1, 3, 3, 2, 2])
    >>> [round(krippendorff_alpha(table, scale=scale, resamples=0).value, 3) for scale in ("nominal", "interval")]
    [0.667, 0.821]
    """
    return _estimates(table, ["krippendorff_alpha"], scale, values, **bootstrap)["krippendorff_alpha"]


def fleiss_kappa(table: Annotations, **bootstrap: Any) -> Estimate:
    """Fleiss' κ = (P − P_e) / (1 − P_e), P = mean of P_i, P_e = Σ_c p_c² with p_c the share of class c (Fleiss 1971).

    Fleiss has equally many ratings of every item. Where they differ, this is Gwet's generalisation (2014, Handbook of
    Inter-Rater Reliability, 4th ed.; his package irrCAC): P = Σ'_i P_i / Σ'_i 1 over the items with two ratings or
    more, p_c = the mean over the same items of v_ic / m_i, every item counting alike. With equal numbers it is Fleiss'
    own. Gwet takes p_c from items with one rating too; κ could then be far below −1, its least value.

    >>> table = Annotations.from_arrays("aabbccdd", "xyxyxyxy", [1, 2, 1, 1, 3, 3, 2, 2])
    >>> round(fleiss_kappa(table, resamples=0).value, 3)
    0.619
    """
    return _estimates(table, ["fleiss_kappa"], **bootstrap)["fleiss_kappa"]


def gwet_ac1(table: Annotations, **bootstrap: Any) -> Estimate:
    """Gwet's AC1 = (P − P_e) / (1 − P_e), P_e = Σ_c p_c (1 − p_c) / (K − 1); P, p_c as in `fleiss_kappa` (Gwet 2008).

    K counts all classes of the table, also those that nobody gave. Unlike κ it does not collapse where nearly all
    labels are of one class.

    >>> table = Annotations.from_arrays("aabbccdd", "xyxyxyxy", [1, 2, 1, 1, 1, 1, 1, 1])
    >>> [round(coefficient(table, resamples=0).value, 3) for coefficient in (gwet_ac1, fleiss_kappa)]
    [0.68, -0.143]
    """
    return _estimates(table, ["gwet_ac1"], **bootstrap)["gwet_ac1"]


def numeric_agreement(table: Annotations, *, level: float = 0.95, **bootstrap: Any) -> dict[str, Estimate]:
    """How far numbers agree: mean_difference, krippendorff_alpha on an interval scale, icc and icc_of_mean.

    With m_i ratings x of item i, over the items with two or more: `mean_difference` is the mean |x_a − x_b| over pairs
    of ratings of one item; `icc`, from a one-way analysis of variance with unequal m_i (Shrout & Fleiss 1979, ICC(1,
    1)), is the share of a rating's variance that is the item's, (B − W) / (B + (m₀ − 1) W), B and W the mean squares
    between and within items, m₀ = (n − Σ m_i²/n) / (I − 1); `icc_of_mean` = (B − W) / B that of the mean of m₀ ratings.
    No array of items × numbers is made. `bootstrap`: as in `agreement`.

    >>> from dissensus.table.simulate import simulate_kind
    >>> print(numeric_agreement(simulate_kind("numbers", 60, 6, seed=1).annotations)["icc"])
    0.410 (95 % interval 0.292 to 0.499)
    """
    rows = Ratings.of(table)
    rating, first = np.unique(rows.rating, return_index=True)
    item = rows.item[first]
    x = np.bincount(rows.rating, rows.share * table.values[rows.label], rating.size)
    x = x - x.mean() if x.size else x  # sums of squares lose less
    m = np.bincount(item, minlength=table.n_items).astype(np.float64)
    several = m > 1
    if not several.any():
        raise DataError(f"no item of {table.n_items:,} has labels by two annotators; agreement cannot be measured.")
    order = np.lexsort((x, item))
    rank = np.arange(item.size) - np.repeat(np.cumsum(m) - m, m.astype(int)).astype(int)  # from 0, within the item
    apart = np.bincount(item[order], (2 * rank + 1 - m[item[order]]) * x[order], table.n_items)  # Σ_{a<b} |x_a − x_b|
    total, squares = (np.bincount(item, one, table.n_items) for one in (x, x**2))
    mean_square = total**2 / np.maximum(m, 1)
    around = 2 * m * (squares - mean_square) / np.maximum(m - 1, 1)  # Σ_{a≠b} (x_a − x_b)² / (m − 1)
    columns = [several, m, m**2, total, squares, mean_square, around, apart, m * (m - 1) / 2]
    sums = bootstrap_sums(csr_array(np.stack(columns, 1)[several]), **bootstrap)
    names = ("mean_difference", "krippendorff_alpha", "icc", "icc_of_mean")
    return {name: sums.estimate(partial(_numeric, name), level) for name in names}


def _numeric(name: str, sums: FloatArray) -> FloatArray:
    """A coefficient of `numeric_agreement` from sums (B, 9)."""
    items, n, n2, total, squares, mean_square, around, apart, pairs = sums.T
    if name == "mean_difference":
        return ratio(apart, pairs)
    if name == "krippendorff_alpha":
        return 1 - ratio((n - 1) * around, 2 * (n * squares - total**2))
    between = ratio(mean_square - ratio(total**2, n), items - 1)
    within, size = ratio(squares - mean_square, n - items), ratio(n - ratio(n2, n), items - 1)
    return ratio(between - within, between if name == "icc_of_mean" else between + (size - 1) * within)


def _estimates(
    table: Annotations,
    names: Iterable[str],
    scale: Scale = "nominal",
    values: Any = None,
    level: float = 0.95,
    **bootstrap: Any,
) -> dict[str, Estimate]:
    place = places(table, scale, values)
    found = statistics(table, scale, place)
    rated = found[np.flatnonzero(np.diff(found.indptr))]  # items without labels are not drawn
    if (several := rated[:, [PAIRED]].sum()) == 0:
        raise DataError(f"no item of {table.n_items:,} has labels by two annotators; agreement cannot be measured.")
    sums = bootstrap_sums(rated, **bootstrap)
    of = {"percent": several, "percent of items": several}  # shares
    return {name: sums.estimate(partial(_coefficient, name, scale, place), level, of.get(name, 0)) for name in names}


def _coefficient(name: str, scale: Scale, place: FloatArray, sums: FloatArray) -> FloatArray:
    """(B,) from sums (B, S); `place` (K,) is where the classes lie."""
    K = place.size
    if name == "krippendorff_alpha":
        return _alpha(scale, place, sums)
    if name == "percent":
        return ratio(sums[:, AGREE], sums[:, PAIRS])
    observed = ratio(sums[:, SHARE], sums[:, PAIRED])
    if name == "percent of items":
        return observed
    if name == "fleiss_kappa":
        p = sums[:, FIXED + 2 * K : FIXED + 3 * K] / np.maximum(sums[:, [PAIRED]], 1)
        expected = (p**2).sum(axis=1)  # two labels drawn from p agree
    else:
        p = sums[:, FIXED : FIXED + K] / np.maximum(sums[:, [RATED]], 1)
        expected = (p * (1 - p)).sum(axis=1) / (K - 1) if K > 1 else np.ones(len(p))  # undefined
    return ratio(observed - expected, 1 - expected)


def _alpha(scale: Scale, place: FloatArray, sums: FloatArray) -> FloatArray:
    K = place.size
    counts = sums[:, FIXED + K : FIXED + 2 * K]  # (B, K)
    n, observed = counts.sum(axis=1), sums[:, APART]
    if scale == "nominal":
        expected = n**2 - (counts**2).sum(axis=1)
    elif scale == "interval":
        expected = _spread(counts, np.broadcast_to(place, counts.shape))
    else:
        rank = np.cumsum(counts, axis=1) - counts / 2  # midranks: δ of the ordinal scale is their difference
        first, second = np.triu_indices(K, 1)
        distance = (rank[:, first] - rank[:, second]) ** 2
        observed, expected = (sums[:, FIXED + 3 * K :] * distance).sum(axis=1), _spread(counts, rank)
    return 1 - ratio((n - 1) * observed, expected)


def _spread(counts: FloatArray, place: FloatArray) -> FloatArray:
    """(B,) Σ_{c,k} n_c n_k (x_c − x_k)² = 2 n Σ_c n_c (x_c − x̄)²."""
    n = counts.sum(axis=1, keepdims=True)
    mean = (counts * place).sum(axis=1, keepdims=True) / np.maximum(n, 1)
    return np.asarray(2 * n[:, 0] * (counts * (place - mean) ** 2).sum(axis=1))
