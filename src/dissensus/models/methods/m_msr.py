"""M-MSR: skills from the agreement of pairs of annotators, robust to colluding annotators.

Use it when some annotators may collude, and pairs of annotators share enough items.

As in `one-coin`, annotator j is right with probability p_j and wrong labels are equally likely. Its skill s_j = (K p_j
− 1)/(K − 1) is 1 for a perfect annotator and 0 for a guessing one. Annotators j and k agree on g_jk of their n_jk
shared items, and

    C_jk = (K g_jk / n_jk − 1)/(K − 1)          E C_jk = s_j s_k

So C is a rank-one matrix, in which only some entries are known, and some of the known entries are adversarial. Two
vectors u and v that start at 1 are updated in turn until no skill changes by more than `tol`:

    v_j = trimmed mean over k of C_jk / u_k, with weights n_jk u_k²        u_j = the same with u and v exchanged
    s_j = ± √(u_j v_j)

The trimmed mean leaves out the smallest and the largest values, each with a share `trim` of the weight. Then

    p_j = (n_j (s_j (K − 1) + 1)/K + `right_count`) / (n_j + `right_count` + `wrong_count`)

n_j is the number of j's labels on items that other annotators labelled too, or that have gold. Labels are combined by
the posterior of `one-coin`, whose nearly uniform class shares break ties.

- `skill_` (A,): s, or 0 if it cannot be estimated
- `coin_` (A, 2) [right, wrong]: p and 1 − p; `accuracy_` is p
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from dissensus.common.arrays import group_offsets, pairs_within_ranges
from dissensus.common.parameters import param
from dissensus.common.types import BoolArray, FloatArray, IntArray, OnStep
from dissensus.compute import chunk as chunks
from dissensus.compute.chunk import LIKELIHOOD
from dissensus.compute.engines import open_in_memory
from dissensus.compute.engines.local import LocalEngine, Threads, balanced_ranges, thread_count
from dissensus.compute.kernels import m_msr as kernels
from dissensus.compute.kernels.vote import has_several_annotators
from dissensus.compute.rows import Rows, expand_rows
from dissensus.models.base import Aggregator, methods
from dissensus.models.coins import Coins
from dissensus.models.confusion import COIN, ConfusionPass, EStepParams, RightWrongLikelihood, label_totals, run_e_step
from dissensus.models.exceptions import TooManyPairs
from dissensus.models.matrices import PSEUDO_COUNT_LIMITS, mix_uniform_and_vote_shares
from dissensus.models.methods.one_coin import VOTE_SHARE_WEIGHT
from dissensus.models.tempering import DEPENDENCE, DependenceChoice, run_tempered
from dissensus.table.annotations import Annotations

MAX_TRIM = 0.49  # upper limit of `trim`, because no value would be left at one half
MAX_PAIRS = 100_000_000  # maximum number of pairs of annotators; a pair takes about 60 bytes
MAX_CHUNK_PAIRS = 2**22  # maximum number of pairs of rows in memory at a time


@methods.register(
    "m-msr", summary="skills from pairwise agreement, robust to colluding annotators", cite="Ma & Olshevsky 2020"
)
class MMSR(Aggregator):
    """Estimate skills by a robust rank-one completion of pairwise agreement."""

    trim: float = param(0.4, "share of an annotator's neighbours that is left out at either end", low=0, high=MAX_TRIM)
    min_shared: float = param(0.0, "minimum number of items that a pair shares; a larger number saves memory", low=0)
    right_count: float = param(4.0, "pseudo-count of right labels of each annotator", **PSEUDO_COUNT_LIMITS)
    wrong_count: float = param(2.0, "pseudo-count of wrong labels of each annotator", **PSEUDO_COUNT_LIMITS)
    max_iter: int = param(1000, "maximum number of rounds over all pairs", low=1)
    tol: float = param(1e-4, "stop when no skill changes by more than this", low=0)
    dependence: DependenceChoice = DEPENDENCE
    threads: int | None = param(None, "threads for the passes; None for all cores", low=1)

    item_total_: Annotated[FloatArray, "I count"]
    skill_: Annotated[FloatArray, "A real"]
    coin_: Annotated[FloatArray, "A 2 share"]
    population_coin_: Annotated[FloatArray, "1 2 share"]

    @property
    def accuracy_(self) -> FloatArray:
        """The probability p that a label of the annotator is right, (A,)."""
        return np.asarray(self.coin_[:, 0])

    @property
    def confusion_(self) -> FloatArray:
        """The confusion matrices (A, K, K), which have p on the diagonal, else (1 − p)/(K − 1), computed on access."""
        return self.annotator_confusions(np.arange(len(self.coin_)))

    def _fit(self, table: Annotations, gold: IntArray | None, on_step: OnStep) -> None:
        K = table.n_classes
        with Threads(thread_count(self.threads, table.n_annotations)) as pool:
            pairs = AnnotatorPairs.from_table(table, gold, self.min_shared)
            self.skill_ = self._estimate_skills(pairs, pool, on_step)
            rows = expand_rows(table)
            self.coin_, self.population_coin_ = self._smooth_accuracies(
                comparable_labels(table, rows, gold), pairs.has_skill
            )
            engine = LocalEngine(rows, table.n_annotators, K, pool, gold)
            totals = label_totals(engine)
            self.prior_ = mix_uniform_and_vote_shares(totals.sum(axis=(0, 1)), VOTE_SHARE_WEIGHT)
            likelihood = Coins(self.prior_, self.coin_).label_likelihood()
            run_tempered(
                self,
                engine,
                ConfusionPass(LIKELIHOOD, COIN),
                EStepParams.from_likelihood(self.prior_, likelihood),
                totals,
            )
        self.trace_ = np.empty(0)

    def _smooth_accuracies(self, total: FloatArray, linked: BoolArray) -> tuple[FloatArray, FloatArray]:
        """Return p and 1 − p of each annotator (A, 2) and of the population (1, 2), for annotators without skill."""
        K = self.classes_.size
        share = np.clip((self.skill_ * (K - 1) + 1) / K, 0, 1)[:, None]
        pseudo = np.array([[self.right_count, self.wrong_count]])
        counts = total[:, None] * np.concatenate([share, 1 - share], axis=1) + pseudo
        coin = counts / counts.sum(axis=1, keepdims=True)
        crowd = (total[linked, None] * coin[linked]).sum(axis=0, keepdims=True) + pseudo
        population = crowd / crowd.sum()
        return np.where(linked[:, None], coin, population), population

    def _estimate_skills(self, pairs: AnnotatorPairs, pool: Threads, on_step: OnStep) -> FloatArray:
        """Return the skills s (A,) by alternating trimmed means."""
        ranges, data = balanced_ranges(pairs.ptr, pool.threads), (tuple(vars(pairs).values()), float(self.trim))
        u, v = np.ones(pairs.has_skill.size), np.ones(pairs.has_skill.size)

        def step(given: FloatArray, out: FloatArray) -> None:
            if pairs.second.size < chunks.MIN_KERNEL_ROWS:
                kernels.update_skills_numpy(*data, given, out)
            else:
                pool.map(lambda _, start, stop: kernels.update_skills(start, stop, *data, given, out), ranges)

        skill, change, self.n_iter_ = u, np.inf, 0
        while self.n_iter_ < self.max_iter and change > self.tol:
            step(u, v)
            step(v, u)
            large, small = np.abs(u).sum(), np.abs(v).sum()
            if large > 0 and small > 0:  # only the product of u and v is determined
                u, v = u * np.sqrt(small / large), v * np.sqrt(large / small)
            before, skill = skill, np.sign(u) * np.sqrt(np.maximum(u * v, 0))
            change = float(np.abs(skill - before).max(initial=0))
            self.n_iter_ += 1
            on_step(self.n_iter_, float("nan"))
        self.converged_ = change <= self.tol
        if not self.converged_:
            self._warn_unconverged("rounds", "a skill", float(change))
        return np.where(pairs.has_skill, skill, 0.0)

    def _compute_posterior(self, table: Annotations, annotators: IntArray) -> FloatArray:
        with open_in_memory(table, None, self.threads) as engine:
            return run_e_step(engine, self.prior_, self._label_likelihood(annotators))[0]

    def _label_likelihood(self, annotators: IntArray) -> RightWrongLikelihood:
        # Code −1, an unseen annotator, takes the last entry.
        coin = np.concatenate([self.coin_, self.population_coin_])[annotators]
        return Coins(self.prior_, coin).label_likelihood()

    def annotator_confusions(self, annotators: IntArray) -> FloatArray:
        return self._label_likelihood(annotators).to_matrices(self.classes_.size)

    def confusion_support(self) -> FloatArray:
        return np.asarray(self.total_ + self.right_count + self.wrong_count)[:, None, None]


@dataclass(frozen=True)
class AnnotatorPairs:
    """The ordered pairs of annotators who share items without gold, and each annotator's agreement with gold."""

    ptr: IntArray  # (A+1,) first pair of each annotator
    second: IntArray  # (P,) second annotator of each pair
    count: FloatArray  # (P,) n, the number of shared items
    skill: FloatArray  # (P,) C, the agreement beyond chance
    labels: FloatArray  # (A,) weight of labels on items without gold
    gold_labels: FloatArray  # (A,) weight of labels on items with gold
    gold_skill: FloatArray  # (A,) C of these labels with gold

    @property
    def has_skill(self) -> BoolArray:
        """A mask of the annotators whose skill can be estimated, (A,)."""
        return np.asarray((np.diff(self.ptr) > 0) | (self.gold_labels > 0))

    @classmethod
    def from_table(cls, table: Annotations, gold: IntArray | None, min_shared: float) -> AnnotatorPairs:
        """Return the pairs of a table; with a single class there are no pairs, because agreement is trivial."""
        A, K = table.n_annotators, table.n_classes
        rows = expand_rows(table)
        known_labels: FloatArray = np.zeros(A)
        known_skill: FloatArray = np.zeros(A)
        if K == 1:
            rows = Rows(np.zeros_like(rows.item_ptr), rows.annotator[:0], rows.label[:0], None)
        elif gold is not None:
            truth = np.repeat(gold, np.diff(rows.item_ptr))
            known = truth >= 0
            weight = np.ones(known.size) if rows.weight is None else rows.weight
            known_labels = np.bincount(rows.annotator, weight * known, A).astype(float)
            right = np.bincount(rows.annotator, weight * (rows.label == truth), A)
            known_skill = (K * right / np.where(known_labels > 0, known_labels, 1) - 1) / (K - 1)
            rows = rows.select_items(gold < 0)
        at_most = min(A**2, int((np.diff(rows.item_ptr).astype(np.float64) ** 2).sum()))
        if at_most > MAX_PAIRS:
            raise TooManyPairs(pairs=at_most, max_pairs=MAX_PAIRS)
        sums = sum_pairs(rows, A)
        first, second, count = np.repeat(np.arange(A), np.diff(sums.indptr)), sums.indices, sums.data.real
        keep = (first != second) & (count >= min_shared) & (count > kernels.MIN_NONZERO)
        second, count, agreed = second[keep], count[keep], sums.data.imag[keep]
        ptr = group_offsets(first[keep], A)
        skill = (K * agreed / count - 1) / (K - 1) if K > 1 else count
        labels = np.bincount(rows.annotator, rows.weight, A).astype(float)
        return cls(ptr, second, count, skill, labels, known_labels, known_skill)


def comparable_labels(table: Annotations, rows: Rows, gold: IntArray | None) -> FloatArray:
    """Return the weight of labels (A,) on items with several annotators or gold; without any, that of all labels."""
    comparable = has_several_annotators(table.item_ptr, table.annotator)
    if gold is not None:
        comparable |= gold >= 0
    weight = np.repeat(comparable if comparable.any() else ~comparable, np.diff(rows.item_ptr)).astype(float)
    if rows.weight is not None:
        weight *= rows.weight
    return np.asarray(np.bincount(rows.annotator, weight, table.n_annotators), np.float64)


def sum_pairs(rows: Rows, n_annotators: int) -> Any:
    """Return the sums of products of weights over the items that two annotators share, a sparse matrix (A, A).

    The imaginary part is the sum over agreeing labels. One complex sum is as fast as one real sum.
    """
    from scipy.sparse import coo_array, csr_array

    size = n_annotators, n_annotators
    start, length = rows.item_ptr[:-1], np.diff(rows.item_ptr)
    pairs = np.append(0, np.cumsum(length * (length - 1) // 2))
    sums = csr_array(size, dtype=np.complex128)
    for first, last in balanced_ranges(pairs, 1 + int(pairs[-1]) // MAX_CHUNK_PAIRS):
        left, right = pairs_within_ranges(start[first:last], length[first:last])
        value = np.where(rows.label[left] == rows.label[right], 1 + 1j, 1)
        if rows.weight is not None:
            value *= rows.weight[left] * rows.weight[right]
        sums = sums + coo_array((value, (rows.annotator[left], rows.annotator[right])), size).tocsr()
    sums = sums + sums.T  # the diagonal, repeated labels of one annotator, is not used
    sums.sort_indices()
    return sums
