"""Conformance suite for questions: `check_question` raises AssertionError if one breaks the contract."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from dissensus.common.frames import columns_to_frame
from dissensus.common.parameters import CHECKED_TYPES, hint_alternatives
from dissensus.exceptions import DissensusError
from dissensus.messages import Message
from dissensus.questions.base import Finding, MessageList, Question, ShareBars, Table, render_messages
from dissensus.table.annotations import Annotations
from dissensus.table.io.jsonl import dumps
from dissensus.table.kinds import KIND_DESCRIPTIONS
from dissensus.table.simulate import simulate, simulate_kind, simulate_sets, simulate_spans, simulate_texts

DURATION_FACT = "seconds"  # name of the facts that differ from run to run


def example_table(kind: str) -> Annotations:
    """Return a small table of a label type."""
    if kind == "classes":
        return simulate(60, 8, 3, redundancy=4, seed=1).annotations
    simulators: dict[str, Callable[[], Any]] = {
        "sets": lambda: simulate_sets(30, 8, 4, redundancy=3),
        "spans": lambda: simulate_spans(15, 6, 2),
        "objects": lambda: simulate_texts(30, 8, redundancy=3),
    }
    drawn: Annotations = simulators.get(kind, lambda: simulate_kind(kind, 60, 8, seed=1))().annotations
    return drawn


def check_question(kind: type[Question], **options: Any) -> None:
    """Check the declaration, the facts, the findings and the frame of a question, for each of its label types."""
    check_declaration(kind)
    for label_type in KIND_DESCRIPTIONS:
        table = example_table(label_type)
        question = kind(**options)
        if label_type not in kind.kinds:
            _check_refused(question, table)
            continue
        before = [table.label.copy(), table.item.copy()]
        facts = question.ask(table)
        plain, again = (_to_json_values(question.to_json(one)) for one in (facts, kind(**options).ask(table)))
        assert plain == again, f"{kind.__name__}: the same question returns a different answer the second time."
        assert all((one == other).all() for one, other in zip(before, (table.label, table.item), strict=True))
        check_findings(question.findings(facts), kind.__name__)
        if kind.row_noun:
            frame = question.to_frame(facts)
            columns = columns_to_frame(frame, "pyarrow") if isinstance(frame, dict | list) else frame
            assert len(columns) or isinstance(frame, list), f"{kind.__name__}: the frame has no rows."


def check_declaration(kind: type[Question]) -> None:
    """Check that options have a help text, valid defaults, and types that the command line can read."""
    kind().check_parameters()
    assert kind.__doc__, f"{kind.__name__}: a docstring is needed; it is the help of the command."
    for name, declared in kind.declared().items():
        assert declared.text, f"{kind.__name__}: option {name} needs a text."
        types = {one for one in hint_alternatives(kind.parameter_hint(name)) if isinstance(one, type)}
        assert types <= CHECKED_TYPES, f"{kind.__name__}: option {name} has a type that a command cannot read: {types}."
    assert set(kind.json_options) <= {*dir(kind)}, f"{kind.__name__}: settings names options."


def check_findings(findings: Iterable[Finding], name: str) -> None:
    """Check that findings are messages and tables whose rows fit their columns."""
    found = list(findings)
    assert found, f"{name}: no finding."
    for one in found:
        assert isinstance(one, Message | Table | ShareBars | MessageList), f"{name}: {one!r} is no finding."
        if isinstance(one, Table):
            width = len(one.columns)
            assert all(len(row) <= width for row in one.rows), f"{name}: a row is wider than its table."
            cells = [cell for row in one.rows for cell in row]
            assert all(isinstance(cell, str) for cell in cells), f"{name}: cells must be text."
            assert {*one.numbers, *one.unbroken} <= {*one.columns}, f"{name}: numbers and unbroken name columns."
    assert all(sentence.strip() for sentence in render_messages(found)), f"{name}: an empty sentence."


def _check_refused(question: Question, table: Annotations) -> None:
    try:
        question.ask(table)
    except DissensusError:
        return
    raise AssertionError(f"{type(question).__name__} answers {table.kind}, which is not among its label types.")


def _to_json_values(facts: Any) -> Any:
    """Return facts as JSON values, without durations."""

    def without_seconds(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: without_seconds(one) for key, one in value.items() if key != DURATION_FACT}
        return [without_seconds(one) for one in value] if isinstance(value, list) else value

    return without_seconds(json.loads(dumps(facts)))
