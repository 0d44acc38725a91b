"""How the command line words messages: options in place of parameters."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from dissensus.messages import Face

OPTIONS = {
    "format": "input_format",
    "format_": "format",
    "setting": "set",
    "classes": "classes A,B,…",
    "training_gold": "known",
}
"""Parameter → option, if the option is not the parameter with dashes."""


def option_words(parameter: str, options: Collection[str] = ()) -> str:
    """Return the option for a parameter: `wide=True` → `--wide`, `item=<column>` → `--item COLUMN`.

    With the names of a command's `options`, other parameters are settings of a model.

    >>> [option_words(parameter) for parameter in ("many_classes=True", "item=<column>", "kind='sets'", "abstain=''")]
    ['--many-classes', '--item COLUMN', '--kind sets', '--abstain ""']
    >>> option_words("seed", ["seed", "setting"]), option_words("smoothing", ["seed", "setting"])
    ('--seed', '--set smoothing')
    """
    name, _, value = parameter.partition("=")
    option = OPTIONS.get(name, name)
    if options and not {name, option} & set(options):
        return f"--set {parameter}" if "setting" in options else parameter
    option = f"--{option.replace('_', '-')}"
    if value in ("", "True"):
        return option
    if value.startswith("<"):
        return f"{option} {value.strip('<>').upper()}"
    return f"{option} {value.strip(chr(39)) or chr(34) * 2}"


COMMAND_LINE = Face(option_words)
GOLD_FILE = Face(lambda name: option_words(name).replace("--item", "--gold-item").replace("--label", "--gold-label"))
"""Words for errors about a file of gold labels, whose columns have their own options."""


def face_of(options: Collection[str]) -> Face:
    """Return the words of a command with these options."""
    return Face(partial(option_words, options=options))
