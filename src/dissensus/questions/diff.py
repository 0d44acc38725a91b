"""Compare two snapshots of a table: changed labels, flipped answers with reasons, and drifting annotators.

A row is identified by its item and annotator. A label is *changed* if both snapshots have a row for the same item and
annotator with different labels. A label without a counterpart is *added* or *removed*. If an item and annotator have
several rows, equal labels are matched first.

An item *flips* if it has labels in both snapshots and a method that is fitted to each snapshot gives different answers
for it. A changed label of the item is *decisive* if the model of the new snapshot prefers the old answer (or considers
both answers equally probable) when this one change is undone. If undoing all changes of the item does not restore the
old answer, the item flipped because of its annotators' labels on other items.

An annotator *drifts* if the share of its labels that agree with the others' labels changed significantly more than the
share of all other annotators, or in the opposite direction. Each label is compared with the other annotators' current
labels of the item, and repeated labels of one annotator on an item count as one. If h of n labels agree before (t = 0)
and since (t = 1),

    d_j = logit(h_1, n_1) − logit(h_0, n_0)         logit(h, n) = log((h + ½) / (n − h + ½))
    v_j = Σ_t 1 / (h_t + ½) + 1 / (n_t − h_t + ½)
    z_j = (d_j − d̄) / √(v_j + τ² + v̄)

where d̄ is the mean d of the other annotators, weighted by 1 / v, and v̄ is its variance. τ² is the variance of the
others' d beyond chance (DerSimonian & Laird 1986), because agreement does not fall equally for all annotators when
items get harder. The two-sided p-values are adjusted by the procedure of Benjamini & Hochberg (1995): at most a share
`level` of the annotators reported as drifting is expected to be reported by chance.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from scipy.special import ndtr
from scipy.stats import false_discovery_control

from dissensus.common.formatting import Count, Share
from dissensus.common.frames import Backend, columns_to_frame
from dissensus.common.notebook import NotebookTable
from dissensus.common.parameters import check_argument
from dissensus.common.registry import DEFAULT_METHOD
from dissensus.common.types import BoolArray, FloatArray, IntArray, Names
from dissensus.messages import Message
from dissensus.models.base import Aggregator
from dissensus.questions import findings
from dissensus.questions.compare import fit_and_time, make_unfitted_copy, resolve_method
from dissensus.questions.exceptions import EmptySnapshot
from dissensus.questions.findings import LabelChange
from dissensus.questions.spam_tests import LeaveOneOutPosterior, leave_one_out_posterior
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations
from dissensus.table.kinds import CLASS_KINDS, check_kind

FrameKind = Literal["items", "labels", "annotators"]
CHANGE_KINDS = ("added", "changed", "removed")
MIN_LABELS_PER_SNAPSHOT = (
    10  # minimum number of labels in each snapshot on items that others labelled too; with fewer, drift is not tested
)
MIN_OTHER_ANNOTATORS = 2  # minimum number of other tested annotators
MAX_RESCORED_LABELS = (
    5_000_000  # maximum number of labels that are scored again to find decisive changes; this takes seconds
)
MAX_LISTED_CHANGES = 3  # maximum number of changes that are listed for an item


@dataclass(frozen=True, eq=False)
class Changes:
    """The rows that differ between the snapshots; −1 marks a missing row or label."""

    item: IntArray  # (C,) code into `Diff.items`
    annotator: IntArray  # (C,) code into `Diff.annotators`
    old: IntArray  # (C,) class code
    new: IntArray  # (C,) class code
    old_row: IntArray  # (C,) row of the old table
    new_row: IntArray  # (C,) row of the new table
    decisive: BoolArray  # (C,) True if this change alone made its item flip

    @property
    def kind(self) -> IntArray:
        """Return the code into `CHANGE_KINDS` (C,)."""
        return np.where(self.old < 0, 0, np.where(self.new < 0, 2, 1))


@dataclass(frozen=True, eq=False)
class Flips:
    """The items whose answer changed, in descending order of confidence."""

    item: IntArray  # (F,) code into `Diff.items`
    old: IntArray  # (F,) class code
    new: IntArray  # (F,) class code
    old_confidence: FloatArray  # (F,)
    new_confidence: FloatArray  # (F,)
    caused_by_own_labels: BoolArray  # (F,) False if the item flipped because of its annotators' labels on other items


@dataclass(frozen=True, eq=False)
class Drift:
    """Agreement of every annotator with the others' current labels, before and since; NaN for untested annotators."""

    labels_before: IntArray  # (A,) number of labels on items that others labelled too
    labels_since: IntArray  # (A,)
    agreement_before: FloatArray  # (A,)
    agreement_since: FloatArray  # (A,)
    others_before: FloatArray  # (A,) share of all other annotators' labels that agree
    others_since: FloatArray  # (A,)
    p_value: FloatArray  # (A,)
    adjusted_p_value: FloatArray  # (A,) p-value adjusted by the procedure of Benjamini & Hochberg
    drifts: BoolArray  # (A,)

    @property
    def tested(self) -> int:
        """Return the number of annotators with enough labels."""
        return int((~np.isnan(self.p_value)).sum())

    def finding(self) -> Message:
        """Return a message with the number of drifting annotators among the tested ones."""
        if not self.tested:
            return findings.NoDriftTested()
        return findings.DriftingAnnotators(drifting=int(self.drifts.sum()), tested=Count(self.tested))

    def most_significant(self) -> IntArray:
        """Return the codes of the drifting annotators in ascending order of their p-values."""
        return np.flatnonzero(self.drifts)[np.argsort(self.p_value[self.drifts], kind="stable")]

    def findings(self, annotators: Names) -> Iterator[Message]:
        """Yield a message about each drifting annotator that can be shown to the annotator."""
        shares = ("agreement_since", "agreement_before", "others_since", "others_before")
        for a in self.most_significant():
            facts: dict[str, Any] = {name: Share(getattr(self, name)[a]) for name in shares}
            facts |= {"labels_since": int(self.labels_since[a]), "labels_before": int(self.labels_before[a])}
            yield findings.AnnotatorDrifts(annotator=annotators[a], **facts)


@dataclass(frozen=True, eq=False, repr=False)
class Diff(NotebookTable):
    """The changes between two snapshots of a table."""

    items: Names  # all items of both snapshots
    annotators: Names  # all annotators of both snapshots
    classes: Names  # all classes of both snapshots
    old_labels: int
    new_labels: int
    new_items: int  # number of items that are labelled only in the new snapshot
    lost_items: int  # number of items that are labelled only in the old snapshot
    new_annotators: int
    lost_annotators: int
    method: str
    level: float
    changes: Changes
    flips: Flips
    drift: Drift

    def __repr__(self) -> str:
        return f"Diff: {self.verdict()}"

    def counts(self) -> dict[str, int]:
        """Return the numbers of added, changed and removed labels."""
        return dict(zip(CHANGE_KINDS, np.bincount(self.changes.kind, minlength=3).tolist(), strict=True))

    def verdict(self) -> str:
        """Describe the changes in one or two sentences."""
        return " ".join(map(str, self.findings()))

    def findings(self) -> Iterator[Message]:
        """Yield messages about the changes."""
        added, changed, removed = self.counts().values()
        if not added + changed + removed:
            yield findings.NoLabelChanged()
            return
        flipped = Count(self.flips.item.size)
        yield findings.LabelsChanged(added=Count(added), changed=changed, removed=removed, flipped=flipped)
        yield self.drift.finding()

    def reasons(self) -> list[str]:
        """Return the reason why each item flipped (F,)."""
        c, order = self.changes, np.argsort(self.changes.item, kind="stable")
        starts = np.searchsorted(c.item[order], self.flips.item)
        ends = np.searchsorted(c.item[order], self.flips.item, side="right")
        rows = zip(starts, ends, self.flips.caused_by_own_labels, strict=True)
        return [str(self._explain_flip(order[start:end], by_own_labels)) for start, end, by_own_labels in rows]

    def _explain_flip(self, changes: IntArray, by_own_labels: bool) -> Message:
        if not by_own_labels:
            return findings.FlippedByOtherItems(own_changes=changes.size)
        decisive = changes[self.changes.decisive[changes]]
        named = decisive if decisive.size else changes
        labels = tuple(self._describe_change(change) for change in named[:MAX_LISTED_CHANGES])
        return findings.FlippedByOwnLabels(decisive=bool(decisive.size), labels=labels, n_changes=changes.size)

    def _describe_change(self, change: int) -> LabelChange:
        c = self.changes
        old, new = (None if code < 0 else self.classes[code] for code in (c.old[change], c.new[change]))
        return LabelChange(annotator=self.annotators[c.annotator[change]], old=old, new=new)

    def to_frame(self, kind: FrameKind = "items", backend: Backend | None = None) -> Any:
        """Return a frame (pandas if installed) of the flipped "items", the changed "labels" or the "annotators"."""
        check_argument("kind", kind, FrameKind)
        c, f = self.changes, self.flips
        columns: dict[str, Any] = {"annotator": self.annotators} | vars(self.drift)
        if kind == "items":
            columns = {
                "item": self.items[f.item],
                "old": self.classes[f.old],
                "new": self.classes[f.new],
                "old_confidence": f.old_confidence,
                "new_confidence": f.new_confidence,
                "reason": np.array(self.reasons(), object),
            }
        elif kind == "labels":
            names = np.array([*self.classes.tolist(), None], object)  # the code −1 selects None
            columns = {
                "item": self.items[c.item],
                "annotator": self.annotators[c.annotator],
                "change": np.array(CHANGE_KINDS, object)[c.kind],
                "old": names[c.old],
                "new": names[c.new],
                "decisive": c.decisive,
            }
        return columns_to_frame(columns, backend)


def diff(
    old: Annotations,
    new: Annotations,
    *,
    method: str | Aggregator = DEFAULT_METHOD,
    level: float = 0.05,
) -> Diff:
    """Compare two snapshots of a table.

    Parameters
    ----------
    old, new : Annotations
        The two snapshots. Items, annotators and classes are matched by name.
    method : name or Aggregator
        Method that determines the answers. A fitted model is copied, not changed.
    level : float
        Maximum expected share of false positives among the annotators reported as drifting.

    Returns
    -------
    Diff
        The changed labels, flipped items and drifting annotators.

    >>> from dissensus.table.annotations import Annotations
    >>> old = Annotations.from_arrays("aaabb", "xyzxy", ["cat", "cat", "dog", "dog", "dog"])
    >>> new = Annotations.from_arrays("aaabbb", "xyzxyz", ["dog", "dog", "dog", "dog", "dog", "cat"])
    >>> found = diff(old, new, method="majority-vote")
    >>> found.counts(), found.reasons()
    ({'added': 1, 'changed': 2, 'removed': 0}, ["together: x changed 'cat' to 'dog'; y changed 'cat' to 'dog'"])
    >>> print(found.verdict().partition(";")[0], found.to_frame().shape)
    1 label was added, 2 changed and 0 removed (1, 6)
    >>> next(found.findings()).facts
    {'added': 1, 'changed': 2, 'removed': 0, 'flipped': 1}
    """
    for table in (old, new):
        check_kind(table.kind, CLASS_KINDS, "diff")
    check_argument("level", level, float, above=0, below=1)
    if not (len(old) and len(new)):
        raise EmptySnapshot(snapshot="new" if len(old) else "old")
    unfitted = resolve_method(method)[1]
    return diff_with_models(old, new, [fit_and_time(unfitted, table)[0] for table in (old, new)], level=level)


def diff_with_models(old: Annotations, new: Annotations, models: Sequence[Aggregator], *, level: float) -> Diff:
    """Compare two snapshots, given a fitted model of the same method for each."""
    name, unfitted = resolve_method(make_unfitted_copy(models[1]))
    both = Annotations.concat([old, new])  # contains all names
    old, new = (_recode_names(table, both) for table in (old, new))
    changes = _find_changes(old, new)
    flips, decisive = _find_flips(models, unfitted, old, new, changes)
    changes = replace(changes, decisive=decisive)
    had_item, has_item = (np.diff(table.item_ptr) > 0 for table in (old, new))
    had_annotator, has_annotator = (np.diff(table.annotator_ptr) > 0 for table in (old, new))
    return Diff(
        both.items, both.annotators, both.classes, len(old), len(new),
        int((has_item & ~had_item).sum()), int((had_item & ~has_item).sum()),
        int((has_annotator & ~had_annotator).sum()), int((had_annotator & ~has_annotator).sum()),
        name, level, changes, flips, _test_drift(new, changes, level),
    )  # fmt: skip


def drift(
    old: Annotations, new: Annotations, level: float = 0.05, others: LeaveOneOutPosterior | None = None
) -> tuple[Names, Drift]:
    """Return the annotators of two snapshots and their drift.

    `others` is the `leave_one_out_posterior` of the new snapshot if it has been computed already.
    """
    both = Annotations.concat([old, new])  # contains all names
    old, new = (_recode_names(table, both) for table in (old, new))
    return both.annotators, _test_drift(new, _find_changes(old, new), level, others)


def _recode_names(table: Annotations, names: Annotations) -> Annotations:
    """Return a table with the same rows in the same order, encoded with the names of another table."""
    return Annotations.from_codes(
        naming.translate_codes(table.item, table.items, names.items, "items"),
        naming.translate_codes(table.annotator, table.annotators, names.annotators, "annotators"),
        naming.translate_codes(table.label, table.classes, names.classes, "classes"),
        names.items, names.annotators, names.classes, weight=table.weight, kind=table.kind,
    )  # fmt: skip


def _find_changes(old: Annotations, new: Annotations) -> Changes:
    """Return the rows that differ; both tables are sorted by item, annotator and label.

    Equal rows are matched first; then the remaining rows of each item and annotator are matched in order.
    """
    pairs = [table.item.astype(np.int64) * table.n_annotators + table.annotator for table in (old, new)]
    rows = [pair * old.n_classes + table.label for pair, table in zip(pairs, (old, new), strict=True)]
    _, rest = _match_sorted(rows[0], rows[1])
    changed, (removed, added) = _match_sorted(pairs[0][rest[0]], pairs[1][rest[1]])
    old_row = np.concatenate([rest[0][changed[0]], rest[0][removed], np.full(added.size, -1)])
    new_row = np.concatenate([rest[1][changed[1]], np.full(removed.size, -1), rest[1][added]])
    pair = np.where(new_row >= 0, pairs[1][new_row], pairs[0][old_row])
    order = np.argsort(pair, kind="stable")
    old_row, new_row, pair = old_row[order], new_row[order], pair[order]
    return Changes(
        pair // old.n_annotators,
        pair % old.n_annotators,
        np.where(old_row >= 0, old.label[old_row].astype(np.int64), -1),
        np.where(new_row >= 0, new.label[new_row].astype(np.int64), -1),
        old_row,
        new_row,
        np.zeros(pair.size, np.bool_),
    )


def _match_sorted(a: IntArray, b: IntArray) -> tuple[tuple[IntArray, IntArray], tuple[IntArray, IntArray]]:
    """Match equal keys of two sorted lists in order; return the indices of matched and of unmatched keys."""
    ranks = [np.arange(keys.size) - np.searchsorted(keys, keys) for keys in (a, b)]
    size = 1 + max((int(rank.max(initial=0)) for rank in ranks), default=0)
    unique_a, unique_b = (keys * size + rank for keys, rank in zip((a, b), ranks, strict=True))
    _, in_a, in_b = np.intersect1d(unique_a, unique_b, assume_unique=True, return_indices=True)
    unmatched = [np.ones(keys.size, np.bool_) for keys in (a, b)]
    unmatched[0][in_a], unmatched[1][in_b] = False, False
    return (in_a, in_b), (np.flatnonzero(unmatched[0]), np.flatnonzero(unmatched[1]))


def _find_flips(
    models: Sequence[Aggregator], unfitted: Aggregator, old: Annotations, new: Annotations, changes: Changes
) -> tuple[Flips, BoolArray]:
    """Return the flipped items, and whether each change is decisive (C,)."""
    label = np.full((2, old.n_items), -1)
    confidence = np.zeros((2, old.n_items))
    for time, model in enumerate(models):
        item = naming.match_names(model.items_, old.items, "items")
        code = naming.match_names(model.predict(), model.classes_, "classes")
        label[time, item] = naming.match_names(model.classes_, old.classes, "classes")[code]
        confidence[time, item] = model.posterior_[np.arange(code.size), code]
    before, now = label
    labelled = (np.diff(old.item_ptr) > 0) & (np.diff(new.item_ptr) > 0)
    flipped = np.flatnonzero(labelled & (before != now))
    by_own_labels, decisive = np.zeros(old.n_items, np.bool_), np.zeros(changes.item.size, np.bool_)
    if flipped.size:
        model = models[1]
        if model.classes_.size < old.n_classes:  # some classes occur only in the old snapshot
            model = fit_and_time(unfitted, new)[0]
        mask = np.isin(np.arange(old.n_items), flipped)
        by_own_labels[flipped] = _prefers_old_answer(model, old.select(items=mask), before[flipped], now[flipped])
        tried = np.flatnonzero(by_own_labels[changes.item])
        if tried.size and np.diff(new.item_ptr)[changes.item[tried]].sum() <= MAX_RESCORED_LABELS:
            item = changes.item[tried]
            decisive[tried] = _prefers_old_answer(
                model, _undo_changes(old, new, changes, tried), before[item], now[item]
            )
    flipped = flipped[np.argsort(-np.minimum(*confidence[:, flipped]), kind="stable")]
    flips = Flips(
        flipped, before[flipped], now[flipped], confidence[0, flipped], confidence[1, flipped], by_own_labels[flipped]
    )
    return flips, decisive


def _prefers_old_answer(model: Aggregator, table: Annotations, before: IntArray, now: IntArray) -> BoolArray:
    """Return whether a model prefers the old answer to the new one for each item of a table (I,)."""
    code = naming.match_names(table.classes, model.classes_, "classes")
    p, row = model.predict_proba(table), np.arange(table.n_items)
    return np.asarray(p[row, code[before]] >= p[row, code[now]])


def _undo_changes(old: Annotations, new: Annotations, changes: Changes, tried: IntArray) -> Annotations:
    """Return a table with one item per tried change: the new labels of the changed item with this change undone."""
    start, size = new.item_ptr[changes.item[tried]], np.diff(new.item_ptr)[changes.item[tried]]
    index = np.repeat(np.arange(tried.size), size)  # index of the change to which each row belongs
    row = np.arange(index.size) - np.repeat(np.cumsum(size) - size, size) + start[index]
    keep = row != changes.new_row[tried][index]
    index, row = index[keep], row[keep]
    restored = np.flatnonzero(changes.old_row[tried] >= 0)
    old_row = changes.old_row[tried[restored]]
    weight = None
    if new.weight is not None or old.weight is not None:
        weight = np.concatenate([new.row_weights[row], old.row_weights[old_row]])
    return Annotations.from_codes(
        np.concatenate([index, restored]),
        np.concatenate([new.annotator[row], old.annotator[old_row]]),
        np.concatenate([new.label[row], old.label[old_row]]),
        np.arange(tried.size), new.annotators, new.classes, weight=weight, kind=new.kind,
    )  # fmt: skip


def _test_drift(new: Annotations, changes: Changes, level: float, others: LeaveOneOutPosterior | None = None) -> Drift:
    """Test every annotator for drift with the equations in the docstring of this module."""
    A = new.n_annotators
    others = others or leave_one_out_posterior(new, np.arange(A))
    labels, n, h = _count_agreement(new, changes, others)
    tested = (n >= MIN_LABELS_PER_SNAPSHOT).all(axis=0)
    logit = np.log(h + 0.5) - np.log(n - h + 0.5)
    d, v = logit[1] - logit[0], (1 / (h + 0.5) + 1 / (n - h + 0.5)).sum(axis=0)
    tested &= tested.sum() >= MIN_OTHER_ANNOTATORS + 1
    w = np.where(tested, 1 / v, 0.0)
    sums = (w, w * d, w * d**2, w**2, tested.astype(np.float64))
    W, Wd, Wdd, WW, m = (values.sum() - values for values in sums)  # sums over all other annotators
    with np.errstate(invalid="ignore", divide="ignore"):
        tau2 = np.maximum(0, (Wdd - Wd**2 / W - (m - 1)) / (W - WW / W))
        z = (d - Wd / W) / np.sqrt(v + tau2 + 1 / W + tau2 * WW / W**2)
        agreement = h / n
        of_others = (h.sum(axis=1, keepdims=True) - h) / (n.sum(axis=1, keepdims=True) - n)
    p, adjusted = np.full(A, np.nan), np.full(A, np.nan)
    p[tested] = 2 * ndtr(-np.abs(z[tested]))
    if tested.any():
        adjusted[tested] = false_discovery_control(p[tested])
    (n0, n1), (a0, a1), (o0, o1) = labels, agreement, of_others
    return Drift(n0, n1, a0, a1, o0, o1, p, adjusted, adjusted <= level)


def _count_agreement(
    new: Annotations, changes: Changes, others: LeaveOneOutPosterior
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Count the number of labels, n and h (each 2 × A: before, since) on items that others labelled too."""
    A = new.n_annotators
    answer, shared = others.posterior.argmax(axis=1), ~others.has_no_others
    since = np.zeros(len(new), np.bool_)
    since[changes.new_row[changes.new_row >= 0]] = True
    had_other_label = (changes.new_row >= 0) & (changes.old_row >= 0)
    changed, old_label = changes.new_row[had_other_label], changes.old[had_other_label]
    agrees = new.label == answer
    share = (
        1 / np.bincount(new.rating_codes)[new.rating_codes]
    )  # repeated labels of one annotator on an item count as one
    labels, n, h = np.zeros((2, A), np.int64), np.zeros((2, A)), np.zeros((2, A))
    for time, rows, hits in (
        (0, np.append(np.flatnonzero(~since), changed), np.append(agrees[~since], old_label == answer[changed])),
        (1, np.flatnonzero(since), agrees[since]),
    ):
        rows, hits = rows[shared[rows]], hits[shared[rows]]
        annotator = new.annotator[rows]
        labels[time] = np.bincount(annotator, minlength=A)
        n[time], h[time] = (np.bincount(annotator, x, A).round(9) for x in (share[rows], share[rows] * hits))
    return labels, n, h
