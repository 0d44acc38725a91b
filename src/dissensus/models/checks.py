"""Checks of what a model is given: the table, its label type, and gold labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dissensus.common.arrays import unmasked
from dissensus.common.types import IntArray
from dissensus.compute.engines.base import RemoteTable
from dissensus.models.exceptions import GoldCode, GoldShape, NotATable, TooManyClasses, WrongLabelType
from dissensus.models.registry import methods, methods_for
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations
from dissensus.table.kinds import KINDS

if TYPE_CHECKING:
    from dissensus.models.base import Aggregator


def check_table(table: Any, caller: str) -> None:
    """Raise an error unless the argument is one table of annotations."""
    if not isinstance(table, Annotations | RemoteTable):
        raise NotATable(caller=caller, type=type(table).__name__)


def check_label_type(model: Aggregator, table: Any) -> None:
    """Raise an error if the labels of a table are of a type that the method is not for."""
    found = getattr(table, "kind", "classes")  # a remote table has classes
    if found not in model.kinds:
        supported = " or ".join(KINDS[kind] for kind in model.kinds)
        raise WrongLabelType(
            method=type(model).__name__, supported=supported, found=KINDS[found], able=tuple(methods_for(found))
        )


def check_class_number(model: Aggregator, table: Any) -> None:
    """Raise an error if a method for two classes gets more."""
    entry = methods.entry_of(type(model))
    if entry is not None and entry.facts.get("binary") and table.n_classes > 2:
        examples = ", ".join(map(naming.shown, table.classes[:3]))
        raise TooManyClasses(method=entry.name, n_classes=table.n_classes, examples=examples)


def check_gold(gold: IntArray | None, table: Annotations | RemoteTable) -> IntArray | None:
    """Return gold as int32 (I,), checked; None if no item has any."""
    if gold is None:
        return None
    gold = unmasked(gold, -1)
    if gold.shape != (table.n_items,) or gold.dtype.kind not in "iu":
        raise GoldShape(n_items=table.n_items, dtype=str(gold.dtype), shape=gold.shape)
    bad = np.flatnonzero((gold < -1) | (gold >= table.n_classes))
    if bad.size:
        raise GoldCode(item=int(bad[0]), code=int(gold[bad[0]]), highest=table.n_classes - 1)
    return np.ascontiguousarray(gold, np.int32) if (gold >= 0).any() else None
