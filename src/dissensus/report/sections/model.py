"""Model: the training of a model, its accuracy and calibration, and the items on which it contradicts the crowd.

A prediction for a training item is not independent of its labels. Therefore the model is evaluated on unseen items (out
of fold, held out or without labels) if there are enough, and the page always states which items these are.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from dissensus.common.formatting import Share, format_count, format_percent
from dissensus.common.types import FloatArray
from dissensus.evaluation import bootstrap, confusion_matrix, jensen_shannon, paired_bootstrap
from dissensus.messages import quote_name
from dissensus.report import charts
from dissensus.report.blocks import (
    ITEM_COLUMNS,
    VOTE_COLUMNS,
    ChartBlock,
    KeyFigure,
    KeyFigures,
    TableBlock,
    TableColumn,
    TextBlock,
)
from dissensus.report.calibration import compute_calibration_facts, make_calibration_chart
from dissensus.report.exceptions import TrainedOnOtherClasses, TrainedOnOtherItems
from dissensus.report.section import Blocks, Facts, Finding, Findings, Section, sections
from dissensus.report.study import (
    Study,
    extract_entry,
    format_interval,
    format_shown_count,
    limit_json_size,
    list_largest_shares,
)
from dissensus.table import names as naming

MIN_UNSEEN_ITEMS = 20  # unseen items; if there are fewer, the model is evaluated on its training items
MAX_LISTED_ITEMS = 300  # items in the table
MAX_TABLE_CHARACTERS = 700_000  # JSON characters of the table
MAX_CONFUSION_CLASSES = 15  # most frequent classes in the confusion matrix
EVALUATION_BASIS_PHRASES = {
    "out of fold": "predictions by networks that were trained without the item",
    "not seen": "items that it was not trained on",
    "trained on": "items that it was trained on",
}
LEARNING_CURVES = {  # title of the chart → field of the history → name of the line
    "Training": {"loss": "loss"},
    "Validation": {"cross-entropy": "cross entropy"},
    "Validation scores": {"accuracy": "accuracy", "macro-f1": "macro F1"},
}


class ModelQuality(Finding):
    template = "The model {measure} {right} of the items ({basis_in_words})."
    encoder: str
    objective: str
    right: Share
    reference: Literal["gold", "crowd"]
    basis: str
    example = {"basis": "trained on"}

    @property
    def measure(self) -> str:
        return "is right on" if self.reference == "gold" else "predicts the crowd's label for"

    @property
    def basis_in_words(self) -> str:
        return EVALUATION_BASIS_PHRASES[self.basis]

    @property
    def advice(self) -> str:
        if self.basis != "trained on":
            return ""
        return "It was trained on these labels, so this is too optimistic: evaluate it with cross-validation."


class ModelAgainstMethod(ModelQuality):
    template = "The model {measure} {right} of the items, {comparison} the labels by {method} ({basis_in_words})."
    method: str
    points: float  # difference in accuracy in percentage points
    differs: bool
    example = {"basis": "not seen", "points": -3.0}

    @property
    def comparison(self) -> str:
        if not self.differs:
            return "as many as"
        return f"{abs(self.points):.1f} percentage points {'more' if self.points > 0 else 'fewer'} than"


class ModelAndCrowdDiffer(Finding):
    template = "The model predicts a different class from the crowd for {apart:,} of {compared:,} items."
    table = "model-crowd"
    apart: int
    compared: int
    items_to_review: tuple[str, ...]

    @property
    def listing(self) -> str:
        return ", ".join(self.items_to_review)

    @property
    def advice(self) -> str:
        return "Review these first: {listing} …" if self.apart > 3 else ""


@sections.register(
    "model", title="Model", summary="How good is the trained model, and where does it contradict the crowd?", place=57
)
class ModelSection(Section):
    """Show learning curves, confusion, calibration, and the items on which model and crowd differ most."""

    needs = ("model",)

    def collect(self, study: Study) -> Facts:
        from dissensus.learning.encoders import encoders
        from dissensus.learning.objectives import objectives

        study.on_step("evaluating the model")
        model, (proba, seen) = study.model, _collect_predictions(study)
        taught = model.labelled_ & ~model.held_out_
        return {
            "encoder": encoders.get_name(type(model.encoder_)),
            "objective": objectives.get_name(type(model.objective_)),
            "method": study.method,
            "taught": taught.sum(),
            "held_out": model.held_out_.sum(),
            "items": (seen != "").sum(),
            "of": study.table.n_items,
            "best_epoch": model.best_epoch_,
            "monitor": model.monitor_,
            "history": model.history_,
            **_evaluate_predictions(study, proba, seen),
            **_compare_with_crowd(study, proba, seen),
        }

    def findings(self, facts: Facts) -> Findings:
        if facts["judged"]:
            about: Facts = {key: facts[key] for key in ("encoder", "objective", "reference", "basis")}
            about["right"] = Share(facts["accuracy"]["value"])
            if (ahead := facts["ahead"]) is None:
                yield ModelQuality(**about)
            else:
                differs = ahead["low"] > 0 or ahead["high"] < 0
                yield ModelAgainstMethod(**about, method=facts["method"], points=100 * ahead["value"], differs=differs)
        if facts["items_apart"]:
            first = tuple(one["item"] for one in facts["items_apart"][:3])
            yield ModelAndCrowdDiffer(apart=facts["apart"], compared=facts["compared"], items_to_review=first)

    def draw(self, facts: Facts) -> Blocks:
        epochs, best, by_gold = len(facts["history"]), facts["best_epoch"], facts.get("reference") == "gold"
        kept = f"the weights of epoch {best} are used" if best else "the weights of the last epoch are used"
        numbers = [
            KeyFigure(facts["encoder"], "encoder", "how an item becomes a vector"),
            KeyFigure(facts["objective"], "objective", "how labels supervise it"),
            KeyFigure(f"{facts['taught']:,}", "training items", f"{facts['held_out']:,} were held out"),
            KeyFigure(f"{epochs:,}", "epochs", kept),
        ]
        if facts["judged"]:
            named = "right, by gold" if by_gold else f"same as by {facts['method']}"
            accuracy, error = facts["accuracy"], f"{facts['calibration_error']:.3f}"
            numbers.append(KeyFigure(format_percent(accuracy["value"], 1), named, format_interval(accuracy)))
            if facts["crowd_accuracy"] is not None:
                crowd = format_percent(facts["crowd_accuracy"]["value"], 1)
                numbers.append(KeyFigure(crowd, f"right by {facts['method']}", "on the same items, from their labels"))
            numbers.append(KeyFigure(error, "calibration error", "mean gap of confidence and accuracy"))
        yield KeyFigures(numbers)
        yield TextBlock(_describe_basis(facts))
        for title, lines in LEARNING_CURVES.items():
            if there := {key: name for key, name in lines.items() if facts["history"] and key in facts["history"][0]}:
                yield _make_learning_curve(facts, title, there)
        if facts["judged"]:
            yield _make_confusion_chart(facts)
            right = "right, by gold" if by_gold else "the same as the crowd's label"
            yield make_calibration_chart(facts["bins"], subject="the model", right=right)
        if facts["items_apart"]:
            yield _make_disagreement_table(facts)


def _collect_predictions(study: Study) -> tuple[FloatArray, Any]:
    """Return the (I, K) predictions and their (I,) basis; zeros and "" for items that the model does not know.

    Only items with the basis "trained on" were used with their labels in training.
    """
    model, outside, table = study.model, study.out_of_fold, study.table
    if outside is None:
        items, classes, predicted = model.items_, model.classes_, model.proba_
    else:
        items, classes, predicted = outside.items, outside.classes, outside.proba
    at = naming.match_names(table.items, items, "items")
    if (at < 0).all():
        raise TrainedOnOtherItems(item=quote_name(items[0]))
    columns = naming.match_names(classes, table.classes, "classes")
    if (columns < 0).any():
        raise TrainedOnOtherClasses(name=quote_name(classes[columns < 0][0]), classes=table.n_classes)
    proba = np.zeros((table.n_items, table.n_classes))
    there = np.flatnonzero(at >= 0)
    proba[there[:, None], columns[None, :]] = predicted[at[there]]
    if outside is not None:
        return proba, np.where(at >= 0, "out of fold", "")
    seen = np.where(model.held_out_, "held out", np.where(model.labelled_, "trained on", "without labels"))
    return proba, np.where(at >= 0, seen[at], "")


def _evaluate_predictions(study: Study, proba: FloatArray, seen: Any) -> Facts:
    """Return accuracy, confusion and calibration of the predictions, on unseen items if there are enough."""
    by_gold = study.gold is not None and bool(((study.gold >= 0) & (seen != "")).any())
    truth, known = (study.gold, study.gold >= 0) if by_gold else (study.label, study.labels_per_item > 0)
    trained = seen == "trained on"
    rows, basis = known & (seen != "") & ~trained, "not seen"
    if (seen == "out of fold").any():
        basis = "out of fold"
    elif rows.sum() < MIN_UNSEEN_ITEMS:
        rows, basis = known & trained, "trained on"
    if not rows.any():
        return {"judged": 0}
    predicted, truth = proba.argmax(axis=1)[rows], truth[rows]
    right = (predicted == truth).astype(float)
    crowd = (study.label[rows] == truth).astype(float) if by_gold and (study.labels_per_item[rows] > 0).all() else None
    counts = confusion_matrix(truth, predicted, study.table.n_classes)
    most = np.sort(np.argsort(-counts.sum(axis=1), kind="stable")[:MAX_CONFUSION_CLASSES])
    return {
        "judged": rows.sum(),
        "basis": basis,
        "reference": "gold" if by_gold else "crowd",
        "chosen_by": basis == "not seen" and bool((seen[rows] == "held out").any()),
        "accuracy": bootstrap(right, seed=study.seed),
        "crowd_accuracy": None if crowd is None else bootstrap(crowd, seed=study.seed),
        "ahead": None if crowd is None else paired_bootstrap(right, crowd, seed=study.seed).mean,
        "confusion": {
            "classes": [study.classes[k] for k in most],
            "counts": counts[np.ix_(most, most)],
            "items": counts.sum(axis=1)[most],
            "of": study.table.n_classes,
        },
        **compute_calibration_facts(truth if by_gold else study.fitted.posterior_[rows], proba[rows]),
    }


def _compare_with_crowd(study: Study, proba: FloatArray, seen: Any) -> Facts:
    """Return the items on which model and crowd differ most by the Jensen-Shannon divergence."""
    both = np.flatnonzero((seen != "") & (study.labels_per_item > 0))
    distance = jensen_shannon(study.fitted.posterior_[both], proba[both]) / np.log(2)
    order = np.argsort(-distance, kind="stable")[:MAX_LISTED_ITEMS]

    def describe_row(number: int) -> Facts:
        i = int(both[number])
        return study.describe_item_with_votes(i) | {
            "model": list_largest_shares(proba[i], study.classes),
            "crowd": list_largest_shares(study.fitted.posterior_[i], study.classes),
            "seen": str(seen[i]),
            **extract_entry(number, distance=distance),
        }

    return {
        "compared": both.size,
        "apart": (proba[both].argmax(axis=1) != study.label[both]).sum(),
        "items_apart": limit_json_size(map(describe_row, order.tolist()), MAX_TABLE_CHARACTERS),
    }


def _describe_basis(facts: Facts) -> str:
    if not facts["judged"]:
        return "The model cannot be evaluated: none of its items has a gold label or labels by annotators."
    against = "gold labels" if facts["reference"] == "gold" else f"the labels by {facts['method']} (there is no gold)"
    basis = EVALUATION_BASIS_PHRASES[facts["basis"]]
    text = f"Evaluated against {against}: {basis} ({format_count(facts['judged'], 'item')})."
    if facts["basis"] == "trained on":
        text += (
            " The model was trained on these labels, so the results are too optimistic. Cross-validation would predict "
            "each item by a network that was trained without it."
        )
    if facts["chosen_by"]:
        text += " The best epoch was chosen on some of these items, so the results are slightly too optimistic."
    if facts["items"] < facts["of"]:
        text += f" The model has predictions for {facts['items']:,} of the {facts['of']:,} items."
    return text


def _make_learning_curve(facts: Facts, title: str, lines: dict[str, str]) -> ChartBlock:
    history, best = facts["history"], facts["best_epoch"]
    rows = [
        {"epoch": int(entry["epoch"]), "what": name, "value": entry[key]}
        for entry in history
        for key, name in lines.items()
        if entry[key] is not None
    ]
    words, share = list(lines.values()), "accuracy" in lines
    one = len(words) == 1
    x = charts.make_quantity_axis("epoch", "epoch", "d", tickMinStep=1)
    y = charts.make_quantity_axis(
        "value", words[0] if one else None, charts.SHARE_FORMAT if share else "", scale={"zero": False}
    )
    color = charts.make_color_encoding("what", words, legend=not one)
    tips = ["epoch:Q", ("what:N", "curve"), ("value:Q", "value", charts.EXACT_SHARE_FORMAT if share else ".4f")]
    drawn = charts.draw_marks(rows, {"type": "line", "point": len(history) < 30}, tips, x=x, y=y, color=color)
    caption = (
        "Mean loss over the training items after each epoch (horizontal axis)."
        if "loss" in lines
        else "Results on the held-out items after each epoch (horizontal axis)."
    )
    if best:
        drawn += charts.draw_marks([{"epoch": best}], {"type": "rule", "strokeDash": [4, 4]}, x="epoch:Q")
        caption += f" The dashed line marks epoch {best}, the best by {facts['monitor']}."
    last = {row["what"]: row["value"] for row in rows}
    ends = ", ".join(f"{name} {format_percent(last[name], 1) if share else f'{last[name]:.3f}'}" for name in words)
    kept = f"; best epoch {best}" if best else ""
    return ChartBlock(charts.to_spec(drawn), title, caption, f"{title}: after {len(history)} epochs {ends}{kept}.")


def _make_confusion_chart(facts: Facts) -> ChartBlock:
    classes, counts, items, of = (facts["confusion"][key] for key in ("classes", "counts", "items", "of"))
    shares_ = [[n / max(total, 1) for n in line] for line, total in zip(counts, items, strict=True)]
    rows = charts.list_matrix_cells(classes, classes, items=counts, share=shares_)
    truth = "gold" if facts["reference"] == "gold" else "the crowd"
    x = charts.make_name_axis("across", classes, title="class by the model", limit=90, labelAngle=-40)
    y = charts.make_name_axis("down", classes, title=f"class by {truth}", limit=120)
    number, part = ("items:Q", "items", charts.COUNT_FORMAT), ("share:Q", "of the row", charts.EXACT_SHARE_FORMAT)
    tips = [("down:N", truth), ("across:N", "model"), number, part]
    chart = charts.draw_marks(rows, "rect", tips, x=x, y=y, color=charts.make_heat_encoding("share", "of the row"))
    wrong = max((row for row in rows if row["down"] != row["across"]), key=lambda row: row["items"], default=None)
    worst = "The model agrees on all of these items."
    if wrong is not None and wrong["items"]:
        worst = (
            f"The most frequent confusion: {wrong['down']} is predicted as {wrong['across']} {wrong['items']:,} times."
        )
    more = f"; the {len(classes)} most frequent of {of} classes" if len(classes) < of else ""
    return ChartBlock(
        charts.to_spec(chart, max(180, 22 * len(classes) + 60)),
        f"Model against {truth}",
        f"{worst} Colour: share of the items of a row{more}.",
        f"Confusion matrix of {len(classes)} classes. {worst}",
    )


def _make_disagreement_table(facts: Facts) -> TableBlock:
    rows = facts["items_apart"]
    return TableBlock.from_rows(
        "model-crowd",
        "Items on which model and crowd differ most",
        "Predictions from the content of the item, compared with the annotators' labels. If the model is right, the "
        "labels are wrong; if it is not, it needs more training data like these items."
        f"{format_shown_count(rows, facts['compared'])}",
        {
            **ITEM_COLUMNS,
            "model": TableColumn("model", "shares", note="from the content alone"),
            "crowd": TableColumn("crowd", "shares", note=f"from the labels, by {facts['method']}"),
            **VOTE_COLUMNS,
            "distance": TableColumn("difference", "percent", note="0: the same, 100: nothing in common"),
            "seen": TableColumn("basis", "chips", note="whether the model was trained on the item"),
        },
        rows,
        page=10,
    )
