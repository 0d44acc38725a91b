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
"""The file that marks a folder as complete."""
INCOMPLETE_SUMMARY = b'{"incomplete": "a run was stopped while it replaced the files here; give the command again"}\n'
PREVIOUS_SUFFIX = ".dissensus-previous"  # suffix of the hidden name of an old folder while the new one takes its place
MAX_COPIED_BYTES = 2**28  # files of the user in an output folder; with more, results are replaced one by one
TableFormat = Literal["csv", "parquet", "jsonl"]


def table_files(*stems: str) -> tuple[Path, ...]:
    """Return the files of result tables in any format, which a later run into the same folder replaces or removes."""
    return tuple(Path(f"{stem}.{suffix}") for stem in stems for suffix in get_args(TableFormat))


def check_folder(folder: Path | None, files: Iterable[Path] = ()) -> None:
    """Raise an error, before any work is done, if a folder cannot be made or written to.

    `files` (relative) are those to be written: none may be an input, or a file that no earlier run wrote.
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
    """Wait until no other run is replacing a folder, and keep it so while the lock lives."""
    return FolderLock(next(path for path in folder.resolve().parents if path.is_dir()), wait=True)


def _check_writable(folder: Path) -> None:
    """Raise an error if a folder cannot be made or written to."""
    above = next(path for path in (folder, *folder.parents) if path.exists())
    if not above.is_dir():
        raise faults.InTheWay(path=folder, obstacle=above, kind="file")
    if not os.access(above, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(above))


def check_output_file(output: Path | None, what: str, option: str = "-o") -> None:
    """Raise an error, before any work is done, if one file of results cannot be written or is being read."""
    from dissensus.table.io.readers import readers, suffix_without_gz

    if output is None:
        return
    suffixes = tuple(suffix for reader in readers.values() if reader.write for suffix in reader.suffixes)
    if suffix_without_gz(output) not in suffixes:
        raise faults.UnknownSuffix(option=option, path=output, what=what, suffixes=suffixes)
    if not output.absolute().parent.is_dir():
        raise faults.FolderMissing(option=option, path=output)
    check_not_an_input(output)


def write_file(columns: Any, output: Path | None) -> None:
    """Write columns (name → array) or an Arrow table to a file of results, if there is one."""
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
    """Yield a new folder to write into, which takes the place of `folder` once it is complete; an error removes it.

    Files of `folder` that are neither written again nor `stale` (relative) stay. If it cannot be moved (a mount, the
    working folder), its files are replaced one by one, and its summary marks it as incomplete until the last is there.
    """
    turn, target = _lock_folder(folder), folder.resolve()
    _check_writable(folder)
    created = [path for path in target.parents if not path.exists()]  # the innermost first
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
        if isinstance(error, OSError):  # ours name the part, which is gone
            reason = error.reason if isinstance(error, CannotWrite) else error.strerror or str(error)
            raise CannotWrite(path=folder, reason=reason) from error
        raise
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _replace_folder(part: Path, target: Path, stale: set[Path]) -> None:
    """Move a complete part to its place."""
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
    """Put the old folder back if an exchange was interrupted, or remove it if the new one is in its place."""
    if not target.exists() and previous.is_dir():
        previous.rename(target)
    shutil.rmtree(previous, ignore_errors=True)


def _copy_user_files(part: Path, target: Path, stale: set[Path]) -> bool:
    """Copy the user's own files into the new folder; return False if the target should be filled in place instead."""
    here = Path.cwd()  # a shell would stay in the old folder
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
    """Replace the files of a folder one by one; the summary is the last, and marks it as incomplete until then."""
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
