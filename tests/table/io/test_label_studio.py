"""The shape of the exports is that of https://labelstud.io/guide/task_format."""

import json

import pytest

from dissensus import Annotations, Questions
from dissensus.exceptions import DataError, DataWarning
from dissensus.table import io


def choice(*choices, name="sentiment", **where):
    return {
        "type": "choices",
        "from_name": name,
        "to_name": "text",
        "id": "x",
        "value": {"choices": list(choices), **where},
    }


def annotation(who, *results, **more):
    return {"id": 7, "completed_by": who, "result": list(results), "was_cancelled": False, "lead_time": 4.2, **more}


def task(number, *annotations, **data):
    return {
        "id": number,
        "data": {"text": "…", **data},
        "annotations": list(annotations),
        "predictions": [annotation(0, choice("no"))],
    }


@pytest.fixture
def read(tmp_path):
    def read_tasks(*tasks, **options):
        (tmp_path / "export.json").write_text(json.dumps(tasks, indent=2))
        return io.read(tmp_path / "export.json", **options)

    return read_tasks


def test_every_annotator_is_kept_by_number_or_address(read):
    email = {"id": 3, "email": "ann@example.org", "first_name": "", "last_name": ""}
    table = read(
        task(11, annotation(email, choice("pos")), annotation(4, choice("neg"))),
        task(9, annotation({"id": 5}, choice("neg"))),
    )
    assert isinstance(table, Annotations)
    assert table.items.tolist() == [9, 11]
    assert table.annotators.tolist() == ["4", "5", "ann@example.org"]
    assert table.votes().tolist() == [[1, 0], [1, 1]]


def test_several_choices_of_one_answer_are_several_rows(read):
    assert read(task(1, annotation(1, choice("a", "b")))).votes().tolist() == [[1, 1]]


def test_every_choice_control_is_a_question(read):
    tables = read(
        task(1, annotation(1, choice("pos"), choice("yes", name="rude"))), task(2, annotation(2, choice("neg")))
    )
    assert isinstance(tables, Questions)
    assert {name: t.classes.tolist() for name, t in tables.items()} == {"rude": ["yes"], "sentiment": ["neg", "pos"]}
    assert tables["rude"].items.tolist() == [1, 2]


def test_skipped_annotations_are_left_out_with_a_count_and_their_items_stay(read):
    skipped = annotation(2, choice("pos"), was_cancelled=True)
    with pytest.warns(DataWarning, match="2 of 4 annotations were skipped or chose nothing"):
        table = read(
            task(1, annotation(1, choice("pos")), skipped),
            task(2, annotation(3)),
            task(3, annotation(1, choice("neg"))),
        )
    assert table.items.tolist() == [1, 2, 3]
    assert table.annotators.tolist() == ["1", "2", "3"]
    assert len(table) == 2


def test_what_is_no_choice_about_the_whole_task_is_not_read(read):
    region = choice("pos", start=3, end=9)
    text = {"type": "textarea", "from_name": "why", "value": {"text": ["because"]}}
    assert len(read(task(1, annotation(1, choice("pos"), region, text)))) == 1
    with pytest.raises(DataError, match=r"export\.json holds no choices .* in 1 annotations .*choices, textarea"):
        read(task(1, annotation(1, region, text)))


def test_the_item_may_be_a_field_of_the_data_and_the_annotator_another_field(read):
    table = read(task(1, annotation(1, choice("pos"), reviewer="eve"), doc="d-1"), item="doc", annotator="reviewer")
    assert table.items.tolist() == ["d-1"]
    assert table.annotators.tolist() == ["eve"]
    with pytest.raises(DataError, match="task 1 has no 'page' for item; name the field: item=<field>"):
        read(task(1, annotation(1, choice("pos"))), item="page")


def test_an_annotation_by_nobody_is_an_error(read):
    with pytest.raises(DataError, match="task 1 has no 'completed_by' nor 'created_username' for annotator"):
        read(task(1, annotation(None, choice("pos"))))


def test_exports_before_version_one_say_completions(read):
    old = task(1)
    old["completions"] = [annotation(None, choice("pos"), created_username="ann@example.org, 1")]
    del old["annotations"]
    assert read(old).annotators.tolist() == ["ann@example.org, 1"]


def test_the_short_export_is_a_plain_table(read):  # JSON_MIN: one flat record per annotation
    table = read({"id": 1, "text": "…", "sentiment": "pos", "annotator": 4, "annotation_id": 9}, label="sentiment")
    assert table.annotators.tolist() == [4]
