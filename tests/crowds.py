"""Small crowds with features, for the tests of learning."""

import numpy as np

from dissensus import Annotations


def blobs(n=60, features=5, classes=3, annotators=7, redundancy=3, seed=0, noise=0.2):
    """Items around one centre per class, labelled by annotators who err at random: table, X, truth."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(classes, size=n)
    X = (3 * rng.standard_normal((classes, features))[truth] + rng.standard_normal((n, features))).astype(np.float32)
    item = np.repeat(np.arange(n), redundancy)
    annotator = np.concatenate([rng.permutation(annotators)[:redundancy] for _ in range(n)])
    wrong = rng.random(item.size) < noise
    label = np.where(wrong, rng.integers(classes, size=item.size), truth[item])
    names = np.array(list("abcdefghij"))
    table = Annotations.from_arrays(
        [f"i{i:04d}" for i in item], [f"w{a}" for a in annotator], names[label], classes=names[:classes].tolist()
    )
    return table, X, truth
