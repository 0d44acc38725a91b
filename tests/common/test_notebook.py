"""What a user holds shows itself in Jupyter, and no name of the data becomes markup."""

import pkgutil
import re
import warnings
from importlib import import_module

import numpy as np
import pytest

import dissensus as dz
from dissensus.common.notebook import MAX_COLUMNS_SHOWN, MAX_LETTERS_SHOWN, MAX_ROWS_SHOWN, make_html_table
from dissensus.exceptions import BadParameter
from dissensus.table.simulate import simulate

EVIL = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def table():
    drawn = simulate(40, 8, 2, redundancy=5, seed=0).annotations
    names = [f"{EVIL}{code}" for code in range(40)]
    return dz.Annotations.from_arrays(
        np.array(names, object)[drawn.item], np.array(names, object)[drawn.annotator], drawn.label
    )


@pytest.fixture(scope="module")
def model(table):
    return dz.methods["dawid-skene"]().fit(table)


RESULTS = {
    "table": lambda table, model: table,
    "questions": lambda table, model: dz.Questions({EVIL: table}),
    "model": lambda table, model: model,
    "diagnose": lambda table, model: dz.diagnose(table),
    "compare": lambda table, model: dz.compare(table, ["majority-vote", "one-coin"]),
    "explain": lambda table, model: dz.explain(table, model),
    "evaluate": lambda table, model: dz.evaluate(model.posterior_, table),
    "calibrate": lambda table, model: dz.calibrate(table, np.where(np.arange(40) < 30, np.arange(40) % 2, -1)),
}
UNNAMED = {"compare", "evaluate"}  # their rows name no item and nobody


@pytest.mark.parametrize("what", RESULTS)
def test_a_result_shows_itself_with_names_escaped(what, table, model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        html = RESULTS[what](table, model)._repr_html_()
    assert "<td>" in html
    assert "<script" not in html
    assert ("&lt;script&gt;" in html) == (what not in UNNAMED)
    assert html.count("<tr>") <= MAX_ROWS_SHOWN + 1


def test_every_result_with_a_frame_shows_itself():
    import dissensus.questions as home
    from dissensus.questions.base import Question

    for path in home.__path__:
        for found in pkgutil.iter_modules([path], f"{home.__name__}."):
            for one in vars(import_module(found.name)).values():
                if isinstance(one, type) and hasattr(one, "to_frame") and not issubclass(one, Question):
                    assert hasattr(one, "_repr_html_"), one


def test_a_model_before_fit_is_its_line_of_text():
    assert dz.methods["dawid-skene"]()._repr_html_() is None


def test_long_tables_and_cells_are_cut_and_say_so():
    html = make_html_table("line", [{f"column {n}": "x" * 500 for n in range(50)}], 1234)
    assert html.count("<th>") == MAX_COLUMNS_SHOWN
    assert "x" * MAX_LETTERS_SHOWN not in html
    assert "<p>… and 1,233 more rows</p>" in html


def test_charts_show_themselves_without_a_network_and_names_stay_text(table, model):
    comparison = dz.compare(table, ["majority-vote", "one-coin"])
    pictures = [dz.chart(model), dz.chart(model, gold=np.arange(40) % 2), dz.chart(comparison)]
    for picture in [*pictures, dz.chart(dz.diagnose(table))]:
        shown = picture._repr_mimebundle_()
        assert "<script" not in shown["image/svg+xml"]
        assert "var(--" not in shown["image/svg+xml"]
        assert not re.search(r"(?:href|src|url)\W+http", shown["image/svg+xml"])
        assert shown["text/plain"].startswith("Chart: ")
    with pytest.raises(BadParameter):
        dz.chart([])
