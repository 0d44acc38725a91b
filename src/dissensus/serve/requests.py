"""Bodies of requests as pydantic models, which check and convert JSON, document it in OpenAPI, and become events."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic_core import from_json

from dissensus.exceptions import DataError, DissensusError
from dissensus.messages import ParameterName
from dissensus.serve.events import EMPTY_LIST, SEPARATOR, Event, parse_seconds, to_sortable_version
from dissensus.serve.exceptions import InvalidJsonBody, InvalidValue, MissingBodyField
from dissensus.table import kinds

MAX_NAME_LENGTH = 1_000  # characters of an item, annotator, id, option or label of one class
MAX_LABEL_LENGTH = 100_000  # characters of a note, and of the JSON of a label that is a list or an object
MAX_POSITION = 10**9  # characters or tokens of a document
RELATIVE_NAMES = (".", "..")  # Browsers remove these names from an address.
T = TypeVar("T")


def _parse_json(body: Any) -> Any:
    if not isinstance(body, bytes):
        return body
    try:
        value = from_json(body.decode(json.detect_encoding(body)), allow_inf_nan=False)
        json.dumps(value, allow_nan=False)  # A number such as 1e400 is parsed as infinity.
    except ValueError as error:
        raise InvalidJsonBody(reason=str(error)) from None
    return value


JSON_PARSER = BeforeValidator(_parse_json)


def validate(adapter: TypeAdapter[T], value: Any) -> T:
    """Validate and convert a value; raise DataError if it does not fit its type."""
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        raise first_error(error.errors(include_url=False)) from None


def first_error(errors: Sequence[Any]) -> DataError:
    """Return the first error that pydantic found, with the path of its field."""
    error = errors[0]
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error["loc"])
    path = path.removeprefix(".body").removeprefix(".query").removeprefix(".")
    unknown = error["type"] == "extra_forbidden"
    problem = "field" if unknown else error["msg"][0].lower() + error["msg"][1:]
    mistake: Any = error.get("ctx", {}).get("error")
    if error["type"] == "missing":
        path, _, field = path.rpartition(".")
        mistake = MissingBodyField(field=ParameterName(field or "body"))
    elif not isinstance(mistake, DataError):
        mistake = InvalidValue(problem=problem, value=error["input"])
    assert isinstance(mistake, DataError)
    return mistake.add_subject(path) if path else mistake


# Values ---------------------------------------------------------------------------------------------------------------


def _number_as_text(value: Any) -> Any:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _name_check(is_usable: Callable[[str], bool]) -> AfterValidator:
    """Return a validator that refuses names for which `is_usable` is False."""

    def check_name(name: str) -> str:
        if not is_usable(name):
            raise InvalidValue(problem="name", value=name)
        return name

    return AfterValidator(check_name)


StorableText = Annotated[str, _name_check(lambda name: bool(name.strip()) and "\x00" not in name)]
ClassName = Annotated[StorableText, Field(max_length=MAX_NAME_LENGTH)]
OptionName = Annotated[
    ClassName, _name_check(lambda name: kinds.OPTION_SEPARATOR not in name and name != kinds.EMPTY_SET)
]
LabelText = Annotated[ClassName, BeforeValidator(_number_as_text, json_schema_input_type=str | float)]
RecordName = Annotated[LabelText, _name_check(lambda name: SEPARATOR not in name)]
AddressName = Annotated[
    RecordName, _name_check(lambda name: name not in RELATIVE_NAMES)
]  # can be part of the address of a request
ProjectName = Annotated[
    str,
    Field(min_length=1, max_length=100),
    _name_check(lambda name: name.isprintable() and "/" not in name and name not in RELATIVE_NAMES),
]
Version = Annotated[str, BeforeValidator(to_sortable_version, json_schema_input_type=str | float | None)]
Timestamp = Annotated[float, BeforeValidator(parse_seconds, json_schema_input_type=str | float | None)]
Position = Annotated[int, Field(strict=True, ge=0, le=MAX_POSITION)]
StrictBool = Annotated[bool, Field(strict=True)] | None
PositiveInt = Annotated[int, Field(strict=True, ge=1)] | None


class SpanBody(BaseModel):
    """A marked part of a text."""

    start: Position
    end: Position
    label: LabelText

    @model_validator(mode="after")
    def check_order(self) -> Self:
        """Raise InvalidValue if the span does not end after its start."""
        if self.end <= self.start:
            raise InvalidValue(problem="span", value=[self.start, self.end])
        return self


Label = Annotated[Any, Field(description="text, number, list of options, list of spans, or any JSON")]
CLASS_ADAPTER = TypeAdapter(ClassName)
LONG_TEXT_ADAPTER = TypeAdapter(Annotated[StorableText, Field(max_length=MAX_LABEL_LENGTH)])
OPTIONS_ADAPTER = TypeAdapter(list[OptionName])
SPANS_ADAPTER = TypeAdapter(list[SpanBody])
ADDRESS_ADAPTER = TypeAdapter(AddressName)


def label_to_text(value: Any, kind: str | None = None) -> tuple[str, str | None]:
    """Return a label as text, and the label type that its JSON implies, if any; `kind` is that of the project."""
    several = value if isinstance(value, list) and kind != "objects" else None
    if isinstance(value, bool):
        return json.dumps(value), None
    if isinstance(value, int | float) and abs(value) <= kinds.MAX_LABEL_NUMBER:
        return json.dumps(int(value) if isinstance(value, float) and value.is_integer() else value), None
    if isinstance(value, str) and value.strip():
        return validate(LONG_TEXT_ADAPTER if kind == "objects" else CLASS_ADAPTER, value), None
    if several == []:
        return kinds.EMPTY_SET, EMPTY_LIST
    if several and all(isinstance(one, str) for one in several):
        options = validate(OPTIONS_ADAPTER, several)
        return validate(LONG_TEXT_ADAPTER, kinds.name_set(options)), "sets"
    if several and all(isinstance(one, dict) and {"start", "end", "label"} <= one.keys() for one in several):
        return validate(LONG_TEXT_ADAPTER, spans_to_text(several)), "spans"
    if isinstance(value, dict | list):
        return validate(LONG_TEXT_ADAPTER, json.dumps(value, sort_keys=True, ensure_ascii=False)), "objects"
    raise InvalidValue(problem="label", value=value)


def spans_to_text(spans: Sequence[Mapping[str, Any]]) -> str:
    """Return spans as text, ordered by position."""
    found = sorted({(span.start, span.end, span.label) for span in validate(SPANS_ADAPTER, spans)})
    return json.dumps([{"start": start, "end": end, "label": label} for start, end, label in found], ensure_ascii=False)


# Bodies ---------------------------------------------------------------------------------------------------------------


class Body(BaseModel):
    """Base class of bodies that refuse unknown fields."""

    model_config = ConfigDict(extra="forbid")


class ProjectBody(Body):
    """A new project."""

    name: ProjectName
    kind: Literal[tuple(kinds.KIND_DESCRIPTIONS)] | None = None  # type: ignore[valid-type]
    classes: Annotated[list[ClassName], Field(min_length=1)] | None = None
    title: Annotated[str, Field(max_length=MAX_NAME_LENGTH)] | None = None
    per_item: PositiveInt = None
    per_annotator: PositiveInt = None

    @model_validator(mode="after")
    def check_classes(self) -> Self:
        """Raise InvalidValue if a class is declared twice, or if the labels are not classes."""
        if self.classes is not None:
            declarable = self.kind in (None, *kinds.CLASS_KINDS)
            if not declarable or len(set(self.classes)) < len(self.classes):
                raise InvalidValue(problem="classes", value=self.classes)
        return self


class AnnotationBody(Body):
    """A label of an item, a comparison of two alternatives, or a removal."""

    id: AddressName | None = None
    item: AddressName | None = None
    annotator: RecordName | None = None
    label: Label = None
    version: Version = ""
    at: Timestamp = 0.0
    data: dict[str, Any] | None = None
    deleted: StrictBool = None
    left: RecordName | None = None
    right: RecordName | None = None
    winner: Label = None

    @model_validator(mode="after")
    def fill_in_item(self) -> Self:
        """Fill in the item of a comparison; raise an error if a field is missing."""
        if self.left is not None and self.left == self.right:
            raise InvalidValue(problem="pair", value=self.left)
        if self.item is None and self.left is not None and self.right is not None:
            self.item = kinds.name_pair_items([self.left], [self.right])[0].as_py()
        for field in () if self.deleted and self.id is not None else ("item", "annotator"):
            if getattr(self, field) is None:
                raise MissingBodyField(field=ParameterName(field))
        return self

    def event(self, kind: str | None) -> Event:
        """Convert the body to an event of a project with the declared label type `kind`."""
        id_ = f"{self.item}{SEPARATOR}{self.annotator}" if self.id is None else self.id
        if self.deleted:
            return Event("removal", id_, "", version=self.version, at=self.at)
        label, label_kind = label_to_text(self.winner if self.label is None else self.label, kind)
        label_kind = "pairs" if self.left is not None and self.right is not None else label_kind
        assert self.item is not None
        assert self.annotator is not None
        return Event("annotation", id_, self.item, self.annotator, label, self.version, self.at, self.data, label_kind)


class ItemBody(BaseModel):
    """An item; all additional fields are shown to annotators."""

    model_config = ConfigDict(extra="allow")
    item: AddressName


class DecisionBody(Body):
    """The decision of an adjudicator: exactly one of label, both and unclear."""

    item: AddressName
    label: Label = None
    both: Annotated[list[Label], Field(min_length=2)] | None = None
    unclear: StrictBool = None
    by: RecordName = "adjudicator"
    note: Annotated[str, Field(max_length=MAX_LABEL_LENGTH)] | None = None

    @model_validator(mode="after")
    def check_one_answer(self) -> Self:
        """Raise InvalidValue unless there is exactly one answer."""
        if sum((self.label is not None, self.both is not None, bool(self.unclear))) != 1:
            raise InvalidValue(problem="answer", value=self.model_dump(exclude_unset=True))
        return self

    def event(self, kind: str | None) -> Event:
        """Convert the body to an event of a project with the declared label type `kind`."""
        label, label_kind = None, None
        data: dict[str, Any] = {"note": self.note} if self.note else {}
        if self.both is not None:
            labels, label_kinds = zip(*(label_to_text(one, kind) for one in self.both), strict=True)
            if len(set(labels)) < len(labels) or len(set(label_kinds) - {EMPTY_LIST}) != 1:
                raise InvalidValue(problem="answer", value=self.both)
            label_kind = max(set(label_kinds) - {EMPTY_LIST}, key=str)
            validate(LONG_TEXT_ADAPTER, json.dumps(labels, ensure_ascii=False))
            data |= {"both": [*labels]}
        elif self.unclear:
            data |= {"unclear": True}
        else:
            label, label_kind = label_to_text(self.label, kind)
        return Event("decision", self.item, self.item, self.by, label, data=data or None, label_kind=label_kind)


class SignInBody(BaseModel):
    """A token, which will be kept in a cookie."""

    token: str = ""


def _accept_single(body: Any) -> BeforeValidator:
    """Return a validator that converts a single body to a list."""
    return BeforeValidator(
        lambda value: value if isinstance(value, list) else [value], json_schema_input_type=body | list[body]
    )


ProjectInput = Annotated[ProjectBody, JSON_PARSER]
AnnotationsInput = Annotated[list[AnnotationBody], _accept_single(AnnotationBody), JSON_PARSER]
ItemsInput = Annotated[list[ItemBody], _accept_single(ItemBody), JSON_PARSER]
DecisionInput = Annotated[DecisionBody, JSON_PARSER]
SignInInput = Annotated[SignInBody, JSON_PARSER]
PROJECT_ADAPTER: TypeAdapter[ProjectBody] = TypeAdapter(ProjectInput)
DECISION_ADAPTER: TypeAdapter[DecisionBody] = TypeAdapter(DecisionInput)
ANNOTATIONS_ADAPTER: TypeAdapter[list[AnnotationBody]] = TypeAdapter(AnnotationsInput)
ITEMS_ADAPTER: TypeAdapter[list[ItemBody]] = TypeAdapter(ItemsInput)


def annotation_events(bodies: Any, kind: str | None = None) -> list[Event]:
    """Convert annotations to events of a project with the declared label type `kind`."""
    events = []
    found = validate(ANNOTATIONS_ADAPTER, bodies)
    for at, body in enumerate(found):
        try:
            events.append(body.event(kind))
        except DissensusError as error:
            raise error.add_subject(f"[{at}].label") from None
    return events


def item_events(bodies: Any) -> list[Event]:
    """Convert items with their fields to events."""
    found = validate(ITEMS_ADAPTER, bodies)
    return [Event("item", body.item, body.item, data=body.model_extra) for body in found]


def decision_event(body: Any, kind: str | None = None) -> Event:
    """Convert a decision to an event."""
    return validate(DECISION_ADAPTER, body).event(kind)
