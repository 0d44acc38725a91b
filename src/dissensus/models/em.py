"""The EM driver: restarts, convergence, acceleration, checkpoints and the trace, for every EM method.

A method provides initial parameters and an EM step, a function from parameters to their objective and the next
parameters. The objective is the log evidence plus the log prior density, which EM never decreases.

`accelerate="squarem"` extrapolates. The driver begins with two cycles of SQUAREM (Varadhan & Roland 2008, scheme S3):
two EM steps lead from θ0 to θ1 and θ2, and with r = θ1 − θ0, v = (θ2 − θ1) − r and α = ‖r‖/‖v‖ the next parameters are
θ' = θ0 + 2αr + α²v. The pass at θ' returns both its objective and its EM step, so a cycle costs two passes. Most
problems have nearly converged after two cycles. On the others, further SQUAREM cycles would alternate between long
jumps and recoveries. Momentum, θ + 0.75 (θ − previous EM step), then needs fewer passes (28 instead of 51 on
gimpel_pos, 25 instead of 35 on ner_mturk). An extrapolation whose objective is below the last one is discarded, and the
run restarts from the EM step. Therefore the objective never decreases.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, Generic, Literal, Protocol, Self, TypeVar, cast

import numpy as np

from dissensus.common.parameters import param
from dissensus.common.types import FloatArray, OnStep
from dissensus.models.base import Aggregator
from dissensus.models.exceptions import ObjectiveNotFinite
from dissensus.models.tempering import DEPENDENCE, DependenceChoice

MAX_SQUAREM_STEP = 4.0  # maximum α of a SQUAREM cycle; α = 1 corresponds to two EM steps
MOMENTUM = 0.75  # factor of the momentum; values from 0.7 to 0.8 work equally well
PASSES_BEFORE_REFINING = 4  # passes after which the class of most items is clear

Accelerate = Literal["squarem"] | None


class UnconstrainedParams(Protocol):
    """Parameters that can be converted to and from an unconstrained vector."""

    def to_vector(self) -> FloatArray:
        """Return the parameters as one unconstrained vector."""

    def from_vector(self, vector: FloatArray) -> Self:
        """Return parameters of the same shapes from an unconstrained vector."""


P = TypeVar("P", bound=UnconstrainedParams)
T = TypeVar("T")
EMStep = Callable[[P], tuple[float, P]]
"""A function from parameters to their objective and the next parameters."""


def cached_by_params(method: Callable[[Any, Any], T]) -> Callable[[Any, Any], T]:
    """Cache the result of a method in the parameters that it takes, because a pass needs it more than once."""

    def cached(self: Any, params: Any) -> T:
        cache = vars(params)  # parameters are frozen and released after the pass
        if method.__name__ not in cache:
            cache[method.__name__] = method(self, params)
        return cache[method.__name__]  # type: ignore[no-any-return]

    return cached


class EMAggregator(Aggregator, Generic[P]):
    """Base class for aggregators that are fitted by EM."""

    max_iter: int = param(500, "maximum number of passes over the data, for each start", low=1)
    tol: float = param(1e-7, "stop when a pass gains less than this share of the objective", low=0)
    accelerate: Accelerate = param("squarem", "extrapolation of EM steps; None for plain EM")
    restarts: int = param(1, "number of starts; the result with the best objective is kept", low=1)
    dependence: DependenceChoice = DEPENDENCE
    threads: int | None = param(None, "threads for the passes; None for all cores", low=1)

    item_total_: Annotated[FloatArray, "I count"]

    def run_restarts(
        self,
        em_step: EMStep[P],
        initialise: Callable[[np.random.Generator | None], P],
        on_step: OnStep,
        checkpoint: Any = None,
        refine: Callable[[P], P] | None = None,
    ) -> P:
        """Run EM from every start, set `trace_`, `converged_` and `n_iter_`, and return the best parameters.

        `initialise` returns the first parameters, which follow from the votes; with a generator, they are random ones
        near these. The state is saved to `checkpoint` after every pass, and a run continues from a saved state.
        `refine` improves the parameters once, after `PASSES_BEFORE_REFINING` passes. `n_iter_` counts the passes of
        all starts.
        """
        stored, passes, best = None if checkpoint is None else checkpoint.load(), 0, None

        def save_checkpoint(step: int, objective: float) -> None:
            if checkpoint is not None:
                best_state: dict[str, Any] = {} if best is None else best.state()
                prefixed = {f"best.{key}": value for key, value in best_state.items()}
                checkpoint.save({"number": number, "passes": passes} | run.state() | prefixed)
            on_step(passes + step, objective)

        for number, child in enumerate(np.random.SeedSequence(self.seed).spawn(self.restarts)):  # one seed per start
            if stored and number < stored["number"]:
                continue
            run = EMRun(initialise(np.random.default_rng(child) if number else None), self.accelerate)
            if stored:
                passes = int(stored["passes"])
                best_state = {key[5:]: value for key, value in stored.items() if key.startswith("best.")}
                best = EMRun(run.params, self.accelerate).restore(best_state) if best_state else None
                run.restore(stored)
                stored = None
            run.run(em_step, max_iter=self.max_iter, tol=self.tol, on_step=save_checkpoint, refine=refine)
            passes += len(run.trace)
            if best is None or run.trace[-1] > best.trace[-1]:
                best = run
        assert best is not None
        self.trace_, self.n_iter_, self.converged_ = np.array(best.trace), passes, best.converged
        if not best.converged:
            gain = best.trace[-1] - best.trace[-2] if len(best.trace) > 1 else np.nan
            self._warn_unconverged("passes", "the objective", gain)
        return best.params


class EMRun(Generic[P]):
    """One EM run from initial parameters, whose complete state can be saved between passes."""

    def __init__(self, params: P, accelerate: Accelerate):
        self.params = params
        self.trace: list[float] = []  # objective of each pass; the last one is repeated if an extrapolation is rejected
        self.converged = False
        self.fallback: P | None = None  # EM step that is used if an extrapolation is rejected
        # This is the number of remaining SQUAREM cycles, or None if the run never extrapolates.
        self.cycles = 2 if accelerate == "squarem" else None
        self.theta0: FloatArray | None = None  # θ0 of the current SQUAREM cycle
        self.theta1: FloatArray | None = None
        self.last_step: FloatArray | None = None  # vector of the last EM step, for momentum

    def run(
        self,
        em_step: EMStep[P],
        *,
        max_iter: int,
        tol: float,
        on_step: OnStep = lambda step, objective: None,
        refine: Callable[[P], P] | None = None,
    ) -> Self:
        """Repeat `em_step` until a pass gains at most tol·|objective|, or for `max_iter` passes.

        The last pass does not extrapolate, so `params` is always the result of an EM step.
        """
        while not self.converged and len(self.trace) < max_iter:
            if refine is not None and len(self.trace) == PASSES_BEFORE_REFINING:
                self._restart(refine(self.params if self.fallback is None else self.fallback))
            self._record_pass(*em_step(self.params), max_iter, tol)
            on_step(len(self.trace), self.trace[-1])
        return self

    def _restart(self, params: P) -> None:
        """Restart from these parameters and discard the last extrapolation."""
        self.params, self.fallback = params, None
        self.theta0 = self.theta1 = self.last_step = None

    def _record_pass(self, objective: float, after: P, max_iter: int, tol: float) -> None:
        """Record the result of a pass, or reject an extrapolation that decreased the objective."""
        trace, extrapolated = self.trace, self.fallback is not None
        if self.fallback is not None and not objective >= trace[-1]:  # the condition also holds for NaN
            trace.append(trace[-1])
            self._restart(self.fallback)
            return
        if not np.isfinite(objective):
            raise ObjectiveNotFinite(objective=objective)
        small_gain = bool(trace) and objective - trace[-1] <= tol * abs(objective)
        trace.append(objective)
        target = None
        if small_gain and not extrapolated:  # only a small gain by an EM step shows convergence
            self.converged = True
        elif self.cycles is not None and len(trace) < max_iter and not small_gain:
            target = self._extrapolate(self.params, after)
        self.params, self.fallback = (after, None) if target is None else (target, after)

    def _extrapolate(self, point: P, after: P) -> P | None:
        """Extrapolate from `point` and its EM step `after`; return None to use the EM step."""
        step = after.to_vector()
        previous, self.last_step = self.last_step, step
        if not self.cycles:
            return None if previous is None else after.from_vector(step + MOMENTUM * (step - previous))
        if self.theta0 is None or self.theta1 is None:
            self.theta0, self.theta1 = point.to_vector(), step
            return None
        zero, r, v = self.theta0, self.theta1 - self.theta0, (step - self.theta1) - (self.theta1 - self.theta0)
        self.theta0 = self.theta1 = None
        self.cycles -= 1
        length = float(np.sqrt(v @ v))
        alpha = min(float(np.sqrt(r @ r)) / length, MAX_SQUAREM_STEP) if length > 0 else 0.0
        if alpha <= 1.0:  # α = 1 is the second EM step
            return None
        return after.from_vector(zero + 2 * alpha * r + alpha**2 * v)

    def state(self) -> dict[str, Any]:
        """Return the state as named arrays and numbers; parameters are stored by field, so that no pickle is needed."""
        state: dict[str, Any] = {}
        for name, value in vars(self).items():
            if is_dataclass(value):
                state |= {f"{name}.{field.name}": getattr(value, field.name) for field in fields(value)}
            elif value is not None:
                state[name] = value
        return state

    def restore(self, stored: Mapping[str, Any]) -> Self:
        """Replace the state of this run by one that `state` returned; return the run."""
        kind, names = type(self.params), [field.name for field in fields(cast(Any, self.params))]
        for name in vars(self):
            value = stored.get(name)
            if f"{name}.{names[0]}" in stored:
                value = kind(*(stored[f"{name}.{part}"] for part in names))
            elif name in ("trace", "converged", "cycles") and value is not None:
                value = value.tolist()
            setattr(self, name, value)
        return self


def run_em(em_step: EMStep[P], params: P, *, accelerate: Accelerate, **limits: Any) -> EMRun[P]:
    """Run EM once from `params`; see `EMRun.run`."""
    return EMRun(params, accelerate).run(em_step, **limits)
