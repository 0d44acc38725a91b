"""Worker for peerannot. Tasks must be numbered without a gap; of two labels by one annotator the later one is kept.

Its `GLAD` writes files into the folder of its data set and cannot do without one. Ties are drawn from NumPy's global
generator, which is seeded here.
"""

import tempfile
from pathlib import Path

import numpy as np
import protocol
from peerannot import models

METHODS = {
    "majority-vote": models.NaiveSoft,  # the same vote as its MajorityVoting, which gives labels only
    "wawa": models.Wawa,
    "dawid-skene": models.DawidSkene,
    "glad": models.GLAD,
    "community-bcc": models.DawidSkeneClust,
}


def prepare(item, annotator, label, n_items, n_classes):
    items, task = np.unique(item, return_inverse=True)
    answers = {number: {} for number in range(items.size)}
    for number, worker, given in zip(task.tolist(), annotator.tolist(), label.tolist(), strict=True):
        answers[number][worker] = given
    sizes = {"n_classes": n_classes, "n_workers": int(annotator.max()) + 1}
    return answers, sizes, items, n_items


def fit(prepared, method, params):
    answers, sizes, items, n_items = prepared
    np.random.seed(params.pop("seed", 0))  # noqa: NPY002  # the generator that the library draws from
    with tempfile.TemporaryDirectory() as folder:
        if method == "glad":
            sizes = sizes | {"dataset": Path(folder)}
        model = METHODS[method](answers, **sizes)
        ran = model.run(**params) if hasattr(model, "run") else None
    answer = np.asarray(model.get_probas())
    everything = np.zeros((n_items, *answer.shape[1:])) if answer.ndim == 2 else np.full(n_items, -1)
    everything[items] = answer
    return everything, ran


def read(fitted):
    answer, ran = fitted
    trace, steps = ran if isinstance(ran, tuple) and len(ran) == 2 else ([], 0)
    return answer, steps, trace


if __name__ == "__main__":
    protocol.serve(prepare, fit, read, ["peerannot", "torch", "numpy"])
