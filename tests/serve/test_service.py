"""The log and the state that it says: order, repeats, corrections, removals, restarts, two processes, faults."""

import csv
import io
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import Future
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dissensus as dz
from dissensus.models.base import default_method
from dissensus.questions.item_status import status_by_model
from dissensus.serve.events import Event, to_sortable_version
from dissensus.serve.exceptions import FitFailed, NewClass, OthersHavePriority, RefusedLabel, StoreFault, StoreNotUsable
from dissensus.serve.requests import annotation_events, decision_event, item_events
from dissensus.serve.rows import NameList
from dissensus.serve.service import Service
from dissensus.serve.store import open_store
from served import client

POST = {"item": "i", "annotator": "a", "label": "x"}


def says(project):
    """(item, annotator, label) of every row that counts."""
    table = project.table().to_arrow().to_pylist()
    return sorted((row["item"], row["annotator"], row["label"]) for row in table)


def in_seconds(time):
    return datetime.fromisoformat(time).timestamp()


def plain_fold(posted):
    """The rows that count, by a literal reading of the rules: the oracle."""
    rows, removed, began = {}, set(), {}
    for number, one in enumerate(posted):
        id_ = one.get("id", (one.get("item"), one.get("annotator")))
        if one.get("deleted"):
            if "id" in one:
                removed.add(id_)
            else:  # what comes later counts again
                rows.pop(id_, None)
                began[id_] = number
            continue
        version = one.get("version", "")
        if version and one in posted[began.get(id_, 0) : number]:  # sent again: it stands where it first arrived
            continue
        if id_ not in rows or (version, number) >= rows[id_][0]:
            rows[id_] = ((version, number), (one["item"], one["annotator"], one["label"]))
    return sorted(row for id_, (_, row) in rows.items() if id_ not in removed)


VERSIONS = st.sampled_from(["2026-01-01", "2026-01-02", "2026-01-03"])
WITHOUT_ID = {"item": st.sampled_from("kl"), "annotator": st.sampled_from("ab")}
posts = st.lists(
    st.one_of(
        st.fixed_dictionaries(
            {
                "id": st.sampled_from("123456"),
                "item": st.sampled_from("ij"),
                "annotator": st.sampled_from("abc"),
                "label": st.sampled_from("xyz"),
                "version": VERSIONS,
            }
        ),
        st.fixed_dictionaries({"id": st.sampled_from("123456"), "deleted": st.just(True)}),
        st.fixed_dictionaries(WITHOUT_ID | {"label": st.sampled_from("xyz")}, optional={"version": VERSIONS}),
        st.fixed_dictionaries(WITHOUT_ID | {"deleted": st.just(True)}),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(posts, st.lists(st.integers(0, 3), min_size=12, max_size=12))
def test_the_state_is_the_fold_whatever_arrives_and_whoever_stores_it(tmp_path_factory, posted, steps):
    """Two processes take turns at random, one starts anew at random, some posts are sent twice."""
    where = str(tmp_path_factory.mktemp("log") / "x.db")
    services = [Service(open_store(where), fits=False) for _ in range(2)]
    services[0].create_project("p")
    seen = []
    for one, step in zip(posted, steps, strict=False):
        service = services[step % 2]
        service.append("p", annotation_events(one))
        seen.append(one)
        if step == 3:
            service.append("p", annotation_events(one))
            service.close()
            services[1] = Service(open_store(where), fits=False)
    for service in services:
        service._apply_new_events()
        assert says(service.project("p")) == plain_fold(seen)
        service.close()
    with Service(open_store(where), fits=False) as again:
        assert says(again.project("p")) == plain_fold(seen)


def test_versions_decide_not_the_order_of_arrival(opened):
    service = opened(fits=False)
    service.create_project("p")
    new, old = ({**POST, "id": 7, "label": label, "version": when} for label, when in (("new", 10), ("old", 9)))
    assert service.append("p", annotation_events(new))[:3] == (1, 0, 0)
    assert service.append("p", annotation_events(old))[:3] == (0, 0, 1)
    assert service.append("p", annotation_events([new, old]))[:3] == (0, 2, 0)
    assert says(service.project("p")) == [("i", "a", "new")]
    assert service.append("p", [Event("removal", "7", "")])[:3] == (1, 0, 0)
    assert service.append("p", annotation_events({**new, "version": 11}))[:3] == (0, 0, 1)
    assert says(service.project("p")) == []


def test_a_removed_label_is_in_no_answer_before_the_next_fit(opened, monkeypatch):
    monkeypatch.setattr("dissensus.serve.project.MAX_ROWS_FITTED_AT_ONCE", 0)  # no fit within a request
    service = opened(fits=False)
    service.create_project("p")
    service.append("p", annotation_events([{**POST, "id": 1}, {**POST, "id": 2, "annotator": "b", "label": "z"}]))
    service.append("p", [Event("removal", "1", "")])
    found = service.project("p").item("i")
    assert ([one["annotator"] for one in found["annotations"]], found["votes"]) == (["b"], {"z": 1})


def test_a_state_that_cannot_be_made_is_made_with_the_next_events(opened, monkeypatch):
    service = opened(fits=False)
    project = service.create_project("p")
    with monkeypatch.context() as patch:
        for name in ("apply", "load"):
            patch.setattr(project, name, lambda *_: 1 / 0)
        assert service.submit("p", annotation_events(POST)).result(timeout=5).accepted == 1
    service.append("p", annotation_events({**POST, "annotator": "b"}))
    assert says(project) == [("i", "a", "x"), ("i", "b", "x")]


def test_without_an_id_posting_again_corrects_and_back(opened):
    service = opened(fits=False)
    service.create_project("p")
    for label, outcome in (("x", (1, 0, 0)), ("x", (0, 1, 0)), ("y", (1, 0, 0)), ("x", (1, 0, 0))):
        assert service.append("p", annotation_events({**POST, "label": label}))[:3] == outcome
        assert says(service.project("p")) == [("i", "a", label)]


def test_without_an_id_a_label_that_was_removed_can_be_given_again(opened):
    service = opened(fits=False)
    service.create_project("p")
    gone, fifth = {"item": "i", "annotator": "a", "deleted": True}, {**POST, "label": "z", "version": 5}
    for one, outcome in ((POST, 0), (gone, 0), (gone, 1), (POST, 0), (POST, 1), (gone, 0), ({**POST, "label": "y"}, 0)):
        assert service.append("p", annotation_events(one))[outcome] == 1
    assert says(service.project("p")) == [("i", "a", "y")]
    for one in (fifth, gone, fifth, gone, {**fifth, "version": 3}):  # a removal without a version is of all before it
        assert service.append("p", annotation_events(one)).accepted == 1
    assert says(service.project("p")) == [("i", "a", "z")]
    assert service.project("p").item("i")["labels"] == 1


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("9", "10"),
        ("9.5", 10),
        (9, 9.5),
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00.5Z"),
        ("2026-01-01T10:00:00+02:00", "2026-01-01T09:00Z"),
    ],
)
def test_versions_sort_as_numbers_and_times(older, newer):
    assert "" < to_sortable_version(older) < to_sortable_version(newer)


@pytest.mark.parametrize("kind", [None, "graded", "numbers", "sets", "pairs"])
def test_answers_after_a_fit_are_those_of_aggregate(opened, tmp_path, kind):
    rng = np.random.default_rng(3)
    options = {
        None: ["cat", "dog", "owl"], "graded": ["1", "2", "3"], "numbers": [0.5, 2, 9],
        "sets": [["a"], ["a", "b"], []], "pairs": ["left", "right", "tie"],
    }[kind]  # fmt: skip
    names = ["A vs B", "B vs C", "A vs C"] if kind == "pairs" else [f"i{at}" for at in range(25)]
    posted = [{"item": i, "annotator": f"w{a}", "label": options[rng.integers(3)]} for i in names for a in range(4)]
    service = opened()
    service.create_project("p", kind=kind)
    for start in range(0, len(posted), 10):
        service.append("p", annotation_events(posted[start : start + 10]))
    project = service.project("p")
    project.refit()
    file = tmp_path / "export.csv"
    file.write_bytes(project.export("csv"))
    table = dz.read(file, **({} if kind is None else {"kind": kind}))
    model = dz.methods[default_method(table.kind)]().fit(table)
    for row in status_by_model(model, table).add_columns(model.to_frame("items", "pyarrow")).to_pylist():
        found = project.item(row["item"])
        assert (found["status"], found["reason"]) == (row["status"], row["reason"])
        label = row.get("label", row.get("value"))
        assert ("|".join(found["label"]) or "∅" if kind == "sets" else found["label"]) == label
        assert found["confidence"] == row.get("confidence")


@pytest.mark.parametrize(
    ("kind", "label"), [("numbers", 0.5), ("sets", ["a"]), ("pairs", "left"), ("spans", []), ("graded", 2)]
)
def test_one_label_settles_nothing_of_any_kind(opened, kind, label):
    service = opened()
    service.create_project("p", kind=kind)
    other = {"numbers": 9, "sets": [], "pairs": "right", "graded": 3}.get(kind, label)
    items = [f"i{n}" for n in range(12)] if kind != "pairs" else ["A vs B", "B vs C", "A vs C"]
    service.append("p", item_events([{"item": name, "text": "Ann works"} for name in items]))
    rows = [
        {"item": i, "annotator": who, "label": (label, other)[n % 2]} for n, i in enumerate(items) for who in "abcd"
    ]
    service.append("p", annotation_events(rows[:-3]))  # of the last item one label only
    project = service.project("p")
    project.refit()
    found = project.items(order="name")
    assert found["counts"]["settled"] >= 1
    assert project.item(items[-1])["status"] == "needs a look"
    assert project.item(items[-1])["labels"] == 1
    assert found["counts"]["settled"] == sum(one["status"] == "settled" for one in found["items"])


def test_spans_are_answered_by_document(opened):
    service = opened()
    service.create_project("p")
    for who in "abc":
        spans = [{"start": 0, "end": 4, "label": "PER"}] if who != "c" else []
        service.append("p", annotation_events({"item": "d", "annotator": who, "label": spans}))
    found = service.project("p").item("d")
    assert service.project("p").kind == "spans"
    assert [(one["start"], one["end"], one["label"]) for one in found["label"]] == [(0, 4, "PER")]
    assert found["annotations"][2]["label"] == []


def test_what_came_since_the_fit_is_scored_with_all_rows_of_the_item(opened):
    service = opened(fits=False)
    service.create_project("p")
    rng = np.random.default_rng(0)
    rows = [
        (f"i{i}", f"w{a}", "xyz"[i % 3 if rng.random() < 0.7 else rng.integers(3)]) for i in range(60) for a in range(5)
    ]
    keys = ("item", "annotator", "label")
    service.append("p", annotation_events([dict(zip(keys, row, strict=True)) for row in rows]))
    project = service.project("p")
    fitted = project.fitted
    service.append(
        "p",
        annotation_events(
            [{**POST, "item": "i3", "annotator": "new"}, {"item": "i4", "annotator": "w1", "label": "z"}]
        ),
    )
    service.append("p", [Event("removal", "i5\x1fw2", "")])
    assert project.fitted is fitted
    now = project.table()
    wanted = dict(zip(now.items.tolist(), fitted.model.predict_proba(now), strict=True))
    for name in ("i3", "i4", "i5", "i6"):
        assert list(project.item(name)["probabilities"].values()) == pytest.approx(wanted[name].tolist(), abs=1e-12)
    assert project.item("i5")["labels"] == 4


@pytest.mark.parametrize("quick", [True, False])
def test_a_class_that_is_new_is_fitted_at_once_or_answered_by_its_votes(opened, monkeypatch, quick):
    monkeypatch.setattr("dissensus.serve.project.QUICK_FIT_SECONDS", 0.2 if quick else 0.0)
    service = opened(fits=False)
    service.create_project("p")
    rows = [{"item": f"i{i}", "annotator": who, "label": "xy"[i % 2]} for i in range(9) for who in "abc"]
    service.append("p", annotation_events(rows))
    service.append("p", annotation_events([{**POST, "item": "j", "annotator": who, "label": "new"} for who in "abc"]))
    project = service.project("p")
    found, short = project.item("j"), project.short(["j"])[0]
    assert (found["label"], short["label"]) == ("new", "new")
    if quick:
        assert found["confidence"] > 0.5
        assert found["reason"]
    else:
        assert (found["confidence"], found["status"]) == (None, "needs a look")
        assert found["reason"] == str(NewClass())
        assert project.items(status="queue")["items"][0]["item"] == "j"
        project.refit()
        assert project.item("j")["confidence"] > 0.5


def test_a_decision_is_gold_at_once_and_in_the_next_fit(opened):
    service = opened()
    service.create_project("p")
    service.append(
        "p", annotation_events([{**POST, "item": i, "annotator": a, "label": "x"} for i in "ijk" for a in "ab"])
    )
    service.append("p", [decision_event({"item": "i", "label": "y", "by": "boss", "note": "seen"})])
    project = service.project("p")
    found = project.item("i")
    assert (found["label"], found["confidence"], found["status"], found["decision"]["by"]) == (
        "y",
        1.0,
        "decided",
        "boss",
    )
    project.refit()
    assert project.item("i")["probabilities"]["y"] == 1.0
    service.append(
        "p", [decision_event({"item": "j", "both": ["x", "y"]}), decision_event({"item": "k", "unclear": True})]
    )
    assert project.items(status="decided")["total"] == 3
    assert project.items(status="unsettled")["total"] == 0
    assert project.item("j")["confidence"] < 1
    service.append("p", [Event("withdrawal", "i", "i")])
    assert project.item("i")["decision"] is None


def test_a_set_that_nobody_ticked_may_be_decided_where_somebody_labelled_an_item_twice(opened):
    service = opened(fits=False)
    service.create_project("p", kind="sets")
    rows = [{**POST, "id": id_, "label": [id_]} for id_ in "xy"]  # which are read as one set, of both
    service.append("p", annotation_events([*rows, {**POST, "annotator": "b", "label": ["x"]}]))
    for label in ([], ["y"], ["x", "z"]):
        service.append("p", [decision_event({"item": "i", "label": label})])
        service.project("p").refit()
        assert service.project("p").item("i")["label"] == label


def test_the_decision_before_stands_again_when_one_is_withdrawn(opened):
    service = opened(fits=False)
    service.create_project("p")
    service.append("p", annotation_events([POST]))

    def stands():
        read = [opened(fits=False), service]  # one from the log alone
        found = {(one["by"], one["label"]) for at in read for one in at.project("p").all_decisions()}
        return found.pop() if found else None

    def decide(by, label, id_="i"):
        return service.append("p", [Event("decision", id_, "i", by, label)]).seq

    def withdraw(seq=None, id_="i"):
        service.append("p", [Event("withdrawal", id_, "i", data=seq and {"seq": seq})])
        return stands()

    first, second, third = decide("ann", "x"), decide("bob", "y"), decide("ann", "z")
    assert withdraw(second) == ("ann", "z")  # not bob's any more: nobody else's goes with it
    assert withdraw(third) == ("ann", "x")
    assert service.append("p", [Event("withdrawal", "i", "i", data={"seq": third})]).duplicates == 1
    assert withdraw(first) is None
    decide("ann", "x")
    decide("bob", "y")
    decide("tool", "z", "gold-1")
    assert withdraw() == ("tool", "z")
    assert withdraw(id_="gold-1") is None


def test_the_table_of_a_time_is_what_counted_then(opened):
    now = [100.0]
    service = opened(fits=False, clock=lambda: now[0])
    service.create_project("p")
    for label in ("x", "y"):
        service.append("p", annotation_events({**POST, "id": 1, "label": label, "version": now[0]}))
        now[0] += 100
    project = service.project("p")
    assert project.table(50).n_annotations == 0
    assert project.table(150).to_arrow()["label"].to_pylist() == ["x"]
    assert project.table(250).to_arrow()["label"].to_pylist() == ["y"]


def test_an_annotation_counts_from_its_own_time_on(opened):
    now = 1.8e9
    service = opened(clock=lambda: now)
    service.create_project("p")
    week_ago, long_ago = now - 8 * 86_400, "2027-01-01T00:00:00Z"  # 14 days before
    service.append("p", annotation_events([{**POST, "at": week_ago}, {**POST, "annotator": "b", "at": long_ago}]))
    service.append("p", annotation_events({**POST, "label": "y", "at": now - 60}))  # a correction
    project = service.project("p")
    assert project.table(now - 10 * 86_400).to_arrow()["annotator"].to_pylist() == ["b"]
    assert project.table(now - 7 * 86_400).to_arrow()["label"].to_pylist() == ["x", "x"]
    assert [one["at"] for one in project.item("i")["annotations"]] == [now - 60, in_seconds(long_ago)]
    assert {one["annotator"]: one["last"] for one in project.annotators()}["b"] == in_seconds(long_ago)
    told = project.progress(days=20)
    assert sum(one["labels"] for one in told["days"][:-7]) == 1
    assert told["week"]["agreement"] == [0.0, 1.0]


@pytest.mark.parametrize("at", [1.9e9, 0, -5, 1.7e12, "1969-12-31T00:00:00Z", "9999-01-01", None])
def test_a_time_that_cannot_be_is_that_of_arrival(opened, at):
    service = opened(fits=False, clock=lambda: 1.8e9)
    service.create_project("p")
    service.append("p", annotation_events({**POST, "at": at}))
    assert service.project("p").item("i")["annotations"][0]["at"] == 1.8e9


def test_progress_that_is_kept_says_up_to_which_event_it_goes(opened, monkeypatch):
    service = opened(fits=False)
    project = service.create_project("p")
    for who, goes_to in (("a", 1), ("b", 1), ("c", 3)):
        monkeypatch.setattr("dissensus.serve.project.CACHE_SECONDS", 0.0 if who == "c" else 60.0)
        service.append("p", annotation_events({**POST, "annotator": who}))
        told = project.progress()
        assert (told["as_of"], told["days"][-1]["labels"]) == (goes_to, goes_to)


def test_a_clock_that_jumps_back_changes_no_order(opened):
    now = [1e9]
    service = opened(fits=False, clock=lambda: now[0])
    service.create_project("p")
    for label in ("x", "y"):
        service.append("p", annotation_events({**POST, "label": label}))
        now[0] = 5.0
    assert says(service.project("p")) == [("i", "a", "y")]
    assert service.project("p").progress()["days"]


# Faults ---------------------------------------------------------------------------------------------------------------


def test_a_full_disk_refuses_in_a_sentence_and_keeps_what_was_there(opened):
    service = opened(fits=False)
    service.create_project("p")
    service.append("p", annotation_events(POST))
    store = service.store
    pages = store._connection("write").execute("PRAGMA page_count").fetchone()[0]
    store._connection("write").execute(f"PRAGMA max_page_count = {pages}")
    long = [{**POST, "item": f"item {at}" * 50} for at in range(500)]
    with pytest.raises(StoreFault) as caught:
        service.append("p", annotation_events(long))
    assert caught.value.fault == "full"
    assert says(service.project("p")) == [("i", "a", "x")]
    service.append("p", annotation_events(long))  # space is free again: the connection was made anew
    assert service.project("p").table().n_annotations == 501


def test_a_locked_file_refuses_in_a_sentence(opened, where, monkeypatch):
    monkeypatch.setattr("dissensus.serve.store.WAIT_SECONDS", 0.05)
    service = opened(fits=False)
    service.create_project("p")
    other = sqlite3.connect(where, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreFault) as caught:
        service.append("p", annotation_events(POST))
    assert caught.value.fault == "locked"
    other.execute("ROLLBACK")
    other.close()
    assert service.append("p", annotation_events(POST)).accepted == 1


def test_a_state_that_cannot_follow_is_made_again_from_the_log(opened, monkeypatch):
    service = opened(fits=False)
    service.create_project("p")
    with monkeypatch.context() as patched:
        patched.setattr("dissensus.serve.rows.AnnotationRows.put_row", lambda *_: 1 / 0)
        assert service.append("p", annotation_events(POST)).accepted == 1
    assert says(service.project("p")) == [("i", "a", "x")]
    assert service.append("p", annotation_events({**POST, "annotator": "b"})).accepted == 1


def test_a_fit_that_fails_stops_nothing_and_is_said_until_it_is_mended(opened, monkeypatch, caplog):
    opened().create_project("p", kind="numbers")
    one = opened(fits=False)
    with monkeypatch.context() as patched:  # as an older version took them
        patched.setattr("dissensus.serve.project.Project.check", lambda _, events, told: (events, told))
        one.append("p", [Event("annotation", "1", "i", "a", "1e200"), Event("annotation", "2", "i", "b", "3")])
    service = opened()
    project = service.project("p")
    assert service.count_failing() == project.metric_values()["fit_failed"] == 1
    assert "1e200" in caplog.text
    assert project.item("i")["fit_error"] == str(project.fit_error)
    assert project.item("i")["status"] == "needs a look"
    assert sorted(project.export().decode().split()) == ["i,a,1e200", "i,b,3", "item,annotator,label"]
    with pytest.raises(FitFailed) as caught:
        project.export(content="items")
    assert (caught.value.subjects, "1e200" in caught.value.reason) == (("p",), True)
    service.append("p", [Event("removal", "1", "")])
    project.refit()
    assert (service.count_failing(), "fit_error" in project.item("i"), round(project.item("i")["label"], 9)) == (
        0,
        False,
        3,
    )


def test_what_one_person_says_twice_is_not_settled_before_the_next_fit(opened, monkeypatch):
    service = opened(fits=False)
    project = service.create_project("p", kind="sets")
    rows = [{**POST, "item": f"i{n}", "annotator": who, "label": ["xy"[n % 2]]} for n in range(30) for who in "abc"]
    service.append("p", annotation_events([*rows, {**POST, "item": "i0", "id": "1", "label": ["x"]}]))
    project.refit()
    assert project.item("i0")["status"] == "settled"
    monkeypatch.setattr(project, "should_wait_for_fit", lambda: False)
    gone = [{"item": "i0", "annotator": who, "deleted": True} for who in "bc"]
    service.append("p", annotation_events(gone))
    assert (project.item("i0")["labels"], project.item("i0")["status"]) == (2, "needs a look")


def test_a_fit_that_failed_is_tried_again_after_a_while(opened, monkeypatch, caplog):
    service = opened(fits=False)
    project = service.create_project("p")
    monkeypatch.setattr("dissensus.serve.project.fit_project", lambda *_: 1 / 0)
    service.append("p", annotation_events(POST))
    service._fit(project)
    assert [one.message for one in caplog.records] == [str(FitFailed(reason="division by zero").add_subject("p"))]
    assert project.fit_error.reason == "division by zero"
    assert [project.needs_fit(time.monotonic() + wait) for wait in (0, 10)] == [False, True]


@pytest.mark.parametrize("about", [{"kind": "spans"}, {"kind": "sets"}, {}])
def test_a_first_list_that_is_empty_is_answered_and_leaves_the_kind_open(opened, about):
    service = opened()
    service.create_project("p", **about)
    service.append("p", annotation_events({**POST, "label": []}))
    service.close()
    service = opened()
    project = service.project("p")
    found = project.item("i")
    assert (found["annotations"][0]["label"], found["status"], service.count_failing()) == ([], "needs a look", 0)
    assert project.export(content="items").startswith(b"item,label")
    label = ["x"] if about.get("kind") == "sets" else [{"start": 0, "end": 2, "label": "P"}]
    service.append("p", annotation_events({**POST, "annotator": "b", "label": label}))
    project.refit()
    found = project.item("i")
    assert [one["label"] for one in found["annotations"]] == [[], label]
    assert service.count_failing() == 0


def test_of_a_batch_one_request_fails_alone(opened):
    service = opened(fits=False)
    service.create_project("p")
    pending = [("p", annotation_events({**POST, "annotator": who}), Future()) for who in "abc"]
    pending.insert(1, ("p", [Event("item", "i", "i", data={"text": "\ud800"})], Future()))
    service._write_batch(pending)
    with pytest.raises(UnicodeEncodeError):
        pending.pop(1)[2].result()
    assert [waits.result().accepted for _, _, waits in pending] == [1, 1, 1]


def test_a_file_that_is_no_store_is_named(tmp_path):
    (tmp_path / "x.db").write_text("item,annotator,label\n" * 100)
    with pytest.raises(StoreNotUsable) as caught:
        open_store(str(tmp_path / "x.db"))
    assert caught.value.store == str(tmp_path / "x.db")


SPANS = [{"start": 0, "end": 2, "label": "P"}]


@pytest.mark.parametrize(
    ("about", "labels", "kind"),
    [
        ({"kind": "numbers"}, ["many"], "numbers"),
        ({"kind": "numbers"}, ["1e200"], "numbers"),
        ({"kind": "graded"}, ["low"], "graded"),
        ({"kind": "pairs"}, ["left"], "pairs"),
        ({"kind": "spans"}, ["x"], "spans"),
        ({"kind": "classes"}, [["a", "b"]], "classes"),
        ({}, ["1e200"], "classes"),
        ({}, [[1, 2]], "lists"),
        ({}, ["x", SPANS], "classes"),
        ({}, [["x"], SPANS], "sets"),
        ({}, [SPANS, "x"], "spans"),
        ({}, [[], "x"], "lists"),
        ({}, ["x", []], "classes"),
    ],
)
@pytest.mark.parametrize("apart", [False, True])
def test_a_label_of_another_kind_is_refused(opened, about, labels, kind, apart):
    service = opened(fits=False)
    service.create_project("p", **about)
    events = annotation_events(
        [{**POST, "annotator": who, "label": label} for who, label in zip("ab", labels, strict=False)]
    )
    parts = [[event] for event in events] if apart else [events]
    pending = [("p", part, Future()) for part in parts]
    service._write_batch(pending)  # in one transaction
    assert [waits.result().accepted for _, _, waits in pending[:-1]] == [1] * (len(parts) - 1)
    with pytest.raises(RefusedLabel) as caught:
        pending[-1][2].result()
    assert (caught.value.item, caught.value.kind) == ("i", kind)


@pytest.mark.parametrize("item", [" vs x", "x vs ", "x vs y vs z", "x"])
def test_an_item_that_names_no_two_things_is_no_comparison(opened, item):
    service = opened(fits=False)
    service.create_project("p", kind="pairs")
    with pytest.raises(RefusedLabel) as caught:
        service.append("p", annotation_events({**POST, "item": item, "label": "left"}))
    assert (caught.value.item, caught.value.kind) == (item, "pairs")


WRITER = """
import sys
from dissensus.serve.requests import annotation_events
from dissensus.serve.service import Service
from dissensus.serve.store import open_store
service = Service(open_store(sys.argv[1]), fits=False)
for at in range(int(sys.argv[2]), 10**9, 20):
    service.append("p", annotation_events([{"id": n, "item": f"i{n % 50}", "annotator": f"w{n % 7}", "label": "x"}
                                           for n in range(at, at + 20)]))
    print(at + 20, flush=True)
"""


def kill_often(where, times, rng):
    """Start a writer again and again where it stopped, and kill it; the number of annotations acknowledged."""
    with Service(open_store(where), fits=False) as service:
        service.create_project("p")
    known = 0
    for _ in range(times):
        start = max(0, known - 40)  # a tool sends again what it has sent
        command = [sys.executable, "-c", WRITER, where, str(start)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        process.stdout.readline()
        timer = threading.Timer(rng.uniform(0, 0.15), process.kill)
        timer.start()
        said = process.stdout.read().split()
        timer.join()
        process.wait()
        process.stdout.close()
        known = max(known, start + 20, *map(int, said[-1:]))
    return known


def test_what_is_acknowledged_survives_kill_9_and_nothing_is_there_twice(where):
    known = kill_often(where, int(os.environ.get("SERVE_KILLS", "2")), np.random.default_rng(0))
    with Service(open_store(where), fits=False) as service:
        rows = list(csv.DictReader(io.StringIO(service.project("p").export("csv").decode())))
        ids = [id_ for (id_,) in service.store.run("SELECT id FROM event")]
    assert len(ids) == len(set(ids)) == len(rows)
    assert {f"a{n}" for n in range(known)} <= set(ids)


def test_what_is_said_before_a_restart_is_said_after_it(opened):
    now = iter(range(1_700_000_000, 1_800_000_000))
    service = opened(clock=lambda: next(now), fits=False)
    service.create_project("p")
    for one in (
        {**POST, "id": 0, "item": "j"}, {**POST, "id": 1, "annotator": "b"}, {**POST, "id": 2, "annotator": "c"},
        {**POST, "id": 0}, {**POST, "item": "j"}, {**POST, "item": "k", "annotator": "b"},
        {**POST, "item": "l", "annotator": "c"}, {"id": 1, "deleted": True},
        {"item": "j", "annotator": "a", "deleted": True},
    ):  # fmt: skip
        service.append("p", annotation_events(one))
    before, after = (one.project("p") for one in (service, opened(fits=False)))
    before.refit()
    after.refit()
    assert before.items(order="changed") == after.items(order="changed")
    assert before.annotators() == after.annotators()


def test_two_processes_agree(opened):
    one, other = opened(), opened()
    one.create_project("p")
    one.append("p", annotation_events([{**POST, "item": i, "annotator": a} for i in "ij" for a in "ab"]))
    other.append("p", annotation_events([{**POST, "item": "k", "annotator": a} for a in "cd"]))
    one._apply_new_events()
    assert says(one.project("p")) == says(other.project("p"))
    assert len(says(one.project("p"))) == 6
    assert Path(one.store.url).exists()


def test_a_project_that_another_process_made_is_there_at_once(opened):
    one, other = opened(fits=False), opened(fits=False)
    one.create_project("p")
    assert other.project_names() == ["p"]
    assert client(other).post("/projects", json={"name": "p"}).status_code == 200
    one.create_project("q")
    assert client(other).post("/projects", json={"name": "q"}).status_code == 200


def test_more_events_than_one_statement_takes_are_stored_once(opened):
    service = opened(fits=False)
    service.create_project("p")
    posted = [{"item": f"i{at}", "annotator": "a", "label": "x"} for at in range(1_200)]
    assert service.append("p", annotation_events(posted)).accepted == 1_200
    again = service.append("p", annotation_events([*posted, POST]))
    assert (again.accepted, again.duplicates, again.seq) == (1, 1_200, 1_201)
    assert len(says(opened(fits=False).project("p"))) == 1_201


def test_reasons_are_those_of_the_fit_and_follow_what_came_since(opened):
    service = opened(fits=False)
    project = service.create_project("p")
    rows = [{"item": f"i{at}", "annotator": who, "label": "xy"[at % 2]} for at in range(9) for who in "abc"]
    service.append("p", annotation_events(rows))
    project.refit()
    agree = project.item("i0")["reason"]
    reasons = {agree}
    for who in "de":
        service.append("p", annotation_events({"item": "i3", "annotator": who, "label": "x"}))
        found = [one["reason"] for one in project.items(order="name")["items"]]
        assert found == [agree] * 3 + [found[3]] + [agree] * 5
        reasons.add(found[3])
    assert len(reasons) == 3
    service.append("p", annotation_events({"item": "new", "annotator": "a", "label": "x"}))
    project.refit()
    table = project.table()
    expected = status_by_model(dz.methods[default_method("classes")]().fit(table), table).reason.to_pylist()
    assert [project.item(str(name))["reason"] for name in table.items] == expected


def test_names_stay_in_order_when_others_come():
    names = NameList(["b", "a", "c"])
    used = np.array([0, 1])
    for more in ([], ["0"]):
        names.extend(more)
        found, codes, rank = names.sort_used(used)
        assert (found.tolist(), codes.tolist()) == (["a", "b"], [1, 0])
        assert rank.tolist() == [1, 0, -1, *(-1 for _ in more)]
    found, codes, rank = names.sort_used(np.array([0, 1, 3]))
    assert (found.tolist(), codes.tolist(), rank.tolist()) == (["0", "a", "b"], [3, 1, 0], [2, 1, -1, 0])


@pytest.mark.skipif(
    "SERVE_KILLS" not in os.environ, reason="starts PostgreSQL and kills a hundred times: make test-serve"
)
def test_postgres_holds_the_same_log_and_survives_too():
    from benchmarks.serve.load import postgres

    rng = np.random.default_rng(1)
    with postgres() as where:
        services = [Service(open_store(where), fits=False) for _ in range(2)]
        services[0].create_project("q")
        posted = []
        for _ in range(200):
            odd = "\t\\N\n"  # what a copy has to escape
            one = {"id": str(rng.integers(40)), "item": f"i{rng.integers(9)}{odd}", "annotator": f"w{rng.integers(4)}"}
            one |= {"label": "xyz"[rng.integers(3)], "version": to_sortable_version(int(rng.integers(1, 5)))}
            posted.append(one if rng.random() < 0.9 else {"id": one["id"], "deleted": True})
            services[rng.integers(2)].append("q", annotation_events(posted[-1]))
        services.append(Service(open_store(where), fits=False))
        for service in services:
            service._apply_new_events()
            assert says(service.project("q")) == plain_fold(posted)
            service.close()
        known = kill_often(where, int(os.environ["SERVE_KILLS"]), rng)
        with Service(open_store(where), fits=False) as service:
            ids = [id_ for (id_,) in service.store.run("SELECT id FROM event WHERE project = 2")]
        assert len(ids) == len(set(ids))
        assert {f"a{n}" for n in range(known)} <= set(ids)


def test_what_a_label_is_worth_to_next_is_its_equation(opened):
    rng = np.random.default_rng(0)
    rows = [
        {"item": f"i{i}", "annotator": a, "label": "xyz"[(i + (rng.random() < wrong)) % 3]}
        for i in range(30) for a, wrong in (("a", 0.0), ("b", 0.2), ("c", 0.5)) if (i + ord(a)) % 4
    ]  # fmt: skip
    rows += [{"item": f"own {i}", "annotator": "c", "label": "x"} for i in range(7)]  # which nobody checked
    service = opened(fits=False)
    service.create_project("p")
    service.append("p", annotation_events(rows))
    project = service.project("p")
    project.refit()
    project.next_items("somebody")
    assigner, model = project.assigner, project.fitted.model
    codes = np.arange(len(project.names[0]))
    given = Counter(row["item"] for row in rows)
    for name in ("b", "c", "somebody new"):
        crowd = model.annotator_confusions(np.array([-1]))[0]  # [true, given]
        theta = crowd
        if name in "bc":
            checked = sum(row["annotator"] == name and given[row["item"]] > 1 for row in rows)
            own = model.annotator_confusions(np.array(["abc".index(name)]))[0]
            theta = (5 * crowd + checked * own) / (5 + checked)
        worth = assigner._gain(codes, assigner._current_beliefs(codes), project.names[1].codes.get(name, -1))
        for code in codes[::9]:
            q, item = project.posterior(code), project.names[0].texts[code]
            told = 0.0
            for said in range(3):
                share = sum(q[k] * theta[k, said] for k in range(3))
                told += sum(q[k] * theta[k, said] * np.log(theta[k, said] / share) for k in range(3))
            assert worth[code] == pytest.approx(told / np.sqrt(1 + given[item] * model.dependence_), abs=1e-12)


def test_next_turns_away_who_is_often_wrong_twice_in_a_row_and_nobody_else(opened):
    rows = [
        {"item": f"i{k:02}", "annotator": who, "label": "xy"[k % 2] if who in "abc" else "xyyx"[k % 4]}
        for k in range(40) for who in ("a", "b", "c", "wild")
    ]  # fmt: skip
    service = opened(fits=False)
    service.create_project("p", classes=["x", "y"])
    service.append("p", annotation_events(rows))
    service.append("p", item_events([{"item": f"new {k}"} for k in range(9)]))
    project = service.project("p")
    project.refit()
    for _ in range(2):
        told = project.next_items("wild")
        assert told["items"] == []
        assert told["stop"] == str(OthersHavePriority())
    for who in ("wild", "a", "b", "c", "somebody"):
        (asked,) = project.next_items(who)["items"]
        assert asked["item"].startswith("new")
