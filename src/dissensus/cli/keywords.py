"""`--set key=value`: text becomes keywords of a method, of a part of a model or of an engine, by what it declares."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, get_args, get_origin

from dissensus.common.parameters import alternatives
from dissensus.exceptions import BadParameter, UnknownName

YES_NO = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
IN_WORDS = {int: "a whole number", float: "a number", bool: "true or false", type(None): "none"}


def parse(
    settings: Iterable[str], kind: type, called: str, *, part: str = "", taken: Iterable[str] = ()
) -> dict[str, Any]:
    """`["max-iter=50", "accelerate=none"]` as keywords of a class; the words none, true and false are read as such.

    Of a `part`, such as engine, errors name a setting as it was given: `--set engine.folder=x`. Keywords that are
    `taken` have an option of their own.
    """
    before = f"--set {part}." if part else "--set "
    declared = inspect.signature(kind, eval_str=True).parameters  # of `Parameters`, what `param` declares
    found: dict[str, Any] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        key = key.strip().replace("-", "_")
        if not equals:
            raise BadParameter(f"{before}{setting}: expected KEY=VALUE, such as seed=1.")
        if key not in declared:
            near = difflib.get_close_matches(key, declared, n=1)
            guess = f"did you mean '{near[0]}'? It" if near else "it"
            named = f"{before}{key}: " if part else ""
            raise UnknownName(f"{named}'{called}' has no keyword '{key}'; {guess} has {', '.join(declared)}.")
        if key in taken:
            raise BadParameter(f"{before}{key}: there is an option for it; see --help.")
        hint = declared[key].annotation
        untyped = hint in (inspect.Parameter.empty, Any)
        found[key] = _read(text.strip(), type(declared[key].default) if untyped else hint, before + setting)
    if (found.get("seed") or 0) < 0:
        raise BadParameter(f"seed must be 0 or more, got {found['seed']}.")
    return found


def _read(text: str, hint: Any, setting: str) -> Any:
    """The value that a text means, by the type of its keyword."""
    kinds = list(alternatives(hint))
    if type(None) in kinds and text.lower() == "none":  # first: any text would do as a str
        return None
    for kind in kinds:
        if kind is bool and text.lower() in YES_NO:
            return YES_NO[text.lower()]
        if kind is str or (isinstance(kind, str) and kind == text):
            return text
        with suppress(ValueError):
            if kind in (int, float):
                return kind(text)
            if get_origin(kind) in (Sequence, tuple, list):
                return tuple(get_args(kind)[0](part) for part in text.split(","))
    expected = " or ".join(
        "values with commas between them" if get_origin(kind) else IN_WORDS.get(kind, repr(kind)) for kind in kinds
    )
    raise BadParameter(f"{setting}: expected {expected}, got {text!r}.")
