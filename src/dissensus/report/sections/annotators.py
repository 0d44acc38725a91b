"""Annotators: the reliability of each, flags with reasons, confusion of classes, and pairwise agreement."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from dissensus.common.formatting import Count, Share, format_percent, join_words
from dissensus.common.types import FloatArray, IntArray
from dissensus.evaluation import cohen_kappas
from dissensus.exceptions import DataWarning
from dissensus.questions import findings
from dissensus.questions.diagnose import FLAG_WORDS
from dissensus.report import charts
from dissensus.report.blocks import (
    ChartBlock,
    KeyFigure,
    KeyFigures,
    TableBlock,
    TableColumn,
    TextBlock,
    make_detail_list,
)
from dissensus.report.section import Blocks, Facts, Finding, Findings, Section, Tone, sections
from dissensus.report.study import Study, extract_entry, format_shown_count, limit_json_size, to_plain
from dissensus.table import names as naming

MAX_ANNOTATORS = 1_500  # annotators in the table and in the chart
MAX_TABLE_CHARACTERS = 700_000  # JSON characters of the table
MAX_CONFUSION_CELLS = 60_000  # entries of confusion matrices on the page
# Classes; if there are more, the most frequent mistakes are listed instead of a confusion matrix
MAX_CONFUSION_CLASSES = 10
MAX_LISTED_MISTAKES = 10
MAX_MATRIX_SIZE = 40  # annotators in the matrix of agreement
MIN_SHARED_ITEMS = 5  # Two annotators with fewer shared items have no entry in the matrix.
MIN_FILLED_SHARE = 0.3  # A matrix with a smaller share of known entries is not drawn.
MAX_NAMED_WEAK_ANNOTATORS = 5  # annotators below the average that the summary names
MAX_NAMES_LISTED = 8  # names in a sentence
FLAG_COLORS = {
    "unrelated": "var(--c3)",
    "contrary": "var(--c5)",
    "copies": "var(--c2)",
    "higher": "var(--c4)",
    "lower": "var(--c7)",
    "below": "var(--c6)",
    "none": "var(--c1)",
}
"""Flag → colour, the worst flag first."""

SCALE_ADVICE = "Ask how they understand the scale."
FLAG_SENTENCES: dict[str, tuple[str, str]] = {  # flag → behaviour (of one annotator|of several) and advice
    "unrelated": (
        "gives labels that do not depend on the item|give labels that do not depend on the item",
        "Ask them how they label before you rely on their labels.",
    ),
    "contrary": (
        "gives labels that contradict those of the other annotators"
        "|give labels that contradict those of the other annotators",
        "Ask how they understand the classes.",
    ),
    "copies": (
        "agrees with another annotator far more than independent annotators would"
        "|agree with each other far more than independent annotators would",
        "Treat the group as one annotator, and ask how they work.",
    ),
    "higher": (
        "gives higher grades than others to the same items|give higher grades than others to the same items",
        SCALE_ADVICE,
    ),
    "lower": (
        "gives lower grades than others to the same items|give lower grades than others to the same items",
        SCALE_ADVICE,
    ),
}


def list_names(names: Sequence[str]) -> str:
    """List names in words; if there are many, list the first ones and their total number."""
    if (more := len(names) - MAX_NAMES_LISTED) > 0:
        return f"{len(names)} annotators ({', '.join(names[:MAX_NAMES_LISTED])} and {more} more)"
    return join_words(names)


class FlaggedAnnotatorsCard(Finding):
    template = "{listing} {behaviour} (flagged: {share:0} of all annotators)."
    table = "annotators-flagged"
    flag: str
    annotators: tuple[str, ...]
    share: Share
    example = {"flag": "copies"}

    @property
    def listing(self) -> str:
        return list_names(self.annotators)

    @property
    def behaviour(self) -> str:
        return f"{Count(len(self.annotators)):{FLAG_SENTENCES[self.flag][0]}}"

    @property
    def advice(self) -> str:
        return FLAG_SENTENCES[self.flag][1]

    @property
    def tone(self) -> Tone:
        return "note" if self.flag in ("higher", "lower") else "bad"


class BelowAverageCard(Finding):
    template = "Clearly less reliable than the average annotator ({average:0} of the labels right): {listing}."
    advice = "See which classes they confuse."
    table = "annotators-flagged"
    average: Share
    reliability: dict[str, Share]

    @property
    def listing(self) -> str:
        first = [f"{name} ({share:0})" for name, share in list(self.reliability.items())[:MAX_NAMED_WEAK_ANNOTATORS]]
        more = len(self.reliability) - MAX_NAMED_WEAK_ANNOTATORS
        return ", ".join(first) + (f" and {more:,} more" if more > 0 else "")


class TooFewLabelsCard(Finding):
    template = "{finding_text}"
    too_few: int
    active: int

    @property
    def finding_text(self) -> str:
        return str(findings.TooFewLabels(n=Count(self.too_few), annotators=Count(self.active)))

    @property
    def advice(self) -> str:
        if self.too_few <= max(self.active / 2, 1):
            return ""
        return "Give each annotator more items that others label too, instead of adding annotators."


FLAG_NAMES = {str(flag): words for flag, words in FLAG_WORDS.items()} | {"below": "below the average", "none": "none"}
ANNOTATOR_COLUMNS = {
    "annotator": TableColumn("annotator"),
    "labels": TableColumn("labels", "number"),
    "interval": TableColumn("reliability", "interval", note="share of right labels, 95 % interval"),
    "flags": TableColumn("flags", "chips"),
    "why": TableColumn("why", "long"),
}


@sections.register(
    "annotators", title="Annotators", summary="How good is each annotator, and who agrees with whom?", place=40
)
class AnnotatorsSection(Section):
    """Show reliability with intervals, flags with reasons, confusion matrices and agreement."""

    def collect(self, study: Study) -> Facts:
        fitted, found = study.fitted, study.diagnosis
        interval = fitted.reliability_interval()
        average = np.nansum(fitted.hits_) / max(float(np.nansum(fitted.total_)), 1e-300)
        weak = (interval[:, 1] < average) & (not found.unsettled)
        flags = [
            [*one, *(["below"] if below and not one else [])]
            for one, below in zip(found.flags, weak.tolist(), strict=True)
        ]
        serious = np.array([not set(FLAG_SENTENCES).isdisjoint(one) for one in flags], np.bool_)
        order = np.lexsort((study.annotator_rank, interval[:, 1], -fitted.n_annotations_, ~serious))[:MAX_ANNOTATORS]
        confusions = _collect_confusion_facts(study, order)
        columns: Facts = {"labels": fitted.n_annotations_, "reliability": fitted.reliability_}
        columns |= {"low": interval[:, 0], "high": interval[:, 1], "flags": flags, "reasons": found.reasons}
        people = [
            {"annotator": study.annotator_names[code]}
            | extract_entry(code, **columns)
            | ({"about": about} if (about := study.annotator_columns(code)) else {})
            | ({"confusion": confusions[at]} if at < len(confusions) else {})
            for at, code in enumerate(order.tolist())
        ]
        counts = Counter(flag for one in flags for flag in one)
        return {
            "annotators": study.table.n_annotators,
            "active": found.active_annotators,
            "mean_reliability": average,
            "too_few_labels": found.too_few_labels,
            "flags": {flag: counts.get(flag, 0) for flag in FLAG_COLORS if flag != "none"},
            "groups": [list(group) for group in found.groups],
            "people": limit_json_size(people, MAX_TABLE_CHARACTERS),
            "classes": study.classes,
            "whole_confusions": study.table.n_classes <= MAX_CONFUSION_CLASSES,
            "agreement": _compute_agreement_matrix(study, serious),
        }

    def findings(self, facts: Facts) -> Findings:
        for flag in FLAG_SENTENCES:
            names = tuple(person["annotator"] for person in facts["people"] if flag in person["flags"])
            if names:
                share = Share(facts["flags"][flag] / max(facts["active"], 1))
                yield FlaggedAnnotatorsCard(flag=flag, annotators=names, share=share)
        if weak := _find_annotators_below_average(facts):
            reliability = {one["annotator"]: Share(one["reliability"]) for one in weak}
            yield BelowAverageCard(average=Share(facts["mean_reliability"]), reliability=reliability)
        if few := facts["too_few_labels"]:
            yield TooFewLabelsCard(too_few=few, active=facts["active"])

    def draw(self, facts: Facts) -> Blocks:
        flags, people = facts["flags"], facts["people"]
        yield KeyFigures(
            [
                KeyFigure(
                    format_percent(facts["mean_reliability"], 1),
                    "of the labels are right",
                    "as estimated by the method",
                ),
                *(
                    KeyFigure(f"{n:,}", FLAG_NAMES[flag], "annotator" + "s" * (n != 1))
                    for flag, n in flags.items()
                    if n
                ),
                KeyFigure(f"{facts['too_few_labels']:,}", "with too few labels to judge", "annotators"),
            ]
        )
        yield _make_reliability_chart(facts)
        if look := [one for one in people if set(one["flags"]) & set(FLAG_SENTENCES)] + _find_annotators_below_average(
            facts
        ):
            judged = (
                "Flags compare an annotator's labels with those of the others. Open a row for the confused classes."
            )
            yield _make_annotator_table("annotators-flagged", "Annotators to look at", judged, look, facts, page=10)
        if facts["agreement"] is not None:
            yield _make_agreement_chart(facts["agreement"])
        else:
            yield TextBlock(
                f"Agreement by pair is not shown: too few pairs of annotators have {MIN_SHARED_ITEMS} items in common."
            )
        cut = format_shown_count(
            people, facts["annotators"], "are listed: the flagged ones and those with most labels."
        )
        caption = f"Open a row to see which classes are confused.{cut}"
        yield _make_annotator_table("annotators", "All annotators", caption, people, facts)


def _make_annotator_table(
    name: str, title: str, caption: str, people: list[Facts], facts: Facts, **options: Any
) -> TableBlock:
    average, rows = format_percent(facts["mean_reliability"]), []
    for one in people:
        why = one["reasons"]
        if "below" in one["flags"] and not why:
            why = f"right {format_percent(one['reliability'])} of the time, where the average is {average}"
        interval = [one["reliability"], one["low"], one["high"]]
        rows.append(one | {"interval": interval, "flags": [FLAG_NAMES[flag] for flag in one["flags"]], "why": why})
    return TableBlock.from_rows(
        name,
        title,
        caption,
        ANNOTATOR_COLUMNS,
        rows,
        details=[_make_confusion_details(one, facts) for one in people],
        **options,
    )


def _find_annotators_below_average(facts: Facts) -> list[Facts]:
    """Return the annotators whose interval is below the average and who have no other flag, least reliable first."""
    return sorted((one for one in facts["people"] if "below" in one["flags"]), key=lambda one: one["high"])


def _make_confusion_details(person: Facts, facts: Facts) -> list[Facts]:
    confusion = person.get("confusion")
    if confusion is None:
        why = "There is no confusion matrix: the method has none, or it was left out to keep the page small."
        return [{"type": "text", "title": "", "text": why}]
    if not facts["whole_confusions"]:
        rows = [[truth, label, format_percent(share)] for truth, label, share in confusion["mistakes"]]
        title = f"Most frequent mistakes of {person['annotator']}"
        return [make_detail_list(title, ["class", "label given", "how often"], rows)]
    return [
        {
            "type": "matrix",
            "title": f"Labels by {person['annotator']} (columns) for items of each true class (rows)",
            "rows": facts["classes"],
            "columns": facts["classes"],
            "values": confusion["shares"],
            "counts": confusion["items"],
            "note": "Per cent of each row; a good annotator has high numbers on the diagonal. Grey rows show "
            "the average annotator, because this annotator labelled hardly any such item.",
        }
    ]


def _collect_confusion_facts(study: Study, order: IntArray) -> list[Facts]:
    """Return the first annotators' confusion matrices with the items per row, or their most frequent mistakes."""
    K = study.table.n_classes
    whole = K <= MAX_CONFUSION_CLASSES
    order = order[: MAX_CONFUSION_CELLS // (K * K if whole else 3 * MAX_LISTED_MISTAKES)].astype(np.int32)
    try:
        parts = [study.fitted.annotator_confusions(order[start : start + 100]) for start in range(0, order.size, 100)]
    except NotImplementedError:  # The error rates of the method depend on the item.
        return []
    posterior, item, annotator = study.fitted.untempered_posterior(), study.table.item, study.table.annotator
    seen = np.stack([np.bincount(annotator, posterior[item, k], study.table.n_annotators) for k in range(K)], axis=1)
    found = []
    for matrix, items in zip((matrix for part in parts for matrix in part), seen[order], strict=True):  # (K, K), (K,)
        if whole:
            found.append({"shares": to_plain(np.round(matrix, 2)), "items": to_plain(np.round(items, 1))})
            continue
        loss = matrix * items[:, None]  # Expected number of labels with each mistake.
        np.fill_diagonal(loss, 0)
        worst = np.argsort(-loss, axis=None, kind="stable")[:MAX_LISTED_MISTAKES].tolist()
        rows = [[study.classes[w // K], study.classes[w % K], to_plain(matrix.flat[w], 2)] for w in worst]
        found.append({"mistakes": rows})
    return found


def _compute_agreement_matrix(study: Study, serious: Any) -> Facts | None:
    """Return the agreement of pairs of annotators, ordered by similarity; flagged and active ones come first."""
    from scipy.cluster.hierarchy import leaves_list, linkage
    from scipy.spatial.distance import squareform

    table = study.table
    labels = np.diff(table.annotator_ptr)
    order = np.lexsort((study.annotator_rank, -labels, ~(serious & (labels >= MIN_SHARED_ITEMS))))[:MAX_MATRIX_SIZE]
    chosen = np.zeros(table.n_annotators, np.bool_)
    chosen[order[labels[order] > 0]] = True
    if chosen.sum() < 2:
        return None
    part = table.select(annotators=chosen)
    with warnings.catch_warnings(action="ignore", category=DataWarning):  # Agreement ignores weights.
        pairs = cohen_kappas(part, min_shared=MIN_SHARED_ITEMS)
    share: FloatArray = np.full((part.n_annotators, part.n_annotators), np.nan)
    count = np.zeros(share.shape, np.int64)
    rows, columns = (
        naming.match_names(one, part.annotators, "annotators")
        for one in (pairs.first_annotator, pairs.second_annotator)
    )
    for matrix, values in ((share, pairs.agreement), (count, pairs.shared)):
        matrix[rows, columns] = matrix[columns, rows] = values
    met = ~np.isnan(share).all(axis=1)
    share, count = share[met][:, met], count[met][:, met]
    if met.sum() < 3 or (count > 0).sum() < MIN_FILLED_SHARE * count.size:
        return None
    codes = np.flatnonzero(chosen)[met]
    by_name = np.argsort(study.annotator_rank[codes])
    codes, share, count = codes[by_name], share[by_name][:, by_name], count[by_name][:, by_name]
    distance = 1 - np.where(np.isnan(share), np.nanmean(share), share)
    np.fill_diagonal(distance, 0)
    leaves = leaves_list(linkage(squareform(distance, checks=False), "average", optimal_ordering=True))
    return {
        "annotators": [study.annotator_names[codes[leaf]] for leaf in leaves],
        "share": to_plain(share[leaves][:, leaves], 2),
        "shared": count[leaves][:, leaves],
        "of": (labels > 0).sum(),
    }


def _make_reliability_chart(facts: Facts) -> ChartBlock:
    colors = {FLAG_NAMES[flag]: color for flag, color in FLAG_COLORS.items()}
    rank = list(colors).index
    rows = [
        {key: p[key] for key in ("annotator", "reliability", "low", "high")}
        | {
            "labels": max(p["labels"], 1),
            "flag": min((FLAG_NAMES[one] for one in p["flags"]), key=rank, default="none"),
        }
        for p in facts["people"]
        if p["reliability"] is not None
    ]
    rows.sort(key=lambda row: -rank(row["flag"]))  # The worst are drawn on top.
    there = sorted({row["flag"] for row in rows}, key=rank)
    scale = {"type": "log", "nice": False, "padding": 12}
    x = charts.make_quantity_axis("labels", "labels given (logarithmic scale)", "~s", scale=scale, labelOverlap=True)
    y = charts.make_quantity_axis("low", "reliability (share of right labels)", "%")
    color = charts.make_color_encoding("flag", there, [colors[words] for words in there], columns=4)
    bars = charts.draw_marks(rows, {"type": "rule", "opacity": 0.35}, x=x, y=y, y2="high:Q", color=color)
    shares = {"reliability": "reliability", "low": "from", "high": "to"}
    in_percent = [(f"{field}:Q", title, charts.SHARE_FORMAT) for field, title in shares.items()]
    tips = ["annotator:N", ("labels:Q", "labels", charts.COUNT_FORMAT), *in_percent, "flag:N"]
    shape = charts.make_color_encoding("flag", there, columns=4)
    dots = charts.draw_points(rows, 55, 0.9, tips, x=x, y="reliability:Q", color=color, shape=shape)
    bad = [f"{row['annotator']} ({row['flag']})" for row in rows if rank(row["flag"]) < len(FLAG_SENTENCES)]
    return ChartBlock(
        charts.to_spec(bars + dots, 320, opens=("annotators", "annotator")),
        "Reliability of each annotator",
        "Horizontal axis: number of labels (logarithmic); vertical axis: share of them that is right, as estimated by "
        "the method. Lines are 95 % intervals. Click a mark to see that annotator.",
        f"Reliability against number of labels of {len(rows):,} annotators, "
        f"{format_percent(facts['mean_reliability'])} on average; "
        f"{'flagged: ' + ', '.join(bad[:MAX_NAMES_LISTED]) if bad else 'no annotator is flagged'}.",
        wide=True,
    )


def _make_agreement_chart(matrix: Facts) -> ChartBlock:
    names = matrix["annotators"]
    rows = [
        row
        for row in charts.list_matrix_cells(names, names, share=matrix["share"], shared=matrix["shared"])
        if row["share"] is not None and row["down"] != row["across"]
    ]
    pair = [("down:N", "annotator"), ("across:N", "and")]
    tips = [*pair, ("share:Q", "agree on", charts.SHARE_FORMAT), ("shared:Q", "of items")]
    best = max(rows, key=lambda row: (row["share"], row["shared"]))
    few = ""
    if len(names) < matrix["of"]:
        few = f" The {len(names)} of {matrix['of']:,} annotators who are flagged or gave most labels are shown."
    return ChartBlock(
        charts.make_matrix_chart(names, rows, tips, charts.make_heat_encoding("share", "agreement")),
        "Agreement of each pair of annotators",
        "Share of the items labelled by both on which two annotators (row and column) give the same label. Annotators "
        f"in a bright block label alike or copy. White: fewer than {MIN_SHARED_ITEMS} items in common.{few}",
        f"Matrix of agreement of {len(names)} annotators; highest between {best['down']} and {best['across']}, "
        f"{format_percent(best['share'])} of {best['shared']} items.",
        wide=True,
    )
