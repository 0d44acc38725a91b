"""Errors and warnings of metrics, agreement, calibration and intervals."""

from __future__ import annotations

from typing import Literal

from dissensus.exceptions import BadParameter, DataError, DataWarning
from dissensus.messages import ParameterName

Content = Literal["codes", "numbers", "distributions", "statistics"]
CONTENT_DESCRIPTIONS = {
    "codes": "a vector of integer codes",
    "numbers": "a vector of numbers",
    "distributions": "a matrix of items × classes",
    "statistics": "numbers, one row per item",
}


class WrongArrayType(DataError):
    template = "{name} must be {expected}, got {dtype} of shape {shape}."
    name: ParameterName
    content: Content
    dtype: str
    shape: tuple[int, ...]

    @property
    def expected(self) -> str:
        return CONTENT_DESCRIPTIONS[self.content]


class UnevenRows(DataError):
    template = "{name} has rows of different lengths; all rows must have the same length."
    name: ParameterName


class NegativeCode(DataError):
    template = "{name}: item {row} has code {code}; codes start at 0, and −1 means unknown."
    name: ParameterName
    row: int
    code: int
    example = {"code": -5}


class CodeOutOfRange(DataError):
    template = "{name}: row {row} has code {code}; codes of {n_classes} classes run from 0 to {largest_code}."
    name: ParameterName
    row: int
    code: int
    n_classes: int
    example = {"code": 7, "n_classes": 5}

    @property
    def largest_code(self) -> int:
        return self.n_classes - 1


class NoGoldLabels(DataError):
    template = "none of the {items:,} items has a gold label, so there is nothing to compare with."
    items: int


class RowsNotFinite(DataError):
    template = "{name}: {count:,} of {rows:,} rows hold a value that is not finite; the first is row {first_row}."
    name: ParameterName
    count: int
    rows: int
    first_row: int


class RowsNotDistributions(DataError):
    template = (
        "{name}: {count:,} of {rows:,} rows are not probability distributions; row {first_row}, the first, sums "
        "to {total:.6g} and has a smallest entry of {smallest:.6g}."
    )
    name: ParameterName
    count: int
    rows: int
    first_row: int
    total: float
    smallest: float


class NotOnePerClass(DataError):
    template = "{name} must have one value for each of the {n_classes} classes, in their order; got {values}."
    name: ParameterName
    values: int
    n_classes: int


class DifferentShapes(DataError):
    template = "{first_name} has shape {first_shape} and {second_name} has shape {second_shape}; they must be equal."
    first_name: ParameterName
    second_name: ParameterName
    first_shape: tuple[int, ...]
    second_shape: tuple[int, ...]


class DifferentLengths(DataError):
    template = (
        "{first_name} has {first_length:,} items and {second_name} has {second_length:,}; they must be the same items."
    )
    first_name: ParameterName
    second_name: ParameterName
    first_length: int
    second_length: int


class NotRowsOfTable(DataError):
    template = "{param[predicted]} must have one row for each of the {rows:,} rows of the table; got shape {shape}."
    rows: int
    shape: tuple[int, ...]


class NoItems(DataError):
    template = "there are no items with annotations to compute this from."


class NoSharedItems(DataError):
    template = "none of the {count:,} {units} is labelled by two annotators, so agreement cannot be measured."
    count: int
    units: Literal["items", "documents"]


class NoHideableAnnotations(DataError):
    template = "no item is labelled by two annotators, so no annotator can be hidden."


class TooFewAnnotators(DataError):
    template = "agreement of pairs needs at least two annotators; the table has {annotators}."
    annotators: int
    example = {"annotators": 1}


class BadClassCodes(DataError):
    template = "{param[classes]} must be different class codes, at least one; got {codes}."
    codes: tuple[int, ...]


class RepeatedClassPosition(DataError):
    template = "two classes have the same value; on an ordinal scale every class needs its own."


class ClassNameNotNumeric(DataError):
    template = (
        "class {name!r} is not a number, which an interval scale needs; use {param[scale='ordinal']}, "
        "{param[scale='nominal']} or {param[values]}."
    )
    name: str


class BadDistances(DataError):
    template = "{param[distance]} must be symmetric, of shape ({labels}, {labels}) and 0 on its diagonal; got {shape}."
    labels: int
    shape: tuple[int, ...]


class BadLabelDistance(DataError):
    template = "the distance of {first_label!r} and {second_label!r} is {distance}; a distance is a number, at least 0."
    first_label: str
    second_label: str
    distance: float
    example = {"distance": -1.0}


class TooManyLabelsForDistances(DataError):
    template = (
        "{labels:,} different labels have {distances:,} distances, which is too many to compute; use a sample of the "
        "items: table.select(items=…)."
    )
    labels: int

    @property
    def distances(self) -> int:
        return self.labels**2


class BadBox(DataError):
    template = "label {label!r} is not a box; a box is 'x, y, width, height'."
    label: str


class TooFewKnownItems(DataError):
    template = "{gold_items} items with gold labels are too few to correct a mean; at least {required} are needed."
    gold_items: int
    required: int
    example = {"gold_items": 3, "required": 5}


class MissingStatistic(BadParameter):
    template = "{param[stats]} of shape {shape} needs a {param[statistic]} that maps their sums to one number."
    shape: tuple[int, ...]


class BadScale(BadParameter):
    template = (
        "{param[scale]} must be above 0, got {scale}; with a single class or a single position there is no distance."
    )
    scale: float


class WeightsIgnored(DataWarning):
    template = "agreement counts every label once; weights are ignored."


# Error cells ----------------------------------------------------------------------------------------------------------


class CellsOfUnequalLength(DataError):
    template = "stl, mtl and truth must have shape (I,) and soft (I, K), got {stl}, {mtl}, {truth} and {soft}."
    stl: tuple[int, ...]
    mtl: tuple[int, ...]
    truth: tuple[int, ...]
    soft: tuple[int, ...]
    example = {"stl": (9,), "mtl": (9,), "truth": (9,), "soft": (8, 3)}


class MixedNamesAndCodes(DataError):
    template = "stl, mtl and truth must all be names or all be codes; some are integers and some are not."


class KurtosisOfTwoClasses(DataWarning):
    template = "Every soft label of two classes has kurtosis −2, so the kurtosis of the cells carries no information."
