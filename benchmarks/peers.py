"""Peer libraries, each in an environment of its own, and the jobs they do.

A peer is one entry of `PEERS`, a file of pinned versions and a worker that keeps `peers/protocol.py`. Its environment,
`.peers/<name>`, is made when first needed and again when its pins change. We are run by the same protocol, so that both
sides are measured alike.

    python -m benchmarks.peers          make every environment
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent
ENVIRONMENTS = FOLDER.parent / ".peers"


@dataclass(frozen=True)
class Peer:
    """A library to compare with."""

    worker: str  # file in peers/
    pins: str | None  # file in peers/, every package listed (installed without dependencies); None: this environment


PEERS = {
    "dissensus": Peer("ours.py", None),
    "crowd-kit": Peer("crowd_kit.py", "crowd-kit.txt"),
    "crowd-kit-pandas2": Peer("crowd_kit.py", "crowd-kit-pandas2.txt"),
    "cleanlab": Peer("for_cleanlab.py", "cleanlab.txt"),
    "peerannot": Peer("for_peerannot.py", "peerannot.txt"),
    "snorkel": Peer("for_snorkel.py", "snorkel.txt"),
}


def environment(name: str) -> Path:
    """Return the Python of a peer's environment, which is made if it is missing or its pins have changed."""
    peer = PEERS[name]
    if peer.pins is None:
        return Path(sys.executable)
    folder, pins = ENVIRONMENTS / name, FOLDER / "peers" / peer.pins
    python, stamp = folder / "bin" / "python", folder / "stamp"
    wanted = f"python {sys.version_info.major}.{sys.version_info.minor}\n{pins.read_text()}"
    if not stamp.exists() or stamp.read_text() != wanted:
        print(f"making the environment of {name} in {folder.relative_to(FOLDER.parent)} …", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [python, "-m", "pip", "--quiet", "--no-input", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", "--no-deps", "--requirement", pins], check=True)
        stamp.write_text(wanted)
    return python


@dataclass(frozen=True)
class Data:
    """A table on disk, as codes."""

    folder: Path
    n_items: int
    n_classes: int

    @classmethod
    def write(cls, folder: Path, item: Any, annotator: Any, label: Any, n_items: int, n_classes: int) -> Data:
        """Write the codes in their smallest types, as our own table holds them."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, codes, dtype in (
            ("item", item, np.int32),
            ("annotator", annotator, np.int32),
            ("label", label, np.min_scalar_type(-n_classes)),
        ):
            np.save(folder / f"{name}.npy", np.asarray(codes, dtype))
        return cls(folder, n_items, n_classes)


def run(
    name: str,
    data: Data | Sequence[Data],
    fits: Sequence[dict[str, Any]],
    *,
    keep: str = "posterior",
    threads: int = 1,
    variables: dict[str, str] | None = None,
    use: Callable[[int, np.ndarray], Any] | None = None,
) -> tuple[dict[str, Any], list[Any]]:
    """Fit in a process of its own: what `protocol.serve` reports, and the posterior or label of every fit.

    Each fit is {"method": name, "params": keywords} with what else `protocol` knows; `variables` are added to the
    process's environment. With `use`, what it makes of (number of the fit, answer) stands for the answers, which are
    read one by one. Fits that fail are errors, unless they have a limit: then there is None, and why in the report.
    """
    python = environment(name)
    tables = [data] if isinstance(data, Data) else data
    with tempfile.TemporaryDirectory(prefix="dissensus-job-") as job:
        tasks = [{"data": str(t.folder), "n_items": t.n_items, "n_classes": t.n_classes} for t in tables]
        Path(job, "job.json").write_text(json.dumps({"tables": tasks, "fits": list(fits), "keep": keep}))
        limits = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), str(threads))
        done = subprocess.run(
            [python, FOLDER / "peers" / PEERS[name].worker, job],
            env=os.environ | limits | (variables or {}),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"the worker of {name} failed (exit {done.returncode}):\n{done.stderr[-4000:]}")
        result = json.loads(Path(job, "result.json").read_text())
        answers: list[Any] = []
        for number, fit in enumerate(result["fits"]):
            if fit["error"] and "limit" not in fit:
                raise RuntimeError(f"{fit['method']} of {name} failed: {fit['error']}")
            answer = None if fit["error"] else np.load(Path(job, f"{number}.npy"))
            answers.append(answer if use is None or answer is None else use(number, answer))
        return result, answers


if __name__ == "__main__":
    for peer in PEERS:
        environment(peer)
