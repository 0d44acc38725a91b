"""Worker for snorkel: a matrix items × annotators; of two labels by one annotator the later one is kept.

Its LabelModel is the matrix completion that was published as MeTaL. It multiplies by matrices of
(annotators · classes)² numbers, and does not run where these are too large.
"""

import numpy as np
import protocol
from snorkel.labeling.model import LabelModel, MajorityLabelVoter

MOST = 1e9  # bytes of a matrix


def prepare(item, annotator, label, n_items, n_classes):
    items, row = np.unique(item, return_inverse=True)
    annotators, column = np.unique(annotator, return_inverse=True)
    if (size := 8 * items.size * annotators.size) > MOST:
        return f"needs a dense matrix of {size / 1e9:.1f} GB"
    given = np.full((items.size, annotators.size), -1)
    given[row, column] = label
    return given, items, n_items, n_classes


def fit(prepared, method, params):
    if isinstance(prepared, str):
        raise protocol.Impossible(prepared)
    given, items, n_items, n_classes = prepared
    seed = params.pop("seed", 0)
    if method == "majority-vote":
        model = MajorityLabelVoter(cardinality=n_classes)
    else:
        if (size := 8 * (given.shape[1] * n_classes) ** 2) > MOST:
            raise protocol.Impossible(f"needs a dense matrix of {size / 1e9:.1f} GB")
        model = LabelModel(cardinality=n_classes, verbose=False)
        model.fit(given, seed=seed, progress_bar=False, **params)
    everything = np.zeros((n_items, n_classes))
    everything[items] = model.predict_proba(given)
    return everything, getattr(getattr(model, "train_config", None), "n_epochs", 0)


def read(fitted):
    return *fitted, []


if __name__ == "__main__":
    protocol.serve(prepare, fit, read, ["snorkel", "torch", "numpy"])
