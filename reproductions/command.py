"""`dissensus reproduce`: the papers' tables, run again, beside what was published."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dissensus.cli import folder, show
from dissensus.cli.errors import BAD_DATA, say
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
    jobs: Annotated[int, typer.Option("--jobs", "-j", metavar="N", help="Processes side by side.")] = 1,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:1.")] = "auto",
    minutes: Annotated[
        float | None, typer.Option("--minutes", metavar="M", help="Begin nothing after so long; run again to go on.")
    ] = None,
    prepare: Annotated[
        bool,
        typer.Option(
            "--prepare", help="Run nothing: make the vectors that need a pretrained model, for a machine without."
        ),
    ] = False,
    render: Annotated[bool, typer.Option("--render", help="Run nothing: write the pages of what is there.")] = False,
) -> None:
    """Run the tables of a paper again, and write them beside what was published.

    FOLDER gets PAPER.md, PAPER.html and a picture of the claims, and PAPER.jsonl with one line per finished part: a run
    that was stopped goes on where it was when the same command is given again. The data are in the folder that
    DISSENSUS_DATA names.

    Example: dissensus reproduce weerasooriya2021 table3 --quick

    Example: dissensus reproduce platanios2020 --device cuda --minutes 9
    """
    from dissensus.common.atomic import atomic
    from reproductions import load_paper, make_page, paper_names, render_html, render_markdown
    from reproductions import reproduce as run
    from reproductions.figures import draw_figures
    from reproductions.forest import draw_claims
    from reproductions.runner import Failure, read_store
    from reproductions.watch import Watch

    for name, value, least in (("--jobs", jobs, 1), ("--seeds", seeds, 1)):
        if value is not None and value < least:
            raise BadParameter(f"{name} must be at least {least}, got {value}.")
    papers = [load_paper(name) for name in ((what or [])[:1] or paper_names())]
    tables = {paper.name: paper.only((what or [])[1:]) for paper in papers}
    out = show.console()
    if list_:
        for paper in papers:
            out.print(show.clean(f"{paper.name}: {paper.title}"), soft_wrap=True)
            for table in tables[paper.name]:
                full, few = (sum(1 for _ in table.cells(quick=q, seeds=seeds)) for q in (False, True))
                out.print(show.clean(f"  {table.name:8} {table.title} ({full} parts; --quick {few})"), soft_wrap=True)
        return
    folder.check(output)
    if not render:
        _check(device)
    left = failed = 0
    for paper in papers:
        store = output / f"{paper.name}{'-quick' if quick else ''}.jsonl"
        wanted = tables[paper.name]
        failures: list[Failure] = []
        if prepare:
            with show.waiting(f"preparing {paper.name}"):
                getattr(paper.module, "prepare", lambda: None)()
            continue
        if not render:
            try:
                _, failures = run(
                    wanted, store, quick=quick, seeds=seeds, jobs=jobs, device=device, minutes=minutes,
                    watch=Watch(jobs),
                )  # fmt: skip
            except KeyboardInterrupt:
                say(f"{len(read_store(store))} parts are in {store}; the same command goes on, --render writes pages.")
                raise
        there = read_store(store)  # what was run before belongs on the page too
        shown = list(paper.tables.values())
        output.mkdir(parents=True, exist_ok=True)
        name, page = store.stem, make_page(paper, shown, there, failures, quick=quick)
        texts = {f"{name}.md": render_markdown(page), f"{name}.html": render_html(page)}
        drawn = {page.claims_file: draw_claims(page.claims)} if page.claims else {}
        for file, text in (texts | drawn).items():
            with atomic(output / file) as whole:
                whole.write(text.encode())
        missing = sum(1 for table in wanted for cell in table.cells(quick=quick, seeds=seeds) if cell.key not in there)
        left, failed = left + missing, failed + len(failures)
        note = f"; {missing} parts are left, {len(failures)} of them failed" if missing else ""
        out.print(show.clean(f"{output / name}.md, .html{note}"), soft_wrap=True)
        if not render:  # last: they take their time, whatever the --minutes
            for file, why in draw_figures(paper, wanted, output, device).items():
                say(f"{file} was not drawn: {why}")
        elif absent := [f["file"] for table in shown for f in table.figures if not (output / f["file"]).exists()]:
            say(f"{', '.join(absent)}: not in {output}; `dissensus reproduce {paper.name}` without --render draws it.")
    if left and not render:
        say(f"{left} parts are left{f', {failed} of which failed' if failed else ''}; the same command goes on.")
    if failed:
        raise typer.Exit(BAD_DATA)


def _check(device: str) -> None:
    """What every part would fail for is said once, before any is begun."""
    from dissensus.table.datasets.folder import VARIABLE, data_folder

    if data_folder() is None:
        raise UnreadableFile(
            f"{VARIABLE} is not set, and the papers' data are in the folder that it names; `export {VARIABLE}=FOLDER`."
        )
    try:
        from dissensus.learning.devices import place
    except ImportError:  # not all parts need torch
        return
    place(device)
