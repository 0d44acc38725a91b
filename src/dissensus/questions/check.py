"""Check a table of labels against thresholds, some of which compare it with an earlier snapshot.

The earlier snapshot is a table, or the model that `aggregate` saved (`Snapshot.model`). With two tables, drift is
tested on their rows (`questions.diff`). If only the model is available, an item with the same number of labels as
before counts as unchanged, and an item that had no label counts as new. Other items are skipped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dissensus.common.formatting import Count, Share
from dissensus.common.registry import DEFAULT_METHOD
from dissensus.messages import Message
from dissensus.models.base import Aggregator
from dissensus.questions import findings
from dissensus.questions.compare import fit_and_time, resolve_method
from dissensus.questions.diff import drift
from dissensus.questions.item_status import is_settled
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations
from dissensus.table.kinds import CLASS_KINDS, check_kind

DEFAULT_CHANGE_LIMITS = {"max_fall": 0.05, "max_flips": 0.05, "max_lost": 0, "max_drifting": 0, "max_new_classes": 0}
"""Default thresholds for comparisons with an earlier snapshot.

At most one label in twenty may change; no item may lose its labels, no annotator may drift (tested with 5 % false
alarms), and there may be no new class.
"""


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A fitted model with its table, or None in place of the table if only the model was saved."""

    model: Aggregator
    agreement: float | None  # probability that two annotators of the same item agree
    table: Annotations | None = None

    @property
    def label_counts(self) -> Any:
        """Return the number of labels of each item (I,)."""
        return np.diff(self.table.item_ptr) if self.table is not None else self.model.item_total_


@dataclass(frozen=True)
class Check:
    """A threshold, and whether the table meets it."""

    name: str
    limit: float
    value: float | None  # None if the threshold could not be checked
    finding: Message  # description of the value, or the reason why the threshold could not be checked
    advice: tuple[Message, ...] = ()  # what to do if the threshold is not met

    @property
    def passed(self) -> bool | None:
        """Return whether the table meets the threshold, or None if this could not be checked."""
        if self.value is None:
            return None
        return self.value >= self.limit if self.name.startswith("min_") else self.value <= self.limit


def fit_snapshot(table: Annotations, method: str | Aggregator = DEFAULT_METHOD) -> Snapshot:
    """Fit a copy of a model to a table."""
    check_kind(table.kind, CLASS_KINDS, "check")
    return Snapshot(fit_and_time(resolve_method(method)[1], table)[0], table.describe()["pairwise_agreement"], table)


def check(
    now: Snapshot,
    before: Snapshot | None = None,
    *,
    limits: Mapping[str, float],
    classes: Sequence[Any] | None = None,
) -> list[Check]:
    """Check a table against thresholds.

    Parameters
    ----------
    now : Snapshot
        The table with a fitted model.
    before : Snapshot, optional
        An earlier snapshot, for the thresholds of `DEFAULT_CHANGE_LIMITS`.
    limits : mapping from names to numbers
        The value of each threshold to check.
    classes : list, optional
        The allowed classes. By default, the classes of the earlier snapshot.

    Returns
    -------
    list of Check
        The result for each threshold.

    >>> table = Annotations.from_arrays("aaabb", "xyzxy", ["cat", "cat", "cat", "cat", "dog"])
    >>> [one] = check(fit_snapshot(table, "majority-vote"), limits={"min_settled": 0.9})
    >>> one.passed, str(one.finding)
    (False, '50.0 % of the items are settled')
    """
    thresholds = _Thresholds(now, before, classes, limits.get("min_labels", 0))
    checks = []
    for name, limit in limits.items():
        value, finding, *advice = getattr(thresholds, name)()
        one = Check(name, limit, value, finding, tuple(advice))
        checks.append(one if one.passed is False else replace(one, advice=()))
    return checks


Measurement = tuple[Any, ...]
"""The value (None if the threshold could not be checked), the finding, and the advice."""


class _Thresholds:
    """Measures of the table; the method with the name of a threshold returns the measured value."""

    def __init__(
        self, now: Snapshot, before: Snapshot | None, classes: Sequence[Any] | None, min_labels: float
    ) -> None:
        assert now.table is not None
        self.labels_required = min_labels
        self.has_allowed_classes = classes is not None
        self.now, self.table, self.classes = now, now.table, classes
        if before is not None:
            self.before = before
            self.old_item = naming.match_names(self.table.items, before.model.items_, "items")  # (I,) −1 for new items
            labels_before = np.append(before.label_counts, 0)[self.old_item]
            self.labels_before = np.where(self.old_item >= 0, labels_before, 0)  # (I,)
            if classes is None:
                self.classes = before.model.classes_.tolist()

    def min_labels(self) -> Measurement:
        labels = self.table.annotators_per_item
        least = int(labels.min())
        items = self.table.items[labels < self.labels_required]
        advice = findings.ItemsNeedLabels(
            n=Count(items.size), enough=int(self.labels_required), items=_first_names(items),
            annotators=Count(self.table.n_annotators),
        )  # fmt: skip
        return least, findings.FewestAnnotators(min_annotators=least), advice

    def min_settled(self) -> Measurement:
        share = float(is_settled(self.now.model.posterior_.max(axis=1), self.table.annotators_per_item).mean())
        return share, findings.SettledShare(share=Share(share)), findings.DecideItems()

    def min_agreement(self) -> Measurement:
        agreement = self.now.agreement
        if agreement is None:
            weighted = self.table.weight is not None or self.table.proba is not None
            return None, findings.AgreementUnavailable(weighted=weighted)
        return agreement, findings.PairwiseAgreement(share=Share(agreement)), findings.ReviewDisagreement()

    def max_flagged(self) -> Measurement:
        from dissensus.questions.diagnose import diagnose

        diagnosis = diagnose(self.table)
        if diagnosis.unsettled:
            return None, findings.SpellingUnsettled()
        flagged = diagnosis.annotators[np.array([bool(flags) for flags in diagnosis.flags])]
        active, n = Count(diagnosis.active_annotators), int(flagged.size)
        if not n and diagnosis.too_few_labels == active:
            return None, findings.TooFewLabels(n=active, annotators=active)
        finding = findings.FlaggedAnnotators(annotators=active, flagged=n, unsettled=False)
        return n, finding, findings.ReviewAnnotators(annotators=_first_names(flagged))

    def max_fall(self) -> Measurement:
        before, now = self.before.agreement, self.now.agreement
        if before is None or now is None:
            return None, findings.AgreementNotComparable()
        finding = findings.AgreementFell(
            agreement_now=Share(now), agreement_before=Share(before), fall=Share(max(before - now, 0))
        )
        return before - now, finding, findings.CompareSnapshots()

    def max_flips(self) -> Measurement:
        both = np.flatnonzero((self.labels_before > 0) & (self.now.label_counts > 0))
        if not both.size:
            return None, findings.NoItemInBoth()
        before, now = self.before.model.predict()[self.old_item[both]], self.now.model.predict()[both]
        flipped = self.table.items[both[[str(a) != str(b) for a, b in zip(before, now, strict=True)]]]
        share = flipped.size / both.size
        finding = findings.AnswersChanged(share=Share(share), items=Count(both.size))
        return share, finding, findings.CompareItems(items=_first_names(flipped))

    def max_lost(self) -> Measurement:
        before = self.before.model.items_[self.before.label_counts > 0]
        lost = before[naming.match_names(before, self.table.items[self.now.label_counts > 0], "items") < 0]
        finding = findings.LabelsLost(n=lost.size, items=Count(before.size))
        return lost.size, finding, findings.CheckExport(items=_first_names(lost))

    def max_drifting(self) -> Measurement:
        table, old = self.table, self.before.table
        if old is None:  # only the items with an unchanged number of labels can be compared
            labels = getattr(self.now.model, "item_total_", self.now.label_counts)
            unchanged, new = np.isclose(self.labels_before, labels), self.labels_before == 0
            old, table = table.select(items=unchanged & ~new), table.select(items=unchanged | new)
        if not (len(old) and len(table)):
            return None, findings.NoUnchangedItem()
        annotators, result = drift(old, table)
        if not result.tested:
            return None, findings.NoDriftTested()
        return int(result.drifts.sum()), result.finding(), *result.findings(annotators)

    def max_new_classes(self) -> Measurement:
        allowed = {str(name) for name in self.classes or ()}
        used = np.unique(self.table.label)
        new = [name for name in self.table.classes[used].tolist() if str(name) not in allowed]
        finding = findings.UnexpectedClasses(
            n=Count(len(new)), allowed=len(allowed) if self.has_allowed_classes else None
        )
        return len(new), finding, findings.RenameClasses(classes=_first_names(new))


def _first_names(names: Any) -> tuple[Any, ...]:
    """Return the first names, one more than the number that messages show."""
    return tuple(names[: findings.N_SHOWN_NAMES + 1])
