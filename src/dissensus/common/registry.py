"""Registries, which map names to entries such as methods, encoders or readers.

A registry belongs to a package with one module per entry; `dawid_skene.py` registers `dawid-skene`. Looking up one name
imports that module alone, and listing all names imports all modules, so that no list is kept by hand.

Other packages add entries through entry points of the registry's `group`. An entry point has the name of the entry, and
its value is a module that registers the entry. Entry points are read when a name is not found in this package, or when
all entries are listed.
"""

from __future__ import annotations

import pkgutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Generic, TypeVar

from dissensus.common.exceptions import (
    NotRegistered,
    NotRegisteredByModule,
    PluginFailed,
    PluginSkipped,
    RegisteredTwice,
    UnknownEntry,
)
from dissensus.common.exceptions import suggest_nearest as suggest_nearest

T = TypeVar("T")

DEFAULT_METHOD = "consensus"  # method of commands without --method

_loading_package: ContextVar[str] = ContextVar(
    "_loading_package", default=""
)  # package whose plug-in is being imported


@dataclass(frozen=True)
class Entry(Generic[T]):
    """A registered value and its description."""

    name: str
    value: T
    summary: str  # one line for tables
    cite: str  # author, year
    facts: dict[str, Any] = field(default_factory=dict)  # such as needs_features; lists are sorted by the fact `place`


@contextmanager
def skip_failing_plugin(entry: Entry[Any]) -> Iterator[None]:
    """Turn an error of another package's entry into a warning, so that other entries can still be used."""
    try:
        yield
    except Exception as error:
        if not (package := entry.facts.get("package")):
            raise
        warnings.warn(PluginSkipped(**_describe_plugin_fault(f"'{entry.name}'", package, error)), stacklevel=4)


def _describe_plugin_fault(plugin: str, package: str, error: Exception) -> dict[str, str]:
    return {"plugin": plugin, "package": package, "reason": f"{type(error).__name__}: {error}".rstrip(".")}


class Registry(Mapping[str, T]):
    """A mapping from names to registered values; the error about an unknown name suggests a similar one.

    `entry_type` is the noun for an entry, such as "method". `command` is the command that lists all entries; without
    one, errors list them. `group` is the group of entry points through which other packages can add entries.
    """

    def __init__(self, entry_type: str, command: str, package: str, group: str = ""):
        self.entry_type, self.command, self.package, self.group = entry_type, command, package, group
        self._entries: dict[str, Entry[T]] = {}
        self._broken: dict[str, dict[str, str]] = {}  # name of a plug-in that cannot be loaded → fields of its error
        self._complete = False

    def register(self, name: str, *, summary: str, cite: str = "", **facts: Any) -> Callable[[T], T]:
        """Return a decorator that registers a class or function under `name`."""

        def add_entry(value: T) -> T:
            if name in self._entries:
                raise RegisteredTwice(entry_type=self.entry_type, name=name)
            package = {"package": _loading_package.get()} if _loading_package.get() else {}
            self._entries[name] = Entry(name, value, summary, cite, facts | package)
            docstring: Any = vars(value).get("__doc__") if isinstance(value, type) else None
            if getattr(docstring, "inherited", False):  # The class inherits the docstring of `Parameters`.
                docstring.text = f"{summary[:1].upper()}{summary[1:]}."
            return value

        return add_entry

    def _import_modules(self, name: object = None) -> None:
        """Import the module of one name, or of all names."""
        if self._complete or name in self._entries:
            return
        if isinstance(name, str) and (module := name.replace("-", "_")).isidentifier():
            if find_spec(f"{self.package}.{module}") is not None:
                import_module(f"{self.package}.{module}")
            if name not in self._entries:
                self._load_plugins(name)
            if name in self._entries or name in self._broken:
                return
        for found in pkgutil.iter_modules(import_module(self.package).__path__, f"{self.package}."):
            import_module(found.name)
        self._complete = True
        self._load_plugins()
        for fault in self._broken.values():
            warnings.warn(PluginSkipped(**fault), stacklevel=2)

    def plugins(self, name: str | None = None) -> list[Any]:
        """Return the entry points of other packages, for one name or for all, without importing them."""
        if not self.group:
            return []
        from importlib.metadata import entry_points  # This import takes 30 ms.

        return list(entry_points(group=self.group) if name is None else entry_points(group=self.group, name=name))

    def _load_plugins(self, name: str | None = None) -> None:
        for plugin in self.plugins(name):
            package = plugin.dist.name if plugin.dist else plugin.module
            token = _loading_package.set(package)
            try:
                plugin.load()
                if plugin.name not in self._entries:
                    raise NotRegisteredByModule(module=plugin.value, entry_type=self.entry_type)
            except Exception as error:
                self._broken[plugin.name] = _describe_plugin_fault(f"{self.entry_type} '{plugin.name}'", package, error)
            finally:
                _loading_package.reset(token)

    def entry(self, name: str) -> Entry[T]:
        """Return the entry of a name, with its summary, citation and facts."""
        self._import_modules(name)
        if name in self._broken and name not in self._entries:
            raise PluginFailed(**self._broken[name])
        if name not in self._entries:
            raise UnknownEntry(entry_type=self.entry_type, name=str(name), entries=tuple(self), command=self.command)
        return self._entries[name]

    def entries(self) -> list[tuple[str, Entry[T]]]:
        """Return all names with their entries, sorted by place, then by name."""
        self._import_modules()
        return sorted(self._entries.items(), key=lambda pair: (pair[1].facts.get("place", 0), pair[0]))

    def find_entry(self, value: T) -> Entry[T] | None:
        """Return the entry of a value, or None if it is not registered."""
        return next((entry for entry in self._entries.values() if entry.value is value), None)

    def get_name(self, value: T) -> str:
        """Return the name of a registered value."""
        if (entry := self.find_entry(value)) is None:
            raise NotRegistered(value=str(getattr(value, "__name__", value)), entry_type=self.entry_type)
        return entry.name

    def __getitem__(self, name: str) -> T:
        return self.entry(name).value

    def __contains__(self, name: object) -> bool:  # The inherited method would build an error with difflib.
        self._import_modules(name)
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(name for name, _ in self.entries())

    def __len__(self) -> int:
        self._import_modules()
        return len(self._entries)
