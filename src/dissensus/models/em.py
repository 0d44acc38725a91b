"""One EM driver: restarts, convergence, acceleration and the trace, written once for every EM method.

A method gives a start and a pass. The objective is the one EM raises, log evidence plus log prior density, so it never
falls.

`accelerate="squarem"` looks ahead of EM. First two cycles of SQUAREM (Varadhan & Roland 2008, scheme S3): from θ0 take
two EM steps to θ1, θ2; with r = θ1 − θ0 and v = (θ2 − θ1) − r jump to θ' = θ0 + 2αr + α²v, α = ‖r‖/‖v‖. The pass at θ'
tells its objective and its EM step at once, so a cycle costs two passes. Most problems are nearly done then. On the
others further cycles alternate between long jumps and cleaning up after them; momentum, θ + 0.75 (θ − the EM step
before it), gets there in fewer passes (gimpel_pos 28 against 51, labelme 13 against 14, ner_mturk 25 against 35).
Either way a look ahead whose objective is below the last known one is thrown away and the run goes on from the EM step:
the objective never falls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Annotated, Any, Generic, Literal, Protocol, Self, TypeVar, cast

import numpy as np

from dissensus.common.parameters import param
from dissensus.common.types import FloatArray, OnStep
from dissensus.compute.engines.base import Checkpoint
from dissensus.exceptions import BadParameter
from dissensus.models.base import Aggregator
from dissensus.models.dependence import DEPENDENCE, DependenceChoice

MAX_JUMP = 4.0  # how far a jump of a SQUAREM cycle may go; 1 is no further than EM itself
MOMENTUM = 0.75  # 0.7 to 0.8 are alike
PASSES_BEFORE_REFINING = 4  # the first few passes find what most items are

Accelerate = Literal["squarem"] | None


class Point(Protocol):
    """What the driver needs of a method's parameters: to be a point in a space without borders."""

    def to_vector(self) -> FloatArray:
        """The parameters as one unconstrained vector."""

    def from_vector(self, vector: FloatArray) -> Self:
        """Parameters of the same shapes at that point."""


P = TypeVar("P", bound=Point)
T = TypeVar("T")


@dataclass
class Run(Generic[P]):
    """Where one EM run ended."""

    params: P
    trace: list[float]  # the objective that each pass found, or kept where it turned a jump down: one entry per pass
    converged: bool


def remembered(method: Callable[[Any, Any], T]) -> Callable[[Any, Any], T]:
    """Keep what a method of a model makes of some parameters beside them: a pass asks for it more than once."""

    def recall(self: Any, params: Any) -> T:
        kept = vars(params)  # they are frozen, and forgotten after the pass
        if method.__name__ not in kept:
            kept[method.__name__] = method(self, params)
        return kept[method.__name__]  # type: ignore[no-any-return]

    return recall


class EMAggregator(Aggregator, Generic[P]):
    """An aggregator fitted by EM."""

    max_iter: int = param(500, "passes over the data at most, for one start", low=1)
    tol: float = param(1e-7, "stop when a pass gains less than this share of the objective", low=0)
    accelerate: Accelerate = param("squarem", "look ahead of EM, or (None) take its steps alone")
    restarts: int = param(1, "number of starts, of which the best objective is kept", low=1)
    dependence: DependenceChoice = DEPENDENCE
    threads: int | None = param(None, "threads for the passes; None for all cores", low=1)

    item_total_: Annotated[FloatArray, "I count"]

    def run(
        self,
        em_pass: Callable[[P], tuple[float, P]],
        start: Callable[[np.random.Generator | None], P],
        on_step: OnStep,
        checkpoint: Checkpoint,
        refine: Callable[[P], P] | None = None,
    ) -> P:
        """Fit from every start, keep the best; sets its `trace_` and `converged_`, and `n_iter_`, the passes of all.

        `start` gives the first parameters: from the votes, or (a generator given) from a random start near that. After
        every pass the state goes to `checkpoint`, and a run that finds one there goes on from it. `refine` improves
        parameters at the price of few passes, once, after `PASSES_BEFORE_REFINING`.
        """
        children = np.random.SeedSequence(self.seed).spawn(self.restarts)  # one child per restart, and nobody else
        stored = checkpoint.load()
        best: Run[P] | None = None
        passes = 0
        for number, child in enumerate(children):
            if stored and number < stored["number"]:
                continue
            first = start(np.random.default_rng(child) if number else None)
            climbing = Climb(first, self.accelerate)
            if stored:
                (passes, best, climbing), stored = unpack(stored, climbing), None
            put_away = partial(_put_away, checkpoint, number, passes, best, climbing, on_step)
            done = climbing.run(em_pass, max_iter=self.max_iter, tol=self.tol, on_step=put_away, refine=refine)
            passes += len(done.trace)
            if best is None or done.trace[-1] > best.trace[-1]:
                best = done
        assert best is not None
        self.trace_, self.n_iter_, self.converged_ = np.array(best.trace), passes, best.converged
        if not best.converged:
            gain = (
                f"raised the objective by {best.trace[-1] - best.trace[-2]:.3g}"
                if len(best.trace) > 1
                else "was the first"
            )
            self._warn_unconverged("passes", f"the last one {gain} (of {best.trace[-1]:.6g})")
        return best.params


def _put_away(
    checkpoint: Checkpoint,
    number: int,
    passes: int,
    best: Run[P] | None,
    climbing: Climb[P],
    on_step: OnStep,
    step: int,
    objective: float,
) -> None:
    if checkpoint.wanted:
        checkpoint.save(pack(number, passes, best, climbing))
    on_step(passes + step, objective)


class Climb(Generic[P]):
    """One EM run. All of its state is here, so that it can be put away between passes and taken up again."""

    def __init__(self, params: P, accelerate: Accelerate):
        self.params = params
        self.trace: list[float] = []
        self.ahead = LookAhead[P]() if accelerate == "squarem" else None
        self.refuge: P | None = None  # the EM step to go back to, while `params` is a look ahead of it
        self.ended: Run[P] | None = None

    def run(
        self,
        em_pass: Callable[[P], tuple[float, P]],
        *,
        max_iter: int,
        tol: float,
        on_step: OnStep,
        refine: Callable[[P], P] | None = None,
    ) -> Run[P]:
        """Repeat `em_pass` (parameters → their objective, the next ones) until a pass gains at most tol·|objective|."""
        while self.ended is None:
            if refine is not None and len(self.trace) == PASSES_BEFORE_REFINING:
                self.params, self.refuge = refine(self.params if self.refuge is None else self.refuge), None
                if self.ahead is not None:
                    self.ahead.forget()
            if len(self.trace) >= max_iter:
                return Run(self.params, self.trace, False)  # an EM step: there was no looking ahead of the last pass
            self._step(*em_pass(self.params), max_iter, tol)
            on_step(len(self.trace), self.trace[-1])
        return self.ended

    def _step(self, objective: float, after: P, max_iter: int, tol: float) -> None:
        """Take up what a pass found."""
        trace, looked = self.trace, self.refuge is not None
        if self.refuge is not None and not objective >= trace[-1]:  # also where it is not a number
            trace.append(trace[-1])
            self.params, self.refuge = self.refuge, None
            if self.ahead is not None:
                self.ahead.forget()
            return
        if not np.isfinite(objective):
            raise BadParameter(f"the objective became {objective}; a keyword or weight may be far too large or small.")
        little = bool(trace) and objective - trace[-1] <= tol * abs(objective)
        trace.append(objective)
        if little and not looked:  # a look ahead that gains little proves nothing; an EM step does
            self.ended = Run(after, trace, True)
            return
        beyond = None
        if self.ahead is not None and len(trace) < max_iter and not little:
            beyond = self.ahead.beyond(self.params, after)
        self.params, self.refuge = (after, None) if beyond is None else (beyond, after)


def pack(number: int, passes: int, best: Run[P] | None, climbing: Climb[P]) -> dict[str, Any]:
    """Where a fit is between two passes, as arrays: start `number` is under way, `passes` and `best` of those before.

    Never pickle: the parameters are dataclasses, of which the fields are kept.
    """
    ended, ahead = climbing.ended, climbing.ahead
    points = {
        "params": climbing.params,
        "refuge": climbing.refuge,
        "ended": None if ended is None else ended.params,
        "best": None if best is None else best.params,
    }
    arrays: dict[str, Any] = {"number": number, "passes": passes, "trace": climbing.trace}
    for name, point in points.items():
        if point is not None:
            arrays |= {f"{name}.{field.name}": getattr(point, field.name) for field in fields(cast(Any, point))}
    if best is not None:
        arrays |= {"best_trace": best.trace, "best_converged": best.converged}
    if ahead is not None:
        arrays["cycles"] = ahead.cycles
        if ahead.start is not None:
            arrays |= {"zero": ahead.start[0], "one": ahead.start[1]}
        if ahead.previous is not None:
            arrays["previous"] = ahead.previous
    return arrays


def unpack(stored: Mapping[str, Any], like: Climb[P]) -> tuple[int, Run[P] | None, Climb[P]]:
    """`passes`, `best` and the run under way from what `pack` made; `like` is that run at its start."""

    def point(name: str) -> P | None:
        names = [field.name for field in fields(cast(Any, like.params))]
        if f"{name}.{names[0]}" not in stored:
            return None
        return type(like.params)(*(stored[f"{name}.{part}"] for part in names))

    best, ended = point("best"), point("ended")
    like.params, like.refuge, like.trace = cast(P, point("params")), point("refuge"), stored["trace"].tolist()
    like.ended = None if ended is None else Run(ended, like.trace, True)
    if like.ahead is not None:
        like.ahead.cycles, like.ahead.previous = int(stored["cycles"]), stored.get("previous")
        like.ahead.start = (stored["zero"], stored["one"]) if "zero" in stored else None
    before = None if best is None else Run(best, stored["best_trace"].tolist(), bool(stored["best_converged"]))
    return int(stored["passes"]), before, like


def climb(
    em_pass: Callable[[P], tuple[float, P]],
    params: P,
    *,
    max_iter: int,
    tol: float,
    accelerate: Accelerate,
    on_step: OnStep,
) -> Run[P]:
    """One run of `em_pass` from `params`, see `Climb.run`."""
    return Climb(params, accelerate).run(em_pass, max_iter=max_iter, tol=tol, on_step=on_step)


class LookAhead(Generic[P]):
    """Where to look ahead, given a point and the EM step from it: two SQUAREM cycles, then momentum; see the module."""

    def __init__(self) -> None:
        self.cycles = 2  # of SQUAREM, still to come
        self.start: tuple[FloatArray, FloatArray] | None = None  # θ0 and θ1 of the cycle under way
        self.previous: FloatArray | None = None  # the last EM step

    def forget(self) -> None:
        """The last look ahead was no good: begin again from the EM step."""
        self.start = self.previous = None

    def beyond(self, point: P, after: P) -> P | None:
        """A point beyond `after`, the EM step from `point`; None: no further than that."""
        step = after.to_vector()
        previous, self.previous = self.previous, step
        if self.cycles == 0:
            return None if previous is None else after.from_vector(step + MOMENTUM * (step - previous))
        if self.start is None:
            self.start = point.to_vector(), step
            return None
        (zero, one), self.start = self.start, None
        r = one - zero
        v = (step - one) - r
        self.cycles -= 1
        length = float(np.sqrt(v @ v))
        alpha = min(float(np.sqrt(r @ r)) / length, MAX_JUMP) if length > 0 else 0.0
        if alpha <= 1.0:  # alpha = 1 is the second EM step itself
            return None
        return after.from_vector(zero + 2 * alpha * r + alpha**2 * v)
