"""What `/openapi.json` says beside what FastAPI finds: the endpoints read queries and bodies themselves, for speed."""

from __future__ import annotations

from typing import Any

from dissensus.questions.item_status import STATUSES
from dissensus.serve.describe import ORDERS
from dissensus.serve.next_item import MAX_COUNT
from dissensus.serve.overview import FORMATS, MAX_DAYS, WHAT
from dissensus.table.kinds import KINDS

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
NAME: Schema = {"type": ["string", "number"]}
SPAN: Schema = {
    "type": "object", "required": ["start", "end", "label"],
    "properties": {"start": {"type": "integer"}, "end": {"type": "integer"}, "label": NAME},
}  # fmt: skip
LABEL: Schema = {
    "anyOf": [
        {"type": ["string", "number", "boolean"]},
        {"type": "array", "items": TEXT},
        {"type": "array", "items": SPAN},
        {"type": "object"},
    ]
}
LISTS = ("all", *STATUSES, "unlabelled", "decided", "unsettled", "queue")


def _object(*required: str, more: bool = False, **properties: Schema) -> Schema:
    return {"type": "object", "required": [*required], "properties": properties, "additionalProperties": more}


def _one_or_more(one: Schema) -> Schema:
    return {"oneOf": [one, {"type": "array", "items": one}]}


def _whole(default: int, **limits: int) -> Schema:
    return {"type": "integer", "default": default, **limits}


QUERIES: dict[str, dict[str, Schema]] = {
    "GET /projects/{name}/items": {
        "status": {"enum": [*LISTS], "default": "all"}, "order": {"enum": [*ORDERS], "default": ORDERS[0]},
        "offset": _whole(0, minimum=0), "limit": _whole(100, minimum=0),
    },
    "DELETE /projects/{name}/decisions/{item}": {"seq": {"type": "integer"}},
    "GET /projects/{name}/next": {"annotator": TEXT, "count": _whole(1, minimum=1, maximum=MAX_COUNT)},
    "GET /projects/{name}/progress": {"days": _whole(14, minimum=1, maximum=MAX_DAYS)},
    "GET /projects/{name}/export": {
        "format": {"enum": [*FORMATS], "default": "csv"}, "what": {"enum": [*WHAT], "default": WHAT[0]},
    },
}  # fmt: skip
BODIES: dict[str, Schema] = {
    "POST /projects": _object(
        "name", name=TEXT, kind={"enum": [*KINDS]}, classes={"type": "array", "items": TEXT, "minItems": 1},
        title=TEXT, per_item={"type": "integer", "minimum": 1}, per_annotator={"type": "integer", "minimum": 1},
    ),
    "POST /projects/{name}/annotations": _one_or_more(
        _object(
            id=NAME, item=NAME, annotator=NAME, label=LABEL, version=NAME, at=NAME, data={"type": "object"},
            deleted={"type": "boolean"}, left=NAME, right=NAME, winner={"enum": ["left", "right", "tie"]},
        )
    ),
    "POST /projects/{name}/items": _one_or_more(_object("item", item=NAME, more=True)),
    "POST /projects/{name}/decisions": _object(
        "item", item=NAME, label=LABEL, both={"type": "array", "items": LABEL, "minItems": 2},
        unclear={"type": "boolean"}, by=NAME, note=TEXT,
    ),
    "POST /sign-in": _object("token", token=TEXT),
}  # fmt: skip
MEDIA = {
    "GET /projects/{name}/export": list(dict.fromkeys(form.partition(";")[0] for form in FORMATS.values())),
    "GET /projects/{name}/report": ["text/html"],
    "GET /metrics": ["text/plain"],
    "GET /docs": ["text/html"],
}
"""What is not answered in JSON."""
STATUS = {"POST /projects": ["200", "201"], "POST /sign-in": ["303"], "POST /sign-out": ["303"]}
GUARDED = ("/projects", "/metrics")  # beginnings of addresses that need a token


def complete(found: dict[str, Any]) -> dict[str, Any]:
    """The document that FastAPI makes, with queries, bodies, answers, errors and the token."""
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    for path, methods in found["paths"].items():
        for method, about in methods.items():
            key = f"{method.upper()} {path}"
            for name, schema in QUERIES.get(key, {}).items():
                about.setdefault("parameters", []).append({"name": name, "in": "query", "schema": schema})
            if key in BODIES:
                about["requestBody"] = {"required": True, "content": {"application/json": {"schema": BODIES[key]}}}
            statuses = STATUS.get(key, ["200"])
            kinds = [] if statuses == ["303"] else MEDIA.get(key, ["application/json"])
            content: Schema = {kind: {} for kind in kinds}
            about["responses"] = {status: {"description": "Done", "content": content} for status in statuses}
            about["responses"]["default"] = {"description": "An error, in a sentence", "content": error}
            if not path.startswith(GUARDED):
                about["security"] = []
    found["components"] = {
        "schemas": {"Error": _object("error", error=TEXT)},
        "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
    }
    found["security"] = [{"token": []}, {}]  # before the first token none is needed on this machine
    return found
