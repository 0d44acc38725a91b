"""What to do about each item: nothing (settled), look at it, or accept that people differ (truly split).

An item is *settled* where its class is known, or P(its label) ≥ `SETTLED` by `MIN_LABELS` labels or more. Of the
others, one with n labels, of which m agree on the most frequent class, is *truly split* where so few would agree in at
most `MAX_CHANCE` of the cases if its annotators erred as often as they do elsewhere: P(Binomial(n, r) ≤ m) ≤
`MAX_CHANCE`, r the mean share of their labels that are the label of the item (each with `CROWD_LABELS` labels of
average quality added). All others *need a look*: more labels, or an expert, would tell.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.special import bdtr

from dissensus.common.types import BoolArray, FloatArray, IntArray, Names
from dissensus.models.reliability import CROWD_LABELS
from dissensus.table import names as naming

if TYPE_CHECKING:
    from dissensus.models.base import Aggregator
    from dissensus.table.annotations import Annotations

Status = Literal["settled", "needs a look", "truly split"]
STATUSES: tuple[Status, ...] = get_args(Status)

SETTLED = 0.9  # P(label) from which an item is settled
MIN_LABELS = 2  # of an item that can be settled: one label is not checked by anybody
MAX_CHANCE = 0.05  # that annotators who only err agree so little
MIN_LABELS_SPLIT = 4  # with fewer, an item is not called split


@dataclass(frozen=True, eq=False)
class ItemStatus:
    """Votes, status and reason of every item; the texts are made when they are first asked for."""

    labels: IntArray  # (I,) number of labels
    status: IntArray  # (I,) code into STATUSES
    classes: Names  # (K,)
    facts: IntArray  # (6, I) what a reason tells, see `_reason`
    given: tuple[IntArray, IntArray, IntArray]  # classes and counts of the votes, the most frequent first; (I + 1,)

    @cached_property
    def votes(self) -> Any:
        """(I,) Arrow strings such as "cat 3, dog 1", the most frequent class first."""
        return _votes(*self.given, self.classes)

    @cached_property
    def reason(self) -> Any:
        """(I,) Arrow strings, a few words each."""
        sizes = tuple(self.facts.max(axis=1, initial=0) + 1)
        key = np.ravel_multi_index(tuple(self.facts), sizes)  # one sort instead of six
        _, at, place = np.unique(key, return_index=True, return_inverse=True)
        texts = pa.array([_reason(self.classes, *row) for row in self.facts[:, at].T.tolist()], pa.string())
        return texts.take(pa.array(place))

    def reason_of(self, item: int) -> str:
        """The reason of one item."""
        return _reason(self.classes, *self.facts[:, item].tolist())

    def counts(self) -> dict[Status, int]:
        """How many items have each status."""
        return dict(zip(STATUSES, np.bincount(self.status, minlength=len(STATUSES)).tolist(), strict=True))

    def columns(self) -> dict[str, Any]:
        """Columns of a frame, one row per item."""
        status = pa.array(STATUSES).take(pa.array(self.status))
        return {"votes": self.votes, "labels": self.labels, "status": status, "reason": self.reason}


def is_settled(confidence: FloatArray, labels: IntArray, known: IntArray | None = None) -> BoolArray:
    """(I,) which items are settled; `known` (I,) has their class, −1 where it is not known."""
    given = (labels >= MIN_LABELS) & (confidence >= SETTLED)
    return np.asarray(given if known is None else given | (known >= 0))


def usual_share(table: Annotations, label: IntArray) -> FloatArray:
    """(A,) share of each annotator's labels that are the label (I,) of their item; `CROWD_LABELS` are added."""
    right = (table.label == label[table.item]).astype(np.float64)
    mean = right.mean() if right.size else 1.0
    hits = np.bincount(table.annotator, right, table.n_annotators) + CROWD_LABELS * mean
    return np.asarray(hits / (np.diff(table.annotator_ptr) + CROWD_LABELS))


def item_status(
    table: Annotations,
    label: IntArray,
    confidence: FloatArray,
    known: IntArray | None = None,
    *,
    share: FloatArray | None = None,
) -> ItemStatus:
    """Status of the items of a table, by the code (I,) of their label and its probability (I,).

    `known` (I,) has the class of items that were told it, −1 elsewhere. Every row counts as one label, whatever its
    weight. `share` (A,) is the `usual_share` of a larger table, of which this one is a part.

    >>> from dissensus.models.methods import MajorityVote
    >>> from dissensus.table.annotations import Annotations
    >>> table = Annotations.from_arrays("aaabb", "xyzxy", ["cat", "cat", "cat", "cat", "dog"])
    >>> found = status_of(MajorityVote().fit(table), table)
    >>> found.counts(), found.votes.to_pylist()
    ({'settled': 1, 'needs a look': 1, 'truly split': 0}, ['cat 3', 'cat 1, dog 1'])
    >>> found.reason.to_pylist()
    ['all 3 labels agree', '2 labels differ']
    """
    I, K = table.n_items, table.n_classes
    given_to = np.bincount(table.item.astype(np.int64) * K + table.label, minlength=I * K)
    pair = np.flatnonzero(given_to)
    (item, given), count = np.divmod(pair, K), given_to[pair]
    order = np.lexsort((given, -count, item))  # votes of one item together, the most frequent first
    item, given, count = item[order], given[order], count[order]
    labels = np.diff(table.item_ptr)
    some, ptr = labels > 0, np.searchsorted(item, np.arange(I + 1))
    agree, top = np.zeros(I, np.int64), np.full(I, -1)
    agree[some], top[some] = count[ptr[:-1][some]], given[ptr[:-1][some]]
    tied = np.bincount(item[count == agree[item]], minlength=I) > 1
    own = given_to.reshape(I, K)[np.arange(I), label]

    share = usual_share(table, label) if share is None else share
    usual = np.bincount(table.item, share[table.annotator], I) / np.maximum(labels, 1)
    split = (labels >= MIN_LABELS_SPLIT) & (bdtr(agree, labels, usual) <= MAX_CHANCE)
    status = np.where(is_settled(confidence, labels, known), 0, np.where(split, 2, 1))
    expected = np.rint(usual * labels).astype(np.int64)

    overruled = np.where(some & (own < agree), top, -1)  # the method's label is not the most frequent one
    facts = np.array([status, labels, agree, tied, overruled + 1, np.where(status == 2, expected, 0)])
    return ItemStatus(labels, status.astype(np.int8), table.classes, facts, (given, count, ptr))


def status_of(model: Aggregator, table: Annotations, known: IntArray | None = None) -> ItemStatus:
    """Status of the items of a table, by a model that was fitted to it or that scored it."""
    label = naming.match(model.predict(), model.classes_, "classes")
    table = table.to_classes(model.classes_)
    return item_status(table, label, model.posterior_.max(axis=1, initial=0), known)


def _reason(classes: Names, status: int, labels: int, agree: int, tied: int, overruled: int, expected: int) -> str:
    """Say in a few words why an item has its status; `overruled` is 1 + the class that most labels say, else 0."""
    most = naming.shown(classes[overruled - 1]) if overruled else ""
    if labels == 0:
        return "no label"
    if labels == 1:
        return f"the only label, {most}, is doubted" if most else "only 1 label"
    if status == 2:
        return f"{agree} of {labels} labels agree where {expected} usually would"
    if most:
        return f"most labels ({agree} of {labels}) say {most}"
    if agree == labels:
        doubt = "" if status == 0 else f", yet below {100 * SETTLED:g} % sure"
        return f"{'both' if labels == 2 else f'all {labels}'} labels agree{doubt}"
    if agree == 1:
        return f"{labels} labels differ"
    return f"{labels} labels are tied" if tied else f"{agree} of {labels} labels agree"


def _votes(given: IntArray, count: IntArray, ptr: IntArray, classes: Names) -> Any:
    """(I,) strings, from (class, count) of each item in rows ptr[i]:ptr[i + 1]."""
    names = pa.array([str(name) for name in classes], pa.string()).take(pa.array(given))
    each = pc.binary_join_element_wise(names, pc.cast(pa.array(count), pa.string()), " ")
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(ptr, pa.int32()), each), ", ")
