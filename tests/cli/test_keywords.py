from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import pytest

from dissensus.cli.keywords import parse
from dissensus.common.parameters import Parameters, param
from dissensus.exceptions import BadParameter, UnknownName


class Method(Parameters):
    """Keywords of every kind."""

    count: int = param(3, "")
    rate: float = param(1, "")
    fast: bool = param(False, "")
    way: Literal["up", "down"] | None = param(None, "")
    threads: int | None = param(None, "")
    name: str = param("x", "")
    seed: int | None = param(0, "")
    untyped = param(2.5, "")
    sizes: Sequence[int] = param((1,), "")
    file: str | None = param(None, "")


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("count=7", 7),
        ("rate=2", 2.0),
        ("rate=1e-3", 0.001),
        ("fast=true", True),
        ("fast=No", False),
        ("way=down", "down"),
        ("way=none", None),
        ("threads=None", None),
        ("threads=2", 2),
        ("name=none", "none"),
        ("name=a=b", "a=b"),
        ("untyped=1.5", 1.5),
        (" count = 7", 7),
        ("sizes=8,4", (8, 4)),
        ("sizes=8", (8,)),
        ("file=none", None),
        ("file=a", "a"),
    ],
)
def test_text_becomes_the_type_of_the_keyword(setting, value):
    (found,) = parse([setting], Method, "method").values()
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("count=1.5", "expected a whole number, got '1.5'"),
        ("count=none", "expected a whole number"),
        ("fast=maybe", "expected true or false"),
        ("way=left", "expected 'up' or 'down' or none"),
        ("count", "expected KEY=VALUE"),
        ("seed=-3", "seed must be 0 or more"),
    ],
)
def test_other_text_is_an_error_that_says_what_is_expected(setting, says):
    with pytest.raises(BadParameter, match=says):
        parse([setting], Method, "method")


@pytest.mark.parametrize(
    ("setting", "says"),
    [("count=x", "^--set part.count=x: expected"), ("count", "^--set part.count: expected"),
     ("cuont=1", r"^--set part.cuont: 'method' has no keyword 'cuont'; did you mean 'count'\?")],
)  # fmt: skip
def test_a_part_is_named_as_it_was_given(setting, says):
    with pytest.raises((BadParameter, UnknownName), match=says):
        parse([setting], Method, "method", part="part")


def test_hyphens_are_underscores_and_the_last_one_counts():
    assert parse(["count=1", "count=2"], Method, "method") == {"count": 2}
    with pytest.raises(UnknownName, match="'method' has no keyword 'no_thing'; it has count, rate"):
        parse(["no-thing=1"], Method, "method")
