"""RabbitMQ as a peer: Debian's, on free ports of the loopback, with a data folder and a cookie of its own and no plugins. One broker, or
several that are one cluster.

    FOLDER/  rabbitmq.conf · plugins · .erlang.cookie · mnesia/BROKER/ (queues, too) · log/ · n1.out · … · epmd.out

Erlang wants a name server, epmd, which by itself stays behind for ever and listens on every interface; here it is a process of ours, on the
loopback and on a port of its own, and leaves with the brokers. A broker is ready when an AMQP connection opens, which one of a cluster lets
happen after it has joined.

What the broker waits for was seen by counting its system calls (3.10.8, 400 messages, one at a time): a classic queue syncs before each
confirm and never for an ack; a quorum queue syncs before each confirm, and before it takes an ack for done and delivers the next. Classic
queues of version 2 are faster at sending, but confirm without any sync, and are no peer for durable messages.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
from pathlib import Path

from ..amqpwire import Line, Refused
from ..driver import PeerMissing
from ..scenario import Lab
from .spawned import READY_S, Spawned, free_ports, required

BIN = "/usr/lib/rabbitmq/bin"
"""The broker's own script; the one on the PATH would become another user and use that user's folders."""


def present() -> bool:
    return shutil.which("rabbitmq-server", path=BIN) is not None


class RabbitMq:
    name = "rabbitmq"

    def __init__(self, folder: Path, nodes: int = 1) -> None:
        self._folder = folder
        self._nodes = nodes
        self._processes: list[Spawned] = []
        self.ports: list[int] = []

    @property
    def port(self) -> int:
        """Of the first one."""
        return self.ports[0] if self.ports else 0

    @property
    def pid(self) -> int:
        return self._processes[1].pid if len(self._processes) > 1 else 0

    @property
    def pids(self) -> list[int]:
        """With the name server."""
        return [one.pid for one in self._processes]

    async def start(self) -> str:
        server, epmd = required("rabbitmq-server", "rabbitmq-server", BIN), required("epmd", "erlang-base")
        ports = free_ports(1 + 2 * self._nodes)
        names, self.ports, between_nodes = ports[0], ports[1 : 1 + self._nodes], ports[1 + self._nodes :]
        environment = self._prepared(names)
        try:
            self._processes.append(Spawned("epmd", [epmd, "-port", str(names), "-address", "127.0.0.1"], self._folder, environment))
            for number, (port, between) in enumerate(zip(self.ports, between_nodes, strict=True), 1):
                own = {"RABBITMQ_NODENAME": _node(port), "RABBITMQ_NODE_PORT": str(port), "RABBITMQ_DIST_PORT": str(between)}
                self._processes.append(Spawned(f"n{number}", [server], self._folder, environment | own))
            deadline = asyncio.get_running_loop().time() + READY_S
            return (await asyncio.gather(*[self._ready(number, deadline) for number in range(self._nodes)]))[0]
        except BaseException:
            await self.stop()  # A server that nobody holds would outlive us.
            raise

    def _prepared(self, names: int) -> dict[str, str]:
        """The folder is filled; what every broker finds in its environment."""
        self._folder.mkdir(parents=True, exist_ok=True)
        cookie = self._folder / ".erlang.cookie"
        cookie.write_text(secrets.token_hex(20))
        cookie.chmod(0o400)
        config = ["log.console.level = error", "log.file = false"]
        if self._nodes > 1:
            config.append("cluster_formation.peer_discovery_backend = classic_config")
            config += [f"cluster_formation.classic_config.nodes.{number} = {_node(port)}" for number, port in enumerate(self.ports, 1)]
        (self._folder / "rabbitmq.conf").write_text("\n".join(config) + "\n")
        (self._folder / "plugins").write_text("[].\n")
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith(("RABBITMQ_", "ERL_"))},
            "HOME": str(self._folder),
            "ERL_EPMD_PORT": str(names),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_CRASH_DUMP_SECONDS": "0",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "RABBITMQ_CONF_ENV_FILE": str(self._folder / "none"),
            "RABBITMQ_CONFIG_FILE": str(self._folder / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self._folder / "plugins"),
            "RABBITMQ_MNESIA_BASE": str(self._folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self._folder / "log"),
            # Its script becomes the broker then, so that the process we hold is the one that works.
            "RUNNING_UNDER_SYSTEMD": "true",
        }

    async def _ready(self, number: int, deadline: float) -> str:
        while True:
            try:
                line = Line(self.ports[number])
                line.close()
                return line.version
            except (OSError, Refused):
                await self._processes[1 + number].wait_or_fail(deadline)

    async def stop(self) -> None:
        while self._processes:
            await self._processes.pop().kill()
        # What the broker started ends when it sees its pipe closed, and may write until then.
        for _ in range(600):
            shutil.rmtree(self._folder, ignore_errors=True)
            if not self._folder.exists():
                return
            await asyncio.sleep(0.05)


def _node(port: int) -> str:
    return f"dovetail-lab-{port}@localhost"


async def beside(lab: Lab, nodes: int = 1) -> RabbitMq | None:
    """Started, for a scenario that measures it beside us; None, with a line that says why, where it cannot be had."""
    server = RabbitMq(lab.folder / "rabbitmq", nodes)
    try:
        lab.peers[server.name] = await server.start()
    except PeerMissing as missing:
        lab.say(str(missing))
        return None
    return server
