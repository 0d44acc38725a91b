"""Label Studio's API. A personal access token (a JWT) buys access tokens for minutes; a legacy token is sent itself."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable, Iterator
from typing import Any

from dissensus.exceptions import BadParameter
from dissensus.serve.tool_client import Record, ToolClient, ToolError

PAGE = 100  # tasks of one answer


class Client(ToolClient):
    """Calls of one Label Studio server."""

    tool = "Label Studio"

    def __init__(self, url: str, token: str, **more: Any):
        super().__init__(url, **more)
        if not token.strip():
            raise BadParameter(
                "Label Studio asks for a token: make one under Account & Settings, Personal Access Token."
            )
        self._token, self._is_jwt = token.strip(), token.count(".") == 2
        self._access = "" if self._is_jwt else self._token

    def _authorized(self, method: str, path: str, body: Any) -> Any:
        for fresh in (False, True):
            if self._is_jwt and (fresh or not self._access):
                self._access = self._send("POST", "/api/token/refresh/", {"refresh": self._token}, {})["access"]
            try:
                said = f"{'Bearer' if self._is_jwt else 'Token'} {self._access}"
                return self._send(method, path, body, {"Authorization": said})
            except ToolError as error:
                if error.status != 401 or not self._is_jwt or fresh:
                    raise
        raise AssertionError

    def secret(self, words: str) -> str:
        """A secret that only holders of the token can make; it is the same in every process, and kept nowhere."""
        return hmac.new(self._token.encode(), words.encode(), hashlib.sha256).hexdigest()

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
            except ToolError as error:
                if error.status != 404 or page == 1:  # tasks were deleted meanwhile: there is no such page any more
                    raise
                return
            yield answer["tasks"]
            page, total = page + 1, answer["total"]
