"""Logs of judges: who judged what is kept, and a damaged log gets one sentence."""

import copy
import io as bytes_io
import json
import struct
import warnings
import zipfile
import zlib

import numpy as np
import pyarrow as pa
import pytest

from dissensus.exceptions import DissensusError, RowsLeftOut
from dissensus.table import exceptions as errors
from dissensus.table import io, notes
from dissensus.table.io.readers import detect_format
from dissensus.table.io.writers import LabelsToWrite, QuestionLabels, write_labels
from facts import raises, warns
from table.io.test_writers import WHO, by_question, majority, rows_of

MODELS = ["m/a", "m/b"]
GRADES = {"s0": "CC", "s1": "CI", "s2": "IC", "s3": "II"}


# Logs -----------------------------------------------------------------------------------------------------------------


def called(scorer, models, grades, parent="r"):
    """The events of models that were called under a scorer."""
    begin = {"event": "span_begin", "id": scorer, "parent_id": parent, "type": "scorer", "name": scorer}
    inner = {"event": "span_begin", "id": f"{scorer}-x", "parent_id": scorer, "type": None, "name": "x"}
    return [begin, inner] + [
        {"event": "model", "span_id": f"{scorer}-x", "model": model, "output": {"completion": f"GRADE: I?\nGRADE: {g}"}}
        for model, g in zip(models, grades, strict=True)
    ]  # fmt: skip


def log(scores, events=None, scorers=(), epochs=1, targets="yes", **more):
    """A log of Inspect; `scores` and `events` make those of a sample from its grades."""
    samples = [
        {
            "id": name, "epoch": epoch, "input": f"{name}?", "output": {"completion": "an answer"},
            "target": targets if isinstance(targets, str) else targets[n], "scores": scores(grades),
            "events": [
                {"event": "span_begin", "id": "r", "parent_id": None, "type": "scorers", "name": "scorers"},
                *(events(grades) if events else []),
            ],
        }
        for n, (name, grades) in enumerate(GRADES.items())
        for epoch in range(1, epochs + 1)
    ]  # fmt: skip
    about = {"dataset": {"sample_ids": list(GRADES)}, "config": {"epochs": epochs}, "scorers": list(scorers)}
    return {"version": 2, "status": "success", "eval": about, "samples": samples} | more


def scorer(name, *models):
    """An entry of a log's scorers; a panel has several models."""
    named = [{"model": model} for model in models]
    return {"name": name, "options": {"model": named if len(named) > 1 else named[0]} if named else {}}


def value(one, **metadata):
    return {"value": one, "metadata": metadata}


def votes(grades):
    return {"qa": value("C", panel={"votes": list(grades)})}


def scored(high, low):
    """Two scorers that give numbers."""
    number = {"C": high, "I": low}
    return log(
        lambda g: {key: value(number[grade]) for key, grade in zip("st", g, strict=True)},
        scorers=[scorer("s", "m/a"), scorer("t", "m/b")],
    )


BOTH = {"m/a": "CCII", "m/b": "CICI"}
SHAPES = {
    "votes": (log(votes, scorers=[scorer("inspect_ai/qa", *MODELS)]), BOTH),
    "votes without names": (log(votes), {"qa #1": "CCII", "qa #2": "CICI"}),
    "votes of one model": (log(votes, scorers=[scorer("qa", "m", "m")]), {"m": "CCII", "m #2": "CICI"}),
    "a list": (log(lambda g: {"all": value(list(g))}, lambda g: called("all", MODELS, g)), BOTH),
    "a list in another order": (
        log(lambda g: {"all": value(list(g))}, lambda g: called("all", MODELS[::-1], g[::-1])), BOTH,
    ),
    "an object": (
        log(lambda g: {"all": value(dict(zip(MODELS, g, strict=True)))}, lambda g: called("all", MODELS, g)), BOTH,
    ),
    "grades said": (log(lambda g: {"qa": value("C")}, lambda g: called("qa", MODELS, g)), BOTH),
    "scorers": (
        log(lambda g: {"qa": value(g[0]), "qa1": value(g[1])}, scorers=[scorer("qa", "m/a"), scorer("qa", "m/b")]),
        {"qa": "CCII", "qa1": "CICI"},
    ),
    "scorers of other names": (
        log(lambda g: {k: value(x, grading=[{"model": f"m/{k}"}]) for k, x in zip(("strict", "kind"), g, strict=True)}),
        {"strict": "CCII", "kind": "CICI"},
    ),
    "numbers": (scored(7, 2), {"s": [7, 7, 2, 2], "t": [7, 2, 7, 2]}),
    "zero and one": (scored(1, 0), {"s": [1, 1, 0, 0], "t": [1, 0, 1, 0]}),
}  # fmt: skip


def as_eval(log):
    """A log as a zip of Zstandard members."""
    parts = {"header.json": {key: part for key, part in log.items() if key != "samples"}}
    parts |= {f"samples/s{number}_epoch_1.json": one for number, one in enumerate(log["samples"])}
    texts = [json.dumps(part).encode() for part in parts.values()]
    packed = bytes_io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in zip(parts, texts, strict=True):
            archive.writestr(name, pa.compress(text, "zstd", asbytes=True))
        start, entries = archive.fp.tell(), archive.infolist()
    data = bytearray(packed.getvalue())
    for entry, text in zip(entries, texts, strict=True):  # say in both heads how the member is packed, and what it was
        for at, more in ((entry.header_offset, 0), (start, 2)):
            struct.pack_into("<H", data, at + 8 + more, 93)
            struct.pack_into("<I", data, at + 14 + more, zlib.crc32(text))
            struct.pack_into("<I", data, at + 22 + more, len(text))
        start += 46 + sum(struct.unpack_from("<HHH", data, start + 28))
    return bytes(data)


def result(test, grades, providers=("echo",), rubrics=("polite", "polite"), human=None):
    """Results of promptfoo, one for each provider."""
    inside = [
        {"pass": g == "C", "score": 0.75 if g == "C" else 0.25, "assertion": {"value": r, "metric": m}}
        for g, r, m in zip(grades, rubrics, ("a", "b"), strict=True)
    ]  # fmt: skip
    if human is not None:
        inside.append({"pass": human, "score": int(human), "assertion": {"type": "human"}})
    return [
        {
            "testIdx": test, "promptIdx": 0, "provider": {"id": provider, "label": ""}, "vars": {"q": f"q{test}"},
            "gradingResult": {"pass": True, "componentResults": inside}, "response": {"output": "an answer"},
        }
        for provider in providers
    ]  # fmt: skip


def promptfoo(**more):
    found = [one for test, grades in enumerate(GRADES.values()) for one in result(test, grades, **more)]
    return {"evalId": "e", "results": {"version": 3, "results": found}, "config": {}}


def score(number, name, kind, said, **more):
    return (
        {"id": f"x{number}", "traceId": f"t{number // 2}", "name": name, "source": "EVAL", "dataType": kind}
        | said
        | more
    )


def langfuse(kind="CATEGORICAL", names=("tone", "tone"), authors=("ann", "bob"), metadata=(None, None)):
    data = []
    for n, grade in enumerate("".join(GRADES.values())):
        said = {"value": n / 4} if kind == "NUMERIC" else {"value": 1, "stringValue": grade}
        data.append(score(n, names[n % 2], kind, said, authorUserId=authors[n % 2], metadata=metadata[n % 2]))
    return {"data": data, "meta": {"page": 1, "totalItems": len(data)}}


def samples(place=0, filters=("none",), generated=False):
    """Samples of lm-evaluation-harness by one model."""
    choice = {"C": [["-0.1", "True"], ["-2.0", "False"]], "I": [["-2.0", "False"], ["-0.1", "True"]]}
    return [
        {
            "doc_id": n, "doc": {"question": f"q{n}"}, "target": str(n % 2), "filter": one,
            "filtered_resps": [grades[place] + " "] if generated else choice[grades[place]],
        }
        for n, grades in enumerate(GRADES.values())
        for one in filters
    ]  # fmt: skip


def lines(found):
    return "\n".join(map(json.dumps, found)).encode()


EVAL = "inspect eval"
LOGS = {
    "inspect": ("log.json", lambda one: json.dumps(one).encode(), SHAPES["votes"][0]),
    "inspect said": ("log.json", lambda one: json.dumps(one, indent=1).encode(), SHAPES["grades said"][0]),
    EVAL: ("log.eval", as_eval, SHAPES["scorers"][0]),
    "promptfoo": ("out.json", lambda one: json.dumps(one, indent=2).encode(), promptfoo()),
    "promptfoo lines": ("out.jsonl", lambda one: lines(one["results"]["results"]), promptfoo()),
    "langfuse": ("scores.json", lambda one: json.dumps(one).encode(), langfuse()),
    "lm-eval": ("samples_x.jsonl", lambda one: lines(one["all"]), {"all": samples()}),
}
"""Name → file, how it is written, and a good one."""


def written(folder, name, data):
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else json.dumps(data).encode())
    return path


def quiet(path, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RowsLeftOut)
        return io.read(path, **options)


def said_by(table):
    """Annotator → labels, by item."""
    found = {}
    for _, who, label in sorted(zip(*table.to_arrow().to_pydict().values(), strict=True)):
        found.setdefault(who, []).append(label)
    return found


# Reading --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_of_a_panel_keeps_who_judged(shape, packed, tmp_path):
    one, expected = SHAPES[shape]
    path = written(tmp_path, "x.eval" if packed else "x.json", as_eval(one) if packed else one)
    table = quiet(path)
    assert detect_format(path) == table.import_report.format == "inspect"
    assert table.items.tolist() == list(GRADES)
    assert said_by(table) == {who: list(labels) for who, labels in expected.items()}
    assert table.kind == ("numbers" if shape == "numbers" else "classes")
    assert table.import_report.item_fields["s1"] == {"input": "s1?", "answer": "an answer"}


def test_a_model_behind_two_scorers_is_asked_two_things(tmp_path):
    scorers = [scorer("tone", "m/a"), scorer("truth", "m/a")]
    two = log(lambda g: {"tone": value(g[0]), "truth": value(g[1])}, scorers=scorers)
    assert {q: said_by(t) for q, t in quiet(written(tmp_path, "x.json", two)).items()} == {
        "tone": {"tone": list("CCII")}, "truth": {"truth": list("CICI")},
    }  # fmt: skip
    parts = log(lambda g: {"rubric": value({"tone": g[0], "truth": g[1]})})
    assert list(quiet(written(tmp_path, "x.json", parts))) == ["rubric/tone", "rubric/truth"]
    parts = [("tone", 0), ("truth", 1)]
    judges = log(lambda g: {f"qa{k}": value({part: g[at] for part, at in parts[::o]}) for k, o in (("", 1), (1, -1))})
    tables = quiet(written(tmp_path, "x.json", judges))
    assert said_by(tables["qa/truth"]) == {"qa": list("CICI"), "qa1": list("CICI")}


def test_epochs_are_items_and_what_has_no_grade_is_counted(tmp_path):
    one = log(lambda g: {"qa": value("C", panel={"votes": [g[0], None]})}, epochs=2, scorers=[scorer("qa", *MODELS)])
    one["samples"][0]["scores"]["qa"] = value(float("nan"))
    one["samples"][1] |= {"scores": None, "error": {"message": "x"}}
    one["samples"][2]["invalidation"] = {"reason": "wrong prompt"}
    table = quiet(written(tmp_path, "x.json", one))
    assert table.items.tolist() == [f"s{n}_epoch_{k}" for n in range(4) for k in (1, 2)]
    assert len(table) == 5
    older = log(
        lambda g: {"qa": value(g[0]), "qa1": value("I") | {"explanation": "Grade not found in model output: …"}}
    )
    assert said_by(quiet(written(tmp_path, "older.json", older))) == {"qa": list("CCII")}
    assert table.import_report.unused_counts == {
        "scores not given (no grade was found)": 1 + 6, "samples without a score": 1,
        "scores of samples marked as invalid": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("targets", "known"),
    [
        (["C", "I", "C", "I"], ["C", "I", "C", "I"]),
        (["A", "B", "C", "D"], None),
        ("C", None),
        (["yes", "C", "I", "C"], None),
    ],
)
def test_targets_are_known_labels_where_they_are_among_the_labels(targets, known, tmp_path):
    one = log(lambda g: {"qa": value(g[0]), "qa1": value(g[1])}, targets=targets)
    source = quiet(written(tmp_path, "x.json", one)).import_report
    assert source.gold == (None if known is None else (list(GRADES), known))
    assert ("gold" in source.columns) == (known is not None)
    assert any(isinstance(note, notes.TargetsNotReadAsGold) for note in source.notes) == (known is None)


def test_a_sample_that_is_missing_is_said_aloud(tmp_path):
    one = copy.deepcopy(SHAPES["votes"][0]) | {"status": "cancelled"}
    del one["samples"][2]
    for path in (written(tmp_path, "x.json", one), written(tmp_path, "x.eval", as_eval(one))):
        missing = (notes.SamplesMissing(n=1, sample="s2"), notes.RunNotSuccessful(status="cancelled"))
        with warns(errors.RowsExcluded, unused={}) as caught:
            assert io.read(path).n_items == 3
        assert caught[0].message.notes[:2] == missing


def test_a_human_grade_of_promptfoo_is_a_known_label(tmp_path):
    table = quiet(written(tmp_path, "out.json", promptfoo(human=True)))
    assert said_by(table) == {"a": ["yes", "yes", "no", "no"], "b": ["yes", "no", "yes", "no"]}
    assert table.import_report.gold == ([0, 1, 2, 3], ["yes"] * 4)
    assert table.import_report.unused_counts["scores 'score'"] == 8
    scored = quiet(tmp_path / "out.json", label="score")
    assert (scored.kind, scored.classes.tolist()) == ("numbers", [0.25, 0.75])


def test_answers_by_several_providers_and_other_rubrics_are_kept_apart(tmp_path):
    table = quiet(written(tmp_path, "out.json", promptfoo(providers=("gpt", "claude"))))
    assert table.items.tolist() == sorted(f"{n}/{who}" for n in range(4) for who in ("gpt", "claude"))
    tables = quiet(written(tmp_path, "out.json", promptfoo(rubrics=("polite", "true"), human=True)))
    assert {question: list(said_by(one)) for question, one in tables.items()} == {"a": ["a"], "b": ["b"]}
    assert tables["a"].import_report.unused_counts["human grades, of all questions together"] == 4


def test_what_sums_up_assertions_is_no_judge_and_older_results_are_numbered(tmp_path):
    whole = promptfoo()
    for one in whole["results"]["results"]:
        del one["testIdx"], one["promptIdx"]
        inside = one["gradingResult"]["componentResults"]
        failed = {"pass": False, "score": 0, "reason": "no answer"}
        one["gradingResult"]["componentResults"] = [
            {"pass": True, "score": 1, "componentResults": inside},
            *inside,
            failed,
        ]
    table = quiet(written(tmp_path, "out.json", whole))
    assert said_by(table) == {"a": ["yes", "yes", "no", "no"], "b": ["yes", "no", "yes", "no"]}
    assert table.items.tolist() == [0, 1, 2, 3]
    assert table.import_report.unused_counts["results of sets of assertions, or of none that is named"] == 8


def test_the_author_of_a_score_answers_and_a_model_in_its_name_is_no_question(tmp_path):
    assert said_by(quiet(written(tmp_path, "s.json", langfuse()))) == {"ann": list("CCII"), "bob": list("CICI")}
    by_models = langfuse(
        "NUMERIC", ("tone-gpt", "tone-claude"), (None, None), ({"model": "gpt"}, {"model": "claude"}),
    )  # fmt: skip
    by_models["data"] += [score(8, "why", "TEXT", {"value": "x"}), score(9, "fix", "CORRECTION", {"value": ""})]
    table = quiet(written(tmp_path, "s.json", by_models))
    assert table.import_report.columns["label"] == "'tone'"
    assert said_by(table) == {"tone-claude": [0.25, 0.75, 1.25, 1.75], "tone-gpt": [0.0, 0.5, 1.0, 1.5]}
    assert table.import_report.unused_counts == {"texts 'why'": 1, "corrections 'fix'": 1}
    yes = langfuse("BOOLEAN")
    for one in yes["data"]:
        one |= {"value": one.pop("stringValue") == "C"}
    assert said_by(quiet(written(tmp_path, "s.json", yes)))["ann"] == ["True", "True", "False", "False"]


@pytest.mark.parametrize(
    ("meta", "note"),
    [
        ({"totalItems": 20}, notes.PagesMissing(n=8, n_total=20)),
        ({"cursor": "abc"}, notes.PagesMissing(n=8, n_total=None)),
    ],
)
def test_a_page_that_is_not_the_last_says_so(meta, note, tmp_path):
    path = written(tmp_path, "s.json", langfuse() | {"meta": meta})
    with warns(errors.RowsExcluded, unused={}, notes=(note,)):
        io.read(path)


@pytest.mark.parametrize(
    "name", ["org__m/samples_x_2026-01-02T03-04-05.678.jsonl", "org__m_samples_x.jsonl", "org__m.jsonl"]
)
def test_a_model_is_called_by_its_folder_or_file(name, tmp_path):
    (tmp_path / "org__m").mkdir()
    table = quiet(written(tmp_path, name, lines(samples(filters=("strict", "flexible")))))
    assert said_by(table) == {"org__m": ["0", "0", "1", "1"]}
    assert table.import_report.gold == ([0, 1, 2, 3], ["0", "1", "0", "1"])
    assert table.import_report.unused_counts == {"answers by the filter flexible": 4}
    assert said_by(quiet(written(tmp_path, name, lines(samples(generated=True))))) == {"org__m": list("CCII")}


def test_a_folder_of_samples_is_one_table_and_tasks_keep_their_own_items(tmp_path):
    for place, model in enumerate(MODELS):
        (tmp_path / model).mkdir(parents=True)
        for task in ("x", "y"):
            found = samples(place, generated=task == "y")
            written(tmp_path / model, f"samples_{task}_2026-01-02T03-04-05.6.jsonl", lines(found))
        written(tmp_path / model, "results_2026-01-02T03-04-05.6.json", {"results": {"x": {"acc": 1}}})
    tables = quiet(tmp_path)
    assert said_by(tables["x"]) == {"a": ["0", "0", "1", "1"], "b": ["0", "1", "0", "1"]}
    assert said_by(tables["y"]) == {"a": list("CCII"), "b": list("CICI")}
    assert tables["x"].import_report.gold == ([f"x/{n}" for n in range(4)], ["0", "1", "0", "1"])
    assert tables["y"].import_report.gold is None
    assert tables["x"].import_report.notes == [notes.FilesReadAsOne(n=4, n_others=2)]


def test_all_pages_of_scores_are_one_table_and_a_score_counts_once(tmp_path):
    whole = langfuse()
    for number, part in enumerate((slice(0, 5), slice(4, 8))):
        written(tmp_path, f"page{number}.json", {"data": whole["data"][part], "meta": {"totalItems": 8}})
    table = quiet(tmp_path)
    assert said_by(table) == {"ann": list("CCII"), "bob": list("CICI")}
    assert table.import_report.unused_counts == {"answers that another file contains too": 1}
    assert table.import_report.notes == [notes.FilesReadAsOne(n=2, n_others=0)]


JUDGED = [
    ("model prompt_id verdict", "prompt_id", "model", "verdict"),
    ("question_id judge_model score reason", "question_id", "judge_model", "score"),
    ("response_id evaluator is_correct", "response_id", "evaluator", "is_correct"),
    ("judge_name task_id judgment", "task_id", "judge_name", "judgment"),
    ("sample_id model grader grade", "sample_id", "grader", "grade"),
    ("model prompt_id score verdict", "prompt_id", "model", "verdict"),
    ("pair_id judge winner", "pair_id", "judge", "winner"),
]


def table_of_judges(columns):
    """Rows of 12 prompts by 3 judges; scores are numbers, reasons differ."""
    cells = {"score": lambda i, j: (7 * i + 3 * j) % 5, "reason": lambda i, j: f"because of {i} and {j}"}
    who, what = ("model", "judge", "evaluator", "grader"), ("verdict", "is_correct", "judgment", "grade", "winner")
    judge = next(name for name in reversed(columns) if name.startswith(who))
    for name in columns:
        if name in what:
            cells[name] = lambda i, j: "AB"[(i * j) % 2]
        elif name == judge:
            cells[name] = lambda i, j: f"judge {j}"
        elif name == "model":  # whose answer it is
            cells[name] = lambda i, j: f"model {i % 2}"
    rows = [(i, j) for i in range(12) for j in range(3)]
    return pa.table({name: [cells.get(name, lambda i, j: f"p{i}")(*row) for row in rows] for name in columns})


@pytest.mark.parametrize(("columns", "item", "annotator", "label"), JUDGED)
def test_a_table_of_judges_is_known_by_name_and_content(columns, item, annotator, label):
    table = io.read(table_of_judges(columns.split()))
    found = {role: said.partition("'")[2].partition("'")[0] for role, said in table.import_report.columns.items()}
    assert found == {"item": item, "annotator": annotator, "label": label}
    assert (table.n_items, table.n_annotators, len(table)) == (12, 3, 36)


@pytest.mark.parametrize("item", ["prompt_id", "item"])
def test_whose_answer_was_judged_names_the_item_too(item, tmp_path):
    rows = [(f"p{p}", m, f"j{j}", (p + j) % 3) for p in range(5) for m in ("gpt", "claude") for j in range(3)]
    names = [item, "model", "judge", "score"]
    path = written(tmp_path, "x.jsonl", lines([dict(zip(names, row, strict=True)) for row in rows]))
    table = quiet(path)
    assert table.import_report.columns["item"] == f"'{item}' with 'model' (guessed by name and content)"
    assert (table.n_items, len(table), table.items[0]) == (10, 30, "p0/claude")
    assert quiet(path, item=item).n_items == 5


def test_a_number_of_the_row_is_no_item_where_other_names_are_guessed():
    rows = table_of_judges(["prompt_id", "model", "verdict"])
    with raises(errors.ItemColumnNeverRepeats, item="id", other_column="prompt_id"):
        io.read(rows.append_column("id", pa.array(range(rows.num_rows))))


# Damage ---------------------------------------------------------------------------------------------------------------


def one_sentence(path):
    """Read; an error must be ours, in one line that names the file."""
    try:
        return quiet(path)
    except DissensusError as error:
        said = str(error)
    assert str(path) in said
    assert "\n" not in said
    assert said.endswith(".")
    return None


@pytest.mark.parametrize("name", LOGS)
@pytest.mark.parametrize("share", [0.01, 0.3, 0.7, 0.99])
def test_a_log_that_is_cut_short_gets_one_sentence(name, share, tmp_path):
    file, write, good = LOGS[name]
    data = write(good)
    found = one_sentence(written(tmp_path, file, data[: int(share * len(data))]))
    assert found is None or name in ("promptfoo lines", "lm-eval")  # a whole number of lines may be left


def test_no_label_is_another_where_a_zip_was_changed(tmp_path):
    """A sample whose name was changed may be missing, which is said; a grade is never another."""
    data = as_eval(SHAPES["scorers"][0])
    whole = rows_of(quiet(written(tmp_path, "x.eval", data)))
    for at in range(0, len(data), 23):
        table = one_sentence(written(tmp_path, "x.eval", data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]))
        assert table is None or rows_of(table) <= whole
        assert (
            table is None
            or len(table) == len(whole)
            or any(isinstance(note, notes.SamplesMissing) for note in table.import_report.notes)
        )


@pytest.mark.parametrize("name", LOGS)
def test_a_record_that_is_there_twice_gets_one_sentence(name, tmp_path):
    file, write, good = LOGS[name]
    twice = copy.deepcopy(good)
    inside = next(iter(objects_of(twice)))
    inside.append(copy.deepcopy(inside[0]))
    path = written(tmp_path, file, write(twice))
    if name == EVAL:  # the same name twice in a zip
        with warnings.catch_warnings(), zipfile.ZipFile(path, "a") as archive:
            warnings.simplefilter("ignore")
            archive.writestr("samples/s0_epoch_1.json", json.dumps(good["samples"][0]))
    with raises(errors.DuplicateRecord):
        quiet(path)


def objects_of(log):
    """The list of records in a log."""
    yield log.get("samples") or log.get("data") or log.get("all") or log["results"]["results"]


def places(value, path=()):
    """Where something is inside a value."""
    if path:
        yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    for key, entry in inside:
        yield from places(entry, (*path, key))


@pytest.mark.parametrize("name", LOGS)
def test_wrong_types_anywhere_get_one_sentence_or_a_table(name, tmp_path):
    file, write, good = LOGS[name]
    tried = 0
    for place in places(good):
        for wrong in (None, [1], {"a": [1]}, "x", -1.5):
            damaged = copy.deepcopy(good)
            at = damaged
            for key in place[:-1]:
                at = at[key]
            at[place[-1]] = wrong
            try:
                data = write(damaged)
            except (TypeError, KeyError, AttributeError):  # there is no such file
                continue
            one_sentence(written(tmp_path, file, data))
            tried += 1
    assert tried > 50


# The way back ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*LOGS, "epochs"])
def test_a_log_gets_our_label_and_loses_nothing(name, tmp_path):
    epochs = log(lambda g: {"qa": value(g[0]), "qa1": value(g[1])}, epochs=2)
    file, write, good = LOGS[name] if name != "epochs" else ("x.eval", as_eval, epochs)
    to = detect_format(path := written(tmp_path, file, write(good)))
    if to not in ("inspect", "promptfoo"):
        to = "jsonl"
    before = by_question(quiet(path))
    after = write_labels(majority(before, source=path if to != "jsonl" else None), to, tmp_path)
    back = by_question(quiet(after))
    for question, table in before.items():
        assert back[question].items.tolist() == table.items.tolist()
        if to == "jsonl":
            assert back[question].annotators.tolist() == [WHO]
            continue
        assert rows_of(back[question]) == rows_of(table)
        assert (
            back[question].import_report.unused_counts[f"{'scores' if to == 'inspect' else 'assertions'} by dissensus"]
            == table.n_items
        )
    if to == "jsonl":
        return
    (records,) = (
        objects_of(json.loads(after.read_text())) if name != "promptfoo lines" else [json.loads(after.read_text())]
    )
    for old, new in zip(next(objects_of(good)), records, strict=True):
        if to == "inspect":
            assert new.pop("scores").pop("dissensus")["metadata"]["agent"] == WHO
        else:
            ours = new["gradingResult"]["componentResults"].pop()
            assert ours["pass"] == (ours["score"] >= 0.5)
            assert ours["pass"] in {0: [True], 3: [False]}.get(old["testIdx"], [True, False])  # both pass, both fail
        assert new == {key: entry for key, entry in old.items() if key != "scores"}


def test_scores_go_back_as_scores(tmp_path):
    path = written(tmp_path, "out.json", promptfoo())
    item, score = np.arange(4), np.array([0.75, 0.5, 0.5, 0.25])
    labels = LabelsToWrite({None: QuestionLabels(item, score, np.ones(4))}, WHO, path)
    (found,) = objects_of(json.loads(write_labels(labels, "promptfoo", tmp_path).read_text()))
    ours = [one["gradingResult"]["componentResults"][-1] for one in found]
    assert [(one["score"], one["pass"]) for one in ours] == [(0.75, True), (0.5, True), (0.5, True), (0.25, False)]


def test_without_a_log_inspect_gets_precomputed_scores_and_promptfoo_tests(tmp_path):
    table = quiet(written(tmp_path, "x.json", SHAPES["votes"][0]))
    first = json.loads(write_labels(majority(table), "inspect", tmp_path).read_text())[0]
    about = {"confidence": 1.0, "agent": WHO}
    assert first == {"id": "s0", "value": "C", "explanation": f"{WHO}, 100 % sure", "metadata": about}
    several = json.loads(write_labels(majority({"p": table, "q": table}), "inspect", tmp_path).read_text())[0]
    assert several["value"] == {"p": "C", "q": "C"}
    test = json.loads(write_labels(majority(table), "promptfoo", tmp_path).read_text())[0]
    (asserted,) = test["assert"]
    assert (test["description"], asserted["type"], asserted["value"]) == ("s0", "equals", "C")
