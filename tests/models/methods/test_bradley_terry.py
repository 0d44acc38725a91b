"""Pairs: the likelihood against plain loops, another library's scores, recovery, intervals, connectedness."""

from __future__ import annotations

import csv
import gzip
import math
import os
from pathlib import Path

import numpy as np
import pytest

from dissensus import Annotations, methods, read
from dissensus.models.exceptions import AlternativesNotConnected, OneGroupAlwaysWins, OutcomesNotUsed, UnseenAlternative
from dissensus.models.methods.bradley_terry import expected_outcomes, score_derivatives, weighted_laplacian
from dissensus.table.simulate import simulate_kind

SIM = simulate_kind("pairs", 500, 20, n_things=12, seed=3)
PLAIN = {"ties": "half", "annotators": False, "position": False, "prior": None, "tol": 1e-9}


def test_likelihood_and_derivatives_are_those_of_plain_loops():
    model = methods["bradley-terry"]()
    table = SIM.annotations.select(rows=np.arange(40))
    games = model.extract_comparisons(table)
    rng = np.random.default_rng(0)
    scores, own = rng.normal(size=games.n_alternatives), rng.normal(size=(table.n_annotators, 3))

    def loop(shift=0.0):
        total, chance = 0.0, []
        _things, left, right = table.alternatives
        for row in range(len(table)):
            gamma, h, kappa = own[table.annotator[row]]
            eta = gamma * (scores[left[table.item[row]]] - scores[right[table.item[row]]]) + h + shift
            odds = [math.exp(eta / 2), math.exp(-eta / 2), math.exp(kappa)]
            chance.append([one / sum(odds) for one in odds])
            total += math.log(chance[-1][table.label[row]])
        return total, np.array(chance)

    total, chance = loop()
    p = expected_outcomes(games, scores, own)
    assert p.log_likelihood == pytest.approx(total)
    np.testing.assert_allclose((p.decided + p.difference) / 2, chance[:, 0], atol=1e-12)
    np.testing.assert_allclose(p.tie, chance[:, 2], atol=1e-12)
    slope, curve = score_derivatives(games, p)
    assert slope.sum() == pytest.approx((loop(1e-5)[0] - loop(-1e-5)[0]) / 2e-5, rel=1e-5)
    second = (loop(1e-3)[0] - 2 * total + loop(-1e-3)[0]) / 1e-6
    assert -curve.sum() == pytest.approx(second, rel=1e-4)
    dense = np.zeros((games.n_alternatives, games.n_alternatives))
    for left, right, weight in zip(games.left_codes, games.right_codes, curve, strict=True):
        e = np.eye(games.n_alternatives)[left] - np.eye(games.n_alternatives)[right]
        dense += weight * np.outer(e, e)
    np.testing.assert_allclose(weighted_laplacian(games, curve), dense, atol=1e-12)


def test_plain_scores_solve_zermelos_equations():
    """Wins of a thing = Σ over its games of P(win), which has one solution (Zermelo 1929); a tie is half a win."""
    table = SIM.annotations
    model = methods["bradley-terry"](**PLAIN).fit(table)
    _things, left, right = table.alternatives
    wins, expected = np.zeros(12), np.zeros(12)
    for item, label in zip(table.item, table.label, strict=True):
        one, other = left[item], right[item]
        chance = 1 / (1 + math.exp(model.scores_[other] - model.scores_[one]))
        wins[one] += (1, 0, 0.5)[label]
        wins[other] += (0, 1, 0.5)[label]
        expected[one] += chance
        expected[other] += 1 - chance
    np.testing.assert_allclose(wins, expected, atol=1e-8)


def test_scores_are_those_of_evalica():
    folder = Path(os.environ.get("DISSENSUS_DATA", "")) / "pairs_llmfao"
    if not (folder / "reference.csv.gz").exists():
        pytest.skip("DISSENSUS_DATA names no folder with pairs_llmfao")
    with gzip.open(folder / "reference.csv.gz", "rt") as file:
        theirs = {row["model"]: float(row["score"]) for row in csv.DictReader(file) if row["method"] == "bradley_terry"}
    table = read(folder / "annotations.csv.gz")
    assert (table.kind, table.alternatives.names.size) == ("pairs", 59)
    model = methods["bradley-terry"](**PLAIN).fit(table)
    ours, there = np.exp(model.scores_), np.array([theirs[name] for name in model.things_])
    np.testing.assert_allclose(ours / ours.sum(), there / there.sum(), atol=1e-6)


def test_scores_and_people_are_found():
    table, truth = SIM.annotations, SIM.truth - SIM.truth.mean()
    model = methods["bradley-terry"]().fit(table)
    assert model.converged_
    assert np.corrcoef(model.scores_, truth)[0, 1] > 0.97
    gamma = model.answering_[:, 0]
    assert gamma[SIM.kind == "ordinary"].min() > gamma[SIM.kind != "ordinary"].max()
    assert (gamma[SIM.kind == "adversary"] < 0).all()
    assert np.corrcoef(model.answering_[:, 1], SIM.bias)[0, 1] > 0.6
    scale = (model.scores_ @ truth) / (truth @ truth)
    ends = model.score_interval_ / scale
    assert ((ends[:, 0] <= truth) & (truth <= ends[:, 1])).mean() >= 0.75
    assert ((model.rank_interval_[:, 0] <= model.rank_) & (model.rank_ <= model.rank_interval_[:, 1])).all()
    best = model.to_frame("things", "pyarrow").to_pylist()[0]
    assert best["rank"] == 1
    assert best["elo"] == pytest.approx(1000 + 400 / math.log(10) * best["score"])


def test_hidden_answers_are_better_foreseen_with_annotators():
    rows = np.random.default_rng(0).random(len(SIM.annotations)) < 0.8
    train, test = SIM.annotations.select(rows=rows), SIM.annotations.select(rows=~rows)
    loss = []
    for keywords in ({}, {"annotators": False}):
        p = methods["bradley-terry"](**keywords).fit(train).predict_annotations(test)
        np.testing.assert_allclose(p.sum(axis=1), 1)
        loss.append(-np.log(p[np.arange(len(test)), test.label]).mean())
    shares = np.bincount(train.label, minlength=3) / len(train)
    assert loss[0] < loss[1] < -np.log(shares[test.label]).mean()


def test_answers_about_one_item_count_as_such():
    """Ten annotators who copy each other make no interval narrower than one of them."""
    one = simulate_kind("pairs", 400, 10, n_things=6, redundancy=1, spammers=0, adversaries=0, seed=1).annotations
    things, left, right = one.alternatives
    many = Annotations.from_pairs(
        np.tile(things[left][one.item], 10), np.tile(things[right][one.item], 10), np.tile(one.classes[one.label], 10),
        np.repeat(np.arange(10), len(one)), context=np.tile(one.item, 10),
    )  # fmt: skip
    width = [
        np.diff(methods["bradley-terry"](annotators=False).fit(table).score_interval_).mean() for table in (one, many)
    ]
    assert width[1] > 0.8 * width[0]


def test_rows_in_any_order_weights_and_position():
    table = SIM.annotations
    model = methods["bradley-terry"]().fit(table)
    twice = Annotations.concat([table, table])
    weighted = Annotations.from_arrays(
        table.items[table.item], table.annotators[table.annotator], table.classes[table.label],
        weight=np.full(len(table), 2.0), kind="pairs",
    )  # fmt: skip
    fits = [methods["bradley-terry"]().fit(one) for one in (twice, weighted)]
    np.testing.assert_allclose(fits[0].scores_, fits[1].scores_, atol=1e-8)
    np.testing.assert_allclose(model.predict_proba(table), model.posterior_)
    left_favoured = simulate_kind("pairs", 500, 20, bias=0.0, seed=1)
    assert abs(methods["bradley-terry"]().fit(left_favoured.annotations).crowd_answering_[1]) < 0.15


def test_things_that_cannot_be_ranked_together_are_said():
    split = Annotations.from_pairs(["a", "c"], ["b", "d"], ["left", "right"])
    with pytest.raises(AlternativesNotConnected) as caught:
        methods["bradley-terry"]().fit(split)
    assert caught.value.facts == {"things": 4, "groups": 2, "first_name": "'a'", "second_name": "'c'"}
    unbeaten = Annotations.from_pairs(["a", "b", "c"], ["b", "c", "b"], ["left", "left", "left"])
    assert methods["bradley-terry"]().fit(unbeaten).rank_[0] == 1
    with pytest.raises(OneGroupAlwaysWins):
        methods["bradley-terry"](**PLAIN).fit(unbeaten)
    with pytest.raises(UnseenAlternative) as caught:
        methods["bradley-terry"]().fit(unbeaten).predict(Annotations.from_pairs(["a"], ["z"], ["tie"]))
    assert caught.value.facts == {"alternative": "'z'", "fitted": 3}
    with pytest.raises(OutcomesNotUsed):
        methods["bradley-terry"]().fit(unbeaten, gold=np.zeros(3, int))
