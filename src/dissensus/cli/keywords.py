"""`--set key=value`: keywords of a method, of a part of a model or of an engine, checked against the signature."""

from __future__ import annotations

import difflib
import inspect
import types
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Literal, Union, get_args, get_origin

from dissensus.exceptions import BadParameter, UnknownName

YES_NO = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def parse(settings: Iterable[str], method: type, called: str, part: str = "") -> dict[str, Any]:
    """`["max-iter=50", "accelerate=none"]` as keywords of a method; the words none, true and false are read as such.

    Of a `part`, such as engine, errors name a setting as it was given: `--set engine.folder=x`.
    """
    before = f"--set {part}." if part else "--set "
    known = inspect.signature(method, eval_str=True).parameters
    found: dict[str, Any] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        key = key.strip().replace("-", "_")
        if not equals:
            raise BadParameter(f"{before}{setting}: expected KEY=VALUE, such as seed=1.")
        check(key, known, called, f"{before}{key}: " if part else "")
        typed = known[key].annotation is not inspect.Parameter.empty
        found[key] = _value(
            text.strip(), known[key].annotation if typed else type(known[key].default), before + setting
        )
    if (found.get("seed") or 0) < 0:
        raise BadParameter(f"seed must be 0 or more, got {found['seed']}.")
    return found


def check(key: str, keywords: Iterable[str], called: str, before: str = "") -> None:
    """An error where a method has no such keyword."""
    keywords = list(keywords)
    if key not in keywords:
        near = difflib.get_close_matches(key, keywords, n=1)
        guess = f"did you mean '{near[0]}'? It" if near else "it"
        raise UnknownName(f"{before}'{called}' has no keyword '{key}'; {guess} has {', '.join(keywords)}.")


def _value(text: str, hint: Any, setting: str) -> Any:
    kinds = list(_kinds(hint))
    if type(None) in kinds and text.lower() == "none":  # first: any text would do as a str
        return None
    for kind in kinds:
        if kind is bool and text.lower() in YES_NO:
            return YES_NO[text.lower()]
        if kind is str or (isinstance(kind, str) and kind == text):
            return text
        if kind in (int, float):
            with suppress(ValueError):
                return kind(text)
        if get_origin(kind) in (Sequence, tuple, list):
            with suppress(ValueError):
                return tuple(get_args(kind)[0](part) for part in text.split(","))
    words = {int: "a whole number", float: "a number", bool: "true or false", type(None): "none"}
    expected = " or ".join(
        "values with commas between them" if get_origin(kind) else words.get(kind, repr(kind)) for kind in kinds
    )
    raise BadParameter(f"{setting}: expected {expected}, got {text!r}.")


def _kinds(hint: Any) -> Iterable[Any]:
    """The types, and the words of a Literal, that a hint allows."""
    if get_origin(hint) in (Union, types.UnionType):
        for part in get_args(hint):
            yield from _kinds(part)
    elif get_origin(hint) is Literal:
        yield from (type(None) if word is None else word for word in get_args(hint))
    else:
        yield hint
