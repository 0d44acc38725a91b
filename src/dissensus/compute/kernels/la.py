"""One pass over items in order, in which each item's vote is weighted by the accuracies learnt from the items before.

`weigh_in_order.__wrapped__` is the same in plain Python, for small tables and as the reference.
"""

from __future__ import annotations

from dissensus.common.arrays import TIE_TOLERANCE
from dissensus.common.jit import lazy_jit


@lazy_jit
def weigh_in_order(order, group, rows, gold, right, total, outcome):
    """Estimate the items in this order and add the weight of right labels to `right`, and of all to `total` (A,).

    Both hold the pseudo-counts at first. `gold` (I,) is −1 where unknown. `group` (G+1,) are offsets into `order`: the
    items of a group are estimated with the same accuracies. `outcome` (largest group, K) is overwritten.
    """
    item_ptr, annotator, label, weight = rows
    for g in range(group.size - 1):
        for n in range(group[g], group[g + 1]):
            i, v = order[n], outcome[n - group[g]]
            known = gold[i]
            v[:] = 0.0
            for row in range(item_ptr[i], item_ptr[i + 1]):
                j = annotator[row]
                v[label[row]] += weight[row] * right[j] / total[j]
            top, tied = v.max(), 0.0
            for k in range(v.size):
                v[k] = 1.0 if v[k] >= top * (1 - TIE_TOLERANCE) else 0.0
                tied += v[k]
            for k in range(v.size):
                v[k] /= tied
            if known >= 0:
                v[:] = 0.0
                v[known] = 1.0
        for n in range(group[g], group[g + 1]):
            i, v = order[n], outcome[n - group[g]]
            for row in range(item_ptr[i], item_ptr[i + 1]):
                w, j = weight[row], annotator[row]
                right[j] += w * v[label[row]]
                total[j] += w
