import numpy as np
import pytest
import torch

from dissensus.common.exceptions import CannotWrite
from dissensus.learning.exceptions import (
    DamagedModelFile,
    FileFormatDiffers,
    ModelFileMissing,
    NotStorable,
)
from dissensus.learning.storage import read_tree, write_tree
from faults import raised

TREE = {
    "weights": {"a.weight": torch.arange(6.0).reshape(2, 3), "n": torch.tensor(3)},
    "state": {0: {"step": torch.tensor(2.0), "lr": 0.1}, 1: None},
    "array": np.arange(4, dtype=np.int32),
    "names": np.array(["x", "ü"], object),
    "values": [1, "two", 3.0, True, None, (1, 2), float("inf")],
    "scalar": np.float64(0.5),
}


def same(a, b):
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.tolist() == b.tolist()
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return a == b


def test_a_tree_comes_back_as_it_was(tmp_path):
    path = write_tree(tmp_path / "new" / "tree", TREE, "thing")
    assert same(TREE, read_tree(path, "thing"))


def test_weights_that_share_memory_are_stored(tmp_path):
    x = torch.ones(3)
    back = read_tree(write_tree(tmp_path / "t", {"a": x, "b": x}, "thing"), "thing")
    assert torch.equal(back["a"], x)
    assert torch.equal(back["b"], x)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with raised(ModelFileMissing, kind="thing", path=tmp_path / "t"):
        read_tree(tmp_path / "t", "thing")


@pytest.mark.parametrize("cut", [3, 100, -1])
def test_a_cut_file_is_an_error(tmp_path, cut):
    path = write_tree(tmp_path / "t", TREE, "thing")
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(DamagedModelFile):
        read_tree(path, "thing")


def test_a_changed_bit_is_an_error(tmp_path):
    path = write_tree(tmp_path / "t", TREE, "thing")
    data = bytearray(path.read_bytes())
    data[-2] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamagedModelFile):
        read_tree(path, "thing")


def test_a_changed_name_is_an_error(tmp_path):
    path = write_tree(tmp_path / "t", TREE, "thing")
    data = path.read_bytes()
    for old, new in ((b"two", b"owt"), ("xü".encode(), "yü".encode())):
        assert data.count(old) == 1
        path.write_bytes(data.replace(old, new))
        with pytest.raises(DamagedModelFile):
            read_tree(path, "thing")


def test_many_names_do_not_fill_the_header(tmp_path):
    names = np.array([f"{i:036d}" for i in range(3000)], object)
    path = write_tree(tmp_path / "t", {"names": names}, "thing")
    assert int.from_bytes(path.read_bytes()[:8], "little") < 2000
    assert read_tree(path, "thing")["names"].tolist() == names.tolist()
    assert read_tree(write_tree(tmp_path / "t", {"n": names[:0]}, "thing"), "thing")["n"].shape == (0,)


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with raised(CannotWrite, path=tmp_path / "file"):
        write_tree(tmp_path / "file" / "t", TREE, "thing")


def test_a_pickle_is_never_read(tmp_path):
    path = tmp_path / "t"
    torch.save({"a": torch.ones(2)}, path)
    with raised(DamagedModelFile, kind="thing", path=path):
        read_tree(path, "thing")


def test_another_kind_or_format_says_which(tmp_path, monkeypatch):
    path = write_tree(tmp_path / "t", TREE, "thing")
    with raised(FileFormatDiffers, kind="thing", format=2, expected_kind="model", expected_format=2):
        read_tree(path, "model")
    monkeypatch.setattr("dissensus.learning.storage.FORMAT_NUMBER", 3)
    with raised(FileFormatDiffers, kind="thing", format=2, expected_kind="thing", expected_format=3):
        read_tree(path, "thing")


def test_what_cannot_be_stored_is_an_error(tmp_path):
    with raised(NotStorable, kind="builtin_function_or_method"):
        write_tree(tmp_path / "t", {"f": len}, "thing")
    assert not list(tmp_path.iterdir())
