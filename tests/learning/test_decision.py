"""Who answers what: the loss as a loop, closed forms, calibration whatever is drawn, and who was not there."""

import math

import numpy as np
import pytest
import torch

from dissensus import Annotations, recommend
from dissensus.exceptions import BadParameter, DataError, NotFitted, UnreadableFile
from dissensus.learning.batches import BatchColumns, RaggedColumn
from dissensus.learning.decision import DecisionFunction, PairNetwork, add_random_pairs
from dissensus.learning.encoders import Identity, TextCNN
from dissensus.learning.exceptions import ArgumentLengthsDiffer
from dissensus.learning.network import TrainingData
from dissensus.models.exceptions import NoAnnotations
from dissensus.table.simulate import simulate

I, A = 160, 22


def two_topics(seed=0, own=0.4, other=0.05):
    """Items of two topics, annotators of two groups, who answer their own topic eight times as often."""
    rng = np.random.default_rng(seed)
    topic, group = np.arange(I) % 2, np.arange(A) % 2
    asked = rng.random((I, A)) < np.where(topic[:, None] == group, own, other)
    item, annotator = np.nonzero(asked)
    table = Annotations.from_arrays(
        [f"i{i:03d}" for i in item], [f"w{j:02d}" for j in annotator], rng.integers(0, 2, item.size),
        items=[f"i{i:03d}" for i in range(I)], annotators=[f"w{j:02d}" for j in range(A)],
    )  # fmt: skip
    return table, topic, group


def pairs_of(table):
    keys = np.unique(table.item.astype(np.int64) * A + table.annotator)
    counts = np.bincount(keys // A, minlength=I)
    ptr = torch.as_tensor(np.concatenate([[0], np.cumsum(counts)]))
    x = torch.randn(I, 3, generator=torch.Generator().manual_seed(1))
    answered = BatchColumns(answered=RaggedColumn({"annotator": torch.as_tensor(keys % A)}, ptr))
    return TrainingData(BatchColumns(x=x), answered), keys


def test_a_batch_holds_every_answer_once_and_draws_that_count_where_nobody_answered():
    table, _, _ = two_topics()
    pairs, keys = pairs_of(table)
    rows = torch.tensor([7, 3, 90])
    torch.manual_seed(0)
    batch = add_random_pairs(pairs.take(rows)[1], 3, A, 40)
    met = list(zip(rows[batch["row"]].tolist(), batch["annotator"].tolist(), strict=True))
    answered = {(i, j) for i in rows.tolist() for j in range(A) if i * A + j in set(keys.tolist())}
    n = len(answered)
    assert set(met[:n]) == answered
    assert len(met) == n + 3 * 40
    assert batch["answer"].tolist() == [1] * n + [0] * 120
    assert batch["counts"].tolist() == [1] * n + [float(pair not in answered) for pair in met[n:]]
    assert {pair for pair in met[n:] if pair in answered}  # some were drawn, and do not count


@pytest.mark.parametrize("described", [False, True])
def test_loss_is_the_literal_sum(described):
    table, _, _ = two_topics()
    pairs, _ = pairs_of(table)
    features = np.random.default_rng(0).normal(size=(A, 2)) if described else None
    torch.manual_seed(2)
    network = PairNetwork(Identity().fit(np.zeros((I, 3))), A, 4, rate=6 / A, penalty=0.3, features=features)
    with torch.no_grad():
        network.table.weight.add_(torch.randn(A, 5))
        if described:
            network.feature_layer.weight.add_(torch.randn(5, 2))
    inputs, answered, _ = pairs.take(torch.arange(20))
    batch = add_random_pairs(answered, 20, A, 6)
    x = inputs["x"].double().numpy()
    weight, bias, u = (
        t.detach().double().numpy() for t in (network.item.weight, network.item.bias, network.table.weight)
    )
    expected = 0.0
    for row, j, answer, counts in zip(
        *(batch[k].tolist() for k in ("row", "annotator", "answer", "counts")), strict=True
    ):
        v, e = weight @ x[row] + bias, u[j].copy()
        if described:
            e += network.feature_layer.weight.detach().double().numpy() @ features[j]
        s = sum(v[m] * e[m] for m in range(4)) + v[4] + e[4] - math.log(6 / A)
        expected += counts * (math.log1p(math.exp(-s)) if answer else math.log1p(math.exp(s)))
        expected += counts * 0.3 / 2 * sum(v[m] ** 2 + u[j, m] ** 2 for m in range(4))
    assert network.loss(inputs, batch).item() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("draws", [5, 60])
def test_where_items_are_alike_it_is_the_share_of_the_items_that_an_annotator_answered(draws):
    """The maximum likelihood of a bias per annotator, whatever share of the pairs is drawn."""
    table, _, _ = two_topics()
    model = DecisionFunction(encoder=Identity(), size=1, penalty=0, draws=draws, epochs=300, vector_learning_rate=0.03)
    found = model.fit(table, np.zeros((I, 1))).predict_proba(["i004"])[0]
    np.testing.assert_allclose(found, np.bincount(table.annotator, minlength=A) / I, atol=0.02)


@pytest.mark.parametrize("features", [True, False])
@pytest.mark.parametrize("draws", [4, 40])
def test_probabilities_are_calibrated_whatever_is_drawn(features, draws):
    table, topic, group = two_topics()
    X = np.column_stack([topic, np.ones(I)]).astype(np.float32) if features else None
    proba = DecisionFunction(draws=draws, epochs=150, size=2).fit(table, X).predict_proba()
    assert proba.shape == (I, A)
    for t in range(2):
        for g in range(2):
            share = 0.4 if t == g else 0.05
            assert proba[topic == t][:, group == g].mean() == pytest.approx(share, abs=0.05)
    assert proba.mean() == pytest.approx(table.n_annotations / (I * A), abs=0.02)


def test_an_unseen_annotator_answers_as_its_features_say():
    table, topic, group = two_topics()
    frame = {"annotator": table.annotators, "group": [f"g{g}" for g in group]}
    X = np.column_stack([topic, np.ones(I)]).astype(np.float32)
    model = DecisionFunction(epochs=150, penalty=0.1).fit(table, X, annotators=frame)
    new = model.predict_proba(None, {"annotator": ["n0", "n1"], "group": ["g0", "g1"]})
    for g in range(2):
        assert new[topic == g, g].mean() > 0.3
        assert new[topic != g, g].mean() < 0.12
    average = model.predict_proba(None, ["n0"])[:, 0]
    assert 0.08 < average.mean() < 0.35
    with pytest.raises(DataError):
        DecisionFunction(epochs=1).fit(table).predict_proba(None, frame)


def test_pairs_are_the_entries():
    table, _, _ = two_topics()
    model = DecisionFunction(epochs=5).fit(table)
    whole = model.predict_proba(["i005", "i001", "i100"], ["w03", "nobody", "w09"])
    np.testing.assert_allclose(
        model.predict_pairs(["i005", "i001", "i100", "i005"], ["w03", "nobody", "w09", "w09"]),
        [whole[0, 0], whole[1, 1], whole[2, 2], whole[0, 2]],
        rtol=1e-5,
    )
    rows = model.network_.table.weight
    np.testing.assert_allclose(
        model.network_.get_annotator_vectors(np.array([-1]), None).detach()[0], rows.mean(dim=0).detach(), rtol=1e-5
    )


def test_in_parts_it_is_the_same(monkeypatch):
    table, _, _ = two_topics()
    model = DecisionFunction(epochs=5).fit(table)
    whole, pairs = model.predict_proba(), model.predict_pairs(table.items[:50], ["w01"] * 50)
    monkeypatch.setattr("dissensus.learning.decision.PAIRS_AT_ONCE", 60)
    np.testing.assert_allclose(model.predict_proba(), whole, rtol=1e-5)
    np.testing.assert_allclose(model.predict_pairs(table.items[:50], ["w01"] * 50), pairs, rtol=1e-5)


def test_items_that_nobody_answered_do_not_teach():
    table, topic, _ = two_topics()
    X = np.column_stack([topic, np.arange(I) / I]).astype(np.float32)
    answered = np.arange(I) < 100
    part = table.select(items=answered)
    model = DecisionFunction(epochs=5).fit(part, X[answered])
    wide = DecisionFunction(epochs=5).fit(table.select(rows=answered[table.item]), X)
    assert np.array_equal(wide.predict_proba(part.items), model.predict_proba())
    assert np.isfinite(wide.predict_proba()).all()


def test_an_answer_given_twice_is_one():
    table, _, _ = two_topics()
    again = np.concatenate([np.arange(table.n_annotations), np.arange(50)])
    twice = Annotations.from_arrays(
        table.items[table.item[again]], table.annotators[table.annotator[again]], table.label[again],
        items=table.items, annotators=table.annotators,
    )  # fmt: skip
    assert twice.n_annotations == table.n_annotations + 50
    model, other = (DecisionFunction(epochs=5).fit(t) for t in (table, twice))
    assert np.array_equal(model.predict_proba(), other.predict_proba())


def test_the_same_seed_gives_the_same_bits_and_nobody_elses_generator_moves():
    table, _, _ = two_topics()
    before = torch.get_rng_state()
    models = [DecisionFunction(epochs=5, seed=seed).fit(table) for seed in (3, 3, 4)]
    assert torch.equal(before, torch.get_rng_state())
    a, b, c = (model.predict_proba() for model in models)
    assert np.array_equal(a, b)
    assert not np.array_equal(a, c)


@pytest.mark.parametrize("inputs", ["none", "features", "texts"])
def test_all_answers_are_the_same_after_loading(inputs, tmp_path):
    table, topic, group = two_topics()
    X = {"none": None, "features": np.column_stack([topic, np.arange(I)]), "texts": [f"topic {t} here" for t in topic]}
    frame = {"annotator": table.annotators, "group": [f"g{g}" for g in group]}
    encoder = TextCNN() if inputs == "texts" else None
    model = DecisionFunction(epochs=3, encoder=encoder, size=4).fit(table, X[inputs], annotators=frame)
    path = model.save(tmp_path)
    assert path.name == "decision.safetensors"
    before = torch.get_rng_state()
    loaded = DecisionFunction.load(tmp_path)
    assert torch.equal(before, torch.get_rng_state())
    new = {"annotator": ["n0", "w03"], "group": ["g0", "g1"]}
    for who in (None, ["w03", "nobody"], new):
        np.testing.assert_array_equal(loaded.predict_proba(None, who), model.predict_proba(None, who))
    pairs = table.items[[3, 3, 70]], ["w03", "nobody", "w09"]
    np.testing.assert_array_equal(loaded.predict_pairs(*pairs), model.predict_pairs(*pairs))
    for name in ("items_", "annotators_", "trace_"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(model, name), strict=True)
    parameters = [{**one.get_params(deep=False), "encoder": None} for one in (loaded, model)]
    assert parameters[0] == parameters[1]
    assert (loaded.encoder is None) == (encoder is None)
    if encoder is not None:
        assert loaded.encoder.get_params() == encoder.get_params()
    again = [one.fit(table, X[inputs], annotators=frame).predict_proba() for one in (loaded, model)]
    np.testing.assert_array_equal(*again)


def test_what_becomes_of_features_after_the_fit_changes_nothing():
    table, topic, _ = two_topics()
    X = np.column_stack([topic, np.arange(I)]).astype(np.float32)
    model = DecisionFunction(epochs=2).fit(table, X)
    expected = model.predict_proba()
    X[:] = 0
    np.testing.assert_array_equal(model.predict_proba(), expected)


def test_mistakes_are_named():
    table, _, _ = two_topics()
    with pytest.raises(NotFitted):
        DecisionFunction().predict_proba()
    with pytest.raises(NotFitted):
        DecisionFunction().save("never")
    with pytest.raises(UnreadableFile):
        DecisionFunction.load("nowhere")
    for keywords in ({"draws": 0}, {"penalty": -1}):
        with pytest.raises(BadParameter):
            DecisionFunction(**keywords).fit(table)
    with pytest.raises(DataError):
        DecisionFunction().fit(table, np.zeros((3, 2)))
    with pytest.raises(NoAnnotations):
        DecisionFunction().fit(table.select(rows=np.zeros(table.n_annotations, bool)))
    model = DecisionFunction(epochs=1).fit(table)
    with pytest.raises(DataError):
        model.predict_proba(["zebra"])
    with pytest.raises(ArgumentLengthsDiffer) as caught:
        model.predict_pairs(["i001"], ["w01", "w02"])
    assert caught.value.lengths == {"items": 1, "annotators": 2}


def test_it_does_not_say_who_is_right_and_is_refused():
    table = simulate(30, 6, 3, redundancy=2, seed=4).annotations
    with pytest.raises(BadParameter):
        recommend(DecisionFunction(epochs=1).fit(table), table, budget=5)
