"""What `dissensus aggregate` says of labels that are no classes: numbers, pairs, sets and objects."""

from __future__ import annotations

import copy
import time
from pathlib import Path
from typing import Any

import numpy as np

from dissensus.cli import show
from dissensus.cli.results import Result, fit_facts, fit_with_bar
from dissensus.evaluation import bootstrap
from dissensus.exceptions import BadParameter
from dissensus.models.base import Aggregator
from dissensus.models.numbers import NumberModel
from dissensus.models.saving import save
from dissensus.table.annotations import Annotations
from dissensus.table.io import write_frame

ROWS_SHOWN = 10  # things or items
ANNOTATORS_SHOWN = 5  # at either end


def fit(model: Aggregator, table: Annotations, gold: Any, known: Any, text: str) -> Result:
    """Fit to a table; `gold` (I,) is for the summary only, `known` for the fit."""
    seconds = fit_with_bar(model, table, text, known)
    return Result(model, summarise(model, table, gold, seconds))


def score(model: Aggregator, table: Annotations, gold: Any, text: str) -> Result:
    """A fitted model that speaks of another table's items."""
    if not hasattr(model, "answers_for"):
        raise BadParameter("--model with pairs: scores are of things, not of new items; fit all comparisons together.")
    began = time.perf_counter()
    with show.waiting(text):
        scored = copy.copy(model)
        vars(scored).update(model.answers_for(table))
        scored.items_ = table.items
        scored.item_total_ = np.diff(table.item_ptr).astype(np.float64)
    return Result(scored, summarise(scored, table, gold, time.perf_counter() - began), fitted=False)


def summarise(model: Aggregator, table: Annotations, gold: Any, seconds: float) -> dict[str, Any]:
    """The summary of one answer."""
    about = {
        "kind": table.kind,
        "annotations": table.n_annotations,
        "items": table.n_items,
        "annotators": table.n_annotators,
        **fit_facts(model, seconds),
    }
    if hasattr(model, "confidence_"):
        return about | _about_answers(model, gold)
    if not isinstance(model, NumberModel):
        _, left, tie = model.crowd_answering_  # type: ignore[attr-defined]
        return about | {
            "things": len(model.things_),  # type: ignore[attr-defined]
            "favours_left": float(left),
            "calls_ties": float(tie),
            "ranking": model.to_frame("things", "pyarrow").to_pylist(),  # type: ignore[arg-type]
        }
    quantiles = np.quantile(model.values_, [0, 0.5, 1]).tolist()
    width = model.interval_[:, 1] - model.interval_[:, 0]
    about |= {
        "values": dict(zip(("min", "median", "max"), quantiles, strict=True)),
        "interval_width": float(width.mean()),
        "dependence": model.dependence_,
    }
    return about if gold is None else about | {"gold": _against(model, gold)}


def _about_answers(model: Any, gold: Any) -> dict[str, Any]:
    """How sure answers are that are sets or objects, how often each option is in them, and how many are right."""
    about: dict[str, Any] = {"mean_confidence": float(model.confidence_.mean()), "dependence": model.dependence_}
    if hasattr(model, "options_"):
        about["options"] = dict(zip(map(str, model.options_), model.answer_.sum(axis=0).tolist(), strict=True))
    if gold is not None and (gold >= 0).any():
        right = bootstrap((model.predict() == model.classes_[gold])[gold >= 0])
        about["gold"] = {
            "items": int((gold >= 0).sum()),
            "accuracy": right.value,
            "accuracy_low": right.low,
            "accuracy_high": right.high,
        }
    return about


def _against(model: NumberModel, gold: Any) -> dict[str, Any]:
    """How good values are: mean absolute error with its interval, correlation, how often the interval holds."""
    known = np.flatnonzero(~np.isnan(gold))
    if not known.size:
        return {"items": 0, "mean_absolute_error": None}
    value, truth = model.values_[known], gold[known]
    error = bootstrap(np.abs(value - truth))
    inside = (truth >= model.interval_[known, 0]) & (truth <= model.interval_[known, 1])
    spread = known.size > 1 and value.std() > 0 and truth.std() > 0
    return {
        "items": int(known.size),
        "mean_absolute_error": error.value,
        "mean_absolute_error_low": error.low,
        "mean_absolute_error_high": error.high,
        "correlation": float(np.corrcoef(value, truth)[0, 1]) if spread else None,
        "covered": float(inside.mean()),
    }


def write(result: Result, folder: Path, suffix: str) -> None:
    """The tables of one answer, and its model where it was fitted here."""
    folder.mkdir(exist_ok=True)
    more = {"things_": "things", "options_": "confusions"}
    for name in ["items", "annotators", *(table for key, table in more.items() if hasattr(result.model, key))]:
        write_frame(result.model.to_frame(name, "pyarrow"), folder / f"{name}.{suffix}")  # type: ignore[arg-type]
    if result.fitted:
        save(result.model, folder)


def print_result(result: Result, title: str, *, preview: bool) -> None:
    """The summary for people; with `preview` also the first items of numbers."""
    about, model = result.summary, result.model
    show.line(
        f"{show.clean(title)}: {show.count(about['annotations'], 'annotation')} of {show.count(about['items'], 'item')}"
    )
    end = "converged" if about["converged"] else "did not converge"
    show.line(f"{about['method']} {end} after {about['passes']:,} passes in {about['seconds']:.1f} s.")
    if isinstance(model, NumberModel):
        _print_numbers(about, model, preview)
    elif "mean_confidence" in about:
        _print_answers(about, model, preview)
    else:
        _print_ranking(about)
    _print_annotators(model)


def _print_numbers(about: dict[str, Any], model: NumberModel, preview: bool) -> None:
    low, middle, high = (f"{value:,.4g}" for value in about["values"].values())
    show.text(
        f"Values lie between {low} and {high}, median {middle}; their 95 % intervals are "
        f"{about['interval_width']:,.3g} wide on average."
    )
    if (gold := about.get("gold")) is not None and gold["mean_absolute_error"] is not None:
        show.text(
            f"Mean absolute error {gold['mean_absolute_error']:.4g} ({gold['mean_absolute_error_low']:.4g} to "
            f"{gold['mean_absolute_error_high']:.4g}) on the {gold['items']:,} items with a known value; the intervals "
            f"hold {show.percent(gold['covered'])} of them."
        )
    if preview:
        first = model.to_frame("items", "pyarrow").slice(0, ROWS_SHOWN).to_pylist()
        rows = [
            (show.name(row["item"]), f"{row['value']:,.4g}", f"{row['low']:,.4g} to {row['high']:,.4g}")
            for row in first
        ]
        show.table("First items", ("item", "value", "95 % interval"), rows, numbers=("value", "95 % interval"))


def _print_answers(about: dict[str, Any], model: Any, preview: bool) -> None:
    if "options" in about:
        show.bars(("option", "items"), about["options"], about["items"])
    what = "set" if "options" in about else "answer"
    show.text(
        f"Exactly this {what} is right with a probability of {show.percent(about['mean_confidence'])}, on average."
    )
    if (gold := about.get("gold")) is not None:
        show.text(
            f"Accuracy {gold['accuracy']:.4f} ({gold['accuracy_low']:.4f} to {gold['accuracy_high']:.4f}) on the "
            f"{gold['items']:,} items with a known {what}."
        )
    if preview:
        first = model.to_frame("items", "pyarrow").slice(0, ROWS_SHOWN).select(["item", "label", "confidence"])
        rows = [
            (show.name(row["item"]), show.name(row["label"]), show.number(row["confidence"]))
            for row in first.to_pylist()
        ]
        show.table("First items", ("item", what, "confidence"), rows, numbers=("confidence",))


def _print_ranking(about: dict[str, Any]) -> None:
    found = about["ranking"]
    rows: list[tuple[str, ...]] = [
        (
            str(row["rank"]), show.name(row["thing"]), f"{row['score']:+.2f}",
            f"{row['low']:+.2f} to {row['high']:+.2f}", f"{row['rank_low']} to {row['rank_high']}",
            f"{row['comparisons']:,.0f}",
        )
        for row in found
    ]  # fmt: skip
    columns = ("rank", "thing", "score", "95 % interval", "95 % of ranks", "comparisons")
    show.table("Ranking", columns, show.ends(rows, ROWS_SHOWN), numbers=("rank", *columns[2:]))
    best, rest = found[0], [row for row in found[1:] if row["rank_low"] == 1]
    if rest:
        show.text(
            f"{show.name(best['thing'])} has the highest score; {show.count(len(rest), 'other')} cannot be told from "
            "it by these comparisons."
        )
    else:
        show.text(f"{show.name(best['thing'])} is best beyond doubt.")
    if abs(about["favours_left"]) > 0.01:
        side = "left" if about["favours_left"] > 0 else "right"
        odds = float(np.exp(abs(about["favours_left"])))
        show.text(f"What stands {side} is preferred at odds of {odds:.2f} to 1 where both are equally good.")


def _print_annotators(model: Aggregator) -> None:
    if model.annotators_.size < 2:
        return
    frame = model.to_frame("annotators", "pyarrow").to_pylist()
    frame.sort(key=lambda row: -row["reliability"])
    own = [name for name in frame[0] if name not in ("annotator", "annotations", "reliability")]
    rows = [
        (
            show.name(row["annotator"]), f"{row['annotations']:,}", show.number(row["reliability"]),
            *(f"{row[name]:,.3g}" for name in own),
        )
        for row in frame
    ]  # fmt: skip
    columns = ("annotator", "labels", "reliability", *(name.replace("_", " ") for name in own))
    show.table("Most and least reliable", columns, show.ends(rows, ANNOTATORS_SHOWN), numbers=columns[1:])
