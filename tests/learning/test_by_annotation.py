"""What is expected in every row of a table is what `predict_annotator_proba` says of its pair."""

import numpy as np
import pytest
import torch

from crowds import blobs
from dissensus import Annotations
from dissensus.learning import CrowdClassifier
from dissensus.learning.exceptions import FittedWithoutFeatures, UnnamedRows
from dissensus.learning.objectives import CrowdLayerObjective, LIAObjective
from dissensus.models.exceptions import NotATable
from faults import raised
from learning.tables import fitted, sparse_table

PAIRED = (CrowdLayerObjective, LIAObjective)


def trained(objective, **keywords):
    table, X, _ = blobs(30)
    return CrowdClassifier(encoder="identity", objective=objective, epochs=3, batch_size=8).fit(table, X, **keywords), X


def other_rows(X):
    """Rows of new items, some without any, by known annotators and by strangers; one gives two labels."""
    items = ["n1", "n1", "n1", "n3", "n3", "n4"]
    who = ["w2", "w2", "nobody", "w0", "w2", "a stranger"]
    table = Annotations.from_arrays(
        items, who, list("cababc"), items=[f"n{i}" for i in range(6)], classes=["a", "b", "c"]
    )
    return table, X[5:11]


@pytest.mark.parametrize("objective", ["crowd-layer", "lia", "soft", "hard"])
@pytest.mark.parametrize("cells", [2**22, 18])
def test_rows_are_pairs_of_the_whole(objective, cells, monkeypatch):
    model, X = trained(objective)
    table, new = other_rows(X)
    monkeypatch.setattr("dissensus.learning.classifier.MAX_CONFUSION_ENTRIES", cells)  # 18: two rows at a time
    monkeypatch.setattr("dissensus.learning.classifier.PREDICTION_BATCHES", 1 if cells > 18 else 8)
    model.batch_size = 1 if cells > 18 else 8  # an item at a time
    found = model.predict_annotations(table, new)
    whole = model.predict_annotator_proba(new, table.annotators)  # (6, A, K)
    np.testing.assert_allclose(found, whole[table.item, table.annotator], rtol=1e-5)


def test_labels_of_the_table_are_not_looked_at_and_neither_is_what_else_is_in_it():
    model, X = trained("crowd-layer")
    table, new = other_rows(X)
    found = model.predict_annotations(table, new)
    turned = Annotations.from_arrays(
        table.items[table.item], table.annotators[table.annotator], table.classes[(table.label + 1) % 3],
        items=table.items, classes=table.classes,
    )  # fmt: skip
    np.testing.assert_array_equal(turned.annotator, table.annotator)
    np.testing.assert_array_equal(model.predict_annotations(turned, new), found)
    one = table.select(items=table.items == "n3")
    np.testing.assert_allclose(model.predict_annotations(one, new[3:4]), found[table.item == 3], rtol=1e-6)
    none = table.select(rows=np.zeros(len(table), bool))
    assert model.predict_annotations(none, new).shape == (0, 3)


@pytest.mark.parametrize("kind", PAIRED)
def test_all_pairs_at_once_are_those_of_one_annotator_after_another(kind, monkeypatch):
    objective, head, z, _ = fitted(kind(), sparse_table())
    for param in head.parameters():
        torch.nn.init.normal_(param)
    row, who = torch.tensor([4, 0, 0, 7, 4, 2]), torch.tensor([3, -1, 3, 0, -1, 6])
    found = objective.pair_label_proba(head, z, row, who)
    torch.testing.assert_close(found, objective.label_proba(head, z, who)[row, torch.arange(len(row))])
    for n in range(len(row)):
        expected = objective.label_proba(head, z[row[n : n + 1]], who[n : n + 1])[0, 0]
        torch.testing.assert_close(found[n], expected)
    assert objective.pair_label_proba(head, z, row[:0], who[:0]).shape == (0, 4)
    assert objective.label_proba(head, z, who[:0]).shape == (len(z), 0, 4)
    monkeypatch.setattr("dissensus.learning.objectives.base.MAX_PAIR_ENTRIES", 2 * len(z) * 4 * 4)  # two annotators
    torch.testing.assert_close(found, objective.label_proba(head, z, who)[row, torch.arange(len(row))])


def test_features_tell_strangers_apart():
    frame = {"annotator": [f"w{j}" for j in range(7)], "age": [20.0, 30, 40, 50, 60, 70, 80]}
    model, X = trained("lia", annotators=frame)
    with torch.no_grad():
        torch.nn.init.normal_(model.network_.head.competence.feature_layer.weight)
    table, new = other_rows(X)
    whom = {"annotator": ["w2", "nobody", "a stranger", "w0"], "age": [40.0, 22, 77, 20]}
    found = model.predict_annotations(table, new, annotators=whom)
    whole = model.predict_annotator_proba(new, whom)
    at = {name: place for place, name in enumerate(whom["annotator"])}
    column = np.array([at[name] for name in table.annotators])[table.annotator]
    np.testing.assert_allclose(found, whole[table.item, column], rtol=1e-5)
    assert np.abs(found - model.predict_annotations(table, new)).max() > 1e-3
    pairs = torch.tensor([0, 0]), torch.tensor([-1, -1]), torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    objective, head, z = model.objective_, model.network_.head, torch.randn(1, new.shape[1])
    torch.testing.assert_close(
        objective.label_proba(head, z, *pairs[1:])[0], objective.pair_label_proba(head, z, *pairs)
    )


def test_what_cannot_be_asked_is_named():
    model, X = trained("crowd-layer")
    table, new = other_rows(X)
    with raised(UnnamedRows, n_rows=5, n_items=6):
        model.predict_annotations(table, new[:5])
    with pytest.raises(FittedWithoutFeatures):
        model.predict_annotations(table, new, annotators={"annotator": ["w1"], "age": [3]})
    with raised(NotATable, caller="predict_annotations"):
        model.predict_annotations(new, new)
