"""LIA: its equations as loops, what it reduces to (Dawid-Skene, MMCE), its rounds, and that they go on after a kill."""

import copy
import itertools

import numpy as np
import pytest
import torch
from scipy.special import logsumexp, softmax
from torch import nn

from crowds import blobs
from dissensus import Annotations
from dissensus.exceptions import BadParameter
from dissensus.learning import CrowdClassifier
from dissensus.learning.encoders import MLP, Identity
from dissensus.learning.exceptions import AnnotationsNeeded, NoTrainingStage
from dissensus.learning.network import Network
from dissensus.learning.objectives import LIAObjective
from dissensus.learning.objectives.lia import CLASS_PSEUDO_VOTES
from dissensus.learning.rows import use_row_sparse
from dissensus.models.methods.dawid_skene import DawidSkene
from dissensus.models.methods.mmce import MMCE
from faults import raised
from learning.tables import fitted, sparse_table
from tables import KINDS as ROWS
from tables import some_gold

A, K = 7, 4
FREE = {"penalty": 0, "residual_penalty": 0, "difficulty_penalty": 0, "leave_one_out": False}
FORMS = {
    "plain": {},
    "one-hot": {"annotator_size": None},
    "latent": {"latent": 3},
    "easy": {"difficulty": False, "annotator_size": 5},
}


def scrambled(objective: LIAObjective, table=None, gold=None):
    """As `fitted`, with annotators that differ."""
    objective, head, z, targets = fitted(objective, table, gold)
    with torch.no_grad():
        head.competence.table.weight.add_(torch.randn(head.competence.table.weight.shape))
    return objective, head, z, targets


def literal_own(head, j):
    """(K·K·L,) V u_j."""
    u = head.competence.table.weight[j].detach().double().numpy()
    return u if head.competence.linear is None else head.competence.linear.weight.detach().double().numpy() @ u


def literal_confusion(objective, head, z, i, j):
    """(K, K) Q_ij by the module's formula, entry by entry."""
    able = literal_own(head, j) + head.competence.crowd.detach().double().numpy()
    hard = np.zeros_like(able)
    if head.difficulty is not None:
        hard = head.difficulty(z[i : i + 1])[0].detach().double().numpy()
    D, C = hard.reshape(K, K, objective.latent), able.reshape(K, K, objective.latent)
    Q = np.zeros((K, K))
    for k, given in itertools.product(range(K), range(K)):
        Q[k, given] = sum(np.exp(D[k, given, m] + C[k, given, m]) for m in range(objective.latent))
    return Q / Q.sum(axis=1, keepdims=True)


def literal_parts(objective, head, z, table):
    """log h (I, K), and of every row: its weight, log Q [·, y] (K,), Q."""
    log_h = torch.log_softmax(head(z), dim=1).detach().double().numpy()
    rows = []
    for n in range(table.n_annotations):
        Q = literal_confusion(objective, head, z, table.item[n], table.annotator[n])
        shares = np.eye(K)[table.label[n]] if table.proba is None else table.proba[n]
        rows.append((1.0 if table.weight is None else table.weight[n], np.log(Q) @ shares, Q))
    return log_h, rows


def literal_posterior(log_h, rows, table, gold, *, truth=True):
    q = np.zeros((table.n_items, K))
    for i in range(table.n_items):
        log_q = log_h[i].copy() if truth or i not in table.item else np.zeros(K)
        for n in np.flatnonzero(table.item == i):
            log_q += rows[n][0] * rows[n][1]
        q[i] = softmax(log_q)
        if gold[i] >= 0:
            q[i] = np.eye(K)[gold[i]]
    return q


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rows", ROWS)
def test_e_step_is_the_literal_loop(rows, form):
    table = sparse_table(**ROWS[rows])
    gold = some_gold(table)
    for truth in (True, False):
        objective = LIAObjective(truth_in_posterior=truth, **FORMS[form])
        objective, head, z, targets = scrambled(objective, table, gold)
        found = objective.log_posterior(head, z, targets).softmax(dim=1).detach().numpy()
        expected = literal_posterior(*literal_parts(objective, head, z, table), table, gold, truth=truth)
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rows", ROWS)
def test_m_step_loss_is_the_literal_sum(rows, form):
    table = sparse_table(**ROWS[rows])
    gold = some_gold(table)
    for counts in ("items", "annotations"):
        keywords = {"penalty": 0.7, "entropy": 0.3, "truth_counts": counts, **FORMS[form]}
        keywords |= {"residual_penalty": 0.4, "difficulty_penalty": 0.6}
        objective, head, z, targets = scrambled(LIAObjective(**keywords), table, gold)
        q = np.random.default_rng(3).dirichlet(np.ones(K), table.n_items)
        head.q.copy_(torch.as_tensor(q))
        log_h, parts = literal_parts(objective, head, z, table)
        per_item = sum(weight for weight, _, _ in parts) / np.unique(table.item).size
        expected = 0.0
        for i in range(table.n_items):
            mine = np.flatnonzero(table.item == i)
            times = 1.0 if counts == "items" else sum(parts[n][0] for n in mine)
            for k in range(K):
                expected -= q[i, k] * (times * log_h[i, k] + sum(parts[n][0] * parts[n][1][k] for n in mine))
                expected += 0.3 * np.exp(log_h[i, k]) * log_h[i, k]
        for weight, _, Q in parts:
            expected += 0.7 / per_item * weight * 4 / K**2 * (np.log(Q) ** 2).sum()
        given = {j for j, (weight, _, _) in zip(table.annotator, parts, strict=True) if weight > 0}
        expected += 0.4 / 2 * sum((literal_own(head, j) ** 2).sum() for j in given)
        if head.difficulty is not None:
            expected += 0.6 / 2 * (head.difficulty(z).detach().double().numpy() ** 2).sum()
        np.testing.assert_allclose(objective.loss(head, z, targets).item(), expected, rtol=1e-4)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rows", ROWS)
def test_marginal_losses_are_the_literal_sums(rows, form):
    table = sparse_table(**ROWS[rows])
    gold = some_gold(table)
    for kind in ("joint", "per-annotation"):
        objective, head, z, targets = scrambled(LIAObjective(finetune=kind, **FREE, **FORMS[form]), table, gold)
        head.is_finetuning = True
        log_h, parts = literal_parts(objective, head, z, table)
        expected = 0.0
        for i in range(table.n_items):
            classes = [gold[i]] if gold[i] >= 0 else range(K)
            mine = np.flatnonzero(table.item == i)
            if kind == "joint" or gold[i] >= 0:
                joint = [log_h[i, k] + sum(parts[n][0] * parts[n][1][k] for n in mine) for k in classes]
                expected -= logsumexp(joint)
            else:
                for n in mine:
                    expected -= parts[n][0] * logsumexp([log_h[i, k] + parts[n][1][k] for k in classes])
        np.testing.assert_allclose(objective.loss(head, z, targets).item(), expected, rtol=1e-4)


@pytest.mark.parametrize("form", FORMS)
def test_at_the_e_step_the_bound_has_the_gradient_of_the_marginal_likelihood(form):
    """Fisher's identity, with penalty, weights, probabilities and gold."""
    table = sparse_table(**ROWS["both"])
    objective, head, z, targets = scrambled(LIAObjective(penalty=0.4, **FORMS[form]), table, some_gold(table))
    head, z = head.double(), z.double().requires_grad_()
    with torch.no_grad():
        head.q.copy_(objective.log_posterior(head, z, targets).softmax(dim=1))
    parameters = [z, *head.parameters()]
    grads = []
    for head.is_finetuning in (False, True):
        found = torch.autograd.grad(objective.loss(head, z, targets), parameters)
        grads.append([g.to_dense() if g.is_sparse else g for g in found])
    assert all(g.abs().max() > 1e-3 for g in grads[0])
    for bound, marginal in zip(*grads, strict=True):
        torch.testing.assert_close(bound, marginal, rtol=1e-6, atol=1e-6)  # proba and weight are single precision


def test_certain_probabilities_are_labels():
    table = sparse_table()
    same = Annotations.from_arrays(
        table.item, table.annotator, None, proba=np.eye(K)[table.label], classes=K,
        items=np.arange(table.n_items), annotators=np.arange(A),
    )  # fmt: skip
    losses = []
    for one in (table, same):
        objective, head, z, targets = scrambled(LIAObjective(), one)
        head.q.fill_(0.25)
        losses.append(objective.loss(head, z, targets).item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


# What it reduces to ---------------------------------------------------------------------------------------------------


def crowd(seed=0, n=300, annotators=6, classes=3):
    """A full table whose annotators make every mistake many times, and the truth."""
    rng = np.random.default_rng(seed)
    truth = rng.choice(classes, n, p=[0.5, 0.3, 0.2][:classes])
    confusion = rng.dirichlet(np.full(classes, 4.0), (annotators, classes)) * 0.5 + 0.5 * np.eye(classes)
    label = np.array([[rng.choice(classes, p=confusion[j, t]) for j in range(annotators)] for t in truth])
    return Annotations.from_matrix(label, classes=classes), truth


@pytest.mark.parametrize("way", ["em", "em-tuned", "marginal"])
def test_constant_h_and_one_hot_annotators_are_dawid_skene(way):
    table, _ = crowd()
    reference = DawidSkene(
        crowd_labels=0, smoothing=1e-9, least_labels=0, class_count=1e-9, vote_count=0, max_iter=5000, tol=1e-13,
        dependence=None,
    ).fit(table)  # fmt: skip
    schedule = {
        "em": {"rounds": 60, "finetune": None},
        "em-tuned": {"rounds": 5, "finetune_share": 0.75},
        "marginal": {"rounds": 0},
    }[way]
    model = CrowdClassifier(
        encoder=Identity(), objective=LIAObjective(annotator_size=None, difficulty=False, **FREE, **schedule),
        optimizer="amsgrad", learning_rate=0.03, head_learning_rate=0.03, schedule="cosine", epochs=600, batch_size=300,
        device="cpu",
    ).fit(table, np.zeros((300, 1)))  # fmt: skip
    objective, head = model.objective_, model.network_.head
    everyone = torch.arange(6)
    with torch.no_grad():
        confusion = objective.all_pair_confusions(head, torch.zeros(1, 1), everyone)[0].numpy()
    np.testing.assert_allclose(confusion, reference.confusion_, atol=1e-3)
    np.testing.assert_allclose(model.proba_[0], reference.prior_, atol=1e-3)
    np.testing.assert_allclose(model.posterior_, reference.posterior_, atol=1e-3)


class Fixed(nn.Module):
    """(B, …) → the same row for everything."""

    def __init__(self, row):
        super().__init__()
        self.row = nn.Parameter(row)

    def forward(self, z):
        return self.row.expand(len(z), -1)


def test_additive_form_is_mmce():
    """L = 1, one-hot annotators σ_j, a D_i = τ_i of its own for every item, constant h = π.

    MMCE's evidence is then the joint marginal likelihood, its posterior the E step, and its optimum that of the
    marginal likelihood with −α/2 Σ|σ|² − β/2 Σ|τ|² in the place of the penalty on log Q.
    """
    table, _ = crowd(n=80)
    reference = MMCE(centre="zero", class_prior="uniform", max_iter=20000, tol=1e-14, dependence=None).fit(table)
    n, k = table.n_items, table.n_classes
    tau = np.zeros((n * k, k))
    tau[reference.item_effect_cell_] = reference.item_effect_
    objective = LIAObjective(annotator_size=None, **FREE).fit(table, None, 0)
    head = objective.head(nn.Identity, k * k).double()
    head.truth, head.difficulty = Fixed(torch.zeros(k).double()), nn.Identity()
    with torch.no_grad():
        head.competence.table.weight.copy_(torch.as_tensor(reference.annotator_effect_).reshape(-1, k * k))
        head.competence.crowd.zero_()
    head.is_finetuning = True
    z = torch.as_tensor(tau.reshape(n, k * k)).requires_grad_()
    targets = objective.targets().take(torch.arange(n))
    posterior = objective.log_posterior(head, z, targets).softmax(dim=1).detach().numpy()
    np.testing.assert_allclose(posterior, reference.posterior_, atol=1e-4)
    alpha = reference.annotator_penalty(k)
    beta = reference.item_penalty_
    sigma = head.competence.table.weight
    objective_value = objective.loss(head, z, targets) + alpha / 2 * (sigma**2).sum() + beta / 2 * (z**2).sum()
    assert -objective_value.item() == pytest.approx(reference.trace_[-1], abs=1e-3)
    by_z, by_sigma = torch.autograd.grad(objective_value, [z, sigma])
    by_z = by_z.reshape(n * k, k)[reference.item_effect_cell_]
    assert by_z.abs().max() < 2e-3
    assert by_sigma.to_dense().abs().max() < 0.02  # of counts of 80 labels


# Rounds ---------------------------------------------------------------------------------------------------------------


def test_epochs_are_shared_out_among_the_rounds():
    lia = LIAObjective(rounds=3, finetune_share=0.25)
    assert [lia.stage(e, 12) for e in range(12)] == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    lia = LIAObjective(rounds=3, finetune=None)
    assert [lia.stage(e, 7) for e in range(7)] == [0, 0, 0, 1, 1, 2, 2]
    lia = LIAObjective(rounds=0)
    assert [lia.stage(e, 3) for e in range(3)] == [0, 0, 0]


def test_a_round_begins_with_an_e_step_and_the_first_with_the_votes():
    table = sparse_table()
    gold = some_gold(table)
    objective, head, z, targets = scrambled(LIAObjective(rounds=2, finetune_share=0.5), table, gold)
    asked = []

    def walk():
        asked.append(1)
        yield z, targets

    seen = []
    for epoch in range(8):
        with torch.no_grad():
            if objective.needs_begin_epoch(epoch, 8):
                objective.begin_epoch(head, epoch, 8, walk)
            seen.append((len(asked), head.is_finetuning, head.q.clone()))
            head.truth[-1].bias.add_(torch.randn(K))
    assert [n for n, _, _ in seen] == [1, 1, 2, 2, 2, 2, 2, 2]
    assert [m for _, m, _ in seen] == [False] * 4 + [True] * 4
    votes = table.soft_labels()
    votes[gold >= 0] = np.eye(K)[gold[gold >= 0]]
    np.testing.assert_allclose(seen[0][2], votes, atol=1e-6)
    assert torch.equal(seen[2][2], seen[7][2])
    assert (seen[2][2] - seen[0][2]).abs().max() > 0.1


class Watched(LIAObjective):
    """Notes the joint marginal log likelihood where a round begins."""

    seen: list[float] = []  # noqa: RUF012

    def begin_epoch(self, head, epoch, epochs, walk):
        if epoch == 0 or self.stage(epoch, epochs) != self.stage(epoch - 1, epochs):
            head.is_finetuning = True
            self.seen.append(-sum(self.loss(head, z, targets).item() for z, targets in walk()))
        super().begin_epoch(head, epoch, epochs, walk)


@pytest.mark.parametrize("penalty", [0.0, 0.25])
def test_marginal_likelihood_does_not_fall_from_round_to_round(penalty):
    table, X, _ = blobs(120)
    Watched.seen = []
    CrowdClassifier(
        encoder=MLP(hidden=(8,), dropout=0), objective=Watched(rounds=12, penalty=penalty, finetune_share=0.2),
        epochs=240, batch_size=120, learning_rate=0.01, device="cpu",
    ).fit(table, X)  # fmt: skip
    gains = np.diff(Watched.seen[1:])  # the first round's target are the votes, no posterior
    assert len(gains) == 11
    assert gains.min() > -0.05
    assert gains.sum() > 1


@pytest.mark.parametrize("stop", [3, 7, 14, 22])
def test_a_run_that_was_killed_within_a_round_goes_on_to_the_same_bits(tmp_path, stop):
    table, X, _ = blobs()

    class Killed(Exception):
        pass

    class Mortal(LIAObjective):
        steps = 0

        def loss(self, *args):
            type(self).steps += 1
            if type(self).steps > stop:
                raise Killed
            return super().loss(*args)

    def model(kind, **keywords):
        return CrowdClassifier(
            encoder=MLP(hidden=(8,), dropout=0.3), objective=kind(rounds=3, finetune_share=0.25), optimizer="amsgrad",
            epochs=8,
            batch_size=20, device="cpu", mixup=0.3, **keywords,
        )  # fmt: skip

    LIAObjective.__repr__ = lambda _: "lia"  # the checkpoint's key; of both classes
    try:
        whole = model(LIAObjective).fit(table, X)
        with pytest.raises(Killed):
            model(Mortal, checkpoint=tmp_path, checkpoint_every=0).fit(table, X)
        again = model(LIAObjective, checkpoint=tmp_path).fit(table, X)
    finally:
        del LIAObjective.__repr__
    for name, value in whole.network_.state_dict().items():
        assert torch.equal(value, again.network_.state_dict()[name]), name
    assert np.array_equal(whole.posterior_, again.posterior_)


# Annotators -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_label_probabilities_are_those_of_the_formula(form):
    objective, head, z, _ = scrambled(LIAObjective(**FORMS[form]))
    found = objective.label_proba(head, z[:3], torch.tensor([5, -1, 2])).detach().numpy()
    h = torch.log_softmax(head(z), dim=1).exp().detach().numpy()
    for i, (place, j) in itertools.product(range(3), [(0, 5), (2, 2)]):
        np.testing.assert_allclose(found[i, place], h[i] @ literal_confusion(objective, head, z, i, j), rtol=1e-4)
    share = objective.label_totals_ / objective.label_totals_.sum()
    with torch.no_grad():
        head.competence.table.weight[0] = torch.as_tensor(share) @ head.competence.table.weight
    for i in range(3):
        np.testing.assert_allclose(found[i, 1], h[i] @ literal_confusion(objective, head, z, i, 0), rtol=1e-4)


def test_gradients_hold_only_the_annotators_of_the_batch():
    objective, head, z, _ = fitted(LIAObjective())
    targets = objective.targets().take(torch.tensor([3, 5]))
    head.q.fill_(0.25)
    use_row_sparse(head)
    objective.loss(head, z[[3, 5]], targets).backward()
    table = head.competence.table.weight
    assert table.row_sparse
    assert set(table.grad.coalesce().indices()[0].tolist()) == set(targets["annotator"].tolist())
    assert len(set(targets["annotator"].tolist())) < A


def test_a_copy_knows_that_its_gradients_are_of_few_rows():
    _, head, _, _ = fitted(LIAObjective())
    assert copy.deepcopy(head).competence.table.weight.row_sparse


def test_held_out_items_have_a_posterior_of_their_labels_too():
    table, X, truth = blobs(100)
    model = CrowdClassifier(
        encoder=MLP(hidden=(8,)), objective=LIAObjective(), epochs=30, batch_size=20, head_learning_rate=0.01,
        device="cpu",
    ).fit(table, np.zeros_like(X), validation=0.3)  # fmt: skip
    held = model.held_out_
    assert held.sum() == 30
    assert (model.posterior_.argmax(axis=1) == truth)[held].mean() > 0.85  # the features say nothing


def test_h_starts_near_the_shares_of_the_votes():
    _, head, _, _ = fitted(LIAObjective())
    table = sparse_table()
    votes = table.soft_labels()[np.diff(table.item_ptr) > 0].sum(axis=0) + CLASS_PSEUDO_VOTES / K
    np.testing.assert_allclose(head.truth[-1].bias.exp().detach(), votes / votes.sum(), rtol=1e-5)


def test_saved_and_loaded_says_the_same(tmp_path):
    table, X, truth = blobs()
    gold = np.where(np.arange(60) % 5 == 0, truth, -1)
    model = CrowdClassifier(encoder=MLP(hidden=(8,)), objective="lia", epochs=6, device="cpu").fit(table, X, gold=gold)
    assert (model.posterior_.argmax(axis=1) == truth)[gold >= 0].all()
    np.testing.assert_array_equal(model.posterior_[gold >= 0].max(axis=1), 1)
    model.save(tmp_path)
    again = CrowdClassifier.load(tmp_path, device="cpu")
    who = ["w3", "nobody"]
    assert np.array_equal(model.predict_annotator_proba(X, who), again.predict_annotator_proba(X, who))
    assert again.network_.head.is_finetuning
    assert torch.equal(model.network_.head.q, again.network_.head.q)


@pytest.mark.parametrize(
    "keywords",
    [
        {"rounds": -1}, {"latent": 0}, {"rounds": "many"}, {"penalty": "big"}, {"finetune_share": None},
        {"annotator_size": 0},
        {"penalty": -1}, {"entropy": float("inf")}, {"finetune_share": 1.5}, {"finetune": "both"},
        {"truth_counts": "votes"},
    ],
)  # fmt: skip
def test_bad_keywords_are_named(keywords):
    with raised(BadParameter, keyword=next(iter(keywords))):
        LIAObjective(**keywords).fit(sparse_table(), None, 0)


def test_rounds_or_tuning_are_needed():
    with pytest.raises(NoTrainingStage):
        LIAObjective(rounds=0, finetune=None).fit(sparse_table(), None, 0)


def test_no_annotations_is_an_error():
    table = sparse_table().select(rows=np.zeros(41, bool))
    with raised(AnnotationsNeeded, objective="lia"):
        LIAObjective().fit(table, np.zeros(table.n_items, int), 0)


def test_e_step_is_made_without_dropout():
    table = sparse_table()
    objective, head, z, targets = scrambled(LIAObjective(rounds=2, finetune=None), table)
    network = Network(nn.Dropout(0.5), head, objective, mixes_inputs=False).train()

    def walk():
        yield {"input": z}, targets, None

    network.begin_epoch(1, 2, walk)
    assert network.training
    torch.testing.assert_close(head.q, objective.log_posterior(head, z, targets).softmax(dim=1))
