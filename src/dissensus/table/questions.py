"""Several questions about the same items, with one table per question."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from html import escape
from numbers import Integral
from typing import Any

import numpy as np

from dissensus.table import exceptions as errors
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations


class Questions(dict[str, Annotations]):
    """A mapping from each question to its table; all questions are about the same items and annotators.

    >>> from dissensus import Questions
    >>> found = Questions.from_ticks(["rude", "rude", "off-topic"], ["a", "b", "a"], ["x", "x", "y"])
    >>> found
    Questions: 2
      off-topic: Annotations: 3 annotations of 2 items by 2 annotators, 2 classes (0, 1), 1.5 per item
      rude: Annotations: 3 annotations of 2 items by 2 annotators, 2 classes (0, 1), 1.5 per item
    >>> found["rude"].n_annotations
    3
    >>> Questions.from_arrays(["rude", "topic"], ["a", "a"], ["x", "x"], ["no", "art"])["topic"].classes
    array(['art'], dtype=object)
    """

    def __repr__(self) -> str:
        rows = "".join(f"\n  {name}: {table!r}" for name, table in self.items())
        return f"Questions: {len(self)}{rows}"

    def _repr_html_(self) -> str:
        return "".join(f"<h4>{escape(name)}</h4>{table._repr_html_()}" for name, table in self.items())

    @classmethod
    def from_arrays(
        cls,
        question: Any,
        item: Any,
        annotator: Any,
        label: Any,
        classes: Iterable[Any] | int | None = None,
        *,
        weight: Any = None,
        abstain: Any = (),
        items: Any = None,
    ) -> Questions:
        """Make one table per distinct value of `question`; all tables have the same items and annotators.

        Parameters
        ----------
        question, item, annotator, label : (N,)
        classes : list of names, or their number, optional
            The classes of all tables. By default, the classes of each table are its labels.
        weight, abstain, items
            As in `Annotations.from_arrays`.

        Returns
        -------
        Questions
        """
        classes = classes if classes is None or isinstance(classes, Integral) else list(classes)  # type: ignore[arg-type]
        weight = None if weight is None else naming.check_weight(weight)
        question_names, question_code = naming.encode_column(naming.to_column(question, "question"), "question")
        item, annotator, label = map(naming.to_arrow_array, (item, annotator, label), ("item", "annotator", "label"))
        items, item_code = naming.encode_names(item, "item", items)
        annotators, _ = naming.encode_column(annotator, "annotator")
        n_asked = np.unique(item_code).size
        pairs = np.unique(question_code.astype(np.int64) * items.size + item_code).size
        if question_names.size == pairs == n_asked > 2:
            warnings.warn(errors.QuestionPerItem(n_items=n_asked), stacklevel=2)
        tables = {}
        for code, name in enumerate(question_names):
            rows = np.flatnonzero(question_code == code)
            tables[str(name)] = Annotations.from_arrays(
                item.take(rows), annotator.take(rows), label.take(rows), classes,
                weight=None if weight is None else weight[rows], abstain=abstain, items=items, annotators=annotators,
            )  # fmt: skip
        return cls(tables)

    @classmethod
    def from_ticks(cls, question: Any, item: Any, annotator: Any, items: Any = None) -> Questions:
        """Make one yes/no table per question from a list of selected options.

        Each (item, annotator) pair that occurs in the list answers every question: "1" if the option is selected, else
        "0".

        Parameters
        ----------
        question, item, annotator : (N,)
            The selected options.
        items : list of names, optional
            All items, if some of them have no annotation.

        Returns
        -------
        Questions
        """
        question_names, question_code = naming.encode_column(naming.to_column(question, "question"), "question")
        items, item_code = naming.encode_names(naming.to_column(item, "item"), "item", items)
        annotators, annotator_code = naming.encode_column(naming.to_column(annotator, "annotator"), "annotator")
        pairs, pair_code = np.unique(item_code.astype(np.int64) * len(annotators) + annotator_code, return_inverse=True)
        classes = np.array(["0", "1"], object)
        tables = {}
        for code, name in enumerate(question_names):
            ticked = np.zeros(pairs.size, np.int8)
            ticked[pair_code[question_code == code]] = 1
            tables[str(name)] = Annotations.from_codes(
                pairs // len(annotators), pairs % len(annotators), ticked, items, annotators, classes
            )
        return cls(tables)
