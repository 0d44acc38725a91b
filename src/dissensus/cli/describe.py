"""`dissensus describe`: what is in a table, how far the annotators agree, and what to mend first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from dissensus.cli.findings import AgreementCoefficients
from dissensus.cli.question import question_command
from dissensus.common.formatting import format_interval, format_number
from dissensus.common.parameters import param
from dissensus.exceptions import DataError
from dissensus.questions import findings
from dissensus.questions.base import Finding, Table
from dissensus.questions.definitions.agreement import COEFFICIENT_TITLES, Agreement
from dissensus.questions.definitions.describe import Describe

MAX_ANNOTATIONS_RESAMPLED = 2_000_000  # labels; intervals for more take minutes and need --measures
MAIN_COEFFICIENTS = (
    "krippendorff_alpha", "fleiss_kappa", "icc", "exact_f1", "jaccard_alpha", "words_alpha",
)  # fmt: skip
"""Coefficients that are printed without --measures, if the label type has them."""


class DescribeTable(Agreement):
    """Describe a table of labels and the agreement of its annotators.

    Columns are found by their usual names; the options below name others. Agreement is measured on items that at
    least two annotators labelled; its intervals are by bootstrap over items.

    Example: dissensus describe labels.csv --item task --abstain "can't say"

    Example: dissensus describe labels.csv --measures --scale ordinal --classes low,middle,high --pairs
    """

    json_options: ClassVar[tuple[str, ...]] = ()

    measures: bool = param(False, "print every coefficient of agreement with its interval")
    pairs: bool = param(False, "print the pairs of annotators that agree most and least; all with --json")

    def compute(self, table: Any, *, progress: Any) -> dict[str, Any]:
        """Return the facts of `describe`, with those of `agreement` under its name; None if it cannot be measured."""
        facts = Describe().compute(table)
        requested = self.measures or self.pairs or self.scale is not None
        if not requested and (table.weight is not None or table.proba is not None):
            return facts | {"agreement": None}  # the coefficients would ignore the weights
        if not self.measures and table.n_annotations > MAX_ANNOTATIONS_RESAMPLED:
            self.resamples = 0
        try:
            agreement = super().compute(table, progress=progress)
        except DataError:
            if requested:
                raise
            return facts | {"agreement": None}
        settings = {"level": self.level, "resamples": self.resamples, "seed": self.seed}
        return facts | {"agreement": settings | agreement}

    def to_json(self, facts: dict[str, Any]) -> dict[str, Any]:
        """Return the facts as JSON has them, without counts that the description has too."""
        if facts["agreement"] is None:
            return facts
        return facts | {"agreement": {k: v for k, v in facts["agreement"].items() if k not in ("items", "annotators")}}

    def findings(self, facts: dict[str, Any]) -> Iterator[Finding]:
        """Yield the description, the agreement and then the doubts."""
        agreement = facts["agreement"]
        *described, doubts = Describe().findings(facts)
        measured = [] if agreement is None else list(super().findings(agreement))
        if any(isinstance(finding, findings.AgreementBeyondChance) for finding in measured):  # it has the share too
            described = [finding for finding in described if not isinstance(finding, findings.PairwiseAgreement)]
        yield from described
        if self.measures:
            yield from measured
        elif measured:
            shown = findings.AgreementBeyondChance | findings.ClassOrder
            yield from (finding for finding in measured if isinstance(finding, shown))
            yield AgreementCoefficients(coefficients=tuple(_list_coefficients(agreement["coefficients"])))
            yield from measured[-1:] if self.pairs and isinstance(measured[-1], Table) else ()
        yield doubts


def _list_coefficients(coefficients: dict[str, dict[str, float]]) -> Iterator[str]:
    """Yield the main coefficients in words, those that have a value."""
    for name in MAIN_COEFFICIENTS:
        if name in coefficients and (value := coefficients[name]["value"]) == value:
            low, high = coefficients[name]["low"], coefficients[name]["high"]
            bounds = f" ({format_interval(low, high)})" if low == low else ""
            yield f"{COEFFICIENT_TITLES[name]} {format_number(value)}{bounds}"


describe = question_command(DescribeTable)
