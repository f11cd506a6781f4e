"""Loads on an SQS endpoint, played by a process of their own. Every server gets the same bytes.

    send             every connection sends its share of the messages, to its queues in turn
    receive_delete   every connection receives and deletes its share from the same queues in the same turn; one receive and the
                     delete of what it brought are one operation, and its time is that of both

So a `send` leaves exactly what a `receive_delete` of the same size finds, however many queues they go over.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from .child import result_of
from .httpload import Script, Tally, now_ns, percentile, play
from .process import cpu_s
from .sqswire import Keys, Wire, handles

SEND, TAKE = "send", "receive_delete"
OPERATIONS = (SEND, TAKE)
BODY = "x" * 100
_HANDLES_PER_BATCH_MAX = 10


@dataclass(frozen=True, slots=True)
class Load:
    """What is played. `url` is the URL of a queue with `{}` for its number."""

    port: int
    url: str
    messages: int
    connections: int = 64
    batch: int = 1
    queues: int = 1
    groups: int = 0
    """FIFO: the messages go to so many groups in turn. 0 is a standard queue."""
    tenant: str = ""
    """Standard queues: the group that every message names, where it names one."""
    keys: tuple[str, str] | None = None
    """Access key and secret; every request is signed with them."""
    pid: int = 0
    """The server's process, where it is to be told what it used."""
    seconds_max: float = 60.0
    """No operation begins later, for servers that would need hours."""

    def over(self, queues: int) -> Load:
        return replace(self, queues=queues)

    def of(self, messages: int) -> Load:
        return replace(self, messages=messages)

    def signed(self, keys: Keys) -> Load:
        return replace(self, keys=(keys.access, keys.secret))

    def share(self, connection: int) -> int:
        """How many of the messages are this connection's: whole batches, the last one perhaps smaller."""
        batches = -(-self.messages // self.batch)
        mine = batches // self.connections + (connection < batches % self.connections)
        short = self.messages % self.batch
        last = connection == (batches - 1) % self.connections
        return mine * self.batch - (self.batch - short if short and last else 0)

    def urls(self, connection: int) -> list[str]:
        numbers = range(connection % self.queues, self.queues, self.connections)
        return [self.url.format(number) for number in numbers]

    def wire(self) -> Wire:
        return Wire(self.port, Keys(*self.keys) if self.keys is not None else None)

    async def played(self, operations: Sequence[str] = OPERATIONS) -> dict[str, dict[str, Any]]:
        """Operation → what came of it, in a process that is there for them alone."""
        return dict(await result_of(f"{__name__}:play_load", operations=list(operations), load=asdict(self)))


async def play_load(operations: Sequence[str], load: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """In a child."""
    return {operation: await _played(Load(**load), operation) for operation in operations}


async def _played(load: Load, operation: str) -> dict[str, Any]:
    wire, tally = load.wire(), Tally()
    script = _sending if operation == SEND else _taking
    end_ns = now_ns() + round(load.seconds_max * 1e9)
    client_s, server_s = time.process_time(), cpu_s(load.pid) if load.pid else 0.0
    seconds = await play(load.port, load.connections, lambda number, tally: script(load, wire, number, end_ns, tally), tally)
    client_s, server_s = time.process_time() - client_s, (cpu_s(load.pid) if load.pid else 0.0) - server_s
    ordered = sorted(tally.took_ns)
    return {
        "messages": tally.messages,
        "seconds": seconds,
        "per_s": tally.messages / seconds,
        "p50_us": percentile(ordered, 50) / 1000,
        "p99_us": percentile(ordered, 99) / 1000,
        "empty": tally.empty,
        "refused": tally.refused,
        "refusal": tally.refusal,
        "server_cpu_us": server_s / max(1, tally.messages) * 1e6,
        "client_cpu_share": client_s / seconds,
    }


def _sending(load: Load, wire: Wire, connection: int, end_ns: int, tally: Tally) -> Script:
    left, note = load.share(connection), tally.took_ns.append
    requests = _sends(load, wire, connection)
    while left > 0 and (began := now_ns()) < end_ns:
        answer = yield next(requests)
        note(now_ns() - began)
        # A batch is answered 200 even where entries of it are refused.
        if b'"Failed":[{' in answer:
            tally.refuse(answer)
        tally.messages += min(load.batch, left)
        left -= load.batch


def _sends(load: Load, wire: Wire, connection: int) -> Iterator[bytes]:
    """Without end. What goes to standard queues is made beforehand; a FIFO queue wants an id and a group of each message."""
    urls = load.urls(connection)
    action = "SendMessage" if load.batch == 1 else "SendMessageBatch"
    if not load.groups:
        member = f',"MessageGroupId":"{load.tenant}"' if load.tenant else ""
        made = [wire.request(action, _send(url, [member] * load.batch)) for url in urls]
        while True:
            yield from made
    unique, number = f"{time.time_ns():x}-{connection}", connection
    while True:
        for url in urls:
            members = []
            for _ in range(load.batch):
                members.append(f',"MessageGroupId":"g{number % load.groups}","MessageDeduplicationId":"{unique}-{number}"')
                number += load.connections
            yield wire.request(action, _send(url, members))


def _send(url: str, members: list[str]) -> bytes:
    if len(members) == 1:
        return f'{{"QueueUrl":"{url}","MessageBody":"{BODY}"{members[0]}}}'.encode()
    entries = ",".join([f'{{"Id":"{index}","MessageBody":"{BODY}"{one}}}' for index, one in enumerate(members)])
    return f'{{"QueueUrl":"{url}","Entries":[{entries}]}}'.encode()


def _taking(load: Load, wire: Wire, connection: int, end_ns: int, tally: Tally) -> Script:
    left, note, turn = load.share(connection), tally.took_ns.append, 0
    urls = load.urls(connection)
    most = min(load.batch, _HANDLES_PER_BATCH_MAX)
    receives = [wire.request("ReceiveMessage", f'{{"QueueUrl":"{url}","MaxNumberOfMessages":{most}}}'.encode()) for url in urls]
    action = "DeleteMessage" if most == 1 else "DeleteMessageBatch"
    single = [f'{{"QueueUrl":"{url}","ReceiptHandle":"%b"}}'.encode() for url in urls]
    several = [f'{{"QueueUrl":"{url}","Entries":[%b]}}'.encode() for url in urls]
    vain = 0
    while left > 0 and vain < len(urls) and (began := now_ns()) < end_ns:
        index = turn % len(urls)
        turn += 1
        found = handles((yield receives[index]))
        if not found:
            tally.empty += 1
            vain += 1
            continue
        vain = 0
        if most == 1:
            yield wire.request(action, single[index] % found[0])
        else:
            entries = b",".join([b'{"Id":"%d","ReceiptHandle":"%b"}' % pair for pair in enumerate(found)])
            answer = yield wire.request(action, several[index] % entries)
            if b'"Failed":[{' in answer:
                tally.refuse(answer)
        note(now_ns() - began)
        tally.messages += len(found)
        left -= len(found)
