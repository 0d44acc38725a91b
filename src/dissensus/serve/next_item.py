"""Choose the items that an annotator should label next: those whose label has the largest expected information gain.

With q_i the posterior of item i, ρ the intra-item correlation and Θ the confusion matrix of the annotator, the gain of
one more label of an item with n labels is

    w = I(y; z_i) / √(1 + n ρ)        I(y; z) = H(Θ q) − Σ_k q_k H(Θ[k, ·])

in nats: `about_item` of `questions.recommend`, less if labels repeat each other. An item without labels has a uniform
q, whatever the class shares, so that it comes first. Θ is shrunk to that of the crowd with the weight of
`CROWD_PSEUDO_LABELS` labels; only labels on items that others labelled too count for the annotator.

An annotator who has little to add waits for others: if the best gain is below `MIN_GAIN_SHARE` of what a typical
annotator would gain on the best unlabelled item, the annotator is asked to wait, at most `MAX_WAITS` times in a row.
Items that another annotator was just asked about (a lease, known in one process) come last. An annotator is never asked
about an item with a gain below `MIN_GAIN`, an item already labelled by the annotator, a decided item, an item that is
certain with `CERTAIN_LABELS` labels, or one with the maximum number of labels. The constants were chosen with
`benchmarks/serve`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import entr

from dissensus.common.types import BoolArray, FloatArray, IntArray
from dissensus.messages import Message
from dissensus.models.base import put_given_label_first
from dissensus.models.confidence import CROWD_PSEUDO_LABELS
from dissensus.questions.recommend import MAX_LABELS_ABOVE_MEDIAN
from dissensus.serve.exceptions import EnoughLabels, ItemsInProgress, NothingLeftToLabel, OthersHavePriority
from dissensus.serve.rows import ANNOTATOR
from dissensus.table.annotations import Annotations
from dissensus.table.kinds import CLASS_KINDS

if TYPE_CHECKING:
    from dissensus.serve.fit import FittedProject
    from dissensus.serve.project import Project

POOL_SIZE = 2_000  # items among which the next one is chosen
MAX_POOL_CELLS = 2**22  # maximum of items × K × K
LEASE_SECONDS = 600.0  # During this time, other annotators are asked about other items first.
MAX_ITEMS_PER_REQUEST = 100  # items per request
CERTAIN_CONFIDENCE, CERTAIN_LABELS = 0.99, 3  # An item with this confidence and number of labels gets no more.
MIN_GAIN = 0.002  # nats; a label with a smaller gain is not worth collecting
ROUNDING = 1e-9  # relative tolerance, so that an unseen annotator has exactly the typical gain
MIN_GAIN_SHARE = 0.85  # An annotator with at least this share of the typical gain never waits.
MAX_WAITS = 2  # successive requests that are answered by asking to wait: at least one of three gets an item


class Assigner:
    """Choose items of one project; callers hold the lock of the project."""

    def __init__(self, project: Project):
        self.project = project
        self.leases: dict[int, dict[str, float]] = {}  # item → annotator → end of the lease
        self.leases_by_annotator: dict[str, dict[int, float]] = {}  # annotator → item → end of the lease
        self.fitted: FittedProject | None = None
        self.pool: IntArray = np.empty(0, np.int64)
        self.pool_place: dict[int, int] = {}  # item → place in the pool
        self.belief = np.empty((0, 1))
        self.typical_gain: FloatArray = np.empty(0)  # gain of a typical annotator's label for each item of the pool
        self.median, self.has_more = 0, False
        self.waited: dict[str, int] = {}  # annotator → successive requests without an item
        self.thetas: dict[int, FloatArray] = {}  # annotator → Θ

    def choose_items(self, annotator: str, count: int, among: IntArray | None) -> tuple[list[int], Message | None]:
        """Return the codes of the next items, or the reason why there are none; `among` limits the choice."""
        project, now = self.project, time.monotonic()
        who = project.names[ANNOTATOR].codes.get(annotator, -1)
        n_given = int(project.n_labels_given[who]) if who >= 0 else 0
        limit = project.about.get("per_annotator")
        if limit is not None:
            if n_given >= limit:
                return [], EnoughLabels(n_labels=n_given)
            count = min(count, limit - n_given)
        chosen = self._leased_items(annotator, who, now)[:count]
        waits = False
        if len(chosen) < count:
            least = MIN_GAIN_SHARE if self.waited.get(annotator, 0) < MAX_WAITS else 0.0
            found, waits = self._choose_best(who, count - len(chosen), set(chosen), among, least)
            chosen += found
        self.waited[annotator] = self.waited.get(annotator, 0) + 1 if waits and not chosen else 0
        for item in chosen:
            self.leases.setdefault(item, {})[annotator] = now + LEASE_SECONDS
            self.leases_by_annotator.setdefault(annotator, {})[item] = now + LEASE_SECONDS
        if chosen:
            return chosen, None
        return [], OthersHavePriority() if waits else ItemsInProgress() if self._is_busy(
            who, among, now
        ) else NothingLeftToLabel()

    def _is_busy(self, who: int, among: IntArray | None, now: float) -> bool:
        """Return True if the annotator gets no item only because others are labelling the remaining ones."""
        leased = [item for item, others in self.leases.items() if max(others.values(), default=0) > now]
        codes = np.array([item for item in leased if not self._has_labelled(item, who)], np.int64)
        return bool((self._may_be_labelled(codes) & (True if among is None else np.isin(codes, among))).any())

    def update(self, codes: list[int]) -> None:
        """Update leases, posteriors and gains of items whose labels changed."""
        new, places = [], []
        for code in codes:
            self._end_leases(code)
            if (place := self.pool_place.get(code)) is None:
                new.append(code)
            elif (chances := self._current_belief(code)) is not None:
                self.belief[place] = chances
                places.append(place)
        if places:
            self.typical_gain[places] = self._gain(self.pool[places], self.belief[places], -1)
        if new and self.fitted is not None and len(self.pool_place) < 2 * POOL_SIZE:
            self._add_to_pool(new)

    def _current_belief(self, code: int) -> FloatArray | None:
        """Return the current (K,) posterior of an item, uniform without labels; None if the last fit has none."""
        chances = self.project.posterior(code)
        if chances is None or chances.size != self.belief.shape[1]:
            return None
        return chances if self.project.n_labels[code] else np.full(chances.size, 1 / chances.size)

    def _end_leases(self, code: int) -> None:
        """End the leases of annotators who have labelled the item."""
        rows, project = self.project.rows, self.project
        if code in self.leases:
            texts, who = project.names[ANNOTATOR].texts, rows.columns().annotator
            given = {texts[who[row]] for row in rows.rows_of_item(code)}
            for annotator in given & self.leases[code].keys():
                del self.leases[code][annotator]
                self.leases_by_annotator[annotator].pop(code, None)
            if not self.leases[code]:
                del self.leases[code]

    def _add_to_pool(self, codes: list[int]) -> None:
        """Add items to the pool."""
        found = [chances for code in codes if (chances := self._current_belief(code)) is not None]
        if len(found) < len(codes):
            return
        self.pool_place |= {code: self.pool.size + at for at, code in enumerate(codes)}
        self.pool = np.concatenate([self.pool, codes])
        self.belief = np.concatenate([self.belief, np.array(found)])
        self.typical_gain = np.concatenate([self.typical_gain, self._gain(np.array(codes), np.array(found), -1)])

    def _leased_items(self, annotator: str, who: int, now: float) -> list[int]:
        """Return the items that the annotator was asked about and has not labelled yet."""
        leased = self.leases_by_annotator.get(annotator, {})
        for item in [item for item, until in leased.items() if until < now or self._has_labelled(item, who)]:
            del leased[item]
            others = self.leases.get(item, {})
            others.pop(annotator, None)
            if not others:
                self.leases.pop(item, None)
        open_ = self._may_be_labelled(np.array(list(leased), np.int64))
        return [item for item, good in zip(leased, open_.tolist(), strict=True) if good]

    def _has_labelled(self, item: int, who: int) -> bool:
        return who >= 0 and self.project.rows.has_label(item, who)

    def _may_be_labelled(self, codes: IntArray) -> BoolArray:
        """Return the (n,) mask of items that may get one more label."""
        project = self.project
        labels = project.n_labels[codes]
        open_ = ((project.confidence[codes] < CERTAIN_CONFIDENCE) | (labels < CERTAIN_LABELS)) & (
            labels < self.max_labels()
        )
        if project.decisions:
            open_ &= ~np.isin(codes, list(project.decisions))
        return np.asarray(open_)

    def max_labels(self) -> int:
        """Return the maximum number of labels of an item: `per_item`, or a few more than the median item has."""
        if (declared := self.project.about.get("per_item")) is not None:
            return int(declared)
        if self.fitted is None:
            counts = self.project.n_labels
            return (int(np.ceil(np.median(counts[counts > 0]))) if counts.any() else 0) + MAX_LABELS_ABOVE_MEDIAN
        return self.median + MAX_LABELS_ABOVE_MEDIAN

    def _choose_best(
        self, who: int, count: int, without: set[int], among: IntArray | None, least: float
    ) -> tuple[list[int], bool]:
        """Return the best items for an annotator, and True if there are none because others have priority."""
        self._refresh_pool()
        found, waits = self._choose_among(self.pool, self.belief, who, count, without, among, least)
        if (
            len(found) < count and self.has_more and not waits
        ):  # The annotator has labelled the pool, so all items are considered.
            candidates = np.setdiff1d(self._candidate_items(), self.pool)
            columns = self.project.rows.columns()
            candidates = np.setdiff1d(candidates, columns.item[columns.annotator == who])
            belief, rest = self._current_beliefs(candidates), count - len(found)
            others, waits = self._choose_among(candidates, belief, who, rest, without | set(found), among, least)
            found += others
        return found, waits

    def _choose_among(
        self, codes: IntArray, belief: FloatArray, who: int, count: int, without: set[int], among: Any, least: float
    ) -> tuple[list[int], bool]:
        """Choose among `codes` as `_choose_best` does; items that others were asked about come last."""
        if not codes.size:
            return [], False
        n_asked, now = np.zeros(codes.size, np.int64), time.monotonic()
        for item, others in self.leases.items():
            if (place := self.pool_place.get(item, -1)) >= 0 and codes is self.pool:
                n_asked[place] = sum(until > now for until in others.values())
        room = self._may_be_labelled(codes) & (self.project.n_labels[codes] + n_asked < self.max_labels())
        ordinary = self.typical_gain if codes is self.pool else self._gain(codes, belief, -1)
        free = np.flatnonzero(room & (n_asked == 0))
        best = self._best_unlabelled(codes[free], ordinary[free], who, 1, set())
        level = least * ordinary[codes == best[0]][0] * (1 - ROUNDING) if best else 0.0
        if among is not None:
            room &= np.isin(codes, among)
        gain = np.where(room, self._gain(codes, belief, who), -np.inf)
        chosen: list[int] = []
        for some in (n_asked == 0, n_asked > 0):
            places = np.flatnonzero(some & (gain >= max(level, MIN_GAIN)))
            chosen += self._best_unlabelled(codes[places], gain[places], who, count - len(chosen), without)
            if len(chosen) == count:
                return chosen, False
        places = np.flatnonzero(gain >= MIN_GAIN)
        return chosen, not chosen and bool(self._best_unlabelled(codes[places], gain[places], who, 1, without))

    def _best_unlabelled(self, codes: IntArray, gain: FloatArray, who: int, count: int, without: set[int]) -> list[int]:
        """Return up to `count` items with the largest gain that the annotator has not labelled."""
        chosen: list[int] = []
        size = min(4 * count + 16, codes.size)
        while len(chosen) < count and codes.size:
            first = np.argpartition(-gain, size - 1)[:size] if size < codes.size else np.arange(codes.size)
            first = first[np.lexsort((codes[first], -gain[first]))]
            for item in codes[first].tolist():
                if len(chosen) < count and item not in without and not self._has_labelled(item, who):
                    chosen.append(item)
            if size == codes.size:
                break
            keep = np.ones(codes.size, np.bool_)
            keep[first] = False
            codes, gain, size = codes[keep], gain[keep], min(8 * size, int(keep.sum()))
        return chosen

    def _gain(self, codes: IntArray, belief: FloatArray, who: int) -> FloatArray:
        """Return the (n,) gain w of one more label of each item by an annotator."""
        fitted, labels = self.fitted, self.project.n_labels[codes]
        if fitted is None or belief.shape[1] < 2:
            return np.asarray(
                (1 - np.minimum(self.project.confidence[codes], CERTAIN_CONFIDENCE)) / np.sqrt(1.0 + labels)
            )
        theta = self._theta(fitted, who)
        # H(y): a matrix product is faster than a sum over few columns.
        label = entr(belief @ theta.T) @ np.ones(len(theta))
        mutual = label - belief @ entr(theta).sum(axis=0)
        return np.asarray(mutual / np.sqrt(1 + labels * fitted.model.dependence_))

    def _theta(self, fitted: FittedProject, who: int) -> FloatArray:
        """Return the (K, K) Θ [given, true] of an annotator, shrunk to that of the crowd; −1 is an unseen annotator."""
        place = int(fitted.annotator_rank[who]) if 0 <= who < fitted.annotator_rank.size else -1
        if place not in self.thetas:
            own, crowd = put_given_label_first(fitted.model.annotator_confusions(np.array([place, -1])))
            self.thetas[place] = crowd + (own - crowd) * self._own_weight(fitted.table, place)
        return self.thetas[place]

    @staticmethod
    def _own_weight(table: Annotations, place: int) -> float:
        """Return the weight n / (n + `CROWD_PSEUDO_LABELS`) of the annotator's own Θ, for n labels on shared items."""
        if place < 0:
            return 0.0
        item = table.item[table.by_annotator[table.annotator_ptr[place] : table.annotator_ptr[place + 1]]]
        n = np.count_nonzero(table.item_ptr[item + 1] - table.item_ptr[item] > 1)
        return n / (n + CROWD_PSEUDO_LABELS)

    def _candidate_items(self) -> IntArray:
        project = self.project
        known = project.n_labels > 0
        known[list(project.field_events)] = True
        codes = np.flatnonzero(known)
        return codes[self._may_be_labelled(codes)]

    def _current_beliefs(self, codes: IntArray) -> FloatArray:
        """Return the current (n, K) posterior of items."""
        project, fitted = self.project, self.fitted
        if fitted is None or fitted.table.kind not in CLASS_KINDS:
            return np.ones((codes.size, 1))
        place = np.append(fitted.item_rank, -1)[np.minimum(codes, fitted.item_rank.size)]
        place = np.where(project.n_labels[codes] > 0, place, -1)
        K = fitted.model.classes_.size
        belief = np.where((place >= 0)[:, None], np.asarray(fitted.model.posterior_)[place], 1 / K)
        for at in np.flatnonzero(np.isin(codes, list(project.new_posteriors))).tolist():
            belief[at] = project.new_posteriors[int(codes[at])]
        return belief

    def _refresh_pool(self) -> None:
        """Choose the pool again if there was a fit, or if leases use up most of it."""
        project = self.project
        used = len(self.leases) > self.pool.size // 2 and self.has_more
        if project.fitted is self.fitted and self.pool.size and not used:
            return
        now = time.monotonic()
        for item in [item for item, others in self.leases.items() if max(others.values(), default=0) < now]:
            del self.leases[item]
        self.fitted, self.thetas = project.fitted, {}
        counts = project.n_labels[project.n_labels > 0]
        self.median = int(np.ceil(np.median(counts))) if counts.size else 0
        codes = self._candidate_items()
        belief = self._current_beliefs(codes)
        size = min(POOL_SIZE, max(1, MAX_POOL_CELLS // belief.shape[1] ** 2))
        self.has_more = codes.size > size
        if self.has_more:
            size += len(self.leases)
        if self.has_more and size < codes.size:
            best = np.argpartition(-self._gain(codes, belief, -1), size)[:size]
            codes, belief = codes[best], belief[best]
        self.pool, self.belief = codes, np.ascontiguousarray(belief)
        self.typical_gain = self._gain(self.pool, self.belief, -1)
        self.pool_place = {code: at for at, code in enumerate(codes.tolist())}
