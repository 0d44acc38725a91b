"""What a process imports before it does anything: modules are counted, as seconds would depend on the machine."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest

from dissensus.cli import COMMANDS

NUMERICAL = {"numpy", "numba", "scipy", "pyarrow", "sklearn", "torch", "pandas", "altair", "vl_convert", "jinja2"}
RUN = "from dissensus.cli import main; main()"


def imported(code: str, *arguments: object) -> set[str]:
    """The packages in memory when a process ends, and how it ended."""
    ending = "import atexit, sys; atexit.register(lambda: print('packages:', *{n.split('.')[0] for n in sys.modules}))"
    command = [sys.executable, "-c", f"{ending}\n{code}", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].removeprefix("packages: ").split())


def test_import_brings_no_numerical_library():
    assert not imported("import dissensus") & NUMERICAL


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("aggregate", "--help"), ("cluster", "--help")])
def test_help_brings_no_numerical_library(arguments):
    assert not imported(RUN, *arguments) & NUMERICAL


def test_a_command_brings_no_library_that_it_does_not_need(labels):
    found = imported(RUN, "aggregate", labels, "-o", "out")
    assert {"numpy", "pyarrow"} <= found
    assert not found & {"pandas", "sklearn", "torch", "duckdb", "altair", "vl_convert", "jinja2", "matplotlib"}


def test_only_the_chosen_command_is_imported():
    code = "from dissensus.cli import load_command; load_command('diagnose'); import sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    commands = {name.rpartition(".")[2] for name in done.stdout.split() if name.startswith("dissensus.cli.")}
    assert not commands & set(COMMANDS)  # its question is declared elsewhere


def test_public_names_that_hide_their_module_are_what_they_were():
    import dissensus

    found = {name for name in dissensus.__all__ if isinstance(getattr(dissensus, name), ModuleType)}
    assert found == {"clustering", "evaluation", "features", "learning", "models", "simulate"}
