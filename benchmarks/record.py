"""How a run is kept: where it was made, a dated JSON, and tables written into a README between two marks."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
BUSY = 0.2  # share of the processor that others use, from which the times of a run are called preliminary


def provenance() -> dict[str, Any]:
    """Date, commit, machine and how busy it is. Call it before the run."""

    def git(*words: str) -> str | None:
        if shutil.which("git") is None:
            return None
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else None

    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    models = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": git("rev-parse", "--short", "HEAD"),
        "changed_since_commit": bool(git("status", "--porcelain", "--untracked-files=no")),
        "cpu": models[0] if models else platform.processor() or platform.machine(),
        "cores": cores(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "others": round(busy_share(), 2),
    }


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0))


def busy_share(seconds: float = 2.0) -> float:
    """Share of all cores that is in use now; not the load average, which still remembers the benchmark before."""

    def ticks() -> tuple[int, int]:
        spent = [int(count) for count in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        return sum(spent), spent[3] + spent[4]  # all, idle

    if not Path("/proc/stat").exists():
        return float("nan")
    (all_before, idle_before), _ = ticks(), time.sleep(seconds)
    all_after, idle_after = ticks()
    return 1 - (idle_after - idle_before) / (all_after - all_before)


def sentence(made: dict[str, Any], versions: dict[str, dict[str, str]]) -> str:
    """The line above a table: when, on what, with which versions."""
    commit = f"commit {made['commit']}" if made["commit"] else "before the first commit"
    if made["commit"] and made["changed_since_commit"]:
        commit += " with changes"
    busy = f", {made['others']:.0%} of the processor used by others before the run"
    if made["others"] >= BUSY:
        busy += " (**times are preliminary**)"
    with_versions = "; ".join(
        f"{name}: " + ", ".join(f"{package} {number}" for package, number in packages.items())
        for name, packages in versions.items()
    )
    machine = f"{made['cpu']}, {made['cores']} cores, {made['memory_gb']} GB"
    return f"{made['date']}, {commit}; {machine}{busy}. {with_versions}."


def save(folder: Path, name: str, made: dict[str, Any], content: dict[str, Any], indent: int | None = 1) -> Path:
    """`<folder>/results/<date>-<name>.json`; a later run of the same day replaces it. No indent: all in one line."""
    path = folder / "results" / f"{made['date'][:10]}-{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"made": made} | content, indent=indent) + "\n")
    return path


def splice(readme: Path, name: str, text: str) -> None:
    """Put text between `<!-- name: begin -->` and `<!-- name: end -->`."""
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
    before, rest = readme.read_text().split(begin)
    after = rest.split(end)[1]
    readme.write_text(f"{before}{begin}{text.rstrip()}\n{end}{after}")


def table(head: list[str], rows: list[list[str]], left: int = 1) -> str:
    """A Markdown table; the first `left` columns are text, the others figures."""
    rule = ["---"] * left + ["---:"] * (len(head) - left)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [head, rule, *rows])
