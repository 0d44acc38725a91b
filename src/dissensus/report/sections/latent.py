"""Latent space: what a trained network makes of the items, as a map, and how far it keeps their classes apart.

The map is t-SNE's (`learning.latent_map`); how far classes are apart is counted among the vectors themselves. Items
that the network was trained on stand where it put them to fit their labels, which says little about others: so they are
counted apart from those that it has not seen.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dissensus.common.formatting import percent
from dissensus.common.types import BoolArray
from dissensus.exceptions import DataError
from dissensus.report import charts, maps
from dissensus.report.blocks import Chart, Column, Number, Numbers, Table, Text
from dissensus.report.section import Blocks, Facts, Finding, Findings, Section, sections
from dissensus.report.study import Study, entries, plain, some_of
from dissensus.table import names as naming

MAX_TEXT_LENGTH = 100  # characters of a text beside a dot
MIN_ITEMS = 20  # from which a share is said
MIN_ABOVE_CHANCE = 0.05  # below which a class is not told from the others
WITHOUT_INPUTS = (
    "There is no map of the items as the model sees them: what it takes of an item (texts, features, images) was not "
    "given. It is --inputs FILE of `dissensus report`, X of Report."
)
COLUMNS = {
    "class": Column("class"),
    "items": Column("items", "number"),
    "same": Column("neighbours alike", "percent"),
    "chance": Column("by chance", "percent"),
    "above": Column("above chance", "percent"),
}


@sections.enter("latent", title="Latent space", summary="Which items look alike to the model?", place=57)
class LatentSection(Section):
    """A map of items by what the network makes of them, and how far classes are apart there."""

    needs = ("model",)

    def collect(self, study: Study) -> Facts:
        if study.X is None:
            return {"points": []}
        from dissensus.learning.latent_map import item_map

        study.on_step("mapping the items")
        found = item_map(study.model, study.X, table=study.table, seed=study.seed)
        apart = found.separation
        text = (lambda i: " ".join(study.texts(i, MAX_TEXT_LENGTH))[:MAX_TEXT_LENGTH]) if study.text_columns else None
        order = np.argsort(-apart.count, kind="stable")
        new = ~_taught(study)[found.item]
        shares = {"same": apart.mean, "chance": apart.mean_chance, "kept": found.kept}
        return {
            "classes": study.classes,
            "how": found.how,
            "size": found.size,
            "of": found.of,
            "points": maps.item_rows(found, study.item_names, study.classes, text),
            "neighbours": apart.neighbours,
            **{name: plain(share, 4) for name, share in shares.items()},
            "seen": _mean(apart.same, ~new),
            "unseen": _mean(apart.same, new),
            "by_class": [
                {"class": study.classes[k]} | entries(k, 4, items=apart.count, same=apart.by_class, chance=apart.chance)
                for k in order.tolist()
                if apart.count[k]
            ],
        }

    def findings(self, facts: Facts) -> Findings:
        if len(facts["points"]) < MIN_ITEMS or len(facts["by_class"]) < 2:
            return
        lost = [
            one["class"]
            for one in facts["by_class"]
            if one["items"] >= MIN_ITEMS and one["same"] is not None and one["same"] < one["chance"] + MIN_ABOVE_CHANCE
        ]
        if lost:
            first = ", ".join(lost[:3]) + (" …" if len(lost) > 3 else "")
            yield Finding(
                f"To the model, items of {first} look like any others: their neighbours share the label about as often "
                "as chance would have it.",
                "Other features or more labels of these might help; or annotators see no such class either.",
                table="latent-classes",
            )

    def draw(self, facts: Facts) -> Blocks:
        if not facts["points"]:
            yield Text(WITHOUT_INPUTS)
            return
        if facts["same"] is not None:
            yield Numbers(_numbers(facts))
        yield _map_chart(facts)
        if facts["same"] is not None:
            yield Table.of(
                "latent-classes",
                "Classes in the latent space",
                f"How many of the {facts['neighbours']} nearest neighbours of an item have its majority label, among "
                "all that the network makes of items and not on the map; by chance, it would be the share of that "
                "label.",
                COLUMNS,
                [one | {"above": plain(one["same"] - one["chance"], 4)} for one in facts["by_class"]],
            )


def _taught(study: Study) -> BoolArray:
    """(I,) items of the table that the model was trained on."""
    model = study.model
    try:
        at = naming.match(study.table.items, model.items_, "items")
    except DataError:  # names of another kind: it knows none of them
        return np.zeros(study.table.n_items, np.bool_)
    return np.asarray((at >= 0) & (model.teaches_ & ~model.held_out_)[at])


def _mean(same: Any, which: BoolArray) -> Facts:
    known = same[which & ~np.isnan(same)]
    return {"items": known.size, "same": plain(known.mean(), 4) if known.size >= MIN_ITEMS else None}


def _numbers(facts: Facts) -> list[Number]:
    near, chance = facts["neighbours"], percent(facts["chance"], 1)
    made = [
        Number(percent(facts["same"], 1), f"of {near} neighbours share the label", f"by chance {chance}"),
        Number(f"{facts['size']:,}", "numbers are an item", "what the last layer reads of it"),
        Number(percent(facts["kept"]), "of these neighbours are so on the map", "the rest is lost in two dimensions"),
    ]
    for key, words in (("seen", "on items it was trained on"), ("unseen", "on items it was not trained on")):
        if facts[key]["same"] is not None:
            made.append(Number(percent(facts[key]["same"], 1), words, f"{facts[key]['items']:,} items"))
    return made


def _map_chart(facts: Facts) -> Chart:
    rows, how = facts["points"], facts["how"]
    some = some_of(rows, facts["of"], "items are here, drawn at random.")
    warning = (
        "Who is next to whom means something; how far groups are from each other, and how wide they are, means nothing."
        if how == "t-SNE"
        else "There are too few different items for t-SNE."
    )
    said = "" if facts["same"] is None else f" {percent(facts['same'], 1)} of neighbours share the label."
    return Chart(
        charts.spec(maps.item_chart(rows, facts["classes"]), 420),
        "Items as the model sees them",
        f"Every mark is an item, its colour and shape what most annotators say; near each other are items of which the "
        f"network makes the same ({how}). {warning}{some}",
        f"Map of {len(rows):,} items by {how}, coloured by majority label.{said}",
        wide=True,
    )
