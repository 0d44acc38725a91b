"""Passes over annotations: kernels are loops over arrays, and engines store the arrays and run the kernels."""
