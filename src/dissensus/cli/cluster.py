"""`dissensus cluster`: clusters of items with similar labels, and of annotators who label similarly."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dissensus.cli import exceptions as faults
from dissensus.cli import folder, options, settings, show
from dissensus.cli.options import option
from dissensus.cli.source import Source
from dissensus.messages import ParameterName

if TYPE_CHECKING:
    from dissensus.clustering import Selection
    from dissensus.table.annotations import Annotations

PAGE_FILE = "clusters.html"
CLUSTER_FILES = [
    Path(f"{name}.csv") for name in ("items", "annotators", "clusters", "search", "clusters-key")
] + [Path(PAGE_FILE), Path("clusters.json")]  # fmt: skip
"""Files that a later run into the same folder replaces or removes."""
OPTION_PARAMETERS = ("n_clusters", "item_clusters", "annotator_clusters", "restarts", "seed")
"""Parameters of the methods that have their own option."""
CLUSTERING_OPTIONS = (
    "method", "item_clusters", "annotator_clusters", "search", "dev", "criterion", "restarts",
)  # fmt: skip
DECISION_PANEL = "With --decision"  # panel of the help
MAX_CLUSTERS_SHOWN = 12
CLASSES_SHOWN = 3  # maximum number of classes printed per cluster
COARSE_SIZES = 4  # number of sizes in a range that are tried without --search full


@dataclass(frozen=True)
class SizeOptions:
    """Numbers of clusters, and how they are chosen."""

    item_clusters: str = option(
        "3:20",
        "Number of item clusters, or a range of numbers to search.",
        "--item-clusters",
        "--items-clusters",
        metavar="K",
    )
    annotator_clusters: str = option(
        "3:20",
        "Number or range of numbers of annotator clusters, in the same format.",
        "--annotator-clusters",
        "--annotators-clusters",
        metavar="L",
    )
    search: Literal["coarse", "full"] = option(
        "coarse", f"Try {COARSE_SIZES} numbers of a range, from its first to its last, or all of them."
    )
    dev: str = option(
        "0.25", "Validation items: a share of the items in FILE, or another file of labels.", metavar="SHARE|FILE"
    )
    criterion: Literal["kl", "likelihood"] = option(
        "likelihood", "Criterion of the search: KL divergence from the votes, or likelihood of held-out labels."
    )

    def read_validation(self, source: Source) -> float | Annotations:
        """Return the share of the items that --dev gives, or the table of validation items in its file."""
        try:
            return float(self.dev)
        except ValueError:
            return dataclasses.replace(source, named=self.dev).read_single_table()

    def is_coarse(self, found: Selection) -> bool:
        """Return whether only some numbers of a range were tried."""
        tried = (self.item_clusters, found.K), (self.annotator_clusters, found.L)
        return any(":" in text and len(numbers) <= numbers[-1] - numbers[0] for text, numbers in tried)


@dataclass(frozen=True)
class DecisionOptions:
    """Options of the decision function."""

    features: Path | None = option(
        None,
        ".npz with arrays item and x, or a table: item and numbers; by default a vector per item.",
        metavar="FILE",
        panel=DECISION_PANEL,
    )
    top: int = option(20, "Annotators per item in pairs.csv, the most probable first.", min=1, panel=DECISION_PANEL)
    device: str | None = option(None, "auto, cpu, cuda, cuda:1, mps.", show_default="auto", panel=DECISION_PANEL)


def cluster(
    *,
    output: Path | None = options.OUTPUT_FOLDER,
    method: str = option("pgm-bp", "pgm-bp, or fmm for items only.", "--method", "-m", metavar="NAME"),
    sizes: SizeOptions,
    restarts: int = option(5, "Number of random starts of the final fit.", min=1),
    setting: list[str] | None = options.SETTINGS,
    seed: int | None = options.SEED,
    decision: bool = option(False, "Estimate which annotators label which items.", "--decision", panel=DECISION_PANEL),
    decision_options: DecisionOptions,
    source: Source,
) -> None:
    """Fit clusters of items and annotators to FILE, and print and write them.

    Ranges of numbers are searched: pairs are fitted to the items that are not in --dev and evaluated on those.
    FOLDER gets items.csv (item, cluster, its probability, p_CLASS … of the cluster), annotators.csv, clusters.csv
    (the labels of each cluster of annotators for each cluster of items), search.csv, clusters.html (all of it as
    charts, with pseudonyms for annotators), model.npz for `dissensus report --clusters` and summary.json; search.jsonl
    holds the finished points, so that the same command resumes a search that was stopped.

    With --decision, the decision function of Platanios et al. (2020) learns from the pairs of items and annotators in
    FILE, not from the labels. FOLDER gets pairs.csv (item, annotator, probability, labelled), decision.safetensors and
    summary.json.

    Example: dissensus cluster labels.csv --item-clusters 3:20 --annotator-clusters 3:20 --dev 0.25 -o clusters

    Example: dissensus cluster labels.csv --search full -o clusters

    Example: dissensus cluster labels.csv --method fmm --item-clusters 14

    Example: dissensus cluster labels.csv --decision --features features.npz --set epochs=30 -o decision
    """  # fmt: skip
    if decision:
        from dissensus.cli.decision import fit_decision_function

        options.refuse_together("--decision", *CLUSTERING_OPTIONS)
        fit_decision_function(source, output=output, setting=setting, seed=seed, **vars(decision_options))
        return
    options.refuse_without("--decision", "features", "top", "device")
    K = _parse_sizes(sizes.item_clusters, "item_clusters")
    L = _parse_sizes(sizes.annotator_clusters, "annotator_clusters")
    folder.check_folder(output, CLUSTER_FILES)
    from dissensus.clustering import clusterings
    from dissensus.clustering.base import cluster_count_keywords

    parameters = settings.parse_settings(setting or [], clusterings[method], method, taken=OPTION_PARAMETERS)
    parameters = {"seed": seed or 0} | parameters
    began = time.perf_counter()
    table = source.read_single_table()
    held_out = sizes.read_validation(source)
    selection: Selection | None = None
    if len(K) > 1 or (len(L) > 1 and clusterings.entry(method).facts["annotators"]):
        parameters |= {"sizes": COARSE_SIZES if sizes.search == "coarse" else None, "criterion": sizes.criterion}
        selection = _search_sizes(table, method, output, K=K, L=L, dev=held_out, **parameters)
        model = selection.estimator()
    else:
        model = clusterings[method](**cluster_count_keywords(method, K[0], L[0]), **parameters)
    model.set_params(restarts=restarts)
    with show.show_progress(f"clustering {source.file}") as on_step:
        model.fit(table, on_step=on_step)
    summary = _summarise(source.file, method, model, selection, time.perf_counter() - began)
    summary["reading"] = source.import_report
    if output is not None:
        with folder.write_results(output, CLUSTER_FILES, summary) as part:
            _write_tables(model, selection, part)
            _write_page(model, selection, table, source.file.name, part)
    if source.json:
        show.print_json(summary, folder=output)
        return
    _print_clusters(model, selection, summary)
    if selection is not None and sizes.is_coarse(selection):
        show.print_text(f"{len(selection.points)} pairs of numbers were tried; --search full tries all of a range.")
    show.print_written(output, "Results are", "FOLDER")


def _parse_sizes(text: str, option: str) -> Sequence[int]:
    """Return the numbers in 5, 3:20 (both ends included) or 3,5,8."""
    try:
        if ":" in text:
            first, last = (int(part) for part in text.split(":"))
            numbers: Sequence[int] = range(first, last + 1)
        else:
            numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise faults.BadSizes(option=ParameterName(option), text=text)
    return numbers


def _search_sizes(table: Annotations, method: str, output: Path | None, **given: Any) -> Selection:
    """Fit every pair of numbers; finished points are stored in the output folder."""
    from dissensus.clustering import select_clusters

    with show.show_progress("searching") as bar:
        if output is not None:
            output.mkdir(parents=True, exist_ok=True)
        store = None if output is None else output / "search.jsonl"

        def on_point(point: Any, done: int, total: int) -> None:
            bar.set_text(f"searching: {point.K} × {point.L} has KL {point.kl:.3f}", done, total)

        return select_clusters(table, method, store=store, on_point=on_point, **given)


def _summarise(file: Path, method: str, model: Any, search: Selection | None, seconds: float) -> dict[str, Any]:
    import numpy as np

    K, L, _ = model.labels_of_clusters_.shape
    summary: dict[str, Any] = {
        "input": show.format_path(file),
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
        measured = {name: getattr(search.best, name) for name in ("kl", "inverse_kl", "log_likelihood")}
        summary["search"] = {"criterion": search.criterion, "points": len(search.points), "best": measured}
    return summary


def _write_tables(model: Any, search: Selection | None, part: Path) -> None:
    import numpy as np

    from dissensus.common.frames import columns_to_frame
    from dissensus.models.saving import save
    from dissensus.table.io import write_frame

    item_cluster, annotator_cluster, label = np.indices(model.labels_of_clusters_.shape).reshape(3, -1)
    frames: dict[str, Any] = {
        "items": {
            "item": model.items_,
            "cluster": model.item_cluster_,
            "probability": model.item_clusters_.max(axis=1),
            **{f"p_{name}": model.posterior_[:, p] for p, name in enumerate(model.classes_)},
        },
        "annotators": {
            "annotator": model.annotators_,
            "cluster": model.annotator_cluster_,
            "probability": model.annotator_clusters_.max(axis=1),
            "annotations": model.n_annotations_,
        },
        "clusters": {
            "item_cluster": item_cluster,
            "annotator_cluster": annotator_cluster,
            "label": model.classes_[label],
            "probability": model.labels_of_clusters_.reshape(-1),
        },
    }
    if search is not None:
        frames["search"] = columns_to_frame(search.rows(), "pyarrow")
    for name, frame in frames.items():
        write_frame(frame, part / f"{name}.csv")
    save(model, part)


def _write_page(model: Any, search: Selection | None, table: Annotations, title: str, part: Path) -> None:
    """Write a page with charts of the clusters."""
    from dissensus.report import Report

    parts: dict[str, Any] = {"clustering": model, "search": search, "title": title}
    Report(table, model, only=["clusters"], **parts).save(part / PAGE_FILE)


def _print_clusters(model: Any, search: Selection | None, summary: dict[str, Any]) -> None:
    from dissensus.clustering.model import population_labels

    show.print_line(
        f"{show.escape(summary['input'])}: {summary['item_clusters']} clusters of items and "
        f"{summary['annotator_clusters']} of annotators by {summary['method']}, in {summary['seconds']:.1f} s"
    )
    if search is not None:
        value = search.best.log_likelihood
        likelihood = "" if value is None else f", log-likelihood of held-out labels {value:.3f}"
        show.print_line(
            f"Chosen among {len(search.points)} by {search.criterion}: KL {search.best.kl:.3f}{likelihood}."
        )
    labels = []
    for shares in population_labels(model.params_):
        top = (-shares).argsort()[:CLASSES_SHOWN]
        labels.append(", ".join(f"{show.shorten(model.classes_[p])} {show.format_percent(shares[p])}" for p in top))
    _print_sizes("items", summary["items"], labels)
    if summary["annotator_clusters"] > 1:
        _print_sizes("annotators", summary["annotators"])


def _print_sizes(what: str, sizes: list[int], labels: list[str] | None = None) -> None:
    """Print the clusters, the largest first, with their sizes and labels."""
    order = sorted(range(len(sizes)), key=lambda k: -sizes[k])
    shares = [size / max(sum(sizes), 1) for size in sizes]
    rows = [
        (str(k), f"{sizes[k]:,}", show.draw_bar(shares[k]), *([labels[k]] if labels else []))
        for k in order[:MAX_CLUSTERS_SHOWN]
    ]
    if others := order[MAX_CLUSTERS_SHOWN:]:
        rows.append(("…", f"{sum(sizes[k] for k in others):,}"))
    columns = ("cluster", what, "", *(["labels"] if labels else []))
    show.print_table(f"Clusters of {what}", columns, rows, numbers=("cluster", what))
