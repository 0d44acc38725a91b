"""A Spark of our own listens to nobody but this machine."""

import os
from types import SimpleNamespace

import pytest

from dissensus.compute.engines import scatter

pytest.importorskip("pyspark", reason="needs the `spark` extra")

TOLD = ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "SPARK_REMOTE", "MASTER", "SPARK_LOCAL_IP")


@pytest.mark.parametrize(
    ("master", "environment", "address"),
    [
        ("local[2]", {}, "127.0.0.1"), ("local[2]", {"SPARK_CONF_DIR": "x"}, "127.0.0.1"), (None, {}, "127.0.0.1"),
        ("local", {"SPARK_LOCAL_IP": "10.0.0.1"}, "10.0.0.1"), ("spark://host:7077", {}, None), ("yarn", {}, None),
        (None, {"SPARK_CONF_DIR": "x"}, None),
    ],
)  # fmt: skip
def test_only_a_local_session_is_kept_to_itself(master, environment, address, monkeypatch):
    """Spark binds its pages and its ports for blocks to SPARK_LOCAL_IP, and without it to every address."""
    from pyspark.sql import SparkSession

    monkeypatch.setattr(os, "environ", {k: v for k, v in os.environ.items() if k not in TOLD} | environment)
    monkeypatch.setattr(scatter, "_check_cluster_listens", lambda master: None)
    started = SimpleNamespace(sparkContext=SimpleNamespace(master="none"))
    builder = SimpleNamespace(master=lambda name: builder, getOrCreate=lambda: started)
    monkeypatch.setattr(SparkSession, "builder", builder)
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    assert scatter.get_session(master) is started
    assert os.environ.get("SPARK_LOCAL_IP") == address
