"""`aggregate --engine`: the files of a run in memory, made without holding the table or the items in memory."""

from __future__ import annotations

import dataclasses
import json
import sys
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dissensus as dz
from cli.tables import SCORE, rows
from dissensus.cli import results, show
from dissensus.cli.engine import _spark_errors, read_out_of_memory
from dissensus.cli.exceptions import (
    BadSetting,
    GoldOnlyScores,
    MethodInMemory,
    ModelWithoutItems,
    OptionNeeds,
    OptionsConflict,
    OtherFormat,
    SettingHasOption,
    SparkFailed,
    UnknownSetting,
)
from dissensus.cli.source import Source
from dissensus.common.exceptions import OutOfRange
from dissensus.compute.engines import Spark
from dissensus.compute.engines.disk import RunFolder
from dissensus.exceptions import BadParameter, UnreadableFile
from dissensus.models import base
from dissensus.table.io import read_frame


@pytest.fixture
def parquet(here, labels):
    """The rows of labels.csv, shuffled, in two Parquet files, beside gold.csv."""
    frame = read_frame(labels)
    frame = frame.take(pa.array(np.random.default_rng(0).permutation(len(frame))))
    for number, part in enumerate((frame.slice(0, 100), frame.slice(100))):
        pq.write_table(part, here / f"part-{number}.parquet")
    return here


def engine_of(name: str) -> list[str]:
    module = {"disk": "duckdb", "torch": "torch"}[name]
    pytest.importorskip(module, reason="needs an extra")
    return ["--engine", name, *(["--set", "engine.block_rows=30"] if name == "disk" else [])]


@pytest.mark.parametrize("engine", ["disk", "torch"])
@pytest.mark.parametrize("method", ["dawid-skene", "glad"])
def test_files_are_those_of_a_run_in_memory(cli, parquet, engine, method, monkeypatch):
    monkeypatch.setattr("dissensus.compute.engines.disk.ROWS_PER_RESULT_FILE", 60)  # several files of items
    monkeypatch.setattr("dissensus.models.frames.FRAME_BATCH_ROWS", 4)
    monkeypatch.setattr(results, "MIN_CONFIDENCE", 0.9999)  # so that there are some
    common = ["--method", method, "--gold", "gold.csv", *SCORE, "--format", "parquet", "--no-flags"]
    assert cli("aggregate", "labels.csv", *common, "-o", "local").exit_code == 0
    source = "part-*.parquet" if engine == "disk" else "labels.csv"
    result = cli("aggregate", source, *common, *engine_of(engine), "-o", engine)
    assert (result.exit_code, result.stderr) == (0, "")
    assert sorted(p.name for p in (parquet / engine).iterdir()) == sorted(p.name for p in (parquet / "local").iterdir())
    for name in ("items", "annotators", *(["confusions"] if method == "dawid-skene" else [])):
        ours, theirs = (pq.read_table(parquet / folder / f"{name}.parquet") for folder in (engine, "local"))
        if name == "items" and engine == "disk":  # votes are never in memory
            theirs = theirs.drop_columns(["votes", "labels", "status", "reason"])
        assert ours.schema.names == theirs.schema.names
        for column in theirs.schema.names:
            if theirs[column].type == pa.float64():
                np.testing.assert_allclose(ours[column], theirs[column], atol=1e-9)
            else:
                assert ours[column].to_pylist() == theirs[column].to_pylist()
    ours, theirs = (json.loads((parquet / folder / "summary.json").read_text()) for folder in (engine, "local"))
    assert ours["parameters"].pop("engine") == engine
    assert theirs["parameters"].pop("engine") == "local"
    for key in ("parameters", "labels", "items_below_0.7", "items", "annotations", "passes"):
        assert ours[key] == theirs[key]
    assert ours["gold"] == pytest.approx(theirs["gold"])


def test_nothing_with_a_row_per_item_is_made_whole(cli, parquet, monkeypatch):
    engine = engine_of("disk")
    monkeypatch.setattr("dissensus.compute.engines.disk.ROWS_PER_RESULT_FILE", 60)
    for name in ("predict", "predict_proba", "to_frame"):
        whole = getattr(base.Aggregator, name)

        def refused(self, *kind, whole=whole, name=name):
            assert (name, *kind[:1]) in (("to_frame", "annotators"), ("to_frame", "confusions"))
            return whole(self, *kind)

        monkeypatch.setattr(base.Aggregator, name, refused)
    monkeypatch.setattr("dissensus.table.io.read", lambda *_, **__: pytest.fail("the table was read into memory"))
    result = cli("aggregate", "part-*.parquet", *engine, "--gold", "gold.csv", *SCORE, "-o", "out")
    assert (result.exit_code, result.stderr) == (0, "")
    assert pq.ParquetFile(parquet / "out" / "items.parquet").num_row_groups > 3
    preview = cli("aggregate", "part-*.parquet", *engine)
    assert preview.exit_code == 0
    assert "i000" in preview.stdout


def test_the_model_scores_new_tables_and_knows_no_items(cli, parquet):
    cli("aggregate", "labels.csv", "--no-flags", "-o", "local")
    cli("aggregate", "part-*.parquet", *engine_of("disk"), "-o", "disk")
    for folder in ("local", "disk"):
        result = cli("aggregate", "labels.csv", "--model", folder, "--format", "parquet", "-o", f"by-{folder}")
        assert (result.exit_code, result.stderr) == (0, "")
    ours, theirs = (pq.read_table(parquet / f"by-{folder}" / "items.parquet") for folder in ("disk", "local"))
    assert ours["label"].to_pylist() == theirs["label"].to_pylist()
    np.testing.assert_allclose(ours["confidence"], theirs["confidence"], atol=1e-9)
    model = dz.load(parquet / "disk")
    assert (model.items_.size, model.posterior_.shape) == (0, (0, 3))
    refused = cli("aggregate", "labels.csv", "--model", "disk", "--update", "-o", "again")
    assert (refused.exit_code, type(refused.error)) == (2, ModelWithoutItems)


def test_a_killed_run_goes_on_after_the_last_pass(cli, parquet, monkeypatch):
    engine = engine_of("disk")
    steps: list[int] = []

    @contextmanager
    def waiting(text, total=None):
        yield lambda step, objective: steps.append(step)

    monkeypatch.setattr(show, "show_progress", waiting)
    command = ("aggregate", "part-*.parquet", "--method", "dawid-skene", *engine, "--set", "engine.folder=work")
    assert cli(*command, "-o", "whole").exit_code == 0
    whole, steps[:] = steps.copy(), []
    assert whole == list(range(1, len(whole) + 1))
    assert len(whole) > 4
    with monkeypatch.context() as patch:
        save, left = RunFolder.save, iter(range(3))

        def killed(self, state):
            save(self, state)
            if next(left, None) is None:
                raise KeyboardInterrupt

        patch.setattr(RunFolder, "save", killed)
        assert cli(*command, "-o", "out").exit_code == 130
    assert not (parquet / "out").exists()
    before, steps[:] = len(steps), []
    assert cli(*command, "-o", "out").exit_code == 0
    assert steps[0] > 3
    assert before + len(steps) <= len(whole) + 1
    assert (parquet / "out" / "items.parquet").read_bytes() == (parquet / "whole" / "items.parquet").read_bytes()


@pytest.mark.parametrize(
    ("options", "error", "facts"),
    [
        (["--engine", "disk", "--method", "kos"], MethodInMemory, {"method": "kos", "engine": "disk"}),
        (["--set", "engine=disk"], SettingHasOption, {"setting": "engine"}),
        (["--set", "engine.folder=x"], OptionNeeds, {"option": "setting"}),
        (["--engine", "disk", "--set", "engine.partitions=3"], UnknownSetting, {"setting": "engine.partitions"}),
        (["--engine", "disk", "--set", "engine.folder"], BadSetting, {"setting": "engine.folder"}),
        (["--engine", "disk", "--set", "engine.memory_gb=much"], BadSetting, {"setting": "engine.memory_gb=much"}),
        (["--engine", "disk", "--set", "engine.memory_gb=0"], OutOfRange, {"name": "engine.memory_gb"}),
        (["--engine", "torch", "--set", "engine.part-rows=0"], OutOfRange, {"name": "engine.part_rows"}),
        (["--engine", "spark", "--set", "engine.partitions=0"], OutOfRange, {"name": "engine.partitions"}),
        (["--engine", "spark", "--set", "engine.master=host:7"], BadParameter, {}),
        (["--engine", "disk", "--gold", "gold.csv"], GoldOnlyScores, {"option": "--engine disk"}),
        (["--engine", "disk", "--flags"], OptionsConflict, {"option": "flags"}),
        (["--engine", "disk", "--format", "csv"], OptionsConflict, {"option": "format_"}),
        (["--engine", "disk", "--abstain", "owl"], OptionsConflict, {"option": "abstain"}),
        (["--engine", "spark", "--input-format", "csv"], OtherFormat, {"expected": "Parquet"}),
        (["--engine", "disk", "--model", "out"], OptionsConflict, {"option": "engine"}),
        (["--engine", "gpu"], type(None), {}),
    ],
)
def test_wrong_options_are_errors_before_anything_is_read(cli, parquet, options, error, facts):
    result = cli("aggregate", "part-0.parquet", *options)
    assert (result.exit_code, isinstance(result.error, error)) == (2, True)
    assert {name: getattr(result.error, name) for name in facts} == facts
    assert not (parquet / "part-0.parquet.dissensus").exists()


def test_what_is_no_parquet_is_not_sent_to_spark(cli, parquet, monkeypatch):
    pytest.importorskip("pyspark", reason="needs an extra")
    monkeypatch.setattr("pyspark.sql.SparkSession.Builder.getOrCreate", lambda _: pytest.fail("Spark was started"))
    result = cli("aggregate", "labels.csv", "--engine", "spark")
    assert (result.exit_code, isinstance(result.error, UnreadableFile)) == (1, True)


def test_what_is_no_parquet(cli, parquet):
    engine = engine_of("disk")
    for source in ("labels.csv", ".", "none.parquet"):
        result = cli("aggregate", source, *engine)
        assert (result.exit_code, isinstance(result.error, UnreadableFile)) == (1, True)


@pytest.mark.parametrize(
    ("engine", "module", "extra"),
    [
        ("disk", "duckdb", "disk"),
        ("torch", "dissensus.compute.engines.torch", "learning"),
        ("spark", "pyspark.errors", "spark"),
    ],
)
def test_an_engine_that_is_not_installed_names_its_extra(cli, parquet, engine, module, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    result = cli("aggregate", "part-0.parquet", "--engine", engine)
    assert (result.exit_code, result.error.extra) == (1, extra)
    assert len(result.stderr.splitlines()) == 1


def test_an_error_of_a_cluster_becomes_its_last_cause():
    class PySparkException(Exception):
        __module__ = "pyspark.errors"

    output = "Job aborted.\nTraceback:\n  File 'x'\nModuleNotFoundError: No module named 'numba'\n\tat org.apache…"
    with pytest.raises(SparkFailed) as caught, _spark_errors():
        raise PySparkException(output)
    assert caught.value.cause == "ModuleNotFoundError: No module named 'numba'"
    java = "An error occurred while calling o1.x.\n: org.apache.spark.SparkException: no room\n\tat org.apache.y"
    with pytest.raises(SparkFailed) as caught, _spark_errors():
        raise PySparkException(java)
    assert caught.value.cause == "org.apache.spark.SparkException: no room"
    with pytest.raises(KeyError, match="ours"), _spark_errors():
        raise KeyError("ours")


def test_columns_and_classes_are_declared_as_ever(cli, here):
    engine = engine_of("disk")
    annotations, _ = rows()
    item, annotator, label = zip(*annotations, strict=True)
    pq.write_table(pa.table({"what": item, "who": annotator, "said": label}), here / "odd.parquet")
    named = ["--item", "what", "--annotator", "who", "--label", "said", "--classes", "owl,dog,cat,bat"]
    result = cli("aggregate", "odd.parquet", *named, *engine, "--json")
    assert json.loads(result.stdout)["classes"] == ["owl", "dog", "cat", "bat"]


def test_a_table_in_spark_has_an_import_report_too(monkeypatch):
    """Spark itself is not started: its table is enough for the report."""
    elsewhere = SimpleNamespace(n_annotations=280, columns={"item": "item", "annotator": "who", "label": "label"})
    monkeypatch.setattr("dissensus.compute.engines.scatter.distribute_frame", lambda *_, **__: elsewhere)
    nothing = dict.fromkeys(field.name for field in dataclasses.fields(Source))
    source = Source(**nothing | {"named": "catalogue.labels"})
    assert read_out_of_memory(source, Spark()) is elsewhere
    assert source.import_report["format"] == "spark"
    assert source.import_report["columns"] == {"item": "'item'", "annotator": "'who'", "label": "'label'"}
    assert (source.import_report["rows"], source.import_report["used"]) == (280, 280)
