"""Labels back into the tool that they came from: one file per tool, found by its name in `WRITERS`.

Where the table was read from an export of the same tool, its records are written as they are, with our label added in
the place that the tool has for a model's answer: nothing is lost, and no name changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from dissensus.common.atomic import atomic
from dissensus.common.registry import Registry
from dissensus.common.types import FloatArray, Names
from dissensus.table.io.files import BinaryFile
from dissensus.table.io.jsonl import Record, dumps


class Answers(NamedTuple):
    """The answers to one question."""

    items: Names  # (I,)
    label: Names  # (I,)
    confidence: FloatArray  # (I,)


class Given(NamedTuple):
    """The answer for one item."""

    label: Any
    confidence: float


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


WRITERS: Registry[Writer] = Registry("format to write labels in", "", "dissensus.table.io.writers")


def write_labels(labels: Labels, to: str, folder: str | Path) -> Path:
    """Write labels for a tool into a folder, whole or not at all; the file's path."""
    writer = WRITERS[to]
    path = Path(folder) / writer.file
    with atomic(path) as file:
        writer.write(labels, file)
    return path


def add(name: str, file: str, records: Callable[[Labels], Iterable[Record]], summary: str, place: int) -> None:
    """Enter a tool that takes JSON: one record a line in a .jsonl file, one array in a .json file."""

    def write(labels: Labels, target: BinaryFile) -> None:
        lines = (dumps(record).encode() for record in records(labels))
        if file.endswith(".jsonl"):
            target.writelines(line + b"\n" for line in lines)
            return
        for number, line in enumerate(lines):
            target.write((b",\n" if number else b"[\n") + line)
        target.write(b"\n]\n")

    WRITERS.register(name, summary=summary, place=place)(Writer(file, write))
