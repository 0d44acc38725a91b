"""Annotator map: which annotators an LIA model finds similar, and which mistakes they make.

`dissensus.learning.annotator_map` computes the positions (Platanios et al. 2020, Figure 2). Annotators who make the
same mistakes are near each other: on the bluebirds data, the nearest neighbour of 90 % of the annotators is in the same
cluster of mistakes, where 31 % would be expected by chance (`reproductions/results/platanios2020.md`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from dissensus.common.formatting import format_count
from dissensus.report import charts
from dissensus.report.blocks import ChartBlock, Row, TextBlock
from dissensus.report.section import Blocks, Facts, Section, sections
from dissensus.report.study import N_COLORS, Study, extract_entry

MAP_HEIGHT = 320  # pixels
MARK_SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
OTHERS_NAME, TOO_FEW_LABELS_NAME, NO_CLASS_NAME = (
    "(others)",
    "(too few labels)",
    "(none)",
)  # The brackets tell these from names of classes.
CLUSTER_BASIS_PHRASES = {
    "items": "by the items on which they err",
    "confusions": "by the classes that they confuse, as not all pairs of annotators share enough items",
    None: "without clusters, as no annotator has enough labels",
}
"""Basis of the clusters (`AnnotatorErrors.distance_basis`) → how the page describes it."""
ANNOTATOR_TIPS = ("annotator:N", ("labels:Q", "labels", charts.COUNT_FORMAT))


@sections.register(
    "annotator-map", title="Annotator map", summary="Which annotators make similar mistakes, by the model?", place=58
)
class AnnotatorMapSection(Section):
    """Show annotators in two dimensions by their embeddings, coloured by clusters and rates of mistakes."""

    needs = ("model",)

    def applies(self, study: Study) -> bool:
        return super().applies(study) and getattr(study.model, "difficulty_", None) is not None

    def collect(self, study: Study) -> Facts:
        from dissensus.learning.annotator_map import annotator_map

        study.on_step("mapping annotators")
        found = annotator_map(study.model, study.table, seed=study.seed)
        return {
            "projection": found.projection,
            "basis": found.mistakes.distance_basis,
            "labelled": found.n_labelled,
            "classes": study.classes,
            "annotators": list_annotator_rows(found, study),
        }

    def draw(self, facts: Facts) -> Blocks:
        rows, basis = facts["annotators"], CLUSTER_BASIS_PHRASES[facts["basis"]]
        yield TextBlock(
            f"{format_count(len(rows), 'annotator')} of {facts['labelled']:,} with labels, placed by their embeddings "
            f"in the model ({facts['projection']}); clusters {basis}. Mistakes are those that the model infers. "
            "Neighbours are similar; the axes, larger distances and directions have no meaning."
        )
        for title, caption, chart in make_annotator_charts(rows, facts["classes"]):
            alt = f"{title} of {format_count(len(rows), 'annotator')}, placed by their embeddings in two dimensions."
            yield ChartBlock(charts.to_spec(chart, MAP_HEIGHT), title, caption, alt)


def list_annotator_rows(found: Any, study: Study) -> list[Row]:
    """Return a row for each annotator of an `AnnotatorMap`.

    With two classes, the rates are those of the second class. With more, they are the error rate and the class that
    the annotator gives too often.
    """
    mistakes, rows = found.mistakes, []
    for n, code in enumerate(found.annotator.tolist()):
        cluster, over = int(mistakes.cluster[n]), int(mistakes.overused_class[n])
        row = {
            "annotator": study.annotator_names[code],
            **get_map_position(found, n),
            "cluster": TOO_FEW_LABELS_NAME if cluster < 0 else f"{cluster + 1}",
            **extract_entry(n, labels=mistakes.n_labels, error=mistakes.error_rate),
        }
        if len(study.classes) == 2:
            positive, negative = mistakes.false_positive[:, 1], mistakes.false_negative[:, 1]
            row |= extract_entry(n, false_positive=positive, false_negative=negative)
        elif over >= 0:
            row["overused"] = study.classes[over]
        else:
            row["overused"] = TOO_FEW_LABELS_NAME if row["error"] is None else NO_CLASS_NAME
        rows.append(row)
    return rows


def make_annotator_charts(rows: Sequence[Row], classes: Sequence[str]) -> list[tuple[str, str, Any]]:
    """Return (title, caption, chart) of the map in several colourings."""
    clusters = _make_chart_by_name(rows, "cluster", "cluster")
    drawn = [("Clusters of mistakes", "Annotators of one colour and shape make similar mistakes.", clusters)]
    if len(classes) == 2:
        for kind, given, true in (("positive", 1, 0), ("negative", 0, 1)):
            caption = f"Share of the {classes[true]} items that an annotator labels {classes[given]}."
            drawn.append((f"False {kind} rate", caption, _make_chart_by_rate(rows, f"false_{kind}")))
        return drawn
    overused = _make_chart_by_name(rows, "overused", "over-used")
    return [
        *drawn,
        ("Error rate", "Share of an annotator's labels that are wrong.", _make_chart_by_rate(rows, "error")),
        ("Over-used class", "The class that an annotator gives too often, by the largest number of labels.", overused),
    ]


def _make_chart_by_name(rows: Sequence[Row], field: str, title: str) -> Any:
    rows, names = limit_names_to_colors(rows, field)
    color, marks = charts.make_color_encoding(field, names, columns=4), make_shape_encoding(field, names, columns=4)
    return charts.draw_points(
        rows, 70, 0.85, [*ANNOTATOR_TIPS, (f"{field}:N", title)], **make_position_axes(), color=color, shape=marks
    )


def _make_chart_by_rate(rows: Sequence[Row], field: str) -> Any:
    known = [row for row in rows if row[field] is not None]
    unknown = [row for row in rows if row[field] is None]
    tips = [*ANNOTATOR_TIPS, (f"{field}:Q", field.replace("_", " "), charts.EXACT_SHARE_FORMAT)]
    dots = charts.draw_points(known, 70, 0.9, tips, **make_position_axes(), color=charts.make_heat_encoding(field, ""))
    if not unknown:
        return dots
    grey = {"type": "point", "size": 40, "opacity": 0.5, "color": "grey"}
    return charts.draw_marks(unknown, grey, ANNOTATOR_TIPS, **make_position_axes()) + dots


def get_map_position(found: Any, n: int) -> Row:
    """Return x and y of the n-th annotator on the map."""
    return extract_entry(n, 4, x=found.position[:, 0], y=found.position[:, 1])


def make_position_axes(**axis: Any) -> dict[str, charts.Encoding]:
    """Return the encodings of x and y of a map, whose axes have no labels."""
    more = {
        "type": "quantitative",
        "axis": {"labels": False, "ticks": False, "title": None, **axis},
        "scale": {"zero": False, "padding": 12},
    }
    return {"x": {"field": "x", **more}, "y": {"field": "y", **more}}


def make_shape_encoding(field: str, domain: Sequence[str], *, columns: int) -> charts.Encoding:
    """Return the encoding of names by shapes, in addition to their colours."""
    return charts.make_color_encoding(
        field, domain, [MARK_SHAPES[n % len(MARK_SHAPES)] for n in range(len(domain))], columns=columns
    )


def merge_rare_names(rows: Sequence[Row], field: str, max_names: int) -> list[Row]:
    """Return the rows with at most `max_names` names in a field; the rarest names are merged into one."""
    times = Counter(row[field] for row in rows)
    if len(times) <= max_names:
        return list(rows)
    kept = {name for name, _ in times.most_common(max_names - 1)}
    return [row if row[field] in kept else row | {field: OTHERS_NAME} for row in rows]


def limit_names_to_colors(rows: Sequence[Row], field: str) -> tuple[list[Row], list[str]]:
    """Limit the names in a field to the number of colours; return the rows and these names in order."""
    rows = merge_rare_names(rows, field, N_COLORS)
    last = (TOO_FEW_LABELS_NAME, NO_CLASS_NAME, OTHERS_NAME)
    return rows, sorted({row[field] for row in rows}, key=lambda name: (name in last, name))
