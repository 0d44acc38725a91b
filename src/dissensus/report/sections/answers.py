"""Answers of labels that are no classes: values, a ranking, sets, spans in their texts, texts; a picture of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dissensus.common.formatting import percent
from dissensus.common.types import IntArray
from dissensus.evaluation.distances import MAX_LABELS, agreement_by_kind
from dissensus.evaluation.intervals import bootstrap
from dissensus.exceptions import DataError
from dissensus.questions.scoring import SCORING
from dissensus.report import charts
from dissensus.report.blocks import Block, Chart, Column, Number, Numbers, Table, listing
from dissensus.report.section import Blocks, Facts, Finding, Findings, Section, sections
from dissensus.report.study import Study, first_within, plain, shown, some_of
from dissensus.table.kinds import CLASS_KINDS, KINDS

MAX_ROWS = 300  # items in the table
MAX_CHARACTERS = 400_000  # of the rows of the table
MAX_DRAWN = 40  # items or things in a picture
RESAMPLES = 500  # of the bootstrap of agreement
AT_CHANCE = 0.05  # α below which labels agree about as often as by chance
COEFFICIENTS = {
    "icc": "intraclass correlation", "exact_f1": "F1 of two annotators", "krippendorff_alpha": "Krippendorff's α",
    "jaccard_alpha": "Krippendorff's α, Jaccard", "words_alpha": "Krippendorff's α, words",
}  # fmt: skip
TITLES = {
    "graded": "Grades", "numbers": "Values", "pairs": "Ranking", "sets": "Sets", "objects": "Answers", "spans": "Spans",
}  # fmt: skip


@sections.register("answers", title="Answers", summary="What are the answers, and how sure are they?", place=15)
class Answers(Section):
    """How far labels agree, the answers with their uncertainty, and a picture of them."""

    kinds = tuple(kind for kind in KINDS if kind != "classes")

    def collect(self, study: Study) -> Facts:
        study.on_step("weighing the answers")
        table = study.table
        return {
            "kind": table.kind,
            "labels_per_item": _range(np.diff(table.item_ptr)),
            "labels_per_annotator": _range(table.per_annotator),
            "agreement": None if table.kind in CLASS_KINDS else _agreement(study),
            "gold": None if table.kind in CLASS_KINDS else _against_gold(study),
            **COLLECTED[table.kind](study),
        }

    def findings(self, facts: Facts) -> Findings:
        alpha = next((one for one in facts["agreement"] or () if "α" in one["name"]), None)
        if alpha is not None and alpha["value"] is not None and alpha["value"] < AT_CHANCE:
            yield Finding(
                f"Labels of one item agree about as often as chance would ({alpha['name']} {alpha['value']:.2f}).",
                "Look at the instructions and at the annotators first.",
                "bad",
            )
        if facts["finding"]:
            yield Finding(**dict(zip(("text", "advice", "tone"), facts["finding"], strict=False)), table="answers")
        if (gold := facts["gold"]) is not None:
            yield Finding(f"{_about_gold(gold)}, on {gold['items']:,} {gold['of']} with a known answer.")

    def draw(self, facts: Facts) -> Blocks:
        numbers = []
        if facts["kind"] not in CLASS_KINDS:
            numbers += [
                Number(facts["labels_per_item"], "labels per item"),
                Number(facts["labels_per_annotator"], "labels per annotator"),
            ]
        numbers += [Number(*one) for one in facts["numbers"]]
        for one in facts["agreement"] or ():
            if one["value"] is not None:
                between = "" if one["low"] is None else f"{one['low']:.2f} to {one['high']:.2f}"
                numbers.append(Number(f"{one['value']:.2f}", one["name"], between))
        if (gold := facts["gold"]) is not None:
            numbers.append(Number(gold["said"], gold["name"], f"{gold['items']:,} {gold['of']} with a known answer"))
        yield Numbers(numbers)
        yield from DRAWN[facts["kind"]](facts)


def _range(counts: Any) -> str:
    low, high = (int(end) for end in (counts.min(initial=0), counts.max(initial=0)))
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _agreement(study: Study) -> list[Facts] | None:
    """The coefficients of the kind, as far as they are defined."""
    if study.table.kind == "objects" and study.table.n_classes > MAX_LABELS:
        return None
    try:
        found = agreement_by_kind(study.table, resamples=RESAMPLES, seed=study.seed)
    except DataError:  # no two annotators share an item
        return None
    return [
        {"name": words, "value": found[name].value, "low": found[name].low, "high": found[name].high}
        for name, words in COEFFICIENTS.items()
        if name in found
    ]


def _against_gold(study: Study) -> Facts | None:
    scoring, gold = SCORING[study.table.kind], study.gold
    if gold is None or scoring.gold is None:
        return None
    found = scoring.gold(study.fitted, study.table, gold)
    if not found[:, 1].sum() > 0:
        return None
    value = bootstrap(found, lambda s: s[:, 0] / s[:, 1], seed=study.seed)
    known = ~np.isnan(gold) if study.table.kind == "numbers" else gold >= 0
    as_share = scoring.measure.sign > 0
    name = {"jaccard": "Jaccard index, by gold", "f1": "F1 of spans, by gold", "gold_error": "mean error, by gold"}
    facts: Facts = {
        "name": name.get(scoring.measure.gold, "mean distance, by gold"),
        "value": value,
        "said": percent(value.value, 1) if as_share else f"{value.value:.3g}",
        "interval": f"{percent(value.low, 1)} to {percent(value.high, 1)}"
        if as_share
        else f"{value.low:.3g} to {value.high:.3g}",
        "items": int(known.sum()),
        "of": "tokens" if study.table.kind == "spans" else "items",
    }
    if study.table.kind == "numbers":
        fitted: Any = study.fitted
        low, high = fitted.interval_[known].T
        facts["covered"] = float(((gold[known] >= low) & (gold[known] <= high)).mean())
    return facts


def _about_gold(gold: Facts) -> str:
    covered = f"; 95 % intervals hold {percent(gold['covered'])}" if "covered" in gold else ""
    return f"{gold['name'][0].upper()}{gold['name'][1:]} {gold['said']} ({gold['interval']}{covered})"


# Values ---------------------------------------------------------------------------------------------------------------


def _collect_values(study: Study) -> Facts:
    table = study.table
    fitted: Any = study.fitted  # methods of each kind have attributes of their own
    if table.kind == "graded":
        value = fitted.posterior_ @ table.values
        reach = np.cumsum(fitted.posterior_, axis=1)
        low, high = (
            table.values[np.minimum((reach < at - 1e-12).sum(axis=1), table.n_classes - 1)] for at in (0.025, 0.975)
        )
    else:
        value, (low, high) = fitted.values_, fitted.interval_.T
    width, labels = high - low, np.diff(table.item_ptr)
    order = np.lexsort((np.arange(value.size), -width))
    rows = [
        study.about(i) | {"value": value[i], "low": low[i], "high": high[i], "labels": labels[i]}
        for i in order[:MAX_ROWS].tolist()
    ]
    ranked = np.argsort(-value, kind="stable")
    drawn = ranked[np.unique(np.linspace(0, ranked.size - 1, min(MAX_DRAWN, ranked.size)).astype(int))]
    some = labels > 0
    spread = float(np.ptp(table.values[table.label])) if len(table) else 0.0
    wide = int((width[some] > spread / 2).sum())
    finding = None
    if wide and table.kind == "numbers":
        finding = [
            f"{wide:,} of {int(some.sum()):,} items have an interval wider than half of the scale.",
            "Ask about these again: `dissensus recommend`.",
        ]
    return {
        "numbers": [] if table.kind == "graded" else [
            [f"{value.min():.4g} to {value.max():.4g}", "values"],
            [f"{width[some].mean():.3g}", "mean width of a 95 % interval", f"labels span {spread:.4g}"],
        ],
        "items": table.n_items,
        "mean_width": float(width[some].mean()),
        "rows": first_within(plain(rows), MAX_CHARACTERS),
        "drawn": [{"item": study.item_names[i], "value": value[i], "low": low[i], "high": high[i]} for i in drawn],
        "finding": finding,
    }  # fmt: skip


def _draw_values(facts: Facts) -> Blocks:
    rows = facts["drawn"]
    x = charts.quantity("low", "value", "~g", scale={"zero": False})
    tips = [("value:Q", "value", ".4g"), ("low:Q", "from", ".4g"), ("high:Q", "to", ".4g")]
    few = some_of(rows, facts["items"], "are drawn, evenly by value.", " ")
    yield Chart(
        charts.spec(charts.intervals(rows, "item", x, tips), charts.height_of(len(rows)), opens=("answers", "item")),
        "Items by value",
        f"Lines are 95 % intervals.{few} Click a mark to see its item.",
        "Values from the highest: " + ", ".join(f"{row['item']} {row['value']:.4g}" for row in rows[:8]) + ".",
        wide=True,
    )
    columns = {
        "value": Column("value", "number", 2), "low": Column("from", "number", 2), "high": Column("to", "number", 2),
    }  # fmt: skip
    yield _table(facts, columns, "The least sure first")


# Ranking --------------------------------------------------------------------------------------------------------------


def _collect_ranking(study: Study) -> Facts:
    fitted: Any = study.fitted
    rows = fitted.to_frame("things", "pyarrow").to_pylist()
    rows = [{"thing": shown(row.pop("thing"), 100)} | row | {"value": row["score"]} for row in rows]
    rest = [row["thing"] for row in rows[1:] if row["rank_low"] == 1]
    _, left, _ = fitted.crowd_answering_
    best = rows[0]["thing"]
    finding = [f"{best} is best beyond doubt; 95 % intervals of ranks.", "", "good"]
    if rest:
        others = f"{len(rest):,} others" if len(rest) > 3 else " and ".join(rest)
        finding = [f"{best} leads, and {others} cannot be told from it.", "Compare these more: `dissensus recommend`."]
    numbers = [[f"{len(rows):,}", "things"], [f"{1 + len(rest):,}", "may be best", "their 95 % ranks hold 1"]]
    if abs(left) > 0.01:
        side = "left" if left > 0 else "right"
        numbers.append([f"{np.exp(abs(left)):.2f} : 1", f"for what stands {side}", "odds where both are equally good"])
    return {
        "numbers": numbers,
        "items": len(rows),
        "rows": plain(rows[:MAX_ROWS]),
        "best": best,
        "level": rest,
        "finding": finding,
    }


def _draw_ranking(facts: Facts) -> Blocks:
    rows = facts["rows"][:MAX_DRAWN]
    few = some_of(rows, facts["items"], "are drawn, the best.", " ")
    x = charts.quantity("low", "score (log odds of being preferred)", "~g", scale={"zero": False})
    tips = [("value:Q", "score", ".3f"), ("low:Q", "from", ".3f"), ("high:Q", "to", ".3f"), ("rank:Q", "rank")]
    height = charts.height_of(len(rows))
    yield Chart(
        charts.spec(charts.intervals(rows, "thing", x, tips), height, opens=("answers", "thing")),
        "Scores",
        f"Lines are 95 % intervals.{few}",
        "Scores from the best: " + ", ".join(f"{row['thing']} {row['score']:.2f}" for row in rows[:8]) + ".",
    )
    by_rank = [
        {"thing": row["thing"], "value": row["rank"], "low": row["rank_low"], "high": row["rank_high"]} for row in rows
    ]
    x = charts.quantity("low", "rank", "d", scale={"reverse": True, "zero": False}, tickMinStep=1)
    tips = [("value:Q", "rank"), ("low:Q", "from"), ("high:Q", "to")]
    yield Chart(
        charts.spec(charts.intervals(by_rank, "thing", x, tips), height),
        "Ranks",
        "Where a thing may stand, in 95 % of cases; 1 is best, on the right.",
        "Ranks: " + ", ".join(f"{row['thing']} {row['low']} to {row['high']}" for row in by_rank[:8]) + ".",
    )
    columns = {
        "thing": Column("thing"), "rank": Column("rank", "number"), "rank_low": Column("from", "number"),
        "rank_high": Column("to", "number"), "score": Column("score", "number", 2), "low": Column("from", "number", 2),
        "high": Column("to", "number", 2), "elo": Column("Elo", "number", note="mean 1,000"),
        "comparisons": Column("comparisons", "number"),
    }  # fmt: skip
    yield Table.of(
        "answers",
        "Ranking",
        f"The best first{some_of(facts['rows'], facts['items'], 'are here', '; ')}.",
        columns,
        facts["rows"],
    )


# Sets -----------------------------------------------------------------------------------------------------------------


def _collect_sets(study: Study) -> Facts:
    table = study.table
    fitted: Any = study.fitted  # methods of each kind have attributes of their own
    label, sure, options = fitted.predict(), fitted.confidence_, fitted.options_.tolist()
    names = [shown(one, 60) for one in options]
    ticked = table.options.ticked.astype(float)[table.label]
    given = np.array([ticked[:, k].mean() for k in range(ticked.shape[1])])
    order = np.lexsort((np.arange(sure.size), sure))
    rows = [
        study.about(i)
        | {"label": shown(label[i], 200), "confidence": sure[i], "options": _shares(fitted.posterior_[i], names)}
        | {"labels": int(np.diff(table.item_ptr)[i])}
        for i in order[:MAX_ROWS].tolist()
    ]
    return {
        "numbers": [
            [percent(float(sure.mean())), "chance that exactly the set is right", "on average"],
            [
                f"{fitted.answer_.sum(axis=1).mean():.2f}",
                "options an item",
                f"{ticked.sum(axis=1).mean():.2f} ticked at a time",
            ],
        ],
        "items": table.n_items,
        "rows": first_within(plain(rows), MAX_CHARACTERS),
        "options": [
            {"option": name, "given": given[table.options.names.tolist().index(one)], "found": found}
            for name, one, found in zip(names, options, fitted.answer_.mean(axis=0), strict=True)
        ],
        "finding": None,
    }


def _shares(probability: Any, names: list[str]) -> list[list[Any]]:
    """Options of an item that are most probable, as a table shows them; they do not sum to one."""
    order = np.argsort(-probability, kind="stable")[:4]
    return [[names[k], float(probability[k]), k] for k in order.tolist() if probability[k] > 0.01]


def _draw_sets(facts: Facts) -> Blocks:
    words = {"given": "of the labels have it", "found": "of the items, by the method"}
    ranked = sorted(facts["options"], key=lambda one: -one["found"])[:MAX_DRAWN]
    yield Chart(
        charts.shares_beside(ranked, "option", words),
        "Options",
        f"How often each of {len(facts['options']):,} options was ticked, and in how many answers it is.",
        "Options: " + ", ".join(f"{one['option']} {percent(one['found'])}" for one in ranked[:8]) + ".",
    )
    columns = {
        "label": Column("set", "long"), "confidence": Column("sure", "percent"),
        "options": Column("probability of options", "list", note="the most probable four"),
    }  # fmt: skip
    yield _table(facts, columns, "The least sure first")


# Spans ----------------------------------------------------------------------------------------------------------------


def _collect_spans(study: Study) -> Facts:
    table = study.table
    fitted: Any = study.fitted  # methods of each kind have attributes of their own
    where = table.sequences
    found = fitted.spans("pyarrow").to_pylist()
    of_document: dict[str, list[Facts]] = {name: [] for name in where.documents.tolist()}
    for span in found:
        of_document[span["document"]].append(span)
    unsure = {name: min((one["probability"] for one in spans), default=1.0) for name, spans in of_document.items()}
    names = sorted(of_document, key=lambda name: (unsure[name], name))
    labels = sorted({span["label"] for span in found})
    rows = [
        {
            "document": shown(name, 100), "marked": _marked(study, name, of_document[name], labels),
            "spans": len(of_document[name]), "sure": unsure[name],
        }
        for name in names[:MAX_ROWS]
    ]  # fmt: skip
    sure = float(np.mean([one["probability"] for one in found])) if found else 0.0
    finding = None
    if found and sure < 0.7:
        finding = [f"The spans are {percent(sure)} sure on average.", "Ask for more readers: `dissensus recommend`."]
    return {
        "numbers": [
            [f"{len(found):,}", "spans", f"about {sure * len(found):,.0f} of them right"],
            [f"{where.documents.size:,}", "documents"],
        ],
        "items": len(of_document),
        "rows": first_within(plain(rows), MAX_CHARACTERS),
        "labels": [
            {"label": name, "spans": sum(one["label"] == name for one in found),
             "sure": float(np.mean([one["probability"] for one in found if one["label"] == name]))}
            for name in labels
        ],
        "finding": finding,
    }  # fmt: skip


def _marked(study: Study, name: str, spans: list[Facts], labels: list[str]) -> list[list[Any]]:
    """[text, label, its number, how sure] of the parts of a document; without its text, the spans by their places."""
    text = study.document_text(name)
    if text is None:
        return [[f"{span['start']} to {span['end']}", *_said(span, labels)] for span in spans]
    parts: list[list[Any]] = []
    pieces, between = (text, "") if isinstance(text, str) else (text, " ")
    at = 0
    for span in [*spans, None]:
        start, end = (len(pieces), len(pieces)) if span is None else (span["start"], span["end"])
        if start > at:
            parts.append([between.join(pieces[at:start]) + between])
        if span is not None:
            parts.append([between.join(pieces[start:end]), *_said(span, labels)])
        at = max(at, end)
    return parts


def _said(span: Facts, labels: list[str]) -> list[Any]:
    return [shown(span["label"], 40), labels.index(span["label"]), span["probability"]]


def _draw_spans(facts: Facts) -> Blocks:
    rows = sorted(facts["labels"], key=lambda one: -one["spans"])[:MAX_DRAWN]
    if rows:
        tips = ["label:N", ("spans:Q", "spans", charts.COUNT), ("sure:Q", "sure", charts.SHARE)]
        x, y = charts.quantity("spans", "spans", charts.COUNT), charts.names("label", [one["label"] for one in rows])
        yield Chart(
            charts.spec(charts.plot(rows, "bar", tips, x=x, y=y), charts.height_of(len(rows))),
            "Spans found",
            "By label.",
            "Spans: " + ", ".join(f"{one['label']} {one['spans']:,}" for one in rows[:8]) + ".",
        )
    columns = {
        "document": Column("document"),
        "marked": Column("text", "marked", note="spans with their labels and how sure they are"),
        "spans": Column("spans", "number"), "sure": Column("least sure span", "percent"),
    }  # fmt: skip
    caption = f"The least sure first{some_of(facts['rows'], facts['items'], 'are here', '; ')}."
    yield Table.of("answers", "Documents", caption, columns, facts["rows"], page=8)


# Objects --------------------------------------------------------------------------------------------------------------


def _collect_objects(study: Study) -> Facts:
    table = study.table
    fitted: Any = study.fitted  # methods of each kind have attributes of their own
    label, sure, off = fitted.predict(), fitted.confidence_, fitted.expected_distance_
    order: IntArray = np.lexsort((np.arange(sure.size), -off))
    rows = []
    for i in order[:MAX_ROWS].tolist():
        given = slice(table.item_ptr[i], table.item_ptr[i + 1])
        said = [
            [study.annotator_names[who], shown(table.classes[k], 600)]
            for who, k in zip(table.annotator[given], table.label[given], strict=True)
        ]
        row = study.about(i) | {"label": shown(label[i], 600), "confidence": sure[i], "off": off[i]}
        rows.append(row | {"labels": len(said), "said": sorted(said)})
    return {
        "numbers": [
            [f"{off.mean():.2f}", "expected distance of an answer", "0 is exact, 1 nothing in common"],
            [percent(float(sure.mean())), "mean confidence"],
        ],
        "items": table.n_items,
        "histogram": np.histogram(off, np.linspace(0, max(1.0, float(off.max(initial=0))), 21))[0],
        "edges": np.linspace(0, max(1.0, float(off.max(initial=0))), 21),
        "rows": first_within(plain(rows), MAX_CHARACTERS),
        "finding": None,
    }


def _draw_objects(facts: Facts) -> Blocks:
    chart = charts.histogram(facts["histogram"], facts["edges"], x_title="expected distance", y_title="items")
    yield Chart(
        chart, "How far off answers may be", "Expected distance of each item's answer to the truth.",
        f"Histogram of expected distances of {facts['items']:,} answers.",
    )  # fmt: skip
    columns = {"label": Column("answer", "long"), "confidence": Column("sure", "percent")}
    columns |= {"off": Column("expected distance", "number", 2)}
    details = [[listing("What annotators said", ("annotator", "answer"), row["said"])] for row in facts["rows"]]
    yield _table(facts, columns, "The least sure first", details)


def _table(facts: Facts, columns: dict[str, Column], order: str, details: Any = None) -> Block:
    caption = f"{order}{some_of(facts['rows'], facts['items'], 'are here', '; ')}."
    head = {"item": Column("item"), "texts": Column("text", "long")}
    tail = {"labels": Column("labels", "number")}
    return Table.of("answers", TITLES[facts["kind"]], caption, head | columns | tail, facts["rows"], details=details)


COLLECTED: dict[str, Callable[[Study], Facts]] = {
    "graded": _collect_values, "numbers": _collect_values, "pairs": _collect_ranking, "sets": _collect_sets,
    "spans": _collect_spans, "objects": _collect_objects,
}  # fmt: skip
DRAWN: dict[str, Callable[[Facts], Blocks]] = {
    "graded": _draw_values, "numbers": _draw_values, "pairs": _draw_ranking, "sets": _draw_sets,
    "spans": _draw_spans, "objects": _draw_objects,
}  # fmt: skip
