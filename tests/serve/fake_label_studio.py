"""A Label Studio of the tests: the answers of the recorded contract, with a memory of their own.

It speaks HTTP on loopback, keeps tasks, annotations, predictions, webhooks and tabs, and answers with all the fields
that the real server was seen to answer with. What was not recorded it does not know: it raises.
"""

import http.server
import json
import re
import threading
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

CONTRACT = json.loads((Path(__file__).parent / "label_studio_contract.json").read_text(encoding="utf-8"))
TOKEN = "f" * 40
JWT = "e.y.j"


def like(call, **ours):
    """The recorded answer with some fields of ours, all of which it must have."""
    answer = deepcopy(CONTRACT[call]["answer"])
    answer = answer[0] if isinstance(answer, list) else answer
    assert ours.keys() <= answer.keys(), ours.keys() - answer.keys()
    return answer | ours


class Fake:
    """Tasks, and what people and we do to them; `calls` are all requests, `away` makes it answer 503 to so many."""

    def __init__(self, texts, config=None, project=7):
        self.project, self.lock = project, threading.RLock()
        self.about = like("GET /api/projects/N/", id=project, title="Stays")
        if config is not None:
            self.about["parsed_label_config"] = {name: self.about["parsed_label_config"][name] for name in config}
        self.users = {1: "lead@example.com", 2: "ann@example.com", 3: "bob@example.com", 4: "cy@example.com"}
        self.calls, self.away, self.access = [], 0, 0
        self.now, self.last = datetime(2026, 5, 1, tzinfo=UTC), 0
        listed = CONTRACT["GET /api/tasks/"]["answer"]["tasks"][0]
        self.tasks = {
            number: deepcopy(listed) | {"id": number, "data": dict(data), "annotations": [], "predictions": [],
                                        "updated_by": [], "updated_at": self.tick()}
            for number, data in enumerate(texts, 101)
        }  # fmt: skip
        self.of = {"webhooks": {}, "predictions": {}, "dm/views": {}}
        self.sent = []  # webhooks that would be sent
        fake = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self):
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                with fake.lock:
                    status, value = fake.answer(self.command, self.path, body, self.headers.get("Authorization", ""))
                raw = b"" if value is None else json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            do_GET = do_POST = do_PATCH = do_DELETE = answer  # noqa: N815

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def tick(self):
        self.now += timedelta(seconds=1)
        return self.now.isoformat().replace("+00:00", "Z")

    # What people do

    def annotate(self, task, who, results, **more):
        """Make an annotation, or change the one whose id is given; what the webhook would say."""
        with self.lock:
            kept = self.tasks[task]["annotations"]
            old = next((one for one in kept if one["id"] == more.get("id")), None)
            self.last += old is None
            ours = {"id": self.last, "completed_by": who, "result": results, "task": task, "project": self.project}
            one = like("GET /api/annotations/N/", **ours | {"ground_truth": False, "was_cancelled": False} | more)
            one["updated_at"] = self.touch(task, who)
            if one["ground_truth"]:
                for other in kept:
                    other["ground_truth"] = False  # without a new time, and without a webhook, as in the real one
            kept[:] = [*(other for other in kept if other["id"] != one["id"]), one]
            kind = "ANNOTATION_CREATED" if old is None else "ANNOTATION_UPDATED"
            said = deepcopy(CONTRACT[f"webhook {kind}"])
            said["annotation"] |= {key: value for key, value in one.items() if key in said["annotation"]}
            said["task"] |= {"id": task, "data": self.tasks[task]["data"]}
            return self.send(said)

    def choose(self, task, who, label, **more):
        return self.annotate(task, who, [answer("mood", [label])] if label else [], **more)

    def erase(self, annotation, silently=False):
        """Delete an annotation; in bulk the real one tells no numbers."""
        with self.lock:
            for task in self.tasks.values():
                task["annotations"] = [one for one in task["annotations"] if one["id"] != annotation]
            said = deepcopy(CONTRACT["webhook ANNOTATIONS_DELETED"])
            said["annotations"] = [] if silently else [{"id": annotation}]
            return self.send(said)

    def touch(self, task, who):
        self.tasks[task]["updated_by"] = [{"user_id": who}]
        self.tasks[task]["updated_at"] = self.tick()
        return self.tasks[task]["updated_at"]

    def send(self, said):
        said["project"]["id"] = self.project
        headers = next((one["headers"] for one in self.of["webhooks"].values()), {})
        self.sent.append((json.dumps(said).encode(), headers))
        return self.sent[-1]

    def export(self):
        """What people would export, without times."""
        gone = ("updated_at", "created_at")
        tasks = [
            {key: value for key, value in task.items() if key not in gone}
            | {"predictions": [one for one in self.of["predictions"].values() if one["task"] == task["id"]]}
            for task in self.tasks.values()
        ]
        return json.dumps(tasks)

    # What is asked of it

    def answer(self, method, path, body, authorization):
        self.calls.append((method, path, body))
        if self.away:
            self.away -= 1
            return 503, {"detail": "away"}
        at, query = urlsplit(path).path, {key: one[0] for key, one in parse_qs(urlsplit(path).query).items()}
        if at == "/api/token/refresh/":
            if body != {"refresh": JWT}:
                return 401, CONTRACT["POST /api/token/refresh/ refused"]["answer"]
            self.access += 1
            return 200, {"access": f"access {self.access}"}
        if authorization not in (f"Token {TOKEN}", f"Bearer access {self.access}"):
            return 401, CONTRACT["GET /api/projects/ refused"]["answer"]
        if at == f"/api/projects/{self.project}/summary/reset/":
            return CONTRACT["POST /api/projects/N/summary/reset/"]["status"], None
        number = next(map(int, re.findall(r"/(\d+)/$", at)), None)
        what = (
            at.removeprefix("/api/").removesuffix("/")
            if number is None
            else at.split("/api/")[1].split(f"/{number}/")[0]
        )
        call = f"{method} /api/{what}/" + ("" if number is None else "N/")
        assert call in CONTRACT, f"not recorded: {call}"
        if what in self.of:
            return self.keep(method, call, self.of[what], number, body)
        if call == "GET /api/projects/":
            return 200, {"count": 1, "next": None, "previous": None, "results": [self.about]}
        if call == "GET /api/projects/N/":
            return (200, self.about) if number == self.project else (404, {"detail": "none"})
        if call == "GET /api/users/":
            return 200, [like(call, id=number, email=email) for number, email in self.users.items()]
        if call == "GET /api/annotations/N/":
            found = [one for task in self.tasks.values() for one in task["annotations"] if one["id"] == number]
            return (200, found[0]) if found else (404, CONTRACT[f"{call} gone"]["answer"])
        if call == "PATCH /api/tasks/N/":
            assert body.keys() == {"data", "updated_by"}
            by = [{"user_id": body["updated_by"]}] if body["updated_by"] else []
            self.tasks[number] |= {"data": body["data"], "updated_at": self.tick(), "updated_by": by}
            return 200, like(call, id=number, data=body["data"])
        assert call == "GET /api/tasks/"
        return self.listed(query)

    def listed(self, query):
        assert (query["fields"], query["resolve_uri"], query["project"]) == ("all", "false", str(self.project))
        asked = json.loads(query["query"])
        tasks = list(self.tasks.values())
        if "selectedItems" in asked:
            tasks = [one for one in tasks if one["id"] in asked["selectedItems"]["included"]]
        for one in asked.get("filters", {"items": []})["items"]:
            assert (one["filter"], one["operator"]) == ("filter:tasks:updated_at", "greater")
            since = datetime.strptime(one["value"], "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)  # as the tool reads it
            tasks = [task for task in tasks if datetime.fromisoformat(task["updated_at"]) > since]
        page, size = int(query["page"]), int(query["page_size"])
        found = tasks[(page - 1) * size : page * size]
        if not found and page > 1:
            return 404, CONTRACT["GET /api/tasks/ no page"]["answer"]
        return 200, {"tasks": found, "total": len(tasks), "total_annotations": 0, "total_predictions": 0}

    def keep(self, method, call, kept, number, body):
        if method == "GET":
            return 200, list(kept.values())
        if method == "POST":
            self.last += 1
            number = self.last
            kept[number] = like(call, **body) | {"id": number}
        if number not in kept:
            return 404, {"detail": "none"}
        if call.startswith(("POST /api/predictions", "PATCH /api/predictions", "DELETE /api/predictions")):
            self.touch(kept[number]["task"], 1)  # as the real one does
        if method == "DELETE":
            del kept[number]
            return 204, None
        kept[number] |= body
        return CONTRACT[call]["status"], kept[number]


def answer(control, value):
    """A result as annotators give it to one of the controls of the contract."""
    for result in CONTRACT["GET /api/annotations/N/"]["answer"]["result"]:
        if result["from_name"] == control:
            key = next(iter(result["value"].keys() - {"start", "end", "text"}))
            return result | {"value": {key: value} if not isinstance(value, dict) else value}
    raise KeyError(control)
