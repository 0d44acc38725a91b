"""Simulate tables with known truth for numbers, grades, pairs, sets, spans and texts.

An annotator of spans may miss a span, mark it with a wrong type, or shift a boundary by one token, and may mark further
spans. A spammer marks spans at random; an adversary always gives the next type.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from dissensus.common.exceptions import OutOfRange
from dissensus.common.types import FloatArray, IntArray, Names
from dissensus.messages import ParameterName
from dissensus.table.annotations import Annotations
from dissensus.table.kinds import PAIR_OUTCOMES, name_set
from dissensus.table.spans import name_positions

SELECTION_RATES = {
    "good": (0.85, 0.03),
    "sparing": (0.4, 0.01),
    "eager": (0.9, 0.3),
    "spammer": (0.2, 0.2),
    "adversary": (0.1, 0.6),
}
"""Kind of annotator → probabilities of selecting a true option and a false option."""


class ErrorRates(NamedTuple):
    """Error rates of an annotator of spans; `extra` is a rate per token, the others are rates per span."""

    miss: float
    boundary: float
    wrong_type: float
    extra: float


ERROR_RATES = {
    "expert": ErrorRates(0.05, 0.03, 0.03, 0.001),
    "ordinary": ErrorRates(0.25, 0.10, 0.10, 0.005),
    "sloppy": ErrorRates(0.25, 0.50, 0.10, 0.005),
    "spammer": ErrorRates(1.0, 0.0, 0.0, 0.15),
    "adversary": ErrorRates(0.10, 0.05, 1.0, 0.005),
}
"""Error rates for each kind of annotator of spans."""
SPAN_KIND_SHARES = {"expert": 0.15, "ordinary": 0.6, "sloppy": 0.1, "spammer": 0.1, "adversary": 0.05}
"""Kind of annotator of spans → share in a default crowd."""
SPAN_RATE = 0.12  # probability that a span begins at a token outside of spans
P_SPAN_CONTINUES = 0.4  # probability that a span has one more token
SpanTuple = tuple[int, int, int]


@dataclass(frozen=True, eq=False)
class SimulatedTable:
    """A simulated table with its true parameters."""

    annotations: Annotations
    truth: Any  # (I,) numbers, codes or texts; for sets (I, L) selected options; for pairs (T,) scores of alternatives
    kind: Names  # (A,) such as ordinary, spammer (random labels) or adversary (reversed scale)
    bias: FloatArray | None = None  # (A,) mean error of numbers; for pairs, preference for the left alternative
    error: FloatArray | None = None  # (A,) error rate per word, for texts
    options: Names | None = None  # (L,) options, for sets


def simulate_kind(
    kind: str,
    n_items: int,
    n_annotators: int,
    *,
    redundancy: int = 5,
    spammers: float = 0.1,
    adversaries: float = 0.05,
    bias: float = 0.3,
    noise: float = 0.5,
    n_grades: int = 5,
    n_things: int = 20,
    ties: float = 0.5,
    seed: int = 0,
) -> SimulatedTable:
    """Simulate numbers, grades or pairs with spammers, adversaries and biased annotators.

    Each item has a true value θ ~ N(0, 1). An annotator perceives x = bias + stretch · θ + ε, where bias ~
    N(0, `bias`²), stretch ~ N(1, 0.2²), and ε has a standard deviation of about `noise`. A spammer perceives an
    independent draw, and an adversary has a negative stretch. Numbers are x; grades are x, binned into `n_grades` steps
    of about equal shares. For pairs, θ is the difference of two scores and ε is logistic.

    Parameters
    ----------
    kind : "numbers", "graded" or "pairs"
    n_items, n_annotators : int
    redundancy : int
        Number of labels per item, each by a different annotator.
    spammers, adversaries : float
        Shares of annotators.
    bias, noise : float
        Standard deviations of bias and noise; pairs do not use `noise`.
    n_grades, n_things : int
        Number of grades, and of alternatives in pairs.
    ties : float
        Odds of a tie between two equal alternatives.
    seed : int

    Returns
    -------
    SimulatedTable

    >>> simulate_kind("pairs", 200, 10, n_things=8).annotations.alternatives.names.size
    8
    """
    if kind not in ("numbers", "graded", "pairs"):
        expected = "numbers, graded or pairs (simulate_sets, simulate_spans and simulate_texts draw others)"
        raise OutOfRange(name=ParameterName("kind"), allowed=f"be {expected}", value=kind)
    rng = np.random.default_rng([seed, 25])
    kind_of_annotator = np.full(n_annotators, "ordinary", object)
    odd = rng.permutation(n_annotators)
    n_spam, n_turned = round(spammers * n_annotators), round(adversaries * n_annotators)
    kind_of_annotator[odd[:n_spam]], kind_of_annotator[odd[n_spam : n_spam + n_turned]] = "spammer", "adversary"
    biases, stretch = rng.normal(0, bias, n_annotators), rng.normal(1, 0.2, n_annotators)
    stretch = np.where(
        kind_of_annotator == "adversary", -stretch, np.where(kind_of_annotator == "spammer", 0.0, stretch)
    )
    noises = noise * np.exp(rng.normal(0, 0.3, n_annotators))
    item, annotator = _assign_annotators(rng, n_items, n_annotators, redundancy)
    if kind == "pairs":
        scores = rng.normal(0, 1, n_things)
        left = rng.integers(n_things, size=n_items)
        right = (left + 1 + rng.integers(n_things - 1, size=n_items)) % n_things
        half = (biases[annotator] + stretch[annotator] * (scores[left] - scores[right])[item]) / 2
        odds = np.stack([np.exp(half), np.exp(-half), np.full(half.size, ties)])
        outcome = (rng.random(half.size) > np.cumsum(odds / odds.sum(axis=0), axis=0)).sum(axis=0)
        names, label = _make_numbered_names("t", n_things), np.array(PAIR_OUTCOMES, object)[np.minimum(outcome, 2)]
        table = Annotations.from_pairs(names[left[item]], names[right[item]], label, annotator, context=item)
        return SimulatedTable(table, scores, kind_of_annotator, biases)
    truth: FloatArray = rng.normal(0, 1, n_items)
    x = biases[annotator] + stretch[annotator] * truth[item] + noises[annotator] * rng.normal(size=item.size)
    x = np.where(kind_of_annotator[annotator] == "spammer", rng.normal(0, 1, item.size), x)
    if kind == "numbers":
        return SimulatedTable(Annotations.from_arrays(item, annotator, x, kind=kind), truth, kind_of_annotator, biases)
    edges = ndtri(np.arange(1, n_grades) / n_grades)
    table = Annotations.from_arrays(item, annotator, np.searchsorted(edges, x), n_grades, kind=kind)
    return SimulatedTable(table, np.searchsorted(edges, truth).astype(np.float64), kind_of_annotator, biases)


def simulate_sets(
    n_items: int,
    n_annotators: int,
    n_options: int,
    *,
    redundancy: int = 5,
    kinds: dict[str, int] | None = None,
    seed: int = 0,
) -> SimulatedTable:
    """Simulate sets of options.

    The first option is true for a fifth of the items; each later one is true with probability 0.8 if its predecessor is
    true. `kinds` has the numbers of annotators of each kind in `SELECTION_RATES`; all others are good.
    """
    rng = np.random.default_rng(seed)
    truth = np.zeros((n_items, n_options), np.bool_)
    for c in range(n_options):
        after = truth[:, c - 1] & (rng.random(n_items) < 0.8) if c else False
        truth[:, c] = after | (rng.random(n_items) < (0.2 if c == 0 else 0.05))
    special = [kind for kind, count in (kinds or {}).items() for _ in range(count)]
    kind_of_annotator = np.array([*special, *["good"] * (n_annotators - len(special))], object)
    item, annotator = _assign_annotators(rng, n_items, n_annotators, redundancy)
    hit, false_tick = np.array([SELECTION_RATES[kind] for kind in kind_of_annotator])[annotator].T
    chance = np.where(truth[item], hit[:, None], false_tick[:, None])
    options = _make_numbered_names("o", n_options)
    sets, label = np.unique(rng.random(chance.shape) < chance, axis=0, return_inverse=True)
    names = np.array([name_set(options[selected]) for selected in sets], object)[label.reshape(-1)]
    everything = {"items": np.arange(n_items), "annotators": np.arange(n_annotators)}
    table = Annotations.from_arrays(item, annotator, names, kind="sets", **everything)
    return SimulatedTable(table, truth, kind_of_annotator, options=options)


def simulate_texts(
    n_items: int,
    n_annotators: int,
    *,
    words: int = 12,
    vocabulary: int = 200,
    redundancy: int = 5,
    spammers: int = 0,
    seed: int = 0,
) -> SimulatedTable:
    """Simulate texts of about `words` words.

    Annotators replace, omit or insert words at rates from 2 to 30 %; spammers do so at every word.
    """
    rng = np.random.default_rng(seed)
    truth = [rng.integers(0, vocabulary, rng.integers(words // 2, words * 3 // 2)) for _ in range(n_items)]
    error = np.append(np.ones(spammers), rng.uniform(0.02, 0.3, n_annotators - spammers))
    item, annotator = _assign_annotators(rng, n_items, n_annotators, redundancy)
    texts = []
    for i, a in zip(item, annotator, strict=True):
        wrong = rng.random(truth[i].size) < error[a]
        text = np.where(wrong, rng.integers(0, vocabulary, truth[i].size), truth[i]).tolist()
        places = np.flatnonzero(wrong)[::-1]
        for place, how in zip(places, rng.integers(0, 3, places.size), strict=True):
            if how == 0:
                del text[place]
            elif how == 1:
                text.insert(place, int(rng.integers(0, vocabulary)))
        texts.append(_join_words(text) or "w")
    everything = {"items": np.arange(n_items), "annotators": np.arange(n_annotators)}
    table = Annotations.from_arrays(item, annotator, texts, kind="objects", **everything)
    kind = np.where(error == 1, "spammer", "ordinary").astype(object)
    return SimulatedTable(table, np.array(list(map(_join_words, truth)), object), kind, error=error)


def simulate_spans(
    n_documents: int,
    n_annotators: int,
    n_types: int,
    *,
    length: int = 20,
    redundancy: int = 5,
    kinds: Mapping[str, float] | None = None,
    seed: int = 0,
) -> SimulatedTable:
    """Simulate spans in documents of about `length` tokens, each read by `redundancy` annotators.

    `kinds` has the shares of the kinds in `ERROR_RATES`.

    >>> simulate_spans(50, 8, 2, seed=1).annotations
    Annotations: 4,940 tags of 988 items by 8 annotators, 5 classes (B-t0, B-t1, I-t0, I-t1, O), 5.0 per item
    """
    _check_redundancy(redundancy, n_annotators)
    rng = np.random.default_rng(seed)
    kind = rng.permutation(apportion_kinds(kinds or SPAN_KIND_SHARES, n_annotators, tuple(ERROR_RATES)))
    sizes = rng.integers(max(length // 2, 1), length + length // 2 + 1, n_documents)
    all_places, truth, item, annotator, label = [], [], [], [], []
    for document, size in enumerate(sizes.tolist()):
        spans = _draw_spans(rng, size, n_types, SPAN_RATE)
        places = name_positions([f"d{document:05d}"] * size, range(size))
        all_places += places
        truth += _tags_from_spans(spans, size)
        for a in rng.choice(n_annotators, redundancy, replace=False).tolist():
            item += places
            annotator += [f"a{a:03d}"] * size
            label += _tags_from_spans(_draw_marked_spans(rng, spans, size, n_types, ERROR_RATES[str(kind[a])]), size)
    types = [f"{mark}-t{k}" for mark in "BI" for k in range(n_types)]
    people = [f"a{a:03d}" for a in range(n_annotators)]
    table = Annotations.from_arrays(item, annotator, label, [*types, "O"], annotators=people, kind="spans")
    return SimulatedTable(table, table.gold_codes(all_places, truth), kind)


def apportion_kinds(shares: Mapping[str, float], n: int, known: Iterable[str]) -> Names:
    """Return the kinds of n annotators (n,), apportioned by largest remainder; `known` are the valid kinds."""
    total = sum(shares.values())
    if not (shares.keys() <= set(known) and all(share >= 0 for share in shares.values()) and total > 0):
        expected = f"shares of {', '.join(known)}, of which none is negative and some are positive"
        raise OutOfRange(name=ParameterName("kinds"), allowed=f"be {expected}", value=dict(shares))
    exact = np.array([share / total * n for share in shares.values()])
    count = np.floor(exact + 1e-9).astype(int)
    short = np.argsort(count - exact, kind="stable")[: n - count.sum()]
    count[short] += 1
    return np.repeat(np.array(list(shares), object), count)


def _check_redundancy(redundancy: int, n_annotators: int) -> None:
    if not 1 <= redundancy <= n_annotators:
        expected = f"from 1 to the {n_annotators:,} annotators"
        raise OutOfRange(name=ParameterName("redundancy"), allowed=f"be {expected}", value=redundancy)


def _assign_annotators(
    rng: np.random.Generator, n_items: int, n_annotators: int, redundancy: int
) -> tuple[IntArray, IntArray]:
    """Return the item and the annotator of each label (N,), with `redundancy` different annotators per item."""
    _check_redundancy(redundancy, n_annotators)
    annotator = np.argsort(rng.random((n_items, n_annotators)), axis=1)[:, :redundancy].reshape(-1)
    return np.repeat(np.arange(n_items), redundancy), annotator


def _make_numbered_names(letter: str, n: int) -> Names:
    return np.array([f"{letter}{k:0{len(str(n - 1))}d}" for k in range(n)], object)


def _join_words(words: Iterable[int]) -> str:
    return " ".join(f"w{word}" for word in words)


def _draw_spans(rng: np.random.Generator, size: int, n_types: int, rate: float) -> list[SpanTuple]:
    spans, at = [], 0
    while at < size:
        end = at + 1
        if rng.random() < rate:
            while end < size and rng.random() < P_SPAN_CONTINUES:
                end += 1
            spans.append((at, end, int(rng.integers(n_types))))
        at = end
    return spans


def _draw_marked_spans(
    rng: np.random.Generator, spans: list[SpanTuple], size: int, n_types: int, rates: ErrorRates
) -> list[SpanTuple]:
    """Draw the spans marked by an annotator with these error rates."""
    marked = _draw_spans(rng, size, n_types, rates.extra)
    for start, end, kind in spans:
        if rng.random() < rates.miss:
            continue
        if rng.random() < rates.boundary:
            moved = int(rng.choice([-1, 1]))
            start, end = (start, end + moved) if rng.random() < 0.5 else (start + moved, end)
        if rng.random() < rates.wrong_type:
            kind = (kind + 1) % n_types
        if 0 <= start < end <= size:
            marked.append((start, end, kind))
    return marked


def _tags_from_spans(spans: list[SpanTuple], size: int) -> list[str]:
    """Return the tag of each token; a later span overwrites an earlier one."""
    tags = ["O"] * size
    for start, end, kind in spans:
        tags[start:end] = [f"B-t{kind}"] + [f"I-t{kind}"] * (end - start - 1)
        if end < size and tags[end][0] == "I":  # The remainder of an overwritten span becomes a new span.
            tags[end] = "B" + tags[end][1:]
    return tags
