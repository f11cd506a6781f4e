"""`ENGINE://[USER:PASSWORD@]HOST:PORT[,HOST:PORT…]/NAMESPACE[?replicas=N][&synced=yes][&logs=N]` taken apart.

| | means | unless given |
| --- | --- | --- |
| NAMESPACE | whose log it is: nodes of one namespace share everything, others nothing | dovetail |
| replicas | copies of the log, when it is made here | 3 where the cluster has three servers, else 1 |
| synced | `yes`: the operator declares that every server syncs before it answers, so that answers may say disk | no |
| logs | over how many logs the namespace spreads its queues; never changes | what it was made with, or 1 |
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

from ...errors import BadRequest
from ...limits import LOGS_MAX

NAMESPACE = re.compile(r"[A-Za-z0-9_-]{1,64}")
REPLICAS = ("1", "3", "5")


class Place(NamedTuple):
    engine: str
    """The scheme of its URL."""
    hosts: tuple[str, ...]
    """HOST:PORT, one or more."""
    credentials: str
    """USER:PASSWORD for all of them, or nothing."""
    namespace: str
    replicas: int
    """0: as the cluster has servers."""
    synced: bool
    logs: int = 0
    """0: as the namespace was made."""

    @property
    def shown(self) -> str:
        """Without the password."""
        return f"{self.engine}://{','.join(self.hosts)}/{self.namespace}"

    def copies(self, servers: int) -> int:
        """How many copies a log gets that is made where so many servers are known. Those that are named are meant, also where one of them
        is not there yet."""
        return self.replicas or (3 if max(servers, len(self.hosts)) >= 3 else 1)

    def durability(self, copies: int) -> str:
        """What an answer may name. Engines answer from the memories of a majority, unless the operator has declared more."""
        kind = "disk" if self.synced else "memory"
        return f"{kind}×3" if copies >= 3 else kind


def place_of(url: str, port: int = 0) -> Place:
    """`port` is where a server listens unless the URL says otherwise."""
    parts = urlsplit(url)
    credentials, _, hosts = parts.netloc.rpartition("@")
    named = []
    for host in hosts.split(","):
        host = host.rpartition("@")[2]
        if not re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^\s:\[\]/]+)(:\d{1,5})?", host):
            raise BadRequest(f"{host!r} is no HOST:PORT of a server")
        named.append(host if re.search(r":\d+$", host) else f"{host}:{port}")
    namespace = parts.path.strip("/") or "dovetail"
    if not NAMESPACE.fullmatch(namespace):
        raise BadRequest(f"{namespace!r} is no namespace: 1 to 64 letters, digits, - and _")
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    replicas, synced = given.pop("replicas", "0"), given.pop("synced", "no")
    if replicas not in ("0", *REPLICAS):
        raise BadRequest(f"replicas={replicas}: must be {', '.join(REPLICAS)}")
    if synced not in ("yes", "no"):
        raise BadRequest(f"synced={synced}: must be yes or no")
    logs = given.pop("logs", "")
    if logs and not (logs.isdecimal() and 1 <= int(logs) <= LOGS_MAX):
        raise BadRequest(f"logs={logs}: must be 1 to {LOGS_MAX}")
    if given:
        raise BadRequest(f"{', '.join(given)}: a {parts.scheme}:// store takes replicas, synced and logs")
    return Place(parts.scheme, tuple(named), credentials, namespace, int(replicas), synced == "yes", int(logs or 0))
