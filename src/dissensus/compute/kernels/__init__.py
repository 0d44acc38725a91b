"""Compiled loops: functions of arrays, which import few other modules, so that every module may use them.

Each function runs over a range of items and releases the GIL; `engines` decides where the ranges run. Compiled code is
cached on disk next to the sources (or in the user's cache folder if those are read-only). numba infers the types of the
arguments; docstrings state the shapes.
"""
