import copy
import dataclasses
import json
import os
import signal
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import softmax
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from torch import nn

import dissensus as dz
from crowds import blobs
from dissensus.common.exceptions import OutOfRange
from dissensus.evaluation.exceptions import NoGoldLabels
from dissensus.exceptions import BadParameter, UnknownName
from dissensus.features.exceptions import SingleString
from dissensus.learning import LIA, CrowdClassifier
from dissensus.learning.encoders import MLP, Identity, encoders
from dissensus.learning.exceptions import (
    CheckpointOfAnotherRun,
    CodesOutOfRange,
    DamagedModelFile,
    FeatureCountDiffers,
    FeatureNamesDiffer,
    FeatureNotFinite,
    FileVersionDiffers,
    InvalidTargets,
    ModelFileMissing,
    NoLabelledItems,
    RowCountDiffers,
    SeedNeeded,
    UnknownLabel,
    UnnamedRows,
)
from dissensus.learning.objectives import Hard, Soft, objectives
from dissensus.learning.run import parameter_groups
from dissensus.learning.storage import read_tree, write_tree
from dissensus.learning.validation import Validation
from dissensus.models.exceptions import ModelNotFitted
from faults import raised
from learning.elsewhere import checkpointed
from tables import random_table

FILE = CrowdClassifier.file_name
OBJECTIVES = [name for name in objectives if name != "auto"]  # auto chooses for itself: test_auto.py
MIXED = [name for name in OBJECTIVES if name != "annot-mix"]  # which mixes annotations, not items
WITHOUT_CHANCE = {"annot-mix": {"annotation_mixup": None, "dropout": 0.0}, "ldl-nm": {"dropout": 0.0}}


def quick(**keywords):
    return CrowdClassifier(
        **{
            "encoder": MLP(hidden=(16,), dropout=0.1),
            "objective": "soft",
            "epochs": 8,
            "batch_size": 16,
            "device": "cpu",
            **keywords,
        }
    )


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_objective_learns(objective):
    table, X, truth = blobs(120)
    model = quick(objective=objective, epochs=30).fit(table, X)
    assert model.score(X, truth) > 0.9
    assert model.posterior_.shape == model.proba_.shape == (120, 3)
    np.testing.assert_allclose(model.posterior_.sum(axis=1), 1)
    np.testing.assert_allclose(model.predict_proba(X), model.proba_, atol=1e-6)
    assert (model.posterior_.argmax(axis=1) == truth).mean() > 0.9
    assert model.trace_.shape == (30,)
    assert model.trace_[-1] < model.trace_[0]
    assert model.reliability_.shape == (7,)
    proba = model.predict_annotator_proba(X[:4], ["w3", "nobody", "w0"])
    assert proba.shape == (4, 3, 3)
    np.testing.assert_allclose(proba.sum(axis=2), 1)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_order_of_items_and_rows_changes_nothing_that_is_learnt_without_chance(objective):
    """Full batches and no dropout: only rounding may differ."""
    table, X, _ = blobs(40)
    frame = table.to_arrow().to_pandas()
    names = {name: f"{hash(name) % 1000:03d}-{name}" for name in table.items}
    other = frame.assign(item=frame["item"].map(names)).sample(frac=1, random_state=1)
    again = dz.Annotations.from_frame(other, classes=table.classes.tolist())
    place = {name: i for i, name in enumerate(table.items)}
    back = {new: old for old, new in names.items()}
    order = [place[back[name]] for name in again.items]
    fixed = objectives[objective](**WITHOUT_CHANCE.get(objective, {}))
    keywords = {"encoder": MLP(hidden=(8,), dropout=0.0), "objective": fixed, "batch_size": 40, "epochs": 5}
    first = quick(**keywords).fit(table, X)
    second = quick(**keywords).fit(again, X[order])
    np.testing.assert_allclose(first.proba_[order], second.proba_, atol=1e-4)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_many_items_without_annotations_are_predicted(objective):
    table, X, _ = blobs(60)
    model = quick(objective=objective, epochs=1, batch_size=4).fit(table.select(rows=table.item < 20), X)
    np.testing.assert_allclose(model.posterior_.sum(axis=1), 1)  # chunks of 16 items, the last without any label


def test_a_linear_model_of_gold_is_logistic_regression():
    table, X, truth = blobs(150, noise=0.6)
    model = CrowdClassifier(
        encoder=Identity(), objective=Hard(labels="gold"), epochs=800, batch_size=150, weight_decay=1 / 150,
        learning_rate=0.05, device="cpu",
    ).fit(table, X, gold=truth)  # fmt: skip
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    # scikit-learn leaves the intercept out of its penalty; torch does not, so it is a feature here
    reference = LogisticRegression(C=1.0, fit_intercept=False, max_iter=5000, tol=1e-8).fit(
        np.column_stack([scaled, np.ones(150)]), truth
    )
    expected = reference.predict_proba(np.column_stack([scaled, np.ones(150)]))
    np.testing.assert_allclose(model.proba_, expected, atol=2e-3)


@pytest.mark.parametrize(
    ("objective", "mixup"), [(name, None) for name in OBJECTIVES] + [(name, 0.3) for name in MIXED]
)
def test_the_same_seed_gives_the_same_bits(objective, mixup):
    table, X, _ = blobs()
    first, second, third = (
        quick(objective=objective, mixup=mixup, seed=seed).fit(table, X).proba_ for seed in (4, 4, 5)
    )
    assert np.array_equal(first, second)
    assert not np.array_equal(first, third)


def test_a_compiled_encoder_gives_the_same(monkeypatch):
    table, X, _ = blobs()
    compiled = []

    def compile_(call, *_, **__):
        compiled.append(call.__self__)
        return lambda *args, **kwargs: compiled.append("called") or call(*args, **kwargs)

    monkeypatch.setattr(torch, "compile", compile_)
    model = quick(compile=True).fit(table, X)
    assert compiled[:2] == [model.network_.encoder, "called"]
    assert compiled.count("called") == 8 * 4 + 1  # steps, and what is concluded
    np.testing.assert_array_equal(model.proba_, quick().fit(table, X).proba_)


@pytest.mark.parametrize(("objective", "metric"), [("soft", "cross-entropy"), ("crowd-layer", "accuracy")])
def test_the_objective_says_what_the_best_epoch_is_chosen_by(objective, metric):
    table, X, _ = blobs(100)
    model = quick(objective=objective).fit(table, X, validation=0.3)
    values = [entry[metric] * (1 if metric == "accuracy" else -1) for entry in model.history_]
    assert model.best_epoch_ == len(values) - int(np.argmax(values[::-1]))  # of equal ones the last
    assert model.monitor_ == metric


def test_a_bar_follows_the_epochs_unless_the_caller_does(monkeypatch):
    table, X, _ = blobs()
    seen = []

    @contextmanager
    def fake(text, total):
        seen.append((text, total))
        yield lambda epoch, loss: seen.append(epoch)

    monkeypatch.setattr("dissensus.learning.run.show_progress", fake)
    quick(epochs=3).fit(table, X)
    assert seen == [("training", 3), 1, 2, 3]
    own = []
    quick(epochs=2).fit(table, X, on_step=lambda epoch, loss: own.append(epoch))
    assert (len(seen), own) == (4, [1, 2])


def test_fit_leaves_its_parts_as_they_were():
    table, X, _ = blobs()
    encoder, objective = MLP(hidden=(8,)), Soft()
    quick(encoder=encoder, objective=objective).fit(table, X)
    assert set(vars(encoder)) == {"hidden", "dropout", "scale"}
    assert set(vars(objective)) == {"labels", "divergence", "weight"}


def test_scikit_learn_can_clone_and_set():
    model = quick(objective=Soft(weight="votes"))
    other = clone(model)
    assert other.get_params(deep=False).keys() == model.get_params(deep=False).keys()
    assert other.get_params()["objective__weight"] == "votes"
    other.set_params(encoder__dropout=0.4, epochs=3)
    assert (other.encoder.dropout, other.epochs, model.encoder.dropout) == (0.4, 3, 0.1)
    with pytest.raises(BadParameter):
        CrowdClassifier(encoder="mlp").set_params(encoder__dropout=0.1)


# Mixup ----------------------------------------------------------------------------------------------------------------


def test_a_mixed_batch_is_the_literal_mixture():
    from dissensus.learning.network import Network, TrainingData

    table, X, _ = blobs(6)
    encoder, objective = MLP(hidden=(4,), dropout=0.0).fit(X), Soft().fit(table, None, 0)
    network = Network(encoder.module(), objective.head(encoder.branch, encoder.width), objective, mixes_inputs=True)
    data = TrainingData(encoder.prepare(X), objective.targets(), mixup=0.5)
    rows = torch.tensor([5, 0, 2])
    inputs, targets, mix = data.take(rows)
    x, weight = inputs["x"], float(mix[0])
    other = rows[mix[1]]
    z = network.encoder(weight * x + (1 - weight) * data.inputs.columns["x"][other])
    target = data.targets.columns["target"]
    log_q = torch.log_softmax(network.head(z), dim=1)
    expected = 0.0
    for b in range(3):
        for P, share in ((target[rows[b]], weight), (target[other[b]], 1 - weight)):
            expected += share * float(torch.special.xlogy(P, P).sum() - (P * log_q[b].detach()).sum())
    assert float(network(inputs, targets, mix).detach()) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("objective", MIXED)
def test_mixup_under_mixed_precision(objective):
    table, X, _ = blobs()
    model = quick(objective=objective, mixup=0.5, precision="bf16-mixed", sam=0.05, clip=1.0, accumulate=2, epochs=2)
    assert np.isfinite(model.fit(table, X, validation=0.2).proba_).all()


def test_mixup_must_be_positive():
    table, X, _ = blobs()
    with raised(BadParameter, keyword="mixup"):
        quick(mixup=0.0).fit(table, X)


# Validation -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["share", "names", "codes", "table"])
def test_validation_in_every_form(kind):
    table, X, _ = blobs(100)
    others, Z, known = blobs(30, seed=1)
    validation = {
        "share": 0.25,
        "names": (Z, np.array(list("abc"))[known]),
        "codes": (Z, np.where(known == 0, -1, known)),
        "table": (Z, others),
    }[kind]
    model = quick(patience=3, epochs=30, monitor="accuracy").fit(table, X, validation=validation)
    assert set(model.history_[0]) == {"epoch", "loss", "seconds", "cross-entropy", "accuracy", "macro-f1"}
    best = max(entry["accuracy"] for entry in model.history_)
    assert model.history_[model.best_epoch_ - 1]["accuracy"] == best
    assert model.held_out_.sum() == (25 if kind == "share" else 0)


def test_held_out_items_do_not_teach():
    table, X, _ = blobs(100)
    model = quick(epochs=1).fit(table, X, validation=0.25)
    hidden = model.held_out_
    changed = X.copy()
    changed[hidden] = 1000.0
    assert torch.equal(
        torch.cat([p.reshape(-1) for p in model.network_.parameters()]),
        torch.cat([p.reshape(-1) for p in quick(epochs=1).fit(table, changed, validation=0.25).network_.parameters()]),
    )


def test_validation_metrics_are_those_of_scikit_learn():
    class Fixed(nn.Module):
        pass

    rng = np.random.default_rng(0)
    table, X, truth = blobs(50, seed=3)
    model = quick(epochs=1).fit(table, X)
    columns = model.encoder_.prepare(X)
    found = Validation(columns, np.arange(50), np.eye(3)[truth], 16)(model.network_)
    proba = model.predict_proba(X)
    assert found["accuracy"] == pytest.approx((proba.argmax(axis=1) == truth).mean())
    assert found["macro-f1"] == pytest.approx(f1_score(truth, proba.argmax(axis=1), average="macro"))
    assert found["cross-entropy"] == pytest.approx(-np.log(proba[np.arange(50), truth]).mean(), rel=1e-5)
    votes = rng.dirichlet(np.ones(3), size=50)
    soft = Validation(columns, np.arange(50), votes, 16)(model.network_)
    assert soft["cross-entropy"] == pytest.approx(-(votes * np.log(proba)).sum(axis=1).mean(), rel=1e-5)


@pytest.mark.parametrize(
    ("validation", "error", "facts"),
    [
        (1.5, BadParameter, {"keyword": "validation"}),
        ("x", OutOfRange, {"name": "validation"}),
        ((np.ones((2, 5)), ["a"]), RowCountDiffers, {"argument": "validation", "n_rows": 2, "n_entries": 1}),
        ((np.ones((1, 5)), ["z"]), UnknownLabel, {"label": "'z'", "n_classes": 3}),
        ((np.ones((1, 5)), [7]), CodesOutOfRange, {"highest": 2, "high": 7}),
        ((np.ones((1, 5)), [-1]), NoGoldLabels, {"items": 1}),
    ],
)
def test_validation_that_cannot_be_used_is_named(validation, error, facts):
    table, X, _ = blobs()
    with raised(error, **facts):
        quick().fit(table, X, validation=validation)


# What comes in --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_items_without_annotations_are_predicted_not_trained_on(objective):
    table, X, _ = blobs(60)
    bare = np.arange(60) % 5 == 0
    names = table.items
    part = table.select(rows=~bare[table.item])
    assert part.items.size == 60
    model = quick(objective=objective).fit(part, X)
    assert model.labelled_.sum() == 48
    moved = X.copy()
    moved[bare] += 100.0
    again = quick(objective=objective).fit(part, moved)
    np.testing.assert_array_equal(model.proba_[~bare], again.proba_[~bare])
    powered = model.proba_[bare] ** np.sqrt(model.power_)
    np.testing.assert_allclose(model.posterior_[bare], powered / powered.sum(axis=1, keepdims=True), atol=1e-6)
    assert names.size == model.items_.size


def test_an_input_that_cannot_be_used_is_named_by_its_own_row():
    table, X, _ = blobs(60)
    X[40, 1] = np.inf
    with raised(FeatureNotFinite, row=40, column=1):
        quick().fit(table.select(rows=table.item >= 30), X)


def test_a_table_with_nothing_to_learn_from():
    table, X, _ = blobs()
    with raised(NoLabelledItems, n_items=60):
        quick(objective="hard").fit(table.select(rows=[]), X)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_class_that_nobody_voted_for(objective):
    table, X, _ = blobs()
    wider = table.with_classes(np.array(["a", "b", "c", "never"], object))
    model = quick(objective=objective, epochs=40).fit(wider, X)
    assert model.proba_.shape == (60, 4)
    assert np.isfinite(model.posterior_).all()
    assert (model.predict(X) != "never").mean() > 0.95


def test_features_that_are_no_numbers_are_named():
    table, X, _ = blobs()
    X[4, 2] = np.nan
    with raised(FeatureNotFinite, row=4, column=2):
        quick().fit(table, X)
    model = quick().fit(table, np.nan_to_num(X))
    with raised(FeatureNotFinite, row=0, column=1):
        model.predict([[0, np.nan, 0, 0, 0]])
    with raised(FeatureCountDiffers, n_features=2, expected=5):
        model.predict(np.zeros((3, 2)))


@pytest.mark.parametrize("n", [17, 33])
def test_one_item_in_the_last_batch(n):
    table, X, _ = blobs(n)
    assert np.isfinite(quick().fit(table, X).proba_).all()


def test_a_single_item_can_teach_and_be_predicted():
    table, X, _ = blobs(1)
    model = quick().fit(table, X)
    assert model.predict_proba(X[:1]).shape == (1, 3)
    assert model.predict_proba(X[:0]).shape == (0, 3)
    assert model.predict(X[:0]).shape == (0,)


def test_questions_about_no_annotators_and_labels_that_do_not_match():
    table, X, truth = blobs()
    for objective in ("soft", "crowd-layer"):
        model = quick(objective=objective, epochs=1).fit(table, X)
        assert model.predict_annotator_proba(X[:2], []).shape == (2, 0, 3)
        every_proba = model.predict_annotator_proba(X[:2], table.annotators)
        np.testing.assert_array_equal(model.predict_annotator_proba(X[:2], None), every_proba)
        with raised(SingleString, argument="annotators"):
            model.predict_annotator_proba(X[:2], "w1")
    with raised(RowCountDiffers, argument="score", n_rows=60, n_entries=59):
        model.score(X, truth[:59])
    with raised(NoGoldLabels, items=60):
        model.score(X, np.full(60, -1))


@pytest.mark.parametrize("keywords", [{"optimizer": {"name": "sgd"}, "learning_rate": 0.1}, {}])
def test_annotators_learn_at_a_rate_of_their_own(keywords):
    table, X, _ = blobs()
    model = quick(objective="crowd-layer", **keywords)
    model.fit(table, X)
    groups = parameter_groups(model, model.network_, model.encoder_)
    assert [group["lr"] for group in groups] == [keywords.get("learning_rate", 1e-3)] * 2 + [1e-2]
    model.set_params(head_learning_rate=0.02)
    groups = parameter_groups(model, model.network_, model.encoder_)
    assert [group["lr"] for group in groups][1:] == [0.02, 0.02]


def test_frames_are_taken_as_features():
    table, X, _ = blobs()
    frame = pd.DataFrame(X, columns=list("vwxyz"))
    np.testing.assert_array_equal(quick().fit(table, X).proba_, quick().fit(table, frame).proba_)


@pytest.mark.parametrize("of", [quick, lambda: quick(objective="auto"), lambda: LIA(steps=5)])
def test_columns_of_a_frame_are_found_by_name(of, tmp_path):
    table, X, _ = blobs(30)
    frame = pd.DataFrame(X, columns=list("vwxyz"))
    fitted = of().fit(table, frame.assign(item=table.items))
    for model in (fitted, type(fitted).load(fitted.save(tmp_path), device="cpu")):
        expected = model.predict_proba(frame)
        for other in (frame[list("zyxwv")], frame[list("xzvwy")].assign(item="?"), X):
            np.testing.assert_array_equal(model.predict_proba(other), expected)
        with raised(FeatureNamesDiffer, n_columns=5, missing=("v", "z"), unexpected=("q",)):
            model.predict_proba(frame[["w", "x", "y"]].assign(q=1.0))
        with raised(FeatureNamesDiffer, missing=(), unexpected=("q",)):
            model.predict(frame.assign(q=1.0))


def test_columns_without_names_are_taken_in_order():
    table, X, _ = blobs(30)
    model = quick().fit(table, X)
    np.testing.assert_array_equal(model.predict_proba(pd.DataFrame(X, columns=list("zyxwv"))), model.proba_)
    numbered = quick().fit(table, pd.DataFrame(X))
    np.testing.assert_array_equal(numbered.predict_proba(pd.DataFrame(X[:, :], columns=[4, 3, 2, 1, 0])), model.proba_)


def test_a_constant_feature_and_a_huge_one():
    table, X, _ = blobs()
    X = np.column_stack([X, np.full(60, 7.0), X[:, 0] * 1e6])
    assert np.isfinite(quick().fit(table, X).proba_).all()


@pytest.mark.parametrize(
    ("keywords", "error", "facts"),
    [
        ({"encoder": "mpl"}, UnknownName, {}),
        ({"objective": "crowdlayer"}, UnknownName, {}),
        ({"encoder": 3}, OutOfRange, {"name": "encoder", "value": 3}),
        ({"encoder": MLP(hidden=())}, BadParameter, {"keyword": "hidden"}),
        ({"seed": -1}, BadParameter, {"keyword": "seed"}),
        ({"learning_rate": -1.0}, BadParameter, {"keyword": "learning_rate"}),
        ({"head_learning_rate": "x"}, BadParameter, {"keyword": "head_learning_rate"}),
        ({"seed": 1.5}, BadParameter, {"keyword": "seed"}),
        ({"seed": None, "checkpoint": "c"}, SeedNeeded, {}),
        ({"mixup": float("inf")}, BadParameter, {"keyword": "mixup"}),
        ({"device": None}, BadParameter, {"keyword": "device"}),
    ],
)
def test_bad_keywords_are_named(keywords, error, facts):
    table, X, _ = blobs()
    with raised(error, **facts):
        quick(**keywords).fit(table, X)


def test_rows_that_do_not_match_are_named():
    table, X, _ = blobs()
    with raised(UnnamedRows, n_rows=59, n_items=60):
        quick().fit(table, X[:59])
    with raised(InvalidTargets, type_name="ndarray"):
        quick().fit(X, X)


def test_names_may_be_numbers():
    table, X, truth = blobs()
    named = dz.Annotations.from_arrays(table.item + 100, 7 * table.annotator, 10 * table.label, classes=[0, 10, 20])
    model, expected = quick().fit(named, X), quick().fit(table, X)
    np.testing.assert_array_equal(model.predict(X), 10 * np.searchsorted(table.classes, expected.predict(X)))
    for labels in (10 * truth, (10 * truth).astype(np.uint8), (10 * truth).tolist(), pd.Series(10 * truth)):
        assert model.score(X, labels) == expected.score(X, truth)
    np.testing.assert_array_equal(
        model.predict_annotator_proba(X, [14, 1, 0]), expected.predict_annotator_proba(X, ["w2", "nobody", "w0"])
    )
    with raised(UnknownLabel, label="30", n_classes=3):
        model.score(X[:2], [10, 30])


def test_nothing_is_answered_before_fit():
    for ask in (lambda m: m.predict(np.eye(5)), lambda m: m.save("x"), lambda m: m.to_frame(), lambda m: m.score(0, 0)):
        with pytest.raises(ModelNotFitted):
            ask(quick())


# Gold -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_known_gold_is_used(objective):
    table, X, truth = blobs(60, noise=0.95)
    keywords = {} if objective != "soft-task" else {"objective": objectives["soft-task"](weight=0.1)}
    model = quick(**{"objective": objective, "epochs": 40, **keywords})
    without = model.fit(table, X).score(X, truth)
    assert model.fit(table, X, gold=truth).score(X, truth) > without + 0.1
    assert (model.posterior_.argmax(axis=1) == truth).all()


# The posterior --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("objective", "power"), [("hard", 1), ("soft", 2)])
def test_the_posterior_is_the_literal_product(objective, power):
    table, X, _ = blobs(30)
    model = quick(objective=objective).fit(table, X)
    assert model.power_ == power
    for i in range(30):
        q = power * np.log(model.proba_[i])
        for row in range(table.item_ptr[i], table.item_ptr[i + 1]):
            q = q + np.log(model.confusion_[table.annotator[row], :, table.label[row]])
        np.testing.assert_allclose(model.posterior_[i], softmax(q / np.sqrt(power)), atol=1e-4)


@pytest.mark.parametrize("objective", ["hard", "soft"])
def test_without_a_model_of_annotators_they_are_known_by_their_confusion(objective):
    table, X, _ = blobs(100)
    model = quick(objective=objective).fit(table, X)
    assert (model.power_ > 1) == (objective == "soft")
    p = model.predict_proba(X) ** model.power_  # of votes, as sure as the class is
    p /= p.sum(axis=1, keepdims=True)
    expected = np.einsum("ic,cl->il", p, model.confusion_[2])
    np.testing.assert_allclose(model.predict_annotator_proba(X, ["w2"])[:, 0], expected, rtol=1e-5)
    unseen = np.einsum("ic,cl->il", p, model.population_confusion_)
    np.testing.assert_allclose(model.predict_annotator_proba(X, ["nobody"])[:, 0], unseen, rtol=1e-5)
    rows = np.einsum("nc,ncl->nl", p[table.item], model.confusion_[table.annotator])
    np.testing.assert_allclose(model.predict_annotations(table, X), rows, rtol=1e-5)


# On disk --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_saved_model_answers_as_before(tmp_path, objective):
    table, X, _ = blobs()
    model = quick(objective=objective, schedule={2: 0.5}, sam=None).fit(table, X, validation=0.2)
    model.save(tmp_path)
    again = CrowdClassifier.load(tmp_path, device="cpu")
    np.testing.assert_array_equal(model.predict_proba(X), again.predict_proba(X))
    np.testing.assert_array_equal(
        model.predict_annotator_proba(X, ["w1", "new"]), again.predict_annotator_proba(X, ["w1", "new"])
    )
    np.testing.assert_array_equal(model.posterior_, again.posterior_)
    assert model.history_ == again.history_
    assert model.to_frame("items").equals(again.to_frame("items"))
    assert again.get_params(deep=False)["schedule"] == {2: 0.5}
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_a_method_inside_an_objective_is_kept(tmp_path):
    table, X, _ = blobs()
    quick(objective=Hard(labels=dz.methods["dawid-skene"](smoothing=0.3))).fit(table, X).save(tmp_path)
    assert CrowdClassifier.load(tmp_path).objective.labels.smoothing == 0.3


def test_a_model_of_another_version_is_a_clear_error(tmp_path):
    table, X, _ = blobs()
    path = quick(objective="hard").fit(table, X).save(tmp_path)
    data = path.read_bytes()
    tree = read_tree(path, "trained model")
    tree["parameters"]["match_size"] = tree["parameters"].pop("batch_size")
    write_tree(path, tree, "trained model")
    with raised(FileVersionDiffers, path=path):
        CrowdClassifier.load(tmp_path)
    path.write_bytes(data[: len(data) // 2])
    with raised(DamagedModelFile, path=path):
        CrowdClassifier.load(tmp_path)
    with raised(ModelFileMissing, kind="trained model"):
        CrowdClassifier.load(tmp_path / "nowhere")


ALTERED = [  # place in the tree, what it becomes
    (("results", "reliability_"), lambda x: x[:-1]),
    (("results", "posterior_"), lambda x: x.T),
    (("results", "proba_"), lambda x: x * np.nan),
    (("results", "confusion_"), lambda x: x.astype("i8")),
    (("results", "classes_"), lambda x: None),
    (("parameters", "batch_size"), lambda x: 0),
    (("encoder", "learnt", "spread_"), lambda x: x[:1]),
    (("weights", "head.1.bias"), lambda x: x[:1]),
]


@pytest.fixture(scope="module")
def stored_tree(tmp_path_factory):
    table, X, _ = blobs()
    return read_tree(quick(objective="hard").fit(table, X).save(tmp_path_factory.mktemp("m")), "trained model")


@pytest.mark.parametrize(("place", "change"), ALTERED, ids=[one[0][-1] for one in ALTERED])
def test_a_model_whose_arrays_were_altered_is_refused(stored_tree, tmp_path, place, change):
    """Also where whoever altered it has written a digest that fits."""
    tree = copy.deepcopy(stored_tree)
    *above, last = place
    inside = tree
    for key in above:
        inside = inside[key]
    inside[last] = change(inside[last])
    write_tree(tmp_path / FILE, tree, "trained model")
    with raised(FileVersionDiffers) as caught:
        CrowdClassifier.load(tmp_path)
    assert last in caught.value.reason


def test_results_have_names():
    table, X, _ = blobs()
    model = quick().fit(table, X)
    assert model.to_frame("items").column_names == [
        "item",
        "label",
        "confidence",
        "model",
        "taught",
        "p_a",
        "p_b",
        "p_c",
    ]
    assert model.to_frame("annotators").column_names == ["annotator", "annotations", "reliability"]
    assert model.to_frame("history").num_rows == 8
    with raised(BadParameter, keyword="kind"):
        model.to_frame("confusion")


@pytest.mark.parametrize("change", ["gold", "validation", "names", "none"])
def test_a_checkpoint_is_taken_up_only_by_the_same_run(tmp_path, change):
    table, X, truth = blobs()
    model = quick(objective="hard", checkpoint=tmp_path, epochs=2)
    model.fit(table, X, gold=truth, validation=(X, truth))
    gold, validation = truth, (X, truth)
    if change == "gold":
        gold = (truth + 1) % 3
    elif change == "validation":
        validation = (X, (truth + 1) % 3)
    elif change == "names":
        table = dataclasses.replace(table, classes=np.array(["a", "b", "d"], object))
    if change == "none":
        model.fit(table, X, gold=gold, validation=validation)
    else:
        with raised(CheckpointOfAnotherRun, path=tmp_path / "checkpoint.safetensors"):
            model.fit(table, X, gold=gold, validation=validation)


def test_held_out_labels_have_no_part_in_what_is_taught():
    """Not even through a method that is fitted to all labels."""
    table, X, truth = blobs(100)
    hidden = quick(epochs=1).fit(table, X, validation=0.3).held_out_
    label = np.where(hidden[table.item], (table.label + 1) % 3, table.label).astype(table.label.dtype)
    other = dataclasses.replace(table, label=label)
    first, second = (
        quick(epochs=3, objective=Soft(labels="dawid-skene")).fit(t, X, gold=g, validation=0.3)
        for t, g in ((table, np.where(hidden, truth, -1)), (other, np.where(hidden, (truth + 1) % 3, -1)))
    )
    assert np.array_equal(first.held_out_, hidden)
    for a, b in zip(first.network_.parameters(), second.network_.parameters(), strict=True):
        assert (first.best_epoch_ == second.best_epoch_) <= torch.equal(a, b)
    assert [e["loss"] for e in first.history_] == [e["loss"] for e in second.history_]


# Killed ---------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_killed_by_a_signal_and_started_again_gives_the_same_weights(tmp_path):
    script = """
        import os, signal, sys
        from learning.elsewhere import checkpointed

        checkpointed(sys.argv[1], lambda epoch, loss: epoch == 4 and os.kill(os.getpid(), signal.SIGKILL))
    """
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])}
    command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path)]
    assert subprocess.run(command, check=False, env=environment).returncode == -signal.SIGKILL
    steps = []
    first, second = (
        checkpointed(folder, lambda epoch, loss: steps.append(epoch)).network_.state_dict()
        for folder in (tmp_path, None)
    )
    assert steps == [4, 5, 6, 1, 2, 3, 4, 5, 6]
    assert all(torch.equal(first[name], second[name]) for name in second)


def test_every_encoder_and_objective_is_listed_with_a_summary():
    for registry in (encoders, objectives):
        for name, entry in registry.entries():
            assert name == name.lower()
            assert entry.summary
            json.dumps(entry.facts)


def test_features_divided_by_their_largest_size():
    X = np.array([[1.0, -4.0, 0.0], [-2.0, 3.0, 0.0]], np.float32)
    encoder = MLP(scale="max").fit(X)
    np.testing.assert_allclose(encoder.prepare(X).columns["x"].numpy(), [[0.5, -1, 0], [-1, 0.75, 0]])
    np.testing.assert_allclose(encoder.prepare(2 * X).columns["x"].numpy(), [[1, -2, 0], [-2, 1.5, 0]])
    whole = MLP(scale="all").fit(X).prepare(X).columns["x"].numpy()  # spreads 1.5, 3.5 and 0: one number for all
    np.testing.assert_allclose(whole, np.array([[1.5, -3.5, 0], [-1.5, 3.5, 0]]) / np.sqrt((1.5**2 + 3.5**2) / 3))
    with raised(BadParameter, keyword="scale"):
        MLP(scale="min").fit(X)


def test_fits_at_once_in_threads_are_those_made_alone():
    """torch has one generator for the whole process; dropout and shuffling draw from it."""
    table = random_table(3, n=60)
    x = np.random.default_rng(0).standard_normal((table.n_items, 5)).astype(np.float32)

    def fit(_=None):
        return quick(encoder=MLP(hidden=(16,), dropout=0.5), seed=0).fit(table, x)

    alone = fit().predict_proba(x)
    with ThreadPoolExecutor(4) as pool:
        for model in pool.map(fit, range(8)):
            np.testing.assert_array_equal(model.predict_proba(x), alone)
