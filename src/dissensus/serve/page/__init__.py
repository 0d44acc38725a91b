"""The page: a file each of HTML, CSS and JavaScript, beside this one; the style is the report's, with a little more."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

import dissensus.report
from dissensus.serve.tokens import ROLES
from dissensus.table.spans import scheme_of

if TYPE_CHECKING:
    from dissensus.serve.app import Guard
    from dissensus.serve.project import Project
    from dissensus.serve.service import Service

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: https: http:; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""Nothing but our own files runs; pictures of items may come from where the labelling tool has them."""
TYPES = {"page.html": "text/html", "page.css": "text/css", "page.js": "text/javascript"}


def _asset(name: str) -> Response:
    """A file of the page; what it shares with the report comes first."""
    shared = {"page.css": "page.css", "page.js": "common.js"}.get(name)
    first = (Path(dissensus.report.__file__).parent / shared).read_bytes() if shared else b""
    content, kind = first + (Path(__file__).parent / name).read_bytes(), f"{TYPES[name]}; charset=utf-8"
    return Response(content, media_type=kind, headers={"Content-Security-Policy": POLICY})


def choices(project: Project) -> list[str]:
    """What a label may be, or consist of; nothing where it may be anything."""
    if project.about.get("classes"):
        return list(project.about["classes"])
    if project.fitted is None:
        return []
    table = project.fitted.table
    if table.kind == "spans":
        return sorted({name for name in scheme_of(table.classes).types if name})
    found = table.options.names if table.kind == "sets" else table.classes
    return [] if table.kind in ("numbers", "objects") else [str(name) for name in found.tolist()]


def add_page(app: FastAPI, service: Service, guard: Guard) -> None:
    """Add the addresses of the page; its files are for everybody, what it shows is not."""

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return _asset("page.html")

    @app.get("/page/{name}", include_in_schema=False)
    async def part(name: str) -> Response:
        if name not in TYPES:
            raise HTTPException(404, "the page has no such file.")
        return _asset(name)

    @app.get("/projects/{name}")
    async def about(name: str, request: Request) -> Response:
        """One project: title, kind, trouble, and the classes, options or labels of spans that there are."""
        guard(request, "list")
        one = service.project(name)
        return JSONResponse(one.heading() | {"classes": choices(one)})

    @app.get("/me")
    async def me(request: Request) -> Response:
        """Who asks: whether signed in, the role, what it may do, whether names are shown."""
        try:
            caller = guard.caller(request)
        except HTTPException:
            return JSONResponse({"signed_in": False, "tokens": True, "role": None, "names": False, "may": []})
        may = sorted(ROLES[caller.role])
        tokens = guard.tokens.any()
        return JSONResponse(
            {"signed_in": True, "tokens": tokens, "role": caller.role, "names": caller.names, "may": may}
        )
