"""CoNLL text: a token a line with our tag and its probability, sentences apart by empty lines."""

from __future__ import annotations

from dissensus.exceptions import BadParameter
from dissensus.table.io.conll import read
from dissensus.table.io.files import BinaryFile
from dissensus.table.io.writers import WRITERS, Labels, Writer
from dissensus.table.spans import are_places, sequences_of


def write(labels: Labels, file: BinaryFile) -> None:
    """Write token, tag and probability; without a CoNLL file that has the tokens, their places stand for them."""
    if len(labels.questions) > 1:
        raise BadParameter(f"CoNLL text has one question, not {len(labels.questions):,}; take each by itself.")
    (answers,) = labels.questions.values()
    if not are_places(answers.items):
        raise BadParameter("CoNLL text holds tags of tokens, and these are labels of whole items; take another --to.")
    tokens: dict[str, str] = {}
    if labels.source is not None:
        table = read(labels.source, None)
        tokens = dict(zip(table["item"].to_pylist(), table["token"].to_pylist(), strict=True))
    where = sequences_of(answers.items)
    for start, end in zip(where.ptr[:-1], where.ptr[1:], strict=True):
        for i in where.order[start:end].tolist():
            name = str(answers.items[i])
            cells = tokens.get(name, name.replace(" ", "")), str(answers.label[i]), f"{answers.confidence[i]:.4f}"
            file.write(("\t".join(cells) + "\n").encode())
        file.write(b"\n")


WRITERS.register("conll", summary="tags of tokens", place=55)(Writer("to-conll.conll", write))
