"""Annotators of spans with known truth.

A document is a row of tokens with spans of some types. An annotator reads it span by span: misses it, or marks it with
a wrong type or a boundary moved by one token; between them it may mark what is no span. A spammer marks at random, an
adversary always gives another type: the next one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dissensus.common.types import IntArray, Names
from dissensus.exceptions import BadParameter
from dissensus.table.annotations import Annotations
from dissensus.table.simulate import apportion
from dissensus.table.spans import place_names


class Habits(NamedTuple):
    """How an annotator of spans errs; rates are per span, `extra` per token."""

    miss: float
    boundary: float
    wrong_type: float
    extra: float


HABITS = {
    "expert": Habits(0.05, 0.03, 0.03, 0.001),
    "ordinary": Habits(0.25, 0.10, 0.10, 0.005),
    "sloppy": Habits(0.25, 0.50, 0.10, 0.005),
    "spammer": Habits(1.0, 0.0, 0.0, 0.15),
    "adversary": Habits(0.10, 0.05, 1.0, 0.005),
}
"""The kinds of annotators."""
CROWD = {"expert": 0.15, "ordinary": 0.6, "sloppy": 0.1, "spammer": 0.1, "adversary": 0.05}
"""Their shares in a default crowd."""
SPAN_RATE = 0.12  # spans per token that is outside
SPAN_GOES_ON = 0.4  # chance that a span has one more token


@dataclass(frozen=True, eq=False)
class SpanSimulation:
    """A table of spans and what is true about it."""

    annotations: Annotations
    truth: IntArray  # (I,) codes of tags
    kind: Names  # (A,) one of HABITS


def simulate_spans(
    n_documents: int,
    n_annotators: int,
    n_types: int,
    *,
    length: int = 20,
    redundancy: int = 5,
    kinds: Mapping[str, float] | None = None,
    seed: int = 0,
) -> SpanSimulation:
    """Draw documents of `length` tokens on average, each read by `redundancy` annotators; `kinds` are kind → share.

    >>> simulate_spans(50, 8, 2, seed=1).annotations
    Annotations: 4,940 tags of 988 items by 8 annotators, 5 classes (B-t0, B-t1, I-t0, I-t1, O), 5.0 per item
    """
    if not 1 <= redundancy <= n_annotators:
        raise BadParameter(f"redundancy must be between 1 and {n_annotators} annotators, got {redundancy}.")
    rng = np.random.default_rng(seed)
    kind = rng.permutation(apportion(kinds or CROWD, n_annotators, tuple(HABITS)))
    sizes = rng.integers(max(length // 2, 1), length + length // 2 + 1, n_documents)
    all_places, truth, item, annotator, label = [], [], [], [], []
    for document, size in enumerate(sizes.tolist()):
        spans = _draw_spans(rng, size, n_types, SPAN_RATE)
        places = place_names([f"d{document:05d}"] * size, range(size))
        all_places += places
        truth += _tags(spans, size)
        for a in rng.choice(n_annotators, redundancy, replace=False).tolist():
            item += places
            annotator += [f"a{a:03d}"] * size
            label += _tags(_mark(rng, spans, size, n_types, HABITS[str(kind[a])]), size)
    types = [f"{mark}-t{k}" for mark in "BI" for k in range(n_types)]
    people = [f"a{a:03d}" for a in range(n_annotators)]
    table = Annotations.from_arrays(item, annotator, label, [*types, "O"], annotators=people, kind="spans")
    return SpanSimulation(table, table.gold_codes(all_places, truth), kind)


Span = tuple[int, int, int]


def _draw_spans(rng: np.random.Generator, size: int, n_types: int, rate: float) -> list[Span]:
    found, at = [], 0
    while at < size:
        end = at + 1
        if rng.random() < rate:
            while end < size and rng.random() < SPAN_GOES_ON:
                end += 1
            found.append((at, end, int(rng.integers(n_types))))
        at = end
    return found


def _mark(rng: np.random.Generator, spans: list[Span], size: int, n_types: int, habits: Habits) -> list[Span]:
    """What somebody with these habits marks."""
    found = _draw_spans(rng, size, n_types, habits.extra)
    for start, end, kind in spans:
        if rng.random() < habits.miss:
            continue
        if rng.random() < habits.boundary:
            moved = int(rng.choice([-1, 1]))
            start, end = (start, end + moved) if rng.random() < 0.5 else (start + moved, end)
        if rng.random() < habits.wrong_type:
            kind = (kind + 1) % n_types
        if 0 <= start < end <= size:
            found.append((start, end, kind))
    return found


def _tags(spans: list[Span], size: int) -> list[str]:
    """Tags of spans; where two overlap the later one goes over the earlier."""
    tags = ["O"] * size
    for start, end, kind in spans:
        tags[start:end] = [f"B-t{kind}"] + [f"I-t{kind}"] * (end - start - 1)
        if end < size and tags[end][0] == "I":  # the rest of a span whose begin was overwritten
            tags[end] = "B" + tags[end][1:]
    return tags
