"""Options that several commands share, each declared once.

A parameter of a command whose type is a group of options, such as `Source`, stands for all fields of the group:

    def compare(*, gold: Gold, share: float = option(0.2, "…"), source: Source) -> None: ...
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from glob import glob
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_type_hints

import typer

from dissensus.cli import show
from dissensus.cli.errors import prefix_errors
from dissensus.cli.face import COMMAND_LINE, GOLD_FILE
from dissensus.common.atomic import reading_only
from dissensus.common.registry import DEFAULT_METHOD
from dissensus.exceptions import BadParameter, DataError, DataWarning, DissensusError

if TYPE_CHECKING:
    from dissensus.models.base import Aggregator
    from dissensus.table.annotations import Annotations
    from dissensus.table.reading import Reading

T = TypeVar("T")
Tables = dict[str | None, "Annotations"]
"""Question → its table; None → the one table of a file without questions."""
own_process = False  # True where `dissensus` is the process, not a function called in somebody's
Engine = Literal["local", "disk", "torch", "spark"]
Kind = Literal["classes", "graded", "numbers", "pairs", "sets", "objects", "spans"]  # `table.kinds.KINDS`
READING = "Reading FILE"  # panel of the help
WRITTEN = ("output", "next_file")  # parameters that name files to write
NUMBERS = ("gold", "value", "score", "rating")  # columns of known numbers, where none is named
ANY_KIND = (
    "describe", "aggregate", "agreement", "calibrate", "compare", "diagnose", "recommend", "report", "adjudicate",
)  # fmt: skip
"""Commands for all kinds of labels; the others are for classes."""


def option(default: Any, text: str, *names: str, panel: str | None = None, **more: Any) -> Any:
    """An option of a command; its name is that of the parameter where no other is given, `...` is no default."""
    return typer.Option(default, *names, help=text, rich_help_panel=panel, **more)


JSON = option(False, "Print one JSON object instead.", "--json")
QUIET = option(False, "Print no text and no progress; --json, warnings and errors stay.", "--quiet", "-q")
SEED = option(None, "Of everything random; 0 where left out.", min=0)
DEVICE = option(None, "auto, cpu, cuda, cuda:1, mps.", show_default="auto")
OUTPUT_FOLDER = option(
    None, "Write the results here; left out, they are only shown.", "--output", "-o", metavar="FOLDER"
)
OUTPUT_FILE = option(
    None, "Write a .csv, .parquet or .jsonl file; left out, nothing is written.", "--output", "-o", metavar="OUT"
)


def _method_names() -> list[str]:
    """For completion: by the names of their files and entry points, as importing them takes a second."""
    from importlib.metadata import entry_points

    folder = Path(__file__).parent.parent / "models" / "methods"
    ours = [path.stem.replace("_", "-") for path in folder.glob("[a-z]*.py")]
    return sorted([*ours, *entry_points(group="dissensus.methods").names])


METHOD = option(
    None, "`dissensus methods` lists them.", "--method", "-m", metavar="NAME", show_default=DEFAULT_METHOD,
    autocompletion=_method_names,
)  # fmt: skip
TO = option(
    None,
    "Write the labels for a tool too, as to-TOOL: label-studio, argilla, doccano, prodigy, inspect, promptfoo, "
    "conll, csv, jsonl or xlsx. An export of the same tool keeps all that is in it.",
    metavar="TOOL",
    autocompletion=lambda: list(import_module("dissensus.table.io.writers").writers),
)
SETTINGS = option(None, "Any keyword of the method, such as smoothing=0.5; repeatable.", "--set", metavar="KEY=VALUE")
KNOWN = option(None, "Known labels of some items, to learn from; --gold leaves them out of scores.", metavar="GOLD")
PEOPLE = option(None, "A table about the annotators: column annotator, groups they belong to.", metavar="PEOPLE")
ITEMS = option(None, "A table about the items: column item, texts, pictures as data URIs, others.", metavar="ITEMS")


@dataclass(frozen=True)
class Fit:
    """The method to fit; a wrong name or keyword is an error at once, before any file is read."""

    method: str | None = METHOD
    setting: list[str] | None = SETTINGS

    def __post_init__(self) -> None:
        self.model()

    def model(self, kind: str = "classes") -> Aggregator:
        """A model that is not fitted: the one named, or that for a kind of labels."""
        return new_model(self.method, self.setting, kind)

    def name(self, tables: Tables) -> str:
        """The method that is fitted to these tables."""
        from dissensus.models.base import default_method

        return self.method or default_method(next(iter(tables.values())).kind)


def item_column(table: Annotations, path: Path) -> str | None:
    """The column of items of FILE, where a file of known labels has one of that name."""
    from dissensus.table.io import read_frame

    name = "" if table.source is None else table.source.columns.get("item", "")
    name = name.split("'")[1] if name.startswith("'") else ""
    return name if name and name in read_frame(path).column_names else None


@dataclass(frozen=True)
class Gold:
    """A file of known labels, and how to read it."""

    gold: Path | None = option(
        None, "Known labels, to measure accuracy by those that the method does not see.", metavar="GOLD"
    )
    gold_item: str | None = option(None, "GOLD's column of items.", metavar="COLUMN")
    gold_label: str | None = option(None, "GOLD's column of labels.", metavar="COLUMN")

    def read(self, table: Annotations) -> Any:
        """(I,) class codes, −1 where unknown, from the file named, else from FILE; None where neither has one.

        Of a table of numbers they are numbers, NaN where unknown.
        """
        if table.kind == "pairs":
            if self.gold is not None:
                raise BadParameter("--gold has no meaning for comparisons of two things; leave it out.")
            return None
        if self.gold is None and table.source is not None and table.source.gold is not None:
            from dissensus.exceptions import UnknownClass

            try:
                if table.kind == "numbers":
                    return table.gold_values(*table.source.gold)
                return table.gold_codes(*table.source.gold)
            except UnknownClass as error:
                why = error.render(COMMAND_LINE)
                warnings.warn(f"the known labels in FILE are not used: {why}", DataWarning, stacklevel=2)
                return None
        return self.read_file(self.gold, table)

    def read_file(self, path: Path | None, table: Annotations) -> Any:
        """The same from another file, if any, with the same columns."""
        from dissensus.table.io import check_gold_items, gold_codes, gold_values

        if path is None:
            return None
        numbers = table.kind == "numbers"
        columns = self.columns(path, table, NUMBERS if numbers else ())
        with self._explained(path):
            check_gold_items(columns[0], table)
            return (gold_values if numbers else gold_codes)(table, *columns)

    def include(self, table: Annotations, known: Path | None) -> Annotations:
        """A table of sets or objects with those too that nobody gave and that are known of some item."""
        if table.kind not in ("sets", "objects"):
            return table
        source = table.source
        columns = [] if source is None or source.gold is None else [source.gold]
        columns += [self.columns(path) for path in (self.gold, known) if path is not None]
        for _, labels in columns:
            table = table.including(labels)
        return table.with_source(source)

    def columns(self, path: Path, table: Annotations | None = None, usual: tuple[str, ...] = ()) -> tuple[Any, Any]:
        """The columns of items and labels of a file; a column called as that of the items of FILE comes first."""
        from dissensus.table.io import gold_columns

        with self._explained(path):
            item = self.gold_item or (None if table is None else item_column(table, path))
            return gold_columns(path, item, self.gold_label, usual)

    @contextmanager
    def _explained(self, path: Path) -> Iterator[None]:
        try:
            with show.waiting(f"reading {path}"):
                yield
        except DissensusError as error:  # its columns have options of their own
            raise type(error)(error.render(GOLD_FILE)) from error.__cause__


@dataclass(frozen=True)
class InputFiles:
    """The file of what a model learns from besides labels, and its columns."""

    items: Path | None = ITEMS
    text: str | None = option(None, "ITEMS' column of texts (text, sentence, …).", metavar="COLUMN")
    pair: str | None = option(None, "ITEMS' column of a second text, such as a target.", metavar="COLUMN")
    position: str | None = option(None, "ITEMS' column of a token's place in its text.", metavar="COLUMN")
    features: Path | None = option(None, ".npz with arrays item and x, or a table: item and numbers.", metavar="FILE")
    images: Path | None = option(None, ".npz with arrays item and x (n, H, W[, C]).", metavar="FILE")

    @property
    def names_columns(self) -> bool:
        """True if a column of a table is named, so that the inputs are in a table."""
        return any((self.text, self.pair, self.position))


def _column(text: str) -> Any:
    return option(None, f"Column of the {text}.", metavar="COLUMN", panel=READING)


def _input_format(*names: str) -> Any:
    return option(None, "FILE's format, where it is not seen.", *names, metavar="FORMAT", panel=READING)


@dataclass(frozen=True)
class Source:
    """FILE, how to read it, and whether to answer as JSON."""

    json: bool = JSON
    named: str = typer.Argument(
        ...,
        metavar="FILE",
        show_default=False,
        help="One row per annotation or a column per annotator: CSV, TSV, JSON lines (also packed), Parquet, Arrow, "
        "Excel, ODS, a folder of these, - for standard input, an export of Label Studio, Argilla, doccano or Prodigy, "
        "a log of judges by Inspect, promptfoo, Langfuse or lm-evaluation-harness.",
    )
    item: str | None = _column("items (found where called item, task, id, …); A,B where two name it together")
    annotator: str | None = _column("annotators (annotator, worker, rater, …); of a wide table, A,B,…")
    label: str | None = _column("labels (label, answer, annotation); of an export, the question to read")
    question: str | None = _column("questions, each a table of its own")
    weight: str | None = _column("weights of the rows")
    classes: str | None = option(
        None, "All classes, in this order; a label outside is an error.", metavar="A,B,…", panel=READING
    )
    abstain: list[str] | None = option(
        None, 'An answer that is no class ("" for an empty one); repeatable.', metavar="LABEL", panel=READING
    )
    wide: bool = option(False, "FILE has a column per annotator.", "--wide", panel=READING)
    ticks: Literal["votes", "questions"] | None = option(
        None, "Where answers tick several labels: a vote each, or a yes/no question per label.", panel=READING
    )
    normalize: bool = option(
        False, "Take labels that differ by capitals or spaces for one.", "--normalize", panel=READING
    )
    map: list[str] | None = option(
        None, "Rename a label (OLD= for no answer), or all in a FILE of two columns; repeatable.", "--map",
        metavar="OLD=NEW", panel=READING,
    )  # fmt: skip
    many_classes: bool = option(False, "Accept nearly as many classes as rows.", "--many-classes", panel=READING)
    kind: Kind | None = option(
        None, "What labels are; guessed where left out.",
        panel=READING,
    )  # fmt: skip
    input_format: str | None = _input_format("--format", "--input-format")

    def read(self, *, any_kind: bool = False, **of_one_question: Any) -> Tables:
        """Return the table, or one per question; options `of_one_question` are an error for a file of several.

        `any_kind`: the command checks the label type itself.
        """
        from dissensus.table.io import read
        from dissensus.table.kinds import CLASS_KINDS, check_kind

        if own_process:
            hide_pandas()
        same = ("item", "annotator", "label", "question", "weight", "normalize", "many_classes")
        with show.waiting(f"reading {self.file}"):
            found: Any = read(
                self.named,
                format=self.input_format,
                classes=self.class_names(),
                abstain=self.abstain or (),
                wide=self.wide or None,
                ticks=self.ticks,
                kind=self.kind,
                map=self._renamed(),
                **{name: getattr(self, name) for name in same},
            )
        tables: Tables = dict(found) if isinstance(found, Mapping) else {None: found}
        if not any_kind and show.command not in ANY_KIND:
            several, tables = tables, _of_classes(tables)
            self.left.extend(str(name) for name, table in several.items() if table is tables.get(None))
            for table in tables.values():
                check_kind(table.kind, CLASS_KINDS, f"dissensus {show.command}")
        if (reading := next(iter(tables.values())).source) is not None:
            self.tell(reading)
        for name, given in of_one_question.items():
            if given is not None and None not in tables:
                raise BadParameter(f"--{name} is for a file of one question; take each question by itself.")
        return tables

    def tell(self, reading: Reading) -> None:
        """Keep how FILE was read for JSON, and say it to people above the results."""
        self.account.update(reading.facts())
        if not self.json:
            show.announce(map(show.clean, reading.lines(COMMAND_LINE)))

    def read_one(self) -> Annotations:
        """The table; an error where there are several questions."""
        tables = self.read()
        if None not in tables:
            source = next(iter(tables.values())).source
            how = f"--label {next(iter(tables))}" if source and source.texts else "in a file of its own"
            raise BadParameter(f"{self.file} has {len(tables):,} questions; take each by itself: {how}.")
        return tables[None]

    def read_both(self, old: str, **of_one_question: Any) -> tuple[Tables, Tables]:
        """The tables of an earlier file, and those of FILE, which must have the same questions."""
        before, after = dataclasses.replace(self, named=old).read(), self.read(**of_one_question)
        if (None in before) != (None in after):
            raise BadParameter(
                f"one of {old} and {self.file} has several questions, the other has one; compare like files."
            )
        for question in after:
            if question not in before:
                said = f"{old} has no such question; take it out of {self.file}."
                raise DataError(f"question {show.name(question)!r}: {said}")
        return before, after

    def print_each(
        self, answers: dict[str | None, T], show_one: Callable[[str, T], None],
        facts: Callable[[Any], dict[str, Any]] = dict, *, output: Path | None = None,
        kept: tuple[str, str] | None = None, frame: Callable[[Any], Any] = lambda answer: answer.to_frame(),
        **head: Any,
    ) -> None:  # fmt: skip
        """Print the answers of `answer_each`: their facts as one JSON object, or each for people below its title.

        The frame of the one answer is written to `output`; `kept` says what is there, or what -o would keep.
        """
        if output is not None and kept is not None:
            from dissensus.cli.folder import write_file

            write_file(frame(answers[None]), output)
        if self.json:
            found = {question: facts(answer) for question, answer in answers.items()}
            self.print_json(head | show.paths(output=output) | found.get(None, {"questions": found}))
            return
        for question, answer in answers.items():
            show_one(self.title(question), answer)
        if kept is not None:
            show.written(output, *kept)

    def print_json(self, facts: dict[str, Any], **files: Path | None) -> None:
        """Print facts as JSON, after which FILE they are of and how it was read; `files` were written."""
        show.json({"file": show.path(self.file), "reading": self.account} | facts, **files)

    @property
    def file(self) -> Path:
        """What is named, as a path; an address such as s3://bucket is none, and keeps its slashes in `named`."""
        return Path(self.named)

    @property
    def holds_texts(self) -> bool:
        """True where FILE, once read, is an export with texts of its items."""
        return self.named != "-" and "text" in self.account.get("columns", {}) and "answers" in self.account

    @functools.cached_property
    def left(self) -> list[str]:
        """What the one question of an export may be called: by --label, or the only one of classes."""
        return [] if self.label is None else [self.label]

    @functools.cached_property
    def account(self) -> dict[str, Any]:
        """How FILE was read, as plain values; empty before."""
        return {}

    def _renamed(self) -> dict[str, str]:
        """What --map says: OLD=NEW, or a file whose first two columns are the old and the new labels."""
        from dissensus.table.io import read_frame

        found: dict[str, str] = {}
        for entry in self.map or ():
            old, equals, new = entry.partition("=")
            if equals:
                found[old] = new
                continue
            frame = read_frame(entry)
            if frame.num_columns < 2:
                raise BadParameter(f"--map {entry}: expected a column of old and one of new labels, or OLD=NEW.")
            pairs = zip(*(frame.column(k).to_pylist() for k in (0, 1)), strict=True)
            found |= {str(old): "" if new is None else str(new) for old, new in pairs}
        return found

    def class_names(self) -> list[str] | None:
        """What --classes declares."""
        return None if self.classes is None else [part.strip() for part in self.classes.split(",")]

    def title(self, question: str | None) -> str:
        """What a result is about."""
        file = "standard input" if self.named == "-" else str(self.file)
        return file if question is None else f"{file}, question {show.name(question)}"


@dataclass(frozen=True)
class SourceOfTables(Source):
    """FILE of a command whose own --format is that of the tables which it writes."""

    input_format: str | None = _input_format("--input-format")


def hide_pandas() -> None:
    """Let pyarrow find no pandas: else it imports it at the first array, for 0.3 s, and no command has such a frame."""

    class Hidden:
        @staticmethod
        def find_spec(name: str, path: Any = None, target: Any = None) -> None:
            if name == "pandas":
                raise ModuleNotFoundError(name=name)

    sys.meta_path.insert(0, Hidden)
    try:
        import pyarrow

        pyarrow.array([0]).to_numpy()  # both look for it once
    finally:
        sys.meta_path.remove(Hidden)


def _of_classes(tables: Tables) -> Tables:
    """The questions with classes, where there are such beside others; a note says what the others are called."""
    from dissensus.table.kinds import CLASS_KINDS
    from dissensus.table.notes import OtherKinds

    chosen = {question: table for question, table in tables.items() if table.kind == "classes"}
    if not chosen or len(chosen) == len(tables):
        return tables
    aside = [
        f"{question!r} ({table.kind}" + (f"; --label {question!r} takes it)" if table.kind in CLASS_KINDS else ")")
        for question, table in tables.items()
        if question not in chosen
    ]
    if (reading := next(iter(chosen.values())).source) is not None:
        reading.add_note(OtherKinds(questions=", ".join(aside)))
    return chosen if len(chosen) > 1 else {None: next(iter(chosen.values()))}


def answer_each(
    tables: Tables, answer: Callable[[Annotations, str | None], T], *, every: bool = False
) -> dict[str | None, T]:
    """Question → answer, or None → answer where there is one table; errors and warnings name the question.

    A question whose labels give no answer is left out with a warning, if another has one; not if `every` must have.
    """
    found: dict[str | None, T] = {}
    failed: list[DataError] = []
    for question, table in tables.items():
        try:
            with nullcontext() if question is None else prefix_errors(f"question {show.name(question)!r}"):
                found[question] = answer(table, question)
        except DataError as error:
            failed.append(error)
            if every:
                break
    if failed and (every or not found):
        raise failed[0]
    for one in failed:
        warnings.warn(str(one), DataWarning, stacklevel=2)
    return found


def new_model(method: str | None, settings: list[str] | None, kind: str = "classes") -> Aggregator:
    """A method by name, or that for a kind of labels, with KEY=VALUE settings; a wrong name or keyword is an error."""
    from dissensus.cli.keywords import parse
    from dissensus.models.base import default_method, methods

    method = method or default_method(kind)
    return methods[method](**parse(settings or [], methods[method], method, taken=["engine"]))


def named_files(given: Mapping[str, Any]) -> Iterator[Path]:
    """Every file that options name but those that are written: by itself, by a pattern, or by its folder."""
    for name, value in given.items():
        for one in value if isinstance(value, list) else [value]:
            if name in WRITTEN or not isinstance(one, str | Path):
                continue
            found = [Path(one)]
            if set("*?[") & set(str(one)):
                found += map(Path, glob(str(one), recursive=True))  # noqa: PTH207 - absolute patterns too
            for path in found:
                with suppress(OSError, ValueError):  # a text may be no path
                    if path.is_file():
                        yield path
                    elif path.is_dir() and (isinstance(one, Path) or name == "named"):
                        yield from _files_of_run(path)


def _files_of_run(folder: Path) -> Iterator[Path]:
    """The files of a folder and, where a run of ours wrote it, of its sub-folders; no page, nor what goes with one."""
    from dissensus.cli.folder import SUMMARY

    inside = [*folder.glob("*"), *(folder.glob("*/*") if (folder / SUMMARY).is_file() else ())]
    for path in inside:
        pages = (path.with_name(path.stem.removesuffix("-key") + suffix) for suffix in (".html", ".htm"))
        if path.is_file() and not any(page.exists() for page in pages):
            yield path


def with_options(command: Callable[..., None], name: str) -> Callable[..., None]:
    """The command as typer calls it: a parameter whose type is a group of options becomes the group's fields.

    Every command has --quiet too, its name in the JSON, and lines of progress where stderr is a pipe.
    """
    from dissensus.common import progress

    groups: dict[str, Any] = {}
    expanded: list[inspect.Parameter] = []
    for one in inspect.signature(command, eval_str=True).parameters.values():
        if not dataclasses.is_dataclass(one.annotation):
            expanded.append(one)
            continue
        groups[one.name] = one.annotation
        hints = get_type_hints(one.annotation)
        expanded += [
            inspect.Parameter(field.name, one.KEYWORD_ONLY, default=field.default, annotation=hints[field.name])
            for field in dataclasses.fields(one.annotation)
        ]
    expanded.append(inspect.Parameter("quiet", inspect.Parameter.KEYWORD_ONLY, default=QUIET, annotation=bool))

    @functools.wraps(command)
    def run(*, quiet: bool, **given: Any) -> None:
        show.command = name
        inputs = list(named_files(given))
        for parameter, group in groups.items():
            given[parameter] = group(**{field.name: given.pop(field.name) for field in dataclasses.fields(group)})
        with progress.output(quiet=quiet, lines=own_process), reading_only(inputs):
            command(**given)

    # typer reads one of these two, by its version
    run.__signature__ = inspect.Signature(expanded)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in expanded}
    del run.__dict__["__wrapped__"]  # else it would look through to the command
    return run
