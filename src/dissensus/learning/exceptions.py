"""Faults of training and of its inputs; what a caller catches are their bases in `dissensus.exceptions`."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

from dissensus.common.formatting import join_words
from dissensus.exceptions import (
    BadParameter,
    Conflict,
    DataError,
    DataWarning,
    DissensusError,
    DissensusWarning,
    MissingColumn,
    MissingExtra,
    NotFitted,
    UnknownClass,
    UnknownName,
    UnreadableFile,
    UnwritableFile,
)
from dissensus.messages import Message, ParameterName


class LearningNotInstalled(MissingExtra):
    template = "dissensus.learning needs {library}, which is not installed: pip install 'dissensus[learning]'."
    library: str


class ModelNotFitted(NotFitted):
    template = "this {model} is not fitted yet; call {call} first."
    model: str
    call: str


# Rows of X, and what belongs to them ----------------------------------------------------------------------------------


class NotATable(DataError):
    template = "{caller} takes a table of annotations, got {found}; `dissensus.read` makes one."
    caller: str
    found: str


class InputsWithoutRows(DataError):
    template = "X must have one row per item, as a list, an array or a frame has, got {found}."
    found: str


class UnnamedRows(DataError):
    template = (
        "X has {n_rows:,} rows for {n_items:,} items; give one per table.items, in their order, or name the rows (a "
        "column `item`, a mapping, or items=)."
    )
    n_rows: int
    n_items: int


class UnequalRows(DataError):
    template = "{argument}: X has {n_rows:,} rows, and there are {n_entries:,} {entries}; give equally many."
    argument: str
    n_rows: int
    n_entries: int
    entries: str


class UnequalColumns(DataError):
    template = "{argument}: columns have different lengths, {lengths}; give equally long ones."
    argument: str
    lengths: dict[str, int]


class RepeatedRow(DataError):
    template = "{argument}: {name} has {n_rows} rows; keep one."
    argument: str
    name: str
    n_rows: int


class DifferentInputs(DataError):
    template = (
        "{path}: item {item} has different inputs in its {n_rows} rows; give every row of an item the same, or keep "
        "one row."
    )
    path: Path
    item: str
    n_rows: int


class UnusedInputs(DataWarning):
    template = "{n_rows:,} rows of X belong to items that the table does not have, such as {item}; they are not used."
    n_rows: int
    item: str


class MissingInputs(DataError):
    template = (
        "X has no row for {n_missing:,} of {n_items:,} items, such as {item}{others}; add these rows, or remove the "
        "items from the table."
    )
    n_missing: int
    n_items: int
    item: str
    n_unused: int
    unused: str

    @property
    def others(self) -> str:
        return f" ({self.n_unused:,} rows of X belong to other items, such as {self.unused})" if self.n_unused else ""


class OtherIndex(DataError):
    template = (
        "the index of X names other items than y has entries, such as {name}; reset the index, or bring X into the "
        "order of table.items before it is split."
    )
    name: str


# Values of X ----------------------------------------------------------------------------------------------------------


class NotNumbers(DataError):
    template = "X must hold numbers, one row of features per item; for texts use a text encoder, such as 'transformer'."


class NotTwoDimensional(DataError):
    template = "X must be a table, items × features, with at least one feature; got shape {shape}."
    shape: tuple[int, ...]


class FeatureNotFinite(DataError):
    template = (
        "X has {value} in row {row}, column {column} ({n_values:,} such values in {n_rows:,} rows); remove those "
        "items, or fill in the values."
    )
    value: float
    row: int
    column: int
    n_values: int
    n_rows: int


class OtherFeatureCount(DataError):
    template = "X has {n_features} features, and the model was fitted to {expected}."
    n_features: int
    expected: int


class OtherFeatures(DataError):
    template = "X must have the {n_columns:,} columns that the model was fitted to, in any order; it {difference}."
    n_columns: int
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]

    @property
    def difference(self) -> str:
        lacks = [f"lacks {len(self.missing):,} of them, such as {self.missing[0]!r}"] if self.missing else []
        has = [f"has {len(self.unexpected):,} others, such as {self.unexpected[0]!r}"] if self.unexpected else []
        return " and ".join(lacks + has)


class NotAPair(DataError):
    template = "X: row {row} is {value}, not a pair of {expected}; give a tuple per item, or two columns."
    row: int
    value: str
    expected: str
    example: ClassVar = {"expected": "texts"}


class NotTokens(DataError):
    template = "X: row {row} is {value}, not tokens; give a string or a sequence of strings."
    row: int
    value: str


class PositionOutOfRange(DataError):
    template = "X: row {row} has position {position} in {n_tokens:,} tokens; positions are integers that count from 0."
    row: int
    position: str
    n_tokens: int


class OtherChannels(DataError):
    template = (
        "X: row {row} has {channels} channel{s}, and the model takes {expected}; give all images in colour (a grey one "
        "three times: np.repeat(image, 3, axis=2)), or all in grey."
    )
    row: int
    channels: int
    expected: int

    @property
    def s(self) -> str:
        return "s" * (self.channels > 1)


# Names and codes ------------------------------------------------------------------------------------------------------


class UnknownItem(DataError):
    template = "items: {item} is not one of the {n_items:,} items that the model was fitted to."
    item: str
    n_items: int


class UnknownLabel(UnknownClass):
    template = "labels: {label} is not one of the {n_classes} classes that the model was fitted to."
    label: str
    n_classes: int


class CodesOutOfRange(UnknownClass):
    template = "{argument}: codes must lie from −1 (unknown) to {highest}, got {low} to {high}."
    argument: str
    highest: int
    low: int
    high: int


class WrongShape(DataError):
    template = "{argument} must be {kind} of shape {expected}, got {found} of shape {shape}."
    argument: str
    kind: str
    expected: tuple[int, ...]
    found: str
    shape: tuple[int, ...]


class NotDistributions(DataError):
    template = "{argument} must hold one distribution per row, got shape {shape}."
    argument: str
    shape: tuple[int, ...]


class NotTargets(DataError):
    template = (
        "y must be a table of annotations, a ByItem of one, or one class per row of X; got {found} of shape {shape}."
    )
    found: str
    shape: tuple[int, ...]


class ContinuousTargets(DataError):
    template = "y: {n_rows:,} values are continuous, infinite or NaN, not classes; the first is {value} in row {row}."
    n_rows: int
    value: float
    row: int


class RepeatedItem(DataError):
    template = (
        "item {item} is drawn {times} times; draw every item at most once, or give the labels of the item a weight."
    )
    item: str
    times: int


# Annotators -----------------------------------------------------------------------------------------------------------


class NotAFrame(DataError):
    template = "annotators must be a frame with a column 'annotator' and columns of features, got {found}."
    found: str


class NoAnnotatorFeatures(DataError):
    template = "annotators: the frame has no column but the annotators' names; add at least one feature."


class NoCommonAnnotators(DataError):
    template = (
        "annotators: none of the table's {n_annotators:,} annotators (such as {name}) is in the frame, whose column "
        "has names such as {other}."
    )
    n_annotators: int
    name: str
    other: str


class MissingFeature(MissingColumn):
    template = "annotators: there is no column '{column}', which the model was fitted to; the columns are {listing}."
    column: str
    columns: tuple[str, ...]

    @property
    def listing(self) -> str:
        return join_words([repr(name) for name in self.columns], "and")


class AnnotatorWithoutName(DataError):
    template = "annotators: row {row} of the frame has no annotator; remove it."
    row: int


class OtherColumnType(DataError):
    template = (
        "annotators: column '{column}' had {expected} when the model was fitted, and has {found} now; give {expected}."
    )
    column: str
    expected: str
    found: str


class InfiniteFeature(DataError):
    template = "annotators: column '{column}' is infinite in row {row}; leave unknown values empty."
    column: str
    row: int


class UnsupportedColumn(DataError):
    template = "annotators: column '{column}' has values of type {kind}; give numbers or texts."
    column: str
    kind: str


class FittedWithoutFeatures(DataError):
    template = (
        "annotators: this model was fitted without features of annotators, so it takes no frame; give names, or leave "
        "it out."
    )


class FittedWithFeatures(BadParameter):
    template = (
        "this model was fitted with features of annotators; give {param[annotators]}, the same frame, here as well."
    )


class UnusedAnnotatorFeatures(BadParameter):
    template = (
        "objective '{objective}' does not use features of annotators; leave {param[annotators]} out, or use {others}."
    )
    objective: str
    able: tuple[str, ...]

    @property
    def others(self) -> str:
        return join_words([repr(name) for name in self.able], "or")


# Labels to learn from -------------------------------------------------------------------------------------------------


class NothingToLearn(DataError):
    template = "there is nothing to learn from: none of the {n_items:,} items has an annotation or a known label."
    n_items: int


class NothingLeftToTrainOn(DataError):
    template = "all {n_items:,} items with labels are held out; hold out a smaller share."
    n_items: int


class NoAnnotations(DataError):
    template = "objective '{objective}' needs annotations, and the table is empty; to learn from gold use 'hard'."
    objective: str


class NoGold(DataError):
    template = "labels='gold' needs gold labels; give them, or choose a method such as 'majority-vote'."


class ZeroProbability(DataError):
    template = (
        "divergence='inverse-kl' is infinite if a class has probability 0, as {label} of item {item} has (and "
        "{n_others:,} more items); use soft labels 'softmax' or 'smoothed' without gold, or divergence='kl'."
    )
    item: str
    label: str
    n_others: int


class WeightedLabels(DataError):
    template = "crowdlab counts labels; give a table without weights and without probabilistic labels."


class NoItemWithTwoLabels(DataError):
    template = "crowdlab compares annotators, and no item has two labels; use the classifier alone."


class NoKnownLabels(DataError):
    template = "{argument}: no label is known, so there is nothing to compare with."
    argument: str


# Keywords -------------------------------------------------------------------------------------------------------------


class WrongPart(BadParameter):
    template = "{part} must be a name, such as '{name}', or an instance of {kind}, got {found}."
    part: ParameterName
    name: str
    kind: str
    found: str
    example: ClassVar = {"part": ParameterName("encoder"), "name": "mlp", "kind": "Encoder", "found": "3"}


class UnknownDevice(BadParameter):
    template = "{param[device]} must be 'auto', 'cpu', 'cuda', 'cuda:1' … or 'mps', got {device!r}."
    device: str


class MissingDevice(BadParameter):
    template = "this machine has no device {device!r}; use 'auto' or 'cpu'."
    device: str


class WrongPrecision(BadParameter):
    template = "{param[device]} {device!r} and {param[precision]} {precision!r} do not work together: {reason}"
    device: str
    precision: str
    reason: str


class WrongOptimizer(BadParameter):
    template = "{param[optimizer]} {optimizer}: {reason}."
    optimizer: str
    reason: str


class UnknownSharpnessKeyword(BadParameter):
    template = "{param[sam]} takes rho and adaptive, got {listing}."
    names: tuple[str, ...]

    @property
    def listing(self) -> str:
        return join_words(list(self.names), "and")


class SeedNeeded(BadParameter):
    template = "{param[checkpoint]} needs a seed: without one, a stopped run cannot be repeated."


class ValidationNeeded(BadParameter):
    template = "{param[patience]} needs validation items: give {param[validation]}, or leave {param[patience]} out."


class WrongValidation(BadParameter):
    template = "{param[validation]} must be a share between 0 and 1, or (X, labels)."


class OneDeviceForProcesses(BadParameter):
    template = (
        "{param[device]} {device!r} is a single device; for {param[processes]} {processes} use {param[device]} 'cuda'."
    )
    device: str
    processes: int


class TooManyProcesses(BadParameter):
    template = "{param[processes]} {processes} exceeds the {n_items} training items; use fewer processes."
    processes: int
    n_items: int


class OneProcessNeeded(BadParameter):
    template = (
        "objective 'lia' with leave_one_out=True compares each item with all others, in one process; set "
        "leave_one_out=False or {param[processes]} 1."
    )


class FoldsOutOfRange(BadParameter):
    template = "{param[folds]} must be from 2 to {n_items:,}, the number of training items, got {folds}."
    folds: int
    n_items: int


class SoftObjectiveNeeded(BadParameter):
    template = (
        "fit_distributions needs objective 'soft' with labels 'normalized', which learns distributions unchanged; got "
        "{objective}."
    )
    objective: str


class VolumeWithoutMatrices(BadParameter):
    template = "volume='annotators' needs kind='matrix' and link='normalize', got {kind!r} and {link!r}."
    kind: str
    link: str


class NoStage(BadParameter):
    template = "rounds=0 and finetune=None leave no epoch to train in; set one of them."


class HeldOutItemsNeeded(BadParameter):
    template = (
        "predict_sets needs held-out items: give {param[validation]} to fit, or use objective 'auto' with at least "
        "ten labelled items."
    )


class ClassifierNeeded(BadParameter):
    template = "out_of_fold takes a CrowdClassifier, got {found}; for LIA, give model.classifier(table, features=True)."
    found: str


class NoItemVectors(DataError):
    template = "{found} has no vectors of items; give a fitted CrowdClassifier or LIA."
    found: str


class NoFeatures(DataError):
    template = "this {model} was fitted without features and cannot predict new items; fit it with X."
    model: str


# Training -------------------------------------------------------------------------------------------------------------


class LossNotFinite(DataError):
    template = "the loss became {loss} in epoch {epoch}; lower the learning rate, or clip gradients (clip=1)."
    loss: float
    epoch: int


class TensorBoardMissing(DissensusWarning):
    template = "TensorBoard is not installed, so {folder} gets {file} only: pip install tensorboard."
    folder: str
    file: str


# Notes of objective auto ----------------------------------------------------------------------------------------------


class NoItemsHeldOut(Message):
    template = "auto chose {model}; there are too few items to hold any out."
    penalty: float | None  # of the linear model; None for a network

    @property
    def model(self) -> str:
        return "soft labels" if self.penalty is None else f"a linear model with penalty {self.penalty:g}"


class NetworkChosen(Message):
    template = (
        "auto chose soft labels and epoch {epoch} of {n_epochs}, at temperature {temperature:.2f}, by {n_items:,} "
        "held-out items: cross entropy {score:.4f}; the mean of the votes has {baseline:.4f}."
    )
    epoch: int
    n_epochs: int
    temperature: float
    n_items: int
    score: float
    baseline: float


class PoolChosen(Message):
    template = (
        "auto chose the weights {listing} (penalty {penalty:g}) by {basis} {n_items:,} items: cross entropy "
        "{score:.4f}; the linear model alone has {linear:.4f} and the mean of the votes {baseline:.4f}."
    )
    weights: dict[str, float]
    penalty: float
    n_splits: int
    n_items: int
    score: float
    linear: float
    baseline: float

    @property
    def listing(self) -> str:
        return ", ".join(f"{name} {weight:.2f}" for name, weight in self.weights.items() if weight >= 0.005)

    @property
    def basis(self) -> str:
        return f"{self.n_splits} folds of" if self.n_splits > 1 else "held-out"


# Files ----------------------------------------------------------------------------------------------------------------


class ModelFileMissing(UnreadableFile):
    template = "there is no {kind} at {path}."
    kind: str
    path: Path


class DamagedModelFile(UnreadableFile):
    template = "{path} is damaged, or not a {kind} ({reason})."
    path: Path
    kind: str
    reason: str


class OtherFormat(UnreadableFile):
    template = (
        "{path} is a {kind} of format {format}; this version of dissensus reads a {expected_kind} of format "
        "{expected_format}."
    )
    path: Path
    kind: str
    format: int
    expected_kind: str
    expected_format: int


class OtherVersion(UnreadableFile):
    template = "{path} was altered, or written by another version of dissensus ({reason}); train again."
    path: Path
    reason: str


class OtherRun(UnreadableFile):
    template = "{path} is the checkpoint of another run (other data or keywords); remove it, or use another folder."
    path: Path


class UnreadablePredictions(UnreadableFile):
    template = "{path}: {reason}"
    path: Path
    reason: str


class PredictionsOfOtherItems(DataError):
    template = "the out-of-fold predictions are of other items than the model's."


class FolderNotWritable(UnwritableFile):
    template = "{folder} cannot be written: {reason}."
    folder: Path
    reason: str


class NotStorable(DissensusError, TypeError):
    template = "a {kind} cannot be stored: {value}"
    kind: str
    value: str


class OtherTextModel(DataError):
    template = (
        "this model was trained with another version of the bundled text model; install that version of {package}, or "
        "train again."
    )
    package: str


class NoWordVectors(UnreadableFile):
    template = "{path} holds no word vectors; each line must be a word and its numbers, separated by spaces."
    path: Path


class NotAWordVector(UnreadableFile):
    template = (
        "{path}: line {line} is not a word with {size} numbers ({text}); give word vectors as text, a word and its "
        "numbers per line, separated by spaces."
    )
    path: Path
    line: int
    size: str
    text: str
    example: ClassVar = {"size": "300"}


class UnknownWords(DataWarning):
    template = "none of the {n_words:,} words of X has a vector in {source}."
    n_words: int
    source: str


class TwoMixtures(Conflict):
    template = "{param[mixup]} must be None with objective 'annot-mix', which mixes annotations, got {mixup}."
    mixup: float


class SizesDiffer(BadParameter):
    template = "combine='sum' needs annotator_size = item_size, got {annotator_size} and {item_size}."
    item_size: int
    annotator_size: int


class RoomTooSmall(BadParameter):
    template = (
        "room={room} needs combine='concatenate', no pair_size, item_size of at most {room[0]} and annotator_size of "
        "at most {room[1]}, got {item_size} and {annotator_size}."
    )
    room: tuple[int, ...]
    item_size: int
    annotator_size: int
    example = {"room": (3, 20), "item_size": 10, "annotator_size": 10}


class NotSearchable(BadParameter):
    template = (
        "the sizes of {objective} cannot be searched; the objective must be 'ldl-nm' with combine='concatenate' and "
        "pair_size=None."
    )
    objective: str


class NotWholeNumbers(BadParameter):
    template = "{name} must be a list of whole numbers, each at least {least}, got {values}."
    name: ParameterName
    least: int
    values: str
    example = {"least": 1, "values": "[1.5]"}


class NoValueAmong(BadParameter):
    template = "{name} must be one of {listing}, got {value!r}."
    name: ParameterName
    value: str
    allowed: tuple[str, ...]

    @property
    def listing(self) -> str:
        return ", ".join(self.allowed)


class WrongDevelopmentItems(BadParameter):
    template = "{param[dev]} must be (table, X), or a share between 0 and 1, got {value}."
    value: str


class NoDevelopmentItems(DataError):
    template = "none of the {n_items:,} development items has labels, so sizes cannot be compared."
    n_items: int


# Many networks trained together ---------------------------------------------------------------------------------------


class DifferentModels(BadParameter):
    template = "fit_together: models must be alike, but {name} is {first} and {second}."
    name: str
    first: str
    second: str


class NotPlain(BadParameter):
    template = "fit_together: {name} must be {wanted}, got {value}; fit such models one by one."
    name: ParameterName
    wanted: str
    value: str


STACKING_NEEDS = {
    "batches": "an objective that takes other batches than its items cannot be stacked",
    "gold": "all models must have gold, or none",
    "inputs": "inputs must have equal lengths",
    "shapes": "networks must have equal shapes, so the same annotators must have labels in all tables",
    "targets": "targets that are sequences cannot be stacked",
}


class NotStackable(BadParameter):
    template = "fit_together: {need}; fit such models one by one."
    reason: Literal["batches", "inputs", "targets"]

    @property
    def need(self) -> str:
        return STACKING_NEEDS[self.reason]


class UnstackableData(DataError):
    template = "fit_together: {need}; fit such models one by one."
    reason: Literal["gold", "shapes"]

    @property
    def need(self) -> str:
        return STACKING_NEEDS[self.reason]


class DifferentTables(DataError):
    template = "fit_together: the tables have different {what}; select rows of one table, with a label of each item."
    what: str


class UnequalLists(DataError):
    template = "fit_together: {models} models, {tables} tables and {golds} golds; give one of each per model."
    models: int
    tables: int
    golds: int


class LossOfModelNotFinite(DataError):
    template = "the loss of model {model} became {loss} in epoch {epoch}; lower the learning rate."
    model: int
    loss: float
    epoch: int


# New annotators of LDL-NM ---------------------------------------------------------------------------------------------


class LDLNMNeeded(BadParameter):
    template = "a CrowdClassifier with objective 'ldl-nm' is needed, got {found}."
    found: str


class UnknownKeywords(BadParameter):
    template = "Algorithm 4 has no keyword {listing}; it has {known_listing}."
    names: tuple[str, ...]
    known: tuple[str, ...]

    @property
    def listing(self) -> str:
        return ", ".join(self.names)

    @property
    def known_listing(self) -> str:
        return ", ".join(self.known)


class LabelsWithoutDistributions(DataError):
    template = (
        "y must hold a distribution over the {n_classes} classes in each row, numbers of at least 0 that sum to 1; got "
        "shape {shape}."
    )
    n_classes: int
    shape: tuple[int, ...]


class AnnotatorNameMissing(DataError):
    template = "annotator: row {row} has no name; give one, or leave the row out."
    row: int


# Inputs ---------------------------------------------------------------------------------------------------------------


# The decision function and LIA-ML -------------------------------------------------------------------------------------


class NothingAnnotated(DataError):
    template = "{learner} learns from annotations, and there are none."
    learner: str


class UnequalPairs(DataError):
    template = "{n_items:,} items and {n_annotators:,} annotators are not pairs; give equally many."
    n_items: int
    n_annotators: int


class QuestionsNeeded(DataError):
    template = "lia-ml takes a mapping from texts to tables of annotations; {where} is of type {found}."
    where: str
    found: str
    example = {"where": "question 'rude'", "found": "str"}


class QuestionsDiffer(DataError):
    template = (
        "questions '{first}' and '{second}' have different {axis}; make all tables over the same items and annotators, "
        "as `Questions.from_arrays` does."
    )
    first: str
    second: str
    axis: Literal["items", "annotators"]


class UnknownQuestion(UnknownName):
    template = "there is no question '{question}'; there are {listing}."
    question: str
    known: tuple[str, ...]

    @property
    def listing(self) -> str:
        return ", ".join(self.known)


class RepeatedQuestion(DataError):
    template = "there is a question '{question}' already; give the new one another name."
    question: str


class SingleName(DataError):
    template = "{argument} must be a list of names, got the text {name!r}; write [{name!r}]."
    argument: str
    name: str


# Maps of annotators ---------------------------------------------------------------------------------------------------


class LIANeeded(DataError):
    template = "{found} has no difficulty and competence; give a fitted LIA, or a CrowdClassifier with objective 'lia'."
    found: str


class NoLabelsOfModel(DataError):
    template = "the table has no labels of the items and annotators of the model; give the table of its fit."


class ModelOfOtherTable(DataError):
    template = "the model was fitted to another table: {name} is not in this one; give the table of its fit."
    name: str


class TooFewForUMAP(DataError):
    template = "UMAP needs at least {least} annotators, got {n_annotators}; use how='pca'."
    n_annotators: int
    least: int
    example = {"n_annotators": 3, "least": 4}
