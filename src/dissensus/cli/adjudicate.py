"""`dissensus adjudicate`: decide the disputed items of a file by keyboard, on a web page that runs on this machine."""

from __future__ import annotations

import csv
import getpass
import io
import json
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from dissensus.cli import exceptions as faults
from dissensus.cli import options, show
from dissensus.cli.options import option
from dissensus.cli.source import Source
from dissensus.common.atomic import FolderLock, check_not_an_input, open_atomically
from dissensus.common.extras import import_extra
from dissensus.exceptions import DataError

if TYPE_CHECKING:
    from dissensus.serve.events import Event
    from dissensus.serve.project import Project
    from dissensus.table.annotations import Annotations

PROJECT = "labels"
COLUMNS = ("item", "label", "both", "unclear", "note", "by", "at")
PICTURES = {".png": "png", ".jpg": "jpeg", ".jpeg": "jpeg", ".gif": "gif", ".webp": "webp"}
MAX_PICTURE_BYTES = 5_000_000  # maximum size of a picture file that is shown


def adjudicate(
    *,
    items: Path | None = options.ITEMS,
    output: Path | None = option(
        None,
        "Write the decisions here.",
        "--output",
        "-o",
        metavar="OUT",
        show_default="FILE.decisions.csv, next to it",
    ),
    by: str | None = option(None, "The name stored with every decision.", show_default="the user's name"),
    port: int = option(0, "Port of the page on this machine; 0 takes a free one.", min=0, max=65_535),
    browser: bool = option(True, "Open the page.", "--browser/--no-browser"),
    source: Source,
) -> None:
    """Serve the page on which disputed items are decided, until the user stops it.

    On the page, number keys choose a label, s skips the item, b marks both labels as right, u marks the
    guideline as unclear, and z undoes the last decision. OUT is written after every decision and read again at the
    next start. `aggregate --gold OUT` reads its columns item and label. --items names the texts, or pictures as
    data URIs or files next to it.

    Example: dissensus adjudicate labels.csv --items items.csv

    Example: dissensus aggregate labels.csv --gold labels.decisions.csv -o results
    """
    for module in ("uvicorn", "fastapi"):
        import_extra(module, "dissensus adjudicate needs", "serve")
    output = output or source.file.with_name(f"{source.file.name.partition('.')[0] or 'labels'}.decisions.csv")
    if source.named == "-" or not output.absolute().parent.is_dir():
        raise faults.FolderMissing(option="-o", path=output)
    check_not_an_input(output)
    decisions = Decisions(output, by or getpass.getuser())
    table = source.read_single_table()
    if table.kind == "spans" or table.proba is not None:
        raise faults.NotDecidable()
    if items is None and source.holds_texts:
        items = source.file
    shown = {} if items is None else _read_item_columns(items)
    with TemporaryDirectory(prefix="dissensus-") as folder:
        _serve_page(source, table, shown, decisions, Path(folder) / "labels.db", port, browser)


class Decisions:
    """A file of decisions that is written after each decision; other processes may write it too."""

    def __init__(self, path: Path, by: str):
        self.path, self.by = path, by
        self.rows = self._read_rows()  # the last state that was read or written here

    def _read_rows(self) -> dict[str, dict[str, str]]:
        """Return the rows of the file by item."""
        from dissensus.table.exceptions import NotUtf8

        if not self.path.exists():
            return {}
        try:
            with self.path.open(newline="", encoding="utf-8-sig") as file:
                reader = csv.DictReader(file)
                ours = tuple(reader.fieldnames or ()) == COLUMNS
                rows = list(reader)
        except UnicodeDecodeError:
            raise NotUtf8(path=self.path, position="") from None
        if not ours or any(None in row for row in rows):  # None: more fields than columns
            raise faults.NotWrittenBy(path=self.path, command="adjudicate")
        return {row["item"]: row for row in rows}

    def to_events(self, items: Container[str], before: Mapping[str, Any] | None = None) -> list[Event]:
        """Return the decisions about items of the table; given earlier rows `before`, only those that changed since."""
        from dissensus.serve.events import Event

        before = before or {}
        found = [Event("withdrawal", item, item) for item in before.keys() - self.rows.keys() if item in items]
        for item, row in self.rows.items():
            if item in items and row != before.get(item):
                with self.name_item_in_errors(item):
                    found.append(self._row_to_event(row))
        return found

    @contextmanager
    def name_item_in_errors(self, item: str) -> Iterator[None]:
        """Name the file and the item in errors about a decision."""
        from dissensus.messages import quote_name

        try:
            yield
        except DataError as error:
            raise faults.BadDecision(
                path=self.path, item=quote_name(item), reason=str(error).removeprefix("annotation 0: ")
            ) from None

    def read_changes(self, items: Container[str]) -> list[Event]:
        """Return the decisions that other processes made or withdrew since the file was read."""
        before, self.rows = self.rows, self._read_rows()
        return self.to_events(items, before)

    @staticmethod
    def _row_to_event(row: dict[str, str]) -> Event:
        from dissensus.messages import quote_name
        from dissensus.serve.events import parse_seconds
        from dissensus.serve.requests import decision_event

        facts: dict[str, Any] = {key: row[key] for key in ("item", "label", "note", "by") if row[key]}
        if row["unclear"]:
            facts["unclear"] = row["unclear"] == "yes"
        if row["both"]:
            with suppress(ValueError):
                facts["both"] = json.loads(row["both"])
            if not isinstance(both := facts.get("both"), list) or not all(isinstance(label, str) for label in both):
                raise faults.BadBoth(text=quote_name(row["both"]))
        return replace(
            decision_event(facts, "objects"), at=parse_seconds(row["at"])
        )  # labels of any type are texts here

    def write_events(self, events: Iterable[Event], project: Project) -> None:
        """Write the current decisions about the items of events."""
        for event in events:
            self.rows.pop(event.item, None)
            self.rows |= _decision_row(project, event.item)
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, COLUMNS)
        writer.writeheader()
        writer.writerows(self.rows.values())
        with open_atomically(self.path) as file:
            file.write(text.getvalue().encode())


def _decision_row(project: Project, item: str) -> dict[str, dict[str, str]]:
    """Return the row of the current decision about an item, or None without a decision."""
    from dissensus.serve.describe import describe_decision

    if (event := project.decisions.get(project.item_code(item))) is None:
        return {}
    about = describe_decision(project, event)
    label = project.label_text(event) if event.label >= 0 else ""
    both = json.dumps(event.accepted_labels, ensure_ascii=False) if event.accepted_labels else ""
    at = datetime.fromtimestamp(event.at, UTC).isoformat(timespec="seconds")
    values = (item, label, both, "yes" if about["unclear"] else "", str(about["note"] or ""), about["by"], at)
    return {item: dict(zip(COLUMNS, values, strict=True))}


def _serve_page(
    source: Source, table: Annotations, shown: dict[str, Any], decisions: Decisions, store: Path, port: int, open_: bool
) -> None:
    import threading
    import webbrowser

    import uvicorn

    from dissensus.serve.app import create_app, open_socket
    from dissensus.serve.events import Event
    from dissensus.serve.store import open_store
    from dissensus.serve.watch import table_to_events

    items, classes = (list(map(str, names.tolist())) for names in (table.items, table.classes))
    with _make_service(open_store(str(store)), decisions) as service:
        with show.show_progress(f"preparing {source.file}"):
            fixed = classes if table.kind in ("classes", "graded") else None
            project = service.create_project(PROJECT, kind=table.kind, classes=fixed, title=source.file.name)
            events = [event for event in table_to_events(table) if event.kind == "annotation"]
            events += [Event("item", name, name, data=shown[name]) for name in items if name in shown]
            service.append(PROJECT, events)
            earlier = decisions.to_events(set(items))
            for event in earlier:
                with decisions.name_item_in_errors(event.item):
                    project.check_decision(event)
            service.append(PROJECT, earlier)
            project.refit()
        counts = project.items(limit=0)["counts"]
        config = uvicorn.Config(create_app(service), host="127.0.0.1", port=port, log_level="warning", access_log=False)
        listening = open_socket("127.0.0.1", port)
        address = f"http://127.0.0.1:{listening.getsockname()[1]}/#/{PROJECT}/adjudicate"
        if source.json:
            about = {"url": address, "waiting": counts["queue"], "decided": counts["decided"]}
            source.print_json(about, output=decisions.path)
        else:
            waiting = show.format_count(counts["queue"], "item")
            show.print_line(f"{show.escape(source.file)}: to decide: {waiting}; decided: {counts['decided']:,}.")
            show.print_line(
                f"Decide at {address}; each decision is written to {show.escape(decisions.path)} at once. Ctrl-C stops."
            )
        if open_:
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        uvicorn.Server(config).run(sockets=[listening])


def _make_service(store: Any, decisions: Decisions) -> Any:
    """Return a service that writes every decision to the file before it is acknowledged."""
    from dissensus.serve.rows import ITEM
    from dissensus.serve.service import Service

    class FileService(Service):
        def submit(self, project: str, events: Any) -> Any:
            made = [
                replace(event, annotator=decisions.by) for event in events if event.kind in ("decision", "withdrawal")
            ]
            if not made or len(made) < len(events):
                return super().submit(project, events)
            turn = FolderLock(decisions.path.resolve().parent, wait=True)  # other processes may write the file too
            try:
                if news := decisions.read_changes(self.project(project).names[ITEM].codes):
                    super().submit(project, news).result()
                stored = super().submit(project, made)
                stored.result()  # waiting is acceptable because only one person uses this page
                decisions.write_events(made, self.project(project))
            finally:
                del turn
            return stored

    return FileService(store)


def _read_item_columns(path: Path) -> dict[str, dict[str, Any]]:
    """Return the columns of each item in a table; the names of picture files are replaced by the pictures."""
    from base64 import b64encode

    from dissensus.cli.inputs import read_table
    from dissensus.messages import quote_names
    from dissensus.table.find_columns import guess_column

    frame = read_table(path)
    key = guess_column("item", frame.column_names)
    if key is None:
        raise faults.ColumnMissing(path=path, column="item", role="item", columns=quote_names(frame.column_names))

    def value(cell: Any) -> Any:
        kind = PICTURES.get(Path(cell).suffix.lower()) if isinstance(cell, str) and len(cell) < 1_000 else None
        file = path.parent / str(cell)
        if kind is None or "://" in cell or not file.is_file() or file.stat().st_size > MAX_PICTURE_BYTES:
            return cell
        return f"data:image/{kind};base64,{b64encode(file.read_bytes()).decode()}"

    columns = [name for name in frame.column_names if name != key]
    return {
        str(row[key]): {name: value(row[name]) for name in columns if row[name] is not None}
        for row in frame.to_pylist()
    }
