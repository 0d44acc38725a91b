"""Open files as decompressed UTF-8, and convert any failure to an error that names the file."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import shutil
import struct
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import IO, Any, TypeAlias

import pyarrow as pa

from dissensus.exceptions import DataError, DissensusError
from dissensus.table import exceptions as errors

BinaryFile: TypeAlias = IO[bytes] | gzip.GzipFile | io.BufferedReader

MAX_UNPACKED_RATIO = 100  # Tables of labels unpack to at most 50 times their size, decompression bombs to 1,000 times.
MIN_UNPACKED_LIMIT = 2**26  # bytes; any compressed file may unpack to this size
MAX_REASON_LENGTH = 200  # characters of an error message of a library
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")  # byte order marks
ZIP_MAGIC = b"PK\x03\x04"
ZSTD_METHOD = 93  # compression method of a zip member
LOCAL_HEADER_BYTES = 30  # length of the fixed part, which ends with the lengths of name and extra fields
STDIN_NAME = "-"

_OPENERS_BY_MAGIC: dict[bytes, Any] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
    b"\x28\xb5\x2f\xfd": lambda path: pa.CompressedInputStream(pa.OSFile(str(path)), "zstd"),
}
PACKED_SUFFIXES = (".gz", ".bz2", ".xz", ".zst", ".zip")


@contextmanager
def name_file_in_errors(path: Path) -> Iterator[None]:
    """Add the file name to any DataError raised in the block."""
    try:
        yield
    except DataError as error:
        if str(path) not in str(error):
            error.add_subject(str(path))
        raise


@contextmanager
def report_read_errors(path: Path) -> Iterator[None]:
    """Convert failures in the block, except dissensus errors, to an `UnreadableFile` that names the file."""
    if not path.exists():
        raise errors.MissingFile(path=path)
    if path.is_dir():
        raise errors.UnusableFolder(path=path, problem="and not a file")
    try:
        yield
    except (DissensusError, MemoryError, UnicodeEncodeError):  # Arrow raises UnicodeEncodeError for some file names.
        raise
    except UnicodeDecodeError as error:
        if error.encoding != "utf-8":
            raise errors.DamagedFile(path=path, reason=f"not {error.encoding.upper()} text: {error.reason}") from error
        raise errors.NotUtf8(path=path, position=f" (byte 0x{error.object[error.start]:02x})") from error
    except Exception as error:  # Libraries that decompress and parse may raise any type of error.
        text = f"there is no entry {error}" if isinstance(error, KeyError) else str(error)
        reason = text.strip().partition("\n")[0][:MAX_REASON_LENGTH].rstrip(".")
        raise errors.DamagedFile(path=path, reason=reason) from error


@contextmanager
def as_local_path(source: str | Path) -> Iterator[Path]:
    """Yield the path of a file; for "-", yield the path of a copy of standard input, as errors call it."""
    if str(source) != STDIN_NAME:
        yield Path(source)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "standard-input"
        with path.open("wb") as copy:
            shutil.copyfileobj(sys.stdin.buffer, copy)
        try:
            yield path
        except DissensusError as error:
            error.subjects = tuple(part.replace(str(path), "standard input") for part in error.subjects)
            for name, value in error.facts.items():
                if isinstance(value, str | Path) and str(path) in str(value):
                    error.facts[name] = str(value).replace(str(path), "standard input")
                    setattr(error, name, error.facts[name])
            raise


def open_bytes(path: Path, *, for_arrow: bool = False) -> Any:
    """Open a file for reading bytes, decompressed, and converted to UTF-8 if a byte order mark indicates UTF-16.

    `for_arrow` opens an uncompressed file with Arrow: if a thread of Arrow releases a Python file while the interpreter
    exits, the process aborts (about one run in 150).
    """
    with path.open("rb") as file:
        start = file.read(6)
    opener = next((opener for magic, opener in _OPENERS_BY_MAGIC.items() if start.startswith(magic)), None)
    opened: BinaryFile
    if start.startswith(ZIP_MAGIC):
        if len(names := list_zip_members(path)) != 1:
            raise errors.ZipOfSeveralFiles(path=path, names=tuple(names))
        opened = open_zip_member(zipfile.ZipFile(path), names[0], path)
    elif opener:
        opened = io.BufferedReader(_SizeLimitedFile(opener(path), path), 2**20)
    else:
        if for_arrow and start[:2] not in UTF16_MARKS:
            with suppress(UnicodeEncodeError):  # Arrow cannot open files whose names are not UTF-8.
                return pa.OSFile(str(path))
        opened = path.open("rb")
    try:
        start = opened.peek(2)[:2]
    except BaseException:
        opened.close()
        raise
    if start in UTF16_MARKS:
        with opened:
            return io.BytesIO(opened.read().decode("utf-16").encode())
    return opened


def open_zip_member(archive: zipfile.ZipFile, name: str | zipfile.ZipInfo, path: Path) -> io.BufferedReader:
    """Open one file of a zip, also if it is compressed with Zstandard, which Python supports only since 3.14."""
    entry = archive.getinfo(name) if isinstance(name, str) else name
    if entry.compress_type == ZSTD_METHOD:
        return io.BufferedReader(io.BytesIO(_read_zstd_member(entry, path)))
    return io.BufferedReader(_SizeLimitedFile(archive.open(entry), path), 2**20)


def _read_zstd_member(entry: zipfile.ZipInfo, path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(entry.header_offset)
        head = file.read(LOCAL_HEADER_BYTES)
        if len(head) < LOCAL_HEADER_BYTES or not head.startswith(ZIP_MAGIC):
            raise zipfile.BadZipFile(f"no file {entry.filename} at its place in the zip")
        file.seek(sum(struct.unpack("<HH", head[-4:])), io.SEEK_CUR)  # Skip the name and extra fields.
        packed = file.read(min(entry.compress_size, path.stat().st_size))
    stream = pa.CompressedInputStream(pa.BufferReader(packed), "zstd")
    with io.BufferedReader(_SizeLimitedFile(stream, path), 2**20) as unpacked:
        content = unpacked.read()
    if zlib.crc32(content) != entry.CRC:
        raise zipfile.BadZipFile(f"bad CRC-32 of {entry.filename}")
    return content


def list_zip_members(path: Path) -> list[str]:
    """Return the names of the files in a zip, except hidden ones."""
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/")]
    return [n for n in names if not n.startswith("__MACOSX/") and not PurePosixPath(n).name.startswith(".")]


def is_zip(path: Path) -> bool:
    """Return True if the file begins like a zip."""
    with path.open("rb") as file:
        return file.read(len(ZIP_MAGIC)) == ZIP_MAGIC


def max_unpacked_size(path: Path) -> int:
    """Return the maximum number of bytes to which the file may unpack, as a protection against decompression bombs."""
    return max(MAX_UNPACKED_RATIO * path.stat().st_size, MIN_UNPACKED_LIMIT)


class _SizeLimitedFile(io.RawIOBase):
    """A decompressed file that raises an error if it exceeds `max_unpacked_size`."""

    def __init__(self, file: Any, path: Path):
        self._file, self._path, self._left = file, path, max_unpacked_size(path)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        part = self._file.read(len(buffer))
        self._left -= len(part)
        if self._left < 0:
            raise errors.UnpacksTooLarge(path=self._path, ratio=MAX_UNPACKED_RATIO)
        buffer[: len(part)] = part
        return len(part)

    def close(self) -> None:
        self._file.close()
        super().close()
