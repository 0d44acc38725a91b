"""What can be wrong with a table, a file or a simulation, with the facts of each case."""

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


class BadFile(UnreadableFile):
    path: Path


class ForRole(Message):
    role: str

    @property
    def column(self) -> ParameterName:
        return ParameterName(f"{self.role}=<column>")

    @property
    def field(self) -> ParameterName:
        return ParameterName(f"{self.role}=<field>")


class WrongValue(BadParameter):
    template = "{parameter} must be {expected}, got {value!r}."
    parameter: ParameterName
    expected: str
    value: Any
    example = {"expected": "text"}


class WrongColumn(DataError):
    template = "{column}: expected {expected}, got {found}."
    column: str
    expected: str
    found: str
    example = {"expected": "one dimension", "found": "shape (2, 3)"}


class DuplicateName(DataError):
    template = "{where}: {name!r} occurs {n} times; keep one."
    where: str
    name: Any
    n: int


COUNT = "{column}: {n_bad:,} of {n_rows:,}"
FIRST = "first at row {row} (from 0): {value!r}."


class NotCounts(BadRows, DataError):
    template = f"{COUNT} rows are not whole numbers from 0 up; {FIRST}"


class NegativeWeights(BadRows, DataError):
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
        f"{COUNT} labels are none of the table's {{n_classes:,}} classes; {FIRST} Declare all classes in making the "
        "table: {how}."
    )
    n_classes: int
    kind: str

    @property
    def how(self) -> str:
        return "table.with_added_classes(labels)" if self.kind == "sets" else ParameterName("classes=")


OUTSIDE = "column '{column}': {n_bad:,} of {n_rows:,} rows hold a name outside the {n_classes:,} {classes}; " + FIRST


class LabelOutsideClasses(BadRows, UnknownClass):
    template = (
        f"{OUTSIDE} Leave out {{param[classes=]}} to take them from the rows, or declare it in {{param[abstain=]}}."
    )
    n_classes: int

    @property
    def classes(self) -> str:
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


class UnstorableName(DataError):
    template = "column '{column}' holds a name that cannot be stored ({reason}); make it other text."
    column: str
    reason: str


class UnsupportedType(DataError):
    template = "column '{column}' holds values of type {type}; convert it to text or integers."
    column: str
    type: str


class MixedTypes(DataError):
    template = "column '{column}' mixes kinds of values ({examples}); convert it to one kind, such as text."
    column: str
    first: dict[str, tuple[int, str]]  # type → the row and the value where it occurs first

    @property
    def examples(self) -> str:
        return "; ".join(f"{kind} at row {row}: {value[:40]!r}" for kind, (row, value) in list(self.first.items())[:3])

    example = {"first": {"int": (0, "1"), "str": (3, "x")}}


class CodeOutsideNames(DataError):
    template = "{name}: code {code} lies outside the {n:,} names; codes run from 0 to {last:,}."
    name: str
    code: int
    n: int

    @property
    def last(self) -> int:
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


class IntegerTooLarge(DataError):
    template = "an integer name, {value}, does not fit 64 signed bits; convert the column to text."
    value: int


class UndeclaredName(DataError):
    template = "{role} {name!r} has annotations and is not in the list of {role}s given."
    role: str
    name: Any


class CellNotANumber(DataError):
    template = "column '{column}': row {row} (from 0) holds {value!r}, which is not a number."
    column: str
    row: int
    value: Any


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


class QuestionPerItem(DataWarning):
    template = (
        "each of the {n_items:,} items has a question of its own; if the column holds the items' texts, leave it out."
    )
    n_items: int


# Kinds of labels ------------------------------------------------------------------------------------------------------


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
        from dissensus.table.kinds import KIND_DESCRIPTIONS

        return KIND_DESCRIPTIONS[self.kind]

    @property
    def allowed_labels(self) -> str:
        from dissensus.table.kinds import KIND_DESCRIPTIONS

        return " or ".join(KIND_DESCRIPTIONS[kind] for kind in self.allowed)


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


class ItemNotAPair(DataError):
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


class UnknownColumn(MissingColumn):
    template = "no column '{name}' for {role}; the columns are {columns!l}."
    name: str
    role: str
    columns: tuple[str, ...]


class NoColumnFor(ForRole, MissingColumn):
    template = "no column '{role}' (nor {synonyms}); {rest}. Name it: {column}{advice}{guesses}."
    synonyms: str
    columns: tuple[str, ...]
    taken: dict[str, str]  # other role → its columns
    candidates: tuple[str, ...]  # columns that may be meant
    counts: str  # column of vote counts, "" for none
    example = {"role": "annotator", "taken": {"item": "'id'"}, "counts": "", "candidates": ()}

    @property
    def rest(self) -> str:
        others = ", ".join(f"{columns} for the {role}" for role, columns in self.taken.items())
        besides = f" besides {others}" if others else ""
        listed = ", ".join(map(quote_name, self.columns[:12])) + (", …" if len(self.columns) > 12 else "")
        return f"the columns are {listed}{besides}" if self.columns else f"no column is left for it{besides}"

    @property
    def advice(self) -> str:
        if not self.counts:
            return ""
        return f"; Annotations.from_counts(item, label, {self.counts}) makes a table of vote counts in Python"

    @property
    def guesses(self) -> str:
        return f"; it may be {' or '.join(map(repr, self.candidates))}" if self.candidates else ""


class NoAnnotatorColumn(NoColumnFor):
    template = (
        "no column '{role}' (nor {synonyms}); {rest}. Name it: {column}, or pass {param[wide=True]} if each annotator "
        "has a column."
    )


class PerhapsWideTable(MissingColumn):
    template = "{missing} If each annotator has a column, pass {param[wide=True]}."
    missing: MissingColumn
    example = {"missing": UnknownColumn(name="who", role="annotator", columns=("ann", "bob"))}


class AmbiguousColumns(ForRole, DataError):
    template = "columns {columns!l} could each be {role}; choose one: {column}."
    columns: tuple[str, ...]


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


class UnsupportedSource(DataError):
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
        return ParameterName(f"item={self.item!r}")

    @property
    def other_keyword(self) -> ParameterName:
        return ParameterName(f"item={self.other!r}")


# Reading files --------------------------------------------------------------------------------------------------------


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


class TooManyFiles(BadFile):
    template = "{path} is a folder of more than {limit:,} files; name one file in it."
    limit: int


class FolderWithoutTable(BadFile):
    template = "{path} is a folder without a table in it; name a file."


class SeveralFormats(BadFile):
    template = "{path} is a folder of several formats ({formats}); name one file in it."
    formats: str


class DifferentColumns(BadFile):
    template = (
        "{path} is a folder whose files have different columns ({file}: {columns!l}; {other_file}: {other_columns!l}); "
        "name one file in it."
    )
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


class UnknownFormat(BadFile):
    template = "{path} is of no known format; name it: {param[format=]}, one of {formats}."
    formats: str


class ZipOfSeveralFiles(BadFile):
    template = "{path} is a zip of {n:,} files ({some}); unpack it, and name one of them or their folder."
    names: tuple[str, ...]

    @property
    def n(self) -> int:
        return len(self.names)

    @property
    def some(self) -> str:
        return ", ".join(self.names[:3]) + (", …" if self.n > 3 else "")


class EmptyFile(UnreadableFile):
    template = "{where} is empty; a table needs {needs}."
    where: str
    needs: Literal["a header and rows", "at least one record", "at least one row", "at least one item"]


class RecordsOfItems(BadFile):
    template = (
        "{path} is one object of objects without annotations, which is not read yet; write a table with a row per "
        "label: item, annotator and label; if it describes the annotators, give it as a table with a column annotator."
    )


class MissingFile(BadFile):
    template = "no file {path}; check its name and the folder."


class FolderInsteadOfFile(BadFile):
    template = "{path} is a folder; name one file in it."


class NotUtf16(BadFile):
    template = "{path} is cut short or not UTF-16 text ({reason}); save it as UTF-8."
    reason: str


class NotUtf8(BadFile):
    template = "{path} is not UTF-8 text{where}; save it as UTF-8, or convert it (iconv -f LATIN1 -t UTF-8 OLD > NEW)."
    where: str
    example = {"where": " (byte 0xe9)"}


class DamagedFile(BadFile):
    template = (
        "{path} cannot be read ({reason}); it may be cut short, damaged or of another format: fetch or write it again, "
        "or name its {param[format=]}."
    )
    reason: str


class UnpacksTooLarge(BadFile):
    template = "{path} unpacks to more than {ratio} times its size; if it is meant to, unpack it first."
    ratio: int


class NotAHeader(BadFile):
    template = "{path}: its first line is not a header ({reason}); is it a table of text?"
    reason: str


class WrongNumberOfFields(BadFile):
    template = (
        "{path}: {where} has {n} fields, the header has {n_header} (separated by {delimiter!r}); correct that row: "
        "{hint}."
    )
    where: str
    n: int
    n_header: int
    delimiter: str
    open_quote: bool

    @property
    def hint(self) -> str:
        return "a quote may never be closed" if self.open_quote else "quote a cell that holds the delimiter"


class RowTooLong(BadFile):
    template = "{path}: a row is longer than 2 GB; a quote may never be closed."


class UnclosedQuote(BadFile):
    template = (
        "{path}: a quote in line {line:,} is never closed, and the lines after it would be one cell; correct that line."
    )
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


class NoTags(BadFile):
    template = "{path}: no column holds tags such as B-PER, I-PER and O; is it CoNLL text?"


class WrongNumberOfColumns(BadFile):
    template = "{path}: line {line:,} has {n} columns, the first {n_first}; correct it."
    line: int
    n: int
    n_first: int


class NoInspectHeader(BadFile):
    template = "{path} is a zip without {header}; expected a log of Inspect."
    header: str


# Records of exports ---------------------------------------------------------------------------------------------------


class UnexpectedValue(DataError):
    template = "{where} has {value!r} as {field!r}; expected {expected}."
    where: str
    field: str
    value: Any
    expected: str
    example = {"where": "log.json: record 3", "expected": "a number"}


class MissingField(ForRole, DataError):
    template = "{where} has no {fields} for {role}; name the field: {field}."
    where: str
    names: tuple[str, ...]

    @property
    def fields(self) -> str:
        return " nor ".join(map(repr, self.names))


class NoSubject(MissingField):
    template = "{where} has no {fields} nor a subject; fetch the scores with fields=subject."


class DuplicateRecord(DataError):
    template = "{where} occurs twice; {what} again."
    where: str
    what: str
    example = {"what": "write the log"}


class UnequalAnswers(DataError):
    template = "{where} has {n:,} answers by {n_annotators:,} annotators."
    where: str
    n: int
    n_annotators: int


class DifferentTexts(DataError):
    template = (
        "item {item!r} has other texts in {file} than in {other_file}: these are two projects; read each separately, "
        "or name a field that tells their items apart: {param[item=<field>]}."
    )
    item: Any
    file: str
    other_file: str


class UnusableName(ForRole, DataError):
    template = "{path}: {role} {name!r} is neither text nor a number; name another field: {field}."
    path: Path
    name: Any


class NothingUsable(DataError):
    template = "there is no {what} that can be used; a table needs at least one.{unused}"
    what: Literal["row", "answer", "comparison"]
    report: str  # excluded rows and notes; "" without any

    @property
    def unused(self) -> str:
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


# From columns to a table ----------------------------------------------------------------------------------------------


class NotQuestions(DataError):
    template = "column {column} holds {contents}; these do not look like questions, of which each is a table."
    column: str
    n_questions: int
    n_rows: int
    one_per_item: bool

    @property
    def contents(self) -> str:
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


class LabelsNotClasses(DataError):
    template = (
        "column {column} holds {n_classes:,} different labels in {n_rows:,} rows of {n_items:,} items; these do not "
        "look like classes. Name another column: {param[label=<column>]}, or accept them: {param[many_classes=True]}."
    )
    column: str
    n_classes: int
    n_rows: int
    n_items: int


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


class DifficultyWithoutDecoy(BadParameter):
    template = "difficulty and decoy belong together; give both or neither."


class CrowdTooSmall(BadParameter):
    template = "a crowd needs at least one annotator and two classes, got {n_annotators} and {n_classes}."
    n_annotators: int
    n_classes: int


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
        if self.folder_named:
            return f"`dissensus list datasets` lists all {self.n_datasets:,}."
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


class UnknownGold(UnknownName):
    template = "'{name}' has no gold '{gold}': it {others}, and {default}."
    name: str
    gold: str
    golds: tuple[str, ...]
    has_default: bool

    @property
    def others(self) -> str:
        return f"has {', '.join(map(repr, self.golds))}" if self.golds else "has no other golds"

    @property
    def default(self) -> str:
        return "without gold= it reads gold.csv" if self.has_default else "there is no gold.csv either"


class NotArrays(BadFile):
    template = "{path} cannot be read as arrays `item` and `x` ({reason})."
    reason: str
