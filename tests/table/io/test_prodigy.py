"""The shape of the records is that of `prodigy db-out`, https://prodi.gy/docs/api-interfaces."""

import json

import pytest

from dissensus import Questions
from dissensus.table import exceptions as errors
from dissensus.table import io
from facts import raises, warns

OPTIONS = [{"id": "POS", "text": "positive"}, {"id": "NEG", "text": "negative"}]


@pytest.fixture
def read(tmp_path):
    def read_records(*records, **options):
        (tmp_path / "export.jsonl").write_text("\n".join(map(json.dumps, records)))
        return io.read(tmp_path / "export.jsonl", **options)

    return read_records


def record(item, who, answer="accept", **more):
    names = {} if who is None else {"_annotator_id": f"set-{who}", "_session_id": f"set-{who}"}
    return {"text": "…", "_input_hash": item, "_task_hash": -item, "answer": answer, "_timestamp": 1, **names, **more}


def choice(item, who, *accepted, answer="accept"):
    return record(item, who, answer, options=OPTIONS, accept=list(accepted), _view_id="choice")


def test_accepted_options_are_the_labels_and_ignored_tasks_abstain(read):
    records = choice(5, "ann", "POS"), choice(5, "bob", "POS", "NEG"), choice(-6, "ann", answer="ignore")
    with warns(errors.RowsExcluded, unused={"tasks ignored": 1}):
        assert read(*records).classes.tolist() == ["NEG|POS", "POS"]
    with warns(errors.RowsExcluded, unused={"tasks ignored": 1}):
        table = read(*records, ticks="votes")
    assert table.items.tolist() == [-6, 5]
    assert table.annotators.tolist() == ["set-ann", "set-bob"]
    assert table.classes.tolist() == ["NEG", "POS"]
    assert table.votes().tolist() == [[0, 0], [1, 2]]


def test_choices_that_were_rejected_or_empty_are_left_out_with_a_count(read):
    with warns(errors.RowsExcluded, unused={"choice tasks rejected": 1, "answers without a choice": 1}):
        table = read(choice(1, "a", "POS"), choice(2, "a", "POS", answer="reject"), choice(3, "a"))
    assert len(table) == 1
    assert table.n_items == 3


def test_binary_tasks_are_accepted_or_rejected(read):
    ignored = record(2, "b", "ignore", label="SPAM")
    with warns(errors.RowsExcluded, unused={"tasks ignored": 1}):
        table = read(record(1, "a", label="SPAM"), record(1, "b", "reject", label="SPAM"), ignored)
    assert table.classes.tolist() == ["accept", "reject"]
    assert table.votes().tolist() == [[1, 1], [0, 0]]


def test_every_label_of_binary_tasks_is_a_question_about_the_same_items(read):
    tables = read(record(1, "a", label="SPAM"), record(1, "a", "reject", label="RUDE"), record(2, "a", label="RUDE"))
    assert isinstance(tables, Questions)
    assert list(tables) == ["RUDE", "SPAM"]
    assert tables["SPAM"].items.tolist() == [1, 2]
    assert tables["RUDE"].votes().tolist() == [[0, 1], [1, 0]]


def test_tasks_without_a_label_are_binary_too(read):
    assert read(record(1, "a"), record(2, "a", "reject")).classes.tolist() == ["accept", "reject"]


def test_unnamed_sessions_warn_that_one_person_may_count_twice(read):
    sessions = [{"_annotator_id": f"2024-02-0{day}_10-17-19"} for day in (5, 6)]
    with warns(errors.UnnamedSessions, n=2, n_annotators=2):
        read(*(record(1, None, _session_id=None, **session) for session in sessions))


def test_older_exports_have_a_session_only_and_fields_may_be_named(read):
    assert read(record(1, None, _session_id="set-eve")).annotators.tolist() == ["set-eve"]
    table = read(record(1, None, doc="d1", by="eve"), item="doc", annotator="by")
    assert (table.items.tolist(), table.annotators.tolist()) == (["d1"], ["eve"])


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (record(1, None), (errors.MissingField, {"names": ("_annotator_id", "_session_id"), "role": "annotator"})),
        (
            record(1, "a", "maybe"),
            (
                errors.UnexpectedValue,
                {"field": "answer", "value": "maybe", "expected": "'accept', 'reject' or 'ignore'"},
            ),
        ),
        (
            record(1, "a", spans=[{"start": 0, "end": "x", "label": "ORG"}]),
            (errors.UnexpectedValue, {"field": "span", "value": {"start": 0, "end": "x", "label": "ORG"}}),
        ),
        (record(1, "a", "ignore"), (errors.NoUsableRows, {"unit": "answer"})),
    ],
)
def test_what_cannot_be_read_says_which_record(read, bad, message):
    with raises(message[0], **message[1]):
        read(bad)
