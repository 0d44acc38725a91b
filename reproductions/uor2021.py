"""Tables 3, 4 and Figure 2 of UoR at SemEval-2021: majority labels, SAM, crowd layers; LabelMe, Gimpel-POS, CIFAR-10H.

LabelMe: 512 VGG features and the paper's MLP. Gimpel-POS: `[CLS] tweet [SEP] token [SEP]`, MiniLM fine-tuned;
Le-Wi-Di's split (tweets 0-599 teach, 800-999 are the test). CIFAR-10H: a wide residual network; what is known are
counts of votes, so few votes are drawn from them, and crowd layers have annotators that are simulated from them.
"""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import dissensus as dz
from dissensus.common.types import BoolArray, FloatArray, IntArray
from dissensus.evaluation import cross_entropy, macro_f1
from dissensus.exceptions import ConvergenceWarning
from dissensus.table.annotations import Annotations
from reproductions.experiment import Cell, SeedValues, Values
from reproductions.prepared import prepared_folder
from reproductions.verdict import Claim, GetValues, PairedDifference, assess, assess_equality, compare_conditions
from reproductions.watch import no_progress

HELD_OUT_PARTS = 10
TRAIN_IMAGES = 7_000  # Training images of 9,500 images of CIFAR-10H, the number that the task has.
ERRORS = (1.19, 23.1)
"""Beta prior of an annotator's rate of errors on CIFAR-10H, fitted to the 500 images whose annotators are known."""
EQUAL_MARGIN = 0.02  # F1 scores that differ by less count as equal.
KEYWORDS = ("labels", "kind", "link", "start")  # those of a condition that are its objective's
How = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """Training and test data of one training, and its encoder."""

    table: Annotations
    X: Any
    gold: IntArray  # Gold of the training items, −1 if unknown.
    new_inputs: Any  # Inputs that are predicted.
    truth: IntArray  # their classes, −1 where unknown
    shares: FloatArray  # (n, K) vote shares, zero without votes.
    encoder: Any
    validation: Any = None


def table3(cell: Cell, device: str) -> Values:
    """Learn from one set in one way."""
    from dissensus.learning import CrowdClassifier
    from dissensus.learning.objectives import objectives

    found = SeedValues()
    for seed in cell.seeds:
        how = dict(cell.keywords)
        task = TASKS[how["set"]](seed, how)
        kind: Any = objectives[how["objective"]]
        told = {"link": "softmax"} if how["objective"] == "crowd-layer" else {}  # the paper's; not our default
        model = CrowdClassifier(
            encoder=task.encoder, objective=kind(**told | {name: how[name] for name in KEYWORDS if name in how}),
            sam=how.get("sam"), mixup=how.get("mixup"), epochs=how["epochs"], device=device, seed=seed, **training(how),
        )  # fmt: skip
        gold = task.gold if how.get("labels") == "gold" else None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # Dawid-Skene's labels do not need convergence.
            model.fit(task.table, task.X, gold=gold, validation=task.validation, on_step=no_progress)
        scores = measured(task.truth, task.shares, model.predict_proba(task.new_inputs), how.get("least", 0.0))
        known = task.gold >= 0
        scores["posterior"] = float((model.posterior_.argmax(axis=1) == task.gold)[known].mean())
        scores["epochs"] = float(model.best_epoch_ or model.n_iter_)
        found.add(**scores)
    return found.values


wide = table3


def training(how: How) -> How:
    """Keywords of the classifier; a crowd layer may have its own. Epochs in TOML are texts."""
    own = how.get("optimizer_of", "crowd" if how["objective"] == "crowd-layer" and "crowd" in how else "train")
    told = dict(how[own])
    if isinstance(told.get("schedule"), dict):
        told["schedule"] = {int(epoch): factor for epoch, factor in told["schedule"].items()}
    return told


def measured(truth: IntArray, shares: FloatArray, proba: FloatArray, least: float) -> dict[str, float]:
    """Score by gold where it is known, and by votes where there are any.

    A network that is certain and wrong has an infinite cross entropy: no probability counts as less than `least`.
    """
    known, voted = truth >= 0, shares.sum(axis=1) > 0
    best = proba.argmax(axis=1)
    clipped = np.maximum(proba[voted], least)
    return {
        "f1": macro_f1(truth[known], best[known]),
        "cross_entropy": float(cross_entropy(shares[voted], clipped / clipped.sum(axis=1, keepdims=True)).mean()),
        "accuracy": float((best == truth)[known].mean()),
    }


# Sets -----------------------------------------------------------------------------------------------------------------


def labelme(seed: int, how: How) -> Task:
    """Seed s holds out the s-th tenth of the annotated images, scored by votes; gold scores the test images."""
    parts = split("labelme")
    train, test = first_items(parts["train"], how), first_items(parts["test"], how)
    held = np.random.default_rng(0).permutation(train.item_names.size) % HELD_OUT_PARTS == seed % HELD_OUT_PARTS
    votes: Annotations = train.annotations.select(items=held)
    nothing = np.zeros((test.gold.size, votes.n_classes))
    return Task(
        table=train.annotations.select(items=~held), X=train.features[~held], gold=train.gold[~held],
        new_inputs=np.concatenate([test.features, train.features[held]]),
        truth=np.concatenate([test.gold, np.full(held.sum(), -1)]),
        shares=np.concatenate([nothing, votes.soft_labels()]), encoder="mlp",
        validation=(train.features[held], votes) if "patience" in how["train"] else None,
    )  # fmt: skip


def gimpel_pos(seed: int, how: How) -> Task:
    """Tokens of tweets, each with its tweet (MiniLM) or its position in the tweet (tagger)."""
    from dissensus.learning.encoders import Tagger, Transformer

    parts, pairs = split("gimpel_pos"), how["encoder"] == "transformer"
    train, test = first_items(parts["train"], how), first_items(parts["test"], how)

    def inputs(part: Any) -> list[Any]:
        other = part.items["token" if pairs else "position"].to_pylist()
        return list(zip(part.items["text"].to_pylist(), other if pairs else map(int, other), strict=True))

    return Task(
        table=train.annotations, X=inputs(train), gold=train.gold,
        new_inputs=inputs(test), truth=test.gold, shares=shares_of(test.annotations),
        encoder=Transformer(minilm(), max_length=96) if pairs else Tagger(),
    )  # fmt: skip


def cifar10h(seed: int, how: How) -> Task:
    """7,000 images teach, drawn once; the others are the test."""
    from dissensus.learning.encoders import WideResNet

    whole = cifar_images()
    order = np.random.default_rng(0).permutation(whole.item_names.size)
    n = how.get("items", order.size)
    train, test = (
        whole.select_items(np.isin(np.arange(order.size), part[:n]))
        for part in (order[:TRAIN_IMAGES], order[TRAIN_IMAGES:])
    )
    table: Annotations = train.annotations
    if "votes" in how:
        table = draw_votes(table, how["votes"], seed)
    if how["objective"] == "crowd-layer":
        dataset: Any = dz.load_dataset("cifar10h", votes="annotations")
        table = simulate_annotators(table, dataset.annotations, seed)
    return Task(
        table=table, X=train.images, gold=train.gold, new_inputs=test.images, truth=test.gold,
        shares=shares_of(test.annotations), encoder=WideResNet(depth=how["depth"], widen=how["widen"]),
    )  # fmt: skip


TASKS: dict[str, Callable[[int, How], Task]] = {"labelme": labelme, "gimpel_pos": gimpel_pos, "cifar10h": cifar10h}


@cache
def split(name: str) -> Any:
    """Split → its part of the set."""
    return dz.load_dataset(name).splits


@cache
def cifar_images() -> Any:
    """CIFAR-10H as counts of votes, images with pixels only."""
    whole = dz.load_dataset("cifar10h", votes="counts")
    return whole.select_items(whole.has_image)


def first_items(part: Any, how: How) -> Any:
    """Select the first items, if the TOML file limits their number."""
    return part.select_items(np.arange(part.item_names.size) < how["items"]) if "items" in how else part


def shares_of(table: Annotations) -> FloatArray:
    """Shares of an item's votes (I, K); zero where it has none."""
    voted: BoolArray = np.diff(table.item_ptr) > 0
    return np.asarray(np.where(voted[:, None], table.soft_labels(), 0.0))


def draw_votes(table: Annotations, votes: int, seed: int) -> Annotations:
    """Draw `votes` votes of each item, without replacement."""
    key = np.random.default_rng((seed, votes)).random(table.n_annotations)
    order = np.lexsort((key, table.item))  # rows of an item stay together
    place = np.arange(order.size) - table.item_ptr[table.item[order]]
    return table.select(rows=order[place < votes])


def simulate_annotators(table: Annotations, known_annotations: Annotations, seed: int) -> Annotations:
    """Assign votes without annotators to annotators of `known`, drawn anew for every seed.

    An item's votes go to as many different annotators. Who of them gave the labels that are not the item's most
    frequent is drawn one after another, by rates of errors. An annotator's rate is drawn from what `known` says of it.
    """
    draw = np.random.default_rng((seed, known_annotations.n_annotators))
    wrong_known = known_annotations.label != known_annotations.soft_labels().argmax(axis=1)[known_annotations.item]
    errors = np.bincount(known_annotations.annotator, wrong_known, known_annotations.n_annotators)
    given = np.bincount(known_annotations.annotator, minlength=known_annotations.n_annotators)
    rate = draw.beta(ERRORS[0] + errors, ERRORS[1] + given - errors)  # (A,)
    annotator = draw_distinct_annotators(table.item, known_annotations.n_annotators, draw)  # (N,)
    # the least of Exponential / rate come first: drawn by rate, without replacement (Efraimidis & Spirakis 2006)
    erring = annotator[np.lexsort((draw.exponential(size=annotator.size) / rate[annotator], table.item))]
    right = table.label == table.soft_labels().argmax(axis=1)[table.item]
    label = table.label[np.lexsort((draw.random(annotator.size), right, table.item))]  # wrong ones first
    return Annotations.from_codes(table.item, erring, label, table.items, known_annotations.annotators, table.classes)


def draw_distinct_annotators(item: IntArray, n: int, draw: np.random.Generator) -> IntArray:
    """Draw one of n annotators for every row (N,), no annotator twice for an item: repeated ones are drawn again."""
    who = draw.integers(n, size=item.size)
    while True:
        order = np.lexsort((who, item))
        again = order[1:][(np.diff(who[order]) == 0) & (np.diff(item[order]) == 0)]
        if not again.size:
            return who
        who[again] = draw.integers(n, size=again.size)


# MiniLM ---------------------------------------------------------------------------------------------------------------


def minilm() -> str | None:
    """Return the folder that `prepare` made, or None for the bundled model."""
    folder = prepared_folder() / "minilm"
    return str(folder) if (folder / "config.json").exists() else None


def prepare() -> None:
    """Copy MiniLM for a machine without it, weights in half precision (43 MiB)."""
    from safetensors.torch import load_file, save_file

    from dissensus.features.hub import find_model_folder

    source, folder = find_model_folder(None), prepared_folder() / "minilm"
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: value.half() for name, value in load_file(source / "model.safetensors").items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    for file in sorted(source.iterdir(), key=lambda path: path.name == "config.json"):  # last: then all is there
        if file.suffix in (".json", ".txt"):
            shutil.copy(file, folder / file.name)


# Table 4 and Figure 2 -------------------------------------------------------------------------------------------------


def annotated(name: str) -> Annotations:
    """Return the annotations with annotator names: 500 images of CIFAR-10H, or the training items of another set."""
    dataset: Any = dz.load_dataset(name, votes="annotations") if name == "cifar10h" else split(name)["train"]
    table: Annotations = dataset.annotations
    return table


def table4(cell: Cell, device: str) -> Values:
    """Count annotators, classes, and the items that teach and have labels."""
    found, name = SeedValues(), cell.keywords["set"]
    table = annotated(name)
    size = TRAIN_IMAGES if name == "cifar10h" else table.n_items
    found.add(annotators=np.unique(table.annotator).size, classes=table.n_classes, size=size)
    return found.values


def draw(path: Path, device: str) -> None:
    """Draw uor2021-SET-densities.svg: how many labels annotators gave, by class."""
    from reproductions.label_figures import plot_label_density

    plot_label_density(annotated(path.stem.split("-")[1]), path)


# Claims ---------------------------------------------------------------------------------------------------------------

CROWD, NORMALIZED = "crowd layer, matrix, softmax", "crowd layer, matrix, normalize"
LABELME, STOPPED = "LabelMe", "LabelMe, stopped early"
ONE_EPOCH, EIGHT_EPOCHS = "Gimpel-POS, MiniLM, 1 epoch", "Gimpel-POS, MiniLM, 8 epochs"
ALL_VOTES, FEW_VOTES = "CIFAR-10H, all votes", ("CIFAR-10H, 3 votes", "CIFAR-10H, 1 vote")


def claims(get: GetValues) -> list[Claim]:
    """Judge what the paper says of crowd layers and SAM."""

    def lead(better: str, worse: str, *sets: str, metric: str = "f1") -> dict[str, PairedDifference]:
        """Differences between two conditions; lower cross entropy is better."""
        return compare_conditions(get, "table3", sets, better, worse, metric, lower=metric == "cross_entropy")

    by_gold = lead("gold (no crowd) + SAM", "gold (no crowd)", ALL_VOTES)
    return [
        assess("A crowd layer beats majority labels on LabelMe, F1", lead(CROWD, "majority", LABELME, STOPPED)),
        assess("… and by cross entropy", lead(CROWD, "majority", LABELME, STOPPED, metric="cross_entropy")),
        assess("… also with the other link (normalize), F1", lead(NORMALIZED, "majority", LABELME, STOPPED)),
        assess_equality(
            "BERT with a crowd layer is as good as with majority labels on Gimpel-POS, after one epoch",
            lead(CROWD, "majority", ONE_EPOCH),
            EQUAL_MARGIN,
        ),
        assess_equality("… after enough of them", lead(CROWD, "majority", EIGHT_EPOCHS), EQUAL_MARGIN),
        assess_equality(
            "… with the other link (normalize)", lead(NORMALIZED, "majority", ONE_EPOCH, EIGHT_EPOCHS), EQUAL_MARGIN
        ),
        assess("SAM helps on noisy majority labels, CIFAR-10H, F1", lead("majority + SAM", "majority", *FEW_VOTES)),
        assess("… by cross entropy", lead("majority + SAM", "majority", *FEW_VOTES, metric="cross_entropy")),
        assess(
            "… on clean ones, too (the majority of all votes; gold)",
            lead("majority + SAM", "majority", ALL_VOTES) | {f"{name}, gold": d for name, d in by_gold.items()},
        ),
        assess("… on LabelMe, where the majority is 77 % right", lead("majority + SAM", "majority", LABELME, STOPPED)),
        assess("… by cross entropy", lead("majority + SAM", "majority", LABELME, STOPPED, metric="cross_entropy")),
        assess("… on texts (Gimpel-POS, MiniLM)", lead("majority + SAM", "majority", ONE_EPOCH, EIGHT_EPOCHS)),
        assess(
            "… by cross entropy", lead("majority + SAM", "majority", ONE_EPOCH, EIGHT_EPOCHS, metric="cross_entropy")
        ),
        assess("SAM on majority labels beats a crowd layer on CIFAR-10H, F1", lead("majority + SAM", CROWD, ALL_VOTES)),
        assess(
            "… with the paper's network, WRN-16-12",
            compare_conditions(get, "wide", [ALL_VOTES], "majority + SAM", CROWD, "f1"),
        ),
        assess(
            "The crowd layer beats majority labels on CIFAR-10H where both have its optimiser (Adam, cosine), F1",
            lead(CROWD, "majority, optimiser of the crowd layer", ALL_VOTES),
        ),
        assess(
            "… where both have the optimiser of the majority (SGD), F1",
            lead(f"{CROWD}, optimiser of the majority", "majority", ALL_VOTES),
        ),
        assess(
            "A crowd layer has a better cross entropy than majority labels on CIFAR-10H",
            lead(CROWD, "majority", ALL_VOTES, metric="cross_entropy"),
        ),
    ]
