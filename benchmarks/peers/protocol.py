"""What a worker does with a job. Runs in a peer's environment: the standard library and numpy only.

A job is a folder with `job.json`:

    tables     a list of {"data", "n_items", "n_classes"}; `data` is a folder with item.npy, annotator.npy, label.npy:
               (N,) codes
    fits       a list of {"method", "params"}, run one after the other in this process; they may also hold
                 "table"   its number, 0 if left out; fits of one table should follow each other
                 "limit"   seconds, after which the fit is given up; so are, without trying, fits of the same method
                           and keywords that are as large, or that would take twice the limit at the pace of the last
                 "group", "budget"   the fits of a group end when they have taken so many seconds together
               both in processor time, so that what is done does not depend on what else the machine does
    keep       "posterior" or "label": what is written of each fit, as `<n>.npy`

The worker adds `result.json`: the versions, the seconds and memory of making its (last) table, of a first fit of a few
rows (where compilers and lazy imports are paid for) and of every fit, or why there is none ("error"). Memory is in
bytes of resident set.

A worker hands `serve` three functions: `prepare(item, annotator, label, n_items, n_classes)` makes the library's own
table (or raises `Impossible`), `fit(table, method, params)` fits, `read(model)` gives (posterior (I, K), or labels (I,)
where a method has no more to say; iterations; trace of the objective). A worker must not be named as the library that
it imports.
"""

import gc
import json
import platform
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

FIRST_FIT_ROWS = 200
HOPELESS_LIMITS = 2.0  # A fit is skipped if it would exceed its limit by this factor at the pace of the previous one.


class Impossible(Exception):
    """A method that cannot do this table, and why, in words for a cell of a results table."""


class TooSlow(Impossible):
    """A fit that ran into its limit."""


def serve(
    prepare: Callable[..., Any],
    fit: Callable[..., Any],
    read: Callable[[Any], Any],
    packages: list[str],
    *,
    compiles: bool = False,
) -> None:
    """Do the job in the folder that the command line names. `compiles`: every method has a first fit of its own."""
    folder = Path(sys.argv[1])
    job = json.loads((folder / "job.json").read_text())
    result: dict[str, Any] = {
        "versions": {"python": platform.python_version()} | {name: version(name) for name in packages},
        "imported_bytes": memory("VmRSS"),
    }

    def columns(number: int) -> tuple[list[np.ndarray], dict[str, Any]]:
        task = job["tables"][number]
        names = ("item", "annotator", "label")
        sizes = {key: task[key] for key in ("n_items", "n_classes")}
        return [np.load(Path(task["data"]) / f"{name}.npy") for name in names], sizes

    arrays, sizes = columns(job["fits"][0].get("table", 0))
    step = max(1, arrays[0].size // FIRST_FIT_ROWS)
    begin = time.perf_counter()
    few = prepared(prepare, [column[::step] for column in arrays], sizes)
    methods: dict[str, dict[str, Any]] = {}
    for spec in job["fits"] if compiles else job["fits"][:1]:
        methods.setdefault(spec["method"], spec)
    for spec in methods.values():
        attempt(fit, few, spec)  # A failure here happens again below and is reported there.
    result["first_call_seconds"] = time.perf_counter() - begin
    del arrays, few

    made, table, rows, peaks, result["fits"] = None, None, 0, [], []
    guard = Guard()
    for number, spec in enumerate(job["fits"]):
        if made != spec.get("table", 0):
            made, table = spec.get("table", 0), None  # the last one goes before the next is made
            arrays, sizes = columns(made)
            begin = time.perf_counter()
            table = prepared(prepare, arrays, sizes)
            result["prepare_seconds"] = time.perf_counter() - begin
            rows = arrays[0].size
            del arrays
            peaks.append(memory("VmHWM"))
        gc.collect()
        held = memory("VmRSS")
        reset = reset_peak()
        begin, used = time.perf_counter(), time.process_time()
        model, error = (None, why) if (why := guard.refuses(spec, rows)) else attempt(fit, table, spec)
        seconds, used = time.perf_counter() - begin, time.process_time() - used
        if not why:
            guard.saw(spec, rows, min(seconds, used), error)  # threads may have used more than has passed
        peaks.append(memory("VmHWM"))
        done: dict[str, Any] = {"seconds": seconds, "error": error}
        if error is None:
            posterior, iterations, trace = read(model)
            rises = np.diff(np.asarray(trace, float))
            done |= {
                "iterations": int(iterations),
                "last_rise": float(rises[-1]) if rises.size else None,  # Last increase of the library's own objective.
                "falls": int((rises < 0).sum()),
                "held_bytes": held,
                "fit_peak_bytes": peaks[-1]
                if reset
                else None,  # None if this system cannot measure the peak of one fit.
            }
            hard = job["keep"] == "label" and posterior.ndim == 2
            np.save(folder / f"{number}.npy", posterior.argmax(axis=1) if hard else posterior)
            del posterior
        result["fits"].append(spec | done)
        del model
    result["peak_bytes"] = max(peaks)  # Peak until the end of the last fit.
    (folder / "result.json").write_text(json.dumps(result))


def prepared(prepare: Callable[..., Any], arrays: list[np.ndarray], sizes: dict[str, Any]) -> Any:
    """Return the library's own table, or the reason for its absence."""
    try:
        return prepare(*arrays, **sizes)
    except Impossible as error:
        return error


def attempt(fit: Callable[..., Any], table: Any, spec: dict[str, Any]) -> tuple[Any, str | None]:
    """Return a fitted model, or None and the error."""

    def ring(*_: Any) -> None:
        raise TooSlow(f"> {spec['limit']:g} s")

    try:
        if "limit" in spec:
            signal.signal(signal.SIGPROF, ring)
            signal.setitimer(signal.ITIMER_PROF, spec["limit"])
        if isinstance(table, Impossible):
            raise table
        return fit(table, spec["method"], dict(spec["params"])), None
    except Impossible as error:
        return None, str(error)
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


class Guard:
    """Skip fits that earlier fits show to be too slow."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = defaultdict(float)  # Seconds spent, by group.
        self.pace: dict[str, float] = {}  # Seconds per row of the last fit, by method and keywords.
        self.too_many: dict[str, int] = {}  # Rows at which a fit exceeded its limit, by method and keywords.

    @staticmethod
    def _case(spec: dict[str, Any]) -> str:
        return json.dumps([spec["method"], {key: value for key, value in spec["params"].items() if key != "seed"}])

    def refuses(self, spec: dict[str, Any], rows: int) -> str | None:
        """Return the reason not to start a fit, or None."""
        case = self._case(spec)
        if "budget" in spec and self.spent[spec["group"]] >= spec["budget"]:
            return "budget"
        if "limit" in spec and rows >= self.too_many.get(case, sys.maxsize):
            return f"> {spec['limit']:g} s"
        expected = self.pace.get(case, 0.0) * rows
        if "limit" in spec and expected > HOPELESS_LIMITS * spec["limit"]:
            return f"≈ {expected:.0f} s"
        return None

    def saw(self, spec: dict[str, Any], rows: int, seconds: float, error: str | None) -> None:
        """Remember a fit."""
        case = self._case(spec)
        self.spent[spec.get("group", "")] += seconds
        if error is None:
            self.pace[case] = seconds / rows
        elif error.startswith(">"):
            self.too_many[case] = min(rows, self.too_many.get(case, rows))


MAX_MATRIX_BYTES = 1e9


def dense(item: Any, annotator: Any, label: Any, missing: float) -> tuple[Any, Any, Any]:
    """Matrix of labels (items, annotators), the later of two kept; items of its rows; row of each label (N,)."""
    items, row = np.unique(item, return_inverse=True)
    annotators, column = np.unique(annotator, return_inverse=True)
    check_matrix(items.size * annotators.size)
    given = np.full((items.size, annotators.size), missing)
    given[row, column] = label
    return given, items, row


def check_matrix(numbers: int) -> None:
    """Raise `Impossible` for a matrix that is too large."""
    if 8 * numbers > MAX_MATRIX_BYTES:
        raise Impossible(f"needs a dense matrix of {8 * numbers / 1e9:.1f} GB")


def memory(field: str) -> int:
    """VmRSS or VmHWM of this process in bytes.

    VmHWM is the peak that `ru_maxrss` means to give; that one also counts what the parent held when it started us.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {field}; these benchmarks measure memory on Linux only.")


def reset_peak() -> bool:
    """Reset VmHWM; False if the system does not allow it."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True
