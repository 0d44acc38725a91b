"""Encoders: one file each, entered in the registry by importing it."""

from dissensus.learning.encoders.base import Encoder, encoders
from dissensus.learning.encoders.identity import Identity
from dissensus.learning.encoders.mlp import MLP
from dissensus.learning.encoders.transformer import Transformer

__all__ = ["MLP", "Encoder", "Identity", "Transformer", "encoders"]
