"""Errors of the questions: one class per mistake, with its facts and a sentence (see `dissensus.messages`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dissensus.common.formatting import join_words
from dissensus.exceptions import BadParameter, DataError, DataWarning, MissingColumn, UnreadableFile
from dissensus.messages import ParameterName, quote_name

# Errors of annotators -------------------------------------------------------------------------------------------------


class PosteriorShapeMismatch(DataError):
    template = "The posterior must have shape ({n_items}, {n_classes}), items × classes, got {shape}."
    n_items: int
    n_classes: int
    shape: tuple[int, ...]


class NoComparableItem(DataError):
    template = (
        "No item has votes, a gold class and a prediction by both models, so errors cannot be compared; check that the "
        "files name the same items."
    )


class NoGoldToScore(DataWarning):
    template = "No item has a gold label that was not used for training, so accuracy cannot be measured."


class TwoPredictionsNeeded(BadParameter):
    template = "{param[cells]} compares two predictions, got {n}."
    n: int
    example = {"n": 3}


# The table ------------------------------------------------------------------------------------------------------------


class EmptySnapshot(DataError):
    template = "The {snapshot} snapshot has no labels, so there is nothing to compare."
    snapshot: str
    example = {"snapshot": "new"}


class OneClassOnly(DataError):
    template = "The table has only one class, so there is no rate to correct."


class NoHideableLabel(DataError):
    """No label can be held out and predicted from the others."""


class NoSharedItem(NoHideableLabel):
    template = "no item has labels by two annotators, so none can be held out and predicted from the others."


class NoSharedDocument(NoHideableLabel):
    template = "no document has two readers, so no reading can be held out and predicted from the others."


class EveryComparisonNeeded(NoHideableLabel):
    template = "every comparison is needed to connect the alternatives, so none can be held out and predicted."


class ClassesNotNumbers(DataError):
    template = "an interval scale needs numbers, but the classes are {some}; use scale 'ordinal' or 'nominal'."
    classes: tuple[Any, ...]
    example = {"classes": ("cat", "dog")}
    some = property(lambda self: join_words([quote_name(name) for name in self.classes[:5]]))


# Gold and other columns -----------------------------------------------------------------------------------------------


class TooLittleGold(DataError):
    template = "Only {n_gold:,} labelled items have gold; at least {needed:,} are needed, drawn at random."
    n_gold: int
    needed: int


class GoldOfAnotherType(DataError):
    template = "gold holds numbers but the table holds classes; give gold as codes: table.gold_codes(…)."


class GoldClassesUnknown(DataError):
    template = "The table holds numbers but gold holds codes of classes; name the classes with {param[classes]}."


class GoldCodesOutOfRange(DataError):
    template = "gold must hold a code from −1 to {highest} for each of {items:,} items."
    highest: int
    items: int


class WrongLength(DataError):
    template = "{name} must hold {expected:,} values, got shape {shape}."
    name: ParameterName
    expected: int
    shape: tuple[int, ...]
    example = {"shape": (3, 2)}


class NoDrawProbability(DataError):
    template = (
        "{n_bad:,} of {n_gold:,} gold items have no probability above 0; the first is item {name} with {probability:g}."
    )
    n_bad: int
    n_gold: int
    item: Any
    probability: float
    name = property(lambda self: quote_name(self.item))


class UnevenDraw(BadParameter):
    template = "{param[width]} needs gold items drawn with equal probability; here the probabilities differ."


class AnnotatorWithoutValue(DataError):
    template = "{name} has no value for annotator {who}; give one for each annotator."
    name: ParameterName
    annotator: Any
    who = property(lambda self: quote_name(self.annotator))


class UnequalMetadataColumns(DataError):
    template = "annotators: column '{column}' has {rows:,} rows, but column '{key}' has {expected:,}."
    column: str
    rows: int
    key: str
    expected: int


class RepeatedAnnotator(DataError):
    template = "annotators: {name} has more than one row; keep one row per annotator."
    annotator: Any
    name = property(lambda self: quote_name(self.annotator))


class UnknownAnnotators(DataError):
    template = "annotators: none of the {n:,} names (such as {name}) is in the table, which has names such as {other}."
    n: int
    annotator: Any
    table_annotator: Any
    name = property(lambda self: quote_name(self.annotator))
    other = property(lambda self: quote_name(self.table_annotator))


# Methods and models ---------------------------------------------------------------------------------------------------


class NoMethodFitted(DataError):
    template = "No method could be fitted; {method} reports: {reason}"
    method: str
    reason: str


class PredictionsNotFinite(DataError):
    template = "its predictions are not finite numbers."


class NoHiddenWeight(DataError):
    template = "All held-out labels have a weight of 0, so methods cannot be compared."


class RepeatedMethod(BadParameter):
    template = "{method} is named twice; name each method once."
    method: str


class NoMethodNamed(BadParameter):
    template = "No method is named; name at least one, or omit {param[methods]} to compare all suitable ones."


class NoGoldOfPairs(BadParameter):
    template = "Comparisons of two alternatives have no gold labels; omit {param[gold]}."


class NoPairs(BadParameter):
    template = "{param[pairs]} needs classes or numbers; omit it for {kind}."
    kind: str


class NotAModel(BadParameter):
    template = "A fitted aggregator, LIA or CrowdClassifier is needed, got {type}."
    type: str


class OtherClasses(DataError):
    template = (
        "The {model_classes:,} classes of the model differ from the {table_classes:,} of the table; make the table "
        "with classes=model.classes_."
    )
    model_classes: int
    table_classes: int


class ItemUnknownToModel(DataError):
    template = "Item {name} is unknown to this {model}; fit the model to a table that has this item."
    item: Any
    model: str
    name = property(lambda self: quote_name(self.item))


# Recommendations ------------------------------------------------------------------------------------------------------


class BudgetBelowOne(BadParameter):
    template = "{param[budget]} must be at least 1, got {budget:g}; every answer costs 1 for labels of this type."
    budget: float


class TooManyAlternatives(BadParameter):
    template = (
        "{alternatives:,} alternatives have too many pairs to examine; compare at most {max_alternatives:,} of them."
    )
    alternatives: int
    max_alternatives: int


class CostNotPositive(BadParameter):
    template = "{param[cost]} must be above 0, got {cost:g} for annotator {name}."
    cost: float
    annotator: Any
    name = property(lambda self: quote_name(self.annotator))


class BadCandidates(BadParameter):
    template = "{param[candidates]} must be two columns of equal length, items and annotators."


class FractionalCapacity(BadParameter):
    template = "{param[capacity]} must be whole numbers, got {value!r}."
    value: Any


class NamesAreText(BadParameter):
    template = "{name} must be a list of names, got the text {text!r}; write [{text!r}]."
    name: ParameterName
    text: str


class NotInTable(DataError):
    template = "{name}: {quoted_value} is not in the table; declare it there with items=… or annotators=…"
    name: ParameterName
    value: Any
    quoted_value = property(lambda self: quote_name(self.value))


class LimitsNotNumbers(BadParameter):
    template = "{name} must be numbers of 0 or more, got {value!r}."
    name: ParameterName
    value: Any


# Predictions ----------------------------------------------------------------------------------------------------------


class NoPredictions(BadParameter):
    template = "No predictions are given; give at least one file, frame or array."


class NothingToEvaluate(DataError):
    template = "No predicted item has a gold label or a vote, so the predictions cannot be evaluated."


class PredictionShapeMismatch(DataError):
    template = (
        "predictions of shape {shape} do not fit {items:,} items; give one row per table.items, in their order, or a "
        "frame with a column `item`."
    )
    shape: tuple[int, ...]
    items: int
    example = {"shape": (3, 2)}


class NoPredictedColumn(MissingColumn):
    template = (
        "no column of predictions among {columns}; call the predicted label 'predicted' or 'label', or give one column "
        "p_CLASS for each class."
    )
    columns: str


class NoPredictionRows(DataError):
    template = "the predictions have no rows; give at least one."


class RepeatedPrediction(DataError):
    template = "item {name} has {n} predictions; keep one."
    item: Any
    n: int
    name = property(lambda self: quote_name(self.item))


# Thresholds of check --------------------------------------------------------------------------------------------------


class UnknownThreshold(BadParameter):
    template = "{name!r} is not a threshold; choose from {names}."
    name: str
    allowed: tuple[str, ...]
    names = property(lambda self: ", ".join(self.allowed))


class BadThreshold(BadParameter):
    template = "{name} must be {allowed}, got {value!r}."
    name: str  # a ParameterName if an option gave it
    whole: bool
    value: Any
    example = {"name": ParameterName("min_settled"), "whole": False}
    allowed = property(lambda self: "a whole number, 0 or more" if self.whole else "a share from 0 to 1")


class NoEarlierTable(BadParameter):
    template = "{name} compares with an earlier table; add {param[against=<FILE>]}."
    name: ParameterName


class NothingToCheck(BadParameter):
    template = (
        "There is nothing to check; give a threshold such as {param[min_settled=0.9]}, or {param[against=<FILE>]}."
    )


class CheckNotPossible(BadParameter):
    template = "{name} cannot be checked: {reason}."
    name: ParameterName
    reason: str


class InvalidToml(UnreadableFile):
    template = "{path} is not valid TOML: {error}."
    path: Path
    error: str


class SavedWithoutLabels(UnreadableFile):
    template = "{folder} was written without the labels of its items; give the table itself."
    folder: Path


class SavedWithoutAgreement(UnreadableFile):
    template = (
        "{file} does not hold the agreement of annotators; run `dissensus aggregate` again, or give the table itself."
    )
    file: Path


# Files of the commands ------------------------------------------------------------------------------------------------


class GoldColumnWithoutFile(BadParameter):
    template = "{param[gold_probability]} names a column of the gold file; give this file: {param[gold=<FILE>]}."


class WidthNeeded(BadParameter):
    template = "{param[next]} writes the items that {param[width]} needs; give {param[width=<NUMBER>]} too."


class NoHumanLabels(BadParameter):
    template = "There are no human labels to correct with{panel}; give some with {param[gold=<FILE>]}."
    is_panel: bool
    panel = property(lambda self: "" if self.is_panel else ", and this is not a panel with different judges")


class NothingToWrite(BadParameter):
    template = "{param[output]} writes items calibrated with human labels; give some with {param[gold=<FILE>]}."


class TooFewPanelItems(DataError):
    template = "{items} items are too few to assess judges without human labels; at least {needed} are needed."
    items: int
    needed: int


class ColumnNotNumbers(DataError):
    template = "column {column!r} must hold numbers: {error}."
    column: str
    error: str


class NoSuchColumn(MissingColumn):
    template = "no column {column!r}; the columns are {names}."
    column: str
    columns: tuple[str, ...]
    names = property(lambda self: ", ".join(self.columns) or "none")


class ModelAndMethod(BadParameter):
    template = "{param[model]} uses a model that is fitted already; omit {param[method]} and {param[set]}."


class OnlyForClasses(BadParameter):
    template = "{name} needs classes, but these labels are {kind}: items are recommended, not annotators."
    name: ParameterName
    kind: str


class NoAnnotatorNamed(BadParameter):
    template = "{param[annotators]} {value!r} names no annotator; omit it to consider all annotators."
    value: str


class BadLimit(BadParameter):
    template = "{name} must be {allowed}, or none; got {value!r}."
    name: ParameterName
    allowed: str
    value: str
    example = {"allowed": "a whole number, at least 1, or auto"}


class NoModelFile(UnreadableFile):
    template = "no fitted model in {path}: it holds neither {first_file}, nor {other_files}."
    path: Path
    first_file: str
    other_files: str


class SeveralModelFiles(BadParameter):
    template = "{param[model]} {path} holds several models, {names}; name one, such as {param[model]} {choice}."
    path: Path
    files: tuple[str, ...]
    names = property(lambda self: " and ".join(self.files))
    choice = property(lambda self: self.path / self.files[0])
