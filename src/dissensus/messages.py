"""Base class for messages: errors, warnings and findings are small classes with fields and one template sentence.

    class TooFewThreads(BadParameter):
        template = "{param[threads]} must be at least 1, got {threads}."
        threads: int

    raise TooFewThreads(threads=0)

Computing code supplies the facts. A face (Python, command line, report or service) prints the message and replaces the
names of parameters: `{param[threads]}` becomes `threads` in Python and `--threads` on the command line;
`{param[wide=True]}` becomes `wide=True` in Python and `--wide` on the command line. Facts that are a `ParameterName`, a
tuple of parameter names, or another message are rendered in the same way.
A template may contain fields and properties of its class, with a format specification such as `{n_rows:,}`. `{name!r}`
quotes a name and shortens it if it is long; `{names!l}` lists the first dozen names in quotes. Properties supply the
parts of a sentence that depend on the facts, such as plurals and guesses.

Every class annotates its fields. The golden file of all messages, `tests/messages.txt`, contains each message with
example values, which are chosen by the types of the fields or taken from `example`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from string import Formatter
from typing import Any, ClassVar, Self, get_type_hints

MAX_MESSAGE_LENGTH = 1000  # characters; a file may have names of any length
MAX_NAME_LENGTH = 60  # characters of a quoted name
MAX_NAMES_LISTED = 12
NON_FACT_NAMES = {"template", "example", "about"}  # Annotated names of a message class that are not facts.


class ParameterName(str):
    """The name of a parameter as a fact of a message; a face renders it like `{param[…]}`."""

    __slots__ = ()


@dataclass(frozen=True)
class Face:
    """The wording of messages in one interface.

    `parameter` converts a keyword, or a keyword with its value (`wide=True`), to the words of the interface.
    `templates` contains other sentences for messages whose usual sentence does not help the readers of the interface.
    """

    parameter: Callable[[str], str] = str
    templates: Mapping[type, str] = field(default_factory=dict)

    def get_template(self, kind: type[Message]) -> str:
        """Return the template of a message class in this interface."""
        return next((self.templates[base] for base in kind.__mro__ if base in self.templates), kind.template)


PYTHON_FACE = Face(lambda name: name)


class _ParameterWords:
    """A mapping from parameter names to the words of an interface, for `{param[…]}` in templates."""

    def __init__(self, face: Face):
        self.face = face

    def __getitem__(self, name: str) -> str:
        return self.face.parameter(name)


def quote_name(name: Any) -> str:
    """Return the `repr` of a name, without NumPy types, and shortened if it is long.

    >>> quote_name("cat"), quote_name(7), len(quote_name("x" * 100))
    ("'cat'", '7', 59)
    """
    text = repr(getattr(name, "tolist", lambda: name)())
    return text if len(text) <= MAX_NAME_LENGTH else f"{text[: MAX_NAME_LENGTH - 3]}…{text[-1]}"


def quote_names(names: Iterable[Any]) -> str:
    """Return the first dozen names in quotes, separated by commas.

    >>> quote_names(["a", "b"]), quote_names(range(100))
    ("'a', 'b'", '0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, …')
    """
    names = list(names)
    return ", ".join(map(quote_name, names[:MAX_NAMES_LISTED])) + (", …" if len(names) > MAX_NAMES_LISTED else "")


class _TemplateFormatter(Formatter):
    """A formatter of templates with the conversions `!r` and `!l` for names."""

    def convert_field(self, value: Any, conversion: Any) -> Any:
        if conversion in ("r", "l"):
            return quote_name(value) if conversion == "r" else quote_names(value)
        return super().convert_field(value, conversion)


class _RenderedFacts(Mapping[str, Any]):
    """A mapping from names of fields and properties of a message to their values as a face renders them."""

    def __init__(self, message: Message, face: Face):
        self.message, self.face = message, face

    def __getitem__(self, name: str) -> Any:
        if name == "param":
            return _ParameterWords(self.face)
        value = getattr(self.message, name)
        if isinstance(value, Message):
            return value.render(self.face)
        if isinstance(value, tuple) and value and isinstance(value[0], ParameterName):
            return ", ".join(map(self.face.parameter, value))
        return self.face.parameter(value) if isinstance(value, ParameterName) else value

    def __iter__(self) -> Iterator[str]:
        return iter(self.message.facts)

    def __len__(self) -> int:
        return len(self.message.facts)


class Message:
    """Base class for all messages, which have facts and a template sentence.

    >>> class TooFewThreads(Message):
    ...     template = "{param[threads]} must be at least 1, got {threads}."
    ...     threads: int
    >>> found = TooFewThreads(threads=0)
    >>> found.threads, str(found), found.render(Face(lambda name: f"--{name}"))
    (0, 'threads must be at least 1, got 0.', '--threads must be at least 1, got 0.')
    """

    template: ClassVar[str] = "{sentence}"
    example: ClassVar[Mapping[str, Any]] = {}  # facts for the golden file of messages
    sentence: str  # The whole sentence, if the message is made without facts.
    facts: dict[str, Any]
    subjects: tuple[str, ...] = ()  # Subjects of the message, such as a file or a question; the outermost comes first.

    def __init__(self, sentence: str | None = None, **facts: Any):
        super().__init__()
        self.facts = facts if sentence is None else {"sentence": sentence, **facts}
        kind: Any = type(self)
        expected = message_fields(kind) if sentence is None else {"sentence": str}
        if self.facts.keys() != expected.keys():
            raise TypeError(f"{type(self).__name__} takes the facts {sorted(expected)}, got {sorted(self.facts)}.")
        for name, value in self.facts.items():
            if getattr(value, "ndim", None) == 0:  # NumPy scalars become Python numbers.
                value = self.facts[name] = value.item()
            setattr(self, name, value)

    def render(self, face: Face = PYTHON_FACE) -> str:
        """Return the sentence in the words of an interface; very long sentences are cut in the middle."""
        template = "{sentence}" if "sentence" in self.facts else face.get_template(type(self))
        sentence = "".join(f"{one}: " for one in self.subjects) + self.fill_template(template, face)
        half = MAX_MESSAGE_LENGTH // 2
        return sentence if len(sentence) <= MAX_MESSAGE_LENGTH else f"{sentence[:half]} … {sentence[-half:]}"

    def fill_template(self, template: str, face: Face = PYTHON_FACE) -> str:
        """Return a template with the facts filled in, in the words of an interface."""
        return _TemplateFormatter().vformat(template, (), _RenderedFacts(self, face))

    def add_subject(self, subject: str) -> Self:
        """Put a subject, such as a file, in front of the message, and return the message."""
        self.subjects = (subject, *self.subjects)
        return self

    def __str__(self) -> str:
        return self.render()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.facts.items())})"

    def __reduce__(self) -> Any:
        return _rebuild_message, (type(self), self.facts, self.subjects)


@cache
def message_fields(kind: Any) -> dict[str, Any]:
    """Return name → type of the fields of a message class, with inherited fields first; "sentence" if it has none."""
    hints_by_field: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        if issubclass(base, Message) and base is not Message:
            hints_by_field |= {
                name: None
                for name, hint in vars(base).get("__annotations__", {}).items()
                if name not in NON_FACT_NAMES and not str(hint).startswith("ClassVar")
            }
    if not hints_by_field:
        return {} if kind.template != Message.template else {"sentence": str}
    hints = get_type_hints(kind)
    return {name: hints[name] for name in hints_by_field}


def _rebuild_message(kind: type[Message], facts: dict[str, Any], about: tuple[str, ...]) -> Message:
    """Rebuild a pickled message, such as an error of another process."""
    message = kind(**facts)
    message.subjects = about
    return message
