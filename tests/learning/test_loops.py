"""Test that the examples of the guide to training loops run, and that the crowd layer compiles with torch.compile."""

import contextlib
import io
import re
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from dissensus.learning.objectives import CrowdLayer

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "learning-loops.md"
NUMBERS, *EXAMPLES = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), flags=re.DOTALL)
NEEDS = {"Hugging Face": ("transformers", "accelerate"), "Lightning": ("lightning",), "plain torch": ()}


@pytest.mark.filterwarnings("default")  # those of other libraries
@pytest.mark.parametrize(("name", "code"), list(zip(NEEDS, EXAMPLES, strict=True)), ids=list(NEEDS))
def test_an_example_learns_from_the_crowd(name, code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for module in NEEDS[name]:
        if find_spec(module) is None:
            pytest.skip(f"the {name} example needs {module}, which is not installed")
    assert sum(bool(line.strip()) for line in code.splitlines()) <= 15
    told = {}
    torch.manual_seed(0)
    with contextlib.redirect_stdout(io.StringIO()):
        exec(NUMBERS, told)
        exec(code, told)
    x, truth = told["x"], torch.tensor(told["data"].gold)
    with torch.no_grad():
        if name == "plain torch":
            assert told["label_proba"].shape == (5, 3, 10)
            logits = told["objective"].logits(told["head"], told["encoder"](x))
        else:
            logits = told["net"].cpu()(x)
    assert (logits.argmax(dim=1) == truth).float().mean() > 0.85


@pytest.mark.parametrize("link", ["normalize", "softmax"])
def test_the_layer_is_one_graph_for_the_compiler(link):
    layer = CrowdLayer(7, 4, "matrix-bias", link)
    arguments = torch.log_softmax(torch.randn(5, 4), dim=1), torch.tensor([4, 0, 2]), torch.tensor([6, 1, 1])
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(*arguments), layer(*arguments))
    compiled(*arguments).sum().backward()
    assert layer.weight.grad is not None
