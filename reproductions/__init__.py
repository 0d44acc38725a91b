"""Reproduce the tables of the four papers and compare them with the published figures.

A paper is a module with a TOML file of the same name. The file lists what to run (data × conditions × seeds → metrics)
and the published figures. The module has one function per table, which runs one cell of it, and one function that
tests the paper's claims on the results. `runner` runs the cells, `record` stores them (and the results of benchmarks),
`render` writes the pages.
"""

from reproductions.experiment import Cell, Paper, Table, load_paper, paper_names
from reproductions.render import make_page, render_html, render_markdown
from reproductions.runner import reproduce
from reproductions.verdict import Claim, paired

__all__ = [
    "Cell", "Claim", "Paper", "Table", "load_paper", "make_page", "paired", "paper_names", "render_html",
    "render_markdown", "reproduce",
]  # fmt: skip
