"""What a worker does with a job. Runs in a peer's environment: the standard library and numpy only.

A job is a folder with `job.json`:

    data       a folder with item.npy, annotator.npy, label.npy: (N,) codes
    n_items, n_classes
    fits       a list of {"method", "params"}, run one after the other in this process
    keep       "posterior" or "label": what is written of each fit, as `<n>.npy`

The worker adds `result.json`: the versions, the seconds and memory of making its table, of a first fit of a few rows
(where compilers and lazy imports are paid for) and of every fit. Memory is in bytes of resident set.

A worker hands `serve` three functions: `prepare(item, annotator, label, n_items, n_classes)` makes the library's own
table, `fit(table, method, params)` fits, `read(model)` gives (posterior (I, K), iterations, trace of the objective).
"""

import gc
import json
import platform
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

FEW = 200  # rows of the first fit


def serve(
    prepare: Callable[..., Any], fit: Callable[..., Any], read: Callable[[Any], Any], packages: list[str]
) -> None:
    """Do the job in the folder that the command line names."""
    folder = Path(sys.argv[1])
    job = json.loads((folder / "job.json").read_text())
    sizes = job["n_items"], job["n_classes"]
    result: dict[str, Any] = {
        "versions": {"python": platform.python_version()} | {name: version(name) for name in packages},
        "imported_bytes": memory("VmRSS"),
    }
    columns = [np.load(Path(job["data"]) / f"{name}.npy") for name in ("item", "annotator", "label")]

    step = max(1, columns[0].size // FEW)
    begin = time.perf_counter()
    fit(prepare(*(column[::step] for column in columns), *sizes), job["fits"][0]["method"], job["fits"][0]["params"])
    result["first_call_seconds"] = time.perf_counter() - begin

    begin = time.perf_counter()
    table = prepare(*columns, *sizes)
    result["prepare_seconds"] = time.perf_counter() - begin
    del columns
    peaks, result["fits"] = [memory("VmHWM")], []
    for number, spec in enumerate(job["fits"]):
        gc.collect()
        held = memory("VmRSS")
        reset = reset_peak()
        begin = time.perf_counter()
        model = fit(table, spec["method"], spec["params"])
        seconds = time.perf_counter() - begin
        peaks.append(memory("VmHWM"))
        posterior, iterations, trace = read(model)
        rises = np.diff(np.asarray(trace, float))
        result["fits"].append(
            spec
            | {
                "seconds": seconds,
                "iterations": int(iterations),
                "last_rise": float(rises[-1]) if rises.size else None,  # of the library's own objective
                "falls": int((rises < 0).sum()),
                "held_bytes": held,
                "fit_peak_bytes": peaks[-1] if reset else None,  # None: this system cannot tell one fit's peak
            }
        )
        np.save(folder / f"{number}.npy", posterior if job["keep"] == "posterior" else posterior.argmax(axis=1))
        del model, posterior
    result["peak_bytes"] = max(peaks)  # to the end of the last fit
    (folder / "result.json").write_text(json.dumps(result))


def memory(field: str) -> int:
    """VmRSS or VmHWM of this process in bytes.

    VmHWM is the peak that `ru_maxrss` means to give; that one also counts what the parent held when it started us.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {field}; these benchmarks measure memory on Linux only.")


def reset_peak() -> bool:
    """Start VmHWM afresh; whether the system let us."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True
