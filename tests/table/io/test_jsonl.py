import pytest

from dissensus.table import exceptions as errors
from dissensus.table import io
from facts import raises

ROW = b'{"item": 1, "annotator": "a", "label": true}\n'


@pytest.fixture
def read(tmp_path):
    def read_bytes(content, name="table.jsonl", **options):
        path = tmp_path / name
        path.write_bytes(content)
        return io.read(path, **options)

    return read_bytes


def test_types_are_kept_and_dates_stay_text(read):
    table = read(ROW + b'{"label": false, "annotator": "2020-01-01", "item": 20, "other": {"a": [1]}}\n')
    assert table.items.tolist() == [1, 20]
    assert table.annotators.tolist() == ["2020-01-01", "a"]
    assert table.classes.tolist() == [False, True]


def test_blank_lines_a_byte_order_mark_and_a_last_line_without_end_are_fine(read):
    assert len(read(b"\xef\xbb\xbf" + ROW + b"\n  \n" + ROW.strip())) == 2
    assert len(read(b"\xef\xbb\xbf[" + ROW.strip() + b"]")) == 1


def test_a_field_that_a_record_lacks_is_missing_there(read):
    with raises(errors.MissingLabels, column="label", n_bad=1, n_rows=2, row=1, value=None):
        read(ROW + b'{"item": 1, "annotator": "a"}\n')
    assert len(read(ROW + b'{"item": 1, "annotator": "a"}\n', abstain=[None])) == 1


def test_a_column_may_first_appear_after_the_first_record(read):
    rows = b'{"item": 1, "annotator": 1}\n{"item": 1, "annotator": 1, "label": 2}\n'
    assert read(rows, abstain=None).classes.tolist() == [2]
    with raises(
        errors.RoleColumnMissing,
        role="label",
        columns=(),
        columns_of_roles={"item": "'item'", "annotator": "'annotator'"},
    ):
        read(b'{"item": 1, "annotator": 1}\n')


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (ROW + b'{"item": 2,\n', (errors.InvalidJson, {"line": 2})),
        (b"[\n" + ROW + b",\n{oops}]", (errors.InvalidJson, {"line": 4})),
        (ROW + b"3\n", (errors.NotARecord, {"value": "3"})),
        (b"[1, 2]", (errors.NotARecord, {"value": "1"})),
        (b"[" * 100_000, (errors.InvalidJson, {"line": 1, "reason": "nested too deeply"})),
        (ROW + b'{"item": "\xe9"}\n', (errors.NotUtf8, {"position": " (byte 0xe9)"})),
        (b"\n", (errors.EmptyFile, {"needs": "at least one record"})),
    ],
)
def test_what_is_no_json_says_where(read, content, message):
    with raises(message[0], **message[1]):
        read(content)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            ROW + ROW.replace(b"1", b'"1"'),
            (errors.MixedTypes, {"column": "item", "example_by_type": {"int": (0, "1"), "str": (1, "1")}}),
        ),
        (ROW.replace(b'"a"', b'"\\ud800"'), (errors.UnstorableName, {"column": "annotator"})),
        (ROW.replace(b"1", b"1" * 30), (errors.UnstorableName, {"column": "item"})),
        (
            ROW.replace(b"1", b"NaN"),
            (errors.MissingNames, {"column": "item", "n_bad": 1, "n_rows": 1, "row": 0, "value": None}),
        ),
        (ROW.replace(b"1", b'{"a": 1}'), (errors.UnsupportedType, {"column": "item", "type": "struct<a: int64>"})),
    ],
)
def test_what_is_no_name_says_file_and_column(read, content, message):
    with raises(message[0], **message[1]):
        read(content)


def test_a_line_of_100_megabytes_is_read(read):
    assert len(read(ROW + ROW.replace(b"}", b', "text": "' + b"y" * 100_000_000 + b'"}'))) == 2


def test_json_has_no_nan(tmp_path):
    path = tmp_path / "table.jsonl"
    io.write_frame({"item": ["é", "b"], "p": [0.1, float("nan")]}, path)
    assert path.read_text() == '{"item": "é", "p": 0.1}\n{"item": "b", "p": null}\n'
