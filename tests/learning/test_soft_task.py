"""The soft label as a second task: the sum of two losses, and what is left of it with weight 0."""

import numpy as np
import pytest
import torch
from scipy.special import rel_entr
from torch import nn

from dissensus import Annotations
from dissensus.exceptions import BadParameter
from dissensus.learning.exceptions import ZeroProbability
from dissensus.learning.losses import inverse_kl
from dissensus.learning.objectives import Hard, SoftTask
from faults import raised
from learning.tables import fitted, log_q, sparse_table
from tables import some_gold

TABLE = sparse_table()
VOTED = np.diff(TABLE.item_ptr) > 0
BITS = {
    "kl": lambda p, r: rel_entr(p, r).sum() / np.log(2),
    "inverse-kl": lambda p, r: rel_entr(r, p).sum() / np.log(2),
    "ce": lambda p, r: -(p * np.log2(r)).sum(),
}


@pytest.mark.parametrize("labels", ["gold", "majority-vote"])
@pytest.mark.parametrize("divergence", BITS)
def test_loss_is_the_papers_sum(divergence, labels):
    gold = some_gold(TABLE)
    objective, head, z, targets = fitted(SoftTask(labels=labels, divergence=divergence, weight=0.7), gold=gold)
    main, soft = Hard(labels=labels).fit(TABLE, gold, 0).targets().columns["label"], TABLE.soft_labels("softmax")
    q, r = log_q(objective, head, z), torch.softmax(head.auxiliary(z), dim=1).detach().numpy()
    expected = 0.0
    for i in range(TABLE.n_items):
        if main[i] >= 0:
            expected -= q[i, main[i]]
        if VOTED[i]:
            expected += 0.7 * BITS[divergence](soft[i], r[i])  # the votes, also where gold is known
    np.testing.assert_allclose(objective.loss(head, z, targets).item(), expected, rtol=1e-5)
    np.testing.assert_array_equal(objective.train_mask_, VOTED | (main.numpy() >= 0))


def trained(objective, gold):
    """Weights of encoder and main head after steps with dropout in the encoder and in every branch."""
    objective.fit(TABLE, gold, 3)
    torch.manual_seed(1)
    encoder = nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.3))
    head = objective.head(lambda: nn.Sequential(nn.Linear(8, 7), nn.Dropout(0.5)), 7)
    optimizer = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=0.05)
    columns, rows = objective.targets(), torch.as_tensor(np.flatnonzero(objective.train_mask_))
    X = torch.randn(TABLE.n_items, 5, generator=torch.Generator().manual_seed(2))
    for step in range(12):
        at = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(step))[:6]]
        optimizer.zero_grad()
        objective.loss(head, encoder(X[at]), columns.take(at)).backward()
        optimizer.step()
    return [*encoder.parameters(), *getattr(head, "main", head).parameters()]


@pytest.mark.parametrize("labels", ["gold", "dawid-skene"])
def test_weight_0_equals_hard_bit_for_bit(labels):
    gold = some_gold(TABLE)
    hard = trained(Hard(labels=labels), gold)
    for one, other in zip(hard, trained(SoftTask(labels=labels, weight=0.0), gold), strict=True):
        assert torch.equal(one, other)
    changed = trained(SoftTask(labels=labels, weight=1e-3), gold)
    assert not all(torch.equal(one, other) for one, other in zip(hard, changed, strict=True))


def test_the_main_head_starts_as_it_would_alone():
    _, alone, _, _ = fitted(Hard())
    _, both, _, _ = fitted(SoftTask())
    for one, other in zip(alone.parameters(), both.main.parameters(), strict=True):
        assert torch.equal(one, other)
    first, second = both.main[1].weight, both.auxiliary[1].weight
    assert not torch.equal(first, second)


def test_bad_keywords_and_zeros_are_said():
    with raised(BadParameter, keyword="weight"):
        SoftTask(weight=-1).fit(TABLE, None, 0)
    with pytest.raises(ZeroProbability):
        SoftTask(soft="normalized").fit(TABLE, None, 0)
    SoftTask(soft="normalized", weight=0).fit(TABLE, None, 0)  # no second task, no soft label to object to


def test_softmax_of_many_votes_has_no_zeros():
    """A control item of gimpel_pos has 144 votes, and e^−144 is no float32."""
    table = Annotations.from_arrays(np.zeros(144, int), np.arange(144), np.zeros(144, int), classes=[0, 1, 2])
    objective = SoftTask(divergence="inverse-kl").fit(table, None, 0)
    soft = objective.targets().take(torch.tensor([0]))["soft"]
    assert (soft > 0).all()
    assert soft.sum().item() == pytest.approx(1)
    assert inverse_kl(soft, torch.zeros(1, 3)).isfinite().all()
