"""What became of a project day by day, against plain loops."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import numpy as np
import pytest

from dissensus import Annotations, methods
from dissensus.questions.diff import drift
from dissensus.questions.spam_tests import leave_one_out_posterior
from dissensus.serve import progress as module
from dissensus.serve.progress import DAY_SECONDS, WEEK_SECONDS, measure_progress

NOW = datetime(2026, 11, 16, 15, 30, tzinfo=UTC).timestamp()


@pytest.fixture(scope="module")
def crowd():
    """240 items in 20 days, four labels each of seven people; "c" answers at will in the last week."""
    rng = np.random.default_rng(3)
    truth, rows = rng.integers(3, size=240), []
    for i, time in enumerate(NOW - 20 * DAY_SECONDS + np.arange(240) / 12 * DAY_SECONDS):
        for a in rng.choice(7, 4, replace=False):
            right = rng.random() < (0.2 if a == 2 and time > NOW - WEEK_SECONDS else 0.85)
            rows.append((f"i{i:03}", "abcdefg"[a], "xyz"[truth[i] if right else rng.integers(3)], time + a))
    rows.append(("i900", "a", "x", NOW - DAY_SECONDS / 2))  # nobody else has labelled it
    rows.sort()
    items, annotators, labels, at = zip(*rows, strict=True)
    table = Annotations.from_arrays(items, annotators, labels)
    return table, np.array(at), methods["majority-vote"]().fit(table)


def made(crowd, **more):
    table, at, model = crowd
    before = table.select(rows=at <= NOW - WEEK_SECONDS)
    return measure_progress(table, at, **{"before": before, "model": model, "decided": {}, "now": NOW} | more)


def test_days_are_counted_and_settled_by_what_is_known_now(crowd):
    table, at, model = crowd
    open_ = table.items[model.posterior_.max(axis=1) < 0.95]
    decided = {open_[0]: NOW - 2.6 * DAY_SECONDS, open_[1]: NOW}
    told = made(crowd, decided=decided)
    assert [one["day"] for one in told["days"]] == [f"2026-11-{day:02}" for day in range(3, 17)]
    for one in told["days"]:
        beginning = datetime.fromisoformat(one["day"]).replace(tzinfo=UTC).timestamp()
        end = min(beginning + DAY_SECONDS, NOW)
        assert one["labels"] == sum(beginning < time <= end for time in at)
        items, settled, waiting = 0, 0, 0
        for i, item in enumerate(table.items):
            rows = [r for r in range(table.item_ptr[i], table.item_ptr[i + 1]) if at[r] <= end]
            if rows:
                votes = np.bincount(table.label[rows], minlength=3)
                sure = (votes.sum() > 1 and votes.max() / votes.sum() >= 0.95) or decided.get(item, np.inf) <= end
                items, settled = items + 1, settled + sure
                waiting += not sure and votes.sum() > 1  # as in the queue
        assert (one["items"], one["queue"]) == (items, waiting)
        assert one["settled"] == pytest.approx(settled / items)
    week = told["week"]
    assert week["labels"] == [
        ((at > low) & (at <= low + WEEK_SECONDS)).sum() for low in (NOW - WEEK_SECONDS, NOW - 2 * WEEK_SECONDS)
    ]
    assert week["queue"][0] == told["days"][-1]["queue"] > week["queue"][1]


def test_who_drifts_is_said_without_the_name(crowd):
    table, at, _ = crowd
    told = {one["annotator"]: one for one in made(crowd)["annotators"]}
    assert [name for name, one in told.items() if one["drifts"]] == ["c"]
    assert re.match(r"now agrees with the others on \d+ % of ", told["c"]["sentence"])
    _, found = drift(table.select(rows=at <= NOW - WEEK_SECONDS), table)
    said = leave_one_out_posterior(table, np.arange(7)).posterior.argmax(axis=1)
    for a, name in enumerate(table.annotators):
        assert told[name]["agreement"] == pytest.approx([found.agreement_since[a], found.agreement_before[a]])
        for day in told[name]["days"]:
            beginning = datetime.fromisoformat(day["day"]).replace(tzinfo=UTC).timestamp()
            rows = np.flatnonzero((table.annotator == a) & (at > beginning) & (at <= beginning + DAY_SECONDS))
            assert day["labels"] == rows.size
            rows = rows[table.items[table.item[rows]] != "i900"]
            assert day["agreement"] == (pytest.approx(np.mean(said[rows] == table.label[rows])) if rows.size else None)


def test_what_is_later_than_now_is_of_today(crowd):
    table, at, model = crowd
    late = table.items[-2]
    told = made((table, np.where(at > NOW - DAY_SECONDS / 2, NOW + 60, at), model), decided={late: NOW + 60})
    assert told == made((table, np.where(at > NOW - DAY_SECONDS / 2, NOW, at), model), decided={late: NOW})
    assert told["days"][-1]["items"] == table.n_items


def test_large_tables_and_other_kinds_have_less(crowd, monkeypatch):
    full = {one["annotator"]: one["labels"] for one in made(crowd)["annotators"]}
    monkeypatch.setattr(module, "MAX_ROWS_SCORED", 1000)
    monkeypatch.setattr(module, "MAX_ROWS_COMPARED", 500)
    monkeypatch.setattr(module, "MAX_ANNOTATORS", 2)
    told = made(crowd)
    assert [one["settled"] is not None for one in told["days"]] == [False] * 13 + [True]
    assert told["week"]["settled"][1] is not None
    assert len(told["annotators"]) in (2, 3)
    for one in told["annotators"]:
        assert 0.3 < one["labels"] / full[one["annotator"]] < 0.7
    numbers = Annotations.from_arrays("aab", "xyx", ["1.5", "2.5", "3.5"]).as_kind("numbers")
    told = measure_progress(numbers, np.full(3, NOW), decided={}, now=NOW)
    assert (told["days"][-1]["labels"], told["annotators"], told["week"]["settled"]) == (3, [], [None, None])
    assert [made(crowd)["drift_tested"], made(crowd, before=None)["drift_tested"], told["drift_tested"]] == [1, 0, 0]
    assert not made(crowd, before=crowd[0].select(rows=crowd[1] < 0))["drift_tested"]


def test_what_one_person_says_several_times_is_not_settled():
    table = Annotations.from_arrays(np.repeat(range(9), 4), list("aaaa" * 8 + "aabb"), ["x"] * 36, classes=["x", "y"])
    model = methods["majority-vote"]().fit(table)
    told = measure_progress(table, np.full(36, NOW), model=model, decided={}, now=NOW)
    assert (told["week"]["settled"][0], told["week"]["queue"][0]) == (pytest.approx(1 / 9), 8)


def test_an_empty_table_and_a_class_that_the_model_does_not_know(crowd):
    table, at, model = crowd
    assert measure_progress(table.select(rows=at < 0), at[:0], decided={}, now=NOW)["days"][0]["labels"] == 0
    more = Annotations.concat([table, Annotations.from_arrays(["i999"], ["a"], ["new"])])
    told = measure_progress(more, np.append(at, NOW), model=model, decided={}, now=NOW)
    assert told["week"]["settled"] == [None, None]
