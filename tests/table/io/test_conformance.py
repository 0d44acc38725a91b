"""Every reader reads an example of its format, and one of these is broken on purpose."""

import json

import pyarrow as pa
import pytest

from dissensus.table import io
from dissensus.table.io.readers import Reader, readers
from dissensus.testing.readers import check_reader

ROWS = {"item": ["a", "a", "b", "b"], "annotator": ["ann", "bob", "ann", "bob"], "label": ["x", "y", "x", "x"]}
CSV = "item,annotator,label\na,ann,x\na,bob,y\nb,ann,x\nb,bob,x\n"


def label_studio_task(number, label):
    result = {"from_name": "sent", "type": "choices", "value": {"choices": [label]}}
    return {"id": number, "data": {"text": "t"}, "annotations": [{"completed_by": 1, "result": [result]}]}


def argilla_record(number, value):
    return {"id": number, "fields": {"text": "t"}, "responses": {"q": [{"user_id": "u", "value": value}]}}


def inspect_log():
    samples = [{"id": n, "epoch": 1, "target": "C", "scores": {"judge": {"value": "CI"[n]}}} for n in range(2)]
    return {"version": 2, "status": "success", "eval": {"config": {"epochs": 1}}, "samples": samples}


def promptfoo_result(test, passed):
    component = {"pass": passed, "score": float(passed), "assertion": {"type": "llm-rubric", "value": "polite?"}}
    grading = {"componentResults": [component]}
    return {"testIdx": test, "promptIdx": 0, "provider": "p", "vars": {}, "gradingResult": grading}


def prodigy_task(number, answer):
    return {"text": "t", "_input_hash": number, "label": "x", "answer": answer, "_session_id": "s"}


def score(item, value):
    return {"id": f"{item}{value}", "name": "tone", "dataType": "CATEGORICAL", "source": "API", "traceId": item,
            "stringValue": value, "value": None}  # fmt: skip


EXAMPLES = {
    "csv": ("f.csv", CSV),
    "tsv": ("f.tsv", CSV.replace(",", "\t")),
    "jsonl": ("f.jsonl", [dict(zip(ROWS, row, strict=True)) for row in zip(*ROWS.values(), strict=True)]),
    "parquet": ("f.parquet", None),
    "arrow": ("f.arrow", None),
    "spreadsheet": ("f.xlsx", None),
    "conll": ("f.conll", "token ann bob\nAda B-PER O\nsmiles O O\n\nBob B-PER B-PER\n"),
    "label-studio": ("f.json", [label_studio_task(1, "a"), label_studio_task(2, "b")]),
    "argilla": ("f.json", [argilla_record(1, "a"), argilla_record(2, "b")]),
    "inspect": ("f.json", inspect_log()),
    "promptfoo": ("f.jsonl", [promptfoo_result(0, True), promptfoo_result(1, False)]),
    "langfuse": ("f.json", [score("a", "x"), score("b", "y")]),
    "lm-eval": ("judge_samples_polite.jsonl", [
        {"doc_id": n, "doc": {}, "target": "x", "filter": "none", "filtered_resps": [text]}
        for n, text in enumerate("xy")
    ]),
    "prodigy": ("f.jsonl", [prodigy_task(1, "accept"), prodigy_task(2, "reject")]),
    "lewidi": ("f.json", {
        str(n): {"text": "t", "annotations": {"Ann1": "0", "Ann2": "1"}, "annotators": "Ann1,Ann2"} for n in (1, 2)
    }),
    "doccano": ("f.jsonl", [{"id": n, "text": "t", "label": ["x"]} for n in (1, 2)]),
}  # fmt: skip


def write(folder, name):
    file, content = EXAMPLES[name]
    path = folder / file
    if name == "spreadsheet":
        openpyxl = pytest.importorskip("openpyxl")
        pytest.importorskip("python_calamine")
        book = openpyxl.Workbook()
        for row in [list(ROWS), *zip(*ROWS.values(), strict=True)]:
            book.active.append(row)
        book.save(path)
    elif name == "arrow":
        with pa.OSFile(str(path), "wb") as target, pa.ipc.new_file(target, pa.table(ROWS).schema) as writer:
            writer.write_table(pa.table(ROWS))
    elif content is None:
        io.write_frame(ROWS, path)
    elif isinstance(content, str):
        path.write_text(content)
    elif isinstance(content, dict) or path.suffix == ".json":
        path.write_text(json.dumps(content))
    else:
        path.write_text("".join(json.dumps(record) + "\n" for record in content))
    return path


@pytest.mark.parametrize("name", readers)
def test_every_reader_keeps_the_contract(name, tmp_path):
    check_reader(name, write(tmp_path, name))


def read_all(path, columns):
    return pa.table(ROWS)


def read_of_nothing(path, columns):
    return pa.table({name: values[:0] for name, values in ROWS.items()})


def crash(path, columns):
    raise RuntimeError("not one of our errors")


@pytest.mark.parametrize(("read", "error"), [
    (read_all, AssertionError),  # a column that is missing is not reported
    (read_of_nothing, Exception),
    (crash, RuntimeError),
])  # fmt: skip
def test_the_suite_finds_what_is_wrong(read, error, tmp_path, monkeypatch):
    len(readers)
    monkeypatch.setattr(readers, "_entries", dict(readers._entries))
    readers.register("bad", summary="a reader", place=45)(Reader(read, (".bad",)))
    (tmp_path / "f.bad").write_text(CSV)
    with pytest.raises(error):
        check_reader("bad", tmp_path / "f.bad")
