"""EM over the uncertain items only, for long tables (Neal & Hinton 1998).

The class of most items is clear after a few passes, and the remaining items determine when EM converges. On 10M
annotations, 22 passes over a twelfth of the items and two passes over the whole table replaced fourteen passes over the
whole table. Clear items keep their posterior and their counts. At other parameters, Σ q log joint plus the entropy of q
is a lower bound of their log evidence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dissensus.compute.engines.base import Engine
from dissensus.compute.engines.local import LocalEngine, Threads
from dissensus.models.em import run_em

if TYPE_CHECKING:
    from dissensus.models.confusion import ConfusionModel, ConfusionPass, EStepParams, ExpectedCounts

MIN_FOCUS_ROWS = 2_000_000  # minimum number of rows of a table; with fewer rows no time is saved
MAX_FOCUS_BYTES = 2**31  # maximum size of the posterior, in bytes
UNCERTAIN_ERROR_PROBABILITY = 1e-3  # minimum P(best class is wrong) of an uncertain item


@dataclass(frozen=True)
class FocusedEngine:
    """An engine that runs passes over the uncertain items and adds the constant counts of the clear items."""

    uncertain_engine: Engine
    clear_counts: ExpectedCounts  # in which `log_evidence` is the entropy of the posterior

    @classmethod
    def from_counts(
        cls, counts: ExpectedCounts, in_doubt: Engine, params: EStepParams, pass_: ConfusionPass
    ) -> FocusedEngine:
        """Return the engine, given the counts of all items under the parameters `params`."""
        own = in_doubt.run(pass_, params)
        class_counts = counts.class_counts - own.class_counts
        clear = replace(counts, class_counts=class_counts, label_counts=counts.label_counts - own.label_counts)
        entropy = counts.log_evidence - own.log_evidence - expected_log_joint(clear, params)
        return cls(in_doubt, replace(clear, log_evidence=entropy))

    def run(self, pass_: ConfusionPass, params: EStepParams, out: Mapping[str, Any] | None = None) -> ExpectedCounts:
        """Run one pass and return the sums over all items."""
        bound = self.clear_counts.log_evidence + expected_log_joint(self.clear_counts, params)
        return self.uncertain_engine.run(pass_, params) + replace(self.clear_counts, log_evidence=bound)


def expected_log_joint(counts: ExpectedCounts, params: EStepParams) -> float:
    """Return Σ q log(π L) over the items whose expected counts are given."""
    return float(
        (counts.label_counts * np.log(params.likelihood)).sum() + counts.class_counts @ np.log(params.prior[0])
    )


def focused_em(model: ConfusionModel[Any], engine: Engine, pass_: ConfusionPass, params: Any) -> Any:
    """Return the parameters after EM over the items that are uncertain at `params`."""
    from dissensus.models.confusion import EStepParams

    posterior: Any = engine.allocate("posterior", engine.size.n_classes)
    e_step_params = EStepParams.from_likelihood(params.prior, model.label_likelihood(params))
    counts = engine.run(pass_, e_step_params, {"posterior": posterior})
    best = np.asarray(posterior.to_array() if hasattr(posterior, "to_array") else posterior).max(axis=1)
    in_doubt = best < 1 - UNCERTAIN_ERROR_PROBABILITY
    if not in_doubt.any():
        return params
    gold = None if engine.gold is None else engine.gold[in_doubt]
    size, pool = engine.size, Threads(engine.pool.threads)
    with LocalEngine(engine.select_rows(in_doubt), size.n_annotators, size.n_classes, pool, gold) as rest:
        focused = FocusedEngine.from_counts(counts, rest, e_step_params, pass_)
        step = partial(model.em_step, focused, pass_)
        start, limits = model._next_params(counts, params), {"max_iter": model.max_iter, "tol": model.tol}
        return run_em(step, start, accelerate=model.accelerate, **limits).params
