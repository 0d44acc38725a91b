"""Methods: which one predicts hidden labels best, and the items whose label depends on the method."""

from __future__ import annotations

import warnings

import numpy as np

from dissensus.common.formatting import Share, format_count, format_percent
from dissensus.common.types import IntArray
from dissensus.evaluation import paired_bootstrap
from dissensus.exceptions import ConvergenceWarning, DataError
from dissensus.models.base import arg_max, methods
from dissensus.questions.compare import MIN_HELD_OUT_LABELS, Comparison, compare, find_suitable_methods
from dissensus.report import charts
from dissensus.report.blocks import ITEM_COLUMNS, ChartBlock, TableBlock, TableColumn, TextBlock
from dissensus.report.section import Blocks, Facts, Finding, Findings, Section, sections
from dissensus.report.study import Study, extract_attributes, format_shown_count, to_plain
from dissensus.table.kinds import CLASS_KINDS, KIND_DESCRIPTIONS

MAX_LISTED_ITEMS = 200  # items in the table
TIED_TITLE, WORSE_TITLE = "best, or tied with the best", "worse"


class BestMethodCard(Finding):
    """A statement of how well the used method predicts hidden labels."""

    template = "{ranking}"
    method: str
    best: str
    tied: bool  # The chosen method is the best one or tied with it.
    n_methods: int
    n_hidden: int  # number of labels that were hidden and predicted
    example = {"method": "consensus", "best": "mace", "n_methods": 13}

    @property
    def ranking(self) -> str:
        if self.n_hidden < MIN_HELD_OUT_LABELS:
            return "There are too few labels to tell which method predicts hidden labels best."
        if self.tied:
            return f"The method {self.method} predicts hidden labels as well as the best of {self.n_methods} methods."
        return f"Of {self.n_methods} methods, {self.best} predicts hidden labels best, better than {self.method}."


class LabelsDependOnMethod(BestMethodCard):
    template = "The labels of {contested:0} of the items depend on the method. {ranking}"
    contested: Share


class BetterByGold(Finding):
    template = (
        "By gold, {better_method} is right more often than {method}, by {points:.1f} percentage points ({low:.1f} to "
        "{high:.1f})."
    )
    advice = "Consider the method {better_method}."
    better_method: str
    method: str
    points: float  # percentage points
    low: float
    high: float
    example = {"better_method": "consensus", "method": "majority-vote", "points": 3.0, "low": 1.0, "high": 5.0}


@sections.register("methods", title="Methods", summary="Which method suits these labels, and does it matter?", place=30)
class MethodsSection(Section):
    """Show a comparison of methods without gold, and the labels that depend on the method."""

    kinds = tuple(KIND_DESCRIPTIONS)

    def applies(self, study: Study) -> bool:
        return bool((study.labels_per_item > 1).any())

    def collect(self, study: Study) -> Facts:
        try:
            found = _compare_methods(study)
        except DataError as error:
            return {"failed": str(error)}
        facts: Facts = {
            "method": study.method,
            **extract_attributes(found, "best", "tied", "n_hidden"),
            "verdict": found.verdict(),
            "unit": found.measure.unit,
            "sampled_items": None if found.sampled_items is None else found.sampled_items.size,
            "methods": [
                extract_attributes(one, "method", "score", "behind", "tied", "accuracy")
                | {"seconds": to_plain(one.seconds, 2)}
                for one in found
            ],
            "failed_methods": found.failed,
        }
        if study.table.kind not in CLASS_KINDS:
            return facts
        items = np.arange(study.table.n_items) if found.sampled_items is None else found.sampled_items
        labels = _infer_labels_by_method(study, found)
        matrix = np.stack(list(labels.values()))  # (methods, items)
        return facts | {
            "simplest_suffices": found.simplest_suffices,
            "by_gold": _find_best_by_gold(study, labels, items),
            "items": items.size,
            "contested": (matrix != matrix[0]).any(axis=0).sum(),
            "contested_items": _list_contested_items(study, matrix, items),
        }

    def findings(self, facts: Facts) -> Findings:
        if "failed" in facts:
            return
        about: Facts = {key: facts[key] for key in ("method", "best", "n_hidden")}
        about |= {"tied": facts["method"] in facts["tied"], "n_methods": len(facts["methods"])}
        if "contested" not in facts:
            if facts["n_hidden"] >= MIN_HELD_OUT_LABELS:
                yield BestMethodCard(**about)
            return
        yield LabelsDependOnMethod(**about, contested=Share(facts["contested"] / max(facts["items"], 1)))
        if (gold := facts["by_gold"]) is not None:
            points, low, high = (100 * gold["ahead"][key] for key in ("value", "low", "high"))
            yield BetterByGold(better_method=gold["method"], method=facts["method"], points=points, low=low, high=high)

    def draw(self, facts: Facts) -> Blocks:
        if "failed" in facts:
            yield TextBlock(f"The methods could not be compared: {facts['failed']}")
            return
        yield make_ranking_chart(facts)
        if any(one["accuracy"] for one in facts["methods"]) and "contested" in facts:
            yield _make_accuracy_chart(facts)
        if contested := facts.get("contested_items"):
            names = [one["method"] for one in facts["methods"]]
            rows = [one | {"by_label": _list_methods_by_label(names, one["labels"])} for one in contested]
            yield TableBlock.from_rows(
                "contested",
                "Items whose label depends on the method",
                f"{facts['contested']:,} of {facts['items']:,} items, those with most disagreement first"
                f"{format_shown_count(contested, facts['contested'], 'are listed', '; ')}.",
                ITEM_COLUMNS | {"by_label": TableColumn("label", "long", note="with the methods that infer it")},
                rows,
                page=5,
            )
        for name, why in facts["failed_methods"].items():
            yield TextBlock(f"The method {name} could not be fitted: {why}")


def _compare_methods(study: Study) -> Comparison:
    """Compare the usual methods and the one that was used, as `dissensus evaluate` does."""
    names = list(study.methods or find_suitable_methods(study.table))
    chosen = None if not study.methods and study.method in names else dict.fromkeys([*names, study.method])
    return compare(
        study.table,
        chosen,
        gold=None if study.table.kind == "pairs" else study.gold,
        seed=study.seed,
        on_fit=lambda method, done, of: study.on_step(f"comparing methods: {method}, {done} of {of} fits done"),
    )


def _infer_labels_by_method(study: Study, found: Comparison) -> dict[str, IntArray]:
    """Return the labels that each method infers for the compared items, the best method first."""
    part = (
        study.table if found.sampled_items is None else study.table.select(items=study.table.items[found.sampled_items])
    )
    labels = {}
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        for one in found:
            study.on_step(f"comparing methods: labels of {one.method}")
            model = study.fitted if part is study.table and one.method == study.method else one.model
            model = model or methods[one.method]().fit(part)
            labels[one.method] = arg_max(model.posterior_, model.items_, model.classes_, model.tie_seed_)
    return labels


def _find_best_by_gold(study: Study, labels: dict[str, IntArray], items: IntArray) -> Facts | None:
    """Return the method that is right most often if it is significantly better than the used one, else None."""
    if study.gold is None or study.method not in labels:
        return None
    gold = study.gold[items]
    known = gold >= 0
    if not known.any():
        return None
    right = {name: (given[known] == gold[known]).astype(float) for name, given in labels.items()}
    best = max(right, key=lambda name: float(right[name].mean()))
    ahead = paired_bootstrap(right[best], right[study.method], seed=study.seed).mean
    return {"method": best, "ahead": ahead} if ahead.low > 0 else None


def _list_contested_items(study: Study, matrix: IntArray, chosen: IntArray) -> list[Facts]:
    """Return the items for which the methods infer the most different labels."""
    where = np.flatnonzero((matrix != matrix[0]).any(axis=0))
    kinds = np.count_nonzero(np.diff(np.sort(matrix[:, where], axis=0), axis=0), axis=0)
    minority = np.count_nonzero(matrix[:, where] != matrix[0, where], axis=0)
    order = where[np.lexsort((-minority, -kinds))][:MAX_LISTED_ITEMS]
    return [
        study.describe_item(int(chosen[i])) | {"labels": [study.classes[k] for k in matrix[:, i].tolist()]}
        for i in order.tolist()
    ]


def _list_methods_by_label(methods: list[str], labels: list[str]) -> list[str]:
    """Return one line per label of an item, with the methods that infer it; the most frequent label comes first."""
    groups: dict[str, list[str]] = {}
    for method, label in zip(methods, labels, strict=True):
        groups.setdefault(label, []).append(method)
    ordered = sorted(groups.items(), key=lambda group: -len(group[1]))
    return [f"{label}: {', '.join(names)}" for label, names in ordered]


def make_ranking_chart(facts: Facts) -> ChartBlock:
    """Draw how far each method is behind the best one, with intervals."""
    rows = [
        {"method": one["method"], **one["behind"], "word": TIED_TITLE if one["tied"] else WORSE_TITLE}
        for one in facts["methods"]
    ]
    x = charts.make_quantity_axis("low", "difference to the best method")
    color = charts.make_color_encoding("word", [TIED_TITLE, WORSE_TITLE], columns=1)
    return ChartBlock(
        charts.make_interval_chart(rows, "method", x, charts.make_interval_tooltip("behind", ".4f"), color=color),
        "Which method predicts hidden labels best?",
        f"Each method predicts {format_count(facts['n_hidden'], 'label')} that were hidden from it. Horizontal axis: "
        f"difference to the best method ({facts['unit']}); further left is better. Lines are 95 % intervals.",
        "Methods from the best: " + ", ".join(f"{row['method']} {row['value']:.3f} behind" for row in rows) + ".",
    )


def _make_accuracy_chart(facts: Facts) -> ChartBlock:
    rows = [{"method": one["method"], **one["accuracy"]} for one in facts["methods"] if one["accuracy"]]
    x = charts.make_quantity_axis("low", "right, by gold", charts.SHARE_FORMAT, scale={"zero": False})
    return ChartBlock(
        charts.make_interval_chart(rows, "method", x, [("value:Q", "right", ".1%")]),
        "Which method is right most often?",
        "Horizontal axis: share of the items with gold labels that are right; lines are 95 % intervals.",
        "Accuracy: " + ", ".join(f"{row['method']} {format_percent(row['value'], 1)}" for row in rows) + ".",
    )
