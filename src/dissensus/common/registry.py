"""Names → entries, with one signature per registry. Everything that lists methods reads it from here.

A registry belongs to a package with one module per entry; `dawid-skene` is registered by `dawid_skene.py`. Asking for
one name imports that module alone, asking for all names imports all modules: nobody keeps a list.
"""

from __future__ import annotations

import difflib
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Generic, TypeVar

from dissensus.exceptions import UnknownName

T = TypeVar("T")


DEFAULT_METHOD = "consensus"  # of every command that is not told which


@dataclass(frozen=True)
class Entry(Generic[T]):
    """One registered thing and what is said about it."""

    name: str
    value: T
    summary: str  # one line for tables
    cite: str  # author, year
    facts: dict[str, Any] = field(default_factory=dict)  # such as needs_features, binary; `place` orders the list


class Registry(Mapping[str, T]):
    """A mapping from names to what was registered under them; a wrong name is answered with the nearest right one.

    `what` is the word for one entry, `command` the one that lists all; without it, the error names all.
    """

    def __init__(self, what: str, command: str, package: str):
        self.what, self.command, self.package = what, command, package
        self._entries: dict[str, Entry[T]] = {}
        self._complete = False

    def register(self, name: str, *, summary: str, cite: str = "", **facts: Any) -> Callable[[T], T]:
        """A decorator that enters a class or function under `name`."""

        def enter(value: T) -> T:
            if name in self._entries:
                raise ValueError(f"{self.what} '{name}' is registered twice.")
            self._entries[name] = Entry(name, value, summary, cite, facts)
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
            if name in self._entries:
                return
        for found in pkgutil.iter_modules(import_module(self.package).__path__, f"{self.package}."):
            import_module(found.name)
        self._complete = True

    def entry(self, name: str) -> Entry[T]:
        """The entry with its summary, citation and facts."""
        self._load(name)
        if name not in self._entries:
            near = difflib.get_close_matches(str(name), self._entries, n=1)
            guess = f"did you mean '{near[0]}'? " if near else ""
            known = f"`dissensus {self.command}` lists all {len(self)}."
            if not self.command:
                known = f"{'There' if near else 'there'} are {', '.join(self)}."
            raise UnknownName(f"no {self.what} '{name}'; {guess}{known}")
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
        if (entry := self.entry_of(value)) is not None:
            return entry.name
        raise UnknownName(f"{getattr(value, '__name__', value)} is no registered {self.what}; register it first.")

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
