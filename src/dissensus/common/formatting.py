"""Format numbers, shares, intervals and lists as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

MAX_NAME_LENGTH = 40  # characters


def format_percent(share: float, digits: int = 0) -> str:
    """Format a share as a percentage; only shares of exactly 0 and 1 become 0 % and 100 %.

    >>> [format_percent(share) for share in (0.1234, 0.9966, 0.0002, 0.0)], format_percent(0.99999, 1)
    (['12 %', '99.7 %', 'less than 0.1 %', '0 %'], 'more than 99.9 %')
    """
    text = f"{100 * share:.{digits}f}"
    if (share > 0 and float(text) == 0) or (share < 1 and float(text) == 100):
        if digits < 1:
            return format_percent(share, 1)
        return "less than 0.1 %" if share < 0.5 else "more than 99.9 %"
    return f"{text} %"


def format_count(number: int, noun: str) -> str:
    """Format a number with its noun, singular or plural.

    >>> format_count(1, "item"), format_count(2000, "item")
    ('1 item', '2,000 items')
    """
    return f"{number:,} {noun}{'s' * (number != 1)}"


def join_words(words: Sequence[str], last: str = "and") -> str:
    """Join words with commas and a last conjunction.

    >>> join_words(["a", "b", "c"]), join_words(["a", "b"], "or"), join_words(["a"])
    ('a, b and c', 'a or b', 'a')
    """
    return f" {last} ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def format_number(value: float) -> str:
    """Format a number with three decimals; −0.000 becomes 0.000."""
    return f"{value:z.3f}"


def format_share(value: float) -> str:
    """Format a share as a percentage with one decimal."""
    return format_percent(value, 1)


def format_interval(low: float, high: float, write: Callable[[float], str] = format_number) -> str:
    """Format an interval from its two bounds."""
    return f"{write(low)} to {write(high)}"


def shorten_name(name: Any) -> str:
    """Return the text of a name, cut to `MAX_NAME_LENGTH` characters."""
    text = str(name)
    return text if len(text) <= MAX_NAME_LENGTH else text[: MAX_NAME_LENGTH - 1] + "…"


def list_first_names(names: Sequence[Any], most: int, write: Callable[[Any], str] = shorten_name) -> str:
    """Join the first names with commas, followed by "…" if there are more.

    >>> list_first_names(["a", "b", "c"], 2)
    'a, b, …'
    """
    return ", ".join(map(write, names[:most])) + ", …" * (len(names) > most)


class Share(float):
    """A share in a message, formatted as a percentage; the format specification is the number of decimals (default 1).

    >>> f"{Share(0.5)} {Share(0.5):0}"
    '50.0 % 50 %'
    """

    def __format__(self, digits: str) -> str:
        return format_percent(float(self), int(digits or 1))


class Count(int):
    """A count in a message, formatted with a noun, or as the first word of "is|are" for 1 and the second otherwise.

    >>> one, many = Count(1), Count(2000)
    >>> f"{one:item} {one:is|are}, {many:item} {many:is|are}, {many}"
    '1 item is, 2,000 items are, 2,000'
    """

    def __format__(self, words: str) -> str:
        if "|" in words:
            return words.split("|")[self != 1]
        return format_count(int(self), words) if words else f"{int(self):,}"
