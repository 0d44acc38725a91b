"""Call the API of a labelling tool: one call at a time, with a limited rate, retried where that is safe."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import httpx

from dissensus.messages import ParameterName
from dissensus.serve.exceptions import ChooseFromTool, ToolAccess, ToolError

WRITE_PAUSE = 0.05  # seconds between two calls that write
TIMEOUT = 30.0  # seconds to wait for a response
MAX_RETRIES = 4  # maximum number of retries of a failed request
FIRST_WAIT = 0.5  # seconds before the first retry; the time doubles with each further one
TEMPORARY_STATUSES = (
    429,
    500,
    502,
    503,
    504,
)  # Calls with these statuses are retried; a locked SQLite file causes 500.
MAX_ANSWER_SHOWN = 300  # characters of a response in an error

Record = dict[str, Any]
NumberOrName = TypeVar("NumberOrName", int, str)


class ToolClient:
    """Client of one server; several threads may share it, and calls are made one at a time."""

    tool: str  # name of the tool
    units: str  # name of its units of work: projects or datasets
    secret_name: str  # name of the secret, such as token; `secret_hint` says where to find it
    secret_hint: str
    api = ""  # prefix of all paths

    def __init__(self, url: str, token: str):
        self.url, self._token, self._last = url.rstrip("/"), token.strip(), 0.0
        if not self._token or not self.url.startswith(("http://", "https://")):
            raise ToolAccess(tool=self.tool, url=url, key=self.secret_hint)
        self._http = httpx.Client(base_url=self.url + self.api, timeout=TIMEOUT, **self.credentials())
        self._lock = threading.Lock()

    def credentials(self) -> Record:
        """Return the arguments of `httpx.Client` that identify the caller."""
        raise NotImplementedError

    def call(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """Call the API and parse its JSON; a POST without a response is not repeated, as it may have been executed."""
        for attempt in range(MAX_RETRIES + 1):
            try:
                with self._lock:
                    if method != "GET":
                        time.sleep(max(0.0, self._last + WRITE_PAUSE - time.monotonic()))
                        self._last = time.monotonic()
                    return self._send(method, path, body, query)
            except ToolError as error:
                passing = error.status in TEMPORARY_STATUSES or (error.status == 0 and method != "POST")
                if not passing or attempt == MAX_RETRIES:
                    raise
                time.sleep(FIRST_WAIT * 2**attempt)
        raise AssertionError  # not reached: the loop returns or raises

    def get_or_none(self, path: str) -> Any:
        """Return the resource at a path, or None if there is none."""
        try:
            return self.call("GET", path)
        except ToolError as error:
            if error.status != 404:
                raise
            return None

    def choose_units(
        self, wanted: Sequence[NumberOrName], titles: Mapping[NumberOrName, str]
    ) -> Sequence[NumberOrName]:
        """Return the wanted projects or datasets if all exist in `titles`, or the only one if none is named."""
        if (not wanted and len(titles) != 1) or not set(wanted) <= titles.keys():
            option = ParameterName(f"{self.tool.lower().replace(' ', '_')}_{self.units.removesuffix('s')}")
            named = ", ".join(sorted(titles.values())) or "none"
            raise ChooseFromTool(option=option, tool=self.tool, url=self.url, key=self.secret_name, titles=named)
        return wanted or list(titles)

    def _send(self, method: str, path: str, body: Any, query: Mapping[str, Any]) -> Any:
        facts: Record = {"tool": self.tool, "url": self.url}
        try:
            answer = self._http.request(method, path, json=body, params=query)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise ToolError(**facts, status=0, reason=str(error) or type(error).__name__) from None
        reason = answer.headers.get("location", "") if answer.is_redirect else answer.text[:MAX_ANSWER_SHOWN]
        try:
            if answer.is_success:
                return answer.json() if answer.content.strip() else None
        except ValueError:
            pass
        raise ToolError(**facts, status=answer.status_code, reason=reason)
