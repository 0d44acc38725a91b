"""Read samples of lm-evaluation-harness (`--log_samples`), with one file per model.

The annotator is the model. Its name is the part of the file name before `_samples`, or the name of the folder if the
file is called `samples_…`. The item is `doc_id`. The label of a multiple choice is the number of the most likely
choice; the label of generated text is the text. `target` is a gold label if it occurs among the labels. If there are
several filters, the first one is used.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dissensus.messages import quote_name
from dissensus.table import exceptions as errors
from dissensus.table.find_columns import ColumnNames
from dissensus.table.io.exports import ExportedAnswer, ExportedItem, ExportedTarget, ExportRows, make_export_reader
from dissensus.table.io.jsonl import Record, check_unique, get_entry, read_records, require_field
from dissensus.table.io.readers import readers

_FILE_PATTERN = re.compile(r"(?:(?P<model>.+)_)?samples_(?P<task>.+?)(?:_\d{4}-\d\d-\d\dT[\d.:-]+)?\.jsonl?(?:\.\w+)?")


def matches_record(record: Record) -> bool:
    """Return True if the record is a sample."""
    return {"doc_id", "filtered_resps"} <= record.keys()


def find_companions(names: Sequence[str]) -> list[str]:
    """Return the names of files with aggregated results, which the tool writes next to its samples."""
    has_samples = any("samples_" in name for name in names)
    return [name for name in names if has_samples and name.startswith("results_")]


def read_answers(path: Path, columns: ColumnNames) -> ExportRows:
    """Yield the document of each sample, its target, and the answer of the model."""
    file_parts = _FILE_PATTERN.fullmatch(path.name)
    model = (file_parts["model"] or path.absolute().parent.name) if file_parts else path.name.partition(".")[0]
    task = file_parts["task"] if file_parts else ""
    item_names: set[str] = set()
    first = None
    for sample in read_records(path):
        where = f"{path}: doc_id {quote_name(sample.get('doc_id'))}"
        item = require_field(sample, columns.item, ("doc_id",), "item", where)
        annotator = (
            model if columns.annotator is None else require_field(sample, columns.annotator, (), "annotator", where)
        )
        chosen = sample.get("filter")
        first = chosen if first is None else first
        if chosen != first:
            yield ExportedAnswer(item, "", None, task, excluded=f"answers by the filter {chosen}")
            continue
        check_unique(item_names, str(item), where, "write the samples")
        document = get_entry(sample, "doc", dict, where)
        fields = {key: value for key, value in document.items() if isinstance(value, str | int | float)}
        yield ExportedItem(item, fields, task)
        target = sample.get("target")
        yield ExportedTarget(item, str(target).strip() if isinstance(target, str | int | float) else None, task)
        yield ExportedAnswer(item, annotator, _sample_label(sample, where), task)


def _sample_label(sample: Record, where: str) -> str:
    given = get_entry(sample, "filtered_resps", list, where)
    if given and all(map(_is_choice, given)):
        likely = [float(log_likelihood) for log_likelihood, _ in given]
        return str(max(range(len(likely)), key=likely.__getitem__)) if len(likely) > 1 else str(given[0][1])
    text = given[0] if given else None
    while isinstance(text, list) and text:  # A list holds the answers of repeated runs.
        text = text[0]
    if not isinstance(text, str | int | float):
        expected = "log likelihoods of choices, or text"
        raise errors.UnexpectedValue(location=where, field="filtered_resps", value=given, expected=expected)
    return str(text).strip()


def _is_choice(pair: Any) -> bool:
    """Return True if the pair is a log-likelihood and a flag of the greedy choice, both as text."""
    if not (isinstance(pair, list) and len(pair) == 2 and str(pair[1]) in ("True", "False")):
        return False
    try:
        return not math.isnan(float(pair[0]))
    except (TypeError, ValueError):
        return False


readers.register("lm-eval", summary="samples of lm-evaluation-harness", place=59)(
    make_export_reader(
        read_answers,
        matches_record,
        words=("doc_id", "the model, from the name of the folder or file"),
        own_items=True,
        find_companions=find_companions,
    )
)
