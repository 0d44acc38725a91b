"""Where an EM pass runs: `engine="local" | "disk" | "torch"`, of every method that works "per item, then add counts".

A model is written once. It states its pass as a `base.Pass`: parameters come in, a kernel walks items and adds to
counts, the counts come out, and perhaps a posterior per item. A pass never holds annotations; an engine (`base.Engine`)
holds them and nothing else, and decides which block of items is walked where:

- `local`: arrays in memory; a block is a range of items, one for each thread, each with its own counts.
- `disk`: files of codes sorted by item, made once from Parquet (`coding`); a block is a few million rows, mapped into
  memory for as long as the same kernels walk them. The posterior is a file. After every pass the state is saved.
- `torch`: tensors on a GPU (or the CPU); the kernels are those of `kernels.on_torch`, over as many rows at a time as
  leave room for what they make of them.

Only parameters go to where the annotations are, only sums come back, and sums add with `+`: a cluster would broadcast
the parameters, `open` a buffer in each task, `walk` the task's blocks, `close` it, and reduce the sums as a tree. What
is asked before the first pass (votes, label counts) is asked by passes too, so that nothing needs the whole table in
one place. One exception: GLAD has a parameter per item, and all of them are in the memory of the driver.

All engines give the same answer. Sums and probabilities are in double precision everywhere, so engines differ by the
order of additions only, too little to change when a fit stops; a test holds them to it.

An engine with options is made by its class: `DawidSkene(engine=Disk(folder="work", memory_gb=2))`,
`DawidSkene(engine=Torch(device="cuda:1"))`.
"""

from __future__ import annotations

from typing import Any, Literal

from dissensus._types import IntArray
from dissensus.annotations import Annotations
from dissensus.engines.base import Engine, hard_rows
from dissensus.engines.local import Local, Threads, thread_count

EngineChoice = Literal["local"]

__all__ = ["EngineChoice", "in_memory", "place"]


def place(engine: Any, table: Any, gold: IntArray | None, threads: int | None) -> Engine:
    """The table where passes over it run."""
    return in_memory(table, gold, threads)


def in_memory(table: Annotations, gold: IntArray | None, threads: int | None) -> Local:
    """The engine for a table in memory."""
    rows = hard_rows(table)
    pool = Threads(thread_count(threads, rows.annotator.size))
    return Local(rows, table.n_annotators, table.n_classes, pool, gold)
