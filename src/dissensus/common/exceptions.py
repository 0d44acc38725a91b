"""Faults of what every layer uses: parameters, registries, files, optional modules."""

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
    template = "{owner} has no parameter '{name}'; it has {known!l}."
    owner: str
    name: str
    known: tuple[str, ...]


class NotNested(BadParameter):
    template = "{name} is {value!r}, which has no parameters of its own such as '{nested}'."
    name: ParameterName
    value: Any
    nested: str


class UnknownEntry(UnknownName):
    template = "no {what} '{name}';{guess} {listing}"
    what: str
    name: str
    known: tuple[str, ...]
    command: str  # the one that lists all; empty where no command does
    example = {"what": "method", "name": "mase", "known": ("mace", "glad"), "command": "list methods"}

    @property
    def guess(self) -> str:
        return suggest_nearest(self.name, self.known)

    @property
    def listing(self) -> str:
        if self.command:
            return f"`dissensus {self.command}` lists all {len(self.known)}."
        return f"{'There' if self.guess else 'there'} are {', '.join(self.known)}."


class NotRegistered(UnknownName):
    template = "{value} is not a registered {what}; register it first."
    value: str
    what: str


class RegisteredTwice(BadParameter):
    template = "{what} '{name}' is registered twice."
    what: str
    name: str


class NothingRegistered(UnknownName):
    template = "{module} registers no {what} of that name."
    module: str
    what: str


class PluginFailed(UnknownName):
    template = "{what} of the package {package} is skipped ({reason}); update or uninstall {package}."
    what: str  # "method 'vendor-coin'"
    package: str
    reason: str


class PluginSkipped(PluginWarning):
    template = PluginFailed.template
    what: str
    package: str
    reason: str


class CannotWrite(UnwritableFile):
    template = "cannot write {path}: {reason}."
    path: Path
    reason: str


class OverwritesInput(BadParameter):
    template = "{param[output]} would overwrite {path}, which is being read; write to another place."
    path: Path


class ModuleMissing(MissingExtra):
    template = "{user} {module}, which is not installed: pip install 'dissensus[{extra}]'."
    user: str  # "the report needs"
    module: str
    extra: str
    example = {"user": "the report needs", "module": "jinja2", "extra": "report"}


class RaggedRows(DataError):
    template = "expected an array, got rows of different lengths ({reason})."
    reason: str


class NoCodeCache(DissensusWarning):
    template = (
        "compiled code cannot be cached, so every process compiles for some seconds; set NUMBA_CACHE_DIR to a writable "
        "folder."
    )


def suggest_nearest(name: str, known: Iterable[str]) -> str:
    """Return the question that suggests the nearest known name, or "" if none is near.

    >>> suggest_nearest("mase", ("glad", "mace"))
    " did you mean 'mace'?"
    """
    from difflib import get_close_matches

    near = get_close_matches(name, list(known), n=1)
    return f" did you mean '{near[0]}'?" if near else ""
