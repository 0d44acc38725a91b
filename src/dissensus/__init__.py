"""Labels you can trust, honest uncertainty and better models from disagreeing labels."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dissensus import clustering as clustering
    from dissensus import evaluation as evaluation
    from dissensus import features as features
    from dissensus import learning as learning
    from dissensus import models as models
    from dissensus.clustering import clusterings as clusterings
    from dissensus.clustering import select_clusters as select_clusters
    from dissensus.models.base import methods as methods
    from dissensus.models.methods.consensus import consensus as consensus
    from dissensus.models.saving import load as load
    from dissensus.models.saving import save as save
    from dissensus.questions.base import ask as ask
    from dissensus.questions.calibrate import calibrate as calibrate
    from dissensus.questions.compare import compare as compare
    from dissensus.questions.diagnose import diagnose as diagnose
    from dissensus.questions.diff import diff as diff
    from dissensus.questions.evaluate import evaluate as evaluate
    from dissensus.questions.explain import explain as explain
    from dissensus.questions.panel_review import review_panel as review_panel
    from dissensus.questions.recommend import recommend as recommend
    from dissensus.questions.redundancy import redundancy as redundancy
    from dissensus.report import Report as Report
    from dissensus.report.chart import chart as chart
    from dissensus.table import simulate as simulate
    from dissensus.table.annotations import Annotations as Annotations
    from dissensus.table.datasets import list_datasets as list_datasets
    from dissensus.table.datasets import load_dataset as load_dataset
    from dissensus.table.io import read as read
    from dissensus.table.kinds import KIND_DESCRIPTIONS
    from dissensus.table.questions import Questions as Questions

    kinds = KIND_DESCRIPTIONS

__version__ = "0.1.0"

# Public name → its module, which is imported when the name is first used: `import dissensus` costs next to nothing.
_HOME = {
    "Annotations": "dissensus.table.annotations",
    "Questions": "dissensus.table.questions",
    "Report": "dissensus.report",
    "ask": "dissensus.questions.base",
    "calibrate": "dissensus.questions.calibrate",
    "chart": "dissensus.report.chart",
    "clustering": "dissensus.clustering",
    "clusterings": "dissensus.clustering",
    "compare": "dissensus.questions.compare",
    "consensus": "dissensus.models.methods.consensus",
    "diagnose": "dissensus.questions.diagnose",
    "diff": "dissensus.questions.diff",
    "evaluate": "dissensus.questions.evaluate",
    "evaluation": "dissensus.evaluation",
    "explain": "dissensus.questions.explain",
    "features": "dissensus.features",
    "kinds": "dissensus.table.kinds",
    "learning": "dissensus.learning",
    "list_datasets": "dissensus.table.datasets",
    "load": "dissensus.models.saving",
    "load_dataset": "dissensus.table.datasets",
    "methods": "dissensus.models.base",
    "models": "dissensus.models",
    "read": "dissensus.table.io",
    "recommend": "dissensus.questions.recommend",
    "redundancy": "dissensus.questions.redundancy",
    "review_panel": "dissensus.questions.panel_review",
    "save": "dissensus.models.saving",
    "select_clusters": "dissensus.clustering",
    "simulate": "dissensus.table.simulate",
}
_MODULES = {"clustering", "evaluation", "features", "learning", "models", "simulate"}  # Public submodules.
_CALLED = {"kinds": "KIND_DESCRIPTIONS"}  # Public names that differ from the names in their modules.
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'dissensus' has no attribute '{name}'")
    value: Any = import_module(_HOME[name])
    if name not in _MODULES:
        value = getattr(value, _CALLED.get(name, name))
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
