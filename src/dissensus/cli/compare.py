"""`dissensus compare`: which method suits these labels, with or without gold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dissensus.cli import options, show
from dissensus.cli.errors import say
from dissensus.cli.options import Gold, Source, option
from dissensus.exceptions import BadParameter

if TYPE_CHECKING:
    from dissensus.evaluation import Estimate
    from dissensus.questions.compare import Comparison
    from dissensus.table.annotations import Annotations

SIMPLE = ("mean", "median", "votes", "win-rate", "medoid")  # methods of `questions.scoring`, which a help need not load


def compare(
    *,
    methods: list[str] | None = option(
        None,
        "Only these; left out, every quick one that can take the table; all: slow ones too. Repeatable.",
        "--methods",
        "-m",
        metavar="A,B,…",
    ),
    gold: Gold,
    share: float = option(0.2, "Of the annotations, hidden in each split."),
    splits: int = option(3, "Random splits.", min=1),
    resamples: int = option(1000, "Of the items, for intervals and tests.", min=1),
    limit: int = option(40_000, "Annotations at most; of a larger FILE, a random part of the items.", min=1),
    seed: int | None = options.SEED,
    source: Source,
) -> None:
    """Part of the annotations is hidden, every method is fitted to the rest and says what it expects of the hidden
    ones: log-likelihood is the mean log probability of what they were; of numbers and texts it is the error or the
    distance. Methods that a paired bootstrap over items cannot tell apart from the best are marked. With --gold,
    accuracy stands beside it (F1 of spans, Jaccard index of sets, error of numbers).

    Example: dissensus compare labels.csv --gold gold.csv

    Example: dissensus compare labels.csv --methods majority-vote,dawid-skene,glad
    """
    names = _check_names(methods)
    tables = source.read(gold=gold.gold)

    def contest(table: Annotations, question: str | None) -> Comparison:
        from dissensus.questions.compare import compare

        table = gold.include(table, None)
        known = gold.read(table)
        scores: dict[str, float] = {}
        with show.waiting(f"comparing the methods on {source.title(question)}") as bar:

            def on_fit(method: str, done: int, total: int) -> None:
                best = f"; best so far: {max(scores, key=scores.__getitem__)}" if scores else ""
                bar.tell(f"fitting {method}: {done} of {total} fits done{best}", done, total)

            result = compare(
                table, names, gold=known, share=share, splits=splits, resamples=resamples, limit=limit,
                seed=seed or 0, on_fit=on_fit, on_result=scores.__setitem__,
            )  # fmt: skip
        for name, why in result.failed.items():
            say(f"warning: {name} is left out: {why}")
        return result

    settings: dict[str, Any] = {"share": share, "splits": splits, "limit": limit, "seed": seed or 0}
    source.print_each(options.answer_each(tables, contest), _show, _facts, **settings)


def _check_names(methods: list[str] | None) -> Any:
    """The names; a wrong one should not wait for the file."""
    if not methods or methods == ["all"]:
        return methods[0] if methods else None
    from dissensus.models.base import methods as registry

    names = [name.strip() for given in methods for name in given.split(",") if name.strip()]
    for name in names:
        if name not in SIMPLE:
            registry.entry(name)
    if not names:
        raise BadParameter("--methods names none; leave it out, or give names with commas between them.")
    if len(set(names)) < len(names):
        raise BadParameter(f"--methods names {next(n for n in names if names.count(n) > 1)} twice.")
    return names


def _facts(result: Comparison) -> dict[str, Any]:
    facts = {"hidden_annotations": result.hidden, "best": result.best, "tied_with_best": result.tied}
    return facts | {"verdict": result.verdict(), "methods": result.rows(), "failed": result.failed}


def _show(title: str, result: Comparison) -> None:
    measure = result.measure
    worst = max(result.contestants[-1].behind.value, 1e-12)
    rows = []
    for one in result:
        behind = one.behind.value
        mark = "≈ best" if one.tied and behind else show.bar(behind / worst, 10)
        score = result.shown(one.score).value
        name = f"{one.method} (yardstick)" if one.method in result.yardsticks else one.method
        cells = [name, f"{score:z.4f}", _with_half_width(one.behind, 4) if behind else "best"]
        unit = (100, " %") if measure.sign > 0 else (1, "")
        accuracy = [] if one.accuracy is None else [_with_half_width(one.accuracy, 1, unit[0]) + unit[1]]
        rows.append((*cells, mark, *accuracy, f"{one.seconds:.2f}"))
    gold = [measure.gold.replace("_", " ")] if result.contestants[0].accuracy is not None else []
    columns = ["method", measure.title, "behind the best", "", *gold, "seconds"]
    numbers = (measure.title, "behind the best", *gold, "seconds")
    show.table(show.clean(title), columns, rows, numbers=numbers, unbroken=("method",))
    show.text(
        f"{measure.said} {show.count(result.hidden, 'hidden annotation')} ({show.count(result.splits, 'split')}, "
        f"{show.percent(result.share)} each); closer to 0 is better. ±: 95 %, over items, of each method alone. ≈: not "
        "to be told apart from the best, once it is counted how many methods are tried. It judges how well labels are "
        "predicted, not how often the truth is found."
        + " Accuracy counts t tied classes as 1/t each; `aggregate` draws one of them."
        * (gold == ["accuracy"])
    )
    show.line(result.verdict())


def _with_half_width(estimate: Estimate, digits: int, unit: float = 1) -> str:
    if estimate.value == estimate.high > estimate.low:
        return f"{unit * estimate.value:.{digits}f} (from {unit * estimate.low:.{digits}f})"
    half_width = (estimate.high - estimate.low) / 2
    return f"{unit * estimate.value:.{digits}f} ± {unit * half_width:.{digits}f}"
