"""A project: the table of its log, and the current results for it.

Results come from a fit to the whole table (`serve.fit`). An item that changed since the fit is scored at once from all
its rows, with the error models of the fit; a new annotator gets the average error model. The next fit runs in the
background (`needs_fit`), or `refit` runs one: then all results equal those of `aggregate` on `table()`. Labels that are
not classes have no new result before the next fit.

| file | content |
|---|---|
| `project` | the state: the log, the last fit, and changes since |
| `serve.check` | which events a project accepts |
| `serve.fit` | the table of its rows, and the fit |
| `serve.describe` | results of items |
| `serve.overview` | results of the whole project |
| `serve.next_item` | which items an annotator should label next |
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
from dissensus.exceptions import StoreUnavailable
from dissensus.questions.item_status import MIN_ANNOTATORS, STATUSES, ItemStatus, item_status
from dissensus.report.pseudonyms import make_pseudonyms
from dissensus.serve import check as checks
from dissensus.serve import describe, overview
from dissensus.serve.events import EVENT_KINDS, FAMILY_LETTERS, StoredEvent, current_event
from dissensus.serve.exceptions import FitFailed, UnknownProjectOrItem
from dissensus.serve.face import HTTP_FACE
from dissensus.serve.fit import FittedProject, build_table, displayed_labels, fit_project
from dissensus.serve.next_item import Assigner
from dissensus.serve.rows import ANNOTATOR, ITEM, LABEL, AnnotationRows, NameList, RowArrays, build_rows, row_values
from dissensus.table.annotations import Annotations
from dissensus.table.kinds import CLASS_KINDS

if TYPE_CHECKING:
    from dissensus.serve.store import EventStore

UNLABELLED = -1  # status of an item without labels; all others are indices in STATUSES
UNSETTLED = STATUSES.index("needs a look")
QUICK_FIT_SECONDS = 0.2  # A fit that took less time is repeated after every change.
MAX_ROWS_FITTED_AT_ONCE = 20_000  # Requests wait for the first fit if there are fewer rows.
PAUSE_FACTOR = 4  # The pause after a fit is this many times its duration.
CHANGED_SHARE = 0.01  # share of changed rows after which the next fit is needed
MAX_AGE_SECONDS = 30.0  # age of a fit after which the next one is needed if any row changed
RETRY_SECONDS = 5.0  # pause after a failed fit
CACHE_SECONDS = 60.0  # lifetime of results that take seconds to compute
GROWING_ARRAYS: dict[str, tuple[int, float]] = {
    "n_labels": (ITEM, 0), "top": (ITEM, -1), "confidence": (ITEM, 0), "status": (ITEM, UNLABELLED),
    "n_labels_given": (ANNOTATOR, 0),
}  # fmt: skip
"""Array of the state → the names that have one entry each, and the entry of a new name."""


class Project:
    """The state of one project; every method may be called from any thread."""

    def __init__(self, store: EventStore, number: int, name: str, about: dict[str, Any], clock: Any = time.time):
        self.store, self.number, self.name, self.about, self.clock = store, number, name, about, clock
        self.lock = threading.RLock()
        self._fitting = threading.Lock()
        self.fitted: FittedProject | None = None
        self._cache: dict[str, tuple[Any, float]] = {}  # key → result and its time
        self._pseudonyms: dict[str, str] = {}
        self.load()

    @property
    def title(self) -> str:
        """The title of the project, or its name if it has no title."""
        return str(self.about.get("title") or self.name)

    @property
    def kind(self) -> str:
        """The label type: as declared, or as guessed by the last fit."""
        declared = self.about.get("kind")
        return str(declared) if declared else self.fitted.table.kind if self.fitted else "classes"

    def summary(self) -> dict[str, str]:
        """Return the name, the title, the label type and the error of the last fit, which is "" if it succeeded."""
        fit_error = self.fit_error.render(HTTP_FACE) if self.fit_error else ""
        return {"name": self.name, "title": self.title, "kind": self.kind, "fit_error": fit_error}

    def fit_state(self) -> dict[str, Any]:
        """Return the last event in the results, the last event in the fit, and the error of the last fit, if any."""
        fit_error = {"fit_error": self.fit_error.render(HTTP_FACE)} if self.fit_error else {}
        return {"as_of": self.seq, "fitted_to": self.fitted.seq if self.fitted else 0} | fit_error

    # The state --------------------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Build the state from the store."""
        with self.lock:
            store, number = self.store, self.number
            self.fitted, self.assigner = None, Assigner(self)
            self.seq = store.last_seq()  # Later events may be read and applied again, which changes nothing.
            self.rows = AnnotationRows(build_rows(store.load_rows(number), store.corrected_events(number)))
            others = store.project_events(number, annotations=False)
            self.names = [NameList(store.load_names(number, what, 0)) for what in range(3)]
            self.decisions: dict[int, StoredEvent] = {}  # item → the decision in force
            self._all_decisions: dict[int, list[StoredEvent]] = {}  # item → all decisions that were not withdrawn
            self.field_events: dict[int, int] = {}  # item → number of the event with its fields
            n_items, n_annotators = len(self.names[ITEM]), len(self.names[ANNOTATOR])
            now = self.rows.columns().select_counting()
            self.n_labels = np.bincount(now.item, minlength=n_items)
            self.n_labels_given = np.bincount(now.annotator, minlength=n_annotators)
            self.top, self.confidence = np.full(n_items, -1), np.zeros(n_items)
            self.status = np.where(self.n_labels > 0, UNSETTLED, UNLABELLED).astype(
                np.int8
            )  # The first fit computes the status.
            self.new_posteriors: dict[
                int, FloatArray
            ] = {}  # item → its posterior, for items that changed since the fit
            self.reasons: dict[
                int, tuple[ItemStatus, int]
            ] = {}  # the same items → status with the reason, and position in it
            self.voted_labels: dict[
                int, str
            ] = {}  # item → its most frequent label, for items with a class that the fit does not know
            self.changed_items: set[int] = set()  # items that changed since the table of the fit was built
            self.n_changed, self.fitted_at, self.has_new_class = now.item.size, -np.inf, False
            self.fit_error: FitFailed | None = None
            for event in others:
                self._apply_other_event(event)

    def apply(self, events: Sequence[StoredEvent]) -> None:
        """Apply new events of the log; they must be later than all events that were applied before."""
        with self.lock:
            for what in range(3):
                codes = [(event.item, event.annotator, event.label)[what] for event in events]
                if max(codes, default=-1) >= len(self.names[what]):
                    self.names[what].extend(self.store.load_names(self.number, what, len(self.names[what])))
            for key, (what, fill) in GROWING_ARRAYS.items():
                values = getattr(self, key)
                if (n_new := len(self.names[what]) - values.size) > 0:
                    setattr(self, key, np.concatenate([values, np.full(n_new, fill, values.dtype)]))
            firsts = [event.first_seq for event in events if event.first_seq != event.seq and event.kind <= 1]
            groups: dict[int, list[StoredEvent]] = {}
            for event in self.store.event_groups(firsts) if firsts else ():
                groups.setdefault(event.first_seq, []).append(event)
            touched: set[int] = set()
            for event in events:
                self.seq = event.seq
                if event.kind > 1:
                    self._apply_other_event(event)
                    touched.add(event.item)
                    continue
                counts = current_event(groups[event.first_seq]) if event.first_seq in groups else event
                for item, annotator, change in self.rows.put_row(row_values(counts)):
                    self.n_labels[item] += change
                    self.n_labels_given[annotator] += change
                    touched.add(item)
                self.n_changed += 1
            self.changed_items |= touched
            self._score_items(sorted(touched))
            self.assigner.update(sorted(touched))

    def _apply_other_event(self, event: StoredEvent) -> None:
        kind = EVENT_KINDS[event.kind]
        if kind == "item":
            self.field_events[event.item] = event.seq
            return
        made = self._all_decisions.setdefault(event.item, [])
        if kind == "decision":
            made.append(event)
        else:  # A withdrawal revokes the decision with a given number, or all decisions with its id.
            seq = json.loads(event.data)["seq"] if event.data else None
            made[:] = [one for one in made if one.id != event.id or seq not in (None, one.seq)]
        if made:
            self.decisions[event.item] = made[-1]
        else:
            self.decisions.pop(event.item, None)
        self.n_changed += 1  # A decision is a gold label of the next fit.

    check, check_spans, check_decision = checks.check_events, checks.check_spans, checks.check_decision

    # Fits -------------------------------------------------------------------------------------------------------------

    def table(self, until: float | None = None) -> Annotations:
        """Return the table of the rows that count, now or at a past time, as `aggregate` would read it."""
        with self.lock:
            decisions = dict(self.decisions)
        return build_table(self, self.current_rows(until), decisions)[0]

    def current_rows(self, until: float | None = None) -> RowArrays:
        """Return copies of the rows that count, now or at a past time."""
        if until is None:
            with self.lock:
                return self.rows.columns().select_counting()
        corrected = [event for event in self.store.corrected_events(self.number) if event.at <= until]
        return build_rows(self.store.load_rows(self.number, until), corrected).select_counting()

    def needs_fit(self, now: float) -> bool:
        """Return True if a new fit is worthwhile: much changed, the last fit is old, or a fit is quick."""
        if not self.n_changed or not self.rows.size:
            return False
        fitted, age = self.fitted, now - self.fitted_at
        if self.fit_error and age < RETRY_SECONDS:
            return False
        if fitted is None or (self.has_new_class and age >= PAUSE_FACTOR * fitted.seconds):
            return True
        if age < PAUSE_FACTOR * fitted.seconds:
            return False
        enough = self.n_changed >= CHANGED_SHARE * self.rows.size
        return bool(enough or fitted.seconds < QUICK_FIT_SECONDS or age >= MAX_AGE_SECONDS)

    def should_wait_for_fit(self) -> bool:
        """Return True if requests should wait for a fit: the first one, or a quick one that changes their results."""
        if self.fitted is None:
            return bool(0 < self.rows.size <= MAX_ROWS_FITTED_AT_ONCE)
        if self.has_new_class and self.fitted.seconds < QUICK_FIT_SECONDS:
            return True
        return self.fitted.table.kind not in CLASS_KINDS and self.fitted.seconds < QUICK_FIT_SECONDS / 4

    def refit(self) -> None:
        """Fit to all rows that count now, so that results equal those of `aggregate`."""
        with self._fitting:
            with self.lock:
                if not self.n_changed:
                    return
                now, seq, decisions = self.current_rows(), self.seq, dict(self.decisions)
                self.changed_items, changed, self.n_changed = set(), self.n_changed, 0
            try:
                self._use_fit(fit_project(self, now, seq, decisions) if now.item.size else None)
            except Exception as error:
                with self.lock:
                    self.n_changed, self.fitted_at = self.n_changed + changed, time.monotonic()
                    self.fit_error = FitFailed(reason=str(error))
                if isinstance(error, StoreUnavailable):
                    raise
                raise FitFailed(reason=str(error)).add_subject(self.name) from error

    def _use_fit(self, fitted: FittedProject | None) -> None:
        """Use a new fit, and score the items that changed during the fit again."""
        with self.lock:
            self.fitted, self.fitted_at, self.has_new_class, self.fit_error = fitted, time.monotonic(), False, None
            self.new_posteriors, self.reasons, self.voted_labels = {}, {}, {}
            self.top[:], self.confidence[:] = -1, 0.0
            self.status[:] = np.where(self.n_labels > 0, UNSETTLED, UNLABELLED)
            if fitted is None:
                return
            if fitted.status is not None:
                some = np.flatnonzero(fitted.item_rank >= 0)
                at, status = fitted.item_rank[some], fitted.status.status
                self.top[some], self.confidence[some], self.status[some] = (
                    fitted.top[at],
                    fitted.confidence[at],
                    status[at],
                )
                self._score_items(sorted(self.changed_items))
            else:
                self._score_items(range(self.status.size))

    # Answers ----------------------------------------------------------------------------------------------------------

    def _score_items(self, codes: Sequence[int]) -> None:
        """Score items that changed since the fit from all their rows."""
        fitted = self.fitted
        if fitted is None or fitted.table.kind not in CLASS_KINDS:
            for code in codes:
                answer = fitted.answers.get(self.names[ITEM].texts[code], {}) if fitted else {}
                n_annotators = len({self.rows.columns().annotator[row] for row in self.rows.rows_of_item(code)})
                checked = (
                    "status" in answer and n_annotators >= MIN_ANNOTATORS
                )  # Labels may have been removed since the fit.
                self.confidence[code] = answer.get("sure", 0.0)
                known = STATUSES.index(answer["status"]) if checked else UNSETTLED
                self.status[code] = known if self.n_labels[code] else UNLABELLED
            return
        labelled = []
        for code in codes:
            self.new_posteriors.pop(code, None)
            self.voted_labels.pop(code, None)
            if self.n_labels[code]:
                labelled.append(code)
            else:
                self.top[code], self.confidence[code], self.status[code] = -1, 0.0, UNLABELLED
        if not labelled:
            return
        table, with_new_class, share = self._select_items(labelled, fitted)
        posterior = fitted.model.predict_proba(table)
        top, confidence = displayed_labels(fitted.model, table.items, posterior)
        status = item_status(table, top, posterior.max(axis=1), agreement=share)
        for at, code in enumerate(labelled):
            self.new_posteriors[code], self.reasons[code] = posterior[at], (status, at)
            self.top[code], self.confidence[code], self.status[code] = top[at], confidence[at], status.status[at]
        for code in (
            labelled[at] for at in with_new_class
        ):  # The fit has no error model for a new class, so votes are used.
            self.voted_labels[code] = next(iter(self.votes(code)))
            self.confidence[code], self.status[code] = 0.0, UNSETTLED
        self.has_new_class = self.has_new_class or bool(with_new_class)

    def votes(self, code: int) -> dict[str, int]:
        """Return the number of votes for each label of an item, most frequent first."""
        texts, label = self.names[LABEL].texts, self.rows.columns().label
        votes = Counter(texts[label[row]] for row in self.rows.rows_of_item(code))
        return dict(sorted(votes.items(), key=lambda pair: (-pair[1], pair[0])))

    def _select_items(self, codes: Sequence[int], fitted: FittedProject) -> tuple[Annotations, list[int], FloatArray]:
        """Return the table of some items, those with a class new since the fit, and its `annotator_agreement`.

        Rows with a new class are left out, because the fit has no error model of it.
        """
        columns = self.rows.columns()
        found = [self.rows.rows_of_item(code) for code in codes]
        rows = np.array([row for some in found for row in some], np.int64)
        item = np.repeat(np.arange(len(codes)), [len(some) for some in found])
        label = np.append(fitted.class_codes, -1)[np.minimum(columns.label[rows], fitted.class_codes.size)]
        keep = label >= 0
        annotator_codes, annotator = np.unique(columns.annotator[rows][keep], return_inverse=True)
        annotators, items = (
            np.array([self.names[what].texts[code] for code in some], object)
            for what, some in ((ANNOTATOR, annotator_codes.tolist()), (ITEM, codes))
        )
        place = np.append(fitted.annotator_rank, -1)[np.minimum(annotator_codes, fitted.annotator_rank.size)]
        classes, kind = fitted.model.classes_, fitted.table.kind
        table = Annotations.from_codes(item[keep], annotator, label[keep], items, annotators, classes, kind=kind)
        return table, np.unique(item[~keep]).tolist(), fitted.agreement_share[place]

    def posterior(self, code: int) -> FloatArray | None:
        """Return the current (K,) class probabilities of an item; None without a fit or if labels are not classes."""
        fitted = self.fitted
        if fitted is None or fitted.table.kind not in CLASS_KINDS:
            return None
        if code in self.new_posteriors:
            return self.new_posteriors[code]
        place = fitted.item_rank[code] if code < fitted.item_rank.size and self.n_labels[code] else -1
        return np.asarray(fitted.model.posterior_[place] if place >= 0 else fitted.model.prior_)

    def item_code(self, item: str) -> int:
        """Return the code of an item; raise UnknownProjectOrItem if there is none."""
        if (found := self.names[ITEM].codes.get(item)) is None:
            raise UnknownProjectOrItem(noun="item", name=item)
        return found

    def label_text(self, event: StoredEvent) -> str:
        """Return the label of an event as text."""
        return self.names[LABEL].texts[event.label]

    def removed_items(self, ids: Iterable[str]) -> dict[str, str | None]:
        """Return the item of each removed id, or None if no annotation has this id yet."""
        item_by_id: dict[str, str | None] = dict.fromkeys(ids)
        with self.lock:
            for event in self.store.events_with_ids(
                self.number, [FAMILY_LETTERS["removal"] + id_ for id_ in item_by_id]
            ):
                if event.item >= 0:
                    item_by_id[event.id[1:]] = self.names[ITEM].texts[event.item]
        return item_by_id

    def stored_labels(self) -> dict[str, tuple[str, str, bool]]:
        """Return (item, version, whether it has a label) by id, for all annotations and decisions that count."""
        with self.lock:
            decided = [event for made in self._all_decisions.values() for event in made]
        current_events: dict[str, StoredEvent] = {}
        for event in self.store.project_events(self.number, annotations=True):
            current_events[event.id] = (
                current_event([current_events[event.id], event]) if event.id in current_events else event
            )
        kept = [event for event in current_events.values() if EVENT_KINDS[event.kind] != "removal"]
        with self.lock:
            texts = self.names[ITEM].texts
            return {event.id[1:]: (texts[event.item], event.version, event.label >= 0) for event in (*kept, *decided)}

    def item_fields(self, codes: Iterable[int]) -> dict[int, dict[str, Any]]:
        """Return the fields of items that annotators see, by code."""
        wanted = {self.field_events[code]: code for code in codes if code in self.field_events}
        found = self.store.event_data(wanted) if wanted else {}
        return {wanted[seq]: json.loads(text) for seq, text in found.items() if text}

    item, items, short, all_decisions = (
        describe.describe_item,
        describe.list_items,
        describe.summarize_items,
        describe.list_decisions,
    )

    def next_items(self, annotator: str, count: int = 1, among: IntArray | None = None) -> dict[str, Any]:
        """Return the items to label next, or the reason why there are none; `among` limits the choice of items."""
        with self.lock:
            chosen, stop = self.assigner.choose_items(annotator, count, among)
            texts, fields = self.names[ITEM].texts, self.item_fields(chosen)
            items = [{"item": texts[code], "data": fields.get(code)} for code in chosen]
            return {"items": items, "stop": stop and stop.render(HTTP_FACE)} | self.fit_state()

    # The whole project ------------------------------------------------------------------------------------------------

    annotators, progress = overview.list_annotators, overview.collect_progress
    export, report = overview.export_file, overview.draw_report

    def get_cached(self, key: str, find: Callable[[], Any]) -> Any:
        """Return the result of `find`, or an earlier result that is less than a minute old."""
        value, since = self._cache.get(key, (None, -np.inf))
        if time.monotonic() - since >= CACHE_SECONDS:
            value = find()
            self._cache[key] = value, time.monotonic()
        return value

    def pseudonyms(self) -> dict[str, str]:
        """Return the pseudonym of every annotator, the same as in the report."""
        with self.lock:
            names = list(self.names[ANNOTATOR].texts)
        if len(self._pseudonyms) != len(names):
            self._pseudonyms = dict(zip(names, make_pseudonyms(names, self.store.pseudonym_salt()), strict=True))
        return self._pseudonyms

    def metric_values(self) -> dict[str, int]:
        """Return the values that `/metrics` shows for the project."""
        with self.lock:
            found = {"annotations": int(self.n_labels.sum()), "annotators": int((self.n_labels_given > 0).sum())}
            masks = describe.list_masks(self)
            found |= {f"items_{key.replace(' ', '_')}": int(mask.sum()) for key, mask in masks.items()}
            found |= {"log": self.seq, "log_fitted": self.fit_state()["fitted_to"]}
            return found | {"fit_failed": int(self.fit_error is not None)}
