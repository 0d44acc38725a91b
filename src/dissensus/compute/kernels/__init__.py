"""Compiled loops over arrays; they import few modules, so that every module can import them.

Each function processes a range of items and releases the GIL; `engines` decides where each range is processed. Compiled
code is cached on disk next to the sources, or in the user's cache folder if the sources are read-only. numba infers the
types of the arguments, and docstrings state the shapes.
"""
