"""The question `compare`: which method predicts held-out labels best, with or without gold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from dissensus.common.formatting import Count, Share
from dissensus.common.parameters import param
from dissensus.questions.base import Finding, Question, Table, questions
from dissensus.questions.exceptions import NoMethodNamed, RepeatedMethod
from dissensus.questions.findings import ComparisonExplained, MethodSkipped

if TYPE_CHECKING:
    from dissensus.evaluation import Estimate
    from dissensus.questions.compare import Comparison

BASELINE_NAMES = (
    "mean",
    "median",
    "votes",
    "win-rate",
    "medoid",
)  # names in `questions.scoring`, which is slow to import
BAR_WIDTH = 10  # characters


@questions.register("compare", summary="Which method predicts held-out labels best?")
class Compare(Question):
    """Rank methods by how well they predict held-out labels.

    Some of the labels are held out; every method is fitted to the other labels and predicts the held-out ones. The
    score is the log-likelihood, that is, the mean log probability of the held-out labels; for numbers and texts, it is
    the error or the distance. Methods that are statistically tied with the best one (paired bootstrap over items) are
    marked. With --gold, a column shows the accuracy (for spans F1, for sets the Jaccard index, for numbers the error).

    Example: dissensus evaluate labels.csv --gold gold.csv

    Example: dissensus evaluate labels.csv --methods majority-vote,dawid-skene,glad
    """

    kinds = ("classes", "graded", "numbers", "pairs", "sets", "objects", "spans")
    row_noun = "methods"
    json_options = ("share", "splits", "limit", "seed")
    progress_text = "comparing the methods on"
    option_names: ClassVar = {"methods": ("--methods", "-m")}

    methods: list[str] | None = param(
        None,
        "methods to compare, as A,B,…; repeatable; by default all suitable fast methods; `all` adds slow ones",
    )
    share: float = param(0.2, "share of the labels that is held out in each split", above=0, below=1)
    splits: int = param(3, "number of random splits", low=1)
    resamples: int = param(1000, "number of resamples of the items for intervals and tests", low=1)
    limit: int = param(
        40_000, "maximum number of annotations; for larger tables, a random sample of items is used", low=1
    )
    seed: int = param(0, "seed of the splits and resamples", low=0)

    def check_parameters(self) -> None:
        super().check_parameters()
        if not isinstance(names := self.names, list):
            return
        from dissensus.models.base import methods

        for name in names:
            if name not in BASELINE_NAMES:
                methods.entry(name)
        if not names:
            raise NoMethodNamed()
        if twice := [name for name in names if names.count(name) > 1]:
            raise RepeatedMethod(method=twice[0])

    @property
    def names(self) -> Any:
        """Return the names of the methods, "all" or None."""
        if not self.methods or self.methods == ["all"]:
            return self.methods[0] if self.methods else None
        return [name.strip() for given in self.methods for name in given.split(",") if name.strip()]

    def compute(self, table: Any, *, gold: Any, progress: Any) -> Comparison:
        from dissensus.questions.compare import compare

        scores: dict[str, float] = {}

        def on_fit(method: str, done: int, total: int) -> None:
            best = f"; best so far: {max(scores, key=scores.__getitem__)}" if scores else ""
            progress(f"fitting {method}: {done} of {total} fits done{best}", done, total)

        return compare(
            table, self.names, gold=gold, share=self.share, splits=self.splits, resamples=self.resamples,
            limit=self.limit, seed=self.seed, on_fit=on_fit, on_result=scores.__setitem__,
        )  # fmt: skip

    def warnings(self, facts: Comparison) -> Iterator[MethodSkipped]:
        for method, reason in facts.failed.items():
            yield MethodSkipped(method=method, reason=reason)

    def to_json(self, facts: Comparison) -> dict[str, Any]:
        found = {"hidden_annotations": facts.n_hidden, "best": facts.best, "tied_with_best": facts.tied}
        return found | {"verdict": facts.verdict(), "methods": facts.rows(), "failed": facts.failed}

    def findings(self, facts: Comparison) -> Iterator[Finding]:
        measure = facts.measure
        worst = max(facts.methods[-1].behind.value, 1e-12)
        unit = (100, " %") if measure.sign > 0 else (1, "")
        rows = []
        for method in facts:
            behind = method.behind.value
            mark = "≈ best" if method.tied and behind else "█" * round(behind / worst * BAR_WIDTH)
            name = f"{method.method} (baseline)" if method.method in facts.baselines else method.method
            cells = [
                name,
                f"{facts.to_display_sign(method.score).value:z.4f}",
                _with_half_width(method.behind, 4) if behind else "best",
            ]
            gold = [] if method.accuracy is None else [_with_half_width(method.accuracy, 1, unit[0]) + unit[1]]
            rows.append((*cells, mark, *gold, f"{method.seconds:.2f}"))
        names = [] if facts.methods[0].accuracy is None else [measure.gold_name.replace("_", " ")]
        numbers = (measure.title, "behind the best", *names, "seconds")
        columns = ("method", *numbers[:2], "", *numbers[2:])
        yield Table(columns, rows, numbers=numbers, unbroken=("method",))
        yield ComparisonExplained(
            quantity=measure.quantity, n_hidden=Count(facts.n_hidden), splits=Count(facts.splits),
            share=Share(facts.share),            accuracy=names == ["accuracy"],
        )  # fmt: skip
        yield from facts.findings()


def _with_half_width(estimate: Estimate, digits: int, unit: float = 1) -> str:
    if estimate.value == estimate.high > estimate.low:
        return f"{unit * estimate.value:.{digits}f} (from {unit * estimate.low:.{digits}f})"
    half_width = (estimate.high - estimate.low) / 2
    return f"{unit * estimate.value:.{digits}f} ± {unit * half_width:.{digits}f}"
