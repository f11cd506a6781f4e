"""Dovetail: a distributed message queue for people who run Python and Spark.

import dovetail

async with dovetail.open("local:./data") as node:
    orders = await node.queue("orders")
    await orders.send(b"hello")
    for message in await orders.receive(max=10, wait_s=20):
        print(message.body)
        await message.complete()
"""

from __future__ import annotations

from dovetail import blocking, errors
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
]
