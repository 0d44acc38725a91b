import pyarrow as pa
import pytest

from dissensus.table import exceptions as errors
from dissensus.table import io
from facts import raises

HEADER = b"item,annotator,label\n"


@pytest.fixture
def read(tmp_path):
    def read_bytes(content, name="table.csv", **options):
        path = tmp_path / name
        path.write_bytes(content)
        return io.read(path, **options)

    return read_bytes


def names(table):
    return table.items.tolist(), table.annotators.tolist(), table.classes.tolist()


def test_everything_is_text_and_nothing_but_an_empty_field_is_missing(read):
    table = read(HEADER + b"007,1e3,NA\n7,True,None\n07,null,NaN\n8,2020-01-01,nan\n9,x,#N/A\n10,-inf,N/A\n")
    assert names(table)[0] == ["007", "07", "10", "7", "8", "9"]
    assert names(table)[1] == ["-inf", "1e3", "2020-01-01", "True", "null", "x"]
    assert names(table)[2] == ["#N/A", "N/A", "NA", "NaN", "None", "nan"]


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbf" + HEADER + b"1,a,x\n2,b,y\n",
        (HEADER + b"1,a,x\n2,b,y\n").replace(b"\n", b"\r\n"),
        b"\n\n" + HEADER + b"1,a,x\n\n2,b,y",
        HEADER.replace(b",", b";") + b"1;a;x\n2;b;y\n",
        HEADER.replace(b",", b"\t") + b"1\ta\tx\n2\tb\ty\n",
        b'"item","annotator","label"\n"1","a","x"\n"2",b,y\n',
        "item,annotator,label\n1,a,x\n2,b,y\n".encode("utf-16"),
        "\ufeffitem,annotator,label\r\n1,a,x\r\n2,b,y\r\n".encode("utf-16-be"),
        b'text,item,"a\nnote",annotator,label\n"a, b\n",1,,a,x\nc,2,,b,y\n',
    ],
    ids=[
        "byte order mark",
        "CRLF",
        "blank lines",
        "semicolons",
        "tabs",
        "quotes",
        "UTF-16",
        "UTF-16, big end first",
        "line break in the header",
    ],
)
def test_the_usual_dialects_are_the_same_table(read, content):
    assert names(read(content)) == (["1", "2"], ["a", "b"], ["x", "y"])


def test_quoted_cells_may_hold_anything(read):
    table = read(HEADER + b'"a,b","say ""x""","two\nlines"\n')
    assert names(table) == (["a,b"], ['say "x"'], ["two\nlines"])


def test_line_breaks_in_cells_do_not_cut_a_long_file(read):  # which is read in blocks of 4 MB
    table = read(b"item,annotator,label,text\n" + (b'1,a,x,"' + b"\n" * 1000 + b'"\n') * 9000)
    assert len(table) == 9000


def test_tsv_has_tabs_whatever_the_header_looks_like(read):
    table = read(b"item,a,b\tannotator\tlabel\n1\ta,b\tx\n", "table.tsv", item="item,a,b")
    assert names(table) == (["1"], ["a,b"], ["x"])


def test_only_the_columns_needed_have_to_be_utf8(read):
    assert len(read(b"item,annotator,label,text\n1,a,x,caf\xe9\n")) == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            HEADER + b"1,a,x\n2,b,\xe9\n",
            (errors.NotUtf8, {"position": " in row 3 (the header is row 1)"}),
        ),
        ("item,annotator,label\n1,a,x\n".encode("utf-16")[:-1], (errors.DamagedFile, {})),
        (b"item,annotator,\xe9\n1,a,x\n", (errors.NotUtf8, {"position": " (byte 0xe9)"})),
        (
            HEADER + b"1,a,x\n2,b\n",
            (
                errors.WrongNumberOfFields,
                {
                    "location": "row 3 (the header is row 1)",
                    "n": 2,
                    "n_first": 3,
                    "delimiter": ",",
                    "open_quote": False,
                },
            ),
        ),
        (
            HEADER + b"1,a,x\n" * 5000 + b"2,b,x,y\n",
            (
                errors.WrongNumberOfFields,
                {
                    "location": "row 5,002 (the header is row 1)",
                    "n": 4,
                    "n_first": 3,
                    "delimiter": ",",
                    "open_quote": False,
                },
            ),
        ),
        (
            HEADER + b'1,"a,x\n2,b,y\n3,c,z\n',
            (
                errors.WrongNumberOfFields,
                {"location": "row 2 (the header is row 1)", "n": 2, "n_first": 3, "delimiter": ",", "open_quote": True},
            ),
        ),
        (HEADER + b'1,a,"x\n2,b,y\n3,c,z\n', (errors.UnclosedQuote, {"line": 2})),
        (b'item,annotator,label,why\n1,a,x,"\n2,b,y,\n3,c,z,\n', (errors.UnclosedQuote, {"line": 2})),
        (b'item,annotator,label,why\n1,a,x,"\n2,b,y,"so"\n3,c,z,\n', (errors.UnclosedQuote, {"line": 2})),
        (b'item,annotator,label,why\n1,a,x,5" pipe\n2,b,y,"\n3,c,z,\n', (errors.UnclosedQuote, {"line": 3})),
        (b"", (errors.EmptyFile, {"needs": "a header and rows"})),
        (b"\n \n", (errors.EmptyFile, {"needs": "a header and rows"})),
        (HEADER.strip(), (errors.EmptyFile, {"needs": "at least one row"})),
        (b"x" * 200_000, (errors.NotAHeader, {})),
    ],
)
def test_what_cannot_be_read_says_where_and_what_to_do(read, content, message):
    with raises(message[0], **message[1]):
        read(content)


def test_a_line_break_in_the_last_cell_is_no_open_quote(read):
    assert names(read(HEADER + b'1,a,x\n2,b,"y\n"\n\n'))[2] == ["x", "y\n"]


@pytest.mark.parametrize("why", [b'5" pipe', b'"so" said', b'"two\nlines"', b'"say ""x"""', b'""', b"don't"])
def test_other_quotes_in_a_column_that_is_not_read_lose_no_row(read, why):
    table = read(b"item,annotator,label,why\n1,a,x," + why + b"\n2,b,y," + why + b"\n3,c,z,\n")
    assert names(table)[0] == ["1", "2", "3"]


def test_two_columns_of_one_name_are_an_error_where_they_are_needed(read):
    with raises(errors.DuplicateName, n=2, name="label"):
        read(b"item,annotator,label,label\n1,a,x,y\n")
    assert len(read(b"item,annotator,label,,\n1,a,x,,\n")) == 1


def test_a_weight_that_is_no_number_says_where(read):
    with raises(errors.InvalidCell, column="weight", row=1, value="much"):
        read(b"item,annotator,label,weight\n1,a,x,1\n2,b,y,much\n")


def test_a_line_of_100_megabytes_is_read(read):
    long = b"y" * 100_000_000
    table = read(b"item,annotator,label,text\n1,a,x,\n2,b,z," + long + b"\n3,c,z,\n")
    assert (len(table), table.n_classes) == (3, 2)
    table = read(HEADER + b"1,a,x\n2,b," + long + b"\n3,c,z\n")
    assert [len(name) for name in table.classes] == [1, 100_000_000, 1]
    with raises(errors.NotAHeader, reason="field larger than field limit (131072)"):
        read(long)


def test_text_is_quoted_only_where_needed_and_floats_are_written_in_full(tmp_path):
    path = tmp_path / "table.csv"
    io.write_frame({"item": ["a b", " c"], "p": [0.1, 1e-300], "n": [1, 2], "yes": [True, False]}, path)
    assert path.read_text() == "item,p,n,yes\na b,0.1,1,true\n c,1e-300,2,false\n"
    io.write_frame(pa.table({'a,"b"': ["x", None, 'y"\r'], "\r": [1, 2, 3]}), path)
    assert path.read_bytes() == b'"a,""b""","\r"\n"x",1\n,2\n"y""\r",3\n'
