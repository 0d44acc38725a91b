"""Texts and images as arrays, by pretrained models, computed once and kept on disk."""
