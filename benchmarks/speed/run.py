"""Dawid-Skene: seconds per EM iteration, time to convergence and peak memory, ours and our peers' in one run.

    python -m benchmarks.speed.run [--quick]

from the repository's root; `--quick` runs the smallest size only and leaves the tables of README.md as they are. Every
case is a process of its own over the same files; ours come before, between and after the peers'. The time of an
iteration is a slope: the seconds of a long fit less those of a short one, over the iterations between them, so that
setting up is not in it. Of repeated fits the fastest counts, on both sides: other work on the machine only adds.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import dissensus as dz
from benchmarks import peers
from benchmarks.speed import floors
from dissensus.table.simulate import ITEMS_PER_CHUNK, simulate
from reproductions import record

FOLDER = Path(__file__).parent
ITEMS_PER_PART = 64 * ITEMS_PER_CHUNK  # items simulated at a time


@dataclass(frozen=True)
class Size:
    """A simulated table."""

    title: str
    n_items: int
    n_annotators: int
    n_classes: int
    repeats: int  # Repetitions of the peers' slopes.
    redundancy: int = 10


SIZES = [Size("1M", 100_000, 1_000, 5, 3), Size("10M", 1_000_000, 10_000, 10, 1)]
HUGE = Size("100M", 10_000_000, 100_000, 5, 0)
PEERS = ["crowd-kit", "crowd-kit-pandas2"]  # the first is also fitted to convergence
THREADS = (2, 1)
OURS = {"short": {"max_iter": 2}, "long": {"max_iter": 12}, "always": {"tol": 0.0, "accelerate": None}, "repeats": 5}
THEIRS = {
    "short": {"n_iter": 1},
    "long": {"n_iter": 4},
    "always": {"tol": float("-inf")},
}  # it stops where its loss falls


def write_table(size: Size, folder: Path) -> tuple[peers.Data, np.ndarray]:
    """Simulate part by part into files; return the truth (I,)."""
    folder.mkdir()
    n = size.n_items * size.redundancy
    columns = {
        name: np.lib.format.open_memmap(folder / f"{name}.npy", "w+", dtype, (n,))
        for name, dtype in (("item", np.int32), ("annotator", np.int32), ("label", np.int8))
    }
    truth = np.empty(size.n_items, np.int8)
    for first in range(0, size.n_items, ITEMS_PER_PART):
        end = min(first + ITEMS_PER_PART, size.n_items)
        part = simulate(
            size.n_items, size.n_annotators, size.n_classes, redundancy=size.redundancy, part=(first, end), seed=0
        )
        rows = slice(first * size.redundancy, end * size.redundancy)
        columns["item"][rows] = part.annotations.item + np.int32(first)
        columns["annotator"][rows] = part.annotations.annotator
        columns["label"][rows] = part.annotations.label
        truth[first:end] = part.truth
    return peers.Data(folder, size.n_items, size.n_classes), truth


class Bench:
    """Cases of one size, and their samples by (library, threads)."""

    def __init__(self, data: peers.Data, truth: np.ndarray, versions: dict[str, Any]):
        self.data, self.truth, self.versions = data, truth, versions
        self.slopes: dict[tuple[str, int], list[tuple[dict[str, Any], dict[str, Any]]]] = defaultdict(list)
        self.score: dict[tuple[str, int], float] = {}  # after the long fit of the slope
        self.memory: dict[tuple[str, int], dict[str, Any]] = {}  # Memory of the same fits.
        self.converged: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)

    def _run(self, library: str, params: list[dict[str, Any]], threads: int) -> tuple[dict[str, Any], list[float]]:
        fits = [
            {"method": "dawid-skene", "params": p | ({"threads": threads} if library == "dissensus" else {})}
            for p in params
        ]
        report, labels = peers.run(library, self.data, fits, keep="label", threads=threads)
        self.versions[library] = report["versions"]
        return report, [float((label == self.truth).mean()) for label in labels]

    def slope(self, library: str, threads: int, repeats: int) -> None:
        """Time an iteration."""
        plan = OURS if library == "dissensus" else THEIRS
        begin = time.perf_counter()
        report, scores = self._run(
            library, [plan["short"] | plan["always"], plan["long"] | plan["always"]] * repeats, threads
        )
        pairs = list(zip(report["fits"][::2], report["fits"][1::2], strict=True))
        self.slopes[library, threads] += pairs
        self.score[library, threads] = scores[-1]
        self.memory[library, threads] = report["fits"][-1] | {"peak_bytes": report["peak_bytes"]}
        print_progress(f"{library}, {threads} threads: {1e3 * per_iteration(pairs):.2f} ms per iteration", begin)

    def converge(self, library: str, threads: int) -> None:
        """Measure time and memory of a fit with the library's defaults."""
        begin = time.perf_counter()
        report, scores = self._run(library, [{}], threads)
        fit = report["fits"][0] | {"score": scores[0]}
        fit |= {key: report[key] for key in ("prepare_seconds", "first_call_seconds", "imported_bytes", "peak_bytes")}
        self.converged[library, threads].append(fit)
        print_progress(
            f"{library}, {threads} threads: converged in {fit['seconds']:.3f} s, {fit['iterations']} iterations, "
            f"accuracy {fit['score']:.4f}, peak {fit['peak_bytes'] / 1e9:.2f} GB",
            begin,
        )

    def summary(self) -> list[dict[str, Any]]:
        """One row per (library, threads)."""
        rows = []
        for library, threads in dict.fromkeys([*self.slopes, *self.converged]):
            pairs, fits = self.slopes[library, threads], self.converged[library, threads]
            rows.append(
                {
                    "library": library,
                    "threads": threads,
                    "seconds_per_iteration": per_iteration(pairs) if pairs else None,
                    "slopes": [
                        {"seconds": [fit["seconds"] for fit in pair], "iterations": [fit["iterations"] for fit in pair]}
                        for pair in pairs
                    ],
                    "score_after_slope": self.score.get((library, threads)),
                    "memory_of_slope": self.memory.get((library, threads)),
                    "converged": min(fits, key=lambda fit: fit["seconds"]) if fits else None,
                    "seconds_to_converge": [fit["seconds"] for fit in fits],
                }
            )
        return rows


def run_size(size: Size, folder: Path, versions: dict[str, Any]) -> dict[str, Any]:
    """Run ours and the peers' in turns, then the floors."""
    print(f"{size.title}: {asdict(size)}", flush=True)
    data, truth = write_table(size, folder / size.title)
    bench = Bench(data, truth, versions)

    def ours() -> None:
        for threads in THREADS:
            bench.slope("dissensus", threads, OURS["repeats"])

    ours()
    for peer in PEERS:
        bench.slope(peer, 1, size.repeats)
        ours()
    for threads in THREADS:
        bench.converge("dissensus", threads)
    bench.converge(PEERS[0], 1)
    for threads in THREADS:
        bench.converge("dissensus", threads)
    return {"size": asdict(size), "cases": bench.summary(), "floors": measure_floors(data)}


def measure_floors(data: peers.Data) -> dict[str, Any]:
    """Bytes streamed over bandwidth, and the gathers and scatters, for one and two threads."""
    begin = time.perf_counter()
    columns = [np.load(data.folder / f"{name}.npy") for name in ("item", "annotator", "label")]
    table = dz.Annotations.from_arrays(*columns, classes=data.n_classes)
    result: dict[str, Any] = {"streamed_bytes": floors.streamed_bytes(table)}
    for threads in THREADS:
        speed = floors.bandwidth(threads)
        result[str(threads)] = {"bytes_per_second": speed, "stream": result["streamed_bytes"] / speed}
        result[str(threads)] |= floors.gathers_and_scatters(table, threads)
    print_progress("floors", begin)
    return result


def run_huge(size: Size, folder: Path, versions: dict[str, Any]) -> dict[str, Any]:
    """Run ours alone, where the peers would need more memory than the machine has."""
    print(f"{size.title}: {asdict(size)}", flush=True)
    data, truth = write_table(size, folder / size.title)
    bench = Bench(data, truth, versions)
    bench.converge("dissensus", max(THREADS))
    return {"size": asdict(size), "cases": bench.summary()}


def compilation(folder: Path) -> dict[str, float]:
    """Time the first fit in a process that must compile, and in one that finds the compiled code."""
    size = Size("first call", 1_000, 50, 5, 0)
    data, _ = write_table(size, folder / "first")
    result = {}
    for key in ("compiling", "cached"):
        begin = time.perf_counter()
        fits = [{"method": "dawid-skene", "params": {}}]
        report, _ = peers.run("dissensus", data, fits, variables={"NUMBA_CACHE_DIR": str(folder / "numba")})
        result[key] = report["first_call_seconds"]
        print_progress(f"first call, {key}: {result[key]:.2f} s", begin)
    return result


def tables(content: dict[str, Any]) -> list[str]:
    rows, floor_rows = [], []
    for result in content["sizes"]:
        ours = {case["threads"]: case for case in result["cases"] if case["library"] == "dissensus"}
        for case in result["cases"]:
            fit, per_iteration = case["converged"], case["seconds_per_iteration"]
            memory = fit or case["memory_of_slope"]
            peer = case["library"] != "dissensus"
            ratios = [
                f"{per_iteration / ours[t]['seconds_per_iteration']:.0f}× / "
                + (f"{fit['seconds'] / ours[t]['converged']['seconds']:.0f}×" if fit else "–")
                for t in (THREADS if peer and per_iteration else ())
            ]
            rows.append(
                [
                    result["size"]["title"],
                    case["library"],
                    "–" if peer else str(case["threads"]),
                    three(1e3 * per_iteration) if per_iteration else "–",
                    f"{three(fit['seconds'])} ({fit['iterations']})" if fit else "–",
                    *(ratios or ["–"] * len(THREADS)),
                    f"{memory['peak_bytes'] / 1e9:.2f}",
                    f"{(memory['fit_peak_bytes'] - memory['held_bytes']) / 1e9:.2f}"
                    if memory["fit_peak_bytes"]
                    else "–",
                    f"{100 * (fit['score'] if fit else case['score_after_slope']):.2f}",
                ]
            )
        for threads, case in ours.items():
            if "floors" not in result:
                continue
            floor, seconds = result["floors"][str(threads)], case["seconds_per_iteration"]
            floor_rows.append(
                [
                    result["size"]["title"],
                    str(threads),
                    three(1e3 * seconds),
                    f"{floor['bytes_per_second'] / 1e9:.1f}",
                    f"{result['floors']['streamed_bytes'] / 1e6:.1f}",
                    *(three(1e3 * floor[key]) for key in ("stream", "gather", "scatter", "both")),
                    f"{seconds / floor['both']:.2f}",
                ]
            )
    head = ["Annotations", "library", "threads", "ms per iteration", "s to converge (iterations)"]
    head += [f"peer / ours on {t}: iteration / converged" for t in THREADS]
    head += ["peak GB", "of these above what was held before the fit", "accuracy (%)"]
    floor_head = ["Annotations", "threads", "ms per iteration", "triad GB/s", "MB streamed", "ms to stream"]
    floor_head += ["ms to gather", "ms to scatter", "ms for both", "ours / both"]
    first = content["first_call"]
    return [
        record.markdown_table(head, rows, 3),
        f"First call in a new process: {first['compiling']:.1f} s where the code must be compiled, "
        f"{first['cached']:.2f} s where a process before it has done so. Neither is in the table.",
        record.markdown_table(floor_head, floor_rows, 2),
    ]


def per_iteration(pairs: list[tuple[dict[str, Any], dict[str, Any]]]) -> float:
    short, long = (min((pair[n] for pair in pairs), key=lambda fit: fit["seconds"]) for n in (0, 1))
    return float((long["seconds"] - short["seconds"]) / (long["iterations"] - short["iterations"]))


def three(value: float) -> str:
    """Three significant digits, never an exponent."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def print_progress(text: str, begin: float) -> None:
    print(f"  [{time.perf_counter() - begin:5.1f} s] {text}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="the smallest size only; the tables stay as they are")
    quick = parser.parse_args().quick
    for peer in PEERS:
        peers.environment(peer)
    made, versions = record.provenance(busy=True), {}
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="dissensus-speed-") as temporary:
        folder = Path(temporary)
        content: dict[str, Any] = {"versions": versions, "first_call": compilation(folder)}
        content["sizes"] = [run_size(size, folder, versions) for size in (SIZES[:1] if quick else SIZES)]
        if not quick:
            content["sizes"].append(run_huge(HUGE, folder, versions))
    print_progress("everything", begin)
    if not quick:
        record.publish(FOLDER / "README.md", "speed", made, content, tables(content), versions)


if __name__ == "__main__":
    main()
