"""What `make release` checks, on a wheel that is made here; `make test-wheel` has the wheel itself."""

import re
import tomllib
import zipfile

import pytest

import release.__main__ as made
from dissensus import methods
from release import ROOT, project, version
from release.lowest import lowest

CHANGELOG = """# Changelog

## [Unreleased]

### Added

- New.

### Fixed

- Mended.

## [1.0] - 2026-01-01

The first.

### Fixed

- Older.

## [0.9] - 2025-01-01

### Added

- Oldest.
"""


def test_the_version_is_the_same_everywhere():
    assert made.version_faults(version()) == []
    assert len(made.version_faults("9.9")) == len(made.VERSIONED) + 1


def test_notes_fold_what_is_unreleased_into_the_version():
    notes = made.folded(CHANGELOG, "1.0")
    assert notes == "The first.\n\n### Added\n\n- New.\n\n### Fixed\n\n- Mended.\n- Older.\n"


def test_folding_leaves_the_changelog_empty_above_and_the_rest_as_it_was(tmp_path, monkeypatch):
    for name, text in {
        "CHANGELOG": CHANGELOG,
        "CITATION": "version: 0.9\ndate-released: 2025-01-01\n",
        "RECIPE": 'context:\n  version: "0.9"\n',
    }.items():
        (tmp_path / name).write_text(text)
        monkeypatch.setattr(made, name, tmp_path / name)
    monkeypatch.setattr(
        made, "VERSIONED", dict(zip((made.CITATION, made.RECIPE), made.VERSIONED.values(), strict=True))
    )
    made.fold("1.0", "2026-02-02")
    text = (tmp_path / "CHANGELOG").read_text()
    assert text.startswith("# Changelog\n\n## [Unreleased]\n\n## [1.0] - 2026-02-02\n\nThe first.")
    assert text.endswith("\n## [0.9] - 2025-01-01\n\n### Added\n\n- Oldest.\n")
    assert text.count("- Mended.\n- Older.") == 1
    assert made.CITATION.read_text() == "version: 1.0\ndate-released: 2026-02-02\n"
    assert made.version_faults("1.0") == []


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({}, None),
        ({"docs/a.md": b""}, "holds docs/a.md, which is not of the package."),
        ({"dissensus/py.typed": None}, "lacks dissensus/py.typed."),
        ({"dissensus/a/__pycache__/b.pyc": b""}, "holds dissensus/a/__pycache__/b.pyc, which nobody needs."),
        ({"dissensus/large": bytes(5_000_000)}, "bytes; 5,000,000 are the limit."),
    ],
)
def test_a_wheel_that_is_not_as_it_should_be_is_refused(tmp_path, change, fault):
    about = "dissensus-1.0.dist-info/"
    names = [*(f"dissensus/{one}" for one in made.DATA), f"{about}licenses/LICENSE", f"{about}entry_points.txt"]
    files = dict.fromkeys(names, b"") | change
    wheel = tmp_path / "dissensus-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, data in files.items():
            if data is not None:
                archive.writestr(name, data)
    found = made.faults(wheel, "1.0")
    assert [one.endswith(fault) for one in found] == [True] if fault else found == []


def test_lowest_versions_are_those_of_the_project():
    found = lowest(["serve"])
    assert len(found) == len({line.split("==")[0] for line in found}) > 12
    pins = dict(line.split("==") for line in found)
    for line in project()["dependencies"]:
        name, bound = line.split(">=")
        assert pins[name] == bound


def test_the_recipe_has_the_dependencies_of_the_project():
    recipe = made.RECIPE.read_text(encoding="utf-8")
    run = recipe.split("  run:\n")[1].split("  run_constraints")[0]
    there = {tuple(re.split(r" >=", line.strip("- "))) for line in run.strip().splitlines()}
    assert there == {("python", "3.11"), *(tuple(line.split(">=")) for line in project()["dependencies"])}
    beside = recipe.split("  run_constraints")[1].split("\n\n")[0]
    lowest_of_extras = dict(line.split("==") for line in lowest(["learning", "disk", "serve"]))
    names = {"pytorch": "torch", "python-duckdb": "duckdb"}  # conda-forge's
    bounds = dict(re.findall(r"- ([\w-]+) >=(\S+)", beside))
    assert bounds
    assert {names.get(name, name): bound for name, bound in bounds.items()}.items() <= lowest_of_extras.items()


def test_every_dependency_has_a_pin():
    pins = set(re.findall(r"(?m)^([\w-]+)==", (ROOT / "constraints.txt").read_text(encoding="utf-8")))
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    wanted = {re.match(r"[\w-]+", line)[0] for lines in (*extras.values(), project()["dependencies"]) for line in lines}
    assert wanted <= pins, wanted - pins


def test_the_figures_of_the_paper_are_those_of_the_pages():
    paper = (ROOT / "paper" / "paper.md").read_text(encoding="utf-8")
    pages = ("docs/benchmarks.md", "docs/study/what-is-a-label-worth.md", "benchmarks/trust/README.md")
    text = " ".join((ROOT / page).read_text(encoding="utf-8") for page in pages)
    body = re.sub(r"@\w+|`[^`]*`|\]\([^)]*\)|\\\w+\{[^}]*\}", "", paper.split("---", 2)[2])
    figures = set(re.findall(r"(?<![\w.])[-+]?\d[\d,.]*\d|(?<![\w.])\d", body))
    assert len(figures) > 30
    peers = re.findall(r"\| (\d+) \| [\d.]+ \| [\d.]+(?: ▼)? \| \d+/(\d+) \| .*?\| (?:\d+/(\d+)|–) \| [^|]+ \|\n", text)
    tables, less_right, more_loss = (sum(int(one or 0) for one in column) for column in zip(*peers, strict=True))
    figures -= {str(less_right), str(more_loss)}  # sums, which stand on no page
    assert [one for one in figures if not re.search(rf"(?<![\d.]){re.escape(one)}(?![\d])", text)] == []
    assert f"less often right in {less_right} of more than {tables // 100 * 100} comparisons" in body
    assert f"a significantly larger log loss in {more_loss}," in body
    assert f"fits {len(methods)} methods" in paper
    cited = set(re.findall(r"@(\w+\d{4})", paper))
    assert cited == set(re.findall(r"(?m)^@\w+\{(\w+),", (ROOT / "paper" / "paper.bib").read_text(encoding="utf-8")))
    assert len(paper.split()) < 1100  # two pages
