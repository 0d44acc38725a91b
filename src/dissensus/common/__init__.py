"""Helpers that every layer uses: types, declared parameters, registries, progress and files."""
