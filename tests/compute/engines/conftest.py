"""One Spark cluster for all tests of this folder that want one."""

import pytest

from compute.engines.cluster import cluster

SPECULATION = {
    "spark_speculation": "true",
    "spark_speculation_interval": "100ms",
    "spark_speculation_multiplier": "1",
    "spark_speculation_quantile": "0.5",
    "spark_speculation_minTaskRuntime": "2s",  # a task that is ended takes its Python along, which is slow to start
}
BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # a Java that lives for a minute need not optimise itself
SMALL = {
    "spark_driver_extraJavaOptions": BRIEF,
    "spark_executor_extraJavaOptions": BRIEF,
    "spark_sql_codegen_wholeStage": "false",
}


@pytest.fixture(scope="package")
def spark_session(tmp_path_factory):
    """A session on a cluster of two workers; for tests marked by `cluster.marks()`."""
    with cluster(tmp_path_factory.mktemp("spark"), **SPECULATION, **SMALL) as session:
        yield session
