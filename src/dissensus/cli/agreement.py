"""`dissensus agreement`: how far the annotators agree beyond chance, and who agrees with whom."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from dissensus.cli import options, show
from dissensus.cli.options import Source, option
from dissensus.exceptions import BadParameter
from dissensus.table.names import unsettled_spellings

if TYPE_CHECKING:
    from dissensus.table.annotations import Annotations

PAIRS_SHOWN = 5  # at either end
MIN_ITEMS = 5  # with two annotators: fewer have no interval and no verdict
COEFFICIENTS = {
    "mean_difference": "two labels of an item differ by",
    "icc": "intraclass correlation, of one label",
    "icc_of_mean": "the same, of an item's mean label",
    "percent": "two annotators of an item agree",
    "krippendorff_alpha": "Krippendorff's α",
    "fleiss_kappa": "Fleiss' κ",
    "gwet_ac1": "Gwet's AC1",
    "exact_f1": "F1 of spans, exact",
    "overlap_f1": "F1 of spans that overlap",
    "unitizing_alpha": "Krippendorff's uα, of units (2016)",
    "jaccard_alpha": "Krippendorff's α, Jaccard distance",
    "masi_alpha": "Krippendorff's α, MASI distance",
    "words_alpha": "Krippendorff's α, edit distance of words",
}
WITHOUT_SCALE = ("spans", "sets", "objects")  # kinds of labels
SCALES = {"numbers": "interval"} | dict.fromkeys(WITHOUT_SCALE, "nominal")  # kind → its only scale
Scale = Literal["nominal", "ordinal", "interval"]
KAPPA_WEIGHTS = {"nominal": "none", "ordinal": "linear", "interval": "quadratic"}


def agreement(
    *,
    scale: Scale | None = option(
        None, "What the classes are: names, steps in an order, or numbers; by their kind where left out."
    ),
    pairs: bool = option(False, "Also which pairs of annotators agree most and least; all with --json.", "--pairs"),
    least: int = option(20, "Items that a pair must share.", min=1),
    resamples: int = option(1000, "Of the items, for the intervals.", min=0),
    seed: int | None = options.SEED,
    source: Source,
) -> None:
    """Any number of annotators, each having labelled any of the items. The intervals are by bootstrap over items.

    Example: dissensus agreement labels.csv --scale ordinal --classes low,middle,high --pairs
    """
    settings: dict[str, Any] = {"level": 0.95, "resamples": resamples, "seed": seed or 0}

    def answer(table: Annotations, question: str | None) -> dict[str, Any]:
        if pairs and table.kind in WITHOUT_SCALE:
            raise BadParameter(f"--pairs is for classes and numbers; leave it out for {table.kind}.")
        own = SCALES.get(table.kind) or scale or ("ordinal" if table.kind == "graded" else "nominal")
        values = None
        declared = own == "ordinal" and (source.classes is not None or table.kind == "graded")
        if own != "nominal" and table.kind != "numbers" and not declared:
            with suppress(ValueError):  # on an interval scale, an error that says so
                values = [float(name) for name in table.classes]  # where the classes lie
        return {"scale": own} | _facts(table, own, values, settings, least if pairs else None, source.title(question))

    source.print_each(options.answer_each(source.read(), answer), _show, **settings)


def _facts(
    table: Annotations, scale: str, values: list[float] | None, settings: dict[str, Any], least: int | None, what: str
) -> dict[str, Any]:
    import numpy as np

    from dissensus.common.frames import as_frame
    from dissensus.evaluation import cohen_kappas, concordances
    from dissensus.evaluation.distances import agreement_by_kind

    with show.waiting(f"resampling {what}", settings["resamples"]) as on_step:
        found = agreement_by_kind(table, scale=scale, values=values, on_step=on_step, **settings)
    facts: dict[str, Any] = {"documents": int(table.sequences.documents.size)} if table.kind == "spans" else {}
    if table.kind not in WITHOUT_SCALE:
        if table.weight is not None and table.kind != "numbers":  # the warning was given
            table = dataclasses.replace(table.select(rows=table.weight > 0), weight=None)
        facts["items_with_two_ratings"] = int((table.ratings_per_item > 1).sum())
        if table.kind != "numbers":
            codes = range(table.n_classes)
            order = sorted(codes, key=values.__getitem__) if values else codes
            facts["classes"] = [str(table.classes[k]) for k in order]
    facts |= {"items": table.n_items, "annotators": table.n_annotators}
    facts["coefficients"] = {
        name: {"value": one.value, "low": one.low, "high": one.high} for name, one in found.items()
    }
    if least is None:
        return facts
    weights: Any = "concordance" if table.kind == "numbers" else KAPPA_WEIGHTS[scale]
    with show.waiting(f"comparing the annotators of {what}"):
        if table.kind == "numbers":
            compared = concordances(table, least=least)
        else:
            compared = cohen_kappas(table, least=least, weights=weights, values=values)
    best = np.lexsort((-compared.shared, -np.nan_to_num(compared.kappa, nan=-np.inf)))  # undefined κ last
    rows = as_frame({name: column[best] for name, column in vars(compared).items()}, "pyarrow").to_pylist()
    return facts | {"least": least, "weights": weights, "pairs": rows}


def _show(title: str, facts: dict[str, Any]) -> None:
    rows, scale = [], facts["scale"]
    for name, found in facts["coefficients"].items():
        written = show.percent if name == "percent" else show.number
        value = written(found["value"]) if found["value"] == found["value"] else "–"
        known = found["low"] == found["low"] and facts.get("items_with_two_ratings", MIN_ITEMS) >= MIN_ITEMS
        interval = show.interval(found["low"], found["high"], written) if known else "–"
        note = f"{scale} scale" if name == "krippendorff_alpha" and scale != "nominal" else ""
        rows.append((COEFFICIENTS[name], value, interval, note))
    show.table(show.clean(title), ("", "value", "95 % interval", ""), rows, numbers=("value", "95 % interval"))
    if "documents" in facts:
        show.text("Of two annotators of a document: how many spans of one has the other.")
        show.text("α and uα are of tokens or characters; by chance tokens meet in α, whole spans in uα.")
        show.text()
        return
    if "krippendorff_alpha" in facts["coefficients"]:
        for sentence in _sentences(facts, scale):
            show.text(sentence)
    if "pairs" in facts:
        _show_pairs(facts)
    show.text()


def _sentences(facts: dict[str, Any], scale: str) -> Iterator[str]:
    found = facts["coefficients"]
    alpha = found["krippendorff_alpha"]
    single = facts["items"] - facts["items_with_two_ratings"]
    if alpha["value"] != alpha["value"]:
        yield "Only one class was given to items with two annotators: what has no value is undefined."
        return
    if scale == "ordinal":
        yield f"Order of the classes: {' < '.join(show.name(name) for name in facts['classes'])}."
    if facts["items_with_two_ratings"] < MIN_ITEMS:
        few = show.count(facts["items_with_two_ratings"], "item")
        yield f"Only {few} {'was' if few[:2] == '1 ' else 'were'} labelled by two annotators: too few to say more."
        return
    low, high = (alpha[end] if alpha[end] == alpha[end] else alpha["value"] for end in ("low", "high"))
    if high < 0:
        verdict = "worse than chance: labels of one item differ more often than labels of different items"
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
    if "percent" in found:
        said = f"Two annotators of an item agree {show.percent(found['percent']['value'])} of the time."
        yield f"{said} Beyond chance (α) that is {verdict}."
    else:
        yield f"Beyond chance (α) agreement is {verdict}."
    if unsettled_spellings(facts.get("classes", ())):
        yield "Some classes differ by capitals or spaces only, which counts as disagreement; --normalize merges them."
    if "gwet_ac1" in found and found["gwet_ac1"]["value"] - max(found["fleiss_kappa"]["value"], 0) > 0.2:
        yield "AC1 is far above κ: where a few classes are common, κ puts more of the agreement down to chance."
    if single:
        yield f"{single:,} of {facts['items']:,} items were labelled by fewer than two annotators and say nothing."


def _show_pairs(facts: dict[str, Any]) -> None:
    known = [pair for pair in facts["pairs"] if pair["kappa"] == pair["kappa"]]
    if not known:
        show.text(f"No two annotators share {facts['least']:,} items on which κ is defined; lower --least.")
        return
    rows: list[tuple[str, ...]] = []
    for pair in known:
        names = show.name(pair["first"]), show.name(pair["second"])
        agree = () if facts["weights"] == "concordance" else (show.percent(pair["agreement"]),)
        found = show.number(pair["kappa"]), show.interval(pair["low"], pair["high"])
        rows.append((*names, f"{pair['shared']:,}", *agree, *found))
    weights = "" if facts["weights"] == "none" else f", {facts['weights']} weights"
    measure, coefficients = f"Cohen's κ{weights}", ["agree", "κ"]
    if facts["weights"] == "concordance":  # two numbers are hardly ever the same
        measure, coefficients = "Lin's concordance", ["ρ"]
    columns = ("annotator", "and", "items", *coefficients, "95 % interval")
    show.table(f"Who agrees with whom: {measure}", columns, show.ends(rows, PAIRS_SHOWN), numbers=columns[2:])
