import numpy as np
import pytest

from crowds import blobs
from dissensus import Annotations
from dissensus.common.exceptions import OutOfRange
from dissensus.exceptions import DataError
from dissensus.learning import LIA, CrowdClassifier, out_of_fold
from dissensus.learning.encoders import MLP
from dissensus.learning.exceptions import (
    FittedWithFeatures,
    NoCommonAnnotators,
    OutOfFoldItemsDiffer,
    UnreadablePredictions,
    UnusedAnnotatorFeatures,
    WrongModel,
)
from dissensus.learning.folds import load_trained
from dissensus.learning.posterior import combine_posterior
from dissensus.table.io import write_frame
from faults import raised


def quick(**keywords):
    return CrowdClassifier(
        **{
            "encoder": MLP(hidden=(8,), dropout=0.0),
            "objective": "hard",
            "epochs": 4,
            "batch_size": 16,
            "device": "cpu",
            **keywords,
        }
    )


@pytest.mark.parametrize("objective", ["hard", "crowd-layer"])
def test_each_item_is_predicted_by_a_network_taught_by_the_others(objective):
    table, X, _ = blobs(40)
    found = out_of_fold(quick(objective=objective), table, X, folds=4, seed=1)
    assert np.bincount(found.fold).tolist() == [10, 10, 10, 10]
    for number in range(4):
        here = found.fold == number
        others = table.select(rows=~here[table.item])
        network = quick(objective=objective).fit(others, X)
        np.testing.assert_array_equal(found.proba[here], network.proba_[here])
    np.testing.assert_array_equal(found.posterior, combine_posterior(table, found.proba, None)[0].posterior)


def test_an_item_s_own_labels_and_gold_do_not_reach_its_network():
    table, X, truth = blobs(30)
    gold = np.where(np.arange(30) % 3 == 0, truth, -1)
    found = out_of_fold(quick(), table, X, gold=gold, folds=3)
    i = int(np.flatnonzero(gold >= 0)[0])
    rows = table.item == i
    other = Annotations.from_codes(
        table.item, table.annotator, np.where(rows, (table.label + 1) % 3, table.label), table.items, table.annotators,
        table.classes,
    )  # fmt: skip
    changed = np.where(np.arange(30) == i, (gold + 1) % 3, gold)
    again = out_of_fold(quick(), other, X, gold=changed, folds=3)
    np.testing.assert_array_equal(found.proba[i], again.proba[i])
    assert not np.allclose(found.posterior[i], again.posterior[i])
    assert found.posterior[i].max() < 1  # what its labels say, not its gold


def test_names_decide_the_fold_and_not_the_other_items_or_their_order():
    table, X, _ = blobs(30)
    renamed = Annotations.from_codes(
        29 - table.item, table.annotator, table.label, np.array([f"z{29 - i}" for i in range(30)][::-1], object),
        table.annotators, table.classes,
    )  # fmt: skip
    first, second = out_of_fold(quick(epochs=0), table, X), out_of_fold(quick(epochs=0), table, X[::-1].copy())
    np.testing.assert_array_equal(first.fold, second.fold)
    assert not np.array_equal(first.fold, out_of_fold(quick(epochs=0), table, X, seed=5).fold)
    assert not np.array_equal(first.fold, out_of_fold(quick(epochs=0), renamed, X).fold)


def test_items_without_annotations_get_the_mean_of_all_networks():
    table, X, _ = blobs(30)
    part = table.select(rows=table.item >= 5)
    found = out_of_fold(quick(), part, X, folds=3)
    assert (found.fold[:5] == -1).all()
    assert (found.fold[5:] >= 0).all()
    each = []
    for number in range(3):
        here = found.fold == number
        each.append(quick().fit(part.select(rows=~here[part.item]), X).proba_[:5])
    np.testing.assert_allclose(found.proba[:5], np.mean(each, axis=0))
    np.testing.assert_allclose(found.posterior[:5], found.proba[:5])
    np.testing.assert_allclose(found.posterior.sum(axis=1), 1)


def test_what_was_learnt_by_heart_is_no_longer_believed():
    table, X, _ = blobs(80, features=40, redundancy=1, noise=0.6, seed=2)
    model = quick(encoder=MLP(hidden=(64,), dropout=0.0), epochs=30, learning_rate=0.02)
    learnt = model.fit(table, X).proba_
    seen = learnt[table.item, table.label].mean()
    unseen = out_of_fold(model, table, X, folds=2).proba[table.item, table.label].mean()
    assert seen > 0.95
    assert unseen < 0.6
    assert model.proba_ is learnt


def test_progress_checkpoints_and_a_frame(tmp_path):
    table, X, _ = blobs(20)
    steps = []
    model = quick(checkpoint=tmp_path, checkpoint_every=0)
    found = out_of_fold(model, table, X, folds=2, validation=0.2, on_step=lambda step, loss: steps.append(step))
    assert steps == list(range(1, 9))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fold-0", "fold-1"]
    frame = found.to_frame()
    assert frame.column_names == [
        "item",
        "fold",
        "label",
        "confidence",
        "model",
        "p_a",
        "p_b",
        "p_c",
        "model_a",
        "model_b",
        "model_c",
    ]
    assert frame["model"].to_pylist() == [table.classes[k] for k in found.proba.argmax(axis=1)]


def test_predictions_are_read_again_from_a_file(tmp_path):
    table, X, _ = blobs(20)
    model = quick().fit(table, X)
    found = out_of_fold(model, table, X, folds=2)
    model.save(tmp_path)
    assert load_trained(tmp_path)[1] is None
    write_frame(found.to_frame(), tmp_path / "out_of_fold.csv")
    loaded, again = load_trained(tmp_path)
    np.testing.assert_array_equal(loaded.proba_, model.proba_)
    for part in ("items", "classes", "proba", "posterior", "fold", "tie_seed"):
        np.testing.assert_array_equal(getattr(found, part), getattr(again, part))
    write_frame(found.to_frame().slice(3), tmp_path / "out_of_fold.csv")
    with pytest.raises(UnreadablePredictions) as caught:
        load_trained(tmp_path)
    assert isinstance(caught.value.__cause__, OutOfFoldItemsDiffer)
    (tmp_path / "out_of_fold.csv").write_text("item,fold\na,1\n", encoding="utf-8")
    with raised(UnreadablePredictions, path=tmp_path / "out_of_fold.csv"):
        load_trained(tmp_path)


@pytest.mark.parametrize("folds", [1, 11])
def test_folds_out_of_range_are_named(folds):
    table, X, _ = blobs(10)
    with raised(OutOfRange, name="folds", value=folds):
        out_of_fold(quick(), table, X, folds=folds)


def test_a_fold_that_cannot_be_trained_is_named():
    table, X, truth = blobs(10)
    gold = np.where(np.arange(10) == 3, truth, -1)
    with raised(DataError) as caught:
        out_of_fold(quick(objective="hard").set_params(objective=hard_gold()), table, X, gold=gold, folds=2)
    assert caught.value.subjects[0] in ("without fold 1 of 2", "without fold 2 of 2")


def hard_gold():
    from dissensus.learning.objectives import Hard

    return Hard(labels="gold")


def test_what_is_no_classifier_is_named():
    table, X, _ = blobs(20)
    with raised(WrongModel, actual="LIA"):
        out_of_fold(LIA(), table, X, folds=2)


def about(table):
    return {"annotator": table.annotators, "trust": np.linspace(0, 1, table.n_annotators)}


def test_features_of_annotators_reach_every_network():
    table, X, _ = blobs(30)
    model = quick(objective="lia")
    found = out_of_fold(model, table, X, annotators=about(table), folds=2)
    for number in range(2):
        here = found.fold == number
        network = quick(objective="lia").fit(table.select(rows=~here[table.item]), X, annotators=about(table))
        np.testing.assert_array_equal(found.proba[here], network.proba_[here])
    assert not np.array_equal(found.proba, out_of_fold(model, table, X, folds=2).proba)


def test_features_of_annotators_that_are_wanted_or_of_no_use_are_named():
    table, X, _ = blobs(20)
    fitted = quick(objective="lia").fit(table, X, annotators=about(table))
    with pytest.raises(FittedWithFeatures):
        out_of_fold(fitted, table, X, folds=2)
    out_of_fold(fitted, table, X, annotators=about(table), folds=2)
    with raised(UnusedAnnotatorFeatures, objective="hard"):
        out_of_fold(quick(), table, X, annotators=about(table), folds=2)
    with raised(NoCommonAnnotators, frame_name="'x'"):
        out_of_fold(quick(objective="lia"), table, X, annotators={"annotator": ["x"], "trust": [1.0]}, folds=2)
