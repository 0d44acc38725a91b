"""A cache of vectors on disk: cached vectors are read, and others are computed and added.

A key is a hash of an input's bytes. The vectors of a model are in one SQLite file, whose name identifies the model.
Several processes may use the file, and a killed process loses at most `INPUTS_PER_TRANSACTION` vectors.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import sys
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeAlias

import numpy as np

from dissensus.common.types import BoolArray, FloatArray, IntArray, Names
from dissensus.features.exceptions import CacheNotWritable, DamagedCache, VectorNotFinite

CACHE_VARIABLE = "DISSENSUS_CACHE"
"""The environment variable that names the cache folder."""
INPUTS_PER_TRANSACTION = 8192  # number of vectors that are stored in one transaction
KEYS_PER_QUERY = 500  # SQLite limits the number of parameters of a query.
LOCK_SECONDS = 60  # maximum time to wait for another process that writes

OnRows: TypeAlias = Callable[[int, int], None]
"""Called with (number of available vectors, number of distinct inputs)."""
Cache: TypeAlias = bool | str | Path
"""True for the user's cache folder, False for no cache, or a folder."""


def cache_folder(cache: Cache = True) -> Path | None:
    """Return the cache folder, or None if `cache` is False.

    It is `cache` if that is a path, otherwise DISSENSUS_CACHE, or `dissensus` in the user's cache folder.

    >>> from dissensus import features
    >>> features.cache_folder("vectors")
    PosixPath('vectors')
    """
    if cache is False:
        return None
    if cache is not True:
        return Path(cache)
    if named := os.environ.get(CACHE_VARIABLE):
        return Path(named)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "dissensus"


def hash_parts(*parts: bytes) -> bytes:
    """Return a hash of 16 bytes of these parts, their lengths and their order."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.digest()


def embed_with_cache(
    keys: Sequence[bytes],
    compute: Callable[[list[int]], FloatArray],
    model: str,
    cache: Cache = True,
    *,
    size: IntArray | None = None,
    on_rows: OnRows | None = None,
) -> FloatArray:
    """Return the vectors (I, D) float32 of all keys, from the cache or computed once per distinct key.

    `keys` are the hashes of the inputs by `hash_parts`. `compute` takes indices into `keys` and returns one row for
    each, or (0, D) for no indices. `model` is the name of the file; it must identify everything but the inputs on which
    vectors depend. Inputs are computed in the order of decreasing `size` (I,), so that the inputs of a batch have
    similar sizes.
    """
    if not len(keys):
        return compute([])
    different, first, inverse = np.unique(np.array(keys, "S16"), return_index=True, return_inverse=True)
    folder = cache_folder(cache)
    store = VectorStore(folder and folder / f"{model}.sqlite")
    known, rows = store.read(different)
    done = int(known.sum())
    missing = np.flatnonzero(~known)
    missing = missing[np.argsort(first[missing] if size is None else -size[first[missing]], kind="stable")]
    for start in range(0, missing.size, INPUTS_PER_TRANSACTION):
        at = missing[start : start + INPUTS_PER_TRANSACTION]
        made = np.asarray(compute(first[at].tolist()), np.float32)
        if not np.isfinite(made).all():
            row = first[at[np.argmin(np.isfinite(made).all(axis=1))]]
            raise VectorNotFinite(row=int(row))
        rows = np.empty((different.size, made.shape[1]), np.float32) if rows is None else rows
        rows[at] = made
        store.add(different[at], made)
        done += at.size
        if on_rows is not None:
            on_rows(done, different.size)
    assert rows is not None  # There are keys, and each vector was read or computed.
    return rows[inverse]


class VectorStore:
    """The vectors of one model in an SQLite file; without a file, nothing is stored."""

    def __init__(self, path: Path | None):
        self.path = path

    @contextmanager
    def _open_database(self, path: Path) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(path, timeout=LOCK_SECONDS)) as database, database:
            database.execute("CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, row BLOB, checksum INTEGER)")
            yield database

    def read(self, wanted: Names) -> tuple[BoolArray, FloatArray | None]:
        """Return a mask of the stored keys, and one row per key; the rows of other keys are undefined."""
        known, rows, damaged = np.zeros(wanted.size, bool), None, False
        if self.path is None or not self.path.exists():
            return known, rows
        keys = wanted.tolist()
        place = {key: i for i, key in enumerate(keys)}
        try:
            with self._open_database(self.path) as database:
                for start in range(0, len(keys), KEYS_PER_QUERY):
                    some = keys[start : start + KEYS_PER_QUERY]
                    query = f"SELECT key, row, checksum FROM vectors WHERE key IN ({','.join('?' * len(some))})"
                    for key, row, checksum in database.execute(query, some):
                        if zlib.crc32(row) != checksum:
                            damaged = True
                            continue
                        values = np.frombuffer(row, np.float32)
                        rows = np.empty((wanted.size, values.size), np.float32) if rows is None else rows
                        rows[place[key]], known[place[key]] = values, True
        except sqlite3.OperationalError as error:
            self._disable_writing(error)
        except sqlite3.DatabaseError:
            damaged = True
            self.path.unlink(missing_ok=True)
        if damaged and self.path is not None:
            warnings.warn(DamagedCache(path=self.path), stacklevel=4)
        return known, rows

    def add(self, keys: Names, rows: FloatArray) -> None:
        """Store rows under their keys; warn once if the file cannot be written."""
        if self.path is None:
            return
        entries = ((key, row.tobytes(), zlib.crc32(row)) for key, row in zip(keys.tolist(), rows, strict=True))
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self._open_database(self.path) as database:
                database.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", entries)
        except (OSError, sqlite3.Error) as error:
            self._disable_writing(error)

    def _disable_writing(self, error: Exception) -> None:
        assert self.path is not None
        warnings.warn(CacheNotWritable(path=self.path, reason=str(error)), stacklevel=5)
        self.path = None
