"""Where an EM pass runs: `engine="local" | "disk" | "torch" | "spark"`, of methods that go "per item, then add counts".

A model is written once. It states its pass as a `base.Pass`: parameters come in, a kernel walks items and adds to
counts, the counts come out, and perhaps a posterior per item. A pass never holds annotations; an engine (`base.Engine`)
holds them and nothing else, and decides which block of items is walked where:

- `local`: arrays in memory; a block is a range of items, one for each thread, each with its own counts.
- `disk`: files of codes sorted by item, made once from Parquet (`coding`); a block is a few million rows, mapped into
  memory for as long as the same kernels walk them. The posterior is a file. After every pass the state is saved.
- `torch`: tensors on a GPU (or the CPU); the kernels are those of `kernels.on_torch`, over as many rows at a time as
  leave room for what they make of them.
- `spark`: arrays in a cluster, made there (`scatter`); a block is what a task walks: it takes the parameters of its
  annotators out of broadcasts, and sums are added as a tree. The posterior stays in the cluster.

Only parameters go to where the annotations are, only sums come back, and sums add with `+`. What is asked before the
first pass (votes, label counts) is asked by passes too, so that nothing needs the whole table in one place. One
exception: GLAD has a parameter per item, and all of them are in the memory of the driver.

All engines give the same answer. Sums and probabilities are in double precision everywhere, so engines differ by the
order of additions only, too little to change when a fit stops; a test holds them to it.

An engine with options is made by its class: `DawidSkene(engine=Disk(folder="work", memory_gb=2))`,
`DawidSkene(engine=Torch(device="cuda:1"))`, `DawidSkene(engine=Spark(partitions=400))`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from dissensus.common.types import IntArray
from dissensus.compute.engines.base import Engine, hard_rows
from dissensus.compute.engines.coding import Coded, code, code_table, without_pattern
from dissensus.compute.engines.disk import DiskEngine, RunFolder
from dissensus.compute.engines.local import Local, Threads, thread_count
from dissensus.compute.engines.options import Disk, EngineChoice, Spark, Torch, options_of
from dissensus.compute.engines.scatter import Scattered, Spread, is_frame, scatter, spread_table
from dissensus.exceptions import BadParameter, MissingExtra
from dissensus.table.annotations import Annotations

__all__ = [
    "Coded", "Disk", "EngineChoice", "Scattered", "Spark", "Spread", "Torch", "beside", "brought", "code", "in_memory",
    "place", "scatter",
]  # fmt: skip


def place(model: Any, table: Any, gold: IntArray | None) -> Engine:
    """The table where the passes of a model run: `model.engine`, in `model.threads` threads where it has any say."""
    options, threads = options_of(model.engine), getattr(model, "threads", None)
    if options == "local":
        return in_memory(table, gold, threads)
    pool = Threads(thread_count(threads, table.n_annotations))
    if isinstance(options, Disk):
        return DiskEngine(table, options.block_rows, pool, gold, RunFolder(model, table, gold))
    if isinstance(options, Spark):
        from dissensus.compute.engines.spark import SparkEngine

        scattered = spread_table(table, options) if isinstance(table, Annotations) else table
        return SparkEngine(scattered, options, pool, gold)
    try:
        from dissensus.compute.engines.torch import on_device
    except ModuleNotFoundError:
        raise MissingExtra("engine='torch' needs torch; install dissensus[learning].") from None
    return on_device(hard_rows(table), table.n_annotators, table.n_classes, gold, options, pool)


def in_memory(table: Annotations, gold: IntArray | None, threads: int | None) -> Local:
    """The engine for a table in memory."""
    rows = hard_rows(table)
    pool = Threads(thread_count(threads, rows.annotator.size))
    return Local(rows, table.n_annotators, table.n_classes, pool, gold)


def brought(engine: Any, table: Any) -> Any:
    """What `fit` was given, brought to where the engine needs it.

    For `disk` as codes on the disk: of a path or pattern, or of a table in memory; for `spark` as parts in the cluster:
    of a DataFrame, a table or a path. All else is as it was.
    """
    options = options_of(engine)
    if isinstance(table, Coded) and not isinstance(options, Disk):
        raise BadParameter("a table on a disk is fitted by engine='disk', of a method that has that keyword.")
    if isinstance(table, Scattered) and not isinstance(options, Spark):
        raise BadParameter("a table in Spark is fitted by engine='spark', of a method that has that keyword.")
    if isinstance(options, Spark) and (is_frame(table) or isinstance(table, str | Path)):
        return scatter(table, options=options)
    if not isinstance(options, Disk) or isinstance(table, Coded):
        return table
    if isinstance(table, Annotations):
        if options.folder is None:
            raise BadParameter("engine='disk' keeps the codes of a table in a folder; name it: Disk(folder=…).")
        return code_table(table, options.folder)
    if not isinstance(table, str | Path):
        return table
    return code(table, options.folder or beside(table), memory_gb=options.memory_gb)


def beside(source: str | Path) -> Path:
    """The folder of a file's codes where none is named: `labels.parquet` → `labels.parquet.dissensus`."""
    folder, pattern = without_pattern(source)
    return folder / (re.sub(r"[*?\[\]/]+", "_", pattern) + ".dissensus")
