"""The few hot loops: functions of arrays, which import nothing else of ours, so that every module may use them.

Each function runs over a range of items and releases the GIL; `engines` decides where the ranges run. Compiled code is
cached on disk beside the sources (or in the user's cache folder where those are read-only). numba finds the types of
the arguments; docstrings say the shapes.
"""
