"""What can go wrong, as one tree.

    DissensusError
    ├── DataError (ValueError)            the data cannot be used; the message says where and what to do
    │   ├── UnreadableFile                a file that is missing, truncated, empty or of no known format
    │   ├── MissingColumn                 a table without a column it needs
    │   └── UnknownClass                  a label outside the declared or fitted classes
    ├── UnwritableFile (OSError)          a file or folder that cannot be written
    ├── StoreUnavailable (OSError)        a store that cannot be used now: full, locked, out of reach
    ├── BadParameter (ValueError)         a parameter outside its range
    │   └── Conflict                      one that contradicts what was said before
    ├── UnknownName (KeyError)            no such method, data set, …; the message guesses which was meant
    ├── NotFitted (ValueError, AttributeError)
    └── MissingExtra (ImportError)        an optional dependency is not installed

Warnings: `DissensusWarning` (UserWarning) ← `DataWarning` (doubtful data) ← `RowsLeftOut`, `ConvergenceWarning`,
`PluginWarning`.

Each message is one sentence or two: what is wrong, where, the value, what to do.
"""

from __future__ import annotations

MAX_MESSAGE_LENGTH = 1000  # characters; a file may have names of any length


class DissensusError(Exception):
    """Base of all errors raised on purpose."""

    def __init__(self, *args: object):
        super().__init__(*(_cut(one) if isinstance(one, str) else one for one in args))


def _cut(message: str) -> str:
    """The message without its middle, where it is long: its end says what to do."""
    half = MAX_MESSAGE_LENGTH // 2
    return message if len(message) <= MAX_MESSAGE_LENGTH else f"{message[:half]} … {message[-half:]}"


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
    """A parameter contradicts what was said before."""


class UnknownName(DissensusError, KeyError):
    """No entry of that name."""

    def __str__(self) -> str:  # KeyError would print the repr, quotes and all
        return str(self.args[0]) if self.args else ""


class NotFitted(DissensusError, ValueError, AttributeError):
    """A result was asked for before `fit`."""


class MissingExtra(DissensusError, ImportError):
    """An optional dependency is needed and not installed."""


class DissensusWarning(UserWarning):
    """Base of all warnings."""


class DataWarning(DissensusWarning):
    """The data can be used but look doubtful."""


class RowsLeftOut(DataWarning):
    """A file holds rows that are not used; `table.source` counts them."""


class ConvergenceWarning(DissensusWarning):
    """An iteration stopped at its limit, not at its tolerance."""


class PluginWarning(DissensusWarning):
    """What another package adds is left out, because it fails."""
