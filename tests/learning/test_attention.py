"""The block for a sequence of one against torch's own encoder layer."""

import pytest
import torch
from torch import nn

from dissensus.learning.encoders.tagger import AttentionBlock, stack_blocks


@pytest.mark.parametrize("heads", [1, 2, 3])
def test_it_is_torchs_layer_on_one_position(heads):
    torch.manual_seed(heads)
    block = AttentionBlock(6, heads, 0.2).eval()
    layer = nn.TransformerEncoderLayer(6, heads, 12, batch_first=True, norm_first=True).eval()
    with torch.no_grad():
        for ours, theirs in (
            (block.norm1, layer.norm1), (block.norm2, layer.norm2), (block.output, layer.self_attn.out_proj),
            (block.wide, layer.linear1), (block.narrow, layer.linear2),
        ):  # fmt: skip
            ours.weight.uniform_(-1, 1)
            ours.bias.uniform_(-1, 1)
            theirs.load_state_dict(ours.state_dict())
        layer.self_attn.in_proj_weight[12:] = block.value.weight  # query and key stay as they are: they say nothing
        layer.self_attn.in_proj_bias[12:] = block.value.bias
    x = torch.randn(5, 6)
    torch.testing.assert_close(block(x), layer(x[:, None])[:, 0])


def test_dropout_leaves_out_whole_heads():
    torch.manual_seed(0)
    block = AttentionBlock(4, 2, 0.5)
    seen = {}
    block.output.register_forward_hook(lambda _, given, __: seen.update(value=given[0]))
    with torch.no_grad():
        block.train()(torch.randn(200, 4))
    zero = (seen["value"] == 0).view(200, 2, 2)
    assert torch.equal(zero.all(dim=2), zero.any(dim=2))
    assert zero.all(dim=2).float().mean().item() == pytest.approx(0.5, abs=0.1)


def test_a_stack_ends_in_a_norm():
    z = stack_blocks(2, 6, 2, 0.1).eval()(torch.randn(7, 6))
    torch.testing.assert_close(z.mean(dim=1), torch.zeros(7), atol=1e-5, rtol=0)
    torch.testing.assert_close(z.var(dim=1, unbiased=False), torch.ones(7), atol=1e-3, rtol=0)
