"""A model that was altered on the disk is refused in one sentence, whichever of its arrays it was."""

import json
import warnings
import zipfile

import numpy as np
import pytest

from dissensus import load, methods, save
from dissensus.clustering import clusterings
from dissensus.exceptions import BadParameter, UnknownName
from dissensus.models.exceptions import (
    CompressedArrays,
    DamagedModel,
    MissingResult,
    UnknownResult,
    ValueOutOfRange,
    WrongFormat,
    WrongSavedArray,
)
from dissensus.models.saving import OPTIONAL_PREFIX, RANGES
from dissensus.table.simulate import simulate
from tables import drawn

EVERY = [*methods, *clusterings]


def fitted(name):
    kind = methods[name] if name in methods else clusterings[name]
    binary = name in methods and methods.entry(name).facts.get("binary")
    table = simulate(31, 9, 2 if binary else 4, redundancy=3, seed=0).annotations
    if "classes" not in kind.kinds:
        table = drawn(kind.kinds[0])
    keywords = {"max_iter": 3} if "max_iter" in kind.declared() else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return kind(**keywords).fit(table), table


def rewrite(path, change):
    """Change what is stored: `change` takes the arrays, among them the header as a dict."""
    with np.load(path) as stored:
        arrays = dict(stored)
    arrays["header"] = json.loads(arrays["header"].tobytes())
    change(arrays)
    arrays["header"] = np.frombuffer(json.dumps(arrays["header"]).encode(), np.uint8)
    np.savez(path, **arrays)


def altered(array):
    """The array with other shapes, types and values."""
    yield "cut", array[:1]
    yield "longer", np.concatenate([array, array])
    yield "one axis more", array[None]
    yield "scalar", array.ravel()[0] if array.size else np.float64(0)
    yield "text", np.full(array.shape, "a")
    yield "complex", array.astype(complex)
    yield "swapped bytes", array.astype(array.dtype.newbyteorder(">"))
    if array.size:
        yield "empty", array[:0]
        huge = array.copy()
        huge.flat[0] = -(2**31) if array.dtype.kind == "i" else -1e30
        yield "negative", huge


@pytest.mark.parametrize("name", EVERY)
def test_the_schema_names_all_that_a_method_stores(name, tmp_path):
    model, table = fitted(name)
    there = {key for key in vars(model) if key.endswith("_") and not key.startswith("_")}
    optional = {"items_path_", *(key for key, about in model.results().items() if about.startswith(OPTIONAL_PREFIX))}
    assert there - optional == {*model.results()} - optional
    for items in (True, False):
        loaded = load(save(model, tmp_path, items=items))
        np.testing.assert_array_equal(loaded.predict(table), model.predict(table))


FREE = {"trace_"}  # of any length and any values
SIGNED = (" real", " names", " flag")  # may be negative


@pytest.mark.parametrize("name", EVERY)
def test_an_altered_array_is_refused_in_one_sentence(name, tmp_path):
    model, _ = fitted(name)
    path = save(model, tmp_path)
    whole, schema = path.read_bytes(), model.results()
    with np.load(path) as stored:
        arrays = {key: stored[key] for key in stored.files if key != "header" and not key.endswith(":bytes")}
    tried = 0
    for key, array in arrays.items():
        for how, other in altered(array):
            may = key in FREE or (how == "negative" and schema.get(key, "").endswith(SIGNED))
            if may or np.array_equal(other, array):
                continue
            path.write_bytes(whole)
            rewrite(path, lambda stored, key=key, other=other: stored.update({key: other}))
            with pytest.raises(DamagedModel):
                load(path)
            tried += 1
        path.write_bytes(whole)
        rewrite(path, lambda stored, key=key: stored.pop(key))
        if not schema.get(key, "").startswith(OPTIONAL_PREFIX):
            with pytest.raises(DamagedModel) as caught:
                load(path)
            if ":" not in key:
                assert caught.value.__cause__.name == key
    assert tried > 50


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda header: header.update(parameters={"seed": -5}), BadParameter),
        (lambda header: header.update(parameters={"seed": [1]}), BadParameter),
        (lambda header: header.update(parameters={"nothing": 1}), TypeError),
        (lambda header: header.update(method="none"), UnknownName),
        (lambda header: header.update(method=["mace"]), TypeError),
        (lambda header: header.update(values=[1]), TypeError),
        (lambda header: header["values"].update(predict=1), UnknownResult),
        (lambda header: header["values"].update(_fit=1), UnknownResult),
        (lambda header: header["values"].update(n_iter_="many"), WrongSavedArray),
        (lambda header: header["values"].update(tie_seed_=-1), ValueOutOfRange),
        (lambda header: header["values"].update(dependence_=None), WrongSavedArray),
        (lambda header: header["values"].pop("converged_"), MissingResult),
        (lambda header: header.pop("parameters"), KeyError),
    ],
)
def test_an_altered_header_is_refused_in_one_sentence(change, cause, tmp_path):
    path = save(fitted("dawid-skene")[0], tmp_path)
    rewrite(path, lambda stored: change(stored["header"]))
    with pytest.raises(DamagedModel) as caught:
        load(path)
    assert isinstance(caught.value.__cause__, cause)
    assert len(str(caught.value)) < 400


def test_a_file_of_another_format_is_refused(tmp_path):
    path = save(fitted("dawid-skene")[0], tmp_path)
    rewrite(path, lambda stored: stored["header"].update(format=["x" * 999]))
    with pytest.raises(WrongFormat) as caught:
        load(path)
    assert len(str(caught.value)) < 400


def test_a_packed_archive_is_refused_before_it_is_unpacked(tmp_path):
    path = save(fitted("dawid-skene")[0], tmp_path)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb_.npy", bytes(10**7))
    with pytest.raises(DamagedModel) as caught:
        load(path)
    assert isinstance(caught.value.__cause__, CompressedArrays)


def test_names_that_do_not_fill_their_bytes_are_refused(tmp_path):
    table = simulate(10, 4, 3, redundancy=3, seed=0).annotations
    from dissensus import Annotations

    texts = [np.array([f"n{name}" for name in names], object) for names in (table.items, table.annotators)]
    model = methods["dawid-skene"]().fit(
        Annotations.from_codes(table.item, table.annotator, table.label, *texts, table.classes)
    )
    path = save(model, tmp_path)
    for offsets in ([], [0, 2], [0, 9, 2, 6, 8], [-1, 2, 4, 6, 8], [[0, 2, 4, 6, 8]], [0.0, 2, 4, 6, 8]):
        rewrite(path, lambda stored, offsets=offsets: stored.update({"annotators_:offsets": np.array(offsets)}))
        with pytest.raises(DamagedModel):
            load(path)


def test_every_range_of_the_schema_is_used():
    kinds = [methods[name] if name in methods else clusterings[name] for name in EVERY]
    used = {about.split()[-1].partition(":")[0] for kind in kinds for about in kind.results().values()}
    assert used | {"nearly-simplex"} == set(RANGES)  # that one is of `learning.saving`
