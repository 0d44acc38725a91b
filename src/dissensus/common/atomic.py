"""Write files that appear whole or not at all, never over a file that is being read, and stay after a power cut."""

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

from dissensus.exceptions import BadParameter, UnwritableFile

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

PRIVATE = 0o600  # permissions of a file that says who is who
PART = re.compile(r"\..+[.-][0-9a-f]{8}\.part")  # what is being written, by us
MIN_STALE_SECONDS = 60.0  # age from which an unlocked part counts as left behind
INPUTS: ContextVar[frozenset[tuple[int, int]]] = ContextVar("INPUTS", default=frozenset())
"""Device and inode of every file that a command reads."""


@contextmanager
def reading_only(files: Iterable[Path]) -> Iterator[None]:
    """Let nothing inside write over these files."""
    token = INPUTS.set(INPUTS.get() | frozenset(filter(None, map(_identity, files))))
    try:
        yield
    finally:
        INPUTS.reset(token)


def check_no_input(*files: Path) -> None:
    """Raise BadParameter where writing one of `files` would destroy what the command reads."""
    for file in files:
        if _identity(file) in INPUTS.get():
            raise BadParameter(f"-o would overwrite {file}, which is being read; write to another place.")


def _identity(path: Path) -> tuple[int, int] | None:
    """What a file is known by, whatever its name: through links, and where capitals make no difference."""
    try:
        about = path.stat()
    except (OSError, ValueError):  # not there, or no path
        return None
    return about.st_dev, about.st_ino


@contextmanager
def atomic(path: str | Path, mode: int | None = None) -> Iterator[IO[bytes]]:
    """Open a file to write into; it takes the name `path` once it is complete, and an error leaves nothing behind.

    `mode`: its permissions from the first byte on; left out, those that the umask gives.
    """
    path = Path(path)
    target = path.resolve()  # through a link, so that the link stays one
    if target.exists() and not target.is_file():
        raise UnwritableFile(f"cannot write {path}: it is a folder or a device; name a file.")
    check_no_input(path)
    part = target.with_name(f".{target.name}.{token_hex(4)}.part")  # the same folder, so that renaming is one step
    try:
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
            with os.fdopen(os.open(part, flags, 0o666 if mode is None else mode), "wb") as file:
                lock(file.fileno())
                remove_stale(target.parent, f".{target.name}.")
                yield file
                file.flush()
                os.fsync(file.fileno())
            part.replace(target)
            sync(target.parent)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        if isinstance(error, UnwritableFile):
            raise
        raise UnwritableFile(f"cannot write {path}: {error.strerror or error}.") from error


def sync(path: Path) -> None:
    """Make a file's content, or a folder's list of files, survive a power cut; where the disk cannot, go on."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def lock(descriptor: int, *, wait: bool = False, shared: bool = False) -> bool:
    """Lock an open file or folder for as long as it is open; False where another has it locked.

    `shared`: with others who share it, against those who want it for themselves.
    """
    if fcntl is None:
        return True
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:  # a disk without locks
        return True
    return True


class HeldFolder:
    """A lock on a folder for as long as this object lives; `got` is False where another has it."""

    got = True

    def __init__(self, folder: Path, *, wait: bool = False, shared: bool = False):
        if fcntl is None:  # nor can folders be opened there
            return
        descriptor = os.open(folder, os.O_RDONLY)
        weakref.finalize(self, os.close, descriptor)
        self.got = lock(descriptor, wait=wait, shared=shared)


def remove_stale(folder: Path, prefix: str) -> None:
    """Remove what killed runs left in a folder: our parts whose name begins so, old and locked by nobody."""
    if fcntl is None:
        return
    for part in folder.glob(f"{escape(prefix)}*"):
        with suppress(OSError):
            if PART.fullmatch(part.name) and time.time() - part.stat().st_mtime >= MIN_STALE_SECONDS:
                if HeldFolder(part).got:
                    part.unlink() if part.is_file() else shutil.rmtree(part)
