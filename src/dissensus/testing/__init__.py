"""Conformance suites, one module per registry, which check that an entry keeps the contract of the registry.

The tests of dissensus run each suite over all entries. A package that adds an entry by an entry point runs the suite
over its own entries, for example with `from dissensus.testing.methods import check_method`. A check raises
AssertionError with a description of the fault. The suites do not import pytest.
"""
