"""What a reference page and the command line say about the keywords of a class."""

from __future__ import annotations

import inspect
from typing import NamedTuple

from dissensus.common.parameters import Parameters


class ReferenceRow(NamedTuple):
    """One keyword, all in text."""

    name: str
    type: str
    default: str
    range: str
    text: str


def reference_rows(cls: type[Parameters]) -> list[ReferenceRow]:
    """One row per declared keyword, in the order of the signature."""
    rows = []
    for name, declared in cls.declared().items():
        _, hint = cls.annotation(name)
        kind = hint if isinstance(hint, str) else inspect.formatannotation(hint)
        allowed = declared.in_words(cls.parameter_hint(name)).removeprefix("be ").removeprefix("lie ")
        rows.append(ReferenceRow(name, kind, repr(declared.default), allowed, declared.text))
    return rows
