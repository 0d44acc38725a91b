"""What an import report says besides its counts: guesses, changes to the labels, and what a file does not hold."""

from __future__ import annotations

from typing import Any, Literal

from dissensus.common.formatting import join_words
from dissensus.messages import Message, ParameterName

MAX_SPELLINGS_SHOWN = 5  # classes
MAX_COLUMNS_NAMED = 8


def quote_columns(names: list[str]) -> str:
    """Quote the first few column names."""
    more = f" and {len(names) - MAX_COLUMNS_NAMED:,} more" if len(names) > MAX_COLUMNS_NAMED else ""
    return ", ".join(f"'{name}'" for name in names[:MAX_COLUMNS_NAMED]) + more


class Note(Message):
    """A note in an import report; notes with the same facts are equal."""

    warns = False  # True if answers may be missing
    single_file_only = False  # True if it holds only for a file that is read alone

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and (self.facts, self.subjects) == (other.facts, other.subjects)

    def __hash__(self) -> int:
        return hash((type(self), repr(self.facts), self.subjects))


# Labels ---------------------------------------------------------------------------------------------------------------


class SpellingVariants(Note):
    template = (
        "Classes differ by capitals or spaces only, and count as different: {listed}; {param[normalize=True]} merges "
        "them."
    )
    variants: tuple[tuple[str, ...], ...]

    @property
    def listed(self) -> str:
        return "; ".join(", ".join(labels) for labels in self.variants[:MAX_SPELLINGS_SHOWN])


class LabelTypeGuessed(Note):
    template = "Labels are {what}; change with {param[kind='classes']}."
    what: Literal["tags of places in documents", "numbers", "sets of options"]


class LabelsWithCommas(Note):
    template = "Labels are classes; if they are numbers, write decimal points in place of their commas."


class SeveralLabelsPerItem(Note):
    template = (
        "{n:,} labels are another class for an item by the same annotator; if annotators may choose several: "
        "{param[kind='sets']}."
    )
    n: int


class LabelsMayBeGrades(Note):
    template = "Labels are classes without an order; if they are ratings: {param[kind='graded']}."


class AnswersAreSets(Note):
    template = (
        "{n_several:,} of {n_answers:,} answers tick several labels: taken for sets of options ({param[ticks='votes']} "
        "or {param[ticks='questions']} takes them apart)."
    )
    n_several: int
    n_answers: int


class TicksTakenApart(Note):
    template = "Answers with several ticks were taken apart into {into}: {n:,}."
    into: Literal["votes", "yes/no questions"]
    n: int


class UnknownMapKeys(Note):
    template = "{param[map=]} names {listed}, which no label is."
    labels: list[str]

    @property
    def listed(self) -> str:
        return quote_columns(self.labels)


class LabelsRewritten(Note):
    template = "Labels rewritten by {param[normalize=]} and {param[map=]}: {n:,}."
    n: int


class RepeatedRows(Note):
    template = (
        "{n:,} of {n_rows:,} rows repeat item, annotator and label of another row, and methods but consensus count "
        "each: remove rows that the file holds twice."
    )
    n: int
    n_rows: int


# Columns and files ----------------------------------------------------------------------------------------------------


class TextsNotQuestions(Note):
    template = "Column {column} holds {contents}: taken for texts, not for questions ({param[question=]} insists)."
    column: str
    contents: str


class GoldOfSeveralQuestions(Note):
    template = "Column '{column}' is not taken for gold labels: there are several questions."
    column: str


class GoldDiffersWithinItems(Note):
    template = "Column '{column}' differs within items and is not taken for gold labels."
    column: str


class OffsetsGuessed(Note):
    template = "Starts and ends are taken for those of {unit}, by the length of spans."
    unit: Literal["tokens", "characters"]


class SpansOverlap(Note):
    template = "Spans{of_question} overlap: labels that do are in different tables, {tables}."
    question: str  # "" for spans in a table
    names: tuple[str, ...]

    @property
    def of_question(self) -> str:
        return f" of '{self.question}'" if self.question else ""

    @property
    def tables(self) -> str:
        return ", ".join(f"'{name}'" for name in self.names)


class FilesRead(Note):
    template = "Files read as one: {n:,}{others}."
    n: int
    n_others: int

    @property
    def others(self) -> str:
        return f"; files that are no table: {self.n_others:,}" if self.n_others else ""


class SheetRead(Note):
    template = "Sheet {sheet!r} was read; not read: {others}."
    sheet: str
    others: str


class AnnotatorsNumbered(Note):
    template = "Annotators are numbered by the order of their sentences: one number may be several annotators."


class QuestionsOfOtherTypes(Note):
    template = "This command is for classes; not looked at: {questions}."
    questions: str


# Exports of tools -----------------------------------------------------------------------------------------------------


class TargetsNotGold(Note):
    template = "Targets, such as {target!r}, are not taken for gold labels: they are not among the labels."
    target: Any


class ComparisonsAreLabels(Note):
    template = (
        "'{question}' compares different alternatives in every item: its answers are labels, left and right "
        "({param[kind='pairs']} compares)."
    )
    question: str


class ComparesFields(Note):
    template = (
        "'{question}' compares '{left}' with '{right}' in every task, whose data have no such fields "
        "({param[kind='classes']}: left or right for each task)."
    )
    question: str
    left: str
    right: str


class SamplesMissing(Note):
    template = "Samples of the run that are not in the log: {n:,}, such as {sample!r}."
    warns = True
    n: int
    sample: Any


class RunNotSuccessful(Note):
    template = "The run has the status {status!r}."
    warns = True
    status: Any


class ScorersAreJudges(Note):
    template = "Scorers are the judges of one question: {scorers}."
    scorers: str


class JudgesApart(Note):
    template = "Judges that never answered the same question are questions of their own."


class SomeScores(Note):
    template = "This page has {n:,} of {n_total:,} scores; give all pages, in one folder."
    warns = single_file_only = True
    n: int
    n_total: int


class MorePages(Note):
    template = "There are more scores after this page; give all pages, in one folder."
    warns = single_file_only = True


# Data sets -----------------------------------------------------------------------------------------------------------


class MissingParts(Message):
    template = "{name} has {parts}{incomplete}."
    name: str
    lacking: tuple[str, ...]  # parts
    partial: dict[str, int]  # part → number of items that have it
    n_items: int

    @property
    def parts(self) -> str:
        return join_words([f"no {part}" for part in self.lacking]) if self.lacking else "every part"

    @property
    def incomplete(self) -> str:
        return "".join(f"; {part} for {n:,} of its {self.n_items:,} items" for part, n in self.partial.items())


# Counts ---------------------------------------------------------------------------------------------------------------


class ReadSummary(Message):
    template = "Read as {format}: {found}; {used} used. Change: {changes}."
    format: str
    columns: dict[str, str]  # role → what was taken for it
    rows: str  # how many there are, with their unit
    n_used: int
    n_rows: int
    example = {"columns": {"item": "'task'", "label": "'answer'"}, "rows": "1,200 rows"}

    @property
    def found(self) -> str:
        return ", ".join(f"{role} {column}" for role, column in self.columns.items())

    @property
    def used(self) -> str:
        return f"all {self.rows}" if self.n_used == self.n_rows else f"{self.n_used:,} of {self.rows}"

    @property
    def changes(self) -> tuple[ParameterName, ...]:
        roles = [role for role in self.columns if role in ("item", "annotator", "label", "question")]
        return tuple(ParameterName(f"{role}=") for role in roles) or (ParameterName("format="),)


class ReadByLabel(Message):
    template = "read by {keyword}"
    label: str

    @property
    def keyword(self) -> ParameterName:
        return ParameterName(f"label='{self.label}'")


class DeclaredAbstention(Message):
    template = "{param[abstain=]}"
