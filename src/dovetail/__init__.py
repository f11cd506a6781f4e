"""Dovetail: a distributed message queue for people who run Python and Spark.

import dovetail

async with dovetail.open("local:./data") as node:
    orders = await node.queue("orders")
    await orders.send(b"hello")
    for message in await orders.receive(max=10, wait_s=20):
        print(message.body)
        await message.complete()

Names are loaded when they are first used: a program that only imports the package, as pytest does for its plugin, pays nothing for a node.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dovetail import blocking, errors, testing
    from dovetail.node import Node, open
    from dovetail.service.handles import Attribute, Batch, Counts, Message, Outgoing, Peeked, Producer, Queue, Sent, Tap

__version__ = "0.1.0"

__all__ = [
    "Attribute",
    "Batch",
    "Counts",
    "Message",
    "Node",
    "Outgoing",
    "Peeked",
    "Producer",
    "Queue",
    "Sent",
    "Tap",
    "blocking",
    "errors",
    "open",
    "testing",
]

_MODULES = ("blocking", "errors", "testing")
_NODE = ("Node", "open")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'dovetail' has no attribute {name!r}")
    if name in _MODULES:
        return import_module(f"dovetail.{name}")
    found = globals()[name] = getattr(import_module("dovetail.node" if name in _NODE else "dovetail.service.handles"), name)
    return found


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
