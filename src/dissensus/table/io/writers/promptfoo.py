"""promptfoo's results with one assertion more for every answer, or, without results, tests that assert the labels.

An answer that passes is one labelled "yes". Tests are for `promptfoo eval --tests`, whose outputs should be the labels.
"""

from __future__ import annotations

import json
from typing import Any

from dissensus.table.io.files import BinaryFile, open_bytes, reading
from dissensus.table.io.jsonl import Record, dumps
from dissensus.table.io.promptfoo import OURS, item_names, results
from dissensus.table.io.writers import WRITERS, Given, Labels, Writer

YES = "yes"
MIN_SCORE_PASSED = 0.5  # where scores were read, which are from 0 to 1


def write(labels: Labels, file: BinaryFile) -> None:
    """Write the results as they are with our component result in each; one result a line becomes one of an array."""
    if labels.source is None:
        tests = [
            {
                "description": str(item), "vars": {"item": item},
                "assert": [
                    {"type": "equals", "value": one.label, "metric": _metric(question), "weight": one.confidence}
                    for question, one in given.items()
                ],
            }
            for item, given in labels.named_items()
        ]  # fmt: skip
        file.write((dumps(tests, indent=1) + "\n").encode())
        return
    found = list(results(labels.source))
    said = labels.by_item()
    ours = {
        id(result): [_component(question, one, labels.agent) for question, one in said.get(str(name), {}).items()]
        for name, result in zip(item_names(found, labels.source), found, strict=True)
    }
    for result in found:
        grading = result.get("gradingResult") or {}
        grading["componentResults"] = [*(grading.get("componentResults") or []), *ours[id(result)]]
        result["gradingResult"] = grading
    file.write((json.dumps(_whole(labels, found), indent=2, ensure_ascii=False) + "\n").encode())


def _whole(labels: Labels, found: list[Record]) -> Any:
    """The file around the results, if there is one."""
    with reading(labels.source), open_bytes(labels.source) as file:  # type: ignore[arg-type]  # asked before
        text = file.read()
    try:
        whole = json.loads(text)
    except json.JSONDecodeError:  # a line each
        return found
    if "promptIdx" in whole:
        return found
    inside = whole["results"]
    return whole | {"results": inside | {"results": found} if isinstance(inside, dict) else found}


def _component(question: str | None, one: Given, agent: str) -> Record:
    number = isinstance(one.label, int | float)
    passed = one.label >= MIN_SCORE_PASSED if number else str(one.label) == YES
    return {
        "pass": passed,
        "score": one.label if number else one.confidence if passed else 1 - one.confidence,
        "reason": f"{agent}, {100 * one.confidence:.0f} % sure",
        "assertion": {"type": "python", "metric": _metric(question)},
    }


def _metric(question: str | None) -> str:
    return OURS if question is None else f"{OURS}/{question}"


WRITERS.register("promptfoo", summary="promptfoo's results with an assertion", place=55)(
    Writer("to-promptfoo.json", write)
)
