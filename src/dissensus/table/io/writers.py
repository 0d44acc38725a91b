"""Write labels in the formats of annotation tools; the module of each tool registers a writer in `writers`.

If the table was read from an export of the same tool, its records are written unchanged, and our labels are added as
the answers of a model. A sheet (CSV, JSON lines or Excel) has the same column names as the file that was read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dissensus.common.atomic import open_atomically
from dissensus.common.extras import import_extra
from dissensus.common.registry import Registry
from dissensus.common.types import FloatArray, Names
from dissensus.table.io import delimited, jsonl
from dissensus.table.io.files import BinaryFile
from dissensus.table.io.jsonl import Record, dumps

OWN_ANSWER_PREFIX = "dissensus"  # prefix of answers written by dissensus, so that they are not read as votes


class LabelledSpan(NamedTuple):
    """A labelled span of a text, in characters or tokens; `end` is exclusive."""

    start: int
    end: int
    label: str
    probability: float


class QuestionLabels(NamedTuple):
    """The labels of all items for one question; for spans, items are documents, and labels are lists of spans."""

    items: Names  # (I,)
    label: Names  # (I,)
    confidence: FloatArray  # (I,)


class ItemLabel(NamedTuple):
    """The label of one item with its confidence."""

    label: Any
    confidence: float

    def describe_agent(self, agent: str) -> str:
        """Return the name of the agent with its confidence, for display."""
        return f"{agent}, {100 * self.confidence:.0f} % sure"


@dataclass(frozen=True, eq=False)
class LabelsToWrite:
    """Labels to write, by question, and the name of the agent that gave them.

    The key of `questions` is None if the table has a single question, whose name in the tool is `question`. `source` is
    the export of the same tool from which the table was read; `item` is the field of item names if the caller chose
    one. `header` maps item, annotator, label and question to the column names of a sheet.
    """

    questions: Mapping[str | None, QuestionLabels]
    agent: str
    source: Path | None = None
    item: str | None = None
    question: str | None = None
    header: Mapping[str, str] | None = None

    def labels_by_item(self) -> dict[str, dict[str | None, ItemLabel]]:
        """Return item (as text) → question → label with confidence."""
        by_item: dict[str, dict[str | None, ItemLabel]] = {}
        for question, answers in self.questions.items():
            columns = (column.tolist() for column in answers)
            for item, *given in zip(*columns, strict=True):
                by_item.setdefault(str(item), {})[question] = ItemLabel(*given)
        return by_item

    def find_item(self, record: Record, *usual: str) -> Any:
        """Return the item of a record, from the field chosen by the caller or the first usual one."""
        keys = (self.item,) if self.item else usual
        return next((record[key] for key in keys if record.get(key) is not None), None)

    def iterate_items(self) -> Iterator[tuple[Any, dict[str | None, ItemLabel]]]:
        """Yield each item with its labels by question."""
        by_item = self.labels_by_item()
        for answers in self.questions.values():
            for item in answers.items.tolist():
                if (given := by_item.pop(str(item), None)) is not None:
                    yield item, given


@dataclass(frozen=True)
class Writer:
    """The function that writes labels for one tool, and the name of the file."""

    file: str
    write: Callable[[LabelsToWrite, BinaryFile], None]


writers: Registry[Writer] = Registry("format to write labels in", "", "dissensus.table.io")


def own_answer_name(question: str | None) -> str:
    """Return the name under which our answers to a question are stored in a log."""
    return OWN_ANSWER_PREFIX if question is None else f"{OWN_ANSWER_PREFIX}/{question}"


def write_labels(labels: LabelsToWrite, to: str, folder: str | Path) -> Path:
    """Write labels for a tool into a folder, completely or not at all; return the path of the file."""
    writer = writers[to]
    path = Path(folder) / writer.file
    with open_atomically(path) as file:
        writer.write(labels, file)
    return path


def json_writer(file: str, convert: Callable[[LabelsToWrite], Record | Iterable[Record]]) -> Writer:
    """Return the writer of a tool that reads JSON: one record per line in .jsonl files, an array in .json files.

    If `convert` returns an object or a list, it is a log that was read before, and NaN is written as in the log.
    """

    def write(labels: LabelsToWrite, target: BinaryFile) -> None:
        converted = convert(labels)
        if isinstance(converted, dict | list):
            target.write((json.dumps(converted, indent=2, ensure_ascii=False) + "\n").encode())
            return
        lines = (dumps(record).encode() for record in converted)
        if file.endswith(".jsonl"):
            target.writelines(line + b"\n" for line in lines)
            return
        for number, line in enumerate(lines):
            target.write((b",\n" if number else b"[\n") + line)
        target.write(b"\n]\n")

    return Writer(file, write)


def _sheet_columns(labels: LabelsToWrite) -> dict[str, Any]:
    """Return the columns of a sheet with one row per item and question; the annotator is our agent."""
    parts = list(labels.questions.values())
    sizes = [answers.items.size for answers in parts]
    columns: dict[str, Any] = {
        "item": np.concatenate([answers.items for answers in parts]),
        "annotator": np.full(sum(sizes), labels.agent, object),
        "label": np.concatenate([answers.label for answers in parts]),
        "confidence": np.concatenate([answers.confidence for answers in parts]),
    }
    if None not in labels.questions:
        columns["question"] = np.repeat(np.array(list(labels.questions), object), sizes)
    return {(labels.header or {}).get(name, name): values for name, values in columns.items()}


def _write_xlsx(labels: LabelsToWrite, file: BinaryFile) -> None:
    """Write an Excel file with one sheet; text that looks like a formula remains text."""
    openpyxl = import_extra("openpyxl", "--to xlsx needs", "excel")
    from openpyxl.cell import WriteOnlyCell

    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("labels")
    columns = _sheet_columns(labels)

    def cell(value: Any) -> Any:
        written = WriteOnlyCell(sheet, value)
        if isinstance(value, str):
            written.data_type = "s"
        return written

    sheet.append([cell(name) for name in columns])
    for row in zip(*(values.tolist() for values in columns.values()), strict=True):
        sheet.append([cell(value) for value in row])
    book.save(file)


writers.register("csv", summary="a sheet of labels", place=60)(
    Writer("to-csv.csv", lambda labels, file: delimited.write(pa.table(_sheet_columns(labels)), file))
)
writers.register("jsonl", summary="one label per line", place=65)(
    Writer("to-jsonl.jsonl", lambda labels, file: jsonl.write(pa.table(_sheet_columns(labels)), file))
)
writers.register("xlsx", summary="the same for Excel", place=70)(Writer("to-xlsx.xlsx", _write_xlsx))
