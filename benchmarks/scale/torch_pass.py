"""One pass of Dawid-Skene on a GPU: 1 billion annotations, generated on the device.

    python -m benchmarks.scale.torch_pass                           # 100M items, 100k annotators, 5 classes
    python -m benchmarks.scale.torch_pass --kernel torch            # torch's operations in place of the fused kernel
    python -m benchmarks.scale.torch_pass --million 1 --device cpu  # does it run at all; writes nothing

- **s per pass** is the least of several `engine.sweep`s: parameters from the host to the device, E step and counts
  there, sums back to the host. **s per iteration** has the M step on the host and the objective in it, as in a fit.
- **Copy** is the bandwidth of a copy of 8 GB on the device, reads and writes counted once each.
- **Streamed** is what a pass cannot do without: annotator (4 bytes) and label (1) of a row, the offset (8) of an item.
  The ratio is the pass to these bytes over the bandwidth of the copy. **With cells** also counts, for every row, K
  doubles fetched from Θ and K added to counts: 40 MB of tables at this size, which the device's cache may hold.

The fused kernel (`kernels.on_triton`) writes nothing per row. Torch's operations (`kernels.on_torch`) make arrays of K
numbers per row on the way, about 300 bytes per row in all.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dissensus.compute.engines.local import Threads
from dissensus.compute.engines.torch import DEFAULT_CHUNK_ROWS, TorchEngine
from dissensus.compute.kernels import on_torch
from dissensus.compute.kernels.on_torch import DeviceTable
from dissensus.models.confusion import FULL, LIKELIHOOD, ConfusionPass, EStepParams
from dissensus.models.methods import DawidSkene
from reproductions import record

FOLDER = Path(__file__).parent
ROWS_PER_CHUNK = 2**26  # rows that are generated at a time
COPIED_DOUBLES = 2**30  # doubles


def generate(n_items: int, redundancy: int, n_annotators: int, n_classes: int, device: torch.device) -> DeviceTable:
    """Generate annotators with log-normal activity, accuracies from 0.4 to 0.95 and uniform errors."""
    torch.manual_seed(0)
    accuracy = 0.4 + 0.55 * torch.rand(n_annotators, device=device)
    activity = torch.randn(n_annotators, device=device).exp()
    tickets = torch.repeat_interleave((activity / activity.mean() * 16).clamp(min=1).int())
    truth = torch.randint(n_classes, (n_items,), dtype=torch.int8, device=device)
    rows = n_items * redundancy
    annotator = torch.empty(rows, dtype=torch.int32, device=device)
    label = torch.empty(rows, dtype=torch.int8, device=device)
    for start in range(0, rows, ROWS_PER_CHUNK):
        stop = min(start + ROWS_PER_CHUNK, rows)
        who = tickets[torch.randint(tickets.numel(), (stop - start,), device=device)]
        true = truth[torch.arange(start, stop, device=device) // redundancy]
        wrong = (true + torch.randint(1, n_classes, (stop - start,), dtype=torch.int8, device=device)) % n_classes
        annotator[start:stop] = who
        label[start:stop] = torch.where(torch.rand(stop - start, device=device) < accuracy[who], true, wrong)
    item_ptr = torch.arange(0, rows + 1, redundancy, device=device)
    per_part = max(1, DEFAULT_CHUNK_ROWS.get(device.type, DEFAULT_CHUNK_ROWS["cpu"]) // redundancy)
    cuts = [*range(0, n_items, per_part), n_items]
    return DeviceTable(item_ptr, annotator, label, None, None, n_annotators, n_classes, cuts)


def fastest(work: Callable[[], Any], device: torch.device, repeats: int = 7) -> tuple[float, list[float]]:
    """Fastest and all times in seconds, after one call that is not counted."""
    work()
    seconds = []
    for _ in range(repeats):
        wait(device)
        begun = time.perf_counter()
        work()
        wait(device)
        seconds.append(time.perf_counter() - begun)
    return min(seconds), seconds


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def copy_bandwidth(device: torch.device) -> float:
    """Bytes per second, read and written."""
    one = torch.ones(COPIED_DOUBLES if device.type == "cuda" else 2**24, dtype=torch.float64, device=device)
    other = torch.empty_like(one)
    return 2 * one.nbytes / fastest(lambda: other.copy_(one), device)[0]


def measure(million: int, redundancy: int, n_annotators: int, n_classes: int, device: torch.device) -> dict[str, Any]:
    n_items = million * 1_000_000 // redundancy
    bandwidth = copy_bandwidth(device)
    data = generate(n_items, redundancy, n_annotators, n_classes, device)
    engine, model, pass_ = TorchEngine(data, Threads(1)), DawidSkene(), ConfusionPass(LIKELIHOOD, FULL)
    begun = time.perf_counter()
    model._prepare(engine)
    params = model.initialise(engine, None)
    start = time.perf_counter() - begun
    likelihood = EStepParams.from_likelihood(params.prior, model.label_likelihood(params))
    each, passes = fastest(lambda: engine.run(pass_, likelihood), device)
    whole, _ = fastest(lambda: model.em_step(engine, pass_, params), device, repeats=3)
    streamed = data.annotator.nbytes + data.label.nbytes + data.item_ptr.nbytes
    cells = data.annotator.numel() * n_classes * 8 * 2
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "torch": torch.__version__,
        "annotations": data.annotator.numel(),
        "items": n_items,
        "annotators": n_annotators,
        "classes": n_classes,
        "copy_gb_per_s": bandwidth / 1e9,
        "s_start": start,
        "s_per_pass": each,
        "s_passes": passes,
        "s_per_iteration": whole,
        "bytes_streamed": streamed,
        "ratio_to_streamed": each / (streamed / bandwidth),
        "ratio_with_cells": each / ((streamed + cells) / bandwidth),
        "peak_gb": torch.cuda.max_memory_allocated(device) / 1e9 if device.type == "cuda" else None,
    }


def table(one: dict[str, Any]) -> str:
    head = [
        "device", "annotations", "s per pass", "s per iteration", "copy TB/s", "GB streamed", "pass / streamed",
        "pass / streamed with cells", "peak GB on the device",
    ]  # fmt: skip
    peak = "–" if one["peak_gb"] is None else f"{one['peak_gb']:.0f}"
    row = [
        one["device"], f"{one['annotations']:,}", f"{one['s_per_pass']:.3f}", f"{one['s_per_iteration']:.3f}",
        f"{one['copy_gb_per_s'] / 1000:.2f}", f"{one['bytes_streamed'] / 1e9:.2f}", f"{one['ratio_to_streamed']:.0f}",
        f"{one['ratio_with_cells']:.1f}", peak,
    ]  # fmt: skip
    return record.markdown_table(head, [row])


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--million", type=int, default=1000, help="annotations, in millions")
    options.add_argument("--redundancy", type=int, default=10)
    options.add_argument("--annotators", type=int, default=100_000)
    options.add_argument("--classes", type=int, default=5)
    options.add_argument("--device", default="cuda")
    options.add_argument("--kernel", choices=["torch", "triton"], default="triton")
    given = options.parse_args()
    made = record.provenance(device=given.device, busy=True)
    if given.kernel == "torch":
        on_torch.run_fused_pass = lambda *_: None
    result = measure(given.million, given.redundancy, given.annotators, given.classes, torch.device(given.device))
    result["kernel"] = given.kernel
    text = table(result)
    print(text)
    print(np.round(result["s_passes"], 4).tolist())
    if given.device != "cpu":
        record.publish(FOLDER / "README.md", given.kernel, made, {"result": result}, [text])


if __name__ == "__main__":
    main()
