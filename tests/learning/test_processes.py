"""Several processes learn together what one process does; features stay in a file."""

import pickle
import tracemalloc

import numpy as np
import pytest
import torch

from crowds import blobs
from dissensus.learning import CrowdClassifier
from dissensus.learning.batches import MappedRows
from dissensus.learning.devices import import_fabric
from dissensus.learning.encoders import encoders
from dissensus.learning.exceptions import FeatureNotFinite, OneProcessNeeded
from dissensus.learning.inputs import take_rows, to_vectors
from dissensus.learning.objectives import objectives
from faults import raised

N, D = 40_000, 100  # 16 MB of features


@pytest.fixture
def light_processes(tmp_path_factory, monkeypatch):
    """Spawned processes find no torchmetrics, which lightning-fabric imports for 2 s, to read its version."""
    import_fabric()  # here it may find it
    folder = tmp_path_factory.mktemp("without")
    (folder / "torchmetrics.py").write_text("raise ImportError")
    monkeypatch.syspath_prepend(folder)  # goes to the processes


@pytest.mark.slow
@pytest.mark.parametrize(
    "objective", ["crowd-layer", objectives["lia"](leave_one_out=False)], ids=["crowd-layer", "lia"]
)
def test_two_processes_learn_what_one_does(objective, light_processes):
    """With rows of annotators, whose steps are their own, an E step over all items, and steps without a row for one."""
    table, X, truth = blobs(40)
    one, two = (
        CrowdClassifier(
            encoder=encoders["mlp"](dropout=0.0), objective=objective, epochs=3, device="cpu", processes=n, batch_size=1
        ).fit(table, X, validation=0.2)
        for n in (1, 2)
    )
    for name, value in one.network_.state_dict().items():
        torch.testing.assert_close(two.network_.state_dict()[name], value, rtol=1e-4, atol=1e-5)
    assert one.best_epoch_ == two.best_epoch_
    assert len(two.history_) == 3
    assert two.score(X, truth) > 0.5


def test_what_needs_all_items_is_refused_in_several_processes():
    table, X, _ = blobs(40)
    with pytest.raises(OneProcessNeeded):
        CrowdClassifier(objective="lia", processes=2, epochs=1).fit(table, X)


def test_an_objective_goes_to_a_process_without_its_table():
    table, _, _ = blobs()
    for name in objectives:
        objective = objectives[name]().fit(table, None, 0)
        assert len(objective.targets()) == table.n_items
        sent = pickle.loads(pickle.dumps(objective))
        assert not [key for key in vars(sent) if key.startswith("_")]
        assert sent.n_classes_ == 3


# Features in a file ---------------------------------------------------------------------------------------------------


@pytest.fixture
def stored(tmp_path):
    """Table, features in memory, the same in a file (below others, as doubles), truth."""
    table, X, truth = blobs(200)
    np.save(tmp_path / "x.npy", np.vstack([np.full((3, X.shape[1]), np.nan), X]))
    return table, X, np.load(tmp_path / "x.npy", mmap_mode="r")[3:], truth


@pytest.mark.parametrize("validation", [None, 0.3])
@pytest.mark.parametrize("scale", [True, False, "max"])
def test_features_in_a_file_teach_the_same(stored, scale, validation):
    table, X, mapped, _ = stored
    one, two = (
        CrowdClassifier(
            encoder=encoders["mlp"](hidden=(8,), scale=scale), objective="soft", epochs=2, device="cpu"
        ).fit(table, x, validation=validation)
        for x in (X, mapped)
    )
    np.testing.assert_array_equal(one.proba_, two.proba_)
    np.testing.assert_array_equal(one.predict_proba(X), two.predict_proba(mapped))


def test_what_was_changed_in_memory_is_not_read_from_the_file(tmp_path):
    table, X, _ = blobs(40)
    np.save(tmp_path / "x.npy", X)
    changed = np.load(tmp_path / "x.npy", mmap_mode="c")
    changed[:, 0] *= 3
    one, two = (
        CrowdClassifier(encoder="identity", objective="soft", epochs=1, device="cpu").fit(table, x)
        for x in (np.array(changed), changed)
    )
    np.testing.assert_array_equal(one.proba_, two.proba_)


def test_a_column_in_a_file_is_the_one_in_memory(stored, monkeypatch):
    _, X, mapped, _ = stored
    monkeypatch.setattr("dissensus.learning.batches.ROWS_PER_READ", 64)
    encoder = encoders["mlp"]().fit(X)
    whole = encoder.prepare(X).columns["x"]
    some = np.random.default_rng(0).permutation(200)[:150]
    for column, expected in (
        (encoder.prepare(mapped).columns["x"], whole),
        (encoder.prepare(take_rows(mapped, some)).columns["x"], whole[some]),
        (encoder.prepare(take_rows(take_rows(mapped, some), np.arange(9, 40))).columns["x"], whole[some[9:40]]),
    ):
        assert isinstance(column, MappedRows)
        assert torch.equal(column.to("cpu"), expected)
        rows = torch.tensor([5, 0, 3])
        for each in (column, pickle.loads(pickle.dumps(column))):
            assert torch.equal(each.take("x", rows)["x"], expected[rows])
            assert torch.equal(each.select_rows(np.arange(4, 20)).take("x", rows)["x"], expected[rows + 4])
        assert column.nbytes == expected.nbytes
        assert len(pickle.dumps(column)) < 3000  # the rows stay where they are


def test_a_file_is_read_in_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr("dissensus.learning.inputs.ROWS_PER_READ", 1000)
    x = np.random.default_rng(0).normal(5, 2, (N, D)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    encoder = encoders["mlp"]()
    tracemalloc.start()
    encoder.fit(take_rows(mapped, np.arange(1, N)))
    columns = encoder.prepare(mapped)
    columns.take(torch.arange(64))
    assert tracemalloc.get_traced_memory()[1] < x.nbytes / 4
    tracemalloc.stop()
    np.testing.assert_allclose(encoder.center_, x[1:].mean(axis=0, dtype=np.float64), rtol=1e-12)
    np.testing.assert_allclose(encoder.spread_, x[1:].std(axis=0, dtype=np.float64), rtol=1e-12)


def test_what_is_no_number_is_found_wherever_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr("dissensus.learning.inputs.ROWS_PER_READ", 10)
    x = np.zeros((40, 3), np.float32)
    x[25, 1] = x[25, 2] = x[33, 0] = np.nan
    np.save(tmp_path / "x.npy", x)
    for given in (x, np.load(tmp_path / "x.npy", mmap_mode="r")):
        with raised(FeatureNotFinite, row=25, column=1, n_values=3, n_rows=2):
            to_vectors(given)


def test_rows_of_a_file_are_an_array_where_one_is_needed(stored):
    _, X, mapped, _ = stored
    found = take_rows(mapped, [3, 1])
    assert isinstance(found, MappedRows)
    np.testing.assert_array_equal(np.asarray(found, np.float32), X[[3, 1]])
    assert len(found) == 2
