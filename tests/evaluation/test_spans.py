"""Agreement of spans: against loops over pairs, and the package krippendorff."""

import itertools
from collections import Counter

import krippendorff
import numpy as np
import pytest

from dissensus import Annotations
from dissensus.evaluation import span_agreement, span_scores
from dissensus.evaluation.exceptions import NoSharedItems
from dissensus.table.simulate import simulate_spans
from refused import refused


def spans_by_reader(table: Annotations) -> dict:
    """(document, annotator) → its spans (start, end, type), by a loop over tokens."""
    where, found = table.sequences, {}
    said = {(i, a): table.classes[k] for i, a, k in zip(table.item, table.annotator, table.label, strict=True)}
    for a in range(table.n_annotators):
        for d in range(where.documents.size):
            items = [i for i in where.order if where.document[i] == d and (i, a) in said]
            if items:
                spans = found.setdefault((d, a), [])
            for last, i in zip([None, *items], items, strict=False):
                tag = said[i, a]
                before = "O" if last is None or where.end[last] != where.start[i] else said[last, a]
                if tag[0] == "I" and before[1:] == tag[1:]:
                    spans[-1] = (spans[-1][0], where.end[i], tag[2:])
                elif tag != "O":
                    spans.append((where.start[i], where.end[i], tag[2:]))
    return found


def test_f1_is_that_of_all_pairs_and_alpha_that_of_krippendorff():
    table = simulate_spans(15, 5, 2, length=9, redundancy=3, seed=4).annotations
    found = span_agreement(table, resamples=0)
    readers = spans_by_reader(table)
    exact = overlap = total = 0
    for (d, a), (e, b) in itertools.combinations(readers, 2):
        if d == e:
            one, other = readers[d, a], readers[e, b]
            exact += 2 * len(set(one) & set(other))
            for mine, theirs in ((one, other), (other, one)):
                overlap += sum(any(s < u and t < e and k == m for t, u, m in theirs) for s, e, k in mine)
            total += len(one) + len(other)
    assert found["exact_f1"].value == pytest.approx(exact / total)
    assert found["overlap_f1"].value == pytest.approx(overlap / total)
    assert 0 < found["exact_f1"].value < found["overlap_f1"].value < 1
    matrix = np.full((table.n_annotators, table.n_items), np.nan)
    matrix[table.annotator, table.item] = np.array([ord(str(name)[-1]) for name in table.classes])[table.label]
    assert found["krippendorff_alpha"].value == pytest.approx(
        krippendorff.alpha(matrix, level_of_measurement="nominal")
    )


def unitizing_alpha(table: Annotations) -> float:
    """Eq. 1 to 5 of Krippendorff et al. (2016) by loops over positions."""
    readers, where = spans_by_reader(table), table.sequences
    observed, squares = Counter(), Counter()
    for d in {d for d, _ in readers}:
        length = max(where.end[where.document == d])
        own = [spans for (e, _), spans in readers.items() if e == d]
        values = [[next((k for s, e, k in spans if s <= at < e), None) for at in range(length)] for spans in own]
        if len(own) < 2:
            continue
        for spans, value in zip(own, values, strict=True):
            squares.update({None: value.count(None)})
            for s, e, k in spans:
                squares[k] += (e - s) ** 2
        for one, other in itertools.permutations(values, 2):
            for c, k in zip(one, other, strict=True):
                observed[c, k] += 1 / (len(own) - 1)
    n, margin = sum(observed.values()), Counter()
    for (c, _), count in observed.items():
        margin[c] += count
    expected = sum(n * (margin[c] ** 2 - squares[c]) / (n**2 - squares.total()) for c in margin)
    return 1 - (n - sum(observed[c, c] for c in margin)) / (n - expected)


@pytest.mark.parametrize("redundancy", [2, 3])
def test_alpha_of_units_is_that_of_loops_over_positions(redundancy):
    table = simulate_spans(12, 5, 2, length=9, redundancy=redundancy, seed=redundancy).annotations
    found = span_agreement(table, resamples=0)
    assert found["unitizing_alpha"].value == pytest.approx(unitizing_alpha(table))
    assert abs(found["unitizing_alpha"].value - found["krippendorff_alpha"].value) > 1e-4


def test_alpha_of_units_tells_neighbours_from_one_span_and_needs_two_readers():
    spans = [("d", "x", 0, 3, "A"), ("d", "x", 3, 6, "A"), ("d", "y", 0, 6, "A"), ("e", "x", 1, 7, "B")]
    for own in (spans, [("d", "x", 0, 6, "A"), *spans[2:]]):
        table = Annotations.from_spans(*zip(*own, strict=True), tokens={"d": 8, "e": 8}, readings=[("d", "z")])
        assert span_agreement(table, resamples=0)["unitizing_alpha"].value == pytest.approx(unitizing_alpha(table))


def test_long_places_weigh_as_many_short_ones():
    spans = [("d", "x", 0, 4, "A"), ("d", "y", 0, 7, "A"), ("d", "y", 9, 12, "B"), ("d", "z", 9, 12, "A")]
    pieces, tokens = (
        Annotations.from_spans(*zip(*spans, strict=True)),
        Annotations.from_spans(*zip(*spans, strict=True), tokens={"d": 12}),
    )
    assert pieces.n_items < tokens.n_items == 12
    for name, one in span_agreement(pieces, resamples=0).items():
        assert one.value == pytest.approx(span_agreement(tokens, resamples=0)[name].value), name


def test_one_reader_is_refused_and_scores_count_exact_spans():
    with refused(NoSharedItems, count=1, units="documents"):
        span_agreement(Annotations.from_spans(["d"], ["x"], [0], [2], ["A"]))
    found, known = {("d", 0, 2, "A"), ("d", 3, 4, "A")}, {("d", 0, 2, "A"), ("d", 3, 4, "B"), ("e", 0, 1, "A")}
    assert span_scores(found, known) == {"precision": 0.5, "recall": pytest.approx(1 / 3), "f1": 0.4}
