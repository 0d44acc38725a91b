"""Declared questions: one file per question, named like its command, which registers itself.

A file here is imported for `dissensus QUESTION --help`, so it imports numerical libraries inside its functions; longer
computations live in `dissensus.questions`.
"""
