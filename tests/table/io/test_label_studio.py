"""The shape of the exports is that of https://labelstud.io/guide/task_format."""

import json

import pytest

from dissensus import Annotations, Questions
from dissensus.exceptions import DataWarning
from dissensus.table import exceptions as errors
from dissensus.table import io
from dissensus.table.notes import ComparedFieldsMissing, ComparisonsReadAsLabels, SelectionsSplit
from facts import raises, warns


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


def test_several_choices_of_one_answer_are_taken_apart_only_on_request(read):
    tasks = task(1, annotation(1, choice("a", "b"))), task(2, annotation(1, choice("a")))
    sets = read(*tasks)
    assert (sets.kind, sets.classes[sets.label].tolist()) == ("sets", ["a|b", "a"])
    assert read(*tasks, ticks="votes").votes().tolist() == [[1, 1], [1, 0]]
    tables = read(*tasks, ticks="questions")
    assert {name: t.classes[t.label].tolist() for name, t in tables.items()} == {"a": ["1", "1"], "b": ["1", "0"]}
    assert tables["a"].import_report.notes == [SelectionsSplit(into="yes/no questions", n=1)]


def test_every_choice_control_is_a_question(read):
    tables = read(
        task(1, annotation(1, choice("pos"), choice("yes", name="rude"))), task(2, annotation(2, choice("neg")))
    )
    assert isinstance(tables, Questions)
    assert {name: t.classes.tolist() for name, t in tables.items()} == {"rude": ["yes"], "sentiment": ["neg", "pos"]}
    assert tables["rude"].items.tolist() == [1, 2]


def test_skipped_annotations_are_left_out_with_a_count_and_their_items_stay(read):
    skipped = annotation(2, choice("pos"), was_cancelled=True)
    with warns(
        errors.RowsExcluded,
        unused={"annotations skipped": 1, "predictions by models": 3, "annotations without an answer": 1},
    ):
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
    with warns(
        errors.RowsExcluded,
        unused={"answers about regions 'sentiment'": 1, "texts 'why'": 1, "predictions by models": 1},
    ):
        assert len(read(task(1, annotation(1, choice("pos"), region, text)))) == 1
    with raises(errors.NoReadableAnswers, contents="1 answers about regions, 1 texts"):
        read(task(1, annotation(1, region, text)))


def test_the_item_may_be_a_field_of_the_data_and_the_annotator_another_field(read):
    table = read(task(1, annotation(1, choice("pos"), reviewer="eve"), doc="d-1"), item="doc", annotator="reviewer")
    assert table.items.tolist() == ["d-1"]
    assert table.annotators.tolist() == ["eve"]
    with raises(errors.MissingField, names=("page",), role="item"):
        read(task(1, annotation(1, choice("pos"))), item="page")


def test_an_annotation_by_nobody_is_an_error(read):
    with raises(errors.MissingField, names=("completed_by", "created_username"), role="annotator"):
        read(task(1, annotation(None, choice("pos"))))


def test_exports_before_version_one_say_completions(read):
    old = task(1)
    old["completions"] = [annotation(None, choice("pos"), created_username="ann@example.org, 1")]
    del old["annotations"]
    assert read(old).annotators.tolist() == ["ann@example.org, 1"]


def test_the_short_export_is_a_plain_table(read):  # JSON_MIN: one flat record per annotation
    table = read({"id": 1, "text": "…", "sentiment": "pos", "annotator": 4, "annotation_id": 9}, label="sentiment")
    assert table.annotators.tolist() == [4]


def test_ratings_are_counted_beside_choices_and_read_where_asked_for_or_alone(read):
    stars = {"type": "rating", "from_name": "stars", "value": {"rating": 4}}
    tables = read(task(1, annotation(1, choice("pos"), stars)))
    assert {question: table.kind for question, table in tables.items()} == {"sentiment": "classes", "stars": "graded"}
    with warns(errors.RowsExcluded, unused={"ratings 'stars'": 1, "predictions by models": 1}):
        table = read(task(1, annotation(1, choice("pos"), stars)), label="sentiment")
    assert (table.classes.tolist(), table.import_report.n_used, table.import_report.n_rows) == (["pos"], 1, 3)
    with warns(errors.RowsExcluded, unused={"answers 'sentiment'": 1, "predictions by models": 1}):
        assert read(task(1, annotation(1, choice("pos"), stars)), label="stars").classes.tolist() == [4]
    assert read(task(1, annotation(1, stars))).classes.tolist() == [4]
    with raises(errors.NoSuchQuestion, label="tone", questions=("sentiment", "stars")):
        read(task(1, annotation(1, choice("pos"), stars)), label="tone")


def better(selected, to="text1,text2"):
    return {"type": "pairwise", "from_name": "pw", "to_name": to, "value": {"selected": selected}}


@pytest.mark.parametrize(
    ("data", "item"),
    [
        ({"text1": "a cat", "text2": "a dog"}, "a cat vs a dog | 1"),
        ({"text1": "a cat", "text2": "a dog", "model_a": "m", "model_b": "n"}, "m vs n | 1"),
        ({"text1": "cats vs dogs", "text2": "d" * 201}, "text1 of 1 vs text2 of 1 | 1"),
        ({"text1": "a cat", "text2": "a cat"}, "text1 of 1 vs text2 of 1 | 1"),
        ({}, "text1 vs text2 | 1"),
    ],
)
def test_a_choice_of_two_is_a_comparison_of_what_the_task_names(read, data, item):
    tasks = task(1, annotation(1, better("left")), annotation(2, better("right")), **data)
    table = read(tasks)
    assert (table.kind, table.items.tolist(), table.classes[table.label].tolist()) == (
        "pairs",
        [item],
        ["left", "right"],
    )
    assert any(isinstance(note, ComparedFieldsMissing) for note in table.import_report.notes) == (not data)
    plain = read(tasks, kind="classes")
    assert (plain.kind, plain.items.tolist()) == ("classes", [1])
    assert plain.classes[plain.label].tolist() == ["left", "right"]


def test_things_that_no_two_tasks_share_are_not_ranked(read):
    ranker = {"type": "ranker", "from_name": "rank", "value": {"ranker": {"rank": ["a", "b"]}}}
    both = [
        task(n, annotation(1, better("left"), {**ranker, "value": {"ranker": {"r": [f"a{n}", f"b{n}"]}}}),
             text1=f"x{n}", text2=f"y{n}")
        for n in range(3)
    ]  # fmt: skip
    with warns(
        errors.RowsExcluded,
        unused={
            "comparisons of different alternatives in every item: comparisons 'rank'": 3,
            "predictions by models": 3,
        },
    ):
        table = read(*both)
    assert (table.kind, table.items.tolist(), table.classes.tolist()) == ("classes", [0, 1, 2], ["left"])
    assert table.import_report.notes == [ComparisonsReadAsLabels(question="pw")]
    with pytest.warns(DataWarning):
        assert read(*both, label="rank").kind == "pairs"
    assert {name: one.kind for name, one in read(*both, kind="pairs").items()} == {"pw": "pairs", "rank": "pairs"}
    shared = [task(n, annotation(1, better("left")), text1=f"x{n % 2}", text2=f"y{n}") for n in range(3)]
    assert read(*shared).kind == "pairs"


def test_a_list_in_its_new_order_is_its_comparisons_and_buckets_are_counted(read):
    def ranker(**lists):
        return {"type": "ranker", "from_name": "rank", "to_name": "results", "value": {"ranker": lists}}

    buckets = annotation(2, ranker(best=["a"], _=["b", "c"]), choice("pos"))
    with warns(errors.RowsExcluded, unused={"predictions by models": 1, "rankings of other than one list": 1}):
        tables = read(task(1, annotation(1, ranker(rank=["c", "a", "b"]), choice("neg")), buckets))
    assert {name: table.kind for name, table in tables.items()} == {"rank": "pairs", "sentiment": "classes"}
    table = tables["rank"]
    sides = [item.split(" | ")[0].split(" vs ") for item in table.items[table.item]]
    won = [pair[k] for pair, k in zip(sides, table.label, strict=True)]
    assert sorted(zip(map(sorted, sides), won, strict=True)) == [
        (["a", "b"], "a"),
        (["a", "c"], "c"),
        (["b", "c"], "c"),
    ]
    old = {"type": "ranker", "from_name": "rank", "value": {"items": ["a", "b"], "weights": [1, 0.5]}}
    with warns(errors.RowsExcluded, unused={"rankings of other than one list": 1, "predictions by models": 1}):
        assert read(task(1, annotation(1, old, choice("neg")))).kind == "classes"
    with warns(
        errors.RowsExcluded,
        unused={"comparisons without two alternatives and the better one": 1, "predictions by models": 1},
    ):
        assert len(read(task(1, annotation(1, better("left")), annotation(2, better("both"))))) == 1


def test_texts_and_ground_truth_are_used(read, tmp_path):
    right = annotation(9, choice("neg"), ground_truth=True)
    table = read(
        task(1, annotation(1, choice("pos")), right, text="t1"), task(2, annotation(2, choice("neg")), text="t2")
    )
    assert table.annotators.tolist() == ["1", "2"]
    assert table.gold_codes(*table.import_report.gold).tolist() == [0, -1]
    assert table.import_report.item_fields == {1: {"text": "t1"}, 2: {"text": "t2"}}
    assert table.import_report.unused_counts["answers marked as correct (gold labels, no votes)"] == 1
    items = io.read_frame(tmp_path / "export.json")
    assert items.to_pydict() == {"item": [1, 2], "text": ["t1", "t2"], "gold": ["neg", None]}


def _wrong(change):
    one = task(1, annotation(1, choice("pos")))
    change(one)
    return one


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.update(annotations=[1]),
        lambda t: t["annotations"][0].update(result=[1]),
        lambda t: t["annotations"][0].update(result={"a": 1}),
        lambda t: t["annotations"][0]["result"][0].update(value="pos"),
        lambda t: t["annotations"][0]["result"][0].update(value=[1]),
        lambda t: t["annotations"][0]["result"][0]["value"].update(choices="pos"),
        lambda t: t["annotations"][0]["result"][0]["value"].update(choices=[{"a": 1}]),
        lambda t: t["annotations"][0]["result"][0]["value"].update(choices=[[1]]),
        lambda t: t["annotations"][0].update(completed_by=[3]),
        lambda t: t["annotations"][0].update(completed_by={"email": {"a": 1}}),
        lambda t: t.update(id={"a": 1}),
        lambda t: t.update(id=[1]),
        lambda t: t.update(predictions=3),
        lambda t: t.update(drafts="x"),
    ],
)
def test_whatever_is_of_a_wrong_type_is_one_sentence(read, change):
    with pytest.raises((errors.UnexpectedValue, errors.UnusableName)) as caught:
        read(task(2, annotation(1, choice("neg"))), _wrong(change))
    assert "export.json: " in str(caught.value)
