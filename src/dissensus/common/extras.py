"""Import modules that only an optional extra installs."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from dissensus.common.exceptions import ModuleMissing


def import_extra(module: str, who: str, extra: str) -> Any:
    """Import `module`; raise an error that names the feature and its extra if the module is not installed.

    >>> import_extra("json", "dissensus serve needs", "serve").dumps(1)
    '1'
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ModuleMissing(user=who, module=error.name or module, extra=extra) from error
