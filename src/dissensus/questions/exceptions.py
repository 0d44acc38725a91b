"""Errors of questions."""

from __future__ import annotations

from dissensus.exceptions import BadParameter, DataError

# Mistakes -------------------------------------------------------------------------------------------------------------


class WrongPosterior(DataError):
    template = "The posterior must have shape ({n_items}, {n_classes}), items × classes, got {shape}."
    n_items: int
    n_classes: int
    shape: tuple[int, ...]


class NoItemsInCommon(DataError):
    template = "No item has votes, a known class and a class by both predictions, so errors cannot be compared."


class TwoPredictionsNeeded(BadParameter):
    template = "{param[cells]} compares two predictions, got {n}."
    n: int
    example = {"n": 3}
