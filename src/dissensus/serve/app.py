"""The HTTP API. Every answer is JSON; every error is {"error": "one sentence"}."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import math
import socket
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any
from urllib.parse import urlsplit

from dissensus.common.extras import need
from dissensus.exceptions import BadParameter, Conflict, DissensusError, StoreUnavailable, UnknownName
from dissensus.serve import questions
from dissensus.serve.events import ABOUT, Event, annotation_events, decision_event, item_events, name_of
from dissensus.serve.openapi import complete
from dissensus.serve.overview import FORMATS, TOOLS
from dissensus.serve.project import Project
from dissensus.serve.service import Service
from dissensus.serve.tokens import ROLES, Caller, Tokens
from dissensus.table.io.writers import writers
from dissensus.table.names import shown

need("fastapi", "dissensus serve needs", "serve")
from fastapi import FastAPI, Request  # noqa: E402
from fastapi.responses import HTMLResponse, JSONResponse, Response  # noqa: E402
from fastapi.routing import APIRoute  # noqa: E402
from starlette.concurrency import run_in_threadpool  # noqa: E402
from starlette.convertors import PathConvertor, register_url_convertor  # noqa: E402
from starlette.exceptions import HTTPException  # noqa: E402

LOOPBACK = ("127.0.0.1", "::1", "localhost")
COOKIE_SECONDS = 30 * 86_400
READS = ("GET", "HEAD", "OPTIONS")
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)  # bounds of the histogram of requests
MAX_DIGITS = 18  # of a number in an address
MAX_DEPTH = 100  # of brackets in brackets; what is much deeper can be stored, and no answer that holds it be written
MAX_ITEMS_ANSWERED = 100  # items whose new answer comes with the receipt
STORED_AHEAD = "no annotation has; the removal is kept, and what comes later with such an id of its own does not count."
STATUS_OF = (
    (StoreUnavailable, 503), (UnknownName, 404), (Conflict, 409), (DissensusError, 400),
)  # fmt: skip


class RestConvertor(PathConvertor):
    """The rest of a path as `path` takes it, and line breaks too: a name may hold them."""

    regex = "(?s:.*)"


register_url_convertor("rest", RestConvertor())


@dataclass(frozen=True)
class Limits:
    """What one caller may ask for."""

    body_bytes: int = 10_000_000
    per_second: float = 1_000.0  # requests, on average: a tool has one token for all its annotators
    burst: int = 5_000  # requests at once, after a rest
    page: int = 1_000  # items of one answer


class Guard:
    """Says who asks, and whether that one may; counts what is asked."""

    def __init__(self, service: Service, limits: Limits):
        self.tokens, self.limits = Tokens(service.store), limits
        mark = hashlib.sha256(service.store.salt().encode()).hexdigest()[:8]
        self.cookie = f"dissensus-{mark}"  # a browser sends it to every port of a host: other stores have other names
        self.left: dict[str, tuple[float, float]] = {}  # caller → requests that are left, as of when
        self.requests: dict[int, int] = {}
        self.seconds = [0] * (len(SECONDS) + 1)
        self.total_seconds = 0.0

    def caller(self, request: Request) -> Caller:
        """Who asks; 401 where a token is needed, 403 where a page of somebody else asks."""
        said = dict(reversed(request.scope["headers"]))  # the first of several
        header = said.get(b"authorization", b"").decode("latin-1")
        bearer = header[:7].lower() == "bearer "
        token = header[7:] if bearer else request.cookies.get(self.cookie) if b"cookie" in said else None
        if request.method not in READS:
            self._check_origin(request, by_cookie=token is not None and not bearer)
        if token and (bearer or self.tokens.any()):
            found = self.tokens.caller(token)
            if found is None:
                raise HTTPException(401, "this token is not known, or was revoked; ask an admin for another.")
            return found
        if self.tokens.any():
            raise HTTPException(401, "a token is needed; send it as 'Authorization: Bearer TOKEN', or sign in.")
        client = request.client.host if request.client else ""
        if client not in LOOPBACK or _hostname(request.headers.get("host")) not in LOOPBACK:
            raise HTTPException(
                401, "without tokens only this machine is served; `dissensus serve token add` makes one."
            )
        return Caller("admin", True, None, client)

    def _check_origin(self, request: Request, by_cookie: bool) -> None:
        """Refuse what the page of another site sends with this browser's rights."""
        origin = request.headers.get("origin")
        if origin is None and not by_cookie:
            return
        try:
            site = urlsplit(origin or "").netloc
        except ValueError:  # such as http://[
            site = ""
        if not site or site != request.headers.get("host"):
            raise HTTPException(403, f"a page of {origin or 'an unknown site'} may not write here.")

    def __call__(self, request: Request, what: str, own: str | None = None) -> Caller:
        """Who asks, where that one may; `own` is what a person with the role annotate is asked for instead."""
        caller = self.caller(request)
        self._spend(caller.key)
        what = own if own and caller.role == "annotate" else what
        if what not in ROLES[caller.role]:
            raise HTTPException(
                403, f"the role {caller.role} may not do this ({what}); ask an admin for another token."
            )
        return caller

    def _spend(self, key: str) -> None:
        """Take one request from those that a caller has; they grow again with time."""
        now, limits = time.monotonic(), self.limits
        left, since = self.left.get(key, (float(limits.burst), now))
        left = min(limits.burst, left + (now - since) * limits.per_second) - 1
        if left < 0:
            raise HTTPException(
                429, f"more than {limits.per_second:g} requests a second; wait a moment.", {"Retry-After": "1"}
            )
        self.left[key] = (left, now)

    def count(self, status: int, seconds: float) -> None:
        """Remember an answer."""
        self.requests[status] = self.requests.get(status, 0) + 1
        self.seconds[bisect_left(SECONDS, seconds)] += 1
        self.total_seconds += seconds


def _hostname(host: str | None) -> str:
    """What a header calls this machine; the framework takes what it cannot read for our own address."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:  # such as [
        return ""


class Application(FastAPI):
    """Routes whose answers are counted, and safe to show in a browser.

    What is asked of a project goes straight to its endpoint, which takes parts of the path and the request: the layers
    of the framework around it cost as much time as the answer.
    """

    HEADERS = (
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
        (b"cache-control", b"no-store"),
    )

    def __init__(self, guard: Guard):
        super().__init__(title="dissensus", docs_url=None, redoc_url=None, openapi_url="/openapi.json")
        self.guard = guard
        self._straight: dict[tuple[str, str], list[APIRoute]] = {}  # by method and what stands after the project

    def openapi(self) -> dict[str, Any]:
        """What the service takes and answers, for programs."""
        if self.openapi_schema is None:
            self.openapi_schema = complete(super().openapi())
        return self.openapi_schema

    def go_straight(self) -> None:
        """Take the short way to all addresses of projects that there are now."""
        for route in self.routes:
            if isinstance(route, APIRoute) and route.path.startswith("/projects/{name}/"):
                for method in route.methods or ():
                    self._straight.setdefault((method, route.path.split("/")[3]), []).append(route)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        began, status = time.perf_counter(), 500

        async def watched(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *self.HEADERS]
            await send(message)

        parts = scope["path"].split("/", 4)
        ways = self._straight.get((scope["method"], parts[3]), ()) if len(parts) > 3 else ()
        found = next(((way, at) for way in ways if (at := way.path_regex.match(scope["path"]))), None)
        try:
            if found is None:
                await super().__call__(scope, receive, watched)
                return
            request, (route, at) = Request(scope, receive, send), found
            try:
                answer = await route.endpoint(request=request, **at.groupdict())
            except DissensusError as error:
                answer = await _explain(request, error)
            except HTTPException as error:
                answer = await _explain_http(request, error)
            await (answer if isinstance(answer, Response) else JSONResponse(answer))(scope, receive, watched)
        finally:
            self.guard.count(status, time.perf_counter() - began)


async def body_of(request: Request, limit: int) -> bytes:
    """The body of a request, unless it is too long."""
    said = f"the request is longer than {limit / 1e6:g} MB; send it in parts."
    length = request.headers.get("content-length", "0")
    if not length.isdigit() or int(length) > limit:
        raise HTTPException(413, said)
    parts, size = [], 0
    async for part in request.stream():
        parts.append(part)
        size += len(part)
        if size > limit:
            raise HTTPException(413, said)
    return b"".join(parts)


def json_of(body: bytes) -> Any:
    """What a body says."""
    try:
        text = body.decode(json.detect_encoding(body))
        said = json.loads(text, parse_constant=_no_number, parse_float=_finite)
        if "\\ud" in text or "\\uD" in text:  # half of a character, unless the other half follows
            json.dumps(said, ensure_ascii=False).encode()
        if text.count("[") + text.count("{") > MAX_DEPTH and _is_deep(said):
            raise RecursionError
        return said
    except (ValueError, RecursionError) as error:
        why = str(error) if isinstance(error, ValueError) and str(error) else "too many brackets"
        why = error.reason if isinstance(error, UnicodeDecodeError | UnicodeEncodeError) else why
        raise BadParameter(f"the body is no JSON ({why}); send an object or a list of objects.") from None


def _is_deep(said: Any) -> bool:
    inside = [said]
    for _ in range(MAX_DEPTH):
        groups = (one.values() if isinstance(one, dict) else one for one in inside if isinstance(one, dict | list))
        inside = [one for group in groups for one in group]
    return bool(inside)


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is none of its numbers")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _no_number(text)


Part = Callable[[FastAPI, Service, Guard], None]


def create_app(
    service: Service, *, page: bool = True, limits: Limits | None = None, parts: Sequence[Part] = ()
) -> FastAPI:
    """The application; each of `parts` adds routes of its own, such as a tool's webhook."""
    from dissensus.serve.page import add_page

    guard = Guard(service, limits or Limits())
    app = Application(guard)
    app.add_exception_handler(DissensusError, _explain)
    app.add_exception_handler(HTTPException, _explain_http)
    _add_projects(app, service, guard)
    _add_annotations(app, service, guard)
    _add_answers(app, service, guard)
    _add_questions(app, guard, service)
    _add_service(app, service, guard)
    for part in (*([add_page] if page else []), *parts):
        part(app, service, guard)
    app.go_straight()
    return app


def listen(host: str, port: int) -> socket.socket:
    """A socket at a port; one that is taken is said in a sentence."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        why = "another program listens there" if error.errno == errno.EADDRINUSE else error.strerror or error
        raise BadParameter(
            f"port {port} of {host} cannot be used ({why}); give another with --port, or 0 for a free one."
        ) from None


async def _explain(_: Request, error: Exception) -> Response:
    status = next(status for kind, status in STATUS_OF if isinstance(error, kind))
    headers = {"Retry-After": "1"} if status == 503 else None
    return JSONResponse({"error": str(error)}, status, headers)


async def _explain_http(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    said = error.detail
    if error.status_code in (404, 405) and said in ("Not Found", "Method Not Allowed"):
        said = "there is no such address, or not with this method; /docs lists them all."
    return JSONResponse({"error": said}, error.status_code, error.headers)


def _add_projects(app: FastAPI, service: Service, guard: Guard) -> None:
    @app.get("/projects")
    async def projects(request: Request) -> Response:
        """All projects: name, title, kind, and the trouble with the last fit, if any."""
        guard(request, "list")
        return JSONResponse([service.project(name).heading() for name in service.projects()])

    @app.post("/projects")
    async def create(request: Request) -> Response:
        """Make a project: {name, kind?, classes?, title?, per_item?, per_annotator?}; 409: it is there and differs."""
        guard(request, "create")
        body = json_of(await body_of(request, guard.limits.body_bytes))
        if not isinstance(body, dict) or "name" not in body:
            raise BadParameter('a project is an object with a name, such as {"name": "cats"}.')
        there = set(service.projects())
        made = await run_in_threadpool(lambda: service.create(body.pop("name"), **body))
        return JSONResponse(made.heading(), 200 if made.name in there else 201)


def _add_annotations(app: FastAPI, service: Service, guard: Guard) -> None:
    async def store(name: str, events: list[Event]) -> Response:
        receipt = await asyncio.wrap_future(service.submit(name, events))
        answer: dict[str, Any] = receipt._asdict()
        items = {event.item for event in events if event.item}
        if removals := [event.id for event in events if event.kind == "removal"]:
            about = await run_in_threadpool(service.project(name).removed, removals)
            items |= {item for item in about.values() if item is not None}
            if unknown := sum(item is None for item in about.values()):
                answer |= {"unknown": unknown, "note": f"{unknown:,} of the ids to remove {STORED_AHEAD}"}
        if len(items) <= MAX_ITEMS_ANSWERED:
            answer["items"] = service.project(name).short(items)
        return JSONResponse(answer)

    @app.post("/projects/{name}/annotations")
    async def annotate(name: str, request: Request) -> Response:
        """Store annotations, one or a list: {id?, item, annotator, label, version?, data?, deleted?}."""
        caller, project = guard(request, "post", own="post own"), service.project(name)
        body = json_of(await body_of(request, guard.limits.body_bytes))
        events = annotation_events(body, project.about.get("kind"))
        if any(event.of_kind == "spans" for event in events):
            await run_in_threadpool(project.check_spans, events)
        _check_own(caller, events)
        return await store(name, events)

    @app.delete("/projects/{name}/annotations/{id_:rest}")
    async def remove(name: str, id_: str, request: Request) -> Response:
        """Take an annotation back, for good."""
        caller, events = guard(request, "post"), [Event("removal", name_of({"id": id_}, "id", 0), "")]
        _check_own(caller, events)
        return await store(name, events)

    @app.post("/projects/{name}/items")
    async def show(name: str, request: Request) -> Response:
        """Say what items look like: {item, text?, image?, …} or a list; also makes items known before any label."""
        guard(request, "post")
        return await store(name, item_events(json_of(await body_of(request, guard.limits.body_bytes))))

    @app.post("/projects/{name}/decisions")
    async def decide(name: str, request: Request) -> Response:
        """Decide an item: {item, label | both: […] | unclear: true, by?, note?}; a label is gold from now on."""
        caller, project = guard(request, "decide"), service.project(name)
        body = json_of(await body_of(request, guard.limits.body_bytes))
        event = decision_event(body, project.about.get("kind"))
        if caller.annotator is not None:  # nobody signs as somebody else
            event = replace(event, annotator=caller.annotator)
        project.check_decision(event)
        return await store(name, [event])

    @app.delete("/projects/{name}/decisions/{item:rest}")
    async def withdraw(name: str, item: str, request: Request) -> Response:
        """Withdraw what was decided about an item; with ?seq= that decision alone: the one before it stands again."""
        guard(request, "decide")
        service.project(name).code(item)
        data = {"seq": _number(request.query_params, "seq", 0)} if "seq" in request.query_params else None
        return await store(name, [Event("withdrawal", item, item, data=data)])

    @app.get("/projects/{name}/decisions")
    async def decisions(name: str, request: Request) -> Response:
        """All decisions that stand."""
        caller = guard(request, "decisions")
        project = service.project(name)
        return JSONResponse(hidden(project.all_decisions(), project, caller))


def _check_own(caller: Caller, events: Iterable[Event]) -> None:
    """Refuse an id of its own to who annotates, or has a token of one person: it may be that of another's label."""
    if caller.role != "annotate" and caller.annotator is None:
        return
    for event in events:
        _, made, annotator = event.id.rpartition(ABOUT)
        if not made:
            raise HTTPException(403, "with this token, name a label by item and annotator, without an id.")
        if caller.annotator not in (None, annotator):
            raise HTTPException(403, f"this token is for annotator {caller.annotator!r}; post no labels of others.")


def _add_answers(app: FastAPI, service: Service, guard: Guard) -> None:
    @app.get("/projects/{name}/items/{item:rest}")
    async def item(name: str, item: str, request: Request) -> Response:
        """One item: label, confidence, votes, status and why, annotations, decision, what it looks like."""
        caller, project = guard(request, "items"), service.project(name)
        return JSONResponse(hidden(project.item(item), project, caller))

    @app.get("/projects/{name}/items")
    async def items(name: str, request: Request) -> Response:
        """Some items: ?status=settled|unsettled|needs a look|truly split|decided|queue, order, offset, limit."""
        caller, project, query = guard(request, "items"), service.project(name), request.query_params
        offset, limit = (_number(query, key, default) for key, default in (("offset", 0), ("limit", 100)))
        found = await run_in_threadpool(
            project.items, query.get("status"), query.get("order", "confidence"), offset, min(limit, guard.limits.page)
        )
        return JSONResponse(hidden(found, project, caller))

    @app.get("/projects/{name}/annotators")
    async def annotators(name: str, request: Request) -> Response:
        """Everybody: labels, reliability with its interval, last seen, what to look at."""
        caller, project = guard(request, "annotators"), service.project(name)
        return JSONResponse(hidden(await run_in_threadpool(project.annotators), project, caller))

    @app.get("/projects/{name}/next")
    async def next_items(name: str, request: Request) -> Response:
        """What ?annotator= should label now (count=1), or why to stop."""
        caller, query = guard(request, "next"), request.query_params
        annotator = query.get("annotator") or caller.annotator
        if not annotator:
            raise BadParameter("say who asks: next?annotator=NAME.")
        if caller.annotator not in (None, annotator):
            raise HTTPException(403, f"this token is for annotator {caller.annotator!r}.")
        return JSONResponse(service.project(name).next(annotator, _number(query, "count", 1)))

    @app.get("/projects/{name}/progress")
    async def progress(name: str, request: Request) -> Response:
        """Day by day: labels, what is settled, who drifts (?days=14)."""
        caller, project = guard(request, "progress"), service.project(name)
        days = _number(request.query_params, "days", 14)
        return JSONResponse(hidden(await run_in_threadpool(project.progress, days), project, caller))

    @app.get("/projects/{name}/export")
    async def export(name: str, request: Request) -> Response:
        """The rows that count (?what=annotations), answers (items) or decisions, as ?format=csv|parquet|jsonl|…."""
        caller, project, query = guard(request, "export"), service.project(name), request.query_params
        form = query.get("format", "csv")
        data = await run_in_threadpool(project.export, form, query.get("what"), caller.names)
        file = writers[form].file if form in TOOLS else f"annotations.{form}"
        named = {"Content-Disposition": f'attachment; filename="{file}"'}
        return Response(data, media_type=FORMATS[form], headers=named)

    @app.get("/projects/{name}/report")
    async def report(name: str, request: Request) -> Response:
        """The report: one page of HTML."""
        caller, project = guard(request, "report"), service.project(name)
        return HTMLResponse(await run_in_threadpool(project.report, caller.names))


def _add_questions(app: FastAPI, guard: Guard, service: Service) -> None:
    @app.get("/projects/{name}/questions")
    async def listed(name: str, request: Request) -> Response:
        """The questions that can be asked, with their options and facts."""
        guard(request, "report")
        service.project(name)
        return JSONResponse(await run_in_threadpool(questions.listed))

    @app.get("/projects/{name}/questions/{question}")
    async def ask(name: str, question: str, request: Request) -> Response:
        """Facts and findings of a question, its options as the query; for callers who may see names."""
        caller = guard(request, "report")
        project, query = service.project(name), dict(request.query_params)
        return JSONResponse(await run_in_threadpool(questions.answer, project, question, query, caller.names))


def _add_service(app: FastAPI, service: Service, guard: Guard) -> None:
    @app.get("/health")
    async def health() -> Response:
        """Whether the store answers, and how many projects have trouble: their last fit failed."""
        await run_in_threadpool(service.store.last)
        trouble = service.in_trouble()
        return JSONResponse({"status": "trouble" if trouble else "good", "seq": service.seq, "trouble": trouble})

    @app.get("/metrics")
    async def metrics(request: Request) -> Response:
        """Counts for Prometheus."""
        guard(request, "metrics")
        return Response(_metrics(service, guard), media_type="text/plain; version=0.0.4")

    @app.get("/docs")
    async def docs() -> Response:
        """All addresses, for people."""
        return HTMLResponse(_docs(app))

    @app.post("/sign-in")
    async def sign_in(request: Request) -> Response:
        """Keep a token in a cookie that scripts cannot read: {token}."""
        guard._check_origin(request, by_cookie=guard.cookie in request.cookies)
        guard._spend(request.client.host if request.client else "")
        said = json_of(await body_of(request, 10_000))
        token = str(said.get("token", "")) if isinstance(said, dict) else ""
        if guard.tokens.caller(token) is None:
            raise HTTPException(401, "this token is not known, or was revoked; ask an admin for another.")
        answer = Response(status_code=303, headers={"Location": "/"})
        secure = request.url.scheme == "https"
        answer.set_cookie(guard.cookie, token, COOKIE_SECONDS, httponly=True, samesite="strict", secure=secure)
        return answer

    @app.post("/sign-out")
    async def sign_out() -> Response:
        """Forget the cookie."""
        answer = Response(status_code=303, headers={"Location": "/"})
        answer.delete_cookie(guard.cookie)
        return answer


def hidden(found: Any, project: Project, caller: Caller) -> Any:
    """An answer with pseudonyms where the caller may not see names."""
    if caller.names:
        return found
    called = project.pseudonyms()

    def hide(value: Any) -> Any:
        if isinstance(value, list):
            return [hide(one) for one in value]
        if not isinstance(value, dict):
            return value
        changed = {key: hide(one) for key, one in value.items() if key != "data"}
        for key in ("annotator", "by"):
            if isinstance(value.get(key), str):
                changed[key] = called.get(value[key], "somebody")
        if "reasons" in value:
            changed["reasons"] = ""  # those of copies name others
        if value.get("decided") and isinstance(value.get("reason"), str):
            changed["reason"] = "decided"
        return changed | ({"data": value["data"]} if "data" in value else {})

    return hide(found)


def _number(query: Any, key: str, default: int) -> int:
    text = query.get(key, str(default))
    if not (text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS):
        raise BadParameter(f"{key} must be a whole number from 0 to {10**MAX_DIGITS - 1:,}, got {shown(text)}.")
    return int(text)


def _metrics(service: Service, guard: Guard) -> str:
    fates, counts = ("accepted", "duplicates", "stale"), service.counts
    lines = [f'dissensus_events_total{{fate="{fate}"}} {counts[fate]}' for fate in fates]
    lines += [f"dissensus_{key}_total {counts[key]}" for key in ("batches", "failures", "fits")]
    lines += [f'dissensus_requests_total{{status="{key}"}} {value}' for key, value in sorted(guard.requests.items())]
    total = 0
    for bound, count in zip((*map(str, SECONDS), "+Inf"), guard.seconds, strict=True):
        total += count
        lines.append(f'dissensus_request_seconds_bucket{{le="{bound}"}} {total}')
    lines += [f"dissensus_request_seconds_sum {guard.total_seconds:.6f}", f"dissensus_request_seconds_count {total}"]
    for name in service.projects():
        project = service.project(name)
        label = name.replace("\\", "\\\\").replace('"', '\\"')
        lines += [f'dissensus_{key}{{project="{label}"}} {value}' for key, value in project.numbers().items()]
    return "\n".join(lines) + "\n"


def _docs(app: FastAPI) -> str:
    """A list of all addresses that needs no script and no network."""
    rows = []
    for path, methods in app.openapi()["paths"].items():
        for method, about in methods.items():
            said = escape(about.get("description") or about.get("summary", ""))
            rows.append(f"<tr><td><code>{method.upper()}</code><td><code>{escape(path)}</code><td>{said}")
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><title>dissensus: the API</title>"
        "<style>body{font:1rem/1.5 system-ui;max-width:70rem;margin:2rem auto;padding:0 1rem}"
        "td{padding:.3rem 1rem .3rem 0;vertical-align:top}</style>"
        '<h1>dissensus: the API</h1><p>JSON in, JSON out; an error is <code>{"error": "one sentence"}</code>. '
        "The same for programs: <a href=/openapi.json>openapi.json</a>.<table>" + "".join(rows) + "</table></html>"
    )
