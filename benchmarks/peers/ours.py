"""Worker for dissensus, by the same protocol as its peers."""

import numpy as np
import protocol

import dissensus as dz


def prepare(item, annotator, label, n_items, n_classes):
    return dz.Annotations.from_arrays(item, annotator, label, classes=n_classes), n_items


def fit(prepared, method, params):
    table, n_items = prepared
    return dz.methods[method](**params).fit(table), n_items


def read(fitted):
    model, n_items = fitted
    posterior = model.predict_proba()
    if len(posterior) < n_items:  # items without an annotation
        everything = np.zeros((n_items, posterior.shape[1]))
        everything[model.items_] = posterior
        posterior = everything
    return posterior, model.n_iter_, model.trace_


if __name__ == "__main__":
    protocol.serve(prepare, fit, read, ["dissensus", "numba", "numpy"], compiles=True)
