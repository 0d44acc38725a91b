"""The search over sizes: every point is the training it stands for; a store is gone on from."""

import json

import numpy as np
import pytest
from scipy import sparse

from crowds import blobs
from dissensus import Annotations
from dissensus.common.exceptions import OutOfRange
from dissensus.evaluation import inverse_kl_divergence, kl_divergence
from dissensus.exceptions import BadParameter
from dissensus.learning import CrowdClassifier, size_search
from dissensus.learning.encoders import Identity
from dissensus.learning.exceptions import RowCountDiffers, SizesNotSearchable
from dissensus.learning.objectives.ldl_nm import LDLNMObjective
from dissensus.learning.size_search import search_sizes, winner_agreement

TABLE, X, _ = blobs(50, redundancy=4, noise=0.4)
DEV, X_DEV, _ = blobs(20, redundancy=4, seed=3)
MODEL = CrowdClassifier(
    encoder=Identity(), objective=LDLNMObjective(dropout=0.0), batch_size=17, device="cpu", learning_rate=0.01
)
GRID = {"item_sizes": (2, 4), "annotator_sizes": (3,), "epochs": (2, 5), "seeds": (0, 7), "model": MODEL}


@pytest.mark.parametrize("at_once", [None, 3])
def test_every_point_is_its_training(at_once):
    found = search_sizes(TABLE, X, dev=(DEV, X_DEV), stack_size=at_once, **GRID)
    assert len(found.points) == 2 * 2 * 2
    for point in found.points:
        objective = LDLNMObjective(item_size=point.item_size, annotator_size=point.annotator_size, dropout=0.0)
        alone = CrowdClassifier(**MODEL.get_params(deep=False))
        alone.set_params(objective=objective, epochs=point.epoch, seed=point.seed).fit(TABLE, X)
        y, h = DEV.soft_labels(), alone.predict_proba(X_DEV)
        scores = kl_divergence(y, h).mean(), inverse_kl_divergence(y, h).mean()
        assert (point.kl, point.inverse_kl) == pytest.approx(scores, abs=1e-4)
        assert point.accuracy == pytest.approx(winner_agreement(y, h).mean())


def test_the_best_has_the_lowest_mean_and_can_be_had():
    found = search_sizes(TABLE, X, dev=(DEV, X_DEV), **GRID)
    mean = {
        (i, 3, e): np.mean([p.kl for p in found.points if (p.item_size, p.epoch) == (i, e)])
        for i in (2, 4)
        for e in (2, 5)
    }
    assert found.best == min(mean, key=mean.get)
    assert found.matrix("kl", 2)[:, 0] == pytest.approx([mean[2, 3, 2], mean[4, 3, 2]])
    assert found.matrix().min() == pytest.approx(min(mean.values()))
    model = found.estimator(seed=5)
    assert (model.objective.item_size, model.objective.annotator_size, model.epochs) == found.best
    assert (model.seed, model.objective.dropout, type(model.objective)) == (5, 0.0, LDLNMObjective)
    assert found.to_frame().num_rows == 8


def test_a_search_goes_on_where_it_was_killed(tmp_path, monkeypatch):
    store = tmp_path / "sizes.jsonl"
    whole = search_sizes(TABLE, X, dev=(DEV, X_DEV), store=store, stack_size=2, **GRID)
    lines = store.read_text().splitlines()
    store.write_text("\n".join(lines[:4]) + "\n" + lines[4][:20])  # one stack of two, and a line that was cut short
    trained, real = [], size_search.stack_trainings
    monkeypatch.setattr(
        size_search, "stack_trainings", lambda models, *args: trained.append(len(models)) or real(models, *args)
    )
    seen = []
    again = search_sizes(
        TABLE, X, dev=(DEV, X_DEV), store=store, stack_size=2, on_trained=lambda *done: seen.append(done), **GRID
    )
    assert trained == [2]
    assert seen == [(2, 4), (4, 4)]
    assert {json.dumps(vars(p)) for p in again.points} == {json.dumps(vars(p)) for p in whole.points}
    search_sizes(
        TABLE, X, dev=(DEV, X_DEV), store=store, **GRID | {"epochs": (2,)}
    )  # another search: nothing is reused
    assert trained[1:] == [4]
    search_sizes(TABLE, X + 1, dev=(DEV, X_DEV), store=store, **GRID)
    assert trained[2:] == [4]
    store.write_text("\n".join(lines[:3]) + "\n")  # a training of which one epoch is missing, and one that is whole
    again = search_sizes(TABLE, X, dev=(DEV, X_DEV), store=store, **GRID)
    assert trained[3:] == [3]
    assert len(again.points) == len({(p.item_size, p.epoch, p.seed) for p in again.points}) == 8
    store.write_text("\n".join(lines).replace("inverse_kl", "other_kl") + "\n")  # of another version
    search_sizes(TABLE, X, dev=(DEV, X_DEV), store=store, **GRID)
    assert trained[4:] == [4]


def test_sparse_features_are_the_same_search(tmp_path):
    grid = GRID | {"item_sizes": (2,), "epochs": (2,), "seeds": (0,), "store": tmp_path / "sizes.jsonl"}
    dense = search_sizes(TABLE, X, dev=(DEV, X_DEV), **grid)
    for _ in range(2):
        found = search_sizes(TABLE, sparse.csr_array(X), dev=(DEV, sparse.csr_array(X_DEV)), **grid)
        assert found.points == dense.points
    assert len(grid["store"].read_text().splitlines()) == 1  # and it was not trained again


def test_a_share_is_kept_for_development():
    found = search_sizes(TABLE, X, dev=0.4, **GRID | {"seeds": (0,)})
    train, dev = TABLE.split(0.6, by="item", seed=0)
    rows = [np.isin(TABLE.items, part.items) for part in (train, dev)]
    same = search_sizes(train, X[rows[0]], dev=(dev, X[rows[1]]), **GRID | {"seeds": (0,)})
    assert found.points == same.points


def test_items_whose_labels_weigh_nothing_are_not_judged():
    weight = np.where(DEV.item < 5, 0.0, 1.0)
    dev = Annotations.from_arrays(DEV.item, DEV.annotator, DEV.label, weight=weight, classes=TABLE.classes)
    grid = GRID | {"item_sizes": (2,), "epochs": (2,), "seeds": (0,)}
    (point,) = search_sizes(TABLE, X, dev=(dev, X_DEV), **grid).points
    (same,) = search_sizes(TABLE, X, dev=(DEV.select(items=np.arange(20) >= 5), X_DEV[5:]), **grid).points
    assert point == same


@pytest.mark.parametrize(
    ("keywords", "error"),
    [
        ({"item_sizes": ()}, OutOfRange),
        ({"annotator_sizes": (0,)}, OutOfRange),
        ({"epochs": (1.5,)}, OutOfRange),
        ({"seeds": ()}, OutOfRange),
        ({"seeds": (0.5,)}, OutOfRange),
        ({"seeds": 3}, OutOfRange),
        ({"stack_size": -1}, BadParameter),
        ({"dev": [1, 2]}, OutOfRange),
        ({"dev": 1.5}, OutOfRange),
        ({"model": CrowdClassifier(objective="soft")}, SizesNotSearchable),
        (
            {"model": CrowdClassifier(objective=LDLNMObjective(combine="sum"))},
            SizesNotSearchable,  # a sum has one size for items and annotators, and no grid of two
        ),
        ({"model": CrowdClassifier(objective=LDLNMObjective(pair_size=4))}, SizesNotSearchable),
    ],
)
def test_wrong_arguments_are_one_clear_error(keywords, error):
    with pytest.raises(error):
        search_sizes(TABLE, X, **{"dev": (DEV, X_DEV)} | GRID | keywords)


def test_wrong_data_are_one_clear_error():
    with pytest.raises(RowCountDiffers) as uneven:
        search_sizes(TABLE, X[:3], **GRID)
    assert (uneven.value.n_rows, uneven.value.n_entries) == (3, 50)
    with pytest.raises(RowCountDiffers) as uneven:
        search_sizes(TABLE, X, **GRID | {"dev": (DEV, X_DEV[:3])})
    assert (uneven.value.argument, uneven.value.n_rows, uneven.value.n_entries) == ("dev", 3, 20)
    found = search_sizes(TABLE, X, **{"dev": (DEV, X_DEV)} | GRID | {"epochs": (1,), "seeds": (0,)})
    for arguments, name in ((("f1",), "measure"), (("kl", 3), "epoch")):
        with pytest.raises(OutOfRange) as wrong:
            found.matrix(*arguments)
        assert wrong.value.name == name


def test_the_objective_searches_its_sizes_on_the_training_items():
    objective = LDLNMObjective(dropout=0.0, search=(2, 4))
    model = CrowdClassifier(**MODEL.get_params(deep=False)).set_params(objective=objective, epochs=2)
    fitted = model.fit(TABLE, X, validation=0.2)
    taught = np.flatnonzero(~fitted.held_out_)
    plain = MODEL.set_params(epochs=2)
    found = search_sizes(
        TABLE.select(items=~fitted.held_out_), X[taught], model=plain, item_sizes=(2, 4), annotator_sizes=(2, 4),
        epochs=[2],
    )  # fmt: skip
    assert (fitted.objective_.item_size, fitted.objective_.annotator_size) == found.best[:2]
    assert fitted.objective_.search is None
    assert model.objective is objective  # keywords stay unchanged
