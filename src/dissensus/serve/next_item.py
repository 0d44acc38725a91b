"""What somebody should label now: the item about which their label is expected to tell most.

The gain of a label is that of `questions.recommend`: I(y_ij; z_i, Θ_j), what it tells about the item and about the
annotator. It is worked out for a pool of the most doubtful items, chosen after every fit by what an ordinary annotator
would tell, with beliefs as they are now. First come items without a label, whoever asks; then those that are not
settled; then those that somebody else was just asked about (a lease, of one process); last, settled ones that are not
yet sure. Never asked for: what this person has labelled, what is sure by two labels or more or was decided, what has as
many labels as an item may have, and an item about which others would tell much more. The order and the limits
were chosen by `benchmarks/serve`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import entr

from dissensus.common.types import BoolArray, FloatArray, IntArray
from dissensus.exceptions import BadParameter
from dissensus.models.base import given_first
from dissensus.models.reliability import CROWD_LABELS
from dissensus.questions.item_status import MIN_LABELS, is_settled
from dissensus.questions.recommend import MORE_LABELS, _labels_behind, expected_entropy
from dissensus.table.kinds import CLASS_KINDS

if TYPE_CHECKING:
    from dissensus.serve.project import Fitted, Project

POOL = 2_000  # items
POOL_CELLS = 2**22  # items × K × K, at most
LEASE_SECONDS = 600.0  # for which nobody else is asked about an item
MAX_COUNT = 100  # items at once
SURE = 0.97  # P(label) from which an item gets no more labels; settled ones below come after all others
MIN_SHARE = 0.5  # of what an ordinary annotator would tell about an item, below which others are asked
MIN_GAIN = 0.002  # nats below which a label is not worth asking for


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
        self.people: dict[int, tuple[FloatArray, FloatArray]] = {}

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
        chosen = self._held(annotator, who, now)[:count]
        if len(chosen) < count:
            chosen += self._choose(who, now, count - len(chosen), set(chosen), among)
        for item in chosen:
            self.leases.setdefault(item, {})[annotator] = now + LEASE_SECONDS
            self.own.setdefault(annotator, {})[item] = now + LEASE_SECONDS
        if not chosen:
            return self._stop("no item is left that needs a label from you now: stop here, and thank you.")
        texts, data = project.names[0].texts, project.shown(chosen)
        return {
            "items": [{"item": texts[code], "data": data.get(code)} for code in chosen],
            "stop": None,
        } | project._as_of()

    def _stop(self, said: str) -> dict[str, Any]:
        return {"items": [], "stop": said[0].upper() + said[1:]} | self.project._as_of()

    def changed(self, codes: list[int]) -> None:
        """Follow items whose labels changed."""
        new, places = [], []
        for code in codes:
            self._answered(code)
            if (place := self.at.get(code)) is None:
                new.append(code)
            elif (chances := self.project.posterior(code)) is not None and chances.size == self.belief.shape[1]:
                self.belief[place] = chances
                places.append(place)
        if places:
            self.usual[places] = self._told(self.belief[places], -1)[1]
        if new and self.fitted is not None and len(self.at) < 2 * POOL:
            self._add(new)

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
        found = [self.project.posterior(code) for code in codes]
        if any(one is None or one.size != self.belief.shape[1] for one in found):
            return
        self.at |= {code: self.pool.size + at for at, code in enumerate(codes)}
        self.pool = np.concatenate([self.pool, codes])
        self.belief = np.concatenate([self.belief, np.array(found)])
        self.usual = np.concatenate([self.usual, self._told(np.array(found), -1)[1]])

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
        open_ = ((project.sure[codes] < SURE) | (labels < MIN_LABELS)) & (labels < self.most())
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

    def _choose(self, who: int, now: float, count: int, without: set[int], among: IntArray | None) -> list[int]:
        self._refresh()
        found = self._walk(self.pool, self.belief, who, now, count, without, among)
        if len(found) < count and self.more:  # this person knows the pool; look at all items
            candidates = np.setdiff1d(self._candidates(), self.pool)
            columns = self.project.rows.columns()
            candidates = np.setdiff1d(candidates, columns.item[columns.annotator == who])
            belief = self._beliefs(candidates)
            found += self._walk(candidates, belief, who, now, count - len(found), without | set(found), among)
        return found

    def _walk(
        self,
        codes: IntArray,
        belief: FloatArray,
        who: int,
        now: float,
        count: int,
        without: set[int],
        among: IntArray | None,
    ) -> list[int]:
        """The best items for somebody; those that others were asked about come last, if they may have more labels."""
        if not codes.size:
            return []
        open_ = self._open(codes)
        if among is not None:
            open_ &= np.isin(codes, among)
        gain, about = self._told(belief, who)
        usual = self.usual if codes is self.pool else self._told(belief, -1)[1]
        asked = np.zeros(codes.size, np.int64)
        for item, others in self.leases.items():
            if (place := self.at.get(item, -1)) >= 0 and codes is self.pool:
                asked[place] = sum(until > now for until in others.values())
        labels = self.project.n_labels[codes]
        new, settled = labels + asked == 0, is_settled(self.project.sure[codes], labels)
        gain = np.where(open_ & (new | (about >= MIN_SHARE * usual)), gain, -np.inf)
        room = labels + asked < self.most()
        found: list[int] = []
        for some in (new, ~new & ~settled & (asked == 0), ~settled & (asked > 0) & room, settled & (asked == 0)):
            places = np.flatnonzero(some & (gain >= MIN_GAIN))
            found += self._best(codes[places], gain[places], who, count - len(found), without)
            if len(found) == count:
                break
        return found

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

    def _told(self, belief: FloatArray, who: int) -> tuple[FloatArray, FloatArray]:
        """(n,) what a label by somebody should tell, see `questions.recommend`; (n,) I(y; z), what about the item."""
        fitted = self.fitted
        if fitted is None or belief.shape[1] < 2:
            return np.ones(len(belief)), np.ones(len(belief))
        theta, spread = self._person(fitted, who)
        label = entr(belief @ theta.T) @ np.ones(len(theta))  # H(y); a product is faster than a sum over few columns
        return label - belief @ spread, label - belief @ entr(theta).sum(axis=0)

    def _person(self, fitted: Fitted, who: int) -> tuple[FloatArray, FloatArray]:
        """What is known of somebody, see `_known`."""
        place = int(fitted.who[who]) if 0 <= who < fitted.who.size else -1
        if place not in self.people:
            self.people[place] = self._known(fitted, place)
        return self.people[place]

    @staticmethod
    def _known(fitted: Fitted, place: int) -> tuple[FloatArray, FloatArray]:
        """Θ (K, K) [given, true] of somebody, and E H (K,) of its rows."""
        model, code = fitted.model, np.array([place])
        theta = given_first(model._confusions(code))
        size = model._confusion_size() if place >= 0 else None
        if size is None:
            labels = np.full((1, theta.shape[1]), float(CROWD_LABELS))
        else:
            labels = _labels_behind(model, code, np.zeros(1, np.int64))
        return theta[0], expected_entropy(theta, labels)[0]

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
        belief = np.where((place >= 0)[:, None], np.asarray(fitted.model.posterior_)[place], fitted.model.prior_)
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
            gain = np.where(project.n_labels[codes] > 0, self._told(belief, -1)[0], np.inf)
            best = np.argpartition(-gain, size)[:size]
            codes, belief = codes[best], belief[best]
        self.pool, self.belief = codes, np.ascontiguousarray(belief)
        self.usual = self._told(self.belief, -1)[1]
        self.at = {code: at for at, code in enumerate(codes.tolist())}
