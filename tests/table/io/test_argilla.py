"""The shapes of Argilla's records are those of its SDK 2.8 (two), of its server, and of version 1 on the hub."""

import json

import pytest

from dissensus.exceptions import DataError, RowsLeftOut
from dissensus.table import io

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
    with pytest.warns(RowsLeftOut, match="2 suggestions by models; 1 answer discarded; 1 answer not finished"):
        table = io.read(path)
    rows = zip(*(column.to_pylist() for column in table.to_arrow().columns), strict=True)
    assert sorted(rows) == [row[:3] for row in GIVEN]
    assert table.annotators.tolist() == ["ann", "bob", "eve"]
    assert table.source.texts == {"r0": {"text": "r0"}, "r1": {"text": "r1"}}
    assert io.read_frame(path).to_pydict() == {"item": ["r0", "r1"], "text": ["r0", "r1"]}


def test_lists_that_are_not_parallel_are_an_error(tmp_path):
    (tmp_path / "records.json").write_text(json.dumps([flat("r0") | {"tone.responses.users": ["ann"]}]))
    with pytest.raises(DataError, match=r"record 0 \(from 0\) has 2 responses to 'tone' by 1 users"):
        io.read(tmp_path / "records.json")
