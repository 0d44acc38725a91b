"""`dissensus cluster --decision`: estimate which annotators label which items.

This is the decision function of Platanios et al. (2020).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dissensus.cli import folder, settings, show
from dissensus.cli.options import InputFiles
from dissensus.cli.source import Source

if TYPE_CHECKING:
    from dissensus.learning.decision import DecisionFunction
    from dissensus.table.annotations import Annotations

DECISION_FILES = [Path("pairs.csv"), Path("decision.safetensors")]
"""Files that a later run into the same folder replaces or removes."""
ITEMS_AT_ONCE = 4096
ANNOTATORS_SHOWN = 5


def fit_decision_function(
    source: Source,
    *,
    output: Path | None,
    features: Path | None,
    top: int,
    setting: list[str] | None,
    device: str | None,
    seed: int | None,
) -> None:
    """Fit the decision function to FILE; print its most probable annotators and write its pairs and the model."""
    from dissensus.cli.inputs import Inputs, align_inputs
    from dissensus.learning.decision import DecisionFunction

    folder.check_folder(output, DECISION_FILES)
    taken = ("encoder", "seed", "device")
    parameters = settings.parse_settings(setting or [], DecisionFunction, "decision", taken=taken) | {"seed": seed or 0}
    model = DecisionFunction(**parameters, **({} if device is None else {"device": device}))
    table, X = source.read_single_table(), None
    if features is not None:
        other_files = dict.fromkeys(("items", "text", "pair", "position", "images"))
        file, inputs = Inputs.choose(InputFiles(features=features, **other_files))
        table, X = align_inputs(table, *inputs.read(file), source.file)
    with show.show_progress(f"training on {source.file}", model.epochs) as on_step:
        model.fit(table, X, on_step=on_step)
    pairs = _rank_annotators(model, table, top)
    summary: dict[str, Any] = {
        **show.format_paths(input=source.file, features_file=features),
        "items": table.n_items,
        "annotators": table.n_annotators,
        "pairs": len(set(zip(table.item.tolist(), table.annotator.tolist(), strict=True))),
        "loss": float(model.trace_[-1]),
        "labelled_share_of_top": float(pairs["labelled"].mean()),
        "reading": source.import_report,
    }
    if output is not None:
        from dissensus.table.io import write_frame

        with folder.write_results(output, DECISION_FILES, summary) as part:
            write_frame(pairs, part / "pairs.csv")
            model.save(part)
    if source.json:
        show.print_json(summary, folder=output)
        return
    show.print_line(f"{show.escape(source.file)}: {summary['pairs']:,} pairs of {summary['items']:,} items and "
              f"{summary['annotators']:,} annotators")  # fmt: skip
    mean = model.predict_proba(table.items[:ITEMS_AT_ONCE]).mean(axis=0)
    order = (-mean).argsort(kind="stable")[:ANNOTATORS_SHOWN]
    rows = [(show.shorten(table.annotators[j]), show.format_percent(mean[j])) for j in order]
    show.print_table("Annotators by their mean probability of labelling an item", ("annotator", "probability"), rows)
    show.print_written(output, "Results are", "FOLDER")


def _rank_annotators(model: DecisionFunction, table: Annotations, top: int) -> dict[str, Any]:
    """Return the `top` most probable annotators of each item as columns, and whether they labelled it."""
    import numpy as np

    parts = []
    for start in range(0, table.n_items, ITEMS_AT_ONCE):
        proba = model.predict_proba(table.items[start : start + ITEMS_AT_ONCE])
        annotator = np.argsort(-proba, axis=1, kind="stable")[:, :top]
        item = np.repeat(np.arange(start, start + len(proba)), annotator.shape[1])
        parts.append((item, annotator.ravel(), np.take_along_axis(proba, annotator, axis=1).ravel()))
    item, annotator, probability = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    labelled = np.unique(table.item.astype(np.int64) * table.n_annotators + table.annotator)
    return {
        "item": table.items[item],
        "annotator": table.annotators[annotator],
        "probability": probability,
        "labelled": np.isin(item * np.int64(table.n_annotators) + annotator, labelled),
    }
