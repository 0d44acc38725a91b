"""Answer declared questions about a project's table over HTTP; the query has the options of the question.

A question gets the table and the fitted method, but neither gold labels nor metadata of annotators.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dissensus.questions.base import questions, render_messages
from dissensus.serve.exceptions import NamesNotAllowed, NotFittedYet, UnknownOption
from dissensus.table.io.jsonl import dumps

if TYPE_CHECKING:
    from dissensus.serve.project import Project


def list_questions() -> dict[str, Any]:
    """Return all questions by name, with their summary, options and facts."""
    return {
        name: {
            "summary": entry.summary,
            "options": {key: declared.text for key, declared in entry.value.declared().items()},
            "facts": entry.value.fact_texts(),
        }
        for name, entry in questions.entries()
    }


def answer_question(project: Project, name: str, query: Mapping[str, str], names: bool) -> Any:
    """Return the facts and findings of a question about the table of the last fit.

    `query` has its options as JSON values or text; `names` states whether the caller may see names of annotators.
    """
    if not names:
        raise NamesNotAllowed
    if (fitted := project.fitted) is None:
        raise NotFittedYet
    kind = questions[name]
    for key in query:
        if key not in kind.declared():
            raise UnknownOption(question=name, name=key, options=tuple(kind.declared()))
    question = kind(**{key: _parse_option(text) for key, text in query.items()})
    facts = question.ask(fitted.table, model=fitted.model)
    found = list(render_messages(question.findings(facts)))
    return json.loads(dumps({"question": name, "facts": question.to_json(facts), "findings": found}))


def _parse_option(text: str) -> Any:
    """Parse the value of an option as JSON; return the text itself if it is not JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return text
