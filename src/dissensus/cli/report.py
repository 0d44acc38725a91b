"""`dissensus report`: one HTML file that says what is in the labels, who is good, what is hard, what to do next."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dissensus.cli import gold as golds
from dissensus.cli import results, show
from dissensus.cli.aggregate import new_model
from dissensus.cli.errors import about, say
from dissensus.cli.folder import SUMMARY
from dissensus.cli.source import Source, takes_table
from dissensus.exceptions import BadParameter

if TYPE_CHECKING:
    from dissensus.report import Contest
    from dissensus.table.annotations import Annotations

DEFAULT = Path("report.html")


@takes_table("--format")
def report(
    source: Source,
    *,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="PAGE", help="The page; report.json and the key go beside it.")
    ] = DEFAULT,
    gold: golds.GoldFile = None,
    gold_item: golds.GoldItem = None,
    gold_label: golds.GoldLabel = None,
    items: Annotated[
        Path | None,
        typer.Option(
            "--items",
            metavar="ITEMS",
            help="A table about the items: column item, texts, pictures as data URIs, others.",
        ),
    ] = None,
    annotators: Annotated[
        Path | None,
        typer.Option(
            "--annotators",
            metavar="PEOPLE",
            help="A table about the annotators: column annotator, groups they belong to.",
        ),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            "-m",
            metavar="NAME",
            help="Left out, the one that predicts hidden labels best.",
            show_default=False,
        ),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any keyword of the method; repeatable."),
    ] = None,
    clusters: Annotated[
        Path | None,
        typer.Option(
            "--clusters", metavar="FOLDER", help="What `dissensus cluster FILE -o FOLDER` wrote; a section more."
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option("--model", metavar="FOLDER", help="What `dissensus train FILE -o FOLDER` wrote; a section more."),
    ] = None,
    inputs: Annotated[
        Path | None,
        typer.Option(
            "--inputs",
            metavar="FILE",
            help="What the model takes, as for train (--items, --features or --images): a map of the items.",
        ),
    ] = None,
    title: Annotated[str | None, typer.Option("--title", help="Left out, the file's name.", show_default=False)] = None,
    pseudonyms: Annotated[
        bool, typer.Option("--pseudonyms/--names", help="How annotators are called; the key is a file of its own.")
    ] = True,
    salt: Annotated[
        str, typer.Option("--salt", help="A secret for the pseudonyms: else who guesses a name can check the guess.")
    ] = "",
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of everything random.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print what was found as one JSON object instead.")] = False,
) -> None:
    """Write a page that says what is in the labels, how sure they are, who is good, what is hard, what to do next.

    The page is one file that needs no network. Beside it go the same numbers as JSON and, as annotators are people, the
    key to their pseudonyms. A file of several questions becomes one page each.

    Example: dissensus report labels.csv --gold gold.csv --items items.csv -o report.html

    Example: dissensus report labels.csv --annotators people.csv --names
    """
    from dissensus.table.questions import Questions

    if output.suffix.lower() not in (".html", ".htm"):
        raise BadParameter(f"-o {output}: a report is an HTML file; call it {output.with_suffix('.html').name}.")
    if not output.absolute().parent.is_dir():
        raise BadParameter(f"-o {output}: there is no folder {output.parent}; make it first.")
    if inputs is not None and model is None:
        raise BadParameter("--inputs is what a model takes; name its folder with --model.")
    if method is None and setting:
        raise BadParameter("--set is for a method; name it with --method.")
    if method is not None:
        new_model(method, setting or [])  # a wrong name or keyword should not wait for the file
    _extras()
    tables = source.read()
    frames = {key: _frame(path) for key, path in (("items", items), ("annotators", annotators))}
    found = {} if clusters is None else _clusters(clusters)
    if model is not None:
        if isinstance(tables, Questions):
            raise BadParameter("--model is for a file of one question; report on each question by itself.")
        from dissensus.learning.folds import load_trained

        with show.waiting(f"reading {model}"):
            found["model"], found["out_of_fold"] = load_trained(model)
        if inputs is not None:
            found["X"] = _rows(model, inputs, tables)

    def write(table: Annotations, path: Path, name: str) -> dict[str, Any]:
        from dissensus.report import Report, contest

        known = None if gold is None else golds.read(gold, table, gold_item, gold_label)
        began = time.perf_counter()
        with _progress() as step:
            held: Contest | None = None
            if method is None:
                held = _held(contest, table, known, seed, step)
            chosen = method or (held.comparison.best if held is not None else "dawid-skene")
            step(f"fitting {chosen}")
            fitted = new_model(chosen, setting or []).fit(table)
            made = Report(
                table, fitted, gold=known, title=name, names=not pseudonyms, salt=salt, contest=held, seed=seed,
                on_step=step, **frames, **found,
            )  # fmt: skip
            files = made.save(path)
        return {
            "files": [show.path(file) for file in files],
            "method": chosen,
            "seconds": time.perf_counter() - began,
            "findings": made.facts["findings"],
        }

    head = {"file": show.path(source.file)}
    called = title or source.file.name
    if isinstance(tables, Questions):
        if gold is not None:
            raise BadParameter("--gold is for a file of one question; report on each question by itself.")
        safe = results.safe_names(tables)
        written = {}
        for question, table in tables.items():
            with about(f"question {show.name(question)!r}"):
                path = output.with_name(f"{output.stem}-{safe[question]}{output.suffix}")
                written[question] = write(table, path, f"{called}: {question}")
        if json:
            show.json(head | {"questions": written})
            return
        for question, one in written.items():
            _say(f"{called}, question {show.name(question)}", one)
        return
    one = write(tables, output, called)
    if json:
        show.json(head | one)
    else:
        _say(called, one)


def _extras() -> None:
    """What the page needs should be missed before the work, not after."""
    from dissensus.common.extras import need

    for module in ("jinja2", "altair", "vl_convert"):
        need(module, "the report needs", "report")


def _frame(path: Path | None) -> Any:
    if path is None:
        return None
    from dissensus.table.io import read_frame

    with show.waiting(f"reading {path}"):
        return read_frame(path)


def _rows(model: Path, file: Path, table: Annotations) -> Any:
    """What the model takes of the table's items; None, and a warning, where the file has not all of them."""
    from dissensus.cli.inputs import Inputs, like
    from dissensus.learning.inputs import take
    from dissensus.table import names as naming

    names, X = Inputs.of(model).read(file)
    at = naming.match(table.items, like(names, table.items), "items")
    if gone := int((at < 0).sum()):
        some = show.name(table.items[at < 0][0])
        say(f"warning: {gone:,} of {table.n_items:,} items are not in {file}, such as {some!r}; no map.")
        return None
    return take(X, at)


def _clusters(folder: Path) -> dict[str, Any]:
    """The clustering of an earlier run, and its search where there was one."""
    import json

    from dissensus.clustering import Clustering
    from dissensus.models.saving import load
    from dissensus.table.io import read_frame

    model = load(folder)
    if not isinstance(model, Clustering):
        raise BadParameter(f"--clusters {folder}: it holds a {type(model).__name__}, which has no clusters.")
    summary, table = folder / SUMMARY, folder / "search.csv"
    if not (summary.is_file() and table.is_file()):
        return {"clustering": model}
    points = [{key: _number(value) for key, value in row.items()} for row in read_frame(table).to_pylist()]
    told = json.loads(summary.read_text(encoding="utf-8"))
    chosen = (told["item_clusters"], told["annotator_clusters"])
    best = next((p for p in points if (p["K"], p["L"]) == chosen), None)
    if best is None:
        return {"clustering": model}
    return {"clustering": model, "search": {"criterion": told["search"]["criterion"], "points": points, "best": best}}


def _number(text: str | None) -> Any:
    """What a cell of search.csv holds."""
    if text in (None, ""):
        return None
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.lstrip("-").isdigit() else float(text)


def _held(contest: Callable[..., Contest], table: Annotations, known: Any, seed: int, step: Any) -> Contest | None:
    """The comparison of methods; none where no label can be hidden and predicted."""
    from dissensus.exceptions import DataError

    try:
        return contest(table, gold=known, seed=seed, on_step=step)
    except DataError:
        return None


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """What is being worked out, on a terminal."""
    from rich.status import Status

    screen = show.console(stderr=True)
    if not screen.is_interactive:
        yield lambda what: None
        return
    with Status("", console=screen) as status:
        yield lambda what: status.update(show.clean(what))


def _say(title: str, one: dict[str, Any]) -> None:
    out = show.console()
    out.print(f"{show.clean(title)}: labels by {one['method']}, report in {one['seconds']:.1f} s")
    marks = {"bad": "!", "note": "•", "good": "✓"}
    for finding in one["findings"]:
        advice = f" {finding['advice']}" if finding["advice"] else ""
        out.print(f" {marks[finding['tone']]} {show.clean(finding['text'] + advice)}", soft_wrap=True)
    out.print(f"Open {one['files'][0]} in a browser; the numbers are in {one['files'][1]}.", soft_wrap=True)
    if len(one["files"]) > 2:
        out.print(f"Who is who is in {one['files'][2]}: keep it to yourself.", soft_wrap=True)
