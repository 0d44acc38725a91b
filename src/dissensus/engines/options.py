"""Engines by name, or with options."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dissensus.exceptions import BadParameter


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
        if self.block_rows < 1 or not self.memory_gb > 0:
            raise BadParameter(f"block_rows must be at least 1 and memory_gb above 0, got {self}.")


@dataclass(frozen=True)
class Torch:
    """Annotations on a GPU. `device` as torch names it; left out: the first GPU, or the CPU where there is none.

    `part_rows`: rows that a pass makes anything of at once; left out: 2^25 on a GPU, 2^20 else.
    """

    device: str | None = None
    part_rows: int | None = None

    def __post_init__(self) -> None:
        if self.part_rows is not None and self.part_rows < 1:
            raise BadParameter(f"part_rows must be at least 1, or None, got {self.part_rows}.")


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
        if min(self.partitions or 1, self.partition_rows, self.broadcast_annotators) < 1 or self.partitions == 0:
            raise BadParameter(
                f"partitions (or None), partition_rows and broadcast_annotators must be at least 1, got {self}."
            )


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
