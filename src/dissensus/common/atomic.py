"""Write files that appear whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import IO

from dissensus.exceptions import UnwritableFile


@contextmanager
def atomic(path: str | Path) -> Iterator[IO[bytes]]:
    """Open a file to write into; it takes the name `path` once it is complete, and an error leaves nothing behind."""
    path = Path(path)
    target = path.resolve()  # through a link, so that the link stays one
    if target.exists() and not target.is_file():
        raise UnwritableFile(f"cannot write {path}: it is a folder or a device; name a file.")
    part = target.with_name(f".{target.name}.{token_hex(4)}.part")  # the same folder, so that renaming is one step
    try:
        try:
            with part.open("xb") as file:  # unlike tempfile's, with the permissions that the umask gives
                yield file
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise UnwritableFile(f"cannot write {path}: {error.strerror or error}.") from error
