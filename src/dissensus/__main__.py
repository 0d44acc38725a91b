"""`python -m dissensus` is the command `dissensus`."""

from dissensus.cli import main

main()
