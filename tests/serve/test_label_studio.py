"""Label Studio both ways, against a server made of a recorded contract; `make test-label-studio` asks a real one."""

import json

import numpy as np
import pytest

from dissensus import methods
from dissensus.serve import tool_client
from dissensus.serve.events import Event
from dissensus.serve.exceptions import ChooseFromTool, NothingToServe, ToolAccess, ToolError
from dissensus.serve.label_studio import (
    AGENT_NAME,
    REVIEW_FIELD,
    SECRET_HEADER,
    LabelStudioClient,
    LabelStudioProject,
    annotation_to_events,
    open_projects,
    read_controls,
    webhook_router,
)
from dissensus.serve.requests import decision_event
from dissensus.serve.service import Service
from dissensus.serve.store import open_store
from dissensus.serve.tool import ToolQuestion
from dissensus.table.io import read
from serve.fake_label_studio import CONTRACT, JWT, TOKEN, Fake, answer

TEXTS = [{"text": f"Ada stayed {n} nights", "image": "/data/upload/x.png"} for n in range(5)]
ANN, BOB, CY = 2, 3, 4


@pytest.fixture
def fake():
    one = Fake(TEXTS, config=["mood"])
    yield one
    one.close()


@pytest.fixture
def service(tmp_path):
    with Service(open_store(str(tmp_path / "s.db")), fits=False) as one:
        yield one


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(tool_client.time, "sleep", lambda _: None)


def opened(service, fake, token=TOKEN):
    """A studio without its thread."""
    (studio,) = open_projects(service, LabelStudioClient(fake.url, token), "http://127.0.0.1:9")
    studio.create_projects()
    studio.install_hook()
    return studio


def label_all(fake):
    """Three people, of whom Cy differs in one task and skips another."""
    for n, task in enumerate(fake.tasks):
        for who in (ANN, BOB, CY):
            fake.choose(task, who, "glad" if (n % 2 == 0) != (who == CY and n == 1) else "cross")
    fake.choose(105, CY, "", id=15, was_cancelled=True)


def votes(service, control="mood"):
    """(item, annotator, label) of all rows that count."""
    table = service.project(f"label-studio-7-{control}").table()
    names = (table.items[table.item], table.annotators[table.annotator], table.classes[table.label])
    return sorted(zip(*(map(str, some.tolist()) for some in names), strict=True))


def in_export(fake, tmp_path, service):
    """The rows that the reader of files finds in the export."""
    (tmp_path / "export.json").write_text(fake.export(), encoding="utf-8")
    table = read(tmp_path / "export.json")
    who = [fake.users[int(name)] for name in table.annotators.tolist()]
    items, labels = table.items[table.item].tolist(), table.classes[table.label].tolist()
    return sorted((str(i), who[a], str(k)) for i, a, k in zip(items, table.annotator, labels, strict=True))


@pytest.mark.filterwarnings("ignore::dissensus.exceptions.RowsLeftOut")
def test_sync_finds_what_is_missing_changed_and_gone(service, fake, tmp_path):
    label_all(fake)
    studio = opened(service, fake)
    assert studio.sync() == {"tasks": 5, "annotations": 15, "changed": 15, "removed": 0}
    assert votes(service) == in_export(fake, tmp_path, service)
    assert len(votes(service)) == 14  # one was skipped
    assert studio.sync() | {"tasks": 0} == {"tasks": 0, "annotations": 15, "changed": 0, "removed": 0}
    fake.choose(101, ANN, "cross", id=1)
    fake.choose(105, CY, "cross", id=15)
    fake.erase(2)
    del fake.tasks[104]
    again = studio.sync()
    assert (again["changed"], again["removed"]) == (2, 4)
    assert votes(service) == in_export(fake, tmp_path, service)
    shown = service.project("label-studio-7-mood").item("101")["data"]
    assert shown == {"text": TEXTS[0]["text"], "image": f"{fake.url}/data/upload/x.png"}


@pytest.mark.filterwarnings("ignore::dissensus.exceptions.RowsLeftOut")
def test_webhooks_in_any_order_and_twice_give_what_sync_gives(service, fake, tmp_path):
    studio = opened(service, fake)
    studio.sync()
    label_all(fake)
    fake.choose(101, ANN, "cross", id=1)
    fake.erase(2)
    order = np.random.default_rng(0).permutation(np.repeat(np.arange(len(fake.sent)), 2))
    for at in order:
        studio.webhook(json.loads(fake.sent[at][0]))
    assert votes(service) == in_export(fake, tmp_path, service)
    assert studio.sync()["changed"] == 0


def test_a_mark_as_right_is_a_known_label_until_it_goes(service, fake):
    label_all(fake)
    studio = opened(service, fake)
    studio.sync()
    project = service.project("label-studio-7-mood")
    studio.webhook(json.loads(fake.choose(102, CY, "glad", id=6, ground_truth=True)[0]))
    assert (project.item("102")["decision"]["label"], project.item("102")["labels"]) == ("glad", 2)
    studio.webhook(json.loads(fake.choose(102, ANN, "cross", id=4, ground_truth=True)[0]))  # removes Cy's mark
    assert studio._stale == {102}
    studio._fetch_stale()
    one = project.item("102")
    assert one["decision"]["label"] == "cross"
    assert [row["annotator"] for row in one["annotations"]] == ["bob@example.com", "cy@example.com"]
    studio.webhook(json.loads(fake.erase(4)[0]))
    assert not project.item("102")["decided"]


def test_a_mark_that_went_does_not_come_back_when_a_decision_over_it_is_withdrawn(service, fake):
    label_all(fake)
    fake.choose(102, CY, "glad", id=6, ground_truth=True)
    opened(service, fake).sync()
    project = service.project("label-studio-7-mood")
    service.append(project.name, [decision_event({"item": "102", "label": "cross"})])
    fake.erase(6)
    opened(service, fake).sync()  # after a restart
    assert project.item("102")["decision"]["label"] == "cross"
    service.append(project.name, [Event("withdrawal", "102", "102")])
    assert not project.item("102")["decided"]


def test_what_a_webhook_does_not_tell_is_fetched(service, fake):
    studio = opened(service, fake)
    studio.sync()
    fake.users[9] = "new@example.com"
    said, _ = fake.choose(101, 9, "glad")
    assert studio.webhook(json.loads(said)) == {"events": 0}  # nobody knows yet how this person is called
    studio._fetch_stale()
    assert votes(service) == [("101", "new@example.com", "glad")]
    studio.webhook(json.loads(fake.erase(fake.last, silently=True)[0]))
    assert studio._stale is None
    studio._fetch_stale()
    project = service.project("label-studio-7-mood")
    assert project.item("101")["labels"] == 0
    fake.choose(103, ANN, "cross")
    assert studio.sync(since=fake.now)["tasks"] >= 1
    assert project.item("103")["labels"] == 1


def test_every_control_is_a_project_of_its_kind(service):
    fake = Fake(TEXTS)
    try:
        fake.annotate(101, ANN, CONTRACT["GET /api/annotations/N/"]["answer"]["result"])
        fake.annotate(101, BOB, [answer("mood", ["cross"])])
        studio = opened(service, fake)
        studio.sync()
    finally:
        fake.close()
    kinds = {control.name: control.kind for control in studio.questions}
    assert kinds == {"mood": "classes", "about": "sets", "stars": "graded", "nights": "graded", "names": "spans"}
    given = {}
    for name in kinds:
        rows = service.project(f"label-studio-7-{name}").item("101")["annotations"]
        given[name] = [(row["annotator"][:3], row["label"]) for row in rows]
    assert given == {
        "mood": [("ann", "glad"), ("bob", "cross")],
        "about": [("ann", ["food", "room"])],
        "stars": [("ann", "4")],
        "nights": [("ann", "2.5")],
        "names": [("ann", [{"start": 0, "end": 3, "label": "person"}]), ("bob", [])],  # who read it and marked none
    }


def test_the_consensus_is_written_once_and_taken_away_without_a_trace(service, fake):
    label_all(fake)
    before = fake.export()
    studio = opened(service, fake)
    studio.sync()
    project = service.project("label-studio-7-mood")
    project.refit()
    assert studio.write_back(60) is False
    posterior = methods["consensus"]().fit(project.table()).posterior_.max(axis=1)
    for number, sure in zip(fake.tasks, posterior, strict=True):
        (ours,) = [one for one in fake.of["predictions"].values() if one["task"] == number]
        data, one = fake.tasks[number]["data"], project.item(str(number))
        assert (ours["score"], ours["model_version"]) == (pytest.approx(sure, abs=5e-4), AGENT_NAME)
        assert ours["result"][0]["value"] == {"choices": [one["label"]]}
        assert (data["dissensus_label"], data["dissensus_status"]) == (one["label"], one["status"])
        assert data["dissensus_confidence"] == ours["score"]
        assert data[REVIEW_FIELD] == ("yes" if one["status"] in ("needs a look", "truly split") else "no")
    assert fake.tasks[102]["data"]["dissensus_agreement"] == pytest.approx(2 / 3, abs=1e-3)
    assert len(fake.of["dm/views"]) == 2
    calls = len(fake.calls)
    assert studio.write_back(60) is False
    fresh = opened(service, fake)  # after a restart
    fresh.write_back(60)
    assert not [call for call in fake.calls[calls:] if call[0] != "GET"]
    assert fresh.remove() == {"webhooks": 1, "dm/views": 2, "predictions": 5, "tasks": 5}
    assert fake.export() == before
    assert not any(fake.of.values())


def test_a_decision_flows_back_and_a_task_without_labels_says_nothing(service, fake):
    from dissensus.serve.requests import decision_event

    label_all(fake)
    studio = opened(service, fake)
    studio.sync()
    service.project("label-studio-7-mood").refit()
    studio.write_back(60)
    service.append("label-studio-7-mood", [decision_event({"item": "102", "label": "glad", "by": "lead"})])
    for one in (1, 2, 3):
        studio.webhook(json.loads(fake.erase(one)[0]))
    studio.write_back(60)
    assert fake.tasks[102]["data"]["dissensus_status"] == "decided"
    (ours,) = [one for one in fake.of["predictions"].values() if one["task"] == 102]
    assert (ours["result"][0]["value"], ours["score"]) == ({"choices": ["glad"]}, 1.0)
    assert fake.tasks[101]["data"] == TEXTS[0]
    assert 101 not in {one["task"] for one in fake.of["predictions"].values()}


def test_a_tool_that_is_away_is_asked_again_and_a_lost_post_is_not_doubled(service, fake, monkeypatch):
    label_all(fake)
    studio = opened(service, fake, JWT)
    fake.away = 3
    studio.sync()
    fake.access += 1  # the access token has expired
    assert studio.sync()["annotations"] == 15
    service.project("label-studio-7-mood").refit()
    send, lost = studio.client._send, []

    def lose(method, path, *more):
        found = send(method, path, *more)
        if (method, path) == ("POST", "/api/predictions/") and not lost:
            lost.append(path)
            raise ToolError(tool="Label Studio", url=fake.url, status=0, reason="")
        return found

    monkeypatch.setattr(studio.client, "_send", lose)
    with pytest.raises(ToolError):
        studio.write_back(60)
    studio.write_back(60)
    assert sorted(one["task"] for one in fake.of["predictions"].values()) == list(fake.tasks)
    fake.away = 99
    with pytest.raises(ToolError) as caught:
        studio.sync()
    assert caught.value.status == 503


def test_tokens_projects_and_configurations_that_do_not_fit_are_named(service, fake):
    with pytest.raises(ToolError) as caught:
        open_projects(service, LabelStudioClient(fake.url, "wrong"), "")
    assert caught.value.status == 401
    with pytest.raises(ChooseFromTool) as caught:
        open_projects(service, LabelStudioClient(fake.url, TOKEN), "", [8])
    assert (caught.value.option, caught.value.url) == ("label_studio_project", fake.url)
    for url, token in (("localhost:8080", TOKEN), (fake.url, "")):
        with pytest.raises(ToolAccess) as caught:
            LabelStudioClient(url, token)
        assert caught.value.url == url
    fake.about = fake.about | {"parsed_label_config": {}}
    with pytest.raises(NothingToServe) as caught:
        LabelStudioProject(service, LabelStudioClient(fake.url, TOKEN), "", 7).create_projects()
    assert caught.value.name == "7"


def test_labels_of_pictures_are_no_spans(fake):
    about = dict(fake.about)
    names = CONTRACT["GET /api/projects/N/"]["answer"]["parsed_label_config"]["names"]
    about["parsed_label_config"] = {"names": names | {"inputs": [{"type": "Audio"}]}}
    assert read_controls(about, "b") == []


def test_a_choice_of_two_is_left_or_right():
    result = {"type": "pairwise", "from_name": "pw", "to_name": "a,b", "value": {"selected": "right"}}
    control = ToolQuestion("pw", "classes", "p", {"type": "Pairwise", "to_name": ["a", "b"]})
    (event,) = annotation_to_events(
        1, {"id": 5, "result": [result], "updated_at": "2026-01-01T00:00:00Z"}, control, "ann", False
    )
    assert (event.item, event.annotator, event.label) == ("1", "ann", "right")


def test_only_webhooks_that_we_made_are_taken(service, fake):
    pytest.importorskip("httpx", reason="needs the extra serve")
    from starlette.testclient import TestClient

    from dissensus.serve.app import create_app

    studio = opened(service, fake)
    studio.sync()
    body, headers = fake.choose(101, ANN, "glad")
    assert list(headers) == [SECRET_HEADER]
    app = create_app(service, page=False, routers=[webhook_router([studio])])
    client = TestClient(app, base_url="http://127.0.0.1", client=("127.0.0.1", 5))
    path = "/projects/label-studio-7/label-studio"
    assert client.post(path, content=body, headers={SECRET_HEADER: "forged"}).status_code == 401
    assert client.post(path.replace("7", "8"), content=body, headers=headers).status_code == 401
    for wrong in (b"no JSON", b"[]", b'{"action": "TASKS_CREATED"}'):
        assert client.post(path, content=wrong, headers=headers).status_code == 400
    other = json.dumps(json.loads(body) | {"project": {"id": 8}})
    assert client.post(path, content=other, headers=headers).status_code == 400
    assert votes(service) == []
    assert client.post(path, content=body, headers=headers).json() == {"events": 1}
    assert votes(service) == [("101", "ann@example.com", "glad")]
