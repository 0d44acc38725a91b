"""Errors of the command line: options that contradict each other, and files that a command cannot use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dissensus.common.exceptions import suggest_nearest
from dissensus.exceptions import (
    BadParameter,
    Conflict,
    DataError,
    DataWarning,
    DissensusWarning,
    MissingColumn,
    UnknownClass,
    UnknownName,
    UnreadableFile,
)
from dissensus.messages import ParameterName

# options


class OptionsConflict(Conflict):
    template = "{option} cannot be used with {other_option}; leave out one of them."
    option: ParameterName
    other_option: str
    example = {"other_option": "--model"}


class OptionNeeds(BadParameter):
    template = "{option} needs {needed}."
    option: ParameterName
    needed: str
    example = {"needed": "--model FOLDER"}


class GoldOnlyScores(BadParameter):
    template = "{option} cannot be trained on --gold; add --gold-use score to measure accuracy with these labels."
    option: str
    example = {"option": "--model"}


class NotADataset(BadParameter):
    template = "list {listing} takes no name; to describe a data set: dissensus list datasets {name}."
    listing: str
    name: str


class NoBudget(BadParameter):
    template = (
        "The command needs --budget NUMBER, to recommend labels, or --enough, to estimate how many per item are enough."
    )


class NotForLabels(BadParameter):
    template = "{option} cannot be used with {kind}; omit it."
    option: ParameterName
    kind: str
    example = {"kind": "numbers"}


class NoInputs(BadParameter):
    template = (
        "a model needs inputs besides labels: --items FILE with texts (it may be the file of the labels), --features "
        "FILE or --images FILE."
    )


class BadSetting(BadParameter):
    template = "--set {setting}: expected {expected}."
    setting: str
    expected: str


class UnknownSetting(UnknownName):
    template = "--set {setting}: '{owner}' has no parameter '{key}';{guess} {subject} has {available!l}."
    setting: str
    owner: str
    key: str
    available: tuple[str, ...]

    @property
    def guess(self) -> str:
        return suggest_nearest(self.key, self.available)

    @property
    def subject(self) -> str:
        return "It" if self.guess else "it"


class SettingHasOption(BadParameter):
    template = "--set {setting}: this parameter has its own option; see --help."
    setting: str


class MethodInMemory(BadParameter):
    template = "'{method}' runs in memory only; --engine {engine} is for {methods!l}."
    method: str
    engine: str
    methods: tuple[str, ...]


class BadSizes(BadParameter):
    template = "{option} {text}: expected a number, a list such as 3,5,8 or a range such as 3:20."
    option: ParameterName
    text: str


class BadValidation(BadParameter):
    template = "--validation {text} is neither a share, such as 0.1, nor an existing file."
    text: str


# files to write


class InTheWay(BadParameter):
    template = "cannot write {path}: {obstacle} is a {kind}."
    path: Path
    obstacle: Path
    kind: str
    example = {"kind": "folder"}


class NotOurFile(BadParameter):
    template = (
        "{file} exists, but the folder has no {summary} of an earlier run; name another folder, or remove the file."
    )
    file: Path
    summary: str


class UnknownSuffix(BadParameter):
    template = "{option} {path}: {content} are written as {suffixes!l}; use one of these suffixes."
    option: str
    path: Path
    content: str
    suffixes: tuple[str, ...]
    example = {"option": "-o", "content": "scores", "suffixes": (".csv", ".jsonl")}


class FolderMissing(BadParameter):
    template = "{option} {path}: the folder {path.parent} does not exist; create it first."
    option: str
    path: Path
    example = {"option": "-o", "path": Path("results/scores.csv")}


# files to read


class OneQuestionOnly(BadParameter):
    template = "{option} needs a file with a single question; process each question separately."
    option: ParameterName


class ManyQuestions(BadParameter):
    template = "{file} has {count:,} questions; process each separately: {how}."
    file: Path
    count: int
    question: str
    by_label: bool  # --label selects a question of an export

    @property
    def how(self) -> str:
        return f"--label {self.question}" if self.by_label else "in a file of its own"


class OtherQuestions(BadParameter):
    template = (
        "of {old} and {new}, one has several questions and the other has one; compare files with the same questions."
    )
    old: str
    new: str


class QuestionMissing(DataError):
    template = "question {question!r} is in {new}, but not in {old}; remove it from {new}."
    question: str
    old: str
    new: str


class NoMapping(BadParameter):
    template = "--map {entry}: expected OLD=NEW, or a file with a column of old labels and a column of new labels."
    entry: str


class GoldIgnored(DataWarning):
    template = "the gold labels in FILE are not used: {reason}"
    reason: str


class NotWrittenBy(UnreadableFile):
    template = "{path} was not written by `dissensus {command}`, or is damaged."
    path: Path
    command: str


class FolderOfFiles(UnreadableFile):
    template = "{folder} is a folder; name its files: '{folder}/*.parquet'."
    folder: Path


class TrainingStopped(UnreadableFile):
    template = "the training in {folder} was stopped; give the same `dissensus train` command to resume it."
    folder: Path


class OtherCheckpoint(UnreadableFile):
    template = "{path} is the checkpoint of a run with other data or options; add --fresh to discard it."
    path: Path


class NoModelOfQuestion(UnreadableFile):
    template = "{folder} has no model for this question; it has models for {questions!l}."
    folder: Path
    questions: tuple[str, ...]


class ModelWithoutItems(BadParameter):
    template = "the model in {model} has no items, as --engine disk and spark write it; fit all annotations again."
    model: Path


class NewClasses(UnknownClass):
    template = (
        "{file} has labels that the model in {model} was not fitted to: {classes!l}; fit a new model, or ignore them "
        "with --abstain."
    )
    file: Path
    model: Path
    classes: tuple[str, ...]


class CountedTwice(DataWarning):
    template = (
        "FILE may hold labels that the model was already fitted to; they now count twice. Use --update with new "
        "labels only."
    )


class OtherFormat(BadParameter):
    template = "{path}: {content} are read from {expected}."
    path: Path
    content: str
    expected: str
    example = {"content": "images", "expected": "an .npz file with arrays `item` and `x`"}


class ColumnMissing(MissingColumn):
    template = "{path}: no column {column!r} for {role}; the columns are {columns}."
    path: Path
    column: str
    role: str
    columns: str


class NoInputRows(DataError):
    template = "{path} has no rows."
    path: Path


class UnequalArrays(DataError):
    template = "{path}: {items:,} items and {rows:,} rows of x; the numbers must be equal."
    path: Path
    items: int
    rows: int


class DifferentRows(DataError):
    template = "{path}: the rows of {name} have different costs; keep one of them."
    path: Path
    name: str


class NotNumber(DataError):
    template = "{path}: column {column!r}, row {row} (from 0) is {value!r}, not a {kind}."
    path: Path
    column: str
    row: int
    value: Any
    kind: str
    example = {"kind": "number"}


class NotFinite(DataError):
    template = (
        "{path}: {number:,} values are not finite, first {value} of item {item!r}, column {column}; replace them."
    )
    path: Path
    item: str
    value: float
    column: str
    number: int


class NoCommonItems(DataError):
    template = (
        "none of the {items:,} items of {labels}, such as {item!r}, has inputs; check the files and the item columns."
    )
    items: int
    labels: Path
    item: str


class ItemsWithoutInputs(DataWarning):
    template = "{number:,} of {items:,} items of {labels}, such as {item!r}, have no inputs; they are skipped."
    number: int
    items: int
    labels: Path
    item: str


class ValidationHasLabels(DataWarning):
    template = "{number:,} items of {path} have labels in {labels} too; these are not used for training."
    number: int
    path: Path
    labels: Path


class BadSplit(DataError):
    template = "{path}: column {column!r} has the value {value!r}; allowed are train, dev and test."
    path: Path
    column: str
    value: str


class NothingToTrain(DataError):
    template = "{path}: column {column!r} marks no labelled item as train; mark at least one."
    path: Path
    column: str


class UnseenAnnotators(DataWarning):
    template = "the model was not trained on {annotators!l}; they are treated as average annotators."
    annotators: tuple[str, ...]


# results


class NoCharacters(BadParameter):
    template = "--to {to} needs spans of characters, but these are spans of tokens; use --to conll or spans.csv."
    to: str


class NotForTool(DataWarning):
    template = "--to {to} can only hold classes and spans; these questions are skipped: {questions!l}."
    to: str
    questions: tuple[str, ...]


class ManyConfusions(DissensusWarning):
    template = "the confusion matrices would take {rows:,} rows as a table; they are stored in {model} only."
    rows: int
    model: str


class SparkFailed(DataError):
    template = "Spark failed ({cause}); see its log for details."
    cause: str


class NotDecidable(BadParameter):
    template = "spans and labels with probabilities in a file cannot be adjudicated; use dissensus serve."


class BadDecision(UnreadableFile):
    template = "{path}, item {item}: {reason}"
    path: Path
    item: str
    reason: str


class BadBoth(DataError):
    template = '{text} in column \'both\'; write a list such as ["cat", "dog"].'
    text: str
