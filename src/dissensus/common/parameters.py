"""Declare each parameter once, with its type, range, default and a one-line description.

    class Sharp(Parameters):
        rho: float = param(0.05, "radius of the step", above=0)
        norm: Literal["l2", "max"] = param("l2", "how the radius is measured")

The signature of `__init__`, the check and its message (`check_parameters`), `get_params`, `set_params`, `repr`, the
text of `help`, the options of the command line and the reference page (`reference_rows`) are derived from the
declarations. A subclass inherits declarations. It replaces a declaration by a new one, and drops it by assigning a
plain value: `engine: ClassVar = "local"`.
"""

from __future__ import annotations

import inspect
import math
import operator
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, NamedTuple, Self, Union, cast, get_args, get_origin

from dissensus.common.exceptions import NoNestedParameters, OutOfRange, UnknownParameter
from dissensus.common.formatting import join_words
from dissensus.messages import ParameterName

CHECKED_TYPES = {int, float, bool, str, type(None)}
"""Types whose values are checked here; other values are checked by `check`, or by the code that uses them."""

LIMIT_COMPARISONS = {
    "low": ("at least", operator.ge),
    "above": ("above", operator.gt),
    "high": ("at most", operator.le),
    "below": ("below", operator.lt),
}
"""Field of `Param` → its description, and the comparison that allowed values satisfy."""


def is_number(value: Any) -> bool:
    """Return True for a finite number that is not a bool."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def is_whole_number(value: Any) -> bool:
    """Return True for an integer that is not a bool."""
    return isinstance(value, Integral) and not isinstance(value, bool)


@dataclass(frozen=True)
class Param:
    """The declaration of one parameter; values may equal `low` and `high`, but not `above` and `below`."""

    default: Any
    text: str
    low: float | None = None
    high: float | None = None
    above: float | None = None
    below: float | None = None
    check: Callable[[Any], bool] | None = None
    must: str = ""  # the rule that `check` implements, such as "must be …"

    def check_value(self, name: str, value: Any, hint: Any) -> None:
        """Raise OutOfRange if the value is not allowed for the parameter `name` of type `hint`."""
        if not self._is_allowed(value, set(_hint_types(hint))):
            raise OutOfRange(name=ParameterName(name), allowed=self.describe_allowed_values(hint), value=value)

    def describe_allowed_values(self, hint: Any) -> str:
        """Return a description of the allowed values that can follow "must", such as "be above 0, or None"."""
        if self.must:
            return self.must.removeprefix("must ")
        kinds = _hint_types(hint)
        words = [repr(kind) for kind in kinds if not isinstance(kind, type)]
        none = ["None"] if type(None) in kinds else []
        others = [kind.__name__ for kind in kinds if isinstance(kind, type) and kind not in CHECKED_TYPES]
        if int in kinds or float in kinds:
            main = self._describe_number_range(whole=float not in kinds)
        elif Any in kinds:
            return "be anything"
        elif others:
            main = f"be of type {join_words(others, 'or')}"
        elif bool in kinds or str in kinds:
            main = "be True or False" if bool in kinds else "be text"
        else:
            return f"be {join_words(none + words, 'or')}"
        rest = words + none
        return f"{main}{', or ' if len(rest) == 1 else ', ' if rest else ''}{join_words(rest, 'or')}"

    def _describe_number_range(self, whole: bool) -> str:
        limits = {name: f"{limit:g}" for name in LIMIT_COMPARISONS if (limit := getattr(self, name)) is not None}
        if limits.keys() == {"low", "high"}:
            return f"{'be a whole number' if whole else 'lie'} from {self.low:g} to {self.high:g}"
        words = " and ".join(f"{LIMIT_COMPARISONS[name][0]} {limit}" for name, limit in limits.items())
        if limits.keys() == {"above", "below"}:
            words = f"between {self.above:g} and {self.below:g}"
        if whole:
            return f"be a whole number, {words}" if words else "be a whole number"
        return "be 0 or more" if words == "at least 0" else f"be {words or 'a number'}"

    def _is_allowed(self, value: Any, kinds: set[Any]) -> bool:
        if Any in kinds and self.check is None:
            return True
        if value is None and Any not in kinds:
            return type(None) in kinds
        if any(type(word) is type(value) and word == value for word in kinds if not isinstance(word, type)):
            return True
        if self.check is not None:
            return bool(self.check(value))
        if isinstance(value, bool | str):
            return type(value) in kinds
        if isinstance(value, Real) and kinds & {int, float}:
            limits = [(getattr(self, name), holds) for name, (_, holds) in LIMIT_COMPARISONS.items()]
            inside = all(limit is None or holds(value, limit) for limit, holds in limits)
            return inside and math.isfinite(value) and (float in kinds or is_whole_number(value))
        return any(isinstance(kind, type) and kind not in CHECKED_TYPES for kind in kinds)


def param(default: Any, text: str, **limits: Any) -> Any:
    """Declare a parameter; `limits` are fields of `Param`, of which `check` and `must` express any other rule."""
    return Param(default, text, **limits)


def check_argument(name: str, value: Any, hint: Any, **limits: Any) -> None:
    """Raise OutOfRange if an argument of a function does not have the type `hint` or is outside its `limits`.

    >>> check_argument("level", 95, float, above=0, below=1)
    Traceback (most recent call last):
    dissensus.common.exceptions.OutOfRange: level must be between 0 and 1, got 95.
    """
    Param(None, "", **limits).check_value(name, value, hint)


class _Signature:
    """The signature of a class, made from its declarations on use; without declarations, that of `__init__`."""

    def __get__(self, instance: object, owner: type[Parameters]) -> inspect.Signature:
        if not owner._takes_declared:
            raise AttributeError("__signature__")  # `inspect.signature` then uses `__init__`.
        kind, hint = inspect.Parameter.KEYWORD_ONLY, owner.parameter_hint
        declared = owner._declared.items()
        found = [inspect.Parameter(name, kind, default=one.default, annotation=hint(name)) for name, one in declared]
        return inspect.Signature(found)


class _Documentation:
    """The docstring of a class as `help` shows it, followed by the declared parameters."""

    def __init__(self, text: str, inherited: bool):
        self.text, self.inherited = text, inherited  # A registry replaces inherited docstrings.

    def __get__(self, instance: object, owner: type[Parameters]) -> str:
        rows = reference_rows(owner) if owner._takes_declared else []
        if not rows:
            return self.text
        lines = [f"{row.name} : {row.type}, default {row.default}\n    {row.text} ({row.range})" for row in rows]
        return "\n".join([inspect.cleandoc(self.text), "", "Parameters", "----------", *lines])


class Parameters:
    """Base class for classes whose parameters are declared with `param`."""

    __signature__ = _Signature()
    _own_parameters: ClassVar[dict[str, Param]] = {}  # declarations of the class itself
    _declared: ClassVar[dict[str, Param]] = {}  # including inherited ones
    _takes_declared: ClassVar[bool] = True  # False if the class defines `__init__` with its own parameters
    _defaults: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._own_parameters = {name: value for name, value in vars(cls).items() if isinstance(value, Param)}
        cls._declared = {}
        inherited_names: set[str] = set()
        for base in cls.__mro__:  # The first class that defines a name takes precedence.
            base_parameters: dict[str, Param] = vars(base).get("_own_parameters", {})
            cls._declared |= {name: value for name, value in base_parameters.items() if name not in inherited_names}
            inherited_names |= vars(base).keys()
        texts = (vars(base).get("__doc__") for base in cls.__mro__)
        nearest = next(text for text in texts if text is not None)
        text = nearest.text if isinstance(nearest, _Documentation) else nearest
        cls.__doc__ = cast(Any, _Documentation(text, inherited=vars(cls).get("__doc__") is None))
        for name, value in cls._own_parameters.items():
            setattr(cls, name, value.default)  # Attributes of the class are defaults, not declarations.
        written = list(inspect.signature(cls.__init__).parameters.values())[1:]
        cls._takes_declared = any(one.kind is one.VAR_KEYWORD for one in written)
        cls._defaults = {one.name: one.default for one in written if one.kind is not one.VAR_KEYWORD}
        if cls._takes_declared:
            cls._defaults = {name: declared.default for name, declared in cls._declared.items()}

    def __init__(self, **keywords: Any):
        for name in keywords:
            if name not in self._declared:
                raise TypeError(f"{type(self).__name__}() got an unexpected keyword argument '{name}'")
        for name, declared in self._declared.items():
            setattr(self, name, keywords.get(name, declared.default))

    def check_parameters(self) -> None:
        """Raise OutOfRange if a parameter has a value that is not allowed."""
        for name, declared in self._declared.items():
            declared.check_value(name, getattr(self, name), self.parameter_hint(name))

    @classmethod
    def declared(cls) -> dict[str, Param]:
        """Return name → declaration, in the order of the signature."""
        return dict(cls._declared)

    @classmethod
    def annotation(cls, name: str) -> tuple[type, Any]:
        """Return the class that annotates a parameter, and the annotation as written in that class."""
        homes = [base for base in cls.__mro__ if name in vars(base).get("__annotations__", {})]
        return (homes[0], vars(homes[0])["__annotations__"][name]) if homes else (cls, Any)

    @classmethod
    @cache
    def parameter_hint(cls, name: str) -> Any:
        """Return the evaluated type of a parameter, or Any if it has none."""
        home, hint = cls.annotation(name)
        return eval(hint, vars(sys.modules[home.__module__]), dict(vars(home))) if isinstance(hint, str) else hint

    @classmethod
    def parameter_names(cls) -> list[str]:
        """Return the names of the parameters of `__init__`, sorted."""
        return sorted(cls._defaults)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return name → value; with `deep`, include the parameters of nested objects, such as `encoder__dropout`."""
        own = {name: getattr(self, name) for name in self.parameter_names()}
        if not deep:
            return own
        nested = {name: value.get_params() for name, value in own.items() if _has_parameters(value)}
        return own | {f"{name}__{key}": value for name, inner in nested.items() for key, value in inner.items()}

    def set_params(self, **params: Any) -> Self:
        """Set parameters, which the next `fit` will use."""
        for name, value in sorted(params.items()):  # An object is set before its own parameters.
            name, _, inner = name.partition("__")
            if name not in self.parameter_names():
                raise UnknownParameter(owner=type(self).__name__, name=name, parameters=tuple(self.parameter_names()))
            if not inner:
                setattr(self, name, value)
            elif _has_parameters(nested := getattr(self, name)):
                nested.set_params(**{inner: value})
            else:
                raise NoNestedParameters(name=ParameterName(name), value=nested, nested=inner)
        return self

    def __repr__(self) -> str:
        shown = {name: repr(value) for name, value in self.get_params(deep=False).items()}
        changed = [f"{name}={text}" for name, text in shown.items() if text != repr(self._defaults[name])]
        return f"{type(self).__name__}({', '.join(changed)})"


class ReferenceRow(NamedTuple):
    """One row of a reference page, which describes a parameter as text."""

    name: str
    type: str
    default: str
    range: str
    text: str


def reference_rows(cls: type[Parameters]) -> list[ReferenceRow]:
    """Return one row per declared parameter, in the order of the signature."""
    rows = []
    for name, declared in cls.declared().items():
        _, hint = cls.annotation(name)
        kind = hint if isinstance(hint, str) else inspect.formatannotation(hint)
        allowed = declared.describe_allowed_values(cls.parameter_hint(name)).removeprefix("be ").removeprefix("lie ")
        rows.append(ReferenceRow(name, kind, repr(declared.default), allowed, declared.text))
    return rows


def _has_parameters(value: Any) -> bool:
    """Return True for an object with parameters of its own, such as an estimator of scikit-learn."""
    return hasattr(value, "get_params") and not isinstance(value, type)


def hint_alternatives(hint: Any) -> Iterator[Any]:
    """Yield the types, and the values of each Literal, that a hint allows."""
    if get_origin(hint) in (Union, types.UnionType):
        for part in get_args(hint):
            yield from hint_alternatives(part)
    elif get_origin(hint) is Literal:
        yield from (type(None) if word is None else word for word in get_args(hint))
    else:
        yield type(None) if hint is None else hint


def _hint_types(hint: Any) -> list[Any]:
    """Return the alternatives of a hint, with generic types reduced to their origin."""
    return [get_origin(kind) or kind for kind in hint_alternatives(hint)]
