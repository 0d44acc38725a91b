"""Passes over annotations: kernels, which are compiled loops over arrays, and engines, which store the arrays."""
