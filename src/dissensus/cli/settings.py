"""Read --method and --set KEY=VALUE; a value is converted to the declared type of its parameter."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args, get_origin

from dissensus.cli import exceptions as faults
from dissensus.cli.options import METHOD, SETTINGS
from dissensus.common.parameters import check_argument, hint_alternatives

if TYPE_CHECKING:
    from dissensus.models.base import Aggregator
    from dissensus.table.annotations import Annotations

YES_NO = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
TYPE_NAMES = {int: "a whole number", float: "a number", bool: "true or false", type(None): "none"}


@dataclass(frozen=True)
class MethodOptions:
    """The method to fit; a wrong name or parameter is an error before any file is read."""

    method: str | None = METHOD
    setting: list[str] | None = SETTINGS

    def __post_init__(self) -> None:
        self.new_model()

    def new_model(self, kind: str = "classes") -> Aggregator:
        """Return an unfitted model of the chosen method, or of the default method for a label type."""
        return new_model(self.method, self.setting, kind)

    def method_name(self, tables: dict[str | None, Annotations]) -> str:
        """Return the name of the method that is fitted to these tables."""
        from dissensus.models.base import default_method

        return self.method or default_method(next(iter(tables.values())).kind)


def new_model(method: str | None, settings: list[str] | None, kind: str = "classes") -> Aggregator:
    """Return a model of a method, by default the one for a label type, with its KEY=VALUE settings."""
    from dissensus.models.base import default_method, methods

    method = method or default_method(kind)
    model = methods[method]
    return model(**parse_settings(settings, model, method, taken=["engine"])) if settings else model()


def parse_settings(
    settings: Iterable[str], kind: type, owner: str, *, part: str = "", taken: Iterable[str] = ()
) -> dict[str, Any]:
    """Convert settings such as `["max-iter=50", "accelerate=none"]` to parameters of a class.

    Errors name the setting of a `part`, such as engine, as it was given: `--set engine.folder=x`. Parameters that are
    `taken` have their own option.
    """
    prefix = f"{part}." if part else ""
    declared = inspect.signature(kind, eval_str=True).parameters
    parsed: dict[str, Any] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        key = key.strip().replace("-", "_")
        if not equals:
            raise faults.BadSetting(setting=prefix + setting, expected="KEY=VALUE, such as seed=1")
        if key not in declared:
            raise faults.UnknownSetting(owner=owner, key=key, setting=prefix + key, available=tuple(declared))
        if key in taken:
            raise faults.SettingHasOption(setting=prefix + key)
        hint = declared[key].annotation
        untyped = hint in (inspect.Parameter.empty, Any)
        parsed[key] = _parse_value(text.strip(), type(declared[key].default) if untyped else hint, prefix + setting)
    check_argument("seed", parsed.get("seed"), int | None, low=0)
    return parsed


def _parse_value(text: str, hint: Any, setting: str) -> Any:
    """Convert a text to the type of its parameter."""
    kinds = list(hint_alternatives(hint))
    if type(None) in kinds and text.lower() == "none":  # before str, which accepts any text
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
    words = ("comma-separated values" if get_origin(kind) else TYPE_NAMES.get(kind, repr(kind)) for kind in kinds)
    raise faults.BadSetting(setting=setting, expected=" or ".join(words))
