"""Tables and Figure 4 of Weerasooriya et al. 2021: clusters of items and annotators, and the distribution of labels.

Table 1 is the sets, Table 2 the clustering itself, Table 3 what predicts the labels of test items. Predictions are by
texts alone; conditions whose name has "own votes" read the votes that they are then compared with, which explains the
published accuracies near 0.9. `direction` asks which KL the paper's figures can be, `rounds` how many rounds of
messages suffice.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np

import dissensus as dz
from dissensus.common.types import FloatArray
from dissensus.evaluation import entropy, inverse_kl_divergence, kl_divergence
from dissensus.exceptions import ConvergenceWarning
from dissensus.table.annotations import Annotations
from reproductions.experiment import Cell, SeedValues, Values
from reproductions.prepared import prepared, prepared_words
from reproductions.printed_clusters import PrintedBP, PrintedProjector
from reproductions.verdict import Claim, GetValues, PairedDifference, assess, assess_equality, compare_conditions
from reproductions.watch import no_progress

SETS = ("jobs_q1", "jobs_q2", "jobs_q3")
METHODS = {"FMM": "fmm", "PGM-SA": "pgm-annealing", "PGM-BP": "pgm-bp"}
PRINTED = {"pgm-annealing": {"proposal": "prior", "schedule": "inverse"}, "pgm-bp": {}, "fmm": {}}
"""What the paper says, where the library's defaults are others."""
PUBLISHED_NUMBERS = {
    "jobs_q1": {"FMM": (14, 1), "PGM-SA": (4, 4), "PGM-BP": (10, 12)},
    "jobs_q2": {"FMM": (7, 1), "PGM-SA": (6, 5), "PGM-BP": (8, 12)},
    "jobs_q3": {"FMM": (35, 1), "PGM-SA": (14, 9), "PGM-BP": (12, 11)},
}
"""Item and annotator clusters, Table 2 of the paper."""
KL_MARGIN = 0.005  # nats: two KL that differ by less are "the same"
LEAKS = "LDL-NM, Algorithm 4 by own votes"
EPOCHS, PATIENCE = 300, 10
CNN = {"learning_rate": 1e-3, "dropout": 0.2}
LINEAR = {"learning_rate": 1e-3}
"""Chosen by KL to the votes of the development items, over the three sets, one seed: among two kinds of word vectors,
two rates and two dropouts for the CNN; scaling or not, two rates and three weight decays for the linear layer."""
HALVES = {
    "kl": "kl_divergence", "inverse_kl": "inverse_kl_divergence", "accuracy": "accuracy", "manhattan": "manhattan",
}  # fmt: skip
Predict = Callable[["Part"], FloatArray]


@dataclass(frozen=True)
class Part:
    """Annotations, vectors and texts of a split."""

    table: Annotations
    X: Any  # (I, 384) MiniLM
    texts: list[str]

    @property
    def votes(self) -> FloatArray:
        """Shares of the votes (I, K)."""
        return self.table.soft_labels()


@cache
def parts(name: str) -> dict[str, Part]:
    """Split → its items. The three sets have the same tweets."""
    data: Any = dz.load_dataset(SETS[0])
    whole: Any = dz.load_dataset(name)
    place, X = {item: at for at, item in enumerate(data.annotations.items)}, vectors()
    return {
        split: Part(part.annotations, X[[place[i] for i in part.annotations.items]], part.items["text"].to_pylist())
        for split, part in whole.splits.items()
    }


def vectors() -> FloatArray:
    """MiniLM vectors (2,000, 384) of the tweets."""

    def make() -> FloatArray:
        from dissensus.features import embed_texts

        return embed_texts(dz.load_dataset(SETS[0]).items["text"].to_pylist())

    return prepared("jobs-minilm", make)


def words() -> str:
    """Path of the word vectors: MiniLM's input embeddings in 100 dimensions, where the paper has GloVe of tweets."""

    def make_vocabulary() -> list[str]:
        from dissensus.learning.encoders.text_cnn import WORD_PATTERN
        from dissensus.learning.encoders.words import build_vocabulary

        return build_vocabulary(
            WORD_PATTERN.findall(text.lower()) for text in dz.load_dataset(SETS[0]).items["text"].to_pylist()
        )

    return prepared_words("jobs-words.txt", make_vocabulary, 100, 5)


def prepare() -> None:
    """Make what needs MiniLM."""
    vectors()
    words()


# Table 1 --------------------------------------------------------------------------------------------------------------


def table1(cell: Cell, device: str) -> Values:
    """Count annotators, classes and labels of a set; mean entropy of an item's votes, in nats."""
    found, table = SeedValues(), cast("Annotations", dz.load_dataset(cell.data).annotations)
    found.add(
        redundancy=len(table) / table.n_items, classes=table.n_classes,
        entropy=entropy(table.soft_labels()).mean(), annotators=table.n_annotators,
    )  # fmt: skip
    return found.values


# Table 2 --------------------------------------------------------------------------------------------------------------


def table2(cell: Cell, device: str) -> Values:
    """Choose numbers of clusters on the development items; place the test items by their own votes.

    As printed: the paper's numbers of clusters, proposals, schedule and M step.
    """
    split, found, how = parts_without_texts(cell.data), SeedValues(), cell.keywords
    votes, method = split["test"].soft_labels(), METHODS.get(how["clusters"])
    for seed in cell.seeds:
        if method is None:
            communities = fit_communities(split["train"], seed)
            snapped = communities.predict_proba(split["test"]) @ population_labels(communities)
            K, L = 1, communities.community_share_.size
        elif how.get("printed"):
            K, L = PUBLISHED_NUMBERS[cell.data][how["clusters"]]
            snapped = fit_clusters(split["train"], method, K, L, seed, printed=True).predict_proba(split["test"])
        else:
            numbers: dict[str, Any] = dict.fromkeys("KL", range(3, how["most"] + 1, how["step"]))
            chosen = dz.select_clusters(
                split["train"], method, dev=split["dev"], criterion="kl", jobs=1, seed=seed, **numbers
            )
            K, L = chosen.best.K, chosen.best.L
            snapped = fit_clusters(split["train"], method, K, L, seed).predict_proba(split["test"])
        found.add(
            kl=kl_divergence(votes, snapped).mean(), inverse_kl=inverse_kl_divergence(votes, snapped).mean(), K=K, L=L
        )
    return found.values


def fmm(cell: Cell, device: str) -> Values:
    """Cluster as in Table 2, with the paper's number of clusters and one choice changed."""
    split, found, how = parts_without_texts(cell.data), SeedValues(), dict(cell.keywords)
    (K, _), kind = PUBLISHED_NUMBERS[cell.data]["FMM"], cast(Any, dz.clusterings["fmm"])
    placed, by = (split[how.pop(key, default)] for key, default in (("placed", "test"), ("by", "train")))
    for seed in cell.seeds:
        model = kind(**{"n_clusters": K, "restarts": 5} | how, threads=1, seed=seed).fit(by)
        votes, snapped = placed.soft_labels(), model.predict_proba(placed)
        found.add(kl=kl_divergence(votes, snapped).mean(), inverse_kl=inverse_kl_divergence(votes, snapped).mean())
    return found.values


def fit_clusters(table: Annotations, method: str, K: int, L: int, seed: int, printed: bool = False) -> Any:
    """Fit a clustering from five starts; `printed`: as the paper has it."""
    kind: Any = PrintedBP if printed and method == "pgm-bp" else dz.clusterings[method]
    sizes = {"n_clusters": K} if method == "fmm" else {"item_clusters": K, "annotator_clusters": L}
    model = kind(**sizes, restarts=5, threads=1, seed=seed, **(PRINTED[method] if printed else {}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(table)


def fit_communities(table: Annotations, seed: int) -> Any:
    """Fit Community BCC, which clusters annotators only; it finds the number of communities itself."""
    kind: Any = dz.methods["community-bcc"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return kind(seed=seed).fit(table)


def population_labels(communities: Any) -> FloatArray:
    """Return P(label | class) (K, K) of an annotator without labels."""
    alpha = communities.community_concentration_
    mean = alpha / alpha.sum(axis=2, keepdims=True)  # (M, K, K)
    return np.asarray(np.tensordot(communities.community_share_, mean, axes=1))


# Direction of KL, and number of rounds --------------------------------------------------------------------------------


def direction(cell: Cell, device: str) -> Values:
    """Compare the mean of the training votes with the votes of the test items, by one kind of KL."""
    split, found = parts_without_texts(cell.data), SeedValues()
    votes = split["test"].soft_labels()
    mean = np.tile(split["train"].soft_labels().mean(axis=0), (len(votes), 1))
    epsilon = cell.keywords.get("epsilon")
    kl = kl_divergence(votes, mean) if epsilon is None else inverse_kl_divergence(votes, mean, epsilon=epsilon)
    found.add(kl=kl.mean())
    return found.values


def rounds(cell: Cell, device: str) -> Values:
    """Fit PGM-BP with a number of message rounds per E step; count the rounds until an E step converges."""
    from unittest.mock import patch

    from dissensus.clustering.model import EdgeFactors

    split, found, how = parts_without_texts(cell.data), SeedValues(), cell.keywords
    votes, (K, L) = split["test"].soft_labels(), PUBLISHED_NUMBERS[cell.data]["PGM-BP"]
    for seed in cell.seeds:
        swept, kind, sweep = [0], dz.clusterings["pgm-bp"], EdgeFactors.run_round

        def counted(*args: Any, swept: list[int] = swept, sweep: Any = sweep) -> Any:
            swept[0] += 1
            return sweep(*args)

        model: Any = kind(
            item_clusters=K, annotator_clusters=L, rounds=how["most"], tol=how["tol"], restarts=1, threads=1, seed=seed
        )
        with warnings.catch_warnings(), patch.object(EdgeFactors, "run_round", counted):
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(split["train"])
        snapped = model.predict_proba(split["test"])
        found.add(
            used=swept[0] / 2 / model.n_iter_, steps=model.n_iter_, objective=model.trace_[-1],
            kl=kl_divergence(votes, snapped).mean(),
        )  # fmt: skip
    return found.values


def parts_without_texts(name: str) -> dict[str, Annotations]:
    """Split → its annotations."""
    whole: Any = dz.load_dataset(name)
    return {split: part.annotations for split, part in whole.splits.items()}


# Table 3 --------------------------------------------------------------------------------------------------------------


def table3(cell: Cell, device: str) -> Values:
    """Predict the votes of the test items in one way."""
    from reproductions.distribution_scores import compare_distributions
    from reproductions.split_half import split_half

    split, found, how = parts(cell.data), SeedValues(), {"data": cell.data} | cell.keywords
    kind = how.pop("kind")
    for seed in cell.seeds:
        if kind == "halves":
            half = split_half(split["test"].table, seed=seed).mean
            found.add(**{name: half[score] for name, score in HALVES.items()})
            continue
        predict = KINDS[kind](split, seed, device, how)
        score = compare_distributions(split["test"].votes, predict(split["test"]))
        found.add(kl=score.kl, inverse_kl=score.inverse_kl, accuracy=score.accuracy, manhattan=score.manhattan)
    return found.values


def mean_votes(split: dict[str, Part], seed: int, device: str, how: dict[str, Any]) -> Predict:
    """Predict the mean of the training votes for every item."""
    mean = split["train"].votes.mean(axis=0)
    return lambda part: np.tile(mean, (len(part.texts), 1))


def network(encoder: str, device: str, seed: int, epochs: int) -> Any:
    """Make the text CNN, or a linear layer on MiniLM's vectors, not fitted."""
    from dissensus.learning import CrowdClassifier
    from dissensus.learning.encoders import Identity, TextCNN

    own = CNN if encoder == "cnn" else LINEAR
    module: Any = TextCNN(vectors=words(), dropout=own["dropout"]) if encoder == "cnn" else Identity(scale=False)
    return CrowdClassifier(
        encoder=module, objective="soft", learning_rate=own["learning_rate"], head_learning_rate=own["learning_rate"],
        epochs=epochs, patience=PATIENCE, device=device, precision="32-true", seed=seed,
    )  # fmt: skip


def network_inputs(encoder: str, part: Part) -> Any:
    """Return the inputs of a network: texts or vectors."""
    return part.texts if encoder == "cnn" else part.X


def votes(split: dict[str, Part], seed: int, device: str, how: dict[str, Any]) -> Predict:
    """Train on the votes with KL; with the CNN this is the paper's PD."""
    encoder = how["encoder"]
    model = network(encoder, device, seed, how.get("epochs", EPOCHS))
    watched = (network_inputs(encoder, split["dev"]), split["dev"].table)
    model.fit(split["train"].table, network_inputs(encoder, split["train"]), validation=watched, on_step=no_progress)
    return lambda part: model.predict_proba(network_inputs(encoder, part))


def clustered(split: dict[str, Part], seed: int, how: dict[str, Any]) -> Any:
    """Cluster the training items, with the numbers of clusters that the file names."""
    numbers = PUBLISHED_NUMBERS[how["data"]] if how.get("printed") else how["numbers"]
    method, (K, L) = METHODS[how["clusters"]], numbers[how["clusters"]]
    return fit_clusters(split["train"].table, method, K, L, seed, printed=bool(how.get("printed")))


def pipeline(split: dict[str, Part], seed: int, device: str, how: dict[str, Any]) -> Predict:
    """Snap to clusters, train a network, project: a scikit-learn Pipeline."""
    from sklearn.pipeline import Pipeline

    from dissensus.clustering import DistributionClassifier, Projector, snap

    encoder, project = how["encoder"], how["project"]
    steps: list[tuple[str, Any]] = [
        ("learn", DistributionClassifier(network(encoder, device, seed, how.get("epochs", EPOCHS))))
    ]
    if how["clusters"] == "CommunityBCC":  # no clusters of items to project to
        communities = fit_communities(split["train"].table, seed)
        labels = communities.posterior_ @ population_labels(communities)
    else:
        model = clustered(split, seed, how)
        labels = snap(model)
        if project != "none":
            projector = PrintedProjector if how.get("printed") else Projector
            steps.append(("project", projector(model, how=project)))
    made = Pipeline(steps)
    watched = (network_inputs(encoder, split["dev"]), split["dev"].votes)
    made.fit(network_inputs(encoder, split["train"]), labels, learn__validation=watched, learn__on_step=no_progress)
    return lambda part: np.asarray(made.transform(network_inputs(encoder, part)))


def own_votes(split: dict[str, Part], seed: int, device: str, how: dict[str, Any]) -> Predict:
    """LEAKS: place items in clusters by the votes that they are compared with."""
    model = clustered(split, seed, how)
    return lambda part: model.predict_proba(part.table)


def ldl_nm(split: dict[str, Part], seed: int, device: str, how: dict[str, Any]) -> Predict:
    """Train LDL-NM; with `leaks`, infer annotators by Algorithm 4 from the votes that it is compared with."""
    from dissensus.learning.objectives.ldl_nm import LDLNMObjective
    from dissensus.learning.size_search import make_ldl_nm as model_of
    from dissensus.learning.unknown_annotators import leaking_proba

    item, annotator, epochs = how["sizes"][how["after"]]
    objective = LDLNMObjective(item_size=item, annotator_size=annotator)
    model = model_of(objective=objective, epochs=min(epochs, how.get("epochs", epochs)), seed=100 + seed, device=device)
    model.fit(split["train"].table, split["train"].X, on_step=no_progress)
    if how["leaks"]:
        return lambda part: leaking_proba(model, part.X, part.votes)
    return lambda part: model.predict_proba(part.X)


KINDS: dict[str, Callable[[dict[str, Part], int, str, dict[str, Any]], Predict]] = {
    "mean": mean_votes, "votes": votes, "pipeline": pipeline, "own votes": own_votes, "ldl-nm": ldl_nm,
}  # fmt: skip


# Figure 4 -------------------------------------------------------------------------------------------------------------


@cache
def mapped(name: str, seed: int, epochs: int | None, device: str) -> Any:
    """Train LDL-NM as in the paper: 200 epochs, sizes 10 and 10, none searched for."""
    from dissensus.learning.size_search import make_ldl_nm as model_of

    train, told = parts(name)["train"], {} if epochs is None else {"epochs": epochs}
    return model_of(seed=seed, device=device, **told).fit(train.table, train.X, on_step=no_progress)


def figure4(cell: Cell, device: str) -> Values:
    """Share of an item's ten nearest neighbours with its majority label, by MiniLM's vectors, z_I and the mean z_E."""
    import torch

    from dissensus.learning.latent_map import find_neighbours, item_vectors, measure_separation
    from dissensus.models.base import arg_max

    found, part = SeedValues(), parts(cell.data)[cell.keywords["part"]]
    table, X = part.table, part.X
    code = arg_max(table.votes(), table.items, table.classes, 0)
    for seed in cell.seeds:
        model = mapped(cell.data, seed, cell.keywords.get("epochs"), device)
        head: Any = model.network_.head
        with torch.inference_mode():
            own = head.z_item(torch.as_tensor(np.asarray(X, np.float32), device=next(head.parameters()).device))
        vectors = {
            "minilm": np.asarray(X, np.float64),
            "z_i": own.double().cpu().numpy(),
            "z_e": item_vectors(model, X),
        }
        near = {key: measure_separation(find_neighbours(z), code, table.n_classes) for key, z in vectors.items()}
        found.add(chance=near["z_e"].chance, **{key: one.mean for key, one in near.items()})
    return found.values


def draw(path: Path, device: str) -> None:
    """Draw the training items of weerasooriya2021-SET-items.svg as LDL-NM sees them, with seed 0."""
    from reproductions.figures import plot_latent

    name = path.stem.split("-")[1]
    train = parts(name)["train"]
    plot_latent(mapped(name, 0, None, device), train.X, path, table=train.table)


# Claims ---------------------------------------------------------------------------------------------------------------


def claims(get: GetValues) -> list[Claim]:
    """Judge RQ1 to RQ3."""

    def reduction(better: str, worse: str, metric: str) -> dict[str, PairedDifference]:
        """Differences between two conditions on every set; lower KL is better."""
        return compare_conditions(get, "table3", SETS, better, worse, metric, lower=metric != "accuracy")

    def both_kl(better: str, worse: str) -> dict[str, PairedDifference]:
        return {
            f"{name}, {metric}": difference
            for metric in ("kl", "accuracy") for name, difference in reduction(better, worse, metric).items()
        }  # fmt: skip

    def each_kl(better: tuple[str, ...], worse: str, metric: str) -> dict[str, PairedDifference]:
        return {f"{name}, {where}": d for name in better for where, d in reduction(name, worse, metric).items()}

    def joint_as(how: str) -> tuple[str, ...]:
        return tuple(f"{name} → CNN, {how}" for name in ("PGM-SA", "PGM-BP"))

    def suffices(most: str) -> dict[str, PairedDifference]:
        """Return KL with this number of rounds minus KL with ten."""
        return compare_conditions(get, "rounds", SETS, "at most 10 rounds", most, "kl", lower=True)

    graphical, own = ("FMM → CNN", "PGM-SA → CNN", "PGM-BP → CNN"), tuple(f"{name} by own votes" for name in METHODS)
    joint, hard, printed = graphical[1:], joint_as("hard"), joint_as("as printed")
    papers = "… by the paper's KL(predicted ‖ votes)"
    return [
        assess(
            "RQ1: clusters of items and annotators (PGM) help more than of items alone (FMM), CNN, KL",
            each_kl(joint, "FMM → CNN", "kl"),
        ),
        assess(papers, each_kl(joint, "FMM → CNN", "inverse_kl")),
        assess("… projected hard, as in the paper, KL", each_kl(hard, "FMM → CNN, hard", "kl")),
        assess(papers, each_kl(hard, "FMM → CNN, hard", "inverse_kl")),
        assess("… and everything as printed, KL", each_kl(printed, "FMM → CNN, as printed", "kl")),
        assess(papers, each_kl(printed, "FMM → CNN, as printed", "inverse_kl")),
        assess(
            "RQ1 against clusters of annotators alone (CommunityBCC), which the paper could not run: CNN, KL",
            each_kl(joint, "CommunityBCC → CNN", "kl"),
        ),
        assess(
            "What is printed is better than what we ran, projected hard, KL",
            {
                where: d
                for name in METHODS
                for where, d in each_kl((f"{name} → CNN, as printed",), f"{name} → CNN, hard", "kl").items()
            },
        ),
        assess("All clusterings beat the CNN without (PD), KL", each_kl(graphical, "PD", "kl")),
        assess(papers, each_kl(graphical, "PD", "inverse_kl")),
        assess(
            "RQ2, RQ3: LDL-NM beats the graphical models, by texts alone",
            {f"{name}, {where}": d for name in graphical for where, d in both_kl("LDL-NM", name).items()},
        ),
        assess(
            papers,
            {
                f"{name}, {where}": d
                for name in graphical
                for where, d in reduction("LDL-NM", name, "inverse_kl").items()
            },
        ),
        assess(
            "… also where those have the same vectors (MiniLM, a linear layer)",
            {f"FMM, {where}": d for where, d in both_kl("LDL-NM", "FMM → MiniLM, linear").items()},
        ),
        assess(papers, reduction("LDL-NM", "FMM → MiniLM, linear", "inverse_kl")),
        assess("LDL-NM beats a linear layer on the same vectors", both_kl("LDL-NM", "MiniLM, linear")),
        assess(papers, reduction("LDL-NM", "MiniLM, linear", "inverse_kl")),
        assess_equality(
            "Two rounds of belief propagation suffice: KL as with ten", suffices("at most 2 rounds"), KL_MARGIN
        ),
        assess_equality("… and one round", suffices("at most 1 round"), KL_MARGIN),
        assess(
            "With the leak (own votes) LDL-NM beats a linear layer, which has none", both_kl(LEAKS, "MiniLM, linear")
        ),
        assess(
            "With the leak (own votes) LDL-NM beats the clusterings that have it, too",
            {f"{name}, {where}": d for name in own for where, d in both_kl(LEAKS, name).items()},
        ),
    ]
