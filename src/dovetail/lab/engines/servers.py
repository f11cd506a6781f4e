"""Servers of one engine as processes of ours, each with a number from 0: started, killed, paused and started again on what it kept.

    FOLDER/  n1.out (what the first one says) · n2.out · …

Who starts them stops them; unless they are told to stay they also die with the thread that started them, so start them in one that lasts.
This file knows no engine.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..driver import PeerMissing

NODES_MAX = 9
READY_S = 120.0
_APART_S = 0.05
_SETPRIV = ("setpriv", "--pdeathsig", "KILL", "--")


class Servers(ABC):
    """`kill`, `pause` and `restart` name a server by its number."""

    name: str
    title: str

    def __init__(self, folder: Path, nodes: int, *, stay: bool) -> None:
        if not 1 <= nodes <= NODES_MAX:
            raise ValueError(f"{nodes} servers; 1 to {NODES_MAX} are allowed")
        self._folder = folder
        self._stay = stay
        self._processes: list[subprocess.Popen[bytes] | None] = [None] * nodes
        self.ports: list[int] = []

    @abstractmethod
    def _prepared(self, number: int) -> Sequence[str]:
        """Its files are there; the command that starts it."""

    @abstractmethod
    def _serves(self, number: int) -> bool:
        """It would answer a client now."""

    @property
    def url(self) -> str:
        """Of all servers, without a namespace: `nats://127.0.0.1:4222,127.0.0.1:4223`."""
        return f"{self.name}://" + ",".join(f"127.0.0.1:{port}" for port in self.ports)

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes if process is not None]

    @property
    def running(self) -> list[int]:
        """The numbers of those that were started and not killed; a paused one is among them."""
        return [number for number, process in enumerate(self._processes) if process is not None]

    def start(self) -> str:
        """Start all of them; returns the URL when all are ready."""
        try:
            for number in range(len(self._processes)):
                self.restart(number, wait=False)
            self.wait_ready()
        except BaseException:
            self.stop()
            raise
        return self.url

    def restart(self, number: int, *, wait: bool = True) -> None:
        """Start one that does not run, on the ports and the data that it had."""
        (self._folder / f"n{number + 1}").mkdir(parents=True, exist_ok=True)
        command = self._prepared(number)
        if not self._stay and shutil.which(_SETPRIV[0]) is not None:
            command = (*_SETPRIV, *command)
        with open(self._words(number), "ab") as words:
            self._processes[number] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=words, stderr=words, env=self._environment(), start_new_session=self._stay
            )
        if wait:
            self.wait_ready()

    def _environment(self) -> Mapping[str, str]:
        return os.environ

    def wait_ready(self) -> None:
        """Until every server that runs serves; in a cluster that takes a leader, which the servers elect among themselves."""
        deadline = time.monotonic() + READY_S
        for number in self.running:
            process = self._processes[number]
            while process is not None and not self._serves(number):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise PeerMissing(f"the {self.title} server {number + 1} did not start: {self._last_words(number)}")
                time.sleep(_APART_S)

    def _words(self, number: int) -> Path:
        return self._folder / f"n{number + 1}.out"

    def _last_words(self, number: int) -> str:
        """Of what it said at the end, without the lines that tell where in its code it was."""
        lines = [line for line in self._words(number).read_text(errors="replace").splitlines() if line.strip() and not line[0].isspace()]
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
