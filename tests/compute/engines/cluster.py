"""A standalone Spark cluster on loopback: a master and workers of one core each, started and stopped by who uses it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import patch

QUIET = """rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %p %c{1}: %m%n
"""


def java() -> bool:
    """Whether there is a Java to run Spark."""
    return bool(os.environ.get("JAVA_HOME") or shutil.which("java"))


def marks() -> list[Any]:
    """Of a test that needs a cluster."""
    import pytest

    there = find_spec("pyspark") is not None
    return [
        pytest.mark.slow,
        pytest.mark.xdist_group("spark"),  # one cluster
        pytest.mark.skipif(not there, reason="needs the `spark` extra"),
        pytest.mark.skipif(not java(), reason="Spark needs Java, and there is none here"),
        pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
        pytest.mark.filterwarnings("ignore::ResourceWarning"),  # of py4j's sockets
    ]


@contextmanager
def cluster(folder: Path, workers: int = 2, memory: str = "600m", **options: Any) -> Iterator[Any]:
    """A session on a cluster of its own; `options` are Spark's, with `_` for a dot. Each worker has its own address."""
    import pyspark
    from pyspark.sql import SparkSession

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "log4j2.properties").write_text(QUIET)
    ours = [str(path) for path in (Path.cwd() / "src", *map(Path, sys.path)) if str(path) not in ("", ".")]
    environment = os.environ | {
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(ours),
        "PYTHONWARNINGS": "ignore",
        "SPARK_CONF_DIR": str(folder),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_WORKER_DIR": str(folder / "work"),
        "SPARK_LOCAL_DIRS": str(folder / "scratch"),
    }
    port = free_port()
    address = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        master = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port)]
        stack.enter_context(daemon(master, folder / "master.log", environment))
        wait(port)
        for number in range(1, workers + 1):
            worker = ["org.apache.spark.deploy.worker.Worker", "--host", f"127.0.0.{number}", "--cores", "1"]
            worker += ["--memory", memory, address]
            stack.enter_context(daemon(worker, folder / f"worker-{number}.log", environment))
        stack.enter_context(patch.dict(os.environ, environment | {"SPARK_LOCAL_IP": "127.0.0.1"}))
        wanted = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.memory": "700m",
            "spark.driver.host": "127.0.0.1",
            "spark.executor.memory": memory,
            "spark.executor.cores": "1",
            "spark.sql.shuffle.partitions": str(workers),
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
        } | {name.replace("_", "."): value for name, value in options.items()}
        builder = SparkSession.builder.master(address).appName("dissensus")
        for name, value in wanted.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        try:
            yield session
        finally:
            session.stop()
            stop_gateway()


@contextmanager
def daemon(arguments: list[str], log: Path, environment: dict[str, str]) -> Iterator[None]:
    """One process of Spark's, ended with us; web pages off any fixed port."""
    start = str(Path(environment["SPARK_HOME"]) / "bin" / "spark-class")
    with log.open("wb") as out:
        process = subprocess.Popen(
            [start, arguments[0], "--webui-port", "0", *arguments[1:]], stdout=out, stderr=out, env=environment
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


def stop_gateway() -> None:
    """End the driver's Java too: the next session may want another."""
    from pyspark import SparkContext

    gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(30)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait(port: int, seconds: float = 60) -> None:
    """Until somebody listens."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError(f"nobody listens on port {port} after {seconds} s.")
