"""Tokens and their roles; the store keeps only the SHA-256 of a token.

| role | permissions |
|---|---|
| ingest | post annotations, items and webhooks |
| annotate | ask what to label next, and post annotations, only those of one annotator if the token names one |
| adjudicate | read items and progress, and decide |
| read | read everything |
| admin | all of these, create projects, and see the names of annotators |

All roles except admin see pseudonyms, unless the token was made with `names`. Before the first token is made, every
caller on this machine is an admin, and other machines are refused.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dissensus.serve.exceptions import UnknownRole, UnknownToken
from dissensus.serve.store import EventStore

ROLES: dict[str, frozenset[str]] = {
    "ingest": frozenset({"post", "list"}),
    "annotate": frozenset({"next", "post own", "list"}),
    "adjudicate": frozenset({"items", "decide", "decisions", "progress", "list"}),
    "read": frozenset({"items", "annotators", "progress", "report", "export", "decisions", "list", "metrics"}),
}
ROLES["admin"] = frozenset.union(*ROLES.values(), {"create"})
TOKEN_PREFIX = "dissensus_"
FRESH_SECONDS = 1.0  # Tokens are read again after this time, so a revoked token is refused then at the latest.
SHOWN_CHARACTERS = 12  # characters of a hash that are shown to identify a token
MIN_PREFIX_LENGTH = 4  # minimum number of characters of a hash to revoke a token


@dataclass(frozen=True)
class Caller:
    """A caller: its role, whether it may see names, and the annotator of its token, if any."""

    role: str
    names: bool = False
    annotator: str | None = None
    key: str = ""  # identifies the caller when requests are counted


class TokenStore:
    """The tokens of a store."""

    def __init__(self, store: EventStore):
        self.store = store
        self._read_at = -FRESH_SECONDS
        self._known: dict[str, Caller] = {}
        self._ever_any = False

    def add(self, role: str, *, annotator: str | None = None, names: bool = False, note: str = "") -> str:
        """Create a token and return it; it cannot be shown again."""
        if role not in ROLES:
            raise UnknownRole(role=role, roles=tuple(ROLES))
        token = TOKEN_PREFIX + secrets.token_urlsafe(32)
        about = json.dumps({"annotator": annotator, "names": names, "note": note})
        with self.store.write():
            self.store.run(
                "INSERT INTO token VALUES (?, ?, ?, ?, NULL)", (_hash_token(token), role, about, time.time())
            )
        self._read_at = -FRESH_SECONDS
        return token

    def list_tokens(self) -> list[dict[str, Any]]:
        """Return all valid tokens, each identified by the beginning of its hash."""
        return [
            {"token": hash_[:SHOWN_CHARACTERS], "role": role, "at": at} | about
            for hash_, role, about, at in self._valid_rows()
        ]

    def revoke(self, start: str) -> None:
        """Revoke the token whose hash begins with `start`."""
        found = [hash_ for hash_, *_ in self._valid_rows() if hash_.startswith(start)]
        if len(found) != 1 or len(start) < MIN_PREFIX_LENGTH:
            raise UnknownToken(start=start, n_found=len(found))
        with self.store.write():
            self.store.run("UPDATE token SET revoked = ? WHERE hash = ?", (time.time(), found[0]))
        self._read_at = -FRESH_SECONDS

    def any_exist(self) -> bool:
        """Return True if a token was ever made, so that revoking the last one does not open the service."""
        return bool(self._current_callers()) or self._ever_any

    def find_caller(self, token: str) -> Caller | None:
        """Return the caller with this token, or None if the token is not valid."""
        return self._current_callers().get(_hash_token(token))

    def _current_callers(self) -> dict[str, Caller]:
        if time.monotonic() - self._read_at > FRESH_SECONDS:
            self._known = {
                hash_: Caller(role, bool(about["names"]) or role == "admin", about["annotator"], hash_)
                for hash_, role, about, _ in self._valid_rows()
            }
            self._ever_any = bool(self.store.run("SELECT 1 FROM token LIMIT 1"))
            self._read_at = time.monotonic()
        return self._known

    def _valid_rows(self) -> Iterator[tuple[str, str, dict[str, Any], float]]:
        rows = self.store.run("SELECT hash, role, about, at FROM token WHERE revoked IS NULL ORDER BY at")
        for hash_, role, about, at in rows:
            yield hash_, role, json.loads(about), at


def _hash_token(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
