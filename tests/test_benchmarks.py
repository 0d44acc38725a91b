"""The benchmarks can be started, and what is stored of them names a command that exists."""

import importlib
import importlib.util
import re
from pathlib import Path

import pytest

from benchmarks.house import code_tokens
from dissensus.common.json_lines import read_lines

FOLDER = Path(__file__).parent.parent / "benchmarks"
MODULES = sorted(
    ".".join(path.relative_to(FOLDER.parent).with_suffix("").parts)
    for path in FOLDER.rglob("*.py")
    if path.parent.name != "peers"  # these run in environments of their own
)
STORES = sorted(FOLDER.glob("*/results/*.jsonl"))


@pytest.mark.parametrize("name", MODULES)
def test_every_benchmark_can_be_imported(name):
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name.split(".")[0] in ("dissensus", "benchmarks", "reproductions", "tests"):
            raise
        pytest.skip(f"needs {error.name}")


@pytest.mark.parametrize("store", STORES, ids=lambda path: f"{path.parents[1].name}-{path.stem}")
def test_every_stored_result_names_a_command_that_exists(store):
    lines = read_lines(store)
    assert lines
    for line in lines:
        module = re.match(r"python -m ([\w.]+)", line["made"]["by"])[1]
        assert importlib.util.find_spec(module) is not None
        assert line["made"].keys() >= {"date", "commit", "cpu", "cores", "memory_gb"}
    marks = (store.parents[1] / "README.md").read_text(encoding="utf-8")
    assert f"<!-- {store.stem}: begin -->" in marks or store.stem in ("wide-resnet-speed", "read")


def test_the_replay_of_next_runs_on_a_project_of_today():
    from benchmarks.serve import replay_next

    data = replay_next.load("digits-crowd", 20)
    for smart in (False, True):
        run = replay_next.replay(data, smart, 0, until=40)
        assert run.labels >= 40  # a visit ends first
        assert len(run.looks) == run.labels // 2
        assert 0 < run.end <= 1


def test_code_tokens_are_neither_comments_nor_docstrings_nor_layout():
    text = '"""A module."""\n\n\ndef f(x):  # twice\n    """Say it."""\n    return x + "s"\n'
    assert code_tokens(text) == len(["def", "f", "(", "x", ")", ":", "return", "x", "+", '"s"'])


def test_the_page_of_benchmarks_is_that_of_the_stored_results():
    from benchmarks import page

    text = page.PAGE.read_text(encoding="utf-8")
    for part in [*page.speed_section(), *page.accuracy_section()]:
        assert part in text
    lost = re.findall(
        r"ours is significantly better in \d+ and worse in (\d+)", (FOLDER / "accuracy" / "README.md").read_text()
    )
    tables = text.split("### Where a peer")[1:]
    levels = [re.findall(r"\(((?:\d+|all)(?:, (?:\d+|all))*)\)", table) for table in tables]
    assert [sum(len(one.split(", ")) for one in table) for table in levels] == [int(n) for n in lost]
