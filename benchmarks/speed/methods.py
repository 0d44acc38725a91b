"""Compare every method at 1M annotations with crowd-kit's, and time ours at 10M: seconds, memory and score.

    python -m benchmarks.speed.methods [--only glad mace …] [--small]

from the repository's root; with `--only` the tables of README.md stay as they are, and `--small` makes every table a
hundredth as large, to see that all paths work. Iterations are timed as in `speed.run`: the slope between a short and a
long fit. Where crowd-kit would take too long, its figure is measured on a smaller table (items and annotators divided
by the same number, so that its work is, too) and multiplied; such figures are marked, and the scores beside them are
those of both libraries on that table.
"""

from __future__ import annotations

import argparse
import inspect
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import dissensus as dz
from benchmarks import peers
from benchmarks.accuracy.run import binary
from benchmarks.speed.run import FOLDER, SIZES, THREADS, Size, per_iteration, print_progress, three, write_table
from reproductions import record

PEER = "crowd-kit"
REPEATS, MAX_FIT_SECONDS = 3, 240.0
MAX_BYTES = 4e9  # Memory limit for 10M annotations.
NO_TOLERANCE = {"tol": float("-inf")}  # Without a tolerance the fit continues to the given number of passes.


@dataclass(frozen=True)
class Plan:
    """Plan for timing a method of the peer."""

    short: dict[str, Any] | None = None  # keywords of the two fits of a slope; None: it has no iterations
    long: dict[str, Any] | None = None
    slope_at: int = 1  # The table is smaller by this factor.
    params: dict[str, Any] | None = None  # Keywords of the fit to convergence; by default those of the method.
    at: int = 1  # The table of the fit to convergence is smaller by this factor.
    times: int = 1  # The default fit is longer by this factor.
    note: str = ""


PLANS = {
    "majority-vote": Plan(),
    "wawa": Plan(),
    "zero-based-skill": Plan({"n_iter": 1}, {"n_iter": 4}),
    "dawid-skene": Plan({"n_iter": 1} | NO_TOLERANCE, {"n_iter": 4} | NO_TOLERANCE),
    "one-coin": Plan({"n_iter": 1} | NO_TOLERANCE, {"n_iter": 4} | NO_TOLERANCE),
    "glad": Plan({"n_iter": 1} | NO_TOLERANCE, {"n_iter": 2} | NO_TOLERANCE, slope_at=10, at=50),
    "mace": Plan(
        {"n_restarts": 1, "n_iter": 1},
        {"n_restarts": 1, "n_iter": 4},
        params={"n_restarts": 1},
        times=10,
        note="one of its ten restarts, which are all equal, times ten",
    ),
    "kos": Plan({"n_iter": 1}, {"n_iter": 4}),
    "m-msr": Plan(at=10, note="at least: its work grows with the square of the number of annotators"),
}


class Tables:
    """Simulated tables, written when first asked for."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.made: dict[Size, tuple[peers.Data, np.ndarray]] = {}

    def __call__(self, size: Size, method: str, smaller: int = 1) -> tuple[peers.Data, np.ndarray]:
        """Return the table of a size for a method, with two classes if the method supports no more."""
        n_annotators = max(size.n_annotators // smaller, 2 * size.redundancy)
        size = replace(size, n_items=size.n_items // smaller, n_annotators=n_annotators)
        size = replace(size, n_classes=2) if binary(method) else size
        if size not in self.made:
            self.made[size] = write_table(size, self.folder / str(len(self.made)))
        return self.made[size]


def fit(
    library: str, method: str, table: tuple[peers.Data, np.ndarray], params: list[dict[str, Any]], threads: int = 1
) -> list[dict[str, Any]]:
    """Fit, and return the worker's report of each fit with its score or its error."""
    data, truth = table
    fits = [{"method": method, "params": p, "limit": MAX_FIT_SECONDS} for p in params]
    report, labels = peers.run(library, data, fits, keep="label", threads=threads)
    return [
        done
        | {"peak_bytes": report["peak_bytes"], "versions": report["versions"]}
        | ({} if label is None else {"score": float((label == truth).mean())})
        for done, label in zip(report["fits"], labels, strict=True)
    ]


def ours(method: str, table: tuple[peers.Data, np.ndarray], threads: int, slope: bool = True) -> dict[str, Any]:
    """Time an iteration, if the method has any, and a fit with our defaults."""
    begin = time.perf_counter()
    knows = inspect.signature(dz.methods[method]).parameters
    every = {"threads": threads} if "threads" in knows else {}
    result: dict[str, Any] = {"seconds_per_iteration": None}
    if slope and {"max_iter", "tol"} <= knows.keys():
        always = every | {"tol": 0.0} | ({"accelerate": None} if "accelerate" in knows else {})
        pair = [always | {"max_iter": 2}, always | {"max_iter": 12}]
        done = fit("dissensus", method, table, pair * REPEATS, threads)
        if not any(d["error"] for d in done) and done[1]["iterations"] > done[0]["iterations"]:
            result["seconds_per_iteration"] = per_iteration(list(zip(done[::2], done[1::2], strict=True)))
    done = fit("dissensus", method, table, [every] * (REPEATS if slope else 1), threads)
    result["converged"] = min(done, key=lambda d: (bool(d["error"]), d["seconds"]))
    print_result(f"{method}, ours, {threads} threads", result, begin)
    return result


def theirs(method: str, tables: Tables, size: Size) -> dict[str, Any]:
    """Time the peer by its plan, scaled up to the size asked for."""
    begin, how = time.perf_counter(), PLANS[method]
    result: dict[str, Any] = {"seconds_per_iteration": None, "slope_at": how.slope_at, "at": how.at, "note": how.note}
    if how.short is not None:
        pair = fit(PEER, method, tables(size, method, how.slope_at), [how.short, how.long])
        if not any(d["error"] for d in pair) and pair[1]["iterations"] > pair[0]["iterations"]:
            result["seconds_per_iteration"] = how.slope_at * per_iteration([tuple(pair)])
    (done,) = fit(PEER, method, tables(size, method, how.at), [how.params or {}])
    result["converged"] = done | {"seconds": done["seconds"] * how.at * how.times}
    print_result(f"{method}, {PEER}", result, begin)
    if how.at > 1:  # the score to compare with is that on the same table
        (ours_there,) = fit("dissensus", method, tables(size, method, how.at), [{}], max(THREADS))
        result["our_score"] = ours_there.get("score")
    return result


def print_result(who: str, result: dict[str, Any], begin: float) -> None:
    done, each = result["converged"], result["seconds_per_iteration"]
    print_progress(
        f"{who}: {three(1e3 * each) + ' ms' if each else '–'} per iteration, "
        + (done["error"] or f"{done['seconds']:.3f} s, {done['iterations']} iterations, accuracy {done['score']:.4f}")
        + f", peak {done['peak_bytes'] / 1e9:.2f} GB",
        begin,
    )


def tables(content: dict[str, Any]) -> list[str]:
    rows = []
    for method, result in content["methods"].items():
        own, peer = result["ours"], result.get("theirs")
        fast, done = own[str(max(THREADS))], own[str(max(THREADS))]["converged"]
        cells = [
            method,
            " / ".join(_ms(own[str(t)]["seconds_per_iteration"]) for t in THREADS),
            " / ".join(_seconds(own[str(t)]["converged"]) for t in THREADS),
            _score(done.get("score")),
        ]
        if peer is None:
            rows.append([*cells, *["–"] * 5])
            continue
        scaled = "≈ " if peer["at"] > 1 or PLANS[method].times > 1 else ""
        each, there = peer["seconds_per_iteration"], peer["converged"]
        iteration = f"{each / fast['seconds_per_iteration']:.0f}×" if each and fast["seconds_per_iteration"] else "–"
        failed = there["error"] or done["error"]
        whole = "–" if failed else f"{scaled}{there['seconds'] / done['seconds']:.0f}×"
        score = _score(there.get("score"))
        if "our_score" in peer:
            score += f" (ours there {_score(peer['our_score'])})"
        cells += [("≈ " if peer["slope_at"] > 1 else "") + _ms(each), scaled + _seconds(there), score]
        rows.append([*cells, iteration, whole + (f" ({peer['note']})" if peer["note"] else "")])
    head = ["1M annotations", "ours: ms per iteration", "s to converge (iterations)", "accuracy (%)"]
    head += [f"{PEER}: ms per iteration", "s to converge (iterations)", "accuracy (%)"]
    head += ["theirs / ours: iteration", "to converge"]
    large = [
        [
            method,
            _seconds(done),
            f"{done['peak_bytes'] / 1e9:.2f}" + (" **over 4**" if done["peak_bytes"] > MAX_BYTES else ""),
            _score(done.get("score")),
        ]
        for method, done in content["large"].items()
    ]
    return [
        record.markdown_table(head, rows),
        record.markdown_table(
            ["10M annotations, ours", "s to converge (iterations)", "peak GB", "accuracy (%)"], large
        ),
    ]


def _ms(seconds: float | None) -> str:
    return "–" if seconds is None else three(1e3 * seconds)


def _seconds(done: dict[str, Any]) -> str:
    return done["error"].split(":")[0] if done["error"] else f"{three(done['seconds'])} ({done['iterations']})"


def _score(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="METHOD", help="only these; the tables stay as they are")
    parser.add_argument("--small", action="store_true", help="tables a hundredth as large; writes nothing either")
    parser.add_argument(
        "--readme", type=Path, help="write the tables of these options into this file, and the results next to it"
    )
    options = parser.parse_args()
    peers.environment(PEER)
    names = [name for name in options.only or dz.methods if not dz.methods.entry(name).facts.get("needs_features")]
    made, begin = record.provenance(busy=True), time.perf_counter()
    content: dict[str, Any] = {"versions": {}, "methods": {}, "large": {}}
    with tempfile.TemporaryDirectory(prefix="dissensus-speed-") as folder:
        made_tables = Tables(Path(folder))
        million, ten = (
            replace(s, n_items=s.n_items // 100, n_annotators=s.n_annotators // 10) if options.small else s
            for s in SIZES
        )
        for method in names:
            result: dict[str, Any] = {"ours": {str(t): ours(method, made_tables(million, method), t) for t in THREADS}}
            if method in PLANS:
                result["theirs"] = theirs(method, made_tables, million)
            content["methods"][method] = result
        for method in names:
            result = ours(method, made_tables(ten, method), max(THREADS), slope=False)
            content["large"][method] = result["converged"]
    for method in content["methods"].values():
        for library, side in (("dissensus", method["ours"][str(max(THREADS))]), (PEER, method.get("theirs"))):
            if side:
                content["versions"][library] = side["converged"]["versions"]
    print_progress("everything", begin)
    if options.readme or not (options.only or options.small):
        readme = options.readme or FOLDER / "README.md"
        record.publish(readme, "methods", made, content, tables(content), content["versions"])


if __name__ == "__main__":
    main()
