"""Define what a section of the report is: facts of a study, findings about them, and blocks that show them.

A new section is one file in `sections/` with one class under `@sections.register`; see docs/contributing/section.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Literal

from dissensus.common.registry import Registry
from dissensus.messages import PYTHON_FACE, Face, Message
from dissensus.report.blocks import PageBlock
from dissensus.report.study import Study
from dissensus.table.kinds import CLASS_KINDS

Tone = Literal["good", "note", "bad"]
Facts = dict[str, Any]


class Finding(Message):
    """A finding for the summary: a sentence, advice, a tone, and the table with the details.

    A subclass sets `advice` (a template like `template`), `tone` and `table`, or overrides the properties.
    """

    @property
    def advice(self) -> str:
        """Return the template of the advice; "" if there is none."""
        return ""

    @property
    def tone(self) -> Tone:
        """Return "bad" if action is needed, "good" if something is confirmed, else "note"."""
        return "note"

    @property
    def table(self) -> str:
        """Return the name of the table with the details; "" to link to the section."""
        return ""

    def render_advice(self, face: Face = PYTHON_FACE) -> str:
        """Return the advice in the words of an interface."""
        return self.fill_template(self.advice, face)


Findings = Iterator[Finding]
Blocks = Iterator[PageBlock]


class Section(ABC):
    """One section of the report; `needs` lists the required inputs of the study, `kinds` the supported label types."""

    needs: ClassVar[tuple[str, ...]] = ()
    kinds: ClassVar[tuple[str, ...]] = CLASS_KINDS

    def applies(self, study: Study) -> bool:
        """Return True if the study has all inputs that this section needs."""
        return all(getattr(study, name) is not None for name in self.needs)

    @abstractmethod
    def collect(self, study: Study) -> Facts:
        """Compute the facts; `findings` and `draw` receive them as plain JSON values (see `study.to_plain`)."""

    def findings(self, facts: Facts) -> Iterable[Finding]:
        """Return findings for the summary at the top, the most important first."""
        return []

    @abstractmethod
    def draw(self, facts: Facts) -> Iterable[PageBlock]:
        """Return blocks that show the facts, charts before tables."""


sections: Registry[type[Section]] = Registry(
    "section", "report --help", "dissensus.report.sections", "dissensus.sections"
)
"""Sections by name: `summary` is the question that the section answers, `place` its position from the top."""
