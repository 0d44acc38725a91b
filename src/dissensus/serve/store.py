"""The log on a disk, in SQL that SQLite and PostgreSQL share. Events are appended; nothing is changed or deleted.

| table | holds |
|---|---|
| project | name, and what was said at its creation as JSON |
| name | the items (0), annotators (1) and labels (2) of a project, by their codes: 0, 1, 2 … |
| event | the log; `first` is the seq of the first event with the same id |
| token | the sha256 of every token, its role, and when it was revoked |
| setting | the secret of the pseudonyms |

`seq` is the order of commits: writers take turns (`write`), so a reader that has seen n has seen all before n.
"""

from __future__ import annotations

import secrets
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from dissensus.common.extras import need
from dissensus.exceptions import StoreUnavailable, UnreadableFile
from dissensus.serve.events import Stored

SCHEMA = """
CREATE TABLE IF NOT EXISTS project (number INTEGER PRIMARY KEY, name TEXT UNIQUE NOT NULL, about TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS name (project INTEGER, what INTEGER, code INTEGER, text TEXT NOT NULL,
    PRIMARY KEY (project, what, code));
CREATE TABLE IF NOT EXISTS event (seq BIGINT PRIMARY KEY, project INTEGER NOT NULL, kind INTEGER NOT NULL,
    id TEXT NOT NULL, first BIGINT NOT NULL, item INTEGER NOT NULL, annotator INTEGER NOT NULL,
    label INTEGER NOT NULL, version TEXT NOT NULL, at DOUBLE PRECISION NOT NULL, data TEXT);
CREATE INDEX IF NOT EXISTS event_id ON event (project, id);
CREATE INDEX IF NOT EXISTS event_again ON event (first) WHERE seq <> first;
CREATE INDEX IF NOT EXISTS event_other ON event (project, seq) WHERE kind > 1;
CREATE TABLE IF NOT EXISTS token (hash TEXT PRIMARY KEY, role TEXT NOT NULL, about TEXT NOT NULL,
    at DOUBLE PRECISION NOT NULL, revoked DOUBLE PRECISION);
CREATE TABLE IF NOT EXISTS setting (project INTEGER, key TEXT, value TEXT, PRIMARY KEY (project, key));
"""
COLUMNS = ", ".join(Stored._fields)
ROW_COLUMNS = ("seq", "first", "kind", "item", "annotator", "label", "at")
"""Columns of the rows that `rows` loads: all of them numbers."""
MAX_PARAMETERS = 500  # of one statement, well below every limit
WAIT_SECONDS = 5.0  # for another process that writes, before a request is told to come again
CACHE_KIB = 16_384  # of pages, per connection
ROWS_AT_A_TIME = 50_000
REASONS = {
    "full": "the disk of the store is full; free some space and send the request again.",
    "locked": "another program holds the store; send the request again.",
    "readonly": "the store can only be read; make the file and its folder writable, and send the request again.",
    "disk I/O": "the store's disk fails; look at it, and send the request again.",
}
LOCK = 7_307_265_001  # any number that no other program on the server locks


class Store(ABC):
    """A log in a database: one connection that writes, one that reads, each for one thread at a time."""

    mark = "?"  # where a parameter stands in a statement
    url: str

    def __init__(self) -> None:
        self._connections: dict[str, Any] = {}
        self._locks = {"read": threading.RLock(), "write": threading.RLock()}
        self._in_write = threading.local()

    @abstractmethod
    def connect(self) -> Any:
        """A connection in which every statement outside of a transaction stands for itself."""

    @abstractmethod
    def explain(self, error: Exception) -> str | None:
        """Say in a sentence why the store cannot be used now; None where the error is ours."""

    begin: str  # what begins a transaction once other writers are done

    def _connection(self, use: str) -> Any:
        if use not in self._connections:
            self._connections[use] = self.connect()
        return self._connections[use]

    @contextmanager
    def _guarded(self, use: str) -> Iterator[Any]:
        """A connection; what goes wrong with the database is said in a sentence, and the connection made anew."""
        with self._locks[use]:
            try:
                yield self._connection(use)
            except Exception as error:
                said = self.explain(error)
                if said is None:
                    raise
                if (broken := self._connections.pop(use, None)) is not None:
                    broken.close()
                raise StoreUnavailable(said) from error

    @contextmanager
    def write(self) -> Iterator[None]:
        """A transaction that waits for its turn; committed whole when left, or not at all."""
        with self._guarded("write") as connection:
            connection.execute(self.begin)
            try:
                self._in_write.on = True
                yield
                connection.execute("COMMIT")
            except BaseException:
                try:
                    connection.execute("ROLLBACK")
                except Exception as error:  # the connection is gone, and the transaction with it
                    self._connections.pop("write", None)
                    error.add_note("while a transaction was taken back")
                raise
            finally:
                self._in_write.on = False

    def all(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """Run a statement; the rows that it finds. Inside of `write` it writes, and finds what was written."""
        use = "write" if getattr(self._in_write, "on", False) else "read"
        with self._guarded(use) as connection:
            found = connection.execute(statement.replace("?", self.mark), values)
            return found.fetchall() if found.description else []

    def insert(self, table: str, rows: Sequence[Sequence[Any]]) -> None:
        """Write rows, inside of `write`: many with one statement, for between two of them other threads may run."""
        size = MAX_PARAMETERS // len(rows[0]) if rows else 1
        for start in range(0, len(rows), size):
            some = rows[start : start + size]
            marks = ", ".join([f"({', '.join('?' * len(some[0]))})"] * len(some))
            self.all(f"INSERT INTO {table} VALUES {marks}", [value for row in some for value in row])

    def close(self) -> None:
        """Close the connections."""
        for use, connection in list(self._connections.items()):
            with self._locks[use]:
                connection.close()
        self._connections.clear()

    # What is asked of it ----------------------------------------------------------------------------------------------

    def last(self) -> int:
        """The number of the last event; 0 where there is none."""
        return int(self.all("SELECT COALESCE(MAX(seq), 0) FROM event")[0][0])

    def projects(self) -> list[tuple[int, str, str]]:
        """Number, name and what was said of every project."""
        return self.all("SELECT number, name, about FROM project ORDER BY number")

    def names(self, project: int, what: int, after: int) -> list[str]:
        """Names of a project from a code on."""
        found = self.all(
            "SELECT text FROM name WHERE project = ? AND what = ? AND code >= ? ORDER BY code", (project, what, after)
        )
        return [text for (text,) in found]

    def since(self, seq: int) -> list[Stored]:
        """Events after one, of all projects."""
        return self._events("seq > ?", seq)

    def of_ids(self, project: int, ids: Iterable[str]) -> list[Stored]:
        """All events with these ids."""
        return self._of(f"SELECT {COLUMNS} FROM event WHERE project = ? AND id", ids, (project,))

    def groups(self, firsts: Iterable[int]) -> list[Stored]:
        """All events of the ids whose first events these are."""
        firsts = list(firsts)
        later = self._of(f"SELECT {COLUMNS} FROM event WHERE seq <> first AND first", firsts)
        return self._of(f"SELECT {COLUMNS} FROM event WHERE seq", firsts) + later

    def corrected(self, project: int) -> list[Stored]:
        """All events of a project's ids that have several."""
        later = self.all(  # not by the index of projects, which would read the whole of one
            "SELECT DISTINCT first FROM event WHERE seq <> first AND kind <= 1 AND project + 0 = ?", (project,)
        )
        return self.groups(first for (first,) in later)

    def of_project(self, project: int, *, annotations: bool) -> list[Stored]:
        """Annotations and removals of a project; or its decisions, withdrawals and items."""
        return self._events(f"project = ? AND {'kind <= 1' if annotations else 'kind > 1'}", project)

    def _events(self, where: str, value: int) -> list[Stored]:
        found = self.all(f"SELECT {COLUMNS} FROM event WHERE {where} ORDER BY seq", (value,))
        return [Stored(*row) for row in found]

    def data(self, seqs: Iterable[int]) -> dict[int, str | None]:
        """What came with events."""
        return {row[0]: row[1] for row in self._rows_of("SELECT seq, data FROM event WHERE seq", seqs)}

    @abstractmethod
    def rows(self, project: int, until: float | None = None) -> np.ndarray[Any, Any]:
        """Annotations and removals of a project up to a time, as (n, `ROW_COLUMNS`) numbers in the order of seq."""

    def salt(self) -> str:
        """The secret of the pseudonyms, which is made once."""
        asked = "SELECT value FROM setting WHERE project = 0 AND key = 'salt'"
        if not (found := self.all(asked)):
            with self.write():
                if not (found := self.all(asked)):  # else another process was first
                    found = [(secrets.token_hex(16),)]
                    self.insert("setting", [(0, "salt", *found[0])])
        return str(found[0][0])

    def _of(self, statement: str, values: Iterable[Any], before: Sequence[Any] = ()) -> list[Stored]:
        return [Stored(*row) for row in self._rows_of(statement, values, before)]

    def _rows_of(self, statement: str, values: Iterable[Any], before: Sequence[Any] = ()) -> list[Any]:
        """Rows that a statement finds whose last column is among some values."""
        found, values = [], list(values)
        for start in range(0, len(values), MAX_PARAMETERS):
            some = values[start : start + MAX_PARAMETERS]
            found += self.all(f"{statement} IN ({', '.join('?' * len(some))})", (*before, *some))
        return found


class SQLite(Store):
    """One file, for one machine, with a write-ahead log: who reads does not wait for who writes.

    Several processes may share it.
    """

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


class Postgres(Store):
    """A server, for several workers; writers take turns by an advisory lock, so that seq is in the order of commits."""

    mark = "%s"
    begin = f"BEGIN; SELECT pg_advisory_xact_lock({LOCK})"

    def __init__(self, url: str):
        super().__init__()
        self.url = url
        self.psycopg = need("psycopg", "a store in PostgreSQL needs", "postgres")
        try:
            connection = self._connection("write")
            connection.execute(f"SELECT pg_advisory_lock({LOCK})")  # of two that start, one makes the tables
            try:
                for statement in filter(str.strip, SCHEMA.split(";")):
                    connection.execute(statement)
            finally:
                connection.execute(f"SELECT pg_advisory_unlock({LOCK})")
        except self.psycopg.Error as error:
            self.close()
            raise UnreadableFile(f"the PostgreSQL store cannot be used: {str(error).splitlines()[0]}.") from None

    def connect(self) -> Any:
        """A connection that stops waiting after a while."""
        # every question has its index; a server that has not looked at the table yet would read all of it instead
        plans = "-c enable_seqscan=off -c plan_cache_mode=force_custom_plan"
        options = f"-c lock_timeout={WAIT_SECONDS * 1000:.0f} -c client_min_messages=warning {plans}"
        return self.psycopg.connect(self.url, autocommit=True, connect_timeout=round(WAIT_SECONDS), options=options)

    def explain(self, error: Exception) -> str | None:
        """Say what the server's error means."""
        if isinstance(error, self.psycopg.errors.DiskFull):
            return "the disk of the store is full; free some space and send the request again."
        if isinstance(error, self.psycopg.errors.LockNotAvailable):
            return "another program holds the store; send the request again."
        lost = (self.psycopg.OperationalError, self.psycopg.InterfaceError)
        return "the store's server does not answer; send the request again." if isinstance(error, lost) else None

    def insert(self, table: str, rows: Sequence[Sequence[Any]]) -> None:
        """As `Store.insert`, by a copy."""
        if rows:
            with self._connection("write").cursor() as cursor, cursor.copy(f"COPY {table} FROM STDIN") as copy:
                for row in rows:
                    copy.write_row(row)

    def _rows_of(self, statement: str, values: Iterable[Any], before: Sequence[Any] = ()) -> list[Any]:
        values = list(values)
        return self.all(f"{statement} = ANY(?)", (*before, values)) if values else []

    def rows(self, project: int, until: float | None = None) -> np.ndarray[Any, Any]:
        """As `Store.rows`; every column comes as one string of bytes, since a million rows cost seconds to take."""
        columns = ", ".join(f"string_agg(float8send({name}), ''::bytea)" for name in ROW_COLUMNS)
        query = f"SELECT {columns} FROM event WHERE project = %s AND kind <= 1 AND at <= %s"
        with self._guarded("read") as connection:
            found = connection.execute(query, (project, 1e300 if until is None else until), binary=True).fetchone()
        rows = np.stack([np.frombuffer(part or b"", ">f8").astype(np.float64) for part in found], axis=1)
        return rows[np.argsort(rows[:, 0], kind="stable")]


def open_store(where: str) -> Store:
    """A store by its path (SQLite) or address (postgresql://…)."""
    return Postgres(where) if where.startswith(("postgresql://", "postgres://")) else SQLite(where)
