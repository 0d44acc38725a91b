"""`dissensus cluster`: groups of items that are labelled alike, and of annotators who label alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dissensus.cli import folder, keywords, show
from dissensus.cli.errors import say
from dissensus.cli.source import Source, takes_table
from dissensus.exceptions import BadParameter

if TYPE_CHECKING:
    from dissensus.clustering import Clustering, Selection
    from dissensus.table.annotations import Annotations

DEFAULT = "pgm-bp"
RESTARTS = 5  # of the fit that is written
SEARCH = "search.jsonl"
PAGE = "clusters.html"
FILES = tuple(
    Path(name)
    for name in ("items.csv", "annotators.csv", "clusters.csv", "search.csv", PAGE, "clusters.json", "clusters-key.csv")
)
"""The result tables, which a later run into the same folder replaces or removes."""
MOST = 12  # clusters that are shown
TOP = 3  # classes of each


class Criterion(StrEnum):
    """What a number of clusters is chosen by."""

    kl = "kl"
    likelihood = "likelihood"


@takes_table("--format")
def cluster(
    source: Source,
    *,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FOLDER", help="Write the results here; left out, they are only shown."),
    ] = None,
    method: Annotated[
        str, typer.Option("--method", "-m", metavar="NAME", help="pgm-bp, pgm-annealing, or fmm for items only.")
    ] = DEFAULT,
    item_clusters: Annotated[
        str,
        typer.Option("--item-clusters", "--items-clusters", metavar="K", help="A number, or a range to search: 3:20."),
    ] = "3:20",
    annotator_clusters: Annotated[
        str, typer.Option("--annotator-clusters", "--annotators-clusters", metavar="L", help="The same of annotators.")
    ] = "3:20",
    dev: Annotated[
        str,
        typer.Option("--dev", metavar="SHARE|FILE", help="Items to choose by: a share of FILE's, or a file like it."),
    ] = "0.25",
    criterion: Annotated[
        Criterion, typer.Option("--criterion", help="KL to the items' votes, or the likelihood of hidden labels.")
    ] = Criterion.likelihood,
    restarts: Annotated[int, typer.Option("--restarts", min=1, help="Starts of the final fit.")] = RESTARTS,
    setting: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any keyword of the method; repeatable.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of everything random.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print the summary as one JSON object instead.")] = False,
) -> None:
    """Cluster items by how they are labelled and annotators by how they label, together.

    Ranges of numbers are searched: every pair is fitted to the items that are not in --dev and judged on those. FOLDER
    gets items.csv (item, cluster, its probability, p_CLASS … of the cluster), annotators.csv, clusters.csv (what each
    cluster of annotators says of each cluster of items), search.csv, clusters.html (all of it as pictures, with
    pseudonyms for annotators), model.npz for `dissensus report --clusters` and summary.json; search.jsonl holds the
    finished points as they come, so that a search that was killed goes on where it was.

    Example: dissensus cluster labels.csv --item-clusters 3:20 --annotator-clusters 3:20 --dev 0.25 -o clusters

    Example: dissensus cluster labels.csv --method fmm --item-clusters 14
    """
    from dissensus.clustering import Clustering
    from dissensus.table.questions import Questions

    grid = {"K": _numbers(item_clusters, "--item-clusters"), "L": _numbers(annotator_clusters, "--annotator-clusters")}
    if output is not None:
        folder.check(output)
        folder.check_files(output, FILES, [source.file])
    settings = _settings(method, setting or [])
    began = time.perf_counter()
    table = source.read()
    if isinstance(table, Questions):
        raise BadParameter("a file of several questions cannot be clustered at once; take each question by itself.")
    held = _dev(dev, source)
    one = method == "fmm"
    search: Selection | None = None
    if len(grid["K"]) > 1 or (len(grid["L"]) > 1 and not one):
        search = _search(table, method, grid, held, criterion, output, seed, settings)
        model = search.estimator()
    else:
        from dissensus.models.base import clusterings

        counts = (
            {"n_clusters": grid["K"][0]} if one else {"item_clusters": grid["K"][0], "annotator_clusters": grid["L"][0]}
        )
        model = clusterings[method](**counts, **{"seed": seed} | settings)
    assert isinstance(model, Clustering)
    model.set_params(restarts=restarts)
    with show.waiting(f"clustering {source.file}") as on_step:
        model.fit(table, on_step=on_step)
    summary = _summary(source.file, method, model, search, time.perf_counter() - began)
    if output is not None:
        with show.waiting(f"writing {output}"), folder.whole(output, FILES) as part:
            _write(model, search, summary, part)
            _draw(model, table, search, source.file, part)
    if json:
        show.json(summary | ({} if output is None else {"folder": show.path(output)}))
        return
    _show(model, search, summary)
    out = show.console()
    out.print(f"Results are in {show.clean(output)}" if output is not None else "Nothing was written; add -o FOLDER.")


def _numbers(text: str, option: str) -> list[int]:
    """5, 3:20 (both ends) or 3,5,8."""
    try:
        if ":" in text:
            first, last = (int(part) for part in text.split(":"))
            numbers = list(range(first, last + 1))
        else:
            numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise BadParameter(f"{option} {text}: expected a number, a list such as 3,5,8 or a range such as 3:20.")
    return numbers


def _settings(method: str, given: list[str]) -> dict[str, Any]:
    """Keywords of the method, checked before the file is read."""
    import dissensus.clustering  # noqa: F401 - registers them
    from dissensus.models.base import clusterings

    found = keywords.parse(given, clusterings[method], method)
    for keyword in ("n_clusters", "item_clusters", "annotator_clusters", "restarts", "seed"):
        if keyword in found:
            raise BadParameter(f"--set {keyword}: there is an option for it; see `dissensus cluster --help`.")
    return found


def _dev(text: str, source: Source) -> Annotations | float:
    try:
        return float(text)
    except ValueError:
        pass
    import dataclasses

    from dissensus.table.questions import Questions

    found = dataclasses.replace(source, named=text).read()
    if isinstance(found, Questions):
        raise BadParameter(f"--dev {text} holds several questions; give one.")
    return found


def _search(
    table: Annotations,
    method: str,
    grid: dict[str, list[int]],
    dev: Annotations | float,
    criterion: Criterion,
    output: Path | None,
    seed: int,
    settings: dict[str, Any],
) -> Selection:
    from dissensus.clustering import select_clusters

    store = None
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        store = output / SEARCH
    with _progress() as on_point:
        return select_clusters(
            table,
            method,
            K=grid["K"],
            L=grid["L"],
            dev=dev,
            criterion=criterion.value,
            store=store,
            on_point=on_point,
            seed=seed,
            **settings,
        )


@contextmanager
def _progress() -> Iterator[Callable[[Any, int, int], None] | None]:
    """A bar over the points, on a terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    screen = show.console(stderr=True)
    if not screen.is_interactive:
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=screen, transient=True) as bar:
        task = bar.add_task("searching")

        def on_point(point: Any, done: int, of: int) -> None:
            bar.update(
                task, completed=done, total=of, description=f"searching: {point.K} × {point.L} has KL {point.kl:.3f}"
            )

        yield on_point


def _summary(file: Path, method: str, model: Any, search: Selection | None, seconds: float) -> dict[str, Any]:
    import numpy as np

    K, L, _ = model.labels_of_clusters_.shape
    summary: dict[str, Any] = {
        "input": show.path(file),
        "method": method,
        "item_clusters": K,
        "annotator_clusters": L,
        "items": np.bincount(model.item_cluster_[model.labelled_], minlength=K).tolist(),
        "annotators": np.bincount(model.annotator_cluster_, minlength=L).tolist(),
        "objective": float(model.trace_[-1]),
        "converged": model.converged_,
        "seconds": seconds,
    }
    if search is not None:
        best = search.best
        measured = {"kl": best.kl, "inverse_kl": best.inverse_kl, "log_likelihood": best.log_likelihood}
        summary["search"] = {"criterion": search.criterion, "points": len(search.points), "best": measured}
    return summary


def _write(model: Any, search: Selection | None, summary: dict[str, Any], part: Path) -> None:
    import numpy as np

    from dissensus.models.saving import save
    from dissensus.table.io import write_frame, write_json

    part.mkdir(exist_ok=True)
    own = {f"p_{name}": model.posterior_[:, p] for p, name in enumerate(model.classes_)}
    items = {
        "item": model.items_,
        "cluster": model.item_cluster_,
        "probability": model.item_clusters_.max(axis=1),
    } | own
    write_frame(items, part / "items.csv")
    soft = model.annotator_clusters_.max(axis=1)
    people = {"annotator": model.annotators_, "cluster": model.annotator_cluster_, "probability": soft}
    write_frame(people | {"annotations": model.n_annotations_}, part / "annotators.csv")
    K, L, P = model.labels_of_clusters_.shape
    theta = {
        "item_cluster": np.repeat(np.arange(K), L * P),
        "annotator_cluster": np.tile(np.repeat(np.arange(L), P), K),
        "label": np.tile(model.classes_, K * L),
        "probability": model.labels_of_clusters_.reshape(-1),
    }
    write_frame(theta, part / "clusters.csv")
    if search is not None:
        import pyarrow as pa

        write_frame(pa.Table.from_pylist(search.rows()), part / "search.csv")
    save(model, part)
    write_json(summary, part / folder.SUMMARY)


def _draw(model: Clustering, table: Annotations, search: Selection | None, file: Path, part: Path) -> None:
    """The same as a page, where what it takes is installed."""
    from dissensus.exceptions import MissingExtra
    from dissensus.report import Report

    try:
        page = Report(table, model, clustering=model, search=search, title=file.name, only=["clusters"])
        page.save(part / PAGE)
    except MissingExtra as error:
        say(f"warning: no {PAGE}: {error}")


def _show(model: Clustering, search: Selection | None, summary: dict[str, Any]) -> None:
    from dissensus.clustering.model import of_clusters

    out = show.console()
    file = show.clean(summary["input"])
    out.print(
        f"{file}: {summary['item_clusters']} clusters of items and {summary['annotator_clusters']} of annotators by "
        f"{summary['method']}, in {summary['seconds']:.1f} s",
        soft_wrap=True,
    )
    if search is not None:
        best = search.best
        likelihood = (
            "" if best.log_likelihood is None else f", log-likelihood of hidden labels {best.log_likelihood:.3f}"
        )
        out.print(
            f"Chosen among {len(search.points)} by {search.criterion}: KL {best.kl:.3f}{likelihood}.", soft_wrap=True
        )
    labels = of_clusters(model.params_)
    table = show.grid("Clusters of items", "cluster", "items", "", "labels", numbers=("cluster", "items"))
    sizes = summary["items"]
    order = sorted(range(len(sizes)), key=lambda k: -sizes[k])
    for k in order[:MOST]:
        top = (-labels[k]).argsort()[:TOP]
        said = ", ".join(f"{show.name(model.classes_[p])} {show.percent(labels[k, p])}" for p in top)
        table.add_row(str(k), f"{sizes[k]:,}", show.bar(sizes[k] / max(sum(sizes), 1)), said)
    if len(order) > MOST:
        table.add_row("…", f"{sum(sizes[k] for k in order[MOST:]):,}")
    out.print(table)
    people = show.grid("Clusters of annotators", "cluster", "annotators", "", numbers=("cluster", "annotators"))
    sizes = summary["annotators"]
    for number in sorted(range(len(sizes)), key=lambda one: -sizes[one])[:MOST]:
        people.add_row(str(number), f"{sizes[number]:,}", show.bar(sizes[number] / max(sum(sizes), 1)))
    if summary["annotator_clusters"] > 1:
        out.print(people)
