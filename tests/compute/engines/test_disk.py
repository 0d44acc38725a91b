"""Tables on a disk: the codes are those of a table in memory, and a fit that is killed goes on where it was."""

import gc
import json
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from dissensus import load, methods, read, save
from dissensus.compute.engines import Disk
from dissensus.compute.engines.coding import CodedTable, code_parquet, code_table
from dissensus.compute.engines.disk import RunFolder
from dissensus.compute.exceptions import BadWeights, BlankNames, CannotSort, NoSuchFile
from dissensus.exceptions import DataError, MissingColumn, UnknownClass
from dissensus.table.exceptions import UnsupportedType
from dissensus.table.simulate import simulate
from tables import random_table

pytest.importorskip("duckdb", reason="needs the `disk` extra")


def rows_of_files(coded: CodedTable) -> dict[str, np.ndarray]:
    folder = coded.folder
    arrays = {
        "item_ptr": np.fromfile(folder / "item_ptr.i64", np.int64),
        "annotator": np.fromfile(folder / "annotator.i32", np.int32),
        "label": np.fromfile(folder / "label.i8", np.int8),
    }
    return arrays | ({"weight": np.fromfile(folder / "weight.f64")} if coded.weighted else {})


def write(path, names: bool = False, seed: int = 0, parts: int = 3, weight: bool = False):
    """A simulated table in shuffled rows over several files; returns it in memory."""
    frame = simulate(900, 40, 4, redundancy=(1, 6), seed=seed).annotations.to_arrow()
    rng = np.random.default_rng(seed)
    if names:  # text that sorts otherwise than the numbers do, and beyond ASCII
        for place, column in enumerate(("item", "annotator", "label")):
            frame = frame.set_column(place, column, pc.binary_join_element_wise("é", frame[column].cast("string"), "_"))
    if weight:
        frame = frame.append_column("weight", pa.array(rng.choice([0.5, 1.0, 2.5], len(frame))))
    frame = frame.take(pa.array(rng.permutation(len(frame))))
    path.mkdir(exist_ok=True)
    for part in range(parts):
        pq.write_table(frame.slice(part * len(frame) // parts, len(frame) // parts + 1), path / f"{part}.parquet")
    first = [pq.read_table(path / f"{part}.parquet") for part in range(parts)]
    return read(pa.concat_tables(first))


@pytest.mark.parametrize("weight", [False, True])
@pytest.mark.parametrize("names", [False, True])
def test_codes_are_those_of_a_table_in_memory(names, weight, tmp_path, monkeypatch):
    monkeypatch.setattr("dissensus.compute.engines.coding.SORT_BATCH_ROWS", 97)  # items span two batches
    table = write(tmp_path / "in", names=names, weight=weight)
    coded = code_parquet(f"{tmp_path}/in/*.parquet", tmp_path / "out")
    for name, array in rows_of_files(coded).items():
        np.testing.assert_array_equal(array, getattr(table, name), err_msg=name)
    for name in ("items", "annotators", "classes", "annotations_per_annotator"):
        np.testing.assert_array_equal(np.asarray(getattr(coded, name)), getattr(table, name), err_msg=name)
    assert (coded.n_items, coded.n_annotations) == (table.n_items, len(table))
    np.testing.assert_array_equal(coded.items[np.array([3, 1])], table.items[[3, 1]])
    assert coded.items[5] == table.items[5]


def test_declared_classes_keep_their_order(tmp_path):
    table = write(tmp_path / "in", parts=1)
    coded = code_parquet(tmp_path / "in" / "0.parquet", tmp_path / "out", classes=[3, 9, 0, 1, 2])
    assert coded.classes.tolist() == [3, 9, 0, 1, 2]
    np.testing.assert_array_equal(coded.classes[rows_of_files(coded)["label"]].sum(), table.classes[table.label].sum())
    with pytest.raises(UnknownClass):
        code_parquet(tmp_path / "in" / "0.parquet", tmp_path / "other", classes=[0, 1])


def test_codes_are_made_once_and_again_when_the_file_changes(tmp_path):
    write(tmp_path / "in", parts=1)
    path = tmp_path / "in" / "0.parquet"
    first = code_parquet(path, tmp_path / "out")
    made = (first.folder / "annotator.i32").stat().st_mtime_ns
    assert code_parquet(path, tmp_path / "out").folder == first.folder
    assert (first.folder / "annotator.i32").stat().st_mtime_ns == made
    (first.folder / "meta.json").unlink()
    (tmp_path / "out" / ".codes-01234567.part").mkdir()  # killed while sorting
    first = code_parquet(path, tmp_path / "out")
    before = first.map_item_rows(0, 900)
    pq.write_table(pq.read_table(path).slice(0, 100), path)
    assert code_parquet(path, tmp_path / "out").n_annotations == 100
    assert first.folder.exists()  # as somebody uses it
    del first
    gc.collect()
    pq.write_table(pq.read_table(path).slice(0, 50), path)
    assert code_parquet(path, tmp_path / "out").n_annotations == 50
    assert len(list((tmp_path / "out").iterdir())) == 1
    assert before.annotator.max() < 40  # mapped still


NAMES = {
    "text": ["1", "1\0", "1\0", "2", "é", "1"],
    "unsigned": pa.array([2**63 - 1, 3, 3, 4, 5, 2**63 - 1], pa.uint64()),
    "too large": pa.array([2**63, 3, 3, 4, 5, 2**63], pa.uint64()),
    "lists": [[1], [2], [1], [2], [3], [3]],
    "true": [True, False, True, True, False, True],
}


@pytest.mark.parametrize("role", ["item", "annotator", "label"])
@pytest.mark.parametrize("names", NAMES)
def test_names_are_those_in_memory_or_refused(role, names, tmp_path):
    columns = {"item": [1, 1, 2, 2, 3, 3], "annotator": [1, 2, 1, 2, 1, 2], "label": [0, 1, 1, 1, 0, 1]}
    renamed = {'it"em' if name == "item" else name: value for name, value in (columns | {role: NAMES[names]}).items()}
    pq.write_table(pa.table(renamed), tmp_path / "a.parquet")

    def names_of(make):
        try:
            table = make()
        except DataError as error:
            return type(error)
        return [np.asarray(getattr(table, one)).tolist() for one in ("items", "annotators", "classes")]

    on_disk = names_of(lambda: code_parquet(tmp_path / "a.parquet", tmp_path / "out", item='it"em'))
    in_memory = names_of(lambda: read(tmp_path / "a.parquet", item='it"em'))
    if (role, names) == ("item", "true"):
        assert on_disk is UnsupportedType
    elif (role, names) == ("label", "lists"):  # in memory a list of one is that label
        assert issubclass(on_disk, DataError)
    else:
        assert on_disk == in_memory or issubclass(on_disk, in_memory)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("annotator.i32", lambda data: data[:-4]), ("label.i8", lambda data: b"\x7f" + data[1:]),
        ("annotator.i32", lambda data: data[:-4] + b"\0\0\0\x7f"), ("item_ptr.i64", lambda data: data[::-1]),
        ("items.arrow", lambda data: data[: len(data) // 2]), ("annotators.parquet", lambda data: data[4:]),
        ("classes.parquet", lambda data: b""), ("meta.json", lambda data: b"[1]"),
    ],
)  # fmt: skip
def test_damaged_codes_are_made_again(name, change, tmp_path):
    table = write(tmp_path, parts=1)
    folder = code_parquet(tmp_path / "0.parquet", tmp_path / "out").folder
    (folder / name).write_bytes(change((folder / name).read_bytes()))
    coded = code_parquet(tmp_path / "0.parquet", tmp_path / "out")
    np.testing.assert_array_equal(rows_of_files(coded)["annotator"], table.annotator)


AT_ONCE = """
import sys, numpy as np
from dissensus import methods
from dissensus.compute.engines import Disk
for _ in range(3):
    model = methods["dawid-skene"](engine=Disk(block_rows=500), threads=1).fit(sys.argv[1])
    print(float(np.asarray(model.posterior_).sum()), sum(len(part) for part in model.item_frames()))
"""


def test_runs_at_once_on_one_file_do_not_disturb_each_other(tmp_path):
    write(tmp_path, parts=1)
    arguments = [sys.executable, "-c", AT_ONCE, str(tmp_path / "0.parquet")]
    runs = [subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    said = [run.communicate(timeout=120) for run in runs]
    assert [run.returncode for run in runs] == [0, 0, 0], said
    assert len({line for out, _ in said for line in out.splitlines()}) == 1


def test_a_later_fit_leaves_the_arrays_of_an_earlier_one_as_they_were(tmp_path):
    write(tmp_path, parts=1)
    fits = [methods["dawid-skene"](engine=Disk(block_rows=500)).fit(tmp_path / "0.parquet") for _ in range(2)]
    assert fits[0].posterior_.base.base is not fits[1].posterior_.base.base
    np.testing.assert_array_equal(*(fit.posterior_ for fit in fits))


@pytest.mark.parametrize(
    ("columns", "error", "facts"),
    [
        (
            {"item": [1, None], "annotator": [1, 2], "label": [0, 1]},
            BlankNames,
            {"column": "item", "blank": 1, "total": 2},
        ),
        (
            {"item": [1, 2], "annotator": ["a", " "], "label": [0, 1]},
            BlankNames,
            {"column": "annotator", "blank": 1, "total": 2},
        ),
        (
            {"item": [1.5, 2.0], "annotator": [1, 2], "label": [0, 1]},
            UnsupportedType,
            {"column": "item", "type": "double"},
        ),
        ({"item": [1, 2], "annotator": [1, 2]}, MissingColumn, None),
        ({"item": [1], "annotator": [1], "label": [0], "weight": [-1.0]}, BadWeights, {"n_bad": 1, "total": 1}),
    ],
)
def test_unusable_tables_are_refused(columns, error, facts, tmp_path):
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    with pytest.raises(error) as caught:
        code_parquet(tmp_path / "a.parquet", tmp_path / "out")
    assert facts is None or caught.value.facts == facts


def test_files_that_do_not_go_together(tmp_path):
    for name, item in (("a", [1]), ("b", ["x"])):
        pq.write_table(pa.table({"item": item, "annotator": [1], "label": [0]}), tmp_path / f"{name}.parquet")
    with pytest.raises(CannotSort) as caught:
        code_parquet(tmp_path / "*.parquet", tmp_path / "out")
    assert caught.value.reason.endswith("Could not convert string 'x' to INT64")


def test_no_such_file():
    with pytest.raises(NoSuchFile) as caught:
        methods["wawa"](engine="disk").fit("nothing/*.parquet")
    assert caught.value.source == "nothing/*.parquet"


def test_a_fit_leaves_files_and_arrays_mapped_from_them(tmp_path):
    table = write(tmp_path / "in", names=True)
    model = methods["glad"](engine=Disk(block_rows=500)).fit(tmp_path / "in" / "*.parquet")
    local = methods["glad"]().fit(table)
    assert (tmp_path / "in" / "_.parquet.dissensus").is_dir()
    left = pq.read_table(model.items_path_)
    expected = local.to_frame("items", "pyarrow")
    assert left.column_names == expected.column_names
    for column in ("item", "label"):
        assert left[column].to_pylist() == expected[column].to_pylist()
    for column in ("confidence", "difficulty", expected.column_names[-1]):
        np.testing.assert_allclose(left[column], expected[column], atol=1e-9)
    assert not model.posterior_.flags.writeable
    assert isinstance(model.posterior_.base, np.memmap)
    np.testing.assert_array_equal(model.predict(), local.predict())
    np.testing.assert_allclose(model.predict_proba(table), local.predict_proba(table), atol=1e-9)
    assert model.to_frame("items", "pyarrow")["item"].to_pylist() == table.items.tolist()
    parts = pa.concat_tables(model.item_frames())
    assert parts.equals(left)


def test_frames_in_parts_are_those_of_the_model_as_it_is_now(tmp_path):
    table = write(tmp_path / "in")
    model = methods["dawid-skene"](engine=Disk(block_rows=500)).fit(tmp_path / "in" / "*.parquet")
    again = load(save(model, tmp_path / "saved"))
    assert not hasattr(again, "items_path_")
    model.partial_fit(table.select(rows=np.arange(40)))  # what is on the disk is of before
    for each in (model, again):
        (frame,) = each.item_frames()
        assert frame.equals(each.to_frame("items", "pyarrow"))


def test_a_model_fitted_on_a_disk_is_saved_and_learns_more(tmp_path):
    table = write(tmp_path / "in", names=True)
    model = methods["dawid-skene"](engine=Disk(folder=tmp_path / "work")).fit(tmp_path / "in" / "*.parquet")
    again = load(save(model, tmp_path / "saved"))
    assert again.engine == "disk"
    np.testing.assert_array_equal(again.items_, table.items)
    np.testing.assert_array_equal(again.posterior_, model.posterior_)
    model.partial_fit(table.select(rows=np.arange(7)))
    assert model.n_annotations_.sum() == len(table) + 7


KILLED = """
import os, signal, sys, warnings
from dissensus import methods
from dissensus.compute.engines import Disk
from dissensus.compute.engines.disk import DiskEngine, RunFolder

processed, process = 0, DiskEngine._process

def counted(self, *arguments):
    global processed
    processed += 1
    if processed == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    process(self, *arguments)

DiskEngine._process = counted
methods[sys.argv[3]](engine=Disk(block_rows=500), threads=1, restarts=2).fit(sys.argv[1])
"""


@pytest.mark.parametrize(("method", "blocks", "passes"), [("dawid-skene", 40, 3), ("mace", 211, 20)])
def test_a_fit_that_was_killed_goes_on_from_the_last_pass(method, blocks, passes, tmp_path):
    table = write(tmp_path, parts=1)
    path = str(tmp_path / "0.parquet")
    done = subprocess.run([sys.executable, "-c", KILLED, path, str(blocks), method], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    keywords = {"threads": 1, "restarts": 2}
    steps: list[int] = []
    model = methods[method](engine=Disk(block_rows=500), **keywords)
    model.fit(path, on_step=lambda step, _: steps.append(step))
    assert steps[0] > passes  # those before are not made again
    assert steps == list(range(steps[0], steps[-1] + 1))
    local = methods[method](**keywords).fit(table)
    assert model.n_iter_ == local.n_iter_ == steps[-1]
    np.testing.assert_allclose(model.trace_, local.trace_, rtol=1e-12)
    np.testing.assert_allclose(model.posterior_, local.posterior_, atol=1e-9)
    assert not list(tmp_path.rglob("state.npz"))  # and the next one begins anew


def test_a_state_that_was_cut_short_is_not_taken(tmp_path):
    write(tmp_path, parts=1)
    model = methods["dawid-skene"](engine=Disk(block_rows=500))
    model.fit(tmp_path / "0.parquet")
    first = np.array(model.posterior_)
    (run,) = tmp_path.rglob("DawidSkene-*")
    (run / "state.npz").write_bytes(b"PK\x03\x04 half a file")
    assert model.fit(tmp_path / "0.parquet").n_iter_ > 1
    np.testing.assert_array_equal(model.posterior_, first)


def test_one_block_at_a_time_is_in_memory(tmp_path, monkeypatch):
    write(tmp_path, parts=1)
    rows, open_at_once = [], []
    of_block = CodedTable.map_item_rows

    def watched(self, first, end):
        found = of_block(self, first, end)
        rows.append(found.annotator.size)
        open_at_once.append(Path("/proc/self/maps").read_text().count("annotator.i32"))
        return found

    monkeypatch.setattr(CodedTable, "map_item_rows", watched)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        methods["dawid-skene"](engine=Disk(block_rows=300), threads=1, max_iter=2).fit(tmp_path / "0.parquet")
    assert max(rows) < 320
    assert max(open_at_once) <= 2  # this one, and the last one until its name is taken


def test_meta_says_what_the_codes_were_made_of(tmp_path):
    write(tmp_path, parts=1)
    coded = code_parquet(tmp_path / "0.parquet", tmp_path / "out")
    made_of = json.loads((coded.folder / "meta.json").read_text())["made_of"]
    assert made_of["files"][0][1] == (tmp_path / "0.parquet").stat().st_size
    assert made_of["columns"] == {"item": "item", "annotator": "annotator", "label": "label"}


def test_a_state_belongs_to_one_table_method_keywords_and_gold(tmp_path):
    write(tmp_path, parts=1)
    coded, gold = code_parquet(tmp_path / "0.parquet", tmp_path / "out"), np.zeros(900, np.int32)
    model = methods["dawid-skene"](engine=Disk(), threads=1)
    same = RunFolder(methods["dawid-skene"](engine=Disk(block_rows=9), threads=2), coded, None).path
    assert RunFolder(model, coded, None).path == same
    others = [
        RunFolder(model, coded, gold),
        RunFolder(model, coded, gold + 1),
        RunFolder(methods["dawid-skene"](smoothing=0.2), coded, None),
        RunFolder(methods["one-coin"](), coded, None),
        RunFolder(model, code_parquet(tmp_path / "0.parquet", tmp_path / "out", classes=[3, 2, 1, 0]), None),
    ]
    assert len({same, *(other.path for other in others)}) == 6
    one, two = (random_table(seed) for seed in (1, 2))  # of the same size
    assert (
        RunFolder(model, code_table(one, tmp_path), None).path != RunFolder(model, code_table(two, tmp_path), None).path
    )
