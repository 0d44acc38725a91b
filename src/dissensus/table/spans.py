"""Convert spans to tags of positions in documents, and back.

An item is a position in a document, and its labels are tags. The tag is O outside of spans, B-x at the beginning of a
span of type x, and I-x inside of the span. The name of an item contains its position, so the order of items is also
known in derived tables:

    "doc @ 00012"          token 12 of the document
    "doc @ 00012-00017"    characters 12 to 16

A document is a sequence of tokens without gaps, or of pieces of text given by their characters. If no span may cross
the boundaries of certain parts, such as sentences, these parts should be separate documents ("doc/sentence").
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dissensus.common.types import BoolArray, IntArray, Names
from dissensus.table import exceptions as errors
from dissensus.table import names as naming

POSITION_SEPARATOR = " @ "  # separates a document and a position in it
OUTSIDE_TAG = "O"
MIN_OVERLAPPING_SHARE = 0.01  # If a smaller share of spans overlaps, they are treated as mistakes.
_WORD_PATTERN = re.compile(r"\w+|[^\w\s]")
_POSITION_PATTERN = r"^(?P<document>(?s:.*)) @ (?P<start>[0-9]{1,15})(?:-(?P<end>[0-9]{1,15}))?$"


class Sequences(NamedTuple):
    """The positions of items in documents, and their reading order."""

    documents: Names  # (D,) sorted
    document: IntArray  # (I,) code into documents
    start: IntArray  # (I,)
    end: IntArray  # (I,) exclusive
    order: IntArray  # (I,) items in reading order
    ptr: IntArray  # (S+1,) sequence s is order[ptr[s]:ptr[s+1]]


class TagScheme(NamedTuple):
    """The meaning of each tag, and which tags may follow it."""

    types: list[str | None]  # (K,) type of the span of each tag; None for tags outside of spans
    inside: IntArray  # (K,) code of the tag that continues the span; −1 outside of spans, −2 if there is none
    starts: BoolArray  # (K,) True for tags at which a sequence may begin
    follows: BoolArray  # (K, K) [before, after] True for tags that may follow each other


def name_positions(document: Sequence[Any], start: Any, end: Any = None) -> list[str]:
    """Return the names of items at tokens `start`, or at characters `start` to `end` (exclusive)."""
    if end is None:
        return [f"{name}{POSITION_SEPARATOR}{at:05d}" for name, at in zip(document, start, strict=True)]
    return [f"{name}{POSITION_SEPARATOR}{at:05d}-{to:05d}" for name, at, to in zip(document, start, end, strict=True)]


def parse_sequences(items: Names) -> Sequences:
    """Return the positions and the reading order of items, parsed from their names."""
    matches = pc.extract_regex(pa.array(items, pa.string()), _POSITION_PATTERN)
    if matches.null_count:
        raise errors.InvalidPosition(item=items[matches.is_null().to_pylist().index(True)])
    parts = {name: matches.field(name) for name in ("document", "start", "end")}
    documents, document = naming.encode_column(parts["document"], "document")
    start = parts["start"].cast(pa.int64()).to_numpy()
    token = np.asarray(pc.equal(parts["end"], "").to_numpy(zero_copy_only=False))
    end = start + 1
    end[~token] = parts["end"].filter(pa.array(~token)).cast(pa.int64()).to_numpy()
    if (end <= start).any():
        raise errors.InvalidPosition(item=items[(end <= start).argmax()])
    order = np.lexsort((end, start, document))
    before, after = order[:-1], order[1:]
    cut = document[before] != document[after]
    cut |= token[after] & (end[before] != start[after])  # A missing token ends the sequence.
    cut |= ~token[after] & (end[before] > start[after])
    if (wrong := cut & (document[before] == document[after]) & (end[before] > start[after])).any():
        at = int(wrong.argmax())
        raise errors.OverlappingPositions(item=items[before[at]], other_item=items[after[at]])
    ptr = np.flatnonzero(np.concatenate([[True], cut, [True]])) if order.size else np.zeros(1, np.int64)
    return Sequences(documents, document, start, end, order, ptr)


def parse_tag_scheme(classes: Iterable[Any]) -> TagScheme:
    """Return the meaning of tags; I-x may follow only B-x or I-x, and any other tag may follow every tag."""
    names = [str(name) for name in classes]
    types = [name[2:] if name[:2] in ("B-", "I-") else None for name in names]
    code = {name: k for k, name in enumerate(names)}
    inside = np.array([-1 if kind is None else code.get(f"I-{kind}", -2) for kind in types], np.int64)
    is_inside = np.array([name[:2] == "I-" for name in names], bool)
    same = np.array([[kind is not None and kind == other for other in types] for kind in types], bool)
    return TagScheme(types, inside, ~is_inside, ~is_inside[None, :] | same.reshape(len(names), len(names)))


def extract_spans(items: Names, classes: Names, tags: IntArray, probability: Any = None) -> dict[str, Any]:
    """Return the columns document, start, end and label of the spans in tags (I,), in reading order.

    A span begins at B-x, or at an I-x that does not continue a span. If `probability` (I,) is given, the column
    probability holds the value of the first item of each span.
    """
    sequences, scheme = parse_sequences(items), parse_tag_scheme(classes)
    types = np.array([scheme.types.index(kind) if kind is not None else -1 for kind in scheme.types], np.int64)
    tag = np.asarray(tags)[sequences.order]
    follows = np.concatenate([[False], scheme.follows[tag[:-1], tag[1:]]]) & ~scheme.starts[tag]
    follows[sequences.ptr[:-1]] = False
    begins = (types[tag] >= 0) & ~follows
    first = np.flatnonzero(begins)
    last = np.flatnonzero((types[tag] >= 0) & ~np.append(follows[1:], False))
    first_items = sequences.order[first]
    columns: dict[str, Any] = {
        "document": sequences.documents[sequences.document[first_items]],
        "start": sequences.start[first_items],
        "end": sequences.end[sequences.order[last]],
        "label": np.array([scheme.types[k] for k in tag[first].tolist()], object),
    }
    return columns if probability is None else columns | {"probability": np.asarray(probability)[first_items]}


SpanRow = tuple[Any, Any, int, int, Any]  # document, annotator, start, end (exclusive), label


class TagRows(NamedTuple):
    """Columns of a table of tags, and the numbers of excluded spans."""

    item: Names  # (N,) positions
    annotator: Names
    label: Names  # (N,) tags
    question: Names
    n_overlapping: int  # excluded spans that overlap an earlier span
    n_empty: int  # excluded spans without a character or token


def convert_spans_to_tags(
    layers: Mapping[str, Iterable[SpanRow]],
    readings: Iterable[tuple[Any, Any]] = (),
    texts: Mapping[Any, str] | None = None,
    tokens: Mapping[Any, int] | None = None,
) -> TagRows:
    """Convert the spans of each question to tags, one row per question, annotator and position.

    An annotator who marked a span in a document has read it for all questions; `readings` are further (document,
    annotator) pairs, whose positions get the tag O. Positions are the tokens of a document if `tokens` counts them.
    Otherwise they are the words of its text in `texts`, cut where spans begin and end, or without a text the pieces
    between those cuts. If spans of one annotator overlap, the first one is kept; of those with equal starts, the
    longest.
    """
    by_reader: dict[Any, dict[Any, dict[str, list[tuple[int, int, str]]]]] = {}
    for document, annotator in readings:
        by_reader.setdefault(document, {}).setdefault(annotator, {})
    for question, spans in layers.items():
        for document, annotator, start, end, label in spans:
            spans_by_question = by_reader.setdefault(document, {}).setdefault(annotator, {})
            spans_by_question.setdefault(question, []).append((int(start), int(end), str(label)))
    columns: tuple[list[Any], ...] = ([], [], [], [])  # items, annotators, labels, questions
    overlapping = empty = 0
    for document, readers in by_reader.items():
        marked = [span for by_question in readers.values() for spans in by_question.values() for span in spans]
        if tokens is not None:
            n = max([tokens.get(document, 0), *(end for _, end, _ in marked)])
            starts = np.arange(n)
            names = name_positions([document] * n, starts.tolist())
        else:
            bounds = {at for start, end, _ in marked for at in (start, end)}
            starts, ends = _cut_document(bounds, None if texts is None else texts.get(document))
            names = name_positions([document] * len(starts), starts.tolist(), ends.tolist())
        for annotator, question in product(readers, layers):
            tags = np.full(len(names), OUTSIDE_TAG, object)
            own_spans = readers[annotator].get(question, ())
            for start, end, label in sorted(own_spans, key=lambda span: (span[0], -span[1], span[2])):
                inside = slice(*np.searchsorted(starts, [start, end]).tolist())
                if not tags[inside].size:
                    empty += 1
                elif (tags[inside] != OUTSIDE_TAG).any():
                    overlapping += 1
                else:
                    tags[inside] = f"I-{label}"
                    tags[inside.start] = f"B-{label}"
            n = len(names)
            for column, more in zip(columns, (names, [annotator] * n, tags.tolist(), [question] * n), strict=True):
                column += more
    items, annotators, labels, questions = (np.array(column, object) for column in columns)
    return TagRows(items, annotators, labels, questions, overlapping, empty)


def assign_span_layers(spans: Iterable[SpanRow]) -> list[str]:
    """Return the name of the layer of each span; spans within a layer do not overlap.

    The first layer is "", and the others are named by their labels. All spans of a label are in one layer, so that
    annotators can be compared. If spans of one label overlap, the later ones are in the layer "label, inner". If few
    spans overlap, all are in one layer.
    """
    by_reader: dict[Any, list[tuple[int, int, str, int]]] = {}
    parts: list[str] = []
    for n, (document, annotator, start, end, label) in enumerate(spans):
        parts.append(str(label))
        if end > start:
            by_reader.setdefault((document, annotator), []).append((start, -end, str(label), n))
    conflicts: dict[str, set[str]] = {}
    overlapping = 0
    for reader_spans in by_reader.values():
        open_spans: list[tuple[int, int, str, int]] = []
        for span in sorted(reader_spans):
            n = span[3]
            open_spans = [other for other in open_spans if -other[1] > span[0]]
            if (same := next((other[3] for other in open_spans if other[:3] == span[:3]), None)) is not None:
                parts[n] = parts[same]
                continue
            overlapping += bool(open_spans)
            taken = {parts[other[3]] for other in open_spans}
            while parts[n] in taken:
                parts[n] += ", inner"
            open_spans.append(span)
            for part in taken:
                conflicts.setdefault(part, set()).add(parts[n])
                conflicts.setdefault(parts[n], set()).add(part)
    if overlapping < MIN_OVERLAPPING_SHARE * len(parts) or not overlapping:
        return [""] * len(parts)
    layer: dict[str, int] = {}
    for part, _ in sorted(Counter(parts).items(), key=lambda pair: (-pair[1], pair[0])):
        full = {layer[other] for other in conflicts.get(part, ()) if other in layer}
        layer[part] = min(set(range(len(full) + 1)) - full)
    names = [" + ".join(sorted(part for part in layer if layer[part] == k)) for k in range(max(layer.values()) + 1)]
    return ["" if layer[part] == 0 else names[layer[part]] for part in parts]


def _cut_document(cuts: set[int], text: str | None) -> tuple[IntArray, IntArray]:
    """Return the starts and ends of the words of a text, cut at `cuts`; without a text, of the pieces between cuts."""
    words = [] if text is None else [word.span() for word in _WORD_PATTERN.finditer(text)]
    bounds = np.array(sorted(cuts.union([0], *words)), np.int64)
    starts, ends = bounds[:-1], bounds[1:]
    if text is not None:
        not_blank = np.array([bool(text[start:end].strip()) for start, end in zip(starts, ends, strict=True)], bool)
        starts, ends = starts[not_blank], ends[not_blank]
    return starts, ends


def are_tags(classes: Iterable[Any]) -> bool:
    """Return True if all labels are O, B-x or I-x, and not all are O."""
    names = [str(name) for name in classes]
    return any(name[:2] in ("B-", "I-") for name in names) and all(
        name == OUTSIDE_TAG or (name[:2] in ("B-", "I-") and len(name) > 2) for name in names
    )


def are_positions(items: Names) -> bool:
    """Return True if all item names are positions in documents."""
    if items.dtype != object or not items.size:
        return False
    return bool(pc.all(pc.match_substring_regex(pa.array(items, pa.string()), _POSITION_PATTERN)).as_py())


def complete_tags(classes: Names) -> list[str]:
    """Return the tags with B-x and I-x for each type x, and O if there is any type."""
    names = [str(name) for name in classes.tolist()]
    types = {name[2:] for name in names if name[:2] in ("B-", "I-")}
    return sorted({*names, *(f"{mark}-{kind}" for kind in types for mark in "BI"), *([OUTSIDE_TAG] if types else [])})
