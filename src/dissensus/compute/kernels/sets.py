"""Kernels for labels that are sets of options: log odds of each option, and counts per annotator."""

from dissensus.common.jit import lazy_jit
from dissensus.compute.kernels.items import value_or_default


@lazy_jit
def add_log_odds(item_ptr, annotator, label, weight, ticked, tick, blank, out):
    """Add the log odds of each option, given the labels of an item, to `out` (I, L).

    `tick` and `blank` (A, L) are the log likelihood ratios of a selected and of an unselected option.
    """
    L = out.shape[1]
    for i in range(out.shape[0]):
        for row in range(item_ptr[i], item_ptr[i + 1]):
            a, y, w = annotator[row], label[row], value_or_default(weight, row, 1.0)
            for c in range(L):
                out[i, c] += w * (tick[a, c] if ticked[y, c] else blank[a, c])


@lazy_jit
def add_counts(item_ptr, annotator, label, weight, ticked, posterior, true, hits):
    """Add the expected number of times that each option is true on an annotator's items to `true` (A, L).

    Add how many of these options the annotator selected to `hits` (A, L).
    """
    L = posterior.shape[1]
    for i in range(posterior.shape[0]):
        for row in range(item_ptr[i], item_ptr[i + 1]):
            a, y, w = annotator[row], label[row], value_or_default(weight, row, 1.0)
            for c in range(L):
                part = w * posterior[i, c]
                true[a, c] += part
                if ticked[y, c]:
                    hits[a, c] += part
