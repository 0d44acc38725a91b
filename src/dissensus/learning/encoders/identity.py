"""Encoder without layers; with an objective's last layer, the network is a multinomial logistic regression."""

from dissensus.learning.encoders.base import encoders
from dissensus.learning.encoders.mlp import ScaledFeatureEncoder


@encoders.register("identity", summary="features without layers: a linear model", cite="")
class Identity(ScaledFeatureEncoder):
    """A linear model, whose only layer is that of the objective."""

    learning_rate = 1e-2  # Large steps are possible because the problem is convex.
    is_linear = True
