"""`dissensus aggregate --to TOOL`: write the labels of all questions into one file for a labelling tool."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dissensus.cli import exceptions as faults
from dissensus.messages import ParameterName
from dissensus.models.answers import AnswerModel, SpanModel
from dissensus.table import names as naming
from dissensus.table.io.writers import LabelledSpan, LabelsToWrite, QuestionLabels, write_labels, writers
from dissensus.table.spans import POSITION_SEPARATOR, parse_sequences

if TYPE_CHECKING:
    from dissensus.cli.results import Result
    from dissensus.cli.source import Source

SPAN_TOOLS = ("label-studio", "argilla", "doccano", "prodigy")  # tools that import spans; the others import tags
SINGLE_COLUMN = re.compile(r"'[^']+'$")  # a single column, as an import report quotes it


def check_tool(to: str, source: Source, output: Path | None) -> None:
    """Raise an error, before FILE is read, if its labels cannot be written for a tool."""
    writers.entry(to)
    if source.ticks == "questions":
        raise faults.OptionsConflict(option=ParameterName("to"), other_option="--ticks questions")
    if output is None:
        raise faults.OptionNeeds(option=ParameterName("to"), needed="-o FOLDER")


def tool_file_name(to: str) -> str:
    """Return the name of the file for a tool."""
    return str(writers[to].file)


def write_tool_file(results: Mapping[str | None, Result], to: str, source: Source, folder: Path) -> None:
    """Write the labels of all questions, added to FILE's records if it is an export of the tool.

    An item without labels gets none.
    """
    found, skipped = {}, []
    for question, result in results.items():
        model = result.model
        if isinstance(model, AnswerModel):
            skipped.append(str(question))
        elif isinstance(model, SpanModel) and to in SPAN_TOOLS:
            found[question] = _span_answers(model, to)
        else:
            labelled = np.ones(model.items_.size, np.bool_) if result.status is None else result.status.n_labels > 0
            label = model.predict()
            confidence = model.posterior_[np.arange(label.size), naming.match_names(label, model.classes_, "classes")]
            found[question] = QuestionLabels(model.items_[labelled], label[labelled], confidence[labelled])
    if skipped:
        warnings.warn(faults.NotForTool(to=to, questions=tuple(skipped)), stacklevel=2)
    columns = source.import_report.get("columns", {}).items()
    columns = {role: column[1:-1] for role, column in columns if SINGLE_COLUMN.match(column)}
    own_export = source.import_report.get("format") == to and source.file.is_file()
    labels = LabelsToWrite(
        found,
        f"dissensus {next(iter(results.values())).summary['method']}",
        source.file if own_export else None,
        source.item,
        columns.get("label"),
        columns,
    )
    write_labels(labels, to, folder)


def _span_answers(model: SpanModel, to: str) -> QuestionLabels:
    """Return the spans of each document; its confidence is the probability of its least probable span."""
    where = parse_sequences(np.asarray(model.items_))
    if POSITION_SEPARATOR in str(model.items_[0]) and "-" not in str(model.items_[0]).rpartition(POSITION_SEPARATOR)[2]:
        raise faults.NoCharacters(to=to)
    by_document: dict[str, list[LabelledSpan]] = {name: [] for name in where.documents.tolist()}
    for row in model.spans("pyarrow").to_pylist():
        by_document[row["document"]].append(LabelledSpan(row["start"], row["end"], row["label"], row["probability"]))
    label = np.empty(len(by_document), object)
    label[:] = list(by_document.values())
    confidence = [min((span.probability for span in spans), default=float("nan")) for spans in by_document.values()]
    return QuestionLabels(where.documents, label, np.array(confidence))
