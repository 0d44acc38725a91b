"""Show for each dependency, extras included, which wheel a Python would install: `python -m release.wheels 3.14`.

Versions are those of constraints.txt. Exits 1 where one has a wheel for the oldest Python and none for this one.
Nothing is installed; pip reads metadata alone.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from release import ROOT, project

NOT_FOR_USERS = ("dev", "docs", "release")  # extras
OLDEST = "3.11"


def needed_by() -> dict[str, list[str]]:
    """Name of a package → the extras that name it; "core" is what everybody installs."""
    about = project()
    found: dict[str, list[str]] = {}
    extras = {name: lines for name, lines in about["optional-dependencies"].items() if name not in NOT_FOR_USERS}
    for extra, lines in ({"core": about["dependencies"]} | extras).items():
        for line in lines:
            name, more = re.match(r"([\w-]+)(?:\[(\w+)\])?", line).groups()  # type: ignore[union-attr]
            for one in [name, f"{name}-{more}"] if more else [name]:  # psycopg[binary] needs psycopg-binary
                found.setdefault(one, []).append(extra)
    return found


def wheel(requirement: str, python: str) -> str | None:
    """Return the file that pip would install, or None if there is no wheel for this Python."""
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--disable-pip-version-check"]
        which = ["--no-deps", "--only-binary", ":all:", "--python-version", python, "--target", folder]
        asked = [*pip, *which, "--report", f"{folder}/report.json", requirement]
        if subprocess.run(asked, capture_output=True).returncode:
            return None
        report = json.loads(Path(folder, "report.json").read_text(encoding="utf-8"))
        return str(report["install"][0]["download_info"]["url"]).rpartition("/")[2]


def main() -> None:
    """Print a row for each dependency."""
    python = sys.argv[1]
    pins = dict(re.findall(r"(?m)^([\w-]+)==(\S+)", (ROOT / "constraints.txt").read_text(encoding="utf-8")))
    print(f"| package | version | for | wheel for Python {python} |\n|---|---|---|---|")
    lacking = []
    for name, extras in needed_by().items():
        found = wheel(f"{name}=={pins[name]}", python)
        tags = "" if found is None else "-".join(found.removesuffix(".whl").split("-")[-3:-1])
        if found is None:
            everywhere = wheel(f"{name}=={pins[name]}", OLDEST) is None
            tags = "source only, on every Python" if everywhere else "none"
            lacking += [] if everywhere else [name]
        print(f"| {name} | {pins[name]} | {', '.join(extras)} | {tags} |", flush=True)
    if lacking:
        sys.exit(f"no wheel for Python {python}: {', '.join(lacking)}")


if __name__ == "__main__":
    main()
