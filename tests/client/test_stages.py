"""Stages and reservations over connections that are cut: what was sent to a stage is there once, a batch is published once, and a reserved
batch is the same on the next connection."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path

import pytest

import dovetail
from dovetail import Outgoing
from dovetail.client import staging
from dovetail.client.address import Credentials, Target
from dovetail.clock import ManualClock
from dovetail.doors.native.codec import Event, Kind, requests
from dovetail.errors import BadRequest, NumberRefused, Unavailable, Unknown
from dovetail.settings import QuotaDefaults, Settings
from dovetail.spark.line import Line
from dovetail.testing import MovableClock
from tests.client.house import Served, Wire, until
from tests.client.test_cuts import Once
from tests.contract.house import everything
from tests.doors.native.house import Process
from tests.doors.native.stranger import record


def bodies(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


@pytest.mark.parametrize("count", [1, 3000])
@pytest.mark.parametrize("lost", ["answer", "request"])
async def test_what_was_cut_off_is_in_the_stage_once_and_in_its_order(node: dovetail.Client, wire: Wire, count: int, lost: str) -> None:
    queue = await node.queue("orders")
    stage = node.stage()
    await stage.send(queue, b"first")
    wire.cut_before = Once(Kind.DONE) if lost == "answer" else Once(Kind.STAGE, asked=True)
    assert await stage.send_many(queue, [Outgoing(body, group="g") for body in bodies(count)]) == count
    assert (wire.connections, stage.messages) == (2, count + 1)
    await stage.send(queue, b"last")
    published = await node.publish([stage], "job", 0)
    assert [one.messages for one in published.joined] == [count + 2]
    assert [one.body for one in await queue.peek(max=5000)] == [b"first", *bodies(count), b"last"]


async def test_without_the_numbers_what_was_cut_off_is_there_twice(
    node: dovetail.Client, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = staging.Staging._asked
    monkeypatch.setattr(staging.Staging, "_asked", lambda self, request: asked(self, request._replace(number=0)))
    queue = await node.queue("orders")
    stage = node.stage()
    wire.cut_before = Once(Kind.DONE)
    await stage.send(queue, b"x")
    await node.publish([stage], "job", 0)
    assert [one.body for one in await queue.peek()] == [b"x", b"x"]


@pytest.mark.parametrize("lost", ["answer", "request"])
async def test_a_publish_that_was_cut_off_happens_once(node: dovetail.Client, wire: Wire, lost: str) -> None:
    queue = await node.queue("orders")
    stage = node.stage()
    await stage.send(queue, b"x")
    wire.cut_before = Once(Kind.PUBLISHED) if lost == "answer" else Once(Kind.PUBLISH, asked=True)
    published = await node.publish([stage], "job", 7)
    # It cannot be told from one of an earlier life, and need not be: the batch is there.
    assert published.before is (lost == "answer")
    assert [one.body for one in await queue.peek()] == [b"x"]


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 6))])
async def test_a_sink_whose_wire_is_cut_anywhere_stores_every_row_once(served: Served, seed: int) -> None:
    chance = random.Random(seed)
    wire = await Wire(served.port).open()
    going = True

    async def harm() -> None:
        while going:
            if wire.bytes_left is None:
                # More than a greeting and one frame need, so that it goes on.
                wire.bytes_left = chance.randrange(3_000, 12_000)
            await asyncio.sleep(0.002)

    async def task(node: dovetail.Client, batch: int, number: int) -> bytes:
        """Some rows, a part at a time; and before it an attempt that dies half way."""
        queue = await node.queue("orders")
        rows = [b"%d/%d/%d" % (batch, number, row) for row in range(chance.randrange(1, 300))]
        dead = node.stage()
        await dead.send_many(queue, rows[: len(rows) // 2 + 1])
        stage = node.stage()
        at = 0
        chance.shuffle(rows)
        while at < len(rows):
            step = chance.randrange(1, 100)
            at += await stage.send_many(queue, rows[at : at + step])
        wanted.update(rows)
        return stage.name

    wanted: Counter[bytes] = Counter()
    async with dovetail.connect(wire.url, timeout_s=60) as node:
        await node.queue("orders")
        harming = asyncio.create_task(harm())
        for batch in range(4):
            stages = await asyncio.gather(*(task(node, batch, number) for number in range(4)))
            for _ in range(2):
                await node.publish(stages, "query", batch)  # The driver dies before it hears of it, and does it again.
        going = False
        wire.bytes_left = None
        await harming
    await wire.close()
    assert wire.connections > 1
    queue = await served.node.queue("orders")
    assert Counter([one.body for one in await everything(queue)]) == wanted and max(wanted.values()) == 1


async def test_a_stage_of_which_the_outcome_stays_unknown_takes_nothing_more(served: Served, wire: Wire) -> None:
    """Otherwise what is sent next would take the number of what may be there, and one of both would be missing without a word."""
    async with dovetail.connect(wire.url, timeout_s=60) as node:
        queue = await node.queue("orders")
        stage, other = node.stage(), node.stage()
        await stage.send(queue, b"a")
        node._session.timeout_s = 1
        wire.flowing.clear()
        with pytest.raises(Unknown):
            await stage.send(queue, b"b")
        node._session.timeout_s = 60
        leaving = asyncio.create_task(other.send(queue, b"c"))
        await until(lambda: wire.asked["STAGE"] == 3)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        wire.flowing.set()
        for broken in (stage, other):
            with pytest.raises(Unknown, match="begin another one"):
                await broken.send(queue, b"d")
        fresh = node.stage()
        await fresh.send_many(queue, [b"a", b"b"])
        await node.publish([fresh], "job", 0)
        assert [one.body for one in await queue.peek()] == [b"a", b"b"]


async def test_what_never_left_is_refused_at_its_deadline(wire: Wire) -> None:
    async with dovetail.connect(wire.url, timeout_s=60) as node:
        queue = await node.queue("orders")
        node._session.timeout_s = 1
        wire.down = True
        wire.cut()
        await until(lambda: not node.ready)
        with pytest.raises(Unavailable):
            await node.stage().send(queue, b"x")


async def test_what_may_have_been_published_is_unknown_when_no_node_comes_back(served: Served, wire: Wire) -> None:
    async with dovetail.connect(wire.url, timeout_s=60) as node:
        queue = await node.queue("orders")
        stage = node.stage()
        await stage.send(queue, b"x")
        lost = Once(Kind.PUBLISHED)

        def cut(asked: bool, event: Event) -> bool:
            wire.down = lost(asked, event) or wire.down
            return wire.down

        wire.cut_before = cut
        node._session.timeout_s = 1
        with pytest.raises(Unknown):
            await node.publish([stage], "job", 0)
        node._session.timeout_s = 60
        wire.cut_before = lambda asked, event: False
        wire.down = False
        await until(lambda: node.ready)
        assert (await node.publish([stage], "job", 0)).before is True


async def test_two_writers_of_one_stage_are_told(node: dovetail.Client) -> None:
    queue = await node.queue("orders")
    one, two = node.stage("task 1"), node.stage("task 1")
    await one.send(queue, b"a")
    with pytest.raises(NumberRefused, match="two writers"):
        await two.send(queue, b"something else")


async def test_one_stage_has_one_frame_under_way_and_many_go_side_by_side(node: dovetail.Client, wire: Wire) -> None:
    """A sink is never further than the node: it waits for each answer, and so do those who send for it."""
    queue = await node.queue("orders")
    stages = [node.stage() for _ in range(3)]
    await asyncio.gather(*(stage.send(queue, b"x") for stage in stages))
    wire.flowing.clear()
    sending = [asyncio.create_task(stage.send(queue, b"%d" % number)) for number in range(5) for stage in stages]
    await until(lambda: wire.asked["STAGE"] == 6)
    await asyncio.sleep(0.05)
    assert wire.asked["STAGE"] == 6
    wire.flowing.set()
    await asyncio.gather(*sending)
    await node.publish(stages, "job", 0)
    assert [one.body for one in await queue.peek(max=100)] == [b"x", *bodies(5)] * 3


async def test_a_sink_that_asks_too_often_waits_and_goes_on() -> None:
    served = Served(Settings(quota=QuotaDefaults(account_requests=50)))
    served.clock = MovableClock(ManualClock())  # It stands still until it is moved.
    await served.open()
    wire = await Wire(served.port).open()
    async with dovetail.connect(wire.url) as node:
        queue = await node.queue("orders")
        stage = node.stage()

        async def sink() -> None:
            for number in range(60):
                await stage.send(queue, b"%d" % number)

        sending = asyncio.create_task(sink())
        await until(lambda: wire.told["ERROR"])
        assert stage.messages == 49 and not sending.done()
        await served.clock.advance(1)
        await sending
        await served.node.publish([stage.name], "job", 0)
        assert [one.body for one in await (await served.node.queue("orders")).peek(max=200)] == bodies(60)
    await wire.close()
    await served.close()


async def test_a_job_goes_on_with_its_batch_on_the_next_connection(node: dovetail.Client, wire: Wire) -> None:
    queue = await node.queue("orders")
    await queue.send_many(bodies(10))
    for kind in (Kind.RESERVING, Kind.RESERVED, Kind.DELIVERIES, Kind.DONE):
        wire.cut_before = Once(kind)
        if kind is Kind.RESERVING:
            # Cut before the answer, it was opened twice: the first time counts no more.
            job = await queue.reservation("job")
            assert job.epoch == 2
        elif kind is Kind.RESERVED:
            assert await job.reserve(0, max=4) == 4
        elif kind is Kind.DELIVERIES:
            assert [one.body for one in await job.read(0)] == bodies(4)
        else:
            assert await job.settle(0) == 0, "it was done by the one whose answer was lost"
    assert wire.connections == 5
    assert (await queue.counts()).reserved == 0 and [one.body for one in await queue.peek()] == bodies(10)[4:]


@pytest.mark.parametrize("close", [False, True])
async def test_what_takes_a_reservation_from_its_owner_is_not_asked_twice(node: dovetail.Client, wire: Wire, close: bool) -> None:
    queue = await node.queue("orders")
    await queue.reservation("job")
    wire.cut_before = Once(Kind.DONE)
    with pytest.raises(Unknown):
        await (queue.close_reservation("job") if close else queue.release_reservation("job"))


async def test_a_reserved_batch_is_read_as_arrow(node: dovetail.Client) -> None:
    pytest.importorskip("pyarrow", reason="the streams are its own")
    queue = await node.queue("orders")
    sent = await queue.send_many([b"a", Outgoing(b"b", group="g"), b"c"])
    for message in await queue.receive(max=2):
        await message.requeue()
    job = await queue.reservation("job")
    await job.reserve(0)
    batch = await queue.reserved_arrow("job", 0, start=1)
    rows = batch.table().to_pylist()
    assert [row["receives"] for row in rows] == [1, 0], "how often others had it"
    assert [(row["sequence"], row["body"], row["group"]) for row in rows] == [(2, b"b", "g"), (3, b"c", None)]
    assert [row["id"].hex() for row in rows] == [one.id.replace("-", "") for one in sent[1:]]
    assert batch.next == 3


async def test_in_the_same_process_there_is_no_arrow_and_the_error_says_what_there_is() -> None:
    async with dovetail.open("memory:") as here:
        queue = await here.queue("orders")
        with pytest.raises(BadRequest, match=r"Reservation\.read"):
            await queue.reserved_arrow("job", 0)


async def test_without_await_the_names_are_the_same(served: Served) -> None:
    def work() -> list[bytes]:
        with dovetail.blocking.connect(served.url) as node:
            queue, target = node.queue("orders"), node.queue("bills")
            queue.send_many([b"1", b"2", b"3"])
            job = queue.reservation("job")
            assert (job.epoch, job.last, job.reserve(0, max=2)) == (1, -1, 2)
            stage = node.stage()
            for one in job.read(0):
                stage.send(target, b"bill " + one.body)
            node.stage("abandoned").send_to([queue, target], [b"x"])
            assert [one.messages for one in node.stages()] in ([2, 1], [1, 2])
            assert node.publish([stage], "query", 0).joined[0].messages == 2
            assert job.settle(0) == 2 and node.unstage(["abandoned"]) == 1
            assert [one.name for one in queue.reservations()] == ["job"] and queue.close_reservation("job") == 0
            return [one.body for one in target.peek()]

    assert await asyncio.to_thread(work) == [b"bill 1", b"bill 2"]


async def test_an_executor_says_the_same_over_its_blocking_line(served: Served) -> None:
    def work() -> None:
        line = Line(Target("127.0.0.1", served.port), Credentials("", "", ""), None, 60)
        other = Line(Target("127.0.0.1", served.port), Credentials("", "", ""), None, 60)
        queue = line.ask(requests.Declare("orders", {})).queue
        other.ask(requests.Open("orders"))
        first, second = record([queue], [b"a", b"b"]), record([queue], [b"c"])
        # A few under way; then the line breaks, and everything is said again over another one.
        for number, data in ((1, first), (2, second)):
            line.send(requests.Stage(b"s" * 16, data, number))
        assert [line.receive()[1].value for _ in range(2)] == [2, 1]
        line.close()
        assert [other.ask(requests.Stage(b"s" * 16, data, number)).value for number, data in ((1, first), (2, second))] == [2, 1]
        published = other.ask(requests.Publish([b"s" * 16], b"o" * 16, 3))
        assert ([tuple(one) for one in published.joined], published.before) == ([(queue, 3, 0, 3)], False)
        epoch = other.ask(requests.Reservation(Kind.RESERVE_OPEN, queue, "job")).epoch
        assert other.ask(requests.Reserve(queue, "job", epoch, 0, 9)).messages == 3
        read = other.ask(requests.ReserveRead(queue, "job", 0, 1, 9))
        assert list(read.bodies) == [b"b", b"c"]
        assert other.ask(requests.ReserveSettle(queue, "job", epoch, 0)).value == 3
        other.close()

    await asyncio.to_thread(work)


async def test_a_sink_goes_on_through_nodes_that_are_killed(tmp_path: Path) -> None:
    import signal

    flags = ("--store", f"local:{tmp_path / 'data'}", "--http", "off", "--local-segment-bytes", "2MiB")
    process = await asyncio.to_thread(Process(*flags).begin)
    process.flags = (*flags, "--native", f"127.0.0.1:{process.port}")
    batches = 0
    going = True

    async def kill() -> None:
        nonlocal going
        for _ in range(3):
            await asyncio.sleep(0.4)
            await asyncio.to_thread(process.end, signal.SIGKILL)
            await asyncio.to_thread(process.begin)
        going = False

    async with dovetail.connect(f"dovetail://127.0.0.1:{process.port}", timeout_s=300) as node:
        queue = await node.queue("orders")
        killing = asyncio.create_task(kill())
        while going or not batches:
            stages = [node.stage() for _ in range(3)]
            for part in range(3):
                rows = [[b"%d/%d/%d" % (batches, part, row) for row in range(index * 20, index * 20 + 20)] for index in range(3)]
                await asyncio.gather(*(stage.send_many(queue, some) for stage, some in zip(stages, rows, strict=True)))
            await node.publish(stages, "query", batches)
            batches += 1
        await killing
        found = [one.body for one in await everything(queue)]
        wanted = [b"%d/%d/%d" % (batch, part, row) for batch in range(batches) for part in range(3) for row in range(60)]
        lost, doubled = Counter(wanted) - Counter(found), Counter(found) - Counter(wanted)
        assert not lost and not doubled
    await asyncio.to_thread(process.end)
