"""Model: what a trained model learnt, how far it can be believed, and where it and the crowd disagree.

What a model says of items that it was trained on is no second opinion. So it is judged on items it has not seen where
there are enough (out of fold, held out, or without labels), and the page always says which these are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dissensus.common.formatting import percent
from dissensus.common.types import BoolArray, FloatArray, IntArray
from dissensus.evaluation import bootstrap, confusion_matrix, jensen_shannon, paired_bootstrap
from dissensus.exceptions import DataError
from dissensus.report import charts
from dissensus.report.blocks import Block, Chart, Column, Number, Numbers, Table, Text
from dissensus.report.calibration import calibration, calibration_chart
from dissensus.report.section import Facts, Finding, Section, sections
from dissensus.report.study import BRIEF, Study, plain, shares, spread, within
from dissensus.table import names as naming

ENOUGH = 20  # items that the model has not seen, from which it is judged by them alone
MOST = 300  # items in the table
SIZE = 700_000  # characters of them
CLASSES = 15  # in the picture of confusions, the most frequent
OUT_OF_FOLD, HELD_OUT, WITHOUT, TRAINED = range(4)
SEEN = ("out of fold", "held out", "without labels", "trained on")
"""How a prediction came about; only of the last did the model see the item's labels."""
BASIS = {
    "out of fold": "by networks that were trained without the item",
    "not seen": "on items that it was not trained on",
    "trained on": "on the items that it was trained on",
}
CURVES = {  # picture → lines
    "Training": {"loss": "loss"},
    "Validation": {"cross-entropy": "cross entropy"},
    "Validation: right": {"accuracy": "accuracy", "macro-f1": "macro F1"},
}


@sections.enter(
    "model", title="Model", summary="What did the model learn, and where does it contradict the crowd?", place=57
)
class ModelSection(Section):
    """Learning curves, confusion, calibration, the items on which model and crowd are furthest apart."""

    def applies(self, study: Study) -> bool:
        """Where a trained model was given."""
        return study.model is not None

    def collect(self, study: Study) -> Facts:
        """See the class."""
        from dissensus.learning.encoders import encoders
        from dissensus.learning.objectives import objectives

        study.on_step("looking at the model")
        model, learnt = study.model, _aligned(study)
        taught = model.teaches_ & ~model.held_out_
        return {
            "encoder": encoders.name_of(type(model.encoder_)),
            "objective": objectives.name_of(type(model.objective_)),
            "method": study.method,
            "taught": int(taught.sum()),
            "held_out": int(model.held_out_.sum()),
            "items": int((learnt.seen >= 0).sum()),
            "of": study.table.n_items,
            "best_epoch": model.best_epoch_,
            "monitor": model.monitor_,
            "history": plain(model.history_),
            **_judged(study, learnt),
            **_apart(study, learnt),
            "columns": {
                "picture": study.picture_column is not None,
                "text": bool(study.text_columns),
                "gold": study.gold is not None,
            },
        }

    def findings(self, facts: Facts) -> list[Finding]:
        """How good it is, by what, and where it contradicts."""
        result = []
        if facts["judged"]:
            right = percent(facts["accuracy"]["value"], 1)
            what = "right on" if facts["reference"] == "gold" else "of the crowd's opinion on"
            text = f"The model ({facts['encoder']}, {facts['objective']}) is {what} {right} of the items"
            if (ahead := facts["ahead"]) is not None:
                points = 100 * ahead["value"]
                sure = ahead["low"] > 0 or ahead["high"] < 0
                how = (
                    f"{abs(points):.1f} points {'more' if points > 0 else 'less'} often than" if sure else "level with"
                )
                text += f", {how} {facts['method']} on its labels"
            flattered = facts["basis"] == "trained on"
            advice = (
                "It saw their labels, which flatters it: train with --folds 5, or hold items out." if flattered else ""
            )
            result.append(Finding(f"{text} ({BASIS[facts['basis']]}).", advice))
        if facts["items_apart"]:
            first = ", ".join(one["item"] for one in facts["items_apart"][:3])
            result.append(
                Finding(
                    f"Model and crowd name different classes for {facts['apart']:,} of {facts['compared']:,} items.",
                    f"Look at {first} …" if facts["apart"] > 3 else "",
                    "note" if facts["apart"] else "good",
                    "model-crowd",
                )
            )
        return result

    def draw(self, facts: Facts) -> list[Block]:
        """Figures, what they rest on, curves, confusion, calibration, items."""
        epochs, best = len(facts["history"]), facts["best_epoch"]
        kept = f"the weights of epoch {best} were kept" if best else "the last epoch's weights were kept"
        numbers = [
            Number(facts["encoder"], "encoder", "how an item becomes a vector"),
            Number(facts["objective"], "objective", "how labels teach it"),
            Number(f"{facts['taught']:,}", "items taught it", f"{facts['held_out']:,} were held out"),
            Number(f"{epochs:,}", "epochs", kept),
        ]
        if facts["judged"]:
            accuracy = facts["accuracy"]
            interval = f"{percent(accuracy['low'], 1)} to {percent(accuracy['high'], 1)}"
            named = "right, by gold" if facts["reference"] == "gold" else f"as {facts['method']} says"
            numbers.append(Number(percent(accuracy["value"], 1), named, interval))
            if facts["crowd_accuracy"] is not None:
                crowd = percent(facts["crowd_accuracy"]["value"], 1)
                numbers.append(Number(crowd, f"right by {facts['method']}", "the same items, from their labels"))
            numbers.append(
                Number(f"{facts['calibration_error']:.3f}", "calibration error", "gap of confidence and share right")
            )
        blocks: list[Block] = [Numbers(numbers), Text(_basis(facts))]
        blocks += [_curve(facts, title, lines) for title, lines in CURVES.items() if _has(facts, lines)]
        if facts["judged"]:
            right = "right, by gold" if facts["reference"] == "gold" else "as the crowd says"
            blocks += [_confusion(facts), calibration_chart(facts["bins"], who="the model", right=right)]
        if facts["items_apart"]:
            blocks.append(_items(facts))
        return blocks


@dataclass(frozen=True)
class Learnt:
    """A model's predictions for the items of a study."""

    proba: FloatArray  # (I, K) in the order of the study's classes; zero where there is none
    seen: IntArray  # (I,) place in SEEN; −1 where the model does not know the item


def _aligned(study: Study) -> Learnt:
    model, outside, table = study.model, study.out_of_fold, study.table
    source = model if outside is None else outside
    items, classes = (model.items_, model.classes_) if outside is None else (outside.items, outside.classes)
    at = naming.match(table.items, items, "items")
    if (at < 0).all():
        raise DataError(
            f"the model was trained on other items, such as {naming.shown(items[0])}; give one that was trained on "
            "items of this table."
        )
    columns = naming.match(classes, table.classes, "classes")
    if (columns < 0).any():
        odd = naming.shown(classes[columns < 0][0])
        raise DataError(f"the model was trained on other classes: {odd} is none of the {table.n_classes} here.")
    proba = np.zeros((table.n_items, table.n_classes))
    there = np.flatnonzero(at >= 0)
    proba[there[:, None], columns[None, :]] = (source.proba_ if outside is None else source.proba)[at[there]]
    if outside is not None:
        return Learnt(proba, np.where(at >= 0, OUT_OF_FOLD, -1))
    seen = np.where(model.held_out_, HELD_OUT, np.where(model.teaches_, TRAINED, WITHOUT))
    return Learnt(proba, np.where(at >= 0, seen[at], -1))


def _judged(study: Study, learnt: Learnt) -> dict[str, Any]:
    """Accuracy, confusion and calibration, on items that the model has not seen where there are enough."""
    by_gold = study.gold is not None and bool(((study.gold >= 0) & (learnt.seen >= 0)).any())
    if by_gold:
        assert study.gold is not None
        truth, known = study.gold, study.gold >= 0
    else:
        truth, known = study.label, study.labels_per_item > 0
    rows, basis = _rows(learnt, known)
    if not rows.any():
        return {"judged": 0}
    said, truth = learnt.proba.argmax(axis=1)[rows], truth[rows]
    right = (said == truth).astype(float)
    crowd = (study.label[rows] == truth).astype(float) if by_gold and (study.labels_per_item[rows] > 0).all() else None
    counts = confusion_matrix(truth, said, study.table.n_classes)
    most = np.sort(np.argsort(-counts.sum(axis=1), kind="stable")[:CLASSES])
    return {
        "judged": int(rows.sum()),
        "basis": basis,
        "reference": "gold" if by_gold else "crowd",
        "chosen_by": bool(basis == "not seen" and study.model.best_epoch_ and (learnt.seen[rows] == HELD_OUT).any()),
        "accuracy": spread(bootstrap(right, seed=study.seed)),
        "crowd_accuracy": None if crowd is None else spread(bootstrap(crowd, seed=study.seed)),
        "ahead": None if crowd is None else spread(paired_bootstrap(right, crowd, seed=study.seed).mean),
        "confusion": {
            "classes": [study.classes[k] for k in most],
            "counts": counts[np.ix_(most, most)].tolist(),
            "items": counts.sum(axis=1)[most].tolist(),
            "of": study.table.n_classes,
        },
        **calibration(truth if by_gold else study.fitted.posterior_[rows], learnt.proba[rows]),
    }


def _rows(learnt: Learnt, known: BoolArray) -> tuple[BoolArray, str]:
    """The items to judge by, and what they are."""
    unseen = known & (learnt.seen >= 0) & (learnt.seen != TRAINED)
    if (learnt.seen == OUT_OF_FOLD).any():
        return unseen, "out of fold"
    if unseen.sum() >= ENOUGH:
        return unseen, "not seen"
    return known & (learnt.seen == TRAINED), "trained on"


def _apart(study: Study, learnt: Learnt) -> dict[str, Any]:
    """The items with labels on which model and crowd are furthest apart, by Jensen-Shannon divergence."""
    both = np.flatnonzero((learnt.seen >= 0) & (study.labels_per_item > 0))
    distance = jensen_shannon(study.fitted.posterior_[both], learnt.proba[both]) / np.log(2)
    order = np.argsort(-distance, kind="stable")[:MOST]

    def about(number: int) -> dict[str, Any]:
        i = int(both[number])
        return {
            "item": study.items[i],
            **({"picture": study.picture(i)} if study.picture_column else {}),
            **({"texts": study.texts(i, BRIEF)} if study.text_columns else {}),
            "model": shares(learnt.proba[i], study.classes),
            "crowd": shares(study.fitted.posterior_[i], study.classes),
            "votes": shares(study.votes[i], study.classes),
            "labels": int(study.labels_per_item[i]),
            **({"gold": study.classes[g] if (g := study.gold[i]) >= 0 else None} if study.gold is not None else {}),
            "distance": plain(distance[number], 3),
            "seen": SEEN[learnt.seen[i]],
        }

    return {
        "compared": int(both.size),
        "apart": int((learnt.proba[both].argmax(axis=1) != study.label[both]).sum()),
        "items_apart": within((about(number) for number in order.tolist()), SIZE),
    }


def _basis(facts: Facts) -> str:
    """What the figures rest on, in words."""
    if not facts["judged"]:
        return "The model cannot be judged here: none of its items has gold or labels."
    against = "gold" if facts["reference"] == "gold" else f"the labels by {facts['method']}, as there is no gold"
    text = f"Judged against {against}, {BASIS[facts['basis']]} ({facts['judged']:,} items)."
    if facts["basis"] == "trained on":
        text += (
            " It saw their labels, so all of this flatters it. `dissensus train --folds 5` predicts each item by a "
            "network that did not; --validation holds items out."
        )
    if facts["chosen_by"]:
        text += " Which epoch to keep was decided by some of them, so this is still a little too good."
    if facts["items"] < facts["of"]:
        text += f" Of the {facts['of']:,} items here, the model knows {facts['items']:,}."
    return text


def _has(facts: Facts, lines: dict[str, str]) -> bool:
    return bool(facts["history"]) and any(key in facts["history"][0] for key in lines)


def _curve(facts: Facts, title: str, lines: dict[str, str]) -> Chart:
    alt = charts.altair()
    there = {key: name for key, name in lines.items() if key in facts["history"][0]}
    rows = [
        {"epoch": int(entry["epoch"]), "what": name, "value": entry[key]}
        for entry in facts["history"]
        for key, name in there.items()
        if entry[key] is not None
    ]
    share = "accuracy" in there
    x = alt.X("epoch:Q", title="epoch", axis=alt.Axis(tickMinStep=1, tickCount=5, format="d"))
    y = alt.Y(
        "value:Q",
        title=None if len(there) > 1 else next(iter(there.values())),
        scale=alt.Scale(zero=False),
        axis=charts.axis(charts.SHARE if share else ""),
    )
    color = charts.color("what", list(there.values()), legend=len(there) > 1)
    tips = charts.tips(("epoch:Q", "epoch"), ("what:N", "of"), ("value:Q", "is", ".1%" if share else ".4f"))
    drawn = alt.Chart(charts.data(rows)).mark_line(point=len(facts["history"]) < 30).encode(
        x=x, y=y, color=color, tooltip=tips
    )  # fmt: skip
    best = facts["best_epoch"]
    if best:
        mark = alt.Chart(charts.data([{"epoch": best}])).mark_rule(strokeDash=[4, 4]).encode(x="epoch:Q")
        drawn = drawn + mark
    last = {name: next(row["value"] for row in reversed(rows) if row["what"] == name) for name in there.values()}
    ends = ", ".join(f"{name} {percent(value, 1) if share else f'{value:.3f}'}" for name, value in last.items())
    if "loss" in there:
        caption = "Mean loss over the items that teach, while learning."
    else:
        caption = "On the items that were held out, after every epoch."
    if best:
        caption += f" Dashed: epoch {best}, which was best by {facts['monitor']}."
    return Chart(
        charts.spec(drawn),
        title,
        caption,
        f"{title}: after {len(facts['history'])} epochs {ends}" + (f"; best epoch {best}." if best else "."),
    )


def _confusion(facts: Facts) -> Chart:
    alt = charts.altair()
    classes, counts, items = (facts["confusion"][key] for key in ("classes", "counts", "items"))
    rows = [
        {"is": is_, "said": said, "items": n, "share": n / max(total, 1)}
        for is_, line, total in zip(classes, counts, items, strict=True)
        for said, n in zip(classes, line, strict=True)
    ]
    truth = "gold" if facts["reference"] == "gold" else "the crowd"
    chart = (
        alt.Chart(charts.data(rows))
        .mark_rect()
        .encode(
            x=alt.X("said:N", title="the model says", sort=classes, axis=alt.Axis(labelAngle=-40, labelLimit=90)),
            y=alt.Y("is:N", title=f"{truth} says", sort=classes, axis=alt.Axis(labelLimit=120)),
            color=charts.heat("share", "of the row"),
            tooltip=charts.tips(
                ("is:N", truth),
                ("said:N", "model"),
                ("items:Q", "items", charts.COUNT),
                ("share:Q", "of the row", ".1%"),
            ),
        )
    )
    wrong = max((row for row in rows if row["is"] != row["said"]), key=lambda row: row["items"], default=None)
    said = "The model never errs here."
    if wrong is not None and wrong["items"]:
        said = f"Most often {wrong['is']} is taken for {wrong['said']}: {wrong['items']:,} times."
    of = facts["confusion"]["of"]
    more = f"; the {len(classes)} most frequent of {of} classes" if len(classes) < of else ""
    return Chart(
        charts.spec(chart, max(180, 22 * len(classes) + 60)),
        f"Model against {truth}",
        f"{said} Colours are shares of a row{more}.",
        f"Confusion matrix of {len(classes)} classes. {said}",
    )


def _items(facts: Facts) -> Table:
    has, rows = facts["columns"], facts["items_apart"]
    cut = f" {len(rows):,} of {facts['compared']:,} are here." if len(rows) < facts["compared"] else ""
    return Table(
        "model-crowd",
        "Where model and crowd disagree most",
        "What the model makes of the item itself, beside what annotators made of it; the furthest apart first. Where "
        f"the model is right, the labels are wrong; where it is not, it has something to learn.{cut}",
        [
            Column("item"),
            *([Column("picture", "picture")] if has["picture"] else []),
            *([Column("text", "long")] if has["text"] else []),
            Column("model", "shares", note="by the item alone"),
            Column("crowd", "shares", note=f"{facts['method']}, by labels"),
            Column("votes", "shares", note="what annotators said"),
            Column("labels", "number"),
            *([Column("gold")] if has["gold"] else []),
            Column("apart", "percent", note="0: the same, 100: nothing in common"),
            Column("prediction", "chips", note="whether the model saw the item's labels"),
        ],
        [
            [
                one["item"],
                *([one["picture"]] if has["picture"] else []),
                *([one["texts"]] if has["text"] else []),
                one["model"],
                one["crowd"],
                one["votes"],
                one["labels"],
                *([one["gold"] or ""] if has["gold"] else []),
                one["distance"],
                [one["seen"]],
            ]
            for one in rows
        ],
        page=10,
    )
