"""An output folder that holds one whole run, or one file of results."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from secrets import token_hex
from typing import Any

from dissensus.common.progress import waiting
from dissensus.exceptions import BadParameter, DissensusError, UnwritableFile

SUMMARY = "summary.json"
"""The file that says that a folder is complete: it goes first and comes last."""


class TableFormat(StrEnum):
    """Formats of the result tables."""

    csv = "csv"
    parquet = "parquet"
    jsonl = "jsonl"


def tables(*stems: str) -> tuple[Path, ...]:
    """The files of result tables in any format, which a later run into the same folder replaces or removes."""
    return tuple(Path(f"{stem}.{suffix}") for stem in stems for suffix in TableFormat)


def check(folder: Path | None, files: Iterable[Path] = (), inputs: Iterable[Path | None] = ()) -> None:
    """An error, before any work is done, where a folder cannot be made or written to.

    Also where writing `files` (relative) would destroy what no earlier run wrote, or one of the `inputs`.
    """
    if folder is None:
        return
    if folder.exists() and not folder.is_dir():
        raise BadParameter(f"cannot write into {folder}: it is a file; name a folder.")
    above = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not above.is_dir():
        raise BadParameter(f"cannot make the folder {folder}: {above} is a file.")
    if not os.access(above, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(above))

    read = {path.resolve() for path in inputs if path is not None}
    there = [folder / file for file in files if (folder / file).is_file()]
    for file in there:
        if file.resolve() in read:
            raise BadParameter(f"-o {folder} would overwrite {file}, which is being read; name another folder.")
    if there and not (folder / SUMMARY).is_file():
        raise BadParameter(
            f"{there[0]} is there, and no {SUMMARY} of an earlier run; name another folder, or remove it."
        )


def check_file(output: Path | None, what: str, inputs: Iterable[Path | None]) -> None:
    """An error, before any work is done, where one file of results cannot be written or is being read."""
    from dissensus.table.io.formats import FORMATS, suffix_of

    if output is None:
        return
    written = [suffix for one in FORMATS.values() if one.write for suffix in one.suffixes]
    if suffix_of(output) not in written:
        raise BadParameter(f"-o {output}: {what} are written as {', '.join(written)}; name such a file.")
    if not output.absolute().parent.is_dir():
        raise BadParameter(f"-o {output}: there is no folder {output.parent}; make it first.")
    if output.exists() and any(path is not None and path.exists() and output.samefile(path) for path in inputs):
        raise BadParameter(f"-o {output} would overwrite what is being read; name another file.")


def write_file(columns: Any, output: Path | None) -> None:
    """Write one file of results, where one is asked for: columns (name → array) or an Arrow table."""
    from dissensus.table.io import write_frame

    if output is not None:
        with waiting(f"writing {output}"):
            write_frame(columns, output)


@contextmanager
def results(folder: Path, stale: Iterable[Path], summary: dict[str, Any]) -> Iterator[Path]:
    """An `atomic_folder` to write results into; what `summary` holds then is written last."""
    from dissensus.table.io import write_json

    with waiting(f"writing {folder}"), atomic_folder(folder, stale) as part:
        yield part
        write_json(summary, part / SUMMARY)


@contextmanager
def atomic_folder(folder: Path, stale: Iterable[Path] = ()) -> Iterator[Path]:
    """A new folder to write into; its files are moved into `folder` once all are complete. After an error none is.

    A folder that does not exist yet appears in one step. In one that does, files of the same name are replaced and
    those in `stale` (relative) removed; others stay. A process killed between two of these steps leaves no summary.
    """
    check(folder)
    target = folder.resolve()
    fresh = not target.exists()
    made = [path for path in target.parents if not path.exists()]  # the innermost first
    # inside an existing folder, not beside it: that may be a mount, and files cannot be renamed across mounts
    part = (target.parent if fresh else target) / f".dissensus-{token_hex(4)}.part"
    try:
        part.mkdir(parents=True)
        yield part
        if fresh:
            part.rename(target)
        else:
            _move(part, target, stale)
    except BaseException as error:
        shutil.rmtree(part, ignore_errors=True)
        for path in made:
            with suppress(OSError):
                path.rmdir()
        if isinstance(error, DissensusError):
            raise type(error)(str(error).replace(str(part), str(folder))) from error.__cause__
        if isinstance(error, OSError):
            raise UnwritableFile(f"cannot write into {folder}: {error.strerror or error}.") from error
        raise
    shutil.rmtree(part, ignore_errors=True)


def _move(part: Path, target: Path, stale: Iterable[Path]) -> None:
    files = sorted(path.relative_to(part) for path in part.rglob("*") if path.is_file())
    for file in files:
        if (target / file).is_dir():
            raise BadParameter(f"cannot write {target / file}: it is a folder.")
        if (target / file.parent).exists() and not (target / file.parent).is_dir():
            raise BadParameter(f"cannot write into {target / file.parent}: it is a file.")
    complete = Path(SUMMARY) in files
    if complete:
        (target / SUMMARY).unlink(missing_ok=True)
        files.remove(Path(SUMMARY))
    for file in files:
        (target / file).parent.mkdir(exist_ok=True)
        (part / file).replace(target / file)
    for file in set(stale) - set(files):
        (target / file).unlink(missing_ok=True)
        if file.parent != Path():
            with suppress(OSError):  # not empty: something of the user's
                (target / file.parent).rmdir()
    if complete:
        (part / SUMMARY).replace(target / SUMMARY)
