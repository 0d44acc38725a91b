"""Trainings that tests run in other processes, which import this file by its name."""

from pathlib import Path

import numpy as np
import torch
from torch import nn

from crowds import blobs
from dissensus.learning import CrowdClassifier
from dissensus.learning.batches import Columns
from dissensus.learning.encoders import encoders
from dissensus.learning.network import Lessons
from dissensus.learning.trainer import Trainer

N, D = 40_000, 100  # 16 MB of features


class Watching(nn.Module):
    """Writes down how much of the features this process has in its memory, after an epoch."""

    def __init__(self, folder: str):
        super().__init__()
        self.linear, self.folder = nn.Linear(D, 1), folder

    def forward(self, inputs, targets, mix):
        return ((self.linear(inputs["file"]) + self.linear(inputs["memory"])) ** 2).sum() + 0 * targets["y"].sum()

    def begin_epoch(self, epoch, epochs, walk):
        held, mapping = {"x.npy": 0, "/shm/torch_": 0}, ""
        for line in Path("/proc/self/smaps").read_text().splitlines():
            first = line.split()[0]
            if not first.endswith(":"):
                mapping = line
            for name in held:
                if first == "Rss:" and name in mapping:
                    held[name] += 1024 * int(line.split()[1])
        rank = torch.distributed.get_rank()
        Path(self.folder, f"epoch-{epoch}-of-{rank}").write_text(" ".join(map(str, held.values())))


def watched(folder: str) -> None:
    """Two processes over features in a file and in memory."""
    mapped = np.load(f"{folder}/x.npy", mmap_mode="r")
    column = encoders["identity"](scale=False).fit(mapped).prepare(mapped).columns["x"]
    inputs = Columns(file=column, memory=torch.zeros(N, D))
    model = Watching(folder)
    trainer = Trainer(epochs=2, batch_size=1000, device="cpu", processes=2)
    lessons, groups = Lessons(inputs, Columns(y=torch.zeros(N))), [{"params": list(model.parameters()), "lr": 0.1}]
    trainer.fit(model, lessons, np.arange(N), groups)


def checkpointed(folder, on_step) -> CrowdClassifier:
    """A classifier of six epochs that can be stopped after any."""
    table, X, _ = blobs()
    model = CrowdClassifier(objective="soft", epochs=6, checkpoint=folder, checkpoint_every=0, mixup=0.4, device="cpu")
    return model.fit(table, X, on_step=on_step)
