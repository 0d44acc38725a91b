"""An output folder that holds one whole run, or one file of results."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Any, Literal, get_args

from dissensus.cli.face import COMMAND_LINE
from dissensus.common.atomic import PART, atomic, check_no_input, lock, remove_stale, sync
from dissensus.common.progress import waiting
from dissensus.exceptions import BadParameter, DissensusError, UnwritableFile

SUMMARY = "summary.json"
"""The file that says that a folder is complete."""
INCOMPLETE = b'{"incomplete": "a run was stopped while it replaced the files here; give the command again"}\n'
MAX_LINKED_FILES = 10_000  # files of the user's own in an output folder; with more, files are replaced one by one
TableFormat = Literal["csv", "parquet", "jsonl"]
AT_FDCWD, RENAME_EXCHANGE = -100, 2  # of Linux, <fcntl.h> and <linux/fs.h>


def tables(*stems: str) -> tuple[Path, ...]:
    """The files of result tables in any format, which a later run into the same folder replaces or removes."""
    return tuple(Path(f"{stem}.{suffix}") for stem in stems for suffix in get_args(TableFormat))


def check(folder: Path | None, files: Iterable[Path] = ()) -> None:
    """An error, before any work is done, where a folder cannot be made or written to.

    Also where writing `files` (relative) would destroy what the command reads, or what no earlier run wrote.
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

    there = [folder / file for file in files if (folder / file).is_file()]
    check_no_input(*there, folder / SUMMARY)
    if there and not (folder / SUMMARY).is_file():
        raise BadParameter(
            f"{there[0]} is there, and no {SUMMARY} of an earlier run; name another folder, or remove it."
        )


def check_file(output: Path | None, what: str, name: str = "-o") -> None:
    """An error, before any work is done, where one file of results cannot be written or is being read."""
    from dissensus.table.io.readers import readers, suffix_of

    if output is None:
        return
    written = [suffix for one in readers.values() if one.write for suffix in one.suffixes]
    if suffix_of(output) not in written:
        raise BadParameter(f"{name} {output}: {what} are written as {', '.join(written)}; name such a file.")
    if not output.absolute().parent.is_dir():
        raise BadParameter(f"{name} {output}: there is no folder {output.parent}; make it first.")
    check_no_input(output)


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
    """A new folder to write into; it takes the place of `folder` in one step once all is complete. After an error none.

    Files of `folder` that are neither written again nor `stale` (relative) are kept. Where a folder cannot be
    exchanged (a mount, the working folder), its files are replaced one by one; until the last is there, the summary
    says so.
    """
    check(folder)
    target = folder.resolve()
    made = [path for path in target.parents if not path.exists()]  # the innermost first
    place = target.parent if not target.exists() or _can_exchange(target) else target
    part = place / f".dissensus-{token_hex(4)}.part"
    locked = None
    try:
        part.mkdir(parents=True)
        locked = os.open(part, os.O_RDONLY)
        lock(locked)
        remove_stale(place, ".dissensus-")
        yield part
        _commit(part, target, set(stale))
    except BaseException as error:
        shutil.rmtree(part, ignore_errors=True)
        for path in made:
            with suppress(OSError):
                path.rmdir()
        if isinstance(error, DissensusError):
            raise type(error)(error.render(COMMAND_LINE).replace(str(part), str(folder))) from error.__cause__
        if isinstance(error, OSError):
            raise UnwritableFile(f"cannot write into {folder}: {error.strerror or error}.") from error
        raise
    finally:
        if locked is not None:
            os.close(locked)
    shutil.rmtree(part, ignore_errors=True)


def _commit(part: Path, target: Path, stale: set[Path]) -> None:
    """Put a complete part in its place; of two runs at a time, one after the other."""
    files = sorted(path.relative_to(part) for path in part.rglob("*") if path.is_file())
    for file in files:
        if (target / file).is_dir():
            raise BadParameter(f"cannot write {target / file}: it is a folder.")
        if (target / file.parent).exists() and not (target / file.parent).is_dir():
            raise BadParameter(f"cannot write into {target / file.parent}: it is a file.")
        sync(part / file)
    check_no_input(*(target / file for file in (*files, *stale)))
    turn = os.open(target.parent, os.O_RDONLY)
    try:
        lock(turn, wait=True)
        if not target.exists():
            part.rename(target)
        elif part.parent == target or not _exchange(part, target, stale):
            _move(part, target, files, stale)
        sync(target.parent)
    finally:
        os.close(turn)


def _can_exchange(target: Path) -> bool:
    """False for a mount, for the working folder, whose shell would be left in the old one, and in a closed folder."""
    here = Path.cwd()
    return not (
        target.is_mount() or target == here or target in here.parents or not os.access(target.parent, os.W_OK | os.X_OK)
    )


def _exchange(part: Path, target: Path, stale: set[Path]) -> bool:
    """Let two folders change places in one step, after the files to keep are in both; False where that cannot be."""
    try:
        _link_others(part, target, stale)
        shutil.copystat(target, part)
        before, after = target.stat(), part.stat()
        if (before.st_uid, before.st_gid) != (after.st_uid, after.st_gid):
            os.chown(part, before.st_uid, before.st_gid)
        libc = ctypes.CDLL(None, use_errno=True)
        return bool(libc.renameat2(AT_FDCWD, os.fsencode(part), AT_FDCWD, os.fsencode(target), RENAME_EXCHANGE) == 0)
    except (OSError, AttributeError):  # no links, no such owner, no such system call
        return False


def _link_others(part: Path, target: Path, stale: set[Path]) -> None:
    """Link the files of `target` that are neither in `part` nor `stale` into `part`."""
    others = 0
    for above, folders, files in os.walk(target):
        inside = Path(above).relative_to(target)
        folders[:] = [name for name in folders if not PART.fullmatch(name)]
        links = [name for name in folders if (Path(above) / name).is_symlink()]
        for name in (*files, *links):
            if inside / name in stale or (part / inside / name).exists():
                continue
            others += 1
            if others > MAX_LINKED_FILES:
                raise OSError(f"more than {MAX_LINKED_FILES:,} other files")
            (part / inside).mkdir(parents=True, exist_ok=True)
            os.link(Path(above) / name, part / inside / name, follow_symlinks=False)
        if not folders and not files and not any(file.is_relative_to(inside) for file in stale):
            (part / inside).mkdir(parents=True, exist_ok=True)  # a folder that was empty


def _move(part: Path, target: Path, files: list[Path], stale: set[Path]) -> None:
    """Replace the files of a folder one by one; the summary comes last, and until then says that it is not complete."""
    if Path(SUMMARY) in files:
        with atomic(target / SUMMARY) as summary:
            summary.write(INCOMPLETE)
        files = [*(file for file in files if file != Path(SUMMARY)), Path(SUMMARY)]
    for file in sorted(stale - set(files)):
        (target / file).unlink(missing_ok=True)
        if file.parent != Path():
            with suppress(OSError):  # not empty: something of the user's
                (target / file.parent).rmdir()
    for file in files:
        (target / file).parent.mkdir(parents=True, exist_ok=True)
        (part / file).replace(target / file)
    sync(target)
