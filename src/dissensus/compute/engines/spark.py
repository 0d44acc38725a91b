"""The spark engine, which broadcasts the parameters to a cluster and adds up the sums there.

A pass is one job over the parts that `scatter` made in the cluster. Each task selects the parameters of its annotators
from the broadcast and processes its part with the same kernels as `local`. It returns sums over its annotators, which
are added pairwise in the cluster; the driver adds the last few. The sums are return values of tasks, not accumulators.
Therefore a part is counted once even if its task runs twice because of speculation or a lost executor.

Results with one entry per item stay in the cluster. A `scatter.ClusterArray` stores the pass and its parameters, and
its parts are computed when they are needed, like any frame in Spark. If a pass writes to arrays on the driver, such as
GLAD's easiness or the results of a table in memory, their values are returned with the sums.

A pass that draws random numbers runs one job per part, in order, and each job passes its generator to the next one, so
that the draws equal those of `local`.
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
from dissensus.compute.engines.base import Engine, P, Pass, S, Sums, TableSize
from dissensus.compute.engines.local import Threads
from dissensus.compute.engines.scatter import ClusterArray, ClusterTable, TablePart
from dissensus.compute.rows import Rows, join_rows


@dataclass(frozen=True)
class PartialSums:
    """Sums over some annotators (a,), given by codes of the whole table, and outputs for the driver by first item."""

    annotators: IntArray
    sums: Sums
    results: list[tuple[int, dict[str, Any]]] = field(default_factory=list)

    def widen_to(self, annotators: IntArray) -> Any:
        """Return the sums with one entry for each of `annotators`, a superset; the added entries are zero."""
        if np.array_equal(annotators, self.annotators):
            return self.sums
        at = np.searchsorted(annotators, self.annotators)

        def widen(values: Any) -> Any:
            wide = np.zeros((annotators.size, *values.shape[1:]), values.dtype)
            wide[at] = values
            return wide

        return map_annotator_arrays(widen, self.sums)


@dataclass(frozen=True)
class PartTask:
    """The work on one part: the pass, its parameters and the gold labels."""

    pass_: Pass[Any, Any]
    sent: Any  # broadcast parameters; None for a pass without parameters
    size: TableSize
    gold: Any  # broadcast gold codes (I,); None without gold
    offsets: dict[int, int]
    shapes: dict[str, tuple[int, ...]]  # shape of one item's entry in each output

    def __call__(self, partition: int, part: TablePart) -> tuple[Sums, dict[str, Any]]:
        """Process a part; return the sums over its annotators and the outputs of its items."""
        first, n, pool = self.offsets[partition], part.n_items, Threads(1)
        gold = None if self.gold is None else self.gold.value[first : first + n]
        written = {name: np.empty((n, *shape)) for name, shape in self.shapes.items()}
        size = replace(self.size, n_annotators=part.annotators.size)
        own = (
            None
            if self.sent is None
            else map_annotator_arrays(partial(_select_annotators, at=part.annotators), self.sent.value)
        )
        workers = self.pass_.create_workers(own, size, 1, pool)
        chunk = Chunk(part.arrays, gold, size.n_annotators, size.n_classes, first)
        self.pass_.process(chunk, workers[0], written)
        return self.pass_.sum_workers(workers, pool), written


class SparkEngine(Engine):
    """The engine for a table in a Spark cluster."""

    def __init__(self, table: ClusterTable, pool: Threads, gold: IntArray | None):
        super().__init__(table.size(), table.annotations_per_annotator, pool, gold)
        self.table = table
        self._gold = None if gold is None else table.parts.context.broadcast(gold)

    def run(self, pass_: Pass[P, S], params: P, out: Mapping[str, Any] | None = None) -> S:
        """Run one job over all parts, or one job per part if the pass is sequential."""
        out, context = out or {}, self.table.parts.context
        sent = None if params is None else context.broadcast(params)
        shapes = {name: tuple(to.shape[1:]) for name, to in out.items()}
        task = PartTask(pass_, sent, self.size, self._gold, self.table.offsets, shapes)
        keep = [name for name, to in out.items() if not isinstance(to, ClusterArray)]
        if pass_.sequential:
            found = self._run_sequentially(task, keep)
        else:
            found = self.table.parts.mapPartitionsWithIndex(partial(_process_parts, task, keep)).treeReduce(_add_sums)
        for first, written in found.results:
            for name in keep:
                out[name][first : first + len(written[name])] = written[name]
        spread = {name: to for name, to in out.items() if isinstance(to, ClusterArray)}
        for name, to in spread.items():
            to.parts = self.table.parts.mapPartitionsWithIndex(partial(_compute_result, task, name))
        if sent is not None and not spread:
            sent.destroy()
        return found.widen_to(np.arange(self.size.n_annotators, dtype=np.int32))  # type: ignore[no-any-return]

    def _run_sequentially(self, task: PartTask, keep: list[str]) -> PartialSums:
        sums: PartialSums | None = None
        for partition in self.table.offsets:
            job = self.table.parts.mapPartitionsWithIndex(partial(_process_sequentially, task, keep))
            ((part, pass_),) = self.table.parts.context.runJob(job, list, [partition])
            task, sums = replace(task, pass_=pass_), part if sums is None else _add_sums(sums, part)
        assert sums is not None
        return sums

    def select_rows(self, keep: BoolArray) -> Rows:
        """Load the rows of the selected items, selected in the cluster."""
        sent = self.table.parts.context.broadcast(keep)
        chosen = self.table.parts.mapPartitionsWithIndex(partial(_select_rows, sent, self.table.offsets))
        return join_rows([rows for _, rows in sorted(chosen.collect(), key=itemgetter(0))])

    def has_labels(self) -> BoolArray:
        """Return a mask of the items that have annotations, (I,)."""
        return np.concatenate(self.table.parts.map(lambda part: np.diff(part.item_ptr) > 0).collect())

    def allocate(self, name: str, *shape: int) -> Any:
        """Return storage for an output; it is in the cluster, or on the driver if the driver has the table."""
        if self.table.names is None:
            return super().allocate(name, *shape)
        return ClusterArray((self.size.n_items, *shape), np.float64)

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        if self.table.names is None:  # the parts were made for this fit only
            self.table.release()
            if self._gold is not None:
                self._gold.destroy()


def map_annotator_arrays(work: Callable[..., Any], first: Any, *others: Any) -> Any:
    """Apply `work` to each array of `first` (parameters or sums) that has one entry per annotator."""
    if isinstance(first, np.ndarray):
        return work(first, *others)
    done = {
        name: map_annotator_arrays(work, *(getattr(each, name) for each in (first, *others)))
        for name in first.by_annotator
    }
    return first._replace(**done) if hasattr(first, "_replace") else replace(first, **done)


# Code that runs in workers
# ------------------------------------------------------------------------------------------------


def _select_annotators(values: Any, at: IntArray) -> Any:
    return values if at.size == len(values) else values[at]


def _process_parts(
    task: PartTask, keep: list[str], partition: int, parts: Iterator[TablePart]
) -> Iterator[PartialSums]:
    for part in parts:
        sums, written = task(partition, part)
        kept = {name: written[name] for name in keep}
        yield PartialSums(part.annotators, sums, [(task.offsets[partition], kept)] if keep else [])


def _process_sequentially(
    task: PartTask, keep: list[str], partition: int, parts: Iterator[TablePart]
) -> Iterator[tuple[PartialSums, Any]]:
    for found in _process_parts(task, keep, partition, parts):
        yield found, task.pass_


def _select_rows(
    keep: Any, offsets: dict[int, int], partition: int, parts: Iterator[TablePart]
) -> Iterator[tuple[int, Rows]]:
    """Yield the first item of each part and its selected rows, with annotator codes of the whole table."""
    for part in parts:
        first = offsets[partition]
        yield first, part.with_table_codes().select_items(keep.value[first : first + part.n_items])


def _compute_result(task: PartTask, name: str, partition: int, parts: Iterator[TablePart]) -> Iterator[Any]:
    for part in parts:
        yield task(partition, part)[1][name]


def _add_sums(left: PartialSums, right: PartialSums) -> PartialSums:
    both = left.annotators
    if not np.array_equal(both, right.annotators):
        both = np.union1d(both, right.annotators)
    return PartialSums(both, left.widen_to(both) + right.widen_to(both), left.results + right.results)
