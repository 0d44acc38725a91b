"""Measure the progress of a project by day: labels, settled items, the queue, and each annotator's agreement.

Past days are evaluated with the current error models of the annotators, so that curves show changes of the labels and
not of the fits. A corrected label counts from its correction on. `drift` compares with the table of a week ago.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np

from dissensus.common.types import FloatArray
from dissensus.models.base import Aggregator
from dissensus.questions.diff import drift
from dissensus.questions.item_status import is_settled
from dissensus.questions.spam_tests import LeaveOneOutPosterior, leave_one_out_posterior
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations
from dissensus.table.kinds import CLASS_KINDS

DAY_SECONDS = 86_400.0
WEEK_SECONDS = 7 * DAY_SECONDS
MAX_ROWS_SCORED = 3_000_000  # rows over all days; if there are more, only today and a week ago are evaluated
MAX_ROWS_COMPARED = 300_000  # number of rows above which agreement is measured on a sample of the items
MAX_ANNOTATORS = 500  # listed annotators, those with most labels; all who drift are listed in addition


def measure_progress(
    table: Annotations,
    at: FloatArray,
    *,
    before: Annotations | None = None,
    model: Aggregator | None = None,
    decided: Mapping[str, float],
    now: float,
    days: int = 14,
) -> dict[str, Any]:
    """Return the progress of a table whose rows have the (N,) times `at`.

    `before` is the table of a week ago, `model` the fitted method, `decided` the times of decisions by item. If labels
    are not classes, only counts are returned. `drift_tested` is False if there were no earlier labels to compare with.
    """
    at, decided = (
        np.minimum(at, now),
        {name: min(time, now) for name, time in decided.items()},
    )  # The clock may have been set back.
    start = (now // DAY_SECONDS - days + 1) * DAY_SECONDS  # The first day begins here.
    ends = np.minimum(start + DAY_SECONDS * np.arange(1, days + 1), now)
    classes = table.kind in CLASS_KINDS and len(table) == at.size
    by_day = [
        {"day": _format_day(end - 1), "labels": int(n), "items": None, "settled": None, "queue": None}
        for end, n in zip(ends, np.histogram(at, [start, *ends])[0], strict=True)
    ]
    points: dict[float, dict[str, Any]] = {}
    if classes and model is not None and set(table.classes.tolist()) <= set(model.classes_.tolist()):
        some = len(table) * days <= MAX_ROWS_SCORED
        points = {
            end: _count_settled(table, at, model, decided, end)
            for end in [now - WEEK_SECONDS, *(ends if some else [now])]
        }
        by_day = [one | points.get(end, {}) for one, end in zip(by_day, ends, strict=True)]
    week = {key: [points.get(end, {}).get(key) for end in (now, now - WEEK_SECONDS)] for key in ("settled", "queue")}
    ages = ((now - WEEK_SECONDS, now), (now - 2 * WEEK_SECONDS, now - WEEK_SECONDS))
    week["labels"] = [int(((at > low) & (at <= high)).sum()) for low, high in ages]
    week["agreement"] = [one.describe().get("pairwise_agreement") if one else None for one in (table, before)]
    annotators = _annotator_progress(table, at, before, np.array([start, *ends]), now) if classes and len(table) else []
    tested = bool(annotators) and before is not None and len(before) > 0
    return {"days": by_day, "week": week, "annotators": annotators, "drift_tested": tested}


def _count_settled(
    table: Annotations, at: FloatArray, model: Aggregator, decided: Mapping[str, float], end: float
) -> dict[str, Any]:
    """Return the number of items with labels, the share that is settled or decided, and the size of the queue."""
    then = table.select(rows=at <= end)
    then = then.select(items=np.diff(then.item_ptr) > 0)
    if not len(then):
        return {"items": 0, "settled": None, "queue": 0}
    settled = is_settled(model.predict_proba(then).max(axis=1), then.annotators_per_item)
    done = np.array([name for name, time in decided.items() if time <= end], object)
    place = naming.match_names(done, then.items, "items") if done.size else np.empty(0, np.int64)
    settled[place[place >= 0]] = True
    waits = ~settled & (np.diff(then.item_ptr) > 1)  # the list `queue` of `describe.list_masks`
    return {"items": then.n_items, "settled": float(settled.mean()), "queue": int(waits.sum())}


def _annotator_progress(
    table: Annotations, at: FloatArray, before: Annotations | None, edges: FloatArray, now: float
) -> list[dict[str, Any]]:
    """Return each annotator's agreement with the others by day and by week, and whether it drifts."""
    if len(table) > MAX_ROWS_COMPARED:
        kept = np.arange(table.n_items) % -(-len(table) // MAX_ROWS_COMPARED) == 0
        at, table = at[kept[table.item]], table.select(items=kept)
        before = before and before.select(items=np.intersect1d(before.items, table.items))
    others = leave_one_out_posterior(table, np.arange(table.n_annotators))
    days = np.searchsorted(edges, at, side="left") - 1  # −1 for times before the first day
    labels, agreement = _agreement_shares(table, others, days, edges.size - 1)
    _, weeks = _agreement_shares(table, others, (at > now - WEEK_SECONDS).astype(np.int64), 2)
    sentences = {}
    if before is not None and len(before) and len(table):
        names, found = drift(before, table, others=others)
        texts = map(str, found.findings(np.full(names.size, "", object)))  # The sentences do not contain names.
        sentences = dict(zip(names[found.most_significant()].tolist(), (one.strip() for one in texts), strict=True))
    listed = np.argsort(-labels.sum(axis=1), kind="stable")[:MAX_ANNOTATORS].tolist()
    listed += [a for a, name in enumerate(table.annotators.tolist()) if name in sentences and a not in set(listed)]
    return [
        {
            "annotator": str(table.annotators[a]),
            "labels": int(labels[a].sum()),
            "days": [
                {"day": _format_day(edge), "labels": int(n), "agreement": share}
                for edge, n, share in zip(edges, labels[a], _nan_to_none(agreement[a]), strict=False)
            ],
            "agreement": _nan_to_none(weeks[a])[::-1],
            "drifts": table.annotators[a] in sentences,
            "sentence": sentences.get(table.annotators[a], ""),
        }
        for a in listed
    ]


def _agreement_shares(table: Annotations, others: LeaveOneOutPosterior, column: Any, n: int) -> tuple[Any, FloatArray]:
    """Return the (A, n) number of labels and the (A, n) share that agrees with other annotators, NaN without others."""
    A, inside = table.n_annotators, column >= 0
    place = table.annotator.astype(np.int64) * n + column
    right, compared = others.posterior.argmax(axis=1) == table.label, inside & ~others.has_no_others
    labels, n_compared, hits = (
        np.bincount(place[rows], minlength=A * n) for rows in (inside, compared, compared & right)
    )
    with np.errstate(invalid="ignore"):
        return labels.reshape(A, n), (hits / n_compared).reshape(A, n)


def _nan_to_none(shares: FloatArray) -> list[float | None]:
    return [None if np.isnan(share) else float(share) for share in shares]


def _format_day(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).date().isoformat()
