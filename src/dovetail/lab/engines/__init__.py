"""Real engines on this machine's loopback, from packages: for tests, for examples, and for people who want to see one work."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from .kafka import KafkaServers
from .nats import NatsServers


class Engine(Protocol):
    """What can be done with every engine. Its servers have numbers from 0."""

    @property
    def name(self) -> str: ...

    @property
    def url(self) -> str: ...

    @property
    def pids(self) -> list[int]: ...

    def start(self) -> str:
        """Start all servers; returns the URL when all of them serve."""

    def stop(self) -> None: ...

    def kill(self, number: int) -> None:
        """kill −9."""

    def pause(self, number: int) -> None: ...

    def resume(self, number: int) -> None: ...

    def restart(self, number: int, *, wait: bool = True) -> None:
        """Start one that does not run, on the ports and the data that it had."""

    def wait_ready(self) -> None:
        """Until every server that runs serves."""


class Maker(Protocol):
    def __call__(self, folder: Path, nodes: int = 1, *, sync_always: bool = False, stay: bool = False) -> Engine:
        """`sync_always`: servers sync to disk before they answer. `stay`: they go on when this process ends."""


ENGINES: Mapping[str, Maker] = {"kafka": KafkaServers, "nats": NatsServers}
