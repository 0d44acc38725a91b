"""Tables as people have them: each is read, with an account of how, or refused in one sentence that says what to do."""

import bz2
import gzip
import io as bytes_io
import json
import lzma
import sys
import warnings
import zipfile
from contextlib import suppress

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from dissensus import Annotations, Questions
from dissensus.cli.face import COMMAND_LINE
from dissensus.exceptions import BadParameter, DissensusError
from dissensus.table import exceptions as errors
from dissensus.table import io, notes
from dissensus.table.io import files
from facts import raises, warns

LONG = b"item,annotator,label\na,x,yes\na,y,no\nb,x,no\nb,y,no\n"
WIDE = b"id,text,ann,bob,cat\n1,first one,yes,no,yes\n2,second one,no,,no\n3,third one,no,no,maybe\n"


@pytest.fixture
def read(tmp_path):
    def read_bytes(content, name="table.csv", **options):
        (tmp_path / name).write_bytes(content)
        return io.read(tmp_path / name, **options)

    return read_bytes


def rows_of(table):
    return sorted(zip(*(column.to_pylist() for column in table.to_arrow().columns), strict=True))


PLAIN = [("a", "x", "yes"), ("a", "y", "no"), ("b", "x", "no"), ("b", "y", "no")]


# Packed, recoded, piped, in a folder --------------------------------------------------------------------------------


def zipped(content, *names, method=zipfile.ZIP_DEFLATED):
    file = bytes_io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name in names:
            archive.writestr(name, content)
    return file.getvalue()


PACKED = {
    "table.csv.gz": gzip.compress(LONG),
    "table.csv.bz2": bz2.compress(LONG),
    "table.csv.xz": lzma.compress(LONG),
    "table.csv.zst": pa.compress(LONG, "zstd", asbytes=True),
    "table.csv.zip": zipped(LONG, "table.csv", "__MACOSX/table.csv", ".hidden"),
    "table.zip": zipped(LONG, "inside.csv", method=zipfile.ZIP_LZMA),
    "utf16.csv": LONG.decode().encode("utf-16"),
    "utf16.csv.gz": gzip.compress(LONG.decode().encode("utf-16")),
    "mark.csv": b"\xef\xbb\xbf" + LONG,
    "no-suffix": LONG,
}


@pytest.mark.parametrize("name", PACKED)
def test_packed_and_recoded_files_are_the_same_table(read, name):
    assert rows_of(read(PACKED[name], name)) == PLAIN


def test_standard_input_is_a_file(monkeypatch):
    monkeypatch.setattr(sys, "stdin", bytes_io.TextIOWrapper(bytes_io.BytesIO(LONG)))
    assert rows_of(io.read("-")) == PLAIN
    monkeypatch.setattr(sys, "stdin", bytes_io.TextIOWrapper(bytes_io.BytesIO(b"")))
    with raises(errors.EmptyFile, location="standard input", needs="a header and rows"):
        io.read("-")


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl"])
def test_a_folder_of_files_with_the_same_columns_is_one_table(tmp_path, suffix):
    for number, part in enumerate((PLAIN[:1], PLAIN[1:])):
        columns = zip(*part, strict=True)
        io.write_frame(dict(zip(("item", "annotator", "label"), columns, strict=True)), tmp_path / f"{number}.{suffix}")
    (tmp_path / "README.md").write_text("not this")
    (tmp_path / "_SUCCESS").write_text("nor this")
    table = io.read(tmp_path)
    assert rows_of(table) == PLAIN
    assert table.import_report.notes == [notes.FilesReadAsOne(n=2, n_others=1)]
    io.write_frame({"item": ["a"], "label": ["yes"]}, tmp_path / f"gold.{suffix}")
    with raises(errors.DifferentColumns, columns=("item", "annotator", "label"), other_columns=("item", "label")):
        io.read(tmp_path)


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        (zipped(LONG, "a.csv", "b.csv"), "t.zip", (errors.ZipOfSeveralFiles, {"names": ("a.csv", "b.csv")})),
        (zipped(LONG, "a.csv")[:60], "t.zip", (errors.DamagedFile, {"reason": "File is not a zip file"})),
        (lzma.compress(LONG)[:40], "t.csv.xz", (errors.DamagedFile, {})),
        (bz2.compress(LONG)[:40], "t.csv.bz2", (errors.DamagedFile, {})),
        (b"\x00\x01", "t.xlsx", (errors.DamagedFile, {})),
        (
            b'{"item": 1, "annotator": 1, "label": 1' + b"0" * 5000 + b"}\n",
            "t.jsonl",
            (errors.InvalidJson, {"line": 1, "reason": "a number is too long: Exceeds the limit (4300 digits)"}),
        ),
        (b'{"item": 1, "annotator": 1, "label": 1}\n[]\n', "t.jsonl", (errors.NotARecord, {"value": "[]"})),
        (
            b'{"item": 1,\n "annotator": 1,\n}',
            "t.json",
            (errors.InvalidJson, {"line": 3, "reason": "Expecting property name enclosed in double quotes, column 1"}),
        ),
        (
            b'{"item": 1, "annotator": 1, "\\ud800": 1, "labels": 2}',
            "t.json",
            (errors.UnusableColumnName, {"name": "\ud800"}),
        ),
        (b'{"a": {"x": 1}}', "t.json", (errors.JsonWithoutAnnotations, {})),
    ],
    ids=lambda value: value if isinstance(value, str) and value.startswith("t.") else "",
)
def test_what_cannot_be_unpacked_or_parsed_is_one_sentence(read, content, name, message):
    with raises(message[0], **message[1]):
        read(content, name)


@pytest.mark.parametrize("name", [name for name in PACKED if name.endswith((".gz", ".bz2", ".xz", ".zst", ".zip"))])
def test_a_few_bytes_do_not_fill_the_memory(read, name, monkeypatch):
    monkeypatch.setattr(files, "MIN_UNPACKED_LIMIT", 2**16)
    bomb = LONG + b"a,x,y\n" * 10**5
    pack = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zip": lambda b: zipped(b, "t.csv")}
    content = pack.get(name.rpartition(".")[2], lambda b: pa.compress(b, "zstd", asbytes=True))(bomb)
    with raises(errors.UnpacksTooLarge, ratio=100):
        read(content, name)


@pytest.mark.parametrize("suffix", ["xlsx", "ods"])
def test_the_first_sheet_of_a_spreadsheet_is_a_table(tmp_path, suffix):
    pytest.importorskip("python_calamine", reason="the extra 'excel' is not installed")
    path = tmp_path / f"table.{suffix}"
    path.write_bytes(
        spreadsheet(suffix, [["item", "annotator", "label"], [7, "x", "yes"], [8, "x", 1.5], [8, "y", ""]])
    )
    table = io.read(path, abstain=None)
    assert rows_of(table) == [("7", "x", "yes"), ("8", "x", "1.5")]
    assert table.import_report.notes == [notes.OtherSheetsIgnored(sheet="s", other_sheets="'other'")]
    with raises(errors.MissingLabels, column="label", n_bad=1, n_rows=3, row=2, value=None):
        io.read(path)


OASIS = "urn:oasis:names:tc:opendocument:xmlns:"
XMLNS = " ".join(f'xmlns:{name}="{OASIS}{name}:1.0"' for name in ("office", "table", "text"))
FORMATS_OF = "http://schemas.openxmlformats.org/"
MAIN, OF = f"{FORMATS_OF}spreadsheetml/2006/main", f"{FORMATS_OF}officeDocument/2006/relationships"


def spreadsheet(suffix, rows):
    """The smallest workbook that readers accept."""
    if suffix == "ods":
        cells = "".join("<table:table-row>" + "".join(map(ods_cell, row)) + "</table:table-row>" for row in rows)
        sheets = f'<table:table table:name="s">{cells}</table:table><table:table table:name="other"/>'
        content = f"<office:spreadsheet>{sheets}</office:spreadsheet>"
        return zip_of(
            {
                "mimetype": "application/vnd.oasis.opendocument.spreadsheet",
                "META-INF/manifest.xml": f'<manifest:manifest xmlns:manifest="{OASIS}manifest:1.0"/>',
                "content.xml": f"<office:document-content {XMLNS}><office:body>{content}</office:body>"
                "</office:document-content>",
            }
        )
    relation = f'<Relationships xmlns="{FORMATS_OF}package/2006/relationships"><Relationship Id="r1" Type="{OF}/'
    cells = "".join(
        f'<row r="{r}">' + "".join(xlsx_cell(f"{'ABC'[c]}{r}", value) for c, value in enumerate(row)) + "</row>"
        for r, row in enumerate(rows, 1)
    )
    sheets = '<sheets><sheet name="s" sheetId="1" r:id="r1"/><sheet name="other" sheetId="2" r:id="r1"/></sheets>'
    return zip_of(
        {
            "[Content_Types].xml": f'<Types xmlns="{FORMATS_OF}package/2006/content-types"/>',
            "_rels/.rels": f'{relation}officeDocument" Target="xl/workbook.xml"/></Relationships>',
            "xl/workbook.xml": f'<workbook xmlns="{MAIN}" xmlns:r="{OF}">{sheets}</workbook>',
            "xl/_rels/workbook.xml.rels": f'{relation}worksheet" Target="worksheets/sheet1.xml"/></Relationships>',
            "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{MAIN}"><sheetData>{cells}</sheetData></worksheet>',
        }
    )


def zip_of(files):
    file = bytes_io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return file.getvalue()


def xlsx_cell(at, value):
    if isinstance(value, str):
        return f'<c r="{at}" t="inlineStr"><is><t>{value}</t></is></c>' if value else ""
    return f'<c r="{at}"><v>{value}</v></c>'


def ods_cell(value):
    kind = 'office:value-type="string"' if value else ""
    if not isinstance(value, str):
        kind = f'office:value-type="float" office:value="{value}"'
    return f"<table:table-cell {kind}><text:p>{value}</text:p></table:table-cell>"


# Which column is which ----------------------------------------------------------------------------------------------


def test_a_wide_table_is_recognised_and_said(read):
    table = read(WIDE)
    assert len(table) == 8
    assert table.items.tolist() == ["1", "2", "3"]
    assert table.annotators.tolist() == ["ann", "bob", "cat"]
    assert ("2", "bob") not in {row[:2] for row in rows_of(table)}
    assert str(table.import_report).splitlines() == [
        "Read as wide csv: item 'id', annotator the columns 'ann', 'bob', 'cat', label their cells, not read 'text'; "
        "8 of 9 cells used. Change: item=, annotator=, label=.",
        "Not used: 1 empty cell.",
    ]
    assert rows_of(read(WIDE, wide=True)) == rows_of(table)
    assert rows_of(read(WIDE, wide=True, item="text", annotator="ann,bob"))[0] == ("first one", "ann", "yes")
    with raises(
        errors.AnnotatorColumnMissing,
        role="annotator",
        columns=("id", "text", "ann", "bob", "cat"),
    ):
        read(WIDE, wide=False)
    with raises(errors.NoWideColumns, columns=("id", "ann")):
        read(b"id,ann\n1,yes\n2,no\n", wide=True)


def test_vote_counts_are_told_from_a_table_whose_annotators_are_called_otherwise(read):
    with raises(
        errors.RoleColumnMissing,
        role="annotator",
        columns=("item", "label", "Count"),
        counts="Count",
    ):
        read(b"item,label,Count\na,x,3\na,y,1\n")


def test_a_wide_table_with_known_labels_and_without_item_names(read):
    table = read(b"ann,bob,gold\n1,2,1\n2,2,2\n1,1,\n")
    assert table.items.tolist() == [0, 1, 2]
    assert table.import_report.columns["item"] == "its number (from 0)"
    assert table.gold_codes(*table.import_report.gold).tolist() == [0, 1, -1]
    with raises(errors.AmbiguousWideTable, columns=("label", "ann", "bob"), label="label"):
        read(b"id,label,ann,bob\n1,yes,yes,no\n2,no,no,no\n3,no,no,no\n")


def test_frames_may_be_wide(read):
    frame = pd.DataFrame({"id": ["p", "q", "r"], "ann": [1, 2, 1], "bob": [1.0, np.nan, 2.0]})
    assert rows_of(io.read(frame)) == [
        ("p", "ann", 1),
        ("p", "bob", 1),
        ("q", "ann", 2),
        ("r", "ann", 1),
        ("r", "bob", 2),
    ]


@pytest.mark.parametrize("header", ["doc_id,user,verdict", "prompt,model,score", "sample_id,grader_id,category"])
def test_other_names_are_taken_where_the_content_agrees(read, header):
    table = read(header.encode() + b"\n" + LONG.split(b"\n", 1)[1])
    assert rows_of(table) == PLAIN
    assert table.import_report.columns["label"] == f"'{header.split(',')[2]}' (guessed by name and content)"


def test_a_label_is_found_by_content_where_one_column_can_be_it(read):
    content = b"item,annotator,text,when,tone\na,x,hi,1,yes\na,y,hi,2,no\nb,x,ho,3,no\nb,y,ho,4,no\n"
    table = read(content)
    assert rows_of(table) == PLAIN
    assert table.import_report.columns["label"] == "'tone' (guessed by content)"
    two = content.replace(b"tone", b"tone,mood").replace(b"yes", b"yes,sad").replace(b",no", b",no,gay")
    with raises(
        errors.RoleColumnMissing,
        role="label",
        columns=("text", "when", "tone", "mood"),
        columns_of_roles={"item": "'item'", "annotator": "'annotator'"},
        candidates=("tone", "mood"),
    ):
        read(two)


def test_a_column_of_row_numbers_is_not_taken_for_the_items(read):
    lines = [f"{n},text {n // 3},w{n % 3},{'yes' if n % 2 else 'no'}" for n in range(12)]
    content = "\n".join(["id,text,worker,label", *lines]).encode()
    with raises(errors.ItemColumnNeverRepeats, item="id", other_column="text"):
        read(content)
    assert read(content, item="text").n_items == 4
    assert read(content, item="id").n_items == 12


def test_two_columns_may_name_the_item_together(read):
    content = b"doc,turn,annotator,label\nd,1,x,yes\nd,2,x,no\ne,1,x,no\n"
    for named in ("doc,turn", ["doc", "turn"]):
        table = read(content, item=named)
        assert table.items.tolist() == ["d/1", "d/2", "e/1"]
    assert table.import_report.columns["item"] == "'doc' with 'turn'"
    with raises(errors.AmbiguousJoinedNames, columns=("doc", "turn"), role="item"):
        read(b"doc,turn,annotator,label\na/b,c,x,yes\na,b/c,x,no\n", item="doc,turn")
    with raises(errors.UnknownColumn, name="page", role="item", columns=("doc", "turn", "annotator", "label")):
        read(content, item="doc,page")


def test_known_labels_in_a_column_of_the_table_are_kept_beside_it(read):
    table = read(b"item,annotator,label,truth\na,x,yes,no\na,y,no,no\nb,x,no,\n")
    assert table.gold_codes(*table.import_report.gold).tolist() == [0, -1]
    assert table.import_report.columns["gold"] == "'truth'"
    table = read(b"item,annotator,label,truth\na,x,yes,no\na,y,no,yes\n")
    assert (table.import_report.gold, table.import_report.notes) == (
        None, [notes.GoldColumnIgnored(column="truth", reason="its values differ within items")],
    )  # fmt: skip


def test_a_guess_that_would_waste_rows_asks(read):
    content = b"item,annotator,tone\na,x,yes\na,y,no\nb,x,no\nb,y,\n"
    with raises(errors.MissingLabels, column="label", n_bad=1, n_rows=4, row=3, value=None):
        read(content)
    assert read(content, abstain=None).import_report.columns["label"] == "'tone' (guessed by content)"
    several = b"item,annotator,label,gold,question\na,x,yes,no,q\na,y,no,no,r\nb,x,no,,q\n"
    assert read(several)["q"].import_report.notes == [
        notes.GoldColumnIgnored(column="gold", reason="there are several questions")
    ]


def test_a_column_of_texts_called_question_is_no_question(read):
    table = read(b"question,item,annotator,label\nhi?,1,x,a\nhi?,1,y,b\nho?,2,x,a\nha?,3,x,a\n")
    assert isinstance(table, Annotations)
    assert table.import_report.columns["text"] == "'question'"
    with raises(errors.ColumnNotQuestions, column="'question'", n_questions=3, n_rows=3, one_per_item=True):
        read(b"question,item,annotator,label\nhi?,1,x,a\nho?,2,x,a\nha?,3,x,a\n", question="question")


# Labels -------------------------------------------------------------------------------------------------------------

SPELLED = b"item,annotator,label\na,x, Yes\na,y,yes\nb,x,YES\nb,y,no\nc,x,yes\nc,y,can't say\n"


def test_spellings_are_merged_and_labels_renamed_on_request(read):
    assert read(SPELLED).n_classes == 5
    table = read(SPELLED, normalize=True, map={"can't say": None}, abstain=None)
    assert table.classes.tolist() == ["no", "yes"]
    assert table.import_report.unused_counts == {"rows without an answer": 1}
    assert table.import_report.to_dict()["not_used"] == {"rows without an answer (abstain=)": 1}
    assert table.import_report.to_dict(COMMAND_LINE)["not_used"] == {"rows without an answer (--abstain)": 1}
    assert table.import_report.notes == [notes.LabelsRewritten(n=3)]
    table = read(SPELLED, map={"yes": "1", "no": "0", "never": "0"})
    assert table.classes.tolist() == [" Yes", "0", "1", "YES", "can't say"]
    assert notes.UnknownMapKeys(labels=["never"]) in table.import_report.notes
    integers = pa.table({"item": [1, 2], "annotator": [1, 1], "label": [1, 2]})
    assert io.read(integers, map={1: 5}).classes.tolist() == [2, 5]


@pytest.mark.parametrize("nothing", [None, "", " ", float("nan"), ["", "can't say"]])
def test_an_empty_label_is_no_answer_by_any_name(read, nothing):
    content = LONG + b'c,x,\nc,y,""\n'
    assert rows_of(read(content, abstain=nothing)) == PLAIN
    records = [{"item": i, "annotator": a, "label": v} for i, a, v in [*PLAIN, ("c", "x", None), ("c", "y", " ")]]
    table = read("\n".join(map(json.dumps, records)).encode(), "table.jsonl", abstain=nothing)
    assert rows_of(table) == PLAIN
    assert (table.import_report.n_rows, table.import_report.n_used, table.n_items) == (6, 4, 3)


def test_lists_of_labels_are_taken_apart_only_on_request(read):
    lines = [("a", "x", ["p", "q"]), ("a", "y", ["p"]), ("b", "x", []), ("b", "y", ["q"])]
    content = "\n".join(json.dumps({"item": i, "annotator": a, "labels": v}) for i, a, v in lines).encode()
    sets = read(content, "t.jsonl")
    assert rows_of(sets) == [("a", "x", "p|q"), ("a", "y", "p"), ("b", "x", "∅"), ("b", "y", "q")]
    assert (sets.kind, sets.import_report.n_rows) == ("sets", 4)
    assert sets.import_report.notes == [notes.AnswersReadAsSets(n_several=1, n_answers=4)]
    votes = read(content, "t.jsonl", ticks="votes")
    assert rows_of(votes) == [("a", "x", "p"), ("a", "x", "q"), ("a", "y", "p"), ("b", "y", "q")]
    assert (votes.import_report.n_rows, votes.import_report.unused_counts) == (4, {"answers without a choice": 1})
    tables = read(content, "t.jsonl", ticks="questions", label="labels")
    assert isinstance(tables, Questions)
    assert rows_of(tables["q"]) == [("a", "x", "1"), ("a", "y", "0"), ("b", "y", "1")]
    single = content.replace(b'"p", "q"', b'"p"')
    assert rows_of(read(single, "t.jsonl")) == [("a", "x", "p"), ("a", "y", "p"), ("b", "y", "q")]
    with pytest.raises(BadParameter):
        read(content, "t.jsonl", ticks="all")


def test_labels_that_do_not_look_like_classes_are_refused_early(read):
    content = "\n".join(["item,annotator,label", *(f"i{n},w{n % 9},note {n}" for n in range(60_000))]).encode()
    with raises(errors.LabelsNotClasses, column="'label'", n_classes=60000, n_rows=60000, n_items=60000):
        read(content)
    assert read(content, many_classes=True).n_classes == 60_000
    some = "\n".join(["item,annotator,label", *(f"i{n},w{n % 9},{n % 900}" for n in range(2000))]).encode()
    assert read(some).n_classes == 900


# Frames -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", [pa.string_view(), pa.large_string(), pa.dictionary(pa.int8(), pa.string()), pa.binary(), pa.null(),
             pa.struct({"a": pa.int8()}), pa.timestamp("s"), pa.decimal128(5, 2), pa.list_(pa.int8())], ids=str,
)  # fmt: skip
def test_a_frame_may_have_columns_of_any_type_beside(kind):
    beside = pa.nulls(4, pa.string() if pa.types.is_dictionary(kind) else kind).cast(kind)
    frame = pa.table({"item": [1, 1, 2, 2], "annotator": [1, 2, 1, 2], "tone": ["a", "b", "b", "b"], "other": beside})
    assert io.read(frame).import_report.columns["label"] == "'tone' (guessed by content)"


def test_the_names_of_a_matrix_that_is_a_frame_are_kept():
    frame = pd.DataFrame({"ann": [0, 1], "bob": [1, -1]}, index=["p", "q"])
    table = Annotations.from_matrix(frame)
    assert (table.items.tolist(), table.annotators.tolist(), len(table)) == (["p", "q"], ["ann", "bob"], 3)
    table = Annotations.from_matrix(frame, items=[1, 2], annotators=[3, 4])
    assert (table.items.tolist(), table.annotators.tolist()) == ([1, 2], [3, 4])
    for other in (pl.DataFrame({"ann": [0, 1], "bob": [1, 1]}), pa.table({"ann": [0, 1], "bob": [1, 1]})):
        table = Annotations.from_matrix(other)
        assert (table.items.tolist(), table.annotators.tolist()) == ([0, 1], ["ann", "bob"])
    with raises(errors.SeveralNameLevels):
        Annotations.from_matrix(pd.DataFrame([[0, 1]], columns=pd.MultiIndex.from_tuples([("a", "b"), ("a", "c")])))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([0, 1, 2], (errors.UnusableColumnName, {"name": 0})),
        (["item", "annotator", "annotator"], (errors.DuplicateName, {"n": 2, "name": "annotator"})),
        (pd.MultiIndex.from_tuples([("a", "b"), ("a", "c"), ("d", "e")]), (errors.SeveralNameLevels, {})),
    ],
)
@pytest.mark.parametrize("make", [io.read, Annotations.from_frame])
def test_frames_with_odd_column_names_are_refused_in_one_sentence(make, columns, message):
    with raises(message[0], **message[1]):
        make(pd.DataFrame([["a", "x", "y"]], columns=columns))


@pytest.mark.parametrize(
    ("keyword", "value"),
    [("item", 5), ("item", ["item", 5]), ("label", ["label"]), ("label", 3), ("weight", 2), ("format", 3), ("proba", 3),
     ("classes", 3.5), ("map", [1]), ("map", "a=b"), ("abstain", object()), ("wide", "yes"), ("ticks", "all")],
)  # fmt: skip
def test_a_keyword_of_a_wrong_type_is_a_bad_parameter(read, keyword, value):
    with pytest.raises(BadParameter) as caught:
        read(LONG, **{keyword: value})
    assert str(caught.value).startswith(f"{keyword} ")


# Nothing disappears, whatever the file ------------------------------------------------------------------------------


def mutated(rng, value):
    """A JSON value in which one part, drawn at random, is of another type."""
    other = [None, 3, -1.5, "x", "", [], [1], {}, {"a": [1]}, True][rng.integers(10)]
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = list(value)[rng.integers(len(value))]
        return value | {key: mutated(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.9:
        at = int(rng.integers(len(value)))
        return [*value[:at], mutated(rng, value[at]), *value[at + 1 :]]
    return other


RESULTS = [
    {"type": "choices", "from_name": "s", "value": {"choices": ["a"]}},
    {"type": "rating", "from_name": "r", "value": {"rating": 3}},
]
BY_PERSON = {"user_id": "u", "status": "submitted", "values": {"q": {"value": "a"}}}
RECORDS = {
    "label-studio": {
        "id": 1,
        "data": {"text": "t"},
        "predictions": [1],
        "annotations": [{"completed_by": {"id": 1, "email": "e"}, "result": RESULTS}],
    },
    "doccano": {"id": 1, "text": "t", "annotations": [{"label": "x", "user": 3}], "label": ["x"]},
    "prodigy": {"text": "t", "_input_hash": 1, "label": "x", "answer": "accept", "_session_id": "s", "accept": ["x"]},
    "argilla": {"id": 1, "fields": {"t": "t"}, "suggestions": {}, "responses": {"q": [{"value": "a", "user_id": "u"}]}},
    "argilla, flat": {"id": 1, "q.responses": ["a"], "q.responses.users": ["u"], "q.responses.status": ["submitted"]},
    "argilla, by person": {"id": 1, "fields": {}, "responses": [BY_PERSON]},
    "lewidi": {"1": {"text": {"a": "b"}, "annotators": "A,B", "annotations": {"A": "1", "B": "0"}}},
    "jsonl": {"item": 1, "annotator": "a", "labels": ["x"]},
}


@pytest.mark.parametrize("name", RECORDS)
def test_json_of_wrong_types_is_read_or_refused_in_one_sentence(read, name, tmp_path):
    rng = np.random.default_rng(0)
    good, said = json.dumps(RECORDS[name]), []
    for _ in range(100):
        content = "\n".join([good, json.dumps(mutated(rng, RECORDS[name]))]).encode()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with suppress(DissensusError):
                (tmp_path / "t.jsonl").write_bytes(content)
                assert io.read_frame(tmp_path / "t.jsonl").num_rows
            try:
                found = read(content, "t.jsonl", format=name.partition(",")[0])
            except DissensusError as error:
                said.append(str(error))
                continue
        for table in found.values() if isinstance(found, Questions) else [found]:
            assert 0 < table.import_report.n_used <= table.import_report.n_rows
    assert 0 < len(said) < 100
    assert not any("\n" in sentence for sentence in said)


def test_a_warning_in_python_counts_what_people_answered_and_is_not_used(read):
    record = RECORDS["argilla"] | {
        "responses": {"q": [{"value": "a", "user_id": "u"}], "s": [{"value": 3, "user_id": "u"}]}
    }
    tables = read(json.dumps(record).encode(), "t.json")
    assert {question: table.kind for question, table in tables.items()} == {"q": "classes", "s": "graded"}
    with warns(errors.RowsExcluded, unused={"ratings 's'": 1}):
        read(json.dumps(record).encode(), "t.json", label="q")


def test_columns_of_a_wide_table_may_spell_their_labels_differently(read):
    rows = [f"t{i},something long that is item {i},{('Yes,yes, YES', 'No,no,NO')[i % 2]}" for i in range(20)]
    table = read("\n".join(["id,text,Ann,Bob,Cy", *rows]).encode())
    assert table.annotators.tolist() == ["Ann", "Bob", "Cy"]
    assert len(table) == 60


def studio_task(number, text, **answers):
    annotations = [
        {"completed_by": who, "result": [{"type": "choices", "from_name": "q", "value": {"choices": [label]}}]}
        for who, label in answers.items()
    ]
    return {"id": number, "data": {"text": text}, "annotations": annotations}


def test_a_folder_of_exports_is_one_table_in_which_nothing_counts_twice(tmp_path):
    first = [studio_task(1, "one", ann="yes", bob="no"), studio_task(2, "two", ann="no")]
    (tmp_path / "monday.json").write_text(json.dumps(first))
    (tmp_path / "tuesday.json").write_text(json.dumps([first[0], studio_task(3, "three", bob="yes")]))
    with warns(errors.RowsExcluded, unused={"answers that another file contains too": 2}):
        table = io.read(tmp_path)
    assert rows_of(table) == [(1, "ann", "yes"), (1, "bob", "no"), (2, "ann", "no"), (3, "bob", "yes")]
    assert (table.import_report.n_rows, table.import_report.n_used) == (6, 4)
    assert table.import_report.notes == [notes.FilesReadAsOne(n=2, n_others=0)]
    assert io.read_frame(tmp_path).num_rows == 4
    (tmp_path / "tuesday.json").write_text(json.dumps([studio_task(1, "another project's", ann="yes")]))
    with raises(errors.DifferentTexts, item=1, file="tuesday.json", other_file="monday.json"):
        io.read(tmp_path)


def test_what_an_export_calls_its_answers_stays_in_one_line(read):
    response = {"values": {"q": {"value": "a"}}, "user_id": "u", "status": "\n" + "x" * 5000}
    with raises(errors.NoUsableRows, unit="answer") as raised:
        read(json.dumps({"id": 1, "fields": {"t": "t"}, "responses": [response]}).encode(), "t.json")
    assert "\n" not in str(raised.value)


def test_questions_without_a_single_answer_are_an_error():
    rows = pa.table(
        {
            "question": ["q", "q"],
            "item": [1, 2],
            "annotator": [1, 1],
            "label": pa.array([[], None], pa.list_(pa.string())),
        }
    )
    with raises(errors.NoUsableRows, unit="answer"):
        io.read(rows)


def test_numbers_beyond_64_bits_that_labels_are_renamed_to_become_text(read):
    table = read(b"item,annotator,label\n1,x,a\n1,y,b\n", map={"a": 10**20, "b": 3})
    assert table.classes.tolist() == [str(10**20), "3"]
