"""How long a search or a training will take, said before it starts, by timing small parts of it."""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING, Any

from dissensus.cli.errors import say
from dissensus.common import progress
from dissensus.exceptions import DissensusError

if TYPE_CHECKING:
    from dissensus.learning import CrowdClassifier
    from dissensus.table.annotations import Annotations

MIN_SECONDS_SAID = 10.0  # what is shorter needs no announcement
ITEMS_TIMED = 64
EPOCHS_TIMED = 5


def in_words(seconds: float) -> str:
    """A time for people, rounded as a guess should be.

    >>> in_words(14), in_words(100), in_words(4000), in_words(20000)
    ('15 seconds', '2 minutes', '1.1 hours', '6 hours')
    """
    if seconds < 55:
        return f"{max(5, 5 * round(seconds / 5))} seconds"
    if seconds < 3300:
        minutes = round(seconds / 60)
        return "a minute" if minutes == 1 else f"{minutes} minutes"
    return f"{seconds / 3600:.1f} hours" if seconds < 9000 else f"{round(seconds / 3600)} hours"


def announce(seconds: float, what: str, advice: str = "") -> None:
    """Say on stderr how long something will take, where it is long."""
    if seconds >= MIN_SECONDS_SAID and not progress.current.quiet:
        say(f"{what} will take about {in_words(seconds)}{advice}.")


def training_seconds(model: CrowdClassifier, table: Annotations, X: Any, fits: int = 1) -> float:
    """Guess the seconds of a training from four of a few items; 0 where there are so few that it is not worth it.

    With m items and e epochs a fit takes f + m (a + b e): f once, a per item (such as reading its text), b per item
    and epoch. Patience may end it earlier.
    """
    import numpy as np

    from dissensus.learning.inputs import take

    labelled = np.flatnonzero(np.diff(table.item_ptr) > 0)
    m = ITEMS_TIMED
    if labelled.size < 10 * m:
        return 0.0

    def seconds(items: int, epochs: int) -> float:
        mask = np.isin(np.arange(table.n_items), labelled[:items])
        one = type(model)(**model.get_params(deep=False) | {"epochs": epochs, "checkpoint": None, "log": None})
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            one.fit(table.select(items=mask), take(X, np.flatnonzero(mask)), on_step=lambda *_: None)
        return time.perf_counter() - began

    try:
        seconds(m, 1)  # the first one loads and compiles
    except DissensusError:  # such as too few items of a class; the training itself may do
        return 0.0
    first, longer, wider = seconds(m, 1), seconds(m, 1 + EPOCHS_TIMED), seconds(2 * m, 1)
    b = max(longer - first, 0.0) / (EPOCHS_TIMED * m)
    a = max((wider - first) / m - b, 0.0)
    once = max(first - m * (a + b), 0.0)
    return fits * (once + table.n_items * a + labelled.size * b * model.epochs)
