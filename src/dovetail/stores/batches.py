"""Batches on their way in and out of a replayed store: callers' messages become columns, outcomes become answers or errors."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TypeVar

from dovetail.core import message
from dovetail.core import operation as op
from dovetail.core.column import Column
from dovetail.core.operation import DEFAULT, Outcome, Push, Pushed, PushedAll, Refusal, Why
from dovetail.errors import (
    BadRequest,
    BatchRefused,
    Fenced,
    LimitExceeded,
    NoSuchQueue,
    NoSuchReservation,
    NoSuchStage,
    NoSuchTap,
    NumberRefused,
    OverInFlight,
    QueueExists,
    ReceiptInvalid,
    Refused,
    Unknown,
)
from dovetail.limits import (
    BATCH_BYTES_MAX,
    BATCH_MESSAGES_MAX,
    BATCH_NUMBER_MAX,
    BODY_BYTES_MAX,
    ENTRY_BYTES_TARGET,
    GROUP_BYTES_MAX,
    MESSAGE_BYTES_MAX,
    RESERVED_BATCHES_MAX,
    STAGES_OPEN_MAX,
)
from dovetail.stores.store import Number, Outgoing, Stored

_ERRORS: dict[Why, type[Refused]] = {
    Why.NO_QUEUE: NoSuchQueue,
    Why.NAME_TAKEN: QueueExists,
    Why.DROPPED_ID: NoSuchQueue,
    Why.OVER_IN_FLIGHT: OverInFlight,
    Why.NOT_OPEN: NumberRefused,
    Why.GAP: NumberRefused,
    Why.DEAD_RECEIPT: ReceiptInvalid,
    Why.NO_TAP: NoSuchTap,
    Why.TOO_MANY_TAPS: LimitExceeded,
    Why.NEEDS_GROUPS: BadRequest,
    Why.SKIPPED: NumberRefused,
    Why.NO_STAGE: NoSuchStage,
    Why.STAGE_GAP: NumberRefused,
    Why.STAGE_DIFFERS: NumberRefused,
    Why.TOO_MANY_STAGES: LimitExceeded,
    Why.NO_RESERVATION: NoSuchReservation,
    Why.TOO_MANY_RESERVATIONS: LimitExceeded,
    Why.FENCED: Fenced,
    Why.BATCH_PAST: BatchRefused,
    Why.NO_BATCH: BatchRefused,
    Why.RELEASED: BatchRefused,
    Why.TOO_MANY_BATCHES: LimitExceeded,
}
_TEXTS = {
    Why.DEAD_RECEIPT: "The receipt is no longer alive: the message was settled, handed out again, or its lease ended.",
    Why.TOO_MANY_TAPS: "The queue has as many taps as it may have.",
    Why.SKIPPED: "The number was skipped, and stays so.",
    Why.STAGE_GAP: "The number is not the next one of the stage: what lay before it was refused, or the stage has ended.",
    Why.STAGE_DIFFERS: "The stage has another record under this number: two writers use one stage.",
    Why.TOO_MANY_STAGES: f"{STAGES_OPEN_MAX} stages are open, as many as may be.",
    Why.TOO_MANY_RESERVATIONS: "The queue has as many reservations as it may have.",
    Why.BATCH_PAST: "The batch was settled, released, or passed over by a later one. Batch numbers only grow.",
    Why.NO_BATCH: "The batch was never reserved.",
    Why.RELEASED: "The batch was released by an operator: its messages are with others.",
    Why.TOO_MANY_BATCHES: f"{RESERVED_BATCHES_MAX} batches are open, as many as may be: settle some.",
    Why.VERSION: "The log has not gone on to the version that knows this.",
    Why.DIVIDED: "The namespace has another number of logs.",
    Why.ELSEWHERE: "The queue lies in another log of the namespace.",
    Why.NEEDS_GROUPS: "A queue that holds messages cannot change its discipline.",
}
_MESSAGE_OVERHEAD = 48

T = TypeVar("T")


def error_of(refusal: Refusal) -> Refused:
    return _ERRORS.get(refusal.why, Refused)(_TEXTS.get(refusal.why))


def check_number(batch: int) -> None:
    """Of a batch that is published or reserved."""
    if type(batch) is not int or not 0 <= batch <= BATCH_NUMBER_MAX:
        raise BadRequest(f"{batch!r} is no batch: they are numbered from 0, up to {BATCH_NUMBER_MAX}")


def check_batch(messages: Sequence[Outgoing]) -> None:
    if not 1 <= len(messages) <= BATCH_MESSAGES_MAX:
        raise LimitExceeded(f"{len(messages)} messages in one call; 1 to {BATCH_MESSAGES_MAX} are allowed")
    total = 0
    for one in messages:
        size = len(one.body) + len(one.attributes)
        if size > MESSAGE_BYTES_MAX or len(one.body) > BODY_BYTES_MAX:
            raise LimitExceeded(f"a message of {size} bytes; at most {BODY_BYTES_MAX} are allowed")
        if len(one.group) > GROUP_BYTES_MAX:
            raise LimitExceeded(f"a group name of {len(one.group)} bytes; at most {GROUP_BYTES_MAX} are allowed")
        total += size
    if total > BATCH_BYTES_MAX:
        raise LimitExceeded(f"a batch of {total} bytes; at most {BATCH_BYTES_MAX} are allowed")


def pieces(messages: Sequence[Outgoing]) -> list[Sequence[Outgoing]]:
    """A batch cut into what fits an entry well. Items of a batch are judged one by one, so a cut changes nothing."""
    return _cut(messages, [len(one.body) + len(one.attributes) + len(one.group) for one in messages])


def _cut(items: Sequence[T], sizes: Sequence[int]) -> list[Sequence[T]]:
    cut: list[Sequence[T]] = []
    start = size = 0
    for index, weight in enumerate(sizes):
        if size and size + weight + _MESSAGE_OVERHEAD > ENTRY_BYTES_TARGET:
            cut.append(items[start:index])
            start, size = index, 0
        size += weight + _MESSAGE_OVERHEAD
    return [*cut, items[start:]]


def body_pieces(bodies: Sequence[bytes]) -> list[Sequence[bytes]]:
    """Plain bodies, checked, and cut as `pieces` cuts messages."""
    if len(bodies) == 1 and len(bodies[0]) <= BODY_BYTES_MAX:
        return [bodies]
    if not 1 <= len(bodies) <= BATCH_MESSAGES_MAX:
        raise LimitExceeded(f"{len(bodies)} messages in one call; 1 to {BATCH_MESSAGES_MAX} are allowed")
    sizes = list(map(len, bodies))
    total, largest = sum(sizes), max(sizes)
    if largest > BODY_BYTES_MAX:
        raise LimitExceeded(f"a message of {largest} bytes; at most {BODY_BYTES_MAX} are allowed")
    if total > BATCH_BYTES_MAX:
        raise LimitExceeded(f"a batch of {total} bytes; at most {BATCH_BYTES_MAX} are allowed")
    if total + _MESSAGE_OVERHEAD * len(bodies) <= ENTRY_BYTES_TARGET:
        return [bodies]
    return _cut(bodies, sizes)


def push_of(queues: Sequence[int], messages: Sequence[Outgoing], number: Number | None) -> Push:
    """The columns of a batch. Sections that no message needs are left out."""
    delays: Sequence[int] | None = None
    if any(one.delay_ms != DEFAULT for one in messages):
        same = all(one.delay_ms == messages[0].delay_ms for one in messages)
        delays = (messages[0].delay_ms,) if same else [one.delay_ms for one in messages]
    return Push(
        tuple(queues),
        Column.of([one.body for one in messages]),
        delays,
        Column.of([one.group for one in messages]) if any(one.group for one in messages) else None,
        b"".join(one.dedup or bytes(16) for one in messages) if any(one.dedup for one in messages) else None,
        b"".join(one.id or bytes(16) for one in messages) if any(one.id for one in messages) else None,
        Column.of([one.attributes for one in messages]) if any(one.attributes for one in messages) else None,
        op.Numbered(*number) if number is not None else None,
    )


def pushed_to(outcome: Outcome) -> Sequence[Pushed]:
    """What a push did in each lane; its refusal is raised."""
    if isinstance(outcome, Refusal):
        raise error_of(outcome)
    if isinstance(outcome, PushedAll):
        return outcome.lanes
    assert isinstance(outcome, Pushed)
    return [outcome]


async def whole(submitted: Sequence[asyncio.Future[T]]) -> list[T]:
    """The outcomes of a batch that was cut. Where a part was refused and a part was not, the whole is neither refused nor done."""
    answers = await asyncio.gather(*submitted, return_exceptions=True)
    failed = [answer for answer in answers if isinstance(answer, BaseException)]
    if failed and len(failed) < len(answers):
        raise Unknown(f"Only a part of the batch was stored: {failed[0]}")
    if failed:
        raise failed[0]
    return [answer for answer in answers if not isinstance(answer, BaseException)]


def stored(pushed: Pushed, messages: Sequence[Outgoing], salt: int) -> list[Stored]:
    if pushed.refused:
        raise NumberRefused("A number that was refused or skipped once has that outcome for ever.")
    return [
        Stored(one.id or message.id_of(pushed.queue, sequence, salt), sequence, index in pushed.repeats)
        for index, (one, sequence) in enumerate(zip(messages, pushed.sequences, strict=True))
    ]
