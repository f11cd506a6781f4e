"""Dovetail: a distributed message queue for people who run Python and Spark.

import dovetail

async with dovetail.open("local:./data") as node:            or dovetail.connect("dovetail://127.0.0.1:9325")
    orders = await node.queue("orders")
    await orders.send(b"hello")
    for message in await orders.receive(max=10, wait_s=20):
        print(message.body)
        await message.complete()

Names are loaded when they are first used: a program that only imports the package, as pytest does for its plugin, pays nothing for a node,
and one that connects to a node takes no server along.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dovetail import blocking, errors, testing
    from dovetail.client import Client, connect
    from dovetail.node import Node, open
    from dovetail.service.handles import (
        ArrowBatch,
        Attribute,
        Batch,
        Consumer,
        Counts,
        Facts,
        FactsBatch,
        Happened,
        Message,
        Messages,
        Once,
        Outgoing,
        Peeked,
        Producer,
        Queue,
        Queues,
        Reservation,
        Sent,
        Stage,
        Tap,
        process_once,
    )

__version__ = "0.1.0"

__all__ = [
    "ArrowBatch",
    "Attribute",
    "Batch",
    "Client",
    "Consumer",
    "Counts",
    "Facts",
    "FactsBatch",
    "Happened",
    "Message",
    "Messages",
    "Node",
    "Once",
    "Outgoing",
    "Peeked",
    "Producer",
    "Queue",
    "Queues",
    "Reservation",
    "Sent",
    "Stage",
    "Tap",
    "blocking",
    "connect",
    "errors",
    "open",
    "process_once",
    "testing",
]

_MODULES = ("blocking", "errors", "testing")
_HOMES = {"Node": "dovetail.node", "open": "dovetail.node", "Client": "dovetail.client", "connect": "dovetail.client"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'dovetail' has no attribute {name!r}")
    if name in _MODULES:
        return import_module(f"dovetail.{name}")
    found = globals()[name] = getattr(import_module(_HOMES.get(name, "dovetail.service.handles")), name)
    return found


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
