"""`dissensus list`: everything that an option can name, such as methods and data sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from dissensus.cli import exceptions as faults
from dissensus.cli import folder, options, show
from dissensus.cli.options import option
from dissensus.common.atomic import protect_inputs
from dissensus.exceptions import MissingExtra

if TYPE_CHECKING:
    from dissensus.common.registry import Registry
    from dissensus.table.datasets import Dataset

Listable = Literal["methods", "datasets", "clusterings", "encoders", "objectives", "readers", "writers"]
REGISTRIES: dict[str, tuple[str, str, str]] = {
    "methods": ("dissensus.models.base", "`aggregate --method NAME`", "turn labels into answers"),
    "clusterings": ("dissensus.clustering.base", "`cluster --method NAME`", "group items and annotators"),
    "encoders": ("dissensus.learning.encoders", "`train --encoder NAME`", "turn an item into numbers"),
    "objectives": ("dissensus.learning.objectives", "`train --objective NAME`", "train a model on the labels"),
    "readers": ("dissensus.table.io.readers", "`--input-format NAME`", "file formats that are read"),
    "writers": ("dissensus.table.io.writers", "`aggregate --to NAME`", "labelling tools that labels are written for"),
}
"""What is listed → the module of its registry, the option that takes a name, and what the entries do."""


def list_(
    what: Listable | None = typer.Argument(
        None,
        metavar="[WHAT]",
        show_default=False,
        help="methods, datasets, clusterings, encoders, objectives, readers or writers; without it, all names.",
    ),
    name: str | None = typer.Argument(
        None, metavar="[NAME]", show_default=False, help="With datasets: describe this data set."
    ),
    output: Path | None = option(
        None,
        "Write the data set NAME as files: annotations.csv, gold.csv and others.",
        "--output",
        "-o",
        metavar="FOLDER",
    ),
    features: bool = option(False, "With -o, write the features and images of the items too.", "--features"),
    json: bool = options.JSON,
) -> None:
    """Print the names that options accept, or describe or write a data set.

    Every parameter of a method is an option of the commands that fit it: --set KEY=VALUE.

    Example: dissensus list methods

    Example: dissensus list datasets digits-crowd -o digits
    """  # fmt: skip
    if what != "datasets" and name is not None:
        raise faults.NotADataset(listing=str(what), name=name)
    if name is None:
        options.refuse_without("a data set: dissensus list datasets NAME", "output", "features")
    if name is not None:
        _show_dataset(name, output, features, json)
    elif what == "datasets":
        _list_datasets(json)
    elif what is None:
        _list_names(json)
    else:
        _list_entries(what, json)


def _load_registry(what: str) -> Registry[Any]:
    return getattr(import_module(REGISTRIES[what][0]), what)  # type: ignore[no-any-return]


def _list_names(json: bool) -> None:
    """Print the names of everything that can be listed."""
    from dissensus.table.datasets import list_datasets

    names: dict[str, list[str] | str] = {}
    for what in REGISTRIES:
        try:
            names[what] = list(_load_registry(what))
        except MissingExtra as error:
            names[what] = str(error)
    names["datasets"] = [info.name for info in list_datasets()]
    if json:
        show.print_json({what: found if isinstance(found, list) else None for what, found in names.items()})
        return
    rows = [(what, found if isinstance(found, str) else ", ".join(found)) for what, found in names.items()]
    show.print_table(None, ("what", "names"), rows, unbroken=("what",), header=False)
    show.print_text("Describe the entries of one line: dissensus list WHAT")


def _list_entries(what: str, json: bool) -> None:
    """Print the entries of a registry with their summaries, sources and parameters."""
    entries = [entry for _, entry in _load_registry(what).entries()]
    parameters = [_list_parameters(entry.value) for entry in entries]
    if json:
        described = [
            {key: getattr(entry, key) for key in ("name", "summary", "cite", "facts")}
            | ({} if found is None else {"parameters": found})
            for entry, found in zip(entries, parameters, strict=True)
        ]
        show.print_json({what: described})
        return
    rows = []
    for entry, found in zip(entries, parameters, strict=True):
        facts = "; ".join(
            key.replace("_", " ") + ("" if fact is True else f": {fact}")
            for key, fact in entry.facts.items()
            if fact and key != "place"  # the position in this list
        )
        summary = f"{entry.summary} ({facts})" if facts else entry.summary
        rows.append((entry.name, summary, entry.cite, ", ".join(found or ())))
    columns = (what.removesuffix("s"), "summary", "source", "parameters (--set)")
    used = [k for k in range(len(columns)) if any(row[k] for row in rows)]
    show.print_table(None, [columns[k] for k in used], [[row[k] for k in used] for row in rows], unbroken=columns[:1])
    show.print_text(f"Use one with {REGISTRIES[what][1]}.")


def _list_parameters(value: Any) -> dict[str, Any] | None:
    """Return the parameters of a registered class with their defaults; None if it has none, as readers do."""
    read: Callable[..., dict[str, Any]] | None = getattr(value, "get_params", None)
    return None if read is None else value().get_params()


def _show_dataset(name: str, output: Path | None, features: bool, json: bool) -> None:
    """Describe a data set, and write it as files into an output folder."""
    from dissensus.table.datasets import list_datasets, load_dataset

    folder.check_folder(output)
    with show.show_progress(f"loading {name}"):
        data = load_dataset(name)
    files: list[str] = []
    if output is not None:
        source = [Path(info.source) / file for info in list_datasets() if info.name == name for file in info.files]
        with protect_inputs(source), show.show_progress(f"writing {output}"), folder.atomic_folder(output) as part:
            files = [path.name for path in data.write(part, features=features)]
    if json:
        show.print_json(_dataset_facts(data) | show.format_paths(folder=output) | ({"files": files} if files else {}))
        return
    for line in repr(data).splitlines():
        show.print_line(show.escape(line))
    if output is None:
        show.print_line(f"\nWrite it as files: dissensus list datasets {show.escape(name)} -o FOLDER")
        return
    show.print_line(f"\nWritten into {show.escape(output)}: {', '.join(files)}")
    if not features and data.stored:
        show.print_line(
            "Add --features to write the features and images of the items too, which `dissensus train` needs."
        )


def _list_datasets(json: bool) -> None:
    """Print the names of the data sets and where each is."""
    from dissensus.table.datasets import list_datasets
    from dissensus.table.datasets.folder import FOLDER_VARIABLE, find_data_folder

    infos = list_datasets()
    if json:
        show.print_json({"datasets": [vars(info) for info in infos]})
        return
    rows = []
    for info in infos:
        place = info.source if info.source == "bundled" else "data folder"
        place = place if info.labelled else f"{place}, no labels"
        rows.append((show.escape(info.name), show.escape(info.title), place))
    show.print_table(None, ("data set", "description", "where"), rows, unbroken=("data set",))
    if find_data_folder() is None:
        show.print_text(f"Set {FOLDER_VARIABLE}=FOLDER to list the data sets of a folder too.")
    show.print_text("Describe one: dissensus list datasets NAME")


def _dataset_facts(data: Dataset) -> dict[str, Any]:
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
        "splits": {part: split.item_names.size for part, split in data.with_unlabelled_items.splits.items()},
        "missing": data.missing_parts,
    }
