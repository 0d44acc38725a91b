"""The table of annotations: which annotator gave which label to which item.

The constructors convert names to integer codes, and every method works on these codes. Rows are sorted by (item,
annotator, label), so the order of rows in a file never changes a result. Two indexes give fast access: `item_ptr` to
the rows of an item, and `annotator_ptr` with `by_annotator` (built on first use) to the rows of an annotator.
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

MIN_COUNTED_ROWS = 10**6  # `from_counts` always accepts up to this number of rows.
MAX_ROWS_PER_COUNT = 1_000  # mean number of rows per count that larger tables may have
ANONYMOUS_ANNOTATOR = "anonymous"
"""The name of the only annotator in a table made from counts; votes without ids share one confusion matrix."""


class SizeProperties:
    """Numbers of items, annotators and classes, derived from the names that an object stores."""

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
class Annotations(ReadOnlyArrays, SizeProperties):
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

    import_report: ClassVar[ImportReport | None] = None  # Only tables that `read` returns have one.

    annotator: IntArray  # (N,) codes into annotators
    label: IntArray  # (N,) codes into classes, in the smallest integer type that can hold them
    item_ptr: IntArray  # (I+1,) rows of item i are item_ptr[i]:item_ptr[i+1]
    items: Names  # (I,) sorted; may include items without a label
    annotators: Names  # (A,) sorted; may include annotators without a label
    classes: Names  # (K,) sorted, or in the order declared by the caller
    weight: FloatArray | None = None  # (N,)
    proba: FloatArray | None = None  # (N, K) a distribution instead of a label; `label` is then its argmax
    kind: str = "classes"  # the label type, see `table.kinds`

    def __post_init__(self) -> None:
        """Check all codes, because compiled kernels use them as addresses without further checks."""
        super().__post_init__()
        n, ptr = self.n_annotations, self.item_ptr
        naming.check_codes(ptr, n + 1, "item_ptr")
        if ptr.size != self.n_items + 1 or ptr[0] != 0 or ptr[-1] != n or (ptr[1:] < ptr[:-1]).any():
            raise errors.InvalidItemPointers(n_rows=n, n_items=self.n_items)
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
            Integers or text; labels may also be booleans. `label` is not needed if `proba` is given.
        classes : list of names, or their number, optional
            The classes, in this order. Integer labels are codes into these classes if the classes are text. By
            default, the classes are the distinct labels, sorted.
        weight : (N,), optional
            Weight of each row; not negative.
        proba : (N, K), or class → (N,), optional
            A distribution over the classes instead of one label; each row sums to one. `label` is then ignored.
        abstain : a label or a list of labels, optional
            Answers such as "can't say" that are not a class. `None` in the list stands for a missing label. Rows with
            such an answer are excluded; their items and annotators remain in the table.
        items, annotators : lists of names, optional
            All items or annotators, if some of them have no annotation.
        kind : "classes", "graded", "numbers", "pairs", "sets", "spans" or "objects"
            The label type, see `table.kinds`. For sets, several rows of an item and annotator are merged into one set.

        Returns
        -------
        Annotations

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
        inputs = {"item": item, "annotator": annotator, "label": label}
        columns: dict[str, Any] = {
            n: naming.to_column(c, n) for n, c in inputs.items() if c is not None or n != "label"
        }
        keep: BoolArray | None = None
        if proba is not None:
            class_names, proba = naming.encode_proba(proba, classes)
            label_code = proba.argmax(axis=1)
        weight = None if weight is None else naming.check_weight(weight)
        n = len(columns["item"])
        for name, other in (*columns.items(), ("weight", weight), ("proba", proba)):
            if other is not None and len(other) != n:
                raise errors.UnequalLengths(column=name, n=len(other), other_column="item", n_other=n)
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
            annotator, label = annotator.copy(), label.copy()  # The caller may change its own arrays later.
        elif plain and item.size >= kernels.MIN_ROWS_TO_COMPILE:
            annotator, label = kernels.sort_rows(item, annotator, label, ptr, len(classes))
        else:  # Rows with the same codes are sorted by weight, so that no sum depends on the order of rows.
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

        Parameters
        ----------
        frame : data frame or Arrow table
        item, annotator, label, weight : str, optional
            Names of columns. By default, columns are found by these names or usual synonyms (task, worker, answer, …).
        proba : class → column, or list of columns `p_<class>`, optional
            Columns of class probabilities. By default, columns `p_…` are used if there is no label column.
        classes, abstain, kind
            As in `from_arrays`.

        Returns
        -------
        Annotations
        """
        column_names_by_role = ColumnNames(item, annotator, label, weight=weight, proba=proba)
        if question := column_names_by_role.resolve(column_names(frame)).get("question"):
            raise errors.SeveralQuestions(column=question)
        return cls.from_arrays(**column_names_by_role.read_arrays(frame), classes=classes, abstain=abstain, kind=kind)

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

        Parameters
        ----------
        matrix : array or frame of shape (I, A)
        missing : label, optional
            Cells with this value are empty, as are NaN, None and masked cells; by default −1, unless labels are
            numbers.
        items, annotators : lists of names, optional
            By default, the index and the column names of a pandas frame, the column names of other frames, or numbers.
        classes, kind
            As in `from_arrays`.

        Returns
        -------
        Annotations
        """
        found = naming.encode_matrix(matrix, missing, items, annotators, kind == "numbers")
        return cls.from_arrays(**found, classes=classes, kind=kind)

    @classmethod
    def from_pairs(
        cls, left: Any, right: Any, winner: Any, annotator: Any = None, *, context: Any = None, weight: Any = None
    ) -> Annotations:
        """Make a table from comparisons of two alternatives.

        Parameters
        ----------
        left, right : (N,)
            Names of the two alternatives.
        winner : (N,)
            The better alternative: "left", "right" or "tie".
        annotator : (N,), optional
            By default, all comparisons are by "anonymous".
        context : (N,), optional
            For example a prompt. The same alternatives in different contexts are different items.
        weight : (N,), optional

        Returns
        -------
        Annotations

        >>> Annotations.from_pairs(["a", "b"], ["b", "c"], ["left", "tie"])
        Annotations: 2 comparisons of 3 alternatives (a, b, c) in 2 items by 1 annotator, 1.0 per item
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
        """Make a table from spans of documents; an item is a position in a document, and its label is a tag.

        Spans of one annotator that overlap an earlier span of the same annotator are excluded, with a warning.

        Parameters
        ----------
        document, annotator, start, end, label : one entry per span
            `start` to `end` (exclusive), in characters, or in tokens if `tokens` is given.
        readings : (document, annotator) pairs, optional
            Annotators who read a document without marking a span; all its positions get the tag O.
        texts : document → text, optional
            Documents are cut into words. Without texts and tokens, they are cut where spans begin and end.
        tokens : document → number of tokens, optional

        Returns
        -------
        Annotations

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
        """Make a table from vote counts without annotator ids; all votes belong to the annotator "anonymous".

        Parameters
        ----------
        item, label, count : (N,)
            The number of votes of each item for each label.
        classes, items
            As in `from_arrays`.

        Returns
        -------
        Annotations
        """
        counts = naming.to_floats(count, "count")
        for name, column in (("item", item), ("label", label)):
            if len(column) != len(counts):
                raise errors.UnequalLengths(column="count", n=len(counts), other_column=name, n_other=len(column))
        bad = ~np.isfinite(counts) | (counts < 0) | (counts != np.floor(counts))
        if bad.any():
            raise errors.InvalidRows.from_mask(
                "column 'count'", bad, counts, problem="are not whole numbers of at least 0"
            )
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

    # Properties of a table
    # --------------------------------------------------------------------------------------------------

    @property
    def n_annotations(self) -> int:
        """Return N, the number of rows."""
        return int(self.annotator.size)

    def __len__(self) -> int:
        return self.n_annotations

    @property
    def values(self) -> FloatArray:
        """Return the numeric values (K,) of ordered classes, or ranks from 0 if a name is not a number."""
        values = kinds.class_values(self.kind, self.classes)
        if values is None:
            raise errors.NoLabelValues(kind=self.kind)
        return values

    @cached_property
    def alternatives(self) -> kinds.Alternatives:
        """Return the two alternatives that each item of a table of comparisons compares."""
        kinds.check_kind(self.kind, ("pairs",), "sides")
        return kinds.parse_alternatives(self.items)

    @cached_property
    def options(self) -> kinds.SetOptions:
        """Return the options of a table of sets."""
        kinds.check_kind(self.kind, ("sets",), "options")
        return kinds.parse_options(self.classes)

    @cached_property
    def item(self) -> IntArray:
        """Return the item code of each row (N,)."""
        return make_read_only(np.repeat(np.arange(self.n_items, dtype=np.int32), np.diff(self.item_ptr)))

    @property
    def row_weights(self) -> FloatArray:
        """Return the weight of each row (N,), which is 1 if the table has no weights."""
        return np.ones(len(self)) if self.weight is None else self.weight

    @cached_property
    def annotator_ptr(self) -> IntArray:
        """Return the offsets (A+1,) into `by_annotator` of the rows of each annotator."""
        return make_read_only(group_offsets(self.annotator, self.n_annotators))

    @cached_property
    def by_annotator(self) -> IntArray:
        """Return the row numbers (N,), sorted by annotator."""
        return make_read_only(kernels.group_rows(self.annotator, self.annotator_ptr))

    @cached_property
    def sequences(self) -> Sequences:
        """Return the positions of the items of spans and their reading order, see `table.spans`."""
        kinds.check_kind(self.kind, ("spans",), "sequences")
        return parse_sequences(self.items)

    @property
    def annotations_per_annotator(self) -> IntArray:
        """Return the number of annotations of each annotator (A,)."""
        return np.diff(self.annotator_ptr)

    @property
    def rating_codes(self) -> IntArray:
        """Return the rating code of each row (N,); rows of the same item and annotator are one rating.

        Each vote without an annotator id is a rating of its own.
        """
        return np.cumsum(is_first_of_pair(self.item, self.annotator)) - 1 if self.has_repeats else np.arange(len(self))

    @cached_property
    def has_repeats(self) -> bool:
        """Return True if an annotator has several rows for one item.

        >>> Annotations.from_arrays([1, 1], ["ann", "ann"], ["x", "y"]).has_repeats
        True
        """
        anonymous = self.n_annotators == 1 and self.annotators[0] == ANONYMOUS_ANNOTATOR
        return not anonymous and not bool(is_first_of_pair(self.item, self.annotator).all())

    @cached_property
    def annotators_per_item(self) -> IntArray:
        """Return the number of annotators of each item (I,); votes without annotator ids are counted individually.

        Rows of weight 0 are not counted.
        """
        counted = self.row_weights > 0
        first = np.diff(self.rating_codes[counted], prepend=-1) > 0  # Rows of one rating are adjacent.
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
        """Return the table with weights such that repeated labels count once.

        The rows of one item and annotator get a total weight of at most 1, or of at most the largest single weight if
        that exceeds 1.

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
        """Return the weighted number of labels of each item in each class (I, K)."""
        if self.kind == "numbers":
            raise errors.NumbersHaveNoVotes
        if self.proba is not None:
            return sum_ranges(self.proba if self.weight is None else self.weight[:, None] * self.proba, self.item_ptr)
        cell = self.item * np.int64(self.n_classes) + self.label
        votes = np.bincount(cell, self.weight, self.n_items * self.n_classes)
        return votes.reshape(self.n_items, self.n_classes).astype(np.float64)

    def count_correct_labels(self, posterior: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return each annotator's weight of correct labels, expected under a posterior (I, K), and of all labels."""
        if self.proba is None:
            right = posterior[self.item, self.label]
        else:
            right = (self.proba * posterior[self.item]).sum(axis=1)
        weights = self.row_weights * right, self.row_weights
        hits, total = (np.bincount(self.annotator, w, self.n_annotators) for w in weights)
        return hits.astype(np.float64), total.astype(np.float64)  # bincount returns integers for empty input.

    def soft_labels(
        self,
        kind: Literal["normalized", "softmax", "smoothed"] = "normalized",
        *,
        temperature: float = 1.0,
        pseudocount: float = 1.0,
    ) -> FloatArray:
        """Return the votes of each item as a distribution (I, K), which is uniform for items without votes.

        Parameters
        ----------
        kind : "normalized", "softmax" or "smoothed"
            "normalized" distributions are shares of votes. "softmax" is softmax(votes / temperature), which gives every
            class a positive probability (Fornaciari et al. 2021). "smoothed" adds `pseudocount` to every class first.
        temperature, pseudocount : float

        Returns
        -------
        (I, K) array
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
        """Return counts, class shares, redundancy and raw agreement as plain values, for example for JSON."""
        return describe.count_table(self)

    def to_arrow(self) -> Any:
        """Return an Arrow table with the columns item, annotator, label, and, if present, weight and p_<class>."""
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
        """Return the gold class code of each item (I,), or −1 for items without a gold label.

        Rows without a label and items outside the table are ignored.

        Parameters
        ----------
        item, label : (M,)
            Items and their gold labels.
        """
        label = naming.to_arrow_array(label, "label")
        rows = np.flatnonzero(~naming.missing_rows(label))
        names, code = naming.encode_column(naming.to_column(label.take(rows), "label"), "label")
        if self.kind == "sets":
            names, new_codes = kinds.build_vocabulary("sets", names)
            code = new_codes[code]
        class_codes = naming.translate_codes(code, names, self.classes, "gold labels")
        if (class_codes < 0).any():
            raise errors.BadGoldLabels.from_mask(
                "gold", class_codes < 0, names[code], rows, n_classes=self.n_classes, kind=self.kind
            )
        codes: IntArray = self._align_gold(item, rows, class_codes, np.full(self.n_items, -1, np.int32), "labels")
        return codes

    def with_added_classes(self, labels: Any) -> Annotations:
        """Return the same table with further classes, for labels that occur only as gold labels.

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
        """Return the gold number of each item (I,), or NaN for items without one."""
        value = naming.to_arrow_array(value, "gold")
        rows = np.flatnonzero(~naming.missing_rows(value))
        numbers = naming.to_floats(value.take(rows), "gold")
        values: FloatArray = self._align_gold(item, rows, numbers, np.full(self.n_items, np.nan), "numbers")
        return values

    def _align_gold(self, item: Any, rows: IntArray, values: Any, gold: Any, what: str) -> Any:
        """Write the gold values of these rows into `gold` (I,); raise if an item has two different values."""
        names, code = naming.encode_column(naming.to_arrow_array(item, "item").take(rows), "item")
        item_codes = naming.translate_codes(code, names, self.items, f"items of the gold {what}")
        in_table = item_codes >= 0
        item_codes, values, rows = item_codes[in_table], values[in_table], rows[in_table]
        gold[item_codes] = values
        if (gold[item_codes] != values).any():
            row = int((gold[item_codes] != values).argmax())
            raise errors.ContradictoryGold(item=self.items[item_codes[row]], row=int(rows[row]), content=what)
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
        """Return a table with only these items, annotators and rows; the classes do not change.

        Selected items and annotators remain in the table even if none of their rows is selected.

        Parameters
        ----------
        items, annotators : names or a mask, optional
        rows : row numbers or a mask (N,), optional

        Returns
        -------
        Annotations
        """
        N = self.n_annotations
        keep = np.ones(N, np.bool_) if rows is None else fill_masked(rows, False)
        if keep.dtype != np.bool_:
            if keep.size and not (keep.dtype.kind in "iu" and keep.min() >= 0 and keep.max() < N):
                expected = f"numbers from 0 to {N - 1:,}, or a mask"
                raise errors.WrongColumn(column="rows", expected=expected, description=quote_name(keep))
            keep = np.isin(np.arange(N), keep)
        if keep.shape != (N,):
            raise errors.WrongColumn(column="rows", expected=f"a mask of {N:,}", description=f"{keep.size:,}")
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
        """Return a table with at most `redundancy` random annotations of each item."""
        check_argument("redundancy", redundancy, int, low=1)
        return self.select(rows=random_ranks_within_groups(self.item, np.random.default_rng(seed)) < redundancy)

    def split(
        self, share: float = 0.5, *, by: Literal["item", "annotation"] = "item", seed: int = 0
    ) -> tuple[Annotations, Annotations]:
        """Split the table at random into one with a `share` of its items and one with the others.

        With `by="annotation"`, the annotations are split, and both tables keep all items.
        """
        check_argument("share", share, float, above=0, below=1)
        check_argument("by", by, Literal["item", "annotation"])
        n = self.n_items if by == "item" else self.n_annotations
        drawn = np.zeros(n, np.bool_)
        drawn[np.random.default_rng(seed).permutation(n)[: round(share * n)]] = True
        selected, rest = (self.select(**{"items" if by == "item" else "rows": part}) for part in (drawn, ~drawn))
        return selected, rest

    @staticmethod
    def concat(tables: Iterable[Annotations]) -> Annotations:
        """Return one table with the rows and names of several tables; equal classes keep their order."""
        tables = list(tables)
        if not tables:
            raise errors.NoTablesToJoin
        items = _union_names([t.items for t in tables], "items")
        annotators = _union_names([t.annotators for t in tables], "annotators")
        same = all(t.classes.tolist() == tables[0].classes.tolist() for t in tables)
        kind = tables[0].kind
        if any(t.kind != kind for t in tables):
            raise errors.DifferentLabelTypes(kinds=" and ".join(sorted({t.kind for t in tables})))
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
        """Return the table with its labels interpreted as another label type, see `table.kinds`.

        Parameters
        ----------
        kind : str
        ordered : bool
            True if the classes are already in their order.

        Returns
        -------
        Annotations

        >>> table = Annotations.from_arrays([1, 1, 2], ["x", "y", "x"], ["10", "9", "1"])
        >>> table.as_kind("graded").classes.tolist(), table.as_kind("numbers").values.tolist()
        (['1', '9', '10'], [1.0, 9.0, 10.0])
        """
        kinds.check_kind(kind)
        if kind == self.kind:
            return self
        if kind == "sets" and self.proba is None and not is_first_of_pair(self.item, self.annotator).all():
            return self._merge_sets()
        classes, new_codes = kinds.build_vocabulary(kind, self.classes, ordered)
        if self.proba is not None:
            kinds.check_kind(kind, kinds.CLASS_KINDS, "proba")
        return self._replace_classes(classes, new_codes, kind)

    def _replace_classes(self, classes: Names, new_codes: IntArray, kind: str) -> Annotations:
        """Return the same rows with other classes: class k becomes `place[k]` (−1 if no row has class k)."""
        proba = None
        if self.proba is not None:
            proba = np.zeros((len(self), classes.size))
            for k in np.flatnonzero(new_codes >= 0):
                proba[:, new_codes[k]] += self.proba[:, k]
        return Annotations.from_codes(
            self.item, self.annotator, new_codes[self.label], self.items, self.annotators, classes,
            weight=self.weight, proba=proba, kind=kind,
        )  # fmt: skip

    def _merge_sets(self) -> Annotations:
        """Merge the rows of each item and annotator into one set of all their options."""
        if self.weight is not None:
            raise errors.WeightedSets
        sets, set_codes = kinds.build_vocabulary("sets", self.classes)
        names, selected = kinds.parse_options(sets)
        first = is_first_of_pair(self.item, self.annotator)
        rows = np.flatnonzero(first)
        pairs = np.unique(
            np.stack([np.cumsum(first) - 1, set_codes[self.label]], axis=1), axis=0
        )  # options may be repeated
        merged_options = np.maximum.reduceat(selected[pairs[:, 1]], np.searchsorted(pairs[:, 0], np.arange(rows.size)))
        sets_found, label = np.unique(merged_options, axis=0, return_inverse=True)
        classes = np.array([kinds.name_set(names[options]) for options in sets_found], object)
        order = np.argsort(classes, kind="stable")
        return Annotations.from_codes(
            self.item[rows], self.annotator[rows], np.argsort(order)[label.reshape(-1)], self.items, self.annotators,
            classes[order], kind="sets",
        )  # fmt: skip

    def with_classes(self, classes: Names) -> Annotations:
        """Return the table with codes into other `classes`; raise if a label is not one of these classes."""
        if classes is self.classes or classes.tolist() == self.classes.tolist():
            return self
        new_codes = naming.match_names(self.classes, classes, "classes")
        unknown = new_codes[self.label] < 0 if self.proba is None else (self.proba[:, new_codes < 0] > 0).any(axis=1)
        if unknown.any():
            labels = self.classes[self.label]
            raise errors.LabelUnknownToModel.from_mask("label", np.asarray(unknown), labels, n_classes=len(classes))
        return self._replace_classes(classes, new_codes, self.kind)

    def _selection_mask(self, selection: Any, names: Names, role: str) -> BoolArray:
        if selection is None:
            return np.ones(len(names), np.bool_)
        if isinstance(selection, np.ndarray) and selection.dtype == np.bool_ and len(selection) == len(names):
            return fill_masked(selection, False)
        selected_names, _ = naming.encode_column(naming.to_column(selection, role), role)
        positions = naming.match_names(selected_names, names, role)
        if (positions < 0).any():
            missing = selected_names[positions < 0]
            raise errors.NamesOutsideTable(
                argument=role, n_missing=missing.size, n=selected_names.size, name=missing[0]
            )
        mask = np.zeros(len(names), np.bool_)
        mask[positions] = True
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
            raise errors.WrongColumn(column=name, expected=f"shape {shape}", description=str(np.shape(array)))


def _union_names(parts: Sequence[Names], what: str) -> Names:
    kept = [part for part in parts if part.size]
    for part in kept[1:]:
        naming.match_names(part[:1], kept[0][:1], what)  # This raises if the types differ.
    return np.unique(np.concatenate(kept)) if kept else parts[0]
