"""Declarations of the questions; each file registers one question.

These files are imported for `dissensus QUESTION --help`, so they import numerical libraries only inside functions.
Longer computations are defined in `dissensus.questions`.
"""
