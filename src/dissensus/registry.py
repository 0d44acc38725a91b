"""Names → entries, with one signature per registry. Everything that lists methods reads it from here."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from dissensus.exceptions import UnknownName

T = TypeVar("T")


@dataclass(frozen=True)
class Entry(Generic[T]):
    """One registered thing and what is said about it."""

    name: str
    value: T
    summary: str  # one line for tables
    cite: str  # author, year
    facts: dict[str, Any] = field(default_factory=dict)  # such as needs_features, binary


class Registry(Mapping[str, T]):
    """A mapping from names to what was registered under them; a wrong name is answered with the nearest right one."""

    def __init__(self, what: str, command: str):
        self.what, self.command = what, command
        self._entries: dict[str, Entry[T]] = {}

    def register(self, name: str, *, summary: str, cite: str, **facts: Any) -> Callable[[T], T]:
        """A decorator that enters a class or function under `name`."""

        def enter(value: T) -> T:
            if name in self._entries:
                raise ValueError(f"{self.what} '{name}' is registered twice.")
            self._entries[name] = Entry(name, value, summary, cite, facts)
            return value

        return enter

    def entry(self, name: str) -> Entry[T]:
        """The entry with its summary, citation and facts."""
        if name not in self._entries:
            near = difflib.get_close_matches(str(name), self._entries, n=1)
            guess = f"did you mean '{near[0]}'? " if near else ""
            raise UnknownName(
                f"no {self.what} '{name}'; {guess}`dissensus {self.command}` lists all {len(self._entries)}."
            )
        return self._entries[name]

    def entries(self) -> list[tuple[str, Entry[T]]]:
        """All names with their entries, sorted."""
        return sorted(self._entries.items())

    def name_of(self, value: T) -> str:
        """The name that `value` was registered under."""
        for name, entry in self._entries.items():
            if entry.value is value:
                return name
        raise UnknownName(f"{getattr(value, '__name__', value)} is no registered {self.what}; register it first.")

    def __getitem__(self, name: str) -> T:
        return self.entry(name).value

    def __contains__(self, name: object) -> bool:  # Mapping's own asks __getitem__ for a KeyError, built from difflib
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._entries))

    def __len__(self) -> int:
        return len(self._entries)
