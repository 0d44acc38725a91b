"""`dissensus aggregate --engine`: fit to a table on a disk or in Spark without loading it into memory.

Such a run reads Parquet files, or a table of Spark. Its items are counted and written part by part, as Parquet. If a
run with `--engine disk` is killed, the same command resumes after the last complete pass.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dissensus.cli import exceptions as faults
from dissensus.cli import folder, results, show
from dissensus.cli.aggregate import FitOptions, make_summary_header
from dissensus.cli.options import Engine
from dissensus.cli.scoring import make_item_table
from dissensus.cli.settings import new_model
from dissensus.cli.settings import parse_settings as settings_of
from dissensus.cli.source import Source, SourceOfTables, TrainingGold
from dissensus.common.exceptions import OutOfRange
from dissensus.common.registry import DEFAULT_METHOD
from dissensus.compute.engines import Disk, Spark, Torch, default_codes_folder
from dissensus.exceptions import BadParameter
from dissensus.messages import ParameterName
from dissensus.models.base import Aggregator, methods
from dissensus.table import names as naming
from dissensus.table.import_report import ImportReport
from dissensus.table.io import gold_codes

if TYPE_CHECKING:
    from dissensus.cli.aggregate import Answers

IN_MEMORY_OPTIONS = ("abstain", "question", "wide", "ticks", "normalize", "map", "many_classes", "kind")
"""Options for reading FILE that need the table in memory."""


def choose_engine(
    name: Engine | None, settings: list[str], method: str | None
) -> tuple[Disk | Torch | Spark | None, list[str]]:
    """Return the engine with its options, or None for `local`, and the remaining settings, which are the method's."""
    method = method or DEFAULT_METHOD
    own = [setting.removeprefix("engine.") for setting in settings if setting.startswith("engine.")]
    others = [setting for setting in settings if not setting.startswith("engine.")]
    if name is not None and "engine" not in methods[method].parameter_names():
        able = tuple(other for other in methods if "engine" in methods[other].parameter_names())
        raise faults.MethodInMemory(method=method, engine=name, methods=able)
    if name in (None, "local"):
        if own:
            raise faults.OptionNeeds(option=ParameterName("setting"), needed="--engine disk, torch or spark")
        return None, others
    kind = {"disk": Disk, "torch": Torch, "spark": Spark}[name]
    try:
        return kind(**settings_of(own, kind, f"--engine {name}", part="engine")), others
    except OutOfRange as error:
        allowed, value = error.allowed, error.value
        raise OutOfRange(name=ParameterName(f"engine.{error.name}"), allowed=allowed, value=value) from error
    except BadParameter as error:
        raise error.add_subject(f"--engine {name}") from None


def fit_out_of_memory(task: FitOptions, gold: TrainingGold, source: SourceOfTables) -> Answers:
    """Fit a method to a table on a disk or in Spark, and return its answers."""
    options, settings = choose_engine(task.engine, task.settings, task.method)
    model = new_model(task.method, settings, source.kind or "classes")
    model.set_params(engine=options)
    task.set_threads(model)
    gold.check_scoring_only(f"--engine {task.engine}")
    for name in ("flags", "to", "format_"):
        if getattr(task, name) not in (None, False, "parquet"):
            raise faults.OptionsConflict(option=ParameterName(name), other_option=f"--engine {task.engine}")
    began = time.perf_counter()
    table = read_out_of_memory(source, options)
    summary = make_summary_header(task, gold, source, time.perf_counter() - began)
    columns = None if gold.scoring_file is None else gold.columns(gold.scoring_file)
    return {None: fit_and_write(model, table, f"fitting {source.file}", columns, task.output, summary)}, summary


def read_out_of_memory(source: Source, options: Any) -> Any:
    """Return FILE coded as integers on a disk, or distributed over the cluster."""
    from dissensus.compute.engines.coding import check_parquet, code_parquet
    from dissensus.compute.engines.scatter import distribute_frame

    for name in IN_MEMORY_OPTIONS:
        if getattr(source, name):
            raise faults.OptionsConflict(option=ParameterName(name), other_option="--engine disk or spark")
    if source.item and "," in source.item:
        raise faults.OptionNeeds(
            option=ParameterName("item"), needed="a table in memory, or one column that names items"
        )
    if source.input_format not in (None, "parquet"):
        raise faults.OtherFormat(path=source.file, content="tables with --engine disk or spark", expected="Parquet")
    columns: dict[str, Any] = {role: getattr(source, role) for role in ("item", "annotator", "label", "weight")}
    columns["classes"] = source.class_names()
    if isinstance(options, Disk):
        if source.file.is_dir():
            raise faults.FolderOfFiles(folder=source.file)
        check_parquet(source.file, "disk")
        with show.show_progress(f"sorting and coding {source.file}"):
            place = options.folder or default_codes_folder(source.file)
            table: Any = code_parquet(source.file, place, **columns, memory_gb=options.memory_gb)
        found = table.meta["made_of"]["columns"]
    else:
        with show.show_progress(f"sorting and coding {source.named}"), _spark_errors():
            table = distribute_frame(source.named, **columns, options=options)
        found = table.columns
    named = {role: repr(column) for role, column in found.items()}
    format_ = "parquet" if isinstance(options, Disk) else "spark"
    source.announce_import(ImportReport(format=format_, columns=named, n_rows=table.n_annotations))
    return table


def fit_and_write(
    model: Aggregator, table: Any, text: str, gold: tuple[Any, Any] | None, output: Path | None, summary: dict[str, Any]
) -> results.Result:
    """Fit a model to a table that is not in memory, and add the results to `summary`.

    `gold` holds a column of items and one of labels. With `output`, the files are written too; the items are written
    while they are counted.
    """
    with _spark_errors():
        seconds = results.fit_with_progress(model, table, text)

        def result_of(frames: Iterable[Any]) -> results.Result:
            result = results.Result(model, results.summarise(model, count_items(model, frames, gold), seconds))
            summary.update(result.summary)
            return result

        if output is None:
            with show.show_progress("counting the items"):
                return result_of(model.item_frames())
        with folder.write_results(output, results.list_replaceable_files(output), summary) as part:
            result = result_of(_write_while_reading(model.item_frames(), part / "items.parquet"))
            results.write_result(result, part, "parquet", items=False)
    return result


def count_items(model: Aggregator, frames: Iterable[Any], gold: tuple[Any, Any] | None) -> dict[str, Any]:
    """Return the `item_facts`, computed from the parts of the frame of items one after the other."""
    K = model.classes_.size
    labels, unsure = np.zeros(K, np.int64), 0
    gold_parts: list[tuple[Any, Any]] = [(np.empty(0, np.int32), np.empty((0, K)))]
    for frame in frames:
        found = naming.match_names(naming.to_names(frame["label"].combine_chunks()), model.classes_, "classes")
        labels += np.bincount(found, minlength=K)
        unsure += int((frame["confidence"].to_numpy() < results.MIN_CONFIDENCE).sum())
        if gold is not None:
            items = naming.to_names(frame["item"].combine_chunks())
            codes = gold_codes(make_item_table(items, model), *gold)
            at = np.flatnonzero(codes >= 0)
            posterior = np.column_stack([frame[f"p_{name}"].to_numpy()[at] for name in model.classes_])
            gold_parts.append((codes[at], posterior))
    answers, posterior = map(np.concatenate, zip(*gold_parts, strict=True))
    return results.item_facts(model, labels, unsure, None if gold is None else (answers, posterior))


def _write_while_reading(frames: Iterable[Any], path: Path) -> Iterator[Any]:
    """Write frames to one Parquet file, and yield each of them after it is written."""
    import pyarrow.parquet as pq

    writer = None
    try:
        for frame in frames:
            writer = writer or pq.ParquetWriter(path, frame.schema)
            writer.write_table(frame)
            yield frame
    finally:
        if writer is not None:
            writer.close()


@contextmanager
def _spark_errors() -> Iterator[None]:
    """Raise SparkFailed with the last cause instead of an error of Spark, whose text fills pages."""
    try:
        yield
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("pyspark", "py4j"):
            raise
        from dissensus.compute.engines.scatter import extract_cause

        raise faults.SparkFailed(cause=extract_cause(error)) from error
