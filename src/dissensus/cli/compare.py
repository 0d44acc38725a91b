"""`dissensus compare`: which method suits these labels, with or without gold."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dissensus.cli import gold as golds
from dissensus.cli import show
from dissensus.cli.errors import about, say
from dissensus.cli.source import Source, takes_table
from dissensus.exceptions import BadParameter

if TYPE_CHECKING:
    from dissensus.evaluation import Estimate
    from dissensus.questions.compare import Comparison, Contestant
    from dissensus.table.annotations import Annotations


@takes_table("--format")
def compare(
    source: Source,
    *,
    methods: Annotated[
        list[str] | None,
        typer.Option(
            "--methods",
            "-m",
            metavar="A,B,…",
            help="Only these; left out, every method that can take the table. Repeatable.",
        ),
    ] = None,
    gold: golds.GoldFile = None,
    gold_item: golds.GoldItem = None,
    gold_label: golds.GoldLabel = None,
    share: Annotated[float, typer.Option("--share", help="Of the annotations, hidden in each split.")] = 0.2,
    splits: Annotated[int, typer.Option("--splits", min=1, help="Random splits.")] = 3,
    resamples: Annotated[int, typer.Option("--resamples", min=1, help="Of the items, for intervals and tests.")] = 1000,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the splits and the resampling.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
) -> None:
    """Rank methods by how well they predict annotations that were hidden from them; no gold is needed.

    Part of the annotations is hidden, every method is fitted to the rest and says what it expects of the hidden ones:
    log-likelihood is the mean log probability of what they were. Methods that a paired bootstrap over items cannot tell
    apart from the best are marked. With --gold, accuracy stands beside it.

    Example: dissensus compare labels.csv --gold gold.csv

    Example: dissensus compare labels.csv --methods majority-vote,dawid-skene,glad
    """
    from dissensus.table.questions import Questions

    names = _check(methods)
    tables = source.read()

    def contest(table: Annotations, title: str) -> Comparison:
        from dissensus.questions.compare import compare

        known = None if gold is None else golds.read(gold, table, gold_item, gold_label)
        with _live(title) as screen:
            result = compare(
                table, names, gold=known, share=share, splits=splits, resamples=resamples, seed=seed,
                on_fit=screen.begin, on_result=screen.done,
            )  # fmt: skip
        for name, why in result.failed.items():
            say(f"warning: {name} is left out: {why}")
        return result

    head: dict[str, Any] = {"file": show.path(source.file), "share": share, "splits": splits, "seed": seed}
    if isinstance(tables, Questions):
        if gold is not None:
            raise BadParameter("--gold is for a file of one question; compare each question by itself.")
        found = {}
        for question, table in tables.items():
            with about(f"question {show.name(question)!r}"):
                found[question] = contest(table, f"question {show.name(question)}")
        if json:
            show.json(head | {"questions": {question: _facts(one) for question, one in found.items()}})
            return
        for question, one in found.items():
            _show(f"{source.file}, question {show.name(question)}", one)
        return
    result = contest(tables, str(source.file))
    if json:
        show.json(head | _facts(result))
    else:
        _show(str(source.file), result)


def _check(methods: list[str] | None) -> list[str] | None:
    """The names; a wrong one should not wait for the file."""
    if not methods:
        return None
    import dissensus.models.methods  # noqa: F401 - registers the methods
    from dissensus.models.base import methods as registry

    names = [name.strip() for given in methods for name in given.split(",") if name.strip()]
    for name in names:
        registry.entry(name)
    if not names:
        raise BadParameter("--methods names none; leave it out for all, or give names with commas between them.")
    if len(set(names)) < len(names):
        raise BadParameter(f"--methods names {next(n for n in names if names.count(n) > 1)} twice.")
    return names


def _facts(result: Comparison) -> dict[str, Any]:
    return {
        "hidden_annotations": result.hidden,
        "best": result.best,
        "tied_with_best": result.tied,
        "verdict": result.verdict(),
        "methods": result.rows(),
        "failed": result.failed,
    }


def _show(title: str, result: Comparison) -> None:
    out = show.console()
    gold = result.contestants[0].accuracy is not None
    columns = ["method", "log-likelihood", "behind the best", "", *(["accuracy"] if gold else []), "seconds"]
    table = show.grid(show.clean(title), *columns, numbers=("log-likelihood", "behind the best", "accuracy", "seconds"))
    table.columns[0].no_wrap = True
    worst = result.contestants[-1].behind.value
    for one in result:
        cells = [one.method, f"{one.log_likelihood.value:.4f}", _behind(one), _mark(one, worst)]
        if one.accuracy is not None:
            cells.append(f"{100 * one.accuracy.value:.1f} ± {100 * _half(one.accuracy):.1f} %")
        table.add_row(*cells, f"{one.seconds:.2f}")
    out.print(table)
    out.print(
        f"Mean log probability of {result.hidden:,} hidden annotations ({result.splits} splits, "
        f"{show.percent(result.share)} each); closer to 0 is better. ±: 95 %, over items. ≈: cannot be told apart from "
        "the best. It judges how well labels are predicted, not how often the truth is found."
    )
    out.print(result.verdict(), soft_wrap=True)


def _behind(one: Contestant) -> str:
    if one.behind.value == 0:
        return "best"
    return f"{one.behind.value:.4f} ± {_half(one.behind):.4f}"


def _mark(one: Contestant, worst: float) -> str:
    """A bar as long as it is behind, or that it may not be behind at all."""
    return "≈ best" if one.tied and one.behind.value else show.bar(one.behind.value / max(worst, 1e-12), 10)


def _half(estimate: Estimate) -> float:
    """Half of the interval."""
    return (estimate.high - estimate.low) / 2


class _Screen:
    """The table while it is being made; on a terminal only."""

    def __init__(self, title: str, live: Any):
        self.title, self.live = title, live
        self.scores: dict[str, float] = {}
        self.state = ""

    def begin(self, method: str, done: int, of: int) -> None:
        self.state = f"fitting {method}: {done} of {of} fits done"
        self._draw()

    def done(self, method: str, score: float) -> None:
        self.scores[method] = score
        self._draw()

    def _draw(self) -> None:
        if self.live is None:
            return
        from rich.console import Group

        table = show.grid(show.clean(self.title), "method", "log-likelihood", numbers=("log-likelihood",))
        for method, score in sorted(self.scores.items(), key=lambda pair: -pair[1]):
            table.add_row(method, f"{score:.4f}")
        self.live.update(Group(table, self.state))


@contextmanager
def _live(title: str) -> Iterator[_Screen]:
    screen = show.console(stderr=True)
    if not screen.is_interactive:
        yield _Screen(title, None)
        return
    from rich.live import Live

    with Live(console=screen, transient=True, refresh_per_second=8) as live:
        yield _Screen(title, live)
