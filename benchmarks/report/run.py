"""How long a report takes after fitting, and how large its page is.

    python -m benchmarks.report.run

from the repository's root; with DISSENSUS_DATA naming the data folder, also on real sets. A million annotations are
simulated; their items have texts of 300 characters. Writes `results/` and the table of README.md.
"""

from __future__ import annotations

import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import dissensus as dz
from dissensus.table.simulate import simulate
from reproductions import record

FOLDER = Path(__file__).parent
SETS = ("digits-crowd", "rte", "labelme", "popquorn_offensiveness", "jobs_q3")
LARGE = {"items": 100_000, "annotators": 1_000, "classes": 5, "labels per item": 10}
METHOD = "dawid-skene"
TEXT = "Somebody wrote this text, and somebody else is to say what it is about; it goes on for a while. " * 3


def run(name: str, table: Any, **known: Any) -> dict[str, Any]:
    """Fit and report, and time both."""
    begin = time.perf_counter()
    fitted = dz.methods[METHOD]().fit(table)
    fit = time.perf_counter() - begin
    with tempfile.TemporaryDirectory(prefix="dissensus-report-") as folder:
        begin = time.perf_counter()
        page, *_ = dz.Report(table, fitted, title=name, **known).save(Path(folder, "report.html"))
        seconds, size = time.perf_counter() - begin, page.stat().st_size
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    row = {"set": name, "annotations": table.n_annotations, "items": table.n_items, "fit": fit, "seconds": seconds}
    row |= {"megabytes": size / 1e6, "memory": memory}
    print(row, flush=True)
    return row


def main() -> None:
    made, rows = record.provenance(busy=True), []
    run("warm-up", simulate(200, 20, 3, seed=0).annotations)  # compiles, and makes the bundle of the charts' library
    there = {one.name for one in dz.list_datasets()}
    for name in SETS:
        if name in there:
            data = dz.load_dataset(name)
            rows.append(run(name, data.annotations, gold=data.gold, items=data.items, annotators=data.annotators))
    sim = simulate(LARGE["items"], LARGE["annotators"], LARGE["classes"], redundancy=LARGE["labels per item"], seed=0)
    table = sim.annotations
    texts = {"item": table.items, "text": [f"{TEXT}{i}" for i in range(table.n_items)]}
    rows.append(run("simulated", table, gold=sim.truth, items=texts))
    body = [
        [
            row["set"],
            f"{row['annotations']:,}",
            f"{row['items']:,}",
            f"{row['fit']:.2f}",
            f"{row['seconds']:.1f}",
            f"{row['megabytes']:.1f}",
        ]
        for row in rows
    ]
    head = ["set", "annotations", "items", f"{METHOD}: seconds to fit", "seconds to report", "page, MB"]
    memory = f"The process took {max(row['memory'] for row in rows):.1f} GB at most."
    record.publish(FOLDER / "README.md", "report", made, {"rows": rows}, [record.markdown_table(head, body), memory])


if __name__ == "__main__":
    main()
