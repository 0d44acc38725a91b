"""Notes of an import report, about guesses, changes to labels, and data missing from a file."""

from __future__ import annotations

from typing import Any, Literal

from dissensus.common.formatting import join_words
from dissensus.messages import Message, ParameterName

MAX_SPELLINGS_SHOWN = 5  # classes
MAX_COLUMNS_NAMED = 8


def quote_columns(names: list[str]) -> str:
    """Return the first `MAX_COLUMNS_NAMED` column names in quotes."""
    more = f" and {len(names) - MAX_COLUMNS_NAMED:,} more" if len(names) > MAX_COLUMNS_NAMED else ""
    return ", ".join(f"'{name}'" for name in names[:MAX_COLUMNS_NAMED]) + more


class Note(Message):
    """A note in an import report; two notes with the same facts are equal."""

    warns = False  # True if answers may be missing, so that the user is warned
    single_file_only = False  # True if the note is dropped when several files are read together

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and (self.facts, self.subjects) == (other.facts, other.subjects)

    def __hash__(self) -> int:
        return hash((type(self), repr(self.facts), self.subjects))


# Labels ---------------------------------------------------------------------------------------------------------------


class SpellingVariants(Note):
    template = (
        "Some classes differ only in capitals or spaces and are treated as different: {listed}. Merge them with "
        "{param[normalize=True]}."
    )
    variants: tuple[tuple[str, ...], ...]

    @property
    def listed(self) -> str:
        return "; ".join(", ".join(labels) for labels in self.variants[:MAX_SPELLINGS_SHOWN])


class LabelTypeGuessed(Note):
    template = "Labels are read as {kind}; to read them as classes, use {param[kind='classes']}."
    kind: Literal["tags of positions in documents", "numbers", "sets of options"]


class LabelsWithCommas(Note):
    template = "Labels are read as classes; if they are numbers, replace their decimal commas with points."


class SeveralLabelsPerItem(Note):
    template = (
        "{n:,} labels give an item a second class by the same annotator; if annotators may choose several classes, "
        "use {param[kind='sets']}."
    )
    n: int


class LabelsMayBeGrades(Note):
    template = "Labels are read as unordered classes; if they are ratings, use {param[kind='graded']}."


class AnswersReadAsSets(Note):
    template = (
        "{n_several:,} of {n_answers:,} answers select several labels, so the labels are read as sets of options. To "
        "split them, use {param[ticks='votes']} or {param[ticks='questions']}."
    )
    n_several: int
    n_answers: int


class SelectionsSplit(Note):
    template = "{n:,} answers that select several labels were split into {into}."
    into: Literal["votes", "yes/no questions"]
    n: int


class UnknownMapKeys(Note):
    template = "{param[map=]} names labels that do not occur: {listed}."
    labels: list[str]

    @property
    def listed(self) -> str:
        return quote_columns(self.labels)


class LabelsRewritten(Note):
    template = "{param[normalize=]} and {param[map=]} changed {n:,} labels."
    n: int


class RepeatedRows(Note):
    template = (
        "{n:,} of {n_rows:,} rows repeat the item, annotator and label of another row. All methods except consensus "
        "count them again; remove duplicate rows from the file."
    )
    n: int
    n_rows: int


# Columns and files ----------------------------------------------------------------------------------------------------


class QuestionsReadAsTexts(Note):
    template = (
        "Column {column} holds {contents}, so it is read as text; to read it as questions, use {param[question=]}."
    )
    column: str
    contents: str


class GoldColumnIgnored(Note):
    template = "Column '{column}' is not read as gold labels, because {reason}."
    column: str
    reason: Literal["there are several questions", "its values differ within items"]


class OffsetsGuessed(Note):
    template = "Start and end are read as offsets in {unit}, judging by the length of the spans."
    unit: Literal["tokens", "characters"]


class SpansOverlap(Note):
    template = "Spans{of_question} overlap; overlapping labels are in separate tables: {table_names}."
    question: str  # "" for spans in a table
    names: tuple[str, ...]

    @property
    def of_question(self) -> str:
        return f" of '{self.question}'" if self.question else ""

    @property
    def table_names(self) -> str:
        return ", ".join(f"'{name}'" for name in self.names)


class FilesReadAsOne(Note):
    template = "{n:,} files were read as one table{other_files}."
    n: int
    n_others: int

    @property
    def other_files(self) -> str:
        return f"; {self.n_others:,} other files are not tables" if self.n_others else ""


class OtherSheetsIgnored(Note):
    template = "Only sheet {sheet!r} was read, not {other_sheets}."
    sheet: str
    other_sheets: str


class AnnotatorsNumbered(Note):
    template = "Annotators are numbered by the order of the sentences, so one number may stand for several annotators."


class QuestionsOfOtherTypes(Note):
    template = "This command reads classes; it skips questions with other label types: {questions}."
    questions: str


# Exports of tools -----------------------------------------------------------------------------------------------------


class TargetsNotReadAsGold(Note):
    template = "Targets, such as {target!r}, do not occur as labels and are not read as gold labels."
    target: Any


class ComparisonsReadAsLabels(Note):
    template = (
        "'{question}' compares different alternatives in every item, so its answers are read as the labels left and "
        "right; to compare the alternatives, use {param[kind='pairs']}."
    )
    question: str


class ComparedFieldsMissing(Note):
    template = (
        "'{question}' compares '{left_field}' with '{right_field}' in every task, but the tasks have no such fields; "
        "to read left or right as the label of each task, use {param[kind='classes']}."
    )
    question: str
    left_field: str
    right_field: str


class SamplesMissing(Note):
    template = "{n:,} samples of the run are missing from the log, such as {sample!r}."
    warns = True
    n: int
    sample: Any


class RunNotSuccessful(Note):
    template = "The run did not succeed; its status is {status!r}."
    warns = True
    status: Any


class ScorersReadAsJudges(Note):
    template = "These scorers are read as judges of one question: {scorers}."
    scorers: str


class JudgesReadSeparately(Note):
    template = "Judges that never answered the same question are read as separate questions."


class PagesMissing(Note):
    template = "The file has {n:,}{of_total} scores; put all pages into one folder and read that."
    warns = single_file_only = True
    n: int
    n_total: int | None

    @property
    def of_total(self) -> str:
        return " but not all" if self.n_total is None else f" of {self.n_total:,}"


# Data sets -----------------------------------------------------------------------------------------------------------


class MissingDatasetParts(Message):
    template = "{name} has {absent_parts}{partial_parts}."
    name: str
    lacking: tuple[str, ...]  # parts that the data set does not have
    partial: dict[str, int]  # part → number of items that have it
    n_items: int

    @property
    def absent_parts(self) -> str:
        return join_words([f"no {part}" for part in self.lacking]) if self.lacking else "every part"

    @property
    def partial_parts(self) -> str:
        return "".join(f"; {part} for {n:,} of its {self.n_items:,} items" for part, n in self.partial.items())


# Counts ---------------------------------------------------------------------------------------------------------------


class ReadSummary(Message):
    template = "Read as {format}: {column_list}; {used_rows} used. Change: {changes}."
    format: str
    columns: dict[str, str]  # role → description of the column used for it
    rows: str  # number of rows with their unit
    n_used: int
    n_rows: int
    example = {"columns": {"item": "'task'", "label": "'answer'"}, "rows": "1,200 rows"}

    @property
    def column_list(self) -> str:
        return ", ".join(f"{role} {column}" for role, column in self.columns.items())

    @property
    def used_rows(self) -> str:
        return f"all {self.rows}" if self.n_used == self.n_rows else f"{self.n_used:,} of {self.rows}"

    @property
    def changes(self) -> tuple[ParameterName, ...]:
        roles = [role for role in self.columns if role in ("item", "annotator", "label", "question")]
        return tuple(ParameterName(f"{role}=") for role in roles) or (ParameterName("format="),)


class LabelOptionAdvice(Message):
    template = "read it with {keyword}"
    label: str

    @property
    def keyword(self) -> ParameterName:
        return ParameterName(f"label='{self.label}'")


class DeclaredAbstention(Message):
    template = "{param[abstain=]}"
