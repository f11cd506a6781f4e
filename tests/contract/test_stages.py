"""Stages: what a sink writes is seen by nobody until its driver publishes it, and then once, whatever restarts in between."""

from __future__ import annotations

import asyncio

import pytest

from dovetail import Attribute
from dovetail.core.codec import encode
from dovetail.core.column import Column
from dovetail.core.message import encode_attributes
from dovetail.core.operation import Joined, Numbered, Published, Push
from dovetail.core.state import State
from dovetail.errors import BadRequest, Damaged, LimitExceeded, NoSuchQueue, NoSuchStage
from dovetail.limits import BODY_BYTES_MAX, DELAY_MS_MAX, STAGES_PER_PUBLISH_MAX
from dovetail.logs.log import Log
from dovetail.stores import snapshots
from dovetail.stores.store import Outgoing
from tests.contract.house import bodies, everything, soon, turns, waiting
from tests.contract.seam import OWNER, SeamHouse, house  # noqa: F401  # the fixture takes the place of the suite's

DAY_S = 86_400


@pytest.mark.parametrize("snapshot", [False, True])
async def test_what_is_staged_is_seen_by_nobody_until_it_is_published(house: SeamHouse, snapshot: bool) -> None:  # noqa: F811
    queue = await house.queue()
    tap = await queue.tap("archive")
    attributes = encode_attributes({"n": Attribute("Number", b"1")})
    assert await house.stage(b"a", b"one", b"two", group=b"g", attributes=attributes) == 2
    await queue.send(b"sent")
    assert (bodies(await everything(queue)), bodies((await tap.read()).messages)) == ([b"sent"], [b"sent"])
    await house.again(snapshot=snapshot)
    queue = await house.queue()
    house.clock.advance(5)
    assert await house.publish(b"a") == Published((Joined(queue.lane.queue, 2, 0, 6),))
    await house.again(snapshot=snapshot)
    queue = await house.queue()
    tap = await queue.tap("archive")
    assert bodies((await tap.read()).messages) == [b"sent", b"one", b"two"]
    sent, one, two = await queue.receive(max=9)
    assert (one.body, one.group, dict(one.attributes), two.body) == (b"one", "g", {"n": Attribute("Number", b"1")}, b"two")
    assert one.sent_at_ms - sent.sent_at_ms == 5000, "it was sent when it was published"
    assert (await queue.counts()).pushed == 3


async def test_of_two_attempts_only_the_one_that_is_published_is_stored_and_once(house: SeamHouse) -> None:  # noqa: F811
    """A task writes a and b and dies. The next attempt sees its rows in another order. The driver publishes that one, dies before it hears
    of it, and the query writes the whole batch again."""
    await house.queue()
    await house.stage(b"1", b"a", b"b")
    await house.stage(b"2", b"c", b"a")
    await house.stage(b"2", b"b")
    assert (await house.publish(b"2", batch=7)).before is False
    await house.again()
    await house.stage(b"3", b"b", b"c", b"a")
    assert await house.publish(b"3", batch=7) == Published((), before=True)
    assert await house.node.broker.unstage([b"1" * 16, b"2" * 16, b"3" * 16]) == 1
    await house.again(snapshot=True)
    assert bodies(await everything(await house.queue())) == [b"c", b"a", b"b"]
    assert house.node.store.stages() == []
    await house.stage(b"4", b"d")
    assert (await house.publish(b"4", batch=8)).joined[0].messages == 1


async def test_a_publish_is_refused_whole_where_a_stage_is_not_there_or_a_queue_is_gone(house: SeamHouse) -> None:  # noqa: F811
    queue, other = await house.queue(), await house.queue("other")
    await house.stage(b"a", b"x")
    await house.stage(b"b", b"y", to=("orders", "other"))
    with pytest.raises(NoSuchStage, match=(b"c" * 16).hex()):
        await house.publish(b"a", b"c")
    await house.node.drop("other")
    with pytest.raises(NoSuchQueue, match=str(other.lane.queue)):
        await house.publish(b"a", b"b")
    assert bodies(await everything(queue)) == []
    await house.publish(b"a")
    assert bodies(await everything(queue)) == [b"x"]
    with pytest.raises(NoSuchQueue):
        await house.node.store.stage(b"d" * 16, [other.lane.queue], [Outgoing(b"z")])


async def test_published_messages_follow_every_rule_of_their_queues(house: SeamHouse) -> None:  # noqa: F811
    once = await house.queue("once", deduplication_s=60)
    grouped = await house.queue("grouped", groups=True, delay_s=2)
    await once.send(b"first", deduplication="k")
    key = (await house.node.broker.push(once.lane, [Outgoing(b"second", dedup=b"k" * 16)]))[0]
    await house.stage(b"a", b"again", to=("once",), dedup=b"k" * 16)
    await house.stage(b"a", b"1", b"2", to=("grouped",), group=b"g")
    await house.stage(b"a", b"later", to=("grouped",), group=b"h", delay_ms=30_000)
    house.clock.advance(10)
    published = await house.publish(b"a")
    assert published.joined == (Joined(once.lane.queue, 0, 1, 5), Joined(grouped.lane.queue, 3, 0, 7))
    assert (bodies(await everything(once)), key.sequence) == ([b"first", b"second"], 2)
    assert await grouped.receive(max=9) == []
    house.clock.advance(2)
    (one,) = await grouped.receive()
    assert (one.body, bodies(await grouped.receive(max=9))) == (b"1", [])
    await one.complete()
    assert bodies(await grouped.receive(max=9)) == [b"2"]
    house.clock.advance(28)
    assert bodies(await grouped.receive(max=9)) == [b"later"]


async def test_a_publish_wakes_whoever_waits(house: SeamHouse) -> None:  # noqa: F811
    queue = await house.queue()
    await house.stage(b"a", b"x", b"y")
    (receiver,) = await waiting(queue.receive(wait_s=60))
    await turns(50)
    assert not receiver.done()
    await house.publish(b"a")
    assert bodies(await soon(receiver)) == [b"x"]


async def test_a_record_that_a_caller_made_is_staged_as_it_is(house: SeamHouse) -> None:  # noqa: F811
    queue, store = await house.queue(), house.node.store
    push = Push((queue.lane.queue,), Column.of([b"one", b"two"]), groups=Column.of([b"", b"t"]))
    record = encode(push)
    reply: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    store.stage_record_for(reply, b"a" * 16, store.push_of_record(record), record)
    assert store.staged(await reply) == 2
    with pytest.raises(BadRequest):
        store.stage_record_for(reply, b"a" * 16, push._replace(numbered=Numbered(b"p" * 16, 1, 1)), record)
    await house.publish(b"a")
    assert [(one.body, one.group) for one in await queue.receive(max=9)] == [(b"one", None), (b"two", "t")]


async def test_an_abandoned_stage_is_given_up_after_a_day_and_not_before(house: SeamHouse) -> None:  # noqa: F811
    queue, chores = await house.queue(), house.node.store.chores
    await house.stage(b"a", b"x")
    house.clock.advance(10)
    await house.stage(b"b", b"y")
    house.clock.advance(DAY_S - 10)
    assert await chores.expire_stages() == 0
    assert house.node.store.facts()["dovetail_stage_oldest_age_seconds"][0] == DAY_S
    house.clock.advance(0.001)
    assert await chores.expire_stages() == 1
    with pytest.raises(NoSuchStage):
        await house.publish(b"a")
    await house.publish(b"b")
    assert bodies(await everything(queue)) == [b"y"]


async def test_stages_are_given_up_by_themselves_once_the_clocks_can_be_trusted(house: SeamHouse) -> None:  # noqa: F811
    await house.queue()
    await house.stage(b"a", b"x")
    house.clock.advance(DAY_S)
    await house.again()
    if house.kind.persists:
        await house.pass_time(300, 10)
        assert len(house.node.store.stages()) == 1, "ten minutes since the start have not passed"
    await house.pass_time(330, 10)
    assert house.node.store.stages() == []


@pytest.mark.slow
async def test_a_stage_keeps_its_bodies_while_the_log_before_and_behind_it_is_trimmed(house: SeamHouse) -> None:  # noqa: F811
    """It pins the log; so it is written again further on, and the log's beginning goes all the same."""
    await house.queue()
    await house.stage(b"a", b"kept", b"too", group=b"g")
    old = house.node.store.state.stages.by_id[b"a" * 16].records[0].address
    await house.wear()
    store = house.node.store
    assert store.log.first > old and store.state.stages.by_id[b"a" * 16].records[0].address >= store.log.first
    await house.publish(b"a")
    await house.again(snapshot=True)
    assert [(one.body, one.group) for one in await (await house.queue()).receive(max=9)] == [(b"kept", "g"), (b"too", "g")]


@pytest.mark.slow
async def test_without_the_look_at_stages_a_trim_takes_their_bodies(house: SeamHouse, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    survey = snapshots.survey

    def blind(state: State, log: Log) -> snapshots.Survey:
        kept, state.stages.by_id = state.stages.by_id, {}
        try:
            return survey(state, log)
        finally:
            state.stages.by_id = kept

    monkeypatch.setattr(snapshots, "survey", blind)
    queue = await house.queue()
    await house.stage(b"a", b"lost")
    await house.wear()
    await house.publish(b"a")
    queue = await house.queue()
    with pytest.raises(Damaged):
        await queue.peek()
    await house.node.drop("orders")


async def test_open_stages_are_counted(house: SeamHouse) -> None:  # noqa: F811
    await house.queue()
    assert house.node.store.facts()["dovetail_stages_open"][0] == 0
    await house.stage(b"a", b"one", b"two")
    await house.stage(b"b", b"three")
    house.clock.advance(2)
    facts = {name: value for name, (value, _) in house.node.store.facts().items() if "stage" in name}
    assert facts == {
        "dovetail_stages_open": 2,
        "dovetail_stage_oldest_age_seconds": 2,
        "dovetail_staged_messages": 3,
        "dovetail_staged_bytes": 11,
    }
    (meter,) = [house.node.broker.meter((await house.queue()).lane)]
    assert meter.pushed.value == 0
    await house.publish(b"a")
    assert (meter.pushed.value, meter.bytes.value) == (2, 6)


async def test_what_cannot_be_staged_or_published_is_refused_and_changes_nothing(house: SeamHouse) -> None:  # noqa: F811
    queue, store = await house.queue(), house.node.store
    number = queue.lane.queue
    for stage, queues, messages, error in (
        (b"short", [number], [Outgoing(b"x")], BadRequest),
        (b"a" * 17, [number], [Outgoing(b"x")], BadRequest),
        (b"a" * 16, [number, number], [Outgoing(b"x")], LimitExceeded),
        (b"a" * 16, [], [Outgoing(b"x")], LimitExceeded),
        (b"a" * 16, [number], [], LimitExceeded),
        (b"a" * 16, [number], [Outgoing(bytes(BODY_BYTES_MAX + 1))], LimitExceeded),
        (b"a" * 16, [number], [Outgoing(b"x", delay_ms=DELAY_MS_MAX + 1)], LimitExceeded),
        (b"a" * 16, [99], [Outgoing(b"x")], NoSuchQueue),
    ):
        with pytest.raises(error):
            await store.stage(stage, queues, messages)
    for stages, owner, batch, failure in (
        ([b"a"], OWNER, 0, BadRequest),
        ([], b"owner", 0, BadRequest),
        ([], OWNER, -1, BadRequest),
        ([], OWNER, 1 << 64, BadRequest),
        ([b"a" * 16] * (STAGES_PER_PUBLISH_MAX + 1), OWNER, 0, LimitExceeded),
        ([b"a" * 16], OWNER, 0, NoSuchStage),
    ):
        with pytest.raises(failure):
            await store.publish(stages, owner, batch)
    assert store.stages() == []
    assert await house.publish() == Published(()), "an empty batch is published too"


async def test_the_largest_message_is_staged_and_a_large_batch_is_cut_and_joins_in_order(house: SeamHouse) -> None:  # noqa: F811
    queue = await house.queue()
    await house.stage(b"a", bytes(BODY_BYTES_MAX), b"small")
    await house.stage(b"b", *(b"%d" % number + bytes(50_000) for number in range(40)))
    await house.publish(b"b", b"a")
    found = await everything(queue)
    assert [one.body[:2].rstrip(b"\0") for one in found] == [*(b"%d" % number for number in range(40)), b"", b"sm"]
    assert len(found[40].body) == BODY_BYTES_MAX
