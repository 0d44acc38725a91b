"""The table of annotations, its label types, its file formats, data sets and simulation.

This package turns files and frames into `Annotations`. It imports nothing from the models; every other package builds
on it.
"""
