"""Engines run the passes of EM in memory, on a disk, on a GPU or in a Spark cluster.

The keyword `engine` of a method is "local", "disk", "torch" or "spark". A method defines its pass once, as a
`base.Pass`. A pass takes parameters, adds up counts over the items, and returns the counts and, if requested, the
posterior of each item. A pass contains no annotations. An engine (`base.Engine`) stores the annotations and decides
where each chunk of items is processed:

- `local`: arrays in memory. Each thread processes one chunk, a range of items, with its own counts.
- `disk`: files of codes sorted by item, which `coding` makes once from Parquet. A chunk is a few million rows that are
  mapped into memory while the same kernels process them. The state of EM is saved after every pass. One folder contains
  the codes, checkpoints and results. Results with one row per item are memory-mapped arrays, and `items_path_` is a
  folder of Parquet files with the frame of items.
- `torch`: tensors on a GPU or the CPU, processed by `kernels.on_torch`. Chunks are small enough to leave memory for
  intermediate arrays.
- `spark`: arrays in a cluster, which `scatter` creates there. A task processes one chunk with the broadcast parameters
  of its annotators, and the sums of the tasks are added pairwise. Results with one row per item stay in the cluster:
  `to_frame("items")` is a DataFrame, and `np.asarray(model.posterior_)` loads the posterior into the driver.

Only parameters are sent to the annotations, and only sums are returned. Votes and label counts, which a fit needs
before the first pass, are computed by passes too, so no process needs the whole table. GLAD is an exception: it has one
parameter per item, and the calling process stores all of them.

All engines return the same results. They compute sums and probabilities in double precision and differ only in the
order of additions. These differences do not change the pass at which a fit stops, as tests verify.

A class sets the options of an engine: `DawidSkene(engine=Disk(folder="work", memory_gb=2))`,
`DawidSkene(engine=Torch(device="cuda:1"))`, `DawidSkene(engine=Spark(partitions=400))`. Another package adds an engine
with an entry point of the group `dissensus.engines`, whose value is such a class.

>>> from dissensus import methods
>>> from dissensus.compute.engines import Disk, Spark, Torch
>>> [methods["dawid-skene"](engine=engine).engine is engine for engine in (Torch(device="cpu"), Disk(), Spark())]
[True, True, True]
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dissensus.common.extras import import_extra
from dissensus.common.parameters import check_argument, param
from dissensus.common.types import IntArray
from dissensus.compute.engines.base import Engine, RemoteTable
from dissensus.compute.engines.local import LocalEngine as LocalEngine
from dissensus.compute.engines.local import Threads, thread_count
from dissensus.compute.exceptions import BadClusterAddress, NoFolderForCodes, UnknownEngine, WrongEngine
from dissensus.compute.rows import expand_rows
from dissensus.table.annotations import Annotations

MASTER_PATTERN = re.compile(
    r"local(\[(\d+|\*)(,\d+)?\])?|local-cluster\[\d+,\d+,\d+\]|yarn|k8s://\S+|spark://[^\s,]+:\d+(,[^\s,]+:\d+)*"
)
"""The pattern of the cluster addresses that Spark accepts."""


@dataclass(frozen=True)
class Local:
    """Store annotations in the memory of this process."""

    def load(self, table: Any) -> Any:
        """Return the argument of `fit` as a table of this engine, or unchanged if this engine cannot convert it."""
        if isinstance(table, RemoteTable):
            raise WrongEngine(location=table.location, engine=table.engine)
        return table

    def open_engine(self, model: Any, table: Any, gold: IntArray | None) -> Engine:
        """Return the engine for a table, with `model.threads` threads if the model has this keyword."""
        return open_in_memory(table, gold, getattr(model, "threads", None))

    def store_results(self, model: Any, table: Any, gold: IntArray | None) -> None:
        """Move the results of a fit to the storage of the table."""


def open_in_memory(table: Annotations, gold: IntArray | None, threads: int | None) -> LocalEngine:
    """Return the local engine for a table in memory."""
    rows = expand_rows(table)
    pool = Threads(thread_count(threads, rows.annotator.size))
    return LocalEngine(rows, table.n_annotators, table.n_classes, pool, gold)


def _create_pool(model: Any, table: Any) -> Threads:
    return Threads(thread_count(getattr(model, "threads", None), table.n_annotations))


@dataclass(frozen=True)
class Disk(Local):
    """Store annotations on a disk, with a few million rows in memory at a time.

    Parameters
    ----------
    folder : path, optional
        The folder for codes, checkpoints and posteriors; by default a folder next to the Parquet file.
    memory_gb : float, optional
        The memory that may be used to sort the rows, in GB.
    block_rows : int, optional
        The number of rows that each thread maps into memory at a time.

    >>> import tempfile
    >>> from dissensus import methods, simulate
    >>> table = simulate.simulate(50, 6, 3, seed=1).annotations
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     methods["dawid-skene"](engine=Disk(folder=folder)).fit(table).posterior_.shape
    (50, 3)
    """

    folder: str | Path | None = None
    memory_gb: float = 1.0
    block_rows: int = 4_000_000

    def __post_init__(self) -> None:
        check_argument("memory_gb", self.memory_gb, float, above=0)
        check_argument("block_rows", self.block_rows, int, low=1)

    def load(self, table: Any) -> Any:
        """Convert the files of a path or pattern, or a table in memory, to codes on the disk."""
        from dissensus.compute.engines.coding import CodedTable, code_parquet, code_table

        if isinstance(table, CodedTable):
            return table
        if isinstance(table, Annotations):
            if self.folder is None:
                raise NoFolderForCodes
            return code_table(table, self.folder)
        if isinstance(table, str | Path):
            return code_parquet(table, self.folder or default_codes_folder(table), memory_gb=self.memory_gb)
        return super().load(table)

    def open_engine(self, model: Any, table: Any, gold: IntArray | None) -> Engine:
        """Return the engine for the coded files, with a folder for this fit."""
        from dissensus.compute.engines.disk import DiskEngine, RunFolder

        return DiskEngine(table, self.block_rows, _create_pool(model, table), gold, RunFolder(model, table, gold))

    def store_results(self, model: Any, table: Any, gold: IntArray | None) -> None:
        """Store the results on the disk, and the frame of items as Parquet files."""
        from dissensus.compute.engines.disk import store_results

        store_results(model, table, gold)


def default_codes_folder(source: str | Path) -> Path:
    """Return the default folder of a file's codes, such as `labels.parquet.dissensus` for `labels.parquet`."""
    from dissensus.compute.engines.coding import split_pattern

    folder, pattern = split_pattern(source)
    return folder / (re.sub(r"[*?\[\]/]+", "_", pattern) + ".dissensus")


@dataclass(frozen=True)
class Torch(Local):
    """Store annotations on a GPU.

    Parameters
    ----------
    device : str, optional
        The name of a torch device; by default the first GPU, or the CPU if there is none.
    part_rows : int, optional
        The number of rows that a pass processes at a time; by default 2^25 on a GPU and 2^20 on the CPU.

    >>> Torch(device="cuda:1")
    Torch(device='cuda:1', part_rows=None)
    """

    device: str | None = None
    part_rows: int | None = None

    def __post_init__(self) -> None:
        check_argument("part_rows", self.part_rows, int | None, low=1)

    def open_engine(self, model: Any, table: Any, gold: IntArray | None) -> Engine:
        """Return the engine with the tensors on the device."""
        found = import_extra("dissensus.compute.engines.torch", "engine='torch' needs", "learning")
        rows, pool = expand_rows(table), _create_pool(model, table)
        engine: Engine = found.create_engine(rows, table.n_annotators, table.n_classes, gold, self, pool)
        return engine


@dataclass(frozen=True)
class Spark(Local):
    """Store annotations in a Spark cluster, with one part per task of a pass.

    Parameters
    ----------
    partitions : int, optional
        The number of parts; by default one per core, or more if a part would exceed `partition_rows`.
    partition_rows : int, optional
        The maximum number of rows of a part; ignored if `partitions` is set.
    master : str, optional
        The address of the cluster, such as `spark://host:7077`, if there is no active session. By default, Spark's own
        settings are used, or this machine if there are none.

    >>> Spark(master="spark://host:7077")
    Spark(partitions=None, partition_rows=10000000, master='spark://host:7077')
    """

    partitions: int | None = None
    partition_rows: int = 10_000_000
    master: str | None = None

    def __post_init__(self) -> None:
        check_argument("partitions", self.partitions, int | None, low=1)
        check_argument("partition_rows", self.partition_rows, int, low=1)
        if self.master is not None and not MASTER_PATTERN.fullmatch(self.master):
            raise BadClusterAddress(master=self.master)

    def load(self, table: Any) -> Any:
        """Convert a frame, Spark table or path to codes in the cluster; `open_engine` distributes tables in memory."""
        from dissensus.compute.engines.scatter import ClusterTable, distribute_frame, is_frame

        if is_frame(table) or isinstance(table, str | Path):
            return distribute_frame(table, options=self)
        return table if isinstance(table, ClusterTable) else super().load(table)

    def open_engine(self, model: Any, table: Any, gold: IntArray | None) -> Engine:
        """Return the engine for the parts in the cluster."""
        from dissensus.compute.engines.scatter import distribute_table
        from dissensus.compute.engines.spark import SparkEngine

        in_cluster = distribute_table(table, self) if isinstance(table, Annotations) else table
        return SparkEngine(in_cluster, _create_pool(model, table), gold)

    def store_results(self, model: Any, table: Any, gold: IntArray | None) -> None:
        """Keep the results in the cluster, and attach the table to the posterior, which needs its names."""
        if not isinstance(table, Annotations):
            if isinstance(model.posterior_, np.ndarray):  # the table was fitted in memory
                for key in model._per_item_results():
                    setattr(model, key, table.distribute(getattr(model, key)))
            model.posterior_.table = table


ENGINES: dict[str, type[Local]] = {"local": Local, "disk": Disk, "torch": Torch, "spark": Spark}
EngineChoice = Literal["local", "disk", "torch", "spark"] | Local


ENGINE: Any = param(
    "local", "where the passes run, see `dissensus.compute.engines`", check=lambda _: True,
    must="must be 'local', 'disk', 'torch', 'spark', or one with options, such as Disk(…)",
)  # fmt: skip
"""The keyword `engine` of methods that run on every engine; `engine_options` checks its value."""


def engine_name(engine: EngineChoice) -> str:
    """Return the name of an engine, without its options."""
    return engine if isinstance(engine, str) else type(engine).__name__.lower()


def engine_options(engine: object) -> Local:
    """Return the engine with its options, given its name or the engine itself; None stands for the default engine."""
    if engine is None:
        return Local()
    if isinstance(engine, Local):
        return engine
    if isinstance(engine, str):
        if engine not in ENGINES:
            from importlib.metadata import entry_points  # imported here because it takes 30 ms

            ENGINES.update({plugin.name: plugin.load() for plugin in entry_points(group="dissensus.engines")})
        if engine in ENGINES:
            return ENGINES[engine]()
    raise UnknownEngine(names=", ".join(map(repr, ENGINES)), engine=engine)
