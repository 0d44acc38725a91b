"""The exports of tools in the folder `exports` beside the data sets: the right table, or one right sentence."""

import warnings

import pytest

from dissensus.exceptions import DissensusError
from dissensus.table import io

PEOPLE = [f"11111111-1111-4111-8111-11111111110{n}" for n in range(3)]
READ = {
    "argilla/records.json": (["r0", "r1", "r2"], PEOPLE, ["neg", "pos"], 9),
    "argilla/flat.json": (["r0", "r1", "r2"], PEOPLE, ["neg", "pos"], 7),
    "label_studio/export.json": ([3, 4], ["1", "3"], ["neg", "pos"], 4),
    "label_studio/export.conll": (
        [f"s00000{s} @ 0000{t}" for s, n in ((0, 4), (1, 3)) for t in range(n)],
        ["1", "2"], ["B-PER", "I-PER", "O"], 14,
    ),
    "label_studio/export.csv": (["x1", "x2"], ["1", "3"], ["neg", "pos"], 4),
    "lewidi/2023_binary.json": (["1"], ["Ann1", "Ann2", "Ann3"], ["0", "1"], 3),
    "lewidi/2025_binary.json": (["3001"], ["Ann0", "Ann10", "Ann16"], ["0", "1"], 3),
    "lewidi/2025_ordinal.json": (
        ["1001", "1002"], ["Ann1", "Ann2", "Ann3", "Ann4"], ["-1", "-4", "-5", "0", "3", "4", "5"], 8,
    ),
}  # fmt: skip
REFUSED = {
    "lewidi/2025_multilabel.json": r"1 of 6 answers tick several labels, such as 'entailment', 'neutral'; say how",
    "lewidi/2025_test_blank.json": r"no answer that can be used; .* 3 answers held back \(empty text\)",
    "lewidi/2025_annotators_meta.json": "if it describes the annotators, give it as a table with a column annotator",
    **dict.fromkeys([f"inspect_ai/panel{n}.{s}" for n in ("", 2, 3) for s in ("json", "eval")], "is a log of Inspect"),
    **dict.fromkeys(["promptfoo/out.json", "promptfoo/out.jsonl"], "is a result of promptfoo"),
    **dict.fromkeys([f"lm_eval/judge{n}_samples_polite.jsonl" for n in (1, 2)], "samples of lm-evaluation-harness"),
    **dict.fromkeys(["langfuse/scores_v2.json", "langfuse/scores_v3.json"], "a page of Langfuse's scores"),
}
OPTIONS = [
    ("argilla/records.json", {"label": "stars"}, [1, 2, 3, 4, 5], 9),
    ("argilla/records.json", {"label": "topics", "ticks": "votes"}, ["other", "place", "weather", "work"], None),
    ("label_studio/export.json", {"label": "stars"}, [2, 4], 4),
    ("label_studio/export.json", {"label": "ner"}, ["B-PER", "I-PER", "O"], 18),
    ("argilla/records.json", {"kind": "spans"}, ["B-ORG", "B-PER", "I-ORG", "I-PER", "O"], 30),
    ("argilla/flat.json", {"label": "entities"}, ["B-ORG", "B-PER", "I-ORG", "I-PER", "O"], 24),
    ("label_studio/export.json", {"item": "item"}, ["neg", "pos"], 4),
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
    assert there == READ.keys() | REFUSED.keys()


@pytest.mark.parametrize("name", READ)
def test_an_export_is_read_as_it_is_meant(exports, name):
    table = quiet_read(exports / name)
    items, annotators, classes, n = READ[name]
    assert (table.items.tolist(), table.annotators.tolist(), table.classes.tolist()) == (items, annotators, classes)
    assert len(table) == table.source.used == n
    assert table.source.rows == n + table.source.unused.total()


@pytest.mark.parametrize("name", REFUSED)
def test_an_export_that_is_not_read_gets_one_sentence(exports, name):
    with pytest.raises(DissensusError, match=REFUSED[name]) as error:
        quiet_read(exports / name)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("name", "options", "classes", "n"), OPTIONS)
def test_options_read_the_rest(exports, name, options, classes, n):
    table = quiet_read(exports / name, **options)
    assert table.classes.tolist() == classes
    assert n is None or len(table) == n


def test_texts_and_the_other_questions_are_kept_and_counted(exports):
    source = quiet_read(exports / "label_studio/export.json").source
    assert source.texts[3] == {"text": "Ann works at IBM", "item": "x1"}
    assert source.unused == {
        "spans 'ner' (read by label='ner')": 4,
        "ratings 'stars' (read by label='stars')": 4,
        "predictions by models": 1,
    }  # fmt: skip
    assert io.read_frame(exports / "lewidi/2025_binary.json").to_pydict() == {
        "item": ["3001"], "post": ["It rains again."], "reply": ["Lovely weather for a picnic."],
    }  # fmt: skip
    unused = quiet_read(exports / "argilla/flat.json").source.unused
    assert (unused["answers discarded"], unused["answers not finished"], unused["suggestions by models"]) == (5, 5, 3)
