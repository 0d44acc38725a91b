"""Predict each annotator's label and the distribution of all: POPQUORN offensiveness, with and without metadata.

    python -m benchmarks.learning.perspectives        # options: see benchmarks/parts.py

The set has no split: five folds over the 1,500
comments, others for every seed, whole comments held out; models have MiniLM vectors of the comments. For *new
annotators* a fifth of the 262 annotators is held out as well, and asked about comments that others labelled in the
training part ("seen") and about those that nobody did ("unseen").

Of the held-out labels, as in Learning With Disagreements 2025: Manhattan and Wasserstein distance and KL(votes ‖
predicted) per comment, against all its votes; per annotator the error rate (most probable label) and the absolute
distance (median label, as a share of the scale), and the log loss of its labels. Figures are means over comments or
annotators, then over seeds; intervals by a bootstrap over comments or annotators, whose figure is the mean over seeds.

- *shares of all annotators*: shares of the classes among all training labels. *own shares*: the shares of the
  annotator's labels, smoothed by the former with the weight that predicts left-out training labels best.
- *MiniLM*: softmax regression on votes (objective `soft`), its weight decay by a development part, a quarter, of the
  training comments. *MiniLM, confusions*: the same through each annotator's confusion matrix. *MiniLM × own shares*:
  log-linear, softmax regression on the logarithms of both; of training comments MiniLM's are out of fold, own shares
  without the label that they are to predict. *MiniLM × metadata*: the same with the columns in place of own shares.
- *ldl-nm*: sizes as by default; 10, 20 or 40 epochs by the same development part, once by the KL of comments, for
  their distribution, and once by the log loss of labels, for what annotators would say; with metadata the same ones.
- *shuffled*: the metadata of another annotator, drawn at random: the same freedom, and nothing to know.
- *crowd-layer* on MiniLM, 50 epochs; *LIA()* as it is. The distribution of a comment is, for all that know annotators,
  the mean of what each of them would say; for ldl-nm, where not said otherwise, that of ŷ_I, as in the paper.
- Annotators who were not there: the mean embedding (LIA, and ldl-nm in the stored runs), or the mean prediction for
  all annotators ("all annotators", which `predict_annotations` of ldl-nm has become by these runs).
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

import dissensus as dz
from benchmarks.learning.unseen_annotators import log_of, others_of_annotator, own_counts, regression, smoothed
from benchmarks.parts import Benchmark, Part, Rows
from reproductions import record

FOLDER = Path(__file__).parent
SET = "popquorn_offensiveness"
FOLDS = 5
NEW_SEEDS = 2  # Seeds of runs that also hold out annotators.
DEV_SHARE = 0.25
SHRINK = (
    1.0,
    2.0,
    4.0,
    8.0,
    16.0,
    32.0,
)  # Pseudo-labels with the shares of all annotators that are added to an annotator's own.
DECAY = (0.0, 3e-4, 1e-3, 3e-3)  # Weight decay of the softmax regression on MiniLM vectors.
SCALES = (0.02, 0.05, 0.1, 0.2, 0.5)  # Scales of metadata in the log-linear form.
EPOCHS = (10, 20, 40)
"""Epochs of ldl-nm. 50, 100 and 200 were worse on one fold that was looked at beforehand, with sizes 5, 10 and 20."""
SOFT, OWN = ("manhattan", "wasserstein", "kl"), ("error", "distance", "log_loss")
NAMES = {
    "manhattan": "Manhattan", "wasserstein": "Wasserstein", "kl": "KL", "error": "error rate",
    "distance": "absolute distance", "log_loss": "log loss",
}  # fmt: skip
ARMS = (
    "shares of all annotators", "own shares", "MiniLM", "MiniLM, confusions", "MiniLM × own shares", "crowd-layer",
    "LIA",
    "LIA + metadata", "ldl-nm", "ldl-nm, mean of ŷ", "ldl-nm + metadata", "ldl-nm + shuffled",
)  # fmt: skip
NEW = (
    "shares of all annotators", "votes", "MiniLM", "MiniLM × metadata", "MiniLM × shuffled", "LIA", "LIA + metadata",
    "ldl-nm", "ldl-nm, all annotators", "ldl-nm + metadata",
)  # fmt: skip
PAIRS = (
    ("ldl-nm + metadata", "ldl-nm"), ("ldl-nm + metadata", "ldl-nm + shuffled"), ("LIA + metadata", "LIA"),
    ("MiniLM × metadata", "MiniLM"), ("MiniLM × metadata", "MiniLM × shuffled"), ("ldl-nm", "MiniLM"),
    ("ldl-nm", "MiniLM × own shares"), ("ldl-nm", "LIA"),
)  # fmt: skip


class Split:
    """Training rows, test rows, and a development part of the training rows."""

    def __init__(self, fold: int, seed: int, new: bool):
        from dissensus.features import embed_texts

        data = dz.load_dataset(SET)
        table: Any = data.annotations
        self.X, self.frame = embed_texts(data.items["text"].to_pylist()), data.annotators
        names = self.frame["annotator"].to_pylist()
        order = np.random.default_rng(seed + 1000).permutation(len(names))
        self.shuffled = self.frame.take(order).set_column(0, "annotator", [names])
        rng = np.random.default_rng(seed)
        item = rng.permutation(table.n_items) % FOLDS == fold
        who = rng.permutation(table.n_annotators) % FOLDS == fold if new else np.zeros(table.n_annotators, np.bool_)
        self.items = item
        self.train, self.X_train = table.select(items=~item, annotators=~who), self.X[~item]
        parts = {"unseen": table.select(items=item, annotators=who if new else ~who)}
        if new:
            parts["seen"] = table.select(items=~item, annotators=who)
        self.asked = {name: (part, self.X[item if name == "unseen" else ~item]) for name, part in parts.items()}
        self.votes = table.select(items=item).soft_labels()  # Vote shares of all annotators.
        dev = rng.permutation(self.train.n_items) < DEV_SHARE * self.train.n_items
        self.rest = self.train.select(items=~dev), self.X_train[~dev]
        self.dev = self.train.select(items=dev), self.X_train[dev]


def minilm(seed: int, decay: float = 0.0, **keywords: Any) -> Any:
    """Make a softmax regression on unscaled vectors."""
    from dissensus.learning import CrowdClassifier
    from dissensus.learning.encoders import Identity

    usual = {"objective": "soft", "epochs": 60, "learning_rate": 1e-2, "weight_decay": decay, "device": "cpu"}
    return CrowdClassifier(encoder=Identity(scale=False), seed=seed, **usual | keywords)


def chosen_decay(split: Split, seed: int) -> float:
    from reproductions.distribution_scores import distribution_scores

    table, X = split.dev
    return min(DECAY, key=lambda one: distribution_scores(minilm(seed, one).fit(*split.rest), X, table).kl)


def own_shares(train: Any, crowd: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Own shares of every annotator (A, K), and for every training label those of the annotator's others (N, K)."""
    count, others = own_counts(train), others_of_annotator(train)
    best = max(SHRINK, key=lambda weight: log_of(smoothed(others, crowd, weight), train.label).sum())
    return smoothed(count, crowd, best), smoothed(others, crowd, best)


def with_columns(train: Any, logs: np.ndarray, frame: Any, seed: int) -> tuple[Any, float]:
    """Fit a softmax regression on logarithms (N, K) and annotators' columns, whose scale three folds choose."""
    from dissensus.learning.annotator_features import AnnotatorFeatures

    features = AnnotatorFeatures.fit(frame, train.annotators)
    r = features.compute_features(frame, train.annotators)[train.annotator]
    group = np.random.default_rng(seed).permutation(train.n_annotators)[train.annotator] % 3

    def score(scale: float) -> float:
        x, total = np.column_stack([logs, scale * r]), 0.0
        for g in range(3):
            fitted = regression(x[group != g], train.label[group != g])
            total += log_of(fitted.predict_proba(x[group == g]), train.label[group == g]).sum()
        return total

    scale = max(SCALES, key=score)
    fitted = regression(np.column_stack([logs, scale * r]), train.label)

    def answer(test: Any, logs: np.ndarray) -> np.ndarray:
        about = features.compute_features(frame, test.annotators)[test.annotator]
        return np.asarray(fitted.predict_proba(np.column_stack([logs, scale * about])))

    return answer, scale


def mean_of_all(model: Any, X: np.ndarray, frame: Any = None) -> np.ndarray:
    """Mean (rows, K) of what all annotators of the fit would say."""
    return np.asarray(model.predict_annotator_proba(X, model.annotators_ if frame is None else frame).mean(axis=1))


def ldl(split: Split, seed: int, epochs: int, frame: Any = None, *, whole: bool = True) -> Any:
    """Fit LDL-NM to the training part, with or without its development part."""
    from dissensus.learning.size_search import make_ldl_nm

    table, X = (split.train, split.X_train) if whole else split.rest
    return make_ldl_nm(epochs=epochs, seed=seed, device="cpu").fit(table, X, annotators=frame)


def chosen_epochs(split: Split, seed: int) -> tuple[int, int]:
    """Choose epochs by the KL of comments, and by the log loss of labels."""
    from reproductions.distribution_scores import distribution_scores

    table, X = split.dev
    models = {epochs: ldl(split, seed, epochs, whole=False) for epochs in EPOCHS}
    kl = {epochs: distribution_scores(model, X, table).kl for epochs, model in models.items()}
    loss = {epochs: -log_of(model.predict_annotations(table, X), table.label).sum() for epochs, model in models.items()}
    return min(EPOCHS, key=kl.__getitem__), min(EPOCHS, key=loss.__getitem__)


Predictions = dict[str, tuple[np.ndarray | None, np.ndarray]]
"""Arm → distributions of comments (I, K), or None, and of the labels of rows (N, K)."""


def predict_from_annotators(split: Split, seed: int) -> tuple[Predictions, dict[str, Any]]:
    """Predict new comments for annotators who were there."""
    from dissensus.learning import LIA, out_of_fold

    train, X, (test, X_test) = split.train, split.X_train, split.asked["unseen"]
    crowd = train.votes().sum(axis=0) / train.n_annotations
    same = np.tile(crowd, (test.n_items, 1))
    own, own_taught = own_shares(train, crowd)
    decay = chosen_decay(split, seed)
    model = minilm(seed, decay).fit(train, X)
    h = model.predict_proba(X_test)
    apart = np.log(out_of_fold(minilm(seed, decay), train, X, seed=seed).proba)
    loglinear = regression(np.column_stack([apart[train.item], np.log(own_taught)]), train.label)
    everybody = np.column_stack([np.repeat(np.log(h), len(own), axis=0), np.tile(np.log(own), (len(h), 1))])
    all_pairs = loglinear.predict_proba(everybody).reshape(len(h), len(own), -1)
    predictions: Predictions = {
        "shares of all annotators": (same, same[test.item]),
        "own shares": (np.tile(own.mean(axis=0), (test.n_items, 1)), own[test.annotator]),
        "MiniLM": (h, h[test.item]),
        "MiniLM, confusions": (mean_of_all(model, X_test), model.predict_annotations(test, X_test)),
        "MiniLM × own shares": (all_pairs.mean(axis=1), all_pairs[test.item, test.annotator]),
    }
    from dissensus.learning.objectives import CrowdLayerObjective

    layer = minilm(seed, objective=CrowdLayerObjective(link="softmax"), epochs=50).fit(train, X)
    predictions["crowd-layer"] = (mean_of_all(layer, X_test), layer.predict_annotations(test, X_test))
    best = chosen_epochs(split, seed)
    for name, frame in (("", None), (" + metadata", split.frame)):
        lia = LIA(seed=seed).fit(train, X, annotators=frame).classifier_
        predictions[f"LIA{name}"] = (
            mean_of_all(lia, X_test, frame),
            lia.predict_annotations(test, X_test, annotators=frame),
        )
    for name, frame in (("", None), (" + metadata", split.frame), (" + shuffled", split.shuffled)):
        models = {epochs: ldl(split, seed, epochs, frame) for epochs in set(best)}
        by_kl, by_label = (models[epochs] for epochs in best)
        p = by_label.predict_annotations(test, X_test, annotators=frame)
        predictions[f"ldl-nm{name}"] = by_kl.predict_proba(X_test), p
        if frame is None:
            predictions["ldl-nm, mean of ŷ"] = mean_of_all(by_label, X_test), p
    return predictions, {"decay": decay, "epochs": best}


def newcomers(split: Split, seed: int) -> tuple[dict[str, Predictions], dict[str, Any]]:
    """Predict annotators who were not there, on old and on new comments."""
    from dissensus.learning import LIA, out_of_fold

    train, X = split.train, split.X_train
    crowd = train.votes().sum(axis=0) / train.n_annotations
    decay = chosen_decay(split, seed)
    linear = minilm(seed, decay).fit(train, X)
    apart = np.log(out_of_fold(minilm(seed, decay), train, X, seed=seed).proba)[train.item]
    frames = {"metadata": split.frame, "shuffled": split.shuffled}
    described = {name: with_columns(train, apart, frame, seed) for name, frame in frames.items()}
    best = chosen_epochs(split, seed)
    predictions: dict[str, Predictions] = {}
    others = train.votes()
    taught = others[train.item] - np.eye(train.n_classes)[train.label]
    shrink = max(SHRINK, key=lambda weight: log_of(smoothed(taught, crowd, weight), train.label).sum())
    for where, (test, X_test) in split.asked.items():
        h = linear.predict_proba(X_test)
        predictions[where] = {
            "shares of all annotators": (None, np.tile(crowd, (len(test), 1))),
            "MiniLM": (None, h[test.item]),
        }
        for name, (answer, _) in described.items():
            predictions[where][f"MiniLM × {name}"] = None, answer(test, np.log(h)[test.item])
        if where == "seen":
            predictions[where]["votes"] = None, smoothed(others, crowd, shrink)[test.item]
    for name, frame in (("", None), (" + metadata", split.frame)):
        lia = LIA(seed=seed).fit(train, X, annotators=frame).classifier_
        model = ldl(split, seed, best[1], frame)
        for where, (test, X_test) in split.asked.items():
            for arm, fitted in (("LIA", lia), ("ldl-nm", model)):
                predictions[where][arm + name] = None, fitted.predict_annotations(test, X_test, annotators=frame)
            if frame is None:
                predictions[where]["ldl-nm, all annotators"] = None, mean_of_all(model, X_test)[test.item]
    return predictions, {
        "decay": decay,
        "epochs": best,
        "scale": {name: scale for name, (_, scale) in described.items()},
    }


def judged(said: Predictions, test: Any, votes: np.ndarray) -> dict[str, Any]:
    """Arm → measure → one value per comment, or per annotator the sum over its labels."""
    from dissensus.evaluation import kl_divergence, manhattan, wasserstein
    from dissensus.evaluation.perspectivist import absolute_distance, error_rate

    labels = np.bincount(test.annotator, minlength=test.n_annotators)
    there = labels > 0
    result: dict[str, Any] = {}
    for arm, (h, p) in said.items():
        losses: dict[str, np.ndarray] = {}
        if h is not None:
            h = h / h.sum(axis=1, keepdims=True)
            losses = {
                "manhattan": manhattan(votes, h),
                "wasserstein": wasserstein(votes, h),
                "kl": kl_divergence(votes, h),
            }
        p = p / p.sum(axis=1, keepdims=True)
        losses["error"] = error_rate(test, p, by="annotator") * labels[there]
        losses["distance"] = absolute_distance(test, p, by="annotator") * labels[there]
        losses["log_loss"] = -np.bincount(test.annotator, log_of(p, test.label), labels.size)[there]
        result[arm] = {name: values.round(5).tolist() for name, values in losses.items()}
    return {
        "arms": result, "annotators": test.annotators[there].tolist(), "labels": labels[there].tolist(),
        "items": test.items.tolist(),
    }  # fmt: skip


def run(part: Part, device: str) -> dict[str, Any]:
    """Run and score one fold."""
    began, seed = time.perf_counter(), part["seed"]
    split = Split(part["fold"], seed, part["new"])
    if part["new"]:
        said, chosen = newcomers(split, seed)
        parts = {where: judged(said[where], split.asked[where][0], split.votes) for where in said}
    else:
        one, chosen = predict_from_annotators(split, seed)
        parts = {"known": judged(one, split.asked["unseen"][0], split.votes)}
    seconds = round(time.perf_counter() - began, 1)
    return {"chosen": chosen, "parts": parts, "seconds": seconds}


# Tables ---------------------------------------------------------------------------------------------------------------


def values(rows: Rows, part: str, arm: str, measure: str) -> np.ndarray:
    """(seeds, units) a measure of each comment, or each annotator's mean; NaN where a seed has none."""
    whole = [row for row in rows if part in row["parts"]]
    unit = "items" if measure in SOFT else "annotators"
    names = sorted({name for row in whole for name in row["parts"][part][unit]})
    seeds = sorted({row["seed"] for row in whole})
    at, line = {name: n for n, name in enumerate(names)}, {seed: n for n, seed in enumerate(seeds)}
    total, count = np.zeros((len(seeds), len(names))), np.zeros((len(seeds), len(names)))
    for row in whole:
        found = row["parts"][part]
        where = [at[name] for name in found[unit]]
        total[line[row["seed"]], where] += found["arms"][arm][measure]
        count[line[row["seed"]], where] += 1 if measure in SOFT else found["labels"]
    return np.where(count > 0, total / np.where(count > 0, count, 1), np.nan)


def difference(rows: Rows, part: str, arm: str, than: str, measure: str) -> dict[str, Any]:
    """Mean over units, and its 95 % interval by a bootstrap over them."""
    apart = np.nanmean(values(rows, part, arm, measure) - values(rows, part, than, measure), axis=0)
    draw = np.random.default_rng(0).integers(0, apart.size, (10_000, apart.size))
    low, high = np.quantile(apart[draw].mean(axis=1), [0.025, 0.975])
    return {"value": float(apart.mean()), "low": float(low), "high": float(high), "lower": float((apart < 0).mean())}


def summary(rows: Rows) -> dict[str, Any]:
    """Everything that the tables say, and what was chosen in every run."""
    chosen = [{key: row[key] for key in ("fold", "seed", "new", "chosen", "seconds")} for row in rows]
    results: dict[str, Any] = {"levels": {}, "differences": {}, "runs": chosen}
    for part, arms in (("known", ARMS), ("seen", NEW), ("unseen", NEW)):
        whole = [row for row in rows if part in row["parts"]]
        there = [arm for arm in arms if whole and arm in whole[0]["parts"][part]["arms"]]
        measures = (*SOFT, *OWN) if part == "known" else OWN
        results["levels"][part] = {
            arm: {m: [float(v) for v in np.nanmean(values(rows, part, arm, m), axis=1)] for m in measures}
            for arm in there
        }
        results["differences"][part] = [
            {"arm": arm, "than": than} | {m: difference(rows, part, arm, than, m) for m in measures}
            for arm, than in PAIRS
            if arm in there and than in there
        ]
    return results


def tables(made: dict[str, Any]) -> list[str]:
    """Levels and differences of every part."""
    titles = {
        "known": "New comments, annotators who were there:",
        "seen": "Annotators who were not there, comments that others labelled:",
        "unseen": "Unseen annotators, comments without labels:",
    }
    text = []
    for part, title in titles.items():
        levels = made["levels"][part]
        if not levels:
            continue
        measures = list(next(iter(levels.values())))
        best = {m: min(round(float(np.mean(one[m])), 4) for one in levels.values()) for m in measures}

        def cell(one: dict[str, Any], m: str, best: dict[str, float] = best) -> str:
            mean = round(float(np.mean(one[m])), 4)
            shown = f"**{mean:.4f}**" if mean == best[m] else f"{mean:.4f}"
            return f"{shown} ± {np.std(one[m]):.4f}"

        heads = [NAMES[m] for m in measures]
        lines = [[arm, *(cell(one, m) for m in measures)] for arm, one in levels.items()]
        text += [title, record.markdown_table(["", *heads], lines)]
        lines = [
            [
                pair["arm"],
                pair["than"],
                *("{value:+.4f} ({low:+.4f} to {high:+.4f})".format(**pair[m]) for m in measures),
            ]
            for pair in made["differences"][part]
        ]
        text.append(record.markdown_table(["", "less", *heads], lines, 2))
    return text


def parts(seeds: int) -> list[Part]:
    """Return all folds, without and with held-out annotators."""
    return [
        {"fold": fold, "seed": seed, "new": new}
        for new, most in ((False, seeds), (True, min(seeds, NEW_SEEDS)))
        for seed in range(most)
        for fold in range(FOLDS)
    ]


QUICK: list[Part] = [{"fold": 0, "seed": 0, "new": new} for new in (False, True)]
BENCHMARK = Benchmark(FOLDER, "perspectives", run, parts, QUICK, tables, seeds=5, summary=summary)


if __name__ == "__main__":
    BENCHMARK.main(__doc__)
