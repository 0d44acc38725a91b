"""What can go wrong when a question is asked: facts and a sentence each (`dissensus.messages`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dissensus.common.formatting import join_words
from dissensus.exceptions import BadParameter, DataError, DataWarning, MissingColumn, UnreadableFile
from dissensus.messages import ParameterName, quote_name

# Mistakes -------------------------------------------------------------------------------------------------------------


class WrongPosterior(DataError):
    template = "The posterior must have shape ({n_items}, {n_classes}), items × classes, got {shape}."
    n_items: int
    n_classes: int
    shape: tuple[int, ...]


class NoItemsInCommon(DataError):
    template = "No item has votes, a known class and a class by both predictions, so errors cannot be compared."


class NoGoldToScore(DataWarning):
    template = "No item has a gold label that was not used for training, so accuracy cannot be measured."


class TwoPredictionsNeeded(BadParameter):
    template = "{param[cells]} compares two predictions, got {n}."
    n: int
    example = {"n": 3}


# The table ------------------------------------------------------------------------------------------------------------


class EmptySnapshot(DataError):
    template = "The {which} snapshot has no labels; there is nothing to compare."
    which: str
    example = {"which": "new"}


class OneClassOnly(DataError):
    template = "There is only one class; its rate is 1, and no label can change anything."


class NothingToHide(DataError):
    """No label can be hidden and predicted from the others."""


class NoSharedItem(NothingToHide):
    template = "no item has labels by two annotators; none can be hidden and predicted from the others."


class NoSharedDocument(NothingToHide):
    template = "no document has two readers; none can be hidden and predicted from the others."


class EveryComparisonNeeded(NothingToHide):
    template = "every comparison is needed to connect the things; none can be hidden and predicted."


class NotATable(DataError):
    template = "A table of annotations is needed, got {type}."
    type: str


class ClassesNotNumbers(DataError):
    template = "classes {some} are no numbers, which an interval scale needs; use scale 'ordinal' or 'nominal'."
    classes: tuple[Any, ...]
    example = {"classes": ("cat", "dog")}
    some = property(lambda self: join_words([quote_name(name) for name in self.classes[:5]]))


# Gold and other columns -----------------------------------------------------------------------------------------------


class TooLittleGold(DataError):
    template = "labelled items with gold: {known:,}; have {needed:,} or more, drawn at random."
    known: int
    needed: int


class GoldOfAnotherType(DataError):
    template = "gold holds numbers and the table classes; give gold as codes: table.gold_codes(…)."


class GoldClassesUnknown(DataError):
    template = "The table holds numbers and gold codes of classes; name these: {param[classes]}."


class GoldCodesOutOfRange(DataError):
    template = "gold must hold a code from −1 to {highest} for each of {items:,} items."
    highest: int
    items: int


class WrongShape(DataError):
    template = "{name} must hold one value for each of {expected:,}, got shape {shape}."
    name: ParameterName
    expected: int
    shape: tuple[int, ...]
    example = {"shape": (3, 2)}


class NoDrawProbability(DataError):
    template = "{bad:,} of {known:,} gold items have no probability above 0; the first is {name}: {probability:g}."
    bad: int
    known: int
    item: Any
    probability: float
    name = property(lambda self: quote_name(self.item))


class UnevenDraw(BadParameter):
    template = "{param[width]} plans gold that is drawn evenly, and each item had its own probability here."


class UnpricedAnnotator(DataError):
    template = "{param[cost]}: annotator {name} has none; give one above 0 to each."
    annotator: Any
    name = property(lambda self: quote_name(self.annotator))


class MissingLimit(DataError):
    template = "{name}: annotator {who} has none; give one to each."
    name: ParameterName
    annotator: Any
    who = property(lambda self: quote_name(self.annotator))


class UnequalColumns(DataError):
    template = "annotators: '{column}' has {rows:,} rows, '{key}' has {expected:,}."
    column: str
    rows: int
    key: str
    expected: int


class AnnotatorTwice(DataError):
    template = "annotators: {name} is there twice; one row per annotator is needed."
    annotator: Any
    name = property(lambda self: quote_name(self.annotator))


class UnknownAnnotators(DataError):
    template = "annotators: none of the {n:,} (such as {name}) is in the table, which has {other} and others."
    n: int
    annotator: Any
    known: Any
    name = property(lambda self: quote_name(self.annotator))
    other = property(lambda self: quote_name(self.known))


# Methods and models ---------------------------------------------------------------------------------------------------


class NoMethodFitted(DataError):
    template = "No method could be fitted; {method} says: {reason}"
    method: str
    reason: str


class NotFinite(DataError):
    template = "its predictions are not finite numbers."


class NoHiddenWeight(DataError):
    template = "The hidden annotations have no weight; there is nothing to compare by."


class MethodsAreText(BadParameter):
    template = "{param[names]} must be a list of methods, got the text {given!r}."
    given: str


class MethodTwice(BadParameter):
    template = "{method} is given twice."
    method: str


class NoMethodNamed(BadParameter):
    template = "No method is named; name at least one, or leave out {param[methods]} for all that suit the table."


class NoGoldOfPairs(BadParameter):
    template = "Comparisons of two things have no known labels; leave out {param[gold]}."


class NoPairs(BadParameter):
    template = "{param[pairs]} is for classes and numbers; leave it out for {kind}."
    kind: str


class NotAModel(BadParameter):
    template = "A fitted aggregator, LIA or CrowdClassifier is needed, got {type}."
    type: str


class OtherClasses(DataError):
    template = (
        "The model has {model_classes:,} classes and the table {table_classes:,}, which are not the same; make the "
        "table with classes=model.classes_."
    )
    model_classes: int
    table_classes: int


class ItemUnknownToModel(DataError):
    template = "Item {name} was not there when this {model} was fitted; fit it with this item."
    item: Any
    model: str
    name = property(lambda self: quote_name(self.item))


# Recommendations ------------------------------------------------------------------------------------------------------


class BudgetBelowOne(BadParameter):
    template = "{param[budget]} must be at least 1, got {budget:g}; of such labels every answer costs 1."
    budget: float


class TooManyThings(BadParameter):
    template = "{things:,} things have too many pairs to look at all; rank at most {most:,} of them."
    things: int
    most: int


class CostNotPositive(BadParameter):
    template = "{param[cost]} must be above 0, got {cost:g} for annotator {name}."
    cost: float
    annotator: Any
    name = property(lambda self: quote_name(self.annotator))


class BadCandidates(BadParameter):
    template = "{param[candidates]} must be two columns of the same length, of items and of annotators."


class FractionalCapacity(BadParameter):
    template = "{param[capacity]} must be whole numbers, got {given!r}."
    given: Any


class NamesAreText(BadParameter):
    template = "{name} must be a list of names, got the text {given!r}; write [{given!r}]."
    name: ParameterName
    given: str


class NotInTable(DataError):
    template = "{name}: {what} is not in the table; declare it there (items=…, annotators=…) to ask about it."
    name: ParameterName
    given: Any
    what = property(lambda self: quote_name(self.given))


class NotNumbers(BadParameter):
    template = "{name} must be numbers, 0 or more, got {given!r}."
    name: ParameterName
    given: Any


# Predictions ----------------------------------------------------------------------------------------------------------


class NoPredictions(BadParameter):
    template = "No predictions are given; give at least one file, frame or array."


class NothingToEvaluate(DataError):
    template = "There is nothing to evaluate by: no predicted item has a gold label or a vote."


class PredictionsOfOtherItems(DataError):
    template = (
        "predictions of shape {shape} for {items:,} items; give one row per table.items, in their order, or a frame "
        "with a column `item`."
    )
    shape: tuple[int, ...]
    items: int
    example = {"shape": (3, 2)}


class NoPredictedColumn(MissingColumn):
    template = (
        "no predictions; the columns are {columns}. Call the predicted label 'predicted' or 'label', or give one "
        "column p_CLASS for each class."
    )
    columns: str


class NoRows(DataError):
    template = "there is no row; give at least one prediction."


class PredictedTwice(DataError):
    template = "item {name} has {n} predictions; keep one."
    item: Any
    n: int
    name = property(lambda self: quote_name(self.item))


# Thresholds of check --------------------------------------------------------------------------------------------------


class UnknownThreshold(BadParameter):
    template = "{name!r} is no threshold; there are {names}."
    name: str
    known: tuple[str, ...]
    names = property(lambda self: ", ".join(self.known))


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


class Uncheckable(BadParameter):
    template = "{name} cannot be checked: {reason}."
    name: ParameterName
    reason: str


class NotToml(UnreadableFile):
    template = "{path} is no TOML: {error}."
    path: Path
    error: str


class SavedWithoutLabels(UnreadableFile):
    template = "{folder} was written without the labels of its items; give the table itself."
    folder: Path


class SavedWithoutAgreement(UnreadableFile):
    template = (
        "{file} does not say how often two annotators agreed; run `dissensus aggregate` again, or give the table "
        "itself."
    )
    file: Path


# Files of the commands ------------------------------------------------------------------------------------------------


class GoldColumnWithoutFile(BadParameter):
    template = "{param[gold_probability]} names a column of GOLD; give that file: {param[gold=<FILE>]}."


class WidthNeeded(BadParameter):
    template = "{param[next]} writes the items that {param[width]} asks for; give {param[width=<NUMBER>]} too."


class NoHumanLabels(BadParameter):
    template = "There are no human labels to correct by{panel}; give some with {param[gold=<FILE>]}."
    is_panel: bool
    panel = property(lambda self: "" if self.is_panel else ", and this is no panel whose judges differ")


class NothingToWrite(BadParameter):
    template = "{param[output]} writes items calibrated by human labels; give some with {param[gold=<FILE>]}."


class TooFewPanelItems(DataError):
    template = "{items} items are too few to say what judges are worth without human labels; have {needed} or more."
    items: int
    needed: int


class ColumnNotNumbers(DataError):
    template = "column {column!r} must hold numbers: {error}."
    column: str
    error: str


class NoSuchColumn(MissingColumn):
    template = "no column {column!r}; there are {names}."
    column: str
    known: tuple[str, ...]
    names = property(lambda self: ", ".join(self.known) or "none")


class ModelAndMethod(BadParameter):
    template = "{param[model]} uses a model that was fitted before; leave out {param[method]} and {param[set]}."


class OnlyForClasses(BadParameter):
    template = "{name} is for classes, and these labels are {kind}: only items are recommended, not annotators."
    name: ParameterName
    kind: str


class NoAnnotatorNamed(BadParameter):
    template = "{param[annotators]} {given!r} names no annotator; leave it out for all."
    given: str


class BadLimit(BadParameter):
    template = "{name} must be {allowed}, or none; got {given!r}."
    name: ParameterName
    allowed: str
    given: str
    example = {"allowed": "a whole number, at least 1, or auto"}


class NoModelFile(UnreadableFile):
    template = "no fitted model in {path}: there is neither {first}, nor {others}."
    path: Path
    first: str
    others: str


class SeveralModelFiles(BadParameter):
    template = "{param[model]} {path}: {names} are there; name one, such as {param[model]} {choice}."
    path: Path
    found: tuple[str, ...]
    names = property(lambda self: " and ".join(self.found))
    choice = property(lambda self: self.path / self.found[0])
