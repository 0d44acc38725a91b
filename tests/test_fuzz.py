"""Seeded fuzzing: damaged files of every format, arrays of every kind, altered models.

Whatever comes in, out comes a result or one of our own errors in one line, soon, within a stated memory, and every row
of a file is used or counted. `make test` tries 2,000 inputs, `make fuzz` 200,000; `FUZZ_SEED=n` takes others. A failure
names its input: `FUZZ_ONE=number` runs it alone.
"""

import contextlib
import csv
import gzip
import io
import json
import math
import os
import sys
import time
import traceback
import warnings
import zipfile
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dissensus import Annotations, load, methods, read, save
from dissensus.clustering import clusterings
from dissensus.exceptions import DissensusError, DissensusWarning
from dissensus.models.base import check_gold
from dissensus.table.io import read_frame, read_gold
from dissensus.table.simulate import simulate
from table.io.test_any_table import LONG, PACKED, RECORDS, SPELLED, WIDE, spreadsheet
from table.io.test_logs import EVAL, LOGS, as_eval

INPUTS = int(os.environ.get("FUZZ_INPUTS", "2000"))
SEED = int(os.environ.get("FUZZ_SEED", "0"))
MAX_SECONDS = 5.0  # of processor time for one input: the machine may be busy with others
MAX_MEMORY_FACTOR, MAX_MEMORY_BYTES = 10, 96 * 2**20  # of one input: so many times its size, and a constant
MAX_MESSAGE = 1200  # characters
SHOWN = 12  # failures

WORDS = [
    "", " ", "a", "cat", "1", "-1", "1.5", "1e999", "NaN", "None", "null", "true", "é", "\U0001f600", "x" * 3000,
    "9" * 5000, "=cmd|'/c calc'!A0", '"', "'", ",", "\t", "\n", "\r", "\0", "\ufeff", "[]", "{}", "<b>", "../..",
    "\u2028",
]  # fmt: skip
BYTES = [
    b"", b"\0", b'"', b'""', b"\n", b"\r\n", b",", b"\xff\xfe", b"\xef\xbb\xbf", b"\x1f\x8b", b"PK\x03\x04", b"{",
    b"[" * 200, b"}", b":", b"\\u", b"1e999", b"9" * 5000, b"\xc3", b"PAR1", b"ARROW1",
]  # fmt: skip
VALUES = [
    None, True, 0, -1, 1, 10**9, 2**63, 10**400, 0.5, float("nan"), float("inf"), "", "a", [], [1], [[1]], {},
    {"a": 1}, {"id": []},
]  # fmt: skip


QUOTED = b'item,annotator,label,why\n1,a,x,"so, ""he"" said\nit"\n1,b,y,none\n2,a,x,"ok"\n2,b,x,\n'
SHEET = [["item", "annotator", "label"], [7, "x", "yes"], [8, "x", 1.5], [8, "y", "no"]]
OPTIONS = [
    {"item": "note"}, {"abstain": ["cat"]}, {"classes": ["cat"]}, {"weight": "item"}, {"ticks": "votes"},
    {"ticks": "questions"}, {"normalize": True}, {"wide": True}, {"abstain": None}, {"map": {"x": "y"}},
]  # fmt: skip


# Files ----------------------------------------------------------------------------------------------------------------


def rows():
    """Twelve rows: item, annotator, label."""
    return [(f"i{n // 3}", f"w{n % 3}", ["cat", "dog", "owl"][n * 7 % 3]) for n in range(12)]


@cache
def seeds():
    """End of a file's name → a good file."""
    columns = dict(zip(("item", "annotator", "label"), zip(*rows(), strict=True), strict=True))
    table = pa.table({name: list(values) for name, values in columns.items()})
    lines = [dict(zip(columns, row, strict=True)) for row in rows()]
    text = "item,annotator,label,note\n" + "".join(f'{i},{a},{y},"a note"\n' for i, a, y in rows())
    studio = [
        {"id": i, "data": {"text": item}, "annotations": [{"id": i, "completed_by": {"id": 3, "email": who}, "result": [
            {"type": "choices", "from_name": "q", "to_name": "t", "value": {"choices": [label]}}]}]}
        for i, (item, who, label) in enumerate(rows())
    ]  # fmt: skip
    doccano = [{"id": item, "text": "t", "label": [label], "username": who} for item, who, label in rows()]
    older = [{"id": i, "text": "t", "annotations": [{"label": 1, "user": 2}]} for i in range(6)]
    prodigy = [
        {"_input_hash": i, "_session_id": who, "answer": "accept", "accept": [label], "options": []}
        for i, (_, who, label) in enumerate(rows())
    ]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("ann.jsonl", as_lines([{"id": 1, "label": ["a"]}]))
        archive.writestr("bob.jsonl", as_lines([{"id": 1, "label": ["b"]}]))
    return {
        **{f"-{name}{Path(file).suffix}": write(good) for name, (file, write, good) in LOGS.items()},
        ".csv": text.encode(), ".tsv": text.replace(",", "\t").encode(), ".csv.gz": gzip.compress(text.encode()),
        ".txt": text.replace(",", ";").encode(), ".jsonl": as_lines(lines), ".json": json.dumps(lines).encode(),
        "-studio.json": json.dumps(studio).encode(), "-doccano.jsonl": as_lines(doccano),
        "-older.jsonl": as_lines(older), "-prodigy.jsonl": as_lines(prodigy), ".zip": packed.getvalue(),
        ".parquet": parquet(table), ".arrow": arrow(table, pa.ipc.new_file),
        "-stream.arrow": arrow(table, pa.ipc.new_stream),
        "-wide.csv": WIDE, "-long.csv": LONG, "-spelled.csv": SPELLED, "-quoted.csv": QUOTED,
        **{f"-{name}": content for name, content in PACKED.items()},
        **{f"-{name}.jsonl": as_lines([record] * 3) for name, record in RECORDS.items()},
        **{f"-{name}.json": json.dumps([record] * 2, indent=1).encode() for name, record in RECORDS.items()},
        **{f"-sheet.{suffix}": spreadsheet(suffix, SHEET) for suffix in ("xlsx", "ods")},
    }  # fmt: skip


def as_lines(records):
    return "".join(json.dumps(one) + "\n" for one in records).encode()


def parquet(table):
    file = io.BytesIO()
    pq.write_table(table, file)
    return file.getvalue()


def arrow(table, new):
    file = io.BytesIO()
    with new(file, table.schema) as writer:
        writer.write_table(table)
    return file.getvalue()


def one_of(rng, among):
    return among[rng.integers(len(among))]


def mutate_bytes(rng, data):
    data = bytearray(data)
    for _ in range(rng.integers(1, 4)):
        at, end = sorted(rng.integers(len(data) + 1, size=2).tolist())
        match rng.integers(6):
            case 0 if data:
                data[min(at, len(data) - 1)] ^= 1 << int(rng.integers(8))
            case 1:
                data[at:at] = one_of(rng, BYTES)
            case 2:
                del data[at : at + int(rng.integers(1, 20))]
            case 3:
                del data[end:]
            case 4:
                data[at:at] = data[at:end]
            case _:
                data[at : at + 4] = one_of(rng, BYTES)
    return bytes(data)


def mutate_json(rng, value, depth=0):
    """The same value with one node that is something else."""
    if isinstance(value, list | dict) and value and rng.random() < 0.8:
        keys = range(len(value)) if isinstance(value, list) else list(value)
        key = one_of(rng, list(keys))
        copy = value.copy()
        match rng.integers(4):
            case 0:
                del copy[key]
            case 1 if isinstance(value, dict):
                copy[one_of(rng, WORDS)] = copy.pop(key)
            case _:
                copy[key] = mutate_json(rng, value[key], depth + 1)
        return copy
    return one_of(rng, VALUES) if rng.random() < 0.7 else one_of(rng, WORDS)


def mutate_cells(rng, text, separator):
    lines = [line.split(separator) for line in text.split("\n")]
    for _ in range(rng.integers(1, 4)):
        line = one_of(rng, lines)
        line[rng.integers(len(line))] = one_of(rng, WORDS)
    return "\n".join(separator.join(line) for line in lines).encode("utf-8", "surrogatepass")


def random_column(rng, n):
    kinds = [
        lambda: pa.array(rng.integers(-5, 5, n)),
        lambda: pa.array(rng.normal(size=n)),
        lambda: pa.array(np.where(rng.random(n) < 0.3, np.nan, 1.0)),
        lambda: pa.array([None] * n),
        lambda: pa.array([2**64 - 1, *range(n - 1)], pa.uint64()),
        lambda: pa.array(rng.random(n) < 0.5),
        lambda: pa.array([[1]] * n),
        lambda: pa.array([{"a": 1}] * n),
        lambda: pa.array([b"\xff"] * n),
        lambda: pa.array(range(n), pa.timestamp("ns")),
        lambda: pa.array([one_of(rng, ["a", "", None, "1\0"]) for _ in range(n)]),
        lambda: pa.array(["a", "b"] * n)[:n].dictionary_encode(),
        lambda: pa.array(range(n), pa.float16() if n > 99 else pa.int8()),
        lambda: pa.array([one_of(rng, WORDS[:10]) for _ in range(n)], pa.string_view()),
        lambda: pa.nulls(n, pa.list_(pa.int8())),
        lambda: pa.array(range(n), pa.decimal128(38, 2)),
        lambda: pa.array(["x"] * n, pa.large_string()),
        lambda: pa.array([1] * n, pa.duration("s")),
        lambda: pa.array([0.0, -0.0] * n)[:n],
    ]
    return one_of(rng, kinds)()


def mutate_table(rng, suffix):
    names, arrays = ["item", "annotator", "label"], [pa.array(column) for column in zip(*rows(), strict=True)]
    for _ in range(rng.integers(1, 3)):
        at = rng.integers(len(arrays))
        match rng.integers(4):
            case 0:
                names[at] = str(one_of(rng, ["", "p_a", "weight", "question", "label", 'it"em', "x", "p_", " item "]))
            case 1:
                names.append(str(one_of(rng, ["weight", "question", "p_a", "label", "task", "gold"])))
                arrays.append(random_column(rng, 12))
            case _:
                arrays[at] = random_column(rng, 12)
    if rng.random() < 0.1:
        arrays = [array[:0] for array in arrays]
    table = pa.table(arrays, names=names)
    new = pa.ipc.new_stream if "stream" in suffix else pa.ipc.new_file
    return parquet(table) if suffix == ".parquet" else arrow(table, new)


def damaged_file(rng):
    """The end of a name, and the bytes of a file."""
    suffix = one_of(rng, list(seeds()))
    data = seeds()[suffix]
    packed = suffix.endswith(("xlsx", "ods", "bz2", "xz", "zst", ".zip", "utf16.csv.gz")) or "utf16" in suffix
    if rng.random() < 0.35 or (packed and suffix != ".zip"):
        return suffix, mutate_bytes(rng, data)
    if suffix in (".parquet", ".arrow", "-stream.arrow"):
        return suffix, mutate_table(rng, suffix)
    if suffix == ".zip":
        records = [mutate_json(rng, {"id": 1, "label": ["a"]}) for _ in range(2)]
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", int(one_of(rng, [0, 8, 12, 14]))) as archive:
            archive.writestr(one_of(rng, ["ann.jsonl", "../x.json", "a/b.jsonl", "é.jsonl"]), as_lines(records))
        return suffix, packed.getvalue()
    if suffix.endswith(".eval"):
        log = LOGS[EVAL][2]
        head = {key: mutate_json(rng, part) if rng.random() < 0.2 else part for key, part in log.items()}
        return suffix, as_eval(head | {"samples": [mutate_json(rng, one) for one in log["samples"]]})
    if suffix.endswith((".json", ".jsonl")):
        lines = suffix.endswith(".jsonl")
        value = [json.loads(line) for line in data.splitlines()] if lines else json.loads(data)
        for _ in range(rng.integers(1, 3)):
            value = mutate_json(rng, value)
        return suffix, as_lines(value if isinstance(value, list) else [value]) if lines else json.dumps(value).encode()
    text = gzip.decompress(data).decode() if suffix.endswith(".gz") else data.decode()
    changed = mutate_cells(rng, text, "\t" if suffix == ".tsv" else ";" if suffix == ".txt" else ",")
    return suffix, gzip.compress(changed) if suffix.endswith(".gz") else changed


def try_file(rng, folder):
    suffix, data = damaged_file(rng)
    path = folder / f"f{suffix}"
    path.write_bytes(data)
    yield len(data)
    match rng.integers(8):
        case 0:
            read_frame(path)
        case 1:
            read_gold(path, Annotations.from_arrays(*zip(*rows(), strict=True)))
        case 2:
            check_tables(read(path, **one_of(rng, OPTIONS)))
        case _:
            check_tables(read(path))
            if suffix.endswith(".csv") and "utf16" not in suffix:
                check_rows_of_csv(data, read(path).import_report)


def check_tables(found):
    """Check every table, and that rows which are in none were counted (ticks may become more rows than there were)."""
    tables = list(found.values()) if isinstance(found, dict) else [found]
    for table in tables:
        check_table(table)
    if (source := getattr(tables[0], "import_report", None)) is not None:
        assert 0 <= source.n_used <= source.n_rows
        assert sum(map(len, tables)) + source.unused_counts.total() >= source.n_rows, "a row disappeared uncounted"


def check_rows_of_csv(data, source):
    """Python's own reader finds as many rows."""
    text = io.StringIO(data.decode("utf-8-sig", "replace"), newline="")
    if source.format == "csv":
        assert source.n_rows == sum(bool(row) for row in csv.reader(text, delimiter=delimiter_of(data))) - 1


def delimiter_of(data):
    return max(",;\t", key=data.lstrip().partition(b"\n")[0].decode("utf-8", "replace").count)


def check_table(table):
    """Every code points to a name, and the simplest method can be fitted."""
    assert table.item_ptr[-1] == len(table) == table.label.size
    assert len(table) == 0 or (table.label.max() < table.n_classes and table.label.min() >= 0)
    assert len(table) == 0 or (table.annotator.max() < table.n_annotators and table.annotator.min() >= 0)
    if table.n_classes <= 100:
        assert table.votes().shape == (table.n_items, table.n_classes)
        assert math.isclose(methods["majority-vote"]().fit(table).posterior_.sum(), table.n_items, abs_tol=1e-6)


# Arrays ---------------------------------------------------------------------------------------------------------------


def random_array(rng, n):
    """Names, numbers or anything, of about n entries."""
    n = max(0, n + int(one_of(rng, [0] * 12 + [-1, 1, -n])))
    kinds = [
        lambda: rng.integers(0, 4, n),
        lambda: rng.integers(0, 4, n).astype(one_of(rng, ["i1", "u8", ">i4", "f4", "f2", "c8"])),
        lambda: np.array([one_of(rng, ["a", "b", "c"]) for _ in range(n)], one_of(rng, [object, "U3", "S3"])),
        lambda: rng.integers(-(2**62), 2**62, n),
        lambda: np.full(n, 2**64 - 1, np.uint64),
        lambda: rng.normal(size=n),
        lambda: np.where(rng.random(n) < 0.2, np.nan, rng.integers(0, 3, n)),
        lambda: rng.random((n, 2)),
        lambda: [one_of(rng, VALUES) for _ in range(n)],
        lambda: [one_of(rng, WORDS) for _ in range(n)],
        lambda: rng.random(n) < 0.5,
        lambda: np.array(7),
        lambda: one_of(rng, VALUES),
        lambda: np.zeros(n, "M8[s]"),
        lambda: np.full(n, one_of(rng, [1e300, 1e-300, -1.0, np.inf])),
        lambda: np.zeros(n, "V4"),
        lambda: iter(range(n)),
        lambda: [one_of(rng, [1, np.ma.masked, None, "a"]) for _ in range(n)],
        lambda: {"a": 1},
        lambda: pa.array([[1]] * n),
    ]
    array = one_of(rng, kinds)()
    if rng.random() < 0.25 and isinstance(array, np.ndarray) and array.dtype.kind not in "V":
        array = np.ma.masked_array(array, mask=rng.random(array.shape) < 0.3)
    return array


def try_arrays(rng, _):
    n = int(rng.integers(1, 15))
    good = {"item": rng.integers(0, 4, n), "annotator": rng.integers(0, 3, n), "label": rng.integers(0, 3, n)}
    yield 100 * n
    match rng.integers(5):
        case 0:
            matrix = random_array(rng, n)
            shaped = np.ma.masked_array(rng.integers(-1, 3, (n, 3)), mask=rng.random((n, 3)) < 0.2)
            matrix = shaped if rng.random() < 0.4 else matrix
            check_table(Annotations.from_matrix(matrix, missing=one_of(rng, [-1, None, "a", float("nan")])))
        case 1:
            count = (
                np.ma.masked_array(rng.integers(0, 5, n), rng.random(n) < 0.2)
                if rng.random() < 0.5
                else random_array(rng, n)
            )
            check_table(Annotations.from_counts(good["item"], good["label"], count))
        case 2:
            table = Annotations.from_arrays(**good)
            check_gold(random_array(rng, table.n_items), table)
            table.select(rows=random_array(rng, n), items=one_of(rng, [None, random_array(rng, table.n_items)]))
        case _:
            keyword = one_of(rng, ["item", "annotator", "label", "weight", "proba", "classes", "abstain", "items"])
            given = good | {keyword: random_array(rng, n)}
            if rng.random() < 0.3:
                given["abstain"] = [None]
            check_table(Annotations.from_arrays(**given))


# Models ---------------------------------------------------------------------------------------------------------------

MODELS = ("dawid-skene", "one-coin", "glad", "wawa", "mace", "pgm-bp")


@cache
def model_bytes(name):
    table = simulate(12, 5, 3, redundancy=3, seed=0).annotations
    kind = methods[name] if name in methods else clusterings[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = kind(**{"max_iter": 2} if "max_iter" in kind.declared() else {}).fit(table)
    return model, table


def try_model(rng, folder):
    model, table = model_bytes(one_of(rng, MODELS))
    path = save(model, folder)
    if rng.random() < 0.4:
        path.write_bytes(mutate_bytes(rng, path.read_bytes()))
    else:
        with np.load(path) as stored:
            arrays = dict(stored)
        header = json.loads(arrays["header"].tobytes())
        for _ in range(rng.integers(1, 3)):
            key = one_of(rng, [key for key in arrays if key != "header"])
            array = arrays[key]
            match rng.integers(6):
                case 0:
                    header = mutate_json(rng, header)
                case 1:
                    arrays[key] = array[: rng.integers(len(array) + 1)] if array.ndim else array
                case 2:
                    with warnings.catch_warnings(), contextlib.suppress(ValueError):  # text that is no number
                        warnings.simplefilter("ignore")  # that not every number fits
                        arrays[key] = array.astype(one_of(rng, ["f4", "i8", "i1", ">f8", "U5", "c16", "?"]))
                case 3:
                    arrays[key] = array.T if array.ndim > 1 else array[None]
                case 4 if array.size and array.dtype.kind in "if":
                    changed = array.copy()
                    value = one_of(
                        rng, [-1, 10**6, 0, 1] if array.dtype.kind == "i" else [-1.0, np.nan, np.inf, 1e300, 0.5]
                    )
                    with np.errstate(all="ignore"):
                        changed.flat[rng.integers(array.size)] = np.asarray(value).astype(array.dtype)
                    arrays[key] = changed
                case _:
                    arrays[str(one_of(rng, [key, "posterior_", "x_", "_fit", "fit"]))] = array
        arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
        np.savez(path, **arrays)
    yield path.stat().st_size
    loaded = load(path)
    with np.errstate(all="ignore"):  # numbers within their ranges may be nonsense together
        loaded.predict_proba(table.with_classes(loaded.classes_))
        loaded.predict()
        loaded.to_frame("annotators", "pyarrow")


# The loop -------------------------------------------------------------------------------------------------------------

TRIED = {"files": (try_file, 0.6), "arrays": (try_arrays, 0.25), "models": (try_model, 0.15)}


def peak_bytes(reset=False):
    """The most memory that this process has had since the last reset; None where the system does not say."""
    try:
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        status = Path("/proc/self/status").read_text()
    except OSError:
        return None
    return 1024 * int(status.partition("VmRSS:" if reset else "VmHWM:")[2].split()[0])


def run(number, folder):
    """Try one input; return what was wrong, "" for nothing."""
    rng = np.random.default_rng([SEED, number])
    kinds, shares = list(TRIED), [share for _, share in TRIED.values()]
    attempt = TRIED[rng.choice(kinds, p=shares)][0](rng, folder)
    said = ""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", DissensusWarning)
        size = next(attempt)
        before, began = peak_bytes(reset=True), time.process_time()
        try:
            next(attempt, None)
        except DissensusError as error:
            message = str(error)
            if "\n" in message.strip() or len(message) > MAX_MESSAGE or not message.endswith((".", "…", "?")):
                said = f"message is no sentence: {message[:200]!r}"
        except Exception as error:
            ours = [frame for frame in traceback.extract_tb(error.__traceback__) if "dissensus/" in frame.filename]
            place = f"{ours[-1].filename.rpartition('dissensus/')[2]}:{ours[-1].lineno}" if ours else "the fuzzer"
            said = f"{type(error).__name__} in {place}: {str(error)[:120]}"
    seconds, peak = time.process_time() - began, peak_bytes()
    if not said and seconds > MAX_SECONDS:
        said = f"took {seconds:.1f} s"
    if not said and peak is not None and before is not None:
        used, allowed = peak - before, MAX_MEMORY_FACTOR * size + MAX_MEMORY_BYTES
        said = f"took {used >> 20} MiB for {size:,} bytes" if used > allowed else ""
    return said


@pytest.mark.parametrize("part", range(4))
def test_whatever_comes_in_the_answer_is_a_result_or_one_sentence(part, tmp_path):
    """Four parts, so that they can run beside each other."""
    pytest.importorskip("python_calamine", reason="the extra 'excel' is not installed")
    for name in MODELS:
        model, table = model_bytes(name)
        model.predict(table)  # compiled now, not within an input
    chosen = [int(os.environ["FUZZ_ONE"])] if "FUZZ_ONE" in os.environ else range(part, INPUTS, 4)
    found = Counter()
    first = {}
    for number in chosen:
        if said := run(number, tmp_path):
            key = said.partition(": ")[0]
            found[key] += 1
            first.setdefault(key, f"{number}: {said}")
    if "FUZZ_REPORT" in os.environ:
        with Path(os.environ["FUZZ_REPORT"]).open("a") as file:
            file.writelines(f"{found[key]} × {first[key]}\n" for key in found)
    assert not found, "\n".join(f"{n} × {first[key]}" for key, n in found.most_common(SHOWN))


def test_the_fuzzer_finds_what_is_broken(tmp_path, monkeypatch):
    """It would see a traceback, a long message, much memory, a hang, a lost row."""

    def broken(how):
        def attempt(rng, folder):
            yield 10
            how()

        monkeypatch.setattr(sys.modules[__name__], "TRIED", {"x": (attempt, 1.0)})
        return run(0, tmp_path)

    def raising(error):
        raise error

    assert "TypeError in the fuzzer" in broken(lambda: raising(TypeError("x")))
    assert "no sentence" in broken(lambda: raising(DissensusError("two\nlines.")))
    assert "no sentence" in broken(lambda: raising(DissensusError("no full stop")))
    assert "MiB for 10 bytes" in broken(lambda: np.ones(30_000_000))
    assert "RuntimeWarning" in broken(lambda: np.log(np.zeros(1)))
    monkeypatch.setattr(sys.modules[__name__], "MAX_SECONDS", 0.005)
    assert "took" in broken(lambda: sum(range(3_000_000)))
    assert broken(lambda: None) == ""
