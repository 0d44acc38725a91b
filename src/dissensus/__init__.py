"""Labels you can trust, honest uncertainty and better models from disagreeing labels."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dissensus import clustering, evaluation, features, learning, models
    from dissensus.clustering import select_clusters
    from dissensus.models.base import clusterings, methods
    from dissensus.models.saving import load, save
    from dissensus.questions.classifier_accuracy import classifier_accuracy
    from dissensus.questions.compare import compare
    from dissensus.questions.diagnose import diagnose
    from dissensus.questions.explain import explain
    from dissensus.questions.recommend import recommend
    from dissensus.questions.redundancy import redundancy
    from dissensus.report import Report
    from dissensus.table import simulate
    from dissensus.table.annotations import Annotations
    from dissensus.table.datasets import list_datasets, load_dataset
    from dissensus.table.io import read
    from dissensus.table.questions import Questions

__version__ = "0.1.0"

# Public name → the module that holds it. Each is imported when it is first used: `import dissensus` costs next to
# nothing, and brings neither numba nor torch.
_HOME = {
    "Annotations": "dissensus.table.annotations",
    "Questions": "dissensus.table.questions",
    "Report": "dissensus.report",
    "classifier_accuracy": "dissensus.questions.classifier_accuracy",
    "clusterings": "dissensus.models.base",
    "compare": "dissensus.questions.compare",
    "diagnose": "dissensus.questions.diagnose",
    "explain": "dissensus.questions.explain",
    "list_datasets": "dissensus.table.datasets",
    "load": "dissensus.models.saving",
    "load_dataset": "dissensus.table.datasets",
    "methods": "dissensus.models.base",
    "read": "dissensus.table.io",
    "recommend": "dissensus.questions.recommend",
    "redundancy": "dissensus.questions.redundancy",
    "save": "dissensus.models.saving",
    "select_clusters": "dissensus.clustering",
}
_MODULES = {
    "clustering": "dissensus.clustering",
    "evaluation": "dissensus.evaluation",
    "features": "dissensus.features",
    "learning": "dissensus.learning",
    "models": "dissensus.models",
    "simulate": "dissensus.table.simulate",
}
__all__ = [
    "Annotations",
    "Questions",
    "Report",
    "classifier_accuracy",
    "clustering",
    "clusterings",
    "compare",
    "diagnose",
    "evaluation",
    "explain",
    "features",
    "learning",
    "list_datasets",
    "load",
    "load_dataset",
    "methods",
    "models",
    "read",
    "recommend",
    "redundancy",
    "save",
    "select_clusters",
    "simulate",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value: Any = import_module(_MODULES[name])
    elif name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
    else:
        raise AttributeError(f"module 'dissensus' has no attribute '{name}'")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
