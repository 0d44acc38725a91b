"""Accuracy of `ebcc` and `bwa` beside their authors' figures, and of `la`: `python -m benchmarks.accuracy.published`.

DISSENSUS_DATA names the data folder. Writes `results/published.jsonl` and the table of README.md.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import dissensus as dz
from dissensus.table.datasets import load_dataset
from reproductions import record

FOLDER = Path(__file__).parent
PUBLISHED = {  # accuracy in %, from the papers and the authors' programs
    "zencrowd_us": {"bwa": 91.08, "ebcc": 91.23},
    "bluebirds": {"bwa": 75.93, "ebcc": 86.11},
    "rte": {"bwa": 92.75, "ebcc": 93.12},
    "sentiment_polarity": {"bwa": 91.70, "ebcc": 91.52},
    "web_relevance": {"bwa": 82.25, "ebcc": 76.86},
}
METHODS = ("bwa", "ebcc", "la")


def measure(name: str, method: str) -> dict[str, Any]:
    """Return accuracy in % and seconds of a method with its defaults on a data set."""
    data = load_dataset(name)
    known, model = data.gold >= 0, dz.methods[method]()
    start = time.perf_counter()
    found = model.fit(data.annotations).predict()[known]
    seconds = time.perf_counter() - start
    right = float((found == data.annotations.classes[data.gold[known]]).mean())
    return {"method": method, "right": 100 * right, "published": PUBLISHED[name].get(method), "seconds": seconds}


def main() -> None:
    """Measure all methods on all data sets."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    made = record.provenance(busy=True)
    results = {name: [measure(name, method) for method in METHODS] for name in PUBLISHED}
    rows = [
        [name, result["method"], f"{result['right']:.2f}", f"{result['published'] or '–'}", f"{result['seconds']:.1f}"]
        for name, found in results.items()
        for result in found
    ]
    table = record.markdown_table(["data set", "method", "right, %", "published, %", "seconds"], rows)
    print(table)
    record.publish(FOLDER / "README.md", "published", made, {"sets": results}, [table], {})


if __name__ == "__main__":
    main()
