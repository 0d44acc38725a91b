"""How the command line words messages: options in place of keywords."""

from __future__ import annotations

from dissensus.messages import Face

OPTIONS = {"format": "input-format", "classes": "classes A,B,…"}
"""Keyword → option, where the option is not the keyword with dashes."""


def option_words(parameter: str) -> str:
    """Return the option for a keyword: `wide=True` → `--wide`, `item=<column>` → `--item COLUMN`.

    >>> [option_words(keyword) for keyword in ("many_classes=True", "item=<column>", "kind='sets'", "abstain=''")]
    ['--many-classes', '--item COLUMN', '--kind sets', '--abstain ""']
    """
    name, _, value = parameter.partition("=")
    option = f"--{OPTIONS.get(name, name).replace('_', '-')}"
    if value in ("", "True"):
        return option
    if value.startswith("<"):
        return f"{option} {value.strip('<>').upper()}"
    return f"{option} {value.strip(chr(39)) or chr(34) * 2}"


COMMAND_LINE = Face(option_words)
GOLD_FILE = Face(lambda name: option_words(name).replace("--item", "--gold-item").replace("--label", "--gold-label"))
