"""The one table: who gave which label to what.

Names become integer codes once, here; every method works on the codes. Rows are sorted by (item, annotator, label), so
that the order of a file never changes a result. Two indexes make both directions fast: `item_ptr` (rows by item) and
`annotator_ptr` with `by_annotator` (rows by annotator, built when first asked for).
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
    group_starts,
    pair_starts,
    random_ranks,
    read_only,
    sums_of_ranges,
    unmasked,
)
from dissensus.common.parameters import check_argument
from dissensus.common.types import BoolArray, FloatArray, IntArray, Names
from dissensus.exceptions import DataError, DataWarning, UnknownClass
from dissensus.table import describe, kernels, kinds
from dissensus.table import names as naming
from dissensus.table.find_columns import Columns, column_names
from dissensus.table.reading import Reading
from dissensus.table.spans import Sequences, sequences_of, tags_of_layers

MIN_COUNTED_ROWS = 10**6  # that `from_counts` always makes, however few counts there are
MAX_ROWS_PER_COUNT = 1_000  # on average, beyond these
ANONYMOUS = "anonymous"
"""The one annotator of a table made from counts: votes without ids share one confusion matrix."""


class Named:
    """What has names of items, annotators and classes, and so knows how many there are."""

    items: Any
    annotators: Any
    classes: Any

    @property
    def n_items(self) -> int:
        """I, the number of items."""
        return int(self.items.size)

    @property
    def n_annotators(self) -> int:
        """A, the number of annotators."""
        return int(self.annotators.size)

    @property
    def n_classes(self) -> int:
        """K, the number of classes."""
        return int(self.classes.size)


@dataclass(frozen=True, eq=False, repr=False)
class Annotations(ReadOnlyArrays, Named):
    """Who gave which label to what. Rows sorted by (item, annotator, label); every array read-only.

    Make one with `from_arrays`, `from_frame`, `from_matrix`, `from_counts` or `dissensus.read`.

    >>> import numpy as np
    >>> from dissensus import Annotations
    >>> table = Annotations.from_arrays(["a", "a", "b", "b"], ["x", "y", "x", "y"], ["cat", "dog", "cat", "cat"])
    >>> table.n_annotations, table.n_items, table.n_annotators, table.n_classes
    (4, 2, 2, 2)
    >>> table.votes().tolist(), table.soft_labels()[0].tolist(), table.per_annotator.tolist()
    ([[1.0, 1.0], [2.0, 0.0]], [0.5, 0.5], [2, 2])
    >>> [part.n_annotations for part in (table.select(items=["a"]), table.subsample(1), *table.split(0.5))]
    [2, 2, 2, 2]
    >>> table.gold_codes(["a"], ["dog"]).tolist(), table.agreement_with(table.soft_labels())
    ([1, -1], (array([1.5, 1.5]), array([2., 2.])))
    >>> Annotations.concat([table, Annotations.from_arrays(["c"], ["z"], ["eel"])])
    Annotations: 5 annotations of 3 items by 3 annotators, 3 classes (cat, dog, eel), 1.7 per item
    >>> same = [Annotations.from_frame(table.to_arrow()), Annotations.from_matrix([["cat", "dog"], ["cat", "cat"]])]
    >>> [one.n_annotations for one in same], table.to_classes(np.array(["cat", "dog", "eel"])).n_classes
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
    >>> table.rating.tolist(), table.ratings_per_item.tolist()
    ([0, 1, 2, 3], [2, 2])
    >>> table.by_annotator.tolist(), table.annotator_ptr.tolist()
    ([0, 2, 1, 3], [0, 2, 4])
    >>> Annotations.from_arrays(["a"], ["x"], ["red|round"], kind="sets").options.names.tolist()
    ['red', 'round']
    >>> Annotations.from_pairs(["a"], ["b"], ["left"]).sides.things.tolist()
    ['a', 'b']
    >>> Annotations.from_spans(["d"], ["x"], [0], [2], ["PER"], tokens={"d": 4}).sequences.documents.tolist()
    ['d']
    """

    source: ClassVar[Reading | None] = None  # how `read` read it; not kept by tables that are made from it

    annotator: IntArray  # (N,) code into annotators
    label: IntArray  # (N,) code into classes, in the smallest integer type that holds them
    item_ptr: IntArray  # (I+1,) rows of item i are item_ptr[i]:item_ptr[i+1]
    items: Names  # (I,) sorted; may hold items that nobody has labelled
    annotators: Names  # (A,) sorted; may hold annotators without a label
    classes: Names  # (K,) sorted, or in the order that the caller declares
    weight: FloatArray | None = None  # (N,) how much a row counts
    proba: FloatArray | None = None  # (N, K) a distribution instead of a label; `label` is then its arg max
    kind: str = "classes"  # how to read `classes`, see `table.kinds`

    def __post_init__(self) -> None:
        """Check every code, also once unpickled: no kernel walks a table that was not checked."""
        super().__post_init__()
        n, ptr = self.n_annotations, self.item_ptr
        naming.check_codes(ptr, n + 1, "item_ptr")
        if ptr.size != self.n_items + 1 or ptr[0] != 0 or ptr[-1] != n or (ptr[1:] < ptr[:-1]).any():
            raise DataError(f"item_ptr does not cut {n:,} rows into {self.n_items:,} items.")
        _check_rows(n, self.annotator, self.label, self.n_annotators, self.n_classes, self.weight, self.proba)
        kinds.check_kind(self.kind)
        if self.proba is not None:
            kinds.check_kind(self.kind, kinds.CLASS_KINDS, "proba")

    # Making one -------------------------------------------------------------------------------------------------------

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
            The classes, in this order. Integer labels beside declared text classes are codes into them. Left out, the
            classes are the distinct labels, sorted.
        weight : (N,), optional
            How much each row counts; not negative.
        proba : (N, K), or class → (N,), optional
            A distribution over the classes instead of one label; rows sum to one. Labels given beside it are not read.
        abstain : a label or a list of labels, optional
            Answers such as "can't say", which are no class. `None` in the list stands for a missing label. Their rows
            are left out; their items and annotators stay.
        items, annotators : lists of names, optional
            All items or annotators, when some have no annotation.
        kind : "classes", "graded", "numbers", "pairs", "sets", "spans" or "objects"
            What the labels are, see `table.kinds`. Several rows of an item and annotator are one set.

        >>> table = Annotations.from_arrays(["a", "a", "b"], ["x", "y", "x"], [1, 0, 1])
        >>> table
        Annotations: 3 annotations of 2 items by 2 annotators, 2 classes (0, 1), 1.5 per item
        >>> table.votes()
        array([[1., 1.],
               [0., 1.]])
        """
        if label is None and proba is None:
            raise DataError("neither label nor proba is given; a table needs one of them.")
        if proba is not None and naming.as_list(abstain):
            raise DataError("abstain= names labels, and there are none beside proba=; leave those rows out.")
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
                raise DataError(f"'{name}' has {len(other):,} rows, 'item' has {n:,}; they must be equally long.")
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
        """Make a table from codes in any row order; names are sorted already.

        `item`, `annotator` and `label` are (N,) codes into `items`, `annotators` and `classes`; `weight` (N,) and
        `proba` (N, K) belong to the rows; `kind` is one of `table.kinds`.
        """
        naming.check_codes(item, len(items), "item")
        _check_rows(len(item), annotator, label, len(annotators), len(classes), weight, proba)
        item, annotator = np.asarray(item, np.int32), np.asarray(annotator, np.int32)
        label = np.asarray(label).astype(naming.smallest_int(len(classes)), copy=False)
        ptr = group_starts(item, len(items))
        plain = weight is None and proba is None
        if plain and kernels.is_sorted(item, annotator, label):
            annotator, label = annotator.copy(), label.copy()  # the caller may go on to change its own arrays
        elif plain and item.size >= kernels.MIN_ROWS_TO_COMPILE:
            annotator, label = kernels.sort_rows(item, annotator, label, ptr, len(classes))
        else:  # rows that agree in all codes are put in order by what they weigh, so that no sum depends on row order
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

        Columns are found by name, or by the usual other names (task, worker, answer, …); name them where they are
        called something else by `item`, `annotator`, `label` and `weight`. `proba` names the columns that hold each
        class's probability (class → column, or a list of columns `p_<class>`); a frame without a label column and with
        columns `p_…` is read so by itself. `classes`, `abstain` and `kind` are those of `from_arrays`.
        """
        named = Columns(item, annotator, label, weight=weight, proba=proba)
        if question := named.find(column_names(frame)).get("question"):
            raise DataError(
                f"column '{question}' holds several questions, a table each; use dissensus.read or drop it."
            )
        return cls.from_arrays(**named.take(frame), classes=classes, abstain=abstain, kind=kind)

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

        Cells that are equal to `missing` (left out: −1, unless labels are numbers), NaN, None or hidden by a mask are
        empty.
        Of a frame, the columns name the annotators and (pandas) the index names the items, where none are given.
        """
        found = naming.encode_matrix(matrix, missing, items, annotators, kind == "numbers")
        return cls.from_arrays(**found, classes=classes, kind=kind)

    @classmethod
    def from_pairs(
        cls, left: Any, right: Any, winner: Any, annotator: Any = None, *, context: Any = None, weight: Any = None
    ) -> Annotations:
        """Make a table from comparisons: the two things, which is better ("left", "right", "tie"), and who says so.

        `context`, such as a prompt, makes the same two things another item. Left out, the annotator is "anonymous".

        >>> Annotations.from_pairs(["a", "b"], ["b", "c"], ["left", "tie"])
        Annotations: 2 comparisons of 3 things (a, b, c) in 2 items by 1 annotator, 1.0 per item
        """
        item = kinds.pair_items(left, right, context)
        annotator = [ANONYMOUS] * len(item) if annotator is None else annotator
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

        `readings` are (document, annotator) of those who read a document, also where they marked nothing: they say O
        everywhere. `texts` (document → text) cuts documents into words, `tokens` (document → number) says that offsets
        count tokens; without them a document is cut where spans begin and end. Spans of one annotator that overlap an
        earlier one are left out, with a warning.

        >>> Annotations.from_spans(["d", "d"], ["x", "y"], [0, 0], [2, 1], ["PER", "PER"], tokens={"d": 4})
        Annotations: 8 tags of 4 items by 2 annotators, 3 classes (B-PER, I-PER, O), 2.0 per item
        """
        rows = tags_of_layers({"": zip(document, annotator, start, end, label, strict=True)}, readings, texts, tokens)
        if rows.overlapping or rows.empty:
            warn(
                f"{rows.overlapping:,} spans overlap another one of the same annotator and {rows.empty:,} are empty; "
                "they are left out.",
                DataWarning,
                stacklevel=2,
            )
        return cls.from_arrays(rows.item, rows.annotator, rows.label, kind="spans")

    @classmethod
    def from_counts(
        cls, item: Any, label: Any, count: Any, classes: Iterable[Any] | int | None = None, *, items: Any = None
    ) -> Annotations:
        """Make a table from vote counts without annotator ids: `count` rows each, by one annotator, "anonymous".

        `item`, `label` and `count` are equally long; `classes` and `items` are those of `from_arrays`.
        """
        counts = naming.floats(count, "count")
        if not len(counts) == len(item) == len(label):
            raise DataError(
                f"{len(counts):,} counts for {len(item):,} items and {len(label):,} labels; they must be equally many."
            )
        bad = ~np.isfinite(counts) | (counts < 0) | (counts != np.floor(counts))
        if bad.any():
            raise DataError(naming.bad_rows("column 'count'", bad, "rows are no whole number from 0 on", counts))
        most = max(MIN_COUNTED_ROWS, MAX_ROWS_PER_COUNT * counts.size)
        if counts.sum() > most:
            raise DataError(
                f"column 'count': the counts add up to {counts.sum():,.0f}, and each vote is a row, at most {most:,}; "
                "give them as weights: Annotations.from_arrays(…, weight=count)."
            )
        times = counts.astype(np.int64)
        item_names, item_code = naming.encode_names(naming.to_column(item, "item"), "item", items)
        class_names, label_code, _ = naming.encode_labels(naming.to_column(label, "label"), classes, ())
        return cls.from_codes(
            np.repeat(item_code, times), np.zeros(times.sum(), np.int32), np.repeat(label_code, times),
            item_names, np.array([ANONYMOUS], object), class_names,
        )  # fmt: skip

    # Looking into it --------------------------------------------------------------------------------------------------

    @property
    def n_annotations(self) -> int:
        """N, the number of rows."""
        return int(self.annotator.size)

    def __len__(self) -> int:
        return self.n_annotations

    @property
    def values(self) -> FloatArray:
        """(K,) where the labels lie: numbers, or of grades that are none their ranks from 0; classes have no place."""
        found = kinds.values_of(self.kind, self.classes)
        if found is None:
            raise DataError(f"labels that are {kinds.KINDS[self.kind]} have no values; as_kind('graded') gives some.")
        return found

    @cached_property
    def sides(self) -> kinds.Sides:
        """The two things that every item of a table of pairs compares."""
        kinds.check_kind(self.kind, ("pairs",), "sides")
        return kinds.sides_of(self.items)

    @cached_property
    def options(self) -> kinds.Options:
        """What the labels of a table of sets consist of."""
        kinds.check_kind(self.kind, ("sets",), "options")
        return kinds.options_of(self.classes)

    @cached_property
    def item(self) -> IntArray:
        """(N,) code into items."""
        return read_only(np.repeat(np.arange(self.n_items, dtype=np.int32), np.diff(self.item_ptr)))

    @property
    def row_weights(self) -> FloatArray:
        """(N,) how much every row counts: 1 where no weights were given."""
        return np.ones(len(self)) if self.weight is None else self.weight

    @cached_property
    def annotator_ptr(self) -> IntArray:
        """(A+1,) the rows of annotator a are by_annotator[annotator_ptr[a]:annotator_ptr[a+1]]."""
        return read_only(group_starts(self.annotator, self.n_annotators))

    @cached_property
    def by_annotator(self) -> IntArray:
        """(N,) row numbers in annotator order."""
        return read_only(kernels.group(self.annotator, self.annotator_ptr))

    @cached_property
    def sequences(self) -> Sequences:
        """Where the items of spans are, and which follow each other, see `table.spans`."""
        kinds.check_kind(self.kind, ("spans",), "sequences")
        return sequences_of(self.items)

    @property
    def per_annotator(self) -> IntArray:
        """(A,) annotations of each annotator."""
        return np.diff(self.annotator_ptr)

    @property
    def rating(self) -> IntArray:
        """(N,) number of each row's rating: all that one annotator says about one item.

        Votes without annotator ids are a rating each.
        """
        return np.cumsum(pair_starts(self.item, self.annotator)) - 1 if self.repeats else np.arange(len(self))

    @cached_property
    def repeats(self) -> bool:
        """True where an annotator has several rows about an item.

        >>> Annotations.from_arrays([1, 1], ["ann", "ann"], ["x", "y"]).repeats
        True
        """
        anonymous = self.n_annotators == 1 and self.annotators[0] == ANONYMOUS
        return not anonymous and not bool(pair_starts(self.item, self.annotator).all())

    @cached_property
    def ratings_per_item(self) -> IntArray:
        """(I,) how many annotators have labelled each item, however often; of votes without ids, how many there are.

        Rows of weight 0 are none.
        """
        counted = self.row_weights > 0
        first = np.diff(self.rating[counted], prepend=-1) > 0  # rows of a rating stand together
        return read_only(np.bincount(self.item[counted][first], minlength=self.n_items))

    @property
    def counted(self) -> Annotations:
        """The table without its rows of weight 0.

        >>> len(Annotations.from_arrays([1, 1], ["ann", "ben"], ["x", "y"], weight=[1, 0]).counted)
        1
        """
        return self if self.weight is None else self.select(rows=self.weight > 0)

    @property
    def once(self) -> Annotations:
        """The table in which all that an annotator says of an item weighs 1, or as its heaviest row if that is more.

        Rows that weigh less together stay as they are.

        >>> Annotations.from_arrays([1, 1], ["ann", "ann"], ["x", "y"]).once.weight.tolist()
        [0.5, 0.5]
        """
        if not self.repeats:
            return self
        rating, weight = self.rating, self.row_weights
        most = np.ones(rating[-1] + 1)
        np.maximum.at(most, rating, weight)
        return replace(self, weight=weight * (most / np.maximum(np.bincount(rating, weight), most))[rating])

    def votes(self) -> FloatArray:
        """(I, K) how often (by weight) each item was given each class."""
        if self.kind == "numbers":
            raise DataError("numbers have no votes; values[label] holds them, or read them as kind='classes'.")
        if self.proba is not None:
            return sums_of_ranges(
                self.proba if self.weight is None else self.weight[:, None] * self.proba, self.item_ptr
            )
        place = self.item * np.int64(self.n_classes) + self.label
        votes = np.bincount(place, self.weight, self.n_items * self.n_classes)
        return votes.reshape(self.n_items, self.n_classes).astype(np.float64)

    def agreement_with(self, posterior: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(A,) weight of each annotator's labels that are right by a posterior (I, K), and of all its labels."""
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
        """(I, K) the votes as a distribution.

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
        return describe.counts_of(self)

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
        """(I,) class codes of known labels, aligned with `items`; −1 where no label is known.

        Rows without a label and items that are not in the table are ignored.
        """
        label = naming.to_array(label, "label")
        rows = np.flatnonzero(~naming.missing_rows(label))
        names, code = naming.encode(naming.to_column(label.take(rows), "label"), "label")
        if self.kind == "sets":
            names, place = kinds.vocabulary("sets", names)
            code = place[code]
        known = naming.recode(code, names, self.classes, "gold labels")
        if (known < 0).any():
            problem = f"labels are none of the table's {self.n_classes} classes"
            said = naming.bad_rows("gold", known < 0, problem, names[code], rows)
            how = "table.including(labels)" if self.kind == "sets" else "classes=[…]"
            raise UnknownClass(f"{said} Declare all classes in making the table: {how}.")
        codes: IntArray = self._align(item, rows, known, np.full(self.n_items, -1, np.int32), "labels")
        return codes

    def including(self, labels: Any) -> Annotations:
        """The same rows with more classes, behind the others: labels that nobody gave, such as sets that gold holds.

        >>> table = Annotations.from_arrays([1, 1], ["x", "y"], ["a", "b"], kind="sets")
        >>> table.including(["b, a"]).classes.tolist()
        ['a', 'b', 'a|b']
        """
        column = naming.to_array(labels, "label")
        names, _ = naming.encode(column.take(np.flatnonzero(~naming.missing_rows(column))), "label")
        if self.kind == "sets":
            names, _ = kinds.vocabulary("sets", names)
        new = names[naming.match(names, self.classes, "labels") < 0]
        return self.to_classes(np.concatenate([self.classes, new.astype(self.classes.dtype)])) if new.size else self

    def gold_values(self, item: Any, value: Any) -> FloatArray:
        """(I,) known numbers, aligned with `items`; NaN where none is known. Items not in the table are ignored."""
        value = naming.to_array(value, "gold")
        rows = np.flatnonzero(~naming.missing_rows(value))
        known = naming.floats(value.take(rows), "gold")
        values: FloatArray = self._align(item, rows, known, np.full(self.n_items, np.nan), "numbers")
        return values

    def _align(self, item: Any, rows: IntArray, known: Any, gold: Any, what: str) -> Any:
        """`gold` (I,) with what is known in these rows of a column of items; two for one item must be the same."""
        names, code = naming.encode(naming.to_array(item, "item").take(rows), "item")
        at = naming.recode(code, names, self.items, f"items of the gold {what}")
        here = at >= 0
        at, known, rows = at[here], known[here], rows[here]
        gold[at] = known
        if (gold[at] != known).any():
            row = int((gold[at] != known).argmax())
            where = f"item {naming.shown(self.items[at[row]])} (row {rows[row]}, from 0)"
            raise DataError(f"gold: {where} has two different {what}; keep one.")
        return gold

    # Making another from it -------------------------------------------------------------------------------------------

    def select(self, *, items: Any = None, annotators: Any = None, rows: Any = None) -> Annotations:
        """Take these items and annotators (names, or a mask over all) and these rows (a mask or row numbers).

        Items and annotators that are asked for stay, with or without rows; the classes always stay.
        """
        N = self.n_annotations
        keep = np.ones(N, np.bool_) if rows is None else unmasked(rows, False)
        if keep.dtype != np.bool_:
            if keep.size and not (keep.dtype.kind in "iu" and keep.min() >= 0 and keep.max() < N):
                raise DataError(f"rows: expected row numbers from 0 to {N - 1:,}, or a mask.")
            keep = np.isin(np.arange(N), keep)
        if keep.shape != (N,):
            raise DataError(f"rows: a mask of {keep.size:,} for {N:,} annotations; they must be equally many.")
        item_keep = self._mask(items, self.items, "items")
        annotator_keep = self._mask(annotators, self.annotators, "annotators")
        keep = keep & item_keep[self.item] & annotator_keep[self.annotator]
        new_item = np.cumsum(item_keep, dtype=np.int32) - np.int32(1)
        new_annotator = np.cumsum(annotator_keep, dtype=np.int32) - np.int32(1)
        return Annotations(
            new_annotator[self.annotator[keep]],
            self.label[keep],
            group_starts(new_item[self.item[keep]], int(item_keep.sum())),
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
        return self.select(rows=random_ranks(self.item, np.random.default_rng(seed)) < redundancy)

    def split(
        self, share: float = 0.5, *, by: Literal["item", "annotation"] = "item", seed: int = 0
    ) -> tuple[Annotations, Annotations]:
        """Split into a random `share` of the items (or of the annotations, both keeping all items) and the rest."""
        check_argument("share", share, float, above=0, below=1)
        check_argument("by", by, Literal["item", "annotation"])
        n = self.n_items if by == "item" else self.n_annotations
        first = np.zeros(n, np.bool_)
        first[np.random.default_rng(seed).permutation(n)[: round(share * n)]] = True
        one, other = (self.select(**{"items" if by == "item" else "rows": part}) for part in (first, ~first))
        return one, other

    @staticmethod
    def concat(tables: Iterable[Annotations]) -> Annotations:
        """Join the rows of several tables; unite names, keep the order of classes where all tables declare the same."""
        tables = list(tables)
        if not tables:
            raise DataError("concat needs at least one table.")
        items = _union([t.items for t in tables], "items")
        annotators = _union([t.annotators for t in tables], "annotators")
        same = all(t.classes.tolist() == tables[0].classes.tolist() for t in tables)
        kind = tables[0].kind
        if any(t.kind != kind for t in tables):
            raise DataError(
                f"tables of {' and '.join(sorted({t.kind for t in tables}))} cannot be joined; as_kind first."
            )
        classes = tables[0].classes
        if not same:
            classes, _ = kinds.vocabulary(kind, _union([t.classes for t in tables], "classes"))
        parts = [t.to_classes(classes) for t in tables]
        weight = proba = None
        if any(t.weight is not None for t in parts):
            weight = np.concatenate([t.row_weights for t in parts])
        if any(t.proba is not None for t in parts):
            proba = np.concatenate([np.eye(len(classes))[t.label] if t.proba is None else t.proba for t in parts])
        return Annotations.from_codes(
            np.concatenate([naming.recode(t.item, t.items, items, "items") for t in parts]),
            np.concatenate([naming.recode(t.annotator, t.annotators, annotators, "annotators") for t in parts]),
            np.concatenate([t.label for t in parts]),
            items, annotators, classes, weight=weight, proba=proba, kind=kind,
        )  # fmt: skip

    def as_kind(self, kind: str, *, ordered: bool = False) -> Annotations:
        """Read the labels as another kind, see `table.kinds`; `ordered`: the classes are in their order already.

        >>> table = Annotations.from_arrays([1, 1, 2], ["x", "y", "x"], ["10", "9", "1"])
        >>> table.as_kind("graded").classes.tolist(), table.as_kind("numbers").values.tolist()
        (['1', '9', '10'], [1.0, 9.0, 10.0])
        """
        kinds.check_kind(kind)
        if kind == self.kind:
            return self
        if kind == "sets" and self.proba is None and not pair_starts(self.item, self.annotator).all():
            return self._merge_ticks()
        classes, place = kinds.vocabulary(kind, self.classes, ordered)
        if self.proba is not None:
            kinds.check_kind(kind, kinds.CLASS_KINDS, "proba")
        return self._recoded(classes, place, kind)

    def _recoded(self, classes: Names, place: IntArray, kind: str) -> Annotations:
        """The same rows with other classes, among which class k is `place[k]`; −1 for one that no row has."""
        proba = None
        if self.proba is not None:
            proba = np.zeros((len(self), classes.size))
            for k in np.flatnonzero(place >= 0):
                proba[:, place[k]] += self.proba[:, k]
        return Annotations.from_codes(
            self.item, self.annotator, place[self.label], self.items, self.annotators, classes,
            weight=self.weight, proba=proba, kind=kind,
        )  # fmt: skip

    def _merge_ticks(self) -> Annotations:
        """A table of sets in which the rows of an item and annotator are one: everything that was ticked there."""
        if self.weight is not None:
            raise DataError("rows of one item and annotator with weights are no set; leave weight= out.")
        sets, place = kinds.vocabulary("sets", self.classes)
        names, ticked = kinds.options_of(sets)
        first = pair_starts(self.item, self.annotator)
        rows = np.flatnonzero(first)
        pairs = np.unique(np.stack([np.cumsum(first) - 1, place[self.label]], axis=1), axis=0)  # a tick may be repeated
        together = np.maximum.reduceat(ticked[pairs[:, 1]], np.searchsorted(pairs[:, 0], np.arange(rows.size)))
        found, label = np.unique(together, axis=0, return_inverse=True)
        classes = np.array([kinds.set_name(names[one]) for one in found], object)
        order = np.argsort(classes, kind="stable")
        return Annotations.from_codes(
            self.item[rows], self.annotator[rows], np.argsort(order)[label.reshape(-1)], self.items, self.annotators,
            classes[order], kind="sets",
        )  # fmt: skip

    def to_classes(self, classes: Names) -> Annotations:
        """Code the labels into other `classes`; a label outside them raises."""
        if classes is self.classes or classes.tolist() == self.classes.tolist():
            return self
        at = naming.match(self.classes, classes, "classes")
        unknown = at[self.label] < 0 if self.proba is None else (self.proba[:, at < 0] > 0).any(axis=1)
        if unknown.any():
            advice = "The classes of a fitted model stay as they are; fit it to all annotations again."
            raise naming.unknown_label(np.asarray(unknown), self.classes[self.label], len(classes), advice=advice)
        return self._recoded(classes, at, self.kind)

    def _mask(self, chosen: Any, among: Names, what: str) -> BoolArray:
        if chosen is None:
            return np.ones(len(among), np.bool_)
        if isinstance(chosen, np.ndarray) and chosen.dtype == np.bool_ and len(chosen) == len(among):
            return unmasked(chosen, False)
        wanted, _ = naming.encode(naming.to_column(chosen, what), what)
        at = naming.match(wanted, among, what)
        if (at < 0).any():
            missing = wanted[at < 0]
            raise DataError(
                f"{what}: {missing.size} of {wanted.size} names are not in the table, as {naming.shown(missing[0])}."
            )
        mask = np.zeros(len(among), np.bool_)
        mask[at] = True
        return mask

    # Showing it -------------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return describe.line_of(self)

    def _repr_html_(self) -> str:
        return describe.html_of(self)


def _check_rows(n: int, annotator: Any, label: Any, n_annotators: int, n_classes: int, weight: Any, proba: Any) -> None:
    """Raise DataError where the columns of n rows are no valid codes, or not equally long."""
    naming.check_codes(annotator, n_annotators, "annotator")
    naming.check_codes(label, n_classes, "label")
    columns = {"annotator": (annotator, (n,)), "label": (label, (n,)), "weight": (weight, (n,))}
    for name, (array, shape) in (columns | {"proba": (proba, (n, n_classes))}).items():
        if array is not None and np.shape(array) != shape:
            raise DataError(f"{name} has the shape {np.shape(array)}; {n:,} annotations need {shape}.")


def _union(parts: Sequence[Names], what: str) -> Names:
    kept = [part for part in parts if part.size]
    for part in kept[1:]:
        naming.match(part[:1], kept[0][:1], what)  # an error where the kinds differ
    return np.unique(np.concatenate(kept)) if kept else parts[0]
