"""Embed texts and images with pretrained models; the vectors are cached on disk."""

from dissensus.features.cache import cache_folder
from dissensus.features.images import embed_images
from dissensus.features.text import embed_pairs, embed_texts, word_vectors

__all__ = ["cache_folder", "embed_images", "embed_pairs", "embed_texts", "word_vectors"]
