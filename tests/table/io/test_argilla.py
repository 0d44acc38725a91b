"""The shapes of Argilla's records are those of its SDK 2.8 (two), of its server, and of version 1 on the hub."""

import json
from collections import Counter

import pytest

from dissensus.table import exceptions as errors
from dissensus.table import io
from dissensus.table.io.pairs import compare_ranked_alternatives
from facts import raises, warns

GIVEN = [("r0", "ann", "pos", "submitted"), ("r0", "bob", "neg", "submitted"), ("r1", "ann", "neg", "submitted")]
LEFT = [("r1", "bob", "pos", "discarded"), ("r1", "eve", "pos", "draft")]


def of_item(item):
    return [row[1:] for row in (*GIVEN, *LEFT) if row[0] == item]


def nested(item):
    answers = [{"value": value, "user_id": who, "status": status} for who, value, status in of_item(item)]
    suggestions = {"tone": {"value": "pos", "agent": "m"}}
    return {"id": item, "fields": {"text": item}, "suggestions": suggestions, "responses": {"tone": answers}}


def flat(item):
    who, value, status = map(list, zip(*of_item(item), strict=True))
    parts = {"": value, ".users": who, ".status": status}
    answers = {f"tone.responses{key}": entries for key, entries in parts.items()}
    return {"id": item, "status": "pending", "text": item, **answers, "tone.suggestion": "pos"}


def by_person(item):
    answers = [{"user_id": who, "status": s, "values": {"tone": {"value": v}}} for who, v, s in of_item(item)]
    return {"id": item, "fields": {"text": item}, "responses": answers, "suggestions": [{"value": "pos"}]}


def on_the_hub(item):
    answers = [{"user_id": who, "value": value, "status": status} for who, value, status in of_item(item)]
    return {"external_id": item, "text": item, "metadata": "{}", "tone": answers, "tone-suggestion": "pos"}


@pytest.mark.parametrize("shape", [nested, flat, by_person, on_the_hub])
def test_every_shape_is_the_same_table(tmp_path, shape):
    path = tmp_path / "records.json"
    path.write_text(json.dumps([shape("r0"), shape("r1")]))
    with warns(
        errors.RowsExcluded, unused={"suggestions by models": 2, "answers discarded": 1, "answers not finished": 1}
    ):
        table = io.read(path)
    rows = zip(*(column.to_pylist() for column in table.to_arrow().columns), strict=True)
    assert sorted(rows) == [row[:3] for row in GIVEN]
    assert table.annotators.tolist() == ["ann", "bob", "eve"]
    assert table.import_report.item_fields == {"r0": {"text": "r0"}, "r1": {"text": "r1"}}
    assert io.read_frame(path).to_pydict() == {"item": ["r0", "r1"], "text": ["r0", "r1"]}


RANKED = {  # who → record → ranks, equal ones are ties, None: not ranked
    "ann": {"r0": {"a": 1, "b": 2, "c": 2}, "r1": {"a": 3, "b": 1, "c": 2}},
    "bob": {"r0": {"a": 1, "b": 2, "c": None}, "r1": {"a": 1, "b": None}},
    "eve": {"r0": {"a": 1, "b vs c": 2}},
}


def of_ranking(item):
    answers = [
        {"value": [{"value": t, "rank": r} for t, r in ranks[item].items()], "user_id": who}
        for who, ranks in RANKED.items() if item in ranks
    ]  # fmt: skip
    return nested(item) | {"responses": {"best": answers, "tone": [{"value": "x", "user_id": "ann"}]}}


def test_a_ranking_is_its_comparisons(tmp_path):
    path = tmp_path / "records.json"
    path.write_text(json.dumps([of_ranking("r0"), of_ranking("r1")]))
    with warns(
        errors.RowsExcluded,
        unused={
            "suggestions by models": 2,
            "comparisons of alternatives without a name, or whose name contains ' vs ' or ' | '": 1,
            "comparisons without two alternatives and the better one": 1,
        },
    ):
        tables = io.read(path)
    assert {name: table.kind for name, table in tables.items()} == {"best": "pairs", "tone": "classes"}
    table, found = tables["best"], set()
    for i, a, k in zip(table.item, table.annotator, table.label, strict=True):
        pair, record = table.items[i].split(" | ")
        left, right = pair.split(" vs ")
        winner = {"left": left, "right": right}.get(table.classes[k], "tie")
        found.add((str(table.annotators[a]), record, *sorted([left, right]), winner))
    assert found == {
        ("ann", "r0", "a", "b", "a"), ("ann", "r0", "a", "c", "a"), ("ann", "r0", "b", "c", "tie"),
        ("ann", "r1", "a", "b", "b"), ("ann", "r1", "a", "c", "c"), ("ann", "r1", "b", "c", "b"),
        ("bob", "r0", "a", "b", "a"),
    }  # fmt: skip
    assert len(table) == 7
    assert table.n_items == 6  # the sides are the same for all annotators
    assert (table.import_report.n_used, table.import_report.unused_counts.total()) == (9, 4)
    with warns(
        errors.RowsExcluded,
        unused={
            "comparisons 'best'": 3,
            "comparisons of alternatives without a name, or whose name contains ' vs ' or ' | '": 1,
            "suggestions by models": 2,
            "comparisons without two alternatives and the better one": 1,
        },
    ):
        assert io.read(path, label="tone").kind == "classes"
    with warns(
        errors.RowsExcluded,
        unused={
            "comparisons of alternatives without a name, or whose name contains ' vs ' or ' | '": 1,
            "answers 'tone'": 2,
            "suggestions by models": 2,
            "comparisons without two alternatives and the better one": 1,
        },
    ):
        assert len(io.read(path, label="best")) == len(io.read(path, kind="pairs")) == 7


def test_no_thing_of_rankings_is_always_left():
    left = Counter(compare_ranked_alternatives({"a": 1, "b": 2}, item)[0][0] for item in range(200))
    assert 80 < left["a"] < 120


def test_lists_that_are_not_parallel_are_an_error(tmp_path):
    (tmp_path / "records.json").write_text(json.dumps([flat("r0") | {"tone.responses.users": ["ann"]}]))
    with raises(errors.UnequalLengths, n=2, n_other=1):
        io.read(tmp_path / "records.json")
