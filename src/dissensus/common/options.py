"""How the command line calls parameters; the report names its options too."""

from __future__ import annotations

from collections.abc import Collection

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
