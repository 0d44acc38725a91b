"""Grades: the likelihood against plain loops, recovery, medians and intervals."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dissensus import Annotations, methods
from dissensus.models.methods.graded_response import (
    PRIOR_MEANS,
    GraderParams,
    grade_likelihoods,
    interval_codes,
    m_step_objective,
    median_codes,
)
from dissensus.table.simulate import simulate_kind
from models.family import readable_pass

SIM = simulate_kind("graded", 300, 24, seed=0)
GRADING = np.array([[0.3, 1.2, 0.5, -2.0], [-0.5, -0.9, 1.0, -1.0]])
SHARES = np.array([0.1, 0.4, 0.3, 0.2])


def test_likelihoods_are_those_of_plain_loops():
    found, slopes = grade_likelihoods(GRADING, SHARES)
    K = 4
    for j, (b, a, log_precision, logit) in enumerate(GRADING.tolist()):
        guess = 1 / (1 + math.exp(-logit))
        for c in range(K):

            def below(label, b=b, a=a, c=c, log_precision=log_precision):
                if label in (-1, K - 1):
                    return float(label > 0)
                middle = (K - 1) / 2
                return 1 / (1 + math.exp(-math.exp(log_precision) * (label + 0.5 - middle - b - a * (c - middle))))

            for label in range(K):
                looked = below(label) - below(label - 1)
                assert found[j, c, label] == pytest.approx((1 - guess) * looked + guess * SHARES[label], abs=1e-12)
    for p in range(4):
        step = np.zeros_like(GRADING)
        step[:, p] = 1e-6
        numeric = (grade_likelihoods(GRADING + step, SHARES)[0] - grade_likelihoods(GRADING - step, SHARES)[0]) / 2e-6
        np.testing.assert_allclose(slopes[p], numeric, atol=1e-8)


def test_scoring_climbs_to_where_it_is_flat():
    rng = np.random.default_rng(0)
    labels = rng.uniform(0, 30, (2, 4, 4)) + 60 * np.eye(4)
    model = methods["graded-response"]()
    model.label_shares_ = SHARES
    params = GraderParams(np.full(4, 0.25), np.tile(PRIOR_MEANS, (2, 1)), np.zeros(1))
    worth = [m_step_objective(labels, params.grading, SHARES, PRIOR_MEANS)]
    for _ in range(40):
        params = model.m_step(labels, labels, params)
        worth.append(m_step_objective(labels, params.grading, SHARES, PRIOR_MEANS))
    assert (np.diff(worth, axis=0) >= 0).all()
    for _ in range(20):
        near = params.grading + rng.normal(0, 0.02, (2, 4))
        assert (m_step_objective(labels, near, SHARES, PRIOR_MEANS) <= worth[-1] + 1e-6).all()


def test_the_posterior_is_that_of_its_parameters():
    model = methods["graded-response"](dependence=None).fit(SIM.annotations)
    posterior, _ = readable_pass(SIM.annotations, model.prior_, model.confusion_)
    np.testing.assert_allclose(model.posterior_, posterior, atol=1e-9)
    assert (np.diff(model.trace_) > -1e-7 * abs(model.trace_[-1])).all()


def test_grades_are_found_among_spammers_adversaries_and_bias():
    table, truth = SIM.annotations, SIM.truth
    model = methods["graded-response"]().fit(table)
    errors = {
        name: np.abs(methods[name]().fit(table).predict() - truth).mean() for name in ("consensus", "majority-vote")
    }
    mean = np.bincount(table.item, table.values[table.label]) / 5
    assert np.abs(model.predict() - truth).mean() < 0.8 * min(*errors.values(), np.abs(mean - truth).mean())
    assert (model.grading_[SIM.kind == "adversary", 1] < 0).all()
    ends = model.predict_interval().astype(float)
    assert ((ends[:, 0] <= truth) & (truth <= ends[:, 1])).mean() > 0.9
    assert np.abs(model.values_ - truth).mean() < np.abs(mean - truth).mean()


def test_medians_and_quantiles():
    posterior = np.array([[0.5, 0.0, 0.5], [0.02, 0.96, 0.02], [0.1, 0.2, 0.7]])
    assert median_codes(posterior).tolist() == [0, 1, 2]
    assert interval_codes(posterior, 0.95).tolist() == [[0, 2], [1, 1], [0, 2]]
    assert interval_codes(posterior, 0.5).tolist() == [[0, 2], [1, 1], [1, 2]]


def test_frame_new_table_update_and_names():
    table = SIM.annotations
    named = Annotations.from_arrays(
        table.item, table.annotator, np.array(list("fdcba"), object)[table.label], list("fdcba"), kind="graded"
    )
    model = methods["graded-response"]().fit(named)
    frame = model.to_frame("items", "pyarrow")
    assert frame.column_names[:6] == ["item", "label", "confidence", "low", "high", "value"]
    assert frame["label"].to_pylist() == model.predict().tolist()
    assert model.predict(named).tolist() == model.predict().tolist()
    half, rest = named.split(0.5, by="annotation")
    updated = methods["graded-response"]().fit(half).partial_fit(rest)
    assert np.corrcoef(updated.values_, model.values_)[0, 1] > 0.9
    # the other methods take grades as classes, where they are asked for by name
    assert methods["dawid-skene"]().fit(named).posterior_.shape == (300, 5)
