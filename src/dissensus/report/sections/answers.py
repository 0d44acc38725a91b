"""Answers to questions whose labels are not classes: values, rankings, sets, spans and texts, each with a chart."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

import numpy as np

from dissensus.common.formatting import Count, Share, format_percent
from dissensus.common.types import FloatArray
from dissensus.evaluation.distances import MAX_LABELS_COMPARED, agreement_for_label_type
from dissensus.evaluation.exceptions import NoSharedItems
from dissensus.evaluation.intervals import bootstrap
from dissensus.questions.scoring import SCORING_BY_LABEL_TYPE
from dissensus.report import charts
from dissensus.report.blocks import ChartBlock, KeyFigure, KeyFigures, TableBlock, TableColumn, make_detail_list
from dissensus.report.face import REPORT_FACE
from dissensus.report.section import Blocks, Facts, Finding, Findings, Section, sections
from dissensus.report.sections.overview import MAX_CHANCE_ALPHA, MIN_ITEMS_FOR_CHANCE, AgreementAtChanceCard
from dissensus.report.study import Study, format_range, format_shown_count, limit_json_size, shorten_text, to_plain
from dissensus.table.kinds import CLASS_KINDS, KIND_DESCRIPTIONS

MAX_TABLE_ROWS = 300  # rows of the table
MAX_TABLE_CHARACTERS = 400_000  # JSON characters of the rows of the table
MAX_DRAWN_ITEMS = 40  # items or alternatives in a chart
MAX_NAMES_IN_ALT = 8  # items or alternatives in the alternative text of a chart
MIN_SPAN_CONFIDENCE = 0.7  # mean confidence of spans; if it is lower, more annotators are recommended
N_RESAMPLES = 500  # bootstrap resamples for the intervals of agreement
COEFFICIENT_NAMES = {
    "icc": "intraclass correlation", "exact_f1": "F1 of two annotators", "krippendorff_alpha": "Krippendorff's α",
    "jaccard_alpha": "Krippendorff's α, Jaccard", "words_alpha": "Krippendorff's α, words",
}  # fmt: skip
GOLD_MEASURE_NAMES = {
    "jaccard": "Jaccard index, by gold",
    "f1": "F1 of spans, by gold",
    "gold_error": "mean error, by gold",
}


class WideIntervals(Finding):
    template = "{wide:,} of {items:item} {verb} a 95 % interval wider than half of the scale."
    advice = "Collect more labels on these items."
    table = "answers"
    wide: int
    items: Count

    @property
    def verb(self) -> str:
        return "has" if self.wide == 1 else "have"


class BestAlternative(Finding):
    template = "{best} is the best alternative: its 95 % interval of ranks contains only rank 1."
    tone = "good"
    table = "answers"
    best: str


class BestAlternativeUnclear(Finding):
    template = "{best} leads, but not significantly ahead of {tied_names}."
    advice = "Collect more comparisons between these."
    table = "answers"
    best: str
    level: tuple[str, ...]

    @property
    def tied_names(self) -> str:
        return f"{len(self.level):,} others" if len(self.level) > 3 else " and ".join(self.level)


class UncertainSpans(Finding):
    template = "The mean confidence of the spans is only {confidence:0}."
    advice = "Have the documents read by more annotators."
    table = "answers"
    confidence: Share


class AnswersAgainstGold(Finding):
    template = "{measure}: {value} ({low} to {high}{coverage}), on {items:,} {units} with a gold answer."
    measure: str
    value: str
    low: str
    high: str
    covered: Share | None
    items: int
    units: Literal["items", "tokens"]

    @property
    def coverage(self) -> str:
        return "" if self.covered is None else f"; {self.covered:0} of the gold values lie within their 95 % intervals"


@sections.register("answers", title="Answers", summary="What are the answers, and how certain are they?", place=15)
class AnswersSection(Section):
    """Show the agreement of labels, and a table and a chart of the answers with their uncertainty."""

    kinds = tuple(kind for kind in KIND_DESCRIPTIONS if kind != "classes")

    def collect(self, study: Study) -> Facts:
        study.on_step("collecting the answers")
        table = study.table
        found = ANSWER_DISPLAYS[table.kind].collect(study, study.fitted)
        return {
            "kind": table.kind,
            "labels_per_item": format_range(np.diff(table.item_ptr)),
            "labels_per_annotator": format_range(table.annotations_per_annotator),
            "agreement": None if table.kind in CLASS_KINDS else _collect_agreement(study),
            "gold": None if table.kind in CLASS_KINDS else _compare_with_gold(study),
            "items": table.n_items,
            "items_with_two_annotators": int((table.annotators_per_item > 1).sum()),
            **found,
            "rows": limit_json_size(to_plain(found["rows"]), MAX_TABLE_CHARACTERS),
        }

    def findings(self, facts: Facts) -> Findings:
        alpha = next((one for one in facts["agreement"] or () if "α" in COEFFICIENT_NAMES[one["name"]]), None)
        checked = facts["items_with_two_annotators"] >= MIN_ITEMS_FOR_CHANCE
        if alpha is not None and alpha["value"] is not None and alpha["value"] < MAX_CHANCE_ALPHA and checked:
            yield AgreementAtChanceCard(coefficient=COEFFICIENT_NAMES[alpha["name"]], alpha=alpha["value"])
        yield from ANSWER_DISPLAYS[facts["kind"]].findings(facts)
        if (gold := facts["gold"]) is not None:
            words, covered = _format_gold(gold), gold.get("covered")
            yield AnswersAgainstGold(
                **words | {"measure": f"{words['measure'][0].upper()}{words['measure'][1:]}"},
                covered=None if covered is None else Share(covered),
                items=gold["items"],
                units=gold["of"],
            )

    def draw(self, facts: Facts) -> Blocks:
        numbers = []
        if facts["kind"] not in CLASS_KINDS:
            numbers += [
                KeyFigure(facts["labels_per_item"], "labels per item"),
                KeyFigure(facts["labels_per_annotator"], "labels per annotator"),
            ]
        shown_as, rows = ANSWER_DISPLAYS[facts["kind"]], facts["rows"]
        numbers += shown_as.numbers(facts)
        for one in facts["agreement"] or ():
            if one["value"] is not None:
                between = "" if one["low"] is None else f"{one['low']:.2f} to {one['high']:.2f}"
                numbers.append(KeyFigure(f"{one['value']:.2f}", COEFFICIENT_NAMES[one["name"]], between))
        if (gold := facts["gold"]) is not None:
            words = _format_gold(gold)
            note = f"{gold['items']:,} {gold['of']} with a gold answer"
            numbers.append(KeyFigure(words["value"], words["measure"], note))
        yield KeyFigures(numbers)
        yield from shown_as.draw(facts)
        labels = [
            [make_detail_list("Labels of annotators", ("annotator", "answer"), row["given"])]
            for row in rows
            if "given" in row
        ]
        caption = f"{shown_as.order} first{format_shown_count(rows, facts['items'], 'are listed', '; ')}."
        more = {"details": labels or None, "page": shown_as.page}
        yield TableBlock.from_rows("answers", shown_as.title, caption, shown_as.columns, rows, **more)


def make_headline_sentences(facts: Facts) -> list[str]:
    """Return the sentences of the headline: the best alternative of a ranking, or else the first key figures."""
    shown_as = ANSWER_DISPLAYS[facts["kind"]]
    if facts["kind"] == "pairs":
        return [one.render(REPORT_FACE) for one in shown_as.findings(facts)]
    return [f"{one.name[0].upper()}{one.name[1:]}: {one.value}." for one in shown_as.numbers(facts)[:2]]


def _collect_agreement(study: Study) -> list[Facts] | None:
    """Return the agreement coefficients that are defined for the label type, or None."""
    if study.table.kind == "objects" and study.table.n_classes > MAX_LABELS_COMPARED:
        return None
    try:
        found = agreement_for_label_type(study.table, resamples=N_RESAMPLES, seed=study.seed)
    except NoSharedItems:
        return None
    return [{"name": name, **to_plain(found[name])} for name in COEFFICIENT_NAMES if name in found]


def _compare_with_gold(study: Study) -> Facts | None:
    scoring, gold = SCORING_BY_LABEL_TYPE[study.table.kind], study.gold
    if gold is None or scoring.score_gold is None:
        return None
    found = scoring.score_gold(study.fitted, study.table, gold)
    if not found[:, 1].sum() > 0:
        return None
    known = ~np.isnan(gold) if study.table.kind == "numbers" else gold >= 0
    facts: Facts = {
        "measure": scoring.measure.gold_name,
        "share": scoring.measure.sign > 0,
        "value": bootstrap(found, lambda s: s[:, 0] / s[:, 1], seed=study.seed),
        "items": known.sum(),
        "of": "tokens" if study.table.kind == "spans" else "items",
    }
    if study.table.kind == "numbers":
        fitted: Any = study.fitted
        low, high = fitted.interval_[known].T
        facts["covered"] = ((gold[known] >= low) & (gold[known] <= high)).mean()
    return facts


def _format_gold(gold: Facts) -> dict[str, str]:
    words = {
        key: format_percent(gold["value"][key], 1) if gold["share"] else f"{gold['value'][key]:.3g}"
        for key in ("value", "low", "high")
    }
    return {"measure": GOLD_MEASURE_NAMES.get(gold["measure"], "mean distance, by gold"), **words}


class AnswerDisplay(NamedTuple):
    """Functions and words that show the answers of one label type."""

    title: str  # title of the table
    collect: Callable[[Study, Any], Facts]  # returns rows of the table and other facts of a study and its method
    numbers: Callable[[Facts], list[KeyFigure]]
    findings: Callable[[Facts], Iterator[Finding]]
    draw: Callable[[Facts], Blocks]  # yields charts
    columns: dict[str, TableColumn]
    order: str = "The least certain"  # names the rows that come first in the table
    page: int = 15


def _find_least_certain_items(doubt: FloatArray) -> list[int]:
    """Return the codes of the items with the largest uncertainty, largest first."""
    return list(np.argsort(-doubt, kind="stable")[:MAX_TABLE_ROWS].tolist())


def _list_rows(title: str, rows: list[Facts], words: str) -> str:
    """List the first rows of a chart in a sentence; `words` is a template of their fields."""
    return f"{title}: {', '.join(words.format_map(row) for row in rows[:MAX_NAMES_IN_ALT])}."


def _no_findings(facts: Facts) -> Iterator[Finding]:
    yield from ()


def _make_item_columns(**columns: TableColumn) -> dict[str, TableColumn]:
    """Return the columns of items with those of a label type in between."""
    return {
        "item": TableColumn("item"),
        "texts": TableColumn("text", "long"),
        **columns,
        "labels": TableColumn("labels", "number"),
    }


# Values ---------------------------------------------------------------------------------------------------------------


def _collect_values(study: Study, fitted: Any) -> Facts:
    table = study.table
    if table.kind == "graded":
        value = fitted.posterior_ @ table.values
        reach = np.cumsum(fitted.posterior_, axis=1)
        low, high = (
            table.values[np.minimum((reach < at - 1e-12).sum(axis=1), table.n_classes - 1)] for at in (0.025, 0.975)
        )
    else:
        value, (low, high) = fitted.values_, fitted.interval_.T
    width, labels = high - low, study.labels_per_item
    ranked = np.argsort(-value, kind="stable")
    drawn = ranked[np.unique(np.linspace(0, ranked.size - 1, min(MAX_DRAWN_ITEMS, ranked.size)).astype(int))]
    some = labels > 0
    spread = float(np.ptp(table.values[table.label])) if len(table) else 0.0
    return {
        "range": [value.min(), value.max()],
        "mean_width": width[some].mean(),
        "spread": spread,
        "wide": (width[some] > spread / 2).sum(),
        "labelled": some.sum(),
        "rows": [
            study.describe_item(i) | {"value": value[i], "low": low[i], "high": high[i], "labels": labels[i]}
            for i in _find_least_certain_items(width)
        ],
        "drawn": [{"item": study.item_names[i], "value": value[i], "low": low[i], "high": high[i]} for i in drawn],
    }


def _make_value_figures(facts: Facts) -> list[KeyFigure]:
    if facts["kind"] != "numbers":
        return []
    (low, high), width = facts["range"], f"{facts['mean_width']:.3g}"
    return [
        KeyFigure(f"{low:.4g} to {high:.4g}", "values"),
        KeyFigure(width, "mean width of a 95 % interval", f"labels span {facts['spread']:.4g}"),
    ]


def _find_wide_intervals(facts: Facts) -> Iterator[Finding]:
    if facts["kind"] == "numbers" and facts["wide"]:
        yield WideIntervals(wide=facts["wide"], items=Count(facts["labelled"]))


def _draw_values(facts: Facts) -> Blocks:
    rows = facts["drawn"]
    few = format_shown_count(rows, facts["items"], "are drawn, evenly by value.", " ")
    x = charts.make_quantity_axis("low", "value", "~g", scale={"zero": False})
    yield ChartBlock(
        charts.make_interval_chart(rows, "item", x, charts.make_interval_tooltip("value", ".4g"), opens="answers"),
        "Items by value",
        f"Horizontal axis: estimated value of each item; lines are 95 % intervals.{few} Click a mark to see its item.",
        _list_rows("Values from the highest", rows, "{item} {value:.4g}"),
        wide=True,
    )


# Ranking --------------------------------------------------------------------------------------------------------------


def _collect_ranking(study: Study, fitted: Any) -> Facts:
    rows = fitted.to_frame("things", "pyarrow").to_pylist()
    rows = [{"thing": shorten_text(row.pop("thing"), 100)} | row | {"value": row["score"]} for row in rows]
    rest = [row["thing"] for row in rows[1:] if row["rank_low"] == 1]
    _, left, _ = fitted.crowd_answering_
    return {
        "items": len(rows),
        "rows": rows[:MAX_TABLE_ROWS],
        "best": rows[0]["thing"],
        "level": rest,
        "left_log_odds": left,  # preference for the alternative on the left
    }


def _make_ranking_figures(facts: Facts) -> list[KeyFigure]:
    found = [
        KeyFigure(f"{facts['items']:,}", "alternatives"),
        KeyFigure(f"{1 + len(facts['level']):,}", "may be best", "their 95 % interval of ranks contains 1"),
    ]
    if abs(left := facts["left_log_odds"]) > 0.01:
        side = "left" if left > 0 else "right"
        odds = f"{np.exp(abs(left)):.2f} : 1"
        found.append(KeyFigure(odds, f"odds for the alternative on the {side}", "if both are equally good"))
    return found


def _describe_best_alternative(facts: Facts) -> Iterator[Finding]:
    best, level = facts["best"], tuple(facts["level"])
    yield BestAlternativeUnclear(best=best, level=level) if level else BestAlternative(best=best)


def _draw_ranking(facts: Facts) -> Blocks:
    rows = facts["rows"][:MAX_DRAWN_ITEMS]
    few = format_shown_count(rows, facts["items"], "are drawn, the best.", " ")
    x = charts.make_quantity_axis("low", "score (log odds of being preferred)", "~g", scale={"zero": False})
    tips = [*charts.make_interval_tooltip("score", ".3f"), ("rank:Q", "rank")]
    yield ChartBlock(
        charts.make_interval_chart(rows, "thing", x, tips, opens="answers"),
        "Scores",
        f"Horizontal axis: log odds of being preferred; lines are 95 % intervals.{few}",
        _list_rows("Scores from the best", rows, "{thing} {score:.2f}"),
    )
    by_rank = [
        {"thing": row["thing"], "value": row["rank"], "low": row["rank_low"], "high": row["rank_high"]} for row in rows
    ]
    x = charts.make_quantity_axis("low", "rank", "d", scale={"reverse": True, "zero": False}, tickMinStep=1)
    yield ChartBlock(
        charts.make_interval_chart(by_rank, "thing", x, charts.make_interval_tooltip("rank")),
        "Ranks",
        "Horizontal axis: rank, of which 1 is best (on the right); lines are 95 % intervals.",
        _list_rows("Ranks", by_rank, "{thing} {low} to {high}"),
    )


# Sets -----------------------------------------------------------------------------------------------------------------


def _collect_sets(study: Study, fitted: Any) -> Facts:
    table = study.table
    label, sure, options = fitted.predict(), fitted.confidence_, fitted.options_.tolist()
    names = [shorten_text(one, 60) for one in options]
    selected = table.options.selected.astype(float)[table.label]
    given = dict(zip(table.options.names.tolist(), selected.T, strict=True))
    return {
        "mean_confidence": sure.mean(),
        "mean_options": fitted.answer_.sum(axis=1).mean(),
        "mean_selected": selected.sum(axis=1).mean(),
        "rows": [
            study.describe_item(i)
            | {
                "label": shorten_text(label[i], 200),
                "confidence": sure[i],
                "options": _list_option_shares(fitted.posterior_[i], names),
            }
            | {"labels": study.labels_per_item[i]}
            for i in _find_least_certain_items(-sure)
        ],
        "options": [
            {"option": name, "given": given[one].mean(), "found": found}
            for name, one, found in zip(names, options, fitted.answer_.mean(axis=0), strict=True)
        ],
    }


def _make_set_figures(facts: Facts) -> list[KeyFigure]:
    selected = f"annotators select {facts['mean_selected']:.2f} on average"
    return [
        KeyFigure(
            format_percent(facts["mean_confidence"]), "mean confidence", "probability that the whole set is right"
        ),
        KeyFigure(f"{facts['mean_options']:.2f}", "options per item", selected),
    ]


def _list_option_shares(probability: Any, names: list[str]) -> list[list[Any]]:
    """Return the most probable options of an item for a table; their probabilities need not sum to one."""
    order = np.argsort(-probability, kind="stable")[:4]
    return [[names[k], float(probability[k]), k] for k in order.tolist() if probability[k] > 0.01]


def _draw_sets(facts: Facts) -> Blocks:
    words = {"given": "share of the labels given", "found": "share of the items, as inferred"}
    ranked = sorted(facts["options"], key=lambda one: -one["found"])[:MAX_DRAWN_ITEMS]
    yield ChartBlock(
        charts.make_grouped_bars(ranked, "option", words),
        "Options",
        f"Horizontal axis: share of the labels and of the answers that contain each of {len(facts['options']):,} "
        "options.",
        _list_rows("Options", [one | {"in": format_percent(one["found"])} for one in ranked], "{option} {in}"),
    )


# Spans ----------------------------------------------------------------------------------------------------------------


def _collect_spans(study: Study, fitted: Any) -> Facts:
    found = fitted.spans("pyarrow").to_pylist()
    of_document: dict[str, list[Facts]] = {name: [] for name in study.table.sequences.documents.tolist()}
    by_label: dict[str, list[float]] = {}
    for span in found:
        of_document[span["document"]].append(span)
        by_label.setdefault(span["label"], []).append(span["probability"])
    unsure = {name: min((one["probability"] for one in spans), default=1.0) for name, spans in of_document.items()}
    labels = sorted(by_label)
    rows = [
        {
            "document": shorten_text(name, 100), "marked": _mark_spans(study, name, of_document[name], labels),
            "spans": len(of_document[name]), "sure": unsure[name],
        }
        for name in sorted(of_document, key=lambda name: (unsure[name], name))[:MAX_TABLE_ROWS]
    ]  # fmt: skip
    return {
        "spans": len(found),
        "mean_confidence": np.mean([one["probability"] for one in found]) if found else 0.0,
        "items": len(of_document),
        "rows": rows,
        "labels": [{"label": name, "spans": len(by_label[name]), "sure": np.mean(by_label[name])} for name in labels],
    }


def _make_span_figures(facts: Facts) -> list[KeyFigure]:
    right = facts["mean_confidence"] * facts["spans"]
    return [
        KeyFigure(f"{facts['spans']:,}", "spans", f"about {right:,.0f} of them are expected to be right"),
        KeyFigure(f"{facts['items']:,}", "documents"),
    ]


def _find_uncertain_spans(facts: Facts) -> Iterator[Finding]:
    if facts["spans"] and facts["mean_confidence"] < MIN_SPAN_CONFIDENCE:
        yield UncertainSpans(confidence=Share(facts["mean_confidence"]))


def _mark_spans(study: Study, name: str, spans: list[Facts], labels: list[str]) -> list[list[Any]]:
    """Return [text, label, colour number, confidence] per part of a document; without its text, positions of spans."""
    text = study.document_text(name)
    pieces, between = (text, "") if isinstance(text, str) else (text, " ")
    parts: list[list[Any]] = []
    at = 0
    for span in spans:
        about = [shorten_text(span["label"], 40), labels.index(span["label"]), span["probability"]]
        start, end = span["start"], span["end"]
        if pieces is None:
            parts.append([f"{start} to {end}", *about])
            continue
        if start > at:
            parts.append([between.join(pieces[at:start]) + between])
        parts.append([between.join(pieces[start:end]), *about])
        at = max(at, end)
    if pieces is not None and len(pieces) > at:
        parts.append([between.join(pieces[at:]) + between])
    return parts


def _draw_spans(facts: Facts) -> Blocks:
    rows = sorted(facts["labels"], key=lambda one: -one["spans"])[:MAX_DRAWN_ITEMS]
    if rows:
        tips = ["label:N", ("spans:Q", "spans", charts.COUNT_FORMAT), ("sure:Q", "confidence", charts.SHARE_FORMAT)]
        yield ChartBlock(
            charts.make_bar_chart(
                rows, "label", charts.make_quantity_axis("spans", "spans", charts.COUNT_FORMAT), tips
            ),
            "Spans found",
            "Number of spans of each label.",
            _list_rows("Spans", rows, "{label} {spans:,}"),
        )


# Objects --------------------------------------------------------------------------------------------------------------


def _collect_objects(study: Study, fitted: Any) -> Facts:
    table = study.table
    label, sure, off = fitted.predict(), fitted.confidence_, fitted.expected_distance_
    rows = []
    for i in _find_least_certain_items(off):
        given = slice(table.item_ptr[i], table.item_ptr[i + 1])
        given_labels = [
            [study.annotator_names[who], shorten_text(table.classes[k], 600)]
            for who, k in zip(table.annotator[given], table.label[given], strict=True)
        ]
        row = study.describe_item(i) | {"label": shorten_text(label[i], 600), "confidence": sure[i], "off": off[i]}
        rows.append(row | {"labels": len(given_labels), "given": sorted(given_labels)})
    histogram, edges = np.histogram(off, np.linspace(0, max(1.0, float(off.max(initial=0))), 21))
    return {
        "mean_distance": off.mean(),
        "mean_confidence": sure.mean(),
        "histogram": histogram,
        "edges": edges,
        "rows": rows,
    }


def _make_object_figures(facts: Facts) -> list[KeyFigure]:
    distance = f"{facts['mean_distance']:.2f}"
    return [
        KeyFigure(distance, "mean expected distance to the truth", "0: identical, 1: nothing in common"),
        KeyFigure(format_percent(facts["mean_confidence"]), "mean confidence"),
    ]


def _draw_objects(facts: Facts) -> Blocks:
    yield ChartBlock(
        charts.make_histogram(facts["histogram"], facts["edges"], x_title="expected distance", y_title="items"),
        "Expected error of the answers",
        "Number of items by the expected distance of their answer to the truth (horizontal axis).",
        f"Histogram of expected distances of {facts['items']:,} answers.",
    )


_VALUE_COLUMNS = _make_item_columns(
    value=TableColumn("value", "number", 2), low=TableColumn("from", "number", 2), high=TableColumn("to", "number", 2)
)  # fmt: skip
_CONFIDENCE_COLUMN = TableColumn("confidence", "percent")
ANSWER_DISPLAYS = {
    "graded": AnswerDisplay(
            "Grades", _collect_values, _make_value_figures, _find_wide_intervals, _draw_values, _VALUE_COLUMNS
        ),
    "numbers": AnswerDisplay(
            "Values", _collect_values, _make_value_figures, _find_wide_intervals, _draw_values, _VALUE_COLUMNS
        ),
    "pairs": AnswerDisplay(
            "Ranking", _collect_ranking, _make_ranking_figures, _describe_best_alternative, _draw_ranking, {
        "thing": TableColumn("alternative"), "rank": TableColumn("rank", "number"),
        "rank_low": TableColumn("from", "number"),
        "rank_high": TableColumn("to", "number"), "score": TableColumn("score", "number", 2),
        "low": TableColumn("from", "number", 2),
        "high": TableColumn("to", "number", 2), "elo": TableColumn("Elo", "number", note="mean 1,000"),
        "comparisons": TableColumn("comparisons", "number"),
    }, "The best"),
    "sets": AnswerDisplay("Sets", _collect_sets, _make_set_figures, _no_findings, _draw_sets, _make_item_columns(
        label=TableColumn("set", "long"), confidence=_CONFIDENCE_COLUMN,
        options=TableColumn("probability of options", "list", note="the most probable four"),
    )),
    "spans": AnswerDisplay("Documents", _collect_spans, _make_span_figures, _find_uncertain_spans, _draw_spans, {
        "document": TableColumn("document"),
        "marked": TableColumn("text", "marked", note="spans with their labels and confidence"),
        "spans": TableColumn("spans", "number"), "sure": TableColumn("least certain span", "percent"),
    }, page=8),
    "objects": AnswerDisplay(
            "Answers", _collect_objects, _make_object_figures, _no_findings, _draw_objects, _make_item_columns(
        label=TableColumn("answer", "long"), confidence=_CONFIDENCE_COLUMN,
        off=TableColumn("expected distance", "number", 2),
    )),
}  # fmt: skip
