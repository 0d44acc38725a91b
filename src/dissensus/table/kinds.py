"""Kinds of labels. A table always holds codes into its distinct labels, `classes`; its kind says how to read these.

| kind | `classes` | `values` |
|---|---|---|
| classes | names without an order | none |
| graded | names in their order; numbers sort as numbers | the numbers, else ranks from 0 |
| numbers | the distinct numbers | the same as floats |
| pairs | left, right, tie: which of the two things that an item's name joins is better | none |
| sets | the distinct sets of options that somebody ticked, each as "A|B"; `∅` where nothing was ticked | none |
| objects | anything that has a distance: texts, boxes "x, y, width, height", JSON | none |
| spans | tags: O, B-x and I-x of every x; an item is a place in a document, see `table.spans` | none |
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dissensus.common.types import BoolArray, FloatArray, IntArray, Names
from dissensus.exceptions import BadParameter, DataError
from dissensus.table import names as naming
from dissensus.table import spans

KINDS = {
    "classes": "classes without an order",
    "graded": "classes in an order",
    "numbers": "numbers",
    "pairs": "comparisons of two things",
    "sets": "sets of options",
    "objects": "objects with a distance",
    "spans": "tags of tokens or characters",
}
"""Kind → what its labels are, in words."""
CLASS_KINDS = ("classes", "graded")  # of labels that have probabilities

MAX_INTEGER_CLASSES = 30  # different whole numbers that are still taken for classes
GRADE_COUNTS = range(3, 12)  # of whole numbers in a row that look like ratings
MAX_NUMBER = 1e150  # its square is still a number
OUTCOMES = ("left", "right", "tie")  # the classes of pairs
VERSUS = " vs "  # between the two things in the name of an item
CONTEXT = " | "  # before what else names a comparison, such as a prompt
JOIN = "|"  # between the options in the name of a set
NOTHING = "∅"  # the set without an option
SEPARATORS = (JOIN, ";", ",")  # that labels may have between options; the first that occurs


class Sides(NamedTuple):
    """The things that items compare."""

    things: Names  # (T,) sorted
    left: IntArray  # (I,) codes into things
    right: IntArray  # (I,)


class Options(NamedTuple):
    """What the sets of a vocabulary consist of."""

    names: Names  # (L,) sorted
    ticked: BoolArray  # (K, L) whether a set has an option


def check_kind(kind: Any, allowed: Sequence[str] = tuple(KINDS), what: str = "") -> None:
    """Raise where a kind is unknown, or `what` has no answer for it."""
    if not isinstance(kind, str) or kind not in KINDS:
        raise BadParameter(f"kind must be {', '.join(KINDS)}, got {naming.shown(kind)}.")
    if kind not in allowed:
        raise DataError(
            f"{what} is for {' or '.join(KINDS[one] for one in allowed)}, and these labels are {KINDS[kind]}; read "
            "them with another kind= where they are something else."
        )


def numbers_of(classes: Names) -> FloatArray | None:
    """(K,) the numbers that names spell; None where one of them is no number ("007" is a name)."""
    if classes.dtype.kind in "iuf":
        found = classes.astype(np.float64)
        return found if np.isfinite(found).all() else None
    if classes.dtype != object:
        return None
    values = []
    for name in map(str, classes.tolist()):
        text = name.strip().lstrip("+-")
        try:
            values.append(float(name))
        except ValueError:
            return None
        if "_" in text or (len(text) > 1 and text[0] == "0" and text[1].isdigit()) or not np.isfinite(values[-1]):
            return None
    return np.array(values, np.float64)


def guess(classes: Names) -> str:
    """The kind that a vocabulary speaks for: numbers where there are fractions or many whole numbers, else classes."""
    found = numbers_of(classes)
    if found is None or not found.size:
        return "classes"
    fractions = bool((found != np.floor(found)).any())
    return "numbers" if fractions or np.unique(found).size > MAX_INTEGER_CLASSES else "classes"


def look_graded(classes: Names) -> bool:
    """True for 0 to k or 1 to k, few enough to be ratings."""
    found = numbers_of(classes)
    if found is None or found.size not in GRADE_COUNTS or found.min() not in (0, 1):
        return False
    return bool((np.diff(np.sort(found)) == 1).all())


def vocabulary(kind: str, classes: Names, ordered: bool = False) -> tuple[Names, IntArray]:
    """The classes of a table of this kind, and where each of `classes` is in them; `ordered`: in the order given."""
    same = np.arange(classes.size)
    if kind in ("classes", "objects") or (kind == "graded" and ordered):
        return classes, same
    if kind == "pairs":
        place = naming.match(classes, np.array(OUTCOMES, object), "labels of pairs")
        if (place < 0).any():
            raise DataError(
                f"label {naming.shown(classes[place < 0][0])} says of no pair which is better; labels of pairs are "
                f"{', '.join(OUTCOMES)} or name one of the two; map= renames others, abstain= leaves them out."
            )
        return np.array(OUTCOMES, object), place
    if kind == "sets":
        found_sets, place = np.unique([set_name(parts) for parts in _split(classes)], return_inverse=True)
        return found_sets.astype(object), place
    if kind == "spans":
        tags = np.array(spans.complete(classes), object)
        return tags, naming.match(np.array([str(name) for name in classes.tolist()], object), tags, "tags")
    found = numbers_of(classes)
    if found is None:
        bad = next(name for name in classes.tolist() if numbers_of(np.array([name], object)) is None)
        how = "leave it out with abstain=, or read the labels as kind='classes'"
        if kind == "graded":
            how = "say the order of the grades: classes=[…]"
        elif str(bad).strip().endswith("%"):
            how = "write it without the % sign"
        elif str(bad).count(",") == 1 and numbers_of(np.array([str(bad).replace(",", ".")], object)) is not None:
            how = "write it with a decimal point in place of the comma"
        raise DataError(f"label {naming.shown(bad)} is no number; {how}.")
    if (np.abs(found) > MAX_NUMBER).any():
        far = naming.shown(classes[int(np.abs(found).argmax())])
        raise DataError(f"label {far} is beyond {MAX_NUMBER:g}, where squares overflow; divide the labels first.")
    if kind == "graded":  # "1" and "1.0" are one grade, called as the first
        _, first, place = np.unique(found, return_index=True, return_inverse=True)
        return classes[first], place.reshape(-1)
    values, place = np.unique(found, return_inverse=True)
    whole = (values == np.floor(values)).all() and (np.abs(values) < 2**53).all()
    return values.astype(np.int64) if whole else values, place


def look_like_decimal_commas(classes: Names) -> bool:
    """True for labels such as 3,5: numbers, were their commas points, and some of them no list of options."""
    if classes.dtype != object or not classes.size:
        return False
    names = [str(one) for one in classes.tolist()]
    with_points = numbers_of(np.array([one.replace(",", ".") for one in names], object))
    return any("," in one for one in names) and with_points is not None


def values_of(kind: str, classes: Names) -> FloatArray | None:
    """(K,) where the classes lie; None where the kind has no such thing."""
    if kind not in ("graded", "numbers"):
        return None
    found = numbers_of(classes)
    if found is not None and (np.diff(found) > 0).all():
        return found
    return np.arange(classes.size, dtype=np.float64)


def set_name(options: Iterable[Any]) -> str:
    """The name of a set of options: each once, sorted, joined."""
    return JOIN.join(sorted({str(one) for one in options})) or NOTHING


def look_like_sets(classes: Names) -> bool:
    """True where labels join options that occur in several of them: fewer options than labels."""
    if classes.dtype != object or not any(JOIN in one for one in classes.tolist()):
        return False
    parts = _split(classes)
    options = {one for some in parts for one in some}
    return len(options) < len(parts) and all(options)


def options_of(classes: Names) -> Options:
    """The options of sets that are named as `set_name` does."""
    parts = [[] if one == NOTHING else one.split(JOIN) for one in classes.tolist()]
    names = np.array(sorted({one for some in parts for one in some}), object)
    place = {name: k for k, name in enumerate(names.tolist())}
    ticked = np.zeros((classes.size, names.size), np.bool_)
    for row, some in enumerate(parts):
        ticked[row, [place[one] for one in some]] = True
    return Options(names, ticked)


def _split(classes: Names) -> list[list[str]]:
    """The options of each label."""
    labels = [str(one) for one in classes.tolist()]
    by = next((one for one in SEPARATORS if any(one in label for label in labels)), JOIN)
    return [[p for part in label.split(by) if (p := part.strip()) and p != NOTHING] for label in labels]


def pair_items(left: Any, right: Any, context: Any = None) -> Any:
    """(N,) names of items that compare two things, and `context` (a prompt), as an Arrow array."""
    sides = [pc.cast(naming.to_array(one, name), pa.string()) for one, name in ((left, "left"), (right, "right"))]
    for side in sides:
        for thing in side.unique().to_pylist():
            if thing is None or not thing.strip() or VERSUS in thing or CONTEXT in thing:
                raise DataError(
                    f"{naming.shown(thing)} cannot name a thing that is compared; use a name without {VERSUS!r} and "
                    f"{CONTEXT!r}."
                )
    together = pc.binary_join_element_wise(*sides, VERSUS)
    if context is None:
        return together
    return pc.binary_join_element_wise(together, pc.cast(naming.to_array(context, "context"), pa.string()), CONTEXT)


def sides_of(items: Names) -> Sides:
    """The two things of every item."""
    if items.size == 0:
        return Sides(np.empty(0, object), np.empty(0, np.int32), np.empty(0, np.int32))
    names = pa.array(items, pa.string()) if items.dtype == object else pa.array([str(one) for one in items])
    pair = pc.list_element(pc.split_pattern(names, CONTEXT, max_splits=1), 0)
    parts = pc.split_pattern(pair, VERSUS)
    bad = np.asarray(pc.not_equal(pc.list_value_length(parts), 2))
    if bad.any():
        raise DataError(
            f"item {naming.shown(items[int(bad.argmax())])} names no two things; in a table of pairs an item is called "
            f"'A{VERSUS}B', which Annotations.from_pairs does."
        )
    both = pa.concat_arrays([pc.list_element(parts, 0), pc.list_element(parts, 1)])
    things, codes = naming.encode(both, "things")
    return Sides(things, codes[: items.size], codes[items.size :])
