from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import wasserstein_distance

from dissensus import Annotations
from dissensus import evaluation as ev
from dissensus.evaluation.exceptions import (
    BadScale,
    CodeOutOfRange,
    NoItems,
    NotOnePerClass,
    NotRowsOfTable,
    RowsNotDistributions,
)
from dissensus.exceptions import BadParameter
from evaluation.tables import any_tables
from refused import refused
from tables import KINDS, random_table


def literal(table, error, by):
    """Means over pairs, whose rows share them; `error(row, label)` of a label that was given."""
    pairs: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for n in range(len(table)):
        weight = 1.0 if table.weight is None else table.weight[n]
        if weight > 0:
            if table.proba is None:
                value = error(n, table.label[n])
            else:
                value = sum(p * error(n, k) for k, p in enumerate(table.proba[n]))
            pairs.setdefault((int(table.item[n]), int(table.annotator[n])), []).append((weight, value))
    groups: dict[int, list[tuple[float, float]]] = {}
    for (i, j), rows in pairs.items():
        weight = sum(w for w, _ in rows) / len(rows)
        mean = sum(w * value for w, value in rows) / sum(w for w, _ in rows)
        groups.setdefault(i if by == "item" else j, []).append((weight, mean))
    return [sum(w * v for w, v in groups[g]) / sum(w for w, _ in groups[g]) for g in sorted(groups)]


def predictions(table, seed):
    """Distributions (N, K), some with ties."""
    return np.random.default_rng(seed).multinomial(4, np.full(table.n_classes, 1 / table.n_classes), len(table)) / 4


ROWS = KINDS | {"some without weight": {"weight": lambda rng, n: rng.integers(0, 3, n)}}


@pytest.mark.parametrize("by", ["item", "annotator"])
@pytest.mark.parametrize("kind", ROWS)
def test_error_rate_is_the_mean_over_pairs(kind, by):
    table = random_table(3, **ROWS[kind])
    h = predictions(table, 1)
    codes = h.argmax(axis=1)
    assert ev.error_rate(table, codes, by=by) == pytest.approx(literal(table, lambda n, k: codes[n] != k, by))

    def fair(n, k):
        best = np.flatnonzero(h[n] == h[n].max())
        return 1 - (k in best) / best.size

    assert ev.error_rate(table, h, by=by) == pytest.approx(literal(table, fair, by))


@pytest.mark.parametrize("by", ["item", "annotator"])
@pytest.mark.parametrize("kind", ROWS)
def test_absolute_distance_is_scipy_s_transport_to_the_median(kind, by):
    table = random_table(3, **ROWS[kind])
    place = np.array([3.0, -1.0, 0.5, 7.0])
    h = predictions(table, 2)

    def median(row):
        return min(place, key=lambda x: (sum(row * np.abs(place - x)), x))  # the least expected distance; the lower

    for predicted, at in ((h.argmax(axis=1), place[h.argmax(axis=1)]), (h, [median(row) for row in h])):
        found = ev.absolute_distance(table, predicted, positions=place, by=by)
        far = literal(table, lambda n, k, at=at: wasserstein_distance([place[k]], [at[n]]) / 8, by)
        assert found == pytest.approx(far)
    default = ev.absolute_distance(table, h.argmax(axis=1), by=by)
    assert default == pytest.approx(literal(table, lambda n, k: abs(h[n].argmax() - k) / 3, by))
    assert ev.absolute_distance(table, h, scale=4.0, by=by) == pytest.approx(
        ev.absolute_distance(table, h, by=by) * 3 / 4
    )


def test_figures_of_the_shared_task():
    """Two annotators rate two items from −5 to 5: the range is 10, the program divides by 11; binary errors."""
    table = Annotations.from_arrays(list("aabb"), list("xyxy"), [-5, 5, 0, 3], classes=list(range(-5, 6)))
    predicted = np.array([-3, 5, 0, -1]) + 5
    places = np.arange(-5, 6)
    assert ev.absolute_distance(table, predicted, positions=places) == pytest.approx([2 / 2 / 10, 4 / 2 / 10])
    assert ev.absolute_distance(table, predicted, scale=11) == pytest.approx([2 / 2 / 11, 4 / 2 / 11])
    assert ev.error_rate(table, predicted).mean() == 0.5
    uneven = Annotations.from_arrays(list("aaab"), list("xyzx"), [0, 0, 1, 1])
    assert ev.error_rate(uneven, [0, 0, 0, 0]).mean() == pytest.approx((1 / 3 + 1) / 2)  # items count alike


def test_two_labels_of_one_annotator_are_one_answer():
    table = Annotations.from_arrays(list("aaa"), list("xxy"), [0, 1, 2])
    assert ev.error_rate(table, [0, 0, 2]).tolist() == [0.25]  # x half missed, y right
    assert ev.error_rate(table, [0, 0, 2], by="annotator").tolist() == [0.5, 0]


@settings(max_examples=30)
@given(any_tables(), st.integers(0, 9))
def test_bounds_and_the_order_of_classes(table, seed):
    if not len(table) or table.n_classes < 2:
        return
    h = np.random.default_rng(seed).dirichlet(np.ones(table.n_classes), len(table))
    places = np.arange(table.n_classes)
    for by in ("item", "annotator"):
        errors, far = ev.error_rate(table, h, by=by), ev.absolute_distance(table, h, by=by)
        size = np.diff(table.item_ptr if by == "item" else table.annotator_ptr)
        assert errors.shape == far.shape == ((size > 0).sum(),)
        assert ((errors >= -1e-12) & (errors <= 1 + 1e-12)).all()
        assert ((far >= 0) & (far <= 1 + 1e-12)).all()
        assert ev.absolute_distance(table, h, positions=5 - 2 * places, by=by).shape == far.shape
    codes = h.argmax(axis=1)
    mirrored = ev.absolute_distance(table, codes, positions=5 - 2 * places)
    assert mirrored == pytest.approx(ev.absolute_distance(table, codes))
    assert ev.bootstrap(ev.error_rate(table, h), resamples=10).value == pytest.approx(ev.error_rate(table, h).mean())


def test_what_cannot_be_compared_is_named():
    table = Annotations.from_arrays(list("aab"), list("xyx"), [0, 1, 2])
    with refused(NotRowsOfTable, rows=3, shape=(2,)):
        ev.error_rate(table, [0, 1])
    with refused(NotRowsOfTable, rows=3, shape=()):
        ev.error_rate(table, 0)
    with refused(CodeOutOfRange, name="predicted", row=1, code=3, n_classes=3):
        ev.error_rate(table, [0, 3, 1])
    with refused(CodeOutOfRange, row=0, code=-1):
        ev.absolute_distance(table, [-1, 0, 1])
    with refused(NotOnePerClass, name="predicted", values=2, n_classes=3):
        ev.error_rate(table, np.full((3, 2), 0.5))
    with refused(RowsNotDistributions, name="predicted", count=3, rows=3, first_row=0, total=1.5):
        ev.error_rate(table, np.full((3, 3), 0.5))
    with refused(BadParameter, name="by"):
        ev.error_rate(table, [0, 0, 0], by="class")
    with refused(NotOnePerClass, name="positions", values=2, n_classes=3):
        ev.absolute_distance(table, [0, 0, 0], positions=[1, 2])
    with refused(BadScale, scale=0):
        ev.absolute_distance(table, [0, 0, 0], positions=[1, 1, 1])
    with refused(NoItems):
        ev.error_rate(table.select(rows=[False] * 3), np.empty(0, int))
