"""What can be wrong with a table, a file or a simulation, with the facts of each case."""

from __future__ import annotations

from collections.abc import Sequence
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
from dissensus.messages import Message, ParameterName, quoted

# Columns of names, codes and numbers ----------------------------------------------------------------------------------


class BadRows(Message):
    """Some rows of a column hold unusable values; templates begin with `COUNT` and end with `FIRST`."""

    column: str
    n_bad: int
    n_rows: int
    row: int  # number of the first bad row, from 0
    value: Any

    @classmethod
    def among(cls, column: str, bad: BoolArray, values: Any, row_numbers: IntArray | None = None, **facts: Any) -> Self:
        """Make the message from a mask (N,) of bad rows; `row_numbers` (N,) if the rows are a selection."""
        first = int(bad.argmax())
        row = first if row_numbers is None else int(row_numbers[first])
        value = getattr(values[first], "tolist", lambda: values[first])()
        return cls(column=column, n_bad=int(bad.sum()), n_rows=int(bad.size), row=row, value=value, **facts)


COUNT = "{column}: {n_bad:,} of {n_rows:,}"
FIRST = "first at row {row} (from 0): {value!r}."


class NotCounts(BadRows, DataError):
    template = f"{COUNT} rows are not whole numbers from 0 up; {FIRST}"


class BadWeights(BadRows, DataError):
    template = f"{COUNT} rows are negative or missing; {FIRST}"


class ExtremeWeights(BadRows, DataError):
    template = f"{COUNT} rows are neither 0 nor from {{low:g}} to {{high:g}}; {FIRST} Divide all by their mean."
    low: float
    high: float


class BadProbabilities(BadRows, DataError):
    template = f"{COUNT} rows hold a negative or missing probability; {FIRST}"


class ProbabilitiesNotNormalised(BadRows, DataError):
    template = f"{COUNT} rows do not sum to one; {FIRST} It sums to {{total:.6g}}; divide each row by its sum."
    total: float


class BadGoldLabels(BadRows, UnknownClass):
    template = (
        f"{COUNT} labels are none of the table's {{n_classes:,}} classes; {FIRST} Declare all classes when you make the "
        "table: {how}."
    )
    n_classes: int
    kind: str

    @property
    def how(self) -> str:
        """Return what declares a class that no annotator chose."""
        return "table.including(labels)" if self.kind == "sets" else ParameterName("classes=")


OUTSIDE = "column '{column}': {n_bad:,} of {n_rows:,} rows hold a name outside the {n_classes:,} {classes}; " + FIRST


class LabelOutsideClasses(BadRows, UnknownClass):
    template = (
        f"{OUTSIDE} Leave out {{param[classes=]}} to take them from the rows, or declare it in {{param[abstain=]}}."
    )
    n_classes: int

    @property
    def classes(self) -> str:
        """Return the noun for the classes."""
        return "class" if self.n_classes == 1 else "classes"


class LabelUnknownToModel(LabelOutsideClasses):
    template = f"{OUTSIDE} The classes of a fitted model stay as they are; fit it to all annotations again."


class MissingNames(BadRows, DataError):
    template = (
        "column '{column}': {n_bad:,} of {n_rows:,} rows are blank or missing; first at row {row} (from 0). Name them "
        "or drop those rows."
    )


class MissingLabels(MissingNames):
    template = (
        "column '{column}': {n_bad:,} of {n_rows:,} rows are blank or missing; first at row {row} (from 0). Drop those "
        "rows, or declare them as abstentions: {param[abstain='']}."
    )


class MissingSets(MissingNames):
    template = (
        "column '{column}': {n_bad:,} of {n_rows:,} rows are blank or missing; first at row {row} (from 0). Drop those "
        "rows, declare them as abstentions ({param[abstain='']}), or read them as sets without an option: "
        "{param[kind='sets']}."
    )


class WrongDimensions(DataError):
    template = "{column}: expected {expected}, got shape {shape}."
    column: str
    expected: str
    shape: tuple[int, ...]
    example = {"expected": "one value per row", "shape": (2, 3)}


class UnstorableName(DataError):
    template = "column '{column}' holds a name that cannot be stored ({reason}); make it other text."
    column: str
    reason: str


class UnsupportedType(DataError):
    template = "column '{column}' holds values of type {type}; convert it to text or integers."
    column: str
    type: str


class MixedTypes(DataError):
    template = "column '{column}' mixes types of values ({examples}); convert it to one type, such as text."
    column: str
    first: dict[str, tuple[int, str]]  # type → the row and the value where it occurs first

    @property
    def examples(self) -> str:
        """Return the first value of up to three types."""
        return "; ".join(f"{kind} at row {row}: {value[:40]!r}" for kind, (row, value) in list(self.first.items())[:3])

    example = {"first": {"int": (0, "1"), "str": (3, "x")}}


class NotAList(DataError):
    template = "column '{column}': expected a list or an array, got {value!r}."
    column: str
    value: Any


class NotCodes(DataError):
    template = "{name}: expected one vector of integer codes, got {dtype} of shape {shape}."
    name: str
    dtype: str
    shape: tuple[int, ...]


class CodeOutOfRange(DataError):
    template = "{name}: code {code} lies outside the {n:,} names; codes run from 0 to {last:,}."
    name: str
    code: int
    n: int

    @property
    def last(self) -> int:
        """Return the highest valid code."""
        return self.n - 1


class DifferentNameTypes(DataError):
    template = (
        "{what}: one table names them by {type} (such as {name!r}), the other by {other_type} (such as "
        "{other_name!r}); convert one to the other's type."
    )
    what: str
    type: str
    name: Any
    other_type: str
    other_name: Any


class NotNames(BadParameter):
    template = "{parameter} must be {expected}, got {value!r}."
    parameter: ParameterName
    expected: str
    value: Any


class BlankNames(DataError):
    template = "{what}: a declared name is blank or missing: {names!r}."
    what: str
    names: list[Any]


class DuplicateName(DataError):
    template = "{what}: {name!r} is declared twice."
    what: str
    name: Any


class IntegerTooLarge(DataError):
    template = "an integer name, {value}, does not fit 64 signed bits; convert the column to text."
    value: int


class UndeclaredName(DataError):
    template = "{role} {name!r} has annotations and is not in the list of {role}s given."
    role: str
    name: Any


class NotANumber(DataError):
    template = "column '{column}': row {row} (from 0) holds {value!r}, which is not a number."
    column: str
    row: int
    value: Any


class NotNumbers(DataError):
    template = "column '{column}' holds no numbers, but {value!r}."
    column: str
    value: Any


class NoProbabilityClasses(DataError):
    template = "proba names no class; give class → probabilities."


class NoProbabilityColumn(MissingColumn):
    template = "no column of probabilities for class {name!r}; there are {classes!l}."
    name: Any
    classes: tuple[Any, ...]


class NotProbabilities(DataError):
    template = "proba must hold numbers ({reason})."
    reason: str


class WrongProbabilityColumns(DataError):
    template = "proba has {n_columns} columns for {n_classes} classes."
    n_columns: int
    n_classes: int


class NotAMatrix(DataError):
    template = "expected an items × annotators matrix ({reason})."
    reason: str


class WrongMatrixNames(DataError):
    template = "{role}: expected {n:,} different names for a matrix of shape {shape}."
    role: str
    n: int
    shape: tuple[int, ...]


class SeveralLevels(DataError):
    template = "the frame's rows or columns are named on several levels; give them one, such as columns.map('_'.join)."


# Tables ---------------------------------------------------------------------------------------------------------------


class InvalidIndex(DataError):
    template = "item_ptr does not divide {n_rows:,} rows among {n_items:,} items."
    n_rows: int
    n_items: int


class NoLabels(DataError):
    template = "neither {param[label]} nor {param[proba]} is given; a table needs one of them."


class AbstainWithProba(DataError):
    template = "{param[abstain=]} names labels, and {param[proba=]} has none; leave those rows out."


class UnequalLengths(DataError):
    template = "'{column}' has {n:,} rows, '{other}' has {n_other:,}; they must be equally long."
    column: str
    n: int
    other: str
    n_other: int


class SeveralQuestions(DataError):
    template = "column '{column}' holds several questions, a table each; use dissensus.read or drop it."
    column: str


class SpansExcluded(DataWarning):
    template = (
        "{n_overlapping:,} spans overlap another one of the same annotator and {n_empty:,} are empty; they are "
        "excluded."
    )
    n_overlapping: int
    n_empty: int


class TooManyVotes(DataError):
    template = (
        "column 'count': the counts add up to {n_votes:,.0f}, and each vote is a row, at most {limit:,}; give them as "
        "weights: Annotations.from_arrays(…, weight=count)."
    )
    n_votes: float
    limit: int


class NoLabelValues(DataError):
    template = "labels of kind '{kind}' have no values; as_kind('graded') gives some."
    kind: str


class NumbersHaveNoVotes(DataError):
    template = "numbers have no votes; values[label] holds them, or read them with {param[kind='classes']}."


class ContradictoryGold(DataError):
    template = "gold: item {item!r} (row {row}, from 0) has two different {what}; keep one."
    item: Any
    row: int
    what: str


class NotRowNumbers(DataError):
    template = "rows: expected row numbers from 0 to {last:,}, or a mask."
    last: int


class WrongMaskLength(DataError):
    template = "rows: a mask of {n:,} for {n_rows:,} annotations; they must be equally many."
    n: int
    n_rows: int


class NamesOutsideTable(DataError):
    template = "{what}: {n_missing:,} of {n:,} names are not in the table, such as {name!r}."
    what: str
    n_missing: int
    n: int
    name: Any


class NoTables(DataError):
    template = "concat needs at least one table."


class DifferentKinds(DataError):
    template = "tables of {kinds} cannot be joined; convert them with as_kind first."
    kinds: str
    example = {"kinds": "classes and numbers"}


class WeightedSets(DataError):
    template = "rows of one item and annotator with weights cannot form a set; leave {param[weight=]} out."


class WrongShape(DataError):
    template = "{name} has the shape {shape}; {n_rows:,} annotations need {expected}."
    name: str
    shape: tuple[int, ...]
    n_rows: int
    expected: tuple[int, ...]


class QuestionPerItem(DataWarning):
    template = (
        "each of the {n_items:,} items has a question of its own; if the column holds the items' texts, leave it out."
    )
    n_items: int


# Kinds of labels ------------------------------------------------------------------------------------------------------


class UnknownKind(BadParameter):
    template = "{param[kind]} must be {kinds}, got {value!r}."
    kinds: str
    value: Any
    example = {"kinds": "classes, graded"}


class WrongKind(DataError):
    template = (
        "{what} is for {allowed_labels}, and these labels are {labels}; read them with another {param[kind=]} where "
        "they are something else."
    )
    what: str
    allowed: tuple[str, ...]
    kind: str
    example = {"what": "explain", "allowed": ("classes", "graded"), "kind": "numbers"}

    @property
    def labels(self) -> str:
        """Return what the labels are, in words."""
        from dissensus.table.kinds import KINDS

        return KINDS[self.kind]

    @property
    def allowed_labels(self) -> str:
        """Return what the labels may be, in words."""
        from dissensus.table.kinds import KINDS

        return " or ".join(KINDS[kind] for kind in self.allowed)


class NotAnOutcome(DataError):
    template = (
        "label {label!r} does not say which of a pair is better; labels of pairs are {outcomes} or name one of the "
        "two; {param[map=]} renames others, {param[abstain=]} leaves them out."
    )
    label: Any
    outcomes: str
    example = {"outcomes": "left, right, tie"}


class LabelNotANumber(DataError):
    template = (
        "label {label!r} is not a number; leave it out with {param[abstain=]}, or read the labels with {classes}."
    )
    label: Any
    classes = ParameterName("kind='classes'")


class GradesWithoutOrder(LabelNotANumber):
    template = "label {label!r} is not a number; give the order of the grades: {param[classes=]}."


class PercentLabel(LabelNotANumber):
    template = "label {label!r} is not a number; write it without the % sign."


class DecimalCommaLabel(LabelNotANumber):
    template = "label {label!r} is not a number; write it with a decimal point in place of the comma."


class NumberTooLarge(DataError):
    template = "label {label!r} is beyond {limit:g}, where squares overflow; divide the labels first."
    label: Any
    limit: float


class InvalidAlternative(DataError):
    template = "{name!r} cannot name an alternative of a pair; use a name without ' vs ' and ' | '."
    name: Any


class NotAPair(DataError):
    template = (
        "item {item!r} does not name two alternatives; in a table of pairs an item is called 'A vs B', as "
        "Annotations.from_pairs names it."
    )
    item: Any


class NotAPlace(DataError):
    template = "item {item!r} is not a place in a document; name it like 'doc @ 12' or 'doc @ 12-17'."
    item: Any


class ReversedPlace(DataError):
    template = "item {item!r} ends before it begins; correct its name."
    item: Any


class OverlappingPlaces(DataError):
    template = "items {item!r} and {other!r} overlap; a place in a document belongs to one item."
    item: Any
    other: Any


# Finding columns ------------------------------------------------------------------------------------------------------


class NoSuchColumn(MissingColumn):
    template = "no column '{name}' for {role}; the columns are {columns!l}."
    name: str
    role: str
    columns: tuple[str, ...]


class NoColumnFor(MissingColumn):
    template = "no column '{role}' (nor {synonyms}); {rest}. Name it: {keyword}{advice}{guesses}."
    role: str
    synonyms: str
    columns: tuple[str, ...]
    taken: dict[str, str]  # other role → its columns
    candidates: tuple[str, ...]  # columns that may be meant
    counts: str  # column of vote counts, "" for none
    example = {"role": "annotator", "taken": {"item": "'id'"}, "counts": "", "candidates": ()}

    @property
    def keyword(self) -> ParameterName:
        """Return the parameter that names the column."""
        return ParameterName(f"{self.role}=<column>")

    @property
    def rest(self) -> str:
        """Return the columns that are left for the role."""
        others = ", ".join(f"{columns} for the {role}" for role, columns in self.taken.items())
        besides = f" besides {others}" if others else ""
        listed = ", ".join(map(quoted, self.columns[:12])) + (", …" if len(self.columns) > 12 else "")
        return f"the columns are {listed}{besides}" if self.columns else f"no column is left for it{besides}"

    @property
    def advice(self) -> str:
        """Return how vote counts are read, if there is a column of them."""
        if not self.counts:
            return ""
        return f"; Annotations.from_counts(item, label, {self.counts}) makes a table of vote counts in Python"

    @property
    def guesses(self) -> str:
        """Return the columns that may be meant."""
        return f"; it may be {' or '.join(map(repr, self.candidates))}" if self.candidates else ""


class NoAnnotatorColumn(NoColumnFor):
    template = (
        "no column '{role}' (nor {synonyms}); {rest}. Name it: {keyword}, or pass {param[wide=True]} if each annotator "
        "has a column."
    )


class PerhapsWideTable(MissingColumn):
    template = "{missing} If each annotator has a column, pass {param[wide=True]}."
    missing: str  # the column that is missing, in a sentence
    example = {"missing": "no column 'who' for annotator; the columns are 'ann', 'bob'."}

    @classmethod
    def after(cls, error: Exception) -> Self:
        """Make the error from the one for the missing column."""
        return cls(missing=str(error))


class AmbiguousColumns(DataError):
    template = "columns {columns!l} could each be {role}; choose one: {keyword}."
    role: str
    columns: tuple[str, ...]

    @property
    def keyword(self) -> ParameterName:
        """Return the parameter that names the column."""
        return ParameterName(f"{self.role}=<column>")


class DuplicateColumn(DataError):
    template = "{n} columns are called {name!r}; rename or drop all but one."
    n: int
    name: str


class AmbiguousJoin(DataError):
    template = "columns {columns!l} do not identify one {role} together: a value holds '/'; replace it there."
    columns: tuple[str, ...]
    role: str


class UnstorableColumnName(DataError):
    template = "a column is called {name!r}, which cannot be stored as text; rename it."
    name: str


class ColumnNameNotText(DataError):
    template = (
        "a column of the frame is called {name!r}, which is not text; rename it, or, if each annotator has a column, "
        "use Annotations.from_matrix."
    )
    name: Any


class NotATable(DataError):
    template = "cannot read an object of type {type}; give a path, a frame, an Arrow table or a dataset."
    type: str


class SeveralItemColumns(DataError):
    template = "a wide table has one column that names the items; {param[item=]} names several."


class NoWideColumns(DataError):
    template = (
        "no columns with the same labels were found among {columns!l}; name them: {param[wide=True]}, "
        "{param[annotator=<a,b,…>]}."
    )
    columns: tuple[str, ...]


class PerhapsWide(DataError):
    template = (
        "each of {columns!l} may hold one annotator's labels, and {label!r} all labels or the gold labels; choose: "
        "{param[wide=True]}, {param[annotator=<a,b,…>]}, or {param[annotator=<column>]}."
    )
    columns: tuple[str, ...]
    label: str


class ItemsNeverRepeat(DataError):
    template = (
        "column {item!r} is different in every row, so that no item would have two labels; choose what names the "
        "items: {other_keyword}, whose values repeat, or {keyword}."
    )
    item: str
    other: str

    @property
    def keyword(self) -> ParameterName:
        """Return the parameter that keeps the column."""
        return ParameterName(f"item={self.item!r}")

    @property
    def other_keyword(self) -> ParameterName:
        """Return the parameter that takes the other column."""
        return ParameterName(f"item={self.other!r}")


# Reading files --------------------------------------------------------------------------------------------------------


class NotText(BadParameter):
    template = "{parameter} must be text, got {value!r}."
    parameter: ParameterName
    value: Any


class UnusableArgument(BadParameter):
    template = "{parameter} cannot be {value!r}; the guide to tables lists its values."
    parameter: ParameterName
    value: Any


class NoFileName(UnreadableFile):
    template = "the name of the file is empty; name one."


class FixedByFormat(BadParameter):
    template = "{parameter} has no meaning for {format}, which has it fixed; leave it out."
    parameter: ParameterName
    format: str


class SeveralFields(BadParameter):
    template = "{parameter} names several fields; {format} needs one."
    parameter: ParameterName
    format: str


class SeveralSplits(DataError):
    template = "a {type} holds several splits; name one: dataset['train']."
    type: str


class StreamedDataset(DataError):
    template = "a {type} is read piece by piece; load it whole, without streaming=True."
    type: str


class TooManyFiles(UnreadableFile):
    template = "{path} is a folder of more than {limit:,} files; name one file in it."
    path: Path
    limit: int


class FolderWithoutTable(UnreadableFile):
    template = "{path} is a folder without a table in it; name a file."
    path: Path


class SeveralFormats(UnreadableFile):
    template = "{path} is a folder of several formats ({formats}); name one file in it."
    path: Path
    formats: str


class DifferentColumns(UnreadableFile):
    template = (
        "{path} is a folder whose files have different columns ({file}: {columns!l}; {other_file}: {other_columns!l}); "
        "name one file in it."
    )
    path: Path
    file: str
    columns: tuple[str, ...]
    other_file: str
    other_columns: tuple[str, ...]


class NoGoldItemInTable(DataError):
    template = (
        "none of the {n:,} items with a gold label is in the table, such as {item!r}; the table has {table_item!r}. "
        "Name the column of items, or use the same names in both."
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


class UnknownFormatToWrite(BadParameter):
    template = "cannot write {path} as {format}; there are {formats}."
    path: Path
    format: str
    formats: str


class CannotWrite(BadParameter):
    template = "cannot write {path} as {format}: {reason}."
    path: Path
    format: str
    reason: str


class UnknownFormat(UnreadableFile):
    template = "{path} is of no known format; name it: {param[format=]}, one of {formats}."
    path: Path
    formats: str


class ZipOfSeveralFiles(UnreadableFile):
    template = "{path} is a zip of {n:,} files ({some}); unpack it, and name one of them or their folder."
    path: Path
    names: tuple[str, ...]

    @property
    def n(self) -> int:
        """Return how many files there are."""
        return len(self.names)

    @property
    def some(self) -> str:
        """Return the first names."""
        return ", ".join(self.names[:3]) + (", …" if self.n > 3 else "")


class EmptyFile(UnreadableFile):
    template = "{path} is empty; a table needs {needs}."
    path: Path
    needs: Literal["at least one record", "a header and rows"]


class RecordsOfItems(UnreadableFile):
    template = (
        "{path} is one object of objects without annotations, which is not read yet; write a table with a row per "
        "label: item, annotator and label; if it describes the annotators, give it as a table with a column annotator."
    )
    path: Path


class NoSuchFile(UnreadableFile):
    template = "no file {path}; check its name and the folder."
    path: Path


class FolderInsteadOfFile(UnreadableFile):
    template = "{path} is a folder; name one file in it."
    path: Path


class NotUtf16(UnreadableFile):
    template = "{path} is truncated or not UTF-16 text ({reason}); save it as UTF-8."
    path: Path
    reason: str


class NotUtf8(UnreadableFile):
    template = "{path} is not UTF-8 text{where}; save it as UTF-8, or convert it (iconv -f LATIN1 -t UTF-8 OLD > NEW)."
    path: Path
    where: str
    example = {"where": " (byte 0xe9)"}


class DamagedFile(UnreadableFile):
    template = (
        "{path} cannot be read ({reason}); it may be truncated, damaged or of another format: fetch or write it again, "
        "or name its {param[format=]}."
    )
    path: Path
    reason: str


class UnpacksTooLarge(UnreadableFile):
    template = "{path} unpacks to more than {ratio} times its size; if it is meant to, unpack it first."
    path: Path
    ratio: int


class NotAHeader(UnreadableFile):
    template = "{path}: its first line is not a header ({reason}); is it a table of text?"
    path: Path
    reason: str


class WrongNumberOfFields(UnreadableFile):
    template = (
        "{path}: {where} has {n} fields, the header has {n_header} (separated by {delimiter!r}); correct that row: "
        "{hint}."
    )
    path: Path
    where: str
    n: int
    n_header: int
    delimiter: str
    open_quote: bool

    @property
    def hint(self) -> str:
        """Return what may be wrong with the row."""
        return "a quote may never be closed" if self.open_quote else "quote a cell that holds the delimiter"


class NoRows(UnreadableFile):
    template = "{path}: there is no row; a table needs at least one."
    path: Path


class RowTooLong(UnreadableFile):
    template = "{path}: a row is longer than 2 GB; a quote may never be closed."
    path: Path


class UnclosedQuote(UnreadableFile):
    template = (
        "{path}: a quote in line {line:,} is never closed, and the lines after it would be one cell; correct that line."
    )
    path: Path
    line: int


class NotJson(UnreadableFile):
    template = "{where}: line {line:,} is not JSON ({reason}, column {column:,}); correct that line."
    where: str
    line: int
    column: int
    reason: str


class NestedTooDeeply(UnreadableFile):
    template = "{where}: line {line:,} is nested too deeply to be a record."
    where: str
    line: int


class NumberTooLong(UnreadableFile):
    template = "{where}: a number from line {line:,} on is too long ({reason}); make it text."
    where: str
    line: int
    reason: str


class NotARecord(UnreadableFile):
    template = "{where} holds {value!r}; expected an object: {{…}}."
    where: str
    value: str


class NoTags(UnreadableFile):
    template = "{path}: no column holds tags such as B-PER, I-PER and O; is it CoNLL text?"
    path: Path


class WrongNumberOfColumns(UnreadableFile):
    template = "{path}: line {line:,} has {n} columns, the first {n_first}; correct it."
    path: Path
    line: int
    n: int
    n_first: int


class NoSheet(UnreadableFile):
    template = "{path} holds no sheet; a table needs a header and rows."
    path: Path


class EmptySheet(UnreadableFile):
    template = "{path}: sheet {sheet!r} is empty; a table needs a header and rows."
    path: Path
    sheet: str


class NoInspectHeader(UnreadableFile):
    template = "{path} is a zip without {header}; expected a log of Inspect."
    path: Path
    header: str


# Records of exports ---------------------------------------------------------------------------------------------------


class UnexpectedValue(DataError):
    template = "{where} has {value!r} as {field!r}; expected {expected}."
    where: str
    field: str
    value: Any
    expected: str
    example = {"where": "log.json: record 3", "expected": "a number"}


class MissingField(DataError):
    template = "{where} has no {fields} for {role}; name the field: {keyword}."
    where: str
    names: tuple[str, ...]
    role: str

    @property
    def fields(self) -> str:
        """Return the fields that were looked for."""
        return " nor ".join(map(repr, self.names))

    @property
    def keyword(self) -> ParameterName:
        """Return the parameter that names the field."""
        return ParameterName(f"{self.role}=<field>")


class NoSubject(MissingField):
    template = "{where} has no {fields} nor a subject; fetch the scores with fields=subject."


class DuplicateRecord(DataError):
    template = "{where} occurs twice; {what} again."
    where: str
    what: str
    example = {"what": "write the log"}


class InvalidSpan(DataError):
    template = "{where} has the span {span!r}; expected whole numbers {start}, {end}, a label."
    where: str
    span: Any
    start: str
    end: str


class UnequalAnswers(DataError):
    template = "{where} has {n:,} answers by {n_annotators:,} annotators."
    where: str
    n: int
    n_annotators: int


class ResponseWithoutUser(DataError):
    template = "{where} has a response to {question!r} without its user."
    where: str
    question: str


class NotAJudgeField(DataError):
    template = "{path}: judges are named by scorer or by model; {keyword} is neither."
    path: Path
    annotator: Any

    @property
    def keyword(self) -> ParameterName:
        """Return the parameter as it was given."""
        return ParameterName(f"annotator={self.annotator!r}")


class DifferentTexts(DataError):
    template = (
        "item {item!r} has other texts in {file} than in {other_file}: these are two projects; read each separately, "
        "or name a field that tells their items apart: {param[item=<field>]}."
    )
    item: Any
    file: str
    other_file: str


class UnusableName(DataError):
    template = "{path}: {role} {name!r} is neither text nor a number; name another field: {keyword}."
    path: Path
    role: str
    name: Any

    @property
    def keyword(self) -> ParameterName:
        """Return the parameter that names the field."""
        return ParameterName(f"{self.role}=<field>")


class NothingUsable(DataError):
    template = "{path} holds no {what} that can be used; a table needs at least one.{unused}"
    path: Path
    what: Literal["answer", "comparison"]
    report: str  # what was not used and why; "" for nothing

    @property
    def unused(self) -> str:
        """Return what was not used, after a blank."""
        return f" {self.report}" if self.report else ""


class NoSpans(DataError):
    template = "{path} holds no spans of text; leave out {param[kind='spans']}."
    path: Path


class SeveralKnownLabels(DataError):
    template = "{path}: an answer marked as right ticks several labels; only one can be known."
    path: Path


class NoSuchQuestion(DataError):
    template = "{path} has no answers called {label!r} for {param[label]}; there are {questions!l}."
    path: Path
    label: str
    questions: tuple[str, ...]


class NoReadableAnswers(DataError):
    template = "{path} holds {contents}; only labels, ratings, spans of text and comparisons are read."
    path: Path
    contents: str


class OneQuestionNeeded(BadParameter):
    template = "{parameter} is for one question; choose it: {param[label=]}, one of {questions!l}."
    parameter: ParameterName
    questions: tuple[str, ...]
    example = {"parameter": ParameterName("ticks='questions'")}


class OneQuestionOnly(BadParameter):
    template = "{parameter} is for one question; read each question separately."
    parameter: ParameterName
    example = {"parameter": ParameterName("proba=")}


class OneQuestionPerProject(BadParameter):
    template = "{tool} has one question, not {n:,}; write each separately."
    tool: str
    n: int


class TagsOfTokensOnly(BadParameter):
    template = "CoNLL text holds tags of tokens, and these are labels of whole items; choose another format to write."


class LabelNotUsable(DataError):
    template = "{path}: item {item!r} has the label {label!r}; expected text or a number."
    path: Path
    item: Any
    label: Any


class NoItems(UnreadableFile):
    template = "{path} holds no item."
    path: Path


# From columns to a table ----------------------------------------------------------------------------------------------


class NoAnnotations(DataError):
    template = "there is no row; a table needs at least one annotation."


class NoAnswers(DataError):
    template = "no row has an answer; a table needs at least one.{unused}"
    report: str

    @property
    def unused(self) -> str:
        """Return what was not used, after a blank."""
        return f" {self.report}" if self.report else ""


class NotQuestions(DataError):
    template = "column {column} holds {contents}; these do not look like questions, of which each is a table."
    column: str
    n_questions: int
    n_rows: int
    one_per_item: bool

    @property
    def contents(self) -> str:
        """Return how many questions there are."""
        return (
            "one for each item" if self.one_per_item else f"{self.n_questions:,} different ones in {self.n_rows:,} rows"
        )


class WeightedTicks(BadParameter):
    template = "{param[ticks='questions']} takes no weights; leave out {param[weight=]}."


class NotAWholeNumber(DataError):
    template = "column {column}, row {row} (from 0) is {text!r}; expected a whole number."
    column: str
    row: int
    text: str


class DuplicateWideRows(DataError):
    template = "column {column!r} gives {n:,} rows of this wide table the name of another row."
    column: str
    n: int


class ListsMissing(DataError):
    template = (
        "{param[map=]} and {param[normalize=]} need a list of labels in every row; write [] where there is no label."
    )


class TooManyClasses(DataError):
    template = (
        "column {column} holds {n_classes:,} different labels in {n_rows:,} rows of {n_items:,} items; these do not "
        "look like classes. Name another column: {param[label=<column>]}, or accept them: {param[many_classes=True]}."
    )
    column: str
    n_classes: int
    n_rows: int
    n_items: int


class NestedLists(DataError):
    template = "column 'label' holds lists of {type}; expected lists of labels."
    type: str


class NoPairColumns(MissingColumn):
    template = (
        "no columns of two alternatives and which is better, such as model_a, model_b and winner; the columns are "
        "{columns!l}. Name them: {param[item='LEFT,RIGHT']}, {param[label=<column>]}."
    )
    columns: tuple[str, ...]


class ComparedWithItself(BadRows, DataError):
    template = f"{COUNT} rows compare an alternative with itself; {FIRST}"


class RowsExcluded(RowsLeftOut):
    template = "{report}"
    report: str
    unused: dict[str, int]  # reason → number of rows
    notes: tuple[Message, ...]
    example = {"report": "Not used: 3 rows without an answer.", "notes": ()}


class UnnamedAnnotators(DataWarning):
    template = (
        "{path}: {n:,} of {n_answers:,} answers name no annotator; they count as one annotator, named by the file."
    )
    path: Path
    n: int
    n_answers: int


class UnnamedSessions(DataWarning):
    template = (
        "{path}: {n:,} of {n_annotators:,} annotators are unnamed sessions, called by their time; one annotator may "
        "count as several."
    )
    path: Path
    n: int
    n_annotators: int


# Simulations ----------------------------------------------------------------------------------------------------------


class PartOutOfRange(BadParameter):
    template = "{param[part]} must lie within 0 … {n_items:,}, got ({first}, {end})."
    n_items: int
    first: int
    end: int


class InvalidPrior(BadParameter):
    template = "{param[prior]} must hold {n_classes} shares that sum to one, got {shares}."
    n_classes: int
    shares: list[float]


class DifficultyWithoutDecoy(BadParameter):
    template = "difficulty and decoy belong together; give both or neither."


class InvalidTruth(DataError):
    template = "truth must hold class codes from 0 to {last}, got {low} … {high}."
    last: int
    low: int
    high: int


class CrowdTooSmall(BadParameter):
    template = "a crowd needs at least one annotator and two classes, got {n_annotators} and {n_classes}."
    n_annotators: int
    n_classes: int


class RedundancyOutOfRange(BadParameter):
    template = "{param[redundancy]} must lie between 1 and the {n_annotators} active annotators, got {redundancy}."
    n_annotators: int
    redundancy: int | tuple[int, int]


class KindNotSimulated(BadParameter):
    template = (
        "{param[kind]} must be numbers, graded or pairs, got {kind!r}; for others there are simulate_sets, "
        "simulate_spans and simulate_texts."
    )
    kind: Any


class UnknownAnnotatorKind(BadParameter):
    template = "{param[kinds]}: no kind {kind!r}; there are {known}."
    kind: Any
    known: str


class InvalidShare(BadParameter):
    template = "{param[kinds]}: the share of {kind!r} must not be negative, got {share}."
    kind: Any
    share: float


class NoShares(BadParameter):
    template = "{param[kinds]}: the shares sum to zero."


# Data sets ------------------------------------------------------------------------------------------------------------


class OneGoldOnly(BadParameter):
    template = "'{name}' has one gold and its annotations; leave out {param[gold=]} and {param[votes=]}."
    name: str


class UnknownDataset(UnknownName):
    template = "no data set '{name}';{guess} {hint}"
    name: str
    guess: str  # " did you mean '…'?", or ""
    n_datasets: int
    variable: str
    folder_named: bool
    example = {"guess": " did you mean 'rte'?"}

    @property
    def hint(self) -> str:
        """Return what finds the data sets there are."""
        if self.folder_named:
            return f"`dissensus datasets` lists all {self.n_datasets:,}."
        return f"{self.variable} is not set: to load from a data folder, `export {self.variable}=FOLDER`."


class NotRandom(BadParameter):
    template = "'{name}' is not drawn at random; {param[seed=]} is for '{simulated}'."
    name: str
    simulated: str


class NotAFolder(UnreadableFile):
    template = "{where} names '{path}', which is not a folder."
    where: str
    path: str
    example = {"where": "the environment variable DISSENSUS_DATA"}


class NotALabelledSet(DataError):
    template = "'{name}' is not a labelled set: it has neither annotations.csv nor counts.csv (nor .csv.gz)."
    name: str


class UnknownVotes(BadParameter):
    template = "'{name}': {param[votes]} must be {allowed}, got {votes!r}."
    name: str
    allowed: str
    votes: Any
    example = {"allowed": "'annotations' or 'counts'"}


class UnknownGold(UnknownName):
    template = "'{name}' has no gold '{gold}': it {others}, and {default}."
    name: str
    gold: str
    golds: tuple[str, ...]
    has_default: bool

    @property
    def others(self) -> str:
        """Return which golds there are."""
        return f"has {', '.join(map(repr, self.golds))}" if self.golds else "has no other golds"

    @property
    def default(self) -> str:
        """Return what is read without a name."""
        return "without gold= it reads gold.csv" if self.has_default else "there is no gold.csv either"


class CountsNotWhole(DataError):
    template = "column 'count' must hold whole numbers: {reason}."
    reason: str


class ColumnMissingInFile(MissingColumn):
    template = "{path}: no column '{name}'; the columns are {columns!l}."
    path: Path
    name: str
    columns: tuple[str, ...]


class NotArrays(UnreadableFile):
    template = "{path} cannot be read as arrays `item` and `x` ({reason})."
    path: Path
    reason: str


class DuplicateRows(DataError):
    template = "{file}: {name!r} has {n} rows; keep one."
    file: str
    name: Any
    n: int


class NoItemColumn(MissingColumn):
    template = "{dataset}: no item column '{name}'; there are {columns}."
    dataset: str
    name: str
    columns: str


def names_of(columns: Sequence[Any]) -> tuple[Any, ...]:
    """Return names as a tuple of plain values, which is how messages hold them."""
    return tuple(getattr(columns, "tolist", lambda: columns)())
