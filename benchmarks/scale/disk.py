"""Dawid-Skene on annotations that are larger than memory: `engine="disk"` over Parquet that `simulate` writes in parts.

    python -m benchmarks.scale.disk                    # 300M annotations: 30M items, 100k annotators, 5 classes
    python -m benchmarks.scale.disk --million 30       # a tenth
    python -m benchmarks.scale.disk --folder /data     # where the files go; about 60 bytes per annotation

Files that are there already are used again, so that a run which was stopped goes on. The process that fits is another
one than the process that writes, under a limit of its own: the peak of its resident set is what the table shows.
Reading the files once is the time to read the codes from end to end (from the disk, or from what the system keeps of it
in memory, as in the passes); a pass must do that too.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from reproductions import record

FOLDER = Path(__file__).parent
ITEMS_PER_FILE = 2**13 * 60  # a multiple of `simulate.BLOCK`; 10 annotations each
ANNOTATORS, CLASSES, REDUNDANCY = 100_000, 5, 10
DISK_BYTES = 60  # per annotation: Parquet, codes, what the sort spills, posteriors


def write(folder: Path, million: int) -> float:
    """Write the simulated annotations as Parquet, rows of every file shuffled; seconds of what was not there yet."""
    from dissensus.table.simulate import simulate

    n_items, begun = million * 1_000_000 // REDUNDANCY, time.perf_counter()
    for number, first in enumerate(range(0, n_items, ITEMS_PER_FILE)):
        path = folder / f"part-{number:05d}.parquet"
        if path.exists():
            continue
        part = (first, min(first + ITEMS_PER_FILE, n_items))
        table = simulate(n_items, ANNOTATORS, CLASSES, redundancy=REDUNDANCY, part=part, seed=0).annotations
        order = np.random.default_rng(number).permutation(len(table))
        columns = {
            "item": (table.item.astype(np.int64) + table.items[0])[order],
            "annotator": table.annotator[order],
            "label": table.label[order],
        }
        pq.write_table(pa.table(columns), path.with_suffix(".tmp"))
        path.with_suffix(".tmp").rename(path)
    return time.perf_counter() - begun


def peak_gb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def fit(folder: Path, passes: int) -> dict[str, Any]:
    """Measure in one process the seconds to code, of each pass and to write the results, and the peak of memory."""
    import warnings

    from dissensus.compute.engines import Disk
    from dissensus.compute.engines.coding import code_parquet
    from dissensus.models.methods import DawidSkene

    warnings.simplefilter("ignore")
    begun = time.perf_counter()
    coded = code_parquet(folder / "part-*.parquet", folder / "codes", threads=1)
    coding, after_coding = time.perf_counter() - begun, peak_gb()
    codes = [coded.folder / name for name in ("annotator.i32", "label.i8", "item_ptr.i64")]
    begun = time.perf_counter()
    for path in codes:
        with path.open("rb", buffering=0) as file:
            while file.read(2**24):
                pass
    reading = time.perf_counter() - begun
    at = [time.perf_counter()]
    model = DawidSkene(engine=Disk(), threads=1, max_iter=passes, tol=0)
    model.fit(coded, on_step=lambda step, objective: at.append(time.perf_counter()))
    writing = time.perf_counter() - at[-1]
    return {
        "annotations": coded.n_annotations,
        "items": coded.n_items,
        "annotators": coded.n_annotators,
        "classes": coded.n_classes,
        "bytes_of_codes": sum(path.stat().st_size for path in codes),
        "s_coding": coding,
        "s_reading_once": reading,
        "s_per_pass": np.diff(at)[1:].tolist(),  # the first is after the votes
        "s_first_pass_and_votes": at[1] - at[0],
        "s_last_pass_and_parquet": writing,
        "peak_gb_coding": after_coding,
        "peak_gb": peak_gb(),
        "trace": model.trace_.tolist(),
    }


def table(results: list[dict[str, Any]]) -> str:
    head = [
        "annotations", "items", "annotators", "GB of codes", "s to sort and code", "s per pass", "s to read once",
        "pass / reading", "s for last pass and Parquet", "peak GB",
    ]  # fmt: skip
    rows = []
    for one in results:
        each = float(np.median(one["s_per_pass"]))
        rows.append(
            [
                f"{one['annotations']:,}", f"{one['items']:,}", f"{one['annotators']:,}",
                f"{one['bytes_of_codes'] / 1e9:.2f}", f"{one['s_coding']:.0f}", f"{each:.2f}",
                f"{one['s_reading_once']:.2f}", f"{each / one['s_reading_once']:.1f}",
                f"{one['s_last_pass_and_parquet']:.0f}", f"{one['peak_gb']:.2f}",
            ]
        )  # fmt: skip
    return record.markdown_table(head, rows, 0)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--million", type=int, default=300, help="annotations, in millions")
    options.add_argument("--folder", type=Path, default=Path("scale-data"))
    options.add_argument("--passes", type=int, default=4)
    options.add_argument("--fit-only", action="store_true", help=argparse.SUPPRESS)
    given = options.parse_args()
    folder = given.folder / f"{given.million}M"
    if given.fit_only:
        print(json.dumps(fit(folder, given.passes)))
        return
    folder.mkdir(parents=True, exist_ok=True)
    free, needed = shutil.disk_usage(folder).free, given.million * 10**6 * DISK_BYTES
    if free < needed:
        sys.exit(
            f"{folder} has {free / 1e9:.0f} GB free and {needed / 1e9:.0f} GB may be needed; name another --folder."
        )
    made = record.provenance(busy=True)
    seconds = write(folder, given.million)
    print(f"files written in {seconds:.0f} s", flush=True)
    command = [sys.executable, "-m", "benchmarks.scale.disk", "--fit-only", "--million", str(given.million)]
    command += ["--folder", str(given.folder), "--passes", str(given.passes)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    result = json.loads(done.stdout.splitlines()[-1])
    text = table([result])
    record.publish(FOLDER / "README.md", "disk", made, {"result": result}, [text])
    print(text)


if __name__ == "__main__":
    main()
