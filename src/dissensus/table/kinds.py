"""Label types. A table stores codes into its distinct labels, `classes`; the label type defines their meaning.

| type | `classes` | `values` |
|---|---|---|
| classes | names without an order | none |
| graded | ordered names; numbers are sorted as numbers | the numbers, or ranks from 0 if names are not numbers |
| numbers | the distinct numbers | the same as floats |
| pairs | left, right and tie, which state the better of the two alternatives in an item's name | none |
| sets | the distinct sets of selected options, each as "A|B"; `∅` for none | none |
| objects | values with a distance: texts, boxes "x, y, width, height", JSON | none |
| spans | tags: O, and B-x and I-x for each type x; an item is a position in a document, see `table.spans` | none |
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dissensus.common.exceptions import OutOfRange
from dissensus.common.types import BoolArray, FloatArray, IntArray, Names
from dissensus.messages import ParameterName
from dissensus.table import exceptions as errors
from dissensus.table import names as naming
from dissensus.table import spans

KIND_DESCRIPTIONS = {
    "classes": "unordered classes",
    "graded": "ordered classes",
    "numbers": "numbers",
    "pairs": "comparisons of two alternatives",
    "sets": "sets of options",
    "objects": "objects with a distance",
    "spans": "tags of tokens or characters",
}
"""Label type → description of its labels."""
CLASS_KINDS = ("classes", "graded")  # label types with class probabilities

MAX_INTEGER_CLASSES = 30  # More distinct whole numbers are read as numbers, not as classes.
GRADED_CLASS_COUNTS = range(3, 12)  # numbers of consecutive whole numbers that look like ratings
MAX_LABEL_NUMBER = 1e150  # The square of this number is still finite.
PAIR_OUTCOMES = ("left", "right", "tie")  # the classes of pairs
PAIR_SEPARATOR = " vs "  # separates the two alternatives in the name of an item
CONTEXT_SEPARATOR = " | "  # precedes the context of a comparison, such as a prompt
OPTION_SEPARATOR = "|"  # separates the options in the name of a set
EMPTY_SET = "∅"  # the name of the set without options
OPTION_SEPARATORS = (
    OPTION_SEPARATOR,
    ";",
    ",",
)  # possible separators of options in labels; the first one that occurs is used


class Alternatives(NamedTuple):
    """The two alternatives of each item of a table of comparisons."""

    names: Names  # (T,) sorted
    left_codes: IntArray  # (I,) codes into names
    right_codes: IntArray  # (I,)


class SetOptions(NamedTuple):
    """The options that occur in the classes of a table of sets."""

    names: Names  # (L,) sorted
    selected: BoolArray  # (K, L) True if set k contains option l


def check_kind(kind: Any, allowed: Sequence[str] = tuple(KIND_DESCRIPTIONS), what: str = "") -> None:
    """Raise if the label type is unknown or not supported by `what`."""
    if not isinstance(kind, str) or kind not in KIND_DESCRIPTIONS:
        raise OutOfRange(name=ParameterName("kind"), allowed="be , ".join(KIND_DESCRIPTIONS), value=kind)
    if kind not in allowed:
        raise errors.LabelTypeMismatch(task=what, allowed=tuple(allowed), kind=kind)


def parse_numbers(classes: Names) -> FloatArray | None:
    """Return the names converted to numbers (K,), or None if a name, such as "007", is not a number."""
    if classes.dtype.kind in "iuf":
        numbers = classes.astype(np.float64)
        return numbers if np.isfinite(numbers).all() else None
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


def guess_kind(classes: Names) -> str:
    """Return "numbers" if the classes are fractions or many whole numbers, else "classes"."""
    numbers = parse_numbers(classes)
    if numbers is None or not numbers.size:
        return "classes"
    fractions = bool((numbers != np.floor(numbers)).any())
    return "numbers" if fractions or np.unique(numbers).size > MAX_INTEGER_CLASSES else "classes"


def look_like_grades(classes: Names) -> bool:
    """Return True if the classes are whole numbers from 0 or 1 to k, for a k that is usual for ratings."""
    numbers = parse_numbers(classes)
    if numbers is None or numbers.size not in GRADED_CLASS_COUNTS or numbers.min() not in (0, 1):
        return False
    return bool((np.diff(np.sort(numbers)) == 1).all())


def build_vocabulary(kind: str, classes: Names, ordered: bool = False) -> tuple[Names, IntArray]:
    """Return the classes of a table of this label type, and the position of each old class among them.

    If `ordered` is True, graded classes keep their order.
    """
    if kind in ("classes", "objects") or (kind == "graded" and ordered):
        return classes, np.arange(classes.size)
    if kind == "pairs":
        place = naming.match_names(classes, np.array(PAIR_OUTCOMES, object), "labels of pairs")
        if (place < 0).any():
            raise errors.InvalidOutcome(label=classes[place < 0][0], outcomes=", ".join(PAIR_OUTCOMES))
        return np.array(PAIR_OUTCOMES, object), place
    if kind == "sets":
        sets, place = np.unique([name_set(parts) for parts in _split_options(classes)], return_inverse=True)
        return sets.astype(object), place
    if kind == "spans":
        tags = np.array(spans.complete_tags(classes), object)
        return tags, naming.match_names(np.array([str(name) for name in classes.tolist()], object), tags, "tags")
    numbers = parse_numbers(classes)
    if numbers is None:
        raise _not_a_number_error(kind, classes)
    if (np.abs(numbers) > MAX_LABEL_NUMBER).any():
        raise errors.NumberTooLarge(label=classes[int(np.abs(numbers).argmax())], limit=MAX_LABEL_NUMBER)
    if kind == "graded":  # "1" and "1.0" are the same grade, named by its first spelling.
        _, first, place = np.unique(numbers, return_index=True, return_inverse=True)
        return classes[first], place.reshape(-1)
    values, place = np.unique(numbers, return_inverse=True)
    whole = (values == np.floor(values)).all() and (np.abs(values) < 2**53).all()
    return values.astype(np.int64) if whole else values, place


def _not_a_number_error(kind: str, classes: Names) -> errors.LabelNotANumber:
    label = next(name for name in classes.tolist() if parse_numbers(np.array([name], object)) is None)
    text = str(label)
    with_point = parse_numbers(np.array([text.replace(",", ".")], object))
    if kind == "graded":
        return errors.LabelNotANumber(label=label, advice="declare the classes in their order")
    if text.strip().endswith("%"):
        return errors.LabelNotANumber(label=label, advice="write it without the % sign")
    if text.count(",") == 1 and with_point is not None:
        return errors.LabelNotANumber(label=label, advice="write it with a decimal point instead of a comma")
    advice: Any = "exclude it as an abstention, or read the labels as classes"
    return errors.LabelNotANumber(label=label, advice=advice)


def look_like_decimal_commas(classes: Names) -> bool:
    """Return True if the labels are numbers with decimal commas, such as "3,5"."""
    if classes.dtype != object or not classes.size:
        return False
    names = [str(name) for name in classes.tolist()]
    with_points = parse_numbers(np.array([name.replace(",", ".") for name in names], object))
    return any("," in name for name in names) and with_points is not None


def class_values(kind: str, classes: Names) -> FloatArray | None:
    """Return the numeric values of the classes (K,), or None if the label type has no values."""
    if kind not in ("graded", "numbers"):
        return None
    numbers = parse_numbers(classes)
    if numbers is not None and (np.diff(numbers) > 0).all():
        return numbers
    return np.arange(classes.size, dtype=np.float64)


def name_set(options: Iterable[Any]) -> str:
    """Return the name of a set, which is its distinct options, sorted and joined by `OPTION_SEPARATOR`."""
    return OPTION_SEPARATOR.join(sorted(set(map(str, options)))) or EMPTY_SET


def look_like_sets(classes: Names) -> bool:
    """Return True if labels look like joined options, of which there are fewer than labels."""
    if classes.dtype != object or not any(OPTION_SEPARATOR in name for name in classes.tolist()):
        return False
    sets = _split_options(classes)
    options = {option for selected in sets for option in selected}
    return len(options) < len(sets) and all(options)


def parse_options(classes: Names) -> SetOptions:
    """Return the options of sets, parsed from names that `name_set` returned."""
    sets = [[] if name == EMPTY_SET else name.split(OPTION_SEPARATOR) for name in classes.tolist()]
    names = np.array(sorted({option for selected in sets for option in selected}), object)
    option_codes = {name: k for k, name in enumerate(names.tolist())}
    is_selected = np.zeros((classes.size, names.size), np.bool_)
    for row, selected in enumerate(sets):
        is_selected[row, [option_codes[option] for option in selected]] = True
    return SetOptions(names, is_selected)


def _split_options(classes: Names) -> list[list[str]]:
    """Split each label into its options."""
    labels = [str(name) for name in classes.tolist()]
    separator = next((mark for mark in OPTION_SEPARATORS if any(mark in label for label in labels)), OPTION_SEPARATOR)
    return [[p for part in label.split(separator) if (p := part.strip()) and p != EMPTY_SET] for label in labels]


def name_pair_items(left: Any, right: Any, context: Any = None) -> Any:
    """Return the item names (N,) of comparisons as an Arrow array; `context` may be a prompt."""
    sides = [
        pc.cast(naming.to_arrow_array(side, name), pa.string()) for side, name in ((left, "left"), (right, "right"))
    ]
    for side in sides:
        for thing in side.unique().to_pylist():
            if thing is None or not thing.strip() or PAIR_SEPARATOR in thing or CONTEXT_SEPARATOR in thing:
                raise errors.InvalidAlternative(name=thing)
    pair_names = pc.binary_join_element_wise(*sides, PAIR_SEPARATOR)
    if context is None:
        return pair_names
    return pc.binary_join_element_wise(
        pair_names, pc.cast(naming.to_arrow_array(context, "context"), pa.string()), CONTEXT_SEPARATOR
    )


def parse_alternatives(items: Names) -> Alternatives:
    """Return the two alternatives of each item, parsed from its name."""
    if items.size == 0:
        return Alternatives(np.empty(0, object), np.empty(0, np.int32), np.empty(0, np.int32))
    names = pa.array(items, pa.string()) if items.dtype == object else pa.array(list(map(str, items)))
    pair = pc.list_element(pc.split_pattern(names, CONTEXT_SEPARATOR, max_splits=1), 0)
    parts = pc.split_pattern(pair, PAIR_SEPARATOR)
    bad = np.asarray(pc.not_equal(pc.list_value_length(parts), 2))
    if bad.any():
        raise errors.ItemNotAPair(item=items[int(bad.argmax())])
    both = pa.concat_arrays([pc.list_element(parts, 0), pc.list_element(parts, 1)])
    things, codes = naming.encode_column(both, "things")
    return Alternatives(things, codes[: items.size], codes[items.size :])
