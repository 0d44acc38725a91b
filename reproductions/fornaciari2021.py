"""Tables 1 to 3 of Fornaciari et al. 2021: soft labels as a second task, for part-of-speech tags and for stems.

A cell of Tables 1 and 2 is one seed of one condition with all its folds, which are those of the released code: for
tags, five over tokens, stratified by gold, or the first 13,000 tokens to train on and `plank_pos` to test on; for
stems, the data's `fold10`, with the next fold for development. A line keeps the predictions (of every item by how many
classes it is off, packed), so that stars and Table 3 are made of lines when the page is written.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import dissensus as dz
from dissensus.common.types import FloatArray, IntArray
from dissensus.evaluation import macro_f1, paired_bootstrap
from dissensus.exceptions import DataWarning
from reproductions.experiment import Cell, ExtraResults, Values
from reproductions.pooled import bootstrap_p_values, pack, unpack
from reproductions.prepared import prepared_words
from reproductions.verdict import Claim, GetValues, PairedDifference, assess, compare_conditions, paired
from reproductions.watch import no_progress

TASKS = {"pos": ("gimpel_pos", ("text", "position")), "stemming": ("stemming", ("text", "text_pair"))}
PAPERS = ("POS, 5 folds", "POS, separate test", "stemming, 10 folds")
STL, INVERSE = "STL", "MTL, inverse KL"
LOSSES = ("MTL, KL", INVERSE, "MTL, cross entropy")
JUDGED = ("MTL, KL", INVERSE)
"""Cross entropy has KL's gradients, and ends in the same network: one result is not counted twice."""
KEYWORDS: dict[str, Any] = {
    "epochs": 10, "batch_size": 1024, "learning_rate": 1e-3, "monitor": "macro-f1", "precision": "32-true",
}  # fmt: skip
FOLDS, DIMENSIONS = 5, 300
SAMPLES = {"pos": 1_000, "stemming": 10_000}
"""What the released runs have."""


@dataclass(frozen=True, eq=False)
class Fold:
    """Row numbers of training and development items; inputs, gold and votes of the test items."""

    train: IntArray
    dev: IntArray
    X: list[Any]
    truth: IntArray
    votes: FloatArray


@cache
def load(task: str) -> tuple[Any, list[Any]]:
    """Load a data set with all its items, and X."""
    name, columns = TASKS[task]
    data: Any = dz.load_dataset(name).with_unlabelled_items
    return data, list(zip(*(data.items[column].to_pylist() for column in columns), strict=True))


def folds(how: dict[str, Any], seed: int) -> Iterator[Fold]:
    """Yield the folds of a cell; `items` and `folds` shorten them."""
    data, X = load(how["task"])
    if how["split"] == "separate":
        parts = [separate(data)]
    else:
        votes = data.annotations.votes()
        parts = [
            Fold(train, dev, [X[i] for i in test], data.gold[test], votes[test])
            for train, dev, test in places(how, seed)
        ]
    n = how.get("items")
    for one in parts[: how.get("folds")]:
        few = slice(n and n // 2)
        yield Fold(np.sort(one.train)[:n], np.sort(one.dev)[few], one.X[few], one.truth[few], one.votes[few])


def separate(data: Any) -> Fold:
    """Make the fold whose test items are other tweets, which have no votes."""
    train, dev = (_row_mask(data, "split_naacl21", name) for name in ("train", "dev"))
    other_data: Any = dz.load_dataset("plank_pos").with_unlabelled_items
    test = _row_mask(other_data, "split", "test")
    X = list(zip(*(other_data.items[column].to_pylist() for column in TASKS["pos"][1]), strict=True))
    code = {name: k for k, name in enumerate(data.annotations.classes)}
    truth = np.array([code[other_data.annotations.classes[k]] for k in other_data.gold[test]])
    return Fold(train, dev, [X[i] for i in test], truth, np.zeros((test.size, len(code))))


def places(how: dict[str, Any], seed: int) -> Iterator[tuple[IntArray, IntArray, IntArray]]:
    """Yield row numbers of the training, development and test items of every fold."""
    data, X = load(how["task"])
    if how["split"] == "given":
        yield tuple(_row_mask(data, "split", name) for name in ("train", "dev", "test"))  # type: ignore[misc]  # three
    elif how["task"] == "stemming":
        number = np.array(data.items["fold10"].to_pylist()).astype(int)
        for fold in range(10):
            test, dev = number == fold, number == (fold + 1) % 10
            yield np.flatnonzero(~test & ~dev), np.flatnonzero(dev), np.flatnonzero(test)
    else:
        from sklearn.model_selection import StratifiedKFold

        held_out = len(X) // FOLDS
        for rest, tested in StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(data.gold, data.gold):
            rest = np.random.default_rng(seed).permutation(rest)
            yield rest[:-held_out], rest[-held_out:], tested


def _row_mask(data: Any, column: str, name: str) -> IntArray:
    return np.flatnonzero(np.array(data.items[column].to_pylist()) == name)


def silver(task: str, seed: int) -> IntArray:
    """Return the majority of the votes (I,); gold without votes (`@USER`, `URL`: always NOUN in the paper's data)."""
    data, _ = load(task)
    method: Any = dz.methods["majority-vote"]
    code = {name: k for k, name in enumerate(data.annotations.classes)}
    voted = np.array([code[name] for name in method(seed=seed).fit(data.annotations).predict()])
    return np.where(data.annotations.votes().sum(axis=1) > 0, voted, data.gold)


def dawid_skene(task: str, seed: int) -> IntArray:
    """Classes (I,) by Dawid-Skene, which knows who voted; gold where there are no votes, as `silver` has it."""
    data, _ = load(task)
    method: Any = dz.methods["dawid-skene"]
    found = method(seed=seed).fit(data.annotations).posterior_.argmax(axis=1)
    return np.asarray(np.where(data.annotations.votes().sum(axis=1) > 0, found, data.gold))


def words() -> str:
    """Path of the word vectors: MiniLM's input embeddings in 300 dimensions, where the paper has GloVe's."""

    def make_vocabulary() -> list[str]:
        from dissensus.learning.encoders.words import build_vocabulary

        sets: list[Any] = [dz.load_dataset(name).with_unlabelled_items for name in ("gimpel_pos", "plank_pos")]
        return build_vocabulary(text.split() for data in sets for text in data.items["text"].to_pylist())

    return prepared_words("gimpel-words.txt", make_vocabulary, DIMENSIONS, 3)


def prepare() -> None:
    """Make what needs MiniLM."""
    words()


# Tables 1 and 2 -------------------------------------------------------------------------------------------------------


def table1(cell: Cell, device: str) -> tuple[Values, ExtraResults]:
    """Train on gold."""
    return tested(cell, device, load(cell.keywords["task"])[0].gold)


def table2(cell: Cell, device: str) -> tuple[Values, ExtraResults]:
    """Train on silver."""
    return tested(cell, device, silver(cell.keywords["task"], cell.seeds[0]))


def train_variant(cell: Cell, device: str) -> tuple[Values, ExtraResults]:
    """Train other networks, or on other splits, on gold, silver or Dawid-Skene's labels."""
    if cell.keywords.get("dawid_skene"):
        return tested(cell, device, dawid_skene(cell.keywords["task"], cell.seeds[0]))
    return (table2 if cell.keywords.get("silver") else table1)(cell, device)


stems = beyond = train_variant


def tested(cell: Cell, device: str, labels: IntArray) -> tuple[Values, ExtraResults]:
    """Train on all folds and test, with one seed; the first cell keeps what is true of the items for all."""
    (seed,), how = cell.seeds, cell.keywords
    parts = list(folds(how, seed))
    predicted = np.concatenate([train(how, fold, labels, seed, device) for fold in parts])
    truth, votes = np.concatenate([f.truth for f in parts]), np.concatenate([f.votes for f in parts])
    K = votes.shape[1]
    extra: ExtraResults = {"off": pack((predicted - truth) % K)}
    if cell.condition == STL and seed == 0:
        patterns, which = np.unique(-np.sort(-votes, axis=1).astype(int), axis=0, return_inverse=True)
        extra |= {"truth": pack(truth), "votes": patterns.tolist(), "pattern": pack(which.ravel(), np.uint16)}
    values = {
        "accuracy": [round(float((predicted == truth).mean()), 6)],
        "f1": [round(macro_f1(truth, predicted), 6)],
    }
    if cell.table == "stems":  # The released code also tests models trained on silver against the majority.
        untied = votes[:, 0] != votes[:, 1]
        values["silver_f1"] = [round(macro_f1(votes[untied].argmax(axis=1), predicted[untied]), 6)]
        values["no"] = [round(float((predicted == 0).mean()), 6)]
    return values, extra


def train(how: dict[str, Any], fold: Fold, labels: IntArray, seed: int, device: str) -> IntArray:
    """Train one network; return the classes (I,) that it predicts."""
    if "program" in how:
        from reproductions.released_stemmer import predict_released

        data, X = load(how["task"])
        votes = data.annotations.votes()
        tied = votes[:, 0] == votes[:, 1] if "ties" in how else np.zeros(len(X), np.bool_)
        return predict_released(
            X, votes, labels, fold.train[~tied[fold.train]], fold.dev[~tied[fold.dev]], fold.X, seed=seed,
            divergence=how.get("divergence"), ours=how["program"], epochs=how.get("epochs", KEYWORDS["epochs"]),
            device=device,
        )  # fmt: skip
    model = learn(how, fold, labels, seed, device)
    return np.asarray(model.predict_proba(fold.X).argmax(axis=1))


def learn(how: dict[str, Any], fold: Fold, labels: IntArray, seed: int, device: str) -> Any:
    """Train one network."""
    from dissensus.learning import CrowdClassifier
    from dissensus.learning.encoders import Tagger
    from dissensus.learning.encoders.stemmer import Stemmer
    from dissensus.learning.objectives import Hard, SoftTask

    data, X = load(how["task"])
    variant, divergence = how.get("variant"), how.get("divergence")
    chosen = np.zeros(len(X), bool)
    chosen[fold.train] = True
    if how.get("ties") == "out":
        votes = data.annotations.votes()
        chosen &= votes[:, 0] != votes[:, 1]
    encoder: Any
    if how["task"] == "pos":
        vectors = None if variant == "learnt vectors" else words()
        encoder = Tagger(vectors=vectors, dimensions=DIMENSIONS, hidden=how.get("lstm", 256))
    else:
        encoder = Stemmer(hidden=256 if variant == "hidden layer" else None, **how.get("network", {}))
        if variant == "characters of the tags":
            encoder.set_params(start=characters_of_tags(seed, device, how.get("items")))
    model = CrowdClassifier(
        encoder=encoder,
        objective=Hard(labels="gold") if divergence is None else SoftTask(labels="gold", divergence=divergence),
        device=device, seed=seed, **KEYWORDS | {name: how[name] for name in KEYWORDS.keys() & how.keys()},
    )  # fmt: skip
    model.fit(
        data.annotations.select(items=chosen), [X[i] for i in np.flatnonzero(chosen)], gold=labels[chosen],
        validation=([X[i] for i in fold.dev], labels[fold.dev]), on_step=no_progress,
    )  # fmt: skip
    return model


@cache
def characters_of_tags(seed: int, device: str, items: int | None) -> dict[str, list[float]]:
    """Character → its vector (100,) in the tagger, trained on gold."""
    how = {"task": "pos", "split": "separate"} | ({} if items is None else {"items": items, "lstm": 32})
    model = learn(how, next(folds(how, seed)), load("pos")[0].gold, seed, device)
    annotator_names, table = model.encoder_.characters_, model.network_.encoder.characters.weight
    return dict(zip(annotator_names, table[len(table) - len(annotator_names) :].tolist(), strict=True))


# Derived results: stars and Table 3 -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Outcome:
    """Gold and soft labels of one data set in one table, and predictions by condition and seed."""

    truth: IntArray  # (I,)
    soft: FloatArray  # (I, K) soft labels, their entries sorted
    predicted: dict[str, dict[int, IntArray]]

    def pairs(self, condition: str) -> dict[int, tuple[IntArray, IntArray]]:
        """Seed → predictions of STL and of the condition, for seeds that both have."""
        stl, mtl = (self.predicted.get(name, {}) for name in (STL, condition))
        return {seed: (stl[seed], mtl[seed]) for seed in sorted(stl.keys() & mtl.keys())}


def outcome(lines: list[dict[str, Any]]) -> Outcome | None:
    """Unpack the lines of a data set in a table; None if the line with the gold labels is missing."""
    whole = next((line["kept"] for line in lines if "truth" in line["kept"]), None)
    if whole is None:
        return None
    truth, votes = unpack(whole["truth"]), np.array(whole["votes"], float)
    shares = np.exp(votes - votes.max(axis=1, keepdims=True))
    soft = (shares / shares.sum(axis=1, keepdims=True))[unpack(whole["pattern"], np.uint16)]
    predicted: dict[str, dict[int, IntArray]] = {}
    for line in lines:
        off = unpack(line["kept"]["off"])
        if off.size == truth.size:
            predicted.setdefault(line["condition"], {})[line["seeds"][0]] = (truth + off) % votes.shape[1]
    return Outcome(truth, soft, predicted)


def derived(results: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Make the lines with the tests of Tables 1 and 2, and those of Table 3."""
    records: list[dict[str, Any]] = []
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for line in results.values():
        groups.setdefault((line["table"], line["data"]), []).append(line)

    def add(table: str, data: str, condition: str, seed: int, **values: float) -> None:
        given = {name: [value] for name, value in values.items() if np.isfinite(value)}
        where = {"paper": "fornaciari2021", "table": table, "data": data, "condition": condition}
        records.append(where | {"seeds": [seed], "values": given})

    for (table, data), lines in groups.items():
        if (one := outcome(lines)) is None:
            continue
        for condition in LOSSES:
            if not (pairs := one.pairs(condition)):
                continue
            truth = np.tile(one.truth, len(pairs))
            stl, mtl = (np.concatenate([pair[which] for pair in pairs.values()]) for which in (0, 1))
            samples = SAMPLES[lines[0]["keywords"]["task"]]
            p_accuracy, p_f1 = bootstrap_p_values(truth, stl, mtl, one.soft.shape[1], samples)
            right = [(given == truth).reshape(len(pairs), -1).mean(axis=0) for given in (mtl, stl)]
            p_items = paired_bootstrap(*right).p_value
            add(table, data, condition, 0, p_accuracy=p_accuracy, p_f1=p_f1, p_items=p_items)
            if table == "table1" and data in PAPERS and np.ptp(one.soft) > 0:
                for seed, (first, second) in pairs.items():
                    add("table3", data, condition, seed, **kurtoses(first, second, one.truth, one.soft))
                pooled = kurtoses(stl, mtl, truth, np.tile(one.soft, (len(pairs), 1)))
                add("table3", data, condition, 0, p=pooled["test"])
    silver = groups.get(("table2", PAPERS[2]), [])
    if (pairs_of_stems := outcome(silver)) is not None:  # without tied pairs, as the released code tests silver
        clear = pairs_of_stems.soft[:, 0] != pairs_of_stems.soft[:, 1]
        for line in [*silver, *groups.get(("stems", "silver"), [])]:
            right = unpack(line["kept"]["off"]) == 0
            if right.size == clear.size:
                where = line["table"], line["data"], line["condition"], line["seeds"][0]
                add(*where, untied=round(float(right[clear].mean()), 6))
    return records


def kurtoses(stl: IntArray, mtl: IntArray, truth: IntArray, soft: FloatArray) -> dict[str, float]:
    """Mean kurtosis of the soft labels where both, one or none is right; p of the two mixed cells as `test`."""
    from dissensus.evaluation.error_cells import error_cells

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # The page mentions that there are two classes only.
        cells = error_cells(stl, mtl, truth, soft)
    (both, only_stl), (only_mtl, neither) = cells.kurtosis
    return {
        "both": both, "only_stl": only_stl, "only_mtl": only_mtl, "neither": neither,
        "test": float("nan") if cells.test is None else float(cells.test.pvalue),
    }  # fmt: skip


# Claims ---------------------------------------------------------------------------------------------------------------


def claims(get: GetValues) -> list[Claim]:
    """Judge what the paper's abstract, conclusion and error analysis say."""

    def points(table: str, better: str, than: str, metrics: tuple[str, ...] = ("accuracy", "f1"),
               data: tuple[str, ...] = PAPERS) -> dict[str, PairedDifference]:  # fmt: skip
        """Differences in points, for what was run."""
        return {
            f"{where}, {metric}, {better.removeprefix('MTL, ')}": one
            for where in data for metric in metrics
            for one in compare_conditions(get, table, [where], better, than, metric, scale=100).values()
        }  # fmt: skip

    def any_loss(table: str, **which: Any) -> dict[str, PairedDifference]:
        """Differences of every loss but cross entropy to STL."""
        return {name: one for loss in JUDGED for name, one in points(table, loss, STL, **which).items()}

    best = {
        f"{table}, {name} − KL": one
        for table in ("table1", "table2") for name, one in points(table, INVERSE, "MTL, KL", ("accuracy",)).items()
    }  # fmt: skip
    stacking = compare_conditions(get, "stems", ["gold"], "one convolution", "as in table 1", "f1", scale=100)
    taught = {
        f"{where}, {metric}, {loss}": paired(mine, theirs, scale=100)
        for where in PAPERS[:2] for metric in ("accuracy", "f1") for loss in (STL, *JUDGED)
        if (mine := get("beyond", f"{where}, Dawid-Skene", loss, metric))
        and (theirs := get("table2", where, loss, metric))
    }  # fmt: skip
    sharper, hidden = {}, "stemming, 10 folds, hidden layer"
    for condition in JUDGED:
        mine, theirs = (get("table3", "POS, 5 folds", condition, name) for name in ("only_mtl", "only_stl"))
        if mine and theirs:
            sharper[f"POS, {condition.removeprefix('MTL, ')}"] = paired(mine, theirs)
    return [
        assess("Soft-label multi-task beats single-task, trained on gold (points)", any_loss("table1")),
        assess("… trained on silver", any_loss("table2")),
        assess(
            "… where the stemmer can compare word and stem (not in the paper)",
            any_loss("beyond", data=(hidden, f"{hidden}, silver")),
        ),
        assess(
            "… with word vectors that start at random (not in the paper)",
            any_loss("beyond", data=("POS, 5 folds, learnt vectors",)),
        ),
        assess(
            "… trained on Dawid-Skene's labels (not in the paper)",
            any_loss("beyond", data=("POS, 5 folds, Dawid-Skene", "POS, separate test, Dawid-Skene")),
        ),
        assess("Dawid-Skene's labels teach more than silver (not in the paper)", taught),
        assess("Stacked convolutions, which the released code has not, cost macro-F1 on the stems (points)", stacking),
        assess("Inverse KL is the best of the losses, gold and silver (points)", best),
        assess(
            "Annotators agree more (kurtosis) where only multi-task is right than where only single-task is", sharper
        ),
    ]
