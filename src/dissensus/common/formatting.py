"""Write numbers and lists as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

MAX_NAME_LENGTH = 40  # characters


def percent(share: float, digits: int = 0) -> str:
    """Write a share as per cent; only none and all are written as 0 % and 100 %.

    >>> percent(0.1234), percent(0.9966), percent(0.99999, 1), percent(0.0002), percent(0.0)
    ('12 %', '99.7 %', 'more than 99.9 %', 'less than 0.1 %', '0 %')
    """
    text = f"{100 * share:.{digits}f}"
    if (share > 0 and float(text) == 0) or (share < 1 and float(text) == 100):
        if digits < 1:
            return percent(share, 1)
        return "less than 0.1 %" if share < 0.5 else "more than 99.9 %"
    return f"{text} %"


def count(number: int, noun: str) -> str:
    """Write a number with its noun, singular or plural.

    >>> count(1, "item"), count(2000, "item")
    ('1 item', '2,000 items')
    """
    return f"{number:,} {noun}{'s' * (number != 1)}"


def word_list(words: Sequence[str], last: str = "and") -> str:
    """Join words with commas and a last conjunction.

    >>> word_list(["a", "b", "c"]), word_list(["a", "b"], "or"), word_list(["a"])
    ('a, b and c', 'a or b', 'a')
    """
    return f" {last} ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def number(value: float) -> str:
    """Write a number with three decimals; what rounds to 0 has no sign."""
    return f"{value:z.3f}"


def share(value: float) -> str:
    """Write a share as per cent with one decimal."""
    return percent(value, 1)


def interval(low: float, high: float, write: Callable[[float], str] = number) -> str:
    """Write an interval."""
    return f"{write(low)} to {write(high)}"


def short(name: Any) -> str:
    """Cut the text of a name to `MAX_NAME_LENGTH` characters."""
    text = str(name)
    return text if len(text) <= MAX_NAME_LENGTH else text[: MAX_NAME_LENGTH - 1] + "…"


def first_names(names: Sequence[Any], most: int, write: Callable[[Any], str] = short) -> str:
    """List the first names, with "…" where there are more.

    >>> first_names(["a", "b", "c"], 2)
    'a, b, …'
    """
    return ", ".join(map(write, names[:most])) + ", …" * (len(names) > most)


class Share(float):
    """A share as a fact of a message: written as per cent, with as many decimals as the format says, one without.

    >>> f"{Share(0.5)} {Share(0.5):0}"
    '50.0 % 50 %'
    """

    def __format__(self, digits: str) -> str:
        return percent(float(self), int(digits or 1))


class Count(int):
    """A count as a fact of a message: written with a noun, or as the word for one or for several.

    >>> one, many = Count(1), Count(2000)
    >>> f"{one:item} {one:is|are}, {many:item} {many:is|are}, {many}"
    '1 item is, 2,000 items are, 2,000'
    """

    def __format__(self, words: str) -> str:
        if "|" in words:
            return words.split("|")[self != 1]
        return count(int(self), words) if words else f"{int(self):,}"
