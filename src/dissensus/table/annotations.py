"""The one table: which annotator gave which label to which item.

Names become integer codes once, here; every method works on the codes. Rows are sorted by (item, annotator, label), so
that the order of a file never changes a result. Two indexes make both directions fast: `item_ptr` (rows by item) and
`annotator_ptr` with `by_annotator` (rows by annotator, built on first use).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal
from warnings import warn

import numpy as np
import pyarrow as pa

from dissensus.common.arrays import (
    ReadOnlyArrays,
    fill_masked,
    group_offsets,
    is_first_of_pair,
    make_read_only,
    random_ranks_within_groups,
    sum_ranges,
)
from dissensus.common.parameters import check_argument
from dissensus.common.types import BoolArray, FloatArray, IntArray, Names
from dissensus.messages import quote_name
from dissensus.table import describe, kernels, kinds
from dissensus.table import exceptions as errors
from dissensus.table import names as naming
from dissensus.table.find_columns import ColumnNames, column_names
from dissensus.table.import_report import ImportReport
from dissensus.table.spans import Sequences, convert_spans_to_tags, parse_sequences

MIN_COUNTED_ROWS = 10**6  # rows that `from_counts` always accepts
MAX_ROWS_PER_COUNT = 1_000  # mean number of rows per count above `MIN_COUNTED_ROWS`
ANONYMOUS_ANNOTATOR = "anonymous"
"""The one annotator of a table made from counts: votes without ids share one confusion matrix."""


class NamedSizes:
    """Sizes of anything with names of items, annotators and classes."""

    items: Any
    annotators: Any
    classes: Any

    @property
    def n_items(self) -> int:
        """Return I, the number of items."""
        return int(self.items.size)

    @property
    def n_annotators(self) -> int:
        """Return A, the number of annotators."""
        return int(self.annotators.size)

    @property
    def n_classes(self) -> int:
        """Return K, the number of classes."""
        return int(self.classes.size)


@dataclass(frozen=True, eq=False, repr=False)
class Annotations(ReadOnlyArrays, NamedSizes):
    """Labels of items by annotators: rows sorted by (item, annotator, label), every array read-only.

    Make one with `from_arrays`, `from_frame`, `from_matrix`, `from_counts` or `dissensus.read`.

    >>> import numpy as np
    >>> from dissensus import Annotations
    >>> table = Annotations.from_arrays(["a", "a", "b", "b"], ["x", "y", "x", "y"], ["cat", "dog", "cat", "cat"])
    >>> table.n_annotations, table.n_items, table.n_annotators, table.n_classes
    (4, 2, 2, 2)
    >>> table.votes().tolist(), table.soft_labels()[0].tolist(), table.annotations_per_annotator.tolist()
    ([[1.0, 1.0], [2.0, 0.0]], [0.5, 0.5], [2, 2])
    >>> [part.n_annotations for part in (table.select(items=["a"]), table.subsample(1), *table.split(0.5))]
    [2, 2, 2, 2]
    >>> table.gold_codes(["a"], ["dog"]).tolist(), table.count_correct_labels(table.soft_labels())
    ([1, -1], (array([1.5, 1.5]), array([2., 2.])))
    >>> Annotations.concat([table, Annotations.from_arrays(["c"], ["z"], ["eel"])])
    Annotations: 5 annotations of 3 items by 3 annotators, 3 classes (cat, dog, eel), 1.7 per item
    >>> same = [Annotations.from_frame(table.to_arrow()), Annotations.from_matrix([["cat", "dog"], ["cat", "cat"]])]
    >>> [other.n_annotations for other in same], table.with_classes(np.array(["cat", "dog", "eel"])).n_classes
    ([4, 4], 3)
    >>> table.describe()["annotations"]
    4
    >>> Annotations.from_counts(["a", "b"], ["cat", "dog"], [3, 1]).n_annotations
    4
    >>> scores = Annotations.from_arrays(["a", "b"], ["x", "x"], [1.5, 2.5], kind="numbers")
    >>> scores.values.tolist(), scores.gold_values(["b"], [2.0]).tolist()
    ([1.5, 2.5], [nan, 2.0])
    >>> names = table.items, table.annotators, table.classes
    >>> Annotations.from_codes(table.item, table.annotator, table.label, *names).n_items
    2
    >>> table.rating_codes.tolist(), table.annotators_per_item.tolist()
    ([0, 1, 2, 3], [2, 2])
    >>> table.by_annotator.tolist(), table.annotator_ptr.tolist()
    ([0, 2, 1, 3], [0, 2, 4])
    >>> Annotations.from_arrays(["a"], ["x"], ["red|round"], kind="sets").options.names.tolist()
    ['red', 'round']
    >>> Annotations.from_pairs(["a"], ["b"], ["left"]).alternatives.names.tolist()
    ['a', 'b']
    >>> Annotations.from_spans(["d"], ["x"], [0], [2], ["PER"], tokens={"d": 4}).sequences.documents.tolist()
    ['d']
    """

    import_report: ClassVar[ImportReport | None] = (
        None  # the import report of `read`; tables derived from this one have none
    )

    annotator: IntArray  # (N,) code into annotators
    label: IntArray  # (N,) code into classes, in the smallest integer type that holds them
    item_ptr: IntArray  # (I+1,) rows of item i are item_ptr[i]:item_ptr[i+1]
    items: Names  # (I,) sorted; may hold items without a label
    annotators: Names  # (A,) sorted; may hold annotators without a label
    classes: Names  # (K,) sorted, or in the order that the caller declares
    weight: FloatArray | None = None  # (N,)
    proba: FloatArray | None = None  # (N, K) a distribution instead of a label; `label` is then its arg max
    kind: str = "classes"  # how to read `classes`, see `table.kinds`

    def __post_init__(self) -> None:
        """Check every code, also of unpickled tables: kernels read only checked tables."""
        super().__post_init__()
        n, ptr = self.n_annotations, self.item_ptr
        naming.check_codes(ptr, n + 1, "item_ptr")
        if ptr.size != self.n_items + 1 or ptr[0] != 0 or ptr[-1] != n or (ptr[1:] < ptr[:-1]).any():
            raise errors.InvalidIndex(n_rows=n, n_items=self.n_items)
        _check_columns(n, self.annotator, self.label, self.n_annotators, self.n_classes, self.weight, self.proba)
        kinds.check_kind(self.kind)
        if self.proba is not None:
            kinds.check_kind(self.kind, kinds.CLASS_KINDS, "proba")

    # Creating a table -------------------------------------------------------------------------------------------------

    @classmethod
    def from_arrays(
        cls,
        item: Any,
        annotator: Any,
        label: Any = None,
        classes: Iterable[Any] | int | None = None,
        *,
        weight: Any = None,
        proba: Any = None,
        abstain: Any = (),
        items: Any = None,
        annotators: Any = None,
        kind: str = "classes",
    ) -> Annotations:
        """Make a table from three columns of names or codes, one entry per annotation.

        Parameters
        ----------
        item, annotator, label : arrays of length N
            Integers, text, or (labels) truth values. `label` may be left out where `proba` is given.
        classes : list of names, or their number, optional
            The classes, in this order. Integer labels with declared text classes are codes into them. Left out, the
            classes are the distinct labels, sorted.
        weight : (N,), optional
            How much each row counts; not negative.
        proba : (N, K), or class → (N,), optional
            A distribution over the classes instead of one label; rows sum to one. `label` is then ignored.
        abstain : a label or a list of labels, optional
            Answers such as "can't say", which are not a class. `None` in the list stands for a missing label. Their
            rows are excluded; their items and annotators stay.
        items, annotators : lists of names, optional
            All items or annotators, when some have no annotation.
        kind : "classes", "graded", "numbers", "pairs", "sets", "spans" or "objects"
            The label type, see `table.kinds`. Several rows of an item and annotator are one set.

        >>> table = Annotations.from_arrays(["a", "a", "b"], ["x", "y", "x"], [1, 0, 1])
        >>> table
        Annotations: 3 annotations of 2 items by 2 annotators, 2 classes (0, 1), 1.5 per item
        >>> table.votes()
        array([[1., 1.],
               [0., 1.]])
        """
        if label is None and proba is None:
            raise errors.NoLabels
        if proba is not None and naming.list_abstentions(abstain):
            raise errors.AbstainWithProba
        given = {"item": item, "annotator": annotator, "label": label}
        columns: dict[str, Any] = {n: naming.to_column(c, n) for n, c in given.items() if c is not None or n != "label"}
        keep: BoolArray | None = None
        if proba is not None:
            class_names, proba = naming.encode_proba(proba, classes)
            label_code = proba.argmax(axis=1)
        weight = None if weight is None else naming.check_weight(weight)
        n = len(columns["item"])
        for name, other in (*columns.items(), ("weight", weight), ("proba", proba)):
            if other is not None and len(other) != n:
                raise errors.UnequalLengths(column=name, n=len(other), other="item", n_other=n)
        item_names, item_code = naming.encode_names(columns["item"], "item", items)
        annotator_names, annotator_code = naming.encode_names(columns["annotator"], "annotator", annotators)
        if proba is None:
            class_names, label_code, keep = naming.encode_labels(columns["label"], classes, abstain)
        if keep is not None:
            item_code, annotator_code = item_code[keep], annotator_code[keep]
            weight = None if weight is None else weight[keep]
        table = cls.from_codes(
            item_code, annotator_code, label_code, item_names, annotator_names, class_names, weight=weight, proba=proba
        )
        return table.as_kind(kind, ordered=classes is not None)

    @classmethod
    def from_codes(
        cls,
        item: IntArray,
        annotator: IntArray,
        label: IntArray,
        items: Names,
        annotators: Names,
        classes: Names,
        *,
        weight: FloatArray | None = None,
        proba: FloatArray | None = None,
        kind: str = "classes",
    ) -> Annotations:
        """Make a table from codes in any row order; names must be sorted.

        `item`, `annotator` and `label` are (N,) codes into `items`, `annotators` and `classes`; `weight` (N,) and
        `proba` (N, K) belong to the rows; `kind` is one of `table.kinds`.
        """
        naming.check_codes(item, len(items), "item")
        _check_columns(len(item), annotator, label, len(annotators), len(classes), weight, proba)
        item, annotator = np.asarray(item, np.int32), np.asarray(annotator, np.int32)
        label = np.asarray(label).astype(naming.smallest_int_type(len(classes)), copy=False)
        ptr = group_offsets(item, len(items))
        plain = weight is None and proba is None
        if plain and kernels.is_sorted(item, annotator, label):
            annotator, label = annotator.copy(), label.copy()  # the caller may change its own arrays later
        elif plain and item.size >= kernels.MIN_ROWS_TO_COMPILE:
            annotator, label = kernels.sort_rows(item, annotator, label, ptr, len(classes))
        else:  # rows with the same codes are sorted by weight, so that no sum depends on the order of rows
            keys = [] if proba is None else list(proba.T)
            order = np.lexsort((*keys, *([] if weight is None else [weight]), label, annotator, item))
            annotator, label = annotator[order], label[order]
            weight = None if weight is None else weight[order]
            proba = None if proba is None else np.ascontiguousarray(proba[order])
        return cls(annotator, label, ptr, items, annotators, classes, weight, proba, kind)

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        item: str | None = None,
        annotator: str | None = None,
        label: str | None = None,
        *,
        weight: str | None = None,
        proba: Mapping[Any, str] | Sequence[str] | None = None,
        classes: Iterable[Any] | int | None = None,
        abstain: Any = (),
        kind: str = "classes",
    ) -> Annotations:
        """Make a table from a pandas, polars or DuckDB frame or an Arrow table, one row per annotation.

        Columns are found by name, or by the usual other names (task, worker, answer, …); `item`, `annotator`, `label`
        and `weight` name them otherwise. `proba` names the columns with each class's probability (class → column, or a
        list of columns `p_<class>`), which are also found in a frame with columns `p_…` and no label column. `classes`,
        `abstain` and `kind` are those of `from_arrays`.
        """
        named = ColumnNames(item, annotator, label, weight=weight, proba=proba)
        if question := named.resolve(column_names(frame)).get("question"):
            raise errors.SeveralQuestions(column=question)
        return cls.from_arrays(**named.read_arrays(frame), classes=classes, abstain=abstain, kind=kind)

    @classmethod
    def from_matrix(
        cls,
        matrix: Any,
        *,
        missing: Any = ...,
        items: Any = None,
        annotators: Any = None,
        classes: Iterable[Any] | int | None = None,
        kind: str = "classes",
    ) -> Annotations:
        """Make a table from an items × annotators matrix of labels.

        Cells equal to `missing` (by default −1, unless labels are numbers), NaN, None and masked cells are empty. The
        columns of a frame name the annotators and (pandas) its index the items, unless names are given.
        """
        found = naming.encode_matrix(matrix, missing, items, annotators, kind == "numbers")
        return cls.from_arrays(**found, classes=classes, kind=kind)

    @classmethod
    def from_pairs(
        cls, left: Any, right: Any, winner: Any, annotator: Any = None, *, context: Any = None, weight: Any = None
    ) -> Annotations:
        """Make a table from comparisons: two alternatives, which is better ("left", "right", "tie"), and by whom.

        The same two alternatives in another `context`, such as a prompt, are another item. The default annotator is
        "anonymous".

        >>> Annotations.from_pairs(["a", "b"], ["b", "c"], ["left", "tie"])
        Annotations: 2 comparisons of 3 things (a, b, c) in 2 items by 1 annotator, 1.0 per item
        """
        item = kinds.name_pair_items(left, right, context)
        annotator = [ANONYMOUS_ANNOTATOR] * len(item) if annotator is None else annotator
        return cls.from_arrays(item, annotator, winner, weight=weight, kind="pairs")

    @classmethod
    def from_spans(
        cls,
        document: Any,
        annotator: Any,
        start: Any,
        end: Any,
        label: Any,
        *,
        readings: Iterable[tuple[Any, Any]] = (),
        texts: Mapping[Any, str] | None = None,
        tokens: Mapping[Any, int] | None = None,
    ) -> Annotations:
        """Make a table from spans, one entry each: `start` to `end` (exclusive), in characters or tokens.

        `readings` are the (document, annotator) pairs of annotators who read a document: what they did not mark has the
        tag O. `texts` (document → text) cuts documents into words; with `tokens` (document → number) offsets count
        tokens; otherwise a document is cut where spans begin and end. Spans of one annotator that overlap an earlier
        one are excluded, with a warning.

        >>> Annotations.from_spans(["d", "d"], ["x", "y"], [0, 0], [2, 1], ["PER", "PER"], tokens={"d": 4})
        Annotations: 8 tags of 4 items by 2 annotators, 3 classes (B-PER, I-PER, O), 2.0 per item
        """
        rows = convert_spans_to_tags(
            {"": zip(document, annotator, start, end, label, strict=True)}, readings, texts, tokens
        )
        if rows.n_overlapping or rows.n_empty:
            warn(errors.SpansExcluded(n_overlapping=rows.n_overlapping, n_empty=rows.n_empty), stacklevel=2)
        return cls.from_arrays(rows.item, rows.annotator, rows.label, kind="spans")

    @classmethod
    def from_counts(
        cls, item: Any, label: Any, count: Any, classes: Iterable[Any] | int | None = None, *, items: Any = None
    ) -> Annotations:
        """Make a table from vote counts without annotator ids: `count` rows each, by one annotator, "anonymous".

        `item`, `label` and `count` are equally long; `classes` and `items` are those of `from_arrays`.
        """
        counts = naming.to_floats(count, "count")
        for name, column in (("item", item), ("label", label)):
            if len(column) != len(counts):
                raise errors.UnequalLengths(column="count", n=len(counts), other=name, n_other=len(column))
        bad = ~np.isfinite(counts) | (counts < 0) | (counts != np.floor(counts))
        if bad.any():
            raise errors.InvalidRows.among("column 'count'", bad, counts, problem="are not whole numbers of at least 0")
        limit = max(MIN_COUNTED_ROWS, MAX_ROWS_PER_COUNT * counts.size)
        if counts.sum() > limit:
            raise errors.TooManyVotes(n_votes=float(counts.sum()), limit=limit)
        times = counts.astype(np.int64)
        item_names, item_code = naming.encode_names(naming.to_column(item, "item"), "item", items)
        class_names, label_code, _ = naming.encode_labels(naming.to_column(label, "label"), classes, ())
        return cls.from_codes(
            np.repeat(item_code, times), np.zeros(times.sum(), np.int32), np.repeat(label_code, times),
            item_names, np.array([ANONYMOUS_ANNOTATOR], object), class_names,
        )  # fmt: skip

    # Reading a table --------------------------------------------------------------------------------------------------

    @property
    def n_annotations(self) -> int:
        """Return N, the number of rows."""
        return int(self.annotator.size)

    def __len__(self) -> int:
        return self.n_annotations

    @property
    def values(self) -> FloatArray:
        """Return (K,) the values of the classes: their numbers, or ranks from 0 of grades without; others have none."""
        values = kinds.class_values(self.kind, self.classes)
        if values is None:
            raise errors.NoLabelValues(kind=self.kind)
        return values

    @cached_property
    def alternatives(self) -> kinds.Alternatives:
        """Return the two alternatives that every item of a table of pairs compares."""
        kinds.check_kind(self.kind, ("pairs",), "sides")
        return kinds.parse_alternatives(self.items)

    @cached_property
    def options(self) -> kinds.SetOptions:
        """Return the options of a table of sets."""
        kinds.check_kind(self.kind, ("sets",), "options")
        return kinds.parse_options(self.classes)

    @cached_property
    def item(self) -> IntArray:
        """Return (N,) code into items."""
        return make_read_only(np.repeat(np.arange(self.n_items, dtype=np.int32), np.diff(self.item_ptr)))

    @property
    def row_weights(self) -> FloatArray:
        """Return (N,) the weight of every row: 1 without `weight`."""
        return np.ones(len(self)) if self.weight is None else self.weight

    @cached_property
    def annotator_ptr(self) -> IntArray:
        """Return (A+1,): the rows of annotator a are by_annotator[annotator_ptr[a]:annotator_ptr[a+1]]."""
        return make_read_only(group_offsets(self.annotator, self.n_annotators))

    @cached_property
    def by_annotator(self) -> IntArray:
        """Return (N,) row numbers in annotator order."""
        return make_read_only(kernels.group_rows(self.annotator, self.annotator_ptr))

    @cached_property
    def sequences(self) -> Sequences:
        """Return the places of the items of spans, and their order, see `table.spans`."""
        kinds.check_kind(self.kind, ("spans",), "sequences")
        return parse_sequences(self.items)

    @property
    def annotations_per_annotator(self) -> IntArray:
        """Return (A,) the number of annotations of each annotator."""
        return np.diff(self.annotator_ptr)

    @property
    def rating_codes(self) -> IntArray:
        """Return (N,) the number of each row's rating: all labels of one item by one annotator.

        Votes without annotator ids are a rating each.
        """
        return np.cumsum(is_first_of_pair(self.item, self.annotator)) - 1 if self.has_repeats else np.arange(len(self))

    @cached_property
    def has_repeats(self) -> bool:
        """Return True if an annotator has several rows of one item.

        >>> Annotations.from_arrays([1, 1], ["ann", "ann"], ["x", "y"]).has_repeats
        True
        """
        anonymous = self.n_annotators == 1 and self.annotators[0] == ANONYMOUS_ANNOTATOR
        return not anonymous and not bool(is_first_of_pair(self.item, self.annotator).all())

    @cached_property
    def annotators_per_item(self) -> IntArray:
        """Return (I,) the number of annotators of each item; for votes without ids, the number of votes.

        Rows of weight 0 do not count.
        """
        counted = self.row_weights > 0
        first = np.diff(self.rating_codes[counted], prepend=-1) > 0  # rows of a rating stand together
        return make_read_only(np.bincount(self.item[counted][first], minlength=self.n_items))

    @property
    def positive_weight_rows(self) -> Annotations:
        """Return the table without its rows of weight 0.

        >>> len(Annotations.from_arrays([1, 1], ["ann", "ben"], ["x", "y"], weight=[1, 0]).positive_weight_rows)
        1
        """
        return self if self.weight is None else self.select(rows=self.weight > 0)

    @property
    def deduplicated(self) -> Annotations:
        """Return the table with repeats weighted down: an annotator's rows of an item weigh 1 together.

        A row that weighs more by itself sets the limit; rows that weigh less together keep their weights.

        >>> Annotations.from_arrays([1, 1], ["ann", "ann"], ["x", "y"]).deduplicated.weight.tolist()
        [0.5, 0.5]
        """
        if not self.has_repeats:
            return self
        rating, weight = self.rating_codes, self.row_weights
        most = np.ones(rating[-1] + 1)
        np.maximum.at(most, rating, weight)
        return replace(self, weight=weight * (most / np.maximum(np.bincount(rating, weight), most))[rating])

    def votes(self) -> FloatArray:
        """Return (I, K) the number of labels of each item in each class, weighted."""
        if self.kind == "numbers":
            raise errors.NumbersHaveNoVotes
        if self.proba is not None:
            return sum_ranges(self.proba if self.weight is None else self.weight[:, None] * self.proba, self.item_ptr)
        cell = self.item * np.int64(self.n_classes) + self.label
        votes = np.bincount(cell, self.weight, self.n_items * self.n_classes)
        return votes.reshape(self.n_items, self.n_classes).astype(np.float64)

    def count_correct_labels(self, posterior: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return (A,) the weight of each annotator's labels that are right by a posterior (I, K), and of all labels."""
        if self.proba is None:
            right = posterior[self.item, self.label]
        else:
            right = (self.proba * posterior[self.item]).sum(axis=1)
        weights = self.row_weights * right, self.row_weights
        hits, total = (np.bincount(self.annotator, w, self.n_annotators) for w in weights)
        return hits.astype(np.float64), total.astype(np.float64)  # bincount returns ints when the input is empty

    def soft_labels(
        self,
        kind: Literal["normalized", "softmax", "smoothed"] = "normalized",
        *,
        temperature: float = 1.0,
        pseudocount: float = 1.0,
    ) -> FloatArray:
        """Return (I, K) the votes as a distribution.

        `normalized`: shares of the votes. `softmax`: softmax(votes / temperature) of the raw counts, which leaves no
        class at zero (Fornaciari et al. 2021). `smoothed`: shares after adding `pseudocount` to every class. An item
        without votes is uniform.
        """
        check_argument("kind", kind, Literal["normalized", "softmax", "smoothed"])
        votes = self.votes()
        if kind == "softmax":
            check_argument("temperature", temperature, float, above=0)
            votes = np.exp((votes - votes.max(axis=1, keepdims=True, initial=0)) / temperature)
        elif kind == "smoothed":
            check_argument("pseudocount", pseudocount, float, above=0)
            votes = votes + pseudocount
        total = votes.sum(axis=1, keepdims=True)
        return np.where(total > 0, votes / np.where(total > 0, total, 1), 1 / max(self.n_classes, 1))

    def describe(self) -> dict[str, Any]:
        """Count rows, balance, redundancy and raw agreement, as plain values for a table or JSON."""
        return describe.count_table(self)

    def to_arrow(self) -> Any:
        """Make an Arrow table with columns item, annotator, label (and weight, p_<class>), names instead of codes."""
        columns = {
            "item": self.items[self.item],
            "annotator": self.annotators[self.annotator],
            "label": self.classes[self.label],
        }
        if self.weight is not None:
            columns["weight"] = self.weight
        if self.proba is not None:
            columns |= {f"p_{name}": self.proba[:, k] for k, name in enumerate(self.classes)}
        return pa.table(columns)

    def gold_codes(self, item: Any, label: Any) -> IntArray:
        """Return (I,) class codes of gold labels, aligned with `items`; −1 for items without one.

        Rows without a label and items that are not in the table are ignored.
        """
        label = naming.to_arrow_array(label, "label")
        rows = np.flatnonzero(~naming.missing_rows(label))
        names, code = naming.encode_column(naming.to_column(label.take(rows), "label"), "label")
        if self.kind == "sets":
            names, place = kinds.build_vocabulary("sets", names)
            code = place[code]
        known = naming.translate_codes(code, names, self.classes, "gold labels")
        if (known < 0).any():
            raise errors.BadGoldLabels.among(
                "gold", known < 0, names[code], rows, n_classes=self.n_classes, kind=self.kind
            )
        codes: IntArray = self._align_gold(item, rows, known, np.full(self.n_items, -1, np.int32), "labels")
        return codes

    def with_added_classes(self, labels: Any) -> Annotations:
        """Return the same rows with more classes after the others: labels without annotations, such as sets in gold.

        >>> table = Annotations.from_arrays([1, 1], ["x", "y"], ["a", "b"], kind="sets")
        >>> table.with_added_classes(["b, a"]).classes.tolist()
        ['a', 'b', 'a|b']
        """
        column = naming.to_arrow_array(labels, "label")
        names, _ = naming.encode_column(column.take(np.flatnonzero(~naming.missing_rows(column))), "label")
        if self.kind == "sets":
            names, _ = kinds.build_vocabulary("sets", names)
        new = names[naming.match_names(names, self.classes, "labels") < 0]
        return self.with_classes(np.concatenate([self.classes, new.astype(self.classes.dtype)])) if new.size else self

    def gold_values(self, item: Any, value: Any) -> FloatArray:
        """Return (I,) gold numbers, aligned with `items`; NaN without one. Items not in the table are ignored."""
        value = naming.to_arrow_array(value, "gold")
        rows = np.flatnonzero(~naming.missing_rows(value))
        known = naming.to_floats(value.take(rows), "gold")
        values: FloatArray = self._align_gold(item, rows, known, np.full(self.n_items, np.nan), "numbers")
        return values

    def _align_gold(self, item: Any, rows: IntArray, known: Any, gold: Any, what: str) -> Any:
        """Fill `gold` (I,) with the known values of these rows of a column of items; two of one item must be equal."""
        names, code = naming.encode_column(naming.to_arrow_array(item, "item").take(rows), "item")
        at = naming.translate_codes(code, names, self.items, f"items of the gold {what}")
        here = at >= 0
        at, known, rows = at[here], known[here], rows[here]
        gold[at] = known
        if (gold[at] != known).any():
            row = int((gold[at] != known).argmax())
            raise errors.ContradictoryGold(item=self.items[at[row]], row=int(rows[row]), what=what)
        return gold

    # Deriving tables --------------------------------------------------------------------------------------------------

    def with_import_report(self, report: ImportReport | None) -> Annotations:
        """Return the same table with an import report.

        >>> Annotations.from_arrays([1], ["ann"], ["x"]).with_import_report(None).import_report is None
        True
        """
        table = object.__new__(type(self))
        table.__dict__.update(vars(self), import_report=report)
        return table

    def select(self, *, items: Any = None, annotators: Any = None, rows: Any = None) -> Annotations:
        """Select items and annotators (names, or a mask over all) and rows (a mask or row numbers).

        Selected items and annotators stay, with or without rows; the classes always stay.
        """
        N = self.n_annotations
        keep = np.ones(N, np.bool_) if rows is None else fill_masked(rows, False)
        if keep.dtype != np.bool_:
            if keep.size and not (keep.dtype.kind in "iu" and keep.min() >= 0 and keep.max() < N):
                expected = f"numbers from 0 to {N - 1:,}, or a mask"
                raise errors.WrongColumn(column="rows", expected=expected, found=quote_name(keep))
            keep = np.isin(np.arange(N), keep)
        if keep.shape != (N,):
            raise errors.WrongColumn(column="rows", expected=f"a mask of {N:,}", found=f"{keep.size:,}")
        item_keep = self._selection_mask(items, self.items, "items")
        annotator_keep = self._selection_mask(annotators, self.annotators, "annotators")
        keep = keep & item_keep[self.item] & annotator_keep[self.annotator]
        new_item = np.cumsum(item_keep, dtype=np.int32) - np.int32(1)
        new_annotator = np.cumsum(annotator_keep, dtype=np.int32) - np.int32(1)
        return Annotations(
            new_annotator[self.annotator[keep]],
            self.label[keep],
            group_offsets(new_item[self.item[keep]], int(item_keep.sum())),
            self.items[item_keep],
            self.annotators[annotator_keep],
            self.classes,
            None if self.weight is None else self.weight[keep],
            None if self.proba is None else self.proba[keep],
            self.kind,
        )

    def subsample(self, redundancy: int, seed: int = 0) -> Annotations:
        """Draw at most `redundancy` annotations of each item at random."""
        check_argument("redundancy", redundancy, int, low=1)
        return self.select(rows=random_ranks_within_groups(self.item, np.random.default_rng(seed)) < redundancy)

    def split(
        self, share: float = 0.5, *, by: Literal["item", "annotation"] = "item", seed: int = 0
    ) -> tuple[Annotations, Annotations]:
        """Split into a random `share` of the items (or of the annotations, both keeping all items) and the rest."""
        check_argument("share", share, float, above=0, below=1)
        check_argument("by", by, Literal["item", "annotation"])
        n = self.n_items if by == "item" else self.n_annotations
        drawn = np.zeros(n, np.bool_)
        drawn[np.random.default_rng(seed).permutation(n)[: round(share * n)]] = True
        selected, rest = (self.select(**{"items" if by == "item" else "rows": part}) for part in (drawn, ~drawn))
        return selected, rest

    @staticmethod
    def concat(tables: Iterable[Annotations]) -> Annotations:
        """Join the rows of several tables; unite names, keep the order of classes where all tables declare the same."""
        tables = list(tables)
        if not tables:
            raise errors.NoTables
        items = _union_names([t.items for t in tables], "items")
        annotators = _union_names([t.annotators for t in tables], "annotators")
        same = all(t.classes.tolist() == tables[0].classes.tolist() for t in tables)
        kind = tables[0].kind
        if any(t.kind != kind for t in tables):
            raise errors.DifferentKinds(kinds=" and ".join(sorted({t.kind for t in tables})))
        classes = tables[0].classes
        if not same:
            classes, _ = kinds.build_vocabulary(kind, _union_names([t.classes for t in tables], "classes"))
        parts = [t.with_classes(classes) for t in tables]
        weight = proba = None
        if any(t.weight is not None for t in parts):
            weight = np.concatenate([t.row_weights for t in parts])
        if any(t.proba is not None for t in parts):
            proba = np.concatenate([np.eye(len(classes))[t.label] if t.proba is None else t.proba for t in parts])
        return Annotations.from_codes(
            np.concatenate([naming.translate_codes(t.item, t.items, items, "items") for t in parts]),
            np.concatenate(
                [naming.translate_codes(t.annotator, t.annotators, annotators, "annotators") for t in parts]
            ),
            np.concatenate([t.label for t in parts]),
            items, annotators, classes, weight=weight, proba=proba, kind=kind,
        )  # fmt: skip

    def as_kind(self, kind: str, *, ordered: bool = False) -> Annotations:
        """Read the labels as another kind, see `table.kinds`; `ordered`: the classes are in order.

        >>> table = Annotations.from_arrays([1, 1, 2], ["x", "y", "x"], ["10", "9", "1"])
        >>> table.as_kind("graded").classes.tolist(), table.as_kind("numbers").values.tolist()
        (['1', '9', '10'], [1.0, 9.0, 10.0])
        """
        kinds.check_kind(kind)
        if kind == self.kind:
            return self
        if kind == "sets" and self.proba is None and not is_first_of_pair(self.item, self.annotator).all():
            return self._merge_sets()
        classes, place = kinds.build_vocabulary(kind, self.classes, ordered)
        if self.proba is not None:
            kinds.check_kind(kind, kinds.CLASS_KINDS, "proba")
        return self._replace_classes(classes, place, kind)

    def _replace_classes(self, classes: Names, place: IntArray, kind: str) -> Annotations:
        """Return the same rows with other classes: class k becomes `place[k]`, −1 for a class that no row has."""
        proba = None
        if self.proba is not None:
            proba = np.zeros((len(self), classes.size))
            for k in np.flatnonzero(place >= 0):
                proba[:, place[k]] += self.proba[:, k]
        return Annotations.from_codes(
            self.item, self.annotator, place[self.label], self.items, self.annotators, classes,
            weight=self.weight, proba=proba, kind=kind,
        )  # fmt: skip

    def _merge_sets(self) -> Annotations:
        """Join the rows of an item and annotator into one set of all options that they hold."""
        if self.weight is not None:
            raise errors.WeightedSets
        sets, place = kinds.build_vocabulary("sets", self.classes)
        names, ticked = kinds.parse_options(sets)
        first = is_first_of_pair(self.item, self.annotator)
        rows = np.flatnonzero(first)
        pairs = np.unique(
            np.stack([np.cumsum(first) - 1, place[self.label]], axis=1), axis=0
        )  # options may be repeated
        together = np.maximum.reduceat(ticked[pairs[:, 1]], np.searchsorted(pairs[:, 0], np.arange(rows.size)))
        sets_found, label = np.unique(together, axis=0, return_inverse=True)
        classes = np.array([kinds.name_set(names[options]) for options in sets_found], object)
        order = np.argsort(classes, kind="stable")
        return Annotations.from_codes(
            self.item[rows], self.annotator[rows], np.argsort(order)[label.reshape(-1)], self.items, self.annotators,
            classes[order], kind="sets",
        )  # fmt: skip

    def with_classes(self, classes: Names) -> Annotations:
        """Code the labels into other `classes`; a label outside them raises."""
        if classes is self.classes or classes.tolist() == self.classes.tolist():
            return self
        at = naming.match_names(self.classes, classes, "classes")
        unknown = at[self.label] < 0 if self.proba is None else (self.proba[:, at < 0] > 0).any(axis=1)
        if unknown.any():
            labels = self.classes[self.label]
            raise errors.LabelUnknownToModel.among("label", np.asarray(unknown), labels, n_classes=len(classes))
        return self._replace_classes(classes, at, self.kind)

    def _selection_mask(self, chosen: Any, among: Names, what: str) -> BoolArray:
        if chosen is None:
            return np.ones(len(among), np.bool_)
        if isinstance(chosen, np.ndarray) and chosen.dtype == np.bool_ and len(chosen) == len(among):
            return fill_masked(chosen, False)
        wanted, _ = naming.encode_column(naming.to_column(chosen, what), what)
        at = naming.match_names(wanted, among, what)
        if (at < 0).any():
            missing = wanted[at < 0]
            raise errors.NamesOutsideTable(what=what, n_missing=missing.size, n=wanted.size, name=missing[0])
        mask = np.zeros(len(among), np.bool_)
        mask[at] = True
        return mask

    # Display ----------------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return describe.summarize_table(self)

    def _repr_html_(self) -> str:
        return describe.format_table_html(self)


def _check_columns(
    n: int, annotator: Any, label: Any, n_annotators: int, n_classes: int, weight: Any, proba: Any
) -> None:
    """Raise DataError unless the columns of n rows are valid codes and equally long."""
    naming.check_codes(annotator, n_annotators, "annotator")
    naming.check_codes(label, n_classes, "label")
    columns = {"annotator": (annotator, (n,)), "label": (label, (n,)), "weight": (weight, (n,))}
    for name, (array, shape) in (columns | {"proba": (proba, (n, n_classes))}).items():
        if array is not None and np.shape(array) != shape:
            raise errors.WrongColumn(column=name, expected=f"shape {shape}", found=str(np.shape(array)))


def _union_names(parts: Sequence[Names], what: str) -> Names:
    kept = [part for part in parts if part.size]
    for part in kept[1:]:
        naming.match_names(part[:1], kept[0][:1], what)  # raises if the types differ
    return np.unique(np.concatenate(kept)) if kept else parts[0]
