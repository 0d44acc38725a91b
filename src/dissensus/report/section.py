"""Sections of the report: numbers from a study, sentences about them, and blocks that show them.

A new section is one file in `sections/` with one class that `sections.enter` registers: docs/contributing/section.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from dissensus.common.registry import Entry, Registry
from dissensus.report.blocks import Block
from dissensus.report.study import Study
from dissensus.table.kinds import CLASS_KINDS

Tone = Literal["good", "note", "bad"]
Facts = dict[str, Any]


@dataclass(frozen=True)
class Finding:
    """A sentence for the summary: what was found, and what to do about it."""

    text: str
    advice: str = ""
    tone: Tone = "note"
    table: str = ""  # name of the table that shows it; left out, the section


Findings = Iterator[Finding]
Blocks = Iterator[Block]


class Section(ABC):
    """One section of the report; `needs` names what the study must have, `kinds` the kinds of labels that it is for."""

    needs: ClassVar[tuple[str, ...]] = ()
    kinds: ClassVar[tuple[str, ...]] = CLASS_KINDS

    def applies(self, study: Study) -> bool:
        """Whether the study has what this section needs."""
        return all(getattr(study, name) is not None for name in self.needs)

    @abstractmethod
    def collect(self, study: Study) -> Facts:
        """Work out the numbers; `findings` and `draw` see nothing but what `study.plain` makes of them for JSON."""

    def findings(self, facts: Facts) -> Iterable[Finding]:
        """Say what belongs into the summary on top, the most important first."""
        return []

    @abstractmethod
    def draw(self, facts: Facts) -> Iterable[Block]:
        """Show the numbers as blocks, pictures before tables."""


class Sections(Registry[type[Section]]):
    """Sections by name, in their places on the page."""

    def enter(self, name: str, *, title: str, summary: str, place: int) -> Callable[[type[Section]], type[Section]]:
        """Register a section: `summary` is the question that it answers, a higher `place` is further down the page."""
        return self.register(name, summary=summary, cite="", title=title, place=place)

    def in_place(self) -> list[tuple[str, Entry[type[Section]]]]:
        """Return names and entries in their order on the page."""
        return sorted(self.entries(), key=lambda pair: (pair[1].facts["place"], pair[0]))


sections = Sections("section", "report --help", "dissensus.report.sections", "dissensus.sections")
