"""What to do about each item: nothing (settled), look at it, or accept that people differ (truly split).

An item is *settled* where its class is known, or P(its label) ≥ `SETTLED` by `MIN_ANNOTATORS` people or more. 0.95 is
asked for so that nine of ten are right: the labels alone do not show how far people err alike (`benchmarks/trust`). Of
the others, one with n labels, of which m agree on the most frequent class, is *truly split* where so few would agree in
at most `MAX_CHANCE` of the cases if its annotators erred as often as they do elsewhere: P(Binomial(n, r) ≤ m) ≤
`MAX_CHANCE`, r the mean share of their labels that are the label of the item (each with `CROWD_LABELS` labels of
average quality added). Where people repeat themselves n is how many they are, and m their share of the labels that
agree. All others *need a look*: more labels, or an expert, would tell.

What stands for P(label) and for agreement where labels are no classes:

| kind | how sure | labels that agree |
|---|---|---|
| sets, objects | P(exactly this answer) | the same answer |
| pairs | P(the one that is said to be better has the higher score); P(tie) of a tie | the same outcome |
| numbers | reliability, 1 − variance of the value / variance of all true values | within the error of 90 % of labels |
| spans | of a document: P(every span is right, and none that somebody marked is missing), at least | never split |

A reliability of 0.9 is what Nunnally (Psychometric Theory, 2nd edition, 1978) asks for before single cases are decided
by a measure: the 95 % interval is then 0.32 times as wide as one without a label. The width of such an interval knows
nothing of how far apart the labels of its item lie, so numbers that are split, also by two labels, are not settled.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.special import bdtr, ndtr

from dissensus.common.formatting import word_list
from dissensus.common.types import BoolArray, FloatArray, IntArray, Names
from dissensus.models.confidence import CROWD_LABELS
from dissensus.table import names as naming

if TYPE_CHECKING:
    from collections.abc import Callable

    from dissensus.models.base import Aggregator
    from dissensus.table.annotations import Annotations

Status = Literal["settled", "needs a look", "truly split"]
STATUSES: tuple[Status, ...] = get_args(Status)

SETTLED = 0.95  # P(label) from which an item is settled; from 0.9 on, three sets of 12 are less than 88 % right
RELIABLE = 0.9  # reliability from which a number is settled
NEAR = 0.9  # share of the labels of numbers that lie within what is called near
MIN_ANNOTATORS = 2  # of an item that can be settled: what one says, however often, is not checked by anybody
MAX_CHANCE = 0.05  # that annotators who only err agree so little
MIN_ANNOTATORS_SPLIT = 4  # with fewer, an item is not called split
INTERVAL_SDS = 3.92  # standard deviations in a 95 % interval
DECIDED, DECIDED_REASON = len(STATUSES), "decided: its answer was given"  # in place of a status; of known items
ONE_ANNOTATOR = "{} labels, all by one annotator"
MAX_TIED = 3  # answers that are named where several lead; of more, only how many
MAX_CELLS_PER_ROW = 20  # items × classes beyond which votes are counted by sorting


@dataclass(frozen=True, eq=False)
class ItemStatus:
    """Votes, status and reason of every item; the texts are made when they are first asked for."""

    labels: IntArray  # (I,) number of labels
    status: IntArray  # (I,) code into STATUSES
    sure: FloatArray  # (I,) what is compared with `least`
    classes: Names  # (K,)
    reasons: Callable[[slice], Any]  # makes the reasons of some items
    given: tuple[IntArray, IntArray, IntArray]  # classes and counts of the votes, the most frequent first; (I + 1,)
    least: float = SETTLED

    @cached_property
    def votes(self) -> Any:
        """(I,) Arrow strings such as "cat 3, dog 1", the most frequent class first."""
        given, count, ptr = self.given
        names = pa.array([str(name) for name in self.classes], pa.string()).take(pa.array(given))
        each = pc.binary_join_element_wise(names, pc.cast(pa.array(count), pa.string()), " ")
        return pc.binary_join(pa.ListArray.from_arrays(pa.array(ptr, pa.int32()), each), ", ")

    @cached_property
    def reason(self) -> Any:
        """(I,) Arrow strings, a few words each."""
        found = self.reasons(slice(None))
        return found if isinstance(found, pa.Array) else pa.array(found, pa.string())

    def reason_of(self, item: int) -> str:
        """The reason of one item."""
        return str(self.reasons(slice(item, item + 1))[0])

    def counts(self) -> dict[Status, int]:
        """How many items have each status."""
        return dict(zip(STATUSES, np.bincount(self.status, minlength=len(STATUSES)).tolist(), strict=True))

    def columns(self) -> dict[str, Any]:
        """Columns of a frame, one row per item."""
        status = pa.array(STATUSES).take(pa.array(self.status))
        return {"votes": self.votes, "labels": self.labels, "status": status, "reason": self.reason}

    def beside(self, frame: Any) -> Any:
        """An Arrow frame of the items with these columns after what it says of each answer."""
        there, columns = frame.column_names, self.columns()
        if "confidence" not in there:  # numbers, whose labels are counted there
            columns = {name: columns[name] for name in ("status", "reason")}
        after = there.index("confidence" if "confidence" in there else "high") + 1
        for place, (name, values) in enumerate(columns.items(), after):
            frame = frame.add_column(place, name, pa.array(values))
        return frame

    def sentence(self) -> str:
        """How many items have each status, for people."""
        settled, look, split = self.counts().values()
        sure = "sure" if self.least == SETTLED else "reliable"
        rule = f"{100 * self.least:g} % {sure}, by {MIN_ANNOTATORS} annotators or more"
        return (
            f"{settled:,} {'item is' if settled == 1 else 'items are'} settled ({rule}), "
            f"{look:,} {'needs' if look == 1 else 'need'} a look, {split:,} {'is' if split == 1 else 'are'} truly "
            "split."
        )


def is_settled(
    confidence: FloatArray, annotators: IntArray, known: IntArray | None = None, least: float = SETTLED
) -> BoolArray:
    """(I,) which items are settled, by how many `annotators` labelled them; `known` (I,) has their class or −1."""
    given = (annotators >= MIN_ANNOTATORS) & (confidence >= least)
    return np.asarray(given if known is None else given | (known >= 0))


def usual_share(table: Annotations, right: BoolArray) -> FloatArray:
    """(A,) share of each annotator's labels that are right (N,); `CROWD_LABELS` are added."""
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
    weight, and none where that is 0. `share` (A,) is the `usual_share` of a larger table, of which this one is a part.

    >>> from dissensus.models.methods import MajorityVote
    >>> from dissensus.table.annotations import Annotations
    >>> table = Annotations.from_arrays("aaabb", "xyzxy", ["cat", "cat", "cat", "cat", "dog"])
    >>> found = status_of(MajorityVote().fit(table), table)
    >>> found.counts(), found.votes.to_pylist()
    ({'settled': 1, 'needs a look': 1, 'truly split': 0}, ['cat 3', 'cat 1, dog 1'])
    >>> found.reason.to_pylist()
    ['all 3 labels agree', '2 labels differ']
    """
    table = table.counted
    item, given, count, ptr = _votes_cast(table)
    labels, right = np.diff(table.item_ptr), table.label == label[table.item]
    some, own = labels > 0, np.bincount(table.item, right, table.n_items)
    agree, top = np.zeros(table.n_items, np.int64), np.full(table.n_items, -1)
    agree[some], top[some] = count[ptr[:-1][some]], given[ptr[:-1][some]]
    tied, leaders = _tied(item, given, count, agree)
    share = usual_share(table, right) if share is None else share
    status, expected = _judged(table, agree, share, is_settled(confidence, table.ratings_per_item, known))

    overruled = np.where(some & (own < agree), top, -1)  # the method's label is not the most frequent one
    told = status if known is None else np.where(known >= 0, DECIDED, status)
    alone = (table.ratings_per_item == 1) & (labels > 1)
    facts = np.array([told, labels, agree, tied, overruled + 1, np.where(status == 2, expected, 0), alone])
    return ItemStatus(labels, status, confidence, table.classes, partial(_reasons, table.classes, leaders, facts),
                      (given, count, ptr))  # fmt: skip


def _tied(item: IntArray, given: IntArray, count: IntArray, agree: IntArray) -> tuple[IntArray, list[list[int]]]:
    """(I,) 1 + place in a list of the classes that lead together, by two labels or more each; 0 elsewhere."""
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
    """Item, label and count of all labels given, the most frequent of an item first; (I + 1,) where each item's are."""
    cells, key = table.n_items * table.n_classes, table.item.astype(np.int64) * table.n_classes + table.label
    if cells > MAX_CELLS_PER_ROW * len(table):  # every text that somebody wrote may be a class
        pair, count = np.unique(key, return_counts=True)
    else:
        given_to = np.bincount(key, minlength=cells)
        pair = np.flatnonzero(given_to)
        count = given_to[pair]
    item, given = np.divmod(pair, table.n_classes)
    order = np.lexsort((given, -count, item))
    return item, given[order], count[order], np.searchsorted(item, np.arange(table.n_items + 1))


def _judged(
    table: Annotations, agree: IntArray, share: FloatArray, settled: BoolArray, unless_apart: bool = False
) -> tuple[IntArray, IntArray]:
    """(I,) the status, where so many labels agree; (I,) how many usually would, by the `share` (A,) of annotators.

    `unless_apart`: items whose labels hardly ever agree so little are not settled.
    """
    labels, people = np.diff(table.item_ptr), table.ratings_per_item
    usual = np.bincount(table.item, share[table.annotator], table.n_items) / np.maximum(labels, 1)
    together = np.ceil(agree * people / np.maximum(labels, 1))  # as many people as their share of the labels
    apart = bdtr(together, people, usual) <= MAX_CHANCE
    settled = settled & ~(apart & unless_apart)
    status = np.where(settled, 0, np.where(apart & (people >= MIN_ANNOTATORS_SPLIT), 2, 1))
    return status.astype(np.int8), np.rint(usual * labels).astype(np.int64)


def status_of(model: Aggregator, table: Annotations, known: Any = None) -> ItemStatus:
    """Status of the items of a table, by a model that was fitted to it or that scored it.

    `known` (I,) has their class, −1 where it is not known; of numbers their value, NaN where it is not known.
    """
    if table.kind == "numbers":
        return _status_of_numbers(model, table, known)
    if table.kind not in ("sets", "objects", "pairs"):
        table = table.to_classes(model.classes_)
    label = naming.match(model.predict(), table.classes, "classes")
    return item_status(table, label, how_sure(model, table), known)


def how_sure(model: Any, table: Annotations) -> FloatArray:
    """(I,) P(the answer is right), of labels that are no numbers."""
    if table.kind in ("sets", "objects"):
        return np.asarray(model.confidence_)
    sure = model.posterior_.max(axis=1, initial=0)
    if table.kind != "pairs":
        return np.asarray(sure)
    # what one more annotator would say is no truth; which of two scores is higher is
    left, right = (naming.match(table.sides.things, model.things_, "things")[side] for side in table.sides[1:])
    variance = model.score_variance_
    spread = variance[left, left] + variance[right, right] - 2 * variance[left, right]
    apart = (model.scores_[left] - model.scores_[right]) / np.sqrt(np.maximum(spread, np.finfo(float).tiny))
    best = model.posterior_.argmax(axis=1)
    return np.asarray(np.where(best == 2, sure, ndtr(np.where(best == 0, apart, -apart))))


def _status_of_numbers(model: Any, table: Annotations, known: Any) -> ItemStatus:
    """Status by the 95 % interval of each value, and by how many labels lie close to it."""
    table = table.counted
    values, labels = model.values_, np.diff(table.item_ptr)
    variance = (np.diff(model.interval_, axis=1)[:, 0] / INTERVAL_SDS) ** 2
    total = values.var() + variance.mean() if values.size else 0.0  # of the true values: of their means, and within
    sure = np.maximum(1 - variance / total, 0) if total > 0 else np.ones(values.size)
    away = np.abs(table.values[table.label] - values[table.item])
    near = away <= np.quantile(away, NEAR) if away.size else away < 0
    agree = np.bincount(table.item, near, table.n_items).astype(np.int64)
    # the interval is as wide where labels lie far apart, so that has to be asked too
    settled = is_settled(sure, table.ratings_per_item, least=RELIABLE)
    status, expected = _judged(table, agree, usual_share(table, near), settled, unless_apart=True)
    told = status if known is None else np.where(np.isnan(known), status, DECIDED)
    status = np.where(told == DECIDED, 0, status).astype(np.int8)
    alone = (table.ratings_per_item == 1) & (labels > 1)
    reasons = partial(_number_reasons, (labels, told, agree, expected, alone), model.interval_)
    return ItemStatus(labels, status, sure, table.classes, reasons, _votes_cast(table)[1:], RELIABLE)


def status_of_documents(model: Any, table: Annotations) -> tuple[Names, ItemStatus]:
    """The documents of a table of spans, and the status of each by its readers and its spans.

    Doubts add up: 1 − P(span) of the answer's spans, and P(a span begins) wherever else somebody marked something.
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
    """Texts, from facts (7, I); `leaders` are the classes that lead together."""
    facts = facts[:, some]
    if facts.shape[1] == 1:
        return [_reason(classes, leaders, *facts[:, 0].tolist())]
    sizes = tuple(facts.max(axis=1, initial=0) + 1)
    key = np.ravel_multi_index(tuple(facts), sizes)  # one sort instead of seven
    _, at, place = np.unique(key, return_index=True, return_inverse=True)
    texts = pa.array([_reason(classes, leaders, *row) for row in facts[:, at].T.tolist()], pa.string())
    return texts.take(pa.array(place))


def _number_reasons(facts: tuple[IntArray, ...], interval: Any, some: slice) -> Any:
    found = []
    for n, code, near, usual, alone, (low, high) in zip(
        *(fact[some] for fact in facts), interval[some].tolist(), strict=True
    ):
        said = f"between {low:.4g} and {high:.4g} (95 %)"
        if code == 2:
            said = f"{near} of {n} labels lie close to the value where {usual} usually would"
        said = "no label" if n == 0 else "only 1 label" if n == 1 else ONE_ANNOTATOR.format(n) if alone else said
        found.append(DECIDED_REASON if code == DECIDED else said)
    return found


def _document_reasons(labels: IntArray, least: FloatArray, some: slice) -> Any:
    said = [f"exactly these spans are right with {100 * sure:.0f} %" for sure in least[some].tolist()]
    return ["only 1 reader" if n == 1 else one for n, one in zip(labels[some], said, strict=True)]


def _reason(
    classes: Names,
    leaders: list[list[int]],
    status: int,
    labels: int,
    agree: int,
    tied: int,
    most_: int,
    expected: int,
    alone: int,
) -> str:
    """Say in a few words why an item has its status.

    `tied` is 1 + which of the `leaders` it has, `most_` 1 + the most frequent class if it is not the answer; or 0.
    `alone` says that one annotator gave all labels.
    """
    most = naming.shown(classes[most_ - 1]) if most_ else ""
    if status == DECIDED:
        return DECIDED_REASON
    if labels == 0:
        return "no label"
    if labels == 1:
        return f"the only label, {most}, is doubted" if most else "only 1 label"
    if alone:
        return ONE_ANNOTATOR.format(labels)
    weighed = "" if status else ", weighed by who gave them"  # why the item is settled all the same
    if agree == 1:
        return f"{labels} labels differ{weighed}"
    if status == 2:
        return f"{agree} of {labels} labels agree where {expected} usually would"
    if tied:
        named = [naming.shown(classes[code]) for code in leaders[tied - 1]]
        answers = word_list(named) if len(named) <= MAX_TIED else f"{len(named)} answers"
        return f"{answers} are tied, {agree} labels each{weighed}"
    if most:
        return f"{'most' if 2 * agree > labels else 'more'} labels ({agree} of {labels}) say {most}{weighed}"
    if agree == labels:
        doubt = "" if status == 0 else f", yet below {100 * SETTLED:g} % sure"
        return f"{'both' if labels == 2 else f'all {labels}'} labels agree{doubt}"
    return f"{agree} of {labels} labels agree"
