"""Worker for crowd-kit. Its answers are read by name: neither its rows nor its columns are in a fixed order."""

import pandas as pd
import protocol
from crowdkit.aggregation.classification import DawidSkene, MajorityVote

METHODS = {"dawid-skene": DawidSkene, "majority-vote": MajorityVote}


def prepare(item, annotator, label, n_items, n_classes):
    frame = pd.DataFrame({"task": item, "worker": annotator, "label": label})
    frame.attrs = {"items": range(n_items), "classes": range(n_classes)}
    return frame


def fit(frame, method, params):
    model = METHODS[method](**params).fit(frame)
    return model, frame.attrs


def read(fitted):
    model, names = fitted
    trace = getattr(model, "loss_history_", [])
    posterior = model.probas_.reindex(index=names["items"], columns=names["classes"], fill_value=0.0)
    return posterior.to_numpy(), len(trace), trace


if __name__ == "__main__":
    protocol.serve(prepare, fit, read, ["crowd-kit", "pandas", "numpy"])
