"""SendMessage, ReceiveMessage, DeleteMessage, ChangeMessageVisibility, and their batches. One function for each action, named like it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple, Protocol, TypeVar

from dovetail.core.message import Attribute, id_text
from dovetail.core.operation import DEFAULT
from dovetail.doors.http.bounds import Bounds
from dovetail.doors.sqs import content, errors, shapes
from dovetail.doors.sqs.calls import Call, Rules
from dovetail.doors.sqs.errors import SqsError, invalid
from dovetail.errors import DovetailError, OverInFlight, ReceiptInvalid
from dovetail.limits import BODY_BYTES_MAX
from dovetail.service.broker import Delivery, Lane, Outgoing, dedup_hash

BATCH_MAX = 10
BATCH_MAX_BEYOND = 1000
RECEIVE_MAX = 10
WAIT_S_MAX = 20
DELAY_S_MAX = 900
LEASE_S_MAX = 43_200
SECONDS_MAX_BEYOND = 1 << 30
RECEIVE_AND_DELETE = "Dovetail.ReceiveAndDelete"
"""Among the system attribute names of a receive, where the operator allows what goes beyond SQS."""

WIRE_FACTOR_MAX = 8
"""Bytes of a request for one byte of a message: JSON may write a character as six (\\u0009) where a form needs three (%09), and a binary
value is four characters of base64 for three bytes, each of which may be written so."""
ENTRY_WIRE_BYTES_MAX = 512
"""Of an entry of a batch beside its message: names of fields, its id."""
assert Bounds().body_bytes_max >= WIRE_FACTOR_MAX * BODY_BYTES_MAX + ENTRY_WIRE_BYTES_MAX * BATCH_MAX_BEYOND

ENTRY_ID = re.compile(r"[A-Za-z0-9_-]{1,80}")


# Sending


class Ready(NamedTuple):
    """A message that may be pushed, and what its sender is told beside its id."""

    body: bytes
    outgoing: Outgoing | None
    """None where there is nothing but the body."""
    size: int
    md5_of_body: str
    md5_of_attributes: str | None
    md5_of_system_attributes: str | None


class Sending(Protocol):
    """What SendMessage and an entry of SendMessageBatch have in common."""

    message_body: str
    delay_seconds: int | None
    message_attributes: dict[str, shapes.Value] | None
    message_system_attributes: dict[str, shapes.Value] | None
    message_deduplication_id: str | None
    message_group_id: str | None


def _ready(call: Call, rules: Rules, one: Sending, sender: str) -> Ready:
    body = content.body_bytes(one.message_body)
    md5 = content.md5(body)
    if (
        one.message_attributes is None
        and one.delay_seconds is None
        and one.message_group_id is None
        and one.message_deduplication_id is None
        and one.message_system_attributes is None
        and not rules.fifo
        and not sender
    ):
        _check_size(rules, len(body))
        return Ready(body, None, len(body), md5, None, None)
    own, size = content.attributes_of(one.message_attributes) if one.message_attributes else ({}, 0)
    size += len(body)
    _check_size(rules, size)
    trace = content.system_attributes_of(one.message_system_attributes) if one.message_system_attributes else None
    group = content.token("MessageGroupId", one.message_group_id).encode() if one.message_group_id is not None else b""
    dedup, told = _deduplication(rules, one, body, group)
    kept = content.encode(own, trace=trace, deduplication=told, sender=sender)
    delay_ms = _delay_ms(call, rules, one.delay_seconds)
    system = {"AWSTraceHeader": Attribute("String", trace.encode())} if trace else None
    return Ready(
        body,
        Outgoing(body, delay_ms, group, kept, dedup),
        size,
        md5,
        content.md5_of_attributes(own) if own else None,
        content.md5_of_attributes(system) if system else None,
    )


def _check_size(rules: Rules, size: int) -> None:
    if size > rules.body_max:
        raise SqsError(
            errors.PARAMETER_VALUE,
            f"One or more parameters are invalid. Reason: Message must be shorter than {rules.body_max} bytes.",
        )


def _deduplication(rules: Rules, one: Sending, body: bytes, group: bytes) -> tuple[bytes, str | None]:
    """(the key by which a repeat is recognised, the id to keep where the sender gave one)"""
    given = one.message_deduplication_id
    if not rules.fifo:
        if given is not None:
            raise invalid("MessageDeduplicationId", given, "The request includes a parameter that is not valid for this queue type.")
        return b"", None
    if not group:
        raise errors.missing("MessageGroupId")
    if given is not None:
        content.token("MessageDeduplicationId", given)
    elif not rules.by_content:
        raise SqsError(
            errors.PARAMETER_VALUE,
            "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly",
        )
    key = given.encode() if given is not None else sha256(body).hexdigest().encode()
    return dedup_hash(key, group if rules.per_group else b""), given


def _delay_ms(call: Call, rules: Rules, seconds: int | None) -> int:
    if seconds is None:
        return DEFAULT
    beyond = call.door.beyond
    most = SECONDS_MAX_BEYOND if beyond else DELAY_S_MAX
    if not 0 <= seconds <= most:
        raise invalid("DelaySeconds", seconds, f"DelaySeconds must be >= 0 and <= {most}.")
    if rules.fifo and not beyond:
        if seconds:
            raise invalid("DelaySeconds", seconds, "The request include parameter that is not valid for this queue type.")
        return DEFAULT
    return seconds * 1000


async def send_message(call: Call, o: shapes.SendMessage) -> shapes.SendMessageResult:
    lane = call.lane(o.queue_url)
    rules = call.door.rules(lane)
    ready = _ready(call, rules, o, call.door.sender(call, lane))
    call.door.check_push(lane, 1, ready.size)
    ((identity, sequence),) = await _push(call, lane, [ready])
    return shapes.SendMessageResult(
        ready.md5_of_body,
        identity,
        ready.md5_of_attributes,
        ready.md5_of_system_attributes,
        _sequence(sequence) if rules.fifo else None,
    )


async def _push(call: Call, lane: Lane, ready: Sequence[Ready]) -> list[tuple[str, int]]:
    """(id, sequence) of each, once they are durable."""
    broker = call.door.broker
    broker.meter(lane).seen_publisher(call.request.peer)
    rich = [one.outgoing or Outgoing(one.body) for one in ready] if any(one.outgoing is not None for one in ready) else None
    if rich is None:
        # Nothing but bodies: no object per message on the way down.
        id_of = lane.id_of
        return [(id_text(id_of(sequence)), sequence) for sequence in await broker.push_bodies(lane, [one.body for one in ready])]
    stored = await broker.push(lane, rich)
    return [(id_text(one.id), one.sequence) for one in stored]


def _sequence(sequence: int) -> str:
    return f"{sequence:020d}"


async def send_message_batch(call: Call, o: shapes.SendMessageBatch) -> shapes.SendMessageBatchResult:
    lane = call.lane(o.queue_url)
    rules = call.door.rules(lane)
    entries = check_entries(call, o.entries, "SendMessageBatchRequestEntry")
    sender = call.door.sender(call, lane)
    good: list[tuple[str, Ready]] = []
    failed: list[shapes.EntryError] = []
    size = 0
    for entry in entries:
        try:
            good.append((entry.id, _ready(call, rules, entry, sender)))
        except SqsError as error:
            if rules.fifo and (entry.message_group_id is None or (entry.message_deduplication_id is None and not rules.by_content)):
                # What every message of a FIFO queue needs is asked of the whole batch, and under this code.
                raise SqsError(errors.PARAMETER_VALUE, error.text) from None
            failed.append(_failed(entry.id, error))
            size += content.counted(entry.message_body, entry.message_attributes)
    kept = sum(ready.size for _, ready in good)
    size += kept
    if size > BODY_BYTES_MAX:
        raise SqsError(errors.BATCH_TOO_LONG, f"Batch requests cannot be longer than {BODY_BYTES_MAX} bytes. You have sent {size} bytes.")
    call.door.check_push(lane, len(good), kept)
    stored = await _push(call, lane, [ready for _, ready in good]) if good else []
    done = [
        shapes.SendEntryResult(
            key,
            identity,
            ready.md5_of_body,
            ready.md5_of_attributes,
            ready.md5_of_system_attributes,
            _sequence(sequence) if rules.fifo else None,
        )
        for (key, ready), (identity, sequence) in zip(good, stored, strict=True)
    ]
    return shapes.SendMessageBatchResult(done, failed)


class Entry(Protocol):
    id: str


E = TypeVar("E", bound=Entry)


def check_entries(call: Call, entries: list[E] | None, name: str) -> list[E]:
    """The entries of a batch, which are refused together where their number or their ids are wrong."""
    if not entries:
        raise SqsError(errors.BATCH_EMPTY, f"There should be at least one {name} in the request.")
    most = BATCH_MAX_BEYOND if call.door.beyond else BATCH_MAX
    if len(entries) > most:
        raise SqsError(errors.BATCH_TOO_MANY, f"Maximum number of entries per request are {most}. You have sent {len(entries)}.")
    seen: set[str] = set()
    for entry in entries:
        if not ENTRY_ID.fullmatch(entry.id):
            raise SqsError(errors.BATCH_ID_INVALID)
        if entry.id in seen:
            raise SqsError(errors.BATCH_IDS_NOT_DISTINCT, f"Id {entry.id} repeated.")
        seen.add(entry.id)
    return entries


def _failed(key: str, error: SqsError) -> shapes.EntryError:
    return shapes.EntryError(key, error.kind.sender, error.kind.code, error.text)


# Receiving


async def receive_message(call: Call, o: shapes.ReceiveMessage) -> shapes.ReceiveMessageResult:
    lane = call.lane(o.queue_url)
    door = call.door
    rules = door.rules(lane)
    most = 1 if o.max_number_of_messages is None else o.max_number_of_messages
    limit = BATCH_MAX_BEYOND if door.beyond else RECEIVE_MAX
    if not 1 <= most <= limit:
        raise invalid("MaxNumberOfMessages", most, f"Must be between 1 and {limit}, if provided.")
    wait_ms = rules.wait_ms
    if o.wait_time_seconds is not None:
        if not 0 <= o.wait_time_seconds <= WAIT_S_MAX:
            raise invalid("WaitTimeSeconds", o.wait_time_seconds, f"Must be >= 0 and <= {WAIT_S_MAX}, if provided.")
        wait_ms = o.wait_time_seconds * 1000
    lease_ms = DEFAULT if o.visibility_timeout is None else _lease_ms(call, o.visibility_timeout)
    attempt = b""
    if o.receive_request_attempt_id is not None:
        attempt = content.token("ReceiveRequestAttemptId", o.receive_request_attempt_id).encode()
        if not rules.fifo:
            raise invalid(
                "ReceiveRequestAttemptId",
                o.receive_request_attempt_id,
                "The request include parameter that is not valid for this queue type.",
            )
    wanted = _wanted(o, door.beyond)
    door.broker.meter(lane).seen_consumer(call.request.peer)
    try:
        got = await door.broker.receive(lane, most, lease_ms, wait_ms=wait_ms, delete=RECEIVE_AND_DELETE in wanted, attempt=attempt)
    except OverInFlight:
        if not rules.fifo:
            raise
        got = []  # A FIFO queue says nothing; it just has no messages.
    if not got:
        return shapes.ReceiveMessageResult()
    if got[0].receipt:
        call.undo = lambda: door.broker.give_up(lane, [one.receipt for one in got])
    names = o.message_attribute_names or ()
    if not wanted and not names:
        md5 = content.md5
        return shapes.ReceiveMessageResult(
            [shapes.Message(id_text(one.id), one.receipt, md5(one.body), one.body.decode(errors="replace")) for one in got]
        )
    return shapes.ReceiveMessageResult([_message(call, lane, rules, one, wanted, names) for one in got])


def _lease_ms(call: Call, seconds: int) -> int:
    most = SECONDS_MAX_BEYOND if call.door.beyond else LEASE_S_MAX
    if not 0 <= seconds <= most:
        raise invalid("VisibilityTimeout", seconds, f"VisibilityTimeout must be an integer between 0 and {most}.")
    return seconds * 1000


SYSTEM_NAMES = (
    "SenderId",
    "SentTimestamp",
    "ApproximateReceiveCount",
    "ApproximateFirstReceiveTimestamp",
    "SequenceNumber",
    "MessageDeduplicationId",
    "MessageGroupId",
    "AWSTraceHeader",
    "DeadLetterQueueSourceArn",
)
_KNOWN = frozenset((*SYSTEM_NAMES, "All"))
_NONE: frozenset[str] = frozenset()


def _wanted(o: shapes.ReceiveMessage, beyond: bool) -> frozenset[str]:
    """The system attributes that a receiver asked for, by either of the two names that the list has had."""
    if not o.message_system_attribute_names and not o.attribute_names:
        return _NONE
    wanted = frozenset((*(o.message_system_attribute_names or ()), *(o.attribute_names or ())))
    for name in wanted:
        if name not in _KNOWN and not (beyond and name == RECEIVE_AND_DELETE):
            raise SqsError(errors.ATTRIBUTE_NAME, f"Unknown Attribute {name[:100]}.")
    return wanted | _KNOWN if "All" in wanted else wanted


def _message(call: Call, lane: Lane, rules: Rules, one: Delivery, wanted: frozenset[str], names: Sequence[str]) -> shapes.Message:
    body = one.body
    own, beside = content.decode(one.attributes) if one.attributes and (wanted or names) else ({}, {})
    picked = content.chosen(own, names) if own and names else None
    return shapes.Message(
        id_text(one.id),
        one.receipt,
        content.md5(body),
        body.decode(errors="replace"),
        _system(call, lane, rules, one, beside, wanted) if wanted else None,
        content.md5_of_attributes(picked) if picked else None,
        {name: content.shown(value) for name, value in picked.items()} if picked else None,
    )


def _system(
    call: Call, lane: Lane, rules: Rules, one: Delivery, beside: Mapping[str, str], wanted: frozenset[str]
) -> dict[str, str] | None:
    source = call.door.arn_text(one.source) if one.source else None
    values = {
        "SenderId": beside.get(content.SENDER) or call.arn_of(lane).account,
        "SentTimestamp": str(one.sent_at_ms),
        "ApproximateReceiveCount": str(one.receives),
        "ApproximateFirstReceiveTimestamp": str(one.first_received_ms),
        "SequenceNumber": _sequence(one.sequence) if rules.fifo else None,
        "MessageDeduplicationId": (beside.get(content.DEDUPLICATION) or sha256(one.body).hexdigest()) if rules.fifo else None,
        "MessageGroupId": one.group.decode() or None,
        "AWSTraceHeader": beside.get(content.TRACE_HEADER),
        "DeadLetterQueueSourceArn": source,
    }
    return {name: value for name, value in values.items() if value is not None and name in wanted} or None


# Settling


async def delete_message(call: Call, o: shapes.DeleteMessage) -> None:
    lane = call.lane(o.queue_url)
    await _delete(call, lane, o.receipt_handle)


async def _delete(call: Call, lane: Lane, receipt: str) -> None:
    try:
        (done,) = await call.door.broker.complete(lane, [receipt])
        expired = not done and lane.attributes.grouped and lane.exists([receipt])[0]
    except ReceiptInvalid:
        raise _receipt(receipt) from None
    if expired:
        # In a standard queue an old handle deletes the message or does nothing; in a FIFO queue its time is over.
        raise invalid("ReceiptHandle", receipt, "The receipt handle has expired.")


def _receipt(receipt: str) -> SqsError:
    return SqsError(errors.RECEIPT_INVALID, f'The input receipt handle "{receipt[:200]}" is not a valid receipt handle.')


async def delete_message_batch(call: Call, o: shapes.DeleteMessageBatch) -> shapes.DeleteMessageBatchResult:
    lane = call.lane(o.queue_url)
    entries = check_entries(call, o.entries, "DeleteMessageBatchRequestEntry")
    if not lane.attributes.grouped:
        try:
            await call.door.broker.complete(lane, [entry.receipt_handle for entry in entries])
            return shapes.DeleteMessageBatchResult([shapes.EntryDone(entry.id) for entry in entries], [])
        except ReceiptInvalid:
            pass  # One of them: each is judged alone.
    done, failed = await _each([(entry.id, _delete(call, lane, entry.receipt_handle)) for entry in entries])
    return shapes.DeleteMessageBatchResult(done, failed)


async def _each(work: Sequence[tuple[str, Awaitable[None]]]) -> tuple[list[shapes.EntryDone], list[shapes.EntryError]]:
    """The entries of a batch, all under way together, each with an outcome of its own."""
    outcomes = await asyncio.gather(*(one for _, one in work), return_exceptions=True)
    done: list[shapes.EntryDone] = []
    failed: list[shapes.EntryError] = []
    for (key, _), outcome in zip(work, outcomes, strict=True):
        if isinstance(outcome, (SqsError, DovetailError)):
            failed.append(_failed(key, errors.of(outcome)))
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            done.append(shapes.EntryDone(key))
    return done, failed


async def change_message_visibility(call: Call, o: shapes.ChangeMessageVisibility) -> None:
    lane = call.lane(o.queue_url)
    await _change(call, lane, o.receipt_handle, o.visibility_timeout)


async def _change(call: Call, lane: Lane, receipt: str, seconds: int) -> None:
    lease_ms = _lease_ms(call, seconds)
    try:
        if lease_ms and not call.door.beyond and lane.held_ms(receipt) + lease_ms > LEASE_S_MAX * 1000:
            text = f"Total VisibilityTimeout for the message is beyond the limit [{LEASE_S_MAX} seconds]."
            raise invalid("VisibilityTimeout", seconds, text)
        (done,) = await call.door.broker.extend(lane, [receipt], lease_ms)
        there = done or lane.exists([receipt])[0]
    except ReceiptInvalid:
        raise _receipt(receipt) from None
    if not there:
        raise invalid("ReceiptHandle", receipt, "Message does not exist or is not available for visibility timeout change.")
    if not done:
        raise SqsError(errors.MESSAGE_NOT_IN_FLIGHT)


async def change_message_visibility_batch(call: Call, o: shapes.ChangeMessageVisibilityBatch) -> shapes.ChangeMessageVisibilityBatchResult:
    lane = call.lane(o.queue_url)
    entries = check_entries(call, o.entries, "ChangeMessageVisibilityBatchRequestEntry")

    async def one(entry: shapes.ChangeEntry) -> None:
        if entry.visibility_timeout is None:
            raise errors.missing("VisibilityTimeout")
        await _change(call, lane, entry.receipt_handle, entry.visibility_timeout)

    done, failed = await _each([(entry.id, one(entry)) for entry in entries])
    return shapes.ChangeMessageVisibilityBatchResult(done, failed)


# Looking, which SQS does not have


async def peek_messages(call: Call, o: shapes.PeekMessages) -> shapes.PeekMessagesResult:
    lane = call.lane(o.queue_url)
    most = 10 if o.max_number_of_messages is None else o.max_number_of_messages
    if not 1 <= most <= BATCH_MAX_BEYOND:
        raise invalid("MaxNumberOfMessages", most, f"Must be between 1 and {BATCH_MAX_BEYOND}, if provided.")
    found = []
    for one in lane.peek(most, max(0, o.after or 0)):
        own, _ = content.decode(one.attributes) if one.attributes else ({}, {})
        told = {"SentTimestamp": str(one.sent_at_ms), "ApproximateReceiveCount": str(one.receives)}
        if one.group:
            told["MessageGroupId"] = one.group.decode()
        shown = {name: content.shown(value) for name, value in own.items()} if own else None
        found.append(shapes.PeekedMessage(id_text(one.id), one.sequence, one.body.decode(errors="replace"), one.state, told, shown))
    return shapes.PeekMessagesResult(found)
