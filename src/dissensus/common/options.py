"""Name the command-line option of a parameter; the report names options too."""

from __future__ import annotations

from collections.abc import Collection, Mapping

OPTIONS = {
    "format": "input_format",
    "format_": "format",
    "setting": "set",
    "classes": "classes A,B,…",
}
"""Parameter → option, if the option is not the parameter with dashes."""


def option_words(parameter: str, options: Collection[str] = (), settings: Mapping[str, str] | None = None) -> str:
    """Return the option for a parameter: `wide=True` → `--wide`, `item=<column>` → `--item COLUMN`.

    If the names of a command's `options` are given, any other parameter is one of the model, which has no option but
    --set. `settings` maps parameters that the user gave with --set to their key, such as dropout → encoder.dropout;
    they are named so even if the command has an option of the same name.

    >>> [option_words(parameter) for parameter in ("many_classes=True", "item=<column>", "kind='sets'", "abstain=''")]
    ['--many-classes', '--item COLUMN', '--kind sets', '--abstain ""']
    >>> option_words("seed", ["seed", "setting"]), option_words("smoothing", ["seed", "setting"])
    ('--seed', '--set smoothing')
    >>> option_words("weight", ["weight", "setting"], {"weight": "objective.weight"})
    '--set objective.weight'
    """
    name, _, value = parameter.partition("=")
    if name in (settings or {}):
        return f"--set {(settings or {})[name]}{parameter.removeprefix(name)}"
    option = OPTIONS.get(name, name)
    if options and not {name, option} & set(options):
        return f"--set {parameter}" if "setting" in options else parameter
    option = f"--{option.replace('_', '-')}"
    if value in ("", "True"):
        return option
    if value.startswith("<"):
        return f"{option} {value.strip('<>').upper()}"
    return f"{option} {value.strip(chr(39)) or chr(34) * 2}"
