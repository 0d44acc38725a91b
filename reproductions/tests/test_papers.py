"""What a paper's file says, how its cells are run and gone on from, and that a page hides nothing."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from dataclasses import replace
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest
from scipy import stats

from dissensus.common.exceptions import CannotWrite
from dissensus.common.json_lines import JsonLinesStore
from dissensus.exceptions import BadParameter, UnwritableFile
from reproductions import (
    claims_picture,
    experiment,
    load_paper,
    make_page,
    paper_names,
    record,
    render,
    render_html,
    render_markdown,
    reproduce,
    runner,
)  # fmt: skip
from reproductions.record import read_store
from reproductions.render import values_of
from reproductions.tests.toy import FILE, Module
from reproductions.verdict import Claim, PairedDifference, assess, estimate_mean, paired, significant_by_holm
from reproductions.watch import ProgressTable

RESULTS = record.ROOT / "reproductions" / "results"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def paper(monkeypatch):
    made, module = experiment.parse("toy", tomllib.loads(FILE)), Module()
    monkeypatch.setattr(experiment.Paper, "module", module)
    monkeypatch.setattr(runner, "load_paper", lambda name: made)
    return SimpleNamespace(paper=made, table=made.tables["table1"], calls=module.calls)


def test_cells_are_all_that_is_to_be_run(paper):
    cells = list(paper.table.cells())
    assert len(cells) == 3 * 2 * 3  # seeds, data, conditions without the one that is gone
    assert [cell.seeds for cell in cells[:6]] == [(0,)] * 6  # every condition before the next seed
    assert cells[4].keywords == {"number": 2, "factor": 2}
    assert len({cell.key for cell in cells}) == len(cells)
    quick = list(paper.table.cells(quick=True))
    assert [(c.data, c.condition) for c in quick] == [("one", "plain"), ("one", "twice"), ("one", "broken")]
    assert quick[0].keywords == {"number": 1, "offset": 100}
    assert quick[0].key != cells[0].key
    assert len(list(paper.table.cells(quick=True, seeds=2))) == 6


def test_a_block_of_seeds_is_one_cell():
    told = tomllib.loads(FILE)
    told["table1"]["block"] = 0
    cells = list(experiment.parse("toy", told).tables["table1"].cells())
    assert {cell.seeds for cell in cells} == {(0, 1, 2)}
    told["table1"]["block"] = 2
    assert {cell.seeds for cell in experiment.parse("toy", told).tables["table1"].cells()} == {(0, 1), (2,)}


def test_a_run_that_was_stopped_goes_on(paper, tmp_path):
    store = tmp_path / "toy.jsonl"
    found, failures = reproduce([paper.table], store)
    assert len(found) == 12
    assert len(failures) == 6
    assert "ValueError: no such thing" in failures[0].error
    lines = store.read_text().splitlines()
    store.write_text("\n".join(lines[:5]) + "\n" + lines[5][:30])
    paper.calls.clear()
    again, _ = reproduce([paper.table], store)
    assert len(paper.calls) == 7 + 6  # Unfinished and failed cells run again.
    assert {key: line["values"] for key, line in again.items()} == {key: line["values"] for key, line in found.items()}
    made = next(iter(again.values()))["made"]
    assert made["versions"]["numpy"] == np.__version__
    assert made["device"] == "CPU" or "NVIDIA" in made["device"]


def test_no_cell_is_begun_after_the_minutes(paper, tmp_path):
    found, failures = reproduce([paper.table], tmp_path / "toy.jsonl", minutes=-1)
    assert not found
    assert not failures
    assert not paper.calls


def test_a_page_says_why_a_cell_is_missing(paper, tmp_path):
    found, failures = reproduce([paper.table], tmp_path / "toy.jsonl", seeds=2)
    page = render_markdown(make_page(paper.paper, [paper.table], found, failures))
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    plain = next(row for row in rows if row.startswith("| plain"))
    # ours 1 and 2, so 1.5 ± 0.5; published 1.5 ± 0.5; an interval of t with one degree of freedom, and their error
    half = np.hypot(stats.t.ppf(0.975, 1) * 0.5, 1.96 * 0.5)
    assert f"| 1.5 ± 0.5 | 1.5 ± 0.5 | +0.0 ({-half:+.1f} to {half:+.1f}) | 0.500 ± 0.500 | 2 |" in plain
    assert any("broken" in row and "no such thing" in row for row in rows)
    assert any("gone" in row and "not run: the data are lost." in row for row in rows)
    assert any("twice" in row and "Twice is thrice here." in row for row in rows)
    assert "not run yet. Twice is thrice here." in render_markdown(make_page(paper.paper, [paper.table], {}))
    assert "| twice is more | " in page
    html = render_html(make_page(paper.paper, [paper.table], found, failures))
    assert "A &lt;paper&gt;" in html
    assert "<paper>" not in html


def test_a_row_says_that_some_of_its_seeds_failed(paper, tmp_path):
    found, _ = reproduce([paper.table], tmp_path / "toy.jsonl", seeds=1)
    later = next(c for c in paper.table.cells() if (c.data, c.condition, c.seeds) == ("one", "twice", (1,)))
    page = render_markdown(make_page(paper.paper, [paper.table], found, [runner.Failure(later, "ran dry")]))
    assert "| twice | 2.0 |  |  | 0.000 | 1 | 1 more failed: ran dry |" in page


def test_a_table_may_be_made_of_what_another_keeps(paper, tmp_path, monkeypatch):
    told = tomllib.loads(FILE)
    told["table1"]["metrics"]["square"]["p"] = "p"
    told["table1"]["published"]["one"]["plain"] = {"square": [1.5, "*"]}
    told["table2"] = told["table1"] | {"made_from": "table1", "published": {}}
    made, module = experiment.parse("toy", told), Module()

    def keep(cell, device):
        return {"square": [1.0 for _ in cell.seeds]}, {"note": f"seed {cell.seeds[0]}"}

    def derived(results):
        assert all(line["kept"]["note"] == f"seed {line['seeds'][0]}" for line in results.values())
        line = {"paper": "toy", "data": "one", "condition": "plain", "seeds": [0]}
        return [line | {"table": "table1", "values": {"p": [0.01]}},
                line | {"table": "table2", "values": {"square": [7.0], "p": [0.05]}}]  # fmt: skip

    module.table1, module.derived = keep, derived
    monkeypatch.setattr(experiment.Paper, "module", module)
    monkeypatch.setattr(runner, "load_paper", lambda name: made)
    assert [table.name for table in made.only(["table2"])] == ["table1", "table2"]
    assert [table.name for table in made.only(["table1"])] == ["table1"]
    found, _ = reproduce(made.only(["table2"]), tmp_path / "toy.jsonl", seeds=1)
    page = render_markdown(make_page(made, list(made.tables.values()), found))
    assert "| plain | 1.0** | 1.5* | -0.5 |" in page
    assert "| plain | 7.0* |" in page
    assert f"{len(found)} cells" in page  # Derived lines are not counted as cells.
    assert "<td>1.0**</td>" in render_html(make_page(made, list(made.tables.values()), found))


def test_values_are_in_the_order_of_seeds_whatever_the_stores(paper, tmp_path):
    found, _ = reproduce([paper.table], tmp_path / "toy.jsonl")
    mixed = dict(reversed(list(found.items())))
    assert values_of(paper.table, mixed, "two", "plain", "square") == {0: 4, 1: 5, 2: 6}


def test_a_seed_in_two_lines_counts_once(paper, tmp_path, monkeypatch):
    told = tomllib.loads(FILE)
    told["table1"]["block"] = 0
    made = experiment.parse("toy", told)
    monkeypatch.setattr(runner, "load_paper", lambda name: made)
    for seeds in (3, 2):
        reproduce(list(made.tables.values()), tmp_path / "toy.jsonl", seeds=seeds)
    found = read_store(tmp_path / "toy.jsonl")
    assert values_of(made.tables["table1"], found, "two", "plain", "square") == {0: 4, 1: 5, 2: 6}
    assert "| 2.0 ± 0.6 |" in render_markdown(make_page(made, list(made.tables.values()), found))


@pytest.mark.parametrize(("quick", "seeds"), [(False, None), (False, 5), (True, None), (True, 2)])
def test_a_line_counts_only_as_long_as_its_cell_is_the_same(paper, tmp_path, quick, seeds):
    found, _ = reproduce([paper.table], tmp_path / "toy.jsonl", quick=quick, seeds=seeds)
    page = render_markdown(make_page(paper.paper, [paper.table], found, quick=quick))
    assert "Not shown" not in page
    assert f"| {seeds or (1 if quick else 3)} |" in page
    told = tomllib.loads(FILE)
    told["table1"]["conditions"]["twice"]["factor"] = 3
    changed = experiment.parse("toy", told)
    stale = sum(line["condition"] == "twice" for line in found.values())
    for written in (render_markdown, render_html):
        page = written(make_page(changed, list(changed.tables.values()), found, quick=quick))
        assert f"Not shown: {stale} of {len(found)} lines of the store" in page
        assert f"{len(found) - stale} cells" in page
        assert "no result for this claim" in page  # claims do not see them, either
    page = render_markdown(make_page(changed, list(changed.tables.values()), found, quick=quick))
    first = {
        name: next(row for row in page.splitlines() if row.startswith(f"| {name} | ")) for name in ("plain", "twice")
    }
    assert "not run yet" in first["twice"]
    assert "not run yet" not in first["plain"]


def test_lines_that_no_table_has_are_not_shown(paper, tmp_path):
    found, _ = reproduce([paper.table], tmp_path / "toy.jsonl", seeds=1)
    other = next(iter(found.values())) | {"table": "table9"}
    page = render_markdown(make_page(paper.paper, [paper.table], found | {"other": other, "bare": {"key": "bare"}}))
    assert f"Not shown: 2 of {len(found) + 2} lines" in page
    page = render_markdown(make_page(paper.paper, [paper.table], found, quick=True))
    assert page.count("not run yet") == 6  # Cells with a reason are not counted.


def test_a_watch_knows_how_much_is_left(paper, tmp_path, capsys):
    watch = ProgressTable(jobs=2)
    reproduce([paper.table], tmp_path / "toy.jsonl", watch=watch)
    assert watch.done == {"toy table1": 12}
    assert watch.failed == {"toy table1": 6}
    assert watch.seconds_left("toy table1") == 0
    watch.done["toy table1"], watch.seconds["toy table1"] = 2, [3.0, 5.0]
    assert watch.seconds_left("toy table1") == pytest.approx(10 * 4 / 2)
    assert "no such thing" in capsys.readouterr().err


def test_a_difference_has_students_interval():
    first, second = [3.0, 4.0, 6.0, 5.0], [1.0, 3.5, 4.0, 4.5]
    found = paired(dict(enumerate(first)), dict(enumerate(second)))
    low, high = stats.ttest_rel(first, second).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((low, high))
    assert found.p == pytest.approx(stats.ttest_rel(first, second).pvalue)
    assert (estimate_mean([0.5]).p, estimate_mean([0.0, 0.0]).p, estimate_mean([0.5, 0.5]).p) == (1.0, 1.0, 0.0)
    assert str(estimate_mean([0.5])) == "+0.500 (one seed)"


def test_values_are_paired_by_seed_not_by_place():
    first, second = {0: 1.0, 2: 5.0, 3: 9.0}, {3: 8.0, 1: 2.0, 2: 3.0}
    assert paired(first, second) == estimate_mean([2.0, 1.0])
    assert paired(first, second, scale=100) == estimate_mean([200.0, 100.0])
    nothing = paired({0: 1.0}, {1: 2.0})
    assert nothing.n == 0
    assert assess("so", {"a": nothing}).verdict == "undecided"
    assert assess("so", {"a": nothing, "b": estimate_mean([1.0, 1.1])}).verdict == "holds"


def test_verdicts():
    up, down, open_ = estimate_mean([1.0, 1.1, 0.9]), estimate_mean([-1.0, -1.1, -0.9]), estimate_mean([1.0, -1.0])
    for differences, verdict in (
        ([up, up], "holds"), ([down, down], "the opposite holds"), ([open_], "undecided"), ([], "undecided"),
        ([up, open_], "holds in part: 1 of 2, the others undecided"),
        ([up, down, open_], "does not hold: 1 for it, 1 against it, 1 undecided"),
    ):  # fmt: skip
        claim = assess("so", {str(n): difference for n, difference in enumerate(differences)})
        assert isinstance(claim, Claim)
        assert claim.verdict == verdict


def test_some_of_many_are_sure_by_holms_correction():
    draw = np.random.default_rng(0)
    for _ in range(200):
        p = draw.choice([0.001, 0.004, 0.011, 0.02, 0.024, 0.03, 0.045, 0.2], size=draw.integers(1, 7))
        # Holm's adjusted p-value is the maximum, over smaller p-values, of p times the number of remaining tests.
        adjusted = [max(min(1, p[j] * np.sum(p >= p[j])) for j in range(p.size) if p[j] <= p[i]) for i in range(p.size)]
        if len(set(p)) == p.size:  # else the order of equal ones counts above
            assert significant_by_holm([PairedDifference(1.0, 0.5, 1.5, 9, each) for each in p]) == [
                one <= 0.05 for one in adjusted
            ]
    clear, nearly = PairedDifference(1.0, 0.5, 1.5, 9, 0.001), PairedDifference(1.0, 0.01, 1.99, 9, 0.04)
    assert assess("so", {"a": clear, "b": nearly}).verdict == "holds"  # "and" needs no correction
    assert assess("so", {str(n): nearly for n in range(19)} | {"a": estimate_mean([1.0, -1.0])}).verdict == "undecided"


def test_a_small_p_is_not_nought():
    p = experiment.Metric("p", "p")
    assert [render._our_text({0: value}, p) for value in (0.0001, 0.0, 0.0005, 0.2)] == [
        "< 0.001",
        "0.000",
        "0.001",
        "0.200",
    ]
    assert render._our_text({0: 0.0001, 1: 0.0002}, p) == "0.000 ± 0.000"  # a mean, with its error


def test_the_picture_of_the_claims(paper):
    wide, one = estimate_mean([4.0, 5.0, 6.0]), estimate_mean([-2.0])
    claims = [assess("More & more", {"a <b>": wide, "c": one}), assess("Nothing", {})]
    drawn = ElementTree.fromstring(claims_picture.draw_claims(claims))
    texts = ["".join(text.itertext()) for text in drawn.iter(f"{SVG}text")]
    assert {"More & more", "holds in part: 1 of 2, the others undecided", "a <b>", "+5.000", "-2.000"} <= set(texts)
    assert "no result for this claim" in texts
    dots = [(dot.get("class"), float(dot.get("cx"))) for dot in drawn.iter(f"{SVG}circle")][3:]  # after the legend
    zero = next(float(p.get("d")[1:].split()[0]) for p in drawn.iter(f"{SVG}path") if p.get("class") == "zero")
    assert [kind for kind, _ in dots] == ["for", "open"]
    assert dots[1][1] < zero < dots[0][1]
    bars = [p.get("d") for p in drawn.iter(f"{SVG}path") if p.get("class") in ("for", "against", "open")]
    assert len(bars) == 1  # one seed has no interval
    low, high = (float(x) for x in re.fullmatch(r"M(\S+) \S+H(\S+)", bars[0]).groups())
    scale = (dots[0][1] - zero) / wide.mean
    assert high == pytest.approx(claims_picture.WIDTH - claims_picture.RIGHT)  # all the room is used
    assert (low - zero, high - zero) == pytest.approx((wide.low * scale, wide.high * scale), abs=0.2)
    assert "toy-claims.svg" in render_markdown(make_page(paper.paper, [paper.table], {}))


@pytest.mark.parametrize("name", paper_names())
def test_every_paper_can_be_read(name):
    paper = load_paper(name)
    assert paper.tables
    for table in paper.tables.values():
        assert table.made_from in paper.tables if table.made_from else list(table.cells(quick=True))
        json.dumps([cell.keywords for cell in table.cells()])
        metrics = {metric.name for metric in table.metrics}
        for data, conditions in table.published.items():
            assert data in table.data
            for condition, figures in conditions.items():
                assert condition in table.conditions, (data, condition)
                assert set(figures) <= metrics


def test_what_there_is_not_is_one_clear_error():
    with pytest.raises(BadParameter, match="there is no paper 'nobody1999'"):
        load_paper("nobody1999")
    with pytest.raises(BadParameter, match="has no 'table9'"):
        load_paper("weerasooriya2021").only(["table9"])


def test_two_runs_at_once_do_not_share_a_store(paper, tmp_path):
    store = tmp_path / "new" / "toy.jsonl"
    with JsonLinesStore.locked(store):
        with pytest.raises(CannotWrite):
            reproduce([paper.table], store)
        assert not paper.calls
        reproduce([paper.table], tmp_path / "other.jsonl", seeds=1)
    assert len(reproduce([paper.table], store, seeds=1)[0]) == 4  # it goes with the run


def test_a_store_that_cannot_be_written_is_an_error_before_anything_is_run(paper, tmp_path):
    (tmp_path / "toy.jsonl").mkdir()
    (tmp_path / "file").touch()
    for store in (tmp_path / "toy.jsonl", tmp_path / "file" / "toy.jsonl"):
        with pytest.raises(UnwritableFile, match=r"toy\.jsonl"):
            reproduce([paper.table], store)
    assert not paper.calls


STARTS = """
import time
from reproductions import processes
if __name__ == "__main__":
    pool = processes.worker_pool(1)
    print(pool.submit(processes.os.getpid).result(), flush=True)
    time.sleep(60)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="kill -9")
def test_processes_end_with_the_run_that_began_them(tmp_path):
    script = tmp_path / "starts.py"
    script.write_text(STARTS)
    path = os.pathsep.join(["src", ".", os.environ.get("PYTHONPATH", "")])
    words, where = [sys.executable, str(script)], {"cwd": record.ROOT, "env": os.environ | {"PYTHONPATH": path}}
    with subprocess.Popen(words, **where, stdout=subprocess.PIPE, text=True) as run:
        worker = int(run.stdout.readline())
        run.kill()
    for _ in range(100):
        try:
            os.kill(worker, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    os.kill(worker, signal.SIGKILL)
    pytest.fail("it went on without anybody to work for")


def test_what_is_alike_and_what_is_not_is_on_the_page(paper):
    told = experiment.parse("toy", tomllib.loads('protocol = ["Folds <are> ours."]\n' + FILE))
    page = make_page(told, list(told.tables.values()), {})
    assert "## Differences from the paper's protocol\n\n- Folds <are> ours.\n" in render_markdown(page)
    assert "<li>Folds &lt;are&gt; ours.</li>" in render_html(page)
    assert "alike" not in render_markdown(make_page(paper.paper, [paper.table], {}))


# Stores in the repository ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", paper_names())
def test_every_stored_line_names_a_command_that_exists_and_what_made_it(name):
    paper, lines = load_paper(name), read_store(RESULTS / f"{name}.jsonl")
    assert lines
    for line in lines.values():
        assert line["command"] == f"python -m reproductions {name} {line['table']}"
        assert [table.name for table in paper.only([line["table"]])]
        assert line["made"].keys() >= {"by", "date", "commit"}


@pytest.mark.parametrize("name", paper_names())
def test_the_stored_page_says_where_all_of_its_lines_were_made(name):
    lines = read_store(RESULTS / f"{name}.jsonl")
    page = (RESULTS / f"{name}.md").read_text(encoding="utf-8")
    assert f"## How it was made\n\n    python -m reproductions {name}\n" in page
    counted = 0
    for row in page.split("## How it was made")[1].splitlines():
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        if len(cells) == 5 and cells[1].replace(",", "").isdigit():
            table, count, day, commit, by = cells
            found = [
                line
                for line in lines.values()
                if (line["table"], line["made"]["date"][:10]) == (table, day)
                and line["made"]["commit"].replace("-dirty", " with changes") == commit
                and by.startswith(f"`{line['made']['by']}`")
            ]
            assert len(found) == int(count.replace(",", ""))
            assert by.endswith(" of that commit") == (not by.startswith("`python -m reproductions"))
            counted += len(found)
    assert counted == len(lines)


def test_a_line_says_where_it_was_made(paper, tmp_path):
    found, _ = reproduce([paper.table], tmp_path / "toy.jsonl", seeds=1)
    line = next(iter(found.values()))
    assert line["command"] == "python -m reproductions toy table1"
    assert line["made"]["commit"] == record.current_commit()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", line["made"]["date"])
    page = render_markdown(make_page(paper.paper, [paper.table], found))
    assert f"| table1 | 4 | {line['made']['date'][:10]} | " in page


def test_a_condition_may_have_its_own_number_of_seeds(paper):
    table = replace(paper.table, only={"one": {"seeds": {"others": 1, "twice": 2}}})
    seeds = {
        name: [c.seeds for c in table.cells() if (c.data, c.condition) == ("one", name)] for name in ("plain", "twice")
    }
    assert seeds == {"plain": [(0,)], "twice": [(0,), (1,)]}
    assert sum(cell.data == "two" for cell in table.cells()) == 3 * 3
