"""One pass over the labels with likelihoods (A, K, K): posterior and sums, on every engine.

Arrays here are [annotator, true, given]. The kernels have their own order, see `compute.kernels.confusion`;
`compute.readable` is their readable form and the oracle of the tests.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dissensus.common.types import FloatArray, IntArray
from dissensus.compute import readable
from dissensus.compute.engines import in_memory
from dissensus.compute.engines.base import Block, Engine, Pass, Size, Sums
from dissensus.compute.engines.local import Threads, even
from dissensus.compute.readable import COIN, FULL, GIVEN, LIKELIHOOD, ONES, OWN
from dissensus.table.annotations import Annotations


@dataclass(frozen=True)
class OwnCells:
    """P(label | class) of labels that speak for their own class alone; (A, K), or (A, 1) where all are alike."""

    right: FloatArray  # of the class itself
    wrong: FloatArray  # of any other class

    def full(self, n_classes: int) -> FloatArray:
        """(A, K, K) [annotator, true, given]."""
        own = np.eye(n_classes, dtype=bool)
        if n_classes == 1:  # nothing is left to get wrong
            return np.ones((len(self.right), 1, 1))
        return np.where(own, self.right[:, None, :], self.wrong[:, None, :])


Cells = FloatArray | OwnCells


@dataclass(frozen=True)
class Likelihood:
    """What a pass needs: π (1, K) or (I, K), and a table (A, true, given) of likelihoods or (A, 1, given) of odds."""

    by_annotator: ClassVar = ("table",)
    prior: FloatArray
    table: FloatArray

    @classmethod
    def of(cls, prior: FloatArray, cells: Cells) -> Likelihood:
        """For likelihoods as a method states them."""
        prior = np.ascontiguousarray(np.atleast_2d(prior))
        if isinstance(cells, OwnCells):
            return cls(prior, (cells.right / cells.wrong)[:, None, :])
        return cls(prior, cells)


@dataclass(frozen=True)
class Counts(Sums):
    """What a pass adds up: log evidence, items of each class (K,), labels (A, true, given), all by the posterior.

    In OWN and COIN the labels are (A, 1, given), those that are right, and the evidence lacks what all classes share.
    """

    by_annotator: ClassVar = ("labels",)
    evidence: float
    classes: FloatArray
    labels: FloatArray


class Readable(NamedTuple):
    """What a worker needs for the readable pass: parameters, sizes, and the sums of the blocks so far."""

    params: Likelihood | None
    n_annotators: int
    n_classes: int
    found: list[Counts]


@dataclass(eq=False)
class ConfusionPass(Pass[Likelihood | None, Counts, Any]):
    """One fused pass, see `kernels.confusion`; may write `posterior`.

    `given` (I, K) is the posterior for GIVEN; with `rng` it is drawn from Dirichlet(1 + votes) of each block instead.
    """

    source: int
    shape: int
    with_gold: bool = True
    given: FloatArray | None = None
    rng: np.random.Generator | None = None
    cells: Any = None  # (workers, A, given, 2, true), kept between passes

    @property
    def in_order(self) -> bool:
        """One generator draws item by item."""
        return self.rng is not None

    def open(self, params: Likelihood | None, size: Size, workers: int, pool: Threads) -> list[Any]:
        """Prior, cells, classes (K,) and evidence (1,) for each worker; of a short table, a list of sums."""
        A, K = size.n_annotators, size.n_classes
        if size.n_rows < readable.MIN_KERNEL_ROWS:
            return [Readable(params, A, K, []) for _ in range(workers)]
        from dissensus.compute.kernels import confusion as kernels

        shape = (workers, A, 1 if self.shape == COIN else K, 2, K if self.shape == FULL else 1)
        if self.cells is None or self.cells.shape != shape:
            self.cells = np.zeros(shape)
        prior: FloatArray = np.ones((1, K))
        chunk = 0
        if params is not None:
            table = params.table
            prior, chunk = params.prior, kernels.chunk_rows(table)
            pool.map(
                lambda _, start, stop: kernels.load(start, stop, table, self.cells, size.weighted),
                even(A, pool.threads),
            )
        else:
            self.cells[..., 1, :] = 0.0
        sums = np.zeros((workers, K)), np.zeros((workers, 1))
        return [(prior, chunk, self.cells[t].reshape(-1), sums[0][t], sums[1][t]) for t in range(workers)]

    def walk(self, block: Block, buffer: Any, out: Mapping[str, Any], given: FloatArray | None = None) -> None:
        """`kernels.confusion.sweep`, or its readable form; `given` is the block's part, where nobody has the whole."""
        rows, gold = block.rows, block.gold if self.with_gold else None
        K = buffer.n_classes if isinstance(buffer, Readable) else buffer[3].size
        if self.rng is not None:
            part = readable.Part.of(rows, None, 0, K)
            given = draw_shares(part.votes(part.ones()), gold, self.rng)
        elif self.given is not None:
            given = block.of(self.given)
        if isinstance(buffer, Readable):
            self._walk_readably(block, buffer, given, gold, out)
            return
        from dissensus.compute.kernels import confusion as kernels

        prior, chunk, cells, classes, evidence = buffer
        vector = self.shape == FULL and K <= kernels.MAX_VECTOR and rows.weight is None
        walk = kernels.sweep(K if vector else 0, self.source, self.shape, rows.weight is not None)
        evidence[0] += walk(
            block.start, block.stop, rows.item_ptr, rows.annotator, rows.label,
            np.empty(0) if rows.weight is None else rows.weight,
            prior if len(prior) == 1 else block.of(prior), np.empty((0, K)) if given is None else given, chunk,
            np.empty(0, np.int32) if gold is None else gold,
            cells, classes, out.get("posterior", np.empty((0, K))),
        )  # fmt: skip

    def _walk_readably(
        self, block: Block, buffer: Readable, given: FloatArray | None, gold: IntArray | None, out: Mapping[str, Any]
    ) -> None:
        table, prior = None, None
        if buffer.params is not None:
            table, prior = buffer.params.table, buffer.params.prior
            prior = prior if len(prior) == 1 else block.of(prior)
        part = readable.Part.of(block.rows, gold, buffer.n_annotators, buffer.n_classes)
        *sums, posterior = readable.confusion_pass(part, self.source, self.shape, table, prior, given)
        if "posterior" in out:
            out["posterior"][:] = posterior
        buffer.found.append(Counts(*sums))

    def close(self, buffers: list[Any], pool: Threads) -> Counts:
        """The sums of all workers."""
        if isinstance(buffers[0], Readable):
            found: list[Counts] = [sums for buffer in buffers for sums in buffer.found]
            return reduce(operator.add, found)
        from dissensus.compute.kernels import confusion as kernels

        _, A, n_given, _, n_true = self.cells.shape
        labels = np.empty((A, n_true, n_given))
        pool.map(lambda _, start, stop: kernels.collect(start, stop, self.cells, labels), even(A, pool.threads))
        return Counts(sum(float(b[4][0]) for b in buffers), np.sum([b[3] for b in buffers], axis=0), labels)

    def on_torch(
        self, params: Likelihood | None, data: Any, out: Mapping[str, Any], given: FloatArray | None = None
    ) -> Counts:
        """The same in torch; draws come from the same generator in the same order."""
        from dissensus.compute.kernels import on_torch

        draw = None if self.rng is None else partial(draw_shares, rng=self.rng)
        table, prior = (None, None) if params is None else (params.table, params.prior)
        given, posterior = self.given if given is None else given, out.get("posterior")
        return Counts(
            *on_torch.confusion(data, self.source, self.shape, table, prior, given, draw, posterior, self.with_gold)
        )


def label_totals(engine: Engine) -> FloatArray:
    """(A, 1, given) weight of each annotator's labels."""
    return engine.sweep(ConfusionPass(ONES, OWN), None).labels


def judge(engine: Engine, prior: FloatArray, cells: Cells) -> tuple[FloatArray, Counts]:
    """(I, K) posterior of a table in memory and the sums by it: one E step."""
    shape = FULL if not isinstance(cells, OwnCells) else COIN if cells.right.shape[1] == 1 else OWN
    posterior = np.empty((engine.size.n_items, engine.size.n_classes))
    walk = ConfusionPass(LIKELIHOOD, shape)
    return posterior, engine.sweep(walk, Likelihood.of(prior, cells), {"posterior": posterior})


def soft_counts(table: Annotations, posterior: FloatArray) -> FloatArray:
    """(A, K, K) [annotator, true, given] how often, by a posterior (I, K), each annotator gave each label."""
    with in_memory(table, None, 1) as engine:
        return engine.sweep(ConfusionPass(GIVEN, FULL, given=np.ascontiguousarray(posterior)), None).labels


def draw_shares(votes: FloatArray, gold: IntArray | None, rng: np.random.Generator) -> FloatArray:
    """(I, K) a draw from Dirichlet(1 + votes) for every item; known classes have all."""
    posterior = rng.standard_gamma(votes + 1)
    posterior /= posterior.sum(axis=1, keepdims=True)
    return np.asarray(readable.with_known(posterior, gold))
