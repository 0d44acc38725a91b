"""The files around the library agree with it: the version, the citation, the changelog, what a commit must pass."""

import re
import tomllib
from pathlib import Path

import dissensus

ROOT = Path(__file__).parent.parent


def test_the_version_is_written_in_the_package_and_the_others_agree():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "version" not in project["project"]
    assert project["project"]["dynamic"] == ["version"]
    source = (ROOT / project["tool"]["hatch"]["version"]["path"]).read_text(encoding="utf-8")
    assert re.findall(r'^__version__ = "(.+)"$', source, re.MULTILINE) == [dissensus.__version__]
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r"^version: (.+)$", citation, re.MULTILINE) == [dissensus.__version__]


def test_the_changelog_has_a_place_for_what_is_next_and_the_version_that_is():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    heads = re.findall(r"^## \[(.+?)\](?: - (\d{4}-\d\d-\d\d))?$", text, re.MULTILINE)
    assert heads[0] == ("Unreleased", "")
    assert heads[1][0] == dissensus.__version__
    released = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"date-released: {heads[1][1]}" in released
    kinds = re.findall(r"^### (.+)$", text, re.MULTILINE)
    assert set(kinds) <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_a_commit_is_held_to_what_make_lint_runs():
    hooks = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    recipe = re.search(r"^lint:.*\n((?:\t.+\n)+)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)[1]
    for line in recipe.splitlines():
        assert line.strip().removesuffix(" .").replace("$(BIN)", ".venv/bin") in hooks
    assert re.findall(r"repo: (.+)", hooks) == ["local"]  # nothing is fetched


def test_the_library_imports_neither_the_papers_nor_the_benchmarks():
    for path in (ROOT / "src").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"^\s*(from|import) (reproductions|benchmarks|tests)\b", text, re.MULTILINE), path
