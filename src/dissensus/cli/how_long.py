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
MAX_SECONDS_TIMED = 5.0  # after which nothing more is timed, and nothing is said


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
    """Guess the seconds of a training from four of a few items; 0 where it is not worth it, or takes too long to say.

    With m items and e epochs a fit takes f + m (a + b e): f once, a per item (such as reading its text), b per item
    and epoch. Patience may end it earlier. A pool of small models is soon trained, and stops when nobody knows: only
    its texts, which a pretrained model has to read, are timed.
    """
    import numpy as np

    from dissensus.learning.auto import pools
    from dissensus.learning.inputs import take

    labelled = np.flatnonzero(np.diff(table.item_ptr) > 0)
    m = ITEMS_TIMED
    if labelled.size < 10 * m:
        return 0.0
    began = time.perf_counter()

    def seconds(items: int, epochs: int) -> float:
        mask = np.isin(np.arange(table.n_items), labelled[:items])
        one = type(model)(**model.get_params(deep=False) | {"epochs": epochs, "checkpoint": None, "log": None})
        before = time.perf_counter()
        if before - began > MAX_SECONDS_TIMED:
            raise TimeoutError
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            one.fit(table.select(items=mask), take(X, np.flatnonzero(mask)), on_step=lambda *_: None)
        return time.perf_counter() - before

    if pools(model, X):
        return fits * table.n_items * _seconds_per_input(model, X, m)
    try:
        seconds(m, 1)  # the first one loads and compiles
        first, longer, wider = seconds(m, 1), seconds(m, 1 + EPOCHS_TIMED), seconds(2 * m, 1)
    except (DissensusError, TimeoutError):  # such as too few items of a class; the training itself may do
        return 0.0
    b = max(longer - first, 0.0) / (EPOCHS_TIMED * m)
    a = max((wider - first) / m - b, 0.0)
    once = max(first - m * (a + b), 0.0)
    return fits * (once + table.n_items * a + labelled.size * b * model.epochs)


def _seconds_per_input(model: CrowdClassifier, X: Any, inputs: int) -> float:
    """Of reading it, where a pretrained model does; texts of this many are timed, after a few that load the model."""
    from dissensus.learning.encoders import Transformer, encoders
    from dissensus.learning.encoders.base import Encoder
    from dissensus.learning.inputs import take
    from dissensus.learning.run import new_part

    encoder = new_part(model.encoder, encoders, Encoder)
    if not isinstance(encoder, Transformer):
        return 0.0
    encoder.fit(take(X, range(2))).prepare(take(X, range(2)))
    began = time.perf_counter()
    encoder.prepare(take(X, range(inputs)))
    return (time.perf_counter() - began) / inputs
