"""Predictions of anybody are judged by the library's own scores, on the same items and resamples."""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from sklearn import metrics

import dissensus as dz
from dissensus import evaluation as ev
from dissensus.exceptions import DataError, MissingColumn
from dissensus.questions import evaluate as module
from dissensus.questions.exceptions import (
    ClassesNotNumbers,
    NoPredictedColumn,
    NoPredictionRows,
    NoPredictions,
    NothingToEvaluate,
    PredictionShapeMismatch,
    RepeatedPrediction,
)
from dissensus.questions.findings import MissingPredictions, TiedLabels
from dissensus.questions.predictions import AlignedPredictions, Predictions, convert_names_to_text
from dissensus.questions.scoring import log_likelihood
from dissensus.table.simulate import simulate
from found import kinds

K, CLASSES = 3, ["no", "perhaps", "yes"]


@pytest.fixture(scope="module")
def crowd():
    """70 items with 0 to 4 labels by 9 people, gold of most, a model and a better one."""
    data = simulate(70, 9, K, redundancy=4, seed=3)
    drawn = data.annotations.select(rows=np.random.default_rng(0).random(len(data.annotations)) < 0.4)
    table = dz.Annotations.from_arrays(
        drawn.items[drawn.item], drawn.annotators[drawn.annotator], np.array(CLASSES, object)[drawn.label],
        CLASSES, items=drawn.items,
    )  # fmt: skip
    rng = np.random.default_rng(1)
    gold = np.where(rng.random(70) < 0.9, data.truth, -1)
    first = rng.dirichlet(np.ones(K), 70)
    second = (first + np.eye(K)[data.truth]) / 2
    return table, gold, first, second


def value(found, score, name="predictions"):
    return found[score].values[name].value


def frame(table, proba, **more):
    return pa.table({"item": table.items, **more, **{f"p_{c}": proba[:, k] for k, c in enumerate(CLASSES)}})


def test_scores_are_those_of_evaluation(crowd):
    table, gold, first, _ = crowd
    found = dz.evaluate(first, table, gold=gold, scale="ordinal", resamples=20)
    voted = table.votes().any(axis=1)
    y, h = table.soft_labels()[voted], first[voted]
    best, rows = first.argmax(axis=1), first[table.item]
    expected = {
        "accuracy": ev.accuracy(gold, best),
        "balanced_accuracy": ev.balanced_accuracy(gold, best),
        "macro_f1": ev.macro_f1(gold, best),
        **ev.soft_scores(y, h),
        "wasserstein": ev.wasserstein(y, h).mean(),
        "error_rate": ev.error_rate(table, rows).mean(),
        "absolute_distance": ev.absolute_distance(table, rows).mean(),
        "log_likelihood": log_likelihood(table, rows)[0].mean(),
        "expected_calibration_error": ev.expected_calibration_error(gold, first),
        "log_loss": ev.log_loss(gold, first),
    }
    assert {one.name: value(found, one.name) for one in found} == pytest.approx(expected)
    assert [one.kind for one in found][:: len(found.scores) - 1] == ["hard", "calibration"]
    assert (found["accuracy"].items, found["brier"].items) == ((gold >= 0).sum(), voted.sum())
    assert all(
        one.values["predictions"].low <= value(found, one.name) <= one.values["predictions"].high for one in found
    )


def test_without_gold_the_clear_majority_and_the_votes_judge(crowd):
    table, _, first, _ = crowd
    found = dz.evaluate(first, table, resamples=0)
    votes = table.votes()
    top = votes == votes.max(axis=1, keepdims=True)
    clear = votes.any(axis=1) & (top.sum(axis=1) == 1)
    assert found["accuracy"].items == clear.sum() < votes.any(axis=1).sum()
    assert value(found, "accuracy") == pytest.approx((first.argmax(axis=1) == top.argmax(axis=1))[clear].mean())
    voted = votes.any(axis=1)
    expected = ev.expected_calibration_error(table.soft_labels()[voted], first[voted])
    assert value(found, "expected_calibration_error") == pytest.approx(expected)
    assert "log_loss" not in [one.name for one in found]
    assert found.reference == "the most frequent label"
    assert type(found.skipped[0]) is TiedLabels
    tie = dz.evaluate({"p": [[0.5, 0.5]]}, dz.Annotations.from_arrays([1, 1], ["x", "y"], ["a", "b"]))
    assert [one.items for one in tie.skipped] == [1]
    assert tie.notes == (str(tie.skipped[0]),)


def test_where_all_are_right_accuracy_has_the_interval_that_aggregate_gives():
    table = dz.Annotations.from_arrays([*range(40)] * 2, [0] * 40 + [1] * 40, [0, 1] * 40)
    accuracy = dz.evaluate(table.votes() / 2, table)["accuracy"].values["predictions"]
    assert accuracy == ev.bootstrap(np.ones(40))
    assert accuracy.low == pytest.approx(0.912, abs=1e-3)


def test_differences_are_paired(crowd):
    table, gold, first, second = crowd
    found = dz.evaluate({"a": first, "b": second}, table, gold=gold, resamples=300, seed=5)
    voted = table.votes().any(axis=1)
    y = table.soft_labels()[voted]
    losses = [ev.cross_entropy(y, h[voted]) for h in (second, first)]
    paired = ev.paired_bootstrap(*losses, resamples=300, seed=5).mean
    difference = found["cross_entropy"].differences["b"]
    assert (difference.value, difference.low, difference.high) == pytest.approx((paired.value, paired.low, paired.high))
    assert found["cross_entropy"].verdict("b") == found["accuracy"].verdict("b") == "better"
    back = dz.evaluate({"b": second, "a": first}, table, gold=gold, resamples=300, seed=5)
    assert back["cross_entropy"].verdict("a") == back["accuracy"].verdict("a") == "worse"
    assert found["cross_entropy"].verdict("a") == ""
    assert "a" not in found["cross_entropy"].differences


def test_statistics_of_resampled_sums_are_the_scores_of_the_resample(crowd):
    """Literally: items are drawn, the whole score is computed again."""
    table, gold, first, _ = crowd
    given = Predictions.read(first, table)
    text = convert_names_to_text(table, [given])
    aligned = AlignedPredictions.align(given, text)
    parts = {
        name: one
        for one in module._Reference(text, gold, {"a": aligned}, None).compute_scores(aligned)
        for name in one.scores
    }
    known, voted = gold >= 0, table.votes().any(axis=1)
    gold, h, best = gold[known], first[known], first[known].argmax(axis=1)
    a, b = ev.entropy(table.soft_labels()[voted]), ev.entropy(first[voted])
    for seed in range(5):
        rng = np.random.default_rng(seed)
        at, of = (rng.integers(n, size=n) for n in (gold.size, a.size))
        again = {
            "macro_f1": metrics.f1_score(gold[at], best[at], average="macro"),
            "balanced_accuracy": metrics.balanced_accuracy_score(gold[at], best[at]),
            "accuracy": (gold == best)[at].mean(),
            "expected_calibration_error": ev.expected_calibration_error(gold[at], h[at]),
            "entropy_correlation": np.corrcoef(a[of], b[of])[0, 1],
        }
        for name, expected in again.items():
            drawn = parts[name].stats.toarray()[of if name == "entropy_correlation" else at]
            assert parts[name].scores[name](drawn.sum(axis=0)[None])[0] == pytest.approx(expected)


def test_a_constant_entropy_has_no_correlation(crowd):
    table, _, first, _ = crowd
    found = dz.evaluate(np.full_like(first, 1 / K), table, resamples=10)
    assert np.isnan(value(found, "entropy_correlation"))


def shuffled(data):
    return data.take(np.random.default_rng(0).permutation(len(data)))


FORMS = {
    "p_ columns": lambda t, p: frame(t, p),
    "class columns": lambda t, p: pa.table({"id": t.items, **dict(zip(CLASSES, p.T, strict=True))}),
    "in any order": lambda t, p: shuffled(frame(t, p)),
    "pandas": lambda t, p: frame(t, p).to_pandas(),
    "items as text": lambda t, p: frame(t, p).set_column(0, "task_id", pa.array(map(str, t.items))),
    "more items": lambda t, p: pa.concat_tables([frame(t, p), frame(t, p).slice(0, 1).set_column(0, "item", [[999]])]),
}


@pytest.mark.parametrize("form", FORMS)
def test_any_form_of_the_same_probabilities_has_the_same_scores(crowd, form):
    table, gold, first, _ = crowd
    expected = dz.evaluate(first, table, gold=gold, resamples=10)
    found = dz.evaluate(FORMS[form](table, first), table, gold=gold, resamples=10)
    assert found.rows() == expected.rows() or repr(found.rows()) == repr(expected.rows())  # NaN differs from itself
    assert found.skipped == ()


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_files_are_read_and_labels_have_hard_scores_only(crowd, tmp_path, suffix):
    from dissensus.table.io import write_frame

    table, gold, first, _ = crowd
    names = np.array(CLASSES, object)[first.argmax(axis=1)]
    write_frame({"item": table.items, "prediction": names, "label": names[::-1]}, tmp_path / f"a.{suffix}")
    found = dz.evaluate(tmp_path / f"a.{suffix}", table, gold=gold, resamples=0)
    assert {one.kind for one in found} == {"hard", "perspectivist"}
    assert value(found, "accuracy") == pytest.approx(ev.accuracy(gold, first.argmax(axis=1)))
    assert value(found, "error_rate") == pytest.approx(ev.error_rate(table, first[table.item]).mean())
    other = Predictions.read(tmp_path / f"a.{suffix}", table, "label")
    assert value(dz.evaluate(other, table, gold=gold, resamples=0), "accuracy") == pytest.approx(
        ev.accuracy(gold, first.argmax(axis=1)[::-1])
    )


def test_a_label_beside_probabilities_is_the_answer(crowd):
    table, gold, first, _ = crowd
    names = np.array(CLASSES, object)[np.maximum(gold, 0)]
    found = dz.evaluate(frame(table, first, label=names), table, gold=gold, scale="ordinal", resamples=0)
    assert value(found, "accuracy") == 1
    assert value(found, "error_rate") == pytest.approx(ev.error_rate(table, np.maximum(gold, 0)[table.item]).mean())
    assert value(found, "absolute_distance") == pytest.approx(ev.absolute_distance(table, first[table.item]).mean())
    assert value(found, "log_loss") == pytest.approx(ev.log_loss(gold, first))


@pytest.mark.parametrize("labels", [False, True])
def test_predictions_of_annotators(crowd, labels):
    table, gold, _, _ = crowd
    rows = np.random.default_rng(2).dirichlet(np.ones(K), len(table))
    if labels:
        rows = np.eye(K)[rows.argmax(axis=1)]
    who = {"annotator": table.annotators[table.annotator]}
    data = {"item": table.items[table.item], **who}
    data |= (
        {"label": table.classes[rows.argmax(axis=1)]}
        if labels
        else {f"p_{c}": rows[:, k] for k, c in enumerate(CLASSES)}
    )
    found = dz.evaluate(shuffled(pa.table(data)), table, gold=gold, resamples=10)
    assert value(found, "error_rate") == pytest.approx(ev.error_rate(table, rows).mean())
    voted = np.flatnonzero(table.votes().any(axis=1))
    mean = np.stack([rows[table.item == i].mean(axis=0) for i in voted])
    assert value(found, "manhattan") == pytest.approx(ev.manhattan(table.soft_labels()[voted], mean).mean())
    assert value(found, "accuracy") == pytest.approx(ev.expected_accuracy(gold[voted], mean))
    assert MissingPredictions in kinds(found.skipped)  # items with gold that no annotator labelled
    if labels:
        assert value(found, "cross_entropy") == np.inf
        assert np.isnan(found["cross_entropy"].values["predictions"].low)
        assert {"log_loss", "log_likelihood"}.isdisjoint(one.name for one in found)
    else:
        assert value(found, "log_likelihood") == pytest.approx(log_likelihood(table, rows)[0].mean())


def test_all_are_judged_by_what_all_predict(crowd):
    table, gold, first, second = crowd
    few = frame(table, second).slice(10)
    found = dz.evaluate({"all": first, "few": few}, table, gold=gold, resamples=10)
    (one,) = (one for one in found.skipped if type(one) is MissingPredictions)
    assert one.facts == {"predictions": "few", "missing": 9, "n": 68, "unit": "items", "item": "0"}
    part = table.select(items=table.items[10:])
    alone = dz.evaluate(first[10:], part, gold=gold[10:], resamples=10)
    assert [value(found, one.name, "all") for one in found] == pytest.approx([value(alone, one.name) for one in alone])


def test_annotations_that_one_does_not_predict_judge_nobody(crowd):
    table, gold, first, _ = crowd
    rows = frame(table, first).take(table.item).append_column("annotator", pa.array(table.annotators[table.annotator]))
    strangers = frame(table, first[::-1]).append_column("annotator", pa.array(["nobody"] * 70))
    rows = pa.concat_tables(
        [
            rows.slice(0, 40).set_column(4, "annotator", pa.array(map(str, rows["annotator"][:40].to_pylist()))),
            strangers,
        ]
    )
    found = dz.evaluate({"items": first, "rows": rows}, table, gold=gold, resamples=0)
    part = table.select(rows=np.arange(40))
    assert value(found, "error_rate", "items") == pytest.approx(ev.error_rate(part, first[part.item]).mean())
    assert value(found, "error_rate", "rows") == pytest.approx(value(found, "error_rate", "items"))


def test_a_class_that_only_predictions_name_is_a_class(crowd):
    table, gold, first, _ = crowd
    never = pa.table(
        {"item": table.items, "p_maybe": np.full(70, 0.5), **{f"p_{c}": first[:, k] / 2 for k, c in enumerate(CLASSES)}}
    )
    found = dz.evaluate(never, table, gold=gold, resamples=0)
    assert value(found, "log_loss") == pytest.approx(ev.log_loss(gold, first) + np.log(2))
    assert value(found, "accuracy") < 0.1  # "maybe" is always most probable, or tied with what is certain


def test_gold_alone_judges(crowd):
    table, gold, first, _ = crowd
    found = dz.evaluate(first, table.select(rows=[]), gold=gold, resamples=0)
    assert {one.kind for one in found} == {"hard", "calibration"}
    assert value(found, "log_loss") == pytest.approx(ev.log_loss(gold, first))


def test_an_interval_scale_takes_places_from_names():
    table = dz.Annotations.from_arrays([0, 0, 1], [0, 1, 0], [1, 5, 2])
    h = np.array([[0.2, 0.3, 0.5], [1.0, 0.0, 0.0]])
    found = dz.evaluate(h, table, scale="interval", resamples=0)
    expected = ev.wasserstein(table.soft_labels(), h, positions=[1, 2, 5]).mean()
    assert value(found, "wasserstein") == pytest.approx(expected)
    named = dz.Annotations.from_arrays([0, 0], [0, 1], ["a", "b"])
    with pytest.raises(ClassesNotNumbers) as caught:
        dz.evaluate([[0.5, 0.5]], named, scale="interval")
    assert caught.value.classes == ("a", "b")


def test_a_frame_has_one_row_per_score_and_predictions(crowd):
    table, gold, first, second = crowd
    found = dz.evaluate({"a": first, "b": second}, table, gold=gold, resamples=5)
    rows = found.to_frame()
    assert len(rows) == 2 * len(found.scores)
    assert set(rows["predictions"]) == {"a", "b"}
    assert rows["difference"].isna().sum() == len(found.scores)


BAD = {
    "twice": (lambda t, p: pa.concat_tables([frame(t, p)] * 2), RepeatedPrediction, {"item": "0", "n": 2}),
    "no item": (lambda t, p: pa.table({"x": [1], "label": ["no"]}), MissingColumn, None),
    "nothing": (lambda t, p: pa.table({"item": [1], "x": ["no"]}), NoPredictedColumn, None),
    "sums": (lambda t, p: frame(t, 2 * p), DataError, None),
    "other items": (lambda t, p: pa.table({"item": [-5], "label": ["no"]}), NothingToEvaluate, {}),
    "no row": (lambda t, p: frame(t, p).slice(0, 0), NoPredictionRows, {}),
    "shape": (lambda t, p: p[:5], PredictionShapeMismatch, {"shape": (5, 3), "items": 70}),
    "none": (lambda t, p: {}, NoPredictions, {}),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_evaluated_is_an_error_with_facts(crowd, case):
    table, gold, first, _ = crowd
    make, error, facts = BAD[case]
    with pytest.raises(error) as caught:
        dz.evaluate(make(table, first), table, gold=gold, resamples=0)
    assert facts in (None, caught.value.facts)


def test_the_order_of_items_in_a_table_changes_nothing(crowd):
    table, gold, first, _ = crowd
    make = partial(dz.evaluate, table=table, gold=gold, resamples=10, seed=1)
    assert repr(make(frame(table, first)).rows()) == repr(make(shuffled(frame(table, first))).rows())
