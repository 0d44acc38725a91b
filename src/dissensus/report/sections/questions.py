"""Sections for all declared questions that are registered with a `title` and a `place`."""

from __future__ import annotations

from typing import ClassVar

from dissensus.questions.base import MessageList, Question, ShareBars, questions
from dissensus.questions.base import Table as Rows
from dissensus.report.blocks import PageBlock, TableBlock, TableColumn, TextBlock
from dissensus.report.section import Blocks, Facts, Section, sections
from dissensus.report.study import Study


class QuestionSection(Section):
    """Show the findings of one question, asked with its default options."""

    name: ClassVar[str]
    question: ClassVar[type[Question]]

    def collect(self, study: Study) -> Facts:
        asked = self.question()
        inputs = {"gold": study.gold, "annotators": study.annotators or None}
        facts = asked.ask(study.table, model=study.fitted, **inputs)
        shown: list[Facts] = []
        for one in asked.findings(facts):
            if isinstance(one, Rows):
                shown.append(
                    {"title": one.title, "columns": list(one.columns), "rows": [list(row) for row in one.rows]}
                )
            elif isinstance(one, ShareBars):
                rows = [[name, f"{share:.1%}"] for name, share in one.shares.items()]
                shown.append({"title": "", "columns": list(one.columns), "rows": rows})
            else:
                messages = [one.heading, *one.messages] if isinstance(one, MessageList) else [one]
                shown += [{"text": str(message)} for message in messages]
        return {"facts": asked.to_json(facts), "findings": shown}

    def draw(self, facts: Facts) -> Blocks:
        for number, one in enumerate(facts["findings"]):
            yield _make_finding_block(one, f"{self.name}-{number}")


def _make_finding_block(shown: Facts, name: str) -> PageBlock:
    if "text" in shown:
        return TextBlock(shown["text"])
    return TableBlock(
        name, shown["title"], "", [TableColumn(title) for title in shown["columns"]], shown["rows"], search=False
    )


for _name, _entry in questions.entries():
    if "title" in _entry.facts and _name not in sections._entries:
        _bases = {"name": _name, "question": _entry.value, "kinds": _entry.value.kinds, "__doc__": _entry.summary}
        _about = {key: value for key, value in _entry.facts.items() if key in ("title", "place", "package")}
        sections.register(_name, summary=_entry.summary, **_about)(type(f"{_name}-section", (QuestionSection,), _bases))
