"""Read FILE and the files of gold labels, and answer each question of FILE."""

from __future__ import annotations

import dataclasses
import functools
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import typer

from dissensus.cli import exceptions as faults
from dissensus.cli import show
from dissensus.cli.errors import prefix_errors, render_for_command_line
from dissensus.cli.face import GOLD_FACE, make_face
from dissensus.cli.options import JSON, option
from dissensus.exceptions import DataError, DataWarning, DissensusError, UnknownClass
from dissensus.messages import ParameterName

if TYPE_CHECKING:
    from dissensus.table.annotations import Annotations
    from dissensus.table.import_report import ImportReport

T = TypeVar("T")
Tables = dict[str | None, "Annotations"]
"""Question → its table; None → the one table of a file without questions."""
Kind = Literal["classes", "graded", "numbers", "pairs", "sets", "objects", "spans"]  # `table.kinds.KIND_DESCRIPTIONS`
READING_PANEL = "Reading FILE"  # panel of the help
NUMBER_COLUMNS = ("gold", "value", "score", "rating")  # names of the column of gold numbers that are tried
COMMANDS_FOR_ANY_KIND = (
    "describe", "aggregate", "calibrate", "diagnose", "recommend", "report", "adjudicate",
)  # fmt: skip
"""Commands for all label types; the other commands need classes."""


def _column_option(content: str) -> Any:
    return option(None, f"Column of the {content}.", metavar="COLUMN", panel=READING_PANEL)


def _make_format_option(*names: str) -> Any:
    return option(None, "Format of FILE; by default it is detected.", *names, metavar="FORMAT", panel=READING_PANEL)


@dataclass(frozen=True)
class Source:
    """FILE, the options for reading it, and --json."""

    json: bool = JSON
    named: str = typer.Argument(
        ...,
        metavar="FILE",
        show_default=False,
        help="One row per annotation or a column per annotator: CSV, TSV, JSON lines (also packed), Parquet, Arrow, "
        "Excel, ODS, a folder of these, - for standard input, an export of Label Studio, Argilla, doccano or Prodigy, "
        "a log of judges by Inspect, promptfoo, Langfuse or lm-evaluation-harness.",
    )
    item: str | None = _column_option("items (found if called item, task, id, …); A,B if two identify an item together")
    annotator: str | None = _column_option("annotators (annotator, worker, rater, …); of a wide table, A,B,…")
    label: str | None = _column_option("labels (label, answer, annotation); of an export, the question to read")
    question: str | None = _column_option("questions, each a table of its own")
    weight: str | None = _column_option("weights of the rows")
    classes: str | None = option(
        None, "All classes, in this order; other labels are an error.", metavar="A,B,…", panel=READING_PANEL
    )
    abstain: list[str] | None = option(
        None, 'An answer that is not a class ("" for an empty one); repeatable.', metavar="LABEL", panel=READING_PANEL
    )
    wide: bool = option(False, "FILE has a column per annotator.", "--wide", panel=READING_PANEL)
    ticks: Literal["votes", "questions"] | None = option(
        None,
        "How to read answers that select several labels: one vote for each, or a yes/no question per label.",
        panel=READING_PANEL,
    )
    normalize: bool = option(
        False, "Treat labels that differ only by capitals or spaces as one.", "--normalize", panel=READING_PANEL
    )
    map: list[str] | None = option(
        None, "Rename a label (OLD= for no answer), or all in a FILE of two columns; repeatable.", "--map",
        metavar="OLD=NEW", panel=READING_PANEL,
    )  # fmt: skip
    many_classes: bool = option(False, "Accept nearly as many classes as rows.", "--many-classes", panel=READING_PANEL)
    kind: Kind | None = option(None, "The label type; guessed by default.", panel=READING_PANEL)
    input_format: str | None = _make_format_option("--format", "--input-format")

    def read_tables(self, *, any_kind: bool | None = None, command: str = "", **for_one_question: Any) -> Tables:
        """Read FILE: return one table per question, or a single table.

        Options in `for_one_question` must not be used if FILE has several questions. If `any_kind` is True, the caller
        checks the label type; if it is None, `COMMANDS_FOR_ANY_KIND` decides whether labels must be classes. Errors
        name the `command`.
        """
        from dissensus.table.io import read
        from dissensus.table.kinds import CLASS_KINDS, check_kind

        invocation = show.current_invocation.get()
        if invocation.own_process:
            _preload_arrow()
        same = ("item", "annotator", "label", "question", "weight", "normalize", "many_classes")
        with show.show_progress(f"reading {self.file}"):
            result: Any = read(
                self.named,
                format=self.input_format,
                classes=self.class_names(),
                abstain=self.abstain or (),
                wide=self.wide or None,
                ticks=self.ticks,
                kind=self.kind,
                map=self._mapping() if self.map else {},
                **{name: getattr(self, name) for name in same},
            )
        tables: Tables = dict(result) if isinstance(result, Mapping) else {None: result}
        if not (invocation.command in COMMANDS_FOR_ANY_KIND if any_kind is None else any_kind):
            every, tables = tables, _select_class_questions(tables)
            self.question_names.extend(str(name) for name, table in every.items() if table is tables.get(None))
            for table in tables.values():
                check_kind(table.kind, CLASS_KINDS, f"dissensus {command or invocation.command}")
        if (reading := next(iter(tables.values())).import_report) is not None:
            self.announce_import(reading)
        for name, given in for_one_question.items():
            if given is not None and None not in tables:
                raise faults.OneQuestionOnly(option=ParameterName(name))
        return tables

    def announce_import(self, reading: ImportReport) -> None:
        """Store the import report for --json; without --json, print it above the results."""
        self.import_report.update(reading.to_dict())
        if not self.json:
            show.announce_lines(map(show.escape, reading.render_lines(make_face(show.current_invocation.get()))))

    def read_single_table(self) -> Annotations:
        """Return the table of FILE; raise ManyQuestions if it has several questions."""
        tables = self.read_tables()
        if None not in tables:
            source = next(iter(tables.values())).import_report
            by_label = source is not None and bool(source.item_fields)
            raise faults.ManyQuestions(
                file=self.file, count=len(tables), question=str(next(iter(tables))), by_label=by_label
            )
        return tables[None]

    def read_two_files(self, old: str, **for_one_question: Any) -> tuple[Tables, Tables]:
        """Return the tables of an earlier file and of FILE, which must have the same questions."""
        before, after = dataclasses.replace(self, named=old).read_tables(), self.read_tables(**for_one_question)
        if (None in before) != (None in after):
            raise faults.OtherQuestions(old=old, new=self.named)
        for question in after:
            if question not in before:
                raise faults.QuestionMissing(question=show.shorten(question), old=old, new=self.named)
        return before, after

    def print_answers(
        self, answers: dict[str | None, T], show_one: Callable[[str, T], None],
        facts: Callable[[Any], dict[str, Any]] = dict, *, output: Path | None = None,
        kept: tuple[str, str] | None = None, frame: Callable[[Any], Any] = lambda answer: answer.to_frame(),
        **head: Any,
    ) -> None:  # fmt: skip
        """Print the answers of `answer_each`: their facts as one JSON object, or each as text below its title.

        The frame of a single answer is written to `output`; `kept` describes it, and what -o would write.
        """
        if output is not None and kept is not None:
            from dissensus.cli.folder import write_file

            write_file(frame(answers[None]), output)
        if self.json:
            found = {question: facts(answer) for question, answer in answers.items()}
            self.print_json(head | show.format_paths(output=output) | found.get(None, {"questions": found}))
            return
        for question, answer in answers.items():
            show_one(self.make_title(question), answer)
        if kept is not None:
            show.print_written(output, *kept)

    def print_json(self, facts: dict[str, Any], **files: Path | None) -> None:
        """Print facts as JSON, after FILE and its import report; `files` were written."""
        show.print_json({"file": show.format_path(self.file), "reading": self.import_report} | facts, **files)

    @property
    def file(self) -> Path:
        """FILE as a path; `named` also keeps the double slash of an address such as s3://bucket."""
        return Path(self.named)

    @property
    def holds_texts(self) -> bool:
        """Whether FILE is an export with the texts of its items, which is known after reading."""
        return self.named != "-" and "text" in self.import_report.get("columns", {}) and "answers" in self.import_report

    @functools.cached_property
    def import_report(self) -> dict[str, Any]:
        """The import report of FILE as plain values; empty until FILE is read."""
        return {}

    @functools.cached_property
    def question_names(self) -> list[str]:
        """Names that an earlier run may have used for the only question: --label, or the only question with classes."""
        return [] if self.label is None else [self.label]

    def _mapping(self) -> dict[str, str]:
        """Return the labels to rename, from OLD=NEW or from the first two columns of a file."""
        from dissensus.table.io import read_frame

        new_names: dict[str, str] = {}
        for entry in self.map or ():
            old, equals, new = entry.partition("=")
            if equals:
                new_names[old] = new
                continue
            frame = read_frame(entry)
            if frame.num_columns < 2:
                raise faults.NoMapping(entry=entry)
            pairs = zip(*(frame.column(k).to_pylist() for k in (0, 1)), strict=True)
            new_names |= {str(old): "" if new is None else str(new) for old, new in pairs}
        return new_names

    def class_names(self) -> list[str] | None:
        """Return the classes that --classes declares."""
        return None if self.classes is None else [part.strip() for part in self.classes.split(",")]

    def make_title(self, question: str | None) -> str:
        """Return the title of a result."""
        file = "standard input" if self.named == "-" else str(self.file)
        return file if question is None else f"{file}, question {show.shorten(question)}"


@dataclass(frozen=True)
class SourceOfTables(Source):
    """The FILE argument of commands where --format sets the output format."""

    input_format: str | None = _make_format_option("--input-format")


@dataclass(frozen=True)
class Gold:
    """A file of gold labels that measure accuracy, and the options for reading it."""

    gold: Path | None = option(
        None, "Labels known to be right: hidden from the method, and used to measure accuracy.", metavar="FILE"
    )
    gold_item: str | None = option(None, "Column of the items in --gold.", metavar="COLUMN")
    gold_label: str | None = option(None, "Column of the labels in --gold.", metavar="COLUMN")

    @property
    def scoring_file(self) -> Path | None:
        """The file of the gold labels that measure accuracy."""
        return self.gold

    @property
    def training_file(self) -> Path | None:
        """The file of the gold labels that the method is trained on."""
        return None

    def file_facts(self) -> dict[str, str]:
        """Return the files of gold labels for the summary and for --json."""
        return show.format_paths(gold_file=self.gold)

    def read_scoring(self, table: Annotations) -> Any:
        """Return the gold codes (I,) against which accuracy is measured, −1 where unknown, or None without gold.

        Without a file of gold labels, those in FILE are used. For a table of numbers, the result has numbers, and NaN
        where gold is unknown.
        """
        if table.kind == "pairs":
            if self.gold is not None:
                raise faults.NotForLabels(option=ParameterName("gold"), kind="comparisons of two alternatives")
            return None
        if self.scoring_file is None and table.import_report is not None and table.import_report.gold is not None:
            try:
                if table.kind == "numbers":
                    return table.gold_values(*table.import_report.gold)
                return table.gold_codes(*table.import_report.gold)
            except UnknownClass as error:
                warnings.warn(faults.GoldIgnored(reason=render_for_command_line(error)), stacklevel=2)
                return None
        return self._read_file(self.scoring_file, table)

    def read_training(self, table: Annotations) -> Any:
        """Return the gold codes (I,) that the method is trained on, −1 where unknown, or None without such a file."""
        return self._read_file(self.training_file, table)

    def _read_file(self, path: Path | None, table: Annotations) -> Any:
        from dissensus.table.io import check_gold_items, gold_codes, gold_values

        if path is None:
            return None
        numbers = table.kind == "numbers"
        columns = self.columns(path, table, NUMBER_COLUMNS if numbers else ())
        with self._own_options(path):
            check_gold_items(columns[0], table)
            return (gold_values if numbers else gold_codes)(table, *columns)

    def include_gold_classes(self, table: Annotations) -> Annotations:
        """Add gold answers that no annotator gave to the classes of a table of sets or objects."""
        if table.kind not in ("sets", "objects"):
            return table
        source = table.import_report
        columns = [] if source is None or source.gold is None else [source.gold]
        columns += [self.columns(path) for path in (self.scoring_file, self.training_file) if path]
        for _, labels in columns:
            table = table.with_added_classes(labels)
        return table.with_import_report(source)

    def columns(self, path: Path, table: Annotations | None = None, usual: tuple[str, ...] = ()) -> tuple[Any, Any]:
        """Return the columns of items and labels of a gold file.

        The column of items is the one of --gold-item, or the one with the same name as in FILE.
        """
        from dissensus.table.io import read_gold_columns

        with self._own_options(path):
            item = self.gold_item or (None if table is None else find_gold_item_column(table, path))
            return read_gold_columns(path, item, self.gold_label, usual)

    @contextmanager
    def _own_options(self, path: Path) -> Iterator[None]:
        """Name --gold-item and --gold-label instead of --item and --label in errors about a gold file."""
        try:
            with show.show_progress(f"reading {path}"):
                yield
        except DissensusError as error:
            vars(error)["face"] = GOLD_FACE  # used by `render_for_command_line`
            raise


@dataclass(frozen=True)
class TrainingGold(Gold):
    """Gold labels that train the method or measure its accuracy, or two files for both uses."""

    gold: Path | None = option(
        None, "Labels known to be right: the method is trained on them, which calibrates its confidence.",
        metavar="FILE",
    )  # fmt: skip
    gold_use: Literal["train", "score"] = option(
        "train", "What --gold is for; score: hide it from the method and measure accuracy with it."
    )
    score_gold: Path | None = option(
        None, "More labels known to be right, to measure accuracy with while --gold trains.", metavar="FILE"
    )

    def __post_init__(self) -> None:
        if self.score_gold is not None and self.gold_use == "score":
            raise faults.OptionsConflict(option=ParameterName("score_gold"), other_option="--gold-use score")

    @property
    def scoring_file(self) -> Path | None:
        """The file of the gold labels that measure accuracy."""
        return self.gold if self.gold_use == "score" else self.score_gold

    @property
    def training_file(self) -> Path | None:
        """The file of the gold labels that the method is trained on."""
        return self.gold if self.gold_use == "train" else None

    def check_scoring_only(self, other: str) -> None:
        """Raise GoldOnlyScores if --gold would train, but `other` leaves nothing to train."""
        if self.training_file is not None:
            raise faults.GoldOnlyScores(option=other)

    def file_facts(self) -> dict[str, str]:
        """Return the files of gold labels for the summary and for --json."""
        use = {} if self.gold is None else {"gold_use": self.gold_use}
        return show.format_paths(gold_file=self.gold, score_gold_file=self.score_gold) | use


def find_gold_item_column(table: Annotations, path: Path) -> str | None:
    """Return the name of the item column of FILE if the gold file has a column of the same name, else None."""
    from dissensus.table.io import read_frame

    name = "" if table.import_report is None else table.import_report.columns.get("item", "")
    name = name.split("'")[1] if name.startswith("'") else ""
    return name if name and name in read_frame(path).column_names else None


def answer_each(
    tables: Tables, answer: Callable[[Annotations, str | None], T], *, every: bool = False
) -> dict[str | None, T]:
    """Return question → answer, or None → answer for a single table; errors and warnings name the question.

    A question without an answer is skipped with a warning if another has one, and an error if `every` must have one.
    """
    answers: dict[str | None, T] = {}
    failed: list[DataError] = []
    for question, table in tables.items():
        try:
            with nullcontext() if question is None else prefix_errors(f"question {show.shorten(question)!r}"):
                answers[question] = answer(table, question)
        except DataError as error:
            failed.append(error)
            if every:
                break
    if failed and (every or not answers):
        raise failed[0]
    for skipped in failed:
        warnings.warn(DataWarning(render_for_command_line(skipped)), stacklevel=2)
    return answers


def _select_class_questions(tables: Tables) -> Tables:
    """Return the questions with classes if there are any, and add a note about the other questions."""
    from dissensus.table.kinds import CLASS_KINDS
    from dissensus.table.notes import QuestionsOfOtherTypes

    chosen = {question: table for question, table in tables.items() if table.kind == "classes"}
    if not chosen or len(chosen) == len(tables):
        return tables
    skipped = [
        f"{question!r} ({table.kind}" + (f"; --label {question!r} reads it)" if table.kind in CLASS_KINDS else ")")
        for question, table in tables.items()
        if question not in chosen
    ]
    if (reading := next(iter(chosen.values())).import_report) is not None:
        reading.add_note(QuestionsOfOtherTypes(questions=", ".join(skipped)))
    return chosen if len(chosen) > 1 else {None: next(iter(chosen.values()))}


def _preload_arrow() -> None:
    """Keep pyarrow from importing pandas, which takes 0.3 s and which no command needs."""
    if "pandas" not in sys.modules:
        import pyarrow

        sys.modules["pandas"] = None  # type: ignore[assignment]  # makes its import fail
        for _ in range(2):  # pyarrow tries the import once in Cython and once in C++
            with suppress(ImportError, AttributeError):
                pyarrow.array([0]).to_numpy()
        del sys.modules["pandas"]
