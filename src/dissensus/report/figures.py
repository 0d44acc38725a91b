"""Figures as files, drawn as the report draws its own: the numbers are those of `dissensus.learning`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dissensus.common.extras import need
from dissensus.common.types import IntArray
from dissensus.exceptions import BadParameter
from dissensus.models.base import check_gold
from dissensus.report import charts, latent_charts, lia_charts
from dissensus.report.study import distinct
from dissensus.table.annotations import Annotations
from dissensus.table.io import atomic

WIDTH, HEIGHT = 480, 300  # pixels
LARGE = 640, 480  # of a map
PANEL = 260  # of a picture beside others
SCALE = 2  # of pixels in a PNG


def plot_label_density(table: Annotations, path: str | Path) -> Path:
    """Draw how many labels annotators gave, as a kernel density with a mark per annotator; .svg, .png or .html."""
    from dissensus.learning.analysis import label_density

    alt, found = charts.altair(), label_density(table)
    line = alt.Chart(
        charts.data({"x": x, "density": y} for x, y in zip(found.x.tolist(), found.density.tolist(), strict=True))
    ).mark_area(line=True, opacity=0.3)
    ticks = alt.Chart(charts.data({"x": n} for n in found.labels.tolist())).mark_tick(opacity=0.4, thickness=1)
    x = alt.X("x:Q", title="labels given by an annotator", axis=charts.axis("~s"))
    curve = line.encode(x=x, y=alt.Y("density:Q", title="density of annotators", axis=charts.axis("~g", tickCount=4)))
    return _save(curve + ticks.encode(x=x, y=alt.value(HEIGHT - 4)), path)


def plot_class_distributions(table: Annotations, path: str | Path, gold: IntArray | None = None) -> Path:
    """Draw how often each class is given and, where `gold` (I,) is known, is true; .svg, .png or .html."""
    from dissensus.learning.analysis import class_distributions

    alt, found = charts.altair(), class_distributions(table, gold)
    classes = distinct(found.classes.tolist(), 60)
    parts = {"labels": found.labels, "gold": found.gold}
    rows = [
        {"class": name, "of": what, "share": share}
        for what, shares in parts.items()
        if shares is not None
        for name, share in zip(classes, shares.tolist(), strict=True)
    ]
    there = list(dict.fromkeys(row["of"] for row in rows))
    bars = (
        alt.Chart(charts.data(rows))
        .mark_bar()
        .encode(
            x=alt.X("class:N", title=None, sort=classes, axis=alt.Axis(labelAngle=-40, labelLimit=120)),
            xOffset=alt.XOffset("of:N", sort=there),
            y=alt.Y("share:Q", title="share", axis=charts.axis(charts.SHARE)),
            color=charts.color("of", there),
        )
    )
    return _save(bars, path)


def plot_annotator_embeddings(model: Any, table: Annotations, path: str | Path, **options: Any) -> Path:
    """Draw annotators by their embeddings in two dimensions, as Figure 2 of Platanios et al. 2020; .svg, .png or .html.

    Three times: by cluster of mistakes, by false positive and by false negative rate of the second class (of more than
    two classes: by error rate and by the class that is over-used). `model` is a fitted LIA, or a CrowdClassifier with
    objective "lia"; `options` are those of `dissensus.learning.annotator_map.annotator_map`.
    """
    from dissensus.learning.annotator_map import annotator_map

    alt, found = charts.altair(), annotator_map(model, table, **options)
    classes = distinct(table.classes.tolist(), 60)
    rows = lia_charts.map_rows(found, distinct(table.annotators.tolist(), 60), classes)
    drawn = [
        chart.properties(width=PANEL, height=PANEL, title=alt.TitleParams(title, subtitle=note, anchor="start"))
        for title, note, chart in lia_charts.panels(rows, classes)
    ]
    title = f"{len(rows):,} annotators by their embeddings ({found.how}), {lia_charts.clusters_by(found.mistakes.by)}"
    beside = alt.hconcat(*drawn, title=alt.TitleParams(title, anchor="start", fontWeight="normal"))
    return _write(beside.resolve_scale(color="independent", shape="independent"), path)


def plot_difficulty(model: Any, table: Annotations, path: str | Path, gold: IntArray | None = None) -> Path:
    """Draw how hard LIA finds items against the entropy of their votes; .svg, .png or .html.

    Coloured by whether the model's class is right where `gold` (I,) is known, else by what most annotators say.
    """
    from dissensus.learning.annotator_map import difficulty_of, posterior_of

    gold = check_gold(gold, table)
    posterior, classes = posterior_of(model, table), distinct(table.classes.tolist(), 60)
    names = distinct(table.items.tolist(), 100)
    rows = lia_charts.difficulty_rows(difficulty_of(model, table), posterior, table, names, classes, gold)
    return _save(lia_charts.difficulty_chart(rows), path)


def plot_latent(
    model: Any, X: Any, path: str | Path, *, table: Annotations | None = None, codes: Any = None, **options: Any
) -> Path:
    """Draw items by what a trained network makes of them, as Figure 4 of Weerasooriya et al. 2021; .svg, .png or .html.

    Marked by class: `codes`, else the majority label in `table`, else the model's own; `options` are those of
    `dissensus.learning.latent_map.item_map`.
    """
    from dissensus.learning.latent_map import item_map, trained

    alt, found = charts.altair(), item_map(model, X, table=table, codes=codes, **options)
    classes = distinct((trained(model).classes_ if table is None else table.classes).tolist(), 60)
    names = [str(n) for n in range(found.of)] if table is None else distinct(table.items.tolist(), 100)
    chart = latent_charts.latent_chart(latent_charts.latent_rows(found, names, classes), classes, columns=3, size=30)
    apart = found.separation
    known = f"{apart.mean:.0%} of {apart.neighbours} neighbours share the class, {apart.mean_chance:.0%} by chance"
    title = alt.TitleParams(
        f"{len(found.item):,} items as the network sees them ({found.how})",
        subtitle=known if apart.neighbours and apart.count.any() else "",
        anchor="start",
        fontWeight="normal",
    )
    return _write(chart.properties(width=LARGE[0], height=LARGE[1], title=title), path)


def _save(chart: Any, path: str | Path) -> Path:
    return _write(chart.properties(width=WIDTH, height=HEIGHT), path)


def _write(chart: Any, path: str | Path) -> Path:
    path = Path(path)
    spec = chart.to_dict()
    convert = need("vl_convert", "the report needs", "report")
    kind = path.suffix.lower()
    if kind == ".svg":
        drawn = convert.vegalite_to_svg(spec).encode()
    elif kind == ".png":
        drawn = convert.vegalite_to_png(spec, scale=SCALE)
    elif kind in (".html", ".htm"):
        drawn = convert.vegalite_to_html(spec, bundle=True).encode()
    else:
        raise BadParameter(f"a figure is an .svg, .png or .html file, not {path.name}.")
    with atomic(path) as file:
        file.write(drawn)
    return path
