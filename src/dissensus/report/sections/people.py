"""Annotators of labels that are not classes: how each answers, and whose answers differ from the others'."""

from __future__ import annotations

import numpy as np

from dissensus.questions.bias_tests import FLAG_WORDS, find_biases
from dissensus.report import charts
from dissensus.report.blocks import ChartBlock, KeyFigure, KeyFigures, TableBlock, TableColumn
from dissensus.report.section import Blocks, Facts, Finding, Findings, Section, sections
from dissensus.report.sections.annotators import TooFewLabelsCard, list_names
from dissensus.report.study import Study, format_shown_count, to_plain
from dissensus.table.kinds import CLASS_KINDS, KIND_DESCRIPTIONS

MAX_LISTED_ANNOTATORS = 500  # annotators in the table
MAX_DRAWN_ANNOTATORS = 40  # annotators in the chart


class UnusualAnswersCard(Finding):
    template = "The answers of {listing} are {difference}."
    advice = "Ask how they understand the task before you draw conclusions."
    tone = "bad"
    table = "people"
    annotators: tuple[str, ...]
    difference: str

    @property
    def listing(self) -> str:
        return list_names(self.annotators)


@sections.register(
    "people", title="Annotators", summary="How does each annotator answer, and who differs from the others?", place=40
)
class PeopleSection(Section):
    """Show the reliability and the bias of annotators, and flags with their reasons."""

    kinds = tuple(kind for kind in KIND_DESCRIPTIONS if kind not in CLASS_KINDS)

    def collect(self, study: Study) -> Facts:
        study.on_step("looking at the annotators")
        found = find_biases(study.table)
        frame = study.fitted.to_frame("annotators", "pyarrow").to_pydict()
        own = [name for name in frame if name not in ("annotator", "annotations", "low", "high")]
        flagged = np.array([bool(one) for one in found.flags])
        order = np.lexsort((study.annotator_rank, -study.fitted.n_annotations_, ~flagged))[:MAX_LISTED_ANNOTATORS]
        people = [
            {"annotator": study.annotator_names[code], "labels": int(frame["annotations"][code])}
            | {name: frame[name][code] for name in own}
            | {"flags": [FLAG_WORDS[one] for one in found.flags[code]], "why": found.reasons[code]}
            | ({"about": about} if (about := study.annotator_columns(code)) else {})
            for code in order.tolist()
        ]
        facts: Facts = {
            "annotators": study.table.n_annotators,
            "active": found.active_annotators,
            "too_few_labels": found.too_few_labels,
            "flagged": int(flagged.sum()),
            "columns": own,
            "people": people,
            "contested": [{"item": str(item), "apart": apart} for item, apart in found.most_contested(10)],
        }
        return dict(to_plain(facts, 3))

    def findings(self, facts: Facts) -> Findings:
        for words in FLAG_WORDS.values():
            names = [one["annotator"] for one in facts["people"] if words in one["flags"]]
            if names:
                yield UnusualAnswersCard(annotators=tuple(names), difference=words)
        if few := facts["too_few_labels"]:
            yield TooFewLabelsCard(too_few=few, active=facts["active"])

    def draw(self, facts: Facts) -> Blocks:
        flagged = "annotators are flagged"
        yield KeyFigures([KeyFigure(f"{facts['active']:,}", "annotators"), KeyFigure(f"{facts['flagged']:,}", flagged)])
        rows = [one for one in facts["people"] if one.get("reliability") is not None][:MAX_DRAWN_ANNOTATORS]
        if len(rows) > 1:
            keys = ("annotator", "reliability", "labels")
            rows = [{key: one[key] for key in keys} for one in sorted(rows, key=lambda one: -one["reliability"])]
            x = charts.make_quantity_axis("reliability", "reliability", "~g", scale={"domain": [0, 1]})
            tips = ["annotator:N", ("reliability:Q", "reliability", ".2f"), ("labels:Q", "labels", charts.COUNT_FORMAT)]
            drawn = format_shown_count(rows, facts["annotators"], "are drawn", "; ")
            yield ChartBlock(
                charts.make_bar_chart(rows, "annotator", x, tips, opens="people"),
                "Reliability of each annotator",
                f"Horizontal axis: reliability, from 0 to 1; the highest first{drawn}. Click a bar to see that "
                "annotator.",
                "Reliability: " + ", ".join(f"{one['annotator']} {one['reliability']:.2f}" for one in rows[:8]) + ".",
            )
        columns = {"annotator": TableColumn("annotator"), "labels": TableColumn("labels", "number")}
        columns |= {name: TableColumn(name.replace("_", " "), "number", 2) for name in facts["columns"]}
        columns |= {"flags": TableColumn("flags", "chips"), "why": TableColumn("why", "long")}
        few = format_shown_count(facts["people"], facts["annotators"], "are listed", "; ")
        caption = f"Flagged annotators first{few}."
        yield TableBlock.from_rows("people", "All annotators", caption, columns, facts["people"])
        if facts["contested"]:
            yield TableBlock.from_rows(
                "contested", "Items whose labels differ most", "Mean distance between the labels of an item.",
                {"item": TableColumn("item"), "apart": TableColumn("distance", "number", 2)},
                facts["contested"], search=False,
            )  # fmt: skip
