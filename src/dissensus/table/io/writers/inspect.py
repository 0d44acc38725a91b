"""Scores for Inspect: its log with one score more for every sample, or, without a log, one record per sample.

A record has the sample's `id` and its `scores`, as in a log: {"id": "s1", "scores": {"dissensus": {"value": "C", …}}}.
"""

from __future__ import annotations

import json
from typing import Any

from dissensus.table.io.files import BinaryFile, open_bytes, reading
from dissensus.table.io.jsonl import Record, dumps
from dissensus.table.io.writers import WRITERS, Given, Labels, Writer

SCORER = "dissensus"


def write(labels: Labels, file: BinaryFile) -> None:
    """Write the log, or an array of records; metrics and reductions of the log stay those of its own scorers."""
    said = labels.by_item()
    if labels.source is None:
        found = [{"id": item, "scores": _scores(given, labels.agent)} for item, given in labels.named_items()]
        file.write((dumps(found, indent=1) + "\n").encode())
        return
    with reading(labels.source), open_bytes(labels.source) as log_file:
        log = json.load(log_file)
    for sample in log["samples"]:
        if (given := said.get(str(sample["id"]))) is not None:
            sample["scores"] = (sample.get("scores") or {}) | _scores(given, labels.agent)
    file.write((json.dumps(log, indent=2, ensure_ascii=False) + "\n").encode())  # a log may hold a bare NaN


def _scores(given: dict[str | None, Given], agent: str) -> Record:
    return {
        SCORER if question is None else f"{SCORER}/{question}": _score(one, agent) for question, one in given.items()
    }


def _score(one: Given, agent: str) -> dict[str, Any]:
    about = f"{agent}, {100 * one.confidence:.0f} % sure"
    return {"value": one.label, "explanation": about, "metadata": {"confidence": one.confidence, "agent": agent}}


WRITERS.register("inspect", summary="Inspect's log with scores", place=50)(Writer("to-inspect.json", write))
