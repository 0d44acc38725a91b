"""Agreement of numbers: against plain loops, the package krippendorff, and κ with quadratic weights."""

from __future__ import annotations

from itertools import combinations

import krippendorff
import numpy as np
import pytest

from dissensus import Annotations
from dissensus.evaluation import cohen_kappas, concordances, numeric_agreement
from dissensus.evaluation.exceptions import NoSharedItems, TooFewAnnotators
from refused import refused

RNG = np.random.default_rng(0)
MATRIX = RNG.normal(size=(30, 1)) + RNG.normal(0, 0.7, (30, 4)) + [0, 0.5, 0, -0.2]
MATRIX[RNG.random(MATRIX.shape) < 0.3] = np.nan
MATRIX = MATRIX.round(1)
TABLE = Annotations.from_matrix(MATRIX, kind="numbers")


def test_coefficients_are_those_of_plain_loops():
    found = {name: one.value for name, one in numeric_agreement(TABLE, resamples=0).items()}
    rows = [row[~np.isnan(row)] for row in MATRIX]
    rows = [row for row in rows if row.size > 1]
    apart = [abs(a - b) for row in rows for a, b in combinations(row, 2)]
    assert found["mean_difference"] == pytest.approx(np.mean(apart))
    together = np.concatenate(rows)
    n, k, I = together.size, np.array([row.size for row in rows]), len(rows)
    between = sum(row.size * (row.mean() - together.mean()) ** 2 for row in rows) / (I - 1)
    within = sum(((row - row.mean()) ** 2).sum() for row in rows) / (n - I)
    size = (n - (k**2).sum() / n) / (I - 1)
    assert found["icc"] == pytest.approx((between - within) / (between + (size - 1) * within))
    assert found["icc_of_mean"] == pytest.approx((between - within) / between)
    assert found["krippendorff_alpha"] == pytest.approx(krippendorff.alpha(MATRIX.T, level_of_measurement="interval"))


def test_intervals_hold_the_value_and_units_do_not_matter():
    other = numeric_agreement(Annotations.from_matrix(7 * MATRIX - 3, missing=None, kind="numbers"), resamples=200)
    for name, one in numeric_agreement(TABLE, resamples=200).items():
        assert one.low < one.value < one.high
        assert other[name].value == pytest.approx(one.value * (7 if name == "mean_difference" else 1))


def test_lins_concordance_is_kappa_with_quadratic_weights():
    ours, theirs = (
        concordances(TABLE, min_shared=5),
        cohen_kappas(TABLE, min_shared=5, weights="quadratic", values=TABLE.values),
    )
    np.testing.assert_allclose(ours.kappa, theirs.kappa)
    assert ours.first_annotator.tolist() == theirs.first_annotator.tolist()
    assert ((ours.low < ours.kappa) & (ours.kappa < ours.high)).all()


def test_nothing_to_compare_is_said():
    alone = Annotations.from_arrays([0, 1], ["x", "x"], [0.5, 1.5], kind="numbers")
    with refused(NoSharedItems, count=2):
        numeric_agreement(alone)
    with refused(TooFewAnnotators, annotators=1):
        concordances(alone)
