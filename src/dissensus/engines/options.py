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


EngineChoice = Literal["local", "disk", "torch"] | Disk | Torch


def name_of(engine: EngineChoice) -> str:
    """The engine without its options."""
    return engine if isinstance(engine, str) else type(engine).__name__.lower()


def options_of(engine: object) -> Literal["local"] | Disk | Torch:
    """The engine with its options."""
    if engine == "local":
        return "local"
    if engine == "disk":
        return Disk()
    if engine == "torch":
        return Torch()
    if isinstance(engine, Disk | Torch):
        return engine
    raise BadParameter(f"engine must be 'local', 'disk', 'torch', Disk(…) or Torch(…), got {engine!r}.")
