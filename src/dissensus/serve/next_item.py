"""What somebody should label now: the item about which their label is expected to tell most.

With q_i the belief about item i, ρ what labels of one item share and Θ what is known of the person, one more label of
an item with n labels is worth

    w = I(y; z_i) / √(1 + n ρ)        I(y; z) = H(Θ q) − Σ_k q_k H(Θ[k, ·])

nats: `questions.recommend`'s `about_item`, less where labels repeat each other. For an item without a label q is even,
whatever the shares of the classes, so that it comes before others. Θ is drawn to the crowd's by `CROWD_LABELS` beside
the person's labels on items that others labelled too: what nobody checked says nothing about anybody.

A label that tells little is better not asked for while others come who tell more: somebody whose best label is worth
less than `MIN_SHARE` of what an ordinary annotator's would be, on the item that needs one most of those this person has
not labelled, is asked to wait, `MAX_WAITS` times in a row at most. Items that somebody else was just asked about (a
lease, of one process) come last. Never asked for: a label worth less than `MIN_WORTH`, what this person has labelled,
what is sure by `SURE_LABELS` labels or was decided, and what has as many labels as an item may have. The constants were
chosen by `benchmarks/serve`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import entr

from dissensus.common.types import BoolArray, FloatArray, IntArray
from dissensus.exceptions import BadParameter
from dissensus.models.base import given_first
from dissensus.models.confidence import CROWD_LABELS
from dissensus.questions.recommend import MORE_LABELS
from dissensus.table.annotations import Annotations
from dissensus.table.kinds import CLASS_KINDS

if TYPE_CHECKING:
    from dissensus.serve.fit import Fitted
    from dissensus.serve.project import Project

POOL = 2_000  # items
POOL_CELLS = 2**22  # items × K × K, at most
LEASE_SECONDS = 600.0  # for which nobody else is asked about an item
MAX_COUNT = 100  # items at once
SURE, SURE_LABELS = 0.99, 3  # P(label), and labels, from which an item gets no more
MIN_WORTH = 0.002  # nats below which a label is not worth asking for
ROUNDING = 1e-9  # of what an ordinary annotator would tell, that somebody new may be below it
MIN_SHARE = 0.85  # of what an ordinary annotator would tell: who tells as much is always served
MAX_WAITS = 2  # requests in a row for which somebody is asked to wait: one of three is served, of everybody's


class Assigner:
    """Chooses items of one project; called with the project's lock held."""

    def __init__(self, project: Project):
        self.project = project
        self.leases: dict[int, dict[str, float]] = {}  # item → annotator → until when
        self.own: dict[str, dict[int, float]] = {}  # annotator → items asked for, until when
        self.fitted: Fitted | None = None
        self.pool: IntArray = np.empty(0, np.int64)
        self.at: dict[int, int] = {}  # item → place in the pool
        self.belief = np.empty((0, 1))
        self.usual: FloatArray = np.empty(0)  # of the pool: what an ordinary annotator would tell about each item
        self.median, self.more = 0, False
        self.waited: dict[str, int] = {}  # annotator → requests in a row that were turned away
        self.people: dict[int, FloatArray] = {}

    def next(self, annotator: str, count: int, among: IntArray | None = None) -> dict[str, Any]:
        """Items for somebody, or why there are none; `among` are all that they can label."""
        if not 1 <= count <= MAX_COUNT:
            raise BadParameter(f"count must be from 1 to {MAX_COUNT}, got {count}.")
        project, now = self.project, time.monotonic()
        who = project.names[1].codes.get(annotator, -1)
        most = project.about.get("per_annotator")
        if most is not None and who >= 0 and project.n_given[who] >= most:
            return self._stop(
                f"you have given {project.n_given[who]:,} labels, as many as one person gives here: thank you."
            )
        if most is not None:
            count = min(count, most - int(project.n_given[who] if who >= 0 else 0))
        chosen = self._held(annotator, who, now)[:count]
        waits = False
        if len(chosen) < count:
            least = MIN_SHARE if self.waited.get(annotator, 0) < MAX_WAITS else 0.0
            found, waits = self._choose(who, count - len(chosen), set(chosen), among, least)
            chosen += found
        self.waited[annotator] = self.waited.get(annotator, 0) + 1 if waits and not chosen else 0
        for item in chosen:
            self.leases.setdefault(item, {})[annotator] = now + LEASE_SECONDS
            self.own.setdefault(annotator, {})[item] = now + LEASE_SECONDS
        if not chosen:
            if waits:
                return self._stop("others are asked first about what is left: stop for now, ask later again, thanks.")
            if self._busy(who, among, now):
                return self._stop("others are labelling what is left: stop for now, ask again in some minutes, thanks.")
            return self._stop("no item is left that needs a label from you now: stop here, and thank you.")
        texts, data = project.names[0].texts, project.shown(chosen)
        return {
            "items": [{"item": texts[code], "data": data.get(code)} for code in chosen],
            "stop": None,
        } | project._as_of()

    def _busy(self, who: int, among: IntArray | None, now: float) -> bool:
        """True where an item would be asked for, were it not that others were just asked."""
        leased = [item for item, others in self.leases.items() if max(others.values(), default=0) > now]
        codes = np.array([item for item in leased if not self._labelled(item, who)], np.int64)
        return bool((self._open(codes) & (True if among is None else np.isin(codes, among))).any())

    def _stop(self, said: str) -> dict[str, Any]:
        return {"items": [], "stop": said[0].upper() + said[1:]} | self.project._as_of()

    def changed(self, codes: list[int]) -> None:
        """Follow items whose labels changed."""
        new, places = [], []
        for code in codes:
            self._answered(code)
            if (place := self.at.get(code)) is None:
                new.append(code)
            elif (chances := self._now(code)) is not None:
                self.belief[place] = chances
                places.append(place)
        if places:
            self.usual[places] = self._worth(self.pool[places], self.belief[places], -1)
        if new and self.fitted is not None and len(self.at) < 2 * POOL:
            self._add(new)

    def _now(self, code: int) -> FloatArray | None:
        """(K,) what is believed of an item now; None where the last fit cannot tell."""
        chances = self.project.posterior(code)
        if chances is None or chances.size != self.belief.shape[1]:
            return None
        return chances if self.project.n_labels[code] else np.full(chances.size, 1 / chances.size)

    def _answered(self, code: int) -> None:
        """Forget that people were asked about an item who have labelled it since."""
        rows, project = self.project.rows, self.project
        if code in self.leases:
            texts, who = project.names[1].texts, rows.columns().annotator
            given = {texts[who[row]] for row in rows.of_item(code)}
            for annotator in given & self.leases[code].keys():
                del self.leases[code][annotator]
                self.own[annotator].pop(code, None)
            if not self.leases[code]:
                del self.leases[code]

    def _add(self, codes: list[int]) -> None:
        found = [chances for code in codes if (chances := self._now(code)) is not None]
        if len(found) < len(codes):
            return
        self.at |= {code: self.pool.size + at for at, code in enumerate(codes)}
        self.pool = np.concatenate([self.pool, codes])
        self.belief = np.concatenate([self.belief, np.array(found)])
        self.usual = np.concatenate([self.usual, self._worth(np.array(codes), np.array(found), -1)])

    def _held(self, annotator: str, who: int, now: float) -> list[int]:
        """What this person was asked for already and has not answered."""
        held = self.own.get(annotator, {})
        for item in [item for item, until in held.items() if until < now or self._labelled(item, who)]:
            del held[item]
            others = self.leases.get(item, {})
            others.pop(annotator, None)
            if not others:
                self.leases.pop(item, None)
        open_ = self._open(np.array(list(held), np.int64))
        return [item for item, good in zip(held, open_.tolist(), strict=True) if good]

    def _labelled(self, item: int, who: int) -> bool:
        return who >= 0 and self.project.rows.has(item, who)

    def _open(self, codes: IntArray) -> BoolArray:
        """(n,) which items may have one more label."""
        project = self.project
        labels = project.n_labels[codes]
        open_ = ((project.sure[codes] < SURE) | (labels < SURE_LABELS)) & (labels < self.most())
        if project.decisions:
            open_ &= ~np.isin(codes, list(project.decisions))
        return np.asarray(open_)

    def most(self) -> int:
        """Labels that an item may come to: as the project says, or a few more than the median item has."""
        if (said := self.project.about.get("per_item")) is not None:
            return int(said)
        if self.fitted is None:
            counts = self.project.n_labels
            return (int(np.ceil(np.median(counts[counts > 0]))) if counts.any() else 0) + MORE_LABELS
        return self.median + MORE_LABELS

    def _choose(
        self, who: int, count: int, without: set[int], among: IntArray | None, least: float
    ) -> tuple[list[int], bool]:
        """The best items for somebody, and True where some were left for others and none found."""
        self._refresh()
        found, waits = self._walk(self.pool, self.belief, who, count, without, among, least)
        if len(found) < count and self.more and not waits:  # this person knows the pool; look at all items
            candidates = np.setdiff1d(self._candidates(), self.pool)
            columns = self.project.rows.columns()
            candidates = np.setdiff1d(candidates, columns.item[columns.annotator == who])
            belief, rest = self._beliefs(candidates), count - len(found)
            others, waits = self._walk(candidates, belief, who, rest, without | set(found), among, least)
            found += others
        return found, waits

    def _walk(
        self, codes: IntArray, belief: FloatArray, who: int, count: int, without: set[int], among: Any, least: float
    ) -> tuple[list[int], bool]:
        """As `_choose`, of some items; those that others were asked about come last, if they may have more labels."""
        if not codes.size:
            return [], False
        asked, now = np.zeros(codes.size, np.int64), time.monotonic()
        for item, others in self.leases.items():
            if (place := self.at.get(item, -1)) >= 0 and codes is self.pool:
                asked[place] = sum(until > now for until in others.values())
        room = self._open(codes) & (self.project.n_labels[codes] + asked < self.most())
        usual = self.usual if codes is self.pool else self._worth(codes, belief, -1)
        free = np.flatnonzero(room & (asked == 0))
        wanted = self._best(codes[free], usual[free], who, 1, set())
        level = least * usual[codes == wanted[0]][0] * (1 - ROUNDING) if wanted else 0.0
        if among is not None:
            room &= np.isin(codes, among)
        worth = np.where(room, self._worth(codes, belief, who), -np.inf)
        found: list[int] = []
        for some in (asked == 0, asked > 0):
            places = np.flatnonzero(some & (worth >= max(level, MIN_WORTH)))
            found += self._best(codes[places], worth[places], who, count - len(found), without)
            if len(found) == count:
                return found, False
        places = np.flatnonzero(worth >= MIN_WORTH)
        return found, not found and bool(self._best(codes[places], worth[places], who, 1, without))

    def _best(self, codes: IntArray, gain: FloatArray, who: int, count: int, without: set[int]) -> list[int]:
        """So many of the items with the largest gain that somebody has not labelled."""
        found: list[int] = []
        size = min(4 * count + 16, codes.size)
        while len(found) < count and codes.size:
            first = np.argpartition(-gain, size - 1)[:size] if size < codes.size else np.arange(codes.size)
            first = first[np.lexsort((codes[first], -gain[first]))]
            for item in codes[first].tolist():
                if len(found) < count and item not in without and not self._labelled(item, who):
                    found.append(item)
            if size == codes.size:
                break
            keep = np.ones(codes.size, np.bool_)
            keep[first] = False
            codes, gain, size = codes[keep], gain[keep], min(8 * size, int(keep.sum()))
        return found

    def _worth(self, codes: IntArray, belief: FloatArray, who: int) -> FloatArray:
        """(n,) what one more label of items by somebody is worth, w."""
        fitted, labels = self.fitted, self.project.n_labels[codes]
        if fitted is None or belief.shape[1] < 2:
            return np.asarray((1 - np.minimum(self.project.sure[codes], SURE)) / np.sqrt(1.0 + labels))
        theta = self._person(fitted, who)
        label = entr(belief @ theta.T) @ np.ones(len(theta))  # H(y); a product is faster than a sum over few columns
        told = label - belief @ entr(theta).sum(axis=0)
        return np.asarray(told / np.sqrt(1 + labels * fitted.model.dependence_))

    def _person(self, fitted: Fitted, who: int) -> FloatArray:
        """Θ (K, K) [given, true] of somebody, drawn to the crowd's as far as it is not known; −1 is somebody new."""
        place = int(fitted.who[who]) if 0 <= who < fitted.who.size else -1
        if place not in self.people:
            own, crowd = given_first(fitted.model.confusions_of(np.array([place, -1])))
            self.people[place] = crowd + (own - crowd) * self._known(fitted.table, place)
        return self.people[place]

    @staticmethod
    def _known(table: Annotations, place: int) -> float:
        """How far somebody is known: n / (n + `CROWD_LABELS`), of n labels on items that others labelled too."""
        if place < 0:
            return 0.0
        item = table.item[table.by_annotator[table.annotator_ptr[place] : table.annotator_ptr[place + 1]]]
        n = np.count_nonzero(table.item_ptr[item + 1] - table.item_ptr[item] > 1)
        return n / (n + CROWD_LABELS)

    def _candidates(self) -> IntArray:
        project = self.project
        there = project.n_labels > 0
        there[list(project.shown_at)] = True
        codes = np.flatnonzero(there)
        return codes[self._open(codes)]

    def _beliefs(self, codes: IntArray) -> FloatArray:
        """(n, K) the posterior of items, now."""
        project, fitted = self.project, self.fitted
        if fitted is None or fitted.table.kind not in CLASS_KINDS:
            return np.ones((codes.size, 1))
        place = np.append(fitted.rank, -1)[np.minimum(codes, fitted.rank.size)]
        place = np.where(project.n_labels[codes] > 0, place, -1)
        K = fitted.model.classes_.size
        belief = np.where((place >= 0)[:, None], np.asarray(fitted.model.posterior_)[place], 1 / K)
        for at in np.flatnonzero(np.isin(codes, list(project.fresh))).tolist():
            belief[at] = project.fresh[int(codes[at])]
        return belief

    def _refresh(self) -> None:
        """Choose the pool anew after a fit."""
        project = self.project
        used = len(self.leases) > self.pool.size // 2 and self.more
        if project.fitted is self.fitted and self.pool.size and not used:
            return
        now = time.monotonic()
        for item in [item for item, others in self.leases.items() if max(others.values(), default=0) < now]:
            del self.leases[item]
        self.fitted, self.people = project.fitted, {}
        counts = project.n_labels[project.n_labels > 0]
        self.median = int(np.ceil(np.median(counts))) if counts.size else 0
        codes = self._candidates()
        belief = self._beliefs(codes)
        size = min(POOL, max(1, POOL_CELLS // belief.shape[1] ** 2))
        self.more = codes.size > size
        if self.more:
            size += len(self.leases)
        if self.more and size < codes.size:
            best = np.argpartition(-self._worth(codes, belief, -1), size)[:size]
            codes, belief = codes[best], belief[best]
        self.pool, self.belief = codes, np.ascontiguousarray(belief)
        self.usual = self._worth(self.pool, self.belief, -1)
        self.at = {code: at for at, code in enumerate(codes.tolist())}
