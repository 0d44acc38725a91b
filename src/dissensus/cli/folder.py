"""Write an output folder that holds one complete run, or one file of results."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Any, Literal, get_args

from dissensus.cli import exceptions as faults
from dissensus.common.atomic import (
    PART_NAME_PATTERN,
    FolderLock,
    check_not_an_input,
    open_atomically,
    remove_stale_parts,
    sync_to_disk,
)
from dissensus.common.exceptions import CannotWrite
from dissensus.common.progress import show_progress

SUMMARY = "summary.json"
"""File whose presence shows that a folder holds the complete results of a run."""
INCOMPLETE_SUMMARY = b'{"incomplete": "a run was stopped while it replaced the files here; give the command again"}\n'
PREVIOUS_SUFFIX = ".dissensus-previous"  # suffix of the hidden name of an old folder while it is replaced
MAX_COPIED_BYTES = 2**28  # maximum total size of the user's files in an output folder that is replaced as a whole
TableFormat = Literal["csv", "parquet", "jsonl"]


def table_files(*stems: str) -> tuple[Path, ...]:
    """Return the possible files of result tables, in every format; a later run replaces or removes them."""
    return tuple(Path(f"{stem}.{suffix}") for stem in stems for suffix in get_args(TableFormat))


def check_folder(folder: Path | None, files: Iterable[Path] = ()) -> None:
    """Raise an error, before any work is done, if a folder cannot be made or written to.

    `files` are the relative paths of the files that will be written. None of them may be an input file, or exist
    without having been written by an earlier run.
    """
    if folder is None:
        return
    turn = _lock_folder(folder)
    _check_writable(folder)
    del turn
    there = [folder / file for file in files if (folder / file).is_file()]
    check_not_an_input(*there, folder / SUMMARY)
    if there and not (folder / SUMMARY).is_file():
        raise faults.NotOurFile(file=there[0], summary=SUMMARY)


def _lock_folder(folder: Path) -> FolderLock:
    """Return a lock that keeps other runs from replacing a folder; wait until no run is replacing it."""
    return FolderLock(next(path for path in folder.resolve().parents if path.is_dir()), wait=True)


def _check_writable(folder: Path) -> None:
    """Raise an error if a folder cannot be made or written to."""
    above = next(path for path in (folder, *folder.parents) if path.exists())
    if not above.is_dir():
        raise faults.InTheWay(path=folder, obstacle=above, kind="file")
    if not os.access(above, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(above))


def check_output_file(output: Path | None, what: str, option: str = "-o") -> None:
    """Raise an error, before any work is done, if a results file cannot be written or is an input file."""
    from dissensus.table.io.readers import readers, suffix_without_gz

    if output is None:
        return
    suffixes = tuple(suffix for reader in readers.values() if reader.write for suffix in reader.suffixes)
    if suffix_without_gz(output) not in suffixes:
        raise faults.UnknownSuffix(option=option, path=output, content=what, suffixes=suffixes)
    if not output.absolute().parent.is_dir():
        raise faults.FolderMissing(option=option, path=output)
    check_not_an_input(output)


def write_file(columns: Any, output: Path | None) -> None:
    """Write columns (name → array) or an Arrow table to the results file; without a file, do nothing."""
    from dissensus.table.io import write_frame

    if output is not None:
        with show_progress(f"writing {output}"):
            write_frame(columns, output)


@contextmanager
def write_results(folder: Path, stale: Iterable[Path], summary: dict[str, Any]) -> Iterator[Path]:
    """Yield an `atomic_folder` to write results into; the summary is written last."""
    from dissensus.table.io import write_json

    with show_progress(f"writing {folder}"), atomic_folder(folder, stale) as part:
        yield part
        write_json(summary, part / SUMMARY)


@contextmanager
def atomic_folder(folder: Path, stale: Iterable[Path] = ()) -> Iterator[Path]:
    """Yield a new folder to write into, which replaces `folder` when the block ends; an error removes the new folder.

    Files of `folder` that are neither written again nor listed in `stale` (relative paths) are kept. If `folder` cannot
    be moved because it is a mount or the working folder, its files are replaced one by one, and its summary marks it as
    incomplete until all files are replaced.
    """
    turn, target = _lock_folder(folder), folder.resolve()
    _check_writable(folder)
    created = [path for path in target.parents if not path.exists()]  # innermost first
    inside = target.exists() and (target.is_mount() or not os.access(target.parent, os.W_OK | os.X_OK))
    del turn
    part = (target if inside else target.parent) / f".dissensus-{token_hex(4)}.part"
    try:
        part.mkdir(parents=True)
        remove_stale_parts(part.parent, ".dissensus-")
        yield part
        _replace_folder(part, target, set(stale))
    except BaseException as error:
        shutil.rmtree(part, ignore_errors=True)
        for path in created:
            with suppress(OSError):
                path.rmdir()
        if isinstance(error, OSError):  # the error names the temporary folder, which is removed
            reason = error.reason if isinstance(error, CannotWrite) else error.strerror or str(error)
            raise CannotWrite(path=folder, reason=reason) from error
        raise
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _replace_folder(part: Path, target: Path, stale: set[Path]) -> None:
    """Replace the target by a complete temporary folder."""
    files = sorted(path.relative_to(part) for path in part.rglob("*") if path.is_file())
    for file in files:
        if (target / file).is_dir():
            raise faults.InTheWay(path=target / file, obstacle=target / file, kind="folder")
        if (target / file.parent).exists() and not (target / file.parent).is_dir():
            raise faults.InTheWay(path=target, obstacle=target / file.parent, kind="file")
        sync_to_disk(part / file)
    check_not_an_input(*(target / file for file in (*files, *stale)))
    previous = target.with_name(f".{target.name}{PREVIOUS_SUFFIX}")  # the old folder between the two renames
    turn = FolderLock(target.parent, wait=True)  # two runs into one folder take turns
    _restore_previous(target, previous)
    if not target.exists():
        part.rename(target)
    elif part.parent == target or not _copy_user_files(part, target, stale):
        _replace_files(part, target, files, stale)
    else:
        try:
            target.rename(previous)
            part.rename(target)
        finally:
            _restore_previous(target, previous)
    sync_to_disk(target.parent)
    del turn


def _restore_previous(target: Path, previous: Path) -> None:
    """Restore the old folder if its replacement was interrupted, or delete it if the new folder is in place."""
    if not target.exists() and previous.is_dir():
        previous.rename(target)
    shutil.rmtree(previous, ignore_errors=True)


def _copy_user_files(part: Path, target: Path, stale: set[Path]) -> bool:
    """Copy the user's files into the new folder; return False if files must be replaced one by one instead."""
    here = Path.cwd()  # a shell whose working folder is replaced would stay in the old one
    others = {
        path
        for path in target.rglob("*")
        if not path.is_dir()
        and not (part / path.relative_to(target)).exists()
        and path.relative_to(target) not in stale
    }
    foreign = hasattr(os, "geteuid") and target.stat().st_uid != os.geteuid()  # a copy would change the owner
    if foreign or here.is_relative_to(target) or sum(path.lstat().st_size for path in others) > MAX_COPIED_BYTES:
        return False

    def skip(folder: str, names: list[str]) -> list[str]:
        paths = (Path(folder, name) for name in names)
        return [
            path.name
            for path in paths
            if PART_NAME_PATTERN.fullmatch(path.name) or not (path.is_dir() or path in others)
        ]

    try:
        shutil.copytree(target, part, symlinks=True, ignore=skip, dirs_exist_ok=True)
    except OSError:  # such as a file that cannot be read
        return False
    for folder in {file.parent for file in stale} - {Path()}:
        with suppress(OSError):  # not empty
            (part / folder).rmdir()
    return True


def _replace_files(part: Path, target: Path, files: list[Path], stale: set[Path]) -> None:
    """Replace the files of a folder one by one; until the last one, its summary marks it as incomplete."""
    if Path(SUMMARY) in files:
        with open_atomically(target / SUMMARY) as summary:
            summary.write(INCOMPLETE_SUMMARY)
        files = [*(file for file in files if file != Path(SUMMARY)), Path(SUMMARY)]
    for file in sorted(stale - set(files)):
        (target / file).unlink(missing_ok=True)
        if file.parent != Path():
            with suppress(OSError):  # not empty
                (target / file.parent).rmdir()
    for file in files:
        (target / file).parent.mkdir(parents=True, exist_ok=True)
        (part / file).replace(target / file)
    sync_to_disk(target)
