"""Draw the papers' figures from fitted models, with the charts of the report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import altair as alt
import vl_convert

from dissensus.common.atomic import open_atomically
from dissensus.common.types import IntArray
from dissensus.exceptions import BadParameter
from dissensus.models.base import check_gold
from dissensus.report.sections.annotator_map import CLUSTER_BASIS_PHRASES, list_annotator_rows, make_annotator_charts
from dissensus.report.study import Study, make_distinct_names
from dissensus.table.annotations import Annotations
from reproductions import maps

SIZE = 480, 300  # pixels
MAP_SIZE = 640, 480
PANEL_SIZE = 260  # Pixels: width and height of one of several pictures in a row.
PNG_SCALE = 2  # pixels of the file for each


def plot_annotator_embeddings(model: Any, table: Annotations, path: str | Path, **options: Any) -> Path:
    """Draw annotators by their embeddings in two dimensions, as Figure 2 of Platanios et al. 2020; .svg, .png or .html.

    Three times: by cluster of mistakes, by false positive and by false negative rate of the second class (of more than
    two classes: by error rate and by the class that is over-used). `model` is a fitted LIA, or a CrowdClassifier with
    objective "lia"; `options` are those of `dissensus.learning.annotator_map.annotator_map`.
    """
    from dissensus.learning.annotator_map import annotator_map

    found = annotator_map(model, table, **options)
    study = Study(table, model, names=True)
    rows = list_annotator_rows(found, study)
    drawn = [
        chart.properties(
            width=PANEL_SIZE, height=PANEL_SIZE, title=alt.TitleParams(title, subtitle=note, anchor="start")
        )
        for title, note, chart in make_annotator_charts(rows, study.classes)
    ]
    basis = CLUSTER_BASIS_PHRASES[found.mistakes.distance_basis]
    title = f"{len(rows):,} annotators by their embeddings ({found.projection}), clusters {basis}"
    beside = alt.hconcat(*drawn, title=alt.TitleParams(title, anchor="start", fontWeight="normal"))
    return _write(beside.resolve_scale(color="independent", shape="independent"), path, None)


def plot_difficulty(model: Any, table: Annotations, path: str | Path, gold: IntArray | None = None) -> Path:
    """Draw how hard LIA finds items against the entropy of their votes; .svg, .png or .html.

    Coloured by whether the model's class is right where `gold` (I,) is known, else by the majority of the labels.
    """
    from dissensus.learning.annotator_map import align_difficulty, align_posterior

    study = Study(table, model, gold=check_gold(gold, table))
    rows = maps.difficulty_rows(align_difficulty(model, table), align_posterior(model, table), study)
    return _write(maps.difficulty_chart(rows), path)


def plot_latent(
    model: Any, X: Any, path: str | Path, *, table: Annotations | None = None, codes: Any = None, **options: Any
) -> Path:
    """Draw items at their vectors in a trained network, as Figure 4 of Weerasooriya et al. 2021; .svg, .png or .html.

    Marked by class: `codes`, else the majority label in `table`, else the model's own; `options` are those of
    `dissensus.learning.latent_map.item_map`.
    """
    from dissensus.learning.latent_map import get_classifier, item_map

    found = item_map(model, X, table=table, codes=codes, **options)
    if table is None:
        names, classes = (
            [str(n) for n in range(found.n_rows)],
            make_distinct_names(get_classifier(model).classes_.tolist(), 60),
        )
    else:
        study = Study(table, model)
        names, classes = study.item_names, study.classes
    chart = maps.item_chart(maps.item_rows(found, names, classes), classes, columns=3, size=30)
    apart = found.separation
    known = f"{apart.mean:.0%} of {apart.n_neighbours} neighbours share the class, {apart.chance:.0%} by chance"
    title = alt.TitleParams(
        f"{len(found.item):,} items as the network sees them ({found.projection})",
        subtitle=known if apart.n_neighbours and apart.class_counts.any() else "",
        anchor="start",
        fontWeight="normal",
    )
    return _write(chart.properties(title=title), path, MAP_SIZE)


def _write(chart: Any, path: str | Path, size: tuple[int, int] | None = SIZE) -> Path:
    path = Path(path)
    if size is not None:
        chart = chart.properties(width=size[0], height=size[1])
    spec, kind = chart.to_dict(), path.suffix.lower()
    if kind == ".svg":
        drawn = vl_convert.vegalite_to_svg(spec).encode()
    elif kind == ".png":
        drawn = vl_convert.vegalite_to_png(spec, scale=PNG_SCALE)
    elif kind in (".html", ".htm"):
        drawn = vl_convert.vegalite_to_html(spec, bundle=True).encode()
    else:
        raise BadParameter(f"a figure is an .svg, .png or .html file, not {path.name}.")
    with open_atomically(path) as file:
        file.write(drawn)
    return path
