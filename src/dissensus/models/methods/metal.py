"""MeTaL: confusion matrices estimated from how pairs of annotators label the items they share.

Use it for labelling functions or LLM judges that label nearly every item, so that every pair shares many items.

If annotators j and k err independently given the class, and choose their items independently of it, their labels on
shared items satisfy

    E[C_jk] / n_jk = Θ_jᵀ P Θ_k        P = diag(π)

C_jk[l, m] is the number of items with label l by j and m by k, n_jk the number of shared items, Θ the confusion
matrices and π the class shares. Θ is fitted to all pairs at once by weighted least squares, with every row on the
simplex:

    F(Θ) = Σ_{j<k} n_jk ‖C_jk/n_jk − Θ_jᵀ P Θ_k‖² + Σ_j Σ_c s_jc ‖Θ_j[c, :] − Φ_j[c, :]‖²

An item with r labels is weighted by 1/r, so it counts as r − 1 observations instead of r²/2. The second term is the
prior. It is as if an oracle shared `overlap` items of every class with every annotator, who labelled them like the
crowd: Φ is the crowd's confusion matrix under the vote shares. Items with gold are also shared with the oracle. On
these items, annotator j gave N_jc labels to items of class c, distributed as G_j[c, :]:

    s_jc = π_c (o_c + N_jc)        Φ_j[c, :] = (o_c Φ[c, :] + G_j[c, :]) / (o_c + N_jc)
    π_c o_c = `overlap` · max(π_c, ½ (K − 2)/K Σ_d π_d²)

Pairs carry little information on the row of a rare class, and with o_c = `overlap` its prior would be equally weak.
Therefore, with three or more classes, no row has a prior weaker than half of the mean over the items.

With the other annotators fixed, F is a parabola in Θ_j, whose coefficients are sums over rows, not over pairs
(`kernels.metal`). Each pass moves every annotator halfway to the minimum of its parabola and extrapolates with
momentum. A step that does not lower F is rejected; `trace_` is −F up to a constant.

Items get their posterior by Bayes' rule. The confusion matrix for it is smoothed by the pseudo-counts a of an annotator
of unknown quality (`smoothing` and `margin`), because an estimated 0 would let one label decide an item:

    confusion_j[c, :] ∝ m_jc Θ_j[c, :] + a[c, :]        m_jc = π_c · (labels of j on items without gold) + N_jc

- `confusion_` (A, K, K) [annotator, true, given]: Θ, smoothed
- `evidence_` (A, K): labels and pseudo-counts behind each row
- `prior_` (K,): π, which `class_balance` sets; it is not estimated
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from dissensus.common.parameters import param
from dissensus.common.types import FloatArray, IntArray, OnStep
from dissensus.compute import chunk as chunks
from dissensus.compute.chunk import LIKELIHOOD, VOTES, Chunk, build_label_matrix
from dissensus.compute.engines import open_in_memory
from dissensus.compute.engines.local import Threads, balanced_ranges, even_ranges
from dissensus.compute.kernels import metal as kernels
from dissensus.compute.rows import Rows
from dissensus.models.base import Aggregator, methods, put_given_label_first
from dissensus.models.confusion import FULL, ConfusionPass, EStepParams
from dissensus.models.matrices import MAX_PSEUDO_COUNT, PSEUDO_COUNT_LIMITS, default_pseudo_counts
from dissensus.models.methods.snorkel import is_class_balance, normalise_shares
from dissensus.models.tempering import DEPENDENCE, DependenceChoice, run_tempered
from dissensus.table.annotations import Annotations

INITIAL_STEP_SHARE = 0.5  # initial step of a pass, as a share of the way to the minimum
MIN_STEP_SHARE = 1e-6  # minimum step, as a share of the way; a smaller one ends the fit
MOMENTUM = 0.75  # factor of the momentum
GRADIENT_STEPS = 8  # number of projected gradient steps per pass
MIN_ENTRIES_FOR_KERNEL = 2**22  # n_items × K² above which sparse products need too much memory


@methods.register(
    "metal", summary="confusion matrices from co-occurring labels of pairs of annotators", cite="Ratner et al. 2019"
)
class MeTaL(Aggregator):
    """Estimate confusion matrices by matching second moments, as MeTaL's label model does."""

    class_balance: Literal["votes", "uniform"] | Sequence[float] = param(
        "votes", "class shares π: vote shares, uniform, or a list in the order of classes", check=is_class_balance,
        must="must be 'votes', 'uniform' or a list of positive shares",
    )  # fmt: skip
    overlap: float = param(2.0, "number of items of every class that are shared with an oracle", **PSEUDO_COUNT_LIMITS)
    smoothing: float = param(0.7, "pseudo-counts of wrong labels", **PSEUDO_COUNT_LIMITS)
    margin: float = param(1.0, "additional pseudo-counts of the right label", low=0, high=MAX_PSEUDO_COUNT)
    class_count: float = param(1.0, "pseudo-count of every class in the votes", **PSEUDO_COUNT_LIMITS)
    max_iter: int = param(500, "largest number of passes over the data", low=1)
    tol: float = param(1e-7, "stop when a pass improves the objective by less than this share", low=0)
    dependence: DependenceChoice = DEPENDENCE
    threads: int | None = param(None, "threads for the passes; None for all cores", low=1)

    item_total_: Annotated[FloatArray, "I count"]
    evidence_: Annotated[FloatArray, "A K real"]
    confusion_: Annotated[FloatArray, "A K K simplex"]
    population_confusion_: Annotated[FloatArray, "K K simplex"]

    def _fit(self, table: Annotations, gold: IntArray | None, on_step: OnStep) -> None:
        K = table.n_classes
        pseudo = self.pseudo_counts(K)
        with open_in_memory(table, gold, self.threads) as engine:
            rows, pool, votes = engine.rows, engine.pool, engine.run(ConfusionPass(VOTES, FULL), None)
            prior, voted = self._class_shares(rows, gold, votes.class_counts), put_given_label_first(votes.label_counts)
            from_gold = count_gold_labels(rows, gold, table.n_annotators, K)
            known = prior_moments(voted.sum(axis=0) + pseudo, from_gold, prior, self.overlap)
            counts = voted + pseudo
            counts /= counts.sum(axis=1, keepdims=True)
            moments = PairMoments(rows, pool, gold, prior, known)
            confusion = self._minimise(moments, counts, on_step)
            totals = votes.label_counts.sum(axis=1, keepdims=True)
            # These are the numbers of labels that each annotator gave to items without gold.
            unknown = np.maximum(totals.sum(axis=(1, 2)) - from_gold.sum(axis=(1, 2)), 0)
            labels = from_gold.sum(axis=1) + np.outer(unknown, prior)  # (A, K) labels per true class
            counted = confusion * labels[:, None, :] + pseudo
            self.evidence_ = counted.sum(axis=1)
            counted /= self.evidence_[:, None, :]
            self.prior_, self.confusion_ = prior, put_given_label_first(counted)
            pass_, params = ConfusionPass(LIKELIHOOD, FULL), EStepParams.from_likelihood(prior, self.confusion_)
            sums = run_tempered(self, engine, pass_, params, totals)
        population = sums.label_counts.sum(axis=0) + pseudo
        self.population_confusion_ = population / population.sum(axis=1, keepdims=True)

    def confusion_support(self) -> FloatArray:
        return np.asarray(self.evidence_[:, :, None])

    def pseudo_counts(self, n_classes: int) -> FloatArray:
        """Return the symmetric pseudo-counts a (K, K)."""
        return default_pseudo_counts(n_classes, self.smoothing, self.margin)

    def _class_shares(self, rows: Rows, gold: IntArray | None, votes: FloatArray) -> FloatArray:
        """Return π (K,), given the sum of the vote shares over items (K,); items without votes have uniform shares."""
        K = votes.size
        if self.class_balance == "uniform":
            return np.full(K, 1 / K)
        if not isinstance(self.class_balance, str):
            return normalise_shares(self.class_balance, K)
        silent = sum_item_weights(rows) == 0
        if gold is not None:
            silent &= gold < 0
        shares = votes - silent.sum() / K + self.class_count
        return np.asarray(shares / shares.sum())

    def _minimise(self, moments: PairMoments, confusion: FloatArray, on_step: OnStep) -> FloatArray:
        """Return the Θ with the smallest F, (A, K, K) [annotator, given, true], from initial values."""
        trace: list[float] = []
        self.converged_ = False
        # `step` leads from the last accepted point; `trial`, which is evaluated next, is `step` or an extrapolation.
        step = trial = confusion
        part, move = INITIAL_STEP_SHARE, np.zeros_like(confusion)
        while len(trace) < self.max_iter and not self.converged_:
            value, plain = -moments(trial), trial is step
            if not trace or value >= trace[-1]:
                little = bool(trace) and value - trace[-1] <= self.tol * abs(value)
                self.converged_ = plain and little  # a small gain by an extrapolation does not show convergence
                trace.append(value)
                confusion, before = trial, step
                part, move = INITIAL_STEP_SHARE, moments.step_to_minimum(confusion) - confusion
                step = confusion + part * move
                target = np.maximum(step + MOMENTUM * (step - before), 0)  # stays on the simplex
                trial = step if little else target / target.sum(axis=1, keepdims=True)
            else:
                trace.append(trace[-1])
                if plain:
                    part /= 2
                    step = confusion + part * move
                    self.converged_ = part < MIN_STEP_SHARE
                trial = step
            on_step(len(trace), trace[-1])
        self.trace_, self.n_iter_ = np.array(trace), len(trace)
        if not self.converged_:
            self._warn_unconverged("passes", "the objective", trace[-1] - trace[-2] if len(trace) > 1 else np.nan)
        return confusion


@dataclass(frozen=True)
class PriorMoments:
    """The prior of the confusion matrices: its centre Φ and its strength s."""

    centre: FloatArray  # (A, K, K) [annotator, given, true]
    strength: FloatArray  # (A, K)


def prior_moments(population: FloatArray, from_gold: FloatArray, prior: FloatArray, overlap: float) -> PriorMoments:
    """Return Φ and s, given counts of the crowd (K, K) and counts on gold items (A, K, K), both [given, true]."""
    K = prior.size
    least = (K - 2) / K * (prior @ prior) / 2 if K > 2 else 0.0
    counts = overlap * np.maximum(1, least / prior) * population / population.sum(axis=0) + from_gold
    shared = counts.sum(axis=1)  # (A, K) o_c + N_jc
    return PriorMoments(counts / shared[:, None, :], prior * shared)


def sum_item_weights(rows: Rows) -> FloatArray:
    """Return the total weight of the labels of each item (I,)."""
    chunk = Chunk(rows.arrays, None, 0, 0)
    return np.asarray(chunk.scatter_sum(chunk.item, chunk.row_weights(), chunk.n_items))


def count_gold_labels(rows: Rows, gold: IntArray | None, n_annotators: int, n_classes: int) -> FloatArray:
    """Return the counts of labels on items with gold, (A, K, K) [annotator, given, true]."""
    K = n_classes
    counts: FloatArray = np.zeros(n_annotators * K * K)
    if gold is not None:
        true = np.repeat(gold, np.diff(rows.item_ptr))
        row = np.flatnonzero(true >= 0)
        cell = (rows.annotator[row].astype(np.int64) * K + rows.label[row]) * K + true[row]
        counts += np.bincount(cell, None if rows.weight is None else rows.weight[row], counts.size)
    return counts.reshape(n_annotators, K, K)


class PairMoments:
    """Compute F and, in the same pass over the rows, every annotator's parabola.

    With the other annotators fixed, F is tr(Θ_jᵀ H_j Θ_j) − 2⟨R_j, Θ_j⟩ plus a constant; `curvature` is H, `pull` is R.
    """

    def __init__(
        self, rows: Rows, pool: Threads, gold: IntArray | None, prior: FloatArray, prior_moments: PriorMoments
    ):
        self.rows, self.pool, self.gold, self.prior, self.known = rows, pool, gold, prior, prior_moments
        (A, K), I = prior_moments.strength.shape, rows.item_ptr.size - 1
        total = sum_item_weights(rows)
        counts = (total > kernels.MIN_ITEM_WEIGHT) & (True if gold is None else gold < 0)
        # Each item is weighted by 1 / (weight of its labels).
        self.item_factor = np.where(counts, 1 / np.where(counts, total, 1), 0.0)
        self.repeats = kernels.count_repeats(rows, self.item_factor, A, K)
        self.upper_triangle = np.triu_indices(K)
        short = rows.label.size < chunks.MIN_KERNEL_ROWS and I * self.upper_triangle[0].size < MIN_ENTRIES_FOR_KERNEL
        self.sparse_labels = build_label_matrix(rows, A, K) if short else None
        self.curvature = np.empty((A, K, K))

    def __call__(self, confusion: FloatArray) -> float:
        """Return F at Θ (A, K, K) [annotator, given, true], up to a constant."""
        root, centre, strength = np.sqrt(self.prior), self.known.centre, self.known.strength
        c, d = self.upper_triangle
        scale = np.where(c == d, 1.0, np.sqrt(2)) * root[c] * root[d]
        gram = np.ascontiguousarray((confusion.transpose(0, 2, 1) @ confusion)[:, c, d] * scale)
        if self.sparse_labels is not None:
            met, grams_met = kernels.compute_moments(self.sparse_labels, self.item_factor, confusion, gram)
        else:
            _, (met, grams_met) = self.pool.sum_over_ranges(
                lambda start, stop, *sums: kernels.add_moments(
                    start, stop, self.rows.arrays, self.gold, confusion, gram, *sums
                ),
                balanced_ranges(self.rows.item_ptr, self.pool.threads), confusion.shape, gram.shape,
            )  # fmt: skip
        met = (met - self.repeats @ confusion) * self.prior
        grams_met = grams_met - self.repeats.sum(axis=(1, 2))[:, None] * gram
        # Every pair is contained in the sums of both annotators: Σ_{j<k} n ‖Θ_jᵀPΘ_k‖² − 2 Σ_{j<k} ⟨C, Θ_jᵀPΘ_k⟩.
        pairs = float((grams_met * gram).sum()) / 2 - float((met * confusion).sum())
        prior_term = float(np.einsum("ac,ayc->", strength, (confusion - centre) ** 2))
        self.curvature[:, c, d] = self.curvature[:, d, c] = grams_met * np.where(c == d, 1.0, 0.5) * scale
        self.curvature[:, np.arange(root.size), np.arange(root.size)] += strength
        self.pull = centre * strength[:, None, :] + met
        return pairs + prior_term

    def step_to_minimum(self, confusion: FloatArray) -> FloatArray:
        """Return a Θ closer to the minimum of each annotator's parabola; `confusion` must be the last evaluated Θ."""
        better = np.empty_like(confusion)

        def improve_chunk(_: int, start: int, stop: int) -> None:
            some = slice(start, stop)
            better[some] = kernels.descend_on_simplex(
                confusion[some], self.pull[some], self.curvature[some], GRADIENT_STEPS
            )

        self.pool.map(improve_chunk, even_ranges(len(confusion), self.pool.threads))
        return better
