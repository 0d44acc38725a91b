"""Agreement of annotators of spans: F1 of exact and overlapping spans, and Krippendorff's α of tokens and units.

Two annotators who have read the same document are a pair. All measures are computed over all pairs and documents:

exact_f1            twice the number of spans that both marked with the same bounds and type, divided by all their spans
overlap_f1          share of their spans that overlap a span of the same type by the other annotator
krippendorff_alpha  nominal α of positions, weighted by length; the value of a position is the type of its span, or none
unitizing_alpha     uα of Krippendorff, Mathet, Bouvry & Widlöcher (2016), Eq. 1 to 5, which has the same observed
                    disagreement, but an expected disagreement of whole spans instead of tokens

F1 is not corrected for chance agreement, which is near 0 for spans. α is corrected, and gives long spans a larger
weight than short ones. Of n positions read by two annotators or more (counted once per reader), n_c have type c. With
the observed disagreement Dₒ,

    uα = 1 − Dₒ (n² − S) / (n (n² − Σ_c n_c²)),  S = Σ over spans of length² + number of positions outside of spans.

For α, S is replaced by n. Intervals are computed by bootstrap over documents, because all positions of a document have
the same readers.
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
    """Return exact_f1, overlap_f1, krippendorff_alpha and unitizing_alpha of the spans in a table.

    F1 is NaN if there is no span, and α is NaN if all positions have the same value. `bootstrap` is the same as in
    `agreement`.

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
    """Return the sums of each document (documents, 5 + types + 1); see `N_FIXED_COLUMNS` for the columns."""
    where, scheme = table.sequences, parse_tag_scheme(table.classes)
    once = is_first_of_pair(table.item, table.annotator)
    item, annotator, label = table.item[once], table.annotator[once].astype(np.int64), table.label[once]
    names = sorted({kind for kind in scheme.types if kind is not None})
    kind_of_tag = np.array([len(names) if kind is None else names.index(kind) for kind in scheme.types])
    kind, n_kinds = kind_of_tag[label], len(names) + 1
    D, A = where.documents.size, table.n_annotators
    stats = np.zeros((D, N_FIXED_COLUMNS + n_kinds))

    # Sums over positions are needed for α.
    votes = np.bincount(item * np.int64(n_kinds) + kind, minlength=table.n_items * n_kinds).reshape(-1, n_kinds)
    m = votes.sum(axis=1)
    weight = np.where(m > 1, where.end - where.start, 0)
    apart = weight * (votes * (m[:, None] - votes)).sum(axis=1) / np.maximum(m - 1, 1)
    stats[:, 3] = np.bincount(where.document, apart, D)
    for k in range(n_kinds):
        stats[:, N_FIXED_COLUMNS + k] = np.bincount(where.document, weight * votes[:, k], D)

    # Rows are sorted by annotator and in reading order.
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
    span = np.cumsum(inside & ~follows) - 1  # This is valid for rows inside a span.
    document = where.document[item[first]]
    length = np.bincount(span[inside], weight[item[inside]], first.size)  # Only positions with two readers count.
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
    )  # Σ c (c − 1) over spans that c annotators marked

    # Each span is paired with every other annotator who has an overlapping span of the same type.
    order = np.flatnonzero(inside)[np.lexsort((annotator[inside], kind[inside], item[inside]))]
    item, kind, annotator, span = (column[order] for column in (item, kind, annotator, span))
    starts = np.flatnonzero(is_first_of_pair(item, kind))
    one, other = pairs_within_ranges(starts, np.diff(np.append(starts, item.size)))
    met = np.unique(np.concatenate([span[one] * A + annotator[other], span[other] * A + annotator[one]]))
    stats[:, 1] = np.bincount(document[met // A], minlength=D)
    return stats


def span_scores(found: set[tuple[Any, ...]], known: set[tuple[Any, ...]]) -> dict[str, float]:
    """Return precision, recall and F1 of spans (document, start, end, label) that match gold spans exactly.

    >>> span_scores({("d", 0, 2, "x")}, {("d", 0, 2, "x"), ("d", 4, 5, "y")})
    {'precision': 1.0, 'recall': 0.5, 'f1': 0.6666666666666666}
    """
    hits = len(found & known)
    return {
        "precision": hits / len(found) if found else float("nan"),
        "recall": hits / len(known) if known else float("nan"),
        "f1": 2 * hits / (len(found) + len(known)) if found or known else float("nan"),
    }
