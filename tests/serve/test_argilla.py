"""Argilla both ways, against a fake, or the real server: ARGILLA_SERVER=/path/to/python that has argilla-server."""

import os
import socket
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dissensus.serve import argilla, tool_client
from dissensus.serve.argilla import ArgillaClient, open_datasets
from dissensus.serve.exceptions import ChooseFromTool, ToolAccess, ToolError
from dissensus.serve.requests import decision_event
from dissensus.serve.service import Service
from dissensus.serve.store import open_store
from dissensus.serve.tool import ToolQuestion
from serve.fake_argilla import FakeArgilla

KEY = "key of the owner"
SERVER = os.environ.get("ARGILLA_SERVER")
PEOPLE = ("ann", "bob", "cy")


def test_an_option_may_hold_what_joins_options():
    response = {"id": 1, "status": "submitted", "values": {"topics": {"value": ["b|c", "a"]}}, "updated_at": None}
    made = argilla.response_to_event("i", response, ToolQuestion("topics", "sets", "p", {}), "ann")
    assert (made.label, made.label_kind) == ("a|b|c", "sets")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Where an Argilla server listens."""
    if SERVER is None:
        fake = FakeArgilla(KEY)
        yield fake.url
        fake.close()
        return
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    script = Path(__file__).with_name("argilla_without_search.py")
    with subprocess.Popen([SERVER, str(script), str(tmp_path_factory.mktemp("argilla")), str(port), KEY]) as process:
        for _ in range(120):
            time.sleep(0.5)
            with socket.socket() as one:
                if one.connect_ex(("127.0.0.1", port)) == 0:
                    break
        yield f"http://127.0.0.1:{port}"
        process.terminate()


def options(*names):
    return [{"value": name, "text": name} for name in names]


QUESTIONS = {
    "mood": {"type": "label_selection", "options": options("glad", "cross")},
    "topics": {"type": "multi_label_selection", "options": options("work", "place")},
    "stars": {"type": "rating", "options": [{"value": n} for n in range(1, 6)]},
    "names": {"type": "span", "field": "line", "options": options("PER", "ORG")},
    "note": {"type": "text", "use_markdown": False},
}


class Dataset:
    """A dataset of four records that three people answer; one of each of their keys."""

    def __init__(self, url, name, questions):
        self.admin = ArgillaClient(url, KEY)
        call = self.admin.call
        workspace = call("POST", "/workspaces", {"name": name})["id"]
        self.people = {}
        for who in PEOPLE:
            about = {"username": f"{who}-{name}", "first_name": who, "password": "12345678", "role": "annotator"}
            user = call("POST", "/users", about)
            call("POST", f"/workspaces/{workspace}/users", {"user_id": user["id"]})
            self.people[who] = ArgillaClient(url, user["api_key"])
        about = {"name": name, "workspace_id": workspace, "distribution": {"strategy": "overlap", "min_submitted": 2}}
        self.name, self.id = name, call("POST", "/datasets", about)["id"]
        field = {"name": "line", "title": "line", "required": True, "settings": {"type": "text"}}
        call("POST", f"/datasets/{self.id}/fields", field)
        for one in questions:
            about = {"name": one, "title": one, "required": one == questions[0], "settings": QUESTIONS[one]}
            call("POST", f"/datasets/{self.id}/questions", about)
        call("PUT", f"/datasets/{self.id}/publish")
        items = [
            {"fields": {"line": f"Ann works {n}"}, "external_id": f"r{n}", "metadata": {"source": "x"}} for n in "012"
        ]
        items.append({"fields": {"line": "Bob"}})
        self.records = [
            one["id"] for one in call("POST", f"/datasets/{self.id}/records/bulk", {"items": items})["items"]
        ]

    def answer(self, who, record, status="submitted", **values):
        body = {"values": {key: {"value": value} for key, value in values.items()}, "status": status}
        return self.people[who].call("POST", f"/records/{self.records[record]}/responses", body)["id"]

    def listed(self):
        return [one for page, _ in self.admin.records(self.id) for one in page]


@pytest.fixture
def made(server, tmp_path, request, monkeypatch):
    """Make a dataset with some questions, and what keeps it in step."""
    monkeypatch.setattr(tool_client, "WRITE_PAUSE", 0.0)
    service = Service(open_store(str(tmp_path / "s.db")))

    def make(*questions):
        data = Dataset(server, f"d{abs(hash(request.node.name)) % 10**8}", questions)
        (one,) = open_datasets(service, data.admin, [data.name])
        one.create_projects()
        return data, one

    yield make
    service.close()


def votes(one, question):
    table = one.service.project(f"{one.base}-{question}").table().to_arrow().to_pylist()
    return sorted((row["item"], row["annotator"].partition("-")[0], row["label"]) for row in table)


def test_responses_come_in_once_change_and_go(made):
    data, one = made("mood")
    for who in PEOPLE:
        data.answer(who, 0, mood="glad")
    changed = data.answer("ann", 1, mood="glad")
    gone = data.answer("bob", 1, mood="cross")
    data.answer("cy", 1, "discarded")
    draft = data.answer("ann", 3, "draft", mood="cross")
    assert one.sync() == {"records": 4, "changed": 7, "removed": 0}
    first = [("r0", who, "glad") for who in PEOPLE]
    assert votes(one, "mood") == [*first, ("r1", "ann", "glad"), ("r1", "bob", "cross")]
    assert one.sync() == {"records": 4, "changed": 0, "removed": 0}
    data.people["ann"].call(
        "PUT", f"/responses/{changed}", {"values": {"mood": {"value": "cross"}}, "status": "submitted"}
    )
    data.people["ann"].call(
        "PUT", f"/responses/{draft}", {"values": {"mood": {"value": "glad"}}, "status": "submitted"}
    )
    data.people["bob"].call("DELETE", f"/responses/{gone}")
    assert one.sync() == {"records": 4, "changed": 2, "removed": 1}
    assert votes(one, "mood") == sorted([*first, ("r1", "ann", "cross"), (data.records[3], "ann", "glad")])
    found = one.service.project(f"{one.base}-mood").item("r1")
    assert found["data"] == {"line": "Ann works 1"}
    stamp = next(r for r in data.listed() if r["external_id"] == "r1")["responses"]
    stamp = next(r["updated_at"] for r in stamp if r["id"] == changed)
    assert found["annotations"][0]["at"] == datetime.fromisoformat(stamp).replace(tzinfo=UTC).timestamp()


def test_every_kind_comes_in_and_goes_back(made):
    data, one = made("mood", "topics", "stars", "names", "note")
    marked = [{"start": 0, "end": 3, "label": "PER"}]
    for who in PEOPLE:
        data.answer(who, 0, mood="glad", topics=["work", "place"], stars=4, names=marked)
        data.answer(who, 1, mood="cross", stars=2)
    one.sync()
    kinds = {name.rpartition("-")[2]: one.service.project(name).kind for name in one.service.project_names()}
    assert kinds == {"mood": "classes", "topics": "sets", "stars": "graded", "names": "spans"}
    assert votes(one, "topics") == [("r0", who, "place|work") for who in PEOPLE]
    assert one.service.project(f"{one.base}-names").item("r1")["annotations"][0]["label"] == []
    assert one.write_back() == 2
    named = {q.about["id"]: q.name for q in one.questions}
    first, second = data.listed()[:2]
    said = {named[s["question_id"]]: s for s in first["suggestions"]}
    assert {key: s["value"] for key, s in said.items()} == {
        "mood": "glad", "topics": ["place", "work"], "stars": 4, "names": marked
    }  # fmt: skip
    assert {s["agent"] for s in said.values()} == {"dissensus"}
    assert {named[s["question_id"]] for s in second["suggestions"]} == {"mood", "stars"}  # no set, and no span
    assert first["metadata"]["source"] == "x"
    about = one.service.project(f"{one.base}-mood").item("r0")
    assert first["metadata"]["dissensus_mood_status"] == about["status"]
    assert first["metadata"]["dissensus_mood_confidence"] == pytest.approx(about["confidence"], abs=0.001)
    assert said["mood"]["score"] == pytest.approx(about["confidence"], abs=0.001)


def test_what_is_written_is_written_once_and_taken_away(made):
    data, one = made("mood")
    before = data.listed()
    for who in PEOPLE[:2]:
        data.answer(who, 0, mood="glad")
    data.answer("ann", 1, mood="cross")
    data.answer("ann", 2, mood="cross")
    data.answer("bob", 2, mood="cross")
    other = {
        "question_id": one.questions[0].about["id"],
        "value": "glad",
        "score": 0.5,
        "agent": "another model",
        "type": "model",
    }
    data.admin.call(
        "PUT", f"/datasets/{data.id}/records/bulk", {"items": [{"id": data.records[2], "suggestions": [other]}]}
    )
    one.sync()
    assert one.write_back() == 3
    one.sync()
    assert one.write_back() == 0
    found = data.listed()
    agents = [[s["agent"] for s in record["suggestions"]] for record in found]
    assert agents == [["dissensus"], [], ["another model"], []]  # r1 is not completed: its annotators would see it
    assert found[1]["metadata"]["dissensus_status"] == "needs a look"
    properties = data.admin.call("GET", f"/me/datasets/{data.id}/metadata-properties")["items"]
    assert {(p["name"], p["visible_for_annotators"]) for p in properties} == {
        ("dissensus_status", False), ("dissensus_confidence", False), ("dissensus_agreement", False)
    }  # fmt: skip
    one.service.append(f"{one.base}-mood", [decision_event({"item": "r0", "label": "cross", "by": "eve"})])
    one.write_back()
    first = data.listed()[0]
    assert (first["metadata"]["dissensus_status"], first["suggestions"][0]["value"]) == ("decided", "cross")
    assert one.remove() == {"records": 3, "suggestions": 1, "metadata": 3}
    after = data.listed()
    assert [record["metadata"] or {} for record in after] == [record["metadata"] or {} for record in before]
    assert [s["agent"] for record in after for s in record["suggestions"]] == ["another model"]
    assert data.admin.call("GET", f"/me/datasets/{data.id}/metadata-properties")["items"] == []


def test_a_page_that_may_have_missed_records_removes_nothing(made, monkeypatch):
    data, one = made("mood")
    data.answer("ann", 0, mood="glad")
    one.sync()
    whole = data.listed()
    monkeypatch.setattr(ArgillaClient, "records", lambda *_: iter([(whole[1:], 4)]))  # one was deleted between pages
    assert one.sync()["removed"] == 0
    assert len(votes(one, "mood")) == 1


def test_a_wrong_key_and_a_wrong_dataset_are_said(made, server):
    data, one = made("mood")
    with pytest.raises(ToolError) as caught:
        ArgillaClient(server, "x").call("GET", "/me/datasets")
    assert (caught.value.url, caught.value.status) == (server, 401)
    with pytest.raises(ChooseFromTool) as caught:
        open_datasets(one.service, data.admin, ["nothing"])
    assert caught.value.option == "argilla_dataset"
    with pytest.raises(ToolAccess) as caught:
        ArgillaClient(server, " ")
    assert caught.value.tool == "Argilla"


def test_the_thread_keeps_in_step(made, monkeypatch):
    monkeypatch.setattr(argilla, "SECONDS_BETWEEN_SYNCS", 0.05)
    data, one = made("mood")
    one.start()
    for who in PEOPLE:
        data.answer(who, 0, mood="glad")
    for _ in range(200):
        time.sleep(0.05)
        if data.listed()[0]["suggestions"]:
            break
    one.stop()
    assert data.listed()[0]["suggestions"][0]["value"] == "glad"
