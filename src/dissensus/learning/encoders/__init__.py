"""Encoders: one file each, entered in the registry by importing it.

>>> encoders["mlp"](hidden=[16]).hidden
[16]
"""

from dissensus.learning.encoders.base import Encoder, encoders
from dissensus.learning.encoders.identity import Identity
from dissensus.learning.encoders.item_embedding import ItemEmbedding
from dissensus.learning.encoders.mlp import MLP
from dissensus.learning.encoders.tagger import Tagger
from dissensus.learning.encoders.text_cnn import TextCNN
from dissensus.learning.encoders.transformer import Transformer
from dissensus.learning.encoders.wide_resnet import WideResNet

__all__ = [
    "MLP", "Encoder", "Identity", "ItemEmbedding", "Tagger", "TextCNN", "Transformer", "WideResNet", "encoders",
]  # fmt: skip
