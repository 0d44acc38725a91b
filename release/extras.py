"""Measure what every extra adds on the disk, and write the table of docs/extras.md.

    python -m release.extras          # in an environment that has all extras

The size of an extra is that of all files of the packages that it needs and the core does not, as installed here.
"""

from __future__ import annotations

import platform
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from release import ROOT, project

PAGE = ROOT / "docs" / "extras.md"
WHAT = {
    "learning": "`dissensus train` and `predict`: models trained on all labels",
    "text": "texts as vectors, by a sentence encoder that is in the package",
    "umap": "maps of annotators by UMAP, in the report of an LIA model",
    "disk": "`--engine disk`: more annotations than fit into memory",
    "spark": "`--engine spark` (needs Java)",
    "hub": "data sets of Hugging Face",
    "serve": "`dissensus serve` and `adjudicate`: the HTTP service and its page",
    "postgres": "a PostgreSQL store for several workers of `dissensus serve`",
    "excel": "Excel and OpenDocument files",
}
BEGIN, END = "<!-- extras: begin -->", "<!-- extras: end -->"
MB = 1_000_000  # bytes


def needed(requirements: list[str]) -> dict[str, Distribution]:
    """All packages that some requirements bring, by name, as they are installed here."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    found: dict[str, Distribution] = {}
    left = [(Requirement(line), "") for line in requirements]
    seen = set()
    while left:
        one, extra = left.pop()
        key = (canonicalize_name(one.name), frozenset(one.extras))
        if (one.marker and not one.marker.evaluate({"extra": extra})) or key in seen:
            continue
        seen.add(key)
        found[key[0]] = distribution(one.name)
        lines = map(Requirement, found[key[0]].requires or ())
        left += [(line, wanted) for line in lines for wanted in (one.extras or {""})]
    return found


def size(package: Distribution) -> int:
    """Bytes of its files on the disk, compiled ones left out."""
    files = [Path(str(file.locate())) for file in package.files or () if file.suffix != ".pyc"]
    return sum(file.stat().st_size for file in files if file.exists())


def table() -> str:
    """One row for the core and for every extra."""
    about = project()
    core = needed(about["dependencies"])
    rows = ["| install | adds | for |", "|---|---:|---|"]

    def row(name: str, packages: dict[str, Distribution], what: str) -> str:
        total = sum(size(package) for package in packages.values()) / MB
        return f"| `{name}` | {total:,.0f} MB | {what} |"

    rows.append(row("dissensus", core, "everything else"))
    for extra, what in WHAT.items():
        try:
            packages = needed(about["optional-dependencies"][extra])
        except PackageNotFoundError as error:
            sys.exit(f"{extra}: {error} is not installed here; install all extras first.")
        rows.append(row(f"dissensus[{extra}]", {k: v for k, v in packages.items() if k not in core}, what))
    note = f"Measured with Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    return "\n".join(rows) + f"\n\n{note}, torch {distribution('torch').version}."


def main() -> None:
    """Write the table between its marks."""
    text = PAGE.read_text(encoding="utf-8")
    head, rest = text.split(BEGIN)
    tail = rest.split(END)[1]
    PAGE.write_text(f"{head}{BEGIN}\n{table()}\n{END}{tail}", encoding="utf-8")
    print(table())


if __name__ == "__main__":
    main()
