"""Base classes of all errors and warnings.

    DissensusError
    ├── DataError (ValueError)            the data cannot be used; the message says where and what to do
    │   ├── UnreadableFile                a file that is missing, truncated, empty or of no known format
    │   ├── MissingColumn                 a table without a column it needs
    │   └── UnknownClass                  a label outside the declared or fitted classes
    ├── UnwritableFile (OSError)          a file or folder that cannot be written
    ├── StoreUnavailable (OSError)        a store that cannot be used now: full, locked, out of reach
    ├── BadParameter (ValueError)         a parameter outside its range
    │   └── Conflict                      a parameter that contradicts an earlier statement
    ├── UnknownName (KeyError)            no such method, data set, …; the message suggests the nearest name
    ├── NotFitted (ValueError, AttributeError)
    └── MissingExtra (ImportError)        an optional dependency is not installed

Warnings: `DissensusWarning` (UserWarning) ← `DataWarning` (doubtful data) ← `RowsLeftOut`, `ConvergenceWarning`,
`PluginWarning`.

Callers catch these classes. Each specific error is a subclass with fields and one template sentence, in the
`exceptions.py` of the package that raises it (see `dissensus.messages`). Each message is one or two sentences that name
the fault, its place, the value, and the remedy.
"""

from __future__ import annotations

from dissensus.messages import Message


class DissensusError(Message, Exception):
    """Base of all errors raised on purpose."""


class DataError(DissensusError, ValueError):
    """The data cannot be used as they are."""


class UnreadableFile(DataError):
    """A file that is missing, damaged, empty or of no known format."""


class MissingColumn(DataError):
    """A table lacks a column that it needs."""


class UnknownClass(DataError):
    """A label lies outside the declared or fitted classes."""


class UnwritableFile(DissensusError, OSError):
    """A file or folder that cannot be written."""


class StoreUnavailable(DissensusError, OSError):
    """A store cannot be used now; nothing of the request was kept."""


class BadParameter(DissensusError, ValueError):
    """A parameter is outside its range."""


class Conflict(BadParameter):
    """A parameter contradicts an earlier statement."""


class UnknownName(DissensusError, KeyError):
    """A name is not registered."""


class NotFitted(DissensusError, ValueError, AttributeError):
    """A result was asked for before `fit`."""


class MissingExtra(DissensusError, ImportError):
    """An optional dependency is needed and not installed."""


class DissensusWarning(Message, UserWarning):
    """Base of all warnings."""


class DataWarning(DissensusWarning):
    """The data can be used but look doubtful."""


class RowsLeftOut(DataWarning):
    """A file holds rows that are not used; `table.import_report` counts them."""


class ConvergenceWarning(DissensusWarning):
    """An iteration stopped at its limit, not at its tolerance."""


class PluginWarning(DissensusWarning):
    """A plug-in of another package failed and is skipped."""
