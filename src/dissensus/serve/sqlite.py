"""One file, for one machine; several processes may share it."""

from __future__ import annotations

import sqlite3
from typing import Any

import numpy as np

from dissensus.exceptions import UnreadableFile
from dissensus.serve.store import ROW_COLUMNS, SCHEMA, Store

WAIT_SECONDS = 5.0  # for another process that writes, before a request is told to come again
CACHE_KIB = 16_384  # of pages, per connection
ROWS_AT_A_TIME = 50_000
REASONS = {
    "full": "the disk of the store is full; free some space and send the request again.",
    "locked": "another program holds the store; send the request again.",
    "readonly": "the store can only be read; make the file and its folder writable, and send the request again.",
    "disk I/O": "the store's disk fails; look at it, and send the request again.",
}


class SQLite(Store):
    """A file with a write-ahead log: who reads does not wait for who writes."""

    begin = "BEGIN IMMEDIATE"

    def __init__(self, path: str):
        super().__init__()
        self.url = path
        try:
            connection = self._connection("write")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(SCHEMA)
        except sqlite3.DatabaseError as error:
            self.close()
            raise UnreadableFile(f"{path} cannot be used as a store ({error}); name another file.") from error

    def connect(self) -> sqlite3.Connection:
        """A connection that waits a while for others, and writes to the disk before it calls a commit done."""
        connection = sqlite3.connect(self.url, timeout=WAIT_SECONDS, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        return connection

    def explain(self, error: Exception) -> str | None:
        """Say what SQLite's error means."""
        if not isinstance(error, sqlite3.OperationalError):
            return None
        return next((said for word, said in REASONS.items() if word in str(error)), None)

    def rows(self, project: int, until: float | None = None) -> np.ndarray[Any, Any]:
        """As `Store.rows`, some rows at a time: tuples take ten times as much memory."""
        parts = [np.empty((0, len(ROW_COLUMNS)))]
        with self._guarded("read") as connection:
            found = connection.execute(
                f"SELECT {', '.join(ROW_COLUMNS)} FROM event WHERE project = ? AND kind <= 1 AND at <= ? ORDER BY seq",
                (project, 1e300 if until is None else until),
            )
            while some := found.fetchmany(ROWS_AT_A_TIME):
                parts.append(np.array(some, np.float64))
        return np.concatenate(parts)
