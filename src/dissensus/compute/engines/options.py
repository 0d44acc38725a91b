"""Engines by name, or with options."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dissensus.common.parameters import is_number, is_whole
from dissensus.exceptions import BadParameter

MASTER = re.compile(
    r"local(\[(\d+|\*)(,\d+)?\])?|local-cluster\[\d+,\d+,\d+\]|yarn|k8s://\S+|spark://[^\s,]+:\d+(,[^\s,]+:\d+)*"
)
"""The addresses of clusters that Spark knows."""


@dataclass(frozen=True)
class Disk:
    """Annotations on a disk, a few million rows in memory at a time.

    `folder`: where codes, checkpoints and posteriors go; beside the Parquet file where left out. `memory_gb`: of the
    one sort that makes the codes. `block_rows`: rows that are mapped into memory at once by each thread.
    """

    folder: str | Path | None = None
    memory_gb: float = 1.0
    block_rows: int = 4_000_000

    def __post_init__(self) -> None:
        _check_counts(self, "block_rows")
        if not (is_number(self.memory_gb) and self.memory_gb > 0):
            raise BadParameter(f"memory_gb must be above 0, got {self.memory_gb!r}.")


@dataclass(frozen=True)
class Torch:
    """Annotations on a GPU. `device` as torch names it; left out: the first GPU, or the CPU where there is none.

    `part_rows`: rows that a pass makes anything of at once; left out: 2^25 on a GPU, 2^20 else.
    """

    device: str | None = None
    part_rows: int | None = None

    def __post_init__(self) -> None:
        _check_counts(self, "part_rows", none=True)


@dataclass(frozen=True)
class Spark:
    """Annotations in a Spark cluster, one part of them for each task of a pass.

    `partitions`: how many parts; left out: one for each core, and more where a part would have more than
    `partition_rows` rows. `broadcast_annotators`: whose parameters go out together; a worker fetches those broadcasts
    only in which annotators of its part are. `master`: the address of the cluster (`spark://host:7077`), where there is
    no session yet; left out: what Spark's own settings say, or this machine.
    """

    partitions: int | None = None
    partition_rows: int = 10_000_000
    broadcast_annotators: int = 1_000_000
    master: str | None = None

    def __post_init__(self) -> None:
        _check_counts(self, "partitions", none=True)
        _check_counts(self, "partition_rows", "broadcast_annotators")
        if self.master is not None and not MASTER.fullmatch(self.master):
            raise BadParameter(
                "master must be an address such as 'spark://host:7077', 'local[4]', 'yarn' or 'k8s://https://host', "
                f"got {self.master!r}; left out, it is what Spark's own settings say, or this machine."
            )


def _check_counts(options: Disk | Torch | Spark, *names: str, none: bool = False) -> None:
    """An error that begins with the option's name: the command line puts `--set engine.` before it."""
    for name in names:
        value = getattr(options, name)
        if not (is_whole(value) and value >= 1) and not (none and value is None):
            raise BadParameter(f"{name} must be at least 1{', or None' if none else ''}, got {value!r}.")


EngineChoice = Literal["local", "disk", "torch", "spark"] | Disk | Torch | Spark


def name_of(engine: EngineChoice) -> str:
    """The engine without its options."""
    return engine if isinstance(engine, str) else type(engine).__name__.lower()


def options_of(engine: object) -> Literal["local"] | Disk | Torch | Spark:
    """The engine with its options."""
    if engine == "local":
        return "local"
    for kind in (Disk, Torch, Spark):
        if engine == kind.__name__.lower():
            return kind()
    if isinstance(engine, Disk | Torch | Spark):
        return engine
    raise BadParameter(
        "engine must be 'local', 'disk', 'torch', 'spark', or one with options, Disk(…), Torch(…) or Spark(…), "
        f"got {engine!r}."
    )
