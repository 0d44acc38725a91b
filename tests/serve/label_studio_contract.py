"""Record what Label Studio's API says, by asking a real server: `python label_studio_contract.py URL TOKEN [FILE]`.

The answers are kept in label_studio_contract.json: one example of every call that `dissensus serve` makes, and of every
webhook that it takes. The fake server of the tests is made of them; `make test-label-studio` records them again and
compares their shapes. All texts are ours.
"""

import http.server
import json
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

FILE = Path(__file__).with_suffix(".json")
CONFIG = """<View><Text name="text" value="$text"/>
<Choices name="mood" toName="text"><Choice value="glad"/><Choice value="cross"/></Choices>
<Choices name="about" toName="text" choice="multiple"><Choice value="food"/><Choice value="room"/></Choices>
<Rating name="stars" toName="text"/><Number name="nights" toName="text"/>
<Labels name="names" toName="text"><Label value="person"/></Labels></View>"""
TEXTS = [{"text": f"Ada stayed {n} nights", "room": n} for n in range(3)]
RESULT = [
    {"from_name": "mood", "to_name": "text", "type": "choices", "value": {"choices": ["glad"]}},
    {"from_name": "about", "to_name": "text", "type": "choices", "value": {"choices": ["food", "room"]}},
    {"from_name": "stars", "to_name": "text", "type": "rating", "value": {"rating": 4}},
    {"from_name": "nights", "to_name": "text", "type": "number", "value": {"number": 2.5}},
    {"from_name": "names", "to_name": "text", "type": "labels",
     "value": {"start": 0, "end": 3, "text": "Ada", "labels": ["person"]}},
]  # fmt: skip
QUERY = '{"ordering": ["tasks:id"], "selectedItems": {"all": false, "included": [%d]}}'
ACTIONS = ["ANNOTATION_CREATED", "ANNOTATION_UPDATED", "ANNOTATIONS_DELETED", "TASKS_CREATED", "TASKS_DELETED"]
SECRETS = ("token", "task_data_login", "task_data_password", "avatar", "unique_id", "label_config_hash")


def call(url, token, method, path, body=None):
    """The status and the JSON of an answer."""
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Token {token}"} if token else {})
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data=data, method=method, headers=headers)
    try:
        with urllib.request.urlopen(request) as answer:
            raw, status = answer.read(), answer.status
    except urllib.error.HTTPError as error:
        with error:
            raw, status = error.read(), error.code
    return status, json.loads(raw) if raw.strip() else None


def listen(said):
    """A server on loopback that keeps what is posted to it."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            said.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def record(url, token):
    """Call → {status, answer}, and "webhook ACTION" → what is sent."""
    found, said = {}, []
    server = listen(said)

    def ask(name, method, path, body=None):
        status, answer = call(url, token, method, path, body)
        found[name] = {"status": status, "answer": answer}
        return answer

    project = ask("POST /api/projects/", "POST", "/api/projects/", {"title": "a contract", "label_config": CONFIG})[
        "id"
    ]
    ask("GET /api/projects/", "GET", "/api/projects/?page=1&page_size=100")
    ask("GET /api/projects/N/", "GET", f"/api/projects/{project}/")
    ask("GET /api/users/", "GET", "/api/users/")
    hook = {"project": project, "url": f"http://127.0.0.1:{server.server_port}/projects/p/label-studio",
            "send_payload": True, "send_for_all_actions": False, "is_active": True, "headers": {"X-Some": "secret"},
            "actions": ACTIONS}  # fmt: skip
    hooked = ask("POST /api/webhooks/", "POST", "/api/webhooks/", hook)
    ask("GET /api/webhooks/", "GET", f"/api/webhooks/?project={project}")
    ask("PATCH /api/webhooks/N/", "PATCH", f"/api/webhooks/{hooked['id']}/", hook)
    path = f"/api/projects/{project}/import?return_task_ids=1"
    tasks = ask("POST /api/projects/N/import", "POST", path, TEXTS)["task_ids"]
    one = ask("POST /api/tasks/N/annotations/", "POST", f"/api/tasks/{tasks[0]}/annotations/", {"result": RESULT})
    ask("PATCH /api/annotations/N/", "PATCH", f"/api/annotations/{one['id']}/", {"ground_truth": True})
    ask("GET /api/annotations/N/", "GET", f"/api/annotations/{one['id']}/")
    prediction = {
        "task": tasks[0],
        "project": project,
        "result": RESULT[:1],
        "score": 0.5,
        "model_version": "dissensus",
    }
    made = ask("POST /api/predictions/", "POST", "/api/predictions/", prediction)
    ask("PATCH /api/predictions/N/", "PATCH", f"/api/predictions/{made['id']}/", prediction | {"score": 0.75})
    ask("GET /api/predictions/", "GET", f"/api/predictions/?project={project}")
    data = {"data": TEXTS[0] | {"dissensus_status": "settled"}, "updated_by": None}
    ask("PATCH /api/tasks/N/", "PATCH", f"/api/tasks/{tasks[0]}/", data)
    query = urllib.request.quote(QUERY % tasks[0])
    listed = f"/api/tasks/?project={project}&fields=all&resolve_uri=false&page_size=100"
    ask("GET /api/tasks/", "GET", f"{listed}&page=1&query={query}")
    ask("GET /api/tasks/ no page", "GET", f"{listed}&page=9")
    asked = {"filter": "filter:tasks:data.dissensus_status", "operator": "equal", "type": "String", "value": "settled"}
    view = {"project": project, "data": {"title": "a tab", "dissensus": True,
                                         "filters": {"conjunction": "and", "items": [asked]}}}  # fmt: skip
    tab = ask("POST /api/dm/views/", "POST", "/api/dm/views/", view)
    ask("GET /api/dm/views/", "GET", f"/api/dm/views/?project={project}")
    ask("GET /api/tasks/ of a tab", "GET", f"/api/tasks/?view={tab['id']}&page=1&page_size=10")
    ask("DELETE /api/dm/views/N/", "DELETE", f"/api/dm/views/{tab['id']}/")
    ask("DELETE /api/predictions/N/", "DELETE", f"/api/predictions/{made['id']}/")
    ask("DELETE /api/annotations/N/", "DELETE", f"/api/annotations/{one['id']}/")
    ask("GET /api/annotations/N/ gone", "GET", f"/api/annotations/{one['id']}/")
    ask("DELETE /api/tasks/N/", "DELETE", f"/api/tasks/{tasks[1]}/")
    ask("POST /api/projects/N/summary/reset/", "POST", f"/api/projects/{project}/summary/reset/")
    ask("DELETE /api/webhooks/N/", "DELETE", f"/api/webhooks/{hooked['id']}/")
    status, answer = call(url, "wrong", "GET", "/api/projects/")
    found["GET /api/projects/ refused"] = {"status": status, "answer": answer}
    status, answer = call(url, "", "POST", "/api/token/refresh/", {"refresh": "a.b.c"})
    found["POST /api/token/refresh/ refused"] = {"status": status, "answer": answer}
    ask("DELETE /api/projects/N/", "DELETE", f"/api/projects/{project}/")
    server.shutdown()
    server.server_close()
    return found | {f"webhook {one['action']}": one for one in said}


def without_secrets(value):
    """The same without values that are of this server alone."""
    if isinstance(value, dict):
        return {key: None if key in SECRETS else without_secrets(one) for key, one in value.items()}
    return [without_secrets(one) for one in value] if isinstance(value, list) else value


def small(found):
    """The same with one project and one user."""
    projects, users = (found[f"GET /api/{what}/"]["answer"] for what in ("projects", "users"))
    projects["results"], users[1:] = projects["results"][:1], []
    return without_secrets(found)


def shape(value):
    """The names and types in an answer; None fits every type, as what is not set has none."""
    if isinstance(value, dict):
        return {key: shape(one) for key, one in sorted(value.items())}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return type(value).__name__


if __name__ == "__main__":
    target = Path(sys.argv[3]) if len(sys.argv) > 3 else FILE
    lines = [f"{json.dumps(name)}: {json.dumps(one, sort_keys=True)}" for name, one in
             sorted(small(record(sys.argv[1], sys.argv[2])).items())]  # fmt: skip
    target.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
