"""Errors and warnings of the report."""

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
    template = "the table of annotators has no column {column!r} to show; its columns are {listing}."
    column: str
    columns: tuple[str, ...]

    @property
    def listing(self) -> str:
        return ", ".join(self.columns)


class NoKeyColumn(MissingColumn):
    template = "the table of {role}s has no column '{role}'; its columns are {listing}."
    role: str
    columns: tuple[str, ...]

    @property
    def listing(self) -> str:
        return ", ".join(self.columns)


class EmptyFrame(DataError):
    template = "the table of {role}s has no rows; leave it out, or add a row for each {role}."
    role: str


class NamesOfOtherTable(DataError):
    template = (
        "none of the {rows:,} {role}s in column '{column}', such as {name}, has labels; check that it is the right "
        "column."
    )
    rows: int
    role: str
    name: str
    column: str


class TrainedOnOtherItems(DataError):
    template = "the model was trained on other items, such as {item}; pass one that was trained on items of this table."
    item: str


class TrainedOnOtherClasses(DataError):
    template = (
        "the model was trained on other classes: {name} is not one of the {classes} classes of this table; pass a "
        "model of these classes."
    )
    name: str
    classes: int


class NotAPage(BadParameter):
    template = "a report is an HTML file; use the name {page} in place of {name}."
    name: str
    page: str


class NothingToChart(BadParameter):
    template = "chart draws a comparison, a diagnosis or a fitted model, got {got}."
    got: str


class MailAddressesShown(DataWarning):
    template = (
        "column {column!r} contains {count:,} e-mail addresses, which identify the annotators on the page; leave it "
        "out of {param[show]} to keep them anonymous."
    )
    column: str
    count: int


class DuplicateTableName(BadParameter):
    template = "two tables of the report have the name {name!r}; give one of them another name."
    name: str
