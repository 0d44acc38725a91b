"""Compare the methods that are worth a try, on a sample of the items where there are many."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from dissensus.common.registry import DEFAULT_METHOD
from dissensus.common.types import IntArray
from dissensus.exceptions import ConvergenceWarning
from dissensus.models.base import Aggregator, arg_max, check_gold, methods
from dissensus.questions.compare import MAJORITY, Comparison, compare
from dissensus.table.annotations import Annotations

DEFAULT_METHODS = (
    DEFAULT_METHOD,
    MAJORITY,
    "wawa",
    "one-coin",
    "glad",
    "mace",
    "dawid-skene",
    "hierarchical-dawid-skene",
)
MAX_ANNOTATIONS = 40_000  # of larger tables a part is compared, whole items at a time
MAX_PASSES = 50  # what a method has not learnt by then changes no rank


@dataclass(frozen=True, eq=False)
class Contest:
    """Methods compared on some items, and the labels that they give to them."""

    comparison: Comparison
    items: IntArray  # (n,) codes of the items that were taken
    sampled: bool  # whether that is not all of them
    labels: dict[str, IntArray]  # method, the best first → (n,) class codes


def contest(
    table: Annotations,
    names: Iterable[str],
    *,
    gold: IntArray | None = None,
    seed: int = 0,
    on_step: Callable[[str], None] = lambda what: None,
) -> Contest:
    """Compare methods without gold."""
    wanted = dict.fromkeys(names)
    fitting = [n for n in wanted if not (methods.entry(n).facts.get("binary") and table.n_classes > 2)]
    gold = check_gold(gold, table)
    chosen = np.arange(table.n_items)
    sampled = table.n_annotations > MAX_ANNOTATIONS
    if sampled:
        n = max(2, round(MAX_ANNOTATIONS / table.n_annotations * table.n_items))
        chosen = np.sort(np.random.default_rng(seed).permutation(table.n_items)[:n])
        table, gold = table.select(items=table.items[chosen]), None if gold is None else gold[chosen]
    found = compare(
        table,
        [limit_passes(methods[name]()) for name in fitting],
        gold=gold,
        seed=seed,
        on_fit=lambda method, done, of: on_step(f"comparing methods: {method}, {done} of {of} fits done"),
    )
    labels = {}
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        for one in found:
            on_step(f"comparing methods: labels of {one.method}")
            model = one.model or limit_passes(methods[one.method]()).fit(table)
            labels[one.method] = arg_max(model.posterior_, model.items_, model.classes_, model.tie_seed_)
    return Contest(found, chosen, sampled, labels)


def limit_passes(model: Aggregator) -> Aggregator:
    """Lower the model's `max_iter` where it is higher."""
    if model.get_params().get("max_iter", 0) > MAX_PASSES:
        model.set_params(max_iter=MAX_PASSES)
    return model
