"""Write files completely or not at all, so that they survive a power cut; never overwrite a file that is being read."""

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

OWNER_ONLY_MODE = 0o600  # permissions of a file that only its owner may read, such as the key to pseudonyms
PART_NAME_PATTERN = re.compile(r"\..+[.-][0-9a-f]{8}\.part")  # names of files and folders that are being written
MIN_STALE_SECONDS = 3600.0  # After this time without a write, a part is taken for one left by a killed run.
PROTECTED_INPUTS: ContextVar[frozenset[tuple[int, int]]] = ContextVar("PROTECTED_INPUTS", default=frozenset())
"""(device, inode) of every file that the running command reads."""


@contextmanager
def protect_inputs(files: Iterable[Path]) -> Iterator[None]:
    """Raise an error if these files would be overwritten inside the context."""
    token = PROTECTED_INPUTS.set(
        PROTECTED_INPUTS.get().union(found for file in files if (found := _file_identity(file)))
    )
    try:
        yield
    finally:
        PROTECTED_INPUTS.reset(token)


def check_not_an_input(*files: Path) -> None:
    """Raise OverwritesInput if one of `files` is an input of the running command."""
    for file in files:
        if _file_identity(file) in PROTECTED_INPUTS.get():
            raise OverwritesInput(path=file)


def _file_identity(path: Path) -> tuple[int, int] | None:
    """Return (device, inode), which identifies a file under any name; None if there is no file."""
    try:
        about = path.stat()
    except (OSError, ValueError):  # The file does not exist, or the path is invalid.
        return None
    return about.st_dev, about.st_ino


@contextmanager
def open_atomically(path: str | Path, mode: int | None = None) -> Iterator[IO[bytes]]:
    """Open a temporary file for writing, and rename it to `path` once it is complete; remove it after an error.

    The file has the permissions `mode` from its first byte on, by default those of the umask.
    """
    path = Path(path)
    target = path.resolve()  # A link is kept, and its target is replaced.
    if target.exists() and not target.is_file():
        raise CannotWrite(path=path, reason="it is a folder or a device; name a file")
    check_not_an_input(path)
    remove_stale_parts(target.parent, f".{target.name}.")
    part = target.with_name(f".{target.name}.{token_hex(4)}.part")  # Renaming within one folder is atomic.
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
    """Write the content of a file, or a folder's list of files, to the disk, so that it survives a power cut."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class FolderLock:
    """A lock on a folder, held as long as this object exists; `got` is False if another process holds it."""

    got = True

    def __init__(self, folder: Path, *, wait: bool = False, shared: bool = False):
        if fcntl is None:  # Windows cannot lock folders.
            return
        descriptor = os.open(folder, os.O_RDONLY)
        weakref.finalize(self, os.close, descriptor)
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            self.got = False
        except OSError:  # The disk does not support locks.
            return


def remove_stale_parts(folder: Path, prefix: str) -> None:
    """Remove the parts with this name prefix that killed runs left in a folder."""
    for part in folder.glob(f"{escape(prefix)}*"):
        with suppress(OSError):
            if PART_NAME_PATTERN.fullmatch(part.name):
                written = max(path.stat().st_mtime for path in (part, *part.rglob("*")))
                if time.time() - written >= MIN_STALE_SECONDS:
                    part.unlink() if part.is_file() else shutil.rmtree(part)
