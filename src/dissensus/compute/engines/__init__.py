"""Where an EM pass runs: `engine="local" | "disk" | "torch" | "spark"`, for methods that go "per item, then add
counts".

A model is written once. It states its pass as a `base.Pass`: parameters come in, a kernel loops over items and adds to
counts, the counts come out, and perhaps a posterior per item. A pass never holds annotations; an engine (`base.Engine`)
holds them and nothing else, and decides which chunk of items is processed where:

- `local`: arrays in memory; a chunk is a range of items, one for each thread, each with its own counts.
- `disk`: files of codes sorted by item, made once from Parquet (`coding`); a chunk is a few million rows, mapped into
  memory while the same kernels process them. The posterior is a file. After every pass the state is saved. Codes,
  checkpoints and results go to a folder; results with a row per item are arrays mapped from files there, and
  `items_path_` is a folder of Parquet files with what `to_frame("items")` shows.
- `torch`: tensors on a GPU (or the CPU); the kernels are those of `kernels.on_torch`, over as many rows at a time as
  leave room for intermediate arrays.
- `spark`: arrays in a cluster, made there (`scatter`); a chunk is what a task processes: it takes the parameters of its
  annotators from broadcasts, and sums are added as a tree. Results with a row per item stay in the cluster:
  `to_frame("items")` is a DataFrame, and `np.asarray(model.posterior_)` brings them to the driver.

Only parameters go to where the annotations are, only sums come back, and sums add with `+`. What a fit needs before the
first pass (votes, label counts) is computed by passes too, so that nothing needs the whole table in one place. One
exception: GLAD has a parameter per item, and all of them are in the memory of the driver.

All engines give the same answer. Sums and probabilities are in double precision everywhere, so engines differ by the
order of additions only, too little to change when a fit stops; tests verify it.

An engine with options is made by its class: `DawidSkene(engine=Disk(folder="work", memory_gb=2))`,
`DawidSkene(engine=Torch(device="cuda:1"))`, `DawidSkene(engine=Spark(partitions=400))`. Another package adds an engine
by an entry point of the group `dissensus.engines`, whose value is such a class.

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
"""The addresses of clusters that Spark knows."""


@dataclass(frozen=True)
class Local:
    """Annotations in the memory of this process."""

    def load(self, table: Any) -> Any:
        """Return what `fit` was given as a table of this engine; what is not a table is returned unchanged."""
        if isinstance(table, RemoteTable):
            raise WrongEngine(location=table.location, engine=table.engine)
        return table

    def open(self, model: Any, table: Any, gold: IntArray | None) -> Engine:
        """Return the engine that holds the table, with `model.threads` threads if the model has that keyword."""
        return open_in_memory(table, gold, getattr(model, "threads", None))

    def store_results(self, model: Any, table: Any, gold: IntArray | None) -> None:
        """Move the results of a fit to where the table is kept."""


def open_in_memory(table: Annotations, gold: IntArray | None, threads: int | None) -> LocalEngine:
    """Return the engine for a table in memory."""
    rows = expand_rows(table)
    pool = Threads(thread_count(threads, rows.annotator.size))
    return LocalEngine(rows, table.n_annotators, table.n_classes, pool, gold)


def _create_pool(model: Any, table: Any) -> Threads:
    return Threads(thread_count(getattr(model, "threads", None), table.n_annotations))


@dataclass(frozen=True)
class Disk(Local):
    """Annotations on a disk, a few million rows in memory at a time.

    `folder`: folder of codes, checkpoints and posteriors; by default next to the Parquet file. `memory_gb`: memory of
    the sort that makes the codes. `block_rows`: rows that each thread maps into memory at once.

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
        """Return the codes of a path, a pattern or a table in memory."""
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

    def open(self, model: Any, table: Any, gold: IntArray | None) -> Engine:
        """Return the engine that maps the files, with a folder for the fit."""
        from dissensus.compute.engines.disk import DiskEngine, RunFolder

        return DiskEngine(table, self.block_rows, _create_pool(model, table), gold, RunFolder(model, table, gold))

    def store_results(self, model: Any, table: Any, gold: IntArray | None) -> None:
        """Store results on the disk, and the frame of the items as Parquet files."""
        from dissensus.compute.engines.disk import store_results

        store_results(model, table, gold)


def default_codes_folder(source: str | Path) -> Path:
    """Return the default folder of a file's codes: `labels.parquet` → `labels.parquet.dissensus`."""
    from dissensus.compute.engines.coding import split_pattern

    folder, pattern = split_pattern(source)
    return folder / (re.sub(r"[*?\[\]/]+", "_", pattern) + ".dissensus")


@dataclass(frozen=True)
class Torch(Local):
    """Annotations on a GPU. `device` as torch names it; by default the first GPU, or the CPU without one.

    `part_rows`: rows that a pass processes at once; by default 2^25 on a GPU, else 2^20.

    >>> Torch(device="cuda:1")
    Torch(device='cuda:1', part_rows=None)
    """

    device: str | None = None
    part_rows: int | None = None

    def __post_init__(self) -> None:
        check_argument("part_rows", self.part_rows, int | None, low=1)

    def open(self, model: Any, table: Any, gold: IntArray | None) -> Engine:
        """Return the engine with the tensors on the device."""
        found = import_extra("dissensus.compute.engines.torch", "engine='torch' needs", "learning")
        rows, pool = expand_rows(table), _create_pool(model, table)
        engine: Engine = found.create_engine(rows, table.n_annotators, table.n_classes, gold, self, pool)
        return engine


@dataclass(frozen=True)
class Spark(Local):
    """Annotations in a Spark cluster, one part for each task of a pass.

    `partitions`: number of parts; by default one per core, and more if a part would have more than `partition_rows`
    rows. `master`: address of the cluster (`spark://host:7077`) if there is no session yet; by default Spark's own
    settings decide, or this machine is used.

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
        """Return the parts in the cluster of a DataFrame, a Spark table or a path; `open` sends tables in memory."""
        from dissensus.compute.engines.scatter import ClusterTable, distribute_frame, is_frame

        if is_frame(table) or isinstance(table, str | Path):
            return distribute_frame(table, options=self)
        return table if isinstance(table, ClusterTable) else super().load(table)

    def open(self, model: Any, table: Any, gold: IntArray | None) -> Engine:
        """Return the engine with the parts in the cluster."""
        from dissensus.compute.engines.scatter import distribute_table
        from dissensus.compute.engines.spark import SparkEngine

        in_cluster = distribute_table(table, self) if isinstance(table, Annotations) else table
        return SparkEngine(in_cluster, _create_pool(model, table), gold)

    def store_results(self, model: Any, table: Any, gold: IntArray | None) -> None:
        """Keep results in the cluster, and note their table in the posterior."""
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
"""The parameter of methods that run on every engine; the engine itself checks it."""


def engine_name(engine: EngineChoice) -> str:
    """Return the name of an engine without its options."""
    return engine if isinstance(engine, str) else type(engine).__name__.lower()


def engine_options(engine: object) -> Local:
    """Return an engine with its options; None: the default one."""
    if engine is None:
        return Local()
    if isinstance(engine, Local):
        return engine
    if isinstance(engine, str):
        if engine not in ENGINES:
            from importlib.metadata import entry_points  # takes 30 ms

            ENGINES.update({plugin.name: plugin.load() for plugin in entry_points(group="dissensus.engines")})
        if engine in ENGINES:
            return ENGINES[engine]()
    raise UnknownEngine(names=", ".join(map(repr, ENGINES)), engine=engine)
