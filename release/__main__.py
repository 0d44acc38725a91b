"""Build a release, check it and write its notes: `make release`, which is `python -m release`.

Checks: the version is the same everywhere, twine finds no fault, the wheel holds the package and nothing else, and is
smaller than 5 MB. dist/ then has the wheel, the source archive and NOTES.md. `--fold` first moves what CHANGELOG.md has
under *Unreleased* under the version, and writes the version and today's date into CITATION.cff and the recipe.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import zipfile
from datetime import UTC, datetime
from pathlib import Path

from release import ROOT, version

MAX_WHEEL_BYTES = 5_000_000
DATA = ("py.typed", *(f"report/{name}" for name in ("page.html", "page.css", "common.js", "page.js")))
"""What the package needs beside code."""
CHANGELOG, CITATION, RECIPE = ROOT / "CHANGELOG.md", ROOT / "CITATION.cff", ROOT / "release" / "recipe" / "recipe.yaml"
VERSIONED = {CITATION: r"(?m)^version: (.+)$", RECIPE: r'(?m)^  version: "(.+)"$'}
ORDER = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")


def sections(text: str) -> dict[str, str]:
    """Name of a version → what stands under its heading."""
    parts = re.split(r"(?m)^## \[(.+?)\].*\n", text)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def folded(changelog: str, name: str) -> str:
    """Return the sections under *Unreleased* and under a version, each kind of change once."""
    found: dict[str, list[str]] = {}
    first = []
    for part in (sections(changelog).get(one, "") for one in ("Unreleased", name)):
        intro, *kinds = re.split(r"(?m)^### (.+)\n", part)
        first += [intro.strip()] if intro.strip() else []
        for kind, lines in zip(kinds[::2], kinds[1::2], strict=True):
            found.setdefault(kind.strip(), []).append(lines.strip())
    ordered = sorted(found, key=lambda kind: ORDER.index(kind))
    return "\n\n".join([*first, *(f"### {kind}\n\n" + "\n".join(found[kind]) for kind in ordered)]) + "\n"


def fold(name: str, day: str) -> None:
    """Write CHANGELOG.md with nothing under *Unreleased*, and the version and day where else they stand."""
    text = CHANGELOG.read_text(encoding="utf-8")
    head = text.split("## [Unreleased]")[0]
    others = [
        part for part in re.split(r"(?m)^(?=## \[)", text)[1:] if not part.startswith(("## [Unr", f"## [{name}]"))
    ]
    new = f"{head}## [Unreleased]\n\n## [{name}] - {day}\n\n{folded(text, name)}"
    CHANGELOG.write_text("\n".join([new, *others]), encoding="utf-8")
    for path, pattern in VERSIONED.items():
        there = path.read_text(encoding="utf-8")
        line = re.search(pattern, there)
        assert line is not None, f"{path.name} has no version"
        path.write_text(there[: line.start(1)] + name + there[line.end(1) :], encoding="utf-8")
    citation = CITATION.read_text(encoding="utf-8")
    CITATION.write_text(re.sub(r"(?m)^date-released: .+$", f"date-released: {day}", citation), encoding="utf-8")


def faults(wheel: Path, name: str) -> list[str]:
    """Return the faults of a wheel, one sentence each."""
    found = []
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    about = f"dissensus-{name}.dist-info/"
    strange = sorted(one for one in names if not one.startswith(("dissensus/", about)))
    if strange:
        found.append(f"{wheel.name} holds {strange[0]}, which is not of the package.")
    needed = [*(f"dissensus/{data}" for data in DATA), f"{about}licenses/LICENSE", f"{about}entry_points.txt"]
    found += [f"{wheel.name} lacks {one}." for one in needed if one not in names]
    if unwanted := sorted(one for one in names if "__pycache__" in one or "/test_" in one):
        found.append(f"{wheel.name} holds {unwanted[0]}, which nobody needs.")
    if (size := wheel.stat().st_size) >= MAX_WHEEL_BYTES:
        found.append(f"{wheel.name} has {size:,} bytes; {MAX_WHEEL_BYTES:,} are the limit.")
    return found


def version_faults(name: str) -> list[str]:
    """Files whose version is another one, a sentence each."""
    found = []
    for path, pattern in VERSIONED.items():
        line = re.search(pattern, path.read_text(encoding="utf-8"))
        if line is None or line[1] != name:
            there = "none" if line is None else line[1]
            found.append(f"{path.name} has the version {there}, dissensus.__version__ is {name}; run --fold.")
    if name not in sections(CHANGELOG.read_text(encoding="utf-8")):
        found.append(f"CHANGELOG.md has no heading for {name}; run --fold.")
    return found


def main() -> None:
    """Build, check, write notes."""
    parser = argparse.ArgumentParser(prog="python -m release", description=__doc__)
    parser.add_argument("--fold", action="store_true")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "dist")
    asked = parser.parse_args()
    name = version()
    if asked.fold:
        fold(name, datetime.now(UTC).strftime("%Y-%m-%d"))
    subprocess.run([sys.executable, "-m", "build", "--no-isolation", "--outdir", asked.output, ROOT], check=True)
    wheel = asked.output / f"dissensus-{name}-py3-none-any.whl"
    source = asked.output / f"dissensus-{name}.tar.gz"
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", wheel, source], check=True)
    if wrong := [*version_faults(name), *faults(wheel, name)]:
        sys.exit("\n".join(wrong))
    notes = asked.output / "NOTES.md"
    notes.write_text(f"# dissensus {name}\n\n{folded(CHANGELOG.read_text(encoding='utf-8'), name)}", encoding="utf-8")
    for path in (wheel, source, notes):
        print(f"{path.name}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
