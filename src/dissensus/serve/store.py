"""The log in a database, in SQL for both SQLite and PostgreSQL. Events are only appended, never changed or deleted.

| table | content |
|---|---|
| project | name, and settings as JSON |
| name | items (0), annotators (1) and labels (2) of a project by code: 0, 1, 2 … |
| event | the log; `first` is the number of the first event with the same id |
| token | SHA-256 of each token, its role, and the time when it was revoked |
| setting | the secret of the pseudonyms |

`seq` numbers events in the order of commits: writers take turns (`write`), so a reader that has seen event n has seen
all earlier ones.
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

from dissensus.common.extras import import_extra
from dissensus.serve.events import StoredEvent
from dissensus.serve.exceptions import STORE_FAULTS, StoreFault, StoreNotUsable

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
# The columns of the table are those of the first release; the field `first_seq` is its column `first`.
EVENT_COLUMNS = ", ".join(StoredEvent._fields).replace("first_seq", "first")
ROW_COLUMNS = ("seq", "first", "kind", "item", "annotator", "label", "at")
"""Columns of the rows that `load_rows` loads; all are numbers."""
ROWS_CLAUSE = "FROM event WHERE project = ? AND kind <= 1 AND at <= ?"
END_OF_TIME = 1e300  # seconds since 1970
MAX_PARAMETERS = 500  # parameters of one statement, well below the limits of both databases
ROWS_PER_INSERT = 45  # Rows have up to 11 values, so this stays below `MAX_PARAMETERS`.
WAIT_SECONDS = 5.0  # A request is refused if another process writes for longer.
CACHE_KIB = 16_384  # page cache of a connection
LOCK_NUMBER = 7_307_265_001  # arbitrary number that no other program on the server is likely to lock


class EventStore(ABC):
    """A log in a database with one connection for writing and one for reading, each used by one thread at a time."""

    placeholder = "?"  # placeholder of a parameter in a statement
    begin_statement: str  # begins a transaction once other writers are done

    def __init__(self, url: str) -> None:
        self.url = url
        self._connections: dict[str, Any] = {}
        self._locks = {"read": threading.RLock(), "write": threading.RLock()}
        self._in_write = threading.local()

    @abstractmethod
    def connect(self) -> Any:
        """Return a connection that commits each statement outside of a transaction."""

    @abstractmethod
    def name_fault(self, error: Exception) -> str | None:
        """Return why the store cannot be used now (a key of `STORE_FAULTS`), or None for all other errors."""

    @abstractmethod
    def load_rows(self, project: int, until: float = END_OF_TIME) -> np.ndarray[Any, Any]:
        """Return annotations and removals up to a time as an array with the `ROW_COLUMNS`, ordered by `seq`."""

    def _connection(self, use: str) -> Any:
        if use not in self._connections:
            self._connections[use] = self.connect()
        return self._connections[use]

    @contextmanager
    def _handle_faults(self, use: str) -> Iterator[Any]:
        """Yield a connection; after a fault of the database, the next use opens a new one."""
        with self._locks[use]:
            try:
                yield self._connection(use)
            except Exception as error:
                if (fault := self.name_fault(error)) is None:
                    raise
                if (broken := self._connections.pop(use, None)) is not None:
                    broken.close()
                raise StoreFault(fault=fault) from error

    @contextmanager
    def write(self) -> Iterator[None]:
        """Run a transaction, which waits for other writers and is committed as a whole or not at all."""
        with self._handle_faults("write") as connection:
            connection.execute(self.begin_statement)
            try:
                self._in_write.on = True
                yield
                connection.execute("COMMIT")
            except BaseException:
                try:
                    connection.execute("ROLLBACK")
                except Exception as error:  # The connection is lost, and with it the transaction.
                    self._connections.pop("write", None)
                    error.add_note("during a rollback")
                raise
            finally:
                self._in_write.on = False

    def run(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """Run a statement and return its rows; inside `write`, it sees uncommitted rows."""
        use = "write" if getattr(self._in_write, "on", False) else "read"
        with self._handle_faults(use) as connection:
            found = connection.execute(statement.replace("?", self.placeholder), values)
            return found.fetchall() if found.description else []

    def insert(self, table: str, rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows, inside `write`, with few statements because other threads may run between two of them."""
        for start in range(0, len(rows), ROWS_PER_INSERT):
            some = rows[start : start + ROWS_PER_INSERT]
            marks = ", ".join([f"({', '.join('?' * len(some[0]))})"] * len(some))
            self.run(f"INSERT INTO {table} VALUES {marks}", [value for row in some for value in row])

    def close(self) -> None:
        """Close the connections."""
        for use, connection in list(self._connections.items()):
            with self._locks[use]:
                connection.close()
        self._connections.clear()

    def last_seq(self) -> int:
        """Return the number of the last event, 0 without events."""
        return int(self.run("SELECT COALESCE(MAX(seq), 0) FROM event")[0][0])

    def list_projects(self) -> list[tuple[int, str, str]]:
        """Return the number, name and settings of every project."""
        return self.run("SELECT number, name, about FROM project ORDER BY number")

    def load_names(self, project: int, what: int, after: int) -> list[str]:
        """Return the names of one kind of a project whose code is `after` or greater."""
        where = "project = ? AND what = ? AND code >= ? ORDER BY code"
        return [text for (text,) in self.run(f"SELECT text FROM name WHERE {where}", (project, what, after))]

    def events_since(self, seq: int) -> list[StoredEvent]:
        """Return the events of all projects after number `seq`."""
        return self._select_events("seq > ? ORDER BY seq", seq)

    def project_events(self, project: int, *, annotations: bool) -> list[StoredEvent]:
        """Return either the annotations and removals of a project, or all its other events."""
        return self._select_events(
            f"project = ? AND {'kind <= 1' if annotations else 'kind > 1'} ORDER BY seq", project
        )

    def events_with_ids(self, project: int, ids: Iterable[str]) -> list[StoredEvent]:
        """Return all events with these ids."""
        return self._select_events_among("project = ? AND id", ids, project)

    def event_groups(self, firsts: Iterable[int]) -> list[StoredEvent]:
        """Return all events whose id has its first event among `firsts`."""
        firsts = list(firsts)
        return self._select_events_among("seq", firsts) + self._select_events_among("seq <> first AND first", firsts)

    def corrected_events(self, project: int) -> list[StoredEvent]:
        """Return all events of the ids of a project that have several events."""
        # `project + 0` prevents the use of the index of projects, which would read a whole project.
        later = "SELECT DISTINCT first FROM event WHERE seq <> first AND kind <= 1 AND project + 0 = ?"
        return self.event_groups(first for (first,) in self.run(later, (project,)))

    def event_data(self, seqs: Iterable[int]) -> dict[int, str | None]:
        """Return the data of events by number."""
        return dict(self._select_among("SELECT seq, data FROM event WHERE seq", seqs))

    def pseudonym_salt(self) -> str:
        """Return the secret of the pseudonyms, which is created once per store."""
        query = "SELECT value FROM setting WHERE project = 0 AND key = 'salt'"
        if not (found := self.run(query)):
            with self.write():
                if not (found := self.run(query)):  # Another process may have created it meanwhile.
                    found = [(secrets.token_hex(16),)]
                    self.insert("setting", [(0, "salt", *found[0])])
        return str(found[0][0])

    def _select_events(self, where: str, *values: Any) -> list[StoredEvent]:
        return [StoredEvent(*row) for row in self.run(f"SELECT {EVENT_COLUMNS} FROM event WHERE {where}", values)]

    def _select_events_among(self, where: str, values: Iterable[Any], *before: Any) -> list[StoredEvent]:
        return [
            StoredEvent(*row)
            for row in self._select_among(f"SELECT {EVENT_COLUMNS} FROM event WHERE {where}", values, before)
        ]

    def _select_among(self, statement: str, values: Iterable[Any], before: Sequence[Any] = ()) -> list[Any]:
        """Return the rows of a statement that ends with a column, which must be among `values`."""
        found, values = [], list(values)
        for start in range(0, len(values), MAX_PARAMETERS):
            some = values[start : start + MAX_PARAMETERS]
            found += self.run(f"{statement} IN ({', '.join('?' * len(some))})", (*before, *some))
        return found


class SQLite(EventStore):
    """A store in one file, which processes on one machine may share; readers do not wait for writers."""

    begin_statement = "BEGIN IMMEDIATE"

    def __init__(self, url: str):
        super().__init__(url)
        try:
            self._connection("write").execute("PRAGMA journal_mode = WAL")
            self._connection("write").executescript(SCHEMA)
        except sqlite3.DatabaseError as error:
            self.close()
            raise StoreNotUsable(store=url, reason=str(error)) from error

    def connect(self) -> sqlite3.Connection:
        """Return a connection that waits for other writers for a while, and flushes the disk with each commit."""
        connection = sqlite3.connect(self.url, timeout=WAIT_SECONDS, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        return connection

    def name_fault(self, error: Exception) -> str | None:
        """Return the fault in the message of SQLite's error."""
        operational = isinstance(error, sqlite3.OperationalError)
        return next((fault for fault in STORE_FAULTS if operational and fault in str(error)), None)

    def load_rows(self, project: int, until: float = END_OF_TIME) -> np.ndarray[Any, Any]:
        """Load rows without a list of tuples, which would take ten times as much memory."""
        query = f"SELECT {', '.join(ROW_COLUMNS)} {ROWS_CLAUSE} ORDER BY seq"
        with self._handle_faults("read") as connection:
            found = connection.execute(query, (project, until))
            return np.fromiter(found, np.dtype((np.float64, len(ROW_COLUMNS))))


class Postgres(EventStore):
    """A store in a PostgreSQL server, for several workers; with an advisory lock, `seq` is the order of commits."""

    placeholder = "%s"
    begin_statement = f"BEGIN; SELECT pg_advisory_xact_lock({LOCK_NUMBER})"

    def __init__(self, url: str):
        super().__init__(url)
        self.psycopg = import_extra("psycopg", "a store in PostgreSQL needs", "postgres")
        try:
            connection = self._connection("write")
            connection.execute(
                f"SELECT pg_advisory_lock({LOCK_NUMBER})"
            )  # If two workers start at once, one of them creates the tables.
            try:
                for statement in filter(str.strip, SCHEMA.split(";")):
                    connection.execute(statement)
            finally:
                connection.execute(f"SELECT pg_advisory_unlock({LOCK_NUMBER})")
        except self.psycopg.Error as error:
            self.close()
            raise StoreNotUsable(store="PostgreSQL", reason=str(error).splitlines()[0]) from None

    def connect(self) -> Any:
        """Return a connection that stops waiting for locks after a while."""
        # Every query has an index. Without these settings, a server that has not analysed the table would not use it.
        plans = "-c enable_seqscan=off -c plan_cache_mode=force_custom_plan"
        options = f"-c lock_timeout={WAIT_SECONDS * 1000:.0f} -c client_min_messages=warning {plans}"
        return self.psycopg.connect(self.url, autocommit=True, connect_timeout=round(WAIT_SECONDS), options=options)

    def name_fault(self, error: Exception) -> str | None:
        """Return the fault for the type of the server's error."""
        errors, lost = self.psycopg.errors, (self.psycopg.OperationalError, self.psycopg.InterfaceError)
        faults = {errors.DiskFull: "full", errors.LockNotAvailable: "locked", lost: "away"}
        return next((fault for kind, fault in faults.items() if isinstance(error, kind)), None)

    def insert(self, table: str, rows: Sequence[Sequence[Any]]) -> None:
        """Insert the rows with a single COPY statement."""
        if rows:
            with self._connection("write").cursor() as cursor, cursor.copy(f"COPY {table} FROM STDIN") as copy:
                for row in rows:
                    copy.write_row(row)

    def _select_among(self, statement: str, values: Iterable[Any], before: Sequence[Any] = ()) -> list[Any]:
        values = list(values)
        return self.run(f"{statement} = ANY(?)", (*before, values)) if values else []

    def load_rows(self, project: int, until: float = END_OF_TIME) -> np.ndarray[Any, Any]:
        """Load rows with each column as one byte string, which is much faster than rows."""
        columns = ", ".join(f"string_agg(float8send({name}), ''::bytea)" for name in ROW_COLUMNS)
        query = f"SELECT {columns} {ROWS_CLAUSE}".replace("?", self.placeholder)
        with self._handle_faults("read") as connection:
            found = connection.execute(query, (project, until), binary=True).fetchone()
        rows = np.stack([np.frombuffer(part or b"", ">f8").astype(np.float64) for part in found], axis=1)
        return rows[np.argsort(rows[:, 0], kind="stable")]


def open_store(where: str) -> EventStore:
    """Open a store.

    Parameters
    ----------
    where : str
        Path of a file (SQLite), or address of a server (postgresql://…).

    Returns
    -------
    store : EventStore
    """
    return Postgres(where) if where.startswith(("postgresql://", "postgres://")) else SQLite(where)
