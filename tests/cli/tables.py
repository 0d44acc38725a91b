"""Small tables as files."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np

CLASSES = ["cat", "dog", "owl"]
SCORE = ("--gold-use", "score")  # gold labels are hidden from the method


def write_csv(path: Path, header: list[str], rows: Any) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def rows(n_items: int = 40, n_annotators: int = 7, seed: int = 0, start: int = 0) -> tuple[list[Any], list[Any]]:
    """Annotations by annotators who are right more and less often, and the truth."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(3, size=n_items)
    skill = np.linspace(0.5, 0.95, n_annotators)
    given = np.where(
        rng.random((n_items, n_annotators)) < skill, truth[:, None], rng.integers(3, size=(n_items, n_annotators))
    )
    labels = [(f"i{start + i:03}", f"w{a}", CLASSES[given[i, a]]) for i in range(n_items) for a in range(n_annotators)]
    return labels, [(f"i{start + i:03}", CLASSES[truth[i]]) for i in range(n_items)]


def write_export(path: Path) -> Path:
    """An export of Argilla: texts with a class, and which of two things is better."""

    def record(i: int) -> dict[str, Any]:
        ranks = [{"value": thing, "rank": rank} for rank, thing in enumerate("ab" if i else "ba", 1)]
        tone = [{"value": "good" if i % 2 else "bad", "user_id": who} for who in "xyz"]
        better = [{"value": ranks, "user_id": who} for who in "xyz"]
        return {"id": f"r{i}", "fields": {"text": f"text {i}"}, "responses": {"tone": tone, "better": better}}

    path.write_text(json.dumps([record(i) for i in range(12)]))
    return path
