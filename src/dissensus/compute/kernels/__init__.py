"""Compiled loops over arrays, which import few other modules, so that every module can use them.

Each function processes a range of items and releases the GIL; `engines` decides where the ranges run. Compiled code is
cached on disk next to the sources, or in the user's cache folder if the sources are read-only. numba infers the types
of the arguments, and docstrings state the shapes.
"""
