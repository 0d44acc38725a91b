from __future__ import annotations

import io
import time

import pytest
from rich.console import Console

from dissensus.cli import show
from dissensus.common import progress


def test_what_rounds_to_nothing_has_no_sign():
    assert (show.format_number(-0.0001), show.format_number(-0.0006), show.format_interval(-1e-9, 0.2)) == (
        "0.000",
        "-0.001",
        "0.000 to 0.200",
    )


def test_output_that_is_no_terminal_is_plain_and_no_wider_than_100(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    text = cli("list", "methods").stdout
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 100


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What a terminal at stderr would have shown."""
    text = io.StringIO()
    terminal = Console(file=text, force_terminal=True, force_interactive=True, markup=False, width=120)
    monkeypatch.setattr(progress, "make_console", lambda **_: terminal)
    return text


def test_bar_waits_for_a_while(screen, monkeypatch):
    with show.show_progress("quick", 10) as on_step:
        on_step(1, -2.0)
    assert screen.getvalue() == ""
    monkeypatch.setattr(progress, "SECONDS_BEFORE_BAR", 0.01)
    with show.show_progress("slow [red]", 10) as on_step:
        on_step(3, -2.5)
        time.sleep(0.3)
    assert "slow [red]" in screen.getvalue()
    assert "pass 3 of at most 10, objective -2.5" in screen.getvalue()


def test_bar_stops_when_the_work_fails(screen, monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_BEFORE_BAR", 0.0)

    def work():
        with show.show_progress("reading"):
            time.sleep(0.1)
            raise ValueError("no good")

    with pytest.raises(ValueError, match="no good"):
        work()
    assert screen.getvalue().endswith("\x1b[2K")  # the line is gone


def test_no_share_of_a_few_is_said_to_be_0_or_all():
    assert [show.format_percent(share) for share in (0, 1 / 3231, 0.25, 3230 / 3231, 1)] == [
        "0.0 %", "less than 0.1 %", "25.0 %", "more than 99.9 %", "100.0 %",
    ]  # fmt: skip
