"""Parts of a table in a Spark cluster, one walked by each task: parameters are broadcast, sums come back as a tree.

A pass is one job over the parts that `scatter` left in the cluster. A task takes the parameters of its own annotators
out of the broadcast, opens a buffer, walks its part with the same kernels as `local` and closes the buffer; sums, over
the task's own annotators, are added pair by pair in the cluster and the last few on the driver. They are values of
tasks, never accumulators: a part whose task is run twice (speculation, a lost executor) counts once.

What a pass writes per item stays in the cluster: a `scatter.Spread` remembers the pass and its parameters, and its
parts are walked again when they are asked for, as any frame of Spark's is made. Arrays of the driver that a pass writes
into (GLAD's easiness; all results of a table that was in memory) come back with the sums.

A pass that draws goes from part to part, one job each, and takes its generator along: the draws of `local`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np

from dissensus.common.types import BoolArray, IntArray
from dissensus.compute.chunk import Chunk
from dissensus.compute.engines.base import Engine, P, Pass, S, Size, Sums
from dissensus.compute.engines.local import Threads
from dissensus.compute.engines.scatter import Part, Scattered, Spread
from dissensus.compute.rows import Rows, join_rows


@dataclass(frozen=True)
class Found:
    """Sums over some annotators (a,), codes of the whole table, and what was written for the driver by first item."""

    annotators: IntArray
    sums: Sums
    written: list[tuple[int, dict[str, Any]]] = field(default_factory=list)

    def over(self, annotators: IntArray) -> Any:
        """The sums over these annotators and more, none where there were none."""
        if np.array_equal(annotators, self.annotators):
            return self.sums
        at = np.searchsorted(annotators, self.annotators)

        def widen(values: Any) -> Any:
            wide = np.zeros((annotators.size, *values.shape[1:]), values.dtype)
            wide[at] = values
            return wide

        return by_annotator(widen, self.sums)


@dataclass(frozen=True)
class Task:
    """All that a worker is sent to walk its part."""

    pass_: Pass[Any, Any]
    sent: Any  # a broadcast of the parameters; None of a pass that has none
    size: Size
    gold: Any  # a broadcast of (I,) codes; None where nothing is known
    offsets: dict[int, int]
    shapes: dict[str, tuple[int, ...]]  # of an item's entry, of all that is written

    def __call__(self, partition: int, part: Part) -> tuple[Sums, dict[str, Any]]:
        """Walk a part: its sums, over its own annotators, and what was written of its items."""
        first, n, pool = self.offsets[partition], part.n_items, Threads(1)
        gold = None if self.gold is None else self.gold.value[first : first + n]
        written = {name: np.empty((n, *shape)) for name, shape in self.shapes.items()}
        size = replace(self.size, n_annotators=part.annotators.size)
        own = None if self.sent is None else by_annotator(partial(_take, at=part.annotators), self.sent.value)
        workers = self.pass_.open(own, size, 1, pool)
        chunk = Chunk(part.arrays, gold, size.n_annotators, size.n_classes, first)
        self.pass_.process(chunk, workers[0], written)
        return self.pass_.close(workers, pool), written


class SparkEngine(Engine):
    """A table in a cluster."""

    def __init__(self, table: Scattered, pool: Threads, gold: IntArray | None):
        super().__init__(table.size(), table.per_annotator, pool, gold)
        self.table = table
        self._gold = None if gold is None else table.parts.context.broadcast(gold)

    def run(self, pass_: Pass[P, S], params: P, out: Mapping[str, Any] | None = None) -> S:
        """One job over all parts, or where the pass draws one after the other."""
        out, context = out or {}, self.table.parts.context
        sent = None if params is None else context.broadcast(params)
        shapes = {name: tuple(to.shape[1:]) for name, to in out.items()}
        task = Task(pass_, sent, self.size, self._gold, self.table.offsets, shapes)
        keep = [name for name, to in out.items() if not isinstance(to, Spread)]
        if pass_.sequential:
            found = self._in_turn(task, keep)
        else:
            found = self.table.parts.mapPartitionsWithIndex(partial(_walk, task, keep)).treeReduce(_add)
        for first, written in found.written:
            for name in keep:
                out[name][first : first + len(written[name])] = written[name]
        spread = {name: to for name, to in out.items() if isinstance(to, Spread)}
        for name, to in spread.items():
            to.parts = self.table.parts.mapPartitionsWithIndex(partial(_write, task, name))
        if sent is not None and not spread:
            sent.destroy()
        return found.over(np.arange(self.size.n_annotators, dtype=np.int32))  # type: ignore[no-any-return]

    def _in_turn(self, task: Task, keep: list[str]) -> Found:
        found: Found | None = None
        for partition in self.table.offsets:
            job = self.table.parts.mapPartitionsWithIndex(partial(_walk_on, task, keep))
            ((part, pass_),) = self.table.parts.context.runJob(job, list, [partition])
            task, found = replace(task, pass_=pass_), part if found is None else _add(found, part)
        assert found is not None
        return found

    def select_rows(self, keep: BoolArray) -> Rows:
        """The rows of the items to keep, chosen in the cluster."""
        sent = self.table.parts.context.broadcast(keep)
        chosen = self.table.parts.mapPartitionsWithIndex(partial(_choose, sent, self.table.offsets))
        return join_rows([rows for _, rows in sorted(chosen.collect(), key=itemgetter(0))])

    def has_labels(self) -> BoolArray:
        """(I,) which items have annotations."""
        return np.concatenate(self.table.parts.map(lambda part: np.diff(part.item_ptr) > 0).collect())

    def allocate(self, name: str, *shape: int) -> Any:
        """In the cluster, but of a table that is in memory too."""
        if self.table.names is None:
            return super().allocate(name, *shape)
        return Spread((self.size.n_items, *shape), np.float64)

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        if self.table.names is None:  # nobody else has these parts
            self.table.release()
            if self._gold is not None:
                self._gold.destroy()


def by_annotator(work: Callable[..., Any], first: Any, *others: Any) -> Any:
    """Parameters or sums with `work` done on each array that has an entry per annotator; `others` are of their kind."""
    if isinstance(first, np.ndarray):
        return work(first, *others)
    done = {
        name: by_annotator(work, *(getattr(each, name) for each in (first, *others))) for name in first.by_annotator
    }
    return first._replace(**done) if hasattr(first, "_replace") else replace(first, **done)


# In the workers -------------------------------------------------------------------------------------------------------


def _take(values: Any, at: IntArray) -> Any:
    return values if at.size == len(values) else values[at]


def _walk(task: Task, keep: list[str], partition: int, parts: Iterator[Part]) -> Iterator[Found]:
    for part in parts:
        sums, written = task(partition, part)
        kept = {name: written[name] for name in keep}
        yield Found(part.annotators, sums, [(task.offsets[partition], kept)] if keep else [])


def _walk_on(task: Task, keep: list[str], partition: int, parts: Iterator[Part]) -> Iterator[tuple[Found, Any]]:
    for found in _walk(task, keep, partition, parts):
        yield found, task.pass_


def _choose(keep: Any, offsets: dict[int, int], partition: int, parts: Iterator[Part]) -> Iterator[tuple[int, Rows]]:
    """The chosen rows of a part, by its first item; annotators have their codes of the whole table."""
    for part in parts:
        first = offsets[partition]
        yield first, part.whole().select(keep.value[first : first + part.n_items])


def _write(task: Task, name: str, partition: int, parts: Iterator[Part]) -> Iterator[Any]:
    for part in parts:
        yield task(partition, part)[1][name]


def _add(one: Found, other: Found) -> Found:
    both = one.annotators
    if not np.array_equal(both, other.annotators):
        both = np.union1d(both, other.annotators)
    return Found(both, one.over(both) + other.over(both), one.written + other.written)
