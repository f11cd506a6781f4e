"""Spark's own Kafka source as a peer of ours: its jars, which the pip package does not bring, a broker for it, and a topic to read.

    CACHE/spark-kafka-4.2.0/    pom.xml · libs/*.jar

4.2.0 is the newest that was found; it runs on Spark 4.3.0. The jar that gets tokens for secured brokers was found as 4.0.0 only; brokers
here are not secured. Each is resolved alone: Spark brings the rest, and the jars' own descriptions name places that Maven may not reach.
`python -m dovetail.lab.sparkkafka` fetches them and says where they lie.
"""

from __future__ import annotations

import shutil
import sys
from importlib.util import find_spec
from typing import Any

from . import jars
from .child import result_of
from .driver import PeerMissing
from .engines import kafka
from .engines.kafka import KafkaServers
from .scenario import Lab

VERSION = "4.2.0"
PARTITIONS = 4
"""Two for each task that runs at a time. One for each task is no faster, and a single one is read by one task."""

_POM = jars.pom(
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{VERSION}",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
    alone=True,
)


def fetch() -> str:
    """Resolve them, unless they are there; returns what Spark wants as `spark.jars`."""
    place = jars.fetch("Spark's Kafka source", f"spark-kafka-{VERSION}", _POM)
    return ",".join(str(jar) for jar in sorted((place / "libs").iterdir()))


def present() -> bool:
    """These and the broker's were fetched already."""
    return kafka.present() and jars.cached(f"spark-kafka-{VERSION}").is_dir()


class Topics:
    """A broker for Spark to read from. What a child needs to know of a topic is JSON."""

    def __init__(self, lab: Lab) -> None:
        if find_spec("confluent_kafka") is None:
            raise PeerMissing("confluent-kafka is not installed (pip install 'dovetail[lab]')")
        self._lab = lab
        self._servers = KafkaServers(lab.folder / "kafka")
        self._jars = fetch()

    def start(self) -> str:
        self._servers.start()
        return kafka.VERSION

    async def filled(self, topic: str, messages: int) -> dict[str, Any]:
        """A topic of 100-byte messages, for sparkload.py."""
        servers = ",".join(f"127.0.0.1:{port}" for port in self._servers.ports)
        pushed = await result_of("dovetail.lab.kafkaload:fill", servers=servers, topic=topic, messages=messages, partitions=PARTITIONS)
        self._lab.say(f"{messages:,} pushed to Kafka, {pushed['per_s']:,.0f}/s")
        return {"jars": self._jars, "options": {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}}

    def stop(self) -> None:
        self._servers.stop()
        shutil.rmtree(self._lab.folder / "kafka", ignore_errors=True)


def beside(lab: Lab) -> Topics | None:
    """Started, for a scenario that measures it beside us; None, with a line that says why, where it cannot be had. A quick run fetches
    nothing."""
    try:
        if lab.quick and not present():
            raise PeerMissing("Kafka was not fetched yet, and a quick run does not: python -m dovetail.lab.sparkkafka")
        topics = Topics(lab)
        lab.peers["kafka"] = topics.start()
        lab.peers["spark-sql-kafka"] = VERSION
    except PeerMissing as missing:
        lab.say(str(missing))
        return None
    return topics


if __name__ == "__main__":
    try:
        print(f"Kafka {kafka.VERSION} lies in {kafka.fetch()}; Spark's source is {fetch()}")
    except PeerMissing as missing:
        print(missing, file=sys.stderr)
        sys.exit(1)
