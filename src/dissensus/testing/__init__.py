"""Conformance suites: what every entry of a registry must do, one module per registry.

The tests of dissensus run each suite over all entries; a package that adds an entry by an entry point runs it over
its own: `from dissensus.testing.methods import check_method`. A check raises AssertionError with what is wrong. Checks
need nothing but the library itself: pytest is not imported.
"""
