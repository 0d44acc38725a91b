"""Whom to ask about what next: the labels that are expected to tell most for their price.

Item i is of class z_i = k with probability q_i(k), and annotator j gives an item of class k the label l with
probability Θ_j[k, l] (Q_ij[k, l] where the model has it differ from item to item), of which as much is known as γ_jk
labels say: rows are Dirichlet(γ_jk Θ_j[k, ·]). With P(l) = Σ_k q_i(k) Θ_j[k, l], the label is expected to tell

    gain = I(y_ij; z_i, Θ_j) = H(P) − Σ_k q_i(k) E H(Θ_j[k, ·])
         = I(y_ij; z_i)  [`about_item`: H(P) − Σ_k q_i(k) H(E Θ_j[k, ·]), the expected fall of the entropy of q_i]
         + Σ_k q_i(k) (H(E Θ_j[k, ·]) − E H(Θ_j[k, ·]))  [about the annotator]
    E H(Dirichlet(γ m)) = ψ(γ + 1) − Σ_l m_l ψ(γ m_l + 1)

in nats. The second part is no ornament: a model that asks only about items asks those whom it happens to believe, never
finds out about the others, and believes itself (`benchmarks/recommend`).

| symbol | name | shape |
|---|---|---|
| q | belief | (I, K) |
| Θ | theta | (I or 1, J, K, K) [given, true] |
| γ | labels | (J, K) |
| E H | spread | (I or 1, J, K) |

*Several labels at once.* Annotators are independent given the class, so after labels were asked for, but not yet given,
the gain of one more is the mean over what they may be: Σ_b w_b H(P_b) − Σ_k q_i(k) E H(Θ_j[k, ·]) over joint outcomes b
(`OUTCOMES` of them; of more, the least probable are taken together). What is known of an annotator grows by the labels
asked of it, `ROUNDS` times in a batch. All this only lowers gains, and the next pair is always the one with the largest
gain per price: greedy, which for such gains and equal prices is at least 63 % of the best (Nemhauser et al. 1978).

*What becomes of the labels.* q_i is softened, because labels of one item depend on each other; the model that is fitted
to the new labels too decides by p_i(k) Π Θ_j[k, y_ij], with p_i the sharp posterior (`models.tempering`). So with
k_b = arg max_k p_i(k) P(b | k) and k_0 = arg max_k q_i(k), over the outcomes b of all labels asked for on the item

    p_change = Σ_b w_b [k_b ≠ k_0]

*Limits*, where not told otherwise: an annotator who gave a share s of the labels so far gets at most max(s, min(2 s,
1/2)) of the budget, an item so many labels that it has `MORE_LABELS` more than the median item, and none where it is
settled: q_i(k_0) ≥ `SETTLED`, by `MIN_ANNOTATORS` people or more. Nor does an item of so many people get one where all
that it may get leave p_change below `MIN_CHANGE`: what such labels would cost stays in the budget.
"""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.special import entr, psi

from dissensus.common.arrays import TIE, group_starts
from dissensus.common.formatting import count, percent
from dissensus.common.frames import Backend, as_frame
from dissensus.common.notebook import Shown
from dissensus.common.parameters import check_argument
from dissensus.common.types import BoolArray, FloatArray, IntArray, Names
from dissensus.compute.engines.local import Threads, even, thread_count
from dissensus.compute.kernels import recommendation as kernels
from dissensus.exceptions import BadParameter, DataError
from dissensus.models.base import Aggregator
from dissensus.models.confidence import CROWD_LABELS
from dissensus.models.tempering import Tempering
from dissensus.questions.item_status import MIN_ANNOTATORS, SETTLED
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations
from dissensus.table.kinds import CLASS_KINDS, check_kind

OUTCOMES = 64  # of labels that were asked for on one item: exact for six labels of two classes, two of eight
ROUNDS = 8  # in which what is known of annotators is revised
CELLS = 2**22  # numbers in an array of likelihoods that differ from item to item, at most
MIN_RELATIVE = 1e-12  # of the most probable class: what is less probable is passed over
GRAIN = 1e-10  # nats per price that make a difference; below, names decide
ROUNDING = 1e-9  # of the budget: three labels at 0.1 are within 0.3
MAX_LABELS_BEHIND = 1e9  # a row of Θ: more is no different
SHARE_FACTOR = 2.0  # times the share of the labels so far: the most that an annotator gets of the budget
MAX_SHARE = 0.5  # of the budget, that nobody gets who had less of the labels so far
MIN_CAPACITY = 5  # labels that everybody may be asked for, however few they gave
MORE_LABELS = 3  # above the median item's, that an item may come to
MIN_CHANGE = 0.01  # P(label of an item changes) below which labels about it buy nothing
MAX_AHEAD = 10  # labels of one item that are thought of before it is said that they change nothing
MAX_IN_VAIN = 100  # items in a row that no label changes, before none of the others is looked at
ADVICE_BUDGET = 100  # labels that `redundancy` and the report ask for
Each = float | Mapping[Any, float] | FloatArray | list[float]


@dataclass(frozen=True, eq=False, repr=False)
class Recommendation(Shown):
    """Pairs to ask about, in the order in which they should be asked; one entry per pair in every array."""

    items: Names  # (n,)
    annotators: Names  # (n,)
    gain: FloatArray  # (n,) nats that the label is expected to tell, after those above it
    about_item: FloatArray  # (n,) of these, about the class of the item; the rest is about the annotator
    cost: FloatArray  # (n,)
    p_change: FloatArray  # (n,) P(label of the item changes), by all that is asked for about it here
    candidates: int = field(default=0)  # pairs that there were to choose from
    limits: Limits | None = None

    def __repr__(self) -> str:
        return (
            f"Recommendation of {len(self):,} of {self.candidates:,} labels for {self.cost.sum():g}: "
            f"{self.changes:.3g} items expected to change their label"
        )

    def __len__(self) -> int:
        return int(self.items.size)

    @property
    def changes(self) -> float:
        """Items whose label is expected to change."""
        return float(self.p_change[np.unique(self.items, return_index=True)[1]].sum())

    def verdict(self) -> str:
        """Say what the labels are expected to change and what that costs, or why there are none."""
        if len(self) == 0:
            return f"Nothing is left to buy here: {self._why_nothing()}"
        each = f", at a cost of {self.cost.sum() / self.changes:.3g} for each that does" if self.changes >= 0.1 else ""
        number = f"{self.changes:,.0f}" if self.changes >= 10 else f"{self.changes:.1f}"
        _, per_item = np.unique(self.items, return_counts=True)
        most = f", up to {per_item.max()} for one item" if per_item.max() > 1 else ""
        ask = f"Ask for {count(len(self), 'label')} about {count(per_item.size, 'item')}{most}, at a cost of "
        said = [
            f"{ask}{self.cost.sum():g}.",
            f"About {number} items are expected to change their label{each}."
            if self.changes >= 0.05
            else "No item is expected to change its label.",
        ]
        if (limits := self.limits) is None:
            return " ".join(said)
        if limits.nobody_checked:
            said[1] = "No item has labels by two annotators, so nothing says how many labels will change."
        elif limits.too_few:
            said.append(f"{count(limits.too_few, 'item')} may change by more labels than these.")
        if limits.unchecked:
            are, them = ("is", "it") if limits.unchecked == 1 else ("are", "them")
            why = f"only because at most one annotator has labelled {them} so far"
            said.append(f"{limits.unchecked:,} of these items {are} asked about {why}.")
        if limits.left >= self.cost.min():
            said.append(f"{limits.left:g} of the budget is left: {self._why_nothing()}")
        return " ".join(said)

    def advice(self) -> str:
        """Say what to do next, and which command lists the labels; of a budget of `ADVICE_BUDGET`.

        >>> from dissensus import methods, recommend
        >>> from dissensus.table.simulate import simulate
        >>> table = simulate(60, 8, 2, redundancy=3, seed=1).annotations
        >>> recommend(methods["consensus"]().fit(table), table, budget=100).advice()[:32]
        'Next: with a budget of 100, ask '
        """
        said = self.verdict()
        said = said[0].lower() + said[1:]
        if len(self):
            command = f"dissensus recommend --budget {ADVICE_BUDGET}"
            said = f"with a budget of {ADVICE_BUDGET}, {said} `{command}` says which."
        return f"Next: {said}"

    def _why_nothing(self) -> str:
        limits = self.limits
        if limits is None or self.candidates == len(self):
            return f"{'then ' * bool(len(self))}everybody has labelled every item; only somebody new could say more."
        if limits.too_dear:
            return "the budget does not pay for a label."
        if limits.open_items and (limits.in_vain or not len(self)):
            no = "no other label" if len(self) else "no label"
            return f"{no} that may be asked for is expected to change the label of an item."
        if limits.open_items:
            return "within the limits there is nothing more to ask for."
        settled = f"{count(limits.settled_items, 'item')} of {limits.n_items:,} are settled"
        sure = (
            f" (at least {percent(limits.settled)} sure, by {MIN_ANNOTATORS} annotators or more)"
            if limits.settled
            else ""
        )
        full = f", and {limits.full_items:,} have as many labels as an item may have" if limits.full_items else ""
        return f"{settled}{sure}{full}."

    def to_frame(self, backend: Backend | None = None) -> Any:
        """One row per pair, the first to ask first; a pandas frame where pandas is installed, else an Arrow table."""
        names = {"rank": np.arange(1, len(self) + 1), "item": self.items, "annotator": self.annotators}
        measures = {"gain": self.gain, "about_item": self.about_item, "cost": self.cost}
        return as_frame(names | measures | {"gain_per_cost": self.gain / self.cost, "p_change": self.p_change}, backend)


@dataclass(frozen=True)
class Limits:
    """What kept labels from being asked for."""

    settled: float | None  # probability from which an item gets no more labels
    settled_items: int
    labels_per_item: int | None  # that an item may come to; None where not set by the median item
    full_items: int  # others that may have no more labels
    open_items: int  # items that may be asked about
    n_items: int
    too_dear: bool  # True if no label costs as little as the budget
    in_vain: int = 0  # items that were looked at and that no label is expected to change
    left: float = 0.0  # of the budget
    too_few: int = 0  # items asked about that take more labels than these to change
    unchecked: int = 0  # items asked about that are not expected to change, and have fewer than two annotators
    nobody_checked: bool = False  # no item of the table has labels by two annotators, and the model knows no more


def recommend(
    model: Any,
    table: Annotations,
    *,
    budget: float,
    items: Iterable[Any] | None = None,
    annotators: Iterable[Any] | None = None,
    candidates: tuple[Any, Any] | None = None,
    cost: Each = 1.0,
    capacity: int | Mapping[Any, int] | Literal["auto"] | None = "auto",
    per_item: int | Literal["auto"] | None = "auto",
    settled: float | None = SETTLED,
    allow_repeats: bool = False,
    threads: int | None = None,
) -> Recommendation:
    """Choose the labels to buy next, by expected information gain per unit of cost.

    Parameters
    ----------
    model : a fitted aggregator, `LIA` or `CrowdClassifier`
    table : Annotations
        What there is already: its pairs are not asked for again, its items and annotators can be asked about, also
        those without annotations.
    budget : float
        What may be spent; with the cost of 1 that labels have if not told otherwise, the number of labels.
    items, annotators : lists of names, optional
        Only these; left out, all of the table.
    candidates : (items, annotators), optional
        Two columns of names: only these pairs. Left out: every item with every annotator.
    cost : number, annotator → number, or one number per annotator
    capacity : int, annotator → int, "auto" or None
        Labels that an annotator can give at most, of those asked for now. "auto": twice the share of the budget that
        it had of the labels so far by those asked, 5 at least, and half of the budget at most unless it had more. None:
        any number.
    per_item : int, "auto" or None
        Labels asked for on one item at most, now. "auto": as many as bring it to the median item's number and 3 more.
    settled : float or None
        Probability of its label from which an item of two annotators or more is asked about no more; nor is one that
        no label is expected to change. None: labels are asked for as long as they tell anything.
    allow_repeats : bool
        Whether annotators may be asked again what they have answered; a second answer is taken to be as good as that
        of somebody else like them, which it is not.
    threads : int, optional
        None for all cores.

    >>> from dissensus.models.methods import DawidSkene
    >>> from dissensus.table.simulate import simulate
    >>> table = simulate(200, 10, 3, redundancy=2, seed=1).annotations
    >>> found = recommend(DawidSkene().fit(table), table, budget=20, per_item=1)
    >>> found
    Recommendation of 20 of 1,600 labels for 20: 10.7 items expected to change their label
    >>> round(found.changes, 1), found.to_frame().shape
    (10.7, (20, 8))
    >>> print(found.verdict().partition(". ")[0])
    Ask for 20 labels about 20 items, at a cost of 20
    """
    if not isinstance(table, Annotations):
        raise DataError(f"recommend takes a table of annotations, got {type(table).__name__}; it says what is known.")
    check_kind(table.kind, CLASS_KINDS, "recommend")
    check_argument("budget", budget, float, above=0, must="must be a number above 0")
    check_argument("per_item", per_item, int | Literal["auto"] | None, low=1, must="must be a whole number, at least 1")
    check_argument("settled", settled, float | None, above=0, high=1, must="must be above 0 and at most 1, or None")
    search = _Search(
        model, table, _codes(items, table.items, "items"), _codes(annotators, table.annotators, "annotators")
    )
    search.limit_pairs(candidates, allow_repeats)
    search.limit_labels(per_item, settled)
    search.price = _per_annotator(cost, search.annotators, "cost")
    if not (search.price > 0).all():
        who = naming.shown(search.annotators[np.argmin(search.price)])
        raise BadParameter(f"cost must be above 0, got {search.price.min():g} for annotator {who}.")
    room = search.room(capacity, float(budget))
    with Threads(thread_count(threads, search.n_pairs)) as pool:
        return search.run(float(budget), room, pool)


class _Search:
    """Greedy search for pairs; items and annotators are numbered among those asked about."""

    price: FloatArray  # (J,)

    def __init__(self, model: Any, table: Annotations, items: IntArray, annotators: IntArray):
        if not (hasattr(model, "likelihoods") and hasattr(model, "_check_fitted")):
            raise BadParameter(f"a fitted aggregator, LIA or CrowdClassifier is needed, got {type(model).__name__}.")
        model._check_fitted()
        self.expected = model.likelihoods()
        if not np.array_equal(model.classes_, table.classes):
            raise DataError(
                f"the model has {model.classes_.size} classes and the table {table.classes.size}, which are not the "
                "same; make the table with classes=model.classes_."
            )
        self.table, self.rows, self.columns = table, items, annotators  # codes in the table
        self.items, self.annotators = table.items[items], table.annotators[annotators]
        self.item = naming.match(self.items, model.items_, "items")  # codes in the model
        self.of_table = int(np.sum(getattr(model, "n_annotations_", -1))) == len(table)  # the model knows no more
        self.who = naming.match(self.annotators, model.annotators_, "annotators")
        if (self.item < 0).any() and not hasattr(model, "prior_"):
            some = naming.shown(self.items[self.item < 0][0])
            raise DataError(f"item {some} was not there when this {type(model).__name__} was fitted; fit it with it.")
        dependence = getattr(model, "dependence_", 0.0)
        softened = model.posterior_ if dependence else self.expected.belief  # shares of votes are no probabilities
        known = np.ascontiguousarray(softened[self.item], np.float64)
        self.belief = np.where((self.item >= 0)[:, None], known, getattr(model, "prior_", 0.0))
        total = np.where(self.item >= 0, getattr(model, "item_total_", np.zeros(len(model.items_)))[self.item], 0.0)
        self.sharp = Tempering(dependence).untemper(self.belief, total)  # (I, K) p
        self.labels = _labels_behind(model, self.who, np.diff(table.annotator_ptr)[annotators])  # (J, K) γ
        self.theta = self.expected.of(np.array([-1]), self.who) if self.expected.same else None
        self.keys = naming.hashes(self.items), naming.mix(naming.hashes(self.annotators))

    def limit_pairs(self, candidates: tuple[Any, Any] | None, allow_repeats: bool) -> None:
        """Set the pairs that may be chosen: `listed` ones of each item, or all, without those that are `taken`."""
        I, J = self.items.size, self.annotators.size
        row, column = np.full(self.table.n_items, -1, np.int64), np.full(self.table.n_annotators, -1, np.int64)
        row[self.rows], column[self.columns] = np.arange(I), np.arange(J)

        def pairs(item: IntArray, annotator: IntArray) -> IntArray:
            """Number the different pairs of items and annotators that are asked about."""
            i, j = row[item], column[annotator]
            return np.unique((i * J + j)[(i >= 0) & (j >= 0)])

        taken = np.empty(0, np.int64) if allow_repeats else pairs(self.table.item, self.table.annotator)
        self.taken_ptr, self.taken = group_starts(taken // J, I), taken % J
        self.listed_ptr, self.listed, self.n_pairs = None, taken[:0], I * J - taken.size
        if candidates is None:
            return
        if not isinstance(candidates, tuple | list) or len(candidates) != 2 or len(candidates[0]) != len(candidates[1]):
            raise BadParameter("candidates must be two columns of the same length, of items and of annotators.")
        names = zip(candidates, (self.table.items, self.table.annotators), strict=True)
        listed = np.setdiff1d(pairs(*(_codes(some, among, "candidates", twice=True) for some, among in names)), taken)
        self.listed_ptr, self.listed, self.n_pairs = group_starts(listed // J, I), listed % J, listed.size

    def limit_labels(self, per_item: int | Literal["auto"] | None, settled: float | None) -> None:
        """Set `most` (I,), the number of labels that may be asked for on each item."""
        counts = self.table.ratings_per_item
        self.given = counts[self.rows]
        goal, most = None, np.full(self.given.size, np.inf if per_item is None else per_item)
        if per_item == "auto":
            goal = MORE_LABELS + (int(np.ceil(np.median(counts[counts > 0]))) if counts.any() else 0)
            most = np.maximum(goal - self.given, 0.0)
        sure = self.belief.max(axis=1, initial=0)
        done = (sure >= (np.inf if settled is None else settled)) & (self.given >= MIN_ANNOTATORS)
        self.most = np.where(done, 0.0, most)
        full, open_items = int(((most == 0) & ~done).sum()), int((self.most > 0).sum())
        alone = self.of_table and counts.max(initial=0) == 1
        self.limits = Limits(settled, int(done.sum()), goal, full, open_items, sure.size, False, nobody_checked=alone)

    def room(self, capacity: Any, budget: float) -> FloatArray:
        """(J,) labels that each annotator may be asked for."""
        self.limits = dataclasses.replace(self.limits, too_dear=not (self.price <= budget * (1 + ROUNDING)).any())
        if isinstance(capacity, str) and capacity == "auto":
            done = np.diff(self.table.annotator_ptr)[self.columns] + 1.0  # somebody new counts as one label
            share = done / max(done.sum(), 1)
            share = np.maximum(share, np.minimum(SHARE_FACTOR * share, MAX_SHARE))
            return np.asarray(np.maximum(np.ceil(share * budget / self.price), MIN_CAPACITY))
        room = _per_annotator(np.inf if capacity is None else capacity, self.annotators, "capacity", np.inf)
        if (room[np.isfinite(room)] % 1 != 0).any():
            raise BadParameter(f"capacity must be whole numbers, got {capacity!r}.")
        return room

    def run(self, budget: float, room: FloatArray, pool: Threads) -> Recommendation:
        """Choose pairs until the budget is spent, no pair is left, or nothing can be learnt or changed."""
        self.outcomes: dict[int, FloatArray] = {}  # of items on which labels were asked for
        self.asked: dict[int, list[int]] = {}
        chosen: list[tuple[int, int, float, float]] = []
        left = budget * (1 + ROUNDING)
        open_, spent, number = (room > 0) & (self.price <= left), 0.0, 0
        self._update_known()
        best = self._best(open_, pool)
        best.ratio[self.most == 0] = -np.inf
        order = iter(np.lexsort((best.draw, best.ratio))[::-1].tolist())
        revised = dict[int, int]()  # item → the round in which it was: its entry is in the heap, no more in `order`
        heap = list[tuple[float, int, int]]()
        in_vain = in_a_row = 0
        ahead = next(order, -1)
        while open_.any():
            if spent >= budget * (number + 1) / ROUNDS:
                number += 1
                self._update_known()
            while ahead in revised:
                ahead = next(order, -1)
            first = best.entry(ahead) if ahead >= 0 else (np.inf, 0, -1)
            if heap and heap[0] < first:
                first = heapq.heappop(heap)
            ratio, _, i = first
            if not ratio < 0:  # nothing is left to choose, or to be learnt
                break
            j = int(best.who[i])
            if open_[j] and revised.get(i, 0) == number:
                revised[i] = number
                if i not in self.asked and not self._can_change(i, best):
                    in_vain, in_a_row = in_vain + 1, in_a_row + 1
                    if in_a_row == MAX_IN_VAIN:
                        break
                    continue
                in_a_row = 0
                chosen.append((i, j, float(best.gain[i]), self._ask(i, j)))
                spent, room[j] = spent + self.price[j], room[j] - 1
                open_ = (room > 0) & (self.price <= left - spent)
            # gains only fall: what still comes first after it was looked at again is the best there is
            revised[i] = number
            if len(self.asked.get(i, ())) < self.most[i]:
                self._revise(i, open_, best, self.outcomes.get(i, self.belief[i][None]), self.asked.get(i, []))
                heapq.heappush(heap, best.entry(i))
        return self._result(chosen, budget, in_vain)

    def _update_known(self) -> None:
        """Update what is known of annotators by the labels asked of them."""
        self.known = self.labels.copy()
        self.spread = None if self.theta is None else expected_entropy(self.theta, self.known)

    def _ask(self, i: int, j: int) -> float:
        """Ask annotator j about item i; return the information that its label is expected to give about the item."""
        theta = self._likelihood(np.array([i]))[0][0, j]  # (K, K) [given, true]
        before = self.outcomes.get(i, self.belief[i][None])
        self.outcomes[i] = _outcomes_after(before, theta)
        self.asked.setdefault(i, []).append(j)
        self.labels[j] += self.belief[i]
        of_class = before.sum(axis=0)  # I(y; z | what may have been answered before)
        joints = before @ theta.T, before.sum(axis=1), of_class * theta, of_class
        given, outcome, said, truth = (float(entr(joint).sum()) for joint in joints)
        return given - outcome - said + truth

    def _best(self, open_: BoolArray, pool: Threads) -> _Best:
        """Find the best pair of every item, as if no label had been asked for."""
        I, K = self.belief.shape
        best = _Best(np.zeros(I), np.zeros(I), np.zeros(I, np.int64), np.zeros(I, np.uint64))
        size = max(1, I if self.theta is not None else CELLS // max(self.annotators.size * K * K, 1))

        def fill(_: int, start: int, stop: int) -> None:
            for first in range(start, stop, size):
                rows = slice(first, min(first + size, stop))
                ptr, taken = np.arange(rows.stop - first + 1), (self.taken_ptr[first : rows.stop + 1], self.taken)
                self._fill(best, rows, ptr, self.belief[rows], taken, open_)

        pool.map(fill, even(I, pool.threads))
        return best

    def _revise(self, i: int, open_: BoolArray, best: _Best, outcomes: FloatArray, asked: list[int]) -> None:
        """Find the best pair of one item again, after labels were asked for."""
        taken = np.append(self.taken[self.taken_ptr[i] : self.taken_ptr[i + 1]], asked).astype(np.int64)
        ptr = np.array([0, len(outcomes)])
        self._fill(best, slice(i, i + 1), ptr, outcomes, (np.array([0, taken.size]), taken), open_)

    def _fill(
        self, best: _Best, rows: slice, ptr: IntArray, outcomes: Any, taken: tuple[IntArray, IntArray], open_: BoolArray
    ) -> None:
        listed_ptr = None if self.listed_ptr is None else self.listed_ptr[rows.start : rows.stop + 1]
        found = kernels.best_pairs(
            ptr, outcomes, *self._likelihood(np.arange(rows.start, rows.stop)), self.price, open_, listed_ptr,
            self.listed, *taken, self.keys[0][rows], self.keys[1], MIN_RELATIVE, GRAIN,
        )  # fmt: skip
        for values, new in zip(best, found, strict=True):
            values[rows] = new

    def _likelihood(self, rows: IntArray) -> tuple[FloatArray, FloatArray]:
        """Θ (rows or 1, J, K, K) [given, true] and E H (rows or 1, J, K)."""
        if self.theta is not None and self.spread is not None:
            return self.theta, self.spread
        theta = self.expected.of(self.item[rows], self.who)
        return theta, expected_entropy(theta, self.known)

    def _result(self, chosen: list[tuple[int, int, float, float]], budget: float, in_vain: int) -> Recommendation:
        change = {item: p_change(self.outcomes[item], self.belief[item], self.sharp[item]) for item in self.asked}
        unchanged = {item for item, p in change.items() if p < MIN_CHANGE and self.limits.settled is not None}
        checked = {item for item in unchanged if self.given[item] >= MIN_ANNOTATORS}
        if sum(self.price[pair[1]] for pair in chosen) + self.price.min(initial=np.inf) <= budget * (1 + ROUNDING):
            # they have all labels that they may have
            chosen, in_vain = [pair for pair in chosen if pair[0] not in checked], in_vain + len(checked)
            unchanged, checked = unchanged - checked, set()
        i, j = (np.array([pair[at] for pair in chosen], np.int64) for at in (0, 1))
        gain, about_item = (np.array([pair[at] for pair in chosen], float) for at in (2, 3))
        changes = np.array([change[item] for item in i.tolist()], float)
        limits = dataclasses.replace(
            self.limits, in_vain=in_vain, left=float(budget - self.price[j].sum()), too_few=len(checked),
            unchecked=len(unchanged - checked),
        )  # fmt: skip
        return Recommendation(
            self.items[i], self.annotators[j], gain, about_item, self.price[j], changes, self.n_pairs, limits
        )

    def _can_change(self, i: int, best: _Best) -> bool:
        """True if labels can change item i, as many as it may have; or if nobody has checked what is believed of it."""
        if self.limits.settled is None or self.given[i] < MIN_ANNOTATORS:
            return True
        kept = [values[i] for values in best]
        everybody, outcomes, asked = np.ones(self.annotators.size, np.bool_), self.belief[i][None], list[int]()
        changes = False
        while not changes and len(asked) < min(self.most[i], MAX_AHEAD):
            self._revise(i, everybody, best, outcomes, asked)
            if best.ratio[i] <= 0:
                break
            asked.append(int(best.who[i]))
            outcomes = _outcomes_after(outcomes, self._likelihood(np.array([i]))[0][0, asked[-1]])
            changes = p_change(outcomes, self.belief[i], self.sharp[i]) >= MIN_CHANGE
        for values, before in zip(best, kept, strict=True):
            values[i] = before
        return changes


class _Best(NamedTuple):
    """The best pair of every item."""

    gain: FloatArray  # (I,)
    ratio: FloatArray  # (I,) gain per cost in multiples of GRAIN; −∞ where there is no pair
    who: IntArray  # (I,) −1 where there is none
    draw: IntArray  # (I,) the larger goes first where ratios are equal

    def entry(self, i: int) -> tuple[float, int, int]:
        """Key of the heap: the smallest is asked first."""
        return -float(self.ratio[i]), -int(self.draw[i]), i


def expected_entropy(theta: FloatArray, labels: FloatArray) -> FloatArray:
    """(…, J, K) E H of Dirichlet rows with mean `theta` (…, J, K, K) [given, true] and `labels` (J, K) behind them."""
    known = np.minimum(labels, MAX_LABELS_BEHIND)
    # H(mean) is the limit, and rounding must not carry E H above it
    entropy = entr(theta).sum(axis=-2)
    expected = psi(known + 1) - (theta * psi(theta * known[:, None, :] + 1)).sum(axis=-2)
    return np.asarray(np.minimum(expected, entropy))


def _labels_behind(model: Any, who: IntArray, given: IntArray) -> FloatArray:
    """(J, K) number of labels behind each row of Θ: by the model, or by the labels `given` (J,) in the table.

    Of somebody new as much is known as the crowd says of anybody. Majority vote takes all for alike: there is nothing
    to be learnt of them.
    """
    K = model.classes_.size
    if not getattr(model, "models_annotators", True):
        return np.full((who.size, K), MAX_LABELS_BEHIND)
    size = model.confusion_support() if isinstance(model, Aggregator) else None
    if size is None:
        return np.asarray(given[:, None] * model.posterior_.mean(axis=0) + CROWD_LABELS)
    everyone = model.confusion_
    behind = (np.broadcast_to(size, everyone.shape) * everyone).sum(axis=2)
    return np.concatenate([behind, np.full((1, K), float(CROWD_LABELS))])[who]


def p_change(outcomes: FloatArray, belief: FloatArray, sharp: FloatArray) -> float:
    """P(label of an item changes), from outcomes (B, K), q (K,) and p (K,)."""
    now = int(belief.argmax())
    decides = outcomes * np.divide(sharp, belief, out=np.zeros_like(sharp), where=belief > 0)
    return float(outcomes[decides[:, now] < (1 - TIE) * decides.max(axis=1)].sum())


def _outcomes_after(before: FloatArray, theta: FloatArray) -> FloatArray:
    """(B', K) outcomes after one more label: the most probable ones, and all others together."""
    after = (before[:, None, :] * theta).reshape(-1, theta.shape[1])
    weight = after.sum(axis=1)
    after = after[np.argsort(-weight, kind="stable")[: np.count_nonzero(weight)]]
    if len(after) <= OUTCOMES:
        return after
    return np.concatenate([after[: OUTCOMES - 1], after[OUTCOMES - 1 :].sum(axis=0, keepdims=True)])


def _codes(chosen: Any, among: Names, what: str, twice: bool = False) -> IntArray:
    """Codes of names; sorted and each once unless `twice`; all where nothing is chosen."""
    if chosen is None:
        return np.arange(among.size)
    if isinstance(chosen, str):
        raise BadParameter(f"{what} must be a list of names, got the text {chosen!r}; write [{chosen!r}].")
    names = naming.to_names(naming.to_column(chosen, what))
    codes = naming.match(names, among, what)
    if (codes < 0).any():
        some = naming.shown(names[codes < 0][0])
        raise DataError(
            f"{what}: {some} is not in the table; declare it there (items=…, annotators=…) to ask about it."
        )
    return codes.astype(np.int64) if twice else np.unique(codes)


def _per_annotator(value: Any, names: Names, what: str, missing: float | None = None) -> FloatArray:
    """(J,) a number for each annotator, from one for all, a mapping, or one each."""
    if isinstance(value, Mapping):
        found = [value.get(name, missing) for name in names.tolist()]
        if None in found:
            raise DataError(f"{what}: annotator {naming.shown(names[found.index(None)])} has none; give one to each.")
        value = found
    try:
        numbers = np.asarray(value, float)
    except (TypeError, ValueError):
        raise BadParameter(f"{what} must be numbers, got {value!r}.") from None
    if numbers.ndim > 1 or (numbers.ndim == 1 and numbers.size != names.size):
        raise DataError(f"{what} has shape {numbers.shape}; expected one number, or one for each of {names.size:,}.")
    if np.isnan(numbers).any() or (numbers < 0).any():
        raise BadParameter(f"{what} must be numbers, 0 or more, got {numbers.min():g}.")
    return np.array(np.broadcast_to(numbers, names.size))
