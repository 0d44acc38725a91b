"""Check a table of labels against thresholds: alone, and against an earlier snapshot.

The earlier snapshot is a table, or the model that `aggregate` saved (`Snapshot.model`). Drift is tested by the rows of
both tables (`questions.diff`). If only the model is left, an item with as many labels as then counts as unchanged, and
an item that had none as new; the others are skipped.
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
from dissensus.questions.compare import named_model, timed_fit
from dissensus.questions.diff import drift
from dissensus.questions.item_status import is_settled
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations
from dissensus.table.kinds import CLASS_KINDS, check_kind

DEFAULT_CHANGE_LIMITS = {"max_fall": 0.05, "max_flips": 0.05, "max_lost": 0, "max_drifting": 0, "max_new_classes": 0}
"""Default thresholds for comparisons with an earlier snapshot: a change of one in twenty, no lost item, no drifting
annotator (by a test with 5 % false alarms), no new class."""


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A table with a fitted model; `table` is None if only the model was saved."""

    model: Aggregator
    agreement: float | None  # probability that two annotators of one item agree
    table: Annotations | None = None

    @property
    def label_counts(self) -> Any:
        """Return the number of labels of each item (I,)."""
        return np.diff(self.table.item_ptr) if self.table is not None else self.model.item_total_


@dataclass(frozen=True)
class Check:
    """One threshold, and whether it was met."""

    name: str
    limit: float
    value: float | None  # None: it could not be checked
    finding: str  # the value in words, or why there is none
    advice: str = ""  # what to do if the threshold was not met

    @property
    def passed(self) -> bool | None:
        """Return whether the threshold was met, or None if it could not be checked."""
        if self.value is None:
            return None
        return self.value >= self.limit if self.name.startswith("min_") else self.value <= self.limit


def fit_snapshot(table: Annotations, method: str | Aggregator = DEFAULT_METHOD) -> Snapshot:
    """Fit a model to a table; a given model is not changed."""
    check_kind(table.kind, CLASS_KINDS, "check")
    return Snapshot(timed_fit(named_model(method)[1], table)[0], table.describe()["pairwise_agreement"], table)


def check(
    now: Snapshot,
    before: Snapshot | None = None,
    *,
    limits: Mapping[str, float],
    classes: Sequence[Any] | None = None,
) -> list[Check]:
    """Check a table against thresholds by name; those of `SINCE` need `before`, or the allowed `classes`.

    >>> table = Annotations.from_arrays("aaabb", "xyzxy", ["cat", "cat", "cat", "cat", "dog"])
    >>> [one] = check(fit_snapshot(table, "majority-vote"), limits={"min_settled": 0.9})
    >>> one.passed, one.finding
    (False, '50.0 % of the items are settled')
    """
    checks = _Checks(now, before, classes, limits.get("min_labels", 0))
    checked = [Check(name, limit, value, str(found).rstrip("."), _words(advice)) for name, limit in limits.items()
               for value, found, *advice in [getattr(checks, name)()]]  # fmt: skip
    return [one if one.passed is False else replace(one, advice="") for one in checked]


def _words(advice: list[Message]) -> str:
    return " ".join(map(str, advice))


Found = tuple[Any, ...]
"""The value (None if it could not be checked), what was found, and what to do."""


class _Checks:
    """One method per threshold."""

    def __init__(self, now: Snapshot, before: Snapshot | None, classes: Sequence[Any] | None, enough: float) -> None:
        assert now.table is not None
        self.enough, self.allowed = enough, classes is not None  # labels of an item; whether classes were named
        self.now, self.table, self.classes = now, now.table, classes
        if before is not None:
            self.before = before
            self.at = naming.match_names(self.table.items, before.model.items_, "items")  # (I,) −1 for new items
            self.was = np.where(self.at >= 0, np.append(before.label_counts, 0)[self.at], 0)  # (I,) labels then
            if classes is None:
                self.classes = before.model.classes_.tolist()

    def min_labels(self) -> Found:
        labels = self.table.annotators_per_item
        least = int(labels.min())
        items = self.table.items[labels < self.enough]
        return (
            least,
            findings.FewestAnnotators(least=least),
            findings.ItemsNeedLabels(
                n=Count(items.size),
                enough=int(self.enough),
                items=_few(items),
                annotators=Count(self.table.n_annotators),
            ),
        )

    def min_settled(self) -> Found:
        share = float(is_settled(self.now.model.posterior_.max(axis=1), self.table.annotators_per_item).mean())
        return share, findings.SettledShare(share=Share(share)), findings.DecideItems()

    def min_agreement(self) -> Found:
        agreement = self.now.agreement
        if agreement is None:
            weighted = self.table.weight is not None or self.table.proba is not None
            return None, findings.AgreementUnavailable(weighted=weighted)
        return agreement, findings.PairwiseAgreement(share=Share(agreement)), findings.ReviewDisagreement()

    def max_flagged(self) -> Found:
        from dissensus.questions.diagnose import diagnose

        found = diagnose(self.table)
        if found.unsettled:
            return None, findings.SpellingUnsettled()
        flagged = found.annotators[np.array([bool(flags) for flags in found.flags])]
        if not flagged.size and found.too_few_labels == found.active_annotators:
            active = Count(found.active_annotators)
            return None, findings.TooFewLabels(n=active, annotators=active)
        n = int(flagged.size)
        count = findings.FlaggedAnnotators(annotators=Count(found.active_annotators), flagged=n, unsettled=False)
        return n, count, findings.ReviewAnnotators(annotators=_few(flagged))

    def max_fall(self) -> Found:
        was, now = self.before.agreement, self.now.agreement
        if was is None or now is None:
            return None, findings.AgreementNotComparable()
        fall = Share(max(was - now, 0))
        return (
            was - now,
            findings.AgreementFell(now=Share(now), before=Share(was), fall=fall),
            findings.CompareSnapshots(),
        )

    def max_flips(self) -> Found:
        both = np.flatnonzero((self.was > 0) & (self.now.label_counts > 0))
        if not both.size:
            return None, findings.NoItemInBoth()
        then, now = self.before.model.predict()[self.at[both]], self.now.model.predict()[both]
        flipped = self.table.items[both[[str(a) != str(b) for a, b in zip(then, now, strict=True)]]]
        share = flipped.size / both.size
        found = findings.AnswersChanged(share=Share(share), items=Count(both.size))
        return share, found, findings.CompareItems(items=_few(flipped))

    def max_lost(self) -> Found:
        then = self.before.model.items_[self.before.label_counts > 0]
        lost = then[naming.match_names(then, self.table.items[self.now.label_counts > 0], "items") < 0]
        return (
            lost.size,
            findings.LabelsLost(n=lost.size, items=Count(then.size)),
            findings.CheckExport(items=_few(lost)),
        )

    def max_drifting(self) -> Found:
        table, old = self.table, self.before.table
        if old is None:
            now = (
                self.now.model.item_total_ if hasattr(self.now.model, "item_total_") else self.now.label_counts
            )  # as `was`
            known, new = np.isclose(self.was, now), self.was == 0
            old, table = table.select(items=known & ~new), table.select(items=known | new)
        if not (len(old) and len(table)):
            return None, findings.NoUnchangedItem()
        annotators, found = drift(old, table)
        if not found.tested:
            return None, findings.NoDriftTested()
        return int(found.drifts.sum()), found.finding(), *found.findings(annotators)

    def max_new_classes(self) -> Found:
        allowed = {str(name) for name in self.classes or ()}
        used = np.unique(self.table.label)
        new = [name for name in self.table.classes[used].tolist() if str(name) not in allowed]
        found = findings.NewClasses(n=Count(len(new)), allowed=len(allowed) if self.allowed else None)
        return len(new), found, findings.RenameClasses(classes=_few(new))


def _few(names: Any) -> tuple[Any, ...]:
    """Return the first names, and one more than is shown."""
    return tuple(names[: findings.NAMES_SHOWN + 1])
