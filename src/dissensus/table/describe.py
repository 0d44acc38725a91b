"""Summarise a table as counts, as one line of text, and as HTML with its first rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dissensus.common.arrays import is_first_of_pair
from dissensus.common.formatting import format_count
from dissensus.common.notebook import MAX_ROWS_SHOWN, make_html_table
from dissensus.common.types import IntArray, Names

if TYPE_CHECKING:
    from dissensus.table.annotations import Annotations

MAX_NAMES_SHOWN = 5
MAX_NAME_LENGTH = 40  # characters


def count_table(table: Annotations) -> dict[str, Any]:
    """Return counts, class shares, redundancy and raw agreement of a table as plain values."""
    per_item, per_annotator = np.diff(table.item_ptr), np.diff(table.annotator_ptr)
    counts = {
        "kind": table.kind,
        "annotations": table.n_annotations,
        "items": table.n_items,
        "annotators": table.n_annotators,
        "annotations_per_item": _summarize_counts(per_item),
        "annotators_per_item": _summarize_counts(table.annotators_per_item),
        "items_with_two_annotators": int((table.annotators_per_item > 1).sum()),
        "annotations_per_annotator": _summarize_counts(per_annotator),
        "items_without_annotation": int((per_item == 0).sum()),
        "annotators_without_annotation": int((per_annotator == 0).sum()),
        "annotators_with_fewer_than_5": int(((per_annotator > 0) & (per_annotator < 5)).sum()),
        "repeated_pairs": table.n_annotations - np.unique(table.rating_codes).size,
        "weighted": table.weight is not None,
        "probabilistic": table.proba is not None,
    }
    if table.kind in ("numbers", "objects", "sets"):
        further_counts = (
            _summarize_numbers(table)
            if table.kind == "numbers"
            else _summarize_sets(table)
            if table.kind == "sets"
            else {}
        )
        return counts | {"distinct_values": table.n_classes} | further_counts
    if table.kind == "pairs":
        sides = table.alternatives
        counts["things"] = int(sides.names.size)
        counts["comparisons_per_thing"] = _summarize_counts(
            sum(np.bincount(side[table.item], minlength=sides.names.size) for side in sides[1:])  # type: ignore[arg-type]
        )
    votes = table.votes()
    total = votes.sum(axis=1)
    checked = (total > 0) & (table.annotators_per_item > 1)
    shares = votes.sum(axis=0) / max(votes.sum(), 1e-300)
    return counts | {
        "classes": table.n_classes,
        "class_shares": dict(zip(map(str, table.classes), shares.tolist(), strict=True)),
        "unanimous_items": float((votes.max(axis=1)[checked] == total[checked]).mean()) if checked.any() else None,
        "pairwise_agreement": None
        if table.weight is not None or table.proba is not None
        else _pairwise_agreement(table),
    }


def _pairwise_agreement(table: Annotations) -> float | None:
    """Return the share of agreeing pairs of annotators, pooled over items (Fleiss' observed agreement).

    Several labels of one annotator for one item share one vote, as in `evaluation.percent_agreement`.
    """
    m = table.annotators_per_item.astype(np.float64)
    if not (m > 1).any():
        return None
    rating, K = table.rating_codes, table.n_classes
    share = 1 / np.bincount(rating)[rating]
    both = np.bincount(table.item.astype(np.int64) * K + table.label, share)
    own = np.bincount(np.cumsum(is_first_of_pair(rating, table.label)) - 1, share)
    return float((both @ both - own @ own) / (m @ (m - 1)))


def _summarize_sets(table: Annotations) -> dict[str, Any]:
    """Return the share of labels that contain each option, and the mean number of options per label."""
    times = np.bincount(table.label, minlength=table.n_classes)
    names, ticked = table.options
    shares = times @ ticked / max(len(table), 1)
    return {
        "options": names.size,
        "option_shares": dict(zip(map(str, names), shares.tolist(), strict=True)),
        "ticks_per_annotation": float(times @ ticked.sum(axis=1) / max(len(table), 1)),
    }


def _summarize_numbers(table: Annotations) -> dict[str, Any]:
    """Return quantiles and standard deviations of numbers, overall and within items."""
    x = table.values[table.label]
    n = np.diff(table.item_ptr)
    if not x.size:
        return {"values": None, "sd": None, "sd_within_items": None}
    residual = x - (np.bincount(table.item, x, table.n_items) / np.maximum(n, 1))[table.item]
    degrees = int(np.maximum(n - 1, 0).sum())
    quantiles = np.quantile(x, [0, 0.25, 0.5, 0.75, 1]).tolist()
    return {
        "values": dict(zip(("min", "quarter", "median", "three_quarters", "max"), quantiles, strict=True)),
        "sd": float(x.std()),
        "sd_within_items": float(np.sqrt((residual**2).sum() / degrees)) if degrees else None,
    }


def summarize_table(table: Annotations) -> str:
    """Return a one-line summary of the table."""
    shown = _list_first_names(table.classes)
    kind = "probabilistic " if table.proba is not None else "weighted " if table.weight is not None else ""
    what, of = "annotation", "of"
    labels = f"{table.n_classes} {'class' if table.n_classes == 1 else 'classes'} ({shown})"
    if table.kind == "graded":
        labels = f"{format_count(table.n_classes, 'grade')} ({shown})"
    elif table.kind == "numbers":
        ends = f"from {table.classes[0]:g} to {table.classes[-1]:g}" if table.n_classes else "none"
        what, labels = "number", ends
    elif table.kind == "sets":
        names = table.options.names
        what, labels = "set", f"{format_count(names.size, 'option')} ({_list_first_names(names)})"
    elif table.kind == "spans":
        what = "tag"
    elif table.kind == "pairs":
        things = table.alternatives.names
        what, of, labels = (
            "comparison",
            f"of {format_count(things.size, 'alternative')} ({_list_first_names(things)}) in",
            "",
        )
    return (
        f"Annotations: {format_count(table.n_annotations, kind + what)} {of} {format_count(table.n_items, 'item')} by "
        f"{format_count(table.n_annotators, 'annotator')}, {labels}{', ' if labels else ''}"
        f"{table.n_annotations / max(table.n_items, 1):.1f} per item"
    )


def format_table_html(table: Annotations) -> str:
    """Return the one-line summary and the first rows as HTML."""
    head = (
        table.select(rows=np.arange(min(MAX_ROWS_SHOWN, len(table)))).to_arrow().select(["item", "annotator", "label"])
    )
    return make_html_table(summarize_table(table), head.to_pylist(), len(table))


def _list_first_names(names: Names) -> str:
    shown = (str(name)[:MAX_NAME_LENGTH] for name in names[:MAX_NAMES_SHOWN])
    return ", ".join(shown) + (", …" if names.size > MAX_NAMES_SHOWN else "")


def _summarize_counts(values: IntArray) -> dict[str, float]:
    values = values if values.size else np.zeros(1, np.int64)
    middle = {"median": float(np.median(values)), "mean": float(values.mean())}
    return {"min": int(values.min()), **middle, "max": int(values.max())}
