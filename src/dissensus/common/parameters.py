"""Keywords declared once: type, range, default and one line of text.

    class Sharp(Parameters):
        rho: float = param(0.05, "radius of the step", above=0)
        norm: Literal["l2", "max"] = param("l2", "how the radius is measured")

From a declaration come the signature of `__init__`, the check and its sentence (`check_parameters`), `get_params`,
`set_params`, `repr`, what `help` says, the options of the command line and the reference page (`reference_rows`). A
subclass inherits declarations, replaces one by declaring it again, and drops one by giving a plain value:
`engine: ClassVar = "local"`.
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

from dissensus.common.formatting import word_list
from dissensus.exceptions import BadParameter

CHECKED_TYPES = {int, float, bool, str, type(None)}
"""A value of another type than these is left to `check`, or to whoever uses it."""

LIMITS = {
    "low": ("at least", operator.ge),
    "above": ("above", operator.gt),
    "high": ("at most", operator.le),
    "below": ("below", operator.lt),
}
"""Field of `Param` → its words, and what holds for an allowed value."""


def is_number(value: Any) -> bool:
    """True for a finite number that is no bool."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def is_whole(value: Any) -> bool:
    """True for an integer that is no bool."""
    return isinstance(value, Integral) and not isinstance(value, bool)


@dataclass(frozen=True)
class Param:
    """The declaration of one keyword; `low` and `high` are allowed values, `above` and `below` are not."""

    default: Any
    text: str
    low: float | None = None
    high: float | None = None
    above: float | None = None
    below: float | None = None
    check: Callable[[Any], bool] | None = None
    must: str = ""  # what `check` asks for: "must be …"

    def check_value(self, name: str, value: Any, hint: Any) -> None:
        """Raise BadParameter where the keyword `name`, of the type `hint`, may not have this value."""
        if not self._allows(value, set(_kinds(hint))):
            raise BadParameter(f"{name} must {self.in_words(hint)}, got {value!r}.")

    def in_words(self, hint: Any) -> str:
        """Name the allowed values, to follow "must": "be above 0, or None"."""
        if self.must:
            return self.must.removeprefix("must ")
        kinds = _kinds(hint)
        words = [repr(kind) for kind in kinds if not isinstance(kind, type)]
        none = ["None"] if type(None) in kinds else []
        others = [kind.__name__ for kind in kinds if isinstance(kind, type) and kind not in CHECKED_TYPES]
        if int in kinds or float in kinds:
            main = self._number_in_words(whole=float not in kinds)
        elif Any in kinds:
            return "be anything"
        elif others:
            main = f"be of type {word_list(others, 'or')}"
        elif bool in kinds or str in kinds:
            main = "be True or False" if bool in kinds else "be text"
        else:
            return f"be {word_list(none + words, 'or')}"
        rest = words + none
        return f"{main}{', or ' if len(rest) == 1 else ', ' if rest else ''}{word_list(rest, 'or')}"

    def _number_in_words(self, whole: bool) -> str:
        limits = {name: f"{limit:g}" for name in LIMITS if (limit := getattr(self, name)) is not None}
        if limits.keys() == {"low", "high"}:
            return f"{'be a whole number' if whole else 'lie'} from {self.low:g} to {self.high:g}"
        said = " and ".join(f"{LIMITS[name][0]} {limit}" for name, limit in limits.items())
        if limits.keys() == {"above", "below"}:
            said = f"between {self.above:g} and {self.below:g}"
        if whole:
            return f"be a whole number, {said}" if said else "be a whole number"
        return "be 0 or more" if said == "at least 0" else f"be {said or 'a number'}"

    def _allows(self, value: Any, kinds: set[Any]) -> bool:
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
            limits = [(getattr(self, name), holds) for name, (_, holds) in LIMITS.items()]
            inside = all(limit is None or holds(value, limit) for limit, holds in limits)
            return inside and math.isfinite(value) and (float in kinds or is_whole(value))
        return any(isinstance(kind, type) and kind not in CHECKED_TYPES for kind in kinds)


def param(default: Any, text: str, **limits: Any) -> Any:
    """Declare a keyword; `limits` are those of `Param`. `check` and `must` say what a type and a range cannot."""
    return Param(default, text, **limits)


def check_argument(name: str, value: Any, hint: Any, **limits: Any) -> None:
    """Raise BadParameter where an argument of a function is none of the type `hint`, or out of its `limits`.

    >>> check_argument("level", 95, float, above=0, below=1)
    Traceback (most recent call last):
    dissensus.exceptions.BadParameter: level must be between 0 and 1, got 95.
    """
    Param(None, "", **limits).check_value(name, value, hint)


class _Signature:
    """The signature of a class, its types evaluated when it is asked for; without declarations, that of `__init__`."""

    def __get__(self, instance: object, owner: type[Parameters]) -> inspect.Signature:
        if not owner._takes_declared():
            raise AttributeError("__signature__")  # `inspect.signature` then looks at `__init__`
        kind, hint = inspect.Parameter.KEYWORD_ONLY, owner.parameter_hint
        declared = owner._declared.items()
        found = [inspect.Parameter(name, kind, default=one.default, annotation=hint(name)) for name, one in declared]
        return inspect.Signature(found)


class _Documentation:
    """The docstring of a class, with the declared keywords when it is asked for: what `help` shows."""

    def __init__(self, text: str, inherited: bool):
        self.text, self.inherited = text, inherited  # a registry puts its summary in place of an inherited one

    def __get__(self, instance: object, owner: type[Parameters]) -> str:
        rows = reference_rows(owner) if owner._takes_declared() else []
        if not rows:
            return self.text
        said = [f"{row.name} : {row.type}, default {row.default}\n    {row.text} ({row.range})" for row in rows]
        return "\n".join([inspect.cleandoc(self.text), "", "Parameters", "----------", *said])


class Parameters:
    """A base for classes whose keywords are declared with `param`."""

    __signature__ = _Signature()
    _own: ClassVar[dict[str, Param]] = {}  # declared in the class itself
    _declared: ClassVar[dict[str, Param]] = {}  # these, and those inherited

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._own = {name: value for name, value in vars(cls).items() if isinstance(value, Param)}
        cls._declared = {}
        given: set[str] = set()
        for base in cls.__mro__:  # the first class that gives a name decides
            own: dict[str, Param] = vars(base).get("_own", {})
            cls._declared |= {name: value for name, value in own.items() if name not in given}
            given |= vars(base).keys()
        written = (vars(base).get("__doc__") for base in cls.__mro__)
        nearest = next(text for text in written if text is not None)
        text = nearest.text if isinstance(nearest, _Documentation) else nearest
        cls.__doc__ = cast(Any, _Documentation(text, inherited=vars(cls).get("__doc__") is None))
        for name, value in cls._own.items():
            setattr(cls, name, value.default)  # so that a class without an instance shows defaults, not declarations

    def __init__(self, **keywords: Any):
        for name in keywords:
            if name not in self._declared:
                raise TypeError(f"{type(self).__name__}() got an unexpected keyword argument '{name}'")
        for name, declared in self._declared.items():
            setattr(self, name, keywords.get(name, declared.default))

    def check_parameters(self) -> None:
        """Raise BadParameter where a keyword is out of its range."""
        for name, declared in self._declared.items():
            declared.check_value(name, getattr(self, name), self.parameter_hint(name))

    @classmethod
    def declared(cls) -> dict[str, Param]:
        """Keyword → declaration, in the order of the signature."""
        return dict(cls._declared)

    @classmethod
    def annotation(cls, name: str) -> tuple[type, Any]:
        """The class that annotates a keyword, and the annotation as it is written there."""
        homes = [base for base in cls.__mro__ if name in vars(base).get("__annotations__", {})]
        return (homes[0], vars(homes[0])["__annotations__"][name]) if homes else (cls, Any)

    @classmethod
    @cache
    def parameter_hint(cls, name: str) -> Any:
        """The type of a keyword, evaluated; Any where it has none."""
        home, hint = cls.annotation(name)
        return eval(hint, vars(sys.modules[home.__module__]), dict(vars(home))) if isinstance(hint, str) else hint

    @classmethod
    def _takes_declared(cls) -> bool:
        """True unless the class has an `__init__` with keywords of its own alone."""
        written = inspect.signature(cls.__init__).parameters.values()
        return any(one.kind is one.VAR_KEYWORD for one in written)

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        """Keyword → default; those of `__init__` where nothing is declared."""
        if cls._takes_declared():
            return {name: declared.default for name, declared in cls._declared.items()}
        written = list(inspect.signature(cls.__init__).parameters.values())[1:]
        return {p.name: p.default for p in written if p.kind is not p.VAR_KEYWORD}

    @classmethod
    def parameter_names(cls) -> list[str]:
        """The keywords of `__init__`, sorted."""
        return sorted(cls._defaults())

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Keyword → value; with `deep` also the keywords of a part, as `encoder__dropout`."""
        own = {name: getattr(self, name) for name in self.parameter_names()}
        if not deep:
            return own
        parts = {name: value for name, value in own.items() if _has_keywords(value)}
        return own | {f"{name}__{key}": v for name, part in parts.items() for key, v in part.get_params().items()}

    def set_params(self, **params: Any) -> Self:
        """Change keywords; the next `fit` uses them."""
        for name, value in sorted(params.items()):  # a part before what is inside it
            name, _, inner = name.partition("__")
            if name not in self.parameter_names():
                known = ", ".join(self.parameter_names())
                raise BadParameter(f"{type(self).__name__} has no keyword '{name}'; it has {known}.")
            if not inner:
                setattr(self, name, value)
            elif _has_keywords(part := getattr(self, name)):
                part.set_params(**{inner: value})
            else:
                raise BadParameter(f"{name} is {part!r}, which has no keywords of its own such as '{inner}'.")
        return self

    def __repr__(self) -> str:
        defaults = self._defaults()  # compared as text: an array has no one answer to ==
        shown = {name: repr(value) for name, value in self.get_params(deep=False).items()}
        changed = [f"{name}={text}" for name, text in shown.items() if text != repr(defaults[name])]
        return f"{type(self).__name__}({', '.join(changed)})"


class ReferenceRow(NamedTuple):
    """What a reference page says of one keyword, all in text."""

    name: str
    type: str
    default: str
    range: str
    text: str


def reference_rows(cls: type[Parameters]) -> list[ReferenceRow]:
    """One row per declared keyword, in the order of the signature."""
    rows = []
    for name, declared in cls.declared().items():
        _, hint = cls.annotation(name)
        kind = hint if isinstance(hint, str) else inspect.formatannotation(hint)
        allowed = declared.in_words(cls.parameter_hint(name)).removeprefix("be ").removeprefix("lie ")
        rows.append(ReferenceRow(name, kind, repr(declared.default), allowed, declared.text))
    return rows


def _has_keywords(value: Any) -> bool:
    """True for a part with keywords of its own: one of ours, or an estimator of scikit-learn."""
    return hasattr(value, "get_params") and not isinstance(value, type)


def alternatives(hint: Any) -> Iterator[Any]:
    """The types, and the words of a Literal, that a hint allows."""
    if get_origin(hint) in (Union, types.UnionType):
        for part in get_args(hint):
            yield from alternatives(part)
    elif get_origin(hint) is Literal:
        yield from (type(None) if word is None else word for word in get_args(hint))
    else:
        yield type(None) if hint is None else hint


def _kinds(hint: Any) -> list[Any]:
    """The same, without what is inside a generic type."""
    return [get_origin(kind) or kind for kind in alternatives(hint)]
