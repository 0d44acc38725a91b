"""Predict labels of unseen annotators, with and without their features: POPQUORN offensiveness.

    python -m benchmarks.learning.unseen_annotators        # options: see benchmarks/parts.py

Five folds over the 262 annotators, other folds
for every seed: models see the other annotators' labels of the same comments and MiniLM vectors of these, and are asked
for the log likelihood of every label of the held-out annotators. Gains are per label, their intervals by a bootstrap
over annotators (each has all its labels in one fold; its figure is the mean over seeds).

- *marginal*: the shares of the classes. *votes*: the comment's other labels and so many of the marginal, as many as
  predict the training labels best, each by the others of its comment.
- *linear*: softmax regression on the logarithms of those shares and 16 principal components of the vectors, with the
  annotator's features beside them; their scale (so their ridge) by folds over the training annotators. *linear + own
  labels*: with the logarithms of the shares of the annotator's *other* labels, held-out ones too: not to be had of an
  annotator who was not there, but it says how much there is to know of one.
- *LIA*: Σ_k q_i(k) Q_ij[k, ·] with the E step's q_i and an annotator of the mean residual ("mean"), or the mean of
  that over the residuals of all training annotators ("spread"): nobody has the mean residual.
- *shuffled*: the features of another annotator, drawn at random: the same freedom, and nothing to know.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import dissensus as dz
from benchmarks.parts import Benchmark, Part, Rows
from reproductions import record

FOLDER = Path(__file__).parent
SET = "popquorn_offensiveness"
FOLDS = 5
SMOOTHING = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)  # votes of the marginal
SCALES = (0.02, 0.05, 0.1, 0.2, 0.5)  # Scales of annotators' features in the linear form.
COMPONENTS = 16
MARGINAL_VOTES = 5.0  # Pseudo-votes with the marginal shares that are added to an annotator's own.
ARMS = (
    "marginal", "votes", "linear", "linear + metadata", "linear + own labels", "LIA, mean", "LIA + metadata, mean",
    "LIA + shuffled, mean", "LIA, spread", "LIA + metadata, spread", "LIA + shuffled, spread",
)  # fmt: skip
PAIRS = (
    ("votes", "marginal"), ("linear", "votes"), ("LIA, mean", "votes"), ("LIA, spread", "votes"),
    ("LIA, spread", "LIA, mean"), ("linear + own labels", "linear"), ("linear + metadata", "linear"),
    ("LIA + metadata, mean", "LIA, mean"), ("LIA + metadata, mean", "LIA + shuffled, mean"),
    ("LIA + metadata, spread", "LIA, spread"), ("LIA + metadata, spread", "LIA + shuffled, spread"),
)  # fmt: skip


class Split:
    """Labels of the held-out annotators, and everything that models may see."""

    def __init__(self, fold: int, seed: int, one_in: int):
        from dissensus.features import embed_texts
        from dissensus.learning.annotator_features import AnnotatorFeatures

        data = dz.load_dataset(SET)
        table: Any = data.annotations
        self.X = embed_texts(data.items["text"].to_pylist())
        held = np.random.default_rng(seed).permutation(table.n_annotators) % FOLDS == fold
        self.train = table.select(annotators=~held)
        self.test = table.select(annotators=held)
        if one_in > 1:
            self.test = self.test.select(annotators=np.arange(self.test.n_annotators) % one_in == 0)
        self.frame = data.annotators
        names = np.array(self.frame["annotator"].to_pylist(), object)
        at = {name: row for row, name in enumerate(names.tolist())}
        self.of_test = self.frame.take([at[name] for name in self.test.annotators.tolist()])
        order = np.random.default_rng(seed + 1000).permutation(len(names))
        self.shuffled = self.frame.take(order).set_column(0, "annotator", [names.tolist()])
        self.shuffled_of_test = self.shuffled.take([at[name] for name in self.test.annotators.tolist()])
        features = AnnotatorFeatures.fit(self.frame, self.train.annotators)
        self.r_train = features.compute_features(self.frame, self.train.annotators)
        self.r_test = features.compute_features(self.frame, self.test.annotators)


def smoothed(votes: np.ndarray, marginal: np.ndarray, weight: float) -> np.ndarray:
    shares = votes + weight * marginal
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))


def log_of(proba: np.ndarray, label: np.ndarray) -> np.ndarray:
    return np.asarray(np.log(proba[np.arange(label.size), label]))


def baselines(split: Split) -> dict[str, np.ndarray]:
    """Arm → (n, K) probabilities of the test rows."""
    train, test = split.train, split.test
    own = np.eye(train.n_classes)[train.label]
    marginal = (own.sum(axis=0) + 1) / (len(own) + train.n_classes)
    others = train.votes()[train.item] - own  # each label by the others of its item
    best = max(SMOOTHING, key=lambda weight: log_of(smoothed(others, marginal, weight), train.label).sum())
    votes = smoothed(train.votes(), marginal, best)[test.item]
    found = {"marginal": np.tile(marginal, (test.n_annotations, 1)), "votes": votes}
    centred = split.X - split.X.mean(axis=0)
    directions = np.linalg.svd(centred, full_matrices=False)[2][:COMPONENTS]
    vectors = centred @ directions.T
    vectors = vectors / vectors.std(axis=0)

    def inputs(shares: np.ndarray, item: np.ndarray, r: np.ndarray, scale: float) -> np.ndarray:
        return np.column_stack([np.log(shares), 0.1 * vectors[item], scale * r])

    taught = smoothed(others, marginal, best)
    for name, scales in (("linear", (0.0,)), ("linear + metadata", SCALES)):
        group = np.random.default_rng(0).permutation(train.n_annotators)[train.annotator] % 3
        r = split.r_train[train.annotator]

        def score(scale: float, r: np.ndarray = r, group: np.ndarray = group) -> float:
            x = inputs(taught, train.item, r, scale)
            fitted = [regression(x[group != g], train.label[group != g]) for g in range(3)]
            return sum(log_of(fitted[g].predict_proba(x[group == g]), train.label[group == g]).sum() for g in range(3))

        scale = scales[0] if len(scales) == 1 else max(scales, key=score)
        x = inputs(taught, train.item, r, scale)
        asked = inputs(votes, test.item, split.r_test[test.annotator], scale)
        found[name] = regression(x, train.label).predict_proba(asked)
    own_taught, own_new = (np.log(smoothed(others_of_annotator(t), marginal, MARGINAL_VOTES)) for t in (train, test))
    x = inputs(taught, train.item, own_taught, 1.0)
    asked = inputs(votes, test.item, own_new, 1.0)
    found["linear + own labels"] = regression(x, train.label).predict_proba(asked)
    return found


def own_counts(table: Any) -> np.ndarray:
    """Count (A, K) how often each annotator gave each label."""
    cell = table.annotator * np.int64(table.n_classes) + table.label
    return np.bincount(cell, minlength=table.n_annotators * table.n_classes).reshape(table.n_annotators, -1)


def others_of_annotator(table: Any) -> np.ndarray:
    """Count (N, K) how often the annotator of a row gave each label in its other rows."""
    return np.asarray(own_counts(table)[table.annotator] - np.eye(table.n_classes)[table.label])


def regression(x: np.ndarray, label: np.ndarray) -> Any:
    """Fit a softmax regression."""
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=1.0, max_iter=300, tol=1e-3).fit(x, label)


def lia(split: Split, frame: Any, of_test: Any, seed: int, **keywords: Any) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities (n, K) of the test rows, by the mean residual and by all residuals."""
    import torch

    from dissensus.learning import LIA
    from dissensus.learning.objectives.lia import LIAHead, log_confusion

    train, test = split.train, split.test
    model = LIA(seed=seed, **keywords).fit(train, split.X, annotators=frame)
    q = model.posterior_[test.item]
    whom = test.annotators if frame is None else of_test
    mean = model.confusion(None, whom)[test.item, test.annotator]  # (n, K, K)
    network, objective = model.classifier_.network_, model.classifier_.objective_
    head: Any = network.head
    assert isinstance(head, LIAHead)
    able, spread = head.competence, []
    with torch.inference_mode():
        z = network.encoder(**model.classifier_.encoder_.prepare(split.X).take(torch.arange(train.n_items)))
        hard = head.item_difficulty(z)
        rows = able.table.weight[None].expand(test.n_annotators, -1, -1)  # (J, A, E)
        if frame is not None:
            assert able.described is not None
            _, r = model._whom(of_test)
            rows = rows + able.described(torch.as_tensor(r, dtype=torch.float32))[:, None]
        C = able.of(rows.reshape(-1, rows.shape[2])).reshape(*rows.shape[:2], *able.shape)
        share = torch.as_tensor(objective.label_totals_ / objective.label_totals_.sum())
        for at in torch.arange(test.n_annotations).split(100):
            D = hard[torch.as_tensor(test.item[at].astype(np.int64))][:, None]
            each = log_confusion(D, C[torch.as_tensor(test.annotator[at].astype(np.int64))]).exp()  # (n, A, K, K)
            spread.append(torch.einsum("a,nakl->nkl", share, each).double().numpy())
    return np.einsum("nk,nkl->nl", q, mean), np.einsum("nk,nkl->nl", q, np.concatenate(spread))


def run(part: Part, device: str) -> dict[str, Any]:
    """Per arm, the log likelihood of each held-out annotator's labels."""
    seed, one_in = part["seed"], part.get("one_in", 1)
    split = Split(part["fold"], seed, one_in)
    keywords = {"steps": 100} if one_in > 1 else {}
    found = baselines(split)
    frames = {"LIA": (None, None), "LIA + metadata": (split.frame, split.of_test)}
    frames["LIA + shuffled"] = (split.shuffled, split.shuffled_of_test)
    for name, (frame, of_test) in frames.items():
        found[f"{name}, mean"], found[f"{name}, spread"] = lia(split, frame, of_test, seed, **keywords)
    test = split.test
    return {
        "annotators": test.annotators.tolist(),
        "labels": np.bincount(test.annotator, minlength=test.n_annotators).tolist(),
        "log_likelihood": {
            arm: np.bincount(test.annotator, log_of(found[arm], test.label), test.n_annotators).round(6).tolist()
            for arm in ARMS
        },
    }  # fmt: skip


def gains(rows: Rows, arm: str, than: str) -> tuple[float, float, float, float]:
    """Gain per label, its 95 % interval, and the share of annotators who are predicted better."""
    by: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        each = zip(
            row["annotators"], row["labels"], row["log_likelihood"][arm], row["log_likelihood"][than], strict=True
        )
        for name, n, a, b in each:
            by.setdefault(name, []).append((a - b, n))
    gain, n = np.array([np.mean(value, axis=0) for value in by.values()]).T
    draw = np.random.default_rng(0).integers(0, n.size, (10_000, n.size))
    drawn = gain[draw].sum(axis=1) / n[draw].sum(axis=1)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(gain.sum() / n.sum()), float(low), float(high), float((gain > 0).mean())


def tables(rows: Rows) -> list[str]:
    """Levels of all arms, and differences between some."""
    seeds = sorted({row["seed"] for row in rows})
    levels, lines = [], []
    for arm in ARMS:
        per_seed = [
            sum(sum(row["log_likelihood"][arm]) for row in rows if row["seed"] == seed)
            / sum(sum(row["labels"]) for row in rows if row["seed"] == seed)
            for seed in seeds
        ]
        levels.append([arm, f"{np.mean(per_seed):.4f}", f"{np.min(per_seed):.4f} to {np.max(per_seed):.4f}"])
    for arm, than in PAIRS:
        gain, low, high, better = gains(rows, arm, than)
        lines.append([arm, than, f"{gain:+.4f}", f"{low:+.4f} to {high:+.4f}", f"{better:.0%}"])
    return [
        record.markdown_table(["", "log likelihood per label", f"of {len(seeds)} seeds"], levels),
        record.markdown_table(["", "less", "gain", "95 % interval", "annotators predicted better"], lines, 2),
    ]


def parts(seeds: int) -> list[Part]:
    """Return all folds, seed by seed."""
    return [{"fold": fold, "seed": seed} for seed in range(seeds) for fold in range(FOLDS)]


QUICK: list[Part] = [{"fold": 0, "seed": 0, "one_in": 10}]
BENCHMARK = Benchmark(FOLDER, "unseen-annotators", run, parts, QUICK, tables, seeds=3)


if __name__ == "__main__":
    BENCHMARK.main(__doc__)
