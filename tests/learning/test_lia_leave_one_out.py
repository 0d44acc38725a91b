"""What other items say of an item: closed forms against plain refits, and what must not leak."""

import numpy as np
import pytest
import torch

from dissensus.learning import LIA
from dissensus.learning.objectives import lia_leave_one_out
from dissensus.learning.objectives.lia_leave_one_out import PENALTIES, LeaveOneOutClasses
from dissensus.table.annotations import Annotations


def cloud(n=23, d=4, k=3, seed=0):
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, k, n)
    x = rng.normal(size=(n, d)) + np.eye(max(k, d))[truth, :d] * 3
    y = rng.dirichlet(np.full(k, 0.5), n) * 0.4 + np.eye(k)[truth] * 0.6
    return torch.as_tensor(x), torch.as_tensor(y, dtype=torch.float32), truth


@pytest.mark.parametrize("penalty", PENALTIES[1::3])
def test_left_out_is_a_refit_without_the_item(monkeypatch, penalty):
    monkeypatch.setattr(lia_leave_one_out, "PENALTIES", (penalty,))
    x, y, _ = cloud()
    taught = np.delete(np.arange(23), [4, 11])
    others, prior = LeaveOneOutClasses(x, taught), torch.tensor([0.2, 0.5, 0.3])
    found = others.log_classes(y, prior).double().numpy()
    P, centred = others.axes.double().numpy(), np.log(prior.numpy())
    slopes = []
    for i in range(23):
        rest = taught[taught != i]
        mean = P[rest].mean(axis=0)
        target = y.double().numpy()[rest]
        weights = np.linalg.solve(
            (P[rest] - mean).T @ (P[rest] - mean) + penalty * np.eye(P.shape[1]),
            (P[rest] - mean).T @ (target - target.mean(axis=0)),
        )
        away = (P[i] - mean) @ weights  # f − ȳ of a ridge regression with an intercept that has not seen item i
        if i in taught:
            slopes.append(((found[i] - centred) @ (away - away.mean())) / np.square(away - away.mean()).sum())
            expected = centred + slopes[-1] * away
            np.testing.assert_allclose(found[i] - found[i].mean(), expected - expected.mean(), atol=1e-4)
    np.testing.assert_allclose(slopes, slopes[0], rtol=1e-3)  # one a for all


def test_an_item_does_not_hear_its_own_labels():
    x, y, _ = cloud()
    others, prior = LeaveOneOutClasses(x, np.arange(23)), torch.full((3,), 1 / 3)
    before = others.log_classes(y, prior)
    y[7] = torch.tensor([0.0, 0.0, 1.0]) if y[7, 2] < 0.5 else torch.tensor([1.0, 0.0, 0.0])
    after = others.log_classes(y, prior)
    assert before[7].argmax() == after[7].argmax()
    assert (before[7] - after[7]).abs().max() < 0.5 * (before - after).abs().max()


def test_features_that_know_nothing_leave_the_prior():
    rng = np.random.default_rng(1)
    y = torch.as_tensor(rng.dirichlet([1, 1], 300), dtype=torch.float32)
    prior = torch.tensor([0.3, 0.7])
    found = LeaveOneOutClasses(torch.as_tensor(rng.normal(size=(300, 5))), np.arange(300)).log_classes(y, prior)
    assert (found.exp() - prior).abs().max() < 0.1


def test_items_that_do_not_teach_are_predicted(monkeypatch):
    monkeypatch.setattr(lia_leave_one_out, "MAX_LANDMARKS", 40)
    x, y, truth = cloud(90, 4, 3, seed=2)
    taught = np.arange(0, 90, 2)
    found = LeaveOneOutClasses(x, taught).log_classes(y, torch.full((3,), 1 / 3))
    assert (found.argmax(dim=1).numpy() == truth)[1::2].mean() > 0.8


def test_two_labels_and_good_features_beat_two_labels():
    """The network learns 4 × 60 items by heart; other items know better."""
    rng = np.random.default_rng(3)
    truth = rng.integers(0, 2, 120)
    X = rng.normal(size=(120, 200)) + truth[:, None] * 0.25
    who = np.stack([rng.permutation(12)[:2] for _ in truth])
    right = rng.random((120, 2)) < 0.68
    label = np.where(right, truth[:, None], 1 - truth[:, None])
    table = Annotations.from_arrays(np.repeat(np.arange(120), 2), who.ravel(), label.ravel())
    leave_one_out_log_h, by_heart = (LIA(steps=60, leave_one_out=kind).fit(table, X) for kind in (True, False))
    score = [(model.posterior_.argmax(axis=1) == truth).mean() for model in (leave_one_out_log_h, by_heart)]
    assert score[0] > score[1] + 0.05
