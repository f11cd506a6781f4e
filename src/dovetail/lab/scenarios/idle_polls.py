"""Idle long polls: 10,000 receivers wait, each on a connection of its own, spread over 100 empty queues, and nothing arrives.

The node's processor time is told twice: while all of them wait (`waiting`), and over exactly one turn of 20 s in which every poll ends
with an empty answer and is asked again (`renewing`), which is what 10,000 idle consumers cost for as long as they live. Memory is what the
node has grown by. Meanwhile, on a queue of its own, a send meets one receiver that waits: `beyond_commit` is how long after the
answer to the send the receiver has the message.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Awaitable
from typing import Any

from ..child import Child, tell
from ..drivers.sqs import Node, make_queues
from ..httpload import Connection, Script, Tally, connect, now_ns, percentile
from ..process import cpu_s, resident_bytes
from ..scenario import SCENARIOS, Bar, Figures, Lab, Scenario
from ..sqswire import Wire, handles

QUEUES = 100
SETTLE_S = 1.0
"""From the last request that was written until the node has read them all."""
APART_S = 0.01
"""From when a receiver asks until a send follows: by then it waits."""


async def run(lab: Lab) -> Figures:
    polls, wait_s, sends = lab.size(10_000, 200), lab.size(20, 3), lab.size(500, 20)
    _allow_files(2 * polls)
    node = Node(lab.folder / "node")
    await node.start()
    try:
        url = await make_queues(node.port, QUEUES)
        wake_url = await make_queues(node.port, 1, prefix="wake")
        await asyncio.sleep(SETTLE_S)
        empty_bytes = resident_bytes(node.pid)
        arguments = {"port": node.port, "url": url, "polls": polls, "wait_s": wait_s, "wake_url": wake_url.format(0), "sends": sends}
        async with Child(f"{__name__}:poll", arguments) as child:
            opening_s = await child.told()
            # The first poll ends this much later than it began; until then, less a margin, all of them only wait.
            waiting_s = max(0.3, (wait_s - opening_s - SETTLE_S) * 0.8)
            lab.say(f"{polls:,} polls wait, {opening_s:.1f} s after the first")
            waiting = await _cpu_share(node, waiting_s)
            grown_bytes = resident_bytes(node.pid) - empty_bytes
            renewing = await _cpu_share(node, wait_s)
            lab.say(f"processor: {waiting:.2%} of a core waiting, {renewing:.2%} renewing; {grown_bytes / polls / 1024:.1f} KiB each")
            woken = {}
            async for kind, value in child.lines():
                if kind == "result":
                    woken = value
    finally:
        await node.stop()
    return {
        "polls": polls,
        "wait_s": wait_s,
        "queues": QUEUES,
        "opening_s": opening_s,
        "cpu_percent": {"waiting": waiting * 100, "renewing": renewing * 100},
        "bytes_each": grown_bytes / polls,
        **woken,
    }


def _allow_files(most: int) -> None:
    """A connection is a file on both sides; the node inherits what is allowed here."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < most and hard != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _cpu_share(node: Node, seconds: float) -> float:
    loop = asyncio.get_running_loop()
    began, before_s = loop.time(), cpu_s(node.pid)
    await asyncio.sleep(seconds)
    return (cpu_s(node.pid) - before_s) / (loop.time() - began)


async def poll(port: int, url: str, polls: int, wait_s: int, wake_url: str, sends: int) -> dict[str, Any]:
    """In a child: wait with all of them, tell it, and for two turns ask again whatever ends; then wake one again and again."""
    _allow_files(2 * polls)
    wire, tally = Wire(port), Tally()
    loop = asyncio.get_running_loop()
    requests = [wire.ask("ReceiveMessage", QueueUrl=url.format(number), WaitTimeSeconds=wait_s) for number in range(QUEUES)]
    began = loop.time()
    waiting = []
    for first in range(0, polls, QUEUES):
        connections = await connect(port, min(QUEUES, polls - first), tally)
        waiting += [connection.play(_polling(requests[number], tally)) for number, connection in enumerate(connections)]
    opening_s = loop.time() - began
    await asyncio.sleep(SETTLE_S)
    tell(opening_s)
    await asyncio.sleep(2 * wait_s)
    figures = await _woken(wire, wake_url, wait_s, sends, await connect(port, 2, tally))
    for one in waiting:
        if one.done():
            one.result()  # A poll never ends by itself: this raises what ended it.
    return {**figures, "polls_ended": tally.empty, "refused": tally.refused, "refusal": tally.refusal}


def _polling(request: bytes, tally: Tally) -> Script:
    while True:
        yield request
        tally.empty += 1


async def _woken(wire: Wire, url: str, wait_s: int, sends: int, connections: list[Connection]) -> dict[str, Any]:
    receiver, sender = connections
    receive = wire.ask("ReceiveMessage", QueueUrl=url, WaitTimeSeconds=wait_s)
    send = wire.ask("SendMessage", QueueUrl=url, MessageBody="x" * 100)
    sent_ns, received_ns, beyond_ns = [], [], []
    for _ in range(sends):
        waiting = asyncio.ensure_future(_timed(receiver.ask(receive)))
        await asyncio.sleep(APART_S)
        began = now_ns()
        (_, acked), (answer, received) = await asyncio.gather(_timed(sender.ask(send)), waiting)
        sent_ns.append(acked - began)
        received_ns.append(received - began)
        beyond_ns.append(received - acked)
        (handle,) = handles(answer)
        await receiver.ask(wire.ask("DeleteMessage", QueueUrl=url, ReceiptHandle=handle.decode()))
    named = {"send": sent_ns, "send_to_received": received_ns, "beyond_commit": beyond_ns}
    return {f"{name}_p{percent}_ms": percentile(sorted(values), percent) / 1e6 for name, values in named.items() for percent in (50, 99)}


async def _timed(asked: Awaitable[bytes]) -> tuple[bytes, int]:
    """The answer, and when it came."""
    return await asked, now_ns()


SCENARIO = Scenario(
    "idle-polls",
    SCENARIOS["idle-polls"],
    [
        Bar("processor while 10,000 wait, per cent of a core", "cpu_percent.waiting", most=2),
        Bar("memory of a waiting poll with its connection, bytes", "bytes_each", most=10_240),
        Bar("a send reaches a waiting receiver, p50 beyond the commit, milliseconds", "beyond_commit_p50_ms", most=2),
        Bar("requests refused", "refused", most=0),
    ],
    run,
)
