"""The exports of tools in the folder `exports` beside the data sets: the right table, or one right sentence."""

import json
import warnings

import pytest

from dissensus.table import exceptions as errors
from dissensus.table import io

PEOPLE = [f"11111111-1111-4111-8111-11111111110{n}" for n in range(3)]
SAMPLES = ["s0", "s1", "s2", "s3"]
TRACES = {  # question → kind, items, annotators, classes, rows
    "helpful": ("classes", ["trace-0", "trace-1"], ["helpful"], ["True"], 2),
    "tone": ("classes", ["trace-0", "trace-1"], ["user-a", "user-b"], ["polite", "rude"], 4),
    "score": ("numbers", ["trace-0", "trace-1"], ["judge-a", "judge-b"], [0.2, 0.6, 0.7, 0.9], 4),
}


def argilla(n, topics, tags):
    """The questions of the records, of which some have fewer answers."""
    records = ["r0", "r1", "r2"]
    return {
        "sentiment": ("classes", records, PEOPLE, ["neg", "pos"], n),
        "stars": ("graded", records, PEOPLE, [1, 2, 3, 4, 5], n),
        "topics": ("sets", records, PEOPLE, topics, n),
        "entities": ("spans", None, PEOPLE, ["B-ORG", "B-PER", "I-ORG", "I-PER", "O"], tags),
        "better": ("pairs", [f"b vs a | {record}" for record in records], PEOPLE, ["left", "right", "tie"], n),
    }


READ = {
    "argilla/records.json": argilla(9, ["other", "other|weather", "place|work", "weather", "work"], 30),
    "argilla/flat.json": argilla(7, ["other", "other|weather", "place|work", "weather", "work"], 24),
    "label_studio/export.json": {
        "sent": ("classes", [3, 4], ["1", "3"], ["neg", "pos"], 4),
        "stars": ("graded", [3, 4], ["1", "3"], [2, 4], 4),
        "ner": ("spans", None, ["1", "3"], ["B-PER", "I-PER", "O"], 18),
    },
    "label_studio/export.conll": ("spans", None, None, ["B-PER", "I-PER", "O"], 14),
    "label_studio/export.csv": (["x1", "x2"], ["1", "3"], ["neg", "pos"], 4),
    **dict.fromkeys(
        ["inspect_ai/panel.json", "inspect_ai/panel.eval"],
        (SAMPLES, ["mockllm/a", "mockllm/b", "mockllm/c"], ["C", "I"], 11),
    ),
    **dict.fromkeys(
        ["inspect_ai/panel2.json", "inspect_ai/panel2.eval"], (SAMPLES, ["mockllm/a", "mockllm/b"], ["C", "I"], 8)
    ),
    **dict.fromkeys(
        ["inspect_ai/panel3.json", "inspect_ai/panel3.eval"],
        (SAMPLES, ["model_graded_qa", "model_graded_qa1"], ["C", "I"], 8),
    ),
    **dict.fromkeys(
        ["promptfoo/out.json", "promptfoo/out.jsonl"], ([0, 1], ["polite-a", "polite-b"], ["no", "yes"], 4)
    ),
    "lm_eval/judge1_samples_polite.jsonl": ([0, 1, 2, 3], ["judge1"], ["0", "1"], 4),
    "lm_eval/judge2_samples_polite.jsonl": ([0, 1, 2, 3], ["judge2"], ["0", "1"], 4),
    **dict.fromkeys(["langfuse/scores_v2.json", "langfuse/scores_v3.json"], TRACES),
    "lewidi/2023_binary.json": (["1"], ["Ann1", "Ann2", "Ann3"], ["0", "1"], 3),
    "lewidi/2025_binary.json": (["3001"], ["Ann0", "Ann10", "Ann16"], ["0", "1"], 3),
    "lewidi/2025_ordinal.json": (
        ["1001", "1002"], ["Ann1", "Ann2", "Ann3", "Ann4"], ["-1", "-4", "-5", "0", "3", "4", "5"], 8,
    ),
    "lewidi/2025_multilabel.json": ("sets", None, None, None, 6),
}  # fmt: skip
REFUSED = {
    "lewidi/2025_test_blank.json": errors.NoUsableRows,
    "lewidi/2025_annotators_meta.json": errors.JsonWithoutAnnotations,
}
NOT_YET = {  # files of tools and shapes of tables that no reader is for yet
    "coco/annotators.json", "label_studio/boxes.json", "mturk/results.csv", "potato/annotations.jsonl",
    "preferences/helpsteer3.jsonl", "preferences/multipref.jsonl", "sagemaker/worker_responses.json",
    "tables/blank_and_skip.csv", "tables/counts.csv", "tables/relabelled.csv", "tables/semicolon_latin1.csv",
    "tables/several_answers_semicolon.csv", "tables/wide_with_final.csv", "toloka/assignments.tsv",
    "zooniverse/classifications.csv",
}  # fmt: skip
OPTIONS = [
    ("promptfoo/out.json", {"label": "score"}, [0.1, 0.9], 4),
    ("promptfoo/out.json", {"annotator": "provider"}, ["no", "yes"], 4),
    ("langfuse/scores_v3.json", {"label": "score"}, [0.2, 0.6, 0.7, 0.9], 4),
    ("inspect_ai/panel3.eval", {"annotator": "model"}, ["C", "I"], 8),
    ("argilla/records.json", {"label": "stars"}, [1, 2, 3, 4, 5], 9),
    ("argilla/records.json", {"label": "entities"}, ["B-ORG", "B-PER", "I-ORG", "I-PER", "O"], 30),
    ("argilla/records.json", {"label": "topics", "ticks": "votes"}, ["other", "place", "weather", "work"], None),
    ("label_studio/export.json", {"label": "stars"}, [2, 4], 4),
    ("label_studio/export.json", {"item": "item", "label": "sent"}, ["neg", "pos"], 4),
    ("label_studio/export.json", {"label": "ner"}, ["B-PER", "I-PER", "O"], 18),
    ("argilla/records.json", {"kind": "spans"}, ["B-ORG", "B-PER", "I-ORG", "I-PER", "O"], 30),
    ("argilla/flat.json", {"label": "entities"}, ["B-ORG", "B-PER", "I-ORG", "I-PER", "O"], 24),
    ("lewidi/2025_multilabel.json", {"ticks": "votes"}, ["contradiction", "entailment", "neutral"], 7),
]

pytestmark = pytest.mark.realdata


@pytest.fixture
def exports(data_folder):
    folder = data_folder.parent / "exports"
    if not folder.is_dir():
        pytest.skip("there is no folder `exports` beside the data sets")
    return folder


def quiet_read(path, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return io.read(path, **options)


def test_every_export_is_in_these_lists(exports):
    there = {str(path.relative_to(exports)) for path in exports.glob("*/*")}
    assert there == READ.keys() | REFUSED.keys() | NOT_YET


@pytest.mark.parametrize("name", READ)
def test_an_export_is_read_as_it_is_meant(exports, name):
    found = quiet_read(exports / name)
    tables, expected = (found, READ[name]) if isinstance(found, dict) else ({"": found}, {"": READ[name]})
    assert tables.keys() == expected.keys()
    for question, table in tables.items():
        kind, *columns, n = expected[question] if len(expected[question]) == 5 else ("classes", *expected[question])
        assert (table.kind, len(table)) == (kind, n)
        for names, there in zip((table.items, table.annotators, table.classes), columns, strict=True):
            assert there is None or names.tolist() == there
        assert table.import_report.n_rows == table.import_report.n_used + table.import_report.unused_counts.total()
    if all(table.kind != "spans" for table in tables.values()):  # of which a row is a place
        assert sum(map(len, tables.values())) == table.import_report.n_used


def test_several_labels_are_yes_or_no_for_each_as_the_task_has_it(exports):
    path = exports / "lewidi/2025_multilabel.json"
    soft = {item: entry["soft_label"] for item, entry in json.loads(path.read_text()).items()}
    for label, table in quiet_read(path, ticks="questions").items():
        shares = table.votes() / table.votes().sum(axis=1, keepdims=True)
        for item, share in zip(table.items, shares.tolist(), strict=True):
            assert dict(zip(table.classes, share, strict=True)) == soft[item][label]


@pytest.mark.parametrize("name", REFUSED)
def test_an_export_that_is_not_read_gets_one_sentence(exports, name):
    with pytest.raises(REFUSED[name]) as error:
        quiet_read(exports / name)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("name", "options", "classes", "n"), OPTIONS)
def test_options_read_the_rest(exports, name, options, classes, n):
    table = quiet_read(exports / name, **options)
    assert table.classes.tolist() == classes
    assert n is None or len(table) == n


def test_texts_and_the_other_questions_are_kept_and_counted(exports):
    tables = quiet_read(exports / "label_studio/export.json")
    assert tables["stars"].import_report.unused_counts == {"predictions by models": 1}
    source = quiet_read(exports / "label_studio/export.json", label="sent").import_report
    assert source.item_fields[3] == {"text": "Ann works at IBM", "item": "x1"}
    assert source.unused_counts == {
        "spans 'ner'": 4,
        "ratings 'stars'": 4,
        "predictions by models": 1,
    }  # fmt: skip
    assert io.read_frame(exports / "lewidi/2025_binary.json").to_pydict() == {
        "item": ["3001"], "post": ["It rains again."], "reply": ["Lovely weather for a picnic."],
    }  # fmt: skip
    unused = quiet_read(exports / "argilla/flat.json", label="sentiment").import_report.unused_counts
    assert (unused["answers discarded"], unused["answers not finished"], unused["suggestions by models"]) == (5, 5, 3)
