"""What should change nothing: the order of the rows, and which class is called first.

    python -m benchmarks.accuracy.order

from the repository's root, with DISSENSUS_DATA naming the data folder. Every method with one seed, on rows sorted by
annotator and label, on the same rows shuffled, and with the classes numbered backwards. Writes `results/` and a table
of README.md. Peers' methods get their rows as they are: no help for crowd-kit's MACE.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import peers
from benchmarks.accuracy.run import FOLDER, METHODS, Draw, binary, libraries, score
from dissensus.table.datasets import load_dataset
from reproductions import record

SETS = [("rte", 2), ("labelme", 0)]  # One set with ties, and one with more than two classes, in which ties are rarer.
SHUFFLES, FIT_SECONDS = 2, 10.0


def run_set(name: str, level: int, versions: dict[str, Any]) -> list[dict[str, Any]]:
    """Measure each method's accuracy and the largest change of a probability, for each change of order or names."""
    data = load_dataset(name)
    table = data.annotations.subsample(level) if level else data.annotations
    scored = np.flatnonzero((data.gold >= 0) & (np.diff(table.item_ptr) > 0))
    as_they_are = np.arange(table.n_classes)
    by_annotator = np.lexsort((table.item, table.label, table.annotator))
    shuffled = [np.random.default_rng(seed).permutation(table.n_annotations) for seed in range(SHUFFLES)]
    variants = [(by_annotator, as_they_are), *((order, as_they_are) for order in shuffled)]
    variants.append((by_annotator, as_they_are[::-1]))
    rows = []
    with tempfile.TemporaryDirectory(prefix="dissensus-order-") as folder:
        draws = [Draw.write(Path(folder, str(n)), table, *variant) for n, variant in enumerate(variants)]
        for library in libraries():
            methods = [
                method
                for method in METHODS
                if method.library == library
                and level in method.levels
                and not (table.n_classes > 2 and binary(method.method))
            ]
            fits = [
                {
                    "method": method.method,
                    "params": method.params | {"seed": 0} | ({"as_given": True} if library == "crowd-kit" else {}),
                    "table": number,
                    "limit": FIT_SECONDS,
                }
                for number in range(len(draws))
                for method in methods
            ]
            begin = time.perf_counter()
            report, answers = peers.run(library, [draw.data for draw in draws], fits)
            versions[library] = report["versions"]
            for number, method in enumerate(methods):
                of_method = answers[number :: len(methods)]
                if any(answer is None for answer in of_method):
                    error = next(fit["error"] for fit in report["fits"][number :: len(methods)] if fit["error"])
                    rows.append({"method": method.title, "error": error})
                    continue
                given = [
                    draw.to_original_classes(answer)[scored] for draw, answer in zip(draws, of_method, strict=True)
                ]
                every = np.arange(scored.size)
                accuracy = [float(score(a, every, data.gold[scored], table.n_classes).credit.mean()) for a in given]
                change = [change_of(answer, given[0]) for answer in given[1:]]
                rows.append(
                    {
                        "method": method.title,
                        "sorted": accuracy[0],
                        "shuffled": accuracy[1:-1],
                        "shuffled_change": max(change[:-1]),
                        "backwards": accuracy[-1],
                        "backwards_change": change[-1],
                    }
                )
            print(f"  [{time.perf_counter() - begin:5.1f} s] {name}, {library}", flush=True)
    return rows


def change_of(answer: np.ndarray, before: np.ndarray) -> float:
    """Largest change of a probability; for labels, 1 if any changed."""
    if answer.ndim == 1:
        return float((answer != before).any())
    return float(np.nanmax(np.abs(answer - before)))


def cells(result: dict[str, Any]) -> list[str]:
    """One line of the table, without the method."""
    if "error" in result:
        return [result["error"].split(":")[0], "", "", "", ""]
    low, high = (f"{100 * end(result['shuffled']):.2f}" for end in (min, max))
    return [
        f"{100 * result['sorted']:.2f}",
        low if low == high else f"{low} … {high}",
        _change(result["shuffled_change"]),
        f"{100 * result['backwards']:.2f}",
        _change(result["backwards_change"]),
    ]


def _change(value: float) -> str:
    return f"{value:.0e}" if 0 < value < 0.001 else f"**{value:.3f}**" if value else "0"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dry", action="store_true", help="print the tables; write nothing")
    dry = parser.parse_args().dry
    made, versions, text, results = record.provenance(busy=True), {}, [], {}
    for name, level in SETS:
        results[name] = run_set(name, level, versions)
        head = [f"{name}" + (f" at redundancy {level}" if level else ""), "accuracy (%), rows sorted", "shuffled"]
        head += ["largest change of a P", "classes backwards", "largest change of a P"]
        text.append(record.markdown_table(head, [[result["method"], *cells(result)] for result in results[name]]))
        print(text[-1])
    if not dry:
        found = {"versions": versions, "sets": results}
        record.publish(FOLDER / "README.md", "order", made, found, text, versions)


if __name__ == "__main__":
    main()
