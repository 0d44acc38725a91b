"""Base of learners that answer about pairs of a fitted item and an annotator, and keep themselves in one file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Self

import torch

from dissensus.common.parameters import Parameters
from dissensus.common.types import FloatArray, IntArray, Names
from dissensus.exceptions import NotFitted
from dissensus.learning import inputs as given
from dissensus.learning.annotator_features import AnnotatorFeatures, Whom, find
from dissensus.learning.devices import own_draws, place
from dissensus.learning.saving import with_learnt
from dissensus.learning.storage import file_in, of_this_version, read_tree, write_tree


class PairLearner(Parameters):
    """A subclass sets the results below in `fit`, and says what else its file holds."""

    file: ClassVar[str]
    fit_call: ClassVar[str] = "fit(table, X)"

    items_: Names
    annotators_: Names
    annotator_features_: AnnotatorFeatures | None = None
    trace_: FloatArray

    def save(self, folder: str | Path) -> Path:
        """Write the fitted model into `folder` (made if need be): one file, safetensors with a JSON header."""
        self._check_fitted()
        return write_tree(Path(folder) / self.file, self._tree(), type(self).__name__)

    @classmethod
    def load(cls, folder: str | Path, *, device: str = "cpu") -> Self:
        """Load the model that `save` wrote into `folder`; all its answers are the same."""
        path = file_in(folder, cls.file)
        tree, on = read_tree(path, cls.__name__), place(device)
        with of_this_version(path), own_draws():
            model: Self = with_learnt(cls(**{**tree["parameters"], "device": device}), tree.get("results", {}))
            model._restore(tree, path, on)
        return model

    def _tree(self) -> dict[str, Any]:
        """What `save` writes: `parameters`, `results`, and what `_restore` needs."""
        raise NotImplementedError

    def _restore(self, tree: dict[str, Any], path: Path, on: torch.device) -> None:
        """Set what is neither a keyword nor in `results`."""
        raise NotImplementedError

    def _found(self, items: Any, annotators: Any) -> tuple[IntArray, Whom]:
        """Codes of items, and codes of annotators with features where a frame has them; None for all."""
        self._check_fitted()
        rows = given.item_codes(items, self.items_)
        return rows, find(annotators, self.annotators_, self.annotator_features_)

    def _check_fitted(self) -> None:
        if not hasattr(self, "trace_"):
            raise NotFitted(f"this {type(self).__name__} is not fitted yet; call {self.fit_call} first.")
