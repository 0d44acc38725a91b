"""Items: which to look at, and why labels disagree: an error, an ambiguity, or groups who see them differently."""

from __future__ import annotations

from typing import Any

import numpy as np

from dissensus._types import FloatArray, IntArray
from dissensus.disagreement import KINDS, SURE, Explanation
from dissensus.report import charts
from dissensus.report.blocks import Block, Chart, Column, Number, Numbers, Table, Text
from dissensus.report.section import Facts, Finding, Section, sections
from dissensus.report.study import ASIDE, LONGEST, Study, percent, plain, shown

FIRST = 10  # items to look at first
MOST = 1_500  # items in the table
OTHERS = 300  # of them drawn from those that need no look, so that a reader sees what those are like
ROOM = 1_200_000  # characters of texts on the page; texts are cut to fit
DOTS = 1_500  # items in the chart
CARELESS = 0.1  # between the reliabilities of two groups, from which they differ in care
VOICES = 30  # labels of an item that are listed
TOP = 4  # classes in a bar of votes; the rest are one
WHY = {
    "unlabelled": "nobody has labelled it",
    "agreed": "all agree",
    "likely error": "one class, and a mistake by somebody",
    "ambiguous": "more disagreement than mistakes explain: no one class fits",
    "undecided": "too few or too divided labels to tell",
    "group perspective": "groups of annotators see it differently",
}
LOOK = ("ambiguous", "group perspective", "undecided", "likely error")
COLORS = ("var(--grey)", "var(--c3)", "var(--c5)", "var(--c2)", "var(--c1)")  # of agreed, and of those


@sections.enter("items", title="Items", summary="Which items are hard, ambiguous or wrongly labelled?", place=50)
class Items(Section):
    """Disagreement split by its reason, ten items to look at, a table of all."""

    def collect(self, study: Study) -> Facts:
        """See the class."""
        found = study.explanation
        worth = look_first(found)
        order = np.lexsort((np.arange(worth.size), -worth))
        chosen = order
        if order.size > MOST:
            rest = np.random.default_rng(study.seed).permutation(order[MOST - OTHERS :])[:OTHERS]
            chosen = np.concatenate([order[: MOST - OTHERS], rest[np.argsort(-worth[rest], kind="stable")]])
        longest = min(LONGEST, ROOM // max(chosen.size, 1))
        names = KINDS
        first = [i for i in order[:FIRST].tolist() if worth[i] > 0]
        dots = np.random.default_rng(study.seed).permutation(found.kind.size)[:DOTS]
        return {
            "items": int(found.kind.size),
            "kinds": {kind: int(count) for kind, count in found.counts().items()},
            "first": [_about(study, found, i, longest) for i in first],
            "table": [_about(study, found, i, longest) for i in chosen.tolist()],
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
                    "items": len(effect.items),
                    "strongest": [study.items[i] for i in effect.items[:FIRST].tolist()],
                }
                for effect in found.groups
            ],
            "map": [
                {
                    "item": study.items[i],
                    "disagreement": plain(found.disagreement[i], 3),
                    "confidence": plain(found.confidence[i], 3),
                    "kind": names[found.kind[i]],
                }
                for i in dots.tolist()
                if np.isfinite(found.disagreement[i])
            ],
            "classes": study.classes,
            "columns": {
                "picture": study.picture_column is not None,
                "text": bool(study.text_columns),
                "gold": study.gold is not None,
                "difficulty": hasattr(study.fitted, "difficulty_"),
            },
            "sure": SURE,
        }

    def findings(self, facts: Facts) -> list[Finding]:
        """How the disagreement splits, and whom it divides."""
        kinds, n = facts["kinds"], max(facts["items"], 1)
        result = []
        open_ones = kinds["ambiguous"] + kinds["undecided"] + kinds["group perspective"]
        parts = [f"{kinds[kind]:,} {kind}" for kind in LOOK if kinds[kind]]
        if parts:
            first = [one["item"] for one in facts["first"]]
            result.append(
                Finding(
                    f"Labels agree on {percent(kinds['agreed'] / n)} of the items; of the others, {', '.join(parts)}.",
                    f"Look first at {', '.join(first[:5])} …"
                    if len(first) > 5
                    else f"Look at {', '.join(first)}."
                    if first
                    else "",
                    "note" if open_ones > 0.05 * n else "good",
                )
            )
        else:
            result.append(Finding("All labels of every item agree.", "", "good"))
        return result + [_of_group(group) for group in facts["groups"] if group["significant"]]

    def draw(self, facts: Facts) -> list[Block]:
        """Reasons, map, groups, ten items, all items."""
        kinds, n = facts["kinds"], max(facts["items"], 1)
        numbers = [
            Number(f"{kinds[kind]:,}", kind, f"{percent(kinds[kind] / n, 1)}: {WHY[kind]}")
            for kind in KINDS
            if kinds[kind]
        ]
        blocks: list[Block] = [Numbers(numbers), _reasons(facts)]
        if facts["map"]:
            blocks.append(_map(facts))
        if facts["groups"]:
            blocks.append(_groups(facts))
        if facts["first"]:
            blocks += [
                Table(
                    "items-first",
                    "Items to look at first",
                    "The labels most likely to be wrong or to have no one answer. Open a row to see who said what.",
                    _columns(facts, why=True),
                    [_row(one, facts, why=True) for one in facts["first"]],
                    [_details(one) for one in facts["first"]],
                    page=FIRST,
                    search=False,
                ),
            ]
        else:
            blocks.append(Text("No item needs a look: all labels agree."))
        table = facts["table"]
        cut = (
            f" {len(table):,} of {facts['items']:,} are here: those most in need of a look, and {OTHERS} others at "
            "random; report.json and "
            "`dissensus aggregate` have more."
            if len(table) < facts["items"]
            else ""
        )
        blocks += [
            Table(
                "items",
                "Items",
                f"Search by name, text, label or reason; sort by any column.{cut}",
                _columns(facts),
                [_row(one, facts) for one in table],
                [_details(one) for one in table],
            ),
        ]
        return blocks


def _of_group(group: dict[str, Any]) -> Finding:
    """Groups who differ: in what they see, or in how careful they are."""
    text = (
        f"What annotators say depends on who they are: by {group['column']}, {percent(group['effect'], 1)} of the "
        f"disagreement lies between groups (p = {group['p_value']:.2g})"
    )
    judged = [one for one in group["groups"] if one["reliability"] is not None]
    worst, best = (f(judged, key=lambda one: one["reliability"], default=None) for f in (min, max))
    if worst and best and best["reliability"] - worst["reliability"] >= CARELESS:
        return Finding(
            f"{text}; {worst['group']} is right {percent(worst['reliability'])} of the time, {best['group']} "
            f"{percent(best['reliability'])}.",
            "That may be careless work rather than another view: read some of these items before you trust either.",
        )
    return Finding(f"{text}.", "A single label would hide that; keep the distribution, or one label per group.")


def look_first(found: Explanation) -> FloatArray:
    """(I,) how much a look at each item is worth: how probably its label is wrong, or that no one label is right.

    The posterior alone is too sure of itself where the model does not fit; how surprising the labels are says where.
    """
    surprise = np.nan_to_num(found.surprise, posinf=8.0, neginf=0.0)
    disagreement = np.nan_to_num(found.disagreement)
    worth = (1 - found.confidence) + SURPRISE * np.clip(surprise, 0, 8) + 1e-3 * disagreement
    worth[(disagreement == 0) & (found.confidence >= SURE)] = 0
    return np.asarray(worth)


SURPRISE = 0.2  # what a standard deviation of surprise is worth, as a probability that the label is wrong


def _about(study: Study, found: Explanation, item: int, longest: int) -> dict[str, Any]:
    """One item, as plain values."""
    table = study.table
    rows = slice(int(table.item_ptr[item]), int(table.item_ptr[item + 1]))
    label = int(study.label[item])
    result: dict[str, Any] = {
        "item": study.items[item],
        "label": study.classes[label],
        "confidence": plain(study.confidence[item], 3),
        "kind": KINDS[found.kind[item]],
        "disagreement": plain(found.disagreement[item], 3),
        "surprise": plain(found.surprise[item], 3),
        "votes": _shares(study.votes[item], study.classes),
        "posterior": _shares(study.fitted.posterior_[item], study.classes),
        "labels": rows.stop - rows.start,
    }
    if study.picture_column:
        result["picture"] = study.picture(item)
    if study.text_columns:
        result["texts"] = study.texts(item, longest)
    about = {
        name: shown(values[item], 120)
        for name, values in study.item_frame.items()
        if name not in study.text_columns
        and name != study.picture_column
        and name not in ASIDE
        and values[item] not in (None, "")
    }
    if about:
        result["about"] = about
    if study.gold is not None:
        result["gold"] = study.classes[study.gold[item]] if study.gold[item] >= 0 else None
    if hasattr(study.fitted, "difficulty_"):
        result["difficulty"] = plain(study.fitted.difficulty_[item], 3)
    group = int(found.by_group[item])
    if group >= 0:
        result["group"] = found.groups[group].column
    voices = list(range(rows.start, rows.stop))[:VOICES]
    result["voices"] = [
        [
            study.annotators[table.annotator[row]],
            study.classes[table.label[row]],
            plain(study.fitted.reliability_[table.annotator[row]], 2),
            plain(found.suspect[row], 2),
        ]
        for row in voices
    ]
    return result


def _shares(weights: FloatArray, classes: list[str]) -> list[list[Any]]:
    """[class, share, how many] of the classes that have any, the largest first; many small ones become one."""
    total = float(weights.sum())
    order: IntArray = np.argsort(-weights, kind="stable")
    order = order[weights[order] > 0.005 * max(total, 1e-300)]
    shares = [[classes[k], plain(weights[k] / total, 3), int(k)] for k in order[:TOP].tolist()]
    rest = float(weights[order[TOP:]].sum())
    return [*shares, ["other", plain(rest / total, 3), -1]] if rest > 0 else shares


def _columns(facts: Facts, why: bool = False) -> list[Column]:
    has = facts["columns"]
    return [
        Column("item"),
        *([Column("picture", "picture")] if has["picture"] else []),
        *([Column("text", "long")] if has["text"] else []),
        Column("votes", "shares", note="what annotators said"),
        Column("label", note="the method's"),
        Column("confidence", "percent"),
        *([Column("gold")] if has["gold"] else []),
        Column("reason", "chips", note="why labels disagree"),
        *([Column("why", "long")] if why else [Column("disagreement", "percent", note="pairs of labels that differ")]),
        *([Column("difficulty", "number", 2)] if has["difficulty"] and not why else []),
    ]


def _row(one: dict[str, Any], facts: Facts, why: bool = False) -> list[Any]:
    has = facts["columns"]
    return [
        one["item"],
        *([one["picture"]] if has["picture"] else []),
        *([one.get("texts", [])] if has["text"] else []),
        one["votes"],
        one["label"],
        one["confidence"],
        *([one["gold"] or ""] if has["gold"] else []),
        [one["kind"]],
        *([_why(one)] if why else [one["disagreement"]]),
        *([one["difficulty"]] if has["difficulty"] and not why else []),
    ]


def _why(one: dict[str, Any]) -> str:
    """A sentence on why this item is worth a look."""
    top = one["votes"][0] if one["votes"] else None
    if top is None:
        return "Nobody has labelled it."
    said = f"{percent(top[1])} say {top[0]}"
    if len(one["votes"]) > 1 and one["votes"][1][1] == top[1]:
        said = f"No class leads the votes; the method leans to {one['label']} ({percent(one['confidence'])} sure)"
    elif one["label"] != top[0]:
        said += f", but the method trusts those who say {one['label']} ({percent(one['confidence'])} sure)"
    else:
        said += f"; the method is {percent(one['confidence'])} sure"
    if one["kind"] == "group perspective":
        return f"{said}. Groups by {one.get('group', 'metadata')} differ."
    if one["kind"] == "ambiguous":
        return f"{said}. That is more disagreement than these annotators' mistakes explain."
    if one["kind"] == "undecided":
        return f"{said}. Another label would tell."
    return f"{said}. Somebody probably erred."


def _details(one: dict[str, Any]) -> list[dict[str, Any]]:
    details: list[dict[str, Any]] = []
    about = one.get("about", {})
    if about:
        details.append({"type": "list", "title": "About", "columns": ["", ""], "rows": list(about.items())})
    voices = [
        [name, label, "" if sure is None else percent(sure), "" if wrong is None else percent(wrong)]
        for name, label, sure, wrong in one["voices"]
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
    details.append(
        {
            "type": "list",
            "title": "The method's belief",
            "columns": ["class", "probability"],
            "rows": [[name, percent(share, 1)] for name, share, _ in one["posterior"]],
        }
    )
    return details


def _kind_color(alt: Any, legend: Any) -> Any:
    return alt.Color("kind:N", scale=alt.Scale(domain=["agreed", *LOOK], range=list(COLORS)), legend=legend)


def _reasons(facts: Facts) -> Chart:
    alt = charts.altair()
    kinds, n = facts["kinds"], max(facts["items"], 1)
    rows = [
        {"kind": kind, "count": kinds[kind], "share": kinds[kind] / n, "why": WHY[kind]}
        for kind in ("agreed", *LOOK)
        if kinds[kind]
    ]
    chart = (
        alt.Chart(charts.data(rows))
        .mark_bar()
        .encode(
            x=alt.X("count:Q", title="items", axis=alt.Axis(format=charts.COUNT, tickCount=4)),
            y=alt.Y("kind:N", title=None, sort=["agreed", *LOOK]),
            color=_kind_color(alt, None),
            tooltip=[
                alt.Tooltip("kind:N", title="items"),
                alt.Tooltip("count:Q", title="how many", format=charts.COUNT),
                alt.Tooltip("why:N", title="because"),
            ],
        )
    )
    return Chart(
        charts.spec(chart, charts.rows_high(len(rows)) + 10),
        "Why labels disagree",
        "Likely errors are settled by the method. Ambiguous items have more disagreement than the annotators' usual "
        "mistakes "
        "explain; more labels will not settle them. Undecided ones need another label.",
        "Items by reason: " + ", ".join(f"{row['kind']} {row['count']:,}" for row in rows) + ".",
    )


def _map(facts: Facts) -> Chart:
    alt = charts.altair()
    chart = (
        alt.Chart(charts.data(facts["map"]))
        .mark_point(filled=True, size=28, opacity=0.6)
        .encode(
            x=alt.X("disagreement:Q", title="disagreement", axis=alt.Axis(format="%", tickCount=5)),
            y=alt.Y(
                "confidence:Q", title="confidence", scale=alt.Scale(zero=False), axis=alt.Axis(format="%", tickCount=5)
            ),
            color=_kind_color(alt, alt.Legend(orient="top", title=None, columns=3)),
            tooltip=[
                alt.Tooltip("item:N", title="item"),
                alt.Tooltip("kind:N", title="reason"),
                alt.Tooltip("disagreement:Q", title="disagreement", format=".0%"),
                alt.Tooltip("confidence:Q", title="confidence", format=".0%"),
            ],
        )
    )
    some = f" A random {len(facts['map']):,} of {facts['items']:,} items." if len(facts["map"]) >= DOTS else ""
    return Chart(
        charts.spec(chart, 280, opens=("items", "item")),
        "A map of the items",
        "Top left: everybody agrees and the label is sure. Right and low: hard items. Right but high: the method "
        f"sides with those it trusts.{some}",
        f"Scatter of disagreement against confidence of {len(facts['map']):,} items.",
    )


def _groups(facts: Facts) -> Chart:
    alt = charts.altair()
    rows = [
        {
            "column": g["column"],
            "effect": max(g["effect"] or 0.0, 0.0),
            "p": g["p_value"],
            "word": "more than chance" if g["significant"] else "could be chance",
        }
        for g in facts["groups"]
    ]
    chart = (
        alt.Chart(charts.data(rows))
        .mark_bar()
        .encode(
            x=alt.X("effect:Q", title="of the disagreement", axis=alt.Axis(format=".1%", tickCount=4)),
            y=alt.Y("column:N", title=None, sort=None),
            color=alt.Color(
                "word:N",
                scale=alt.Scale(domain=["more than chance", "could be chance"]),
                legend=alt.Legend(orient="top", title=None),
            ),
            tooltip=[
                alt.Tooltip("column:N", title="groups by"),
                alt.Tooltip("effect:Q", title="share", format=".2%"),
                alt.Tooltip("p:Q", title="p-value", format=".3g"),
            ],
        )
    )
    sure = [g for g in facts["groups"] if g["significant"]]
    return Chart(
        charts.spec(chart, charts.rows_high(len(rows)) + 20),
        "Do groups see things differently?",
        (
            f"By {', '.join(g['column'] for g in sure)}, groups of annotators disagree more than people dealt out at "
            "random would."
            if sure
            else "No: by whatever is known of them, groups disagree no more than people dealt out at random would."
        ),
        "Share of disagreement between groups: "
        + ", ".join(f"{row['column']} {percent(row['effect'], 1)} (p {row['p']:.2g})" for row in rows)
        + ".",
    )
