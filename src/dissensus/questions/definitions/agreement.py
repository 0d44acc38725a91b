"""The question `agreement`: how much annotators agree beyond chance, and which pairs agree most."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, ClassVar, Literal

from dissensus.common.formatting import Count, Share, format_interval, format_number, format_share, shorten_name
from dissensus.common.parameters import param
from dissensus.questions import findings as found
from dissensus.questions.base import Finding, Question, Table, questions
from dissensus.questions.exceptions import NoPairs

N_SHOWN_PAIRS = 5  # number of pairs with the most agreement, and of pairs with the least agreement
MIN_ITEMS_FOR_VERDICT = 5  # minimum number of items with two annotators for an interval and a verdict
MIN_AC1_EXCESS = 0.2  # minimum difference between AC1 and κ for reporting skewed classes
COEFFICIENT_TITLES = {
    "mean_difference": "two labels of an item differ by",
    "icc": "intraclass correlation of single labels",
    "icc_of_mean": "intraclass correlation of mean labels",
    "percent": "two annotators of an item agree",
    "krippendorff_alpha": "Krippendorff's α",
    "fleiss_kappa": "Fleiss' κ",
    "gwet_ac1": "Gwet's AC1",
    "exact_f1": "F1 of exactly equal spans",
    "overlap_f1": "F1 of overlapping spans",
    "unitizing_alpha": "Krippendorff's uα of units (2016)",
    "jaccard_alpha": "Krippendorff's α, Jaccard distance",
    "masi_alpha": "Krippendorff's α, MASI distance",
    "words_alpha": "Krippendorff's α, edit distance of words",
}
LABEL_TYPES_WITHOUT_SCALE = ("spans", "sets", "objects")  # label types
# Label type → its only scale
FIXED_SCALES = {"numbers": "interval"} | dict.fromkeys(LABEL_TYPES_WITHOUT_SCALE, "nominal")
KAPPA_WEIGHTS = {"nominal": "none", "ordinal": "linear", "interval": "quadratic"}
Scale = Literal["nominal", "ordinal", "interval"]


@questions.register("agreement", summary="How far do the annotators agree, beyond what chance would give?")
class Agreement(Question):
    """Any number of annotators may have labelled any of the items.

    Intervals are bootstrap intervals over items.

    Example: dissensus describe labels.csv --measures --scale ordinal --classes low,middle,high --pairs
    """

    kinds = ("classes", "graded", "numbers", "pairs", "sets", "objects", "spans")
    json_options: ClassVar[tuple[str, ...]] = ("resamples", "seed", "level")
    progress_text = "resampling"
    level = 0.95

    scale: Scale | None = param(
        None, "whether classes are names, ordered steps or numbers; by default determined by the label type"
    )
    pairs: bool = param(False, "add the pairs of annotators that agree most and least; with --json, all pairs")
    least: int = param(20, "minimum number of items that both annotators of a pair labelled", low=1)
    resamples: int = param(1000, "number of bootstrap resamples of the items for the intervals", low=0)
    seed: int = param(0, "seed of the resamples", low=0)

    def prepare(self, table: Any) -> None:
        if self.pairs and table.kind in LABEL_TYPES_WITHOUT_SCALE:
            raise NoPairs(kind=table.kind)

    def compute(self, table: Any, *, progress: Any) -> dict[str, Any]:
        import numpy as np

        from dissensus.evaluation.distances import agreement_for_label_type

        scale = FIXED_SCALES.get(table.kind) or self.scale or ("ordinal" if table.kind == "graded" else "nominal")
        values = None
        if scale != "nominal" and table.kind != "numbers" and not (scale == "ordinal" and _has_declared_order(table)):
            with suppress(ValueError):  # `agreement_for_label_type` raises the error if the scale needs numbers
                values = [float(name) for name in table.classes]  # positions of the classes
        coefficients = agreement_for_label_type(
            table, scale=scale, values=values, level=self.level, resamples=self.resamples, seed=self.seed,
            on_step=lambda step, _: progress("resampling", step, self.resamples),
        )  # fmt: skip
        facts: dict[str, Any] = {"scale": scale, "items": table.n_items, "annotators": table.n_annotators}
        if table.kind == "spans":
            facts["documents"] = int(table.sequences.documents.size)
        if table.kind not in LABEL_TYPES_WITHOUT_SCALE:
            if table.weight is not None and table.kind != "numbers":  # `agreement_for_label_type` has warned
                table = dataclasses.replace(table.select(rows=table.weight > 0), weight=None)
            facts["items_with_two_ratings"] = int((table.annotators_per_item > 1).sum())
            if table.kind != "numbers":
                order = range(table.n_classes) if values is None else np.argsort(values, kind="stable")
                facts["classes"] = [str(table.classes[k]) for k in order]
        facts["coefficients"] = {
            name: {"value": one.value, "low": one.low, "high": one.high} for name, one in coefficients.items()
        }
        return facts | (self._compare_pairs(table, scale, values) if self.pairs else {})

    def _compare_pairs(self, table: Any, scale: str, values: list[float] | None) -> dict[str, Any]:
        import numpy as np

        from dissensus.common.frames import columns_to_frame
        from dissensus.evaluation import cohen_kappas, concordances

        weights: Any = "concordance" if table.kind == "numbers" else KAPPA_WEIGHTS[scale]
        if table.kind == "numbers":
            compared = concordances(table, min_shared=self.least)
        else:
            compared = cohen_kappas(table, min_shared=self.least, weights=weights, values=values)
        # Pairs with an undefined κ come last
        best = np.lexsort((-compared.shared, -np.nan_to_num(compared.kappa, nan=-np.inf)))
        rows = columns_to_frame({name: column[best] for name, column in vars(compared).items()}, "pyarrow").to_pylist()
        return {"least": self.least, "weights": weights, "pairs": rows}

    def to_json(self, facts: dict[str, Any]) -> dict[str, Any]:
        return facts

    def findings(self, facts: dict[str, Any]) -> Iterator[Finding]:
        rows, scale = [], facts["scale"]
        for name, estimate in facts["coefficients"].items():
            write = format_share if name == "percent" else format_number
            has_interval = (
                estimate["low"] == estimate["low"]
                and facts.get("items_with_two_ratings", MIN_ITEMS_FOR_VERDICT) >= MIN_ITEMS_FOR_VERDICT
            )
            bounds = format_interval(estimate["low"], estimate["high"], write) if has_interval else "–"
            note = f"{scale} scale" if name == "krippendorff_alpha" and scale != "nominal" else ""
            rows.append(
                (
                    COEFFICIENT_TITLES[name],
                    write(estimate["value"]) if estimate["value"] == estimate["value"] else "–",
                    bounds,
                    note,
                )
            )
        yield Table(("", "value", "95 % interval", ""), rows, numbers=("value", "95 % interval"))
        if "documents" in facts:
            yield found.SpanAgreementExplained()
            return
        if "krippendorff_alpha" in facts["coefficients"]:
            yield from _describe_coefficients(facts)
        if "pairs" in facts:
            yield _tabulate_pairs(facts)


def _has_declared_order(table: Any) -> bool:
    """Return whether the order of the classes was declared; undeclared classes are sorted by name."""
    names = table.classes.tolist()
    return bool(table.kind == "graded" or names != sorted(names))


def _describe_coefficients(facts: dict[str, Any]) -> Iterator[Finding]:
    coefficients, shared = facts["coefficients"], facts["items_with_two_ratings"]
    alpha = coefficients["krippendorff_alpha"]
    if alpha["value"] != alpha["value"]:
        yield found.AgreementUndefined()
        return
    if facts["scale"] == "ordinal":
        yield found.ClassOrder(classes=tuple(facts["classes"]))
    if shared < MIN_ITEMS_FOR_VERDICT:
        yield found.TooFewSharedItems(n=Count(shared))
        return
    low, high = (alpha[end] if alpha[end] == alpha[end] else alpha["value"] for end in ("low", "high"))
    rules = (
        ("below chance", high < 0), ("chance", low <= 0), ("good", low >= 0.8), ("fair", low >= 0.667),
        ("undecided", high >= 0.667), ("poor", True),
    )  # fmt: skip
    agree = Share(coefficients["percent"]["value"]) if "percent" in coefficients else None
    yield found.AgreementBeyondChance(percent=agree, verdict=next(name for name, holds in rules if holds))
    from dissensus.table.names import find_spelling_variants

    if find_spelling_variants(facts.get("classes", ())):
        yield found.SeveralSpellings(effect=", which counts as disagreement")
    if "gwet_ac1" in coefficients:
        excess = coefficients["gwet_ac1"]["value"] - max(coefficients["fleiss_kappa"]["value"], 0)
        if excess > MIN_AC1_EXCESS:
            yield found.SkewedClasses()
    if single := facts["items"] - shared:
        yield found.ItemsLabelledOnce(n=single, items=facts["items"])


def _tabulate_pairs(facts: dict[str, Any]) -> Finding:
    defined = [pair for pair in facts["pairs"] if pair["kappa"] == pair["kappa"]]
    if not defined:
        return found.NoComparablePair(min_items=facts["least"])
    # Numbers are rarely equal, so a share of equal numbers is not informative
    numbers = facts["weights"] == "concordance"
    rows: list[tuple[str, ...]] = []
    for pair in defined:
        agree = () if numbers else (format_share(pair["agreement"]),)
        kappa = (format_number(pair["kappa"]), format_interval(pair["low"], pair["high"]))
        rows.append(
            (
                shorten_name(pair["first_annotator"]),
                shorten_name(pair["second_annotator"]),
                f"{pair['shared']:,}",
                *agree,
                *kappa,
            )
        )
    weights = "" if facts["weights"] == "none" else f", {facts['weights']} weights"
    measure, coefficients = ("Lin's concordance", ["ρ"]) if numbers else (f"Cohen's κ{weights}", ["agree", "κ"])
    columns = ("annotator", "and", "items", *coefficients, "95 % interval")
    if (between := len(rows) - 2 * N_SHOWN_PAIRS) > 0:
        rows[N_SHOWN_PAIRS:-N_SHOWN_PAIRS] = [(f"… {between:,} more",)]
    return Table(columns, rows, f"Agreement of pairs of annotators: {measure}", numbers=columns[2:])
