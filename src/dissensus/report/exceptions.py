"""Errors and warnings of reports."""

from __future__ import annotations

from dissensus.exceptions import BadParameter, DataError, DataWarning, MissingColumn


class FittedToOtherTable(DataError):
    template = (
        "the model was fitted to another table ({fitted:,} items, this one has {items:,}); pass the table that it was "
        "fitted to."
    )
    fitted: int
    items: int


class NoAnnotatorColumn(MissingColumn):
    template = "no column {column!r} of annotators to show; there are {listing}."
    column: str
    columns: tuple[str, ...]

    @property
    def listing(self) -> str:
        return ", ".join(self.columns)


class NoKeyColumn(MissingColumn):
    template = "the frame about {role}s has no column '{role}'; its columns are {listing}."
    role: str
    columns: tuple[str, ...]

    @property
    def listing(self) -> str:
        return ", ".join(self.columns)


class EmptyFrame(DataError):
    template = "the frame about {role}s has no rows."
    role: str


class OtherNames(DataError):
    template = "none of the {rows:,} {role}s described is in the table, such as {name}; is '{column}' the right column?"
    rows: int
    role: str
    name: str
    column: str


class TrainedOnOtherItems(DataError):
    template = "the model was trained on other items, such as {item}; pass one that was trained on items of this table."
    item: str


class TrainedOnOtherClasses(DataError):
    template = "the model was trained on other classes: {name} is none of the {classes} here."
    name: str
    classes: int


class NotAPage(BadParameter):
    template = "a report is an HTML file; use the name {page} in place of {name}."
    name: str
    page: str


class NothingToChart(BadParameter):
    template = "chart takes a comparison, a diagnosis or a fitted model, got {got}."
    got: str


class MailAddressesShown(DataWarning):
    template = "the column {column!r} to show contains {count:,} e-mail addresses, which identify the annotators."
    column: str
    count: int


class TwoTables(BadParameter):
    template = "two tables of the report are called {name!r}; names of tables must be unique."
    name: str
