"""promptfoo's results, out.json or a line each: the assertions of an answer are its judges.

An item is a test with a prompt and a provider; it is called by the parts of "test/prompt/provider" in which the items
differ, and its fields say provider and test where providers differ. A judge is called by the metric of its assertion,
else by its provider, else by its type. Judges that were asked the same in one test answer one question; pass is its
label, score its number. A human's grade is known to be right.

Our labels are one assertion more for every answer; one that passes is labelled "yes". Without results they are tests
for `promptfoo eval --tests` that assert the labels, which the outputs should be.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dissensus.exceptions import DataError
from dissensus.table.find_columns import Columns
from dissensus.table.io.exports import LABEL, NUMBER, Answer, Item, Note, Rows, add_export
from dissensus.table.io.jsonl import Record, check_once, field, objects, part, records
from dissensus.table.io.writers import OURS, Given, Labels, add, our_name
from dissensus.table.names import shown

HUMAN = "human"  # the type of an assertion
PASS, SCORE = "pass", "score"
_YES = {True: "yes", False: "no"}
MIN_SCORE_PASSED = 0.5  # where scores were read, which are from 0 to 1


def claims(record: Record) -> bool:
    """True for a file of results, or one of them."""
    return {"evalId", "results"} <= record.keys() or {"gradingResult", "promptIdx"} <= record.keys()


def results(path: Path) -> Iterator[Record]:
    """Yield every result, from either shape of file."""
    for record in records(path):
        if "gradingResult" in record or "promptIdx" in record:
            yield record
            continue
        inside = record.get("results")
        yield from objects(inside if isinstance(inside, dict) else record, "results", str(path))


def item_names(found: list[Record], path: Path) -> list[Any]:
    """How each result is called: the parts of its place in which the results differ, the test first."""
    places = []
    for number, result in enumerate(found):
        test, prompt = result.get("testIdx", number), result.get("promptIdx", 0)  # older versions number the results
        if not all(isinstance(one, int) for one in (test, prompt)):
            raise DataError(
                f"{path}: a result has testIdx {shown(test)} and promptIdx {shown(prompt)}; expected numbers."
            )
        places.append((test, prompt, str(_name(result.get("provider")))))
    differ = [place for place in (1, 2) if len({one[place] for one in places}) > 1]
    names = ["/".join(map(str, (one[0], *(one[k] for k in differ)))) if differ else one[0] for one in places]
    seen: set[Any] = set()
    for name, (test, prompt, by) in zip(names, places, strict=True):
        where = f"{path}: test {test} with prompt {prompt} and provider {shown(by)}"
        check_once(seen, name, where, "write the results")
    return names


def _name(value: Any) -> Any:
    """How what a field holds is called; a provider may be an object."""
    return value.get("label") or value.get("id") if isinstance(value, dict) else value


def judge(assertion: Record, named: Any = None) -> str:
    """How the judge of an assertion is called: by the field named, else by the first usual one."""
    keys = ("metric", "provider", "type") if named is None else (named,)
    return str(next(filter(None, (_name(assertion.get(key)) for key in keys)), "assertion"))


def _where(result: Record, path: Path) -> str:
    return f"{path}: test {shown(result.get('testIdx'))}"


def components(result: Record, path: Path) -> list[tuple[Record, Record]]:
    """(component result, its assertion) of every judge; of a result with one assertion, itself."""
    where = _where(result, path)
    grading = part(result, "gradingResult", dict, where)
    inside = objects(grading, "componentResults", where) or ([grading] if grading.get("assertion") else [])
    return [(one, part(one, "assertion", dict, where)) for one in inside]


def answers(path: Path, columns: Columns) -> Rows:
    """Yield the variables of every item, and the answers of its judges."""
    found = list(results(path))
    names = item_names(found, path) if columns.item is None else [
        field(part(result, "vars", dict, str(path)), columns.item, (), "item", _where(result, path))
        for result in found
    ]  # fmt: skip
    questions = _questions(found, path, columns.annotator)
    several = len(set(questions.values())) > 1
    providers = [str(_name(result.get("provider"))) for result in found]
    for item, result, by in zip(names, found, providers, strict=True):
        where = _where(result, path)
        about = {"provider": by, "test": result.get("testIdx")} if len(set(providers)) > 1 else {}
        said = part(result, "response", dict, where).get("output")
        of_test = {"description": part(result, "testCase", dict, where).get("description")}
        fields = {**of_test, **part(result, "vars", dict, where), "answer": said}
        fields = {key: value for key, value in fields.items() if value is not None}
        yield Item(item, fields | {key: value for key, value in about.items() if key not in fields})
        given = components(result, path)
        if not given:
            yield Answer(item, "", None, left_out="results without an assertion")
        for one, assertion in given:
            if why := _no_verdict(one, assertion):
                yield Answer(item, "", None, left_out=why)
                continue
            if assertion.get("type") == HUMAN:
                why = "human grades, of all questions together" if several else ""
                yield _passed(item, HUMAN, one, next(iter(questions.values()), PASS), why, where)._replace(gold=True)
                continue
            who = judge(assertion, columns.annotator)
            question = questions[who]
            yield _passed(item, who, one, question, "", where)
            if (score := one.get("score")) is not None:
                if not isinstance(score, int | float) or not math.isfinite(score):
                    raise DataError(f"{where} has the score {shown(score)}; expected a number.")
                yield Answer(item, who, float(score), SCORE if question == PASS else f"{question}/{SCORE}", NUMBER)
    if several:
        yield Note("Judges that were never asked the same are questions of their own.")


def _no_verdict(one: Record, assertion: Record) -> str:
    """Say why a result is nobody's verdict: it sums up a set of assertions, which follow, or failed, or is ours."""
    named = any(assertion.get(key) for key in ("metric", "type", "provider"))
    if not named or one.get("componentResults"):
        return "results of sets of assertions, or of none that is named"
    return "assertions by dissensus" if judge(assertion).startswith(OURS) else ""


def _passed(item: Any, who: str, one: Record, question: str, why: str, where: str) -> Answer:
    passed = one.get("pass")
    if not isinstance(passed, bool):
        raise DataError(f"{where} has {shown(passed)} as 'pass' by {who}; expected true or false.")
    return Answer(item, who, _YES[passed], question, LABEL, why)


def _questions(found: list[Record], path: Path, named: Any) -> dict[str, str]:
    """Judge → question: judges that were asked the same in one test answer the same question."""
    group: dict[str, str] = {}  # judge → the first one of its question
    for result in found:
        asked: dict[str, str] = {}
        for one, assertion in components(result, path):
            if _no_verdict(one, assertion) or assertion.get("type") == HUMAN:
                continue
            who = judge(assertion, named)
            group.setdefault(who, who)
            rubric = f"{assertion.get('type')} {assertion.get('value')}"
            home, other = group[who], group[asked.setdefault(rubric, who)]
            if home != other:
                group = {name: other if first == home else first for name, first in group.items()}
    return dict.fromkeys(group, PASS) if len(set(group.values())) < 2 else group


def tests(labels: Labels) -> Iterator[Record]:
    """Yield a test per item that asserts its labels."""
    for item, given in labels.named_items():
        ours = [
            {"type": "equals", "value": one.label, "metric": our_name(question), "weight": one.confidence}
            for question, one in given.items()
        ]
        yield {"description": str(item), "vars": {"item": item}, "assert": ours}


def graded(labels: Labels) -> Any:
    """The results as they are with our component result in each; one result a line becomes one of an array."""
    if labels.source is None:
        return tests(labels)
    found = list(results(labels.source))
    said = labels.by_item()
    for name, result in zip(item_names(found, labels.source), found, strict=True):
        ours = [_component(question, one, labels.agent) for question, one in said.get(str(name), {}).items()]
        grading = result.get("gradingResult") or {}
        grading["componentResults"] = [*(grading.get("componentResults") or []), *ours]
        result["gradingResult"] = grading
    whole = next(records(labels.source))
    if "results" not in whole or "promptIdx" in whole:  # a line each
        return found
    inside = whole["results"]
    return whole | {"results": inside | {"results": found} if isinstance(inside, dict) else found}


def _component(question: str | None, one: Given, agent: str) -> Record:
    number = isinstance(one.label, int | float)
    passed = one.label >= MIN_SCORE_PASSED if number else str(one.label) == _YES[True]
    return {
        "pass": passed,
        "score": one.label if number else one.confidence if passed else 1 - one.confidence,
        "reason": one.said_by(agent),
        "assertion": {"type": "python", "metric": our_name(question)},
    }


add_export(
    "promptfoo", answers, claims=claims, summary="promptfoo's results: assertions", place=57,
    words=("the test, with prompt and provider", "the assertion's metric or provider"),
    aside=lambda question: question.endswith("score"),
)  # fmt: skip
add("promptfoo", "to-promptfoo.json", graded, "promptfoo's results with an assertion", place=55)
