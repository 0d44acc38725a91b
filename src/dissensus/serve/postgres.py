"""A PostgreSQL server, for several workers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from dissensus.common.extras import need
from dissensus.exceptions import UnreadableFile
from dissensus.serve.store import ROW_COLUMNS, SCHEMA, Store

LOCK = 7_307_265_001  # any number that no other program on the server locks
WAIT_SECONDS = 5


class Postgres(Store):
    """A database; writers take turns by an advisory lock, so that the order of seq is that of commits."""

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
        options = f"-c lock_timeout={WAIT_SECONDS * 1000} -c client_min_messages=warning {plans}"
        return self.psycopg.connect(self.url, autocommit=True, connect_timeout=WAIT_SECONDS, options=options)

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
