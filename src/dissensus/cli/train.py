"""`dissensus train`: train a model that labels new items, from items with disagreeing labels."""

from __future__ import annotations

import shutil
import time
import warnings
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from typer.core import TyperCommand

from dissensus.cli import exceptions as faults
from dissensus.cli import folder, options, settings, show
from dissensus.cli.errors import print_to_stderr
from dissensus.cli.options import InputFiles, option
from dissensus.cli.source import SourceOfTables, TrainingGold
from dissensus.exceptions import BadParameter, DataError, MissingExtra
from dissensus.messages import ParameterName
from dissensus.questions.exceptions import NoGoldToScore

if TYPE_CHECKING:
    from dissensus.cli.inputs import Inputs
    from dissensus.common.types import BoolArray, FloatArray, IntArray
    from dissensus.learning import CrowdClassifier, OutOfFold
    from dissensus.table.annotations import Annotations

ENCODERS = {
    "texts": "transformer",
    "pairs": "transformer",
    "positions": "tagger",
    "features": "mlp",
    "images": "wide-resnet",
}
"""Kind of input → the default encoder."""
LEARNING = "Learning"  # panel of the help
TRAINED_MODEL_FILE = "model.safetensors"
TRAINING_FILES = folder.table_files("items", "annotators", "history", "out_of_fold")


@dataclass(frozen=True)
class ModelOptions:
    """The encoder and the objective, with parameters that have no option of their own."""

    encoder: str | None = option(
        None,
        "By default: features mlp, texts and pairs transformer with fixed weights, positions tagger, images "
        "wide-resnet.",
        "--encoder",
        "-e",
        metavar="NAME",
    )
    objective: str = option("auto", "How labels supervise the model; see above.", metavar="NAME")
    setting: list[str] | None = option(
        None,
        "Any parameter: encoder.dropout=0.3, objective.labels=dawid-skene, clip=1; repeatable.",
        "--set",
        metavar="KEY=VALUE",
    )


@dataclass(frozen=True)
class ValidationOptions:
    """Items that are held out of the training."""

    validation: str | None = option(
        None,
        "A share of the labelled items, or a file of labels of other items, that chooses the epoch; auto holds out its "
        "own.",
        metavar="SHARE|FILE",
        panel=LEARNING,
    )
    split: str | None = option(
        None, "ITEMS' column with train, dev or test for each item.", metavar="COLUMN", panel=LEARNING
    )
    folds: int | None = option(
        None,
        "Also predict each item by one of this many networks that were not trained on it.",
        min=2,
        panel=LEARNING,
    )


@dataclass(frozen=True)
class TrainingTask:
    """The labels and inputs that `train` reads, with the items of each role."""

    table: Annotations  # labels of the training items
    X: Any  # inputs of all items of the table
    inputs: Inputs
    inputs_file: Path
    gold: IntArray | None  # (I,) gold codes to train on, −1 if unknown
    scoring_gold: Any  # (I,) gold codes that measure accuracy, or None
    held_out: BoolArray  # (I,) items that choose the epoch
    validation: Any  # the argument `validation` of `CrowdClassifier.fit`


@dataclass(frozen=True)
class TrainingOptions:
    """Parameters of `CrowdClassifier` that have their own option; None leaves the default."""

    epochs: int | None = option(None, "Passes over the items; 50 by default.", panel=LEARNING)
    batch_size: int | None = option(None, "Items per step; 64 by default.", panel=LEARNING)
    learning_rate: float | None = option(None, "Learning rate; by default that of the encoder.", panel=LEARNING)
    patience: int | None = option(
        None, "Stop after this many epochs without a better one.", metavar="EPOCHS", panel=LEARNING
    )
    monitor: Literal["cross-entropy", "accuracy", "macro-f1"] | None = option(
        None, "Score that chooses the best epoch: accuracy for crowd-layer, else cross-entropy.", panel=LEARNING
    )
    sam: float | None = option(None, "Sharpness-aware training, often 0.05.", metavar="RHO", panel=LEARNING)
    mixup: float | None = option(
        None, "Train on mixtures of two items, often 0.2 to 1.", metavar="ALPHA", panel=LEARNING
    )
    log: str | None = option(
        None, "Write log.csv, and events for TensorBoard, while it trains.", metavar="FOLDER", panel=LEARNING
    )
    precision: str | None = option(None, "auto, 32-true, bf16-mixed, ….", panel=LEARNING)
    device: str | None = options.DEVICE
    seed: int | None = options.SEED


def train(
    *,
    output: Path = option(..., "Write the model and results here.", "--output", "-o", metavar="FOLDER"),
    files: InputFiles,
    format_: folder.TableFormat = option("csv", "Format of the result tables.", "--format"),
    parts: ModelOptions,
    shortcuts: TrainingOptions,
    held_out: ValidationOptions,
    fresh: bool = option(False, "Start anew if a stopped run left a checkpoint.", "--fresh", panel=LEARNING),
    gold: TrainingGold,
    source: SourceOfTables,
) -> None:
    """Train a model on the labels of FILE and its inputs, and write it with its results.

    FOLDER gets model.safetensors for `dissensus predict` and `dissensus report --model`, items.csv (item; label
    and confidence by model and labels together; model, its own prediction; taught, whether the item was used for
    training; p_CLASS …), annotators.csv (with --objective lia these have difficulty and competence), history.csv,
    summary.json and, with --folds, out_of_fold.csv. Items without labels are predicted, but not used for training.
    The same command resumes a run that was stopped. The texts of a tool's export are in FILE itself; --text COLUMN
    without --items reads them from FILE, where every row of an item has the same text.

    Encoders: ENCODERS

    Objectives: OBJECTIVES

    Example: dissensus train labels.csv --items items.csv --text text -o model

    Example: dissensus train labels.csv --features features.npz --objective hard --set objective.labels=mace -o model
    """
    folder.check_folder(output, (*TRAINING_FILES, Path(TRAINED_MODEL_FILE)))
    model, data = _prepare_training(files, parts, shortcuts, held_out, gold, source)
    store = output / "checkpoint"
    if fresh and store.exists():
        shutil.rmtree(store)
    if resumed := store.exists():
        print_to_stderr(f"resuming a run that was stopped from {store}; --fresh starts anew.")
    model.set_params(checkpoint=store)
    began = time.perf_counter()
    from dissensus.learning.exceptions import CheckpointOfAnotherRun  # imports torch, which takes seconds

    try:
        folded = _fit(model, data, held_out.folds, source, show_total=parts.objective != "auto")
    except CheckpointOfAnotherRun as error:
        raise faults.OtherCheckpoint(path=error.path) from error
    except (BadParameter, DataError):
        if not resumed:  # the next run has other parameters or data
            shutil.rmtree(store, ignore_errors=True)
        raise
    summary: dict[str, Any] = {
        **show.format_paths(input=source.file, inputs_file=data.inputs_file),
        **gold.file_facts(),
        "reading": source.import_report,
        **_summarise(model, data.inputs, data.table, folded, time.perf_counter() - began),
    }
    if data.scoring_gold is not None:
        from dissensus.questions.scoring import exclude_training_gold

        summary["gold"] = _score_against_gold(model, exclude_training_gold(data.scoring_gold, data.gold), folded)
    checkpoint = [path.relative_to(output) for path in store.rglob("*") if path.is_file()]
    with folder.write_results(output, [*TRAINING_FILES, *checkpoint], summary) as part:
        _write_tables(model, folded, part, format_)
    shutil.rmtree(store, ignore_errors=True)
    if source.json:
        show.print_json(summary, folder=output)
        return
    _print_training(summary)
    show.print_written(output, "Results are", "FOLDER")


def _prepare_training(
    files: InputFiles,
    parts: ModelOptions,
    shortcuts: TrainingOptions,
    held_out: ValidationOptions,
    gold: TrainingGold,
    source: SourceOfTables,
) -> tuple[CrowdClassifier, TrainingTask]:
    """Return the classifier to train, with checked options, and its training data; FILE may hold the inputs too."""
    from dissensus.cli.inputs import Inputs, align_inputs

    own_texts = None if any((files.items, files.features, files.images)) else source.read_single_table()
    if own_texts is not None and (source.holds_texts or (files.names_table_column and source.named != "-")):
        files = replace(files, items=source.file)
    file, inputs = Inputs.choose(files)
    inputs = replace(inputs, columns=tuple(name for name in inputs.columns if name != held_out.split))
    own_settings = [f"{key}={value}" for key, value in vars(shortcuts).items() if value is not None]
    model = new_classifier(inputs.kind, parts.encoder, parts.objective, [*own_settings, *(parts.setting or [])])
    table = source.read_single_table() if own_texts is None else own_texts
    names, X = inputs.read(file, source.item if own_texts is not None else None)
    table, X = align_inputs(table, names, X, source.file)
    return model, _hold_out(table, X, inputs, file, gold, held_out, source)


def _hold_out(
    table: Annotations,
    X: Any,
    inputs: Inputs,
    file: Path,
    gold: TrainingGold,
    chosen: ValidationOptions,
    source: SourceOfTables,
) -> TrainingTask:
    """Return the training data without the labels and gold of the items that are not to be trained on."""
    import numpy as np

    from dissensus.cli.inputs import validation_by_column, validation_by_share_or_file

    training, scoring = gold.read_training(table), gold.read_scoring(table)
    held_out, validation = np.zeros(table.n_items, np.bool_), None
    if chosen.validation is not None or chosen.split is not None:
        if chosen.validation is not None and chosen.split is not None:
            raise faults.OptionsConflict(option=ParameterName("validation"), other_option="--split")
        if chosen.split is not None:
            excluded, held_out, validation = validation_by_column(chosen.split, file, table, X)
        else:
            excluded, held_out, validation = validation_by_share_or_file(str(chosen.validation), table, X, source)
        table = table.select(rows=~excluded[table.item])
        training = None if training is None else np.where(excluded, -1, training)
    return TrainingTask(table, X, inputs, file, training, scoring, held_out, validation)


def _fit(
    model: CrowdClassifier, data: TrainingTask, folds: int | None, source: SourceOfTables, *, show_total: bool
) -> OutOfFold | None:
    """Fit the classifier, and return its predictions out of fold if `folds` are given.

    `show_total` is False if the number of passes is not known in advance.
    """
    passes = model.epochs * (1 + (folds or 0)) if show_total else None
    with show.show_progress(f"training on {source.file}", passes) as on_step:
        model.fit(data.table, data.X, gold=data.gold, validation=data.validation, on_step=on_step)
        model.held_out_ |= data.held_out
        if folds is None:
            return None
        from dissensus.learning import out_of_fold

        return out_of_fold(
            model, data.table, data.X, gold=data.gold, validation=data.validation, folds=folds, seed=model.seed or 0,
            on_step=lambda epoch, loss: on_step(model.n_iter_ + epoch, loss),
        )  # fmt: skip


class COMMAND_CLASS(TyperCommand):  # noqa: N801 - the name that `load_command` looks up
    """The command; its help lists what is registered, whose import takes torch and seconds."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help with the names and summaries of encoders and objectives."""
        for word in ("encoders", "objectives"):
            try:
                registry = getattr(import_module(f"dissensus.learning.{word}"), word)
                listed = "; ".join(f"{name} ({entry.summary})" for name, entry in registry.entries())
            except MissingExtra as error:
                listed = str(error)
            self.help = (self.help or "").replace(word.upper(), listed)
        super().format_help(ctx, formatter)


def new_classifier(kind: str, encoder: str | None, objective: str, given: list[str]) -> CrowdClassifier:
    """Return a classifier for a kind of input, with KEY=VALUE settings of itself and its parts."""
    from dissensus.learning import CrowdClassifier
    from dissensus.learning.encoders import encoders
    from dissensus.learning.objectives import objectives

    settings_by_part: dict[str, list[str]] = {"": [], "encoder": [], "objective": []}
    for setting in given:
        part, dot, _ = setting.partition("=")[0].partition(".")
        if dot and part not in settings_by_part:
            raise faults.UnknownSetting(setting=setting, owner="train", key=part, available=tuple(settings_by_part)[1:])
        settings_by_part[part if dot else ""].append(setting.removeprefix(f"{part}.") if dot else setting)
    name = ENCODERS[kind] if encoder is None else encoder
    of_encoder = settings.parse_settings(settings_by_part["encoder"], encoders[name], name, part="encoder")
    if encoder is None and name == "transformer":
        of_encoder = {"tune": False} | of_encoder  # a last layer over fixed vectors takes seconds, not minutes
    of_objective = settings.parse_settings(
        settings_by_part["objective"], objectives[objective], objective, part="objective"
    )
    found = settings.parse_settings(
        settings_by_part[""], CrowdClassifier, "train", taken=("encoder", "objective", "checkpoint")
    )
    parts = {"encoder": encoders[name](**of_encoder), "objective": objectives[objective](**of_objective)}
    model = CrowdClassifier(**found, **parts)
    model.check()
    return model


def _summarise(
    model: CrowdClassifier, inputs: Inputs, table: Annotations, folded: OutOfFold | None, seconds: float
) -> dict[str, Any]:
    import numpy as np

    from dissensus import __version__
    from dissensus.learning.encoders import encoders
    from dissensus.learning.objectives import objectives
    from dissensus.models.base import arg_max

    label = arg_max(model.posterior_, model.items_, model.classes_, model.tie_seed_)
    counts = np.bincount(label, minlength=model.classes_.size)
    kept = {} if model.best_epoch_ is None else dict(model.history_[model.best_epoch_ - 1])
    parameters = model.get_params(deep=False)
    taught = model.labelled_ & ~model.held_out_
    return {
        "version": __version__,
        "inputs": asdict(inputs),
        "encoder": encoders.get_name(type(model.encoder_)),
        "objective": objectives.get_name(type(model.objective_)),
        "parameters": {
            key: parameters[key] for key in parameters if key not in ("encoder", "objective", "checkpoint", "log")
        }
        | {"encoder": model.encoder_.get_params(), "objective": model.objective_.get_params()},
        "annotations": table.n_annotations,
        "annotations_taught": int(taught[table.item].sum()),
        "annotators": int(model.annotators_.size),
        "classes": model.classes_.tolist(),
        "items": int(model.items_.size),
        "taught": int(taught.sum()),
        "held_out": int(model.held_out_.sum()),
        "without_labels": int((~model.labelled_ & ~model.held_out_).sum()),
        "note": model.note_,
        "candidates": model.candidates_,
        "epochs": model.n_iter_,
        "best_epoch": model.best_epoch_,
        "loss": float(model.trace_[-1]) if model.trace_.size else None,
        "validation": {key: kept[key] for key in kept if key not in ("epoch", "loss", "seconds")},
        "folds": None if folded is None else int(folded.fold.max()) + 1,
        "seconds": seconds,
        "labels": dict(zip(map(str, model.classes_), counts.tolist(), strict=True)),
    }


def _score_against_gold(model: CrowdClassifier, gold: IntArray, folded: OutOfFold | None) -> dict[str, Any]:
    """Return scores of labels of annotated items, and of the model alone on held-out, unlabelled and training items."""
    from dissensus.cli.results import gold_scores

    def scores(proba: FloatArray, rows: BoolArray) -> dict[str, Any]:
        at = ((gold >= 0) & rows).nonzero()[0]
        return gold_scores(gold[at], proba[at].argmax(axis=1) == gold[at], proba[at])

    annotated = model.labelled_
    taught = model.labelled_ & ~model.held_out_
    result: dict[str, Any] = {"labels": scores(model.posterior_, annotated), "model": {}}
    if folded is not None:
        result["model"]["out of fold"] = scores(folded.proba, folded.fold >= 0)
        result["labels out of fold"] = scores(folded.posterior, annotated)
    for basis, rows in (
        ("held out", model.held_out_),
        ("without labels", ~annotated & ~model.held_out_),
        ("trained on", taught),
    ):
        result["model"][basis] = scores(model.proba_, rows)
    result["model"] = {basis: found for basis, found in result["model"].items() if found["items"]}
    if not (gold >= 0).any():
        warnings.warn(NoGoldToScore(), stacklevel=2)
    return result


def _write_tables(model: CrowdClassifier, folded: OutOfFold | None, part: Path, suffix: str) -> None:
    from dissensus.table.io import write_frame

    for kind in ("items", "annotators", "history"):
        write_frame(model.to_frame(kind), part / f"{kind}.{suffix}")
    if folded is not None:
        write_frame(folded.to_frame(), part / f"out_of_fold.{suffix}")
    model.save(part)


def _print_training(about: dict[str, Any]) -> None:
    networks = sum(candidate["networks"] for candidate in about["candidates"])
    trained = f"{about['epochs']:,} epochs"
    if networks > 1:
        each, rest = divmod(about["epochs"], networks)
        trained = f"{networks:,} networks of {'about ' if rest else ''}{each:,} epochs"
    show.print_line(
        f"{show.escape(about['input'])}: {about['encoder']} trained on {about['annotations_taught']:,} annotations of "
        f"{about['taught']:,} items ({about['objective']}), {trained} in {about['seconds']:.1f} s"
    )
    if about["note"]:
        show.print_text(f"{about['note'][0].upper()}{about['note'][1:]}")
    elif about["best_epoch"]:
        scores = ", ".join(f"{key} {value:.4f}" for key, value in about["validation"].items())
        show.print_line(
            f"Kept: epoch {about['best_epoch']}; on {show.format_count(about['held_out'], 'held-out item')}: {scores}."
        )
    show.print_bars(("label, by model and labels", "items"), about["labels"], about["items"])
    if (gold := about.get("gold")) is None:
        return
    found = {"labels and model": gold["labels"], "the same, out of fold": gold.get("labels out of fold")}
    found |= {f"model, {basis}": scores for basis, scores in gold["model"].items()}
    rows = []
    for what, score in found.items():
        if score is not None and score["items"]:
            bounds = f"{score['accuracy_low']:.4f} to {score['accuracy_high']:.4f}"
            rows.append((what, f"{score['items']:,}", f"{score['accuracy']:.4f}", bounds, f"{score['log_loss']:.3f}"))
    columns = ("what", "items", "accuracy", "95 % interval", "log loss")
    if rows:
        show.print_table("By gold", columns, rows, numbers=columns[1:3])
