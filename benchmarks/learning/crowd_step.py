"""What a training step costs with 50 annotators and with 100,000: crowd-layer, and the dense layer it replaces.

    python -m benchmarks.learning.crowd_step [--steps 400] [--device cpu]

from the repository's root. An MLP (4 × 128, dropout 0.2) on 512 features, 8 classes, batches of 256 items with 5 labels
each by annotators drawn at random; forward, backward, Adam (row by row for the annotators). Steps of
all sizes take turns in one run, so that what the machine does otherwise hits all alike; figures are medians, on a CPU
of the processor time of one thread, which others on the machine change least. *Dense* is the layer as Rodrigues &
Pereira made it: every annotator for every item, and a mask. Writes `results/` and a table of README.md.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

import dissensus as dz
from dissensus.learning.encoders.mlp import MLPModule
from dissensus.learning.objectives import CrowdLayerObjective
from dissensus.learning.rows import JointOptimizer, RowAdam, use_row_sparse
from reproductions import record

FOLDER = Path(__file__).parent
ITEMS, FEATURES, CLASSES, BATCH, LABELS = 20_000, 512, 8, 256, 5
SIZES = (50, 5_000, 50_000, 100_000)
DENSE = (50, 5_000)
MAX_RATIO = 1.2


class Dense(nn.Module):
    """Dense crowd layer: (B, K) → masked cross entropy of labels (B, A), −1 for missing ones."""

    def __init__(self, n_annotators: int):
        super().__init__()
        self.kernel = nn.Parameter(torch.eye(CLASSES)[:, :, None].repeat(1, 1, n_annotators))  # (true, given, A)

    def forward(self, p: Tensor, label: Tensor) -> Tensor:
        """Sum the loss over the labels that were given."""
        scores = torch.einsum("bk,kla->bla", p, self.kernel)
        return functional.cross_entropy(scores, label, ignore_index=-1, reduction="sum")


def table(n_annotators: int) -> dz.Annotations:
    """Five labels for every item by annotators drawn at random, so that no cache knows who comes next."""
    rng = np.random.default_rng(0)
    item = np.repeat(np.arange(ITEMS), LABELS)
    return dz.Annotations.from_arrays(
        item, rng.integers(0, n_annotators, item.size), rng.integers(0, CLASSES, item.size), classes=CLASSES,
        annotators=np.arange(n_annotators),
    )  # fmt: skip


def sparse_step(n_annotators: int, link: str, device: torch.device) -> Callable[[Tensor, Tensor], None]:
    objective = CrowdLayerObjective(link=link).fit(table(n_annotators), None, 0)
    torch.manual_seed(0)
    encoder = MLPModule(FEATURES, (128,) * 4, 0.2).to(device)
    head = objective.head(nn.Identity, 128).to(device)
    use_row_sparse(head)
    targets = objective.targets().to(device)
    optimizer = JointOptimizer(
        torch.optim.Adam([*encoder.parameters(), *head.main.parameters()]), RowAdam(head.crowd.parameters())
    )

    def step(X: Tensor, rows: Tensor) -> None:
        optimizer.zero_grad()
        (objective.loss(head, encoder(X[rows]), targets.take(rows)) / BATCH).backward()
        optimizer.step()

    return step


def dense_step(n_annotators: int, device: torch.device) -> Callable[[Tensor, Tensor], None]:
    given = table(n_annotators)
    torch.manual_seed(0)
    encoder = nn.Sequential(MLPModule(FEATURES, (128,) * 4, 0.2), nn.Linear(128, CLASSES)).to(device)
    layer = Dense(n_annotators).to(device)
    annotator = torch.as_tensor(given.annotator.reshape(ITEMS, LABELS).astype(np.int64), device=device)
    label = torch.as_tensor(given.label.reshape(ITEMS, LABELS).astype(np.int64), device=device)
    optimizer = torch.optim.Adam([*encoder.parameters(), *layer.parameters()])

    def step(X: Tensor, rows: Tensor) -> None:
        optimizer.zero_grad()
        wanted = torch.full((len(rows), n_annotators), -1, device=device).scatter_(1, annotator[rows], label[rows])
        (layer(encoder(X[rows]).softmax(dim=1), wanted) / BATCH).backward()
        optimizer.step()

    return step


def measure(
    steps: dict[str, Callable[[Tensor, Tensor], None]], X: Tensor, n: int, slow: set[str]
) -> dict[str, list[float]]:
    """Time the steps in turns, in milliseconds; slow ones join every tenth turn. The first tenth warms up."""
    clock = time.perf_counter if X.device.type == "cuda" else time.process_time
    spent: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(n + n // 10):
        rows = torch.randint(0, ITEMS, (BATCH,), generator=torch.Generator().manual_seed(turn)).to(X.device)
        names = [name for name in steps if name not in slow or turn % 10 == 0]
        for place in range(len(names)):
            name = names[
                (place + turn) % len(names)
            ]  # The order rotates, so that no candidate always follows the same one.
            begin = clock()
            steps[name](X, rows)
            if X.device.type == "cuda":
                torch.cuda.synchronize()
            if turn >= n // 10:
                spent[name].append(1e3 * (clock() - begin))
    return spent


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--steps", type=int, default=400)
    options.add_argument("--device", default="cpu")
    arguments = options.parse_args()
    torch.set_num_threads(1)
    device, made = torch.device(arguments.device), record.provenance(device=arguments.device, busy=True)
    X = torch.randn(ITEMS, FEATURES, generator=torch.Generator().manual_seed(0)).to(device)
    steps = {f"{link} {n}": sparse_step(n, link, device) for link in ("softmax", "normalize") for n in SIZES}
    dense = {f"dense {n}": dense_step(n, device) for n in DENSE}
    spent = measure(steps | dense, X, arguments.steps, {f"dense {max(DENSE)}"})
    rows: list[dict[str, Any]] = []
    for name, times in spent.items():
        link, n = name.split()
        median, least = float(np.median(times)), float(np.median(spent[f"{link} {SIZES[0]}"]))
        low, high = np.percentile(times, [10, 90]).tolist()
        rows.append(
            {"layer": link, "annotators": int(n), "ms": median, "low": low, "high": high, "ratio": median / least}
        )
        print(f"{name:18} {median:8.2f} ms ({low:.2f} to {high:.2f})  {median / least:6.2f} times", flush=True)
    worst = max(row["ratio"] for row in rows if row["layer"] != "dense")
    print(f"worst ratio {worst:.2f}, bound {MAX_RATIO}")
    head = ["layer", "annotators", "ms per step", "10 % to 90 %", "times that of 50"]
    cells = [
        [row["layer"], f"{row['annotators']:,}", f"{row['ms']:.2f}", f"{row['low']:.2f} to {row['high']:.2f}",
         f"{row['ratio']:.2f}"]
        for row in rows
    ]  # fmt: skip
    name = "crowd-step" if device.type == "cpu" else f"crowd-step-{device.type}"
    found = {"steps": arguments.steps, "rows": rows}
    record.publish(FOLDER / "README.md", name, made, found, [record.markdown_table(head, cells)])


if __name__ == "__main__":
    main()
