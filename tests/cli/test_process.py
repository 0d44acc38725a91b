"""The installed command as a process of its own: exit codes, signals, pipes, terminals."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import dissensus

COMMAND = [sys.executable, "-m", "dissensus"]


def run(*args: str, **more: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *args], capture_output=True, text=True, timeout=60, check=False, **more)  # type: ignore[call-overload]


def test_console_script_is_installed(cli):
    script = Path(sys.executable).with_name("dissensus")
    assert script.exists()
    shown = subprocess.run([script, "--version"], capture_output=True, text=True, check=True).stdout
    assert shown == cli("--version").stdout == f"dissensus {dissensus.__version__}\n"


def test_help_has_every_command_and_an_example(cli):
    from dissensus.cli import COMMANDS

    overview = cli("-h").stdout
    for command in COMMANDS:
        assert command in overview
        assert f"Example: dissensus {command}" in cli(command, "--help").stdout


def test_exit_codes_of_the_process(labels):
    assert run("aggregate", "labels.csv", "-o", "out").returncode == 0
    for args, code in ((("describe", "nowhere.csv"), 1), (("aggregate", "labels.csv", "--method", "x"), 2)):
        result = run(*args)
        assert (result.returncode, result.stdout) == (code, "")
        assert result.stderr.startswith("dissensus: ")
        assert result.stderr.count("\n") == 1


def test_ascii_stdout_gets_utf8_json_and_readable_tables(here):
    Path("a.csv").write_text("item,annotator,label\na,x,naïve\n", encoding="utf-8")
    poor = os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    assert "na\\xefve" in run("describe", "a.csv", env=poor).stdout
    raw = subprocess.run([*COMMAND, "describe", "a.csv", "--json"], capture_output=True, check=True, env=poor).stdout
    assert list(json.loads(raw.decode("utf-8"))["class_shares"]) == ["naïve"]


def test_closed_pipe_is_quiet(labels):
    reader, writer = os.pipe()
    os.close(reader)
    for args in (["list", "methods"], ["list", "methods", "--json"]):
        process = subprocess.run([*COMMAND, *args], stdout=writer, stderr=subprocess.PIPE, check=False)
        assert (process.returncode, process.stderr) == (141, b"")
    os.close(writer)


class Terminal:
    """A process whose stderr is a terminal."""

    def __init__(self, *args: str, **env: str):
        self.screen, end = pty.openpty()
        environ = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "CI")}
        self.process = subprocess.Popen(
            [*COMMAND, *args], stdout=subprocess.PIPE, stderr=end, env=environ | {"TERM": "xterm-256color"} | env
        )
        os.close(end)
        self.seen = ""

    def wait_for(self, text: str, seconds: float = 30) -> None:
        until = time.monotonic() + seconds
        while text not in self.seen:
            assert time.monotonic() < until, self.seen
            if select.select([self.screen], [], [], 0.1)[0]:
                self.read()

    def end(self) -> int:
        """The exit code, after reading what is left."""
        self.process.communicate(timeout=30)
        while select.select([self.screen], [], [], 0)[0] and self.read():
            pass
        os.close(self.screen)
        return self.process.returncode

    def read(self) -> bool:
        try:
            data = os.read(self.screen, 65536).decode(errors="replace")
        except OSError:  # the other end is closed
            return False
        self.seen += data
        return bool(data)


LONG = ("--set", "restarts=100000")  # minutes


@pytest.mark.parametrize(
    ("number", "code", "env"), [(signal.SIGINT, 130, {}), (signal.SIGTERM, 143, {"NO_COLOR": "1"})]
)
def test_signal_in_a_long_fit_leaves_nothing_and_the_bar_has_shown_the_objective(labels, here, number, code, env):
    run(
        "aggregate", "labels.csv", "--set", "restarts=2"
    )  # compiles; a signal in the middle of that is reported by numba
    before = sorted(here.iterdir())
    process = Terminal("aggregate", "labels.csv", "-o", "out", *LONG, **env)
    process.wait_for("objective")
    process.process.send_signal(number)
    assert process.end() == code
    assert "Traceback" not in process.seen
    assert sorted(here.iterdir()) == before
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", process.seen)
    assert re.search(r"fitting labels.csv.*pass [\d,]+ of at most 50,000,000, objective -[\d.,]+", plain)
    assert bool(re.search(r"\x1b\[[0-9;]*m", process.seen)) is not bool(env)
    if number == signal.SIGINT:
        assert "dissensus: interrupted." in plain


DROPPED = """
import os, signal, sys, time
from dissensus.cli import main
from dissensus.table import io

class Callback:
    def __del__(self):  # Python drops what is raised here, as in callbacks of the compiler
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)

def read(*_, **__):
    Callback()
    raise SystemExit

io.read = read
sys.argv = ["dissensus", "describe", "labels.csv"]
main()
"""


def test_an_interruption_that_python_drops_is_one_line(labels):
    done = subprocess.run([sys.executable, "-c", DROPPED], capture_output=True, text=True, cwd=labels.parent)
    assert (done.returncode, done.stderr.count("\n")) == (130, 1)


UNWRITABLE = """
import warnings, numba
import numpy as np
from dissensus.common.jit import lazy_jit
njit = numba.njit

def nowhere(**keywords):  # as on a read-only disk
    if keywords.get("cache"):
        raise RuntimeError("cannot cache function: no locator available")
    return lambda function: function

numba.njit = nowhere
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    one, other = lazy_jit(lambda x: x), lazy_jit(lambda x: -x)
    assert (one(1), other(1)) == (1, -1)
print([type(one.message).__name__ for one in caught])
"""


def test_code_that_cannot_be_cached_is_one_warning():
    done = subprocess.run([sys.executable, "-c", UNWRITABLE], capture_output=True, text=True, check=True)
    assert done.stdout == "['NoCodeCache']\n"


@pytest.mark.parametrize(
    ("shell", "typed", "offered"),
    [
        ("bash", "dissensus aggr", "aggregate"),
        ("bash", "dissensus aggregate --engi", "--engine"),
        ("zsh", "dissensus aggregate --engine to", "torch"),
        ("fish", "dissensus aggregate labels.csv --method dawid", "dawid-skene"),
        ("bash", "dissensus aggregate labels.csv --to label", "label-studio"),
    ],
)
def test_a_shell_completes_commands_options_and_names(shell, typed, offered):
    words = {"COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}
    words |= {"_TYPER_COMPLETE_ARGS": typed, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    done = run(env=os.environ | words | {"_DISSENSUS_COMPLETE": f"complete_{shell}"})
    assert offered in done.stdout, done.stderr


def test_progress_into_a_pipe_is_plain_lines_and_quiet_has_none(labels):
    for more, there in (((), True), (("--quiet",), False)):
        process = subprocess.Popen(
            [*COMMAND, "aggregate", "labels.csv", *LONG, *more],
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            seen = select.select([process.stderr], [], [], 20 if there else 4)[0]
            assert bool(seen) is there
            if there:
                line = r"dissensus: (fitting|reading) labels.csv.* \(\d+ s\)\n"
                assert re.fullmatch(line, process.stderr.readline())
        finally:
            process.kill()
            process.communicate()


def test_a_command_ends_without_the_last_steps_of_the_interpreter():
    """Threads of Arrow that let go of a file during these abort the process; whoever asked to be called at exit is."""
    code = (
        "import atexit, sys, threading, time; from dissensus.cli import main;"
        "atexit.register(print, 'called'); threading.Thread(target=time.sleep, args=(60,)).start();"
        "sys.argv = ['dissensus', '--version']; main()"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50)
    assert found.returncode == 0
    assert found.stdout.splitlines()[1:] == ["called"]
