"""What the tests of several objectives share."""

import numpy as np
import torch
from torch import nn

from dissensus.learning.objectives import Objective
from tables import random_table

WIDTH = 6


def sparse_table(**extra):
    """23 items, of which some have no annotations, by 7 annotators, 4 classes."""
    return random_table(1, n=41, **extra)


def fitted(objective: Objective, table=None, gold=None, seed: int = 0):
    """(objective, head, z (I, WIDTH), targets of all items) of a table."""
    table = sparse_table() if table is None else table
    objective.fit(table, gold, seed)
    torch.manual_seed(5)
    head = objective.head(lambda: nn.Sequential(nn.Linear(WIDTH, 9), nn.Tanh()), 9)
    z = torch.randn(table.n_items, WIDTH)
    return objective, head, z, objective.targets().take(torch.arange(table.n_items))


def log_q(objective: Objective, head: nn.Module, z: torch.Tensor) -> np.ndarray:
    """(I, K) log P(class) by the head."""
    return torch.log_softmax(objective.logits(head, z), dim=1).detach().numpy()
