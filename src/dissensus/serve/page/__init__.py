"""The web page of the service: HTML, CSS and JavaScript, after the style and scripts that it shares with the report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

import dissensus.report
from dissensus.exceptions import DissensusError
from dissensus.serve import responses
from dissensus.serve.exceptions import RequestRefused
from dissensus.serve.project import Project
from dissensus.serve.routes import ProjectOfPath
from dissensus.serve.security import BEARER_SCHEME, AccessGuard, require_permission
from dissensus.serve.tokens import ROLES, Caller
from dissensus.table.spans import parse_tag_scheme

CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: https: http:; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""Content security policy: only our own scripts run; pictures of items may come from the labelling tool's server."""
MEDIA_TYPES = {"page.html": "text/html", "page.css": "text/css", "page.js": "text/javascript"}
SHARED_FILES = {"page.css": "page.css", "page.js": "common.js"}  # our file → the file of the report that precedes it
router = APIRouter()


@router.get("/", include_in_schema=False)
@router.get("/page/{file}", include_in_schema=False)
def get_asset(file: str = "page.html") -> Any:
    """Return a file of the page, which is the same for every caller."""
    if file not in MEDIA_TYPES:
        raise RequestRefused(reason="no such address", subject=file)
    shared = (Path(dissensus.report.__file__).parent / SHARED_FILES[file]).read_bytes() if file in SHARED_FILES else b""
    content = shared + (Path(__file__).parent / file).read_bytes()
    media_type = f"{MEDIA_TYPES[file]}; charset=utf-8"
    return Response(content, media_type=media_type, headers={"Content-Security-Policy": CONTENT_POLICY})


@router.get("/projects/{name}", response_model=responses.ProjectResponse)
async def get_project_overview(_: Annotated[Caller, require_permission("list")], project: ProjectOfPath) -> Any:
    """Show a project: title, kind, error of the last fit, and its classes, options or span labels."""
    return project.summary() | {"classes": list_choices(project)}


@router.get("/me")
async def get_caller(request: Request) -> dict[str, Any]:
    """Show whether the caller is signed in, its role and permissions, and whether it sees names."""
    guard: AccessGuard = request.app.state.guard
    try:
        caller = guard.identify_caller(request, await BEARER_SCHEME(request))
    except DissensusError:
        return {"signed_in": False, "tokens": True, "role": None, "names": False, "permissions": []}
    facts = {"role": caller.role, "names": caller.names, "permissions": sorted(ROLES[caller.role])}
    return {"signed_in": True, "tokens": guard.tokens.any_exist(), **facts}


def list_choices(project: Project) -> list[str]:
    """Return the possible labels or parts of labels, or an empty list if they are not fixed."""
    if project.about.get("classes"):
        return list(project.about["classes"])
    if project.fitted is None:
        return []
    table = project.fitted.table
    if table.kind == "spans":
        return sorted({name for name in parse_tag_scheme(table.classes).types if name})
    found = table.options.names if table.kind == "sets" else table.classes
    return [] if table.kind in ("numbers", "objects") else [str(name) for name in found.tolist()]
