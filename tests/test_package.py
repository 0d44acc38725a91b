"""The package as a whole: what it imports, in which direction, and what it shows."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import dissensus
from dissensus import methods
from dissensus.exceptions import UnknownName

SOURCE = Path(dissensus.__file__).parent

# The way of the data. A module imports from its own layer and from those before it, never from those after.
LAYERS = [
    "messages", "exceptions", "common", "table", "compute", "evaluation", "models", "questions", "clustering",
    "features", "learning", "report", "serve", "cli", "testing",
]  # fmt: skip


def layer_of(path):
    return path.relative_to(SOURCE).with_suffix("").parts[0]


def imported_layers(path):
    """The layers that a module names in its imports, wherever they stand."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "dissensus" and len(parts) > 1 and parts[1] in LAYERS:
                yield parts[1]


def test_every_module_belongs_to_a_layer():
    found = {layer_of(path) for path in SOURCE.rglob("*.py")} - {"__init__", "__main__"}
    assert found == set(LAYERS)


def test_imports_point_only_to_earlier_layers():
    for path in SOURCE.rglob("*.py"):
        own = layer_of(path)
        if own in LAYERS:
            for layer in imported_layers(path):
                assert LAYERS.index(layer) <= LAYERS.index(own), f"{path.relative_to(SOURCE)} imports from {layer}"


def test_import_brings_neither_torch_nor_pandas():
    code = (
        "import sys, dissensus; "
        "heavy = 'torch sklearn pandas polars duckdb pyspark datasets transformers altair jinja2 vl_convert'; "
        "print([name for name in heavy.split() if name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_everything_public_is_there():
    for name in dissensus.__all__:
        assert getattr(dissensus, name) is not None


def test_a_wrong_method_name_is_answered_with_the_nearest():
    with pytest.raises(
        UnknownName, match=r"no method 'dawid-skeen'; did you mean 'dawid-skene'\? `dissensus list methods` lists all"
    ):
        methods["dawid-skeen"]


def test_an_entry_cannot_be_registered_twice():
    with pytest.raises(ValueError, match="twice"):
        methods.register("dawid-skene", summary="", cite="")(methods["dawid-skene"])
