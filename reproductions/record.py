"""Records of long runs, shared by the papers and the benchmarks.

A store is a file of JSON lines, one per finished part. A line has the `key` of its configuration, what was found, and
`made`: the command, date, commit, machine and versions that made it. The last line of a key counts. A page or a README
shows the lines and says where they were made.
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
"""If other programs used a larger share of the processor before a run, its times are called preliminary."""
Results = dict[str, dict[str, Any]]
"""Key of a configuration → its line."""
Made = dict[str, Any]
"""Where a line was made."""


# Where a result was made ----------------------------------------------------------------------------------------------


def provenance(*, device: str | None = None, busy: bool = False) -> Made:
    """Command, date, commit, machine and versions; `busy` measures for two seconds how busy the machine is.

    Call it in the main process: workers have another command line.
    """
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    models = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    made = {
        "by": command_line(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit(),
        "versions": versions(PACKAGES),
        "python": platform.python_version(),
        "cpu": models[0] if models else platform.processor() or platform.machine(),
        "cores": cores(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
    }
    if device is not None:
        made["device"] = device_name(device)
    if busy:
        made["others"] = round(busy_share(), 2)
    return made


def command_line() -> str:
    """`python -m MODULE ARGUMENTS`, as this process was started, without paths: they are of one machine."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    words = ["python", "-m", "unknown" if spec is None else spec.name.removesuffix(".__main__")]
    for word in sys.argv[1:]:
        if os.sep not in word:
            words.append(word)
        elif words[-1].startswith("-"):
            words.pop()  # the option that the path belongs to
    return " ".join(words)


def commit() -> str | None:
    """The commit of the source, with "-dirty" where files have changed since; None outside a checkout."""
    words = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    try:
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip() or None


def commit_text(made: Made) -> str:
    """The commit for people; `git describe` says "-dirty" of a checkout with changes."""
    return str(made.get("commit") or "unknown").replace("-dirty", " with changes")


def versions(packages: Sequence[str]) -> dict[str, str]:
    """The versions of those packages that are installed."""
    found = {}
    for name in packages:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def device_name(device: str) -> str:
    """What "auto", "cpu" or "cuda" is on this machine."""
    try:
        import torch
    except ImportError:
        return "CPU"
    if device == "cpu" or not torch.cuda.is_available():
        return "CPU"
    rounded = torch.get_float32_matmul_precision() != "highest"  # products of float32 in the tensor cores
    return f"{torch.cuda.get_device_name()}{' (TF32)' if rounded else ''}"


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def busy_share(seconds: float = 2.0) -> float:
    """Share of all cores in use now; the load average would still remember the benchmark before."""

    def ticks() -> tuple[int, int]:
        spent = [int(count) for count in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        return sum(spent), spent[3] + spent[4]  # all, idle

    if not Path("/proc/stat").exists():
        return float("nan")
    all_before, idle_before = ticks()
    time.sleep(seconds)
    all_after, idle_after = ticks()
    return 1 - (idle_after - idle_before) / (all_after - all_before)


def sentence(made: Made, packages: dict[str, dict[str, str]] | None = None) -> str:
    """Say when, at which commit, on what machine and with which versions; `packages`: those of peers, by peer."""
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


def key_of(configuration: Any) -> str:
    """Hash of everything that a part is told."""
    return hashlib.sha256(json.dumps(configuration, sort_keys=True).encode()).hexdigest()[:16]


def read_store(path: Path) -> Results:
    """The lines of a store by key; the last of a key counts."""
    return JsonLinesStore(path).by_key()


def add_line(store: JsonLinesStore, key: str, made: Made, found: dict[str, Any]) -> dict[str, Any]:
    """Append a finished part to a store, and return its line."""
    line = {"key": key, **found, "made": made}
    store.add(line)
    return line


def publish(
    readme: Path, name: str, made: Made, found: dict[str, Any], tables: Sequence[str],
    packages: dict[str, dict[str, str]] | None = None,
) -> None:  # fmt: skip
    """Append a whole run to `results/NAME.jsonl` beside a README, and write its tables between NAME's marks there."""
    add_line(JsonLinesStore(store_path(readme.parent, name)), name, made, found)
    splice(readme, name, "\n\n".join([sentence(made, packages), *tables]))


def store_path(folder: Path, name: str) -> Path:
    """`FOLDER/results/NAME.jsonl`; makes the folder."""
    (folder / "results").mkdir(parents=True, exist_ok=True)
    return folder / "results" / f"{name}.jsonl"


# Markdown -------------------------------------------------------------------------------------------------------------


def table(head: Sequence[str], rows: Sequence[Sequence[str]], text_columns: int | None = 1) -> str:
    """A Markdown table; columns after the first `text_columns` are figures, and None of them with None."""
    figures = 0 if text_columns is None else len(head) - text_columns
    rule = ["---"] * (len(head) - figures) + ["---:"] * figures

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

    return "\n".join(map(line, [head, rule, *rows]))


def splice(readme: Path, name: str, text: str) -> None:
    """Put text between `<!-- name: begin -->` and `<!-- name: end -->`."""
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
    before, rest = readme.read_text(encoding="utf-8").split(begin)
    after = rest.split(end)[1]
    readme.write_text(f"{before}{begin}{text.rstrip()}\n{end}{after}", encoding="utf-8")
