"""The HTTP API: a response is JSON, a file or a page; an error is {"error": "one sentence"}."""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Sequence
from typing import Any

from dissensus.common.extras import import_extra
from dissensus.exceptions import DissensusError
from dissensus.serve.exceptions import PortTaken, RequestRefused, http_status
from dissensus.serve.face import HTTP_FACE
from dissensus.serve.requests import first_error
from dissensus.serve.service import Service

import_extra("fastapi", "dissensus serve needs", "serve")
from fastapi import APIRouter, FastAPI, Request  # noqa: E402
from fastapi.exceptions import RequestValidationError  # noqa: E402
from fastapi.responses import JSONResponse, Response  # noqa: E402
from starlette.datastructures import MutableHeaders  # noqa: E402
from starlette.exceptions import HTTPException  # noqa: E402

from dissensus.serve.metrics import Metrics  # noqa: E402
from dissensus.serve.responses import ErrorResponse  # noqa: E402
from dissensus.serve.routes import router  # noqa: E402
from dissensus.serve.security import AccessGuard, RequestLimits  # noqa: E402

HEADERS = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}
RETRY_STATUSES = (429, 503)


class MonitoredApp:
    """Middleware that counts responses and adds headers which make them safe to show in a browser."""

    def __init__(self, app: Any, metrics: Metrics):
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request to the application, and measure its status and duration."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500

        async def send_watched(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        try:
            await self.app(scope, receive, send_watched)
        finally:
            self.metrics.requests.labels(status).inc()
            self.metrics.seconds.observe(time.perf_counter() - began)


def create_app(
    service: Service, *, page: bool = True, limits: RequestLimits | None = None, routers: Sequence[APIRouter] = ()
) -> FastAPI:
    """Return the application.

    Parameters
    ----------
    service : Service
    page : bool
        Serve the web page too.
    limits : RequestLimits, optional
        Limits for the requests of one caller.
    routers : sequence of APIRouter
        Additional routes, such as the webhook of a labelling tool.

    Returns
    -------
    app : FastAPI
    """
    from dissensus.serve import page as pages

    app = FastAPI(
        title="dissensus",
        docs_url=None,
        redoc_url=None,
        responses={"default": {"model": ErrorResponse, "description": "An error, in one sentence"}},
    )
    app.state.service, app.state.metrics = service, Metrics(service)
    app.state.guard = AccessGuard(service, limits or RequestLimits())
    app.add_exception_handler(DissensusError, _answer_error)
    app.add_exception_handler(RequestValidationError, _answer_error)
    app.add_exception_handler(HTTPException, _answer_error)
    app.add_middleware(MonitoredApp, metrics=app.state.metrics)
    for part in (router, *([pages.router] if page else []), *routers):
        app.include_router(part)
    return app


async def _answer_error(request: Request, error: Exception) -> Response:
    """Return an error as a response with one sentence."""
    if isinstance(error, RequestValidationError):
        error = first_error(error.errors())
    if isinstance(error, HTTPException) and error.status_code in (404, 405):
        refused = RequestRefused(reason="no such address", subject=request.url.path)
        return JSONResponse({"error": refused.render(HTTP_FACE)}, error.status_code, error.headers)
    if isinstance(error, HTTPException):  # JsonRequest raises this error because FastAPI handles no other one.
        error = RequestRefused(reason="too long", subject=f"{request.app.state.guard.limits.body_bytes / 1e6:g}")
    assert isinstance(error, DissensusError)
    status = http_status(error)
    headers = {"Retry-After": "1"} if status in RETRY_STATUSES else None
    return JSONResponse({"error": error.render(HTTP_FACE)}, status, headers)


def open_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens at a port."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        in_use = error.errno == errno.EADDRINUSE
        reason = "another program listens there" if in_use else str(error.strerror or error)
        raise PortTaken(host=host, port=port, reason=reason) from None
