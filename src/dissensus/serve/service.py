"""The one writer of a process, and the projects that follow the log.

Requests wait in a queue; the writer takes all that wait, appends them in one transaction and answers them: what is
acknowledged is on the disk. Before it writes it reads what other processes have written since (`_catch_up`), and where
nothing is asked of it, it looks for that too. A second thread fits projects again where that is due.
"""

from __future__ import annotations

import json
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from dissensus.common.parameters import check_argument
from dissensus.exceptions import BadParameter, Conflict, DissensusError, StoreUnavailable, UnknownName
from dissensus.serve.events import (
    FAMILY,
    HERE,
    KINDS,
    MAX_NAME,
    Event,
    Receipt,
    Stored,
    plausible_time,
    since_removal,
    winner,
)
from dissensus.serve.project import SETTINGS, Project
from dissensus.serve.rows import ANNOTATOR, ITEM, LABEL
from dissensus.serve.store import Store
from dissensus.table.kinds import CLASS_KINDS, check_kind
from dissensus.table.kinds import KINDS as KINDS_OF_LABELS
from dissensus.table.names import shown

MAX_EVENTS = 2_000  # of one transaction, unless one request has more
POLL_SECONDS = 0.2  # between two looks at what other processes have written
log = logging.getLogger("dissensus")
Pending = tuple[str, Sequence[Event], "Future[Receipt]"]
Taken = dict[int, tuple[Project, list[Event]]]


class Service:
    """Projects in a store."""

    def __init__(self, store: Store, *, clock: Callable[[], float] = time.time, fits: bool = True):
        self.store, self.clock = store, clock
        self._projects: dict[str, Project] = {}
        self._by_number: dict[int, Project] = {}
        self._unloaded: set[int] = set()  # numbers of projects whose state must be made again
        self._queue: queue.SimpleQueue[Pending | None] = queue.SimpleQueue()
        self._closed = threading.Event()
        self.counts = dict.fromkeys(("accepted", "duplicates", "stale", "batches", "failures", "fits"), 0)
        self._making = threading.Lock()
        self.seq = store.last()
        self._refresh_projects()
        self._catch_up()
        for project in self._by_number.values():
            if fits and project.rows.size:
                self._fit(project)
        self._threads = [threading.Thread(target=self._write_on, name="dissensus writer", daemon=True)]
        if fits:
            self._threads.append(threading.Thread(target=self._fit_on, name="dissensus fitter", daemon=True))
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Answer what waits, and stop."""
        if not self._closed.is_set():
            self._closed.set()
            self._queue.put(None)
            for thread in self._threads:
                thread.join()
            self.store.close()

    # Projects ---------------------------------------------------------------------------------------------------------

    def projects(self) -> list[str]:
        """Names of all projects, also of those that other processes made."""
        self._refresh_projects()
        return list(self._projects)

    def in_trouble(self) -> int:
        """How many projects cannot be fitted to what they hold."""
        return sum(bool(one.trouble) for one in list(self._by_number.values()))

    def project(self, name: str) -> Project:
        """A project by its name."""
        if name not in self._projects:
            self._refresh_projects()
        if name not in self._projects:
            raise UnknownName(f"no project {shown(name)}; POST /projects makes one.")
        return self._projects[name]

    def create(self, name: str, /, **about: Any) -> Project:
        """Make a project, or find the one that is there and was made alike."""
        if not isinstance(name, str) or not 0 < len(name) <= 100 or "/" in name or not name.isprintable():
            raise BadParameter(f"a project's name has 1 to 100 letters and no '/', got {shown(name)}.")
        if name in HERE:
            raise BadParameter(f"a project called {name!r} could not be asked for by its address; take another name.")
        if unknown := set(about) - set(SETTINGS):
            raise BadParameter(f"a project has {', '.join(SETTINGS)}; got {shown(min(unknown))}.")
        about = {key: value for key, value in about.items() if value is not None}
        if "kind" in about:
            check_kind(about["kind"])
        if not isinstance(title := about.get("title", ""), str) or len(title) > MAX_NAME:
            raise BadParameter(f"title must be text of {MAX_NAME:,} characters at most, got {shown(title)}.")
        for key in ("per_item", "per_annotator"):
            if key in about:
                check_argument(key, about[key], int, low=1)
        if (classes := about.get("classes")) is not None:
            names = isinstance(classes, list) and all(isinstance(one, str) and one.strip() for one in classes)
            if not names or not 0 < len(classes) == len(set(classes)):
                raise BadParameter(f"classes must be a list of one name or more, each once, got {shown(classes)}.")
            if (kind := about.get("kind", "classes")) not in CLASS_KINDS:
                raise BadParameter(f"the kind {kind} has no classes to declare; leave them out, or declare graded.")
        with self.store.write():
            there = {known: json.loads(text) for _, known, text in self.store.projects()}
            if name not in there:
                number = 1 + max((number for number, _, _ in self.store.projects()), default=0)
                self.store.all("INSERT INTO project VALUES (?, ?, ?)", (number, name, json.dumps(about)))
        for key, value in about.items():
            if name in there and there[name].get(key) != value:
                has = f"the {key} {shown(there[name][key])}" if key in there[name] else f"no {key} declared"
                raise Conflict(f"project {name!r} has {has}, not {shown(value)}.")
        self._refresh_projects()
        return self._projects[name]

    def _refresh_projects(self) -> None:
        with self._making:
            for number, name, text in self.store.projects():
                if number not in self._by_number:
                    project = Project(self.store, number, name, json.loads(text), self.clock)
                    self._by_number[number] = self._projects[name] = project
                self._by_number[number].about = json.loads(text)

    # Writing ----------------------------------------------------------------------------------------------------------

    def append(self, project: str, events: Sequence[Event]) -> Receipt:
        """Store events; returns once they are on the disk and in the answers."""
        return self.submit(project, events).result()

    def submit(self, project: str, events: Sequence[Event]) -> Future[Receipt]:
        """As `append`, without waiting."""
        self.project(project)  # raises where there is none
        if self._closed.is_set():
            raise StoreUnavailable("the service is stopping; send the request again.")
        waits: Future[Receipt] = Future()
        self._queue.put((project, events, waits))
        return waits

    def _write_on(self) -> None:
        """Write all that waits, some transactions' worth at most; where nothing does, look for what others wrote."""
        stop = False
        while not stop or not self._queue.empty():
            batch: list[Pending] = []
            size = 0
            with suppress(queue.Empty):
                one = self._queue.get(timeout=POLL_SECONDS)
                while one is not None:
                    batch.append(one)
                    size += len(one[1])
                    if size >= MAX_EVENTS:
                        break
                    one = self._queue.get_nowait()
                else:
                    stop = True
            if batch:
                self._write(batch)
            elif not stop:
                try:
                    self._catch_up()
                except StoreUnavailable:
                    self.counts["failures"] += 1

    def _write(self, batch: list[Pending]) -> None:
        try:
            rows, receipts = self._store(batch)
        except Exception as error:  # of the store or ours: the requests are told, and the writer goes on
            if len(batch) > 1 and not isinstance(error, StoreUnavailable):  # one of them is at fault: each by itself
                for one in batch:
                    self._write([one])
                return
            self.counts["failures"] += 1
            for _, _, waits in batch:
                waits.set_exception(error)
            return
        self._apply(rows)
        self.counts["batches"] += 1
        for (_, _, waits), receipt in zip(batch, receipts, strict=True):
            if isinstance(receipt, DissensusError):
                waits.set_exception(receipt)
                continue
            for key in ("accepted", "duplicates", "stale"):
                self.counts[key] += getattr(receipt, key)
            waits.set_result(receipt)

    def _store(self, batch: list[Pending]) -> tuple[list[Stored], list[Receipt | DissensusError]]:
        """Append what is new, in one transaction."""
        with self.store.write():
            self._catch_up()
            taken, receipts, kinds = self._checked(batch)
            known = self._known(taken)
            seq, rows, names = self.seq, [], []
            new: dict[tuple[int, int], dict[str, int]] = {}  # names that the store does not have yet
            for at, (project, events) in taken.items():
                tally = dict.fromkeys(("accepted", "duplicates", "stale"), 0)
                for event in events:
                    group = known[project.number, FAMILY[event.kind] + event.id]
                    row = self._stored(event, project, new, seq + 1, group[0].seq if group else seq + 1)
                    fate = self._fate(row, group)
                    tally[fate] += 1
                    if fate != "duplicates":
                        seq += 1
                        group.append(row)
                        rows.append(row)
                receipts[at] = Receipt(**tally, seq=seq)
            for (number, what), found in new.items():
                names += [(number, what, code, text) for text, code in found.items()]
            self.store.insert("name", names)
            self.store.insert("event", rows)
            abouts = {name: {**self._projects[name].about, "kind": kind} for name, kind in kinds.items()}
            for name, about in abouts.items():
                self.store.all("UPDATE project SET about = ? WHERE name = ?", (json.dumps(about), name))
        for name, about in abouts.items():
            self._projects[name].about = about
        return rows, [receipts[at] for at in range(len(batch))]

    def _checked(self, batch: list[Pending]) -> tuple[Taken, dict[int, Receipt | DissensusError], dict[str, str]]:
        """Requests that can be stored, by their place; why others cannot; kinds of projects that these labels tell."""
        taken: Taken = {}
        refused: dict[int, Receipt | DissensusError] = {}
        told: dict[str, str | None] = {}
        for at, (name, events, _) in enumerate(batch):
            project = self._projects[name]
            try:
                checked, told[name] = project.check(events, told.get(name))
                taken[at] = project, checked
            except DissensusError as error:
                refused[at] = error
        known = {name: kind for name, kind in told.items() if kind in KINDS_OF_LABELS}
        return taken, refused, {name: kind for name, kind in known.items() if "kind" not in self._projects[name].about}

    def _known(self, taken: Taken) -> dict[tuple[int, str], list[Stored]]:
        """What the log holds of the ids of events, by project and id: one question for all of a project."""
        known: dict[tuple[int, str], list[Stored]] = {
            (project.number, FAMILY[event.kind] + event.id): []
            for project, events in taken.values()
            for event in events
        }
        for number in {number for number, _ in known}:
            for one in sorted(self.store.of_ids(number, [id_ for of, id_ in known if of == number])):  # by seq
                known[number, one.id].append(one)
        return known

    def _stored(self, event: Event, project: Project, new: dict[Any, dict[str, int]], seq: int, first: int) -> Stored:
        codes = []
        for what, text in ((ITEM, event.item or None), (ANNOTATOR, event.annotator or None), (LABEL, event.label)):
            names, more = project.names[what], new.setdefault((project.number, what), {})
            code = -1 if text is None else names.codes.get(text, more.get(text, len(names) + len(more)))
            if code == len(names) + len(more) and text is not None:
                more[text] = code
            codes.append(code)
        data = None if event.data is None else json.dumps(event.data, ensure_ascii=False, sort_keys=True)
        id_ = FAMILY[event.kind] + event.id
        at = plausible_time(event.at, self.clock())
        item, annotator, label = codes
        kind = KINDS.index(event.kind)
        return Stored(seq, project.number, kind, id_, first, item, annotator, label, event.version, at, data)

    @staticmethod
    def _fate(row: Stored, group: list[Stored]) -> str:
        """What becomes of an event, by those of its id that are stored."""
        if not group:
            return "accepted"
        if KINDS[row.kind] not in ("annotation", "removal"):
            return "duplicates" if row.content == group[-1].content else "accepted"
        counts = winner(group)
        alike = since_removal(group) if row.version else [counts]  # without a version, what counts is the last
        removed = KINDS[row.kind] == KINDS[counts.kind] == "removal"
        if removed or any(row.version == one.version and row.content == one.content for one in alike):
            return "duplicates"
        return "accepted" if winner([counts, row]) is row else "stale"

    def _catch_up(self) -> None:
        """Apply what other processes have written."""
        self._load_again()
        if self.store.last() > self.seq:
            self._refresh_projects()
            self._apply(self.store.since(self.seq))

    def _apply(self, rows: list[Stored]) -> None:
        by_project: dict[int, list[Stored]] = {}
        for row in rows:
            by_project.setdefault(row.project, []).append(row)
        for number, some in by_project.items():
            project = self._by_number[number]
            self._bring(project, [row for row in some if row.seq > project.seq])
            if project.fits_at_once():
                self._fit(project)
        self.seq = max([self.seq, *(row.seq for row in rows)])

    def _bring(self, project: Project, rows: list[Stored]) -> None:
        """Apply events; where that fails the log is right, and the state is made again from it, now or next time."""
        try:
            project.apply(rows)
        except Exception:
            self.counts["failures"] += 1
            self._unloaded.add(project.number)
            try:
                self._load_again()
            except Exception:  # the writer must go on: others wait for it
                self.counts["failures"] += 1

    def _load_again(self) -> None:
        for number in sorted(self._unloaded):
            self._by_number[number].load()
            self._unloaded.discard(number)

    # Fitting ----------------------------------------------------------------------------------------------------------

    def _fit_on(self) -> None:
        while not self._closed.wait(POLL_SECONDS / 4):
            for project in list(self._by_number.values()):
                if project.due(time.monotonic()) and not self._closed.is_set():
                    self._fit(project)

    def _fit(self, project: Project) -> None:
        before = project.trouble
        try:
            project.refit()
            self.counts["fits"] += 1
        except Exception as error:  # the answers of the last fit stay
            self.counts["failures"] += 1
            if project.trouble != before:
                log.warning("%s", error)


class Follower:
    """A thread that keeps a service in step with something outside: a labelling tool, or a folder."""

    first_wait: float  # seconds after an error; after each further one twice as long
    longest_wait: float

    def __init__(self, service: Service, name: str):
        self.service, self.base = service, name
        self._wake, self._stopped = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Keep in step from now on."""
        self._thread.start()

    def close(self) -> None:
        """Stop; what is not done yet is done after the next start."""
        self._stopped.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout=10)

    def step(self) -> float:
        """Do what there is to do now; the seconds until the next step."""
        raise NotImplementedError

    def append(self, events: Mapping[str, Sequence[Event]]) -> int:
        """Store events of several projects; how many they are."""
        for project, some in events.items():
            if some:
                self.service.append(project, some)
        return sum(map(len, events.values()))

    def _run(self) -> None:
        wait = 0.0
        while not self._stopped.is_set():
            try:
                wait = self.step()
            except DissensusError as error:  # a tool that is away comes back
                wait = min(max(2 * wait, self.first_wait), self.longest_wait)
                log.warning("%s Trying again in %.0f s.", error, wait)
            except Exception:
                wait = self.longest_wait
                log.exception("%s: trying again in %.0f s.", self.base, wait)
            self._wake.wait(wait)
            self._wake.clear()
