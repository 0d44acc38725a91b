"""Agreement of annotators of spans: exact and overlapping spans, and Krippendorff's α of tokens and of units.

Two annotators who have read the same document are a pair. Over all pairs and documents:

exact_f1            2 · spans that both marked, with the same bounds and type / spans of both
overlap_f1          spans that share a token or character with a span of the other of the same type / spans of both
krippendorff_alpha  nominal α of places, weighted by their length, whose value is the type of the span or outside
unitizing_alpha     uα of Krippendorff, Mathet, Bouvry & Widlöcher (2016), eq. 1 to 5: the same observed disagreement,
                    with an expected one of whole spans in place of tokens

F1 is not corrected for chance agreement, which for spans is near 0; α is, and counts long spans more than short ones.
With n places read by two annotators or more (one count per reader), n_c of them of type c, and Dₒ the disagreement,

    uα = 1 − Dₒ (n² − S) / (n (n² − Σ_c n_c²)),  S = Σ over spans of length² + places outside;  α has n in place of S.

Intervals are by bootstrap over documents, since all places of a document have the same readers.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from dissensus.common.arrays import is_first_of_pair, pairs_within_ranges
from dissensus.common.types import FloatArray
from dissensus.evaluation.exceptions import NoSharedItems
from dissensus.evaluation.intervals import Estimate, bootstrap_sums
from dissensus.evaluation.ratings import safe_ratio
from dissensus.table.annotations import Annotations
from dissensus.table.spans import parse_tag_scheme

N_FIXED_COLUMNS = 5  # columns of the statistics before those of the types: exact, overlap, spans, disagreement, S


def span_agreement(table: Annotations, *, level: float = 0.95, **bootstrap: Any) -> dict[str, Estimate]:
    """Return exact_f1, overlap_f1, krippendorff_alpha and unitizing_alpha of spans; `bootstrap` as in `agreement`.

    NaN where undefined: F1 without any span, α if only one value was ever given.

    >>> from dissensus.table.simulate import simulate_spans
    >>> print(span_agreement(simulate_spans(10, 4, 2, redundancy=3, seed=1).annotations)["exact_f1"])
    0.528 (95 % interval 0.421 to 0.604)
    """
    stats = _document_statistics(table)
    sums = bootstrap_sums(stats, **bootstrap)
    return {
        "exact_f1": sums.estimate(lambda s: safe_ratio(s[:, 0], s[:, 2]), level),
        "overlap_f1": sums.estimate(lambda s: safe_ratio(s[:, 1], s[:, 2]), level),
        "krippendorff_alpha": sums.estimate(_span_alpha, level),
        "unitizing_alpha": sums.estimate(partial(_span_alpha, of_units=True), level),
    }


def _span_alpha(sums: FloatArray, of_units: bool = False) -> FloatArray:
    counts = sums[:, N_FIXED_COLUMNS:]
    n = counts.sum(axis=1)
    apart = (n - safe_ratio(sums[:, 4], n) if of_units else n - 1) * sums[:, 3]
    return 1 - safe_ratio(apart, n**2 - (counts**2).sum(axis=1))


def _document_statistics(table: Annotations) -> FloatArray:
    """Return (documents, 5 + types + 1) sums of each document; see `N_FIXED_COLUMNS`."""
    where, scheme = table.sequences, parse_tag_scheme(table.classes)
    once = is_first_of_pair(table.item, table.annotator)
    item, annotator, label = table.item[once], table.annotator[once].astype(np.int64), table.label[once]
    names = sorted({kind for kind in scheme.types if kind is not None})
    kind_of_tag = np.array([len(names) if kind is None else names.index(kind) for kind in scheme.types])
    kind, n_kinds = kind_of_tag[label], len(names) + 1
    D, A = where.documents.size, table.n_annotators
    stats = np.zeros((D, N_FIXED_COLUMNS + n_kinds))

    # Sums over places, for α.
    votes = np.bincount(item * np.int64(n_kinds) + kind, minlength=table.n_items * n_kinds).reshape(-1, n_kinds)
    m = votes.sum(axis=1)
    weight = np.where(m > 1, where.end - where.start, 0)
    apart = weight * (votes * (m[:, None] - votes)).sum(axis=1) / np.maximum(m - 1, 1)
    stats[:, 3] = np.bincount(where.document, apart, D)
    for k in range(n_kinds):
        stats[:, N_FIXED_COLUMNS + k] = np.bincount(where.document, weight * votes[:, k], D)

    # Spans by annotator and in reading order.
    place = np.empty(table.n_items, np.int64)
    place[where.order] = np.arange(table.n_items)
    order = np.lexsort((place[item], annotator))
    item, annotator, label, kind = item[order], annotator[order], label[order], kind[order]
    follows = np.zeros(item.size, bool)
    if item.size:
        next_to = (annotator[1:] == annotator[:-1]) & (place[item[1:]] == place[item[:-1]] + 1)
        begins = np.zeros(table.n_items, bool)
        begins[where.order[where.ptr[:-1]]] = True
        may = scheme.follows[label[:-1], label[1:]] & ~scheme.starts[label[1:]]
        follows[1:] = next_to & ~begins[item[1:]] & may
    inside = kind < len(names)
    first = np.flatnonzero(inside & ~follows)
    last = np.flatnonzero(inside & ~np.append(follows[1:], False))
    span = np.cumsum(inside & ~follows) - 1  # Valid for rows inside a span.
    document = where.document[item[first]]
    length = np.bincount(span[inside], weight[item[inside]], first.size)  # Only places with two readers count.
    stats[:, 4] = np.bincount(document, length**2, D)
    stats[:, 4] += np.bincount(where.document[item[~inside]], weight[item[~inside]], D)
    readers = np.unique(where.document[table.item] * np.int64(A) + table.annotator)
    n_readers = np.bincount(readers // A, minlength=D)
    if not (n_readers > 1).any():
        raise NoSharedItems(count=D, units="documents")
    stats[:, 2] = np.bincount(document, minlength=D) * np.maximum(n_readers - 1, 0)
    _, same, times = np.unique(
        np.stack([item[first], item[last], kind[first]]), axis=1, return_inverse=True, return_counts=True
    )
    stats[:, 0] = np.bincount(
        document, times[same.reshape(-1)] - 1, D
    )  # Σ c (c − 1) over spans marked by c annotators.

    # Pairs of a span and another annotator with an overlapping span of the same type.
    order = np.flatnonzero(inside)[np.lexsort((annotator[inside], kind[inside], item[inside]))]
    item, kind, annotator, span = (column[order] for column in (item, kind, annotator, span))
    starts = np.flatnonzero(is_first_of_pair(item, kind))
    one, other = pairs_within_ranges(starts, np.diff(np.append(starts, item.size)))
    met = np.unique(np.concatenate([span[one] * A + annotator[other], span[other] * A + annotator[one]]))
    stats[:, 1] = np.bincount(document[met // A], minlength=D)
    return stats


def span_scores(found: set[tuple[Any, ...]], known: set[tuple[Any, ...]]) -> dict[str, float]:
    """Return precision, recall and F1 of exact matches of spans (document, start, end, label) with gold spans.

    >>> span_scores({("d", 0, 2, "x")}, {("d", 0, 2, "x"), ("d", 4, 5, "y")})
    {'precision': 1.0, 'recall': 0.5, 'f1': 0.6666666666666666}
    """
    hits = len(found & known)
    return {
        "precision": hits / len(found) if found else float("nan"),
        "recall": hits / len(known) if known else float("nan"),
        "f1": 2 * hits / (len(found) + len(known)) if found or known else float("nan"),
    }
