"""Keywords as scikit-learn has them: `get_params`, `set_params`, a repr, and `sklearn.base.clone` works.

Not scikit-learn's own BaseEstimator, because importing that costs 0.9 s and 80 MB (it brings scipy.stats and, where
it is installed, pandas) before a single label is read; `clone` and the search tools ask for these two methods only.
"""

from __future__ import annotations

import inspect
import math
from numbers import Integral, Real
from typing import Any, Self

from dissensus.exceptions import BadParameter


def is_number(value: Any) -> bool:
    """A finite number, no bool."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def is_whole(value: Any) -> bool:
    """An integer, no bool."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def _has_keywords(value: Any) -> bool:
    """A part with keywords of its own: one of ours, or an estimator of scikit-learn."""
    return hasattr(value, "get_params") and not isinstance(value, type)


class Parameters:
    """A base for classes whose `__init__` only stores its keywords."""

    @classmethod
    def parameter_names(cls) -> list[str]:
        """The keywords of `__init__`, sorted."""
        return sorted(name for name in inspect.signature(cls.__init__).parameters if name != "self")

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Keyword → value; with `deep` also those of a part that has keywords itself, as `encoder__dropout`."""
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
        defaults = inspect.signature(type(self).__init__).parameters
        changed = {
            name: value for name, value in self.get_params(deep=False).items() if value != defaults[name].default
        }
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in changed.items())})"
