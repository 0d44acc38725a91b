"""Worker for snorkel: a matrix items × annotators; of two labels by one annotator the later one is kept.

Its LabelModel is the matrix completion that was published as MeTaL. It multiplies by matrices of
(annotators · classes)² numbers, and does not run where these are too large.
"""

import numpy as np
import protocol
from snorkel.labeling.model import LabelModel, MajorityLabelVoter


def prepare(item, annotator, label, n_items, n_classes):
    given, items, _ = protocol.dense(item, annotator, label, -1)
    return given, items, n_items, n_classes


def fit(prepared, method, params):
    given, items, n_items, n_classes = prepared
    seed = params.pop("seed", 0)
    if method == "majority-vote":
        model = MajorityLabelVoter(cardinality=n_classes)
    else:
        protocol.check_matrix((given.shape[1] * n_classes) ** 2)
        model = LabelModel(cardinality=n_classes, verbose=False)
        model.fit(given, seed=seed, progress_bar=False, **params)
    everything = np.zeros((n_items, n_classes))
    everything[items] = model.predict_proba(given)
    return everything, getattr(getattr(model, "train_config", None), "n_epochs", 0)


def read(fitted):
    return *fitted, []


if __name__ == "__main__":
    protocol.serve(prepare, fit, read, ["snorkel", "torch", "numpy"])
