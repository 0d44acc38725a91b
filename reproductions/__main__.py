"""`python -m reproductions`: run the papers' tables and compare them with the published figures."""

from __future__ import annotations

import signal
import sys
from inspect import cleandoc
from pathlib import Path
from typing import Annotated, Any

import typer

from dissensus.cli import folder
from dissensus.cli.errors import BAD_DATA, print_to_stderr, report_errors
from dissensus.common.progress import escape, make_console, show_progress
from dissensus.exceptions import BadParameter, UnreadableFile


def reproduce(
    what: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PAPER [TABLE …]]", show_default=False, help="A paper, and its tables; left out, all."),
    ] = None,
    *,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="Pages and results are written here.")
    ] = Path("reproduced"),
    list_: Annotated[
        bool, typer.Option("--list", help="List papers and tables, and how much there is to run.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Few seeds and short trainings: minutes on a laptop.")] = False,
    seeds: Annotated[int | None, typer.Option("--seeds", metavar="N", help="As many seeds, instead.")] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", metavar="N", help="Number of processes.")] = 1,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:1.")] = "auto",
    minutes: Annotated[
        float | None,
        typer.Option("--minutes", metavar="M", help="Start no cell after this time; run again to continue."),
    ] = None,
    prepare: Annotated[
        bool,
        typer.Option(
            "--prepare", help="Run nothing: make the vectors that need a pretrained model, for a machine without."
        ),
    ] = False,
    render: Annotated[bool, typer.Option("--render", help="Run nothing: write the pages of what is there.")] = False,
) -> None:
    """Run the tables of a paper again, and compare them with the published figures.

    FOLDER gets PAPER.md, PAPER.html and a picture of the claims, and PAPER.jsonl with one line per finished part: a run
    that was stopped continues when the same command is run again. The data are in the folder that
    DISSENSUS_DATA names.

    Example: python -m reproductions weerasooriya2021 table3 --quick

    Example: python -m reproductions platanios2020 --device cuda --minutes 9
    """
    from reproductions import load_paper, paper_names
    from reproductions import reproduce as run
    from reproductions.record import read_store
    from reproductions.runner import Failure, draw_figures, figure_files
    from reproductions.watch import ProgressTable

    for name, value in (("--jobs", jobs), ("--seeds", seeds)):
        if value is not None and value < 1:
            raise BadParameter(f"{name} must be at least 1, got {value}.")
    papers = [load_paper(name) for name in ((what or [])[:1] or paper_names())]
    tables = {paper.name: paper.only((what or [])[1:]) for paper in papers}
    out = make_console()
    if list_:
        for paper in papers:
            out.print(escape(f"{paper.name}: {paper.title}"), soft_wrap=True)
            for table in tables[paper.name]:
                full, few = (sum(1 for _ in table.cells(quick=q, seeds=seeds)) for q in (False, True))
                out.print(
                    escape(f"  {table.name:8} {table.title} ({full} parts; --quick {few})"),
                    soft_wrap=True,
                )
        return
    folder.check_folder(output)
    if not render:
        _check(device)
    left = failed = 0
    for paper in papers:
        store = output / f"{paper.name}{'-quick' if quick else ''}.jsonl"
        wanted = tables[paper.name]
        failures: list[Failure] = []
        if prepare:
            with show_progress(f"preparing {paper.name}"):
                getattr(paper.module, "prepare", lambda: None)()
            continue
        if not render:
            try:
                _, failures = run(
                    wanted, store, quick=quick, seeds=seeds, jobs=jobs, device=device, minutes=minutes,
                    watch=ProgressTable(jobs),
                )  # fmt: skip
            except KeyboardInterrupt:
                print_to_stderr(
                    f"{len(read_store(store))} parts are in {store}; run the same command again to continue, or with "
                    "--render to write pages."
                )
                raise
        there = read_store(store)  # The page also shows the results of earlier runs.
        _write_page(paper, output, store.stem, there, failures, quick)
        missing = sum(1 for table in wanted for cell in table.cells(quick=quick, seeds=seeds) if cell.key not in there)
        left, failed = left + missing, failed + len(failures)
        note = f"; {missing} parts are left, {len(failures)} of them failed" if missing else ""
        out.print(escape(f"{output / store.stem}.md, .html{note}"), soft_wrap=True)
        if not render:  # last: they take their time, whatever the --minutes
            for file, why in draw_figures(paper, wanted, output, device, quick=quick).items():
                print_to_stderr(f"{file} was not drawn: {why}")
        elif absent := [file for file in figure_files(paper.tables.values()) if not (output / file).exists()]:
            again = f"`python -m reproductions {paper.name}` without --render draws it."
            print_to_stderr(f"{', '.join(absent)}: not in {output}; {again}")
    if left and not render:
        print_to_stderr(
            f"{left} parts are left{f', {failed} of which failed' if failed else ''}; run the same command again to "
            "continue."
        )
    if failed:
        raise typer.Exit(BAD_DATA)


def _write_page(paper: Any, output: Path, name: str, lines: Any, failures: Any, quick: bool) -> None:
    """NAME.md, NAME.html and the picture of the claims, each whole or not at all."""
    from dissensus.common.atomic import open_atomically
    from reproductions import make_page, render_html, render_markdown
    from reproductions.claims_picture import draw_claims

    page = make_page(paper, list(paper.tables.values()), lines, failures, quick=quick)
    texts = {f"{name}.md": render_markdown(page), f"{name}.html": render_html(page)}
    if page.claims:
        texts[page.claims_file] = draw_claims(page.claims)
    output.mkdir(parents=True, exist_ok=True)
    for file, text in texts.items():
        with open_atomically(output / file) as whole:
            whole.write(text.encode())


def _check(device: str) -> None:
    """Say once, before any part is begun, what every part would fail for."""
    from dissensus.table.datasets.folder import FOLDER_VARIABLE, find_data_folder

    if find_data_folder() is None:
        raise UnreadableFile(
            f"{FOLDER_VARIABLE} is not set, and the papers' data are in the folder that it names; "
            f"`export {FOLDER_VARIABLE}=FOLDER`."
        )
    try:
        from dissensus.learning.devices import resolve_device
    except ImportError:  # not all parts need torch
        return
    resolve_device(device)


app = typer.Typer(add_completion=False, context_settings={"help_option_names": ["-h", "--help"]})
# typer would keep the line ends of a paragraph
app.command(help="\n\n".join(part.replace("\n", " ") for part in cleandoc(reproduce.__doc__ or "").split("\n\n")))(
    report_errors(reproduce)
)

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # an exception, so that nothing is left half-written
    app(prog_name="python -m reproductions")
