"""The page in a real browser: signing in, what is settled, deciding by keyboard on a service and on a file."""

from __future__ import annotations

import csv
import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")
import uvicorn
from typer.testing import CliRunner

from cli.tables import rows, write_csv
from dissensus import read
from dissensus.cli import app as cli
from dissensus.cli.adjudicate import PROJECT, Decisions, _make_service
from dissensus.cli.exceptions import BadBoth, BadDecision, NotWrittenBy
from dissensus.exceptions import UnwritableFile
from dissensus.serve.app import create_app
from dissensus.serve.events import Event
from dissensus.serve.exceptions import InvalidValue
from dissensus.serve.requests import annotation_events, decision_event
from dissensus.serve.service import Service
from dissensus.serve.store import open_store
from dissensus.serve.tokens import TokenStore
from dissensus.table.exceptions import NotUtf8
from dissensus.table.io import read_gold
from report.test_browser import CHROMIUM, browser  # noqa: F401 - a fixture

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: the page was not tried in a browser"),
    pytest.mark.xdist_group("browser"),
]
ODD = ("../a text\nwith two lines", "w" * 300)
TEXT = "Zoë 👋 met <b>Ann</b> in Oslo"


@pytest.fixture
def opened(browser: Any):  # noqa: F811
    """Opens a page; at the end nothing may have been logged, gone wrong or been loaded from elsewhere."""
    wrong: list[str] = []
    contexts = []

    def open_page(url: str, view: str, width: int = 1100) -> Any:
        context = browser.new_context(viewport={"width": width, "height": 800})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.on("console", lambda one: wrong.append(one.text) if "status of 401" not in one.text else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on(
            "request", lambda one: None if one.url.startswith(("http://127.0.0.1", "data:")) else wrong.append(one.url)
        )
        page.goto(url)
        if view:
            page.wait_for_selector(f"html[data-drawn={view}]")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """A service in this process: its address, itself, and tokens by role."""
    service = Service(open_store(str(tmp_path_factory.mktemp("store") / "x.db")))
    service.create_project("pets", title="Pets <i>")
    service.append("pets", annotation_events([{"item": i, "annotator": w, "label": k} for i, w, k in rows(30, 5)[0]]))
    spans = [[{"start": 0, "end": 3, "label": "PER"}], [{"start": 10, "end": 20, "label": "PER"}]]
    service.create_project("names", kind="spans")
    service.append("names", [Event("item", "d/1", "d/1", data={"text": TEXT})])
    service.append(
        "names",
        annotation_events([{"item": "d/1", "annotator": w, "label": k} for w, k in zip("xy", spans, strict=True)]),
    )
    service.create_project("sizes", kind="numbers")
    service.append(
        "sizes",
        annotation_events([{"item": "a", "annotator": w, "label": k} for w, k in zip("xyz", (1, 2.5, 9), strict=True)]),
    )
    two = [{"item": name, "annotator": w, "label": w} for name in ODD for w in "xy"]
    service.append(service.create_project("odd", classes=["x", "y", "z"]).name, annotation_events(two))
    for name in service.project_names():
        service.project(name).refit()
    with serving(service) as url:
        yield url, service
    service.close()


@contextmanager
def serving(service):
    """Serves the page of a service; its address."""
    config = uvicorn.Config(create_app(service), host="127.0.0.1", port=0, log_level="error")
    listening = config.bind_socket()
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join()


def until(condition, seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def test_what_is_settled_is_seen_wide_and_narrow(service, opened):
    url, at = service
    counts = at.project("pets").items(limit=0)["counts"]
    page = opened(f"{url}#/pets/overview", "overview", 375)
    assert page.locator("h1").inner_text() == "Pets <i>"
    assert f"{counts['queue']} need a decision" in page.locator(".headline").inner_text()
    week = at.project("pets").progress()["week"]
    assert week["queue"][0] == counts["queue"]
    assert f"{100 * week['settled'][0]:.0f}\u00a0%" in page.locator(".numbers .value").first.inner_text()
    assert "Not tested yet: there are no labels from a week ago" in page.locator("main").inner_text()
    for view in ("annotators", "queue", "adjudicate"):
        page.click(f"nav a[href$='/{view}']")
        page.wait_for_selector(f"html[data-drawn={view}]")
        assert page.evaluate("document.documentElement.scrollWidth") <= 375
    page.select_option("#projects", "sizes")
    page.wait_for_selector("h1:text-is('a')")
    page.goto(f"{url}#/pets/annotators")
    page.wait_for_selector("td:text-is('w4')")
    assert "not flagged" in page.locator("main").inner_text()


def test_what_was_not_tested_is_not_said(service, opened):
    page = opened(f"{service[0]}#/sizes/overview", "overview")
    for view in ("overview", "annotators"):
        page.goto(f"{service[0]}#/sizes/{view}")
        page.wait_for_selector(f"html[data-drawn={view}]")
        page.wait_for_selector("text=Not tested: the test needs labels that are classes.")
        said = page.locator("main").inner_text()
        assert not any(words in said for words in ("No annotator", "not flagged", "5 %", "no labels from a week ago"))


def test_items_with_too_few_labels_are_not_called_settled(service, opened):
    url, at = service
    at.append(at.create_project("few").name, annotation_events({"item": "a", "annotator": "w", "label": "x"}))
    page = opened(f"{url}#/few/overview", "overview", 400)
    said = "Of 1 item, 0 are settled and 0 decided. 0 need a decision, and 1 more labels."
    assert page.locator(".headline").inner_text() == said
    for view in ("queue", "adjudicate"):
        page.goto(f"{url}#/few/{view}")
        page.wait_for_selector("text=Every item with two or more labels is settled or decided.")
    top = page.evaluate("['projects', 'theme'].map((one) => document.getElementById(one).getBoundingClientRect().top)")
    assert abs(top[0] - top[1]) < 10  # in one row, also on a phone


def test_text_from_right_to_left_begins_at_the_right(service, opened):
    url, at = service
    at.create_project("rtl")
    at.append("rtl", [Event("item", "a", "a", data={"text": "שלום."})])
    at.append("rtl", annotation_events([{"item": "a", "annotator": w, "label": f"{w}."} for w in ("כן", "לא")]))
    page = opened(f"{url}#/rtl/adjudicate", "adjudicate")
    for where in (".shown", ".said"):
        gap = """(one) => { const text = document.createRange(); text.selectNodeContents(one.lastChild);
            return one.getBoundingClientRect().right - text.getBoundingClientRect().right; }"""
        assert page.locator(where).first.evaluate(gap) < 2


def test_keys_decide_skip_and_undo(service, opened):
    url, at = service
    project = at.project("pets")
    page = opened(f"{url}#/pets/adjudicate", "adjudicate")
    shown = lambda: page.locator("h1").inner_text()  # noqa: E731
    decided = lambda: {one["item"]: one for one in project.all_decisions()}  # noqa: E731

    def press(*keys: str) -> tuple[str, str]:
        """The item that was seen, and the one that is seen then."""
        was = shown()
        for key in keys:
            page.keyboard.press(key)
        until(lambda: shown() != was)
        return was, shown()

    assert shown() == project.items("queue", limit=1)["items"][0]["item"]
    page.keyboard.press("n")
    page.keyboard.type("s2 is no key here")
    first, second = press("Escape", "2")
    assert (decided()[first]["label"], decided()[first]["note"]) == ("dog", "s2 is no key here")
    assert f"{first}: dog. Next: {second}." in page.locator("#said").inner_text()
    press("s")
    unclear, after = press("u")
    assert decided()[unclear]["unclear"] is True
    assert second not in decided()
    assert press("z") == (after, unclear)
    assert unclear not in decided()
    page.keyboard.press("b")  # at once where two labels were given, else by number
    until(lambda: shown() != unclear or page.locator("text=Press the numbers").count())
    if shown() == unclear:
        press("1", "3", "Enter")
    assert len(decided()[unclear]["both"]) == 2
    last = shown()
    page.keyboard.press("Control+1")
    assert shown() == last


def test_undo_of_an_override_brings_the_earlier_decision_back(service, opened):
    url, at = service
    project = at.project("pets")
    earlier = decision_event({"item": "i029", "label": "dog", "by": "judge", "note": "long reason"})
    at.append("pets", [earlier])
    page = opened(f"{url}#/pets/adjudicate/i029", "adjudicate")
    before = project.item("i029")["decision"]
    for key, label in (("1", "cat"), ("2", "dog")):
        page.keyboard.press(key)
        page.wait_for_selector("h1:not(:text-is('i029'))")
        now = project.item("i029")["decision"]
        assert (now["label"], now["by"]) == (label, "adjudicator")
        page.keyboard.press("z")
        page.wait_for_selector("h1:text-is('i029')")
        assert project.item("i029")["decision"] == before
    at.append("pets", [decision_event({"item": "i029", "label": "cat"})])
    page.keyboard.press("1")  # as it is decided already
    page.wait_for_selector("h1:not(:text-is('i029'))")
    page.keyboard.press("z")
    page.wait_for_selector("h1:text-is('i029')")
    assert project.item("i029")["decision"]["label"] == "cat"
    at.append("pets", [Event("withdrawal", "i029", "i029")])


def test_names_of_any_form_are_listed_and_decided(service, opened):
    url, at = service
    page = opened(f"{url}#/%E0%A4%A/queue", "queue")  # no text: the first project
    page.goto(f"{url}#/odd/queue")
    page.wait_for_selector("td a:has-text('www')")
    assert page.evaluate("[...document.querySelectorAll('.scroll')].every((one) => one.scrollWidth <= one.clientWidth)")
    page.click("td a:has-text('two lines')")
    page.wait_for_selector("h1:has-text('two lines')")
    shares = page.locator(".choice > span:not(.said)").all_inner_texts()
    assert [re.sub(r"\d+", "0", one) for one in shares] == ["0 of 0 · 0\u00a0%"] * 2 + ["0\u00a0%"]
    page.keyboard.press("1")
    page.wait_for_selector("h1:has-text('www')")
    page.keyboard.press("1")
    page.wait_for_selector("h1:text-is('The queue is empty')")
    assert "Every item with two or more labels is settled or decided." in page.locator("main").inner_text()
    assert {one["item"] for one in at.project("odd").all_decisions()} == set(ODD)


def test_spans_are_marked_and_numbers_typed(service, opened):
    url, at = service
    page = opened(f"{url}#/names/adjudicate", "adjudicate")
    assert page.locator("h1").inner_text() == "d/1"
    marks = page.locator(".choices mark").all_inner_texts()
    assert sorted(one.split("\n")[0].removesuffix("PER") for one in marks) == ["<b>Ann</b>", "Zoë"]
    choice = page.locator(".choices button", has=page.locator("mark", has_text="Zoë"))
    page.keyboard.press(choice.get_attribute("aria-keyshortcuts"))
    page.wait_for_selector("h1:text-is('The queue is empty')")
    assert at.project("names").all_decisions()[0]["label"] == [{"start": 0, "end": 3, "label": "PER"}]
    page.goto(f"{url}#/sizes/adjudicate")
    page.wait_for_selector("h1:text-is('a')")
    page.fill("input[type=number]", "0")
    page.keyboard.press("Enter")
    page.wait_for_selector("h1:text-is('The queue is empty')")
    assert at.project("sizes").all_decisions()[0]["label"] == 0


def test_a_service_without_a_project_says_how_one_is_made(tmp_path, opened):
    with Service(open_store(str(tmp_path / "x.db"))) as empty, serving(empty) as url:
        page = opened(url, "")
        page.wait_for_selector("text=No project yet")
        assert page.locator("main a").get_attribute("href") == "docs"


def test_a_token_opens_what_its_role_may_see(service, opened):
    url, at = service
    tokens = TokenStore(at.store)
    token = tokens.add("adjudicate")
    try:
        time.sleep(1.1)  # until the service reads the tokens again
        page = opened(f"{url}#/pets/queue", "")
        page.fill("#token", "guessed")
        page.keyboard.press("Enter")
        page.wait_for_selector("#alert:has-text('unknown or was revoked')")
        page.fill("#token", token)
        page.keyboard.press("Enter")
        page.wait_for_selector("html[data-drawn=queue]")
        assert page.locator("nav a").all_inner_texts() == ["Overview", "Queue", "Adjudicate"]
        page.click("td a >> nth=0")
        page.wait_for_selector(".choices small")
        assert not any(name in page.locator(".choices").inner_text() for name in ("w0", "w1", "w2", "w3", "w4"))
        page.click("#sign-out")
        page.wait_for_selector("#token")
    finally:
        for one in tokens.list_tokens():
            tokens.revoke(one["token"])


def test_decisions_about_a_file_are_kept_at_once_and_taken_by_aggregate(tmp_path, opened):
    write_csv(tmp_path / "labels.csv", ["item", "annotator", "label"], rows(25, 5)[0])
    write_csv(
        tmp_path / "items.csv", ["item", "text", "picture"], [(f"i{i:03}", f"number {i}", "dot.gif") for i in range(25)]
    )
    (tmp_path / "dot.gif").write_bytes(
        bytes.fromhex("47494638396101000100800000ffffff00000021f90401000000002c00000000010001000002024401003b")
    )
    command = [
        sys.executable,
        "-m",
        "dissensus",
        "adjudicate",
        "labels.csv",
        "--items",
        "items.csv",
        "--no-browser",
        "--by",
        "me",
        "--json",
    ]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    try:
        told = ""
        while not told.endswith("}\n"):
            told += process.stdout.readline()
        page = opened(json.loads(told)["url"], "adjudicate")
        item = page.locator("h1").inner_text()
        assert f"number {int(item[1:])}" in page.locator(".shows").inner_text()
        assert page.locator(".shows img").evaluate("one => one.naturalWidth") == 1
        page.keyboard.press("3")
        until(lambda: page.locator("h1").inner_text() != item)
        with (tmp_path / "labels.decisions.csv").open() as file:
            assert [(one["item"], one["label"], one["by"]) for one in csv.DictReader(file)] == [(item, "owl", "me")]
        table = read(tmp_path / "labels.csv")
        known = read_gold(tmp_path / "labels.decisions.csv", table)  # as `aggregate --gold` does
        assert {table.items[i]: table.classes[known[i]] for i in range(25) if known[i] >= 0} == {item: "owl"}
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)


@pytest.fixture
def deciding(tmp_path):
    """Opens a process's view of x.decisions.csv: its service, and what it knows of the file."""
    made = []

    def open_one(by="me"):
        decisions = Decisions(tmp_path / "x.decisions.csv", by)
        made.append(_make_service(open_store(str(tmp_path / f"{len(made)}.db")), decisions))
        labels = [{"item": item, "annotator": w, "label": 'cat, or\n"dog"'} for item in "abcd" for w in "xy"]
        events = [*annotation_events(labels), *decisions.to_events(set("abcd"))]
        made[-1].append(made[-1].create_project(PROJECT, kind="classes").name, events)
        return made[-1], decisions

    yield open_one
    for one in made:
        one.close()


def in_file(path):
    with path.open(newline="", encoding="utf-8") as file:
        return {one["item"]: (one["label"], one["by"], one["note"]) for one in csv.DictReader(file)}


@pytest.fixture(params=[True, False], ids=["locks", "no locks"])
def system(request, monkeypatch):
    """A system with locks on folders, and one where folders cannot even be opened."""
    real = os.open
    if not request.param:
        monkeypatch.setattr("dissensus.common.atomic.fcntl", None)
        monkeypatch.setattr(
            os, "open", lambda path, *more: real(path, *more) if not Path(path).is_dir() else real("/-", 0)
        )


def test_a_file_of_decisions_is_taken_up_again(deciding, system):
    service, _ = deciding()
    some = [
        Event("decision", "a", "a", "me", 'cat, or\n"dog"', data={"note": "é"}),
        Event("decision", "b", "b", "me", data={"both": ["cat", "dog"]}),
        Event("decision", "c", "c", "me", data={"unclear": True}),
        Event("decision", "d", "d", "me", "cat"),
    ]
    for event in (*some, Event("withdrawal", "d", "d")):
        service.append(PROJECT, [event])
    _, again = deciding()
    found = again.to_events({"a", "b", "c", "d"})
    assert [dataclasses.replace(one, at=0.0) for one in found] == some[:3]
    assert all(time.time() - 60 < one.at <= time.time() for one in found)  # when they were made
    assert [event.item for event in again.to_events({"b"})] == ["b"]


def test_a_row_that_names_nobody_was_decided_by_none_of_the_annotators(deciding, tmp_path):
    text = "item,label,both,unclear,note,by,at\na,x,,,,,\nb,x\n"
    (tmp_path / "x.decisions.csv").write_text(text, encoding="utf-8-sig")  # as a spreadsheet writes it
    service, _ = deciding()
    assert {one["by"] for one in service.project(PROJECT).all_decisions()} == {"adjudicator"}


def test_a_decision_that_could_not_be_written_is_made_again(deciding, tmp_path, monkeypatch):
    service, _ = deciding()
    with monkeypatch.context() as patched:
        patched.setattr("dissensus.common.atomic.os.fsync", lambda _: Path("/-").stat())
        with pytest.raises(UnwritableFile):
            service.append(PROJECT, [Event("decision", "a", "a", label="x")])
    assert not (tmp_path / "x.decisions.csv").exists()
    seq = service.append(PROJECT, [Event("decision", "a", "a", label="x")]).seq
    assert in_file(tmp_path / "x.decisions.csv")["a"] == ("x", "me", "")
    service.append(PROJECT, [Event("withdrawal", "a", "a", data={"seq": seq})])
    assert in_file(tmp_path / "x.decisions.csv") == {}


def test_two_who_decide_about_one_file_lose_nothing(deciding, tmp_path):
    path, (ann, _), (bob, _) = tmp_path / "x.decisions.csv", deciding("ann"), deciding("bob")

    def decide(service, item, label, note=""):
        return service.append(PROJECT, [Event("decision", item, item, label=label, data={"note": note})]).seq

    def undo(service, item, seq):
        service.append(PROJECT, [Event("withdrawal", item, item, data={"seq": seq})])

    first = decide(ann, "a", "x", "seen")
    decide(bob, "b", "y")
    undo(ann, "a", decide(ann, "a", "z"))
    assert in_file(path) == {"a": ("x", "ann", "seen"), "b": ("y", "bob", "")}
    decide(bob, "a", "y")
    undo(ann, "a", first)  # it is bob's now
    assert in_file(path)["a"] == ("y", "bob", "")
    threads = [
        threading.Thread(target=lambda at=at, item=item: [decide(at, item, str(n)) for n in range(20)])
        for at, item in ((ann, "c"), (bob, "d"))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {item: label for item, (label, *_) in in_file(path).items()} == {"a": "y", "b": "y", "c": "19", "d": "19"}
    undo(bob, "c", decide(bob, "c", "z"))  # which ann decided meanwhile
    undo(ann, "a", decide(ann, "a", "z"))
    assert [in_file(path)[item] for item in "ac"] == [("y", "bob", ""), ("19", "ann", "")]
    ann.append(PROJECT, [Event("withdrawal", "a", "a")])
    undo(bob, "a", decide(bob, "a", "z"))
    assert "a" not in in_file(path)
    again, _ = deciding("cy")
    late = again.append(PROJECT, [Event("decision", "b", "b", label="z")]).seq
    undo(again, "b", late)
    assert in_file(path)["b"] == ("y", "bob", "")


@pytest.mark.parametrize(
    ("row", "error", "reason"),
    [
        (b"a,,x|y,,,me,2026-01-01", BadDecision, str(BadBoth(text="'x|y'"))),
        ("a,é,,,,me,2026-01-01".encode("latin-1"), NotUtf8, None),
        (b"a,x,,,,me,2026-01-01,more", NotWrittenBy, None),
        (b"a,x,,,,me,yesterday", BadDecision, str(InvalidValue(problem="time", value="yesterday"))),
        (b"a,,,,,me,2026-01-01", BadDecision, "a decision needs "),
        (b"a,x,,yes,,me,2026-01-01", BadDecision, "a decision needs "),
        (b"a,,,no,,me,2026-01-01", BadDecision, "a decision needs "),
        (b'a,,"[""x""]",,,me,2026-01-01', BadDecision, "both: "),
    ],
)
def test_a_file_that_was_changed_by_hand_is_explained(tmp_path, row, error, reason):
    path = tmp_path / "x.decisions.csv"
    path.write_bytes(b"item,label,both,unclear,note,by,at\n" + row)
    with pytest.raises(error) as caught:
        Decisions(path, "me").to_events({"a"})
    assert caught.value.path == path
    assert reason is None or (caught.value.item, caught.value.reason.startswith(reason)) == ("'a'", True)


def test_a_decision_for_a_class_that_is_not_there_is_said_with_its_file(tmp_path):
    write_csv(tmp_path / "x.csv", ["item", "annotator", "label"], rows(5, 3)[0])
    (tmp_path / "x.decisions.csv").write_text("item,label,both,unclear,note,by,at\ni001,zebra,,,,me,\n")
    found = CliRunner().invoke(cli, ["adjudicate", str(tmp_path / "x.csv"), "--no-browser"])
    assert (found.exit_code, "item 'i001'" in found.output, "'zebra'" in found.output) == (1, True, True), found.output
