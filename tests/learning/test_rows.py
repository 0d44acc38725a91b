"""Adam row by row: as torch's own where every row is touched, as loops where few are; two optimisers as one."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.optim.lr_scheduler import StepLR

from dissensus.learning.rows import JointOptimizer, RowAdam, clip_gradients, get_gradient_rows

WEIGHT = torch.randn(7, 5, generator=torch.Generator().manual_seed(0))
GOAL = torch.randn(7, 5, generator=torch.Generator().manual_seed(1))


def loss(weight: torch.Tensor, rows: torch.Tensor, sparse: bool = True) -> torch.Tensor:
    return ((functional.embedding(rows, weight, sparse=sparse) - GOAL[rows]) ** 2 * (1 + rows[:, None])).sum()


def test_touching_every_row_at_every_step_equals_adam():
    one, other = nn.Parameter(WEIGHT.clone()), nn.Parameter(WEIGHT.clone())
    ours, theirs = RowAdam([one], 0.1, (0.8, 0.95), 1e-3), torch.optim.Adam([other], 0.1, (0.8, 0.95), 1e-3)
    for step in range(30):
        rows = torch.randperm(7, generator=torch.Generator().manual_seed(step)).repeat(2)  # rows may come twice
        for param, optimizer, sparse in ((one, ours, True), (other, theirs, False)):
            optimizer.zero_grad()
            loss(param, rows, sparse).backward()
            optimizer.step()
    torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    assert (one - WEIGHT).abs().min() > 0.01


def test_no_momentum_is_allowed():
    param = nn.Parameter(WEIGHT.clone())
    loss(param, torch.arange(7)).backward()
    RowAdam([param], 0.1, (0.0, 0.0), 0.0).step()
    torch.testing.assert_close((param - WEIGHT).detach(), 0.1 * (GOAL - WEIGHT).sign())


def test_a_row_moves_as_adam_over_its_own_steps():
    param = nn.Parameter(WEIGHT.clone())
    optimizer = RowAdam([param], 0.05)
    alone = [nn.Parameter(WEIGHT[r : r + 1].clone()) for r in range(7)]
    adams = [torch.optim.Adam([row], 0.05) for row in alone]
    for step in range(25):
        rows = torch.randint(0, 6, (3,), generator=torch.Generator().manual_seed(step))  # row 6 never
        before, steps = param.detach().clone(), copy.deepcopy(optimizer.state[param])
        optimizer.zero_grad()
        loss(param, rows).backward()
        optimizer.step()
        for r in rows.unique().tolist():
            adams[r].zero_grad()
            ((alone[r] - GOAL[r]) ** 2 * (1 + r) * (rows == r).sum()).sum().backward()
            adams[r].step()
        untouched = [r for r in range(7) if r not in rows]
        assert torch.equal(param[untouched], before[untouched])
        for key, values in steps.items():
            assert torch.equal(optimizer.state[param][key][untouched], values[untouched])
    torch.testing.assert_close(param.detach(), torch.cat(alone).detach(), rtol=1e-5, atol=1e-6)


def test_a_row_that_comes_late_starts_as_one_that_comes_first():
    param = nn.Parameter(WEIGHT.clone())
    optimizer = RowAdam([param], 0.01)
    for step in range(51):
        optimizer.zero_grad()
        loss(param, torch.tensor([0 if step < 50 else 3])).backward()
        optimizer.step()
    torch.testing.assert_close((param - WEIGHT)[3].abs(), torch.full((5,), 0.01))


def test_gradients_of_parts_add_up():
    whole, parts = nn.Parameter(WEIGHT.clone()), nn.Parameter(WEIGHT.clone())
    rows = torch.tensor([2, 5, 2, 0, 5, 2])
    loss(whole, rows).backward()
    loss(parts, rows[:2]).backward()
    loss(parts, rows[2:]).backward()
    for one, other in zip(get_gradient_rows(whole), get_gradient_rows(parts), strict=True):
        torch.testing.assert_close(one, other)
    assert get_gradient_rows(parts)[0].tolist() == [0, 2, 5]


class Net(nn.Module):
    """A dense layer on a row-sparse one."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.rows, self.dense = nn.Parameter(WEIGHT.clone()), nn.Linear(5, 2)

    def loss(self, rows: torch.Tensor) -> torch.Tensor:
        return (self.dense(functional.embedding(rows, self.rows, sparse=True)) ** 2).sum()

    def joint(self) -> JointOptimizer:
        return JointOptimizer(torch.optim.SGD(self.dense.parameters(), 0.1, momentum=0.9), RowAdam([self.rows], 0.01))


def steps(net: Net, optimizer, numbers) -> None:
    for number in numbers:
        optimizer.zero_grad()
        net.loss(torch.randint(0, 7, (3,), generator=torch.Generator().manual_seed(number))).backward()
        optimizer.step()


def test_joint_steps_both_and_schedulers_reach_both():
    together, apart = Net(), Net()
    joint = together.joint()
    first, second = torch.optim.SGD(apart.dense.parameters(), 0.1, momentum=0.9), RowAdam([apart.rows], 0.01)
    scheduler, halves = StepLR(joint, 2, 0.5), [StepLR(first, 2, 0.5), StepLR(second, 2, 0.5)]
    for number in range(6):
        steps(together, joint, [number])
        scheduler.step()
        rows = torch.randint(0, 7, (3,), generator=torch.Generator().manual_seed(number))
        apart.zero_grad()
        apart.loss(rows).backward()
        for optimizer, half in zip((first, second), halves, strict=True):
            optimizer.step()
            half.step()
    for one, other in zip(together.parameters(), apart.parameters(), strict=True):
        assert torch.equal(one, other)
    assert [group["lr"] for group in joint.param_groups] == [0.1 / 8, 0.01 / 8]


@pytest.mark.parametrize("again", [False, True])
def test_joint_goes_on_from_its_state_dict(again):
    whole, parts = Net(), Net()
    steps(whole, whole.joint(), range(10))
    first = parts.joint()
    steps(parts, first, range(4))
    saved = copy.deepcopy(first.state_dict())
    second = parts.joint()
    if again:  # into an optimiser that has a state already
        kept = copy.deepcopy(parts.state_dict())
        steps(parts, second, range(20, 23))
        parts.load_state_dict(kept)
    second.load_state_dict(saved)
    steps(parts, second, range(4, 10))
    for one, other in zip(whole.parameters(), parts.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("share", [0.3, 2.0])
def test_clipping_equals_that_of_dense_gradients(share):
    sparse, dense = Net(), Net()
    rows = torch.tensor([3, 1, 3])
    sparse.loss(rows).backward()
    (dense.dense(dense.rows[rows]) ** 2).sum().backward()
    norm = torch.cat([p.grad.flatten() for p in dense.parameters()]).norm()
    expected = nn.utils.clip_grad_norm_(dense.parameters(), share * norm)
    torch.testing.assert_close(clip_gradients(sparse.parameters(), share * norm), expected)
    for one, other in zip(sparse.parameters(), dense.parameters(), strict=True):
        torch.testing.assert_close(one.grad.to_dense(), other.grad)
