"""Read and write CoNLL text, which has one token per line with its tags, and empty lines between sentences.

Each annotator has a column of tags, with `?` for tokens that the annotator did not read. The names of annotators are in
the first line, `token ann bob …`; otherwise annotators are numbered. In a file with one column of tags, consecutive
sentences with the same tokens are the answers of annotators 1, 2, … to one sentence, as in exports of Label Studio.
IOB1, BIOES and BILOU are converted to B-x, I-x and O. Labels are written as one tag with its probability.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from dissensus.table import exceptions as errors
from dissensus.table.find_columns import ColumnNames, columns_to_read
from dissensus.table.io.files import BinaryFile, open_bytes, report_read_errors
from dissensus.table.io.readers import Reader, readers
from dissensus.table.io.writers import LabelsToWrite, Writer, writers
from dissensus.table.notes import AnnotatorsNumbered, Note
from dissensus.table.spans import OUTSIDE_TAG, are_positions, name_positions, parse_sequences

_TAG_PATTERN = re.compile(r"[BIESLU]-\S+|O")
_MISSING_TAGS = ("?", "_", "-")  # symbols for a missing tag
_BIO_MARKS = {"S": "B", "U": "B", "E": "I", "L": "I"}  # marks of BIOES and BILOU → marks of BIO
Sentence = list[list[str]]


def read(path: Path, columns: ColumnNames | None) -> pa.Table | tuple[pa.Table, Note]:
    """Return the columns item (positions), annotator, label and token."""
    rows: list[tuple[str, str, str, str]] = []
    with report_read_errors(path):
        sentences = list(_read_sentences(path))
    annotators: list[str] = []  # annotator of each column if the first line names them
    if sentences and len(sentences[0][0]) > 1 and not any(map(_TAG_PATTERN.fullmatch, sentences[0][0][1:])):
        annotators = sentences[0].pop(0)
        sentences = sentences if sentences[0] else sentences[1:]
    width = len(sentences[0][0]) if sentences else 0
    tagged = [
        place for place in range(1, width)
        if all(_TAG_PATTERN.fullmatch(line[place]) or line[place] in _MISSING_TAGS for s in sentences for line in s)
        and any(_TAG_PATTERN.fullmatch(line[place]) for s in sentences for line in s)
    ]  # fmt: skip
    if not tagged:
        raise errors.NoTagColumn(path=path)
    alone, number, answer = len(tagged) == 1, -1, 0
    before: list[str] = []
    for sentence in sentences:
        tokens = [line[0] for line in sentence]
        is_same_sentence = alone and tokens == before
        number, answer, before = (number, answer + 1, tokens) if is_same_sentence else (number + 1, 1, tokens)
        places = name_positions([f"s{number:06d}"] * len(sentence), range(len(sentence)))
        for place in tagged:
            annotator = str(answer) if alone else annotators[place] if annotators else str(place)
            tags = [line[place] for line in sentence]
            for item, token, tag in zip(places, tokens, convert_to_bio(tags), strict=True):
                if tag:
                    rows.append((item, annotator, tag, token))
    names = ("item", "annotator", "label", "token")
    cells = {name: pa.array([row[place] for row in rows], pa.string()) for place, name in enumerate(names)}
    table = pa.table({name: cells[name] for name in columns_to_read(columns, names)})
    return (table, AnnotatorsNumbered()) if alone else table


def convert_to_bio(tags: list[str]) -> list[str]:
    """Convert the tags of one annotator in a sentence to B-x, I-x and O; a missing tag becomes "".

    In IOB1, spans begin with I-x. A sentence is in IOB1 if no B-x follows an O.
    """
    plain = ["" if tag in _MISSING_TAGS else _BIO_MARKS.get(tag[0], tag[0]) + tag[1:] for tag in tags]
    pairs = list(zip([OUTSIDE_TAG, *plain], plain, strict=False))
    starts = [tag[0] for last, tag in pairs if tag[:2] in ("B-", "I-") and last == OUTSIDE_TAG]
    if "I" not in starts or "B" in starts:
        return plain
    return [f"B-{tag[2:]}" if tag[:2] == "I-" and last[2:] != tag[2:] else tag for last, tag in pairs]


def _read_sentences(path: Path) -> Iterator[Sentence]:
    sentence: Sentence = []
    width = 0
    with open_bytes(path) as file:
        for number, raw in enumerate(file, start=1):
            line = raw.decode("utf-8-sig")
            cells = line.rstrip("\r\n").split("\t") if "\t" in line else line.split()
            if not line.strip() or line.startswith(("-DOCSTART-", "# ")):
                if sentence:
                    yield sentence
                sentence = []
                continue
            width = width or len(cells)
            if len(cells) != width:
                raise errors.WrongNumberOfFields(
                    path=path, location=f"line {number:,}", n=len(cells), n_first=width, delimiter="", open_quote=False
                )
            sentence.append(cells)
    if sentence:
        yield sentence


def write(labels: LabelsToWrite, file: BinaryFile) -> None:
    """Write token, tag and probability; if the table was not read from CoNLL text, write positions as tokens."""
    if len(labels.questions) > 1:
        raise errors.OneQuestionPerProject(tool="CoNLL text", n=len(labels.questions))
    (answers,) = labels.questions.values()
    if not are_positions(answers.items):
        raise errors.TagsOfTokensOnly
    tokens: dict[str, str] = {}
    if labels.source is not None:
        table = read(labels.source, None)
        table = table[0] if isinstance(table, tuple) else table
        tokens = dict(zip(table["item"].to_pylist(), table["token"].to_pylist(), strict=True))
    sequences = parse_sequences(answers.items)
    for start, end in zip(sequences.ptr[:-1], sequences.ptr[1:], strict=True):
        for i in sequences.order[start:end].tolist():
            name = str(answers.items[i])
            cells = tokens.get(name, name.replace(" ", "")), str(answers.label[i]), f"{answers.confidence[i]:.4f}"
            file.write(("\t".join(cells) + "\n").encode())
        file.write(b"\n")


readers.register("conll", summary="tags of tokens, a column or sentence per annotator", place=45)(
    Reader(read, (".conll", ".bio", ".iob", ".conll2003"), first_bytes=b"-DOCSTART-")
)
writers.register("conll", summary="tags of tokens", place=55)(Writer("to-conll.conll", write))
