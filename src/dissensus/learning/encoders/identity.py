"""Features as they are: with an objective's last layer on top, (multinomial) logistic regression."""

from dissensus.learning.encoders.base import encoders
from dissensus.learning.encoders.mlp import Scaled


@encoders.register("identity", summary="features as they are: a linear model", cite="")
class Identity(Scaled):
    """A linear model: no layers before the objective's own."""

    learning_rate = 1e-2  # a convex problem
    is_linear = True
