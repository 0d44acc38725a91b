"""Which method to use: all that are worth a try, compared without gold on as many items as that takes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from dissensus.common.types import IntArray
from dissensus.exceptions import ConvergenceWarning
from dissensus.models.base import Aggregator, arg_max, check_gold, methods
from dissensus.questions.compare import MAJORITY, Comparison, compare
from dissensus.table.annotations import Annotations

CHOICE = (MAJORITY, "wawa", "one-coin", "glad", "mace", "dawid-skene", "hierarchical-dawid-skene")
ENOUGH = 40_000  # annotations to compare by; of larger tables a part is taken, whole items at a time
PASSES = 50  # at most: what a method has not learnt by then changes no rank


@dataclass(frozen=True, eq=False)
class Contest:
    """Methods compared on some items, and the labels that they give to them."""

    comparison: Comparison
    items: IntArray  # (n,) codes of the items that were taken
    sampled: bool  # whether that is not all of them
    labels: dict[str, IntArray]  # method, the best first → (n,) class codes


def contest(
    table: Annotations,
    names: Iterable[str] | None = None,
    *,
    gold: IntArray | None = None,
    seed: int = 0,
    on_step: Callable[[str], None] = lambda what: None,
) -> Contest:
    """Compare methods; left out, a few of different kinds."""
    import dissensus.models.methods  # noqa: F401 - registers the methods

    wanted = list(dict.fromkeys(names or CHOICE))
    fitting = [n for n in wanted if not (methods.entry(n).facts.get("binary") and table.n_classes > 2)]
    gold = check_gold(gold, table)
    chosen = np.arange(table.n_items)
    sampled = table.n_annotations > ENOUGH
    if sampled:
        n = max(2, round(ENOUGH / table.n_annotations * table.n_items))
        chosen = np.sort(np.random.default_rng(seed).permutation(table.n_items)[:n])
        mask = np.zeros(table.n_items, np.bool_)
        mask[chosen] = True
        table, gold = table.select(items=mask), None if gold is None else gold[mask]
    found = compare(
        table,
        [brief(methods[name]()) for name in fitting],
        gold=gold,
        seed=seed,
        on_fit=lambda method, done, of: on_step(f"comparing methods: {method}, {done} of {of} fits done"),
    )
    labels = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for one in found:
            on_step(f"comparing methods: labels of {one.method}")
            model = one.model or brief(methods[one.method]()).fit(table)
            labels[one.method] = arg_max(model.posterior_, model.items_, model.classes_, model.tie_seed_)
    return Contest(found, chosen, sampled, labels)


def brief(model: Aggregator) -> Aggregator:
    """The same model, told to give up early."""
    if model.get_params().get("max_iter", 0) > PASSES:
        model.set_params(max_iter=PASSES)
    return model
