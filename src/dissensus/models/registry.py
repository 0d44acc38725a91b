"""The registry of methods, and the default method for each label type."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dissensus.common.registry import DEFAULT_METHOD, Registry

if TYPE_CHECKING:
    from dissensus.models.base import Aggregator

methods: Registry[type[Aggregator]] = Registry(
    "method", "list methods", "dissensus.models.methods", "dissensus.methods"
)
"""The registry of aggregation methods."""

DEFAULT_METHODS = {
    "graded": "graded-response",
    "numbers": "gaussian",
    "pairs": "bradley-terry",
    "sets": "set-tree",
    "objects": "closest",
    "spans": "bayesian-sequence",
}
"""The default method of each label type; types that are not listed use `DEFAULT_METHOD`."""


def default_method(kind: str) -> str:
    """Return the default method for a label type.

    >>> default_method("classes"), default_method("numbers")
    ('consensus', 'gaussian')
    """
    return DEFAULT_METHODS.get(kind, DEFAULT_METHOD)


def methods_for(kind: str) -> list[str]:
    """Return the names of the methods for a label type.

    >>> methods_for("pairs")
    ['bradley-terry']
    """
    return [name for name, method in methods.items() if kind in method.kinds]
