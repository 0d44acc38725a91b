"""SAM: the two gradients by hand, what its passes share, and that nothing but the gradient changes."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from dissensus.exceptions import BadParameter
from dissensus.learning.rows import JointOptimizer, RowAdam
from dissensus.learning.sam import SAM
from faults import raised

X = torch.randn(12, 5, generator=torch.Generator().manual_seed(0))
Y = torch.randint(0, 3, (12,), generator=torch.Generator().manual_seed(1))
WHO = torch.randint(0, 6, (12,), generator=torch.Generator().manual_seed(2)).clamp(max=4)  # row 5 of 6 is never touched


class Net(nn.Module):
    """Dropout, BatchNorm, and a row-sparse table of biases."""

    def __init__(self, noisy: bool = False):
        super().__init__()
        torch.manual_seed(4)
        noise = [nn.BatchNorm1d(8), nn.Dropout(0.4)] if noisy else []
        self.body = nn.Sequential(nn.Linear(5, 8), *noise, nn.Tanh(), nn.Linear(8, 3))
        self.bias = nn.Parameter(torch.randn(6, 3))

    def loss(self, at=slice(None)) -> torch.Tensor:
        logits = self.body(X[at]) + functional.embedding(WHO[at], self.bias, sparse=True)
        return functional.cross_entropy(logits.float(), Y[at], reduction="sum")

    def optimizer(self, name: str) -> torch.optim.Optimizer:
        if name == "sgd":
            return torch.optim.SGD(self.parameters(), 0.1)
        return JointOptimizer(torch.optim.Adam(self.body.parameters(), 0.05), RowAdam([self.bias], 0.05))


def whole(net: Net, optimizer: torch.optim.Optimizer, scale: float = 1.0):
    def closure():
        optimizer.zero_grad()
        loss = net.loss() * scale
        loss.backward()
        return loss.detach()

    return closure


def train(net: Net, optimizer: torch.optim.Optimizer, n: int = 4, **keywords) -> dict[str, torch.Tensor]:
    torch.manual_seed(9)
    for _ in range(n):
        optimizer.step(whole(net, optimizer, **keywords))
    return {**net.state_dict(), "drawn": torch.rand(2)}


def assert_same(one: dict, other: dict, exact: bool = True) -> None:
    assert one.keys() == other.keys()
    for name in one:
        if exact:
            assert torch.equal(one[name], other[name]), name
        else:
            torch.testing.assert_close(one[name], other[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("adaptive", [False, True])
def test_a_step_uses_the_gradient_at_the_worst_point_nearby(adaptive):
    net, by_hand = Net(), Net()
    loss = SAM(net.optimizer("sgd"), 0.3, adaptive).step(whole(net, net.optimizer("sgd")))
    at_theta = by_hand.loss()
    at_theta.backward()
    theta = {name: p.detach().clone() for name, p in by_hand.named_parameters()}
    grad = {name: p.grad.to_dense() for name, p in by_hand.named_parameters()}
    size = {name: p.abs() if adaptive else torch.ones_like(p) for name, p in theta.items()}
    norm = math.sqrt(sum(((size[name] * grad[name]) ** 2).sum().item() for name in theta))
    for name, p in by_hand.named_parameters():
        p.data = theta[name] + 0.3 * size[name] ** 2 * grad[name] / norm
    by_hand.zero_grad()
    by_hand.loss().backward()
    for name, p in net.named_parameters():
        expected = theta[name] - 0.1 * dict(by_hand.named_parameters())[name].grad.to_dense()
        torch.testing.assert_close(p.detach(), expected, rtol=1e-5, atol=1e-6)
    assert torch.equal(loss, at_theta.detach())


@pytest.mark.parametrize("name", ["sgd", "joint"])
@pytest.mark.parametrize("adaptive", [False, True])
def test_rho_0_equals_the_base_optimiser_with_dropout_and_batch_norm(adaptive, name):
    alone, inside = Net(noisy=True), Net(noisy=True)
    plain = train(alone, alone.optimizer(name))
    assert_same(plain, train(inside, SAM(inside.optimizer(name), 0.0, adaptive, inside)))
    other = Net(noisy=True)
    away = train(other, SAM(other.optimizer(name), 0.05, adaptive, other))
    assert not torch.equal(away["bias"], plain["bias"])
    assert torch.equal(away["drawn"], plain["drawn"])
    assert torch.equal(away["body.1.num_batches_tracked"], torch.tensor(4))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_both_passes_draw_the_same_on_a_device():
    torch.manual_seed(0)
    net, x = nn.Sequential(nn.Linear(5, 400), nn.Dropout(0.5), nn.Linear(400, 1)).cuda(), X.cuda()
    optimizer, seen = SAM(torch.optim.SGD(net.parameters(), 0.0), 0.0), []

    def closure():
        optimizer.zero_grad()
        out = net(x)
        seen.append(out.detach().clone())
        out.sum().backward()

    optimizer.step(closure)
    assert torch.equal(seen[0], seen[1])
    optimizer.step(closure)
    assert not torch.equal(seen[1], seen[2])


def test_running_statistics_are_those_of_the_first_pass():
    alone, inside = Net(noisy=True), Net(noisy=True)
    one, other = (
        train(alone, alone.optimizer("sgd"), 1),
        train(inside, SAM(inside.optimizer("sgd"), 5.0, model=inside), 1),
    )
    for name in ("body.1.running_mean", "body.1.running_var", "body.1.num_batches_tracked"):
        assert torch.equal(one[name], other[name])


def test_where_the_base_does_nothing_every_bit_is_restored():
    net = Net(noisy=True)
    before = copy.deepcopy(dict(net.named_parameters()))
    for adaptive in (False, True):
        optimizer = SAM(torch.optim.SGD(net.parameters(), 0.0), 3.0, adaptive, net)
        optimizer.step(whole(net, optimizer))
    assert_same(before, dict(net.named_parameters()))


@pytest.mark.parametrize("adaptive", [False, True])
def test_the_scale_of_the_loss_changes_nothing_but_the_gradient(adaptive):
    plain, scaled = Net(), Net()
    one = train(plain, SAM(torch.optim.SGD(plain.parameters(), 0.1), 0.2, adaptive))
    other = train(scaled, SAM(torch.optim.SGD(scaled.parameters(), 0.1 / 65536), 0.2, adaptive), scale=65536.0)
    assert_same(one, other, exact=False)


def test_two_halves_equal_one_whole():
    one, other = Net(), Net()
    optimizer = SAM(other.optimizer("joint"), 0.2)

    def halves():
        optimizer.zero_grad()
        losses = [other.loss(at) for at in (slice(0, 7), slice(7, 12))]
        for loss in losses:
            loss.backward()
        return sum(losses).detach()

    expected = train(one, SAM(one.optimizer("joint"), 0.2))
    for _ in range(4):
        optimizer.step(halves)
    assert_same({n: p for n, p in expected.items() if n != "drawn"}, other.state_dict(), exact=False)


def test_autocast_leaves_parameters_in_float32_and_near():
    net, half = Net(), Net()
    optimizer = SAM(half.optimizer("sgd"), 0.1)
    inner = whole(half, optimizer)

    def closure():
        with torch.autocast("cpu", torch.bfloat16):
            return inner()

    optimizer.step(closure)
    expected = train(net, SAM(net.optimizer("sgd"), 0.1), 1)
    for name, p in half.named_parameters():
        assert p.dtype == torch.float32
        torch.testing.assert_close(p, expected[name], rtol=0.05, atol=0.02)


@pytest.mark.parametrize("bad", [0.0, math.nan, math.inf])
def test_without_a_direction_there_is_one_pass_and_the_bases_step(bad):
    net, calls = nn.Linear(3, 1), []
    optimizer = SAM(torch.optim.SGD(net.parameters(), 0.0, weight_decay=0.1), 0.5)

    def closure():
        calls.append(1)
        optimizer.zero_grad()
        (net(X[:, :3]).sum() * bad).backward()

    optimizer.step(closure)
    assert len(calls) == 1


def test_around_leaves_the_step_to_others():
    net, again = Net(noisy=True), Net(noisy=True)
    base = again.optimizer("joint")
    sam = SAM(base, 0.2, model=again)
    torch.manual_seed(9)
    for _ in range(4):
        sam.compute_gradients(whole(again, base))
        base.step()
    result = {**again.state_dict(), "drawn": torch.rand(2)}
    assert_same(result, train(net, SAM(net.optimizer("joint"), 0.2, model=net)))


def test_groups_and_state_are_the_bases():
    net, again = Net(), Net()
    optimizer = SAM(net.optimizer("joint"), 0.1)
    train(net, optimizer, 3)
    assert optimizer.param_groups is optimizer.base.param_groups
    fresh = SAM(again.optimizer("joint"), 0.1)
    again.load_state_dict(net.state_dict())
    fresh.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert_same(train(net, optimizer, 2), train(again, fresh, 2))
    fresh.param_groups[0]["lr"] = 0.0
    assert fresh.base.dense.param_groups[0]["lr"] == 0.0


def test_a_negative_rho_is_an_error():
    with raised(BadParameter, keyword="rho"):
        SAM(torch.optim.SGD(Net().parameters(), 0.1), -1)
