"""Models with one accuracy per annotator: a label is right with probability p, wrong labels are equally likely."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from dissensus.models.confusion import (
    COIN,
    SIMPLEX,
    ClassParams,
    ConfusionModel,
    FloatArray,
    RightWrongLikelihood,
    em_parameter,
)


@dataclass(frozen=True)
class Coins(ClassParams):
    """The parameters: π (K,) and the coins (A, 2) [right, wrong].

    Both p and 1 − p are stored: computed from p, 1 − p of a nearly perfect annotator would have no digits left.
    """

    coin: FloatArray = em_parameter(SIMPLEX, "A 2")

    def label_likelihood(self) -> RightWrongLikelihood:
        """Return p and (1 − p)/(K − 1)."""
        return RightWrongLikelihood(self.coin[:, :1], self.coin[:, 1:] / max(self.prior.size - 1, 1))


class CoinModel(ConfusionModel[Coins]):
    """A method whose annotators have coins."""

    Params, layout = Coins, COIN
    coin_: FloatArray
    population_coin_: Annotated[FloatArray, "1 2 share"]

    def label_likelihood(self, params: Coins) -> RightWrongLikelihood:
        """Return the likelihood of the coins."""
        return params.label_likelihood()

    def set_derived_results(self) -> None:
        """Set the coin (1, 2) of an unseen annotator."""
        self.population_coin_ = self.population_params(self._params()).coin

    @property
    def accuracy_(self) -> FloatArray:
        """(A,) p, the probability that a label of the annotator is right."""
        return np.asarray(self.coin_[:, 0])
