"""Encoders: one file each, entered in the registry by importing it."""

from dissensus.learning.encoders.base import Encoder, encoders

__all__ = ["Encoder", "encoders"]
