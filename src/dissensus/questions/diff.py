"""Compare two snapshots of a table: changed labels, answers that flipped and why, annotators that drift.

A row is identified by its item and annotator. It is *changed* if both snapshots have one for the pair with different
labels; otherwise it is *added* or *removed*. If a pair has several rows, equal labels are matched first.

An item *flips* if both snapshots have labels for it and a method fitted to each gives it different answers. A change of
one of its labels is *decisive* if the method of the new snapshot, given the item without this one change, considers the
old answer at least as probable as the new one. If undoing all changes of the item does not restore the old answer, the
item flipped because of its annotators' labels on other items.

An annotator *drifts* if the share of its labels that agree with the others' moved significantly more, or in another
direction, than that of all other annotators. With h of n labels in agreement, before (0) and since (1), each label
compared with the other annotators' present labels of the item, and the labels of one annotator on an item counted as
one,

    d_j = logit(h_1, n_1) − logit(h_0, n_0)         logit(h, n) = log((h + ½) / (n − h + ½))
    v_j = Σ_t 1 / (h_t + ½) + 1 / (n_t − h_t + ½)
    z_j = (d_j − d̄) / √(v_j + τ² + v̄)

where d̄ is the mean of the others, weighted by 1 / v, v̄ its variance and τ² the variance of the others' d beyond chance
(DerSimonian & Laird 1986): agreement does not fall equally for all annotators when items get harder.

The two-sided p-values are adjusted by Benjamini & Hochberg (1995): at most a share `level` of the annotators reported
as drifting is expected to be reported by chance.
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
from dissensus.questions.compare import named_model, timed_fit, unfitted_copy
from dissensus.questions.exceptions import EmptySnapshot
from dissensus.questions.findings import LabelChange
from dissensus.questions.spam_tests import LeaveOneOutPosterior, leave_one_out_posterior
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations
from dissensus.table.kinds import CLASS_KINDS, check_kind

FrameKind = Literal["items", "labels", "annotators"]
KINDS = ("added", "changed", "removed")
MIN_LABELS = 10  # labels before, and since, on items with labels by others; with fewer, drift is not tested
MIN_OTHERS = 2  # other annotators that are tested
MAX_UNDONE_ROWS = 5_000_000  # labels scored again to find decisive changes, which takes seconds
MAX_CHANGES_NAMED = 3  # changes named per item


@dataclass(frozen=True, eq=False)
class Changes:
    """One entry per row that differs between the snapshots; −1 for a missing row or label."""

    item: IntArray  # (C,) code into `Diff.items`
    annotator: IntArray  # (C,) code into `Diff.annotators`
    old: IntArray  # (C,) class code
    new: IntArray  # (C,) class code
    old_row: IntArray  # (C,) row of the old table
    new_row: IntArray  # (C,) row of the new table
    decisive: BoolArray  # (C,) True if this change alone made its item flip

    @property
    def kind(self) -> IntArray:
        """Return the code into `KINDS` (C,)."""
        return np.where(self.old < 0, 0, np.where(self.new < 0, 2, 1))


@dataclass(frozen=True, eq=False)
class Flips:
    """Items whose answer changed, the most confident changes first."""

    item: IntArray  # (F,) code into `Diff.items`
    old: IntArray  # (F,) class code
    new: IntArray  # (F,) class code
    old_confidence: FloatArray  # (F,)
    new_confidence: FloatArray  # (F,)
    caused_by_own_labels: BoolArray  # (F,) False if its annotators' labels on other items caused it


@dataclass(frozen=True, eq=False)
class Drift:
    """Agreement of every annotator with the others' present labels, before and since; NaN for untested annotators."""

    labels_before: IntArray  # (A,) rows on items with labels by others
    labels_since: IntArray  # (A,)
    agreement_before: FloatArray  # (A,)
    agreement_since: FloatArray  # (A,)
    others_before: FloatArray  # (A,) share of all other annotators' labels
    others_since: FloatArray  # (A,)
    p_value: FloatArray  # (A,)
    adjusted_p_value: FloatArray  # (A,) adjusted by Benjamini & Hochberg
    drifts: BoolArray  # (A,)

    @property
    def tested(self) -> int:
        """Return the number of annotators with enough labels."""
        return int((~np.isnan(self.p_value)).sum())

    def finding(self) -> Message:
        """Return the number of annotators that drift, among those that can be tested."""
        if not self.tested:
            return findings.NoDriftTested()
        return findings.DriftingAnnotators(drifting=int(self.drifts.sum()), tested=Count(self.tested))

    def most_significant(self) -> IntArray:
        """Return the codes of the drifting annotators, the most significant first."""
        return np.flatnonzero(self.drifts)[np.argsort(self.p_value[self.drifts], kind="stable")]

    def findings(self, annotators: Names) -> Iterator[Message]:
        """Yield one message about each drifting annotator, in words that can be shown to the annotator."""
        shares = ("agreement_since", "agreement_before", "others_since", "others_before")
        for a in self.most_significant():
            facts: dict[str, Any] = {name: Share(getattr(self, name)[a]) for name in shares}
            facts |= {"labels_since": int(self.labels_since[a]), "labels_before": int(self.labels_before[a])}
            yield findings.AnnotatorDrifts(annotator=annotators[a], **facts)


@dataclass(frozen=True, eq=False, repr=False)
class Diff(NotebookTable):
    """Changes from one snapshot to the next."""

    items: Names  # all items of both snapshots
    annotators: Names  # all annotators of both snapshots
    classes: Names  # all classes of both snapshots
    old_labels: int
    new_labels: int
    new_items: int  # labelled only in the new snapshot
    lost_items: int  # labelled only in the old one
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
        """Return the number of labels that were added, changed and removed."""
        return dict(zip(KINDS, np.bincount(self.changes.kind, minlength=3).tolist(), strict=True))

    def verdict(self) -> str:
        """Return the changes in a sentence or two."""
        return " ".join(map(str, self.findings()))

    def findings(self) -> Iterator[Message]:
        """Yield what changed."""
        added, changed, removed = self.counts().values()
        if not added + changed + removed:
            yield findings.NoLabelChanged()
            return
        flipped = Count(self.flips.item.size)
        yield findings.LabelsChanged(added=Count(added), changed=changed, removed=removed, flipped=flipped)
        yield self.drift.finding()

    def reasons(self) -> list[str]:
        """Return why each item flipped (F,)."""
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
        labels = tuple(self._describe_change(change) for change in named[:MAX_CHANGES_NAMED])
        return findings.FlippedByOwnLabels(decisive=bool(decisive.size), labels=labels, n_changes=changes.size)

    def _describe_change(self, change: int) -> LabelChange:
        c = self.changes
        old, new = (None if code < 0 else self.classes[code] for code in (c.old[change], c.new[change]))
        return LabelChange(annotator=self.annotators[c.annotator[change]], old=old, new=new)

    def to_frame(self, kind: FrameKind = "items", backend: Backend | None = None) -> Any:
        """Return a frame (pandas if installed) of flipped "items", changed "labels" or "annotators"."""
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
            names = np.array([*self.classes.tolist(), None], object)  # code −1 selects None
            columns = {
                "item": self.items[c.item],
                "annotator": self.annotators[c.annotator],
                "change": np.array(KINDS, object)[c.kind],
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
        Two snapshots; items, annotators and classes are matched by name.
    method : name or Aggregator
        The method that determines the answers; a fitted model is not changed.
    level : float
        Largest expected share of false positives among the annotators reported as drifting.

    Returns
    -------
    Diff
        Changed labels, flipped items and drifting annotators.

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
    unfitted = named_model(method)[1]
    return diff_of_models(old, new, [timed_fit(unfitted, table)[0] for table in (old, new)], level=level)


def diff_of_models(old: Annotations, new: Annotations, models: Sequence[Aggregator], *, level: float) -> Diff:
    """Return what changed between two snapshots, given a model of one method fitted to each."""
    name, unfitted = named_model(unfitted_copy(models[1]))
    both = Annotations.concat([old, new])  # has all names
    old, new = (_use_names(table, both) for table in (old, new))
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
    """Return the annotators of two snapshots, and their drift.

    `others` is the `leave_one_out_posterior` of the new snapshot, if it is known already.
    """
    both = Annotations.concat([old, new])  # has all names
    old, new = (_use_names(table, both) for table in (old, new))
    return both.annotators, _test_drift(new, _find_changes(old, new), level, others)


def _use_names(table: Annotations, names: Annotations) -> Annotations:
    """Return the same rows, in the same order, with the names of another table."""
    return Annotations.from_codes(
        naming.translate_codes(table.item, table.items, names.items, "items"),
        naming.translate_codes(table.annotator, table.annotators, names.annotators, "annotators"),
        naming.translate_codes(table.label, table.classes, names.classes, "classes"),
        names.items, names.annotators, names.classes, weight=table.weight, kind=table.kind,
    )  # fmt: skip


def _find_changes(old: Annotations, new: Annotations) -> Changes:
    """Match equal rows, then rows of one pair in their order; tables are sorted by item, annotator, label."""
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
    """Match equal keys of two sorted lists in order; return the indices of the matched keys, and of the rest."""
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
    """Return the items that flipped, and whether each change alone made its item flip (C,)."""
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
        if model.classes_.size < old.n_classes:  # only the old snapshot has some classes
            model = timed_fit(unfitted, new)[0]
        mask = np.isin(np.arange(old.n_items), flipped)
        by_own_labels[flipped] = _prefers_old(model, old.select(items=mask), before[flipped], now[flipped])
        tried = np.flatnonzero(by_own_labels[changes.item])
        if tried.size and np.diff(new.item_ptr)[changes.item[tried]].sum() <= MAX_UNDONE_ROWS:
            item = changes.item[tried]
            decisive[tried] = _prefers_old(model, _undo_changes(old, new, changes, tried), before[item], now[item])
    flipped = flipped[np.argsort(-np.minimum(*confidence[:, flipped]), kind="stable")]
    flips = Flips(
        flipped, before[flipped], now[flipped], confidence[0, flipped], confidence[1, flipped], by_own_labels[flipped]
    )
    return flips, decisive


def _prefers_old(model: Aggregator, table: Annotations, before: IntArray, now: IntArray) -> BoolArray:
    """Return whether a model prefers the old answer of the items of a table to the new one (I,)."""
    code = naming.match_names(table.classes, model.classes_, "classes")
    p, row = model.predict_proba(table), np.arange(table.n_items)
    return np.asarray(p[row, code[before]] >= p[row, code[now]])


def _undo_changes(old: Annotations, new: Annotations, changes: Changes, tried: IntArray) -> Annotations:
    """Return one item for each tried change: the labels of its item in the new table, without this change."""
    start, size = new.item_ptr[changes.item[tried]], np.diff(new.item_ptr)[changes.item[tried]]
    index = np.repeat(np.arange(tried.size), size)  # index of the change that a row belongs to
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
    """Test the drift of every annotator, by the equations of the module."""
    A = new.n_annotators
    others = others or leave_one_out_posterior(new, np.arange(A))
    labels, n, h = _count_agreement(new, changes, others)
    tested = (n >= MIN_LABELS).all(axis=0)
    logit = np.log(h + 0.5) - np.log(n - h + 0.5)
    d, v = logit[1] - logit[0], (1 / (h + 0.5) + 1 / (n - h + 0.5)).sum(axis=0)
    tested &= tested.sum() >= MIN_OTHERS + 1
    w = np.where(tested, 1 / v, 0.0)
    sums = (w, w * d, w * d**2, w**2, tested.astype(np.float64))
    W, Wd, Wdd, WW, m = (values.sum() - values for values in sums)  # over all other annotators
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
    """Return labels, n and h of every annotator (2, A), before and since, on items that others labelled."""
    A = new.n_annotators
    answer, shared = others.posterior.argmax(axis=1), ~others.has_no_others
    since = np.zeros(len(new), np.bool_)
    since[changes.new_row[changes.new_row >= 0]] = True
    had_other_label = (changes.new_row >= 0) & (changes.old_row >= 0)
    changed, old_label = changes.new_row[had_other_label], changes.old[had_other_label]
    agrees = new.label == answer
    share = 1 / np.bincount(new.rating_codes)[new.rating_codes]  # labels of one annotator and item count as one
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
