"""Comparing methods for labels that are no classes: what is hidden, how it is scored, what simple methods expect."""

import numpy as np
import pytest

import dissensus as dz
from dissensus import Annotations
from dissensus.exceptions import DataError
from dissensus.models.methods.bradley_terry import BradleyTerry, check_connected
from dissensus.questions import scoring
from dissensus.questions.exceptions import EveryComparisonNeeded, NoGoldOfPairs
from dissensus.table.simulate import simulate_kind
from tables import drawn

KINDS = ("numbers", "pairs", "sets", "spans", "objects")


def edits(one, other):
    """The edit distance of two lists of words, as a share of the longer, by the textbook's table."""
    cost = np.zeros((len(one) + 1, len(other) + 1))
    cost[:, 0], cost[0] = range(len(one) + 1), range(len(other) + 1)
    for i, a in enumerate(one, 1):
        for k, b in enumerate(other, 1):
            cost[i, k] = min(cost[i - 1, k] + 1, cost[i, k - 1] + 1, cost[i - 1, k - 1] + (a != b))
    return cost[-1, -1] / max(len(one), len(other), 1)


def literal_score(kind, fitted, rest, row):
    label, p = rest.label[row], None
    if kind == "numbers":
        return -abs(fitted.expected_labels(rest)[row] - rest.values[label])
    if kind == "objects":
        answer = fitted.predict()[fitted.items_.tolist().index(rest.items[rest.item[row]])]
        return -edits(str(answer).split(), str(rest.classes[label]).split())
    p = fitted.predict_annotations(rest)[row]
    if kind == "sets":
        ticked = str(rest.classes[label]).split("|")
        return sum(np.log(p[c] if name in ticked else 1 - p[c]) for c, name in enumerate(fitted.options_))
    return np.log(p[label])


@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_those_of_a_loop_over_hidden_rows(kind):
    table = drawn(kind)
    mask = scoring.SCORING_BY_LABEL_TYPE[kind].choose_hidden_rows(table, 0.2, np.random.default_rng([0, 0]))
    rest, fitted = table.select(rows=mask), dz.methods[dz.models.base.default_method(kind)]()
    fitted.fit(table.select(rows=~mask))
    some = np.arange(len(rest))[:: max(1, len(rest) // 40)]
    found = scoring.SCORING_BY_LABEL_TYPE[kind].score_rows(fitted, rest)
    np.testing.assert_allclose(found[some], [literal_score(kind, fitted, rest, row) for row in some], rtol=1e-9)
    compared = dz.compare(table, [dz.methods.get_name(type(fitted))], splits=1, resamples=20)
    assert next(iter(compared)).score.value == pytest.approx(found.mean())


def test_numbers_simple_methods_are_numpys_mean_and_median():
    table = drawn("numbers")
    for method, reference in ((scoring.MeanNumber, np.mean), (scoring.MedianNumber, np.median)):
        expected = method().fit(table).expected_labels(table)
        literal = [reference(table.values[table.label[table.item == item]]) for item in table.item]
        np.testing.assert_allclose(expected, literal)


def test_all_things_stay_connected_where_comparisons_are_hidden():
    table = Annotations.from_pairs(list("abcda"), list("bcdea"[:4] + "c"), ["left"] * 5)
    for seed in range(20):
        mask = scoring.select_held_out_comparisons(table, 0.9, np.random.default_rng(seed))
        kept = table.select(rows=~mask)
        assert mask.sum() == 1
        assert kept.alternatives.names.size >= 5
        check_connected(kept.alternatives.names, BradleyTerry().extract_comparisons(kept), strongly=False)
    chain = Annotations.from_pairs(["a", "b"], ["b", "c"], ["left", "left"])
    with pytest.raises(EveryComparisonNeeded):
        dz.compare(chain)


def test_readings_of_spans_are_hidden_whole():
    table = drawn("spans")
    mask = scoring.select_held_out_readings(table, 0.3, np.random.default_rng(0))
    reading = table.sequences.document[table.item] * table.n_annotators + table.annotator
    assert set(reading[mask]).isdisjoint(reading[~mask])
    assert set(table.sequences.document[table.item][~mask]) == set(range(table.sequences.documents.size))


def test_better_methods_of_every_kind_come_first_and_gold_stands_beside():
    sim = simulate_kind("numbers", 200, 12, seed=1)
    found = dz.compare(sim.annotations, gold=sim.truth, splits=1, resamples=100)
    assert found.best == "gaussian"
    said = next(found.findings())
    assert (said.other_method, said.baseline) == ("mean", True)
    row = found.rows()[0]
    assert row["mean_absolute_error_low"] < row["mean_absolute_error"] < row["mean_absolute_error_high"]
    error = np.abs(dz.methods["gaussian"]().fit(sim.annotations).predict() - sim.truth).mean()
    assert row["gold_error"] == pytest.approx(error)
    assert {one.method for one in found} == {"gaussian", "mean", "median"}
    with pytest.raises(DataError):
        dz.compare(drawn("sets"), ["gaussian"])
    with pytest.raises(NoGoldOfPairs):
        dz.compare(drawn("pairs"), gold=np.zeros(3, int))


@pytest.mark.parametrize("kind", ["sets", "spans", "objects"])
def test_gold_of_the_answers_themselves_is_met_exactly(kind):
    table = drawn(kind)
    method = dz.models.base.default_method(kind)
    said = dz.methods[method]().fit(table).predict()
    table = table.with_added_classes(said) if kind != "spans" else table
    gold = table.gold_codes(table.items, said)
    best = dz.compare(table, [method], gold=gold, splits=1, resamples=10).rows()[0]
    name = scoring.SCORING_BY_LABEL_TYPE[kind].measure.gold_name
    assert best[name] == (0 if kind == "objects" else 1)
