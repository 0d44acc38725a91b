"""A Spark cluster on loopback: its codes are those of a table in memory, and its answer, whatever happens to it."""

import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from compute.engines.agreement import METHODS, assert_agree, fit, independent, short
from compute.engines.cluster import marks
from dissensus import load, methods, read, save
from dissensus.cli import app
from dissensus.compute.engines import Spark
from dissensus.compute.engines.scatter import ClusterArray, distribute_frame
from dissensus.compute.exceptions import (
    BadWeights,
    BlankNames,
    ItemsLost,
    OneLabelPerRow,
    SparkCannotRead,
    WrongEngine,
)
from dissensus.models.confusion import FULL, LIKELIHOOD, ConfusionPass
from dissensus.models.exceptions import NoEarlierCounts
from dissensus.table.exceptions import UnsupportedType
from dissensus.table.simulate import simulate
from tables import KINDS, random_table, some_gold

pytestmark = marks()
RESTARTED = ("hierarchical-dawid-skene", "mace", "glad", "community-bcc")


@pytest.fixture(scope="module")
def spark(spark_session):
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the passes below are not where workers look
    return spark_session


def frame_of(names: bool = False, weight: bool = False, n_items: int = 300):
    """Rows of a simulated table, shuffled."""
    frame = simulate(n_items, 40, 4, redundancy=(1, 6), seed=3).annotations.to_arrow()
    rng = np.random.default_rng(3)
    if names:  # text that sorts otherwise than the numbers do, and beyond ASCII
        for place, column in enumerate(("item", "annotator", "label")):
            frame = frame.set_column(place, column, pc.binary_join_element_wise("é", frame[column].cast("string"), "_"))
    if weight:
        frame = frame.append_column("weight", pa.array(rng.choice([0.5, 1.0, 2.5], len(frame))))
    return frame.take(pa.array(rng.permutation(len(frame))))


@pytest.mark.parametrize("method", METHODS)
def test_every_method(method, spark):
    table = random_table(3, n_annotators=60, **KINDS["both"])  # items without rows, parts without some annotators
    engine = Spark(partitions=3)
    drawn = method in ("dawid-skene", "one-coin")  # a second start draws in the cluster
    keywords, gold = short(method, 2) | ({} if drawn or method not in RESTARTED else {"restarts": 1}), some_gold(table)
    for own in ({}, independent(method)) if method in ("one-coin", "glad") else ({},):
        keywords |= own
        assert_agree(fit(method, table, gold, **keywords), fit(method, table, gold, engine=engine, **keywords))


@pytest.mark.parametrize("kind", ["text", "weights"])
def test_codes_are_those_of_a_table_in_memory(kind, spark, tmp_path):
    frame = frame_of(names=kind == "text", weight=kind == "weights")
    table = read(frame)
    if kind == "text":
        source = tmp_path / "labels.parquet"
        pq.write_table(frame, source)
    else:
        source = "labels"
        spark.createDataFrame(frame).createOrReplaceTempView(source)
    found = distribute_frame(source, options=Spark(partitions=3))
    parts = found.parts.collect()
    assert len(parts) == 3
    rows = {
        "annotator": np.concatenate([part.annotators[part.annotator] for part in parts]),
        "label": np.concatenate([part.label for part in parts]),
        "item_ptr": np.cumsum([0, *np.concatenate([np.diff(part.item_ptr) for part in parts])]),
        "weight": np.concatenate([part.weight for part in parts]) if kind == "weights" else None,
    }
    for name in (*rows, "items", "annotators", "classes", "annotations_per_annotator"):
        ours = rows[name] if name in rows else np.asarray(getattr(found, name))
        np.testing.assert_array_equal(ours, getattr(table, name), err_msg=name)
    assert parts[0].label.dtype == table.label.dtype
    assert (found.n_items, found.n_annotations, found.n_annotators) == (table.n_items, len(table), table.n_annotators)


class Kept:
    """An RDD that gives less, until Spark forgets what it kept."""

    def __init__(self, *answers):
        self.answers = list(answers)

    def collect(self):
        return self.answers[0]

    def unpersist(self):
        del self.answers[0]


def test_items_that_spark_kept_in_part_are_made_again_or_refused():
    whole, short = [np.arange(3), np.arange(3, 5)], [np.arange(3)]
    kept = Kept(short, whole)
    assert np.asarray(ClusterArray((5,), np.int64, kept, kept)).tolist() == [0, 1, 2, 3, 4]
    kept = Kept(short, short)
    with pytest.raises(ItemsLost) as caught:
        np.asarray(ClusterArray((5,), np.int64, kept, kept))
    assert caught.value.facts == {"n_found": 3, "n_expected": 5}


def test_a_frame_in_and_a_frame_out(spark, tmp_path, monkeypatch):
    frame = frame_of(names=True)
    table, given = read(frame), spark.createDataFrame(frame)
    with monkeypatch.context() as patch:
        patch.setattr(ClusterArray, "__array__", lambda *_: pytest.fail("results of all items came to the driver"))
        model = fit("dawid-skene", given, engine=Spark(partitions=3), max_iter=4)
        out = model.to_frame("items")
        out.write.parquet(str(tmp_path / "out"))
    local = fit("dawid-skene", table, max_iter=4)
    left, expected = pq.read_table(tmp_path / "out"), local.to_frame("items", "pyarrow")
    assert left.column_names == expected.column_names == out.columns
    for column in ("item", "label"):
        assert left[column].to_pylist() == expected[column].to_pylist()  # in the order of the items, too
    for column in ("confidence", *expected.column_names[-4:]):
        np.testing.assert_allclose(left[column], expected[column], atol=1e-9)
    assert_agree(local, model)
    again = load(save(model, tmp_path / "saved"))
    np.testing.assert_array_equal(again.posterior_, np.asarray(model.posterior_))
    np.testing.assert_array_equal(again.items_, table.items)
    model.partial_fit(table.select(rows=np.arange(7)))
    assert model.n_annotations_.sum() == len(table) + 7


def test_the_command_line_writes_what_the_cluster_found(spark, tmp_path, monkeypatch):
    frame = frame_of(names=True)
    pq.write_table(frame, tmp_path / "labels.parquet")
    table = read(frame)
    truth = np.random.default_rng(0).choice(table.classes, 50)
    pq.write_table(pa.table({"item": table.items[::6], "label": truth}), tmp_path / "gold.parquet")
    local = fit("consensus", table, max_iter=3)
    monkeypatch.setattr(ClusterArray, "__array__", lambda *_: pytest.fail("results of all items came to the driver"))
    source, gold = str(tmp_path / "labels.parquet"), str(tmp_path / "gold.parquet")
    options = [
        "--engine",
        "spark",
        "--set",
        "engine.partitions=3",
        "--max-iter",
        "3",
        "--gold",
        gold,
        "--gold-use",
        "score",
    ]
    result = CliRunner().invoke(app, ["aggregate", source, *options, "-o", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert "did not converge after 3 passes" in result.stdout
    left, expected = pq.read_table(tmp_path / "out" / "items.parquet"), local.to_frame("items", "pyarrow")
    assert left.column_names == expected.column_names
    for column in ("item", "label"):
        assert left[column].to_pylist() == expected[column].to_pylist()
    np.testing.assert_allclose(left["confidence"], expected["confidence"], atol=1e-9)
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert (summary["items"], summary["annotations"]) == (table.n_items, len(table))
    assert summary["gold"]["accuracy"] == (local.predict()[::6] == truth).mean()
    missing = CliRunner().invoke(app, ["aggregate", str(tmp_path / "none/"), "--engine", "spark"])
    assert missing.exit_code == 1
    assert "Spark finds no such Parquet files" in missing.stderr


def test_difficulty_goes_with_the_items(spark):
    frame = frame_of()
    model = fit("glad", spark.createDataFrame(frame), engine=Spark(partitions=3), max_iter=3)
    local = fit("glad", read(frame), max_iter=3)
    np.testing.assert_allclose(
        model.to_frame("items").toArrow()["difficulty"], local.to_frame("items", "pyarrow")["difficulty"], atol=1e-9
    )


def executor() -> int:
    """The process id of the executor that this worker works for."""
    above = os.getpid()
    while b"CoarseGrainedExecutorBackend" not in Path(f"/proc/{above}/cmdline").read_bytes():
        above = int(Path(f"/proc/{above}/stat").read_text().rsplit(")", 1)[1].split()[1])
    return above


class Killing(ConfusionPass):
    """Takes the executor down, once, while the first part is walked in the third pass."""

    def __init__(self, flags: Path):
        super().__init__(LIKELIHOOD, FULL)
        self.flags = flags

    def process(self, chunk, worker, out) -> None:
        super().process(chunk, worker, out)
        if chunk.first == 0:
            (self.flags / f"walked-{len(list(self.flags.iterdir()))}").touch()
            if len(list(self.flags.iterdir())) == 3:
                os.kill(executor(), signal.SIGKILL)


class Slow(ConfusionPass):
    """The first attempt at the first part takes long."""

    def __init__(self, flags: Path):
        super().__init__(LIKELIHOOD, FULL)
        self.flags = flags

    def process(self, chunk, worker, out) -> None:
        from pyspark import TaskContext

        super().process(chunk, worker, out)
        attempt = TaskContext.get().attemptNumber()
        if chunk.first == 0:
            (self.flags / f"attempt-{attempt}").touch()
            for _ in range(400 if attempt == 0 else 0):  # until the other is done and ends this one
                time.sleep(0.1)


def test_an_executor_killed_during_a_pass_changes_nothing(spark, tmp_path, monkeypatch):
    frame = frame_of(names=True)
    local = fit("dawid-skene", read(frame), max_iter=4)
    monkeypatch.setattr(methods["dawid-skene"], "e_step_pass", lambda _: Killing(tmp_path))
    model = fit("dawid-skene", spark.createDataFrame(frame), engine=Spark(partitions=2), max_iter=4)
    assert len(list(tmp_path.iterdir())) == 6  # four passes and the last, and one part twice
    assert_agree(local, model, atol=1e-9)


def test_a_part_that_is_walked_twice_at_once_counts_once(spark, tmp_path, monkeypatch):
    frame = frame_of()
    local = fit("dawid-skene", read(frame), max_iter=1)
    monkeypatch.setattr(methods["dawid-skene"], "e_step_pass", lambda _: Slow(tmp_path))
    model = fit("dawid-skene", spark.createDataFrame(frame), engine=Spark(partitions=2), max_iter=1)
    assert (tmp_path / "attempt-1").exists()
    np.testing.assert_allclose(model.trace_, local.trace_, rtol=1e-12)
    np.testing.assert_allclose(model.confusion_, local.confusion_, atol=1e-12)


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        ({"item": [1, None], "annotator": [1, 2], "label": [0, 1]}, BlankNames),
        ({"item": [1, 2], "annotator": ["a", " "], "label": [0, 1]}, BlankNames),
        ({"item": [1.5, 2.0], "annotator": [1, 2], "label": [0, 1]}, UnsupportedType),
        ({"item": [1], "annotator": [1], "label": [0], "weight": [-1.0]}, BadWeights),
    ],
)
def test_unusable_tables_are_refused(columns, error, spark):
    with pytest.raises(error):
        distribute_frame(spark.createDataFrame(pa.table(columns)))


def test_what_the_cluster_cannot_read_is_a_sentence(spark, tmp_path):
    (tmp_path / "labels.csv").write_text("item,annotator,label\na,x,1\n")
    with pytest.raises(SparkCannotRead) as caught:
        distribute_frame(tmp_path)  # a folder: only the cluster knows what is in it
    assert "is not a Parquet file" in caught.value.reason
    assert "\n" not in caught.value.reason


def test_probabilities_are_refused_and_other_engines_too(spark):
    given = spark.createDataFrame(pa.table({"item": [1], "annotator": [1], "p_a": [0.5], "p_b": [0.5]}))
    with pytest.raises(OneLabelPerRow) as caught:
        distribute_frame(given)
    assert caught.value.role == "proba"
    found = distribute_frame(spark.createDataFrame(frame_of(n_items=20)), options=Spark(partitions=1))
    with pytest.raises(WrongEngine):
        methods["dawid-skene"]().fit(found)
    with pytest.raises(NoEarlierCounts):
        methods["dawid-skene"](engine="spark").fit(found, earlier={1: np.eye(4)})
