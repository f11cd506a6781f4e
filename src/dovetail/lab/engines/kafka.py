"""Kafka on free ports of the loopback, from jars: one node, or several that are one cluster. Each is broker and controller (KRaft).

    FOLDER/  n1.properties · n1.out · n1/ (what the node keeps) · n2.properties · … · log4j2.properties

    CACHE/kafka-4.1.1/    pom.xml · libs/*.jar

A node is ready when it names all nodes that run as its cluster's brokers, which takes a controller, which they elect among themselves.
`python -m dovetail.lab.engines.kafka` fetches the jars and says where they lie.

The page of metadata is asked for here by hand, in the oldest form that 4.x still speaks, so that an engine can be started where no client
is installed:

    request   | size u32 | api u16 = 3 | version u16 = 1 | number u32 | client: no text, u16 = −1 | topics: none, u32 = 0 |
    answer    | size u32 | number u32 | brokers u32 | node u32 · host u16 + text · port u32 · rack u16 + text … | controller u32 | …
"""

from __future__ import annotations

import base64
import shutil
import socket
import subprocess
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from struct import Struct
from struct import error as struct_error

from .. import jars
from ..driver import PeerMissing
from ..drivers.spawned import free_ports
from .servers import Servers

VERSION = "4.1.1"
HEAP_MB = 512
MESSAGE_BYTES_MAX = 2 * 1024 * 1024
"""The brokers' own default is 1 MiB, which is less than the largest legal message takes."""
SESSION_MS = 3000
_FORMAT_S = 120
_ANSWER_S = 5.0
_ANSWER_BYTES_MAX = 1 << 20
_LOGGING = "2.24.3"

# The published jars bring no logging binding; the release as a tarball does.
_POM = jars.pom(
    f"org.apache.kafka:kafka_2.13:{VERSION}",
    f"org.apache.logging.log4j:log4j-slf4j-impl:{_LOGGING}",
    f"org.apache.logging.log4j:log4j-core:{_LOGGING}",
    f"org.apache.logging.log4j:log4j-1.2-api:{_LOGGING}",
)
_LOG4J = """\
rootLogger.level = WARN
rootLogger.appenderRef.c.ref = C
appender.c.type = Console
appender.c.name = C
appender.c.layout.type = PatternLayout
appender.c.layout.pattern = %d %p %c %m%n
"""
_JVM = "-XX:+UseG1GC -XX:MaxGCPauseMillis=20 -XX:+ExplicitGCInvokesConcurrent -Djava.awt.headless=true".split()

_ASKED = Struct(">ihhihi").pack(14, 3, 1, 1, -1, 0)
_SIZE = Struct(">i")
_TEXT = Struct(">h")


def folder() -> Path:
    return jars.cached(f"kafka-{VERSION}")


def present() -> bool:
    """It was fetched already and there is a Java to run it."""
    return folder().is_dir() and shutil.which("java") is not None


def fetch() -> Path:
    """Resolve it, unless it is there."""
    return jars.fetch("Kafka", folder().name, _POM)


class KafkaServers(Servers):
    name = "kafka"
    title = "Kafka"

    def __init__(
        self, folder: Path, nodes: int = 1, *, sync_always: bool = False, stay: bool = False, session_ms: int = SESSION_MS
    ) -> None:
        """`sync_always`: the brokers sync each message to disk before they answer, which by themselves they never do. `session_ms`: one
        that says nothing for so long leads nothing any more, whether it died or the machine is busy."""
        super().__init__(folder, nodes, stay=stay)
        self._session_ms = session_ms
        self._sync_always = sync_always
        self._java = ""
        self._jars = Path()
        ports = free_ports(2 * nodes)
        self.ports, self._controller_ports = ports[:nodes], ports[nodes:]
        self._cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")

    def start(self) -> str:
        self._java = shutil.which("java") or ""
        if not self._java:
            raise PeerMissing("Kafka needs java, which is not installed (apt-get install default-jre-headless)")
        self._jars = fetch() / "libs" / "*"
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "log4j2.properties").write_text(_LOG4J)
        self._format()
        return super().start()

    def _command(self, *arguments: str) -> Sequence[str]:
        return (self._java, f"-Dlog4j2.configurationFile={self._folder / 'log4j2.properties'}", "-cp", str(self._jars), *arguments)

    def _format(self) -> None:
        """Kafka starts on no folder that was not made for its cluster. One that was made before stays as it is."""
        formatting = []
        for number in range(len(self.ports)):
            (self._folder / f"n{number + 1}").mkdir(parents=True, exist_ok=True)
            config = self._config(number)
            # In one word: an id may begin as an option does.
            arguments = ("kafka.tools.StorageTool", "format", "--ignore-formatted", f"--cluster-id={self._cluster}", "-c", str(config))
            with open(self._words(number), "ab") as words:
                formatting.append(subprocess.Popen(self._command(*arguments), stdin=subprocess.DEVNULL, stdout=words, stderr=words))
        try:
            for number, process in enumerate(formatting):
                if process.wait(_FORMAT_S):
                    raise PeerMissing(f"the folder of Kafka's server {number + 1} could not be made: {self._last_words(number)}")
        except subprocess.TimeoutExpired:
            raise PeerMissing(f"the folders of Kafka's servers could not be made in {_FORMAT_S} s") from None
        finally:
            for process in formatting:
                process.kill()
                process.wait()

    def _prepared(self, number: int) -> Sequence[str]:
        heap = (f"-Xms{HEAP_MB}m", f"-Xmx{HEAP_MB}m")
        java, *rest = self._command("kafka.Kafka", str(self._config(number)))
        return (java, *heap, *_JVM, *rest)

    def _config(self, number: int) -> Path:
        """Three copies where there are nodes for them, and one of them may be missing."""
        copies = min(3, len(self.ports))
        in_sync = max(1, copies - 1)
        voters = ",".join(f"{voter}@127.0.0.1:{port}" for voter, port in enumerate(self._controller_ports))
        settings = {
            "process.roles": "broker,controller",
            "node.id": number,
            "controller.quorum.voters": voters,
            "listeners": f"PLAINTEXT://127.0.0.1:{self.ports[number]},CONTROLLER://127.0.0.1:{self._controller_ports[number]}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.ports[number]}",
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": self._folder / f"n{number + 1}",
            "num.network.threads": 2,
            "num.io.threads": 4,
            "default.replication.factor": copies,
            "min.insync.replicas": in_sync,
            "unclean.leader.election.enable": "false",
            "auto.create.topics.enable": "false",
            "message.max.bytes": MESSAGE_BYTES_MAX,
            "replica.fetch.max.bytes": MESSAGE_BYTES_MAX,
            "offsets.topic.num.partitions": 4,
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.num.partitions": 4,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": in_sync,
            "group.initial.rebalance.delay.ms": 0,
            "broker.session.timeout.ms": self._session_ms,
            "broker.heartbeat.interval.ms": 500,
        }
        if self._sync_always:
            settings["log.flush.interval.messages"] = 1
        config = self._folder / f"n{number + 1}.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return config

    def _serves(self, number: int) -> bool:
        try:
            return brokers(self.ports[number]) >= {self.ports[running] for running in self.running}
        except OSError:
            return False


def brokers(port: int) -> set[int]:
    """The ports of the brokers that the node at this one knows to be alive; none where what answers is not a node yet."""
    with socket.create_connection(("127.0.0.1", port), _ANSWER_S) as line, line.makefile("rb") as answers:
        line.sendall(_ASKED)
        head = answers.read(_SIZE.size)
        size = _SIZE.unpack(head)[0] if len(head) == _SIZE.size else 0
        data = answers.read(size) if 0 < size <= _ANSWER_BYTES_MAX else b""
    found = set()
    try:
        at = 8
        for _ in range(_SIZE.unpack_from(data, 4)[0]):
            at = _behind_text(data, at + 4)
            found.add(int(_SIZE.unpack_from(data, at)[0]))
            at = _behind_text(data, at + 4)
    except struct_error:
        return set()
    return found


def _behind_text(data: bytes, at: int) -> int:
    return int(at + 2 + max(0, _TEXT.unpack_from(data, at)[0]))


if __name__ == "__main__":
    try:
        print(f"Kafka {VERSION} lies in {fetch()}")
    except PeerMissing as missing:
        print(missing, file=sys.stderr)
        sys.exit(1)
