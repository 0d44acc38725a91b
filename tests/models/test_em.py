"""The EM driver on maps whose fixed points are known."""

from dataclasses import dataclass

import numpy as np
import pytest

from dissensus.models.em import PASSES_BEFORE_REFINING, EMRun, run_em
from dissensus.models.exceptions import ObjectiveNotFinite


@dataclass(frozen=True)
class Point:
    at: np.ndarray

    def to_vector(self):
        return self.at

    def from_vector(self, vector):
        return Point(vector)


def contraction(rates, target):
    """A linear map with the given rates towards `target`, and minus the squared distance as its objective."""

    def em_step(point):
        gap = point.at - target
        return -float(gap @ gap) - 1.0, Point(target + rates * gap)

    return em_step


def quiet(step, objective):
    pass


def test_plain_run_is_the_map_repeated():
    em_step = contraction(np.array([0.5, 0.9]), np.array([1.0, -2.0]))
    run = run_em(em_step, Point(np.array([5.0, 5.0])), max_iter=7, tol=0, accelerate=None, on_step=quiet)
    np.testing.assert_allclose(run.params.at, [1 + 4 * 0.5**7, -2 + 7 * 0.9**7])
    assert len(run.trace) == 7
    assert not run.converged


def test_squarem_jumps_to_the_end_of_a_line():
    # one rate: r and v are parallel, and α = 1 / (1 − rate) lands on the fixed point itself
    em_step = contraction(np.array([0.75]), np.array([2.0]))
    run = run_em(em_step, Point(np.array([10.0])), max_iter=50, tol=1e-15, accelerate="squarem", on_step=quiet)
    np.testing.assert_allclose(run.params.at, [2.0], atol=1e-9)
    assert len(run.trace) <= 5
    assert run.converged


@pytest.mark.parametrize("tol", [1e-4, 1e-8])
def test_squarem_takes_a_third_of_the_passes_on_a_slow_map(tol):
    em_step = contraction(np.array([0.3, 0.9, 0.99]), np.zeros(3))
    start = Point(np.ones(3))
    plain = run_em(em_step, start, max_iter=100_000, tol=tol, accelerate=None, on_step=quiet)
    fast = run_em(em_step, start, max_iter=100_000, tol=tol, accelerate="squarem", on_step=quiet)
    assert len(fast.trace) < len(plain.trace) / 3
    assert fast.trace[-1] >= plain.trace[-1]


def test_momentum_follows_the_two_cycles():
    # rates so different that two jumps do not end it; then a look ahead adds 0.75 of the last EM step's move
    looks = []

    class Watched(Point):
        def from_vector(self, vector):
            looks.append(vector)
            return Watched(vector)

    steps = []

    def em_step(point):
        after = Watched(np.array([0.2, 0.9, 0.995]) * point.at)
        steps.append(after.at)
        return -float(point.at @ point.at), after

    run_em(em_step, Watched(np.ones(3)), max_iter=12, tol=0, accelerate="squarem", on_step=quiet)
    np.testing.assert_allclose(looks[2], steps[4] + 0.75 * (steps[4] - steps[3]))
    np.testing.assert_allclose(looks[3], steps[5] + 0.75 * (steps[5] - steps[4]))


def test_a_jump_that_lowers_the_objective_is_turned_down():
    jumps = []

    class Wild(Point):
        def from_vector(self, vector):  # every jump lands far off, where the objective is low but a number
            jumps.append(vector)
            return Wild(vector + 100.0)

    def em_step(point):
        gap = point.at - 2.0
        return -float(gap @ gap), Wild(2.0 + np.array([0.5, 0.97]) * gap)

    run = run_em(em_step, Wild(np.array([9.0, 4.0])), max_iter=200, tol=0, accelerate="squarem", on_step=quiet)
    plain = run_em(em_step, Wild(np.array([9.0, 4.0])), max_iter=200, tol=0, accelerate=None, on_step=quiet)
    assert len(jumps) > 10
    assert (np.diff(run.trace) >= 0).all()
    # what was turned down left no trace: the kept points are those of plain EM
    assert set(run.trace) <= set(plain.trace)


def test_a_look_ahead_that_gains_nothing_does_not_end_the_run():
    class Stuck(Point):  # every look ahead lands where the last pass stood
        before = np.array([1.0])

        def from_vector(self, vector):
            return Stuck(self.before)

    def em_step(point):
        after = Stuck(0.9 * point.at)
        after.__dict__["before"] = point.at
        return -float(point.at[0]), after

    run = run_em(em_step, Stuck(np.array([1.0])), max_iter=400, tol=1e-12, accelerate="squarem", on_step=quiet)
    assert run.trace[-1] > -1e-3


def test_an_objective_that_is_no_number_is_an_error():
    with pytest.raises(ObjectiveNotFinite):
        run_em(lambda p: (float("nan"), p), Point(np.ones(1)), max_iter=9, tol=0, accelerate=None, on_step=quiet)


def test_a_jump_to_nowhere_is_turned_down():
    def em_step(point):
        return (float("nan") if point.at[0] < 1 else -float(point.at @ point.at)), Point(1 + 0.9 * (point.at - 1))

    class Odd(Point):
        def from_vector(self, vector):
            return Odd(np.array([-1.0]))

    run = run_em(em_step, Odd(np.array([9.0])), max_iter=60, tol=0, accelerate="squarem", on_step=quiet)
    assert np.isfinite(run.trace).all()


def test_run_that_ends_on_an_untried_jump_returns_what_was_tried():
    em_step = contraction(np.array([0.3, 0.99]), np.zeros(2))
    run = run_em(em_step, Point(np.ones(2)), max_iter=3, tol=0, accelerate="squarem", on_step=quiet)
    objective, _ = em_step(run.params)
    assert objective >= run.trace[-1]


@pytest.mark.parametrize("accelerate", [None, "squarem"])
def test_parameters_are_refined_once_after_the_first_passes_from_an_em_step(accelerate):
    em_step, refined, steps = contraction(np.array([0.9, 0.99]), np.zeros(2)), [], []

    def watched(point):
        objective, after = em_step(point)
        steps.append(after.at)
        return objective, after

    def refine(point):
        refined.append((len(steps), point.at))
        return Point(0.01 * point.at)

    run = EMRun(Point(np.ones(2)), accelerate)
    done = run.run(watched, max_iter=30, tol=0, on_step=quiet, refine=refine)
    ((passes, point),) = refined
    assert passes == PASSES_BEFORE_REFINING
    assert any(np.array_equal(point, step) for step in steps[:passes])  # no look ahead, which may be no good
    assert (np.diff(done.trace) >= 0).all()
    np.testing.assert_allclose(done.trace[passes], em_step(Point(0.01 * point))[0])


def test_every_pass_is_reported_once():
    seen = []
    em_step = contraction(np.array([0.3, 0.99]), np.zeros(2))
    run = run_em(
        em_step, Point(np.ones(2)), max_iter=20, tol=0, accelerate="squarem", on_step=lambda *a: seen.append(a)
    )
    assert seen == list(zip(range(1, len(run.trace) + 1), run.trace, strict=True))


@pytest.mark.parametrize("accelerate", [None, "squarem"])
@pytest.mark.parametrize("cut", range(1, 12))
def test_a_run_that_is_put_away_after_any_pass_goes_on_as_if_it_had_not_been(cut, accelerate):
    em_step = contraction(np.array([0.3, 0.9, 0.99]), np.zeros(3))
    options = {"max_iter": 40, "tol": 1e-9}
    whole = run_em(em_step, Point(np.ones(3)), accelerate=accelerate, on_step=quiet, **options)

    class Killed(Exception):
        pass

    def step(at, objective):
        if at == cut:
            stored.update(run.state())
            raise Killed

    run, stored = EMRun(Point(np.ones(3)), accelerate), {}
    with pytest.raises(Killed):
        run.run(em_step, on_step=step, **options)
    arrays = {name: np.asarray(value) for name, value in stored.items()}  # as a file gives them back
    again = EMRun(Point(np.zeros(3)), accelerate).restore(arrays)
    done = again.run(em_step, on_step=quiet, **options)
    assert done.trace == whole.trace
    assert done.converged == whole.converged
    np.testing.assert_array_equal(done.params.at, whole.params.at)


def test_a_run_that_had_ended_is_not_gone_over_again():
    em_step = contraction(np.array([0.5]), np.zeros(1))
    run = EMRun(Point(np.ones(1)), None)
    done = run.run(em_step, max_iter=99, tol=1e-6, on_step=quiet)
    again = EMRun(Point(np.ones(1)), None).restore({k: np.asarray(v) for k, v in run.state().items()})
    same = again.run(lambda point: pytest.fail("another pass"), max_iter=99, tol=1e-6, on_step=quiet)
    assert (same.trace, same.converged) == (done.trace, True)
    np.testing.assert_array_equal(same.params.at, done.params.at)
