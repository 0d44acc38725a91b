"""What all tests share: the data folder, where there is one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import settings

# tests run side by side: threads of each would wait for each other; UMAP gives torch as many as numba may have
os.environ |= {name: "1" for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS") if name not in os.environ}

# the first example may compile kernels, which takes seconds; tests try the same examples each time, `make fuzz` others
settings.register_profile("dissensus", deadline=None, max_examples=40, derandomize=True)
settings.register_profile("fuzz", deadline=None, max_examples=1000)
settings.load_profile("dissensus")

COMPILED = {"models", "compute"}  # folders of tests; elsewhere short tables are walked in NumPy, as users' are

collect_ignore = [] if find_spec("triton") else ["src/dissensus/compute/kernels/on_triton.py"]


def real_data() -> Path | None:
    """Return the folder in DISSENSUS_DATA, if it exists."""
    named = os.environ.get("DISSENSUS_DATA")
    return Path(named) if named and Path(named).is_dir() else None


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that needs the real data sets where they are not there."""
    if item.get_closest_marker("realdata") and real_data() is None:
        pytest.skip("DISSENSUS_DATA does not name a folder with the real data sets")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test with the argument `readme` and the mark realdata(has=TEXT) for every set whose README has the text."""
    if "readme" not in metafunc.fixturenames:
        return
    text, folder = next(metafunc.definition.iter_markers("realdata")).kwargs["has"], real_data()
    found = [] if folder is None else [path for path in sorted(folder.glob("*/README.md")) if text in path.read_text()]
    metafunc.parametrize("readme", found or [None], ids=[path.parent.name for path in found] or ["no-data"])


@pytest.fixture(scope="session", autouse=True)
def cache_of_our_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Isolate tests from the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DISSENSUS_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def kernels_for_short_tables(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Use compiled passes in tests of models and engines, whose tables are short, except in those marked `readable`."""
    folders = request.path.relative_to(request.config.rootpath).parts
    if COMPILED.intersection(folders) and request.node.get_closest_marker("readable") is None:
        monkeypatch.setattr("dissensus.compute.chunk.MIN_KERNEL_ROWS", 0)
        monkeypatch.setattr("dissensus.models.methods.community_bcc.MIN_PARAMETERS_FOR_KERNEL", 0)


@pytest.fixture
def data_folder() -> Path:
    """Return the folder of the real data sets; the test must be marked `realdata`."""
    folder = real_data()
    assert folder is not None, "a test that uses data_folder must be marked realdata"
    return folder
