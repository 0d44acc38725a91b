"""Samples of lm-evaluation-harness (`--log_samples`): one file per model, which is the annotator.

The model is named by the folder of its file if the file is called `samples_…`, else by the part of the file's name
before `_samples`. The item is `doc_id`. The label of a multiple choice is the number of the likeliest choice, that of
generated text the text; `target` is a gold label if it is among the labels. The first of several filters counts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dissensus.messages import quote_name
from dissensus.table import exceptions as errors
from dissensus.table.find_columns import Columns
from dissensus.table.io.exports import Answer, Item, Rows, Target, export_reader
from dissensus.table.io.jsonl import Record, check_once, field, part, records
from dissensus.table.io.readers import readers

_FILE = re.compile(r"(?:(?P<model>.+)_)?samples_(?P<task>.+?)(?:_\d{4}-\d\d-\d\dT[\d.:-]+)?\.jsonl?(?:\.\w+)?")


def claims(record: Record) -> bool:
    """Return True for a sample."""
    return {"doc_id", "filtered_resps"} <= record.keys()


def companions(names: Sequence[str]) -> list[str]:
    """Return the files of means, which the tool writes in the folder of its samples."""
    has_samples = any("samples_" in name for name in names)
    return [name for name in names if has_samples and name.startswith("results_")]


def answers(path: Path, columns: Columns) -> Rows:
    """Yield the document of every sample, its target, and the model's answer."""
    named = _FILE.fullmatch(path.name)
    model = (named["model"] or path.absolute().parent.name) if named else path.name.partition(".")[0]
    task = named["task"] if named else ""
    seen: set[str] = set()
    first = None
    for sample in records(path):
        where = f"{path}: doc_id {quote_name(sample.get('doc_id'))}"
        item = field(sample, columns.item, ("doc_id",), "item", where)
        who = model if columns.annotator is None else field(sample, columns.annotator, (), "annotator", where)
        chosen = sample.get("filter")
        first = chosen if first is None else first
        if chosen != first:
            yield Answer(item, "", None, task, excluded=f"answers by the filter {chosen}")
            continue
        check_once(seen, str(item), where, "write the samples")
        document = part(sample, "doc", dict, where)
        fields = {key: value for key, value in document.items() if isinstance(value, str | int | float)}
        yield Item(item, fields, task)
        target = sample.get("target")
        yield Target(item, str(target).strip() if isinstance(target, str | int | float) else None, task)
        yield Answer(item, who, _label(sample, where), task)


def _label(sample: Record, where: str) -> str:
    given = part(sample, "filtered_resps", list, where)
    if given and all(map(_is_choice, given)):
        likely = [float(log_likelihood) for log_likelihood, _ in given]
        return str(max(range(len(likely)), key=likely.__getitem__)) if len(likely) > 1 else str(given[0][1])
    text = given[0] if given else None
    while isinstance(text, list) and text:  # repeated runs
        text = text[0]
    if not isinstance(text, str | int | float):
        expected = "log likelihoods of choices, or text"
        raise errors.UnexpectedValue(where=where, field="filtered_resps", value=given, expected=expected)
    return str(text).strip()


def _is_choice(pair: Any) -> bool:
    """Return True for a log likelihood and whether the choice was the greedy one; all values are text."""
    if not (isinstance(pair, list) and len(pair) == 2 and str(pair[1]) in ("True", "False")):
        return False
    try:
        return not math.isnan(float(pair[0]))
    except (TypeError, ValueError):
        return False


readers.register("lm-eval", summary="samples of lm-evaluation-harness", place=59)(
    export_reader(
        answers, claims, words=("doc_id", "the model, from the name of the folder or file"), own_items=True,
        companions=companions,
    )
)  # fmt: skip
