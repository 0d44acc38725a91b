"""Dawid-Skene on a Spark cluster on loopback, with one core and with two, compared with `local` on the same machine.

    python -m benchmarks.scale.spark                   # 10M annotations: 1M items, 100k annotators, 5 classes
    python -m benchmarks.scale.spark --million 1

Needs `dissensus[spark]` and Java. For each number of cores a master and that many workers of one core are started, and
stopped; the driver shares the cores. Rows come from Parquet in shuffled order. An empty job is one that does nothing in
as many tasks; handing over is a job that sends every part to the Python workers, which look at its length only. The
first pass of a fit has the votes before it and the loading of compiled code in the workers in it; it is not among the
passes whose median is shown. On two cores the fit is made once more, and an executor is killed during its second pass.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from benchmarks.scale.disk import write
from dissensus import read
from dissensus.models.methods import DawidSkene
from reproductions import record
from tests.compute.engines.cluster import cluster

FOLDER = Path(__file__).parent


def timed(work: Any) -> tuple[float, Any]:
    begun = time.perf_counter()
    result = work()
    return time.perf_counter() - begun, result


def passes(table: Any, count: int, on_step: Any = None, **keywords: Any) -> tuple[Any, list[float]]:
    """Fit for `count` passes; return the seconds of the passes after the first."""
    at: list[float] = []

    def step(number: int, objective: float) -> None:
        at.append(time.perf_counter())
        if on_step is not None:
            on_step(number)

    model = DawidSkene(max_iter=count, tol=0, **keywords).fit(table, on_step=step)
    return model, np.diff(at).tolist()


def executors(address: str) -> list[int]:
    """Process ids of the executors of this driver."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            said = (entry / "cmdline").read_bytes().decode() if entry.name.isdigit() else ""
        except OSError:
            continue
        if "CoarseGrainedExecutorBackend" in said and address in said and "java" in said.split("\0")[0]:
            found.append(int(entry.name))
    return found


def on_cluster(source: Path, folder: Path, cores: int, count: int, local: Any) -> dict[str, Any]:
    from dissensus.compute.engines.scatter import distribute_frame

    with cluster(folder / f"cluster-{cores}", workers=cores, memory="1g") as spark:
        context = spark.sparkContext
        address = f"CoarseGrainedScheduler@{context.getConf().get('spark.driver.host')}:" + context.getConf().get(
            "spark.driver.port"
        )
        coding, table = timed(lambda: distribute_frame(str(source)))
        partitions = len(table.offsets)
        empty = [timed(context.parallelize(range(partitions), partitions).count)[0] for _ in range(4)][1:]
        handing = [timed(table.parts.map(lambda part: part.n_items).sum)[0] for _ in range(4)][1:]
        model, seconds = passes(table, count, engine="spark")
        writing, _ = timed(lambda: model.to_frame("items").write.parquet(str(folder / f"items-{cores}")))
        result = {
            "cores": cores,
            "partitions": partitions,
            "s_coding": coding,
            "s_empty_job": empty,
            "s_handing_over": handing,
            "s_per_pass": seconds,
            "s_posteriors_to_parquet": writing,
            "posterior_from_local": float(np.abs(np.asarray(model.posterior_) - local.posterior_).max()),
        }
        if cores > 1:
            killed: list[int] = []

            def kill() -> None:
                time.sleep(np.median(seconds) / 2)
                killed.append(executors(address)[0])
                os.kill(killed[0], signal.SIGKILL)

            def on_step(number: int) -> None:
                if number == 1:
                    threading.Thread(target=kill).start()

            model, seconds = passes(table, count, on_step, engine="spark")
            result["killed"] = {
                "executors": len(killed),
                "s_per_pass": seconds,
                "posterior_from_local": float(np.abs(np.asarray(model.posterior_) - local.posterior_).max()),
            }
    return result


def rows_of(result: dict[str, Any]) -> list[list[str]]:
    def several(count: int, word: str) -> str:
        return f"{count} {word}" + "s" * (count > 1)

    rows = []
    for one in result["local"]:
        each = f"{np.median(one['s_per_pass']):.2f}"
        rows.append([f"local, {several(one['threads'], 'thread')}", "", "", "", each, "", ""])
    for one in result["spark"]:
        cells = [one["s_coding"], np.median(one["s_empty_job"]), np.median(one["s_handing_over"])]
        cells += [np.median(one["s_per_pass"]), one["s_posteriors_to_parquet"]]
        name = f"spark, {several(one['cores'], 'core')}"
        rows.append([name, *(f"{cell:.2f}" for cell in cells), f"{one['posterior_from_local']:.0e}"])
        if "killed" in one:
            longest, apart = max(one["killed"]["s_per_pass"]), one["killed"]["posterior_from_local"]
            rows.append(["… an executor killed", "", "", "", f"{longest:.2f}", "", f"{apart:.0e}"])
    return rows


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--million", type=int, default=10, help="annotations, in millions")
    options.add_argument("--folder", type=Path, default=Path("scale-data"))
    options.add_argument("--passes", type=int, default=6)
    given = options.parse_args()
    warnings.simplefilter("ignore")
    source = given.folder / f"{given.million}M"
    source.mkdir(parents=True, exist_ok=True)
    folder = given.folder / f"spark-{given.million}M-{os.getpid()}"
    made = record.provenance(busy=True)
    write(source, given.million)
    table = read(pq.read_table(sorted(source.glob("part-*.parquet"))))
    result: dict[str, Any] = {"annotations": len(table), "items": table.n_items, "annotators": table.n_annotators}
    result["local"], result["spark"] = [], []
    for threads in (1, 2):
        local, seconds = passes(table, given.passes, threads=threads)
        result["local"].append({"threads": threads, "s_per_pass": seconds})
        print(result["local"][-1], flush=True)
    for cores in (1, 2):
        result["spark"].append(on_cluster(source.absolute(), folder.absolute(), cores, given.passes, local))
        print(result["spark"][-1], flush=True)
    head = ["where", "s to sort and code", "s of an empty job", "s to hand over the parts", "s per pass"]
    head += ["s for posteriors to Parquet", "posterior, largest difference from local"]
    text = record.markdown_table(head, rows_of(result))
    record.publish(FOLDER / "README.md", "spark", made, {"result": result}, [text])
    print(text)


if __name__ == "__main__":
    sys.exit(main())
