"""All engines give the same answer, over tables of every kind, real sets and a simulated crowd."""

import dataclasses
import pickle
import socket
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from compute.engines.agreement import METHODS, assert_agree, fit, independent, short
from compute.engines.cluster import marks
from dissensus import Annotations, methods
from dissensus.compute.chunk import ALL_ONES, COIN, DIAGONAL, FULL, LIKELIHOOD, POSTERIOR, VOTES, Chunk
from dissensus.compute.engines import Disk, Spark, Torch
from dissensus.compute.engines.coding import code_table
from dissensus.compute.engines.scatter import distribute_frame, get_session
from dissensus.compute.exceptions import (
    BadClusterAddress,
    ClusterNotStarted,
    NoCluster,
    NoDevice,
    NoFolderForCodes,
    NotParquet,
    OneLabelPerRow,
    SparkNotStarted,
    UnknownEngine,
)
from dissensus.exceptions import BadParameter
from dissensus.models.confusion import ConfusionPass, EStepParams, RightWrongLikelihood
from dissensus.models.exceptions import NoEarlierCounts, NotATable
from dissensus.models.methods import consensus
from dissensus.models.methods.glad import AbilityPass, GLADParams
from dissensus.models.votes import VotePass
from dissensus.table.datasets import load_dataset
from dissensus.table.simulate import simulate
from tables import KINDS, placed, random_table, some_gold

ENGINES = ("disk", "torch")


def engine_of(name: str, folder, block_rows: int):
    if name == "torch":
        pytest.importorskip("torch", reason="needs the `learning` extra")
        return Torch(device="cpu", part_rows=block_rows)
    pytest.importorskip("duckdb", reason="needs the `disk` extra")
    return Disk(folder=folder / "codes", block_rows=block_rows)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", KINDS)
def test_tables_of_every_kind(kind, method, engine, tmp_path):
    table = random_table(3, **KINDS[kind])
    placed = engine_of(engine, tmp_path, block_rows=17)  # item 0 has more rows than a block, some items have none
    if engine == "disk" and table.proba is not None:
        with pytest.raises(OneLabelPerRow):
            fit(method, table, engine=placed)
        return
    for gold, own in ((None, {}), (some_gold(table), {}), (None, independent(method))):
        keywords = short(method, 20) | own
        assert_agree(fit(method, table, gold, **keywords), fit(method, table, gold, engine=placed, **keywords))


def first_items(readme, rows: int) -> Annotations:
    """Items of a real set, as many as have about so many annotations."""
    table = load_dataset(readme.parent.name, folder=readme.parent.parent).annotations
    return table.select(items=table.items[: np.searchsorted(table.item_ptr, rows)])


@pytest.mark.realdata(has="annotated items, ")
def test_real_sets(readme, tmp_path):
    table = first_items(readme, rows=5_000)
    engines = [engine_of(engine, tmp_path, max(1000, len(table) // 3)) for engine in ENGINES]
    for method in METHODS:
        keywords = short(method, 5)
        local = fit(method, table, **keywords)
        for engine in engines:
            assert_agree(local, fit(method, table, engine=engine, **keywords))


@pytest.mark.realdata
@pytest.mark.parametrize("engine", [pytest.param("spark", marks=marks())])
@pytest.mark.parametrize("name", ["bluebirds", "cifar10h", "ner_mturk"])  # few items, many labels each, many classes
def test_real_sets_on_a_cluster(name, engine, data_folder, spark_session):
    table = load_dataset(name, folder=data_folder).annotations
    keywords = {"max_iter": 2, "restarts": 1}  # every pass is a job; `test_spark` has the other methods
    local = fit("dawid-skene", table, **keywords)
    assert_agree(local, fit("dawid-skene", table, engine=Spark(partitions=2), **keywords))


@cache
def a_million():
    """100,000 items, 1,000 annotators, 5 classes: a table, and what `local` makes of it in two passes."""
    table = simulate(100_000, 1_000, 5, redundancy=10, seed=0).annotations
    return table, fit("dawid-skene", table, max_iter=2, restarts=1)


@pytest.mark.parametrize("engine", [*ENGINES, pytest.param("spark", marks=marks())])
def test_a_million_annotations(engine, tmp_path, request):
    """Each method is fitted to the end to five million by `benchmarks.scale.agree`."""
    table, local = a_million()
    placed = engine_of(engine, tmp_path, 300_000) if engine != "spark" else Spark(partitions=2)
    if engine == "spark":
        request.getfixturevalue("spark_session")
    assert_agree(local, fit("dawid-skene", table, max_iter=2, restarts=1, engine=placed))


def passes(table: Annotations):
    """Every pass with some parameters, and what it writes."""
    rng, I, A, K = np.random.default_rng(1), table.n_items, table.n_annotators, table.n_classes
    prior, right, skill = rng.dirichlet(np.ones(K)), rng.uniform(0.3, 0.9, (A, K)), rng.uniform(0, 1, A)
    every, out = rng.dirichlet(np.ones(K), I), {"posterior": (I, K)}
    full, own = rng.dirichlet(np.ones(K), (A, K)), RightWrongLikelihood(right, (1 - right) / (K - 1))
    coin = RightWrongLikelihood(own.right[:, :1], own.wrong[:, :1])
    return {
        "full": (ConfusionPass(LIKELIHOOD, FULL), EStepParams.from_likelihood(prior, full), out),
        "own": (ConfusionPass(LIKELIHOOD, DIAGONAL), EStepParams.from_likelihood(prior, own), out),
        "coin": (ConfusionPass(LIKELIHOOD, COIN), EStepParams.from_likelihood(prior, coin), out),
        "prior per item": (ConfusionPass(LIKELIHOOD, FULL), EStepParams.from_likelihood(every, full), out),
        "votes": (ConfusionPass(VOTES, FULL), None, {}),
        "given": (ConfusionPass(POSTERIOR, COIN, posterior=every), None, {}),
        "totals": (ConfusionPass(ALL_ONES, DIAGONAL), None, {}),
        "skill": (VotePass(), skill, {}),
        "share": (VotePass(True, prior, np.ones(K)), skill, {"posterior": (I, K), "item_total": (I,)}),
        "ability": (
            AbilityPass(1.3),
            GLADParams(4 * skill, np.zeros(I), prior),
            {"easiness": (I,), "posterior": (I, K)},
        ),
    }


@pytest.mark.parametrize("kind", ["hard", "weighted"])
@pytest.mark.parametrize("name", passes(random_table(1)))
def test_a_pass_made_in_parts_elsewhere_adds_up(name, kind):
    """What a cluster does: the pass is sent, each task opens it, walks its items and closes it; sums are added."""
    table = random_table(2, **KINDS[kind])
    gold = some_gold(table)
    pass_, params, shapes = passes(table)[name]
    with placed(table, gold) as engine:
        whole = {key: np.full(shape, np.nan) for key, shape in shapes.items()}
        expected = engine.run(pass_, params, whole)
        parts, found = {key: np.full(shape, np.nan) for key, shape in shapes.items()}, []
        for start, stop in ((0, 5), (5, 23)):
            sent = pickle.loads(pickle.dumps((pass_, params)))
            own = (np.arange(23) >= start) & (np.arange(23) < stop)
            rows, size = engine.rows.select_items(own), engine.size
            chunk = Chunk(rows.arrays, gold[start:stop], size.n_annotators, size.n_classes, start)
            (worker,) = sent[0].create_workers(sent[1], engine.size, 1, engine.pool)
            sent[0].process(chunk, worker, {key: array[start:stop] for key, array in parts.items()})
            found.append(sent[0].sum_workers([worker], engine.pool))
    total = found[0] + found[1]
    for field in dataclasses.fields(total):
        np.testing.assert_allclose(getattr(total, field.name), getattr(expected, field.name), atol=1e-10)
    for key in shapes:
        np.testing.assert_allclose(parts[key], whole[key], atol=1e-12)


@pytest.mark.parametrize("engine", [*ENGINES, pytest.param("spark", marks=marks())])
@pytest.mark.parametrize("kind", ["hard", "weighted"])
def test_the_rows_of_some_items_are_the_same_everywhere(kind, engine, tmp_path, request):
    table, rng = random_table(4, n_items=101, n=900, **KINDS[kind]), np.random.default_rng(0)
    if engine == "spark":
        request.getfixturevalue("spark_session")
        options = Spark(partitions=3)
    else:
        options = engine_of(engine, tmp_path, block_rows=50)
    data = code_table(table, tmp_path / "codes") if engine == "disk" else table
    with placed(table) as local, options.open_engine(methods["dawid-skene"](engine=options), data, None) as elsewhere:
        for keep in (rng.random(101) < 0.3, np.arange(101) == 0, np.ones(101, bool)):
            expected, found = local.select_rows(keep), elsewhere.select_rows(keep)
            rows = keep[table.item]
            np.testing.assert_array_equal(expected.item_ptr, np.cumsum([0, *np.diff(table.item_ptr)[keep]]))
            np.testing.assert_array_equal(expected.annotator, table.annotator[rows])
            np.testing.assert_array_equal(expected.label, table.label[rows])
            for name in ("item_ptr", "annotator", "label", "weight"):
                np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)
                assert getattr(found, name) is None or not getattr(found, name).flags.writeable


@pytest.mark.parametrize("engine", ENGINES)
def test_a_simulated_crowd_to_the_end(engine, tmp_path):
    table = simulate(40_000, 300, 5, seed=5).annotations  # 200,000 annotations
    placed = engine_of(engine, tmp_path, block_rows=30_000)
    assert_agree(fit("dawid-skene", table), fit("dawid-skene", table, engine=placed))


@pytest.mark.parametrize("engine", [*ENGINES, pytest.param("spark", marks=marks())])
def test_gold_says_everywhere_what_labels_of_one_item_share(engine, tmp_path, request):
    sim = simulate(300, 15, 3, redundancy=5, seed=2)
    gold, keywords = np.where(np.arange(300) < 60, sim.truth, -1), {"max_iter": 3}
    if engine == "spark":
        request.getfixturevalue("spark_session")
        placed = Spark(partitions=2)
    else:
        placed = engine_of(engine, tmp_path, block_rows=100)
    local = fit("dawid-skene", sim.annotations, gold, **keywords)
    assert 0 < local.dependence_ < 0.5
    assert_agree(local, fit("dawid-skene", sim.annotations, gold, engine=placed, **keywords))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("longest", [10**6, 5000])
def test_consensus_counts_copies_once_on_every_engine_but_in_tables_that_are_too_long(
    engine, longest, tmp_path, monkeypatch
):
    monkeypatch.setattr(consensus, "MAX_PIPELINE_ROWS", longest)
    monkeypatch.setattr(consensus.Consensus, "max_rows_in_memory", longest)
    table, keywords = load_dataset("digits-crowd").annotations, {"max_iter": 3}  # 8,971 labels
    placed = engine_of(engine, tmp_path, block_rows=5000)
    local, found = (fit("consensus", table, engine=one, **keywords) for one in ("local", placed))
    assert (found.copy_group_ >= 0).any() == (longest > len(table))
    assert_agree(local, found)
    if longest < len(table):
        np.testing.assert_allclose(found.pseudo_counts_, local.pseudo_counts_)


def test_more_classes_than_the_kernels_have_vectors_for(tmp_path):
    table = random_table(5, n_classes=40, n=301)
    local = fit("dawid-skene", table, max_iter=9)
    for engine in ENGINES:
        assert_agree(local, fit("dawid-skene", table, engine=engine_of(engine, tmp_path, 50), max_iter=9))


def test_an_engine_that_is_none_is_refused():
    with pytest.raises(UnknownEngine) as caught:
        methods["dawid-skene"](engine="gpu").fit(random_table(1))
    assert caught.value.names.startswith("'local', 'disk', 'torch', 'spark'")
    assert caught.value.engine == "gpu"


@pytest.mark.parametrize("device", ["gpu", "cuda:99"])
def test_a_device_that_is_not_there_is_refused(device):
    with pytest.raises(NoDevice) as caught:
        methods["dawid-skene"](engine=Torch(device=device)).fit(random_table(1))
    assert caught.value.device == device


def test_options_out_of_range_are_refused():
    options = [(Disk, "block_rows", 0), (Torch, "part_rows", 0), (Disk, "memory_gb", -1)]
    for engine, keyword, value in [*options, (Spark, "partitions", 0), (Spark, "partition_rows", 0)]:
        with pytest.raises(BadParameter, match=rf"^{keyword} .*{value}"):
            engine(**{keyword: value})


@pytest.mark.parametrize(
    "master",
    ["local", "local[*]", "local[4]", "local[4,2]", "local-cluster[2,1,512]", "yarn", "k8s://https://host:443",
     "spark://host:7077", "spark://[::1]:7077", "spark://one:7077,two:7077"],
)  # fmt: skip
def test_addresses_that_spark_knows(master):
    assert Spark(master=master).master == master


@pytest.mark.parametrize(
    "master", ["", "foo", "host:7077", "spark:/host:7077", "spark://host", "http://h:1", "local[x]"]
)
def test_an_address_that_spark_does_not_know_is_named(master):
    with pytest.raises(BadClusterAddress) as caught:
        Spark(master=master)
    assert caught.value.master == master


@pytest.fixture
def no_session(monkeypatch):
    pytest.importorskip("pyspark", reason="needs the `spark` extra")
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", classmethod(lambda cls: None))
    return monkeypatch


def test_a_cluster_that_is_not_there_is_named_at_once(no_session):
    no_session.setattr("pyspark.sql.SparkSession.Builder.getOrCreate", lambda self: pytest.fail("Spark was started"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # no process listens, and none can start to
        master = "spark://127.0.0.1:{0},127.0.0.1:{0}".format(taken.getsockname()[1])
        with pytest.raises(NoCluster) as caught:
            methods["dawid-skene"](engine=Spark(master=master)).fit(random_table(1))
    assert caught.value.facts == {"master": master, "reason": "Connection refused"}
    with pytest.raises(NoCluster):
        get_session("spark://127.0.0.1:99999")


def test_a_spark_that_does_not_start_says_why_and_where(no_session):
    from py4j.protocol import Py4JError

    output = "An error occurred while calling None.x.\n: org.apache.spark.SparkException: no queue\n\tat org.apache.y\n"

    def fail(self):
        raise Py4JError(output)

    no_session.setattr("pyspark.sql.SparkSession.Builder.getOrCreate", fail)
    with pytest.raises(ClusterNotStarted) as caught:
        get_session("yarn")
    assert caught.value.facts == {"master": "yarn", "reason": "org.apache.spark.SparkException: no queue"}
    with pytest.raises(SparkNotStarted) as caught:
        get_session()
    assert caught.value.reason == "org.apache.spark.SparkException: no queue"


def test_a_file_that_is_no_parquet_is_named_before_spark_starts(no_session, tmp_path):
    no_session.setattr("pyspark.sql.SparkSession.Builder.getOrCreate", lambda self: pytest.fail("Spark was started"))
    no_session.chdir(tmp_path)
    (tmp_path / "labels.csv").write_text("item,annotator,label\na,x,1\n")
    for source in ("labels.csv", "./labels.csv", tmp_path / "labels.csv"):
        with pytest.raises(NotParquet) as caught:
            distribute_frame(source)
        assert caught.value.path.name == "labels.csv"


def test_a_path_needs_the_disk_engine(tmp_path):
    pq.write_table(pa.table({"item": [1, 1], "annotator": [1, 2], "label": [0, 1]}), tmp_path / "a.parquet")
    with pytest.raises(NotATable):
        methods["dawid-skene"]().fit(str(tmp_path / "a.parquet"))


def test_a_table_in_memory_needs_a_folder_to_be_put_on_a_disk():
    with pytest.raises(NoFolderForCodes):
        methods["dawid-skene"](engine="disk").fit(random_table(1))


def test_an_engine_travels_with_the_keywords():
    from sklearn.base import clone

    model = clone(methods["one-coin"](engine=Disk(folder="work", block_rows=7)))
    assert model.engine == Disk(folder="work", block_rows=7)
    assert "engine=Disk(folder='work'" in repr(model)


def test_earlier_counts_are_for_tables_in_memory(tmp_path):
    table = Annotations.from_arrays([1, 1, 2], [1, 2, 1], [0, 1, 1])
    before = {1: np.eye(2)}
    with pytest.raises(NoEarlierCounts):
        methods["dawid-skene"](engine=Disk(folder=tmp_path)).fit(table, earlier=before)
    pytest.importorskip("torch", reason="needs the `learning` extra")
    local = methods["dawid-skene"]().fit(table, earlier=before)
    np.testing.assert_allclose(
        methods["dawid-skene"](engine="torch").fit(table, earlier=before).posterior_, local.posterior_, atol=1e-12
    )
