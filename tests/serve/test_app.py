"""The HTTP API: what it answers, whom, and what it refuses in a sentence."""

import io
import json
import re
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from dissensus.cli import app as cli
from dissensus.serve.app import AccessGuard, RequestLimits, open_socket
from dissensus.serve.describe import ITEM_LISTS
from dissensus.serve.events import Event
from dissensus.serve.exceptions import (
    VALUE_RULES,
    FitFailed,
    InvalidJsonBody,
    InvalidValue,
    ItemsInProgress,
    MissingBodyField,
    NothingLeftToLabel,
    OthersHavePriority,
    PortTaken,
    RefusedLabel,
    RequestRefused,
    SpanBeyondText,
    StoreFault,
    UndeclaredClass,
    UnknownProjectOrItem,
    UnknownRemovals,
)
from dissensus.serve.face import HTTP_FACE
from dissensus.serve.requests import AnnotationBody, DecisionBody, ProjectBody, annotation_events, decision_event
from dissensus.serve.routes import hide_names
from dissensus.serve.service import Service
from dissensus.serve.store import SQLite, open_store
from dissensus.serve.tokens import Caller, TokenStore
from served import client

POST = {"item": "i", "annotator": "ann", "label": "x"}


def fault(error):
    """The rule that a value breaks, or the class of the error."""
    return error.problem if getattr(error, "problem", "") in VALUE_RULES else type(error)


def fill(ask, items=6, people="abc"):
    rows = [
        {"item": f"i{i}", "annotator": a, "label": "xy"[(i + (a == "c")) % 2]} for i in range(items) for a in people
    ]
    assert ask.post("/projects/p/annotations", json=rows).status_code == 200


def test_from_a_post_to_its_consensus_and_out_again(ask):
    fill(ask)
    sent = ask.post("/projects/p/annotations", json=POST | {"id": "a/1"}).json()
    assert (sent["accepted"], sent["items"][0]["item"], sent["items"][0]["label"]) == (1, "i", "x")
    found = ask.get("/projects/p/items/i").json()
    assert (found["label"], found["votes"], found["labels"]) == ("x", {"x": 1}, 1)
    assert ask.delete("/projects/p/annotations/a/1").json()["accepted"] == 1
    assert ask.get("/projects/p/items/i").json()["status"] == "unlabelled"
    assert ask.get("/projects/p/items?status=unlabelled").json()["total"] == 0
    some = ask.get("/projects/p/items?order=name&limit=2&offset=1").json()
    assert ([one["item"] for one in some["items"]], some["total"]) == (["i1", "i2"], 6)
    assert [one["annotator"] for one in ask.get("/projects/p/annotators").json()] == ["a", "b", "c"]
    assert ask.get("/projects/p/progress?days=3").json()["days"][-1]["labels"] == 18


def test_the_guide_shows_what_is_answered(ask):
    guide = (Path(__file__).parents[2] / "docs/guides/serve.md").read_text(encoding="utf-8")
    ask.post("/projects/p/annotations", content=re.search(r"pets/annotations -d '(.*?)'", guide, re.S)[1])
    shown = re.search(r'\{"item":"2","label":"(.*?)","confidence":(.*?),', guide)
    found = ask.get("/projects/p/items/2").json()
    assert (found["label"], found["confidence"]) == (shown[1], pytest.approx(float(shown[2])))
    assert ask.get("/projects/p/next?annotator=eve").json() == json.loads(re.search(r'\{"items":.*', guide)[0])


@pytest.mark.parametrize("name", ["a text\nwith two lines", "a/b c?d#e", "\n"])
def test_any_name_can_be_asked_for_decided_and_removed(ask, name):
    ask.post("/projects/p/annotations", json=[POST, POST | {"item": "x" + name, "id": "y" + name}])
    path = quote("x" + name, safe="/")
    assert ask.get(f"/projects/p/items/{path}").json()["votes"] == {"x": 1}
    ask.post("/projects/p/decisions", json={"item": "x" + name, "label": "x"})
    assert ask.delete(f"/projects/p/decisions/{path}").json()["accepted"] == 1
    assert ask.get("/projects/p/decisions").json() == []
    assert ask.delete(f"/projects/p/annotations/{quote('y' + name, safe='/')}").json()["accepted"] == 1
    assert ask.get(f"/projects/p/items/{path}").json()["status"] == "unlabelled"


@pytest.mark.parametrize("id_", ["", " ", "\x00", "x" * 1_001, "i\x1fbob", "i\x1fbob\x1fann"], ids=range(6))
def test_what_no_annotation_can_be_called_is_not_removed(opened, id_):
    service = opened()
    service.create_project("p")
    service.append("p", [Event("annotation", "i\x1fbob\x1fann", "i", "bob", "x")])  # a second row of bob's in a file
    tokens = [TokenStore(service.store).add("ingest", annotator=one) for one in (None, "ann")]
    for token in tokens:
        sent = client(service).delete(
            f"/projects/p/annotations/{quote(id_)}", headers={"Authorization": f"Bearer {token}"}
        )
        assert sent.status_code == 400
    assert (service.seq, service.project("p").item("i")["labels"]) == (1, 1)


@pytest.mark.parametrize("form", ["csv", "parquet", "jsonl", "label-studio", "argilla"])
@pytest.mark.parametrize("what", [None, "items", "decisions"])
def test_exports_hold_something(ask, form, what):
    fill(ask)
    ask.post("/projects/p/decisions", json={"item": "i1", "label": "x"})
    query = {"format": form} | ({"what": what} if what else {})
    found = ask.get("/projects/p/export", params=query)
    text = pq.read_table(io.BytesIO(found.content)).to_pydict() if form == "parquet" else found.text
    assert (found.status_code, "i1" in str(text)) == (200, True)


@pytest.mark.parametrize(
    ("body", "kind", "path"),
    [
        (b"{nope", InvalidJsonBody, ()),
        (b"\xff\xfe", InvalidJsonBody, ()),
        (b"[" * 100_000, InvalidJsonBody, ()),
        (b'{"item": "i", "annotator": "a", "label": NaN}', InvalidJsonBody, ()),
        (b"3", InvalidValue, ("[0]",)),
        (b'{"item": "i", "label": "x"}', MissingBodyField, ("[0]",)),
        (b'{"item": "i", "annotator": "a"}', "label", ("[0].label",)),
        (b'[{"item": "i", "annotator": "a", "label": "x"}, {"item": ""}]', "name", ("[1].item",)),
        (b'{"item": "i\\u0000", "annotator": "a", "label": "x"}', "name", ("[0].item",)),
        (b'{"item": "i", "annotator": "a", "lable": "x"}', "field", ("[0].lable",)),
        (b'{"item": "i", "annotator": "a", "label": "x", "version": "new"}', "time", ("[0].version",)),
        (b'{"item": "i", "annotator": "a", "label": "x", "version": -1}', "time", ("[0].version",)),
        (
            b'{"item": "i", "annotator": "a", "label": [{"start": 4, "end": 4, "label": "P"}]}',
            "span",
            ("[0].label", "[0]"),
        ),
        (b'{"item": "i\\u001fann", "annotator": "a", "label": "x"}', "name", ("[0].item",)),
        (b'{"item": "..", "annotator": "a", "label": "x"}', "name", ("[0].item",)),
        (b'{"id": ".", "item": "i", "annotator": "a", "label": "x"}', "name", ("[0].id",)),
        (b'{"id": "1", "deleted": "false"}', InvalidValue, ("[0].deleted",)),
        (b'{"item": "i", "annotator": "a", "label": "x", "deleted": 0}', InvalidValue, ("[0].deleted",)),
        (b'{"left": "A", "right": "A", "winner": "left", "annotator": "a"}', "pair", ("[0]",)),
        (b'{"left": "A", "right": "B", "winner": "A", "annotator": "a"}', RefusedLabel, ()),
        (
            b'[{"item": "i", "annotator": "a", "label": "x"}, {"item": "j", "annotator": "a", "label": ["y"]}]',
            RefusedLabel,
            (),
        ),
        (b'{"item": "i", "annotator": "a", "label": "x", "data": {"t": 1e400}}', InvalidJsonBody, ()),
        (b'{"item": "i", "annotator": "a", "label": 1e200}', "label", ("[0].label",)),
        (b'{"item": "i", "annotator": "a", "label": 1%s}' % (b"0" * 400), "label", ("[0].label",)),
        (
            b'{"item": "i", "annotator": "a", "label": [{"start": 0, "end": 9999999999, "label": "P"}]}',
            InvalidValue,
            ("[0].label", "[0].end"),
        ),
        (b'{"item": "i", "annotator": "a", "label": "x", "data": {"t": "\\ud83d"}}', InvalidJsonBody, ()),
        (b'{"item": "i", "data": %s0%s}' % (b'{"t": ' * 205, b"}" * 205), InvalidJsonBody, ()),
        (b" " * 50_000_000, RequestRefused, ()),
    ],
    ids=range(28),
)
def test_what_is_wrong_is_answered_and_nothing_is_stored(ask, errors, body, kind, path):
    found = ask.post("/projects/p/annotations", content=body)
    assert (found.status_code, found.json()) == (
        413 if kind is RequestRefused else 400,
        {"error": errors[0].render(HTTP_FACE)},
    )
    assert (fault(errors[0]), errors[0].subjects) == (kind, path)
    assert ask.get("/health").json()["seq"] == 0


@pytest.mark.parametrize(
    ("label", "kind", "path"),
    [
        (["a|b"], "name", "[0]"),
        ([" "], "name", "[0]"),
        (["a" * 2_000], InvalidValue, "[0]"),
        ([f"option {at}" for at in range(20_000)], InvalidValue, None),
        ({"a": "x" * 200_000}, InvalidValue, None),
        ([{"start": 0.9, "end": 2, "label": "P"}], InvalidValue, "[0].start"),
        ([{"start": 0, "end": True, "label": "P"}], InvalidValue, "[0].end"),
        ([{"start": 0, "end": 2, "label": None}], InvalidValue, "[0].label"),
    ],
)
def test_what_a_list_may_not_hold_is_answered(ask, errors, label, kind, path):
    assert ask.post("/projects/p/annotations", json=POST | {"label": label}).status_code == 400
    assert (fault(errors[0]), errors[0].subjects) == (kind, ("[0].label", path) if path else ("[0].label",))


def test_what_is_as_deep_as_it_may_be_can_be_asked_for(ask):
    wide, deep = [[]] * 300, json.loads("[" * 190 + "]" * 190)
    assert ask.post("/projects/p/items", json=[{"item": "i", "t": wide}, {"item": "j", "t": deep}]).status_code == 200
    assert [one["data"]["t"] for one in ask.get("/projects/p/items?order=name").json()["items"]] == [wide, deep]


@pytest.mark.parametrize("text", ["-1", "9" * 19])
def test_a_number_in_an_address_has_a_range(ask, errors, text):
    assert ask.get(f"/projects/p/items?limit={text}").status_code == 400
    assert (errors[0].value, errors[0].subjects) == (text, ("limit",))


def test_a_long_body_without_a_length_is_stopped_too(ask):
    found = ask.post("/projects/p/annotations", content=(b" " * 1_000_000 for _ in range(50)))
    assert found.status_code == 413


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/projects/none/items", 404), ("GET", "/projects/p/items/none", 404), ("GET", "/none", 404),
        ("GET", "/projects/p/items?status=odd", 400), ("GET", "/projects/p/items?limit=-1", 400),
        ("GET", "/projects/p/items?limit=²", 400), ("GET", "/projects/p/items?offset=" + "9" * 5_000, 400),
        ("GET", "/projects/p/next?annotator=a&count=²", 400),
        ("GET", "/projects/p/next", 400), ("GET", "/projects/p/next?annotator=a&count=0", 400),
        ("GET", "/projects/p/export?format=odd", 400), ("GET", "/projects/p/progress?days=0", 400),
        ("DELETE", "/projects/p/decisions/none", 404), ("PATCH", "/projects", 405),
    ],
)  # fmt: skip
def test_addresses_that_lead_nowhere(ask, method, path, status):
    found = ask.request(method, path)
    assert (found.status_code, list(found.json())) == (status, ["error"])


def test_a_project_made_again_is_the_same_and_otherwise_a_conflict(ask, errors):
    assert ask.post("/projects", json={"name": "q", "kind": "numbers"}).status_code == 201
    for same in ({"name": "q", "kind": "numbers"}, {"name": "q"}):
        assert ask.post("/projects", json=same).status_code == 200
    for other, facts in (
        ({"name": "q", "kind": "sets"}, {"setting": "kind", "present": "numbers", "expected": "sets"}),
        ({"name": "q", "per_item": 3}, {"setting": "per_item", "present": None, "expected": 3}),
        ({"name": "p", "kind": "numbers"}, {"setting": "kind", "present": None, "expected": "numbers"}),
    ):
        assert ask.post("/projects", json=other).status_code == 409
        assert errors[-1].facts == facts | {"project": other["name"]}
    for wrong in (
        {"name": "."},
        {"name": ".."},
        {"name": "a/b"},
        {"name": ""},
        {"name": "r", "kind": "odd"},
        {"name": "r", "kind": []},
        {"name": "r", "classes": [1]},
        {"name": "r", "classes": []},
        {"name": "r", "classes": ["a", "a", "b"]},
        {"name": "r", "classes": ["a", "b"], "kind": "numbers"},
        {"name": "r", "x": 1},
        {"name": "r", "title": 5},
        {"name": "r", "title": "t" * 1_001},
        {"name": "r", "self": 1},
        {"name": []},
        {},
        [],
    ):
        assert ask.post("/projects", json=wrong).status_code == 400
    assert ask.post("/projects", content=b'{"name": "r", "title": "\\ud800"}').status_code == 400


MAY = {
    "ingest": {"post"}, "annotate": {"next", "post own"}, "adjudicate": {"items", "decide", "progress"},
    "read": {"items", "annotators", "progress", "export", "metrics"},
    "admin": {"post", "next", "items", "decide", "progress", "annotators", "export", "metrics", "create"},
}  # fmt: skip
ASKED = {
    "post": ("POST", "/projects/p/annotations", POST | {"id": 1}),
    "post own": ("POST", "/projects/p/annotations", POST),
    "next": ("GET", "/projects/p/next?annotator=ann", None),
    "items": ("GET", "/projects/p/items", None),
    "decide": ("POST", "/projects/p/decisions", {"item": "i", "label": "x"}),
    "progress": ("GET", "/projects/p/progress", None),
    "annotators": ("GET", "/projects/p/annotators", None),
    "export": ("GET", "/projects/p/export", None),
    "metrics": ("GET", "/metrics", None),
    "create": ("POST", "/projects", {"name": "r"}),
}


def test_a_body_is_not_read_before_its_caller_is_known(opened):
    service = opened()
    service.create_project("p")
    TokenStore(service.store).add("admin")
    too_long = b" " * (RequestLimits.body_bytes + 1)
    assert client(service).post("/projects/p/annotations", content=too_long).status_code == 401


@pytest.mark.parametrize("role", MAY)
def test_roles_may_do_what_they_may_and_no_more(opened, role):
    service = opened()
    service.create_project("p")
    token = TokenStore(service.store).add(role, annotator="ann" if role == "annotate" else None)
    ask = client(service)
    for what, (method, path, body) in ASKED.items():
        assert ask.request(method, path, json=body).status_code == 401
        found = ask.request(method, path, json=body, headers={"Authorization": f"Bearer {token}"})
        allowed = what in MAY[role] or (what == "post own" and "post" in MAY[role])
        assert (found.status_code == 403) != allowed, (what, found.text)


@pytest.mark.parametrize("role", ["annotate", "ingest", "admin"])
def test_a_token_of_one_person_posts_and_takes_back_labels_of_that_one_only(opened, errors, role):
    service = opened()
    service.create_project("p")
    service.append("p", annotation_events([POST | {"annotator": "bob"}, POST | {"annotator": "bob", "id": 7}]))
    ask = client(service)
    ask.headers["Authorization"] = f"Bearer {TokenStore(service.store).add(role, annotator='ann')}"
    gone = {"item": "i", "annotator": "ann", "deleted": True}
    for body in (POST, gone, POST):
        assert ask.post("/projects/p/annotations", json=body).json()["accepted"] == 1
    for body, reason in (
        (POST | {"annotator": "bob"}, "other annotator"),
        (gone | {"annotator": "bob"}, "other annotator"),
        (POST | {"id": 7}, "own id"),
        ({"id": 7, "deleted": True}, "own id"),
    ):
        assert ask.post("/projects/p/annotations", json=body).status_code == 403
        assert errors[-1].reason == reason
    assert ask.delete("/projects/p/annotations/7").status_code == 403
    assert service.project("p").item("i")["labels"] == 3


def test_who_annotates_for_several_takes_labels_back_without_an_id(opened):
    service = opened()
    service.create_project("p")
    ask = client(service)
    ask.headers["Authorization"] = f"Bearer {TokenStore(service.store).add('annotate')}"
    for body, status in (
        (POST, 200),
        (POST | {"label": None, "deleted": True}, 200),
        ({"id": 7, "deleted": True}, 403),
    ):
        assert ask.post("/projects/p/annotations", json=body).status_code == status
    assert service.project("p").item("i")["labels"] == 0


def test_tokens_are_hashed_forged_ones_refused_and_revoked_ones_forgotten(opened, monkeypatch):
    monkeypatch.setattr("dissensus.serve.tokens.FRESH_SECONDS", 0.0)
    service = opened()
    tokens = TokenStore(service.store)
    token = tokens.add("read", note="me")
    assert token not in json.dumps(service.store.run("SELECT * FROM token"))
    ask = client(service)
    header = {"Authorization": f"Bearer {token}"}
    assert ask.get("/projects", headers=header).status_code == 200
    assert ask.get("/projects", headers={"Authorization": f"Bearer {token}x"}).status_code == 401
    tokens.revoke(tokens.list_tokens()[0]["token"])
    for more in ({}, {"headers": header}):  # it was the last one: nothing is open for that
        assert ask.get("/projects", **more).status_code == 401
    assert TokenStore(service.store).any_exist()


def test_a_token_of_one_person_signs_for_no_other(opened):
    service = opened()
    service.create_project("p")
    header = {"Authorization": f"Bearer {TokenStore(service.store).add('admin', annotator='ann')}"}
    ask = client(service)
    ask.post("/projects/p/annotations", json=POST, headers=header)
    ask.post("/projects/p/decisions", json={"item": "i", "label": "x", "by": "bob"}, headers=header)
    assert [one["by"] for one in ask.get("/projects/p/decisions", headers=header).json()] == ["ann"]


def test_names_are_pseudonyms_for_those_who_may_not_see_them(opened):
    service = opened()
    service.create_project("p")
    tokens = TokenStore(service.store)
    plain, named, admin = tokens.add("read"), tokens.add("read", names=True), tokens.add("admin")
    ask = client(service)
    posted = [POST | {"annotator": "ann-the-first"}, POST | {"annotator": "bob-the-second"}]
    ask.post("/projects/p/annotations", json=posted, headers={"Authorization": f"Bearer {admin}"})
    decision = {"item": "i", "label": "x", "by": "ann-the-first"}
    ask.post("/projects/p/decisions", json=decision, headers={"Authorization": f"Bearer {admin}"})
    exports = ("export", "export?content=decisions", "export?content=items")
    for path in ("items/i", "items", "annotators", "progress", "decisions", *exports):
        seen = {
            token: ask.get(f"/projects/p/{path}", headers={"Authorization": f"Bearer {token}"}).text
            for token in (plain, named)
        }
        assert "the-" in seen[named], path
        assert "the-" not in seen[plain], path


@pytest.mark.parametrize("what", ["annotations", "decisions", "items"])
def test_an_export_with_pseudonyms_holds_who_came_while_it_was_made(opened, monkeypatch, what):
    service = opened()
    project = service.create_project("p")
    service.append("p", annotation_events(POST))
    assert project.pseudonyms().keys() == {"ann"}

    def late(*_):
        service.append(
            "p", [*annotation_events(POST | {"annotator": "bob"}), decision_event({"item": "i", "label": "x"})]
        )

    monkeypatch.setattr(project, "refit", late)
    token = TokenStore(service.store).add("read")
    header = {"Authorization": f"Bearer {token}"}
    found = client(service).get(f"/projects/p/export?content={what}", headers=header)
    assert (found.status_code, "bob" in found.text, "adjudicator" in found.text) == (200, False, False)


def test_pages_of_other_sites_and_other_hosts_are_refused(opened):
    service = opened()
    service.create_project("p")
    ask = client(service)
    for origin in ("http://evil.example", "http://[", "null", ""):
        assert ask.post("/projects/p/annotations", json=POST, headers={"Origin": origin}).status_code == 403
    for host in ("evil.example", "e~vil.example", "127.0.0.1@evil.example", "[", ""):
        assert ask.get("/projects", headers={"Host": host}).status_code == 401
    for host in ("localhost", "LOCALHOST:8765", "127.0.0.1:1", "[::1]:8765"):
        assert ask.get("/projects", headers={"Host": host}).status_code == 200
    assert ask.post("/projects/p/annotations", json=POST, headers={"Origin": "http://127.0.0.1"}).status_code == 200
    token = TokenStore(service.store).add("admin")
    assert client(service).post("/sign-in", json={"token": "x"}).status_code == 401
    signed = client(service)
    answer = signed.post(
        "/sign-in", json={"token": token}, follow_redirects=False, headers={"Origin": "http://127.0.0.1"}
    )
    assert answer.status_code == 303
    assert {"httponly", "samesite=strict"} <= {part.strip().lower() for part in answer.headers["set-cookie"].split(";")}
    assert signed.get("/projects").status_code == 200
    assert signed.post("/projects/p/annotations", json=POST).status_code == 403  # a cookie without an origin
    other = {"Authorization": "Basic YTpi"}  # of a proxy: it is still the cookie that counts
    assert signed.post("/projects/p/annotations", json=POST, headers=other).status_code == 403
    assert signed.post("/projects/p/annotations", json=POST, headers={"Origin": "http://127.0.0.1"}).status_code == 200


def test_who_may_not_serve_others_is_told_without_the_password_of_the_store(monkeypatch, tmp_path):
    monkeypatch.setattr("dissensus.serve.store.open_store", lambda _: SQLite(str(tmp_path / "x.db")))
    where = "postgresql://ann:secret@db/labels?password=secret"
    found = CliRunner().invoke(cli, ["serve", "--store", where, "--host", "0.0.0.0"])
    assert (found.exit_code, "postgresql://db/labels" in found.output, "secret" in found.output) == (2, True, False)


def test_a_list_of_tokens_says_which_of_them_show_names(tmp_path):
    where = ["serve", "--store", str(tmp_path / "x.db"), "token"]
    for more in (["--names", "--note", "for Ann"], ["--annotator", "ann"]):
        assert CliRunner().invoke(cli, [*where, "add", "--role", "read", *more]).exit_code == 0
    lines = CliRunner().invoke(cli, [*where, "list"]).output.splitlines()
    assert [line.split()[1:] for line in lines] == [["read", "names", "for", "Ann"], ["read", "ann"]]


def test_a_cookie_opens_its_own_store_and_closes_no_other(opened, tmp_path):
    browser = client(opened())
    for name in "ab":
        with Service(open_store(str(tmp_path / f"{name}.db")), fits=False) as service:
            ask = client(service)
            ask.cookies = browser.cookies
            ask.post("/sign-in", json={"token": TokenStore(service.store).add("admin")})
            assert ask.get("/projects").status_code == 200
            browser.cookies = ask.cookies
    assert len(browser.cookies) == 2
    assert browser.get("/projects").status_code == 200
    browser.cookies[AccessGuard(opened(), RequestLimits()).cookie] = "of a token that was here"
    assert browser.get("/projects").status_code == 200


def test_who_asks_too_often_waits(opened):
    ask = client(opened(), limits=RequestLimits(per_second=0.001, burst=3))
    assert [ask.get("/projects").status_code for _ in range(5)] == [200, 200, 200, 429, 429]


@pytest.mark.parametrize("path", ["/projects", "/projects/p/items", "/projects/p/items/none", "/none"])
def test_every_answer_is_counted_and_safe_to_show(ask, path):
    found = ask.get(path)
    assert found.headers["X-Content-Type-Options"] == "nosniff"
    assert found.headers["Cache-Control"] == "no-store"
    assert f'dissensus_requests_total{{status="{found.status_code}"}} 1.0\n' in ask.get("/metrics").text


def test_a_fit_that_fails_is_in_health_metrics_and_the_project(ask, errors, monkeypatch):
    good = ask.get("/health").json()
    assert (good["status"], good["failing_projects"], ask.get("/projects").json()[0]["fit_error"]) == ("good", 0, "")
    monkeypatch.setattr("dissensus.serve.project.fit_project", lambda *_: 1 / 0)
    fill(ask)
    bad = ask.get("/health").json()
    assert (bad["status"], bad["failing_projects"]) == ("failing", 1)
    fit_error = str(FitFailed(reason="division by zero"))
    assert ask.get("/projects").json()[0]["fit_error"] == fit_error
    assert 'dissensus_fit_failed{project="p"} 1.0\n' in ask.get("/metrics").text
    assert "dissensus_failures_total 0.0" not in ask.get("/metrics").text
    assert ask.get("/projects/p/items").json()["fit_error"] == fit_error
    assert len(ask.get("/projects/p/export").text.splitlines()) == 19
    found = ask.get("/projects/p/export?content=items")
    assert (found.status_code, type(errors[-1]), errors[-1].subjects) == (400, FitFailed, ("p",))


def test_metrics_and_docs_say_what_there_is(ask):
    fill(ask)
    lines = dict(line.rsplit(" ", 1) for line in ask.get("/metrics").text.splitlines())
    assert lines['dissensus_events_total{outcome="accepted"}'] == "18.0"
    assert lines['dissensus_annotations{project="p"}'] == "18.0"
    page = ask.get("/docs").text
    assert "/projects/{name}/next" in page
    assert "http" not in page.replace("httpx", "")


def test_openapi_says_what_is_taken_and_answered(ask):
    fill(ask)
    assert ask.get("/projects/p/report").status_code == 200  # no fit follows
    api = ask.get("/openapi.json").json()
    every = {
        f"{method.upper()} {path}": about for path, methods in api["paths"].items() for method, about in methods.items()
    }

    def properties(key):
        schema = every[key]["requestBody"]["content"]["application/json"]["schema"]
        (name,) = {one["$ref"].rpartition("/")[2] for one in schema.get("anyOf", [schema]) if "$ref" in one}
        return set(api["components"]["schemas"][name]["properties"])

    assert {key for key in every if key.startswith("POST ") and "requestBody" not in every[key]} == {"POST /sign-out"}
    assert properties("POST /projects/{name}/annotations") == set(AnnotationBody.model_fields)
    assert properties("POST /projects/{name}/decisions") == set(DecisionBody.model_fields)
    assert properties("POST /projects") == set(ProjectBody.model_fields)
    for key, about in every.items():
        assert "422" not in about["responses"]
        assert about["responses"]["default"]["content"].keys() == {"application/json"}
        assert ("security" in about) == key.split()[1].startswith(("/projects", "/metrics"))
        if not key.startswith("GET "):
            continue
        who = {"annotator": "eve"} if "/next" in key else {}
        plain = ask.get(key[4:].format(name="p", item="i1", question="describe"), params=who)
        assert plain.headers["content-type"].partition(";")[0] in about["responses"]["200"]["content"], key
        for one in (one for one in about.get("parameters", ()) if one["in"] == "query"):
            default = {one["name"]: one["schema"]["default"]} if "default" in one["schema"] else {}
            assert ask.get(key[4:].format(name="p"), params=default | who).content == plain.content
            for value in one["schema"].get("enum", ()):
                found = ask.get(key[4:].format(name="p"), params={one["name"]: value})
                assert found.status_code == 200
                assert found.headers["content-type"].partition(";")[0] in about["responses"]["200"]["content"]
    withdraw = every["DELETE /projects/{name}/decisions/{item}"]["parameters"]
    assert [one["name"] for one in withdraw if one["in"] == "query"] == ["seq"]
    status = every["GET /projects/{name}/items"]["parameters"][1]["schema"]
    assert status["enum"] == [*ITEM_LISTS]


# next -----------------------------------------------------------------------------------------------------------------


def test_next_gives_people_different_items_that_they_have_not_labelled_and_keeps_to_the_caps(ask):
    ask.post("/projects", json={"name": "q", "per_item": 3, "per_annotator": 4})
    ask.post("/projects/q/items", json=[{"item": f"i{at}", "text": f"text {at}"} for at in range(5)])
    ask.post(
        "/projects/q/annotations",
        json=[{"item": "i0", "annotator": "a", "label": "x"}, {"item": "i1", "annotator": "b", "label": "y"}],
    )
    first = {who: ask.get(f"/projects/q/next?annotator={who}").json()["items"][0] for who in "abc"}
    assert len({one["item"] for one in first.values()}) == 3
    assert first["a"]["item"] != "i0"
    assert first["a"]["data"] == {"text": f"text {first['a']['item'][1:]}"}
    assert ask.get("/projects/q/next?annotator=a").json()["items"][0] == first["a"]  # until it is answered
    given = {}
    for _ in range(30):
        for who in "abcdef":
            found = ask.get(f"/projects/q/next?annotator={who}").json()
            for one in found["items"]:
                assert (one["item"], who) not in given
                given[one["item"], who] = "xy"[len(given) % 2]
                sent = {"item": one["item"], "annotator": who, "label": given[one["item"], who]}
                ask.post("/projects/q/annotations", json=sent)
    labels = [len(ask.get(f"/projects/q/items/i{at}").json()["annotations"]) for at in range(5)]
    assert max(labels) <= 3
    assert all(sum(who == by for _, by in given) <= 4 for who in "abcdef")
    assert ask.get("/projects/q/next?annotator=new").json()["stop"] == str(NothingLeftToLabel())


def test_next_names_no_more_items_than_one_person_gives_labels(ask):
    ask.post("/projects", json={"name": "q", "per_annotator": 2})
    ask.post("/projects/q/items", json=[{"item": f"i{at}"} for at in range(5)])
    found = ask.get("/projects/q/next?annotator=a&count=5").json()["items"]
    assert len(found) == 2
    ask.post("/projects/q/annotations", json={"item": found[0]["item"], "annotator": "a", "label": "x"})
    assert ask.get("/projects/q/next?annotator=a&count=5").json()["items"] == found[1:]


def test_next_asks_to_come_again_while_others_label_what_is_left(ask):
    ask.post("/projects", json={"name": "q", "per_item": 1})
    ask.post("/projects/q/items", json=[{"item": "i0"}, {"item": "i1"}])
    assert all(ask.get(f"/projects/q/next?annotator={who}").json()["items"] for who in "ab")
    assert ask.get("/projects/q/next?annotator=c").json()["stop"] == str(ItemsInProgress())
    for item in ("i0", "i1"):
        assert ask.get("/projects/q/next?annotator=c").json()["stop"] == str(ItemsInProgress())
        ask.post("/projects/q/annotations", json={"item": item, "annotator": "d", "label": "x"})
    assert ask.get("/projects/q/next?annotator=c").json()["stop"] == str(NothingLeftToLabel())
    ask.post("/projects/p/annotations", json=POST)
    assert ask.get("/projects/p/next?annotator=bob").json()["items"]
    assert ask.get("/projects/p/next?annotator=ann").json()["stop"] == str(
        NothingLeftToLabel()
    )  # has labelled what bob labels


def test_next_asks_about_what_is_in_doubt(ask):
    rows = [{"item": f"i{i}", "annotator": a, "label": "x" if i % 2 else "y"} for i in range(40) for a in "abcd"]
    rows += [{"item": "odd", "annotator": a, "label": "xy"[n % 2]} for n, a in enumerate("abcd")]
    ask.post("/projects/p/annotations", json=rows)
    ask.get("/projects/p/export")  # fits
    assert ask.get("/projects/p/next?annotator=new").json()["items"][0]["item"] == "odd"
    ask.post("/projects/p/decisions", json={"item": "odd", "label": "x"})
    assert ask.get("/projects/p/next?annotator=newer").json()["stop"]


def test_next_asks_first_for_what_has_no_label_and_leaves_it_to_those_who_tell_more(ask):
    ask.post("/projects", json={"name": "q", "per_item": 7})
    rows = [{"item": f"i{i}", "annotator": a, "label": "xy"[i % 2]} for i in range(40) for a in "abcd"]
    rows += [{"item": f"i{i}", "annotator": "coin", "label": "xy"[i // 2 % 2]} for i in range(40)]
    rows += [{"item": f"i{i}", "annotator": "less", "label": "xy"[(i % 2) ^ (i % 5 == 0)]} for i in range(40)]
    rows += [{"item": "odd", "annotator": a, "label": "xy"[a > "b"]} for a in "abcd"]
    ask.post("/projects/q/annotations", json=rows)
    ask.post("/projects/q/items", json=[{"item": "new", "text": "?"}])
    ask.get("/projects/q/export")  # fits

    def first(who):
        found = ask.get(f"/projects/q/next?annotator={who}").json()
        return found["items"][0]["item"] if found["items"] else found["stop"]

    for who in ("coin", "less"):
        assert first(who) == str(OthersHavePriority())
    assert "new" in [first("less") for _ in range(40)]  # nobody else came
    ask.post("/projects/q/decisions", json={"item": "new", "label": "x"})
    assert first("e") == "odd"
    ask.post("/projects/q/annotations", json={"item": "odd", "annotator": "e", "label": "x"})
    assert first("f") == "odd"  # it may have one more label, and nobody else is at it


def test_reasons_that_may_name_others_are_hidden():
    found, project = (
        [{"annotator": "ann", "reasons": "copies from bob"}],
        SimpleNamespace(pseudonyms=lambda: {"ann": "A1"}),
    )
    assert hide_names(found, project, Caller("read")) == [{"annotator": "A1", "reasons": ""}]
    assert hide_names(found, project, Caller("read", names=True)) == found


# What is guessed, and what is refused ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "kinds"), [(("3.5", "4.5", "1", "good"), ("numbers", "classes")), ((3, 4, 3.5), ("classes", "numbers"))]
)
@pytest.mark.parametrize("at_once", [True, False])
def test_a_kind_that_is_not_declared_is_that_of_the_fit_everywhere(ask, monkeypatch, given, kinds, at_once):
    *first, last = [POST | {"item": f"i{at}", "label": label} for at, label in enumerate(given)]
    assert ask.post("/projects/p/annotations", json=first).status_code == 200
    kind = ask.get("/projects").json()[0]["kind"]
    with monkeypatch.context() as patched:
        if not at_once:  # as in a large project: the answer comes before the next fit
            patched.setattr("dissensus.serve.project.Project.refit", lambda _: None)
        found = ask.post("/projects/p/annotations", json=last)
        assert found.status_code == 200
        for one in ask.get("/projects/p/items").json()["items"]:
            assert one["annotations"][0]["label"] in (*given, *map(str, given), 1, 3.5, 4.5)
        between = ask.get("/projects").json()[0]["kind"]
    ask.get("/projects/p/export")  # fits
    after = ask.get("/projects").json()[0]["kind"]
    assert (kind, after) == kinds
    assert between in kinds if at_once else between == kind


@pytest.mark.parametrize("by", ["item and annotator", "id", "address"])
def test_a_removal_names_the_item_it_touched_or_says_that_its_id_is_unknown(ask, by):
    own = {} if by == "item and annotator" else {"id": "7"}

    def remove(one):
        if by == "address":
            return ask.delete("/projects/p/annotations/7").json()
        return ask.post("/projects/p/annotations", json=(own or one) | {"deleted": True}).json()

    late = POST | own | {"item": "i" if own else "late"}
    found = remove(late)
    assert (found["accepted"], found["unknown"], found["items"]) == (1, 1, [])
    assert found["note"] == str(UnknownRemovals(n_ids=1))
    assert ask.post("/projects/p/annotations", json=late).json()["stale"] == bool(own)
    if not own:
        ask.post("/projects/p/annotations", json=[POST, POST | {"annotator": "bob"}])
        found = remove({"item": "i", "annotator": "ann"})
        assert (found["accepted"], found["items"][0]["item"], found["items"][0]["labels"]) == (1, "i", 1)
    assert "unknown" not in remove(POST)
    assert remove(POST)["items"][0]["item"] == "i"


def test_a_decision_is_about_an_item_and_a_class_that_are_known(ask, errors):
    fill(ask)
    ask.post("/projects/p/items", json={"item": "bare", "text": "t"})
    for body, kind, path in (
        ({"item": "none", "label": "x"}, UnknownProjectOrItem, None),
        ({"item": "i1", "label": "z"}, UndeclaredClass, None),
        ({"item": "i1", "both": ["x", "z"]}, UndeclaredClass, None),
        ({"item": "i1", "both": ["x", "x"]}, "answer", None),
        ({"item": "i1", "both": [[], []]}, "answer", None),
        ({"item": "i1", "both": ["x"]}, InvalidValue, "both"),
        ({"item": "i1"}, "answer", None),
        ({"item": "i1", "label": "x", "unclear": True}, "answer", None),
        ({"item": "i1", "unclear": "no"}, InvalidValue, "unclear"),
        ({"item": "i1", "label": "x", "note": {}}, InvalidValue, "note"),
        ({"item": "i1", "label": "x", "note": "é" * 100_001}, InvalidValue, "note"),
        ({"item": "i1", "both": [f"{n:0>999}" for n in range(100)]}, InvalidValue, None),
        ({"item": "i1", "label": "x", "at": 1, "version": 2}, "field", "at"),
        ([{"item": "i1", "label": "x"}], InvalidValue, None),
    ):
        assert ask.post("/projects/p/decisions", json=body).status_code == (
            404 if kind is UnknownProjectOrItem else 400
        )
        assert (fault(errors[-1]), errors[-1].subjects) == (kind, (path,) if path else ()), body
    for body in ({"item": "i1", "label": "x"}, {"item": "i2", "unclear": True}, {"item": "bare", "label": "y"}):
        assert ask.post("/projects/p/decisions", json=body | {"by": "boss"}).status_code == 200
    lines = ask.get("/projects/p/export?content=items&format=jsonl").text.splitlines()
    rows = {one["item"]: one for one in map(json.loads, lines)}
    for name in ("i1", "i2", "bare", "i3"):
        alone = ask.get(f"/projects/p/items/{name}").json()
        for key in ("status", "reason", "label", "confidence"):
            assert rows[name].get(key) == alone[key], (name, key)
    assert (rows["bare"]["status"], rows["bare"]["reason"]) == ("decided", "decided by boss")


def test_a_store_that_is_away_during_a_fit_is_no_bad_request(ask, monkeypatch):
    def away(*_):
        raise StoreFault(fault="away")

    monkeypatch.setattr("dissensus.serve.project.fit_project", away)
    fill(ask)
    for path in ("report", "export?content=items", "export?format=argilla"):
        assert ask.get(f"/projects/p/{path}").status_code == 503


@pytest.mark.parametrize(
    ("kind", "label", "said"),
    [
        ("sets", ["b", "a"], "a|b"),
        ("sets", [], "∅"),
        ("numbers", 2.5, "2.5"),
        ("spans", [{"start": 0, "end": 2, "label": "P"}], '[{"start": 0, "end": 2, "label": "P"}]'),
    ],
)
def test_a_decision_is_exported_as_labels_are_written(ask, kind, label, said):
    ask.post("/projects", json={"name": "q", "kind": kind})
    ask.post("/projects/q/annotations", json=POST | {"label": label})
    ask.post("/projects/q/decisions", json={"item": "i", "label": label})
    assert ask.get("/projects/q/export?content=decisions&format=jsonl").json()["label"] == said


@pytest.mark.parametrize(
    ("kind", "given", "said"), [("spans", "P", "LOC"), ("classes", "x", "y"), ("classes", None, "y")]
)
def test_a_tool_gets_what_was_decided(ask, kind, given, said):
    def label(name):
        return [{"start": 0, "end": 2, "label": name}] if kind == "spans" else name

    ask.post("/projects", json={"name": "q", "kind": kind})
    ask.post("/projects/q/items", json={"item": "i"})
    if given is not None:
        posted = [POST | {"annotator": who, "label": label(given)} for who in "ab"]
        ask.post("/projects/q/annotations", json=[*posted, POST | {"item": "j", "label": label(said)}])
    assert ask.post("/projects/q/decisions", json={"item": "i", "label": label(said)}).status_code == 200
    found = {one["id"]: one["suggestions"]["label"] for one in ask.get("/projects/q/export?format=argilla").json()}
    assert found["i"]["value"] == label(said)
    assert found["i"]["score"] in (1.0, [1.0])


SPANS = [[{"start": 0, "end": end, "label": "P"}] for end in (2, 3, 99)]


@pytest.mark.parametrize(
    ("kind", "both", "wrong", "error"),
    [
        ("classes", ["x", "y"], ["x", ["y"]], "answer"),
        ("numbers", [1, 2.5], [1, "x"], RefusedLabel),
        ("sets", [["b", "a"], []], SPANS[:2], RefusedLabel),
        ("spans", [[], SPANS[0]], ["x", "y"], RefusedLabel),
        ("spans", SPANS[:2], SPANS[1:], SpanBeyondText),
        ("pairs", ["left", "tie"], ["left", "x"], RefusedLabel),
        ("objects", [{"a": 1}, ["b", "a"]], [["a"], "a"], "answer"),
    ],
)
def test_several_labels_of_a_decision_are_labels_of_the_project(ask, errors, kind, both, wrong, error):
    ask.post("/projects", json={"name": "q", "kind": kind})
    ask.post("/projects/q/items", json={"item": "A vs B", "text": "Ann"})
    posted = [{"item": "A vs B", "annotator": who, "label": one} for who, one in zip("ab", both, strict=True)]
    assert ask.post("/projects/q/annotations", json=posted).status_code == 200
    found = ask.post("/projects/q/decisions", json={"item": "A vs B", "both": wrong})
    assert (found.status_code, fault(errors[-1])) == (400, error), found.text
    assert ask.post("/projects/q/decisions", json={"item": "A vs B", "both": both}).status_code == 200
    shown = [sorted(one) if kind == "sets" else json.dumps(one) if kind == "objects" else one for one in both]
    assert ask.get("/projects/q/decisions").json()[0]["both"] == shown
    texts = json.loads(ask.get("/projects/q/export?content=decisions&format=jsonl").json()["both"])
    assert (len(texts), {type(text) for text in texts}) == (2, {str})


@pytest.mark.parametrize(
    "label", [{"a": [1]}, [], ["b", "a", "a"], ["a|b"], [1, 2], [{"start": 5, "end": 0, "label": 1}]]
)
def test_any_object_or_list_is_an_object(ask, label):
    ask.post("/projects", json={"name": "q", "kind": "objects"})
    assert ask.post("/projects/q/annotations", json=POST | {"label": label}).status_code == 200
    assert ask.post("/projects/q/decisions", json={"item": "i", "label": label}).status_code == 200
    one = ask.get("/projects/q/items/i").json()
    assert json.loads(one["annotations"][0]["label"]) == json.loads(one["decision"]["label"]) == label


def test_a_long_object_is_decided_by_the_text_that_is_shown_of_it(ask):
    ask.post("/projects", json={"name": "q", "kind": "objects"})
    ask.post("/projects/q/annotations", json=POST | {"label": {"a": "x" * 2_000}})
    said = {"item": "i", "label": ask.get("/projects/q/items/i").json()["label"]}
    assert ask.post("/projects/q/decisions", json=said).status_code == 200
    for kind, status in (("objects", 200), ("classes", 400)):
        ask.post("/projects", json={"name": kind, "kind": kind})
        assert ask.post(f"/projects/{kind}/annotations", json=POST | {"label": "x" * 2_000}).status_code == status


def test_items_decided_before_any_label_are_exported(ask):
    assert ask.get("/projects/p/export?content=items").text == "item,label,confidence,status,reason,decided\n"
    ask.post("/projects/p/items", json={"item": "bare"})
    assert ask.post("/projects/p/decisions", json={"item": "bare", "label": "x", "by": "boss"}).status_code == 200
    assert ask.get("/projects/p/export?content=items").text.splitlines()[1] == "bare,x,1,decided,decided by boss,x"


def test_a_number_is_decided_by_a_number_and_exported(ask, errors):
    ask.post("/projects/p/annotations", json=[POST | {"label": 1.5}, POST | {"item": "j", "label": 4}])
    found = ask.post("/projects/p/decisions", json={"item": "i", "label": "good"})
    assert (found.status_code, errors[-1].facts) == (400, {"item": "i", "label": "good", "kind": "numbers"})
    ask.post("/projects/p/items", json={"item": "bare"})
    assert ask.post("/projects/p/decisions", json={"item": "bare", "label": 2}).status_code == 200
    assert "bare" in ask.get("/projects/p/export?content=items").text


def test_a_span_lies_in_the_text_that_is_known(ask, errors):
    ask.post("/projects/p/items", json={"item": "i", "text": "Ann and"})
    spans = [POST | {"label": [{"start": 0, "end": end, "label": "PER"}]} for end in (8, 7)]
    found = ask.post("/projects/p/annotations", json=spans[0])
    assert (found.status_code, errors[-1].facts) == (400, {"item": "i", "end": 8, "length": 7})
    assert ask.post("/projects/p/annotations", json=spans[1]).status_code == 200


def test_pairs_are_posted_without_an_item_and_taken_back(ask):
    pairs = [
        {"left": left, "right": right, "winner": winner, "annotator": who}
        for left, right, winner in (("A", "B", "left"), ("B", "C", "tie"), ("C", "A", "right"))
        for who in "ab"
    ]
    assert ask.post("/projects/p/annotations", json=pairs).json()["accepted"] == 6
    assert ask.get("/projects").json()[0]["kind"] == "pairs"
    assert ask.get("/projects/p/items/A vs B").json()["votes"] == {"left": 2}
    gone = ask.post("/projects/p/annotations", json={"left": "A", "right": "B", "annotator": "a", "deleted": True})
    assert [(one["item"], one["labels"]) for one in gone.json()["items"]] == [("A vs B", 1)]


def test_a_port_that_is_taken_is_said_in_a_sentence():
    with open_socket("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(PortTaken) as caught:
            open_socket("127.0.0.1", port)
    assert (caught.value.host, caught.value.port) == ("127.0.0.1", port)
