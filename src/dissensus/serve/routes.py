"""The routes of the API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from dataclasses import replace
from html import escape
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Depends, Query, Request
from fastapi.responses import HTMLResponse, Response
from fastapi.routing import APIRoute
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.concurrency import run_in_threadpool
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.exceptions import HTTPException

from dissensus.messages import ParameterName
from dissensus.serve import questions, requests, responses
from dissensus.serve.describe import ITEM_LISTS, ITEM_ORDERS
from dissensus.serve.events import SEPARATOR, Event
from dissensus.serve.exceptions import MissingBodyField, RequestRefused, UnknownRemovals
from dissensus.serve.face import HTTP_FACE
from dissensus.serve.next_item import MAX_ITEMS_PER_REQUEST
from dissensus.serve.overview import EXPORT_CONTENTS, EXPORT_FORMATS, TOOL_FORMATS
from dissensus.serve.project import Project
from dissensus.serve.requests import ADDRESS_ADAPTER, annotation_events, decision_event, item_events, validate
from dissensus.serve.security import BEARER_SCHEME, AccessGuard, require_permission
from dissensus.serve.service import Service
from dissensus.serve.tokens import Caller
from dissensus.table.io.writers import writers

MAX_DAYS = 366
MAX_ITEMS_PER_PAGE = 1_000  # items in one response
MAX_ITEMS_ANSWERED = 100  # A receipt describes the changed items unless there are more.
COOKIE_SECONDS = 30 * 86_400


class RestOfPathConvertor(PathConvertor):
    """Convert the rest of a path, including line breaks, because names may contain them."""

    regex = "(?s:.*)"


register_url_convertor("rest", RestOfPathConvertor())


class JsonRequest(Request):
    """A request whose body is limited in length, and is parsed by pydantic whatever its content type."""

    async def json(self) -> bytes:
        """Return the unparsed body, which `requests.PARSED` parses."""
        return await self.body()

    async def stream(self) -> AsyncGenerator[bytes, None]:
        """Yield the parts of the body; raise an error if it is too long."""
        size, limit = 0, self.app.state.guard.limits.body_bytes
        async for part in super().stream():
            size += len(part)
            if size > limit:
                raise HTTPException(413)
            yield part


class JsonRoute(APIRoute):
    """A route that receives a `JsonRequest`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of requests, which identifies the caller before it reads the body."""
        handle = super().get_route_handler()
        has_caller = any(getattr(part.call, "identifies_caller", False) for part in self.dependant.dependencies)

        async def handle_json(request: Request) -> Response:
            if has_caller:
                request.app.state.guard.identify_caller(request, await BEARER_SCHEME(request))
            return await handle(JsonRequest(request.scope, request.receive))

        return handle_json


router = APIRouter(route_class=JsonRoute)
FORMAT_NAMES = tuple(EXPORT_FORMATS)
ListName = Literal[ITEM_LISTS]  # type: ignore[valid-type]
ListOrder = Literal[ITEM_ORDERS]  # type: ignore[valid-type]
ExportFormat = Literal[FORMAT_NAMES]  # type: ignore[valid-type]
ExportContent = Literal[EXPORT_CONTENTS]  # type: ignore[valid-type]
NonNegativeInt = Annotated[int, Query(ge=0, le=10**18)]


async def get_service(request: Request) -> Service:
    """Return the service of the application."""
    service: Service = request.app.state.service
    return service


ServiceOfRequest = Annotated[Service, Depends(get_service)]


async def get_project(request: Request, name: str) -> Project:
    """Return the project with the name in the address."""
    return (await get_service(request)).project(name)


ProjectOfPath = Annotated[Project, Depends(get_project)]
Poster = Annotated[Caller, require_permission("post")]
ItemReader = Annotated[Caller, require_permission("items")]
Decider = Annotated[Caller, require_permission("decide")]
OMIT_UNSET: dict[str, Any] = {"response_model_exclude_unset": True}
FILES: dict[str, Any] = {media_type.partition(";")[0]: {} for media_type in EXPORT_FORMATS.values()}


async def store_events(service: Service, project: Project, events: list[Event]) -> dict[str, Any]:
    """Store events; return the receipt with the new results of their items."""
    receipt = await asyncio.wrap_future(service.submit(project.name, events))
    answer: dict[str, Any] = receipt._asdict()
    items = {event.item for event in events if event.item}
    if removals := [event.id for event in events if event.kind == "removal"]:
        removed = await run_in_threadpool(project.removed_items, removals)
        items |= {item for item in removed.values() if item is not None}
        if n_unknown := sum(item is None for item in removed.values()):
            answer |= {"unknown": n_unknown, "note": UnknownRemovals(n_ids=n_unknown).render(HTTP_FACE)}
    return answer | ({"items": project.short(items)} if len(items) <= MAX_ITEMS_ANSWERED else {})


def check_own_labels(caller: Caller, events: Iterable[Event]) -> None:
    """Refuse ids from annotators and from tokens of one annotator, because they could name labels of others."""
    if caller.role != "annotate" and caller.annotator is None:
        return
    for event in events:
        _, has_separator, annotator = event.id.rpartition(SEPARATOR)
        if not has_separator:
            raise RequestRefused(reason="own id", subject=event.id)
        if caller.annotator not in (None, annotator):
            raise RequestRefused(reason="other annotator", subject=caller.annotator)


def hide_names(value: Any, project: Project, caller: Caller) -> Any:
    """Return a response with pseudonyms, unless the caller may see names."""
    if caller.names:
        return value
    pseudonyms = project.pseudonyms()

    def replace_names(value: Any) -> Any:
        if isinstance(value, list):
            return [replace_names(one) for one in value]
        if not isinstance(value, dict):
            return value
        changed = {key: one if key == "data" else replace_names(one) for key, one in value.items()}
        for key in {"annotator", "by"} & value.keys():
            if isinstance(value[key], str):
                changed[key] = pseudonyms.get(value[key], "unknown")
        if "reasons" in value:
            changed["reasons"] = ""  # Reasons of copying annotators name other annotators.
        if value.get("decided") and isinstance(value.get("reason"), str):
            changed["reason"] = "decided"
        return changed

    return replace_names(value)


# Projects -------------------------------------------------------------------------------------------------------------


@router.get("/projects", response_model=list[responses.ProjectResponse], **OMIT_UNSET)
async def list_projects(_: Annotated[Caller, require_permission("list")], service: ServiceOfRequest) -> Any:
    """List all projects: name, title, kind, and the error of the last fit, "" if it succeeded."""
    return [service.project(name).summary() for name in service.project_names()]


@router.post(
    "/projects",
    response_model=responses.ProjectResponse,
    responses={201: {"model": responses.ProjectResponse}},
    **OMIT_UNSET,
)
def create_project(
    _: Annotated[Caller, require_permission("create")],
    service: ServiceOfRequest,
    response: Response,
    body: Annotated[requests.ProjectInput, Body()],
) -> Any:
    """Create a project; the status is 409 if it exists with other settings."""
    if body.name not in service.project_names():
        response.status_code = 201
    return service.create_project(body.name, **body.model_dump(exclude={"name"}, exclude_none=True)).summary()


# Annotations ----------------------------------------------------------------------------------------------------------


@router.post("/projects/{name}/annotations", response_model=responses.ReceiptResponse, **OMIT_UNSET)
async def post_annotations(
    caller: Annotated[Caller, require_permission("post", for_annotators="post own")],
    service: ServiceOfRequest,
    project: ProjectOfPath,
    body: Annotated[requests.AnnotationsInput, Body()],
) -> Any:
    """Store one annotation or a list of annotations."""
    events = annotation_events(body, project.about.get("kind"))
    if any(event.label_kind == "spans" for event in events):
        await run_in_threadpool(project.check_spans, events)
    check_own_labels(caller, events)
    return await store_events(service, project, events)


@router.delete("/projects/{name}/annotations/{id_:rest}", response_model=responses.ReceiptResponse, **OMIT_UNSET)
async def delete_annotation(caller: Poster, service: ServiceOfRequest, project: ProjectOfPath, id_: str) -> Any:
    """Remove an annotation permanently."""
    events = [Event("removal", validate(ADDRESS_ADAPTER, id_), "")]
    check_own_labels(caller, events)
    return await store_events(service, project, events)


@router.post("/projects/{name}/items", response_model=responses.ReceiptResponse, **OMIT_UNSET)
async def post_items(
    _: Poster, service: ServiceOfRequest, project: ProjectOfPath, body: Annotated[requests.ItemsInput, Body()]
) -> Any:
    """Store the content of one item or a list of items; they are listed even before they have labels."""
    return await store_events(service, project, item_events(body))


# Decisions ------------------------------------------------------------------------------------------------------------


@router.post("/projects/{name}/decisions", response_model=responses.ReceiptResponse, **OMIT_UNSET)
async def post_decision(
    caller: Decider, service: ServiceOfRequest, project: ProjectOfPath, body: Annotated[requests.DecisionInput, Body()]
) -> Any:
    """Decide an item; the decided label is a gold label from now on."""
    event = decision_event(body, project.about.get("kind"))
    event = event if caller.annotator is None else replace(event, annotator=caller.annotator)
    project.check_decision(event)
    return await store_events(service, project, [event])


@router.delete("/projects/{name}/decisions/{item:rest}", response_model=responses.ReceiptResponse, **OMIT_UNSET)
async def delete_decision(
    _: Decider, service: ServiceOfRequest, project: ProjectOfPath, item: str, seq: NonNegativeInt | None = None
) -> Any:
    """Withdraw all decisions about an item, or the one with number `seq`; an earlier decision is then in force."""
    project.item_code(item)
    data = None if seq is None else {"seq": seq}
    return await store_events(service, project, [Event("withdrawal", item, item, data=data)])


@router.get("/projects/{name}/decisions", response_model=list[responses.DecisionResponse])
async def list_decisions(caller: Annotated[Caller, require_permission("decisions")], project: ProjectOfPath) -> Any:
    """List all decisions in force."""
    return hide_names(project.all_decisions(), project, caller)


# Answers --------------------------------------------------------------------------------------------------------------


@router.get("/projects/{name}/items/{item:rest}", response_model=responses.ItemResponse, **OMIT_UNSET)
async def get_item(caller: ItemReader, project: ProjectOfPath, item: str) -> Any:
    """Show an item: label, confidence, votes, status with its reason, annotations, decision and fields."""
    return hide_names(project.item(item), project, caller)


@router.get("/projects/{name}/items", response_model=responses.ItemListResponse, **OMIT_UNSET)
def list_items(
    caller: ItemReader,
    project: ProjectOfPath,
    status: ListName = "all",
    order: ListOrder = ITEM_ORDERS[0],
    offset: NonNegativeInt = 0,
    limit: NonNegativeInt = 100,
) -> Any:
    """List items by confidence (lowest first), by name, or by the time of their last label (latest first)."""
    found = project.items(status, order, offset, min(limit, MAX_ITEMS_PER_PAGE))
    return hide_names(found, project, caller)


@router.get("/projects/{name}/annotators", response_model=list[responses.AnnotatorResponse])
def list_annotators(caller: Annotated[Caller, require_permission("annotators")], project: ProjectOfPath) -> Any:
    """List all annotators: number of labels, reliability with its interval, time of the last label, flags."""
    return hide_names(project.annotators(), project, caller)


@router.get("/projects/{name}/next", response_model=responses.NextItemsResponse, **OMIT_UNSET)
async def get_next_items(
    caller: Annotated[Caller, require_permission("next")],
    project: ProjectOfPath,
    annotator: str = "",
    count: Annotated[int, Query(ge=1, le=MAX_ITEMS_PER_REQUEST)] = 1,
) -> Any:
    """Return the items that an annotator should label now, or the reason why there are none."""
    annotator = annotator or caller.annotator or ""
    if not annotator:
        raise MissingBodyField(field=ParameterName("annotator"))
    if caller.annotator not in (None, annotator):
        raise RequestRefused(reason="other annotator", subject=caller.annotator)
    return project.next_items(annotator, count)


@router.get("/projects/{name}/progress", response_model=responses.ProgressResponse, **OMIT_UNSET)
def get_progress(
    caller: Annotated[Caller, require_permission("progress")],
    project: ProjectOfPath,
    days: Annotated[int, Query(ge=1, le=MAX_DAYS)] = 14,
) -> Any:
    """Return the progress by day: labels, settled items, and annotators who drift."""
    return hide_names(project.progress(days), project, caller)


@router.get("/projects/{name}/export", response_class=Response, responses={200: {"content": FILES}})
def get_export(
    caller: Annotated[Caller, require_permission("export")],
    project: ProjectOfPath,
    form: Annotated[ExportFormat, Query(alias="format")] = "csv",
    content: ExportContent = EXPORT_CONTENTS[0],
) -> Any:
    """Return the annotations that count, the items with their results, or the decisions, as a file."""
    data = project.export(form, content, caller.names)
    file = writers[form].file if form in TOOL_FORMATS else f"annotations.{form}"
    headers = {"Content-Disposition": f'attachment; filename="{file}"'}
    return Response(data, media_type=EXPORT_FORMATS[form], headers=headers)


@router.get("/projects/{name}/report", response_class=Response, responses={200: {"content": {"text/html": {}}}})
def get_report(caller: Annotated[Caller, require_permission("report")], project: ProjectOfPath) -> Any:
    """Return the report as one HTML page."""
    return HTMLResponse(project.report(caller.names))


@router.get("/projects/{name}/questions")
def list_questions(caller: Annotated[Caller, require_permission("report")], project: ProjectOfPath) -> dict[str, Any]:
    """List the questions that can be asked about a project, with their options and facts."""
    return questions.list_questions()


@router.get("/projects/{name}/questions/{question}")
def ask_question(
    caller: Annotated[Caller, require_permission("report")], project: ProjectOfPath, question: str, request: Request
) -> Any:
    """Answer a question with facts and findings; the query has its options, and the caller must be allowed names."""
    return questions.answer_question(project, question, dict(request.query_params), caller.names)


# The service ----------------------------------------------------------------------------------------------------------


@router.get("/health")
def check_health(service: ServiceOfRequest) -> dict[str, Any]:
    """Check that the store responds; return the number of projects whose last fit failed."""
    service.store.last_seq()
    n_failing = service.count_failing()
    return {"status": "failing" if n_failing else "good", "seq": service.seq, "failing_projects": n_failing}


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
def get_metrics(_: Annotated[Caller, require_permission("metrics")], request: Request) -> Any:
    """Return metrics for Prometheus."""
    return Response(generate_latest(request.app.state.metrics.registry), media_type=CONTENT_TYPE_LATEST)


@router.get("/docs", response_class=Response, responses={200: {"content": {"text/html": {}}}})
def show_docs(request: Request) -> Any:
    """List all addresses on a page that needs no script and no network."""
    rows = [
        f"<tr><td><code>{method.upper()}</code><td><code>{escape(path)}</code><td>{escape(about['description'])}"
        for path, methods in request.app.openapi()["paths"].items()
        for method, about in methods.items()
    ]
    return HTMLResponse(
        "<!doctype html><html lang=en><meta charset=utf-8><title>dissensus: the API</title>"
        "<style>body{font:1rem/1.5 system-ui;max-width:70rem;margin:2rem auto;padding:0 1rem}"
        "td{padding:.3rem 1rem .3rem 0;vertical-align:top}</style>"
        "<h1>dissensus: the API</h1><p>Requests and responses are JSON; "
        'an error is <code>{"error": "one sentence"}</code>. '
        "Machine-readable: <a href=/openapi.json>openapi.json</a>.<table>" + "".join(rows) + "</table></html>"
    )


@router.post("/sign-in", status_code=303, response_class=Response)
async def sign_in(request: Request, body: Annotated[requests.SignInInput, Body()]) -> Any:
    """Keep a token in a cookie that scripts cannot read."""
    guard: AccessGuard = request.app.state.guard
    guard.check_origin(request, by_cookie=guard.cookie in request.cookies)
    guard.count_request(request.client.host if request.client else "")
    guard.require_caller(body.token)
    answer = Response(status_code=303, headers={"Location": "/"})
    secure = request.url.scheme == "https"
    answer.set_cookie(guard.cookie, body.token, COOKIE_SECONDS, httponly=True, samesite="strict", secure=secure)
    return answer


@router.post("/sign-out", status_code=303, response_class=Response)
async def sign_out(request: Request) -> Any:
    """Delete the cookie with the token."""
    answer = Response(status_code=303, headers={"Location": "/"})
    answer.delete_cookie(request.app.state.guard.cookie)
    return answer
