"""A node that speaks the native protocol and keeps nothing: for trying what loads send, and what they make of answers cut anywhere.

It runs in a thread of its own, because loads greet with plain blocking calls.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from dovetail.core import codec
from dovetail.core.column import Column
from dovetail.doors.native import answers, requests
from dovetail.doors.native.codec import Frame, Hello, Kind, Reader, Rules
from dovetail.errors import NoSuchQueue

WELCOME = answers.Welcome(
    bytes(32), bytes(16), 0, 1 << 22, 1 << 20, 10_000, 1024, 10_000, 120_000, 1, "000000000000", "default", "disk", "fake", "0", []
)


@dataclass
class Waiting:
    rules: Rules
    first: int = 1
    bodies: list[bytes] = field(default_factory=list)
    stored: list[bytes] = field(default_factory=list)
    """Everything that was ever pushed, for taps; sequences begin at 1."""


class FakeNode:
    def __init__(self, cut: int = 1 << 20, runs: int = 1 << 20, refuse: bytes = b"") -> None:
        self.cut = cut
        self.runs = runs
        """The longest run that it hands out."""
        self.refuse = refuse
        self.read_max = 1 << 20
        self.queues: dict[str, int] = {}
        self.waiting: dict[int, Waiting] = {}
        self.leased: dict[tuple[int, int], bytes] = {}
        self.asked: Counter[str] = Counter()
        self.port = 0

    def answer(self, request: requests.Request) -> list[answers.Answer]:
        match request:
            case requests.Declare(name, rules):
                queue = self.queues.setdefault(name, len(self.queues) + 1)
                self.waiting.setdefault(queue, Waiting(rules))
                return [answers.Opened(queue, rules)]
            case requests.Push(record):
                push = codec.decode_push(record)
                lane = self.waiting[push.queues[0]]
                bodies = [bytes(one) for one in push.bodies]
                first = len(lane.stored) + 1
                lane.bodies += bodies
                lane.stored += bodies
                return [answers.Pushed(2, [answers.Lane(range(first, first + len(bodies)))])]
            case requests.Pull(queue, most):
                return [self._deliveries(queue, most)]
            case requests.CompletePull(queue, items, most):
                return [self._settled(queue, items), self._deliveries(queue, most)]
            case requests.Settle(Kind.COMPLETE, queue, items):
                return [self._settled(queue, items)]
            case requests.About(Kind.COUNTS, queue):
                return [answers.Counted(len(self.waiting[queue].bodies), 0, len(self.leased), 0, len(self.waiting[queue].stored), 0, 0)]
            case requests.TapOpen():
                return [answers.Done(1)]
            case requests.About(Kind.TAP_LIST, queue):
                return [answers.Taps([answers.Tap("read", 1, len(self.waiting[queue].stored) + 1, 0, 0)])]
            case requests.TapRead(queue, _, start, most):
                return [self._arrow(queue, start, most)]
        raise AssertionError(request)

    def _deliveries(self, queue: int, most: int) -> answers.Deliveries:
        lane = self.waiting[queue]
        taken, lane.bodies = lane.bodies[:most], lane.bodies[most:]
        runs = []
        for at in range(0, len(taken), self.runs):
            length = min(self.runs, len(taken) - at)
            seal = (lane.first ^ 0x5EA1).to_bytes(8, "little")
            runs.append(answers.Run(lane.first, lane.first + 7, length, 1, 0, 0, 0, 0, seal))
            for sequence in range(lane.first, lane.first + length):
                self.leased[queue, sequence] = seal
            lane.first += length
        return answers.Deliveries(queue, runs, Column.of(taken))

    def _settled(self, queue: int, items: Any) -> answers.Settled:
        done = []
        for item in items:
            assert item.delivery == item.sequence + 7
            for sequence in range(item.sequence + item.start, item.sequence + item.end):
                done.append(self.leased.pop((queue, sequence), b"") == item.seal)
        return answers.Settled(bytes(done))

    def _arrow(self, queue: int, start: int, most: int) -> answers.Arrow:
        import pyarrow as pa

        stored = self.waiting[queue].stored[start - 1 : start - 1 + min(most, self.read_max)]
        count = len(stored)
        columns = {
            "queue": pa.array([queue] * count, pa.uint64()),
            "sequence": pa.array(range(start, start + count), pa.uint64()),
            "time": pa.array([0] * count, pa.timestamp("ms", "UTC")),
            "id": pa.array([bytes(16)] * count, pa.binary(16)),
            "group": pa.array([None] * count, pa.string()),
            "attributes": pa.array([None] * count, pa.binary()),
            "body": pa.array(stored, pa.binary()),
        }
        batch = pa.record_batch(columns)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
        end = len(self.waiting[queue].stored) + 1
        return answers.Arrow(queue, start + count, end, count, sink.getvalue().to_pybytes())

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        events = Reader(hello=True)
        last: int | None = None
        while data := await reader.read(1 << 16):
            for event in events.feed(data):
                if isinstance(event, Hello):
                    told = [(answers.Hello(1, 0, bytes(32)), 0)]
                else:
                    assert isinstance(event, Frame)
                    assert last is None or event.number == last + 1, "numbers grow by one"
                    last = event.number
                    told = self._told(event)
                for answer, number in told:
                    frame = answers.encode(answer, number)
                    for at in range(0, len(frame), self.cut):
                        writer.write(frame[at : at + self.cut])
                        await writer.drain()
                        await asyncio.sleep(0)
        writer.close()

    def _told(self, frame: Frame) -> list[tuple[answers.Answer, int]]:
        request = requests.decode(frame)
        self.asked[Kind(frame.kind).name] += 1
        if isinstance(request, requests.Auth):
            return [(WELCOME, frame.number)]
        if Kind(frame.kind).name.encode() == self.refuse:
            return [(answers.Error(5, str(NoSuchQueue("no such thing"))), frame.number)]
        return [(answer, frame.number) for answer in self.answer(request)]


@contextmanager
def serving(node: FakeNode) -> Iterator[FakeNode]:
    ready, over = threading.Event(), threading.Event()

    async def serve() -> None:
        server = await asyncio.start_server(node.serve, "127.0.0.1", 0)
        node.port = server.sockets[0].getsockname()[1]
        ready.set()
        while not over.is_set():
            await asyncio.sleep(0.01)
        server.close()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    ready.wait()
    try:
        yield node
    finally:
        over.set()
        thread.join()
