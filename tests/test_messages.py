"""All messages of the library in one file, as Python and as the command line word them.

`python tests/test_messages.py` writes `messages.txt` again: read the difference as a stranger would.
"""

import ast
import importlib
import pkgutil
import types
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import dissensus
from dissensus.messages import PYTHON_FACE, Message, ParameterName, message_fields

GOLDEN = Path(__file__).with_name("messages.txt")
OPTIONAL = {"triton": "dissensus.compute.kernels.on_triton"}  # a module that needs what is not installed everywhere


def import_everything():
    skipped = {module for library, module in OPTIONAL.items() if find_spec(library) is None}
    for found in pkgutil.walk_packages(dissensus.__path__, "dissensus."):
        if found.name not in skipped and not found.name.endswith("__main__"):
            importlib.import_module(found.name)


def all_messages(kind=Message):
    for sub in kind.__subclasses__():
        if "template" in vars(sub) and sub.__module__.startswith("dissensus."):
            yield sub
        yield from all_messages(sub)


def example_of(name, hint):
    """A value of a field, by its type."""
    if get_origin(hint) in (Union, types.UnionType):
        return example_of(name, get_args(hint)[0])
    if get_origin(hint) is Literal:
        return get_args(hint)[0]
    kind = get_origin(hint) or hint
    simple = {bool: True, int: 1200, float: 0.25, Path: Path(f"‹{name}›"), ParameterName: ParameterName(name)}
    if kind in simple:
        return simple[kind]
    if isinstance(kind, type) and issubclass(kind, int | float):  # Share, Count
        return kind(simple[float if issubclass(kind, float) else int])
    if isinstance(kind, type) and issubclass(kind, list | tuple | set | frozenset):
        inner = [one for one in get_args(hint) if one is not ...] or [str]
        return kind(example_of(f"{name} {number}", inner[0]) for number in (1, 2, 3))
    if kind is dict:
        return {example_of(f"{name}", get_args(hint)[0]): example_of(f"{name}", get_args(hint)[1])}
    return f"‹{name}›"


def examples(kind):
    """Messages of a class: several where its sentence depends on a fact, which are in `all_examples`."""
    facts = {name: example_of(name, hint) for name, hint in message_fields(kind).items()}
    return [kind(**facts | dict(known)) for known in getattr(kind, "all_examples", [kind.example])]


def example(kind):
    return examples(kind)[0]


def rendered():
    from dissensus.cli.face import COMMAND_LINE
    from dissensus.report.face import REPORT_FACE
    from dissensus.report.section import Finding

    import_everything()
    kinds = {f"{kind.__module__}.{kind.__qualname__}": kind for kind in all_messages()}
    lines = []
    for name, kind in sorted(kinds.items()):
        lines += [f"{name.removeprefix('dissensus.')}"]
        for message in examples(kind):
            python, command = message.render(PYTHON_FACE), message.render(COMMAND_LINE)
            lines += [f"    {python}"] + ([f"    $ {command}"] if command != python else [])
            advice = message.render_advice(REPORT_FACE) if isinstance(message, Finding) else ""
            lines += [f"    → {advice}"] if advice else []
    return "\n".join(lines) + "\n"


def test_the_golden_file_holds_every_message():
    assert rendered() == GOLDEN.read_text(encoding="utf-8"), "run this file and read the difference"


def test_a_message_takes_its_own_facts_and_no_others():
    import_everything()
    for kind in all_messages():
        for wrong in ({"no_such_fact": 1}, example(kind).facts | {"no_such_fact": 1}):
            try:
                kind(**wrong)
            except TypeError:
                continue
            raise AssertionError(f"{kind.__name__} takes a fact that it does not have")


def test_every_call_gives_the_facts_of_its_class():
    import_everything()
    classes = {}
    for kind in all_messages():
        classes.setdefault(kind.__name__, []).append(set(message_fields(kind)))
    wrong = []
    for file in Path(dissensus.__file__).parent.rglob("*.py"):
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            name = getattr(getattr(call, "func", None), "attr", getattr(getattr(call, "func", None), "id", ""))
            if name in classes and not call.args and all(keyword.arg for keyword in call.keywords):
                facts = {keyword.arg for keyword in call.keywords}
                wrong += [f"{file.name}:{call.lineno} {name}"] if facts not in classes[name] else []
    assert not wrong


def test_messages_survive_pickling():
    import pickle

    import_everything()
    for kind in all_messages():
        message: Any = example(kind).add_subject("labels.csv")
        assert str(pickle.loads(pickle.dumps(message))) == str(message)


if __name__ == "__main__":
    GOLDEN.write_text(rendered(), encoding="utf-8")
