"""Watch a folder: every table or export in it becomes a project with the labels of the file.

A file is read once it has stopped growing, and again whenever it changes. Unchanged rows have no effect, and deleted
rows no longer count, so files may be rewritten and the service restarted at any time.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from dissensus.exceptions import DataError, DissensusError
from dissensus.serve.events import SEPARATOR, Event, make_slug, parse_seconds
from dissensus.serve.exceptions import NoFolderToWatch
from dissensus.serve.requests import label_to_text, spans_to_text
from dissensus.serve.service import Follower, Service, log
from dissensus.table.annotations import Annotations
from dissensus.table.find_columns import to_chunked_array
from dissensus.table.io import read
from dissensus.table.io.build import convert_to_guessed_kind
from dissensus.table.spans import extract_spans, parse_sequences

SECONDS_BETWEEN_CHECKS = 2.0
EVENTS_AT_ONCE = 2_000


def table_to_events(table: Annotations) -> Iterator[Event]:
    """Yield the rows of a table as annotations, its gold labels as decisions, and the fields of its items."""
    n_given: Counter[str] = Counter()
    times = label_times(table)
    for item, annotator, label in _label_rows(table):
        id_ = f"{item}{SEPARATOR}{annotator}"
        n_given[id_] += 1
        id_ += f"{SEPARATOR}{n_given[id_]}" if n_given[id_] > 1 else ""
        yield Event("annotation", id_, item, annotator, label, at=times.get((item, annotator), 0.0))
    source = table.import_report
    if source is None:
        return
    for item, label in zip(*(source.gold or ((), ())), strict=True):
        if table.kind != "spans":
            yield Event("decision", f"file-{item}", str(item), "file", label_to_text(label)[0])
    for item, fields in source.item_fields.items():
        yield Event("item", str(item), str(item), data=fields)


def label_times(table: Annotations) -> dict[tuple[str, str], float]:
    """Return the time of the last label in seconds since 1970, by (item, annotator), if the file has times."""
    time_by_label: dict[tuple[str, str], float] = {}
    if table.import_report is None or table.import_report.label_times is None:
        return time_by_label
    columns = [
        column if isinstance(column, list) else to_chunked_array(column).to_pylist()
        for column in table.import_report.label_times
    ]
    for item, annotator, time in zip(*columns, strict=True):
        with suppress(DataError):  # Labels with unreadable times count from their arrival.
            key = str(item), str(annotator)
            time_by_label[key] = max(time_by_label.get(key, 0.0), parse_seconds(time))
    return time_by_label


def _label_rows(table: Annotations) -> Iterator[tuple[str, str, str]]:
    """Yield (item, annotator, label) of every row; for spans, one row per document and annotator."""
    names = [list(map(str, some.tolist())) for some in (table.items, table.annotators, table.classes)]
    if table.kind != "spans":
        for codes in zip(table.item.tolist(), table.annotator.tolist(), table.label.tolist(), strict=True):
            item, annotator, label = (some[code] for some, code in zip(names, codes, strict=True))
            yield item, annotator, label
        return
    for code, annotator in enumerate(names[1]):
        rows = table.by_annotator[table.annotator_ptr[code] : table.annotator_ptr[code + 1]]
        places = table.items[table.item[rows]]
        found = extract_spans(places, table.classes, table.label[rows])
        keys = ("start", "end", "label")
        marked = [dict(zip(keys, one, strict=True)) for one in zip(*(found[key].tolist() for key in keys), strict=True)]
        for document in parse_sequences(places).documents.tolist():
            own = [one for one, name in zip(marked, found["document"].tolist(), strict=True) if name == document]
            yield str(document), annotator, spans_to_text(own)


class WatchedFolder(Follower):
    """A folder whose files become projects; a thread checks it every two seconds."""

    first_wait = longest_wait = SECONDS_BETWEEN_CHECKS

    def __init__(self, service: Service, path: Path):
        if not path.is_dir():
            raise NoFolderToWatch(path=path)
        super().__init__(service, "watched folder")
        self.path = path
        self._seen: dict[Path, tuple[int, int]] = {}  # time and size at the last check
        self._read: dict[Path, tuple[int, int]] = {}

    def read_changed_files(self) -> list[str]:
        """Read the files that changed and have not grown since the last check; return their projects."""
        stored_files: list[str] = []
        for path in sorted(self.path.iterdir()):
            if path.name.startswith(".") or not path.is_file():
                continue
            about = path.stat()
            stamp = (about.st_mtime_ns, about.st_size)
            if self._seen.get(path) == stamp != self._read.get(path):
                self._read[path] = stamp
                try:
                    stored_files += self._store_file(path)
                except DissensusError as error:
                    log.warning("%s: %s", path.name, error)
            self._seen[path] = stamp
        return stored_files

    def _store_file(self, path: Path) -> list[str]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = read(path)
        tables = dict(made) if isinstance(made, Mapping) else {"": made}
        names = []
        for question, table in tables.items():
            title = f"{path.name}-{question}".rstrip("-")
            name = make_slug(title)
            guessed = table.kind != "spans" and convert_to_guessed_kind(table.as_kind("classes"))[0].kind == table.kind
            known = guessed or name in self.service.project_names()  # A guessed kind may change with the file.
            project = self.service.create_project(name, kind=None if known else table.kind, title=title)
            events = list(table_to_events(table))
            present = {event.id for event in events if event.kind != "item"}
            n_rows = sum(event.kind == "annotation" for event in events)
            gone = [(id_, item) for id_, (item, *_) in project.stored_labels().items() if id_ not in present]
            events += [
                Event("annotation", id_, item, id_.split(SEPARATOR)[1]) for id_, item in gone if SEPARATOR in id_
            ]
            events += [Event("withdrawal", id_, item) for id_, item in gone if id_ == f"file-{item}"]
            for at in range(0, len(events), EVENTS_AT_ONCE):
                self.service.append(name, events[at : at + EVENTS_AT_ONCE])
            log.info("%s: %d rows in project %s", path.name, n_rows, name)
            names.append(name)
        return names

    def step(self) -> float:
        """Check the folder once; log an error if it cannot be read."""
        try:
            self.read_changed_files()
        except OSError as error:
            log.warning("cannot read %s: %s.", self.path, error.strerror or error)
        return SECONDS_BETWEEN_CHECKS
