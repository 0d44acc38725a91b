"""Soft labels as targets: their kinds, known gold, what an item counts, and zeros under inverse KL."""

import numpy as np
import pytest
from scipy.special import rel_entr

from dissensus import methods
from dissensus.exceptions import BadParameter
from dissensus.learning.exceptions import ZeroProbability
from dissensus.learning.objectives import Soft
from faults import raised
from learning.tables import fitted, log_q, sparse_table
from tables import KINDS, some_gold

TABLE = sparse_table()
VOTED = np.diff(TABLE.item_ptr) > 0
VALUES = {
    "kl": lambda p, q: rel_entr(p, q).sum(),
    "inverse-kl": lambda p, q: rel_entr(q, p).sum(),
    "ce": lambda p, q: -(p * np.log(q)).sum(),
}


@pytest.mark.parametrize("weight", ["items", "votes"])
@pytest.mark.parametrize("divergence", VALUES)
@pytest.mark.parametrize("kind", KINDS)
def test_loss_is_the_sum_over_items_of_their_divergences(kind, divergence, weight):
    table = sparse_table(**KINDS[kind])
    objective, head, z, targets = fitted(Soft(labels="smoothed", divergence=divergence, weight=weight), table)
    p, q, votes = table.soft_labels("smoothed"), np.exp(log_q(objective, head, z)), table.votes().sum(axis=1)
    expected = sum(
        (votes[i] if weight == "votes" else 1) * VALUES[divergence](p[i], q[i])
        for i in range(table.n_items)
        if votes[i] > 0
    )
    np.testing.assert_allclose(objective.loss(head, z, targets).item(), expected, rtol=1e-5)


@pytest.mark.parametrize("labels", ["normalized", "softmax", "dawid-skene"])
def test_targets_are_the_soft_labels_or_a_methods_posterior(labels):
    target = Soft(labels=labels).fit(TABLE, None, 4).targets().columns["target"].numpy()
    expected = methods[labels](seed=4).fit(TABLE).posterior_ if labels in methods else TABLE.soft_labels(labels)
    np.testing.assert_allclose(target[VOTED], expected[VOTED], atol=1e-6)
    np.testing.assert_allclose(target.sum(axis=1), 1, atol=1e-6)


@pytest.mark.parametrize("labels", ["normalized", "dawid-skene"])
def test_an_item_of_known_class_has_a_one_hot_target(labels):
    gold = some_gold(TABLE)
    objective = Soft(labels=labels, weight="votes").fit(TABLE, gold, 0)
    columns = {name: column.numpy() for name, column in objective.targets().columns.items()}
    np.testing.assert_array_equal(columns["target"][gold >= 0], np.eye(4)[gold[gold >= 0]])
    np.testing.assert_array_equal(objective.train_mask_, VOTED | (gold >= 0))
    votes = TABLE.votes().sum(axis=1)
    np.testing.assert_allclose(columns["weight"], np.where(VOTED, votes, gold >= 0))


def test_inverse_kl_of_a_target_with_zeros_is_an_error_at_once():
    i, k = np.argwhere((TABLE.votes() == 0) & VOTED[:, None])[0]
    with raised(ZeroProbability, item=str(i), label=str(k)):
        Soft(divergence="inverse-kl").fit(TABLE, None, 0)
    with pytest.raises(ZeroProbability):
        Soft(labels="softmax", divergence="inverse-kl").fit(TABLE, some_gold(TABLE), 0)


def test_keywords_out_of_range_are_said():
    with raised(BadParameter, keyword="weight"):
        Soft(weight="labels").fit(TABLE, None, 0)
    with raised(BadParameter, keyword="divergence"):
        Soft(divergence="js").fit(TABLE, None, 0)
