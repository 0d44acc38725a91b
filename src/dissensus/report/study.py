"""The input of all sections: a table, a model fitted to it, and what is known of the items and annotators."""

from __future__ import annotations

import dataclasses
import html
import math
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from dissensus.clustering import Clustering, clusterings
from dissensus.common.formatting import percent
from dissensus.common.types import BoolArray, FloatArray, IntArray, Names
from dissensus.evaluation import Estimate, agreement
from dissensus.exceptions import DataError, DataWarning, MissingColumn
from dissensus.models.base import Aggregator, arg_max, methods
from dissensus.questions.diagnose import Diagnosis, diagnose_classes
from dissensus.questions.explain import Explanation, explain
from dissensus.questions.item_status import is_settled
from dissensus.report.pseudonyms import pseudonyms
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations
from dissensus.table.find_columns import column_names, guess_column, to_arrow
from dissensus.table.io.jsonl import dumps
from dissensus.table.spans import PLACE

MAX_TEXT_LENGTH = 600  # characters of an item's texts that are shown
SHORT_TEXT_LENGTH = 200  # characters of them where they are not the point
MIN_TEXT_LENGTH = 60  # characters that are left of each, however many there are
MIN_MEAN_TEXT_LENGTH = 25  # characters from which a column of the items is a text to read
TEXT_COLUMNS = ("text", "sentence", "question", "prompt")  # columns that are texts however short
HIDDEN_COLUMNS = ("split", "fold", "index")  # columns of the items that say nothing about them
PICTURE = "data:image/"
SAFE_PICTURE = re.compile(r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+")
MAX_PICTURE_LENGTH = 20_000  # characters
MAX_SHARES = 4  # classes in a bar; the others are one
N_COLORS = 8  # classes that have a colour each; of more classes, those of a bar have a colour by their rank


@dataclass(eq=False, repr=False)
class Study:
    """The input of every section. Names are as they are to be shown; arrays are in the order of the table."""

    table: Annotations
    fitted: Aggregator
    _: KW_ONLY
    gold: Any = None  # (I,) codes, −1 unknown; of numbers floats, NaN unknown
    known: Any = None  # the same of items from which `fitted` learnt
    items: Any = None  # column → (I,)
    annotators: Any = None  # column → (A,)
    show: Sequence[str] = ()  # columns of `annotators` that are printed
    names: bool = False
    salt: str = ""
    methods: Iterable[str] | None = None
    clustering: Clustering | None = None
    search: Any = None  # criterion, points, best
    model: Any = None  # a fitted CrowdClassifier; Any, because naming its type would bring torch
    out_of_fold: Any = None
    seed: int = 0
    on_step: Any = None

    # Names ------------------------------------------------------------------------------------------------------------

    @cached_property
    def classes(self) -> list[str]:
        """(K,) names of the classes as they are shown."""
        return distinct(self.table.classes.tolist(), 60)

    @cached_property
    def item_names(self) -> list[str]:
        """(I,) names of the items as they are shown."""
        return distinct(self.table.items.tolist(), 100)

    @cached_property
    def annotator_names(self) -> list[str]:
        """(A,) pseudonyms of the annotators, or their names where `names` asks for them."""
        if self.names:
            return distinct(self.table.annotators.tolist(), 60)
        return pseudonyms(self.table.annotators.tolist(), self.salt)

    @cached_property
    def annotator_place(self) -> IntArray:
        """(A,) place of each annotator in the order of `annotator_names`: all lists stand in it, and ties too.

        The codes of a table are in the order of the real names, which pseudonyms must not tell.
        """
        if self.names:
            return np.arange(self.table.n_annotators, dtype=np.int32)
        return np.argsort(np.argsort(self.annotator_names, kind="stable")).astype(np.int32)

    def about_annotator(self, code: int) -> dict[str, str]:
        """What `show` asks for of an annotator: column → value."""
        return {name: shown(self.annotators[name][code], 80) for name in self.show if self.annotators[name][code]}

    @cached_property
    def text_columns(self) -> list[str]:
        """The columns of the items that a person would read."""
        texts = []
        for name, values in self.items.items():
            some = [value for value in values[:500] if isinstance(value, str) and value]
            long = sum(map(len, some)) >= MIN_MEAN_TEXT_LENGTH * max(len(some), 1) and name not in HIDDEN_COLUMNS
            if (name in TEXT_COLUMNS or long) and not (some and some[0].startswith(PICTURE)):
                texts.append(name)
        return texts

    @cached_property
    def picture_column(self) -> str | None:
        """The column of the items that holds pictures, as data URIs."""
        for name, values in self.items.items():
            first = next((value for value in values if isinstance(value, str) and value), "")
            if first.startswith(PICTURE):
                return str(name)
        return None

    def picture(self, item: int) -> str | None:
        """The picture of an item, where it is small enough to be shown."""
        value = self.items[self.picture_column][item] if self.picture_column else None
        safe = isinstance(value, str) and len(value) <= MAX_PICTURE_LENGTH and SAFE_PICTURE.fullmatch(value)
        return value if safe else None

    def texts(self, item: int, max_length: int = MAX_TEXT_LENGTH) -> list[str]:
        """The texts of an item, one per column; empty ones are left out."""
        values = [self.items[name][item] for name in self.text_columns]
        cut = max(max_length // max(len(values), 1), MIN_TEXT_LENGTH)
        return [shown(html.unescape(str(value)), cut) for value in values if value]  # exports often escape texts

    def other_columns(self, item: int) -> dict[str, str]:
        """What else is known of an item: column → value."""
        used = (*self.text_columns, self.picture_column, *HIDDEN_COLUMNS)
        there = {name: values[item] for name, values in self.items.items() if name not in used}
        return {name: shown(value, 120) for name, value in there.items() if value not in (None, "")}

    def about(self, item: int, max_length: int = SHORT_TEXT_LENGTH) -> dict[str, Any]:
        """Name and texts of an item, as far as they are known."""
        texts = {"texts": self.texts(item, max_length)} if self.text_columns else {}
        return {"item": self.item_names[item], **texts}

    def about_with_votes(self, item: int, max_length: int = SHORT_TEXT_LENGTH) -> dict[str, Any]:
        """Name, texts, picture, votes and gold of an item, as far as they are known."""
        result = self.about(item, max_length) | {
            "votes": shares(self.votes[item], self.classes),
            "labels": int(self.labels_per_item[item]),
        }
        if self.picture_column:
            result["picture"] = self.picture(item)
        if self.gold is not None:
            result["gold"] = self.classes[self.gold[item]] if self.gold[item] >= 0 else None
        return result

    # What is worked out once, for several sections --------------------------------------------------------------------

    @property
    def method(self) -> str:
        """The method's name."""
        kind = type(self.fitted)
        return clusterings.name_of(kind) if issubclass(kind, Clustering) else methods.name_of(kind)

    @cached_property
    def label(self) -> IntArray:
        """(I,) code of the label of each item."""
        fitted = self.fitted
        return arg_max(fitted.posterior_, fitted.items_, fitted.classes_, fitted.tie_seed_)

    @cached_property
    def confidence(self) -> FloatArray:
        """(I,) probability of the label."""
        return np.asarray(self.fitted.posterior_.max(axis=1, initial=0))

    @cached_property
    def settled(self) -> BoolArray:
        """(I,) which items are settled."""
        return is_settled(self.confidence, self.table.ratings_per_item, self.known)

    @cached_property
    def votes(self) -> FloatArray:
        """(I, K) how often each class was given."""
        return self.table.votes()

    @cached_property
    def labels_per_item(self) -> IntArray:
        """(I,) how many labels each item has."""
        return np.diff(self.table.item_ptr)

    @cached_property
    def agreement(self) -> dict[str, Estimate] | None:
        """How far labels agree; None where no two annotators labelled one item."""
        table = self.table if self.table.weight is None else self.table.select(rows=self.table.weight > 0)
        if not (table.ratings_per_item > 1).any():
            return None
        with warnings.catch_warnings(action="ignore", category=DataWarning):  # weights do not count, as the page says
            scale: Any = "ordinal" if self.table.kind == "graded" else "nominal"
            return agreement(self.table, scale=scale, seed=self.seed)

    @cached_property
    def diagnosis(self) -> Diagnosis:
        """Flags of annotators with their reasons."""
        self.on_step("looking at the annotators")
        table, place = self.table, self.annotator_place
        named = Annotations.from_codes(  # under the names that are shown, in its sentences too
            table.item, place[table.annotator], table.label, table.items,
            np.array(self.annotator_names, object)[np.argsort(place)], table.classes, weight=table.weight,
            proba=table.proba, kind=table.kind,
        )  # fmt: skip
        found = diagnose_classes(named, threads=self.fitted.get_params().get("threads"))
        measures = ("annotators", "labels", "honest", "unrelated", "contrary", "copied")
        by_code: dict[str, Any] = {name: getattr(found, name)[place] for name in measures}
        return dataclasses.replace(found, said=tuple(found.said[at] for at in place), **by_code)

    def document_text(self, name: str) -> str | list[str] | None:
        """The text of a document of spans, or its tokens where places are tokens; None where it is not known."""
        at = naming.match(np.array([name], object), self.table.sequences.documents, "documents")[0]
        text = next((str(self.items[one][at]) for one in self.text_columns if self.items[one][at]), None)
        if text is None:
            return None
        if "-" in str(self.table.items[0]).rpartition(PLACE)[2]:
            return text
        where = self.table.sequences
        tokens = text.split()
        return tokens if len(tokens) >= int(where.end[where.document == at].max()) else None

    @cached_property
    def explanation(self) -> Explanation:
        """Why labels disagree."""
        self.on_step("looking at the items")
        people = {"annotator": self.table.annotators, **self.annotators} if self.annotators else None
        return explain(self.table, self.fitted, annotators=people, seed=self.seed)


def aligned(frame: Any, role: str, names: Names) -> dict[str, list[Any]]:
    """Return the columns of a frame with one value for each of `names`; None where the frame has no such row."""
    if frame is None:
        return {}
    if isinstance(frame, Mapping):
        frame = pa.table(dict(frame))
    columns = column_names(frame)
    key = guess_column(role, columns)
    if key is None:
        raise MissingColumn(f"the frame about {role}s has no column '{role}'; its columns are {', '.join(columns)}.")
    data = to_arrow(frame, columns)
    found = _in_kind_of(data.pop(key), names)
    row_names, code = naming.encode(found, role)
    if not row_names.size:
        raise DataError(f"the frame about {role}s has no rows.")
    at = naming.match(names, row_names, f"{role}s")
    if (at < 0).all():
        raise DataError(
            f"none of the {len(code):,} {role}s described is in the table, such as {naming.shown(row_names[0])}; "
            f"is '{key}' the right column?"
        )
    first = np.unique(code, return_index=True)[1]  # of rows with one name, the first
    rows = np.where(at >= 0, first[at], -1)
    chosen = pa.array(rows, mask=rows < 0)
    return {name: column.take(chosen).to_pylist() for name, column in data.items()}


def _in_kind_of(column: Any, names: Names) -> Any:
    """Convert a column of names to the type of the table's names, where that is possible."""
    integers = names.dtype.kind in "iu"
    with suppress(pa.ArrowInvalid):
        if integers != pa.types.is_integer(column.type):
            return column.cast(pa.int64() if integers else pa.string())
    return column


def shown(value: Any, longest: int) -> str:
    """Return a value as text without control characters, cut to a length."""
    text = "".join(c if c.isprintable() or c == "\n" else " " for c in str(value)).strip()
    return text if len(text) <= longest else text[: longest - 1] + "…"


def distinct(names: Sequence[Any], longest: int) -> list[str]:
    """Return names as text; names that are cut to the same text get a number."""
    result = [shown(name, longest) for name in names]
    if len(set(result)) == len(result):
        return result
    times = Counter(result)
    return [f"{name} #{number}" if times[name] > 1 else name for number, name in enumerate(result)]


def first_within(rows: Iterable[Any], max_characters: int) -> list[Any]:
    """Return as many of the first rows as fit into so many characters of JSON."""
    kept = []
    for row in rows:
        max_characters -= len(dumps(row))
        if max_characters < 0:
            break
        kept.append(row)
    return kept


def shares(weights: FloatArray, classes: list[str]) -> list[list[Any]]:
    """Return [class, share, number of its colour] of the largest classes; the others become one."""
    total = float(weights.sum())
    order: IntArray = np.argsort(-weights, kind="stable")
    order = order[weights[order] > 0.005 * max(total, 1e-300)]
    parts = [
        [classes[k], plain(weights[k] / total, 3), rank if len(classes) > N_COLORS else k]
        for rank, k in enumerate(order[:MAX_SHARES].tolist())
    ]
    rest = float(weights[order[MAX_SHARES:]].sum())
    return [*parts, ["other", plain(rest / total, 3), -1]] if rest > 0 else parts


def plain(value: Any, digits: int = 5) -> Any:
    """Convert to values that JSON has: floats with so many significant digits, NaN and infinity as None."""
    if isinstance(value, Estimate):
        return facts_of(value, "value", "low", "high")
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(one, digits) for one in value]
    if isinstance(value, dict):
        return {str(key): plain(one, digits) for key, one in value.items()}
    if isinstance(value, float):
        return float(f"{value:.{digits}g}") if math.isfinite(value) else None
    return value


def entries(i: int, digits: int = 3, **arrays: Any) -> dict[str, Any]:
    """Return the i-th entry of each array, as plain values."""
    return {key: plain(values[i], digits) for key, values in arrays.items()}


def some_of(rows: Sequence[Any], total: int, words: str = "are here.", before: str = " ") -> str:
    """Say how many of all are shown; "" where all are."""
    return f"{before}{len(rows):,} of {total:,} {words}".rstrip() if len(rows) < total else ""


def facts_of(thing: Any, *names: str) -> dict[str, Any]:
    """Return these attributes as plain values."""
    return {name: plain(getattr(thing, name)) for name in names}


def range_text(counts: Any) -> str:
    """Say from what to what some counts are."""
    low, high = (int(end(counts)) if len(counts) else 0 for end in (min, max))
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def interval_text(facts: Mapping[str, float]) -> str:
    """Return the interval of an estimate in per cent."""
    return f"{percent(facts['low'], 1)} to {percent(facts['high'], 1)}"
