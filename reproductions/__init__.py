"""The four papers' tables, run again beside what was published.

A paper is a module with a TOML file beside it: the file says what there is to run (data × conditions × seeds → metrics)
and what was published, the module has one function per table that runs a part of it and one that judges the paper's
claims by what was found. `runner` runs the parts, `record` keeps them (also those of the benchmarks), `render` shows
them.
"""

from reproductions.experiment import Cell, Paper, Table, load_paper, paper_names
from reproductions.render import make_page, render_html, render_markdown
from reproductions.runner import reproduce
from reproductions.verdict import Claim, paired

__all__ = [
    "Cell", "Claim", "Paper", "Table", "load_paper", "make_page", "paired", "paper_names", "render_html",
    "render_markdown", "reproduce",
]  # fmt: skip
