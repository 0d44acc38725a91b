import pytest

from dissensus.exceptions import DataError, MissingColumn, UnreadableFile
from dissensus.table import io

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
    with pytest.raises(
        DataError, match=r"table\.jsonl: column 'label': 1 of 2 rows are blank or missing; first at row 1"
    ):
        read(ROW + b'{"item": 1, "annotator": "a"}\n')
    assert len(read(ROW + b'{"item": 1, "annotator": "a"}\n', abstain=[None])) == 1


def test_a_column_may_first_appear_after_the_first_record(read):
    rows = b'{"item": 1, "annotator": 1}\n{"item": 1, "annotator": 1, "label": 2}\n'
    assert read(rows, abstain=None).classes.tolist() == [2]
    with pytest.raises(MissingColumn, match="no column 'label'"):
        read(b'{"item": 1, "annotator": 1}\n')


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (ROW + b'{"item": 2,\n', r"line 2 is not JSON \(Expecting property name .*, column \d+\); mend that line"),
        (b"[\n" + ROW + b",\n{oops}]", r"line 4 is not JSON"),
        (ROW + b"3\n", r"line 2 holds '3'; expected an object"),
        (b"[1, 2]", r"record 0 \(from 0\) holds '1'; expected an object"),
        (b"[" * 100_000, "line 1 is nested too deeply"),
        (ROW + b'{"item": "\xe9"}\n', r"not UTF-8 text \(byte 0xe9\)"),
        (b"\n", "is empty"),
    ],
)
def test_what_is_no_json_says_where(read, content, message):
    with pytest.raises(UnreadableFile, match=rf"table\.jsonl:? .*{message}"):
        read(content)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            ROW + ROW.replace(b"1", b'"1"'),
            r"column 'item' mixes kinds of values \(int at row 0: '1'; str at row 1: '1'\)",
        ),
        (ROW.replace(b'"a"', b'"\\ud800"'), "cannot be stored"),
        (ROW.replace(b"1", b"1" * 30), "cannot be stored"),
        (ROW.replace(b"1", b"NaN"), "column 'item': 1 of 1 rows are blank or missing"),
        (ROW.replace(b"1", b'{"a": 1}'), "holds values of type struct"),
    ],
)
def test_what_is_no_name_says_file_and_column(read, content, message):
    with pytest.raises(DataError, match=rf"table\.jsonl: .*{message}"):
        read(content)


def test_a_line_of_100_megabytes_is_read(read):
    assert len(read(ROW + ROW.replace(b"}", b', "text": "' + b"y" * 100_000_000 + b'"}'))) == 2


def test_json_has_no_nan(tmp_path):
    path = tmp_path / "table.jsonl"
    io.write_frame({"item": ["é", "b"], "p": [0.1, float("nan")]}, path)
    assert path.read_text() == '{"item": "é", "p": 0.1}\n{"item": "b", "p": null}\n'
