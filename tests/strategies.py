"""Hypothesis strategies that all tests share, and what it means for two tables to be the same."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from dissensus import Annotations

AWKWARD = [
    "NA",
    "None",
    "null",
    "nan",
    "007",
    "7",
    "-1",
    "a,b",
    'say "x"',
    "two\nlines",
    "tab\t",
    " lead",
    "trail ",
    "é",
    "日本",
]


def texts() -> st.SearchStrategy[str]:
    """Names that files tend to spoil, and any others that are not blank."""
    any_text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)
    return st.one_of(st.sampled_from(AWKWARD), any_text).filter(lambda name: name.strip())


@st.composite
def names(draw: st.DrawFn, size: int) -> list[Any]:
    """`size` different names of one kind, text or integers, in any order."""
    kind = draw(st.sampled_from([texts(), st.integers(-5, 50), st.integers(-(2**62), 2**62)]))
    return draw(st.lists(kind, min_size=size, max_size=size, unique=True))


@st.composite
def columns(
    draw: st.DrawFn,
    *,
    weighted: bool | None = None,
    probabilistic: bool | None = None,
    max_size: int = 7,
    max_classes: int | None = None,
    max_rows: int = 30,
) -> dict[str, Any]:
    """Arguments of `Annotations.from_arrays`, rows in any order.

    The numbers of rows, items, annotators and classes are all different, in any order of size, so that A < K occurs
    (with `max_classes`, K may equal one of them).
    Pairs repeat; some items, annotators and classes have no row.
    """
    sizes = st.lists(st.integers(1, max_size), min_size=3, max_size=3, unique=True)
    I, A, K = draw(sizes)
    K = K if max_classes is None else min(K, max_classes)
    N = draw(st.integers(1, max_rows).filter(lambda n: n not in (I, A, K)))
    items, annotators, classes = draw(names(I)), draw(names(A)), draw(names(K))

    def pick(among: list[Any]) -> list[Any]:
        return draw(st.lists(st.sampled_from(among), min_size=N, max_size=N))

    result = {
        "item": pick(items),
        "annotator": pick(annotators),
        "label": pick(classes),
        "classes": classes,
        "items": items,
        "annotators": annotators,
    }
    if draw(st.booleans()) if weighted is None else weighted:
        result["weight"] = draw(st.lists(st.just(0.0) | st.floats(1e-9, 9), min_size=N, max_size=N))
    if draw(st.booleans()) if probabilistic is None else probabilistic:
        raw = draw(st.lists(st.lists(st.floats(0.01, 1), min_size=K, max_size=K), min_size=N, max_size=N))
        result["proba"] = (np.array(raw) / np.sum(raw, axis=1, keepdims=True)).tolist()
    return result


def tables(**options: Any) -> st.SearchStrategy[Annotations]:
    """Tables of `columns(**options)`: weights and probabilities or not, unless the options say."""
    return columns(**options).map(lambda arguments: Annotations.from_arrays(**arguments))


def identical(one: Annotations, other: Annotations) -> bool:
    """Whether two tables agree in every bit and every name."""
    for field in ("annotator", "label", "item_ptr", "items", "annotators", "classes", "weight", "proba", "item"):
        a, b = getattr(one, field), getattr(other, field)
        if (a is None) != (b is None):
            return False
        if a is not None and (a.dtype != b.dtype or a.shape != b.shape or a.tolist() != b.tolist()):
            return False
    return True
