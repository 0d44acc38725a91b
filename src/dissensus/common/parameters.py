"""Keywords declared once: type, range, default and one line of text.

    class Sharp(Parameters):
        rho: float = param(0.05, "radius of the step", above=0)
        norm: Literal["l2", "max"] = param("l2", "how the radius is measured")

From a declaration come the signature of `__init__`, the check and its sentence (`check_parameters`), `get_params`,
`set_params`, `repr`, the options of the command line and the reference page. A subclass inherits declarations, replaces
one by declaring it again, and drops one by giving a plain value: `engine: ClassVar = "local"`.
"""

from __future__ import annotations

import inspect
import math
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, Self, Union, get_args, get_origin

from dissensus.exceptions import BadParameter


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

    def problem(self, value: Any, hint: Any) -> str | None:
        """What the value must be, where it is not; None where it is right."""
        kinds = set(_kinds(hint))
        words = [kind for kind in kinds if isinstance(kind, str)]
        if self._allows(value, kinds):
            return None
        if self.must:
            return self.must
        if words and not kinds & {int, float}:
            quoted = [repr(word) for word in _kinds(hint) if isinstance(word, str)]
            if type(None) in kinds:
                quoted.insert(0, "None")
            return "must be " + (f"{', '.join(quoted[:-1])} or {quoted[-1]}" if len(quoted) > 1 else quoted[0])
        none = ", or None" if type(None) in kinds else ""
        return f"must {self._range(whole=int in kinds and float not in kinds, boolean=kinds == {bool})}{none}"

    def _allows(self, value: Any, kinds: set[Any]) -> bool:
        if value is None:
            return type(None) in kinds
        if isinstance(value, str) and value in kinds:
            return True
        if self.check is not None:
            return bool(self.check(value))
        if isinstance(value, bool | str):
            return type(value) in kinds or Any in kinds
        if isinstance(value, Real) and kinds & {int, float}:
            return (float in kinds or is_whole(value)) and self._within(float(value))
        return not (kinds and kinds <= {int, float, bool, str, type(None)} | {k for k in kinds if isinstance(k, str)})

    def _within(self, value: float) -> bool:
        return (
            math.isfinite(value)
            and (self.low is None or value >= self.low)
            and (self.high is None or value <= self.high)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )

    def _range(self, *, whole: bool, boolean: bool) -> str:
        """The allowed values in words."""
        if boolean:
            return "be True or False"
        number = "be a whole number" if whole else "be a number"
        if self.above is not None and self.below is not None:
            return f"be between {self.above:g} and {self.below:g}"
        if self.low is not None and self.high is not None:
            return f"{'be a whole number from' if whole else 'lie from'} {self.low:g} to {self.high:g}"
        if self.low is not None and self.below is not None:
            return f"be at least {self.low:g} and below {self.below:g}"
        if self.above is not None:
            return f"be above {self.above:g}" + (f" and at most {self.high:g}" if self.high is not None else "")
        if self.low is not None:
            if whole:
                return f"be a whole number, at least {self.low:g}"
            return "be 0 or more" if self.low == 0 else f"be at least {self.low:g}"
        return number


def param(
    default: Any,
    text: str,
    *,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    below: float | None = None,
    check: Callable[[Any], bool] | None = None,
    must: str = "",
) -> Any:
    """Declare a keyword. `check` and `must` ("must be …") say what a type and a range cannot."""
    return Param(default, text, low, high, above, below, check, must)


class _Signature:
    """The signature of a class, its types evaluated when it is asked for; without declarations, that of `__init__`."""

    def __get__(self, instance: object, owner: type[Parameters]) -> inspect.Signature:
        if not owner._declared:
            raise AttributeError("__signature__")  # `inspect.signature` then looks at `__init__`
        kind = inspect.Parameter.KEYWORD_ONLY
        return inspect.Signature(
            [
                inspect.Parameter(name, kind, default=value.default, annotation=owner.parameter_hint(name))
                for name, value in owner._declared.items()
            ]
        )


class Parameters:
    """A base for classes whose keywords are declared with `param`."""

    __signature__ = _Signature()
    _declared: ClassVar[dict[str, Param]] = {}
    _hints: ClassVar[dict[str, Any]] = {}  # evaluated when first needed

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = {name: value for name, value in vars(cls).items() if isinstance(value, Param)}
        inherited: dict[str, Param] = {}
        for base in cls.__mro__[1:]:
            for name, value in getattr(base, "_declared", {}).items():
                inherited.setdefault(name, value)
        kept = {name: value for name, value in inherited.items() if name not in vars(cls)}
        cls._declared = own | kept
        cls._hints = {}
        for name, value in own.items():
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
            value = getattr(self, name)
            if problem := declared.problem(value, self.parameter_hint(name)):
                raise BadParameter(f"{name} {problem}, got {value!r}.")

    @classmethod
    def declared(cls) -> dict[str, Param]:
        """Keyword → declaration, in the order of the signature."""
        return dict(cls._declared)

    @classmethod
    def parameter_hint(cls, name: str) -> Any:
        """The type of a keyword, evaluated."""
        if name not in cls._hints:
            cls._hints[name] = _evaluated(_hint(cls, name), _home(cls, name))
        return cls._hints[name]

    @classmethod
    def parameter_names(cls) -> list[str]:
        """The keywords of `__init__`, sorted."""
        return sorted(cls._declared or (n for n in inspect.signature(cls.__init__).parameters if n != "self"))

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
        defaults = inspect.signature(type(self)).parameters
        changed = {
            name: value for name, value in self.get_params(deep=False).items() if value != defaults[name].default
        }
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in changed.items())})"


def _has_keywords(value: Any) -> bool:
    """True for a part with keywords of its own: one of ours, or an estimator of scikit-learn."""
    return hasattr(value, "get_params") and not isinstance(value, type)


def _home(cls: type, name: str) -> type:
    """The class that annotates the keyword."""
    return next((base for base in cls.__mro__ if name in vars(base).get("__annotations__", {})), cls)


def _hint(cls: type, name: str) -> Any:
    return vars(_home(cls, name)).get("__annotations__", {}).get(name, Any)


def _evaluated(hint: Any, home: type) -> Any:
    if not isinstance(hint, str):
        return hint
    return eval(hint, vars(sys.modules[home.__module__]), dict(vars(home)))  # as typing.get_type_hints does


def _kinds(hint: Any) -> Iterator[Any]:
    """The types, and the words of a Literal, that a hint allows."""
    if get_origin(hint) in (Union, types.UnionType):
        for part in get_args(hint):
            yield from _kinds(part)
    elif get_origin(hint) is Literal:
        yield from (type(None) if word is None else word for word in get_args(hint))
    elif get_origin(hint) is not None:
        yield get_origin(hint) if get_origin(hint) is not Sequence else tuple
    else:
        yield hint
