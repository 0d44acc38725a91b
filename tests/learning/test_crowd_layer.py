"""The crowd layer: its formulas as loops, the dense layer of Rodrigues & Pereira, what it reduces to, what it costs."""

import copy
from typing import get_args

import numpy as np
import pytest
import torch
from torch import nn

from dissensus import Annotations
from dissensus.exceptions import BadParameter
from dissensus.learning.exceptions import AnnotationsNeeded, VolumeWithoutMatrices
from dissensus.learning.objectives import CrowdLayer, CrowdLayerObjective, Soft
from dissensus.learning.objectives.crowd_layer import VOLUME_DIAGONAL_OFFSET, Kind, Link
from dissensus.learning.rows import RowAdam, use_row_sparse
from faults import raised
from learning.tables import fitted, log_q, sparse_table
from tables import KINDS as ROWS
from tables import some_gold

KINDS, LINKS = get_args(Kind), get_args(Link)

TABLE = sparse_table()
A, K = 7, 4


def scramble(layer: CrowdLayer, seed: int = 0) -> CrowdLayer:
    """Random parameters, none of them negative, a third of them small."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for param in layer.parameters():
            values = torch.rand(param.shape, generator=generator) * 2
            param.copy_(torch.where(torch.rand(param.shape, generator=generator) < 0.3, 0.01, values))
    return layer


def literal(layer: CrowdLayer, kind: str, link: str, p: np.ndarray, j: int) -> np.ndarray:
    """(K,) P(label) of annotator j by the formulas of the module, entry by entry."""
    n = len(p)
    w = None if layer.weight is None else layer.weight[j].detach().double().numpy()
    b = np.zeros(n) if layer.bias is None else layer.bias[j].detach().double().numpy()
    if link == "normalize":
        w, b = None if w is None else np.exp(w), b if layer.bias is None else np.exp(b)
        if kind.startswith("matrix"):
            w = (w.reshape(n, n) / [sum(w[given * n + true] for given in range(n)) for true in range(n)]).ravel()
    scores = np.zeros(n)
    for given in range(n):
        if kind.startswith("matrix"):
            scores[given] = sum(w[given * n + true] * p[true] for true in range(n)) + b[given]
        else:
            scores[given] = (1 if w is None else w[given]) * p[given] + b[given]
    if link == "normalize":
        return scores / scores.sum()
    for _ in range(2 if link == "softmax-twice" else 1):
        scores = np.exp(scores) / np.exp(scores).sum()
    return scores


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("kind", KINDS)
def test_probabilities_are_those_of_the_formulas(kind, link):
    layer = scramble(CrowdLayer(A, K, kind, link))
    p = np.random.default_rng(1).dirichlet(np.ones(K), 5)
    row, annotator = torch.tensor([4, 0, 0, 2, 4, 1]), torch.tensor([6, 0, 3, 3, 1, 6])
    out = layer(torch.as_tensor(p).float().log(), row, annotator).exp().detach().numpy()
    for n in range(6):
        np.testing.assert_allclose(out[n], literal(layer, kind, link, p[row[n]], int(annotator[n])), rtol=1e-5)


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", ROWS)
def test_loss_is_the_literal_sum_over_the_annotations(rows, kind, link):
    table, gold = sparse_table(**ROWS[rows]), some_gold(TABLE)
    objective, head, z, targets = fitted(CrowdLayerObjective(kind=kind, link=link), table, gold)
    scramble(head.crowd)
    q, expected = np.exp(log_q(objective, head, z)), 0.0
    for n in range(table.n_annotations):
        expected_proba = literal(head.crowd, kind, link, q[table.item[n]], table.annotator[n])
        shares = np.eye(K)[table.label[n]] if table.proba is None else table.proba[n]
        expected -= (1 if table.weight is None else table.weight[n]) * (shares @ np.log(expected_proba))
    expected -= sum(np.log(q[i, gold[i]]) for i in range(table.n_items) if gold[i] >= 0)
    np.testing.assert_allclose(objective.loss(head, z, targets).item(), expected, rtol=1e-4)
    np.testing.assert_array_equal(objective.train_mask_, (table.votes().sum(axis=1) > 0) | (gold >= 0))


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_those_of_finite_differences(kind, link):
    layer = scramble(CrowdLayer(3, K, kind, link)).double()
    row, annotator = torch.tensor([1, 0, 1, 1]), torch.tensor([2, 0, 0, 2])
    mixed = torch.randn(4, K, generator=torch.Generator().manual_seed(2)).double()
    logits = torch.randn(2, K, generator=torch.Generator().manual_seed(3)).double()
    names = [name for name in ("weight", "bias") if getattr(layer, name) is not None]

    def loss(x, *values):
        log_p = torch.log_softmax(x, dim=1)
        weight, bias = (dict(zip(names, values, strict=True)).get(name, None) for name in ("weight", "bias"))
        picked = (None if table is None else table[annotator] for table in (weight, bias))
        return (layer.label_log_proba(log_p[row], *picked) * mixed).sum()

    values = [p.detach().clone().requires_grad_() for p in layer.parameters()]
    assert torch.autograd.gradcheck(loss, [logits.requires_grad_(), *values])


class Dense(nn.Module):
    """The layer as Rodrigues & Pereira made it: all annotators for all items, and a mask for labels not given."""

    def __init__(self, layer: CrowdLayer):
        super().__init__()
        self.kernel = nn.Parameter(layer.weight.detach().reshape(-1, K, K).permute(2, 1, 0).clone())  # (true, given, A)

    def forward(self, p: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        """Masked multi cross entropy; label (B, A), −1 not given."""
        out = torch.einsum("bk,kla->bla", p, self.kernel)  # (B, K, A)
        each = nn.functional.cross_entropy(out, label.clamp(min=0), reduction="none")  # (B, A)
        return torch.where(label >= 0, each, 0).sum()


def test_gradients_equal_those_of_the_dense_masked_layer():
    rng = np.random.default_rng(3)
    label = np.where(rng.random((9, A)) < 0.4, rng.integers(0, K, (9, A)), -1)
    label[:, 5] = -1  # one annotator without labels
    table = Annotations.from_matrix(label, classes=K)
    objective, head, z, targets = fitted(CrowdLayerObjective(link="softmax"), table)
    dense = Dense(scramble(head.crowd))
    use_row_sparse(head)
    z.requires_grad_()
    ours = objective.loss(head, z, targets)
    ours.backward()
    grad = z.grad.clone()
    z.grad = None
    theirs = dense(torch.softmax(head(z), dim=1), torch.as_tensor(label))
    theirs.backward()
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(grad, z.grad)
    sparse = head.crowd.weight.grad.coalesce()
    torch.testing.assert_close(sparse.to_dense().reshape(A, K, K), dense.kernel.grad.permute(2, 1, 0))
    assert sparse.indices().tolist() == [[0, 1, 2, 3, 4, 6]]
    # what is computed: K² per label that was given, against K² per cell of the matrix
    assert sparse.values().numel() <= targets["label"].numel() * K * K < label.size * K * K


@pytest.mark.parametrize("rows", ROWS)
def test_frozen_identity_under_normalize_is_soft_cross_entropy_weighted_by_votes(rows):
    table, results = sparse_table(**ROWS[rows]), []
    for objective in (
        CrowdLayerObjective(trainable=False, start=60.0),
        Soft(labels="normalized", divergence="ce", weight="votes"),
    ):
        objective, head, z, targets = fitted(objective, table)
        z.requires_grad_()
        loss = objective.loss(head, z, targets)
        loss.backward()
        main = getattr(head, "main", head)
        results.append([loss.detach(), z.grad, *(p.grad for p in main.parameters())])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_a_frozen_layer_has_no_gradient_and_is_not_moved():
    objective, head, z, targets = fitted(CrowdLayerObjective(trainable=False, start=1.0))
    objective.loss(head, z, targets).backward()
    assert torch.equal(head.crowd.weight, torch.eye(K).reshape(1, -1).repeat(A, 1))
    assert head.crowd.weight.grad is None


def test_certainty_about_the_class_is_far_from_it_about_the_label_under_softmax():
    layer = CrowdLayer(1, 8, link="softmax")
    log_p = torch.where(torch.arange(8) == 3, 0.0, -torch.inf)[None]
    out = layer(log_p, torch.tensor([0]), torch.tensor([0])).exp()[0, 3].item()
    assert out == pytest.approx(np.e / (np.e + 7))
    assert round(out, 2) == 0.28


@pytest.mark.parametrize("n_classes", [2, 8])
def test_everybody_starts_right_four_times_of_five_under_normalize(n_classes):
    layer, certain = CrowdLayer(3, n_classes), torch.eye(n_classes).log()
    every = torch.arange(n_classes)
    out = layer(certain, every, torch.full((n_classes,), 1)).exp().detach()
    off = 0.2 / (n_classes - 1)
    torch.testing.assert_close(out, torch.full_like(out, off) + (0.8 - off) * torch.eye(n_classes))
    alone = CrowdLayer(3, n_classes, "bias")(certain, every, torch.full((n_classes,), 1)).exp().detach()
    torch.testing.assert_close(alone, 0.8 * torch.eye(n_classes) + 0.2 / n_classes)


def labels_of_one_who_calls_0_a_1(layer: CrowdLayer) -> torch.Tensor:
    """(K,) P of the labels of annotator 1, of items whose classes are nearly certain."""
    log_p, every = torch.log_softmax(torch.eye(K) * 6, dim=1), torch.arange(K)
    return layer(log_p, every, torch.full((K,), 1))[every, torch.tensor([1, 1, 2, 3])].exp()


@pytest.mark.parametrize("sparse", [False, True])
def test_a_habit_is_learnt_and_others_stay(sparse):
    layer = CrowdLayer(3, K)
    before = layer.weight.detach().clone()
    use_row_sparse(layer, sparse)
    optimizer = (RowAdam if sparse else torch.optim.Adam)(layer.parameters(), 0.05)
    for _ in range(300):
        optimizer.zero_grad()
        (-labels_of_one_who_calls_0_a_1(layer).log().sum()).backward()
        optimizer.step()
    assert (labels_of_one_who_calls_0_a_1(layer) > 0.97).all()
    assert torch.equal(layer.weight[[0, 2]], before[[0, 2]])


OPTIMIZERS = {
    "adam": lambda params: torch.optim.Adam(params, 0.05, weight_decay=1e-3),
    "adamw": lambda params: torch.optim.AdamW(params, 0.05, weight_decay=0.1),
    "sgd": lambda params: torch.optim.SGD(params, 0.5, momentum=0.9, nesterov=True),
}


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_any_optimizer_with_decay_and_clipping_trains_it_and_it_stays_a_probability(name, link):
    layer = CrowdLayer(3, K, "matrix-bias", link)
    optimizer, losses = OPTIMIZERS[name](layer.parameters()), []
    for _ in range(60):
        optimizer.zero_grad()
        loss = -labels_of_one_who_calls_0_a_1(layer).log().sum()
        loss.backward()
        nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.1
    every = layer(torch.log_softmax(torch.randn(5, K), dim=1), torch.arange(5), torch.tensor([0, 1, 2, 1, 0])).exp()
    torch.testing.assert_close(every.sum(dim=1), torch.ones(5))
    assert (every > 0).all()


@pytest.mark.parametrize("volume", ["classes", "annotators"])
def test_volume_is_the_literal_determinant(volume):
    plain, head, z, targets = fitted(CrowdLayerObjective(), gold=some_gold(TABLE))
    with_volume = CrowdLayerObjective(volume=volume, volume_weight=0.3).fit(TABLE, some_gold(TABLE), 0)
    scramble(head.crowd)
    gram = VOLUME_DIAGONAL_OFFSET * np.eye(K)
    if volume == "classes":
        for p in np.exp(log_q(plain, head, z)):
            gram += np.outer(p, p)
    else:
        for j in sorted(set(TABLE.annotator.tolist())):
            w = np.stack([literal(head.crowd, "matrix", "normalize", np.eye(K)[true], j) for true in range(K)], axis=1)
            gram += w.T @ w
    expected = plain.loss(head, z, targets).item() - TABLE.n_items * 0.3 * np.log(np.linalg.det(gram))
    np.testing.assert_allclose(with_volume.loss(head, z, targets).item(), expected, rtol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_a_network_that_is_sure_and_wrong_still_learns(kind):
    layer = CrowdLayer(1, K, kind, "normalize")
    logits = torch.tensor([[300.0, 0.0, 0.0, 0.0]], requires_grad=True)  # p of class 2 is below what a float holds
    out = layer(torch.log_softmax(logits, dim=1), torch.tensor([0]), torch.tensor([0]))[0, 2]
    (-out).backward()
    assert torch.isfinite(out)
    for param in layer.parameters():
        assert torch.isfinite(param.grad).all()
        assert param.grad.abs().max() > 0
    assert torch.isfinite(logits.grad).all()
    if kind == "vector":  # nothing else explains the label
        assert logits.grad[0, 2] == pytest.approx(-1)


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("kind", KINDS)
def test_label_proba_and_confusion(kind, link):
    table = Annotations.from_arrays(
        [0, 0, 1, 2, 2, 2], [0, 1, 1, 3, 3, 0], [0, 1, 2, 2, 3, 1], classes=K, annotators=np.arange(5),
        weight=[1, 2, 1, 1, 0.5, 3],
    )  # fmt: skip
    objective, head, z, _ = fitted(CrowdLayerObjective(kind=kind, link=link), table)
    scramble(head.crowd)
    q = np.exp(log_q(objective, head, z))
    out = objective.label_proba(head, z, torch.tensor([3, -1, 0, 2])).detach().numpy()
    assert out.shape == (3, 4, K)
    mean = copy.deepcopy(head.crowd)
    share = np.array([4, 3, 0, 1.5, 0]) / 8.5
    with torch.no_grad():
        for param in mean.parameters():
            param[0] = torch.as_tensor(share @ param.double().numpy())
    for i in range(3):
        np.testing.assert_allclose(out[i, 0], literal(head.crowd, kind, link, q[i], 3), rtol=1e-4)
        np.testing.assert_allclose(out[i, 2], literal(head.crowd, kind, link, q[i], 0), rtol=1e-4)
        for newcomer in (1, 3):  # unseen, and known without a label
            np.testing.assert_allclose(out[i, newcomer], literal(mean, kind, link, q[i], 0), rtol=1e-4)


def test_items_of_known_class_without_annotations_are_taught_alone_in_a_batch():
    gold = some_gold(TABLE)
    objective, head, z, _ = fitted(CrowdLayerObjective(), gold=gold)
    use_row_sparse(head)
    at = np.flatnonzero((np.diff(TABLE.item_ptr) == 0) & (gold >= 0))
    assert at.size
    loss = objective.loss(head, z[at], objective.targets().take(torch.as_tensor(at)))
    loss.backward()
    np.testing.assert_allclose(loss.item(), -sum(log_q(objective, head, z)[i, gold[i]] for i in at), rtol=1e-5)
    RowAdam([head.crowd.weight]).step()


def test_autocast_changes_no_digit_of_the_layer():
    layer = scramble(CrowdLayer(A, K))
    log_p, row = torch.log_softmax(torch.randn(5, K), dim=1), torch.tensor([4, 0, 2])
    plain = layer(log_p, row, torch.tensor([1, 2, 6]))
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(plain, layer(log_p, row, torch.tensor([1, 2, 6])))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("link", LINKS)
def test_steps_on_a_device_are_those_of_the_processor(link):
    results = []
    for device in ("cpu", "cuda"):
        objective, head, z, _ = fitted(CrowdLayerObjective(kind="matrix-bias", link=link), gold=some_gold(TABLE))
        head, z, columns = head.to(device), z.to(device), objective.targets().to(device)
        use_row_sparse(head)
        optimizer = RowAdam(head.crowd.parameters(), 0.05)
        for step in range(5):
            optimizer.zero_grad()
            at = torch.arange(step, TABLE.n_items, 2, device=device)
            objective.loss(head, z[at], columns.take(at)).backward()
            optimizer.step()
        annotators = torch.tensor([0, -1, 5], device=device)
        results.append((head.crowd.weight, head.crowd.bias, objective.label_proba(head, z, annotators)))
        results[-1] = [tensor.detach().cpu() for tensor in results[-1]]
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def test_rows_are_marked_also_in_a_copy():
    layer = CrowdLayer(A, K, "matrix-bias")
    for one in (layer, copy.deepcopy(layer), layer.double()):
        assert [param.row_sparse for param in one.parameters()] == [True, True]


def test_what_cannot_be_done_is_said():
    with raised(BadParameter, keyword="kind"):
        CrowdLayerObjective(kind="tensor").fit(TABLE, None, 0)
    with raised(BadParameter, keyword="link"):
        CrowdLayer(2, 2, link="sigmoid")
    with raised(VolumeWithoutMatrices, kind="vector", link="normalize"):
        CrowdLayerObjective(kind="vector", volume="annotators").fit(TABLE, None, 0)
    empty = Annotations.from_arrays([], [], [], classes=["a", "b"], items=["x", "y"])
    with raised(AnnotationsNeeded, objective="crowd-layer"):
        CrowdLayerObjective().fit(empty, np.array([0, 1]), 0)


def test_the_dense_layer_works_on_a_hundred_times_more_numbers():
    n_annotators, batch = 5000, 8
    sizes = {}
    layer = CrowdLayer(n_annotators, K, link="softmax")
    use_row_sparse(layer)
    log_p = torch.log_softmax(torch.randn(batch, K), dim=1)
    row, annotator = torch.arange(batch).repeat_interleave(5), torch.randint(0, n_annotators, (5 * batch,))
    label = torch.full((batch, n_annotators), -1)
    label[row, annotator] = 0
    for name, run in (
        ("ours", lambda: -layer(log_p, row, annotator)[:, 0].sum()),
        ("dense", lambda: Dense(layer)(log_p.exp(), label)),
    ):
        kept = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, kept=kept: kept.append(t.numel()) or t, lambda t: t):
            run().backward()
        sizes[name] = sum(kept)
    assert sizes["dense"] > 100 * sizes["ours"]
