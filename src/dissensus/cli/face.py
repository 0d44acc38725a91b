"""Word messages for the command line: options in place of parameters."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from dissensus.common.options import render_option
from dissensus.messages import Face

if TYPE_CHECKING:
    from dissensus.cli.show import Invocation

COMMAND_LINE = Face(render_option)
GOLD_FACE = Face(lambda name: render_option(name).replace("--item", "--gold-item").replace("--label", "--gold-label"))
"""Words for errors about a file of gold labels, whose columns have their own options."""


def make_face(running: Invocation) -> Face:
    """Return the words of a running command, which names its own options and the settings that the user gave."""
    return Face(partial(render_option, options=running.options, settings=running.settings))
