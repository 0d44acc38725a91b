"""`--engine`: where the passes of a method run, and runs whose table is on a disk or in Spark, never in memory here.

Such a run reads Parquet (Spark: a table too), and its items are counted and written part by part, as Parquet. Killed
with `--engine disk`, the same command goes on after the last pass that was finished.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from dissensus.cli import folder, keywords, results, show
from dissensus.cli.options import Engine, Source
from dissensus.compute.engines import Disk, Spark, Torch, codes_folder
from dissensus.exceptions import BadParameter, DataError, UnreadableFile
from dissensus.models.base import Aggregator, methods
from dissensus.table import names as naming
from dissensus.table.io import gold_codes
from dissensus.table.reading import Reading

ELSEWHERE = ("disk", "spark")
"""Engines whose table is never in memory here."""


def choose(name: Engine | None, settings: list[str], method: str) -> tuple[Disk | Torch | Spark | None, list[str]]:
    """The engine with its options (None: local), and the settings that are not its own."""
    own = [one.removeprefix("engine.") for one in settings if one.startswith("engine.")]
    others = [one for one in settings if not one.startswith("engine.")]
    if name is not None and "engine" not in methods[method].parameter_names():
        able = [one for one in methods if "engine" in methods[one].parameter_names()]
        raise BadParameter(f"'{method}' runs in memory only; --engine {name} is for {', '.join(able)}.")
    if name in (None, "local"):
        if own:
            raise BadParameter(f"--set engine.{own[0]}: only disk, torch and spark have options; say --engine NAME.")
        return None, others
    kind = {"disk": Disk, "torch": Torch, "spark": Spark}[name]
    found = keywords.parse(own, kind, f"--engine {name}", part="engine")
    try:
        return kind(**found), others
    except BadParameter as error:
        raise BadParameter(f"--set engine.{error}") from error


def read_elsewhere(source: Source, options: Any) -> Any:
    """FILE as codes on a disk, or as parts in the cluster."""
    from dissensus.compute.engines.coding import check_parquet, code
    from dissensus.compute.engines.scatter import scatter

    in_memory = ("abstain", "question", "wide", "ticks", "normalize", "map", "many_classes", "kind")
    for name, given in ((f"--{name.replace('_', '-')}", getattr(source, name)) for name in in_memory):
        if given:
            raise BadParameter(f"{name} is for a table in memory; take those rows out of {source.file} first.")
    if source.item and "," in source.item:
        raise BadParameter("--item A,B is for a table in memory; write one column that names the items.")
    if source.input_format not in (None, "parquet"):
        raise BadParameter(f"--input-format {source.input_format}: --engine disk and spark read Parquet; convert it.")
    columns: dict[str, Any] = {role: getattr(source, role) for role in ("item", "annotator", "label", "weight")}
    columns["classes"] = source.class_names()
    if isinstance(options, Disk):
        if source.file.is_dir():
            raise UnreadableFile(f"{source.file} is a folder; name its files: '{source.file}/*.parquet'.")
        check_parquet(source.file, "disk")
        with show.waiting(f"sorting and coding {source.file}"):
            place = options.folder or codes_folder(source.file)
            table: Any = code(source.file, place, **columns, memory_gb=options.memory_gb)
        found = table.meta["made_of"]["columns"]
    else:
        with show.waiting(f"sorting and coding {source.named}"), _spark_in_a_sentence():
            table = scatter(source.named, **columns, options=options)
        found = table.columns
    named = {role: repr(column) for role, column in found.items()}
    source.tell(
        Reading(format="parquet" if isinstance(options, Disk) else "spark", columns=named, rows=table.n_annotations)
    )
    return table


def fit_and_write(
    model: Aggregator, table: Any, text: str, gold: tuple[Any, Any] | None, output: Path | None, summary: dict[str, Any]
) -> results.Result:
    """Fit to a table that is elsewhere and add to the `summary`; `gold` holds columns of items and labels.

    With an `output` the files are written too, the items while they are counted.
    """
    with _spark_in_a_sentence():
        seconds = results.fit_with_bar(model, table, text)

        def result_of(frames: Iterable[Any]) -> results.Result:
            result = results.Result(model, results.summarise(model, count_items(model, frames, gold), seconds))
            summary.update(result.summary)
            return result

        if output is None:
            with show.waiting("counting the items"):
                return result_of(model.item_frames())
        with folder.results(output, results.stale_files(output), summary) as part:
            result = result_of(_write_through(model.item_frames(), part / "items.parquet"))
            results.write(result, part, "parquet", items=False)
    return result


def count_items(model: Aggregator, frames: Iterable[Any], gold: tuple[Any, Any] | None) -> dict[str, Any]:
    """The `item_facts`, from the frame of the items part by part."""
    K = model.classes_.size
    labels, unsure = np.zeros(K, np.int64), 0
    known: list[tuple[Any, Any]] = [(np.empty(0, np.int32), np.empty((0, K)))]
    for frame in frames:
        found = naming.match(naming.to_names(frame["label"].combine_chunks()), model.classes_, "classes")
        labels += np.bincount(found, minlength=K)
        unsure += int((frame["confidence"].to_numpy() < results.MIN_SURE_CONFIDENCE).sum())
        if gold is not None:
            items = naming.to_names(frame["item"].combine_chunks())
            codes = gold_codes(results.table_of_items(items, model), *gold)
            at = np.flatnonzero(codes >= 0)
            posterior = np.column_stack([frame[f"p_{name}"].to_numpy()[at] for name in model.classes_])
            known.append((codes[at], posterior))
    answers, posterior = map(np.concatenate, zip(*known, strict=True))
    return results.item_facts(model, labels, unsure, None if gold is None else (answers, posterior))


def _write_through(frames: Iterable[Any], path: Path) -> Iterator[Any]:
    """The same frames, written to one Parquet file as they pass."""
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
def _spark_in_a_sentence() -> Iterator[None]:
    """What went wrong in the cluster as one of our errors: its last cause, out of pages of them."""
    try:
        yield
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("pyspark", "py4j"):
            raise
        from dissensus.compute.engines.scatter import cause

        raise DataError(f"Spark gave up ({cause(error)}); its log says more.") from error
