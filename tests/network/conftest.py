"""Hosts of our own on one machine: network namespaces, each with a cable to a common switch. Nothing leaves the machine.

They want root and iproute2. At home the tests are skipped without them, and say so; in CI that is a failure.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator

import pytest

SUBNET = "10.77.0"


class Host:
    """A namespace with an address or several."""

    def __init__(self, name: str, *addresses: str) -> None:
        self.name = name
        self.addresses = list(addresses)

    def command(self, *arguments: str) -> list[str]:
        """The command, to be run there."""
        return ["ip", "netns", "exec", self.name, *arguments]

    def lose(self, address: str) -> None:
        ip("-n", self.name, "addr", "del", f"{address}/24", "dev", "eth0")
        self.addresses.remove(address)


class Network:
    """A switch in a namespace of its own, and the hosts behind it."""

    def __init__(self) -> None:
        self._mark = secrets.token_hex(3)
        self._made: list[str] = []
        self._switch = self._namespace("switch")
        ip("-n", self._switch, "link", "add", "br0", "type", "bridge")
        ip("-n", self._switch, "link", "set", "br0", "up")

    def _namespace(self, name: str) -> str:
        made = f"dvt-{self._mark}-{name}"
        ip("netns", "add", made)
        self._made.append(made)
        ip("-n", made, "link", "set", "lo", "up")
        return made

    def host(self, name: str, *addresses: str) -> Host:
        space, port = self._namespace(name), f"p{len(self._made)}"
        ip("-n", self._switch, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", space)
        ip("-n", self._switch, "link", "set", port, "master", "br0", "up")
        for address in addresses:
            ip("-n", space, "addr", "add", f"{address}/24", "dev", "eth0")
        ip("-n", space, "link", "set", "eth0", "up")
        # Otherwise all addresses of a subnet go with the first of them.
        ip("netns", "exec", space, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/conf/eth0/promote_secondaries")
        return Host(space, *addresses)

    def close(self) -> None:
        for name in reversed(self._made):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@pytest.fixture
def network() -> Iterator[Network]:
    missing = "iproute2 is not installed" if shutil.which("ip") is None else "" if os.geteuid() == 0 else "network namespaces want root"
    if missing:
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    made = Network()
    try:
        yield made
    finally:
        made.close()
