"""Learning from annotations: any encoder with any objective, one trainer. Needs the `learning` extra (torch)."""

from dissensus.exceptions import MissingExtra

try:
    from dissensus.learning.trainer import fabric_class

    fabric_class()
except ImportError as error:
    raise MissingExtra(
        f"dissensus.learning needs {error.name}, which is not installed: pip install 'dissensus[learning]'."
    ) from error

from dissensus.learning import encoders, objectives
from dissensus.learning.classifier import CrowdClassifier
from dissensus.learning.folds import OutOfFold, out_of_fold
from dissensus.learning.lia import LIA
from dissensus.learning.seeds import fit_together

__all__ = ["LIA", "CrowdClassifier", "OutOfFold", "encoders", "fit_together", "objectives", "out_of_fold"]
