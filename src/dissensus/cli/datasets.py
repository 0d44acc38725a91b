"""`dissensus datasets`: list the data sets, describe one, or write it as files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from dissensus.cli import exceptions as faults
from dissensus.cli import folder, options, show
from dissensus.cli.options import option
from dissensus.common.atomic import protect_inputs
from dissensus.messages import ParameterName

if TYPE_CHECKING:
    from dissensus.table.datasets import Dataset


def datasets(
    name: str | None = typer.Argument(
        None, metavar="[NAME]", show_default=False, help="Describe this set instead of listing all."
    ),
    output: Path | None = options.OUTPUT_FOLDER,
    features: bool = option(False, "With -o, write its features and images too.", "--features"),
    json: bool = options.JSON,
) -> None:
    """With -o, the set NAME is written as files: annotations.csv, gold.csv, ….

    Example: dissensus datasets digits-crowd -o digits
    """
    if name is None:
        if output is not None or features:
            raise faults.OptionNeeds(
                option=ParameterName("features" if features else "output"), needed="the NAME of a set"
            )
        _list(json)
        return
    from dissensus.table.datasets import list_datasets, load_dataset

    folder.check(output)
    with show.show_progress(f"loading {name}"):
        data = load_dataset(name)
    files: list[str] = []
    if output is not None:
        read = [Path(one.source) / file for one in list_datasets() if one.name == name for file in one.files]
        with protect_inputs(read), show.show_progress(f"writing {output}"), folder.atomic_folder(output) as part:
            files = [path.name for path in data.write(part, features=features)]
    if json:
        show.json(_facts(data) | show.paths(folder=output) | ({"files": files} if files else {}))
        return
    for line in repr(data).splitlines():
        show.line(show.escape(line))
    if output is None:
        show.line(f"\nAs files: dissensus datasets {show.escape(name)} -o FOLDER")
    else:
        show.line(f"\nWritten into {show.escape(output)}: {', '.join(files)}")
        if not features and data.stored:
            show.line("--features writes its features and images too, which `dissensus train` needs.")


def _list(json: bool) -> None:
    from dissensus.table.datasets import list_datasets
    from dissensus.table.datasets.folder import VARIABLE, data_folder

    found = list_datasets()
    if json:
        show.json({"datasets": [vars(info) for info in found]})
        return
    rows = []
    for info in found:
        where = info.source if info.source == "bundled" else "data folder"
        where = where if info.labelled else f"{where}, no labels"
        rows.append((show.escape(info.name), show.escape(info.title), where))
    show.table(None, ("set", "description", "where"), rows, unbroken=("set",))
    if data_folder() is None:
        show.text(f"{VARIABLE} is not set; export {VARIABLE}=FOLDER to list the sets of a data folder too.")
    show.text("Describe one: dissensus datasets NAME")


def _facts(data: Dataset) -> dict[str, Any]:
    tables = data.annotations
    if isinstance(tables, Mapping):
        described = {"questions": {question: table.describe() for question, table in tables.items()}}
    else:
        described = {"annotations": tables.describe()}
    return {
        "name": data.name,
        "description": data.description,
        **described,
        "gold_items": None if data.gold is None else int((data.gold >= 0).sum()),
        "other_golds": list(data.golds),
        "item_columns": [] if data.items is None else data.items.column_names,
        "annotator_columns": [] if data.annotators is None else data.annotators.column_names,
        "features": 0 if data.features is None else data.features.shape[1],
        "splits": {part: split.item_names.size for part, split in data.whole.splits.items()},
        "missing": data.missing,
    }
