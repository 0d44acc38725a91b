"""Spans as tags of places: names, derived tables, and every way in."""

import json

import numpy as np
import pytest

from dissensus import Annotations, read
from dissensus.table import exceptions as errors
from dissensus.table.notes import AnnotatorsNumbered, LabelTypeGuessed, SpansOverlap
from dissensus.table.spans import assign_span_layers, convert_spans_to_tags, extract_spans, name_positions
from facts import raises, warns

TEXT = "Ann works at IBM in Rome ."
MARKED = {
    "ann": [(0, 3, "PER"), (13, 16, "ORG")],
    "bob": [(0, 4, "PER"), (13, 16, "LOC")],  # with the blank behind "Ann"
    "eve": [(13, 24, "ORG")],
    "joe": [],
}


def said(table: Annotations) -> dict:
    """(annotator, place) → tag, places as (start, end)."""
    where = table.sequences
    return {
        (str(table.annotators[a]), int(where.start[i]), int(where.end[i])): str(table.classes[k])
        for i, a, k in zip(table.item, table.annotator, table.label, strict=True)
    }


def spans_said(table: Annotations) -> dict:
    """annotator → its spans, as it marked them."""
    found = {}
    for a, name in enumerate(table.annotators):
        rows = np.flatnonzero(table.annotator == a)
        columns = extract_spans(table.items[table.item[rows]], table.classes, table.label[rows])
        found[str(name)] = list(zip(*(columns[key].tolist() for key in ("start", "end", "label")), strict=True))
    return found


CHARACTERS = {"ann": MARKED["ann"], "bob": [(0, 3, "PER"), (13, 16, "LOC")], "eve": MARKED["eve"], "joe": []}


def label_studio():
    def annotation(who, spans):
        marked = [
            {"from_name": "ner", "to_name": "text", "type": "labels", "value": {"start": s, "end": e, "labels": [k]}}
            for s, e, k in spans
        ]
        return {"completed_by": {"email": who}, "result": marked}

    return [{"id": 7, "data": {"text": TEXT}, "annotations": [annotation(*one) for one in MARKED.items()]}]


def prodigy():
    keys = ("start", "end", "label")
    return [
        {
            "text": TEXT, "_input_hash": 7, "_annotator_id": who, "answer": "accept",
            "spans": [dict(zip(keys, span, strict=True)) for span in spans],
        }
        for who, spans in MARKED.items()
    ]  # fmt: skip


def doccano():
    return [{"id": 7, "text": TEXT, "label": spans, "username": who} for who, spans in MARKED.items()]


def argilla():
    keys = ("start", "end", "label")
    values = [
        {"user_id": who, "value": [dict(zip(keys, span, strict=True)) for span in spans]}
        for who, spans in MARKED.items()
    ]
    return [{"id": "7", "fields": {"text": TEXT}, "responses": {"ner": values}, "suggestions": {}}]


TOOLS = {"label-studio": label_studio, "prodigy": prodigy, "doccano": doccano, "argilla": argilla}


@pytest.mark.parametrize("tool", TOOLS)
def test_a_tool_s_spans_are_tags_of_words_and_who_marked_nothing_says_o(tool, tmp_path):
    path = tmp_path / "export.json"
    path.write_text(json.dumps(TOOLS[tool]()))
    table = read(path)
    assert (table.kind, table.import_report.format) == ("spans", tool)
    assert spans_said(table) == CHARACTERS
    words = {TEXT[s:e] for _, s, e in said(table)}
    assert words == {"Ann", "works", "at", "IBM", "in", "Rome", "."}
    assert {tag for (who, *_), tag in said(table).items() if who == "joe"} == {"O"}


def test_skipped_tasks_gold_and_overlaps_are_counted(tmp_path):
    tasks = label_studio()
    (task,) = tasks
    task["annotations"][3]["was_cancelled"] = True
    task["annotations"][2]["ground_truth"] = True
    again = {"from_name": "ner", "type": "labels", "value": {"start": 14, "end": 16, "labels": ["LOC"]}}
    task["annotations"][0]["result"].append(again)
    path = tmp_path / "export.json"
    path.write_text(json.dumps(tasks))
    with warns(
        errors.RowsExcluded, unused={"answers marked as correct (gold spans, no votes)": 1, "annotations skipped": 1}
    ):
        tables = read(path)
    assert {name: spans_said(one) for name, one in tables.items()} == {
        "ner": {"ann": [(0, 3, "PER"), (14, 16, "LOC")], "bob": [(0, 3, "PER"), (13, 16, "LOC")]},
        "ner, ORG": {"ann": [(13, 16, "ORG")], "bob": []},
    }
    table = tables["ner, ORG"]
    assert {key: count for key, count in table.import_report.unused_counts.items() if count} == {
        "annotations skipped": 1, "answers marked as correct (gold spans, no votes)": 1,
    }  # fmt: skip
    assert table.import_report.n_used == 5
    assert table.import_report.notes == [SpansOverlap(question="ner", names=("ner", "ner, ORG"))]
    with warns(
        errors.RowsExcluded,
        unused={"spans 'ner'": 4, "answers marked as correct (gold spans, no votes)": 1, "annotations skipped": 1},
    ):
        assert spans_said(read(path, label="ner, ORG")) == spans_said(table)
    assert set(tables["ner"].import_report.gold[1]) == {"O"}  # who knows that it is ORG knows that nothing else is
    gold = table.gold_codes(*table.import_report.gold)
    known = extract_spans(table.items, table.classes, gold)
    assert (known["start"].tolist(), known["end"].tolist(), known["label"].tolist()) == ([13], [24], ["ORG"])


ORG, PER = ("x", 0, 9, "ORG"), ("x", 2, 5, "PER")


@pytest.mark.parametrize(
    ("spans", "layers"),
    [
        ([ORG, ("x", 9, 12, "PER")], ["", ""]),
        ([ORG, ORG], ["", ""]),
        ([ORG, PER], ["", "PER"]),
        ([("x", 2, 2, "PER"), ORG], ["", ""]),
        ([ORG, PER, ("y", 2, 5, "PER"), ("y", 20, 25, "LOC")], ["ORG", "", "", ""]),  # all of one label together
        ([ORG, ("x", 4, 12, "ORG"), ("x", 11, 14, "ORG")], ["", "ORG, inner", ""]),
        ([ORG, ("x", 2, 8, "ORG"), ("x", 3, 4, "ORG")], ["", "ORG, inner", "ORG, inner, inner"]),
        ([ORG, PER, PER, ("x", 3, 4, "LOC")], ["ORG", "", "", "LOC"]),
        ([ORG, PER] + [("x", 10 * n, 10 * n + 3, "PER") for n in range(1, 200)], [""] * 201),  # a slip
    ],
)
def test_labels_that_overlap_are_in_different_layers(spans, layers):
    assert assign_span_layers([("d", *span) for span in spans]) == layers


def test_a_table_of_nested_spans_is_a_table_per_layer(tmp_path):
    tables = read_text(
        tmp_path, "document,annotator,start,end,label\nd,ann,0,24,ORG\nd,ann,13,24,LOC\nd,bob,13,24,LOC\nd,joe,,,\n"
    )
    assert {name: spans_said(one) for name, one in tables.items()} == {
        "spans": {"ann": [(13, 24, "LOC")], "bob": [(13, 24, "LOC")], "joe": []},
        "spans, ORG": {"ann": [(0, 24, "ORG")], "bob": [], "joe": []},
    }
    assert {one.kind for one in tables.values()} == {"spans"}
    assert all(len(one) == 3 * one.n_items for one in tables.values())  # who marked nothing in a layer has read it
    assert SpansOverlap(question="", names=("spans", "spans, ORG")) in tables["spans"].import_report.notes


def test_tables_of_tokens_and_of_spans_are_the_same(tmp_path):
    tags = {"ann": "B-PER O B-ORG I-ORG O", "bob": "B-PER I-PER O O O", "joe": "O O O O O"}
    tokens = [("d", 1, t, who, tag) for who, line in tags.items() for t, tag in enumerate(line.split())]
    (tmp_path / "tokens.csv").write_text(
        "doc,sentence,token,worker,tag\n" + "".join(",".join(map(str, row)) + "\n" for row in tokens)
    )
    (tmp_path / "spans.csv").write_text(
        "document,annotator,start,end,label\nd,ann,0,1,PER\nd,ann,2,4,ORG\nd,bob,0,2,PER\nd,joe,,,\n"
    )
    conll = zip(*(line.split() for line in tags.values()), strict=True)
    (tmp_path / "tags.conll").write_text(
        "token ann bob joe\n" + "".join(f"w{t} {' '.join(line)}\n" for t, line in enumerate(conll))
    )
    spans = {"ann": [(0, 1, "PER"), (2, 4, "ORG")], "bob": [(0, 2, "PER")], "joe": []}
    for name in ("tokens.csv", "spans.csv", "tags.conll"):
        table = read(tmp_path / name)
        assert table.kind == "spans", name
        assert spans_said(table) == spans, name
    assert read(tmp_path / "tokens.csv").items[0] == "d/1 @ 00000"
    assert read(tmp_path / "tokens.csv", item="doc,sentence", kind="spans").items[0] == "d/1 @ 00000"
    with raises(errors.InvalidCell, column="start", row=0, value="x"):
        read_text(tmp_path, "document,annotator,start,end,label\nd,ann,x,1,PER\n")


def read_text(folder, text):
    (folder / "table.csv").write_text(text)
    return read(folder / "table.csv")


def test_conll_knows_other_schemes_and_answers_one_after_the_other(tmp_path):
    (tmp_path / "a.conll").write_text(
        "-DOCSTART- -X- O\n\nAnn X I-PER\nBo X I-PER\nwon X O\n\n"
        "Ann X S-PER\nBo X O\nwon X O\n\nEU X B-ORG\nnow X E-ORG\n"
    )
    table = read(tmp_path / "a.conll")
    assert table.annotators.tolist() == ["1", "2"]
    assert table.import_report.notes == [AnnotatorsNumbered(), LabelTypeGuessed(kind="tags of positions in documents")]
    assert table.to_arrow().to_pydict()["label"] == ["B-PER", "B-PER", "I-PER", "O", "O", "O", "B-ORG", "I-ORG"]


def test_sequences_survive_what_makes_another_table():
    names = name_positions(["b"] * 3 + ["a"] * 11, [*range(3), *range(11)])
    rng = np.random.default_rng(0)
    table = Annotations.from_arrays(rng.permutation(names * 2), ["x", "y"] * 14, ["B-k", "O"] * 14, kind="spans")
    assert table.classes.tolist() == ["B-k", "I-k", "O"]  # every type has both
    where = table.sequences
    assert [table.items[i] for i in where.order] == names[3:] + names[:3]
    assert where.ptr.tolist() == [0, 11, 14]
    part = table.select(items=[name for name in names if name != "a @ 00004"])
    assert part.sequences.ptr.tolist() == [0, 4, 10, 13]  # nothing follows over a gap
    assert Annotations.concat([part, table.select(items=["a @ 00004"])]).sequences.ptr.tolist() == [0, 11, 14]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["d 1"], (errors.InvalidPosition, {"item": "d 1"})),
        (["d @ 5-5"], (errors.InvalidPosition, {"item": "d @ 5-5"})),
        (["d @ 0-4", "d @ 2-6"], (errors.OverlappingPositions, {"item": "d @ 0-4", "other_item": "d @ 2-6"})),
    ],
)
def test_names_that_are_no_places_are_refused(names, message):
    table = Annotations.from_arrays(names, ["x"] * len(names), ["O"] * len(names), kind="spans")
    with raises(message[0], **message[1]):
        table.sequences  # noqa: B018


def test_spans_left_out_are_counted():
    rows = convert_spans_to_tags(
        {"": [("d", "x", 0, 3, "A"), ("d", "x", 2, 5, "A"), ("d", "x", 4, 4, "A")]}, tokens={"d": 6}
    )
    assert (rows.n_overlapping, rows.n_empty) == (1, 1)
    assert rows.label.tolist() == ["B-A", "I-A", "I-A", "O", "O", "O"]
    with warns(errors.SpansExcluded, n_overlapping=1, n_empty=0):
        Annotations.from_spans(["d", "d"], ["x", "x"], [0, 1], [3, 2], ["A", "B"])
