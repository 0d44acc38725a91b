"""A real Label Studio, three annotators, 200 tasks, a service that is killed twenty times: `make test-label-studio`.

LABEL_STUDIO is the program to start; or LABEL_STUDIO_URL and LABEL_STUDIO_TOKEN name a server that runs already.
"""

import csv
import json
import os
import random
import re
import shlex
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from dissensus.serve.service import Service
from dissensus.serve.store import open_store
from dissensus.table.io import read
from serve import label_studio_contract as contract

TASKS, KILLS = int(os.environ.get("TASKS", "200")), int(os.environ.get("KILLS", "20"))
GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "serve-label-studio.md"
MOOD = """<View><Text name="text" value="$text"/>
<Choices name="mood" toName="text"><Choice value="glad"/><Choice value="cross"/></Choices></View>"""
DISSENSUS = [sys.executable, "-m", "dissensus"]
TOKEN = "d" * 40
pytestmark = pytest.mark.skipif(
    not {"LABEL_STUDIO", "LABEL_STUDIO_URL"} & os.environ.keys(), reason="needs Label Studio: make test-label-studio"
)


@pytest.fixture(scope="module")
def tool(tmp_path_factory):
    """Its address and a token."""
    if "LABEL_STUDIO_URL" in os.environ:
        yield os.environ["LABEL_STUDIO_URL"], os.environ["LABEL_STUDIO_TOKEN"]
        return
    folder = tmp_path_factory.mktemp("label-studio")
    off = {"SSRF_PROTECTION_ENABLED": "false", "COLLECT_ANALYTICS": "false", "LATEST_VERSION_CHECK": "false"}
    more = ["--username", "lead@example.com", "--password", "Never-mind-1", "--user-token", TOKEN]
    command = [os.environ["LABEL_STUDIO"], "start", "--no-browser", "--internal-host", "127.0.0.1", "--port", "8089"]
    with (folder / "log").open("wb") as log:
        started = subprocess.Popen(
            [*command, "--data-dir", folder, *more, "--enable-legacy-api-token"], stdout=log, stderr=log,
            env=os.environ | off,
        )  # fmt: skip
        try:
            wait(lambda: answers("http://127.0.0.1:8089/health"), 600, "Label Studio to start")
            yield "http://127.0.0.1:8089", TOKEN
        finally:
            started.kill()
            started.wait()


def wait(good, seconds, what):
    end = time.monotonic() + seconds
    while not (found := good()):
        assert time.monotonic() < end, f"waited {seconds} s for {what}"
        time.sleep(0.5)
    return found


def answers(url):
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return json.load(answer) if answer.headers.get("Content-Type", "").startswith("application/json") else True
    except OSError:
        return None


class Room:
    """A project of the real server."""

    def __init__(self, tool, config, texts):
        self.url, self.token = tool
        self.number = self.ask("POST", "/api/projects/", {"title": "Stays", "label_config": config})["id"]
        path = f"/api/projects/{self.number}/import?return_task_ids=1"
        self.tasks = self.ask("POST", path, [{"text": text} for text in texts])["task_ids"]
        emails = [f"{name}.{self.number}@example.com" for name in ("ann", "bob", "cy")]
        self.people = [
            self.ask("POST", "/api/users/", {"email": one, "username": one, "password": "Never-mind-1"})["id"]
            for one in emails
        ]

    def ask(self, method, path, body=None):
        status, answer = contract.call(self.url, self.token, method, path, body)
        assert status < 300, (method, path, status, answer)
        return answer

    def choose(self, task, who, label):
        result = [contract.RESULT[0] | {"value": {"choices": [label]}}]
        body = {"result": result, "completed_by": who}
        return self.ask("POST", f"/api/tasks/{task}/annotations/", body)["id"]

    def export(self, times=True):
        found = self.ask("GET", f"/api/projects/{self.number}/export?exportType=JSON&download_all_tasks=true")
        text = json.dumps(found)
        return text if times else re.sub(r'"(\w+_at)": ("[^"]*"|null)', r'"\1": 0', text)

    def predictions(self):
        found = self.ask("GET", f"/api/predictions/?project={self.number}")
        return [one for one in found if one["model_version"] == "dissensus"]


class Served:
    """`dissensus serve` beside it."""

    def __init__(self, room, store):
        self.options = ["serve", "--store", str(store), "--label-studio", room.url]
        self.options += ["--label-studio-project", str(room.number)]
        self.environment = os.environ | {"LABEL_STUDIO_TOKEN": room.token}

    def start(self):
        self.process = subprocess.Popen(
            [*DISSENSUS, *self.options, "--port", "0", "--json"], stdout=subprocess.PIPE, env=self.environment
        )
        self.url = json.loads(_object(self.process))["url"]

    def stop(self, how="terminate"):
        getattr(self.process, how)()
        self.process.wait()
        self.process.stdout.close()

    def remove(self):
        done = subprocess.run(
            [*DISSENSUS, *self.options, "--remove"], env=self.environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


def _object(process):
    """The first JSON object that a process prints."""
    text = ""
    while True:
        line = process.stdout.readline().decode()
        assert line, "dissensus serve ended"
        text += line
        try:
            json.loads(text)
        except ValueError:
            continue
        return text


@contextmanager
def running(served):
    served.start()
    try:
        yield served
    finally:
        served.stop()


def fits(new, old):
    """True where an answer has all that was recorded; what is not set may have any type."""
    if isinstance(old, dict) and isinstance(new, dict):
        return all(key in new and fits(new[key], old[key]) for key in old)
    if isinstance(old, list) and isinstance(new, list):
        return not old or not new or fits(new[0], old[0])
    return old is None or new is None or type(new) is type(old) or {type(new), type(old)} == {int, float}


def test_the_server_still_speaks_as_recorded(tool):
    recorded = json.loads(contract.FILE.read_text(encoding="utf-8"))
    now = contract.small(contract.record(*tool))
    assert recorded.keys() <= now.keys()
    for call, old in recorded.items():
        assert fits(now[call], old), call


def test_taking_it_away_leaves_the_project_as_it_was(tool, tmp_path):
    room = Room(tool, MOOD, [f"Stay {n}" for n in range(12)])
    for n, task in enumerate(room.tasks[:10]):
        for who in room.people:
            room.choose_units(task, who, "glad" if (n + who) % 3 else "cross")
    other = {"task": room.tasks[0], "project": room.number, "result": [], "score": 0.1, "model_version": "another"}
    room.ask("POST", "/api/predictions/", other)
    before = room.export(times=False)

    def columns():
        return [one["id"] for one in room.ask("GET", f"/api/dm/columns?project={room.number}")["columns"]]

    served = Served(room, tmp_path / "s.db")
    with running(served):
        wait(lambda: len(room.predictions()) == 10, 120, "10 predictions")
        assert {"dissensus_status", "dissensus_confidence", "dissensus_review"} <= set(columns())
        tabs = wait(lambda: room.ask("GET", f"/api/dm/views/?project={room.number}"), 10, "a tab")
        assert [tab["data"]["title"] for tab in tabs] == ["Default", "dissensus: review"]
        time.sleep(3)
        review = room.ask("GET", f"/api/tasks/?view={tabs[1]['id']}&page=1&page_size=100")["tasks"]
        wanted = answers(f"{served.url}/projects/label-studio-{room.number}-mood/items?status=queue")
        assert {str(one["id"]) for one in review} == {one["item"] for one in wanted["items"]}
    served.remove()
    assert room.export(times=False) == before
    assert not [one for one in columns() if "dissensus" in one]
    assert room.ask("GET", f"/api/webhooks/?project={room.number}") == []
    assert room.ask("GET", f"/api/dm/views/?project={room.number}") == []


def test_every_label_arrives_once_although_the_service_is_killed(tool, tmp_path):
    room = Room(tool, MOOD, [f"Stay {n}" for n in range(TASKS)])
    draw, done = random.Random(26), threading.Event()
    todo = [(task, who) for task in room.tasks for who in room.people]
    draw.shuffle(todo)
    given, seconds = [], []

    def label():
        rng = random.Random(7)
        try:
            for task, who in todo:
                truth = "glad" if task % 2 else "cross"
                wrong = rng.random() < (0.1, 0.2, 0.35)[room.people.index(who)]
                began = time.monotonic()
                given.append(
                    room.choose_units(task, who, {"glad": "cross", "cross": "glad"}[truth] if wrong else truth)
                )
                seconds.append(time.monotonic() - began)
                if rng.random() < 0.05:
                    result = [contract.RESULT[0] | {"value": {"choices": ["glad"]}}]
                    room.ask("PATCH", f"/api/annotations/{rng.choice(given)}/", {"result": result})
                if rng.random() < 0.02:
                    room.ask("DELETE", f"/api/annotations/{given.pop(rng.randrange(len(given)))}/")
        finally:
            done.set()

    served = Served(room, tmp_path / "s.db")
    served.start()
    worker = threading.Thread(target=label)
    worker.start()
    kills = 0
    while not done.is_set() or kills < KILLS:
        time.sleep(draw.uniform(0.2, 8) if not done.is_set() else draw.uniform(0.2, 2))
        if kills < KILLS:
            served.stop("kill")
            kills += 1
            served.start()
    worker.join()
    assert len(given) > 0.9 * len(todo)
    labelled = {task for task, _ in todo}
    base = f"label-studio-{room.number}-mood"

    def written():
        found = answers(f"{served.url}/projects/{base}/items?limit=1000")
        if found is None:  # it is still starting
            return False
        rows = found["items"]
        ours = Counter(one["task"] for one in room.predictions())
        said = {str(one["task"]): one for one in room.predictions()}
        return len(rows) == len(said) and set(ours.values()) == {1} and all(
            said[row["item"]]["result"][0]["value"]["choices"] == [row["label"]]
            and abs(said[row["item"]]["score"] - row["confidence"]) <= 0.011
            for row in rows if row["label"] is not None
        )  # fmt: skip

    try:
        wait(written, 600, "all predictions")
    finally:
        served.stop()
    (tmp_path / "export.json").write_text(room.export(), encoding="utf-8")
    export = read(tmp_path / "export.json")
    people = {str(one["id"]): one["email"] for one in room.ask("GET", "/api/users/")}
    with Service(open_store(str(tmp_path / "s.db")), fits=False) as service:
        project = service.project(base)
        held, table = project.stored_labels(), project.table()
        project.refit()
        mine = {name: project.item(str(name)) for name in labelled}
    assert sorted(map(int, held)) == sorted(given)  # each once
    theirs = zip(
        export.items[export.item], export.annotators[export.annotator], export.classes[export.label], strict=True
    )
    ours = zip(table.items[table.item], table.annotators[table.annotator], table.classes[table.label], strict=True)
    assert Counter((str(i), people[str(a)], k) for i, a, k in theirs) == Counter(ours)
    command = [*DISSENSUS, "aggregate", "export.json", "-o", "out"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True).returncode == 0
    with (tmp_path / "out" / "items.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [mine[int(row["item"])]["label"] for row in rows] == [row["label"] for row in rows]
    sure = [mine[int(row["item"])]["confidence"] for row in rows]
    np.testing.assert_allclose(sure, [float(row["confidence"]) for row in rows], atol=1e-9)
    served.remove()
    assert "dissensus" not in room.export()
    print(f"\n{len(given)} labels, {kills} kills, {np.median(seconds):.2f} s per label in the tool")


def test_the_commands_of_the_guide_run(tool, tmp_path, monkeypatch):
    """All lines of the guide's shell blocks that begin with dissensus, with this server's address and project."""
    room = Room(tool, MOOD, ["One stay", "Another stay"])
    for who in room.people:
        room.choose_units(room.tasks[0], who, "glad")
    monkeypatch.chdir(tmp_path)
    environment = os.environ | {"LABEL_STUDIO_TOKEN": room.token}
    for line in re.findall(r"^\$ (dissensus .+)$", GUIDE.read_text(encoding="utf-8"), flags=re.MULTILINE):
        words = shlex.split(line, comments=True)[1:]
        words = [room.url if word == "http://localhost:8080" else word for word in words]
        words = [str(room.number) if before == "--label-studio-project" else word
                 for before, word in zip(["", *words], words, strict=False)]  # fmt: skip
        if "serve" in words and "token" not in words and "--remove" not in words:
            (tmp_path / "exports").mkdir(exist_ok=True)
            command = [*DISSENSUS, *words, "--port", "0", "--json"]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
            try:
                url = json.loads(_object(process))["url"]
                if "--label-studio" in words:
                    wait(lambda: len(room.predictions()) == 1, 60, "a prediction")
                assert wait(lambda: answers(f"{url}/health"), 30, "an answer")["status"] == "good"  # noqa: B023
            finally:
                process.terminate()
                process.wait()
                process.stdout.close()
        else:
            done = subprocess.run([*DISSENSUS, *words], env=environment, capture_output=True, text=True)
            assert done.returncode == 0, (line, done.stderr)
    assert room.predictions() == []
