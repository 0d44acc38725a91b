"""Read and write promptfoo's results (out.json, or one result per line), with assertions as judges.

An item is a test with a prompt and a provider. Its name consists of those parts of "test/prompt/provider" that differ
between items. A judge is named after the metric, the provider or the type of its assertion; the first of these that
exists is used. Judges with the same rubric in one test answer the same question; `pass` is the label and `score` a
number. The grade of a human is a gold label.

Our labels are written as an additional assertion of each answer; "yes" passes. Without results, they are written as
tests for `promptfoo eval --tests` that assert the labels as outputs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dissensus.messages import quote_name
from dissensus.table import exceptions as errors
from dissensus.table.find_columns import ColumnNames
from dissensus.table.io.exports import LABEL, NUMBER, ExportedAnswer, ExportedItem, ExportRows, make_export_reader
from dissensus.table.io.jsonl import Record, check_unique, get_entry, get_objects, read_records, require_field
from dissensus.table.io.readers import readers
from dissensus.table.io.writers import (
    OWN_ANSWER_PREFIX,
    ItemLabel,
    LabelsToWrite,
    json_writer,
    own_answer_name,
    writers,
)
from dissensus.table.notes import JudgesReadSeparately

HUMAN_ASSERTION_TYPE = "human"  # the type of an assertion
PASS_QUESTION, SCORE_QUESTION = "pass", "score"
_VERDICT_WORDS = {True: "yes", False: "no"}
MIN_SCORE_PASSED = 0.5  # scores are between 0 and 1


def matches_record(record: Record) -> bool:
    """Return True if the record is a result or a file of results."""
    return {"evalId", "results"} <= record.keys() or {"gradingResult", "promptIdx"} <= record.keys()


def read_results(path: Path) -> Iterator[Record]:
    """Yield all results of a file in either format."""
    for record in read_records(path):
        if "gradingResult" in record or "promptIdx" in record:
            yield record
            continue
        inside = record.get("results")
        yield from get_objects(inside if isinstance(inside, dict) else record, "results", str(path))


def result_names(found: list[Record], path: Path) -> list[Any]:
    """Return the name of each result: its test, and its prompt and provider if they differ between results."""
    places = []
    for number, result in enumerate(found):
        test, prompt = (
            result.get("testIdx", number),
            result.get("promptIdx", 0),
        )  # Older versions do not number tests, so results are numbered.
        for field_name, value in (("testIdx", test), ("promptIdx", prompt)):
            if not isinstance(value, int):
                where = f"{path}: result {number:,} (from 0)"
                raise errors.UnexpectedValue(location=where, field=field_name, value=value, expected="a number")
        places.append((test, prompt, str(_provider_name(result.get("provider")))))
    differ = [k for k in (1, 2) if len({place[k] for place in places}) > 1]
    names = ["/".join(map(str, (place[0], *(place[k] for k in differ)))) if differ else place[0] for place in places]
    result_ids: set[Any] = set()
    for name, (test, prompt, by) in zip(names, places, strict=True):
        where = f"{path}: test {test} with prompt {prompt} and provider {quote_name(by)}"
        check_unique(result_ids, name, where, "write the results")
    return names


def _provider_name(value: Any) -> Any:
    """Return the name in a field, which may be an object."""
    return value.get("label") or value.get("id") if isinstance(value, dict) else value


def judge_name(assertion: Record, named: Any = None) -> str:
    """Return the name of the judge of an assertion, from the field chosen by the caller or the first usual one."""
    keys = ("metric", "provider", "type") if named is None else (named,)
    return str(next(filter(None, (_provider_name(assertion.get(key)) for key in keys)), "assertion"))


def _describe_result_location(result: Record, path: Path) -> str:
    return f"{path}: test {quote_name(result.get('testIdx'))}"


def judge_components(result: Record, path: Path) -> list[tuple[Record, Record]]:
    """Return the (component result, assertion) of each judge; a result with one assertion is its own component."""
    where = _describe_result_location(result, path)
    grading = get_entry(result, "gradingResult", dict, where)
    inside = get_objects(grading, "componentResults", where) or ([grading] if grading.get("assertion") else [])
    return [(component, get_entry(component, "assertion", dict, where)) for component in inside]


def read_answers(path: Path, columns: ColumnNames) -> ExportRows:
    """Yield the variables of each item and the answers of its judges."""
    found = list(read_results(path))
    names = [] if columns.item is not None else result_names(found, path)
    for result in found if columns.item is not None else ():
        variables = get_entry(result, "vars", dict, str(path))
        names.append(require_field(variables, columns.item, (), "item", _describe_result_location(result, path)))
    questions = _questions_by_judge(found, path, columns.annotator)
    several = len(set(questions.values())) > 1
    providers = [str(_provider_name(result.get("provider"))) for result in found]
    for item, result, by in zip(names, found, providers, strict=True):
        where = _describe_result_location(result, path)
        about = {"provider": by, "test": result.get("testIdx")} if len(set(providers)) > 1 else {}
        output = get_entry(result, "response", dict, where).get("output")
        of_test = {"description": get_entry(result, "testCase", dict, where).get("description")}
        fields = {**of_test, **get_entry(result, "vars", dict, where), "answer": output}
        fields = {key: value for key, value in fields.items() if value is not None}
        yield ExportedItem(item, fields | {key: value for key, value in about.items() if key not in fields})
        given = judge_components(result, path)
        if not given:
            yield ExportedAnswer(item, "", None, excluded="results without an assertion")
        for component, assertion in given:
            if reason := _exclusion_reason(component, assertion):
                yield ExportedAnswer(item, "", None, excluded=reason)
                continue
            if assertion.get("type") == HUMAN_ASSERTION_TYPE:
                reason = "human grades, of all questions together" if several else ""
                question = next(iter(questions.values()), PASS_QUESTION)
                yield _read_verdict(item, HUMAN_ASSERTION_TYPE, component, question, reason, where)._replace(gold=True)
                continue
            judge = judge_name(assertion, columns.annotator)
            question = questions[judge]
            yield _read_verdict(item, judge, component, question, "", where)
            if (score := component.get("score")) is not None:
                if not isinstance(score, int | float) or not math.isfinite(score):
                    raise errors.UnexpectedValue(location=where, field="score", value=score, expected="a number")
                yield ExportedAnswer(
                    item,
                    judge,
                    float(score),
                    SCORE_QUESTION if question == PASS_QUESTION else f"{question}/{SCORE_QUESTION}",
                    NUMBER,
                )
    if several:
        yield JudgesReadSeparately()


def _exclusion_reason(component: Record, assertion: Record) -> str:
    """Return why a component result is excluded ("" if it is used): no name, summary of a set, or written by us."""
    named = any(assertion.get(key) for key in ("metric", "type", "provider"))
    if not named or component.get("componentResults"):
        return "results of sets of assertions, or of none that is named"
    return "assertions by dissensus" if judge_name(assertion).startswith(OWN_ANSWER_PREFIX) else ""


def _read_verdict(item: Any, judge: str, component: Record, question: str, excluded: str, where: str) -> ExportedAnswer:
    passed = component.get("pass")
    if not isinstance(passed, bool):
        raise errors.UnexpectedValue(location=f"{where}: {judge}", field="pass", value=passed, expected="true or false")
    return ExportedAnswer(item, judge, _VERDICT_WORDS[passed], question, LABEL, excluded)


def _questions_by_judge(found: list[Record], path: Path, named: Any) -> dict[str, str]:
    """Return judge → question; judges with the same rubric in one test answer the same question."""
    group: dict[str, str] = {}  # judge → first judge of the same question
    for result in found:
        judge_of_rubric: dict[str, str] = {}
        for component, assertion in judge_components(result, path):
            if _exclusion_reason(component, assertion) or assertion.get("type") == HUMAN_ASSERTION_TYPE:
                continue
            judge = judge_name(assertion, named)
            group.setdefault(judge, judge)
            rubric = f"{assertion.get('type')} {assertion.get('value')}"
            question_group, other = group[judge], group[judge_of_rubric.setdefault(rubric, judge)]
            if question_group != other:
                group = {name: other if first == question_group else first for name, first in group.items()}
    return dict.fromkeys(group, PASS_QUESTION) if len(set(group.values())) < 2 else group


def make_tests(labels: LabelsToWrite) -> Iterator[Record]:
    """Yield one test per item that asserts its labels."""
    for item, given in labels.iterate_items():
        ours = [
            {"type": "equals", "value": answer.label, "metric": own_answer_name(question), "weight": answer.confidence}
            for question, answer in given.items()
        ]
        yield {"description": str(item), "vars": {"item": item}, "assert": ours}


def add_components(labels: LabelsToWrite) -> Any:
    """Return the results with our component results added; results in separate lines become one array."""
    if labels.source is None:
        return make_tests(labels)
    found = list(read_results(labels.source))
    by_item = labels.labels_by_item()
    for name, result in zip(result_names(found, labels.source), found, strict=True):
        ours = [_make_component(*answer, agent=labels.agent) for answer in by_item.get(str(name), {}).items()]
        grading = result.get("gradingResult") or {}
        grading["componentResults"] = [*(grading.get("componentResults") or []), *ours]
        result["gradingResult"] = grading
    whole = next(read_records(labels.source))
    if "results" not in whole or "promptIdx" in whole:  # The file has one result per line.
        return found
    inside = whole["results"]
    return whole | {"results": inside | {"results": found} if isinstance(inside, dict) else found}


def _make_component(question: str | None, answer: ItemLabel, agent: str) -> Record:
    number = isinstance(answer.label, int | float)
    passed = answer.label >= MIN_SCORE_PASSED if number else str(answer.label) == _VERDICT_WORDS[True]
    return {
        "pass": passed,
        "score": answer.label if number else answer.confidence if passed else 1 - answer.confidence,
        "reason": answer.describe_agent(agent),
        "assertion": {"type": "python", "metric": own_answer_name(question)},
    }


readers.register("promptfoo", summary="promptfoo's results: assertions", place=57)(
    make_export_reader(
        read_answers,
        matches_record,
        words=("the test, with prompt and provider", "the assertion's metric or provider"),
        aside=lambda question: question.endswith("score"),
    )
)
writers.register("promptfoo", summary="promptfoo's results with an assertion", place=55)(
    json_writer("to-promptfoo.json", add_components)
)
