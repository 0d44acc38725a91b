"""LDL-NM: its heads against SciPy, everybody asked as a loop, and people who differ."""

import numpy as np
import pytest
import torch
from scipy.special import softmax
from scipy.stats import entropy

from crowds import blobs
from dissensus import Annotations
from dissensus.exceptions import BadParameter, DataError
from dissensus.learning import CrowdClassifier
from dissensus.learning.encoders import Identity
from dissensus.learning.exceptions import EmbeddingSizesDiffer
from dissensus.learning.objectives import ldl_nm as module
from dissensus.learning.objectives.ldl_nm import LDLNMObjective
from learning.tables import fitted, sparse_table
from tables import KINDS as ROWS
from tables import some_gold

FORMS = {
    "concatenate": {"item_size": 3, "annotator_size": 5},
    "sum": {"item_size": 4, "annotator_size": 4, "combine": "sum"},
    "own pair size": {"item_size": 3, "annotator_size": 2, "pair_size": 7},
}


def made(form="concatenate", table=None, gold=None, **more):
    """As `fitted`, with annotators and biases that differ."""
    objective, head, z, targets = fitted(LDLNMObjective(**FORMS[form], **more), table, gold)
    head.eval()
    with torch.no_grad():
        size = objective.annotator_size
        head.table.weight[:, :size] += torch.randn(len(head.table.weight), size)
        for layer in (head.to_label, head.to_item, head.to_annotator):
            layer.bias += torch.randn(len(layer.bias))
    return objective, head, z, targets


def matrix(layer):
    return layer.weight.detach().double().numpy(), layer.bias.detach().double().numpy()


def phi(v):
    return v / (1 + np.abs(v))


def literal(head, z, i, z_annotator):
    """ŷ, ŷ_I, ŷ_A of one pair, by Eqs. 6 to 8; W_P is put together again."""
    W_I, b_I = matrix(head.item)
    z_I = W_I @ head.branch(z[i : i + 1])[0].detach().double().numpy() + b_I
    W_P, b_P = matrix(head.item_to_pair)
    if head.annotator_to_pair is None:
        both = z_I + z_annotator
    else:
        W_P = np.hstack([W_P, head.annotator_to_pair.weight.detach().double().numpy()])
        both = np.concatenate([z_I, z_annotator])
    z_P = phi(W_P @ phi(both) + b_P)
    W_E, b_E = matrix(head.residual)
    z_E = phi(W_E @ z_P + b_E + z_P)
    return [softmax(W @ z_E + b) for W, b in map(matrix, (head.to_label, head.to_item, head.to_annotator))]


def rows_of(head):
    return head.table.weight.detach().double().numpy()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ROWS)
def test_the_loss_is_the_sum_of_three_heads_by_scipy(form, kind):
    table = sparse_table(**ROWS[kind])
    gold = some_gold(table)
    objective, head, z, targets = made(form, table, gold)
    votes = table.soft_labels()
    votes[gold >= 0] = np.eye(table.n_classes)[gold[gold >= 0]]
    labels = np.eye(table.n_classes)[table.label] if table.proba is None else table.proba
    weight = np.ones(len(table)) if table.weight is None else table.weight
    total = 0.0
    for n in range(len(table)):
        i, a = table.item[n], table.annotator[n]
        own = table.annotator == a
        given = (labels[own] * weight[own][:, None]).sum(axis=0) / weight[own].sum()
        said, said_item, said_annotator = literal(head, z, i, rows_of(head)[a])
        total += weight[n] * (
            -(labels[n] * np.log(said)).sum() + entropy(votes[i], said_item) + entropy(given, said_annotator)
        )
    per_item = np.bincount(table.item, weight)
    expected = total / per_item[per_item > 0].mean()
    assert objective.loss(head, z, targets).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("form", FORMS)
def test_everybody_is_asked_as_in_a_loop(form, monkeypatch):
    table = sparse_table()
    table = table.select(rows=table.annotator != 2)  # somebody without labels has no say
    objective, head, z, _ = made(form, table)
    who = [a for a in range(table.n_annotators) if (table.annotator == a).any()]
    assert 2 not in who
    each = np.array([[literal(head, z, i, rows_of(head)[a])[1] for a in who] for i in range(table.n_items)])
    for at_once in (module.MAX_UNITS_AT_ONCE, 1, 300):
        monkeypatch.setattr(module, "MAX_UNITS_AT_ONCE", at_once)
        objective.average = "mean"
        found = torch.softmax(objective.logits(head, z), dim=1).detach().numpy()
        np.testing.assert_allclose(found, each.mean(axis=1), atol=1e-6)
        objective.average = "mode"
        found = torch.softmax(objective.logits(head, z), dim=1).detach().numpy()
        count = np.array([np.bincount(row, minlength=table.n_classes) for row in each.argmax(axis=2)])
        np.testing.assert_allclose(found, count / len(who), atol=1e-6)


@pytest.mark.parametrize("form", FORMS)
def test_what_somebody_would_say_is_their_head_and_strangers_are_like_everybody(form):
    table = sparse_table()
    table = table.select(rows=table.annotator != 2)  # who has no labels is a stranger too
    objective, head, z, _ = made(form, table)
    who = [a for a in range(table.n_annotators) if a != 2]

    def expected_proba(i, a):
        each = [literal(head, z, i, rows_of(head)[j])[0] for j in ([a] if a in who else who)]
        return np.mean(each, axis=0)

    codes = torch.tensor([3, -1, 0, 2])
    found = objective.label_proba(head, z, codes).detach().numpy()
    row = torch.tensor([4, 4, 0, 1])
    pairs = objective.pair_label_proba(head, z, row, codes).detach().numpy()
    for at, a in enumerate(codes.tolist()):
        np.testing.assert_allclose(found[4, at], expected_proba(4, a), atol=1e-6)
        np.testing.assert_allclose(pairs[at], expected_proba(int(row[at]), a), atol=1e-6)
    known = objective.pair_label_proba(head, z, row[:1], codes[:1]).detach().numpy()
    np.testing.assert_allclose(known, pairs[:1], atol=1e-6)


def described(table):
    """Two features of every annotator, which say something."""
    objective = LDLNMObjective(item_size=3, annotator_size=5).fit(table, None, 0)
    objective.annotator_features_ = np.random.default_rng(0).normal(size=(table.n_annotators, 2))
    head = objective.head(torch.nn.Identity, 6)
    head.eval()
    with torch.no_grad():
        head.feature_layer.weight.normal_()
    return objective, head


def test_features_are_added_to_rows_and_describe_strangers():
    table = sparse_table()
    objective, head = described(table)
    z, W = torch.randn(table.n_items, 6), head.feature_layer.weight.detach().double().numpy()
    known = rows_of(head)[1] + W @ objective.annotator_features_[1]
    labels = np.bincount(table.annotator, minlength=table.n_annotators)
    mean = (labels[:, None] * rows_of(head)).sum(axis=0) / labels.sum()
    stranger = np.array([0.3, -2.0])
    found = objective.label_proba(
        head, z, torch.tensor([1, -1]), torch.tensor(np.array([objective.annotator_features_[1], stranger])).float()
    )
    np.testing.assert_allclose(found[2, 0].detach(), literal(head, z, 2, known)[0], atol=1e-6)
    np.testing.assert_allclose(found[2, 1].detach(), literal(head, z, 2, mean + W @ stranger)[0], atol=1e-6)
    np.testing.assert_allclose(
        objective.label_proba(head, z, torch.tensor([1]))[2, 0].detach(), found[2, 0].detach(), atol=1e-6
    )


def test_who_has_features_and_no_labels_is_known_by_them():
    table = sparse_table()
    table = table.select(rows=table.annotator != 2)
    objective, head = described(table)
    z, features = torch.randn(table.n_items, 6), torch.tensor(objective.annotator_features_).float()
    codes, row = torch.tensor([2, -1, 0]), torch.tensor([4, 4, 0])
    found = objective.label_proba(head, z, codes)
    torch.testing.assert_close(found[:, :1], objective.label_proba(head, z, codes[:1], features[2:3]))
    every_proba = objective.label_proba(head, z, torch.tensor([a for a in range(table.n_annotators) if a != 2]))
    torch.testing.assert_close(found[:, 1], every_proba.mean(dim=1))  # of −1 nothing is known
    torch.testing.assert_close(objective.pair_label_proba(head, z, row, codes), found[row, torch.arange(3)])


def test_matrices_start_orthogonal_and_biases_at_nothing():
    _, head, _, _ = fitted(LDLNMObjective(item_size=4, annotator_size=5))
    both = torch.cat([head.item_to_pair.weight[:9, :4], head.annotator_to_pair.weight[:9, :5]], dim=1)
    for weight in (head.item.weight[:4], both, head.residual.weight[:9, :9], head.to_item.weight[:, :9]):
        torch.testing.assert_close(weight @ weight.T, torch.eye(len(weight)), atol=1e-5, rtol=0)
    own = head.table.weight[:, :5]
    torch.testing.assert_close(own.T @ own, torch.eye(5), atol=1e-5, rtol=0)
    assert not head.item.bias.any()
    assert not head.residual.bias.any()


TABLE, X, TRUTH = blobs(60, redundancy=6)


def small(seed=0, sizes=(3, 4), **more):
    objective = LDLNMObjective(item_size=sizes[0], annotator_size=sizes[1], dropout=0.0)
    return CrowdClassifier(encoder=Identity(), objective=objective, epochs=4, batch_size=17, device="cpu", seed=seed,
                           learning_rate=0.01, **more)  # fmt: skip


def two_camps(n=80, seed=0):
    """One feature; half of the annotators call it by its sign, the others the other way round."""
    rng = np.random.default_rng(seed)
    x = np.where(rng.random(n) < 0.5, -1.0, 1.0) * (0.5 + rng.random(n))
    item, annotator = np.repeat(np.arange(n), 6), np.tile(np.arange(6), n)
    label = (x[item] > 0) ^ (annotator >= 3)
    table = Annotations.from_arrays(
        [f"i{i:03d}" for i in item], [f"w{a}" for a in annotator], np.where(label, "yes", "no")
    )
    return table, x[:, None].astype(np.float32)


def test_people_who_see_it_otherwise_are_told_apart():
    table, X = two_camps()
    model = CrowdClassifier(
        encoder=Identity(), objective=LDLNMObjective(item_size=4, annotator_size=4, dropout=0.1), epochs=60,
        batch_size=25, learning_rate=0.01, head_learning_rate=0.02, device="cpu",
    ).fit(table, X)  # fmt: skip
    found = model.predict_annotator_proba(np.array([[-1.0], [1.0]], np.float32), ["w0", "w5"])
    yes = model.classes_.tolist().index("yes")
    assert found[1, 0, yes] > 0.9 > 0.1 > found[0, 0, yes]
    assert found[0, 1, yes] > 0.9 > 0.1 > found[1, 1, yes]
    np.testing.assert_allclose(model.predict_proba(X[:5]), 0.5, atol=0.1)  # of everybody together


def test_a_saved_model_says_the_same(tmp_path):
    model = small().fit(TABLE, X)
    model.save(tmp_path)
    again = CrowdClassifier.load(tmp_path)
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    who = [*TABLE.annotators[:2], "nobody"]
    np.testing.assert_array_equal(again.predict_annotator_proba(X[:3], who), model.predict_annotator_proba(X[:3], who))


@pytest.mark.parametrize(
    "keywords",
    [{"item_size": 0}, {"pair_size": 1.5}, {"combine": "product"}, {"average": "median"}, {"dropout": 1.0}],
)
def test_wrong_keywords_are_one_clear_error(keywords):
    with pytest.raises(BadParameter):
        LDLNMObjective(**keywords).fit(TABLE, None, 0)


def test_a_sum_needs_equal_sizes():
    with pytest.raises(EmbeddingSizesDiffer) as caught:
        LDLNMObjective(combine="sum", annotator_size=4).fit(TABLE, None, 0)
    assert (caught.value.annotator_size, caught.value.item_size) == (4, 10)


def test_gold_without_annotations_is_an_error():
    nothing = TABLE.select(rows=np.zeros(len(TABLE), bool))
    with pytest.raises(DataError):
        LDLNMObjective().fit(nothing, np.zeros(TABLE.n_items, int), 0)


@pytest.mark.parametrize("at_once", [1, 2**22])
def test_the_vector_of_an_item_is_the_mean_of_z_e_over_annotators_with_labels(at_once, monkeypatch):
    monkeypatch.setattr(module, "MAX_UNITS_AT_ONCE", at_once)
    table = sparse_table()
    silent = table.select(rows=table.annotator != 2)  # an annotator without labels is nobody's opinion
    objective, head, z, _ = fitted(LDLNMObjective(item_size=3, annotator_size=4), silent)
    head.eval()
    assert len(head.labels) > (head.labels > 0).sum()
    there = [j for j in range(len(head.labels)) if head.labels[j] > 0]
    z_item = head.z_item(z)
    for i in (0, 5):
        each = [head.z_pair(z_item[i : i + 1], head.fitted_rows(torch.tensor([j])))[0] for j in there]
        torch.testing.assert_close(objective.item_vectors(head, z)[i], torch.stack(each).mean(dim=0))
