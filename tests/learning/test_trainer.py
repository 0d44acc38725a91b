import subprocess
import sys
import textwrap
from importlib.machinery import ModuleSpec
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import nn

from dissensus.common.exceptions import UnknownParameter
from dissensus.exceptions import BadParameter
from dissensus.learning.checkpoint import CHECKPOINT_FILE
from dissensus.learning.devices import import_fabric
from dissensus.learning.exceptions import (
    CheckpointOfAnotherRun,
    DamagedModelFile,
    LossNotFinite,
    NoLabelledItems,
    TooManyProcesses,
    ValidationNeeded,
    WrongOptimizer,
)
from dissensus.learning.optimizers import rate_factor
from dissensus.learning.trainer import Trainer
from faults import raised


class Squares(nn.Module):
    """Least squares, with dropout, so that random numbers matter."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.linear, self.dropout = nn.Linear(4, 1), nn.Dropout(dropout)

    def forward(self, x, y):
        return ((self.linear(self.dropout(x))[:, 0] - y) ** 2).sum()


class Rows:
    nbytes = 0

    def __init__(self, n=23):
        draw = torch.Generator().manual_seed(0)
        self.x = torch.randn(n, 4, generator=draw)
        self.y = self.x @ torch.tensor([1.0, -2.0, 0.5, 0.0])

    def take(self, rows):
        return self.x[rows], self.y[rows]

    def to(self, device):
        return self


def trained(dropout=0.0, evaluate=None, model=None, rows=23, **keywords):
    torch.manual_seed(3)
    model = model or Squares(dropout)
    trainer = Trainer(**{"epochs": 4, "batch_size": 5, "seed": 1, "device": "cpu", **keywords})
    groups = [{"params": list(model.parameters()), "lr": 0.05}]
    trace = trainer.fit(model, Rows(), np.arange(rows), groups, evaluate=evaluate, key="k")
    return model, trace


def weights(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def test_a_run_is_the_literal_loop():
    model, trace = trained(optimizer="sgd", accumulate=2, epochs=3)
    torch.manual_seed(3)
    other, data, losses = Squares(), Rows(), []
    velocity = [torch.zeros_like(p) for p in other.parameters()]
    for epoch in range(3):
        summed = 0.0
        for rows in Trainer(batch_size=5, seed=1).draw_batches(np.arange(23), epoch):
            loss = other(*data.take(rows))
            summed += float(loss.detach())
            for p, v, g in zip(
                other.parameters(),
                velocity,
                torch.autograd.grad(loss / len(rows), list(other.parameters())),
                strict=True,
            ):
                v.mul_(0.9).add_(g)
                p.data.sub_(0.05 * v)
        losses.append(summed / 23)
    torch.testing.assert_close(weights(model), weights(other))
    np.testing.assert_allclose([entry["loss"] for entry in trace.epochs], losses, rtol=1e-5)


def test_an_epoch_sees_every_row_once_in_an_order_of_its_own():
    trainer = Trainer(batch_size=5, seed=1)
    first, second = (torch.cat(trainer.draw_batches(np.arange(3, 26), epoch)) for epoch in (0, 1))
    assert sorted(first.tolist()) == list(range(3, 26))
    assert first.tolist() != second.tolist()
    assert [len(batch) for batch in trainer.draw_batches(np.arange(23), 0)] == [5, 5, 5, 5, 3]


def test_a_last_batch_of_one_joins_the_one_before():
    assert [len(batch) for batch in Trainer(batch_size=5).draw_batches(np.arange(11), 0)] == [5, 6]
    assert [len(batch) for batch in Trainer(batch_size=5).draw_batches(np.arange(1), 0)] == [1]


def test_the_same_seed_gives_the_same_bits_and_leaves_torch_alone():
    torch.manual_seed(9)
    before = torch.get_rng_state()
    first, _ = trained(dropout=0.5)
    torch.manual_seed(3)
    assert torch.equal(weights(first), weights(trained(dropout=0.5)[0]))
    assert not torch.equal(weights(first), weights(trained(dropout=0.5, seed=2)[0]))
    torch.set_rng_state(before)
    model = Squares(0.5)
    state = torch.get_rng_state()
    trained(dropout=0.5, model=model)
    torch.manual_seed(3)
    assert torch.equal(torch.get_rng_state(), torch.manual_seed(3).get_state())
    torch.set_rng_state(state)


@pytest.mark.parametrize("accumulate", [2, 3, 7])
def test_parts_of_a_step_change_nothing_but_rounding(accumulate):
    torch.testing.assert_close(weights(trained()[0]), weights(trained(accumulate=accumulate)[0]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "amsgrad", "sgd", {"name": "sgd", "momentum": 0.5}])
@pytest.mark.parametrize("stop", [1, 3, 7, 11])
def test_a_run_that_was_killed_goes_on_to_the_same_bits(tmp_path, optimizer, stop):
    whole, trace = trained(dropout=0.5, optimizer=optimizer, schedule="cosine")

    class Killed(Exception):
        pass

    class Mortal(Squares):
        steps = 0

        def forward(self, x, y):
            if self.training:
                type(self).steps += 1
                if type(self).steps > stop:
                    raise Killed
            return super().forward(x, y)

    keywords = {"dropout": 0.5, "optimizer": optimizer, "schedule": "cosine", "checkpoint": tmp_path}
    torch.manual_seed(3)
    with pytest.raises(Killed):
        trained(model=Mortal(0.5), checkpoint_every=0, **keywords)
    assert (tmp_path / CHECKPOINT_FILE).exists()
    again, trace_again = trained(model=Squares(0.5), **keywords)
    assert torch.equal(weights(whole), weights(again))
    assert [e["loss"] for e in trace.epochs] == pytest.approx([e["loss"] for e in trace_again.epochs], rel=1e-12)


def test_a_finished_run_is_not_run_again(tmp_path):
    first, _ = trained(checkpoint=tmp_path)

    class Never(Squares):
        def forward(self, x, y):
            raise AssertionError

    again, trace = trained(checkpoint=tmp_path, model=Never())
    assert torch.equal(weights(first), weights(again))
    assert len(trace.epochs) == 4


def test_a_function_for_an_optimizer_is_the_same_one_in_the_next_process(tmp_path):
    def made():
        def plain(groups):
            return torch.optim.SGD(groups)

        return plain

    here, there = made(), made()  # at two addresses
    first, _ = trained(checkpoint=tmp_path, optimizer=here)
    again, _ = trained(checkpoint=tmp_path, optimizer=there)
    assert torch.equal(weights(first), weights(again))
    with pytest.raises(CheckpointOfAnotherRun):
        trained(checkpoint=tmp_path, optimizer="sgd")


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    trained(checkpoint=tmp_path)
    with pytest.raises(CheckpointOfAnotherRun):
        trained(checkpoint=tmp_path, seed=5)


def test_a_damaged_checkpoint_is_refused(tmp_path):
    trained(checkpoint=tmp_path)
    path = tmp_path / CHECKPOINT_FILE
    path.write_bytes(path.read_bytes()[:-3])
    with raised(DamagedModelFile, path=path):
        trained(checkpoint=tmp_path)


def falling(values):
    """Metrics that were written down before."""
    told = iter(values)
    return lambda model: {"cross-entropy": next(told), "accuracy": 0.0, "macro-f1": 0.0}


def test_early_stopping_keeps_the_best_epoch():
    best, _ = trained(epochs=2)
    model, trace = trained(epochs=9, patience=2, evaluate=falling([3.0, 1.0, 2.0, 1.5, 0.0]))
    assert (trace.best_epoch, trace.stopped, len(trace.epochs)) == (2, True, 4)
    assert torch.equal(weights(best), weights(model))


def test_the_monitor_may_be_one_that_grows():
    told = iter([0.1, 0.5, 0.4])
    _, trace = trained(epochs=3, monitor="accuracy", evaluate=lambda model: {"accuracy": next(told)})
    assert trace.best_epoch == 2


def test_early_stopping_goes_on_after_a_kill(tmp_path):
    values = [3.0, 1.0, 2.0, 1.5]
    whole, trace = trained(epochs=9, patience=2, evaluate=falling(values))
    keywords = {"epochs": 9, "patience": 2, "checkpoint": tmp_path, "checkpoint_every": 0}
    with pytest.raises(StopIteration):
        trained(evaluate=falling(values[:3]), **keywords)
    again, trace_again = trained(evaluate=falling(values[3:]), **keywords)
    assert torch.equal(weights(whole), weights(again))
    assert (trace.best_epoch, trace.stopped) == (trace_again.best_epoch, trace_again.stopped)


@pytest.mark.parametrize(
    ("schedule", "warmup", "factors"),
    [
        ("constant", 0.0, [1, 1, 1, 1]),
        ("linear", 0.0, [1, 0.75, 0.5, 0.25]),
        ("cosine", 0.0, [1, 0.8536, 0.5, 0.1464]),
        ("linear", 0.5, [1 / 3, 2 / 3, 1, 0.5]),
        ({1: 0.1, 3: 0.5}, 0.0, [1, 0.1, 0.1, 0.05]),
    ],
)
def test_schedules(schedule, warmup, factors):
    found = [rate_factor(schedule, warmup, step, 4, step) for step in range(4)]
    np.testing.assert_allclose(found, factors, atol=1e-4)


def test_a_loss_that_is_no_number_ends_the_run():
    data = Rows()
    data.y[3] = torch.inf
    model = Squares()
    with raised(LossNotFinite, loss=float("inf"), epoch=1):
        Trainer(epochs=1, device="cpu").fit(
            model, data, np.arange(23), [{"params": list(model.parameters()), "lr": 0.1}]
        )


@pytest.mark.parametrize(
    "keywords",
    [
        {"epochs": -1}, {"epochs": "3"}, {"batch_size": 0}, {"accumulate": 1.5}, {"warmup": 2.0}, {"warmup": None},
        {"clip": -1}, {"schedule": "step"}, {"schedule": {0: -1}}, {"schedule": None}, {"sam": "x"}, {"sam": True},
        {"monitor": "f1"}, {"patience": 0}, {"optimizer": "lion"}, {"device": "tpu"}, {"precision": "bf16-true"},
    ],
)  # fmt: skip
def test_bad_keywords_are_named(keywords):
    with raised(BadParameter, keyword=next(iter(keywords))):
        trained(**keywords)


@pytest.mark.parametrize(
    ("keywords", "error", "facts"),
    [
        ({"optimizer": {"name": "sgd", "momentum": -1}}, WrongOptimizer, {}),
        ({"optimizer": {"name": "sgd", "beta": 1}}, WrongOptimizer, {}),
        ({"patience": 3}, ValidationNeeded, {}),
        ({"sam": -0.1}, BadParameter, {"keyword": "rho"}),
        ({"sam": {"radius": 1}}, UnknownParameter, {"name": "radius"}),
    ],
)
def test_keywords_that_contradict_are_named(keywords, error, facts):
    with raised(error, **facts):
        trained(**keywords)


@pytest.mark.parametrize("keywords", [{}, {"accumulate": 3}, {"precision": "bf16-mixed"}, {"clip": 0.1}])
def test_sam_without_radius_is_its_optimiser(keywords):
    plain, sam = (trained(dropout=0.5, sam=rho, **keywords)[0] for rho in (None, 0.0))
    assert torch.equal(weights(plain), weights(sam))
    assert not torch.equal(weights(plain), weights(trained(dropout=0.5, sam=0.1, **keywords)[0]))


def test_a_step_of_sam_in_parts_is_the_whole_step():
    whole, parts = (trained(sam={"rho": 0.1, "adaptive": True}, accumulate=n)[0] for n in (1, 3))
    torch.testing.assert_close(weights(whole), weights(parts), rtol=1e-5, atol=1e-6)


def test_nothing_to_learn_from():
    with raised(NoLabelledItems):
        trained(rows=0)


def test_bf16_gives_nearly_the_same():
    torch.testing.assert_close(weights(trained()[0]), weights(trained(precision="bf16-mixed")[0]), rtol=0.1, atol=0.05)


def test_gradients_may_be_clipped():
    unclipped, clipped = (trained(optimizer="sgd", epochs=1, rows=5, clip=c)[0] for c in (None, 1e-3))
    torch.manual_seed(3)
    start = weights(Squares())
    torch.testing.assert_close((weights(clipped) - start).norm(), torch.tensor(0.05 * 1e-3), rtol=1e-3, atol=0)
    assert (weights(unclipped) - start).norm() > 1e-3


def test_more_processes_than_items_are_refused():
    with raised(TooManyProcesses, processes=3, n_items=2):
        trained(rows=2, processes=3)


# What is needed -------------------------------------------------------------------------------------------------------


def test_fabric_may_be_that_of_lightning(monkeypatch):
    whole, part = ModuleType("lightning"), ModuleType("lightning.fabric")
    part.Fabric = "the same"
    whole.__spec__ = ModuleSpec("lightning", None)
    for name, module in (("lightning_fabric", None), ("lightning", whole), ("lightning.fabric", part)):
        monkeypatch.setitem(sys.modules, name, module)
    assert import_fabric() == "the same"


def test_a_missing_package_is_named():
    program = """
        import sys
        from dissensus.exceptions import MissingExtra
        sys.modules["lightning"] = None  # cannot be imported
        for missing in ("torch", "lightning_fabric"):
            sys.modules[missing] = None
            try:
                import dissensus.learning
            except MissingExtra as error:
                print(error)
            del sys.modules[missing]
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        f"dissensus.learning needs {missing}, which is not installed: pip install 'dissensus[learning]'."
        for missing in ("torch", "lightning_fabric")
    ]
