"""Items: which to look at, and why labels disagree: an error, an ambiguity, or groups who see them differently."""

from __future__ import annotations

from typing import Any

import numpy as np

from dissensus.common.formatting import percent
from dissensus.common.types import FloatArray, IntArray
from dissensus.questions.explain import KINDS, SURE, Explanation
from dissensus.report import charts
from dissensus.report.blocks import Block, Chart, Column, Number, Numbers, Table, Text
from dissensus.report.section import Facts, Finding, Section, sections
from dissensus.report.study import ASIDE, LONGEST, Study, plain, shares, shown, within

FIRST = 10  # items to look at first
MOST = 1_500  # items in the table
OTHERS = 300  # of them drawn from those that need no look, so that a reader sees what those are like
SIZE = 1_600_000  # characters of them
ROOM = 1_000_000  # of texts; they are cut to fit
DOTS = 1_500  # items in the chart
VOICES, SPOKEN = 30, 20_000  # labels that are listed, of an item and in all
SURPRISE = 0.2  # what a standard deviation of surprise is worth, as a probability that the label is wrong
CARELESS = 0.1  # between the reliabilities of two groups, from which they differ in care
TWO = 0.01  # probability of two answers that is worth a word
WHY = {
    "unlabelled": "nobody has labelled it",
    "agreed": "all say the same",
    "likely error": "somebody erred, and the method says who",
    "ambiguous": "it has two answers: annotators give one or the other",
    "undecided": "an error or two answers: the labels do not tell",
    "group perspective": "groups of annotators see it differently",
}
KIND_COLORS = {
    "agreed": "var(--grey)",
    "ambiguous": "var(--c3)",
    "group perspective": "var(--c5)",
    "undecided": "var(--c2)",
    "likely error": "var(--c1)",
}
"""How kinds are drawn, in the order of charts."""


@sections.enter("items", title="Items", summary="Which items are hard, ambiguous or wrongly labelled?", place=50)
class Items(Section):
    """Disagreement split by its reason, ten items to look at, a table of all."""

    def collect(self, study: Study) -> Facts:
        """See the class."""
        found = study.explanation
        worth = look_first(found)
        rng = np.random.default_rng(study.seed)
        order = np.argsort(-worth, kind="stable")
        most = min(MOST, order.size)
        brief = {"longest": min(LONGEST, ROOM // max(most, 1)), "voices": min(VOICES, max(5, SPOKEN // max(most, 1)))}

        def about(chosen: IntArray, size: int) -> list[dict[str, Any]]:
            return within((_about(study, found, i, **brief) for i in chosen.tolist()), size)

        table = about(order[: MOST if order.size <= MOST else MOST - OTHERS], SIZE)
        others = about(rng.permutation(order[len(table) :])[:OTHERS], SIZE // 4)
        dots = rng.permutation(found.kind.size)[:DOTS]
        return {
            "items": int(found.kind.size),
            "kinds": {str(kind): int(count) for kind, count in found.counts().items()},
            "first": table[: min(FIRST, int((worth > 0).sum()))],
            "table": table + others,
            "others": len(others),
            "groups": [
                {
                    "column": effect.column,
                    "groups": [
                        {"group": name, "labels": int(n), "reliability": plain(right, 3)}
                        for name, n, right in zip(effect.groups, effect.labels, effect.reliability, strict=True)
                    ],
                    "effect": plain(effect.effect),
                    "p_value": plain(effect.p_value),
                    "significant": bool(effect.significant),
                    "strongest": [study.items[i] for i in effect.items[:FIRST].tolist()],
                }
                for effect in found.groups
            ],
            "map": [
                {
                    "item": study.items[i],
                    "disagreement": plain(found.disagreement[i], 3),
                    "confidence": plain(found.confidence[i], 3),
                    "kind": KINDS[found.kind[i]],
                }
                for i in dots.tolist()
                if np.isfinite(found.disagreement[i])
            ],
            "columns": {
                "picture": study.picture_column is not None,
                "text": bool(study.text_columns),
                "gold": study.gold is not None,
                "difficulty": hasattr(study.fitted, "difficulty_"),
            },
        }

    def findings(self, facts: Facts) -> list[Finding]:
        """How the disagreement splits, which items to look at, and whom they divide."""
        kinds, n = facts["kinds"], max(facts["items"], 1)
        said = [f"All annotators of an item agree on {percent(kinds['agreed'] / n)} of the items"]
        if kinds["likely error"]:
            said.append(f"on {kinds['likely error']:,} somebody erred and the method settles it")
        open_ones = [
            f"{kinds[kind]:,} {kind}" for kind in ("undecided", "ambiguous", "group perspective") if kinds[kind]
        ]
        if open_ones:
            said.append(f"open are {', '.join(open_ones)}")
        first = [one["item"] for one in facts["first"]]
        look = f"Look first at {', '.join(first[:5])}{' …' if len(first) > 5 else '.'}" if first else ""
        result = [Finding("; ".join(said) + ".", look, "note" if open_ones else "good", "items-first" if first else "")]
        return result + [_of_group(group) for group in facts["groups"] if group["significant"]]

    def draw(self, facts: Facts) -> list[Block]:
        """Reasons, map, groups, ten items, all items."""
        kinds, n = facts["kinds"], max(facts["items"], 1)
        numbers = [
            Number(f"{kinds[kind]:,}", kind, f"{percent(kinds[kind] / n)}: {WHY[kind]}")
            for kind in KINDS
            if kinds[kind]
        ]
        blocks: list[Block] = [Numbers(numbers), _reasons(facts)]
        if facts["map"]:
            blocks.append(_map(facts))
        if facts["groups"]:
            blocks.append(_groups(facts))
        if facts["first"]:
            blocks.append(
                Table(
                    "items-first",
                    "Ten items to look at first" if len(facts["first"]) == FIRST else "Items to look at first",
                    "The labels most likely to be wrong or to have no one answer. Open a row to see who said what.",
                    _columns(facts, why=True),
                    [_row(one, facts, why=True) for one in facts["first"]],
                    [_details(one) for one in facts["first"]],
                    page=FIRST,
                    search=False,
                )
            )
        else:
            blocks.append(Text("No item needs a look: all labels agree."))
        table = facts["table"]
        cut = (
            f" {len(table):,} of {facts['items']:,} are here: those most in need of a look, and {facts['others']} "
            "others at "
            "random; `dissensus aggregate` writes all."
            if len(table) < facts["items"]
            else ""
        )
        blocks.append(
            Table(
                "items",
                "Items" if cut else "All items",
                f"Search by name, text, label or reason; sort by any column.{cut}",
                _columns(facts),
                [_row(one, facts) for one in table],
                [_details(one) for one in table],
            )
        )
        return blocks


def look_first(found: Explanation) -> FloatArray:
    """(I,) how much a look at each item is worth: how probably its label is wrong, or that no one label is right.

    The posterior alone is too sure of itself where the model does not fit; how surprising the labels are says where.
    """
    surprise = np.nan_to_num(found.surprise, posinf=8.0, neginf=0.0)
    disagreement = np.nan_to_num(found.disagreement)
    worth = (1 - found.confidence) + SURPRISE * np.clip(surprise, 0, 8) + 1e-3 * disagreement
    worth[(disagreement == 0) & (found.confidence >= SURE)] = 0
    return np.asarray(worth)


def _about(study: Study, found: Explanation, item: int, longest: int, voices: int) -> dict[str, Any]:
    """One item, as plain values."""
    table = study.table
    rows = range(int(table.item_ptr[item]), int(table.item_ptr[item + 1]))
    result: dict[str, Any] = {
        "item": study.items[item],
        "label": study.classes[study.label[item]],
        "confidence": plain(study.confidence[item], 3),
        "kind": KINDS[found.kind[item]],
        "two_answers": plain(found.ambiguity[item], 3),
        "disagreement": plain(found.disagreement[item], 3),
        "surprise": plain(found.surprise[item], 3),
        "votes": shares(study.votes[item], study.classes),
        "posterior": shares(study.fitted.posterior_[item], study.classes),
        "labels": len(rows),
        "voices": [
            [
                study.annotators[table.annotator[row]],
                study.classes[table.label[row]],
                plain(study.fitted.reliability_[table.annotator[row]], 3),
                plain(found.suspect[row], 3),
            ]
            for row in rows[:voices]
        ],
    }
    if study.picture_column:
        result["picture"] = study.picture(item)
    if study.text_columns:
        result["texts"] = study.texts(item, longest)
    used = (*study.text_columns, study.picture_column, *ASIDE)
    about = {name: values[item] for name, values in study.item_frame.items() if name not in used}
    if about := {name: shown(value, 120) for name, value in about.items() if value not in (None, "")}:
        result["about"] = about
    if study.gold is not None:
        result["gold"] = study.classes[study.gold[item]] if study.gold[item] >= 0 else None
    if hasattr(study.fitted, "difficulty_"):
        result["difficulty"] = plain(study.fitted.difficulty_[item], 3)
    if (group := int(found.by_group[item])) >= 0:
        result["group"] = found.groups[group].column
    return result


def _columns(facts: Facts, why: bool = False) -> list[Column]:
    has = facts["columns"]
    return [
        Column("item"),
        *([Column("picture", "picture")] if has["picture"] else []),
        *([Column("text", "long")] if has["text"] else []),
        *([Column("why", "long")] if why else []),
        Column("votes", "shares", note="what annotators said"),
        Column("label", note="the method's"),
        Column("confidence", "percent"),
        *([Column("gold")] if has["gold"] else []),
        Column("reason", "chips", note="why labels disagree"),
        *([] if why else [Column("disagreement", "percent", note="pairs of labels that differ")]),
        *([Column("difficulty", "number", 2)] if has["difficulty"] and not why else []),
    ]


def _row(one: dict[str, Any], facts: Facts, why: bool = False) -> list[Any]:
    has = facts["columns"]
    return [
        one["item"],
        *([one["picture"]] if has["picture"] else []),
        *([one.get("texts", [])] if has["text"] else []),
        *([_why(one)] if why else []),
        one["votes"],
        one["label"],
        one["confidence"],
        *([one["gold"] or ""] if has["gold"] else []),
        [one["kind"]],
        *([] if why else [one["disagreement"]]),
        *([one["difficulty"]] if has["difficulty"] and not why else []),
    ]


def _why(one: dict[str, Any]) -> str:
    """Why an item is worth a look."""
    if not one["votes"]:
        return "Nobody has labelled it."
    (top, share, _), *others = one["votes"]
    sure = percent(one["confidence"])
    if one["labels"] == 1:
        said = f"Its one label is {top}; the method says {one['label']} ({sure})."
    elif others and others[0][1] == share:
        said = f"No class leads the votes; the method says {one['label']} ({sure})."
    elif one["label"] != top:
        said = f"{percent(share)} say {top}, but the method trusts those who say {one['label']} ({sure})."
    else:
        said = f"{percent(share)} say {top}; the method is {sure} sure."
    if one["kind"] == "group perspective":
        return f"{said} Groups by {one.get('group', 'metadata')} differ."
    if one["kind"] == "ambiguous":
        return f"{said} That is more disagreement than these annotators' mistakes explain."
    if one["kind"] == "undecided":
        tell = (
            "Another label would tell."
            if one["confidence"] < SURE
            else "An error or two answers? More labels would tell."
        )
        return f"{said} {tell}"
    return f"{said} Somebody probably erred."


def _details(one: dict[str, Any]) -> list[dict[str, Any]]:
    details: list[dict[str, Any]] = []
    if about := one.get("about"):
        details.append({"type": "list", "title": "About", "columns": ["", ""], "rows": list(about.items())})
    voices = [
        [name, label, "" if right is None else percent(right), "" if wrong is None else percent(wrong)]
        for name, label, right, wrong in one["voices"]
    ]
    more = one["labels"] - len(voices)
    details.append(
        {
            "type": "list",
            "title": "Who said what" + (f" ({more} more)" if more > 0 else ""),
            "columns": ["annotator", "label", "reliability", "probably a mistake"],
            "rows": voices,
        }
    )
    beliefs = [[name, percent(share, 1)] for name, share, _ in one["posterior"]]
    two = one["two_answers"]
    details.append(
        {"type": "list", "title": "The method's belief", "columns": ["class", "probability"], "rows": beliefs}
        | ({"note": f"If it has one answer; that it has two: {percent(two)}."} if two and two >= TWO else {})
    )
    return details


def _of_group(group: dict[str, Any]) -> Finding:
    """Groups who differ: in what they see, or in how careful they are."""
    text = (
        f"What annotators say depends on who they are: by {group['column']}, {percent(group['effect'], 1)} of the "
        f"disagreement lies between groups (p = {group['p_value']:.2g})"
    )
    judged = sorted(
        (one for one in group["groups"] if one["reliability"] is not None), key=lambda one: one["reliability"]
    )
    if judged and judged[-1]["reliability"] - judged[0]["reliability"] >= CARELESS:
        worst, best = judged[0], judged[-1]
        return Finding(
            f"{text}; those with {group['column']} {worst['group']} are right {percent(worst['reliability'])} of the "
            f"time, those with {best['group']} {percent(best['reliability'])}.",
            "That may be careless work rather than another view: read some of these items before you trust either.",
        )
    return Finding(f"{text}.", "A single label would hide that; keep the distribution, or one label per group.")


def _reasons(facts: Facts) -> Chart:
    alt = charts.altair()
    kinds = facts["kinds"]
    rows = [{"kind": kind, "count": kinds[kind], "why": WHY[kind]} for kind in KIND_COLORS if kinds[kind]]
    chart = (
        alt.Chart(charts.data(rows))
        .mark_bar()
        .encode(
            x=alt.X("count:Q", title="items", axis=charts.axis(charts.COUNT, tickCount=4)),
            y=charts.names("kind", list(KIND_COLORS)),
            color=charts.color("kind", list(KIND_COLORS), list(KIND_COLORS.values()), legend=False),
            tooltip=charts.tips(("kind:N", "items"), ("count:Q", "how many", charts.COUNT), ("why:N", "because")),
        )
    )
    return Chart(
        charts.spec(chart, charts.rows_high(len(rows)) + 10),
        "Why labels disagree",
        "Likely errors are settled by the method. Ambiguous items have more disagreement than the annotators' usual "
        "mistakes explain; more labels will not settle them. Of undecided ones it is not clear which they are.",
        "Items by reason: " + ", ".join(f"{row['kind']} {row['count']:,}" for row in rows) + ".",
    )


def _map(facts: Facts) -> Chart:
    alt = charts.altair()
    there = [kind for kind in KIND_COLORS if any(dot["kind"] == kind for dot in facts["map"])]
    chart = (
        alt.Chart(charts.data(facts["map"]))
        .mark_point(filled=True, size=28, opacity=0.6)
        .encode(
            x=alt.X("disagreement:Q", title="disagreement", axis=charts.axis("%")),
            y=alt.Y("confidence:Q", title="confidence", scale=alt.Scale(zero=False), axis=charts.axis("%")),
            color=charts.color("kind", there, [KIND_COLORS[kind] for kind in there]),
            tooltip=charts.tips(
                ("item:N", "item"),
                ("kind:N", "reason"),
                ("disagreement:Q", "disagreement", charts.SHARE),
                ("confidence:Q", "confidence", charts.SHARE),
            ),
        )
    )
    some = f" A random {DOTS:,} of {facts['items']:,} items." if facts["items"] > DOTS else ""
    return Chart(
        charts.spec(chart, 280, opens=("items", "item")),
        "A map of the items",
        "Disagreement: how often two labels differ. Top left: everybody agrees and the label is sure. Right and low: "
        f"hard items. Right but high: the method sides with those it trusts. Click a mark to see that item.{some}",
        f"Scatter of disagreement against confidence of {len(facts['map']):,} items.",
    )


def _groups(facts: Facts) -> Chart:
    alt = charts.altair()
    words = ("more than chance", "could be chance")
    rows = [
        {
            "column": g["column"],
            "effect": max(g["effect"] or 0.0, 0.0),
            "p": g["p_value"],
            "word": words[not g["significant"]],
        }
        for g in facts["groups"]
    ]
    chart = (
        alt.Chart(charts.data(rows))
        .mark_bar()
        .encode(
            x=alt.X("effect:Q", title="of the disagreement", axis=charts.axis(".1%", tickCount=4)),
            y=charts.names("column", None),
            color=charts.color("word", words, columns=1),
            tooltip=charts.tips(("column:N", "groups by"), ("effect:Q", "share", ".2%"), ("p:Q", "p-value", ".3g")),
        )
    )
    sure = ", ".join(g["column"] for g in facts["groups"] if g["significant"])
    said = ", ".join(f"{row['column']} {percent(row['effect'], 1)} (p {row['p']:.2g})" for row in rows)
    return Chart(
        charts.spec(chart, charts.rows_high(len(rows)) + 20),
        "Do groups see things differently?",
        f"By {sure}, groups of annotators disagree more than people dealt out at random would."
        if sure
        else "No: by whatever is known of them, groups disagree no more than people dealt out at random would.",
        f"Share of disagreement between groups: {said}.",
    )
