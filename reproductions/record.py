"""Store the results of long runs, for the papers and the benchmarks.

A store is a file of JSON lines, one per finished part. A line has the `key` of its configuration, the results, and
`made`: the command, date, commit, machine and versions that made it. The last line with a key counts. A page or a
README shows the lines and their origin.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from dissensus.common.json_lines import JsonLinesStore

ROOT = Path(__file__).parent.parent
PACKAGES = ("dissensus", "numpy", "scipy", "scikit-learn", "numba", "pyarrow", "torch", "transformers")
MAX_BUSY_SHARE = 0.2
"""Largest share of the processor that other programs may use before a run; above it, times are preliminary."""
Results = dict[str, dict[str, Any]]
"""Key of a configuration → its line."""
Provenance = dict[str, Any]
"""Command, date, commit, machine and versions of a line."""


# Provenance of a result -----------------------------------------------------------------------------------------------


def provenance(*, device: str | None = None, busy: bool = False) -> Provenance:
    """Return command, date, commit, machine and versions; `busy` measures the load of the machine for two seconds.

    Call it in the main process, because workers have another command line.
    """
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    models = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    made = {
        "by": command_line(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": current_commit(),
        "versions": installed_versions(PACKAGES),
        "python": platform.python_version(),
        "cpu": models[0] if models else platform.processor() or platform.machine(),
        "cores": n_cores(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
    }
    if device is not None:
        made["device"] = device_name(device)
    if busy:
        made["others"] = round(busy_share(), 2)
    return made


def command_line() -> str:
    """Return `python -m MODULE ARGUMENTS` as this process was started, without paths of this machine."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    words = ["python", "-m", "unknown" if spec is None else spec.name.removesuffix(".__main__")]
    for word in sys.argv[1:]:
        if os.sep not in word:
            words.append(word)
        elif words[-1].startswith("-"):
            words.pop()  # Remove the option of the path.
    return " ".join(words)


def current_commit() -> str | None:
    """Return the commit of the source, with "-dirty" if files have changed since; None outside a checkout."""
    words = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    try:
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip() or None


def commit_text(made: Provenance) -> str:
    """Return the commit as text, "with changes" for a commit that `git describe` marks as dirty."""
    return str(made.get("commit") or "unknown").replace("-dirty", " with changes")


def installed_versions(packages: Sequence[str]) -> dict[str, str]:
    """Return the versions of the installed packages among these."""
    found = {}
    for name in packages:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def device_name(device: str) -> str:
    """Return the name of the device that "auto", "cpu" or "cuda" selects on this machine."""
    try:
        import torch
    except ImportError:
        return "CPU"
    if device == "cpu" or not torch.cuda.is_available():
        return "CPU"
    rounded = torch.get_float32_matmul_precision() != "highest"  # Tensor cores round float32 products.
    return f"{torch.cuda.get_device_name()}{' (TF32)' if rounded else ''}"


def n_cores() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def busy_share(seconds: float = 2.0) -> float:
    """Return the share of all cores in use now; the load average would include an earlier benchmark."""

    def ticks() -> tuple[int, int]:
        spent = [int(count) for count in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        return sum(spent), spent[3] + spent[4]  # all, idle

    if not Path("/proc/stat").exists():
        return float("nan")
    all_before, idle_before = ticks()
    time.sleep(seconds)
    all_after, idle_after = ticks()
    return 1 - (idle_after - idle_before) / (all_after - all_before)


def describe_provenance(made: Provenance, packages: dict[str, dict[str, str]] | None = None) -> str:
    """Return date, commit, machine and versions as a sentence; `packages` are the versions of peers, by peer."""
    machine = f"{made['cpu']}, {made['cores']} cores, {made['memory_gb']} GB"
    text = f"{made['date']}, commit {commit_text(made)}; {machine}"
    if "device" in made:
        text += f", {made['device']}"
    if "others" in made:
        text += f", {made['others']:.0%} of the processor used by others before the run"
        text += " (**times are preliminary**)" if made["others"] > MAX_BUSY_SHARE else ""
    each = packages or {"": made.get("versions", {})}
    listed = [
        (f"{name}: " if name else "") + ", ".join(f"{package} {number}" for package, number in found.items())
        for name, found in each.items()
        if found
    ]
    return f"{text}. {'; '.join(listed)}{'.' if listed else ''}".rstrip()


# Stores ---------------------------------------------------------------------------------------------------------------


def hash_configuration(configuration: Any) -> str:
    """Return the hash of a part's configuration."""
    return hashlib.sha256(json.dumps(configuration, sort_keys=True).encode()).hexdigest()[:16]


def read_store(path: Path) -> Results:
    """Read the lines of a store by key; the last line with a key counts."""
    return JsonLinesStore(path).by_key()


def add_line(store: JsonLinesStore, key: str, made: Provenance, found: dict[str, Any]) -> dict[str, Any]:
    """Append a finished part to a store, and return its line."""
    line = {"key": key, **found, "made": made}
    store.add(line)
    return line


def publish(
    readme: Path, name: str, made: Provenance, found: dict[str, Any], tables: Sequence[str],
    packages: dict[str, dict[str, str]] | None = None,
) -> None:  # fmt: skip
    """Append a run to `results/NAME.jsonl` next to a README, and write its tables between the marks NAME there."""
    add_line(JsonLinesStore(store_path(readme.parent, name)), name, made, found)
    replace_between_marks(readme, name, "\n\n".join([describe_provenance(made, packages), *tables]))


def store_path(folder: Path, name: str) -> Path:
    """Return `FOLDER/results/NAME.jsonl`, after making the folder."""
    (folder / "results").mkdir(parents=True, exist_ok=True)
    return folder / "results" / f"{name}.jsonl"


# Markdown -------------------------------------------------------------------------------------------------------------


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]], text_columns: int | None = 1) -> str:
    """Return a Markdown table; columns after the first `text_columns` are numbers, or no column for None."""
    figures = 0 if text_columns is None else len(head) - text_columns
    rule = ["---"] * (len(head) - figures) + ["---:"] * figures

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

    return "\n".join(map(line, [head, rule, *rows]))


def replace_between_marks(readme: Path, name: str, text: str) -> None:
    """Put text between `<!-- name: begin -->` and `<!-- name: end -->`."""
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
    before, rest = readme.read_text(encoding="utf-8").split(begin)
    after = rest.split(end)[1]
    readme.write_text(f"{before}{begin}{text.rstrip()}\n{end}{after}", encoding="utf-8")
