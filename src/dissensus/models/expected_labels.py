"""What a fitted model expects annotators to say: the class of each item, and labels given the class."""

from __future__ import annotations

from typing import Any

import numpy as np

from dissensus.exceptions import BadParameter
from dissensus.models.base import Likelihoods


def answers(model: Any) -> Likelihoods:
    """The belief and the likelihoods of a fitted aggregator, `LIA` or `CrowdClassifier`."""
    if hasattr(model, "_check_fitted"):
        model._check_fitted()
    if not (hasattr(model, "likelihoods") and isinstance(getattr(model, "posterior_", None), np.ndarray)):
        raise BadParameter(f"a fitted aggregator, LIA or CrowdClassifier is needed, got {type(model).__name__}.")
    return model.likelihoods()  # type: ignore[no-any-return]
