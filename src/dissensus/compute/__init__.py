"""Where a pass over the annotations runs: kernels (loops over arrays) and engines (where the arrays are)."""
