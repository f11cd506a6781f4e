"""The calls that make up nearly all traffic, in their plain form, without a task and without a structure for the result: SendMessage and
SendMessageBatch of nothing but bodies, a ReceiveMessage that finds something and asks for no attributes, DeleteMessage and its batch.

Nothing is decided here that the actions (messages.py) would decide otherwise: whatever is not plain, and whatever would be refused, gives
None, and the door goes the long way, which says why. A call is one object: its place in the order of answers, and the reply that the store
tells the outcome, in the very turn in which it is known. (A future, its callback and a place in the loop's line for each took 4 µs of 16.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from dovetail.core.message import id_text
from dovetail.core.operation import DEFAULT
from dovetail.doors.http.message import Later, Request, Response
from dovetail.doors.sqs import content, jsonwire, shapes
from dovetail.doors.sqs.calls import NAMESPACES, Rules
from dovetail.doors.sqs.errors import SqsError
from dovetail.doors.sqs.messages import BATCH_MAX, ENTRY_ID, LEASE_S_MAX, RECEIVE_MAX, WAIT_S_MAX
from dovetail.errors import DovetailError
from dovetail.limits import BODY_BYTES_MAX
from dovetail.service.broker import Lane
from dovetail.service.meters import Meter

if TYPE_CHECKING:
    from dovetail.doors.sqs.door import Door

_send = msgspec.json.Decoder(shapes.SendMessage)
_send_batch = msgspec.json.Decoder(shapes.SendMessageBatch)
_receive = msgspec.json.Decoder(shapes.ReceiveMessage)
_delete = msgspec.json.Decoder(shapes.DeleteMessage)
_delete_batch = msgspec.json.Decoder(shapes.DeleteMessageBatch)
_encode = msgspec.json.Encoder().encode

Way = Callable[["Door", Request, str], "Later | None"]

_TYPE_LINE = b"content-type: " + jsonwire.CONTENT_TYPE + b"\r\n"


class Known(NamedTuple):
    """A standard queue about which there is nothing to ask: the caller's own, or an open door's."""

    lane: Lane
    rules: Rules
    meter: Meter


def _plain_queue(door: Door, request: Request, url: str) -> Known | None:
    if door.limited:
        return None
    caller = door.caller(request)
    key = (url, caller.region, caller.account if caller.signed else "")
    plain = door.plain_queues()
    known = plain.get(key)
    if known is None:
        place = door.places.get(url)
        if place is None:
            return None
        account, name = place
        lane = door.broker.catalog.find(f"{account}{NAMESPACES}{caller.region}", name)
        if lane is None:
            return None
        rules = door.rules(lane)
        if rules.fifo or (caller.signed and (rules.policy is not None or caller.account != account)):
            return None
        known = plain[key] = Known(lane, rules, door.broker.meter(lane))
    return known


class _Plain(Later):
    """A call under way. `tell` makes the answer's body of the outcome."""

    __slots__ = ("began", "door", "known", "request", "request_id")
    action = ""
    undoes = False
    """Whether the outcome is to be taken back where the caller has left."""

    def __init__(self, door: Door, request: Request, request_id: str, known: Known) -> None:
        super().__init__()
        self.door = door
        self.request = request
        self.request_id = request_id
        self.known = known
        self.began = perf_counter()

    def done(self) -> bool:
        return self.undoes and self.left

    def set_result(self, outcome: Any) -> None:
        try:
            body = self.tell(outcome)
        except Exception as error:
            self.set_exception(error)
            return
        if body is not None:
            self.door.count_request(self.action, "ok", perf_counter() - self.began)
            undo = partial(self.known.lane.give_up, outcome) if self.undoes else None
            told = self.request_id.encode()
            lines = b"%bx-amzn-requestid: %b\r\n" % (_TYPE_LINE if body else b"", told)
            self.give(Response(200, body, jsonwire.CONTENT_TYPE, ((b"x-amzn-requestid", told),), undo, lines))

    def set_exception(self, error: BaseException) -> None:
        told = self.door.told(error, self.request_id)
        self.door.count_request(self.action, told.kind.code, perf_counter() - self.began)
        self.give(jsonwire.encode_error(told, self.request_id))

    def tell(self, outcome: Any) -> bytes | None:
        """The body of the answer; None where the call goes on another way."""
        raise NotImplementedError


# Sending


class _Sending(_Plain):
    __slots__ = ("body",)
    action = "SendMessage"
    body: bytes

    def tell(self, sequences: Sequence[int]) -> bytes:
        lane, _, meter = self.known
        meter.pushed.value += 1
        meter.bytes.value += len(self.body)
        told = f'{{"MD5OfMessageBody":"{content.md5(self.body)}","MessageId":"{id_text(lane.id_of(sequences[0]))}"}}'
        return told.encode()


def send_message(door: Door, request: Request, request_id: str) -> Later | None:
    o = _send.decode(request.body)
    text = o.message_body
    if not text.isprintable() or not text or not _is_plain(o):
        return None
    known = _plain_queue(door, request, o.queue_url)
    if known is None:
        return None
    body = text.encode()
    if len(body) > known.rules.body_max:
        return None
    sending = _Sending(door, request, request_id, known)
    sending.body = body
    known.meter.seen_publisher(request.peer)
    known.lane.push_for(sending, (body,))
    return sending


def _is_plain(o: shapes.SendMessage | shapes.SendEntry) -> bool:
    return (
        o.message_attributes is None
        and o.delay_seconds is None
        and o.message_group_id is None
        and o.message_deduplication_id is None
        and o.message_system_attributes is None
    )


class _SendingBatch(_Plain):
    __slots__ = ("bodies", "keys", "size")
    action = "SendMessageBatch"
    bodies: list[bytes]
    keys: list[str]
    size: int

    def tell(self, sequences: Sequence[int]) -> bytes:
        lane, _, meter = self.known
        meter.pushed.value += len(sequences)
        meter.bytes.value += self.size
        id_of, md5 = lane.id_of, content.md5
        told = [
            f'{{"Id":"{key}","MessageId":"{id_text(id_of(sequence))}","MD5OfMessageBody":"{md5(body)}"}}'
            for key, sequence, body in zip(self.keys, sequences, self.bodies, strict=True)
        ]
        return f'{{"Successful":[{",".join(told)}],"Failed":[]}}'.encode()


def send_message_batch(door: Door, request: Request, request_id: str) -> Later | None:
    o = _send_batch.decode(request.body)
    entries = o.entries
    if not entries or len(entries) > BATCH_MAX:
        return None
    keys = [entry.id for entry in entries]
    if len(set(keys)) != len(keys):
        return None
    for entry in entries:
        if not ENTRY_ID.fullmatch(entry.id) or not entry.message_body.isprintable() or not entry.message_body or not _is_plain(entry):
            return None
    known = _plain_queue(door, request, o.queue_url)
    if known is None:
        return None
    bodies = [entry.message_body.encode() for entry in entries]
    sizes = list(map(len, bodies))
    if max(sizes) > known.rules.body_max or sum(sizes) > BODY_BYTES_MAX:
        return None
    sending = _SendingBatch(door, request, request_id, known)
    sending.bodies, sending.keys, sending.size = bodies, keys, sum(sizes)
    known.meter.seen_publisher(request.peer)
    known.lane.push_for(sending, bodies)
    return sending


# Receiving


class _Receiving(_Plain):
    __slots__ = ("lease_ms",)
    action = "ReceiveMessage"
    undoes = True
    lease_ms: int

    def tell(self, outcome: Any) -> bytes | None:
        lane, _, meter = self.known
        got = lane.taken(outcome, self.lease_ms)
        if not got:
            # Somebody was quicker. Whether to wait, or to say that too many are in flight, is for the long way to know.
            self.door.long_way(self.request, b"AmazonSQS.ReceiveMessage", self.request_id, self)
            return None
        meter.count_delivered(got)
        md5 = content.md5
        told = [
            f'{{"MessageId":"{id_text(one.id)}","ReceiptHandle":"{one.receipt}","MD5OfBody":"{md5(one.body)}","Body":{_json(one.body)}}}'
            for one in got
        ]
        return f'{{"Messages":[{",".join(told)}]}}'.encode()


def _json(body: bytes) -> str:
    """A body as a JSON text."""
    text = body.decode(errors="replace")
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return _encode(text).decode()


def receive_message(door: Door, request: Request, request_id: str) -> Later | None:
    o = _receive.decode(request.body)
    most = 1 if o.max_number_of_messages is None else o.max_number_of_messages
    lease_s = o.visibility_timeout
    if (
        o.message_attribute_names
        or o.message_system_attribute_names
        or o.attribute_names
        or o.receive_request_attempt_id is not None
        or not 1 <= most <= RECEIVE_MAX
        or not 0 <= (o.wait_time_seconds or 0) <= WAIT_S_MAX
        or (lease_s is not None and not 0 <= lease_s <= LEASE_S_MAX)
    ):
        return None
    known = _plain_queue(door, request, o.queue_url)
    if known is None:
        return None
    lane = known.lane
    if door.broker.dequeue.waiting(lane.queue) or not lane.has_visible():
        return None
    receiving = _Receiving(door, request, request_id, known)
    receiving.lease_ms = DEFAULT if lease_s is None else lease_s * 1000
    known.meter.seen_consumer(request.peer)
    lane.pop_for(receiving, most, receiving.lease_ms)
    return receiving


# Deleting


class _Deleting(_Plain):
    __slots__ = ()
    action = "DeleteMessage"

    def tell(self, done: Sequence[bool]) -> bytes:
        self.known.meter.completed.value += sum(done)
        return b""


def delete_message(door: Door, request: Request, request_id: str) -> Later | None:
    o = _delete.decode(request.body)
    known = _plain_queue(door, request, o.queue_url)
    if known is None:
        return None
    deleting = _Deleting(door, request, request_id, known)
    known.lane.complete_for(deleting, (o.receipt_handle,))
    return deleting


class _DeletingBatch(_Deleting):
    __slots__ = ("keys",)
    action = "DeleteMessageBatch"
    keys: list[str]

    def tell(self, done: Sequence[bool]) -> bytes:
        super().tell(done)
        told = ",".join([f'{{"Id":"{key}"}}' for key in self.keys])
        return f'{{"Successful":[{told}],"Failed":[]}}'.encode()


def delete_message_batch(door: Door, request: Request, request_id: str) -> Later | None:
    o = _delete_batch.decode(request.body)
    entries = o.entries
    if not entries or len(entries) > BATCH_MAX:
        return None
    keys = [entry.id for entry in entries]
    if len(set(keys)) != len(keys) or not all(map(ENTRY_ID.fullmatch, keys)):
        return None
    known = _plain_queue(door, request, o.queue_url)
    if known is None:
        return None
    deleting = _DeletingBatch(door, request, request_id, known)
    deleting.keys = keys
    known.lane.complete_for(deleting, [entry.receipt_handle for entry in entries])
    return deleting


WAYS: dict[bytes, Way] = {
    b"AmazonSQS.SendMessage": send_message,
    b"AmazonSQS.SendMessageBatch": send_message_batch,
    b"AmazonSQS.ReceiveMessage": receive_message,
    b"AmazonSQS.DeleteMessage": delete_message,
    b"AmazonSQS.DeleteMessageBatch": delete_message_batch,
}
TURNS = (msgspec.DecodeError, UnicodeError, RecursionError, SqsError, DovetailError)
"""What makes the door go the long way, where it is refused in the proper words."""
