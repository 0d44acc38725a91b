"""Tables 1 to 3 and Figure 2 of Platanios et al. 2020: LIA at every redundancy, and its annotator embeddings.

Seed s draws at most r annotations of each item and the initial weights. All seeds of a cell are trained together
(`dissensus.learning.stacked`); aggregation methods run one after the other. The posterior of the annotated items is
scored; for two-stage methods it is the prediction h, by networks that have not seen the item (`folds`).

The responses of WordSim (0 to 10) are probabilistic annotations, as in the authors' program; in table `votes` they are
cut at 5. Medical sets are scored by the experts' labels (`accuracy`) and by the gold of the paper (`paper_gold`).
"""

from __future__ import annotations

import warnings
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
from scipy.spatial.distance import cdist
from scipy.stats import spearmanr
from sklearn.metrics import average_precision_score

import dissensus as dz
from dissensus.common.types import BoolArray, FloatArray, IntArray
from dissensus.evaluation import entropy
from dissensus.learning.run import make_tie_seed
from dissensus.models.base import arg_max, methods
from dissensus.table.annotations import Annotations
from reproductions.experiment import Cell, SeedValues, Values
from reproductions.prepared import prepared
from reproductions.verdict import Claim, GetValues, PairedDifference, assess, compare_conditions, paired
from reproductions.watch import no_progress

TEXTS = ("rte", "medical_causes", "medical_treats")
MEDICAL = {"medical_causes": "CAUSES", "medical_treats": "TREATS"}
REDUNDANCY = {"bluebirds": (2, 5, 10, 20, 39)} | dict.fromkeys(("wordsim", *TEXTS), (2, 5, 10))
CELLS = [f"{name}, {most}" for name, each in REDUNDANCY.items() for most in each]
BASELINES = ("MAJ", "MMCE", "Snorkel", "MeTaL")
GOLD_FOLDS = 10  # Folds of models that are trained on gold.
PredictedClasses = IntArray
"""(S, I) predicted class of every item, for every seed."""


# Data -----------------------------------------------------------------------------------------------------------------


@cache
def load(name: str, items: int | None = None) -> tuple[Annotations, dict[str, IntArray]]:
    """Load annotations, and gold by metric; `items` limits the number of items."""
    data: Any = dz.load_dataset(name.removesuffix("-votes"))
    table = responses(data) if name == "wordsim" else data.annotations
    golds = {"accuracy": data.gold}
    if name in MEDICAL:
        paper: Any = dz.load_dataset(name, gold="paper")
        assert np.array_equal(paper.annotations.items, table.items)
        golds["paper_gold"] = paper.gold
    some = evenly_spaced_mask(table.n_items, items)
    return table.select(items=some), {metric: gold[some] for metric, gold in golds.items()}


def evenly_spaced_mask(n_items: int, items: int | None) -> BoolArray:
    """Return a mask (I,) of `items` evenly spaced items, or of all items for None."""
    some = np.ones(n_items, np.bool_)
    if items is not None and items < n_items:
        some[:] = False
        some[np.arange(items) * n_items // items] = True
    return some


def responses(data: Any) -> Annotations:
    """Turn WordSim's answers 0 to 10 into probabilities."""
    rows = data.responses
    share = np.array(rows["response"].to_pylist(), float) / 10
    return Annotations.from_arrays(
        rows["item"].to_pylist(), rows["annotator"].to_pylist(), proba=np.stack([1 - share, share], axis=1),
        classes=data.annotations.classes.tolist(), items=data.annotations.items,
    )  # fmt: skip


@cache
def features(name: str, items: int | None = None) -> FloatArray:
    """Features (I, D): VGG, GloVe, or MiniLM of the text (of two texts: both, their difference and product)."""
    data: Any = dz.load_dataset(name.removesuffix("-votes"))
    some = evenly_spaced_mask(data.annotations.n_items, items)
    if data.features is not None:
        return np.asarray(data.features)[some]
    if items is not None:  # few: their vectors cost seconds, all of them minutes
        return embedded(data, some)
    return prepared(f"{name}-minilm", lambda: embedded(data, some))


def embedded(data: Any, some: BoolArray) -> FloatArray:
    """Embed the texts of some items with MiniLM."""
    from dissensus.features import embed_pairs, embed_texts

    columns = [column for column in ("text", "text_pair") if column in data.items.column_names]
    texts = [[text for text, is_in in zip(data.items[c].to_pylist(), some, strict=True) if is_in] for c in columns]
    return embed_texts(texts[0]) if len(texts) == 1 else embed_pairs(texts[0], texts[1])


def prepare() -> None:
    """Make what needs MiniLM."""
    for name in TEXTS:
        features(name)


def table1(cell: Cell, device: str) -> Values:
    """Count items, annotators and labels; accuracy of an annotator, by the paper's gold where there are two."""
    table, golds = load(cell.data)
    gold = golds.get("paper_gold", golds["accuracy"])
    known = gold[table.item] >= 0
    hits = np.bincount(table.annotator[known], (table.label == gold[table.item])[known], table.n_annotators)
    asked = np.bincount(table.annotator[known], minlength=table.n_annotators)
    found = SeedValues()
    found.add(
        items=table.n_items, annotators=table.n_annotators, redundancy=len(table) / table.n_items,
        right=100 * (hits[asked > 0] / asked[asked > 0]).mean(), labels_right=100 * hits.sum() / asked.sum(),
    )  # fmt: skip
    return found.values


# Tables 2 and 3 -------------------------------------------------------------------------------------------------------


def table2(cell: Cell, device: str) -> Values:
    """Run one method at one redundancy, all seeds."""
    how, items = cell.keywords, cell.keywords.get("items")
    name, redundancy = how["set"], how["redundancy"]
    golds = load(name, items)[1]
    if how["kind"] == "aggregate":
        found = posteriors(name, redundancy, how["method"], cell.seeds, items, tuple(how.get("options", {}).items()))
        gold = golds["accuracy"]
        ranked = [average_precision_score(gold[gold >= 0], row[gold >= 0, 1]) for row in found]
        return scores(winners(found, name, items, cell.seeds), golds) | {
            "precision": [round(100 * float(value), 3) for value in ranked]
        }
    if how["kind"] == "many questions":
        found = many_questions(redundancy, cell.seeds, how.get("steps"), items, device)[name]
        return scores(predicted_classes(found, how, cell.seeds), golds)
    return scores(network(name, redundancy, cell.seeds, how, device), golds)


table3 = votes = often = table2


def predicted_classes(posterior: FloatArray, how: dict[str, Any], seeds: tuple[int, ...]) -> PredictedClasses:
    """Return the predicted classes of posteriors (S, I, K)."""
    if "as_often" not in how:
        return np.asarray(posterior.argmax(axis=2))
    if how["as_often"] is True:
        uniform = (("class_prior", "uniform"),)
        others = posteriors(how["set"], how["redundancy"], "mmce", seeds, how.get("items"), uniform).argmax(axis=2)
        most = others.sum(axis=1)[:, None]
    else:
        most = round(how["as_often"] * posterior.shape[1])
    rank = np.argsort(np.argsort(-posterior[:, :, 1], axis=1, kind="stable"), axis=1)
    return np.asarray(rank < most, np.int32)


def scores(winners: PredictedClasses, golds: dict[str, IntArray]) -> Values:
    """Metric → accuracy in % of every seed, over the items that have gold."""
    return {
        metric: [round(100 * float((row == gold)[gold >= 0].mean()), 3) for row in winners]
        for metric, gold in golds.items()
    }


@cache  # two stages begin with them
def posteriors(
    name: str, redundancy: int, method: str, seeds: tuple[int, ...], items: int | None, options: tuple[Any, ...] = ()
) -> FloatArray:
    """Fit an aggregation method, seed by seed: (S, I, K)."""
    table, kind = load(name, items)[0], cast(Any, methods[method])
    draws = ((seed, table.subsample(redundancy, seed=seed)) for seed in seeds)
    return np.array([kind(seed=seed, **dict(options)).fit(draw).predict_proba() for seed, draw in draws])


def winners(posterior: FloatArray, name: str, items: int | None, seeds: tuple[int, ...]) -> PredictedClasses:
    """Classes of posteriors (S, I, K); ties are drawn by the seed, as `predict` does."""
    table = load(name, items)[0]
    found = [arg_max(q, table.items, table.classes, make_tie_seed(s)) for s, q in zip(seeds, posterior, strict=True)]
    return np.array(found, np.int32)


def network(name: str, redundancy: int, seeds: tuple[int, ...], how: dict[str, Any], device: str) -> PredictedClasses:
    """Train LIA and take its posterior; in two stages, train a network on labels of an aggregation method."""
    from dissensus.learning import LIA
    from dissensus.learning.objectives import Hard
    from dissensus.learning.stacked import stack_trainings

    items = how.get("items")
    table = load(name, items)[0]
    tables = [table.subsample(redundancy, seed=seed) for seed in seeds]
    sizes: dict[str, Any] = {"hidden": (how["width"],) * 4, "dropout": 0.0} if how["paper_network"] else {}
    options: dict[str, Any] = {key: None if value == "none" else value for key, value in how.get("options", {}).items()}
    plain = LIA(device=device, steps=how["steps"], **sizes, **options)
    models = [plain.classifier(tables[0], features=how["features"]) for _ in seeds]
    for seed, model in zip(seeds, models, strict=True):
        model.seed = seed
    inputs = features(name, items) if how["features"] else table.items
    if how["kind"] == "two stages":
        labels = winners(posteriors(name, redundancy, how["method"], seeds, items), name, items, seeds)
        for model in models:
            model.objective = Hard(labels="gold")
        if "folds" in how:
            return two_stages(models, tables, inputs, labels, how["folds"])
        return train_and_predict(models, tables, inputs, labels)
    stack = stack_trainings(models, tables, inputs)
    stack.train()
    return predicted_classes(stack.predict_posterior(), how, seeds)


def train_and_predict(
    models: list[Any], tables: list[Annotations], inputs: Any, labels: PredictedClasses, new_inputs: Any = None
) -> PredictedClasses:
    """Train networks on the labels (S, I) that are not −1, and predict the same inputs, or `new_inputs`."""
    from dissensus.learning.stacked import stack_trainings

    stack = stack_trainings(models, tables, inputs, gold=list(labels))
    stack.train()
    return np.asarray(stack.predict_proba(new_inputs).argmax(axis=2), np.int32)


def two_stages(
    models: list[Any], tables: list[Annotations], x: FloatArray, labels: PredictedClasses, folds: int
) -> PredictedClasses:
    """Return (S, I) classes predicted by networks that were trained on the other folds."""
    fold, found = np.arange(len(x)) % folds, np.empty_like(labels)
    for number in range(folds):
        here = fold == number
        found[:, here] = train_and_predict(models, tables, x, np.where(here, np.int32(-1), labels), x[here])
    return found


# Information in the features ------------------------------------------------------------------------------------------


def bound(cell: Cell, device: str) -> Values:
    """Train logistic regression on gold, in folds; use it alone, or as the prior of the drawn labels."""
    from dissensus.learning.posterior import combine_posterior

    how, items = cell.keywords, cell.keywords.get("items")
    name = how["set"]
    table, golds = load(name, items)
    proba = gold_trained_probabilities(name, items)
    if not how["votes"]:
        return scores(np.array([proba.argmax(axis=1)] * len(cell.seeds)), golds)
    draws = (table.subsample(how["redundancy"], seed=seed) for seed in cell.seeds)
    return scores(np.array([combine_posterior(draw, proba, None)[0].posterior.argmax(axis=1) for draw in draws]), golds)


def labels(cell: Cell, device: str) -> Values:
    """Train logistic regression on gold, in random folds: on all labels of an item, and optionally on its vector."""
    from sklearn.model_selection import StratifiedKFold

    name, found = cell.keywords["set"], SeedValues()
    table, golds = load(name)
    gold = golds["accuracy"]
    yes = table.label if table.proba is None else table.proba[:, 1]
    given = np.zeros((table.n_items, table.n_annotators))
    given[table.item, table.annotator] = 2 * yes - 1
    if cell.keywords["vectors"]:
        proba = gold_trained_probabilities(name, None)
        given = np.column_stack([given, np.log(proba[:, 1] / proba[:, 0])])
    for seed in cell.seeds:
        right = np.zeros(len(gold), np.bool_)
        for some, rest in StratifiedKFold(GOLD_FOLDS, shuffle=True, random_state=seed).split(given, gold):
            model = regression([1e-4, 1e-3, 1e-2, 0.1, 1], given[some], gold[some])
            right[rest] = model.predict(given[rest]) == gold[rest]
        found.add(accuracy=100 * right.mean())
    return found.values


@cache
def gold_trained_probabilities(name: str, items: int | None) -> FloatArray:
    """Return (I, K) P(class) by logistic regression that was trained on the gold of the other folds."""
    from sklearn.model_selection import StratifiedKFold
    from sklearn.preprocessing import StandardScaler

    gold, x = load(name, items)[1]["accuracy"], StandardScaler().fit_transform(features(name, items))
    known = np.flatnonzero(gold >= 0)
    proba = np.full((len(x), 2), 0.5)
    for some, rest in StratifiedKFold(GOLD_FOLDS, shuffle=True, random_state=0).split(known, gold[known]):
        model = regression([1e-4, 1e-3, 1e-2, 0.1], x[known[some]], gold[known[some]])
        proba[known[rest]] = model.predict_proba(x[known[rest]])
    return proba


def regression(costs: list[float], x: FloatArray, gold: IntArray) -> Any:
    """Fit logistic regression; its penalty is chosen in three folds, by log loss."""
    from sklearn.linear_model import LogisticRegressionCV

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # The next version renames parameters.
        return LogisticRegressionCV(Cs=costs, scoring="neg_log_loss", cv=3, max_iter=500).fit(x, gold)


@cache  # Two data sets use the result.
def many_questions(
    redundancy: int, seeds: tuple[int, ...], steps: int | None, items: int | None, device: str
) -> dict[str, FloatArray]:
    """Train LIA-ML on all 14 relations; return posteriors (S, I, K) of the two that have gold.

    A seed draws the same judgements for all.
    """
    from dissensus.learning.lia_ml import LIAML
    from dissensus.learning.stacked import Stack

    whole: Any = dz.load_dataset("medical_relations")
    some = evenly_spaced_mask(next(iter(whole.annotations.values())).n_items, items)
    questions = {name: table.select(items=some) for name, table in whole.annotations.items()}
    settings: dict[str, Any] = {} if steps is None else {"steps": steps}
    runs = []
    for seed in seeds:
        less = {name: table.subsample(redundancy, seed) for name, table in questions.items()}
        runs.append(LIAML(seed=seed, device=device, **settings).prepare_run(less, features("medical_causes", items)))
    stack = Stack(runs)
    stack.train()
    objective: Any = runs[0].objective
    posterior = stack.predict_posterior().reshape(len(seeds), -1, len(objective.questions_), objective.n_classes_)
    for name, relation in MEDICAL.items():
        assert np.array_equal(load(name, items)[0].items, questions[relation].items)
    return {
        name: posterior[:, :, objective.questions_.index(relation)]
        for name, relation in MEDICAL.items()
    }  # fmt: skip


# Figure 2 -------------------------------------------------------------------------------------------------------------


@cache
def fitted(name: str, seed: int, steps: int, device: str) -> Any:
    """Fit LIA with the set's features."""
    from dissensus.learning import LIA

    data: Any = dz.load_dataset(name)
    return LIA(seed=seed, steps=steps, device=device).fit(data.annotations, data.features, on_step=no_progress)


def figure2(cell: Cell, device: str) -> Values:
    """Measure whether embeddings show how annotators err. Gold judges; the fit does not see it."""
    from dissensus.learning.annotator_map import competence_coordinates, project
    from dissensus.questions.annotator_errors import annotator_errors

    data: Any = dz.load_dataset(cell.data)
    table, truth = data.annotations, np.eye(2)[data.gold]
    by_gold, found = annotator_errors(table, truth), SeedValues()
    shares = table.soft_labels()
    for seed in cell.seeds:
        model = fitted(cell.data, seed, cell.keywords["steps"], device)
        rows = competence_coordinates(model.classifier_)
        place = project(rows, projection="pca")[0]
        near, chance = neighbours(rows, by_gold.cluster)
        found.add(
            right=(model.posterior_.argmax(axis=1) == data.gold).mean(), neighbour=near, chance=chance,
            fpr=r2(by_gold.false_positive[:, 1], place), fnr=r2(by_gold.false_negative[:, 1], place),
            competence=spearmanr(model.competence_[:, 0], 1 - by_gold.error_rate).statistic,
            entropy=spearmanr(model.difficulty_, entropy(shares)).statistic,
            wrong_votes=spearmanr(model.difficulty_, 1 - (shares * truth).sum(axis=1)).statistic,
        )  # fmt: skip
    return found.values


def neighbours(rows: FloatArray, cluster: IntArray) -> tuple[float, float]:
    """Share of rows whose nearest row is of their cluster, and that share by chance."""
    apart = cdist(rows, rows) + np.diag(np.full(len(rows), np.inf))
    same = cluster[:, None] == cluster
    nearest = same[np.arange(len(rows)), apart.argmin(axis=1)].mean()
    return float(nearest), float((same.sum() - len(rows)) / (len(rows) * (len(rows) - 1)))


def r2(y: FloatArray, X: FloatArray) -> float:
    """R² of a linear fit with an intercept."""
    full = np.column_stack([np.ones(len(X)), X])
    left = y - full @ np.linalg.lstsq(full, y, rcond=None)[0]
    return float(1 - (left**2).sum() / ((y - y.mean()) ** 2).sum())


def draw(path: Path, device: str) -> None:
    """Draw platanios2020-SET-annotators.svg or platanios2020-SET-difficulty.svg, with seed 0."""
    from dissensus.learning import LIA
    from reproductions.figures import plot_annotator_embeddings, plot_difficulty

    _, name, what = path.stem.split("-")
    data: Any = dz.load_dataset(name)
    model = fitted(name, 0, LIA().steps, device)
    if what == "annotators":
        plot_annotator_embeddings(model, data.annotations, path)
    else:
        plot_difficulty(model, data.annotations, path, data.gold)


# Claims ---------------------------------------------------------------------------------------------------------------


def claims(get: GetValues) -> list[Claim]:
    """Compare LIA with others, over the same draws, in points of accuracy."""

    def lead(better: str, worse: str, metric: str = "accuracy", of: str = "table2") -> dict[str, PairedDifference]:
        """Return the lead of `better` (Table 2) in every cell that both methods have."""
        return compare_conditions(get, "table2", CELLS, better, worse, metric, of=of)

    def leads_over_each(better: str, *worse: str) -> dict[str, PairedDifference]:
        return {f"{name}: {where}": d for name in worse for where, d in lead(better, name).items()}

    def map_of(metric: str, than: str) -> dict[str, PairedDifference]:
        each = {name: [get("figure2", name, "LIA()", m) for m in (metric, than)] for name in ("bluebirds", "wordsim")}
        return {name: paired(mine, theirs) for name, (mine, theirs) in each.items() if mine and theirs}

    def best_baseline(where: str, metric: str) -> dict[int, float]:
        """Values of the baseline with the highest mean."""
        each = [dict(found) for name in BASELINES if (found := get("table2", where, name, metric))]
        return max(each, key=lambda values: float(np.mean(list(values.values()))), default={})

    def lead_over_best(
        mine: str, where: str, other: str, metric: str = "accuracy", times: float = 1.0
    ) -> dict[str, PairedDifference]:
        found, theirs = get("table2", where, mine, metric), best_baseline(other, metric)
        scaled = {seed: times * value for seed, value in theirs.items()}
        return {f"{mine} at {where}, best other at {other}": paired(found, scaled)} if found and theirs else {}

    sparing = [("bluebirds, 5", "bluebirds, 20"), ("bluebirds, 10", "bluebirds, 39"), ("bluebirds, 2", "bluebirds, 10"),
               ("wordsim, 2", "wordsim, 10"), ("rte, 2", "rte, 10")]  # fmt: skip
    gold = "by the paper's gold"
    return [
        assess("LIA beats majority vote at every redundancy", lead("LIA", "MAJ")),
        assess(f"… {gold}", lead("LIA", "MAJ", "paper_gold")),
        assess(
            "… and so do LIA-E and the library's own LIA()",
            {f"{name}: {where}": d for name in ("LIA-E", "LIA()") for where, d in lead(name, "MAJ").items()},
        ),
        assess("LIA beats MMCE at every redundancy", lead("LIA", "MMCE")),
        assess(f"… {gold}", lead("LIA", "MMCE", "paper_gold")),
        assess("LIA beats Snorkel and MeTaL at every redundancy", leads_over_each("LIA", "Snorkel", "MeTaL")),
        assess("LIA beats Dawid-Skene (not in the paper)", lead("LIA", "Dawid-Skene")),
        assess("Fine-tuning helps", lead("LIA", "LIA, no fine-tuning", of="table3")),
        assess(f"… {gold}", lead("LIA", "LIA, no fine-tuning", "paper_gold", of="table3")),
        assess("Features help LIA (against LIA-E)", lead("LIA", "LIA-E")),
        assess(f"… {gold}", lead("LIA", "LIA-E", "paper_gold")),
        assess("Learning at once beats two stages (MAJ*, MMCE*)", leads_over_each("LIA", "MAJ*", "MMCE*")),
        assess(
            "Two-stage models do worse than the labels they are trained on (MAJ against MAJ*, MMCE against MMCE*)",
            leads_over_each("MAJ", "MAJ*") | leads_over_each("MMCE", "MMCE*"),
        ),
        assess("Many questions at once help (LIA-ML against LIA)", lead("LIA-ML", "LIA")),
        assess(f"… {gold}", lead("LIA-ML", "LIA", "paper_gold")),
        assess(
            "Abstract: up to 25 % above the best other method (LIA-ML less 1.25 times it, by the paper's gold)",
            {
                key: d
                for where in CELLS
                if where.startswith("medical")
                for key, d in lead_over_best("LIA-ML", where, where, "paper_gold", 1.25).items()
            },
        ),
        assess(
            "Abstract: as good as the best other method with up to 4 times less redundancy",
            {key: d for few, many_labels in sparing for key, d in lead_over_best("LIA", few, many_labels).items()},
        ),
        assess(
            "MMCE with a uniform class prior reaches LIA-ML by the paper's gold, without features",
            lead("MMCE, π uniform", "LIA-ML", "paper_gold"),
        ),
        assess(
            "An h that has not seen the item is better than one that has",
            lead("LIA", "LIA, h has seen the item", of="table3"),
        ),
        assess(
            "Figure 2: annotators with similar mistakes are close (nearest neighbour in the same cluster of mistakes, "
            "less chance)",
            map_of("neighbour", "chance"),
        ),
    ]
