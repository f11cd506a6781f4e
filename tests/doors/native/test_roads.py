"""The short road and the long one give the same answers to the byte, in the same order, and count the same."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Coroutine, Iterator
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from dovetail.doors.native.connection import Connection
from dovetail.doors.native.server import Server
from dovetail.node import start
from dovetail.settings import Settings
from dovetail.stores import replayed
from dovetail.testing import MovableClock
from tests.doors.native.stranger import HEADER, KINDS, NAMES, record, rules, text

PULL = struct.Struct("<QqIIII")
ITEM = struct.Struct("<QQIIII8s")
RULES: list[dict[str, int]] = [
    {},
    {"grouped": 1},
    {"in_flight_max": 3},
    {"dedup_ms": 60_000},
    {"dead_letter": 1, "receives_max": 2},
    {"delay_ms": 5_000, "backoff_ms": 1_000},
    {"lease_ms": 10_000, "lease_max_ms": 15_000},
]
DEFAULT = -1


class Wire(asyncio.Transport):
    """Keeps what a connection writes. There is a socket, so that it can be asked whether the other end has left."""

    def __init__(self) -> None:
        super().__init__()
        self.own, self.other = socket.socketpair()
        self.written = bytearray()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.own if name == "socket" else ("127.0.0.1", 1)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def can_write_eof(self) -> bool:
        return False

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def abort(self) -> None:
        self.written += b"aborted"

    def taken(self) -> list[bytes]:
        """The frames that were written since the last time."""
        frames, at = [], 0
        while at < len(self.written):
            end = at + 16 + struct.unpack_from("<I", self.written, at)[0]
            frames.append(bytes(self.written[at:end]))
            at = end
        self.written.clear()
        return frames


class Caller:
    """One connection without a network: what it says arrives in one piece, or in the pieces that are given."""

    def __init__(self, server: Server, door: Any) -> None:
        self.wire = Wire()
        self.number = 0
        self.connection = Connection(server, door)
        self.connection.connection_made(self.wire)
        self.connection.data_received(struct.pack("<8sHHI", b"DOVETAIL", 1, 1, 0))

    def frame(self, kind: str, payload: bytes, flags: int = 0) -> bytes:
        self.number += 1
        return HEADER.pack(len(payload), KINDS[kind], flags, 0, self.number) + payload

    async def ask(self, kind: str, payload: bytes) -> bytes:
        self.connection.data_received(self.frame(kind, payload))
        await quiet()
        (answer,) = self.wire.taken()
        return answer

    def close(self) -> None:
        self.connection.connection_lost(None)
        self.wire.own.close()
        self.wire.other.close()


async def quiet() -> None:
    """Everything that can happen without time passing has happened: nothing here takes more than a few turns of the loop."""
    for _ in range(40):
        await asyncio.sleep(0)


class Still:
    """A clock that does not go: nobody is ever woken by it."""

    def wall_ms(self) -> int:
        return 1_700_000_000_000

    def boot_ms(self) -> int:
        return 1_000_000

    def call_at(self, boot_ms: int, wake: Callable[[], None]) -> asyncio.TimerHandle:
        handle = asyncio.get_running_loop().call_later(1, wake)
        handle.cancel()
        return handle


class House:
    """A node in memory whose clock stands still, with its native door, and callers. `long`: the door knows no short road."""

    def __init__(self, *, long: bool) -> None:
        self.long = long
        self.clock = MovableClock(Still())

    async def __aenter__(self) -> House:
        settings = Settings()
        self.node = await start("memory:", settings=settings, clock=self.clock)
        self.door = self.node.native_door(settings, None, self.node.sqs_door(settings, None))
        self.taken = 0
        if self.long:
            self.door.roads = {}
        else:
            self.door.roads = {kind: self._counted(road) for kind, road in self.door.roads.items()}
        self.server = Server()
        await self.server.serve(self.door)
        self.callers: list[Caller] = []
        return self

    def _counted(self, road: Callable[..., bool]) -> Callable[..., bool]:
        def counted(*given: Any) -> bool:
            took = road(*given)
            self.taken += took
            return took

        return counted

    async def __aexit__(self, *_: object) -> None:
        for caller in self.callers:
            caller.close()
        await self.server.drain(0.1)
        await self.node.close()

    async def caller(self) -> Caller:
        made = Caller(self.server, self.door)
        self.callers.append(made)
        await quiet()
        made.wire.taken()
        await made.ask("AUTH", bytes(64))
        return made

    async def page(self) -> str:
        """What is counted, but for times, which no two runs have in common."""
        whole = (await self.node.broker.meters.page(self.node.broker.store, self.node.broker.dequeue.waiting)).decode()
        shown = [line for line in whole.splitlines() if line.startswith(("dovetail_messages", "dovetail_requests", "dovetail_bytes"))]
        shown += [line for line in whole.splitlines() if line.startswith("dovetail_request_seconds_count")]
        return "\n".join(shown)


@pytest.fixture(autouse=True)
def known_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both nodes seal with the same key."""
    monkeypatch.setattr(replayed, "os", SimpleNamespace(urandom=lambda count: b"\7" * count))


def declared(name: str, given: dict[str, int]) -> bytes:
    return text("") + text(name) + rules(given)


def runs_in(frame: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """(first sequence, first delivery, length, seal) of the runs of a frame of deliveries."""
    if NAMES[frame[4]] == "DELIVERIES":
        _, _, runs = struct.unpack_from("<QII", frame, 16)
        for index in range(runs):
            sequence, delivery, length, *_, seal = struct.unpack_from("<QQIIQQQQ8s", frame, 32 + 64 * index)
            yield sequence, delivery, length, seal


class Script:
    """Requests at random, the same for the same seed and the same answers."""

    def __init__(self, seed: int, queues: list[int]) -> None:
        self.random = Random(seed)
        self.queues = queues
        self.held: dict[int, list[tuple[int, int, int, bytes]]] = {queue: [] for queue in queues}

    def item(self, queue: int) -> bytes:
        held, random = self.held[queue], self.random
        if not held or random.random() < 0.05:
            return ITEM.pack(random.randint(1, 50), random.randint(1, 50), 1, 0, 1, 0, b"made up!")
        sequence, delivery, length, seal = held.pop(0) if random.random() < 0.8 else random.choice(held)
        at = random.randrange(length)
        end = at + 1 if random.random() < 0.8 else random.choice((at, length, length + 1))
        return ITEM.pack(sequence, delivery, length, at, end, random.random() < 0.02, seal)

    def pulled(self, queue: int) -> bytes:
        random = self.random
        lease_ms = random.choice((*(DEFAULT,) * 12, 0, 5_000, 5_000, 1 << 60, -7))
        most = random.choice((*(1,) * 12, 2, 10, 0))
        return PULL.pack(queue, lease_ms, most, random.choice((0, 0, 10)), random.choice((*(0,) * 12, 1 << 31)), random.random() < 0.02)

    def pushed(self, queue: int) -> bytes:
        random = self.random
        body = random.randbytes(random.choice((0, 1, 2, 3, 5, 100)))
        kind = random.random()
        if kind < 0.7:
            made = record([queue], [body])
        elif kind < 0.8:
            made = record([queue], [body, b"another", b""])
        elif kind < 0.9:
            made = record([queue], [body], groups=[b"g%d" % random.randrange(3)])
        else:
            made = record([queue], [body], dedups=[bytes(15) + bytes((random.randrange(4),))], ids=[random.randbytes(16)])
        return made[:-1] if random.random() < 0.03 else made

    def request(self) -> tuple[str, bytes, int]:
        random = self.random
        queue = random.choice(self.queues) if random.random() < 0.98 else 12345
        known = queue if queue in self.held else self.queues[0]
        flags = int(random.random() < 0.02)
        kind = random.choice(
            ("PUSH", "PUSH", "PUSH", "PULL", "PULL", "COMPLETE", "COMPLETE_PULL", "COMPLETE_PULL", "COUNTS", "PEEK", "PING")
        )
        if kind == "PUSH":
            return kind, self.pushed(queue), flags
        if kind == "PULL":
            return kind, self.pulled(queue), flags
        if kind == "COMPLETE":
            return kind, struct.pack("<Qq", queue, 0) + self.item(known), flags
        if kind == "COMPLETE_PULL":
            items = b"".join(self.item(known) for _ in range(random.choice((1, 1, 1, 1, 1, 1, 1, 2, 0))))
            return kind, self.pulled(queue) + items, flags
        if kind == "PEEK":
            return kind, struct.pack("<QQII", queue, 0, 5, 0), 0
        return (kind, struct.pack("<Q", queue), 0) if kind == "COUNTS" else ("PING", b"", 0)

    def learn(self, frames: list[bytes]) -> None:
        for frame in frames:
            for run in runs_in(frame):
                self.held[struct.unpack_from("<Q", frame, 16)[0]].append(run)


async def told(seed: int, *, long: bool, steps: int = 250) -> tuple[list[Any], str, int]:
    """Everything that was answered to a random script, step by step, and what was counted."""
    random = Random(seed + 1000)
    answers: list[Any] = []
    async with House(long=long) as house:
        callers = [await house.caller() for _ in range(3)]
        queues = []
        for number, given in enumerate(RULES):
            for caller in callers:
                answer = await caller.ask("DECLARE", declared(f"q{number}", given))
                assert NAMES[answer[4]] == "OPENED"
            queues.append(struct.unpack_from("<Q", answer, 16)[0])
        script = Script(seed, queues)
        for _ in range(steps):
            for caller in random.sample(callers, random.randint(1, 3)):
                said = b"".join(caller.frame(*script.request()) for _ in range(random.choice((1, 1, 1, 1, 2, 5))))
                cut = random.randrange(len(said)) if random.random() < 0.2 else len(said)
                for piece in (said[:cut], said[cut:]):
                    if piece:
                        caller.connection.data_received(piece)
                if random.random() < 0.5:
                    await quiet()
            await quiet()
            for caller in callers:
                frames = caller.wire.taken()
                script.learn(frames)
                answers.append(frames)
            if random.random() < 0.2:
                await house.clock.advance(random.choice((1, 20, 40)))
                await quiet()
        return answers, await house.page(), house.taken


@pytest.mark.parametrize("seed", range(6))
def test_both_roads_give_the_same_answers_to_the_byte(seed: int) -> None:
    short, counted, taken = asyncio.run(told(seed, long=False))
    long, counted_too, _ = asyncio.run(told(seed, long=True))
    assert taken > 150, "the script went by the roads that it was to compare"
    for step, (one, other) in enumerate(zip(short, long, strict=True)):
        assert one == other, f"step {step}"
    assert counted == counted_too


class Alone:
    """One caller and one queue on the short road."""

    def __init__(self, house: House, caller: Caller, queue: int) -> None:
        self.house, self.caller, self.queue = house, caller, queue

    @classmethod
    async def of(cls, house: House) -> Alone:
        caller = await house.caller()
        return cls(house, caller, struct.unpack_from("<Q", await caller.ask("DECLARE", declared("q", {})), 16)[0])

    async def push(self, body: bytes) -> None:
        await self.caller.ask("PUSH", record([self.queue], [body]))

    def pulled(self, wait_ms: int = 0) -> bytes:
        return PULL.pack(self.queue, DEFAULT, 1, 0, wait_ms, 0)

    def item(self, frame: bytes) -> bytes:
        ((sequence, delivery, length, seal),) = runs_in(frame)
        return ITEM.pack(sequence, delivery, length, 0, 1, 0, seal)

    def say(self, kind: str, payload: bytes) -> None:
        before = self.house.taken
        self.caller.connection.data_received(self.caller.frame(kind, payload))
        assert self.house.taken == before + 1, "it went the long way"

    async def answers(self) -> list[bytes]:
        await quiet()
        return self.caller.wire.taken()

    def counts(self) -> tuple[int, int]:
        lane = self.house.node.broker.store.lane(self.queue)
        assert lane is not None
        counts = lane.counts()
        return counts.visible, counts.leased


def on_a_node(work: Callable[[Alone], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        async with House(long=False) as house:
            await work(await Alone.of(house))

    asyncio.run(whole())


def test_completing_and_taking_the_next_has_two_answers_and_one_place() -> None:
    async def work(alone: Alone) -> None:
        await alone.push(b"a")
        await alone.push(b"b")
        first = await alone.caller.ask("PULL", alone.pulled())
        alone.say("COMPLETE_PULL", alone.pulled() + alone.item(first))
        assert alone.caller.connection.under_way == 1
        settled, delivered = await alone.answers()
        assert alone.caller.connection.under_way == 0
        assert settled[4] == KINDS["SETTLED"] and settled[16:] == b"\1"
        assert delivered[4] == KINDS["DELIVERIES"] and delivered.endswith(b"b\0\0\0")
        assert alone.counts() == (0, 1)

    on_a_node(work)


def test_what_finds_nothing_is_told_of_its_completing_and_waits() -> None:
    async def work(alone: Alone) -> None:
        await alone.push(b"a")
        first = await alone.caller.ask("PULL", alone.pulled())
        alone.say("COMPLETE_PULL", alone.pulled(wait_ms=10_000) + alone.item(first))
        (settled,) = await alone.answers()
        assert settled[16:] == b"\1"
        connection = alone.caller.connection
        assert len(connection.waits) == 1 and connection.under_way == 0
        alone.say("PUSH", record([alone.queue], [b"late"]))
        kinds = {NAMES[frame[4]]: frame for frame in await alone.answers()}
        assert set(kinds) == {"PUSHED", "DELIVERIES"} and kinds["DELIVERIES"].endswith(b"late")
        assert not connection.waits and connection.under_way == 0

    on_a_node(work)


def test_a_seal_that_does_not_hold_takes_nothing() -> None:
    async def work(alone: Alone) -> None:
        await alone.push(b"a")
        await alone.push(b"b")
        first = await alone.caller.ask("PULL", alone.pulled())
        alone.say("COMPLETE_PULL", alone.pulled() + alone.item(first)[:-8] + b"made up!")
        (refused,) = await alone.answers()
        assert refused[4] == KINDS["ERROR"]
        assert alone.counts() == (1, 1) and alone.caller.connection.under_way == 0

    on_a_node(work)


def test_what_was_taken_and_not_written_goes_back_when_the_client_leaves() -> None:
    async def work(alone: Alone) -> None:
        for body in (b"a", b"b", b"c"):
            await alone.push(body)
        first = await alone.caller.ask("PULL", alone.pulled())
        connection = alone.caller.connection
        alone.say("PULL", alone.pulled())
        alone.say("COMPLETE_PULL", alone.pulled() + alone.item(first))
        connection.pause_writing()
        await quiet()
        assert alone.counts() == (0, 2), "both were taken, and nobody reads them"
        connection.connection_lost(None)
        await quiet()
        assert alone.counts() == (2, 0)

    on_a_node(work)
