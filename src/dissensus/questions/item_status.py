"""Status of each item: settled (ready to use), needs a look, or truly split (annotators genuinely disagree).

An item is *settled* if its class is known, or P(its label) ≥ `SETTLED` by at least `MIN_ANNOTATORS` annotators. 0.95 is
required so that nine of ten are right: the labels alone do not show how far annotators err alike (`benchmarks/trust`).
Another item with n labels, of which m agree on the most frequent class, is *truly split* if at most `MAX_CHANCE` of
such items would have so little agreement if its annotators erred as often as elsewhere: P(Binomial(n, r) ≤ m) ≤
`MAX_CHANCE`, r the mean share of their labels that are the label of the item (each with `CROWD_LABELS` labels of
average quality added). With repeated labels n is the number of annotators, and m their share of the labels that agree.
All other items *need a look*: more labels, or an expert, would settle them.

For other label types, P(label) and agreement are:

| kind | confidence | labels that agree |
|---|---|---|
| sets, objects | P(exactly this answer) | the same answer |
| pairs | P(the better one has the higher score); P(tie) of a tie | the same outcome |
| numbers | reliability, 1 − variance of the value / variance of all true values | within the error of 90 % of labels |
| spans | of a document: lower bound of P(every span is right, and none that was marked is missing) | never split |

A reliability of 0.9 is what Nunnally (Psychometric Theory, 2nd edition, 1978) requires to decide single cases: the 95 %
interval is then 0.32 times as wide as without a label. The width of such an interval does not depend on how far apart
the labels of its item lie, so numbers that are split, also by two labels, are not settled.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.special import bdtr, ndtr

from dissensus.common.formatting import Count
from dissensus.common.types import BoolArray, FloatArray, IntArray, Names
from dissensus.messages import Message
from dissensus.models.confidence import CROWD_LABELS
from dissensus.questions import findings
from dissensus.table import names as naming

if TYPE_CHECKING:
    from collections.abc import Callable

    from dissensus.models.base import Aggregator
    from dissensus.table.annotations import Annotations

Status = Literal["settled", "needs a look", "truly split"]
STATUSES: tuple[Status, ...] = get_args(Status)

SETTLED = 0.95  # confidence of a settled item; with 0.9, three data sets of 12 are less than 88 % right
RELIABLE = 0.9  # reliability of a settled number
NEAR_LABEL_SHARE = 0.9  # share of the labels of numbers that count as near their value
MIN_ANNOTATORS = 2  # of a settled item: labels of one annotator, however many, are unchecked
MAX_CHANCE = 0.05  # probability of so little agreement by errors alone, below which an item is split
MIN_ANNOTATORS_SPLIT = 4  # annotators of an item that can be split
INTERVAL_SDS = 3.92  # standard deviations in a 95 % interval
DECIDED = len(STATUSES)  # in place of a status, for reasons: the class is known
MAX_CELLS_PER_ROW = 20  # items × classes per row above which votes are counted by sorting


@dataclass(frozen=True, eq=False)
class ItemStatus:
    """Votes, status and reason of every item; the texts are made on first use."""

    n_labels: IntArray  # (I,) number of labels
    status: IntArray  # (I,) code into STATUSES
    confidence: FloatArray  # (I,) confidence, compared with `least`
    classes: Names  # (K,)
    reasons: Callable[[slice], Any]  # renders the reasons of some items
    vote_counts: tuple[IntArray, IntArray, IntArray]  # classes and counts of the votes; pointers (I + 1,)
    threshold: float = SETTLED

    @cached_property
    def votes(self) -> Any:
        """Return Arrow strings (I,) such as "cat 3, dog 1", the most frequent class first."""
        given, count, ptr = self.vote_counts
        names = pa.array([str(name) for name in self.classes], pa.string()).take(pa.array(given))
        each = pc.binary_join_element_wise(names, pc.cast(pa.array(count), pa.string()), " ")
        return pc.binary_join(pa.ListArray.from_arrays(pa.array(ptr, pa.int32()), each), ", ")

    @cached_property
    def reason(self) -> Any:
        """Return Arrow strings (I,), one clause each."""
        found = self.reasons(slice(None))
        return found if isinstance(found, pa.Array) else pa.array(found, pa.string())

    def reason_of(self, item: int) -> str:
        """Return the reason of one item."""
        return str(self.reasons(slice(item, item + 1))[0])

    def counts(self) -> dict[Status, int]:
        """Return the number of items of each status."""
        return dict(zip(STATUSES, np.bincount(self.status, minlength=len(STATUSES)).tolist(), strict=True))

    def columns(self) -> dict[str, Any]:
        """Return the columns of a frame with one row per item."""
        status = pa.array(STATUSES).take(pa.array(self.status))
        return {"votes": self.votes, "labels": self.n_labels, "status": status, "reason": self.reason}

    def add_columns(self, frame: Any) -> Any:
        """Return an Arrow frame of the items with these columns after its columns of answers."""
        there, columns = frame.column_names, self.columns()
        if "confidence" not in there:  # numbers, whose labels are counted there
            columns = {name: columns[name] for name in ("status", "reason")}
        after = there.index("confidence" if "confidence" in there else "high") + 1
        for place, (name, values) in enumerate(columns.items(), after):
            frame = frame.add_column(place, name, pa.array(values))
        return frame

    def sentence(self) -> str:
        """Return the number of items of each status in words."""
        settled, look, split = map(Count, self.counts().values())
        return str(
            findings.StatusCounts(
                settled=settled, look=look, split=split, least=100 * self.threshold,
                reliability=self.threshold != SETTLED,                annotators=MIN_ANNOTATORS,
            )
        )  # fmt: skip


def is_settled(
    confidence: FloatArray, annotators: IntArray, gold: IntArray | None = None, threshold: float = SETTLED
) -> BoolArray:
    """Return which items are settled (I,), by their numbers of `annotators`; `known` (I,) has their class or −1."""
    given = (annotators >= MIN_ANNOTATORS) & (confidence >= threshold)
    return np.asarray(given if gold is None else given | (gold >= 0))


def annotator_agreement(table: Annotations, right: BoolArray) -> FloatArray:
    """Return the share of each annotator's labels that are right (A,), with `CROWD_LABELS` added."""
    mean = right.mean() if right.size else 1.0
    hits = np.bincount(table.annotator, right, table.n_annotators) + CROWD_LABELS * mean
    return np.asarray(hits / (np.diff(table.annotator_ptr) + CROWD_LABELS))


def item_status(
    table: Annotations,
    label: IntArray,
    confidence: FloatArray,
    gold: IntArray | None = None,
    *,
    agreement: FloatArray | None = None,
) -> ItemStatus:
    """Return the status of the items of a table, by the code (I,) of their label and its probability (I,).

    `known` (I,) has the known classes, −1 elsewhere. Every row counts as one label, whatever its weight, unless that is
    0. `share` (A,) is the `annotator_agreement` of a larger table that contains this one.

    >>> from dissensus.models.methods import MajorityVote
    >>> from dissensus.table.annotations import Annotations
    >>> table = Annotations.from_arrays("aaabb", "xyzxy", ["cat", "cat", "cat", "cat", "dog"])
    >>> found = status_by_model(MajorityVote().fit(table), table)
    >>> found.counts(), found.votes.to_pylist()
    ({'settled': 1, 'needs a look': 1, 'truly split': 0}, ['cat 3', 'cat 1, dog 1'])
    >>> found.reason.to_pylist()
    ['all 3 labels agree', '2 labels differ']
    """
    table = table.positive_weight_rows
    item, given, count, ptr = _votes_cast(table)
    labels, right = np.diff(table.item_ptr), table.label == label[table.item]
    some, own = labels > 0, np.bincount(table.item, right, table.n_items)
    agree, top = np.zeros(table.n_items, np.int64), np.full(table.n_items, -1)
    agree[some], top[some] = count[ptr[:-1][some]], given[ptr[:-1][some]]
    tied, leaders = _tied(item, given, count, agree)
    agreement = annotator_agreement(table, right) if agreement is None else agreement
    status, expected = _status(table, agree, agreement, is_settled(confidence, table.annotators_per_item, gold))

    overruled = np.where(some & (own < agree), top, -1)  # the method's label is not the most frequent one
    shown = status if gold is None else np.where(gold >= 0, DECIDED, status)
    alone = (table.annotators_per_item == 1) & (labels > 1)
    facts = np.array([shown, labels, agree, tied, overruled + 1, np.where(status == 2, expected, 0), alone])
    return ItemStatus(labels, status, confidence, table.classes, partial(_reasons, table.classes, leaders, facts),
                      (given, count, ptr))  # fmt: skip


def _tied(item: IntArray, given: IntArray, count: IntArray, agree: IntArray) -> tuple[IntArray, list[list[int]]]:
    """Return 1 + index into the returned list of tied leading classes, with at least two labels each (I,); else 0."""
    leads = count == agree[item]
    leading = np.bincount(item[leads], minlength=agree.size)
    several = (leading > 1) & (agree > 1)
    codes = pc.cast(pa.array(given[leads & several[item]]), pa.string())
    ptr = pa.array(np.append(0, np.cumsum(leading[several])), pa.int32())
    found = pc.binary_join(pa.ListArray.from_arrays(ptr, codes), " ").dictionary_encode()
    tied = np.zeros(agree.size, np.int64)
    tied[several] = found.indices.to_numpy() + 1
    return tied, [[int(code) for code in text.split()] for text in found.dictionary.to_pylist()]


def _votes_cast(table: Annotations) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Return item, label and count of all labels given, the most frequent of an item first, and pointers (I + 1,)."""
    cells, key = table.n_items * table.n_classes, table.item.astype(np.int64) * table.n_classes + table.label
    if cells > MAX_CELLS_PER_ROW * len(table):  # every text may be a class
        pair, count = np.unique(key, return_counts=True)
    else:
        given_to = np.bincount(key, minlength=cells)
        pair = np.flatnonzero(given_to)
        count = given_to[pair]
    item, given = np.divmod(pair, table.n_classes)
    order = np.lexsort((given, -count, item))
    return item, given[order], count[order], np.searchsorted(item, np.arange(table.n_items + 1))


def _status(
    table: Annotations, agree: IntArray, share: FloatArray, settled: BoolArray, unless_apart: bool = False
) -> tuple[IntArray, IntArray]:
    """Return the status (I,) by the number of labels that agree, and their usual number (I,) by the `share` (A,).

    `unless_apart`: items with unusually little agreement are not settled.
    """
    labels, people = np.diff(table.item_ptr), table.annotators_per_item
    usual = np.bincount(table.item, share[table.annotator], table.n_items) / np.maximum(labels, 1)
    together = np.ceil(agree * people / np.maximum(labels, 1))  # annotators in proportion to the labels
    apart = bdtr(together, people, usual) <= MAX_CHANCE
    settled = settled & ~(apart & unless_apart)
    status = np.where(settled, 0, np.where(apart & (people >= MIN_ANNOTATORS_SPLIT), 2, 1))
    return status.astype(np.int8), np.rint(usual * labels).astype(np.int64)


def status_by_model(model: Aggregator, table: Annotations, gold: Any = None) -> ItemStatus:
    """Return the status of the items of a table, by a model that was fitted to it or that scored it.

    `known` (I,) has the known classes, −1 elsewhere; of numbers the known values, NaN elsewhere.
    """
    if table.kind == "numbers":
        return _status_of_numbers(model, table, gold)
    if table.kind not in ("sets", "objects", "pairs"):
        table = table.with_classes(model.classes_)
    label = naming.match_names(model.predict(), table.classes, "classes")
    return item_status(table, label, answer_probability(model, table), gold)


def answer_probability(model: Any, table: Annotations) -> FloatArray:
    """Return P(the answer is right) (I,), for labels that are no numbers."""
    if table.kind in ("sets", "objects"):
        return np.asarray(model.confidence_)
    sure = model.posterior_.max(axis=1, initial=0)
    if table.kind != "pairs":
        return np.asarray(sure)
    # the posterior predicts one more label; the truth is which of two scores is higher
    left, right = (
        naming.match_names(table.alternatives.names, model.things_, "things")[side] for side in table.alternatives[1:]
    )
    variance = model.score_variance_
    spread = variance[left, left] + variance[right, right] - 2 * variance[left, right]
    apart = (model.scores_[left] - model.scores_[right]) / np.sqrt(np.maximum(spread, np.finfo(float).tiny))
    best = model.posterior_.argmax(axis=1)
    return np.asarray(np.where(best == 2, sure, ndtr(np.where(best == 0, apart, -apart))))


def _status_of_numbers(model: Any, table: Annotations, known: Any) -> ItemStatus:
    """Return the status by the 95 % interval of each value and the labels close to it."""
    table = table.positive_weight_rows
    values, labels = model.values_, np.diff(table.item_ptr)
    variance = (np.diff(model.interval_, axis=1)[:, 0] / INTERVAL_SDS) ** 2
    total = values.var() + variance.mean() if values.size else 0.0  # of true values
    sure = np.maximum(1 - variance / total, 0) if total > 0 else np.ones(values.size)
    away = np.abs(table.values[table.label] - values[table.item])
    near = away <= np.quantile(away, NEAR_LABEL_SHARE) if away.size else away < 0
    agree = np.bincount(table.item, near, table.n_items).astype(np.int64)
    # the interval does not depend on how far apart the labels lie, so this is tested too
    settled = is_settled(sure, table.annotators_per_item, threshold=RELIABLE)
    status, expected = _status(table, agree, annotator_agreement(table, near), settled, unless_apart=True)
    shown = status if known is None else np.where(np.isnan(known), status, DECIDED)
    status = np.where(shown == DECIDED, 0, status).astype(np.int8)
    alone = (table.annotators_per_item == 1) & (labels > 1)
    reasons = partial(_number_reasons, (labels, shown, agree, expected, alone), model.interval_)
    return ItemStatus(labels, status, sure, table.classes, reasons, _votes_cast(table)[1:], RELIABLE)


def status_of_documents(model: Any, table: Annotations) -> tuple[Names, ItemStatus]:
    """Return the documents of a table of spans, and their status by their readers and spans.

    Doubts add up: 1 − P(span) of the answer's spans, and P(a span begins) at every other place that was marked.
    """
    where, tags = table.sequences, model.tags_
    begins = [str(name).startswith("B-") for name in model.classes_.tolist()]
    marked = np.bincount(table.item, table.label != tags[table.item], tags.size) > 0
    missed = np.where(marked & (model.classes_[tags] == "O"), model.posterior_[:, begins].sum(axis=1), 0.0)
    wrong = 1 - np.nan_to_num(model.span_probability_, nan=1.0)
    least = np.maximum(1 - np.bincount(where.document, missed + wrong, where.documents.size), 0)
    read = np.unique(where.document[table.item].astype(np.int64) * table.n_annotators + table.annotator)
    labels = np.bincount(read // table.n_annotators, minlength=least.size)
    status = np.where(is_settled(least, labels), 0, 1).astype(np.int8)
    none = np.empty(0, np.int64)
    given = (none, none, np.zeros(least.size + 1, np.int64))
    return where.documents, ItemStatus(labels, status, least, none, partial(_document_reasons, labels, least), given)


def _reasons(classes: Names, leaders: list[list[int]], facts: IntArray, some: slice) -> Any:
    """Render the reasons of some items from facts (7, I); `leaders` are the tied leading classes."""
    facts = facts[:, some]
    if facts.shape[1] == 1:
        return [str(_reason(classes, leaders, *facts[:, 0].tolist()))]
    sizes = tuple(facts.max(axis=1, initial=0) + 1)
    key = np.ravel_multi_index(tuple(facts), sizes)  # one sort instead of seven
    _, at, place = np.unique(key, return_index=True, return_inverse=True)
    texts = pa.array([str(_reason(classes, leaders, *row)) for row in facts[:, at].T.tolist()], pa.string())
    return texts.take(pa.array(place))


def _number_reasons(facts: tuple[IntArray, ...], interval: Any, some: slice) -> list[str]:
    found = []
    rows = zip(*(fact[some].tolist() for fact in facts), interval[some].tolist(), strict=True)
    for n, status, near, usual, alone, (low, high) in rows:
        if (reason := _few_labels(status, n, alone)) is None and status == 2:
            reason = findings.FewLabelsNearValue(near=near, labels=n, expected=usual)
        found.append(str(reason or findings.ValueInterval(low=low, high=high)))
    return found


def _document_reasons(labels: IntArray, least: FloatArray, some: slice) -> list[str]:
    rows = zip(labels[some].tolist(), least[some].tolist(), strict=True)
    return [str(findings.OneReader() if n == 1 else findings.SpanConfidence(percent=100 * sure)) for n, sure in rows]


def _few_labels(status: int, labels: int, alone: int) -> Message | None:
    """Return why an item has its status if it is decided, or no two annotators labelled it."""
    if status == DECIDED:
        return findings.AnswerDecided()
    if labels < 2:
        return findings.OneLabel() if labels else findings.NoLabel()
    return findings.LabelsByOneAnnotator(labels=labels) if alone else None


def _reason(
    classes: Names, leaders: list[list[int]], status: int, labels: int, agree: int, tied: int, most_: int,
    expected: int, alone: int,
) -> Message:  # fmt: skip
    """Return why an item has its status.

    `tied` is 1 + its index into `leaders`, `most_` 1 + the most frequent class if it is not the answer; or 0. `alone`:
    one annotator gave all labels.
    """
    if labels == 1 and most_ and status != DECIDED:
        return findings.OnlyLabelDoubtful(label=classes[most_ - 1])
    if (reason := _few_labels(status, labels, alone)) is not None:
        return reason
    votes: dict[str, Any] = {"labels": labels, "settled": status == 0}
    if agree == 1:
        return findings.LabelsDiffer(**votes)
    if status == 2:
        return findings.LessAgreementThanUsual(agree=agree, labels=labels, expected=expected)
    if tied:
        return findings.LabelsTied(classes=tuple(classes[leaders[tied - 1]].tolist()), agree=agree, **votes)
    if most_:
        return findings.MajorityOverruled(label=classes[most_ - 1], agree=agree, **votes)
    if agree == labels:
        return findings.AllLabelsAgree(labels=labels, below=SETTLED if status else None)
    return findings.SomeLabelsAgree(agree=agree, labels=labels)
