"""The cache on disk: only new inputs are computed; it survives damage, kills and concurrent processes."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dissensus.features import cache as module
from dissensus.features.cache import cache_folder, embed_with_cache, hash_parts
from dissensus.features.exceptions import CacheNotWritable, DamagedCache, VectorNotFinite
from faults import raised, warned

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(module.__file__).parents[2])}


def keys_of(numbers):
    return [hash_parts(str(number).encode()) for number in numbers]


class Squares:
    """A model of numbers, which notes what it was asked for."""

    def __init__(self, numbers):
        self.numbers, self.asked = list(numbers), []

    def __call__(self, places):
        self.asked += [self.numbers[i] for i in places]
        return np.array([[self.numbers[i], self.numbers[i] ** 2, 1] for i in places], np.float32).reshape(-1, 3)


def ask(numbers, folder, **more):
    model = Squares(numbers)
    rows = embed_with_cache(keys_of(numbers), model, "squares", folder, **more)
    np.testing.assert_array_equal(rows, [[n, n**2, 1] for n in numbers])
    assert rows.dtype == np.float32
    return model.asked


def test_only_what_is_new_is_computed_and_each_input_once(tmp_path):
    assert ask([5, 3, 5, 3, 9], tmp_path) == [5, 3, 9]
    assert ask([9, 4, 3, 4], tmp_path) == [4]
    assert ask([4, 9], tmp_path) == []
    assert ask([4, 9], tmp_path / "other") == [4, 9]


def test_models_do_not_share_vectors(tmp_path):
    ask([1, 2], tmp_path)
    model = Squares([1, 2])
    embed_with_cache(keys_of([1, 2]), model, "other squares", tmp_path)
    assert model.asked == [1, 2]


def test_without_a_cache_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.setenv("DISSENSUS_CACHE", str(tmp_path))
    assert ask([1, 2, 1], False) == [1, 2]
    assert list(tmp_path.iterdir()) == []
    assert ask([1, 2, 1], True) == [1, 2]
    assert ask([1, 2, 1], True) == []


def test_no_inputs_are_no_rows(tmp_path):
    assert embed_with_cache([], Squares([]), "squares", tmp_path).shape == (0, 3)


def test_large_inputs_are_computed_first_and_progress_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "INPUTS_PER_TRANSACTION", 2)
    ask([7], tmp_path)
    told = []
    size = np.array([1, 5, 3, 5, 9])
    asked = ask([1, 5, 3, 5, 7], tmp_path, size=size, on_rows=lambda done, total: told.append((done, total)))
    assert asked == [5, 3, 1]
    assert told == [(3, 4), (4, 4)]


def test_a_key_depends_on_how_its_parts_are_divided():
    assert hash_parts(b"ab", b"c") != hash_parts(b"a", b"bc") != hash_parts(b"abc")
    assert len(hash_parts(b"")) == 16


def test_keys_that_end_in_zeros_are_told_apart(tmp_path):
    keys = [b"a" * 15 + b"\0", b"a" * 14 + b"\0\0", b"\0" * 16]
    for _ in range(2):
        rows = embed_with_cache(keys, Squares([1, 2, 3]), "squares", tmp_path)
        np.testing.assert_array_equal(rows[:, 0], [1, 2, 3])


@pytest.mark.parametrize("harm", ["cut", "flipped", "no database"])
def test_damaged_vectors_are_computed_again_with_one_warning(tmp_path, harm):
    ask(range(500), tmp_path)
    path = tmp_path / "squares.sqlite"
    data = path.read_bytes()
    middle = data.index(np.float32(2401).tobytes())  # 49²
    flipped = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
    path.write_bytes({"cut": data[: len(data) // 2], "flipped": flipped, "no database": b"x" * 9999}[harm])
    with warned(DamagedCache, path=path):
        asked = ask(range(500), tmp_path)
    assert asked == [49] if harm == "flipped" else 49 in asked
    if harm != "cut":
        assert ask(range(500), tmp_path) == []  # without a warning, which would be an error
    else:  # what was read before the damage is not added again
        assert ask(asked, tmp_path) == []


def test_an_empty_file_is_an_empty_cache(tmp_path):
    (tmp_path / "squares.sqlite").write_bytes(b"")
    assert ask([1, 2], tmp_path) == [1, 2]
    assert ask([1, 2], tmp_path) == []


def test_many_keys_are_read_in_several_queries(tmp_path, monkeypatch):
    ask(range(20), tmp_path)
    monkeypatch.setattr(module, "KEYS_PER_QUERY", 3)
    assert ask(range(25), tmp_path) == [20, 21, 22, 23, 24]


def test_a_folder_that_cannot_be_written_is_reported_once(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "INPUTS_PER_TRANSACTION", 2)
    (tmp_path / "file").write_text("a file where the folder should be")
    with warned(CacheNotWritable, path=tmp_path / "file" / "squares.sqlite"):
        assert ask([1, 2, 3, 4, 5], tmp_path / "file") == [1, 2, 3, 4, 5]
    (tmp_path / "squares.sqlite").mkdir()
    with warned(CacheNotWritable, path=tmp_path / "squares.sqlite"):
        assert ask([1, 2, 3, 4, 5], tmp_path) == [1, 2, 3, 4, 5]


def test_vectors_that_are_not_finite_are_an_error_and_not_kept(tmp_path):
    with raised(VectorNotFinite, row=2):
        embed_with_cache(keys_of([1, 2, 3]), lambda places: np.log(np.array([[1.0], [1.0], [np.nan]])), "bad", tmp_path)
    assert not list(tmp_path.iterdir())


WORK = """
import sys, warnings
import numpy as np
from dissensus.features import cache
warnings.simplefilter("error")
for n in range(int(sys.argv[2]), int(sys.argv[2]) + 12):
    keys = [cache.hash_parts(str(i).encode()) for i in (n, n + 1)]
    squares = lambda at: np.array([[n + i, (n + i) ** 2, 1] for i in at])
    rows = cache.embed_with_cache(keys, squares, "squares", sys.argv[1])
    assert rows.tolist() == [[i, i ** 2, 1] for i in (n, n + 1)]
"""


def test_processes_may_work_at_the_same_time(tmp_path):
    workers = [
        subprocess.Popen([sys.executable, "-c", WORK, str(tmp_path), str(start)], env=ENVIRONMENT)
        for start in (0, 5, 5)
    ]
    assert [worker.wait() for worker in workers] == [0, 0, 0]
    assert ask(range(18), tmp_path) == []


KILLED = """
import os, signal, sys
import numpy as np
from dissensus.features import cache
cache.INPUTS_PER_TRANSACTION = 2
def compute(places):
    if 4 in places:
        os.kill(os.getpid(), signal.SIGKILL)
    return np.array([[i, i ** 2, 1] for i in places], np.float32)
cache.embed_with_cache([cache.hash_parts(str(i).encode()) for i in range(6)], compute, "squares", sys.argv[1])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_killed_run_keeps_what_it_had_computed(tmp_path):
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], env=ENVIRONMENT)
    assert done.returncode == -signal.SIGKILL
    assert ask(range(6), tmp_path) == [4, 5]


def test_where_the_cache_is(monkeypatch, tmp_path):
    assert cache_folder(False) is None
    assert cache_folder("here") == Path("here")
    monkeypatch.setenv("DISSENSUS_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("DISSENSUS_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setattr(sys, "platform", "linux")
    assert cache_folder() == tmp_path / "xdg" / "dissensus"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "dissensus"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert cache_folder() == tmp_path / "Library" / "Caches" / "dissensus"
