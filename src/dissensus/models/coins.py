"""Models in which an annotator is right with probability p, and all wrong labels are equally likely."""

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
    """The class shares π (K,) and the coins (A, 2), the probabilities of a right and of a wrong label.

    Both p and 1 − p are stored, because 1 − p computed from a p near 1 would lose all its digits.
    """

    coin: FloatArray = em_parameter(SIMPLEX, "A 2")

    def label_likelihood(self) -> RightWrongLikelihood:
        """Return the likelihood p of right labels and (1 − p)/(K − 1) of each wrong label."""
        return RightWrongLikelihood(self.coin[:, :1], self.coin[:, 1:] / max(self.prior.size - 1, 1))


class CoinModel(ConfusionModel[Coins]):
    """Base class for methods in which each annotator has one accuracy, the coin."""

    Params, layout = Coins, COIN
    coin_: FloatArray
    population_coin_: Annotated[FloatArray, "1 2 share"]

    def label_likelihood(self, params: Coins) -> RightWrongLikelihood:
        """Return the label likelihood of the annotators' coins."""
        return params.label_likelihood()

    def set_derived_results(self) -> None:
        """Set the coin (1, 2) of an unseen annotator."""
        self.population_coin_ = self.population_params(self._params()).coin

    @property
    def accuracy_(self) -> FloatArray:
        """The probability p that a label of each annotator is right, (A,)."""
        return np.asarray(self.coin_[:, 0])
