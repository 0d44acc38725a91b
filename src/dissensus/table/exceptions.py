"""Errors and warnings about tables, files, simulations and data sets.

Each class has fields for the facts and one template sentence, see `dissensus.messages`. A new error needs a class here
and a line in `tests/messages.txt`, which `python tests/test_messages.py` writes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self

from dissensus.common.types import BoolArray, IntArray
from dissensus.exceptions import (
    BadParameter,
    DataError,
    DataWarning,
    MissingColumn,
    RowsLeftOut,
    UnknownClass,
    UnknownName,
    UnreadableFile,
)
from dissensus.messages import Message, ParameterName, quote_name

# Columns of names, codes and numbers ----------------------------------------------------------------------------------


class BadRows(Message):
    """Some rows of a column have unusable values; templates use `BAD_ROW_COUNT` and `FIRST_BAD_ROW`."""

    column: str
    n_bad: int
    n_rows: int
    row: int  # number of the first bad row, from 0
    value: Any

    @classmethod
    def from_mask(
        cls, column: str, bad: BoolArray, values: Any, row_numbers: IntArray | None = None, **facts: Any
    ) -> Self:
        """Make the message from a mask (N,) of bad rows; `row_numbers` (N,) if the rows are a selection."""
        first = int(bad.argmax())
        row = first if row_numbers is None else int(row_numbers[first])
        value = getattr(values[first], "tolist", lambda: values[first])()
        return cls(column=column, n_bad=int(bad.sum()), n_rows=int(bad.size), row=row, value=value, **facts)


class BadFile(UnreadableFile):
    """A file or folder cannot be used."""

    path: Path


class RoleMessage(Message):
    """A column or field for a role, such as item or annotator, is missing or unusable."""

    role: str

    @property
    def column(self) -> ParameterName:
        return ParameterName(f"{self.role}=<column>")

    @property
    def field(self) -> ParameterName:
        return ParameterName(f"{self.role}=<field>")


class WrongColumn(DataError):
    template = "{column}: expected {expected}, got {description}."
    column: str
    expected: str
    description: str
    example = {"expected": "one dimension", "description": "shape (2, 3)"}


class DuplicateName(DataError):
    template = "{location}: {name!r} occurs {n} times; keep one."
    location: str
    name: Any
    n: int


BAD_ROW_COUNT = "{column}: {n_bad:,} of {n_rows:,}"
FIRST_BAD_ROW = "the first is row {row} (from 0): {value!r}."


class InvalidRows(BadRows, DataError):
    template = f"{BAD_ROW_COUNT} rows {{problem}}; {FIRST_BAD_ROW}"
    problem: Literal[
        "are not whole numbers of at least 0",
        "are negative or missing",
        "hold a negative or missing probability",
        "compare an alternative with itself",
    ]


class ExtremeWeights(BadRows, DataError):
    template = (
        f"{BAD_ROW_COUNT} rows are neither 0 nor between {{low:g}} and {{high:g}}; {FIRST_BAD_ROW} "
        "Divide all weights by their mean."
    )
    low: float
    high: float


class ProbabilitiesNotNormalised(BadRows, DataError):
    template = (
        f"{BAD_ROW_COUNT} rows are not probability distributions; {FIRST_BAD_ROW} "
        "It sums to {total:.6g}; divide each row by its sum."
    )
    total: float


class BadGoldLabels(BadRows, UnknownClass):
    template = (
        f"{BAD_ROW_COUNT} gold labels are not among the table's {{n_classes:,}} classes; {FIRST_BAD_ROW} Declare "
        "all classes when you make the table: {how_to_declare}."
    )
    n_classes: int
    kind: str

    @property
    def how_to_declare(self) -> str:
        return "table.with_added_classes(labels)" if self.kind == "sets" else ParameterName("classes=")


OUTSIDE_CLASSES_TEMPLATE = (
    "column '{column}': {n_bad:,} of {n_rows:,} rows hold a label outside the {n_classes:,} {classes}; " + FIRST_BAD_ROW
)


class LabelOutsideClasses(BadRows, UnknownClass):
    template = (
        f"{OUTSIDE_CLASSES_TEMPLATE} Add it to {{param[classes=]}}, exclude it with {{param[abstain=]}}, "
        "or omit {param[classes=]} to use all labels as classes."
    )
    n_classes: int

    @property
    def classes(self) -> str:
        return "class" if self.n_classes == 1 else "classes"


class LabelUnknownToModel(LabelOutsideClasses):
    template = f"{OUTSIDE_CLASSES_TEMPLATE} A fitted model cannot learn new classes; fit it to all annotations again."


BLANK_ROWS_TEMPLATE = (
    "column '{column}': {n_bad:,} of {n_rows:,} rows are blank or missing; the first is row {row} (from 0). "
)


class MissingNames(BadRows, DataError):
    template = BLANK_ROWS_TEMPLATE + "Name them or drop those rows."


class MissingLabels(MissingNames):
    template = BLANK_ROWS_TEMPLATE + "Drop those rows, or exclude them as abstentions: {param[abstain='']}."


class MissingSets(MissingNames):
    template = BLANK_ROWS_TEMPLATE + (
        "Drop those rows, exclude them as abstentions ({param[abstain='']}), or read blank labels as empty sets: "
        "{param[kind='sets']}."
    )


class UnstorableName(DataError):
    template = "column '{column}' holds a value that cannot be stored ({reason}); replace it with other text."
    column: str
    reason: str


class UnsupportedType(DataError):
    template = "column '{column}' holds values of type {type}; convert it to text or integers."
    column: str
    type: str


class MixedTypes(DataError):
    template = "column '{column}' mixes types ({examples}); convert all values to one type, such as text."
    column: str
    example_by_type: dict[str, tuple[int, str]]  # type → row and value of its first occurrence

    @property
    def examples(self) -> str:
        return "; ".join(
            f"{kind} at row {row}: {value[:40]!r}" for kind, (row, value) in list(self.example_by_type.items())[:3]
        )

    example = {"example_by_type": {"int": (0, "1"), "str": (3, "x")}}


class CodeOutsideNames(DataError):
    template = "{name}: code {code} is outside the {n:,} names; valid codes are 0 to {max_code:,}."
    name: str
    code: int
    n: int

    @property
    def max_code(self) -> int:
        return self.n - 1


class DifferentNameTypes(DataError):
    template = (
        "{names} are {type} in one table (such as {name!r}) and {other_type} in the other (such as {other_name!r}); "
        "convert one of them."
    )
    names: str
    type: str
    name: Any
    other_type: str
    other_name: Any
    example = {"names": "items", "type": "integers", "other_type": "text"}


class IntegerTooLarge(DataError):
    template = "the integer name {value} does not fit in 64 bits; convert the column to text."
    value: int


class UndeclaredName(DataError):
    template = "{role} {name!r} has annotations but is missing from the list of {role}s; add it."
    role: str
    name: Any


class InvalidCell(DataError):
    template = "column '{column}', row {row} (from 0): expected {expected}, got {value!r}."
    column: str
    row: int
    value: Any
    expected: Literal["a number", "a whole number"]


class SeveralNameLevels(DataError):
    template = (
        "the frame's rows or columns have names of several levels; join them into one level, for example with "
        "columns.map('_'.join)."
    )


# Tables ---------------------------------------------------------------------------------------------------------------


class InvalidItemPointers(DataError):
    template = "item_ptr does not divide {n_rows:,} rows among {n_items:,} items."
    n_rows: int
    n_items: int


class NoLabels(DataError):
    template = "a table needs labels; pass {param[label]} or {param[proba]}."


class AbstainWithProba(DataError):
    template = "{param[abstain=]} cannot be used with {param[proba=]}, which holds no labels; drop those rows yourself."


class UnequalLengths(DataError):
    template = "'{column}' has {n:,} rows, '{other_column}' has {n_other:,}; they must be equally long."
    column: str
    n: int
    other_column: str
    n_other: int


class SeveralQuestions(DataError):
    template = (
        "column '{column}' holds several questions, and each needs its own table; use dissensus.read, or drop the "
        "column."
    )
    column: str


class SpansExcluded(DataWarning):
    template = (
        "{n_overlapping:,} spans that overlap another span of the same annotator and {n_empty:,} empty spans are "
        "excluded."
    )
    n_overlapping: int
    n_empty: int


class TooManyVotes(DataError):
    template = (
        "column 'count': the counts add up to {n_votes:,.0f} votes, and the limit is {limit:,}, because each vote "
        "becomes a row; pass them as weights instead: Annotations.from_arrays(…, weight=count)."
    )
    n_votes: float
    limit: int


class NoLabelValues(DataError):
    template = "labels of type '{kind}' have no numeric values; use as_kind('graded') if they are ordered."
    kind: str


class NumbersHaveNoVotes(DataError):
    template = (
        "votes are counted for classes, and these labels are numbers; use values[label], or read them with "
        "{param[kind='classes']}."
    )


class ContradictoryGold(DataError):
    template = "gold: item {item!r} (row {row}, from 0) has two different {content}; keep one."
    item: Any
    row: int
    content: str
    example = {"content": "labels"}


class NamesOutsideTable(DataError):
    template = "{argument}: {n_missing:,} of {n:,} names are not in the table, such as {name!r}."
    argument: str
    n_missing: int
    n: int
    name: Any


class NoTablesToJoin(DataError):
    template = "concat got no table; pass at least one."


class DifferentLabelTypes(DataError):
    template = "tables with labels of different types ({kinds}) cannot be joined; convert them with as_kind first."
    kinds: str
    example = {"kinds": "classes and numbers"}


class WeightedSets(DataError):
    template = (
        "several rows of one item and annotator cannot be merged into a set if they have weights; omit "
        "{param[weight=]}."
    )


class QuestionPerItem(DataWarning):
    template = (
        "each of the {n_items:,} items has its own question; if the column holds the items' texts, do not read it as "
        "questions."
    )
    n_items: int


# Kinds of labels ------------------------------------------------------------------------------------------------------


class LabelTypeMismatch(DataError):
    template = (
        "{task} requires {allowed_labels}, but these labels are {labels}; set {param[kind=]} if the label type is "
        "wrong."
    )
    task: str
    allowed: tuple[str, ...]
    kind: str
    example = {"task": "explain", "allowed": ("classes", "graded"), "kind": "numbers"}

    @property
    def labels(self) -> str:
        from dissensus.table.kinds import KIND_DESCRIPTIONS

        return KIND_DESCRIPTIONS[self.kind]

    @property
    def allowed_labels(self) -> str:
        from dissensus.table.kinds import KIND_DESCRIPTIONS

        return " or ".join(KIND_DESCRIPTIONS[kind] for kind in self.allowed)


class InvalidOutcome(DataError):
    template = (
        "label {label!r} does not name the better alternative of a pair; use {outcomes} or the name of one "
        "alternative. {param[map=]} renames labels, {param[abstain=]} excludes them."
    )
    label: Any
    outcomes: str
    example = {"outcomes": "left, right, tie"}


class LabelNotANumber(DataError):
    template = "label {label!r} is not a number; {advice}."
    label: Any
    advice: Literal[
        "exclude it as an abstention, or read the labels as classes",
        "declare the classes in their order",
        "write it without the % sign",
        "write it with a decimal point instead of a comma",
    ]


class NumberTooLarge(DataError):
    template = "label {label!r} is larger than {limit:g}, so its square overflows; divide all labels by a constant."
    label: Any
    limit: float


class InvalidAlternative(DataError):
    template = "{name!r} cannot be the name of an alternative; it must not be blank or contain ' vs ' or ' | '."
    name: Any


class ItemNotAPair(DataError):
    template = (
        "item {item!r} does not name two alternatives; in a table of comparisons, name items 'A vs B', as "
        "Annotations.from_pairs does."
    )
    item: Any


class InvalidPosition(DataError):
    template = (
        "item {item!r} is not a position in a document; name it 'doc @ 12' (token 12) or 'doc @ 12-17' (characters 12 "
        "to 16)."
    )
    item: Any


class OverlappingPositions(DataError):
    template = "items {item!r} and {other_item!r} overlap; each position in a document must belong to one item."
    item: Any
    other_item: Any


# Finding columns ------------------------------------------------------------------------------------------------------


class UnknownColumn(MissingColumn):
    template = "there is no column '{name}' for {role}; the columns are {columns!l}."
    name: str
    role: str
    columns: tuple[str, ...]


class RoleColumnMissing(RoleMessage, MissingColumn):
    template = (
        "no column is called '{role}'{synonyms_in_brackets}; {available_columns}. "
        "Name the column: {column}{advice}{guesses}."
    )
    synonyms: str
    columns: tuple[str, ...]
    columns_of_roles: dict[str, str]  # other role → its columns
    candidates: tuple[str, ...]  # columns that may have this role
    counts: str  # column of vote counts; "" if there is none
    example = {"role": "annotator", "columns_of_roles": {"item": "'id'"}, "counts": "", "candidates": ()}

    @property
    def synonyms_in_brackets(self) -> str:
        return f" or a synonym ({self.synonyms})" if self.synonyms else ""

    @property
    def available_columns(self) -> str:
        others = ", ".join(f"{columns} for the {role}" for role, columns in self.columns_of_roles.items())
        besides = f" in addition to {others}" if others else ""
        names = ", ".join(map(quote_name, self.columns[:12])) + (", …" if len(self.columns) > 12 else "")
        return f"the columns are {names}{besides}" if self.columns else f"no column remains{besides}"

    @property
    def advice(self) -> str:
        if not self.counts:
            return ""
        return f", or make a table of vote counts in Python with Annotations.from_counts(item, label, {self.counts})"

    @property
    def guesses(self) -> str:
        return f"; candidates are {' and '.join(map(repr, self.candidates))}" if self.candidates else ""


class AnnotatorColumnMissing(RoleColumnMissing):
    template = (
        "no column is called '{role}'{synonyms_in_brackets}; {available_columns}. Name the column: {column}, or pass "
        "{param[wide=True]} if each annotator has a column."
    )


class SuggestWideTable(MissingColumn):
    template = "{missing} If each annotator has a column, pass {param[wide=True]}."
    missing: MissingColumn
    example = {"missing": UnknownColumn(name="who", role="annotator", columns=("ann", "bob"))}


class AmbiguousColumns(RoleMessage, DataError):
    template = "several columns may hold the {role}: {columns!l}; choose one: {column}."
    columns: tuple[str, ...]


class AmbiguousJoinedNames(DataError):
    template = (
        "joining columns {columns!l} with '/' gives different rows the same {role}, because a value contains '/'; "
        "replace it there."
    )
    columns: tuple[str, ...]
    role: str
    example = {"role": "item"}


class UnusableColumnName(DataError):
    template = "the column name {name!r} {problem}; rename the column{advice}."
    name: Any
    problem: Literal["is not text", "cannot be stored as text"]

    @property
    def advice(self) -> str:
        is_text = isinstance(self.name, str)
        return "" if is_text else ", or use Annotations.from_matrix if each annotator has a column"


class UnsupportedSource(DataError):
    template = "cannot read an object of type {type}; pass a path, a data frame, an Arrow table or a dataset."
    type: str


class SeveralItemColumns(DataError):
    template = "a wide table needs one column of item names, but {param[item=]} names several."


class NoWideColumns(DataError):
    template = (
        "no two of the columns {columns!l} hold the same labels; name the annotators' columns: {param[wide=True]}, "
        "{param[annotator=<a,b,…>]}."
    )
    columns: tuple[str, ...]


class AmbiguousWideTable(DataError):
    template = (
        "the columns {columns!l} may each hold one annotator's labels, or {label!r} may hold all labels or the gold "
        "labels. Choose {param[wide=True]}, {param[annotator=<a,b,…>]} or {param[annotator=<column>]}."
    )
    columns: tuple[str, ...]
    label: str


class ItemColumnNeverRepeats(DataError):
    template = (
        "column {item!r} has a different value in every row, so no item would have two labels. Choose the column of "
        "item names: {other_item_option}, whose values repeat, or {item_option}."
    )
    item: str
    other_column: str

    @property
    def item_option(self) -> ParameterName:
        return ParameterName(f"item={self.item!r}")

    @property
    def other_item_option(self) -> ParameterName:
        return ParameterName(f"item={self.other_column!r}")


# Reading files --------------------------------------------------------------------------------------------------------


class NoFileName(UnreadableFile):
    template = "the file name is empty; pass the path of a file."


class ParameterFixedByFormat(BadParameter):
    template = "{parameter} cannot be set for {format}, because the format determines it; omit it."
    parameter: ParameterName
    format: str


class SeveralFieldsNamed(BadParameter):
    template = "{parameter} names several fields, but {format} needs one."
    parameter: ParameterName
    format: str


class SeveralSplits(DataError):
    template = "a {type} holds several splits; pass one of them: dataset['train']."
    type: str


class StreamedDataset(DataError):
    template = "a {type} is streamed and cannot be read as a table; load it without streaming=True."
    type: str


class DifferentColumns(BadFile):
    template = (
        "the files in folder {path} have different columns ({file}: {columns!l}; {other_file}: {other_columns!l}); "
        "name one file."
    )
    file: str
    columns: tuple[str, ...]
    other_file: str
    other_columns: tuple[str, ...]


class NoGoldItemInTable(DataError):
    template = (
        "none of the {n:,} items with a gold label is in the table: the gold labels name items like {item!r}, the "
        "table like {table_item!r}. Use the same names in both, or choose the right column of items."
    )
    n: int
    item: Any
    table_item: Any


class GoldItemsExcluded(DataWarning):
    template = (
        "{n_missing:,} of {n:,} items with a gold label are not in the table, such as {item!r}; they are excluded."
    )
    n_missing: int
    n: int
    item: Any


class FormatNotWritable(BadParameter):
    template = "cannot write {path} as {format}: {reason}."
    path: Path
    format: str
    reason: str
    example = {"format": ".xlsx", "reason": "the formats are csv, parquet, jsonl"}


class UnknownFormat(BadFile):
    template = "the format of {path} is unknown; name it with {param[format=]}: {formats}."
    formats: str


class ZipOfSeveralFiles(BadFile):
    template = "{path} is a zip of {n:,} files ({first_names}); unpack it and name one file or the folder."
    names: tuple[str, ...]

    @property
    def n(self) -> int:
        return len(self.names)

    @property
    def first_names(self) -> str:
        return ", ".join(self.names[:3]) + (", …" if self.n > 3 else "")


class EmptyFile(UnreadableFile):
    template = "{location} is empty; a table needs {needs}."
    location: str
    needs: Literal["a header and rows", "at least one record", "at least one row", "at least one item"]


class JsonWithoutAnnotations(BadFile):
    template = (
        "{path} is one JSON object without annotations, which is not a known export; write a table with the columns "
        "item, annotator and label and one row per label, or, for data about annotators, a table with a column "
        "annotator."
    )


class MissingFile(BadFile):
    template = "there is no file {path}; check its name and folder."


class UnusableFolder(BadFile):
    template = "{path} is a folder {problem}; name one file in it."
    problem: str
    example = {"problem": "without a table"}


class NotUtf8(BadFile):
    template = "{path} is not UTF-8 text{position}; convert it: iconv -f LATIN1 -t UTF-8 OLD > NEW."
    position: str
    example = {"position": " (byte 0xe9)"}


class DamagedFile(BadFile):
    template = (
        "{path} cannot be read ({reason}); it may be truncated, damaged or in another format. Write or download it "
        "again, or name its {param[format=]}."
    )
    reason: str


class UnpacksTooLarge(BadFile):
    template = (
        "{path} unpacks to more than {ratio} times its size, which may be an attack; if you trust it, unpack it first."
    )
    ratio: int


class NotAHeader(BadFile):
    template = "{path}: the first line is not a table header ({reason}); is the file a text table?"
    reason: str


class WrongNumberOfFields(BadFile):
    template = "{path}: {location} has {n} columns, but the first row has {n_first}{separated}; correct that row{hint}."
    location: str
    n: int
    n_first: int
    delimiter: str  # "" in formats without one
    open_quote: bool
    example = {"location": "row 7", "delimiter": ","}

    @property
    def separated(self) -> str:
        return f" (separated by {self.delimiter!r})" if self.delimiter else ""

    @property
    def hint(self) -> str:
        if not self.delimiter:
            return ""
        return ": a quote may never be closed" if self.open_quote else ": quote a cell that holds the delimiter"


class RowTooLong(BadFile):
    template = "{path}: a row is longer than 2 GB; look for a quote that is never closed."


class UnclosedQuote(BadFile):
    template = (
        "{path}: the quote in line {line:,} is never closed, so the following lines would become one cell; close it."
    )
    line: int


class InvalidJson(UnreadableFile):
    template = "{location}: line {line:,} is not valid JSON ({reason}); correct that line."
    location: str
    line: int
    reason: str
    example = {"location": "votes.jsonl", "reason": "Expecting value, column 12"}


class NotARecord(UnreadableFile):
    template = "{location}: expected a JSON object {{…}}, got {value!r}."
    location: str
    value: str


class NoTagColumn(BadFile):
    template = "{path}: no column holds tags such as B-PER, I-PER and O; is the file CoNLL text?"


class NoInspectHeader(BadFile):
    template = "{path}: the zip contains no {header}; expected a log of Inspect."
    header: str


# Records of exports ---------------------------------------------------------------------------------------------------


class UnexpectedValue(DataError):
    template = "{location}: field {field!r} is {value!r}; expected {expected}."
    location: str
    field: str
    value: Any
    expected: str
    example = {"location": "log.json: record 3", "expected": "a number"}


class MissingField(RoleMessage, DataError):
    template = "{location} has no field {fields} for the {role}; name the field: {field}."
    location: str
    names: tuple[str, ...]

    @property
    def fields(self) -> str:
        return " or ".join(map(repr, self.names))


class ScoreWithoutSubject(MissingField):
    template = "{location} has no field {fields} and no subject; fetch the scores with fields=subject."


class DuplicateRecord(DataError):
    template = "{location} occurs twice; {action} again."
    location: str
    action: str
    example = {"action": "write the log"}


class DifferentTexts(DataError):
    template = (
        "item {item!r} has different texts in {file} and {other_file}, so the files belong to different projects; read "
        "each separately, or name a field that distinguishes their items: {param[item=<field>]}."
    )
    item: Any
    file: str
    other_file: str


class UnusableName(RoleMessage, DataError):
    template = "{path}: the {role} {name!r} is neither text nor a number; name another field: {field}."
    path: Path
    name: Any


class NoUsableRows(DataError):
    template = "the file contains no usable {unit}; a table needs at least one.{report_sentence}"
    unit: Literal["row", "answer", "comparison"]
    report: str  # excluded rows and notes; "" if there are none

    @property
    def report_sentence(self) -> str:
        return f" {self.report}" if self.report else ""


class NoSpans(DataError):
    template = "{path} holds no spans of text; omit {param[kind='spans']}."
    path: Path


class SeveralGoldLabels(DataError):
    template = "{path}: an answer marked as correct selects several labels; a gold label must be a single one."
    path: Path


class NoSuchQuestion(DataError):
    template = "{path} has no question {label!r} for {param[label]}; its questions are {questions!l}."
    path: Path
    label: str
    questions: tuple[str, ...]


class NoReadableAnswers(DataError):
    template = "{path} holds only {contents}; labels, ratings, spans of text and comparisons can be read."
    path: Path
    contents: str
    example = {"contents": "3 texts"}


class OneQuestionNeeded(BadParameter):
    template = "{parameter} applies to one question; choose it with {param[label=]}: {questions!l}."
    parameter: ParameterName
    questions: tuple[str, ...]
    example = {"parameter": ParameterName("ticks='questions'")}


class OneQuestionPerTable(BadParameter):
    template = "{parameter} applies to one question, but the file has several; read each question separately."
    parameter: ParameterName
    example = {"parameter": ParameterName("proba=")}


class OneQuestionPerProject(BadParameter):
    template = "{tool} holds one question, not {n:,}; write each separately."
    tool: str
    n: int
    example = {"tool": "a doccano project"}


class TagsOfTokensOnly(BadParameter):
    template = "CoNLL text holds tags of tokens, but these are labels of whole items; write another format."


# From columns to a table ----------------------------------------------------------------------------------------------


class ColumnNotQuestions(DataError):
    template = "column {column} does not look like questions: it holds {contents}, and each question becomes a table."
    column: str
    n_questions: int
    n_rows: int
    one_per_item: bool

    @property
    def contents(self) -> str:
        if self.one_per_item:
            return "a different value for each item"
        return f"{self.n_questions:,} different values in {self.n_rows:,} rows"


class WeightedTicks(BadParameter):
    template = "{param[ticks='questions']} cannot be combined with weights; omit {param[weight=]}."


class DuplicateWideRows(DataError):
    template = (
        "column {column!r}: {n:,} rows of this wide table repeat the item name of another row; names must be unique."
    )
    column: str
    n: int


class RowsWithoutList(DataError):
    template = (
        "{param[map=]} and {param[normalize=]} need a list of labels in every row; write an empty list [] for a row "
        "without labels."
    )


class LabelsNotClasses(DataError):
    template = (
        "column {column} has {n_classes:,} different labels in {n_rows:,} rows of {n_items:,} items, so it may not "
        "hold classes. Name another column: {param[label=<column>]}, or accept them: {param[many_classes=True]}."
    )
    column: str
    n_classes: int
    n_rows: int
    n_items: int


class NoPairColumns(MissingColumn):
    template = (
        "no columns hold two alternatives and the better one, such as model_a, model_b and winner; the columns are "
        "{columns!l}. Name them: {param[item='LEFT,RIGHT']}, {param[label=<column>]}."
    )
    columns: tuple[str, ...]


class RowsExcluded(RowsLeftOut):
    template = "{report}"
    report: str
    unused: dict[str, int]  # reason → number of rows
    notes: tuple[Message, ...]
    example = {"report": "Not used: 3 rows without an answer.", "notes": ()}


class UnnamedAnnotators(DataWarning):
    template = (
        "{path}: {n:,} of {n_answers:,} answers do not name their annotator; they are treated as one annotator, named "
        "after the file."
    )
    path: Path
    n: int
    n_answers: int


class UnnamedSessions(DataWarning):
    template = (
        "{path}: {n:,} of {n_annotators:,} annotators are unnamed sessions, identified by their start time; one "
        "annotator may appear several times."
    )
    path: Path
    n: int
    n_annotators: int


# Simulations ----------------------------------------------------------------------------------------------------------


class DifficultyWithoutDecoy(BadParameter):
    template = "difficulty and decoy must be passed together."


class CrowdTooSmall(BadParameter):
    template = "a crowd needs at least one annotator and two classes, got {n_annotators} and {n_classes}."
    n_annotators: int
    n_classes: int


# Data sets ------------------------------------------------------------------------------------------------------------


class UnknownDataset(UnknownName):
    template = "there is no data set '{name}';{guess} {hint}"
    name: str
    guess: str  # " did you mean '…'?", or ""
    n_datasets: int
    variable: str
    folder_named: bool
    example = {"guess": " did you mean 'rte'?"}

    @property
    def hint(self) -> str:
        if self.folder_named:
            return f"`dissensus list datasets` lists all {self.n_datasets:,}."
        return f"{self.variable} is not set: to load from a data folder, `export {self.variable}=FOLDER`."


class UnusedForDataset(BadParameter):
    template = "{parameters} cannot be set for data set '{name}'; omit it."
    name: str
    parameters: tuple[ParameterName, ...]


class NotAFolder(UnreadableFile):
    template = "{source} names '{path}', which is not a folder."
    source: str
    path: str
    example = {"source": "the environment variable DISSENSUS_DATA"}


class NotALabelledSet(DataError):
    template = "'{name}' has no labels: its folder contains neither annotations.csv nor counts.csv (nor .csv.gz)."
    name: str


class UnknownGold(UnknownName):
    template = "data set '{name}' has no gold labels '{gold}': it {available_gold}, and {default}."
    name: str
    gold: str
    golds: tuple[str, ...]
    has_default: bool

    @property
    def available_gold(self) -> str:
        return f"has {', '.join(map(repr, self.golds))}" if self.golds else "has no alternative gold labels"

    @property
    def default(self) -> str:
        return "reads gold.csv if gold= is omitted" if self.has_default else "has no gold.csv either"
