"""A watched folder: every table or export in it is a project, and the project says what the file says.

A file is read once it has stopped growing, and again whenever it changes. Rows that are as before change nothing, rows
that are gone do not count any more; so files may be written again, and the service stopped and started, at any time.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from dissensus.exceptions import DataError, DissensusError, UnreadableFile
from dissensus.serve.events import ABOUT, Event, label_of, slug, span_text, time_of
from dissensus.serve.service import Follower, Service, log
from dissensus.table.annotations import Annotations
from dissensus.table.find_columns import chunked
from dissensus.table.io import read
from dissensus.table.io.build import in_guessed_kind
from dissensus.table.spans import sequences_of, spans_of

SECONDS_BETWEEN_LOOKS = 2.0
EVENTS_AT_ONCE = 2_000


def table_events(table: Annotations) -> Iterator[Event]:
    """The rows of a table as annotations, its known labels as decisions, and what there is to see of its items."""
    given: Counter[str] = Counter()
    times = times_of(table)
    for item, annotator, label in _rows(table):
        id_ = f"{item}{ABOUT}{annotator}"
        given[id_] += 1
        id_ += f"{ABOUT}{given[id_]}" if given[id_] > 1 else ""
        yield Event("annotation", id_, item, annotator, label, at=times.get((item, annotator), 0.0))
    source = table.source
    if source is None:
        return
    for item, label in zip(*(source.gold or ((), ())), strict=True):
        if table.kind != "spans":
            yield Event("decision", f"file-{item}", str(item), "file", label_of(label, 0)[0])  # not a person's
    for item, fields in source.texts.items():
        yield Event("item", str(item), str(item), data=fields)


def times_of(table: Annotations) -> dict[tuple[str, str], float]:
    """(item, annotator) → seconds since 1970 of the last of their labels, where the file that was read has times."""
    found: dict[tuple[str, str], float] = {}
    if table.source is None or table.source.times is None:
        return found
    columns = [column if isinstance(column, list) else chunked(column).to_pylist() for column in table.source.times]
    for item, annotator, time in zip(*columns, strict=True):
        with suppress(DataError):  # a time that cannot be read is none
            key = str(item), str(annotator)
            found[key] = max(found.get(key, 0.0), time_of(time))
    return found


def _rows(table: Annotations) -> Iterator[tuple[str, str, str]]:
    """Item, annotator and label of every row; of spans one row per document and reader."""
    names = [list(map(str, some.tolist())) for some in (table.items, table.annotators, table.classes)]
    if table.kind != "spans":
        for codes in zip(table.item.tolist(), table.annotator.tolist(), table.label.tolist(), strict=True):
            item, annotator, label = (some[code] for some, code in zip(names, codes, strict=True))
            yield item, annotator, label
        return
    for who, annotator in enumerate(names[1]):
        rows = table.by_annotator[table.annotator_ptr[who] : table.annotator_ptr[who + 1]]
        places = table.items[table.item[rows]]
        found = spans_of(places, table.classes, table.label[rows])
        keys = ("start", "end", "label")
        marked = [dict(zip(keys, one, strict=True)) for one in zip(*(found[key].tolist() for key in keys), strict=True)]
        for document in sequences_of(places).documents.tolist():
            own = [one for one, name in zip(marked, found["document"].tolist(), strict=True) if name == document]
            yield str(document), annotator, span_text(own, 0)


class Folder(Follower):
    """A folder whose files become projects; a thread looks at it every two seconds."""

    first_wait = longest_wait = SECONDS_BETWEEN_LOOKS

    def __init__(self, service: Service, path: Path):
        if not path.is_dir():
            raise UnreadableFile(f"{path} is no folder to watch; make it, or name another.")
        super().__init__(service, "watched folder")
        self.path = path
        self._seen: dict[Path, tuple[int, int]] = {}  # as of the last look
        self._read: dict[Path, tuple[int, int]] = {}

    def look(self) -> list[str]:
        """Read the files that changed and are as they were at the last look; the projects that they make."""
        found: list[str] = []
        for path in sorted(self.path.iterdir()):
            if path.name.startswith(".") or not path.is_file():
                continue
            about = path.stat()
            stamp = (about.st_mtime_ns, about.st_size)
            if self._seen.get(path) == stamp != self._read.get(path):
                self._read[path] = stamp
                try:
                    found += self._take(path)
                except DissensusError as error:
                    log.warning("%s: %s", path.name, error)
            self._seen[path] = stamp
        return found

    def _take(self, path: Path) -> list[str]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = read(path)
        tables = dict(made) if isinstance(made, Mapping) else {"": made}
        names = []
        for question, table in tables.items():
            called = f"{path.name}-{question}".rstrip("-")
            name = slug(called)
            guessed = table.kind != "spans" and in_guessed_kind(table.as_kind("classes"))[0].kind == table.kind
            known = guessed or name in self.service.projects()  # what is guessed may change with the file
            project = self.service.create(name, kind=None if known else table.kind, title=called)
            events = list(table_events(table))
            there = {event.id for event in events if event.kind != "item"}
            n_rows = sum(event.kind == "annotation" for event in events)
            gone = [(id_, item) for id_, (item, *_) in project.held().items() if id_ not in there]
            events += [Event("annotation", id_, item, id_.split(ABOUT)[1]) for id_, item in gone if ABOUT in id_]
            events += [Event("withdrawal", id_, item) for id_, item in gone if id_ == f"file-{item}"]
            for at in range(0, len(events), EVENTS_AT_ONCE):
                self.service.append(name, events[at : at + EVENTS_AT_ONCE])
            log.info("%s: %d rows in project %s", path.name, n_rows, name)
            names.append(name)
        return names

    def step(self) -> float:
        """Look, whatever the folder's disk does."""
        try:
            self.look()
        except OSError as error:
            log.warning("cannot read %s: %s.", self.path, error.strerror or error)
        return SECONDS_BETWEEN_LOOKS
