"""`dissensus agreement`: how far the annotators agree beyond chance, and who agrees with whom."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dissensus.cli import show
from dissensus.cli.errors import about
from dissensus.cli.source import Source, takes_table

if TYPE_CHECKING:
    from dissensus.evaluation import Pairs
    from dissensus.table.annotations import Annotations

SHOWN = 5  # pairs at either end
NAMES = {
    "percent": "two labels of an item agree",
    "krippendorff_alpha": "Krippendorff's α",
    "fleiss_kappa": "Fleiss' κ",
    "gwet_ac1": "Gwet's AC1",
}


class ScaleOption(StrEnum):
    """Of the classes."""

    nominal = "nominal"
    ordinal = "ordinal"
    interval = "interval"


@takes_table("--format")
def agreement(
    source: Source,
    *,
    scale: Annotated[
        ScaleOption,
        typer.Option("--scale", help="What the classes are: names, steps in an order, or numbers."),
    ] = ScaleOption.nominal,
    pairs: Annotated[
        bool, typer.Option("--pairs", help="Also which pairs of annotators agree most and least.")
    ] = False,
    least: Annotated[int, typer.Option("--least", min=1, help="Items that a pair must share.")] = 20,
    resamples: Annotated[int, typer.Option("--resamples", min=0, help="Of the items, for the intervals.")] = 1000,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the resampling.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead, with all pairs.")] = False,
) -> None:
    """Say how far the annotators agree, beyond what chance would give, with 95 % intervals.

    Any number of annotators, each having labelled any of the items. The intervals are by bootstrap over items.

    Example: dissensus agreement labels.csv --scale ordinal --classes low,middle,high --pairs
    """
    from dissensus.table.questions import Questions

    def facts(table: Annotations, question: str | None = None) -> dict[str, Any]:
        what = f"question {question}" if question else str(source.file)
        return _facts(table, scale.value, source.classes is not None, least if pairs else None, resamples, seed, what)

    tables = source.read()
    head = {"file": show.path(source.file), "scale": scale.value, "level": 0.95, "resamples": resamples, "seed": seed}
    if isinstance(tables, Questions):
        found = {}
        for question, table in tables.items():
            with about(f"question {show.name(question)!r}"):
                found[question] = facts(table, question)
        if json:
            show.json(head | {"questions": found})
            return
        for question, one in found.items():
            _show(f"{source.file}, question {show.name(question)}", one, scale.value)
        return
    one = facts(tables)
    if json:
        show.json(head | one)
    else:
        _show(str(source.file), one, scale.value)


def _facts(
    table: Annotations, scale: Any, declared: bool, least: int | None, resamples: int, seed: int, what: str
) -> dict[str, Any]:
    from dissensus.evaluation import agreement, cohen_kappas, ratings_per_item

    values = None if scale == "nominal" else _values(table, scale, declared)
    with show.waiting(f"resampling {what}", resamples) as on_step:
        found = agreement(table, scale=scale, values=values, resamples=resamples, seed=seed, on_step=on_step)
    if table.weight is not None:  # the warning was given
        table = dataclasses.replace(table.select(rows=table.weight > 0), weight=None)
    facts: dict[str, Any] = {
        "items": table.n_items,
        "items_with_two_ratings": int((ratings_per_item(table) > 1).sum()),
        "annotators": table.n_annotators,
        "classes": [str(table.classes[k]) for k in _order(values, table.n_classes)],
        "coefficients": {
            name: {"value": estimate.value, "low": estimate.low, "high": estimate.high}
            for name, estimate in found.items()
        },
    }
    if least is not None:
        weights: Any = {"nominal": "none", "ordinal": "linear", "interval": "quadratic"}[scale]
        with show.waiting(f"comparing the annotators of {what}"):
            compared = cohen_kappas(table, least=least, weights=weights, values=values)
        facts |= {"least": least, "weights": weights, "pairs": _rows(compared)}
    return facts


def _values(table: Annotations, scale: str, declared: bool) -> list[float] | None:
    """Where the classes lie: as numbers where they are, unless an order was declared."""
    if declared and scale == "ordinal":
        return None
    try:
        return [float(name) for name in table.classes]
    except ValueError:
        return None  # on an interval scale, an error that says so


def _order(values: list[float] | None, n: int) -> list[int]:
    return list(range(n)) if values is None else sorted(range(n), key=values.__getitem__)


def _rows(pairs: Pairs) -> list[dict[str, Any]]:
    """All pairs, best agreement first; those of undefined κ last."""
    import numpy as np

    order = np.lexsort((-pairs.shared, -np.nan_to_num(pairs.kappa, nan=-np.inf)))
    columns = {name: getattr(pairs, name)[order].tolist() for name in pairs.__dataclass_fields__}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _show(title: str, facts: dict[str, Any], scale: str) -> None:
    out = show.console()
    table = show.grid(show.clean(title), "", "value", "95 % interval", "", numbers=("value", "95 % interval"))
    for name, found in facts["coefficients"].items():
        if name == "percent":
            cells = show.percent(found["value"]), f"{show.percent(found['low'])} to {show.percent(found['high'])}"
        else:
            cells = _number(found["value"]), f"{_number(found['low'])} to {_number(found['high'])}"
        note = f"{scale} scale" if name == "krippendorff_alpha" and scale != "nominal" else ""
        known = found["low"] == found["low"]
        table.add_row(
            NAMES[name], cells[0] if found["value"] == found["value"] else "–", cells[1] if known else "–", note
        )
    out.print(table)
    for sentence in _sentences(facts, scale):
        out.print(sentence)
    if "pairs" in facts:
        _show_pairs(facts)
    out.print()


def _sentences(facts: dict[str, Any], scale: str) -> Iterator[str]:
    """The same in plain words."""
    found = facts["coefficients"]
    alpha, percent = found["krippendorff_alpha"], found["percent"]["value"]
    single = facts["items"] - facts["items_with_two_ratings"]
    if alpha["value"] != alpha["value"]:
        yield "Only one class was ever given; there is nothing to disagree about, and α, κ and AC1 are undefined."
        return
    low = alpha["low"] if alpha["low"] == alpha["low"] else alpha["value"]
    high = alpha["high"] if alpha["high"] == alpha["high"] else alpha["value"]
    if high < 0:
        verdict = "worse than chance: somebody labels against the others"
    elif low <= 0:
        verdict = "no better than chance, as far as these labels can tell"
    elif low >= 0.8:
        verdict = "good: 0.8 is what Krippendorff asks of data to rely on"
    elif low >= 0.667:
        verdict = "fair: above 0.667, from which Krippendorff allows tentative conclusions, not surely above 0.8"
    elif high >= 0.667:
        verdict = "undecided: 0.667, where Krippendorff allows tentative conclusions, lies inside the interval"
    else:
        verdict = "better than chance, but below the 0.667 from which Krippendorff allows tentative conclusions"
    yield f"Two labels of an item agree {show.percent(percent)} of the time. Beyond chance (α) that is {verdict}."
    if found["gwet_ac1"]["value"] - found["fleiss_kappa"]["value"] > 0.2:
        yield "AC1 is far above κ: where a few classes are common, κ puts more of the agreement down to chance."
    if scale == "ordinal":
        yield f"Order of the classes: {' < '.join(show.name(name) for name in facts['classes'])}."
    if single:
        yield f"{single:,} of {facts['items']:,} items were labelled by fewer than two annotators and say nothing."


def _show_pairs(facts: dict[str, Any]) -> None:
    out = show.console()
    known = [pair for pair in facts["pairs"] if pair["kappa"] == pair["kappa"]]
    if not known:
        out.print(f"No two annotators share {facts['least']:,} items on which κ is defined; lower --least.")
        return
    kind = {"none": "", "linear": ", linear weights", "quadratic": ", quadratic weights"}[facts["weights"]]
    head = ("annotator", "and", "items", "agree", "κ", "95 % interval")
    table = show.grid(f"Who agrees with whom: Cohen's κ{kind}", *head, numbers=head[2:])
    last = len(known) - SHOWN  # where the lowest begin
    for number, pair in enumerate(known):
        if number < SHOWN or number >= last:
            table.add_row(
                show.name(pair["first"]), show.name(pair["second"]), f"{pair['shared']:,}",
                show.percent(pair["agreement"]), _number(pair["kappa"]),
                f"{_number(pair['low'])} to {_number(pair['high'])}",
            )  # fmt: skip
        elif number == SHOWN:
            table.add_row(f"… {last - SHOWN:,} more", "", "", "", "", "")
    out.print(table)


def _number(value: float) -> str:
    return f"{value:.3f}"
