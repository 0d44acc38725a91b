"""Control access: tokens and roles, requests from pages of other sites, and the rate of requests."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import urlsplit

from fastapi import Depends, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from dissensus.serve.exceptions import RequestRefused
from dissensus.serve.service import Service
from dissensus.serve.tokens import ROLES, Caller, TokenStore

LOOPBACK_HOSTS = ("127.0.0.1", "::1", "localhost")
READ_METHODS = ("GET", "HEAD", "OPTIONS")
BEARER_SCHEME = HTTPBearer(auto_error=False, description="Before the first token, this machine needs none.")
BearerCredentials = Annotated[HTTPAuthorizationCredentials | None, Security(BEARER_SCHEME)]


@dataclass(frozen=True)
class RequestLimits:
    """Limits for one caller."""

    body_bytes: int = 10_000_000
    per_second: float = 1_000.0  # mean rate of requests; a tool has one token for all its annotators
    burst: int = 5_000  # requests at once after a pause


class AccessGuard:
    """Identify callers, and refuse requests that they are not allowed to make."""

    def __init__(self, service: Service, limits: RequestLimits):
        self.tokens, self.limits = TokenStore(service.store), limits
        mark = hashlib.sha256(service.store.pseudonym_salt().encode()).hexdigest()[:8]
        self.cookie = (
            f"dissensus-{mark}"  # A browser sends a cookie to every port of a host, so stores need different names.
        )
        self.request_budgets: dict[
            str, tuple[float, float]
        ] = {}  # caller → number of requests left, and the time of this number

    def identify_caller(self, request: Request, bearer: HTTPAuthorizationCredentials | None) -> Caller:
        """Identify the caller of a request by its token; without tokens, only this machine is served."""
        token = bearer.credentials if bearer is not None else request.cookies.get(self.cookie)
        if request.method not in READ_METHODS:
            self.check_origin(request, by_cookie=token is not None and bearer is None)
        if token and (bearer is not None or self.tokens.any_exist()):
            return self.require_caller(token)
        if self.tokens.any_exist():
            raise RequestRefused(reason="token needed", subject="")
        client = request.client.host if request.client else ""
        if client not in LOOPBACK_HOSTS or _hostname(request.headers.get("host")) not in LOOPBACK_HOSTS:
            raise RequestRefused(reason="other machine", subject=client)
        return Caller("admin", True, None, client)

    def require_caller(self, token: str) -> Caller:
        """Return the caller with a valid token; raise Refused if the token is unknown."""
        if (caller := self.tokens.find_caller(token)) is None:
            raise RequestRefused(reason="unknown token", subject="")
        return caller

    def check_origin(self, request: Request, by_cookie: bool) -> None:
        """Refuse requests that a page of another site sends with the cookie of this browser."""
        origin = request.headers.get("origin")
        if origin is None and not by_cookie:
            return
        try:
            site = urlsplit(origin or "").netloc
        except ValueError:  # The address is malformed, such as http://[
            site = ""
        if not site or site != request.headers.get("host"):
            raise RequestRefused(reason="other site", subject=origin or "an unknown site")

    def count_request(self, key: str) -> None:
        """Count a request against the budget of a caller, which grows with time; refuse it if none is left."""
        now, limits = time.monotonic(), self.limits
        left, since = self.request_budgets.get(key, (float(limits.burst), now))
        left = min(limits.burst, left + (now - since) * limits.per_second) - 1
        if left < 0:
            raise RequestRefused(reason="too many", subject=f"{limits.per_second:g}")
        self.request_budgets[key] = (left, now)


def _hostname(host: str | None) -> str:
    """Return the host name in a header; the framework would replace a malformed one by our own address."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:  # The header is malformed, such as [
        return ""


def require_permission(permission: str, for_annotators: str | None = None) -> Any:
    """Return the dependency on a caller with a permission; the role annotate may need another one."""

    async def check_caller(request: Request, bearer: BearerCredentials) -> Caller:
        guard: AccessGuard = request.app.state.guard
        caller = guard.identify_caller(request, bearer)
        guard.count_request(caller.key)
        needed = for_annotators if for_annotators and caller.role == "annotate" else permission
        if needed not in ROLES[caller.role]:
            raise RequestRefused(reason="not allowed", subject=needed)
        return caller

    check_caller.identifies_caller = True  # type: ignore[attr-defined]  # see `routes.JsonRoute`
    return Depends(check_caller)
