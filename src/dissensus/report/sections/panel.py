"""Panel: how many independent judges it is worth if all judges label nearly all items; rates corrected by gold."""

from __future__ import annotations

import numpy as np
from scipy.cluster.hierarchy import dendrogram

from dissensus.common.formatting import format_percent
from dissensus.evaluation.ppi import MIN_GOLD_FOR_VARIANCE
from dissensus.models.gold_weights import panel_judges
from dissensus.questions.calibrate import calibrate
from dissensus.questions.panel_review import review_panel
from dissensus.report import charts
from dissensus.report.blocks import ChartBlock, KeyFigure, KeyFigures, TableBlock, TableColumn, TextBlock
from dissensus.report.section import Blocks, Facts, Finding, Findings, Section, Tone, sections
from dissensus.report.study import Study

MIN_JUDGES = 3
MIN_ITEMS = 50
# Once judges keep this share of the panel's evidence, further ones are hardly worth their cost.
MIN_EVIDENCE_SHARE = 0.95
MAX_LISTED_CLASSES = 20  # classes in the table of rates


class EffectiveJudges(Finding):
    template = (
        "The {judges} judges carry the evidence of about {effective:.1f} independent ones ({low:.1f} to {high:.1f}), "
        "{reason}."
    )
    judges: int
    effective: float
    low: float
    high: float
    by_gold: bool
    example = {"judges": 5, "effective": 2.0, "low": 1.5, "high": 2.5}

    @property
    def reason(self) -> str:
        if self.by_gold:
            return "because they make the same mistakes"
        return "if their mistakes coincide as often as those of other panels whose gold labels are known"

    @property
    def advice(self) -> str:
        return (
            ""
            if self.by_gold
            else "Have people label 50 random items: this measures how far the judges' mistakes coincide."
        )

    @property
    def tone(self) -> Tone:
        return "bad" if self.by_gold and self.effective < self.judges / 2 else "note"


@sections.register(
    "panel",
    title="Panel",
    summary="How many independent judges is this panel worth, and which make the same mistakes?",
    place=45,
)
class PanelSection(Section):
    """Show the effective number of judges, a tree and a matrix of their mistakes, and corrected rates."""

    def applies(self, study: Study) -> bool:
        if study.table.n_items < MIN_ITEMS or study.table.n_classes < 2 or not study.fitted.dependence_:
            return False
        return panel_judges(study.table).size >= MIN_JUDGES

    def collect(self, study: Study) -> Facts:
        study.on_step("analysing the panel")
        table, judges = study.table, panel_judges(study.table)
        found = None
        known = 0 if study.gold is None else np.count_nonzero((study.gold >= 0) & (study.labels_per_item > 0))
        if study.gold is not None and known >= 2 * MIN_GOLD_FOR_VARIANCE:
            found = calibrate(table, study.gold, model=study.fitted, seed=study.seed)
        review = found.judges if found is not None else review_panel(table, model=study.fitted)
        assert review is not None
        names, at = [study.annotator_names[code] for code in judges], review.tree_order
        by_name = {str(name): shown for name, shown in zip(review.judges, names, strict=True)}
        kept = [{"judge": by_name[name], "share": share} for name, share in review.selection]
        place = {name: n for n, name in enumerate(table.annotators[judges].tolist())}
        bought = {name: n for n, (name, _) in enumerate(review.selection, 1)}
        rows = [
            {"judge": names[j], "labels": int(table.annotations_per_annotator[judges[j]]), "lost": review.value[j]}
            | {"bought": bought.get(str(review.judges[j]))}
            | ({"family": review.families[j]} if study.names else {})
            for j in sorted(place.values(), key=lambda j: study.annotator_rank[judges[j]])
        ]
        return {
            "effective": review.effective_judges,
            "by_gold": review.uses_gold,
            "correlation": review.mean_correlation,
            "judges": rows,
            "order": [names[j] for j in at],
            "matrix": review.correlation[np.ix_(at, at)],
            "tree": _list_tree_segments(review.tree),
            "kept": kept,
            "rates": []
            if found is None or known == table.n_items
            else [
                {"class": study.classes[k], "judged": one.judge_rate, "saved": one.corrected.labels_saved}
                | {"corrected": one.corrected, "human": one.corrected.human}
                for k, one in enumerate(found.rates[:MAX_LISTED_CLASSES])
                if k < len(study.classes)
            ],
            "gold": int(known),
        }

    def findings(self, facts: Facts) -> Findings:
        worth = facts["effective"]
        yield EffectiveJudges(
            judges=len(facts["judges"]),
            effective=worth["value"],
            low=worth["low"],
            high=worth["high"],
            by_gold=facts["by_gold"],
        )

    def draw(self, facts: Facts) -> Blocks:
        worth, kept = facts["effective"], facts["kept"]
        how = "measured by gold" if facts["by_gold"] else "typical of panels with gold"
        enough = next((n for n, one in enumerate(kept, 1) if one["share"] >= MIN_EVIDENCE_SHARE), len(kept))
        figures = [
            KeyFigure(
                f"{worth['value']:.1f}", "independent judges", f"{worth['low']:.1f} to {worth['high']:.1f}, {how}"
            ),
            KeyFigure(f"{facts['correlation']:.2f}", "mean correlation of two judges' mistakes", how),
        ]
        if kept:
            figures.append(
                KeyFigure(
                    f"{enough} of {len(kept)}",
                    f"judges keep {format_percent(MIN_EVIDENCE_SHARE)} of the panel's answer",
                )
            )
        yield KeyFigures(figures)
        if not facts["by_gold"]:
            yield TextBlock(
                "Without gold labels it is unknown how far the mistakes of this panel coincide: the interval is "
                "that of "
                "other panels and crowds, for which gold labels exist."
            )
        yield _make_tree_chart(facts)
        yield _make_correlation_chart(facts)
        if facts["rates"]:
            columns = {
                "class": TableColumn("class"),
                "judged": TableColumn("rate by the judges", "percent", 1),
                "corrected": TableColumn("corrected", "interval", note="prediction-powered inference, 95 %"),
                "human": TableColumn("human labels alone", "interval", note="95 %"),
                "saved": TableColumn("labels saved", "number", note="human labels that the judges replace"),
            }
            yield TableBlock.from_rows(
                "panel-rates", "Corrected rates",
                f"Valid for any quality of the judges if the {facts['gold']:,} items with gold were drawn at random.",
                columns, facts["rates"], search=False,
            )  # fmt: skip
        columns = {
            "judge": TableColumn("judge"),
            "family": TableColumn("family"),
            "labels": TableColumn("labels", "number"),
            "lost": TableColumn("lost without it", "percent", 1, note="share of the panel's evidence"),
            "bought": TableColumn("rank", "number", note="order in which judges add most evidence"),
        }
        yield TableBlock.from_rows(
            "panel-judges", "Judges", "Judges whose removal loses nothing can be dropped.", columns, facts["judges"]
        )  # fmt: skip


def _list_tree_segments(tree: tuple[tuple[float, ...], ...]) -> list[list[float]]:
    """Return one line per join of two branches: both positions, both heights, and the height of the join."""
    drawn = dendrogram(np.array(tree), no_plot=True)  # SciPy puts leaves at 5, 15, 25, …
    lines = zip(drawn["icoord"], drawn["dcoord"], strict=True)
    return [[x[0] / 10 - 0.5, x[3] / 10 - 0.5, y[0], y[3], y[1]] for x, y in lines]


def _make_tree_chart(facts: Facts) -> ChartBlock:
    names, rows = facts["order"], []
    for line, (one, other, low, high, far) in enumerate(facts["tree"]):
        corners = ((low, one), (far, one), (far, other), (high, other))
        rows += [{"line": line, "far": x, "place": y, "corner": n} for n, (x, y) in enumerate(corners)]
    marks = [{"judge": name, "place": at, "far": 0.0} for at, name in enumerate(names)]
    y = {
        "field": "place", "type": "quantitative", "axis": None, "title": None,
        "scale": {"domain": [-0.5, len(names) - 0.5], "reverse": True},
    }  # fmt: skip
    far = max((row["far"] for row in rows), default=1.0) or 1.0
    ticks = [round(tick / 10, 1) for tick in range(int(far * 10) + 1) if tick % 2 == 0]
    room = {"domain": [far, -0.35 * far], "nice": False}  # Space for the names right of the leaves.
    x = charts.make_quantity_axis("far", "1 − correlation of mistakes", scale=room, values=ticks)
    lines = charts.draw_marks(rows, "line", x=x, y=y, detail="line:N", order="corner:Q")
    words = charts.draw_marks(
        marks, {"type": "text", "align": "left", "dx": 4, "color": "var(--soft)"}, ["judge:N"], x=x, y=y, text="judge:N"
    )
    return ChartBlock(
        charts.to_spec(lines + words, max(120, 16 * len(names) + 40)),
        "Judges with the same mistakes, as a tree",
        "Horizontal axis: 1 − correlation of mistakes. Judges that are joined far to the right make the same mistakes.",
        f"Tree of {len(names)} judges by the correlation of their errors.",
        wide=True,
    )


def _make_correlation_chart(facts: Facts) -> ChartBlock:
    names = facts["order"]
    rows = [row for row in charts.list_matrix_cells(names, names, r=facts["matrix"]) if row["down"] != row["across"]]
    rows = [row for row in rows if row["r"] is not None]
    tips = [("down:N", "judge"), ("across:N", "and"), ("r:Q", "correlation", ".2f")]
    best = max(rows, key=lambda row: row["r"], default=None)
    most = "" if best is None else f"; highest between {best['down']} and {best['across']}, {best['r']:.2f}"
    return ChartBlock(
        charts.make_matrix_chart(names, rows, tips, charts.make_heat_encoding("r", "correlation of errors", ".1f")),
        "Judges with the same mistakes, pair by pair",
        "Colour: correlation of two judges' mistakes. Judges in a bright block make the same mistakes, so a second one "
        "adds little.",
        f"Matrix of correlations of errors of {len(names)} judges{most}.",
        wide=True,
    )
