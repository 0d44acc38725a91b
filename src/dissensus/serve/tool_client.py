"""Calls of a labelling tool's API: one at a time, retried where that is safe, at a bounded rate."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from typing import Any, TypeVar

from dissensus.exceptions import BadParameter, DissensusError

PAUSE = 0.05  # seconds between two calls that write
TIMEOUT = 30.0  # seconds for an answer
RETRIES = 4  # of a call that the server could not answer
FIRST_WAIT = 0.5  # seconds before the first retry; each further one waits twice as long
AGAIN = (429, 500, 502, 503, 504)  # statuses that may pass; 500 is also what a locked SQLite file gives

Record = dict[str, Any]
Name = TypeVar("Name", int, str)


class ToolError(DissensusError):
    """A tool cannot be reached or refuses; `status` is its HTTP status, 0 where there was no answer."""

    def __init__(self, message: str, status: int = 0):
        super().__init__(message)
        self.status = status


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A token must not follow a redirect to another host."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class ToolClient:
    """Calls of one server; safe for several threads, of which one calls at a time."""

    tool: str  # its name, for people
    things: str  # what it has several of: projects, datasets
    key: str  # what shows who calls, and where people find it
    where_key: str

    def __init__(self, url: str, token: str):
        if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
            raise BadParameter(f"the address of {self.tool} must begin with http:// or https://, got {url!r}.")
        if not token.strip():
            raise BadParameter(f"{self.tool} asks for {self.where_key}.")
        self.url, self._token, self._last = url.rstrip("/"), token.strip(), 0.0
        self._lock = threading.Lock()
        self._open = urllib.request.build_opener(_NoRedirect()).open

    def call(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """Call the API and parse its JSON. A POST whose answer got lost is not repeated: it may have been done."""
        asked = f"{path}?{urllib.parse.urlencode(query)}" if query else path
        for attempt in range(RETRIES + 1):
            try:
                with self._lock:
                    if method != "GET":
                        time.sleep(max(0.0, self._last + PAUSE - time.monotonic()))
                        self._last = time.monotonic()
                    return self._authorized(method, asked, body)
            except ToolError as error:
                passing = error.status in AGAIN or (error.status == 0 and method != "POST")
                if not passing or attempt == RETRIES:
                    raise
                time.sleep(FIRST_WAIT * 2**attempt)
        raise AssertionError  # the loop returns or raises

    def find(self, path: str) -> Any:
        """What is there, or None."""
        try:
            return self.call("GET", path)
        except ToolError as error:
            if error.status != 404:
                raise
            return None

    def choose(self, wanted: Sequence[Name], there: Mapping[Name, str]) -> Sequence[Name]:
        """Those of the tool's projects or datasets that are wanted, or the only one; `there` has their titles."""
        thing = self.things.removesuffix("s")
        if missing := [one for one in wanted if one not in there]:
            raise BadParameter(
                f"{self.tool} at {self.url} shows no {thing} {missing[0]!r} to this {self.key}; check both."
            )
        if not wanted and len(there) != 1:
            option = f"--{self.tool.lower().replace(' ', '-')}-{thing}"
            named = ", ".join(title for _, title in sorted(there.items())) or "none"
            raise BadParameter(f"say which {self.things} to serve, by {option}; {self.tool} has {named}.")
        return wanted or list(there)

    def _authorized(self, method: str, path: str, body: Any) -> Any:
        """Send a call with what shows who calls."""
        raise NotImplementedError

    def _send(self, method: str, path: str, body: Any, headers: dict[str, str]) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Accept": "application/json", **headers}
        headers |= {"Content-Type": "application/json"} if data is not None else {}
        request = urllib.request.Request(self.url + path, data=data, method=method, headers=headers)
        where = f"{self.tool} at {self.url}"
        try:
            with self._open(request, timeout=TIMEOUT) as answer:
                raw = answer.read()
            return json.loads(raw) if raw.strip() else None
        except urllib.error.HTTPError as error:
            with error:
                said = error.read(300).decode("utf-8", "replace")
            if error.code == 401:
                raise ToolError(f"{where} does not accept the token; give a valid one.", 401) from None
            if 300 <= error.code < 400:
                to = error.headers.get("Location", "another address")
                raise ToolError(f"{where} redirects to {to}; give that address.", error.code) from None
            raise ToolError(f"{where} answers {method} {path} with {error.code}: {said}", error.code) from None
        except (OSError, HTTPException) as error:
            raise ToolError(f"{where} cannot be reached: {getattr(error, 'reason', error)}.") from None
        except ValueError:
            raise ToolError(f"{where} does not answer {method} {path} with JSON; check its address.", 1) from None
