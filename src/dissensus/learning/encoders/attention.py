"""A transformer encoder block (Vaswani et al. 2017) for a sequence of one vector, as Fornaciari et al. 2021 use it.

    x ← x + drop(O · heads(V · norm(x)))        x ← x + drop(W₂ drop(relu(W₁ norm(x))))

The softmax over a single position is 1 whatever the query and the key are, so attention is its value map V and its
output map O: no query, no key, three quarters of the work, the same function. Heads then differ only in dropout, which
leaves out the whole of a head.
"""

from __future__ import annotations

from torch import Tensor, nn

FEED_FORWARD_RATIO = 2  # width of the feed-forward layer over that of the block: 2,048 for [F]'s 1,024


class Block(nn.Module):
    """(B, D) → (B, D)."""

    def __init__(self, width: int, heads: int = 1, dropout: float = 0.1):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.value, self.output = nn.Linear(width, width), nn.Linear(width, width)
        inner = FEED_FORWARD_RATIO * width
        self.wide, self.narrow = nn.Linear(width, inner), nn.Linear(inner, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """One round of attention and of the two feed-forward layers, norms first."""
        value = self.value(self.norm1(x))  # (B, D)
        weight = self.dropout(value.new_ones(len(x), self.heads, 1))  # attention to the only position there is
        value = (value.view(len(x), self.heads, -1) * weight).flatten(1)
        x = x + self.dropout(self.output(value))
        wide = self.dropout(self.wide(self.norm2(x)).relu())
        out: Tensor = x + self.dropout(self.narrow(wide))
        return out


def blocks(n: int, width: int, heads: int, dropout: float) -> nn.Sequential:
    """A stack of n blocks and the norm at its end."""
    return nn.Sequential(*(Block(width, heads, dropout) for _ in range(n)), nn.LayerNorm(width))
