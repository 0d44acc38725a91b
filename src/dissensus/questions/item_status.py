"""Status of each item: settled (ready to use), needs a look, or truly split (annotators genuinely disagree).

An item is *settled* if it has a gold class, or if the probability of its label is at least `SETTLED_CONFIDENCE` and at
least `MIN_ANNOTATORS` annotators labelled it. With a threshold of 0.95, nine of ten settled items are correct in
practice, because labels alone do not show how
often annotators make the same mistakes (`benchmarks/trust`).

Any other item is *truly split* if the usual errors of its annotators rarely cause so little agreement: P(Binomial(n, r)
≤ m) ≤ `MAX_SPLIT_P_VALUE`. Here, n is the number of labels, m is the number of labels with the most frequent class, and
r is the mean reliability of the annotators. The reliability is the share of an annotator's labels that equal
the label
of the item, after adding `CROWD_PSEUDO_LABELS` labels of average quality. If labels are repeated, n is
the number of
annotators, and m is n times the share of the labels that agree. All other items *need a look*: more labels or
an expert
would settle them.

For other label types, confidence and agreement are defined as follows:

| kind | confidence | labels that agree |
|---|---|---|
| sets, objects | P(exactly this answer) | the same answer |
| pairs | P(the better alternative has the higher score); for a tie, P(tie) | the same outcome |
| numbers | reliability, 1 − variance of value / variance of true values | as close to the value as 90 % of labels |
| spans | for a document, a lower bound of P(every span is right, no marked span is missing) | never split |

Nunnally (Psychometric Theory, 2nd edition, 1978) requires a reliability of 0.9 to decide single cases. The 95 %
interval is then 0.32 times as wide as without a label. The width of the interval does not depend on how far apart the
labels of an item are. Therefore, numbers with too little agreement are not settled, even with only two labels.
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
from dissensus.models.confidence import CROWD_PSEUDO_LABELS
from dissensus.questions import findings
from dissensus.table import names as naming

if TYPE_CHECKING:
    from collections.abc import Callable

    from dissensus.models.base import Aggregator
    from dissensus.table.annotations import Annotations

Status = Literal["settled", "needs a look", "truly split"]
STATUSES: tuple[Status, ...] = get_args(Status)

# Minimum confidence of a settled item; at 0.9, settled items of 3 of 12 data sets are less than 88 % correct
SETTLED_CONFIDENCE = 0.95
SETTLED_RELIABILITY = 0.9  # minimum reliability of a settled number
NEAR_LABEL_SHARE = 0.9  # share of the labels of numbers that count as close to the value
# Minimum number of annotators of a settled item; no other annotator confirms the labels of a single annotator
MIN_ANNOTATORS = 2
MAX_SPLIT_P_VALUE = 0.05  # maximum probability of so little agreement by errors alone for a split item
MIN_ANNOTATORS_SPLIT = 4  # minimum number of annotators of a split item
INTERVAL_WIDTH_IN_SDS = 3.92  # width of a 95 % interval in standard deviations
GOLD_STATUS_CODE = len(STATUSES)  # status code that reasons use for items with a gold class
# Maximum of n_items × n_classes per row for counting votes in an array; above it, votes are sorted
MAX_CLASS_CELLS_PER_ROW = 20


@dataclass(frozen=True, eq=False)
class ItemStatus:
    """The votes, status and reason of every item; texts are created when they are first used."""

    n_labels: IntArray  # (I,) number of labels
    status: IntArray  # (I,) code into `STATUSES`
    confidence: FloatArray  # (I,) confidence, which is compared with `threshold`
    classes: Names  # (K,)
    reasons: Callable[[slice], Any]  # returns the reasons of the items in a slice
    vote_counts: tuple[IntArray, IntArray, IntArray]  # classes, counts, pointers (I + 1,)
    threshold: float = SETTLED_CONFIDENCE

    @cached_property
    def votes(self) -> Any:
        """Return Arrow strings (I,) such as "cat 3, dog 1", with the most frequent class first."""
        codes, count, ptr = self.vote_counts
        names = pa.array([str(name) for name in self.classes], pa.string()).take(pa.array(codes))
        votes = pc.binary_join_element_wise(names, pc.cast(pa.array(count), pa.string()), " ")
        return pc.binary_join(pa.ListArray.from_arrays(pa.array(ptr, pa.int32()), votes), ", ")

    @cached_property
    def reason(self) -> Any:
        """Return the reason of each item as one clause, as Arrow strings (I,)."""
        reasons = self.reasons(slice(None))
        return reasons if isinstance(reasons, pa.Array) else pa.array(reasons, pa.string())

    def reason_of(self, item: int) -> str:
        """Return the reason of one item."""
        return str(self.reasons(slice(item, item + 1))[0])

    def counts(self) -> dict[Status, int]:
        """Return the number of items in each status."""
        return dict(zip(STATUSES, np.bincount(self.status, minlength=len(STATUSES)).tolist(), strict=True))

    def columns(self) -> dict[str, Any]:
        """Return the columns of a frame with one row per item."""
        status = pa.array(STATUSES).take(pa.array(self.status))
        return {"votes": self.votes, "labels": self.n_labels, "status": status, "reason": self.reason}

    def add_columns(self, frame: Any) -> Any:
        """Return an Arrow frame of the items with the status columns inserted after its answers."""
        names, columns = frame.column_names, self.columns()
        if "confidence" not in names:  # frames of numbers contain the number of labels already
            columns = {name: columns[name] for name in ("status", "reason")}
        first = names.index("confidence" if "confidence" in names else "high") + 1
        for position, (name, values) in enumerate(columns.items(), first):
            frame = frame.add_column(position, name, pa.array(values))
        return frame

    def sentence(self) -> str:
        """Return a sentence with the number of items in each status."""
        settled, look, split = map(Count, self.counts().values())
        return str(
            findings.StatusCounts(
                n_settled=settled, n_unsure=look, n_split=split, min_percent=100 * self.threshold,
                reliability=self.threshold != SETTLED_CONFIDENCE,                annotators=MIN_ANNOTATORS,
            )
        )  # fmt: skip


def is_settled(
    confidence: FloatArray, annotators: IntArray, gold: IntArray | None = None, threshold: float = SETTLED_CONFIDENCE
) -> BoolArray:
    """Return a mask of the settled items (I,).

    `annotators` (I,) is the number of annotators of each item; `gold` (I,) holds gold classes, −1 where unknown.
    """
    settled = (annotators >= MIN_ANNOTATORS) & (confidence >= threshold)
    return np.asarray(settled if gold is None else settled | (gold >= 0))


def measure_annotator_agreement(table: Annotations, right: BoolArray) -> FloatArray:
    """Return the share of correct labels of each annotator (A,), shrunk by `CROWD_PSEUDO_LABELS` average labels."""
    mean = right.mean() if right.size else 1.0
    hits = np.bincount(table.annotator, right, table.n_annotators) + CROWD_PSEUDO_LABELS * mean
    return np.asarray(hits / (np.diff(table.annotator_ptr) + CROWD_PSEUDO_LABELS))


def item_status(
    table: Annotations,
    label: IntArray,
    confidence: FloatArray,
    gold: IntArray | None = None,
    *,
    agreement: FloatArray | None = None,
) -> ItemStatus:
    """Return the status of the items of a table, given the label code (I,) and its probability (I,) of each item.

    `gold` (I,) holds the gold classes, −1 where unknown. Every row with a weight above 0 counts as one label.
    `agreement` (A,) is the result of `measure_annotator_agreement` for a larger table that contains this one.

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
    item, code, count, ptr = _count_votes(table)
    labels, correct = np.diff(table.item_ptr), table.label == label[table.item]
    labelled, supporting = labels > 0, np.bincount(table.item, correct, table.n_items)
    most, leader = np.zeros(table.n_items, np.int64), np.full(table.n_items, -1)
    most[labelled], leader[labelled] = count[ptr[:-1][labelled]], code[ptr[:-1][labelled]]
    tied, leaders = _find_ties(item, code, count, most)
    agreement = measure_annotator_agreement(table, correct) if agreement is None else agreement
    status, expected = _choose_status(table, most, agreement, is_settled(confidence, table.annotators_per_item, gold))

    overruled = np.where(labelled & (supporting < most), leader, -1)  # the most frequent label if it is not the answer
    shown = status if gold is None else np.where(gold >= 0, GOLD_STATUS_CODE, status)
    one_annotator = (table.annotators_per_item == 1) & (labels > 1)
    facts = np.array([shown, labels, most, tied, overruled + 1, np.where(status == 2, expected, 0), one_annotator])
    reasons = partial(_render_reasons, table.classes, leaders, facts)
    return ItemStatus(labels, status, confidence, table.classes, reasons, (code, count, ptr))


def _find_ties(item: IntArray, code: IntArray, count: IntArray, most: IntArray) -> tuple[IntArray, list[list[int]]]:
    """Return a number for each item (I,), and the lists of tied leading classes.

    The number is 1 + the index of the item's list, or 0 unless at least two classes with two or more labels are tied.
    """
    leads = count == most[item]
    n_leaders = np.bincount(item[leads], minlength=most.size)
    several = (n_leaders > 1) & (most > 1)
    codes = pc.cast(pa.array(code[leads & several[item]]), pa.string())
    ptr = pa.array(np.append(0, np.cumsum(n_leaders[several])), pa.int32())
    texts = pc.binary_join(pa.ListArray.from_arrays(ptr, codes), " ").dictionary_encode()
    tied = np.zeros(most.size, np.int64)
    tied[several] = texts.indices.to_numpy() + 1
    return tied, [[int(part) for part in text.split()] for text in texts.dictionary.to_pylist()]


def _count_votes(table: Annotations) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Return item, class and count of all votes with pointers (I + 1,); an item's most frequent class comes first."""
    n_cells, cell = table.n_items * table.n_classes, table.item.astype(np.int64) * table.n_classes + table.label
    if n_cells > MAX_CLASS_CELLS_PER_ROW * len(table):  # for example, if every text is a class
        cells, count = np.unique(cell, return_counts=True)
    else:
        all_counts = np.bincount(cell, minlength=n_cells)
        cells = np.flatnonzero(all_counts)
        count = all_counts[cells]
    item, code = np.divmod(cells, table.n_classes)
    order = np.lexsort((code, -count, item))
    return item, code[order], count[order], np.searchsorted(item, np.arange(table.n_items + 1))


def _choose_status(
    table: Annotations, most: IntArray, agreement: FloatArray, settled: BoolArray, check_agreement: bool = False
) -> tuple[IntArray, IntArray]:
    """Return the status (I,) and the usual number of labels that agree (I,).

    `most` (I,) is the number of labels that agree, and `agreement` (A,) the result of `measure_annotator_agreement`. If
    `check_agreement` is True, items with unusually little agreement are not settled.
    """
    labels, annotators = np.diff(table.item_ptr), table.annotators_per_item
    usual = np.bincount(table.item, agreement[table.annotator], table.n_items) / np.maximum(labels, 1)
    # Number of annotators who agree, in proportion to the labels
    agreeing = np.ceil(most * annotators / np.maximum(labels, 1))
    split = bdtr(agreeing, annotators, usual) <= MAX_SPLIT_P_VALUE
    settled = settled & ~(split & check_agreement)
    status = np.where(settled, 0, np.where(split & (annotators >= MIN_ANNOTATORS_SPLIT), 2, 1))
    return status.astype(np.int8), np.rint(usual * labels).astype(np.int64)


def status_by_model(model: Aggregator, table: Annotations, gold: Any = None) -> ItemStatus:
    """Return the status of the items of a table, given a model that was fitted to it or has scored it.

    `gold` (I,) holds the gold classes, −1 where unknown; for numbers, the gold values, NaN where unknown.
    """
    if table.kind == "numbers":
        return _status_of_numbers(model, table, gold)
    if table.kind not in ("sets", "objects", "pairs"):
        table = table.with_classes(model.classes_)
    label = naming.match_names(model.predict(), table.classes, "classes")
    return item_status(table, label, answer_probability(model, table), gold)


def answer_probability(model: Any, table: Annotations) -> FloatArray:
    """Return the probability that the answer of each item is correct (I,), for labels that are not numbers."""
    if table.kind in ("sets", "objects"):
        return np.asarray(model.confidence_)
    confidence = model.posterior_.max(axis=1, initial=0)
    if table.kind != "pairs":
        return np.asarray(confidence)
    # the posterior predicts another label, whereas the truth is which of the two scores is higher
    names = table.alternatives.names
    left, right = (naming.match_names(names, model.things_, "things")[side] for side in table.alternatives[1:])
    variance = model.score_variance_
    variance = variance[left, left] + variance[right, right] - 2 * variance[left, right]
    z = (model.scores_[left] - model.scores_[right]) / np.sqrt(np.maximum(variance, np.finfo(float).tiny))
    best = model.posterior_.argmax(axis=1)
    return np.asarray(np.where(best == 2, confidence, ndtr(np.where(best == 0, z, -z))))


def _status_of_numbers(model: Any, table: Annotations, gold: Any) -> ItemStatus:
    """Return the status of numbers, based on the 95 % interval of each value and on the labels close to the value."""
    table = table.positive_weight_rows
    values, labels = model.values_, np.diff(table.item_ptr)
    variance = (np.diff(model.interval_, axis=1)[:, 0] / INTERVAL_WIDTH_IN_SDS) ** 2
    total = values.var() + variance.mean() if values.size else 0.0  # variance of the true values
    reliability = np.maximum(1 - variance / total, 0) if total > 0 else np.ones(values.size)
    distance = np.abs(table.values[table.label] - values[table.item])
    near = distance <= np.quantile(distance, NEAR_LABEL_SHARE) if distance.size else distance < 0
    most = np.bincount(table.item, near, table.n_items).astype(np.int64)
    settled = is_settled(reliability, table.annotators_per_item, threshold=SETTLED_RELIABILITY)
    status, expected = _choose_status(
        table, most, measure_annotator_agreement(table, near), settled, check_agreement=True
    )
    shown = status if gold is None else np.where(np.isnan(gold), status, GOLD_STATUS_CODE)
    status = np.where(shown == GOLD_STATUS_CODE, 0, status).astype(np.int8)
    one_annotator = (table.annotators_per_item == 1) & (labels > 1)
    reasons = partial(_render_number_reasons, (labels, shown, most, expected, one_annotator), model.interval_)
    return ItemStatus(labels, status, reliability, table.classes, reasons, _count_votes(table)[1:], SETTLED_RELIABILITY)


def status_of_documents(model: Any, table: Annotations) -> tuple[Names, ItemStatus]:
    """Return the documents of a table of spans and their status, based on their readers and spans.

    The confidence is a lower bound, 1 minus the sum of the probabilities of all possible mistakes. These are 1 −
    P(span) for each span of the answer, and P(a span begins) for every other position that an annotator marked.
    """
    sequences, tags = table.sequences, model.tags_
    begins = [str(name).startswith("B-") for name in model.classes_.tolist()]
    marked = np.bincount(table.item, table.label != tags[table.item], tags.size) > 0
    missed = np.where(marked & (model.classes_[tags] == "O"), model.posterior_[:, begins].sum(axis=1), 0.0)
    wrong = 1 - np.nan_to_num(model.span_probability_, nan=1.0)
    confidence = np.maximum(1 - np.bincount(sequences.document, missed + wrong, sequences.documents.size), 0)
    readings = np.unique(sequences.document[table.item].astype(np.int64) * table.n_annotators + table.annotator)
    labels = np.bincount(readings // table.n_annotators, minlength=confidence.size)
    status = np.where(is_settled(confidence, labels), 0, 1).astype(np.int8)
    empty = np.empty(0, np.int64)
    no_votes = (empty, empty, np.zeros(confidence.size + 1, np.int64))
    reasons = partial(_render_document_reasons, labels, confidence)
    return sequences.documents, ItemStatus(labels, status, confidence, empty, reasons, no_votes)


# Reasons --------------------------------------------------------------------------------------------------------------


def _render_reasons(classes: Names, leaders: list[list[int]], facts: IntArray, chosen: slice) -> Any:
    """Render the reasons of the chosen items from facts (7, I); `leaders` lists the tied leading classes."""
    facts = facts[:, chosen]
    if facts.shape[1] == 1:
        return [str(_reason_from_votes(classes, leaders, *facts[:, 0].tolist()))]
    sizes = tuple(facts.max(axis=1, initial=0) + 1)
    key = np.ravel_multi_index(tuple(facts), sizes)  # one sort instead of seven
    _, first, index = np.unique(key, return_index=True, return_inverse=True)
    texts = [str(_reason_from_votes(classes, leaders, *row)) for row in facts[:, first].T.tolist()]
    return pa.array(texts, pa.string()).take(pa.array(index))


def _render_number_reasons(facts: tuple[IntArray, ...], interval: Any, chosen: slice) -> list[str]:
    texts = []
    rows = zip(*(fact[chosen].tolist() for fact in facts), interval[chosen].tolist(), strict=True)
    for n, status, near, usual, one_annotator, (low, high) in rows:
        if (reason := _reason_without_votes(status, n, one_annotator)) is None and status == 2:
            reason = findings.FewLabelsNearValue(near=near, labels=n, expected=usual)
        texts.append(str(reason or findings.ValueInterval(low=low, high=high)))
    return texts


def _render_document_reasons(labels: IntArray, confidence: FloatArray, chosen: slice) -> list[str]:
    rows = zip(labels[chosen].tolist(), confidence[chosen].tolist(), strict=True)
    return [str(findings.OneReader() if n == 1 else findings.SpanConfidence(percent=100 * p)) for n, p in rows]


def _reason_without_votes(status: int, labels: int, one_annotator: int) -> Message | None:
    """Return the reason of an item with a gold answer or with fewer than two annotators, else None."""
    if status == GOLD_STATUS_CODE:
        return findings.AnswerDecided()
    if labels < 2:
        return findings.OneLabel() if labels else findings.NoLabel()
    return findings.LabelsByOneAnnotator(labels=labels) if one_annotator else None


def _reason_from_votes(
    classes: Names, leaders: list[list[int]], status: int, labels: int, most: int, tied: int, overruled: int,
    expected: int, one_annotator: int,
) -> Message:  # fmt: skip
    """Return the reason for the status of an item.

    `tied` is 1 + the index of the item's tied classes in `leaders`, or 0 without a tie. `overruled` is 1 + the most
    frequent class if this class is not the answer, else 0. `one_annotator` is 1 if a single annotator gave all labels.
    """
    if labels == 1 and overruled and status != GOLD_STATUS_CODE:
        return findings.OnlyLabelDoubtful(label=classes[overruled - 1])
    if (reason := _reason_without_votes(status, labels, one_annotator)) is not None:
        return reason
    votes: dict[str, Any] = {"labels": labels, "is_settled": status == 0}
    if most == 1:
        return findings.LabelsDiffer(**votes)
    if status == 2:
        return findings.LessAgreementThanUsual(agree=most, labels=labels, expected=expected)
    if tied:
        return findings.LabelsTied(classes=tuple(classes[leaders[tied - 1]].tolist()), agree=most, **votes)
    if overruled:
        return findings.MajorityOverruled(label=classes[overruled - 1], agree=most, **votes)
    if most == labels:
        return findings.AllLabelsAgree(labels=labels, threshold=SETTLED_CONFIDENCE if status else None)
    return findings.SomeLabelsAgree(agree=most, labels=labels)
