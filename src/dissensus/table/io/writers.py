"""Labels back into the tool that they came from; the tool's file here enters what writes them into `WRITERS`.

Where the table was read from an export of the same tool, its records are written as they are, with our label added in
the place that the tool has for a model's answer: nothing is lost, and no name changes. A sheet (CSV, JSON lines, Excel)
has the columns that the file had that was read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dissensus.common.atomic import atomic
from dissensus.common.extras import need
from dissensus.common.registry import Registry
from dissensus.common.types import FloatArray, Names
from dissensus.table.io import delimited, jsonl
from dissensus.table.io.files import BinaryFile
from dissensus.table.io.jsonl import Record, dumps

OURS = "dissensus"  # what answers that we wrote into a log begin with, so that they are not read as votes


class Span(NamedTuple):
    """A part of a text, in characters or tokens; `end` is exclusive."""

    start: int
    end: int
    label: str
    probability: float


class Answers(NamedTuple):
    """The answers to one question; of spans, items are documents and a label is the list of their spans."""

    items: Names  # (I,)
    label: Names  # (I,)
    confidence: FloatArray  # (I,)


class Given(NamedTuple):
    """The answer for one item."""

    label: Any
    confidence: float

    def said_by(self, agent: str) -> str:
        """Who gave the answer, in words for people."""
        return f"{agent}, {100 * self.confidence:.0f} % sure"


@dataclass(frozen=True, eq=False)
class Labels:
    """Labels to write: question → answers, and who gave them.

    `questions` has the one key None where a table has one question, which the tool calls `question`. `source` is an
    export of the same tool that the table was read from, `item` the field that names its items where the reader was
    told one, `header` the names of the columns item, annotator, label and question where a sheet is to have others.
    """

    questions: Mapping[str | None, Answers]
    agent: str
    source: Path | None = None
    item: str | None = None
    question: str | None = None
    header: Mapping[str, str] | None = None

    def by_item(self) -> dict[str, dict[str | None, Given]]:
        """Item, as text → question → label with its confidence."""
        found: dict[str, dict[str | None, Given]] = {}
        for question, answers in self.questions.items():
            columns = (column.tolist() for column in answers)
            for item, *given in zip(*columns, strict=True):
                found.setdefault(str(item), {})[question] = Given(*given)
        return found

    def item_of(self, record: Record, *usual: str) -> Any:
        """What a record of the export calls its item: the field that the reader was told, or the first usual one."""
        keys = (self.item,) if self.item else usual
        return next((record[key] for key in keys if record.get(key) is not None), None)

    def named_items(self) -> Iterator[tuple[Any, dict[str | None, Given]]]:
        """Each item by its own name, with what `by_item` says of it."""
        said = self.by_item()
        for answers in self.questions.values():
            for item in answers.items.tolist():
                if (given := said.pop(str(item), None)) is not None:
                    yield item, given


@dataclass(frozen=True)
class Writer:
    """One tool: how its file is called, and what writes it."""

    file: str
    write: Callable[[Labels, BinaryFile], None]


WRITERS: Registry[Writer] = Registry("format to write labels in", "", "dissensus.table.io")


def our_name(question: str | None) -> str:
    """What our answers to a question are called in a log beside others' scores."""
    return OURS if question is None else f"{OURS}/{question}"


def write_labels(labels: Labels, to: str, folder: str | Path) -> Path:
    """Write labels for a tool into a folder, whole or not at all; the file's path."""
    writer = WRITERS[to]
    path = Path(folder) / writer.file
    with atomic(path) as file:
        writer.write(labels, file)
    return path


def add(name: str, file: str, made: Callable[[Labels], Record | Iterable[Record]], summary: str, place: int) -> None:
    """Enter a tool that takes JSON: one record a line in a .jsonl file, one array in a .json file.

    What is whole already, an object or a list, is the log that it was read from, and may hold a bare NaN.
    """

    def write(labels: Labels, target: BinaryFile) -> None:
        found = made(labels)
        if isinstance(found, dict | list):
            target.write((json.dumps(found, indent=2, ensure_ascii=False) + "\n").encode())
            return
        lines = (dumps(record).encode() for record in found)
        if file.endswith(".jsonl"):
            target.writelines(line + b"\n" for line in lines)
            return
        for number, line in enumerate(lines):
            target.write((b",\n" if number else b"[\n") + line)
        target.write(b"\n]\n")

    WRITERS.register(name, summary=summary, place=place)(Writer(file, write))


def _columns(labels: Labels) -> dict[str, Any]:
    """One row per item and question: item, annotator (us), label, confidence, and the question where there are any."""
    parts, sizes = list(labels.questions.values()), [one.items.size for one in labels.questions.values()]
    made: dict[str, Any] = {
        "item": np.concatenate([one.items for one in parts]),
        "annotator": np.full(sum(sizes), labels.agent, object),
        "label": np.concatenate([one.label for one in parts]),
        "confidence": np.concatenate([one.confidence for one in parts]),
    }
    if None not in labels.questions:
        made["question"] = np.repeat(np.array(list(labels.questions), object), sizes)
    return {(labels.header or {}).get(name, name): values for name, values in made.items()}


def _write_xlsx(labels: Labels, file: BinaryFile) -> None:
    """Write one sheet; text stays text, also where it looks like a formula."""
    openpyxl = need("openpyxl", "--to xlsx needs", "excel")
    from openpyxl.cell import WriteOnlyCell

    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("labels")
    made = _columns(labels)

    def cell(value: Any) -> Any:
        one = WriteOnlyCell(sheet, value)
        if isinstance(value, str):
            one.data_type = "s"
        return one

    sheet.append([cell(name) for name in made])
    for row in zip(*(values.tolist() for values in made.values()), strict=True):
        sheet.append([cell(value) for value in row])
    book.save(file)


WRITERS.register("csv", summary="a sheet of labels", place=60)(
    Writer("to-csv.csv", lambda labels, file: delimited.write(pa.table(_columns(labels)), file))
)
WRITERS.register("jsonl", summary="one label a line", place=65)(
    Writer("to-jsonl.jsonl", lambda labels, file: jsonl.write(pa.table(_columns(labels)), file))
)
WRITERS.register("xlsx", summary="the same for Excel", place=70)(Writer("to-xlsx.xlsx", _write_xlsx))
