"""Convert names of parameters to command-line options, for the command line and the report."""

from __future__ import annotations

from collections.abc import Collection, Mapping

OPTION_NAMES = {
    "format": "input_format",
    "format_": "format",
    "setting": "set",
    "classes": "classes A,B,…",
}
"""Parameter → option, for options that are not the parameter with dashes."""


def render_option(parameter: str, options: Collection[str] = (), settings: Mapping[str, str] | None = None) -> str:
    """Return the option for a parameter: `wide=True` → `--wide`, `item=<column>` → `--item COLUMN`.

    `options` are the parameters for which a command has an option. If they are given, any other parameter belongs to
    the model and is set with --set. `settings` maps parameters that the user passed with --set to their keys, such as
    dropout → encoder.dropout; these are rendered as --set even if the command has an option of the same name.

    >>> [render_option(parameter) for parameter in ("many_classes=True", "item=<column>", "kind='sets'", "abstain=''")]
    ['--many-classes', '--item COLUMN', '--kind sets', '--abstain ""']
    >>> render_option("seed", ["seed", "setting"]), render_option("smoothing", ["seed", "setting"])
    ('--seed', '--set smoothing')
    >>> render_option("weight", ["weight", "setting"], {"weight": "objective.weight"})
    '--set objective.weight'
    """
    name, _, value = parameter.partition("=")
    if name in (settings or {}):
        return f"--set {(settings or {})[name]}{parameter.removeprefix(name)}"
    option = OPTION_NAMES.get(name, name)
    if options and not {name, option} & set(options):
        return f"--set {parameter}" if "setting" in options else parameter
    option = f"--{option.replace('_', '-')}"
    if value in ("", "True"):
        return option
    if value.startswith("<"):
        return f"{option} {value.strip('<>').upper()}"
    return f"{option} {value.strip(chr(39)) or chr(34) * 2}"
