"""One pass over the labels with likelihoods (A, K, K): posterior and sums, on every engine.

Arrays here are [annotator, true, given]. The kernels have their own order, see `compute.kernels.confusion`;
`compute.readable` is their readable form and the oracle of the tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dissensus.common.types import FloatArray, IntArray
from dissensus.compute import readable
from dissensus.compute.engines import in_memory
from dissensus.compute.engines.base import Block, Engine, Pass, Size, Sums, Worker
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


@dataclass(eq=False)
class ConfusionPass(Pass[Likelihood | None, Counts]):
    """One fused pass, see `kernels.confusion`; may write `posterior`.

    `given` is the posterior for GIVEN, (I, K) or the block's; with `rng` it is drawn from Dirichlet(1 + votes) instead.
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

    adds = Counts

    def zeros(self, size: Size) -> list[Any]:
        """Evidence and classes; the labels are in the cells."""
        return [0.0, np.zeros(size.n_classes)]

    def open(self, params: Likelihood | None, size: Size, workers: int, pool: Threads) -> list[Worker]:
        """Load the cells; a worker's parameters are the prior, how many rows may be multiplied, and its cells."""
        opened = super().open(params, size, workers, pool)
        if opened[0].short:
            return opened
        from dissensus.compute.kernels import confusion as kernels

        A, K = size.n_annotators, size.n_classes
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
        for worker, cells in zip(opened, self.cells, strict=True):
            worker.params = prior, chunk, cells.reshape(-1)
        return opened

    def _given(self, part: readable.Part) -> Any:
        """The posterior (i, K) of a part's items for GIVEN; None where they have none."""
        if self.rng is None:
            return part.of_items(self.given)
        return part.put(draw_shares(part.array(part.votes(part.ones())), part.array(part.gold), self.rng))

    def over(self, part: readable.Part, params: Likelihood | None) -> tuple[Any, ...]:
        """`readable.confusion_pass`."""
        part.gold = part.gold if self.with_gold else None
        table, prior = (None, None) if params is None else (part.put(params.table), params.prior)
        prior = part.put(prior) if prior is None or len(prior) == 1 else part.of_items(prior)
        return readable.confusion_pass(part, self.source, self.shape, table, prior, self._given(part))

    def kernel(self, block: Block, worker: Worker, out: Mapping[str, Any]) -> None:
        """`kernels.confusion.sweep`."""
        from dissensus.compute.kernels import confusion as kernels

        rows, gold, K = block.rows, block.gold if self.with_gold else None, worker.size.n_classes
        given = self._given(readable.Part(rows.arrays, gold, 0, K, block.offset))
        prior, chunk, cells = worker.params
        vector = self.shape == FULL and K <= kernels.MAX_VECTOR and rows.weight is None
        walk = kernels.sweep(K if vector else 0, self.source, self.shape, rows.weight is not None)
        worker.sums[0] += walk(
            block.start, block.stop, rows.item_ptr, rows.annotator, rows.label,
            np.empty(0) if rows.weight is None else rows.weight,
            prior if len(prior) == 1 else block.of(prior), np.empty((0, K)) if given is None else given, chunk,
            np.empty(0, np.int32) if gold is None else gold,
            cells, worker.sums[1], out.get("posterior", np.empty((0, K))),
        )  # fmt: skip

    def close(self, workers: list[Worker], pool: Threads) -> Counts:
        """What all workers have added up, in the cells too."""
        if workers[0].short:
            return super().close(workers, pool)
        from dissensus.compute.kernels import confusion as kernels

        _, A, n_given, _, n_true = self.cells.shape
        labels = np.empty((A, n_true, n_given))
        pool.map(lambda _, start, stop: kernels.collect(start, stop, self.cells, labels), even(A, pool.threads))
        return Counts(sum(worker.sums[0] for worker in workers), sum(worker.sums[1] for worker in workers), labels)

    def on_torch(self, params: Likelihood | None, data: Any, out: Mapping[str, Any]) -> Counts:
        """The same on a device, as one kernel where it can be."""
        from dissensus.compute.kernels import on_torch

        if (
            params is not None
            and self.shape == FULL
            and (found := on_torch.fused(data, params.table, params.prior, out))
        ):
            return Counts(*found)
        return super().on_torch(params, data, out)


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
