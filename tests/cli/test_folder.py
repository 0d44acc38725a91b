from __future__ import annotations

import itertools
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dissensus.cli import folder as folder_module
from dissensus.cli.folder import PREVIOUS_SUFFIX, SUMMARY, atomic_folder, check_folder
from dissensus.common import atomic


def test_new_folder_appears_with_all_its_files_or_not_at_all(here):
    with atomic_folder(Path("a/b")) as part:
        (part / "x").write_text("1")
        (part / "sub").mkdir()
        (part / "sub" / "y").write_text("2")
        assert not Path("a/b").exists()
    assert sorted(str(path) for path in here.rglob("*")) == [
        str(here / p) for p in ("a", "a/b", "a/b/sub", "a/b/sub/y", "a/b/x")
    ]


OLD = {"a": "old", "b": "old", "gone": "old", SUMMARY: "old"}
NEW = {"a": "new", "sub/c": "new", SUMMARY: "new"}
KEPT = {"mine": "mine", "sub/mine": "mine"}  # of the user's own
KILLED = 9
STALE = [Path("b"), Path("gone")]


def read(folder):
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".part" not in str(path.relative_to(folder))
    }


def fill(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def overwrite(folder):
    with atomic_folder(folder, STALE) as part:
        fill(part, NEW)


def killed_at(step, what, *arguments):
    """Run in a process that is killed at its n-th step on the disk; False where it had fewer."""

    def count(event, _):
        nonlocal step
        if event.startswith(("os.", "shutil.")) or event == "open":
            step -= 1
            if step < 0:
                os._exit(KILLED)  # no handler runs, as with SIGKILL

    child = os.fork()
    if child == 0:
        status = 1
        try:
            sys.addaudithook(count)
            what(*arguments)
            status = 0
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, KILLED)
    return status == KILLED


@pytest.mark.parametrize("in_place", [False, True])
def test_an_overwrite_killed_at_any_step_leaves_one_run_whole_and_can_be_repeated(here, monkeypatch, in_place):
    monkeypatch.setattr(atomic, "MIN_STALE_SECONDS", 0)
    if in_place:
        monkeypatch.setattr(folder_module, "_copy_user_files", lambda *_: False)
    wholes = set()
    for step in itertools.count():
        out = here / str(step) / "out"
        fill(out, OLD | KEPT)
        again = killed_at(step, overwrite, out)
        found = read(out)
        if in_place and found not in (OLD | KEPT, NEW | KEPT):
            assert "incomplete" in found[SUMMARY]  # says itself that it is of two runs
            assert KEPT.items() <= found.items()
        else:
            found = found or read(
                out.with_name(f".out{PREVIOUS_SUFFIX}")
            )  # between two renames the old folder has another name
            assert found in (OLD | KEPT, NEW | KEPT), step
            wholes.add(found[SUMMARY])
        check_folder(out, [Path(name) for name in NEW])  # the same command is not refused
        overwrite(out)
        assert read(out) == NEW | KEPT
        assert [path.name for path in out.parent.iterdir()] == ["out"]
        assert [path.name for path in out.rglob("*.part")] == []
        if not again:
            break
    assert wholes == {"old", "new"}
    assert step > 20


def test_a_kill_into_a_new_folder_leaves_none(here, monkeypatch):
    monkeypatch.setattr(atomic, "MIN_STALE_SECONDS", 0)
    for step in itertools.count():
        out = here / str(step) / "deep" / "out"
        again = killed_at(step, overwrite, out)
        assert not out.exists() or read(out) == NEW
        overwrite(out)
        assert [path.name for path in (here / str(step)).rglob("*.part")] == []
        if not again:
            break


def test_only_our_own_stale_parts_are_removed(here, monkeypatch):
    theirs = ["a.part", ".part", ".dissensus-x.part", ".dissensus-12345678.parts", ".out.csv.123.part"]
    for name in theirs:
        Path(name).write_text("")
    Path(".dissensus-00000000.part").mkdir()
    Path(".dissensus-00000000.part", "clusters-key.csv").write_text("who is who")
    Path(".out.csv.0123abcd.part").write_text("")
    old = time.time() - 2 * atomic.MIN_STALE_SECONDS
    for path in here.rglob("*"):
        os.utime(path, (old, old))
    with atomic_folder(Path("live")) as live:  # another run, which writes into an old file
        (live / "items.csv").write_text("item")
        os.utime(live, (old, old))
        Path(".dissensus-11111111.part").mkdir()  # a run that has just started
        overwrite(Path("out"))
        with atomic.open_atomically("out.csv"):
            pass
        left = {path.name for path in here.iterdir()}
    assert left == {*theirs, live.name, ".dissensus-11111111.part", "out", "out.csv"}


def test_two_writers_do_not_mix(here):
    def write(text):
        with atomic_folder(here / "out", [Path(name) for name in "xyz"]) as part:
            fill(part, dict.fromkeys(["a", "b", SUMMARY, "xyz"[len(text) % 3]], text))

    write("0")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, [f"{10**n}" for n in range(12)]))
    assert len(set(read(here / "out").values())) == 1
    assert len(read(here / "out")) == 4


def test_a_working_folder_is_filled_in_place(here):
    Path("mine").write_text("mine")
    before = here.stat().st_ino
    overwrite(Path())
    assert here.stat().st_ino == before
    assert read(here) == NEW | {"mine": "mine"}


def test_permissions_links_and_empty_folders_stay(here):
    fill(here / "out", OLD)
    (here / "out").chmod(0o750)
    (here / "out" / "empty").mkdir()
    (here / "out" / "link").symlink_to("nowhere")
    (here / "real").mkdir()
    (here / "to").symlink_to("real")
    overwrite(here / "out")
    assert (here / "out").stat().st_mode & 0o777 == 0o750
    assert (here / "out" / "empty").is_dir()
    assert (here / "out" / "link").readlink() == Path("nowhere")
    overwrite(here / "to")
    assert (here / "to").is_symlink()
    assert read(here / "real") == NEW


def test_a_private_file_is_private_from_its_first_byte(here):
    os.umask(0o022)
    with atomic.open_atomically("key.csv", atomic.OWNER_ONLY_MODE) as file:
        (part,) = here.glob(".key.csv.*.part")
        assert part.stat().st_mode & 0o777 == 0o600
        file.write(b"x")
    assert Path("key.csv").stat().st_mode & 0o777 == 0o600


def test_stale_files_go_and_others_stay(here):
    Path("out/sub").mkdir(parents=True)
    Path("out/own").mkdir()
    for name in ("kept", "stale", "sub/stale", "own/stale", "own/kept", "x"):
        Path("out", name).write_text("old")
    with atomic_folder(Path("out"), [Path(name) for name in ("stale", "sub/stale", "own/stale", "x", "never")]) as part:
        (part / "x").write_text("new")
    left = {str(path.relative_to("out")) for path in Path("out").rglob("*")}
    assert left == {"kept", "own", "own/kept", "x"}
    assert Path("out/x").read_text() == "new"


def test_a_folder_without_summary_of_ours_keeps_the_user_s(here):
    Path("out").mkdir()
    Path("out", SUMMARY).write_text("mine")
    with atomic_folder(Path("out")) as part:
        (part / "x").write_text("new")
    assert Path("out", SUMMARY).read_text() == "mine"
