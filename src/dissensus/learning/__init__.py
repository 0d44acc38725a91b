"""Train models of new items on annotations.

An encoder turns an input into a vector, and an objective defines how annotations supervise the network. Every encoder
works with every objective. This package needs the `learning` extra, which installs torch.
"""

from dissensus.common.exceptions import ModuleMissing

try:
    from dissensus.learning import devices, storage  # noqa: F401  # needs torch and safetensors

    devices.find_fabric_module()
except ImportError as error:
    raise ModuleMissing(user="dissensus.learning needs", module=str(error.name), extra="learning") from error

from dissensus.learning import encoders, objectives
from dissensus.learning.classifier import CrowdClassifier
from dissensus.learning.conformal import LabelSets
from dissensus.learning.crowdlab import Crowdlab, crowdlab
from dissensus.learning.folds import OutOfFold, out_of_fold
from dissensus.learning.lia import LIA
from dissensus.learning.sklearn_loop import ByItem, Learner, annotation_likelihood, soft_cross_entropy

__all__ = [
    "LIA", "ByItem", "CrowdClassifier", "Crowdlab", "LabelSets", "Learner", "OutOfFold", "annotation_likelihood",
    "crowdlab", "encoders", "objectives", "out_of_fold", "soft_cross_entropy",
]  # fmt: skip
