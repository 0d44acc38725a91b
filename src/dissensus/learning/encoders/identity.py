"""Features without layers; with an objective's last layer they are a (multinomial) logistic regression."""

from dissensus.learning.encoders.base import encoders
from dissensus.learning.encoders.mlp import ScaledFeatureEncoder


@encoders.register("identity", summary="features without layers: a linear model", cite="")
class Identity(ScaledFeatureEncoder):
    """A linear model, whose only layer is that of the objective."""

    learning_rate = 1e-2  # The problem is convex, so large steps are possible.
    is_linear = True
