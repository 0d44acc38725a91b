"""Import tables of comparisons, such as arena logs (model_a, model_b, winner) and Elo files (winner, loser).

Columns are found by their usual names, or chosen by the caller: item="LEFT,RIGHT" (a third column is the context, such
as a prompt), label= for the winner and annotator= for the judge. Without a judge, the annotator is "anonymous".
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any
from zlib import crc32

import numpy as np

from dissensus.exceptions import MissingColumn
from dissensus.table import exceptions as errors
from dissensus.table import kinds
from dissensus.table import names as naming
from dissensus.table.annotations import ANONYMOUS_ANNOTATOR
from dissensus.table.find_columns import (
    ColumnNames,
    check_columns_exist,
    column_names,
    count_distinct_rows,
    split_column_names,
    to_arrow,
)
from dissensus.table.import_report import ImportReport

SIDE_COLUMNS = (
    ("left", "right"), ("model_a", "model_b"), ("player_a", "player_b"), ("a", "b"), ("model_1", "model_2"),
    ("item_a", "item_b"), ("winner", "loser"),
)  # fmt: skip
WINNER_COLUMNS = (
    "winner",
    "preference",
    "preferred",
    "better",
    "outcome",
    "result",
    "choice",
    "label",
    "answer",
    "vote",
)
JUDGE_COLUMNS = ("annotator", "judge", "worker", "rater", "user", "judge_id", "annotator_id", "worker_id", "user_id")
CONTEXT_COLUMNS = ("prompt", "prompt_id", "question_id", "context", "instruction")
LEFT_WORDS = {"left", "a", "model_a", "player_a", "item_a", "model_1", "1", "first"}
RIGHT_WORDS = {"right", "b", "model_b", "player_b", "item_b", "model_2", "2", "second"}
TIE_WORDS = {"tie", "draw", "equal", "same", "both", "neither", "none"}
TIE_WORDS |= {"bothbad", "both_bad", "tie (bothbad)", "tie (both bad)"}


def find_pair_columns(available: list[str], columns: ColumnNames) -> dict[str, str] | None:
    """Return role → column (left, right, winner, annotator, context), or None if the rows are not comparisons."""
    plain = {name.strip().lower(): name for name in available}
    item_columns = split_column_names(columns.item, available)
    if 2 <= len(item_columns) <= 3:
        columns_by_role = dict(zip(("left", "right", "context"), item_columns, strict=False))
    else:
        sides = next((pair for pair in SIDE_COLUMNS if pair[0] in plain and pair[1] in plain), None)
        if sides is None:
            return None
        columns_by_role = {"left": plain[sides[0]], "right": plain[sides[1]]}
    others = {
        "winner": (columns.label, WINNER_COLUMNS),
        "annotator": (columns.annotator, JUDGE_COLUMNS),
        "context": (None, CONTEXT_COLUMNS),
    }
    for role, (chosen_column, usual) in others.items():
        column = (
            chosen_column
            if isinstance(chosen_column, str)
            else next((plain[name] for name in usual if name in plain), None)
        )
        if column is not None and role not in columns_by_role:
            columns_by_role[role] = column
    return columns_by_role if "winner" in columns_by_role else None


def are_pair_items(available: list[str], columns: ColumnNames) -> bool:
    """Return True if the table has a column of items, which are then named "A vs B"."""
    try:
        columns_by_role = columns.resolve(available)
    except MissingColumn:
        return False
    return isinstance(columns_by_role.get("item"), str) and find_pair_columns(available, columns) is None


def import_pairs(frame: Any, columns: ColumnNames, format_name: str) -> tuple[dict[str, Any], ImportReport]:
    """Return role → column of a table of comparisons, and the import report; raise if a column is missing."""
    available = column_names(frame)
    columns_by_role = find_pair_columns(available, columns)
    if columns_by_role is None:
        raise errors.NoPairColumns(columns=tuple(available))
    for role, column in columns_by_role.items():
        check_columns_exist(role, (column,), available)
    data = to_arrow(frame, list(dict.fromkeys(columns_by_role.values())))
    cells = (
        naming.to_arrow_array(data[columns_by_role[role]], "pairs").to_pylist() for role in ("left", "right", "winner")
    )
    left, right, winner = (np.array(["" if cell is None else str(cell) for cell in c], object) for c in cells)
    n = len(left)
    report = ImportReport(format=f"comparisons in {format_name}", n_rows=n)
    report.columns = {role: repr(column) for role, column in columns_by_role.items()}
    context = data[columns_by_role["context"]] if "context" in columns_by_role else None
    if context is not None and count_distinct_rows(naming.to_column(context, "context")) == n > 1:
        context = None  # The column only numbers the rows.
        del report.columns["context"]
    if (same := left == right).any():
        raise errors.InvalidRows.from_mask(
            ", ".join(report.columns.values()), same, left, problem="compare an alternative with itself"
        )
    # Winners may be names of alternatives; the loop below reads words such as "left".
    better = np.select([winner == right, winner == left], [1, 0], -1)
    for value in set(winner[better < 0].tolist()):
        plain = value.strip().lower()
        code = next((k for k, words in enumerate((LEFT_WORDS, RIGHT_WORDS, TIE_WORDS)) if plain in words), -1)
        better[(winner == value) & (better < 0)] = code
    items = kinds.name_pair_items(data[columns_by_role["left"]], data[columns_by_role["right"]], context)
    annotators = data[columns_by_role["annotator"]] if "annotator" in columns_by_role else [ANONYMOUS_ANNOTATOR] * n
    label = np.where(
        better < 0, winner, np.array(kinds.PAIR_OUTCOMES, object)[better]
    )  # abstain= or map= may use others
    return {"item": items, "annotator": annotators, "label": label}, report


def compare_ranked_alternatives(ranks: Mapping[Any, float], item: Any) -> list[tuple[str, str, str]]:
    """Return the comparisons of all pairs in a ranking; smaller ranks are better, and equal ranks are ties.

    A checksum decides which alternative is on the left, so that the side is random but the same for all annotators.
    """
    compared = []
    for pair in combinations(sorted((str(thing), rank) for thing, rank in ranks.items()), 2):
        swap = crc32(f"{pair[0][0]}{kinds.PAIR_SEPARATOR}{pair[1][0]}{kinds.CONTEXT_SEPARATOR}{item}".encode()) % 2
        (left, a), (right, b) = pair[::-1] if swap else pair
        compared.append((left, right, "tie" if a == b else "left" if a < b else "right"))
    return compared
