"""How long a file of ten million annotations takes to become an `Annotations`, and how much memory.

    python -m benchmarks.speed.read [--rows 10000000]

Files are made in a temporary folder (a tenth as many items as rows, a thousandth as many annotators, ten classes, rows
in random order) and each is read in a process of its own, after one that fills the cache of compiled code. Peak memory
is that process's, imports included.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from dissensus.common.json_lines import JsonLinesStore
from reproductions import record

FOLDER = Path(__file__).parent
CHILD = """
import json, re, sys, time
from pathlib import Path
start = time.perf_counter()
from dissensus.table import io
imported = time.perf_counter()
table = io.read(sys.argv[1])
done = time.perf_counter()
# not getrusage, whose peak is inherited from the parent process on Linux
peak = int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) / 2**20
print(json.dumps({"import_s": imported - start, "read_s": done - imported, "peak_gb": peak, "table": repr(table)}))
"""


def make(rows: int, folder: Path) -> dict[str, Path]:
    rng = np.random.default_rng(0)
    ids = {
        "item": rng.integers(0, rows // 10, rows),
        "annotator": rng.integers(0, max(rows // 1000, 2), rows),
        "label": rng.integers(0, 10, rows),
    }
    integers = pa.table(ids)
    text = pa.table({name: pa.array(codes).cast(pa.string()) for name, codes in ids.items()})
    text = pa.table({name: pa.compute.binary_join_element_wise(name, text[name], "-") for name in text.column_names})
    wide = integers.append_column("text", pa.chunked_array([pa.array(["a text that is not needed"] * rows)]))
    paths = {}
    for name, table in (("int64 ids", integers), ("int64 ids, wide", wide), ("text ids", text)):
        paths[f"Parquet, {name}"] = folder / f"{name}.parquet"
        pq.write_table(table, paths[f"Parquet, {name}"])
    paths["Parquet, int64 ids, sorted"] = folder / "sorted.parquet"
    pq.write_table(integers.sort_by([(n, "ascending") for n in ids]), paths["Parquet, int64 ids, sorted"])
    paths["CSV, integers"] = folder / "integers.csv"
    pyarrow.csv.write_csv(integers, paths["CSV, integers"])
    return paths


def measure(path: Path) -> dict[str, float]:
    done = subprocess.run([sys.executable, "-c", CHILD, str(path)], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    options = parser.parse_args()
    made, results = record.provenance(busy=True), {}
    with tempfile.TemporaryDirectory() as folder:
        paths = make(options.rows, Path(folder))
        for path in make(10_000, Path(tempfile.mkdtemp(dir=folder))).values():
            measure(path)  # compiles, where nothing is cached yet
        print(f"{options.rows:,} rows, {record.n_cores()} cores\n{'':28}{'file MB':>9}{'read s':>9}{'peak GB':>9}")
        for name, path in paths.items():
            results[name] = {"file_mb": path.stat().st_size / 2**20, **measure(path)}
            print(
                f"{name:28}{results[name]['file_mb']:9.0f}{results[name]['read_s']:9.2f}{results[name]['peak_gb']:9.2f}"
            )
    record.add_line(
        JsonLinesStore(record.store_path(FOLDER, "read")), "read", made, {"rows": options.rows, "results": results}
    )


if __name__ == "__main__":
    main()
