"""Wide residual networks WRN-depth-widen over images (Zagoruyko & Komodakis 2016); Uma et al. 2021 train WRN-16-12.

    conv1      3 × 3, 16 channels
    conv2 … 4  n blocks each, of 16 k, 32 k and 64 k channels; the first block of conv3 and of conv4 halves the image
    block      x + conv(dropout(relu(norm(conv(relu(norm(x)))))))        both 3 × 3, B(3, 3) in the paper
    out        relu(norm(·)), averaged over the image: 64 k values

The depth is 6 n + 4, and `widen` is k (Table 1). If a block changes the number of channels, a 1 × 1 convolution of
relu(norm(x)) replaces x. As in the authors' code, weights are drawn from N(0, 2 / (pixels of a kernel · output
channels)).

Pixels are stored as bytes until they are in a batch. The module subtracts the mean of the training images from each
channel and divides by the standard deviation. In training, images are mirrored at random and shifted by up to 4 pixels,
with mirrored edges (section 3 of the paper).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from dissensus.common.parameters import is_whole_number, param
from dissensus.common.types import ByteArray, FloatArray
from dissensus.features.exceptions import NoFeatureInputs
from dissensus.learning.batches import BatchColumns
from dissensus.learning.encoders.base import Encoder, encoders, size_param
from dissensus.learning.exceptions import ChannelCountDiffers
from dissensus.learning.inputs import resize_image, to_images

MAX_SHIFT = 4  # maximum shift of an image in pixels


@encoders.register("wide-resnet", summary="wide residual network over images", cite="Zagoruyko & Komodakis 2016")
class WideResNet(Encoder):
    """Encoder of images by a wide residual network.

    Normalisation layers use all images of a batch, so `accumulate` and `processes` change the result by more than
    rounding, unlike with other encoders.
    """

    input_kind = "images, items × height × width (× channels)"
    averages_inputs = True

    depth: int = param(
        16,
        "number of layers: 10, 16, 22, 28, …",
        check=lambda value: is_whole_number(value) and value >= 10 and value % 6 == 4,
        must="must be one of 10, 16, 22, 28 …",
    )
    widen: int = param(
        4,
        "k, the width as a multiple of a plain residual network's; 4 (2.7 million weights with 16 layers) can be "
        "trained without a GPU, and Uma et al. 2021 use 12 (24.6 million)",
        low=1,
    )
    dropout: float = param(
        0.0, "share of values set to zero between the convolutions of a block while training", low=0, below=1
    )
    augment: bool = param(True, "mirror and shift images at random while training; with mixup, their mixtures")
    size: Sequence[int] | None = size_param(
        None,
        "(height, width) to which all images are resized (bilinear); None: the most common size of the training "
        "images, or the largest of equally common sizes",
        "must be (height, width), or None",
        least=2,
        most=2,
    )

    size_: tuple[int, int]
    channels_: int
    center_: FloatArray
    spread_: FloatArray

    @property
    def width(self) -> int:
        return 64 * self.widen

    def fit(self, X: Any) -> Self:
        """Compute the size of the images, and the mean and standard deviation of every channel."""
        super().fit(X)
        found = to_images(X)
        if not found:
            raise NoFeatureInputs(argument="X")
        shapes = Counter(image.shape[:2] for image in found)
        height, width = max(shapes, key=lambda s: (shapes[s], s[0] * s[1], s)) if self.size is None else self.size
        self.size_, self.channels_ = (int(height), int(width)), found[0].shape[2]
        x = self._pixels(found)
        level = np.arange(256)
        counts = np.stack([np.bincount(x[..., c].ravel(), minlength=256) for c in range(self.channels_)])  # (C, 256)
        share = counts / counts.sum(axis=1, keepdims=True)
        self.center_ = share @ level
        spread = np.sqrt((share * (level - self.center_[:, None]) ** 2).sum(axis=1))
        self.spread_ = np.where(spread > 0, spread, 1.0)
        return self

    def prepare(self, X: Any) -> BatchColumns:
        return BatchColumns(x=torch.from_numpy(self._pixels(to_images(X))))

    def module(self) -> nn.Module:
        return WideResNetModule(self.depth, self.widen, self.center_, self.spread_, self.dropout, self.augment)

    def _pixels(self, found: list[ByteArray]) -> ByteArray:
        for i, image in enumerate(found):
            if image.shape[2] != self.channels_:
                raise ChannelCountDiffers(row=i, channels=image.shape[2], expected=self.channels_)
        x = np.empty((len(found), *self.size_, self.channels_), np.uint8)
        for i, image in enumerate(found):
            x[i] = resize_image(image, self.size_)
        return x


class WideResNetModule(nn.Module):
    """Network of `WideResNet`, which maps pixels (B, H, W, C) from 0 to 255 to (B, 64 k).

    Parameters
    ----------
    depth, widen, dropout, augment
        As in `WideResNet`.
    center, spread : (C,) float
        Mean and standard deviation of every channel.
    """

    center: Tensor
    spread: Tensor

    def __init__(
        self,
        depth: int,
        widen: int,
        center: FloatArray | Sequence[float],
        spread: FloatArray | Sequence[float],
        dropout: float = 0.0,
        augment: bool = False,
    ):
        super().__init__()
        self.augment = augment
        for name, values in (("center", center), ("spread", spread)):
            self.register_buffer(name, torch.tensor(np.asarray(values), dtype=torch.float32)[:, None, None])
        self.first = nn.Conv2d(len(center), 16, 3, padding=1, bias=False)
        blocks, channels = [], 16
        for group, wide in enumerate((16 * widen, 32 * widen, 64 * widen)):
            for place in range((depth - 4) // 6):
                blocks.append(ResidualBlock(channels, wide, 2 if group and not place else 1, dropout))
                channels = wide
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.BatchNorm2d(channels)
        for part in self.modules():
            if isinstance(part, nn.Conv2d):
                nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # the order of the pixels

    def forward(self, x: Tensor) -> Any:
        if self.augment and self.training:
            x = augment_images(x)
        x = (x.permute(0, 3, 1, 2).to(self.center.dtype) - self.center) / self.spread  # (B, C, H, W)
        x = F.relu(self.norm(self.blocks(self.first(x))), inplace=True)
        return x.mean(dim=(2, 3))


class ResidualBlock(nn.Module):
    """Residual block B(3, 3) with dropout (Fig. 1d of the paper)."""

    def __init__(self, channels: int, wide: int, stride: int, dropout: float):
        super().__init__()
        self.norm1, self.norm2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(wide)
        self.conv1 = nn.Conv2d(channels, wide, 3, stride, padding=1, bias=False)
        self.conv2 = nn.Conv2d(wide, wide, 3, padding=1, bias=False)
        self.dropout = nn.Dropout(dropout)
        self.shortcut = None if channels == wide else nn.Conv2d(channels, wide, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Any:
        y = F.relu(self.norm1(x), inplace=True)
        kept = x if self.shortcut is None else self.shortcut(y)
        y = F.relu(self.norm2(self.conv1(y)), inplace=True)
        return self.conv2(self.dropout(y)) + kept


def augment_images(x: Tensor) -> Tensor:
    """Shift images (B, H, W, C) by up to MAX_SHIFT pixels in each direction, and mirror half of them."""
    items, height, width, _ = x.shape

    def source_pixels(length: int) -> Tensor:
        """Return the indices (B, length) of the source pixels of a shifted row or column, mirrored at the edges."""
        most = min(MAX_SHIFT, length - 1)
        by = torch.randint(-most, most + 1, (items, 1), device=x.device)
        at = torch.arange(length, device=x.device) + by
        at = torch.where(at < 0, -at, at)  # torch.compile (2.13) cannot index by abs(at).
        return torch.where(at >= length, 2 * (length - 1) - at, at)

    row, column = source_pixels(height), source_pixels(width)
    flip = torch.rand(items, 1, device=x.device) < 0.5
    column = torch.where(flip, column.flip(1), column)
    item = torch.arange(items, device=x.device)
    return x[item[:, None, None], row[:, :, None], column[:, None, :]]
