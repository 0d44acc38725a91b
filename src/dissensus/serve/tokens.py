"""Who may do what: tokens with roles, of which the store keeps the sha256 alone.

| role | may |
|---|---|
| ingest | post annotations, items and webhooks |
| annotate | ask what to label next, and post annotations; where the token names an annotator, that one's |
| adjudicate | read items and progress, decide |
| read | read everything |
| admin | all of this, make projects, and see who is who |

Annotators have pseudonyms for everybody but admins and tokens that may see `names`. Before the first token everybody
on this machine is admin, and nobody else is heard.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dissensus.exceptions import BadParameter, UnknownName
from dissensus.serve.store import Store

ROLES: dict[str, frozenset[str]] = {
    "ingest": frozenset({"post", "list"}),
    "annotate": frozenset({"next", "post own", "list"}),
    "adjudicate": frozenset({"items", "decide", "progress", "list"}),
    "read": frozenset({"items", "annotators", "progress", "report", "export", "decisions", "list", "metrics"}),
}
ROLES["adjudicate"] |= {"decisions"}
ROLES["admin"] = frozenset.union(*ROLES.values(), {"create"})
PREFIX = "dissensus_"
FRESH_SECONDS = 1.0  # for which tokens are not read again: a revoked one is refused after that
SHOWN = 12  # letters of a hash that name a token


@dataclass(frozen=True)
class Caller:
    """Who asks: what the role may do, whether names are shown, the annotator that the token is for."""

    role: str
    names: bool = False
    annotator: str | None = None
    key: str = ""  # what tells one caller from another


class Tokens:
    """The tokens of a store."""

    def __init__(self, store: Store):
        self.store = store
        self._read_at = -FRESH_SECONDS
        self._known: dict[str, Caller] = {}
        self._was_any = False

    def add(self, role: str, *, annotator: str | None = None, names: bool = False, note: str = "") -> str:
        """Make a token; it is told once and kept nowhere."""
        if role not in ROLES:
            raise BadParameter(f"a role is {', '.join(ROLES)}; got {role!r}.")
        token = PREFIX + secrets.token_urlsafe(32)
        about = json.dumps({"annotator": annotator, "names": names, "note": note})
        with self.store.write():
            self.store.all("INSERT INTO token VALUES (?, ?, ?, ?, NULL)", (_hash(token), role, about, time.time()))
        self._read_at = -FRESH_SECONDS
        return token

    def list(self) -> list[dict[str, Any]]:
        """Every token that is not revoked, by the beginning of its hash."""
        return [{"token": hash_[:SHOWN], "role": role, "at": at} | about for hash_, role, about, at in self._standing()]

    def revoke(self, start: str) -> None:
        """Revoke a token by the beginning of its hash."""
        found = [hash_ for hash_, *_ in self._standing() if hash_.startswith(start)]
        if len(found) != 1 or len(start) < 4:
            raise UnknownName(f"{len(found)} tokens begin with {start!r}; `token list` shows them, name one.")
        with self.store.write():
            self.store.all("UPDATE token SET revoked = ? WHERE hash = ?", (time.time(), found[0]))
        self._read_at = -FRESH_SECONDS

    def any(self) -> bool:
        """True where there is a token, or was: who revokes the last one opens nothing."""
        return bool(self._fresh()) or self._was_any

    def caller(self, token: str) -> Caller | None:
        """Who has this token."""
        return self._fresh().get(_hash(token))

    def _fresh(self) -> dict[str, Caller]:
        if time.monotonic() - self._read_at > FRESH_SECONDS:
            self._known = {
                hash_: Caller(role, bool(about["names"]) or role == "admin", about["annotator"], hash_)
                for hash_, role, about, _ in self._standing()
            }
            self._was_any = bool(self.store.all("SELECT 1 FROM token LIMIT 1"))
            self._read_at = time.monotonic()
        return self._known

    def _standing(self) -> Iterator[tuple[str, str, dict[str, Any], float]]:
        for hash_, role, about, at in self.store.all(
            "SELECT hash, role, about, at FROM token WHERE revoked IS NULL ORDER BY at"
        ):
            yield hash_, role, json.loads(about), at


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
