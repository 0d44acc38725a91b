"""Responses of the service as pydantic models, for OpenAPI; a field with a default may be absent."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from dissensus.serve.requests import Label


class ResponseBody(BaseModel):
    """Base class of responses; those about items and annotators have additional fields for some label types."""

    model_config = ConfigDict(extra="allow")


class ErrorResponse(ResponseBody):
    """The reason why a request was refused, in one sentence."""

    error: str


class ProjectResponse(ResponseBody):
    """A project; `classes` are its classes, options or span labels, `fit_error` is why the last fit failed."""

    name: str
    title: str
    kind: str
    fit_error: str
    classes: list[str] | None = None


class ReceiptResponse(ResponseBody):
    """The number of events by outcome, and the items that they changed, unless these are many."""

    accepted: int
    duplicates: int
    stale: int
    seq: int
    unknown: int | None = None
    note: str | None = None
    items: list[dict[str, Any]] | None = None


class DecisionResponse(ResponseBody):
    """A decision that is in force."""

    item: str
    label: Label
    both: list[Any] | None
    unclear: bool
    note: str | None
    by: str
    at: float


class FitResponse(ResponseBody):
    """The last event that the response includes, the last one that its fit includes, and why the last fit failed."""

    as_of: int
    fitted_to: int
    fit_error: str | None = None


class ItemResponse(FitResponse):
    """An item; each of its annotations has the fields annotator, label and at."""

    item: str
    label: Label
    confidence: float | None
    probabilities: dict[str, float] | None
    reason: str
    votes: dict[str, int]
    labels: int
    annotations: list[dict[str, Any]]
    status: str
    decided: bool
    decision: DecisionResponse | None
    data: dict[str, Any] | None


class ItemListResponse(FitResponse):
    """Items of one list, and the sizes of all lists."""

    items: list[ItemResponse]
    total: int
    counts: dict[str, int]


class NextItemsResponse(FitResponse):
    """Items to label, each with the fields item and data, or the reason why there are none."""

    items: list[dict[str, Any]]
    stop: str | None


class AnnotatorResponse(ResponseBody):
    """An annotator: number of labels, reliability with its interval, time of the last label, flags with reasons."""

    annotator: str
    labels: int
    reliability: float | None
    low: float | None
    high: float | None
    last: float
    flags: list[str]
    reasons: str


class ProgressResponse(FitResponse):
    """The progress by day, in this week and the week before, and by annotator."""

    days: list[dict[str, Any]]
    week: dict[str, list[float | None]]
    annotators: list[dict[str, Any]]
    drift_tested: bool
