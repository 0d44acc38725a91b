"""What gold says about the judges of a panel."""

import numpy as np
import pytest

from dissensus import Annotations, methods
from dissensus.models.gold_weights import Panel, fit_laplace, panel_judges
from dissensus.table.simulate import simulate

SKILL = np.array([0.9, 0.6, 0.6, 0.55, 0.55])


def panel(n_items=900, K=2, seed=0, missing=0.1):
    """Judges of known skill, some labels missing; the truth."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, K, n_items)
    wrong = (truth[:, None] + rng.integers(1, K, (n_items, SKILL.size))) % K
    said = np.where(rng.random(wrong.shape) < SKILL, truth[:, None], wrong)
    item, judge = np.nonzero(rng.random(said.shape) > missing)
    return Annotations.from_arrays(item, judge, said[item, judge], classes=K, items=range(n_items)), truth


def test_ridge_weights_are_scikit_learns():
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 4))
    y = (x @ [1.0, -1, 0.5, 0] + rng.normal(size=80) > 0).astype(int)
    theirs = LogisticRegression(C=0.7**2, fit_intercept=False, tol=1e-10).fit(x, y).coef_[0]
    of_classes = x[:, None, :] * np.array([-0.5, 0.5])[None, :, None]
    weight, covariance, _ = fit_laplace(of_classes, y, np.zeros(4), np.full(4, 0.7))
    np.testing.assert_allclose(weight, theirs, atol=1e-5)
    p = 1 / (1 + np.exp(-x @ weight))
    np.testing.assert_allclose(
        np.linalg.inv(covariance), (x * (p * (1 - p))[:, None]).T @ x + np.eye(4) / 0.7**2, rtol=1e-4
    )


def test_evidence_prefers_the_prior_that_made_the_weights():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(400, 2, 6))
    logits = x @ rng.normal(0, 1, 6)
    gold = (rng.random(400) < 1 / (1 + np.exp(logits[:, 0] - logits[:, 1]))).astype(int)
    found = [fit_laplace(x, gold, np.zeros(6), np.full(6, sd))[2] for sd in (0.03, 1.0, 30.0)]
    assert np.argmax(found) == 1


@pytest.mark.parametrize("K", [2, 4])
def test_gold_finds_the_judge_who_is_right(K):
    table, truth = panel(K=K)
    model = methods["majority-vote"]().fit(table)
    known, rest = np.arange(150), np.arange(150, 900)
    learnt = Panel(table, panel_judges(table), K, model.posterior_).fit(known, truth[known])
    after = learnt.posterior(rest)
    np.testing.assert_allclose(after.sum(axis=1), 1)
    right = after.argmax(axis=1) == truth[rest]
    assert right.mean() > (model.posterior_[rest].argmax(axis=1) == truth[rest]).mean() + 0.03
    assert abs(after.max(axis=1).mean() - right.mean()) < 0.06


def test_scores_on_any_scale_are_learnt_from_by_their_ranks():
    table, truth = panel()
    rng = np.random.default_rng(3)
    score = np.round(table.label * 3 + rng.normal(0, 1, len(table)), 1)
    tables = [
        Annotations.from_arrays(table.item, table.annotator, values, items=table.items, kind="numbers")
        for values in (score, np.exp(score))
    ]
    known, rest = np.arange(100), np.arange(100, 900)
    one, other = (Panel(t, panel_judges(t), 2).fit(known, truth[known]).posterior(rest) for t in tables)
    np.testing.assert_allclose(one, other)
    assert (one.argmax(axis=1) == truth[rest]).mean() > 0.8


def test_a_panel_is_few_judges_who_label_nearly_everything():
    table, _ = panel()
    assert panel_judges(table).tolist() == [0, 1, 2, 3, 4]
    assert panel_judges(simulate(100, 30, 3, redundancy=5, seed=0).annotations).size == 0
    crowd = simulate(900, 200, 2, redundancy=4, seed=0).annotations
    rows = [np.concatenate(pair) for pair in ((table.item, crowd.item), (table.annotator, 10 + crowd.annotator))]
    both = Annotations.from_arrays(*rows, np.concatenate([table.label, crowd.label]))
    assert panel_judges(both).size == 0  # half of the labels are by others
    assert panel_judges(Annotations.from_arrays([0, 1], [0, 0], [0, 1])).size == 0
