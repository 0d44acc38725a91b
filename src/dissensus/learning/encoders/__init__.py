"""Encoders: one file each, entered in the registry by importing it."""

from dissensus.learning.encoders.base import Encoder, encoders
from dissensus.learning.encoders.identity import Identity
from dissensus.learning.encoders.mlp import MLP
from dissensus.learning.encoders.stemmer import Stemmer
from dissensus.learning.encoders.tagger import Tagger
from dissensus.learning.encoders.text_cnn import TextCNN

__all__ = ["MLP", "Encoder", "Identity", "Stemmer", "Tagger", "TextCNN", "encoders"]
