"""How long an epoch of WRN-16-12 over 7,000 CIFAR images takes, with SAM, and how much of the GPU's rate that uses.

    python -m benchmarks.learning.wide_resnet_speed [--compile] [--autotune] [--epochs 30] [--batch 1000] [--out FILE]

from the repository's root, with DISSENSUS_DATA naming the data folder (cifar10h: `images.npz`, `counts.csv.gz`,
`gold.csv.gz`). [U]'s setup through `CrowdClassifier` and its trainer: labels by majority of the votes, SGD (learning
rate 0.1, momentum 0.8, weight decay 0.001) inside SAM (ρ 0.05), in bf16 where the device has it. The rate falls to
nothing along a cosine, and the 2,500 images that are left are scored at the end, so that the run is seen to learn.

An epoch's seconds are the median of those after the first, as the trainer's own history has them. Operations are
torch's count for one forward and backward pass of the network (products and sums of its convolutions and its last
layer, nothing else), twice for SAM. The device's rate is that of products of square bf16 matrices of random numbers in
the same run, after the training. `--tiny`: a small network on 200 images, to see that all works.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from dissensus.common.json_lines import JsonLinesStore
from dissensus.learning import CrowdClassifier
from dissensus.learning.encoders import WideResNet
from reproductions import record
from reproductions.uor2021 import cifar10h

FOLDER = Path(__file__).parent
RHO = 0.05
GROUPS, PRODUCTS = 10, 20  # Repetitions of the measurement of the device's rate, and products in each.


def operations(encoder: WideResNet, x: Any) -> int:
    """Operations of a forward and a backward pass, per image."""
    network = nn.Sequential(encoder.module(), nn.Linear(encoder.width, 10))
    with FlopCounterMode(display=False) as counter:
        network(encoder.prepare(x).columns["x"]).sum().backward()
    return int(counter.get_total_flops()) // len(x)


def rate(size: int, device: torch.device, kind: torch.dtype) -> float:
    """Operations per second of square matrix products: the median of some groups."""
    a, b = (torch.randn(size, size, device=device).to(kind) for _ in range(2))
    wait: Callable[[], None] = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    seconds = []
    for _ in range(GROUPS + 1):  # the first warms up
        wait()
        begin = time.perf_counter()
        for _ in range(PRODUCTS):
            torch.mm(a, b)
        wait()
        seconds.append(time.perf_counter() - begin)
    return 2 * size**3 * PRODUCTS / statistics.median(seconds[1:])


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Train, and measure time, operations and memory."""
    gpu = torch.cuda.is_available() and not options.tiny
    device = torch.device("cuda" if gpu else "cpu")
    torch.backends.cudnn.benchmark = options.autotune
    size = {"depth": 10, "widen": 1, "items": 200} if options.tiny else {"depth": 16, "widen": 12}
    task = cifar10h(0, {"objective": "hard", **size})
    x = task.X
    model = CrowdClassifier(
        encoder=task.encoder, objective="hard",
        optimizer={"name": "sgd", "momentum": 0.8}, learning_rate=0.1, weight_decay=1e-3, schedule="cosine", sam=RHO,
        epochs=options.epochs, batch_size=options.batch, device=device.type, compile=options.compile,
    )  # fmt: skip
    model.fit(task.table, x, on_step=lambda epoch, loss: print(f"epoch {epoch}: loss {loss:.3f}", flush=True))
    memory = torch.cuda.max_memory_allocated() / 1e9 if gpu else None
    seconds = [entry["seconds"] for entry in model.history_]
    epoch = statistics.median(seconds[1:])
    count = operations(model.encoder_, x[:2])
    reached = 2 * count * len(x) / epoch
    possible = rate(8192 if gpu else 1024, device, torch.bfloat16 if gpu else torch.float32)
    return {
        "cuda": torch.version.cuda,
        "network": f"WRN-{model.encoder_.depth}-{model.encoder_.widen}",
        "weights": sum(p.numel() for p in model.network_.parameters()),
        "images": len(x),
        "batch": options.batch,
        "epochs": options.epochs,
        "precision": "bf16-mixed" if gpu and torch.cuda.is_bf16_supported() else "32-true",  # The choice of "auto".
        "compile": options.compile,
        "autotune": options.autotune,
        "seconds": seconds,
        "epoch_seconds": epoch,
        "images_per_second": len(x) / epoch,
        "operations_per_image": count,
        "reached": reached,
        "possible": possible,
        "share": reached / possible,
        "peak_gb": memory,
        "loss": [entry["loss"] for entry in model.history_],
        "test_images": len(task.truth),
        "test_accuracy": float((model.predict_proba(task.asked).argmax(axis=1) == task.truth).mean()),
    }


def shown(run: dict[str, Any]) -> str:
    """Table of a run."""
    head = ["", "batch", "compiled", "s per epoch", "images/s", "TFLOP/s", "of bf16 products", "GB", "test accuracy"]
    memory = "" if run["peak_gb"] is None else f"{run['peak_gb']:.1f}"
    row = [run["network"], str(run["batch"]), "yes" if run["compile"] else "no", f"{run['epoch_seconds']:.2f}",
           f"{run['images_per_second']:,.0f}", f"{run['reached'] / 1e12:.2f}",
           f"{run['share']:.0%} of {run['possible'] / 1e12:.2f}", memory,
           f"{run['test_accuracy']:.2%} after {run['epochs']}"]  # fmt: skip
    return record.markdown_table(head, [row])


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--compile", action="store_true", help="train through torch.compile")
    options.add_argument("--autotune", action="store_true", help="let cuDNN try its ways to convolve (cudnn.benchmark)")
    options.add_argument("--epochs", type=int, help="default 30, with --tiny 3; at least 2")
    options.add_argument("--batch", type=int, help="default 1000, with --tiny 50")
    options.add_argument("--tiny", action="store_true", help="on the processor, in seconds")
    options.add_argument("--out", type=Path, help="the store; default in results/, with --tiny none")
    chosen = options.parse_args()
    chosen.epochs = chosen.epochs or (3 if chosen.tiny else 30)
    chosen.batch = chosen.batch or (50 if chosen.tiny else 1000)
    if chosen.epochs < 2:
        options.error("--epochs must be at least 2: the first is not timed")
    made = record.provenance(device="cpu" if chosen.tiny else "auto", busy=True)
    run = measure(chosen)
    if not chosen.tiny or chosen.out:
        store = JsonLinesStore(chosen.out or record.store_path(FOLDER, "wide-resnet-speed"))
        record.add_line(store, "wide-resnet-speed", made, run)
    print(shown(run))


if __name__ == "__main__":
    main()
