"""Answers of the service as pydantic models, for OpenAPI; a field with a default is not always there."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from dissensus.serve.requests import Label


class ResponseBody(BaseModel):
    """An answer; those about items and annotators have more fields for some kinds of labels."""

    model_config = ConfigDict(extra="allow")


class ErrorResponse(ResponseBody):
    """Why a request was refused, in one sentence."""

    error: str


class ProjectResponse(ResponseBody):
    """A project; `classes` are its classes, options or labels of spans."""

    name: str
    title: str
    kind: str
    trouble: str
    classes: list[str] | None = None


class ReceiptResponse(ResponseBody):
    """The outcome of events; the items they changed, unless these are many."""

    accepted: int
    duplicates: int
    stale: int
    seq: int
    unknown: int | None = None
    note: str | None = None
    items: list[dict[str, Any]] | None = None


class DecisionResponse(ResponseBody):
    """A decision that counts."""

    item: str
    label: Label
    both: list[Any] | None
    unclear: bool
    note: str | None
    by: str
    at: float


class FitResponse(ResponseBody):
    """Up to which event of the log the answer and its fit go; why the last fit failed, if it did."""

    as_of: int
    fitted_to: int
    trouble: str | None = None


class ItemResponse(FitResponse):
    """An item; each of its annotations has annotator, label and at."""

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
    """Some items of a list, and the sizes of all lists."""

    items: list[ItemResponse]
    total: int
    counts: dict[str, int]


class NextItemsResponse(FitResponse):
    """Items to label, each with item and data, or why to stop."""

    items: list[dict[str, Any]]
    stop: str | None


class AnnotatorResponse(ResponseBody):
    """An annotator: labels, reliability with its interval, time of the last label, flags with reasons."""

    annotator: str
    labels: int
    reliability: float | None
    low: float | None
    high: float | None
    last: float
    flags: list[str]
    reasons: str


class ProgressResponse(FitResponse):
    """The progress by day, this week and the last, and by annotator."""

    days: list[dict[str, Any]]
    week: dict[str, list[float | None]]
    annotators: list[dict[str, Any]]
    drift_tested: bool
