"""EBCC, enhanced Bayesian classifier combination: every class has subtypes that annotators confuse in their own ways.

Use it when items have many labels and some are hard in the same way for all annotators.

Item i has class z_i and a subtype g_i of that class, and each annotator has one row of probabilities per subtype:

    z_i ~ Cat(τ)      g_i | z_i = k ~ Cat(π_k)      y_ij | z_i = k, g_i = m ~ Cat(v_jkm)
    τ ~ Dir(α)      π_k ~ Dir(p/M, …, p/M)      v_jkm ~ Dir(β_k)

α_k is the sum of the vote shares of class k, and β_kk = `right_count`, else `wrong_count`. Mean-field variational Bayes
approximates the posterior by Dirichlets, and every pass raises a bound on the log evidence:

    E step  q_i(k, m) ∝ exp(E log τ_k + E log π_km + Σ_{j∈M_i} E log v_jkm[y_ij])
    M step  τ: α_k + Σ_im q_i(k, m)      π_k: p/M + Σ_i q_i(k, m)      v_jkm[l]: β_kl + Σ_{i: y_ij = l} q_i(k, m)
    bound   Σ_i log Σ_km exp(…) − KL(τ) − Σ_k KL(π_k) − Σ_jkm KL(v_jkm), each from its prior

A start has q_i(k, m) = vote share of k × a draw from Dir(1, …, 1). The best bound of all starts is kept.

- `posterior_` (I, K): Σ_m q_i(k, m)
- `subtype_posterior_` (I, K, M): q_i(m | k)
- `class_counts_` (K,), `subtype_counts_` (K, M), `label_counts_` (A, K, M, K) [annotator, true, subtype, given]: the
  Dirichlets of τ, π and v
- `subtype_confusion_` (A, K, M, K): means of v; `confusion_` (A, K, K) averages them over subtypes
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np

from dissensus.common.parameters import param
from dissensus.common.types import FloatArray, IntArray, OnStep
from dissensus.compute.chunk import Chunk, apply_gold, build_label_matrix, normalise_log_joint, vote_shares
from dissensus.compute.engines.local import Threads, thread_count
from dissensus.compute.rows import Rows, expand_rows
from dissensus.models.base import Aggregator, methods
from dissensus.models.dirichlet import expected_log, kl_divergence
from dissensus.models.item_keys import cell_keys, item_keys, uniform_draws
from dissensus.models.matrices import PSEUDO_COUNT_LIMITS
from dissensus.models.tempering import DEPENDENCE, DependenceChoice
from dissensus.table.annotations import Annotations

BLOCK_CELLS = 2**18  # items or annotators × classes × subtypes × starts that are processed together, to fit into caches
MIN_CLASS_COUNT = 0.01  # smallest α, for classes that no label names; ψ(0.01) = −101
CHUNK_ROWS = 2**12  # rows that are predicted together


@methods.register(
    "ebcc", summary="confusion matrices of subtypes of the classes; variational Bayes", cite="Li et al. 2019",
    costly=True,
)  # fmt: skip
class EBCC(Aggregator):
    """Estimate class posteriors with subtypes of classes, by variational Bayes from many starts."""

    subtypes: int = param(10, "M: number of subtypes of each class", low=1)
    subtype_count: float = param(
        0.1, "p: pseudo-items of each class, divided among its subtypes", **PSEUDO_COUNT_LIMITS
    )
    right_count: float = param(4.0, "pseudo-count of right labels of each annotator and subtype", **PSEUDO_COUNT_LIMITS)
    wrong_count: float = param(
        1.0, "pseudo-count of each wrong label of each annotator and subtype", **PSEUDO_COUNT_LIMITS
    )
    restarts: int = param(40, "number of starts, of which the best bound is kept", low=1)
    max_iter: int = param(500, "passes over the data at most, for one start", low=1)
    tol: float = param(1e-3, "stop when no class probability changes by more", low=0)
    dependence: DependenceChoice = DEPENDENCE
    threads: int | None = param(None, "threads for the passes; None for all cores", low=1)

    labels_depend_on_items: ClassVar = True
    class_counts_: Annotated[FloatArray, "K count"]
    subtype_counts_: Annotated[FloatArray, "K C count"]
    label_counts_: Annotated[FloatArray, "A K C K count"]
    population_label_counts_: Annotated[FloatArray, "K C K count"]
    subtype_posterior_: Annotated[FloatArray, "I K C share"]
    confusion_: Annotated[FloatArray, "A K K simplex"]
    population_confusion_: Annotated[FloatArray, "K K simplex"]

    @property
    def subtype_confusion_(self) -> FloatArray:
        """Means of v (A, K, M, K) [annotator, true, subtype, given], computed on access."""
        return np.asarray(self.label_counts_ / self.label_counts_.sum(axis=-1, keepdims=True))

    def _fit(self, table: Annotations, gold: IntArray | None, on_step: OnStep) -> None:
        problem = self._describe_problem(table, gold)
        lock, passes = Lock(), [0]

        def count_pass(bound: float) -> None:
            with lock:
                passes[0] += 1
                on_step(passes[0], bound)

        ranges = block_ranges(self.restarts, problem.cells)
        with Threads(thread_count(self.threads, table.n_annotations * self.restarts)) as pool:
            runs = pool.map(lambda _, start, stop: self._run_starts(problem, range(start, stop), count_pass), ranges)
        best = max(runs, key=lambda run: (run.trace[-1], -run.number))
        self.trace_, self.n_iter_, self.converged_ = np.array(best.trace), passes[0], best.converged
        if not best.converged:
            self._warn_unconverged("passes", "a class probability", best.change)
        posteriors = problem.m_step(best.belief[:, None])
        self.class_counts_, self.subtype_counts_ = posteriors.classes[0], posteriors.subtypes[0]
        self.label_counts_ = np.ascontiguousarray(posteriors.labels[:, :, 0].transpose(0, 2, 3, 1))
        given = self.label_counts_ - problem.label_prior.T[:, None]
        self.population_label_counts_ = given.sum(axis=0) + problem.label_prior.T[:, None]
        self._set_means()
        cells = self._log_cells(expand_rows(table), np.arange(table.n_annotators))
        q = normalise_log_joint(mask_gold(cells, gold).reshape(len(cells), -1), None)[0].reshape(cells.shape)
        self.posterior_ = q.sum(axis=2)
        self.subtype_posterior_ = subtype_shares(cells).astype(np.float32)

    def _describe_problem(self, table: Annotations, gold: IntArray | None) -> Problem:
        """Return the sparse labels, the priors and the vote shares of a table."""
        rows, K = expand_rows(table), table.n_classes
        labels = build_label_matrix(rows, table.n_annotators, K)
        shares = vote_shares(Chunk(rows.arrays, gold, table.n_annotators, K), gold)
        informative = np.diff(rows.item_ptr) > 0 if gold is None else (np.diff(rows.item_ptr) > 0) | (gold >= 0)
        votes = table.votes()
        keys = cell_keys(item_keys(rows, votes, table.n_annotators, self.tie_seed_), votes)
        label_prior = np.where(np.eye(K, dtype=bool), self.right_count, self.wrong_count)
        chosen: Any = labels[informative]
        return Problem(
            chosen, chosen.T.tocsr(), shares[informative], keys[informative],
            None if gold is None else gold[informative],
            np.maximum(shares[informative].sum(axis=0), MIN_CLASS_COUNT),
            np.full(self.subtypes, self.subtype_count / self.subtypes), label_prior,
        )  # fmt: skip

    def _run_starts(self, problem: Problem, numbers: range, count_pass: Callable[[float], None]) -> Run:
        """Run the starts of these numbers together, and return the one with the best bound."""
        belief = np.stack([problem.draw_start(number) for number in numbers], axis=1)
        runs = [Run(number) for number in numbers]
        best: Run | None = None
        while runs:
            after, bounds = problem.e_step(problem.m_step(belief))
            change = np.abs(after.sum(axis=3) - belief.sum(axis=3)).max(axis=(0, 2), initial=0)
            done = []
            for place, run in enumerate(runs):
                run.trace.append(float(bounds[place]))
                count_pass(run.trace[-1])
                run.change, run.converged = float(change[place]), bool(change[place] <= self.tol)
                if run.converged or len(run.trace) == self.max_iter:
                    done.append(place)
                    if best is None or (run.trace[-1], -run.number) > (best.trace[-1], -best.number):
                        best, run.belief = run, belief[:, place].copy()
            runs = [run for place, run in enumerate(runs) if place not in done]
            belief = np.delete(after, done, axis=1) if done else after
        assert best is not None
        return best

    def _set_means(self) -> None:
        """Set the class shares of an item without labels, and the confusion matrices averaged over subtypes."""
        logs = expected_log(self.class_counts_)[:, None] + expected_log(self.subtype_counts_)
        shares = np.exp(logs - logs.max()).sum(axis=1)
        self.prior_ = shares / shares.sum()
        subtype = self.subtype_counts_ / self.subtype_counts_.sum(axis=1, keepdims=True)
        self.confusion_ = np.einsum("km,akml->akl", subtype, self.subtype_confusion_)
        crowd = self.population_label_counts_
        self.population_confusion_ = np.einsum("km,kml->kl", subtype, crowd / crowd.sum(axis=-1, keepdims=True))

    def _log_cells(self, rows: Rows, annotators: IntArray) -> FloatArray:
        """Return log q (I, K, M), not normalised, of items labelled by annotators with these codes, −1 if unseen."""
        crowd, K = self.population_label_counts_, self.classes_.size
        logs = np.concatenate([expected_log(self.label_counts_), np.log(crowd / crowd.sum(-1, keepdims=True))[None]])
        by_label = np.moveaxis(logs[annotators], 3, 1).reshape(annotators.size * K, -1)
        prior = expected_log(self.class_counts_)[:, None] + expected_log(self.subtype_counts_)
        cells = build_label_matrix(rows, annotators.size, K) @ by_label
        return np.asarray(cells.reshape(-1, K, self.subtypes) + prior)

    def _compute_posterior(self, table: Annotations, annotators: IntArray) -> FloatArray:
        cells = self._log_cells(expand_rows(table), annotators)
        q = normalise_log_joint(cells.reshape(len(cells), -1), None)[0]
        return np.asarray(q.reshape(cells.shape).sum(axis=2))

    def _label_probabilities(self, posterior: FloatArray, item: IntArray, annotator: IntArray) -> FloatArray:
        crowd, share = self.population_label_counts_, self.subtype_counts_
        everyone = np.concatenate([self.subtype_confusion_, (crowd / crowd.sum(axis=-1, keepdims=True))[None]])
        new = (share / share.sum(axis=1, keepdims=True)).astype(np.float32)[None]
        subtypes = np.concatenate([self.subtype_posterior_, new])  # −1 is a new item
        expected = np.empty_like(posterior)
        for start in range(0, len(posterior), CHUNK_ROWS):
            rows = slice(start, start + CHUNK_ROWS)
            q = posterior[rows, :, None] * subtypes[item[rows]]
            q /= q.sum(axis=(1, 2), keepdims=True)  # removes the rounding to 32 bits
            expected[rows] = np.einsum("nkm,nkml->nl", q, everyone[annotator[rows]])
        return expected


@dataclass
class Run:
    """One start: its number, the bound of every pass, and the last belief from which parameters were estimated."""

    number: int
    trace: list[float] = field(default_factory=list)
    belief: FloatArray = field(default_factory=lambda: np.empty(0))  # (I, K, M)
    change: float = np.inf
    converged: bool = False


class Posteriors(NamedTuple):
    """Dirichlet parameters of S starts."""

    classes: FloatArray  # (S, K) of τ
    subtypes: FloatArray  # (S, K, M) of π
    labels: FloatArray  # (A, K given, S, K true, M) of v


@dataclass(frozen=True, eq=False)
class Problem:
    """The labels of informative items as sparse matrices, and the priors."""

    labels: Any  # (I, A·K) weights of labels
    transposed: Any  # (A·K, I)
    shares: FloatArray  # (I, K) vote shares, with gold
    keys: Any  # (I, K) random integers
    gold: IntArray | None
    class_prior: FloatArray  # (K,) α
    subtype_prior: FloatArray  # (M,)
    label_prior: FloatArray  # (K true, K given) β; symmetric

    @property
    def cells(self) -> int:
        """The number of entries of the largest array of one start."""
        return int(max(self.labels.shape) * self.class_prior.size * self.subtype_prior.size)

    def draw_start(self, number: int) -> FloatArray:
        """Return q (I, K, M) of a start: vote shares times draws from a uniform Dirichlet."""
        draw = -np.log(uniform_draws(self.keys, self.subtype_prior.size, number))
        return np.asarray(self.shares[:, :, None] * (draw / draw.sum(axis=2, keepdims=True)))

    def m_step(self, belief: FloatArray) -> Posteriors:
        """Return the Dirichlets for q (I, S, K, M)."""
        _, S, K, M = belief.shape
        counts = (self.transposed @ belief.reshape(len(belief), -1)).reshape(-1, K, S, K, M)
        subtypes = belief.sum(axis=0)
        return Posteriors(
            self.class_prior + subtypes.sum(axis=2),
            self.subtype_prior + subtypes,
            counts + self.label_prior.T[:, None, :, None],
        )

    def e_step(self, posteriors: Posteriors) -> tuple[FloatArray, FloatArray]:
        """Return q (I, S, K, M) and the bounds (S,)."""
        given = np.moveaxis(posteriors.labels, 1, -1)  # (A, S, K, M, K)
        logs = expected_log(given)
        classes, subtypes = expected_log(posteriors.classes), expected_log(posteriors.subtypes)
        _, S, K, M, _ = logs.shape
        by_label = np.moveaxis(logs, -1, 1).reshape(-1, S * K * M)
        cells = (self.labels @ by_label).reshape(-1, S, K, M) + (classes[:, :, None] + subtypes)
        if self.gold is not None:
            cells = np.where(self._excluded[:, None, :, None], -np.inf, cells)
        top = cells.max(axis=(2, 3), keepdims=True)
        q = np.exp(cells - top)
        total = q.sum(axis=(2, 3), keepdims=True)
        q /= total
        bounds = (np.log(total) + top).sum(axis=(0, 2, 3))
        for s in range(S):
            bounds[s] -= kl_divergence(posteriors.classes[s][None], self.class_prior, classes[s][None])
            bounds[s] -= kl_divergence(posteriors.subtypes[s], self.subtype_prior, subtypes[s])
            bounds[s] -= self._label_divergence(given[:, s], logs[:, s])
        return q, bounds

    @property
    def _excluded(self) -> Any:
        """Classes that gold excludes, (I, K)."""
        assert self.gold is not None
        return (self.gold >= 0)[:, None] & (self.gold[:, None] != np.arange(self.class_prior.size))

    def _label_divergence(self, given: FloatArray, logs: FloatArray) -> float:
        """Return Σ KL of the Dirichlets of v (A, K, M, K) from their priors."""
        return sum(
            kl_divergence(given[:, k].reshape(-1, len(own)), own, logs[:, k].reshape(-1, len(own)))
            for k, own in enumerate(self.label_prior)
        )


def block_ranges(n: int, cells: int) -> list[tuple[int, int]]:
    """Return ranges of `n` starts that are run together; they do not depend on the number of threads."""
    size = max(1, min(n, BLOCK_CELLS // max(cells, 1)))
    return [(start, min(start + size, n)) for start in range(0, n, size)]


def mask_gold(cells: FloatArray, gold: IntArray | None) -> FloatArray:
    """Return log q (I, K, M) with −∞ for the classes that gold excludes."""
    if gold is None:
        return cells
    allowed = apply_gold(np.ones(cells.shape[:2]), gold) > 0
    return np.where(allowed[:, :, None], cells, -np.inf)


def subtype_shares(cells: FloatArray) -> FloatArray:
    """Return q(m | k) (I, K, M) from log q."""
    q = np.exp(cells - cells.max(axis=2, keepdims=True))
    return np.asarray(q / q.sum(axis=2, keepdims=True))
