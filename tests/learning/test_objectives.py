"""Objectives after the papers: their equations as loops, annotators who were not there, anybody's optimiser."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from crowds import blobs
from dissensus import Annotations
from dissensus.learning import CrowdClassifier
from dissensus.learning.batches import BatchColumns
from dissensus.learning.encoders import MLP, Identity
from dissensus.learning.exceptions import AnnotationsNeeded, DoubleMixup
from dissensus.learning.network import Network
from dissensus.learning.objectives import AnnotatorHeads, objectives
from dissensus.learning.objectives.annot_mix import AnnotationData, AnnotMix, MixingNetwork
from dissensus.learning.objectives.annotator_embeddings import AnnotatorEmbeddings
from dissensus.learning.objectives.conal import CoNAL
from dissensus.learning.run import prepare_run
from faults import raised
from learning.tables import fitted, log_q, sparse_table
from tables import KINDS as ROWS
from tables import some_gold

TABLE = sparse_table()
A, K = 7, 4


def array(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().double().numpy()


def softmax(x: np.ndarray) -> np.ndarray:
    return np.exp(x) / np.exp(x).sum()


def linear(layer: nn.Linear, x: np.ndarray) -> np.ndarray:
    return array(layer.weight) @ x + (0 if layer.bias is None else array(layer.bias))


def shake(head: nn.Module) -> nn.Module:
    """Random parameters: no row is zero, no two are alike."""
    draw = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for value in head.parameters():
            value.add_(torch.randn(value.shape, generator=draw) * 0.3)
    return head.eval()  # no dropout


def heads(objective, head, v, j):
    """(K,) P of annotator j by the equations of annotator-heads."""
    own = array(head.table.weight[j]).reshape(K, -1)
    logits = own[:, :-1] @ v + own[:, -1]
    return softmax(logits + linear(head.common, v) if objective.shared else logits)


def embeddings(objective, head, v, j):
    counts = objective.label_counts_[j]
    e, n = array(head.table.weight[j]), sum(counts[k] / counts.sum() * array(head.label[k]) for k in range(K))
    if objective.weighted:
        e, n = (
            linear(head.item_projection, v) @ linear(head.annotator_projection, e) * e,
            linear(head.item_projection, v) @ linear(head.label_projection, n) * n,
        )
    return softmax(linear(head.out, v + e + n))


def conal(objective, head, v, j):
    p, own, common = softmax(linear(head.main[1], v)), array(head.crowd.weight[j]), array(head.common[0])
    u, mine = array(head.u.weight[j]), linear(head.v, v)
    omega = 1 / (1 + np.exp(-u @ mine / np.linalg.norm(u) / np.linalg.norm(mine)))
    return softmax(omega * common.reshape(K, K) @ p + (1 - omega) * own.reshape(K, K) @ p)


def annot_mix(objective, head, v, j, e=None):
    p = softmax(linear(head.main[1], v))
    e = array(head.table.weight[j]) if e is None else e
    hidden = linear(head.mixed[1], np.concatenate([linear(head.item, v), e]))
    cells = linear(head.mixed[3], np.maximum(hidden, 0)).reshape(K, K)
    return sum(p[c] * softmax(cells[c]) for c in range(K))


CASES = {
    "heads": (AnnotatorHeads(penalty=0.7), heads),
    "heads of their own": (AnnotatorHeads(shared=False, penalty=0.0), heads),
    "embeddings": (AnnotatorEmbeddings(weighted=True, penalty=0.7, size=3), embeddings),
    "embeddings, not weighted": (AnnotatorEmbeddings(penalty=0.0), embeddings),
    "conal": (CoNAL(apart=0.2, size=5), conal),
    "annot-mix": (AnnotMix(size=3), annot_mix),
}


def vectors(head, z) -> np.ndarray:
    """(I, D) the branch's output."""
    return array((head.main[0] if hasattr(head, "main") else head.branch)(z))


def said(table, n) -> np.ndarray:
    return np.eye(K)[table.label[n]] if table.proba is None else table.proba[n]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("rows", ROWS)
def test_loss_is_the_literal_sum_over_the_annotations(rows, case):
    objective, expected_proba = copy.deepcopy(CASES[case][0]), CASES[case][1]
    table, gold = sparse_table(**ROWS[rows]), some_gold(TABLE)
    objective, head, z, targets = fitted(objective, table, gold)
    v, expected = vectors(shake(head), z), 0.0
    weight = np.ones(len(table)) if table.weight is None else table.weight
    total = np.bincount(table.annotator, weight, A)
    for n in range(len(table)):
        j, shares = table.annotator[n], said(table, n)
        p = expected_proba(objective, head, v[table.item[n]], j)
        expected -= weight[n] * (shares @ np.log(p))
        if getattr(objective, "penalty", 0):
            common = (head.common.weight,) if "heads" in case else (head.out.weight, head.label)
            squares = (array(head.table.weight[j]) ** 2).sum() / total[j]
            squares += sum((array(value) ** 2).sum() for value in common) / total.sum()
            expected += weight[n] * objective.penalty / 2 * squares
    if case in ("conal", "annot-mix"):
        q = log_q(objective, head, z)
    else:  # of an annotator with the mean numbers of all, in place of 0
        mean = copy.deepcopy((objective, head))
        with torch.no_grad():
            mean[1].table.weight[0] = torch.as_tensor(total / total.sum() @ array(head.table.weight))
        mean[0].label_counts_ = np.array([getattr(objective, "label_counts_", np.zeros((A, K))).sum(axis=0)])
        q = np.log([expected_proba(*mean, one, 0) for one in v])
    expected -= sum(q[i, gold[i]] for i in range(table.n_items) if gold[i] >= 0)
    if case == "conal":
        apart = [np.linalg.norm(array(head.common[0] - head.crowd.weight[j])) for j in set(table.annotator.tolist())]
        expected -= table.n_items * 0.2 * sum(apart)
    np.testing.assert_allclose(objective.loss(head, z, targets).item(), expected, rtol=2e-4)


@pytest.mark.parametrize("case", CASES)
def test_answers_for_known_and_unknown_annotators(case):
    objective, expected_proba = copy.deepcopy(CASES[case][0]), CASES[case][1]
    table = Annotations.from_arrays(
        [0, 0, 1, 2, 2, 2], [0, 1, 1, 3, 3, 0], [0, 1, 2, 2, 3, 1], classes=K, annotators=np.arange(5),
        weight=[1, 2, 1, 1, 0.5, 3],
    )  # fmt: skip
    objective, head, z, _ = fitted(objective, table)
    v = vectors(shake(head), z)
    out = array(objective.label_proba(head, z, torch.tensor([3, -1, 0, 2])))
    assert out.shape == (3, 4, K)
    pair = array(objective.pair_label_proba(head, z, torch.tensor([2, 1, 2]), torch.tensor([0, -1, 3])))
    np.testing.assert_allclose(pair, [out[2, 2], out[1, 1], out[2, 0]], rtol=1e-5)
    share = np.array([4, 3, 0, 1.5, 0]) / 8.5
    with torch.no_grad():
        for part in head.modules():  # of crowd models, the mean annotator stands in place of 4
            if isinstance(part, nn.Embedding) and case in ("conal", "annot-mix"):
                part.weight[4] = torch.as_tensor(share @ part.weight.double().numpy())
    for i in range(3):
        np.testing.assert_allclose(out[i, 0], expected_proba(objective, head, v[i], 3), rtol=1e-4)
        np.testing.assert_allclose(out[i, 2], expected_proba(objective, head, v[i], 0), rtol=1e-4)
        if case in ("conal", "annot-mix"):
            anybody = expected_proba(objective, head, v[i], 4)
        else:
            anybody = np.mean([expected_proba(objective, head, v[i], j) for j in (0, 1, 3)], axis=0)
            np.testing.assert_allclose(np.exp(array(objective.logits(head, z)))[i], anybody, rtol=1e-4)
        np.testing.assert_allclose(out[i, 1], anybody, rtol=1e-4)  # −1
        np.testing.assert_allclose(out[i, 3], anybody, rtol=1e-4)  # without labels


def test_mode_is_the_vote_of_heads():
    objective, head, z, _ = fitted(AnnotatorHeads(average="mode"))
    v = vectors(shake(head), z)
    votes = np.zeros((len(v), K))
    for i in range(len(v)):
        for j in range(A):
            votes[i, heads(objective, head, v[i], j).argmax()] += 1 / A
    np.testing.assert_allclose(np.exp(array(objective.logits(head, z))), votes, atol=1e-6)
    assert 0 < votes.max(axis=1).min() < 1


@pytest.mark.parametrize("rows", ROWS)
def test_mixtures_of_annotations_are_those_of_the_paper(rows):
    table, gold = sparse_table(**ROWS[rows]), some_gold(TABLE)
    objective, head, _, targets = fitted(AnnotMix(size=3), table, gold)
    network = shake(MixingNetwork(nn.Linear(5, 6), head, objective, mixes_inputs=True))
    x = torch.randn(table.n_items, 5)
    data = AnnotationData(BatchColumns(input=x), objective.targets(), alpha=1.0)
    inputs, targets, (weight, partner, _) = data.take(torch.arange(table.n_items))
    assert weight.shape == partner.shape == (len(table),)
    v, e, expected = array(x), array(head.table.weight), 0.0
    w = np.ones(len(table)) if table.weight is None else table.weight
    often = np.diff(table.item_ptr)
    for n in range(len(table)):
        m, share = int(partner[n]), float(weight[n])
        i, j = table.item[[n, m]], table.annotator[[n, m]]
        x_mixed = share * v[i[0]] + (1 - share) * v[i[1]]
        inner = array(head.main[0](network.encoder(torch.as_tensor(x_mixed).float()[None])))[0]
        p = annot_mix(objective, head, inner, None, e=share * e[j[0]] + (1 - share) * e[j[1]])
        y = share * w[n] * said(table, n) + (1 - share) * w[m] * said(table, m)
        expected -= y @ np.log(p)
        log_p = np.log(softmax(linear(head.main[1], inner)))
        for part, item in ((share, i[0]), (1 - share, i[1])):
            expected -= part / often[item] * log_p[gold[item]] if gold[item] >= 0 else 0
    np.testing.assert_allclose(network(inputs, targets, (weight, partner, {})).item(), expected, rtol=2e-4)


def test_vectors_are_mixed_where_inputs_cannot_be():
    objective, head, _, targets = fitted(AnnotMix(size=3))
    network = shake(MixingNetwork(nn.Sequential(nn.Linear(5, 6), nn.Tanh()), head, objective, mixes_inputs=False))
    inputs = {"input": torch.randn(TABLE.n_items, 5)}
    partner, weight = torch.randperm(len(TABLE)), torch.rand(len(TABLE))
    z = network.encoder(**inputs)[targets["row"]]
    mixed = weight[:, None] * z + (1 - weight[:, None]) * z[partner]
    torch.testing.assert_close(
        network(inputs, targets, (weight, partner, {})), objective.mixed_loss(head, mixed, targets, weight, partner)
    )


def test_mixup_of_items_and_of_annotations_exclude_each_other():
    table, X, _ = blobs(30)
    with pytest.raises(DoubleMixup) as caught:
        CrowdClassifier(objective="annot-mix", mixup=0.4, epochs=1, device="cpu").fit(table, X)
    assert caught.value.mixup == 0.4


def test_a_classifier_trains_on_mixtures_unless_there_are_none():
    table, X, _ = blobs(30)

    def network(**keywords):
        return prepare_run(CrowdClassifier(objective=AnnotMix(**keywords), device="cpu"), table, X, None).network

    assert type(network()) is MixingNetwork
    assert type(network(annotation_mixup=None)) is Network


def test_an_item_of_known_class_without_annotations_has_no_part_in_mixtures():
    gold = some_gold(TABLE)
    objective = AnnotMix().fit(TABLE, gold, 0)
    np.testing.assert_array_equal(objective.train_mask_, np.diff(TABLE.item_ptr) > 0)
    with raised(AnnotationsNeeded, objective="annot-mix"):
        AnnotMix().fit(TABLE.select(rows=np.zeros(len(TABLE), bool)), gold, 0)


@pytest.mark.parametrize("name", ["annotator-heads", "annotator-embeddings", "conal", "annot-mix"])
def test_a_classifier_learns_saves_and_answers(name, tmp_path):
    table, X, truth = blobs(90, redundancy=5)
    model = CrowdClassifier(
        encoder=MLP(hidden=(16,)), objective=name, epochs=30, batch_size=16, learning_rate=0.01, device="cpu"
    ).fit(table, X)
    assert (model.predict_proba(X).argmax(axis=1) == truth).mean() > 0.9
    again = CrowdClassifier.load(model.save(tmp_path / "model").parent)
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    rows = model.predict_annotations(table, X)
    np.testing.assert_array_equal(again.predict_annotations(table, X), rows)
    same_for_all = model.predict_proba(X)[table.item]
    right = rows[np.arange(len(table)), table.label]
    assert np.log(right).sum() > np.log(same_for_all[np.arange(len(table)), table.label]).sum()


def test_rows_alone_are_trained_too():
    table, X, truth = blobs(60, redundancy=5)
    objective = AnnotatorHeads(shared=False, penalty=0.1)
    model = CrowdClassifier(encoder=Identity(), objective=objective, epochs=30, head_learning_rate=0.05, device="cpu")
    assert (model.fit(table, X).predict_proba(X).argmax(axis=1) == truth).mean() > 0.9


@pytest.mark.parametrize("name", ["annotator-embeddings", "annot-mix"])
def test_features_of_annotators_describe_those_who_were_not_there(name):
    table, X, _ = blobs(60, redundancy=5)
    frame = {"annotator": table.annotators, "trust": np.arange(table.n_annotators) % 3}
    model = CrowdClassifier(objective=name, encoder=Identity(), epochs=5, learning_rate=0.05, device="cpu")
    model.fit(table, X, annotators=frame)
    asked = {"annotator": ["one", "other"], "trust": [0, 2]}
    out = model.predict_annotator_proba(X[:4], asked)
    assert np.abs(out[:, 0] - out[:, 1]).max() > 1e-4


@pytest.mark.parametrize("name", list(objectives))
def test_every_loss_is_a_plain_function_of_dense_gradients(name):
    """AdamW with decay and clipping, in a loop of one's own."""
    objective, head, z, targets = fitted(objectives[name]())
    optimizer, losses = torch.optim.AdamW(head.parameters(), 0.02, weight_decay=0.01), []
    for _ in range(15):
        optimizer.zero_grad()
        loss = objective.loss(head, z, targets) / len(z)
        loss.backward()
        assert not any(value.grad is not None and value.grad.is_sparse for value in head.parameters())
        nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
