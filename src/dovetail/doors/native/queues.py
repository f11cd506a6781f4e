"""Requests about queues as a whole: open and make, change, drop, list, count and look at; dead letters back; producers."""

from __future__ import annotations

from dataclasses import fields as fields_of
from hashlib import blake2b
from heapq import nsmallest
from typing import TYPE_CHECKING, Any

from dovetail.core.column import Column
from dovetail.core.operation import Attributes
from dovetail.doors.native import answers, requests
from dovetail.doors.native import lent as lending
from dovetail.doors.native.answers.queues import REDRIVES
from dovetail.doors.native.bounds import DELIVERY_BYTES_MAX, LIST_NAMES_MAX
from dovetail.doors.native.fields import Rules
from dovetail.doors.native.frames import Frame
from dovetail.doors.native.opened import CONFIGURE, DROP, LOOK, MOVE, RECEIVE, Opened
from dovetail.doors.native.refusals import AccessDenied, NotOpened
from dovetail.doors.native.slots import Look
from dovetail.doors.native.work import Working
from dovetail.errors import BadRequest, LimitExceeded, NoSuchQueue, QueueExists
from dovetail.limits import BATCH_MESSAGES_MAX
from dovetail.service.broker import Lane, Number, Waiting

if TYPE_CHECKING:
    from dovetail.doors.native.connection import Connection

EXTRA_CHARS_MAX = 32 * 1024
"""Of what doors and clients keep with a queue."""
_PEEK_STEP = 64
_REDRIVE_RATE = 1000
_RULES = [one.name for one in fields_of(Attributes) if one.name != "extra"]


# Opening and making


def open_queue(connection: Connection, frame: Frame) -> None:
    request = requests.decode(frame)
    assert isinstance(request, requests.Open)

    async def work() -> answers.Opened:
        try:
            lane = _found(connection, request.namespace, request.name)
        except NoSuchQueue:
            if not await connection.door.broker.store.confirm():
                raise
            # Another node may have made it a moment ago.
            lane = _found(connection, request.namespace, request.name)
        return _told(connection, lane)

    Working(connection, frame.number, frame.kind, None, work)


def declare(connection: Connection, frame: Frame) -> None:
    request = requests.decode(frame)
    assert isinstance(request, requests.Declare)
    door, caller = connection.door, connection.caller
    assert caller is not None
    namespace, rules = request.namespace or caller.namespace, request.rules
    if not caller.owns(namespace):
        raise AccessDenied("The namespace belongs to another account.")
    _check_rules(connection, rules)

    async def work() -> answers.Opened:
        catalog = door.broker.catalog
        lane = catalog.find(namespace, request.name)
        if lane is None or _differs(lane, rules):
            if lane is None:
                door.check_create(caller)
            try:
                lane = await catalog.create(namespace, request.name, Attributes(**rules))
            except QueueExists:
                # Somebody made it in the same moment, or it has rules beside those that were named. What counts are those.
                lane = catalog.get(namespace, request.name)
                if _differs(lane, rules):
                    raise
        return _told(connection, lane)

    Working(connection, frame.number, frame.kind, None, door.noted(connection, "CreateQueue", request.name, work))


def _differs(lane: Lane, rules: Rules) -> bool:
    return any(getattr(lane.attributes, rule) != value for rule, value in rules.items())


def _check_rules(connection: Connection, rules: Rules) -> None:
    """A dead-letter queue receives messages: whoever names one must have opened it. What else a queue keeps is small."""
    extra = sum(len(part) for pair in rules.get("extra", {}).items() for part in pair)
    if extra > EXTRA_CHARS_MAX:
        raise LimitExceeded(f"{extra} characters to be kept with a queue; at most {EXTRA_CHARS_MAX} are allowed")
    if rules.get("dead_letter"):
        connection.opened(rules["dead_letter"], LOOK)


def _found(connection: Connection, namespace: str, name: str) -> Lane:
    """The queue of that name. Whether there is one is nobody's business but its owner's, and of those whom its policy names."""
    door, caller = connection.door, connection.caller
    assert caller is not None
    lane = door.broker.catalog.find(namespace or caller.namespace, name)
    if lane is not None and door.rights(connection, lane):
        return lane
    if not caller.owns(namespace or caller.namespace):
        raise AccessDenied("The namespace belongs to another account.")
    if lane is not None:
        raise AccessDenied("The queue's policy does not allow this.")
    raise NoSuchQueue(f"There is no queue named {name!r}.")


def _told(connection: Connection, lane: Lane) -> answers.Opened:
    door, queues = connection.door, connection.queues
    if lane.queue not in queues:
        if len(queues) >= door.bounds.queues_max:
            for gone in [queue for queue, opened in queues.items() if door.broker.store.lane(queue) is not opened.lane]:
                del queues[gone]
        if len(queues) >= door.bounds.queues_max:
            raise LimitExceeded(f"{len(queues)} queues are open on this connection; it may have no more")
        queues[lane.queue] = Opened(lane, door.broker.meter(lane), door.rights(connection, lane))
    # Rules hold the policy, which is not everybody's business who may send here.
    return answers.Opened(lane.queue, rules_of(lane.attributes) if queues[lane.queue].rights & LOOK else {})


def rules_of(attributes: Attributes) -> dict[str, Any]:
    return {**{name: getattr(attributes, name) for name in _RULES}, "extra": dict(attributes.extra)}


def configure(connection: Connection, frame: Frame) -> None:
    request = requests.decode(frame)
    assert isinstance(request, requests.Configure)
    opened = connection.opened(request.queue, CONFIGURE)
    _check_rules(connection, request.rules)

    async def work() -> answers.Opened:
        attributes = await connection.door.broker.catalog.configure(opened.lane, **request.rules)
        return answers.Opened(request.queue, rules_of(attributes))

    Working(connection, frame.number, frame.kind, opened.order, connection.door.noted(connection, "SetQueueAttributes", opened, work))


def drop(connection: Connection, frame: Frame) -> None:
    request = requests.decode(frame)
    assert isinstance(request, requests.About)
    opened = connection.opened(request.queue, DROP)

    async def work() -> answers.Done:
        await connection.door.broker.store.drop(request.queue)
        return answers.Done(1)

    Working(connection, frame.number, frame.kind, opened.order, connection.door.noted(connection, "DeleteQueue", opened, work))


def list_queues(connection: Connection, frame: Frame) -> None:
    request = requests.decode(frame)
    assert isinstance(request, requests.List)
    caller = connection.caller
    assert caller is not None
    namespace = request.namespace or caller.namespace
    if not caller.owns(namespace):
        raise AccessDenied("The namespace belongs to another account.")
    most = min(max(request.most, 1), LIST_NAMES_MAX)

    async def work() -> answers.Queues:
        named = connection.door.broker.store.queues(namespace)
        behind = ((name, queue) for name, queue in named if name > request.after and name.startswith(request.prefix))
        found = nsmallest(most + 1, behind)
        return answers.Queues(found[:most], len(found) > most)

    Working(connection, frame.number, frame.kind, None, work)


def name(connection: Connection, frame: Frame) -> None:
    request = requests.decode(frame)
    assert isinstance(request, requests.About)
    caller, found = connection.caller, connection.door.broker.store.name_of(request.queue)
    if found is None or caller is None or not caller.owns(found[0]):
        raise NoSuchQueue
    connection.tell(answers.Named(*found), frame.number)


# Looking


def counts(connection: Connection, frame: Frame) -> None:
    request = requests.decode(frame)
    assert isinstance(request, requests.About)
    opened = connection.opened(request.queue, LOOK)
    number = frame.number
    made = answers.Counted
    Look(connection, number, frame.kind, opened, lambda: answers.encode(made(*opened.lane.counts()), number))


def peek(connection: Connection, frame: Frame) -> None:
    request = requests.decode(frame)
    assert isinstance(request, requests.Peek)
    opened = connection.opened(request.queue, RECEIVE)
    if not 1 <= request.most <= BATCH_MESSAGES_MAX:
        raise LimitExceeded(f"{request.most} messages asked for; 1 to {BATCH_MESSAGES_MAX} are allowed")
    number = frame.number
    Look(connection, number, frame.kind, opened, lambda: answers.encode(_seen(opened.lane, request), number))


def _seen(lane: Lane, request: requests.Peek) -> answers.Messages:
    left = min(request.bytes_max or DELIVERY_BYTES_MAX, DELIVERY_BYTES_MAX)
    found: list[Waiting] = []
    after, more = request.after, True
    while more and len(found) < request.most:
        step = min(_PEEK_STEP, request.most - len(found))
        seen = lane.peek(step, after)
        more = len(seen) == step
        for one in seen:
            left -= len(one.body) + len(one.group) + len(one.attributes)
            if left < 0 and found:
                more = False
                break
            found.append(one)
            after = one.sequence
    own = [one.id if one.id != lane.id_of(one.sequence) else bytes(16) for one in found]
    return answers.Messages(
        lane.queue,
        after + 1,
        lane.counts().pushed + 1,
        [one.sequence for one in found],
        [one.sent_at_ms for one in found],
        Column.of([one.body for one in found]),
        b"".join(own) if any(map(any, own)) else None,
        Column.of([one.group for one in found]) if any(one.group for one in found) else None,
        Column.of([one.attributes for one in found]) if any(one.attributes for one in found) else None,
        [one.receives for one in found],
        bytes(answers.STATES.index(one.state) for one in found),
    )


# Dead letters back


def redrive(connection: Connection, frame: Frame) -> None:
    request = requests.decode(frame)
    assert isinstance(request, requests.Redrive)
    opened = connection.opened(request.queue, MOVE)
    target = connection.opened(request.target, MOVE).lane if request.target else None

    async def work() -> answers.Redriving:
        connection.door.broker.redrive(opened.lane, target, request.rate / _REDRIVE_RATE)
        return _redriving(connection, opened)

    Working(connection, frame.number, frame.kind, opened.order, connection.door.noted(connection, "StartMessageMoveTask", opened, work))


def redrive_status(connection: Connection, frame: Frame) -> None:
    request = requests.decode(frame)
    assert isinstance(request, requests.About)
    opened = connection.opened(request.queue, MOVE)
    number = frame.number
    Look(connection, number, frame.kind, opened, lambda: answers.encode(_redriving(connection, opened), number))


def redrive_cancel(connection: Connection, frame: Frame) -> None:
    request = requests.decode(frame)
    assert isinstance(request, requests.About)
    opened = connection.opened(request.queue, MOVE)

    async def work() -> answers.Redriving:
        task = connection.door.broker.redrive_of(opened.lane)
        if task is not None:
            await task.cancel()
        return _redriving(connection, opened)

    Working(connection, frame.number, frame.kind, opened.order, connection.door.noted(connection, "CancelMessageMoveTask", opened, work))


def _redriving(connection: Connection, opened: Opened) -> answers.Redriving:
    task = connection.door.broker.redrive_of(opened.lane)
    if task is None:
        raise NoSuchQueue("No redrive of this queue was started.")
    return answers.Redriving(REDRIVES.index(task.status), task.moved)


# Producers


def producer(connection: Connection, frame: Frame) -> None:
    request = requests.decode(frame)
    assert isinstance(request, requests.Producer)
    caller = connection.caller
    assert caller is not None
    identity, lent = request.identity, connection.door.lent
    if identity == lending.ASKED:
        identity = lent.take(connection)
    elif identity.startswith(lending.MARK):
        lent.claim(identity, connection)
    elif caller.signed:
        # Two accounts may call a producer by the same name, and neither must end the other's.
        identity = blake2b(identity, digest_size=16, key=caller.account.encode()).digest()
    if identity not in connection.producers and len(connection.producers) >= connection.door.bounds.queues_max:
        raise LimitExceeded(f"{len(connection.producers)} producers are open on this connection; it may have no more")

    async def work() -> answers.Producing:
        epoch, last = await connection.door.broker.store.producer_open(identity)
        connection.producers.add(identity)
        if connection.over:
            lent.left(connection, [identity])
        return answers.Producing(identity, epoch, last)

    Working(connection, frame.number, frame.kind, None, work)


def skip(connection: Connection, frame: Frame) -> None:
    request = requests.decode(frame)
    assert isinstance(request, requests.Skip)
    if request.identity not in connection.producers:
        raise NotOpened("The producer was not opened on this connection.")
    if not request.number:
        raise BadRequest("producers number their messages from 1")

    async def work() -> answers.Done:
        await connection.door.broker.store.producer_skip(Number(*request))
        return answers.Done(1)

    Working(connection, frame.number, frame.kind, None, work)
