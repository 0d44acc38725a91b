"""Scores for Inspect: its log with one score more for every sample, or, without a log, precomputed scores.

Precomputed scores are records of a sample's `id` and `value`, for `inspect score LOG --scorer precomputed_scores -S
scores=to-inspect.json`; the value answers several questions by name. A log is written as JSON, `.eval` too.
"""

from __future__ import annotations

import json
from typing import Any

from dissensus.table.io.files import BinaryFile, is_zip, open_bytes, reading
from dissensus.table.io.inspect import OURS, extras, open_log, sample_name
from dissensus.table.io.jsonl import Record, dumps
from dissensus.table.io.writers import WRITERS, Given, Labels, Writer


def write(labels: Labels, file: BinaryFile) -> None:
    """Write the log, or an array of records; metrics and reductions of the log stay those of its own scorers."""
    if labels.source is None:
        found = [{"id": item} | _together(given, labels.agent) for item, given in labels.named_items()]
        file.write((dumps(found, indent=1) + "\n").encode())
        return
    said = labels.by_item()
    with reading(labels.source):
        if is_zip(labels.source):
            header, samples = open_log(labels.source)
            log = header | {"samples": list(samples)} | extras(labels.source)
        else:
            with open_bytes(labels.source) as log_file:
                log = json.load(log_file)
    epochs = log["eval"].get("config", {}).get("epochs")
    for sample in log["samples"]:
        if (given := said.get(str(sample_name(sample, epochs, labels.item)))) is not None:
            sample["scores"] = (sample.get("scores") or {}) | _scores(given, labels.agent)
    file.write((json.dumps(log, indent=2, ensure_ascii=False) + "\n").encode())  # a log may hold a bare NaN


def _scores(given: dict[str | None, Given], agent: str) -> Record:
    return {OURS if question is None else f"{OURS}/{question}": _score(one, agent) for question, one in given.items()}


def _score(one: Given, agent: str) -> dict[str, Any]:
    about = f"{agent}, {100 * one.confidence:.0f} % sure"
    return {"value": one.label, "explanation": about, "metadata": {"confidence": one.confidence, "agent": agent}}


def _together(given: dict[str | None, Given], agent: str) -> Record:
    """One score for all questions; its explanation is that of the least sure answer."""
    least = _score(min(given.values(), key=lambda one: one.confidence), agent)
    if None in given:
        return least
    return least | {
        "value": {question: one.label for question, one in given.items()},
        "metadata": {"confidence": {question: one.confidence for question, one in given.items()}, "agent": agent},
    }


WRITERS.register("inspect", summary="Inspect's log with scores", place=50)(Writer("to-inspect.json", write))
