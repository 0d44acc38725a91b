"""Sections of the report: numbers from a study, sentences about them, and blocks that show them.

A new section is one file in `sections/` with one class that `sections.register` enters: docs/contributing/section.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from dissensus.common.registry import Registry
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


sections: Registry[type[Section]] = Registry(
    "section", "report --help", "dissensus.report.sections", "dissensus.sections"
)
"""Sections by name: `summary` is the question that one answers, a higher `place` is further down the page."""
