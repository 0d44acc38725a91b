"""Whether a table of labels keeps to limits: alone, and against what it was earlier.

What it was earlier is a table, or what `aggregate` kept of one (`Snapshot.model`). Drift is tested by the rows of both
tables (`questions.diff`). Where only the model is left, an item with as many labels as then is taken to have the same
ones, and an item that had none to have new ones only; the others are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dissensus.common.formatting import count, percent
from dissensus.common.registry import DEFAULT_METHOD
from dissensus.models.base import Aggregator
from dissensus.questions.compare import named_model, timed_fit
from dissensus.questions.diff import drift
from dissensus.questions.item_status import is_settled
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations
from dissensus.table.kinds import CLASS_KINDS, check_kind

SINCE = {"max_fall": 0.05, "max_flips": 0.05, "max_lost": 0, "max_drifting": 0, "max_new_classes": 0}
"""Limits that compare with an earlier snapshot, as they are where nobody says otherwise: a change of one in twenty, no
item less, nobody who drifts (by a test whose false alarms are 5 %), no new class."""
NAMES_SHOWN = 3


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A table that was answered; `table` is None where only the answers were kept."""

    model: Aggregator
    agreement: float | None  # chance that two annotators of one item agree
    table: Annotations | None = None

    @property
    def labels(self) -> Any:
        """(I,) labels of each item."""
        return np.diff(self.table.item_ptr) if self.table is not None else self.model.item_total_


@dataclass(frozen=True)
class Check:
    """One limit, and whether it was kept."""

    name: str
    limit: float
    value: float | None  # None: it could not be checked
    found: str  # the value as a sentence, or why there is none
    advice: str = ""  # what to do where the limit was not kept

    @property
    def passed(self) -> bool | None:
        """None where it could not be checked."""
        if self.value is None:
            return None
        return self.value >= self.limit if self.name.startswith("min_") else self.value <= self.limit


def snapshot(table: Annotations, method: str | Aggregator = DEFAULT_METHOD) -> Snapshot:
    """Answer a table; a model that is given is not changed."""
    check_kind(table.kind, CLASS_KINDS, "check")
    return Snapshot(timed_fit(named_model(method)[1], table)[0], table.describe()["pairwise_agreement"], table)


def check(
    now: Snapshot,
    before: Snapshot | None = None,
    *,
    limits: Mapping[str, float],
    classes: Sequence[Any] | None = None,
) -> list[Check]:
    """Hold a table to limits, by name; those of `SINCE` need `before`, or `classes` that are allowed.

    >>> table = Annotations.from_arrays("aaabb", "xyzxy", ["cat", "cat", "cat", "cat", "dog"])
    >>> [one] = check(snapshot(table, "majority-vote"), limits={"min_settled": 0.9})
    >>> one.passed, one.found
    (False, '50.0 % of the items are settled')
    """
    made = _Checks(now, before, classes, limits.get("min_labels", 0))
    found = [Check(name, limit, *getattr(made, name)()) for name, limit in limits.items()]
    return [one if one.passed is False else replace(one, advice="") for one in found]


Found = tuple[float | None, str] | tuple[float | None, str, str]


class _Checks:
    """One method per limit: the value, how it is said, and what to do."""

    def __init__(self, now: Snapshot, before: Snapshot | None, classes: Sequence[Any] | None, enough: float) -> None:
        assert now.table is not None
        self.enough, self.allowed = enough, classes is not None  # labels of an item; whether somebody named the classes
        self.now, self.table, self.classes = now, now.table, classes
        if before is not None:
            self.before = before
            self.at = naming.match(self.table.items, before.model.items_, "items")  # (I,) −1 where there was none
            self.was = np.where(self.at >= 0, np.append(before.labels, 0)[self.at], 0)  # (I,) labels then
            if classes is None:
                self.classes = before.model.classes_.tolist()

    def min_labels(self) -> Found:
        labels = self.table.ratings_per_item
        least = int(labels.min())
        short, people = self.table.items[labels < self.enough], self.table.n_annotators
        whom = "`dissensus recommend` says to whom"
        if people < self.enough:
            whom = f"it takes new annotators, as the table has {count(people, 'annotator')}"
        return (
            least,
            f"the item with the fewest annotators has {least:,}",
            f"Send out again the {count(short.size, 'item')} with fewer than {self.enough:,}, such as "
            f"{_names(short)}; {whom}.",
        )

    def min_settled(self) -> Found:
        share = float(is_settled(self.now.model.posterior_.max(axis=1), self.table.ratings_per_item).mean())
        return (
            share,
            f"{percent(share, 1)} of the items are settled",
            "Decide the others (`dissensus adjudicate`), or buy labels for them (`dissensus recommend`).",
        )

    def min_agreement(self) -> Found:
        if self.now.agreement is None:
            told = self.table.weight is not None or self.table.proba is not None
            return None, "labels have weights or probabilities" if told else "no item has labels by two annotators"
        return (
            self.now.agreement,
            f"two annotators of one item agree {percent(self.now.agreement, 1)} of the time",
            "Look at what people disagree about (`dissensus explain`), then at the guideline.",
        )

    def max_flagged(self) -> Found:
        from dissensus.questions.diagnose import diagnose

        found = diagnose(self.table)
        if found.unsettled:
            return None, "classes differ by capitals or spaces only, so nobody can be judged"
        named = found.annotators[np.array([bool(flags) for flags in found.flags])]
        if not named.size and found.too_few_labels == found.active_annotators:
            return None, "no annotator has enough labels on items that others labelled too"
        return (
            int(named.size),
            f"{count(named.size, 'annotator')} to look at",
            f"Look at the labels of {_names(named)}; `dissensus diagnose` says why.",
        )

    def max_fall(self) -> Found:
        was, now = self.before.agreement, self.now.agreement
        if was is None or now is None:
            return None, "the agreement is not known of both snapshots"
        return (
            was - now,
            f"two annotators of one item agree {percent(now, 1)} of the time, {percent(was, 1)} before: a fall of "
            f"{percent(max(was - now, 0), 1)}",
            "`dissensus diff` of both tables names who and what changed.",
        )

    def max_flips(self) -> Found:
        both = np.flatnonzero((self.was > 0) & (self.now.labels > 0))
        if not both.size:
            return None, "no item has labels now and had some before"
        then = self.before.model.predict()[self.at[both]]
        flipped = self.table.items[both[[str(a) != str(b) for a, b in zip(then, self.now.model.predict()[both])]]]  # noqa: B905
        return (
            flipped.size / both.size,
            f"the answer of {percent(flipped.size / both.size, 1)} of {count(both.size, 'item')} changed",
            f"`dissensus diff` of both tables says why, of {_names(flipped)} and the others.",
        )

    def max_lost(self) -> Found:
        then = self.before.model.items_[self.before.labels > 0]
        there = naming.match(then, self.table.items[self.now.labels > 0], "items") >= 0
        return (
            int((~there).sum()),
            f"{int((~there).sum()):,} of {count(then.size, 'item')} that had labels lost them",
            f"Was all of it exported? {_names(then[~there])} should be there.",
        )

    def max_drifting(self) -> Found:
        table, old = self.table, self.before.table
        if old is None:
            now = self.now.model.item_total_ if hasattr(self.now.model, "item_total_") else self.now.labels  # as `was`
            known, new = np.isclose(self.was, now), self.was == 0
            old, table = table.select(items=known & ~new), table.select(items=known | new)
        if not (len(old) and len(table)):
            return None, "no item has the labels that it had before"
        annotators, found = drift(old, table)
        drifting = int(found.drifts.sum())
        if not found.tested:
            return None, "no annotator has enough labels before and now"
        return (
            drifting,
            found.verdict().rstrip("."),
            " ".join(found.sentences(annotators)),
        )

    def max_new_classes(self) -> Found:
        allowed = {str(name) for name in self.classes or ()}
        used = np.unique(self.table.label)
        new = [name for name in self.table.classes[used].tolist() if str(name) not in allowed]
        unknown = f"{'was' if len(new) == 1 else 'were'} not there before"
        if self.allowed:
            unknown = f"{'is' if len(new) == 1 else 'are'} not among the {len(allowed):,} that are allowed"
        return (
            len(new),
            f"{len(new):,} {'class' if len(new) == 1 else 'classes'} that {unknown}",
            f"Rename {_names(new)} (--map OLD=NEW), or add to the classes (--classes).",
        )


def _names(names: Any) -> str:
    return ", ".join(naming.shown(name) for name in names[:NAMES_SHOWN]) + (", …" if len(names) > NAMES_SHOWN else "")
