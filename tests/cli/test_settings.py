from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import pytest

from dissensus.cli.exceptions import BadSetting, SettingHasOption, UnknownSetting
from dissensus.cli.settings import parse_settings
from dissensus.common.exceptions import OutOfRange
from dissensus.common.parameters import Parameters, param


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
    (found,) = parse_settings([setting], Method, "method").values()
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("count=1.5", "a whole number"),
        ("fast=maybe", "true or false"),
        ("way=left", "'up' or 'down' or none"),
        ("sizes=a", "comma-separated values"),
    ],
)
def test_other_text_is_an_error_that_says_what_is_expected(setting, expected):
    with pytest.raises(BadSetting) as caught:
        parse_settings([setting], Method, "method")
    assert caught.value.facts == {"setting": setting, "expected": expected}


def test_a_setting_needs_a_value_in_its_range():
    with pytest.raises(BadSetting):
        parse_settings(["count"], Method, "method")
    with pytest.raises(OutOfRange) as caught:
        parse_settings(["seed=-3"], Method, "method")
    assert (caught.value.name, caught.value.value) == ("seed", -3)
    with pytest.raises(SettingHasOption):
        parse_settings(["seed=3"], Method, "method", taken=["seed"])


@pytest.mark.parametrize(
    ("setting", "error"), [("count=x", BadSetting), ("count", BadSetting), ("cuont=1", UnknownSetting)]
)
def test_a_part_is_named_as_it_was_given(setting, error):
    with pytest.raises(error) as caught:
        parse_settings([setting], Method, "method", part="part")
    assert caught.value.setting == f"part.{setting}" or error is UnknownSetting


def test_hyphens_are_underscores_and_the_last_one_counts():
    assert parse_settings(["count=1", "count=2"], Method, "method") == {"count": 2}
    with pytest.raises(UnknownSetting) as caught:
        parse_settings(["cu-ont=1"], Method, "method")
    assert (caught.value.key, caught.value.owner) == ("cu_ont", "method")
    assert "'count'" in caught.value.guess
