"""`dissensus datasets`: the sets that can be loaded, and one of them as files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dissensus.cli import folder, show
from dissensus.exceptions import BadParameter

if TYPE_CHECKING:
    from dissensus.table.datasets import Dataset


def datasets(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", show_default=False, help="Describe this set instead of listing all."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FOLDER", help="Write the set as files: annotations.csv, gold.csv, …"),
    ] = None,
    features: Annotated[bool, typer.Option("--features", help="With -o: its features and images too.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
) -> None:
    """List the labelled sets: the bundled one, and those of the data folder that DISSENSUS_DATA names.

    Example: dissensus datasets digits-crowd -o digits
    """
    if name is None:
        if output is not None or features:
            raise BadParameter("-o and --features need the NAME of a set; `dissensus datasets` lists them.")
        _list(json)
        return
    from dissensus.table.datasets import load_dataset

    if output is not None:
        folder.check(output)
    with show.waiting(f"loading {name}"):
        data = load_dataset(name)
    files: list[str] = []
    if output is not None:
        with show.waiting(f"writing {output}"), folder.whole(output) as part:
            files = [path.name for path in data.write(part, features=features)]
    if json:
        written = {} if output is None else {"folder": show.path(output), "files": files}
        show.json(_facts(data) | written)
        return
    out = show.console()
    for line in repr(data).splitlines():
        out.print(show.clean(line), soft_wrap=True)
    if output is None:
        out.print(f"\nAs files: dissensus datasets {show.clean(name)} -o FOLDER")
    else:
        out.print(f"\nWritten into {show.clean(output)}: {', '.join(files)}", soft_wrap=True)
        if not features and data.stored:
            out.print("Features and images go along with --features: what `dissensus train` learns from.")


def _list(json: bool) -> None:
    from dissensus.table.datasets import list_datasets
    from dissensus.table.datasets.folder import VARIABLE, data_folder

    found = list_datasets()
    if json:
        show.json({"datasets": [vars(info) for info in found]})
        return
    table = show.grid(None, "set", "what it is", "where")
    for info in found:
        where = info.source if info.source == "bundled" else "data folder"
        table.add_row(show.clean(info.name), show.clean(info.title), where if info.labelled else f"{where}, no labels")
    table.columns[0].no_wrap = True
    out = show.console()
    out.print(table)
    if data_folder() is None:
        out.print(f"{VARIABLE} is not set; export {VARIABLE}=FOLDER to list the sets of a data folder too.")
    out.print("Describe one: dissensus datasets NAME")


def _facts(data: Dataset) -> dict[str, Any]:
    from dissensus.table.questions import Questions

    tables = data.annotations
    asked = isinstance(tables, Questions)
    return {
        "name": data.name,
        "description": data.description,
        "questions" if asked else "annotations": {question: table.describe() for question, table in tables.items()}
        if isinstance(tables, Questions)
        else tables.describe(),
        "gold_items": None if data.gold is None else int((data.gold >= 0).sum()),
        "other_golds": list(data.golds),
        "item_columns": [] if data.items is None else data.items.column_names,
        "annotator_columns": [] if data.annotators is None else data.annotators.column_names,
        "features": 0 if data.features is None else data.features.shape[1],
        "splits": {part: split.item_names.size for part, split in data.whole.splits.items()},
        "missing": data.missing,
    }
