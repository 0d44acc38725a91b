"""The default: what held-out items choose, and inputs that are joined by name."""

import numpy as np
import pytest
import torch
from scipy.special import log_softmax, softmax
from sklearn.linear_model import LogisticRegression

import dissensus as dz
from crowds import blobs
from dissensus.learning import CrowdClassifier, auto, logistic
from dissensus.learning.batches import BatchColumns
from dissensus.learning.encoders import MLP, Identity
from dissensus.learning.exceptions import (
    MissingInputs,
    RepeatedRow,
    RowCountDiffers,
    UnnamedRows,
    UnusedAnnotatorFeatures,
    UnusedInputs,
)
from dissensus.learning.inputs import align_rows
from dissensus.learning.objectives import Auto
from dissensus.learning.objectives.base import make_annotation_column
from dissensus.learning.validation import Validation, assign_stratified_folds
from faults import raised, warned


def fitted(table, X, **keywords):
    fit = {name: keywords.pop(name) for name in ("validation", "gold", "items") if name in keywords}
    return CrowdClassifier(**{"objective": Auto(folds=2), "epochs": 3, "device": "cpu", **keywords}).fit(
        table, X, **fit
    )


def soft(n=80, D=5, K=3, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, D)).astype(np.float32)
    return x, rng.dirichlet(np.ones(K), n)


# Logistic regression --------------------------------------------------------------------------------------------------


def test_the_linear_model_is_that_of_scikit_learn():
    x, target = soft()
    n, K = target.shape
    penalty = 0.05
    reference = LogisticRegression(C=1 / (n * penalty), tol=1e-9, max_iter=10_000)
    reference.fit(np.repeat(x, K, axis=0), np.tile(np.arange(K), n), sample_weight=target.ravel())
    found = logistic.compute_logits(x, logistic.fit_logistic(x, target, penalty))
    np.testing.assert_allclose(softmax(found, axis=1), reference.predict_proba(x), atol=2e-4)


def test_the_weights_of_a_pool_have_the_least_cross_entropy():
    _, target = soft()
    rng = np.random.default_rng(1)
    members = np.log(target) * np.array([0.5, 0.5, -0.5])[:, None, None] + rng.normal(size=(3, *target.shape))

    def loss(weights):
        return -(target * log_softmax(np.tensordot(weights, members, 1), axis=1)).sum()

    found = logistic.fit_pool_weights(members, target, prior=0.0)
    assert found[2] == 0 < found[:2].min()  # the last says the contrary
    for move in 0.02 * np.vstack([np.eye(3), -np.eye(3)]):
        assert loss(np.maximum(found + move, 0)) >= loss(found) - 1e-6


def test_one_model_is_scaled_by_its_temperature_and_few_items_move_it_little():
    _, target = soft(n=4000)
    logits = np.log(target)
    assert logistic.fit_pool_weights(2.5 * logits[None], target, prior=10.0) == pytest.approx([0.4], abs=0.01)
    sure = np.where(np.eye(3)[[0, 1, 2]] > 0, 5.0, 0.0)
    assert logistic.fit_pool_weights(sure[None], np.eye(3), prior=10.0) == pytest.approx([1.0], abs=0.05)
    assert logistic.fit_pool_weights(sure[None], np.eye(3), prior=0.0) > 1.5


# The choice -----------------------------------------------------------------------------------------------------------


def test_it_is_the_default_and_says_what_it_chose():
    table, X, truth = blobs(150)
    model = fitted(table, X)
    assert model.score(X, truth) > 0.9
    assert model.note_.startswith("auto chose the weights")
    assert "on 2 folds of 150 items" in model.note_
    assert [row["name"] for row in model.candidates_] == ["linear model", *auto.POOL_CANDIDATES]
    assert not model.held_out_.any()
    assert model.labelled_.all()
    np.testing.assert_allclose(model.predict_proba(X), model.proba_, atol=1e-6)
    assert model.predict_annotator_proba(X[:4], ["w3", "nobody"]).shape == (4, 2, 3)


def test_the_pool_is_the_weighted_sum_of_its_members():
    table, X, _ = blobs(60)
    model = fitted(table, X)
    z, head = model.encoder_.prepare(X).columns["x"], model.network_.head
    with torch.no_grad():
        by_hand = head.weights[0] * head.linear(z)
        for weight, member in zip(head.weights[1:], head.members, strict=True):
            logits = sum(network(z) for network in member.networks) / 2
            if member.predicts_classes:  # P(vote y) = Σ_c T_yc p_c
                p = torch.softmax(member.scale * logits, dim=1)
                logits = torch.log((p[:, None, :] * member.labels[None]).sum(dim=2))
            by_hand = by_hand + weight * logits
    np.testing.assert_allclose(softmax(by_hand.numpy(), axis=1), model.proba_, atol=1e-6)
    weights = [row["weight"] for row in model.candidates_]
    np.testing.assert_allclose(head.weights, [weights[0], *(weight for weight in weights[1:] if weight > 0)], rtol=1e-5)
    assert any(member.predicts_classes for member in head.members)


def test_a_channel_finds_what_is_said_of_a_class_and_how_sure_to_be():
    rng = np.random.default_rng(0)
    logits = 4 * rng.normal(size=(4000, 3))
    given = np.array([[0.8, 0.0, 0.1], [0.2, 0.7, 0.0], [0.0, 0.3, 0.9]])  # [given, true]
    votes = softmax(0.5 * logits, axis=1) @ given.T
    found = logistic.fit_vote_channel(logits, votes)
    assert found.scale == 0.5
    np.testing.assert_allclose(found.labels, given, atol=0.03)
    np.testing.assert_allclose(np.exp(found(logits)), votes, atol=0.02)


def test_labels_judge_each_through_its_annotator():
    table, X, _ = blobs(30)
    weight = np.random.default_rng(0).random(len(table))
    table = dz.Annotations.from_codes(
        table.item, table.annotator, table.label, table.items, table.annotators, table.classes, weight=weight
    )
    model = CrowdClassifier(objective="crowd-layer", epochs=2, device="cpu").fit(table, X)
    columns, rows = model.encoder_.prepare(X), np.array([4, 2, 9])
    targets = BatchColumns(annotations=make_annotation_column(table))
    judge = Validation(columns, rows, table.soft_labels()[rows], 2, targets)
    proba, total = model.predict_annotations(table, X), 0.0
    for row in np.flatnonzero(np.isin(table.item, rows)):
        total -= weight[row] * np.log(proba[row, table.label[row]])
    found = judge(model.network_)
    assert found["cross-entropy"] == pytest.approx(total / weight[np.isin(table.item, rows)].sum(), rel=1e-5)
    assert {"accuracy", "macro-f1"} <= found.keys()


def test_a_crowd_layer_sees_through_those_who_take_one_class_for_another():
    """Most of the crowd takes class 2 for class 1; who can tell them apart is found out."""
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 3, 400)
    X = (np.eye(3)[truth] * 3 + rng.normal(size=(400, 3))).astype(np.float32)
    given = np.repeat(truth[:, None], 5, axis=1)
    given[:, :3] = np.where((given[:, :3] == 2) & (rng.random((400, 3)) < 0.7), 1, given[:, :3])
    table = dz.Annotations.from_arrays(np.repeat(np.arange(400), 5), np.tile(np.arange(5), 400), given.ravel())
    model = fitted(table, X, epochs=20)
    (crowd,) = (member for member in model.network_.head.members if member.predicts_classes)
    z = model.encoder_.prepare(X).columns["x"]
    with torch.no_grad():
        classes = sum(network(z) for network in crowd.networks).argmax(dim=1).numpy()
    assert (classes == truth).mean() > 0.9
    assert crowd.labels[1, 2] > 0.25 > crowd.labels[2, 1]  # votes for 1 where the class is 2


def test_small_models_train_on_one_core_and_threads_are_as_before(monkeypatch):
    table, X, _ = blobs(60)
    seen, before = [], torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        fitted(table, X).set_params(epochs=1).fit(table, X, on_step=lambda *_: seen.append(torch.get_num_threads()))
        assert torch.get_num_threads() == 3
        monkeypatch.setattr(auto, "MAX_VALUES_SINGLE_THREAD", 60)
        fitted(table, X, epochs=1, encoder="identity").fit(
            table, X, on_step=lambda *_: seen.append(-torch.get_num_threads())
        )
    finally:
        torch.set_num_threads(before)
    assert set(seen) == {1, -3}


def test_the_mean_is_hardly_left_where_features_say_nothing():
    table, X, _ = blobs(300)
    noise = np.random.default_rng(0).normal(size=X.shape).astype(np.float32)
    proba, mean = fitted(table, noise).proba_, table.soft_labels().mean(axis=0)
    assert np.abs(proba - mean).max() < 0.1


def test_features_of_one_unit_keep_their_sizes_and_others_are_scaled():
    rng = np.random.default_rng(0)
    signal = rng.normal(size=400)
    label = (signal + 0.5 * rng.normal(size=400) > 0).astype(int)
    table = dz.Annotations.from_arrays(np.arange(400), ["a"] * 400, label)
    small_noise = 0.05 * rng.normal(size=(400, 60))
    assert fitted(table, np.column_stack([signal, small_noise]), encoder="identity").encoder_.scale == "all"
    large_noise = 1e3 * rng.normal(size=(400, 3))
    assert fitted(table, np.column_stack([signal, large_noise]), encoder="identity").encoder_.scale is True


def test_a_linear_encoder_stays_linear_and_layers_are_those_asked_for():
    table, X, _ = blobs(60)
    linear = fitted(table, X, encoder="identity")
    assert not linear.network_.head.members
    assert linear.history_ == []
    own = fitted(table, X, encoder=MLP(hidden=(9,)))
    assert {one[-1].in_features for member in own.network_.head.members for one in member.networks} == {9}


@pytest.mark.parametrize("n", [1, 3, 9, 10, 11])
def test_few_items_are_enough(n):
    table, X, _ = blobs(n)
    model = fitted(table, X)
    assert np.isfinite(model.proba_).all()
    assert ("too few items" in model.note_) == (n < auto.MIN_ITEMS_HELD_OUT)


def test_items_that_the_caller_holds_out_do_not_teach():
    table, X, truth = blobs(100)
    model = fitted(table, X, validation=0.3)
    assert model.held_out_.sum() == 30
    assert "on 30 held-out items" in model.note_
    flipped = dz.Annotations.from_codes(
        table.item, table.annotator, np.where(model.held_out_[table.item], (table.label + 1) % 3, table.label),
        table.items, table.annotators, table.classes,
    )  # fmt: skip
    linear, other = (fitted(one, X, validation=0.3, encoder=Identity(scale=False)) for one in (table, flipped))
    directions = [one.network_.head.linear.weight.detach().numpy() for one in (linear, other)]
    assert directions[0].ravel() @ directions[1].ravel() > 0  # labels of other items say the same
    beside = fitted(table, X, validation=(X[:20], table.classes[truth[:20]]))
    assert not beside.held_out_.any()


def test_folds_are_of_names_and_have_every_class():
    table, _, truth = blobs(100)
    teaches = np.arange(100) >= 7
    fold = assign_stratified_folds(table, np.eye(3)[truth], teaches, 5, seed=3)
    assert (fold[:7] == -1).all()
    counts = np.array([np.bincount(truth[fold == number], minlength=3) for number in range(5)])
    assert np.ptp(counts, axis=0).max() <= 1
    assert np.ptp(counts.sum(axis=1)) <= 1


def test_gold_teaches_and_unlabelled_items_are_predicted():
    table, X, truth = blobs(90)
    few = table.select(rows=table.item < 60)
    model = fitted(few, X)
    assert model.labelled_.sum() == 60
    assert model.proba_.shape == (90, 3)
    gold = np.where(np.arange(90) >= 60, truth, -1)
    assert fitted(few, X, gold=gold).labelled_.all()


@pytest.mark.parametrize("keywords", [{}, {"encoder": "identity"}, {"encoder": "text-cnn"}])
def test_a_saved_model_says_the_same_and_can_be_fitted_again(keywords, tmp_path):
    table, X, truth = blobs(60)
    if keywords.get("encoder") == "text-cnn":
        X = [" ".join(["abc"[c]] * 5) for c in truth]
    model = fitted(table, X, seed=4, **keywords)
    model.save(tmp_path)
    again = CrowdClassifier.load(tmp_path, device="cpu")
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert (again.note_, again.candidates_) == (model.note_, model.candidates_)
    np.testing.assert_array_equal(again.fit(table, X).proba_, model.proba_)


def test_another_encoder_is_stopped_and_cooled_by_held_out_items():
    table, _, truth = blobs(120)
    texts = [" ".join(["abc"[c]] * 5) for c in truth]
    model = fitted(table, texts, encoder="text-cnn", epochs=15)
    assert model.held_out_.sum() == 12
    assert f"epoch {model.best_epoch_} of {model.n_iter_} and temperature" in model.note_
    assert model.score(texts, truth) > 0.8
    cold = CrowdClassifier(encoder="text-cnn", objective="soft", epochs=15, patience=8, device="cpu")
    cold.fit(table, texts, validation=0.1)
    (row,) = model.candidates_
    np.testing.assert_allclose(
        softmax(row["weight"] * np.log(cold.proba_), axis=1), model.proba_, atol=1e-5
    )  # the same network, scaled


def test_a_run_that_was_stopped_goes_on_from_its_networks(tmp_path):
    table, X, _ = blobs(60)
    steps = []

    def stop(epoch, loss):
        steps.append(epoch)
        if epoch == 8:
            raise KeyboardInterrupt

    model = CrowdClassifier(objective=Auto(folds=2), epochs=3, device="cpu", checkpoint=tmp_path)
    with pytest.raises(KeyboardInterrupt):
        model.fit(table, X, on_step=stop)
    done = steps[-1]
    again = []
    model.fit(table, X, on_step=lambda epoch, loss: again.append(epoch))
    assert sum(epoch > 0 for epoch in again) < model.n_iter_ - done + 4  # at most one network began anew
    np.testing.assert_array_equal(model.proba_, fitted(table, X).proba_)


def test_what_it_cannot_use_is_refused():
    table, X, _ = blobs(60)
    with raised(UnusedAnnotatorFeatures, objective="auto"):
        CrowdClassifier().fit(table, X, annotators={"annotator": table.annotators, "age": np.arange(7)})


# Inputs by name -------------------------------------------------------------------------------------------------------


def frames(table, X):
    """The same inputs under names, shuffled, in every form that has names."""
    import pandas as pd
    import polars as pl

    order = np.random.default_rng(1).permutation(len(X))
    names, values = table.items[order], X[order]
    plain = pd.DataFrame(values, columns=[f"x{k}" for k in range(X.shape[1])])
    return {
        "a column": plain.assign(item=names),
        "polars": pl.from_pandas(plain.assign(item=names.astype(str))),
        "polars, lazy": pl.from_pandas(plain.assign(item=names.astype(str))).lazy(),
        "an index of that name": plain.set_index(pd.Index(names, name="item")),
        "an index that has all items": plain.set_index(pd.Index(names)),
        "a mapping": dict(zip(names, values, strict=True)),
    }


FORMS = ["a column", "polars", "polars, lazy", "an index of that name", "an index that has all items", "a mapping"]


@pytest.mark.parametrize("form", FORMS)
def test_a_shuffled_frame_gives_the_same_model_to_the_bit(form):
    table, X, _ = blobs(40)
    shuffled = frames(table, X)[form]
    model = CrowdClassifier(objective="soft", epochs=2, device="cpu")
    expected = model.fit(table, X).predict_proba(X)
    model.fit(table, shuffled)
    np.testing.assert_array_equal(model.predict_proba(X), expected)
    order = np.random.default_rng(1).permutation(40)
    np.testing.assert_array_equal(model.predict_proba(shuffled), expected[order])  # rows as they are given


def test_names_may_come_beside_the_rows():
    table, X, _ = blobs(40)
    order = np.random.default_rng(1).permutation(40)
    model = CrowdClassifier(objective="soft", epochs=2, device="cpu")
    expected = model.fit(table, X).proba_
    np.testing.assert_array_equal(model.fit(table, X[order], items=table.items[order]).proba_, expected)


def test_numbers_of_a_shuffled_index_are_not_taken_for_items_after_the_join():
    """The index that a shuffled frame still has must not be joined by a second time."""
    import pandas as pd

    rng = np.random.default_rng(0)
    table = dz.Annotations.from_arrays(np.arange(30), ["a"] * 30, rng.integers(0, 2, 30))
    X = rng.normal(size=(30, 2)).astype(np.float32)
    frame = pd.DataFrame({"item": np.arange(30), "u": X[:, 0], "v": X[:, 1]}).sample(frac=1, random_state=0)
    frame.index = rng.permutation(30)
    once = align_rows(frame, table)
    np.testing.assert_array_equal(np.asarray(align_rows(once, table)), X)


def test_items_that_are_missing_or_too_many_are_said_in_one_sentence():
    import pandas as pd

    table, X, _ = blobs(20)
    frame = pd.DataFrame({"item": [*table.items[:17], "new", "other"], "x": 1.0})
    with raised(MissingInputs, n_missing=3, n_items=20, n_unused=2, unused="'new'"):
        align_rows(frame, table)
    more = pd.DataFrame({"item": [*table.items, "new"], "x": np.arange(21.0)})
    with warned(UnusedInputs, n_rows=1, item="'new'"):
        np.testing.assert_array_equal(np.asarray(align_rows(more, table))[:, 0], np.arange(20.0))
    with raised(RepeatedRow, argument="X", n_rows=2):
        align_rows(pd.DataFrame({"item": [*table.items, table.items[3]], "x": 1.0}), table)
    with raised(UnnamedRows, n_rows=19, n_items=20):
        align_rows(X[:19], table)
    with raised(RowCountDiffers, argument="items", n_rows=20, n_entries=3):
        align_rows(X, table, table.items[:3])


def test_an_item_and_a_text_are_no_pair_of_texts():
    import pandas as pd

    table, _, truth = blobs(30)
    texts = [" ".join(["abc"[c]] * 5) for c in truth]
    frame = pd.DataFrame({"item": table.items, "text": texts}).sample(frac=1, random_state=0)
    model = CrowdClassifier(encoder="text-cnn", objective="soft", epochs=1, device="cpu")
    expected = model.fit(table, texts).proba_
    np.testing.assert_array_equal(model.fit(table, frame).proba_, expected)
