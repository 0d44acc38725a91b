"""Encoders: one file each, entered in the registry by importing it."""

from dissensus.learning.encoders.base import Encoder, encoders
from dissensus.learning.encoders.stemmer import Stemmer
from dissensus.learning.encoders.tagger import Tagger
from dissensus.learning.encoders.text_cnn import TextCNN

__all__ = ["Encoder", "Stemmer", "Tagger", "TextCNN", "encoders"]
