"""The table of annotations, with its label types, file formats, data sets and simulations.

This package turns files and frames into `Annotations`. It imports nothing from the models; every other package builds
on it.
"""
