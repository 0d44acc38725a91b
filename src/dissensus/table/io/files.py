"""Open files, unpacked and as UTF-8; turn whatever goes wrong in one into one sentence that names it."""

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

from dissensus.exceptions import DataError, DissensusError, UnreadableFile

BinaryFile: TypeAlias = IO[bytes] | gzip.GzipFile | io.BufferedReader

MAX_UNPACKED_RATIO = 100  # times the size of the packed file; label tables reach 50, a bomb 1,000 and more
MIN_UNPACKED_LIMIT = 2**26  # bytes that any packed file may have when unpacked
UTF16 = (b"\xff\xfe", b"\xfe\xff")  # byte order marks
ZIP = b"PK\x03\x04"
ZIP_ZSTD = 93  # the method of a zip's member
LOCAL_HEADER_BYTES = 30  # before the name of a member; the last four say how long its name and extra fields are
STDIN = "-"

_OPENERS: dict[bytes, Any] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
    b"\x28\xb5\x2f\xfd": lambda path: pa.CompressedInputStream(pa.OSFile(str(path)), "zstd"),
}
PACKED_SUFFIXES = (".gz", ".bz2", ".xz", ".zst", ".zip")


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
    except (DissensusError, MemoryError, UnicodeEncodeError):  # the last: a name that Arrow cannot open
        raise
    except UnicodeDecodeError as error:
        if error.encoding != "utf-8":
            raise UnreadableFile(
                f"{path} is cut short or no UTF-16 text ({error.reason}); save it as UTF-8."
            ) from error
        raise not_utf8(path, f" (byte 0x{error.object[error.start]:02x})") from error
    except Exception as error:  # libraries that unpack and parse raise what they like
        said = str(error).strip().partition("\n")[0][:200].rstrip(".")
        raise UnreadableFile(
            f"{path} cannot be read ({said}); it may be cut short, damaged or of another format: fetch or write it "
            "again, or say which format=."
        ) from error


@contextmanager
def as_file(source: str | Path) -> Iterator[Path]:
    """The path of a file; of "-", that of a temporary copy of standard input, which errors call by its name."""
    if str(source) != STDIN:
        yield Path(source)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "standard-input"
        with path.open("wb") as copy:
            shutil.copyfileobj(sys.stdin.buffer, copy)
        try:
            yield path
        except DissensusError as error:
            raise type(error)(str(error).replace(str(path), "standard input")) from error.__cause__


def open_bytes(path: Path, *, for_arrow: bool = False) -> Any:
    """Open a file for reading bytes: unpacked where it is packed, from UTF-16 to UTF-8 where its mark says so.

    `for_arrow` opens a plain file without Python's part: threads of Arrow that let go of a Python file while the
    interpreter ends abort the process (about one run in 150).
    """
    with path.open("rb") as file:
        start = file.read(6)
    opener = next((one for magic, one in _OPENERS.items() if start.startswith(magic)), None)
    opened: BinaryFile
    if start.startswith(ZIP):
        if len(names := members(path)) != 1:
            some = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
            said = f"{path} is a zip of {len(names):,} files ({some})"
            raise UnreadableFile(f"{said}; unpack it, and name one of them or their folder.")
        opened = open_member(zipfile.ZipFile(path), names[0], path)
    elif opener:
        opened = io.BufferedReader(_Bounded(opener(path), path), 2**20)
    else:
        if for_arrow and start[:2] not in UTF16:
            with suppress(UnicodeEncodeError):  # Arrow opens no file whose name is not UTF-8
                return pa.OSFile(str(path))
        opened = path.open("rb")
    if opened.peek(2)[:2] in UTF16:
        with opened:
            return io.BytesIO(opened.read().decode("utf-16").encode())
    return opened


def open_member(archive: zipfile.ZipFile, name: str | zipfile.ZipInfo, path: Path) -> io.BufferedReader:
    """Open one file of a zip; also a Zstandard one, which Python unpacks from 3.14 on only."""
    entry = archive.getinfo(name) if isinstance(name, str) else name
    if entry.compress_type == ZIP_ZSTD:
        return io.BufferedReader(io.BytesIO(_zstd_member(entry, path)))
    return io.BufferedReader(_Bounded(archive.open(entry), path), 2**20)


def _zstd_member(entry: zipfile.ZipInfo, path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(entry.header_offset)
        head = file.read(LOCAL_HEADER_BYTES)
        if len(head) < LOCAL_HEADER_BYTES or not head.startswith(ZIP):
            raise zipfile.BadZipFile(f"no file {entry.filename} where the zip says it is")
        file.seek(sum(struct.unpack("<HH", head[-4:])), io.SEEK_CUR)  # its name and extra fields
        packed = file.read(min(entry.compress_size, path.stat().st_size))
    stream = pa.CompressedInputStream(pa.BufferReader(packed), "zstd")
    with io.BufferedReader(_Bounded(stream, path), 2**20) as unpacked:
        found = unpacked.read()
    if zlib.crc32(found) != entry.CRC:
        raise zipfile.BadZipFile(f"bad CRC-32 of {entry.filename}")
    return found


def members(path: Path) -> list[str]:
    """The files in a zip, without what a system hides in it."""
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/")]
    return [n for n in names if not n.startswith("__MACOSX/") and not PurePosixPath(n).name.startswith(".")]


def is_zip(path: Path) -> bool:
    """True where a file is a zip by its first bytes."""
    with path.open("rb") as file:
        return file.read(len(ZIP)) == ZIP


def not_utf8(path: Path, where: str = "") -> UnreadableFile:
    """Make the error for text in another encoding."""
    return UnreadableFile(
        f"{path} is not UTF-8 text{where}; save it as UTF-8, or convert it (iconv -f LATIN1 -t UTF-8 OLD > NEW)."
    )


def max_unpacked(path: Path) -> int:
    """Bytes that a packed file may have when unpacked: a few may else fill a machine."""
    return max(MAX_UNPACKED_RATIO * path.stat().st_size, MIN_UNPACKED_LIMIT)


class _Bounded(io.RawIOBase):
    """What is unpacked, up to `max_unpacked`."""

    def __init__(self, file: Any, path: Path):
        self._file, self._path, self._left = file, path, max_unpacked(path)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        part = self._file.read(len(buffer))
        self._left -= len(part)
        if self._left < 0:
            said = f"{self._path} unpacks to more than {MAX_UNPACKED_RATIO} times its size"
            raise UnreadableFile(f"{said}; if it is meant to, unpack it first.")
        buffer[: len(part)] = part
        return len(part)

    def close(self) -> None:
        self._file.close()
        super().close()
