"""Open files; turn whatever goes wrong in one into one sentence that names it."""

from __future__ import annotations

import gzip
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TypeAlias

import pyarrow as pa

from dissensus.exceptions import DataError, DissensusError, UnreadableFile

BinaryFile: TypeAlias = IO[bytes] | gzip.GzipFile


@contextmanager
def about(path: Path) -> Iterator[None]:
    """Add the name of the file to a DataError that is raised inside."""
    try:
        yield
    except DataError as error:
        if str(path) in str(error):
            raise
        raise type(error)(f"{path}: {error}") from error.__cause__


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn any failure inside, other than our own errors, into an `UnreadableFile` that names the file."""
    if not path.exists():
        raise UnreadableFile(f"no file {path}; check its name and the folder.")
    if path.is_dir():
        raise UnreadableFile(f"{path} is a folder; name one file in it.")
    try:
        yield
    except DissensusError:
        raise
    except UnicodeDecodeError as error:
        raise not_utf8(path, f" (byte 0x{error.object[error.start]:02x})") from error
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile, pa.ArrowException) as error:
        said = str(error).strip().partition("\n")[0][:200].rstrip(".")
        raise UnreadableFile(
            f"{path} cannot be read ({said}); it may be cut short, damaged or of another format: fetch or write it "
            "again, or say which format=."
        ) from error


def is_gzip(path: Path) -> bool:
    """True where a file is gzip by its first bytes, whatever its name."""
    with path.open("rb") as file:
        return file.read(2) == b"\x1f\x8b"


def open_bytes(path: Path) -> BinaryFile:
    """Open a file for reading bytes, unpacked where it is gzip."""
    return gzip.open(path) if is_gzip(path) else path.open("rb")


def not_utf8(path: Path, where: str = "") -> UnreadableFile:
    """Make the error for text in another encoding."""
    return UnreadableFile(
        f"{path} is not UTF-8 text{where}; save it as UTF-8, or convert it (iconv -f LATIN1 -t UTF-8 OLD > NEW)."
    )
