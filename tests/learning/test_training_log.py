"""What a training tells while it goes on."""

import csv
import sys
import types

import numpy as np
import pytest

from dissensus.common.exceptions import CannotWrite
from dissensus.common.progress import ProgressBar
from dissensus.learning import CrowdClassifier
from dissensus.learning.exceptions import TensorBoardMissing
from dissensus.learning.training_log import TrainingLog, call_on_step
from dissensus.table.simulate import simulate
from faults import raised, warned

DATA = simulate(40, 6, 3, redundancy=3, seed=2)
X = np.eye(3)[DATA.truth] + np.random.default_rng(0).normal(0, 0.3, (40, 3))
METRICS = {"cross-entropy", "accuracy", "macro-f1"}


def quick(**keywords):
    given = {"encoder": "identity", "objective": "soft", "epochs": 3, "batch_size": 16, "device": "cpu"}
    return CrowdClassifier(**(given | keywords))


class Events:
    """A SummaryWriter that keeps what it is given."""

    made = None

    def __init__(self, folder):
        self.folder, self.scalars = folder, []
        Events.made.append(self)

    def add_scalar(self, name, value, step):
        self.scalars.append((name, value, step))

    def flush(self):
        pass


@pytest.fixture
def tensorboard(monkeypatch):
    fake = types.ModuleType("torch.utils.tensorboard")
    fake.SummaryWriter = Events
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", fake)
    monkeypatch.setattr(Events, "made", [])


@pytest.fixture
def no_tensorboard(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)


def lines(folder):
    return list(csv.DictReader((folder / "log.csv").read_text().splitlines()))


def test_on_step_is_told_all_where_it_asks(monkeypatch):
    entries, plain = [], []
    model = quick(schedule="linear", learning_rate=0.1)
    model.fit(DATA.annotations, X, validation=0.2, on_step=lambda epoch, loss, entry: entries.append(entry))
    assert [set(entry) for entry in entries] == [{"epoch", "step", "loss", "learning_rate", "seconds"} | METRICS] * 3
    assert [entry["step"] for entry in entries] == [2, 4, 6]
    rates = [entry["learning_rate"] for entry in entries]
    assert 0.1 > rates[0] > rates[1] > rates[2] >= 0
    kept = [{key: value for key, value in entry.items() if key not in ("step", "learning_rate")} for entry in entries]
    assert kept == model.history_
    quick().fit(DATA.annotations, X, on_step=lambda *told: plain.append(told))
    assert [epoch for epoch, _ in plain] == [1, 2, 3]


def test_auto_tells_all_too():
    told = []
    model = CrowdClassifier(device="cpu", epochs=2).fit(
        DATA.annotations, X, on_step=lambda epoch, loss, entry=None: told.append((epoch, entry))
    )
    assert [epoch for epoch, entry in told if entry] == [entry["epoch"] for entry in model.history_]
    assert all(entry["cross-entropy"] > 0 for _, entry in told if entry)


def test_a_folder_gets_a_row_and_events_of_every_epoch(tensorboard, tmp_path):
    folder = tmp_path / "runs" / "x"
    first = quick(log=folder).fit(DATA.annotations, X, validation=0.2)
    rows = lines(folder)
    assert [(row["run"], row["epoch"], row["step"]) for row in rows] == [
        ("1", "1", "2"),
        ("1", "2", "4"),
        ("1", "3", "6"),
    ]
    for row, entry in zip(rows, first.history_, strict=True):
        assert {key: float(row[key]) for key in entry} == entry
    (events,) = Events.made
    assert events.folder == str(folder / "run-1")
    assert ("loss", first.history_[2]["loss"], 3) in events.scalars
    assert {name for name, _, _ in events.scalars} == {"loss", "learning_rate", "seconds"} | METRICS
    quick(log=folder, epochs=1).fit(DATA.annotations, X)
    again = lines(folder)
    assert again[:3] == rows
    assert (again[3]["run"], again[3]["accuracy"]) == ("2", "")
    assert Events.made[1].folder == str(folder / "run-2")


def test_the_log_changes_nothing_and_is_not_saved(tensorboard, tmp_path):
    plain, logged = quick().fit(DATA.annotations, X), quick(log=tmp_path / "log").fit(DATA.annotations, X)
    np.testing.assert_array_equal(plain.predict_proba(X), logged.predict_proba(X))
    logged.save(tmp_path / "model")
    assert CrowdClassifier.load(tmp_path / "model").log is None


def test_without_tensorboard_there_is_a_sentence_and_the_file(no_tensorboard, tmp_path):
    with warned(TensorBoardMissing, folder=str(tmp_path), file="log.csv"):
        quick(log=tmp_path).fit(DATA.annotations, X)
    assert len(lines(tmp_path)) == 3
    quick(log=tmp_path).fit(DATA.annotations, X)  # said once
    assert len(lines(tmp_path)) == 6


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with raised(CannotWrite, path=tmp_path / "file" / "log"):
        TrainingLog(tmp_path / "file" / "log")


def test_a_bar_shows_the_validation_score():
    said = []
    bar = ProgressBar("training", 5, None)
    bar._update = lambda **fields: said.append(fields["state"])
    call_on_step(bar, 2, 0.5, {"cross-entropy": 0.61, "accuracy": 0.8})
    call_on_step(bar, 3, 0.25, {"loss": 0.25})
    assert said[0] == "pass 2 of at most 5, objective 0.5, cross-entropy 0.6100, accuracy 0.8000"
    assert said[1] == "pass 3 of at most 5, objective 0.25"
