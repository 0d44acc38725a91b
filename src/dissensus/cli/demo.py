"""`dissensus demo`: label the bundled data set, and leave the files and the results in a folder."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Any

import typer

from dissensus.cli import folder, options, show
from dissensus.cli.findings import DemoAccuracy
from dissensus.cli.folder import SUMMARY
from dissensus.cli.options import option
from dissensus.cli.question import print_message
from dissensus.common.formatting import Count, Share

DATASET = "digits-crowd"


def demo(
    *,
    output: Path = option(Path("dissensus-demo"), "Write everything here.", "--output", "-o", metavar="FOLDER"),
    json: bool = options.JSON,
) -> None:
    """Write the bundled table and run `aggregate` and `report` on it.

    The bundled table has 1,797 images of digits and about five labels of each by 42 simulated annotators, some of
    whom guess or copy. FOLDER gets data (the table, the true digits and the items), results (what `dissensus aggregate`
    writes) and report.html (what `dissensus report` writes).

    Example: dissensus demo
    """
    data, results, page = output / "data", output / "results", output / "report.html"
    labels, gold = data / "annotations.csv", data / "gold.csv"
    folder.check_folder(output)
    with show.show_progress(f"writing {data}"):
        table, votes = _write_data(data)
    quiet = ["--quiet"] if json else []
    _run_command("aggregate", [labels, "--gold", gold, "--gold-use", "score", "-o", results, *quiet], shown=not json)
    items = ["--items", data / "items.csv", "--title", "Handwritten digits"]
    _run_command("report", [labels, "--gold", gold, "--gold-use", "score", *items, "-o", page, *quiet], shown=not json)
    accuracy = json_module.loads((results / SUMMARY).read_bytes())["gold"]["accuracy"]
    if json:
        files = sorted(show.format_path(path) for path in output.rglob("*") if path.is_file())
        show.print_json(
            {
                "folder": show.format_path(output),
                "files": files,
                "accuracy": accuracy,
                "majority_vote_accuracy": votes,
            }
        )
        return
    show.print_line("")
    print_message(DemoAccuracy(items=Count(table.n_items), accuracy=Share(accuracy), majority_vote=Share(votes)))
    show.print_line(f"Open {show.escape(page)} in a browser.")
    show.print_line("Next, your own labels: dissensus describe FILE, then dissensus aggregate FILE -o results")


def _write_data(path: Path) -> tuple[Any, float]:
    """Write the data set as files; return its table, and the accuracy of the majority vote."""
    from dissensus.models.base import methods
    from dissensus.table.datasets import load_dataset

    dataset = load_dataset(DATASET)
    with folder.atomic_folder(path) as part:
        dataset.write(part, features=False)
    table: Any = dataset.annotations
    answers = methods["majority-vote"]().fit(table).predict()
    return table, float((answers == table.classes[dataset.gold]).mean())


def _run_command(command: str, arguments: list[Any], *, shown: bool) -> None:
    """Run another command in this process, with its command line printed above its output."""
    from dissensus.cli import load_command

    words = [str(argument) for argument in arguments]
    if shown:
        show.print_line(f"\n$ dissensus {command} {' '.join(f'{word!r}' if ' ' in word else word for word in words)}")
    running = show.current_invocation.get()
    code = load_command(command).main(
        words,
        prog_name=f"dissensus {command}",
        standalone_mode=False,
        obj=show.OWN_PROCESS if running.own_process else None,
    )
    show.current_invocation.set(running)
    if code:
        raise typer.Exit(code)
