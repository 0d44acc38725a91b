"""Encoders: one file each, entered in the registry by importing it."""

from dissensus.learning.encoders.base import Encoder, encoders
from dissensus.learning.encoders.identity import Identity
from dissensus.learning.encoders.mlp import MLP

__all__ = ["MLP", "Encoder", "Identity", "encoders"]
