"""Annotators: how good each is, who is to be looked at and why, who takes what for what, who agrees with whom."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from dissensus._types import FloatArray, IntArray
from dissensus.evaluation import cohen_kappas
from dissensus.report import charts
from dissensus.report.blocks import Block, Chart, Column, Number, Numbers, Table, Text
from dissensus.report.section import Facts, Finding, Section, sections
from dissensus.report.study import Study, percent, plain, quietly, shown

MOST = 1_500  # annotators in the table and the chart
CELLS = 60_000  # entries of confusion matrices on the page
WHOLE = 12  # classes up to which a matrix is shown whole; beyond, its largest mistakes
MISTAKES = 10  # of them
MATRIX = 40  # annotators in the matrix of agreement
SHARED = 5  # items that two must share to have an entry there
FEW = "too few labels"
COLORS = ("var(--c3)", "var(--c5)", "var(--c2)", "var(--grey)", "var(--c1)")
FLAGS = ("spammer", "adversary", "copier", FEW, "none")
WORDS = {
    "spammer": (
        "labels without looking",
        "label without looking",
        "Leave their labels out, and do not pay for more of them.",
    ),
    "adversary": (
        "mostly gives the wrong label, and knowingly or not means another",
        "mostly give the wrong label, and knowingly or not mean another",
        "Ask whether they misread the classes; the method turns their labels round.",
    ),
    "copier": (
        "agrees with another far more than people who label by themselves would",
        "agree far more than people who label by themselves would",
        "Count a group of copiers as one opinion; ask how they work.",
    ),
}
WEAKEST = 5  # of those without a flag, in the summary
LISTED = 8  # names in a sentence


@sections.enter(
    "annotators", title="Annotators", summary="How good is each annotator, and who agrees with whom?", place=40
)
class Annotators(Section):
    """Reliability with intervals, flags with reasons, confusion matrices, agreement."""

    def collect(self, study: Study) -> Facts:
        """See the class."""
        fitted, found = study.fitted, study.diagnosis
        interval = fitted.reliability_interval()
        flags = found.flags
        serious = np.array([bool(set(one) - {FEW}) for one in flags])
        order = np.lexsort((-fitted.n_annotations_, ~serious))[:MOST]
        confusions = _confusions(study, order)
        people = []
        for number, code in enumerate(order.tolist()):
            person: dict[str, Any] = {
                "annotator": study.annotators[code],
                "labels": int(fitted.n_annotations_[code]),
                "reliability": plain(fitted.reliability_[code], 3),
                "low": plain(interval[code, 0], 3),
                "high": plain(interval[code, 1], 3),
                "flags": list(flags[code]),
                "reasons": found.reasons[code],
            }
            about = {
                name: shown(values[code], 80)
                for name, values in study.annotator_frame.items()
                if values[code] is not None
            }
            if about:
                person["about"] = about
            if number < len(confusions):
                person["confusion"] = confusions[number]
            people.append(person)
        counts = Counter(str(flag) for one in flags for flag in one)
        labels = fitted.n_annotations_
        return {
            "annotators": study.table.n_annotators,
            "active": found.active_annotators,
            "effective": plain(found.effective_annotators, 4),
            "mean_reliability": plain(np.nansum(fitted.hits_) / max(float(np.nansum(fitted.total_)), 1e-300)),
            "flags": {flag: counts.get(flag, 0) for flag in FLAGS[:-1]},
            "flagged_share_of_labels": plain(labels[serious].sum() / max(labels.sum(), 1)),
            "groups": [list(group) for group in found.groups],
            "people": people,
            "weakest": _weakest(people, plain(np.nansum(fitted.hits_) / max(float(np.nansum(fitted.total_)), 1e-300))),
            "classes": study.classes,
            "whole_confusions": study.table.n_classes <= WHOLE,
            "agreement": _agreement(study, serious),
        }

    def findings(self, facts: Facts) -> list[Finding]:
        """Who is bad."""
        result = []
        bad = [person for person in facts["people"] if set(person["flags"]) - {FEW}]
        for flag, (verb, verbs, advice) in WORDS.items():
            names = [person["annotator"] for person in bad if flag in person["flags"]]
            if names:
                share = len(names) / max(facts["active"], 1)
                result.append(
                    Finding(
                        f"{_listed(names)} {verbs if len(names) > 1 else verb} ({percent(share)} of the annotators).",
                        advice,
                        "bad",
                    )
                )
        if not bad:
            result.append(Finding("No annotator looks like a spammer, an adversary or a copier.", "", "good"))
        if facts["weakest"]:
            named = ", ".join(f"{one['annotator']} ({percent(one['reliability'])})" for one in facts["weakest"])
            result.append(
                Finding(
                    f"The least reliable, beyond doubt below the average of {percent(facts['mean_reliability'])}: "
                    f"{named}.",
                    "Look at what they take for what." if facts["people"] and "confusion" in facts["people"][0] else "",
                )
            )
        few = facts["flags"][FEW]
        if few:
            have = "has" if few == 1 else "have"
            result.append(
                Finding(
                    f"{few:,} of {facts['active']:,} annotators {have} too few labels to tell whether they are any "
                    "good.",
                    "Give the same people more items rather than more people a few."
                    if few > facts["active"] / 2
                    else "",
                )
            )
        return result

    def draw(self, facts: Facts) -> list[Block]:
        """Figures, the chart of all, those to look at, agreement, the table."""
        flags = facts["flags"]
        bad = [person for person in facts["people"] if set(person["flags"]) - {FEW}]
        numbers = [
            Number(f"{facts['active']:,}", "active annotators", _worth(facts)),
            Number(percent(facts["mean_reliability"], 1), "of the labels are right", "by the method, on average"),
            *(
                Number(f"{flags[flag]:,}", name)
                for flag, name in (
                    ("spammer", "spammers"),
                    ("adversary", "adversaries"),
                    ("copier", "copiers"),
                    (FEW, "with too few labels to tell"),
                )
            ),
        ]
        blocks: list[Block] = [Numbers(numbers), _scatter(facts)]
        if (matrix := facts["agreement"]) is not None:
            blocks.append(_matrix(matrix))
        else:
            blocks.append(Text("No two annotators share enough items to say who agrees with whom."))
        if bad:
            blocks += [
                Table(
                    "annotators-flagged",
                    "Annotators to look at",
                    "The reason stands beside each. Everything is judged by the others' labels, never by one's own.",
                    _COLUMNS,
                    [_row(person) for person in bad],
                    [_details(person, facts) for person in bad],
                    page=10,
                    search=False,
                ),
            ]
        people = facts["people"]
        cut = (
            f" {len(people):,} of {facts['annotators']:,} are shown: the flagged and the busiest."
            if len(people) < facts["annotators"]
            else ""
        )
        blocks += [
            Table(
                "annotators",
                "All annotators",
                "Reliability is how often an annotator's labels are right, by the method, with its 95 % interval. "
                "Open a row to see what "
                f"is taken for what.{cut}",
                _COLUMNS,
                [_row(person) for person in people],
                [_details(person, facts) for person in people],
            ),
        ]
        return blocks


_COLUMNS = (
    Column("annotator"),
    Column("labels", "number"),
    Column("reliability", "interval", note="share right, 95 % interval"),
    Column("flags", "chips"),
    Column("why", "long"),
)


def _row(person: dict[str, Any]) -> list[Any]:
    interval = [person["reliability"], person["low"], person["high"]]
    return [person["annotator"], person["labels"], interval, person["flags"], person["reasons"]]


def _details(person: dict[str, Any], facts: Facts) -> list[dict[str, Any]]:
    details: list[dict[str, Any]] = []
    if "about" in person:
        details.append({"type": "list", "title": "About", "columns": ["", ""], "rows": list(person["about"].items())})
    confusion = person.get("confusion")
    if confusion is None:
        details.append(
            {
                "type": "text",
                "title": "",
                "text": "No confusion matrix: the method has none, or it was left out to keep the page small.",
            }
        )
    elif facts["whole_confusions"]:
        details.append(
            {
                "type": "matrix",
                "title": f"What {person['annotator']} says (columns) of items that are … (rows)",
                "rows": facts["classes"],
                "columns": facts["classes"],
                "values": confusion,
                "note": "Each row sums to 100 %. A good annotator has the diagonal dark.",
            }
        )
    else:
        details.append(
            {
                "type": "list",
                "title": f"Most frequent mistakes of {person['annotator']}",
                "columns": ["is", "said", "how often"],
                "rows": [[is_, said, percent(share)] for is_, said, share in confusion],
            }
        )
    return details


def _confusions(study: Study, order: IntArray) -> list[Any]:
    """For as many annotators as there is room for: (K, K) shares, or with many classes the largest mistakes."""
    K = study.table.n_classes
    whole = K <= WHOLE
    room = CELLS // (K * K if whole else 3 * MISTAKES)
    try:
        matrices = [
            study.fitted._confusions(order[start : start + 100].astype(np.int32))
            for start in range(0, min(room, order.size), 100)
        ]
    except NotImplementedError:  # a method in which items matter too
        return []
    found = []
    weight = study.fitted.prior_
    for matrix in (one for part in matrices for one in part):
        if whole:
            found.append(plain(np.round(matrix, 2)))
            continue
        loss = matrix * weight[:, None]
        np.fill_diagonal(loss, 0)
        worst = np.argsort(-loss, axis=None, kind="stable")[:MISTAKES]
        found.append(
            [[study.classes[w // K], study.classes[w % K], plain(matrix[w // K, w % K], 2)] for w in worst.tolist()]
        )
    return found[:room]


def _agreement(study: Study, serious: Any) -> dict[str, Any] | None:
    """Agreement of pairs among the busiest and the flagged, in an order that puts those who agree side by side."""
    from scipy.cluster.hierarchy import leaves_list, linkage, optimal_leaf_ordering
    from scipy.spatial.distance import squareform

    table = study.table
    labels = np.diff(table.annotator_ptr)
    order = np.lexsort((-labels, ~(serious & (labels >= SHARED))))[:MATRIX]
    chosen = np.zeros(table.n_annotators, np.bool_)
    chosen[order[labels[order] > 0]] = True
    if chosen.sum() < 2:
        return None
    part = table.select(annotators=chosen)
    with quietly():
        pairs = cohen_kappas(part, least=SHARED)
    if len(pairs) < 2:
        return None
    names = part.annotators.tolist()
    at = {name: number for number, name in enumerate(names)}
    n = len(names)
    share: FloatArray = np.full((n, n), np.nan)
    count = np.zeros((n, n), np.int64)
    rows, columns = [at[name] for name in pairs.first.tolist()], [at[name] for name in pairs.second.tolist()]
    for matrix, values in ((share, pairs.agreement), (count, pairs.shared)):
        matrix[rows, columns] = matrix[columns, rows] = values
    met = ~np.isnan(share).all(axis=1)
    share, count = share[met][:, met], count[met][:, met]
    codes = np.flatnonzero(chosen)[met]
    distance = 1 - np.where(np.isnan(share), np.nanmean(share), share)
    np.fill_diagonal(distance, 0)
    close = squareform(distance, checks=False)
    leaves = (
        leaves_list(optimal_leaf_ordering(linkage(close, "average"), close))
        if len(codes) > 2
        else np.arange(len(codes))
    )
    return {
        "annotators": [study.annotators[codes[leaf]] for leaf in leaves],
        "share": plain(share[leaves][:, leaves], 2),
        "shared": plain(count[leaves][:, leaves]),
        "of": int((labels > 0).sum()),
    }


def _weakest(people: list[dict[str, Any]], average: float) -> list[dict[str, Any]]:
    """Those without a flag whose interval lies below the average, the lowest first."""
    below = [p for p in people if not p["flags"] and p["high"] is not None and p["high"] < average]
    return [
        {"annotator": p["annotator"], "reliability": p["reliability"]}
        for p in sorted(below, key=lambda p: p["high"])[:WEAKEST]
    ]


def _scatter(facts: Facts) -> Chart:
    alt = charts.altair()
    rows = [
        {
            "name": p["annotator"],
            "labels": max(p["labels"], 1),
            "value": p["reliability"],
            "low": p["low"],
            "high": p["high"],
            "flag": next(iter(p["flags"]), "none"),
            "why": p["reasons"],
        }
        for p in facts["people"]
        if p["reliability"] is not None
    ]
    rows.sort(key=lambda row: row["flag"] != "none")  # what is flagged is drawn on top
    base = alt.Chart(charts.data(rows))
    x = alt.X(
        "labels:Q",
        title="labels given",
        scale=alt.Scale(type="log", nice=False, padding=12),
        axis=alt.Axis(format="~s", tickCount=5, labelOverlap=True),
    )
    color = alt.Color(
        "flag:N",
        title=None,
        scale=alt.Scale(domain=list(FLAGS), range=list(COLORS)),
        legend=alt.Legend(orient="top", columns=3),
    )
    bars = base.mark_rule(opacity=0.35).encode(
        x=x, y=alt.Y("low:Q", title="reliability", axis=alt.Axis(format="%", tickCount=5)), y2="high:Q", color=color
    )
    dots = base.mark_point(filled=True, opacity=0.9, size=55).encode(
        x=x,
        y="value:Q",
        color=color,
        shape=alt.Shape(
            "flag:N", title=None, scale=alt.Scale(domain=list(FLAGS)), legend=alt.Legend(orient="top", columns=3)
        ),
        tooltip=[
            alt.Tooltip("name:N", title="annotator"),
            alt.Tooltip("labels:Q", title="labels", format=charts.COUNT),
            alt.Tooltip("value:Q", title="reliability", format=".0%"),
            alt.Tooltip("low:Q", title="from", format=".0%"),
            alt.Tooltip("high:Q", title="to", format=".0%"),
            alt.Tooltip("flag:N", title="flag"),
        ],
    )
    bad = [row for row in rows if row["flag"] not in ("none", FEW)]
    return Chart(
        charts.spec(bars + dots, 320, opens=("annotators", "name")),
        "Who is reliable",
        "Each mark is an annotator: the higher the better, the further right the more labels. Lines are 95 % "
        "intervals; they are long where little is known. Click a mark to see that annotator.",
        f"Reliability against number of labels of {len(rows):,} annotators, on average "
        f"{percent(facts['mean_reliability'])}; "
        + (
            f"flagged: {', '.join(row['name'] + ' (' + row['flag'] + ')' for row in bad[:LISTED])}."
            if bad
            else "nobody is flagged."
        ),
        wide=True,
    )


def _matrix(matrix: dict[str, Any]) -> Chart:
    alt = charts.altair()
    names = matrix["annotators"]
    rows = [
        {"a": names[i], "b": names[j], "share": share, "shared": matrix["shared"][i][j]}
        for i, line in enumerate(matrix["share"])
        for j, share in enumerate(line)
        if share is not None and i != j
    ]
    dense = len(names) > 20
    axis = alt.Axis(labels=not dense, ticks=not dense, labelAngle=-90)
    chart = (
        alt.Chart(charts.data(rows))
        .mark_rect()
        .encode(
            x=alt.X("b:N", title=None, sort=names, scale=alt.Scale(domain=names), axis=axis),
            y=alt.Y("a:N", title=None, sort=names, scale=alt.Scale(domain=names), axis=alt.Axis(labelLimit=90)),
            color=alt.Color(
                "share:Q", title="agree", legend=alt.Legend(format=".0%", orient="top", gradientLength=140)
            ),
            tooltip=[
                alt.Tooltip("a:N", title="annotator"),
                alt.Tooltip("b:N", title="and"),
                alt.Tooltip("share:Q", title="agree on", format=".0%"),
                alt.Tooltip("shared:Q", title="of shared items"),
            ],
        )
    )
    best = max(rows, key=lambda row: (row["share"], row["shared"]))
    few = f" The {len(names)} busiest and flagged of {matrix['of']:,} annotators." if len(names) < matrix["of"] else ""
    return Chart(
        charts.spec(chart, max(220, 13 * len(names) + 60)),
        "Who agrees with whom",
        "How often two annotators gave one label to the items that both have seen; those who agree stand side by "
        "side. Blocks are groups "
        f"who see things alike, or copy; dark stripes are people nobody agrees with. Blank: fewer than {SHARED} "
        f"shared items.{few}",
        f"Matrix of agreement of {len(names)} annotators; highest between {best['a']} and {best['b']}, "
        f"{percent(best['share'])} of {best['shared']} items.",
        wide=True,
    )


def _worth(facts: Facts) -> str:
    if not facts["groups"]:
        return ""
    return f"worth about {facts['effective']:.1f} who label by themselves"


def _listed(names: list[str]) -> str:
    if len(names) == 1:
        return names[0]
    more = len(names) - LISTED
    if more > 0:
        return f"{len(names)} annotators ({', '.join(names[:LISTED])} and {more} more)"
    return f"{', '.join(names[:-1])} and {names[-1]}"
