from __future__ import annotations

from pathlib import Path

import pytest

from dissensus.cli.folder import SUMMARY, atomic_folder
from dissensus.exceptions import UnwritableFile


def test_new_folder_appears_with_all_its_files_or_not_at_all(here):
    with atomic_folder(Path("a/b")) as part:
        (part / "x").write_text("1")
        (part / "sub").mkdir()
        (part / "sub" / "y").write_text("2")
        assert not Path("a/b").exists()
    assert sorted(str(path) for path in here.rglob("*")) == [
        str(here / p) for p in ("a", "a/b", "a/b/sub", "a/b/sub/y", "a/b/x")
    ]


def test_summary_goes_first_and_comes_last(here, monkeypatch):
    """A run killed between two moves leaves a folder that does not look complete."""
    Path("out").mkdir()
    for name in ("a", "b", SUMMARY):
        Path("out", name).write_text("old")
    moved = []
    real = Path.replace

    def replace(self, target):
        if self.name != "a":
            raise OSError(5, "Input/output error")
        moved.append(self.name)
        return real(self, target)

    def write():
        with atomic_folder(Path("out")) as part:
            for name in ("a", "b", SUMMARY):
                (part / name).write_text("new")
            monkeypatch.setattr(Path, "replace", replace)

    with pytest.raises(UnwritableFile, match="cannot write into out: Input/output error"):
        write()
    assert moved == ["a"]
    assert {path.name: path.read_text() for path in Path("out").iterdir()} == {"a": "new", "b": "old"}


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
