"""Errors and warnings of clusterings, of the search for cluster numbers, and of snapping."""

from __future__ import annotations

from typing import Literal

from dissensus.exceptions import BadParameter, ConvergenceWarning, DataError, NotFitted
from dissensus.messages import ParameterName


class GoldForClusters(DataError):
    template = "{clustering} finds clusters and does not use gold labels; omit {param[gold]}."
    clustering: str


class TooManyClusters(BadParameter):
    template = "{name}={clusters} exceeds the {available} {nodes} with annotations; use fewer clusters."
    name: ParameterName
    clusters: int
    available: int
    nodes: Literal["items", "annotators"]


class ClusteringNotConverged(ConvergenceWarning):
    template = (
        "{clustering} stopped after {passes} passes without reaching {param[tol]}={tol:g} of the objective "
        "({objective:.6g}); increase {param[max_iter]} or {param[tol]}."
    )
    clustering: str
    passes: int
    tol: float
    objective: float


class NoClusterCounts(BadParameter):
    template = "{param[K]} and {param[L]} must each contain at least one number."


class NoLabelledDevelopmentItems(DataError):
    template = "no development item has annotations; pass other items as {param[dev]}, or set the numbers of clusters."


class KeywordsForFittedClustering(BadParameter):
    template = "a fitted clustering takes no keywords, got {listing}."
    names: tuple[str, ...]

    @property
    def listing(self) -> str:
        return ", ".join(self.names)


class NotAClustering(BadParameter):
    template = "expected a fitted clustering{alternative}, got {got}."
    got: str
    or_table: bool

    @property
    def alternative(self) -> str:
        return " or a table" if self.or_table else ""


class NotAClassifier(BadParameter):
    template = "{param[classifier]} must have a method predict_proba, got {got}."
    got: str


class WrongClassNames(BadParameter):
    template = "{param[classes]} has {names} names for the {columns} columns of y; name every column."
    names: int
    columns: int


class ClassesInFit(BadParameter):
    template = "fit takes no classes; use Distributions(classifier, classes=…)."


class StepNotFitted(NotFitted):
    template = "this {step} is not fitted yet; call fit first."
    step: str


class InvalidTemperatureSchedule(BadParameter):
    template = "{param[schedule]} must hold at least one temperature, all finite and above 0, got {temperatures}."
    temperatures: str
