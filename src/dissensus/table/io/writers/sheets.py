"""A table of labels, CSV, JSON lines or Excel, whose columns have the names that they had in the file that was read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from dissensus.common.extras import need
from dissensus.table.io.delimited import write as write_delimited
from dissensus.table.io.files import BinaryFile
from dissensus.table.io.jsonl import write as write_lines
from dissensus.table.io.writers import WRITERS, Labels, Writer


def columns(labels: Labels) -> dict[str, Any]:
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


def write_csv(labels: Labels, file: BinaryFile) -> None:
    """Write a header and one row per label."""
    write_delimited(pa.table(columns(labels)), file)


def write_jsonl(labels: Labels, file: BinaryFile) -> None:
    """Write one object per label."""
    write_lines(pa.table(columns(labels)), file)


def write_xlsx(labels: Labels, file: BinaryFile) -> None:
    """Write one sheet; text stays text, also where it looks like a formula."""
    openpyxl = need("openpyxl", "--to xlsx needs", "excel")
    from openpyxl.cell import WriteOnlyCell

    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("labels")
    made = columns(labels)

    def cell(value: Any) -> Any:
        one = WriteOnlyCell(sheet, value)
        if isinstance(value, str):
            one.data_type = "s"
        return one

    sheet.append([cell(name) for name in made])
    for row in zip(*(values.tolist() for values in made.values()), strict=True):
        sheet.append([cell(value) for value in row])
    book.save(file)


WRITERS.register("csv", summary="a sheet of labels", place=60)(Writer("to-csv.csv", write_csv))
WRITERS.register("jsonl", summary="one label a line", place=65)(Writer("to-jsonl.jsonl", write_jsonl))
WRITERS.register("xlsx", summary="the same for Excel", place=70)(Writer("to-xlsx.xlsx", write_xlsx))
