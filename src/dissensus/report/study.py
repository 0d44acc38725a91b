"""The input of all sections: a table, a fitted method, and information about items and annotators."""

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
from dissensus.common.formatting import format_percent
from dissensus.common.types import BoolArray, FloatArray, IntArray, Names
from dissensus.evaluation import Estimate, agreement
from dissensus.exceptions import DataWarning
from dissensus.messages import quote_name
from dissensus.models.base import Aggregator, arg_max, methods
from dissensus.questions.diagnose import Diagnosis, diagnose_classes
from dissensus.questions.explain import Explanation, explain
from dissensus.questions.item_status import is_settled
from dissensus.report.exceptions import EmptyFrame, NamesOfOtherTable, NoKeyColumn
from dissensus.report.pseudonyms import make_pseudonyms
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations
from dissensus.table.find_columns import column_names, guess_column, to_arrow
from dissensus.table.io.jsonl import dumps
from dissensus.table.spans import POSITION_SEPARATOR

MAX_TEXT_LENGTH = 600  # characters of an item's texts in the table of items
SHORT_TEXT_LENGTH = 200  # characters of an item's texts in other tables
MIN_TEXT_LENGTH = 60  # An item's texts are never cut to fewer characters than this.
MIN_MEAN_TEXT_LENGTH = 25  # Columns of the items with a greater mean length in characters are texts.
TEXT_COLUMNS = ("text", "sentence", "question", "prompt")  # These columns are texts whatever their length.
HIDDEN_COLUMNS = ("split", "fold", "index")  # These columns of the items are not shown.
PICTURE_PREFIX = "data:image/"
SAFE_PICTURE_PATTERN = re.compile(r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+")
MAX_PICTURE_LENGTH = 20_000  # characters
MAX_SHOWN_SHARES = 4  # classes shown in a bar; all others are merged
N_COLORS = 8  # colours; if there are more classes, the classes of a bar are coloured by rank


@dataclass(eq=False, repr=False)
class Study:
    """The input of every section: names as the page shows them, and arrays in the order of the table."""

    table: Annotations
    fitted: Aggregator
    _: KW_ONLY
    gold: Any = None  # (I,) class codes, −1 where unknown; for numeric labels floats, NaN where unknown
    training_gold: Any = None  # gold labels, in the same form, that were used for training `fitted`
    items: Any = None  # column → (I,)
    annotators: Any = None  # column → (A,)
    show: Sequence[str] = ()  # columns of `annotators` that the page prints
    names: bool = False
    salt: str = ""
    methods: Iterable[str] | None = None
    clustering: Clustering | None = None
    search: Any = None  # mapping with criterion, points and best
    model: Any = None  # a fitted CrowdClassifier; its type is not named because that would import torch
    out_of_fold: Any = None
    seed: int = 0
    on_step: Any = None

    # Names ------------------------------------------------------------------------------------------------------------

    @cached_property
    def classes(self) -> list[str]:
        """Return the (K,) class names as the page shows them."""
        return make_distinct_names(self.table.classes.tolist(), 60)

    @cached_property
    def item_names(self) -> list[str]:
        """Return the (I,) item names as the page shows them."""
        return make_distinct_names(self.table.items.tolist(), 100)

    @cached_property
    def annotator_names(self) -> list[str]:
        """Return the (A,) pseudonyms of the annotators, or their names if `names` is set."""
        if self.names:
            return make_distinct_names(self.table.annotators.tolist(), 60)
        return make_pseudonyms(self.table.annotators.tolist(), self.salt)

    @cached_property
    def annotator_rank(self) -> IntArray:
        """Return the (A,) rank of each annotator by shown name, which orders all lists and breaks ties.

        The codes of a table follow the real names, and pseudonyms must not reveal the order of these.
        """
        if self.names:
            return np.arange(self.table.n_annotators, dtype=np.int32)
        return np.argsort(np.argsort(self.annotator_names, kind="stable")).astype(np.int32)

    def annotator_columns(self, code: int) -> dict[str, str]:
        """Return an annotator's values of the `show` columns, by column."""
        return {
            name: shorten_text(self.annotators[name][code], 80) for name in self.show if self.annotators[name][code]
        }

    @cached_property
    def text_columns(self) -> list[str]:
        """Return the columns of the items that contain texts."""
        texts = []
        for name, values in self.items.items():
            some = [value for value in values[:500] if isinstance(value, str) and value]
            long = sum(map(len, some)) >= MIN_MEAN_TEXT_LENGTH * max(len(some), 1) and name not in HIDDEN_COLUMNS
            if (name in TEXT_COLUMNS or long) and not (some and some[0].startswith(PICTURE_PREFIX)):
                texts.append(name)
        return texts

    @cached_property
    def picture_column(self) -> str | None:
        """Return the column of the items that contains pictures as data URIs, or None."""
        for name, values in self.items.items():
            first = next((value for value in values if isinstance(value, str) and value), "")
            if first.startswith(PICTURE_PREFIX):
                return str(name)
        return None

    def picture(self, item: int) -> str | None:
        """Return the picture of an item, or None if it has none that is safe and small enough."""
        value = self.items[self.picture_column][item] if self.picture_column else None
        safe = isinstance(value, str) and len(value) <= MAX_PICTURE_LENGTH and SAFE_PICTURE_PATTERN.fullmatch(value)
        return value if safe else None

    def texts(self, item: int, max_length: int = MAX_TEXT_LENGTH) -> list[str]:
        """Return the non-empty texts of an item, one per column."""
        values = [self.items[name][item] for name in self.text_columns]
        cut = max(max_length // max(len(values), 1), MIN_TEXT_LENGTH)
        return [
            shorten_text(html.unescape(str(value)), cut) for value in values if value
        ]  # Exports often escape texts.

    def other_columns(self, item: int) -> dict[str, str]:
        """Return an item's values in all columns that are neither texts nor pictures, by column."""
        used = (*self.text_columns, self.picture_column, *HIDDEN_COLUMNS)
        there = {name: values[item] for name, values in self.items.items() if name not in used}
        return {name: shorten_text(value, 120) for name, value in there.items() if value not in (None, "")}

    def describe_item(self, item: int, max_length: int = SHORT_TEXT_LENGTH) -> dict[str, Any]:
        """Return the name and the texts of an item."""
        texts = {"texts": self.texts(item, max_length)} if self.text_columns else {}
        return {"item": self.item_names[item], **texts}

    def describe_item_with_votes(self, item: int, max_length: int = SHORT_TEXT_LENGTH) -> dict[str, Any]:
        """Return the name, texts, picture, votes and gold label of an item, as far as they are known."""
        result = self.describe_item(item, max_length) | {
            "votes": list_largest_shares(self.votes[item], self.classes),
            "labels": int(self.labels_per_item[item]),
        }
        if self.picture_column:
            result["picture"] = self.picture(item)
        if self.gold is not None:
            result["gold"] = self.classes[self.gold[item]] if self.gold[item] >= 0 else None
        return result

    # Results that several sections share ------------------------------------------------------------------------------

    @property
    def method(self) -> str:
        """Return the name of the method."""
        kind = type(self.fitted)
        return clusterings.get_name(kind) if issubclass(kind, Clustering) else methods.get_name(kind)

    @cached_property
    def label(self) -> IntArray:
        """Return the (I,) code of the inferred label of each item."""
        fitted = self.fitted
        return arg_max(fitted.posterior_, fitted.items_, fitted.classes_, fitted.tie_seed_)

    @cached_property
    def confidence(self) -> FloatArray:
        """Return the (I,) probability of the inferred label."""
        return np.asarray(self.fitted.posterior_.max(axis=1, initial=0))

    @cached_property
    def is_settled(self) -> BoolArray:
        """Return the (I,) mask of settled items."""
        return is_settled(self.confidence, self.table.annotators_per_item, self.training_gold)

    @cached_property
    def votes(self) -> FloatArray:
        """Return the (I, K) number of votes for each class."""
        return self.table.votes()

    @cached_property
    def labels_per_item(self) -> IntArray:
        """Return the (I,) number of labels of each item."""
        return np.diff(self.table.item_ptr)

    @cached_property
    def agreement(self) -> dict[str, Estimate] | None:
        """Return agreement coefficients, or None if no two annotators labelled the same item."""
        table = self.table if self.table.weight is None else self.table.select(rows=self.table.weight > 0)
        if not (table.annotators_per_item > 1).any():
            return None
        with warnings.catch_warnings(
            action="ignore", category=DataWarning
        ):  # The page states that weights are ignored.
            scale: Any = "ordinal" if self.table.kind == "graded" else "nominal"
            return agreement(self.table, scale=scale, seed=self.seed)

    @cached_property
    def diagnosis(self) -> Diagnosis:
        """Return the flags of annotators with their reasons, in the names that the page shows."""
        self.on_step("looking at the annotators")
        table, place = self.table, self.annotator_rank
        named = Annotations.from_codes(  # The reasons name annotators, so they must be found under the shown names.
            table.item, place[table.annotator], table.label, table.items,
            np.array(self.annotator_names, object)[np.argsort(place)], table.classes, weight=table.weight,
            proba=table.proba, kind=table.kind,
        )  # fmt: skip
        found = diagnose_classes(named, threads=self.fitted.get_params().get("threads"))
        measures = ("annotators", "labels", "p_typical", "p_unrelated", "p_contrary", "share_copied")
        by_code: dict[str, Any] = {name: getattr(found, name)[place] for name in measures}
        return dataclasses.replace(found, flag_messages=tuple(found.flag_messages[at] for at in place), **by_code)

    def document_text(self, name: str) -> str | list[str] | None:
        """Return the text of a document, or its tokens if positions are tokens; None if the text is unknown."""
        at = naming.match_names(np.array([name], object), self.table.sequences.documents, "documents")[0]
        text = next((str(self.items[one][at]) for one in self.text_columns if self.items[one][at]), None)
        if text is None:
            return None
        if "-" in str(self.table.items[0]).rpartition(POSITION_SEPARATOR)[2]:
            return text
        where = self.table.sequences
        tokens = text.split()
        return tokens if len(tokens) >= int(where.end[where.document == at].max()) else None

    @cached_property
    def explanation(self) -> Explanation:
        """Return the reasons why labels disagree."""
        self.on_step("looking at the items")
        people = {"annotator": self.table.annotators, **self.annotators} if self.annotators else None
        return explain(self.table, self.fitted, annotators=people, seed=self.seed)


def align_frame(frame: Any, role: str, names: Names) -> dict[str, list[Any]]:
    """Return the columns of a frame in the order of `names`, with None for names without a row."""
    if frame is None:
        return {}
    if isinstance(frame, Mapping):
        frame = pa.table(dict(frame))
    columns = column_names(frame)
    key = guess_column(role, columns)
    if key is None:
        raise NoKeyColumn(role=role, columns=tuple(columns))
    data = to_arrow(frame, columns)
    found = _cast_like_names(data.pop(key), names)
    row_names, code = naming.encode_column(found, role)
    if not row_names.size:
        raise EmptyFrame(role=role)
    at = naming.match_names(names, row_names, f"{role}s")
    if (at < 0).all():
        raise NamesOfOtherTable(rows=len(code), role=role, name=quote_name(row_names[0]), column=key)
    first = np.unique(code, return_index=True)[1]  # If a name has several rows, the first one counts.
    rows = np.where(at >= 0, first[at], -1)
    chosen = pa.array(rows, mask=rows < 0)
    return {name: column.take(chosen).to_pylist() for name, column in data.items()}


def _cast_like_names(column: Any, names: Names) -> Any:
    """Return a column of names in the type of the table's names, or unchanged if it cannot be converted."""
    integers = names.dtype.kind in "iu"
    with suppress(pa.ArrowInvalid):
        if integers != pa.types.is_integer(column.type):
            return column.cast(pa.int64() if integers else pa.string())
    return column


def shorten_text(value: Any, longest: int) -> str:
    """Return a value as text without control characters, cut to `longest` characters."""
    text = "".join(c if c.isprintable() or c == "\n" else " " for c in str(value)).strip()
    return text if len(text) <= longest else text[: longest - 1] + "…"


def make_distinct_names(names: Sequence[Any], longest: int) -> list[str]:
    """Return names as shortened texts; texts that are equal after shortening are numbered."""
    result = [shorten_text(name, longest) for name in names]
    if len(set(result)) == len(result):
        return result
    times = Counter(result)
    return [f"{name} #{number}" if times[name] > 1 else name for number, name in enumerate(result)]


def limit_json_size(rows: Iterable[Any], max_characters: int) -> list[Any]:
    """Return as many of the first rows as fit into `max_characters` of JSON."""
    kept = []
    for row in rows:
        max_characters -= len(dumps(row))
        if max_characters < 0:
            break
        kept.append(row)
    return kept


def list_largest_shares(weights: FloatArray, classes: list[str]) -> list[list[Any]]:
    """Return [class, share, colour number] of the largest classes; all other classes are merged."""
    total = float(weights.sum())
    order: IntArray = np.argsort(-weights, kind="stable")
    order = order[weights[order] > 0.005 * max(total, 1e-300)]
    parts = [
        [classes[k], to_plain(weights[k] / total, 3), rank if len(classes) > N_COLORS else k]
        for rank, k in enumerate(order[:MAX_SHOWN_SHARES].tolist())
    ]
    rest = float(weights[order[MAX_SHOWN_SHARES:]].sum())
    return [*parts, ["other", to_plain(rest / total, 3), -1]] if rest > 0 else parts


def to_plain(value: Any, digits: int = 5) -> Any:
    """Convert values to JSON values: floats with `digits` significant digits, NaN and infinity as None."""
    if isinstance(value, Estimate):
        return extract_attributes(value, "value", "low", "high")
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [to_plain(one, digits) for one in value]
    if isinstance(value, dict):
        return {str(key): to_plain(one, digits) for key, one in value.items()}
    if isinstance(value, float):
        return float(f"{value:.{digits}g}") if math.isfinite(value) else None
    return value


def extract_entry(i: int, digits: int = 3, **arrays: Any) -> dict[str, Any]:
    """Return the i-th entry of each array as plain values, by name."""
    return {key: to_plain(values[i], digits) for key, values in arrays.items()}


def format_shown_count(rows: Sequence[Any], total: int, words: str = "are here.", before: str = " ") -> str:
    """Return the words "12 of 30 …", or "" if all rows are shown."""
    return f"{before}{len(rows):,} of {total:,} {words}".rstrip() if len(rows) < total else ""


def extract_attributes(thing: Any, *names: str) -> dict[str, Any]:
    """Return attributes of an object as plain values, by name."""
    return {name: to_plain(getattr(thing, name)) for name in names}


def format_range(counts: Any) -> str:
    """Return the range of counts as text, such as "4 to 6"."""
    low, high = (int(end(counts)) if len(counts) else 0 for end in (min, max))
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def format_interval(facts: Mapping[str, float]) -> str:
    """Return the interval of an estimate as text, in per cent."""
    return f"{format_percent(facts['low'], 1)} to {format_percent(facts['high'], 1)}"
