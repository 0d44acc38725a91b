import itertools
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from crowds import blobs
from dissensus.exceptions import BadParameter
from dissensus.features.exceptions import NoFeatureInputs
from dissensus.learning import CrowdClassifier, inputs
from dissensus.learning.encoders import WideResNet
from dissensus.learning.encoders.wide_resnet import MAX_SHIFT, ResidualBlock, WideResNetModule, augment_images
from dissensus.learning.exceptions import ChannelCountDiffers
from faults import raised


def pictures(n=40, height=8, width=6, channels=3, seed=0):
    """A table of annotations, and images (n, height, width, channels) of noise with a bright band per class."""
    table, _, truth = blobs(n, seed=seed)
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 120, (n, height, width, channels), dtype=np.uint8)
    for i, k in enumerate(truth):
        x[i, 3 * k : 3 * k + 2] += 120
    return table, x, truth


def quick(**keywords):
    encoder = {key: keywords.pop(key) for key in ("augment", "dropout", "size") if key in keywords}
    return CrowdClassifier(
        **{
            "encoder": WideResNet(depth=10, widen=1, **encoder),
            "objective": "hard",
            "epochs": 2,
            "batch_size": 16,
            "device": "cpu",
            **keywords,
        }
    )


def weights(model):
    return torch.cat([value.double().reshape(-1) for value in model.network_.state_dict().values()])


# The network ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("depth", "widen", "millions"),  # as the paper rounds them
    [(40, 1, 0.6), (40, 2, 2.2), (40, 4, 8.9), (28, 10, 36.5), (28, 12, 52.5), (22, 8, 17.2), (16, 8, 11.0)],
)
def test_there_are_as_many_weights_as_in_the_paper(depth, widen, millions):
    with torch.device("meta"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(nn.init, "kaiming_normal_", lambda *_, **__: None)
        module = WideResNetModule(depth, widen, np.zeros(3), np.ones(3))
    last = 64 * widen * 10 + 10
    assert round((sum(p.numel() for p in module.parameters()) + last) / 1e6, 1) == millions


def test_the_layers_are_those_of_table_1():
    module = WideResNetModule(16, 2, [0.0], [1.0])
    seen = []
    for block in module.blocks:
        block.register_forward_hook(lambda *call: seen.append(tuple(call[2].shape)))
    assert module(torch.zeros(3, 12, 20, 1, dtype=torch.uint8)).shape == (3, 128)
    assert seen == [(3, 32, 12, 20)] * 2 + [(3, 64, 6, 10)] * 2 + [(3, 128, 3, 5)] * 2
    assert [block.shortcut is not None for block in module.blocks] == [True, False] * 3
    assert sum(isinstance(part, nn.Conv2d) and part.kernel_size == (3, 3) for part in module.modules()) == 16 - 3


def convolved(x, weight, stride):
    """(B, C, H, W) by loops."""
    out, _, kernel, _ = weight.shape
    padded = np.pad(x, ((0, 0), (0, 0), (kernel // 2,) * 2, (kernel // 2,) * 2))
    rows, columns = range(0, x.shape[2], stride), range(0, x.shape[3], stride)
    y = np.zeros((len(x), out, len(rows), len(columns)))
    for b, o, (i, r), (j, c) in itertools.product(range(len(x)), range(out), enumerate(rows), enumerate(columns)):
        y[b, o, i, j] = (padded[b, :, r : r + kernel, c : c + kernel] * weight[o]).sum()
    return y


def normalised(x, norm):
    mean, variance = x.mean(axis=(0, 2, 3)), x.var(axis=(0, 2, 3))
    gain, bias = norm.weight.detach().numpy(), norm.bias.detach().numpy()
    y = (x - mean[:, None, None]) / np.sqrt(variance + norm.eps)[:, None, None]
    return np.maximum(y * gain[:, None, None] + bias[:, None, None], 0)


@pytest.mark.parametrize(("channels", "wide", "stride"), [(3, 4, 2), (4, 4, 1)])
def test_a_block_is_the_literal_one(channels, wide, stride):
    torch.manual_seed(0)
    block = ResidualBlock(channels, wide, stride, 0.0).double()
    for norm in (block.norm1, block.norm2):
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
    x = torch.randn(2, channels, 5, 4, dtype=torch.float64)
    before = x.numpy().copy()
    first = normalised(before, block.norm1)
    y = normalised(convolved(first, block.conv1.weight.detach().numpy(), stride), block.norm2)
    y = convolved(y, block.conv2.weight.detach().numpy(), 1)
    kept = before if stride == 1 else convolved(first, block.shortcut.weight.detach().numpy(), stride)
    np.testing.assert_allclose(block(x).detach().numpy(), y + kept, atol=1e-10)
    np.testing.assert_array_equal(x.numpy(), before)


def test_pixels_are_normalised_inside():
    torch.manual_seed(0)
    center, spread = np.array([100.0, 20.0]), np.array([30.0, 7.0])
    module = WideResNetModule(10, 1, center, spread)
    plain = WideResNetModule(10, 1, np.zeros(2), np.ones(2))
    plain.load_state_dict({k: v for k, v in module.state_dict().items() if k not in ("center", "spread")}, strict=False)
    x = torch.randint(0, 256, (4, 8, 6, 2), dtype=torch.uint8)
    expected = plain((x.float() - torch.tensor(center).float()) / torch.tensor(spread).float())
    torch.testing.assert_close(module(x), expected)
    torch.testing.assert_close(module(x.float()), expected)
    end = module.norm(module.blocks(module.first((x.permute(0, 3, 1, 2) - module.center) / module.spread)))
    torch.testing.assert_close(end.clamp(min=0).flatten(2).mean(2), expected)


def test_weights_start_as_wide_as_their_outputs_ask_for():
    torch.manual_seed(0)
    block = WideResNetModule(10, 4, np.zeros(3), np.ones(3)).blocks[1]
    for conv, pixels in ((block.conv1, 9), (block.conv2, 9), (block.shortcut, 1)):
        assert float(conv.weight.detach().std()) == pytest.approx((2 / (pixels * 128)) ** 0.5, rel=0.03)


def test_dropout_is_between_the_convolutions_of_a_block():
    torch.manual_seed(0)
    block, x = ResidualBlock(3, 3, 1, 0.5), torch.randn(2, 3, 4, 4)
    seen = []
    block.conv2.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    block.conv1.register_forward_hook(lambda _, __, out: seen.append(out))
    block(x)
    full = torch.relu(nn.functional.batch_norm(seen[0], None, None, training=True))
    kept = seen[1] != 0
    assert 0 < int(kept.sum()) < int((full > 0).sum())
    torch.testing.assert_close(seen[1][kept], 2 * full[kept])


# Augmentation ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [torch.uint8, torch.float32])
def test_moved_images_are_crops_of_images_mirrored_at_their_edges(kind):
    torch.manual_seed(0)
    image = torch.rand(13, 11, 3).mul(255).to(kind)
    padded = nn.functional.pad(image.permute(2, 0, 1)[None].float(), [MAX_SHIFT] * 4, mode="reflect")[0].permute(
        1, 2, 0
    )
    crops = {}
    for r, c, flip in itertools.product(range(2 * MAX_SHIFT + 1), range(2 * MAX_SHIFT + 1), (False, True)):
        crop = padded[r : r + 13, c : c + 11]
        crops[(crop.flip(1) if flip else crop).contiguous().numpy().tobytes()] = (r, c, flip)
    assert len(crops) == 162
    found = augment_images(image.expand(3000, 13, 11, 3))
    assert found.dtype == kind
    seen = [crops[part.contiguous().float().numpy().tobytes()] for part in found]  # KeyError: not a crop
    assert set(seen) == set(crops.values())
    assert np.mean([flip for _, _, flip in seen]) == pytest.approx(0.5, abs=0.04)


def test_tiny_images_are_moved_within_what_they_have():
    x = torch.arange(8, dtype=torch.uint8).reshape(2, 2, 2, 1).expand(2, 2, 2, 3)
    assert augment_images(x).shape == x.shape
    np.testing.assert_array_equal(augment_images(x[:, :1, :1]), x[:, :1, :1])


def test_images_are_moved_while_training_only():
    x = torch.randint(0, 256, (9, 8, 6, 1), dtype=torch.uint8)
    module = WideResNetModule(10, 1, [120.0], [60.0], augment=True)
    assert not torch.equal(module(x), module(x))
    module.augment = False
    assert torch.equal(module(x), module(x))
    module.augment = True
    module.eval()
    assert torch.equal(module(x), module(x))


# Through the classifier -----------------------------------------------------------------------------------------------


def test_images_teach():
    table, x, truth = pictures(120)
    model = quick(augment=False, epochs=8, learning_rate=0.01, schedule="cosine").fit(table, x)
    assert model.score(x, truth) > 0.9
    _, other, known = pictures(50, seed=1)
    assert model.score(other, known) > 0.9


def test_the_same_pixels_in_every_form_give_the_same_bits():
    table, x, _ = pictures()
    expected = quick().fit(table, x).proba_
    forms = [x / 255, (x / 255).astype(np.float32), x.astype(np.int64), list(x), x.tolist(), pd.Series(list(x))]
    for form in forms:
        np.testing.assert_array_equal(quick().fit(table, form).proba_, expected)


def test_grey_images_have_one_channel_or_none():
    table, x, _ = pictures(channels=1)
    first, second = quick().fit(table, x), quick().fit(table, x[..., 0])
    np.testing.assert_array_equal(first.proba_, second.proba_)
    np.testing.assert_array_equal(first.predict_proba(x[:3]), second.predict_proba(list(x[:3, :, :, 0])))


def test_channels_are_scaled_by_what_the_training_images_show():
    _, x, _ = pictures()
    x[..., 2] = 7
    encoder = WideResNet().fit(x)
    np.testing.assert_allclose(encoder.center_, x.mean(axis=(0, 1, 2)))
    np.testing.assert_allclose(encoder.spread_, [*x[..., :2].std(axis=(0, 1, 2)), 1.0])


def test_the_same_seed_gives_the_same_bits():
    table, x, _ = pictures()
    for keywords in ({}, {"mixup": 0.4}, {"sam": 0.05, "dropout": 0.2}):
        first, second, third = (weights(quick(seed=seed, **keywords).fit(table, x)) for seed in (1, 1, 2))
        assert torch.equal(first, second)
        assert not torch.equal(first, third)


def test_mixtures_are_of_pixels():
    table, x, _ = pictures(24)
    model = quick(mixup=0.5, epochs=1)
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules[WideResNet.__module__], "augment_images", lambda batch: seen.append(batch) or batch)
        model.fit(table, x)
    assert {batch.dtype for batch in seen} == {torch.float32}
    assert max(float(batch.max()) for batch in seen) > 150
    assert any((batch != batch.round()).any() for batch in seen)


def test_the_second_pass_of_sam_leaves_running_statistics_alone():
    table, x, _ = pictures()
    still = {"learning_rate": 0.0, "head_learning_rate": 0.0, "optimizer": "sgd"}
    plain, sharp = (weights(quick(sam=sam, **still).fit(table, x)) for sam in (None, 0.5))
    assert torch.equal(plain, sharp)


@pytest.mark.parametrize("n", [17, 33])
def test_one_item_in_the_last_batch(n):
    table, x, _ = pictures(n)
    model = quick().fit(table, x)
    assert np.isfinite(model.proba_).all()
    np.testing.assert_allclose(model.predict_proba(x[:1]), model.proba_[:1], atol=1e-5)
    assert model.predict_proba(x[:0]).shape == (0, 3)


def test_a_saved_model_answers_as_before(tmp_path):
    table, x, _ = pictures()
    model = quick(size=(7, 5)).fit(table, x)
    model.save(tmp_path)
    again = CrowdClassifier.load(tmp_path, device="cpu")
    np.testing.assert_array_equal(again.predict_proba(x), model.predict_proba(x))
    assert again.encoder_.size_ == (7, 5)
    assert again.encoder.get_params() == model.encoder.get_params()


# Sizes and channels ---------------------------------------------------------------------------------------------------


def test_images_of_other_sizes_are_resized_to_the_fitted_one():
    table, x, _ = pictures()
    model = quick().fit(table, x)
    double = np.repeat(np.repeat(x, 2, axis=1), 2, axis=2)
    assert model.encoder_.size_ == (8, 6)
    prepared = model.encoder_.prepare(double).columns["x"].numpy()
    np.testing.assert_array_equal(prepared, [inputs.resize_image(image, (8, 6)) for image in double])
    mixed = [double[0], x[1], double[2]]
    expected = [model.predict_proba(part)[0] for part in (double[:1], x[1:2], double[2:3])]
    np.testing.assert_allclose(model.predict_proba(mixed), expected, atol=1e-6)


def test_the_fitted_size_is_the_most_common_one_or_that_given():
    small, wide, tall = np.zeros((4, 4), np.uint8), np.zeros((4, 9), np.uint8), np.zeros((9, 4), np.uint8)
    assert WideResNet().fit([small, wide, wide, tall]).size_ == (4, 9)
    assert WideResNet().fit([tall, wide, small]).size_ == WideResNet().fit([small, wide, tall]).size_ == (9, 4)
    encoder = WideResNet(size=(5, 7)).fit([small, wide])
    assert encoder.prepare([tall, small]).columns["x"].shape == (2, 5, 7, 1)


def test_images_with_other_channels_are_named():
    table, x, _ = pictures()
    model = quick(epochs=1).fit(table, x)
    with raised(ChannelCountDiffers, row=1, channels=1, expected=3):
        model.predict([x[0], x[0, :, :, 0]])
    with raised(ChannelCountDiffers, row=1, channels=4, expected=3):
        quick().fit(table, [x[0], np.zeros((8, 6, 4), np.uint8), *x[2:]])
    with pytest.raises(NoFeatureInputs):
        WideResNet().fit(x[:0])


@pytest.mark.parametrize(
    "keywords", [{"depth": 18}, {"depth": 4}, {"widen": 0}, {"dropout": 1.0}, {"size": (3,)}, {"size": (3, 0)}]
)
def test_bad_keywords_are_named(keywords):
    table, x, _ = pictures()
    with raised(BadParameter, keyword=next(iter(keywords))):
        quick(encoder=WideResNet(**keywords)).fit(table, x)
