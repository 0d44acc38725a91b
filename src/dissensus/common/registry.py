"""Names → entries, with one signature per registry. Everything that lists methods reads it from here.

A registry belongs to a package with one module per entry; `dawid-skene` is registered by `dawid_skene.py`. Asking for
one name imports that module alone, asking for all names imports all modules: nobody keeps a list.

Other packages add entries by entry points of the registry's `group`: the name is that of the entry, the value a module
that registers it. They are looked for when a name is asked for that is not ours, or when all are listed.
"""

from __future__ import annotations

import difflib
import pkgutil
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Generic, TypeVar

from dissensus.exceptions import PluginWarning, UnknownName

T = TypeVar("T")


DEFAULT_METHOD = "consensus"  # of every command that is not told which

_loading: ContextVar[str] = ContextVar("_loading", default="")  # the package whose plugin is being imported


@dataclass(frozen=True)
class Entry(Generic[T]):
    """One registered thing and what is said about it."""

    name: str
    value: T
    summary: str  # one line for tables
    cite: str  # author, year
    facts: dict[str, Any] = field(default_factory=dict)  # such as needs_features, binary; `place` orders the list


@contextmanager
def guarded(entry: Entry[Any]) -> Iterator[None]:
    """Turn an error of what another package registered into a warning: the rest goes on without it."""
    try:
        yield
    except Exception as error:
        if not (package := entry.facts.get("package")):
            raise
        warnings.warn(_sentence(f"'{entry.name}'", package, error), PluginWarning, stacklevel=4)


def _sentence(what: str, package: str, error: Exception) -> str:
    why = f"{type(error).__name__}: {error}".rstrip(".")
    return f"{what} of the package {package} is left out ({why}); update or uninstall {package}."


def nearest(name: str, known: Iterable[str]) -> str:
    """The question after a wrong name; "" where none of those known is near."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f" did you mean '{near[0]}'?" if near else ""


class Registry(Mapping[str, T]):
    """A mapping from names to what was registered under them; a wrong name is answered with the nearest right one.

    `what` is the word for one entry, `command` the one that lists all; without it, the error names all. `group` is that
    of the entry points by which other packages add entries; without it, none can.
    """

    def __init__(self, what: str, command: str, package: str, group: str = ""):
        self.what, self.command, self.package, self.group = what, command, package, group
        self._entries: dict[str, Entry[T]] = {}
        self._broken: dict[str, str] = {}  # name of a plugin that cannot be loaded → a sentence
        self._complete = False

    def register(self, name: str, *, summary: str, cite: str = "", **facts: Any) -> Callable[[T], T]:
        """A decorator that enters a class or function under `name`."""

        def enter(value: T) -> T:
            if name in self._entries:
                raise ValueError(f"{self.what} '{name}' is registered twice.")
            package = {"package": _loading.get()} if _loading.get() else {}
            self._entries[name] = Entry(name, value, summary, cite, facts | package)
            written: Any = vars(value).get("__doc__") if isinstance(value, type) else None
            if getattr(written, "inherited", False):  # of `Parameters`: the class has no docstring of its own
                written.text = f"{summary[:1].upper()}{summary[1:]}."
            return value

        return enter

    def _load(self, name: object = None) -> None:
        """Import the module of one name, or of all."""
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
        for sentence in self._broken.values():
            warnings.warn(sentence, PluginWarning, stacklevel=2)

    def plugins(self, name: str | None = None) -> list[Any]:
        """The entry points of other packages, or those of one name; none is imported."""
        if not self.group:
            return []
        from importlib.metadata import entry_points  # takes 30 ms

        return list(entry_points(group=self.group) if name is None else entry_points(group=self.group, name=name))

    def _load_plugins(self, name: str | None = None) -> None:
        for plugin in self.plugins(name):
            package = plugin.dist.name if plugin.dist else plugin.module
            token = _loading.set(package)
            try:
                plugin.load()
                if plugin.name not in self._entries:
                    raise LookupError(f"{plugin.value} registers no {self.what} of that name")
            except Exception as error:
                self._broken[plugin.name] = _sentence(f"{self.what} '{plugin.name}'", package, error)
            finally:
                _loading.reset(token)

    def entry(self, name: str) -> Entry[T]:
        """The entry with its summary, citation and facts."""
        self._load(name)
        if name in self._broken and name not in self._entries:
            raise UnknownName(self._broken[name])
        if name not in self._entries:
            guess = nearest(str(name), self._entries)
            known = f"`dissensus {self.command}` lists all {len(self)}."
            if not self.command:
                known = f"{'There' if guess else 'there'} are {', '.join(self)}."
            raise UnknownName(f"no {self.what} '{name}';{guess} {known}")
        return self._entries[name]

    def entries(self) -> list[tuple[str, Entry[T]]]:
        """All names with their entries, by place, then by name."""
        self._load()
        return sorted(self._entries.items(), key=lambda pair: (pair[1].facts.get("place", 0), pair[0]))

    def entry_of(self, value: T) -> Entry[T] | None:
        """The entry of what was registered; None where it was not."""
        return next((entry for entry in self._entries.values() if entry.value is value), None)

    def name_of(self, value: T) -> str:
        """The name that `value` was registered under."""
        if (entry := self.entry_of(value)) is None:
            raise UnknownName(f"{getattr(value, '__name__', value)} is no registered {self.what}; register it first.")
        return entry.name

    def __getitem__(self, name: str) -> T:
        return self.entry(name).value

    def __contains__(self, name: object) -> bool:  # Mapping's own asks __getitem__ for a KeyError, built from difflib
        self._load(name)
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(name for name, _ in self.entries())

    def __len__(self) -> int:
        self._load()
        return len(self._entries)
