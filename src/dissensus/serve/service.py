"""The service: the single writer of a process, and the projects whose state follows the log.

Requests wait in a queue. The writer appends all waiting requests in one transaction and then acknowledges them, so that
acknowledged events are on disk. Before it writes, and whenever it is idle, it applies events that other processes have
written (`_apply_new_events`). A second thread fits projects again when needed.
"""

from __future__ import annotations

import json
import logging
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from dissensus.exceptions import DissensusError, StoreUnavailable
from dissensus.messages import ParameterName
from dissensus.serve.events import (
    EVENT_KINDS,
    FAMILY_LETTERS,
    Event,
    Receipt,
    StoredEvent,
    current_event,
    events_since_removal,
    plausible_time,
)
from dissensus.serve.exceptions import ProjectSettingsDiffer, StoreFault, UnknownProjectOrItem
from dissensus.serve.project import Project
from dissensus.serve.requests import PROJECT_ADAPTER, validate
from dissensus.serve.rows import ANNOTATOR, ITEM, LABEL
from dissensus.serve.store import EventStore
from dissensus.table.kinds import KIND_DESCRIPTIONS as LABEL_KINDS

MAX_EVENTS = 2_000  # events in one transaction, unless a single request has more
POLL_SECONDS = 0.2  # time between two readings of events of other processes
OUTCOMES = ("accepted", "duplicates", "stale")
log = logging.getLogger("dissensus")
PendingRequest = tuple[str, Sequence[Event], "Future[Receipt]"]
CheckedRequests = dict[int, tuple[Project, list[Event]]]


class Service:
    """All projects of a store; several processes may serve the same store.

    Parameters
    ----------
    store : EventStore
    clock : callable
        Function that returns the time in seconds since 1970.
    fits : bool
        Fit projects in the background.
    """

    def __init__(self, store: EventStore, *, clock: Callable[[], float] = time.time, fits: bool = True):
        self.store, self.clock = store, clock
        self._projects: dict[str, Project] = {}
        self._by_number: dict[int, Project] = {}
        self._unloaded: set[int] = set()  # numbers of projects that must be loaded again
        self._queue: queue.SimpleQueue[PendingRequest | None] = queue.SimpleQueue()
        self._closed = threading.Event()
        self.counts = dict.fromkeys((*OUTCOMES, "batches", "failures", "fits"), 0)
        self._refreshing = threading.Lock()
        self.seq = store.last_seq()
        self._refresh_projects()
        self._apply_new_events()
        for project in self._by_number.values():
            if fits and project.rows.size:
                self._fit(project)
        targets = {"writer": self._run_writer} | ({"fitter": self._run_fitter} if fits else {})
        self._threads = [
            threading.Thread(target=target, name=f"dissensus {name}", daemon=True) for name, target in targets.items()
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Answer the waiting requests, and stop."""
        if not self._closed.is_set():
            self._closed.set()
            self._queue.put(None)
            for thread in self._threads:
                thread.join()
            self.store.close()

    # Projects ---------------------------------------------------------------------------------------------------------

    def project_names(self) -> list[str]:
        """Return the names of all projects, including those made by other processes."""
        self._refresh_projects()
        return list(self._projects)

    def count_failing(self) -> int:
        """Return the number of projects whose last fit failed."""
        return sum(project.fit_error is not None for project in list(self._by_number.values()))

    def project(self, name: str) -> Project:
        """Return the project with a name; raise UnknownProjectOrItem if there is none."""
        if name not in self._projects:
            self._refresh_projects()
        if name not in self._projects:
            raise UnknownProjectOrItem(noun="project", name=name)
        return self._projects[name]

    def create_project(self, name: str, /, **settings: Any) -> Project:
        """Create a project with the settings of `ProjectBody`, or return the existing one if it has the same."""
        body = validate(PROJECT_ADAPTER, {**settings, "name": name}).model_dump(exclude={"name"}, exclude_none=True)
        with self.store.write():
            there = {known: json.loads(text) for _, known, text in self.store.list_projects()}
            if name not in there:
                number = 1 + max((number for number, *_ in self.store.list_projects()), default=0)
                self.store.run("INSERT INTO project VALUES (?, ?, ?)", (number, name, json.dumps(body)))
        for key, value in body.items():
            if name in there and there[name].get(key) != value:
                present = there[name].get(key)
                raise ProjectSettingsDiffer(project=name, setting=ParameterName(key), present=present, expected=value)
        self._refresh_projects()
        return self._projects[name]

    def _refresh_projects(self) -> None:
        with self._refreshing:
            for number, name, text in self.store.list_projects():
                if number not in self._by_number:
                    project = Project(self.store, number, name, json.loads(text), self.clock)
                    self._by_number[number] = self._projects[name] = project
                self._by_number[number].about = json.loads(text)

    # Writing ----------------------------------------------------------------------------------------------------------

    def append(self, project: str, events: Sequence[Event]) -> Receipt:
        """Store events; return once they are on disk and included in the results."""
        return self.submit(project, events).result()

    def submit(self, project: str, events: Sequence[Event]) -> Future[Receipt]:
        """Store events as `append` does, but return a future instead of waiting."""
        self.project(project)  # This raises an error if there is no such project.
        if self._closed.is_set():
            raise StoreFault(fault="stopping")
        future: Future[Receipt] = Future()
        self._queue.put((project, events, future))
        return future

    def _run_writer(self) -> None:
        """Write waiting requests in transactions of limited size; when idle, apply events of other processes."""
        stop = False
        while not stop or not self._queue.empty():
            batch: list[PendingRequest] = []
            n_events = 0
            with suppress(queue.Empty):
                pending = self._queue.get(timeout=POLL_SECONDS)
                while pending is not None:
                    batch.append(pending)
                    n_events += len(pending[1])
                    if n_events >= MAX_EVENTS:
                        break
                    pending = self._queue.get_nowait()
                else:
                    stop = True
            if batch:
                self._write_batch(batch)
            elif not stop:
                try:
                    self._apply_new_events()
                except StoreUnavailable:
                    self.counts["failures"] += 1

    def _write_batch(self, batch: list[PendingRequest]) -> None:
        try:
            rows, receipts = self._store_batch(batch)
        except Exception as error:  # The requests get the error, and the writer continues.
            if len(batch) > 1 and not isinstance(
                error, StoreUnavailable
            ):  # One request causes the error, so each is written separately.
                for pending in batch:
                    self._write_batch([pending])
                return
            self.counts["failures"] += 1
            for _, _, future in batch:
                future.set_exception(error)
            return
        self._apply_rows(rows)
        self.counts["batches"] += 1
        for (_, _, future), receipt in zip(batch, receipts, strict=True):
            if isinstance(receipt, DissensusError):
                future.set_exception(receipt)
                continue
            for key in OUTCOMES:
                self.counts[key] += getattr(receipt, key)
            future.set_result(receipt)

    def _store_batch(self, batch: list[PendingRequest]) -> tuple[list[StoredEvent], list[Receipt | DissensusError]]:
        """Append the new events of a batch in one transaction; return them and a receipt or error per request."""
        with self.store.write():
            self._apply_new_events()
            checked, receipts, kinds = self._check_batch(batch)
            known = self._stored_groups(checked)
            seq, rows = self.seq, []
            new: dict[tuple[int, int], dict[str, int]] = {}  # names that are not in the store yet
            for at, (project, events) in checked.items():
                tally = Counter(dict.fromkeys(OUTCOMES, 0))
                for event in events:
                    group = known[project.number, FAMILY_LETTERS[event.kind] + event.id]
                    row = self._make_row(event, project, new, seq + 1, group[0].seq if group else seq + 1)
                    outcome = self._event_outcome(row, group)
                    tally[outcome] += 1
                    if outcome != "duplicates":
                        seq += 1
                        group.append(row)
                        rows.append(row)
                receipts[at] = Receipt(**tally, seq=seq)
            names = [(*key, code, text) for key, codes in new.items() for text, code in codes.items()]
            self.store.insert("name", names)
            self.store.insert("event", rows)
            abouts = {name: {**self._projects[name].about, "kind": kind} for name, kind in kinds.items()}
            for name, about in abouts.items():
                self.store.run("UPDATE project SET about = ? WHERE name = ?", (json.dumps(about), name))
        for name, about in abouts.items():
            self._projects[name].about = about
        return rows, [receipts[at] for at in range(len(batch))]

    def _check_batch(
        self, batch: list[PendingRequest]
    ) -> tuple[CheckedRequests, dict[int, Receipt | DissensusError], dict[str, str]]:
        """Return the requests that can be stored, the errors of the others, and label types that they determine."""
        checked: CheckedRequests = {}
        refused: dict[int, Receipt | DissensusError] = {}
        types: dict[str, str | None] = {}
        for at, (name, events, _) in enumerate(batch):
            project = self._projects[name]
            try:
                events, types[name] = project.check(events, types.get(name))
                checked[at] = project, events
            except DissensusError as error:
                refused[at] = error
        undeclared = {name: kind for name, kind in types.items() if "kind" not in self._projects[name].about}
        return checked, refused, {name: kind for name, kind in undeclared.items() if kind in LABEL_KINDS}

    def _stored_groups(self, checked: CheckedRequests) -> dict[tuple[int, str], list[StoredEvent]]:
        """Return the stored events with the ids of new events, by project and id; one query per project."""
        events_by_id: dict[tuple[int, str], list[StoredEvent]] = {
            (project.number, FAMILY_LETTERS[event.kind] + event.id): []
            for project, events in checked.values()
            for event in events
        }
        for number in {number for number, _ in events_by_id}:
            for event in sorted(
                self.store.events_with_ids(number, [id_ for of, id_ in events_by_id if of == number])
            ):  # ordered by seq
                events_by_id[number, event.id].append(event)
        return events_by_id

    def _make_row(
        self, event: Event, project: Project, new: dict[Any, dict[str, int]], seq: int, first: int
    ) -> StoredEvent:
        codes: list[int] = []
        for what, text in ((ITEM, event.item or None), (ANNOTATOR, event.annotator or None), (LABEL, event.label)):
            names, more = project.names[what], new.setdefault((project.number, what), {})
            code = -1 if text is None else names.codes.get(text, more.get(text, len(names) + len(more)))
            if code == len(names) + len(more) and text is not None:
                more[text] = code
            codes.append(code)
        data = None if event.data is None else json.dumps(event.data, ensure_ascii=False, sort_keys=True)
        at, id_ = plausible_time(event.at, self.clock()), FAMILY_LETTERS[event.kind] + event.id
        item, annotator, label = codes
        kind = EVENT_KINDS.index(event.kind)
        return StoredEvent(seq, project.number, kind, id_, first, item, annotator, label, event.version, at, data)

    @staticmethod
    def _event_outcome(row: StoredEvent, group: list[StoredEvent]) -> str:
        """Return the outcome of an event, given the stored events with its id."""
        if not group:
            return "accepted"
        if EVENT_KINDS[row.kind] not in ("annotation", "removal"):
            return "duplicates" if row.content == group[-1].content else "accepted"
        counts = current_event(group)
        same_id = events_since_removal(group) if row.version else [counts]  # Without a version, the last event counts.
        removed = EVENT_KINDS[row.kind] == EVENT_KINDS[counts.kind] == "removal"
        if removed or any(row.version == one.version and row.content == one.content for one in same_id):
            return "duplicates"
        return "accepted" if current_event([counts, row]) is row else "stale"

    def _apply_new_events(self) -> None:
        """Apply events that other processes have written."""
        self._reload_projects()
        if self.store.last_seq() > self.seq:
            self._refresh_projects()
            self._apply_rows(self.store.events_since(self.seq))

    def _apply_rows(self, rows: list[StoredEvent]) -> None:
        for number in dict.fromkeys(row.project for row in rows):
            project = self._by_number[number]
            try:
                project.apply([row for row in rows if row.project == number and row.seq > project.seq])
            except Exception:  # The log is correct, so the state is loaded from it again, now or later.
                self.counts["failures"] += 1
                self._unloaded.add(number)
                try:
                    self._reload_projects()
                except Exception:  # The writer must continue because other requests wait for it.
                    self.counts["failures"] += 1
            if project.should_wait_for_fit():
                self._fit(project)
        self.seq = max([self.seq, *(row.seq for row in rows)])

    def _reload_projects(self) -> None:
        for number in sorted(self._unloaded):
            self._by_number[number].load()
            self._unloaded.discard(number)

    # Fitting ----------------------------------------------------------------------------------------------------------

    def _run_fitter(self) -> None:
        while not self._closed.wait(POLL_SECONDS / 4):
            for project in list(self._by_number.values()):
                if project.needs_fit(time.monotonic()) and not self._closed.is_set():
                    self._fit(project)

    def _fit(self, project: Project) -> None:
        before = str(project.fit_error)
        try:
            project.refit()
            self.counts["fits"] += 1
        except Exception as error:  # The results of the last fit stay.
            self.counts["failures"] += 1
            if str(project.fit_error) != before:
                log.warning("%s", error)


class Follower:
    """A background thread that synchronises a service with a labelling tool or a folder."""

    first_wait: float  # seconds to wait after an error; each further error doubles it
    longest_wait: float  # maximum of this time

    def __init__(self, service: Service, name: str):
        self.service, self.base = service, name
        self._wake, self._stopped = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run_thread, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; the next start continues with what is left."""
        self._stopped.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout=10)

    def step(self) -> float:
        """Synchronise once; return the seconds until the next step."""
        raise NotImplementedError

    def append(self, events: Mapping[str, Sequence[Event]]) -> int:
        """Store events of several projects; return their number."""
        for project, some in events.items():
            if some:
                self.service.append(project, some)
        return sum(map(len, events.values()))

    def _run_thread(self) -> None:
        wait = 0.0
        while not self._stopped.is_set():
            try:
                wait = self.step()
            except DissensusError as error:  # A tool that cannot be reached is tried again.
                wait = min(max(2 * wait, self.first_wait), self.longest_wait)
                log.warning("%s Trying again in %.0f s.", error, wait)
            except Exception:
                wait = self.longest_wait
                log.exception("%s: trying again in %.0f s.", self.base, wait)
            self._wake.wait(wait)
            self._wake.clear()
