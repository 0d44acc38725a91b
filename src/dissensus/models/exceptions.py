"""Errors about fitting, using and saving a model, and messages about a model's confidence."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

from dissensus.exceptions import BadParameter, ConvergenceWarning, DataError, NotFitted, UnreadableFile
from dissensus.messages import Message


class ModelNotFitted(NotFitted):
    template = "this {method} is not fitted yet; call fit first."
    method: str


class NotATable(DataError):
    template = (
        "{caller} takes one table of annotations, got {type}; read a file with `dissensus.read`, and fit the table of "
        "each question separately."
    )
    caller: str
    type: str


class NoAnnotations(DataError):
    template = "the table has no annotations; there is nothing to learn from."


class WrongLabelType(DataError):
    template = (
        "{method} supports {supported}, and the labels of this table are {label_type}; {advice}, or read the table "
        "with another {param[kind]}."
    )
    method: str
    supported: str
    label_type: str
    able: tuple[str, ...]

    @property
    def advice(self) -> str:
        """The advice to use one of the methods for these labels."""
        return f"fit {', '.join(self.able)}" if self.able else "there is no method for these yet"


class TooManyClasses(DataError):
    template = (
        "{method} is for two classes and the table has {n_classes}, such as {examples}; use another method, or make a "
        "table with two classes."
    )
    method: str
    n_classes: int
    examples: str


class NoEarlierCounts(DataError):
    template = "{method} cannot use earlier counts of annotators{table}; leave them out."
    method: str
    location: str

    @property
    def table(self) -> str:
        """The location of the table, if it is the reason for the error."""
        return f" with a table {self.location}" if self.location else ""


class WrongEarlierShape(DataError):
    template = "earlier has shape {shape}; expected annotators × true × given, {expected}."
    shape: tuple[int, ...]
    expected: tuple[int, ...]


class WrongEarlierMatrixShape(DataError):
    template = (
        "earlier: annotator {annotator} has counts of shape {shape}; expected {n_classes} × {n_classes}, with a row "
        "for each true class."
    )
    annotator: str
    shape: tuple[int, ...]
    n_classes: int


class BadEarlierCount(DataError):
    template = (
        "earlier: annotator {annotator} has the count {count} for label {label} of class {true}; counts must be 0 or "
        "more."
    )
    annotator: str
    count: float
    label: str
    true: str


class WrongGoldShape(DataError):
    template = (
        "gold must have one integer code per item ({n_items}), −1 where unknown; got {dtype} of shape {shape}. "
        "`table.gold_codes(item, label)` makes it from names."
    )
    n_items: int
    dtype: str
    shape: tuple[int, ...]


class GoldCodeOutOfRange(DataError):
    template = "gold: item {item} has code {code}; codes run from −1 to {highest}."
    item: int
    code: int
    highest: int


class WrongGoldValuesShape(DataError):
    template = (
        "gold must have one number per item ({n_items}), NaN where unknown; got {dtype} of shape {shape}. "
        "`table.gold_values(item, value)` makes it from names."
    )
    n_items: int
    dtype: str
    shape: tuple[int, ...]


class OutcomesNotUsed(BadParameter):
    template = "{method} cannot use known outcomes of items; leave {param[gold]} out."
    method: str


class GoldNotUsed(DataError):
    template = "{method} cannot use known labels; leave {param[gold]} out."
    method: str


class NoPartialFit(BadParameter):
    template = "{method} cannot be updated; fit it to all annotations again."
    method: str


class NoConfusion(BadParameter):
    template = "{method} has no confusion matrices; request the frame 'items' or 'annotators'."
    method: str


class NoConfusionIntervals(BadParameter):
    template = "{method} does not count labels by class, so its confusion matrices have no intervals."
    method: str


class UnknownFrame(BadParameter):
    template = "{param[kind]} must be 'items', 'annotators' or 'confusions', got {kind!r}."
    kind: str


class LevelOutOfRange(BadParameter):
    template = "{param[level]} must be between 0 and 1, got {level}."
    level: float


class ObjectiveNotFinite(BadParameter):
    template = "the objective became {objective}; use parameters and weights that are less extreme."
    objective: float


class AllWeightsZero(DataError):
    template = "all rows have the weight 0; there is nothing to learn from."


class NoOptionSelected(DataError):
    template = "no annotator selected an option; there is nothing to learn from."


class UnseenOption(DataError):
    template = "the model was not fitted to option {option}; fit it to all annotations again."
    option: str


class UnseenAlternative(DataError):
    template = "{alternative} is not among the {fitted:,} fitted alternatives; fit again with comparisons of it."
    alternative: str
    fitted: int


class NewPairsNotScorable(BadParameter):
    template = (
        "{param[model]} has scores of alternatives and cannot score new comparisons; fit all comparisons together."
    )


class AlternativesNotConnected(DataError):
    template = (
        "the {things:,} alternatives fall into {groups:,} groups that are never compared, directly or through others, "
        "such as {first_name} and {second_name}; rank each group separately, or collect more comparisons."
    )
    things: int
    groups: int
    first_name: str
    second_name: str


class OneGroupAlwaysWins(DataError):
    template = (
        "the {things:,} alternatives fall into {groups:,} groups, and between two groups one always wins, such as "
        "{first_name} and {second_name}; set {param[prior='auto']}."
    )
    things: int
    groups: int
    first_name: str
    second_name: str


class NoClassProbabilities(BadParameter):
    template = "{labels} have no class probabilities; `{instead}` reports how certain an answer is."
    labels: Literal["numbers", "objects"]
    instead: str


class IntervalNeedsTable(BadParameter):
    template = "intervals of another level are computed from the labels; pass the fitted table."


class TooManyDistances(DataError):
    template = (
        "items have so many different labels that {distances:,} distances are needed, more than {max_distances:,}; "
        "use fewer labels per item: `table.subsample`."
    )
    distances: int
    max_distances: int


class TooManyPairs(DataError):
    template = (
        "m-msr compares annotators who share an item, up to {pairs:,} pairs here, and supports at most {max_pairs:,}; "
        "choose another method."
    )
    pairs: int
    max_pairs: int


class WrongClassBalance(BadParameter):
    template = (
        "{param[class_balance]} has {shares} shares, but the table has {n_classes} classes; give one share per class."
    )
    shares: int
    n_classes: int


class MissingResult(DataError):
    template = "{name} is missing"
    name: str


class UnknownResult(DataError):
    template = "{method} has no {name}"
    method: str
    name: str


class WrongSavedArray(DataError):
    template = "{name} has type {dtype} and shape {shape}, expected {expected}"
    name: str
    dtype: str
    shape: tuple[int, ...]
    expected: str


class ValueOutOfRange(DataError):
    template = "{name} has a value outside its range, {range}"
    name: str
    range: str


class CompressedArrays(DataError):
    template = "the arrays in the file are compressed"


class NotSaveable(BadParameter):
    template = "`save` takes a fitted method, got {type}{advice}."
    type: str
    has_save: bool

    @property
    def advice(self) -> str:
        """The object's own `save` method, if it has one."""
        return "; call its own method save(folder)" if self.has_save else ""


class WrongFormat(UnreadableFile):
    template = "{path} has format {actual}, and this version of dissensus reads format {expected}; fit the model again."
    path: Path
    actual: str
    expected: int


class NoModel(UnreadableFile):
    template = "{folder} contains no fitted model ({file} is missing); give the folder that the model was saved to."
    folder: Path
    file: str


class DamagedModel(UnreadableFile):
    template = "{path} is damaged ({reason}); fit the model again."
    path: Path
    reason: str


class NotConverged(ConvergenceWarning):
    template = (
        "{method} stopped after {param[max_iter]}={max_iter} {unit}: the last one changed {quantity} by {change:.3g}, "
        "and {param[tol]}={tol:g} was not reached. Raise {param[max_iter]} or {param[tol]}."
    )
    method: str
    max_iter: int
    unit: str
    quantity: str
    change: float
    tol: float


class EffectiveLabelCount(Message):
    """The effective number of labels per item."""

    template = (
        "Annotators tend to make the same mistakes, so {labels:.1f} labels of an item carry the evidence of about "
        "{value:.1f} independent ones{interval}."
    )
    labels: float
    value: float
    low: float
    high: float

    @property
    def interval(self) -> str:
        """The 95 % interval, if it has a width."""
        return "" if self.low == self.high else f" ({self.low:.1f} to {self.high:.1f})"


class GoldLabelsAdvice(Message):
    """The advice to collect gold labels, with which confidence can be calibrated."""

    template = (
        "Have an expert label {items} random items and pass them with {param[gold]}: confidence is then "
        "calibrated to your crowd."
    )
    items: int


class ChosenModel(Message):
    """The description of the model behind the answers, of copying annotators and of the effective number of labels."""

    template = "{models}{copies}.{evidence}"
    methods: tuple[str, ...]
    groups: int
    effective: object

    WORDS: ClassVar = {
        ("dawid-skene",): "Dawid-Skene: a confusion matrix per annotator",
        ("hierarchical-dawid-skene",): "Hierarchical Dawid-Skene: confusion matrices shrunk to the crowd's",
        ("hierarchical-dawid-skene", "item-effect"): (
            "Hierarchical Dawid-Skene pooled with item effect: a confusion matrix per annotator, an easiness per item"
        ),
    }

    @property
    def models(self) -> str:
        """The names of the models in words."""
        return self.WORDS.get(self.methods, " and ".join(self.methods))

    @property
    def copies(self) -> str:
        """The number of groups of copying annotators, if any."""
        if not self.groups:
            return ""
        return f"; {self.groups} {'group' if self.groups == 1 else 'groups'} of copying annotators counted once"

    @property
    def evidence(self) -> str:
        """The sentence about the effective number of labels, if any."""
        return "" if self.effective is None else f" {self.effective}"
