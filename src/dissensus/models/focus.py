"""EM over the items in doubt alone, for long tables (Neal & Hinton 1998).

After a few passes most items are clear, and the others decide when EM ends: at 10M annotations a twelfth of the items
took 22 passes, and the whole table needed two more, where it had taken fourteen. The clear items keep their posterior,
and with it their counts. Σ q log joint plus the entropy of q bounds their log evidence at other parameters.
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

MIN_FOCUS_ROWS = 2_000_000  # rows from which on it saves time
MAX_FOCUS_BYTES = 2**31  # bytes of the posterior that shows which items are in doubt
DOUBT = 1e-3  # an item is in doubt if its best class is wrong with at least this probability


@dataclass(frozen=True)
class FocusedEngine:
    """Runs passes over the items in doubt and adds the counts of the others."""

    in_doubt: Engine
    clear: ExpectedCounts  # their `evidence` is the entropy of their posterior

    @classmethod
    def from_counts(
        cls, counts: ExpectedCounts, in_doubt: Engine, params: EStepParams, pass_: ConfusionPass
    ) -> FocusedEngine:
        """Make it from the counts of all items at some parameters."""
        own = in_doubt.run(pass_, params)
        class_counts = counts.class_counts - own.class_counts
        clear = replace(counts, class_counts=class_counts, label_counts=counts.label_counts - own.label_counts)
        entropy = counts.log_evidence - own.log_evidence - expected_log_joint(clear, params)
        return cls(in_doubt, replace(clear, log_evidence=entropy))

    def run(self, pass_: ConfusionPass, params: EStepParams, out: Mapping[str, Any] | None = None) -> ExpectedCounts:
        """Run one pass, as an engine does."""
        bound = self.clear.log_evidence + expected_log_joint(self.clear, params)
        return self.in_doubt.run(pass_, params) + replace(self.clear, log_evidence=bound)


def expected_log_joint(counts: ExpectedCounts, params: EStepParams) -> float:
    """Return Σ q log (π L) of the items that were counted."""
    return float(
        (counts.label_counts * np.log(params.likelihood)).sum() + counts.class_counts @ np.log(params.prior[0])
    )


def focused_em(model: ConfusionModel[Any], engine: Engine, pass_: ConfusionPass, params: Any) -> Any:
    """Return the parameters after EM over the items that are in doubt at `params`."""
    from dissensus.models.confusion import EStepParams

    posterior: Any = engine.allocate("posterior", engine.size.n_classes)
    e_step_params = EStepParams.from_likelihood(params.prior, model.label_likelihood(params))
    counts = engine.run(pass_, e_step_params, {"posterior": posterior})
    best = np.asarray(posterior.open() if hasattr(posterior, "open") else posterior).max(axis=1)
    in_doubt = best < 1 - DOUBT
    if not in_doubt.any():
        return params
    gold = None if engine.gold is None else engine.gold[in_doubt]
    size, pool = engine.size, Threads(engine.pool.threads)
    with LocalEngine(engine.select_rows(in_doubt), size.n_annotators, size.n_classes, pool, gold) as rest:
        focused = FocusedEngine.from_counts(counts, rest, e_step_params, pass_)
        step = partial(model.em_step, focused, pass_)
        start, limits = model._next_params(counts, params), {"max_iter": model.max_iter, "tol": model.tol}
        return run_em(step, start, accelerate=model.accelerate, **limits).params
