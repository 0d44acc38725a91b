"""A project: the table that its log says, and the answers to it, now.

Answers come from a fit to the whole table, `Fitted`, by the method that `dissensus aggregate` takes. What came since is
answered at once: an item that changed is scored from all its rows by what the fit knows of the annotators, whatever was
added, corrected or removed; somebody new is like the population. A fit in the background follows (`due`), and `refit`
waits for one: then every answer is what `aggregate` says of `table()`. Labels that are no classes wait for the fit.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dissensus.common.types import FloatArray, IntArray, Names
from dissensus.exceptions import BadParameter, DataError, UnknownName
from dissensus.models.base import Aggregator, default_method, methods
from dissensus.questions.item_status import (
    MIN_LABELS,
    STATUSES,
    ItemStatus,
    item_status,
    status_of,
    status_of_documents,
    usual_share,
)
from dissensus.report.pseudonyms import pseudonyms
from dissensus.serve import overview
from dissensus.serve.events import FAMILY, KINDS, Event, Stored, label_json, winner
from dissensus.serve.next_item import Assigner
from dissensus.serve.rows import Columns, NameList, Rows, content, fold
from dissensus.table import kinds
from dissensus.table.annotations import Annotations
from dissensus.table.find_columns import listed
from dissensus.table.io.build import in_guessed_kind
from dissensus.table.kinds import CLASS_KINDS
from dissensus.table.names import match, shown

if TYPE_CHECKING:
    from dissensus.serve.store import Store

ITEM, ANNOTATOR, LABEL = range(3)  # what a name is of, in the store
UNLABELLED = -1  # status of an item without a label; others are codes into STATUSES
QUICK_FIT_SECONDS = 0.2  # of a fit that is done again at once
MAX_ROWS_AT_ONCE = 20_000  # of the first table that a request waits for
REST = 4  # times as long as a fit took, before the next one
CHANGED_SHARE = 0.01  # of the rows, that makes a fit due
MAX_AGE_SECONDS = 30.0  # of a fit, where anything changed
NEW_CLASS = "a label of a new class; the next fit will tell how sure it is"
ORDERS = ("confidence", "name", "changed")
SETTINGS = ("kind", "classes", "title", "per_item", "per_annotator")


@dataclass(eq=False)
class Fitted:
    """A model of the whole table as it was at `seq`."""

    model: Aggregator
    table: Annotations
    seq: int
    seconds: float
    rank: IntArray  # project's code of an item → its place in the table; −1 where it had no label
    who: IntArray  # the same of annotators
    class_of: IntArray  # the same of labels, in the classes
    share: FloatArray  # (A + 1,) `usual_share`, the last for somebody new
    top: IntArray  # (I,) class
    sure: FloatArray  # (I,)
    status: ItemStatus | None = None  # of labels that are classes
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)  # of labels that are no classes

    def items_status(self) -> ItemStatus:
        """Status of the items of the table; of spans, of its places."""
        if self.status is not None:
            return self.status
        if self.table.kind not in CLASS_KINDS:
            return status_of(self.model, self.table)
        sure = np.asarray(self.model.posterior_).max(axis=1, initial=0)
        return item_status(self.table, self.top, sure, share=self.share[:-1])


class Project:
    """The state of one project; every method may be called from any thread."""

    def __init__(self, store: Store, number: int, name: str, about: dict[str, Any], clock: Any = time.time):
        self.store, self.number, self.name, self.about, self.clock = store, number, name, about, clock
        self.lock = threading.RLock()
        self._fitting = threading.Lock()
        self.fitted: Fitted | None = None
        self._kept: dict[str, overview.Kept] = {}
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

    # The state --------------------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Read everything from the store."""
        with self.lock:
            store, number = self.store, self.number
            self.fitted, self.assigner = None, Assigner(self)
            self.seq = store.last()  # what is read beyond is applied once more, which changes nothing
            self.rows = Rows(fold(store.rows(number), store.corrected(number)))
            others = store.others(number)
            self.names = [NameList(store.names(number, what, 0)) for what in range(3)]
            self.decisions: dict[int, Stored] = {}
            self.shown_at: dict[int, int] = {}  # item → seq of what to show
            n_items, n_annotators = len(self.names[ITEM]), len(self.names[ANNOTATOR])
            now = self.rows.columns().counting()
            self.n_labels = np.bincount(now.item, minlength=n_items)
            self.n_given = np.bincount(now.annotator, minlength=n_annotators)
            self.last_at = np.zeros(n_annotators)
            np.maximum.at(self.last_at, now.annotator, now.at)
            self.changed_at = np.zeros(n_items)
            np.maximum.at(self.changed_at, now.item, now.at)
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
            self._answer(range(n_items))

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
                    self.last_at[annotator] = max(self.last_at[annotator], event.at)
                    self.changed_at[item] = max(self.changed_at[item], event.at)
                    touched.add(item)
                self.n_changed += 1
            self.touched |= touched
            self._answer(sorted(touched))
            self.assigner.changed(sorted(touched))

    def _grow(self) -> None:
        """Make room for new names."""
        more = len(self.names[ITEM]) - self.n_labels.size
        if more > 0:
            fills = {"n_labels": 0, "changed_at": 0.0, "top": -1, "sure": 0.0, "status": UNLABELLED}
            for key, fill in fills.items():
                values = getattr(self, key)
                setattr(self, key, np.concatenate([values, np.full(more, fill, values.dtype)]))
        more = len(self.names[ANNOTATOR]) - self.n_given.size
        if more > 0:
            self.n_given = np.concatenate([self.n_given, np.zeros(more, self.n_given.dtype)])
            self.last_at = np.concatenate([self.last_at, np.zeros(more)])

    def _other(self, event: Stored) -> None:
        kind = KINDS[event.kind]
        if kind == "item":
            self.shown_at[event.item] = event.seq
        elif kind == "withdrawal":
            if event.item in self.decisions and self.decisions[event.item].id == event.id:  # not somebody else's
                del self.decisions[event.item]
        else:
            self.decisions[event.item] = event
        if kind != "item":
            self.n_changed += 1  # gold of the next fit

    def check(self, events: Sequence[Event], kind: str | None = None) -> list[Event]:
        """The events as a project of this kind takes them; a label that it cannot hold raises."""
        kind, classes = kind or self.about.get("kind"), self.about.get("classes")
        scalar = kind is None and bool(len(self.names[LABEL]))
        return [self._checked(event, kind, classes, scalar) for event in events]

    def _checked(self, event: Event, kind: str | None, classes: list[str] | None, scalar: bool) -> Event:
        if event.label is None:
            return event
        label, said = event.label, f"project {self.name!r}: the label {shown(event.label)}"
        if kind == "spans" and label == kinds.NOTHING:  # an empty list: nothing is marked
            return replace(event, label="[]", of_kind="spans")
        if event.of_kind is not None and (scalar or (kind is not None and event.of_kind != kind)):
            has = kinds.KINDS[kind or self.kind]
            raise DataError(f"{said} is one of {kinds.KINDS[event.of_kind]}, and this project has {has}; make another.")
        if classes is not None and kind in (None, *CLASS_KINDS) and label not in classes:
            raise DataError(f"{said} is none of the {len(classes)} classes declared; declare it in a new project.")
        if kind == "numbers" and kinds.numbers_of(np.array([label], object)) is None:
            raise DataError(f"{said} is no number.")
        if "pairs" in (kind, event.of_kind) and (label not in kinds.OUTCOMES or kinds.VERSUS not in event.item):
            raise DataError(
                f"{said} of {shown(event.item)} is no comparison; an item is 'A vs B', a label left, right, tie."
            )
        if kind == "spans" and event.of_kind is None:
            raise DataError(f"{said} is no list of spans; give [{{start, end, label}}, …].")
        return event

    def check_spans(self, events: Sequence[Event]) -> None:
        """Raise where a span ends beyond the text that was posted of its item."""
        marked = [one for one in events if one.of_kind == "spans" and one.item in self.names[ITEM].codes]
        with self.lock:
            texts = self.shown({self.names[ITEM].codes[one.item] for one in marked})
        for one in marked:
            text = texts.get(self.names[ITEM].codes[one.item], {}).get("text")
            last = max((span["end"] for span in json.loads(one.label or "[]")), default=0)
            if isinstance(text, str) and last > len(text):
                said = f"a span of item {shown(one.item)} ends at {last:,}, and its text has {len(text):,} characters."
                raise DataError(f"project {self.name!r}: {said}")

    def check_decision(self, event: Event) -> None:
        """Raise where an adjudicator's item is not known, or the label is none that the item could have."""
        with self.lock:
            self.code(event.item)
            self.check_spans([event])
            given, kind = self.names[LABEL], self.kind
            said = [one for one in (event.label, *(event.data or {}).get("both", ())) if one is not None]
            if event.of_kind is not None or not len(given):
                return
            for label in said:
                if kind == "numbers" and kinds.numbers_of(np.array([label], object)) is None:
                    raise DataError(f"the label {shown(label)} is no number, and the labels of {self.name!r} are.")
                classes = self.about.get("classes") or given.texts
                if kind in CLASS_KINDS and label not in classes:
                    raise DataError(f"nobody gave the label {shown(label)}; the classes are {listed(sorted(classes))}.")

    # Fits -------------------------------------------------------------------------------------------------------------

    def table(self, until: float | None = None) -> Annotations:
        """The rows that count now, or did at a time: what `aggregate` would read."""
        with self.lock:
            decisions = dict(self.decisions)
        return self._made(self._counting(until), decisions)[0]

    def _counting(self, until: float | None = None) -> Columns:
        if until is None:
            with self.lock:
                return self.rows.columns().counting()  # copies
        late = self.store.corrected(self.number)
        return fold(self.store.rows(self.number, until), [one for one in late if one.at <= until]).counting()

    def _made(self, now: Columns, decisions: dict[int, Stored]) -> tuple[Annotations, IntArray, IntArray, IntArray]:
        """The table of some rows, and the places in it of the project's items, annotators and labels."""
        found = []
        for names, codes in zip(self.names, (now.item, now.annotator, now.label), strict=True):
            found.append(names.ordered(np.flatnonzero(np.bincount(codes, minlength=len(names)))))
        (items, _, rank), (annotators, _, who), (labels, _, class_of) = found
        kind, declared = self.about.get("kind"), self.about.get("classes")
        if kind == "spans":
            return self._spans(now), rank, who, class_of
        item, annotator = rank[now.item], who[now.annotator]
        wanted = [self.label_text(one) for one in decisions.values() if one.label >= 0]
        if declared is not None:
            more = declared
        else:
            more = sorted({*labels.tolist(), *wanted}) if kind in (None, *CLASS_KINDS, "sets") else labels.tolist()
        classes = np.array(more, object)
        place = {name: at for at, name in enumerate(more)}
        at = np.array([place[name] for name in labels.tolist()], np.int64)
        class_of = np.where(class_of >= 0, np.append(at, -1)[class_of], -1)
        table = Annotations.from_codes(item, annotator, class_of[now.label], items, annotators, classes)
        if kind is None:
            kind = "classes" if declared is not None else in_guessed_kind(table)[0].kind
        if kind != "classes":
            _, moved = kinds.vocabulary(kind, classes, declared is not None)
            class_of = np.where(class_of >= 0, np.append(moved, -1)[class_of], -1)
            table = table.as_kind(kind, ordered=declared is not None)
        return table, rank, who, class_of

    def _spans(self, now: Columns) -> Annotations:
        """The table of spans: tags of the places of documents, cut into words where their texts are known."""
        names, spans, readings = self.names, [], []
        for item, annotator, label in zip(now.item.tolist(), now.annotator.tolist(), now.label.tolist(), strict=True):
            document, reader = names[ITEM].texts[item], names[ANNOTATOR].texts[annotator]
            readings.append((document, reader))
            marked = json.loads(names[LABEL].texts[label])
            spans += [(document, reader, one["start"], one["end"], one["label"]) for one in marked]
        shown_ = {names[ITEM].texts[item]: data for item, data in self.shown(set(now.item.tolist())).items()}
        texts = {name: data["text"] for name, data in shown_.items() if isinstance(data.get("text"), str)}
        columns = zip(*spans, strict=True) if spans else ((),) * 5
        return Annotations.from_spans(*columns, readings=readings, texts=texts or None)

    def due(self, now: float) -> bool:
        """True where a fit pays: something changed, and enough of it, or long ago, or a fit takes no time."""
        if not self.n_changed or not self.rows.size:
            return False
        fitted, age = self.fitted, now - self.fitted_at
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
        """Fit to all rows that count now; answers are then those of `aggregate`."""
        with self._fitting:
            with self.lock:
                if not self.n_changed:
                    return
                now, seq, decisions = self._counting(), self.seq, dict(self.decisions)
                self.touched, changed, self.n_changed = set(), self.n_changed, 0
                self.rows.index()
            try:
                fitted = self._fit(now, seq, decisions) if now.item.size else None
            except BaseException:
                with self.lock:
                    self.n_changed += changed
                raise
            self._swap(fitted)

    def _fit(self, now: Columns, seq: int, decisions: dict[int, Stored]) -> Fitted:
        began = time.perf_counter()
        table, rank, who, class_of = self._made(now, decisions)
        model = methods[default_method(table.kind)]()
        model.fit(table, gold=self._gold(table, decisions))
        none = np.empty(0, np.int64)
        found = Fitted(model, table, seq, 0.0, rank, who, class_of, np.ones(1), none, np.empty(0))
        if table.kind in CLASS_KINDS:
            found.top, found.sure = _answered(model, table.items, np.asarray(model.posterior_))
            share = usual_share(table, found.top)
            right = (table.label == found.top[table.item]).mean() if len(table) else 1.0
            found.share = np.append(share, right)
            found.status = found.items_status()
        else:
            found.answers = self._other_answers(found)
        found.seconds = time.perf_counter() - began
        return found

    def _gold(self, table: Annotations, decisions: dict[int, Stored]) -> Any:
        """(I,) what adjudicators said, as the method takes it."""
        said = {self.names[ITEM].texts[item]: self.label_text(one) for item, one in decisions.items() if one.label >= 0}
        if not said or table.kind not in (*CLASS_KINDS, "numbers", "sets"):
            return None
        columns = np.array(list(said), object), np.array(list(said.values()), object)
        if table.kind == "numbers":
            return table.gold_values(columns[0], np.array([float(one) for one in said.values()]))
        return table.gold_codes(*columns)

    def _other_answers(self, fitted: Fitted) -> dict[str, dict[str, Any]]:
        """Item → its row of the frame that `aggregate` writes, status and reason; of spans, document → spans."""
        model, table = fitted.model, fitted.table
        if table.kind == "spans":
            documents, said = status_of_documents(model, table)
            rows = [{"label": [], "confidence": sure} for sure in said.sure.tolist()]
            found: dict[str, dict[str, Any]] = dict(zip(documents.tolist(), rows, strict=True))
            for row in model.spans("pyarrow").to_pylist():  # type: ignore[attr-defined]
                found[row.pop("document")]["label"].append(row)
        else:
            said = fitted.items_status()
            rows = model.to_frame("items", "pyarrow").to_pylist()
            found = {str(row.pop("item")): {"label": row.pop("value", None), "confidence": None} | row for row in rows}
        told = zip(said.sure.tolist(), said.columns()["status"].to_pylist(), said.reason.to_pylist(), strict=True)
        for one, (sure, status, reason) in zip(found.values(), told, strict=True):
            one |= {"sure": sure, "status": status, "reason": reason}
        return found

    def _swap(self, fitted: Fitted | None) -> None:
        """Take a new fit; what changed while it was made is scored again."""
        with self.lock:
            self.fitted, self.fitted_at, self.new_class = fitted, time.monotonic(), False
            self.fresh, self.why, self.voted = {}, {}, {}
            self.top[:], self.sure[:], self.status[:] = -1, 0.0, UNLABELLED
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
                checked = "status" in answer and self.n_labels[code] >= MIN_LABELS  # others may have gone since
                self.sure[code] = answer.get("sure", 0.0)
                status = STATUSES.index(answer["status"] if checked else "needs a look")
                self.status[code] = status if self.n_labels[code] else UNLABELLED
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
        top, sure = _answered(fitted.model, table.items, posterior)
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
            return self._described([code])[0] | {"data": self.shown([code]).get(code)}

    def items(
        self, status: str | None = None, order: str = "confidence", offset: int = 0, limit: int = 100
    ) -> dict[str, Any]:
        """Some items with a status, the least sure first (or by name, or the last changed first), and how many."""
        if order not in ORDERS:
            raise BadParameter(f"order must be {', '.join(ORDERS)}, got {shown(order)}.")
        with self.lock:
            masks = self._masks()
            if status is not None and status not in masks:
                raise BadParameter(f"status must be {', '.join(masks)}, got {shown(status)}.")
            chosen = np.flatnonzero(masks[status or "all"])
            if order == "confidence":
                key = np.lexsort((chosen, self.sure[chosen]))
            elif order == "changed":
                key = np.lexsort((chosen, -self.changed_at[chosen]))
            else:
                texts = self.names[ITEM].texts
                key = np.array(sorted(range(chosen.size), key=lambda at: texts[chosen[at]]), np.int64)
            some = chosen[key][offset : offset + limit].tolist()
            data = self.shown(some)
            found = [one | {"data": data.get(code)} for code, one in zip(some, self._described(some), strict=True)]
            counts = {name: int(mask.sum()) for name, mask in masks.items()}
            return {"items": found, "total": int(chosen.size), "counts": counts, **self._as_of()}

    def _masks(self) -> dict[str, Any]:
        """(I,) which items have each status. `queue`: those that an adjudicator should look at."""
        decided = np.zeros(self.status.size, np.bool_)
        decided[list(self.decisions)] = True
        there = (self.n_labels > 0) | decided
        there[list(self.shown_at)] = True
        masks = {"all": there}
        masks |= {name: (self.status == at) & ~decided for at, name in enumerate(STATUSES)}
        masks["unlabelled"] = there & (self.n_labels == 0) & ~decided
        masks["decided"] = decided
        masks["unsettled"] = there & ~decided & (self.status != 0)
        masks["queue"] = masks["unsettled"] & (self.n_labels > 1)
        return masks

    def _as_of(self) -> dict[str, int]:
        return {"as_of": self.seq, "fitted_to": self.fitted.seq if self.fitted else 0}

    def _described(self, codes: Sequence[int]) -> list[dict[str, Any]]:
        """What is said of items."""
        fitted, found = self.fitted, []
        classes = fitted is not None and fitted.table.kind in CLASS_KINDS
        columns, names = self.rows.columns(), self.names
        for code in codes:
            name = names[ITEM].texts[code]
            rows = [
                {
                    "annotator": names[ANNOTATOR].texts[columns.annotator[row]],
                    "label": label_json(names[LABEL].texts[columns.label[row]], self.kind),
                    "at": float(columns.at[row]),
                }
                for row in self.rows.of_item(code)
            ]
            one: dict[str, Any] = {"item": name, "label": None, "confidence": None, "probabilities": None}
            one["reason"] = ""
            if code in self.voted:
                one["label"] = self.voted[code]
            elif classes and self.top[code] >= 0 and fitted is not None:
                chances = self.posterior(code)
                assert chances is not None
                one["label"], one["confidence"] = str(fitted.model.classes_[self.top[code]]), float(self.sure[code])
                one["probabilities"] = dict(zip(map(str, fitted.model.classes_), chances.tolist(), strict=True))
            elif fitted is not None and name in fitted.answers:
                one |= {key: value for key, value in fitted.answers[name].items() if key != "sure"}
                if self.kind == "sets":
                    one["label"] = label_json(one["label"], "sets")
            one["votes"] = self._votes(code)
            one["labels"], one["annotations"] = len(rows), rows
            one["status"] = STATUSES[self.status[code]] if rows else "unlabelled"
            if not rows:
                one["reason"] = "no label"
            elif code in self.voted:
                one["reason"] = NEW_CLASS
            elif classes:
                one["reason"] = self._reason(code)
            one["decided"], one["decision"] = False, None
            if (decision := self.decisions.get(code)) is not None:
                one |= self._decided(decision)
            found.append(one | self._as_of())
        return found

    def _reason(self, code: int) -> str:
        """Why an item has its status, where labels are classes."""
        if code in self.why:
            status, at = self.why[code]
            return status.reason_of(at)
        fitted = self.fitted
        if fitted is None or fitted.status is None:
            return ""
        return fitted.status.reason_of(int(fitted.rank[code]))

    def _decided(self, event: Stored) -> dict[str, Any]:
        decision = self.decision(event)
        found: dict[str, Any] = {"decided": True, "decision": decision, "status": "decided"}
        found["reason"] = f"decided by {decision['by']}"
        if event.label >= 0:
            found |= {"label": decision["label"], "confidence": 1.0}
        return found

    def decision(self, event: Stored) -> dict[str, Any]:
        """An adjudicator's word as it was posted."""
        data = json.loads(event.data) if event.data else {}
        label = label_json(self.label_text(event), self.kind) if event.label >= 0 else None
        item, by = self.names[ITEM].texts[event.item], self.names[ANNOTATOR].texts[event.annotator]
        return {"item": item, "label": label, "both": None, "unclear": False, "note": None} | data | {
            "by": by, "at": event.at,
        }  # fmt: skip

    def all_decisions(self) -> list[dict[str, Any]]:
        """Every decision that stands, in the order in which they were made."""
        with self.lock:
            return [self.decision(one) for one in sorted(self.decisions.values(), key=lambda one: one.seq)]

    def removed(self, ids: Iterable[str]) -> dict[str, str | None]:
        """Id of a removal → the item that it was about; None where no annotation has this id yet."""
        found: dict[str, str | None] = dict.fromkeys(ids)
        with self.lock:
            for one in self.store.of_ids(self.number, [FAMILY["removal"] + id_ for id_ in found]):
                if one.item >= 0:
                    found[one.id[1:]] = self.names[ITEM].texts[one.item]
        return found

    def held(self) -> dict[str, tuple[str, str, bool]]:
        """Id → item, version, whether there is a label: of every annotation not removed, every decision that stands."""
        with self.lock:
            standing = list(self.decisions.values())
        found: dict[str, Stored] = {}
        for one in self.store.annotations(self.number):
            found[one.id] = winner([found[one.id], one]) if one.id in found else one
        kept = [one for one in found.values() if KINDS[one.kind] != "removal"]
        with self.lock:
            texts = self.names[ITEM].texts
            return {one.id[1:]: (texts[one.item], one.version, one.label >= 0) for one in (*kept, *standing)}

    def shown(self, codes: Iterable[int]) -> dict[int, dict[str, Any]]:
        """What there is to show of items."""
        wanted = {self.shown_at[code]: code for code in codes if code in self.shown_at}
        found = self.store.data(wanted) if wanted else {}
        return {wanted[seq]: json.loads(text) for seq, text in found.items() if text}

    def short(self, items: Iterable[str]) -> list[dict[str, Any]]:
        """The answers to some items, without what they rest on."""
        with self.lock:
            fitted, found = self.fitted, []
            classes = fitted is not None and fitted.table.kind in CLASS_KINDS
            for name in sorted(items):
                code = self.names[ITEM].codes[name]
                if classes and fitted is not None and code not in self.decisions and code not in self.voted:
                    labelled = self.top[code] >= 0
                    one = {
                        "item": name,
                        "label": str(fitted.model.classes_[self.top[code]]) if labelled else None,
                        "confidence": float(self.sure[code]) if labelled else None,
                        "labels": int(self.n_labels[code]),
                        "status": STATUSES[self.status[code]] if labelled else "unlabelled",
                    }
                else:
                    whole = self._described([code])[0]
                    one = {key: whole[key] for key in ("item", "label", "confidence", "labels", "status")}
                found.append(one)
            return found

    # The whole project ------------------------------------------------------------------------------------------------

    def next(self, annotator: str, count: int = 1, among: IntArray | None = None) -> dict[str, Any]:
        """What somebody should label now, or why to stop; `among` are the codes of all items that they can label."""
        with self.lock:
            return self.assigner.next(annotator, count, among)

    def annotators(self) -> list[dict[str, Any]]:
        """Everybody who gave a label, the most first."""
        return overview.annotators(self)

    def progress(self, days: int = 14) -> dict[str, Any]:
        """Day by day; see `overview.progress`."""
        return overview.progress(self, days)

    def export(self, form: str = "csv", what: str | None = None, called: dict[str, str] | None = None) -> bytes:
        """A file; `called` gives annotators other names."""
        return overview.export(self, form, what, called)

    def report(self, names: bool = False) -> str:
        """A page."""
        return overview.report(self, names, self.salt())

    def kept(self, key: str, find: Callable[[], Any]) -> Any:
        """What `find` finds, or found a short while ago."""
        there = self._kept.get(key)
        if there is None or not there.fresh():
            there = self._kept[key] = overview.Kept(find(), time.monotonic())
        return there.value

    def salt(self) -> str:
        """The secret of the pseudonyms, which is made once."""
        found = self.store.setting(0, "salt")
        if found is None:
            self.store.set_setting(0, "salt", secrets.token_hex(16))
            found = self.store.setting(0, "salt")
        return str(found)

    def pseudonyms(self) -> dict[str, str]:
        """Annotator → pseudonym, the same as in the report."""
        with self.lock:
            names = list(self.names[ANNOTATOR].texts)
        if len(self._called) != len(names):
            self._called = dict(zip(names, pseudonyms(names, self.salt()), strict=True))
        return self._called

    def numbers(self) -> dict[str, int]:
        """Counts for `/metrics`."""
        with self.lock:
            masks = self._masks()
            found = {"annotations": int(self.n_labels.sum()), "annotators": int((self.n_given > 0).sum())}
            found |= {f"items_{key.replace(' ', '_')}": int(mask.sum()) for key, mask in masks.items()}
            return found | {"log": self.seq, "log_fitted": self._as_of()["fitted_to"]}


def _answered(model: Aggregator, items: Names, posterior: FloatArray) -> tuple[IntArray, FloatArray]:
    """(I,) the class of each item as the method's frame says it, and its probability."""
    columns = model.item_columns(items, posterior, None)
    return match(columns["label"], model.classes_, "classes").astype(np.int64), columns["confidence"]
