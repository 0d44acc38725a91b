"""Labels back into the tool that they came from: nothing of its export is lost, and no name changes."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from dissensus import Annotations, methods
from dissensus.cli import app
from dissensus.exceptions import UnknownName
from dissensus.table import exceptions as errors
from dissensus.table import io
from dissensus.table.datasets.folder import FOLDER_VARIABLE
from dissensus.table.io.readers import detect_format
from dissensus.table.io.writers import LabelledSpan, LabelsToWrite, QuestionLabels, write_labels, writers
from facts import raises
from table.io.test_argilla import by_person, flat, nested, on_the_hub

WHO = "dissensus majority-vote"


def exports():
    """The folder of real exports, beside the data folder."""
    folder = Path(os.environ.get(FOLDER_VARIABLE, "")).parent / "exports"
    if FOLDER_VARIABLE not in os.environ or not folder.is_dir():
        pytest.skip("the folder of exports is not beside the data folder")
    return folder


def choice(name, *choices):
    return {"from_name": name, "to_name": "text", "type": "choices", "value": {"choices": list(choices)}}


def label_studio(*controls):
    said = {1: "pos", 2: "neg", 3: "pos"}
    return [
        {
            "id": task,
            "data": {"text": "…", "own": f"x{task}"},
            "predictions": [17, {"model_version": "before", "result": []}],
            "annotations": [
                {"id": 10 * task + who, "completed_by": who, "result": [choice(name, label) for name in controls]}
                for who, label in said.items()
            ],
        }
        for task in (12, 7)
    ]


def doccano():
    said = [
        ("x", "ann", ["pos"]),
        ("x", "bob", ["pos"]),
        ("x", "eve", ["neg"]),
        ("y", "ann", ["neg"]),
        ("z", "ann", []),
    ]
    return [{"id": item, "text": f"text of {item}", "label": label, "username": who} for item, who, label in said]


def prodigy_choices():
    options = [{"id": "POS", "text": "positive"}, {"id": "NEG", "text": "negative"}]
    said = [(5, "ann", "POS"), (5, "bob", "POS"), (5, "eve", "NEG"), (-6, "ann", "NEG")]
    return [
        {
            "_input_hash": item,
            "text": "…",
            "options": options,
            "accept": [label],
            "answer": "accept",
            "_annotator_id": who,
        }
        for item, who, label in said
    ]


def prodigy_binary():
    said = [(5, "ann", "accept"), (5, "bob", "accept"), (5, "eve", "reject"), (6, "ann", "reject")]
    return [
        {"_input_hash": item, "label": name, "answer": answer, "_annotator_id": who}
        for item, who, answer in said
        for name in ("SPAM", "RUDE")
    ]


EXPORTS = {
    "label-studio": [label_studio("sentiment"), label_studio("sentiment", "tone")],
    "doccano": [doccano()],
    "prodigy": [prodigy_choices(), prodigy_binary()],
}


def majority(tables, **more):
    """Labels by majority vote for every question that has classes."""
    if isinstance(tables, Annotations):
        tables = {None: tables}
    with_classes = {question: table for question, table in tables.items() if table.kind == "classes"}
    fitted = {question: methods["majority-vote"]().fit(table) for question, table in with_classes.items()}
    answers = {}
    for question, m in fitted.items():
        some = np.diff(tables[question].item_ptr) > 0
        answers[question] = QuestionLabels(m.items_[some], m.predict()[some], m.posterior_.max(axis=1)[some])
    return LabelsToWrite(answers, WHO, **more)


def by_question(tables):
    return {None: tables} if isinstance(tables, Annotations) else dict(tables)


def rows_of(table):
    """(item, annotator, label) of every row, without ours."""
    return {
        row for row in zip(*table.to_arrow().to_pydict().values(), strict=True) if not row[1].startswith("dissensus")
    }


@pytest.mark.filterwarnings("ignore::dissensus.exceptions.DataWarning")
def check_round_trip(to, path, folder):
    assert detect_format(path) == to
    before = by_question(io.read(path))
    back = by_question(io.read(write_labels(majority(before, source=path), to, folder)))
    assert back.keys() == before.keys()
    for question, table in before.items():
        assert back[question].items.tolist() == table.items.tolist()
        assert set(back[question].classes.tolist()) <= set(table.classes.tolist())
        if to != "doccano":  # whose examples have one list of labels each
            assert rows_of(back[question]) == rows_of(table)


@pytest.mark.filterwarnings("ignore::dissensus.exceptions.DataWarning")
@pytest.mark.parametrize(
    ("to", "number"), [(to, n) for to, all_of_it in EXPORTS.items() for n in range(len(all_of_it))]
)
def test_a_round_trip_loses_neither_a_row_nor_a_name(to, number, tmp_path):
    path = tmp_path / f"export.{'json' if to == 'label-studio' else 'jsonl'}"
    found = EXPORTS[to][number]
    path.write_text(json.dumps(found) if to == "label-studio" else "\n".join(map(json.dumps, found)))
    (tmp_path / "out").mkdir()
    check_round_trip(to, path, tmp_path / "out")


@pytest.mark.realdata
@pytest.mark.filterwarnings("ignore::dissensus.exceptions.DataWarning")
@pytest.mark.parametrize(
    ("to", "name"),
    [
        ("label-studio", "label_studio/export.json"),
        ("argilla", "argilla/records.json"),
        ("argilla", "argilla/flat.json"),
        *(("inspect", f"inspect_ai/panel{number}.{suffix}") for number in ("", 2, 3) for suffix in ("json", "eval")),
        ("promptfoo", "promptfoo/out.json"),
        ("promptfoo", "promptfoo/out.jsonl"),
    ],
)
def test_a_round_trip_of_a_real_export_loses_neither_a_row_nor_a_name(to, name, tmp_path):
    path = exports() / name
    check_round_trip(to, path, tmp_path)


def written(to, path, folder, **more):
    said = write_labels(majority(io.read(path), source=path, **more), to, folder).read_text()
    return json.loads(said) if said.startswith("[") else [json.loads(line) for line in said.splitlines()]


def test_a_task_of_label_studio_gets_one_prediction_more(tmp_path):
    tasks = label_studio("sentiment", "tone")
    (tmp_path / "export.json").write_text(json.dumps(tasks))
    first, _ = written("label-studio", tmp_path / "export.json", tmp_path)
    old, new = first.pop("predictions")
    assert old == {"model_version": "before", "result": []}  # the number of one cannot be imported
    assert first == {key: value for key, value in tasks[0].items() if key != "predictions"}
    assert new["model_version"] == WHO
    assert new["score"] == pytest.approx(2 / 3)
    assert new["result"] == [choice(name, "pos") | {"score": new["score"]} for name in ("sentiment", "tone")]


def test_spans_in_each_other_and_a_choice_of_two_go_back_to_their_controls(tmp_path):
    def result(kind, name, to, **value):
        return {"type": kind, "from_name": name, "to_name": to, "value": value}

    given = [
        result("labels", "ner", "t", start=0, end=9, labels=["ORG"]),
        result("labels", "ner", "t", start=4, end=9, labels=["LOC"]),
        result("pairwise", "pw", "x,y", selected="right"),
    ]
    tasks = [
        {"id": n, "data": {"text": "Uni Paris", "x": f"x{n}", "y": f"y{n}"},
         "annotations": [{"completed_by": who, "result": given} for who in (1, 2)]}
        for n in range(3)
    ]  # fmt: skip
    path = tmp_path / "export.json"
    path.write_text(json.dumps(tasks))
    said = {"ner": [LabelledSpan(4, 9, "LOC", 0.9)], "ner, ORG": [LabelledSpan(0, 9, "ORG", 0.9)], "pw": "right"}
    assert io.read(path).keys() == said.keys()
    answers = {}
    for question, one in said.items():
        label = np.empty(1, object)
        label[0] = one
        answers[question] = QuestionLabels(np.array([0]), label, np.array([0.9]))
    first, *_ = json.loads(write_labels(LabelsToWrite(answers, WHO, source=path), "label-studio", tmp_path).read_text())
    found = [{key: one[key] for key in given[0]} for one in first["predictions"][-1]["result"]]
    assert sorted(found, key=str) == sorted(given, key=str)


def test_a_field_that_names_the_items_is_found_again(tmp_path):
    (tmp_path / "export.json").write_text(json.dumps(label_studio("sentiment")))
    table = io.read(tmp_path / "export.json", item="own")
    labels = majority(table, source=tmp_path / "export.json", item="own")
    tasks = json.loads(write_labels(labels, "label-studio", tmp_path).read_text())
    assert [len(task["predictions"]) for task in tasks] == [2, 2]


@pytest.mark.realdata
def test_a_record_of_argilla_keeps_its_types_and_gets_suggestions(tmp_path):
    for name in ("records", "flat"):
        path = exports() / "argilla" / f"{name}.json"
        before = json.loads(path.read_text())
        item = np.array([record["id"] for record in before], object)
        stars = QuestionLabels(item, np.full(item.size, "4", object), np.full(item.size, 0.75))
        after = json.loads(write_labels(LabelsToWrite({"stars": stars}, WHO, path), "argilla", tmp_path).read_text())
        ours = {"value": 4, "score": 0.75, "agent": WHO}
        for old, new in zip(before, after, strict=True):
            if name == "records":
                assert new == old | {"suggestions": old["suggestions"] | {"stars": ours}}
                continue
            keys = {"value": "stars.suggestion", "score": "stars.suggestion.score", "agent": "stars.suggestion.agent"}
            assert new == old | {keys[key]: value for key, value in ours.items()}


@pytest.mark.filterwarnings("ignore::dissensus.exceptions.DataWarning")
def test_an_example_of_doccano_has_our_label_and_one_without_labels_stays(tmp_path):
    (tmp_path / "export.jsonl").write_text("\n".join(map(json.dumps, doccano())))
    found = written("doccano", tmp_path / "export.jsonl", tmp_path)
    assert found == [
        {"id": "x", "text": "text of x", "label": ["pos"], "annotator": WHO, "score": pytest.approx(2 / 3)},
        {"id": "y", "text": "text of y", "label": ["neg"], "annotator": WHO, "score": 1.0},
        {"id": "z", "text": "text of z", "label": []},
    ]


def test_a_task_of_prodigy_is_answered_in_a_session_of_ours(tmp_path):
    for number, answer in ((0, {"accept": ["POS"], "answer": "accept"}), (1, {"answer": "accept"})):
        tasks = EXPORTS["prodigy"][number]
        (tmp_path / "export.jsonl").write_text("\n".join(map(json.dumps, tasks)))
        found = written("prodigy", tmp_path / "export.jsonl", tmp_path)
        assert found[: len(tasks)] == tasks
        ours = found[len(tasks) :]
        who = "dissensus-majority-vote"
        (first,) = (task for task in ours if task["_input_hash"] == 5 and task.get("label") == tasks[0].get("label"))
        assert first == tasks[0] | answer | {"_annotator_id": who, "_session_id": who, "score": pytest.approx(2 / 3)}
        assert len(ours) == (2 if number == 0 else 4)


@pytest.mark.realdata
def test_a_log_of_inspect_gets_one_score_more(tmp_path):
    path = exports() / "inspect_ai" / "panel3.json"
    before = json.loads(path.read_text())
    item = np.array([sample["id"] for sample in before["samples"]], object)
    labels = LabelsToWrite(
        {None: QuestionLabels(item, np.full(item.size, "C", object), np.full(item.size, 0.9))}, WHO, path
    )
    after = json.loads(write_labels(labels, "inspect", tmp_path).read_text())
    for sample in after["samples"]:
        ours = sample["scores"].pop("dissensus")
        assert ours == {
            "value": "C",
            "explanation": f"{WHO}, 90 % sure",
            "metadata": {"confidence": 0.9, "agent": WHO},
        }
    assert after == before


@pytest.mark.realdata
@pytest.mark.filterwarnings("ignore::dissensus.exceptions.DataWarning")
@pytest.mark.parametrize(
    ("to", "name", "label", "ticks"),
    [
        ("argilla", "argilla/records.json", "stars", ()),
        ("argilla", "argilla/flat.json", "stars", ()),
        ("argilla", "argilla/records.json", "topics", ("--ticks", "votes")),
        ("label-studio", "label_studio/export.json", "stars", ()),
    ],
)
def test_the_question_that_was_read_gets_an_answer_in_its_own_type(to, name, label, ticks, tmp_path):
    path = exports() / name
    command = ["aggregate", str(path), "--label", label, *ticks, "--to", to, "-o", str(tmp_path / "out")]
    done = CliRunner().invoke(app, command, prog_name="dissensus")
    assert done.exit_code == 0, done.output
    after = json.loads((tmp_path / "out" / f"to-{to}.json").read_text())
    for record in after:
        if to == "label-studio":
            (ours,) = record["predictions"][-1]["result"]
            assert (ours["from_name"], ours["type"]) == (label, "rating")
            said = ours["value"]["rating"]
        elif name.endswith("flat.json"):
            said = record[f"{label}.suggestion"]
        else:
            said = record["suggestions"][label]["value"]
        assert isinstance(said, list if label == "topics" else int), said


@pytest.mark.filterwarnings("ignore::dissensus.exceptions.DissensusWarning")
@pytest.mark.parametrize(
    ("shape", "ours"),
    [
        (nested, {"suggestions": {"tone": {"value": "neg", "score": 1.0, "agent": WHO}}}),
        (flat, {"tone.suggestion": "neg", "tone.suggestion.score": 1.0, "tone.suggestion.agent": WHO}),
        (on_the_hub, {"tone-suggestion": "neg", "tone-suggestion-metadata": {"score": 1.0, "agent": WHO}}),
        (
            by_person,
            {"suggestions": [{"value": "pos"}, {"question_name": "tone", "value": "neg", "score": 1.0, "agent": WHO}]},
        ),
    ],
)
def test_every_shape_of_argilla_keeps_its_shape(shape, ours, tmp_path):
    before = [shape("r0"), shape("r1")]
    (tmp_path / "records.json").write_text(json.dumps(before))
    after = written("argilla", tmp_path / "records.json", tmp_path, question="tone")
    assert after[1] == before[1] | ours
    check_round_trip("argilla", tmp_path / "records.json", tmp_path)


def test_the_score_of_a_prediction_is_that_of_its_least_sure_answer(tmp_path):
    one, other = (QuestionLabels(np.array(["x"]), np.array(["a"]), np.array([p])) for p in (0.9, 0.4))
    path = write_labels(LabelsToWrite({"tone": one, "topic": other}, WHO), "label-studio", tmp_path)
    (task,) = json.loads(path.read_text())
    assert task["predictions"][0]["score"] == 0.4
    assert [result["score"] for result in task["predictions"][0]["result"]] == [0.9, 0.4]


TABLE = Annotations.from_arrays(["x", "x", "y"], ["ann", "bob", "ann"], ["=1+1", "=1+1", "no"])


@pytest.mark.parametrize("to", [to for to in writers if to != "conll"])  # which is for tags of tokens
def test_a_table_from_elsewhere_is_written_for_every_tool(to, tmp_path):
    path = write_labels(majority(TABLE), to, tmp_path)
    assert path.name == writers[to].file
    if to in ("inspect", "promptfoo", "label-studio", "argilla"):  # they read what people said; here nobody did
        assert path.stat().st_size > 50
        return
    back = io.read(path)
    assert back.items.tolist() == ["x", "y"]
    assert back.classes[back.label].tolist() == ["=1+1", "no"]


def test_text_that_looks_like_a_formula_stays_text_in_excel(tmp_path):
    openpyxl = pytest.importorskip("openpyxl", reason="needs the extra excel")
    header = {"item": "task", "annotator": "worker", "label": "answer"}
    path = write_labels(majority(TABLE, header=header), "xlsx", tmp_path)
    sheet = openpyxl.load_workbook(path)["labels"]
    assert [cell.value for cell in sheet[1]] == ["task", "worker", "answer", "confidence"]
    assert [cell.value for cell in sheet[2]] == ["x", WHO, "=1+1", 1.0]
    assert sheet["C2"].data_type == "s"


def test_doccano_takes_one_question_and_a_wrong_tool_is_answered_with_the_nearest(tmp_path):
    with raises(errors.OneQuestionPerProject, tool="a doccano project", n=2):
        write_labels(majority({"a": TABLE, "b": TABLE}), "doccano", tmp_path)
    with pytest.raises(UnknownName):
        write_labels(majority(TABLE), "label-studoi", tmp_path)
    assert list(tmp_path.iterdir()) == []
