"""Recommend which labels to collect next and by which annotators, by expected information gain per cost.

Item i has the class z_i = k with probability q_i(k). Annotator j gives the label l to an item of class k with
probability Θ_j[k, l] (or Q_ij[k, l] if the model has different probabilities for each item). The uncertainty about a
row of Θ_j is that of γ_jk labels: the row is distributed as Dirichlet(γ_jk Θ_j[k, ·]). With P(l) = Σ_k q_i(k) Θ_j[k,
l], the expected information gain of a label is

    gain = I(y_ij; z_i, Θ_j) = H(P) − Σ_k q_i(k) E H(Θ_j[k, ·])
         = I(y_ij; z_i)  [`about_item`: H(P) − Σ_k q_i(k) H(E Θ_j[k, ·]), the expected fall of the entropy of q_i]
         + Σ_k q_i(k) (H(E Θ_j[k, ·]) − E H(Θ_j[k, ·]))  [about the annotator]
    E H(Dirichlet(γ m)) = ψ(γ + 1) − Σ_l m_l ψ(γ m_l + 1)

in nats. The second term is important: without it, only annotators that are already considered reliable would be chosen,
and the model would learn nothing about the others (`benchmarks/recommend`).

| symbol | name | shape |
|---|---|---|
| q | belief | (I, K) |
| Θ | theta | (I or 1, J, K, K) [given, true] |
| γ | evidence | (J, K) |
| E H | entropy | (I or 1, J, K) |

*Several labels at once.* Annotators are independent given the class. While labels of an item are requested but not yet
given, the gain of one more label is therefore the mean over their joint outcomes b: Σ_b w_b H(P_b) − Σ_k q_i(k) E
H(Θ_j[k, ·]). At most `MAX_OUTCOMES` outcomes are kept, and the less probable ones are merged. The evidence about an
annotator grows with the requested labels, and is updated `N_UPDATES_PER_BATCH` times in a batch. These updates can only
decrease gains. The next pair is always the one with the largest gain per cost; for such gains and equal costs, this
greedy choice reaches at least 63 % of the optimum (Nemhauser et al. 1978).

*Effect of the labels.* q_i is tempered, because the labels of an item are correlated. A model that is fitted to the new
labels chooses the class with the largest p_i(k) Π Θ_j[k, y_ij], where p_i is the untempered posterior
(`models.tempering`). Let k_b = arg max_k p_i(k) P(b | k) and k_0 = arg max_k q_i(k). Then, over the outcomes b of all
labels requested for the item,

    p_change = Σ_b w_b [k_b ≠ k_0]

*Default limits*: an annotator who gave a share s of the labels so far gets at most the share max(s, min(2 s, 1/2)) of
the budget. The number of labels of an item is limited to `MAX_LABELS_ABOVE_MEDIAN` more than the median item has. An
item gets no label if it is settled, that is, if q_i(k_0) is at
least `SETTLED_CONFIDENCE` and it has at least `MIN_ANNOTATORS`
annotators. An item with this number of annotators also gets no label if p_change is below `MIN_CHANGE_PROBABILITY` for
all labels that the item may get; the cost of these labels stays in the budget.
"""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.special import entr, psi

from dissensus.common.arrays import TIE_TOLERANCE, group_offsets
from dissensus.common.formatting import Count, Share
from dissensus.common.frames import Backend, columns_to_frame
from dissensus.common.notebook import NotebookTable
from dissensus.common.parameters import check_argument
from dissensus.common.types import BoolArray, FloatArray, IntArray, Names
from dissensus.compute.engines.local import Threads, even_ranges, thread_count
from dissensus.compute.kernels import recommendation as kernels
from dissensus.messages import Message, ParameterName
from dissensus.models.base import Aggregator
from dissensus.models.confidence import CROWD_PSEUDO_LABELS
from dissensus.models.exceptions import ModelNotFitted, NotATable
from dissensus.models.tempering import Tempering
from dissensus.questions import findings
from dissensus.questions.exceptions import (
    AnnotatorWithoutValue,
    BadCandidates,
    CostNotPositive,
    FractionalCapacity,
    ItemUnknownToModel,
    LimitsNotNumbers,
    NamesAreText,
    NotAModel,
    NotInTable,
    OtherClasses,
    WrongLength,
)
from dissensus.questions.item_status import MIN_ANNOTATORS, SETTLED_CONFIDENCE
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations
from dissensus.table.kinds import CLASS_KINDS, check_kind

# Maximum number of joint outcomes per item; exact for six labels of two classes or two labels of eight
MAX_OUTCOMES = 64
N_UPDATES_PER_BATCH = 8  # number of updates of the evidence about annotators in a batch
# Maximum number of likelihoods in an array if they differ between items; limits memory
MAX_LIKELIHOODS_PER_CHUNK = 2**22
MIN_RELATIVE_PROBABILITY = 1e-12  # classes with a smaller probability relative to the most probable class are skipped
GAIN_RESOLUTION = 1e-10  # nats per cost; smaller differences count as ties, which are broken by names
BUDGET_TOLERANCE = 1e-9  # relative tolerance, so that three labels at a cost of 0.1 fit into a budget of 0.3
MAX_EVIDENCE = 1e9  # maximum number of labels of evidence for a row of Θ; more make no difference
MAX_BUDGET_SHARE_RATIO = 2.0  # maximum ratio of an annotator's share of the budget to the share of the labels so far
MAX_BUDGET_SHARE = 0.5  # maximum share of the budget of an annotator who gave a smaller share of the labels so far
MIN_CAPACITY = 5  # minimum number of labels that may be requested from each annotator
MAX_LABELS_ABOVE_MEDIAN = 3  # maximum number of labels of an item above the number of the median item
MIN_CHANGE_PROBABILITY = 0.01  # minimum P(label of an item changes) for labels on it to be worth collecting
MAX_TRIED_LABELS = 10  # maximum number of labels of an item that are tried before the item counts as unchangeable
MAX_UNCHANGEABLE_ITEMS = 100  # maximum number of consecutive unchangeable items; then the search stops
MIN_REPORTED_CHANGES = 0.05  # minimum expected number of changes that is reported
ADVICE_BUDGET = 100  # number of labels in the advice of `redundancy` and of the report
ValuePerAnnotator = float | Mapping[Any, float] | FloatArray | list[float]


@dataclass(frozen=True, eq=False, repr=False)
class Recommendation(NotebookTable):
    """Recommended pairs of item and annotator in the order of choice; every array has one entry per pair."""

    items: Names  # (n,)
    annotators: Names  # (n,)
    gain: FloatArray  # (n,) expected information gain in nats, given the previous pairs
    about_item: FloatArray  # (n,) part of the gain about the class of the item; the rest is about the annotator
    cost: FloatArray  # (n,)
    p_change: FloatArray  # (n,) P(label of the item changes) if all labels recommended for it are collected
    candidates: int = field(default=0)  # number of pairs to choose from
    limits: SelectionLimits | None = None

    def __repr__(self) -> str:
        return (
            f"Recommendation of {len(self):,} of {self.candidates:,} labels for {self.cost.sum():g}: "
            f"{self.expected_changes:.3g} items expected to change their label"
        )

    def __len__(self) -> int:
        return int(self.items.size)

    @property
    def expected_changes(self) -> float:
        """Return the expected number of items whose label changes."""
        return float(self.p_change[np.unique(self.items, return_index=True)[1]].sum())

    def verdict(self) -> str:
        """Describe in a few sentences the expected effect of the labels, or why none is recommended."""
        return " ".join(map(str, self.findings()))

    def findings(self) -> Iterator[Message]:
        """Yield messages about the expected effect of the labels, or why none is recommended."""
        if len(self) == 0:
            yield self._explain_end(None)
            return
        _, per_item = np.unique(self.items, return_counts=True)
        limits, cost = self.limits, float(self.cost.sum())
        yield findings.LabelsToCollect(
            labels=Count(len(self)), items=Count(per_item.size), per_item=int(per_item.max()), cost=cost
        )
        if limits is not None and limits.no_shared_items:
            yield findings.NoItemLabelledTwice()
        elif self.expected_changes >= MIN_REPORTED_CHANGES:
            yield findings.ExpectedChanges(changes=self.expected_changes, labels=len(self))
        else:
            yield findings.NoExpectedChange()
        if limits is None:
            return
        if limits.undecided_items and not limits.no_shared_items:
            yield findings.MoreLabelsNeeded(items=Count(limits.undecided_items))
        if limits.unchecked_items:
            yield findings.UncheckedItemsIncluded(items=Count(limits.unchecked_items))
        if limits.unspent >= self.cost.min():
            yield self._explain_end(limits.unspent)

    def advice(self) -> str:
        """Return a sentence about what to do next with a budget of `ADVICE_BUDGET`.

        >>> from dissensus import methods, recommend
        >>> from dissensus.table.simulate import simulate
        >>> table = simulate(60, 8, 2, redundancy=3, seed=1).annotations
        >>> recommend(methods["consensus"]().fit(table), table, budget=100).advice()[:24]
        'Next: collect 100 labels'
        """
        return str(self.next_step())

    def next_step(self) -> Message:
        """Return a message about what to do next with a budget of `ADVICE_BUDGET`."""
        return findings.NextStep(budget=ADVICE_BUDGET if len(self) else None, verdict=self.verdict())

    def _explain_end(self, left: float | None) -> Message:
        """Return the reason why no label, or no further label, is recommended; `left` is the rest of the budget."""
        limits = self.limits
        if limits is None or self.candidates == len(self):
            return findings.EverythingLabelled(budget_left=left)
        if limits.budget_too_small:
            return findings.BudgetTooSmall(budget_left=left)
        if limits.open_items:
            return (findings.NoUsefulLabel if limits.unchangeable_items or not len(self) else findings.LimitsReached)(
                budget_left=left
            )
        return findings.NoUnsettledItem(
            budget_left=left, n_settled=limits.settled_items, items=limits.n_items, annotators=MIN_ANNOTATORS,
            confidence=Share(limits.settled_confidence) if limits.settled_confidence else None,
            full_items=limits.full_items,
        )  # fmt: skip

    def to_frame(self, backend: Backend | None = None) -> Any:
        """Return a frame (pandas if installed, else Arrow) with one row per pair, in the order of choice."""
        names = {"rank": np.arange(1, len(self) + 1), "item": self.items, "annotator": self.annotators}
        measures = {"gain": self.gain, "about_item": self.about_item, "cost": self.cost}
        return columns_to_frame(
            names | measures | {"gain_per_cost": self.gain / self.cost, "p_change": self.p_change}, backend
        )


@dataclass(frozen=True)
class SelectionLimits:
    """The limits of a recommendation, with counts that explain why some labels are not recommended."""

    settled_confidence: float | None  # confidence of a settled item, which gets no more labels
    settled_items: int
    labels_per_item: int | None  # maximum number of labels of an item; None without a limit relative to the median item
    full_items: int  # number of other items that have reached this maximum
    open_items: int  # number of items that may get labels
    n_items: int
    budget_too_small: bool  # True if every label costs more than the budget
    unchangeable_items: int = 0  # number of items that no label is expected to change
    unspent: float = 0.0  # unspent part of the budget
    undecided_items: int = 0  # number of recommended items that need more labels than the recommended ones to change
    # Number of recommended items with fewer than two annotators that are not expected to change
    unchecked_items: int = 0
    no_shared_items: bool = False  # True if no item has labels by two annotators


def recommend(
    model: Any,
    table: Annotations,
    *,
    budget: float,
    items: Iterable[Any] | None = None,
    annotators: Iterable[Any] | None = None,
    candidates: tuple[Any, Any] | None = None,
    cost: ValuePerAnnotator = 1.0,
    capacity: int | Mapping[Any, int] | Literal["auto"] | None = "auto",
    per_item: int | Literal["auto"] | None = "auto",
    settled: float | None = SETTLED_CONFIDENCE,
    allow_repeats: bool = False,
    threads: int | None = None,
) -> Recommendation:
    """Recommend the labels to collect next, in the order of expected information gain per unit of cost.

    Parameters
    ----------
    model : a fitted aggregator, `LIA` or `CrowdClassifier`
    table : Annotations
        The labels so far. All its items and annotators are candidates, including those without labels.
    budget : float
        Amount to spend; with the default cost of 1, the number of labels.
    items, annotators : lists of names, optional
        Items and annotators to consider. By default, all items and annotators of the table.
    candidates : (items, annotators), optional
        Pairs to consider, as two columns of names. By default, every item with every annotator.
    cost : number, annotator → number, or one number per annotator
        Cost of a label.
    capacity : int, annotator → int, "auto" or None
        Maximum number of new labels per annotator. "auto" doubles the annotator's share of the labels so far and allows
        at least 5 labels, but at most half of the budget unless the share so far is larger. None means no limit.
    per_item : int, "auto" or None
        Maximum number of new labels per item. "auto" allows an item to have 3 labels more than the median item. None
        means no limit.
    settled : float or None
        Minimum confidence at which an item with two or more annotators gets no more labels. With this limit, items that
        no label is expected to change get none either. If None, labels are recommended as long as they have any gain.
    allow_repeats : bool
        Whether annotators may label an item again. A repeated label counts like a label by another annotator of the
        same quality, which overstates its gain.
    threads : int, optional
        Number of threads; None for all cores.

    Returns
    -------
    Recommendation
        The pairs of item and annotator in the order of choice, with gains and costs.

    >>> from dissensus.models.methods import DawidSkene
    >>> from dissensus.table.simulate import simulate
    >>> table = simulate(200, 10, 3, redundancy=2, seed=1).annotations
    >>> found = recommend(DawidSkene().fit(table), table, budget=20, per_item=1)
    >>> found
    Recommendation of 20 of 1,600 labels for 20: 10.7 items expected to change their label
    >>> round(found.expected_changes, 1), found.to_frame().shape
    (10.7, (20, 8))
    >>> print(found.verdict().partition(". ")[0])
    Collect 20 labels on 20 items
    >>> next(found.findings()).labels, found.next_step().budget
    (20, 100)
    """
    if not isinstance(table, Annotations):
        raise NotATable(caller="recommend", type=type(table).__name__)
    check_kind(table.kind, CLASS_KINDS, "recommend")
    check_argument("budget", budget, float, above=0, must="must be a number above 0")
    check_argument("per_item", per_item, int | Literal["auto"] | None, low=1, must="must be a whole number, at least 1")
    check_argument("settled", settled, float | None, above=0, high=1, must="must be above 0 and at most 1, or None")
    search = _BatchSearch(
        model, table, _to_codes(items, table.items, "items"), _to_codes(annotators, table.annotators, "annotators")
    )
    search.limit_pairs(candidates, allow_repeats)
    search.limit_labels(per_item, settled)
    search.price = _spread_over_annotators(cost, search.annotators, "cost")
    if not (search.price > 0).all():
        raise CostNotPositive(cost=float(search.price.min()), annotator=search.annotators[np.argmin(search.price)])
    room = search.find_capacity(capacity, float(budget))
    with Threads(thread_count(threads, search.n_pairs)) as pool:
        return search.choose_pairs(float(budget), room, pool)


class _BatchSearch:
    """Greedy search for pairs; the codes of items and annotators refer to the candidates."""

    price: FloatArray  # (J,)

    def __init__(self, model: Any, table: Annotations, items: IntArray, annotators: IntArray):
        if not hasattr(model, "likelihoods"):
            raise NotAModel(type=type(model).__name__)
        if not hasattr(model, "posterior_"):
            raise ModelNotFitted(method=type(model).__name__)
        self.expected = model.likelihoods()
        if not np.array_equal(model.classes_, table.classes):
            raise OtherClasses(model_classes=model.classes_.size, table_classes=table.classes.size)
        self.table, self.rows, self.columns = table, items, annotators  # codes of the candidates in the table
        self.items, self.annotators = table.items[items], table.annotators[annotators]
        self.item = naming.match_names(self.items, model.items_, "items")  # codes of the candidates in the model
        self.model_knows_table_only = int(np.sum(getattr(model, "n_annotations_", -1))) == len(table)
        self.annotator_code = naming.match_names(self.annotators, model.annotators_, "annotators")
        if (self.item < 0).any() and not hasattr(model, "prior_"):
            raise ItemUnknownToModel(item=self.items[self.item < 0][0], model=type(model).__name__)
        dependence = getattr(model, "dependence_", 0.0)
        tempered = model.posterior_ if dependence else self.expected.belief  # shares of votes are not probabilities
        in_model = np.ascontiguousarray(tempered[self.item], np.float64)
        self.belief = np.where((self.item >= 0)[:, None], in_model, getattr(model, "prior_", 0.0))
        total = np.where(self.item >= 0, getattr(model, "item_total_", np.zeros(len(model.items_)))[self.item], 0.0)
        self.untempered = Tempering(dependence).untemper(self.belief, total)  # (I, K) p
        # (J, K) γ
        self.evidence = _count_evidence(model, self.annotator_code, np.diff(table.annotator_ptr)[annotators])
        self.theta = (
            self.expected.matrices(np.array([-1]), self.annotator_code) if self.expected.same_for_all_items else None
        )
        self.keys = naming.hash_names(self.items), naming.scramble_integers(naming.hash_names(self.annotators))

    def limit_pairs(self, candidates: tuple[Any, Any] | None, allow_repeats: bool) -> None:
        """Set the pairs that may be chosen: the `listed` pairs of each item or all pairs, without the `taken` pairs."""
        I, J = self.items.size, self.annotators.size
        row, column = np.full(self.table.n_items, -1, np.int64), np.full(self.table.n_annotators, -1, np.int64)
        row[self.rows], column[self.columns] = np.arange(I), np.arange(J)

        def pair_codes(item: IntArray, annotator: IntArray) -> IntArray:
            """Return the sorted, unique codes of pairs of candidates."""
            i, j = row[item], column[annotator]
            return np.unique((i * J + j)[(i >= 0) & (j >= 0)])

        taken = np.empty(0, np.int64) if allow_repeats else pair_codes(self.table.item, self.table.annotator)
        self.taken_ptr, self.taken = group_offsets(taken // J, I), taken % J
        self.listed_ptr, self.listed, self.n_pairs = None, taken[:0], I * J - taken.size
        if candidates is None:
            return
        if not isinstance(candidates, tuple | list) or len(candidates) != 2 or len(candidates[0]) != len(candidates[1]):
            raise BadCandidates()
        columns = zip(candidates, (self.table.items, self.table.annotators), strict=True)
        codes = (_to_codes(column, names, "candidates", repeated=True) for column, names in columns)
        listed = np.setdiff1d(pair_codes(*codes), taken)
        self.listed_ptr, self.listed, self.n_pairs = group_offsets(listed // J, I), listed % J, listed.size

    def limit_labels(self, per_item: int | Literal["auto"] | None, settled: float | None) -> None:
        """Set `most` (I,), the maximum number of new labels of each item."""
        counts = self.table.annotators_per_item
        self.labels_so_far = counts[self.rows]
        goal, most = None, np.full(self.labels_so_far.size, np.inf if per_item is None else per_item)
        if per_item == "auto":
            goal = MAX_LABELS_ABOVE_MEDIAN + (int(np.ceil(np.median(counts[counts > 0]))) if counts.any() else 0)
            most = np.maximum(goal - self.labels_so_far, 0.0)
        confidence = self.belief.max(axis=1, initial=0)
        done = (confidence >= (np.inf if settled is None else settled)) & (self.labels_so_far >= MIN_ANNOTATORS)
        self.most = np.where(done, 0.0, most)
        full, open_items = int(((most == 0) & ~done).sum()), int((self.most > 0).sum())
        unshared = self.model_knows_table_only and counts.max(initial=0) == 1
        self.limits = SelectionLimits(
            settled, int(done.sum()), goal, full, open_items, confidence.size, False, no_shared_items=unshared
        )

    def find_capacity(self, capacity: Any, budget: float) -> FloatArray:
        """Return the maximum number of new labels of each annotator (J,)."""
        self.limits = dataclasses.replace(
            self.limits, budget_too_small=not (self.price <= budget * (1 + BUDGET_TOLERANCE)).any()
        )
        if isinstance(capacity, str) and capacity == "auto":
            # Every annotator counts with at least one label
            done = np.diff(self.table.annotator_ptr)[self.columns] + 1.0
            share = done / max(done.sum(), 1)
            share = np.maximum(share, np.minimum(MAX_BUDGET_SHARE_RATIO * share, MAX_BUDGET_SHARE))
            return np.asarray(np.maximum(np.ceil(share * budget / self.price), MIN_CAPACITY))
        room = _spread_over_annotators(np.inf if capacity is None else capacity, self.annotators, "capacity", np.inf)
        if (room[np.isfinite(room)] % 1 != 0).any():
            raise FractionalCapacity(value=capacity)
        return room

    def choose_pairs(self, budget: float, room: FloatArray, pool: Threads) -> Recommendation:
        """Choose pairs until the budget is spent, no pair remains or no label is worth collecting."""
        self.outcomes: dict[int, FloatArray] = {}  # maps each item to the outcomes of its requested labels
        self.requested: dict[int, list[int]] = {}
        chosen: list[tuple[int, int, float, float]] = []
        left = budget * (1 + BUDGET_TOLERANCE)
        open_, spent, number = (room > 0) & (self.price <= left), 0.0, 0
        self._update_knowledge()
        best = self._find_best_pairs(open_, pool)
        best.ratio[self.most == 0] = -np.inf
        order = iter(np.lexsort((best.draw, best.ratio))[::-1].tolist())
        revised = dict[
            int, int
        ]()  # maps each updated item to the round of the update; these items are in the heap, not in `order`
        heap = list[tuple[float, int, int]]()
        unchangeable = in_a_row = 0
        ahead = next(order, -1)
        while open_.any():
            if spent >= budget * (number + 1) / N_UPDATES_PER_BATCH:
                number += 1
                self._update_knowledge()
            while ahead in revised:
                ahead = next(order, -1)
            first = best.heap_key(ahead) if ahead >= 0 else (np.inf, 0, -1)
            if heap and heap[0] < first:
                first = heapq.heappop(heap)
            ratio, _, i = first
            if not ratio < 0:  # no pair remains, or no pair has any gain
                break
            j = int(best.annotator[i])
            if open_[j] and revised.get(i, 0) == number:
                revised[i] = number
                if i not in self.requested and not self._can_item_change(i, best):
                    unchangeable, in_a_row = unchangeable + 1, in_a_row + 1
                    if in_a_row == MAX_UNCHANGEABLE_ITEMS:
                        break
                    continue
                in_a_row = 0
                chosen.append((i, j, float(best.gain[i]), self._request_label(i, j)))
                spent, room[j] = spent + self.price[j], room[j] - 1
                open_ = (room > 0) & (self.price <= left - spent)
            # gains can only decrease, so a pair that is still first after its update is the best one
            revised[i] = number
            if len(self.requested.get(i, ())) < self.most[i]:
                self._update_best_pair(
                    i, open_, best, self.outcomes.get(i, self.belief[i][None]), self.requested.get(i, [])
                )
                heapq.heappush(heap, best.heap_key(i))
        return self._make_recommendation(chosen, budget, unchangeable)

    def _update_knowledge(self) -> None:
        """Update the evidence about annotators with the labels that were requested from them."""
        self.known_evidence = self.evidence.copy()
        self.entropy = None if self.theta is None else compute_expected_entropy(self.theta, self.known_evidence)

    def _request_label(self, i: int, j: int) -> float:
        """Request a label by annotator j on item i, and return the expected information about the item."""
        theta = self._label_probabilities(np.array([i]))[0][0, j]  # (K, K) [given, true]
        before = self.outcomes.get(i, self.belief[i][None])
        self.outcomes[i] = _extend_outcomes(before, theta)
        self.requested.setdefault(i, []).append(j)
        self.evidence[j] += self.belief[i]
        p_class = before.sum(axis=0)
        # I(y; z | b) = H(b, y) − H(b) − H(y, z) + H(z), where b are the outcomes of earlier labels
        distributions = before @ theta.T, before.sum(axis=1), p_class * theta, p_class
        with_label, outcomes, label_and_class, classes = (float(entr(p).sum()) for p in distributions)
        return with_label - outcomes - label_and_class + classes

    def _find_best_pairs(self, open_: BoolArray, pool: Threads) -> _BestPairs:
        """Find the best pair of every item before any label is requested."""
        I, K = self.belief.shape
        best = _BestPairs(np.zeros(I), np.zeros(I), np.zeros(I, np.int64), np.zeros(I, np.uint64))
        size = max(
            1, I if self.theta is not None else MAX_LIKELIHOODS_PER_CHUNK // max(self.annotators.size * K * K, 1)
        )

        def fill_chunk(_: int, start: int, stop: int) -> None:
            for first in range(start, stop, size):
                rows = slice(first, min(first + size, stop))
                ptr, taken = np.arange(rows.stop - first + 1), (self.taken_ptr[first : rows.stop + 1], self.taken)
                self._fill_best_pairs(best, rows, ptr, self.belief[rows], taken, open_)

        pool.map(fill_chunk, even_ranges(I, pool.threads))
        return best

    def _update_best_pair(
        self, i: int, open_: BoolArray, best: _BestPairs, outcomes: FloatArray, asked: list[int]
    ) -> None:
        """Update the best pair of one item after labels were requested."""
        taken = np.append(self.taken[self.taken_ptr[i] : self.taken_ptr[i + 1]], asked).astype(np.int64)
        ptr = np.array([0, len(outcomes)])
        self._fill_best_pairs(best, slice(i, i + 1), ptr, outcomes, (np.array([0, taken.size]), taken), open_)

    def _fill_best_pairs(
        self,
        best: _BestPairs,
        rows: slice,
        ptr: IntArray,
        outcomes: Any,
        taken: tuple[IntArray, IntArray],
        open_: BoolArray,
    ) -> None:
        """Find the best pair of some items, given the outcomes of their requested labels."""
        listed_ptr = None if self.listed_ptr is None else self.listed_ptr[rows.start : rows.stop + 1]
        values_of_rows = kernels.best_pairs(
            ptr, outcomes, *self._label_probabilities(np.arange(rows.start, rows.stop)), self.price, open_, listed_ptr,
            self.listed, *taken, self.keys[0][rows], self.keys[1], MIN_RELATIVE_PROBABILITY, GAIN_RESOLUTION,
        )  # fmt: skip
        for values, new in zip(best, values_of_rows, strict=True):
            values[rows] = new

    def _label_probabilities(self, rows: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return Θ (rows or 1, J, K, K) [given, true] and E H (rows or 1, J, K)."""
        if self.theta is not None and self.entropy is not None:
            return self.theta, self.entropy
        theta = self.expected.matrices(self.item[rows], self.annotator_code)
        return theta, compute_expected_entropy(theta, self.known_evidence)

    def _make_recommendation(
        self, chosen: list[tuple[int, int, float, float]], budget: float, unchangeable: int
    ) -> Recommendation:
        change = {
            item: compute_change_probability(self.outcomes[item], self.belief[item], self.untempered[item])
            for item in self.requested
        }
        unchanged = {
            item
            for item, p in change.items()
            if p < MIN_CHANGE_PROBABILITY and self.limits.settled_confidence is not None
        }
        checked = {item for item in unchanged if self.labels_so_far[item] >= MIN_ANNOTATORS}
        if sum(self.price[pair[1]] for pair in chosen) + self.price.min(initial=np.inf) <= budget * (
            1 + BUDGET_TOLERANCE
        ):
            # the budget allows more labels, so these items have the maximum number of labels
            chosen = [pair for pair in chosen if pair[0] not in checked]
            unchangeable += len(checked)
            unchanged, checked = unchanged - checked, set()
        i, j = (np.array([pair[at] for pair in chosen], np.int64) for at in (0, 1))
        gain, about_item = (np.array([pair[at] for pair in chosen], float) for at in (2, 3))
        changes = np.array([change[item] for item in i.tolist()], float)
        limits = dataclasses.replace(
            self.limits, unchangeable_items=unchangeable, unspent=float(budget - self.price[j].sum()),
            undecided_items=len(checked),
            unchecked_items=len(unchanged - checked),
        )  # fmt: skip
        return Recommendation(
            self.items[i], self.annotators[j], gain, about_item, self.price[j], changes, self.n_pairs, limits
        )

    def _can_item_change(self, i: int, best: _BestPairs) -> bool:
        """Return whether the labels that item i may get can change it, or whether it has fewer than two annotators."""
        if self.limits.settled_confidence is None or self.labels_so_far[i] < MIN_ANNOTATORS:
            return True
        before = [values[i] for values in best]
        everyone, outcomes, requested = np.ones(self.annotators.size, np.bool_), self.belief[i][None], list[int]()
        changes = False
        while not changes and len(requested) < min(self.most[i], MAX_TRIED_LABELS):
            self._update_best_pair(i, everyone, best, outcomes, requested)
            if best.ratio[i] <= 0:
                break
            requested.append(int(best.annotator[i]))
            outcomes = _extend_outcomes(outcomes, self._label_probabilities(np.array([i]))[0][0, requested[-1]])
            changes = compute_change_probability(outcomes, self.belief[i], self.untempered[i]) >= MIN_CHANGE_PROBABILITY
        for values, value in zip(best, before, strict=True):
            values[i] = value
        return changes


class _BestPairs(NamedTuple):
    """The best pair of every item."""

    gain: FloatArray  # (I,)
    ratio: FloatArray  # (I,) gain per cost in multiples of `GAIN_RESOLUTION`; −∞ without a pair
    annotator: IntArray  # (I,) −1 without a pair
    draw: IntArray  # (I,) random number that breaks ties; the larger number comes first

    def heap_key(self, i: int) -> tuple[float, int, int]:
        """Return the heap key of an item; the item with the smallest key is chosen first."""
        return -float(self.ratio[i]), -int(self.draw[i]), i


def compute_expected_entropy(theta: FloatArray, labels: FloatArray) -> FloatArray:
    """Return the expected entropy E H (…, J, K) of Dirichlet rows.

    The rows have the mean `theta` (…, J, K, K) [given, true] and the evidence of `labels` (J, K).
    """
    gamma = np.minimum(labels, MAX_EVIDENCE)
    # H(mean) is the limit for many labels, which E H must not exceed by rounding errors
    entropy = entr(theta).sum(axis=-2)
    expected = psi(gamma + 1) - (theta * psi(theta * gamma[:, None, :] + 1)).sum(axis=-2)
    return np.asarray(np.minimum(expected, entropy))


def _count_evidence(model: Any, annotator: IntArray, given: IntArray) -> FloatArray:
    """Return the number of labels of evidence for each row of Θ (J, K), from the model or the `given` labels (J,).

    An unseen annotator has the evidence of the crowd's prior. Majority vote treats all annotators equally, so its
    evidence about them cannot grow.
    """
    K = model.classes_.size
    if not getattr(model, "models_annotators", True):
        return np.full((annotator.size, K), MAX_EVIDENCE)
    size = model.confusion_support() if isinstance(model, Aggregator) else None
    if size is None:
        return np.asarray(given[:, None] * model.posterior_.mean(axis=0) + CROWD_PSEUDO_LABELS)
    confusion = model.confusion_
    evidence = (np.broadcast_to(size, confusion.shape) * confusion).sum(axis=2)
    return np.concatenate([evidence, np.full((1, K), float(CROWD_PSEUDO_LABELS))])[annotator]


def compute_change_probability(outcomes: FloatArray, belief: FloatArray, untempered: FloatArray) -> float:
    """Return P(label of an item changes), given outcomes (B, K), q (K,) and p (K,)."""
    now = int(belief.argmax())
    scores = outcomes * np.divide(untempered, belief, out=np.zeros_like(untempered), where=belief > 0)
    return float(outcomes[scores[:, now] < (1 - TIE_TOLERANCE) * scores.max(axis=1)].sum())


def _extend_outcomes(before: FloatArray, theta: FloatArray) -> FloatArray:
    """Return the outcomes after one more label (B', K): the most probable ones, and the others merged into one."""
    after = (before[:, None, :] * theta).reshape(-1, theta.shape[1])
    weight = after.sum(axis=1)
    after = after[np.argsort(-weight, kind="stable")[: np.count_nonzero(weight)]]
    if len(after) <= MAX_OUTCOMES:
        return after
    return np.concatenate([after[: MAX_OUTCOMES - 1], after[MAX_OUTCOMES - 1 :].sum(axis=0, keepdims=True)])


def _to_codes(chosen: Any, names: Names, parameter: str, repeated: bool = False) -> IntArray:
    """Return the codes of the chosen names, or all codes if None; they are sorted and unique unless `repeated`."""
    if chosen is None:
        return np.arange(names.size)
    if isinstance(chosen, str):
        raise NamesAreText(name=ParameterName(parameter), text=chosen)
    given = naming.to_names(naming.to_column(chosen, parameter))
    codes = naming.match_names(given, names, parameter)
    if (codes < 0).any():
        raise NotInTable(name=ParameterName(parameter), value=given[codes < 0][0])
    return codes.astype(np.int64) if repeated else np.unique(codes)


def _spread_over_annotators(value: Any, names: Names, parameter: str, missing: float | None = None) -> FloatArray:
    """Return a number for each annotator (J,), given one number for all, a mapping or a list."""
    name = ParameterName(parameter)
    if isinstance(value, Mapping):
        values = [value.get(annotator, missing) for annotator in names.tolist()]
        if None in values:
            raise AnnotatorWithoutValue(name=name, annotator=names[values.index(None)])
        value = values
    try:
        numbers = np.asarray(value, float)
    except (TypeError, ValueError):
        raise LimitsNotNumbers(name=name, value=value) from None
    if numbers.ndim > 1 or (numbers.ndim == 1 and numbers.size != names.size):
        raise WrongLength(name=name, expected=names.size, shape=numbers.shape)
    if np.isnan(numbers).any() or (numbers < 0).any():
        raise LimitsNotNumbers(name=name, value=float(numbers.min()))
    return np.array(np.broadcast_to(numbers, names.size))
