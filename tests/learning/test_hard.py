"""Hard labels: whose they are, what known gold does, and which items teach."""

import numpy as np
import pytest

from dissensus import Annotations, methods
from dissensus.exceptions import UnknownName
from dissensus.learning.exceptions import GoldNeeded, NoLabelledItems
from dissensus.learning.objectives import Hard
from dissensus.models.methods.dawid_skene import DawidSkene
from faults import raised
from learning.tables import fitted, log_q, sparse_table
from tables import some_gold

TABLE = sparse_table()
VOTED = np.diff(TABLE.item_ptr) > 0


def labels(objective: Hard, gold=None, seed=0, table=TABLE) -> np.ndarray:
    return objective.fit(table, gold, seed).targets().columns["label"].numpy()


@pytest.mark.parametrize("name", ["majority-vote", "dawid-skene", "wawa"])
def test_labels_are_those_of_the_method_with_the_classifiers_seed(name):
    for seed in (0, 3):
        predicted = TABLE.gold_codes(TABLE.items, methods[name](seed=seed).fit(TABLE).predict())
        np.testing.assert_array_equal(labels(Hard(labels=name), seed=seed), np.where(VOTED, predicted, -1))


def test_ties_are_drawn_by_seed():
    table = Annotations.from_arrays(np.repeat(np.arange(40), 2), np.tile([0, 1], 40), np.tile([0, 1], 40))
    first = labels(Hard(), seed=0, table=table)
    assert set(first) == {0, 1}
    assert (first != labels(Hard(), seed=1, table=table)).any()
    np.testing.assert_array_equal(first, labels(Hard(), seed=0, table=table))


def test_known_gold_replaces_the_methods_label_and_informs_it():
    gold = some_gold(TABLE)
    found = labels(Hard(labels="dawid-skene"), gold)
    with_gold = TABLE.gold_codes(TABLE.items, methods["dawid-skene"](seed=0).fit(TABLE, gold=gold).predict())
    np.testing.assert_array_equal(found, np.where(gold >= 0, gold, np.where(VOTED, with_gold, -1)))
    assert (found[~VOTED & (gold < 0)] == -1).all()
    assert (~VOTED & (gold < 0)).any()
    assert (~VOTED & (gold >= 0)).any()


def test_gold_alone_teaches_where_it_is_known():
    gold = some_gold(TABLE)
    objective = Hard(labels="gold").fit(TABLE, gold, 0)
    np.testing.assert_array_equal(objective.targets().columns["label"], gold)
    np.testing.assert_array_equal(objective.train_mask_, gold >= 0)


def test_a_method_with_keywords_is_copied_not_fitted_itself():
    method = DawidSkene(seed=2)
    found = labels(Hard(labels=method))
    assert not hasattr(method, "posterior_")
    np.testing.assert_array_equal(found, labels(Hard(labels="dawid-skene"), seed=2))


def test_rows_of_no_weight_are_no_votes():
    table = Annotations.from_arrays([0, 1], [0, 0], [0, 1], weight=[0.0, 1.0])
    np.testing.assert_array_equal(labels(Hard(), table=table), [-1, 1])


def test_gold_without_any_annotation_is_enough():
    table = Annotations.from_arrays([], [], [], classes=["a", "b"], items=["x", "y"])
    np.testing.assert_array_equal(labels(Hard(), np.array([1, -1]), table=table), [1, -1])


def test_loss_is_minus_log_q_of_the_labels():
    objective, head, z, targets = fitted(Hard())
    q, label = log_q(objective, head, z), targets["label"].numpy()
    expected = -sum(q[i, label[i]] for i in range(len(label)) if label[i] >= 0)
    np.testing.assert_allclose(objective.loss(head, z, targets).item(), expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("objective", "gold", "error", "facts"),
    [
        (Hard(labels="gold"), None, GoldNeeded, {}),
        (Hard(labels="gold"), np.full(TABLE.n_items, -1), NoLabelledItems, {"n_items": 23}),
        (Hard(labels="dawid-skeen"), None, UnknownName, {}),
    ],
)
def test_labels_that_cannot_be_made_are_an_error(objective, gold, error, facts):
    with raised(error, **facts):
        objective.fit(TABLE, gold, 0)
