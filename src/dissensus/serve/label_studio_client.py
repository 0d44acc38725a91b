"""Label Studio's API: one call at a time, retried where that is safe, at a bounded rate.

A personal access token (a JWT) buys access tokens for some minutes each; a legacy token is sent as it is.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator
from http.client import HTTPException
from typing import Any

from dissensus.exceptions import BadParameter, DissensusError

PAGE = 100  # tasks of one answer
RETRIES = 4  # of a call that the server could not answer
FIRST_WAIT = 0.5  # seconds before the first retry; each further one waits twice as long
AGAIN = (429, 500, 502, 503, 504)  # statuses that may pass; 500 is also what a locked SQLite file gives

Record = dict[str, Any]


class LabelStudioError(DissensusError):
    """Label Studio cannot be reached or refuses; `status` is its HTTP status, 0 where there was no answer."""

    def __init__(self, message: str, status: int = 0):
        super().__init__(message)
        self.status = status


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A token must not follow a redirect to another host."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class Client:
    """Calls of one Label Studio server; safe for several threads, of which one calls at a time."""

    def __init__(self, url: str, token: str, *, calls_per_second: float = 20.0, timeout: float = 30.0):
        if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
            raise BadParameter(f"the address of Label Studio must begin with http:// or https://, got {url!r}.")
        if not token.strip():
            raise BadParameter(
                "Label Studio asks for a token: make one under Account & Settings, Personal Access Token."
            )
        self.url, self.timeout = url.rstrip("/"), timeout
        self._token, self._is_jwt = token.strip(), token.count(".") == 2
        self._access = "" if self._is_jwt else self._token
        self._pause, self._last = 1 / calls_per_second, 0.0
        self._lock = threading.Lock()
        self._open = urllib.request.build_opener(_NoRedirect()).open

    def call(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """Call the API and parse its JSON. A POST whose answer got lost is not repeated: it may have been done."""
        asked = f"{path}?{urllib.parse.urlencode(query)}" if query else path
        for attempt in range(RETRIES + 1):
            try:
                with self._lock:
                    return self._call(method, asked, body)
            except LabelStudioError as error:
                passing = error.status in AGAIN or (error.status == 0 and method != "POST")
                if not passing or attempt == RETRIES:
                    raise
                time.sleep(FIRST_WAIT * 2**attempt)
        raise AssertionError  # the loop returns or raises

    def _call(self, method: str, path: str, body: Any) -> Any:
        if method != "GET":
            time.sleep(max(0.0, self._last + self._pause - time.monotonic()))
            self._last = time.monotonic()
        for fresh in (False, True):
            if self._is_jwt and (fresh or not self._access):
                self._access = self._send("POST", "/api/token/refresh/", {"refresh": self._token}, "")["access"]
            try:
                return self._send(method, path, body, f"{'Bearer' if self._is_jwt else 'Token'} {self._access}")
            except LabelStudioError as error:
                if error.status != 401 or not self._is_jwt or fresh:
                    raise
        raise AssertionError

    def _send(self, method: str, path: str, body: Any, authorization: str) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Accept": "application/json"} | ({"Content-Type": "application/json"} if data is not None else {})
        headers |= {"Authorization": authorization} if authorization else {}
        request = urllib.request.Request(self.url + path, data=data, method=method, headers=headers)
        where = f"Label Studio at {self.url}"
        try:
            with self._open(request, timeout=self.timeout) as answer:
                raw = answer.read()
            return json.loads(raw) if raw.strip() else None
        except urllib.error.HTTPError as error:
            with error:
                said = error.read(300).decode("utf-8", "replace")
            if error.code == 401:
                raise LabelStudioError(f"{where} does not accept the token; give a valid one.", 401) from None
            if 300 <= error.code < 400:
                to = error.headers.get("Location", "another address")
                raise LabelStudioError(f"{where} redirects to {to}; give that address.", error.code) from None
            raise LabelStudioError(f"{where} answers {method} {path} with {error.code}: {said}", error.code) from None
        except (OSError, HTTPException) as error:
            raise LabelStudioError(f"{where} cannot be reached: {getattr(error, 'reason', error)}.") from None
        except ValueError:
            raise LabelStudioError(
                f"{where} does not answer {method} {path} with JSON; check its address.", 1
            ) from None

    def secret(self, words: str) -> str:
        """A secret that only holders of the token can make; it is the same in every process, and kept nowhere."""
        return hmac.new(self._token.encode(), words.encode(), hashlib.sha256).hexdigest()

    def find(self, path: str) -> Any:
        """What is there, or None."""
        try:
            return self.call("GET", path)
        except LabelStudioError as error:
            if error.status != 404:
                raise
            return None

    def projects(self) -> list[Record]:
        """All projects that the token may see."""
        found: list[Record] = []
        while True:
            page = self.call("GET", "/api/projects/", page=len(found) // PAGE + 1, page_size=PAGE)
            found += page["results"]
            if not page["results"] or len(found) >= page["count"]:
                return found

    def tasks(
        self, project: int, only: Iterable[int] | None = None, since: str | None = None
    ) -> Iterator[list[Record]]:
        """Pages of tasks with their annotations, and data as stored: all, some by number, or those changed since."""
        query: Record = {"ordering": ["tasks:id"]}
        if only is not None and not (some := sorted(only)):
            return
        if only is not None:
            query["selectedItems"] = {"all": False, "included": some}
        if since is not None:
            changed = {"filter": "filter:tasks:updated_at", "operator": "greater", "type": "Datetime", "value": since}
            query["filters"] = {"conjunction": "and", "items": [changed]}
        asked = {"project": project, "page_size": PAGE, "fields": "all", "resolve_uri": "false"}
        page, total = 1, 1
        while (page - 1) * PAGE < total:
            try:
                answer = self.call("GET", "/api/tasks/", page=page, query=json.dumps(query), **asked)
            except LabelStudioError as error:
                if error.status != 404 or page == 1:  # tasks were deleted meanwhile: there is no such page any more
                    raise
                return
            yield answer["tasks"]
            page, total = page + 1, answer["total"]
