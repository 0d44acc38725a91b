"""Compare the time of a fit, and its labels, with those of another commit, in turns on one machine.

    python -m benchmarks.speed.before_after COMMIT [--rows 1000000] [--rounds 5] [METHOD …]

The other commit is checked out into a temporary folder. Both are started in turns, each time in a fresh process that
makes the same table, fits every method twice (the first time compiles) and says how long the second took. The least of
all rounds counts: other work on the machine can only add to it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from reproductions.record import ROOT

METHODS = (
    "majority-vote", "wawa", "zero-based-skill", "one-coin", "dawid-skene", "hierarchical-dawid-skene", "mace", "glad",
    "m-msr", "snorkel", "mmce", "metal", "community-bcc",
)  # fmt: skip
CHILD = """
import json, sys, time, warnings
import dissensus as dz
from dissensus.table.simulate import simulate
warnings.simplefilter("ignore")
rows, names = int(sys.argv[1]), sys.argv[2:]
table = simulate(rows // 5, max(rows // 500, 10), 5, redundancy=5, seed=0).annotations
found = {}
for name in names:
    took = []
    for _ in range(2):
        began = time.perf_counter()
        model = dz.methods[name]().fit(table)
        took.append(time.perf_counter() - began)
    found[name] = [took[1], model.n_iter_, model.posterior_.argmax(axis=1).tolist()]
print(json.dumps(found))
"""


def run(source: Path, rows: int, names: list[str]) -> dict[str, Any]:
    """Return method → seconds, passes and labels, by the package in `source`."""
    command = [sys.executable, "-c", CHILD, str(rows), *names]
    environment = os.environ | {"PYTHONPATH": str(source / "src")}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout))


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit")
    parser.add_argument("methods", nargs="*", default=list(METHODS))
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_intermixed_args()
    with tempfile.TemporaryDirectory() as folder:
        other = Path(folder) / "other"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--detach", str(other), options.commit], check=True, capture_output=True)
        try:
            rounds = [
                [run(source, options.rows, options.methods) for source in (other, ROOT)] for _ in range(options.rounds)
            ]
        finally:
            subprocess.run([*git, "remove", "--force", str(other)], check=True)
    print("| method | before, s | now, s | ratio | passes before, now | same labels |\n|---|---|---|---|---|---|")
    for name in options.methods:
        before, now = (min(one[side][name] for one in rounds) for side in (0, 1))
        same = sum(a == b for a, b in zip(before[2], now[2], strict=True)) / len(now[2])
        seconds = f"{before[0]:.3f} | {now[0]:.3f} | {now[0] / before[0]:.2f}"
        print(f"| {name} | {seconds} | {before[1]}, {now[1]} | {same:.4%} |")


if __name__ == "__main__":
    main()
