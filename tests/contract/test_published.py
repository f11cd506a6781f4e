"""Stages as people hold them, here and over a connection: what a task sends is seen by nobody until it is published, and then once."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail import Outgoing, Stage
from dovetail.errors import BadRequest, LimitExceeded, NoSuchQueue, NoSuchStage
from dovetail.limits import BODY_BYTES_MAX, STAGES_PER_PUBLISH_MAX
from tests.contract.house import House, bodies, everything, soon, turns, waiting


async def staged(house: House, *messages: Any, to: str = "orders", name: str | None = None) -> Stage:
    stage: Stage = house.node.stage(name)
    assert await stage.send_many(await house.node.queue(to), list(messages)) == len(messages)
    return stage


@pytest.mark.parametrize("snapshot", [False, True])
async def test_what_a_task_sends_is_seen_by_nobody_until_it_is_published(house: House, snapshot: bool) -> None:
    queue = await house.node.queue("orders")
    tap = await queue.tap("archive")
    stage = await staged(house, b"one", Outgoing(b"two", group="g", attributes={"n": 1}))
    await queue.send(b"sent")
    assert (bodies(await everything(queue)), bodies((await tap.read()).messages), stage.messages) == ([b"sent"], [b"sent"], 2)
    await house.again(snapshot=snapshot)
    ((name, messages),) = [(one.name, one.messages) for one in await house.node.stages()]
    assert (name, messages) == (stage.name, 2)
    published = await house.node.publish([stage.name], "job", 0)
    assert ([one.messages for one in published.joined], published.before) == ([2], False)
    assert await house.node.stages() == []
    queue = await house.node.queue("orders")
    sent, one, two = await queue.receive(max=9)
    assert (sent.body, one.body, two.body, two.group) == (b"sent", b"one", b"two", "g")
    assert two.attributes["n"].value == b"1"


async def test_of_two_attempts_the_one_that_is_published_counts_and_a_batch_is_stored_once(house: House) -> None:
    await house.node.queue("orders")
    dead = await staged(house, b"a", b"b")
    alive = await staged(house, b"c", b"a", b"b")
    assert (await house.node.publish([alive], "job", 7)).before is False
    await house.again()
    again = await staged(house, b"b", b"c", b"a", name="attempt 3")
    for batch in (7, 6):
        published = await house.node.publish([again], "job", batch)
        assert (published.before, published.joined) == (True, ())
    assert await house.node.unstage([dead.name, again.name]) == 1
    assert (await house.node.publish([await staged(house, b"d")], "job", 8)).joined[0].messages == 1
    assert (await house.node.publish([await staged(house, b"e")], "another job", 0)).joined[0].messages == 1
    assert bodies(await everything(await house.node.queue("orders"))) == [b"c", b"a", b"b", b"d", b"e"]


async def test_published_messages_follow_every_rule_of_their_queues(house: House) -> None:
    await house.needs("transactions")
    once = await house.node.queue("once", deduplication_s=60)
    grouped = await house.node.queue("grouped", groups=True)
    await once.send(b"first", deduplication="k")
    stage = house.node.stage()
    await stage.send(once, Outgoing(b"again", deduplication="k"))
    await stage.send_many(grouped, [Outgoing(b"1", group="g"), Outgoing(b"2", group="g"), Outgoing(b"later", group="h", delay_s=30)])
    await stage.send_to([once, grouped], [Outgoing(b"both", group="i")])
    published = await house.node.publish([stage], "job", 0)
    assert [(one.messages, one.repeats) for one in published.joined] == [(1, 1), (4, 0)]
    assert bodies(await everything(once)) == [b"first", b"both"]
    assert sorted(bodies(await grouped.receive(max=1)) + bodies(await grouped.receive(max=9))) == [b"1", b"both"]
    house.clock.advance(31)
    assert b"later" in bodies(await grouped.receive(max=9))


async def test_a_publish_wakes_whoever_waits(house: House) -> None:
    queue = await house.node.queue("orders")
    stage = await staged(house, b"x")
    (receiver,) = await waiting(queue.receive(wait_s=60))
    await turns(50)
    assert not receiver.done()
    await house.node.publish([stage], "job", 0)
    assert bodies(await soon(receiver)) == [b"x"]


async def test_a_publish_is_refused_whole_where_something_is_missing(house: House) -> None:
    await house.needs("transactions")
    queue, other = await house.node.queue("orders"), await house.node.queue("other")
    good = await staged(house, b"x")
    with pytest.raises(NoSuchStage, match=house.node.stage("never begun").name.hex()):
        await house.node.publish([good, "never begun"], "job", 0)
    bad = await staged(house, b"y", to="other")
    await house.node.drop("other")
    with pytest.raises(NoSuchQueue):
        await house.node.publish([good, bad], "job", 0)
    with pytest.raises(NoSuchQueue):
        await house.node.stage().send(other, b"z")
    assert bodies(await everything(queue)) == []
    await house.node.publish([good], "job", 0)
    assert bodies(await everything(queue)) == [b"x"]
    await bad.discard()
    assert await house.node.stages() == []


async def test_what_nobody_will_publish_is_found_and_given_up(house: House) -> None:
    await house.node.queue("orders")
    for index in range(3):
        await staged(house, *[b"xx"] * (index + 1), name=f"task {index}")
    found = {one.name: (one.messages, one.bytes) for one in await house.node.stages()}
    assert found == {house.node.stage(f"task {index}").name: (index + 1, 2 * (index + 1)) for index in range(3)}
    one, *others = await house.node.stages()
    assert await house.node.unstage([one]) == 1
    assert await house.node.unstage([*others, one, "unknown"]) == 2
    assert await house.node.stages() == []


async def test_the_largest_message_and_a_large_batch_are_staged_in_order(house: House) -> None:
    await house.node.queue("orders")
    large = await staged(house, bytes(BODY_BYTES_MAX), b"small")
    many = await staged(house, *(b"%d" % number + bytes(50_000) for number in range(40)))
    assert (many.messages, (await house.node.publish([many, large], "job", 0)).joined[0].messages) == (40, 42)
    found = bodies(await everything(await house.node.queue("orders")))
    assert [one[:2].rstrip(b"\0") for one in found] == [*(b"%d" % number for number in range(40)), b"", b"sm"]


async def test_what_cannot_be_staged_or_published_is_refused_and_breaks_nothing(house: House) -> None:
    await house.needs("transactions")
    queue = await house.node.queue("orders")
    stage = house.node.stage("one")
    for act, error in (
        (lambda: stage.send(queue, bytes(BODY_BYTES_MAX + 1)), LimitExceeded),
        (lambda: stage.send(queue, "text"), BadRequest),
        (lambda: stage.send(queue, Outgoing(b"x", delay_s=1e12)), LimitExceeded),
        (lambda: stage.send_many(queue, []), LimitExceeded),
        (lambda: stage.send_to([], [b"x"]), LimitExceeded),
        (lambda: stage.send_to([queue, queue], [b"x"]), LimitExceeded),
        (lambda: house.node.publish([stage], "job", -1), BadRequest),
        (lambda: house.node.publish([stage], "job", 1 << 63), BadRequest),
        (lambda: house.node.publish([stage], b"short", 0), BadRequest),
        (lambda: house.node.publish("one", "job", 0), BadRequest),
        (lambda: house.node.publish([b"short"], "job", 0), BadRequest),
        (lambda: house.node.publish([stage] * (STAGES_PER_PUBLISH_MAX + 1), "job", 0), LimitExceeded),
        (lambda: house.node.publish([stage], "job", 0), NoSuchStage),
    ):
        with pytest.raises(error):
            await act()
    assert await stage.send(queue, b"x") == 1
    assert (await house.node.publish([stage], "job", 0)).joined[0].messages == 1
    assert (await house.node.publish([], "job", 1)).joined == (), "an empty batch is published too"
