"""Learning from annotations: any encoder with any objective, and one trainer. Needs the `learning` extra (torch)."""

from dissensus.learning.exceptions import LearningNotInstalled

try:
    from dissensus.learning import devices, storage  # noqa: F401  # needs torch and safetensors

    devices.find_fabric_module()
except ImportError as error:
    raise LearningNotInstalled(library=str(error.name)) from error

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
