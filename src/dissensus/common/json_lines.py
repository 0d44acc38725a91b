"""Files of JSON lines, to which a long search appends each result so that it can resume after it was killed."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import numpy as np

from dissensus.common.exceptions import CannotWrite


class JsonLinesStore:
    """The finished results of a long run, one JSON line each, from which a killed run resumes.

    Every row has a `key` that identifies the data and the settings. `rows` are the rows with the given key, or all rows
    without one. Without a path, nothing is stored.
    """

    def __init__(self, path: str | Path | None, key: str | None = None):
        self.path, self.key = None if path is None else Path(path), key
        self._lock = threading.Lock()
        found = [] if self.path is None else read_lines(self.path)
        self.rows = [row for row in found if "key" in row and (key is None or row.pop("key") == key)]

    def by_key(self) -> dict[str, dict[str, Any]]:
        """Return key → last row with this key, for a store whose rows have different keys."""
        return {row["key"]: row for row in self.rows}

    def add(self, *rows: dict[str, Any]) -> None:
        """Append rows; if the store has no key, each row must have its own."""
        if self.path is not None:
            with self._lock:
                append_lines(self.path, *(row if self.key is None else {"key": self.key} | row for row in rows))

    @classmethod
    @contextmanager
    def locked(cls, path: Path) -> Iterator[Self]:
        """Open a store that no other run can open at the same time, because two runs would compute everything twice.

        The operating system locks the file itself and releases it when the process ends, even if it is killed.
        """
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = path.open("ab")
        except OSError as error:
            raise CannotWrite(path=path, reason=error.strerror or str(error)) from error
        with file:
            try:
                import fcntl

                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise CannotWrite(path=path, reason="another run is writing it") from error
            except (ImportError, OSError):  # Windows and some file systems have no such locks.
                pass
            yield cls(path)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read the objects in a file of JSON lines; skip an incomplete line, and end it with a line break."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        if text and not text.endswith("\n"):
            with path.open("a", encoding="utf-8") as file:
                file.write("\n")
    except OSError as error:
        raise CannotWrite(path=path, reason=error.strerror or str(error)) from error
    found = []
    for line in text.splitlines():
        with suppress(ValueError):
            found.append(json.loads(line))
    return [row for row in found if isinstance(row, dict)]


def append_lines(path: Path, *rows: dict[str, Any]) -> None:
    """Append rows, one per line, in one write, so that concurrent readers only see complete lines."""
    try:
        with path.open("ab", buffering=0) as file:
            rest = memoryview("".join(json.dumps(row) + "\n" for row in rows).encode())
            while rest:  # A second write is only needed if the disk is nearly full.
                rest = rest[file.write(rest) :]
    except OSError as error:
        raise CannotWrite(path=path, reason=error.strerror or str(error)) from error


def hash_settings(settings: dict[str, Any], tables: Iterable[Any], arrays: Iterable[Any] = ()) -> str:
    """Return a hash of data and settings, which is the key of their rows in a store."""
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode())
    for table in tables:
        for array in (table.item_ptr, table.annotator, table.label, table.weight, table.proba):
            digest.update(b"-" if array is None else np.ascontiguousarray(array).tobytes())
        for names in (table.items, table.annotators, table.classes):
            digest.update("\0".join(map(str, names.tolist())).encode())
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]
