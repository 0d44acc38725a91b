"""Worker for cleanlab: a matrix items × annotators; of two labels by one annotator the later one is kept.

Its own method, CROWDLAB, is made for the predictions of a classifier beside the labels. There is none here, and it
gets the shares of the votes in their place: what it can do with the labels alone, not what it is for.
"""

import numpy as np
import protocol
from cleanlab.multiannotator import get_label_quality_multiannotator, get_majority_vote_label


def prepare(item, annotator, label, n_items, n_classes):
    given, items, row = protocol.dense(item, annotator, label, np.nan)
    share = np.zeros((items.size, n_classes))
    np.add.at(share, (row, label), 1.0)
    return given, share / share.sum(axis=1, keepdims=True), items, n_items


def fit(prepared, method, params):
    given, share, items, n_items = prepared
    if method == "majority-vote":
        answer = get_majority_vote_label(given, verbose=False)
    else:
        quality = get_label_quality_multiannotator(
            given, share, verbose=False, return_detailed_quality=False, return_annotator_stats=False
        )
        answer = quality["label_quality"]["consensus_label"].to_numpy()
    everything = np.full(n_items, -1)
    everything[items] = answer
    return everything


if __name__ == "__main__":
    protocol.serve(prepare, fit, lambda answer: (answer, 0, []), ["cleanlab", "pandas", "numpy"])
