"""How the command line words messages: options in place of parameters."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from dissensus.common.options import option_words
from dissensus.messages import Face

COMMAND_LINE = Face(option_words)
GOLD_FILE = Face(lambda name: option_words(name).replace("--item", "--gold-item").replace("--label", "--gold-label"))
"""Words for errors about a file of gold labels, whose columns have their own options."""


def face_of(options: Collection[str]) -> Face:
    """Return the words of a command with these options."""
    return Face(partial(option_words, options=options))
