"""The contract that every aggregation method keeps: scikit-learn's manners over one table.

`__init__` stores its keywords, `fit` checks them and learns, results end in `_`. After `fit` there are always
`classes_`, `items_`, `annotators_`, `posterior_` (I, K), `reliability_` (A,), `trace_`, `n_iter_`, `converged_`;
where a method models them also `prior_` (K,), `confusion_` (A, K, K) [annotator, true, given], `difficulty_` (I,).
`hits_` and `total_` (A,) say how much of an annotator's labels is right by the posterior: what intervals rest on.
"""

from __future__ import annotations

import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, get_origin, get_type_hints

import numpy as np

from dissensus.common.arrays import TIE, unmasked
from dissensus.common.frames import as_frame
from dissensus.common.notebook import MAX_ROWS_SHOWN, html_table
from dissensus.common.parameters import Parameters, param
from dissensus.common.registry import DEFAULT_METHOD, Registry
from dissensus.common.types import BoolArray, FloatArray, IntArray, Names, OnStep
from dissensus.compute.engines import in_memory, options_of
from dissensus.compute.engines.base import Engine, TableElsewhere, hard_rows
from dissensus.exceptions import BadParameter, ConvergenceWarning, DataError, NotFitted
from dissensus.models import incremental
from dissensus.models.confusion_pass import judge
from dissensus.models.dependence import (
    DEFAULT,
    MIN_GOLD,
    RANGE,
    Calibration,
    CountedLabels,
    design_effect,
    from_gold,
    hold,
    known_with_labels,
    labels_per_item,
    log_held,
    sharpen,
    soften,
)  # fmt: skip
from dissensus.models.earlier_counts import Earlier, check_earlier, with_earlier
from dissensus.models.reliability import beta_interval, labels_worth, reliability
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations
from dissensus.table.kinds import CLASS_KINDS, KINDS

FrameKind = Literal["items", "annotators", "confusions"]

ENGINE: Any = param(
    "local", "where the passes run, see `dissensus.compute.engines`", check=lambda _: True,
    must="must be 'local', 'disk', 'torch', 'spark', or one with options, such as Disk(…)",
)  # fmt: skip
"""The keyword of methods that run on every engine; the engine itself checks it."""
FRAME_ROWS = 1_000_000  # items that are read of a Parquet file of results at a time
EXPECTED_ROWS = 100_000  # rows whose confusion matrices are looked up at a time


@dataclass(frozen=True, eq=False)
class Likelihoods:
    """The belief (I, K) about a model's items, and `of(items, annotators)`: (items or 1, annotators, K, K).

    Codes are the model's, −1 for one it has not seen; [given, true] P(label | class); `same`: for all items.
    """

    belief: FloatArray
    of: Callable[[IntArray, IntArray], FloatArray]
    same: bool


class Aggregator(Parameters, ABC):
    """Answers about the items of a table: what is the label, how sure are we, how good is each annotator.

    >>> from dissensus import Annotations, methods
    >>> from dissensus.table.simulate import simulate
    >>> table = simulate(200, 12, 3, seed=1).annotations
    >>> model = methods["dawid-skene"](seed=0).fit(table)
    >>> model.posterior_.shape, model.predict()[:3].tolist(), model.predict_proba().shape
    ((200, 3), [0, 2, 2], (200, 3))
    >>> print(model.mean_effective_labels())
    Confidence counts the 5.0 labels of an item as 1.5 (1.0 to 3.3): they share the item.
    >>> model.weights_, model.chosen_.partition(".")[0]
    ({'dawid-skene': 1.0}, 'DawidSkene')
    >>> model.effective_labels_.shape, model.reliability_interval().shape, model.confusion_interval().shape
    ((200,), (12, 2), (12, 3, 3, 2))
    >>> list(model.to_frame("annotators"))[:3], next(model.item_frames()).num_rows
    (['annotator', 'annotations', 'reliability'], 200)
    >>> new = Annotations.from_arrays([200, 200], [0, 5], [1, 1])
    >>> model.predict(new).tolist(), model.predict_annotations(table).shape, model.results()["prior_"]
    ([1], (1000, 3), 'K simplex')
    >>> model.partial_fit(new).items_.size
    201
    """

    seed: int | None = param(0, "of all draws; None draws one", low=0)

    classes_: Annotated[Names, "K names"]
    items_: Annotated[Names, "I names"]
    annotators_: Annotated[Names, "A names"]
    posterior_: Annotated[FloatArray, "I K simplex"]
    prior_: Annotated[FloatArray, "K simplex"]
    reliability_: Annotated[FloatArray, "A share?"]
    hits_: Annotated[FloatArray, "A count"]  # weight of each annotator's labels that are right by the posterior
    total_: Annotated[FloatArray, "A count"]  # weight of all its labels
    n_annotations_: Annotated[IntArray, "A count"]  # rows of each annotator
    trace_: Annotated[FloatArray, "T any"]
    n_iter_: Annotated[int, "whole"]
    converged_: Annotated[bool, "flag"]
    items_path_: str  # of a fit on a disk: a folder of Parquet files with the frame of the items
    item_total_: Annotated[FloatArray, "optional I count"]  # labels of each item, by their weights
    difficulty_: Annotated[FloatArray, "optional I real"]
    dependence_: Annotated[float, "number"] = 0.0  # ρ, see `models.dependence`; 0: labels are taken for independent
    dependence_interval_: Annotated[list[float], "2 count"]  # 95 % of ρ: low, high
    shift_: Annotated[FloatArray | None, "optional K real"] = None  # of the log posterior, where gold speaks for one
    # log h: what holds rare classes, and all where softening would move their shares too far
    held_: Annotated[FloatArray | None, "optional K real"] = None
    tie_seed_: Annotated[int, "whole"]
    class_counts_: FloatArray  # (K,) items of each class by the posterior, where a method learns their shares

    lacks: ClassVar[tuple[str, ...]] = ()  # results of other kinds of labels
    kinds: ClassVar[tuple[str, ...]] = CLASS_KINDS  # of labels that it is for, see `table.kinds`
    takes_earlier: ClassVar[bool] = True
    labels_depend_on_items: ClassVar[bool] = False  # given the class
    models_annotators: ClassVar[bool] = True  # False where all are taken for alike
    max_rows_in_memory: ClassVar[int] = 0  # of a table elsewhere that is brought here, because no pass can fit it

    def fit(
        self,
        table: Annotations | TableElsewhere | str | Path | Any,
        *,
        gold: IntArray | None = None,
        earlier: Earlier | None = None,
        on_step: OnStep | None = None,
    ) -> Self:
        """Learn from a table.

        Parameters
        ----------
        table : Annotations; for `engine="disk"` the path of a Parquet file, for `engine="spark"` that or a DataFrame
            Of a path (or a pattern that names several files) the codes, checkpoints and results go to a folder, see
            `dissensus.compute.engines.disk`; results with a row per item are arrays mapped from files there, and
            `items_path_` is a folder of Parquet files with what `to_frame("items")` shows. Of a DataFrame of PySpark
            (or a table or path that Spark reads) such results stay in the cluster, and `to_frame("items")` is a
            DataFrame; `np.asarray(model.posterior_)` brings them to the driver.
        gold : (I,) int, optional
            Known classes of some items, as codes into `table.classes`; −1 where unknown.
        earlier : annotator → (K, K) counts, or (A, K, K), optional
            What is known of annotators from before: how often each gave each label to items of each class, [true,
            given]. It counts like so many labels on items of known class.
        on_step : callable, optional
            Called after every pass over the data with (pass number, objective).
        """
        options = options_of(getattr(self, "engine", "local"))
        data: Any = options.bring(table)
        _check_table(data, "fit")
        self._check_kind(data)
        if data.n_annotations == 0:
            raise DataError("the table has no annotations; there is nothing to learn from.")
        self.check_parameters()
        self._check_classes(data)
        for key in ("items_path_", "item_total_"):  # of another fit
            vars(self).pop(key, None)
        if isinstance(data, TableElsewhere) and data.n_annotations <= self.max_rows_in_memory:
            near = type(self)(**self.get_params() | {"engine": "local"})
            near.fit(data.in_memory(), gold=gold, earlier=earlier, on_step=on_step)
            vars(self).update({key: value for key, value in vars(near).items() if key.endswith("_")})
            self.items_ = data.items
            options.leave(self, data, self._check_gold(gold, data))
            return self
        self.classes_, self.items_, self.annotators_ = data.classes, data.items, data.annotators
        self.n_annotations_ = data.per_annotator
        # one number for the draws that break ties; without a seed it is drawn once, so that predict agrees with itself
        self.tie_seed_ = int(np.random.SeedSequence(self.seed).generate_state(1, np.uint64)[0])
        gold, on_step = self._check_gold(gold, data), on_step or (lambda step, objective: None)
        found = self._calibrate(data, gold, earlier)
        self.dependence_, self.shift_, self.held_ = found.dependence, found.shift, None
        self._assumes = found.assumed
        self.dependence_interval_ = list(found.interval)
        whole, known = (data, gold) if earlier is None else self._with_earlier(data, gold, earlier)
        self._fit(whole, known, on_step)
        if hasattr(self, "dependence") and "item_total_" not in vars(self):  # else its last pass has softened
            counted = self._weigh(whole, np.arange(whole.n_annotators))
            rows, independent = hard_rows(counted), self.posterior_
            self.item_total_ = labels_per_item(rows.item_ptr, rows.weight)

            def moved() -> float:
                self.posterior_ = self._soften(independent, self.item_total_)
                return float(np.abs((self.posterior_ - independent).mean(axis=0)).sum() / 2)

            self._hold(moved)
            self._judge(*self._agreement(counted, self.posterior_))
        if earlier is not None:
            for key in self._per_item():
                setattr(self, key, np.ascontiguousarray(getattr(self, key)[: data.n_items]))
        options.leave(self, data, gold)
        return self

    def _calibrate(self, data: Any, gold: IntArray | None, earlier: Earlier | None) -> Calibration:
        """ρ as asked for: given, from known classes with shifts, or the default."""
        wanted = getattr(self, "dependence", None)
        if wanted != "auto":
            given = float(wanted or 0)
            return Calibration(given, (given, given))
        known = known_with_labels(gold, data)
        if gold is None or known.size < MIN_GOLD:
            return Calibration(DEFAULT, RANGE, assumed=True)
        blind = type(self)(**self.get_params() | {"dependence": None})  # one that has not seen what it is judged by
        blind.fit(data, earlier=earlier)
        posterior, total = (np.asarray(one)[known] for one in (blind.posterior_, blind.item_total_))
        return from_gold(posterior, total, gold[known])

    def _with_earlier(self, data: Any, gold: IntArray | None, earlier: Earlier) -> tuple[Annotations, IntArray | None]:
        """The table and its gold with items that stand for what is known of annotators from before."""
        if not (self.takes_earlier and isinstance(data, Annotations)):
            why = "has no use for" if isinstance(data, Annotations) else f"{data.where} takes no"
            raise DataError(f"{type(self).__name__} {why} earlier counts of annotators; leave them out.")
        return with_earlier(data, gold, check_earlier(earlier, data))

    def partial_fit(self, table: Annotations, *, gold: IntArray | None = None) -> Self:
        """Learn from more annotations, in time that depends on how many they are.

        New rows of known items and annotators, new items and new annotators all update the fitted model; what was
        learnt from earlier rows is kept as counts and posteriors, not gone over again. Classes stay as they are.

        Parameters
        ----------
        table : Annotations
            The new rows only.
        gold : (I,) int, optional
            Known classes of the items of `table`, as in `fit`.
        """
        self._check_fitted()
        _check_table(table, "partial_fit")
        if type(self)._update is Aggregator._update:
            raise BadParameter(f"{type(self).__name__} cannot be updated; fit it to all annotations again.")
        table = table.to_classes(self.classes_)
        gold = check_gold(gold, table)
        if table.n_annotations == 0 and table.n_items == 0:
            return self
        incremental.update(self, table, gold)
        return self

    def predict_proba(self, table: Annotations | None = None) -> FloatArray:
        """(I, K) P(class of item | its annotations), columns in the order of `classes_`.

        Without a table: the posterior of the fitted items. With one: known annotators keep what was learnt about
        them, unseen ones get the population's, an item without annotations gets the prior; a class that was not
        fitted is an error.
        """
        self._check_fitted()
        if table is None:
            return self.posterior_
        table = table.to_classes(self.classes_)
        known = naming.match(table.annotators, self.annotators_, "annotators")
        table = self._weigh(table, known)
        posterior, rows = self._score(table, known), hard_rows(table)
        return self._soften(posterior, labels_per_item(rows.item_ptr, rows.weight))

    def predict(self, table: Annotations | None = None) -> Names:
        """(I,) the most probable class name of each item; ties are broken by a draw keyed on seed and item name."""
        posterior = np.asarray(self.predict_proba(table))
        items = np.asarray(self.items_) if table is None else table.items
        return self.classes_[arg_max(posterior, items, self.classes_, self.tie_seed_)]

    def predict_annotations(self, table: Annotations) -> FloatArray:
        """(N, K) P(label | item, annotator): what each row's annotator was expected to say, by what was fitted.

        Items are known by the labels that were fitted, not by those of `table`: rows that were held out are predicted.
        New items have the prior, unseen annotators are like the population.
        """
        self._check_fitted()
        table = table.to_classes(self.classes_)
        item = naming.match(table.items, np.asarray(self.items_), "items")[table.item]
        annotator = naming.match(table.annotators, self.annotators_, "annotators")[table.annotator]
        posterior = self.posterior_[item]
        if self.dependence_:  # a crowd that errs together goes on erring together: its labels follow what it sees
            posterior = self._sharpen(posterior, self.item_total_[item])
        posterior = np.where((item >= 0)[:, None], posterior, self.prior_)
        return self._label_proba(posterior, item, annotator)

    @property
    def effective_labels_(self) -> FloatArray:
        """(I,) as how many independent labels the posterior counts those of each item, at least as one."""
        total = np.asarray(self.item_total_)
        return np.asarray(total / design_effect(total, min(self.dependence_, 1.0)))

    def mean_effective_labels(self) -> CountedLabels | None:
        """As how many labels the posterior counts those of an item, on average; None where it counts them all.

        The interval holds what is not known of ρ; which items there are adds nothing that would be seen.
        """
        self._check_fitted()
        if not self.dependence_:
            return None
        n, items = self.item_total_, self.items_.size
        if isinstance(n, np.ndarray):
            n = n[n > 0]
            items = n.size
        else:  # kept by a cluster: the item with the mean number of labels stands for all
            n = np.array([self.total_.sum() / items])
        if not n.size or n.max() <= 1:  # a model that was saved without its items, or nobody was asked twice
            return None
        rhos = np.minimum([self.dependence_, *self.dependence_interval_[::-1]], 1.0)  # beyond 1, worth less than one
        value, low, high = (float((n / design_effect(n, rho)).mean()) for rho in rhos)
        return CountedLabels(value, low, high, labels=float(self.n_annotations_.sum() / items))

    def ask_for_gold(self) -> str:
        """A sentence that asks for known classes, where nothing else says how far labels share their items; or "".

        >>> from dissensus.table.simulate import simulate
        >>> methods["one-coin"]().fit(simulate(50, 5, 2, seed=1).annotations).ask_for_gold()
        'The classes of 30 items (`--known`) would say how sure to be.'
        """
        told = self.dependence_interval_ != list(RANGE)
        if told or self.items_.size <= MIN_GOLD or self.mean_effective_labels() is None:
            return ""
        return f"The classes of {MIN_GOLD} items (`--known`) would say how sure to be."

    @property
    def weights_(self) -> dict[str, float]:
        """Methods that the answers rest on, with the weight of each."""
        self._check_fitted()
        return {methods.name_of(type(self)): 1.0}

    @property
    def chosen_(self) -> str:
        """What the answers rest on, in words."""
        counted = self.mean_effective_labels()
        return f"{self._model_in_words()}." + ("" if counted is None else f" {counted}")

    def _model_in_words(self) -> str:
        return type(self).__name__

    def likelihoods(self) -> Likelihoods:
        """What the model believes of its items, and how probable it thinks every label of any pair.

        The belief is that of independent labels, which is what likelihoods multiply: so the next label is foreseen.
        """
        self._check_fitted()
        K, belief = self.classes_.size, self._independent()
        if not self.labels_depend_on_items:
            return Likelihoods(belief, lambda _, annotators: given_first(self._confusions(annotators)[None]), True)

        def of(items: IntArray, annotators: IntArray) -> FloatArray:
            pairs = np.repeat(items, annotators.size * K), np.tile(np.repeat(annotators, K), items.size)
            given = self._label_proba(np.tile(np.eye(K), (items.size * annotators.size, 1)), *pairs)
            return given_first(given.reshape(items.size, annotators.size, K, K))

        return Likelihoods(belief, of, False)

    def _independent(self) -> FloatArray:
        """(I, K) the posterior as if labels were independent: what the crowd itself sees in its items."""
        if not self.dependence_:
            return self.posterior_
        return self._sharpen(np.asarray(self.posterior_), np.asarray(self.item_total_))

    def _hold(self, moved: Callable[[], float]) -> None:
        """Set `held_`, see `models.dependence`; `moved()` softens by it and says how far the classes' shares move."""
        limited = self._assumes and self.prior_.size > 2 and bool(np.ptp(self.prior_))

        def tried(beta: float) -> float:
            self.held_ = log_held(self.prior_, beta) if self._assumes else None
            far = moved()
            return far if limited else 0.0

        hold(tried)

    def _soften(self, independent: FloatArray, n_labels: FloatArray) -> FloatArray:
        return soften(independent, n_labels, self.dependence_, self.shift_, self.held_)

    def _sharpen(self, posterior: FloatArray, n_labels: FloatArray) -> FloatArray:
        return sharpen(posterior, n_labels, self.dependence_, self.shift_, self.held_)

    def reliability_interval(self, level: float = 0.95) -> FloatArray:
        """(A, 2) bounds of each annotator's reliability on items like these: of a Beta distribution.

        Its variance has two parts: that of n labels whose truth is known, which falls with n, and one that does not:
        the truth is only the crowd's, and whoever errs on an item errs on others like it. By gold, on held-out halves
        of public sets, that part is as large as with `MAX_KNOWN_LABELS` labels (`benchmarks/trust/people.py`).
        """
        self._check_fitted()
        return beta_interval(self.reliability_, labels_worth(self.total_), level)

    def _repr_html_(self) -> str | None:
        """The first items in Jupyter; before `fit`, and of items that a cluster keeps, the line of text alone."""
        if not hasattr(self, "n_iter_") or not isinstance(self.items_, np.ndarray):
            return None
        frame = self.to_frame("items", backend="pyarrow")
        about = f"{self!r}, fitted to {self.n_annotations_.sum():,.0f} labels of {self.items_.size:,} items"
        return html_table(about, frame[:MAX_ROWS_SHOWN].to_pylist(), len(frame))

    def confusion_interval(self, level: float = 0.95) -> FloatArray:
        """(A, K, K, 2) bounds of every entry of `confusion_`, each Beta distributed with that mean."""
        self._check_fitted()
        size = self._confusion_size()
        if size is None:
            raise BadParameter(f"{type(self).__name__} keeps no counts behind a confusion matrix; it has no intervals.")
        return beta_interval(self.confusion_, size, level)  # type: ignore[attr-defined]

    def to_frame(self, kind: FrameKind = "items", backend: Literal["pandas", "polars", "pyarrow"] | None = None) -> Any:
        """Results with names.

        `items`: item, label, confidence, p_<class> …; `annotators`: annotator, annotations, reliability, low, high (its
        95 % interval); `confusions`: annotator, true, given, probability, low, high. A pandas frame where pandas is
        installed, else an Arrow table; or say which. The items of a fit in Spark are a DataFrame of PySpark, unless you
        say which.
        """
        self._check_fitted()
        if kind == "items" and backend is None and hasattr(getattr(self, "posterior_", None), "item_frame"):
            return self.posterior_.item_frame(getattr(self, "difficulty_", None), self.item_columns)  # type: ignore[attr-defined]
        return as_frame(self._columns(kind), backend)

    def _columns(self, kind: str) -> dict[str, Any]:
        """The columns of `to_frame`."""
        if kind == "items":
            difficulty = getattr(self, "difficulty_", None)
            return self.item_columns(np.asarray(self.items_), np.asarray(self.posterior_), difficulty)
        if kind == "annotators":
            columns = {"annotator": self.annotators_, "annotations": self.n_annotations_}
            return columns | {"reliability": self.reliability_} | _bounds(self.reliability_interval())
        if kind != "confusions":
            raise BadParameter(f"kind must be 'items', 'annotators' or 'confusions', got {kind!r}.")
        if not hasattr(self, "confusion_"):
            raise BadParameter(f"{type(self).__name__} models no confusion matrices; ask for 'items' or 'annotators'.")
        A, K = self.annotators_.size, self.classes_.size
        columns = {
            "annotator": np.repeat(self.annotators_, K * K),
            "true": np.tile(np.repeat(self.classes_, K), A),
            "given": np.tile(self.classes_, A * K),
            "probability": self.confusion_.reshape(-1),
        }
        counted = self._confusion_size() is not None
        return columns | (_bounds(self.confusion_interval().reshape(-1, 2)) if counted else {})

    def item_frames(self) -> Iterator[Any]:
        """`to_frame("items")` in parts, Arrow tables in the order of the items.

        Of a fit on a disk or in Spark one part at a time is in memory here.
        """
        self._check_fitted()
        posterior: Any = getattr(self, "posterior_", None)
        if hasattr(posterior, "item_parts"):
            yield from posterior.item_parts(getattr(self, "difficulty_", None), self.item_columns)
        elif "items_path_" in vars(self):
            import pyarrow as pa
            import pyarrow.parquet as pq

            for file in sorted(Path(self.items_path_).iterdir()):
                for batch in pq.ParquetFile(file).iter_batches(FRAME_ROWS):
                    yield pa.Table.from_batches([batch])
        else:
            yield self.to_frame("items", "pyarrow")

    @property
    def item_columns(self) -> Callable[[Names, FloatArray, FloatArray | None], dict[str, Any]]:
        """The frame of some items, of their names, posterior and difficulty; goes to workers without the model."""
        return partial(item_columns, self.classes_, self.tie_seed_)

    @classmethod
    def results(cls) -> dict[str, str]:
        """Result → its axes and range (`models.saving.RANGES`), as the classes annotate it: what is stored."""
        return {name: about for name, about in annotated_results(cls).items() if name not in cls.lacks}

    def _per_item(self) -> list[str]:
        """Results with one row per item, besides their names."""
        found = (key for key, about in self.results().items() if about.removeprefix("optional ").startswith("I "))
        return [key for key in found if key in vars(self) and key != "items_"]

    # What a method writes ---------------------------------------------------------------------------------------------

    def _engine_of(self, table: Any, gold: IntArray | None) -> Engine:
        """The table where the passes run."""
        return options_of(getattr(self, "engine", "local")).place(self, table, gold)

    def _check_kind(self, table: Any) -> None:
        """Raise DataError where the labels of a table are of a kind that the method is not for."""
        kind = getattr(table, "kind", "classes")  # of a table elsewhere
        if kind not in self.kinds:
            able = methods_for(kind)
            advice = f"fit {', '.join(able)}" if able else "there is no method for these yet"
            raise DataError(
                f"{type(self).__name__} is for {' or '.join(KINDS[one] for one in self.kinds)}, and the labels of this "
                f"table are {KINDS[kind]}; {advice}, or read them with another kind=."
            )

    def _check_gold(self, gold: Any, table: Any) -> Any:
        """What is known of the items (I,), checked; None where nothing is."""
        return check_gold(gold, table)

    def _check_classes(self, table: Any) -> None:
        """Raise DataError where a method for two classes meets more."""
        entry = methods.entry_of(type(self))
        if entry is not None and entry.facts.get("binary") and table.n_classes > 2:
            raise DataError(
                f"{entry.name} is for two classes and the table has {table.n_classes}, such as "
                f"{', '.join(map(naming.shown, table.classes[:3]))}; take another method, or ask about one class at a "
                "time."
            )

    @abstractmethod
    def _fit(self, table: Annotations, gold: IntArray | None, on_step: OnStep) -> None:
        """Set everything that the contract promises beyond the names."""

    def _weigh(self, table: Annotations, known: IntArray) -> Annotations:
        """The table with weights that a method gives to labels; `known` (A,) codes into `annotators_`, −1 unseen."""
        return table

    def _newcomer(self) -> dict[str, Any]:
        """What a new annotator has in each result with one row per annotator."""
        return {}

    def _update(
        self, table: Annotations, item: IntArray, annotator: IntArray, old: BoolArray, gold: IntArray | None
    ) -> FloatArray:
        """(I, K) posterior of a new table's items; learns from its rows.

        `item` and `annotator` are codes of the table's items and annotators in the model, `old` says which items were
        there before. Results with one row per annotator are replaced, never written into.
        """
        raise NotImplementedError

    def _agreement(self, table: Annotations, posterior: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(A,) weight of each annotator's labels that are right by a posterior (I, K), and of all its labels."""
        return table.agreement_with(posterior)

    def _score(self, table: Annotations, known: IntArray) -> FloatArray:
        """(I, K) posterior of a new table over the same classes; `known` (A,) codes into `annotators_`, −1 unseen."""
        with in_memory(table, None, self.threads) as engine:  # type: ignore[attr-defined]
            return judge(engine, self.prior_, self._confusions(known))[0]

    def _confusions(self, known: IntArray) -> FloatArray:
        """(len(known), K, K) [annotator, true, given] P(label | class) by code into `annotators_`, −1 unseen."""
        if not hasattr(self, "population_confusion_"):
            raise NotImplementedError  # a method in which items matter too, or of votes
        everyone = np.concatenate([self.confusion_, self.population_confusion_[None]])  # type: ignore[attr-defined]
        return everyone[known]  # −1 takes the last

    def _label_proba(self, posterior: FloatArray, item: IntArray, annotator: IntArray) -> FloatArray:
        """(n, K) P(label | item, annotator) of n pairs; posterior (n, K) of their items, codes (n,), −1 unseen."""
        everyone = self._confusions(np.append(np.arange(self.annotators_.size), -1))  # −1, unseen, takes the last
        expected = np.empty_like(posterior)
        for start in range(0, len(posterior), EXPECTED_ROWS):
            rows = slice(start, start + EXPECTED_ROWS)
            expected[rows] = np.einsum("nc,nck->nk", posterior[rows], everyone[annotator[rows]])
        return expected

    def _confusion_size(self) -> FloatArray | None:
        """How many labels are behind every entry of `confusion_`, (A, K, K) or what spreads to it; None: not known."""
        return None

    def _judge(self, hits: FloatArray, total: FloatArray) -> None:
        """Set what `hits` of `total` labels (A,) say of the annotators."""
        self.hits_, self.total_ = np.minimum(hits, total), total
        self.reliability_ = reliability(hits, total)

    def _warn_unconverged(self, what: str, why: str) -> None:
        """Say that `max_iter` ended the fit, in the name of the first caller outside the package."""
        frame, level = sys._getframe(), 1
        while frame.f_back is not None and frame.f_globals["__name__"].startswith("dissensus."):
            frame, level = frame.f_back, level + 1
        limit, tol = self.max_iter, self.tol  # type: ignore[attr-defined]
        warnings.warn(
            f"{type(self).__name__} stopped after max_iter={limit} {what}; {why}, and tol={tol:g} was not reached. "
            "Raise max_iter or tol.",
            ConvergenceWarning,
            stacklevel=level,
        )

    def _check_fitted(self) -> None:
        if not hasattr(self, "n_iter_"):
            raise NotFitted(f"this {type(self).__name__} is not fitted yet; call fit(table) first.")


methods: Registry[type[Aggregator]] = Registry("method", "methods", "dissensus.models.methods", "dissensus.methods")
"""Name → aggregation method."""

KIND_METHODS = {
    "graded": "graded-response",
    "numbers": "gaussian",
    "pairs": "bradley-terry",
    "sets": "set-tree",
    "objects": "closest",
    "spans": "bayesian-sequence",
}
"""Kind of labels → what every command fits that is not told which; others get `DEFAULT_METHOD`."""


def default_method(kind: str) -> str:
    """The method of every command that is not told which.

    >>> default_method("classes"), default_method("numbers")
    ('consensus', 'gaussian')
    """
    return KIND_METHODS.get(kind, DEFAULT_METHOD)


def methods_for(kind: str) -> list[str]:
    """The methods for labels of a kind, by name.

    >>> methods_for("pairs")
    ['bradley-terry']
    """
    return [name for name, method in methods.items() if kind in method.kinds]


clusterings: Registry[type[Aggregator]] = Registry("clustering", "cluster --help", "dissensus.clustering")
"""Name → clustering: fitted, scored and kept like a method, but what it says of an item is no truth."""


@cache
def annotated_results(kind: type[Aggregator]) -> dict[str, str]:
    """The texts of all that a class and its parents annotate as `Annotated[type, text]`."""
    hints = get_type_hints(kind, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items() if get_origin(hint) is Annotated}


def _check_table(table: Any, caller: str) -> None:
    if not isinstance(table, Annotations | TableElsewhere):
        raise DataError(
            f"{caller} takes one table of annotations, got {type(table).__name__}; `dissensus.read` makes one from a "
            "file, and of several questions each is fitted by itself."
        )


def check_gold(gold: IntArray | None, table: Annotations | TableElsewhere) -> IntArray | None:
    """`gold` as int32 (I,), checked; None where nothing is known."""
    if gold is None:
        return None
    gold = unmasked(gold, -1)
    if gold.shape != (table.n_items,) or gold.dtype.kind not in "iu":
        raise DataError(
            f"gold must hold one integer code per item, {table.n_items} in all, −1 where unknown; got {gold.dtype} of "
            f"shape {gold.shape}. `table.gold_codes(item, label)` makes it from names."
        )
    bad = np.flatnonzero((gold < -1) | (gold >= table.n_classes))
    if bad.size:
        raise DataError(f"gold: item {bad[0]} has code {gold[bad[0]]}; codes run from −1 to {table.n_classes - 1}.")
    return np.ascontiguousarray(gold, np.int32) if (gold >= 0).any() else None


def arg_max(posterior: FloatArray, items: Names, classes: Names, seed: int) -> IntArray:
    """(I,) the largest column of each row. Tied columns: a draw keyed on seed, item name and class name.

    Neither the order of rows nor that of classes decides: the lowest class would be favoured otherwise.
    """
    best = posterior.max(axis=1, keepdims=True, initial=0)
    tied = posterior >= best * (1 - TIE)
    winner: IntArray = tied.argmax(axis=1)
    rows = np.flatnonzero(tied.sum(axis=1) > 1)
    if rows.size:
        of_item = naming.mix(naming.hashes(items[rows]) ^ np.uint64(seed))
        draw = naming.mix(of_item[:, None] ^ naming.hashes(classes)[None, :])  # (ties, K)
        winner[rows] = np.where(tied[rows], draw, np.uint64(0)).argmax(axis=1)
    return winner


def item_columns(
    classes: Names, seed: int, items: Names, posterior: FloatArray, difficulty: FloatArray | None
) -> dict[str, Any]:
    """The frame of some items: name, label, confidence, difficulty where there is one, P(class) of every class."""
    winner = arg_max(posterior, items, classes, seed)
    columns = {"item": items, "label": classes[winner], "confidence": posterior.max(axis=1, initial=0)}
    if difficulty is not None:
        columns["difficulty"] = difficulty
    return columns | {f"p_{name}": posterior[:, k] for k, name in enumerate(classes)}


def given_first(confusion: FloatArray) -> FloatArray:
    """[…, true, given] → […, given, true]."""
    return np.ascontiguousarray(np.swapaxes(confusion, -1, -2), np.float64)


def _bounds(interval: FloatArray) -> dict[str, FloatArray]:
    return {"low": interval[:, 0], "high": interval[:, 1]}
