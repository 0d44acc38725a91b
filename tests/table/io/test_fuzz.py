"""Damaged files: each is read, with every row counted, or refused in one sentence. DISSENSUS_FUZZ says how many."""

import csv
import io as text_io
import json
import os
import warnings

import numpy as np
import pytest

from dissensus import Questions
from dissensus.exceptions import DissensusError
from dissensus.table import io
from table.io.test_any_table import LONG, PACKED, RECORDS, SPELLED, WIDE, spreadsheet

N_INPUTS = int(os.environ.get("DISSENSUS_FUZZ", "1000"))
QUOTED = b'item,annotator,label,why\n1,a,x,"so, ""he"" said\nit"\n1,b,y,none\n2,a,x,"ok"\n2,b,x,\n'
SHEET = [["item", "annotator", "label"], [7, "x", "yes"], [8, "x", 1.5], [8, "y", "no"]]
FILES = {
    **PACKED,
    "wide.csv": WIDE,
    "long.csv": LONG,
    "spelled.csv": SPELLED,
    "quoted.csv": QUOTED,
    **{f"{name}.jsonl": (json.dumps(record) + "\n").encode() * 3 for name, record in RECORDS.items()},
    **{f"{name}.json": json.dumps([record] * 2, indent=1).encode() for name, record in RECORDS.items()},
    **{f"sheet.{suffix}": spreadsheet(suffix, SHEET) for suffix in ("xlsx", "ods")},
}
TOKENS = [b'"', b",", b"\n", b"{", b"}", b"[", b"]", b"null", b"1e999", b"NaN", b"\xff", b"\0", b"\\ud800", b"[]",
          b"{}", b"9" * 5000, b'":', b"\xef\xbb\xbf", b"\t"]  # fmt: skip
OPTIONS = [{}, {"ticks": "votes"}, {"ticks": "questions"}, {"normalize": True}, {"wide": True}, {"abstain": None},
           {"map": {"x": "y"}}]  # fmt: skip


def damaged(rng, content):
    at, token = int(rng.integers(len(content))), TOKENS[rng.integers(len(TOKENS))]
    other = int(rng.integers(len(content)))
    return [
        content[:at] + bytes([rng.integers(256)]) + content[at + 1 :],
        content[:at] + token + content[at:],
        content[:at] + token + content[at + len(token) :],
        content[:at] + content[at + int(rng.integers(1, 30)) :],
        content[:at] + content[other : other + 40] + content[at:],
        content[:at],
    ][rng.integers(6)]


def test_damaged_files_are_read_whole_or_refused_in_one_sentence(tmp_path):
    pytest.importorskip("python_calamine", reason="the extra 'excel' is not installed")
    rng = np.random.default_rng(0)
    read, said = 0, []
    for _ in range(N_INPUTS):
        name = list(FILES)[rng.integers(len(FILES))]
        content, options = damaged(rng, FILES[name]), OPTIONS[rng.integers(len(OPTIONS))]
        (tmp_path / name).write_bytes(content)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                found = io.read(tmp_path / name, **options)
            except DissensusError as error:
                said.append(str(error))
                continue
        read += 1
        for table in found.values() if isinstance(found, Questions) else [found]:
            source = table.source
            assert 0 <= source.used <= source.rows
            if source.format == "csv" and name in ("long.csv", "spelled.csv", "quoted.csv"):
                text = content.decode("utf-8-sig", "replace")
                assert source.rows == sum(bool(row) for row in csv.reader(text_io.StringIO(text, newline=""))) - 1
    assert read > N_INPUTS / 10
    assert not [sentence for sentence in said if "\n" in sentence]
