"""The routes of Argilla's API that we and the tests call, in memory; the same tests run against the real server.

It refuses what the real one (2.8) refuses of what we may send: a wrong key, scores that do not fit the value, metadata
properties that are there.
"""

import json
import re
import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

ROUTES = {}


def route(method, pattern):
    def add(function):
        ROUTES[method, re.compile(f"/api/v1{pattern}")] = function
        return function

    return add


class RequestRefused(Exception):
    """A status and what is said."""


class FakeArgilla:
    def __init__(self, key):
        self.keys = {key: {"id": str(uuid4()), "username": "argilla"}}
        self.at = datetime(2026, 1, 1, tzinfo=UTC)
        self.things = {}  # id → workspace, dataset, question, record, response …
        self.calls = []
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self):
                where = urlsplit(self.path)
                raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                fake.calls.append(f"{self.command} {where.path}")
                try:
                    who = fake.keys.get(self.headers["X-Argilla-Api-Key"])
                    if who is None:
                        raise RequestRefused(401, "Could not validate credentials")
                    found = [(f, m) for (method, p), f in ROUTES.items() if method == self.command
                             and (m := p.fullmatch(where.path))]  # fmt: skip
                    function, match = found[0]
                    said, status = (
                        function(fake, who, json.loads(raw or b"null"), parse_qs(where.query), *match.groups()),
                        200,
                    )
                except RequestRefused as error:
                    status, said = error.args[0], {"detail": error.args[1]}
                self.send_response(204 if said is None else status)
                self.end_headers()
                if said is not None:
                    self.wfile.write(json.dumps(said).encode())

            do_GET = do_POST = do_PUT = do_DELETE = answer  # noqa: N815

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def stamp(self):
        self.at += timedelta(seconds=1)
        return self.at.replace(tzinfo=None).isoformat(timespec="microseconds")  # as the server: UTC without saying so

    def add(self, kind, **about):
        now = self.stamp()
        one = {"id": str(uuid4())} | about | {"inserted_at": now, "updated_at": now}
        self.things[one["id"]] = (kind, one)
        return one

    def all(self, kind, **about):
        return [one for k, one in self.things.values() if k == kind and about.items() <= one.items()]

    def shown(self, record):
        responses = self.all("response", record_id=record["id"])
        least = self.things[record["dataset_id"]][1]["distribution"]["min_submitted"]
        done = sum(one["status"] == "submitted" for one in responses) >= least
        suggested = [{k: v for k, v in one.items() if k != "record_id"}
                     for one in self.all("suggestion", record_id=record["id"])]  # fmt: skip
        return record | {"status": "completed" if done else "pending", "responses": responses, "suggestions": suggested}


@route("POST", "/(workspaces|users|datasets)")
def create(fake, who, body, query, kind):
    one = fake.add(kind, **body, **({"status": "draft"} if kind == "datasets" else {}))
    if kind == "users":
        one["api_key"] = one["id"] * 2
        fake.keys[one["api_key"]] = one
    return one


@route("POST", "/workspaces/([^/]+)/users")
def join(fake, who, body, query, workspace):
    fake.add("member", workspace=workspace, user=body["user_id"])
    return fake.things[body["user_id"]][1]


@route("GET", "/workspaces/([^/]+)/users")
def members(fake, who, body, query, workspace):
    return {"items": [fake.things[one["user"]][1] for one in fake.all("member", workspace=workspace)]}


@route("POST", "/datasets/([^/]+)/(fields|questions|metadata-properties)")
def part(fake, who, body, query, dataset, kind):
    if fake.all(kind, name=body["name"], dataset_id=dataset):
        raise RequestRefused(409, f"{body['name']} already exists")
    return fake.add(kind, **body, dataset_id=dataset)


@route("GET", "(?:/me)?/datasets/([^/]+)/(questions|metadata-properties)")
def parts(fake, who, body, query, dataset, kind):
    return {"items": fake.all(kind, dataset_id=dataset)}


@route("PUT", "/datasets/([^/]+)/publish")
def publish(fake, who, body, query, dataset):
    fake.things[dataset][1]["status"] = "ready"
    return fake.things[dataset][1]


@route("GET", "/me/datasets")
def datasets(fake, who, body, query):
    return {"items": fake.all("datasets")}


@route("POST", "/datasets/([^/]+)/records/bulk")
def records(fake, who, body, query, dataset):
    usual = {"metadata": None, "external_id": None, "dataset_id": dataset}
    made = [fake.add("record", **usual | one) for one in body["items"]]
    return {"items": [fake.shown(one) for one in made]}


@route("GET", "/datasets/([^/]+)/records")
def listed(fake, who, body, query, dataset):
    assert query["include"] == ["responses,suggestions"]
    offset, limit = int(query["offset"][0]), int(query["limit"][0])
    assert 1 <= limit <= 1000
    found = fake.all("record", dataset_id=dataset)
    return {"items": [fake.shown(one) for one in found[offset : offset + limit]], "total": len(found)}


@route("PUT", "/datasets/([^/]+)/records/bulk")
def upsert(fake, who, body, query, dataset):
    assert 1 <= len(body["items"]) <= 500
    for one in body["items"]:
        for said in one.get("suggestions", ()):
            value, score = said["value"], said.get("score")
            if isinstance(value, list) != isinstance(score, list) or (
                isinstance(value, list) and len(value) != len(score)
            ):
                raise RequestRefused(422, "number of items on value and score attributes doesn't match")
            if score == []:
                raise RequestRefused(422, "score must have at least one item")
            for old in fake.all("suggestion", record_id=one["id"], question_id=said["question_id"]):
                del fake.things[old["id"]]
            fake.add("suggestion", record_id=one["id"], **said)
        if "metadata" in one:
            fake.things[one["id"]][1]["metadata"] = one["metadata"]
    return {"items": [fake.shown(fake.things[one["id"]][1]) for one in body["items"]]}


@route("DELETE", "/records/([^/]+)/suggestions")
def forget(fake, who, body, query, record):
    for id_ in query["ids"][0].split(","):
        del fake.things[id_]


@route("POST", "/records/([^/]+)/responses")
def respond(fake, who, body, query, record):
    return fake.add("response", record_id=record, user_id=who["id"], **body)


@route("PUT", "/responses/([^/]+)")
def change(fake, who, body, query, response):
    fake.things[response][1].update(body, updated_at=fake.stamp())
    return fake.things[response][1]


@route("DELETE", "/(?:responses|metadata-properties|records)/([^/]+)")
def delete(fake, who, body, query, id_):
    return fake.things.pop(id_)[1]
