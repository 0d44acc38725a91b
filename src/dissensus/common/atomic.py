"""Write files that appear whole or not at all, never over a file that is being read, and that survive a power cut."""

from __future__ import annotations

import os
import re
import shutil
import time
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from glob import escape
from pathlib import Path
from secrets import token_hex
from typing import IO

from dissensus.common.exceptions import CannotWrite, OverwritesInput
from dissensus.exceptions import UnwritableFile

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

OWNER_ONLY_MODE = 0o600  # permissions of the key to pseudonyms
PART_NAME = re.compile(r"\..+[.-][0-9a-f]{8}\.part")  # names of files and folders that are being written
MIN_STALE_SECONDS = 3600.0  # time without a write after which a part was left by a killed run
INPUTS: ContextVar[frozenset[tuple[int, int]]] = ContextVar("INPUTS", default=frozenset())
"""Device and inode of every file that the running command reads."""


@contextmanager
def protect_inputs(files: Iterable[Path]) -> Iterator[None]:
    """Refuse to write over these files inside the context."""
    token = INPUTS.set(INPUTS.get().union(found for file in files if (found := _file_identity(file))))
    try:
        yield
    finally:
        INPUTS.reset(token)


def check_not_an_input(*files: Path) -> None:
    """Raise OverwritesInput if writing one of `files` would destroy what the command reads."""
    for file in files:
        if _file_identity(file) in INPUTS.get():
            raise OverwritesInput(path=file)


def _file_identity(path: Path) -> tuple[int, int] | None:
    """Return what identifies a file through links and, on some disks, through capitals; None if there is no file."""
    try:
        about = path.stat()
    except (OSError, ValueError):  # not there, or no path
        return None
    return about.st_dev, about.st_ino


@contextmanager
def open_atomically(path: str | Path, mode: int | None = None) -> Iterator[IO[bytes]]:
    """Open a file to write into; it takes the name `path` once it is complete, and an error leaves nothing behind.

    `mode` holds its permissions from the first byte on; by default those that the umask gives.
    """
    path = Path(path)
    target = path.resolve()  # a link is kept, and its target replaced
    if target.exists() and not target.is_file():
        raise CannotWrite(path=path, reason="it is a folder or a device; name a file")
    check_not_an_input(path)
    remove_stale_parts(target.parent, f".{target.name}.")
    part = target.with_name(f".{target.name}.{token_hex(4)}.part")  # renaming within one folder is one step
    try:
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
            with os.fdopen(os.open(part, flags, 0o666 if mode is None else mode), "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            part.replace(target)
            sync_to_disk(target.parent)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        if isinstance(error, UnwritableFile):
            raise
        raise CannotWrite(path=path, reason=error.strerror or str(error)) from error


def sync_to_disk(path: Path) -> None:
    """Make a file's content, or a folder's list of files, survive a power cut, if the disk can do that."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class FolderLock:
    """A lock on a folder for as long as this object lives; `got` is False if another process has it."""

    got = True

    def __init__(self, folder: Path, *, wait: bool = False, shared: bool = False):
        if fcntl is None:  # Windows cannot open folders either
            return
        descriptor = os.open(folder, os.O_RDONLY)
        weakref.finalize(self, os.close, descriptor)
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            self.got = False
        except OSError:  # a disk without locks
            return


def remove_stale_parts(folder: Path, prefix: str) -> None:
    """Remove parts that killed runs left in a folder: names of ours with this prefix that are no longer written to."""
    for part in folder.glob(f"{escape(prefix)}*"):
        with suppress(OSError):
            if PART_NAME.fullmatch(part.name):
                written = max(path.stat().st_mtime for path in (part, *part.rglob("*")))
                if time.time() - written >= MIN_STALE_SECONDS:
                    part.unlink() if part.is_file() else shutil.rmtree(part)
