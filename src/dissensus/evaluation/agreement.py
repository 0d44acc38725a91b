"""Agreement of annotators: percent agreement, Krippendorff's α, Fleiss' κ and Gwet's AC1, with intervals.

Items may have unequal numbers of labels, annotators may have seen few items, and labels may repeat or be
probabilistic. A rating is one annotator's answer for one item. Several labels of an annotator for an item share one
rating, so that no annotator agrees with themselves. In a table without annotator ids, every vote is a rating. All
coefficients are functions of sums over items. The bootstrap (`intervals`) resamples items with all their labels.

Other libraries compute these coefficients from a dense table of items × annotators and without intervals; these
functions accept any number of sparse ratings.

Symbols: item i has m_i ratings, of which v_ic are for class c (a fraction if labels share a rating). P_i is the share
of agreeing pairs of ratings of item i. Σ_i is over items with a rating, and Σ'_i over items with two ratings or more.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, Literal

import numpy as np
from scipy.sparse import csr_array

from dissensus.common.parameters import check_argument
from dissensus.common.types import FloatArray
from dissensus.evaluation.exceptions import NoSharedItems
from dissensus.evaluation.intervals import Estimate, bootstrap_sums
from dissensus.evaluation.ratings import (
    N_FIXED_COLUMNS,
    Ratings,
    Scale,
    agreement_statistics,
    class_positions_on_scale,
    safe_ratio,
)
from dissensus.table.annotations import Annotations

RATED_COLUMN, PAIRED_COLUMN, AGREEING_PAIRS_COLUMN, PAIRS_COLUMN, SHARE_COLUMN, DISAGREEMENT_COLUMN = range(
    N_FIXED_COLUMNS
)  # columns of the statistics
AveragingUnit = Literal["pairs", "items"]


def agreement(
    table: Annotations, *, scale: Scale = "nominal", values: Any = None, **bootstrap: Any
) -> dict[str, Estimate]:
    """Return percent agreement, Krippendorff's α, Fleiss' κ and Gwet's AC1, all from the same resamples.

    Parameters
    ----------
    scale : "nominal", "ordinal" or "interval"
        Scale for Krippendorff's α; the other coefficients treat classes as unordered.
    values : (K,), optional
        Positions of the classes. On an interval scale these are numbers, by default the class names; on an ordinal
        scale they are sort keys, by default the order of `table.classes`.
    **bootstrap
        `level`, `resamples`, `seed` and `on_step` as in `bootstrap`. `resamples=0` computes no intervals.

    Returns
    -------
    dict of Estimate
        Coefficient → estimate. An undefined coefficient is NaN, such as a chance-corrected one if all labels are of one
        class.

    >>> from dissensus.table.simulate import simulate
    >>> for name, found in agreement(simulate(200, 12, 3, seed=1).annotations).items():
    ...     print(name, found)
    percent 0.581 (95 % interval 0.544 to 0.616)
    krippendorff_alpha 0.368 (95 % interval 0.311 to 0.419)
    fleiss_kappa 0.367 (95 % interval 0.310 to 0.418)
    gwet_ac1 0.374 (95 % interval 0.317 to 0.427)
    """
    names = ("percent", "krippendorff_alpha", "fleiss_kappa", "gwet_ac1")
    return _estimate_coefficients(table, names, scale, values, **bootstrap)


def percent_agreement(table: Annotations, *, mean_over: AveragingUnit = "pairs", **bootstrap: Any) -> Estimate:
    """Return the share of pairs of ratings of one item that agree.

    With `mean_over="pairs"`, all pairs of ratings count equally, so an item with ten ratings has 45 times the weight of
    an item with two. With "items", the result is Σ'_i P_i / Σ'_i 1: all items count equally, as in Fleiss' κ and Gwet's
    AC1. Both means are the same if all items have the same number of ratings.

    >>> table = Annotations.from_arrays("aabb", "xyxy", [0, 1, 1, 1])
    >>> percent_agreement(table, resamples=0).value
    0.5
    """
    check_argument("mean_over", mean_over, AveragingUnit)
    name = "percent" if mean_over == "pairs" else "percent of items"
    return _estimate_coefficients(table, [name], **bootstrap)[name]


def krippendorff_alpha(
    table: Annotations, *, scale: Scale = "nominal", values: Any = None, **bootstrap: Any
) -> Estimate:
    """Return Krippendorff's α = 1 − D_o / D_e, for any number of annotators and missing labels.

    With n_c = Σ'_i v_ic and n = Σ_c n_c, the disagreements D_o and D_e are defined below. δ² is the squared distance of
    two classes: 0 or 1 on a nominal scale, the squared difference of midranks among all ratings on an ordinal scale,
    and the squared difference of values on an interval scale.

    D_o = (1/n) Σ'_i Σ_{pairs of ratings of i, both orders} δ² / (m_i − 1),   D_e = Σ_{c,k} n_c n_k δ²_ck / (n (n − 1))

    (Krippendorff 2011, "Computing Krippendorff's alpha-reliability"). Items with one rating are excluded. Each resample
    recomputes everything, including expected disagreement and midranks. The arguments are those of `agreement`.

    >>> table = Annotations.from_arrays("aabbccdd", "xyxyxyxy", [1, 2, 1, 1, 3, 3, 2, 2])
    >>> [round(krippendorff_alpha(table, scale=scale, resamples=0).value, 3) for scale in ("nominal", "interval")]
    [0.667, 0.821]
    """
    return _estimate_coefficients(table, ["krippendorff_alpha"], scale, values, **bootstrap)["krippendorff_alpha"]


def fleiss_kappa(table: Annotations, **bootstrap: Any) -> Estimate:
    """Return Fleiss' κ = (P − P_e) / (1 − P_e), where P is the mean of P_i and P_e = Σ_c p_c² (Fleiss 1971).

    p_c are the class shares. Fleiss requires the same number of ratings for every item. Otherwise the result is Gwet's
    generalisation (2014, Handbook of Inter-Rater Reliability, 4th ed.; package irrCAC): P = Σ'_i P_i / Σ'_i 1, and p_c
    is the mean of v_ic / m_i over the items with two ratings or more. All these items count equally. Gwet computes p_c
    from items with one rating too, but then κ could be far below −1, its lower limit.

    >>> table = Annotations.from_arrays("aabbccdd", "xyxyxyxy", [1, 2, 1, 1, 3, 3, 2, 2])
    >>> round(fleiss_kappa(table, resamples=0).value, 3)
    0.619
    """
    return _estimate_coefficients(table, ["fleiss_kappa"], **bootstrap)["fleiss_kappa"]


def gwet_ac1(table: Annotations, **bootstrap: Any) -> Estimate:
    """Return Gwet's AC1 = (P − P_e) / (1 − P_e), where P_e = Σ_c p_c (1 − p_c) / (K − 1) (Gwet 2008).

    P and p_c are the same as in `fleiss_kappa`. K counts all classes of the table, including unused ones. Unlike κ, AC1
    does not collapse if nearly all labels are of one class.

    >>> table = Annotations.from_arrays("aabbccdd", "xyxyxyxy", [1, 2, 1, 1, 1, 1, 1, 1])
    >>> [round(coefficient(table, resamples=0).value, 3) for coefficient in (gwet_ac1, fleiss_kappa)]
    [0.68, -0.143]
    """
    return _estimate_coefficients(table, ["gwet_ac1"], **bootstrap)["gwet_ac1"]


def numeric_agreement(table: Annotations, *, level: float = 0.95, **bootstrap: Any) -> dict[str, Estimate]:
    """Return the mean difference, Krippendorff's α on an interval scale, and two intraclass correlations of numbers.

    Item i has m_i ratings x; only items with two ratings or more are used. `mean_difference` is the mean |x_a − x_b|
    over pairs of ratings of one item. `icc` is the share of a rating's variance that lies between items, from a one-way
    analysis of variance with unequal m_i (Shrout & Fleiss 1979, ICC(1, 1)): (B − W) / (B + (m₀ − 1) W), where B and W
    are the mean squares between and within items and m₀ = (n − Σ m_i²/n) / (I − 1). `icc_of_mean` = (B − W) / B is the
    same share for the mean of m₀ ratings. No array of items × numbers is built. `bootstrap` is the same as in
    `agreement`.

    >>> from dissensus.table.simulate import simulate_kind
    >>> print(numeric_agreement(simulate_kind("numbers", 60, 6, seed=1).annotations)["icc"])
    0.410 (95 % interval 0.292 to 0.499)
    """
    rows = Ratings.from_table(table)
    rating, first = np.unique(rows.rating, return_index=True)
    item = rows.item[first]
    x = np.bincount(rows.rating, rows.share * table.values[rows.label], rating.size)
    x = x - x.mean() if x.size else x  # Centring keeps precision in sums of squares.
    m = np.bincount(item, minlength=table.n_items).astype(np.float64)
    several = m > 1
    if not several.any():
        raise NoSharedItems(count=table.n_items, units="items")
    order = np.lexsort((x, item))
    rank = np.arange(item.size) - np.repeat(np.cumsum(m) - m, m.astype(int)).astype(int)
    apart = np.bincount(item[order], (2 * rank + 1 - m[item[order]]) * x[order], table.n_items)  # Σ_{a<b} |x_a − x_b|
    total, squares = (np.bincount(item, one, table.n_items) for one in (x, x**2))
    mean_square = total**2 / np.maximum(m, 1)
    around = 2 * m * (squares - mean_square) / np.maximum(m - 1, 1)  # Σ_{a≠b} (x_a − x_b)² / (m − 1)
    columns = [several, m, m**2, total, squares, mean_square, around, apart, m * (m - 1) / 2]
    sums = bootstrap_sums(csr_array(np.stack(columns, 1)[several]), **bootstrap)
    names = ("mean_difference", "krippendorff_alpha", "icc", "icc_of_mean")
    return {name: sums.estimate(partial(_numeric_coefficient, name), level) for name in names}


def _numeric_coefficient(name: str, sums: FloatArray) -> FloatArray:
    """Return the values (B,) of a coefficient of `numeric_agreement`, computed from sums (B, 9)."""
    items, n, n2, total, squares, mean_square, around, apart, pairs = sums.T
    if name == "mean_difference":
        return safe_ratio(apart, pairs)
    if name == "krippendorff_alpha":
        return 1 - safe_ratio((n - 1) * around, 2 * (n * squares - total**2))
    between = safe_ratio(mean_square - safe_ratio(total**2, n), items - 1)
    within, size = safe_ratio(squares - mean_square, n - items), safe_ratio(n - safe_ratio(n2, n), items - 1)
    return safe_ratio(between - within, between if name == "icc_of_mean" else between + (size - 1) * within)


def _estimate_coefficients(
    table: Annotations,
    names: Iterable[str],
    scale: Scale = "nominal",
    values: Any = None,
    level: float = 0.95,
    **bootstrap: Any,
) -> dict[str, Estimate]:
    place = class_positions_on_scale(table, scale, values)
    found = agreement_statistics(table, scale, place)
    rated = found[np.flatnonzero(np.diff(found.indptr))]  # Items without labels are not resampled.
    if (several := rated[:, [PAIRED_COLUMN]].sum()) == 0:
        raise NoSharedItems(count=table.n_items, units="items")
    sums = bootstrap_sums(rated, **bootstrap)
    trials = {"percent": several, "percent of items": several}  # The other coefficients are not shares.
    return {
        name: sums.estimate(partial(_class_coefficient, name, scale, place), level, trials.get(name, 0))
        for name in names
    }


def _class_coefficient(name: str, scale: Scale, place: FloatArray, sums: FloatArray) -> FloatArray:
    """Return the values (B,) of a coefficient, computed from sums (B, S); `place` (K,) holds the class positions."""
    K = place.size
    if name == "krippendorff_alpha":
        return _krippendorff_alpha(scale, place, sums)
    if name == "percent":
        return safe_ratio(sums[:, AGREEING_PAIRS_COLUMN], sums[:, PAIRS_COLUMN])
    observed = safe_ratio(sums[:, SHARE_COLUMN], sums[:, PAIRED_COLUMN])
    if name == "percent of items":
        return observed
    if name == "fleiss_kappa":
        p = sums[:, N_FIXED_COLUMNS + 2 * K : N_FIXED_COLUMNS + 3 * K] / np.maximum(sums[:, [PAIRED_COLUMN]], 1)
        expected = (p**2).sum(axis=1)
    else:
        p = sums[:, N_FIXED_COLUMNS : N_FIXED_COLUMNS + K] / np.maximum(sums[:, [RATED_COLUMN]], 1)
        expected = (p * (1 - p)).sum(axis=1) / (K - 1) if K > 1 else np.ones(len(p))  # AC1 is undefined for one class.
    return safe_ratio(observed - expected, 1 - expected)


def _krippendorff_alpha(scale: Scale, place: FloatArray, sums: FloatArray) -> FloatArray:
    K = place.size
    counts = sums[:, N_FIXED_COLUMNS + K : N_FIXED_COLUMNS + 2 * K]  # (B, K)
    n, observed = counts.sum(axis=1), sums[:, DISAGREEMENT_COLUMN]
    if scale == "nominal":
        expected = n**2 - (counts**2).sum(axis=1)
    elif scale == "interval":
        expected = _pairwise_squared_distance(counts, np.broadcast_to(place, counts.shape))
    else:
        rank = np.cumsum(counts, axis=1) - counts / 2  # The ordinal δ is the difference of these midranks.
        first, second = np.triu_indices(K, 1)
        distance = (rank[:, first] - rank[:, second]) ** 2
        observed, expected = (
            (sums[:, N_FIXED_COLUMNS + 3 * K :] * distance).sum(axis=1),
            _pairwise_squared_distance(counts, rank),
        )
    return 1 - safe_ratio((n - 1) * observed, expected)


def _pairwise_squared_distance(counts: FloatArray, place: FloatArray) -> FloatArray:
    """Return Σ_{c,k} n_c n_k (x_c − x_k)² = 2 n Σ_c n_c (x_c − x̄)², one number (B,) per resample."""
    n = counts.sum(axis=1, keepdims=True)
    mean = (counts * place).sum(axis=1, keepdims=True) / np.maximum(n, 1)
    return np.asarray(2 * n[:, 0] * (counts * (place - mean) ** 2).sum(axis=1))
