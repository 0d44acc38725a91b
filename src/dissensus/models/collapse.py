"""Collapse repeated and copied labels, so that a group of copying annotators has one vote on each item.

    w_ij = 1 / (number of members of j's group with a label on i)

Copied labels carry no new evidence. Therefore the labels that a group of copying annotators (`models.copies`) gives to
an item count as one label, and so do repeated labels of one annotator.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dissensus.common.types import IntArray
from dissensus.models.copies import find_copies
from dissensus.table.annotations import Annotations


def copy_groups(table: Annotations) -> IntArray:
    """Return the number of each annotator's group of copying annotators, (A,); −1 without a group."""
    number = np.full(table.n_annotators, -1)
    for group_number, group in enumerate(find_copies(table).groups):
        number[list(group)] = group_number
    return number


def collapse(table: Annotations, group: IntArray) -> Annotations:
    """Return the table with the weights w, given the group of each annotator (A,), −1 without a group."""
    table = table.deduplicated
    if (group < 0).all():
        return table
    rating, first = table.rating_codes, np.flatnonzero(np.diff(table.rating_codes, prepend=-1))
    group_of_rating = group[table.annotator[first]]
    grouped = np.flatnonzero((group_of_rating >= 0) & (np.bincount(rating, table.row_weights) > 0))
    key = table.item[first[grouped]].astype(np.int64) * (group.max() + 1) + group_of_rating[grouped]
    _, place, size = np.unique(key, return_inverse=True, return_counts=True)
    members = np.ones(first.size)
    members[grouped] = size[place]
    return replace(table, weight=table.row_weights / members[rating])
