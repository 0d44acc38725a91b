"""A project: the table that its log says, and the answers to it, now.

Answers come from a fit to the whole table (`serve.fit`). What came since is answered at once: an item that changed is
scored from all its rows by what the fit knows of the annotators, whatever was added, corrected or removed; somebody new
is like the population. A fit in the background follows (`due`), and `refit` waits for one: then every answer is what
`aggregate` says of `table()`. Labels that are no classes wait for the fit.

| file | what is there |
|---|---|
| `project` | the state: what the log says, which fit answers it, what changed since |
| `serve.check` | what a project takes |
| `serve.fit` | the table of its rows, and the fit |
| `serve.describe` | what is said of items |
| `serve.overview` | what is said of the whole project |
| `serve.next_item` | what somebody should label now |
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dissensus.common.types import FloatArray, IntArray
from dissensus.exceptions import DataError, StoreUnavailable, UnknownName
from dissensus.questions.item_status import (
    MIN_ANNOTATORS,
    STATUSES,
    ItemStatus,
    item_status,
)
from dissensus.report.pseudonyms import pseudonyms
from dissensus.serve import check as taken
from dissensus.serve import describe, overview
from dissensus.serve.events import FAMILY, KINDS, Stored, winner
from dissensus.serve.fit import Fitted, answered, fit, table_of
from dissensus.serve.next_item import Assigner
from dissensus.serve.rows import ANNOTATOR, ITEM, LABEL, Columns, NameList, Rows, content, fold
from dissensus.table.annotations import Annotations
from dissensus.table.kinds import CLASS_KINDS
from dissensus.table.names import shown

if TYPE_CHECKING:
    from dissensus.serve.store import Store

UNLABELLED = -1  # status of an item without a label; others are codes into STATUSES
QUICK_FIT_SECONDS = 0.2  # of a fit that is done again at once
MAX_ROWS_AT_ONCE = 20_000  # of the first table that a request waits for
REST = 4  # times as long as a fit took, before the next one
CHANGED_SHARE = 0.01  # of the rows, that makes a fit due
MAX_AGE_SECONDS = 30.0  # of a fit, where anything changed
RETRY_SECONDS = 5.0  # after a fit that failed, before the next in the background
KEPT_SECONDS = 60.0  # for which what takes seconds to find out is not found out again
GROWING: dict[str, tuple[int, float]] = {  # array of the state → what has one entry each, and a new one's
    "n_labels": (ITEM, 0), "top": (ITEM, -1), "sure": (ITEM, 0), "status": (ITEM, UNLABELLED),
    "n_given": (ANNOTATOR, 0),
}  # fmt: skip
SETTINGS = ("kind", "classes", "title", "per_item", "per_annotator")


class Project:
    """The state of one project; every method may be called from any thread."""

    def __init__(self, store: Store, number: int, name: str, about: dict[str, Any], clock: Any = time.time):
        self.store, self.number, self.name, self.about, self.clock = store, number, name, about, clock
        self.lock = threading.RLock()
        self._fitting = threading.Lock()
        self.fitted: Fitted | None = None
        self._kept: dict[str, tuple[Any, float]] = {}  # what was found out, and when
        self._called: dict[str, str] = {}
        self.load()

    @property
    def title(self) -> str:
        """What people call it."""
        return str(self.about.get("title") or self.name)

    @property
    def kind(self) -> str:
        """The kind of its labels: as declared, or as they look so far."""
        declared = self.about.get("kind")
        return str(declared) if declared else self.fitted.table.kind if self.fitted else "classes"

    def heading(self) -> dict[str, str]:
        """Its name, title and kind, and the trouble with the last fit, if any."""
        return {"name": self.name, "title": self.title, "kind": self.kind, "trouble": self.trouble}

    # The state --------------------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Read everything from the store."""
        with self.lock:
            store, number = self.store, self.number
            self.fitted, self.assigner = None, Assigner(self)
            self.seq = store.last()  # what is read beyond is applied once more, which changes nothing
            self.rows = Rows(fold(store.rows(number), store.corrected(number)))
            others = store.of_project(number, annotations=False)
            self.names = [NameList(store.names(number, what, 0)) for what in range(3)]
            self.decisions: dict[int, Stored] = {}  # item → the one that stands
            self.decided: dict[int, list[Stored]] = {}  # item → all that were not withdrawn
            self.shown_at: dict[int, int] = {}  # item → seq of what to show
            n_items, n_annotators = len(self.names[ITEM]), len(self.names[ANNOTATOR])
            now = self.rows.columns().counting()
            self.n_labels = np.bincount(now.item, minlength=n_items)
            self.n_given = np.bincount(now.annotator, minlength=n_annotators)
            self.top, self.sure = np.full(n_items, -1), np.zeros(n_items)
            self.status = np.full(n_items, UNLABELLED, np.int8)
            self.fresh: dict[int, FloatArray] = {}  # item → its posterior, where it changed since the fit
            self.why: dict[int, tuple[ItemStatus, int]] = {}  # item → where its reason is, the same
            self.voted: dict[int, str] = {}  # item → its most frequent label, where one is of a class new since the fit
            self.touched: set[int] = set()  # items that changed since the table of the fit was taken
            self.n_changed, self.fitted_at, self.new_class = now.item.size, -np.inf, False
            self.trouble = ""  # why the last fit failed
            for event in others:
                self._other(event)
            self.status[self.n_labels > 0] = STATUSES.index("needs a look")  # until the first fit

    def apply(self, events: Sequence[Stored]) -> None:
        """Follow the log: `events` come after all that was applied before."""
        with self.lock:
            for what in range(3):
                codes = [(event.item, event.annotator, event.label)[what] for event in events]
                if max(codes, default=-1) >= len(self.names[what]):
                    self.names[what].extend(self.store.names(self.number, what, len(self.names[what])))
            self._grow()
            firsts = [event.first for event in events if event.first != event.seq and event.kind <= 1]
            groups: dict[int, list[Stored]] = {}
            for event in self.store.groups(firsts) if firsts else ():
                groups.setdefault(event.first, []).append(event)
            touched: set[int] = set()
            for event in events:
                self.seq = event.seq
                if event.kind > 1:
                    self._other(event)
                    touched.add(event.item)
                    continue
                counts = winner(groups[event.first]) if event.first in groups else event
                for item, annotator, change in self.rows.put(content(counts)):
                    self.n_labels[item] += change
                    self.n_given[annotator] += change
                    touched.add(item)
                self.n_changed += 1
            self.touched |= touched
            self._answer(sorted(touched))
            self.assigner.changed(sorted(touched))

    def _grow(self) -> None:
        """Make room for new names."""
        for key, (what, fill) in GROWING.items():
            values = getattr(self, key)
            if (more := len(self.names[what]) - values.size) > 0:
                setattr(self, key, np.concatenate([values, np.full(more, fill, values.dtype)]))

    def _other(self, event: Stored) -> None:
        kind = KINDS[event.kind]
        if kind == "item":
            self.shown_at[event.item] = event.seq
            return
        made = self.decided.setdefault(event.item, [])
        if kind == "decision":
            made.append(event)
        else:  # of one id, not somebody else's; of those the one that is named, or all
            seq = json.loads(event.data)["seq"] if event.data else None
            made[:] = [one for one in made if one.id != event.id or seq not in (None, one.seq)]
        if made:
            self.decisions[event.item] = made[-1]
        else:
            self.decisions.pop(event.item, None)
        self.n_changed += 1  # gold of the next fit

    check, check_spans, check_decision = taken.check, taken.check_spans, taken.check_decision

    # Fits -------------------------------------------------------------------------------------------------------------

    def table(self, until: float | None = None) -> Annotations:
        """The rows that count now, or did at a time: what `aggregate` would read."""
        with self.lock:
            decisions = dict(self.decisions)
        return table_of(self, self._counting(until), decisions)[0]

    def _counting(self, until: float | None = None) -> Columns:
        if until is None:
            with self.lock:
                return self.rows.columns().counting()  # copies
        late = self.store.corrected(self.number)
        return fold(self.store.rows(self.number, until), [one for one in late if one.at <= until]).counting()

    def due(self, now: float) -> bool:
        """True where a fit pays: something changed, and enough of it, or long ago, or a fit takes no time."""
        if not self.n_changed or not self.rows.size:
            return False
        fitted, age = self.fitted, now - self.fitted_at
        if self.trouble and age < RETRY_SECONDS:
            return False
        if fitted is None or (self.new_class and age >= REST * fitted.seconds):
            return True
        if age < REST * fitted.seconds:
            return False
        enough = self.n_changed >= CHANGED_SHARE * self.rows.size
        return bool(enough or fitted.seconds < QUICK_FIT_SECONDS or age >= MAX_AGE_SECONDS)

    def fits_at_once(self) -> bool:
        """True where requests wait for a fit: before the first, of few labels that are no classes, for a new class."""
        if self.fitted is None:
            return bool(0 < self.rows.size <= MAX_ROWS_AT_ONCE)
        if self.new_class and self.fitted.seconds < QUICK_FIT_SECONDS:
            return True
        return self.fitted.table.kind not in CLASS_KINDS and self.fitted.seconds < QUICK_FIT_SECONDS / 4

    def refit(self) -> None:
        """Fit to all rows that count now; answers are then those of `aggregate`. A fit that fails is `trouble`."""
        with self._fitting:
            with self.lock:
                if not self.n_changed:
                    return
                now, seq, decisions = self._counting(), self.seq, dict(self.decisions)
                self.touched, changed, self.n_changed = set(), self.n_changed, 0
            try:
                self._swap(fit(self, now, seq, decisions) if now.item.size else None)
            except Exception as error:
                with self.lock:
                    self.n_changed, self.fitted_at = self.n_changed + changed, time.monotonic()
                    self.trouble = f"the last fit failed: {error}"
                if isinstance(error, StoreUnavailable):
                    raise
                raise DataError(f"project {self.name!r}: {self.trouble}") from error

    def _swap(self, fitted: Fitted | None) -> None:
        """Take a new fit; what changed while it was made is scored again."""
        with self.lock:
            self.fitted, self.fitted_at, self.new_class, self.trouble = fitted, time.monotonic(), False, ""
            self.fresh, self.why, self.voted = {}, {}, {}
            self.top[:], self.sure[:], self.status[:] = -1, 0.0, UNLABELLED
            self.status[self.n_labels > 0] = STATUSES.index("needs a look")
            if fitted is None:
                return
            if fitted.status is not None:
                some = np.flatnonzero(fitted.rank >= 0)
                at, status = fitted.rank[some], fitted.status.status
                self.top[some], self.sure[some], self.status[some] = fitted.top[at], fitted.sure[at], status[at]
                self._answer(sorted(self.touched))
            else:
                self._answer(range(self.status.size))

    # Answers ----------------------------------------------------------------------------------------------------------

    def _answer(self, codes: Sequence[int]) -> None:
        """Score items that changed since the fit, from all their rows."""
        fitted = self.fitted
        if fitted is None or fitted.table.kind not in CLASS_KINDS:
            for code in codes:
                answer = fitted.answers.get(self.names[ITEM].texts[code], {}) if fitted else {}
                people = {self.rows.columns().annotator[row] for row in self.rows.of_item(code)}  # some may have gone
                checked = "status" in answer and len(people) >= MIN_ANNOTATORS
                self.sure[code] = answer.get("sure", 0.0)
                doubt = STATUSES.index(answer["status"] if checked else "needs a look")
                self.status[code] = doubt if self.n_labels[code] else UNLABELLED
            return
        known = []
        for code in codes:
            self.fresh.pop(code, None)
            self.voted.pop(code, None)
            if not self.n_labels[code]:
                self.top[code], self.sure[code], self.status[code] = -1, 0.0, UNLABELLED
            else:
                known.append(code)
        if not known:
            return
        table, odd, share = self._part(known, fitted)
        posterior = fitted.model.predict_proba(table)
        top, sure = answered(fitted.model, table.items, posterior)
        status = item_status(table, top, posterior.max(axis=1), share=share)
        for at, code in enumerate(known):
            self.fresh[code], self.why[code] = posterior[at], (status, at)
            self.top[code], self.sure[code], self.status[code] = top[at], sure[at], status.status[at]
        for code in (known[at] for at in odd):  # the fit cannot weigh a class that it does not know: the votes can
            self.voted[code] = next(iter(self._votes(code)))
            self.sure[code], self.status[code] = 0.0, STATUSES.index("needs a look")
        self.new_class = self.new_class or bool(odd)

    def _votes(self, code: int) -> dict[str, int]:
        """Label → how many gave it to an item, the most first."""
        texts, label = self.names[LABEL].texts, self.rows.columns().label
        votes = Counter(texts[label[row]] for row in self.rows.of_item(code))
        return dict(sorted(votes.items(), key=lambda pair: (-pair[1], pair[0])))

    def _part(self, codes: Sequence[int], fitted: Fitted) -> tuple[Annotations, list[int], FloatArray]:
        """The table of some items, which of them have a label new since the fit, and `usual_share` of its annotators.

        Rows with a label that is new are left out: nothing is known of it yet.
        """
        columns = self.rows.columns()
        found = [self.rows.of_item(code) for code in codes]
        rows = np.array([row for some in found for row in some], np.int64)
        item = np.repeat(np.arange(len(codes)), [len(some) for some in found])
        label = np.append(fitted.class_of, -1)[np.minimum(columns.label[rows], fitted.class_of.size)]
        keep = label >= 0
        people, who = np.unique(columns.annotator[rows][keep], return_inverse=True)
        texts = self.names[ANNOTATOR].texts
        annotators = np.array([texts[code] for code in people.tolist()], object)
        items = np.array([self.names[ITEM].texts[code] for code in codes], object)
        place = np.append(fitted.who, -1)[np.minimum(people, fitted.who.size)]
        table = Annotations.from_codes(
            item[keep], who, label[keep], items, annotators, fitted.model.classes_, kind=fitted.table.kind
        )
        return table, np.unique(item[~keep]).tolist(), fitted.share[place]

    def posterior(self, code: int) -> FloatArray | None:
        """(K,) P(class) of an item now; None before the first fit, and where labels are no classes."""
        fitted = self.fitted
        if fitted is None or fitted.table.kind not in CLASS_KINDS:
            return None
        if code in self.fresh:
            return self.fresh[code]
        place = fitted.rank[code] if code < fitted.rank.size and self.n_labels[code] else -1
        return np.asarray(fitted.model.posterior_[place] if place >= 0 else fitted.model.prior_)

    def code(self, item: str) -> int:
        """The code of an item."""
        if (found := self.names[ITEM].codes.get(item)) is None:
            raise UnknownName(f"no item {shown(item)} in project {self.name!r}.")
        return found

    def label_text(self, event: Stored) -> str:
        """The label of an event."""
        return self.names[LABEL].texts[event.label]

    def item(self, name: str) -> dict[str, Any]:
        """Everything about one item."""
        with self.lock:
            code = self.code(name)
            return describe.described(self, [code])[0] | {"data": self.shown([code]).get(code)}

    items, short, all_decisions = describe.items, describe.short, describe.all_decisions

    def _as_of(self) -> dict[str, Any]:
        trouble = {"trouble": self.trouble} if self.trouble else {}
        return {"as_of": self.seq, "fitted_to": self.fitted.seq if self.fitted else 0} | trouble

    def removed(self, ids: Iterable[str]) -> dict[str, str | None]:
        """Id of a removal → the item that it was about; None where no annotation has this id yet."""
        found: dict[str, str | None] = dict.fromkeys(ids)
        with self.lock:
            for one in self.store.of_ids(self.number, [FAMILY["removal"] + id_ for id_ in found]):
                if one.item >= 0:
                    found[one.id[1:]] = self.names[ITEM].texts[one.item]
        return found

    def held(self) -> dict[str, tuple[str, str, bool]]:
        """Id → item, version, whether there is a label: of annotations not removed and decisions not withdrawn."""
        with self.lock:
            decided = [one for made in self.decided.values() for one in made]
        found: dict[str, Stored] = {}
        for one in self.store.of_project(self.number, annotations=True):
            found[one.id] = winner([found[one.id], one]) if one.id in found else one
        kept = [one for one in found.values() if KINDS[one.kind] != "removal"]
        with self.lock:
            texts = self.names[ITEM].texts
            return {one.id[1:]: (texts[one.item], one.version, one.label >= 0) for one in (*kept, *decided)}

    def shown(self, codes: Iterable[int]) -> dict[int, dict[str, Any]]:
        """What there is to show of items."""
        wanted = {self.shown_at[code]: code for code in codes if code in self.shown_at}
        found = self.store.data(wanted) if wanted else {}
        return {wanted[seq]: json.loads(text) for seq, text in found.items() if text}

    # The whole project ------------------------------------------------------------------------------------------------

    def next(self, annotator: str, count: int = 1, among: IntArray | None = None) -> dict[str, Any]:
        """What somebody should label now, or why to stop; `among` are the codes of all items that they can label."""
        with self.lock:
            return self.assigner.next(annotator, count, among)

    annotators, progress = overview.annotators, overview.progress
    export, report = overview.export, overview.report

    def kept(self, key: str, find: Callable[[], Any]) -> Any:
        """What `find` finds, or found a short while ago."""
        value, since = self._kept.get(key, (None, -np.inf))
        if time.monotonic() - since >= KEPT_SECONDS:
            value = find()
            self._kept[key] = value, time.monotonic()
        return value

    def pseudonyms(self) -> dict[str, str]:
        """Annotator → pseudonym, the same as in the report."""
        with self.lock:
            names = list(self.names[ANNOTATOR].texts)
        if len(self._called) != len(names):
            self._called = dict(zip(names, pseudonyms(names, self.store.salt()), strict=True))
        return self._called

    def numbers(self) -> dict[str, int]:
        """Counts for `/metrics`."""
        with self.lock:
            masks = describe.masks(self)
            found = {"annotations": int(self.n_labels.sum()), "annotators": int((self.n_given > 0).sum())}
            found |= {f"items_{key.replace(' ', '_')}": int(mask.sum()) for key, mask in masks.items()}
            found |= {"log": self.seq, "log_fitted": self._as_of()["fitted_to"]}
            return found | {"trouble": int(bool(self.trouble))}
