"""One node in memory and one Spark session for all tests of this room; the session only where a test asks for it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'dovetail[spark]'")

from tests.spark.house import ROOT, Node

_names = count()


@pytest.fixture(scope="session")
def shared_node() -> Iterator[Node]:
    node = Node().start()
    yield node
    node.stop()


@pytest.fixture
def node(shared_node: Node) -> Node:
    return shared_node


@pytest.fixture
def queue() -> str:
    """A name that no other test has."""
    return f"queue-{next(_names)}"


@pytest.fixture
def local_node(tmp_path: Path) -> Iterator[Node]:
    node = Node(f"local:{tmp_path / 'data'}").start()
    yield node
    node.stop()


@pytest.fixture
def spark(spark_session: Any) -> Iterator[Any]:
    """The session of all tests. What a test has begun ends with it: a follower that stayed would release what a later test means to read
    again, since taps of the same name are the same to it."""
    yield spark_session
    for query in spark_session.streams.active:
        query.stop()
    streams = spark_session._jsparkSession.streams()
    for listener in streams.listListeners():
        streams.removeListener(listener)


@pytest.fixture(scope="session")
def spark_session() -> Iterator[Any]:
    import dovetail.spark

    # Workers unpickle what tests define.
    os.environ["PYTHONPATH"] = f"{ROOT}:{ROOT / 'src'}"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "1",
        "spark.default.parallelism": "1",
        "spark.log.level": "OFF",
        # Python and the JVM meet at a socket for each result, within fifteen seconds: too few on a machine that does much else.
        "spark.python.authenticate.socketTimeout": "600s",
    }
    session = dovetail.spark.session("tests", master="local[2]", settings=settings)
    yield session
    session.stop()
