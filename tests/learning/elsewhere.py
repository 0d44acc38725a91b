"""Trainings that tests run in other processes, which import this file by its name."""

from crowds import blobs
from dissensus.learning import CrowdClassifier


def checkpointed(folder, on_step) -> CrowdClassifier:
    """A classifier of six epochs that can be stopped after any."""
    table, X, _ = blobs()
    model = CrowdClassifier(objective="soft", epochs=6, checkpoint=folder, checkpoint_every=0, mixup=0.4, device="cpu")
    return model.fit(table, X, on_step=on_step)
