"""Vectors kept on disk by what they were made from: what is there is read, what is new is computed and added.

A key is a hash of an input's bytes. A model's vectors lie in a folder named after its identity, in files of keys and
rows that are written whole or not at all. Every process adds files and none changes one, so any number may work at the
same time; where files have become many, a process writes a new one with all they hold before it removes them.
"""

from __future__ import annotations

import hashlib
import os
import sys
import warnings
import zipfile
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import TypeAlias

import numpy as np

from dissensus.common.atomic import atomic
from dissensus.common.types import BoolArray, FloatArray, IntArray, Names
from dissensus.features.exceptions import CacheNotWritable, DamagedCache, VectorNotFinite

VARIABLE = "DISSENSUS_CACHE"
"""The environment variable that names the cache folder."""
INPUTS_PER_WRITE = 8192  # what a killed run may lose
MAX_SMALL_FILES = 32  # of one model; so many become one
SMALL_FILE_BYTES = 2**24
DAMAGE = (ValueError, KeyError, EOFError, OSError, zipfile.BadZipFile, zlib.error, NotImplementedError)
"""What NumPy and zipfile raise for a file that is not as it was written; zip files have checksums."""

OnRows: TypeAlias = Callable[[int, int], None]
"""Called as vectors become known with (how many, of how many different inputs)."""
Cache: TypeAlias = bool | str | Path
"""True for the user's cache folder, False for none, or a folder."""


def cache_folder(cache: Cache = True) -> Path | None:
    """Return the folder given, that of DISSENSUS_CACHE, or `dissensus` in the user's cache folder; None for False.

    >>> from dissensus import features
    >>> features.cache_folder("vectors")
    PosixPath('vectors')
    """
    if cache is False:
        return None
    if cache is not True:
        return Path(cache)
    if named := os.environ.get(VARIABLE):
        return Path(named)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "dissensus"


def key_of(*parts: bytes) -> bytes:
    """Hash these parts, in this order and so divided, to 16 bytes."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.digest()


def cached(
    keys: Sequence[bytes],
    compute: Callable[[list[int]], FloatArray],
    model: str,
    cache: Cache = True,
    *,
    size: IntArray | None = None,
    on_rows: OnRows | None = None,
) -> FloatArray:
    """Return the vectors of all keys (I, D) float32: read, or computed once for each different key and then kept.

    `keys` are those of every input, by `key_of`. `compute` takes places in `keys` and returns one row for each; for no
    places, (0, D). `model` names a folder, and all that vectors depend on besides the inputs. Inputs are computed from
    the largest to the smallest by `size` (I,), so that those of a batch are alike.
    """
    if not len(keys):
        return compute([])
    different, first, inverse = np.unique(np.array(keys, "S16"), return_index=True, return_inverse=True)
    folder = cache_folder(cache)
    store = Store(folder and folder / model)
    known, rows = store.read(different)
    done = int(known.sum())
    missing = np.flatnonzero(~known)
    missing = missing[np.argsort(first[missing] if size is None else -size[first[missing]], kind="stable")]
    for start in range(0, missing.size, INPUTS_PER_WRITE):
        at = missing[start : start + INPUTS_PER_WRITE]
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
    assert rows is not None  # there are keys, and each was read or made
    return rows[inverse]


class Store:
    """The vectors of one model in its folder; without one, none is kept."""

    def __init__(self, folder: Path | None):
        self.folder = folder

    def read(self, wanted: Names) -> tuple[BoolArray, FloatArray | None]:
        """Find which of the keys (sorted) are there, and their rows; those of the others are not set."""
        known, rows, damaged = np.zeros(wanted.size, bool), None, 0
        for path in self._files():
            try:
                if (found := _read(path, wanted)) is not None:
                    keys, values = found
                    rows = np.empty((wanted.size, values.shape[1]), np.float32) if rows is None else rows
                    place = np.searchsorted(wanted, keys)
                    rows[place], known[place] = values, True
            except FileNotFoundError:  # another process has just merged it into a larger one
                continue
            except DAMAGE:
                damaged += 1
                with suppress(OSError):
                    path.unlink()
        if damaged and self.folder is not None:
            warnings.warn(DamagedCache(n_files=damaged, folder=self.folder), stacklevel=4)
        return known, rows

    def add(self, keys: Names, rows: FloatArray) -> None:
        """Keep these rows; a warning where the folder cannot be written, and no more is kept."""
        if self.folder is None:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            merged = []
            if len(small := self._files(SMALL_FILE_BYTES)) >= MAX_SMALL_FILES:
                for path in small:
                    with suppress(*DAMAGE):
                        if (found := _read(path)) is not None:
                            keys, rows = (np.concatenate(parts) for parts in zip((keys, rows), found, strict=True))
                        merged.append(path)
                keys, first = np.unique(keys, return_index=True)
                rows = rows[first]
            with atomic(self.folder / f"{token_hex(8)}.npz") as file:
                np.savez(file, keys=keys, rows=rows)
            for path in merged:
                path.unlink(missing_ok=True)
        except OSError as error:  # UnwritableFile is one
            reason = f"{error.strerror or error}".rstrip(".")
            warnings.warn(CacheNotWritable(folder=self.folder, reason=reason), stacklevel=4)
            self.folder = None

    def _files(self, below: float = np.inf) -> list[Path]:
        """List the files of fewer bytes than that."""
        found = []
        for path in [] if self.folder is None else self.folder.glob("*.npz"):
            with suppress(FileNotFoundError):  # merged into another a moment ago
                if path.stat().st_size < below:
                    found.append(path)
        return sorted(found)


def _read(path: Path, wanted: Names | None = None) -> tuple[Names, FloatArray] | None:
    """Read the wanted keys of a file, or all, with their rows; None where there are none, ValueError for damage."""
    with path.open("rb") as file, np.load(file, allow_pickle=False) as found:
        keys = found["keys"]
        if keys.dtype != "S16" or keys.ndim != 1:
            raise ValueError(keys.shape)
        hit = np.ones(keys.size, bool)
        if wanted is not None:  # sorted: np.isin would sort again
            hit = wanted[np.minimum(np.searchsorted(wanted, keys), wanted.size - 1)] == keys
        if not hit.any():
            return None  # rows are the large part: they are not read
        rows = found["rows"]
        if rows.dtype != np.float32 or rows.ndim != 2 or len(rows) != keys.size:
            raise ValueError(rows.shape)
        return keys[hit], rows[hit]
