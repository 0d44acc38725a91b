"""Errors that every layer uses: about parameters, registries, files and optional modules."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dissensus.exceptions import (
    BadParameter,
    DataError,
    DissensusWarning,
    MissingExtra,
    PluginWarning,
    UnknownName,
    UnwritableFile,
)
from dissensus.messages import ParameterName


class OutOfRange(BadParameter):
    template = "{name} must {allowed}, got {value!r}."
    name: ParameterName
    allowed: str  # "be above 0, or None"
    value: Any
    example = {"allowed": "be a whole number, at least 1", "value": 0}


class UnknownParameter(BadParameter):
    template = "{owner} has no parameter '{name}'; it has {parameters!l}."
    owner: str
    name: str
    parameters: tuple[str, ...]


class NoNestedParameters(BadParameter):
    template = "{name} is {value!r}, which has no parameters of its own such as '{nested}'."
    name: ParameterName
    value: Any
    nested: str


class UnknownEntry(UnknownName):
    template = "no {entry_type} '{name}';{guess} {listing}"
    entry_type: str
    name: str
    entries: tuple[str, ...]
    command: str  # command that lists all entries; "" if there is none
    example = {"entry_type": "method", "name": "mase", "entries": ("mace", "glad"), "command": "list methods"}

    @property
    def guess(self) -> str:
        return suggest_nearest(self.name, self.entries)

    @property
    def listing(self) -> str:
        if self.command:
            return f"`dissensus {self.command}` lists all {len(self.entries)}."
        return f"{'There' if self.guess else 'there'} are {', '.join(self.entries)}."


class NotRegistered(UnknownName):
    template = "{value} is not a registered {entry_type}; register it first."
    value: str
    entry_type: str


class RegisteredTwice(BadParameter):
    template = "{entry_type} '{name}' is registered twice."
    entry_type: str
    name: str


class NotRegisteredByModule(UnknownName):
    template = "{module} registers no {entry_type} of that name."
    module: str
    entry_type: str


class PluginFailed(UnknownName):
    template = "{plugin} of the package {package} is skipped ({reason}); update or uninstall {package}."
    plugin: str  # "method 'vendor-coin'"
    package: str
    reason: str


class PluginSkipped(PluginWarning):
    template = PluginFailed.template
    plugin: str
    package: str
    reason: str


class CannotWrite(UnwritableFile):
    template = "cannot write {path}: {reason}."
    path: Path
    reason: str


class OverwritesInput(BadParameter):
    template = "{param[output]} would overwrite {path}, which is being read; choose another path."
    path: Path


class ModuleMissing(MissingExtra):
    template = "{user} {module}, which is not installed: pip install 'dissensus[{extra}]'."
    user: str  # "the report needs"
    module: str
    extra: str
    example = {"user": "dissensus serve needs", "module": "uvicorn", "extra": "serve"}


class RaggedRows(DataError):
    template = "expected an array, got rows of different lengths ({reason})."
    reason: str


class NoCodeCache(DissensusWarning):
    template = (
        "compiled code cannot be cached, so every process compiles for some seconds; set NUMBA_CACHE_DIR to a writable "
        "folder."
    )


def suggest_nearest(name: str, known: Iterable[str]) -> str:
    """Return " did you mean '…'?" with the most similar known name, or "" if none is similar.

    >>> suggest_nearest("mase", ("glad", "mace"))
    " did you mean 'mace'?"
    """
    from difflib import get_close_matches

    near = get_close_matches(name, list(known), n=1)
    return f" did you mean '{near[0]}'?" if near else ""
