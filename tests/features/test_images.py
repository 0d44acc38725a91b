"""Images as vectors: against the network called by hand."""

import json

import numpy as np
import pytest

pytest.importorskip("transformers", reason="needs the `text` extra")

import torch
from torch import nn

from dissensus.exceptions import BadParameter
from dissensus.features import embed_images, hub
from dissensus.features.exceptions import (
    ModelNotFound,
    ModelOfWrongType,
    NoFeatureInputs,
    NotAnImage,
    PixelsNotFinite,
    PixelsOutOfRange,
    UnequalChannels,
    WrongNumberOfVectors,
)
from faults import raised

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (5, 6, 7, 3), dtype=np.uint8)


class Small(nn.Module):
    """A convolution, statistics, dropout and a mean: any size of image."""

    def __init__(self, seed=0, channels=3):
        super().__init__()
        torch.manual_seed(seed)
        self.layers = nn.Sequential(nn.Conv2d(channels, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5))
        self.calls = 0

    def forward(self, x):
        self.calls += len(x)
        assert not torch.is_grad_enabled()
        return self.layers(x).mean((2, 3), keepdim=True)


def by_hand(model, images, scale=255):
    """One image at a time."""
    model.eval()
    with torch.inference_mode():
        rows = [model(torch.tensor(i / scale).float().permute(2, 0, 1)[None])[0, :, 0, 0] for i in images]
    return torch.stack(rows).numpy()


def test_a_module_sees_channels_first_from_0_to_1_in_evaluation_mode(tmp_path):
    model = Small().train()
    found = embed_images(IMAGES, model, batch_size=2, cache=tmp_path)
    assert found.dtype == np.float32
    assert model.training
    assert model.layers[1].num_batches_tracked == 0
    np.testing.assert_allclose(found, by_hand(model, IMAGES), atol=1e-6)
    np.testing.assert_allclose(embed_images(IMAGES / 255, model, cache=False), found, atol=1e-6)


def test_images_are_embedded_once_and_by_each_model(tmp_path):
    model = Small()
    twice = np.concatenate([IMAGES, IMAGES[:2]])
    first = embed_images(twice, model, cache=tmp_path)
    assert model.calls == 5
    np.testing.assert_array_equal(embed_images(IMAGES[3:], model, cache=tmp_path), first[3:5])
    assert model.calls == 5
    same, other = Small(), Small(seed=1)
    embed_images(IMAGES, same, cache=tmp_path)
    embed_images(IMAGES, other, cache=tmp_path)
    assert (same.calls, other.calls) == (0, 5)
    embed_images(IMAGES / 255, model, cache=tmp_path)
    assert model.calls == 10


def test_sizes_may_differ_and_grey_images_have_one_channel():
    model, images = Small(channels=1), [IMAGES[i, : 4 + i % 3, :, 0] for i in range(5)]
    found = embed_images(images, model, cache=False, batch_size=2)
    np.testing.assert_allclose(found, by_hand(model, [image[:, :, None] for image in images]), atol=1e-6)


def test_batches_hold_images_of_one_size():
    seen = []

    def model(x):
        seen.append(tuple(x.shape))
        return x.mean((2, 3))

    images = [np.zeros((3 + i % 2, 3, 1)) + i for i in range(8)]
    np.testing.assert_allclose(embed_images(images, model, batch_size=3, cache=False)[:, 0], range(8))
    assert sorted(seen) == [(1, 1, 3, 3), (1, 1, 4, 3), (3, 1, 3, 3), (3, 1, 4, 3)]


def test_a_function_is_cached_by_its_name_only(tmp_path):
    seen = []

    def model(x):
        seen.append(len(x))
        return x.mean((2, 3))

    for name in (None, None, "mean", "mean", "other"):
        embed_images(IMAGES, model, name=name, cache=tmp_path)
    assert len(seen) == 4


def test_wrong_images_and_models_are_one_sentence():
    with raised(NotAnImage, row=1, got="of shape (4,), float64"):
        embed_images([np.zeros((4, 4)), np.zeros(4)], Small())
    with raised(PixelsNotFinite, row=0, n_values=1):
        embed_images([np.array([[1.0, np.nan]])], Small())
    with raised(PixelsOutOfRange, row=0, low=-1, high=300):
        embed_images([np.array([[-1, 300]])], Small())
    with pytest.raises(NoFeatureInputs):
        embed_images([], Small())
    with raised(ModelOfWrongType, got="int"):
        embed_images(IMAGES, 3)
    with raised(WrongNumberOfVectors, got="(3,)", n_images=5):
        embed_images(IMAGES, lambda x: x.mean((0, 2, 3)), cache=False)
    with raised(WrongNumberOfVectors, got="str", n_images=5):
        embed_images(IMAGES, lambda x: "vectors", cache=False)
    with raised(ModelNotFound, model="no/such"):
        embed_images(IMAGES, "no/such")
    with raised(BadParameter, keyword="batch_size"):
        embed_images(IMAGES, Small(), batch_size=0)


def tiny_vit(folder, **preprocessor):
    import transformers

    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, image_size=8, patch_size=4
    )
    network = transformers.ViTModel(config)
    nn.init.normal_(network.embeddings.patch_embeddings.projection.weight)  # so that pixels matter
    network.save_pretrained(folder)
    if preprocessor:
        (folder / "preprocessor_config.json").write_text(json.dumps(preprocessor))
    return folder


def vit_by_hand(folder, x, pooling):
    import transformers

    with hub.quiet_transformers(folder), torch.inference_mode():
        hidden = transformers.ViTModel.from_pretrained(folder).eval()(x).last_hidden_state
    return (hidden[:, 0] if pooling == "cls" else hidden.mean(1)).numpy()


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_a_hugging_face_model_shifts_colours_as_its_folder_says(tmp_path, pooling):
    mean, std = [0.5, 0.4, 0.3], [0.2, 0.3, 0.4]
    folder = tiny_vit(tmp_path / "vit", size={"height": 8, "width": 8}, image_mean=mean, image_std=std)
    images = RNG.integers(0, 256, (3, 8, 8, 3), dtype=np.uint8)
    x = torch.tensor((images / 255 - mean) / std).float().permute(0, 3, 1, 2)
    found = embed_images(images, folder, pooling=pooling, cache=tmp_path)
    np.testing.assert_allclose(found, vit_by_hand(folder, x, pooling), atol=1e-5)
    again = embed_images(images, folder, pooling="mean", cache=tmp_path)
    assert (np.abs(found - again).max() > 1e-3) == (pooling == "cls")


def test_a_hugging_face_model_scales_and_crops(tmp_path):
    from PIL import Image

    rows, columns = np.mgrid[:24, :16]
    image = np.stack([rows * 10, columns * 15, rows + columns], axis=2).astype(np.uint8)
    whole = tiny_vit(tmp_path / "whole")
    small = np.asarray(Image.fromarray(image).resize((8, 8), Image.Resampling.BILINEAR))
    found = embed_images([image], whole, cache=False)
    x = torch.tensor(small / 255).float().permute(2, 0, 1)[None]
    np.testing.assert_allclose(found, vit_by_hand(whole, x, "mean"), atol=0.01)
    middle = tiny_vit(tmp_path / "middle", size={"shortest_edge": 8}, crop_size=8, do_center_crop=True, resample=3)
    small = np.asarray(Image.fromarray(image).resize((8, 12), Image.Resampling.BICUBIC))[2:10]
    x = torch.tensor(small / 255).float().permute(2, 0, 1)[None]
    np.testing.assert_allclose(embed_images([image], middle, cache=False), vit_by_hand(middle, x, "mean"), atol=0.01)


def test_grey_images_become_coloured_and_other_channels_are_an_error(tmp_path):
    folder = tiny_vit(tmp_path)
    grey = IMAGES[:, :, :, 0]
    coloured = np.repeat(grey[:, :, :, None], 3, axis=3)
    np.testing.assert_allclose(
        embed_images(grey, folder, cache=False), embed_images(coloured, folder, cache=False), atol=1e-6
    )
    with raised(UnequalChannels, channels=2, expected=3):
        embed_images(IMAGES[:, :, :, :2], folder, cache=False)


def test_a_convolutional_hugging_face_model(tmp_path):
    import transformers

    config = transformers.ResNetConfig(embedding_size=4, hidden_sizes=[4, 8], depths=[1, 1], layer_type="basic")
    transformers.ResNetModel(config).save_pretrained(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"size": 16}))
    images = RNG.integers(0, 256, (2, 16, 16, 3), dtype=np.uint8)
    with hub.quiet_transformers(tmp_path), torch.inference_mode():
        network = transformers.ResNetModel.from_pretrained(tmp_path).eval()
        expected = network(torch.tensor(images / 255).float().permute(0, 3, 1, 2)).pooler_output.flatten(1)
    np.testing.assert_allclose(embed_images(images, tmp_path, cache=False), expected, atol=1e-5)
