"""`dissensus recommend`: whom to ask about what next."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dissensus.cli import folder, results, show
from dissensus.cli.aggregate import DEFAULT, new_model
from dissensus.cli.errors import about
from dissensus.cli.source import Source, takes_table
from dissensus.exceptions import BadParameter, DataError, MissingColumn, UnreadableFile

if TYPE_CHECKING:
    from dissensus.common.types import Names
    from dissensus.questions.recommend import Recommendation
    from dissensus.table.annotations import Annotations

HEAD = 10  # labels that are shown
BUSIEST = 5  # annotators that are shown
MODELS = {"model.npz": "`aggregate`", "model.safetensors": "`train`", "lia.safetensors": "LIA.save"}
"""Files of models that can be asked, and what writes them."""


@takes_table("--format")
def recommend(
    source: Source,
    *,
    budget: Annotated[float, typer.Option("--budget", help="What may be spent; a label costs 1 without --cost.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT",
            help="Write a .csv, .parquet or .jsonl file; left out, the first are shown.",
        ),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option("--method", "-m", metavar="NAME", show_default=DEFAULT, help="`dissensus methods` lists them."),
    ] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any keyword of the method; repeatable.")
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            "--model",
            metavar="FOLDER",
            help="Ask the model of an earlier `aggregate` or `train`, or a saved LIA, instead of fitting one.",
        ),
    ] = None,
    annotators: Annotated[
        str | None, typer.Option("--annotators", metavar="A,B,…", help="Ask only these; left out, all of FILE.")
    ] = None,
    cost: Annotated[
        str, typer.Option("--cost", metavar="NUMBER|FILE", help="Of a label; FILE has columns annotator and cost.")
    ] = "1",
    capacity: Annotated[int | None, typer.Option("--capacity", min=0, help="Labels of one annotator at most.")] = None,
    per_item: Annotated[int | None, typer.Option("--per-item", min=1, help="Labels of one item at most.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
) -> None:
    """Say whom to ask about what next: the labels that are expected to tell most for their price.

    A method is fitted to FILE, and every pair of an item and an annotator that is not in it is looked at: how much
    would the label tell, about the class of the item and about how good the annotator is. OUT gets rank, item,
    annotator, gain (in nats, given the labels above it), about_item (the item's part of it), cost and gain_per_cost.

    Example: dissensus recommend labels.csv --budget 500 -o next.csv

    Example: dissensus recommend labels.csv --budget 200 --annotators ann,bob --cost prices.csv --per-item 2

    Example: dissensus recommend labels.csv --budget 200 --model trained
    """
    from dissensus.questions.recommend import recommend as find
    from dissensus.table.questions import Questions

    prices = _file(cost)
    if output is not None:
        folder.check_file(output, "recommendations", [source.file, prices])
    if model is not None and (method or setting):
        raise BadParameter("--model asks what was learnt before; leave out --method and --set.")
    fitted: Any = new_model(method or DEFAULT, setting or []) if model is None else None
    table = source.read()
    if isinstance(table, Questions):
        raise BadParameter(f"{source.file} has {len(table)} questions; take each by itself, in a file of its own.")
    began = time.perf_counter()
    if fitted is None:
        assert model is not None
        with show.waiting(f"reading {model}"):
            fitted = _learnt(model)
        with about(f"the model in {model}"):
            table = table.to_classes(fitted.classes_)
    else:
        with show.waiting(f"fitting {source.file}"):
            fitted.fit(table)
    people = None if annotators is None else _people(annotators, table)
    with show.waiting("looking at every pair"):
        found = find(
            fitted, table, budget=budget, annotators=people, capacity=capacity, per_item=per_item,
            cost=float(cost) if prices is None else _prices(prices, table if people is None else people),
        )  # fmt: skip
    if output is not None:
        from dissensus.table.io import write_frame

        with show.waiting(f"writing {output}"):
            write_frame(found.to_arrow(), output)
    if json:
        facts = {"file": show.path(source.file), "budget": budget, "seconds": time.perf_counter() - began}
        rows = {"recommended": found.to_arrow().to_pylist()} if output is None else {"output": show.path(output)}
        show.json(facts | _facts(found) | rows)
        return
    _show(str(source.file), found, preview=output is None)
    out = show.console()
    if output is None:
        out.print("Nothing was written; add -o FILE to keep all of them.")
    else:
        out.print(f"They are in {show.clean(output)}", soft_wrap=True)


def _learnt(path: Path) -> Any:
    """The fitted model in a folder, or in a file of one: an aggregator, a `LIA` or a `CrowdClassifier`."""
    there = [name for name in MODELS if path.name == name or (path / name).is_file()]
    if not there:
        first, *others = (f"{name}, which {who} writes" for name, who in MODELS.items())
        raise UnreadableFile(f"no fitted model in {path}: there is neither {first}, nor {', nor '.join(others)}.")
    if len(there) > 1:
        named = " and ".join(there)
        raise BadParameter(f"--model {path}: {named} are there; name one, such as --model {path / there[0]}.")
    if there[0] == "model.npz":
        return results.load_model(path, None)
    from dissensus.learning import LIA, CrowdClassifier

    kind: Any = LIA if there[0] == "lia.safetensors" else CrowdClassifier
    return kind.load(path, device="cpu")


def _file(cost: str) -> Path | None:
    """The file of prices; None where it is a number."""
    try:
        float(cost)
    except ValueError:
        return Path(cost)
    return None


def _people(text: str, table: Annotations) -> Names:
    import numpy as np

    from dissensus.cli.inputs import like

    named = [part for name in text.split(",") if (part := name.strip())]
    if not named:
        raise BadParameter(f"--annotators {text!r} names nobody; leave it out to ask all.")
    return like(np.array(named, object), table.annotators)


def _prices(path: Path, who: Annotations | Names) -> dict[Any, float]:
    """Annotator → cost, from a file."""
    from dissensus.cli.inputs import like
    from dissensus.table import names as naming
    from dissensus.table.annotations import Annotations
    from dissensus.table.find_columns import guess_column
    from dissensus.table.io import read_frame

    with show.waiting(f"reading {path}"):
        frame = read_frame(path)
    key = guess_column("annotator", frame.column_names)
    for column, role in ((key, "annotator"), ("cost", "cost")):
        if column not in frame.column_names:
            raise MissingColumn(f"{path}: no column {role!r}; the columns are {', '.join(frame.column_names)}.")
    names = naming.to_names(naming.to_column(frame[key], "annotator"))
    names = like(names, who.annotators if isinstance(who, Annotations) else who)
    prices: dict[Any, float] = {}
    for name, value in zip(names.tolist(), frame["cost"].to_pylist(), strict=True):
        try:
            price = float(value)
        except (TypeError, ValueError):
            raise DataError(f"{path}: the cost of annotator {naming.shown(name)} is {value!r}, not a number.") from None
        if prices.setdefault(name, price) != price:
            raise DataError(f"{path}: annotator {naming.shown(name)} has two costs, {prices[name]:g} and {price:g}.")
    return prices


def _facts(found: Recommendation) -> dict[str, Any]:
    return {
        "labels": len(found),
        "candidates": found.candidates,
        "cost": float(found.cost.sum()),
        "gain": float(found.gain.sum()),
        "about_items": float(found.about_item.sum()),
        "items": len(set(found.items.tolist())),
        "annotators": len(set(found.annotators.tolist())),
    }


def _show(title: str, found: Recommendation, *, preview: bool) -> None:
    from collections import Counter

    out, facts = show.console(), _facts(found)
    out.print(
        f"{show.clean(title)}: {facts['labels']:,} of {facts['candidates']:,} labels that could be asked for, about "
        f"{facts['items']:,} items, for {facts['cost']:g}: they are expected to tell {facts['gain']:.1f} nats, "
        f"{facts['about_items']:.1f} of them about the items, the rest about the annotators.",
        soft_wrap=True,
    )
    if preview and len(found):
        rows = show.grid(
            "Ask first", "item", "annotator", "gain", "about item", "cost", numbers=("gain", "about item", "cost")
        )
        for at in range(min(HEAD, len(found))):
            rows.add_row(
                show.name(found.items[at]), show.name(found.annotators[at]), f"{found.gain[at]:.3f}",
                f"{found.about_item[at]:.3f}", f"{found.cost[at]:g}",
            )  # fmt: skip
        out.print(rows)
    if len(found):
        busy = Counter(found.annotators.tolist()).most_common(BUSIEST)
        who = ", ".join(f"{show.name(name)} ({count:,})" for name, count in busy)
        out.print(f"Asked most: {who}.", soft_wrap=True)
